/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Completion queues of another size.
 *
 * New lanes are laid beside the old ones; then each lcore goes over to its new lane in a turn of
 * its own, and meanwhile the others go on in their old ones.  What the program has not read is
 * copied, by the caller's thread, for that may be much; the lcore copies what has come since.  It
 * looks at the program's head once, and nobody does again.
 *
 * If so much has come meanwhile that one lane does not fit, those before it go back.  They fit: the
 * old memory has room for all that a smaller lane can hold.  What is common to the lanes, where the
 * program arms and where its overflow stands, does not move.
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
 * What all lanes have unread, if it fits.  Messages come first in a turn, so each lcore is called
 * twice: in between it has looked at the doorbells that rang before the program asked, and what
 * was posted and could be sent at once counts.
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
	/* They may be a million.  Nobody but the caller has to do with this queue meanwhile, and
	 * lcores go on in the old lanes. */
	eng_ctl_leave(e);
	copy_lanes(c, call);
	ret = eng_ctl_enter(e);
	/* this cannot be a callback: the call was entered before */
	assert(ret == 0);
	for (i = 0; ret == 0 && i < c->pub.nlanes; i++)
		ret = eng_mailbox_call(&e->lcore[i], move_on_lcore, &call[i]);
	if (ret == 0)
		return 0;
	/* the last one has not moved */
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

/* Whatever becomes of it, only the lanes in use are left. */
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
