/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The harness: sets up and takes down a core, its queues, queue pairs and memory. */

#include "harness.h"

#define T0 (50 * MS)

/* --- what the core reports --- */

static void
on_cq_event(struct karst_core *core, struct karst_core_cq *cq)
{
	struct bed *b = core->user;

	b->cq_events++;
	if (b->at_cq_event != NULL)
		b->at_cq_event(b, cq);
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
			.ud_mtu = 1,
			.pacer = true},
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

struct setup
setup_congested(enum karst_qp_type type, enum karst_congestion_mode mode,
	struct karst_congestion_config *config)
{
	struct setup s = setup_of(type);

	karst_congestion_defaults(config);
	config->mode = mode;
	s.core.congestion = config;
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
		if (attr.repeat_window != 0)
			mask |= KARST_QP_REPEAT;
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

void
bed_check_guards(const struct bed *b)
{
	const uint8_t *before = b->guarded, *behind = b->buf + BUF_BYTES;

	/* the first byte is right, and each is equal to the next; checked after every turn */
	cr_assert(*before == 0xee && memcmp(before, before + 1, GUARD - 1) == 0 &&
			*behind == 0xee && memcmp(behind, behind + 1, GUARD - 1) == 0,
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
	cr_assert_eq(b->core->timing.count, 0, "a timer outlives its QP");
	if (b->srq != NULL)
		cr_assert_eq(karst_srq_destroy(b->core, b->srq), 0);
	cr_assert_eq(karst_cq_destroy(b->scq), 0);
	cr_assert_eq(karst_cq_destroy(b->rcq), 0);
	bed_check_guards(b);
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
