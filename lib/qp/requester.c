/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The requester receives acknowledgements, NAKs and timeouts (RC); responses are in answers.c.
 *
 * The outstanding PSNs are [una_psn, nxt_psn).  A packet with any other PSN is a ghost and changes
 * nothing (Q10).  A packet for PSN p first acknowledges all requests before p (Q3): the walk
 * completes them in order until it reaches a READ or atomic without its response, which was lost,
 * so the cursor goes back to it.  Inside a READ una_psn is the next response expected; inside a
 * SEND or WRITE it is the next packet to be acknowledged.
 *
 * To go back (karst_requester_rewind) is to move the send cursor to (una_idx, una_psn).  It is done
 * once per round: a second NAK or gap for the same una_psn is ignored, until there is progress or
 * the timer shows that the round itself was lost.
 *
 * The timer is armed lazily: progress only moves deadline_ns; when the timer fires before it, it is
 * armed again for the rest.  With early retransmission (probe.c) it fires for that, too.
 *
 * Many queue pairs may lose their packets at once, in a burst that was too much for the receiver.
 * To avoid that they all send as much as before at the same time, a queue pair starts again after a
 * timeout with a few packets (window): each that is acknowledged allows one more, until the full
 * window may be under way.  The second and further timeouts without progress are spread.  None of
 * this delays recovery from single losses, since a NAK or a gap then makes the requester go back.
 */
#include "gaps.h"
#include "migrate.h"
#include "pacer.h"
#include "probe.h"
#include "repeat.h"
#include "wqe.h"

/* --- completing --- */

karst_always_inline void
requester_complete_one(struct karst_core *core, struct karst_core_qp *qp,
	enum karst_wc_status status, uint8_t syndrome)
{
	struct karst_requester *r = &qp->req;
	uint32_t idx = r->una_idx;
	const struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];
	const struct karst_send_wqe *wqe = karst_wqe_slot(&qp->sq, idx);
	struct karst_cqe *cqe;

	r->una_idx = idx + 1;
	if (slot->flags & KARST_SLOT_RD_ATOMIC && (int32_t)(r->snd_idx - idx) > 0 && r->rd_out > 0)
		r->rd_out--;
	karst_count(&core->counters, KARST_CTR_REQ_COMPLETIONS);
	if (status == KARST_WC_SUCCESS && !(slot->flags & KARST_SLOT_SIGNALED))
		return;
	if (karst_mutant(KARST_MUTANT_LOST_SIGNAL) && (idx & 63) == 63)
		return;
	if (status != KARST_WC_SUCCESS)
		karst_count(&core->counters, KARST_CTR_REQ_CQE_ERROR);
	cqe = karst_cq_push(core, qp->send_cq, status != KARST_WC_SUCCESS);
	if (karst_unlikely(cqe == NULL)) {
		karst_qp_error(core, qp, KARST_EVENT_QP_FATAL);
		return;
	}
	*cqe = (struct karst_cqe){
		.wr_id = wqe->wr_id,
		.qpn = qp->qpn,
		.byte_len = slot->flags & KARST_SLOT_LOCAL ? 0 : slot->len,
		.imm = slot->flags & KARST_SLOT_LOCAL ? slot->len : 0,
		.status = (uint8_t)status,
		.opcode = karst_wr_infos[slot->op].wc,
		.syndrome = syndrome,
		.slot = idx,
	};
}

void
karst_requester_complete_one(struct karst_core *core, struct karst_core_qp *qp,
	enum karst_wc_status status, uint8_t syndrome)
{
	requester_complete_one(core, qp, status, syndrome);
}

/* Counts why a request fails, for the reasons that the peer or its silence gave. */
static void
count_failure(struct karst_core *core, enum karst_wc_status status)
{
	static const uint8_t counter[] = {
		[KARST_WC_REM_INV_REQ_ERR] = KARST_CTR_REQ_REMOTE_INVALID_REQUEST,
		[KARST_WC_REM_ACCESS_ERR] = KARST_CTR_REQ_REMOTE_ACCESS_ERRORS,
		[KARST_WC_REM_OP_ERR] = KARST_CTR_REQ_REMOTE_OPERATION_ERRORS,
		[KARST_WC_RETRY_EXC_ERR] = KARST_CTR_RETRY_EXCEEDED,
		[KARST_WC_RNR_RETRY_EXC_ERR] = KARST_CTR_RNR_RETRY_EXCEEDED,
	};

	if ((size_t)status < KARST_DIM(counter) && counter[status] != 0)
		karst_count(&core->counters, counter[status]);
}

void
karst_requester_fail(struct karst_core *core, struct karst_core_qp *qp, enum karst_wc_status status,
	uint8_t syndrome)
{
	struct karst_requester *r = &qp->req;
	uint32_t idx = r->una_idx;

	if (idx == r->nxt_idx) {
		/* never started: it has no slot yet */
		const struct karst_send_wqe *wqe = karst_wqe_slot(&qp->sq, idx);
		uint8_t op = wqe->opcode;

		r->slots[idx & qp->sq.mask] = (struct karst_sq_slot){
			.psn = r->nxt_psn,
			.op = op < KARST_WR_MAX ? op : KARST_WR_SEND,
		};
		r->nxt_idx = idx + 1;
	}
	r->flags &= (uint8_t)~KARST_REQ_FAILED;
	count_failure(core, status);
	karst_requester_complete_one(core, qp, status, syndrome);
	karst_qp_retire_sends(core, qp);
	if (qp->state == KARST_QPS_ERR)
		return;
	if (karst_qp_reliable(qp)) {
		karst_qp_error(core, qp, -1);
	} else {
		/* the receive side of UC and UD continues */
		qp->state = KARST_QPS_SQE;
		karst_core_activate(core, qp);
	}
}

void
karst_requester_settle(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;
	uint32_t una = r->una_idx;

	while (r->una_idx != r->nxt_idx && karst_qp_may_send(qp)) {
		const struct karst_sq_slot *slot = &r->slots[r->una_idx & qp->sq.mask];

		if (!(slot->flags & KARST_SLOT_LOCAL) || !(slot->flags & KARST_SLOT_DONE))
			break;
		karst_requester_complete_one(core, qp, KARST_WC_SUCCESS, 0);
	}
	if (!karst_qp_may_send(qp))
		return;
	if (r->una_idx != una)
		karst_qp_retire_sends(core, qp);
	if ((r->flags & KARST_REQ_FAILED) && r->una_idx == r->fail_idx) {
		karst_requester_fail(core, qp, r->fail_status, 0);
		return;
	}
	/* the request could not be sent again, but was acknowledged after all */
	if ((int32_t)(r->una_idx - r->fail_idx) > 0)
		r->flags &= (uint8_t)~KARST_REQ_FAILED;
	if (qp->state == KARST_QPS_SQD && r->una_idx == r->nxt_idx &&
		!(r->flags & KARST_REQ_DRAIN_TOLD)) {
		r->flags |= KARST_REQ_DRAIN_TOLD;
		if (qp->flags & KARST_QPF_SQD_NOTIFY)
			karst_event(core, KARST_EVENT_SQ_DRAINED, qp);
	}
}

/* --- the timer --- */

void
karst_requester_timer_add(struct karst_core *core, struct karst_core_qp *qp, uint64_t ns)
{
	karst_timer_add(core, qp->sharer, &qp->req.timer, ns);
}

void
karst_requester_timer_del(struct karst_core *core, struct karst_core_qp *qp)
{
	karst_timer_del(core, qp->sharer, &qp->req.timer);
}

/* Packets that are sent after a timeout; half of that after each further one without progress. */
#define RESTART_WINDOW 8u

/* The number of timeouts since there was progress. */
static uint32_t
requester_timeouts(const struct karst_requester *r)
{
	return (uint32_t)(r->retry_cnt - r->retry_left);
}

static uint32_t
restart_window(const struct karst_requester *r)
{
	uint32_t n = RESTART_WINDOW >> requester_timeouts(r);

	return n != 0 ? n : 1;
}

/*
 * Q6 allows 1 to 4 times the nominal time.  Programs expect little more than 1, and have deadlines
 * of their own that are near to (retry_cnt + 1) times it.  The wheel adds up to two ticks.  The
 * second and further expiries get up to a quarter more, which depends on queue pair and packet, so
 * that queue pairs that have lost packets together do not repeat them together for ever.  The first
 * is not spread: it determines the cost of a lost packet, and the small window limits its effect.
 *
 * The time is never shorter, whatever round trips were measured: peers in software, and peers that
 * share a processor, answer in microseconds a thousand times and then once in milliseconds, and
 * they acknowledge each unnecessary packet separately.  Before this time, in silence, only single
 * packets are sent (Q11).
 */
static uint64_t
ack_wait_ns(const struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	uint32_t n = requester_timeouts(r);
	uint32_t draw =
		(qp->qpn * 0x9e3779b1u ^ (r->una_psn + (n << 24)) * 0x85ebca6bu) * 0xc2b2ae35u;

	if (n == 0)
		return r->rto_ns;
	return r->rto_ns + (r->rto_ns >> 12) * (draw >> 22);
}

/*
 * The time limit for packets that are to be sent again and were not sent yet.  The acknowledgement
 * timer does not count for them: a port that accepts nothing, or a queue pair that is not visited,
 * spends no retries.  But after twice the time of all remaining retries the queue pair fails, as if
 * the peer were gone.
 */
static uint64_t
stall_ns(const struct karst_requester *r)
{
	return 2 * r->rto_ns * (r->retry_left + 1u);
}

void
karst_requester_arm(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;
	uint64_t wait;

	if (r->deadline_ns != 0 || r->rto_ns == 0)
		return;
	if (karst_unlikely(r->flags & KARST_REQ_UNSENT) && r->una_psn == r->nxt_psn) {
		/* it was acknowledged after all */
		r->flags &= (uint8_t)~KARST_REQ_UNSENT;
		karst_requester_timer_del(core, qp);
	}
	if (r->una_psn == r->nxt_psn)
		return;
	wait = karst_unlikely(r->flags & KARST_REQ_UNSENT) ? stall_ns(r) : ack_wait_ns(qp);
	r->deadline_ns = core->now_ns + wait;
	if (karst_timer_armed(&r->timer))
		return;
	if (core->early)
		wait = karst_probe_first(core, qp, wait);
	karst_requester_timer_add(core, qp, core->now_ns + wait);
}

void
karst_requester_left(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;

	r->flags &= (uint8_t)~KARST_REQ_UNSENT;
	/* the timer may be armed for the end of the longer wait */
	karst_requester_timer_del(core, qp);
	r->deadline_ns = 0;
}

void
karst_requester_retime(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;

	if (r->flags & KARST_REQ_RNR_WAIT)
		return;
	/* the timer may be armed for later than the new deadline */
	karst_requester_timer_del(core, qp);
	r->deadline_ns = 0;
	karst_requester_arm(core, qp);
}

void
karst_requester_rewind(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;

	karst_probe_forget(r);
	if (karst_repeat_of(qp) != NULL) {
		karst_repeat_oldest(qp);
	} else {
		r->snd_idx = r->una_idx;
		r->snd_psn = r->una_psn;
		r->rd_out = r->rd_psns = 0;
		r->wary = KARST_WARY_FIRST;
	}
	/* the first packet of a round asks for an acknowledgement: if it is a duplicate, and all
	 * packets after it are lost again, nothing else would be acknowledged */
	r->asked_psn = karst_psn_add(r->snd_psn, 1 - core->ack_interval);
	r->flags |= KARST_REQ_ROUND | KARST_REQ_UNSENT;
	/* an RNR wait sets its own */
	if (r->deadline_ns != 0 && r->rto_ns != 0)
		r->deadline_ns = core->now_ns + stall_ns(r);
	karst_core_activate(core, qp);
}

karst_always_inline void
requester_progress(struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn)
{
	struct karst_requester *r = &qp->req;
	bool again = false;

	if (karst_unlikely(r->window < core->window_packets))
		karst_probe_widen(core, qp, npsn);
	if (karst_unlikely(r->paced))
		karst_pacer_acked(core, qp, npsn);
	/* a packet that was under way has brought what the peer was not ready for: the wait ends
	 * (Q7) */
	if (karst_unlikely(r->flags & KARST_REQ_RNR_WAIT)) {
		karst_requester_timer_del(core, qp);
		karst_core_activate(core, qp);
	}
	if (r->timing && karst_psn_diff(r->una_psn, r->timed_psn) > 0)
		karst_probe_sample(core, qp);
	if (karst_unlikely(karst_probe_any(r)))
		again = karst_probe_answered(core, qp);
	/* the timer is armed for the longer time of a further timeout, and none follows */
	if (karst_unlikely(requester_timeouts(r) != 0))
		karst_requester_timer_del(core, qp);
	r->retry_left = r->retry_cnt;
	r->rnr_left = r->rnr_retry;
	r->flags &= (uint8_t) ~(KARST_REQ_ROUND | KARST_REQ_RNR_WAIT);
	r->deadline_ns = 0;
	/* the timer may have fired for the end of an RNR wait, and is not armed then */
	if (r->una_psn != r->nxt_psn || karst_unlikely(r->flags & KARST_REQ_UNSENT))
		karst_requester_arm(core, qp);
	if (karst_unlikely(again)) {
		karst_pacer_lost(core, qp);
		karst_requester_rewind(core, qp);
	}
}

/* Whether the peer has been asked in this round for an acknowledgement or a response that has not
 * come. */
static bool
peer_owes(const struct karst_requester *r)
{
	return !(r->flags & KARST_REQ_UNSENT) && karst_psn_before(r->una_psn, r->asked_psn);
}

void
karst_requester_fed(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;

	if (r->deadline_ns == 0 || (r->flags & KARST_REQ_RNR_WAIT) || peer_owes(r))
		return;
	r->deadline_ns = 0;
	karst_requester_arm(core, qp);
}

void
karst_requester_progress(struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn)
{
	requester_progress(core, qp, npsn);
}

void
karst_requester_expire(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;

	if (!karst_qp_may_send(qp) || r->deadline_ns == 0)
		return;
	if (core->now_ns < r->deadline_ns) {
		karst_requester_timer_add(core, qp, karst_probe_expire(core, qp));
		return;
	}
	r->deadline_ns = 0;
	/* the delay is in this side's memory, here and in the next case */
	if (karst_unlikely(qp->flags & KARST_QPF_COPIES) && !(r->flags & KARST_REQ_RNR_WAIT) &&
		(qp->copy[KARST_COPY_RX] != NULL || karst_copy_busy(qp, KARST_COPY_REQ))) {
		karst_requester_arm(core, qp);
		return;
	}
	if (karst_unlikely(qp->starved) && !(r->flags & KARST_REQ_RNR_WAIT) && !peer_owes(r)) {
		karst_requester_arm(core, qp);
		return;
	}
	/* E6: nothing of this round was sent, because there are no tokens for it */
	if (karst_unlikely(r->paced) && karst_pacer_waits(qp) && !(r->flags & KARST_REQ_RNR_WAIT) &&
		(r->snd_psn == r->una_psn || r->asks ||
			(karst_repeat_of(qp) != NULL && (r->flags & KARST_REQ_UNSENT)))) {
		karst_requester_arm(core, qp);
		return;
	}
	if (r->flags & KARST_REQ_RNR_WAIT) {
		r->flags &= (uint8_t)~KARST_REQ_RNR_WAIT;
		karst_core_activate(core, qp);
		karst_requester_arm(core, qp);
		return;
	}
	if (karst_mutant(KARST_MUTANT_NO_TIMEOUT))
		return;
	karst_count(&core->counters, KARST_CTR_LOCAL_ACK_TIMEOUT);
	karst_qp_note(&qp->timeouts);
	if (r->retry_left == 0 || (r->flags & KARST_REQ_UNSENT)) {
		if (karst_migrate_instead(core, qp))
			return;
		karst_requester_fail(core, qp, KARST_WC_RETRY_EXC_ERR, 0);
		return;
	}
	if (karst_unlikely(r->paced))
		karst_pacer_timeout(core, qp);
	r->window = karst_min_u32(r->window, restart_window(r));
	r->told = 0;
	r->retry_left--;
	karst_requester_rewind(core, qp);
	karst_requester_arm(core, qp);
}

/* --- walking --- */

/* Whether the request of @slot is done when everything before PSN @end is acknowledged. */
static bool
slot_passed(const struct karst_sq_slot *slot, uint32_t end)
{
	uint32_t last = karst_psn_add(slot->psn, slot->npsn);

	if (karst_mutant(KARST_MUTANT_PSN_WRAP))
		return end >= last;
	return karst_psn_diff(end, last) >= 0;
}

karst_always_inline bool
requester_ack_before(struct karst_core *core, struct karst_core_qp *qp, uint32_t end)
{
	struct karst_requester *r = &qp->req;
	uint32_t una = r->una_psn, una_idx = r->una_idx;
	bool clear = true;

	while (r->una_idx != r->nxt_idx && karst_qp_may_send(qp)) {
		struct karst_sq_slot *slot = &r->slots[r->una_idx & qp->sq.mask];

		if (slot->flags & KARST_SLOT_LOCAL) {
			if (!(slot->flags & KARST_SLOT_DONE))
				break;
			karst_requester_complete_one(core, qp, KARST_WC_SUCCESS, 0);
			continue;
		}
		if (karst_unlikely(slot->gap != 0))
			karst_gaps_enter(core, qp);
		if (r->una_psn == end)
			break;
		if ((slot->flags & KARST_SLOT_RD_ATOMIC) && !(slot->flags & KARST_SLOT_DONE) &&
			!karst_mutant(KARST_MUTANT_ACK_PASSES_READ)) {
			clear = false;
			break;
		}
		if (!slot_passed(slot, end)) {
			r->una_psn = end;
			break;
		}
		if (slot->flags & KARST_SLOT_RD_ATOMIC)
			karst_gaps_pass(r, karst_psn_add(slot->psn, slot->npsn - r->una_psn));
		else
			r->una_psn = karst_psn_add(slot->psn, slot->npsn);
		requester_complete_one(core, qp, KARST_WC_SUCCESS, 0);
	}
	if (r->una_psn != una)
		requester_progress(core, qp, karst_psn_add(r->una_psn, -una));
	if (r->una_idx != una_idx)
		karst_qp_retire_sends(core, qp);
	return clear;
}

bool
karst_requester_ack_before(struct karst_core *core, struct karst_core_qp *qp, uint32_t end)
{
	return requester_ack_before(core, qp, end);
}

/* Whether karst_requester_settle() may have something to do. */
static inline bool
is_unsettled(const struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;

	return r->una_idx != r->nxt_idx || (r->flags & KARST_REQ_FAILED) ||
		qp->state != KARST_QPS_RTS;
}

karst_always_inline void
requester_follow_up(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;

	/* first, because it also moves una, past local operations */
	if (is_unsettled(qp))
		karst_requester_settle(core, qp);
	if (!karst_qp_may_send(qp))
		return;
	if ((int32_t)(r->snd_idx - r->una_idx) < 0) {
		r->snd_idx = r->una_idx;
		r->snd_psn = r->una_psn;
	} else if (r->snd_idx == r->una_idx && karst_psn_before(r->snd_psn, r->una_psn)) {
		r->snd_psn = r->una_psn;
	}
	if (!(r->flags & (KARST_REQ_IDLE | KARST_REQ_LINGER)) || r->snd_idx != r->nxt_idx)
		karst_core_activate(core, qp);
}

void
karst_requester_follow_up(struct karst_core *core, struct karst_core_qp *qp)
{
	requester_follow_up(core, qp);
}

/* Minimum of the packets that may be under way after a response was lost. */
#define LEAST_READ_WINDOW 32u

/*
 * A response before the one that arrived is missing: requests it again, once per round (Q3, Q5).
 *
 * The peer first sends all responses that were requested before, which are discarded, and then
 * those that are requested again.  So half as much is requested at a time, until the window has
 * grown again.
 * @before: the peer has executed what is before that PSN.
 */
void
karst_requester_lost_response(struct karst_core *core, struct karst_core_qp *qp, uint32_t before)
{
	struct karst_requester *r = &qp->req;
	uint32_t half = karst_min_u32(r->window, karst_psn_distance(r->snd_psn, r->una_psn)) / 2;

	if (karst_repeat_of(qp) != NULL)
		karst_repeat_executed(qp, before);
	if (r->flags & (KARST_REQ_ROUND | KARST_REQ_RNR_WAIT))
		return;
	karst_count(&core->counters, KARST_CTR_IMPLIED_NAK_SEQ_ERR);
	karst_pacer_lost(core, qp);
	if (karst_repeat_of(qp) != NULL)
		karst_repeat_answers(qp);
	else
		r->window = karst_min_u32(
			r->window, half > LEAST_READ_WINDOW ? half : LEAST_READ_WINDOW);
	karst_requester_rewind(core, qp);
}

/* --- acknowledgements --- */

void
karst_requester_take_credits(struct karst_requester *r, uint8_t syndrome, uint32_t msn)
{
	uint8_t code = syndrome & KARST_AETH_VALUE_MASK;

	if (code == KARST_AETH_CREDIT_UNLIMITED) {
		r->flags &= (uint8_t)~KARST_REQ_LIMITED;
		return;
	}
	r->flags |= KARST_REQ_LIMITED;
	r->lsn = karst_psn_add(msn, karst_credits[code]);
}

static void
rx_rnr(struct karst_core *core, struct karst_core_qp *qp, uint8_t code)
{
	struct karst_requester *r = &qp->req;

	if (r->flags & KARST_REQ_RNR_WAIT)
		return;
	karst_count(&core->counters, KARST_CTR_RNR_NAK_RECEIVED);
	karst_qp_note(&qp->rnr_naks);
	/* the peer is alive: timeouts before and after this do not add up (Q6) */
	r->retry_left = r->retry_cnt;
	if (r->rnr_left == 0) {
		karst_requester_fail(core, qp, KARST_WC_RNR_RETRY_EXC_ERR, KARST_AETH_RNR | code);
		return;
	}
	if (r->rnr_retry != 7)
		r->rnr_left--;
	karst_requester_rewind(core, qp);
	/* the wait ends the round: what follows is a new one */
	r->flags &= (uint8_t)~KARST_REQ_ROUND;
	r->flags |= KARST_REQ_RNR_WAIT;
	r->deadline_ns = core->now_ns + karst_rnr_ns[code];
	karst_requester_timer_add(core, qp, r->deadline_ns);
}

static void
rx_nak(struct karst_core *core, struct karst_core_qp *qp, uint8_t syndrome)
{
	static const uint8_t status[] = {
		[KARST_NAK_INV_REQ] = KARST_WC_REM_INV_REQ_ERR,
		[KARST_NAK_REM_ACCESS] = KARST_WC_REM_ACCESS_ERR,
		[KARST_NAK_REM_OP] = KARST_WC_REM_OP_ERR,
	};
	uint8_t code = syndrome & KARST_AETH_VALUE_MASK;

	if (code != KARST_NAK_PSN_SEQ) {
		karst_requester_fail(core, qp, status[code], syndrome);
		return;
	}
	karst_count(&core->counters, KARST_CTR_PACKET_SEQ_ERR);
	karst_qp_note(&qp->seq_naks);
	if (qp->req.flags & (KARST_REQ_ROUND | KARST_REQ_RNR_WAIT))
		return;
	karst_pacer_lost(core, qp);
	karst_probe_be_wary(core, qp);
	karst_requester_rewind(core, qp);
}

/* Q10: whether the syndrome has a meaning; code 4 is only for RD. */
static bool
syndrome_known(uint8_t syndrome)
{
	uint8_t type = syndrome & KARST_AETH_TYPE_MASK;

	return type == KARST_AETH_ACK || type == KARST_AETH_RNR ||
		(type == KARST_AETH_NAK && (syndrome & KARST_AETH_VALUE_MASK) <= KARST_NAK_REM_OP);
}

static void
rx_ack(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	struct karst_requester *r = &qp->req;
	uint8_t syndrome = karst_aeth_syndrome(pkt->aeth), type = syndrome & KARST_AETH_TYPE_MASK;
	bool positive = type == KARST_AETH_ACK ||
		(karst_mutant(KARST_MUTANT_IGNORE_NAK) && syndrome == KARST_AETH_NAK);
	uint32_t end;

	if (!syndrome_known(syndrome)) {
		karst_drop_pkt(core, pkt, KARST_DROP_BAD_SYNDROME);
		return;
	}
	end = positive ? karst_psn_add(pkt->psn, 1) : pkt->psn;
	if (!requester_ack_before(core, qp, end)) {
		/* a response before it is missing; what a NAK requests is sent again by going
		 * back */
		if (type == KARST_AETH_ACK && karst_gaps_heard(core, qp, end))
			karst_requester_take_credits(r, syndrome, karst_aeth_msn(pkt->aeth));
		else
			karst_requester_lost_response(core, qp, pkt->psn);
		karst_requester_follow_up(core, qp);
		return;
	}
	if (!karst_qp_may_send(qp))
		return;
	if (type == KARST_AETH_ACK)
		karst_requester_take_credits(r, syndrome, karst_aeth_msn(pkt->aeth));
	else if (type == KARST_AETH_RNR)
		rx_rnr(core, qp, syndrome & KARST_AETH_VALUE_MASK);
	else
		rx_nak(core, qp, syndrome);
	requester_follow_up(core, qp);
}

/* X8: an acknowledgement, and the bits of what the peer holds. */
static karst_noinline void
rx_sack(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	if (!karst_repeat_heard(core, qp, pkt))
		return;
	if (karst_psn_add(pkt->psn, 1) != qp->req.una_psn) {
		rx_ack(core, qp, pkt);
		return;
	}
	karst_requester_take_credits(
		&qp->req, karst_aeth_syndrome(pkt->aeth), karst_aeth_msn(pkt->aeth));
	karst_requester_follow_up(core, qp);
}

void
karst_requester_rx(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	bool ack = (pkt->opcode & KARST_OPERATION_MASK) == KARST_OPERATION_ACK;
	struct karst_requester *r = &qp->req;

	if (!karst_qp_may_send(qp)) {
		karst_drop_pkt(core, pkt, KARST_DROP_QP_STATE);
		return;
	}
	if (karst_unlikely(pkt->opcode == KARST_SACK)) {
		rx_sack(core, qp, pkt);
		karst_repeat_acked(core, qp);
		return;
	}
	/* Q10 */
	if (karst_psn_distance(pkt->psn, r->una_psn) >=
		karst_psn_distance(r->nxt_psn, r->una_psn)) {
		/* a repetition of the last acknowledgement, perhaps with new credits (Q9) */
		if (ack && karst_psn_add(pkt->psn, 1) == r->una_psn &&
			(karst_aeth_syndrome(pkt->aeth) & KARST_AETH_TYPE_MASK) == KARST_AETH_ACK) {
			karst_requester_take_credits(
				r, karst_aeth_syndrome(pkt->aeth), karst_aeth_msn(pkt->aeth));
			karst_requester_follow_up(core, qp);
		}
		karst_drop_pkt(
			core, pkt, ack ? KARST_DROP_GHOST_ACK : KARST_DROP_UNEXPECTED_RESPONSE);
		return;
	}
	if (ack)
		rx_ack(core, qp, pkt);
	else
		karst_requester_response(core, qp, pkt);
	if (karst_repeat_of(qp) != NULL)
		karst_repeat_acked(core, qp);
}
