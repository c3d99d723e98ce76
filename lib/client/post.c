/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Posting lists of work requests: each is checked and written straight into its slot, and all of a
 * list are published by one store.  The engine checks again what it must; here is checked what
 * verbs refuse at once, so that the caller learns it from the call.
 */
#include "client_priv.h"

#include <errno.h>
#include <unistd.h>

#include "karst_wr.h"

#define SEND_FLAGS \
	(KARST_SEND_FENCE | KARST_SEND_SIGNALED | KARST_SEND_SOLICITED | KARST_SEND_INLINE)

uint8_t
cli_wc_opcode(uint8_t wr_opcode)
{
	return wr_opcode < KARST_WR_MAX ? karst_wr_ops[wr_opcode].wc : KARST_WC_SEND;
}

/* --- one request --- */

static int
put_inline(struct karst_send_wqe *w, const struct karst_send_wr *wr, uint32_t max)
{
	uint32_t i, n = 0;

	for (i = 0; i < wr->num_sge; i++) {
		const struct karst_sge *s = &wr->sg_list[i];

		if (karst_unlikely(s->len > max - n))
			return cli_fail_const(
				-EINVAL, "more inline data than max_inline_data of the queue pair");
		memcpy(w->inline_data + n, (const void *)(uintptr_t)s->addr, s->len);
		n += s->len;
	}
	w->num = (uint16_t)n;
	return 0;
}

static int
put_payload(struct karst_send_wqe *w, const struct karst_send_wr *wr, const struct karst_wr_op *op,
	const struct karst_qp_cap *cap)
{
	if (wr->send_flags & KARST_SEND_INLINE) {
		if (karst_unlikely(!op->inlined))
			return cli_fail_const(
				-EINVAL, "inline data with an operation that fetches data");
		return put_inline(w, wr, cap->max_inline_data);
	}
	if (karst_unlikely(wr->num_sge > cap->max_send_sge))
		return cli_fail_const(-EINVAL, "more pieces than max_send_sge of the queue pair");
	w->num = (uint16_t)wr->num_sge;
	if (wr->num_sge > 0)
		memcpy(w->sge, wr->sg_list, wr->num_sge * sizeof(w->sge[0]));
	return 0;
}

static int
put_atomic(struct karst_send_wqe *w, const struct karst_send_wr *wr)
{
	if (karst_unlikely(wr->num_sge > 1 || (wr->send_flags & KARST_SEND_INLINE)))
		return cli_fail_const(
			-EINVAL, "an atomic operation needs one piece, of 8 bytes, not inline");
	w->rdma.remote_addr = wr->atomic.remote_addr;
	w->rdma.rkey = wr->atomic.rkey;
	w->atomic.compare_add = wr->atomic.compare_add;
	w->atomic.swap = wr->atomic.swap;
	w->num = (uint16_t)wr->num_sge;
	if (wr->num_sge > 0)
		w->atomic.sge[0] = wr->sg_list[0];
	return 0;
}

static int
put_address(struct karst_send_wqe *w, const struct karst_send_wr *wr, const struct cli_qp *q)
{
	if (karst_unlikely(wr->ud.ah == NULL || wr->ud.ah->context != q->pub.context))
		return cli_fail_const(-EINVAL, "a datagram needs an address handle of its context");
	w->ud.ah = wr->ud.ah->handle;
	w->ud.remote_qpn = wr->ud.remote_qpn;
	w->ud.remote_qkey = wr->ud.remote_qkey;
	return 0;
}

static void
put_bind(struct karst_send_wqe *w, const struct karst_send_wr *wr, uint32_t new_key)
{
	w->num = 0;
	w->bind.addr = wr->bind_mw.addr;
	w->bind.len = wr->bind_mw.length;
	w->bind.mw_key = wr->bind_mw.mw->rkey;
	w->bind.new_key = new_key;
	w->bind.mr_key = wr->bind_mw.mr != NULL ? wr->bind_mw.mr->lkey : 0;
	w->bind.access = wr->bind_mw.access;
}

static int
check_bind(const struct karst_send_wr *wr, enum karst_mw_type type)
{
	if (wr->bind_mw.mw == NULL || (wr->bind_mw.mr == NULL && wr->bind_mw.length != 0))
		return cli_fail_const(-EINVAL, "a bind needs a window and a region");
	if (wr->bind_mw.mw->type != type)
		return cli_fail_const(-EINVAL,
			"type 1 windows are bound by karst_bind_mw(), type 2 by KARST_WR_BIND_MW");
	return 0;
}

static int
put_body(const struct cli_qp *q, struct karst_send_wqe *w, const struct karst_send_wr *wr,
	const struct karst_wr_op *op, enum karst_mw_type window)
{
	int ret = 0;

	switch ((enum karst_wr_shape)op->shape) {
	case KARST_WR_SHAPE_RDMA:
		w->rdma.remote_addr = wr->rdma.remote_addr;
		w->rdma.rkey = wr->rdma.rkey;
		return put_payload(w, wr, op, &q->pub.cap);
	case KARST_WR_SHAPE_SEND:
		if (q->pub.qp_type == KARST_QPT_UD)
			ret = put_address(w, wr, q);
		return ret != 0 ? ret : put_payload(w, wr, op, &q->pub.cap);
	case KARST_WR_SHAPE_ATOMIC:
		return put_atomic(w, wr);
	case KARST_WR_SHAPE_INV:
		w->num = 0;
		return 0;
	case KARST_WR_SHAPE_BIND:
		ret = check_bind(wr, window);
		if (ret == 0)
			put_bind(w, wr, wr->bind_mw.rkey);
		return ret;
	default:
		return cli_fail_const(-EINVAL, "no such operation");
	}
}

static int
put_send(const struct cli_qp *q, struct karst_send_wqe *w, const struct karst_send_wr *wr,
	enum karst_mw_type window)
{
	const struct karst_wr_op *op = karst_wr_op(wr->opcode, q->pub.qp_type);
	bool inv;

	if (karst_unlikely(op == NULL))
		return cli_fail(-EINVAL, "operation %u on a queue pair of type %u",
			(unsigned int)wr->opcode, (unsigned int)q->pub.qp_type);
	if (karst_unlikely(wr->send_flags & ~(unsigned int)SEND_FLAGS))
		return cli_fail(
			-EINVAL, "send_flags %#x; known are %#x", wr->send_flags, SEND_FLAGS);
	inv = wr->opcode == KARST_WR_SEND_WITH_INV || wr->opcode == KARST_WR_LOCAL_INV;
	w->wr_id = wr->wr_id;
	w->opcode = (uint8_t)wr->opcode;
	w->flags = (uint8_t)wr->send_flags;
	w->imm = inv ? wr->invalidate_rkey : wr->imm_data;
	if (karst_unlikely(q->pub.qp_type == KARST_QPT_XRC_SEND)) {
		if (wr->remote_srqn > 0xffffff)
			return cli_fail(-EINVAL, "remote_srqn %#x: 24 bits", wr->remote_srqn);
		w->rdma.srqn = wr->remote_srqn;
	}
	return put_body(q, w, wr, op, window);
}

/* --- lists --- */

/* Error, drained, error of the send queue: posted all the same, and flushed or kept. */
static int
check_state(const struct cli_qp *q, enum karst_qp_state least)
{
	if (cli_forked(cli_of(q->pub.context)))
		return cli_fail_forked();
	if (karst_likely(atomic_load_explicit(&q->state, memory_order_relaxed) >= (uint32_t)least))
		return 0;
	return least == KARST_QPS_RTS
		? cli_fail_const(-EINVAL, "sends can be posted from state RTS on")
		: cli_fail_const(-EINVAL, "receives can be posted from state INIT on");
}

static int
post_sends(struct cli_qp *q, const struct karst_send_wr *wr, const struct karst_send_wr **bad,
	enum karst_mw_type window)
{
	struct karst_wq *sq = &q->pub.sq;
	uint32_t n = 0, room = 0;
	bool ring = false;
	int ret = 0;

	karst_lock(&q->send_lock);
	for (; wr != NULL; wr = wr->next) {
		if (n == room) {
			room = karst_wq_free(sq, n + 1);
			if (room <= n) {
				ret = cli_fail_const(-ENOMEM, "the send queue is full");
				break;
			}
		}
		ret = put_send(q, karst_wq_slot(sq, n), wr, window);
		if (karst_unlikely(ret != 0))
			break;
		n++;
	}
	if (karst_likely(n > 0))
		ring = karst_wq_publish(sq, n);
	karst_unlock(&q->send_lock);
	if (ret != 0 && bad != NULL)
		*bad = wr;
	if (ring)
		karst_ring_bell(&q->pub);
	return ret;
}

int
karst_post_send(
	struct karst_qp *qp, const struct karst_send_wr *wr, const struct karst_send_wr **bad)
{
	struct cli_qp *q = cli_qp_of(qp);
	int ret = check_state(q, KARST_QPS_RTS);

	if (karst_unlikely(ret != 0)) {
		if (bad != NULL)
			*bad = wr;
		return ret;
	}
	return post_sends(q, wr, bad, KARST_MW_TYPE_2);
}

int
karst_bind_mw(struct karst_qp *qp, struct karst_mw *mw, uint64_t wr_id, unsigned int send_flags,
	const struct karst_mw_bind_info *bind)
{
	struct cli_qp *q = cli_qp_of(qp);
	struct karst_send_wr wr = {
		.wr_id = wr_id,
		.opcode = KARST_WR_BIND_MW,
		.send_flags = send_flags,
		.bind_mw = {.mw = mw,
			.mr = bind->mr,
			.addr = bind->addr,
			.length = bind->length,
			.rkey = karst_inc_rkey(mw->rkey),
			.access = bind->access},
	};
	int ret = check_state(q, KARST_QPS_RTS);

	if (ret == 0)
		ret = post_sends(q, &wr, NULL, KARST_MW_TYPE_1);
	if (ret == 0)
		mw->rkey = wr.bind_mw.rkey;
	return ret;
}

static int
post_recvs(struct karst_wq *wq, struct karst_lock *lock, uint32_t max_sge,
	const struct karst_recv_wr *wr, const struct karst_recv_wr **bad, bool *ring)
{
	uint32_t n = 0, room = 0;
	int ret = 0;

	karst_lock(lock);
	for (; wr != NULL; wr = wr->next) {
		struct karst_recv_wqe *w;

		if (karst_unlikely(wr->num_sge > max_sge)) {
			ret = cli_fail_const(-EINVAL, "more pieces than max_recv_sge of the queue");
			break;
		}
		if (n == room) {
			room = karst_wq_free(wq, n + 1);
			if (room <= n) {
				ret = cli_fail_const(-ENOMEM, "the receive queue is full");
				break;
			}
		}
		w = karst_wq_slot(wq, n++);
		w->wr_id = wr->wr_id;
		w->num_sge = wr->num_sge;
		if (wr->num_sge > 0)
			memcpy(w->sge, wr->sg_list, wr->num_sge * sizeof(w->sge[0]));
	}
	*ring = n > 0 && karst_wq_publish(wq, n);
	karst_unlock(lock);
	if (ret != 0 && bad != NULL)
		*bad = wr;
	return ret;
}

int
karst_post_recv(
	struct karst_qp *qp, const struct karst_recv_wr *wr, const struct karst_recv_wr **bad)
{
	struct cli_qp *q = cli_qp_of(qp);
	bool ring;
	int ret = check_state(q, KARST_QPS_INIT);

	if (ret == 0 && (qp->srq != NULL || qp->recv_cq == NULL))
		ret = cli_fail_const(-EINVAL,
			qp->srq != NULL ? "a queue pair with a shared receive queue: post there"
					: "a queue pair of an XRC type has no receive queue");
	if (karst_unlikely(ret != 0)) {
		if (bad != NULL)
			*bad = wr;
		return ret;
	}
	ret = post_recvs(&qp->rq, &q->recv_lock, qp->cap.max_recv_sge, wr, bad, &ring);
	if (karst_unlikely(ring))
		karst_ring_bell(qp);
	return ret;
}

int
karst_post_srq_recv(
	struct karst_srq *srq, const struct karst_recv_wr *wr, const struct karst_recv_wr **bad)
{
	struct cli_srq *s = cli_srq_of(srq);
	bool ring;

	if (cli_forked(cli_of(srq->context))) {
		if (bad != NULL)
			*bad = wr;
		return cli_fail_forked();
	}
	/* nobody sleeps over a shared receive queue: the engine looks when a message comes */
	return post_recvs(&srq->rq, &s->lock, srq->max_sge, wr, bad, &ring);
}

/* --- the bell --- */

int
karst_ring_bell(struct karst_qp *qp)
{
	static const uint64_t one = 1;
	ssize_t n;
	int ret;

	if (cli_forked(cli_of(qp->context)))
		return cli_fail_forked();
	ret = karst_bell_ring(qp->bell, qp->bell_mask, qp->qp_num);
	if (karst_unlikely(ret != 0))
		return cli_fail_const(-EIO, "the doorbell ring is full: it has been written to");
	if (karst_unlikely(karst_bell_must_wake(qp->bell))) {
		/* it cannot fail but for a count that is high already */
		n = write(qp->wake_fd, &one, sizeof(one));
		(void)n;
	}
	return 0;
}
