/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Tests that need more packets, or more work requests, than a schedule has.  After the traffic of
 * an epoch, one connection continues directly between its two cores, without links, fates and
 * model.
 *
 *   busy   a peer that always has READs outstanding: the queue pair that answers them must still
 *          send its own requests
 *   feed   a program whose ring is never empty, with requests that make no frame: no visit may take
 *          more of them than allowed
 *   lap    2^24 WRITEs of no bytes: all PSNs and MSNs are used once, so that afterwards both ends
 *          are where they were before, and saved READs and atomics must have expired (P1)
 */
#include "karst_opcode.h"
#include "karst_parse.h"
#include "sim.h"

#define FEED_VISITS 6u
#define BUSY_VISITS 16u
#define PATIENCE    8u

/* Makes one visit with room for @max frames, which the peer receives at once.  @return the number
 * of frames. */
static uint32_t
carry(struct sim *s, struct sim_ep *ep, uint32_t max)
{
	struct sim_core *c = ep->core, *to = ep->peer->core;
	struct karst_pkt pkts[SIM_MAX_BURST], *ptrs[SIM_MAX_BURST];
	struct sim_frame *frames[SIM_MAX_BURST];
	struct karst_seal seals[SIM_MAX_BURST];
	struct karst_seg segs[SIM_MAX_BURST * KARST_WQ_MAX_SGE];
	struct karst_tx_burst b = {.pkts = ptrs,
		.seals = seals,
		.segs = segs,
		.max = max,
		.max_segs = KARST_DIM(segs)};
	uint32_t i;

	for (i = 0; i < SIM_MAX_BURST; i++) {
		frames[i] = sim_frame_get(s);
		pkts[i].data = frames[i]->buf;
		ptrs[i] = &pkts[i];
	}
	karst_qp_tx(c->core, ep->qp, &b, UINT32_MAX);
	for (i = 0; i < b.n; i++) {
		struct karst_pkt p = {.data = pkts[i].data, .len = pkts[i].len};

		if (karst_parse(&p) != KARST_DROP_NONE)
			sim_fail(s, "QP %#x sent a frame that is not RoCE", ep->qpn);
		p.qp = karst_core_lookup(to->core, p.dqpn);
		if (p.qp == NULL)
			sim_fail(s, "QP %#x sent to QP %#x", ep->qpn, p.dqpn);
		/* A CNP that the earlier traffic has left would slow the peer down, and no time
		 * passes here.  Losing a CNP is harmless (E5). */
		if (p.opcode != KARST_CNP)
			karst_qp_rx(to->core, &p);
	}
	for (i = 0; i < SIM_MAX_BURST; i++)
		sim_frame_put(s, frames[i]);
	c->tx_packets += b.n;
	return b.n;
}

static uint32_t
completed(const struct sim_ep *ep)
{
	uint32_t seen, done;

	karst_qp_send_queue(ep->qp, &seen, &done);
	return done;
}

static struct karst_send_wqe *
blank(struct sim_ep *ep, uint32_t i, enum karst_wr_opcode opcode)
{
	struct karst_send_wqe *w = karst_wq_slot(&ep->sq, i);

	memset(w, 0, sizeof(*w));
	w->opcode = (uint8_t)opcode;
	return w;
}

static void
publish(struct sim_ep *ep, uint32_t n)
{
	if (karst_wq_publish(&ep->sq, n))
		karst_core_doorbell(ep->core->core, ep->qpn);
}

/* Sets the clock of both cores. */
static void
begin(struct sim *s, struct sim_ep *ep)
{
	ep->core->core->now_ns = ep->peer->core->core->now_ns = s->now_ns;
}

static void
lap(struct sim *s, struct sim_ep *ep)
{
	uint32_t left = 1u << 24, end = completed(ep) + left, still = 0, i, n;

	sim_note(s, "pair %u QP %#x: once around the PSNs", ep->pair->idx, ep->qpn);
	begin(s, ep);
	while (completed(ep) != end) {
		n = karst_min_u32(karst_wq_free(&ep->sq, SIM_MAX_BURST), SIM_MAX_BURST);
		n = karst_min_u32(n, left);
		for (i = 0; i < n; i++)
			blank(ep, i, KARST_WR_RDMA_WRITE);
		if (n != 0)
			publish(ep, n);
		left -= n;
		n = carry(s, ep, SIM_MAX_BURST);
		n += carry(s, ep->peer, SIM_MAX_BURST);
		/* the flush frees slots of the rings */
		karst_core_flush(ep->core->core);
		karst_core_flush(ep->peer->core->core);
		if (karst_qp_state(ep->qp) != KARST_QPS_RTS)
			sim_fail(s, "pair %u, QP %#x failed, %u packets before the end of a lap",
				ep->pair->idx, ep->qpn, end - completed(ep));
		still = n != 0 ? 0 : still + 1;
		if (still > PATIENCE)
			sim_fail(s,
				"pair %u, QP %#x: %u packets before the end of a lap nothing is "
				"acknowledged any more (P1)",
				ep->pair->idx, ep->qpn, end - completed(ep));
	}
}

/* Each visit has room for one frame, so the responses to the READs never end. */
static void
busy(struct sim *s, struct sim_ep *ep)
{
	struct sim_ep *reader = ep->peer;
	uint32_t end = completed(ep) + 1, all = completed(reader), visits, i, n;

	begin(s, ep);
	for (visits = 0; completed(ep) != end; visits++) {
		if (visits == BUSY_VISITS)
			sim_fail(s,
				"pair %u, QP %#x: a WRITE was not sent and acknowledged in %u visits, "
				"since the peer's READs do not end",
				ep->pair->idx, ep->qpn, visits);
		n = karst_wq_free(&reader->sq, reader->init.max_send_wr);
		for (i = 0; i < n; i++)
			blank(reader, i, KARST_WR_RDMA_READ);
		if (n != 0)
			publish(reader, n);
		all += n;
		carry(s, reader, SIM_MAX_BURST);
		if (visits == 0 && karst_wq_free(&ep->sq, 1) != 0) {
			blank(ep, 0, KARST_WR_RDMA_WRITE);
			publish(ep, 1);
		}
		carry(s, ep, 1);
		karst_core_flush(ep->core->core);
		karst_core_flush(reader->core->core);
	}
	for (visits = 0; completed(reader) != all; visits++) {
		carry(s, reader, SIM_MAX_BURST);
		carry(s, ep, SIM_MAX_BURST);
		if (visits > reader->init.max_send_wr)
			sim_fail(s, "pair %u, QP %#x: READs of nothing do not end", ep->pair->idx,
				reader->qpn);
	}
	karst_core_flush(ep->core->core);
	karst_core_flush(reader->core->core);
}

/* Binds a type 1 window of no bytes again and again, each time with a new key. */
static void
feed(struct sim *s, struct sim_ep *ep)
{
	struct karst_mem *mem = ep->node->mem_table;
	uint32_t key, done = completed(ep), i, n, visits;

	if (karst_mw_alloc(mem, ep->init.pd, KARST_MEM_MW1, &key) != 0)
		sim_fail(s, "karst_mw_alloc()");
	begin(s, ep);
	for (visits = 0; visits < FEED_VISITS; visits++) {
		n = karst_wq_free(&ep->sq, ep->init.max_send_wr);
		for (i = 0; i < n; i++) {
			struct karst_send_wqe *w = blank(ep, i, KARST_WR_BIND_MW);

			w->bind.mw_key = key;
			key = (key & ~0xffu) | ((key + 1) & 0xff);
			w->bind.new_key = key;
		}
		if (n != 0)
			publish(ep, n);
		carry(s, ep, SIM_MAX_BURST);
		karst_core_flush(ep->core->core);
		n = completed(ep) - done;
		done += n;
		if (n > KARST_VISIT_QUIET)
			sim_fail(s, "pair %u, QP %#x: a visit took %u requests that make no frame",
				ep->pair->idx, ep->qpn, n);
	}
	/* the rest of the requests */
	for (visits = 0; completed(ep) != done || visits < 64; visits++) {
		done = completed(ep);
		carry(s, ep, SIM_MAX_BURST);
		karst_core_flush(ep->core->core);
	}
	if (karst_qp_state(ep->qp) != KARST_QPS_RTS ||
		karst_wq_free(&ep->sq, UINT32_MAX) != ep->init.max_send_wr)
		sim_fail(s, "pair %u, QP %#x: local requests failed, or are still there",
			ep->pair->idx, ep->qpn);
	if (karst_mw_free_begin(mem, key) != 0)
		sim_fail(s, "karst_mw_free_begin()");
	karst_mw_free_end(mem, key);
}

static bool
fit(const struct sim_ep *ep)
{
	const struct sim_pair *p = ep->pair;

	return p->type == KARST_QPT_RC && !p->xrc && !p->two_paths && p->fault == FAULT_NONE &&
		!p->broken && !p->victim && ep->state == EP_LIVE && ep->peer->state == EP_LIVE &&
		karst_qp_state(ep->qp) == KARST_QPS_RTS &&
		karst_qp_state(ep->peer->qp) == KARST_QPS_RTS && !ep->init.sq_sig_all &&
		ep->init.max_send_wr >= 16 && ep->slow_ns[0] == 0 && ep->peer->slow_ns[0] == 0 &&
		/* no time passes here */
		ep->s->congestion.mode != KARST_CONGESTION_SWIFT;
}

void
sim_laps(struct sim *s)
{
	bool lapped = !s->opt.laps;
	uint32_t i;

	for (i = 0; i < 2 * s->npairs; i++) {
		struct sim_ep *ep = &s->pairs[i / 2].ep[i & 1];

		if (!fit(ep))
			continue;
		if (ep->init.max_send_wr > KARST_VISIT_QUIET)
			feed(s, ep);
		if (fit(ep->peer) && ep->peer->max_rd_atomic >= 2)
			busy(s, ep);
		if (!lapped)
			lap(s, ep);
		lapped = true;
	}
}
