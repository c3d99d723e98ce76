/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Completion queues.  A poll goes from lane to lane, and begins with the lane behind the one that
 * it took from last, so that no lane starves.  A poll that finds nothing checks from time to time
 * whether the engine still exists.  That check costs nothing while completions arrive.
 */
#include "client_priv.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_NS 1000000u

/* Attaches to the lanes at @lanes; with @live_only, only to those that the engine has marked
 * live. */
static void
attach_lanes(struct cli_cq *q, void *lanes, uint32_t entries, bool live_only)
{
	uint32_t i;

	for (i = 0; i < q->pub.nlanes; i++) {
		struct karst_lane_shared *sh = karst_cq_lane(lanes, entries, q->flags, i);

		/* acquire, pairs with the release in karst_lane_move(): the lane is complete */
		if (!live_only || atomic_load_explicit(&sh->live, memory_order_acquire) != 0)
			karst_cq_lane_attach(&q->lane[i], sh, entries, q->flags);
	}
}

static int
check_lanes(const struct karst_client *c, uint32_t entries, uint32_t nlanes)
{
	if (!karst_is_pow2(entries) || entries > KARST_CQ_MAX_ENTRIES || nlanes != c->pub.nlcores)
		return cli_fail(-EPROTO, "the engine made a completion queue of %u lanes of %u",
			nlanes, entries);
	return 0;
}

static int
cq_attach(struct karst_client *c, struct cli_cq *q, const struct karst_ctl_create_cq_rsp *r)
{
	void *sh, *lanes;
	int ret = check_lanes(c, r->entries, r->nlanes);

	if (ret == 0)
		ret = cli_place(c, &r->place, sizeof(*q->pub.sh), "completion queue", &sh);
	if (ret == 0)
		ret = cli_place(c, &r->lanes, karst_cq_lanes_bytes(r->entries, r->nlanes, q->flags),
			"lanes of a completion queue", &lanes);
	if (ret != 0)
		return ret;
	q->pub.cqe = r->entries;
	q->pub.handle = r->cq;
	q->pub.sh = sh;
	q->pub.nlanes = r->nlanes;
	q->pub.lane = q->lane;
	attach_lanes(q, lanes, r->entries, false);
	return 0;
}

static int
cq_create(struct karst_client *c, struct cli_cq *q, const struct karst_cq_init_attr *init)
{
	struct karst_comp_channel *ch = q->pub.channel;
	CLI_REQ(create_cq)
	m = {.body = {.entries = init->cqe,
		     .cookie = q->cookie,
		     .comp_vector = init->comp_vector,
		     .flags = init->flags}};
	struct karst_ctl_create_cq_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret;

	m.body.channel = ch != NULL ? ch->handle : 0;
	ret = cli_call(c, KARST_CTL_CREATE_CQ, &m.hdr, sizeof(m), NULL, 0, &reply);
	if (ret != 0)
		return ret;
	ret = cq_attach(c, q, &r);
	if (ret != 0)
		cli_destroy_call(c, KARST_CTL_DESTROY_CQ, r.cq);
	return ret;
}

/* Adds @n to the use count of the channel (UINT32_MAX: -1). */
static void
channel_count(struct karst_client *c, struct karst_comp_channel *ch, uint32_t n)
{
	if (ch == NULL)
		return;
	karst_mutex_lock(&c->reg);
	ch->refs += n;
	karst_mutex_unlock(&c->reg);
}

int
karst_create_cq_ex(
	struct karst_context *ctx, const struct karst_cq_init_attr *init, struct karst_cq **cq)
{
	struct karst_client *c = cli_of(ctx);
	struct cli_cq *q;
	int ret = cli_check(c);
	size_t bytes = sizeof(*q) + ctx->nlcores * sizeof(q->lane[0]);

	if (ret != 0)
		return ret;
	if (init->channel != NULL && init->channel->context != ctx)
		return cli_fail_const(-EINVAL, "channel belongs to another context");
	q = aligned_alloc(
		KARST_CACHE_LINE, (bytes + KARST_CACHE_LINE - 1) & ~((size_t)KARST_CACHE_LINE - 1));
	if (q == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	memset(q, 0, bytes);
	q->pub.context = ctx;
	q->pub.channel = init->channel;
	q->pub.cq_context = init->cq_context;
	q->flags = init->flags;
	q->try_lock = init->try_lock;
	q->unlock = init->unlock;
	q->cookie = cli_object_add(c, CLI_CQ, q);
	if (q->cookie == 0) {
		free(q);
		return cli_fail_const(-ENOMEM, "no memory");
	}
	ret = cq_create(c, q, init);
	if (ret != 0) {
		cli_object_del(c, q->cookie);
		free(q);
		return ret;
	}
	channel_count(c, init->channel, 1);
	atomic_fetch_add(&c->nobjects, 1);
	*cq = &q->pub;
	return 0;
}

int
karst_create_cq(struct karst_context *ctx, uint32_t cqe, void *cq_context,
	struct karst_comp_channel *channel, struct karst_cq **cq)
{
	const struct karst_cq_init_attr init = {
		.cqe = cqe, .cq_context = cq_context, .channel = channel};

	return karst_create_cq_ex(ctx, &init, cq);
}

/* --- resizing --- */

/* Creates new lanes beside the present ones; ctl is held. */
static int
lay_lanes(struct karst_client *c, const struct cli_cq *q, uint32_t cqe, uint32_t *entries,
	void **lanes)
{
	CLI_REQ(resize_cq) m = {.body = {.cq = q->pub.handle, .entries = cqe}};
	struct karst_ctl_resize_cq_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = cli_call_locked(c, KARST_CTL_RESIZE_CQ, &m.hdr, sizeof(m), NULL, 0, &reply);

	if (ret == 0)
		ret = check_lanes(c, r.entries, r.nlanes);
	if (ret == 0)
		ret = cli_place_locked(c, &r.lanes,
			karst_cq_lanes_bytes(r.entries, r.nlanes, q->flags),
			"lanes of a completion queue", lanes);
	*entries = r.entries;
	return ret;
}

/* Switches the engine and this program to the new lanes; ctl is held.  Pollers wait only for this
 * step, which takes about one turn of each lcore.  The program knows the place of the new lanes
 * before it, because an engine that dies during the step has switched some of its lanes. */
static int
switch_lanes(struct karst_client *c, struct cli_cq *q, void *lanes, uint32_t entries)
{
	CLI_REQ(switch_cq) m = {.body.cq = q->pub.handle};
	struct karst_ctl_switch_cq_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret;

	karst_lock(&q->lock);
	ret = cli_call_locked(c, KARST_CTL_SWITCH_CQ, &m.hdr, sizeof(m), NULL, 0, &reply);
	if (ret == 0 || cli_is_dead(c))
		attach_lanes(q, lanes, entries, ret != 0);
	if (ret == 0)
		q->pub.cqe = entries;
	karst_unlock(&q->lock);
	return ret;
}

/* Takes ctl and the program's lock of the queue.  A thread must not wait for that lock with ctl
 * held, because the lock's holder may be waiting for ctl.  It must not wait for ctl with the lock
 * held either, because then pollers would wait until another thread's request has ended. */
static void
resize_lock(struct karst_client *c, const struct cli_cq *q)
{
	karst_mutex_lock(&c->ctl);
	while (q->try_lock != NULL && !q->try_lock(q->pub.cq_context)) {
		karst_mutex_unlock(&c->ctl);
		sched_yield();
		karst_mutex_lock(&c->ctl);
	}
}

static void
resize_unlock(struct karst_client *c, const struct cli_cq *q)
{
	if (q->unlock != NULL)
		q->unlock(q->pub.cq_context);
	karst_mutex_unlock(&c->ctl);
}

int
karst_resize_cq(struct karst_cq *cq, uint32_t cqe)
{
	struct karst_client *c = cli_of(cq->context);
	struct cli_cq *q = cli_cq_of(cq);
	int ret = cli_check(c);
	uint32_t entries;
	void *lanes;

	if (ret != 0)
		return ret;
	resize_lock(c, q);
	ret = lay_lanes(c, q, cqe, &entries, &lanes);
	if (ret == 0)
		ret = switch_lanes(c, q, lanes, entries);
	resize_unlock(c, q);
	return ret;
}

int
karst_modify_cq(struct karst_cq *cq, uint16_t count, uint16_t period_us)
{
	CLI_REQ(modify_cq)
	m = {.body = {.cq = cq->handle, .count = count, .period_us = period_us}};
	struct karst_ctl_modify_cq_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};

	return cli_call(
		cli_of(cq->context), KARST_CTL_MODIFY_CQ, &m.hdr, sizeof(m), NULL, 0, &reply);
}

int
karst_raise_cq_event(struct karst_cq *cq)
{
	CLI_REQ(raise_cq) m = {.body = {.cq = cq->handle}};
	struct karst_ctl_raise_cq_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};

	return cli_call(
		cli_of(cq->context), KARST_CTL_RAISE_CQ, &m.hdr, sizeof(m), NULL, 0, &reply);
}

bool
karst_cq_in_use(const struct karst_cq *cq)
{
	return atomic_load(&karst_container_of(cq, const struct cli_cq, pub)->users) != 0;
}

int
karst_destroy_cq(struct karst_cq *cq)
{
	struct karst_client *c = cli_of(cq->context);
	struct cli_cq *q = cli_cq_of(cq);
	uint32_t users;
	int ret;

	if (cli_forked(c))
		return cli_fail_forked();
	users = atomic_load(&q->users);
	if (users != 0)
		return cli_fail(-EBUSY,
			"%u queue pairs or shared receive queues use this completion queue", users);
	ret = cli_destroy_call(c, KARST_CTL_DESTROY_CQ, cq->handle);
	if (ret != 0)
		return ret;
	cli_object_end(c, q->cookie,
		cq->channel != NULL ? &cli_channel_of(cq->channel)->stream : NULL, &q->events,
		&q->async);
	channel_count(c, cq->channel, UINT32_MAX);
	atomic_fetch_sub(&c->nobjects, 1);
	free(q);
	return 0;
}

int
karst_req_notify_cq(struct karst_cq *cq, bool solicited_only)
{
	struct cli_cq *q = cli_cq_of(cq);

	if (cli_forked(cli_of(cq->context)))
		return cli_fail_forked();
	/* one thread arms at a time, and the lanes do not change meanwhile */
	karst_lock(&q->lock);
	karst_cq_arm_behind(cq->sh, cq->lane, cq->nlanes, solicited_only);
	karst_unlock(&q->lock);
	return 0;
}

/* --- polling --- */

static uint32_t
cq_take(struct karst_cq *cq, uint32_t max, struct karst_cqe *cqes)
{
	uint32_t lane, n = 0, tried;

	for (tried = 0; tried < cq->nlanes && n < max; tried++) {
		const struct karst_cqe *at;
		uint32_t got;

		lane = cq->next = cq->next + 1 < cq->nlanes ? cq->next + 1 : 0;
		/* more than one pass, because entries wrap around */
		while (n < max && (got = karst_cq_lane_peek(&cq->lane[lane], &at)) > 0) {
			got = karst_min_u32(got, max - n);
			memcpy(cqes + n, at, got * sizeof(*cqes));
			karst_cq_lane_take(&cq->lane[lane], got);
			n += got;
		}
	}
	return n;
}

/* Checks at most once a millisecond; the coarse clock needs no system call. */
static bool
engine_gone(struct karst_client *c, struct cli_cq *q)
{
	struct timespec t;
	uint64_t now_ns;

	if (cli_is_dead(c))
		return true;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	now_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	if (now_ns < q->look_ns)
		return false;
	q->look_ns = now_ns + LOOK_NS;
	return !cli_engine_alive(c);
}

/* Takes what has arrived in the lanes meanwhile, or leaves it there if @take is false. */
static int
poll_lanes(struct cli_cq *q, uint32_t n, struct karst_cqe *cqes, bool take)
{
	return take ? (int)cq_take(&q->pub, n, cqes) : 0;
}

static karst_noinline int
poll_empty(struct karst_client *c, struct cli_cq *q, uint32_t n, struct karst_cqe *cqes, bool take)
{
	const struct karst_cqe *at;

	if (karst_unlikely(
		    atomic_load_explicit(&q->pub.sh->overflown, memory_order_acquire) != 0)) {
		/* the last completion that fitted may have arrived since the caller polled */
		if (karst_cq_peek(&q->pub, &at) > 0)
			return poll_lanes(q, n, cqes, take);
		return cli_fail_const(-EIO,
			"the completion queue has overflown: completions came "
			"faster than they were polled, and some are lost");
	}
	if (karst_likely(!engine_gone(c, q)))
		return 0;
	/* there may be ready completions that the engine did not show */
	if (cli_flush_show_ready(q))
		return poll_lanes(q, n, cqes, take);
	return (int)cli_flush_requests(q, n, cqes);
}

int
karst_cq_look(struct karst_cq *cq, int n, struct karst_cqe *cqes)
{
	struct karst_client *c = cli_of(cq->context);
	struct cli_cq *q = cli_cq_of(cq);
	const struct karst_cqe *at;
	int got = 0;

	if (cli_forked(c))
		return cli_fail_forked();
	if (n <= 0)
		return n == 0 ? 0 : cli_fail_const(-EINVAL, "n is negative");
	karst_lock(&q->lock);
	if (karst_cq_peek(cq, &at) == 0)
		got = poll_empty(c, q, (uint32_t)n, cqes, false);
	karst_unlock(&q->lock);
	return got;
}

int
karst_poll_cq(struct karst_cq *cq, int n, struct karst_cqe *cqes)
{
	struct karst_client *c = cli_of(cq->context);
	struct cli_cq *q = cli_cq_of(cq);
	int got;

	if (cli_forked(c))
		return cli_fail_forked();
	if (n <= 0)
		return n == 0 ? 0 : cli_fail_const(-EINVAL, "n is negative");
	karst_lock(&q->lock);
	got = (int)cq_take(cq, (uint32_t)n, cqes);
	if (karst_unlikely(got == 0))
		got = poll_empty(c, q, (uint32_t)n, cqes, true);
	karst_unlock(&q->lock);
	return got;
}
