/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The RC requester when the link loses something: NAKs, gaps, timeouts, and what it must not
 * believe.
 */
#include "harness.h"

#define RTO (4096ull << 10) /* setup_of() */

static enum karst_drop
ack(struct bed *b, uint32_t psn, uint32_t msn)
{
	return send_pkt(b, RC_ACK, psn, .aeth = 0x1f000000 | msn);
}

static enum karst_drop
nak(struct bed *b, uint32_t psn, uint32_t code)
{
	return send_pkt(b, RC_ACK, psn, .aeth = (0x60u | code) << 24);
}

static void
expect_write(struct bed *b, uint32_t first, uint32_t from, uint32_t packets)
{
	uint32_t i;

	for (i = from; i < packets; i++)
		expect_at(b, __FILE__, __LINE__,
			packets == 1              ? KARST_RC_WRITE_ONLY
				: i == 0          ? KARST_RC_WRITE_FIRST
				: i + 1 < packets ? KARST_RC_WRITE_MIDDLE
						  : KARST_RC_WRITE_LAST,
			S(first + i));
}

/* (Q4, L2): a sequence NAK acknowledges what is before it; all from it on is sent again. */
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
	expect_taken(b, nak(b, S(2), 0));
	expect_wc(b, 1, SUCCESS);
	/* from the middle of the message: what is left of it, then the next */
	expect_write(b, 1, 1, 3);
	expect_write(b, 4, 0, 1);
	expect_none(b);
	cr_assert_eq(count(b, PACKET_SEQ_ERR), 1);
	cr_assert_eq(count(b, RETRANSMITS), 3);
	expect_taken(b, ack(b, S(4), 3));
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	bed_close(b);
}

/* What the QP itself has counted of a loss, next to what its core has. */
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
	expect_taken(b, nak(b, S(1), 0));
	expect_write(b, 0, 1, 3);
	expect_taken(b, ack(b, S(2), 1));
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

/* (Q4): for the same point once in a round; progress or a timeout begins the next. */
Test(rc_retry, q4_once_per_round)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 2 * MTU);
	expect_write(b, 0, 0, 2);
	expect_taken(b, nak(b, S(0), 0));
	expect_taken(b, nak(b, S(0), 0));
	expect_write(b, 0, 0, 2);
	expect_none(b);
	expect_taken(b, nak(b, S(0), 0));
	expect_none(b);
	expect_taken(b, nak(b, S(1), 0)); /* progress: S(0) is there */
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
	expect_taken(b, nak(b, S(1), 0));
	p = expect_pkt(b, RC_WRITE_LAST, S(1));
	expect_data(b, p, 256, 44);
	bed_forget(b);
	bed_close(b);
}

/* (Q3): an ACK that passes a READ whose response is missing: ask for it again. */
Test(rc_retry, q3_ack_past_a_read)
{
	struct bed *b = bed_rc();

	post(b, RDMA_READ, 1, .len = 2 * MTU);
	post(b, RDMA_WRITE, 2, .len = 1);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	expect_taken(b, ack(b, S(2), 2));
	cr_assert_eq(count(b, IMPLIED_NAK_SEQ_ERR), 1);
	expect_no_wc(b);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 256));
	expect_taken(b, send_pkt(b, RC_READ_RESP_LAST, S(1), .pay_len = 256));
	expect_wc(b, 1, SUCCESS);
	expect_taken(b, ack(b, S(2), 2));
	expect_wc(b, 2, SUCCESS);
	bed_close(b);
}

/* (Q5, L2): a gap among the responses: only the missing part is asked for, at once. */
Test(rc_retry, q5_read_gap)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;

	post(b, RDMA_READ, 1, .len = 4 * MTU - 10);
	post(b, ATOMIC_FAA, 2, .off = 8192);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_FETCH_ADD, S(4));
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 256));
	expect_drop(b, READ_GAP, send_pkt(b, RC_READ_RESP_MIDDLE, S(2), .pay_len = 256));
	expect_untouched(b, 256, 1024);
	p = expect_pkt(b, RC_READ_REQUEST, S(1));
	cr_assert_eq(p->va, PEER_VA + 256);
	cr_assert_eq(p->dma_len, 3 * MTU - 10);
	cr_assert_eq(p->rkey, PEER_RKEY);
	expect_pkt(b, RC_FETCH_ADD, S(4));
	/* the rest of the first round is no reason to ask a third time */
	expect_drop(b, READ_GAP,
		send_pkt(b, RC_READ_RESP_LAST, S(3), .pay = b->pattern, .pay_len = 246));
	expect_drop(b, READ_GAP, send_pkt(b, RC_ATOMIC_ACK, S(4)));
	expect_none(b);
	expect_taken(
		b, send_pkt(b, RC_READ_RESP_FIRST, S(1), .pay = b->pattern + 256, .pay_len = 256));
	expect_taken(
		b, send_pkt(b, RC_READ_RESP_MIDDLE, S(2), .pay = b->pattern + 512, .pay_len = 256));
	expect_taken(
		b, send_pkt(b, RC_READ_RESP_LAST, S(3), .pay = b->pattern + 768, .pay_len = 246));
	expect_wc(b, 1, SUCCESS);
	expect_mem(b, 0, 0, 4 * MTU - 10);
	expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(4), .orig = 9));
	expect_wc(b, 2, SUCCESS);
	bed_close(b);
}

/* (Q5, Q6): a response lost at the end is found by the clock, and only it is asked for. */
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
	/* a duplicate of one that is there already */
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

/* (Q6): not before the nominal time, surely within four times of it; from the oldest on. */
Test(rc_retry, q6_timeout)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 2 * MTU);
	expect_write(b, 0, 0, 2);
	expect_taken(b, ack(b, S(0), 0));
	advance_time(b, RTO - 1);
	expect_none(b);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	advance_time(b, 3 * RTO);
	expect_write(b, 0, 1, 2);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1);
	expect_none(b);
	expect_taken(b, ack(b, S(1), 1));
	expect_wc(b, 1, SUCCESS);
	/* nothing is outstanding: no clock runs */
	advance_time(b, 1000 * RTO);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1);
	bed_close(b);
}

/* (Q6): what goes out again after a NAK has all of its time, without progress, too. */
Test(rc_retry, q6_nak_restarts_the_clock)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 2 * MTU);
	expect_write(b, 0, 0, 2);
	advance_time(b, RTO - 1);
	expect_taken(b, nak(b, S(0), 0));
	expect_write(b, 0, 0, 2);
	advance_time(b, RTO / 2);
	expect_none(b);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	expect_taken(b, ack(b, S(1), 1));
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

/* (Q6): retry_cnt expiries are survived, the next is the end. */
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

/* (Q6): progress refills the count. */
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
		expect_taken(b, ack(b, S(i), 0));
	}
	expect_state(b, RTS);
	bed_forget(b);
	bed_close(b);
}

/* (Q6): progress restarts the clock, too. */
Test(rc_retry, q6_progress_restarts_the_clock)
{
	struct bed *b = bed_rc();
	uint32_t i;

	post(b, RDMA_WRITE, 1, .len = 5 * MTU);
	expect_write(b, 0, 0, 5);
	for (i = 0; i < 4; i++) {
		advance_time(b, RTO - 10000);
		expect_taken(b, ack(b, S(i), 0));
	}
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	expect_taken(b, ack(b, S(4), 1));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (Q6): timeout 0 waits for ever, retry_cnt 0 not at all. */
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
	expect_taken(b, ack(b, S(0), 1));
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

/* (Q6): a shorter timeout, given while the queue is drained, counts at once. */
Test(rc_retry, q6_shorter_timeout)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_core_qp_attr attr = {.timeout = 1};
	struct bed *b;

	s.attr.timeout = 20; /* 4.3 s */
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_write(b, 0, 0, 1);
	expect_taken(b, ack(b, S(0), 1));
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

/* (Q6): a timeout given while something is outstanding counts for it; 0 stops the clock. */
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

/* (Q10): whatever is outside of the outstanding PSNs changes nothing and is counted. */
Test(rc_retry, q10_ghosts)
{
	struct bed *b = bed_rc();

	expect_drop(b, GHOST_ACK, ack(b, S(0), 1));
	post(b, RDMA_WRITE, 1, .len = 2 * MTU);
	expect_write(b, 0, 0, 2);
	expect_drop(b, GHOST_ACK, ack(b, S(2), 1));
	expect_drop(b, GHOST_ACK, ack(b, S(-1), 1));
	expect_drop(b, GHOST_ACK, ack(b, S(0x800000), 1));
	expect_drop(b, GHOST_ACK, nak(b, S(2), 0));
	expect_drop(b, GHOST_ACK, nak(b, S(-1), 2));
	expect_drop(b, GHOST_ACK, send_pkt(b, RC_ACK, S(5), .aeth = 0x20000000));
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_ONLY, S(2), .pay_len = 4));
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_ATOMIC_ACK, S(9)));
	/* a response that no READ waits for, inside of the range */
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_ONLY, S(0), .pay_len = 4));
	expect_none(b);
	expect_no_wc(b);
	cr_assert_eq(drops(b, GHOST_ACK), 7);
	cr_assert_eq(drops(b, UNEXPECTED_RESPONSE), 3);
	expect_taken(b, ack(b, S(1), 1));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (Q10): so does a reserved syndrome, also of a NAK inside of the range. */
Test(rc_retry, q10_reserved_syndromes)
{
	static const uint8_t bad[] = {0x40, 0x5f, 0x65, 0x7f, 0x80, 0x9f, 0xff, 0xe0, 0xa0, 0xc1};
	struct bed *b = bed_rc();
	unsigned int i;

	post(b, RDMA_WRITE, 1, .len = 1);
	post(b, RDMA_WRITE, 2, .len = 1);
	expect_write(b, 0, 0, 1);
	expect_write(b, 1, 0, 1);
	for (i = 0; i < sizeof(bad); i++) {
		expect_drop(b, BAD_SYNDROME,
			send_pkt(b, RC_ACK, S(1), .aeth = (uint32_t)bad[i] << 24 | 2));
		expect_no_wc(b);
	}
	expect_none(b);
	cr_assert_eq(drops(b, BAD_SYNDROME), sizeof(bad));
	bed_forget(b);
	bed_close(b);
}

/* (Q10, W9): nor does what comes to a QP that cannot have sent anything. */
Test(rc_retry, q10_before_rts)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.state = KARST_QPS_RTR;
	b = bed_open(&s);
	expect_drop(b, QP_STATE, ack(b, S(0), 1));
	bed_close(b);
}

/* Late acknowledgements of the first round end the second before it is over. */
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
	expect_taken(b, ack(b, S(2), 0));
	turn_once(b, 1, UINT32_MAX);
	expect_pkt(b, RC_WRITE_LAST, S(3));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(4), .pay_len = 1));
	expect_pkt(b, RC_WRITE_ONLY, S(5));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_taken(b, ack(b, S(5), 3));
	expect_wc(b, 3, SUCCESS);
	bed_close(b);
}

/* The send cursor does not stay on the slot of a local operation behind a late response. */
Test(rc_retry, local_operation_behind_the_cursor)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t mw;

	s.qp.max_send_wr = 2;
	b = bed_open(&s);
	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW1, &mw), 0);
	post(b, RDMA_READ, 1, .len = 1);
	post(b, BIND_MW, 2,
		.bind = {.mw_key = mw,
			.mr_key = b->key,
			.va = VA,
			.len = 64,
			.access = KARST_ACCESS_REMOTE_READ});
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_taken(b, nak(b, S(0), 0)); /* the cursor goes back ... */
	/* ... and both complete before it goes on */
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0), .aeth = 0x1f000001, .pay_len = 1));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	/* their slots are the program's again */
	post(b, RDMA_WRITE, 3, .len = 1);
	post(b, RDMA_WRITE, 4, .len = 1);
	expect_write(b, 1, 0, 1);
	expect_write(b, 2, 0, 1);
	expect_taken(b, ack(b, S(2), 3));
	expect_wc(b, 3, SUCCESS);
	expect_wc(b, 4, SUCCESS);
	bed_close(b);
}

/* Local operations are done once, however often the requests around them are sent. */
Test(rc_retry, local_operation_is_not_repeated)
{
	struct bed *b = bed_rc();
	uint32_t mw;

	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW1, &mw), 0);
	post(b, RDMA_WRITE, 1, .len = 1);
	post(b, BIND_MW, 2,
		.bind = {.mw_key = mw,
			.mr_key = b->key,
			.va = VA,
			.len = 64,
			.access = KARST_ACCESS_REMOTE_READ});
	post(b, RDMA_WRITE, 3, .len = 1);
	expect_write(b, 0, 0, 1);
	expect_write(b, 1, 0, 1);
	expect_taken(b, nak(b, S(0), 0));
	expect_write(b, 0, 0, 1);
	expect_write(b, 1, 0, 1);
	expect_taken(b, ack(b, S(1), 2));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	cr_assert_eq(karst_mem_query(b->mem, b->wc.imm, &(struct karst_mr_attr){0}), 0);
	expect_wc(b, 3, SUCCESS);
	bed_close(b);
}

/* The program changes a request that is under way: its own QP fails, when it is its turn. */
Test(rc_retry, request_changed_by_the_program)
{
	struct bed *b = bed_rc();
	struct karst_send_wqe *w;

	post(b, RDMA_WRITE, 1, .len = 1);
	w = bed_slot(b);
	post(b, RDMA_WRITE, 2, .len = 1);
	expect_write(b, 0, 0, 1);
	expect_write(b, 1, 0, 1);
	w->sge[0].len = 5;
	expect_taken(b, nak(b, S(0), 0));
	expect_write(b, 0, 0, 1);
	expect_none(b);
	cr_assert_eq(count(b, SQ_CORRUPT), 1);
	expect_taken(b, nak(b, S(1), 0));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, LOC_QP_OP_ERR);
	expect_state(b, ERR);
	bed_close(b);
}

/* It had arrived all the same: the acknowledgement comes before its failure counts.  Nothing
 * that was never posted may complete. */
Test(rc_retry, changed_request_is_acknowledged_after_all)
{
	struct bed *b = bed_rc();
	struct karst_send_wqe *w;

	post(b, RDMA_WRITE, 1, .len = 1);
	w = bed_slot(b);
	post(b, RDMA_WRITE, 2, .len = 1);
	expect_write(b, 0, 0, 1);
	expect_write(b, 1, 0, 1);
	w->sge[0].len = 5;
	expect_taken(b, nak(b, S(0), 0));
	expect_write(b, 0, 0, 1);
	expect_none(b);
	expect_taken(b, ack(b, S(1), 2));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_no_wc(b);
	expect_state(b, RTS);
	cr_assert_eq(karst_wq_free(&b->s->sq, 64), 64);
	post(b, RDMA_WRITE, 3, .len = 1);
	expect_write(b, 2, 0, 1);
	expect_taken(b, ack(b, S(2), 3));
	expect_wc(b, 3, SUCCESS);
	bed_close(b);
}

/* Memory that goes away under a request that must be sent again. */
Test(rc_retry, source_deregistered)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 4096, KARST_ACCESS_LOCAL_WRITE);

	post(b, RDMA_WRITE, 1, .len = 2 * MTU, .lkey = key);
	expect_write(b, 0, 0, 2);
	bed_dereg(b, key);
	expect_taken(b, nak(b, S(1), 0));
	expect_wc(b, 1, LOC_PROT_ERR);
	bed_close(b);
}

/* And under a READ that is being answered. */
Test(rc_retry, sink_deregistered)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 4096, KARST_ACCESS_LOCAL_WRITE);

	post(b, RDMA_READ, 1, .len = 2 * MTU, .lkey = key);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 256));
	bed_dereg(b, key);
	expect_taken(b, send_pkt(b, RC_READ_RESP_LAST, S(1), .pay_len = 256));
	expect_wc(b, 1, LOC_PROT_ERR);
	expect_untouched(b, 256, 256);
	bed_close(b);
}

/* (P1): PSNs are compared across their end; the default PSNs cross it, so here the other way. */
Test(rc_retry, p1_far_from_the_wrap)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.sq_psn = 0x7ffffe; /* the sign of a 24-bit number changes here */
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 5 * MTU);
	expect_write(b, 0, 0, 5);
	expect_taken(b, ack(b, S(1), 0));
	expect_taken(b, nak(b, S(3), 0));
	expect_write(b, 0, 3, 5);
	expect_taken(b, ack(b, S(4), 1));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* The program changes a READ or an atomic while the answer is on its way. */
Test(rc_retry, sink_changed_by_the_program)
{
	static const enum karst_wr_opcode ops[] = {KARST_WR_RDMA_READ, KARST_WR_ATOMIC_FAA};
	unsigned int i;

	for (i = 0; i < KARST_DIM(ops); i++) {
		struct bed *b = bed_rc();
		struct karst_send_wqe *w = bed_slot(b);

		bed_post(b, &(struct wr){.op = ops[i], .id = 1, .len = 8});
		turn(b);
		b->out_head = b->out_tail;
		if (i == 0) {
			w->sge[0].len = 9;
			expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0), .pay_len = 8));
		} else {
			w->opcode = KARST_WR_ATOMIC_CAS;
			expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(0)));
		}
		expect_wc(b, 1, LOC_QP_OP_ERR);
		expect_untouched(b, 0, 64);
		bed_close(b);
	}
}

/* (Q7): a timeout that is changed during the wait after an RNR NAK does not shorten it. */
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

/* ATOMIC WRITE whose source goes away before it can be sent again. */
Test(rc_retry, atomic_write_source_deregistered)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 64, 0);

	post(b, ATOMIC_WRITE, 1, .len = 8, .lkey = key);
	expect_pkt(b, RC_ATOMIC_WRITE, S(0));
	bed_dereg(b, key);
	expect_taken(b, nak(b, S(0), 0));
	expect_wc(b, 1, LOC_PROT_ERR);
	bed_close(b);
}
