/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Polling completion queues: completions are read where the engine wrote them.  One in
 * LIBKARST_EVERY polls that find none calls libkarst, which checks whether the engine is alive and,
 * if it is not, flushes the outstanding requests.
 */
#include "provider.h"

#include <arpa/inet.h>
#include <sched.h>
#include <string.h>
#include <time.h>

/* The maximum number of empty polls between two yields: some microseconds. */
#define MAX_POLLS_PER_YIELD 255u
#define UNUSED_YIELDS       32u
#define TIMED_YIELD_EVERY   16u
/* The shortest time measured for two context switches is 1.1 us; this is less, as a margin. */
#define TWO_SWITCHES_NS 1000u
/* A power of two. */
#define LIBKARST_EVERY 64u

static inline void
cq_lock(struct kv_cq *cq)
{
	if (!cq->single)
		karst_lock(&cq->lock);
}

static inline void
cq_unlock(struct kv_cq *cq)
{
	if (!cq->single)
		karst_unlock(&cq->lock);
}

/* --- queue pairs that were reset or destroyed --- */

/* Waits for kv_cq_hold().  @return what to take back after kv_cq_release() */
static struct kv_cq *
cq_hold_lending(struct kv_cq *cq)
{
	struct kv_cq *lent;
	unsigned int tries = 0;

	if (karst_likely(kv_cq_hold(cq)))
		return NULL;
	lent = kv_polls_lend(cq);
	while (!kv_cq_hold(cq))
		/* the holder may wait for the CPU that this thread uses */
		if (++tries % 64 == 0)
			sched_yield();
	return lent;
}

static void
lane_drop_qp(struct kv_cq *cq, uint32_t qpn)
{
	struct kv_cq *lent = cq_hold_lending(cq);
	uint32_t i;

	for (i = 0; i < cq->karst->nlanes; i++)
		karst_cq_lane_drop(&cq->karst->lane[i], qpn);
	kv_cq_release(cq);
	kv_polls_take_back(lent);
}

void
kv_drop_completions(const struct kv_qp *qp)
{
	uint32_t qpn = qp->vqp.qp.qp_num;

	if (qp->send_cq != NULL)
		lane_drop_qp(qp->send_cq, qpn);
	if (qp->recv_cq != NULL && qp->recv_cq != qp->send_cq)
		lane_drop_qp(qp->recv_cq, qpn);
}

/* --- from the engine's completions to those of verbs --- */

/* The service level field, which says by which IP version a datagram came.  A program that reads
 * the 40 bytes in front of the datagram must know this, and verbs have no field for it.  mlx5
 * adapters use this field, and UCX reads it: 1 is IPv6, 2 IPv4, 8 means UDP. */
static inline uint8_t
service_level(const struct karst_cqe *c)
{
	if (karst_likely(!(c->flags & KARST_WC_GRH)))
		return 0;
	return c->flags & KARST_WC_IP4 ? 8 | 2 : 8 | 1;
}

static inline unsigned int
flags_of(const struct karst_cqe *c)
{
	return c->flags & (unsigned int)~KARST_WC_IP4;
}

/* --- ibv_poll_cq() --- */

static inline void
wc_fill(struct ibv_wc *wc, const struct karst_cqe *c)
{
	wc->wr_id = c->wr_id;
	wc->status = (enum ibv_wc_status)c->status;
	wc->opcode = (enum ibv_wc_opcode)c->opcode;
	wc->vendor_err = c->syndrome;
	wc->byte_len = c->byte_len;
	wc->imm_data = c->flags & KARST_WC_WITH_INV ? c->imm : htonl(c->imm);
	wc->qp_num = c->qpn;
	wc->src_qp = c->src_qpn;
	wc->wc_flags = flags_of(c);
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = service_level(c);
	wc->dlid_path_bits = 0;
}

/* --- yielding --- */

static uint64_t
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Reads $KARST_POLL_YIELD once. */
static bool
yield_enabled(void)
{
	static _Atomic int known = -1;
	int does = atomic_load_explicit(&known, memory_order_relaxed);
	const char *value;

	if (karst_unlikely(does < 0)) {
		value = getenv("KARST_POLL_YIELD");
		does = value == NULL || strcmp(value, "0") != 0;
		atomic_store_explicit(&known, does, memory_order_relaxed);
	}
	return does;
}

/* Did another thread run during a yield that took @ns?  That takes two context switches.  A yield
 * during which no thread ran takes less than twice as long as the shortest yield so far, during
 * which another thread may have run. */
static bool
yield_was_used(uint64_t ns)
{
	static _Atomic uint64_t cheapest = UINT64_MAX;
	uint64_t least = atomic_load_explicit(&cheapest, memory_order_relaxed);

	if (ns < least) {
		atomic_store_explicit(&cheapest, ns, memory_order_relaxed);
		least = ns;
	}
	return ns > karst_min_u64(2 * least, TWO_SWITCHES_NS);
}

/* Yields the processor after some of the empty polls: on a machine with few processors the thread
 * that is to produce the completion may be waiting for this one.  A yield is "unused" if no other
 * thread ran during it.  The more yields in a row are unused, the fewer follow; the first
 * UNUSED_YIELDS do not count, since a scheduler may skip a waiting thread.
 *
 * @return true: it has yielded, and the queue must be polled again.  A program assumes that the
 * queue is still empty when an empty poll returns.  While another thread ran, the peer may have
 * sent its last message and then closed its socket; a program that saw only the closed socket would
 * drop the message. */
static karst_noinline bool
poll_yield(void)
{
	static __thread uint32_t polls; /* empty polls since the last yield */
	static __thread uint32_t untimed;
	static __thread uint32_t unused; /* yields in a row in which no other thread ran */
	uint64_t began;

	if (polls++ < (unused > UNUSED_YIELDS ? unused - UNUSED_YIELDS : 0))
		return false;
	polls = 0;
	if (!yield_enabled())
		return false;
	/* while other threads run during yields, it is enough to time some of the yields */
	if (unused == 0 && ++untimed % TIMED_YIELD_EVERY != 0) {
		sched_yield();
		return true;
	}
	began = now_ns();
	sched_yield();
	if (yield_was_used(now_ns() - began))
		unused = 0;
	else
		unused = karst_min_u32(unused + 1, UNUSED_YIELDS + MAX_POLLS_PER_YIELD);
	return true;
}

/* --- polling a little longer before the program waits for an event --- */

#define WAIT_NS 50000u /* twice the time to go to sleep and be woken */

/* Number of the process's queues for which the program has asked for an event. */
static _Atomic uint32_t armed_queues;

void
kv_cq_set_armed(struct kv_cq *cq, bool armed)
{
	/* relaxed, here and below: this is a hint, which need not be current */
	if (atomic_exchange_explicit(&cq->armed, armed, memory_order_relaxed) == armed)
		return;
	atomic_fetch_add_explicit(&armed_queues, armed ? 1u : UINT32_MAX, memory_order_relaxed);
}

static bool
event_wait_enabled(void)
{
	static _Atomic int known = -1;
	int wait = atomic_load_explicit(&known, memory_order_relaxed);
	const char *value;

	if (karst_unlikely(wait < 0)) {
		value = getenv("KARST_EVENT_WAIT");
		wait = value == NULL || strcmp(value, "0") != 0;
		atomic_store_explicit(&known, wait, memory_order_relaxed);
	}
	return wait;
}

/*
 * A program that has asked for an event polls once more, and sleeps if the queue is empty.  To wake
 * it takes the engine longer than a small message, above all on a virtual machine.  Therefore, if
 * the last completion came soon after such an empty poll, this poll waits for the next completion.
 * The event is raised in any case.  If several queues are armed the poll does not wait, because
 * another queue may have had its event.
 *
 * @return the time until which to poll again; 0: do not poll again
 */
static karst_noinline uint64_t
event_wait_until(struct kv_cq *cq)
{
	uint64_t now = now_ns();

	atomic_store_explicit(&cq->empty_poll_ns, now, memory_order_relaxed);
	if (!atomic_load_explicit(&cq->soon, memory_order_relaxed) ||
		atomic_load_explicit(&armed_queues, memory_order_relaxed) > 1 ||
		!event_wait_enabled())
		return 0;
	return now + WAIT_NS;
}

static inline bool
cq_was_armed(const struct kv_cq *cq)
{
	return atomic_load_explicit(&cq->armed, memory_order_relaxed);
}

/* Will the program wait for an event?  No if one has been raised since the program asked for it. */
static bool
cq_is_armed(struct kv_cq *cq)
{
	bool armed = cq_was_armed(cq) && karst_cq_is_armed(cq->karst->sh);

	if (!armed)
		kv_cq_set_armed(cq, false);
	return armed;
}

/* Records that a program which has asked for an event has got a completion. */
static karst_noinline void
cq_note_completion(struct kv_cq *cq)
{
	uint64_t since = atomic_exchange_explicit(&cq->empty_poll_ns, 0, memory_order_relaxed);

	if (since != 0)
		atomic_store_explicit(&cq->soon, now_ns() - since < WAIT_NS, memory_order_relaxed);
	cq_is_armed(cq);
}

/* --- nothing in the ring --- */

/* Calls karst_cq_look() in one of LIBKARST_EVERY calls; returns 0 in the others.  A completion that
 * has arrived in the ring meanwhile is left to the next poll, which also reads its time. */
static int
look_libkarst(struct kv_cq *cq, struct karst_cqe *cqe)
{
	int ret;

	if (++cq->empty % LIBKARST_EVERY != 0)
		return 0;
	ret = karst_cq_look(cq->karst, 1, cqe);
	if (ret != 0)
		cq->empty--; /* there may be more: the next call asks libkarst again */
	if (ret < 0)
		kv_errno(-ret);
	return ret;
}

static karst_noinline int
poll_empty(struct kv_cq *cq, int n, struct ibv_wc *wc)
{
	struct karst_cqe cqe;
	int ret = n > 0 ? look_libkarst(cq, &cqe) : 0;

	if (ret > 0)
		wc_fill(wc, &cqe);
	return ret;
}

/* Takes at most @n of the @got completions at @cqes.  @return how many */
static inline int
take_wcs(struct kv_cq *cq, const struct karst_cqe *cqes, uint32_t got, int n, struct ibv_wc *wc)
{
	uint32_t i;

	got = karst_min_u32(got, (uint32_t)n);
	for (i = 0; i < got; i++)
		wc_fill(&wc[i], &cqes[i]);
	karst_cq_take(cq->karst, got);
	return (int)got;
}

/* As karst_cq_peek(), for completions that arrived before the program armed the queue. */
static uint32_t
peek_before(struct kv_cq *cq, const struct karst_cqe **cqes)
{
	struct karst_cq *karst = cq->karst;
	uint32_t i, n;

	for (i = 0; i < karst->nlanes; i++) {
		karst->next = karst->next + 1 < karst->nlanes ? karst->next + 1 : 0;
		n = karst_cq_lane_peek_before(&karst->lane[karst->next], cqes);
		if (n > 0)
			return n;
	}
	return 0;
}

/* The first poll after the program has armed the queue: takes only completions that arrived before
 * that.  See cq.c.  @return how many; 0: there are none */
static karst_noinline int
poll_fresh(struct kv_cq *cq, int n, struct ibv_wc *wc)
{
	const struct karst_cqe *cqes;
	uint32_t got;
	int done = 0;

	atomic_store_explicit(&cq->armed_fresh, false, memory_order_relaxed);
	while (done < n && (got = peek_before(cq, &cqes)) > 0)
		done += take_wcs(cq, cqes, got, n - done, wc + done);
	return done;
}

static inline bool
cq_is_fresh(const struct kv_cq *cq)
{
	return atomic_load_explicit(&cq->armed_fresh, memory_order_relaxed);
}

/* Called at the end of a poll: the program does not know what is left in the queue until it gets
 * another event. */
static inline void
cq_polled(struct kv_cq *cq)
{
	/* usually only a load: the polling thread shares the cache line with the one that arms */
	if (atomic_load_explicit(&cq->told, memory_order_relaxed))
		atomic_store_explicit(&cq->told, false, memory_order_relaxed);
}

static inline int
poll_ring(struct kv_cq *cq, int n, struct ibv_wc *wc)
{
	const struct karst_cqe *cqes;
	uint32_t got;
	int done = 0;

	while (done < n && (got = karst_cq_peek(cq->karst, &cqes)) > 0)
		done += take_wcs(cq, cqes, got, n - done, wc + done);
	return done != 0 ? done : poll_empty(cq, n, wc);
}

static inline int
poll_once(struct kv_cq *cq, int n, struct ibv_wc *wc)
{
	int done = 0;

	cq_lock(cq);
	if (karst_unlikely(cq_is_fresh(cq)) && n > 0)
		done = poll_fresh(cq, n, wc);
	if (karst_likely(done == 0))
		done = poll_ring(cq, n, wc);
	if (karst_likely(n > 0))
		cq_polled(cq);
	cq_unlock(cq);
	return done;
}

static karst_noinline int
poll_idle(struct kv_cq *cq, int n, struct ibv_wc *wc)
{
	int done = poll_yield() ? poll_once(cq, n, wc) : 0;
	uint64_t until;

	if (done != 0 || n == 0 || !cq_is_armed(cq))
		return done;
	until = event_wait_until(cq);
	while (done == 0 && until != 0 && now_ns() < until) {
		poll_yield();
		done = poll_once(cq, n, wc);
	}
	return done;
}

int
kv_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct kv_cq *cq = kv_cq_of(ibv);
	int done = poll_once(cq, n, wc);

	if (karst_unlikely(done == 0))
		done = poll_idle(cq, n, wc);
	if (done > 0 && karst_unlikely(cq_was_armed(cq)))
		cq_note_completion(cq);
	return done;
}

/* --- extended polling: one completion at a time, read by accessors --- */

static void
ex_show(struct kv_cq *cq)
{
	const struct karst_cqe *c = &cq->cqes[cq->at];

	cq->vcq.cq_ex.status = (enum ibv_wc_status)c->status;
	cq->vcq.cq_ex.wr_id = c->wr_id;
}

/* Called when the ring is empty: takes a completion from libkarst.  @return 0, ENOENT or EIO */
static karst_noinline int
ex_empty(struct kv_cq *cq)
{
	int ret;

	cq_polled(cq);
	ret = look_libkarst(cq, &cq->last);
	if (ret <= 0)
		return ret == 0 ? ENOENT : -ret;
	cq->cqes = &cq->last;
	return 0;
}

/* Shows the first of the next contiguous completions.
 * @return 0; ENOENT: none; EIO: the queue has overflown */
static int
ex_peek(struct kv_cq *cq)
{
	int ret = 0;

	cq->at = 0;
	cq->n = karst_likely(!cq->ends_early) ? karst_cq_peek(cq->karst, &cq->cqes)
					      : peek_before(cq, &cq->cqes);
	cq->stamps = karst_likely(cq->n > 0) ? karst_cq_stamps(cq->karst) : NULL;
	if (karst_unlikely(cq->n == 0))
		ret = cq->ends_early ? ENOENT : ex_empty(cq);
	if (ret == 0)
		ex_show(cq);
	return ret;
}

/* As ex_peek(), at the start of the first poll since the program armed the queue. */
static karst_noinline int
ex_peek_fresh(struct kv_cq *cq)
{
	int ret;

	atomic_store_explicit(&cq->armed_fresh, false, memory_order_relaxed);
	cq->ends_early = true;
	ret = ex_peek(cq);
	cq->ends_early = ret == 0;
	return ret == 0 ? 0 : ex_peek(cq);
}

/* Takes @n completions, which the program has read; nothing if they are not in the ring. */
static void
ex_take(struct kv_cq *cq, uint32_t n)
{
	if (cq->n > 0)
		karst_cq_take(cq->karst, n);
	cq->n = 0;
}

/* Yields, and calls ex_peek() again.  The lock is held on entry and on return, and released
 * meanwhile. */
static int
ex_peek_again(struct kv_cq *cq)
{
	cq_unlock(cq);
	poll_yield();
	cq_lock(cq);
	return ex_peek(cq);
}

/* What poll_idle() does, for extended polling.  The lock as for ex_peek_again(). */
static karst_noinline int
ex_idle(struct kv_cq *cq)
{
	int ret = ex_peek_again(cq);
	uint64_t until;

	if (ret != ENOENT || !cq_is_armed(cq))
		return ret;
	until = event_wait_until(cq);
	while (ret == ENOENT && until != 0 && now_ns() < until)
		ret = ex_peek_again(cq);
	return ret;
}

/* --- changes while a poll is under way --- */

/* Did the calling thread begin the extended poll that is under way?  Then it has the lock.  Between
 * ibv_start_poll() and ibv_end_poll() a program may react to a completion by destroying or
 * resetting a queue pair, or by resizing the queue. */
static bool
poll_is_mine(const struct kv_cq *cq)
{
	/* relaxed: no other thread stores the caller's thread id */
	return atomic_load_explicit(&cq->poller, memory_order_relaxed) == pthread_self();
}

static void
poll_begins(struct kv_cq *cq)
{
	atomic_store_explicit(&cq->poller, pthread_self(), memory_order_relaxed);
}

static void
poll_ends(struct kv_cq *cq)
{
	atomic_store_explicit(&cq->poller, 0, memory_order_relaxed);
}

/* Takes the completions up to the current one, and keeps a copy of that one, which the program may
 * still read. */
static void
ex_keep_shown(struct kv_cq *cq)
{
	if (cq->n == 0)
		return;
	cq->last = cq->cqes[cq->at];
	if (cq->stamps != NULL) {
		cq->last_stamp = cq->stamps[cq->at];
		cq->stamps = &cq->last_stamp;
	}
	ex_take(cq, cq->at + 1);
	cq->cqes = &cq->last;
	cq->at = 0;
}

bool
kv_cq_hold(struct kv_cq *cq)
{
	if (poll_is_mine(cq)) {
		ex_keep_shown(cq);
		return true;
	}
	if (cq->single || karst_trylock(&cq->lock))
		return true;
	if (!karst_trylock(&cq->loan))
		return false;
	cq->on_loan = true;
	return true;
}

void
kv_cq_release(struct kv_cq *cq)
{
	if (poll_is_mine(cq))
		return;
	if (cq->on_loan) {
		cq->on_loan = false;
		karst_unlock(&cq->loan);
	} else {
		cq_unlock(cq);
	}
}

/*
 * A thread within an extended poll has the lock of that queue until the program ends the poll, and
 * may now need another queue, to remove a queue pair's completions there or to resize it.  The
 * thread that has the lock of that one may, likewise, need the first.  Therefore a thread lends the
 * queues that it polls while it waits: it keeps the completion that the program is reading and
 * unlocks the queue's loan.  Who takes the loan may then move or remove the other completions.
 * Threads that want to poll still wait for the lock.
 */

struct lending {
	const struct kv_cq *except;
	struct kv_cq *lent;
};

static void
cq_lend_if_mine(struct kv_live *of, void *arg)
{
	struct kv_cq *cq = karst_container_of(of, struct kv_cq, live);
	struct lending *l = arg;

	if (cq == l->except || cq->single || !poll_is_mine(cq))
		return;
	ex_keep_shown(cq);
	cq->next_lent = l->lent;
	l->lent = cq;
	karst_unlock(&cq->loan);
}

struct kv_cq *
kv_polls_lend(const struct kv_cq *except)
{
	struct lending l = {.except = except};

	kv_live_each(KV_CQ, cq_lend_if_mine, &l);
	return l.lent;
}

void
kv_polls_take_back(struct kv_cq *lent)
{
	for (; lent != NULL; lent = lent->next_lent)
		karst_lock(&lent->loan);
}

static int
start_poll(struct ibv_cq_ex *ibv, struct ibv_poll_cq_attr *attr)
{
	struct kv_cq *cq = karst_container_of(ibv, struct kv_cq, vcq.cq_ex);
	int ret;

	if (karst_unlikely(attr->comp_mask != 0))
		return kv_error(kv_refuse(-EINVAL, "comp_mask must be 0"));
	cq_lock(cq);
	ret = karst_unlikely(cq_is_fresh(cq)) ? ex_peek_fresh(cq) : ex_peek(cq);
	if (karst_unlikely(ret == ENOENT))
		ret = ex_idle(cq);
	if (ret != 0) {
		cq_unlock(cq);
		return ret;
	}
	poll_begins(cq);
	if (karst_unlikely(cq_was_armed(cq)))
		cq_note_completion(cq);
	return 0;
}

static int
next_poll(struct ibv_cq_ex *ibv)
{
	struct kv_cq *cq = karst_container_of(ibv, struct kv_cq, vcq.cq_ex);

	if (cq->at + 1 < cq->n) {
		cq->at++;
		ex_show(cq);
		return 0;
	}
	ex_take(cq, cq->n);
	return ex_peek(cq);
}

static void
end_poll(struct ibv_cq_ex *ibv)
{
	struct kv_cq *cq = karst_container_of(ibv, struct kv_cq, vcq.cq_ex);

	ex_take(cq, cq->at + 1);
	cq_polled(cq);
	cq->ends_early = false;
	poll_ends(cq);
	cq_unlock(cq);
}

static const struct karst_cqe *
ex_current(struct ibv_cq_ex *ibv)
{
	const struct kv_cq *cq = karst_container_of(ibv, struct kv_cq, vcq.cq_ex);

	return &cq->cqes[cq->at];
}

static enum ibv_wc_opcode
read_opcode(struct ibv_cq_ex *ibv)
{
	return (enum ibv_wc_opcode)ex_current(ibv)->opcode;
}

static uint32_t
read_vendor_err(struct ibv_cq_ex *ibv)
{
	return ex_current(ibv)->syndrome;
}

static unsigned int
read_wc_flags(struct ibv_cq_ex *ibv)
{
	return flags_of(ex_current(ibv));
}

static uint32_t
read_byte_len(struct ibv_cq_ex *ibv)
{
	return ex_current(ibv)->byte_len;
}

static __be32
read_imm_data(struct ibv_cq_ex *ibv)
{
	const struct karst_cqe *c = ex_current(ibv);

	return c->flags & KARST_WC_WITH_INV ? c->imm : htonl(c->imm);
}

static uint32_t
read_qp_num(struct ibv_cq_ex *ibv)
{
	return ex_current(ibv)->qpn;
}

static uint32_t
read_src_qp(struct ibv_cq_ex *ibv)
{
	return ex_current(ibv)->src_qpn;
}

static uint32_t
read_slid(struct ibv_cq_ex *ibv)
{
	(void)ibv;
	return 0; /* there are no LIDs */
}

static uint8_t
read_sl(struct ibv_cq_ex *ibv)
{
	return service_level(ex_current(ibv));
}

static uint8_t
read_nothing(struct ibv_cq_ex *ibv)
{
	(void)ibv;
	return 0;
}

static uint64_t
read_completion_ts(struct ibv_cq_ex *ibv)
{
	const struct kv_cq *cq = karst_container_of(ibv, struct kv_cq, vcq.cq_ex);
	uint64_t ns = 0;

	if (cq->stamps != NULL)
		return cq->stamps[cq->at];
	/* libkarst has generated the completion just now */
	karst_query_clock(cq->karst->context, &ns);
	return ns;
}

void
kv_set_poll_ops(struct kv_cq *cq, uint64_t wc_flags)
{
	struct ibv_cq_ex *ex = &cq->vcq.cq_ex;

	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_wc_flags = read_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		ex->read_byte_len = read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		ex->read_imm_data = read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		ex->read_qp_num = read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		ex->read_src_qp = read_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		ex->read_slid = read_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		ex->read_sl = read_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		ex->read_dlid_path_bits = read_nothing;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		ex->read_completion_ts = read_completion_ts;
}
