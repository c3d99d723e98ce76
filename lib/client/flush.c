/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Completions of requests that were outstanding when the engine ended.
 *
 * The rings outlive the engine and show what was outstanding.  The engine makes completions ready,
 * then frees the slots of their requests, then shows the completions.  So each request is in its
 * queue between head and tail, or has a ready completion, or both.
 *
 * This file shows completions that are ready and not shown, as the engine would have done.  They
 * also tell which requests are complete although their slots were not freed.  Entries of a lane
 * behind the ready ones do not count: the engine may have begun to overwrite entries there that the
 * program took long ago.
 *
 * All other requests are flushed like those of a queue pair in Error.  Each poll completes some of
 * them and advances the queue's head, so that requests that the program posts later are flushed,
 * too.  Requests of shared receive queues are not completed, since they belong to no queue pair.
 */
#include "client_priv.h"

/* Frees the slots of all requests before the cursor, which are complete. */
static void
cursor_publish(const struct cli_flush_cursor *o, const struct karst_wq *wq)
{
	uint32_t head = atomic_load_explicit(&wq->sh->head, memory_order_relaxed);

	/* release, pairs with the acquire in karst_wq_free(); the engine would have done this */
	if ((int32_t)(o->next - head) > 0)
		atomic_store_explicit(&wq->sh->head, o->next, memory_order_release);
}

/* Sets the cursor to the oldest request whose slot was not freed. */
static void
cursor_init(struct cli_flush_cursor *o, const struct karst_wq *wq)
{
	if (o->known)
		return;
	/* acquire, pairs with the release in karst_wqe_show_head(): completions of the requests
	 * before the head are ready */
	o->next = atomic_load_explicit(&wq->sh->head, memory_order_acquire);
	o->known = true;
}

/* Entries @from to @upto of the lane are ready and not shown.  Completions of a queue are in order,
 * so the newest of these entries that belongs to this queue gives the first request without a
 * completion. */
static void
cursor_skip_completed(struct cli_flush_cursor *o, uint32_t qpn, const struct karst_wq *wq,
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
	cursor_publish(o, wq);
}

/* Shows entries @from to @upto of lane number @i. */
static void
lane_show(struct cli_cq *cq, uint32_t i, uint32_t from, uint32_t upto)
{
	struct karst_cq_lane *lane = &cq->lane[i];
	struct cli_qp *q;

	for (q = cq->sends; q != NULL; q = q->next_send)
		if (q->pub.lcore == i)
			cursor_skip_completed(
				&q->send_flush, q->pub.qp_num, &q->pub.sq, lane, from, upto, false);
	for (q = cq->recvs; q != NULL; q = q->next_recv)
		if (q->pub.lcore == i && q->pub.srq == NULL)
			cursor_skip_completed(
				&q->recv_flush, q->pub.qp_num, &q->pub.rq, lane, from, upto, true);
	/* If only the session has ended, the engine may do the same at this moment. relaxed: the
	 * entries were written before. */
	atomic_compare_exchange_strong_explicit(
		&lane->sh->tail, &from, upto, memory_order_relaxed, memory_order_relaxed);
}

bool
cli_flush_show_ready(struct cli_cq *cq)
{
	struct cli_qp *q;
	bool any = false;
	uint32_t i;

	for (q = cq->sends; q != NULL; q = q->next_send)
		cursor_init(&q->send_flush, &q->pub.sq);
	for (q = cq->recvs; q != NULL; q = q->next_recv)
		if (q->pub.srq == NULL)
			cursor_init(&q->recv_flush, &q->pub.rq);
	for (i = 0; i < cq->pub.nlanes; i++) {
		const struct karst_cq_lane *lane = &cq->lane[i];
		/* not lane->head: a thread that polls with karst_cq_peek() holds another lock */
		uint32_t head = atomic_load_explicit(&lane->sh->head, memory_order_relaxed);
		uint32_t tail = atomic_load_explicit(&lane->sh->tail, memory_order_acquire);
		/* acquire, pairs with the release in karst_lane_ready() */
		uint32_t ready = atomic_load_explicit(&lane->sh->ready, memory_order_acquire);

		/* a ready index is used only if its entries fit into the lane */
		if ((int32_t)(ready - tail) > 0 && ready - head <= lane->mask + 1 &&
			ready - tail <= lane->mask + 1)
			lane_show(cq, i, tail, ready);
		any |= karst_cq_lane_unread(lane);
	}
	return any;
}

/* @return the number of requests that are posted and not yet flushed. */
static uint32_t
cursor_left(const struct karst_wq *wq, const struct cli_flush_cursor *o)
{
	/* acquire, pairs with the release in karst_wq_publish(): another thread may have posted */
	uint32_t n = atomic_load_explicit(&wq->sh->tail, memory_order_acquire) - o->next;

	return n <= wq->mask + 1 ? n : 0;
}

static const void *
wq_slot_at(const struct karst_wq *wq, uint32_t idx)
{
	return wq->slots + ((size_t)(idx & wq->mask) << wq->shift);
}

static void
flush_advance(struct cli_flush_cursor *o, const struct karst_wq *wq)
{
	o->next++;
	cursor_publish(o, wq);
}

static uint32_t
flush_sends(struct cli_qp *q, uint32_t n, struct karst_cqe *cqes)
{
	struct karst_wq *wq = &q->pub.sq;
	uint32_t i;

	n = karst_min_u32(n, cursor_left(wq, &q->send_flush));
	for (i = 0; i < n; i++) {
		const struct karst_send_wqe *w = wq_slot_at(wq, q->send_flush.next);

		cqes[i] = (struct karst_cqe){
			.wr_id = w->wr_id,
			.qpn = q->pub.qp_num,
			.status = KARST_WC_WR_FLUSH_ERR,
			.opcode = cli_wc_opcode(w->opcode),
			.slot = q->send_flush.next,
		};
		flush_advance(&q->send_flush, wq);
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
	n = karst_min_u32(n, cursor_left(wq, &q->recv_flush));
	for (i = 0; i < n; i++) {
		const struct karst_recv_wqe *w = wq_slot_at(wq, q->recv_flush.next);

		cqes[i] = (struct karst_cqe){
			.wr_id = w->wr_id,
			.qpn = q->pub.qp_num,
			.status = KARST_WC_WR_FLUSH_ERR,
			.opcode = KARST_WC_RECV,
			.slot = q->recv_flush.next,
		};
		flush_advance(&q->recv_flush, wq);
	}
	return n;
}

uint32_t
cli_flush_requests(struct cli_cq *cq, uint32_t n, struct karst_cqe *cqes)
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
cli_flush_pending(struct cli_cq *cq)
{
	struct cli_qp *q;

	if (cli_flush_show_ready(cq))
		return true;
	for (q = cq->sends; q != NULL; q = q->next_send)
		if (cursor_left(&q->pub.sq, &q->send_flush) > 0)
			return true;
	for (q = cq->recvs; q != NULL; q = q->next_recv)
		if (q->pub.srq == NULL && cursor_left(&q->pub.rq, &q->recv_flush) > 0)
			return true;
	return false;
}
