/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Builds and destroys the world of a schedule.
 *
 * All memory comes from one arena that is reset between schedules.  Every block that a library gets
 * has a guard after it; with the address sanitizer the arena is poisoned except for allocated
 * blocks.
 *
 * The program memory of each node has a shadow, which holds the contents that the model expects.
 * Regions in it are separated by guards.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "sim.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define arena_poison(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define arena_unpoison(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define arena_poison(p, n)   ((void)(p), (void)(n))
#define arena_unpoison(p, n) ((void)(p), (void)(n))
#endif

#define ARENA_GUARD 64
#define NODE_MEM    (6u << 20)

/* --- arena --- */

int
sim_arena_init(struct sim_arena *a, size_t size)
{
	memset(a, 0, sizeof(*a));
	a->base = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (a->base == MAP_FAILED)
		return -ENOMEM;
	a->size = size;
	return 0;
}

void *
sim_alloc_raw(struct sim *s, size_t len)
{
	struct sim_arena *a = &s->arena;
	uint8_t *p = a->base + a->used;
	size_t n = (len + 63) & ~(size_t)63;

	if (a->used + n + ARENA_GUARD > a->size) {
		sim_trace_print(s, 8);
		sim_fail(s, "simulator: out of memory");
	}
	a->used += n + ARENA_GUARD;
	arena_unpoison(p, len);
	return p;
}

void *
sim_alloc(struct sim *s, size_t len)
{
	struct sim_arena *a = &s->arena;
	uint8_t *p = sim_alloc_raw(s, len);
	size_t guard = (size_t)(a->base + a->used - (p + len));

	memset(p, 0, len);
	if (a->nblocks == KARST_DIM(a->blocks))
		return p;
	arena_unpoison(p + len, guard);
	memset(p + len, 0x5c, guard);
	arena_poison(p + len, guard);
	a->blocks[a->nblocks].off = (size_t)(p + len - a->base);
	a->blocks[a->nblocks++].len = guard;
	return p;
}

bool
sim_arena_check(const struct sim_arena *a)
{
	uint32_t i;
	size_t j;

	for (i = 0; i < a->nblocks; i++) {
		const uint8_t *p = a->base + a->blocks[i].off;

		arena_unpoison(p, a->blocks[i].len);
		for (j = 0; j < a->blocks[i].len; j++) {
			if (p[j] != 0x5c)
				return false;
		}
	}
	return true;
}

static void
arena_reset(struct sim_arena *a)
{
	arena_poison(a->base, a->used);
	a->used = 0;
	a->nblocks = 0;
}

/* --- program memory --- */

/* Allocates @len bytes of @n's memory, with a guard before them, and fills memory and shadow. */
static uint32_t
mem_carve(struct sim_node *n, uint32_t len)
{
	uint32_t off = n->mem_used + SIM_GUARD, end = (off + len + 63) & ~63u;

	if (end + SIM_GUARD > NODE_MEM)
		sim_fail(n->s, "simulator: out of node memory");
	sim_fill(n->mem + n->mem_used, end + SIM_GUARD - n->mem_used, rng_u64(&n->s->rng));
	memcpy(n->shadow + n->mem_used, n->mem + n->mem_used, end + SIM_GUARD - n->mem_used);
	n->mem_used = end;
	return off;
}

static uint64_t
draw_va(struct sim *s, uint32_t off, uint32_t len)
{
	uint64_t va = rng_u64(&s->rng) >> rng_below(&s->rng, 40);

	switch (rng_below(&s->rng, 4)) {
	case 0:
		va = 0x7f0000000000ull + off;
		break;
	case 1:
		va = (uint64_t)0 - len - rng_below(&s->rng, 3) * 64;
		break;
	default:
		if (va + len < va)
			va -= len;
		break;
	}
	/* The address must be aligned like the memory itself, for atomics. */
	va -= (va - off) & 7;
	return va + len < va && va + len != 0 ? va - 64 : va;
}

struct sim_mr *
sim_mr_new(struct sim_node *n, uint32_t pd, uint32_t len, unsigned int access)
{
	struct sim *s = n->s;
	struct sim_mr *mr = &n->mrs[n->nmrs];
	int rc;

	if (n->nmrs == KARST_DIM(n->mrs))
		sim_fail(s, "simulator: too many regions");
	len = (len + 7) & ~7u;
	mr->pd = pd;
	mr->off = mem_carve(n, len);
	mr->len = len;
	mr->access = access;
	mr->va = access & KARST_ACCESS_ZERO_BASED ? 0 : draw_va(s, mr->off, len);
	mr->gone = false;
	rc = karst_mr_reg(n->mem_table, pd, sim_copies_host(s, n->mem + mr->off), mr->va, len,
		access, &mr->key);
	if (rc != 0)
		sim_fail(s, "karst_mr_reg(va %#llx, len %u, access %#x): %d",
			(unsigned long long)mr->va, len, access, rc);
	n->nmrs++;
	return mr;
}

/* --- nodes --- */

/* Not drawn, so that recorded seeds still give the same schedules. */
bool
sim_divides(const struct sim *s)
{
	return sim_mix(s->seed + 0x64697669646500ull) % 4 == 0;
}

bool
sim_is_divided(const struct sim *s, const struct sim_ep *ep, const struct sim_op *op)
{
	return sim_divides(s) && op->opcode == KARST_WR_RDMA_WRITE &&
		ep->pair->type != KARST_QPT_UC;
}

static void
build_core(struct sim *s, struct sim_node *n, uint32_t idx)
{
	struct sim_core *c = &n->cores[idx];
	struct karst_core_config cfg = {
		.lcore = idx,
		.lcore_bits = s->lcore_bits,
		.max_qps = 2 * SIM_MAX_PAIRS + 1,
		.ack_interval = rng_one_in(&s->rng, 2) ? 0 : rng_log(&s->rng, 1, 64),
		.window_packets = rng_one_in(&s->rng, 2) ? 0 : rng_log(&s->rng, 4, 1024),
		/* not drawn, so that recorded seeds still give the same schedules */
		.linger_turns = (uint32_t)(s->seed % 4),
		.divide_writes = sim_divides(s),
		.early_retransmission = s->early,
		.migreq = rng_one_in(&s->rng, 2),
		.congestion = s->congestion.mode != KARST_CONGESTION_OFF ? &s->congestion : NULL,
		.seed = {rng_u64(&s->rng)},
		.mem = n->mem_table,
		.ahs = n->ahs,
		.ops = &sim_core_ops,
		.user = c,
	};
	void *buf;
	int rc;

	c->node = n;
	c->idx = idx;
	cfg.held_frames = sim_repeat_frames(c);
	cfg.hold_ops = &sim_hold_ops;
	cfg.copy_ops = &sim_copy_ops;
	cfg.spray_ports = sim_repeat_spray(c);
	if (cfg.window_packets != 0 && cfg.ack_interval > cfg.window_packets)
		cfg.ack_interval = cfg.window_packets;
	if (cfg.window_packets != 0 && cfg.window_packets < 32 && cfg.ack_interval == 0)
		cfg.ack_interval = 1;
	c->ack_interval = cfg.ack_interval ? cfg.ack_interval : 32;
	c->window = cfg.window_packets ? cfg.window_packets : 256;
	if (karst_core_bytes(&cfg) == 0)
		sim_fail(s, "karst_core_bytes() is 0");
	buf = sim_alloc(s, karst_core_bytes(&cfg));
	rc = karst_core_init(buf, &cfg, s->now_ns, &c->core);
	if (rc != 0)
		sim_fail(s, "karst_core_init(): %d", rc);
	c->bell_mask = 63;
	c->bell_shared = sim_alloc(s, karst_bell_bytes(64));
	karst_bell_init(&c->bell, c->bell_shared, 64);
	c->inbox.tail = &c->inbox.head;
}

static void
build_node(struct sim *s, uint32_t idx)
{
	struct sim_node *n = &s->nodes[idx];
	struct karst_mem_config mc = {
		.max_keys = 256, .max_pds = 64, .seed = {rng_u64(&s->rng), rng_u64(&s->rng)}};
	uint32_t i;

	memset(n, 0, sizeof(*n));
	n->s = s;
	n->idx = idx;
	n->mac[0] = 2;
	n->mac[5] = (uint8_t)(idx + 1);
	n->ip4[10] = n->ip4[11] = 0xff;
	n->ip4[12] = 10;
	n->ip4[15] = (uint8_t)(idx + 1);
	n->ip6[0] = 0xfd;
	n->ip6[15] = (uint8_t)(idx + 1);
	n->mem = sim_alloc_raw(s, NODE_MEM);
	n->shadow = sim_alloc_raw(s, NODE_MEM);
	if (karst_mem_init(sim_alloc(s, karst_mem_size(&mc)), &mc, &n->mem_table) != 0 ||
		karst_ah_table_init(sim_alloc(s, karst_ah_table_bytes(64)), 64, &n->ahs) != 0)
		sim_fail(s, "memory or address handle table");
	karst_ah_table_set_ect(n->ahs, s->congestion.mode != KARST_CONGESTION_OFF);
	n->npds = rng_range(&s->rng, 1, 3);
	for (i = 0; i < n->npds; i++) {
		if (karst_pd_alloc(n->mem_table, &n->pds[i]) != 0)
			sim_fail(s, "karst_pd_alloc()");
	}
	for (i = 0; i < s->ncores; i++)
		build_core(s, n, i);
}

/* --- queues --- */

static struct sim_cq *
build_cq(struct sim *s, struct sim_node *n, uint32_t entries)
{
	struct sim_cq *q = &n->cqs[n->ncqs++];
	struct karst_cq_init init = {.entries = entries, .nlanes = s->ncores, .user = q};
	uint32_t i;
	int rc;

	q->node = n;
	q->entries = entries;
	q->shared = sim_alloc(s, sizeof(*q->shared));
	q->lanes = sim_alloc(s, karst_cq_lanes_bytes(entries, s->ncores, 0));
	init.shared = q->shared;
	init.lanes = q->lanes;
	q->object = sim_alloc(s, karst_cq_object_bytes(&init));
	rc = karst_cq_create(q->object, &init, &q->cq);
	if (rc != 0)
		sim_fail(s, "karst_cq_create(): %d", rc);
	for (i = 0; i < s->ncores; i++)
		karst_cq_lane_attach(
			&q->lane[i], karst_cq_lane(q->lanes, entries, 0, i), entries, 0);
	return q;
}

static struct sim_cq *
pick_cq(struct sim *s, struct sim_node *n, bool own)
{
	struct sim_cq *q;

	if (!own && n->ncqs > 0 && rng_one_in(&s->rng, 2)) {
		q = &n->cqs[rng_below(&s->rng, n->ncqs)];
		if (!q->exclusive && q->entries / (q->users + 1) >= 3) {
			q->users++;
			return q;
		}
	}
	q = build_cq(s, n, rng_pow2(&s->rng, 4, own ? 8 : 128));
	q->exclusive = own;
	q->users = 1;
	return q;
}

/* @rcq NULL: a basic SRQ with a completion queue of its own; otherwise an XRC SRQ, whose receives
 * complete into @rcq. */
static void
build_srq(struct sim *s, struct sim_core *c, uint32_t which, uint32_t pd, uint32_t msg_max,
	struct sim_cq *rcq)
{
	struct sim_srq *q = &c->srq[which];
	struct karst_srq_init init = {.pd = pd,
		.max_wr = rng_pow2(&s->rng, 4, 32),
		.max_sge = rng_range(&s->rng, 1, 4),
		.xrcd = rcq != NULL ? 1 : 0,
		.cq = rcq != NULL ? rcq->cq : NULL,
		.user = q};
	uint32_t stride = karst_wq_stride(false, init.max_sge, 0), i;
	int rc;

	q->which = which;
	q->slots = init.max_wr;
	q->max_sge = init.max_sge;
	q->core = c;
	q->pd = pd;
	q->msg_max = msg_max;
	q->limit = rng_one_in(&s->rng, 2) ? 0 : rng_below(&s->rng, init.max_wr);
	init.limit = q->limit;
	init.shared = sim_alloc(s, karst_wq_bytes(init.max_wr, stride));
	q->object = sim_alloc(s, karst_srq_object_bytes());
	rc = karst_srq_create(c->core, q->object, &init, &q->srq);
	if (rc != 0)
		sim_fail(s, "karst_srq_create(): %d", rc);
	if (karst_pd_ref(c->node->mem_table, pd) != 0)
		sim_fail(s, "karst_pd_ref()");
	karst_wq_attach(&q->wq, init.shared, init.max_wr, stride);
	q->rcq = rcq != NULL ? rcq : build_cq(s, c->node, rng_pow2(&s->rng, 32, 128));
	q->rcq->users++;
	q->nbufs = rng_range(&s->rng, 2, init.max_wr);
	q->bufs = sim_alloc_raw(s, q->nbufs * sizeof(*q->bufs));
	q->mr = sim_mr_new(c->node, pd, q->nbufs * (msg_max + 128), KARST_ACCESS_LOCAL_WRITE);
	for (i = 0; i < q->nbufs; i++)
		q->bufs[i] = (struct sim_buf){
			q->mr, q->mr->off + i * (msg_max + 128), msg_max + 96, false};
	q->cap = 4096;
	q->recvs = sim_alloc_raw(s, q->cap * sizeof(*q->recvs));
}

/* Builds the SRQs of the core's XRC targets.  They have one CQ, so that the order of completions
 * can be checked. */
static void
build_xrc_srqs(struct sim *s, struct sim_core *c, uint32_t pd)
{
	struct sim_cq *rcq = build_cq(s, c->node, rng_pow2(&s->rng, 64, 128));
	uint32_t msg_max = rng_log(&s->rng, 256, 4096), i;

	for (i = 1; i < SIM_SRQS; i++)
		build_srq(s, c, i, pd, msg_max, rcq);
}

/* --- an endpoint's memory --- */

static uint32_t
round8(uint32_t v)
{
	return (v + 7) & ~7u;
}

static void
build_bufs(
	struct sim *s, struct sim_buf *b, uint32_t n, uint32_t len, struct sim_mr *mr, uint32_t *at)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		/* Any alignment, but at least a few guard bytes after each buffer. */
		b[i].mr = mr;
		b[i].off = *at + rng_below(&s->rng, 8);
		b[i].len = len;
		b[i].busy = false;
		*at = round8(b[i].off + len + 16);
	}
}

static void
build_targets(struct sim *s, struct sim_ep *ep, uint32_t cell_len, uint32_t at)
{
	struct sim_rng *r = &s->rng;
	uint32_t i;

	for (i = 0; i < SIM_CELLS; i++) {
		struct sim_cell *c = &ep->cells[i];

		c->mr = ep->tmr;
		c->off = at;
		c->len = cell_len;
		at = round8(at + cell_len + 16);
	}
	for (i = 0; i < SIM_WORDS; i++) {
		struct sim_word *w = &ep->words[i];

		w->kind = i < SIM_WORDS / 2 ? WORD_FAA : WORD_CAS;
		w->mr = ep->tmr;
		w->off = at;
		w->initial = rng_u64(r);
		memcpy(ep->node->mem + at, &w->initial, 8);
		memcpy(ep->node->shadow + at, &w->initial, 8);
		w->last_seen = w->initial;
		at += 16;
	}
	ep->mw.cell = &ep->cells[0];
}

static void
build_ep_memory(struct sim *s, struct sim_ep *ep, uint32_t pd)
{
	struct sim_rng *r = &s->rng;
	struct sim_pair *p = ep->pair;
	uint32_t buf_len = p->msg_max + 96, rbuf_len = buf_len + 64, cell_len = p->msg_max + 64;
	uint32_t local, target, at;
	unsigned int all = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE | KARST_ACCESS_MW_BIND;

	local = ep->nbufs * (buf_len + 40) + ep->nrbufs * (rbuf_len + 40);
	target = SIM_CELLS * (cell_len + 24) + SIM_WORDS * 16 + 16;
	if (rng_one_in(r, 3)) {
		ep->lmr = ep->tmr = sim_mr_new(ep->node, pd, local + target,
			all | (rng_one_in(r, 4) ? KARST_ACCESS_ZERO_BASED : 0));
		at = ep->lmr->off;
	} else {
		ep->lmr = sim_mr_new(ep->node, pd, local, KARST_ACCESS_LOCAL_WRITE);
		ep->tmr = sim_mr_new(ep->node, pd, target,
			all | (rng_one_in(r, 4) ? KARST_ACCESS_ZERO_BASED : 0));
		at = ep->lmr->off;
	}
	ep->bufs = sim_alloc_raw(s, (ep->nbufs + 1) * sizeof(*ep->bufs));
	ep->rbufs = sim_alloc_raw(s, (ep->nrbufs + 1) * sizeof(*ep->rbufs));
	build_bufs(s, ep->bufs, ep->nbufs, buf_len, ep->lmr, &at);
	build_bufs(s, ep->rbufs, ep->nrbufs, rbuf_len, ep->lmr, &at);
	build_targets(s, ep, cell_len, ep->lmr == ep->tmr ? at : round8(ep->tmr->off));
	if (p->type == KARST_QPT_RC &&
		karst_mw_alloc(ep->node->mem_table, pd, KARST_MEM_MW2, &ep->mw.key) != 0)
		sim_fail(s, "karst_mw_alloc()");
}

/* --- endpoints --- */

static void
draw_path(struct sim *s, struct sim_ep *ep)
{
	struct sim_pair *p = ep->pair;
	struct sim_node *me = ep->node, *you = ep->peer->node;
	bool first = ep == &p->ep[0];

	memset(&ep->path, 0, sizeof(ep->path));
	ep->path.ip6 = first ? rng_one_in(&s->rng, 3) : p->ep[0].path.ip6;
	ep->path.has_vlan = first ? rng_one_in(&s->rng, 4) : p->ep[0].path.has_vlan;
	ep->path.vlan_tci = first ? (uint16_t)rng_below(&s->rng, 65536) : p->ep[0].path.vlan_tci;
	memcpy(ep->path.src_mac, me->mac, 6);
	memcpy(ep->path.dst_mac, you->mac, 6);
	memcpy(ep->path.src_ip, ep->path.ip6 ? me->ip6 : me->ip4, 16);
	memcpy(ep->path.dst_ip, ep->path.ip6 ? you->ip6 : you->ip4, 16);
	ep->path.tclass = (uint8_t)rng_below(&s->rng, 256);
	ep->path.hop_limit = (uint8_t)rng_below(&s->rng, 256);
	ep->path.flow_label = rng_one_in(&s->rng, 2) ? 0 : rng_below(&s->rng, 1 << 20);
	ep->path.udp_sport =
		rng_one_in(&s->rng, 2) ? 0 : (uint16_t)rng_range(&s->rng, 0xc000, 0xffff);
	sim_paths_draw(ep);
}

static void
enter_qp(struct sim *s, struct sim_ep *ep, uint32_t qpn)
{
	if ((qpn & ((1u << s->lcore_bits) - 1)) != ep->core->idx ||
		qpn >> s->lcore_bits >= KARST_DIM(ep->core->by_slot) ||
		ep->core->by_slot[qpn >> s->lcore_bits] != NULL)
		sim_fail(s, "QPN %#x is another core's or not unique", qpn);
	ep->core->by_slot[qpn >> s->lcore_bits] = ep;
}

static void
create_target(struct sim *s, struct sim_ep *ep)
{
	const struct karst_qp_init in = {.type = KARST_QPT_XRC_RECV,
		.xrcd = 1,
		.max_dest_rd_atomic = 20,
		.user = ep,
		.pacer = s->congestion.mode != KARST_CONGESTION_OFF};
	int rc;

	if (karst_qp_bytes(&in) == 0)
		sim_fail(s, "karst_qp_bytes() of a target is 0");
	ep->target_mem = sim_alloc(s, karst_qp_bytes(&in));
	karst_qp_prepare(ep->target_mem, &in);
	rc = karst_qp_create(ep->core->core, ep->target_mem, &in, &ep->target);
	if (rc != 0)
		sim_fail(s, "karst_qp_create() of a target: %d", rc);
	ep->target_qpn = karst_qp_num(ep->target);
	enter_qp(s, ep, ep->target_qpn);
}

static void
create_qp(struct sim *s, struct sim_ep *ep, uint32_t pd)
{
	struct karst_qp_init *in = &ep->init;
	struct sim_rng *r = &s->rng;
	uint32_t stride;
	int rc;

	in->type = ep->pair->xrc ? KARST_QPT_XRC_SEND : ep->pair->type;
	in->pd = pd;
	in->send_cq = ep->scq->cq;
	in->recv_cq = ep->pair->xrc ? NULL : ep->rcq->cq;
	in->srq = ep->srq && !ep->pair->xrc ? ep->srq->srq : NULL;
	in->max_send_wr = rng_pow2(r, 2, 64);
	/* more requests of some kinds than a visit takes (lap.c) */
	if (in->type == KARST_QPT_RC && s->profile < SIM_FAULTS &&
		sim_mix(s->seed * SIM_MAX_PAIRS + ep->pair->idx) % 16 == 1)
		in->max_send_wr = 256;
	in->max_recv_wr = ep->srq ? 0 : rng_pow2(r, 2, 32);
	in->max_send_sge = rng_range(r, 1, 6);
	in->max_recv_sge = ep->srq ? 1 : rng_range(r, 1, 6);
	in->max_inline = rng_one_in(r, 3) ? 0 : rng_range(r, 8, 300);
	in->max_dest_rd_atomic = 20;
	in->sq_sig_all = rng_one_in(r, 3);
	in->credits = ep->pair->credits;
	in->user = ep;
	in->pacer = s->congestion.mode != KARST_CONGESTION_OFF;
	stride = karst_wq_stride(true, in->max_send_sge, in->max_inline);
	in->sq_shared = sim_alloc(s, karst_wq_bytes(in->max_send_wr, stride));
	if (ep->srq == NULL)
		in->rq_shared = sim_alloc(s,
			karst_wq_bytes(
				in->max_recv_wr, karst_wq_stride(false, in->max_recv_sge, 0)));
	if (karst_qp_bytes(in) == 0)
		sim_fail(s, "karst_qp_bytes() is 0");
	ep->qp_mem = sim_alloc(s, karst_qp_bytes(in));
	karst_qp_prepare(ep->qp_mem, in);
	rc = karst_qp_create(ep->core->core, ep->qp_mem, in, &ep->qp);
	if (rc != 0)
		sim_fail(s, "karst_qp_create(): %d", rc);
	if (karst_pd_ref(ep->node->mem_table, pd) != 0)
		sim_fail(s, "karst_pd_ref()");
	ep->qpn = ep->target_qpn = karst_qp_num(ep->qp);
	enter_qp(s, ep, ep->qpn);
	karst_wq_attach(&ep->sq, in->sq_shared, in->max_send_wr, stride);
	if (ep->srq == NULL)
		karst_wq_attach(&ep->rq, in->rq_shared, in->max_recv_wr,
			karst_wq_stride(false, in->max_recv_sge, 0));
}

static void
draw_msg_max(struct sim *s, struct sim_pair *p)
{
	uint32_t budget = 524288 / (2 * s->npairs), most;

	if (budget > 131072)
		budget = 131072;
	if (s->npairs < 3 && rng_one_in(&s->rng, 24))
		budget = 1 << 20;
	most = budget / (p->ep[0].nbufs + p->ep[0].nrbufs + SIM_CELLS);
	p->msg_max = rng_log(&s->rng, 64, most < 64 ? 64 : most);
	if (p->msg_max > 40u << p->mtu_shift)
		p->msg_max = 40u << p->mtu_shift;
	if (p->type == KARST_QPT_UD && p->msg_max > 1u << p->mtu_shift)
		p->msg_max = 1u << p->mtu_shift;
}

static void
build_ep(struct sim *s, struct sim_pair *p, uint32_t e)
{
	struct sim_ep *ep = &p->ep[e];
	struct sim_rng *r = &s->rng;
	uint32_t pd;
	bool own = p->victim || p->fault == FAULT_CQ_OVERFLOW;

	if (p->victim) {
		/* a protection domain of its own, so that it cannot reach other memory */
		if (karst_pd_alloc(ep->node->mem_table, &ep->node->pds[ep->node->npds]) != 0)
			sim_fail(s, "karst_pd_alloc()");
		pd = ep->node->pds[ep->node->npds++];
	} else {
		pd = ep->node->pds[0];
		if (ep->node->npds > 1 && rng_one_in(r, 3))
			pd = ep->node->pds[1];
	}
	if (p->xrc) {
		if (ep->core->srq[1].srq == NULL)
			build_xrc_srqs(s, ep->core, pd);
		/* memory that the peer accesses belongs to the PD of these SRQs (U3) */
		pd = ep->core->srq[1].pd;
		ep->srq = &ep->core->srq[1];
	} else if (!own && p->fault == FAULT_NONE && rng_one_in(r, 5)) {
		struct sim_srq *q = &ep->core->srq[0];

		if (q->srq == NULL)
			build_srq(s, ep->core, 0, pd, rng_log(r, 256, 4096), NULL);
		if (q->pd == pd && q->msg_max >= 64)
			ep->srq = q;
	}
	ep->scq = pick_cq(s, ep->node, own);
	if (ep->srq != NULL) {
		ep->rcq = ep->srq->rcq;
	} else if (rng_one_in(r, 2) && ep->scq->entries / (ep->scq->users + 1) >= 2) {
		ep->rcq = ep->scq;
		ep->scq->users++;
	} else {
		ep->rcq = pick_cq(s, ep->node, own);
	}
	create_qp(s, ep, pd);
	if (p->xrc)
		create_target(s, ep);
	draw_path(s, ep);
	build_ep_memory(s, ep, pd);
	if (p->type == KARST_QPT_UD) {
		if (karst_ah_create(ep->node->ahs, pd, &ep->path, &ep->ah) != 0)
			sim_fail(s, "karst_ah_create()");
		ep->qkey = e == 1 && rng_one_in(r, 2) ? p->ep[0].qkey
						      : (uint32_t)rng_u64(r) & 0x7fffffff;
	}
}

static void
build_pair(struct sim *s, struct sim_pair *p)
{
	struct sim_rng *r = &s->rng;
	uint32_t a = rng_below(r, s->nnodes), b = rng_below(r, s->nnodes - 1), e;

	b += b >= a;
	for (e = 0; e < 2; e++) {
		struct sim_ep *ep = &p->ep[e];

		ep->s = s;
		ep->pair = p;
		ep->peer = &p->ep[1 - e];
		ep->node = &s->nodes[e == 0 ? a : b];
		ep->core = &ep->node->cores[rng_below(r, s->ncores)];
		ep->nbufs = rng_range(r, 2, 12);
		ep->nrbufs = rng_range(r, 2, 12);
		if (p->fault == FAULT_CQ_OVERFLOW)
			ep->nbufs = ep->nrbufs = 12;
	}
	p->ep[0].nbufs = p->ep[1].nbufs;
	p->ep[0].nrbufs = p->ep[1].nrbufs;
	draw_msg_max(s, p);
	build_ep(s, p, 0);
	build_ep(s, p, 1);
}

void
sim_build(struct sim *s)
{
	uint32_t i;

	arena_reset(&s->arena);
	s->nheap = 0;
	s->free_frames = NULL;
	for (i = 0; i < s->nnodes; i++)
		build_node(s, i);
	for (i = 0; i < s->npairs; i++)
		build_pair(s, &s->pairs[i]);
}

struct sim_ep *
sim_ep_of(struct sim_node *n, uint32_t qpn)
{
	struct sim_core *c = &n->cores[qpn & (n->s->ncores - 1)];
	uint32_t slot = qpn >> n->s->lcore_bits;

	return slot < KARST_DIM(c->by_slot) ? c->by_slot[slot] : NULL;
}
