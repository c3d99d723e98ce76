/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The token bucket counts in billionths of a bit: in a nanosecond it gets as many of these as the
 * rate has bits per second.  So nothing is ever rounded, and a rate is exact in the long run, at 1
 * Mb/s as at 100 Gb/s.  A frame may be sent when the bucket is not negative, and may make it
 * negative.
 *
 * Timers fire late, by two ticks of the wheel and by whatever else the lcore had to do.  A queue
 * pair that was waiting for one gets the tokens of that time, so that lateness does not reduce the
 * rate.  A queue pair that had nothing to send gets the tokens of a tick, or of a burst, if its
 * program has requested one.
 *
 * Tokens are taken for all frames except acknowledgements and CNPs.  These are sent, and a queue
 * pair in Error is flushed, whatever the bucket contains.
 *
 * Control by delay (E7) applies only to the requester, which measures round trips.  The answer of a
 * READ counts against the window of the queue pair that reads, so no window limits the answers that
 * the responder sends.
 */
#include "pacer.h"

#include "repeat.h"

#include "karst_opcode.h"

#include <errno.h>

/* A bit, and a byte, in tokens. */
#define BIT  1000000000ll
#define BYTE (8 * BIT)

/* The rate assumed for a link that does not report one. */
#define UNKNOWN_LINE_MBPS 100000u
/* Limit of the lateness for which tokens are added. */
#define LATE_NS 250000u
/* The time for which an idle queue pair accumulates tokens. */
#define IDLE_NS KARST_WHEEL_TICK_NS

static int64_t
clamp(__int128 v, int64_t most)
{
	return v > most ? most : (int64_t)v;
}

static int64_t
tokens_of(uint64_t rate, uint64_t ns)
{
	return clamp((__int128)rate * ns, INT64_MAX);
}

/* Adds the tokens since the last call. */
static void
refill(struct karst_pacer *p, uint64_t now_ns)
{
	int64_t most = tokens_of(p->rate, p->waits ? LATE_NS : IDLE_NS);
	int64_t least = p->burst * BYTE;
	uint64_t ns = now_ns > p->filled_ns ? now_ns - p->filled_ns : 0;

	/* at low rates a frame takes longer */
	if (p->waits && p->burst < KARST_FRAME_MAX)
		least = KARST_FRAME_MAX * BYTE;
	most = most > least ? most : least;
	p->tokens = clamp(p->tokens + (__int128)p->rate * ns, most);
	p->filled_ns = now_ns;
}

/* Before the rate changes: the time until now counts with the old rate.  If there was no limit,
 * what an earlier one has left, such as a debt of tokens, is discarded. */
static void
catch_up(struct karst_core_qp *qp, uint64_t now_ns)
{
	struct karst_pacer *p = qp->pacer;

	if (qp->req.paced) {
		refill(p, now_ns);
		return;
	}
	p->tokens = 0;
	p->waits = p->parked = 0;
	p->filled_ns = now_ns;
}

/* Whether the queue pair is subject to control by delay. */
static inline bool
has_window(const struct karst_core *core, const struct karst_pacer *p)
{
	return core->swift != NULL && p->swift.cwnd != 0;
}

/* Sets the rate at which it may send now; 0: no limit. */
static void
renew_rate(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_pacer *p = qp->pacer;
	uint64_t rate = UINT64_MAX;

	if (core->rp != NULL && p->cc.rate != 0) {
		karst_dcqcn_advance(&p->cc, core->rp, core->now_ns);
		if (karst_dcqcn_limits(&p->cc) && !karst_mutant(KARST_MUTANT_NO_RATE))
			rate = p->cc.rate;
	}
	if (p->program_kbps != 0)
		rate = karst_min_u64(rate, p->program_kbps * 1000ull);
	p->rate = rate != UINT64_MAX ? rate : 0;
	qp->req.paced = p->rate != 0 || has_window(core, p);
}

uint32_t
karst_pacer_limit(struct karst_core *core, struct karst_core_qp *qp, const struct karst_tx_burst *b,
	uint32_t limit)
{
	struct karst_pacer *p = qp->pacer;

	refill(p, core->now_ns);
	renew_rate(core, qp);
	if (p->rate == 0 || b->bytes >= limit)
		return limit;
	if (p->tokens < 0 && !karst_mutant(KARST_MUTANT_NO_WAIT))
		return b->bytes;
	if (p->tokens / BYTE >= limit - b->bytes)
		return limit;
	return b->bytes + (uint32_t)(p->tokens / BYTE) + 1;
}

static bool
is_charged(const struct karst_pkt *pkt)
{
	return (pkt->opcode & KARST_OPERATION_MASK) != KARST_OPERATION_ACK;
}

bool
karst_pacer_charge(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_tx_burst *b, uint32_t n, bool more)
{
	struct karst_pacer *p = qp->pacer;
	uint32_t bytes = 0;
	bool holds = karst_pacer_holds(core, qp);
	uint64_t ns = holds ? p->swift.next_ns : UINT64_MAX;

	for (; n < b->n; n++)
		if (is_charged(b->pkts[n]))
			bytes += b->pkts[n]->len;
	if (core->rp != NULL && p->cc.rate != 0)
		karst_dcqcn_sent(&p->cc, core->rp, bytes);
	p->tokens = p->rate != 0 ? p->tokens - bytes * BYTE : 0;
	p->waits = more || holds;
	p->parked = 0;
	if (more && p->tokens < 0 && !karst_mutant(KARST_MUTANT_NO_WAIT)) {
		/* this is once for each wait, not for each frame, so a division is acceptable */
		ns = karst_min_u64(
			ns, core->now_ns + ((uint64_t)-p->tokens + p->rate - 1) / p->rate);
		if (core->rp != NULL && p->cc.rate != 0)
			ns = karst_min_u64(ns, karst_dcqcn_next(&p->cc, core->rp));
		more = false;
	}
	if (ns != UINT64_MAX)
		karst_timer_add(core, qp->sharer, &p->timer, ns);
	return more;
}

/* --- control by delay --- */

/* PSNs under way, of requests and of answers. */
static uint32_t
pacer_under_way(struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;

	return karst_repeat_of(qp) != NULL ? karst_repeat_under_way(qp)
					   : karst_psn_distance(r->snd_psn, r->una_psn);
}

uint32_t
karst_pacer_room(const struct karst_core *core, struct karst_core_qp *qp, uint32_t room)
{
	uint32_t window = karst_pacer_window(core, qp), out, behind;

	if (window == UINT32_MAX || room == 0)
		return room;
	if (karst_pacer_holds(core, qp))
		return 0;
	out = pacer_under_way(qp);
	/* packets that ask for nothing */
	behind = 0;
	if (qp->type != KARST_QPT_UC)
		behind = karst_psn_distance(qp->req.snd_psn, qp->req.asked_psn);
	/* when the window becomes smaller than what is under way, perhaps nothing of that asks for
	 * an acknowledgement: then one more packet is sent, which does */
	if (out >= window)
		return out != 0 && behind != 0 ? 1 : 0;
	return out + 1 == window || 2 * (behind + 1) >= window ? 1 : room;
}

bool
karst_pacer_fits(const struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn)
{
	uint32_t window = karst_pacer_window(core, qp), out;

	if (window == UINT32_MAX || karst_mutant(KARST_MUTANT_READ_FREE))
		return true;
	if (karst_pacer_holds(core, qp))
		return false;
	out = pacer_under_way(qp);
	return out == 0 || (out < window && npsn <= window - out);
}

void
karst_pacer_sent(const struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn)
{
	if (has_window(core, qp->pacer))
		karst_swift_sent(&qp->pacer->swift, core->swift, npsn, core->now_ns);
}

void
karst_pacer_acked(const struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn)
{
	if (has_window(core, qp->pacer))
		karst_swift_acked(&qp->pacer->swift, npsn);
}

void
karst_pacer_delay(const struct karst_core *core, struct karst_core_qp *qp, uint64_t ns)
{
	if (has_window(core, qp->pacer))
		karst_swift_delay(&qp->pacer->swift, core->swift, ns, core->now_ns);
}

void
karst_pacer_lost(const struct karst_core *core, struct karst_core_qp *qp)
{
	if (karst_likely(!has_window(core, qp->pacer)))
		return;
	karst_swift_lost(&qp->pacer->swift, core->swift, core->now_ns);
	/* an acknowledgement of what is under way may have had to wait for what is missing */
	qp->req.timing = 0;
}

void
karst_pacer_timeout(const struct karst_core *core, struct karst_core_qp *qp)
{
	if (has_window(core, qp->pacer))
		karst_swift_timeout(&qp->pacer->swift, core->swift, core->now_ns);
}

/* --- */

void
karst_qp_rate_limit(struct karst_core *core, struct karst_core_qp *qp, uint32_t kbps,
	uint32_t burst, void *pacer_mem)
{
	struct karst_pacer *p;

	if (qp->pacer == NULL && kbps == 0)
		return;
	if (qp->pacer == NULL)
		karst_pacer_open(qp, pacer_mem);
	p = qp->pacer;
	catch_up(qp, core->now_ns);
	p->program_kbps = kbps;
	p->burst = karst_min_u32(burst, (1u << 30) - 1);
	renew_rate(core, qp);
	/* if it waits for tokens at the old rate, it recomputes the wait */
	karst_core_activate(core, qp);
}

/* The bit/s of the link that it sends over; the highest rate if no other is set (E2). */
static uint64_t
line_of(const struct karst_core *core, const struct karst_core_qp *qp)
{
	uint32_t mbps = core->line_mbps[qp->path.port % KARST_CORE_PORTS];

	return (mbps != 0 ? mbps : UNKNOWN_LINE_MBPS) * 1000000ull;
}

bool
karst_pacer_cnp(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_pacer *p = qp->pacer;

	if (core->rp == NULL || qp->type == KARST_QPT_UD)
		return false;
	catch_up(qp, core->now_ns);
	karst_dcqcn_cnp(&p->cc, core->rp, line_of(core, qp), core->now_ns);
	renew_rate(core, qp);
	return true;
}

void
karst_qp_rate(struct karst_core *core, struct karst_core_qp *qp, struct karst_qp_rate *r)
{
	const struct karst_pacer *p = qp->pacer;

	*r = (struct karst_qp_rate){0};
	if (p == NULL)
		return;
	if (qp->req.paced)
		renew_rate(core, qp);
	*r = (struct karst_qp_rate){
		.rate = p->rate,
		.program_rate = p->program_kbps * 1000ull,
	};
	if (core->rp != NULL) {
		r->cc_rate = p->cc.rate;
		r->cc_target = p->cc.target;
		r->cc_alpha = p->cc.alpha / (KARST_ALPHA_ONE / 1024);
	}
	if (has_window(core, p)) {
		r->cwnd = (uint32_t)(p->swift.cwnd * 1000 / KARST_SWIFT_ONE);
		r->target_ns = p->swift.target_ns;
		r->delay_ns = p->swift.delay_ns;
	}
}

int
karst_core_set_rp(struct karst_core *core, const struct karst_rp_params *p)
{
	if ((core->rp == NULL && core->swift == NULL) || !karst_rp_params_valid(p))
		return -EINVAL;
	if (core->rp != NULL)
		karst_rp_set(core->rp, p);
	if (core->swift != NULL)
		karst_swift_set(core->swift, p);
	return 0;
}

void
karst_pacer_parked(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_pacer *p = qp->pacer;

	if (!p->waits || p->parked)
		return;
	p->parked = 1;
	karst_requester_fed(core, qp);
}

void
karst_pacer_expire(struct karst_core *core, struct karst_core_qp *qp)
{
	karst_core_activate(core, qp);
}

/* Restarts congestion control without any knowledge of the network. */
static void
begin_control(const struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_pacer *p = qp->pacer;

	if (core->rp != NULL)
		p->cc = (struct karst_dcqcn){0};
	/* a queue pair that receives no acknowledgements cannot measure the delay */
	if (core->swift != NULL && karst_qp_reliable(qp) && qp->type != KARST_QPT_XRC_RECV)
		karst_swift_begin(&p->swift, core->swift);
}

size_t
karst_qp_pacer_bytes(void)
{
	return sizeof(struct karst_pacer);
}

void
karst_pacer_open(struct karst_core_qp *qp, struct karst_pacer *mem)
{
	if (mem != NULL)
		*mem = (struct karst_pacer){.qp = qp, .timer = {.kind = KARST_TIMER_PACER}};
	qp->pacer = mem;
}

void
karst_pacer_reset(struct karst_core *core, struct karst_core_qp *qp)
{
	if (qp->pacer == NULL)
		return;
	karst_timer_del(core, qp->sharer, &qp->pacer->timer);
	karst_pacer_open(qp, qp->pacer);
	begin_control(core, qp);
	renew_rate(core, qp);
}

void
karst_pacer_another_path(struct karst_core *core, struct karst_core_qp *qp)
{
	if (qp->pacer == NULL)
		return;
	catch_up(qp, core->now_ns);
	begin_control(core, qp);
	renew_rate(core, qp);
}
