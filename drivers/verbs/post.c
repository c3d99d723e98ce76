/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Posting lists.  Requests are written directly from the program's structures into the slots of the
 * ring.  A list is published by one store and, if the engine does not poll the queue, one doorbell.
 * An invalid request is found before it is published: the requests before it are posted, it and
 * those after it are not.
 */
#include "post.h"

#include <arpa/inet.h>

/* SGEs are copied as they are. */
static_assert(sizeof(struct ibv_sge) == sizeof(struct karst_sge) &&
		offsetof(struct ibv_sge, length) == offsetof(struct karst_sge, len) &&
		offsetof(struct ibv_sge, lkey) == offsetof(struct karst_sge, lkey),
	"layout");

static_assert(KARST_WR_FLAGS ==
		(IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE),
	"flags");

/* --- one request --- */

static int
wr_set_bind(struct karst_wr *k, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *b = &wr->bind_mw.bind_info;

	if (wr->bind_mw.mw == NULL || wr->bind_mw.mw->type != IBV_MW_TYPE_2 ||
		(b->mr == NULL && b->length != 0))
		return EINVAL;
	k->bind.addr = b->addr;
	k->bind.len = b->length;
	k->bind.mw_key = wr->bind_mw.mw->rkey;
	k->bind.new_key = wr->bind_mw.rkey;
	k->bind.mr_key = b->mr != NULL ? b->mr->lkey : 0;
	k->bind.access = kv_window_access(b->mw_access_flags);
	return 0;
}

static int
wr_set_ud(const struct kv_qp *qp, struct karst_wr *k, const struct ibv_send_wr *wr)
{
	if (karst_unlikely(!kv_wr_ah_ok(qp, wr->wr.ud.ah)))
		return EINVAL;
	k->ud.ah = wr->wr.ud.ah->handle;
	k->ud.remote_qpn = wr->wr.ud.remote_qpn;
	k->ud.remote_qkey = wr->wr.ud.remote_qkey;
	return 0;
}

static inline int
wr_encode(const struct kv_qp *qp, struct karst_send_wqe *w, const struct ibv_send_wr *wr)
{
	const uint32_t qp_type = qp->karst->qp_type;
	const struct karst_wr_op *op = karst_wr_op(wr->opcode, qp_type);
	struct karst_wr_limits limits;
	bool inv = wr->opcode == IBV_WR_SEND_WITH_INV || wr->opcode == IBV_WR_LOCAL_INV;
	struct karst_wr k;

	/* struct ibv_send_wr has no members for the parameters of a FLUSH */
	if (karst_unlikely(op == NULL || op->shape == KARST_WR_SHAPE_FLUSH))
		return EINVAL;
	k.wr_id = wr->wr_id;
	k.opcode = wr->opcode;
	k.flags = wr->send_flags;
	k.imm = inv ? wr->invalidate_rkey : ntohl(wr->imm_data);
	k.srqn = wr->qp_type.xrc.remote_srqn;
	if (karst_unlikely(karst_wr_encode_header(w, qp_type, &k) != KARST_WR_OK))
		return EINVAL;
	k.num_sge = (uint32_t)wr->num_sge;
	k.sges = wr->sg_list;
	limits = kv_wr_limits(qp);
	switch ((enum karst_wr_shape)op->shape) {
	case KARST_WR_SHAPE_RDMA:
		k.rdma.remote_addr = wr->wr.rdma.remote_addr;
		k.rdma.rkey = wr->wr.rdma.rkey;
		return kv_wr_errno(karst_wr_encode_body(w, &limits, &k, KARST_WR_SHAPE_RDMA));
	case KARST_WR_SHAPE_SEND:
		if (qp_type == KARST_QPT_UD && wr_set_ud(qp, &k, wr) != 0)
			return EINVAL;
		return kv_wr_errno(karst_wr_encode_body(w, &limits, &k, KARST_WR_SHAPE_SEND));
	case KARST_WR_SHAPE_ATOMIC:
		k.rdma.remote_addr = wr->wr.atomic.remote_addr;
		k.rdma.rkey = wr->wr.atomic.rkey;
		k.rdma.compare_add = wr->wr.atomic.compare_add;
		k.rdma.swap = wr->wr.atomic.swap;
		return kv_wr_errno(karst_wr_encode_body(w, &limits, &k, KARST_WR_SHAPE_ATOMIC));
	case KARST_WR_SHAPE_BIND:
		if (wr_set_bind(&k, wr) != 0)
			return EINVAL;
		return kv_wr_errno(karst_wr_encode_body(w, &limits, &k, KARST_WR_SHAPE_BIND));
	default:
		return kv_wr_errno(karst_wr_encode_body(w, &limits, &k, KARST_WR_SHAPE_INV));
	}
}

/* --- lists --- */

int
kv_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct kv_qp *qp = kv_qp_of(ibv);
	struct karst_wq *sq = &qp->karst->sq;
	uint32_t n = 0, room = 0;
	bool ring = false;
	int ret = 0;

	/* in the states SQD, SQE and ERR requests are posted too, and flushed or kept */
	if (karst_unlikely(ibv->state < IBV_QPS_RTS)) {
		*bad = wr;
		return kv_errno(EINVAL);
	}
	if (!qp->single)
		karst_lock(&qp->send_lock);
	for (; wr != NULL; wr = wr->next) {
		if (n == room) {
			room = karst_wq_free(sq, n + 1);
			if (room <= n) {
				ret = ENOMEM;
				break;
			}
		}
		ret = wr_encode(qp, karst_wq_slot(sq, n), wr);
		if (karst_unlikely(ret != 0))
			break;
		n++;
	}
	if (karst_likely(n > 0))
		ring = karst_wq_publish(sq, n);
	if (!qp->single)
		karst_unlock(&qp->send_lock);
	if (karst_unlikely(ret != 0))
		*bad = wr;
	if (ring)
		karst_ring_bell(qp->karst);
	return kv_errno(ret);
}

/* Posts the list at *@wr.  *@ring: the doorbell must be rung.
 * @return 0; a positive errno: *@wr is the first request that was not posted */
static int
post_recvs(struct karst_wq *rq, uint32_t max_sge, struct ibv_recv_wr **wr, bool *ring)
{
	uint32_t n = 0, room = 0;
	int ret = 0;

	for (; *wr != NULL; *wr = (*wr)->next) {
		if (karst_unlikely((uint32_t)(*wr)->num_sge > max_sge)) {
			ret = EINVAL;
			break;
		}
		if (n == room) {
			room = karst_wq_free(rq, n + 1);
			if (room <= n) {
				ret = ENOMEM;
				break;
			}
		}
		karst_wr_encode_recv(karst_wq_slot(rq, n++), (*wr)->wr_id, (*wr)->sg_list,
			(uint32_t)(*wr)->num_sge);
	}
	*ring = n > 0 && karst_wq_publish(rq, n);
	return ret;
}

int
kv_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct kv_qp *qp = kv_qp_of(ibv);
	bool ring;
	int ret;

	/* a queue pair with a shared receive queue, or that only sends, has no receive queue */
	if (karst_unlikely(ibv->state < IBV_QPS_INIT || qp->karst->rq.sh == NULL)) {
		*bad = wr;
		return kv_errno(EINVAL);
	}
	if (!qp->single)
		karst_lock(&qp->recv_lock);
	ret = post_recvs(&qp->karst->rq, qp->karst->cap.max_recv_sge, &wr, &ring);
	if (!qp->single)
		karst_unlock(&qp->recv_lock);
	if (karst_unlikely(ret != 0))
		*bad = wr;
	if (karst_unlikely(ring))
		karst_ring_bell(qp->karst);
	return kv_errno(ret);
}

int
kv_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct kv_srq *srq = kv_srq_of(ibv);
	bool ring;
	int ret;

	karst_lock(&srq->lock);
	ret = post_recvs(&srq->karst->rq, srq->karst->max_sge, &wr, &ring);
	karst_unlock(&srq->lock);
	if (karst_unlikely(ret != 0))
		*bad = wr;
	/* no doorbell: the engine reads a shared receive queue when a message arrives */
	return kv_errno(ret);
}
