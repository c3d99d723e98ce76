/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The program of the fuzz target of queue pairs: valid and invalid work requests, random bytes in
 * shared rings, modify calls, regions that are deregistered, completions.
 */
#include "qp_rig.h"

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

void
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
	} else if (w->opcode == KARST_WR_FLUSH) {
		w->flush.len = some_len(in);
		w->flush.type = u8(in);
		w->flush.level = flags >> 6;
		w->num = flags >> 5 & 1;
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

void
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

/* Writes bytes of the input anywhere in shared memory: slots, tails, heads, flags, the CQ. */
void
scribble(struct rig *r, struct input *in)
{
	uint8_t what = u8(in), n = u8(in) % 80;
	uint8_t *base = sq_shared[what & 1];
	uint32_t at;

	if (what & 2)
		base = r->srq != NULL ? srq_shared : rq_shared[what & 1];
	if (what & 4)
		base = cq_shared;
	/* usually the slots, sometimes the indices */
	at = what & 8 ? (uint32_t)(what >> 4) * 4 : 128 + take(in, 2) % 2048;
	if (what & 8)
		n = 4;
	for (; n > 0 && in->left > 0; n--)
		base[at++] = u8(in);
	r->local_named = true; /* the bytes may name any key */
}

/* Of each queue pair, however often it is created again. */
static uint64_t alternate_mem[2][32];

void
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
	/* often the same addresses, so that a single bit of a packet decides */
	a.alt_path = r->path;
	a.alt_path.dst_ip[15] ^= v & 3;
	a.alt_port_num = 1;
	a.alt_timeout = v & 15;
	a.path_mig_state = v >> 2 & 3;
	a.alternate_mem = alternate_mem[how & 1];
	karst_qp_modify(r->core, qp, &a, mask);
}

void
renew_region(struct rig *r)
{
	if (karst_mr_dereg_begin(r->mem, r->key[KEY_OPEN]) != 0)
		return; /* windows are bound to it */
	karst_mr_dereg_end(r->mem, r->key[KEY_OPEN]);
	r->key[KEY_OPEN] = region(r, r->pd, PAGE_OPEN,
		KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE | KARST_ACCESS_MW_BIND);
}

/* Takes completions; the key that a bind returned is the window's key from now on. */
void
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
