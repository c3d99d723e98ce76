/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "harness.h"

#include "selfcheck.h"

#define GUARD      4096u
#define TX_FRAMES  64u
#define TX_SEGS    256u
#define TURN_LIMIT 100000u
#define T0         (50 * MS)

#define fail(...) cr_assert(false, __VA_ARGS__)

/* --- what the core tells --- */

static void
on_cq_event(struct karst_core *core, struct karst_core_cq *cq)
{
	struct bed *b = core->user;

	b->cq_events++;
}

static void
on_async_event(struct karst_core *core, enum karst_async_event_code event, void *object)
{
	struct bed *b = core->user;

	cr_assert_lt(b->event_tail - b->event_head, EVENT_MAX, "too many events");
	b->events[b->event_tail++ % EVENT_MAX] = (struct event){event, object};
}

static const struct karst_core_ops bed_ops = {
	.cq_event = on_cq_event,
	.async_event = on_async_event,
};

/* --- setting up --- */

static void *
block(struct bed *b, size_t bytes)
{
	void *p = aligned_alloc(KARST_CACHE_LINE, (bytes + 63) & ~(size_t)63);

	cr_assert_lt(b->nblocks, KARST_DIM(b->mem_block));
	memset(p, 0, (bytes + 63) & ~(size_t)63);
	b->mem_block[b->nblocks++] = p;
	return p;
}

struct setup
setup_of(enum karst_qp_type type)
{
	struct setup s = {
		.core = {.max_qps = 16, .migreq = true, .seed = {3}, .ops = &bed_ops},
		.qp = {.type = type,
			.max_send_wr = 64,
			.max_recv_wr = 64,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline = 128,
			.ud_mtu = 1},
		.attr = {.path_mtu = 1,
			.qkey = 0x1234,
			.rq_psn = FIRST_PSN,
			.sq_psn = FIRST_PSN,
			.dest_qpn = PEER_QPN,
			.access_flags = KARST_ACCESS_REMOTE,
			.port_num = 1,
			.timeout = 10, /* 4.19 ms */
			.retry_cnt = 3,
			.rnr_retry = 2,
			.min_rnr_timer = 12, /* 0.64 ms */
			.max_rd_atomic = 4,
			.max_dest_rd_atomic = 4,
			.path = {.src_mac = {2, 0, 0, 0, 0, 1},
				.dst_mac = {2, 0, 0, 0, 0, 2},
				.src_ip = {[12] = 192, 0, 2, 1},
				.dst_ip = {[12] = 192, 0, 2, 2}}},
		.state = KARST_QPS_RTS,
		.cq_entries = 256,
	};
	if (type == KARST_QPT_RC || type == KARST_QPT_XRC_RECV)
		s.qp.max_dest_rd_atomic = 4;
	if (type == KARST_QPT_XRC_SEND)
		s.qp.max_recv_wr = 0;
	if (type == KARST_QPT_XRC_RECV) {
		s.qp.max_send_wr = s.qp.max_recv_wr = 0;
		s.qp.xrcd = s.srq_xrcd = 1;
		s.srq_wr = 8;
	}
	return s;
}

static void
open_memory(struct bed *b)
{
	struct karst_mem_config cfg = {.max_keys = 64, .max_pds = 4, .seed = {1, 2}};
	uint32_t i;

	cr_assert_eq(karst_mem_init(block(b, karst_mem_size(&cfg)), &cfg, &b->mem), 0);
	cr_assert_eq(karst_pd_alloc(b->mem, &b->pd), 0);
	b->guarded = block(b, BUF_BYTES + 2 * GUARD);
	memset(b->guarded, 0xee, BUF_BYTES + 2 * GUARD);
	b->buf = b->guarded + GUARD;
	b->pattern = block(b, BUF_BYTES);
	for (i = 0; i < BUF_BYTES; i++)
		b->pattern[i] = (uint8_t)(i * 7 + (i >> 8) * 13 + 1);
	b->key = bed_region(b, 0, BUF_BYTES,
		KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE | KARST_ACCESS_MW_BIND);
}

static void
open_cqs(struct bed *b, uint32_t entries)
{
	struct karst_cq_init init = {.entries = entries, .nlanes = 1, .user = b};

	init.shared = b->scq_shared = block(b, sizeof(struct karst_cq_shared));
	init.lanes = b->scq_lanes = block(b, karst_lane_bytes(entries, 0));
	cr_assert_eq(karst_cq_create(block(b, karst_cq_object_bytes(&init)), &init, &b->scq), 0);
	init.shared = b->rcq_shared = block(b, sizeof(struct karst_cq_shared));
	init.lanes = b->rcq_lanes = block(b, karst_lane_bytes(entries, 0));
	cr_assert_eq(karst_cq_create(block(b, karst_cq_object_bytes(&init)), &init, &b->rcq), 0);
	karst_cq_lane_attach(&b->slane, b->scq_lanes, entries, 0);
	karst_cq_lane_attach(&b->rlane, b->rcq_lanes, entries, 0);
	cr_assert_eq(karst_cq_user(b->scq), b);
}

static void
open_srq(struct bed *b, const struct setup *s)
{
	uint32_t stride = karst_wq_stride(false, s->qp.max_recv_sge, 0);
	struct karst_srq_init init = {.pd = b->srq_pd,
		.shared = block(b, karst_wq_bytes(s->srq_wr, stride)),
		.max_wr = s->srq_wr,
		.max_sge = s->qp.max_recv_sge,
		.limit = s->srq_limit,
		.xrcd = s->srq_xrcd,
		.cq = s->srq_xrcd != 0 ? b->rcq : NULL,
		.user = b};

	cr_assert_eq(
		karst_srq_create(b->core, block(b, karst_srq_object_bytes()), &init, &b->srq), 0);
	karst_wq_attach(&b->srq_wq, init.shared, s->srq_wr, stride);
}

struct bed *
bed_open(const struct setup *s)
{
	struct karst_core_config cfg = s->core;
	struct bed *b = calloc(1, sizeof(*b));

	open_memory(b);
	cr_assert_eq(karst_ah_table_init(block(b, karst_ah_table_bytes(8)), 8, &b->ahs), 0);
	b->out = calloc(OUT_MAX, sizeof(*b->out));
	b->rq_psn = s->attr.rq_psn;
	b->sq_psn = s->attr.sq_psn;
	b->path = s->attr.path;
	cfg.mem = b->mem;
	cfg.ahs = b->ahs;
	cfg.user = b;
	cr_assert_eq(karst_core_init(block(b, karst_core_bytes(&cfg)), &cfg, T0, &b->core), 0);
	open_cqs(b, s->cq_entries);
	b->srq_pd = b->pd;
	if (s->srq_own_pd)
		cr_assert_eq(karst_pd_alloc(b->mem, &b->srq_pd), 0);
	if (s->srq_wr != 0)
		open_srq(b, s);
	bed_add(b, s);
	return b;
}

struct bed *
bed_rc(void)
{
	struct setup s = setup_of(KARST_QPT_RC);

	return bed_open(&s);
}

static void *
ring(uint32_t slots, uint32_t stride)
{
	void *p = aligned_alloc(64, karst_wq_bytes(slots, stride));

	memset(p, 0, karst_wq_bytes(slots, stride));
	return p;
}

struct side *
bed_add(struct bed *b, const struct setup *s)
{
	struct karst_qp_init init = s->qp;
	uint32_t sstride = karst_wq_stride(true, init.max_send_sge, init.max_inline);
	uint32_t rstride = karst_wq_stride(false, init.max_recv_sge, 0);
	struct side *side;

	cr_assert_lt(b->nsides, SIDES);
	side = b->s = &b->side[b->nsides++];
	memset(side, 0, sizeof(*side));
	init.user = b;
	if (init.type != KARST_QPT_XRC_RECV) {
		init.pd = b->pd;
		init.send_cq = b->scq;
		init.sq_shared = side->sq_mem = ring(init.max_send_wr, sstride);
	}
	if (init.type < KARST_QPT_XRC_SEND)
		init.recv_cq = b->rcq;
	if (init.type < KARST_QPT_XRC_SEND && b->srq != NULL) {
		init.srq = b->srq;
		init.max_recv_wr = init.max_recv_sge = 0;
	} else if (init.max_recv_wr != 0) {
		init.rq_shared = side->rq_mem = ring(init.max_recv_wr, rstride);
	}
	cr_assert_neq(karst_qp_bytes(&init), 0);
	side->qp_mem = aligned_alloc(64, karst_qp_bytes(&init));
	memset(side->qp_mem, 0xdd, karst_qp_bytes(&init));
	karst_qp_prepare(side->qp_mem, &init);
	cr_assert_eq(karst_qp_create(b->core, side->qp_mem, &init, &side->qp), 0);
	side->qpn = karst_qp_num(side->qp);
	if (side->sq_mem != NULL)
		karst_wq_attach(&side->sq, side->sq_mem, init.max_send_wr, sstride);
	if (side->rq_mem != NULL)
		karst_wq_attach(&side->rq, side->rq_mem, init.max_recv_wr, rstride);
	bed_bring_up(b, s, s->state);
	return side;
}

int
bed_modify(struct bed *b, const struct karst_core_qp_attr *attr, unsigned int mask)
{
	return karst_qp_modify(b->core, b->s->qp, attr, mask);
}

int
bed_to_state(struct bed *b, enum karst_qp_state state)
{
	struct karst_core_qp_attr attr = {.qp_state = state};

	return bed_modify(b, &attr, KARST_QP_STATE);
}

void
bed_bring_up(struct bed *b, const struct setup *s, enum karst_qp_state to)
{
	enum karst_qp_type type = karst_qp_type(b->s->qp);
	bool requester = type == KARST_QPT_RC || type == KARST_QPT_XRC_SEND;
	bool responder = type == KARST_QPT_RC || type == KARST_QPT_XRC_RECV;
	bool ud = type == KARST_QPT_UD;
	struct karst_core_qp_attr attr = s->attr;
	unsigned int mask;

	if (to >= KARST_QPS_INIT) {
		attr.qp_state = KARST_QPS_INIT;
		mask = KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT |
			(ud ? KARST_QP_QKEY : KARST_QP_ACCESS_FLAGS);
		cr_assert_eq(bed_modify(b, &attr, mask), 0);
	}
	if (to >= KARST_QPS_RTR) {
		attr.qp_state = KARST_QPS_RTR;
		mask = KARST_QP_STATE;
		if (!ud)
			mask |= KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN |
				KARST_QP_RQ_PSN;
		if (responder)
			mask |= KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER;
		cr_assert_eq(bed_modify(b, &attr, mask), 0);
	}
	if (to >= KARST_QPS_RTS) {
		attr.qp_state = KARST_QPS_RTS;
		mask = KARST_QP_STATE | KARST_QP_SQ_PSN;
		if (type == KARST_QPT_XRC_RECV)
			mask |= KARST_QP_TIMEOUT;
		if (requester)
			mask |= KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
				KARST_QP_MAX_QP_RD_ATOMIC;
		cr_assert_eq(bed_modify(b, &attr, mask), 0);
	}
}

uint32_t
bed_region(struct bed *b, uint32_t off, uint32_t len, unsigned int access)
{
	uint32_t key = 0;

	cr_assert_eq(karst_mr_reg(b->mem, b->pd, b->buf + off, VA + off, len, access, &key), 0);
	return key;
}

void
bed_dereg(struct bed *b, uint32_t key)
{
	cr_assert_eq(karst_mr_dereg_begin(b->mem, key), 0);
	karst_mr_dereg_end(b->mem, key);
}

/* --- taking down --- */

static void
check_guards(const struct bed *b)
{
	uint32_t i;

	for (i = 0; i < GUARD; i++)
		cr_assert(b->guarded[i] == 0xee && b->buf[BUF_BYTES + i] == 0xee,
			"memory around the region was written to");
}

void
bed_destroy_side(struct bed *b, struct side *s)
{
	if (s->qp == NULL)
		return;
	karst_qp_destroy(b->core, s->qp);
	cr_assert_null(karst_core_lookup(b->core, s->qpn));
	s->qp = NULL;
	free(s->qp_mem);
	free(s->sq_mem);
	free(s->rq_mem);
}

void
bed_close_at(struct bed *b, const char *file, int line)
{
	unsigned int i;

	expect_none_at(b, file, line);
	expect_no_wc_at(b, file, line);
	expect_no_event_at(b, file, line);
	for (i = 0; i < b->nsides; i++)
		bed_destroy_side(b, &b->side[i]);
	cr_assert_null(karst_core_next_active(b->core));
	cr_assert_eq(b->core->wheel.count, 0, "a timer outlives its QP");
	if (b->srq != NULL)
		cr_assert_eq(karst_srq_destroy(b->core, b->srq), 0);
	cr_assert_eq(karst_cq_destroy(b->scq), 0);
	cr_assert_eq(karst_cq_destroy(b->rcq), 0);
	check_guards(b);
	for (i = 0; i < b->nblocks; i++)
		free(b->mem_block[i]);
	free(b->out);
	free(b);
}

void
bed_forget(struct bed *b)
{
	const struct karst_cqe *cqe;
	uint32_t n;

	turn(b);
	b->out_head = b->out_tail;
	b->event_head = b->event_tail;
	while ((n = karst_cq_lane_peek(&b->slane, &cqe)) != 0)
		karst_cq_lane_take(&b->slane, n);
	while ((n = karst_cq_lane_peek(&b->rlane, &cqe)) != 0)
		karst_cq_lane_take(&b->rlane, n);
}

/* --- the peer --- */

struct karst_frame
bed_frame(const struct bed *b, const struct karst_ib_hdrs *ib)
{
	const struct karst_path *p = &b->path;
	struct karst_frame f = {
		.vlan = p->has_vlan,
		.vlan_tci = p->vlan_tci,
		.ip6 = p->ip6,
		.ttl = 64,
		.ip_id = 0x77,
		.ip_frag = 0x4000,
		.sport = 0xd111,
		.dport = KARST_ROCE_UDP_PORT,
		.ib = *ib,
	};

	memcpy(f.dmac, p->src_mac, 6);
	memcpy(f.smac, p->dst_mac, 6);
	memcpy(f.saddr, p->dst_ip + (p->ip6 ? 0 : 12), p->ip6 ? 16 : 4);
	memcpy(f.daddr, p->src_ip + (p->ip6 ? 0 : 12), p->ip6 ? 16 : 4);
	if (f.ib.dqpn == 0)
		f.ib.dqpn = b->s->qpn;
	if (f.ib.pkey == 0)
		f.ib.pkey = 0xffff;
	if (f.ib.aeth == 0 && f.ib.opcode != KARST_RC_ACK && f.ib.opcode != KARST_XRC_ACK)
		f.ib.aeth = 0x1f000000; /* no limit, instead of no credit */
	if (f.ib.pay == NULL)
		f.ib.pay = b->pattern;
	return f;
}

enum karst_drop
bed_rx_frame(struct bed *b, const struct karst_frame *f)
{
	static uint8_t frame[8192 + 128];
	struct karst_pkt pkt, *p = &pkt;
	uint32_t l3 = f->vlan ? 18 : 14, crc, i;
	int len = karst_build_frame(frame, sizeof(frame), f);

	cr_assert_gt(len, 0, "the test's frame cannot be built");
	crc = karst_icrc_rocev2(frame + l3, (size_t)len - l3 - KARST_ICRC_LEN, f->ip6);
	for (i = 0; i < 4; i++)
		frame[(uint32_t)len - 4 + i] = (uint8_t)(crc >> 8 * i);
	memset(&pkt, 0xa5, sizeof(pkt));
	/* a buffer of its own and no longer, so that the sanitizer sees whoever keeps it */
	pkt.data = malloc((size_t)len);
	memcpy(pkt.data, frame, (size_t)len);
	pkt.len = (uint16_t)len;
	pkt.port = 0;
	if (karst_parse(&pkt) == KARST_DROP_NONE)
		karst_icrc_verify_burst(&p, 1);
	if (pkt.drop == KARST_DROP_NONE) {
		pkt.qp = karst_core_lookup(b->core, pkt.dqpn);
		if (pkt.qp == NULL) {
			pkt.drop = KARST_DROP_NO_QP;
		} else {
			karst_qp_prefetch(pkt.qp);
			karst_qp_rx(b->core, &pkt);
		}
	}
	memset(pkt.data, 0xdb, (size_t)len);
	free(pkt.data);
	b->rx_pkt = pkt;
	return pkt.drop;
}

enum karst_drop
bed_rx(struct bed *b, const struct karst_ib_hdrs *ib)
{
	struct karst_frame f = bed_frame(b, ib);

	return bed_rx_frame(b, &f);
}

void
bed_rx_many(struct bed *b, const struct karst_ib_hdrs *ib, uint32_t n)
{
	struct karst_frame f = bed_frame(b, ib);
	uint8_t frame[KARST_FRAME_MAX];
	struct karst_pkt first = {.data = frame}, pkt;
	int len = karst_build_frame(frame, sizeof(frame), &f);
	uint32_t i;

	cr_assert_gt(len, 0, "the test's frame cannot be built");
	cr_assert_eq(ib->pay_len, 0);
	first.len = (uint16_t)len;
	cr_assert_eq(karst_parse(&first), KARST_DROP_NONE);
	first.qp = karst_core_lookup(b->core, first.dqpn);
	for (i = 0; i < n; i++) {
		pkt = first;
		pkt.psn = karst_psn_add(first.psn, i);
		karst_qp_rx(b->core, &pkt);
		cr_assert_eq(
			pkt.drop, KARST_DROP_NONE, "packet %u: %s", i, karst_drop_name(pkt.drop));
	}
}

/* --- turns --- */

static void
check_sides(const struct bed *b)
{
	unsigned int i;

	for (i = 0; i < b->nsides; i++) {
		const char *wrong =
			b->side[i].qp != NULL ? qp_selfcheck(b->core, b->side[i].qp) : NULL;

		cr_assert_null(wrong, "QP %u: %s", i, wrong);
	}
	check_guards(b);
}

/* A frame has left: what the peer makes of it. */
static void
take_frame(struct bed *b, struct out_frame *o, const struct karst_pkt *built)
{
	struct karst_pkt *p = &o->pkt;

	cr_assert_eq(p->data, o->data);
	p->port = 0;
	cr_assert_eq(karst_parse(p), KARST_DROP_NONE, "sent a frame that is no good: %s",
		karst_drop_name(p->drop));
	cr_assert_eq(p->len, built->len);
	cr_assert_eq(karst_icrc_verify_burst(&p, 1), 0, "sent a frame with a wrong ICRC");
	cr_assert_eq(p->opcode, built->opcode);
	cr_assert_eq(p->pay_len, built->pay_len);
	cr_assert_eq(p->pay_off, built->pay_off);
}

/* A burst of empty frames, and where they are. */
struct scratch {
	struct karst_tx_burst burst;
	struct karst_pkt *pkts[TX_FRAMES];
	struct karst_seal seals[TX_FRAMES];
	struct karst_seg segs[TX_SEGS];
};

static struct karst_tx_burst *
burst_begin(struct bed *b, struct scratch *s, uint32_t frames)
{
	uint32_t i;

	s->burst = (struct karst_tx_burst){.pkts = s->pkts,
		.seals = s->seals,
		.segs = s->segs,
		.max = frames,
		.max_segs = TX_SEGS};
	cr_assert_leq(frames, TX_FRAMES);
	cr_assert_leq(b->out_tail - b->out_head + frames, OUT_MAX, "frames nobody looked at");
	for (i = 0; i < frames; i++) {
		struct out_frame *o = &b->out[(b->out_tail + i) % OUT_MAX];

		memset(&o->pkt, 0, sizeof(o->pkt));
		o->pkt.data = o->data;
		s->pkts[i] = &o->pkt;
	}
	return &s->burst;
}

static void
burst_end(struct bed *b, struct scratch *s)
{
	struct karst_pkt built;
	uint32_t i;

	cr_assert_leq(s->burst.n, s->burst.max);
	b->charge = s->burst.charge;
	karst_icrc_seal_burst(s->seals, s->burst.n);
	for (i = 0; i < s->burst.n; i++) {
		built = *s->pkts[i];
		take_frame(b, &b->out[(b->out_tail + i) % OUT_MAX], &built);
	}
	b->out_tail += s->burst.n;
}

static bool
visit(struct bed *b, struct karst_core_qp *qp, uint32_t frames, uint32_t bytes)
{
	struct scratch s;
	bool more;

	karst_qp_prefetch_send(qp);
	more = karst_qp_tx(b->core, qp, burst_begin(b, &s, frames), bytes);
	if (more)
		karst_core_activate(b->core, qp);
	burst_end(b, &s);
	return more;
}

struct karst_core_qp *
visit_picked(struct bed *b, uint32_t frames, struct karst_parked *parked)
{
	struct karst_core_qp *qp = karst_core_pick(b->core);
	struct scratch s;

	if (qp == NULL)
		return NULL;
	if (parked != NULL)
		karst_core_park(b->core, burst_begin(b, &s, frames), parked);
	else
		karst_core_visit(b->core, burst_begin(b, &s, frames), UINT32_MAX);
	burst_end(b, &s);
	karst_core_flush(b->core);
	check_sides(b);
	return qp;
}

bool
turn_once(struct bed *b, uint32_t frames, uint32_t bytes)
{
	struct karst_core_qp *qp = karst_core_next_active(b->core);
	bool more = qp != NULL && visit(b, qp, frames, bytes);

	karst_core_flush(b->core);
	check_sides(b);
	return more;
}

void
turn(struct bed *b)
{
	struct karst_core_qp *qp;
	uint32_t visits = 0;

	karst_core_expire(b->core, 1000);
	while ((qp = karst_core_next_active(b->core)) != NULL) {
		cr_assert_lt(visits++, TURN_LIMIT, "the core never comes to rest");
		visit(b, qp, TX_FRAMES, UINT32_MAX);
	}
	karst_core_flush(b->core);
	check_sides(b);
}

void
advance_time(struct bed *b, uint64_t ns)
{
	b->core->now_ns += ns;
	turn(b);
}

/* --- frames that were sent --- */

static const struct karst_pkt *
next_frame(struct bed *b)
{
	if (b->out_head == b->out_tail)
		turn(b);
	if (b->out_head == b->out_tail)
		return NULL;
	return &b->out[b->out_head++ % OUT_MAX].pkt;
}

const struct karst_pkt *
expect_at(struct bed *b, const char *file, int line, uint8_t opcode, uint32_t psn)
{
	const struct karst_pkt *p = next_frame(b);

	if (p == NULL)
		fail("%s:%d: expected %s, nothing was sent", file, line, karst_opcode_name(opcode));
	if (p->opcode != opcode || p->psn != psn)
		fail("%s:%d: expected %s PSN %06x, got %s PSN %06x (AETH %08x)", file, line,
			karst_opcode_name(opcode), psn, karst_opcode_name(p->opcode), p->psn,
			p->aeth);
	return p;
}

void
expect_aeth_at(
	struct bed *b, const char *file, int line, uint32_t psn, uint8_t syndrome, uint32_t msn)
{
	bool xrc = karst_qp_type(b->s->qp) == KARST_QPT_XRC_RECV;
	const struct karst_pkt *p =
		expect_at(b, file, line, xrc ? KARST_XRC_ACK : KARST_RC_ACK, psn);

	if (p->aeth != ((uint32_t)syndrome << 24 | msn))
		fail("%s:%d: expected AETH %02x%06x, got %08x", file, line, syndrome, msn, p->aeth);
	if (p->dqpn != PEER_QPN || p->pay_len != 0)
		fail("%s:%d: acknowledgement to QP %06x", file, line, p->dqpn);
}

void
expect_none_at(struct bed *b, const char *file, int line)
{
	const struct karst_pkt *p = next_frame(b);

	if (p != NULL)
		fail("%s:%d: expected nothing, got %s PSN %06x", file, line,
			karst_opcode_name(p->opcode), p->psn);
}

void
expect_data_at(const struct bed *b, const char *file, int line, const struct karst_pkt *p,
	uint32_t off, uint32_t len)
{
	if (p->pay_len != len)
		fail("%s:%d: expected %u bytes, got %u", file, line, len, p->pay_len);
	if (memcmp(p->data + p->pay_off, b->buf + off, len) != 0)
		fail("%s:%d: payload is not the buffer from %u on", file, line, off);
}

void
expect_mem_at(
	const struct bed *b, const char *file, int line, uint32_t off, uint32_t from, uint32_t len)
{
	if (memcmp(b->buf + off, b->pattern + from, len) != 0)
		fail("%s:%d: the buffer from %u on is not what was sent", file, line, off);
}

void
expect_untouched_at(const struct bed *b, const char *file, int line, uint32_t off, uint32_t len)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		if (b->buf[off + i] != 0xee)
			fail("%s:%d: the buffer was written to at %u", file, line, off + i);
}

/* --- the program --- */

struct karst_send_wqe *
bed_slot(struct bed *b)
{
	cr_assert_gt(karst_wq_free(&b->s->sq, 1), 0, "send queue is full");
	return karst_wq_slot(&b->s->sq, 0);
}

void
bed_publish(struct bed *b, uint32_t n)
{
	if (karst_wq_publish(&b->s->sq, n))
		karst_core_doorbell(b->core, b->s->qpn);
}

static void
put_operands(struct bed *b, struct karst_send_wqe *w, const struct wr *wr)
{
	switch (wr->op) {
	case KARST_WR_BIND_MW:
		w->bind.addr = wr->bind.va;
		w->bind.len = wr->bind.len;
		w->bind.mw_key = wr->bind.mw_key;
		w->bind.new_key = wr->bind.new_key;
		w->bind.mr_key = wr->bind.mr_key;
		w->bind.access = wr->bind.access;
		return;
	case KARST_WR_ATOMIC_CAS:
	case KARST_WR_ATOMIC_FAA:
		w->atomic.compare_add = wr->compare_add;
		w->atomic.swap = wr->swap;
		w->atomic.sge[0] = (struct karst_sge){
			VA + wr->off, wr->len != 0 ? wr->len : 8, wr->lkey ? wr->lkey : b->key};
		w->num = 1;
		return;
	default:
		break;
	}
	if (wr->inl != NULL) {
		w->flags |= KARST_SEND_INLINE;
		w->num = (uint16_t)wr->len;
		memcpy(w->inline_data, wr->inl, wr->len);
	} else if (wr->sge != NULL || wr->len == 0) {
		w->num = (uint16_t)wr->nsge;
		if (wr->nsge != 0)
			memcpy(w->sge, wr->sge, wr->nsge * sizeof(*wr->sge));
	} else {
		w->num = 1;
		w->sge[0] = (struct karst_sge){
			VA + wr->off, wr->len, wr->lkey != 0 ? wr->lkey : b->key};
	}
}

void
bed_post(struct bed *b, const struct wr *wr)
{
	struct karst_send_wqe *w = bed_slot(b);

	memset(w, 0, KARST_SEND_WQE_HDR);
	w->wr_id = wr->id;
	w->opcode = (uint8_t)wr->op;
	w->flags = (uint8_t)(wr->flags | (wr->quiet ? 0 : KARST_SEND_SIGNALED));
	w->imm = wr->imm;
	if (karst_qp_type(b->s->qp) == KARST_QPT_UD) {
		w->ud.ah = wr->ah;
		w->ud.remote_qpn = wr->qpn;
		w->ud.remote_qkey = wr->qkey;
	} else {
		w->rdma.remote_addr = wr->va != 0 ? wr->va : PEER_VA;
		w->rdma.rkey = wr->rkey != 0 ? wr->rkey : PEER_RKEY;
		w->rdma.srqn = wr->srqn;
	}
	put_operands(b, w, wr);
	bed_publish(b, 1);
}

void
post_recv_sge(struct bed *b, uint64_t id, const struct karst_sge *sge, uint32_t nsge)
{
	struct karst_wq *wq = b->srq != NULL ? &b->srq_wq : &b->s->rq;
	struct karst_recv_wqe *w;

	cr_assert_gt(karst_wq_free(wq, 1), 0, "receive queue is full");
	w = karst_wq_slot(wq, 0);
	w->wr_id = id;
	w->num_sge = nsge;
	if (nsge != 0)
		memcpy(w->sge, sge, nsge * sizeof(*sge));
	if (karst_wq_publish(wq, 1))
		karst_core_doorbell(b->core, b->s->qpn);
}

void
post_recv(struct bed *b, uint64_t id, uint32_t off, uint32_t len)
{
	struct karst_sge sge = {VA + off, len, b->key};

	post_recv_sge(b, id, &sge, 1);
}

/* --- completions and events --- */

static bool
next_wc(struct bed *b, bool recv)
{
	struct karst_cq_lane *l = recv ? &b->rlane : &b->slane;
	const struct karst_cqe *cqe;

	if (karst_cq_lane_peek(l, &cqe) == 0)
		turn(b);
	if (karst_cq_lane_peek(l, &cqe) == 0)
		return false;
	b->wc = *cqe;
	karst_cq_lane_take(l, 1);
	return true;
}

const struct karst_cqe *
expect_wc_at(
	struct bed *b, const char *file, int line, bool recv, uint64_t id, enum karst_wc_status st)
{
	if (!next_wc(b, recv))
		fail("%s:%d: no completion", file, line);
	if (b->wc.wr_id != id || b->wc.status != st)
		fail("%s:%d: expected completion of %llu with %d, got %llu with %d", file, line,
			(unsigned long long)id, st, (unsigned long long)b->wc.wr_id, b->wc.status);
	if ((b->wc.opcode & KARST_WC_RECV) != (recv ? KARST_WC_RECV : 0))
		fail("%s:%d: completion of operation %u", file, line, b->wc.opcode);
	return &b->wc;
}

void
expect_no_wc_at(struct bed *b, const char *file, int line)
{
	if (next_wc(b, false) || next_wc(b, true))
		fail("%s:%d: unexpected completion of %llu with %d", file, line,
			(unsigned long long)b->wc.wr_id, b->wc.status);
}

void
expect_event_at(struct bed *b, const char *file, int line, enum karst_async_event_code event,
	const void *object)
{
	struct event e;

	if (b->event_head == b->event_tail)
		turn(b);
	if (b->event_head == b->event_tail)
		fail("%s:%d: expected event %d, there is none", file, line, event);
	e = b->events[b->event_head++ % EVENT_MAX];
	if (e.event != event || e.object != object)
		fail("%s:%d: expected event %d, got %d%s", file, line, event, e.event,
			e.object != object ? " of another object" : "");
}

void
expect_no_event_at(struct bed *b, const char *file, int line)
{
	if (b->event_head == b->event_tail)
		turn(b);
	if (b->event_head != b->event_tail)
		fail("%s:%d: unexpected event %d", file, line,
			b->events[b->event_head % EVENT_MAX].event);
}

void
expect_state_at(struct bed *b, const char *file, int line, enum karst_qp_state state)
{
	if (karst_qp_state(b->s->qp) != state)
		fail("%s:%d: QP is in state %d", file, line, karst_qp_state(b->s->qp));
}
