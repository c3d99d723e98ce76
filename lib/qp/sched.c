/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A queue pair whose deficit is used up gets one quantum more when its turn comes, and keeps its
 * turn until the quantum is spent or it has nothing to send; a frame may overdraw, which the next
 * rounds pay back.  Requests that make no frame are paid for like small ones
 * (karst_tx_burst.charge).  If the burst is full first, the queue pair stays at the front for the
 * next burst.
 *
 * Queue pairs are taken off the list a few at a time into ready[].  While one of them builds, those
 * that are next on the list are being loaded.  It is an array of pointers and no chain through the
 * queue pairs, of which each would have to come from memory before the next one is known.
 *
 * One whose port takes nothing is parked at that port, and comes back to the end of the list when
 * the port takes frames again.  It is flushed all the same if it is in Error.  A UD queue pair is
 * parked at the port that its next packet goes to: no visit builds for two ports.
 *
 * A queue pair in ready[], or parked, may be on the list as well, since karst_core_activate() looks
 * at one bit only; then it gets a turn too many, in which it has nothing to send.
 */
#include "qp_priv.h"

/* Queue pairs between the one that builds and the one whose send ring is being loaded. */
#define SEND_AHEAD 2u

void
karst_sched_init(struct karst_core *core, struct karst_core_qp **list, uint32_t quantum)
{
	core->sched.active = list;
	core->sched.quantum = quantum;
}

/* Where number @i of the list stands. */
static inline struct karst_core_qp **
sched_at(const struct karst_core *core, uint32_t i)
{
	const struct karst_sched *s = &core->sched;
	uint32_t at = s->first + i;

	return &s->active[at < core->max_qps ? at : at - core->max_qps];
}

void
karst_core_activate(struct karst_core *core, struct karst_core_qp *qp)
{
	if (qp->flags & KARST_QPF_ACTIVE)
		return;
	qp->flags |= KARST_QPF_ACTIVE;
	/* there is room: each queue pair is on it once */
	*sched_at(core, core->sched.nactive++) = qp;
}

struct karst_core_qp *
karst_core_next_active(struct karst_core *core)
{
	struct karst_sched *s = &core->sched;
	struct karst_core_qp *qp;

	if (s->nactive == 0)
		return NULL;
	qp = s->active[s->first];
	if (++s->first == core->max_qps)
		s->first = 0;
	/* a short list stays in the same few lines */
	if (--s->nactive == 0)
		s->first = 0;
	s->nfetched -= s->nfetched != 0;
	qp->flags &= (uint8_t)~KARST_QPF_ACTIVE;
	return qp;
}

bool
karst_core_has_active(const struct karst_core *core)
{
	return core->sched.nready != 0 || core->sched.nactive != 0;
}

/* Starts loading the next on the list that is not being loaded yet. */
static inline void
sched_fetch_one(struct karst_core *core)
{
	struct karst_sched *s = &core->sched;

	if (s->nfetched < KARST_SCHED_READY && s->nfetched < s->nactive)
		karst_qp_prefetch(*sched_at(core, s->nfetched++));
}

static void
sched_take_more(struct karst_core *core)
{
	struct karst_sched *s = &core->sched;
	struct karst_core_qp *qp;
	uint32_t i;

	for (i = s->nfetched; i < KARST_SCHED_READY && i < s->nactive; i++)
		sched_fetch_one(core);
	s->ready_head = 0;
	while (s->nready < KARST_SCHED_READY && (qp = karst_core_next_active(core)) != NULL)
		s->ready[s->nready++] = qp;
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
	sched_fetch_one(core);
	return s->ready[s->ready_head];
}

void
karst_core_visit(struct karst_core *core, struct karst_tx_burst *b, uint32_t max_bytes)
{
	struct karst_sched *s = &core->sched;
	struct karst_core_qp *qp = s->ready[s->ready_head];
	uint32_t before = b->bytes + b->charge, used;
	bool more = true;

	if (qp->deficit <= 0)
		qp->deficit += (int32_t)s->quantum;
	if (karst_likely(qp->deficit > 0))
		more = karst_qp_tx(core, qp, b,
			karst_min_u32((uint32_t)qp->deficit, max_bytes - before));
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
	if (qp->deficit < 0)
		qp->deficit = 0;
}

void
karst_sched_forget(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_sched *s = &core->sched;
	uint32_t i = 0;

	karst_sched_unpark(qp);
	sched_unready(s, qp);
	if (!(qp->flags & KARST_QPF_ACTIVE))
		return;
	/* control path: the list is searched */
	while (*sched_at(core, i) != qp)
		i++;
	for (; i + 1 < s->nactive; i++)
		*sched_at(core, i) = *sched_at(core, i + 1);
	s->nactive--;
	s->nfetched = 0;
	qp->flags &= (uint8_t)~KARST_QPF_ACTIVE;
}
