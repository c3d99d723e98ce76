/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Completion channels, completion queues and shared receive queues of a session.
 */
#include "session_priv.h"

/* Size of a queue, for reporting how many queues there may be. */
#define USUAL_ENTRIES 256u

/* --- channels --- */

int
eng_session_create_channel(struct karst_session *s, struct session_call *c)
{
	struct karst_ctl_create_channel_rsp *rsp = c->rsp;
	struct session_channel *ch = calloc(1, sizeof(*ch));
	int ret, reader;

	if (ch == NULL)
		return reason(c, -ENOMEM, "channel: the engine has no memory");
	ret = eng_session_handle_add(
		c, &s->channels, ch, "completion channels", "max_channels", &ch->handle);
	if (ret != 0) {
		free(ch);
		return ret;
	}
	ret = eng_stream_open(&ch->stream, &s->lost_events, &reader);
	if (ret != 0) {
		eng_handles_del(&s->channels, ch->handle);
		free(ch);
		return reason(
			c, ret, "channel: the engine has no descriptors left (its ulimit -n)");
	}
	c->rsp_fds[c->nrsp_fds++] = reader;
	rsp->channel = ch->handle;
	return 0;
}

static void
channel_free(struct karst_session *s, struct session_channel *ch)
{
	eng_session_forget_room(s, &ch->stream);
	eng_stream_close(&ch->stream);
	eng_handles_del(&s->channels, ch->handle);
	free(ch);
}

int
eng_session_destroy_channel(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_destroy_channel_req *req = c->body;
	struct session_channel *ch = eng_session_find(c, &s->channels, req->channel, "channel");

	if (ch == NULL)
		return -EINVAL;
	if (ch->cqs != 0)
		return reason(c, -EBUSY, "channel %u: %u completion queues use it", req->channel,
			ch->cqs);
	channel_free(s, ch);
	return 0;
}

/* --- completion queues --- */

static int
cq_fault(const struct karst_session *s, struct session_call *c, int ret, uint32_t entries)
{
	if (ret == -ENOMEM && eng_session_ring_fault(s, c))
		return ret;
	return reason(c, ret,
		"entries %u: no room in the ring memory, of which this program has %llu bytes and "
		"may have %llu (max_ring_bytes)",
		entries, (unsigned long long)karst_engine_owner_ring_bytes(s->owner),
		(unsigned long long)s->limits.max_ring_bytes);
}

static int
srq_fault(const struct karst_session *s, struct session_call *c, int ret, uint32_t max_wr)
{
	if (ret == -ENOSPC)
		return reason(c, ret,
			"XRC shared receive queue: the limit of %u on the lcore of its domain is "
			"reached",
			s->e->cfg.max_xrc_srqs);
	return cq_fault(s, c, ret, max_wr);
}

/* Ring memory that queues can use, whatever was allocated before: some is lost by rounding, and
 * some between queues of other sizes; the smaller the memory, the larger the lost part. */
static uint64_t
room_for_queues(const struct karst_session *s)
{
	uint64_t quarter = s->limits.max_ring_bytes / 4;

	if (quarter >= 64u << 20)
		return 3 * quarter;
	return quarter > 4u << 20 ? 2 * quarter : quarter;
}

/* What each of two queues may have, or one that is resized to this: the remaining third is lost if
 * blocks are nearly as large as all the memory. */
static uint64_t
room_for_one(const struct karst_session *s)
{
	return room_for_queues(s) / 3;
}

uint32_t
eng_session_max_cqe(const struct karst_session *s)
{
	uint64_t room = room_for_one(s);
	uint32_t n = KARST_CQ_MAX_ENTRIES;

	while (n > 2 && karst_cq_lanes_bytes(n, s->e->nlcores, KARST_CQ_TIMESTAMPS) > room)
		n /= 2;
	return n;
}

/* Number of pairs of blocks of @first and @second bytes that the ring memory has room for, if there
 * is nothing else in it; at most @most. */
static uint32_t
ring_fit(const struct karst_session *s, uint32_t most, size_t first, size_t second)
{
	uint64_t n = room_for_queues(s) / (eng_arena_bytes(first) + eng_arena_bytes(second));

	return n < most ? (uint32_t)n : most;
}

/* Most requests of each queue of a queue pair, and of a shared receive queue. */
uint32_t
eng_session_max_wr(const struct karst_session *s)
{
	uint64_t room = room_for_one(s);
	uint32_t n = KARST_WQ_MAX_SLOTS;
	uint32_t slot = karst_wq_stride(true, 1, 0) + karst_wq_stride(false, 1, 0);

	while (n > 2 && (uint64_t)n * slot > room)
		n /= 2;
	return n;
}

/* Numbers of objects that limits and ring memory allow, if all are of one kind and of usual size;
 * there may be more of smaller ones. */
void
eng_session_max_queues(const struct karst_session *s, uint32_t *qps, uint32_t *cqs, uint32_t *srqs)
{
	const struct karst_session_limits *l = &s->limits;
	size_t sq = karst_wq_bytes(USUAL_ENTRIES, karst_wq_stride(true, 1, 0));
	size_t rq = karst_wq_bytes(USUAL_ENTRIES, karst_wq_stride(false, 1, 0));
	size_t lanes = karst_cq_lanes_bytes(USUAL_ENTRIES, s->e->nlcores, KARST_CQ_TIMESTAMPS);

	*qps = ring_fit(s, l->max_qps, sq + rq, 0);
	*cqs = ring_fit(s, l->max_cqs, lanes, sizeof(struct karst_cq_shared));
	*srqs = ring_fit(s, l->max_srqs, rq, 0);
}

static int
check_entries(const struct karst_session *s, struct session_call *c, uint32_t entries)
{
	uint32_t max = eng_session_max_cqe(s);

	if (entries == 0 || entries > max)
		return reason(c, -EINVAL, "entries %u: must be 1 to %u (max_ring_bytes is %llu)",
			entries, max, (unsigned long long)s->limits.max_ring_bytes);
	return 0;
}

static int
check_cq(const struct karst_session *s, struct session_call *c,
	const struct karst_ctl_create_cq_req *req)
{
	if (req->comp_vector >= s->e->nlcores)
		return reason(c, -EINVAL, "comp_vector %u: must be 0 to %u", req->comp_vector,
			s->e->nlcores - 1);
	if ((req->flags & ~(uint32_t)KARST_CQ_TIMESTAMPS) != 0)
		return reason(c, -EINVAL, "flags 0x%x has unknown bits; known are 0x%x", req->flags,
			KARST_CQ_TIMESTAMPS);
	return check_entries(s, c, req->entries);
}

/* Describes the location of lanes of @entries of @cq. */
static void
place_lanes(const struct karst_session *s, const struct karst_engine_cq *cq, const void *lanes,
	uint32_t entries, struct karst_ctl_place *place)
{
	eng_session_place(s, lanes, karst_cq_lanes_bytes(entries, cq->nlanes, cq->flags), place);
}

int
eng_session_create_cq(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_create_cq_req *req = c->body;
	struct karst_ctl_create_cq_rsp *rsp = c->rsp;
	struct session_channel *ch = NULL;
	struct session_cq *cq;
	int ret = check_cq(s, c, req);

	if (ret != 0)
		return ret;
	if (req->channel != 0) {
		ch = eng_session_find(c, &s->channels, req->channel, "channel");
		if (ch == NULL)
			return -EINVAL;
	}
	cq = calloc(1, sizeof(*cq));
	if (cq == NULL)
		return reason(c, -ENOMEM, "completion queue: the engine has no memory");
	cq->cookie = req->cookie;
	cq->channel = ch;
	ret = eng_session_handle_add(c, &s->cqs, cq, "completion queues", "max_cqs", &cq->handle);
	if (ret != 0) {
		free(cq);
		return ret;
	}
	ret = karst_engine_cq_create(s->e,
		&(struct karst_engine_cq_init){.entries = req->entries,
			.flags = req->flags,
			.user = cq,
			.owner = s->owner},
		&cq->cq);
	if (ret != 0) {
		eng_handles_del(&s->cqs, cq->handle);
		free(cq);
		return cq_fault(s, c, ret, req->entries);
	}
	if (ch != NULL)
		ch->cqs++;
	rsp->cq = cq->handle;
	rsp->entries = cq->cq->entries;
	rsp->nlanes = cq->cq->nlanes;
	eng_session_place(s, cq->cq->sh, sizeof(*cq->cq->sh), &rsp->place);
	place_lanes(s, cq->cq, cq->cq->lanes, cq->cq->entries, &rsp->lanes);
	return 0;
}

int
eng_session_resize_cq(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_resize_cq_req *req = c->body;
	struct session_cq *cq = eng_session_find(c, &s->cqs, req->cq, "cq");
	struct karst_ctl_resize_cq_rsp *rsp = c->rsp;
	uint32_t entries = req->entries;
	void *lanes;
	int ret;

	if (cq == NULL)
		return -EINVAL;
	ret = check_entries(s, c, entries);
	if (ret != 0)
		return ret;
	ret = karst_engine_cq_lay_lanes(s->e, cq->cq, &entries, &lanes);
	if (ret != 0)
		return cq_fault(s, c, ret, req->entries);
	rsp->entries = entries;
	rsp->nlanes = cq->cq->nlanes;
	place_lanes(s, cq->cq, lanes, entries, &rsp->lanes);
	return 0;
}

int
eng_session_switch_cq(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_switch_cq_req *req = c->body;
	struct session_cq *cq = eng_session_find(c, &s->cqs, req->cq, "cq");
	int ret;

	if (cq == NULL)
		return -EINVAL;
	ret = karst_engine_cq_switch_lanes(s->e, cq->cq);
	if (ret == -ENOSPC)
		return reason(c, -EINVAL,
			"cq %u: more completions wait to be polled than the new size has room for",
			req->cq);
	return ret == 0 ? 0
			: reason(c, ret, "cq %u: RESIZE_CQ, which makes the lanes, must come first",
				  req->cq);
}

int
eng_session_modify_cq(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_modify_cq_req *req = c->body;
	struct session_cq *cq = eng_session_find(c, &s->cqs, req->cq, "cq");

	if (cq == NULL)
		return -EINVAL;
	return karst_engine_cq_set_moderation(s->e, cq->cq, req->count, req->period_us);
}

int
eng_session_raise_cq(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_raise_cq_req *req = c->body;
	struct session_cq *cq = eng_session_find(c, &s->cqs, req->cq, "cq");

	if (cq == NULL)
		return -EINVAL;
	if (cq->channel == NULL)
		return reason(c, -EINVAL, "cq %u has no channel", req->cq);
	/* either an lcore that is about to raise the event disarms it, or this call does */
	if (karst_cq_disarm(cq->cq->sh))
		eng_session_raise(s, cq);
	return 0;
}

static int
destroy_cq(struct karst_session *s, struct session_cq *cq)
{
	int ret = karst_engine_cq_destroy(s->e, cq->cq);

	if (ret != 0)
		return ret;
	if (cq->channel != NULL)
		cq->channel->cqs--;
	eng_handles_del(&s->cqs, cq->handle);
	free(cq);
	return 0;
}

int
eng_session_destroy_cq(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_destroy_cq_req *req = c->body;
	struct session_cq *cq = eng_session_find(c, &s->cqs, req->cq, "cq");
	int ret;

	if (cq == NULL)
		return -EINVAL;
	ret = destroy_cq(s, cq);
	return ret == 0
		? 0
		: reason(c, ret, "cq %u: shared receive queues or queue pairs use it", req->cq);
}

/* --- shared receive queues --- */

static int
check_srq(struct session_call *c, const struct karst_ctl_create_srq_req *req)
{
	if (req->max_wr == 0 || req->max_wr > KARST_WQ_MAX_SLOTS)
		return reason(
			c, -EINVAL, "max_wr %u: must be 1 to %u", req->max_wr, KARST_WQ_MAX_SLOTS);
	if (req->max_sge > KARST_WQ_MAX_SGE)
		return reason(c, -EINVAL, "max_sge %u exceeds %u", req->max_sge, KARST_WQ_MAX_SGE);
	if (req->limit > req->max_wr)
		return reason(c, -EINVAL, "limit %u exceeds max_wr %u", req->limit, req->max_wr);
	if (req->type != KARST_SRQT_BASIC && req->type != KARST_SRQT_XRC)
		return reason(c, -EINVAL, "type %u: must be %u (basic) or %u (XRC)", req->type,
			KARST_SRQT_BASIC, KARST_SRQT_XRC);
	if (req->type == KARST_SRQT_BASIC && (req->xrcd != 0 || req->cq != 0))
		return reason(c, -EINVAL,
			"xrcd %u, cq %u: must both be 0, except for shared receive queues of "
			"type %u (XRC)",
			req->xrcd, req->cq, KARST_SRQT_XRC);
	return 0;
}

static void
fill_srq(const struct karst_session *s, const struct session_srq *q,
	struct karst_ctl_create_srq_rsp *rsp)
{
	const struct karst_wq *rq = &q->srq->rq;

	rsp->srq = q->handle;
	rsp->max_wr = rq->mask + 1;
	rsp->max_sge = q->max_sge;
	rsp->stride = 1u << rq->shift;
	rsp->lcore = q->srq->lcore;
	rsp->srqn = q->srq->num;
	eng_session_place(s, rq->sh, karst_wq_bytes(rsp->max_wr, rsp->stride), &rsp->place);
}

/* Looks up the domain and the CQ of an XRC SRQ. */
static int
find_xrc(struct karst_session *s, struct session_call *c,
	const struct karst_ctl_create_srq_req *req, struct session_xrcd **xrcd,
	struct karst_engine_srq_init *init)
{
	const struct session_cq *cq;

	*xrcd = NULL;
	if (req->type != KARST_SRQT_XRC)
		return 0;
	*xrcd = eng_session_find(c, &s->xrcds, req->xrcd, "xrcd");
	if (*xrcd == NULL)
		return -EINVAL;
	cq = eng_session_find(c, &s->cqs, req->cq, "cq");
	if (cq == NULL)
		return -EINVAL;
	init->xrcd = (*xrcd)->xrcd;
	init->cq = cq->cq;
	return 0;
}

int
eng_session_create_srq(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_create_srq_req *req = c->body;
	const struct session_pd *pd = eng_session_find(c, &s->pds, req->pd, "pd");
	struct karst_engine_srq_init init = {.owner = s->owner,
		.lcore = KARST_ENGINE_ANY_LCORE,
		.max_wr = req->max_wr,
		.max_sge = req->max_sge != 0 ? req->max_sge : 1,
		.limit = req->limit};
	struct session_xrcd *xrcd;
	struct session_srq *q;
	int ret;

	if (pd == NULL)
		return -EINVAL;
	ret = check_srq(c, req);
	if (ret == 0)
		ret = find_xrc(s, c, req, &xrcd, &init);
	if (ret != 0)
		return ret;
	q = calloc(1, sizeof(*q));
	if (q == NULL)
		return reason(c, -ENOMEM, "shared receive queue: the engine has no memory");
	q->cookie = req->cookie;
	q->max_sge = init.max_sge;
	ret = eng_session_handle_add(
		c, &s->srqs, q, "shared receive queues", "max_srqs", &q->handle);
	if (ret != 0) {
		free(q);
		return ret;
	}
	init.pd = pd->pd;
	init.user = q;
	ret = karst_engine_srq_create(s->e, &init, &q->srq);
	if (ret != 0) {
		eng_handles_del(&s->srqs, q->handle);
		free(q);
		return srq_fault(s, c, ret, req->max_wr);
	}
	q->xrcd = xrcd;
	if (xrcd != NULL)
		xrcd->users++;
	fill_srq(s, q, c->rsp);
	return 0;
}

int
eng_session_modify_srq(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_modify_srq_req *req = c->body;
	struct session_srq *q = eng_session_find(c, &s->srqs, req->srq, "srq");
	int ret;

	if (q == NULL)
		return -EINVAL;
	ret = karst_engine_srq_set_limit(s->e, q->srq, req->limit);
	if (ret != 0)
		return reason(
			c, ret, "limit %u exceeds max_wr %u", req->limit, q->srq->rq.mask + 1);
	return 0;
}

struct limit_call {
	const struct eng_srq *srq;
	uint32_t limit;
};

static int
limit_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct limit_call *call = arg;

	call->limit = karst_srq_limit(call->srq->srq);
	return 0;
}

int
eng_session_query_srq(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_query_srq_req *req = c->body;
	struct session_srq *q = eng_session_find(c, &s->srqs, req->srq, "srq");
	struct karst_ctl_query_srq_rsp *rsp = c->rsp;
	struct limit_call call;
	int ret;

	if (q == NULL)
		return -EINVAL;
	call.srq = karst_container_of(q->srq, struct eng_srq, pub);
	ret = eng_ctl_enter(s->e);
	if (ret != 0)
		return reason(c, ret, "srq %u: %s", req->srq, strerror(-ret));
	eng_mailbox_call(&s->e->lcore[q->srq->lcore], limit_on_lcore, &call);
	eng_ctl_leave(s->e);
	rsp->max_wr = q->srq->rq.mask + 1;
	rsp->max_sge = q->max_sge;
	rsp->limit = call.limit;
	return 0;
}

static int
destroy_srq(struct karst_session *s, struct session_srq *q)
{
	int ret = karst_engine_srq_destroy(s->e, q->srq);

	if (ret != 0)
		return ret;
	if (q->xrcd != NULL)
		q->xrcd->users--;
	eng_handles_del(&s->srqs, q->handle);
	free(q);
	return 0;
}

int
eng_session_destroy_srq(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_destroy_srq_req *req = c->body;
	struct session_srq *q = eng_session_find(c, &s->srqs, req->srq, "srq");
	int ret;

	if (q == NULL)
		return -EINVAL;
	ret = destroy_srq(s, q);
	return ret == 0 ? 0 : reason(c, ret, "srq %u: queue pairs use it", req->srq);
}

/* --- the end --- */

void
eng_session_stop_srqs(struct karst_session *s)
{
	struct session_srq *q;
	uint32_t at = 0;

	while ((q = eng_handles_next(&s->srqs, &at)) != NULL)
		if (q->xrcd != NULL)
			karst_engine_srq_withdraw(s->e, q->srq);
}

void
eng_session_drop_queues(struct karst_session *s)
{
	struct session_channel *ch;
	struct session_srq *srq;
	struct session_cq *cq;
	uint32_t at = 0;
	int ret = 0;

	while ((srq = eng_handles_next(&s->srqs, &at)) != NULL)
		ret |= destroy_srq(s, srq);
	at = 0;
	while ((cq = eng_handles_next(&s->cqs, &at)) != NULL)
		ret |= destroy_cq(s, cq);
	at = 0;
	while ((ch = eng_handles_next(&s->channels, &at)) != NULL)
		channel_free(s, ch);
	assert(ret == 0);
	(void)ret;
}
