/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Queue pairs as objects: creation and destruction.  A QP is one allocation of each arena: its
 * handle followed by the karst_core_qp, and its send queue followed by its receive queue.  XRC
 * targets have no queues, and may have further handles (xrc.c), so their karst_core_qp is a
 * separate allocation.
 *
 * All functions here hold ctl_lock; code that accesses an lcore's state runs on that lcore
 * (mailbox.c).  Calls about a QP that exists are in qp_call.c.
 */
#include "mcast.h"
#include "object.h"
#include "port.h"

/* QPs that one message to an lcore destroys, and the time that it may take, so that it does not
 * delay other work for long. */
#define DESTROY_AT_ONCE 8u
#define DESTROY_NS      200000u

struct create_call {
	struct eng_qp *q;
	const struct karst_qp_init *init;
};

static int
qp_create_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct create_call *call = arg;

	return karst_qp_create(lc->core, call->q->core_mem, call->init, &call->q->qp);
}

/* Path MTU that UD packets must fit, whatever port they take. */
static uint8_t
least_path_mtu(const struct karst_engine *e)
{
	uint8_t mtu = 5;
	uint32_t i;

	for (i = 0; i < e->nports; i++)
		if (eng_port_present(e, i) && e->port[i].info.path_mtu < mtu)
			mtu = e->port[i].info.path_mtu;
	return mtu;
}

/* Whether the CQs and the SRQ that a QP is to use belong to its owner. */
static bool
all_of(const struct karst_engine_owner *owner, const struct karst_engine_qp_init *in)
{
	return (in->send_cq == NULL ||
		       karst_container_of(in->send_cq, struct eng_cq, pub)->owner == owner) &&
		(in->recv_cq == NULL ||
			karst_container_of(in->recv_cq, struct eng_cq, pub)->owner == owner) &&
		(in->srq == NULL ||
			karst_container_of(in->srq, struct eng_srq, pub)->owner == owner);
}

/* Translates the program's parameters: powers of two, and at least one where necessary. */
static int
qp_init_from(const struct karst_engine *e, const struct karst_engine_qp_init *in,
	struct karst_qp_init *init)
{
	if (in->type == KARST_QPT_XRC_RECV) {
		*init = (struct karst_qp_init){.type = in->type,
			.xrcd = in->xrcd->number,
			.max_dest_rd_atomic = in->max_dest_rd_atomic};
		return 0;
	}
	if (in->send_cq == NULL || (in->recv_cq == NULL && in->type != KARST_QPT_XRC_SEND) ||
		in->max_send_wr > KARST_WQ_MAX_SLOTS || in->max_recv_wr > KARST_WQ_MAX_SLOTS ||
		in->max_send_sge > KARST_WQ_MAX_SGE || in->max_recv_sge > KARST_WQ_MAX_SGE ||
		in->max_inline > KARST_WQ_MAX_INLINE)
		return -EINVAL;
	*init = (struct karst_qp_init){
		.type = in->type,
		.pd = in->pd,
		.send_cq = karst_container_of(in->send_cq, struct eng_cq, pub)->cq,
		.max_send_wr = karst_pow2_ceil(in->max_send_wr),
		.max_send_sge = in->max_send_sge != 0 ? in->max_send_sge : 1,
		.max_inline = in->max_inline,
		.max_dest_rd_atomic = in->max_dest_rd_atomic,
		.ud_mtu = least_path_mtu(e),
		.sq_sig_all = in->sq_sig_all,
		.credits = in->credits,
	};
	if (in->type == KARST_QPT_XRC_SEND)
		return in->srq == NULL ? 0 : -EINVAL;
	init->recv_cq = karst_container_of(in->recv_cq, struct eng_cq, pub)->cq;
	if (in->srq != NULL) {
		init->srq = karst_container_of(in->srq, struct eng_srq, pub)->srq;
	} else {
		init->max_recv_wr = karst_pow2_ceil(in->max_recv_wr);
		init->max_recv_sge = in->max_recv_sge != 0 ? in->max_recv_sge : 1;
	}
	return 0;
}

/* Allocates the rings of a QP. */
static int
rings_alloc(struct karst_engine_owner *owner, struct karst_qp_init *init, uint8_t **rings,
	size_t *bytes)
{
	size_t sq, rq = 0;

	*rings = NULL;
	*bytes = 0;
	if (init->type == KARST_QPT_XRC_RECV)
		return 0;
	sq = karst_wq_bytes(
		init->max_send_wr, karst_wq_stride(true, init->max_send_sge, init->max_inline));
	sq = (sq + KARST_CACHE_LINE - 1) & ~(size_t)(KARST_CACHE_LINE - 1);
	if (init->max_recv_wr != 0)
		rq = karst_wq_bytes(
			init->max_recv_wr, karst_wq_stride(false, init->max_recv_sge, 0));
	*bytes = sq + rq;
	*rings = eng_owner_rings_alloc(owner, sq + rq);
	if (*rings == NULL)
		return -ENOMEM;
	init->sq_shared = *rings;
	init->rq_shared = rq != 0 ? *rings + sq : NULL;
	return 0;
}

/* Allocates a QP and its rings.  -EINVAL: @init is out of range. */
static int
qp_alloc(struct karst_engine *e, struct karst_engine_owner *owner, struct karst_qp_init *init,
	struct eng_qp **out)
{
	size_t ring_bytes, qp_bytes, self;
	struct eng_qp *q = NULL;
	uint8_t *rings;
	int ret;

	ret = rings_alloc(owner, init, &rings, &ring_bytes);
	if (ret != 0)
		return ret;
	/* a target belongs to several handles, none of which could provide the memory later */
	init->pacer =
		init->type == KARST_QPT_XRC_RECV || e->congestion.mode != KARST_CONGESTION_OFF;
	qp_bytes = karst_qp_bytes(init);
	self = init->type == KARST_QPT_XRC_RECV ? sizeof(*q) : sizeof(*q) + qp_bytes;
	if (qp_bytes != 0)
		q = eng_arena_alloc(&e->objects, self);
	if (q != NULL)
		q->core_mem = self == sizeof(*q) ? eng_arena_alloc(&e->objects, qp_bytes) : q + 1;
	if (q == NULL || q->core_mem == NULL) {
		if (q != NULL)
			eng_arena_free(&e->objects, q, self);
		if (rings != NULL)
			eng_arena_free(&owner->rings, rings, ring_bytes);
		return qp_bytes == 0 ? -EINVAL : -ENOMEM;
	}
	karst_qp_prepare(q->core_mem, init);
	q->core_bytes = qp_bytes;
	q->pacer = init->pacer;
	q->same = q;
	q->self_bytes = self;
	q->ring_bytes = ring_bytes;
	q->rings = rings;
	q->owner = owner;
	init->user = q;
	init->ringer = owner;
	init->sharer = owner->sharer;
	*out = q;
	return 0;
}

static void
qp_free(struct karst_engine *e, struct eng_qp *q)
{
	if (q->rings != NULL)
		eng_arena_free(&q->owner->rings, q->rings, q->ring_bytes);
	if (q->repeat_mem != NULL)
		eng_arena_free(&e->objects, q->repeat_mem, karst_repeat_bytes(ENG_REPEAT_WINDOW));
	if (q->pacer_mem != NULL)
		eng_arena_free(&e->objects, q->pacer_mem, karst_qp_pacer_bytes());
	if (q->alternate_mem != NULL)
		eng_arena_free(&e->objects, q->alternate_mem, karst_qp_alternate_bytes());
	if (q->core_mem != q + 1)
		eng_arena_free(&e->objects, q->core_mem, q->core_bytes);
	eng_arena_free(&e->objects, q, q->self_bytes);
}

void
eng_qp_set_doorbell(struct eng_qp *q, uint32_t lcore)
{
	q->pub.bell = q->owner->doorbell[lcore].bell;
	q->pub.bell_mask = q->owner->bell_cells - 1;
	q->pub.wake_fd = q->owner->doorbell[lcore].wake_fd;
}

/* Fills in the program's side of a QP that has just been created. */
static void
qp_attach(
	const struct eng_lcore *lc, struct eng_qp *q, const struct karst_qp_init *init, void *user)
{
	struct karst_engine_qp *pub = &q->pub;

	if (init->sq_shared != NULL)
		karst_wq_attach(&pub->sq, init->sq_shared, init->max_send_wr,
			karst_wq_stride(true, init->max_send_sge, init->max_inline));
	if (init->rq_shared != NULL)
		karst_wq_attach(&pub->rq, init->rq_shared, init->max_recv_wr,
			karst_wq_stride(false, init->max_recv_sge, 0));
	eng_qp_set_doorbell(q, lc->index);
	pub->num = karst_qp_num(q->qp);
	pub->lcore = lc->index;
	pub->pd = init->pd;
	pub->user = user;
}

/* Records the program of a queue pair by its number, for the watchdog.  Does so only if @from is
 * recorded there now. */
static void
name_program(const struct eng_qp *q, const struct karst_space *from, struct karst_space *to)
{
	struct karst_engine *e = q->owner->e;
	struct karst_space **of;

	of = &e->lcore[q->pub.lcore].space_of[q->pub.num >> e->lcore_bits];
	pthread_mutex_lock(&e->names_lock);
	if (*of == from)
		*of = to;
	pthread_mutex_unlock(&e->names_lock);
}

static struct karst_space *
program_of(const struct eng_qp *q)
{
	return atomic_load_explicit(&q->owner->space, memory_order_relaxed);
}

static int
qp_create(
	struct karst_engine *e, const struct karst_engine_qp_init *in, struct karst_engine_qp **qp)
{
	struct karst_engine_owner *owner = in->owner != NULL ? in->owner : e->self;
	bool target = in->type == KARST_QPT_XRC_RECV;
	uint32_t lcore, wanted = in->lcore, *home = NULL;
	struct karst_qp_init init;
	struct create_call call = {.init = &init};
	int ret;

	if ((in->type == KARST_QPT_XRC_RECV) != (in->xrcd != NULL))
		return -EINVAL;
	if (target)
		home = &in->xrcd->lcore;
	else if (in->srq != NULL)
		home = &in->srq->lcore;
	if (home != NULL && wanted == KARST_ENGINE_ANY_LCORE)
		wanted = *home;
	ret = eng_choose_lcore(e, wanted, &lcore);
	if (ret == 0 && home != NULL && *home != lcore)
		ret = -EINVAL;
	if (ret == 0)
		ret = qp_init_from(e, in, &init);
	if (ret == 0 && !target && !all_of(owner, in))
		ret = -EINVAL;
	if (ret == 0)
		ret = qp_alloc(e, owner, &init, &call.q);
	if (ret != 0)
		return ret;
	ret = target ? 0 : karst_pd_ref(e->mem, in->pd);
	if (ret == 0) {
		ret = eng_mailbox_call(&e->lcore[lcore], qp_create_on_lcore, &call);
		if (ret != 0 && !target)
			karst_pd_unref(e->mem, in->pd);
	}
	if (ret != 0) {
		qp_free(e, call.q);
		return ret;
	}
	qp_attach(&e->lcore[lcore], call.q, &init, in->user);
	name_program(call.q, NULL, program_of(call.q));
	call.q->xrcd = in->xrcd;
	if (target)
		eng_xrcd_get(in->xrcd);
	e->nqps[lcore]++;
	owner->nobjects++;
	*qp = &call.q->pub;
	return 0;
}

int
karst_engine_qp_create(struct karst_engine *e, const struct karst_engine_qp_init *init,
	struct karst_engine_qp **qp)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = qp_create(e, init, qp);
	eng_ctl_leave(e);
	return ret;
}

/* QPs of one lcore to destroy. */
struct destroy_call {
	struct karst_engine_qp *const *qps;
	uint32_t n;
	uint32_t left;       /* bit set of those that are not destroyed yet */
	unsigned int bursts; /* that they may still send, together */
	bool last;
};

static int
qps_destroy_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct destroy_call *call = arg;
	uint64_t until = engine_now(lc->e) + DESTROY_NS;
	uint32_t i;

	for (i = 0; i < call->n && (i == 0 || engine_now(lc->e) < until); i++) {
		struct eng_qp *q = karst_container_of(call->qps[i], struct eng_qp, pub);

		if ((call->left >> i & 1) == 0 || call->qps[i]->lcore != lc->index)
			continue;
		eng_bell_poll_of(lc, q->owner);
		if (eng_qp_part(lc, q)) {
			call->left &= ~(1u << i);
			continue;
		}
		if (eng_qp_send_first(lc, q, &call->bursts) && !call->last)
			continue;
		call->left &= ~(1u << i);
		karst_qp_destroy(lc->core, q->qp);
	}
	return 0;
}

/* Frees what remains of a QP after its lcore has removed it. */
static void
qp_release(struct karst_engine *e, struct karst_engine_qp *qp)
{
	struct eng_qp *q = karst_container_of(qp, struct eng_qp, pub);

	/* before its number is reused, and before its program can go */
	name_program(q, program_of(q), NULL);
	if (q->qp == NULL) {
		/* other handles remain */
		q->core_mem = q + 1;
	} else {
		/* Still under ctl_lock, so its number has not been reused yet. */
		karst_mw_release_qp(e->mem, qp->num);
		if (q->xrcd == NULL)
			karst_pd_unref(e->mem, qp->pd);
		e->nqps[qp->lcore]--;
	}
	q->owner->nobjects--;
	if (q->xrcd != NULL)
		eng_xrcd_put(e, q->xrcd);
	qp_free(e, q);
}

static void
destroy_some(struct karst_engine *e, struct karst_engine_qp *const *qps, uint32_t n)
{
	struct destroy_call call = {.qps = qps,
		.n = n,
		.left = (uint32_t)((1ull << n) - 1),
		.bursts = ENG_SEND_FIRST * n};
	struct eng_tries tries = {0};
	uint64_t lcores;
	uint32_t i;

	eng_mcast_forget(e, qps, n);
	for (;;) {
		for (lcores = i = 0; i < n; i++)
			lcores |= (uint64_t)(call.left >> i & 1) << qps[i]->lcore;
		if (lcores == 0)
			break;
		for (; lcores != 0; lcores &= lcores - 1)
			eng_mailbox_call(
				&e->lcore[__builtin_ctzll(lcores)], qps_destroy_on_lcore, &call);
		if (call.left != 0)
			call.last = !eng_qp_try_again(e, &tries);
	}
	for (i = 0; i < n; i++)
		qp_release(e, qps[i]);
}

int
karst_engine_qp_destroy_many(struct karst_engine *e, struct karst_engine_qp *const *qps, uint32_t n)
{
	uint32_t i;
	int ret;

	/* release the lock for others between two steps */
	for (i = 0; i < n; i += DESTROY_AT_ONCE) {
		ret = eng_ctl_enter(e);
		if (ret != 0)
			return ret;
		destroy_some(e, qps + i, karst_min_u32(n - i, DESTROY_AT_ONCE));
		eng_ctl_leave(e);
	}
	return 0;
}

int
karst_engine_qp_destroy(struct karst_engine *e, struct karst_engine_qp *qp)
{
	return karst_engine_qp_destroy_many(e, &qp, 1);
}
