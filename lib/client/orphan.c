/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Requests that the engine took with it.
 *
 * The rings outlive the engine, and say what was outstanding: the requests from "done" to tail, for
 * the engine moves "done" only after the completions of what is before it.  Those whose
 * completion stands in the lane already, behind which it did not follow any more, are found
 * by number and slot of the completion.  Slots are free before they are done: what has been posted
 * into them since then by a program that does not wait for completions is all that is left of them.
 *
 * The rest is flushed, as a queue pair in Error would: each poll reads on in the rings and moves
 * the head in the engine's place, so whoever goes on posting gets those back, too.  Requests of
 * shared receive queues are not completed; they belong to no queue pair.
 */
#include "client_priv.h"

/*
 * Where the first request without a completion stands.
 *
 * Completions of a queue are in order, so the newest one that was published says it.  Older ones
 * must not be asked: the engine may have begun to write over those that the program has taken, with
 * completions that it did not come to publish, of requests that it took with it.  If there is no
 * other of this queue, such a one is told by the head, which moves before what it announces.
 */
static uint32_t
first_open(const struct cli_cq *cq, const struct cli_qp *q, const struct karst_wq *wq,
	uint32_t born, bool recv)
{
	const struct karst_cq_lane *lane = &cq->lane[q->pub.lcore];
	const struct karst_cqe *cqes = (const struct karst_cqe *)(lane->sh + 1);
	uint32_t end = atomic_load_explicit(&lane->sh->tail, memory_order_acquire);
	uint32_t first = atomic_load_explicit(&wq->sh->done, memory_order_acquire);
	uint32_t head = atomic_load_explicit(&wq->sh->head, memory_order_acquire);
	uint32_t tail = atomic_load_explicit(&wq->sh->tail, memory_order_acquire);
	uint32_t n = karst_min_u32(end - born, lane->mask + 1), i;

	if (tail - first > wq->mask + 1)
		first = tail - (wq->mask + 1);
	for (i = 1; i <= n; i++) {
		const struct karst_cqe *e = &cqes[(end - i) & lane->mask];

		if (e->qpn != q->pub.qp_num || ((e->opcode & KARST_WC_RECV) != 0) != recv)
			continue;
		if (e->slot - first < tail - first && (int32_t)(head - e->slot) > 0)
			return e->slot + 1;
		break;
	}
	return first;
}

/* Posted and not flushed yet. */
static uint32_t
left(const struct cli_cq *cq, const struct cli_qp *q, const struct karst_wq *wq,
	struct cli_orphans *o, bool recv)
{
	uint32_t n;

	if (!o->known) {
		o->next = first_open(cq, q, wq, o->born, recv);
		o->known = true;
	}
	/* acquire, pairs with the release in karst_wq_publish(): another thread may have posted */
	n = atomic_load_explicit(&wq->sh->tail, memory_order_acquire) - o->next;
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
	uint32_t head = atomic_load_explicit(&wq->sh->head, memory_order_relaxed);

	o->next++;
	/* release, pairs with the acquire in karst_wq_free(), in the engine's place */
	if ((int32_t)(o->next - head) > 0)
		atomic_store_explicit(&wq->sh->head, o->next, memory_order_release);
}

static uint32_t
flush_sends(struct cli_cq *cq, struct cli_qp *q, uint32_t n, struct karst_cqe *cqes)
{
	struct karst_wq *wq = &q->pub.sq;
	uint32_t i;

	n = karst_min_u32(n, left(cq, q, wq, &q->send_orphans, false));
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
flush_recvs(struct cli_cq *cq, struct cli_qp *q, uint32_t n, struct karst_cqe *cqes)
{
	struct karst_wq *wq = &q->pub.rq;
	uint32_t i;

	if (q->pub.srq != NULL)
		return 0;
	n = karst_min_u32(n, left(cq, q, wq, &q->recv_orphans, true));
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
		got += flush_sends(cq, q, n - got, cqes + got);
	for (q = cq->recvs; q != NULL && got < n; q = q->next_recv)
		got += flush_recvs(cq, q, n - got, cqes + got);
	return got;
}

bool
cli_orphans_pending(struct cli_cq *cq)
{
	const struct karst_cqe *at;
	struct cli_qp *q;
	uint32_t i;

	for (i = 0; i < cq->pub.nlanes; i++)
		if (karst_cq_lane_peek(&cq->lane[i], &at) > 0)
			return true;
	for (q = cq->sends; q != NULL; q = q->next_send)
		if (left(cq, q, &q->pub.sq, &q->send_orphans, false) > 0)
			return true;
	for (q = cq->recvs; q != NULL; q = q->next_recv)
		if (q->pub.srq == NULL && left(cq, q, &q->pub.rq, &q->recv_orphans, true) > 0)
			return true;
	return false;
}
