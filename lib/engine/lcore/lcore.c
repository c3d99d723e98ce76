/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * One turn of an lcore, and what an lcore of karst_engine_start() does between turns.
 *
 * The clock is read once a turn.  Every step has a budget, so a turn takes microseconds and every
 * queue pair makes progress.  Completions are published before the sending step, which takes
 * longest; completions that sending itself creates (UD, UC) follow at the end.  The end of a turn
 * is the lcore's quiescent point: it then holds no pointer into the memory tables.
 */
#include "lcore.h"

#include <stdio.h>
#include <time.h>

#include <rte_cycles.h>

#include "workers.h"
#include "unmapped.h"

#define CPU_LOOK_NS 500000u
/* A turn of this length is counted: it delays other queue pairs noticeably. */
#define LONG_TURN_NS 5000000u
/* Time for messages in one turn: a caller that makes one control call after another cannot delay
 * the turn for long, whatever it asks for. */
#define MESSAGES_NS 200000u
/* A turn with at most so many frames has little to do. */
#define FEW_FRAMES 4u
/* If a thread had no processor or slept for so long, timers may have expired late. */
#define AWAY_NS 1000000u
/* Expired timers then wait for up to so many turns for the frames that have arrived meanwhile: what
 * a port's queue and the loopback ring hold.  A turn with fewer than LATE_FRAMES has processed
 * all. */
#define LATE_TURNS  64u
#define LATE_FRAMES 8u

void
eng_lcore_away(struct eng_lcore *lc, uint64_t ns)
{
	/* another absence while timers wait does not make them wait longer */
	if (ns >= AWAY_NS && lc->late == 0)
		lc->late = LATE_TURNS;
}

/* Finds how much CPU time the thread used in the last turn, which took @spent: at most what it used
 * since the last check.  A turn that the system interrupted for other threads does not count as
 * long. */
static karst_noinline void
look_at_cpu(struct eng_lcore *lc, uint64_t tsc, uint64_t spent)
{
	uint64_t base = lc->e->tsc_base, ns = engine_ns_at(lc->e, base + spent), ran, mine;
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	ran = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	mine = lc->cpu_ns != UINT64_MAX ? karst_min_u64(ns, ran - lc->cpu_ns) : 0;
	eng_lcore_away(lc, ns - mine);
	ns = mine >= CPU_LOOK_NS ? mine : 0;
	if (ns > lc->stats.longest_turn_ns)
		stat_add(&lc->stats.longest_turn_ns, ns - lc->stats.longest_turn_ns);
	if (ns >= LONG_TURN_NS)
		stat_add(&lc->stats.long_turns, 1);
	lc->cpu_ns = ran;
	lc->look_tsc = tsc + rte_get_tsc_hz() / (1000000000u / CPU_LOOK_NS);
}

/* Reads the clock, once a turn, and ends the accounting of the turn before. */
static inline void
begin_turn(struct eng_lcore *lc)
{
	uint64_t tsc = rte_rdtsc(), spent = tsc - lc->turn_tsc;

	lc->core->now_ns = engine_ns_at(lc->e, tsc);
	lc->turn_tsc = tsc;
	stat_add(&lc->stats.turns, 1);
	stat_add(&lc->stats.cycles, spent);
	if (lc->was_busy)
		stat_add(&lc->stats.busy_cycles, spent);
	if (karst_unlikely(tsc >= lc->look_tsc))
		look_at_cpu(lc, tsc, spent);
}

/* Timestamps of completions use the kernel's clock, which programs can read, too; the TSC as the
 * engine scales it drifts away from that clock.  Processors of a virtual machine may differ by less
 * than a microsecond: after a thread was moved to another processor, the timestamp does not go
 * back. */
static karst_noinline void
read_stamp(struct karst_core *core)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	core->stamp_ns = karst_max_u64(
		core->stamp_ns, (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec);
}

void
eng_flush(struct eng_lcore *lc)
{
	struct karst_core *core = lc->core;

	/* relaxed: a queue is created before any QP that completes into it */
	if (karst_unlikely(atomic_load_explicit(&lc->e->nstamped, memory_order_relaxed) != 0) &&
		core->dirty != NULL)
		read_stamp(core);
	karst_core_flush(core);
}

static inline bool
nothing_to_send(const struct eng_lcore *lc)
{
	return !karst_core_has_active(lc->core) && lc->blocked == 0;
}

/* Does not expire timers while the answers that they wait for may still be unread here (Q6). */
static inline unsigned int
expire(struct eng_lcore *lc)
{
	if (karst_unlikely(lc->late != 0)) {
		if (lc->received >= karst_min_u32(lc->e->cfg.rx_burst, LATE_FRAMES) &&
			--lc->late != 0)
			return 0;
		lc->late = 0;
	}
	return karst_core_expire(lc->core, ENG_TIMERS);
}

static void
receive(struct eng_lcore *lc)
{
	struct karst_core *core = lc->core;
	unsigned int n = 0;

	begin_turn(lc);
	lc->idle_sender = nothing_to_send(lc);
	if (karst_unlikely(!rte_ring_empty(lc->mailbox)))
		n += eng_mailbox_serve(lc, MESSAGES_NS);
	lc->received = eng_rx_poll(lc);
	lc->received += eng_loop_poll(lc);
	if (karst_unlikely(lc->tapped != 0))
		n += lc->e->hooks->tap_poll(lc);
	if (lc->e->nlcores > 1)
		lc->received += eng_handoff_poll(lc);
	n += lc->received;
	lc->rang = eng_bells_poll(lc);
	n += lc->rang;
	n += expire(lc);
	if (karst_unlikely(core->now_ns >= lc->member_ns))
		lc->e->hooks->member_expire(lc);
	lc->work = n;
}

/*
 * A program that got a message often answers it at once, and often on the processor of its lcore.
 * An lcore that shares its processor and has little to do offers the processor to such a program
 * before it acknowledges the message: the answer is then sent with the acknowledgement and not
 * after it.
 */
static void
let_answer(struct eng_lcore *lc)
{
	eng_flush(lc);
	if (eng_sleep_offer(lc))
		lc->work += eng_bells_poll(lc);
}

static void
send_turn(struct eng_lcore *lc)
{
	struct karst_core *core = lc->core;

	eng_flush(lc);
	if (eng_unmapped_is_broken(lc))
		eng_unmapped_revoke(lc);
	if (core->nlinger != 0)
		karst_core_linger(core);
	lc->work += eng_tx_poll(lc);
}

static void
end_turn(struct eng_lcore *lc)
{
	eng_flush(lc);
	rte_rcu_qsbr_quiescent(lc->e->rcu, lc->index);
	lc->work += eng_copies_wait(lc);
	lc->was_busy = lc->work > 0;
	if (lc->work == 0)
		stat_add(&lc->stats.idle_turns, 1);
}

/* A safe point (copies.c).  @return false: another thread continues from here. */
static inline bool
copy(struct eng_lcore *lc)
{
	return karst_likely(!eng_copies_wait(lc)) || eng_copies_run(lc);
}

/* Where a turn continues if the thread before lost the lcore in the turn. */
enum step { STEP_RECEIVE, STEP_RECEIVED, STEP_SENT };

/* @polite: between turns the thread acts according to cfg.idle.
 * @return false: another thread has the lcore now. */
static bool
turn(struct eng_lcore *lc, bool polite)
{
	if (karst_likely(lc->step == STEP_RECEIVE)) {
		receive(lc);
		lc->step = STEP_RECEIVED;
	}
	if (lc->step == STEP_RECEIVED) {
		if (!copy(lc))
			return false;
		if (polite && lc->idle_sender && lc->received - 1 < FEW_FRAMES)
			let_answer(lc);
		send_turn(lc);
		lc->step = STEP_SENT;
	}
	if (!copy(lc))
		return false;
	end_turn(lc);
	lc->step = STEP_RECEIVE;
	return true;
}

unsigned int
karst_engine_poll(struct karst_engine *e, uint32_t lcore)
{
	struct eng_lcore *lc;

	assert(lcore < e->nlcores);
	lc = &e->lcore[lcore];
	/* relaxed: only this thread itself stores its own id */
	if (karst_unlikely(
		    atomic_load_explicit(&lc->owner, memory_order_relaxed) != this_thread())) {
		if (eng_lcore_attach(lc) != 0) {
			assert(!"an lcore is polled by one thread at a time");
			return 0;
		}
	}
	turn(lc, false);
	return lc->work;
}

void
karst_engine_release(struct karst_engine *e, uint32_t lcore)
{
	assert(lcore < e->nlcores);
	eng_lcore_detach(&e->lcore[lcore]);
}

uint64_t
eng_lcore_idle_ns(const struct eng_lcore *lc)
{
	uint64_t next = karst_core_next_ns(lc->core), now = engine_now(lc->e);

	next = karst_min_u64(next, lc->member_ns);
	if (eng_copies_wait(lc))
		return 0;
	if (next == UINT64_MAX)
		return next;
	return next > now ? next - now : 0;
}

uint64_t
karst_engine_idle_ns(const struct karst_engine *e, uint32_t lcore)
{
	const struct eng_lcore *lc = &e->lcore[lcore];

	/* copiers wake an lcore that sleeps, but nothing tells this caller that copies are done, or
	 * that queue pairs which got none may try again */
	return lc->copies->nawaited > 0 || karst_core_has_starved(lc->core) ? 0
									    : eng_lcore_idle_ns(lc);
}

bool
eng_lcore_loop(struct eng_lcore *lc)
{
	const struct karst_engine *e = lc->e;
	enum karst_idle idle = e->cfg.idle;
	bool polite = idle == KARST_IDLE_YIELD || idle == KARST_IDLE_SLEEP;

	/* relaxed: it orders nothing, it only has to be seen.  A turn is always completed. */
	while (lc->step != STEP_RECEIVE ||
		atomic_load_explicit(&e->running, memory_order_relaxed)) {
		if (!turn(lc, polite))
			return false;
		if (lc->work > 0)
			eng_sleep_busy(lc, polite);
		else if (idle == KARST_IDLE_YIELD)
			eng_sleep_idle_offer(lc);
		else if (idle == KARST_IDLE_SLEEP)
			eng_sleep_idle(lc);
		else
			rte_pause();
	}
	return true;
}

int
eng_lcore_main(void *arg)
{
	return eng_workers_run(arg);
}

/* --- callbacks of the core, translated to the program's objects --- */

static void
lcore_cq_event(struct karst_core *core, struct karst_core_cq *cq)
{
	struct eng_lcore *lc = core->user;
	struct eng_cq *c = karst_cq_user(cq);

	if (c->owner->ops.cq_event == NULL)
		return;
	__atomic_store_n(&lc->in_callback, this_thread(), __ATOMIC_RELAXED);
	c->owner->ops.cq_event(c->owner->user, &c->pub);
	__atomic_store_n(&lc->in_callback, 0, __ATOMIC_RELAXED);
}

static void
owner_tell(struct eng_lcore *lc, const struct karst_engine_owner *o,
	const struct karst_engine_event *ev)
{
	if (o->ops.async_event == NULL)
		return;
	__atomic_store_n(&lc->in_callback, this_thread(), __ATOMIC_RELAXED);
	o->ops.async_event(o->user, ev);
	__atomic_store_n(&lc->in_callback, 0, __ATOMIC_RELAXED);
}

static void
lcore_async_event(struct karst_core *core, enum karst_async_event_code event, void *object)
{
	struct karst_engine_event ev = {.event = event};
	const struct karst_engine_owner *o;
	struct eng_lcore *lc = core->user;
	struct eng_qp *q;

	switch (event) {
	case KARST_EVENT_CQ_ERR:
		o = ((struct eng_cq *)karst_cq_user(object))->owner;
		ev.cq = &((struct eng_cq *)karst_cq_user(object))->pub;
		break;
	case KARST_EVENT_SRQ_ERR:
	case KARST_EVENT_SRQ_LIMIT_REACHED:
		o = ((struct eng_srq *)karst_srq_user(object))->owner;
		ev.srq = &((struct eng_srq *)karst_srq_user(object))->pub;
		break;
	default:
		q = karst_qp_user(object);
		do {
			ev.qp = &q->pub;
			owner_tell(lc, q->owner, &ev);
			q = q->same;
		} while (q != karst_qp_user(object));
		return;
	}
	owner_tell(lc, o, &ev);
}

void
eng_async_event_all(struct eng_lcore *lc, const struct karst_engine_event *ev)
{
	const struct karst_engine_owner *o;

	__atomic_store_n(&lc->in_callback, this_thread(), __ATOMIC_RELAXED);
	LIST_FOREACH(o, &lc->e->owners, next)
		if (o->ops.async_event != NULL)
			o->ops.async_event(o->user, ev);
	__atomic_store_n(&lc->in_callback, 0, __ATOMIC_RELAXED);
}

static const struct karst_core_ops core_ops = {
	.cq_event = lcore_cq_event,
	.async_event = lcore_async_event,
};

/* --- life --- */

static struct rte_ring *
make_ring(const struct karst_engine *e, const char *what, uint32_t lcore, uint32_t slots)
{
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "%s_%s%u", e->name, what, lcore);
	return rte_ring_create(name, slots, (int)rte_socket_id(), RING_F_SC_DEQ | RING_F_EXACT_SZ);
}

static int
init_core(struct karst_engine *e, struct eng_lcore *lc)
{
	struct karst_core_config cfg = {
		.lcore = lc->index,
		.lcore_bits = e->lcore_bits,
		.max_qps = e->cfg.max_qps,
		.qpns = ENG_QPNS,
		.max_xrc_srqs = e->cfg.max_xrc_srqs,
		.ack_interval = e->cfg.ack_interval,
		.quantum_bytes = e->cfg.quantum_bytes,
		.max_sharers = e->cfg.max_owners + 1,
		.window_packets = e->cfg.window_packets,
		.linger_turns = ENG_LINGER_TURNS,
		.cross_cpu = e->cfg.cross_cpu,
		.migreq = !e->cfg.no_migreq,
		.divide_writes = e->cfg.divide_writes,
		.latch_sport = e->cfg.latch_sport,
		.early_retransmission = e->cfg.early_retransmission,
		.congestion = e->cfg.congestion,
		.mem = e->mem,
		.ahs = e->ahs,
		.ops = &core_ops,
		.copy_ops = &eng_unmapped_ops,
		.held_frames = e->cfg.held_frames,
		.spray_ports = e->cfg.spray_ports,
		.hold_ops = &eng_hold_ops,
		.user = lc,
	};
	size_t bytes = karst_core_bytes(&cfg);
	void *buf;
	int ret;

	if (bytes == 0)
		return -EINVAL;
	buf = eng_arena_alloc(&e->objects, bytes);
	if (buf == NULL)
		return -ENOMEM;
	eng_secret(e, ENG_SECRET_CORE, lc->index, cfg.seed);
	ret = karst_core_init(buf, &cfg, engine_now(e), &lc->core);
	if (ret != 0)
		return ret;
	lc->space_of =
		eng_arena_alloc(&e->objects, (size_t)lc->core->qpns * sizeof(lc->space_of[0]));
	return lc->space_of != NULL ? 0 : -ENOMEM;
}

static int
init_bells(struct karst_engine *e, struct eng_lcore *lc)
{
	uint32_t n = e->cfg.max_owners + 1;

	lc->bells = eng_arena_alloc(&e->objects, n * sizeof(lc->bells[0]));
	lc->ringer_bell = eng_arena_alloc(&e->objects, n * sizeof(lc->ringer_bell[0]));
	return lc->bells == NULL || lc->ringer_bell == NULL ? -ENOMEM : 0;
}

int
eng_lcore_init(struct karst_engine *e, uint32_t index)
{
	struct eng_lcore *lc = &e->lcore[index];
	struct rte_mbuf fresh = {.nb_segs = 1, .data_off = ENG_FRAME_OFF};
	unsigned int i;
	int ret;

	fresh.port = RTE_MBUF_PORT_INVALID;
	rte_mbuf_refcnt_set(&fresh, 1);
	lc->rearm = *mbuf_rearm(&fresh);
	lc->e = e;
	lc->index = index;
	lc->member_ns = UINT64_MAX;
	atomic_init(&lc->at, ENG_AT_NONE);
	atomic_init(&lc->at_bell, NULL);
	lc->epoll_fd = lc->wake_fd = -1;
	atomic_init(&lc->cpu, -1);
	lc->pool = e->pool;
	pthread_mutex_init(&lc->attach_lock, NULL);
	for (i = 0; i < ENG_MAX_BURST; i++)
		lc->tx_pkts[i] = &lc->tx_pkt[i];
	lc->mailbox = make_ring(e, "m", index, ENG_MAILBOX);
	lc->handoff = make_ring(e, "h", index, e->cfg.handoff_slots);
	lc->loop = make_ring(e, "l", index, ENG_LOOP_SLOTS);
	if (lc->mailbox == NULL || lc->handoff == NULL || lc->loop == NULL)
		return -rte_errno;
	ret = eng_sleep_init(lc);
	if (ret == 0)
		ret = init_bells(e, lc);
	if (ret == 0)
		ret = eng_copies_init(lc);
	if (ret == 0)
		ret = init_core(e, lc);
	return ret;
}

void
eng_lcore_fini(struct eng_lcore *lc)
{
	void *m;

	if (lc->e == NULL)
		return;
	while (lc->handoff != NULL && rte_ring_sc_dequeue(lc->handoff, &m) == 0)
		rte_pktmbuf_free(m);
	while (lc->loop != NULL && rte_ring_sc_dequeue(lc->loop, &m) == 0)
		rte_pktmbuf_free(m);
	eng_tx_fini(lc);
	eng_copies_fini(lc);
	rte_ring_free(lc->handoff);
	rte_ring_free(lc->loop);
	rte_ring_free(lc->mailbox);
	eng_sleep_fini(lc);
	pthread_mutex_destroy(&lc->attach_lock);
}
