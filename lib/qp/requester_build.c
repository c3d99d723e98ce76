/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The requester sends: builds frames from the send ring (RC, UC and XRC).
 *
 * The cursor (snd_idx, snd_psn) is the request and the packet of it that come next.  A request that
 * is reached for the first time (snd_idx == nxt_idx) is validated and gets its slot: first PSN,
 * number of PSNs, length.  A request that is reached again, because its packets did not fit into
 * one visit or because go-back-N moved the cursor back, is read again from the ring and must still
 * agree with its slot.  So the position in the message follows from the PSN alone, and a
 * retransmission needs only a smaller cursor.
 *
 *	karst_requester_tx   one visit: requests until burst, window or work ends
 *	  send_request       one request: load, start, packets
 *	    start_request    gates (fence, READ limit, credits) and the slot
 *	    send_local       LOCAL_INV, BIND_MW: no packets
 *	    send_single      READ, atomics, FLUSH: one packet, many PSNs
 *	    send_message     SEND, WRITE: packets up to the MTU
 *	karst_requester_repeat  one packet again, by itself (X9)
 *
 * UC uses the same code and completes requests when their last packet is built.
 */
#include "gaps.h"
#include "pacer.h"
#include "probe.h"
#include "repeat.h"
#include "wqe.h"

/* Upper bound of the headers of a frame with data. */
#define HEADERS_MAX 128u

/* A bind takes no PSN, so no window limits how many are executed while an earlier request waits for
 * its answer.  But while a response is missing (gaps.c), each packet of the peer causes a walk
 * through all outstanding requests.  So there are at most this many and a window. */
#define LOCAL_AHEAD 1024u

/* PSNs that are under way in this round. */
static inline uint32_t
requester_under_way(const struct karst_requester *r)
{
	return karst_psn_distance(r->snd_psn, r->una_psn);
}

/* The packets under way that count against the window.  READs and atomics have their own limit,
 * max_rd_atomic; but in a window that a timeout has reduced, their answers count as well. */
static inline uint32_t
packets_out(const struct karst_core *core, const struct karst_requester *r)
{
	return requester_under_way(r) -
		(karst_likely(r->window >= core->wary_packets) ? r->rd_psns : 0);
}

/* Whether the packet that is being built is the last that a reduced window allows before an
 * acknowledgement.  PSNs of READs count here, also where packets_out() does not count them; what is
 * missed because of that asks by asks_again(). */
static inline bool
closes_small_window(const struct karst_core *core, const struct karst_requester *r)
{
	return karst_unlikely(r->window < core->window_packets) &&
		requester_under_way(r) + 1 == r->window;
}

/* Whether the packet that is being built is the ack_interval-th since one asked for an
 * acknowledgement, or has to ask because the cursor went back.  A window that is smaller than the
 * interval replaces it: a full window must contain a packet that asks, or it would never open. */
static inline bool
asks_again(const struct karst_core *core, const struct karst_requester *r)
{
	return karst_psn_distance(r->snd_psn, r->asked_psn) + 1 >=
		karst_min_u32(core->ack_interval, r->window);
}

/* E6: whether the packet of @n bytes that is being built is the last for which there are tokens. */
static inline bool
pauses_behind(
	const struct karst_core_qp *qp, const struct karst_tx_burst *b, uint32_t n, uint32_t limit)
{
	return karst_unlikely(qp->req.paced) && qp->pacer->rate != 0 &&
		b->bytes + n + HEADERS_MAX >= limit;
}

/* The result of a step. */
enum step {
	STEP_NEXT,    /* this request was sent: continue with the next */
	STEP_MORE,    /* the burst is full: continue in the next visit */
	STEP_QUIET,   /* as STEP_NEXT, but no frame was built */
	STEP_BLOCKED, /* an acknowledgement, a timer or a doorbell will activate the queue pair */
};

/* --- gates --- */

void
karst_requester_fail_at(struct karst_core *core, struct karst_core_qp *qp, uint32_t idx,
	enum karst_wc_status status)
{
	qp->req.flags |= KARST_REQ_FAILED;
	qp->req.fail_idx = idx;
	qp->req.fail_status = (uint8_t)status;
	/* completes it at once if no request is before it */
	karst_requester_settle(core, qp);
}

/* Q9: a request that takes a receive work request at the peer needs a credit, or is sent alone. */
static bool
credit_ok(const struct karst_requester *r, uint32_t idx)
{
	return !(r->flags & KARST_REQ_LIMITED) ||
		!karst_psn_before(r->lsn, karst_psn_add(r->ssn, 1)) || r->una_idx == idx;
}

/* Q13: whether each packet of the request is a message of its own.  With UC, a message of which a
 * packet is lost has to be lost as a whole. */
static inline bool
is_divided(const struct karst_core *core, const struct karst_core_qp *qp, const struct karst_wqe *w)
{
	return core->divide_writes && w->h.opcode == KARST_WR_RDMA_WRITE &&
		qp->type != KARST_QPT_UC;
}

static bool
gates_open(const struct karst_core *core, const struct karst_core_qp *qp, const struct karst_wqe *w,
	uint32_t idx)
{
	const struct karst_requester *r = &qp->req;

	/* Q1: a fence waits for earlier READs and atomics */
	if ((w->h.flags & KARST_SEND_FENCE) && r->rd_out != 0 &&
		!karst_mutant(KARST_MUTANT_NO_FENCE))
		return false;
	/* earlier requests may have to be sent again, and may need what LOCAL_INV removes */
	if (w->h.opcode == KARST_WR_LOCAL_INV && r->una_idx != idx)
		return false;
	if (w->h.opcode == KARST_WR_BIND_MW &&
		idx - r->una_idx >= LOCAL_AHEAD + core->window_packets)
		return false;
	if ((w->info->slot_flags & KARST_SLOT_CREDIT) && karst_qp_reliable(qp) &&
		!credit_ok(r, idx) && !karst_mutant(KARST_MUTANT_CREDIT))
		return false;
	return true;
}

/* A request is reached for the first time: validates all of it, then assigns its PSNs. */
static enum step
start_request(
	struct karst_core *core, struct karst_core_qp *qp, const struct karst_wqe *w, uint32_t idx)
{
	struct karst_requester *r = &qp->req;
	struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];
	enum karst_wc_status st = KARST_WC_SUCCESS;
	uint32_t npsn;

	/* a message is not begun if its end may not be sent; a single packet is checked when it is
	 * gathered, and the destination of a response when that arrives (D29) */
	if (w->len > karst_qp_mtu(qp) && !w->info->sink)
		st = karst_wqe_check(core, qp, w);
	if (karst_unlikely(st != KARST_WC_SUCCESS)) {
		karst_requester_fail_at(core, qp, idx, st);
		return STEP_BLOCKED;
	}
	if (karst_unlikely((w->info->slot_flags & KARST_SLOT_RD_ATOMIC) && r->max_rd_atomic == 0)) {
		karst_requester_fail_at(core, qp, idx, KARST_WC_LOC_QP_OP_ERR);
		return STEP_BLOCKED;
	}
	if (!gates_open(core, qp, w, idx))
		return STEP_BLOCKED;
	/* packets of messages are counted one by one */
	if (karst_repeat_of(qp) != NULL && (w->info->slot_flags & KARST_SLOT_RD_ATOMIC) &&
		karst_repeat_room(core, qp) == 0)
		return STEP_BLOCKED;
	npsn = w->info->slot_flags & KARST_SLOT_LOCAL ? 0 : karst_psn_count(w->len, qp->mtu_shift);
	/* P2: never more than half of the PSN space between oldest and newest */
	if (karst_unlikely(karst_psn_distance(r->nxt_psn, r->una_psn) + npsn > 1u << 23))
		return STEP_BLOCKED;
	if (!(w->info->slot_flags & KARST_SLOT_LOCAL))
		r->ssn = karst_psn_add(r->ssn, is_divided(core, qp, w) ? npsn : 1);
	*slot = (struct karst_sq_slot){
		.psn = r->nxt_psn,
		.npsn = npsn,
		.len = w->len,
		.op = w->h.opcode,
		.flags = w->info->slot_flags,
	};
	if ((w->h.flags & KARST_SEND_SIGNALED) || (qp->flags & KARST_QPF_SIG_ALL))
		slot->flags |= KARST_SLOT_SIGNALED;
	r->nxt_idx = idx + 1;
	return STEP_NEXT;
}

/* --- packets --- */

/* Moves the cursor past @npsn PSNs that were just sent. */
static void
cursor_advance(struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn)
{
	struct karst_requester *r = &qp->req;
	bool again = r->snd_psn != r->nxt_psn;

	r->snd_psn = karst_psn_add(r->snd_psn, npsn);
	if (karst_unlikely(again)) {
		karst_count(&core->counters, KARST_CTR_RETRANSMITS);
		karst_qp_note(&qp->retransmits);
	} else {
		r->nxt_psn = r->snd_psn;
	}
}

static enum step
send_local(
	struct karst_core *core, struct karst_core_qp *qp, const struct karst_wqe *w, uint32_t idx)
{
	struct karst_requester *r = &qp->req;
	struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];
	uint32_t key = 0;
	int rc;

	if (!(slot->flags & KARST_SLOT_DONE)) {
		if (w->h.opcode == KARST_WR_LOCAL_INV) {
			rc = karst_mem_invalidate(core->mem, qp->pd, qp->qpn, w->h.imm, false);
		} else {
			struct karst_mw_bind bind = {
				.pd = qp->pd,
				.qpn = qp->qpn,
				.mw_key = w->h.bind.mw_key,
				.new_key = w->h.bind.new_key,
				.mr_key = w->h.bind.mr_key,
				.va = w->h.bind.addr,
				.len = w->h.bind.len,
				.access = w->h.bind.access,
			};
			rc = karst_mw_bind(core->mem, &bind, &key);
		}
		if (rc != 0) {
			karst_requester_fail_at(core, qp, idx,
				w->h.opcode == KARST_WR_BIND_MW ? KARST_WC_MW_BIND_ERR
								: KARST_WC_LOC_QP_OP_ERR);
			return STEP_BLOCKED;
		}
		slot->len = key; /* the completion returns it to the program */
		slot->flags |= KARST_SLOT_DONE;
	}
	r->snd_idx = idx + 1;
	karst_requester_settle(core, qp);
	return STEP_QUIET;
}

/* Writes the headers between BTH and those of an operation (W5).  @return the end of these. */
static inline uint8_t *
open_request(const struct karst_core_qp *qp, const struct karst_wqe *w, uint8_t transport,
	struct karst_tx_burst *b)
{
	uint8_t *p = karst_frame_open(b, &qp->tmpl);

	karst_repeat_spray(qp, p - KARST_BTH_LEN);
	if (karst_likely(transport != KARST_TRANSPORT_XRC))
		return p;
	karst_xrceth_set(p, w->h.rdma.srqn);
	return p + KARST_XRCETH_LEN;
}

/* A frame at @off of request @idx could not be gathered: fails the request, or fetches its
 * bytes. */
static karst_noinline enum step
not_built(struct karst_core *core, struct karst_core_qp *qp, const struct karst_wqe *w,
	uint32_t idx, uint32_t off, struct karst_tx_burst *b, uint32_t nsegs,
	enum karst_wc_status st)
{
	const struct karst_requester *r = &qp->req;
	uint32_t frames = KARST_COPY_AHEAD;

	b->nsegs = nsegs;
	if (st != KARST_WC_PARKED) {
		karst_requester_fail_at(core, qp, idx, st);
		return STEP_BLOCKED;
	}
	if (qp->type != KARST_QPT_UC && r->window > requester_under_way(r))
		frames = karst_min_u32(frames, r->window - requester_under_way(r));
	return karst_copy_fetch_requests(core, qp, w, idx, off, frames) ? STEP_BLOCKED : STEP_MORE;
}

/* The cursor went back and has reached a request that was answered before earlier ones: skips it,
 * and counts it among the outstanding ones. */
static karst_noinline enum step
step_over(struct karst_requester *r, uint32_t npsn)
{
	r->rd_out++;
	r->rd_psns += npsn;
	r->snd_psn = karst_psn_add(r->snd_psn, npsn);
	r->snd_idx++;
	return STEP_QUIET;
}

/* READ, atomics, ATOMIC WRITE, FLUSH: one packet that is answered by a response (Q5, X11). */
static enum step
send_single(struct karst_core *core, struct karst_core_qp *qp, const struct karst_wqe *w,
	uint32_t idx, struct karst_tx_burst *b)
{
	struct karst_requester *r = &qp->req;
	struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];
	bool again = r->snd_psn != r->nxt_psn;
	uint32_t left = slot->npsn - karst_psn_add(r->snd_psn, -slot->psn);
	uint32_t psn = r->snd_psn, end = karst_psn_add(psn, left), off, len, pay_len = 0;
	uint32_t nsegs = b->nsegs;
	uint8_t transport = karst_qp_transport(qp), *p;
	enum karst_wc_status st;

	if (r->rd_out >= r->max_rd_atomic && !karst_mutant(KARST_MUTANT_RD_LIMIT))
		return STEP_BLOCKED;
	/* after a timeout responses are counted as well: a READ requests many packets */
	if (karst_unlikely(r->window < core->wary_packets) && requester_under_way(r) >= r->window &&
		karst_repeat_of(qp) == NULL)
		return STEP_BLOCKED;
	if (karst_unlikely(again)) {
		if (slot->flags & KARST_SLOT_DONE)
			return step_over(r, left);
		psn = karst_gaps_range(core, qp, slot, psn, &end);
	}
	if (!karst_frame_room(b, w->nsge))
		return STEP_MORE;
	off = karst_psn_add(psn, -slot->psn) << qp->mtu_shift;
	len = karst_min_u32(w->len - off, karst_psn_distance(end, psn) << qp->mtu_shift);
	if (karst_mutant(KARST_MUTANT_READ_RETRY_PSN) && w->h.opcode == KARST_WR_RDMA_READ)
		psn = slot->psn;
	p = open_request(qp, w, transport, b);
	if (w->h.opcode == KARST_WR_RDMA_READ) {
		/* Q5: after a loss only the missing part; VA, length and PSN are advanced
		 * together */
		karst_reth_set(p,
			w->h.rdma.remote_addr +
				(karst_mutant(KARST_MUTANT_READ_RETRY_VA) ? 0 : off),
			w->h.rdma.rkey, len);
		p += KARST_RETH_LEN;
	} else if (w->h.opcode == KARST_WR_ATOMIC_WRITE) {
		struct karst_sge_cursor c = {0, 0};

		karst_reth_set(p, w->h.rdma.remote_addr, w->h.rdma.rkey, w->len);
		p += KARST_RETH_LEN;
		pay_len = w->len;
		karst_wqe_seek(w, &c, 0);
		st = karst_wqe_gather(core, qp, w, &c, pay_len, b);
		if (karst_unlikely(st != KARST_WC_SUCCESS))
			return not_built(core, qp, w, idx, 0, b, nsegs, st);
	} else if (w->h.opcode == KARST_WR_FLUSH) {
		karst_feth_set(p, w->h.flush.type, w->h.flush.level);
		p += KARST_FETH_LEN;
		karst_reth_set(p, w->h.rdma.remote_addr, w->h.rdma.rkey, w->h.flush.len);
		p += KARST_RETH_LEN;
	} else {
		bool cas = w->h.opcode == KARST_WR_ATOMIC_CAS;

		karst_atomiceth_set(p, w->h.rdma.remote_addr, w->h.rdma.rkey,
			cas ? w->h.atomic.swap : w->h.atomic.compare_add,
			cas ? w->h.atomic.compare_add : 0);
		p += KARST_ATOMICETH_LEN;
	}
	karst_frame_close(b, &qp->tmpl, p, transport | w->info->opc[3], 0, true, psn, pay_len);
	karst_probe_time(core, qp, r->snd_psn);
	if (karst_unlikely(r->paced))
		karst_pacer_sent(core, qp, karst_psn_distance(end, psn));
	r->rd_out++;
	r->rd_psns += left;
	cursor_advance(core, qp, left);
	r->asked_psn = r->snd_psn;
	r->snd_idx = idx + 1;
	if (karst_unlikely(again)) {
		slot->flags &= (uint8_t)~KARST_SLOT_ASK;
		if (karst_gaps_any(qp))
			karst_gaps_asked(core, qp, slot, end);
	}
	return STEP_NEXT;
}

/* One packet of a SEND or WRITE: @n payload bytes at message offset @off. */
karst_always_inline enum karst_wc_status
build_packet(struct karst_core *core, struct karst_core_qp *qp, const struct karst_wqe *w,
	uint32_t off, uint32_t n, struct karst_sge_cursor *c, struct karst_tx_burst *b, bool waits)
{
	struct karst_requester *r = &qp->req;
	bool divided = is_divided(core, qp, w);
	bool first = off == 0 || divided, last = off + n == w->len;
	uint8_t transport = karst_qp_transport(qp), flags = 0;
	uint8_t *p = open_request(qp, w, transport, b);
	bool ackreq = false;

	if (first && w->info->reth) {
		karst_reth_set(
			p, w->h.rdma.remote_addr + off, w->h.rdma.rkey, divided ? n : w->len);
		p += KARST_RETH_LEN;
	}
	if (last && (w->info->imm || w->info->inv)) {
		karst_put_be32(p, w->h.imm);
		p += KARST_IMM_LEN;
	}
	if (n != 0) {
		enum karst_wc_status st = karst_wqe_gather(core, qp, w, c, n, b);

		if (karst_unlikely(st != KARST_WC_SUCCESS))
			return st;
	}
	/* Q2: on the last packet, and once in ack_interval, or in a window that is smaller; and on
	 * a packet that closes a window that a timeout has reduced, or after which nothing is sent
	 * for a while (E6) */
	if (transport != KARST_TRANSPORT_UC &&
		(last || asks_again(core, r) || waits || closes_small_window(core, r))) {
		ackreq = true;
		r->asked_psn = karst_psn_add(r->snd_psn, 1);
		karst_probe_time(core, qp, r->snd_psn);
	}
	/* E7: only a packet that closes a window causes a pause */
	if (karst_unlikely(waits) && r->paced)
		karst_pacer_sent(core, qp, 1);
	if (last && (w->h.flags & KARST_SEND_SOLICITED) &&
		(w->info->slot_flags & KARST_SLOT_CREDIT))
		flags = KARST_BTH_SE;
	karst_frame_close(b, &qp->tmpl, p, transport | w->info->opc[first << 1 | (last || divided)],
		flags, ackreq, r->snd_psn, n);
	return KARST_WC_SUCCESS;
}

/* How many packets of messages may be sent, or a lower bound above 1; 1: that packet has to ask for
 * an acknowledgement. */
static inline uint32_t
window_room(const struct karst_core *core, struct karst_core_qp *qp)
{
	if (karst_repeat_of(qp) != NULL)
		return karst_repeat_room(core, qp);
	/* UC: no packet comes back that could open a window */
	return qp->type != KARST_QPT_UC && packets_out(core, &qp->req) >= qp->req.window ? 0 : 2;
}

/* E7: the same, if congestion control may limit it as well. */
static karst_noinline uint32_t
paced_room(const struct karst_core *core, struct karst_core_qp *qp)
{
	return karst_pacer_room(core, qp, window_room(core, qp));
}

/* E7: the answer has to fit into the window, or nothing else may be under way. */
static inline bool
answer_fits(const struct karst_core *core, struct karst_core_qp *qp, uint32_t idx)
{
	const struct karst_requester *r = &qp->req;
	const struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];

	return karst_likely(!r->paced) ||
		karst_pacer_fits(core, qp, slot->npsn - karst_psn_add(r->snd_psn, -slot->psn));
}

static enum step
send_message(struct karst_core *core, struct karst_core_qp *qp, const struct karst_wqe *w,
	uint32_t idx, struct karst_tx_burst *b, uint32_t limit)
{
	struct karst_requester *r = &qp->req;
	const struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];
	uint32_t off = karst_psn_add(r->snd_psn, -slot->psn) << qp->mtu_shift;
	struct karst_sge_cursor c;
	enum karst_wc_status st;

	karst_wqe_seek(w, &c, off);
	for (;;) {
		uint32_t n = karst_min_u32(karst_qp_mtu(qp), w->len - off);
		uint32_t nsegs = b->nsegs;
		uint32_t room =
			karst_unlikely(r->paced) ? paced_room(core, qp) : window_room(core, qp);

		if (room == 0)
			return STEP_BLOCKED;
		if (!karst_frame_room(b, w->nsge) || b->bytes >= limit)
			return STEP_MORE;
		st = build_packet(
			core, qp, w, off, n, &c, b, room == 1 || pauses_behind(qp, b, n, limit));
		if (karst_unlikely(st != KARST_WC_SUCCESS))
			return not_built(core, qp, w, idx, off, b, nsegs, st);
		cursor_advance(core, qp, 1);
		off += n;
		if (off == w->len)
			break;
	}
	r->snd_idx = idx + 1;
	if (qp->type == KARST_QPT_UC || karst_mutant(KARST_MUTANT_EARLY_COMPLETE)) {
		/* no acknowledgement will come: the request is complete when it was sent */
		r->una_psn = r->snd_psn;
		karst_requester_complete_one(core, qp, KARST_WC_SUCCESS, 0);
	}
	return STEP_NEXT;
}

static enum step
send_request(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b, uint32_t limit)
{
	struct karst_requester *r = &qp->req;
	uint32_t idx = r->snd_idx;
	bool again = idx != r->nxt_idx;
	enum karst_wc_status st;
	struct karst_wqe w;

	st = karst_wqe_load(qp, idx, &w);
	if (karst_unlikely(st != KARST_WC_SUCCESS)) {
		karst_requester_fail_at(core, qp, idx, st);
		return STEP_BLOCKED;
	}
	if (!again) {
		enum step s = start_request(core, qp, &w, idx);

		if (s != STEP_NEXT)
			return s;
	} else {
		const struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];

		if (karst_unlikely(slot->op != w.h.opcode ||
			    (slot->len != w.len && !(slot->flags & KARST_SLOT_LOCAL)))) {
			/* the program changed an outstanding request */
			karst_qp_sq_corrupt(core, qp);
			karst_requester_fail_at(core, qp, idx, KARST_WC_LOC_QP_OP_ERR);
			return STEP_BLOCKED;
		}
	}
	if (w.info->slot_flags & KARST_SLOT_LOCAL)
		return send_local(core, qp, &w, idx);
	if (w.info->slot_flags & KARST_SLOT_RD_ATOMIC)
		return answer_fits(core, qp, idx) ? send_single(core, qp, &w, idx, b)
						  : STEP_BLOCKED;
	return send_message(core, qp, &w, idx, b, limit);
}

/* One packet was to be sent once more, alone: the peer still owes what it was asked for before
 * that, up to @asked. */
static void
keep_asked(struct karst_requester *r, uint32_t asked)
{
	if (karst_psn_before(r->asked_psn, asked))
		r->asked_psn = asked;
}

/* Sends the oldest packet once more, alone, with a request for an acknowledgement.  @end becomes
 * the PSN after it, or is unchanged if no packet was built.  @return false: there is no room for it
 * now.  It is true, too, if the packet may not be sent: max_rd_atomic may have been lowered. */
static karst_noinline bool
send_oldest(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b,
	uint32_t limit, uint32_t *end)
{
	struct karst_requester *r = &qp->req;
	struct karst_requester cursor = *r;
	uint32_t n = b->n;
	enum step s;

	r->snd_idx = r->una_idx;
	r->snd_psn = r->una_psn;
	r->rd_out = r->rd_psns = 0;
	r->window = 1;
	r->asked_psn = karst_psn_add(r->snd_psn, 1 - core->ack_interval);
	s = send_request(core, qp, b, limit);
	keep_asked(r, cursor.asked_psn);
	/* the request was changed, or is being fetched: then this amounts to going back */
	if (!karst_qp_may_send(qp) || karst_copy_busy(qp, KARST_COPY_REQ)) {
		karst_probe_forget(r);
		r->window = cursor.window;
		r->wary = KARST_WARY_NOT;
		/* the first packet asks, unless a later one has (Q6) */
		if (!karst_psn_before(r->una_psn, r->asked_psn))
			r->asked_psn = karst_psn_add(r->una_psn, 1 - core->ack_interval);
		return true;
	}
	*end = r->snd_psn;
	r->snd_idx = cursor.snd_idx;
	r->snd_psn = cursor.snd_psn;
	r->rd_out = cursor.rd_out;
	r->rd_psns = cursor.rd_psns;
	r->window = cursor.window;
	return s == STEP_BLOCKED || b->n != n;
}

/* Q11 */
static karst_noinline bool
send_probe(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b, uint32_t limit)
{
	uint32_t una = qp->req.una_psn, end = una;

	if (!send_oldest(core, qp, b, limit, &end))
		return false;
	if (end != una)
		karst_probe_sent(core, qp, end);
	else if (karst_copy_busy(qp, KARST_COPY_REQ))
		karst_probe_went_back(core, qp);
	else
		qp->req.probe_due = 0; /* the timer tries again */
	return true;
}

/* Q12: the window is full and reduced.  @return false: there is no room for the packet now. */
static karst_noinline bool
send_wary(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b, uint32_t limit)
{
	uint32_t una = qp->req.una_psn, end = una;

	if (packets_out(core, &qp->req) < qp->req.window || !karst_probe_wants(core, qp))
		return true;
	if (!send_oldest(core, qp, b, limit, &end) || karst_mutant(KARST_MUTANT_WARY_STORM))
		return false;
	if (end != una)
		karst_probe_wary_sent(qp);
	return true;
}

/* Q11, X10: the caller then sends it as a lost packet. */
static karst_noinline void
repeat_probe(struct karst_core *core, struct karst_core_qp *qp)
{
	karst_repeat_oldest(qp);
	karst_probe_sent(core, qp, karst_psn_add(qp->req.una_psn, 1));
}

/* --- one packet again --- */

static enum step
repeat_packet(struct karst_core *core, struct karst_core_qp *qp, const struct karst_wqe *w,
	uint32_t idx, struct karst_tx_burst *b)
{
	struct karst_requester *r = &qp->req;
	const struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];
	uint32_t off = karst_psn_add(r->snd_psn, -slot->psn) << qp->mtu_shift, nsegs = b->nsegs;
	struct karst_sge_cursor c;
	enum karst_wc_status st;

	if (slot->flags & KARST_SLOT_RD_ATOMIC) {
		/* it was counted among the outstanding ones when it was first sent */
		r->rd_out = 0;
		return send_single(core, qp, w, idx, b);
	}
	if (!karst_frame_room(b, w->nsge))
		return STEP_MORE;
	karst_wqe_seek(w, &c, off);
	st = build_packet(
		core, qp, w, off, karst_min_u32(karst_qp_mtu(qp), w->len - off), &c, b, true);
	if (karst_unlikely(st != KARST_WC_SUCCESS))
		return not_built(core, qp, w, idx, off, b, nsegs, st);
	cursor_advance(core, qp, 1);
	return STEP_NEXT;
}

int
karst_requester_repeat(struct karst_core *core, struct karst_core_qp *qp, uint32_t idx,
	uint32_t psn, struct karst_tx_burst *b)
{
	struct karst_requester *r = &qp->req;
	const struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];
	uint32_t snd_idx = r->snd_idx, snd_psn = r->snd_psn;
	uint32_t rd_out = r->rd_out, rd_psns = r->rd_psns, window = r->window;
	uint32_t asked_psn = r->asked_psn;
	enum karst_wc_status st;
	enum step s = STEP_BLOCKED;
	struct karst_wqe w;

	st = karst_wqe_load(qp, idx, &w);
	if (st == KARST_WC_SUCCESS && (slot->op != w.h.opcode || slot->len != w.len)) {
		/* the program changed an outstanding request */
		karst_qp_sq_corrupt(core, qp);
		st = KARST_WC_LOC_QP_OP_ERR;
	}
	if (karst_unlikely(st != KARST_WC_SUCCESS)) {
		karst_requester_fail_at(core, qp, idx, st);
		return 2;
	}
	/* the packet at the cursor is built; it is under way already, so the window does not
	 * apply */
	r->snd_idx = idx;
	r->snd_psn = psn;
	r->window = core->window_packets;
	s = repeat_packet(core, qp, &w, idx, b);
	r->window = window;
	if (!karst_qp_may_send(qp))
		return 2;
	keep_asked(r, asked_psn);
	r->snd_idx = snd_idx;
	r->snd_psn = snd_psn;
	r->rd_out = rd_out;
	r->rd_psns = rd_psns;
	if (s == STEP_BLOCKED)
		return karst_copy_busy(qp, KARST_COPY_REQ) ? -1 : 2;
	return s == STEP_MORE ? 1 : 0;
}

/* --- one visit --- */

static karst_noinline void
sq_broken(struct karst_core *core, struct karst_core_qp *qp)
{
	karst_qp_sq_corrupt(core, qp);
	karst_qp_error(core, qp, KARST_EVENT_QP_FATAL);
}

/* Whether there is a request at the cursor.  If not, the queue goes idle. */
static bool
have_request(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;

	if (r->snd_idx != r->nxt_idx)
		return true;
	/* the program rings before it expects its queue to be polled again */
	if (r->flags & KARST_REQ_IDLE)
		return false;
	if (qp->state == KARST_QPS_SQD || (r->flags & KARST_REQ_FAILED))
		return false;
	if (r->snd_idx == qp->sq.tail) {
		if (karst_unlikely(karst_wqe_poll(&qp->sq) != 0)) {
			sq_broken(core, qp);
			return false;
		}
		if (r->snd_idx == qp->sq.tail) {
			karst_requester_dry(core, qp);
			return false;
		}
	}
	r->flags &= (uint8_t)~KARST_REQ_IDLE;
	return true;
}

/* Charges a request that made no frame to the visit as if it had made one. */
static karst_noinline enum step
charge_quiet(struct karst_tx_burst *b, uint32_t *limit, uint32_t *quiet)
{
	b->charge += KARST_QUIET_COST;
	*limit -= karst_min_u32(*limit, KARST_QUIET_COST);
	if (karst_mutant(KARST_MUTANT_ENDLESS_VISIT))
		return STEP_NEXT;
	return ++*quiet < KARST_VISIT_QUIET ? STEP_NEXT : STEP_MORE;
}

bool
karst_requester_tx(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b, uint32_t limit)
{
	struct karst_requester *r = &qp->req;
	enum step s = STEP_NEXT;
	uint32_t sent = b->n, quiet = 0;
	bool unsent = false;

	if ((r->flags & KARST_REQ_RNR_WAIT) || karst_copy_busy(qp, KARST_COPY_REQ))
		return false;
	if (karst_unlikely(r->paced)) {
		if (karst_pacer_holds(core, qp))
			return false;
		/* while the queue pair had no tokens, time has passed with nothing under way
		 * (E6) */
		unsent = r->snd_psn == r->una_psn;
	}
	if (karst_unlikely(r->probe_due) && karst_qp_may_send(qp)) {
		if (karst_repeat_of(qp) != NULL)
			repeat_probe(core, qp);
		else if (!send_probe(core, qp, b, limit))
			return true;
	}
	if (karst_unlikely(r->asks) && karst_qp_may_send(qp)) {
		int rc = karst_gaps_tx(core, qp, b, limit);

		s = rc == 0 ? STEP_NEXT : rc > 0 ? STEP_MORE : STEP_BLOCKED;
	}
	if (s == STEP_NEXT && karst_repeat_of(qp) != NULL && karst_qp_may_send(qp)) {
		int rc = karst_repeat_tx(core, qp, b, limit);

		s = rc == 0 ? STEP_NEXT : rc > 0 ? STEP_MORE : STEP_BLOCKED;
	}
	/* a request may fail and change the state */
	while (s == STEP_NEXT && karst_qp_may_send(qp)) {
		if (b->n == b->max || b->bytes >= limit) {
			s = STEP_MORE;
			break;
		}
		if (!have_request(core, qp))
			break;
		__builtin_prefetch(karst_wqe_slot(&qp->sq, r->snd_idx + 1));
		s = send_request(core, qp, b, limit);
		if (karst_unlikely(s == STEP_QUIET))
			s = charge_quiet(b, &limit, &quiet);
	}
	if (b->n != sent && qp->type != KARST_QPT_UC && karst_qp_may_send(qp)) {
		if (karst_unlikely(unsent || (r->flags & KARST_REQ_UNSENT)))
			karst_requester_left(core, qp);
		karst_requester_arm(core, qp);
	}
	if (karst_unlikely(r->window < core->window_packets) && s == STEP_BLOCKED &&
		!send_wary(core, qp, b, limit))
		s = STEP_MORE;
	if (qp->type == KARST_QPT_UC && qp->sq.head != r->una_idx) {
		karst_qp_retire_sends(core, qp);
		karst_requester_settle(core, qp); /* may be drained now */
	}
	return s == STEP_MORE;
}
