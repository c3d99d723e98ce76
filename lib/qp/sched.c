/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A queue pair whose deficit is used up gets one quantum more when its turn comes, and keeps its
 * turn until the quantum is spent or it has nothing to send; a frame may overdraw, which the next
 * round pays back.  Requests that make no frame are paid for like small ones
 * (karst_tx_burst.charge).  If the burst is full first, the queue pair stays at the front for the
 * next burst.
 *
 * Queue pairs are taken off the list a few at a time into ready[], so that the next ones are being
 * loaded while the first one builds.  One whose port takes nothing is parked at that port, and
 * comes back to the end of the list when the port takes frames again.  It is flushed all the same
 * if it is in Error.  A UD queue pair is parked at the port that its next packet goes to: no visit
 * builds for two ports.
 *
 * A queue pair in ready[], or parked, may be on the list as well, since karst_core_activate() looks
 * at one bit only; then it gets a turn too many, in which it has nothing to send.
 */
#include "qp_priv.h"

/* Queue pairs between the one that builds and the one whose send ring is being loaded. */
#define SEND_AHEAD 2u

void
karst_sched_init(struct karst_core *core, uint32_t quantum)
{
	STAILQ_INIT(&core->sched.active);
	core->sched.quantum = quantum;
}

void
karst_core_activate(struct karst_core *core, struct karst_core_qp *qp)
{
	if (qp->flags & KARST_QPF_ACTIVE)
		return;
	qp->flags |= KARST_QPF_ACTIVE;
	STAILQ_INSERT_TAIL(&core->sched.active, qp, active);
}

struct karst_core_qp *
karst_core_next_active(struct karst_core *core)
{
	struct karst_core_qp *qp = STAILQ_FIRST(&core->sched.active), *next;

	if (qp == NULL)
		return NULL;
	STAILQ_REMOVE_HEAD(&core->sched.active, active);
	next = STAILQ_FIRST(&core->sched.active);
	if (next != NULL)
		__builtin_prefetch(&next->req);
	qp->flags &= (uint8_t)~KARST_QPF_ACTIVE;
	return qp;
}

bool
karst_core_has_active(const struct karst_core *core)
{
	return core->sched.nready != 0 || !STAILQ_EMPTY(&core->sched.active);
}

static void
sched_take_more(struct karst_core *core)
{
	struct karst_sched *s = &core->sched;
	struct karst_core_qp *qp;

	s->ready_head = 0;
	while (s->nready < KARST_SCHED_READY && (qp = karst_core_next_active(core)) != NULL) {
		karst_qp_prefetch(qp);
		s->ready[s->nready++] = qp;
	}
}

static inline void
sched_drop_first(struct karst_sched *s)
{
	s->ready_head++;
	s->nready--;
}

struct karst_core_qp *
karst_core_pick(struct karst_core *core)
{
	struct karst_sched *s = &core->sched;

	if (s->nready == 0) {
		sched_take_more(core);
		if (s->nready == 0)
			return NULL;
	}
	if (s->nready > SEND_AHEAD)
		karst_qp_prefetch_send(s->ready[s->ready_head + SEND_AHEAD]);
	return s->ready[s->ready_head];
}

void
karst_core_visit(struct karst_core *core, struct karst_tx_burst *b, uint32_t max_bytes)
{
	struct karst_sched *s = &core->sched;
	struct karst_core_qp *qp = s->ready[s->ready_head];
	uint32_t before = b->bytes + b->charge, used;
	bool more;

	if (qp->deficit <= 0)
		qp->deficit += (int32_t)s->quantum;
	more = karst_qp_tx(core, qp, b,
		karst_min_u32(qp->deficit > 0 ? (uint32_t)qp->deficit : 1, max_bytes - before));
	used = b->bytes + b->charge - before;
	qp->deficit -= (int32_t)used;
	if (!more) {
		qp->deficit = 0;
		sched_drop_first(s);
	} else if (qp->deficit <= 0 || used == 0) {
		sched_drop_first(s);
		karst_core_activate(core, qp);
	}
}

void
karst_sched_unpark(struct karst_core_qp *qp)
{
	if (qp->parked.le_prev == NULL)
		return;
	LIST_REMOVE(qp, parked);
	qp->parked.le_prev = NULL;
}

karst_noinline void
karst_core_park(struct karst_core *core, struct karst_tx_burst *b, struct karst_parked *parked)
{
	struct karst_core_qp *qp = core->sched.ready[core->sched.ready_head];

	sched_drop_first(&core->sched);
	karst_qp_unfetch(core, qp);
	if (karst_qp_tx_quiet(core, qp, b))
		karst_core_activate(core, qp);
	else if (qp->parked.le_prev == NULL)
		LIST_INSERT_HEAD(parked, qp, parked);
}

void
karst_core_unpark(struct karst_core *core, struct karst_parked *parked)
{
	struct karst_core_qp *qp;

	while ((qp = LIST_FIRST(parked)) != NULL) {
		karst_sched_unpark(qp);
		karst_core_activate(core, qp);
	}
}

/* Takes a queue pair out of ready[]. */
static void
sched_unready(struct karst_sched *s, const struct karst_core_qp *qp)
{
	uint32_t i, kept = 0;

	for (i = 0; i < s->nready; i++)
		if (s->ready[s->ready_head + i] != qp)
			s->ready[kept++] = s->ready[s->ready_head + i];
	s->ready_head = 0;
	s->nready = kept;
}

void
karst_core_pick_first(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_sched *s = &core->sched;
	uint32_t i;

	karst_sched_unpark(qp);
	sched_unready(s, qp);
	if (s->nready == KARST_SCHED_READY)
		karst_core_activate(core, s->ready[--s->nready]);
	for (i = s->nready++; i > 0; i--)
		s->ready[i] = s->ready[i - 1];
	s->ready[0] = qp;
}

void
karst_sched_forget(struct karst_core *core, struct karst_core_qp *qp)
{
	karst_sched_unpark(qp);
	sched_unready(&core->sched, qp);
	if (!(qp->flags & KARST_QPF_ACTIVE))
		return;
	/* control path: the list is searched */
	STAILQ_REMOVE(&core->sched.active, qp, karst_core_qp, active);
	qp->flags &= (uint8_t)~KARST_QPF_ACTIVE;
}
