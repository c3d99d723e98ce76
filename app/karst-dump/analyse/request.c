/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Check requests: new ones, gaps, and retransmissions.
 *
 * How many PSNs a READ takes depends on the path MTU, which only First and Middle packets show.
 * Until then the span of a READ is a guess, which the PSN of the next request corrects.  The guess
 * ends with a First or Middle packet of either direction, or with the last response to the READ.
 * The packets of a divided WRITE (Q13) do not end it: they look the same as WRITEs of a program to
 * consecutive addresses, which may be shorter than the path MTU.
 */
#include "an_priv.h"
#include "karst_crc.h"

#define RESTART_REACH (1 << 16)

uint32_t
an_print(const struct an_pkt *p)
{
	const struct karst_ib_hdrs *ib = p->ib;
	uint64_t ext[4] = {
		ib->va, (uint64_t)ib->rkey << 32 | ib->dma_len, ib->swap_add, ib->compare};
	uint32_t crc = karst_crc_ops()->update(KARST_CRC32_INIT, ib->pay, ib->pay_len);

	ext[0] ^= (uint64_t)ib->imm << 32 | ib->inv_rkey;
	return karst_crc_ops()->update(crc, ext, sizeof(ext));
}

static uint32_t
read_span(const struct an_stream *s, uint32_t len, bool *guessed)
{
	*guessed = s->mtu == 0 && len > 256;
	if (len <= 256)
		return 1;
	return s->mtu == 0 ? 1 : (len + s->mtu - 1) / s->mtu;
}

bool
an_is_mtu(uint32_t len)
{
	return len >= 256 && len <= 4096 && (len & (len - 1)) == 0;
}

bool
an_read_may_take(uint32_t len, uint32_t span)
{
	uint32_t mtu;

	for (mtu = 256; mtu <= 4096; mtu *= 2)
		if ((len + mtu - 1) / mtu == span)
			return true;
	return false;
}

void
an_set_span(struct an *a, struct an_flow *f, uint32_t i, uint32_t span)
{
	struct an_stream *s = &f->req;
	struct an_rec *r = an_rec_at(s, i), *then = i + 1 < s->n ? r + 1 : NULL;
	uint32_t was = karst_psn_add(r->psn, r->span), end = karst_psn_add(r->psn, span);
	bool sees = an_sees_sent(a, f) && !r->damaged;

	r->guessed = false;
	r->span = span;
	if (then == NULL && s->next == was)
		s->next = s->last_end = end;
	if (s->front == was)
		s->front = end;
	if (then != NULL && then->psn == was && karst_psn_diff(was, end) > 0 &&
		karst_psn_diff(r->psn, s->una) >= 0)
		an_say(a, f, AN_PSN, sees ? AN_FAIL : AN_UNKNOWN, r->first_frame, then->first_frame,
			"PSN %06x where %06x was to come, after a READ of %u PSNs%s", was, end,
			span, sees ? "" : " (or lost before the place of the capture)");
}

void
an_set_mtu(struct an *a, struct an_flow *f, uint32_t mtu)
{
	struct an_stream *s = &f->req;
	uint32_t i;

	s->mtu = mtu;
	for (i = 0; i < s->n; i++)
		if (an_rec_at(s, i)->guessed)
			an_set_span(a, f, i, (an_rec_at(s, i)->len + mtu - 1) / mtu);
	an_stream_advance(s);
}

/* A new First or Middle packet shows the path MTU, and so where it was to come after READs. */
static void
shows_mtu(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	const struct an_stream *s = &f->req;

	if (s->mtu == 0 && p->flags & (KARST_OPF_SEND | KARST_OPF_WRITE) &&
		!(p->flags & KARST_OPF_END) && an_is_mtu(p->ib->pay_len) &&
		p->j->icrc_is != JUDGE_CRC_BAD && karst_psn_diff(p->ib->psn, s->next) >= 0 &&
		karst_psn_diff(p->ib->psn, s->next) <= RESTART_REACH)
		an_set_mtu(a, f, p->ib->pay_len);
}

/*
 * Corrects the guessed span of the last READ: the next request has a PSN that is @by larger than
 * expected.  @return whether this was possible.
 */
static bool
span_shown(struct an_stream *s, uint32_t by)
{
	struct an_rec *r = s->n != 0 ? an_rec_at(s, s->n - 1) : NULL;

	if (r == NULL || !r->guessed || !an_read_may_take(r->len, r->span + by))
		return false;
	r->span += by; /* remains a guess: packets in between may also be missing */
	if (s->front == s->next)
		s->front = karst_psn_add(s->front, by);
	s->next = karst_psn_add(s->next, by);
	return true;
}

static void
note_sent(struct an_rec *r, const struct an_pkt *p)
{
	r->tx += r->tx != UINT8_MAX;
	r->last_lost = (p->fate & AN_LOST) != 0;
	if (r->tx == 1)
		r->first_lost = r->last_lost;
	r->lost += (p->fate & AN_LOST) != 0 && r->lost != UINT8_MAX;
	r->maybe |= (p->fate & (AN_MAYBE | AN_DUP)) != 0 || p->j->icrc_is == JUDGE_CRC_BAD;
	r->before_frame = r->last_frame;
	r->last_frame = p->frame;
	r->last_ns = p->ns;
}

/* Takes the fields of the request. */
static void
take_fields(struct an_stream *s, struct an_rec *r, const struct an_pkt *p)
{
	r->opcode = p->ib->opcode;
	r->print = an_print(p);
	r->va = p->ib->va;
	r->rkey = p->ib->rkey;
	r->len = p->ib->dma_len;
	r->resp_next = p->ib->psn;
	r->span = 1;
	r->guessed = false;
	r->damaged = p->j->icrc_is == JUDGE_CRC_BAD;
	s->damaged |= r->damaged;
	if ((p->flags & KARST_OPF_READ) != 0)
		r->span = read_span(s, r->len, &r->guessed);
}

static struct an_rec *
remember(struct an_flow *f, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	struct an_rec *r = an_stream_insert(s, p->ib->psn, f->peer != NULL);

	if (r == NULL)
		return NULL;
	r->first_frame = p->frame;
	r->first_ns = p->ns;
	take_fields(s, r, p);
	note_sent(r, p);
	return r;
}

/* Handles a request that was damaged before and is intact now. */
static void
made_good(struct an_stream *s, struct an_rec *r, const struct an_pkt *p)
{
	bool last = s->next == karst_psn_add(r->psn, r->span);

	if (p->ib->psn != r->psn)
		return;
	take_fields(s, r, p);
	if (last)
		s->next = karst_psn_add(r->psn, r->span);
	an_stream_advance(s);
}

/* Whether the number of PSNs of the newest request is not known. */
static bool
end_unknown(struct an_stream *s)
{
	return s->n != 0 && an_rec_at(s, s->n - 1)->damaged;
}

/* Handles a request with a PSN after all that were seen. */
static void
fresh(struct an *a, struct an_flow *f, const struct an_pkt *p, uint32_t ahead)
{
	struct an_stream *s = &f->req;
	struct an_rec *r;

	if (p->late && s->unseen)
		an_flow_misordered(f);
	s->anew = 0;
	if (ahead != 0 && span_shown(s, ahead))
		ahead = 0;
	if (ahead != 0)
		an_jump(a, f, p, an_sees_sent(a, f) && !end_unknown(s));
	else if (s->sent != 0)
		an_pass(a, f, AN_PSN, p->frame);
	if (p->j->icrc_is != JUDGE_CRC_BAD)
		an_message(a, f, p, ahead == 0);
	else
		s->msg = AN_MSG_UNKNOWN;
	r = remember(f, p);
	s->sent++;
	if (r == NULL)
		return;
	s->next = karst_psn_add(r->psn, r->span);
	an_stream_advance(s);
	an_plot(a, s, AN_PT_NEW, r->psn, p->ns);
}

static void
begin(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;

	an_jump_finish(a, f);
	an_stream_restart(s);
	s->begun = true;
	s->next = s->front = s->una = s->last_end = p->ib->psn;
	s->msg = p->flags & KARST_OPF_START ? AN_MSG_NONE : AN_MSG_UNKNOWN;
}

/*
 * Whether a PSN that was acknowledged now has other contents.  Then a new queue pair has the number
 * of an old one, and its PSNs begin where those of the old one began.  The first packets of both
 * may be identical.  So later ones count as well if nothing was unacknowledged when an old PSN came
 * again (may_be_anew()).
 */
static bool
is_another(struct an_stream *s, const struct an_rec *r, const struct an_pkt *p)
{
	return r != NULL && r->psn == p->ib->psn && (p->flags & KARST_OPF_START || s->anew != 0) &&
		s->una_known && karst_psn_diff(r->psn, s->una) < 0 && p->fate == 0 && !p->cut &&
		!r->maybe && (r->opcode != p->ib->opcode || r->print != an_print(p));
}

/*
 * Whether @p is a retransmission that no requester sends, unless acknowledgements were lost after
 * the place of the capture.
 */
static bool
may_be_anew(const struct an_stream *s, const struct an_rec *r, const struct an_pkt *p)
{
	return r != NULL && r->psn == p->ib->psn && p->flags & KARST_OPF_START && s->una_known &&
		s->una == s->next && p->fate == 0 && !p->cut && !r->maybe;
}

/* Handles a request with a PSN before the next expected one. */
static void
older(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	struct an_rec *r;

	an_jump_older(a, f, p);
	r = an_stream_find(s, p->ib->psn);
	if (is_another(s, r, p)) {
		an_say(a, f, AN_RESEND, AN_UNKNOWN, r->first_frame, p->frame,
			"PSN %06x was acknowledged, and has other content now: a new connection?",
			p->ib->psn);
		begin(a, f, p);
		fresh(a, f, p, 0);
		return;
	}
	if (may_be_anew(s, r, p))
		s->anew = p->frame;
	s->again++;
	if (r == NULL && s->n != 0 && karst_psn_diff(p->ib->psn, an_rec_at(s, 0)->psn) < 0) {
		an_say(a, f, AN_RESEND, AN_UNKNOWN, p->frame, 0,
			"PSN %06x was sent before what is remembered of this flow", p->ib->psn);
		return;
	}
	an_plot(a, s, AN_PT_AGAIN, p->ib->psn, p->ns);
	an_again(a, f, r, p);
	if (r != NULL) {
		note_sent(r, p);
		if (r->damaged)
			made_good(s, r, p);
		return;
	}
	if (p->late)
		an_flow_misordered(f);
	remember(f, p);
	an_stream_advance(s);
}

void
an_request(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	int32_t ahead;
	struct an_rec *r;

	if (p->j->icrc_is == JUDGE_CRC_BAD && (!s->begun || p->ib->psn != s->next))
		return; /* its fields cannot be trusted, unless it has the expected PSN */
	if (!s->begun)
		begin(a, f, p);
	shows_mtu(a, f, p);
	ahead = karst_psn_diff(p->ib->psn, s->next);
	if (ahead > RESTART_REACH ||
		(ahead < -RESTART_REACH && an_stream_find(s, p->ib->psn) == NULL)) {
		begin(a, f, p); /* a new queue pair with the same number */
		ahead = 0;
	}
	if (ahead >= 0)
		fresh(a, f, p, (uint32_t)ahead);
	else if (f->transport == KARST_TRANSPORT_UC)
		an_say(a, f, AN_PSN, AN_UNKNOWN, p->frame, 0,
			"PSN %06x behind %06x: UC sends nothing again; in another order, or doubled",
			p->ib->psn, s->next);
	else
		older(a, f, p);
	r = an_stream_find(s, p->ib->psn);
	/* a READ that is sent again from a later PSN has the same last PSN as before */
	s->last_end = r != NULL ? karst_psn_add(r->psn, r->span) : karst_psn_add(p->ib->psn, 1);
	s->last_ns = s->event_ns = p->ns;
	if (p->fate & AN_DUP)
		s->again_frame = p->frame;
	s->asked += p->ib->ackreq;
	s->reads += (p->flags & KARST_OPF_READ) != 0;
	if (!f->on_unpaired && f->peer == NULL) {
		f->on_unpaired = true;
		f->unpaired_next = f->pair->unpaired;
		f->pair->unpaired = f;
	}
}
