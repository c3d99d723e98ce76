/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Posts the work requests of a capture to a karst requester (RC, UC), with the captured answers,
 * and compares what it sends with what the captured requester sent, packet by packet and bit by
 * bit.
 *
 * The two go in step: whenever the captured requester sent a packet, karst may send one, and it has
 * to be the same (P1, Q2, Q4, Q5, W10).  A message is posted when its first packet is due.  Answers
 * are delivered when they arrived; but those that make karst go back (a NAK, RNR, a gap in
 * responses) wait until the captured requester went back, too, because the capture does not show
 * when that requester had received what was on the wire.  Where it went back for no such reason,
 * its timer had expired, and so must karst's, within the four times that rule Q6 allows.
 *
 * After a timeout karst sends only a few packets at first: packets that it does not send when the
 * captured requester did are owed, and compared when acknowledgements allow karst to send them.
 *
 * A small model follows what was acknowledged (una: the oldest PSN that is not, Q3).  It tells how
 * each work request has to complete: success, in order (Q1); the status of the NAK that stopped it
 * (Q8); RETRY_EXC or RNR_RETRY_EXC (Q6, Q7); or a flush.  READ data and atomic results are those of
 * the captured responses.
 */
#include <stdlib.h>

#include "karst_hdr.h"
#include "replay.h"

#define SLOW_NS     (20 * RP_MS) /* going back after so long means that a timer expired */
#define PATIENCE_NS (60000 * RP_MS)

struct step {
	struct rp_report *r;
	const struct rp_stream *s;
	struct rp_bed *b;
	struct rp_message *m;
	unsigned int n;
	unsigned int next;       /* message that is not posted yet */
	unsigned int done;       /* completions seen */
	uint32_t una;            /* oldest PSN that is not acknowledged */
	uint32_t end;            /* PSN behind the last packet sent */
	int64_t shift;           /* karst's clock minus the capture's */
	struct rp_arrival *held; /* not delivered yet */
	unsigned int nheld;
	uint64_t rto_ns;
	enum karst_wc_status final; /* of the first message that failed */
	uint8_t rnr_retry;
	unsigned int rnrs; /* RNR NAKs since there was progress */
	/* packets that the captured requester has sent and karst, after a timeout, has not sent
	 * yet */
	const struct rp_frame **owed;
	unsigned int nowed, paid;
	bool ended;
	bool ahead;   /* the captured requester will send later what karst has sent last */
	uint32_t top; /* behind everything that the captured requester has ever sent */
	bool lossy;   /* packets were lost before they reached the wire */
};

/* --- the model --- */

static struct rp_message *
message_at(const struct step *t, uint32_t psn)
{
	unsigned int i;

	for (i = 0; i < t->n; i++) {
		if (karst_psn_add(psn, -t->m[i].psn) < t->m[i].npsn)
			return &t->m[i];
	}
	return NULL;
}

static bool
has_response(const struct rp_message *m)
{
	return m->op == KARST_WR_RDMA_READ || m->op == KARST_WR_ATOMIC_CAS ||
		m->op == KARST_WR_ATOMIC_FAA || m->op == KARST_WR_ATOMIC_WRITE ||
		m->op == KARST_WR_FLUSH;
}

/* Acknowledges everything before @psn, up to a missing response.  @return false: a response is
 * missing. */
static bool
acknowledge(struct step *t, uint32_t psn)
{
	while (karst_psn_before(t->una, psn)) {
		const struct rp_message *m = message_at(t, t->una);
		uint32_t end;

		if (m == NULL || has_response(m))
			return m == NULL;
		end = karst_psn_add(m->psn, m->npsn);
		t->una = karst_psn_before(end, psn) ? end : psn;
	}
	return true;
}

/* Whether karst will go back when it gets @a.  If not, moves the model. */
static bool
goes_back(struct step *t, const struct rp_frame *a)
{
	const struct karst_ib_hdrs *ib = &a->f.ib;
	uint8_t type = ib->aeth >> 24 & KARST_AETH_TYPE_MASK;

	if (a->fate == RP_CORRUPTED || karst_psn_before(ib->psn, t->una) ||
		!karst_psn_before(ib->psn, t->end))
		return false; /* a ghost (Q10) */
	if (ib->opcode == KARST_RC_ACK) {
		if (!acknowledge(t, type == KARST_AETH_ACK ? karst_psn_add(ib->psn, 1) : ib->psn))
			return true;
		return type != KARST_AETH_ACK;
	}
	if (!acknowledge(t, ib->psn))
		return true;
	if (t->una == ib->psn)
		t->una = karst_psn_add(ib->psn, 1);
	return false;
}

/* The effect of a NAK on the oldest request. */
static void
note_nak(struct step *t, const struct rp_frame *a)
{
	uint8_t syndrome = a->f.ib.aeth >> 24;

	if (a->f.ib.opcode != KARST_RC_ACK || t->final != KARST_WC_SUCCESS || a->f.ib.psn != t->una)
		return;
	if ((syndrome & KARST_AETH_TYPE_MASK) == KARST_AETH_RNR && t->rnr_retry != 7 &&
		t->rnrs++ == t->rnr_retry)
		t->final = KARST_WC_RNR_RETRY_EXC_ERR;
	switch (syndrome) {
	case KARST_AETH_NAK | KARST_NAK_INV_REQ:
		t->final = KARST_WC_REM_INV_REQ_ERR;
		break;
	case KARST_AETH_NAK | KARST_NAK_REM_ACCESS:
		t->final = KARST_WC_REM_ACCESS_ERR;
		break;
	case KARST_AETH_NAK | KARST_NAK_REM_OP:
		t->final = KARST_WC_REM_OP_ERR;
		break;
	default:
		break;
	}
}

/* --- completions --- */

static void
check_completion(struct step *t, const struct karst_cqe *c)
{
	const struct rp_message *m = &t->m[t->done];
	bool ok = !karst_psn_before(t->una, karst_psn_add(m->psn, m->npsn));
	enum karst_wc_status want = ok ? KARST_WC_SUCCESS : t->final;

	if (t->s->type == KARST_QPT_UC)
		want = KARST_WC_SUCCESS;
	t->r->compared++;
	if (c->wr_id != m->psn || c->status != want) {
		rp_problem(t->r, "message at PSN %06x completed with %u, not %u (id %06llx)",
			m->psn, c->status, want, (unsigned long long)c->wr_id);
		return;
	}
	if (want != KARST_WC_SUCCESS)
		t->final = KARST_WC_WR_FLUSH_ERR;
	else if (m->expect != NULL && memcmp(m->data, m->expect, m->len) != 0)
		rp_problem(t->r, "the result of the message at PSN %06x is another one", m->psn);
}

static void
take_completions(struct step *t)
{
	const struct karst_cqe *c;

	karst_core_flush(t->b->core);
	while ((c = rp_bed_completion(t->b)) != NULL) {
		if (t->done == t->next) {
			rp_problem(t->r, "a completion of nothing");
			return;
		}
		check_completion(t, c);
		t->done++;
	}
}

/* --- time and answers --- */

static void
clock_at(struct step *t, uint64_t ns)
{
	rp_bed_time(t->b, (uint64_t)((int64_t)ns + t->shift));
	take_completions(t);
}

static void
deliver(struct step *t, const struct rp_arrival *a)
{
	const struct rp_frame *f = a->frame;
	enum karst_drop drop;

	note_nak(t, f);
	drop = rp_bed_receive(t->b, &f->f, f->fate);
	if (t->r->verbose)
		printf("# <- %s %06x (%02x) frame %u: %s\n", karst_opcode_symbol(f->f.ib.opcode),
			f->f.ib.psn, f->f.ib.aeth >> 24, f->number,
			drop == KARST_DROP_NONE ? "taken" : karst_drop_name(drop));
	if (f->fate == RP_CORRUPTED && drop != KARST_DROP_ICRC)
		rp_problem(t->r, "frame %u: damaged and not dropped for its ICRC", f->number);
	take_completions(t);
}

static void pay(struct step *t);

static void
arrives(struct step *t, const struct rp_arrival *a)
{
	if (t->nheld == 0 && !goes_back(t, a->frame)) {
		clock_at(t, a->ns);
		deliver(t, a);
		pay(t);
		return;
	}
	t->held[t->nheld++] = *a;
}

/* Delivers answers that were held.  @return when the first one came that makes karst go back; 0:
 * none. */
static uint64_t
release(struct step *t)
{
	uint64_t began = 0;
	unsigned int i;

	for (i = 0; i < t->nheld; i++) {
		if (goes_back(t, t->held[i].frame) && began == 0)
			began = t->held[i].ns;
		clock_at(t, t->held[i].ns);
		deliver(t, &t->held[i]);
	}
	t->nheld = 0;
	return began;
}

/* --- packets --- */

static bool
is_rnr_wait(const struct step *t, uint32_t psn)
{
	unsigned int i;
	bool rnr = false;

	for (i = 0; i < t->s->nanswers; i++) {
		const struct karst_ib_hdrs *ib = &t->s->answers[i]->f.ib;

		rnr |= ib->opcode == KARST_RC_ACK && ib->psn == psn &&
			(ib->aeth >> 24 & KARST_AETH_TYPE_MASK) == KARST_AETH_RNR;
	}
	return rnr;
}

static void
post_up_to(struct step *t, uint32_t psn)
{
	while (t->next < t->n && !karst_psn_before(psn, t->m[t->next].psn)) {
		if (t->r->verbose)
			printf("# posted: operation %d of %u bytes at %06x\n", t->m[t->next].op,
				t->m[t->next].len, t->m[t->next].psn);
		rp_message_post(t->b, &t->m[t->next++]);
	}
}

/* X11: the captured requester goes back to the gap and sends everything behind it again; karst
 * sends what is missing. */
#define NOT_AGAIN "is not sent again"

/* Takes one packet of karst; for a lossy side, as many as it takes until @psn comes. */
static void
let_send(struct step *t, uint32_t psn)
{
	unsigned int i;

	if (t->ahead)
		return;
	rp_bed_send(t->b, 1);
	for (i = 0; t->lossy && t->b->nout != 0 && t->b->out[0].f.ib.psn != psn && i < 100; i++)
		rp_bed_send(t->b, 1);
}

static void
compare_sent(struct step *t, const struct rp_frame *f)
{
	const struct rp_out *o = &t->b->out[0];

	if (t->b->nout == 0) {
		rp_problem(t->r, "PSN %06x: %s is not sent (frame %u)", f->f.ib.psn,
			karst_opcode_symbol(f->f.ib.opcode), f->number);
		t->ended = true;
		return;
	}
	if (t->r->verbose)
		printf("# -> %s %06x, captured %s %06x (frame %u)\n",
			karst_opcode_symbol(o->f.ib.opcode), o->f.ib.psn,
			karst_opcode_symbol(f->f.ib.opcode), f->f.ib.psn, f->number);
	rp_compare(t->r, &o->f.ib, &f->f.ib);
	if (o->f.ib.psn != f->f.ib.psn)
		t->ended = true;
	take_completions(t);
}

/* Packets that karst owes are sent as soon as they may be. */
static void
pay(struct step *t)
{
	while (t->paid < t->nowed && !t->ended) {
		let_send(t, t->owed[t->paid]->f.ib.psn);
		if (t->b->nout == 0)
			return;
		compare_sent(t, t->owed[t->paid++]);
	}
}

static bool
timed_out(const struct step *t)
{
	return t->b->core->counters.ctr[KARST_CTR_LOCAL_ACK_TIMEOUT] != 0;
}

/* After a timeout karst waits for an acknowledgement where the captured requester continues to
 * send. */
static bool
owe(struct step *t, const struct rp_frame *f)
{
	if (t->b->nout != 0 || t->nheld != 0 ||
		!rp_differs(t->r, f->f.ib.psn, "waits for an acknowledgement after a timeout"))
		return false;
	t->owed[t->nowed++] = f;
	t->end = karst_psn_add(f->f.ib.psn, rp_npsn(t->s, f));
	return true;
}

/* The captured requester goes back with @f: so must karst, and for the same reason. */
static void
go_back(struct step *t, const struct rp_frame *f, uint64_t ns)
{
	uint64_t began = release(t), waited;

	if (began != 0 && ns - began > SLOW_NS && !is_rnr_wait(t, f->f.ib.psn)) {
		/* karst does so at once; the captured requester's wait is subtracted from its
		 * time */
		rp_differs(t->r, f->f.ib.psn, "asks again without waiting");
		t->shift -= (int64_t)(ns - began);
	}
	clock_at(t, ns);
	if (!t->ahead)
		t->b->nout = 0;
	if (karst_psn_before(f->f.ib.psn, t->una) && !rp_may_differ(t->r, f->f.ib.psn, NOT_AGAIN))
		return; /* karst does not */
	let_send(t, f->f.ib.psn);
	if (rp_may_differ(t->r, f->f.ib.psn, NOT_AGAIN))
		return;
	for (waited = 0; t->b->nout == 0 && waited < 4 * t->rto_ns; waited += RP_MS / 2) {
		t->shift += RP_MS / 2;
		clock_at(t, ns);
		let_send(t, f->f.ib.psn);
	}
	if (t->r->verbose)
		printf("# back to %06x%s\n", f->f.ib.psn, began == 0 ? " by the clock" : "");
}

static void
sends(struct step *t, const struct rp_frame *f, uint64_t ns)
{
	uint32_t psn = f->f.ib.psn;

	if (t->lossy ? !karst_psn_before(psn, t->end) : psn == t->end) {
		clock_at(t, ns);
		if (!t->ahead)
			t->b->nout = 0;
		if (karst_psn_before(psn, t->una))
			goto sent; /* karst does not */
		post_up_to(t, psn);
		pay(t);
		if (!t->ahead)
			t->b->nout = 0;
		if (t->paid == t->nowed)
			let_send(t, psn);
		if ((t->b->nout == 0 || t->b->out[0].f.ib.psn != psn) && t->nheld != 0) {
			release(t);
			let_send(t, psn);
		}
		if (t->b->nout == 0 && timed_out(t) && owe(t, f))
			return;
	} else {
		/* what it did not send the first time it will send later */
		t->paid = t->nowed;
		go_back(t, f, ns);
	}
sent:
	t->end = karst_psn_add(psn, rp_npsn(t->s, f));
	t->ahead = t->b->nout != 0 && karst_psn_before(psn, t->b->out[0].f.ib.psn) &&
		rp_may_differ(t->r, psn, NOT_AGAIN);
	if ((t->b->nout == 0 || t->ahead) && karst_psn_before(psn, t->top) &&
		!(t->b->nout == 0 && karst_psn_before(psn, t->una)) &&
		rp_differs(t->r, psn, NOT_AGAIN))
		return;
	if (karst_psn_before(t->top, t->end))
		t->top = t->end;
	if (t->b->nout == 0 && karst_psn_before(psn, t->una) &&
		rp_differs(t->r, psn, "does not send what is acknowledged"))
		return;
	compare_sent(t, f);
}

/* --- the end --- */

static void
finish(struct step *t, uint64_t ns)
{
	uint64_t waited;

	release(t);
	clock_at(t, ns);
	rp_bed_send(t->b, 1);
	if (t->b->nout != 0 && t->final == KARST_WC_SUCCESS)
		rp_problem(t->r, "%s at PSN %06x is sent after the end",
			karst_opcode_symbol(t->b->out[0].f.ib.opcode), t->b->out[0].f.ib.psn);
	take_completions(t);
	/* the captured requester gave up; karst has to fail in the same way on its own */
	for (waited = 0; t->done < t->next && waited < PATIENCE_NS; waited += RP_MS) {
		if (t->final == KARST_WC_SUCCESS)
			t->final = KARST_WC_RETRY_EXC_ERR;
		t->shift += RP_MS;
		clock_at(t, ns);
		rp_bed_send(t->b, 1);
		if (t->b->nout != 0) {
			rp_problem(t->r, "%s at PSN %06x is sent once more",
				karst_opcode_symbol(t->b->out[0].f.ib.opcode),
				t->b->out[0].f.ib.psn);
			break;
		}
	}
	if (t->paid != t->nowed)
		rp_problem(t->r, "%u packets were never sent", t->nowed - t->paid);
	if (t->done != t->next || t->next != t->n)
		rp_problem(t->r, "%u messages, %u posted, %u completed", t->n, t->next, t->done);
}

static void
open_step(struct step *t, struct rp_report *r, const struct rp_stream *s)
{
	const struct rp_capture *c = s->capture;
	uint32_t timeout = rp_option(c, s->from, 't', 14), first = rp_first_psn(s);
	struct rp_qp_setup setup = {.type = s->type,
		.example = s->requests[0],
		.mine = true,
		.dest_qpn = s->dqpn,
		.sq_psn = first,
		.mtu = s->mtu,
		.timeout = (uint8_t)timeout,
		.retry_cnt = (uint8_t)rp_option(c, s->from, 'y', 7),
		.rnr_retry = (uint8_t)rp_option(c, s->from, 'R', 7),
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = (uint8_t)rp_option(c, s->from, 'a', KARST_QP_MAX_RD_ATOMIC)};

	*t = (struct step){.r = r,
		.s = s,
		.una = first,
		.end = first,
		.top = first,
		.rto_ns = 4096ull << timeout,
		.rnr_retry = setup.rnr_retry,
		.lossy = c->lossy[s->from]};
	t->m = rp_messages(r, s, &t->n);
	t->b = rp_bed_open(&setup, s->requests[0]->ns);
	t->held = calloc(2 * s->nanswers + 1, sizeof(*t->held));
	t->owed = calloc(s->nrequests, sizeof(*t->owed));
}

static int
by_ip_id(const void *pa, const void *pb)
{
	const struct rp_arrival *a = pa, *b = pb;

	return (int16_t)(uint16_t)(a->frame->f.ip_id - b->frame->f.ip_id);
}

/*
 * The packets in the order in which they were sent: that of the capture; if they were reordered
 * before it, that of their IP identification, each not later than those behind it.
 */
static struct rp_arrival *
sent(const struct rp_stream *s)
{
	struct rp_arrival *all = calloc(s->nrequests, sizeof(*all));
	unsigned int i;

	for (i = 0; i < s->nrequests; i++)
		all[i] = (struct rp_arrival){s->requests[i], s->requests[i]->ns};
	if (!s->capture->shuffled[s->from])
		return all;
	qsort(all, s->nrequests, sizeof(*all), by_ip_id);
	for (i = s->nrequests - 1; i-- != 0;)
		all[i].ns = karst_min_u64(all[i].ns, all[i + 1].ns);
	return all;
}

void
rp_requester(struct rp_report *r, const struct rp_stream *s)
{
	struct rp_arrival *answers, *packets = sent(s);
	unsigned int i, a = 0, na;
	uint64_t last = 0;
	struct step t;

	open_step(&t, r, s);
	answers = rp_arrivals(s->answers, s->nanswers, &na);
	for (i = 0; i < s->nrequests && !t.ended; i++) {
		const struct rp_frame *f = packets[i].frame;

		for (; a < na && answers[a].ns <= packets[i].ns; a++)
			arrives(&t, &answers[a]);
		if (t.n == 0 ||
			!karst_psn_before(
				f->f.ib.psn, karst_psn_add(t.m[t.n - 1].psn, t.m[t.n - 1].npsn)))
			break; /* beyond what can be posted */
		sends(&t, f, packets[i].ns);
		last = packets[i].ns;
	}
	for (; a < na && !t.ended; a++) {
		arrives(&t, &answers[a]);
		last = answers[a].ns;
	}
	if (!t.ended)
		finish(&t, last);
	rp_bed_close(t.b);
	rp_messages_free(t.m, t.n);
	free(t.held);
	free(t.owed);
	free(answers);
	free(packets);
}
