/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Check responses: what they acknowledge, the MSN, READ responses, results of atomics.
 *
 * If a response shows a request that the capture does not have, the capture has lost it.  The
 * connection is then tainted, and whatever may be a consequence of that is no longer a failure.
 */
#include "an_priv.h"

static void
taint(struct an *a, struct an_flow *f, const struct an_pkt *p, const char *what, uint32_t psn)
{
	bool part = an_flow_malformed(a, f);

	an_say(a, f, AN_TRACE, part ? AN_UNKNOWN : AN_FAIL, p->frame, 0, "%s, PSN %06x: %s %06x%s",
		karst_opcode_symbol(p->ib->opcode), p->ib->psn, what, psn,
		part ? ", or cannot be parsed" : "");
	f->req.unseen = true;
	f->tainted = true;
	if (f->peer != NULL)
		f->peer->tainted = true;
}

/* --- progress --- */

/*
 * Checks requests that are acknowledged: whether each was seen and arrived, and how long it took.
 */
static void
covered(struct an *a, struct an_flow *f, uint32_t psn, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	uint32_t i = an_stream_lower(s, s->una);

	for (; i < s->n && karst_psn_diff(an_rec_at(s, i)->psn, psn) < 0; i++) {
		struct an_rec *r = an_rec_at(s, i);

		if (r->tx != 0 && r->lost >= r->tx)
			an_say(a, f, AN_ACK, AN_FAIL, r->first_frame, p->frame,
				"PSN %06x is acknowledged, though each of its transmissions was lost",
				r->psn);
		if (r->tx > 1)
			an_measure(a, AN_LAT_RECOVERY, p->ns - r->first_ns);
	}
	if (karst_psn_diff(s->front, psn) < 0) {
		taint(a, f, p, "acknowledges what was not seen, PSN", s->front);
		s->front = psn; /* report it once */
		an_stream_advance(s);
	}
}

void
an_progress(struct an *a, struct an_flow *f, uint32_t psn, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;

	s->una_known = true;
	if (karst_psn_diff(psn, s->una) <= 0 || p->fate & AN_LOST)
		return;
	covered(a, f, psn, p);
	s->una = psn;
	s->progress_ns = p->ns;
	if (s->rnr.valid && karst_psn_diff(psn, s->rnr.psn) > 0)
		s->rnr.valid = false;
	if (s->gap.valid && karst_psn_diff(psn, s->gap.psn) > 0)
		s->gap.valid = false;
}

static void
response_gap(struct an_stream *s, uint32_t psn, const struct an_pkt *p)
{
	if (!s->gap.valid)
		s->gap = (struct an_nak){.valid = true, .psn = psn, .frame = p->frame, .ns = p->ns};
}

/* Finds the first READ or atomic up to @psn that the requester has no response to; NULL: none. */
static struct an_rec *
unanswered(struct an_stream *s, uint32_t psn)
{
	uint32_t i = an_stream_lower(s, s->una);

	if (i != 0 &&
		karst_psn_diff(s->una, an_rec_at(s, i - 1)->psn) <
			(int32_t)an_rec_at(s, i - 1)->span)
		i--; /* una is inside a READ */
	for (; i < s->n && karst_psn_diff(an_rec_at(s, i)->psn, psn) <= 0; i++)
		if (karst_opcode_flags(an_rec_at(s, i)->opcode) &
			(KARST_OPF_READ | KARST_OPF_ATOMIC))
			return an_rec_at(s, i);
	return NULL;
}

/* Handles a response to @r, in order or not, as the requester does (Q3, Q5). */
static void
response_came(struct an *a, struct an_flow *f, const struct an_rec *r, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;

	if (p->fate & AN_LOST)
		return;
	if (unanswered(s, karst_psn_add(r->psn, -1u)) == NULL)
		an_progress(a, f, r->psn, p);
	if (p->ib->psn == s->una)
		an_progress(a, f, karst_psn_add(p->ib->psn, 1), p);
	else if (karst_psn_diff(p->ib->psn, s->una) > 0)
		response_gap(s, s->una, p);
}

/* --- ACK --- */

static void
ack_order(struct an *a, struct an_flow *f, const struct an_flow *by, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	uint32_t psn = p->ib->psn;
	int32_t moved = s->ack_seen ? karst_psn_diff(psn, s->ack_max) : 1;

	if (moved < 0 && s->again_frame < s->ack_frame)
		an_say(a, f, AN_ACK,
			p->fate == 0 && !p->late && an_sees_sent(a, by) ? AN_FAIL : AN_UNKNOWN,
			s->ack_frame, p->frame,
			"PSN %06x after %06x was acknowledged, and nothing was sent again", psn,
			s->ack_max);
	else
		an_pass(a, f, AN_ACK, p->frame);
	if (s->ack_seen && moved > 0 && (uint32_t)moved > s->coalesced_max)
		s->coalesced_max = (uint32_t)moved;
	if (moved > 0) {
		s->ack_max = psn;
		s->ack_frame = p->frame;
		s->ack_seen = true;
	}
}

static void
ack(struct an *a, struct an_flow *f, const struct an_flow *by, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	struct an_rec *r = an_stream_find(s, p->ib->psn), *open;

	s->acks++;
	an_plot(a, s, AN_PT_ACK, p->ib->psn, p->ns);
	ack_order(a, f, by, p);
	if (r != NULL && r->tx == 1)
		an_measure(a, AN_LAT_ACK, p->ns - r->first_ns);
	open = unanswered(s, p->ib->psn);
	if (open != NULL) { /* Q3: its responses were lost */
		if (!(p->fate & AN_LOST))
			response_gap(s, s->una, p);
		an_progress(a, f, open->psn, p);
		return;
	}
	an_progress(a, f, karst_psn_add(p->ib->psn, 1), p);
}

/* --- MSN --- */

/*
 * The MSN is the value before the capture, which is not known, plus the number of messages
 * completed since: at least those that end at or before the acknowledged PSN, at most all that were
 * sent.  Each response narrows the range of that first value, which has to fit all responses.
 */
void
an_msn(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	uint32_t msn = karst_aeth_msn(p->ib->aeth), least, lo, hi;
	struct an_rec *r = an_stream_find(s, p->ib->psn);
	uint8_t syndrome = karst_aeth_syndrome(p->ib->aeth);

	if (f->tainted || r == NULL || s->front != s->next)
		return; /* messages are missing, so they cannot be counted */
	least = r->cum;
	if (p->flags & (KARST_OPF_READ | KARST_OPF_ATOMIC) ||
		(syndrome & KARST_AETH_TYPE_MASK) != KARST_AETH_ACK)
		least -= (karst_opcode_flags(r->opcode) & KARST_OPF_END) != 0;
	lo = karst_psn_add(msn, -s->cum);
	hi = karst_psn_add(msn, -least);
	if (!s->msn_known) {
		s->msn_known = true;
	} else {
		uint32_t at_least = karst_psn_diff(lo, s->msn_lo) > 0 ? lo : s->msn_lo;
		uint32_t at_most = karst_psn_diff(hi, s->msn_hi) < 0 ? hi : s->msn_hi;

		if (karst_psn_diff(at_least, at_most) > 0) {
			an_say(a, f, AN_MSN, p->fate & AN_MAYBE ? AN_UNKNOWN : AN_FAIL,
				r->first_frame, p->frame,
				"MSN %u at PSN %06x; %u to %u would fit what was before", msn,
				p->ib->psn, karst_psn_add(s->msn_lo, least),
				karst_psn_add(s->msn_hi, s->cum));
		} else {
			an_pass(a, f, AN_MSN, p->frame);
			lo = at_least;
			hi = at_most;
		}
	}
	s->msn_lo = lo;
	s->msn_hi = hi;
}

/* --- READ responses, atomics --- */

/* A First or Middle packet shows the path MTU. */
static void
learn_mtu(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	if (f->req.mtu == 0 && !(p->flags & KARST_OPF_END) && an_is_mtu(p->ib->pay_len))
		an_set_mtu(a, f, p->ib->pay_len);
}

/* The last response to a READ, which may be the only one, shows how many PSNs the READ takes. */
static void
learn_span(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	uint32_t i = an_stream_upto(s, p->ib->psn), span;

	if (i == s->n || !an_rec_at(s, i)->guessed || !(p->flags & KARST_OPF_END))
		return;
	span = karst_psn_add(p->ib->psn, 1 - an_rec_at(s, i)->psn);
	if (!an_read_may_take(an_rec_at(s, i)->len, span))
		return;
	an_set_span(a, f, i, span);
	an_stream_advance(s);
}

static void
read_size(struct an *a, struct an_flow *f, const struct an_rec *r, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	uint32_t k = karst_psn_add(p->ib->psn, -r->psn), len = p->ib->pay_len;
	bool last = k + 1 == r->span, end = (p->flags & KARST_OPF_END) != 0;
	uint32_t want = last ? r->len - k * s->mtu : s->mtu;

	if (end != last)
		an_say(a, f, AN_READ, AN_FAIL, r->last_frame, p->frame,
			"%s as response %u of %u, PSN %06x", karst_opcode_symbol(p->ib->opcode),
			k + 1, r->span, p->ib->psn);
	else if ((s->mtu != 0 || r->span == 1) && len != want)
		an_say(a, f, AN_READ, AN_FAIL, r->last_frame, p->frame,
			"response %u of %u has %u bytes, not %u", k + 1, r->span, len, want);
	else
		an_pass(a, f, AN_READ, p->frame);
}

void
an_read_response(struct an *a, struct an_flow *f, struct an_flow *by, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	struct an_rec *r;
	int32_t ahead;

	learn_mtu(a, f, p);
	r = an_stream_find(s, p->ib->psn);
	if (r == NULL || r->damaged)
		return; /* requested before the capture, or the request was damaged */
	if (!(karst_opcode_flags(r->opcode) & KARST_OPF_READ)) {
		if (karst_opcode_flags(r->opcode) & (KARST_OPF_ATOMICWRITE | KARST_OPF_FLUSH))
			an_progress(a, f, karst_psn_add(p->ib->psn, 1), p);
		else
			an_say(a, f, AN_READ, AN_FAIL, r->first_frame, p->frame,
				"%s answers a %s, PSN %06x", karst_opcode_symbol(p->ib->opcode),
				karst_opcode_symbol(r->opcode), p->ib->psn);
		return;
	}
	if (r->guessed)
		return;
	read_size(a, f, r, p);
	ahead = karst_psn_diff(p->ib->psn, r->resp_next);
	if (ahead > 0)
		an_say(a, f, AN_READ, an_sees_sent(a, by) ? AN_FAIL : AN_UNKNOWN, r->last_frame,
			p->frame, "response PSN %06x where %06x was to come%s", p->ib->psn,
			r->resp_next,
			an_sees_sent(a, by) ? "" : " (or lost before the place of the capture)");
	if (ahead >= 0)
		r->resp_next = karst_psn_add(p->ib->psn, 1);
	else if (p->late)
		an_flow_misordered(f);
	r->resp_frame = p->frame;
	response_came(a, f, r, p);
	if (!s->ack_seen || karst_psn_diff(p->ib->psn, s->ack_max) > 0) {
		s->ack_seen = true;
		s->ack_max = p->ib->psn;
		s->ack_frame = p->frame;
	}
}

void
an_atomic_response(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_rec *r = an_stream_find(&f->req, p->ib->psn);

	if (r == NULL || r->damaged || p->j->icrc_is == JUDGE_CRC_BAD)
		return;
	if (!(karst_opcode_flags(r->opcode) & KARST_OPF_ATOMIC)) {
		an_say(a, f, AN_ATOMIC, f->tainted ? AN_UNKNOWN : AN_FAIL, r->first_frame, p->frame,
			"an atomic acknowledge answers a %s", karst_opcode_symbol(r->opcode));
		return;
	}
	if (!r->answered) {
		r->answered = true;
		r->va = p->ib->orig;
		r->resp_frame = p->frame;
	} else if (r->va == p->ib->orig) {
		an_pass(a, f, AN_ATOMIC, p->frame);
	} else {
		an_say(a, f, AN_ATOMIC, AN_FAIL, r->resp_frame, p->frame,
			"PSN %06x: first answered %016llx, then %016llx: executed again", r->psn,
			(unsigned long long)r->va, (unsigned long long)p->ib->orig);
	}
	response_came(a, f, r, p);
}

/* --- all --- */

/*
 * Clears the damaged mark of requests that @p acknowledges.  Such a request was damaged only in the
 * capture, or had a wrong ICRC, and the responder has accepted it.
 */
static void
taken(struct an_stream *s, const struct an_pkt *p)
{
	bool nak = (p->flags & KARST_OPF_AETH) != 0 &&
		(karst_aeth_syndrome(p->ib->aeth) & KARST_AETH_TYPE_MASK) != KARST_AETH_ACK;
	uint32_t i = an_stream_lower(s, s->una);

	if (!s->damaged)
		return;
	s->damaged = false;
	for (; i < s->n; i++) {
		struct an_rec *r = an_rec_at(s, i);

		r->damaged &= karst_psn_diff(r->psn, p->ib->psn) >= !nak;
		s->damaged |= r->damaged;
	}
	an_stream_advance(s);
}

void
an_response(struct an *a, struct an_flow *by, struct an_flow *f, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	uint8_t syndrome = karst_aeth_syndrome(p->ib->aeth);

	if (p->j->icrc_is == JUDGE_CRC_BAD)
		return; /* the requester has dropped it */
	if (p->flags & KARST_OPF_READ)
		learn_span(a, f, p);
	an_jump_answered(a, f, p);
	if (p->flags & KARST_OPF_READ)
		learn_mtu(a, f, p);
	if (s->n != 0 && an_rec_at(s, s->n - 1)->guessed &&
		karst_psn_diff(p->ib->psn, an_rec_at(s, s->n - 1)->psn) > 0)
		return; /* the READ's number of responses is not known */
	if (karst_psn_diff(p->ib->psn, s->next) >= 0) {
		taint(a, f, p, "answers what was not seen; the newest request has PSN",
			karst_psn_add(s->next, -1u));
		return;
	}
	if (s->n != 0 && karst_psn_diff(p->ib->psn, an_rec_at(s, 0)->psn) < 0)
		return; /* answers a request from before the capture, or one no longer remembered */
	an_pass(a, f, AN_TRACE, p->frame);
	taken(s, p);
	if ((p->flags & KARST_OPF_AETH) && an_stream_find(s, p->ib->psn) != NULL)
		an_msn(a, f, p);
	if (p->flags & KARST_OPF_READ)
		an_read_response(a, f, by, p);
	else if (p->flags & KARST_OPF_ATOMIC)
		an_atomic_response(a, f, p);
	else if ((syndrome & KARST_AETH_TYPE_MASK) == KARST_AETH_ACK)
		ack(a, f, by, p);
	else if ((syndrome & KARST_AETH_TYPE_MASK) == KARST_AETH_RNR)
		an_rnr(a, f, p);
	else if (syndrome == (KARST_AETH_NAK | KARST_NAK_PSN_SEQ))
		an_nak(a, f, by, p);
	s->event_ns = p->ns;
}
