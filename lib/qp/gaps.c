/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Gaps among responses (X11): what arrives after a gap is kept, and what is missing is requested
 * again.
 *
 * A READ may write its destination in any order before it completes, and the PSN of each response
 * says where its bytes belong.  So nothing has to be buffered: an early response is placed at once,
 * and a bit is set.  This also works with peers that do not know about it, since a duplicate READ
 * may begin anywhere in the original (R4).  Only to peers that have agreed to selective repeat,
 * such a READ also ends where the gap ends.
 *
 * There is a struct karst_gap for each READ or atomic that has missing responses while later ones
 * have arrived.  These belong to the core; slots[] has their numbers.  Requests still complete in
 * order: una_psn stays at the first missing response of all.  When that response arrives, una_psn
 * moves past everything after it that has arrived or was acknowledged.  The gap of the oldest
 * request has the limit of that (heard):
 *
 *	slots  | READ 10..17       | WRITE 18 | READ 19..22 | READ 23..26  |
 *	here   |  10 11    13 14   |          | 19 20 21 22 | 23           |
 *	               |                       done           |
 *	     una_psn = first = 12, heard = 24                first = 24
 *
 * As long as anything has arrived or was acknowledged after a gap, the oldest request has a missing
 * response and a struct karst_gap.  If no gap is free for it, responses are discarded and the
 * cursor goes back, as it does after a timeout and a NAK.
 *
 * A user whose peers cause gaps and never fill them could keep them for ever.  So there are shares:
 * a user (sched.c) has at most three times as many as are free at that time, and a queue pair three
 * times as many as its user may still have then.  A user who has none gets one if there is one, and
 * a queue pair that has none gets one if its user may have one more.
 *
 * Peers answer in order.  So a response is lost if a later one has arrived.  A response that was
 * requested again is lost again if something has arrived that was requested after it: a request
 * that was first sent since then, a later part of a request that was requested again after it, or a
 * later part of the same request.  Only a response that has not arrived before counts for this, so
 * the number of such conclusions is limited by the number of responses.
 */
#include "gaps.h"

#include "pacer.h"
#include "repeat.h"

static inline uint32_t
end_of(const struct karst_sq_slot *slot)
{
	return karst_psn_add(slot->psn, slot->npsn);
}

/* The oldest request has a gap: the limit up to which the peer has answered. */
static inline uint32_t
heard_of(const struct karst_core *core, const struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;

	return karst_gap_of(core, &r->slots[r->una_idx & qp->sq.mask])->heard;
}

/* --- bits --- */

static inline uint64_t *
word_of(struct karst_gap *g, uint32_t psn)
{
	return &g->map[psn / 64 % KARST_DIM(g->map)];
}

static inline bool
is_here(const struct karst_gap *g, uint32_t psn)
{
	return (g->map[psn / 64 % KARST_DIM(g->map)] >> psn % 64 & 1) != 0;
}

/* Records that response @psn has arrived.  @return how many are contiguous from the first missing
 * one. */
static uint32_t
put(struct karst_gap *g, uint32_t psn)
{
	uint32_t n = 0;

	if (karst_mutant(KARST_MUTANT_GAP_CLOSED))
		*word_of(g, g->first) |= 1ull << g->first % 64;
	*word_of(g, psn) |= 1ull << psn % 64;
	while (n < KARST_GAP_PSNS && is_here(g, g->first)) {
		*word_of(g, g->first) &= ~(1ull << g->first % 64);
		g->first = karst_psn_add(g->first, 1);
		n++;
	}
	return n;
}

/* --- life --- */

void
karst_gaps_init(struct karst_gaps *g)
{
	uint16_t i;

	for (i = 0; i < KARST_GAPS; i++)
		g->at[i].next = i;
	g->free = KARST_GAPS;
}

/* Whether @qp may have one more gap. */
static bool
gap_admits(const struct karst_core *core, const struct karst_core_qp *qp)
{
	uint32_t mine = karst_sched_user_of(core, qp)->gaps;
	uint32_t left = 3 * (KARST_GAPS - core->gaps->used);
	uint32_t more = left > mine ? (left - mine) / 4 : 0;

	/* the user has that many more before the user's gaps are three times the rest */
	return mine == 0 || (more != 0 && (qp->gaps == 0 || qp->gaps + 1u <= 3 * (more - 1)));
}

/* The gap of @slot, which may be a new one.  NULL: none is free. */
static struct karst_gap *
gap_take(struct karst_core *core, struct karst_core_qp *qp, struct karst_sq_slot *slot)
{
	struct karst_requester *r = &qp->req;
	struct karst_gaps *all = core->gaps;
	struct karst_gap *g;

	if (slot->gap != 0)
		return karst_gap_of(core, slot);
	if (all->free == 0)
		return NULL;
	slot->gap = all->free;
	g = karst_gap_of(core, slot);
	all->free = g->next;
	all->used++;
	qp->gaps++;
	karst_sched_user_of(core, qp)->gaps++;
	*g = (struct karst_gap){.qp = qp, .first = slot->psn};
	/* part of the oldest request may have been answered */
	if (karst_psn_distance(r->una_psn, slot->psn) < slot->npsn)
		g->first = r->una_psn;
	g->heard = g->first;
	return g;
}

/* Likewise, but takes a new one only within the share. */
static struct karst_gap *
gap_ask(struct karst_core *core, struct karst_core_qp *qp, struct karst_sq_slot *slot)
{
	return slot->gap != 0 || gap_admits(core, qp) ? gap_take(core, qp, slot) : NULL;
}

static void
give_back(struct karst_core *core, struct karst_gap *g)
{
	struct karst_gaps *all = core->gaps;

	g->qp->gaps--;
	karst_sched_user_of(core, g->qp)->gaps--;
	g->qp = NULL;
	g->next = all->free;
	all->free = (uint16_t)(g - all->at + 1);
	all->used--;
}

static void
gap_free(struct karst_core *core, struct karst_sq_slot *slot)
{
	give_back(core, karst_gap_of(core, slot));
	slot->gap = 0;
}

void
karst_gaps_drop(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_gaps *all = core->gaps;
	uint32_t i;

	for (i = 0; i < KARST_GAPS && qp->gaps != 0; i++)
		if (all->at[i].qp == qp)
			give_back(core, &all->at[i]);
	qp->req.asks = 0;
}

/* --- what is lost --- */

/* An arrival: PSN @psn, which belongs to request @idx and was requested again with sequence number
 * @order; 0: it was not requested again. */
struct sign {
	uint32_t psn;
	uint32_t idx;
	uint32_t order;
};

/* Request @idx was sent again.  Whether something has arrived that left later, so that the response
 * should have arrived too. */
static bool
lost_again(const struct karst_requester *r, const struct karst_gap *g, uint32_t idx,
	const struct sign *s)
{
	uint32_t at = karst_psn_distance(s->psn, r->una_psn);

	if (at >= karst_psn_distance(g->asked_psn, r->una_psn))
		return true;
	if (s->idx == idx)
		return s->order == g->order && at > karst_psn_distance(g->first, r->una_psn);
	return (int32_t)(s->idx - idx) > 0 && s->order > g->order;
}

static bool
is_asked(const struct karst_requester *r, const struct karst_gap *g)
{
	return g->order != 0 &&
		karst_psn_distance(g->first, r->una_psn) <
		karst_psn_distance(g->asked_to, r->una_psn);
}

/* The first PSN from @psn on that has not arrived; @end: all have arrived. */
static uint32_t
skip_here(const struct karst_gap *g, uint32_t psn, uint32_t end)
{
	while (psn != end && karst_psn_distance(psn, g->first) < KARST_GAP_PSNS && is_here(g, psn))
		psn = karst_psn_add(psn, 1);
	return psn;
}

/* Response @psn has arrived for the first time.  @return the sequence number of the request that
 * brought it; 0: it was under way before that. */
static uint32_t
came_of(const struct karst_requester *r, struct karst_gap *g, uint32_t psn)
{
	if (!is_asked(r, g) ||
		karst_psn_distance(psn, g->first) >= karst_psn_distance(g->asked_end, g->first))
		return 0;
	/* what was under way before has arrived before it */
	g->asked_end = g->asked_to;
	return g->order;
}

/* Whether a response of request @idx before PSN @heard is missing and not under way.  Sets g->from
 * to where the next request begins. */
static bool
is_wanted(const struct karst_requester *r, const struct karst_sq_slot *slot, struct karst_gap *g,
	uint32_t idx, const struct sign *s, uint32_t heard)
{
	uint32_t psn;

	if (!is_asked(r, g) || lost_again(r, g, idx, s)) {
		g->from = g->first;
		return true;
	}
	psn = skip_here(g, g->asked_to, end_of(slot));
	if (psn == end_of(slot) || !karst_psn_before(psn, heard))
		return false;
	if (!(slot->flags & KARST_SLOT_ASK))
		g->from = psn;
	return true;
}

/* Something new has arrived: requests again what is missing before it and not under way. */
static void
gaps_look(struct karst_core *core, struct karst_core_qp *qp, const struct sign *s)
{
	struct karst_requester *r = &qp->req;
	uint32_t idx, heard;
	bool asks = false;

	if (!karst_gaps_any(qp))
		return;
	heard = heard_of(core, qp);
	if (!karst_psn_before(r->una_psn, heard))
		return;
	/* a cursor that went back may be behind una until karst_requester_follow_up() */
	for (idx = r->una_idx; (int32_t)(r->snd_idx - idx) > 0; idx++) {
		struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];
		struct karst_gap *g;

		if (!(slot->flags & KARST_SLOT_RD_ATOMIC) || (slot->flags & KARST_SLOT_DONE))
			continue;
		if (idx != r->una_idx && !karst_psn_before(slot->psn, heard))
			break;
		g = gap_ask(core, qp, slot);
		/* there will be gaps for it when this request is the oldest */
		if (g == NULL || !karst_psn_before(g->first, heard) ||
			!is_wanted(r, slot, g, idx, s, heard))
			continue;
		asks |= !(slot->flags & KARST_SLOT_ASK);
		slot->flags |= KARST_SLOT_ASK;
	}
	if (!asks)
		return;
	karst_count(&core->counters, KARST_CTR_IMPLIED_NAK_SEQ_ERR);
	r->asks = 1;
	karst_pacer_lost(core, qp);
	karst_core_activate(core, qp);
}

/* --- received responses --- */

/* Records that the peer has answered all before PSN @end.  The oldest request has a missing
 * response, and has a gap, or one has just become free for it. */
static void
note_heard(struct karst_core *core, struct karst_core_qp *qp, uint32_t end)
{
	struct karst_requester *r = &qp->req;
	struct karst_gap *g = gap_take(core, qp, &r->slots[r->una_idx & qp->sq.mask]);

	if (karst_psn_before(g->heard, end))
		g->heard = end;
	if (karst_repeat_of(qp) != NULL)
		karst_repeat_executed(qp, end);
}

bool
karst_gaps_heard(struct karst_core *core, struct karst_core_qp *qp, uint32_t end)
{
	struct sign s = {.psn = karst_psn_add(end, -1u), .idx = qp->req.una_idx};

	if (gap_ask(core, qp, &qp->req.slots[qp->req.una_idx & qp->sq.mask]) == NULL)
		return false;
	note_heard(core, qp, end);
	gaps_look(core, qp, &s);
	return true;
}

enum karst_gap_answer
karst_gaps_find(struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt,
	uint32_t *which)
{
	struct karst_requester *r = &qp->req;
	struct karst_sq_slot *slot = NULL;
	struct karst_gap *g;
	uint32_t idx;

	for (idx = r->una_idx; idx != r->nxt_idx; idx++) {
		slot = &r->slots[idx & qp->sq.mask];
		if (slot->npsn != 0 && karst_psn_distance(pkt->psn, slot->psn) < slot->npsn)
			break;
	}
	if (idx == r->nxt_idx || !(slot->flags & KARST_SLOT_RD_ATOMIC) ||
		(slot->flags & KARST_SLOT_DONE))
		return KARST_GAP_KNOWN;
	if (gap_ask(core, qp, &r->slots[r->una_idx & qp->sq.mask]) == NULL)
		return KARST_GAP_NONE;
	g = gap_ask(core, qp, slot);
	if (g == NULL)
		return KARST_GAP_FAR;
	if (karst_psn_distance(g->first, pkt->psn) <= slot->npsn && g->first != pkt->psn)
		return KARST_GAP_KNOWN;
	if (karst_psn_distance(pkt->psn, g->first) >= KARST_GAP_PSNS)
		return KARST_GAP_FAR;
	*which = idx;
	return is_here(g, pkt->psn) ? KARST_GAP_KNOWN : KARST_GAP_ANSWER;
}

void
karst_gaps_taken(struct karst_core *core, struct karst_core_qp *qp, uint32_t idx, uint32_t psn)
{
	struct karst_requester *r = &qp->req;
	struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];
	struct karst_gap *g = karst_gap_of(core, slot);
	struct sign s = {.psn = psn, .idx = idx, .order = came_of(r, g, psn)};

	put(g, psn);
	if (g->first == end_of(slot)) {
		slot->flags |= KARST_SLOT_DONE;
		gap_free(core, slot);
	}
	/* this finds one: it was taken when this response was found */
	note_heard(core, qp, karst_psn_add(psn, 1));
	gaps_look(core, qp, &s);
}

void
karst_gaps_enter(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;
	const struct karst_gap *g = karst_gap_of(core, &r->slots[r->una_idx & qp->sq.mask]);

	karst_gaps_pass(r, karst_psn_distance(g->first, r->una_psn));
}

void
karst_gaps_filled(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;
	struct karst_sq_slot *slot = &r->slots[r->una_idx & qp->sq.mask];
	struct karst_gap *g = karst_gap_of(core, slot);
	struct sign s = {
		.psn = r->una_psn,
		.idx = r->una_idx,
		.order = came_of(r, g, r->una_psn),
	};
	uint32_t n = put(g, r->una_psn), heard = g->heard;

	karst_gaps_pass(r, n);
	if (r->una_psn == end_of(slot)) {
		gap_free(core, slot);
		slot->flags |= KARST_SLOT_DONE;
		karst_requester_complete_one(core, qp, KARST_WC_SUCCESS, 0);
		karst_qp_retire_sends(core, qp);
		/* and what has arrived after it; a gap for the next missing response has just
		 * become free */
		if (karst_qp_may_send(qp) && karst_psn_before(r->una_psn, heard) &&
			!karst_requester_ack_before(core, qp, heard))
			note_heard(core, qp, heard);
	}
	if (!karst_qp_may_send(qp))
		return;
	karst_requester_progress(core, qp, n);
	s.psn = r->una_psn;
	gaps_look(core, qp, &s);
}

/* --- requesting again --- */

uint32_t
karst_gaps_range(const struct karst_core *core, const struct karst_core_qp *qp,
	const struct karst_sq_slot *slot, uint32_t psn, uint32_t *end)
{
	const struct karst_gap *g;
	uint32_t at;

	*end = end_of(slot);
	if (slot->gap == 0)
		return psn;
	g = karst_gap_of(core, slot);
	if (karst_psn_before(psn, g->first))
		psn = g->first;
	if (karst_repeat_of(qp) == NULL || karst_mutant(KARST_MUTANT_GAP_ALL))
		return psn;
	for (at = karst_psn_add(psn, 1);
		at != *end && karst_psn_distance(at, g->first) < KARST_GAP_PSNS;
		at = karst_psn_add(at, 1)) {
		if (is_here(g, at)) {
			*end = at;
			break;
		}
	}
	return psn;
}

void
karst_gaps_asked(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_sq_slot *slot, uint32_t end)
{
	struct karst_requester *r = &qp->req;
	struct karst_gap *g = gap_ask(core, qp, slot);
	uint32_t heard;

	if (g == NULL)
		return;
	heard = heard_of(core, qp);
	g->asked_to = end;
	/* earlier responses up to there may still be under way */
	if (karst_psn_before(g->first, heard) && karst_psn_before(heard, end))
		end = heard;
	if (++core->gaps->order == 0)
		core->gaps->order = 1;
	g->order = core->gaps->order;
	g->asked_psn = r->nxt_psn;
	g->asked_end = end;
}

/* Requests again all missing responses of request @idx before one that has arrived; they may have
 * arrived since. */
static int
ask(struct karst_core *core, struct karst_core_qp *qp, uint32_t idx, struct karst_tx_burst *b,
	uint32_t limit)
{
	struct karst_requester *r = &qp->req;
	struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];
	const struct karst_gap *g = karst_gap_of(core, slot);
	uint32_t psn = skip_here(
		g, karst_psn_before(g->first, g->from) ? g->from : g->first, end_of(slot));
	int rc = psn != end_of(slot) && karst_psn_before(psn, heard_of(core, qp)) ? 0 : 2;

	while (rc == 0) {
		if (b->bytes >= limit)
			return 1;
		if (karst_pacer_holds(core, qp))
			return -1;
		rc = karst_requester_repeat(core, qp, idx, psn, b);
		if (rc != 0 || karst_repeat_of(qp) == NULL)
			break;
		/* the rest of its gaps may wait until these are filled */
		psn = skip_here(g, g->asked_to, end_of(slot));
		if (psn == end_of(slot) || karst_psn_distance(psn, g->first) >= KARST_GAP_PSNS)
			break;
		if (!karst_psn_before(psn, heard_of(core, qp)))
			break;
	}
	/* it has failed, and completes with that status in order */
	return rc == 2 ? 0 : rc;
}

int
karst_gaps_tx(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b, uint32_t limit)
{
	struct karst_requester *r = &qp->req;
	uint32_t idx, n;
	int rc;

	for (idx = r->una_idx; idx != r->snd_idx; idx++) {
		struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];

		if (!(slot->flags & KARST_SLOT_ASK))
			continue;
		/* a request that cannot be sent again fails in order; those after it do not
		 * matter */
		if ((r->flags & KARST_REQ_FAILED) && (int32_t)(idx - r->fail_idx) >= 0)
			break;
		n = b->n;
		rc = slot->gap != 0 ? ask(core, qp, idx, b, limit) : 0;
		if (!karst_qp_may_send(qp))
			return -1;
		if (rc != 0 && b->n == n)
			return rc;
		slot->flags &= (uint8_t)~KARST_SLOT_ASK;
		/* a response could belong to either request, so the round trip is not measured; and
		 * for what is sent again the acknowledgement timer counts from now on (Q6) */
		if (b->n != n) {
			r->timing = 0;
			if (idx == r->una_idx)
				r->deadline_ns = 0;
		}
		if (rc != 0)
			return rc;
	}
	r->asks = 0;
	return 0;
}
