/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The RC requester when packets are lost: sequence NAKs, gaps, ACKs that acknowledge more.
 * Timeouts are in rc_retry_timeout.c, what changes meanwhile in rc_retry_changed.c.
 */
#include "harness.h"

/* (Q4, L2): a sequence NAK acknowledges everything before its PSN; all from that PSN on is sent
 * again. */
Test(rc_retry, q4_sequence_nak)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 1);
	post(b, RDMA_WRITE, 2, .len = 3 * MTU);
	post(b, RDMA_WRITE, 3, .len = 1);
	turn(b);
	expect_write(b, 0, 0, 1);
	expect_write(b, 1, 0, 3);
	expect_write(b, 4, 0, 1);
	expect_taken(b, send_nak(b, S(2), 0));
	expect_wc(b, 1, SUCCESS);
	/* from the middle of the message: the rest of it, then the next one */
	expect_write(b, 1, 1, 3);
	expect_write(b, 4, 0, 1);
	expect_none(b);
	cr_assert_eq(count(b, PACKET_SEQ_ERR), 1);
	cr_assert_eq(count(b, RETRANSMITS), 3);
	expect_taken(b, send_ack(b, S(4), 3));
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	bed_close(b);
}

/* The statistics of a QP after a loss, compared with those of its core. */
Test(rc_retry, stats_of_the_qp)
{
	struct bed *b = bed_rc();
	struct karst_qp_stats st;

	post(b, RDMA_WRITE, 1, .len = 3 * MTU);
	turn(b);
	expect_write(b, 0, 0, 3);
	karst_qp_stats(b->s->qp, &st);
	cr_assert_eq(st.tx_packets, 3);
	cr_assert_eq(st.tx_bytes, count(b, TX_BYTES));
	cr_assert_eq(st.rx_packets, 0);
	expect_taken(b, send_nak(b, S(1), 0));
	expect_write(b, 0, 1, 3);
	expect_taken(b, send_ack(b, S(2), 1));
	expect_wc(b, 1, SUCCESS);
	karst_qp_stats(b->s->qp, &st);
	cr_assert_eq(st.tx_packets, 5);
	cr_assert_eq(st.tx_bytes, count(b, TX_BYTES));
	cr_assert_eq(st.rx_packets, 2);
	cr_assert_eq(st.rx_bytes, count(b, RX_BYTES));
	cr_assert_eq(st.seq_naks, 1);
	cr_assert_eq(st.retransmits, 2);
	cr_assert_eq(st.timeouts, 0);
	bed_close(b);
}

/* (Q4): for the same PSN once in a round; progress or a timeout starts the next round. */
Test(rc_retry, q4_once_per_round)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 2 * MTU);
	expect_write(b, 0, 0, 2);
	expect_taken(b, send_nak(b, S(0), 0));
	expect_taken(b, send_nak(b, S(0), 0));
	expect_write(b, 0, 0, 2);
	expect_none(b);
	expect_taken(b, send_nak(b, S(0), 0));
	expect_none(b);
	expect_taken(b, send_nak(b, S(1), 0)); /* progress: S(0) has arrived */
	expect_write(b, 0, 1, 2);
	expect_none(b);
	bed_forget(b);
	bed_close(b);
}

/* (Q4): retransmission takes the data as it is now, from the send ring. */
Test(rc_retry, q4_sent_again_from_the_ring)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;

	post(b, RDMA_WRITE, 1, .len = 300);
	expect_write(b, 0, 0, 2);
	memcpy(b->buf, b->pattern, 300);
	expect_taken(b, send_nak(b, S(1), 0));
	p = expect_pkt(b, RC_WRITE_LAST, S(1));
	expect_data(b, p, 256, 44);
	bed_forget(b);
	bed_close(b);
}

/* (Q3, X11): an ACK that passes a READ whose response is missing: only that READ is requested
 * again. */
Test(rc_retry, q3_ack_past_a_read)
{
	struct bed *b = bed_rc();

	post(b, RDMA_READ, 1, .len = 2 * MTU);
	post(b, RDMA_WRITE, 2, .len = 1);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	expect_taken(b, send_ack(b, S(2), 2));
	cr_assert_eq(count(b, IMPLIED_NAK_SEQ_ERR), 1);
	expect_no_wc(b);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 256));
	expect_taken(b, send_pkt(b, RC_READ_RESP_LAST, S(1), .pay_len = 256));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	bed_close(b);
}

/* (Q5, X11, L2): a gap among the responses: it is requested at once, to the end of the READ, and
 * responses behind the gap are kept. */
Test(rc_retry, q5_read_gap)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;

	post(b, RDMA_READ, 1, .len = 4 * MTU - 10);
	post(b, ATOMIC_FAA, 2, .off = 8192);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_FETCH_ADD, S(4));
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 256));
	expect_taken(
		b, send_pkt(b, RC_READ_RESP_MIDDLE, S(2), .pay = b->pattern + 512, .pay_len = 256));
	expect_untouched(b, 256, 256);
	expect_mem(b, 512, 512, 256);
	p = expect_pkt(b, RC_READ_REQUEST, S(1));
	cr_assert_eq(p->va, PEER_VA + 256);
	cr_assert_eq(p->dma_len, 3 * MTU - 10);
	cr_assert_eq(p->rkey, PEER_RKEY);
	/* the rest of the first round is no reason for a third request */
	expect_taken(
		b, send_pkt(b, RC_READ_RESP_LAST, S(3), .pay = b->pattern + 768, .pay_len = 246));
	expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(4), .orig = 9));
	expect_none(b);
	expect_no_wc(b);
	expect_taken(
		b, send_pkt(b, RC_READ_RESP_FIRST, S(1), .pay = b->pattern + 256, .pay_len = 256));
	expect_wc(b, 1, SUCCESS);
	expect_mem(b, 0, 0, 4 * MTU - 10);
	expect_wc(b, 2, SUCCESS);
	/* requested, and already here */
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_MIDDLE, S(2), .pay_len = 256));
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_LAST, S(3), .pay_len = 246));
	bed_close(b);
}

/* (Q5, Q6): a lost last response is found by the timeout, and only that response is requested. */
Test(rc_retry, q5_last_response_lost)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;

	post(b, RDMA_READ, 1, .len = 3 * MTU);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 256));
	expect_taken(
		b, send_pkt(b, RC_READ_RESP_MIDDLE, S(1), .pay = b->pattern + 256, .pay_len = 256));
	advance_time(b, 4 * RTO);
	p = expect_pkt(b, RC_READ_REQUEST, S(2));
	cr_assert_eq(p->va, PEER_VA + 512);
	cr_assert_eq(p->dma_len, 256);
	/* a duplicate of a response that has arrived already */
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_MIDDLE, S(1), .pay_len = 256));
	expect_taken(
		b, send_pkt(b, RC_READ_RESP_ONLY, S(2), .pay = b->pattern + 512, .pay_len = 256));
	expect_wc(b, 1, SUCCESS);
	expect_mem(b, 0, 0, 3 * MTU);
	bed_close(b);
}

/* (Q3): a response acknowledges the requests before it. */
Test(rc_retry, q3_response_acknowledges_earlier)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 1);
	post(b, SEND, 2, .len = 300);
	post(b, ATOMIC_FAA, 3, .off = 64);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_pkt(b, RC_SEND_FIRST, S(1));
	expect_pkt(b, RC_SEND_LAST, S(2));
	expect_pkt(b, RC_FETCH_ADD, S(3));
	expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(3)));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	bed_close(b);
}

/* Late acknowledgements of the first round end the second one before it is over. */
Test(rc_retry, acknowledged_while_sending_again)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 4 * MTU);
	post(b, RDMA_READ, 2, .len = 1);
	post(b, RDMA_WRITE, 3, .len = 1);
	expect_write(b, 0, 0, 4);
	expect_pkt(b, RC_READ_REQUEST, S(4));
	expect_pkt(b, RC_WRITE_ONLY, S(5));
	b->core->now_ns += 4 * RTO;
	karst_core_expire(b->core, 10);
	turn_once(b, 1, UINT32_MAX);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_taken(b, send_ack(b, S(2), 0));
	turn_once(b, 1, UINT32_MAX);
	expect_pkt(b, RC_WRITE_LAST, S(3));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(4), .pay_len = 1));
	expect_pkt(b, RC_WRITE_ONLY, S(5));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_taken(b, send_ack(b, S(5), 3));
	expect_wc(b, 3, SUCCESS);
	bed_close(b);
}

/* Q3, Q2: responses of the first round arrive when the cursor has gone back and nothing has been
 * sent again.  A response that acknowledges a request before it passes the cursor, which follows:
 * READs behind the cursor stop counting as outstanding, exactly once.  Otherwise the window would
 * shrink each time, until nothing fits into it although nothing is outstanding, and so no timer
 * runs. */
Test(rc_retry, q3_answers_pass_the_cursor)
{
	struct setup s = setup_of(KARST_QPT_RC);
	uint32_t i, n = 0;
	struct bed *b;

	s.core.window_packets = 4;
	s.attr.max_rd_atomic = 4;
	b = bed_open(&s);
	for (i = 0; i < 4; i++, n += 3) {
		post(b, RDMA_READ, n, .len = 1);
		post(b, RDMA_WRITE, n + 1, .len = 1);
		post(b, RDMA_READ, n + 2, .len = 1);
		expect_pkt(b, RC_READ_REQUEST, S(n));
		expect_pkt(b, RC_WRITE_ONLY, S(n + 1));
		expect_pkt(b, RC_READ_REQUEST, S(n + 2));
		expect_taken(b, send_nak(b, S(n), 0));
		expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(n), .pay_len = 1));
		expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(n + 2), .pay_len = 1));
		expect_wc(b, n, SUCCESS);
		expect_wc(b, n + 1, SUCCESS);
		expect_wc(b, n + 2, SUCCESS);
		expect_none(b);
	}
	post(b, RDMA_WRITE, n, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(n));
	expect_taken(b, send_ack(b, S(n), n + 1));
	expect_wc(b, n, SUCCESS);
	bed_close(b);
}

/* (P1): PSNs are compared across the wrap; the default PSNs cross it, so here they stay far from
 * it. */
Test(rc_retry, p1_far_from_the_wrap)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.sq_psn = 0x7ffffe; /* a signed comparison of 24-bit numbers would change here */
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 5 * MTU);
	expect_write(b, 0, 0, 5);
	expect_taken(b, send_ack(b, S(1), 0));
	expect_taken(b, send_nak(b, S(3), 0));
	expect_write(b, 0, 3, 5);
	expect_taken(b, send_ack(b, S(4), 1));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}
