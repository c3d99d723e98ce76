/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Requests that the engine took with it.
 *
 * The rings outlive the engine, and say what was outstanding.  It makes completions ready, gives
 * the slots of their requests back, and then shows the completions; so a request stands in its
 * queue, between head and tail, or has a completion that is ready, or both.  Those that are ready
 * and were not shown are shown here, in the engine's place, and tell which requests are no longer
 * outstanding though their slots were not given back.  What is behind the ready ones in a lane
 * does not count: the engine may have begun to write there, over entries that the program took long
 * ago.
 *
 * The rest is flushed, as a queue pair in Error would: each poll reads on in the rings and moves
 * the head in the engine's place, so whoever goes on posting gets those back, too.  Requests of
 * shared receive queues are not completed; they belong to no queue pair.
 */
#include "client_priv.h"

/* All before the next one to be flushed are complete: their slots are free. */
static void
give_back(const struct cli_orphans *o, const struct karst_wq *wq)
{
	uint32_t head = atomic_load_explicit(&wq->sh->head, memory_order_relaxed);

	/* release, pairs with the acquire in karst_wq_free(), in the engine's place */
	if ((int32_t)(o->next - head) > 0)
		atomic_store_explicit(&wq->sh->head, o->next, memory_order_release);
}

/* What was not given back is left, for all we know. */
static void
begin(struct cli_orphans *o, const struct karst_wq *wq)
{
	if (o->known)
		return;
	/* acquire, pairs with the release in karst_wqe_show_head(): the completions of what is
	 * before it are ready */
	o->next = atomic_load_explicit(&wq->sh->head, memory_order_acquire);
	o->known = true;
}

/* Entries @from to @upto of the lane are ready and were not shown: completions of a queue are in
 * order, so its newest among them says where the first request without one stands. */
static void
pass(struct cli_orphans *o, uint32_t qpn, const struct karst_wq *wq,
	const struct karst_cq_lane *lane, uint32_t from, uint32_t upto, bool recv)
{
	const struct karst_cqe *cqes = (const struct karst_cqe *)(lane->sh + 1);
	uint32_t tail = atomic_load_explicit(&wq->sh->tail, memory_order_acquire);

	while (upto != from) {
		const struct karst_cqe *e = &cqes[--upto & lane->mask];

		if (e->qpn != qpn || ((e->opcode & KARST_WC_RECV) != 0) != recv)
			continue;
		if (e->slot - o->next < tail - o->next)
			o->next = e->slot + 1;
		break;
	}
	give_back(o, wq);
}

/* Shows entries @from to @upto of lane number @i. */
static void
show(struct cli_cq *cq, uint32_t i, uint32_t from, uint32_t upto)
{
	struct karst_cq_lane *lane = &cq->lane[i];
	struct cli_qp *q;

	for (q = cq->sends; q != NULL; q = q->next_send)
		if (q->pub.lcore == i)
			pass(&q->send_orphans, q->pub.qp_num, &q->pub.sq, lane, from, upto, false);
	for (q = cq->recvs; q != NULL; q = q->next_recv)
		if (q->pub.lcore == i && q->pub.srq == NULL)
			pass(&q->recv_orphans, q->pub.qp_num, &q->pub.rq, lane, from, upto, true);
	/* in the engine's place; where only the session has ended, the engine may still do it.
	 * relaxed: the entries are there */
	atomic_compare_exchange_strong_explicit(
		&lane->sh->tail, &from, upto, memory_order_relaxed, memory_order_relaxed);
}

bool
cli_orphans_show(struct cli_cq *cq)
{
	const struct karst_cqe *at;
	struct cli_qp *q;
	bool any = false;
	uint32_t i;

	for (q = cq->sends; q != NULL; q = q->next_send)
		begin(&q->send_orphans, &q->pub.sq);
	for (q = cq->recvs; q != NULL; q = q->next_recv)
		if (q->pub.srq == NULL)
			begin(&q->recv_orphans, &q->pub.rq);
	for (i = 0; i < cq->pub.nlanes; i++) {
		struct karst_cq_lane *lane = &cq->lane[i];
		uint32_t tail = atomic_load_explicit(&lane->sh->tail, memory_order_acquire);
		/* acquire, pairs with the release in karst_lane_ready() */
		uint32_t ready = atomic_load_explicit(&lane->sh->ready, memory_order_acquire);

		/* what is not possible is not believed: each of them stands in the lane */
		if ((int32_t)(ready - tail) > 0 && ready - lane->head <= lane->mask + 1 &&
			ready - tail <= lane->mask + 1)
			show(cq, i, tail, ready);
		any = karst_cq_lane_peek(lane, &at) > 0 || any;
	}
	return any;
}

/* Posted and not flushed yet. */
static uint32_t
left(const struct karst_wq *wq, const struct cli_orphans *o)
{
	/* acquire, pairs with the release in karst_wq_publish(): another thread may have posted */
	uint32_t n = atomic_load_explicit(&wq->sh->tail, memory_order_acquire) - o->next;

	return n <= wq->mask + 1 ? n : 0;
}

static const void *
slot_at(const struct karst_wq *wq, uint32_t idx)
{
	return wq->slots + ((size_t)(idx & wq->mask) << wq->shift);
}

static void
flushed(struct cli_orphans *o, const struct karst_wq *wq)
{
	o->next++;
	give_back(o, wq);
}

static uint32_t
flush_sends(struct cli_qp *q, uint32_t n, struct karst_cqe *cqes)
{
	struct karst_wq *wq = &q->pub.sq;
	uint32_t i;

	n = karst_min_u32(n, left(wq, &q->send_orphans));
	for (i = 0; i < n; i++) {
		const struct karst_send_wqe *w = slot_at(wq, q->send_orphans.next);

		cqes[i] = (struct karst_cqe){
			.wr_id = w->wr_id,
			.qpn = q->pub.qp_num,
			.status = KARST_WC_WR_FLUSH_ERR,
			.opcode = cli_wc_opcode(w->opcode),
			.slot = q->send_orphans.next,
		};
		flushed(&q->send_orphans, wq);
	}
	return n;
}

static uint32_t
flush_recvs(struct cli_qp *q, uint32_t n, struct karst_cqe *cqes)
{
	struct karst_wq *wq = &q->pub.rq;
	uint32_t i;

	if (q->pub.srq != NULL)
		return 0;
	n = karst_min_u32(n, left(wq, &q->recv_orphans));
	for (i = 0; i < n; i++) {
		const struct karst_recv_wqe *w = slot_at(wq, q->recv_orphans.next);

		cqes[i] = (struct karst_cqe){
			.wr_id = w->wr_id,
			.qpn = q->pub.qp_num,
			.status = KARST_WC_WR_FLUSH_ERR,
			.opcode = KARST_WC_RECV,
			.slot = q->recv_orphans.next,
		};
		flushed(&q->recv_orphans, wq);
	}
	return n;
}

uint32_t
cli_orphans_flush(struct cli_cq *cq, uint32_t n, struct karst_cqe *cqes)
{
	struct cli_qp *q;
	uint32_t got = 0;

	for (q = cq->sends; q != NULL && got < n; q = q->next_send)
		got += flush_sends(q, n - got, cqes + got);
	for (q = cq->recvs; q != NULL && got < n; q = q->next_recv)
		got += flush_recvs(q, n - got, cqes + got);
	return got;
}

bool
cli_orphans_pending(struct cli_cq *cq)
{
	struct cli_qp *q;

	if (cli_orphans_show(cq))
		return true;
	for (q = cq->sends; q != NULL; q = q->next_send)
		if (left(&q->pub.sq, &q->send_orphans) > 0)
			return true;
	for (q = cq->recvs; q != NULL; q = q->next_recv)
		if (q->pub.srq == NULL && left(&q->pub.rq, &q->recv_orphans) > 0)
			return true;
	return false;
}
