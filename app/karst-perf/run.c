/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "run.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_pause.h>

enum phase {
	PHASE_PARK,
	PHASE_TRAFFIC,
	PHASE_PINGPONG,
	PHASE_RING_COPY,
	PHASE_RING_RTT,
	PHASE_QUIT,
};

/* Lengths of the parts of a round. */
#define SLICE_S      0.050 /* at most; at least four to a measurement */
#define WARM_UP_S    0.003
#define PINGPONG_S   0.020
#define COPY_S       0.020
#define RTT_S        0.005
#define MIN_SLICES   4
#define MIN_MESSAGES 16    /* a slice lasts at least until so many have completed */
#define LONG_SLICE_S 1.0   /* but no longer than this */
#define QUIET_S      0.020 /* without a packet: what is missing is lost */
#define STUCK_S      30.0
#define LOST_PING_S  0.010

static uint64_t
cycles_of(double seconds)
{
	return (uint64_t)(seconds * (double)rte_get_tsc_hz());
}

/* --- both threads --- */

static inline void
rest(const struct perf_run *r)
{
	if (r->yield)
		sched_yield();
}

static void
enter(struct perf_run *r, enum phase phase)
{
	/* relaxed: written by this thread alone */
	uint32_t was = atomic_load_explicit(&r->phase, memory_order_relaxed);
	uint32_t now = ((was >> 8) + 1) << 8 | phase;

	/* release, pairs with the acquire in perf_run_follow(): what we prepared is seen */
	atomic_store_explicit(&r->phase, now, memory_order_release);
	if (r->job->lcores == 1)
		return;
	/* acquire, pairs with the release there: what the follower did is seen */
	while (atomic_load_explicit(&r->at, memory_order_acquire) != now) {
		rte_pause();
		rest(r);
	}
}

static void
server_turn(struct perf_run *r)
{
	unsigned int n = karst_engine_poll(r->ports->engine, r->ports->lcore[PERF_SERVER]);

	n += perf_server_turn(&r->server);
	if (n == 0)
		rest(r);
}

static void
pong_turn(struct perf_run *r)
{
	unsigned int n = karst_engine_poll(r->ports->engine, r->ports->lcore[PERF_SERVER]);

	perf_pong(&r->pong);
	if (n == 0)
		rest(r);
}

int
perf_run_follow(void *arg)
{
	struct perf_run *r = arg;
	enum phase phase = PHASE_PARK;
	uint32_t at = 0;

	while (phase != PHASE_QUIT) {
		/* acquire, pairs with the release in enter() */
		uint32_t want = atomic_load_explicit(&r->phase, memory_order_acquire);

		if (want != at) {
			at = want;
			phase = (enum phase)(want & 0xff);
			if (phase == PHASE_QUIT)
				karst_engine_release(
					r->ports->engine, r->ports->lcore[PERF_SERVER]);
			/* release, pairs with the acquire in enter() */
			atomic_store_explicit(&r->at, at, memory_order_release);
		}
		switch (phase) {
		case PHASE_TRAFFIC:
			server_turn(r);
			break;
		case PHASE_PINGPONG:
			pong_turn(r);
			break;
		case PHASE_RING_COPY:
			perf_baseline_ring_copy_follow(r->baseline);
			phase = PHASE_PARK;
			break;
		case PHASE_RING_RTT:
			perf_baseline_rtt_follow(r->baseline);
			phase = PHASE_PARK;
			break;
		default:
			rte_pause();
			rest(r);
		}
	}
	return 0;
}

/* --- the leader: traffic --- */

/* One turn of the reactor.  @post: more may be posted. */
static inline void
turn(struct perf_run *r, bool post)
{
	unsigned int n = karst_engine_poll(r->ports->engine, r->ports->lcore[PERF_CLIENT]);

	n += perf_client_reap(&r->client);
	if (post)
		n += perf_client_post(&r->client);
	if (r->job->lcores == 1)
		n += perf_server_turn(&r->server);
	if (n == 0)
		rest(r);
}

/* Where the counters stand that a window is made of. */
static struct perf_window
look(const struct perf_run *r)
{
	struct karst_counters c;
	struct perf_window w = {.messages = r->client.tally.completed};

	memset(&c, 0, sizeof(c));
	karst_engine_counters(r->ports->engine, KARST_ENGINE_ANY_LCORE, &c);
	/* what an unreliable sender has sent has not arrived yet */
	if (r->job->transport != PERF_RC)
		w.messages = c.ctr[KARST_CTR_RX_REQUESTS];
	w.packets = c.ctr[KARST_CTR_TX_PACKETS];
	w.cycles = rte_rdtsc();
	return w;
}

/* Everything posted has completed; of unreliable messages: has arrived, or will not. */
static void
drain(struct perf_run *r)
{
	uint64_t before = r->client.tally.completed, since = rte_rdtsc(), seen = 0;

	while (r->client.outstanding > 0 && !r->client.failed) {
		turn(r, false);
		if (r->client.tally.completed != before) {
			before = r->client.tally.completed;
			since = rte_rdtsc();
		} else if (rte_rdtsc() - since > cycles_of(STUCK_S)) {
			r->stuck = true;
			r->client.failed = true;
		}
	}
	if (r->job->transport == PERF_RC)
		return;
	for (since = rte_rdtsc(); rte_rdtsc() - since < cycles_of(QUIET_S);) {
		uint64_t arrived = look(r).messages;

		if (arrived - r->arrived_before >= r->client.tally.posted - r->posted_before)
			break;
		if (arrived != seen) {
			seen = arrived;
			since = rte_rdtsc();
		}
		turn(r, false);
	}
}

static bool
add_slice(struct perf_slices *s, double gbps)
{
	if (s->num == s->max) {
		uint32_t max = s->max * 2 + 64;
		double **columns[] = {&s->traffic, &s->copy, &s->ring_copy};
		uint32_t i;

		for (i = 0; i < KARST_DIM(columns); i++) {
			double *more = realloc(*columns[i], max * sizeof(double));

			if (more == NULL)
				return false;
			*columns[i] = more;
		}
		s->max = max;
	}
	s->traffic[s->num] = gbps;
	s->copy[s->num] = s->ring_copy[s->num] = 0;
	s->num++;
	return true;
}

static void
count_window(struct perf_run *r, const struct perf_window *from, const struct perf_window *to)
{
	uint64_t messages = to->messages - from->messages, cycles = to->cycles - from->cycles;

	r->sum.messages += messages;
	r->sum.packets += to->packets - from->packets;
	r->sum.cycles += cycles;
	add_slice(&r->slices,
		(double)messages * r->job->size * 8 * (double)rte_get_tsc_hz() / (double)cycles /
			1e9);
	__atomic_store_n(&r->elapsed_ns,
		(uint64_t)((double)r->sum.cycles * 1e9 / (double)rte_get_tsc_hz()),
		__ATOMIC_RELAXED);
}

/* UC WRITE with --verify stops when no place is left that was looked at. */
static bool
must_settle(const struct perf_client *c)
{
	const struct perf_flow *f = &c->flows[c->next];

	return c->late_check && c->outstanding == 0 &&
		f->posted - f->checked + c->job.batch > c->job.slots;
}

/* Polls for @cycles and until @messages have completed, or until there is nothing more to do. */
static void
traffic_for(struct perf_run *r, uint64_t cycles, uint64_t messages)
{
	uint64_t start = rte_rdtsc(), end = r->client.tally.completed + messages, now = start;

	while (now - start < cycles ||
		(r->client.tally.completed < end && now - start < cycles_of(LONG_SLICE_S))) {
		if (r->client.failed || (r->client.left == 0 && r->client.outstanding == 0))
			return;
		turn(r, true);
		if (karst_unlikely(must_settle(&r->client))) {
			drain(r);
			perf_client_settle(&r->client);
		}
		now = rte_rdtsc();
	}
}

static void
traffic_slice(struct perf_run *r, uint64_t cycles)
{
	bool counted = r->opts->iters != 0;
	struct perf_window from, to;

	enter(r, PHASE_TRAFFIC);
	r->posted_before = r->client.tally.posted;
	r->arrived_before = look(r).messages;
	if (!counted)
		traffic_for(r, cycles_of(WARM_UP_S), r->job->depth / 2);
	from = look(r);
	traffic_for(r, cycles, MIN_MESSAGES);
	if (!counted)
		to = look(r);
	drain(r);
	/* a given number of messages: all of them, from the first post to the last completion */
	if (counted)
		to = look(r);
	count_window(r, &from, &to);
	perf_client_settle(&r->client);
}

/* --- the leader: ping-pong --- */

static void
pingpong_slice(struct perf_run *r, uint64_t cycles)
{
	uint64_t start = rte_rdtsc(), now = start;
	uint64_t patience = cycles_of(r->job->transport == PERF_RC ? STUCK_S : LOST_PING_S);
	bool alone = r->job->lcores == 1;

	enter(r, PHASE_PINGPONG);
	while (now - start < cycles && !r->client.failed) {
		uint64_t sent = rte_rdtsc();

		perf_ping(&r->ping);
		do {
			karst_engine_poll(r->ports->engine, r->ports->lcore[PERF_CLIENT]);
			if (alone)
				perf_pong(&r->pong);
			now = rte_rdtsc();
			if (r->yield && !alone)
				sched_yield();
		} while (!perf_ping_done(&r->ping) && now - sent < patience);
		now = rte_rdtsc();
		if (karst_unlikely(r->ping.errors != 0)) {
			r->client.failed = true;
		} else if (karst_likely(now - sent < patience)) {
			perf_hist_add(r->latency, now - sent);
		} else if (r->job->transport == PERF_RC) {
			r->stuck = true;
			r->client.failed = true;
		} else {
			r->lost_pings++;
		}
	}
}

/* --- the leader: all of it --- */

static void
baseline_slices(struct perf_run *r)
{
	bool alone = r->job->lcores == 1;
	uint32_t i = r->slices.num - 1;

	enter(r, PHASE_PARK);
	r->slices.copy[i] = perf_baseline_copy(r->baseline, cycles_of(COPY_S));
	/* relaxed: enter() releases */
	atomic_store_explicit(&r->baseline->stop, 0, memory_order_relaxed);
	enter(r, PHASE_RING_COPY);
	r->slices.ring_copy[i] = perf_baseline_ring_copy(r->baseline, cycles_of(COPY_S), alone);
	/* release, pairs with the acquire in ..._follow(): nothing comes after it */
	atomic_store_explicit(&r->baseline->stop, 1, memory_order_release);
	enter(r, PHASE_PARK);
	atomic_store_explicit(&r->baseline->stop, 0, memory_order_relaxed);
	enter(r, PHASE_RING_RTT);
	perf_baseline_rtt(r->baseline, cycles_of(RTT_S), alone);
	atomic_store_explicit(&r->baseline->stop, 1, memory_order_release);
	enter(r, PHASE_PARK);
}

int
perf_run_lead(void *arg)
{
	struct perf_run *r = arg;
	uint64_t slice = cycles_of(SLICE_S), total = cycles_of(r->opts->duration_s);
	bool more = true;

	if (r->opts->iters == 0)
		slice = karst_min_u64(slice, total / MIN_SLICES);
	while (more) {
		traffic_slice(r, slice);
		if (r->pingpong && !r->client.failed)
			pingpong_slice(r, cycles_of(PINGPONG_S));
		if (!r->opts->no_baselines)
			baseline_slices(r);
		if (r->opts->iters != 0)
			more = r->client.left > 0;
		else
			more = r->sum.cycles + slice / 2 < total;
		more &= !r->client.failed;
	}
	perf_client_finish(&r->client);
	enter(r, PHASE_QUIT);
	karst_engine_release(r->ports->engine, r->ports->lcore[PERF_CLIENT]);
	return 0;
}

int
perf_run_begin(struct perf_run *r)
{
	uint8_t *const *base = r->bed->mem->base;
	bool back = perf_op_fetches(r->job->op) || r->job->op == PERF_OP_CAS ||
		r->job->op == PERF_OP_FAA;
	int rc = perf_client_create(r->bed, r->opts->verify, r->opts->seed, &r->client);

	if (rc == 0)
		rc = perf_server_create(r->bed, r->opts->verify, r->opts->seed, &r->server);
	if (rc == 0 && r->pingpong && (r->latency = perf_hist_create()) == NULL)
		rc = -ENOMEM;
	/* room for the first slices now, so that it is seldom made while measuring */
	if (rc == 0 && !add_slice(&r->slices, 0))
		rc = -ENOMEM;
	if (rc != 0) {
		perf_run_end(r);
		return rc;
	}
	r->slices.num = 0;
	if (r->opts->iters != 0)
		r->client.left = r->opts->iters;
	if (r->pingpong) {
		perf_pinger_init(r->bed, PERF_CLIENT, &r->ping);
		perf_pinger_init(r->bed, PERF_SERVER, &r->pong);
	}
	/* data of a READ, and old values of atomics, come from the server */
	perf_baseline_aim(r->baseline, base[back ? PERF_SERVER : PERF_CLIENT],
		base[back ? PERF_CLIENT : PERF_SERVER], r->job->working_set, r->job->mtu);
	karst_engine_counters(r->ports->engine, KARST_ENGINE_ANY_LCORE, &r->before);
	return 0;
}

void
perf_run_end(struct perf_run *r)
{
	perf_client_destroy(&r->client);
	perf_server_destroy(&r->server);
	free(r->latency);
	free(r->slices.traffic);
	free(r->slices.copy);
	free(r->slices.ring_copy);
}
