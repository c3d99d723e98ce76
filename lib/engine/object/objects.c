/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Completion queues and shared receive queues, as objects of programs.
 *
 * Memory comes from two arenas: "objects", which only the engine uses, and the owner's "rings",
 * which the engine shares with the program.
 *
 * All functions here hold ctl_lock.  It is released only while the rings of an object that is not
 * visible yet are made ready.  Code that accesses an lcore's state runs on that lcore (mailbox.c).
 */
#include "object.h"

/* --- completion queues --- */

static size_t
lanes_bytes(const struct eng_cq *c)
{
	return karst_cq_lanes_bytes(c->pub.entries, c->pub.nlanes, c->pub.flags);
}

static void
cq_free(struct karst_engine *e, struct eng_cq *c)
{
	eng_cq_free_next(c);
	eng_arena_free(&e->objects, c->cq_mem, c->cq_bytes);
	eng_arena_free(&c->owner->rings, c->pub.lanes, lanes_bytes(c));
	eng_arena_free(&c->owner->rings, c->pub.sh, sizeof(*c->pub.sh));
	eng_arena_free(&e->objects, c, c->self_bytes);
}

/* Fills @init from @in, except for memory. */
static int
cq_init_from(const struct karst_engine *e, const struct karst_engine_cq_init *in,
	struct karst_cq_init *init)
{
	*init = (struct karst_cq_init){
		.entries = eng_lane_entries(in->entries),
		.nlanes = e->nlcores,
		.flags = in->flags,
	};
	return init->entries == 0 || (in->flags & ~(uint32_t)KARST_CQ_TIMESTAMPS) != 0 ? -EINVAL
										       : 0;
}

static int
cq_alloc(struct karst_engine *e, struct eng_cq *c, struct karst_cq_init *init)
{
	c->pub.entries = init->entries;
	c->pub.nlanes = init->nlanes;
	c->pub.flags = init->flags;
	c->cq_bytes = karst_cq_object_bytes(init);
	c->cq_mem = eng_arena_alloc(&e->objects, c->cq_bytes);
	c->pub.sh = eng_owner_rings_alloc(c->owner, sizeof(*c->pub.sh));
	c->pub.lanes = eng_owner_rings_alloc(c->owner, lanes_bytes(c));
	init->shared = c->pub.sh;
	init->lanes = c->pub.lanes;
	init->user = c;
	init->sharer = c->owner->sharer;
	return c->cq_mem == NULL || c->pub.sh == NULL || c->pub.lanes == NULL
		? -ENOMEM
		: karst_cq_create(c->cq_mem, init, &c->cq);
}

static int
eng_cq_create(
	struct karst_engine *e, const struct karst_engine_cq_init *in, struct karst_engine_cq **cq)
{
	size_t self_bytes = sizeof(struct eng_cq) + e->nlcores * sizeof(struct karst_cq_lane);
	struct karst_cq_init init;
	struct eng_cq *c;
	uint32_t i;
	int ret = cq_init_from(e, in, &init);

	if (ret != 0)
		return ret;
	c = eng_arena_alloc(&e->objects, self_bytes);
	if (c == NULL)
		return -ENOMEM;
	c->owner = in->owner != NULL ? in->owner : e->self;
	c->self_bytes = self_bytes;
	ret = cq_alloc(e, c, &init);
	if (ret != 0) {
		cq_free(e, c);
		return ret;
	}
	c->pub.user = in->user;
	for (i = 0; i < init.nlanes; i++)
		karst_cq_lane_attach(&c->pub.lane[i],
			karst_cq_lane(c->pub.lanes, init.entries, init.flags, i), init.entries,
			init.flags);
	e->ncqs++;
	if (init.flags & KARST_CQ_TIMESTAMPS)
		atomic_fetch_add_explicit(&e->nstamped, 1, memory_order_relaxed);
	c->owner->nobjects++;
	*cq = &c->pub;
	return 0;
}

int
karst_engine_cq_create(struct karst_engine *e, const struct karst_engine_cq_init *init,
	struct karst_engine_cq **cq)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = eng_cq_create(e, init, cq);
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_cq_set_moderation(
	struct karst_engine *e, struct karst_engine_cq *cq, uint16_t count, uint16_t period_us)
{
	struct eng_cq *c = karst_container_of(cq, struct eng_cq, pub);
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	c->moderated = true;
	karst_cq_set_moderation(c->cq, count, period_us);
	eng_ctl_leave(e);
	return 0;
}

static int
cq_forget_on_lcore(struct eng_lcore *lc, void *arg)
{
	karst_core_forget_cq(lc->core, arg);
	return 0;
}

int
karst_engine_cq_destroy(struct karst_engine *e, struct karst_engine_cq *cq)
{
	struct eng_cq *c = karst_container_of(cq, struct eng_cq, pub);
	int ret = eng_ctl_enter(e);
	uint32_t i;

	if (ret != 0)
		return ret;
	ret = karst_cq_destroy(c->cq);
	if (ret == 0) {
		for (i = 0; c->moderated && i < e->nlcores; i++)
			eng_mailbox_call(&e->lcore[i], cq_forget_on_lcore, c->cq);
		if (cq->flags & KARST_CQ_TIMESTAMPS)
			atomic_fetch_sub_explicit(&e->nstamped, 1, memory_order_relaxed);
		c->owner->nobjects--;
		cq_free(e, c);
		e->ncqs--;
	}
	eng_ctl_leave(e);
	return ret;
}

bool
karst_engine_cq_overflown(const struct karst_engine_cq *cq)
{
	return karst_cq_overflown(karst_container_of(cq, struct eng_cq, pub)->cq);
}

/* --- choice of an lcore --- */

int
eng_choose_lcore(const struct karst_engine *e, uint32_t wanted, uint32_t *lcore)
{
	uint32_t i, best = 0;

	if (wanted != KARST_ENGINE_ANY_LCORE) {
		*lcore = wanted;
		return wanted < e->nlcores ? 0 : -EINVAL;
	}
	for (i = 1; i < e->nlcores; i++)
		if (e->nqps[i] < e->nqps[best])
			best = i;
	*lcore = best;
	return 0;
}

/* --- shared receive queues --- */

/* XRC targets from which an XRC SRQ is withdrawn in one call to the lcore. */
#define WITHDRAW_TARGETS 64u

struct srq_call {
	struct eng_srq *s;
	const struct karst_srq_init *init;
	uint32_t limit;
};

static int
srq_create_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct srq_call *call = arg;

	return karst_srq_create(lc->core, call->s->srq_mem, call->init, &call->s->srq);
}

static int
srq_destroy_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct srq_call *call = arg;

	return karst_srq_destroy(lc->core, call->s->srq);
}

static int
srq_withdraw_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct srq_call *call = arg;

	return karst_srq_withdraw(lc->core, call->s->srq, WITHDRAW_TARGETS) ? 0 : -EAGAIN;
}

static int
srq_limit_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct srq_call *call = arg;

	return karst_srq_set_limit(lc->core, call->s->srq, call->limit);
}

static void
srq_free(struct karst_engine *e, struct eng_srq *s)
{
	eng_arena_free(&e->objects, s->srq_mem, karst_srq_object_bytes());
	eng_arena_free(&s->owner->rings, s->ring, s->ring_bytes);
	eng_arena_free(&e->objects, s, sizeof(*s));
}

/* Checks the lcore, and the members of an XRC SRQ. */
static int
srq_xrc(const struct karst_engine *e, const struct karst_engine_srq_init *in, uint32_t *lcore,
	struct karst_srq_init *init)
{
	const struct eng_cq *cq;
	int ret;

	if (in->xrcd == NULL && in->cq == NULL)
		return eng_choose_lcore(e, in->lcore, lcore);
	if (in->xrcd == NULL || in->cq == NULL)
		return -EINVAL;
	cq = karst_container_of(in->cq, const struct eng_cq, pub);
	ret = cq->owner == (in->owner != NULL ? in->owner : e->self) ? 0 : -EINVAL;
	if (in->lcore != KARST_ENGINE_ANY_LCORE && in->lcore != in->xrcd->lcore)
		ret = -EINVAL;
	*lcore = in->xrcd->lcore;
	init->xrcd = in->xrcd->number;
	init->cq = cq->cq;
	return ret;
}

static int
eng_srq_create(struct karst_engine *e, const struct karst_engine_srq_init *in,
	struct karst_engine_srq **srq)
{
	struct karst_srq_init init = {
		.pd = in->pd,
		.max_wr = karst_pow2_ceil(in->max_wr),
		.max_sge = in->max_sge != 0 ? in->max_sge : 1,
		.limit = in->limit,
	};
	struct srq_call call = {.init = &init};
	struct eng_srq *s;
	uint32_t lcore, stride;
	int ret;

	ret = srq_xrc(e, in, &lcore, &init);
	if (ret != 0 || in->max_wr == 0 || in->max_wr > KARST_WQ_MAX_SLOTS ||
		init.max_sge > KARST_WQ_MAX_SGE)
		return -EINVAL;
	stride = karst_wq_stride(false, init.max_sge, 0);
	s = eng_arena_alloc(&e->objects, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->owner = in->owner != NULL ? in->owner : e->self;
	s->ring_bytes = karst_wq_bytes(init.max_wr, stride);
	s->srq_mem = eng_arena_alloc(&e->objects, karst_srq_object_bytes());
	s->ring = eng_owner_rings_alloc(s->owner, s->ring_bytes);
	init.shared = s->ring;
	init.user = s;
	call.s = s;
	ret = s->srq_mem == NULL || s->ring == NULL ? -ENOMEM : karst_pd_ref(e->mem, in->pd);
	if (ret == 0) {
		ret = eng_mailbox_call(&e->lcore[lcore], srq_create_on_lcore, &call);
		if (ret != 0)
			karst_pd_unref(e->mem, in->pd);
	}
	if (ret != 0) {
		srq_free(e, s);
		return ret;
	}
	karst_wq_attach(&s->pub.rq, s->ring, init.max_wr, stride);
	s->pub.user = in->user;
	s->pub.lcore = lcore;
	s->pub.pd = in->pd;
	s->pub.num = karst_srq_num(s->srq);
	s->xrcd = in->xrcd;
	if (s->xrcd != NULL)
		eng_xrcd_get(s->xrcd);
	e->nsrqs++;
	s->owner->nobjects++;
	*srq = &s->pub;
	return 0;
}

int
karst_engine_srq_create(struct karst_engine *e, const struct karst_engine_srq_init *init,
	struct karst_engine_srq **srq)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = eng_srq_create(e, init, srq);
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_srq_set_limit(struct karst_engine *e, struct karst_engine_srq *srq, uint32_t limit)
{
	struct srq_call call = {.s = karst_container_of(srq, struct eng_srq, pub), .limit = limit};
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = eng_mailbox_call(&e->lcore[srq->lcore], srq_limit_on_lcore, &call);
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_srq_withdraw(struct karst_engine *e, struct karst_engine_srq *srq)
{
	struct srq_call call = {.s = karst_container_of(srq, struct eng_srq, pub)};
	int ret;

	/* release the lock and the lcore for others between two steps */
	do {
		ret = eng_ctl_enter(e);
		if (ret != 0)
			return ret;
		ret = eng_mailbox_call(&e->lcore[srq->lcore], srq_withdraw_on_lcore, &call);
		eng_ctl_leave(e);
	} while (ret == -EAGAIN);
	return ret;
}

int
karst_engine_srq_destroy(struct karst_engine *e, struct karst_engine_srq *srq)
{
	struct srq_call call = {.s = karst_container_of(srq, struct eng_srq, pub)};
	int ret = call.s->xrcd != NULL ? karst_engine_srq_withdraw(e, srq) : 0;

	if (ret == 0)
		ret = eng_ctl_enter(e);
	if (ret != 0)
		return ret;
	ret = eng_mailbox_call(&e->lcore[srq->lcore], srq_destroy_on_lcore, &call);
	if (ret == 0) {
		karst_pd_unref(e->mem, srq->pd);
		call.s->owner->nobjects--;
		if (call.s->xrcd != NULL)
			eng_xrcd_put(e, call.s->xrcd);
		srq_free(e, call.s);
		e->nsrqs--;
	}
	eng_ctl_leave(e);
	return ret;
}
