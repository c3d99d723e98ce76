/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Receive and transmit bursts.  As long as no rule hits and no packet is held or ready, a burst
 * passes straight through.  Otherwise a received burst is put together again from packets that were
 * ready before, packets whose time has come, and packets received now, with their impairments.
 * Packets without room in the caller's array are ready for the next burst.
 *
 * On transmit, the burst is compacted in the caller's array: packets that were dropped or held
 * leave gaps, and packets before a gap are moved over it.  Packets that the port below does not
 * accept return to the caller, which will send them again or free them.  A flag in these mbufs
 * tells that the rules have already judged them, so that each packet counts once, however often it
 * is tried.
 */
#include "impair.h"

#include <rte_ethdev.h>

/*
 * Takes the new rules, between two bursts.  The control thread frees the old ones.  When rules
 * change in quick succession, there may be some on @retired already.
 */
static __attribute__((noinline)) void
adopt(struct imp_queue *q)
{
	/* acquire: pairs with the release of imp_control_apply(), for the contents of the set */
	struct imp_set *s = atomic_exchange_explicit(&q->next, NULL, memory_order_acquire);
	struct imp_set *old = q->set;

	if (s == NULL)
		return; /* the control thread has taken it back */
	/*
	 * other threads read counts of the set; they hold the lock that keeps it from being freed
	 */
	__atomic_store_n(&q->set, s, __ATOMIC_RELEASE);
	/* relaxed: the control thread at most takes the list, so nothing on it is read here */
	old->older = atomic_load_explicit(&q->retired, memory_order_relaxed);
	/* release: pairs with the acquire of hand_over() in control.c, which frees it */
	while (!atomic_compare_exchange_weak_explicit(
		&q->retired, &old->older, old, memory_order_release, memory_order_relaxed))
		;
}

static inline void
begin(struct imp_queue *q)
{
	/* relaxed: adopt() loads it again with acquire */
	if (unlikely(atomic_load_explicit(&q->next, memory_order_relaxed) != NULL))
		adopt(q);
}

static inline bool
is_gone(const struct imp_queue *q)
{
	/* relaxed: only a hint, no other access depends on the order */
	return atomic_load_explicit(&q->port->gone, memory_order_relaxed);
}

static inline bool
has_waiting(const struct imp_queue *q)
{
	return (q->nready | q->held.ntimed | q->held.ncounted) != 0;
}

static inline uint64_t
time_of(const struct imp_queue *q)
{
	return q->set->times || (q->held.ntimed | q->held.ncounted) != 0 ? rte_rdtsc() : 0;
}

/* --- what is ready --- */

static uint32_t
ready_room(const struct imp_queue *q)
{
	return IMP_READY - q->nready;
}

static void
ready_put(struct imp_queue *q, struct rte_mbuf *m)
{
	if (unlikely(q->nready == IMP_READY)) {
		rte_pktmbuf_free(m);
		imp_add(&q->stats.discarded, 1);
		return;
	}
	q->ready[(q->ready_at + q->nready++) % IMP_READY] = m;
}

static uint32_t
ready_take(struct imp_queue *q, struct rte_mbuf **to, uint32_t n)
{
	uint32_t i;

	n = RTE_MIN(n, q->nready);
	for (i = 0; i < n; i++)
		to[i] = q->ready[(q->ready_at + i) % IMP_READY];
	q->ready_at = (q->ready_at + n) % IMP_READY;
	q->nready -= n;
	return n;
}

static void
released(struct imp_queue *q, struct imp_waiting *w)
{
	imp_add(&q->stats.released, 1);
	imp_log_put(q, &w->record, IMP_RELEASED, w->record.why);
}

/*
 * @return the number of copies that a packet may have, so that there is still room for the @left
 *   packets that follow and for packets that are held for these.
 */
static uint32_t
copies_room(const struct imp_queue *q, uint32_t left)
{
	uint32_t room = ready_room(q), need = left + IMP_COUNTED;

	return room > need ? room - need : 0;
}

/* --- receiving --- */

/* Destination of received packets. */
struct sink {
	struct rte_mbuf **bufs;
	uint16_t n, room;
};

static void
deliver(struct imp_queue *q, struct sink *to, struct rte_mbuf *m)
{
	if (to->n < to->room)
		to->bufs[to->n++] = m;
	else
		ready_put(q, m);
}

/* Delivers a packet, and then the packets that were held for it. */
static void
deliver_counted(struct imp_queue *q, struct sink *to, struct rte_mbuf *m)
{
	uint8_t copy[IMP_HEADERS];
	struct imp_waiting w;
	struct imp_frame f;
	bool first = true, roce;

	if (q->held.ncounted == 0) {
		deliver(q, to, m);
		return;
	}
	roce = imp_frame_read(m, &f, copy);
	deliver(q, to, m);
	for (; imp_held_passed(&q->held, roce ? &f : NULL, first, &w); first = false) {
		deliver(q, to, w.m);
		released(q, &w);
	}
}

static void
deliver_acted(struct imp_queue *q, struct sink *to, struct rte_mbuf *m, const struct imp_verdict *v,
	uint64_t packet, uint64_t now, uint32_t left)
{
	struct imp_outcome o;
	uint32_t i;

	imp_act(q, m, v, packet, now, copies_room(q, left), &o);
	if (o.m != NULL)
		deliver_counted(q, to, o.m);
	for (i = 0; i < o.ncopies; i++)
		deliver(q, to, o.copy[i]);
}

/*
 * Delivers @in, received packets.  The first @clean of these were judged and not hit.  If @clean is
 * less than @n, packet number @clean was hit, as described by @v.
 */
static void
deliver_all(struct imp_queue *q, struct sink *to, struct rte_mbuf **in, uint16_t n, uint16_t clean,
	struct imp_verdict *v, uint64_t now)
{
	uint16_t i = 0;

	while (i < n) {
		for (; i < clean; i++)
			deliver_counted(q, to, in[i]);
		if (i == n)
			break;
		deliver_acted(q, to, in[i], v, q->frames + i + 1, now, n - i);
		i++;
		clean = imp_scan(q, in, i, n, now, v);
	}
	imp_add(&q->frames, n);
}

static void
release_due(struct imp_queue *q, struct sink *to, uint64_t now)
{
	struct imp_waiting w;

	while (to->n < to->room && imp_held_due(&q->held, now, &w)) {
		to->bufs[to->n++] = w.m;
		released(q, &w);
	}
}

/*
 * Sets the port of packets from the port below to this one.  If there are rules, also prefetches
 * the headers.
 */
static inline void
take_over(const struct imp_queue *q, struct rte_mbuf **bufs, uint16_t n)
{
	const uint16_t id = q->port_id;
	uint16_t i;

	if (q->set->n == 0) {
		for (i = 0; i < n; i++)
			bufs[i]->port = id;
		return;
	}
	for (i = 0; i < n; i++) {
		bufs[i]->port = id;
		rte_prefetch0(imp_headers(bufs[i]));
	}
}

static __attribute__((noinline)) uint16_t
rx_slow(struct imp_queue *q, struct rte_mbuf **bufs, uint16_t n)
{
	struct sink to = {.bufs = bufs, .room = n};
	struct rte_mbuf *in[IMP_BURST];
	struct imp_verdict v;
	uint64_t now = time_of(q);
	uint16_t got;

	to.n = (uint16_t)ready_take(q, bufs, n);
	release_due(q, &to, now);
	if (to.n == n || is_gone(q))
		return to.n;
	got = rte_eth_rx_burst(
		q->below, q->queue, in, RTE_MIN((uint16_t)(n - to.n), (uint16_t)IMP_BURST));
	take_over(q, in, got);
	deliver_all(q, &to, in, got, imp_scan(q, in, 0, got, now, &v), &v, now);
	return to.n;
}

static __attribute__((noinline)) uint16_t
rx_hit(struct imp_queue *q, struct rte_mbuf **bufs, uint16_t got, uint16_t n, uint16_t hit,
	struct imp_verdict *v, uint64_t now)
{
	struct sink to = {.bufs = bufs, .room = n};
	struct rte_mbuf *in[IMP_BURST];

	memcpy(in, bufs, got * sizeof(in[0]));
	deliver_all(q, &to, in, got, hit, v, now);
	return to.n;
}

uint16_t
imp_rx_burst(void *queue, struct rte_mbuf **bufs, uint16_t n)
{
	struct imp_queue *q = queue;
	struct imp_verdict v;
	uint64_t now = 0;
	uint16_t got, hit;

	begin(q);
	if (unlikely(has_waiting(q) || is_gone(q)))
		return rx_slow(q, bufs, n);
	got = rte_eth_rx_burst(q->below, q->queue, bufs, RTE_MIN(n, (uint16_t)IMP_BURST));
	take_over(q, bufs, got);
	if (q->set->n != 0 && got > 0) {
		now = time_of(q);
		hit = imp_scan(q, bufs, 0, got, now, &v);
		if (unlikely(hit < got))
			return rx_hit(q, bufs, got, n, hit, &v, now);
	}
	imp_add(&q->frames, got);
	return got;
}

/* --- sending --- */

/* The part of the caller's array that was judged and has to be sent. */
struct run {
	struct rte_mbuf **bufs;
	uint16_t from, to;
};

static void
mark_returned(struct imp_queue *q, struct rte_mbuf **bufs, uint16_t n)
{
	uint16_t i;

	for (i = 0; i < n; i++)
		bufs[i]->ol_flags |= q->port->judged_flag;
	q->returned += n;
}

/* @return whether all of it was sent. */
static bool
run_send(struct imp_queue *q, struct run *r)
{
	uint16_t n = (uint16_t)(r->to - r->from);

	if (n > 0)
		r->from = (uint16_t)(r->from +
			rte_eth_tx_burst(q->below, q->queue, r->bufs + r->from, n));
	return r->from == r->to;
}

/* Sends a packet that does not belong to the caller. */
static void
send_own(struct imp_queue *q, struct rte_mbuf *m)
{
	if (q->nready > 0 || rte_eth_tx_burst(q->below, q->queue, &m, 1) == 0)
		ready_put(q, m);
}

static bool
send_ready(struct imp_queue *q)
{
	struct rte_mbuf *m;

	while (q->nready > 0) {
		m = q->ready[q->ready_at];
		if (rte_eth_tx_burst(q->below, q->queue, &m, 1) == 0)
			return false;
		ready_take(q, &m, 1);
	}
	return true;
}

/*
 * Handles the packets that were held for the last packet of @r: sends @r, then these.
 * @return whether all of @r was sent.
 */
static bool
send_counted(struct imp_queue *q, struct run *r)
{
	uint8_t copy[IMP_HEADERS];
	struct imp_waiting w;
	struct imp_frame f;
	bool roce, sent = true, first = true;

	if (q->held.ncounted == 0)
		return true;
	roce = imp_frame_read(r->bufs[r->to - 1], &f, copy);
	for (; imp_held_passed(&q->held, roce ? &f : NULL, first, &w); first = false) {
		sent = run_send(q, r) && sent;
		send_own(q, w.m);
		released(q, &w);
	}
	return sent;
}

static bool
send_acted(struct imp_queue *q, struct run *r, struct rte_mbuf *m, const struct imp_verdict *v,
	uint64_t packet, uint64_t now)
{
	struct imp_outcome o;
	bool sent = true;
	uint32_t i;

	imp_act(q, m, v, packet, now, copies_room(q, 0), &o);
	if (o.m != NULL) {
		r->bufs[r->to++] = o.m;
		sent = send_counted(q, r);
	}
	if (o.ncopies > 0)
		sent = run_send(q, r) && sent;
	for (i = 0; i < o.ncopies; i++)
		send_own(q, o.copy[i]);
	return sent;
}

/* Whether a packet was judged in an earlier attempt to send it.  Clears its mark. */
static bool
was_judged(struct imp_queue *q, struct rte_mbuf *m)
{
	if (q->returned == 0 || (m->ol_flags & q->port->judged_flag) == 0)
		return false;
	m->ol_flags &= ~q->port->judged_flag;
	q->returned--;
	return true;
}

/*
 * Sends packets.  If @hit is less than @n, the packets up to number @hit were judged, and that one
 * was hit.  @return how many packets were consumed.
 */
static uint16_t
send_all(struct imp_queue *q, struct rte_mbuf **bufs, uint16_t n, uint16_t hit,
	struct imp_verdict *v, uint64_t now)
{
	struct run r = {.bufs = bufs};
	uint16_t i, unsent;
	bool sent = true;

	for (i = 0; i < n && sent; i++) {
		struct rte_mbuf *m = bufs[i];
		bool is_hit = i == hit;

		if (i > hit || hit == n) {
			if (!was_judged(q, m)) {
				imp_add(&q->frames, 1);
				is_hit = imp_scan(q, &m, 0, 1, now, v) == 0;
			}
		} else {
			imp_add(&q->frames, 1);
		}
		if (is_hit) {
			sent = send_acted(q, &r, m, v, q->frames, now);
		} else {
			bufs[r.to++] = m;
			sent = send_counted(q, &r);
		}
	}
	run_send(q, &r);
	unsent = (uint16_t)(r.to - r.from);
	mark_returned(q, bufs + r.from, unsent);
	if (unsent > 0) /* @bufs may be NULL if there are no packets */
		memmove(bufs + i - unsent, bufs + r.from, unsent * sizeof(bufs[0]));
	return (uint16_t)(i - unsent);
}

static __attribute__((noinline)) uint16_t
tx_slow(struct imp_queue *q, struct rte_mbuf **bufs, uint16_t n)
{
	uint64_t now = time_of(q);
	struct imp_verdict v;
	struct imp_waiting w;

	if (is_gone(q) || !send_ready(q))
		return 0;
	while (q->nready == 0 && imp_held_due(&q->held, now, &w)) {
		send_own(q, w.m);
		released(q, &w);
	}
	return q->nready > 0 ? 0 : send_all(q, bufs, n, n, &v, now);
}

uint16_t
imp_tx_burst(void *queue, struct rte_mbuf **bufs, uint16_t n)
{
	struct imp_queue *q = queue;
	struct imp_verdict v;
	uint64_t now = 0;
	uint16_t hit, sent;

	begin(q);
	if (unlikely(has_waiting(q) || is_gone(q) || q->returned != 0))
		return tx_slow(q, bufs, n);
	if (q->set->n != 0 && n > 0) {
		now = time_of(q);
		hit = imp_scan(q, bufs, 0, n, now, &v);
		if (unlikely(hit < n))
			return send_all(q, bufs, n, hit, &v, now);
	}
	sent = rte_eth_tx_burst(q->below, q->queue, bufs, n);
	imp_add(&q->frames, n);
	if (unlikely(sent < n))
		mark_returned(q, bufs + sent, (uint16_t)(n - sent));
	return sent;
}

uint16_t
imp_tx_prepare(void *queue, struct rte_mbuf **bufs, uint16_t n)
{
	const struct imp_queue *q = queue;

	return is_gone(q) ? n : rte_eth_tx_prepare(q->below, q->queue, bufs, n);
}

void
imp_queue_empty(struct imp_queue *q)
{
	struct imp_waiting w;
	struct rte_mbuf *m;

	while (imp_held_any(&q->held, &w)) {
		rte_pktmbuf_free(w.m);
		imp_add(&q->stats.discarded, 1);
		imp_log_put(q, &w.record, IMP_DISCARDED, IMP_WHY_STOPPED);
	}
	while (ready_take(q, &m, 1) != 0) {
		rte_pktmbuf_free(m);
		imp_add(&q->stats.discarded, 1);
	}
	q->returned = 0;
}
