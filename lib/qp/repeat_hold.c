/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Selective repeat at the responder.  Requests ahead of the expected PSN are held, as frames.  When
 * their PSN is the expected one, the responder executes them as if they had arrived only then (X5).
 * So no part of a message takes effect before everything that precedes it, and each rule of the
 * responder applies unchanged.
 *
 * While something is held, r->wait is not KARST_WAIT_NONE, so the usual case needs no extra test.
 * A bit that was reported is never withdrawn: a frame that could not be executed, because there is
 * no receive request for it, goes back to its place (X4, X6).
 *
 * While a frame is executed, only the loop refers to it.  It is removed from held[] first, so that
 * a queue pair that fails can free what is held.  It may be parked for a copy, to which it then
 * belongs.
 */
#include "repeat.h"

/* Number of frames held in a row after which a SACK is sent (X7). */
#define SAY_EVERY 8u

static struct karst_pkt **
held_at(struct karst_repeat *p, uint32_t psn)
{
	return &p->held[psn & (p->window - 1)];
}

static void
held_free(struct karst_core *core, struct karst_repeat *p, uint32_t psn)
{
	struct karst_pkt **at = held_at(p, psn);

	if (*at == NULL)
		return;
	core->hold_ops->release(core, *at);
	*at = NULL;
	p->nheld--;
	core->nheld--;
}

/* X4: whether @psn was dropped for lack of room, and is still missing. */
static bool
was_dropped(const struct karst_repeat *p, uint32_t psn)
{
	uint32_t at = psn & (p->window - 1);

	return (p->dropped[at / 8] >> at % 8 & 1) != 0;
}

static void
set_dropped(struct karst_repeat *p, uint32_t psn, bool dropped)
{
	uint32_t at = psn & (p->window - 1);

	if (was_dropped(p, psn) == dropped)
		return;
	p->dropped[at / 8] ^= (uint8_t)(1u << at % 8);
	if (dropped)
		p->ndropped++;
	else
		p->ndropped--;
}

/* X7: whether to send a SACK that the peer has not asked for: for the first frame after a gap, and
 * for each SAY_EVERY frames. */
static bool
is_news(struct karst_repeat *p, const struct karst_responder *r, const struct karst_pkt *pkt)
{
	bool gap = r->wait == KARST_WAIT_NONE;

	if (p->nheld == 0) {
		p->top_psn = pkt->psn;
	} else if (karst_psn_before(p->top_psn, pkt->psn)) {
		gap |= karst_psn_add(p->top_psn, 1) != pkt->psn;
		p->top_psn = pkt->psn;
	}
	return gap || ++p->unsaid >= SAY_EVERY;
}

void
karst_repeat_ahead(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t ahead)
{
	struct karst_repeat *p = qp->repeat;
	struct karst_responder *r = &qp->rsp;
	bool asks = (pkt->flags & KARST_PKT_ACKREQ) != 0;
	struct karst_pkt *kept = NULL;

	if (ahead < p->window && *held_at(p, pkt->psn) != NULL) {
		karst_drop_pkt(core, pkt, KARST_DROP_DUPLICATE);
	} else {
		/* no more than what is left for others; a packet that waited for a copy belongs to
		 * that copy */
		if (ahead < p->window && pkt->pay_len <= karst_qp_mtu(qp) &&
			p->nheld < core->held_max - core->nheld && !core->copy_kept)
			kept = core->hold_ops->hold(core, pkt);
		if (kept == NULL) {
			/* report it to the peer, once until the expected PSN has arrived */
			asks |= !p->lacks;
			p->lacks = true;
			if (ahead < p->window)
				set_dropped(p, pkt->psn, true);
			karst_drop_pkt(core, pkt, KARST_DROP_HELD_FULL);
		} else {
			asks |= is_news(p, r, pkt);
			set_dropped(p, pkt->psn, false);
			*held_at(p, pkt->psn) = kept;
			p->fresh = kept == pkt ? pkt : NULL;
			p->nheld++;
			core->nheld++;
			karst_count(&core->counters, KARST_CTR_REQUESTS_HELD);
		}
		if (r->wait == KARST_WAIT_NONE)
			r->wait = KARST_WAIT_HELD;
	}
	/* an RNR NAK is enough unless there is something to report */
	if (asks && karst_repeat_says(qp))
		karst_responder_owe_ack(core, qp);
	/* no copy was free for the expected one, which the peer does not send again: perhaps one is
	 * free now */
	if (karst_unlikely(*held_at(p, r->epsn) != NULL) && r->wait == KARST_WAIT_HELD)
		karst_repeat_drain(core, qp);
}

void
karst_repeat_missed(struct karst_core_qp *qp, uint32_t psn)
{
	struct karst_repeat *p = qp->repeat;

	if (karst_psn_distance(psn, qp->rsp.epsn) < p->window && *held_at(p, psn) == NULL)
		set_dropped(p, psn, true);
}

void
karst_repeat_lacks(struct karst_core *core, struct karst_core_qp *qp, bool expected)
{
	if (qp->repeat->lacks && !expected)
		return;
	qp->repeat->lacks = true;
	/* an RNR NAK that has been sent has had its effect: the retry was dropped */
	if (qp->rsp.wait == KARST_WAIT_NONE || (expected && qp->rsp.owed != KARST_OWED_NAK))
		qp->rsp.wait = KARST_WAIT_HELD;
	if (karst_repeat_says(qp))
		karst_responder_owe_ack(core, qp);
}

/* The expected PSN has moved on from @was: frees what is held for earlier PSNs, and clears the
 * records of drops there. */
static void
forget_before(struct karst_core *core, struct karst_core_qp *qp, uint32_t was)
{
	struct karst_repeat *p = qp->repeat;
	uint32_t n = karst_min_u32(karst_psn_distance(qp->rsp.epsn, was), p->window);

	for (; (p->nheld | p->ndropped) != 0 && n > 0; n--, was = karst_psn_add(was, 1)) {
		held_free(core, p, was);
		set_dropped(p, was, false);
	}
}

/* X4: the expected PSN has reached one that was dropped.  The report at the time of the drop is not
 * enough: the PSN expected then may have arrived without it, and after the last dropped packet
 * there may be none that shows the gap. */
static void
tell_dropped(struct karst_core *core, struct karst_core_qp *qp)
{
	if (qp->repeat->ndropped == 0 || !was_dropped(qp->repeat, qp->rsp.epsn))
		return;
	qp->repeat->lacks = true;
	if (qp->rsp.wait == KARST_WAIT_NONE)
		qp->rsp.wait = KARST_WAIT_HELD;
	if (karst_repeat_says(qp))
		karst_responder_owe_ack(core, qp);
}

static inline bool
parked_is(const struct karst_core_qp *qp, const struct karst_pkt *pkt)
{
	return qp->copy[KARST_COPY_RX] != NULL && qp->copy[KARST_COPY_RX]->pkt == pkt;
}

/* Executes the frame held for the expected PSN.  @return false: there is none, or not possible
 * now. */
static bool
drain_one(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_repeat *p = qp->repeat;
	uint32_t was = qp->rsp.epsn;
	struct karst_pkt **at = held_at(p, was), *pkt = *at;

	if (pkt == NULL)
		return false;
	*at = NULL;
	p->nheld--;
	core->nheld--;
	karst_responder_execute(core, qp, pkt, karst_opcode_flags(pkt->opcode));
	if (parked_is(qp, pkt))
		return false;
	if (karst_qp_may_receive(qp) && qp->rsp.epsn == was) {
		/* not ready: the bit stays set (X6) */
		*at = pkt;
		p->nheld++;
		core->nheld++;
		return false;
	}
	core->hold_ops->release(core, pkt);
	if (!karst_qp_may_receive(qp))
		return false;
	forget_before(core, qp, was);
	return true;
}

void
karst_repeat_drain(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_repeat *p = qp->repeat;
	bool kept = core->copy_kept;

	/* these were not parked before */
	core->copy_kept = false;
	while (p->nheld != 0 && karst_qp_may_receive(qp) && qp->copy[KARST_COPY_RX] == NULL &&
		drain_one(core, qp))
		;
	core->copy_kept = kept;
	if (p->nheld != 0 && qp->rsp.wait == KARST_WAIT_NONE)
		qp->rsp.wait = KARST_WAIT_HELD;
	else if (p->nheld == 0 && !p->lacks && qp->rsp.wait == KARST_WAIT_HELD)
		qp->rsp.wait = KARST_WAIT_NONE;
	if (karst_qp_may_receive(qp))
		tell_dropped(core, qp);
}

void
karst_repeat_expected(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	uint32_t was = qp->rsp.epsn;
	bool again = core->copy != NULL, held = qp->rsp.wait == KARST_WAIT_HELD;

	karst_responder_end_wait(core, qp);
	karst_responder_execute(core, qp, pkt, karst_opcode_flags(pkt->opcode));
	if (!karst_qp_may_receive(qp))
		return;
	if (qp->rsp.epsn != was) {
		qp->repeat->lacks = false;
		forget_before(core, qp, was);
	}
	/* a parked request has not been executed yet, so what has been dropped behind it is still
	 * to be reported: karst_repeat_drain() follows (copy.c) */
	if (qp->rsp.epsn != was && !again)
		karst_repeat_drain(core, qp);
	else if ((qp->repeat->nheld != 0 || (held && qp->rsp.epsn == was)) &&
		qp->rsp.wait == KARST_WAIT_NONE)
		qp->rsp.wait = KARST_WAIT_HELD;
}

void
karst_repeat_drop_held(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_repeat *p = qp->repeat;
	uint32_t i;

	for (i = 0; p->nheld != 0 && i < p->window; i++)
		held_free(core, p, i);
	p->nparts = 0;
}

/* --- answers to duplicates --- */

void
karst_repeat_answer(struct karst_core *core, struct karst_core_qp *qp, uint32_t which, uint32_t psn,
	uint32_t end)
{
	const struct karst_responder *r = &qp->rsp;
	struct karst_repeat *p = qp->repeat;
	uint32_t last = end, i;

	/* what was not answered yet is answered anyway */
	if (which == r->rsp_cur && karst_psn_before(r->rsp_psn, end))
		end = r->rsp_psn;
	if ((int32_t)(which - r->rsp_cur) > 0 || !karst_psn_before(psn, end))
		return;
	for (i = 0; i < p->nparts; i++) {
		const struct karst_repeat_part *x = &p->parts[(p->part + i) % KARST_REPEAT_PARTS];

		if (x->which == which && !karst_psn_before(psn, x->psn) &&
			!karst_psn_before(x->end, end))
			return;
	}
	/* a peer that needs more asks again when it has these */
	if (p->nparts == KARST_REPEAT_PARTS)
		return;
	p->parts[(p->part + p->nparts++) % KARST_REPEAT_PARTS] = (struct karst_repeat_part){
		.which = which, .beg = psn, .psn = psn, .end = end, .last = last};
	karst_core_activate(core, qp);
}

struct karst_repeat_part *
karst_repeat_part(struct karst_core_qp *qp)
{
	const struct karst_responder *r = &qp->rsp;
	struct karst_repeat *p = qp->repeat;

	for (; p->nparts != 0; p->nparts--, p->part++) {
		struct karst_repeat_part *x = &p->parts[p->part % KARST_REPEAT_PARTS];

		/* it may have been replaced by a newer entry (R6) */
		if (x->psn != x->end && r->rsp_added - x->which <= r->rsp_saved)
			return x;
	}
	return NULL;
}

uint8_t *
karst_repeat_put_bitmap(struct karst_core_qp *qp, uint8_t *to)
{
	struct karst_repeat *p = qp->repeat;
	uint32_t epsn = qp->rsp.epsn, n = 1, i;

	if (p->nheld != 0)
		n = karst_psn_distance(p->top_psn, epsn) + 1;
	n = karst_min_u32((n + 31) / 32 * 32, p->window);
	memset(to, 0, n / 8);
	/* the expected PSN may be held as well if there was no receive request for it; its bit has
	 * another meaning */
	to[0] = p->lacks;
	for (i = 1; i < n; i++)
		if (*held_at(p, epsn + i) != NULL)
			to[i / 8] |= (uint8_t)(1u << i % 8);
	if (karst_mutant(KARST_MUTANT_BIT_LIES))
		to[0] |= 2;
	p->unsaid = 0;
	return to + n / 8;
}
