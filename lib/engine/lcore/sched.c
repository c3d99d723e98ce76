/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Which queue pair sends next: deficit round robin by frame bytes over the core's list of active
 * QPs, O(1) whatever the number of QPs.
 *
 * A QP whose deficit is used up gets one quantum more when its turn comes, and keeps its turn
 * until the quantum is spent or it has nothing to send; a frame may overdraw, which the next round
 * pays back.  Requests that make no frame are paid for like small ones (karst_tx_burst.charge).  If
 * the burst is full first, the QP stays at the front for the next burst.
 *
 * QPs are taken off the core's list a few at a time into ready[], so that the next ones are being
 * loaded while the first one builds.  A QP of a port whose queue is full is parked at that port,
 * out of everybody's way, and comes back to the end of the list when the queue has drained.  It is
 * flushed all the same if it is in Error.  A UD QP is parked at the port that its next packet goes
 * to: no visit builds for two ports.
 *
 * A QP in ready[], or parked, may be on the core's list as well, since the core does not know of
 * it; then it gets a turn too many, in which it has nothing to send.
 */
#include "capture_ring.h"

/* QPs between the one that builds and the one whose send ring is being loaded. */
#define SEND_AHEAD 2u

static void
take_more(struct eng_lcore *lc)
{
	struct karst_core_qp *qp;

	lc->ready_head = 0;
	while (lc->nready < ENG_READY && (qp = karst_core_next_active(lc->core)) != NULL) {
		karst_qp_prefetch(qp);
		lc->ready[lc->nready++] = qp;
	}
}

static void
drop_first(struct eng_lcore *lc)
{
	lc->ready_head++;
	lc->nready--;
}

static karst_noinline void
park(struct eng_txq *q, struct eng_qp *qp)
{
	if (qp->park_pprev != NULL)
		return;
	qp->park_next = q->parked;
	qp->park_pprev = &q->parked;
	if (q->parked != NULL)
		q->parked->park_pprev = &qp->park_next;
	q->parked = qp;
}

static void
unpark(struct eng_qp *qp)
{
	*qp->park_pprev = qp->park_next;
	if (qp->park_next != NULL)
		qp->park_next->park_pprev = qp->park_pprev;
	qp->park_pprev = NULL;
	qp->park_next = NULL;
}

void
eng_sched_unpark(struct eng_lcore *lc, struct eng_txq *q)
{
	while (q->parked != NULL) {
		struct karst_core_qp *qp = q->parked->qp;

		unpark(q->parked);
		karst_core_activate(lc->core, qp);
	}
}

/* Lets the first QP of ready[] build; it stays there until its quantum is spent. */
static inline void
build_one(struct eng_lcore *lc, struct karst_core_qp *qp, struct karst_tx_burst *b,
	uint32_t max_bytes)
{
	const int32_t quantum = (int32_t)lc->e->cfg.quantum_bytes;
	int32_t *deficit = karst_qp_deficit(qp);
	uint32_t before = b->bytes + b->charge, first = b->n, used;
	bool more;

	if (*deficit <= 0)
		*deficit += quantum;
	atomic_store_explicit(&lc->at, karst_qp_num(qp), memory_order_relaxed);
	more = karst_qp_tx(lc->core, qp, b,
		karst_min_u32(*deficit > 0 ? (uint32_t)*deficit : 1, max_bytes - before));
	if (karst_unlikely(lc->capture != NULL))
		eng_capture_built(lc, qp, first, b->n);
	used = b->bytes + b->charge - before;
	*deficit -= (int32_t)used;
	if (!more) {
		*deficit = 0;
		drop_first(lc);
	} else if (*deficit <= 0 || used == 0) {
		drop_first(lc);
		karst_core_activate(lc->core, qp);
	}
}

/* The port of the first QP takes nothing.  What needs no port is done all the same. */
static karst_noinline void
wait_for_port(
	struct eng_lcore *lc, struct eng_txq *q, struct karst_core_qp *qp, struct karst_tx_burst *b)
{
	drop_first(lc);
	if (karst_qp_tx_quiet(lc->core, qp, b))
		karst_core_activate(lc->core, qp);
	else
		park(q, karst_qp_user(qp));
}

/* Room for another frame, however many pieces its payload is in. */
static inline bool
room(const struct karst_tx_burst *b, uint32_t max_bytes)
{
	return b->n < b->max && b->nsegs + KARST_WQ_MAX_SGE <= b->max_segs &&
		b->bytes + b->charge < max_bytes;
}

void
eng_sched_build(struct eng_lcore *lc, struct karst_tx_burst *b, uint32_t max_bytes)
{
	/* QPs may have work that makes no frames, but not without end. */
	unsigned int turns = 2 * ENG_MAX_BURST;

	while (room(b, max_bytes) && turns-- > 0) {
		struct karst_core_qp *qp;
		struct eng_txq *q;

		if (lc->nready == 0) {
			take_more(lc);
			if (lc->nready == 0)
				break;
		}
		qp = lc->ready[lc->ready_head];
		if (lc->nready > SEND_AHEAD)
			karst_qp_prefetch_send(lc->ready[lc->ready_head + SEND_AHEAD]);
		q = &lc->tx[karst_qp_port(qp) % ENG_TXQS];
		if (karst_unlikely(q->n > 0)) {
			karst_qp_unfetch(lc->core, qp);
			wait_for_port(lc, q, qp, b);
			continue;
		}
		build_one(lc, qp, b, max_bytes);
	}
}

void
eng_sched_first(struct eng_lcore *lc, struct eng_qp *qp)
{
	uint32_t i;

	eng_sched_forget(lc, qp);
	if (lc->nready == ENG_READY)
		karst_core_activate(lc->core, lc->ready[--lc->nready]);
	for (i = lc->nready++; i > 0; i--)
		lc->ready[i] = lc->ready[i - 1];
	lc->ready[0] = qp->qp;
}

void
eng_sched_forget(struct eng_lcore *lc, struct eng_qp *qp)
{
	uint32_t i, kept = 0;

	if (qp->park_pprev != NULL)
		unpark(qp);
	for (i = 0; i < lc->nready; i++)
		if (lc->ready[lc->ready_head + i] != qp->qp)
			lc->ready[kept++] = lc->ready[lc->ready_head + i];
	lc->ready_head = 0;
	lc->nready = kept;
}
