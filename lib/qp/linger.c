/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Lingering: send queues that became empty recently are polled for some turns.
 *
 * A program that posts one request at a time is often a little slower than the engine.  If its
 * queue went idle each time, the program would have to ring for each request, which costs both
 * sides more than the request.  So a few queues of a core are polled for some turns after they
 * became empty: one load of the tail each.  Only then do they go idle.  If more than a few queues
 * are active, they keep the core busy anyway, and further ones go idle as soon as they are empty.
 *
 * A queue goes idle in two steps, between which all earlier stores must be visible to the program
 * (karst_wqe_idle()).  A fence waits for these stores, among them those to cache lines that come
 * from memory.  So the second step is made for many queues together, behind one fence: in
 * karst_core_recheck(), and when idled[] is full.  In between, a queue counts as idle.
 */
#include "qp_priv.h"

static void
linger_remove(struct karst_core *core, uint32_t i)
{
	core->linger[i].qp->req.flags &= (uint8_t)~KARST_REQ_LINGER;
	core->linger[i] = core->linger[--core->nlinger];
}

/* The program rings from now on, unless requests are found by karst_core_recheck(). */
static void
go_idle(struct karst_core *core, struct karst_core_qp *qp)
{
	if (karst_unlikely(core->nidled == KARST_DIM(core->idled)))
		karst_core_recheck(core);
	karst_wqe_idle_begin(&qp->sq);
	qp->req.flags |= KARST_REQ_IDLE;
	core->idled[core->nidled++] = qp;
}

void
karst_core_recheck(struct karst_core *core)
{
	uint32_t i;

	if (core->nidled == 0)
		return;
	/* Dekker with karst_wq_publish(), as in karst_wqe_idle() */
	atomic_thread_fence(memory_order_seq_cst);
	for (i = 0; i < core->nidled; i++) {
		struct karst_core_qp *qp = core->idled[i];

		/* the doorbell may have rung already */
		if (!(qp->req.flags & KARST_REQ_IDLE))
			continue;
		/* the page may come late: the queue pair is not the one that is being visited.
		 * relaxed: it is read while this thread sleeps */
		atomic_store_explicit(&core->rechecked, qp->qpn, memory_order_relaxed);
		if (karst_unlikely(karst_wqe_idle_end(&qp->sq))) {
			qp->req.flags &= (uint8_t)~KARST_REQ_IDLE;
			karst_core_activate(core, qp);
		}
	}
	atomic_store_explicit(&core->rechecked, 0, memory_order_relaxed);
	core->nidled = 0;
}

void
karst_requester_dry(struct karst_core *core, struct karst_core_qp *qp)
{
	if (qp->req.flags & KARST_REQ_LINGER)
		return;
	if (core->nlinger < KARST_DIM(core->linger) && core->linger_turns != 0) {
		core->linger[core->nlinger++] =
			(struct karst_core_linger){.qp = qp, .left = core->linger_turns};
		qp->req.flags |= KARST_REQ_LINGER;
		return;
	}
	go_idle(core, qp);
}

void
karst_requester_unlinger(struct karst_core *core, struct karst_core_qp *qp)
{
	uint32_t i, kept = 0;

	for (i = 0; i < core->nidled; i++)
		if (core->idled[i] != qp)
			core->idled[kept++] = core->idled[i];
	core->nidled = kept;
	if (!(qp->req.flags & KARST_REQ_LINGER))
		return;
	for (i = 0; core->linger[i].qp != qp; i++)
		;
	linger_remove(core, i);
}

/* A visit may have seen requests without starting them, because its burst was full; the queue pair
 * then waits for its turn or for its port.  It must not go idle: its program has no reason to ring
 * for these requests. */
static inline bool
nothing_to_start(const struct karst_core_qp *qp)
{
	return karst_wqe_dry(&qp->sq) && qp->req.nxt_idx == qp->sq.tail;
}

void
karst_core_linger(struct karst_core *core)
{
	uint32_t i = 0;

	while (i < core->nlinger) {
		struct karst_core_linger *l = &core->linger[i];
		struct karst_core_qp *qp = l->qp;
		bool dry;

		/* as in karst_core_recheck() */
		atomic_store_explicit(&core->rechecked, qp->qpn, memory_order_relaxed);
		dry = nothing_to_start(qp);
		if (karst_likely(dry && karst_qp_may_send(qp) && l->left > 0)) {
			l->left--;
			i++;
			continue;
		}
		linger_remove(core, i);
		if (dry && karst_qp_may_send(qp))
			go_idle(core, qp);
		else
			karst_core_activate(core, qp);
	}
	atomic_store_explicit(&core->rechecked, 0, memory_order_relaxed);
	karst_core_recheck(core);
}
