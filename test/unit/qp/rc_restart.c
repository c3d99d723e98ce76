/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What the RC requester does when a timeout has shown a loss: when it sends again, and how much at
 * a time. */
#include "harness.h"

/* The time at which a QP whose number follows from @seed has its @n-th timeout. */
static uint64_t
expiry_of(uint64_t seed, unsigned int n)
{
	struct setup s = setup_of(KARST_QPT_RC);
	uint64_t began, ended;
	struct bed *b;

	s.core.seed[0] = seed;
	s.attr.retry_cnt = 7;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	began = b->core->now_ns;
	while (count(b, LOCAL_ACK_TIMEOUT) < n)
		advance_time(b, RTO / 256);
	ended = b->core->now_ns;
	bed_forget(b);
	bed_close(b);
	return ended - began;
}

/* (Q6): QPs that have lost their packets at the same time, more than once, do not keep
 * retransmitting at the same time. */
Test(rc_restart, q6_not_in_step)
{
	uint64_t seed, at[8];
	unsigned int n, i, j, same;

	for (n = 2; n <= 4; n++) {
		for (same = 0, seed = i = 0; i < KARST_DIM(at); i++) {
			at[i] = expiry_of(seed++, n);
			for (j = 0; j < i; j++)
				same += at[i] / (RTO / 64) == at[j] / (RTO / 64);
		}
		/* by chance some do */
		cr_assert_leq(same, 10, "expiry %u: %u of 28 pairs in step", n, same);
	}
}

/* Q6, Q2: after a timeout a few packets are sent, the last with AckReq; each acknowledgement allows
 * one more, until the window is what it was. */
Test(rc_restart, q6_restarts_slowly)
{
	struct setup s = setup_of(KARST_QPT_RC);
	const struct karst_pkt *p = NULL;
	uint32_t i, from = 0, window = 8;
	struct bed *b;

	s.core.window_packets = 64;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 100 * MTU);
	for (i = 0; i < 64; i++)
		expect_at(b, __FILE__, __LINE__,
			i == 0 ? KARST_RC_WRITE_FIRST : KARST_RC_WRITE_MIDDLE, S(i));
	expect_none(b);
	advance_time(b, 4 * RTO);
	while (window < 64) {
		for (i = from; i < from + window; i++) {
			p = expect_at(b, __FILE__, __LINE__,
				i == 0 ? KARST_RC_WRITE_FIRST : KARST_RC_WRITE_MIDDLE, S(i));
			if (i == 0)
				cr_assert(p->flags & KARST_PKT_ACKREQ);
		}
		cr_assert(p->flags & KARST_PKT_ACKREQ, "nobody will ever open the window");
		expect_none(b);
		from += window;
		expect_taken(b, send_ack(b, S(from - 1), 0));
		window *= 2;
	}
	/* 56 are acknowledged, and 44 are left: all of them are sent */
	for (i = from; i < 100; i++)
		expect_at(b, __FILE__, __LINE__,
			i < 99 ? KARST_RC_WRITE_MIDDLE : KARST_RC_WRITE_LAST, S(i));
	expect_taken(b, send_ack(b, S(99), 1));
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1);
	bed_close(b);
}

/* (Q6): the more timeouts in a row, the fewer packets are sent. */
Test(rc_restart, q6_less_each_time)
{
	struct setup s = setup_of(KARST_QPT_RC);
	static const uint32_t packets[] = {8, 4, 2, 1, 1, 1};
	unsigned int round;
	struct bed *b;
	uint32_t i;

	s.attr.retry_cnt = 7;
	b = bed_open(&s);
	post(b, SEND, 1, .len = 9 * MTU);
	for (i = 0; i < 9; i++)
		expect_at(b, __FILE__, __LINE__,
			i == 0           ? KARST_RC_SEND_FIRST
				: i == 8 ? KARST_RC_SEND_LAST
					 : KARST_RC_SEND_MIDDLE,
			S(i));
	for (round = 0; round < KARST_DIM(packets); round++) {
		advance_time(b, 4 * RTO);
		for (i = 0; i < packets[round]; i++)
			expect_at(b, __FILE__, __LINE__,
				i == 0 ? KARST_RC_SEND_FIRST : KARST_RC_SEND_MIDDLE, S(i));
		expect_none(b);
	}
	/* all had arrived the first time: the window is open again, and the count is as before */
	expect_taken(b, send_ack(b, S(8), 1));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* Q6, Q5: responses count, too: the READ without a response is requested first, the next ones when
 * it has been answered. */
Test(rc_restart, q6_reads_restart_slowly)
{
	struct bed *b = bed_rc();
	uint32_t i;

	post(b, RDMA_READ, 1, .len = 10 * MTU);
	post(b, RDMA_READ, 2, .len = MTU);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_READ_REQUEST, S(10));
	advance_time(b, 4 * RTO);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay = b->pattern, .pay_len = MTU));
	/* nine outstanding, and nine may be */
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_MIDDLE, S(1), .pay = b->pattern, .pay_len = MTU));
	expect_pkt(b, RC_READ_REQUEST, S(10));
	for (i = 2; i < 9; i++)
		expect_taken(b,
			send_pkt(b, RC_READ_RESP_MIDDLE, S(i), .pay = b->pattern, .pay_len = MTU));
	expect_taken(b, send_pkt(b, RC_READ_RESP_LAST, S(9), .pay = b->pattern, .pay_len = MTU));
	expect_wc(b, 1, SUCCESS);
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(10), .pay = b->pattern, .pay_len = MTU));
	expect_wc(b, 2, SUCCESS);
	bed_close(b);
}

/* Q6: the timeout grows only with consecutive expiries.  After progress the next loss is detected
 * as soon as the first one was. */
Test(rc_restart, q6_patience_ends_with_progress)
{
	struct bed *b = bed_rc();
	uint64_t began;

	post(b, RDMA_WRITE, 1, .len = 2 * MTU);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_pkt(b, RC_WRITE_LAST, S(1));
	while (count(b, LOCAL_ACK_TIMEOUT) < 1)
		advance_time(b, RTO / 64);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_pkt(b, RC_WRITE_LAST, S(1));
	began = b->core->now_ns;
	expect_taken(b, send_ack(b, S(0), 0));
	while (count(b, LOCAL_ACK_TIMEOUT) < 2)
		advance_time(b, RTO / 64);
	cr_assert_geq(b->core->now_ns - began, RTO);
	cr_assert_leq(b->core->now_ns - began, RTO + RTO / 8);
	expect_pkt(b, RC_WRITE_LAST, S(1));
	expect_taken(b, send_ack(b, S(1), 1));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (Q5): a NAK makes the requester go back, and then it drops the responses behind a gap.  The peer
 * first sends all responses of the old requests, then those of the repeated ones.  So less is
 * requested at a time, until some responses have come. */
Test(rc_restart, q5_fewer_reads_after_a_nak_behind_a_gap)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.attr.max_rd_atomic = 8;
	b = bed_open(&s);
	for (i = 0; i < 8; i++)
		post(b, RDMA_READ, i, .len = 16 * MTU);
	for (i = 0; i < 8; i++)
		expect_pkt(b, RC_READ_REQUEST, S(16 * i));
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay = b->pattern, .pay_len = MTU));
	/* 127 are outstanding, so 63 may be */
	expect_taken(b, send_nak(b, S(112), KARST_NAK_PSN_SEQ));
	expect_pkt(b, RC_READ_REQUEST, S(1));
	for (i = 1; i < 4; i++)
		expect_pkt(b, RC_READ_REQUEST, S(16 * i));
	expect_none(b);
	/* each response that arrives leaves one less outstanding, and allows one more */
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(1), .pay = b->pattern, .pay_len = MTU));
	expect_pkt(b, RC_READ_REQUEST, S(64));
	for (i = 2; i < 10; i++) {
		expect_none(b);
		expect_taken(b,
			send_pkt(b, RC_READ_RESP_MIDDLE, S(i), .pay = b->pattern, .pay_len = MTU));
	}
	expect_pkt(b, RC_READ_REQUEST, S(80));
	expect_none(b);
	bed_forget(b);
	bed_close(b);
}

/* (Q1): going back skips a local work request that was executed, and does not execute it again: a
 * window that is bound cannot be bound. */
Test(rc_restart, q1_local_work_is_done_once)
{
	struct bed *b = bed_rc();
	uint32_t mw, key;

	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW2, &mw), 0);
	key = (mw & ~0xffu) | ((mw + 1) & 0xff);
	post(b, SEND, 1, .len = 1);
	post(b, BIND_MW, 2,
		.bind = {.mw_key = mw,
			.new_key = key,
			.mr_key = b->key,
			.va = VA,
			.len = 100,
			.access = KARST_ACCESS_REMOTE_WRITE});
	post(b, SEND, 3, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_pkt(b, RC_SEND_ONLY, S(1));
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x60000000));
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_pkt(b, RC_SEND_ONLY, S(1));
	expect_taken(b, send_ack(b, S(1), 2));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	cr_assert_eq(b->wc.imm, key);
	expect_wc(b, 3, SUCCESS);
	expect_taken(b,
		send_pkt(b, RC_WRITE_ONLY, R(0), .va = VA, .rkey = key, .dma_len = 100,
			.pay_len = 100));
	bed_close(b);
}
