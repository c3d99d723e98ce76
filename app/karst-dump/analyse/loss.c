/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Check loss recovery: the NAKs, and when and to which PSN the requester goes back.
 *
 * Retransmissions come in rounds.  The first packet of a round is the one that does not follow the
 * PSN of the request before it.  A round has a reason: a NAK, an RNR NAK, a gap in READ responses,
 * or else a timeout.
 */
#include "an_priv.h"

#define TIMEOUT_UNIT_NS 4096u

static bool
lost_by_log(const struct an_rec *r)
{
	return r != NULL && (r->lost != 0 || r->maybe);
}

/* --- NAK sequence error --- */

static void
nak_once(struct an *a, struct an_flow *f, const struct an_pkt *p, const struct an_rec *r)
{
	struct an_nak *was = &f->req.nak_before;
	uint8_t tx = r != NULL ? r->tx : 0;

	if (!was->valid || was->psn != p->ib->psn)
		an_pass(a, f, AN_NAK_ONCE, p->frame);
	else if (tx == was->tx && tx != UINT8_MAX)
		an_say(a, f, AN_NAK_ONCE, p->fate & AN_DUP ? AN_UNKNOWN : AN_FAIL, was->frame,
			p->frame, "a second NAK for PSN %06x, which was not sent again in between",
			p->ib->psn);
	else
		an_say(a, f, AN_NAK_ONCE, r != NULL && r->lost >= r->tx ? AN_FAIL : AN_UNKNOWN,
			was->frame, p->frame, "a second NAK for PSN %06x, which was sent again%s",
			p->ib->psn,
			r != NULL && r->lost >= r->tx ? " and lost" : " and perhaps lost");
}

/*
 * Finds a packet before the NAK's PSN that was certainly lost.  If there is one, the NAK
 * acknowledges it wrongly.
 */
static const struct an_rec *
passed_over(struct an_stream *s, uint32_t psn)
{
	uint32_t i;

	if (!s->una_known)
		return NULL;
	for (i = an_stream_lower(s, s->una); i < s->n; i++) {
		struct an_rec *r = an_rec_at(s, i);

		if (karst_psn_diff(r->psn, psn) >= 0)
			return NULL;
		if (r->tx != 0 && r->lost >= r->tx)
			return r;
	}
	return NULL;
}

/*
 * Whether the responder could know of no gap at @r, which arrived.  A responder may drop a request
 * behind the place of the capture, and then a NAK for it is right: a later request shows the gap,
 * or the responder itself has dropped the request because it was busy with others (R2).  Neither is
 * possible if @r is the newest request, and all before it, including what was sent again, was done.
 */
static bool
no_gap_known(const struct an_flow *f, const struct an_rec *r)
{
	const struct an_stream *s = &f->req;
	const struct an_rec *before = r != an_rec_at(s, 0) ? r - 1 : NULL;

	if (before == NULL || karst_psn_add(before->psn, before->span) != r->psn ||
		karst_psn_add(r->psn, r->span) != s->next)
		return false;
	if (!s->una_known || s->una != r->psn || !s->ack_seen ||
		karst_psn_add(s->ack_max, 1) != r->psn || s->ack_frame > r->first_frame)
		return false;
	return s->again_frame < before->first_frame && f->doubled == 0;
}

static void
nak_psn(struct an *a, struct an_flow *f, const struct an_flow *by, const struct an_pkt *p,
	struct an_rec *r)
{
	struct an_stream *s = &f->req;
	const struct an_rec *over = passed_over(s, p->ib->psn);
	uint32_t psn = p->ib->psn;

	if (s->ack_seen && karst_psn_diff(s->ack_max, psn) >= 0)
		an_say(a, f, AN_NAK_PSN, an_sees_sent(a, by) && p->fate == 0 ? AN_FAIL : AN_UNKNOWN,
			s->ack_frame, p->frame, "NAK for PSN %06x, after %06x was acknowledged",
			psn, s->ack_max);
	else if (over != NULL)
		an_say(a, f, AN_NAK_PSN, AN_FAIL, over->first_frame, p->frame,
			"NAK for PSN %06x, though %06x before it was lost", psn, over->psn);
	else if (lost_by_log(r))
		an_pass(a, f, AN_NAK_PSN, p->frame);
	else if (r == NULL && karst_psn_diff(psn, s->next) < 0)
		an_say(a, f, AN_NAK_PSN, AN_PASS, p->frame, 0,
			"PSN %06x was lost before the place of the capture", psn);
	else if (an_sees_received(a, f) && r != NULL && r->psn == psn && no_gap_known(f, r))
		an_say(a, f, AN_NAK_PSN, AN_FAIL, r->first_frame, p->frame,
			"NAK for PSN %06x, which had arrived in its turn, with nothing behind it",
			psn);
	else if (an_sees_received(a, f) && r != NULL && r->psn == psn)
		an_say(a, f, AN_NAK_PSN, AN_UNKNOWN, r->first_frame, p->frame,
			"PSN %06x arrived, but the responder may have dropped it after that", psn);
	else
		an_say(a, f, AN_NAK_PSN, AN_UNKNOWN, p->frame, 0,
			a->have_log
				? "nothing says that PSN %06x was lost, but it may have been"
				: "PSN %06x was seen; no injury log says whether it was lost later",
			psn);
}

/* A transmission that arrived. */
struct an_arrival {
	uint64_t frame, ns;
	bool known; /* false: it may be this one or a later one */
};

/* Finds the first transmission of @r behind frame @since that arrived; false: none did. */
static bool
arrival(const struct an_rec *r, uint64_t since, struct an_arrival *to)
{
	bool first = r->first_frame > since, several = r->tx > 2 && r->before_frame > since;

	if (r->last_frame <= since || r->lost >= r->tx)
		return false;
	if (first && !r->first_lost)
		*to = (struct an_arrival){r->first_frame, r->first_ns, !r->maybe};
	else if (several)
		*to = (struct an_arrival){since + 1, 0, false};
	else if (!r->last_lost)
		*to = (struct an_arrival){r->last_frame, r->last_ns, !r->maybe};
	else
		return false;
	return true;
}

/*
 * Measures the latency of NAK generation: from the arrival of the packet that opens the gap to the
 * NAK.  That packet is the first one with a later PSN, in the order of the capture and not of PSNs,
 * that arrives after the missing PSN was last sent.  If an earlier NAK named the same PSN, only
 * packets behind that NAK count.  If it is not certain which packet arrived first, nothing is
 * measured.
 */
static void
nak_latency(struct an *a, struct an_stream *s, const struct an_pkt *p, const struct an_rec *r)
{
	const struct an_nak *was = &s->nak_before;
	uint64_t since = r != NULL ? r->last_frame : 0;
	uint32_t i = an_stream_lower(s, karst_psn_add(p->ib->psn, 1));
	struct an_arrival opens = {.frame = AN_NEVER}, at;

	if (was->valid && was->psn == p->ib->psn && was->frame > since)
		since = was->frame;
	for (; i < s->n; i++)
		if (arrival(an_rec_at(s, i), since, &at) && at.frame < opens.frame)
			opens = at;
	if (opens.known)
		an_measure(a, AN_LAT_NAK, p->ns - opens.ns);
}

void
an_nak(struct an *a, struct an_flow *f, const struct an_flow *by, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	struct an_rec *r = an_stream_find(s, p->ib->psn);
	struct an_nak nak = {.valid = true,
		.psn = p->ib->psn,
		.frame = p->frame,
		.ns = p->ns,
		.tx = r != NULL ? r->tx : 0,
		.second = s->nak.valid};

	s->naks++;
	an_plot(a, s, AN_PT_NAK, p->ib->psn, p->ns);
	nak_psn(a, f, by, p, r);
	nak_once(a, f, p, r);
	nak_latency(a, s, p, r);
	s->nak_before = nak;
	if (p->fate & AN_MAYBE) {
		s->nak_unsure = p->frame;
	} else if (!(p->fate & AN_LOST)) {
		/* the reaction is to the first NAK of several that say the same */
		if (s->nak.valid && s->nak.psn == nak.psn)
			nak.ns = s->nak.ns;
		s->nak = nak;
	}
	an_progress(a, f, p->ib->psn, p);
}

/* --- RNR NAK --- */

/* Q7, in units of 10 us. */
static const uint32_t rnr_10us[32] = {65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
	49152};

void
an_rnr(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	struct an_rec *r = an_stream_find(s, p->ib->psn);

	s->rnrs++;
	an_plot(a, s, AN_PT_RNR, p->ib->psn, p->ns);
	s->rnr = (struct an_nak){.valid = !(p->fate & (AN_LOST | AN_MAYBE)),
		.psn = p->ib->psn,
		.frame = p->frame,
		.ns = p->ns,
		.tx = r != NULL ? r->tx : 0,
		.wait_ns =
			rnr_10us[karst_aeth_syndrome(p->ib->aeth) & KARST_AETH_VALUE_MASK] * 10000};
	an_progress(a, f, p->ib->psn, p);
}

static void
after_rnr(struct an *a, struct an_flow *f, const struct an_pkt *p, const struct an_rec *r)
{
	struct an_stream *s = &f->req;
	struct an_nak n = s->rnr;
	uint64_t waited = p->ns - n.ns;
	bool crossing = s->nak.valid || n.tx > 1;

	s->rnr.valid = s->nak.valid = s->gap.valid = false;
	an_measure(a, AN_LAT_RNR, waited);
	if (waited + 2000 >= n.wait_ns)
		an_pass(a, f, AN_RNR_WAIT, p->frame);
	else
		an_say(a, f, AN_RNR_WAIT,
			an_timed(a, crossing && r != NULL && r->tx < 3 ? AN_UNKNOWN : AN_FAIL,
				n.frame),
			n.frame, p->frame, "sent again after %.3f ms, the timer said %.2f ms",
			(double)waited / 1e6, n.wait_ns / 1e6);
	if (p->ib->psn == n.psn)
		an_pass(a, f, AN_RNR_RESUME, p->frame);
	else
		an_say(a, f, AN_RNR_RESUME, an_sees_sent(a, f) ? AN_FAIL : AN_UNKNOWN, n.frame,
			p->frame, "goes on at PSN %06x, the RNR NAK said %06x", p->ib->psn, n.psn);
}

/* --- timeouts --- */

static void
growth(struct an *a, struct an_flow *f, const struct an_pkt *p, uint64_t since)
{
	struct an_stream *s = &f->req;
	/*
	 * Whether the capture shows all timeouts.  Otherwise some in between may have been lost
	 * before the place of the capture, or some may have been early retransmissions (Q11).
	 */
	bool sees = an_sees_sent(a, f) && a->o->timeout > 0;

	if (s->rto_ns == 0 || s->rto_psn != p->ib->psn || s->rto_progress != s->progress_ns ||
		s->rto_frame < a->unsteady) {
		s->rto_min = s->rto_max = since;
	} else {
		uint64_t span = p->ns - s->rto_ns;

		s->rto_min = span < s->rto_min ? span : s->rto_min;
		s->rto_max = span > s->rto_max ? span : s->rto_max;
		an_say(a, f, AN_GROWTH,
			s->rto_max <= s->rto_min / 50 * 205 ? AN_PASS
				: sees                      ? AN_FAIL
							    : AN_UNKNOWN,
			s->rto_frame, p->frame,
			"PSN %06x: timeouts from %.3f to %.3f ms, the last one %.3f ms", p->ib->psn,
			(double)s->rto_min / 1e6, (double)s->rto_max / 1e6, (double)span / 1e6);
	}
	s->rto_psn = p->ib->psn;
	s->rto_ns = p->ns;
	s->rto_frame = p->frame;
	s->rto_progress = s->progress_ns;
}

/*
 * Whether @psn was sent again early, and there was no progress since.
 *
 * Q11: karst, and adapters that call it adaptive retransmission, send the oldest packet again long
 * before the timeout, alone, and with AckReq set.  Whether a packet is such an early retransmission
 * shows later, when another packet follows it or does not.
 */
static bool
still_early(const struct an_stream *s, uint32_t psn)
{
	return s->early.valid && s->early.psn == psn && s->early.progress == s->progress_ns;
}

static bool
may_be_early(struct an *a, const struct an_stream *s, const struct an_pkt *p, uint64_t longest)
{
	uint64_t nominal = a->o->timeout > 0 ? (uint64_t)TIMEOUT_UNIT_NS << a->o->timeout : 0;

	return longest < nominal - nominal / 50 && s->una_known && p->ib->psn == s->una &&
		(p->ib->ackreq || (p->flags & (KARST_OPF_READ | KARST_OPF_ATOMIC)) != 0);
}

static void
early(struct an *a, struct an_flow *f, const struct an_pkt *p, const struct an_rec *r,
	uint64_t longest)
{
	struct an_stream *s = &f->req;
	bool still = still_early(s, p->ib->psn);
	uint64_t since = still ? s->early.since : r->last_ns;
	uint64_t from = still ? s->early.from : r->last_frame;

	s->early = (struct an_early){.valid = true,
		.psn = p->ib->psn,
		.next = karst_psn_add(r->psn, r->span),
		.end = s->last_end,
		.frame = p->frame,
		.progress = s->progress_ns,
		.since = since,
		.from = from,
		.last_ns = p->ns};
	an_say(a, f, AN_TIMEOUT, AN_UNKNOWN, r->last_frame, p->frame,
		"PSN %06x again after %.3f ms, before the timeout, and alone so far: may be an early "
		"retransmission",
		p->ib->psn, (double)longest / 1e6);
}

/*
 * Checks whether an early retransmission was alone.  @p is sent again, and does not begin a round.
 */
static void
after_early(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;

	if (still_early(s, s->early.psn) && p->ib->psn == s->early.next)
		an_say(a, f, AN_TIMEOUT,
			an_timed(a, an_sees_sent(a, f) ? AN_FAIL : AN_UNKNOWN, s->early.from),
			s->early.frame, p->frame,
			"PSN %06x follows %06x, which went again %.3f ms after it was last sent, before "
			"the timeout",
			p->ib->psn, s->early.psn,
			(double)(s->early.last_ns - s->early.since) / 1e6);
	s->early.valid = false;
}

/*
 * Checks the time of a retransmission by timeout.  The capture does not show when the timer began:
 * at the earliest when the packet was last sent, at the latest with the last packet of either
 * direction.
 */
static void
timeout(struct an *a, struct an_flow *f, const struct an_pkt *p, const struct an_rec *r)
{
	struct an_stream *s = &f->req;
	uint64_t shortest = p->ns - s->event_ns, nominal;
	/* early retransmissions do not restart the timer */
	bool still = still_early(s, p->ib->psn);
	uint64_t longest = p->ns - (still ? s->early.since : r->last_ns);
	uint64_t from = still ? s->early.from : r->last_frame;
	/*
	 * the reason may be a response that was lost after the place of the capture, or a new queue
	 * pair
	 */
	bool sees = an_sees_sent(a, f) && s->anew != p->frame;
	bool hidden = (p->flags & AN_ANSWERED) != 0 && !an_sees_received(a, f->peer);

	if (sees && !hidden && may_be_early(a, s, p, longest)) {
		early(a, f, p, r, longest);
		return;
	}
	s->early.valid = false;
	s->timeouts++;
	f->pair->src->seen[AN_SEEN_TIMEOUTS]++;
	an_measure(a, AN_LAT_TIMEOUT, longest);
	growth(a, f, p, longest);
	if (a->o->timeout <= 0) {
		an_say(a, f, AN_TIMEOUT,
			a->o->timeout == 0 && sees && !hidden ? AN_FAIL : AN_UNKNOWN, r->last_frame,
			p->frame, "%.3f to %.3f ms; %s", (double)shortest / 1e6,
			(double)longest / 1e6,
			a->o->timeout == 0 ? "the timeout is 0, never"
					   : "the timeout is not given");
		return;
	}
	nominal = (uint64_t)TIMEOUT_UNIT_NS << a->o->timeout;
	if (longest < nominal - nominal / 50)
		an_say(a, f, AN_TIMEOUT, an_timed(a, sees && !hidden ? AN_FAIL : AN_UNKNOWN, from),
			r->last_frame, p->frame,
			"PSN %06x again after %.3f ms without a reason seen; the timeout is %.3f ms",
			r->psn, (double)longest / 1e6, (double)nominal / 1e6);
	else if (shortest > nominal * 4 + nominal / 50)
		an_say(a, f, AN_TIMEOUT, an_timed(a, sees ? AN_FAIL : AN_UNKNOWN, from),
			r->last_frame, p->frame,
			"PSN %06x again only after %.3f ms; the timeout is %.3f ms", r->psn,
			(double)shortest / 1e6, (double)nominal / 1e6);
	else
		an_say(a, f, AN_TIMEOUT, AN_PASS, r->last_frame, p->frame, "%.3f to %.3f ms",
			(double)shortest / 1e6, (double)longest / 1e6);
}

/* Whether una belongs to a READ or an atomic, of which a response may have been lost unseen. */
static bool
waits_for_response(struct an_stream *s)
{
	const struct an_rec *r = an_stream_find(s, s->una);

	return r != NULL &&
		(karst_opcode_flags(r->opcode) & (KARST_OPF_READ | KARST_OPF_ATOMIC)) != 0;
}

/*
 * Checks that a round by timeout begins at the oldest PSN that is not acknowledged, as far as the
 * requester knows.
 */
static void
timeout_place(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	int32_t off = karst_psn_diff(p->ib->psn, s->una);

	if (off == 0)
		an_say(a, f, AN_GO_BACK, AN_PASS, p->frame, 0, "by timeout, at PSN %06x",
			p->ib->psn);
	else if (off < 0)
		an_say(a, f, AN_GO_BACK, AN_UNKNOWN, p->frame, 0,
			"by timeout, at PSN %06x; %06x is the oldest that is not acknowledged, but the "
			"acknowledgement may have been lost",
			p->ib->psn, s->una);
	else
		an_say(a, f, AN_GO_BACK,
			an_sees_sent(a, f) && !waits_for_response(s) ? AN_FAIL : AN_UNKNOWN,
			p->frame, 0, "by timeout, at PSN %06x, though %06x is not acknowledged",
			p->ib->psn, s->una);
}

/* --- rounds --- */

static void
after_nak(struct an *a, struct an_flow *f, const struct an_pkt *p, const struct an_rec *r)
{
	struct an_stream *s = &f->req;
	struct an_nak n = s->nak;
	int32_t off = karst_psn_diff(p->ib->psn, n.psn);
	uint64_t nominal = a->o->timeout > 0 ? (uint64_t)TIMEOUT_UNIT_NS << a->o->timeout : 0;
	uint64_t longest = r != NULL ? p->ns - r->last_ns : UINT64_MAX;

	s->nak.valid = s->gap.valid = false;
	if (off == 0) {
		an_measure(a, AN_LAT_REACTION, p->ns - n.ns);
		an_pass(a, f, AN_GO_BACK, p->frame);
	} else if (off > 0) {
		an_say(a, f, AN_GO_BACK, an_sees_sent(a, f) ? AN_FAIL : AN_UNKNOWN, n.frame,
			p->frame, "goes on at PSN %06x, the NAK said %06x", p->ib->psn, n.psn);
	} else if (nominal != 0 && longest < nominal - nominal / 50 && !n.second) {
		an_say(a, f, AN_GO_BACK,
			an_timed(a, an_sees_sent(a, f) ? AN_FAIL : AN_UNKNOWN, r->last_frame),
			n.frame, p->frame,
			"goes on at PSN %06x, the NAK said %06x, and no timeout has passed",
			p->ib->psn, n.psn);
	} else {
		an_say(a, f, AN_GO_BACK, AN_UNKNOWN, n.frame, p->frame,
			"goes on at PSN %06x, the NAK said %06x; a timeout may have crossed it",
			p->ib->psn, n.psn);
	}
}

/* Whether the PSN that the NAK asks for has been acknowledged since: the packet was only late. */
static bool
overtaken(const struct an_stream *s)
{
	return karst_psn_diff(s->una, s->nak.psn) > 0;
}

/* Handles the first packet of a round. */
static void
round_begins(struct an *a, struct an_flow *f, struct an_rec *r, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;

	if (s->rnr.valid) {
		after_rnr(a, f, p, r);
	} else if (s->nak.valid && (p->ib->psn == s->nak.psn || !overtaken(s))) {
		after_nak(a, f, p, r);
	} else if (s->gap.valid && (p->flags & KARST_OPF_READ) != 0) {
		if (p->ib->psn == s->gap.psn)
			an_measure(a, AN_LAT_READ_GAP, p->ns - s->gap.ns);
		s->gap.valid = false;
	} else if (s->gap.valid || s->nak_unsure != 0) {
		s->gap.valid = false; /* one of several possible reasons */
		s->nak_unsure = 0;
	} else if (f->peer == NULL) {
		an_say(a, f, AN_TIMEOUT, AN_UNKNOWN, p->frame, 0,
			"the answers to this flow are not known, so neither is the reason");
	} else if (r != NULL) {
		s->nak.valid = false;
		if (!an_sees_sent(a, f) && karst_psn_diff(p->ib->psn, s->una) > 0) {
			an_say(a, f, AN_TIMEOUT, AN_UNKNOWN, p->frame, 0,
				"the beginning of what is sent again may have been lost before the place "
				"of the capture");
			return;
		}
		timeout_place(a, f, p);
		timeout(a, f, p, r);
	}
}

/* Checks a READ that is sent again, from its first PSN or from a later one. */
static void
read_again(struct an *a, struct an_flow *f, struct an_rec *r, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	uint32_t k = karst_psn_add(p->ib->psn, -r->psn);
	uint64_t moved = (uint64_t)k * s->mtu;

	if (k != 0 && s->mtu == 0)
		an_say(a, f, AN_READ_RETRY, AN_UNKNOWN, r->first_frame, p->frame,
			"the path MTU has not shown");
	else if (p->ib->va != r->va + moved || p->ib->dma_len != r->len - moved ||
		p->ib->rkey != r->rkey)
		an_say(a, f, AN_READ_RETRY, AN_FAIL, r->first_frame, p->frame,
			"PSN moved by %u: address by %lld, length by %lld, MTU %u", k,
			(long long)(p->ib->va - r->va),
			(long long)p->ib->dma_len - (long long)r->len, s->mtu);
	else
		an_pass(a, f, AN_READ_RETRY, p->frame);
}

static bool
is_round(const struct an_stream *s, const struct an_rec *r, uint32_t psn)
{
	int32_t forward = karst_psn_diff(psn, s->last_end);

	if (forward == 0)
		return false;
	/* continues after what had been sent before an early retransmission */
	if (s->early.valid && psn == s->early.end && karst_psn_diff(psn, s->early.next) >= 0)
		return false;
	/* skips what has been acknowledged in the meantime */
	if (forward > 0 && s->una_known && karst_psn_diff(psn, s->una) <= 0)
		return false;
	/*
	 * Without a record or a NAK, the packet fills a gap without a request: the packets were
	 * reordered before the place of the capture.
	 */
	return r != NULL || s->nak.valid || s->rnr.valid;
}

void
an_again(struct an *a, struct an_flow *f, struct an_rec *r, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;

	if (is_round(s, r, p->ib->psn))
		round_begins(a, f, r, p);
	else if (s->nak.valid && s->nak.psn == p->ib->psn)
		s->nak.valid = false; /* the packet was sent without regard to the NAK */
	else if (s->early.valid)
		after_early(a, f, p);
	s->again_frame = p->frame;
	if (r == NULL || r->damaged)
		return;
	if ((p->flags & KARST_OPF_READ) != 0 &&
		(karst_opcode_flags(r->opcode) & KARST_OPF_READ) != 0)
		read_again(a, f, r, p);
	else if (r->psn != p->ib->psn || r->opcode != p->ib->opcode)
		an_say(a, f, AN_RESEND, AN_FAIL, r->first_frame, p->frame,
			"PSN %06x was %s, is now %s", p->ib->psn, karst_opcode_symbol(r->opcode),
			karst_opcode_symbol(p->ib->opcode));
	else if (r->print != an_print(p))
		an_say(a, f, AN_RESEND, p->fate != 0 || r->maybe ? AN_UNKNOWN : AN_FAIL,
			r->first_frame, p->frame, "PSN %06x: other content than the first time",
			p->ib->psn);
	else
		an_pass(a, f, AN_RESEND, p->frame);
}
