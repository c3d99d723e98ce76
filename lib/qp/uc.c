/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The responder of UC (U1): no acknowledgements.  A message is delivered whole or not at all.  A
 * gap, a wrong order or length, a message longer than its receive work request, or memory that may
 * not be used drops the message in progress; the next First or Only starts a new one, whatever its
 * PSN.  The receive work request that a dropped message had taken is used by the next one (IBTA
 * 9.9.3, class D1); one of a shared queue completes in error, and the queue pair continues (class
 * E).
 */
#include "qp_priv.h"

/*
 * The message in progress is lost.  Keeps its receive work request for the next message; but one of
 * a shared queue, on which other queue pairs depend, completes with @status.
 */
static void
uc_forget_message(struct karst_core *core, struct karst_core_qp *qp, enum karst_wc_status status)
{
	struct karst_rwqe *w = &qp->rsp.rwqe;
	struct karst_recv_done done = {.status = status, .opcode = KARST_WC_RECV};

	qp->rsp.op = KARST_MSG_NONE;
	w->got = w->off = w->cur = 0;
	if (w->held && qp->srq != NULL)
		karst_recv_complete(core, qp, &done);
}

static void
uc_abort_message(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt,
	enum karst_drop why)
{
	karst_drop_pkt(core, pkt, why);
	uc_forget_message(core, qp, KARST_WC_REM_INV_REQ_ERR);
}

/* @return true if the packet continues or starts a message in good order. */
static bool
uc_in_order(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf)
{
	struct karst_responder *r = &qp->rsp;
	uint32_t mtu = karst_qp_mtu(qp);
	bool gap = pkt->psn != r->epsn;

	r->epsn = karst_psn_add(pkt->psn, 1);
	if (opf & KARST_OPF_START) {
		/* the message in progress is lost */
		if (r->op != KARST_MSG_NONE)
			uc_forget_message(core, qp, KARST_WC_REM_INV_REQ_ERR);
	} else if ((gap && !karst_mutant(KARST_MUTANT_UC_MIX)) || r->op == KARST_MSG_NONE ||
		((opf & KARST_OPF_SEND) != 0) != (r->op == KARST_MSG_SEND)) {
		uc_abort_message(core, qp, pkt, KARST_DROP_UC_MESSAGE);
		return false;
	}
	/* W10 */
	if (opf & KARST_OPF_END
			? pkt->pay_len > mtu || (pkt->pay_len == 0 && !(opf & KARST_OPF_START))
			: pkt->pay_len != mtu) {
		uc_abort_message(core, qp, pkt, KARST_DROP_UC_MESSAGE);
		return false;
	}
	return true;
}

static void
uc_complete(struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt,
	uint32_t opf, enum karst_wc_opcode opcode, uint32_t byte_len)
{
	struct karst_recv_done done = {
		.status = KARST_WC_SUCCESS,
		.opcode = opcode,
		.flags = opf & KARST_OPF_IMM ? KARST_WC_WITH_IMM : 0,
		.byte_len = byte_len,
		.imm = opf & KARST_OPF_IMM ? pkt->imm : 0,
		.solicited = (pkt->flags & KARST_PKT_SE) != 0,
	};

	karst_recv_complete(core, qp, &done);
}

/* As karst_copy_settle(), but a packet that is parked remains the expected one. */
static bool
uc_settle(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, bool ok)
{
	if (karst_copy_settle(core, pkt, ok))
		return true;
	qp->rsp.epsn = pkt->psn;
	return false;
}

static void
uc_rx_send(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf)
{
	struct karst_responder *r = &qp->rsp;
	enum karst_wc_status st;

	if ((opf & KARST_OPF_START) && karst_recv_take(core, qp) != KARST_RWQE_OK) {
		uc_abort_message(core, qp, pkt, KARST_DROP_NO_WQE);
		return;
	}
	st = karst_recv_place(
		core, qp, pkt->data + pkt->pay_off, pkt->pay_len, (opf & KARST_OPF_END) != 0);
	if (!uc_settle(core, qp, pkt, st == KARST_WC_SUCCESS)) {
		karst_recv_unplace(&r->rwqe, pkt->pay_len);
		return;
	}
	if (karst_unlikely(st == KARST_WC_LOC_LEN_ERR)) {
		karst_drop_pkt(core, pkt, KARST_DROP_UC_MESSAGE);
		uc_forget_message(core, qp, st);
		return;
	}
	if (karst_unlikely(st != KARST_WC_SUCCESS)) {
		struct karst_recv_done done = {.status = st, .opcode = KARST_WC_RECV};

		r->op = KARST_MSG_NONE;
		karst_drop_pkt(core, pkt, KARST_DROP_UC_MESSAGE);
		karst_recv_complete(core, qp, &done);
		karst_qp_error(core, qp, KARST_EVENT_QP_FATAL);
		return;
	}
	r->op = opf & KARST_OPF_END ? KARST_MSG_NONE : KARST_MSG_SEND;
	if (opf & KARST_OPF_END) {
		karst_count(&core->counters, KARST_CTR_RX_REQUESTS);
		uc_complete(core, qp, pkt, opf, KARST_WC_RECV, r->rwqe.got);
	}
}

static void
uc_rx_write(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf)
{
	struct karst_responder *r = &qp->rsp;
	uint8_t *host = NULL;

	if (opf & KARST_OPF_START) {
		r->va = pkt->va;
		r->rkey = pkt->rkey;
		r->left = r->total = pkt->dma_len;
	}
	if (opf & KARST_OPF_END ? pkt->pay_len != r->left : pkt->pay_len >= r->left) {
		uc_abort_message(core, qp, pkt, KARST_DROP_UC_MESSAGE);
		return;
	}
	if ((opf & KARST_OPF_IMM) && karst_recv_take(core, qp) != KARST_RWQE_OK) {
		uc_abort_message(core, qp, pkt, KARST_DROP_NO_WQE);
		return;
	}
	if (!(r->access & KARST_ACCESS_REMOTE_WRITE) ||
		(r->left != 0 &&
			karst_mem_check_remote(core->mem, qp->pd, qp->qpn, r->rkey, r->va, r->left,
				KARST_ACCESS_REMOTE_WRITE, &host) != KARST_MEM_OK)) {
		uc_abort_message(core, qp, pkt, KARST_DROP_UC_ACCESS);
		return;
	}
	if (pkt->pay_len != 0) {
		bool ok = karst_qp_place(core, qp, r->rkey, host, pkt->data + pkt->pay_off,
			pkt->pay_len, (opf & KARST_OPF_END) != 0);

		if (!uc_settle(core, qp, pkt, ok))
			return;
		if (karst_unlikely(!ok)) {
			uc_abort_message(core, qp, pkt, KARST_DROP_UC_ACCESS);
			return;
		}
	}
	r->va += pkt->pay_len;
	r->left -= pkt->pay_len;
	r->op = opf & KARST_OPF_END ? KARST_MSG_NONE : KARST_MSG_WRITE;
	if (opf & KARST_OPF_END) {
		karst_count(&core->counters, KARST_CTR_RX_REQUESTS);
		karst_count(&core->counters, KARST_CTR_RX_WRITE_REQUESTS);
	}
	if (opf & KARST_OPF_IMM)
		uc_complete(core, qp, pkt, opf, KARST_WC_RECV_RDMA_WITH_IMM, r->total);
}

void
karst_uc_rx(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	uint32_t opf = karst_opcode_flags(pkt->opcode);

	if (!uc_in_order(core, qp, pkt, opf))
		return;
	if (opf & KARST_OPF_SEND)
		uc_rx_send(core, qp, pkt, opf);
	else
		uc_rx_write(core, qp, pkt, opf);
}
