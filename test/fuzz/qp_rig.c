/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Set-up of the fuzz target of queue pairs, and values that an input chooses from it. */
#include "qp_rig.h"

#include "karst_hdr.h"

/* All memory is static: a run begins by initializing it. */
uint8_t arena[PAGES * PAGE] karst_cache_aligned;
static uint8_t mem_buf[65536] karst_cache_aligned;
static uint8_t core_buf[32768] karst_cache_aligned;
static uint8_t ah_buf[4096] karst_cache_aligned;
static uint8_t cq_buf[4096] karst_cache_aligned;
uint8_t cq_shared[16384] karst_cache_aligned;
static uint8_t srq_buf[2][512] karst_cache_aligned;
uint8_t srq_shared[4096] karst_cache_aligned;
static uint8_t qp_buf[QPS][4096] karst_cache_aligned;
uint8_t sq_shared[QPS][4096] karst_cache_aligned;
uint8_t rq_shared[QPS][4096] karst_cache_aligned;

/* --- set-up --- */

static void
on_cq_event(struct karst_core *core, struct karst_core_cq *cq)
{
	CHECK(core != NULL && cq != NULL);
}

static void
on_async_event(struct karst_core *core, enum karst_async_event_code event, void *object)
{
	CHECK(core != NULL && object != NULL && event <= KARST_EVENT_QP_LAST_WQE_REACHED);
}

static const struct karst_core_ops ops = {on_cq_event, on_async_event};

uint32_t
region(struct rig *r, uint32_t pd, unsigned int page, unsigned int access)
{
	uint32_t key;

	CHECK(karst_mr_reg(r->mem, pd, arena + page * PAGE, VA + page * PAGE, PAGE, access, &key) ==
		0);
	return key;
}

static void
open_memory(struct rig *r)
{
	struct karst_mem_config cfg = {.max_keys = 32, .max_pds = 2, .seed = {3, 4}};
	unsigned int all = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE | KARST_ACCESS_MW_BIND;
	uint32_t other = 0;

	memset(arena, 0xee, sizeof(arena));
	CHECK(karst_mem_size(&cfg) <= sizeof(mem_buf));
	CHECK(karst_mem_init(mem_buf, &cfg, &r->mem) == 0);
	CHECK(karst_pd_alloc(r->mem, &r->pd) == 0 && karst_pd_alloc(r->mem, &other) == 0);
	r->key[KEY_OPEN] = region(r, r->pd, PAGE_OPEN, all);
	r->key[KEY_LOCAL] = region(r, r->pd, PAGE_LOCAL, KARST_ACCESS_LOCAL_WRITE);
	r->key[KEY_READ_ONLY] = region(r, r->pd, PAGE_READ_ONLY, KARST_ACCESS_REMOTE_READ);
	r->key[KEY_OTHER_PD] = region(r, other, PAGE_OTHER_PD, all);
	CHECK(karst_mw_alloc(r->mem, r->pd, KARST_MEM_MW1, &r->key[KEY_WINDOW1]) == 0);
	CHECK(karst_mw_alloc(r->mem, r->pd, KARST_MEM_MW2, &r->key[KEY_WINDOW2]) == 0);
}

static void
open_core(struct rig *r, uint8_t how)
{
	struct karst_core_config cfg = {.max_qps = 4,
		.max_xrc_srqs = 2,
		.ack_interval = how & 1 ? 2 : 0,
		.window_packets = how & 2 ? 3 : 0,
		.migreq = true,
		.mem = r->mem,
		.ahs = r->ahs,
		.ops = &ops};
	struct karst_cq_init cq = {.shared = cq_shared,
		.lanes = cq_shared + sizeof(struct karst_cq_shared),
		.entries = CQ_SIZE,
		.nlanes = 1};

	if (how & 4)
		cq.entries = 8;
	r->cq_entries = cq.entries;
	CHECK(karst_ah_table_bytes(4) <= sizeof(ah_buf));
	CHECK(karst_ah_table_init(ah_buf, 4, &r->ahs) == 0);
	CHECK(karst_ah_create(r->ahs, r->pd, &r->path, &r->ah) == 0);
	cfg.ahs = r->ahs;
	CHECK(karst_core_bytes(&cfg) <= sizeof(core_buf));
	CHECK(karst_core_init(core_buf, &cfg, 1000, &r->core) == 0);
	CHECK(karst_cq_object_bytes(&cq) <= sizeof(cq_buf));
	CHECK(sizeof(struct karst_cq_shared) + karst_lane_bytes(cq.entries, 0) <=
		sizeof(cq_shared));
	CHECK(karst_cq_create(cq_buf, &cq, &r->cq) == 0);
}

static void
open_srq(struct rig *r, uint8_t limit)
{
	struct karst_srq_init init = {.pd = r->pd,
		.shared = srq_shared,
		.max_wr = SLOTS,
		.max_sge = MAX_SGE,
		.limit = limit % SLOTS};

	CHECK(karst_srq_object_bytes() <= sizeof(srq_buf[0]));
	CHECK(karst_srq_create(r->core, srq_buf[0], &init, &r->srq) == 0);
	karst_wq_attach(&r->rq[0], srq_shared, SLOTS, karst_wq_stride(false, MAX_SGE, 0));
	r->rq[1] = r->rq[0];
}

/* Opens one of the two SRQs of XRC, with its ring initialized. */
struct karst_core_srq *
open_xrc_srq(struct rig *r, unsigned int i)
{
	struct karst_srq_init init = {.pd = r->pd,
		.xrcd = 1,
		.cq = r->cq,
		.shared = i == 0 ? srq_shared : rq_shared[1],
		.max_wr = SLOTS,
		.max_sge = MAX_SGE};
	struct karst_core_srq *srq;

	CHECK(karst_srq_create(r->core, srq_buf[i], &init, &srq) == 0);
	karst_wq_attach(&r->rq[i], init.shared, SLOTS, karst_wq_stride(false, MAX_SGE, 0));
	return srq;
}

bool
is_xrc(const struct rig *r)
{
	return r->type == KARST_QPT_XRC_SEND;
}

static void
open_target(struct rig *r, uint8_t rd)
{
	const struct karst_qp_init init = {
		.type = KARST_QPT_XRC_RECV, .xrcd = 1, .max_dest_rd_atomic = 1 + (rd & 3)};

	CHECK(karst_qp_bytes(&init) != 0 && karst_qp_bytes(&init) <= sizeof(qp_buf[1]));
	karst_qp_prepare(qp_buf[1], &init);
	CHECK(karst_qp_create(r->core, qp_buf[1], &init, &r->qp[1]) == 0);
}

static void
open_qp(struct rig *r, unsigned int i, uint8_t how, uint8_t rd)
{
	struct karst_qp_init init = {.type = r->type,
		.pd = r->pd,
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.srq = r->srq,
		.sq_shared = sq_shared[i],
		.max_send_wr = SLOTS,
		.max_send_sge = MAX_SGE,
		.max_inline = INLINE,
		.max_dest_rd_atomic = r->type == KARST_QPT_RC ? 1 + (rd & 3) : 0,
		.sq_sig_all = how & 1,
		.credits = how & 2,
		.ud_mtu = 1};
	uint32_t sstride = karst_wq_stride(true, MAX_SGE, INLINE);
	uint32_t rstride = karst_wq_stride(false, MAX_SGE, 0);

	if (is_xrc(r)) {
		init.recv_cq = NULL;
		init.srq = NULL;
	} else if (r->srq == NULL) {
		init.rq_shared = rq_shared[i];
		init.max_recv_wr = SLOTS;
		init.max_recv_sge = MAX_SGE;
	}
	CHECK(karst_wq_bytes(SLOTS, sstride) <= sizeof(sq_shared[i]));
	CHECK(karst_qp_bytes(&init) != 0 && karst_qp_bytes(&init) <= sizeof(qp_buf[i]));
	karst_qp_prepare(qp_buf[i], &init);
	CHECK(karst_qp_create(r->core, qp_buf[i], &init, &r->qp[i]) == 0);
	karst_wq_attach(&r->sq[i], sq_shared[i], SLOTS, sstride);
	if (r->srq == NULL)
		karst_wq_attach(&r->rq[i], rq_shared[i], SLOTS, rstride);
}

/* Takes it as far towards RTS as @how says. */
static void
connect_qp(struct rig *r, unsigned int i, uint8_t how, uint8_t rd)
{
	struct karst_core_qp_attr a = {.path_mtu = 1,
		.qkey = 0x77,
		.rq_psn = 0xfffff8,
		.sq_psn = 0xfffffc,
		.dest_qpn = 0x1234,
		.access_flags = KARST_ACCESS_REMOTE,
		.port_num = 1,
		.timeout = how >> 4 & 7,
		.retry_cnt = how >> 2 & 3,
		.rnr_retry = how & 7,
		.min_rnr_timer = 1,
		.max_rd_atomic = 1 + (rd >> 4 & 3),
		.max_dest_rd_atomic = 1 + (rd & 3),
		.path = r->path};
	enum karst_qp_type type = karst_qp_type(r->qp[i]);
	unsigned int first = KARST_QP_PKEY_INDEX | KARST_QP_PORT, second = 0;
	unsigned int third = KARST_QP_SQ_PSN;

	first |= type == KARST_QPT_UD ? KARST_QP_QKEY : KARST_QP_ACCESS_FLAGS;
	if (type != KARST_QPT_UD)
		second |= KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN;
	if (type == KARST_QPT_RC || type == KARST_QPT_XRC_RECV)
		second |= KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER;
	if (type == KARST_QPT_XRC_RECV)
		third |= KARST_QP_TIMEOUT;
	if (type == KARST_QPT_RC || type == KARST_QPT_XRC_SEND) {
		third |= KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
			KARST_QP_MAX_QP_RD_ATOMIC;
	}
	a.qp_state = KARST_QPS_INIT;
	CHECK(karst_qp_modify(r->core, r->qp[i], &a, KARST_QP_STATE | first) == 0);
	a.qp_state = KARST_QPS_RTR;
	CHECK(karst_qp_modify(r->core, r->qp[i], &a, KARST_QP_STATE | second) == 0);
	if (how & 0x80)
		return;
	a.qp_state = KARST_QPS_RTS;
	CHECK(karst_qp_modify(r->core, r->qp[i], &a, KARST_QP_STATE | third) == 0);
}

void
open_rig(struct rig *r, struct input *in)
{
	static const enum karst_qp_type types[] = {
		KARST_QPT_RC, KARST_QPT_RC, KARST_QPT_RC, KARST_QPT_UC, KARST_QPT_UD};
	uint8_t kind = u8(in), shape = u8(in), how = u8(in), rd = u8(in);
	unsigned int i;

	memset(r, 0, sizeof(*r));
	r->type = kind >= 0xf0 ? KARST_QPT_XRC_SEND : types[kind % KARST_DIM(types)];
	r->path = (struct karst_path){.src_mac = {2, 1},
		.dst_mac = {2, 2},
		.src_ip = {[0] = 0x20, [12] = 10, [15] = 1},
		.dst_ip = {[0] = 0x20, [12] = 10, [15] = 2},
		.ip6 = shape & 0x80,
		.has_vlan = shape & 0x40,
		.vlan_tci = 7};
	memset(sq_shared, 0, sizeof(sq_shared));
	memset(rq_shared, 0, sizeof(rq_shared));
	memset(srq_shared, 0, sizeof(srq_shared));
	open_memory(r);
	open_core(r, shape);
	if (is_xrc(r)) {
		r->srq = open_xrc_srq(r, 0);
		r->srq2 = open_xrc_srq(r, 1);
	} else if (shape & 8) {
		open_srq(r, rd);
	}
	for (i = 0; i < QPS; i++) {
		if (is_xrc(r) && i == 1)
			open_target(r, rd);
		else
			open_qp(r, i, shape >> 4, rd);
		connect_qp(r, i, how, rd);
	}
}

/* --- values chosen by the input --- */

uint32_t
some_key(const struct rig *r, struct input *in)
{
	uint8_t which = u8(in);

	return which < 0xf0 ? r->key[which % KEYS] : take(in, 4);
}

uint64_t
some_va(struct input *in)
{
	uint8_t which = u8(in);

	if (which >= 0xf0)
		return (uint64_t)take(in, 4) << 32 | take(in, 4);
	/* a page, and an offset in it; often near the end, where errors show */
	return VA + (1 + which % 5) * PAGE + (which & 0x80 ? PAGE - take(in, 1) : take(in, 1) * 8);
}

uint32_t
some_len(struct input *in)
{
	static const uint32_t lens[] = {0, 1, 4, 8, MTU - 1, MTU, MTU + 1, 2 * MTU, 600, PAGE,
		PAGE + 1, 0x80000000u, UINT32_MAX};
	uint8_t which = u8(in);

	return which < 0xa0 ? which : lens[which % KARST_DIM(lens)];
}
