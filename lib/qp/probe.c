/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Early retransmission (Q11), and the reaction to a full window after a NAK (Q12).
 *
 * With go-back-N a NAK, or a gap among responses, shows nearly every loss within a round trip.
 * Three losses are not shown: that of the last packets before a pause, with nothing after them that
 * could show the gap; that of a NAK, since there is one for a gap (R2); and that of the first
 * packet of what is sent again.  In these cases nothing is received any more.  Without further
 * measures the configured timeout passes, which is a thousand round trips.
 *
 * So a queue pair measures round trips.  When nothing was received for twice the longest recent
 * one, it probes: the oldest packet that is not acknowledged is sent once more, alone, and asks for
 * an acknowledgement.  The send cursor does not move.  Whatever was lost, the answer shows where
 * the peer is:
 *
 *	it was waiting for that packet    it acknowledges it and nothing behind: what had been sent
 *	                                  behind it is gone, and is sent again, a few at first
 *	it has it, and more               it acknowledges all that it has
 *	it is not ready                   it says so
 *	nothing was lost, it is slow      as before; one packet was sent unnecessarily
 *
 * What is then sent again is a few packets at first, one more for each that is acknowledged up to
 * half of what was under way, and from there on one more in a round trip: the loss may have been
 * due to an overload.
 *
 * Probes of one silence are sent at intervals that double, PROBES_MAX of them.  After that the
 * configured timeout passes as usual: its deadline is still that of the last progress.  A probe
 * spends no retry.  Timeout 0 means no timer, so there are no probes either.
 *
 * If selective repeat was agreed to (X10), the probe is the last packet sent: its answer shows what
 * else is lost, and nothing goes back.
 *
 * No round trip is measured of a packet that is sent again, since either copy may have been
 * answered (Karn).  But when a probe was answered, or what it probed for came late, the time from
 * the newest probe on is taken for a round trip: if the peer was only slow, that is about half of
 * the true value, and the next probe is sent later.
 *
 * Much of the second and the third of these losses can be detected without early retransmission,
 * and without a clock: when a whole window was sent after the oldest packet and nothing has
 * arrived.  Over a long distance between the peers that is normal, so it is a sign of loss only
 * while packets are being lost: for a while after a NAK, which is as long as the window is a little
 * smaller than the full one.  Then the oldest packet is sent once more.  Nothing is concluded from
 * its answer, which may be that to the first copy.  But if the peer was waiting for it, whatever is
 * sent next shows the peer the gap after it, and the peer sends a NAK.  If the peer was waiting for
 * a later packet, and has not been asked since, it answers how far it is, and that packet is sent
 * once more.
 */
#include "probe.h"

#include "gaps.h"
#include "pacer.h"
#include "repeat.h"

/* Limit of probes of one silence. */
#define PROBES_MAX 6u

/* The shortest wait, in ticks: what a peer in software, or a turn of this engine, may take. */
#define FLOOR_TICKS 16u

/* The round trip of a queue pair that has measured nothing yet. */
#define FIRST_ROUND_TRIP_NS 1000000u

/* A round trip shorter than the longest reduces that by this part of the difference (a shift). */
#define DECAY_SHIFT 6

/* Packets that are sent again when a probe was answered. */
#define RESTART_WINDOW 8u

static void
take_sample(struct karst_probe *p, uint64_t ns)
{
	uint32_t rtt = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;

	if (rtt >= p->rtt_ns)
		p->rtt_ns = rtt;
	else
		p->rtt_ns -= (p->rtt_ns - rtt) >> DECAY_SHIFT;
}

void
karst_probe_start(struct karst_core *core, struct karst_core_qp *qp, uint32_t psn)
{
	struct karst_requester *r = &qp->req;

	r->timing = 1;
	r->timed_psn = psn & KARST_PSN_MASK;
	qp->probe.timed_ns = core->now_ns;
}

/*
 * The time from progress to the first probe.  With thousands of active queue pairs each of them is
 * slow, and a core should not examine more than one of them in a tick for this purpose.  Users have
 * equal shares of its ticks.  So as many ticks have to pass as this user has armed timers, times
 * the users who have some; or as there are armed timers in total, if that is less.
 */
static uint64_t
first_wait_ns(const struct karst_core *core, const struct karst_core_qp *qp)
{
	uint64_t mine = karst_timers_of(karst_sched_user_of(core, qp));
	uint64_t users = core->timing.nusers;
	/* including the timer that is about to be armed */
	uint64_t his = (mine + 1) * (users + (mine == 0));
	uint64_t ticks = karst_max_u64(karst_min_u64(core->timing.count, his), FLOOR_TICKS);
	uint64_t rtt = qp->probe.rtt_ns != 0 ? qp->probe.rtt_ns : FIRST_ROUND_TRIP_NS;
	uint64_t least = ticks * KARST_WHEEL_TICK_NS;

	return 2 * rtt > least ? 2 * rtt : least;
}

void
karst_probe_sample(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;
	uint64_t ns = core->now_ns - qp->probe.timed_ns;

	r->timing = 0;
	if (karst_unlikely(r->paced))
		karst_pacer_delay(core, qp, ns);
	if (!core->early)
		return;
	take_sample(&qp->probe, ns);
	/* the timer is armed lazily: not for longer than the present wait */
	if (karst_timer_armed(&r->timer) &&
		karst_timer_ns(core, &r->timer) >
			core->now_ns + first_wait_ns(core, qp) + 2 * KARST_WHEEL_TICK_NS)
		karst_requester_timer_del(core, qp);
}

uint64_t
karst_probe_first(const struct karst_core *core, const struct karst_core_qp *qp, uint64_t wait_ns)
{
	uint64_t first = first_wait_ns(core, qp);

	/* what goes back waits until it was sent, and further timeouts have no probes */
	if ((qp->req.flags & KARST_REQ_UNSENT) || qp->req.retry_left != qp->req.retry_cnt)
		return wait_ns;
	return first < wait_ns ? first : wait_ns;
}

static bool
is_copying(const struct karst_core_qp *qp)
{
	unsigned int half;

	for (half = 0; half < KARST_COPY_HALVES; half++)
		if (qp->copy[half] != NULL)
			return true;
	return false;
}

/* Whether the requester waits for something other than the peer's answer. */
static bool
is_held_up(const struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;

	return r->snd_psn == r->una_psn || r->probe_due || (r->paced && karst_pacer_waits(qp)) ||
		((qp->flags & KARST_QPF_COPIES) && is_copying(qp));
}

uint64_t
karst_probe_expire(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;
	uint64_t from = r->deadline_ns - r->rto_ns, wait, at;

	if (!core->early || r->probes == PROBES_MAX || r->retry_left != r->retry_cnt ||
		(r->flags & (KARST_REQ_RNR_WAIT | KARST_REQ_UNSENT | KARST_REQ_FAILED)))
		return r->deadline_ns;
	wait = first_wait_ns(core, qp) << r->probes;
	if (r->probes != 0 && qp->probe.sent_ns > from)
		from = qp->probe.sent_ns;
	at = from + wait;
	if (core->now_ns >= at) {
		at = core->now_ns + wait;
		if (!is_held_up(qp)) {
			r->probe_due = 1;
			karst_core_activate(core, qp);
			at += wait;
		}
	}
	return at < r->deadline_ns ? at : r->deadline_ns;
}

void
karst_probe_sent(struct karst_core *core, struct karst_core_qp *qp, uint32_t end)
{
	struct karst_requester *r = &qp->req;

	karst_count(&core->counters, KARST_CTR_ADP_RETRANS);
	r->probe_due = r->timing = 0;
	r->probe_out = 1;
	if (!karst_mutant(KARST_MUTANT_PROBE_STORM))
		r->probes++;
	if (karst_mutant(KARST_MUTANT_PROBE_SPENDS) && r->retry_left != 0)
		r->retry_left--;
	qp->probe.sent_ns = core->now_ns;
	qp->probe.end_psn = end;
}

void
karst_probe_went_back(struct karst_core *core, struct karst_core_qp *qp)
{
	qp->req.probes++;
	qp->probe.sent_ns = core->now_ns;
}

bool
karst_probe_answered(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;
	int32_t past = karst_psn_diff(r->una_psn, qp->probe.end_psn);

	if (r->probes != 0) {
		/* the requester went back since: the time that took is no measurement */
		if (r->probe_out)
			take_sample(&qp->probe, core->now_ns - qp->probe.sent_ns);
		r->probes = 0;
		/* the timer is armed for a later probe, or for the deadline */
		karst_requester_timer_del(core, qp);
	}
	r->probe_due = 0;
	if (!r->probe_out)
		return false;
	/* the answers of a READ arrive one by one */
	if (past < 0)
		return false;
	r->probe_out = 0;
	if (past != 0 || r->snd_psn == r->una_psn || karst_repeat_of(qp) != NULL ||
		karst_gaps_any(qp))
		return false;
	/* the loss may have been due to an overload */
	qp->probe.steady = karst_psn_distance(r->snd_psn, r->una_psn) / 2;
	qp->probe.acked = 0;
	r->window = karst_min_u32(r->window, RESTART_WINDOW);
	return true;
}

void
karst_probe_widen(struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn)
{
	struct karst_requester *r = &qp->req;
	struct karst_probe *p = &qp->probe;

	/* if una has overtaken the cursor, that is adjusted later */
	if (karst_psn_before(r->snd_psn, r->una_psn) ||
		karst_psn_distance(r->snd_psn, r->una_psn) <= r->window / 2)
		r->wary = KARST_WARY_FIRST;
	else if (r->wary == KARST_WARY_WAITS)
		r->wary = KARST_WARY_LAST;
	if (r->window < p->steady) {
		r->window += npsn;
	} else if ((p->acked += npsn) >= r->window) {
		p->acked = 0;
		r->window++;
	}
	if (r->window < core->window_packets)
		return;
	r->window = core->window_packets;
	r->told = 0;
	p->steady = core->window_packets;
}

/* --- a full window --- */

void
karst_probe_be_wary(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;
	struct karst_probe *p = &qp->probe;

	if (karst_repeat_of(qp) != NULL)
		return;
	r->told = 1;
	if (r->window > core->wary_packets) {
		r->window = core->wary_packets;
		p->acked = 0;
	}
	p->steady = karst_min_u32(p->steady, core->wary_packets);
}

bool
karst_probe_wants(const struct karst_core *core, const struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	const struct karst_sq_slot *slot = &r->slots[r->una_idx & qp->sq.mask];

	/* if a timeout has reduced the window, nothing gets through */
	if (!r->told || r->wary == KARST_WARY_NOT || r->wary == KARST_WARY_WAITS ||
		r->window < core->wary_packets || karst_repeat_of(qp) != NULL ||
		!karst_qp_may_send(qp) || r->rto_ns == 0)
		return false;
	return !(r->flags & (KARST_REQ_RNR_WAIT | KARST_REQ_UNSENT | KARST_REQ_FAILED)) &&
		!(slot->flags & (KARST_SLOT_RD_ATOMIC | KARST_SLOT_LOCAL)) && !is_held_up(qp);
}

void
karst_probe_wary_sent(struct karst_core_qp *qp)
{
	/* either copy may be answered */
	qp->req.timing = 0;
	qp->req.wary = qp->req.wary == KARST_WARY_FIRST ? KARST_WARY_WAITS : KARST_WARY_NOT;
}
