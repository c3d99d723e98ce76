/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A flow of which all is acknowledged pauses, and goes on with a PSN somewhat later than the next
 * one.  Either packets are missing, or a queue pair was made anew with the number of the old one.
 *
 * The first response to what follows tells.  A new responder counts messages from 0 (R10), and the
 * old one goes on from where it was, and counts what is missing as well; and only the old one asks
 * for the PSN that was expected.  If both fit, or neither does, or nothing is answered, it cannot
 * be told.  Then nothing fails, and the flow is judged as if it began there.
 */
#include "an_priv.h"

/* Shorter pauses are too short for the messages between two ends that make queue pairs. */
#define PAUSE_NS 50000

static void
left_out(struct an *a, struct an_flow *f, enum an_verdict verdict, const char *why)
{
	const struct an_jump *j = &f->req.jump;
	uint32_t missing = karst_psn_add(j->psn, -j->expected);

	an_say(a, f, AN_PSN, verdict, j->frame, 0,
		"PSN %06x where %06x was to come: %u PSN%s left out%s", j->psn, j->expected,
		missing, missing == 1 ? " is" : "s are", why);
}

void
an_jump(struct an *a, struct an_flow *f, const struct an_pkt *p, bool sees)
{
	struct an_stream *s = &f->req;
	bool quiet = s->una_known && s->una == s->next && s->front == s->next &&
		p->ns - s->event_ns >= PAUSE_NS;

	an_jump_finish(a, f);
	s->jump = (struct an_jump){.valid = quiet && p->flags & KARST_OPF_START && !p->late,
		.sees = sees,
		.psn = p->ib->psn,
		.expected = s->next,
		.cum = s->cum,
		.mtu = s->mtu,
		.frame = p->frame};
	if (s->jump.valid)
		s->mtu = 0; /* a new queue pair may have another one */
	else
		left_out(a, f, sees ? AN_FAIL : AN_UNKNOWN,
			sees ? "" : " (or lost before the place of the capture)");
}

/* The queue pair is the one before: packets are missing. */
static void
is_old(struct an *a, struct an_flow *f)
{
	struct an_jump *j = &f->req.jump;

	left_out(a, f, j->sees ? AN_FAIL : AN_UNKNOWN,
		j->sees ? "" : " (or lost before the place of the capture)");
	j->valid = false;
	if (j->mtu != 0)
		an_set_mtu(a, f, j->mtu);
}

static void
is_new(struct an *a, struct an_flow *f)
{
	struct an_jump *j = &f->req.jump;

	an_pass(a, f, AN_PSN, j->frame);
	an_stream_restart_at(&f->req, j->psn);
	j->valid = false;
}

static void
is_open(struct an *a, struct an_flow *f)
{
	struct an_jump *j = &f->req.jump;

	left_out(a, f, AN_UNKNOWN, ", or a new connection begins");
	an_stream_restart_at(&f->req, j->psn);
	j->valid = false;
}

/* Whether @n is one of @least to @most. */
static bool
within(uint32_t n, uint32_t least, uint32_t most)
{
	return karst_psn_diff(n, least) >= 0 && karst_psn_diff(n, most) <= 0;
}

/* Which queue pair's MSN @p has. */
static void
by_msn(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	const struct an_jump *j = &s->jump;
	uint32_t msn = karst_aeth_msn(p->ib->aeth), least = 0, most = 0, i;
	bool ack = (karst_aeth_syndrome(p->ib->aeth) & KARST_AETH_TYPE_MASK) == KARST_AETH_ACK &&
		(p->flags & (KARST_OPF_READ | KARST_OPF_ATOMIC)) == 0;
	bool old, new;

	for (i = an_stream_lower(s, j->psn); i < s->n; i++) {
		const struct an_rec *r = an_rec_at(s, i);
		bool end = (karst_opcode_flags(r->opcode) & KARST_OPF_END) != 0;

		most += end;
		least += end && karst_psn_diff(r->psn, p->ib->psn) < ack;
	}
	new = within(msn, least, most);
	old = !s->msn_known || f->tainted ||
		within(msn, karst_psn_add(s->msn_lo, j->cum + least),
			karst_psn_add(
				s->msn_hi, j->cum + most + karst_psn_add(j->psn, -j->expected)));
	if (new == old)
		is_open(a, f);
	else if (new)
		is_new(a, f);
	else
		is_old(a, f);
}

void
an_jump_answered(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	const struct an_jump *j = &f->req.jump;
	bool aeth = (p->flags & KARST_OPF_AETH) != 0;

	if (!j->valid || p->fate & AN_LOST)
		return;
	if (aeth && karst_aeth_syndrome(p->ib->aeth) == (KARST_AETH_NAK | KARST_NAK_PSN_SEQ) &&
		karst_psn_diff(p->ib->psn, j->expected) >= 0 &&
		karst_psn_diff(p->ib->psn, j->psn) < 0)
		is_old(a, f);
	else if (aeth && karst_psn_diff(p->ib->psn, j->psn) >= 0 &&
		karst_psn_diff(p->ib->psn, f->req.next) < 0)
		by_msn(a, f, p);
}

void
an_jump_older(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	const struct an_jump *j = &f->req.jump;

	/* one from before the jump may be a copy of what was acknowledged */
	if (j->valid && karst_psn_diff(p->ib->psn, j->expected) >= 0 &&
		karst_psn_diff(p->ib->psn, j->psn) < 0)
		is_old(a, f);
}

void
an_jump_finish(struct an *a, struct an_flow *f)
{
	if (f->req.jump.valid)
		is_open(a, f);
}
