/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the RC requester delays: READs over the limit, fenced requests, packets beyond the window,
 * requests behind one that has failed; and how often it requests an ACK.
 */
#include "harness.h"

/* (Q5): READs and atomics together never exceed max_rd_atomic. */
Test(rc_requester, q5_read_limit)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.max_rd_atomic = 2;
	b = bed_open(&s);
	post(b, RDMA_READ, 1, .len = 300);
	post(b, ATOMIC_FAA, 2, .off = 512);
	post(b, RDMA_READ, 3, .len = 8);
	post(b, RDMA_WRITE, 4, .len = 8);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_FETCH_ADD, S(2));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 256));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_LAST, S(1), .pay_len = 44));
	expect_wc(b, 1, SUCCESS);
	expect_pkt(b, RC_READ_REQUEST, S(3));
	expect_pkt(b, RC_WRITE_ONLY, S(4));
	expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(2)));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(3), .pay_len = 8));
	ack(b, S(4), 4);
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	expect_wc(b, 4, SUCCESS);
	bed_close(b);
}

/* (Q5): on a QP that may send no READ, a READ fails at once and does not wait for ever. */
Test(rc_requester, q5_no_reads_at_all)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.max_rd_atomic = 0;
	b = bed_open(&s);
	post(b, RDMA_READ, 1, .len = 8);
	expect_wc(b, 1, LOC_QP_OP_ERR);
	expect_state(b, ERR);
	bed_close(b);
}

/* (Q1): a fence waits for earlier READs and atomics, for nothing else. */
Test(rc_requester, q1_fence)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 8);
	post(b, RDMA_WRITE, 2, .len = 8, .flags = KARST_SEND_FENCE);
	post(b, RDMA_READ, 3, .len = 8);
	post(b, ATOMIC_FAA, 4, .off = 512);
	post(b, SEND, 5, .len = 8);
	post(b, SEND, 6, .len = 8, .flags = KARST_SEND_FENCE);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	expect_pkt(b, RC_READ_REQUEST, S(2));
	expect_pkt(b, RC_FETCH_ADD, S(3));
	expect_pkt(b, RC_SEND_ONLY, S(4));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(2), .pay_len = 8));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(3)));
	expect_pkt(b, RC_SEND_ONLY, S(5));
	bed_forget(b);
	bed_close(b);
}

/* (Q2): a long message asks for an acknowledgement every ack_interval packets. */
Test(rc_requester, q2_ack_interval)
{
	struct setup s = setup_of(KARST_QPT_RC);
	const struct karst_pkt *p;
	struct bed *b;
	uint32_t i;

	s.core.ack_interval = 4;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 10 * MTU);
	for (i = 0; i < 10; i++) {
		uint8_t opc = i == 0 ? KARST_RC_WRITE_FIRST
			: i == 9     ? KARST_RC_WRITE_LAST
				     : KARST_RC_WRITE_MIDDLE;

		p = expect_at(b, __FILE__, __LINE__, opc, S(i));
		cr_assert_eq((p->flags & KARST_PKT_ACKREQ) != 0, i == 3 || i == 7 || i == 9,
			"packet %u", i);
	}
	ack(b, S(9), 1);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (P2): the window stops a long message, and each ACK moves it. */
Test(rc_requester, p2_window)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.core.window_packets = 4;
	s.core.ack_interval = 2;
	b = bed_open(&s);
	post(b, SEND, 1, .len = 7 * MTU);
	expect_pkt(b, RC_SEND_FIRST, S(0));
	expect_pkt(b, RC_SEND_MIDDLE, S(1));
	expect_pkt(b, RC_SEND_MIDDLE, S(2));
	expect_pkt(b, RC_SEND_MIDDLE, S(3));
	expect_none(b);
	ack(b, S(1), 0);
	expect_pkt(b, RC_SEND_MIDDLE, S(4));
	expect_pkt(b, RC_SEND_MIDDLE, S(5));
	expect_none(b);
	ack(b, S(5), 0);
	expect_pkt(b, RC_SEND_LAST, S(6));
	ack(b, S(6), 1);
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(count(b, RETRANSMITS), 0);
	bed_close(b);
}

/* (Q2): with a window smaller than ack_interval, packets still are acknowledged. */
Test(rc_requester, q2_window_smaller_than_interval)
{
	struct setup s = setup_of(KARST_QPT_RC);
	const struct karst_pkt *p = NULL;
	struct bed *b;
	uint32_t i;

	s.core.window_packets = 4;
	b = bed_open(&s);
	post(b, SEND, 1, .len = 9 * MTU);
	for (i = 0; i < 4; i++)
		p = expect_at(b, __FILE__, __LINE__,
			i == 0 ? KARST_RC_SEND_FIRST : KARST_RC_SEND_MIDDLE, S(i));
	expect_none(b);
	cr_assert(p->flags & KARST_PKT_ACKREQ, "nobody will ever open the window");
	bed_forget(b);
	bed_close(b);
}

/* (Q2): a NAK has made the window a little smaller than ack_interval.  What is sent behind a READ,
 * which the window does not count, still asks for an acknowledgement; the queue pair has no timeout
 * that would help. */
Test(rc_requester, q2_window_reduced_below_interval)
{
	struct setup s = setup_of(KARST_QPT_RC);
	uint32_t i, window = 0, asked = 0;
	struct bed *b;

	s.core.window_packets = s.core.ack_interval = 16;
	s.attr.timeout = 0;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_taken(b, send_nak(b, S(0), 0));
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	post(b, RDMA_READ, 2, .len = 27 * MTU);
	post(b, RDMA_WRITE, 3, .len = 40 * MTU);
	expect_pkt(b, RC_READ_REQUEST, S(1));
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(1), .pay_len = MTU));
	for (i = 1; i < 26; i++) {
		expect_taken(b, send_pkt(b, RC_READ_RESP_MIDDLE, S(1 + i), .pay_len = MTU));
		turn(b);
	}
	expect_taken(b, send_pkt(b, RC_READ_RESP_LAST, S(27), .pay_len = MTU));
	expect_wc(b, 2, SUCCESS);
	turn(b);
	for (; b->out_head != b->out_tail; window++) {
		const struct karst_pkt *p = expect_at(b, __FILE__, __LINE__,
			window == 0 ? KARST_RC_WRITE_FIRST : KARST_RC_WRITE_MIDDLE, S(28 + window));

		asked += (p->flags & KARST_PKT_ACKREQ) != 0;
	}
	cr_assert_leq(window, 16);
	cr_assert_geq(
		asked, 1, "none of %u packets asks: nobody will ever open the window", window);
	bed_forget(b);
	bed_close(b);
}

/* (P2): two READs that would take more than 2^23 PSNs together go one after the other. */
Test(rc_requester, p2_half_of_the_number_space)
{
	static uint8_t nothing;
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_sge sge;
	struct bed *b;
	uint32_t key;

	s.attr.timeout = 0;
	b = bed_open(&s);
	/* not memory; no byte of it is read or written in this test */
	cr_assert_eq(karst_mr_reg(b->mem, b->pd, &nothing, 1ull << 32, 1ull << 31,
			     KARST_ACCESS_LOCAL_WRITE, &key),
		0);
	sge = (struct karst_sge){1ull << 32, 1u << 31, key};
	post(b, RDMA_WRITE, 1, .len = 4);
	post(b, RDMA_READ, 2, .sge = &sge, .nsge = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_none(b);
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(expect_pkt(b, RC_READ_REQUEST, S(1))->dma_len, 1u << 31);
	/* exactly 2^23 outstanding: the next waits */
	post(b, RDMA_WRITE, 3, .len = 4);
	expect_none(b);
	/* the last one is inside, the one behind it outside (Q10) */
	expect_drop(b, GHOST_ACK, send_pkt(b, RC_ACK, S(1 + (1 << 23)), .aeth = 0x1f000000));
	expect_no_wc(b);
	bed_forget(b);
	bed_close(b);
}

/* Q1: an invalid request of the program fails in order: earlier requests complete before it. */
Test(rc_requester, q1_failure_waits_for_its_turn)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 8, .quiet = true);
	post(b, RDMA_WRITE, 2, .len = 8, .lkey = 0x7777);
	post(b, RDMA_WRITE, 3, .len = 8);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_none(b);
	expect_no_wc(b);
	expect_state(b, RTS);
	ack(b, S(0), 1);
	expect_wc(b, 2, LOC_PROT_ERR);
	expect_wc(b, 3, WR_FLUSH_ERR);
	expect_state(b, ERR);
	cr_assert_eq(count(b, REQ_CQE_ERROR), 2);
	bed_close(b);
}
