/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Timeouts of the RC requester: when, how often, and what a change of the timeout does (Q6, Q7). */

#include "harness.h"

/* (Q6): not before the nominal time, and within four times that; from the oldest packet on. */
Test(rc_retry, q6_timeout)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 2 * MTU);
	expect_write(b, 0, 0, 2);
	expect_taken(b, send_ack(b, S(0), 0));
	advance_time(b, RTO - 1);
	expect_none(b);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	advance_time(b, 3 * RTO);
	expect_write(b, 0, 1, 2);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1);
	expect_none(b);
	expect_taken(b, send_ack(b, S(1), 1));
	expect_wc(b, 1, SUCCESS);
	/* nothing is outstanding: no timer runs */
	advance_time(b, 1000 * RTO);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1);
	bed_close(b);
}

/* (Q6): a retransmission after a NAK has the whole timeout, also without progress. */
Test(rc_retry, q6_nak_restarts_the_clock)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 2 * MTU);
	expect_write(b, 0, 0, 2);
	advance_time(b, RTO - 1);
	expect_taken(b, send_nak(b, S(0), 0));
	expect_write(b, 0, 0, 2);
	advance_time(b, RTO / 2);
	expect_none(b);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	expect_taken(b, send_ack(b, S(1), 1));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (Q6): each expiry is between one and four times the nominal value after the one before. */
Test(rc_retry, q6_each_interval)
{
	struct setup s = setup_of(KARST_QPT_RC);
	uint64_t last, now;
	unsigned int i;
	struct bed *b;

	s.attr.retry_cnt = 7;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_write(b, 0, 0, 1);
	last = b->core->now_ns;
	for (i = 1; i <= 7; i++) {
		while (count(b, LOCAL_ACK_TIMEOUT) < i)
			advance_time(b, RTO / 64);
		now = b->core->now_ns;
		cr_assert_geq(now - last, RTO, "expiry %u", i);
		cr_assert_leq(now - last, 4 * RTO, "expiry %u", i);
		last = now;
		expect_write(b, 0, 0, 1);
		expect_none(b);
	}
	expect_no_wc(b);
	bed_forget(b);
	bed_close(b);
}

/* (Q6): retry_cnt expiries are survived, the next one fails the QP. */
Test(rc_retry, q6_retries_exhausted)
{
	struct bed *b = bed_rc();
	unsigned int i;

	post_recv(b, 77, 0, 16);
	post(b, RDMA_WRITE, 1, .len = 1, .quiet = true);
	post(b, RDMA_READ, 2, .len = 1);
	turn(b);
	expect_write(b, 0, 0, 1);
	expect_pkt(b, RC_READ_REQUEST, S(1));
	for (i = 0; i < 3; i++) {
		advance_time(b, 4 * RTO);
		expect_write(b, 0, 0, 1);
		expect_pkt(b, RC_READ_REQUEST, S(1));
		expect_no_wc(b);
	}
	advance_time(b, 4 * RTO);
	expect_wc(b, 1, RETRY_EXC_ERR);
	expect_wc(b, 2, WR_FLUSH_ERR);
	expect_recv(b, 77, WR_FLUSH_ERR);
	expect_state(b, ERR);
	advance_time(b, 1000 * RTO);
	bed_close(b);
}

/* (Q6): progress restores the retry count. */
Test(rc_retry, q6_progress_refills)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.attr.retry_cnt = 1;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 5 * MTU);
	expect_write(b, 0, 0, 5);
	for (i = 0; i < 4; i++) {
		advance_time(b, 4 * RTO);
		expect_write(b, 0, i, 5);
		expect_taken(b, send_ack(b, S(i), 0));
	}
	expect_state(b, RTS);
	bed_forget(b);
	bed_close(b);
}

/* (Q6): progress restarts the timer, too. */
Test(rc_retry, q6_progress_restarts_the_clock)
{
	struct bed *b = bed_rc();
	uint32_t i;

	post(b, RDMA_WRITE, 1, .len = 5 * MTU);
	expect_write(b, 0, 0, 5);
	for (i = 0; i < 4; i++) {
		advance_time(b, RTO - 10000);
		expect_taken(b, send_ack(b, S(i), 0));
	}
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	expect_taken(b, send_ack(b, S(4), 1));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (Q6): timeout 0 waits for ever, retry_cnt 0 allows no retry. */
Test(rc_retry, q6_never)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.timeout = 0;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_write(b, 0, 0, 1);
	advance_time(b, 3600ull * 1000 * MS);
	expect_none(b);
	expect_taken(b, send_ack(b, S(0), 1));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

Test(rc_retry, q6_no_retries)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.retry_cnt = 0;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_write(b, 0, 0, 1);
	advance_time(b, 4 * RTO);
	expect_wc(b, 1, RETRY_EXC_ERR);
	bed_close(b);
}

/* (Q6): a shorter timeout, set while the queue is drained, takes effect at once. */
Test(rc_retry, q6_shorter_timeout)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_core_qp_attr attr = {.timeout = 1};
	struct bed *b;

	s.attr.timeout = 20; /* 4.3 s */
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_write(b, 0, 0, 1);
	expect_taken(b, send_ack(b, S(0), 1));
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(bed_to_state(b, KARST_QPS_SQD), 0);
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_TIMEOUT), 0);
	cr_assert_eq(bed_to_state(b, KARST_QPS_RTS), 0);
	post(b, RDMA_WRITE, 2, .len = 1);
	expect_write(b, 1, 0, 1);
	advance_time(b, 4 * (4096 << 1));
	expect_write(b, 1, 0, 1);
	bed_forget(b);
	bed_close(b);
}

/* (Q6): a timeout that is set while a request is outstanding applies to it; 0 stops the timer. */
Test(rc_retry, q6_timeout_changed_under_way)
{
	struct karst_core_qp_attr attr = {.timeout = 0};
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 1);
	expect_write(b, 0, 0, 1);
	cr_assert_eq(bed_to_state(b, KARST_QPS_SQD), 0);
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_TIMEOUT), 0);
	advance_time(b, 1000 * RTO);
	expect_none(b);
	attr.timeout = 2;
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_TIMEOUT), 0);
	advance_time(b, 4 * (4096 << 2));
	expect_write(b, 0, 0, 1);
	bed_forget(b);
	bed_close(b);
}

/* (Q7): a change of the timeout during the wait after an RNR NAK does not shorten that wait. */
Test(rc_retry, q7_timeout_changed_during_the_wait)
{
	struct karst_core_qp_attr attr = {.timeout = 1};
	struct bed *b = bed_rc();

	post(b, SEND, 1, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x2c000000)); /* 0.64 ms */
	cr_assert_eq(bed_to_state(b, KARST_QPS_SQD), 0);
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_TIMEOUT), 0);
	advance_time(b, 600 * US);
	expect_none(b);
	advance_time(b, 50 * US);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	bed_forget(b);
	bed_close(b);
}
