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
 */
#include "qp_priv.h"

static void
linger_remove(struct karst_core *core, uint32_t i)
{
	core->linger[i].qp->req.flags &= (uint8_t)~KARST_REQ_LINGER;
	core->linger[i] = core->linger[--core->nlinger];
}

bool
karst_requester_dry(struct karst_core *core, struct karst_core_qp *qp)
{
	if (qp->req.flags & KARST_REQ_LINGER)
		return true;
	if (core->nlinger < KARST_DIM(core->linger) && core->linger_turns != 0) {
		core->linger[core->nlinger++] =
			(struct karst_core_linger){.qp = qp, .left = core->linger_turns};
		qp->req.flags |= KARST_REQ_LINGER;
		return true;
	}
	if (karst_wqe_idle(&qp->sq))
		return false;
	qp->req.flags |= KARST_REQ_IDLE;
	return true;
}

void
karst_requester_unlinger(struct karst_core *core, struct karst_core_qp *qp)
{
	uint32_t i;

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
		bool dry = nothing_to_start(qp);

		if (karst_likely(dry && karst_qp_may_send(qp) && l->left > 0)) {
			l->left--;
			i++;
			continue;
		}
		linger_remove(core, i);
		if (dry && karst_qp_may_send(qp) && !karst_wqe_idle(&qp->sq))
			qp->req.flags |= KARST_REQ_IDLE;
		else
			karst_core_activate(core, qp);
	}
}
