/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Posting by ibv_wr_*() calls.  ibv_wr_start() takes the lock of the send queue, ibv_wr_complete()
 * or ibv_wr_abort() releases it.  In between, requests are built in the free slots of the ring.
 * The engine does not see them until all are published together, so aborting needs no cleanup, and
 * the first error makes all of them fail.
 */
#include "post.h"

#include <arpa/inet.h>

static struct kv_qp *
qp_of(struct ibv_qp_ex *ex)
{
	return karst_container_of(ex, struct kv_qp, vqp.qp_ex);
}

static void
wr_fail(struct kv_qp *qp, int error)
{
	if (qp->wr_error == 0)
		qp->wr_error = error;
}

/* --- begin, end --- */

/* Where setters write if the request has no slot; never published. */
static __thread union {
	struct karst_send_wqe wqe;
	uint8_t bytes[KARST_SEND_WQE_HDR + KARST_WQ_MAX_INLINE];
} nowhere;

static void
wr_start(struct ibv_qp_ex *ex)
{
	struct kv_qp *qp = qp_of(ex);

	if (!qp->single)
		karst_lock(&qp->send_lock);
	qp->nwqes = 0;
	qp->wqe = &nowhere.wqe;
	qp->wr_error = ex->qp_base.state < IBV_QPS_RTS ? EINVAL : 0;
}

static int
wr_complete(struct ibv_qp_ex *ex)
{
	struct kv_qp *qp = qp_of(ex);
	bool ring = false;
	int ret = qp->wr_error;

	if (karst_likely(ret == 0 && qp->nwqes > 0))
		ring = karst_wq_publish(&qp->karst->sq, qp->nwqes);
	if (!qp->single)
		karst_unlock(&qp->send_lock);
	if (ring)
		karst_ring_bell(qp->karst);
	return kv_errno(ret);
}

static void
wr_abort(struct ibv_qp_ex *ex)
{
	struct kv_qp *qp = qp_of(ex);

	if (!qp->single)
		karst_unlock(&qp->send_lock);
}

/* --- requests --- */

static struct karst_send_wqe *
wr_next(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t imm)
{
	struct kv_qp *qp = qp_of(ex);
	struct karst_wq *sq = &qp->karst->sq;

	if (karst_unlikely(ex->wr_flags & ~(unsigned int)KARST_WR_FLAGS))
		wr_fail(qp, EINVAL);
	if (karst_unlikely(karst_wq_free(sq, qp->nwqes + 1) <= qp->nwqes)) {
		wr_fail(qp, ENOMEM);
		qp->wqe = &nowhere.wqe;
	} else {
		qp->wqe = karst_wq_slot(sq, qp->nwqes++);
	}
	/* ibv_wr_set_inline_data() marks inline data, not the program's flag */
	karst_wr_put_header(
		qp->wqe, ex->wr_id, opcode, ex->wr_flags & ~(unsigned int)IBV_SEND_INLINE, imm);
	qp->wqe->num = 0;
	return qp->wqe;
}

static void
wr_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t imm, uint32_t rkey,
	uint64_t remote_addr)
{
	karst_wr_put_rdma(wr_next(ex, opcode, imm), remote_addr, rkey);
}

static void
wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE, 0, rkey, remote_addr);
}

static void
wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, __be32 imm)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, ntohl(imm), rkey, remote_addr);
}

static void
wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	wr_rdma(ex, IBV_WR_RDMA_READ, 0, rkey, remote_addr);
}

static void
wr_atomic_cmp_swp(
	struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t compare, uint64_t swap)
{
	wr_rdma(ex, IBV_WR_ATOMIC_CMP_AND_SWP, 0, rkey, remote_addr);
	karst_wr_put_atomic(qp_of(ex)->wqe, compare, swap);
}

static void
wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t add)
{
	wr_rdma(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, rkey, remote_addr);
	karst_wr_put_atomic(qp_of(ex)->wqe, add, 0);
}

static void
wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, const void *atomic_wr)
{
	struct kv_qp *qp = qp_of(ex);
	uint32_t max = qp->karst->cap.max_inline_data;

	wr_rdma(ex, IBV_WR_ATOMIC_WRITE, 0, rkey, remote_addr);
	if (karst_unlikely(karst_wr_put_inline(qp->wqe, max, atomic_wr, KV_ATOMIC_WRITE_BYTES) !=
		    KARST_WR_OK)) {
		wr_fail(qp, EINVAL); /* created without IBV_QP_EX_WITH_ATOMIC_WRITE */
		return;
	}
	qp->wqe->flags |= KARST_SEND_INLINE;
}

static void
wr_send(struct ibv_qp_ex *ex)
{
	wr_next(ex, IBV_WR_SEND, 0);
}

static void
wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	wr_next(ex, IBV_WR_SEND_WITH_IMM, ntohl(imm));
}

static void
wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	wr_next(ex, IBV_WR_SEND_WITH_INV, rkey);
}

static void
wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	wr_next(ex, IBV_WR_LOCAL_INV, rkey);
}

static void
wr_bind_mw(
	struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct karst_send_wqe *w = wr_next(ex, IBV_WR_BIND_MW, 0);

	if (mw == NULL || mw->type != IBV_MW_TYPE_2 || (info->mr == NULL && info->length != 0)) {
		wr_fail(qp_of(ex), EINVAL);
		return;
	}
	karst_wr_put_bind(w, info->addr, info->length, mw->rkey, rkey,
		info->mr != NULL ? info->mr->lkey : 0, kv_window_access(info->mw_access_flags));
}

/* --- setters of a request --- */

static void
wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct kv_qp *qp = qp_of(ex);

	if (karst_unlikely(!kv_wr_ah_ok(qp, ah))) {
		wr_fail(qp, EINVAL);
		return;
	}
	karst_wr_put_ud(qp->wqe, ah->handle, remote_qpn, remote_qkey);
}

static void
wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t remote_srqn)
{
	qp_of(ex)->wqe->rdma.srqn = remote_srqn;
}

static void
wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *list)
{
	struct kv_qp *qp = qp_of(ex);
	const struct karst_wr_limits limits = kv_wr_limits(qp);
	int ret = kv_wr_errno(karst_wr_put_sge_list(qp->wqe, &limits, list, num_sge));

	if (karst_unlikely(ret != 0))
		wr_fail(qp, ret);
}

static void
wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	const struct ibv_sge sge = {addr, length, lkey};

	wr_set_sge_list(ex, 1, &sge);
}

static void
wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf, const struct ibv_data_buf *list)
{
	struct kv_qp *qp = qp_of(ex);
	uint32_t max = qp->karst->cap.max_inline_data;
	enum karst_wr_error error = KARST_WR_OK;
	size_t i;

	if (karst_unlikely(!karst_wr_ops[qp->wqe->opcode].inlined)) {
		wr_fail(qp, EINVAL);
		return;
	}
	qp->wqe->num = 0;
	for (i = 0; i < num_buf && error == KARST_WR_OK; i++)
		error = karst_wr_put_inline(qp->wqe, max, list[i].addr, list[i].length);
	if (karst_unlikely(error != KARST_WR_OK)) {
		wr_fail(qp, kv_wr_errno(error));
		return;
	}
	qp->wqe->flags |= KARST_SEND_INLINE;
}

static void
wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	const struct ibv_data_buf buf = {addr, length};

	wr_set_inline_data_list(ex, 1, &buf);
}

/* --- which calls a queue pair has --- */

static const struct {
	uint64_t flag; /* enum ibv_qp_create_send_ops_flags */
	enum ibv_wr_opcode opcode;
} flags[] = {
	{IBV_QP_EX_WITH_RDMA_WRITE, IBV_WR_RDMA_WRITE},
	{IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM},
	{IBV_QP_EX_WITH_SEND, IBV_WR_SEND},
	{IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM},
	{IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ},
	{IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP},
	{IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD},
	{IBV_QP_EX_WITH_LOCAL_INV, IBV_WR_LOCAL_INV},
	{IBV_QP_EX_WITH_BIND_MW, IBV_WR_BIND_MW},
	{IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_SEND_WITH_INV},
	{IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_WR_ATOMIC_WRITE},
};

int
kv_set_wr_ops(struct kv_qp *qp, uint64_t ops)
{
	struct ibv_qp_ex *ex = &qp->vqp.qp_ex;
	uint64_t has = 0;
	unsigned int i;

	for (i = 0; i < KARST_DIM(flags); i++)
		if (karst_wr_op(flags[i].opcode, qp->vqp.qp.qp_type) != NULL)
			has |= flags[i].flag;
	if (ops & ~has)
		return EOPNOTSUPP;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_atomic_write = wr_atomic_write;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	if (qp->vqp.qp.qp_type == IBV_QPT_UD)
		ex->wr_set_ud_addr = wr_set_ud_addr;
	if (qp->vqp.qp.qp_type == IBV_QPT_XRC_SEND)
		ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	return 0;
}
