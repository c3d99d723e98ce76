/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* UC: no acknowledgements; a message is delivered whole or not at all (U1). */
#include "harness.h"

static struct bed *
bed_uc(void)
{
	struct setup s = setup_of(KARST_QPT_UC);

	return bed_open(&s);
}

/* A request is complete when it is sent: SEND and WRITE, with and without immediate, of any length;
 * never AckReq. */
Test(uc, u1_sender)
{
	struct bed *b = bed_uc();
	const struct karst_pkt *p;

	post(b, SEND, 1, .len = 10);
	post(b, RDMA_WRITE, 2, .len = 600);
	post(b, SEND_WITH_IMM, 3, .len = 0, .imm = 7);
	post(b, RDMA_WRITE_WITH_IMM, 4, .len = 300, .imm = 8);
	post(b, SEND, 5, .len = 1, .quiet = true);
	cr_assert_not(expect_pkt(b, UC_SEND_ONLY, S(0))->flags & KARST_PKT_ACKREQ);
	p = expect_pkt(b, UC_WRITE_FIRST, S(1));
	cr_assert_eq(p->dma_len, 600);
	cr_assert_eq(p->va, PEER_VA);
	expect_data(b, p, 0, 256);
	expect_data(b, expect_pkt(b, UC_WRITE_MIDDLE, S(2)), 256, 256);
	p = expect_pkt(b, UC_WRITE_LAST, S(3));
	expect_data(b, p, 512, 88);
	cr_assert_not(p->flags & KARST_PKT_ACKREQ);
	cr_assert_eq(expect_pkt(b, UC_SEND_ONLY_IMM, S(4))->imm, 7);
	expect_pkt(b, UC_WRITE_FIRST, S(5));
	cr_assert_eq(expect_pkt(b, UC_WRITE_LAST_IMM, S(6))->imm, 8);
	expect_pkt(b, UC_SEND_ONLY, S(7));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	expect_wc(b, 4, SUCCESS);
	expect_no_wc(b);
	cr_assert_eq(karst_wq_free(&b->s->sq, 64), 64);
	advance_time(b, 1000 * MS);
	bed_close(b);
}

/* A message longer than any window: there are no acknowledgements that would open one. */
Test(uc, long_message)
{
	struct setup s = setup_of(KARST_QPT_UC);
	struct bed *b;
	uint32_t i;

	s.core.window_packets = 2;
	b = bed_open(&s);
	post(b, SEND, 1, .len = 100 * MTU);
	for (i = 0; i < 100; i++)
		expect_at(b, __FILE__, __LINE__,
			i == 0            ? KARST_UC_SEND_FIRST
				: i == 99 ? KARST_UC_SEND_LAST
					  : KARST_UC_SEND_MIDDLE,
			S(i));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* READ, atomics and invalidation do not exist for UC. */
Test(uc, operations_of_rc)
{
	static const enum karst_wr_opcode ops[] = {KARST_WR_RDMA_READ, KARST_WR_ATOMIC_CAS,
		KARST_WR_ATOMIC_FAA, KARST_WR_SEND_WITH_INV, KARST_WR_ATOMIC_WRITE, KARST_WR_FLUSH};
	unsigned int i;

	for (i = 0; i < KARST_DIM(ops); i++) {
		struct bed *b = bed_uc();

		bed_post(b, &(struct wr){.op = ops[i], .id = 1, .len = 8});
		expect_wc(b, 1, LOC_QP_OP_ERR);
		expect_state(b, SQE);
		bed_close(b);
	}
}

Test(uc, u1_receiver)
{
	struct bed *b = bed_uc();

	post_recv(b, 1, 0, 1024);
	post_recv(b, 2, 8192, 0);
	expect_taken(b, send_pkt(b, UC_SEND_FIRST, R(0), .pay_len = 256));
	expect_taken(b, send_pkt(b, UC_SEND_MIDDLE, R(1), .pay = b->pattern + 256, .pay_len = 256));
	expect_taken(b,
		send_pkt(b, UC_SEND_LAST_IMM, R(2), .pay = b->pattern + 512, .pay_len = 5, .imm = 9,
			.ackreq = true));
	expect_none(b); /* AckReq has no effect */
	expect_recv(b, 1, SUCCESS);
	cr_assert_eq(b->wc.byte_len, 517);
	cr_assert_eq(b->wc.imm, 9);
	expect_mem(b, 0, 0, 517);
	expect_taken(b,
		send_pkt(b, UC_WRITE_FIRST, R(3), .va = VA + 2000, .rkey = b->key, .dma_len = 300,
			.pay_len = 256));
	expect_taken(b,
		send_pkt(b, UC_WRITE_LAST_IMM, R(4), .pay = b->pattern + 256, .pay_len = 44,
			.imm = 10));
	expect_recv(b, 2, SUCCESS);
	cr_assert_eq(b->wc.opcode, KARST_WC_RECV_RDMA_WITH_IMM);
	cr_assert_eq(b->wc.byte_len, 300);
	expect_mem(b, 2000, 0, 300);
	cr_assert_eq(count(b, RX_REQUESTS), 2);
	bed_close(b);
}

/* (U1): a gap drops the message; the next First or Only starts again, with the same buffer. */
Test(uc, u1_gap)
{
	struct bed *b = bed_uc();

	post_recv(b, 1, 0, 1024);
	post_recv(b, 2, 4096, 1024);
	expect_taken(b, send_pkt(b, UC_SEND_FIRST, R(0), .pay_len = 256));
	expect_drop(b, UC_MESSAGE, send_pkt(b, UC_SEND_MIDDLE, R(2), .pay_len = 256));
	expect_drop(b, UC_MESSAGE, send_pkt(b, UC_SEND_LAST, R(3), .pay_len = 4));
	expect_no_wc(b);
	expect_taken(b, send_pkt(b, UC_SEND_ONLY, R(9), .pay = b->pattern + 1000, .pay_len = 100));
	expect_recv(b, 1, SUCCESS);
	cr_assert_eq(b->wc.byte_len, 100);
	expect_mem(b, 0, 1000, 100);
	/* backwards, too: UC has no duplicates */
	expect_taken(b, send_pkt(b, UC_SEND_ONLY, R(0), .pay_len = 8));
	expect_recv(b, 2, SUCCESS);
	bed_close(b);
}

/* (U1): a First or Only in the middle of a message: the message in progress is lost. */
Test(uc, u1_started_anew)
{
	struct bed *b = bed_uc();

	post_recv(b, 1, 0, 1024);
	expect_taken(b, send_pkt(b, UC_SEND_FIRST, R(0), .pay_len = 256));
	expect_taken(b,
		send_pkt(b, UC_WRITE_ONLY, R(1), .va = VA + 4096, .rkey = b->key, .dma_len = 4,
			.pay_len = 4));
	expect_drop(b, UC_MESSAGE, send_pkt(b, UC_SEND_LAST, R(2), .pay_len = 4));
	expect_taken(b, send_pkt(b, UC_SEND_FIRST, R(3), .pay_len = 256));
	expect_taken(b, send_pkt(b, UC_SEND_FIRST, R(4), .pay = b->pattern + 7, .pay_len = 256));
	expect_taken(b, send_pkt(b, UC_SEND_LAST, R(5), .pay = b->pattern + 263, .pay_len = 1));
	expect_recv(b, 1, SUCCESS);
	cr_assert_eq(b->wc.byte_len, 257);
	expect_mem(b, 0, 7, 257);
	bed_close(b);
}

/* (U1, W10): opcode order and lengths; always a drop, never an error. */
Test(uc, w10_wrong_packets)
{
	static const struct {
		uint8_t first; /* 0xff: none */
		uint8_t opcode;
		uint16_t len;
		uint32_t dma;
	} bad[] = {
		{0xff, KARST_UC_SEND_MIDDLE, 256, 0},
		{0xff, KARST_UC_SEND_LAST, 4, 0},
		{0xff, KARST_UC_WRITE_MIDDLE, 256, 0},
		{0xff, KARST_UC_WRITE_LAST_IMM, 4, 0},
		{0xff, KARST_UC_SEND_FIRST, 255, 0},
		{0xff, KARST_UC_SEND_ONLY, 257, 0},
		{0xff, KARST_UC_WRITE_FIRST, 256, 256},
		{0xff, KARST_UC_WRITE_ONLY, 8, 9},
		{0xff, KARST_UC_WRITE_ONLY, 8, 7},
		{KARST_UC_SEND_FIRST, KARST_UC_WRITE_MIDDLE, 256, 0},
		{KARST_UC_SEND_FIRST, KARST_UC_SEND_LAST, 0, 0},
		{KARST_UC_SEND_FIRST, KARST_UC_SEND_LAST, 257, 0},
		{KARST_UC_SEND_FIRST, KARST_UC_SEND_MIDDLE, 255, 0},
		{KARST_UC_WRITE_FIRST, KARST_UC_SEND_LAST, 44, 0},
		{KARST_UC_WRITE_FIRST, KARST_UC_WRITE_LAST, 43, 0},
		{KARST_UC_WRITE_FIRST, KARST_UC_WRITE_LAST, 45, 0},
		{KARST_UC_WRITE_FIRST, KARST_UC_WRITE_MIDDLE, 256, 0},
	};
	unsigned int i;

	for (i = 0; i < KARST_DIM(bad); i++) {
		struct bed *b = bed_uc();
		struct karst_ib_hdrs ib = {.opcode = bad[i].first,
			.psn = R(0),
			.va = VA,
			.rkey = b->key,
			.dma_len = 300,
			.pay_len = 256};

		post_recv(b, 1, 4096, 1024);
		if (bad[i].first != 0xff) {
			expect_taken(b, bed_rx(b, &ib));
			ib.psn = R(1);
		}
		ib.opcode = bad[i].opcode;
		ib.pay_len = bad[i].len;
		ib.dma_len = bad[i].dma;
		cr_assert_eq(bed_rx(b, &ib), KARST_DROP_UC_MESSAGE, "case %u", i);
		expect_none(b);
		expect_no_wc(b);
		expect_state(b, RTS);
		expect_taken(b, send_pkt(b, UC_SEND_ONLY, R(2), .pay_len = 8));
		expect_recv(b, 1, SUCCESS);
		expect_mem(b, 4096, 0, 8);
		bed_close(b);
	}
}

/* (U1): no receive request, no right, no such memory: dropped and counted. */
Test(uc, u1_no_place)
{
	struct bed *b = bed_uc();
	uint32_t key = bed_region(b, 0, 256, KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE);

	expect_drop(b, NO_WQE, send_pkt(b, UC_SEND_ONLY, R(0), .pay_len = 8));
	expect_drop(b, NO_WQE, send_pkt(b, UC_SEND_FIRST, R(1), .pay_len = 256));
	expect_drop(b, UC_MESSAGE, send_pkt(b, UC_SEND_LAST, R(2), .pay_len = 8));
	expect_drop(b, NO_WQE,
		send_pkt(b, UC_WRITE_ONLY_IMM, R(3), .va = VA, .rkey = b->key, .dma_len = 4,
			.pay_len = 4));
	expect_drop(b, UC_ACCESS,
		send_pkt(b, UC_WRITE_ONLY, R(4), .va = VA, .rkey = 0x666, .dma_len = 4,
			.pay_len = 4));
	expect_drop(b, UC_ACCESS,
		send_pkt(b, UC_WRITE_FIRST, R(5), .va = VA, .rkey = key, .dma_len = 257,
			.pay_len = 256));
	expect_drop(b, UC_MESSAGE, send_pkt(b, UC_WRITE_LAST, R(6), .pay_len = 1));
	expect_untouched(b, 0, 512);
	/* (R12): an empty WRITE does not check the key */
	expect_taken(b, send_pkt(b, UC_WRITE_ONLY, R(7), .va = 1, .rkey = 0x666));
	expect_state(b, RTS);
	bed_close(b);
}

/* (U1): a message longer than its receive request is dropped (IBTA 9.9.3, class D1); the next
 * message gets the request. */
Test(uc, u1_too_long)
{
	struct bed *b = bed_uc();

	post_recv(b, 1, 0, 300);
	expect_taken(b, send_pkt(b, UC_SEND_FIRST, R(0), .pay_len = 256));
	expect_drop(b, UC_MESSAGE, send_pkt(b, UC_SEND_LAST, R(1), .pay_len = 45));
	expect_no_wc(b);
	expect_no_event(b);
	expect_state(b, RTS);
	expect_untouched(b, 256, 64);
	expect_taken(b, send_pkt(b, UC_SEND_ONLY, R(2), .pay = b->pattern + 7, .pay_len = 250));
	expect_recv(b, 1, SUCCESS);
	expect_mem(b, 0, 7, 250);
	bed_close(b);
}

static struct bed *
bed_uc_srq(void)
{
	struct setup s = setup_of(KARST_QPT_UC);

	s.srq_wr = 8;
	return bed_open(&s);
}

/* (U1): the request of a shared queue is not kept for the next message, because other QPs of the
 * queue would miss it.  It completes in error (IBTA 9.9.3, class E), and the QP continues. */
Test(uc, u1_dropped_with_a_shared_queue)
{
	struct bed *b = bed_uc_srq();

	post_recv(b, 1, 0, 10);
	post_recv(b, 2, 1024, 1024);
	post_recv(b, 3, 2048, 1024);
	post_recv(b, 4, 4096, 1024);
	expect_drop(b, UC_MESSAGE, send_pkt(b, UC_SEND_ONLY, R(0), .pay_len = 11));
	expect_recv(b, 1, LOC_LEN_ERR);
	/* a gap; a message that begins in the middle of another */
	expect_taken(b, send_pkt(b, UC_SEND_FIRST, R(1), .pay_len = 256));
	expect_drop(b, UC_MESSAGE, send_pkt(b, UC_SEND_LAST, R(3), .pay_len = 4));
	expect_recv(b, 2, REM_INV_REQ_ERR);
	expect_taken(b, send_pkt(b, UC_SEND_FIRST, R(4), .pay_len = 256));
	expect_taken(b, send_pkt(b, UC_SEND_ONLY, R(5), .pay_len = 8));
	expect_recv(b, 3, REM_INV_REQ_ERR);
	expect_recv(b, 4, SUCCESS);
	expect_drop(b, NO_WQE, send_pkt(b, UC_SEND_ONLY, R(6), .pay_len = 8));
	expect_no_event(b);
	expect_state(b, RTS);
	bed_close(b);
}

/* (P1): PSNs wrap around; the default PSNs cross the wrap here, too. */
Test(uc, p1_wrap)
{
	struct bed *b = bed_uc();
	uint32_t i;

	post_recv(b, 1, 0, 2560);
	for (i = 0; i < 10; i++) {
		struct karst_ib_hdrs ib = {.opcode = i == 0 ? KARST_UC_SEND_FIRST
				: i == 9                    ? KARST_UC_SEND_LAST
							    : KARST_UC_SEND_MIDDLE,
			.psn = R(i),
			.pay = b->pattern + 256 * i,
			.pay_len = 256};

		expect_taken(b, bed_rx(b, &ib));
	}
	expect_recv(b, 1, SUCCESS);
	expect_mem(b, 0, 0, 2560);
	bed_close(b);
}
