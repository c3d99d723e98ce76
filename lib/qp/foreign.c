/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Foreign memory that turns out not to be there.
 *
 * Bytes for foreign memory are queued and written together, and bytes from it are fetched when a
 * burst is complete, so the answer comes after the packet was taken or built.  What depends on it
 * has not happened by then: a receive or an own READ completes only after karst_foreign_settle(),
 * and an acknowledgement or a frame leaves only after the driver has flushed or fetched.  So the
 * QP can still fail as it would have failed at once:
 *
 *	message into a receive	completion LOC_PROT_ERR, NAK remote operational error
 *	peer's WRITE		NAK remote access error for the very packet
 *	own READ or atomic	completion LOC_PROT_ERR
 *	own SEND or WRITE	completion LOC_PROT_ERR, when the requests before it are done
 *	answer to a READ	NAK remote access error in its place; to a duplicate: nothing
 */
#include "qp_priv.h"

/* R13, for packet @psn, which was taken; answers to what came before it still go out. */
static void
nak_taken(struct karst_core *core, struct karst_core_qp *qp, uint32_t psn, enum karst_nak nak,
	enum karst_async_event_code event)
{
	struct karst_responder *r = &qp->rsp;

	if (!karst_qp_may_receive(qp) || r->fatal)
		return;
	while (r->rsp_added != r->rsp_cur &&
		karst_psn_before(psn, karst_rsp_at(r, r->rsp_added - 1)->psn)) {
		r->rsp_added--;
		r->rsp_saved -= r->rsp_saved != 0;
	}
	karst_count(&core->counters, KARST_CTR_ERROR_NAK_SENT);
	if (nak == KARST_NAK_REM_ACCESS)
		karst_count(&core->counters, KARST_CTR_RESP_REMOTE_ACCESS_ERRORS);
	karst_owe_nak(core, qp, KARST_AETH_NAK | nak, KARST_WAIT_NONE);
	r->nak_psn = psn;
	r->fatal = true;
	karst_qp_error(core, qp, event);
}

static void
lost_receive(struct karst_core *core, struct karst_core_qp *qp, uint32_t psn)
{
	const struct karst_recv_done done = {
		.status = KARST_WC_LOC_PROT_ERR, .opcode = KARST_WC_RECV};

	if (!karst_qp_may_receive(qp))
		return;
	qp->rsp.op = KARST_MSG_NONE;
	if (qp->rsp.rwqe.held)
		karst_recv_complete(core, qp, &done);
	if (karst_qp_reliable(qp))
		nak_taken(core, qp, psn, KARST_NAK_REM_OP, KARST_EVENT_QP_REQ_ERR);
	else
		karst_qp_error(core, qp, KARST_EVENT_QP_FATAL);
}

void
karst_foreign_lost(struct karst_core *core, struct karst_core_qp *qp, enum karst_foreign_kind kind,
	uint32_t psn)
{
	switch (kind) {
	case KARST_FOREIGN_RECV:
		lost_receive(core, qp, psn);
		break;
	case KARST_FOREIGN_WRITE:
		/* UC gives the message up, and goes on (U1) */
		if (karst_qp_reliable(qp))
			nak_taken(core, qp, psn, KARST_NAK_REM_ACCESS, KARST_EVENT_QP_ACCESS_ERR);
		break;
	case KARST_FOREIGN_RESPONSE:
		if (karst_qp_may_send(qp))
			karst_requester_fail(core, qp, KARST_WC_LOC_PROT_ERR, 0);
		break;
	}
}

/* The request that PSN @psn belongs to, among those that are not completed. */
static bool
request_of(const struct karst_core_qp *qp, uint32_t psn, uint32_t *idx)
{
	const struct karst_requester *r = &qp->req;
	uint32_t i;

	for (i = r->una_idx; i != r->nxt_idx; i++) {
		const struct karst_sq_slot *slot = &r->slots[i & qp->sq.mask];

		if (!(slot->flags & KARST_SLOT_LOCAL) &&
			((psn - slot->psn) & KARST_PSN_MASK) < slot->npsn) {
			*idx = i;
			return true;
		}
	}
	return false;
}

/* Whoever asked for it is told why there is no answer; but one that was given before may have been
 * asked for by a late copy (D11). */
static void
lost_answer(struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt,
	uint32_t psn)
{
	struct karst_responder *r = &qp->rsp;

	if (!karst_qp_may_receive(qp) || (pkt->flags & KARST_PKT_AGAIN))
		return;
	r->rsp_cur = r->rsp_added;
	nak_taken(core, qp, psn, KARST_NAK_REM_ACCESS, KARST_EVENT_QP_ACCESS_ERR);
}

void
karst_tx_lost(struct karst_core *core, const struct karst_tx_burst *b, uint32_t i)
{
	const struct karst_pkt *pkt = b->pkts[i];
	struct karst_core_qp *qp = pkt->qp;
	uint32_t idx, psn = karst_bth_psn(pkt->data + pkt->bth_off);

	/* UC and UD have fetched before they built */
	assert(karst_qp_reliable(qp));
	if (karst_opcode_flags(pkt->opcode) & KARST_OPF_RESPONSE)
		lost_answer(core, qp, pkt, psn);
	else if (karst_qp_may_send(qp) && request_of(qp, psn, &idx))
		karst_requester_fail_at(core, qp, idx, KARST_WC_LOC_PROT_ERR);
}
