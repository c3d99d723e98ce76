/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The responder receives requests (RC, and XRC once xrc.c has found their receive queue).
 *
 * A request is expected (PSN == epsn), a duplicate (before it) or a sequence error (after it) (P3).
 * An expected one passes the checks of rule R1 in order: opcode order, resources, length, access.
 * Then it is executed, epsn advances, and an answer is scheduled.
 *
 * responder_tx.c sends the answers later, in this order: responses of READs and atomics from rsps[]
 * (first in, first out), then at most one ACK or NAK.  So many requests of a burst share one ACK
 * (R11), and an ACK never overtakes a READ response.
 *
 * READs, atomics and FLUSH are in responder_saved.c.
 */
#include "repeat.h"

/* --- scheduled acknowledgements --- */

void
karst_responder_owe_ack(struct karst_core *core, struct karst_core_qp *qp)
{
	if (qp->rsp.owed == KARST_OWED_NONE)
		qp->rsp.owed = KARST_OWED_ACK;
	karst_core_activate(core, qp);
}

/* Schedules a NAK for the expected PSN; it replaces an ACK, which it implies. */
void
karst_owe_nak(struct karst_core *core, struct karst_core_qp *qp, uint8_t syndrome, uint8_t wait)
{
	struct karst_responder *r = &qp->rsp;

	r->owed = KARST_OWED_NAK;
	r->syndrome = syndrome;
	r->nak_psn = r->epsn;
	r->wait = wait;
	karst_core_activate(core, qp);
}

/* R13: schedules a NAK that ends the connection, and raises the event for it. */
void
karst_refuse(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt,
	enum karst_nak nak)
{
	karst_drop_pkt(core, pkt, KARST_DROP_REQUEST);
	karst_count(&core->counters, KARST_CTR_ERROR_NAK_SENT);
	if (nak == KARST_NAK_REM_ACCESS)
		karst_count(&core->counters, KARST_CTR_RESP_REMOTE_ACCESS_ERRORS);
	karst_owe_nak(core, qp, KARST_AETH_NAK | nak, KARST_WAIT_NONE);
	if (karst_mutant(KARST_MUTANT_REFUSES_ON))
		return;
	qp->rsp.fatal = true;
	karst_qp_error(core, qp,
		nak == KARST_NAK_REM_ACCESS ? KARST_EVENT_QP_ACCESS_ERR : KARST_EVENT_QP_REQ_ERR);
}

static void
responder_rnr(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	karst_drop_pkt(core, pkt, KARST_DROP_RNR);
	karst_count(&core->counters, KARST_CTR_RNR_NAK_SENT);
	/* nothing has been dropped behind it since the last NAK; but see
	 * karst_responder_end_wait() */
	if (qp->rsp.wait != KARST_WAIT_SEQ)
		qp->rsp.oos_psn = qp->rsp.epsn;
	karst_owe_nak(core, qp, KARST_AETH_RNR | qp->rsp.min_rnr_timer, KARST_WAIT_RNR);
}

/* Completes a receive work request that failed for a local reason (R9). */
static void
fail_receive(struct karst_core *core, struct karst_core_qp *qp, enum karst_wc_status status)
{
	struct karst_recv_done done = {.status = status, .opcode = KARST_WC_RECV};

	karst_recv_complete(core, qp, &done);
}

/* An expected request was executed: advances epsn. */
static void
request_executed(struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt,
	uint32_t npsn)
{
	struct karst_responder *r = &qp->rsp;

	r->epsn = karst_psn_add(r->epsn, npsn);
	if (karst_unlikely((r->epsn & (KARST_RSP_AGE - 1)) == 0))
		karst_rsp_age(r, 0);
	/* drop the NAK of refuse_duplicate() in favour of new work, but not in favour of
	 * duplicates */
	if (karst_unlikely(r->owed == KARST_OWED_NAK) && !r->fatal &&
		r->syndrome == (KARST_AETH_NAK | KARST_NAK_REM_ACCESS))
		r->owed = KARST_OWED_NONE;
	if (pkt->flags & KARST_PKT_ACKREQ)
		karst_responder_owe_ack(core, qp);
}

void
karst_message_done(struct karst_core *core, struct karst_core_qp *qp)
{
	qp->rsp.op = KARST_MSG_NONE;
	qp->rsp.msn = karst_psn_add(qp->rsp.msn, 1);
	karst_count(&core->counters, KARST_CTR_RX_REQUESTS);
}

/* --- SEND --- */

/* R9: invalidates the key that a SEND with Invalidate names. */
static bool
request_invalidate(struct karst_core *core, struct karst_core_qp *qp, uint32_t rkey)
{
	if (karst_mutant(KARST_MUTANT_WINDOW_KEY))
		return true;
	return karst_mem_invalidate(core->mem, qp->pd, qp->qpn, rkey, true) == 0;
}

static void
send_done(struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt,
	uint32_t opf)
{
	struct karst_recv_done done = {
		.status = KARST_WC_SUCCESS,
		.opcode = KARST_WC_RECV,
		.byte_len = qp->rsp.rwqe.got,
		.solicited = (pkt->flags & KARST_PKT_SE) != 0,
	};

	if (opf & KARST_OPF_IMM) {
		done.flags = KARST_WC_WITH_IMM;
		done.imm = pkt->imm;
	} else if (opf & KARST_OPF_IETH) {
		done.flags = KARST_WC_WITH_INV;
		done.imm = pkt->inv_rkey;
		if (!request_invalidate(core, qp, pkt->inv_rkey)) {
			/* R9, L8: placed and acknowledged, MSN not advanced, then Error */
			done.status = KARST_WC_REM_INV_REQ_ERR;
			qp->rsp.op = KARST_MSG_NONE;
			request_executed(core, qp, pkt, 1);
			karst_recv_complete(core, qp, &done);
			if (qp->rsp.owed != KARST_OWED_NONE)
				qp->rsp.fatal = true;
			karst_qp_error(core, qp, KARST_EVENT_QP_ACCESS_ERR);
			return;
		}
	}
	karst_message_done(core, qp);
	request_executed(core, qp, pkt, 1);
	karst_recv_complete(core, qp, &done);
}

static void
responder_rx_send(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf)
{
	struct karst_responder *r = &qp->rsp;
	enum karst_wc_status st;

	if (opf & KARST_OPF_START) {
		switch (karst_recv_take(core, qp)) {
		case KARST_RWQE_OK:
			break;
		case KARST_RWQE_EMPTY:
			responder_rnr(core, qp, pkt);
			if (karst_mutant(KARST_MUTANT_RNR_EXECUTES))
				r->epsn = karst_psn_add(r->epsn, 1);
			return;
		case KARST_RWQE_BROKEN:
			karst_drop_pkt(core, pkt, KARST_DROP_RNR);
			return;
		}
	}
	st = karst_recv_place(
		core, qp, pkt->data + pkt->pay_off, pkt->pay_len, (opf & KARST_OPF_END) != 0);
	if (!karst_copy_settle(core, pkt, st == KARST_WC_SUCCESS)) {
		karst_recv_unplace(&r->rwqe, pkt->pay_len);
		return;
	}
	if (karst_unlikely(st != KARST_WC_SUCCESS)) {
		fail_receive(core, qp, st);
		karst_refuse(core, qp, pkt,
			st == KARST_WC_LOC_LEN_ERR ? KARST_NAK_INV_REQ : KARST_NAK_REM_OP);
		return;
	}
	if (opf & KARST_OPF_END) {
		send_done(core, qp, pkt, opf);
	} else {
		r->op = KARST_MSG_SEND;
		request_executed(core, qp, pkt, 1);
	}
}

/* --- WRITE --- */

/* Processes the RETH of a First or Only.  @host: where its payload goes, if it has any.
 * @return 0, or the NAK + 1. */
static int
start_write(struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt,
	uint32_t opf, uint8_t **host)
{
	struct karst_responder *r = &qp->rsp;

	if (!(r->access & KARST_ACCESS_REMOTE_WRITE))
		return KARST_NAK_INV_REQ + 1;
	if (pkt->dma_len > 1u << 31)
		return KARST_NAK_INV_REQ + 1;
	if (opf & KARST_OPF_END ? pkt->dma_len != pkt->pay_len : pkt->dma_len <= pkt->pay_len)
		return KARST_NAK_INV_REQ + 1;
	/* R12: a zero-length WRITE does not check the key */
	if (pkt->dma_len != 0 &&
		karst_mem_check_remote(core->mem, qp->pd, qp->qpn, pkt->rkey, pkt->va, pkt->dma_len,
			KARST_ACCESS_REMOTE_WRITE, host) != KARST_MEM_OK)
		return KARST_NAK_REM_ACCESS + 1;
	r->va = pkt->va;
	r->rkey = pkt->rkey;
	r->left = r->total = pkt->dma_len;
	return 0;
}

static void
write_done(struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt,
	uint32_t opf)
{
	struct karst_recv_done done = {
		.status = KARST_WC_SUCCESS,
		.opcode = KARST_WC_RECV_RDMA_WITH_IMM,
		.flags = KARST_WC_WITH_IMM,
		.byte_len = qp->rsp.total,
		.imm = pkt->imm,
		.solicited = (pkt->flags & KARST_PKT_SE) != 0,
	};

	karst_message_done(core, qp);
	karst_count(&core->counters, KARST_CTR_RX_WRITE_REQUESTS);
	request_executed(core, qp, pkt, 1);
	if (opf & KARST_OPF_IMM)
		karst_recv_complete(core, qp, &done);
}

static void
responder_rx_write(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf)
{
	struct karst_responder *r = &qp->rsp;
	uint8_t *host = NULL;
	bool ok;

	/* R8: before anything is executed */
	if (opf & KARST_OPF_IMM) {
		enum karst_rwqe_status st = karst_recv_take(core, qp);

		if (st == KARST_RWQE_EMPTY) {
			responder_rnr(core, qp, pkt);
			return;
		}
		if (st == KARST_RWQE_BROKEN) {
			karst_drop_pkt(core, pkt, KARST_DROP_RNR);
			return;
		}
	}
	if (opf & KARST_OPF_START) {
		int nak = start_write(core, qp, pkt, opf, &host);

		if (nak != 0) {
			karst_refuse(core, qp, pkt, (enum karst_nak)(nak - 1));
			return;
		}
	} else if (opf & KARST_OPF_END ? pkt->pay_len != r->left : pkt->pay_len >= r->left) {
		karst_refuse(core, qp, pkt, KARST_NAK_INV_REQ);
		return;
	}
	if (pkt->pay_len != 0) {
		/* the first packet is part of the message that has just been checked */
		if (!(opf & KARST_OPF_START) &&
			karst_unlikely(karst_mem_check_remote(core->mem, qp->pd, qp->qpn, r->rkey,
					       r->va, pkt->pay_len, KARST_ACCESS_REMOTE_WRITE,
					       &host) != KARST_MEM_OK)) {
			karst_refuse(core, qp, pkt, KARST_NAK_REM_ACCESS);
			return;
		}
		ok = karst_qp_place(core, qp, r->rkey, host, pkt->data + pkt->pay_off, pkt->pay_len,
			(opf & KARST_OPF_END) != 0);
		if (!karst_copy_settle(core, pkt, ok))
			return;
		if (karst_unlikely(!ok)) {
			karst_refuse(core, qp, pkt, KARST_NAK_REM_ACCESS);
			return;
		}
		r->va += pkt->pay_len;
		r->left -= pkt->pay_len;
	}
	if (opf & KARST_OPF_END) {
		write_done(core, qp, pkt, opf);
	} else {
		r->op = KARST_MSG_WRITE;
		request_executed(core, qp, pkt, 1);
	}
}

/* --- duplicates --- */

/*
 * R3: the newest requests are READs or atomics, and responses have just been sent.  A peer that now
 * goes back, to a SEND or WRITE before them, has received some of these requests' responses, and
 * also sends the READs and atomics again: their answers acknowledge the SEND or WRITE.  A separate
 * ACK, received in the middle of a READ, would end a queue pair of Linux (L18).  A peer that sends
 * the same duplicate again without having requested READs or atomics again needs an ACK, and so
 * does a peer that has waited: this may be its last retry.
 */
static bool
left_to_responses(const struct karst_core *core, struct karst_core_qp *qp, uint32_t psn)
{
	struct karst_responder *r = &qp->rsp;

	if (r->owed != KARST_OWED_NONE || karst_repeat_of(qp) != NULL ||
		karst_acked_psn(r) == karst_psn_add(r->epsn, -1u) ||
		karst_rsp_clock(core) - r->rsp_clock > KARST_RSP_LATELY)
		return false;
	if (!karst_psn_before(r->left_psn, psn))
		return false; /* and so are the next ones, until the peer asks for responses */
	r->left_psn = psn;
	return true;
}

static void
rx_duplicate(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf)
{
	uint8_t *host;

	karst_count(&core->counters, KARST_CTR_DUPLICATE_REQUEST);
	karst_qp_note(&qp->duplicates);
	if (opf & KARST_OPF_READ) {
		karst_responder_dup_read(core, qp, pkt);
	} else if (opf & (KARST_OPF_ATOMIC | KARST_OPF_ATOMICWRITE | KARST_OPF_FLUSH)) {
		karst_responder_dup_atomic(core, qp, pkt, opf);
	} else {
		/* R3 */
		if (karst_mutant(KARST_MUTANT_DUP_SEND) && (opf & KARST_OPF_SEND) &&
			(opf & KARST_OPF_START) && (opf & KARST_OPF_END) &&
			qp->rsp.op == KARST_MSG_NONE) {
			responder_rx_send(core, qp, pkt, opf);
			qp->rsp.epsn = karst_psn_add(qp->rsp.epsn, -1u);
			return;
		}
		if (karst_mutant(KARST_MUTANT_DUP_WRITE) && (opf & KARST_OPF_WRITE) &&
			(opf & KARST_OPF_START) && pkt->pay_len != 0 &&
			karst_mem_check_remote(core->mem, qp->pd, qp->qpn, pkt->rkey, pkt->va,
				pkt->pay_len, KARST_ACCESS_REMOTE_WRITE, &host) == KARST_MEM_OK)
			memcpy(host, pkt->data + pkt->pay_off, pkt->pay_len);
		karst_drop_pkt(core, pkt, KARST_DROP_DUPLICATE);
		if (pkt->flags & KARST_PKT_ACKREQ) {
			if (karst_repeat_of(qp) != NULL)
				qp->repeat->plain = true;
			if (!left_to_responses(core, qp, pkt->psn))
				karst_responder_owe_ack(core, qp);
		}
	}
}

/* --- sequence --- */

static void
rx_ahead(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	struct karst_responder *r = &qp->rsp;

	karst_count(&core->counters, KARST_CTR_OUT_OF_SEQUENCE);
	karst_qp_note(&qp->out_of_sequence);
	if (karst_repeat_of(qp) != NULL) {
		karst_repeat_ahead(core, qp, pkt, (uint32_t)karst_psn_diff(pkt->psn, r->epsn));
		return;
	}
	switch (r->wait) {
	case KARST_WAIT_RNR:
	case KARST_WAIT_SEQ:
		/* R2: one NAK per gap */
		if (karst_psn_before(r->oos_psn, pkt->psn))
			r->oos_psn = pkt->psn;
		karst_drop_pkt(
			core, pkt, r->wait == KARST_WAIT_RNR ? KARST_DROP_RNR : KARST_DROP_NAKED);
		return;
	default:
		karst_drop_pkt(core, pkt, KARST_DROP_SEQUENCE);
		karst_count(&core->counters, KARST_CTR_SEQ_NAK_SENT);
		r->oos_psn = pkt->psn;
		karst_owe_nak(core, qp, KARST_AETH_NAK | KARST_NAK_PSN_SEQ, KARST_WAIT_SEQ);
	}
}

void
karst_responder_missed(
	struct karst_core *core, struct karst_core_qp *qp, uint32_t from, uint32_t psn)
{
	struct karst_responder *r = &qp->rsp;
	/* the expected request was among them: what an earlier NAK has asked for has come, and the
	 * peer will not send it again for that NAK */
	bool expected = !karst_psn_before(r->epsn, from);

	if (karst_psn_before(psn, r->epsn))
		return; /* it has come since */
	if (karst_repeat_of(qp) != NULL) {
		karst_repeat_lacks(core, qp, expected);
		return;
	}
	if (r->wait == KARST_WAIT_NONE || karst_psn_before(r->oos_psn, psn))
		r->oos_psn = psn;
	if (r->wait == KARST_WAIT_NONE || (expected && r->owed != KARST_OWED_NAK)) {
		karst_count(&core->counters, KARST_CTR_SEQ_NAK_SENT);
		karst_owe_nak(core, qp, KARST_AETH_NAK | KARST_NAK_PSN_SEQ, KARST_WAIT_SEQ);
	}
}

/* KARST_MUTANT_FLUSH_AHEAD */
static void
flush_ahead(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	struct karst_responder *r = &qp->rsp;
	uint32_t epsn = r->epsn, msn = r->msn;

	karst_responder_flush(core, qp, pkt);
	r->epsn = epsn;
	r->msn = msn;
}

void
karst_unowe_nak(struct karst_core_qp *qp)
{
	struct karst_responder *r = &qp->rsp;

	r->wait = KARST_WAIT_NONE;
	karst_rsp_leave_none(r); /* nak_psn was in its place */
	/* R11: the ACK that the NAK replaced may be needed.  But if responses acknowledge
	 * everything (R3), that ACK is not needed, and could harm (L18).  What is held has to be
	 * reported in any case (X7). */
	r->owed = karst_repeat_of(qp) == NULL && karst_acked_psn(r) != karst_psn_add(r->epsn, -1u)
		? KARST_OWED_NONE
		: KARST_OWED_ACK;
}

void
karst_responder_end_wait(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_responder *r = &qp->rsp;
	bool scheduled = r->owed == KARST_OWED_NAK;

	if (r->wait == KARST_WAIT_RNR && scheduled && karst_repeat_of(qp) == NULL &&
		karst_psn_before(r->epsn, r->oos_psn)) {
		/* the peer does not go back for an RNR NAK that it does not get: a sequence NAK has
		 * to request what was dropped because of it */
		karst_count(&core->counters, KARST_CTR_SEQ_NAK_SENT);
		karst_owe_nak(core, qp, KARST_AETH_NAK | KARST_NAK_PSN_SEQ, KARST_WAIT_SEQ);
	}
	if (r->wait == KARST_WAIT_SEQ && scheduled) {
		/* it overtook the NAK, which is still scheduled; if more is missing, the NAK
		 * remains */
		return;
	}
	if (r->wait == KARST_WAIT_RNR && scheduled)
		karst_unowe_nak(qp);
	r->wait = KARST_WAIT_NONE;
}

/* Whether the opcode is valid now (R1), and the payload has the required length (W10). */
static bool
responder_in_order(const struct karst_core_qp *qp, const struct karst_pkt *pkt, uint32_t opf)
{
	uint32_t mtu = karst_qp_mtu(qp);

	switch (qp->rsp.op) {
	case KARST_MSG_NONE:
		if (!(opf & KARST_OPF_START))
			return false;
		break;
	case KARST_MSG_SEND:
		if (!(opf & KARST_OPF_SEND) || (opf & KARST_OPF_START))
			return false;
		break;
	case KARST_MSG_WRITE:
		if (!(opf & KARST_OPF_WRITE) || (opf & KARST_OPF_START))
			return false;
		break;
	}
	if (!(opf & KARST_OPF_END))
		return pkt->pay_len == mtu;
	return pkt->pay_len <= mtu && (pkt->pay_len != 0 || (opf & KARST_OPF_START));
}

static void
communication_established(struct karst_core *core, struct karst_core_qp *qp)
{
	qp->flags |= KARST_QPF_COMM_EST;
	if (qp->state == KARST_QPS_RTR)
		karst_event(core, KARST_EVENT_COMM_EST, qp);
}

void
karst_responder_execute(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf)
{
	if (karst_unlikely(!(qp->flags & KARST_QPF_COMM_EST)))
		communication_established(core, qp);
	if (karst_unlikely(!responder_in_order(qp, pkt, opf)))
		karst_refuse(core, qp, pkt, KARST_NAK_INV_REQ);
	else if (karst_unlikely(opf & KARST_OPF_XRCETH) && !karst_xrc_enter(core, qp, pkt, opf))
		return;
	else if (opf & KARST_OPF_WRITE)
		responder_rx_write(core, qp, pkt, opf);
	else if (opf & KARST_OPF_SEND)
		responder_rx_send(core, qp, pkt, opf);
	else if (opf & KARST_OPF_READ)
		karst_responder_read(core, qp, pkt);
	else if (opf & (KARST_OPF_ATOMIC | KARST_OPF_ATOMICWRITE))
		karst_responder_atomic(core, qp, pkt, opf);
	else
		karst_responder_flush(core, qp, pkt);
}

void
karst_responder_rx(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	struct karst_responder *r = &qp->rsp;
	uint32_t opf = karst_opcode_flags(pkt->opcode);
	int32_t ahead = karst_psn_diff(pkt->psn, r->epsn);

	if (karst_unlikely(ahead != 0) &&
		!(karst_mutant(KARST_MUTANT_SEQ_ACCEPT) && ahead == 1 && r->op == KARST_MSG_NONE)) {
		if (ahead < 0)
			rx_duplicate(core, qp, pkt, opf);
		else if (karst_mutant(KARST_MUTANT_FLUSH_AHEAD) && (opf & KARST_OPF_FLUSH))
			flush_ahead(core, qp, pkt);
		else
			rx_ahead(core, qp, pkt);
		return;
	}
	if (karst_mutant(KARST_MUTANT_SEQ_ACCEPT))
		r->epsn = pkt->psn;
	if (karst_unlikely(r->wait != KARST_WAIT_NONE)) {
		if (karst_repeat_of(qp) != NULL) {
			karst_repeat_expected(core, qp, pkt);
			return;
		}
		karst_responder_end_wait(core, qp);
	}
	karst_responder_execute(core, qp, pkt, opf);
}
