/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Find frames that are in the capture twice: duplicated by the network, captured by a mirror port
 * that copies both directions, or captured when they enter a switch and when they leave it.
 *
 * A copy is identical to one of the last frames of its flow, including the ICRC, and follows it
 * within DOUBLED_NS; other frames may be in between.  A retransmission may also be identical and as
 * close.  So a frame is not a copy if there was a reason to send it again.
 */
#include "an_priv.h"

#define DOUBLED_NS 50000

static bool
is_asked_for(const struct an_nak *n, uint32_t psn)
{
	return n->valid && n->psn == psn;
}

/*
 * Whether a requester that has sent @p before may send it again now: it was asked to, or @p follows
 * what it sent again before.  If it was asked for another packet, this may be a wrong
 * retransmission, so it is not taken as a copy, unless the capture has shown copies already.
 */
static bool
may_come_again(const struct an_flow *f, const struct an_pkt *p, bool newest)
{
	const struct an_stream *s = &f->req;
	bool copies = f->doubled != 0 || (f->peer != NULL && f->peer->doubled != 0);

	if (is_asked_for(&s->nak, p->ib->psn) || is_asked_for(&s->rnr, p->ib->psn) ||
		is_asked_for(&s->gap, p->ib->psn))
		return true;
	return !newest &&
		(p->ib->psn == s->last_end ||
			((s->nak.valid || s->rnr.valid || s->gap.valid) && !copies));
}

static bool
is_copy(const struct an *a, const struct an_flow *f, const struct an_recent *r,
	const struct an_pkt *p, bool newest)
{
	if (r->frame == 0 || r->psn != p->ib->psn || r->opcode != p->ib->opcode || r->lost ||
		p->ns - r->ns >= DOUBLED_NS)
		return false;
	if (!newest && r->frame < a->unsteady)
		return false; /* the time in between is not known */
	if (p->flags & KARST_OPF_REQUEST)
		return !may_come_again(f, p, newest);
	if (p->flags & KARST_OPF_CNP)
		return newest; /* all CNPs of a flow are identical */
	return newest || f->peer == NULL || f->peer->req.again_frame < r->frame;
}

/*
 * Whether any of the latest frames has this ICRC.  This is asked for each packet, and is nearly
 * always false, so there is no branch in the loop, and the compiler can compare several at once.
 */
static bool
any_has_icrc(const struct an_flow *f, uint32_t icrc)
{
	unsigned int i, same = 0;

	for (i = 0; i < AN_RECENT; i++)
		same |= f->recent_icrc[i] == icrc;
	return same != 0;
}

uint64_t
an_copy_of(const struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	unsigned int i, last = (f->recent_at - 1u) % AN_RECENT;

	if (p->cut)
		return 0;
	if (any_has_icrc(f, p->j->icrc))
		for (i = 0; i < AN_RECENT; i++)
			if (f->recent_icrc[i] == p->j->icrc &&
				is_copy(a, f, &f->recent[i], p, i == last))
				return f->recent[i].frame;
	i = f->recent_at++ % AN_RECENT;
	f->recent_icrc[i] = p->j->icrc;
	f->recent[i] = (struct an_recent){
		.psn = p->ib->psn,
		.opcode = p->ib->opcode,
		.lost = (p->fate & (AN_LOST | AN_MAYBE)) != 0,
		.ns = p->ns,
		.frame = p->frame,
	};
	return 0;
}
