/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Drives the protocol core of a host, like an lcore of an engine, with two differences: an engine
 * needs time for its work, and it puts frames into the queue of its port ahead of time.  Here work
 * takes no time, and a frame is built when the link is free.
 *
 * Frames that a host sends have no payload and no ICRC.  In received frames the bytes after the
 * headers are those of an earlier frame, and are not used.
 */
#include "karst_hdr.h"
#include "karst_parse.h"
#include "sim.h"

#define CQ_ENTRIES 1024u
#define BUDGET     64u
/* A visit ends with its first frame anyway. */
#define VISIT_BYTES (1u << 20)

static void
on_cq_event(struct karst_core *core, struct karst_core_cq *cq)
{
	(void)core;
	(void)cq;
}

static void
on_async_event(struct karst_core *core, enum karst_async_event_code event, void *object)
{
	(void)core;
	(void)event;
	(void)object;
}

static const struct karst_core_ops core_ops = {
	.cq_event = on_cq_event,
	.async_event = on_async_event,
};

/* --- frames that are held (X4) --- */

struct fab_held {
	struct karst_pkt pkt;
	struct fab_held *next;
	uint8_t data[KARST_FRAME_MAX];
};

static struct karst_pkt *
hold(struct karst_core *core, struct karst_pkt *pkt)
{
	struct fab_sim *s = ((struct fab_host *)core->user)->s;
	struct fab_held *h = s->free_held;

	if (h != NULL)
		s->free_held = h->next;
	else
		h = fab_alloc(s, sizeof(*h));
	h->pkt = *pkt;
	h->pkt.data = h->data;
	memcpy(h->data, pkt->data, FAB_HEAD);
	return &h->pkt;
}

static void
release(struct karst_core *core, struct karst_pkt *pkt)
{
	struct fab_sim *s = ((struct fab_host *)core->user)->s;
	struct fab_held *h = karst_container_of(pkt, struct fab_held, pkt);

	h->next = s->free_held;
	s->free_held = h;
}

static const struct karst_hold_ops hold_ops = {.hold = hold, .release = release};

static void
make_cq(struct fab_sim *s, struct fab_host *h)
{
	struct karst_cq_init in = {.entries = CQ_ENTRIES, .nlanes = 1, .user = h};
	int rc;

	in.shared = fab_alloc(s, sizeof(struct karst_cq_shared));
	in.lanes = fab_alloc(s, karst_cq_lanes_bytes(CQ_ENTRIES, 1, 0));
	rc = karst_cq_create(fab_alloc(s, karst_cq_object_bytes(&in)), &in, &h->cq);
	if (rc != 0)
		fab_bail(s, rc, "completion queue of host %u: %s", h->id, strerror(-rc));
	karst_cq_lane_attach(&h->lane, karst_cq_lane(in.lanes, CQ_ENTRIES, 0, 0), CQ_ENTRIES, 0);
}

void
fab_host_init(struct fab_sim *s, struct fab_host *h, uint32_t id)
{
	const struct karst_core_config cfg = {
		.max_qps = (uint32_t)fab_config_qps(s->c),
		.window_packets = s->c->window,
		/* all data goes to one small region, which is in the cache */
		.stream_bytes = UINT64_MAX,
		.max_xrc_srqs = 1,
		.early_retransmission = s->c->probes,
		.seed = {s->secret[0], id},
		.mem = s->mem,
		.ops = &core_ops,
		.congestion = s->c->cc.mode != KARST_CONGESTION_OFF ? &s->c->cc : NULL,
		.held_frames = s->c->repeat ? FAB_HELD : 0,
		.hold_ops = &hold_ops,
		.spray_ports = s->c->spray,
		.user = h,
	};
	int rc;

	h->s = s;
	h->id = id;
	h->wake_ps = UINT64_MAX;
	fab_gsi_init(s, h);
	rc = karst_core_init(fab_alloc(s, karst_core_bytes(&cfg)), &cfg, 0, &h->core);
	if (rc != 0)
		fab_bail(s, rc, "core of host %u: %s", id, strerror(-rc));
	h->core->line_mbps[0] = (uint32_t)s->c->speed;
	h->port.host = h;
	make_cq(s, h);
}

/* --- clocks --- */

uint64_t
fab_host_clock_ns(const struct fab_sim *s)
{
	return s->before_ns + s->now_ps / PS_PER_NS;
}

uint64_t
fab_host_moment_ps(const struct fab_sim *s, uint64_t ns)
{
	/* unfinished work waits for the next nanosecond */
	if (ns <= s->before_ns)
		return s->now_ps + PS_PER_NS;
	return karst_max_u64((ns - s->before_ns) * PS_PER_NS, s->now_ps + PS_PER_NS);
}

void
fab_host_enter(struct fab_sim *s, struct fab_host *h)
{
	h->core->now_ns = h->cm->now_ns = fab_host_clock_ns(s);
}

void
fab_host_restart(struct fab_sim *s, struct fab_host *h)
{
	h->wake_ps = h->cm_wake_ps = UINT64_MAX;
	fab_host_enter(s, h);
	fab_gsi_arm(s, h);
}

/* --- sending --- */

struct fab_frame *
fab_host_build(struct fab_sim *s, struct fab_host *h)
{
	struct karst_core *core = h->core;
	struct fab_frame *f = NULL;
	struct karst_seg segs[KARST_WQ_MAX_SGE];
	struct karst_pkt pkt, *pkts[1] = {&pkt};
	struct karst_seal seal;
	struct karst_tx_burst b = {
		.pkts = pkts, .seals = &seal, .segs = segs, .max = 1, .max_segs = KARST_WQ_MAX_SGE};

	f = fab_gsi_next(h);
	if (f != NULL)
		return f;
	fab_host_enter(s, h);
	while (b.n == 0 && karst_core_pick(core) != NULL) {
		if (f == NULL)
			f = fab_frame_get(s);
		pkt.data = f->data;
		b.nsegs = 0;
		karst_core_visit(core, &b, VISIT_BYTES);
	}
	karst_core_recheck(core);
	karst_core_flush(core);
	if (b.n == 0) {
		if (f != NULL)
			fab_frame_put(s, f);
		return NULL;
	}
	fab_frame_sent(f, &pkt);
	h->requests += f->request;
	return f;
}

/* --- timers --- */

static void
wake(struct fab_sim *s, void *arg)
{
	struct fab_host *h = arg;

	/* the event is obsolete: an earlier one has replaced it */
	if (h->wake_ps != s->now_ps)
		return;
	h->wake_ps = UINT64_MAX;
	fab_host_enter(s, h);
	while (karst_core_expire(h->core, BUDGET) == BUDGET)
		;
	fab_host_run(s, h);
}

static void
arm(struct fab_sim *s, struct fab_host *h)
{
	uint64_t ns = karst_core_next_ns(h->core), ps;

	if (ns == UINT64_MAX || ns - s->before_ns >= UINT64_MAX / PS_PER_NS)
		return;
	ps = fab_host_moment_ps(s, ns);
	if (ps >= h->wake_ps)
		return;
	h->wake_ps = ps;
	fab_event_add(s, ps, wake, h);
}

/* --- what a program would do --- */

static bool
poll_cq(struct fab_sim *s, struct fab_host *h)
{
	const struct karst_cqe *found;
	bool any = false;

	while (karst_cq_lane_peek(&h->lane, &found) != 0) {
		struct karst_cqe cqe = *found;

		karst_cq_lane_take(&h->lane, 1);
		fab_flow_completion(s, &cqe);
		any = true;
	}
	return any;
}

void
fab_host_run(struct fab_sim *s, struct fab_host *h)
{
	/* called from a completion handler that has posted: the outer call continues the work */
	if (h->running)
		return;
	h->running = true;
	poll_cq(s, h);
	do {
		fab_port_kick(s, &h->port);
	} while (poll_cq(s, h));
	h->running = false;
	arm(s, h);
}

/* --- receiving --- */

/* Is the frame lost by one of the configured losses? */
static bool
is_lost(struct fab_sim *s, const struct fab_frame *f)
{
	if (f->mad != NULL)
		return ++s->mads_arrived == s->c->lose_mad ||
			(s->c->mad_loss != 0 && fab_uniform(s, FAB_MAD_LOSS) < s->c->mad_loss);
	if (f->request && ++s->arrived == s->c->lose_nth)
		return true;
	return s->c->loss != 0 && fab_uniform(s, FAB_LOSS) < s->c->loss;
}

void
fab_host_rx(struct fab_sim *s, struct fab_frame *f)
{
	struct fab_host *h = f->at->host;
	struct karst_pkt pkt = {.data = s->scratch, .len = f->len};
	bool lost = is_lost(s, f), mad = f->mad != NULL;

	memcpy(s->scratch, f->data, FAB_HEAD);
	if (mad)
		memcpy(s->scratch + f->len - KARST_ICRC_LEN - KARST_CM_MAD_LEN, f->mad,
			KARST_CM_MAD_LEN);
	if (f->ce)
		fab_frame_mark(s->scratch);
	fab_frame_put(s, f);
	if (lost) {
		*(mad ? &s->r->connections.mads_lost : &s->r->lost) += 1;
		return;
	}
	s->r->frames += !mad;
	if (karst_parse(&pkt) != KARST_DROP_NONE)
		fab_bail(s, -EINVAL, "host %u: a frame that cannot be parsed: %s", h->id,
			karst_drop_name((enum karst_drop)pkt.drop));
	if (pkt.dqpn == KARST_CM_QPN) {
		fab_gsi_rx(s, h, &pkt);
		return;
	}
	pkt.qp = karst_core_lookup(h->core, pkt.dqpn);
	if (pkt.qp == NULL) /* for a queue pair that no longer exists */
		return;
	fab_host_enter(s, h);
	karst_qp_rx(h->core, &pkt);
	karst_core_flush(h->core);
	fab_host_run(s, h);
}
