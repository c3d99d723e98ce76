/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* XRC (U3): requesters that name an SRQ in each packet, targets that find it. */
#include "harness.h"

#include "karst_copy.h"
#include "karst_unmapped.h"
#include "qp_priv.h"

#define DOMAIN 1u

static struct bed *
bed_target(void)
{
	struct setup s = setup_of(KARST_QPT_XRC_RECV);

	return bed_open(&s);
}

static struct bed *
bed_initiator(void)
{
	struct setup s = setup_of(KARST_QPT_XRC_SEND);

	return bed_open(&s);
}

/** Another SRQ, with a CQ and a PD of its own. */
struct more {
	struct karst_core_srq *srq;
	struct karst_core_cq *cq;
	struct karst_cq_lane lane;
	struct karst_wq wq;
	uint32_t pd;
	uint32_t key; /* of the bed's buffer, at VA */
	void *mem[6];
};

static void *
zeroed(struct more *m, unsigned int i, size_t bytes)
{
	bytes = (bytes + 63) & ~(size_t)63;
	m->mem[i] = aligned_alloc(64, bytes);
	memset(m->mem[i], 0, bytes);
	return m->mem[i];
}

static void
more_open(struct bed *b, struct more *m, uint32_t xrcd)
{
	uint32_t stride = karst_wq_stride(false, 2, 0);
	struct karst_cq_init cq = {.entries = 16, .nlanes = 1, .user = m};
	struct karst_srq_init init = {.max_wr = 4, .max_sge = 2, .xrcd = xrcd, .user = m};

	memset(m, 0, sizeof(*m));
	cr_assert_eq(karst_pd_alloc(b->mem, &m->pd), 0);
	cr_assert_eq(karst_mr_reg(b->mem, m->pd, b->buf, VA, BUF_BYTES,
			     KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE, &m->key),
		0);
	cq.shared = zeroed(m, 0, sizeof(struct karst_cq_shared));
	cq.lanes = zeroed(m, 1, karst_lane_bytes(16, 0));
	cr_assert_eq(karst_cq_create(zeroed(m, 2, karst_cq_object_bytes(&cq)), &cq, &m->cq), 0);
	karst_cq_lane_attach(&m->lane, cq.lanes, 16, 0);
	init.pd = m->pd;
	init.cq = m->cq;
	init.shared = zeroed(m, 3, karst_wq_bytes(4, stride));
	cr_assert_eq(
		karst_srq_create(b->core, zeroed(m, 4, karst_srq_object_bytes()), &init, &m->srq),
		0);
	karst_wq_attach(&m->wq, init.shared, 4, stride);
}

static void
more_close(struct bed *b, struct more *m)
{
	const struct karst_cqe *cqe;
	unsigned int i;

	cr_assert_eq(karst_cq_lane_peek(&m->lane, &cqe), 0, "completions nobody looked at");
	if (m->srq != NULL)
		cr_assert_eq(karst_srq_destroy(b->core, m->srq), 0);
	cr_assert_eq(karst_cq_destroy(m->cq), 0);
	bed_dereg(b, m->key);
	cr_assert_eq(karst_pd_free(b->mem, m->pd), 0);
	for (i = 0; i < KARST_DIM(m->mem); i++)
		free(m->mem[i]);
}

static void
more_post(struct more *m, uint64_t id, uint32_t off, uint32_t len)
{
	struct karst_recv_wqe *w = karst_wq_slot(&m->wq, 0);

	cr_assert_gt(karst_wq_free(&m->wq, 1), 0);
	*w = (struct karst_recv_wqe){.wr_id = id, .num_sge = 1, .sge = {{VA + off, len, m->key}}};
	cr_assert_not(karst_wq_publish(&m->wq, 1));
}

static struct karst_cqe
more_wc(struct bed *b, struct more *m, uint64_t id, enum karst_wc_status status)
{
	const struct karst_cqe *at;
	struct karst_cqe wc;

	turn(b);
	cr_assert_neq(karst_cq_lane_peek(&m->lane, &at), 0, "no completion");
	wc = *at;
	karst_cq_lane_take(&m->lane, 1);
	cr_assert_eq(wc.wr_id, id);
	cr_assert_eq(wc.status, status, "%u", wc.status);
	cr_assert_eq(wc.qpn, b->s->qpn);
	return wc;
}

#define NUM(b)             karst_srq_num((b)->srq)
#define send_to(b, n, ...) send_pkt(b, ##__VA_ARGS__, .srqn = (n))

/* --- what a requester sends --- */

/* Every packet of every operation has the XRCETH (W5); responses have none. */
Test(xrc, u3_requester)
{
	struct bed *b = bed_initiator();
	const struct karst_pkt *p;
	uint64_t old = 0;

	post(b, SEND_WITH_IMM, 1, .len = 600, .imm = 0x77, .srqn = 0x123456);
	p = expect_pkt(b, XRC_SEND_FIRST, S(0));
	cr_assert_eq(p->srqn, 0x123456);
	expect_data(b, p, 0, 256);
	p = expect_pkt(b, XRC_SEND_MIDDLE, S(1));
	cr_assert_eq(p->srqn, 0x123456);
	expect_data(b, p, 256, 256);
	p = expect_pkt(b, XRC_SEND_LAST_IMM, S(2));
	cr_assert_eq(p->srqn, 0x123456);
	cr_assert_eq(p->imm, 0x77);
	cr_assert(p->flags & KARST_PKT_ACKREQ);
	expect_data(b, p, 512, 88);

	post(b, RDMA_WRITE, 2, .len = 300, .srqn = 0xffffff);
	p = expect_pkt(b, XRC_WRITE_FIRST, S(3));
	cr_assert_eq(p->srqn, 0xffffff);
	cr_assert_eq(p->va, PEER_VA);
	cr_assert_eq(p->rkey, PEER_RKEY);
	cr_assert_eq(p->dma_len, 300);
	p = expect_pkt(b, XRC_WRITE_LAST, S(4));
	cr_assert_eq(p->srqn, 0xffffff);

	post(b, RDMA_READ, 3, .off = 4096, .len = 300, .srqn = 5);
	p = expect_pkt(b, XRC_READ_REQUEST, S(5));
	cr_assert_eq(p->srqn, 5);
	cr_assert_eq(p->dma_len, 300);
	post(b, ATOMIC_CAS, 4, .off = 8192, .compare_add = 3, .swap = 4, .srqn = 6);
	p = expect_pkt(b, XRC_CMP_SWAP, S(7));
	cr_assert_eq(p->srqn, 6);
	post(b, ATOMIC_WRITE, 5, .inl = &old, .len = 8, .srqn = 7);
	p = expect_pkt(b, XRC_ATOMIC_WRITE, S(8));
	cr_assert_eq(p->srqn, 7);
	cr_assert_eq(p->pay_len, 8);
	post(b, FLUSH, 6, .flush = {.len = 77, .type = KARST_FLUSH_GLOBAL}, .srqn = 8);
	p = expect_pkt(b, XRC_FLUSH, S(9));
	cr_assert_eq(p->srqn, 8);
	cr_assert_eq(p->dma_len, 77);
	cr_assert_eq(p->pay_off - p->bth_off, 12 + 4 + 4 + 16);

	expect_taken(b, send_pkt(b, XRC_ACK, S(4), .aeth = 0x1f000002));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_taken(b, send_pkt(b, XRC_READ_RESP_FIRST, S(5), .pay_len = 256));
	expect_taken(
		b, send_pkt(b, XRC_READ_RESP_LAST, S(6), .pay_len = 44, .pay = b->pattern + 256));
	expect_wc(b, 3, SUCCESS);
	expect_mem(b, 4096, 0, 300);
	expect_taken(b, send_pkt(b, XRC_ATOMIC_ACK, S(7), .orig = 99));
	expect_wc(b, 4, SUCCESS);
	memcpy(&old, b->buf + 8192, 8);
	cr_assert_eq(old, 99);
	expect_taken(b, send_pkt(b, XRC_READ_RESP_ONLY, S(8)));
	expect_wc(b, 5, SUCCESS);
	expect_taken(b, send_pkt(b, XRC_READ_RESP_ONLY, S(9)));
	expect_wc(b, 6, SUCCESS);
	bed_close(b);
}

/* Going back sends the same SRQ numbers again (Q4, Q5, Q6). */
Test(xrc, u3_requester_goes_back)
{
	struct bed *b = bed_initiator();

	post(b, SEND, 1, .len = 300, .srqn = 11);
	post(b, RDMA_READ, 2, .off = 4096, .len = 600, .srqn = 12);
	expect_pkt(b, XRC_SEND_FIRST, S(0));
	expect_pkt(b, XRC_SEND_LAST, S(1));
	expect_pkt(b, XRC_READ_REQUEST, S(2));
	expect_taken(b, send_pkt(b, XRC_ACK, S(1), .aeth = 0x60000000)); /* NAK sequence */
	cr_assert_eq(expect_pkt(b, XRC_SEND_LAST, S(1))->srqn, 11);
	cr_assert_eq(expect_pkt(b, XRC_READ_REQUEST, S(2))->srqn, 12);
	expect_taken(b, send_pkt(b, XRC_READ_RESP_FIRST, S(2), .pay_len = 256));
	expect_wc(b, 1, SUCCESS);
	/* the missing part of the READ */
	advance_time(b, 5 * MS);
	cr_assert_eq(expect_pkt(b, XRC_READ_REQUEST, S(3))->srqn, 12);
	expect_taken(b, send_pkt(b, XRC_READ_RESP_FIRST, S(3), .pay_len = 256));
	expect_taken(b, send_pkt(b, XRC_READ_RESP_LAST, S(4), .pay_len = 88));
	expect_wc(b, 2, SUCCESS);
	bed_close(b);
}

/* The peer's NAK for an SRQ that does not exist. */
Test(xrc, u3_requester_refused)
{
	struct bed *b = bed_initiator();

	post(b, SEND, 1, .len = 4, .srqn = 1);
	post(b, SEND, 2, .len = 4, .srqn = 2);
	expect_pkt(b, XRC_SEND_ONLY, S(0));
	expect_pkt(b, XRC_SEND_ONLY, S(1));
	expect_taken(b, send_pkt(b, XRC_ACK, S(0), .aeth = 0x61000000));
	expect_wc(b, 1, REM_INV_REQ_ERR);
	expect_wc(b, 2, WR_FLUSH_ERR);
	expect_state(b, ERR);
	bed_close(b);
}

/* More than 24 bits are not a valid number; the number in a local operation does not matter. */
Test(xrc, u3_requester_number)
{
	struct bed *b = bed_initiator();

	post(b, SEND, 1, .len = 4, .srqn = 1u << 24);
	expect_wc(b, 1, LOC_QP_OP_ERR);
	expect_state(b, ERR);
	bed_forget(b);
	bed_close(b);
}

/* Each type has one half; packets for the other half are of another type (W9). */
Test(xrc, w9_halves)
{
	struct bed *b = bed_initiator();

	expect_drop(b, QP_TYPE, send_pkt(b, XRC_SEND_ONLY, R(0), .pay_len = 4));
	expect_drop(b, QP_TYPE, send_pkt(b, RC_ACK, S(0)));
	post(b, SEND, 1, .len = 4);
	expect_pkt(b, XRC_SEND_ONLY, S(0));
	expect_drop(b, QP_TYPE, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001));
	expect_taken(b, send_pkt(b, XRC_ACK, S(0), .aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);

	b = bed_target();
	post_recv(b, 1, 0, 64);
	expect_drop(b, QP_TYPE, send_pkt(b, XRC_ACK, S(0), .aeth = 0x1f000001));
	expect_drop(b, QP_TYPE, send_pkt(b, XRC_READ_RESP_ONLY, S(0), .pay_len = 4));
	expect_drop(b, QP_TYPE, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4));
	/* and doorbells for it have no effect */
	karst_core_doorbell(b->core, b->s->qpn);
	expect_none(b);
	bed_close(b);
}

/* --- targets --- */

/* Two SRQs in turn: receive queue, CQ and PD are those that the request names. */
Test(xrc, u3_target_sends)
{
	struct bed *b = bed_target();
	struct karst_cqe wc;
	struct more m;

	more_open(b, &m, DOMAIN);
	cr_assert_neq(NUM(b), karst_srq_num(m.srq));
	post_recv(b, 1, 0, 1024);
	more_post(&m, 2, 1024, 1024);
	expect_taken(b, send_to(b, NUM(b), XRC_SEND_FIRST, R(0), .pay_len = 256));
	expect_taken(b,
		send_to(b, NUM(b), XRC_SEND_LAST_IMM, R(1), .pay_len = 5, .imm = 9,
			.pay = b->pattern + 256, .ackreq = true));
	expect_ack(b, R(1), 1);
	expect_recv(b, 1, SUCCESS);
	cr_assert_eq(b->wc.qpn, b->s->qpn);
	cr_assert_eq(b->wc.imm, 9);
	expect_mem(b, 0, 0, 261);
	expect_taken(b,
		send_to(b, karst_srq_num(m.srq), XRC_SEND_ONLY, R(2), .pay_len = 8,
			.ackreq = true));
	expect_ack(b, R(2), 2);
	wc = more_wc(b, &m, 2, KARST_WC_SUCCESS);
	cr_assert_eq(wc.byte_len, 8);
	expect_mem(b, 1024, 0, 8);
	more_close(b, &m);
	bed_close(b);
}

/* (R8, R2): an empty SRQ is like an empty receive queue; it does not hold up another SRQ, once the
 * requester has sent a request for that one. */
Test(xrc, u3_target_rnr)
{
	struct bed *b = bed_target();
	struct more m;

	more_open(b, &m, DOMAIN);
	expect_drop(b, RNR, send_to(b, NUM(b), XRC_SEND_ONLY, R(0), .pay_len = 4));
	expect_rnr(b, R(0), 12, 0);
	expect_drop(b, RNR, send_to(b, karst_srq_num(m.srq), XRC_SEND_ONLY, R(1), .pay_len = 4));
	expect_none(b);
	post_recv(b, 1, 0, 64);
	expect_taken(b, send_to(b, NUM(b), XRC_SEND_ONLY, R(0), .pay_len = 4));
	expect_recv(b, 1, SUCCESS);
	/* a WRITE with immediate data at its end */
	expect_taken(b,
		send_to(b, karst_srq_num(m.srq), XRC_WRITE_FIRST, R(1), .va = VA + 4096,
			.rkey = m.key, .dma_len = 300, .pay_len = 256));
	expect_drop(b, RNR,
		send_to(b, karst_srq_num(m.srq), XRC_WRITE_LAST_IMM, R(2), .pay_len = 44,
			.imm = 3));
	expect_rnr(b, R(2), 12, 1);
	more_post(&m, 2, 0, 0);
	expect_taken(b,
		send_to(b, karst_srq_num(m.srq), XRC_WRITE_LAST_IMM, R(2), .pay_len = 44,
			.pay = b->pattern + 256, .imm = 3, .ackreq = true));
	expect_ack(b, R(2), 2);
	cr_assert_eq(more_wc(b, &m, 2, KARST_WC_SUCCESS).byte_len, 300);
	expect_mem(b, 4096, 0, 300);
	more_close(b, &m);
	bed_close(b);
}

/* READs, WRITEs and atomics use memory of the SRQ's protection domain; READs are answered by the
 * keys of their own SRQ's domain, whatever request came after them. */
Test(xrc, u3_target_memory)
{
	struct bed *b = bed_target();
	uint64_t word = 40;
	struct more m;
	const struct karst_pkt *p;

	more_open(b, &m, DOMAIN);
	memcpy(b->buf + 8192, &word, 8);
	expect_taken(b,
		send_to(b, karst_srq_num(m.srq), XRC_READ_REQUEST, R(0), .va = VA, .rkey = m.key,
			.dma_len = 300));
	expect_taken(b,
		send_to(b, NUM(b), XRC_WRITE_ONLY, R(2), .va = VA + 4096, .rkey = b->key,
			.dma_len = 64, .pay_len = 64));
	expect_taken(b,
		send_to(b, karst_srq_num(m.srq), XRC_FETCH_ADD, R(3), .va = VA + 8192,
			.rkey = m.key, .swap_add = 2));
	expect_taken(b,
		send_to(b, NUM(b), XRC_CMP_SWAP, R(4), .va = VA + 8192, .rkey = b->key,
			.compare = 42, .swap_add = 7));
	p = expect_pkt(b, XRC_READ_RESP_FIRST, R(0));
	expect_data(b, p, 0, 256);
	p = expect_pkt(b, XRC_READ_RESP_LAST, R(1));
	expect_data(b, p, 256, 44);
	expect_pkt(b, XRC_ATOMIC_ACK, R(3));
	expect_pkt(b, XRC_ATOMIC_ACK, R(4));
	expect_mem(b, 4096, 0, 64);
	memcpy(&word, b->buf + 8192, 8);
	cr_assert_eq(word, 7);
	/* once more: from the middle of it, and without a second addition (R4, R5) */
	expect_taken(b,
		send_to(b, karst_srq_num(m.srq), XRC_READ_REQUEST, R(1), .va = VA + 256,
			.rkey = m.key, .dma_len = 44));
	expect_taken(b,
		send_to(b, karst_srq_num(m.srq), XRC_FETCH_ADD, R(3), .va = VA + 8192,
			.rkey = m.key, .swap_add = 2));
	expect_taken(b,
		send_to(b, NUM(b), XRC_CMP_SWAP, R(4), .va = VA + 8192, .rkey = b->key,
			.compare = 42, .swap_add = 7));
	expect_data(b, expect_pkt(b, XRC_READ_RESP_ONLY, R(1)), 256, 44);
	expect_pkt(b, XRC_ATOMIC_ACK, R(3));
	expect_pkt(b, XRC_ATOMIC_ACK, R(4));
	expect_none(b);
	memcpy(&word, b->buf + 8192, 8);
	cr_assert_eq(word, 7);
	/* the key of one PD with the SRQ of another */
	expect_drop(b, REQUEST,
		send_to(b, NUM(b), XRC_WRITE_ONLY, R(5), .va = VA, .rkey = m.key, .dma_len = 64,
			.pay_len = 64));
	expect_nak(b, R(5), REM_ACCESS, 4);
	expect_event(b, QP_ACCESS_ERR);
	expect_event(b, QP_LAST_WQE_REACHED);
	expect_untouched(b, 0, 64);
	more_close(b, &m);
	bed_close(b);
}

static void
refused(struct bed *b, uint32_t srqn, uint32_t psn, uint32_t msn)
{
	expect_drop(b, REQUEST, send_to(b, srqn, XRC_SEND_ONLY, psn, .pay_len = 4));
	expect_nak(b, psn, INV_REQ, msn);
	expect_event(b, QP_REQ_ERR);
	expect_event(b, QP_LAST_WQE_REACHED);
	expect_state(b, ERR);
}

/* A number of no SRQ, or an SRQ of another domain. */
Test(xrc, u3_target_refuses)
{
	struct bed *b = bed_target();
	struct setup s = setup_of(KARST_QPT_XRC_RECV);
	struct more m;

	more_open(b, &m, DOMAIN + 1);
	more_post(&m, 2, 0, 64);
	post_recv(b, 1, 0, 64);
	expect_taken(b, send_to(b, NUM(b), XRC_SEND_ONLY, R(0), .pay_len = 4));
	expect_recv(b, 1, SUCCESS);
	refused(b, karst_srq_num(m.srq), R(1), 1);
	bed_add(b, &s);
	refused(b, NUM(b) ^ 0x800000, R(0), 0);
	bed_add(b, &s);
	refused(b, 0, R(0), 0);
	more_close(b, &m);
	bed_close(b);
}

/* Another SRQ number in the middle of a message. */
Test(xrc, u3_target_changes)
{
	struct bed *b = bed_target();
	struct more m;

	more_open(b, &m, DOMAIN);
	post_recv(b, 1, 0, 1024);
	more_post(&m, 2, 0, 1024);
	expect_taken(b, send_to(b, NUM(b), XRC_SEND_FIRST, R(0), .pay_len = 256));
	expect_drop(
		b, REQUEST, send_to(b, karst_srq_num(m.srq), XRC_SEND_LAST, R(1), .pay_len = 4));
	expect_nak(b, R(1), INV_REQ, 0);
	expect_recv(b, 1, WR_FLUSH_ERR);
	expect_event(b, QP_REQ_ERR);
	expect_event(b, QP_LAST_WQE_REACHED);
	more_close(b, &m);
	bed_close(b);
}

/* --- another number after a message that had taken a receive, but could not be placed --- */

static uint8_t *
nothing_is_mapped(struct karst_core *core, const uint8_t *host, uint32_t *n)
{
	return NULL;
}

static struct karst_copy *
no_copy_is_left(struct karst_core *core)
{
	return NULL;
}

static const struct karst_copy_ops no_copies = {.map = nothing_is_mapped, .take = no_copy_is_left};

Test(xrc, u3_target_changes_before_it_is_placed)
{
	const uint64_t far = VA + (1ull << 32);
	struct setup s = setup_of(KARST_QPT_XRC_RECV);
	struct karst_sge sge = {.addr = far, .len = 64};
	struct more m;
	struct bed *b;

	s.core.copy_ops = &no_copies;
	b = bed_open(&s);
	more_open(b, &m, DOMAIN);
	cr_assert_eq(karst_mr_reg(b->mem, b->pd, (void *)((uintptr_t)b->buf | KARST_MEM_UNMAPPED),
			     far, BUF_BYTES, KARST_ACCESS_LOCAL_WRITE, &sge.lkey),
		0);
	post_recv_sge(b, 1, &sge, 1);
	more_post(&m, 2, 0, 64);
	expect_drop(b, COPY_FULL,
		send_to(b, NUM(b), XRC_SEND_ONLY, R(0), .pay_len = 64, .ackreq = true));
	/* a receive of one queue cannot be used for the other's message */
	expect_drop(
		b, REQUEST, send_to(b, karst_srq_num(m.srq), XRC_SEND_ONLY, R(0), .pay_len = 4));
	expect_nak(b, R(0), INV_REQ, 0);
	expect_recv(b, 1, WR_FLUSH_ERR);
	expect_event(b, QP_REQ_ERR);
	expect_event(b, QP_LAST_WQE_REACHED);
	bed_dereg(b, sge.lkey);
	more_close(b, &m);
	bed_close(b);
}

/* An SRQ is destroyed while targets are in the middle of messages for it, have responses to give
 * for it, or have been in Error with a receive of it. */
Test(xrc, u3_srq_goes)
{
	struct bed *b = bed_target();
	struct setup s = setup_of(KARST_QPT_XRC_RECV);
	struct side *other;
	struct more m;
	uint32_t num, i;

	more_open(b, &m, DOMAIN);
	num = karst_srq_num(m.srq);
	for (i = 0; i < 3; i++)
		more_post(&m, i, 0, 1024);
	expect_taken(b, send_to(b, num, XRC_SEND_FIRST, R(0), .pay_len = 256));
	other = bed_add(b, &s);
	expect_taken(
		b, send_to(b, num, XRC_READ_REQUEST, R(0), .va = VA, .rkey = m.key, .dma_len = 64));
	bed_add(b, &s);
	expect_taken(b, send_to(b, num, XRC_SEND_FIRST, R(0), .pay_len = 256));
	cr_assert_eq(karst_cq_destroy(m.cq), -EBUSY);
	cr_assert_eq(karst_srq_destroy(b->core, m.srq), 0);
	m.srq = NULL;
	/* this target has failed before its message ends */
	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	expect_event(b, QP_LAST_WQE_REACHED);
	b->s = other;
	expect_data(b, expect_pkt(b, XRC_READ_RESP_ONLY, R(0)), 0, 64);
	/* requested again, there is no SRQ to whose domain the key could belong */
	expect_drop(b, REQUEST,
		send_to(b, num, XRC_READ_REQUEST, R(0), .va = VA, .rkey = m.key, .dma_len = 64));
	expect_nak(b, R(0), REM_ACCESS, 1);
	b->s = &b->side[0];
	expect_drop(b, REQUEST, send_to(b, num, XRC_SEND_LAST, R(1), .pay_len = 4));
	expect_nak(b, R(1), INV_REQ, 0);
	expect_event(b, QP_REQ_ERR);
	expect_event(b, QP_LAST_WQE_REACHED);
	more_close(b, &m);
	bed_close(b);
}

/* The same, one target at a time: a target that still has the SRQ does not use it any more, by any
 * number. */
Test(xrc, u3_srq_goes_bit_by_bit)
{
	struct bed *b = bed_target();
	struct setup s = setup_of(KARST_QPT_XRC_RECV);
	struct side *other, *last;
	struct more m;
	uint32_t num, i;

	more_open(b, &m, DOMAIN);
	num = karst_srq_num(m.srq);
	for (i = 0; i < 4; i++)
		more_post(&m, i, 0, 1024);
	expect_taken(b, send_to(b, num, XRC_SEND_FIRST, R(0), .pay_len = 256));
	other = bed_add(b, &s);
	expect_taken(b, send_to(b, num, XRC_SEND_ONLY, R(0), .pay_len = 4));
	more_wc(b, &m, 1, KARST_WC_SUCCESS);
	b->out_head = b->out_tail;
	bed_add(b, &s);
	expect_taken(b, send_to(b, num, XRC_SEND_FIRST, R(0), .pay_len = 256));
	last = bed_add(b, &s);
	expect_taken(b, send_to(b, num, XRC_SEND_FIRST, R(0), .pay_len = 256));
	b->out_head = b->out_tail;
	cr_assert_not(karst_srq_withdraw(b->core, m.srq, 1));
	cr_assert_eq(karst_srq_num(m.srq), 0);
	b->s = last;
	cr_assert_null(last->qp->srq);
	b->s = other;
	cr_assert_eq(other->qp->srq, m.srq);
	expect_drop(b, REQUEST, send_to(b, 0, XRC_SEND_ONLY, R(1), .pay_len = 4));
	expect_nak(b, R(1), INV_REQ, 1);
	expect_event(b, QP_REQ_ERR);
	expect_event(b, QP_LAST_WQE_REACHED);
	b->s = &b->side[0];
	cr_assert_eq(b->s->qp->srq, m.srq);
	expect_drop(b, REQUEST, send_to(b, num, XRC_SEND_LAST, R(1), .pay_len = 4));
	expect_nak(b, R(1), INV_REQ, 0);
	expect_event(b, QP_REQ_ERR);
	expect_event(b, QP_LAST_WQE_REACHED);
	/* one target is destroyed meanwhile */
	bed_destroy_side(b, &b->side[2]);
	cr_assert(karst_srq_withdraw(b->core, m.srq, 2));
	cr_assert_null(other->qp->srq);
	more_close(b, &m);
	bed_close(b);
}

/* A target is destroyed, or reset, in the middle of a message: the receive request is returned to
 * the SRQ's program. */
Test(xrc, u3_target_goes)
{
	struct bed *b = bed_target();
	struct setup s = setup_of(KARST_QPT_XRC_RECV);

	post_recv(b, 1, 0, 1024);
	post_recv(b, 2, 0, 1024);
	post_recv(b, 3, 0, 1024);
	expect_taken(b, send_to(b, NUM(b), XRC_SEND_FIRST, R(0), .pay_len = 256));
	bed_add(b, &s);
	expect_taken(b, send_to(b, NUM(b), XRC_SEND_FIRST, R(0), .pay_len = 256));
	bed_destroy_side(b, b->s);
	expect_recv(b, 2, WR_FLUSH_ERR);
	b->s = &b->side[0];
	cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
	expect_recv(b, 1, WR_FLUSH_ERR);
	bed_bring_up(b, &s, KARST_QPS_RTR);
	expect_taken(b, send_to(b, NUM(b), XRC_SEND_ONLY, R(0), .pay_len = 4));
	expect_event(b, COMM_EST);
	expect_recv(b, 3, SUCCESS);
	bed_close(b);
}

/* An invalid ring fails the target that gets a SEND for it; WRITEs do not use the ring. */
Test(xrc, u3_broken_ring)
{
	struct bed *b = bed_target();

	atomic_store(&b->srq_wq.sh->tail, 1000);
	expect_drop(b, RNR, send_to(b, NUM(b), XRC_SEND_ONLY, R(0), .pay_len = 4));
	expect_event_of(b, SRQ_ERR, b->srq);
	expect_event(b, QP_FATAL);
	expect_event(b, QP_LAST_WQE_REACHED);
	bed_close(b);
}

/* The limit of an XRC SRQ is like that of any SRQ. */
Test(xrc, limit)
{
	struct bed *b = bed_target();

	post_recv(b, 1, 0, 64);
	post_recv(b, 2, 0, 64);
	cr_assert_eq(karst_srq_set_limit(b->core, b->srq, 2), 0);
	expect_taken(b, send_to(b, NUM(b), XRC_SEND_ONLY, R(0), .pay_len = 4));
	expect_recv(b, 1, SUCCESS);
	expect_event_of(b, SRQ_LIMIT_REACHED, b->srq);
	bed_close(b);
}

/* --- numbers, what can be created --- */

/* A number is reused late, whatever else exists; there are as many numbers as were requested. */
Test(xrc, numbers)
{
	struct setup s = setup_of(KARST_QPT_XRC_RECV);
	struct more m[4];
	struct karst_srq_init init = {.max_wr = 4, .max_sge = 1, .xrcd = DOMAIN};
	static uint8_t seen[1 << 24];
	struct karst_core_srq *srq;
	struct bed *b;
	uint32_t i, num;
	void *mem;

	s.core.max_xrc_srqs = 3; /* rounded up to 4, one of which is the bed's */
	s.core.lcore_bits = 2;
	s.core.lcore = 0;
	b = bed_open(&s);
	seen[NUM(b)] = 1;
	for (i = 0; i < 2; i++)
		more_open(b, &m[i], DOMAIN);
	mem = aligned_alloc(64, (karst_srq_object_bytes() + 63) & ~63ul);
	init.pd = b->pd;
	init.cq = b->rcq;
	init.shared = aligned_alloc(64, 4096);
	for (i = 0; i < 100000; i++) {
		cr_assert_eq(karst_srq_create(b->core, mem, &init, &srq), 0);
		num = karst_srq_num(srq);
		cr_assert_neq(num, 0);
		cr_assert_eq(num & 3, 0, "of this lcore");
		cr_assert_eq(seen[num], 0, "%u again after %u", num, i);
		seen[num] = 1;
		cr_assert_eq(karst_srq_destroy(b->core, srq), 0);
	}
	cr_assert_eq(karst_srq_create(b->core, mem, &init, &srq), 0);
	cr_assert_eq(karst_srq_create(
			     b->core, m[0].mem[5] = malloc(karst_srq_object_bytes()), &init, &srq),
		-ENOSPC);
	cr_assert_eq(karst_srq_destroy(b->core, mem), 0);
	for (i = 0; i < 2; i++)
		more_close(b, &m[i]);
	free(init.shared);
	free(mem);
	bed_close(b);
}

Test(xrc, create)
{
	struct setup s = setup_of(KARST_QPT_XRC_RECV);
	struct bed *b = bed_target();
	struct karst_qp_init tgt = s.qp, ini = setup_of(KARST_QPT_XRC_SEND).qp, bad;
	void *ring = b->srq_wq.sh;

	cr_assert_eq(karst_qp_xrcd(b->s->qp), DOMAIN);
	cr_assert_neq(karst_qp_bytes(&tgt), 0);
#define WITHOUT(from, member, value)                   \
	do {                                           \
		bad = (from);                          \
		bad.member = value;                    \
		cr_assert_eq(karst_qp_bytes(&bad), 0); \
	} while (0)
	WITHOUT(tgt, xrcd, 0);
	WITHOUT(tgt, pd, b->pd);
	WITHOUT(tgt, send_cq, b->scq);
	WITHOUT(tgt, recv_cq, b->rcq);
	WITHOUT(tgt, srq, b->srq);
	WITHOUT(tgt, sq_shared, ring);
	WITHOUT(tgt, rq_shared, ring);
	WITHOUT(tgt, max_send_wr, 1);
	WITHOUT(tgt, max_recv_wr, 1);
	ini.pd = b->pd;
	ini.send_cq = b->scq;
	ini.sq_shared = ring;
	cr_assert_neq(karst_qp_bytes(&ini), 0);
	WITHOUT(ini, xrcd, 1);
	WITHOUT(ini, send_cq, NULL);
	WITHOUT(ini, recv_cq, b->rcq);
	WITHOUT(ini, srq, b->srq);
	WITHOUT(ini, rq_shared, ring);
	WITHOUT(ini, max_recv_wr, 1);
	/* an XRC SRQ has no QPs of its own */
	ini.type = KARST_QPT_RC;
	ini.recv_cq = b->rcq;
	ini.srq = b->srq;
	cr_assert_eq(karst_qp_bytes(&ini), 0);
	bed_close(b);
}

/* Transitions: each type has those of RC's attributes that belong to its direction. */
Test(xrc, transitions)
{
	static const struct {
		enum karst_qp_type type;
		enum karst_qp_state from, to;
		unsigned int required;
	} t[] = {
		{KARST_QPT_XRC_SEND, KARST_QPS_INIT, KARST_QPS_RTR,
			KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN},
		{KARST_QPT_XRC_RECV, KARST_QPS_INIT, KARST_QPS_RTR,
			KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN |
				KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER},
		{KARST_QPT_XRC_SEND, KARST_QPS_RTR, KARST_QPS_RTS,
			KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
				KARST_QP_SQ_PSN | KARST_QP_MAX_QP_RD_ATOMIC},
		{KARST_QPT_XRC_RECV, KARST_QPS_RTR, KARST_QPS_RTS,
			KARST_QP_TIMEOUT | KARST_QP_SQ_PSN},
	};
	unsigned int i, required, optional;

	for (i = 0; i < KARST_DIM(t); i++) {
		cr_assert_eq(
			karst_qp_transition(t[i].type, t[i].from, t[i].to, &required, &optional),
			0);
		cr_assert_eq(required, t[i].required, "%u: %x", i, required);
	}
	cr_assert_eq(karst_qp_transition(KARST_QPT_XRC_SEND, KARST_QPS_SQE, KARST_QPS_RTS,
			     &required, &optional),
		-EINVAL);
	cr_assert_eq(karst_qp_transition(KARST_QPT_XRC_SEND, KARST_QPS_SQD, KARST_QPS_SQD,
			     &required, &optional),
		0);
	cr_assert_eq(optional & (KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER), 0);
	cr_assert_eq(karst_qp_transition(KARST_QPT_XRC_RECV, KARST_QPS_SQD, KARST_QPS_SQD,
			     &required, &optional),
		0);
	cr_assert_eq(optional & (KARST_QP_MAX_QP_RD_ATOMIC | KARST_QP_RNR_RETRY), 0);
}
