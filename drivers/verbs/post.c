/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Posting lists.  Requests are written straight from the program's structures into the slots of the
 * ring; a list is published by one store and, if the engine is not looking, one bell.  What is
 * wrong with a request is found before it is published, so those before it are posted and it is
 * not.
 */
#include "provider.h"

#include <arpa/inet.h>
#include <string.h>

#include "karst_wr.h"

#define SEND_FLAGS (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE)

/* SGEs are copied as they are. */
static_assert(sizeof(struct ibv_sge) == sizeof(struct karst_sge) &&
		offsetof(struct ibv_sge, length) == offsetof(struct karst_sge, len) &&
		offsetof(struct ibv_sge, lkey) == offsetof(struct karst_sge, lkey),
	"layout");

/* --- one request --- */

static int
put_inline(struct karst_send_wqe *w, const struct ibv_send_wr *wr, uint32_t max)
{
	uint32_t n = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];

		if (karst_unlikely(s->length > max - n))
			return ENOMEM;
		memcpy(w->inline_data + n, (const void *)(uintptr_t)s->addr, s->length);
		n += s->length;
	}
	w->num = (uint16_t)n;
	return 0;
}

static int
put_payload(struct karst_send_wqe *w, const struct ibv_send_wr *wr, const struct karst_wr_op *op,
	const struct karst_qp_cap *cap)
{
	if (wr->send_flags & IBV_SEND_INLINE)
		return op->inlined ? put_inline(w, wr, cap->max_inline_data) : EINVAL;
	if (karst_unlikely((uint32_t)wr->num_sge > cap->max_send_sge))
		return EINVAL;
	w->num = (uint16_t)wr->num_sge;
	if (karst_likely(wr->num_sge == 1))
		memcpy(w->sge, wr->sg_list, sizeof(w->sge[0]));
	else if (wr->num_sge > 0)
		memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(w->sge[0]));
	return 0;
}

static int
put_atomic(struct karst_send_wqe *w, const struct ibv_send_wr *wr)
{
	if (karst_unlikely(wr->num_sge != 1 || (wr->send_flags & IBV_SEND_INLINE)))
		return EINVAL;
	w->rdma.remote_addr = wr->wr.atomic.remote_addr;
	w->rdma.rkey = wr->wr.atomic.rkey;
	w->atomic.compare_add = wr->wr.atomic.compare_add;
	w->atomic.swap = wr->wr.atomic.swap;
	w->num = 1;
	memcpy(w->atomic.sge, wr->sg_list, sizeof(w->atomic.sge[0]));
	return 0;
}

static int
put_bind(struct karst_send_wqe *w, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *b = &wr->bind_mw.bind_info;

	if (wr->bind_mw.mw == NULL || wr->bind_mw.mw->type != IBV_MW_TYPE_2 ||
		(b->mr == NULL && b->length != 0))
		return EINVAL;
	w->num = 0;
	w->bind.addr = b->addr;
	w->bind.len = b->length;
	w->bind.mw_key = wr->bind_mw.mw->rkey;
	w->bind.new_key = wr->bind_mw.rkey;
	w->bind.mr_key = b->mr != NULL ? b->mr->lkey : 0;
	w->bind.access = kv_window_access(b->mw_access_flags);
	return 0;
}

static inline int
put(const struct kv_qp *qp, struct karst_send_wqe *w, const struct ibv_send_wr *wr)
{
	const struct karst_qp *k = qp->karst;
	const struct karst_wr_op *op = karst_wr_op(wr->opcode, k->qp_type);
	bool inv = wr->opcode == IBV_WR_SEND_WITH_INV || wr->opcode == IBV_WR_LOCAL_INV;

	if (karst_unlikely(op == NULL || (wr->send_flags & ~(unsigned int)SEND_FLAGS)))
		return EINVAL;
	w->wr_id = wr->wr_id;
	w->opcode = (uint8_t)wr->opcode;
	w->flags = (uint8_t)wr->send_flags;
	w->imm = inv ? wr->invalidate_rkey : ntohl(wr->imm_data);
	if (k->qp_type == KARST_QPT_XRC_SEND)
		w->rdma.srqn = wr->qp_type.xrc.remote_srqn;
	switch ((enum karst_wr_shape)op->shape) {
	case KARST_WR_SHAPE_RDMA:
		w->rdma.remote_addr = wr->wr.rdma.remote_addr;
		w->rdma.rkey = wr->wr.rdma.rkey;
		return put_payload(w, wr, op, &k->cap);
	case KARST_WR_SHAPE_SEND:
		if (k->qp_type == KARST_QPT_UD) {
			if (karst_unlikely(wr->wr.ud.ah == NULL))
				return EINVAL;
			w->ud.ah = wr->wr.ud.ah->handle;
			w->ud.remote_qpn = wr->wr.ud.remote_qpn;
			w->ud.remote_qkey = wr->wr.ud.remote_qkey;
		}
		return put_payload(w, wr, op, &k->cap);
	case KARST_WR_SHAPE_ATOMIC:
		return put_atomic(w, wr);
	case KARST_WR_SHAPE_INV:
		w->num = 0;
		return 0;
	case KARST_WR_SHAPE_BIND:
		return put_bind(w, wr);
	default:
		return EINVAL;
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

	/* Error, drained, error of the send queue: posted all the same, and flushed or kept */
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
		ret = put(qp, karst_wq_slot(sq, n), wr);
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

/* @return 0, or what is wrong with *@wr, which is the first that was not posted. */
static int
post_recvs(struct karst_wq *rq, uint32_t max_sge, struct ibv_recv_wr **wr, bool *ring)
{
	uint32_t n = 0, room = 0;
	int ret = 0;

	for (; *wr != NULL; *wr = (*wr)->next) {
		struct karst_recv_wqe *w;

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
		w = karst_wq_slot(rq, n++);
		w->wr_id = (*wr)->wr_id;
		w->num_sge = (uint32_t)(*wr)->num_sge;
		if ((*wr)->num_sge > 0)
			memcpy(w->sge, (*wr)->sg_list, (size_t)(*wr)->num_sge * sizeof(w->sge[0]));
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

	/* a queue pair with a shared receive queue, or that only sends, has none of its own */
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
	/* nobody sleeps over a shared receive queue: the engine looks when a message comes */
	return kv_errno(ret);
}
