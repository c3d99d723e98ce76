/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * One karst_core with one queue pair, in RTS, whose peer is a capture.  Frames are received as
 * bytes with an ICRC, through the parser and the checks of the engine; what the core sends is
 * sealed, parsed, verified and decoded again (W1, W7).  Frames that the wire marked carry CE (E1).
 */
#include <stdlib.h>

#include "karst_build.h"
#include "karst_decode.h"
#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_parse.h"
#include "replay.h"

#define MAX_SEGS   2048u
#define FRAME_ROOM 8192u

/* --- set-up --- */

static void *
block(struct rp_bed *b, size_t bytes)
{
	void *p = aligned_alloc(KARST_CACHE_LINE, (bytes + 63) & ~(size_t)63);

	assert(b->nblocks < RP_BLOCKS);
	memset(p, 0, (bytes + 63) & ~(size_t)63);
	b->blocks[b->nblocks++] = p;
	return p;
}

static void
on_cq_event(struct karst_core *core, struct karst_core_cq *cq)
{
	(void)core;
	(void)cq;
}

static void
on_async_event(struct karst_core *core, enum karst_async_event_code event, void *object)
{
	struct rp_bed *b = core->user;

	(void)object;
	if (event != KARST_EVENT_COMM_EST)
		b->errors++;
}

static const struct karst_core_ops bed_ops = {
	.cq_event = on_cq_event,
	.async_event = on_async_event,
};

static void
bed_must(int rc, const char *what)
{
	if (rc != 0) {
		fprintf(stderr, "karst-replay: %s: %s\n", what, strerror(-rc));
		abort();
	}
}

static void
bed_put_ip(uint8_t to[16], const uint8_t *from, bool ip6)
{
	memset(to, 0, 16);
	if (ip6) {
		memcpy(to, from, 16);
		return;
	}
	to[10] = to[11] = 0xff;
	memcpy(to + 12, from, 4);
}

static struct karst_path
bed_path(const struct karst_frame *f, bool mine)
{
	struct karst_path p = {.ip6 = f->ip6,
		.has_vlan = f->vlan,
		.vlan_tci = f->vlan_tci,
		.tclass = mine ? f->tclass : 0,
		.hop_limit = 64,
		.udp_sport = f->sport};

	memcpy(p.src_mac, mine ? f->smac : f->dmac, 6);
	memcpy(p.dst_mac, mine ? f->dmac : f->smac, 6);
	bed_put_ip(p.src_ip, mine ? f->saddr : f->daddr, f->ip6);
	bed_put_ip(p.dst_ip, mine ? f->daddr : f->saddr, f->ip6);
	return p;
}

static void
modify(struct rp_bed *b, struct karst_core_qp_attr *attr, enum karst_qp_state to, unsigned int mask)
{
	attr->qp_state = to;
	bed_must(karst_qp_modify(b->core, b->qp, attr, mask | KARST_QP_STATE), "modify");
}

static void
bring_up(struct rp_bed *b, const struct rp_qp_setup *s)
{
	bool ud = s->type == KARST_QPT_UD, rc = s->type == KARST_QPT_RC;
	struct karst_core_qp_attr attr = {
		.path_mtu = s->mtu,
		.qkey = s->qkey,
		.rq_psn = s->rq_psn,
		.sq_psn = s->sq_psn,
		.dest_qpn = s->dest_qpn,
		.access_flags = KARST_ACCESS_REMOTE,
		.port_num = 1,
		.timeout = s->timeout,
		.retry_cnt = s->retry_cnt,
		.rnr_retry = s->rnr_retry,
		.min_rnr_timer = s->min_rnr_timer,
		.max_rd_atomic = s->max_rd_atomic,
		.max_dest_rd_atomic = s->max_dest_rd_atomic,
		.path = b->path,
	};

	modify(b, &attr, KARST_QPS_INIT,
		KARST_QP_PKEY_INDEX | KARST_QP_PORT | (ud ? KARST_QP_QKEY : KARST_QP_ACCESS_FLAGS));
	modify(b, &attr, KARST_QPS_RTR,
		(ud ? 0 : KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN) |
			(rc ? KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER : 0));
	modify(b, &attr, KARST_QPS_RTS,
		KARST_QP_SQ_PSN |
			(rc ? KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
						KARST_QP_MAX_QP_RD_ATOMIC
			    : 0));
}

static void
make_srq(struct rp_bed *b, uint32_t stride)
{
	struct karst_srq_init init = {.pd = b->pd,
		.shared = block(b, karst_wq_bytes(RP_WQ_SLOTS, stride)),
		.max_wr = RP_WQ_SLOTS,
		.max_sge = 1};

	bed_must(karst_srq_create(b->core, block(b, karst_srq_object_bytes()), &init, &b->srq),
		"SRQ");
	karst_wq_attach(&b->rq, init.shared, RP_WQ_SLOTS, stride);
}

static void
make_qp(struct rp_bed *b, const struct rp_qp_setup *s)
{
	uint32_t sstride = karst_wq_stride(true, 1, 0), rstride = karst_wq_stride(false, 1, 0);
	struct karst_qp_init init = {.type = s->type,
		.pd = b->pd,
		.send_cq = b->cq,
		.recv_cq = b->cq,
		.sq_shared = block(b, karst_wq_bytes(RP_WQ_SLOTS, sstride)),
		.rq_shared = block(b, karst_wq_bytes(RP_WQ_SLOTS, rstride)),
		.max_send_wr = RP_WQ_SLOTS,
		.max_recv_wr = RP_WQ_SLOTS,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.max_dest_rd_atomic = s->type == KARST_QPT_RC ? KARST_QP_MAX_RD_ATOMIC : 0};

	void *qp_mem;

	if (s->srq) {
		make_srq(b, rstride);
		init.srq = b->srq;
		init.rq_shared = NULL;
		init.max_recv_wr = init.max_recv_sge = 0;
	} else {
		karst_wq_attach(&b->rq, init.rq_shared, RP_WQ_SLOTS, rstride);
	}
	qp_mem = block(b, karst_qp_bytes(&init));
	karst_qp_prepare(qp_mem, &init);
	bed_must(karst_qp_create(b->core, qp_mem, &init, &b->qp), "QP");
	b->qpn = karst_qp_num(b->qp);
	karst_wq_attach(&b->sq, init.sq_shared, RP_WQ_SLOTS, sstride);
	bring_up(b, s);
}

struct rp_bed *
rp_bed_open(const struct rp_qp_setup *s, uint64_t now_ns)
{
	struct karst_mem_config mcfg = {.max_keys = 256, .max_pds = 2, .seed = {5, 6}};
	struct karst_core_config cfg = {.max_qps = 4, .seed = {7}, .ops = &bed_ops};
	struct karst_cq_init cq = {.entries = RP_CQ_SIZE, .nlanes = 1};
	struct rp_bed *b = calloc(1, sizeof(*b));

	b->path = bed_path(&s->example->f, s->mine);
	bed_must(karst_mem_init(block(b, karst_mem_size(&mcfg)), &mcfg, &b->mem), "keys");
	bed_must(karst_pd_alloc(b->mem, &b->pd), "protection domain");
	b->recv = block(b, RP_RECV_LEN);
	bed_must(karst_mr_reg(b->mem, b->pd, b->recv, RP_LOCAL_VA, RP_RECV_LEN,
			 KARST_ACCESS_LOCAL_WRITE, &b->recv_key),
		"region");
	bed_must(karst_ah_table_init(block(b, karst_ah_table_bytes(8)), 8, &b->ahs), "handles");
	b->out = calloc(RP_OUT_MAX, sizeof(*b->out));
	cfg.mem = b->mem;
	cfg.ahs = b->ahs;
	cfg.user = b;
	bed_must(karst_core_init(block(b, karst_core_bytes(&cfg)), &cfg, now_ns, &b->core), "core");
	b->core->now_ns = now_ns;
	cq.shared = block(b, sizeof(struct karst_cq_shared));
	cq.lanes = block(b, karst_lane_bytes(RP_CQ_SIZE, 0));
	bed_must(karst_cq_create(block(b, karst_cq_object_bytes(&cq)), &cq, &b->cq), "CQ");
	karst_cq_lane_attach(&b->lane, cq.lanes, RP_CQ_SIZE, 0);
	make_qp(b, s);
	return b;
}

void
rp_bed_close(struct rp_bed *b)
{
	unsigned int i;

	karst_qp_destroy(b->core, b->qp);
	karst_core_flush(b->core);
	if (b->srq != NULL)
		bed_must(karst_srq_destroy(b->core, b->srq), "end of SRQ");
	bed_must(karst_cq_destroy(b->cq), "end of CQ");
	for (i = 0; i < b->nblocks; i++)
		free(b->blocks[i]);
	free(b->out);
	free(b);
}

/* --- received frames --- */

enum karst_drop
rp_bed_receive(struct rp_bed *b, const struct karst_frame *f, enum rp_fate fate)
{
	struct karst_frame copy = *f;
	struct karst_pkt pkt = {0}, *p = &pkt;
	uint32_t l3 = f->vlan ? 18 : 14, crc, i;
	uint8_t *frame = malloc(FRAME_ROOM);
	int len;

	copy.ib.dqpn = b->qpn;
	if (fate == RP_MARKED)
		copy.tclass |= 3; /* congestion experienced */
	len = karst_build_frame(frame, FRAME_ROOM, &copy);
	bed_must(len > 0 ? 0 : len, "building a frame");
	crc = karst_icrc_rocev2(frame + l3, (size_t)len - l3 - KARST_ICRC_LEN, f->ip6);
	for (i = 0; i < 4; i++)
		frame[(uint32_t)len - 4 + i] = (uint8_t)(crc >> 8 * i);
	if (fate == RP_CORRUPTED)
		frame[(uint32_t)len - 8] ^= 0x10;
	pkt.data = frame;
	pkt.len = (uint16_t)len;
	if (karst_parse(&pkt) == KARST_DROP_NONE)
		karst_icrc_verify_burst(&p, 1);
	if (pkt.drop == KARST_DROP_NONE) {
		pkt.qp = karst_core_lookup(b->core, pkt.dqpn);
		if (pkt.qp == NULL)
			pkt.drop = KARST_DROP_NO_QP;
		else
			karst_qp_rx(b->core, &pkt);
	}
	/* code that keeps a pointer to it reads nonsense */
	memset(frame, 0xdb, (size_t)len);
	free(frame);
	return pkt.drop;
}

/* --- sent frames --- */

void
rp_bed_time(struct rp_bed *b, uint64_t now_ns)
{
	if (now_ns > b->core->now_ns)
		b->core->now_ns = now_ns;
	karst_core_expire(b->core, 1000);
}

/* @return whether the QP has more to send. */
static bool
visit(struct rp_bed *b, struct karst_core_qp *qp, unsigned int frames)
{
	struct karst_pkt *pkts[RP_OUT_MAX];
	struct karst_seal seals[RP_OUT_MAX];
	struct karst_seg segs[MAX_SEGS];
	struct karst_tx_burst burst = {
		.pkts = pkts, .seals = seals, .segs = segs, .max = frames, .max_segs = MAX_SEGS};
	uint32_t i;
	bool more;

	for (i = 0; i < frames; i++) {
		struct rp_out *o = &b->out[b->nout + i];

		memset(&o->pkt, 0, sizeof(o->pkt));
		o->pkt.data = o->data;
		pkts[i] = &o->pkt;
	}
	more = karst_qp_tx(b->core, qp, &burst, UINT32_MAX);
	karst_icrc_seal_burst(seals, burst.n);
	for (i = 0; i < burst.n; i++) {
		struct rp_out *o = &b->out[b->nout + i];
		struct karst_pkt *p = &o->pkt;

		if (karst_parse(p) != KARST_DROP_NONE || karst_icrc_verify_burst(&p, 1) != 0)
			bed_must(-EBADMSG, "a frame that was sent");
		karst_decode_frame(p, &o->f);
	}
	b->nout += burst.n;
	return more;
}

void
rp_bed_send(struct rp_bed *b, unsigned int frames)
{
	struct karst_core_qp *qp;

	b->nout = 0;
	assert(frames <= RP_OUT_MAX);
	while (b->nout < frames && (qp = karst_core_next_active(b->core)) != NULL) {
		if (visit(b, qp, frames - b->nout))
			karst_core_activate(b->core, qp);
	}
	karst_core_recheck(b->core);
	karst_core_flush(b->core);
}

/* --- the program --- */

const struct karst_cqe *
rp_bed_completion(struct rp_bed *b)
{
	static struct karst_cqe taken;
	const struct karst_cqe *cqe;

	if (karst_cq_lane_peek(&b->lane, &cqe) == 0)
		return NULL;
	taken = *cqe;
	karst_cq_lane_take(&b->lane, 1);
	if (taken.opcode & KARST_WC_RECV)
		b->receives--;
	return &taken;
}

void
rp_bed_post_receive(struct rp_bed *b, uint32_t len)
{
	struct karst_recv_wqe *w;

	bed_must(karst_wq_free(&b->rq, 1) != 0 ? 0 : -ENOSPC, "receive queue");
	w = karst_wq_slot(&b->rq, 0);
	w->wr_id = 1;
	w->num_sge = 1;
	w->sge[0] = (struct karst_sge){RP_LOCAL_VA, len, b->recv_key};
	if (karst_wq_publish(&b->rq, 1))
		karst_core_doorbell(b->core, b->qpn);
	b->receives++;
}

struct karst_send_wqe *
rp_bed_slot(struct rp_bed *b)
{
	struct karst_send_wqe *w;

	bed_must(karst_wq_free(&b->sq, 1) != 0 ? 0 : -ENOSPC, "send queue");
	w = karst_wq_slot(&b->sq, 0);
	memset(w, 0, sizeof(*w));
	w->flags = KARST_SEND_SIGNALED;
	return w;
}

void
rp_bed_post(struct rp_bed *b)
{
	if (karst_wq_publish(&b->sq, 1))
		karst_core_doorbell(b->core, b->qpn);
}
