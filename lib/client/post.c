/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Posts lists of work requests.  Each request is checked and written straight into its slot, and
 * one store publishes all requests of a list.  The engine repeats the checks that it depends on;
 * the checks here are those that verbs make in the call, so that the caller gets the error from the
 * call.
 */
#include "client_priv.h"

#include <errno.h>
#include <unistd.h>

#include "karst_wr.h"

uint8_t
cli_wc_opcode(uint8_t wr_opcode)
{
	return wr_opcode < KARST_WR_MAX ? karst_wr_ops[wr_opcode].wc : KARST_WC_SEND;
}

/* --- one request --- */

/* Sets the reason for karst_why(). */
karst_noinline static int
wr_refused(enum karst_wr_error error, const struct karst_send_wr *wr, const struct cli_qp *q)
{
	switch (error) {
	case KARST_WR_BAD_OPCODE:
		return cli_fail(-EINVAL, "opcode %u is not supported by queue pairs of type %u",
			wr->opcode, q->pub.qp_type);
	case KARST_WR_BAD_FLAGS:
		return cli_fail(-EINVAL, "send_flags %#x has unknown bits; known are %#x",
			wr->send_flags, KARST_WR_FLAGS);
	case KARST_WR_BAD_SRQN:
		return cli_fail(-EINVAL, "remote_srqn %#x exceeds 24 bits", wr->remote_srqn);
	case KARST_WR_BAD_NUM_SGE:
		if (karst_wr_ops[wr->opcode].shape == KARST_WR_SHAPE_ATOMIC)
			return cli_fail(-EINVAL,
				"num_sge %u: an atomic operation needs 1, of 8 bytes", wr->num_sge);
		if (karst_wr_ops[wr->opcode].shape == KARST_WR_SHAPE_FLUSH)
			return cli_fail(-EINVAL, "num_sge %u: a FLUSH has none", wr->num_sge);
		if (wr->send_flags & KARST_SEND_INLINE)
			return cli_fail(-EINVAL, "num_sge %u of inline data exceeds %u",
				wr->num_sge, KARST_WQ_MAX_SGE);
		return cli_fail(-EINVAL, "num_sge %u exceeds max_send_sge %u", wr->num_sge,
			q->pub.cap.max_send_sge);
	case KARST_WR_BAD_INLINE:
		return cli_fail(
			-EINVAL, "KARST_SEND_INLINE is not supported by opcode %u", wr->opcode);
	case KARST_WR_BAD_FLUSH:
		return cli_fail(-EINVAL,
			"flush.type %#x, flush.level %u: types are %#x, at least one, levels less than %u",
			wr->flush.type, wr->flush.level, KARST_FLUSH_TYPES, KARST_FLUSH_LEVELS);
	default:
		return cli_fail(-EINVAL, "inline data exceeds max_inline_data %u",
			q->pub.cap.max_inline_data);
	}
}

/* Fills in the window and region of a bind, which must exist.  Type 1 windows are bound by
 * karst_bind_mw() only. */
static int
wr_set_bind(struct karst_wr *k, const struct karst_send_wr *wr, enum karst_mw_type type)
{
	const struct karst_mw *mw = wr->bind_mw.mw;
	const struct karst_mr *mr = wr->bind_mw.mr;

	if (mw == NULL) {
		cli_fail_const(-EINVAL, "bind_mw.mw is NULL");
		return -EINVAL; /* the compiler does not know what cli_fail_const() returns */
	}
	if (mr == NULL && wr->bind_mw.length != 0) {
		cli_fail_const(-EINVAL, "bind_mw.mr is NULL and bind_mw.length is not 0");
		return -EINVAL;
	}
	if (mw->type != type) {
		cli_fail_const(-EINVAL,
			"type 1 windows are bound by karst_bind_mw(), type 2 by KARST_WR_BIND_MW");
		return -EINVAL;
	}
	k->bind.addr = wr->bind_mw.addr;
	k->bind.len = wr->bind_mw.length;
	k->bind.mw_key = mw->rkey;
	k->bind.new_key = wr->bind_mw.rkey;
	k->bind.mr_key = mr != NULL ? mr->lkey : 0;
	k->bind.access = wr->bind_mw.access;
	return 0;
}

static int
wr_set_ud(struct karst_wr *k, const struct karst_send_wr *wr, const struct cli_qp *q)
{
	if (karst_unlikely(wr->ud.ah == NULL || wr->ud.ah->context != q->pub.context)) {
		cli_fail_const(-EINVAL, "ud.ah is NULL or of another context than the queue pair");
		return -EINVAL;
	}
	k->ud.ah = wr->ud.ah->handle;
	k->ud.remote_qpn = wr->ud.remote_qpn;
	k->ud.remote_qkey = wr->ud.remote_qkey;
	return 0;
}

static inline int
wr_encode(const struct cli_qp *q, struct karst_send_wqe *w, const struct karst_send_wr *wr,
	enum karst_mw_type window)
{
	const uint32_t qp_type = q->pub.qp_type;
	const struct karst_wr_op *op = karst_wr_op(wr->opcode, qp_type);
	struct karst_wr_limits limits;
	bool inv = wr->opcode == KARST_WR_SEND_WITH_INV || wr->opcode == KARST_WR_LOCAL_INV;
	enum karst_wr_error error;
	struct karst_wr k;
	int ret = 0;

	k.wr_id = wr->wr_id;
	k.opcode = wr->opcode;
	k.flags = wr->send_flags;
	k.imm = inv ? wr->invalidate_rkey : wr->imm_data;
	k.srqn = wr->remote_srqn;
	error = karst_likely(op != NULL) ? karst_wr_encode_header(w, qp_type, &k)
					 : KARST_WR_BAD_OPCODE;
	if (karst_unlikely(error != KARST_WR_OK))
		return wr_refused(error, wr, q);
	k.num_sge = wr->num_sge;
	k.sges = wr->sg_list;
	limits = (struct karst_wr_limits){.qp_type = qp_type,
		.max_send_sge = q->pub.cap.max_send_sge,
		.max_inline_data = q->pub.cap.max_inline_data};
	switch ((enum karst_wr_shape)op->shape) {
	case KARST_WR_SHAPE_RDMA:
		k.rdma.remote_addr = wr->rdma.remote_addr;
		k.rdma.rkey = wr->rdma.rkey;
		error = karst_wr_encode_body(w, &limits, &k, KARST_WR_SHAPE_RDMA);
		break;
	case KARST_WR_SHAPE_SEND:
		if (qp_type == KARST_QPT_UD)
			ret = wr_set_ud(&k, wr, q);
		if (karst_unlikely(ret != 0))
			return ret;
		error = karst_wr_encode_body(w, &limits, &k, KARST_WR_SHAPE_SEND);
		break;
	case KARST_WR_SHAPE_ATOMIC:
		k.rdma.remote_addr = wr->atomic.remote_addr;
		k.rdma.rkey = wr->atomic.rkey;
		k.rdma.compare_add = wr->atomic.compare_add;
		k.rdma.swap = wr->atomic.swap;
		error = karst_wr_encode_body(w, &limits, &k, KARST_WR_SHAPE_ATOMIC);
		break;
	case KARST_WR_SHAPE_BIND:
		ret = wr_set_bind(&k, wr, window);
		if (ret != 0)
			return ret;
		error = karst_wr_encode_body(w, &limits, &k, KARST_WR_SHAPE_BIND);
		break;
	case KARST_WR_SHAPE_FLUSH:
		k.flush.remote_addr = wr->flush.remote_addr;
		k.flush.rkey = wr->flush.rkey;
		k.flush.len = wr->flush.length;
		k.flush.type = wr->flush.type;
		k.flush.level = wr->flush.level;
		error = karst_wr_encode_body(w, &limits, &k, KARST_WR_SHAPE_FLUSH);
		break;
	default:
		error = karst_wr_encode_body(w, &limits, &k, KARST_WR_SHAPE_INV);
		break;
	}
	return karst_likely(error == KARST_WR_OK) ? 0 : wr_refused(error, wr, q);
}

/* --- lists --- */

/* In SQD, SQE and ERR requests are posted all the same, and kept or flushed. */
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
		ret = wr_encode(q, karst_wq_slot(sq, n), wr, window);
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
		if (karst_unlikely(wr->num_sge > max_sge)) {
			ret = cli_fail(-EINVAL, "num_sge %u exceeds max_recv_sge %u", wr->num_sge,
				max_sge);
			break;
		}
		if (n == room) {
			room = karst_wq_free(wq, n + 1);
			if (room <= n) {
				ret = cli_fail_const(-ENOMEM, "the receive queue is full");
				break;
			}
		}
		karst_wr_encode_recv(karst_wq_slot(wq, n++), wr->wr_id, wr->sg_list, wr->num_sge);
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
			qp->srq != NULL
				? "the queue pair has a shared receive queue: use karst_post_srq_recv()"
				: "queue pairs of XRC types have no receive queue");
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
	/* no doorbell: no lcore waits for a shared receive queue; the engine reads it when a
	 * message arrives */
	return post_recvs(&srq->rq, &s->lock, srq->max_sge, wr, bad, &ring);
}

/* --- the doorbell --- */

/* After karst_abandon() there is no lcore to wake, and the number of the descriptor may belong to
 * another file. */
static karst_noinline void
wake_lcore(struct karst_client *c, int fd)
{
	static const uint64_t one = 1;
	/* the caller may hold the queue's lock */
	int cancel = karst_cancel_disable();

	/* Both are sequentially consistent and pair with those in karst_abandon(): either
	 * karst_abandon() waits for this thread, or this thread sees the state that karst_abandon()
	 * has set. */
	atomic_fetch_add(&c->wakers, 1);
	/* it fails only if the count is high already, which wakes the lcore as well */
	if (atomic_load(&c->state) == CLI_LIVE)
		(void)!write(fd, &one, sizeof(one));
	atomic_fetch_sub(&c->wakers, 1);
	karst_cancel_restore(cancel);
}

int
karst_ring_bell(struct karst_qp *qp)
{
	struct karst_client *c = cli_of(qp->context);
	int ret;

	if (cli_forked(c))
		return cli_fail_forked();
	ret = karst_bell_ring(qp->bell, qp->bell_mask, qp->qp_num);
	if (karst_unlikely(ret != 0))
		return cli_fail_const(
			-EIO, "the doorbell ring is full: the program has overwritten it");
	if (karst_unlikely(karst_bell_must_wake(qp->bell)))
		wake_lcore(c, qp->wake_fd);
	return 0;
}
