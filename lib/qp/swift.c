/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Congestion control by delay, after "Swift: Delay is Simple and Effective for Congestion Control
 * in the Datacenter" (SIGCOMM 2020), as far as possible without the peer's help.
 *
 *	each round trip:  below the target  window += ai * acked / window; below 1: += ai * acked
 *	                  above             window *= max(1 - beta * (d - t) / d, 1 - max_mdf)
 *	a loss:                             window *= 1 - max_mdf
 *	timeouts in a row:                  likewise; when they are many the window is the least
 *	target:                             base + clamp(a / sqrt(window) + b, 0, range)
 *
 * The window is reduced at most once in a round trip.  a and b are such that range is added to the
 * target of a window of fs_min, and nothing to that of fs_max: small windows, of which there are
 * many on a link, may have a longer delay, so that large ones are reduced first.
 *
 * Differences from the paper.  One round trip is measured at a time, not one for each
 * acknowledgement, so what was acknowledged since the previous one counts at once.  The packets of
 * one window are acknowledged in one round trip, so the sum is the same.  The peer's part of a
 * round trip is not known, so there is one target and one window instead of two, for network and
 * hosts together.  The number of switches is not known either, so nothing is added for these.
 *
 * A window of less than 1 is one packet, and an interval of round trip / window from each to the
 * next.  The same applies to a READ that asks for more than the window: it is sent alone, and
 * nothing follows for as long as the window would have taken for it.
 */
#include "swift.h"

/* Limits of a wait: for each packet, and for all that a READ asks for. */
#define WAIT_PACKET_NS 10000000u
#define WAIT_NS        1000000000u

/* --- parameters --- */

static uint64_t
root(uint64_t v)
{
	uint64_t r = 0, bit = 1ull << 62;

	for (; bit != 0; bit >>= 2) {
		if (v >= r + bit) {
			v -= r + bit;
			r = (r >> 1) + bit;
		} else {
			r >>= 1;
		}
	}
	return r;
}

/* 1 / sqrt(@cwnd), in units of 1/KARST_SWIFT_ONE. */
static uint64_t
inverse_root(uint64_t cwnd)
{
	return (uint64_t)KARST_SWIFT_ONE * KARST_SWIFT_ONE / root(cwnd * KARST_SWIFT_ONE);
}

/* Converts thousandths to units of 1/KARST_SWIFT_ONE. */
static uint64_t
ones(uint32_t thousandths)
{
	return (uint64_t)thousandths * KARST_SWIFT_ONE / 1000;
}

void
karst_swift_set(struct karst_swift_rp *rp, const struct karst_rp_params *p)
{
	*rp = (struct karst_swift_rp){
		.least = ones(p->swift_min_cwnd),
		.most = ones(p->swift_max_cwnd),
		.ai = ones(p->swift_ai),
		.base_ns = p->swift_base_target * 1000,
		.range_ns = p->swift_fs_range * 1000,
		.root_min = inverse_root(ones(p->swift_fs_min_cwnd)),
		.root_max = inverse_root(ones(p->swift_fs_max_cwnd)),
		.beta = (uint32_t)ones(p->swift_beta),
		.max_mdf = (uint32_t)ones(p->swift_max_mdf),
		.retx_reset = p->swift_retx_reset,
	};
	rp->first = karst_min_u64(karst_max_u64(ones(p->swift_initial_cwnd), rp->least), rp->most);
}

void
karst_swift_begin(struct karst_swift *s, const struct karst_swift_rp *rp)
{
	*s = (struct karst_swift){
		.cwnd = rp->first,
		.target_ns = karst_swift_target(rp, rp->first),
	};
}

uint32_t
karst_swift_target(const struct karst_swift_rp *rp, uint64_t cwnd)
{
	uint64_t r = inverse_root(cwnd);

	r = karst_min_u64(karst_max_u64(r, rp->root_max), rp->root_min);
	return rp->base_ns +
		(uint32_t)(rp->range_ns * (r - rp->root_max) / (rp->root_min - rp->root_max));
}

/* --- the window --- */

/* The newest round trip, or the base target if none is known. */
static uint64_t
round_trip(const struct karst_swift *s, const struct karst_swift_rp *rp)
{
	return s->delay_ns != 0 ? s->delay_ns : rp->base_ns;
}

static void
set_window(struct karst_swift *s, const struct karst_swift_rp *rp, uint64_t cwnd)
{
	s->cwnd = karst_min_u64(karst_max_u64(cwnd, rp->least), rp->most);
}

/* Reduces the window by the part @cut, in units of 1/KARST_SWIFT_ONE, unless it was reduced in the
 * last round trip. */
static void
swift_reduce(struct karst_swift *s, const struct karst_swift_rp *rp, uint64_t cut, uint64_t now_ns)
{
	if (s->cut_ns != 0 && now_ns < s->cut_ns + round_trip(s, rp))
		return;
	cut = karst_min_u64(cut, rp->max_mdf);
	set_window(s, rp, s->cwnd * (KARST_SWIFT_ONE - cut) / KARST_SWIFT_ONE);
	s->cut_ns = now_ns;
}

static void
grow(struct karst_swift *s, const struct karst_swift_rp *rp)
{
	/* no more than a window is acknowledged in a round trip, except by READs that exceed it */
	uint64_t more = rp->ai * karst_min_u32(s->acked, karst_swift_window(s));

	if (s->cwnd >= KARST_SWIFT_ONE)
		more = more * KARST_SWIFT_ONE / s->cwnd;
	set_window(s, rp, s->cwnd + more);
}

void
karst_swift_acked(struct karst_swift *s, uint32_t npsn)
{
	s->acked += npsn;
	s->timeouts = 0;
}

void
karst_swift_delay(
	struct karst_swift *s, const struct karst_swift_rp *rp, uint64_t delay_ns, uint64_t now_ns)
{
	uint64_t d = karst_min_u64(karst_max_u64(delay_ns, 1), UINT32_MAX);

	s->delay_ns = (uint32_t)d;
	s->target_ns = karst_swift_target(rp, s->cwnd);
	if (d < s->target_ns)
		grow(s, rp);
	else
		swift_reduce(s, rp, rp->beta * (d - s->target_ns) / d, now_ns);
	s->acked = 0;
}

void
karst_swift_lost(struct karst_swift *s, const struct karst_swift_rp *rp, uint64_t now_ns)
{
	swift_reduce(s, rp, rp->max_mdf, now_ns);
}

void
karst_swift_timeout(struct karst_swift *s, const struct karst_swift_rp *rp, uint64_t now_ns)
{
	if (++s->timeouts < rp->retx_reset) {
		swift_reduce(s, rp, rp->max_mdf, now_ns);
		return;
	}
	set_window(s, rp, 0);
	s->cut_ns = now_ns;
}

/* --- time between requests --- */

void
karst_swift_sent(
	struct karst_swift *s, const struct karst_swift_rp *rp, uint32_t npsn, uint64_t now_ns)
{
	uint64_t most = karst_min_u64((uint64_t)WAIT_PACKET_NS * npsn, WAIT_NS), wait;

	if (s->cwnd >= (uint64_t)npsn * KARST_SWIFT_ONE)
		return;
	wait = (uint64_t)((unsigned __int128)round_trip(s, rp) * npsn * KARST_SWIFT_ONE / s->cwnd);
	s->next_ns = karst_max_u64(s->next_ns, now_ns) + karst_min_u64(wait, most);
	/* packets that are sent again may be sent before that */
	s->next_ns = karst_min_u64(s->next_ns, now_ns + WAIT_NS);
}
