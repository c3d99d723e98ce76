/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "run.h"
#include "attach.h"
#include "cpu.h"
#include "tsc.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_pause.h>

/* Lengths of the parts of a round. */
#define SLICE_S      0.050 /* at most; a measurement has at least four slices */
#define WARM_UP_S    0.003
#define PINGPONG_S   0.020
#define COPY_S       0.020
#define RTT_S        0.005
#define MIN_SLICES   4
#define MIN_MESSAGES 16    /* a slice lasts at least until so many have completed */
#define LONG_SLICE_S 1.0   /* but no longer than this */
#define QUIET_S      0.020 /* after this time without a packet, missing messages are lost */
#define STUCK_S      30.0
#define LOST_PING_S  0.010

static uint64_t
cycles_of(double seconds)
{
	return (uint64_t)(seconds * (double)perf_tsc_hz());
}

/* --- both threads --- */

static inline void
run_rest(const struct perf_run *r)
{
	if (!r->yield)
		return;
	if (r->bed->attach != NULL)
		perf_attach_rest(r->bed->attach);
	else
		sched_yield();
}

/* Called when the client has nothing to do. */
static inline void
run_pause(const struct perf_run *r)
{
	if (r->opts->events && r->client.outstanding > 0)
		perf_attach_wait(r->bed->attach, -1);
	else
		run_rest(r);
}

static void
enter_here(struct perf_run *r, enum perf_phase phase)
{
	/* relaxed: only this thread writes it */
	uint32_t was = atomic_load_explicit(&r->phase, memory_order_relaxed);
	uint32_t now = ((was >> 8) + 1) << 8 | phase;

	/* release, pairs with the acquire in perf_run_follow(): earlier writes are seen there */
	atomic_store_explicit(&r->phase, now, memory_order_release);
	if (r->job->lcores == 1)
		return;
	/* acquire, pairs with the release there: the follower's writes are seen */
	while (atomic_load_explicit(&r->at, memory_order_acquire) != now) {
		rte_pause();
		run_rest(r);
	}
}

/* A turn of the embedded engine; the engine of a karstd runs by itself. */
static inline unsigned int
run_poll_engine(const struct perf_run *r, enum perf_end end)
{
	if (r->ports == NULL)
		return 0;
	return karst_engine_poll(r->ports->engine, r->ports->lcore[end]);
}

/* Sends a request to the server in the other process; without an answer the measurement fails. */
static json_t *
run_ask(struct perf_run *r, json_t *request)
{
	json_t *answer;

	if (perf_link_ask(r->link, request, &answer) == 0)
		return answer;
	r->broken = true;
	r->client.failed = true;
	return NULL;
}

static uint64_t
ask_number(struct perf_run *r, json_t *request, const char *member)
{
	json_t *answer = run_ask(r, request);
	uint64_t v = 0;

	if (answer != NULL && perf_link_number(answer, member, UINT64_MAX, &v) != 0) {
		r->broken = true;
		r->client.failed = true;
	}
	json_decref(answer);
	return v;
}

static void
run_enter(struct perf_run *r, enum perf_phase phase)
{
	if (r->link != NULL) {
		if (!r->broken)
			json_decref(run_ask(r, json_pack("{s:i}", "phase", (int)phase)));
		return;
	}
	enter_here(r, phase);
}

static void
server_turn(struct perf_run *r)
{
	unsigned int n = run_poll_engine(r, PERF_SERVER);

	n += perf_server_turn(&r->server);
	if (n == 0)
		run_rest(r);
}

static void
pong_turn(struct perf_run *r)
{
	unsigned int n = run_poll_engine(r, PERF_SERVER);

	perf_pong(&r->pong);
	if (n == 0)
		run_rest(r);
}

int
perf_run_follow(void *arg)
{
	struct perf_run *r = arg;
	enum perf_phase phase = PERF_PHASE_PARK;
	uint32_t at = 0;

	while (phase != PERF_PHASE_QUIT) {
		/* acquire, pairs with the release in enter() */
		uint32_t want = atomic_load_explicit(&r->phase, memory_order_acquire);

		if (want != at) {
			at = want;
			phase = (enum perf_phase)(want & 0xff);
			if (phase == PERF_PHASE_QUIT)
				karst_engine_release(
					r->ports->engine, r->ports->lcore[PERF_SERVER]);
			/* release, pairs with the acquire in enter() */
			atomic_store_explicit(&r->at, at, memory_order_release);
		}
		switch (phase) {
		case PERF_PHASE_TRAFFIC:
			server_turn(r);
			break;
		case PERF_PHASE_PINGPONG:
			pong_turn(r);
			break;
		case PERF_PHASE_RING_COPY:
			perf_baseline_ring_copy_follow(r->baseline);
			phase = PERF_PHASE_PARK;
			break;
		case PERF_PHASE_RING_RTT:
			perf_baseline_rtt_follow(r->baseline);
			phase = PERF_PHASE_PARK;
			break;
		default:
			rte_pause();
			run_rest(r);
		}
	}
	return 0;
}

/* --- the leader: traffic --- */

/* One turn of the reactor.  @post: more may be posted. */
static inline void
run_turn(struct perf_run *r, bool post)
{
	unsigned int n = run_poll_engine(r, PERF_CLIENT);

	n += perf_client_reap(&r->client);
	if (post)
		n += perf_client_post(&r->client);
	if (r->alone)
		n += perf_server_turn(&r->server);
	if (n == 0)
		run_pause(r);
}

/* Reads the counters of a window. */
static struct perf_window
run_look(struct perf_run *r)
{
	struct karst_counters c;
	struct perf_window w = {.messages = r->client.tally.completed};

	if (r->link != NULL) {
		/* no program at the server sees one-sided writes: they count when they are sent */
		if (r->job->transport != PERF_RC && r->job->recv_depth != 0)
			w.messages = ask_number(r, json_pack("{s:b}", "count", 1), "completed");
		if (r->opts->compare_tcp)
			w.cpu_s = perf_cpu_busy_s();
		w.cycles = rte_rdtsc();
		return w;
	}
	memset(&c, 0, sizeof(c));
	karst_engine_counters(r->ports->engine, KARST_ENGINE_ANY_LCORE, &c);
	/* with an unreliable transport, a message that was sent may not have arrived yet */
	if (r->job->transport != PERF_RC)
		w.messages = c.ctr[KARST_CTR_RX_REQUESTS];
	w.packets = c.ctr[KARST_CTR_TX_PACKETS];
	w.cycles = rte_rdtsc();
	return w;
}

/*
 * Waits until all posted requests have completed, and until unreliable messages have arrived or are
 * lost.  @return the counts when the last message completed or arrived.
 */
static struct perf_window
run_drain(struct perf_run *r)
{
	uint64_t before = r->client.tally.completed, since = rte_rdtsc(), seen = 0;
	struct perf_window last = run_look(r), now;

	while (r->client.outstanding > 0 && !r->client.failed) {
		run_turn(r, false);
		if (r->client.tally.completed != before) {
			before = r->client.tally.completed;
			since = rte_rdtsc();
			now = run_look(r);
			perf_window_follow(&last, &now);
		} else if (rte_rdtsc() - since > cycles_of(STUCK_S)) {
			r->stuck = true;
			r->client.failed = true;
		}
	}
	if (r->job->transport == PERF_RC)
		return last;
	if (r->link != NULL && r->job->recv_depth == 0) {
		/* neither end knows which unacknowledged WRITEs have arrived */
		for (since = rte_rdtsc(); rte_rdtsc() - since < cycles_of(QUIET_S);)
			run_turn(r, false);
		return last;
	}
	for (since = rte_rdtsc(); rte_rdtsc() - since < cycles_of(QUIET_S) && !r->broken;) {
		now = run_look(r);
		perf_window_follow(&last, &now);
		if (now.messages - r->arrived_before >= r->client.tally.posted - r->posted_before)
			break;
		if (now.messages != seen) {
			seen = now.messages;
			since = rte_rdtsc();
		}
		run_turn(r, false);
	}
	return last;
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
	struct perf_window w = perf_window_between(from, to, &r->waited);

	r->sum.messages += w.messages;
	r->sum.packets += w.packets;
	r->sum.cycles += w.cycles;
	r->sum.cpu_s += w.cpu_s;
	r->measured += to->cycles - from->cycles;
	add_slice(&r->slices,
		(double)w.messages * r->job->size * 8 * (double)perf_tsc_hz() / (double)w.cycles /
			1e9);
	__atomic_store_n(&r->elapsed_ns,
		(uint64_t)((double)r->measured * 1e9 / (double)perf_tsc_hz()), __ATOMIC_RELAXED);
}

/* UC WRITE with --verify stops when all places hold messages that were not checked yet. */
static bool
must_settle(const struct perf_client *c)
{
	const struct perf_flow *f = &c->flows[c->next];

	return c->late_check && c->outstanding == 0 &&
		f->posted - f->checked + c->job.batch > c->job.slots;
}

/* All posted requests have completed: does the checks that could not be done message by message. */
static void
run_settle(struct perf_run *r)
{
	json_t *posted;
	uint32_t i;

	if (r->link != NULL && r->client.late_check && !r->broken) {
		posted = json_array();
		for (i = 0; i < r->job->qps; i++)
			json_array_append_new(
				posted, json_integer((json_int_t)r->client.flows[i].posted));
		json_decref(run_ask(r, json_pack("{s:o}", "settle", posted)));
	}
	perf_client_settle(&r->client);
}

/* Polls for @cycles and until @messages have completed, or until no messages are left. */
static void
traffic_for(struct perf_run *r, uint64_t cycles, uint64_t messages)
{
	uint64_t start = rte_rdtsc(), end = r->client.tally.completed + messages, now = start;
	struct perf_window last, drained;

	while (now - start < cycles ||
		(r->client.tally.completed < end && now - start < cycles_of(LONG_SLICE_S))) {
		if (r->client.failed || (r->client.left == 0 && r->client.outstanding == 0))
			return;
		run_turn(r, true);
		if (karst_unlikely(must_settle(&r->client))) {
			last = run_drain(r);
			drained = run_look(r);
			perf_window_wait(&r->waited, &last, &drained);
			run_settle(r);
		}
		now = rte_rdtsc();
	}
}

static void
traffic_slice(struct perf_run *r, uint64_t cycles)
{
	bool counted = r->opts->iters != 0;
	struct perf_window from, to, last;

	run_enter(r, PERF_PHASE_TRAFFIC);
	r->posted_before = r->client.tally.posted;
	r->arrived_before = run_look(r).messages;
	if (!counted)
		traffic_for(r, cycles_of(WARM_UP_S), r->job->depth / 2);
	memset(&r->waited, 0, sizeof(r->waited));
	from = run_look(r);
	traffic_for(r, cycles, MIN_MESSAGES);
	to = run_look(r);
	last = run_drain(r);
	/* a given number of messages: all of them, from the first post to the last completion */
	if (counted)
		to = last;
	count_window(r, &from, &to);
	run_settle(r);
}

/* --- the leader: ping-pong --- */

static void
pingpong_slice(struct perf_run *r, uint64_t cycles)
{
	uint64_t start = rte_rdtsc(), now = start;
	uint64_t patience = cycles_of(r->job->transport == PERF_RC ? STUCK_S : LOST_PING_S);
	run_enter(r, PERF_PHASE_PINGPONG);
	while (now - start < cycles && !r->client.failed) {
		uint64_t sent = rte_rdtsc();

		perf_ping(&r->ping);
		do {
			run_poll_engine(r, PERF_CLIENT);
			if (r->alone)
				perf_pong(&r->pong);
			now = rte_rdtsc();
			if (!r->alone)
				run_rest(r);
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

/* The other end of ring rtt, if there is no second lcore that polls. */
static void *
rtt_thread(void *arg)
{
	struct perf_run *r = arg;

	if (r->rtt_cpu >= 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(r->rtt_cpu, &set);
		(void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	}
	perf_baseline_rtt_follow(r->baseline);
	return NULL;
}

static void
attached_baseline_slices(struct perf_run *r)
{
	uint32_t i = r->slices.num - 1;
	cpu_set_t all, others;
	pthread_t thread;

	r->slices.copy[i] = perf_baseline_copy(r->baseline, cycles_of(COPY_S));
	/* relaxed: pthread_create() releases */
	atomic_store_explicit(&r->baseline->stop, 0, memory_order_relaxed);
	if (r->rtt_cpu < 0 || sched_getaffinity(0, sizeof(all), &all) != 0 ||
		pthread_create(&thread, NULL, rtt_thread, r) != 0)
		return;
	others = all;
	CPU_CLR(r->rtt_cpu, &others);
	(void)sched_setaffinity(0, sizeof(others), &others);
	perf_baseline_rtt(r->baseline, cycles_of(RTT_S), false);
	(void)sched_setaffinity(0, sizeof(all), &all);
	/* release, pairs with the acquire in perf_baseline_rtt_follow() */
	atomic_store_explicit(&r->baseline->stop, 1, memory_order_release);
	pthread_join(thread, NULL);
}

static void
baseline_slices(struct perf_run *r)
{
	uint32_t i = r->slices.num - 1;

	run_enter(r, PERF_PHASE_PARK);
	if (r->link != NULL) {
		attached_baseline_slices(r);
		return;
	}
	r->slices.copy[i] = perf_baseline_copy(r->baseline, cycles_of(COPY_S));
	/* relaxed: enter() releases */
	atomic_store_explicit(&r->baseline->stop, 0, memory_order_relaxed);
	run_enter(r, PERF_PHASE_RING_COPY);
	r->slices.ring_copy[i] = perf_baseline_ring_copy(r->baseline, cycles_of(COPY_S), r->alone);
	/* release, pairs with the acquire in ..._follow(): no slots follow */
	atomic_store_explicit(&r->baseline->stop, 1, memory_order_release);
	run_enter(r, PERF_PHASE_PARK);
	atomic_store_explicit(&r->baseline->stop, 0, memory_order_relaxed);
	run_enter(r, PERF_PHASE_RING_RTT);
	perf_baseline_rtt(r->baseline, cycles_of(RTT_S), r->alone);
	atomic_store_explicit(&r->baseline->stop, 1, memory_order_release);
	run_enter(r, PERF_PHASE_PARK);
}

/* Does the last checks, and gets the results of a server in another process. */
static void
run_finish(struct perf_run *r)
{
	struct perf_tally *s = &r->server.tally;
	uint64_t targets = 0, status = 0;
	json_t *o;

	if (r->link == NULL) {
		perf_client_finish(&r->client, 0);
		return;
	}
	if (r->client.shadow != NULL && !r->client.failed)
		targets = ask_number(r, json_pack("{s:b}", "targets", 1), "targets");
	perf_client_finish(&r->client, targets);
	o = r->broken ? NULL : run_ask(r, json_pack("{s:b}", "result", 1));
	if (o != NULL &&
		(perf_link_number(o, "completed", UINT64_MAX, &s->completed) != 0 ||
			perf_link_number(o, "errors", UINT64_MAX, &s->errors) != 0 ||
			perf_link_number(o, "wrong", UINT64_MAX, &s->wrong) != 0 ||
			perf_link_number(o, "lost", UINT64_MAX, &s->lost) != 0 ||
			perf_link_number(o, "pong", UINT64_MAX, &r->pong.errors) != 0 ||
			perf_link_number(o, "events", UINT64_MAX, &r->server_events) != 0 ||
			perf_link_number(o, "status", 255, &status) != 0))
		r->broken = true;
	r->server.first_error = (uint8_t)status;
	json_decref(o);
}

/* Has the requested time passed?  With RC it also takes one completed message, since on a busy
 * machine none may complete in time.  Unreliable messages may never arrive, so there the time alone
 * counts. */
static bool
time_is_over(const struct perf_run *r, uint64_t slice)
{
	return r->measured + slice / 2 >= cycles_of(r->opts->duration_s) &&
		(r->sum.messages != 0 || r->job->transport != PERF_RC);
}

int
perf_run_lead(void *arg)
{
	struct perf_run *r = arg;
	uint64_t slice = cycles_of(SLICE_S);
	bool more = true;

	if (r->opts->iters == 0)
		slice = karst_min_u64(slice, cycles_of(r->opts->duration_s) / MIN_SLICES);
	while (more) {
		traffic_slice(r, slice);
		if (r->pingpong && !r->client.failed)
			pingpong_slice(r, cycles_of(PINGPONG_S));
		if (!r->opts->no_baselines)
			baseline_slices(r);
		more = r->opts->iters != 0 ? r->client.left > 0 : !time_is_over(r, slice);
		more &= !r->client.failed;
	}
	run_finish(r);
	run_enter(r, PERF_PHASE_QUIT);
	if (r->ports != NULL)
		karst_engine_release(r->ports->engine, r->ports->lcore[PERF_CLIENT]);
	return 0;
}

static void
aim_baseline(struct perf_run *r)
{
	uint8_t *const *base = r->bed->mem->base;
	bool back = perf_op_fetches(r->job->op) || r->job->op == PERF_OP_CAS ||
		r->job->op == PERF_OP_FAA;
	uint8_t *here = base[PERF_CLIENT], *there = base[PERF_SERVER];

	/* a server in another process: memory of this process replaces the server's memory */
	if (there == NULL) {
		there = r->bed->mem->mirror;
		/* else bytes of the last job would be copied after messages, where zeros must be */
		if (back && r->opts->verify)
			memset(there, 0, r->job->working_set);
	}
	/* data of a READ, and old values of atomics, come from the server */
	perf_baseline_aim(r->baseline, back ? there : here, back ? here : there,
		r->job->working_set, r->job->mtu);
}

static int
begin_server(struct perf_run *r)
{
	int rc = perf_server_create(r->bed, r->opts->verify, r->opts->seed, &r->server);

	if (rc == 0 && r->pingpong)
		perf_pinger_init(r->bed, PERF_SERVER, &r->pong);
	return rc;
}

static int
begin_client(struct perf_run *r)
{
	int rc = perf_client_create(r->bed, r->opts->verify, r->opts->seed, &r->client);

	if (rc == 0 && r->pingpong && (r->latency = perf_hist_create()) == NULL)
		rc = -ENOMEM;
	/* allocates room for the first slices now, so that this is rare during a measurement */
	if (rc == 0 && !add_slice(&r->slices, 0))
		rc = -ENOMEM;
	if (rc != 0)
		return rc;
	r->slices.num = 0;
	if (r->opts->iters != 0)
		r->client.left = r->opts->iters;
	if (r->pingpong)
		perf_pinger_init(r->bed, PERF_CLIENT, &r->ping);
	aim_baseline(r);
	return 0;
}

int
perf_run_begin(struct perf_run *r)
{
	int rc = 0;

	r->alone = r->ports != NULL && r->job->lcores == 1;
	if (r->bed->qps[PERF_CLIENT] != NULL)
		rc = begin_client(r);
	if (rc == 0 && r->bed->qps[PERF_SERVER] != NULL)
		rc = begin_server(r);
	if (rc != 0) {
		perf_run_end(r);
		return rc;
	}
	if (r->ports != NULL)
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
