/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "gen.h"

#include <stdlib.h>

#include <rte_cycles.h>

#include "check.h"
#include "karst_icrc.h"
#include "packet.h"
#include "play.h"
#include "tsc.h"

struct fwd_gen {
	struct fwd_pace pace;
	bool endless;
	bool begun; /* the schedule */
	_Atomic bool done;
	uint32_t nflows, at; /* flows with something left to send; index of the next one */
	uint32_t number;     /* of the next time stamp */
	struct fwd_gen_flow *flows;
	const struct fwd_play *play; /* used instead of flows, unless NULL */
	uint64_t play_left;          /* frames to send */
	uint32_t play_at;
	uint32_t npending, pending_at;
	struct rte_mbuf *pending[FWD_BURST_MAX];
	struct fwd_gen_stats stats;
	struct perf_hist *jitter;
	struct karst_seal jobs[FWD_BURST_MAX];
	struct karst_seg segs[FWD_BURST_MAX][2];
	struct fwd_stamp stamps[FWD_BURST_MAX];
	uint8_t pattern[4096]; /* contents of payloads after the stamp */
	uint32_t nshapes;
	struct fwd_shapes shapes[FWD_TEMPLATES_MAX];
};

static struct fwd_gen *
gen_failed(struct fwd_gen *g, const struct fwd_stream *s, const char *why)
{
	fprintf(stderr, "karst-fwd: the generator of port %u: %s\n", s->tx->id, why);
	fwd_gen_free(g);
	return NULL;
}

/* Makes the flows of all templates, one template after the other. */
static int
add_flows(struct fwd_gen *g, const struct fwd_stream *s)
{
	uint32_t i, k, n = 0;

	for (i = 0; i < g->nshapes; i++)
		n += g->shapes[i].t.flows;
	g->flows = calloc(n, sizeof(*g->flows));
	if (g->flows == NULL)
		return -1;
	for (i = 0; i < g->nshapes; i++)
		for (k = 0; k < g->shapes[i].t.flows; k++)
			fwd_gen_flow_init(&g->flows[g->nflows++], &g->shapes[i],
				s->number * g->shapes[i].t.flows + k);
	return 0;
}

static uint32_t
longest(const struct fwd_gen *g)
{
	uint32_t i, place, most = 0;

	if (g->play != NULL)
		return g->play->longest;
	for (i = 0; i < g->nshapes; i++)
		for (place = 0; place < FWD_PLACES; place++)
			if (g->shapes[i].shape[place].len > most)
				most = g->shapes[i].shape[place].len;
	return most;
}

static void
use_templates(struct fwd *f, struct fwd_stream *s, struct fwd_gen *g)
{
	const uint8_t *smac = s->tx->mac.addr_bytes, *dmac = s->tx->peer.addr_bytes;
	struct fwd_template t;
	uint32_t i;

	fwd_template_default(&t);
	if (f->opts.ntemplates == 0)
		fwd_shapes_build(&g->shapes[g->nshapes++], &t, smac, dmac);
	for (i = 0; i < f->opts.ntemplates; i++) {
		t = f->opts.templates[i];
		if (g->endless)
			t.count = 0;
		fwd_shapes_build(&g->shapes[g->nshapes++], &t, smac, dmac);
	}
}

struct fwd_gen *
fwd_gen_new(struct fwd *f, struct fwd_stream *s, bool endless)
{
	struct fwd_gen *g = calloc(1, sizeof(*g));
	uint32_t room = rte_pktmbuf_data_room_size(f->pool) - RTE_PKTMBUF_HEADROOM;
	char why[96];
	size_t i;

	if (g == NULL)
		return gen_failed(g, s, "no memory");
	for (i = 0; i < sizeof(g->pattern); i++)
		g->pattern[i] = (uint8_t)i;
	g->endless = endless;
	g->jitter = perf_hist_create();
	if (g->jitter == NULL)
		return gen_failed(g, s, "no memory");
	if (f->play != NULL && !endless) {
		g->play = f->play;
		g->play_left = f->play->loops == 0 ? UINT64_MAX : f->play->loops * f->play->nframes;
		if (s->tx_queue != 0) /* only one queue of a port sends the capture */
			g->play_left = 0;
		atomic_store(&g->done, g->play_left == 0);
	} else {
		use_templates(f, s, g);
		if (add_flows(g, s) != 0)
			return gen_failed(g, s, "no memory");
	}
	if (longest(g) > room) {
		snprintf(why, sizeof(why),
			"frames of %u bytes do not fit into buffers; --mbuf-size %u is needed",
			longest(g), longest(g) + RTE_PKTMBUF_HEADROOM);
		return gen_failed(g, s, why);
	}
	fwd_pace_init(&g->pace, &f->opts.rate, g->play != NULL ? 1 : f->opts.rxq, perf_tsc_hz(),
		rte_rdtsc());
	return g;
}

void
fwd_gen_free(struct fwd_gen *g)
{
	if (g == NULL)
		return;
	rte_pktmbuf_free_bulk(g->pending + g->pending_at, g->npending - g->pending_at);
	free(g->flows);
	free(g->jitter);
	free(g);
}

bool
fwd_gen_done(const struct fwd_gen *g)
{
	return atomic_load_explicit(&g->done, memory_order_relaxed);
}

void
fwd_gen_stats_get(const struct fwd_gen *g, struct fwd_gen_stats *st)
{
	const uint64_t *from = (const uint64_t *)&g->stats;
	uint64_t *to = (uint64_t *)st;
	size_t i;

	static_assert(sizeof(*st) % sizeof(uint64_t) == 0, "counters and nothing else");
	for (i = 0; i < sizeof(*st) / sizeof(uint64_t); i++)
		to[i] = fwd_read(&from[i]);
}

const struct perf_hist *
fwd_gen_jitter(const struct fwd_gen *g)
{
	return g->jitter;
}

/* --- one packet --- */

/*
 * Selects the next flow.  A flow that is done is removed, and the last one of the array takes its
 * place.
 */
static struct fwd_gen_flow *
flow_next(struct fwd_gen *g)
{
	while (g->nflows != 0) {
		if (g->at >= g->nflows)
			g->at = 0;
		if (!fwd_gen_flow_done(&g->flows[g->at]))
			return &g->flows[g->at++];
		g->flows[g->at] = g->flows[--g->nflows];
	}
	return NULL;
}

/*
 * Writes the headers of a packet.  Payload and ICRC follow when the burst is sealed.
 * @return bytes of the frame.
 */
static uint32_t
put_flow(struct fwd_gen *g, struct fwd_gen_flow *flow, struct rte_mbuf *m, uint32_t i, uint64_t now)
{
	const struct fwd_shape *sh = fwd_gen_flow_shape(flow);
	uint8_t *data = rte_pktmbuf_mtod(m, uint8_t *);
	/* frames of --tx-first circulate, so their age has no meaning */
	bool stamped = !g->endless && sh->pay_len >= sizeof(struct fwd_stamp);
	uint32_t stamp = stamped ? sizeof(struct fwd_stamp) : 0;
	uint64_t messages = flow->messages;

	fwd_gen_flow_next(flow, data);
	fwd_add(&g->stats.messages, flow->messages - messages);
	g->stamps[i] =
		(struct fwd_stamp){.magic = FWD_STAMP_MAGIC, .number = g->number++, .tsc = now};
	g->segs[i][0] = (struct karst_seg){(const uint8_t *)&g->stamps[i], stamp};
	g->segs[i][1] = (struct karst_seg){g->pattern + stamp, sh->pay_len - stamp};
	g->jobs[i] = (struct karst_seal){
		.l3 = data + sh->l3_off,
		.pay = data + sh->hdr_len,
		.segs = stamp != 0 ? g->segs[i] : &g->segs[i][1],
		.nsegs = (uint16_t)(stamp == 0 ? sh->pay_len != 0 : 1 + (sh->pay_len > stamp)),
		.pad = sh->pad,
		.ip6 = flow->shapes->t.ip6,
	};
	m->data_len = (uint16_t)sh->len;
	m->pkt_len = sh->len;
	return sh->len;
}

static uint32_t
put_frame(struct fwd_gen *g, struct rte_mbuf *m)
{
	const struct fwd_play_frame *fr = &g->play->frames[g->play_at];

	memcpy(rte_pktmbuf_mtod(m, void *), g->play->data + fr->at, fr->len);
	m->data_len = (uint16_t)fr->len;
	m->pkt_len = fr->len;
	if (++g->play_at == g->play->nframes) {
		g->play_at = 0;
		fwd_add(&g->stats.messages, 1);
	}
	if (g->play_left != UINT64_MAX)
		g->play_left--;
	return fr->len;
}

/*
 * Makes up to @most packets, as many as are due at @now.  @paced: false: the schedule does not
 * apply.
 */
static void
fill(struct fwd_gen *g, struct rte_mempool *pool, uint32_t most, uint64_t now, bool paced)
{
	uint32_t n = 0;

	g->pending_at = 0;
	while (n < most && (!paced || fwd_pace_due(&g->pace, now))) {
		struct fwd_gen_flow *flow = NULL;
		struct rte_mbuf *m;
		uint32_t len;

		if (g->play != NULL ? g->play_left == 0 : (flow = flow_next(g)) == NULL)
			break;
		m = rte_pktmbuf_alloc(pool);
		if (karst_unlikely(m == NULL)) {
			fwd_add(&g->stats.no_buffer, 1);
			if (flow != NULL)
				g->at--; /* the flow keeps its turn */
			break;
		}
		len = flow != NULL ? put_flow(g, flow, m, n, now) : put_frame(g, m);
		if (paced) {
			if (g->pace.per_byte + g->pace.per_packet != 0)
				perf_hist_add(g->jitter, now - g->pace.due);
			fwd_pace_sent(&g->pace, len);
		}
		g->pending[n++] = m;
	}
	if (g->play == NULL)
		karst_icrc_seal_burst(g->jobs, n);
	g->npending = n;
}

/*
 * Offers the pending packets to the port, and counts those that it takes.
 * @return number of packets that were sent.
 */
static uint32_t
offer(struct fwd_gen *g, struct fwd_stream *s)
{
	uint32_t n, bytes = 0, i;

	/* before the port has them, and may have freed them */
	for (i = g->pending_at; i < g->npending; i++)
		bytes += g->pending[i]->pkt_len;
	n = rte_eth_tx_burst(s->tx->id, s->tx_queue, g->pending + g->pending_at,
		(uint16_t)(g->npending - g->pending_at));
	for (i = g->pending_at + n; i < g->npending; i++)
		bytes -= g->pending[i]->pkt_len;
	g->pending_at += n;
	fwd_add(&s->tx_packets, n);
	fwd_add(&g->stats.packets, n);
	fwd_add(&g->stats.bytes, bytes);
	if (n != 0) {
		__atomic_store_n(&g->stats.last_packets, n, __ATOMIC_RELAXED);
		__atomic_store_n(&g->stats.last_bytes, bytes, __ATOMIC_RELAXED);
	}
	return n;
}

/*
 * Whether everything is sent.  flow_next() has removed the flows that are done when it looked for
 * the next packet.
 */
static bool
is_done(const struct fwd_gen *g)
{
	return g->play != NULL ? g->play_left == 0 : g->nflows == 0;
}

static uint32_t
generate(struct fwd_gen *g, struct fwd *f, struct fwd_stream *s)
{
	uint64_t now = rte_rdtsc();
	uint32_t n;

	if (karst_unlikely(!g->begun)) {
		g->begun = true;
		g->pace.due = now; /* the lcore may start later than the generator was made */
	}
	if (g->pending_at == g->npending)
		fill(g, f->pool, f->opts.burst, now, true);
	if (g->pending_at == g->npending) {
		if (is_done(g))
			atomic_store_explicit(&g->done, true, memory_order_relaxed);
		return 0;
	}
	n = offer(g, s);
	if (n != 0) {
		if (g->stats.first_tsc == 0)
			__atomic_store_n(&g->stats.first_tsc, now, __ATOMIC_RELAXED);
		__atomic_store_n(&g->stats.last_tsc, now, __ATOMIC_RELAXED);
		__atomic_store_n(&g->stats.skipped, g->pace.skipped, __ATOMIC_RELAXED);
	}
	return n;
}

/* Receives, checks and frees packets, and sends those that are due. */
uint32_t
fwd_turn_gen(struct fwd_lcore *lc, struct fwd_stream *s)
{
	struct rte_mbuf *m[FWD_BURST_MAX];
	uint32_t n = fwd_receive(lc, s, m), sent = 0;

	if (n != 0) {
		fwd_check_burst(lc->check, m, n, s->rx->id, false);
		rte_pktmbuf_free_bulk(m, n);
	} else {
		fwd_check_idle(lc->check);
	}
	if (!fwd_gen_done(s->gen) && karst_likely(!fwd_port_is_gone(s->tx)))
		sent = generate(s->gen, lc->fwd, s);
	return n + sent;
}

void
fwd_gen_first(struct fwd *f, struct fwd_stream *s, uint32_t bursts)
{
	struct fwd_gen *g = s->gen;

	for (; bursts > 0 && !fwd_port_is_gone(s->tx); bursts--) {
		fill(g, f->pool, f->opts.burst, rte_rdtsc(), false);
		(void)offer(g, s);
		fwd_add(&s->tx_dropped, g->npending - g->pending_at);
		rte_pktmbuf_free_bulk(g->pending + g->pending_at, g->npending - g->pending_at);
		g->pending_at = g->npending = 0;
	}
}
