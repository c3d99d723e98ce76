/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Plays the requests of a capture to a karst responder (RC, UC), and compares its answers with
 * those of the captured responder.
 *
 * Requests come one at a time, in the order in which they arrived; after each of them karst may
 * answer.  Both sequences of answers have to be the same: kind, PSN (P1, P3), syndrome (R1, R2, R8,
 * R9), MSN (R10), payload (R4), results of atomics (R5, R7) and all the other bits.  In addition:
 *
 *   memory        what an executed WRITE carried is there afterwards, a READ returns what the
 *                 captured one returned; atomic words start from the first captured value
 *   receives      one is posted when a message that needs one begins, unless the captured side
 *                 sent an RNR NAK, and it is too short where that side said so; its completion has
 *                 length, immediate, key and content of the message
 *   damage        is dropped for its ICRC (W7); a CE mark changes nothing (L5)
 *   the end       the queue pair is in Error if and only if the last answer was a fatal NAK (R13)
 *
 * If a side lost frames before the wire, the capture has only some answers: those must occur in
 * their order.  If it reordered them: the same answers in any order.
 */
#include <stdlib.h>

#include "karst_hdr.h"
#include "replay.h"

#define NAK_REM_OP 0x63u /* Linux's for a receive that is too short (L3) */

struct play {
	struct rp_report *r;
	const struct rp_stream *s;
	struct rp_bed *b;
	struct rp_regions regions;
	unsigned int next;    /* the next answer of the capture */
	uint32_t epsn;        /* what the responder expects, as far as is known */
	bool burst;           /* answers are compared when the captured ones came, not at once */
	bool *had;            /* reordered: which answers were seen */
	bool ended;           /* it is useless to continue */
	unsigned int unasked; /* duplicates that did not ask for an acknowledgement */
	uint32_t dropped;     /* frames that karst did not accept */
	/* the message in progress */
	uint32_t got;
	uint32_t total;
	uint64_t va;
	uint32_t rkey;
	uint32_t room;     /* of the receive */
	uint32_t msn_base; /* of a connection that is older than the capture */
	uint64_t *words;   /* atomic words that have their first value */
	unsigned int nwords;
};

/* --- before a request --- */

static bool
is_ack(const struct karst_ib_hdrs *ib)
{
	return ib->opcode == KARST_RC_ACK &&
		(ib->aeth >> 24 & KARST_AETH_TYPE_MASK) == KARST_AETH_ACK;
}

/* Whether it may be the acknowledgement of a duplicate without AckReq (L2). karst sends none. */
static bool
unasked_ack(const struct play *p, const struct karst_ib_hdrs *ib)
{
	return is_ack(ib) && karst_psn_before(ib->psn, p->epsn);
}

/* The next answer, without those that karst does not send; NULL: none. */
static const struct rp_frame *
upcoming(const struct play *p)
{
	unsigned int i, unasked = p->unasked;

	for (i = p->next; i < p->s->nanswers; i++) {
		if (unasked == 0 || !unasked_ack(p, &p->s->answers[i]->f.ib))
			return p->s->answers[i];
		unasked--;
	}
	return NULL;
}

/* The first answer with that PSN, from the next one on, or NULL. */
static const struct rp_frame *
answer_for(const struct play *p, uint32_t psn)
{
	unsigned int i;

	for (i = p->next; i < p->s->nanswers; i++) {
		if (p->s->answers[i]->f.ib.psn == psn)
			return p->s->answers[i];
	}
	return NULL;
}

static bool
is_rnr(const struct rp_frame *a)
{
	return a != NULL && a->f.ib.opcode == KARST_RC_ACK &&
		(a->f.ib.aeth >> 24 & 0x60) == KARST_AETH_RNR;
}

/* The length of the receive buffer, if the captured one was too short for the message at @f. */
static uint32_t
buffer_len(const struct play *p, unsigned int arrival, const struct rp_arrival *all, unsigned int n)
{
	const struct rp_frame *nak = upcoming(p);
	uint32_t len = 0;

	if (nak == NULL || nak->f.ib.opcode != KARST_RC_ACK || nak->f.ib.aeth >> 24 != NAK_REM_OP)
		return RP_RECV_LEN;
	/* all except the last byte of the packet that was refused */
	for (; arrival < n; arrival++) {
		const struct rp_frame *f = all[arrival].frame;

		len += f->f.ib.pay_len;
		if (f->f.ib.psn == nak->f.ib.psn)
			return len - 1;
		if (f->opf & KARST_OPF_END)
			break;
	}
	return RP_RECV_LEN;
}

static void
prepare_receive(struct play *p, unsigned int i, const struct rp_arrival *all, unsigned int n)
{
	const struct rp_frame *f = all[i].frame;
	uint32_t wants = f->opf & KARST_OPF_SEND ? KARST_OPF_START : KARST_OPF_END | KARST_OPF_IMM;

	if (!(f->opf & (KARST_OPF_SEND | KARST_OPF_IMM)) || (f->opf & wants) != wants)
		return;
	if (p->b->receives != 0 || is_rnr(answer_for(p, f->f.ib.psn)))
		return;
	p->room = buffer_len(p, i, all, n);
	rp_bed_post_receive(p->b, p->room);
}

/* Puts into memory what the captured READ returned. */
static void
prepare_read(struct play *p, const struct rp_frame *f)
{
	uint32_t mtu = 128u << p->s->mtu, npsn = rp_npsn(p->s, f), i;

	for (i = 0; i < npsn; i++) {
		const struct rp_frame *a = answer_for(p, karst_psn_add(f->f.ib.psn, i));
		uint8_t *at;

		if (a == NULL || !(a->opf & KARST_OPF_READ) || a->f.ib.pay_len == 0)
			continue;
		at = rp_region_at(&p->regions, f->f.ib.rkey, f->f.ib.va + i * mtu, a->f.ib.pay_len);
		if (at != NULL)
			memcpy(at, a->f.ib.pay, a->f.ib.pay_len);
	}
}

static void
prepare_atomic(struct play *p, const struct rp_frame *f)
{
	uint8_t *at = rp_region_at(&p->regions, f->f.ib.rkey, f->f.ib.va, 8);
	const struct rp_frame *a = answer_for(p, f->f.ib.psn);
	unsigned int i;

	for (i = 0; i < p->nwords && p->words[i] != f->f.ib.va; i++)
		;
	if (i < p->nwords || at == NULL || a == NULL || a->f.ib.opcode != KARST_RC_ATOMIC_ACK)
		return;
	memcpy(at, &a->f.ib.orig, 8);
	p->words = realloc(p->words, (p->nwords + 1) * sizeof(*p->words));
	p->words[p->nwords++] = f->f.ib.va;
}

/* --- after a request --- */

static void
check_receive(struct play *p, const struct rp_frame *f)
{
	const struct karst_cqe *c = rp_bed_completion(p->b);
	uint32_t len = f->opf & KARST_OPF_SEND ? p->got : p->total;

	if (c == NULL) {
		rp_problem(p->r, "PSN %06x: no receive completed", f->f.ib.psn);
		return;
	}
	p->r->compared++;
	if (c->status != KARST_WC_SUCCESS || c->byte_len != len)
		rp_problem(p->r, "PSN %06x: a receive of %u bytes with status %u instead of %u",
			f->f.ib.psn, c->byte_len, c->status, len);
	if ((f->opf & KARST_OPF_IMM) && (c->imm != f->f.ib.imm || !(c->flags & KARST_WC_WITH_IMM)))
		rp_problem(p->r, "PSN %06x: immediate data are wrong", f->f.ib.psn);
	if ((f->opf & KARST_OPF_IETH) && !(c->flags & KARST_WC_WITH_INV))
		rp_problem(p->r, "PSN %06x: nothing about the key", f->f.ib.psn);
}

/* A packet was executed: checks that its payload is where it belongs. */
static void
check_placed(struct play *p, const struct rp_frame *f)
{
	const struct karst_ib_hdrs *ib = &f->f.ib;
	const uint8_t *at = NULL;

	if (f->opf & KARST_OPF_START) {
		p->got = 0;
		p->va = ib->va;
		p->rkey = ib->rkey;
		p->total = ib->dma_len;
	}
	if (f->opf & KARST_OPF_SEND)
		at = p->b->recv + p->got;
	else if (f->opf & (KARST_OPF_WRITE | KARST_OPF_ATOMICWRITE))
		at = rp_region_at(&p->regions, p->rkey, p->va + p->got, ib->pay_len);
	if (ib->pay_len != 0 && (f->opf & KARST_OPF_PAYLOAD)) {
		p->r->compared++;
		if (at == NULL || memcmp(at, ib->pay, ib->pay_len) != 0)
			rp_problem(p->r, "PSN %06x: the payload is not in memory", ib->psn);
	}
	p->got += ib->pay_len;
	if ((f->opf & KARST_OPF_END) && (f->opf & (KARST_OPF_SEND | KARST_OPF_IMM)))
		check_receive(p, f);
}

/* A receive that fails: only because of its length, and where the captured one failed, too. */
static void
check_failed(struct play *p, const struct rp_frame *f)
{
	const struct karst_cqe *c;

	while ((c = rp_bed_completion(p->b)) != NULL) {
		if (c->status == KARST_WC_WR_FLUSH_ERR)
			continue;
		if (c->status != KARST_WC_LOC_LEN_ERR || p->room == RP_RECV_LEN)
			rp_problem(p->r, "PSN %06x: a receive completed with status %u",
				f->f.ib.psn, c->status);
	}
}

/* --- answers --- */

static void
take_shuffled(struct play *p, const struct rp_out *o)
{
	unsigned int i;

	for (i = 0; i < p->s->nanswers; i++) {
		if (!p->had[i] && rp_same(&o->f.ib, &p->s->answers[i]->f.ib)) {
			p->had[i] = true;
			p->next++;
			p->r->compared++;
			return;
		}
	}
	rp_problem(p->r, "PSN %06x: %s that nobody sent", o->f.ib.psn,
		karst_opcode_symbol(o->f.ib.opcode));
}

/* R11: an ACK that a later answer covers. */
static bool
coalesced(const struct karst_ib_hdrs *ack, const struct karst_ib_hdrs *later)
{
	return is_ack(ack) && karst_psn_before(ack->psn, later->psn);
}

/* Whether the next answer repeats an earlier one.  A duplicate that comes before the original is
 * answered gets no answer of its own. */
static bool
repeated(const struct play *p)
{
	unsigned int i;

	for (i = 0; i < p->next; i++) {
		if (rp_same(&p->s->answers[i]->f.ib, &p->s->answers[p->next]->f.ib))
			return true;
	}
	return false;
}

/* Whether both are the same kind of answer for the same PSN.  @a may be NULL. */
static bool
alike(const struct karst_ib_hdrs *a, const struct karst_ib_hdrs *b)
{
	uint32_t of_a = a != NULL ? karst_opcode_flags(a->opcode) : 0;
	uint32_t of_b = karst_opcode_flags(b->opcode);

	if (a == NULL || a->psn != b->psn ||
		((of_a ^ of_b) & (KARST_OPF_READ | KARST_OPF_ATOMIC)) != 0)
		return false;
	return a->opcode != KARST_RC_ACK || ((a->aeth ^ b->aeth) >> 24 & KARST_AETH_TYPE_MASK) == 0;
}

/* Skips acknowledgements that karst does not send (reported as differences).  @return the answer
 * that is due; NULL: none is left. */
static const struct rp_frame *
due(struct play *p, const struct karst_ib_hdrs *ours)
{
	const struct rp_stream *s = p->s;

	for (; p->next < s->nanswers; p->next++) {
		const struct karst_ib_hdrs *ib = &s->answers[p->next]->f.ib;

		if (p->burst &&
			((ours != NULL && coalesced(ib, ours)) ||
				(!alike(ours, ib) && repeated(p))))
			continue;
		if (alike(ours, ib) || p->unasked == 0 || !unasked_ack(p, ib) ||
			!rp_differs(p->r, ib->psn, "no ACK of a duplicate that does not ask"))
			return s->answers[p->next];
		p->unasked--;
	}
	return NULL;
}

static void
take_answer(struct play *p, const struct rp_out *o)
{
	const struct rp_frame *want;
	struct karst_ib_hdrs ours = o->f.ib;
	unsigned int side = 1 - p->s->from;

	if (p->s->capture->shuffled[side]) {
		take_shuffled(p, o);
		return;
	}
	want = due(p, &ours);
	/* the capture has no packets that did not reach the wire */
	if (p->s->capture->lossy[side] && (want == NULL || !alike(&ours, &want->f.ib)))
		return;
	if (want == NULL || want->f.ib.psn != ours.psn) {
		if (p->burst && is_ack(&ours) && karst_psn_before(ours.psn, p->epsn))
			return; /* of packets without AckReq, in between (R11) */
		if (!rp_differs(p->r, ours.psn, "%s (%02x) once more",
			    karst_opcode_symbol(ours.opcode), ours.aeth >> 24))
			p->ended = true;
		return;
	}
	if (p->r->verbose)
		printf("# <- %s %06x, captured %s %06x (frame %u)\n",
			karst_opcode_symbol(ours.opcode), ours.psn,
			karst_opcode_symbol(want->f.ib.opcode), want->f.ib.psn, want->number);
	if (p->next++ == 0 && !p->burst && ours.opcode == want->f.ib.opcode &&
		((want->f.ib.aeth ^ ours.aeth) & KARST_PSN_MASK) != 0 &&
		rp_differs(p->r, ours.psn, "an older connection"))
		p->msn_base = (want->f.ib.aeth - ours.aeth) & KARST_PSN_MASK;
	if (karst_opcode_flags(ours.opcode) & KARST_OPF_AETH)
		ours.aeth = (ours.aeth & 0xff000000) | ((ours.aeth + p->msn_base) & KARST_PSN_MASK);
	/* all of a burst is executed before anything is answered, and each answer shows that
	 * (R10) */
	if (p->burst && karst_opcode_flags(ours.opcode) & KARST_OPF_AETH)
		ours.aeth = (ours.aeth & 0xff000000) | (want->f.ib.aeth & KARST_PSN_MASK);
	rp_compare(p->r, &ours, &want->f.ib);
	if (karst_qp_state(p->b->qp) == KARST_QPS_ERR && ours.opcode != want->f.ib.opcode)
		p->ended = true; /* that was the last answer */
}

static void
take_answers(struct play *p)
{
	unsigned int i;

	do {
		rp_bed_send(p->b, 64);
		for (i = 0; i < p->b->nout && !p->ended; i++)
			take_answer(p, &p->b->out[i]);
	} while (p->b->nout != 0);
}

/* --- a request --- */

/* R3: changes the memory that a duplicate WRITE would change if it were executed again. */
static void
spoil(const struct play *p, const struct rp_frame *f)
{
	uint8_t *at = rp_region_at(&p->regions, f->f.ib.rkey, f->f.ib.va, f->f.ib.pay_len);
	uint32_t i;

	for (i = 0; at != NULL && i < f->f.ib.pay_len; i++)
		at[i] ^= 0xff;
}

static void
check_spoiled(const struct play *p, const struct rp_frame *f)
{
	const uint8_t *at = rp_region_at(&p->regions, f->f.ib.rkey, f->f.ib.va, f->f.ib.pay_len);
	uint32_t i;

	for (i = 0; at != NULL && i < f->f.ib.pay_len; i++) {
		if ((at[i] ^ f->f.ib.pay[i]) != 0xff) {
			rp_problem(p->r, "PSN %06x: a duplicate WRITE was executed again",
				f->f.ib.psn);
			return;
		}
	}
	p->r->compared++;
}

static void
play_one(struct play *p, unsigned int i, const struct rp_arrival *all, unsigned int n)
{
	const struct rp_frame *f = all[i].frame;
	struct karst_frame copy = f->f;
	bool whole = f->fate != RP_CORRUPTED, fresh, again, uc = p->s->type == KARST_QPT_UC;
	enum karst_drop drop;

	rp_bed_time(p->b, all[i].ns);
	fresh = whole && (f->f.ib.psn == p->epsn || (uc && (f->opf & KARST_OPF_START)));
	if (fresh)
		prepare_receive(p, i, all, n);
	if (whole && (f->opf & KARST_OPF_READ))
		prepare_read(p, f);
	if (fresh && (f->opf & KARST_OPF_ATOMICETH))
		prepare_atomic(p, f);
	again = whole && !uc && (f->opf & KARST_OPF_WRITE) && (f->opf & KARST_OPF_RETH) &&
		karst_psn_before(f->f.ib.psn, p->epsn);
	if (again)
		spoil(p, f);
	rp_regions_translate(&p->regions, &copy.ib, f->opf);
	drop = rp_bed_receive(p->b, &copy, f->fate);
	karst_core_flush(p->b->core);
	if (p->r->verbose)
		printf("# -> %s %06x: %s\n", karst_opcode_symbol(f->f.ib.opcode), f->f.ib.psn,
			drop == KARST_DROP_NONE ? "taken" : karst_drop_name(drop));
	if (again) {
		check_spoiled(p, f);
		spoil(p, f);
	}
	if (!whole && drop != KARST_DROP_ICRC)
		rp_problem(p->r, "PSN %06x: damaged and not dropped for its ICRC", f->f.ib.psn);
	if (fresh && drop == KARST_DROP_NONE) {
		p->epsn = karst_psn_add(f->f.ib.psn, rp_npsn(p->s, f));
		check_placed(p, f);
	} else if (drop != KARST_DROP_NONE) {
		p->dropped++;
		p->unasked += drop == KARST_DROP_DUPLICATE && !f->f.ib.ackreq;
		check_failed(p, f);
	} else if (!(f->opf &
			   (KARST_OPF_READ | KARST_OPF_ATOMIC | KARST_OPF_ATOMICWRITE |
				   KARST_OPF_FLUSH))) {
		rp_problem(p->r, "PSN %06x: executed out of order", f->f.ib.psn);
	}
}

/* UC: a message whose packets all arrived is delivered; of another message nothing after the gap is
 * (U1). */
static unsigned int
uc_missing(const struct rp_stream *s)
{
	unsigned int i, missing = 0;
	bool broken = false;

	for (i = 0; i < s->nrequests; i++) {
		const struct rp_frame *f = s->requests[i];

		if (f->opf & KARST_OPF_START)
			broken = false;
		if (f->fate == RP_DROPPED)
			broken = true;
		else if (broken)
			missing++;
	}
	return missing;
}

static void
check_end(struct play *p)
{
	const struct rp_frame *last =
		p->s->nanswers != 0 ? p->s->answers[p->s->nanswers - 1] : NULL;
	bool fatal = last != NULL && last->f.ib.opcode == KARST_RC_ACK &&
		(last->f.ib.aeth >> 24 & 0x60) == KARST_AETH_NAK && last->f.ib.aeth >> 24 != 0x60;
	bool error = karst_qp_state(p->b->qp) == KARST_QPS_ERR;

	due(p, NULL);
	p->r->compared++;
	if (p->next < p->s->nanswers)
		rp_problem(p->r, "answers %u to %u were not given; the first: %s at PSN %06x",
			p->next, p->s->nanswers - 1,
			karst_opcode_symbol(p->s->answers[p->next]->f.ib.opcode),
			p->s->answers[p->next]->f.ib.psn);
	if (p->s->type == KARST_QPT_UC && p->dropped != uc_missing(p->s))
		rp_problem(p->r, "%u packets dropped instead of %u", p->dropped, uc_missing(p->s));
	if (error != fatal || (error && p->b->errors == 0))
		rp_problem(p->r, "the queue pair is in state %d, with %u events",
			karst_qp_state(p->b->qp), p->b->errors);
}

static uint8_t
rnr_timer(const struct rp_stream *s)
{
	unsigned int i;

	for (i = 0; i < s->nanswers; i++) {
		if (is_rnr(s->answers[i]))
			return s->answers[i]->f.ib.aeth >> 24 & 0x1f;
	}
	return 12;
}

static void
open_play(struct play *p, struct rp_report *r, const struct rp_stream *s, enum rp_refusal refusal)
{
	struct rp_qp_setup setup = {.type = s->type,
		.example = s->requests[0],
		.dest_qpn = s->rqpn,
		.rq_psn = rp_first_psn(s),
		.mtu = s->mtu,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
		/* a requester that observes what was agreed is never refused for it (R6) */
		.max_dest_rd_atomic =
			(uint8_t)rp_option(s->capture, 1 - s->from, 'a', KARST_QP_MAX_RD_ATOMIC),
		.min_rnr_timer = rnr_timer(s),
		.srq = rp_uses_srq(s->capture, 1 - s->from)};

	*p = (struct play){.r = r, .s = s, .epsn = setup.rq_psn};
	p->b = rp_bed_open(&setup, s->requests[0]->ns);
	p->had = calloc(s->nanswers + 1, sizeof(*p->had));
	rp_regions_open(&p->regions, p->b, s, refusal);
}

static void
close_play(struct play *p)
{
	rp_bed_close(p->b);
	rp_regions_close(&p->regions);
	free(p->had);
	free(p->words);
}

bool
rp_responder_refuses(const struct rp_stream *s)
{
	unsigned int i;

	for (i = 0; i < s->nanswers; i++) {
		if (s->answers[i]->f.ib.opcode == KARST_RC_ACK &&
			s->answers[i]->f.ib.aeth >> 24 == (KARST_AETH_NAK | KARST_NAK_REM_ACCESS))
			return true;
	}
	return false;
}

/* Whether the captured responder would have answered before what arrives next. */
static bool
answers_now(const struct play *p, unsigned int i, const struct rp_arrival *all, unsigned int n)
{
	return !p->burst || i + 1 == n || p->next == p->s->nanswers ||
		p->s->answers[p->next]->ns <= all[i + 1].ns;
}

static void
play_all(struct rp_report *r, const struct rp_stream *s, enum rp_refusal refusal, bool burst)
{
	struct rp_arrival *all;
	unsigned int i, n;
	struct play p;

	open_play(&p, r, s, refusal);
	p.burst = burst;
	all = rp_arrivals(s->requests, s->nrequests, &n);
	for (i = 0; i < n && !p.ended; i++) {
		play_one(&p, i, all, n);
		if (answers_now(&p, i, all, n))
			take_answers(&p);
	}
	if (!p.ended)
		check_end(&p);
	free(all);
	close_play(&p);
}

void
rp_responder(struct rp_report *r, const struct rp_stream *s, enum rp_refusal refusal)
{
	play_all(r, s, refusal, false);
}

void
rp_responder_burst(struct rp_report *r, const struct rp_stream *s)
{
	play_all(r, s, RP_UNKNOWN_KEY, true);
}
