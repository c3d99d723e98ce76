/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Completion queues: creating, resizing, arming, destroying.  Polling is in poll.c. */
#include "provider.h"

#include <limits.h>

/* All flags except those of NICs with offloads and of NICs that know the time of day. */
#define KNOWN_WC_FLAGS (IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)

struct wanted {
	int64_t cqe;
	struct ibv_comp_channel *channel;
	uint32_t comp_vector;
	uint64_t wc_flags;
	bool single;
	struct kv_pd *parent; /* NULL: none */
};

static int
cq_init_check(struct ibv_context *ibv, const struct wanted *w)
{
	if (w->cqe < 1 || w->cqe > INT_MAX || w->comp_vector >= (uint32_t)ibv->num_comp_vectors)
		return kv_refuse(
			-EINVAL, "cqe must be at least 1, comp_vector below num_comp_vectors");
	if (w->channel != NULL && w->channel->context != ibv)
		return kv_refuse(-EINVAL, "channel belongs to another context");
	return 0;
}

/* --- polling and arming wait while the lanes are exchanged --- */

static bool
cq_try_lock(void *arg)
{
	struct kv_cq *cq = arg;

	if (!kv_cq_hold(cq))
		return false;
	karst_lock(&cq->arm_lock);
	return true;
}

static void
cq_unlock_resized(void *arg)
{
	struct kv_cq *cq = arg;

	cq->vcq.cq.cqe = (int)cq->karst->cqe;
	karst_unlock(&cq->arm_lock);
	kv_cq_release(cq);
}

static struct kv_cq *
cq_create(struct ibv_context *ibv, const struct wanted *w)
{
	struct karst_cq_init_attr init = {
		.cqe = (uint32_t)w->cqe,
		.comp_vector = w->comp_vector,
		.flags =
			w->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP ? KARST_CQ_TIMESTAMPS : 0,
		.try_lock = cq_try_lock,
		.unlock = cq_unlock_resized,
	};
	struct karst_comp_channel *channel = NULL;
	struct kv_memory memory;
	struct kv_cq *cq;
	int ret = cq_init_check(ibv, w);

	if (ret == 0 && w->channel != NULL) {
		channel = kv_events_channel(w->channel);
		if (channel == NULL)
			ret = kv_refuse(-EINVAL, "channel is not one of this context");
	}
	if (ret != 0)
		return kv_fail(ret);
	cq = kv_object_new(w->parent, sizeof(*cq), KV_RESOURCE_CQ, &memory);
	if (cq == NULL)
		return NULL;
	cq->memory = memory;
	cq->single = w->single;
	karst_trylock(&cq->loan);
	init.cq_context = cq;
	init.channel = channel;
	ret = karst_create_cq_ex(kv_context_of(ibv)->karst, &init, &cq->karst);
	if (ret != 0) {
		kv_object_free(cq, KV_RESOURCE_CQ, cq->memory);
		return kv_fail(ret);
	}
	cq->vcq.cq.handle = cq->karst->handle;
	cq->vcq.cq.cqe = (int)cq->karst->cqe;
	kv_live_add(&cq->live, KV_CQ, ibv, &cq->vcq.cq, &cq->vcq.cq.handle);
	return cq;
}

struct ibv_cq *
kv_create_cq(struct ibv_context *ibv, int cqe, struct ibv_comp_channel *channel, int comp_vector)
{
	struct kv_cq *cq = cq_create(ibv,
		&(struct wanted){
			.cqe = cqe, .channel = channel, .comp_vector = (uint32_t)comp_vector});

	return cq != NULL ? &cq->vcq.cq : NULL;
}

struct ibv_cq_ex *
kv_create_cq_ex(struct ibv_context *ibv, struct ibv_cq_init_attr_ex *init)
{
	struct wanted w = {
		.cqe = init->cqe,
		.channel = init->channel,
		.comp_vector = init->comp_vector,
		.wc_flags = init->wc_flags,
	};
	struct kv_cq *cq;

	if ((init->comp_mask &
		    ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) ||
		(init->wc_flags & ~(uint64_t)KNOWN_WC_FLAGS))
		return kv_fail(kv_refuse(-EOPNOTSUPP, "comp_mask or wc_flags has unknown bits"));
	if (init->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) {
		/* IGNORE_OVERRUN: karst has no queues that overrun silently */
		if (init->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED)
			return kv_fail(kv_refuse(-EOPNOTSUPP,
				"flags: only IBV_CREATE_CQ_ATTR_SINGLE_THREADED is supported"));
		w.single = init->flags != 0;
	}
	if (init->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
		int ret = kv_check_in(KV_PD, ibv, init->parent_domain);

		if (ret == 0 && kv_pd_of(init->parent_domain)->contained == NULL)
			ret = kv_refuse(-EINVAL, "parent_domain is not a parent domain");
		if (ret != 0)
			return kv_fail(ret);
		w.parent = kv_pd_of(init->parent_domain);
		w.single |= w.parent->td != NULL;
	}
	cq = cq_create(ibv, &w);
	if (cq == NULL)
		return NULL;
	kv_set_poll_ops(cq, init->wc_flags);
	return &cq->vcq.cq_ex;
}

int
kv_resize_cq(struct ibv_cq *ibv, int cqe)
{
	struct kv_cq *cq = kv_cq_of(ibv), *lent;
	int ret = kv_check(KV_CQ, ibv);

	if (ret == 0 && cqe < 1)
		ret = kv_refuse(-EINVAL, "cqe must be at least 1");
	/* in a child the queues are not mapped */
	if (ret == 0)
		ret = kv_check_process(ibv->context);
	if (ret != 0)
		return kv_error(ret);
	lent = kv_polls_lend(cq);
	ret = karst_resize_cq(cq->karst, (uint32_t)cqe);
	kv_polls_take_back(lent);
	return kv_error(ret);
}

int
kv_modify_cq(struct ibv_cq *ibv, struct ibv_modify_cq_attr *attr)
{
	int ret = kv_check(KV_CQ, ibv);

	if (ret == 0 && attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
		ret = kv_refuse(-EOPNOTSUPP, "attr_mask: only IBV_CQ_ATTR_MODERATE is supported");
	if (ret != 0 || attr->attr_mask == 0)
		return kv_error(ret);
	return kv_error(karst_modify_cq(
		kv_cq_of(ibv)->karst, attr->moderate.cq_count, attr->moderate.cq_period));
}

/*
 * When an event is due.  By the specification, an event is raised when a completion arrives after
 * the queue was armed, and not for a completion that arrived before.  Two kinds of programs need
 * more than that:
 *
 * - A program that gets an event, arms, polls once and waits for the next event, and reports a
 *   fault if the poll finds nothing (ibv_rc_pingpong -e -t).  A completion that arrives between
 *   arming and that poll raises an event; if the poll took it, a poll after the event would find
 *   nothing.  With an adapter this interval is some nanoseconds; here it can be as long as a
 *   program waits for a processor.  Therefore, if the queue has completions from before it was
 *   armed, that poll returns only these: the later ones have an event of their own.  To the program
 *   they seem to arrive a little later.  For this, exactly the completions behind armed_at of their
 *   lane must raise the event.  The engine does that (lib/qp/cq.c), except for completions that it
 *   publishes between the two steps of arming, which store the position and the armed word.  The
 *   thread that arms finds these behind armed_at afterwards and raises the event itself.  If both
 *   try, the event is raised once, by the one that disarms the queue.
 *
 * - A program that polls until the queue is empty, arms and waits (UCX); one that takes one
 *   completion for each event, arms and waits; and one that arms before the first poll.  Adapters
 *   raise an event at once if the queue has completions that are not polled when it is armed.  The
 *   provider does so too, except for programs that had an event and have not polled since: they
 *   will poll again.  It raises none if the queue is armed for solicited completions only; see
 *   arm().
 *
 * As with an adapter, a poll after an event can still find nothing, if the program polls more than
 * once between arming and waiting.
 */

/* Must the provider raise the event?  @any: also for a completion that has arrived since the queue
 * was armed. */
static bool
event_is_due(const struct kv_cq *cq, bool any)
{
	bool told = atomic_load_explicit(&cq->told, memory_order_relaxed);
	const struct karst_cq *karst = cq->karst;
	uint32_t i;

	if (!karst_cq_is_armed(karst->sh))
		return false;
	for (i = 0; i < karst->nlanes; i++) {
		if (any && karst_cq_lane_came(&karst->lane[i]))
			return true;
		if (!told && karst_cq_lane_unread(&karst->lane[i]))
			return true;
	}
	return false;
}

/* Arms the queue.  With @solicited_only the engine alone raises the event: a completion does not
 * say whether its sender requested an event, so the provider cannot judge those that are already in
 * the queue.  By the specification, only a solicited or failed completion that is added after the
 * queue was armed raises an event; the program has to poll between arming and waiting.
 * @return 1: the event must be raised at once; 0; a negative errno */
static int
arm(struct kv_cq *cq, bool solicited_only)
{
	uint32_t before = karst_cq_arm_count(cq->karst->sh);
	int ret = karst_req_notify_cq(cq->karst, solicited_only);
	bool anew;

	if (ret != 0 || cq->vcq.cq.channel == NULL)
		return ret;
	kv_cq_set_armed(cq, true);
	anew = karst_cq_arm_count(cq->karst->sh) != before;
	/* with solicited_only, completions that are not solicited have no event of their own */
	if (anew)
		atomic_store_explicit(&cq->armed_fresh, !solicited_only, memory_order_relaxed);
	return !solicited_only && event_is_due(cq, anew);
}

int
kv_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct kv_cq *cq = kv_cq_of(ibv);
	/* in a child the queue is not mapped, and the lock may be held forever */
	int ret = kv_check_process(ibv->context);

	if (ret != 0)
		return kv_error(ret);
	karst_lock(&cq->arm_lock);
	ret = arm(cq, solicited_only != 0);
	karst_unlock(&cq->arm_lock);
	if (ret > 0)
		ret = karst_raise_cq_event(cq->karst);
	return kv_error(ret);
}

int
kv_destroy_cq(struct ibv_cq *ibv)
{
	struct kv_cq *cq = kv_cq_of(ibv);
	int ret = kv_check(KV_CQ, ibv);

	if (ret == 0)
		ret = kv_check_process(ibv->context);
	if (ret == 0 && karst_cq_in_use(cq->karst))
		ret = kv_refuse(
			-EBUSY, "queue pairs or shared receive queues use this completion queue");
	if (ret != 0)
		return kv_error(ret);
	kv_events_close(&cq->events, &ibv->mutex, &ibv->cond, &ibv->comp_events_completed,
		&ibv->async_events_completed);
	kv_live_del(&cq->live);
	ret = kv_live_decide(&cq->live, karst_destroy_cq(cq->karst));
	kv_events_decide(&cq->events, ret == 0);
	if (ret != 0)
		return kv_error(ret);
	kv_cq_set_armed(cq, false);
	kv_object_free(cq, KV_RESOURCE_CQ, cq->memory);
	return 0;
}
