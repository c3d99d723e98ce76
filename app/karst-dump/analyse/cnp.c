/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Check congestion notification (E2 to E4): the form of CNPs, the queue pairs that they name, their
 * interval under each scope that adapters use (port, pair of addresses, destination, queue pair),
 * and the reaction of the sender.
 *
 * A CNP from Y to queue pair a of X is about packets that queue pair a has sent to Y.  These are
 * the packets of the flow that is the counterpart of the CNP's flow.
 */
#include "an_priv.h"

#define RATE_CNPS    16 /* this many CNPs without a reaction are a failure */
#define RATE_PACKETS 16 /* with fewer packets before or after, no rate can be told */

static void
scope_count(const struct an *a, struct an_cnp_scope *s, const struct an_pkt *p)
{
	uint64_t since = p->ns - s->last_ns;

	if (s->n++ != 0 && s->last_frame >= a->unsteady &&
		(s->min_frame[0] == 0 || since < s->min_ns)) {
		s->min_ns = since;
		s->min_frame[0] = s->last_frame;
		s->min_frame[1] = p->frame;
	}
	s->last_ns = p->ns;
	s->last_frame = p->frame;
}

static void
form(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	const struct karst_ib_hdrs *ib = p->ib;
	unsigned int i, set = 0;

	for (i = 0; i < ib->pay_len; i++)
		set |= ib->pay[i];
	if (p->j->icrc_is == JUDGE_CRC_BAD)
		return;
	if (!ib->becn)
		an_say(a, f, AN_CNP_FORM, AN_FAIL, p->frame, 0, "BECN is not set");
	else if (ib->pay_len != 16)
		an_say(a, f, AN_CNP_FORM, AN_FAIL, p->frame, 0, "%u bytes behind the BTH, not 16",
			ib->pay_len);
	else if (set != 0)
		an_say(a, f, AN_CNP_FORM, AN_FAIL, p->frame, 0,
			"the 16 reserved bytes are not zero");
	else
		an_pass(a, f, AN_CNP_FORM, p->frame);
}

static void
target(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_pair *reverse = f->pair->reverse;
	bool sees = an_sees_received(a, f->peer != NULL ? f->peer : f) && f->peer != NULL;

	if (f->peer != NULL && f->peer->ce != 0)
		an_pass(a, f, AN_CNP_TARGET, p->frame);
	else if (f->peer == NULL)
		an_say(a, f, AN_CNP_TARGET, AN_UNKNOWN, p->frame, 0,
			"what queue pair 0x%06x sends is not known", f->dqpn);
	else
		an_say(a, f, AN_CNP_TARGET, sees ? AN_FAIL : AN_UNKNOWN, p->frame, 0,
			"no packet of queue pair 0x%06x was marked%s%s", f->dqpn,
			reverse != NULL && reverse->ce != 0
				? ", but others to the same address were"
				: "",
			sees ? "" : " where the capture was taken");
}

/* Sums the bytes that the flow has sent in the last AN_RATE_SLOTS slots. */
static uint64_t
sent_lately(const struct an_flow *f)
{
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < AN_RATE_SLOTS; i++)
		sum += f->slot[i];
	return sum;
}

static void
rate_verdict(struct an *a, struct an_flow *f)
{
	f->rate.on = false;
	if (f->rate.packets < RATE_PACKETS)
		return;
	f->rate_n++;
	f->rate_less += f->rate.after < f->rate.before - f->rate.before / 16; /* less is chance */
}

void
an_rate(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	uint64_t slot = p->ns / AN_RATE_NS, i;

	if (p->ib->pay_len > f->longest)
		f->longest = p->ib->pay_len;
	if (slot > f->slot_ns + AN_RATE_SLOTS)
		f->slot_ns = slot - AN_RATE_SLOTS;
	for (i = f->slot_ns + 1; i <= slot; i++)
		f->slot[i % AN_RATE_SLOTS] = 0;
	if (slot > f->slot_ns)
		f->slot_ns = slot;
	f->slot[slot % AN_RATE_SLOTS] += p->wire_len;
	if (f->rate.on && p->ns >= f->rate.until_ns)
		rate_verdict(a, f);
	else if (f->rate.on && p->ns >= f->rate.from_ns)
		f->rate.after += p->wire_len;
}

/*
 * Begins to measure the flow that has to slow down: for as long after the CNP as before it, with
 * one slot in between.  How many packets the bytes are is estimated by the longest payload if the
 * path MTU has not shown, as in a flow of divided WRITEs (Q13).
 */
static void
rate_begins(struct an_flow *f, const struct an_pkt *p)
{
	uint64_t before = sent_lately(f);
	uint32_t mtu = f->req.mtu != 0 ? f->req.mtu : f->longest > 256 ? f->longest : 256;

	if (f->rate.on || before < (uint64_t)RATE_PACKETS * mtu)
		return;
	f->rate.on = true;
	f->rate.before = before;
	f->rate.after = 0;
	f->rate.frame = p->frame;
	f->rate.packets = (uint32_t)(before / mtu);
	f->rate.from_ns = p->ns + AN_RATE_NS;
	f->rate.until_ns = f->rate.from_ns + (uint64_t)AN_RATE_NS * AN_RATE_SLOTS;
}

void
an_cnp(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	form(a, f, p);
	target(a, f, p);
	scope_count(a, &f->cnp, p);
	scope_count(a, &f->pair->cnp, p);
	scope_count(a, &f->pair->src->from, p);
	scope_count(a, &f->pair->dst->to, p);
	f->cnp_tclass = p->tclass;
	f->cnp_migreq = p->ib->migreq;
	if (f->peer != NULL) {
		rate_begins(f->peer, p);
		an_plot(a, &f->peer->req, AN_PT_CNP, karst_psn_add(f->peer->req.next, -1u), p->ns);
	}
}

static void
interval(struct an *a, struct an_flow *f)
{
	uint64_t want = a->o->cnp_interval_us * 1000ull;

	bool known = f->cnp.min_frame[0] != 0;

	if (f->cnp_same != 0 && (!known || want == 0 || f->cnp.min_ns >= want - want / 10)) {
		an_say(a, f, AN_CNP_INTERVAL, AN_UNKNOWN, f->cnp_same_frame, 0,
			"%llu CNPs are the same as the one before them and follow it closely: doubled "
			"on the way or by the capture, or too close",
			(unsigned long long)f->cnp_same);
		return;
	}
	if (!known)
		return;
	if (want == 0)
		an_say(a, f, AN_CNP_INTERVAL, AN_UNKNOWN, f->cnp.min_frame[0], f->cnp.min_frame[1],
			"the shortest is %.1f us; the configured one is not given",
			(double)f->cnp.min_ns / 1e3);
	else if (f->cnp.min_ns < want - want / 10)
		an_say(a, f, AN_CNP_INTERVAL, AN_FAIL, f->cnp.min_frame[0], f->cnp.min_frame[1],
			"%.1f us between two CNPs of one queue pair, %u us are configured",
			(double)f->cnp.min_ns / 1e3, a->o->cnp_interval_us);
	else
		an_say(a, f, AN_CNP_INTERVAL, AN_PASS, f->cnp.min_frame[0], f->cnp.min_frame[1],
			"the shortest is %.1f us", (double)f->cnp.min_ns / 1e3);
}

static void
answer(struct an *a, struct an_flow *f)
{
	bool arrived = an_sees_received(a, f) ||
		(f->ce_asked && f->req.una_known && karst_psn_diff(f->req.una, f->ce_psn) > 0);

	if (f->ce == 0)
		return;
	if (f->peer != NULL && f->peer->cnp.n != 0)
		an_pass(a, f, AN_CNP_ANSWER, f->peer->cnp.last_frame);
	else if (f->peer == NULL)
		an_say(a, f, AN_CNP_ANSWER, AN_UNKNOWN, f->ce_frame, 0,
			"%llu packets are marked; their sender's queue pair is not known",
			(unsigned long long)f->ce);
	else
		an_say(a, f, AN_CNP_ANSWER,
			arrived && an_sees_sent(a, f->peer) ? AN_FAIL : AN_UNKNOWN, f->ce_frame, 0,
			"%llu packets are marked, the last one here, and no CNP was seen",
			(unsigned long long)f->ce);
}

static void
slower(struct an *a, struct an_flow *f)
{
	enum an_verdict v = AN_UNKNOWN;

	if (f->rate.on && f->last_ns >= f->rate.until_ns)
		rate_verdict(a, f);
	if (f->peer == NULL || f->peer->cnp.n == 0)
		return;
	/* a program that sends little may not need to slow down for a while */
	if (f->rate_less != 0)
		v = AN_PASS;
	else if (f->rate_n >= RATE_CNPS && an_sees_received(a, f->peer))
		v = AN_FAIL;
	if (f->rate_n == 0)
		an_say(a, f, AN_CNP_RATE, AN_UNKNOWN, f->peer->cnp.last_frame, 0,
			"too few packets around the CNPs for a rate");
	else
		an_say(a, f, AN_CNP_RATE, v, f->peer->cnp.last_frame, 0,
			"less after %llu of %llu CNPs, %llu bytes before the last and %llu after it",
			(unsigned long long)f->rate_less, (unsigned long long)f->rate_n,
			(unsigned long long)f->rate.before, (unsigned long long)f->rate.after);
}

void
an_cnp_finish(struct an *a)
{
	struct an_flow *f;

	for (f = a->flows; f != NULL; f = f->all_next) {
		interval(a, f);
		answer(a, f);
		slower(a, f);
	}
}
