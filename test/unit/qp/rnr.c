/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Receiver not ready, on both sides (Q7, R8). */
#include "harness.h"

/* (Q7), written down independently from the rule: microseconds. */
static const uint32_t rnr_us[32] = {655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640,
	960, 1280, 1920, 2560, 3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920,
	122880, 163840, 245760, 327680, 491520};

static enum karst_drop
rnr_nak(struct bed *b, uint32_t psn, uint32_t code)
{
	return send_pkt(b, RC_ACK, psn, .aeth = (0x20u | code) << 24);
}

/* (Q7): with each code the requester waits for its time, not less and at most two ticks of the
 * wheel more. */
Test(rnr, q7_every_code)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t code;

	s.attr.rnr_retry = 7;
	b = bed_open(&s);
	post(b, SEND, 1, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	for (code = 0; code < 32; code++) {
		expect_taken(b, rnr_nak(b, S(0), code));
		expect_none(b);
		advance_time(b, rnr_us[code] * US - 1);
		expect_none(b);
		advance_time(b, 2 * KARST_WHEEL_TICK_NS + 1);
		expect_pkt(b, RC_SEND_ONLY, S(0));
	}
	cr_assert_eq(count(b, RNR_NAK_RECEIVED), 32);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (Q7): rnr_retry retries, then the QP fails. */
Test(rnr, q7_exhausted)
{
	struct bed *b = bed_rc();
	unsigned int i;

	post(b, SEND, 1, .len = 1);
	post(b, SEND, 2, .len = 1);
	for (i = 0; i < 3; i++) {
		expect_pkt(b, RC_SEND_ONLY, S(0));
		expect_pkt(b, RC_SEND_ONLY, S(1));
		expect_no_wc(b);
		expect_taken(b, rnr_nak(b, S(0), 1));
		advance_time(b, 20 * US);
	}
	expect_wc(b, 1, RNR_RETRY_EXC_ERR);
	cr_assert_eq(b->wc.syndrome, 0x21);
	expect_wc(b, 2, WR_FLUSH_ERR);
	expect_state(b, ERR);
	bed_close(b);
}

Test(rnr, q7_no_retries)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.rnr_retry = 0;
	b = bed_open(&s);
	post(b, SEND, 1, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_taken(b, rnr_nak(b, S(0), 1));
	expect_wc(b, 1, RNR_RETRY_EXC_ERR);
	bed_close(b);
}

/* (Q7): 7 means unlimited. */
Test(rnr, q7_for_ever)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	unsigned int i;

	s.attr.rnr_retry = 7;
	b = bed_open(&s);
	post(b, SEND, 1, .len = 1);
	for (i = 0; i < 100; i++) {
		expect_pkt(b, RC_SEND_ONLY, S(0));
		expect_taken(b, rnr_nak(b, S(0), 1));
		advance_time(b, 20 * US);
	}
	expect_state(b, RTS);
	bed_forget(b);
	bed_close(b);
}

/* (Q7, Q3): an RNR NAK acknowledges what is before it, which restores the retry count. */
Test(rnr, q7_acknowledges_earlier_and_refills)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.attr.rnr_retry = 1;
	b = bed_open(&s);
	for (i = 0; i < 4; i++)
		post(b, SEND, i, .len = 1);
	turn(b);
	for (i = 0; i < 4; i++) {
		b->out_head = b->out_tail;
		expect_taken(b, rnr_nak(b, S(i), 1));
		if (i != 0)
			expect_wc(b, i - 1, SUCCESS);
		advance_time(b, 20 * US);
		expect_pkt(b, RC_SEND_ONLY, S(i));
	}
	bed_forget(b);
	bed_close(b);
}

/* (Q7): nothing is sent during the wait: no new request, no retransmission for a NAK. */
Test(rnr, q7_silence)
{
	struct bed *b = bed_rc();

	post(b, SEND, 1, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_taken(b, rnr_nak(b, S(0), 20)); /* 10.24 ms: longer than the timeout */
	post(b, SEND, 2, .len = 1);
	expect_none(b);
	expect_taken(b, rnr_nak(b, S(0), 1)); /* a duplicate of the NAK neither shortens the wait
					       * nor uses a retry */
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x60000000));
	expect_none(b);
	advance_time(b, 10 * MS);
	expect_none(b);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	advance_time(b, MS);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_pkt(b, RC_SEND_ONLY, S(1));
	cr_assert_eq(count(b, RNR_NAK_RECEIVED), 1);
	bed_forget(b);
	bed_close(b);
}

/* (Q7): the NAK is older than a retransmission, which has been executed. */
Test(rnr, q7_the_wait_ends_with_its_request)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);

	post(b, SEND, 1, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	advance_time(b, 2 * (4096ull << s.attr.timeout));
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_taken(b, rnr_nak(b, S(0), 0)); /* 655.36 ms */
	post(b, SEND, 2, .len = 1);
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	expect_pkt(b, RC_SEND_ONLY, S(1));
	/* its timer is like any other */
	advance_time(b, 2 * (4096ull << s.attr.timeout));
	expect_pkt(b, RC_SEND_ONLY, S(1));
	expect_taken(b, send_pkt(b, RC_ACK, S(1), .aeth = 0x1f000002));
	expect_wc(b, 2, SUCCESS);
	bed_close(b);
}

/* (Q7, Q6): after the wait the acknowledgement timer starts from the beginning. */
Test(rnr, q7_then_timeout)
{
	struct bed *b = bed_rc();

	post(b, SEND, 1, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_taken(b, rnr_nak(b, S(0), 1));
	advance_time(b, 20 * US);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	advance_time(b, 4 * (4096ull << 10));
	expect_pkt(b, RC_SEND_ONLY, S(0));
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1);
	bed_forget(b);
	bed_close(b);
}

/* (Q6): a peer that answers "not ready" is alive; timeouts between such answers do not add up. */
Test(rnr, q6_nak_refills_retries)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	unsigned int i;

	s.attr.retry_cnt = 1;
	s.attr.rnr_retry = 7;
	b = bed_open(&s);
	post(b, SEND, 1, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	for (i = 0; i < 4; i++) {
		/* lost; then sent again, and answered by an RNR NAK */
		advance_time(b, 2 * (4096ull << s.attr.timeout));
		expect_pkt(b, RC_SEND_ONLY, S(0));
		expect_taken(b, rnr_nak(b, S(0), 1));
		advance_time(b, 20 * US);
		expect_pkt(b, RC_SEND_ONLY, S(0));
	}
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (Q6): an acknowledgement between the end of the wait and the next packet: a timer keeps
 * running. */
Test(rnr, q6_clock_after_the_wait)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.rnr_retry = 7;
	b = bed_open(&s);
	post(b, SEND, 1, .len = 1);
	post(b, SEND, 2, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_pkt(b, RC_SEND_ONLY, S(1));
	expect_taken(b, rnr_nak(b, S(0), 1));
	b->core->now_ns += 20 * US;
	cr_assert_eq(karst_core_expire(b->core, 8), 1);
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	expect_pkt(b, RC_SEND_ONLY, S(1));
	/* it is lost */
	advance_time(b, 4 * (4096ull << s.attr.timeout));
	expect_pkt(b, RC_SEND_ONLY, S(1));
	expect_taken(b, send_pkt(b, RC_ACK, S(1), .aeth = 0x1f000002));
	expect_wc(b, 2, SUCCESS);
	bed_close(b);
}

/* (R8): a SEND without a receive request: NAK with the timer and its PSN, nothing executed. */
Test(rnr, r8_send)
{
	struct bed *b = bed_rc();

	expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4, .ackreq = true));
	/* later packets are dropped until the retry, and cause no other NAK */
	expect_drop(b, RNR, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true));
	expect_rnr(b, R(0), 12, 0);
	expect_drop(b, RNR, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true));
	expect_none(b);
	/* still no receive request: another NAK */
	expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4, .ackreq = true));
	expect_rnr(b, R(0), 12, 0);
	post_recv(b, 1, 0, 64);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4, .ackreq = true));
	expect_ack(b, R(0), 1);
	expect_recv(b, 1, SUCCESS);
	cr_assert_eq(count(b, RNR_NAK_SENT), 2);
	cr_assert_eq(count(b, SEQ_NAK_SENT), 0);
	bed_close(b);
}

/* (R8): a SEND First needs a receive request when it starts, not when it ends. */
Test(rnr, r8_send_first)
{
	struct bed *b = bed_rc();

	expect_drop(b, RNR, send_pkt(b, RC_SEND_FIRST, R(0), .pay_len = 256));
	expect_drop(b, RNR, send_pkt(b, RC_SEND_LAST, R(1), .pay_len = 1, .ackreq = true));
	expect_rnr(b, R(0), 12, 0);
	post_recv(b, 1, 0, 512);
	expect_taken(b, send_pkt(b, RC_SEND_FIRST, R(0), .pay_len = 256));
	expect_taken(b,
		send_pkt(b, RC_SEND_LAST, R(1), .pay = b->pattern + 256, .pay_len = 1,
			.ackreq = true));
	expect_ack(b, R(1), 1);
	expect_recv(b, 1, SUCCESS);
	expect_mem(b, 0, 0, 257);
	bed_close(b);
}

/* (R8): WRITE with immediate needs one when it ends; the packet with the immediate waits as a
 * whole. */
Test(rnr, r8_write_with_immediate)
{
	struct bed *b = bed_rc();

	expect_taken(b,
		send_pkt(b, RC_WRITE_FIRST, R(0), .va = VA, .rkey = b->key, .dma_len = 300,
			.pay_len = 256));
	expect_drop(b, RNR,
		send_pkt(b, RC_WRITE_LAST_IMM, R(1), .imm = 5, .pay = b->pattern + 256,
			.pay_len = 44, .ackreq = true));
	expect_rnr(b, R(1), 12, 0);
	expect_mem(b, 0, 0, 256);
	expect_untouched(b, 256, 100);
	post_recv(b, 1, 4096, 0);
	expect_taken(b,
		send_pkt(b, RC_WRITE_LAST_IMM, R(1), .imm = 5, .pay = b->pattern + 256,
			.pay_len = 44, .ackreq = true));
	expect_ack(b, R(1), 1);
	expect_recv(b, 1, SUCCESS);
	cr_assert_eq(b->wc.opcode, KARST_WC_RECV_RDMA_WITH_IMM);
	cr_assert_eq(b->wc.byte_len, 300);
	expect_mem(b, 0, 0, 300);
	/* Only */
	expect_drop(b, RNR,
		send_pkt(b, RC_WRITE_ONLY_IMM, R(2), .va = VA + 1000, .rkey = b->key, .dma_len = 4,
			.pay_len = 4));
	expect_rnr(b, R(2), 12, 1);
	expect_untouched(b, 1000, 4);
	bed_close(b);
}

/* (R8, P3): a duplicate is answered during the wait, and not executed. */
Test(rnr, r8_duplicate_during_the_wait)
{
	struct bed *b = bed_rc();

	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_ack(b, R(0), 1);
	expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(1), .pay_len = 4));
	expect_rnr(b, R(1), 12, 1);
	expect_drop(b, DUPLICATE, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_ack(b, R(0), 1);
	bed_close(b);
}

/* (R11): an RNR NAK that is not needed any more is replaced by the ACK that it stood for. */
Test(rnr, r11_nak_taken_back)
{
	struct bed *b = bed_rc();

	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_drop(b, RNR, send_pkt(b, RC_SEND_FIRST, R(1), .pay_len = 256));
	post_recv(b, 1, 0, 1024);
	expect_taken(b, send_pkt(b, RC_SEND_FIRST, R(1), .pay_len = 256));
	expect_ack(b, R(1), 1);
	expect_taken(b, send_pkt(b, RC_SEND_LAST, R(2), .pay_len = 1));
	expect_recv(b, 1, SUCCESS);
	bed_close(b);
}

/* (R2, R8, R11): what was dropped because of an RNR NAK is requested by a sequence NAK if the RNR
 * NAK is not needed any more: the peer does not go back for a NAK that was not sent. */
Test(rnr, r2_nak_taken_back_with_a_gap)
{
	struct bed *b = bed_rc();

	expect_drop(b, RNR, send_pkt(b, RC_SEND_FIRST, R(0), .pay_len = 256));
	expect_drop(b, RNR, send_pkt(b, RC_SEND_LAST, R(1), .pay_len = 1, .ackreq = true));
	/* copies of the network's, the first of which has no receive request either */
	expect_drop(b, RNR, send_pkt(b, RC_SEND_FIRST, R(0), .pay_len = 256));
	post_recv(b, 1, 0, 1024);
	expect_taken(b, send_pkt(b, RC_SEND_FIRST, R(0), .pay_len = 256));
	expect_nak(b, R(1), PSN_SEQ, 0);
	expect_taken(b, send_pkt(b, RC_SEND_LAST, R(1), .pay_len = 1, .ackreq = true));
	expect_ack(b, R(1), 1);
	expect_recv(b, 1, SUCCESS);
	/* nothing is missing if that has arrived, too */
	expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(2), .pay_len = 4));
	expect_drop(b, RNR, send_pkt(b, RC_WRITE_ONLY, R(3), .ackreq = true));
	post_recv(b, 2, 0, 64);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(2), .pay_len = 4));
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(3), .ackreq = true));
	expect_ack(b, R(3), 3);
	expect_recv(b, 2, SUCCESS);
	/* an RNR NAK that was sent makes the peer go back */
	expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(4), .pay_len = 4));
	expect_drop(b, RNR, send_pkt(b, RC_WRITE_ONLY, R(5), .ackreq = true));
	expect_rnr(b, R(4), 12, 3);
	post_recv(b, 3, 0, 64);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(4), .pay_len = 4));
	expect_none(b);
	expect_recv(b, 3, SUCCESS);
	bed_close(b);
}

/* (R8): min_rnr_timer may be changed, and the next NAK carries it. */
Test(rnr, r8_timer_changed)
{
	struct karst_core_qp_attr attr = {.min_rnr_timer = 31};
	struct bed *b = bed_rc();

	cr_assert_eq(bed_modify(b, &attr, KARST_QP_MIN_RNR_TIMER), 0);
	expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(0)));
	expect_rnr(b, R(0), 31, 0);
	bed_close(b);
}
