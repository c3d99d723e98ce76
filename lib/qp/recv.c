/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Receive work requests: takes them from a queue or shared queue, places payload, completes them.
 *
 * A work request is copied to private memory when a message takes it, so that the program cannot
 * change it any more.  The slot of a shared queue is given back at once, so the order in which
 * messages finish does not matter; the slot of a QP's own queue is given back after its completion.
 * The SGEs are checked against their keys piece by piece as payload is placed.
 */
#include "qp_priv.h"

#include <errno.h>

/* --- taking --- */

static karst_noinline enum karst_rwqe_status
rq_broken(struct karst_core *core, struct karst_core_qp *qp)
{
	karst_count(&core->counters, KARST_CTR_RQ_CORRUPT);
	if (qp->srq != NULL) {
		qp->srq->broken = true;
		karst_event(core, KARST_EVENT_SRQ_ERR, qp->srq);
	} else {
		qp->flags |= KARST_QPF_RQ_BROKEN;
	}
	karst_qp_error(core, qp, KARST_EVENT_QP_FATAL);
	return KARST_RWQE_BROKEN;
}

/* SRQ limit: raises the event if fewer than the limit are left, after a check for new ones. */
static void
check_limit(struct karst_core *core, struct karst_core_srq *srq)
{
	struct karst_wqe_ring *ring = &srq->ring;

	if (ring->tail - ring->head >= srq->limit || karst_wqe_poll(ring) != 0 ||
		ring->tail - ring->head >= srq->limit)
		return;
	srq->limit = 0;
	karst_event(core, KARST_EVENT_SRQ_LIMIT_REACHED, srq);
}

/* Makes the private copy.  An invalid work request is taken as well, and fails. */
static void
copy_rwqe(struct karst_rwqe *w, const struct karst_wqe_ring *ring)
{
	const struct karst_recv_wqe *slot = karst_wqe_slot(ring, ring->head);
	struct karst_recv_wqe head;
	uint64_t total = 0;
	uint32_t i;

	memcpy(&head, slot, sizeof(head));
	w->wr_id = head.wr_id;
	w->got = w->off = w->cur = 0;
	w->bad = head.num_sge > ring->max_sge;
	w->nsge = w->bad ? 0 : (uint8_t)head.num_sge;
	w->sge[0] = head.sge[0];
	if (w->nsge > 1)
		memcpy(&w->sge[1], &slot->sge[1], (w->nsge - 1u) * sizeof(struct karst_sge));
	for (i = 0; i < w->nsge; i++)
		total += w->sge[i].len;
	/* there may be more room than the longest message needs */
	w->total = (uint32_t)karst_min_u64(total, UINT32_MAX);
	w->held = true;
}

enum karst_rwqe_status
karst_recv_take(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_wqe_ring *ring = qp->srq != NULL ? &qp->srq->ring : &qp->rq;

	if (qp->rsp.rwqe.held)
		return KARST_RWQE_OK;
	if (qp->srq != NULL && karst_unlikely(qp->srq->broken)) {
		/* another QP has found it broken: there is nothing to wait for */
		karst_qp_error(core, qp, KARST_EVENT_QP_FATAL);
		return KARST_RWQE_BROKEN;
	}
	if (ring->head == ring->tail) {
		if (karst_unlikely(karst_wqe_poll(ring) != 0))
			return rq_broken(core, qp);
		if (ring->head == ring->tail)
			return KARST_RWQE_EMPTY;
	}
	copy_rwqe(&qp->rsp.rwqe, ring);
	if (qp->srq == NULL) {
		ring->head++;
		return KARST_RWQE_OK;
	}
	karst_wqe_publish_head(ring, ring->head + 1);
	if (karst_unlikely(qp->srq->limit != 0))
		check_limit(core, qp->srq);
	return KARST_RWQE_OK;
}

/* --- placing --- */

void
karst_recv_unplace(struct karst_rwqe *w, uint32_t len)
{
	w->got -= len;
	w->off = w->got;
	for (w->cur = 0; w->cur < w->nsge && w->off >= w->sge[w->cur].len; w->cur++)
		w->off -= w->sge[w->cur].len;
}

enum karst_wc_status
karst_recv_place(struct karst_core *core, struct karst_core_qp *qp, const uint8_t *src,
	uint32_t len, bool end)
{
	struct karst_rwqe *w = &qp->rsp.rwqe;
	uint32_t pd = qp->srq != NULL ? qp->srq->pd : qp->pd;

	if (karst_unlikely(w->bad))
		return KARST_WC_LOC_PROT_ERR;
	if (karst_unlikely(len > w->total - w->got))
		return KARST_WC_LOC_LEN_ERR;
	while (len > 0) {
		const struct karst_sge *s = &w->sge[w->cur];
		uint32_t n = karst_min_u32(len, s->len - w->off);
		uint8_t *host;

		if (n > 0) {
			if (karst_unlikely(
				    karst_mem_check_local(core->mem, pd, s->lkey, s->addr + w->off,
					    n, KARST_ACCESS_LOCAL_WRITE, &host) != KARST_MEM_OK))
				return KARST_WC_LOC_PROT_ERR;
			if (karst_unlikely(!karst_qp_place(
				    core, qp, s->lkey, host, src, n, end && n == len)))
				return KARST_WC_LOC_PROT_ERR;
			src += n;
			len -= n;
			w->got += n;
			w->off += n;
		}
		if (w->off == s->len) {
			w->cur++;
			w->off = 0;
		}
	}
	return KARST_WC_SUCCESS;
}

/* --- completing --- */

void
karst_recv_complete(
	struct karst_core *core, struct karst_core_qp *qp, const struct karst_recv_done *done)
{
	bool error = done->status != KARST_WC_SUCCESS;
	struct karst_cqe *cqe = karst_cq_push(core, qp->recv_cq, done->solicited || error);

	qp->rsp.rwqe.held = false;
	if (qp->srq == NULL) {
		qp->took = 1;
		karst_qp_retire(core, qp);
	}
	if (error)
		karst_count(&core->counters, KARST_CTR_RESP_CQE_ERROR);
	if (done->status == KARST_WC_WR_FLUSH_ERR)
		karst_count(&core->counters, KARST_CTR_RESP_CQE_FLUSH_ERROR);
	else if (done->status == KARST_WC_LOC_LEN_ERR)
		karst_count(&core->counters, KARST_CTR_RESP_LOCAL_LENGTH_ERROR);
	if (karst_unlikely(cqe == NULL)) {
		karst_qp_error(core, qp, KARST_EVENT_QP_FATAL);
		return;
	}
	*cqe = (struct karst_cqe){
		.wr_id = qp->rsp.rwqe.wr_id,
		.qpn = qp->qpn,
		.byte_len = done->byte_len,
		.imm = done->imm,
		.src_qpn = done->src_qpn,
		.status = (uint8_t)done->status,
		.opcode = (uint8_t)done->opcode,
		.flags = done->flags,
		.slot = qp->srq == NULL ? qp->rq.head - 1 : 0,
	};
}

/* --- shared receive queues --- */

size_t
karst_srq_object_bytes(void)
{
	return sizeof(struct karst_core_srq);
}

int
karst_srq_create(struct karst_core *core, void *buf, const struct karst_srq_init *init,
	struct karst_core_srq **out)
{
	struct karst_core_srq *srq = buf;

	if (init->shared == NULL || !karst_is_pow2(init->max_wr) ||
		init->max_wr > KARST_WQ_MAX_SLOTS || init->max_sge == 0 ||
		init->max_sge > KARST_WQ_MAX_SGE || init->limit > init->max_wr ||
		(init->xrcd != 0) != (init->cq != NULL) ||
		(init->cq != NULL && init->cq->nlanes <= core->lcore))
		return -EINVAL;
	memset(srq, 0, sizeof(*srq));
	karst_wqe_init(&srq->ring, init->shared, init->max_wr,
		karst_wq_stride(false, init->max_sge, 0), init->max_sge, 0, false);
	srq->pd = init->pd;
	srq->limit = init->limit;
	srq->user = init->user;
	if (init->xrcd != 0) {
		int ret = karst_xrc_number(core, srq);

		if (ret != 0)
			return ret;
		srq->xrcd = init->xrcd;
		srq->cq = init->cq;
		atomic_fetch_add(&srq->cq->users, 1);
	}
	*out = srq;
	return 0;
}

int
karst_srq_destroy(struct karst_core *core, struct karst_core_srq *srq)
{
	if (srq->users != 0)
		return -EBUSY;
	karst_srq_withdraw(core, srq, UINT32_MAX);
	if (srq->cq != NULL)
		atomic_fetch_sub(&srq->cq->users, 1);
	return 0;
}

int
karst_srq_set_limit(struct karst_core *core, struct karst_core_srq *srq, uint32_t limit)
{
	if (limit > srq->ring.mask + 1)
		return -EINVAL;
	srq->limit = limit;
	if (limit != 0)
		check_limit(core, srq);
	return 0;
}

uint32_t
karst_srq_limit(const struct karst_core_srq *srq)
{
	return srq->limit;
}

uint32_t
karst_srq_num(const struct karst_core_srq *srq)
{
	return srq->number;
}

void *
karst_srq_user(const struct karst_core_srq *srq)
{
	return srq->user;
}
