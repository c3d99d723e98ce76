/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * UD: single packets (U1).  A send uses the headers of its address handle and is complete when the
 * packet is built.  A receive has 40 bytes of GRH area in front of the payload: the IPv6 header, or
 * the IPv4 header in the last 20 of them.
 */
#include "wqe.h"

/* --- sending --- */

static void
fail_send(struct karst_core *core, struct karst_core_qp *qp, enum karst_wc_status status)
{
	karst_requester_fail(core, qp, status, 0);
}

static enum karst_wc_status
ud_build(struct karst_core *core, struct karst_core_qp *qp, const struct karst_wqe *w,
	const struct karst_tmpl *t, struct karst_tx_burst *b)
{
	/* U1: a Q_Key with the high bit set means the QP's own */
	uint32_t qkey = w->h.ud.remote_qkey & 0x80000000u ? qp->qkey : w->h.ud.remote_qkey;
	enum karst_wc_status st = KARST_WC_SUCCESS;
	uint32_t nsegs = b->nsegs;
	struct karst_sge_cursor c;
	uint8_t *p;

	if (w->len > karst_qp_mtu(qp))
		return KARST_WC_LOC_LEN_ERR;
	p = karst_frame_open(b, t);
	/* the template of a handle has no partition and no destination */
	karst_bth_init(p - KARST_BTH_LEN, 0, 0, 0, qp->pkey, w->h.ud.remote_qpn, false, 0);
	karst_deth_set(p, qkey, qp->qpn);
	p += KARST_DETH_LEN;
	if (w->info->imm) {
		karst_put_be32(p, w->h.imm);
		p += KARST_IMM_LEN;
	}
	karst_wqe_seek(w, &c, 0);
	if (w->len != 0)
		st = karst_wqe_gather(core, qp, w, &c, w->len, b);
	if (karst_unlikely(st != KARST_WC_SUCCESS)) {
		b->nsegs = nsegs;
		return st;
	}
	karst_frame_close(b, t, p,
		KARST_TRANSPORT_UD |
			(w->info->imm ? KARST_OPERATION_SEND_ONLY_IMM : KARST_OPERATION_SEND_ONLY),
		(uint8_t)(core->bth_flags | (w->h.flags & KARST_SEND_SOLICITED ? KARST_BTH_SE : 0)),
		false, qp->req.snd_psn, w->len);
	return KARST_WC_SUCCESS;
}

enum sent { SENT, SENT_FAILED, SENT_ELSEWHERE, SENT_LATER };

/* Sends the oldest request.  It is not sent if it is for another port than the visit, or if its
 * bytes are not available yet: @more is then whether to try again. */
static enum sent
ud_send_one(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b, bool *more)
{
	struct karst_requester *r = &qp->req;
	uint32_t idx = r->una_idx;
	struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];
	enum karst_wc_status st;
	struct karst_wqe w;

	st = karst_wqe_load(qp, idx, &w);
	if (st == KARST_WC_SUCCESS) {
		const struct karst_tmpl *t = karst_ah_lookup(core->ahs, w.h.ud.ah, qp->pd);

		if (karst_likely(t != NULL) && karst_unlikely(t->port != qp->port)) {
			qp->port = t->port;
			*more = true;
			return SENT_ELSEWHERE;
		}
		st = t != NULL ? ud_build(core, qp, &w, t, b) : KARST_WC_LOC_QP_OP_ERR;
	}
	if (karst_unlikely(st == KARST_WC_PARKED)) {
		*more = !karst_copy_fetch_requests(core, qp, &w, idx, 0, KARST_COPY_AHEAD);
		return SENT_LATER;
	}
	if (karst_unlikely(st != KARST_WC_SUCCESS)) {
		fail_send(core, qp, st);
		return SENT_FAILED;
	}
	*slot = (struct karst_sq_slot){
		.psn = r->snd_psn, .npsn = 1, .len = w.len, .op = w.h.opcode};
	if ((w.h.flags & KARST_SEND_SIGNALED) || (qp->flags & KARST_QPF_SIG_ALL))
		slot->flags = KARST_SLOT_SIGNALED;
	r->snd_idx = r->nxt_idx = idx + 1;
	r->snd_psn = r->nxt_psn = r->una_psn = karst_psn_add(r->snd_psn, 1);
	karst_requester_complete_one(core, qp, KARST_WC_SUCCESS, 0);
	return SENT;
}

bool
karst_datagram_tx(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b, uint32_t limit)
{
	struct karst_requester *r = &qp->req;
	uint32_t head = r->una_idx;
	enum sent sent = SENT;
	bool more = false;

	while (qp->state == KARST_QPS_RTS && sent == SENT && !karst_copy_busy(qp, KARST_COPY_REQ)) {
		if (!karst_frame_room(b, qp->sq.max_sge) || b->bytes >= limit) {
			more = true;
			break;
		}
		if (r->una_idx == qp->sq.tail && karst_wqe_poll(&qp->sq) != 0) {
			karst_qp_sq_corrupt(core, qp);
			karst_qp_error(core, qp, KARST_EVENT_QP_FATAL);
			break;
		}
		if (r->una_idx == qp->sq.tail) {
			karst_requester_dry(core, qp);
			break;
		}
		r->flags &= (uint8_t)~KARST_REQ_IDLE;
		sent = ud_send_one(core, qp, b, &more);
	}
	if (r->una_idx != head)
		karst_qp_retire_sends(core, qp);
	if (qp->state == KARST_QPS_SQD)
		karst_requester_settle(core, qp);
	return more;
}

/* --- receiving --- */

/* U1: the area in front of the payload. */
static void
grh_area(const struct karst_pkt *pkt, uint8_t *area)
{
	const uint8_t *l3 = pkt->data + karst_pkt_l3_off(pkt);

	if (pkt->flags & KARST_PKT_IP6) {
		memcpy(area, l3, KARST_IP6_LEN);
	} else {
		memset(area, 0, KARST_GRH_LEN - KARST_IP4_LEN);
		memcpy(area + KARST_GRH_LEN - KARST_IP4_LEN, l3, KARST_IP4_LEN);
	}
}

void
karst_ud_rx(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	struct karst_rwqe *w = &qp->rsp.rwqe;
	struct karst_recv_done done = {
		.status = KARST_WC_SUCCESS,
		.opcode = KARST_WC_RECV,
		.flags = pkt->flags & KARST_PKT_IP6 ? KARST_WC_GRH : KARST_WC_GRH | KARST_WC_IP4,
		.byte_len = KARST_GRH_LEN + pkt->pay_len,
		.src_qpn = pkt->src_qpn,
		.solicited = (pkt->flags & KARST_PKT_SE) != 0,
	};
	uint8_t grh[KARST_GRH_LEN];

	if (pkt->qkey != qp->qkey) {
		karst_drop_pkt(core, pkt, KARST_DROP_QKEY);
		return;
	}
	if (pkt->pay_len > karst_qp_mtu(qp)) {
		karst_drop_pkt(core, pkt, KARST_DROP_UD_LENGTH);
		return;
	}
	if (karst_recv_take(core, qp) != KARST_RWQE_OK) {
		karst_drop_pkt(core, pkt, KARST_DROP_NO_WQE);
		return;
	}
	if (!w->bad && w->total < (uint32_t)KARST_GRH_LEN + pkt->pay_len) {
		/* the work request stays for the next packet; but a shared queue's is for other QPs
		 * as well */
		karst_drop_pkt(core, pkt, KARST_DROP_UD_LENGTH);
		done = (struct karst_recv_done){
			.status = KARST_WC_LOC_LEN_ERR, .opcode = KARST_WC_RECV};
		if (qp->srq != NULL)
			karst_recv_complete(core, qp, &done);
		return;
	}
	grh_area(pkt, grh);
	core->copy_small = true;
	done.status = karst_recv_place(core, qp, grh, sizeof(grh), pkt->pay_len == 0);
	core->copy_small = false;
	if (done.status == KARST_WC_SUCCESS)
		done.status =
			karst_recv_place(core, qp, pkt->data + pkt->pay_off, pkt->pay_len, true);
	if (!karst_copy_settle(core, pkt, done.status == KARST_WC_SUCCESS)) {
		karst_recv_unplace(w, w->got);
		return;
	}
	if (karst_unlikely(done.status != KARST_WC_SUCCESS)) {
		done = (struct karst_recv_done){.status = done.status, .opcode = KARST_WC_RECV};
		karst_drop_pkt(core, pkt, KARST_DROP_UD_LENGTH);
		karst_recv_complete(core, qp, &done);
		karst_qp_error(core, qp, KARST_EVENT_QP_FATAL);
		return;
	}
	if (karst_opcode_flags(pkt->opcode) & KARST_OPF_IMM) {
		done.flags |= KARST_WC_WITH_IMM;
		done.imm = pkt->imm;
	}
	karst_count(&core->counters, KARST_CTR_RX_REQUESTS);
	karst_recv_complete(core, qp, &done);
}
