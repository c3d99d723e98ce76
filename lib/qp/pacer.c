/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The token bucket counts in billionths of a bit: in a nanosecond it gets as many of these as the
 * rate has bits per second.  So nothing is ever rounded, and a rate is exact in the long run, at
 * 1 Mb/s as at 100 Gb/s.  A frame leaves when the bucket is not in debt, and may put it there.
 *
 * Timers are late, by two ticks of the wheel and by whatever else the lcore had to do.  Who has
 * been waiting for one gets the tokens of that time, so that lateness costs no rate; who had
 * nothing to send gets those of a tick, or of a burst, if its program has asked for one.
 *
 * What tokens are taken for: all frames but acknowledgements and CNPs.  These go out whatever the
 * bucket says, and so does the end of a queue pair.
 */
#include "pacer.h"

#include "karst_opcode.h"

#include <errno.h>

/* A bit, and a byte, in tokens. */
#define BIT  1000000000ll
#define BYTE (8 * BIT)

/* Lateness that is made up for. */
#define LATE_NS 250000u
/* What an idle queue pair saves. */
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

/* The tokens since last time. */
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

/* What it may send at now; 0: as much as it can. */
static void
renew_rate(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_pacer *p = &qp->pacer;
	uint64_t rate = UINT64_MAX;

	if (p->cc.rate != 0) {
		karst_dcqcn_advance(&p->cc, core->rp, core->now_ns);
		if (karst_dcqcn_limits(&p->cc) && !karst_mutant(KARST_MUTANT_NO_RATE))
			rate = p->cc.rate;
	}
	if (p->program_rate != 0)
		rate = karst_min_u64(rate, p->program_rate);
	p->rate = rate != UINT64_MAX ? rate : 0;
	qp->req.paced = p->rate != 0;
}

uint32_t
karst_pacer_limit(struct karst_core *core, struct karst_core_qp *qp, const struct karst_tx_burst *b,
	uint32_t limit)
{
	struct karst_pacer *p = &qp->pacer;

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
	struct karst_pacer *p = &qp->pacer;
	uint32_t bytes = 0;
	uint64_t ns;

	for (; n < b->n; n++)
		if (is_charged(b->pkts[n]))
			bytes += b->pkts[n]->len;
	if (p->cc.rate != 0)
		karst_dcqcn_sent(&p->cc, core->rp, bytes);
	p->tokens = p->rate != 0 ? p->tokens - bytes * BYTE : 0;
	p->waits = more;
	if (!more || p->tokens >= 0 || karst_mutant(KARST_MUTANT_NO_WAIT))
		return more;
	/* once for each wait, not for each frame: a division is not too much */
	ns = core->now_ns + ((uint64_t)-p->tokens + p->rate - 1) / p->rate;
	if (p->cc.rate != 0)
		ns = karst_min_u64(ns, karst_dcqcn_next(&p->cc, core->rp));
	karst_wheel_add(&core->wheel, &p->timer, ns);
	return false;
}

void
karst_qp_rate_limit(struct karst_core *core, struct karst_core_qp *qp, uint64_t bps, uint32_t burst)
{
	struct karst_pacer *p = &qp->pacer;

	if (qp->req.paced)
		refill(p, core->now_ns);
	else
		p->filled_ns = core->now_ns;
	p->program_rate = bps;
	p->burst = burst;
	renew_rate(core, qp);
	/* who waits by the rate before looks again */
	karst_core_activate(core, qp);
}

bool
karst_pacer_cnp(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_pacer *p = &qp->pacer;

	if (core->rp == NULL || qp->type == KARST_QPT_UD)
		return false;
	if (qp->req.paced)
		refill(p, core->now_ns);
	else
		p->filled_ns = core->now_ns;
	karst_dcqcn_cnp(&p->cc, core->rp, core->line_bps, core->now_ns);
	renew_rate(core, qp);
	return true;
}

void
karst_qp_rate(struct karst_core *core, struct karst_core_qp *qp, struct karst_qp_rate *r)
{
	const struct karst_pacer *p = &qp->pacer;

	if (qp->req.paced)
		renew_rate(core, qp);
	*r = (struct karst_qp_rate){
		.rate = p->rate,
		.program_rate = p->program_rate,
		.cc_rate = p->cc.rate,
		.cc_target = p->cc.target,
		.cc_alpha = p->cc.alpha / (KARST_ALPHA_ONE / 1024),
	};
}

int
karst_core_set_rp(struct karst_core *core, const struct karst_rp_params *p)
{
	if (core->rp == NULL || !karst_rp_params_valid(p))
		return -EINVAL;
	karst_rp_set(core->rp, p);
	return 0;
}

void
karst_pacer_expire(struct karst_core *core, struct karst_core_qp *qp)
{
	karst_core_activate(core, qp);
}

void
karst_pacer_reset(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_pacer *p = &qp->pacer;

	karst_wheel_del(&core->wheel, &p->timer);
	*p = (struct karst_pacer){.timer = {.kind = KARST_TIMER_PACER}};
	qp->req.paced = 0;
}
