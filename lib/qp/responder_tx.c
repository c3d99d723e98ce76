/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The responder sends (RC): responses of READs and atomics in the order of their requests, then the
 * scheduled ACK or NAK.
 *
 * READ data is taken from memory at this time, and the key is checked for each packet, because the
 * region may have been deregistered since the request was accepted.  In that case a NAK with the
 * PSN of the response replaces the response.
 */
#include "frame.h"
#include "repeat.h"

/* Q9: the credit code of the AETH for receive work requests; "not limited" unless credits are
 * enabled. */
static uint8_t
credit_code(struct karst_core_qp *qp)
{
	uint32_t n, code;

	if (!(qp->flags & KARST_QPF_CREDITS) || qp->srq != NULL)
		return KARST_AETH_CREDIT_UNLIMITED;
	if (karst_wqe_poll(&qp->rq) != 0)
		return 0;
	n = qp->rq.tail - qp->rq.head;
	for (code = 0; code < 30 && karst_credits[code + 1] <= n; code++)
		;
	return (uint8_t)code;
}

static uint8_t *
put_aeth(struct karst_core_qp *qp, uint8_t *p, uint8_t syndrome)
{
	karst_aeth_set(p, syndrome, qp->rsp.msn);
	return p + KARST_AETH_LEN;
}

/* Builds packet @psn of a READ response, the @first or @last of what was requested.  LOC_PROT_ERR:
 * the memory is not valid any more; PARKED: its bytes are not available yet. */
static enum karst_wc_status
build_read_response(struct karst_core *core, struct karst_core_qp *qp, const struct karst_rsp *e,
	uint32_t psn, bool first, bool last, struct karst_tx_burst *b)
{
	uint32_t off = karst_psn_add(psn, -e->psn) << qp->mtu_shift;
	uint32_t n = karst_min_u32(karst_qp_mtu(qp), e->len - off);
	uint8_t operation = first
		? (last ? KARST_OPERATION_READ_RESP_ONLY : KARST_OPERATION_READ_RESP_FIRST)
		: (last ? KARST_OPERATION_READ_RESP_LAST : KARST_OPERATION_READ_RESP_MIDDLE);
	const uint8_t *src;
	uint8_t *host = NULL, *p;

	if (n != 0 &&
		karst_unlikely(
			karst_mem_check_remote(core->mem, e->pd, qp->qpn, e->rkey, e->va + off, n,
				KARST_ACCESS_REMOTE_READ, &host) != KARST_MEM_OK))
		return KARST_WC_LOC_PROT_ERR;
	src = host;
	if (karst_mem_is_unmapped(src)) {
		enum karst_wc_status st =
			karst_copy_get(core, qp, KARST_COPY_RSP, psn, host, n, &src);

		if (st != KARST_WC_SUCCESS)
			return st;
	}
	p = karst_frame_open(b, &qp->tmpl);
	if (first || last)
		p = put_aeth(qp, p, KARST_AETH_ACK | credit_code(qp));
	if (n != 0)
		karst_frame_seg(b, src, n);
	karst_frame_close(b, &qp->tmpl, p, karst_qp_transport(qp) | operation, 0, false, psn, n);
	return KARST_WC_SUCCESS;
}

static void
build_atomic_response(struct karst_core *core, struct karst_core_qp *qp, const struct karst_rsp *e,
	struct karst_tx_burst *b)
{
	uint8_t *p = put_aeth(qp, karst_frame_open(b, &qp->tmpl), KARST_AETH_ACK | credit_code(qp));
	/* ATOMIC WRITE and FLUSH are answered by an empty READ response (L6, R15) */
	uint8_t operation = KARST_OPERATION_READ_RESP_ONLY;

	if (e->type == KARST_RSP_ATOMIC) {
		operation = KARST_OPERATION_ATOMIC_ACK;
		karst_put_be64(p, e->va);
		p += KARST_ATOMICACK_LEN;
	}
	karst_frame_close(b, &qp->tmpl, p, karst_qp_transport(qp) | operation, 0, false, e->psn, 0);
}

/* The source of a READ is not valid any more: schedules a NAK, which ends the connection. */
static void
source_gone(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_responder *r = &qp->rsp;

	karst_count(&core->counters, KARST_CTR_ERROR_NAK_SENT);
	karst_count(&core->counters, KARST_CTR_RESP_REMOTE_ACCESS_ERRORS);
	r->owed = KARST_OWED_NAK;
	r->syndrome = KARST_AETH_NAK | KARST_NAK_REM_ACCESS;
	r->nak_psn = r->rsp_psn;
	r->wait = KARST_WAIT_NONE;
	r->rsp_cur = r->rsp_added;
	r->fatal = true;
	karst_qp_error(core, qp, KARST_EVENT_QP_ACCESS_ERR);
}

static void
next_response(struct karst_responder *r, const struct karst_rsp *e)
{
	r->rsp_psn = karst_psn_add(r->rsp_psn, 1);
	if (r->rsp_psn != e->end)
		return;
	r->rsp_cur++;
	if ((int32_t)(r->rsp_cur - r->rsp_done) > 0)
		r->rsp_done = r->rsp_cur;
	karst_rsp_seek(r);
}

/*
 * R3, L12: the PSN of an ACK.  It covers everything that was executed, except that if the newest
 * requests are READs or atomics, it covers only what precedes them.  Their responses acknowledge
 * them, and Linux takes an ACK of such a PSN for the response, and completes the request without
 * its data.  New work never needs such an ACK (rsp_add()); only duplicates of what precedes them
 * do.
 */
uint32_t
karst_acked_psn(const struct karst_responder *r)
{
	uint32_t psn = karst_psn_add(r->epsn, -1u), i;

	for (i = 1; i <= r->rsp_saved; i++) {
		const struct karst_rsp *e = karst_rsp_at(r, r->rsp_added - i);

		if (karst_psn_add(e->psn, e->npsn - 1) != psn)
			break;
		psn = karst_psn_add(e->psn, -1u);
	}
	return psn;
}

/* X7: whether the scheduled acknowledgement is a SACK.  @param again  set: a SACK has to follow
 * it */
static bool
says_what_is_held(const struct karst_core_qp *qp, bool *again)
{
	struct karst_repeat *p = karst_repeat_of(qp);
	bool plain, says;

	if (p == NULL || qp->rsp.owed != KARST_OWED_ACK)
		return false;
	/* a peer that repeats an executed request has not got the acknowledgement, and may not know
	 * SACKs */
	plain = p->plain;
	p->plain = false;
	says = karst_repeat_says(qp);
	/* otherwise nothing may follow that reports what was dropped */
	*again = says && plain && p->lacks;
	return says && !plain;
}

/* Completes a SACK, whose AETH ends at @p. */
static karst_noinline void
build_sack(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b, uint8_t *p)
{
	struct karst_pkt *pkt = b->pkts[b->n];
	uint8_t *end = karst_repeat_put_bitmap(qp, p);

	/* the frame builder treats the bitmap as headers, a parser as payload */
	karst_frame_close(
		b, &qp->tmpl, end, KARST_SACK, 0, false, karst_psn_add(qp->rsp.epsn, -1u), 0);
	pkt->pay_off = (uint8_t)(p - pkt->data);
	pkt->pay_len = (uint16_t)(end - p);
	karst_count(&core->counters, KARST_CTR_SACK_SENT);
}

static void
build_ack(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b)
{
	struct karst_responder *r = &qp->rsp;
	uint8_t opcode = karst_qp_transport(qp) | KARST_OPERATION_ACK;
	uint8_t syndrome = r->syndrome, *p;
	bool again = false;
	uint32_t psn;

	if (r->owed == KARST_OWED_NAK && r->wait == KARST_WAIT_SEQ) {
		/* what was missing may have arrived since; the gap now begins at the expected
		 * PSN */
		r->nak_psn = r->epsn;
		if (karst_psn_before(r->oos_psn, r->epsn)) {
			karst_unowe_nak(qp);
			if (r->owed == KARST_OWED_NONE)
				return;
		}
	}
	if (r->owed == KARST_OWED_NAK) {
		psn = r->nak_psn;
		karst_rsp_leave_none(r);
	} else {
		psn = karst_acked_psn(r);
		syndrome = KARST_AETH_ACK | credit_code(qp);
	}
	p = put_aeth(qp, karst_frame_open(b, &qp->tmpl), syndrome);
	if (says_what_is_held(qp, &again)) {
		build_sack(core, qp, b, p);
	} else {
		if (karst_mutant(KARST_MUTANT_SACK_UNASKED) && qp->repeat == NULL)
			opcode = KARST_SACK;
		karst_frame_close(b, &qp->tmpl, p, opcode, 0, false, psn, 0);
	}
	karst_count(&core->counters, KARST_CTR_ACK_SENT);
	/* the peer waits now, and shall not send again what is held (X6) */
	again |= r->owed == KARST_OWED_NAK && r->wait == KARST_WAIT_RNR &&
		karst_repeat_of(qp) != NULL && karst_repeat_says(qp);
	r->owed = again ? KARST_OWED_ACK : KARST_OWED_NONE;
}

/* X11: sends parts that were requested again, before what was never answered.  @return false: not
 * all of them could be sent now. */
static karst_noinline bool
answer_again(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b, uint32_t limit)
{
	struct karst_repeat_part *x;
	enum karst_wc_status st;

	while ((x = karst_repeat_part(qp)) != NULL) {
		const struct karst_rsp *e = karst_rsp_at(&qp->rsp, x->which);
		uint32_t psn = x->psn, next = karst_psn_add(psn, 1);

		if (!karst_frame_room(b, 1) || b->bytes >= limit)
			return false;
		x->psn = next;
		if (e->type != KARST_RSP_READ) {
			build_atomic_response(core, qp, e, b);
			continue;
		}
		st = build_read_response(core, qp, e, psn, psn == x->beg, next == x->last, b);
		if (st == KARST_WC_PARKED) {
			x->psn = psn;
			karst_copy_fetch_response(core, qp, e, psn, x->end);
			return false;
		}
		/* the key may have been invalidated since: no answer */
		if (st != KARST_WC_SUCCESS)
			x->psn = x->end;
	}
	return true;
}

/*
 * Whether a visit of @limit bytes, whose first packet is number @from of the burst, ends in front
 * of the next packet, which belongs to @e.  It does not end between the last packet of a READ
 * response and the first one of the next response.  Both have an AETH, and so the same length,
 * while those between are shorter.  A port makes trains of packets of one length
 * (drivers/net/kport): parting these two costs a message to the kernel more.  The limit of a pacer
 * is kept.
 */
static inline bool
visit_ends(const struct karst_core_qp *qp, const struct karst_rsp *e,
	const struct karst_tx_burst *b, uint32_t from, uint32_t limit)
{
	const struct karst_pkt *built;

	if (karst_likely(b->bytes < limit))
		return false;
	if (b->n == from || e->type != KARST_RSP_READ || qp->rsp.rsp_psn != e->beg ||
		e->len < karst_qp_mtu(qp) || qp->req.paced)
		return true;
	built = b->pkts[b->n - 1];
	return (built->opcode & KARST_OPERATION_MASK) != KARST_OPERATION_READ_RESP_LAST ||
		built->pay_len != karst_qp_mtu(qp);
}

bool
karst_responder_tx(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b, uint32_t limit)
{
	struct karst_responder *r = &qp->rsp;
	uint32_t from = b->n;
	enum karst_wc_status st;

	if (karst_copy_busy(qp, KARST_COPY_RSP))
		return false;
	if (karst_repeat_of(qp) != NULL && qp->repeat->nparts != 0 &&
		!answer_again(core, qp, b, limit))
		return !karst_copy_busy(qp, KARST_COPY_RSP);
	if (r->rsp_cur != r->rsp_added)
		r->rsp_clock = karst_rsp_clock(core);
	while (r->rsp_cur != r->rsp_added) {
		const struct karst_rsp *e = karst_rsp_at(r, r->rsp_cur);

		if (!karst_frame_room(b, 1) || visit_ends(qp, e, b, from, limit))
			return true;
		if (e->type != KARST_RSP_READ) {
			build_atomic_response(core, qp, e, b);
		} else if ((st = build_read_response(core, qp, e, r->rsp_psn, r->rsp_psn == e->beg,
				    karst_psn_add(r->rsp_psn, 1) == e->end, b)) ==
			KARST_WC_PARKED) {
			return !karst_copy_fetch_response(core, qp, e, r->rsp_psn, e->end);
		} else if (st != KARST_WC_SUCCESS) {
			if ((int32_t)(r->rsp_cur - r->rsp_done) >= 0) {
				source_gone(core, qp);
				break;
			}
			/* it was answered before.  The duplicate may be a late copy, and the key
			 * may have been invalidated since: no answer. */
			r->rsp_psn = karst_psn_add(e->end, -1u);
		}
		next_response(r, e);
	}
	while (r->owed != KARST_OWED_NONE) {
		if (!karst_frame_room(b, 0))
			return true;
		build_ack(core, qp, b);
	}
	return false;
}
