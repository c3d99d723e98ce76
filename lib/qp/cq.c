/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Completion queues.
 *
 * A CQ has one lane for each lcore, so each lane has one producer and one consumer and needs no
 * lock; the completions of one QP all come from one lcore and stay in order.  Entries are written
 * at once, but karst_core_flush() publishes them and raises events after a batch: two stores and
 * one fence for many completions.  The slots of their requests are given back between writing and
 * publishing, so that no request is lost if the engine dies there (doc/ring-abi.rst).
 *
 * A full lane is fatal for the CQ, as with hardware: the completion is lost, CQ_ERR is raised once,
 * and every QP that completes into it afterwards goes into Error.
 *
 * Timestamps, if a queue has them, are those of the flush: not earlier than the completion.
 *
 * Moderation delays an event: a lane that would raise it counts the entries that it publishes from
 * then on, and raises it when there are enough, or when its timer fires.  The queue stays armed
 * meanwhile, so a program that takes the completions before the event gets at most one unnecessary
 * event.
 */
#include "qp_priv.h"

#include <errno.h>

size_t
karst_cq_object_bytes(const struct karst_cq_init *init)
{
	if (init->nlanes == 0 || init->nlanes > 256)
		return 0;
	return sizeof(struct karst_core_cq) + init->nlanes * sizeof(struct karst_cq_lane_state);
}

int
karst_cq_create(void *buf, const struct karst_cq_init *init, struct karst_core_cq **out)
{
	struct karst_core_cq *cq = buf;
	uint32_t i;

	if (karst_cq_object_bytes(init) == 0 || init->shared == NULL || init->lanes == NULL ||
		!karst_is_pow2(init->entries) || init->entries > KARST_CQ_MAX_ENTRIES)
		return -EINVAL;
	memset(cq, 0, karst_cq_object_bytes(init));
	cq->sh = init->shared;
	cq->user = init->user;
	cq->sharer = init->sharer;
	cq->nlanes = init->nlanes;
	atomic_store_explicit(&cq->sh->armed, 0, memory_order_relaxed);
	atomic_store_explicit(&cq->sh->overflown, 0, memory_order_relaxed);
	for (i = 0; i < cq->nlanes; i++) {
		cq->lane[i].cq = cq;
		cq->lane[i].timer.kind = KARST_TIMER_CQ_LANE;
		karst_lane_init(&cq->lane[i].ring,
			karst_cq_lane(init->lanes, init->entries, init->flags, i), init->entries,
			init->flags);
	}
	*out = cq;
	return 0;
}

int
karst_cq_destroy(struct karst_core_cq *cq)
{
	return atomic_load(&cq->users) != 0 ? -EBUSY : 0;
}

void *
karst_cq_user(const struct karst_core_cq *cq)
{
	return cq->user;
}

bool
karst_cq_overflown(const struct karst_core_cq *cq)
{
	return atomic_load_explicit(&cq->overflown, memory_order_relaxed) != 0;
}

static void
lane_mark_dirty(struct karst_core *core, struct karst_cq_lane_state *l)
{
	if (l->dirty)
		return;
	l->dirty = true;
	l->next_dirty = core->dirty;
	core->dirty = l;
}

/* The completion queue is full.  karst_core_flush() reports this to the program, after the
 * completions for which there was room. */
static karst_noinline void
cq_overflow(struct karst_core *core, struct karst_cq_lane_state *l)
{
	karst_count(&core->counters, KARST_CTR_CQ_OVERFLOWS);
	/* two lcores may find the queue full at once: one of them reports it */
	if (atomic_exchange(&l->cq->overflown, 1) == 0) {
		l->lost = true;
		lane_mark_dirty(core, l);
		karst_event(core, KARST_EVENT_CQ_ERR, l->cq);
	}
}

struct karst_cqe *
karst_cq_push(struct karst_core *core, struct karst_core_cq *cq, bool solicited)
{
	struct karst_cq_lane_state *l = &cq->lane[core->lcore];

	if (karst_unlikely(karst_cq_overflown(cq) || !karst_lane_room(&l->ring))) {
		cq_overflow(core, l);
		return NULL;
	}
	l->solicited |= solicited;
	lane_mark_dirty(core, l);
	return karst_lane_next(&l->ring);
}

/* Disarms the queue, whose armed word was @armed.  @return false: another lcore has disarmed it.
 * If the program has armed it again since then, it has seen what was published. */
static bool
cq_disarm(struct karst_cq_shared *sh, uint32_t armed)
{
	uint32_t is = armed, to = armed & ~(uint32_t)KARST_CQ_ARM_WHAT;

	if (atomic_compare_exchange_strong(&sh->armed, &is, to))
		return true;
	/* the program has armed it more strongly meanwhile */
	if ((is & KARST_CQ_ARM_WHAT) == 0 || is / KARST_CQ_ARM_COUNT != armed / KARST_CQ_ARM_COUNT)
		return false;
	to = is & ~(uint32_t)KARST_CQ_ARM_WHAT;
	return atomic_compare_exchange_strong(&sh->armed, &is, to);
}

/* Raises the event, once even if several lanes are about to; the armed word was @armed. */
static void
lane_raise_event(struct karst_core *core, struct karst_cq_lane_state *l, uint32_t armed)
{
	struct karst_core_cq *cq = l->cq;

	if (l->held) {
		l->held = false;
		karst_timer_del(core, cq->sharer, &l->timer);
	}
	/* another lcore may be signalling the same queue: the one that disarms it raises the
	 * event */
	if ((armed & KARST_CQ_ARM_WHAT) == 0 || !cq_disarm(cq->sh, armed))
		return;
	karst_count(&core->counters, KARST_CTR_EVENTS);
	core->ops->cq_event(core, cq);
}

/* The fresh entries deserve an event: raises it if there are enough of them. */
static karst_noinline void
lane_moderate(struct karst_core *core, struct karst_cq_lane_state *l, uint32_t armed, uint32_t how)
{
	uint32_t count = how >> 16, period_us = how & 0xffff;

	if (!l->held) {
		l->held = true;
		l->held_entries = 0;
		if (period_us != 0)
			karst_timer_add(core, l->cq->sharer, &l->timer,
				core->now_ns + (uint64_t)period_us * 1000);
	}
	l->held_entries += l->fresh;
	if (count != 0 && l->held_entries >= count)
		lane_raise_event(core, l, armed);
}

/* Whether the entries just published deserve an event for a program that has set the armed word
 * @armed.  They do not if the program had seen them: it may have armed the queue after they were
 * published and before this call.  Its next poll takes the entries that it has seen, and the event
 * would be unnecessary. */
static bool
lane_is_awaited(const struct karst_cq_lane_state *l, uint32_t armed)
{
	if ((armed & KARST_CQ_ARM_WHAT) == 0)
		return false;
	if (l->held)
		return true;
	if ((armed & KARST_CQ_ARM_WHAT) == KARST_CQ_ARM_SOLICITED && !l->solicited)
		return false;
	return !(armed & KARST_CQ_ARM_BEHIND) || karst_cq_overflown(l->cq) ||
		atomic_load_explicit(&l->ring.sh->armed_at, memory_order_relaxed) !=
		l->ring.published;
}

/* Raises the event if the program waits for the entries just published. */
static void
signal_lane(struct karst_core *core, struct karst_cq_lane_state *l)
{
	struct karst_core_cq *cq = l->cq;
	/* acquire, pairs with the release in karst_cq_arm_behind(): armed_at is not older */
	uint32_t armed = atomic_load_explicit(&cq->sh->armed, memory_order_acquire);
	uint32_t how;

	if (karst_likely(!lane_is_awaited(l, armed)))
		return;
	/* relaxed: a change need not take effect at once */
	how = atomic_load_explicit(&cq->moderation, memory_order_relaxed);
	if (karst_likely(how == 0))
		lane_raise_event(core, l, armed);
	else
		lane_moderate(core, l, armed, how);
}

void
karst_cq_expire(struct karst_core *core, struct karst_cq_lane_state *l)
{
	lane_raise_event(core, l, atomic_load_explicit(&l->cq->sh->armed, memory_order_relaxed));
}

void
karst_cq_set_moderation(struct karst_core_cq *cq, uint16_t count, uint16_t period_us)
{
	uint32_t how = (uint32_t)count << 16 | period_us;

	if (count == 1 || (count == 0 && period_us == 0))
		how = 0;
	atomic_store_explicit(&cq->moderation, how, memory_order_relaxed);
}

void
karst_core_resize_cq_prepare(struct karst_core *core, const struct karst_core_cq *cq,
	struct karst_lane *lane, struct karst_lane_span *span)
{
	*lane = cq->lane[core->lcore].ring;
	*span = karst_lane_unread(lane);
}

int
karst_core_resize_cq_commit(struct karst_core *core, struct karst_core_cq *cq,
	struct karst_lane_shared *to, uint32_t entries, struct karst_lane_span *span)
{
	return karst_lane_move(&cq->lane[core->lcore].ring, to, entries, span);
}

void
karst_core_resize_cq_rollback(struct karst_core *core, struct karst_core_cq *cq,
	struct karst_lane_shared *to, uint32_t entries, struct karst_lane_span *span)
{
	struct karst_lane *l = &cq->lane[core->lcore].ring;
	int ret;

	karst_lane_trim(l, entries, span);
	ret = karst_lane_move(l, to, entries, span);
	assert(ret == 0);
	(void)ret;
}

void
karst_core_forget_cq(struct karst_core *core, struct karst_core_cq *cq)
{
	karst_timer_del(core, cq->sharer, &cq->lane[core->lcore].timer);
}

/* The number of finished receive requests; one that a message has taken is not finished. */
static uint32_t
recvs_done(const struct karst_core_qp *qp)
{
	return qp->rq.head - (qp->rsp.rwqe.held ? 1 : 0);
}

/* Makes the completions valid: from here on they count, even if the engine dies. */
static void
lane_make_ready(const struct karst_core *core)
{
	struct karst_cq_lane_state *l;

	for (l = core->dirty; l != NULL; l = l->next_dirty) {
		l->fresh = l->ring.tail - l->ring.published;
		if (karst_unlikely(l->ring.stamps != NULL))
			karst_lane_stamp(&l->ring, core->stamp_ns);
		karst_lane_ready(&l->ring);
	}
}

/* Gives back the slots of finished requests.  This is after their completions count, so that if the
 * engine dies each request either has one or is in its slot; and before the completions are
 * published, since a program that sees one may post at once. */
static void
qp_give_back_slots(struct karst_core *core)
{
	struct karst_core_qp *qp;

	for (qp = core->retired; qp != NULL; qp = qp->next_retired) {
		qp->flags &= (uint8_t)~KARST_QPF_RETIRED;
		karst_wqe_show_head(&qp->sq, qp->sq.head);
		/* if the QP has only sent, the cache line of that head is neither loaded nor
		 * written */
		if (qp->took) {
			qp->took = 0;
			karst_wqe_show_head(&qp->rq, recvs_done(qp));
		}
	}
	core->retired = NULL;
}

void
karst_core_flush(struct karst_core *core)
{
	struct karst_cq_lane_state *l, *next;

	/* also needed if memory is deregistered after the turn that this call ends */
	karst_mem_place_fence(&core->placer);
	lane_make_ready(core);
	qp_give_back_slots(core);
	for (l = core->dirty; l != NULL; l = l->next_dirty) {
		karst_lane_publish(&l->ring);
		if (core->cross_cpu && l->fresh == 1)
			karst_lane_hand_over(&l->ring);
		if (karst_unlikely(l->lost)) {
			l->lost = false;
			/* release, pairs with the acquire in poll_empty() of lib/client: the tail
			 * before it, so that a reader that sees it finds all completions that came
			 * before */
			atomic_store_explicit(&l->cq->sh->overflown, 1, memory_order_release);
		}
	}
	if (core->dirty == NULL)
		return;
	/* Dekker with karst_cq_arm(): the tails before the armed words, one fence for all */
	atomic_thread_fence(memory_order_seq_cst);
	for (l = core->dirty, core->dirty = NULL; l != NULL; l = next) {
		next = l->next_dirty;
		l->dirty = false;
		signal_lane(core, l);
		l->solicited = false;
	}
}
