/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Fuzz target: the entry points of queue pairs.
 *
 * The first bytes of an input choose two queue pairs of one kind (RC, UC, UD; or the two halves of
 * XRC, with two SRQs), their limits, and what they share.  The rest is a list of actions: raw
 * frames; frames of chosen fields near the PSNs that count, with a right ICRC, so that the state
 * machines are reached; time; transmission with small budgets; work requests good and bad; nonsense
 * in the shared rings; modify calls; regions that go away.
 *
 * What must hold: no sanitizer report; the invariants of unit/qp/selfcheck.h after every action;
 * every frame sent parses and carries a right ICRC; memory that nobody may write to keeps its
 * contents: the guards, a read-only region, a region of another protection domain, and one without
 * remote rights as long as the program has not named it.  In the end the queue pairs go into Error
 * and everything is flushed within a bounded number of turns (principle: never stuck).
 */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"
#include "karst_build.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_parse.h"
#include "karst_psn.h"
#include "karst_qp.h"
#include "selfcheck.h"

#define PAGE      4096u
#define PAGES     7u
#define VA        0x500000000000ull
#define SLOTS     16u
#define MAX_SGE   3u
#define INLINE    48u
#define CQ_SIZE   256u
#define QPS       2u
#define ACTIONS   400u
#define FRAMES    8u
#define MTU       256u
#define MAX_TURNS 4096u

/* Pages of the arena; the others are guards. */
enum { PAGE_OPEN = 1, PAGE_LOCAL = 3, PAGE_READ_ONLY = 4, PAGE_FOREIGN = 5 };

enum { KEY_OPEN, KEY_LOCAL, KEY_READ_ONLY, KEY_FOREIGN, KEY_WINDOW1, KEY_WINDOW2, KEYS };

struct input {
	const uint8_t *p;
	size_t left;
};

struct rig {
	struct karst_mem *mem;
	struct karst_core *core;
	struct karst_ah_table *ahs;
	struct karst_core_cq *cq;
	uint32_t cq_entries;
	struct karst_core_srq *srq;
	struct karst_core_srq *srq2; /* XRC: comes and goes */
	struct karst_core_qp *qp[QPS];
	struct karst_wq sq[QPS];
	struct karst_wq rq[QPS];
	uint32_t pd;
	uint32_t key[KEYS];
	uint32_t ah;
	bool local_named; /* the program has used the key of PAGE_LOCAL */
	struct karst_path path;
	enum karst_qp_type type; /* of both; XRC_SEND: the second is an XRC_RECV */
};

/* All memory is static: a run begins by writing it anew. */
static uint8_t arena[PAGES * PAGE] karst_cache_aligned;
static uint8_t mem_buf[65536] karst_cache_aligned;
static uint8_t core_buf[32768] karst_cache_aligned;
static uint8_t ah_buf[4096] karst_cache_aligned;
static uint8_t cq_buf[4096] karst_cache_aligned;
static uint8_t cq_shared[16384] karst_cache_aligned;
static uint8_t srq_buf[2][512] karst_cache_aligned;
static uint8_t srq_shared[4096] karst_cache_aligned;
static uint8_t qp_buf[QPS][4096] karst_cache_aligned;
static uint8_t sq_shared[QPS][4096] karst_cache_aligned;
static uint8_t rq_shared[QPS][4096] karst_cache_aligned;

#define must(c) must_at((c), #c, __LINE__)

static void
must_at(bool good, const char *what, int line)
{
	if (good)
		return;
	fprintf(stderr, "fuzz_qp.c:%d: %s\n", line, what);
	abort();
}

/* @wrong: what is, or NULL. */
static void
fine(const char *wrong)
{
	must_at(wrong == NULL, wrong, __LINE__);
}

/* --- input --- */

static uint32_t
take(struct input *in, unsigned int bytes)
{
	uint32_t v = 0;

	while (bytes-- > 0 && in->left > 0) {
		v = v << 8 | *in->p++;
		in->left--;
	}
	return v;
}

static uint8_t
u8(struct input *in)
{
	return (uint8_t)take(in, 1);
}

/* --- set-up --- */

static void
on_cq_event(struct karst_core *core, struct karst_core_cq *cq)
{
	must(core != NULL && cq != NULL);
}

static void
on_async_event(struct karst_core *core, enum karst_async_event_code event, void *object)
{
	must(core != NULL && object != NULL && event <= KARST_EVENT_QP_LAST_WQE_REACHED);
}

static const struct karst_core_ops ops = {on_cq_event, on_async_event};

static uint32_t
region(struct rig *r, uint32_t pd, unsigned int page, unsigned int access)
{
	uint32_t key;

	must(karst_mr_reg(r->mem, pd, arena + page * PAGE, VA + page * PAGE, PAGE, access, &key) ==
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
	must(karst_mem_size(&cfg) <= sizeof(mem_buf));
	must(karst_mem_init(mem_buf, &cfg, &r->mem) == 0);
	must(karst_pd_alloc(r->mem, &r->pd) == 0 && karst_pd_alloc(r->mem, &other) == 0);
	r->key[KEY_OPEN] = region(r, r->pd, PAGE_OPEN, all);
	r->key[KEY_LOCAL] = region(r, r->pd, PAGE_LOCAL, KARST_ACCESS_LOCAL_WRITE);
	r->key[KEY_READ_ONLY] = region(r, r->pd, PAGE_READ_ONLY, KARST_ACCESS_REMOTE_READ);
	r->key[KEY_FOREIGN] = region(r, other, PAGE_FOREIGN, all);
	must(karst_mw_alloc(r->mem, r->pd, KARST_MEM_MW1, &r->key[KEY_WINDOW1]) == 0);
	must(karst_mw_alloc(r->mem, r->pd, KARST_MEM_MW2, &r->key[KEY_WINDOW2]) == 0);
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
	must(karst_ah_table_bytes(4) <= sizeof(ah_buf));
	must(karst_ah_table_init(ah_buf, 4, &r->ahs) == 0);
	must(karst_ah_create(r->ahs, r->pd, &r->path, &r->ah) == 0);
	cfg.ahs = r->ahs;
	must(karst_core_bytes(&cfg) <= sizeof(core_buf));
	must(karst_core_init(core_buf, &cfg, 1000, &r->core) == 0);
	must(karst_cq_object_bytes(&cq) <= sizeof(cq_buf));
	must(sizeof(struct karst_cq_shared) + karst_lane_bytes(cq.entries, 0) <= sizeof(cq_shared));
	must(karst_cq_create(cq_buf, &cq, &r->cq) == 0);
}

static void
open_srq(struct rig *r, uint8_t limit)
{
	struct karst_srq_init init = {.pd = r->pd,
		.shared = srq_shared,
		.max_wr = SLOTS,
		.max_sge = MAX_SGE,
		.limit = limit % SLOTS};

	must(karst_srq_object_bytes() <= sizeof(srq_buf[0]));
	must(karst_srq_create(r->core, srq_buf[0], &init, &r->srq) == 0);
	karst_wq_attach(&r->rq[0], srq_shared, SLOTS, karst_wq_stride(false, MAX_SGE, 0));
	r->rq[1] = r->rq[0];
}

/* One of the two of XRC; its ring is anew with it. */
static struct karst_core_srq *
open_xrc_srq(struct rig *r, unsigned int i)
{
	struct karst_srq_init init = {.pd = r->pd,
		.xrcd = 1,
		.cq = r->cq,
		.shared = i == 0 ? srq_shared : rq_shared[1],
		.max_wr = SLOTS,
		.max_sge = MAX_SGE};
	struct karst_core_srq *srq;

	must(karst_srq_create(r->core, srq_buf[i], &init, &srq) == 0);
	karst_wq_attach(&r->rq[i], init.shared, SLOTS, karst_wq_stride(false, MAX_SGE, 0));
	return srq;
}

static bool
is_xrc(const struct rig *r)
{
	return r->type == KARST_QPT_XRC_SEND;
}

static void
open_target(struct rig *r, uint8_t rd)
{
	const struct karst_qp_init init = {
		.type = KARST_QPT_XRC_RECV, .xrcd = 1, .max_dest_rd_atomic = 1 + (rd & 3)};

	must(karst_qp_bytes(&init) != 0 && karst_qp_bytes(&init) <= sizeof(qp_buf[1]));
	karst_qp_prepare(qp_buf[1], &init);
	must(karst_qp_create(r->core, qp_buf[1], &init, &r->qp[1]) == 0);
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
	must(karst_wq_bytes(SLOTS, sstride) <= sizeof(sq_shared[i]));
	must(karst_qp_bytes(&init) != 0 && karst_qp_bytes(&init) <= sizeof(qp_buf[i]));
	karst_qp_prepare(qp_buf[i], &init);
	must(karst_qp_create(r->core, qp_buf[i], &init, &r->qp[i]) == 0);
	karst_wq_attach(&r->sq[i], sq_shared[i], SLOTS, sstride);
	if (r->srq == NULL)
		karst_wq_attach(&r->rq[i], rq_shared[i], SLOTS, rstride);
}

/* As far towards RTS as @how says. */
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
	must(karst_qp_modify(r->core, r->qp[i], &a, KARST_QP_STATE | first) == 0);
	a.qp_state = KARST_QPS_RTR;
	must(karst_qp_modify(r->core, r->qp[i], &a, KARST_QP_STATE | second) == 0);
	if (how & 0x80)
		return;
	a.qp_state = KARST_QPS_RTS;
	must(karst_qp_modify(r->core, r->qp[i], &a, KARST_QP_STATE | third) == 0);
}

static void
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

/* --- frames in --- */

/* Everything that a received frame goes through; @data is exactly as long as the frame. */
static void
deliver(struct rig *r, const uint8_t *bytes, size_t len, bool sealed)
{
	struct karst_pkt pkt, *p = &pkt;

	memset(&pkt, 0x5a, sizeof(pkt));
	pkt.data = malloc(len != 0 ? len : 1);
	must(pkt.data != NULL);
	memcpy(pkt.data, bytes, len);
	pkt.len = (uint16_t)len;
	pkt.port = 0;
	if (karst_parse(&pkt) == KARST_DROP_NONE && !sealed) {
		/* of raw frames most would end here */
		const uint8_t *l3 = pkt.data + karst_pkt_l3_off(&pkt);
		uint32_t crc =
			karst_icrc_rocev2(l3, (size_t)(pkt.data + pkt.len - l3) - KARST_ICRC_LEN,
				(pkt.flags & KARST_PKT_IP6) != 0);

		memcpy(pkt.data + pkt.len - KARST_ICRC_LEN, &crc, sizeof(crc));
	}
	if (pkt.drop == KARST_DROP_NONE)
		must(karst_icrc_verify_burst(&p, 1) == 0);
	if (pkt.drop == KARST_DROP_NONE) {
		pkt.qp = karst_core_lookup(r->core, pkt.dqpn);
		if (pkt.qp != NULL)
			karst_qp_rx(r->core, &pkt);
	}
	must(pkt.drop < KARST_DROP_MAX);
	free(pkt.data);
}

static void
raw_frame(struct rig *r, struct input *in)
{
	size_t len = take(in, 2) % 700;

	if (len > in->left)
		len = in->left;
	deliver(r, in->p, len, false);
	in->p += len;
	in->left -= len;
}

static uint32_t
some_key(const struct rig *r, struct input *in)
{
	uint8_t which = u8(in);

	return which < 0xf0 ? r->key[which % KEYS] : take(in, 4);
}

static uint64_t
some_va(struct input *in)
{
	uint8_t which = u8(in);

	if (which >= 0xf0)
		return (uint64_t)take(in, 4) << 32 | take(in, 4);
	/* a page, and where in it; the far end is the interesting one */
	return VA + (1 + which % 5) * PAGE + (which & 0x80 ? PAGE - take(in, 1) : take(in, 1) * 8);
}

static uint32_t
some_len(struct input *in)
{
	static const uint32_t lens[] = {0, 1, 4, 8, MTU - 1, MTU, MTU + 1, 2 * MTU, 600, PAGE,
		PAGE + 1, 0x80000000u, UINT32_MAX};
	uint8_t which = u8(in);

	return which < 0xa0 ? which : lens[which % KARST_DIM(lens)];
}

/* A PSN near one that means something to the QP. */
static uint32_t
some_psn(const struct qp_numbers *near, bool request, struct input *in)
{
	uint8_t which = u8(in);
	uint32_t base = request ? near->epsn : near->una_psn;

	if (which >= 0xf8)
		return take(in, 3);
	if (which >= 0xe0)
		base = request ? near->epsn + (1u << 23) : near->nxt_psn;
	if (which < 0x80)
		return base & KARST_PSN_MASK;
	return (base + (which & 31) - 16) & KARST_PSN_MASK;
}

static void
made_frame(struct rig *r, struct input *in)
{
	static const uint8_t transport[] = {[KARST_QPT_RC] = 0,
		[KARST_QPT_UC] = 0x20,
		[KARST_QPT_UD] = 0x60,
		[KARST_QPT_XRC_SEND] = 0xa0};
	static uint8_t frame[2048];
	uint8_t which = u8(in), opcode = u8(in), flags = u8(in);
	const struct karst_core_qp *qp = r->qp[which & 1];
	struct qp_numbers near;
	bool request;
	struct karst_frame f = {.vlan = r->path.has_vlan,
		.ip6 = r->path.ip6,
		.ttl = 64,
		.ip_frag = 0x4000,
		.sport = 0xc000,
		.dport = KARST_ROCE_UDP_PORT};
	uint32_t l3 = f.vlan ? 18 : 14, crc;
	int len;

	if (!(which & 0x80))
		opcode = (uint8_t)(transport[r->type] | (opcode & 0x1f));
	qp_numbers(qp, &near);
	request = (karst_opcode_flags(opcode) & KARST_OPF_REQUEST) != 0;
	memcpy(f.saddr, r->path.dst_ip + (f.ip6 ? 0 : 12), f.ip6 ? 16 : 4);
	memcpy(f.daddr, r->path.src_ip + (f.ip6 ? 0 : 12), f.ip6 ? 16 : 4);
	f.ib = (struct karst_ib_hdrs){.opcode = opcode,
		.se = flags & 1,
		.ackreq = flags & 2,
		.becn = flags & 4,
		.pkey = flags & 8 ? 0x7fff : 0xffff,
		.dqpn = karst_qp_num(qp),
		.psn = some_psn(&near, request, in),
		.qkey = 0x77,
		.src_qpn = 0x99,
		.imm = 0x01020304};
	if (is_xrc(r)) {
		f.ib.srqn = karst_srq_num(flags & 0x80 ? r->srq2 : r->srq);
		if (which & 0x40)
			f.ib.srqn ^= 1u << (which >> 1 & 31);
		f.ib.src_qpn = 0; /* they share a place */
	}
	f.ib.va = some_va(in);
	f.ib.rkey = some_key(r, in);
	f.ib.inv_rkey = f.ib.rkey;
	f.ib.pay_len = (uint16_t)(karst_opcode_flags(opcode) & KARST_OPF_PAYLOAD
			? karst_min_u32(some_len(in), 600)
			: 0);
	f.ib.dma_len = flags & 0x10 ? f.ib.pay_len : some_len(in);
	f.ib.aeth = (flags & 0x20 ? take(in, 1) : 0x1fu) << 24 | near.ssn;
	f.ib.swap_add = f.ib.va;
	f.ib.compare = flags & 0x40 ? 0xeeeeeeeeeeeeeeeeull : 0;
	len = karst_build_frame(frame, sizeof(frame), &f);
	if (len < 0)
		return;
	crc = karst_icrc_rocev2(frame + l3, (size_t)len - l3 - KARST_ICRC_LEN, f.ip6);
	memcpy(frame + len - KARST_ICRC_LEN, &crc, sizeof(crc));
	deliver(r, frame, (size_t)len, true);
}

/* --- frames out, time --- */

static bool
visit(struct rig *r, struct karst_core_qp *qp, uint32_t frames, uint32_t bytes)
{
	static uint8_t data[FRAMES][KARST_FRAME_MAX];
	struct karst_pkt pkt[FRAMES], *pkts[FRAMES];
	struct karst_seal seals[FRAMES];
	struct karst_seg segs[KARST_WQ_MAX_SGE + 8];
	struct karst_tx_burst b = {.pkts = pkts,
		.seals = seals,
		.segs = segs,
		.max = frames,
		.max_segs = KARST_DIM(segs)};
	uint32_t i;
	bool more;

	for (i = 0; i < FRAMES; i++) {
		memset(&pkt[i], 0, sizeof(pkt[i]));
		pkt[i].data = data[i];
		pkts[i] = &pkt[i];
	}
	more = karst_qp_tx(r->core, qp, &b, bytes);
	must(b.n <= frames && b.nsegs <= b.max_segs);
	karst_icrc_seal_burst(seals, b.n);
	for (i = 0; i < b.n; i++)
		must(pkt[i].len <= KARST_FRAME_MAX && karst_parse(&pkt[i]) == KARST_DROP_NONE);
	must(karst_icrc_verify_burst(pkts, b.n) == 0);
	if (more)
		karst_core_activate(r->core, qp);
	return more;
}

static void
transmit(struct rig *r, struct input *in)
{
	uint32_t frames = 1 + u8(in) % FRAMES, visits = 1 + u8(in) % 4, bytes = take(in, 2);

	while (visits-- > 0) {
		struct karst_core_qp *qp = karst_core_next_active(r->core);

		if (qp == NULL)
			break;
		visit(r, qp, frames, bytes);
	}
	karst_core_flush(r->core);
}

static void
pass_time(struct rig *r, struct input *in)
{
	uint8_t how = u8(in);

	r->core->now_ns += (uint64_t)(1 + take(in, 1)) << (how & 31);
	karst_core_expire(r->core, 1 + (how >> 5));
}

/* --- the program --- */

static void
name_key(struct rig *r, uint32_t key)
{
	if (key == r->key[KEY_LOCAL])
		r->local_named = true;
}

static void
ring(struct rig *r, unsigned int i, bool rung)
{
	if (rung)
		karst_core_doorbell(r->core, karst_qp_num(r->qp[i]));
}

static void
post_send(struct rig *r, struct input *in)
{
	unsigned int which = u8(in), i = is_xrc(r) ? 0 : which & 1;
	struct karst_send_wqe *w = karst_wq_slot(&r->sq[i], 0);
	uint8_t op = u8(in), flags = u8(in), n;
	struct karst_sge *sge = w->sge;

	if (karst_wq_free(&r->sq[i], 1) == 0)
		return;
	memset(w, 0, KARST_SEND_WQE_HDR);
	w->opcode = op % 20;
	w->flags = flags & 15;
	w->imm = flags & 0x40 ? some_key(r, in) : 7;
	if (r->type == KARST_QPT_UD) {
		w->ud.ah = flags & 0x80 ? take(in, 1) : r->ah;
		w->ud.remote_qpn = 5;
	} else {
		w->rdma.remote_addr = 0x1000;
		w->rdma.rkey = 0x100;
		w->rdma.srqn = flags & 0x80 ? 1u << 24 : 0xffffff;
	}
	if (w->opcode == KARST_WR_BIND_MW) {
		w->bind.addr = some_va(in);
		w->bind.len = some_len(in);
		w->bind.mw_key = some_key(r, in);
		w->bind.new_key = w->bind.mw_key + (flags >> 7);
		w->bind.mr_key = some_key(r, in);
		w->bind.access = u8(in);
	} else if (w->opcode == KARST_WR_ATOMIC_CAS || w->opcode == KARST_WR_ATOMIC_FAA) {
		w->num = 1;
		w->atomic.sge[0] = (struct karst_sge){some_va(in), 8, some_key(r, in)};
		name_key(r, w->atomic.sge[0].lkey);
	} else if (flags & KARST_SEND_INLINE) {
		w->num = u8(in) % (INLINE + 2);
	} else {
		w->num = u8(in) % (MAX_SGE + 2);
		for (n = 0; n < w->num && n < MAX_SGE; n++) {
			sge[n] = (struct karst_sge){some_va(in), some_len(in), some_key(r, in)};
			name_key(r, sge[n].lkey);
		}
	}
	ring(r, i, karst_wq_publish(&r->sq[i], 1));
}

static void
post_recv(struct rig *r, struct input *in)
{
	unsigned int i = u8(in) & 1, q = r->srq != NULL && !is_xrc(r) ? 0 : i;
	struct karst_recv_wqe *w = karst_wq_slot(&r->rq[q], 0);
	struct karst_sge *sge = w->sge;
	uint32_t n;

	if (karst_wq_free(&r->rq[q], 1) == 0)
		return;
	w->wr_id = 1;
	w->num_sge = u8(in) % (MAX_SGE + 2);
	for (n = 0; n < w->num_sge && n < MAX_SGE; n++) {
		sge[n] = (struct karst_sge){some_va(in), some_len(in), some_key(r, in)};
		name_key(r, sge[n].lkey);
	}
	ring(r, i, karst_wq_publish(&r->rq[q], 1));
}

/* Bytes of the input anywhere in what is shared: slots, tails, heads, flags, the CQ. */
static void
scribble(struct rig *r, struct input *in)
{
	uint8_t what = u8(in), n = u8(in) % 80;
	uint8_t *base = sq_shared[what & 1];
	uint32_t at;

	if (what & 2)
		base = r->srq != NULL ? srq_shared : rq_shared[what & 1];
	if (what & 4)
		base = cq_shared;
	/* mostly the slots, now and then the indices */
	at = what & 8 ? (uint32_t)(what >> 4) * 4 : 128 + take(in, 2) % 2048;
	if (what & 8)
		n = 4;
	for (; n > 0 && in->left > 0; n--)
		base[at++] = u8(in);
	r->local_named = true; /* who knows */
}

static void
modify(struct rig *r, struct input *in)
{
	static const uint8_t states[] = {KARST_QPS_RESET, KARST_QPS_INIT, KARST_QPS_RTR,
		KARST_QPS_RTS, KARST_QPS_SQD, KARST_QPS_RTS, KARST_QPS_SQD, KARST_QPS_ERR};
	uint8_t how = u8(in), v = u8(in);
	struct karst_core_qp *qp = r->qp[how & 1];
	struct karst_core_qp_attr a;
	unsigned int mask = how & 0x40 ? take(in, 3) : KARST_QP_STATE;

	karst_qp_query(qp, &a);
	a.qp_state = states[how >> 1 & 7];
	a.timeout = v & 15;
	a.retry_cnt = v & 7;
	a.rnr_retry = v >> 4;
	a.min_rnr_timer = v & 63;
	a.max_rd_atomic = v & 7;
	a.max_dest_rd_atomic = v >> 5;
	a.access_flags = v;
	a.en_sqd_async_notify = v & 1;
	if (how & 0x80) {
		a.rq_psn = a.sq_psn = v;
		a.path_mtu = 1 + (v & 1);
		a.dest_qpn = v;
	}
	karst_qp_modify(r->core, qp, &a, mask);
}

static void
renew_region(struct rig *r)
{
	if (karst_mr_dereg_begin(r->mem, r->key[KEY_OPEN]) != 0)
		return; /* windows are bound to it */
	karst_mr_dereg_end(r->mem, r->key[KEY_OPEN]);
	r->key[KEY_OPEN] = region(r, r->pd, PAGE_OPEN,
		KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE | KARST_ACCESS_MW_BIND);
}

/* The program takes completions; what a bind returned is the window's key from now on. */
static void
take_completions(struct rig *r, struct input *in)
{
	struct karst_lane_shared *sh = (void *)(cq_shared + sizeof(struct karst_cq_shared));
	struct karst_cq_lane lane;
	const struct karst_cqe *cqe;
	uint32_t n;

	karst_core_flush(r->core);
	karst_cq_lane_attach(&lane, sh, r->cq_entries, 0);
	n = karst_min_u32(karst_cq_lane_peek(&lane, &cqe), 1 + u8(in) % 64);
	while (n-- > 0) {
		if (cqe->opcode == KARST_WC_BIND_MW && cqe->status == 0)
			r->key[cqe->imm >> 8 == r->key[KEY_WINDOW1] >> 8 ? KEY_WINDOW1
									 : KEY_WINDOW2] = cqe->imm;
		cqe++;
		karst_cq_lane_take(&lane, 1);
	}
	if (u8(in) & 1)
		karst_cq_arm((void *)cq_shared, false);
}

/* --- what must hold --- */

static void
page_untouched(unsigned int page)
{
	const uint8_t *p = arena + page * PAGE;

	must(p[0] == 0xee && memcmp(p, p + 1, PAGE - 1) == 0);
}

static void
check_memory(const struct rig *r)
{
	page_untouched(0);
	page_untouched(2);
	page_untouched(6);
	page_untouched(PAGE_READ_ONLY);
	page_untouched(PAGE_FOREIGN);
	if (!r->local_named)
		page_untouched(PAGE_LOCAL);
}

static void
check_qps(const struct rig *r)
{
	unsigned int i;

	for (i = 0; i < QPS; i++)
		fine(qp_selfcheck(r->core, r->qp[i]));
}

/* Whatever happened, Error flushes all that was posted, and then there is silence. */
static void
end(struct rig *r)
{
	struct karst_core_qp_attr a = {.qp_state = KARST_QPS_ERR};
	struct karst_core_qp *qp;
	unsigned int i, turns = 0;

	for (i = 0; i < QPS; i++)
		must(karst_qp_modify(r->core, r->qp[i], &a, KARST_QP_STATE) == 0);
	while ((qp = karst_core_next_active(r->core)) != NULL) {
		must(turns++ < MAX_TURNS);
		visit(r, qp, FRAMES, UINT32_MAX);
	}
	karst_core_flush(r->core);
	r->core->now_ns += 1ull << 40;
	karst_core_expire(r->core, 1000);
	must(karst_core_next_active(r->core) == NULL);
	for (i = 0; i < QPS; i++) {
		qp = r->qp[i];
		fine(qp_flushed(qp));
		a.qp_state = KARST_QPS_RESET;
		must(karst_qp_modify(r->core, qp, &a, KARST_QP_STATE) == 0);
		karst_qp_destroy(r->core, qp);
	}
	must(r->core->wheel.count == 0 && !karst_core_has_active(r->core));
	must(r->srq == NULL || karst_srq_destroy(r->core, r->srq) == 0);
	must(r->srq2 == NULL || karst_srq_destroy(r->core, r->srq2) == 0);
	must(karst_cq_destroy(r->cq) == 0);
}

static void
act(struct rig *r, struct input *in)
{
	uint8_t what = u8(in);

	switch (what % 16) {
	case 0:
		raw_frame(r, in);
		break;
	case 1:
	case 2:
	case 3:
	case 4:
		made_frame(r, in);
		break;
	case 5:
	case 6:
		transmit(r, in);
		break;
	case 7:
		pass_time(r, in);
		break;
	case 8:
	case 9:
		post_send(r, in);
		break;
	case 10:
		post_recv(r, in);
		break;
	case 11:
		scribble(r, in);
		break;
	case 12:
		modify(r, in);
		break;
	case 13:
		take_completions(r, in);
		break;
	case 14:
		karst_core_doorbell(r->core, take(in, 1));
		if (r->srq != NULL)
			karst_srq_set_limit(r->core, r->srq, what >> 4);
		if (r->srq2 != NULL && what >> 4 == 15) {
			/* in the middle of whatever */
			must(karst_srq_destroy(r->core, r->srq2) == 0);
			r->srq2 = open_xrc_srq(r, 1);
		}
		break;
	default:
		renew_region(r);
	}
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	unsigned int actions;
	struct rig r;

	open_rig(&r, &in);
	for (actions = 0; actions < ACTIONS && in.left > 0; actions++) {
		act(&r, &in);
		check_qps(&r);
	}
	end(&r);
	check_memory(&r);
	return 0;
}
