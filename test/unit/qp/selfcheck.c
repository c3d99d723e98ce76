/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "selfcheck.h"

#include "gaps.h"
#include "repeat.h"

#define AHEAD(a, b) ((int32_t)((a) - (b)))

static uint32_t
distance(uint32_t to, uint32_t from)
{
	return (to - from) & KARST_PSN_MASK;
}

/* The cursors are in order, in requests and in PSNs (P2). */
static const char *
check_cursors(const struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	uint32_t out = distance(r->nxt_psn, r->una_psn);

	if (AHEAD(r->snd_idx, r->una_idx) < 0 || AHEAD(r->nxt_idx, r->snd_idx) < 0)
		return "una_idx <= snd_idx <= nxt_idx";
	if (AHEAD(qp->sq.tail, r->nxt_idx) < 0)
		return "a request was started that was never posted";
	if (AHEAD(r->una_idx, qp->sq.head) < 0 || AHEAD(qp->sq.tail, qp->sq.head) < 0)
		return "slots were given back that are in use";
	if (qp->sq.tail - qp->sq.head > qp->sq.mask + 1)
		return "more requests than slots";
	if (out > 1u << 23)
		return "more than 2^23 PSNs outstanding (P2)";
	if (distance(r->snd_psn, r->una_psn) > out)
		return "una_psn <= snd_psn <= nxt_psn";
	if (r->window == 0)
		return "a window that nothing opens";
	return NULL;
}

/* The started requests fill the PSNs without a gap, and the cursors are in theirs. */
static const char *
check_slots(const struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	uint32_t i, psn = 0, rd = 0, psns = 0;

	for (i = r->una_idx; i != r->nxt_idx; i++) {
		const struct karst_sq_slot *s = &r->slots[i & qp->sq.mask];

		if (i != r->una_idx && s->psn != psn)
			return "gap between the PSNs of two requests";
		psn = karst_psn_add(s->psn, s->npsn);
		if (i == r->una_idx && distance(r->una_psn, s->psn) > s->npsn)
			return "una_psn is not in the oldest request";
		if (i == r->snd_idx && distance(r->snd_psn, s->psn) > s->npsn)
			return "snd_psn is not in the request that is being sent";
		if (AHEAD(r->snd_idx, i) > 0 && (s->flags & KARST_SLOT_RD_ATOMIC)) {
			rd++;
			psns += s->npsn - (i == r->una_idx ? distance(r->una_psn, s->psn) : 0);
		}
	}
	if (r->una_idx != r->nxt_idx &&
		distance(psn, r->una_psn) < distance(r->nxt_psn, r->una_psn))
		return "PSNs were sent that belong to no request";
	if (r->una_idx == r->nxt_idx && r->una_psn != r->nxt_psn)
		return "PSNs are outstanding without a request";
	if (rd != r->rd_out)
		return "READs and atomics in flight are miscounted";
	if (psns != r->rd_psns)
		return "the PSNs of READs and atomics in flight are miscounted";
	return NULL;
}

/* When responses have come behind a gap, the oldest request is missing some (X11). */
static const char *
check_gaps(const struct karst_core *core, const struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	bool any = karst_gaps_any(qp), asks = false;
	uint32_t i, n = 0;

	for (i = r->una_idx; i != r->nxt_idx; i++) {
		const struct karst_sq_slot *s = &r->slots[i & qp->sq.mask];
		bool done = (s->flags & (KARST_SLOT_RD_ATOMIC | KARST_SLOT_DONE)) ==
			(KARST_SLOT_RD_ATOMIC | KARST_SLOT_DONE);
		const struct karst_gap *g = s->gap != 0 ? karst_gap_of(core, s) : NULL;

		asks |= (s->flags & KARST_SLOT_ASK) != 0 && AHEAD(r->snd_idx, i) > 0;
		if ((done || g != NULL) && !any)
			return "answers are here behind a gap that is none (X11)";
		if (g == NULL)
			continue;
		n++;
		if (g->qp != qp || done)
			return "a gap is somebody else's, or nobody's (X11)";
		if (distance(g->first, s->psn) >= s->npsn ||
			(i == r->una_idx && g->first != r->una_psn))
			return "a gap is not where something is missing (X11)";
		if ((g->map[g->first / 64 % KARST_DIM(g->map)] >> g->first % 64 & 1) != 0)
			return "what is missing is here (X11)";
	}
	if (asks && !r->asks)
		return "something is to be asked for and nobody will (X11)";
	return n > core->gaps->used ? "more gaps than there are (X11)" : NULL;
}

/* The queue pair will be visited: at its turn, when it is unparked or fed, or when it may send
 * again. */
static bool
is_listed(const struct karst_core_qp *qp)
{
	return (qp->flags & KARST_QPF_ACTIVE) != 0 || qp->parked.le_prev != NULL ||
		(qp->pacer != NULL && karst_timer_armed(&qp->pacer->timer));
}

/* A queue pair that waits is woken: by a timer, or because it is on the list. */
static const char *
check_wakeup(const struct karst_core *core, const struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	bool listed = is_listed(qp);

	if (!listed && qp->req.paced && qp->pacer->waits && qp->pacer->tokens < 0)
		return "a queue pair waits for tokens and no clock runs (E6)";
	if (!listed && r->deadline_ns == 0 && r->rto_ns != 0 && r->una_psn != r->nxt_psn)
		return "requests are outstanding and no clock runs (Q6)";
	if ((r->flags & KARST_REQ_RNR_WAIT) && r->deadline_ns == 0)
		return "waits after an RNR NAK without a deadline (Q7)";
	if (r->deadline_ns != 0) {
		if (!karst_timer_armed(&r->timer))
			return "a deadline without a timer";
		/* progress moves the deadline and leaves the timer, which later expiries of a round
		 * may have set a quarter later, to spread them */
		if (karst_timer_ns(core, &r->timer) >
			r->deadline_ns + r->rto_ns / 4 + 2 * KARST_WHEEL_TICK_NS)
			return "the timer is later than its deadline (Q6)";
	}
	if (!listed && qp->state == KARST_QPS_RTS && r->una_idx == r->nxt_idx &&
		qp->sq.tail != r->nxt_idx && !(r->flags & (KARST_REQ_RNR_WAIT | KARST_REQ_IDLE)))
		return "a request waits for nothing";
	return NULL;
}

static const char *
check_responder(const struct karst_core_qp *qp)
{
	const struct karst_responder *r = &qp->rsp;
	uint32_t owed = r->rsp_added - r->rsp_cur;

	if (owed > r->rsp_mask + 1u || r->rsp_saved > r->rsp_mask + 1u)
		return "more answers than places";
	if (AHEAD(r->rsp_added, r->rsp_done) < 0)
		return "answers were given that nobody asked for";
	if (owed != 0) {
		const struct karst_rsp *e = karst_rsp_at(r, r->rsp_cur);

		if (AHEAD(r->rsp_done, r->rsp_cur) > 0 && AHEAD(r->rsp_again, r->rsp_cur) <= 0)
			return "an answer that nobody wants again";
		if (distance(r->rsp_psn, e->beg) >= distance(e->end, e->beg))
			return "the answering cursor is outside of its request";
		if (distance(e->beg, e->psn) + distance(e->end, e->beg) > e->npsn)
			return "answers outside of their request (R4)";
	}
	if ((owed != 0 || r->owed != KARST_OWED_NONE) && !is_listed(qp) &&
		!karst_copy_busy(qp, KARST_COPY_RSP))
		return "an answer is owed and nobody will give it";
	if (r->rwqe.held && !r->rwqe.bad && r->rwqe.got > r->rwqe.total)
		return "more received than there is room for";
	return NULL;
}

/* The objects to which an XRC target points know the target, and exist (U3). */
static const char *
check_target(const struct karst_core *core, const struct karst_core_qp *qp)
{
	const struct karst_core_qp *q;

	if (qp->srq == NULL)
		return qp->rsp.rwqe.held || qp->recv_cq != NULL || qp->pd != 0
			? "an XRC target has something of an SRQ that it has not"
			: NULL;
	/* an SRQ that is being withdrawn has no number any more */
	if (qp->recv_cq != qp->srq->cq || qp->pd != qp->srq->pd ||
		(qp->srq->number != 0 && karst_xrc_find(core, qp, qp->srq->number) != qp->srq))
		return "an XRC target points at an SRQ that is not to be found";
	for (q = qp->srq->targets; q != NULL && q != qp; q = q->next_target)
		;
	return q == NULL ? "an SRQ does not know who points at it" : NULL;
}

/* The counts of held and outstanding requests are right (X4, X8). */
static const char *
check_repeat(const struct karst_core *core, const struct karst_core_qp *qp)
{
	const struct karst_repeat *p = qp->repeat;
	uint32_t i, held = 0, packets = 0, have = 0, lost = 0;

	for (i = 0; i < p->window; i++) {
		held += p->held[i] != NULL;
		packets += p->sent[i] != 0;
		have += karst_repeat_state(p, i) == KARST_REPEAT_HAVE;
		lost += karst_repeat_state(p, i) == KARST_REPEAT_LOST;
	}
	if (held != p->nheld || core->nheld > core->held_max)
		return "frames held are miscounted (X3)";
	if (held != 0 && qp->rsp.wait == KARST_WAIT_NONE)
		return "frames are held and nobody will look at them (X5)";
	if (packets != p->npackets || have != p->nhave || lost != p->nlost)
		return "packets outstanding are miscounted (X8)";
	if (lost != 0 && karst_qp_may_send(qp) && !is_listed(qp) && qp->req.deadline_ns == 0 &&
		qp->req.rto_ns != 0)
		return "something is lost and will not go again (X9)";
	return NULL;
}

const char *
qp_selfcheck(const struct karst_core *core, const struct karst_core_qp *qp)
{
	const char *wrong = NULL;

	if (qp->state != KARST_QPS_ERR)
		wrong = check_cursors(qp);
	if (wrong == NULL && karst_qp_may_send(qp))
		wrong = check_slots(qp);
	if (wrong == NULL && karst_qp_may_send(qp) && karst_qp_reliable(qp))
		wrong = check_gaps(core, qp);
	if (wrong == NULL && karst_qp_may_send(qp) && karst_qp_reliable(qp))
		wrong = check_wakeup(core, qp);
	if (wrong == NULL && karst_qp_may_receive(qp) && karst_qp_reliable(qp))
		wrong = check_responder(qp);
	if (wrong == NULL && qp->repeat != NULL && qp->state != KARST_QPS_ERR)
		wrong = check_repeat(core, qp);
	if (wrong == NULL && qp->type == KARST_QPT_XRC_RECV)
		wrong = check_target(core, qp);
	return wrong;
}

const char *
qp_flushed(const struct karst_core_qp *qp)
{
	if (qp->state != KARST_QPS_ERR)
		return "not in Error";
	if (qp->req.una_idx != qp->sq.tail || qp->sq.head != qp->sq.tail)
		return "a send request was not flushed";
	if (qp->srq == NULL && !(qp->flags & KARST_QPF_RQ_BROKEN) && qp->rq.head != qp->rq.tail)
		return "a receive request was not flushed";
	if (qp->rsp.rwqe.held)
		return "a receive request that a message had taken was not flushed";
	return NULL;
}

void
qp_numbers(const struct karst_core_qp *qp, struct qp_numbers *n)
{
	n->epsn = qp->rsp.epsn;
	n->una_psn = qp->req.una_psn;
	n->nxt_psn = qp->req.nxt_psn;
	n->ssn = qp->req.ssn;
}
