/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Delay-based congestion control (E7): which schedules use it, and checks of the frames that are
 * sent.
 *
 * There is no model of the window.  The window grows by at most "ai" for each packet from the peer,
 * so it is never above its initial value plus that growth, nor above the maximum.  Frames are
 * checked against this bound: the packets in flight, and, if the window is smaller than a request,
 * the time without a frame after it.  A round trip takes at least as long as the links need.
 */
#include "karst_opcode.h"
#include "karst_psn.h"
#include "sim.h"

#define BAD(s, ep, p, fmt, ...)                                                           \
	sim_fail(s, "pair %u, QP %#x sent %s psn %06x: " fmt, (ep)->pair->idx, (ep)->qpn, \
		karst_opcode_name((p)->opcode), (p)->psn, ##__VA_ARGS__)

/* Limits of a wait: for each packet, and for all packets of a request. */
#define WAIT_PACKET_NS 10000000ull
#define WAIT_NS        1000000000ull

/* Replaces notification alone in some schedules.  The others do not change, and the constant is
 * chosen so that the schedules of seeds.txt are among those that do not change. */
void
sim_delay_config(struct sim *s)
{
	struct sim_rng r = {.state = sim_mix(s->seed ^ 0x64656c61beull)};
	struct karst_rp_params *p = &s->congestion.rp;

	if (s->congestion.mode != KARST_CONGESTION_NOTIFY || rng_one_in(&r, 4))
		return;
	s->congestion.mode = KARST_CONGESTION_SWIFT;
	p->swift_ai = rng_log(&r, 1, 100000);
	p->swift_base_target = rng_log(&r, 1, 1000);
	p->swift_beta = rng_range(&r, 1, 1000);
	p->swift_fs_range = rng_below(&r, 1000);
	p->swift_fs_min_cwnd = rng_log(&r, 1, 1000);
	p->swift_fs_max_cwnd = rng_log(&r, 2000, 1000000);
	p->swift_initial_cwnd = rng_log(&r, 50, 64000);
	p->swift_max_cwnd = rng_log(&r, 1000, 256000);
	p->swift_min_cwnd = rng_log(&r, 10, 1000);
	p->swift_max_mdf = rng_range(&r, 1, 999);
	p->swift_retx_reset = rng_range(&r, 1, 16);
	/* often the window hardly grows */
	if (rng_one_in(&r, 2))
		p->swift_ai = 1;
}

void
sim_delay_reset(struct sim_ep *ep)
{
	ep->pause_ns = 0;
	ep->answers = 0;
}

/* Congestion control starts again (G4); packets from the peer still bound the window. */
void
sim_delay_migrated(struct sim_ep *ep)
{
	ep->pause_ns = 0;
}

void
sim_delay_heard(struct sim_ep *ep, const struct karst_pkt *p)
{
	if ((karst_opcode_flags(p->opcode) & KARST_OPF_RESPONSE) != 0)
		ep->answers++;
}

/* The largest window that the queue pair can have, in thousandths of a packet. */
static uint64_t
largest(const struct sim *s, const struct sim_ep *ep)
{
	const struct karst_rp_params *p = &s->congestion.rp;
	uint64_t first = karst_max_u64(p->swift_initial_cwnd, p->swift_min_cwnd);

	/* 1 for rounding */
	return karst_min_u64(p->swift_max_cwnd, first + (uint64_t)p->swift_ai * ep->answers) + 1;
}

/* Number of packets of a request, or of its response if that has more. */
static uint32_t
packets_of(const struct sim_ep *ep, const struct karst_pkt *p)
{
	if ((p->opcode & KARST_OPERATION_MASK) != (KARST_RC_READ_REQUEST & KARST_OPERATION_MASK))
		return 1;
	return karst_psn_count(p->dma_len, ep->pair->mtu_shift);
}

static bool
asks_for_answer(const struct karst_pkt *p)
{
	return (karst_opcode_flags(p->opcode) & (KARST_OPF_SEND | KARST_OPF_WRITE)) == 0;
}

/* A new request must fit into the window together with the packets in flight.  A request whose
 * response has more packets than the window must be sent alone.  One packet may exceed the window,
 * to ask for an acknowledgement. */
static void
check_window(struct sim *s, const struct sim_ep *ep, const struct karst_pkt *p, uint32_t n)
{
	uint64_t window = karst_max_u64(largest(s, ep) / 1000, 1);
	uint32_t at = karst_psn_add(p->psn, (uint32_t)-ep->sq_psn), out = at - ep->acked;

	/* only the requester knows what was acknowledged behind a missing packet */
	if (at != ep->tx_hi || at < ep->acked || sim_repeats(ep))
		return;
	if (asks_for_answer(p) ? out != 0 && out + n > window : out > window)
		BAD(s, ep, p, "%u packets under way, and %u more: the window is %u at most (E7)",
			out, n, (uint32_t)window);
}

void
sim_delay_sent(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p)
{
	const struct sim_link *to = &s->links[ep->node->idx][ep->peer->node->idx];
	const struct sim_link *from = &s->links[ep->peer->node->idx][ep->node->idx];
	uint64_t rtt = karst_min_u64(s->congestion.rp.swift_base_target * 1000ull,
		(uint64_t)to->delay_ns + from->delay_ns);
	uint64_t most = largest(s, ep), wait;
	uint32_t n;

	if (s->congestion.mode != KARST_CONGESTION_SWIFT || ep->pair->type != KARST_QPT_RC ||
		!(karst_opcode_flags(p->opcode) & KARST_OPF_REQUEST))
		return;
	n = packets_of(ep, p);
	check_window(s, ep, p, n);
	if (s->now_ns < ep->pause_ns)
		BAD(s, ep, p, "%llu ns too early (E7)",
			(unsigned long long)(ep->pause_ns - s->now_ns));
	if (n * 1000ull <= most)
		return;
	wait = karst_min_u64(rtt * n * 1000 / most, karst_min_u64(WAIT_PACKET_NS * n, WAIT_NS));
	ep->pause_ns = s->now_ns + wait;
}
