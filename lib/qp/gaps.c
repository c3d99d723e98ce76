/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Gaps among responses (X11): what comes behind one is kept, and what is missing asked for again.
 *
 * A READ may write its destination in any order before it completes, and each response says by its
 * PSN where it belongs.  So nobody has to hold anything: a response that comes early goes to its
 * place at once, and a bit is noted.  That is as good with peers that know nothing of it, since a
 * duplicate READ may begin anywhere in the original (R4).  Only with those who have agreed to
 * selective repeat it ends where the gap does, too.
 *
 * What is noted is a struct karst_gap, one for each READ or atomic of which something is missing
 * while something behind it is here.  They belong to the core; slots[] has their numbers.  What a
 * later request gets completes in its turn: una_psn stays at the first response that is missing
 * of all, and when that is here it moves over all that is here or acknowledged behind it.  How far
 * that is the gap of the oldest request knows (heard):
 *
 *	slots  | READ 10..17       | WRITE 18 | READ 19..22 | READ 23..26  |
 *	here   |  10 11    13 14   |          | 19 20 21 22 | 23           |
 *	               |                       done           |
 *	     una_psn = first = 12, heard = 24                first = 24
 *
 * As long as it is heard of anything behind a gap, the oldest request is one that misses a response
 * and has a gap.  If there is none left, responses are thrown away and the cursor goes back, as
 * it does after a timeout and a NAK.
 *
 * Whose peers leave gaps, and never fill them, keeps what he has for as long as he likes.  So there
 * are shares: a user (sched.c) has three times as many at most as are free then, and a queue pair
 * three times as many as its user may still have then.  A user who has none gets one if there is
 * one, and a queue pair that has none if its user may have one more.
 *
 * Peers answer in order.  So a response before one that has come is lost; and one that was asked
 * for again is lost again when something has come that was requested later: what was sent for the
 * first time since, what was asked for again later and stands behind it, or a later part of the
 * same.  Only what is new is such a sign, so there are never more than there are responses.
 */
#include "gaps.h"

#include "pacer.h"
#include "repeat.h"

static inline uint32_t
end_of(const struct karst_sq_slot *slot)
{
	return karst_psn_add(slot->psn, slot->npsn);
}

/* The oldest request has a gap: up to where the peer has answered. */
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

/* Response @psn is here.  @return how many are from the first on that was missing. */
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

/* May @qp have one more? */
static bool
gap_admits(const struct karst_core *core, const struct karst_core_qp *qp)
{
	uint32_t mine = karst_sched_user_of(core, qp)->gaps;
	uint32_t left = 3 * (KARST_GAPS - core->gaps->used);
	uint32_t more = left > mine ? (left - mine) / 4 : 0;

	/* the user has that many more until three times the rest are his */
	return mine == 0 || (more != 0 && (qp->gaps == 0 || qp->gaps + 1u <= 3 * (more - 1)));
}

/* The gap of @slot, perhaps a new one.  NULL: there are no more. */
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
	/* the oldest may be here in part */
	if (karst_psn_distance(r->una_psn, slot->psn) < slot->npsn)
		g->first = r->una_psn;
	g->heard = g->first;
	return g;
}

/* Likewise, of a new one only within the share. */
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

/* What has come: PSN @psn, which is of request @idx and was asked for again as @order; 0: it was
 * not. */
struct sign {
	uint32_t psn;
	uint32_t idx;
	uint32_t order;
};

/* Has something come that left later than request @idx, which was asked for again?  Then it would
 * be here. */
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

/* From @psn on, what is not here; @end: all is. */
static uint32_t
skip_here(const struct karst_gap *g, uint32_t psn, uint32_t end)
{
	while (psn != end && karst_psn_distance(psn, g->first) < KARST_GAP_PSNS && is_here(g, psn))
		psn = karst_psn_add(psn, 1);
	return psn;
}

/* Response @psn is new.  @return the order of asking that it came of; 0: it was on its way
 * before. */
static uint32_t
came_of(const struct karst_requester *r, struct karst_gap *g, uint32_t psn)
{
	if (!is_asked(r, g) ||
		karst_psn_distance(psn, g->first) >= karst_psn_distance(g->asked_end, g->first))
		return 0;
	/* what was on its way before has come before it */
	g->asked_end = g->asked_to;
	return g->order;
}

/* Is something of request @idx missing before PSN @heard that is not on its way?  From where on? */
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

/* Something new has come: is anything before it missing that is not on its way? */
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
		/* there will be others when this is the oldest */
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

/* --- hearing --- */

/* The oldest request misses a response and has a gap, or one has just become free for it; and all
 * before PSN @end was answered. */
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
	/* there is one: it was taken when this response was found */
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
		/* and what is here behind it; the gap of the next that is missing has become free
		 * just now */
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

/* --- asking --- */

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
	/* what is behind that may still be on its way from before */
	if (karst_psn_before(g->first, heard) && karst_psn_before(heard, end))
		end = heard;
	if (++core->gaps->order == 0)
		core->gaps->order = 1;
	g->order = core->gaps->order;
	g->asked_psn = r->nxt_psn;
	g->asked_end = end;
}

/* All that is missing of request @idx before something that is here; it may have come meanwhile. */
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
	/* it has failed, and completes so in its turn */
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
		/* what cannot be sent again fails in its turn, and nothing behind it matters */
		if ((r->flags & KARST_REQ_FAILED) && (int32_t)(idx - r->fail_idx) >= 0)
			break;
		n = b->n;
		rc = slot->gap != 0 ? ask(core, qp, idx, b, limit) : 0;
		if (!karst_qp_may_send(qp))
			return -1;
		if (rc != 0 && b->n == n)
			return rc;
		slot->flags &= (uint8_t)~KARST_SLOT_ASK;
		/* nobody can tell which one is answered; and for what is sent again the clock runs
		 * from now on (Q6) */
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
