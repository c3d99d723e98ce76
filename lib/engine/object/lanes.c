/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Resizes completion queues.
 *
 * New lanes are allocated beside the old ones; then each lcore switches to its new lane in a turn
 * of its own, while the others still use their old ones.  The caller's thread copies what the
 * program has not read, since that may be much; the lcore copies what has been added since.  The
 * lcore reads the program's head once, and no thread reads it again.
 *
 * If so much is added meanwhile that a lane does not fit, the lanes that have switched are rolled
 * back.  Their contents fit: the old memory has room for all that a smaller lane can hold.  The
 * memory that all lanes share, which the program arms and which holds the overflow flag, does not
 * move.
 */
#include "object.h"

struct lane_call {
	struct karst_core_cq *cq;
	struct karst_lane lane;
	struct karst_lane_span span;
	struct karst_lane_shared *to;
	uint32_t entries;
};

uint32_t
eng_lane_entries(uint32_t entries)
{
	if (entries == 0 || entries > KARST_CQ_MAX_ENTRIES)
		return 0;
	return entries > 2 ? karst_pow2_ceil(entries) : 2;
}

static size_t
lanes_bytes_of(const struct eng_cq *c, uint32_t entries)
{
	return karst_cq_lanes_bytes(entries, c->pub.nlanes, c->pub.flags);
}

void
eng_cq_free_next(struct eng_cq *c)
{
	eng_arena_free(&c->owner->rings, c->next_lanes, lanes_bytes_of(c, c->next_entries));
	c->next_lanes = NULL;
}

static int
look_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct lane_call *call = arg;

	karst_core_resize_cq_prepare(lc->core, call->cq, &call->lane, &call->span);
	return 0;
}

static int
move_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct lane_call *call = arg;

	return karst_core_resize_cq_commit(
		lc->core, call->cq, call->to, call->entries, &call->span);
}

static int
unmove_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct lane_call *call = arg;

	karst_core_resize_cq_rollback(lc->core, call->cq, call->to, call->entries, &call->span);
	return 0;
}

static int
come_by(struct eng_lcore *lc, void *arg)
{
	(void)lc;
	(void)arg;
	return 0;
}

/*
 * Finds the unread entries of all lanes, and checks that they fit.  Messages come first in a turn,
 * so each lcore is called twice: between the two calls it has polled the doorbells that rang before
 * the program's request, so that completions of what was posted and could be sent at once count.
 */
static int
look_at_lanes(struct karst_engine *e, struct eng_cq *c, struct lane_call *call)
{
	uint32_t i;

	for (i = 0; i < c->pub.nlanes; i++) {
		call[i] = (struct lane_call){
			.cq = c->cq,
			.to = karst_cq_lane(c->next_lanes, c->next_entries, c->pub.flags, i),
			.entries = c->next_entries,
		};
		eng_mailbox_call(&e->lcore[i], come_by, NULL);
		eng_mailbox_call(&e->lcore[i], look_on_lcore, &call[i]);
		if (call[i].span.upto - call[i].span.from > c->next_entries)
			return -ENOSPC;
	}
	return 0;
}

static void
copy_lanes(const struct eng_cq *c, const struct lane_call *call)
{
	uint32_t i;

	for (i = 0; i < c->pub.nlanes; i++, call++) {
		struct karst_lane to = karst_lane_in(&call->lane, call->to, call->entries);

		karst_lane_copy(&to, &call->lane, call->span.from, call->span.upto);
	}
}

static int
move_lanes(struct karst_engine *e, struct eng_cq *c)
{
	struct lane_call call[KARST_ENGINE_MAX_LCORES];
	uint32_t i;
	int ret = look_at_lanes(e, c, call);

	if (ret != 0)
		return ret;
	/* There may be a million entries.  Only the caller uses this queue meanwhile, and lcores
	 * continue with the old lanes. */
	eng_ctl_leave(e);
	copy_lanes(c, call);
	ret = eng_ctl_enter(e);
	/* this cannot be a callback: the call was entered before */
	assert(ret == 0);
	for (i = 0; ret == 0 && i < c->pub.nlanes; i++)
		ret = eng_mailbox_call(&e->lcore[i], move_on_lcore, &call[i]);
	if (ret == 0)
		return 0;
	/* the last one has not switched */
	for (i--; i-- > 0;) {
		call[i].to = call[i].lane.sh;
		call[i].entries = c->pub.entries;
		eng_mailbox_call(&e->lcore[i], unmove_on_lcore, &call[i]);
	}
	return ret;
}

static int
lanes_lay(struct eng_cq *c, uint32_t entries)
{
	void *lanes;

	entries = eng_lane_entries(entries);
	if (entries == 0)
		return -EINVAL;
	lanes = eng_owner_rings_alloc(c->owner, lanes_bytes_of(c, entries));
	if (lanes == NULL)
		return -ENOMEM;
	eng_cq_free_next(c);
	c->next_lanes = lanes;
	c->next_entries = entries;
	return 0;
}

/* Switches to the new lanes.  In any case, only the lanes in use remain. */
static int
go_over(struct karst_engine *e, struct eng_cq *c)
{
	uint32_t i;
	int ret;

	if (c->next_lanes == NULL)
		return -EINVAL;
	ret = move_lanes(e, c);
	if (ret == 0) {
		void *old = c->pub.lanes;
		uint32_t old_entries = c->pub.entries;

		c->pub.lanes = c->next_lanes;
		c->pub.entries = c->next_entries;
		c->next_lanes = old;
		c->next_entries = old_entries;
		for (i = 0; i < c->pub.nlanes; i++)
			karst_cq_lane_attach(&c->pub.lane[i],
				karst_cq_lane(c->pub.lanes, c->pub.entries, c->pub.flags, i),
				c->pub.entries, c->pub.flags);
	}
	eng_cq_free_next(c);
	return ret;
}

int
karst_engine_cq_lay_lanes(
	struct karst_engine *e, struct karst_engine_cq *cq, uint32_t *entries, void **lanes)
{
	struct eng_cq *c = karst_container_of(cq, struct eng_cq, pub);
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = lanes_lay(c, *entries);
	if (ret == 0) {
		*entries = c->next_entries;
		*lanes = c->next_lanes;
	}
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_cq_switch_lanes(struct karst_engine *e, struct karst_engine_cq *cq)
{
	struct eng_cq *c = karst_container_of(cq, struct eng_cq, pub);
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = go_over(e, c);
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_cq_resize(struct karst_engine *e, struct karst_engine_cq *cq, uint32_t entries)
{
	struct eng_cq *c = karst_container_of(cq, struct eng_cq, pub);
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = lanes_lay(c, entries);
	if (ret == 0)
		ret = go_over(e, c);
	eng_ctl_leave(e);
	return ret;
}
