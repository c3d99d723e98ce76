/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The requester receives the responses of READs and atomics (RC): the payload goes where the
 * program wants it, and the response acknowledges everything requested before (Q3).  A response
 * that arrives while earlier ones are missing is also placed, and is recorded (X11, gaps.c).
 */
#include "gaps.h"
#include "repeat.h"
#include "wqe.h"

/*
 * Takes a response packet of READ @idx; @early: responses before it are missing.
 * @return SUCCESS, or the status with which the READ fails.
 */
static enum karst_wc_status
take_read_response(struct karst_core *core, struct karst_core_qp *qp, uint32_t idx,
	const struct karst_pkt *pkt, bool early)
{
	const struct karst_sq_slot *slot = &qp->req.slots[idx & qp->sq.mask];
	uint32_t off = karst_psn_add(pkt->psn, -slot->psn) << qp->mtu_shift;
	uint32_t want = karst_min_u32(slot->len - off, karst_qp_mtu(qp));
	bool last = off + want == slot->len;
	bool end = (karst_opcode_flags(pkt->opcode) & KARST_OPF_END) != 0;
	enum karst_wc_status st;
	struct karst_wqe w;

	/* W10 for responses: their boundaries follow from the request; a peer that has agreed to
	 * selective repeat is asked for parts, which end anywhere (X11) */
	if (pkt->pay_len != want || (end != last && (last || karst_repeat_of(qp) == NULL)))
		return KARST_WC_BAD_RESP_ERR;
	if (want == 0)
		return KARST_WC_SUCCESS;
	st = karst_wqe_load(qp, idx, &w);
	if (st != KARST_WC_SUCCESS || w.len != slot->len || w.h.opcode != slot->op)
		return KARST_WC_LOC_QP_OP_ERR;
	/* all of it has a valid destination, or nothing is placed */
	if ((off == 0 || early) && (!last || w.nsge > 1)) {
		st = karst_wqe_check(core, qp, &w);
		if (karst_unlikely(st != KARST_WC_SUCCESS))
			return st;
	}
	if (karst_mutant(KARST_MUTANT_ORDER) && (qp->req.retry_left != qp->req.retry_cnt))
		off = 0;
	if (karst_mutant(KARST_MUTANT_GAP_PLACE) && early && off != 0)
		off -= karst_qp_mtu(qp);
	return karst_wqe_scatter(core, qp, &w, off, pkt->data + pkt->pay_off, want);
}

static enum karst_wc_status
take_atomic_response(struct karst_core *core, struct karst_core_qp *qp, uint32_t idx,
	const struct karst_pkt *pkt)
{
	const struct karst_sq_slot *slot = &qp->req.slots[idx & qp->sq.mask];
	uint64_t old = karst_get_be64(pkt->data + pkt->bth_off + KARST_BTH_LEN + KARST_AETH_LEN);
	enum karst_wc_status st;
	struct karst_wqe w;

	st = karst_wqe_load(qp, idx, &w);
	if (st != KARST_WC_SUCCESS || w.h.opcode != slot->op)
		return KARST_WC_LOC_QP_OP_ERR;
	core->copy_small = true;
	st = karst_wqe_scatter(core, qp, &w, 0, (const uint8_t *)&old, sizeof(old));
	core->copy_small = false;
	return st;
}

/* Whether this response opcode answers this operation. */
static bool
response_fits(uint8_t op, uint8_t opcode)
{
	uint8_t operation = opcode & KARST_OPERATION_MASK;

	switch (op) {
	case KARST_WR_RDMA_READ:
		return operation != KARST_OPERATION_ATOMIC_ACK;
	case KARST_WR_ATOMIC_WRITE:
	case KARST_WR_FLUSH:
		return operation == KARST_OPERATION_READ_RESP_ONLY;
	default:
		return operation == KARST_OPERATION_ATOMIC_ACK;
	}
}

static inline enum karst_wc_status
take_response(struct karst_core *core, struct karst_core_qp *qp, uint32_t idx,
	const struct karst_pkt *pkt, bool early)
{
	uint8_t op = qp->req.slots[idx & qp->sq.mask].op;

	if (karst_likely(op == KARST_WR_RDMA_READ))
		return take_read_response(core, qp, idx, pkt, early);
	if (op == KARST_WR_ATOMIC_WRITE || op == KARST_WR_FLUSH)
		return pkt->pay_len != 0 ? KARST_WC_BAD_RESP_ERR : KARST_WC_SUCCESS;
	return take_atomic_response(core, qp, idx, pkt);
}

static inline void
credits_of(struct karst_requester *r, const struct karst_pkt *pkt)
{
	if ((karst_opcode_flags(pkt->opcode) & KARST_OPF_AETH) &&
		(karst_aeth_syndrome(pkt->aeth) & KARST_AETH_TYPE_MASK) == KARST_AETH_ACK)
		karst_requester_take_credits(
			r, karst_aeth_syndrome(pkt->aeth), karst_aeth_msn(pkt->aeth));
}

/* X11: responses before this one are missing.  An invalid one is dropped: it is requested again,
 * and is then checked as the next expected response. */
static karst_noinline void
early_response(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	struct karst_requester *r = &qp->req;
	enum karst_wc_status st;
	uint32_t idx = 0;

	/* it may acknowledge PSNs ahead of a cursor that went back */
	karst_requester_follow_up(core, qp);
	if (!karst_qp_may_send(qp)) {
		karst_drop_pkt(core, pkt, KARST_DROP_UNEXPECTED_RESPONSE);
		return;
	}
	switch (karst_gaps_find(core, qp, pkt, &idx)) {
	case KARST_GAP_ANSWER:
		break;
	case KARST_GAP_KNOWN:
		karst_drop_pkt(core, pkt, KARST_DROP_UNEXPECTED_RESPONSE);
		return;
	case KARST_GAP_FAR:
		karst_drop_pkt(core, pkt, KARST_DROP_READ_GAP);
		karst_gaps_heard(core, qp, pkt->psn);
		return;
	default:
		karst_drop_pkt(core, pkt, KARST_DROP_READ_GAP);
		karst_requester_lost_response(core, qp, pkt->psn);
		karst_requester_follow_up(core, qp);
		return;
	}
	st = response_fits(r->slots[idx & qp->sq.mask].op, pkt->opcode)
		? take_response(core, qp, idx, pkt, true)
		: KARST_WC_BAD_RESP_ERR;
	if (!karst_copy_settle(core, pkt, st == KARST_WC_SUCCESS))
		return;
	if (st != KARST_WC_SUCCESS) {
		karst_drop_pkt(core, pkt, KARST_DROP_UNEXPECTED_RESPONSE);
		return;
	}
	credits_of(r, pkt);
	karst_gaps_taken(core, qp, idx, pkt->psn);
}

void
karst_requester_response(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	struct karst_requester *r = &qp->req;
	struct karst_sq_slot *slot;
	enum karst_wc_status st;

	/* Q3: it acknowledges everything before it */
	if (!karst_requester_ack_before(core, qp, pkt->psn)) {
		early_response(core, qp, pkt);
		return;
	}
	slot = &r->slots[r->una_idx & qp->sq.mask];
	if (!karst_qp_may_send(qp) || r->una_idx == r->nxt_idx || r->una_psn != pkt->psn ||
		!(slot->flags & KARST_SLOT_RD_ATOMIC) || !response_fits(slot->op, pkt->opcode)) {
		karst_drop_pkt(core, pkt, KARST_DROP_UNEXPECTED_RESPONSE);
		karst_requester_follow_up(core, qp);
		return;
	}
	st = take_response(core, qp, r->una_idx, pkt, false);
	if (!karst_copy_settle(core, pkt, st == KARST_WC_SUCCESS)) {
		/* what it has acknowledged remains acknowledged */
		karst_requester_follow_up(core, qp);
		return;
	}
	if (karst_unlikely(st != KARST_WC_SUCCESS)) {
		karst_requester_fail(core, qp, st, 0);
		return;
	}
	credits_of(r, pkt);
	if (karst_unlikely(slot->gap != 0)) {
		karst_gaps_filled(core, qp);
		karst_requester_follow_up(core, qp);
		return;
	}
	/* unless it answers what was sent before the cursor went back.  What it also acknowledges
	 * may have moved una past the cursor, which follows below. */
	if (karst_likely(karst_psn_before(r->una_psn, r->snd_psn)))
		r->rd_psns--;
	r->una_psn = karst_psn_add(r->una_psn, 1);
	if (r->una_psn == karst_psn_add(slot->psn, slot->npsn)) {
		slot->flags |= KARST_SLOT_DONE;
		karst_requester_complete_one(core, qp, KARST_WC_SUCCESS, 0);
		karst_qp_retire_sends(core, qp);
	}
	karst_requester_progress(core, qp, 1);
	karst_requester_follow_up(core, qp);
}
