/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The RC responder: requests that are expected, ahead, or duplicates (R2, R3, R7, R10..R12).
 * What it refuses is in rc_responder_refuse.c, duplicates of READs and atomics in rc_replay.c,
 * receiver not ready in rnr.c.
 */
#include "harness.h"

/* (R1, R10, R11): a WRITE stores where it says, and nowhere else. */
Test(rc_responder, write)
{
	struct bed *b = bed_rc();

	expect_taken(b,
		send_pkt(b, RC_WRITE_FIRST, R(0), .va = VA + 100, .rkey = b->key, .dma_len = 600,
			.pay_len = 256));
	expect_taken(
		b, send_pkt(b, RC_WRITE_MIDDLE, R(1), .pay = b->pattern + 256, .pay_len = 256));
	expect_none(b); /* no acknowledgement was requested */
	expect_taken(b,
		send_pkt(b, RC_WRITE_LAST, R(2), .pay = b->pattern + 512, .pay_len = 88,
			.ackreq = true));
	expect_ack(b, R(2), 1);
	expect_mem(b, 100, 0, 600);
	expect_untouched(b, 0, 100);
	expect_untouched(b, 700, 300);
	cr_assert_eq(count(b, RX_REQUESTS), 1);
	bed_close(b);
}

/* A SEND goes into the oldest receive request, over its SGEs; MSN counts the SEND (R10). */
Test(rc_responder, send)
{
	struct bed *b = bed_rc();
	struct karst_sge sge[3] = {
		{VA + 10, 100, b->key}, {VA + 200, 0, b->key}, {VA + 1000, 1000, b->key}};

	post_recv_sge(b, 5, sge, 3);
	post_recv(b, 6, 8192, 256);
	expect_taken(b, send_pkt(b, RC_SEND_FIRST, R(0), .pay_len = 256));
	expect_taken(b,
		send_pkt(b, RC_SEND_LAST_IMM, R(1), .pay = b->pattern + 256, .pay_len = 3,
			.imm = 0x01020304, .ackreq = true));
	expect_ack(b, R(1), 1);
	expect_recv(b, 5, SUCCESS);
	cr_assert_eq(b->wc.opcode, KARST_WC_RECV);
	cr_assert_eq(b->wc.byte_len, 259);
	cr_assert_eq(b->wc.flags, KARST_WC_WITH_IMM);
	cr_assert_eq(b->wc.imm, 0x01020304);
	cr_assert_eq(b->wc.qpn, b->s->qpn);
	expect_mem(b, 10, 0, 100);
	expect_mem(b, 1000, 100, 159);
	expect_untouched(b, 110, 890);
	expect_untouched(b, 1159, 100);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(2), .pay_len = 256, .ackreq = true));
	expect_ack(b, R(2), 2);
	expect_recv(b, 6, SUCCESS);
	cr_assert_eq(b->wc.flags, 0);
	bed_close(b);
}

/* (W10, R12): empty SEND, SEND with immediate, WRITE, READ; keys do not matter. */
Test(rc_responder, r12_zero_length)
{
	struct bed *b = bed_rc();
	struct karst_sge none = {VA, 0, 0x666};

	post_recv_sge(b, 1, &none, 0);
	post_recv_sge(b, 2, &none, 1);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .ackreq = true));
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(1), .va = 1, .rkey = 0x666));
	expect_taken(b, send_pkt(b, RC_SEND_ONLY_IMM, R(2), .imm = 3));
	expect_taken(b, send_pkt(b, RC_READ_REQUEST, R(3), .va = 1, .rkey = 0x666));
	cr_assert_eq(expect_pkt(b, RC_READ_RESP_ONLY, R(3))->pay_len, 0);
	expect_recv(b, 1, SUCCESS);
	cr_assert_eq(b->wc.byte_len, 0);
	expect_recv(b, 2, SUCCESS);
	bed_close(b);
}

/* (R11): many requests of a burst share one ACK, with the newest PSN and MSN. */
Test(rc_responder, r11_coalescing)
{
	struct bed *b = bed_rc();

	expect_taken(b, send_write(b, R(0), 0, 4));
	expect_taken(b, send_write(b, R(1), 0, 4));
	expect_taken(b, send_write(b, R(2), 0, 4));
	expect_ack(b, R(2), 3);
	expect_none(b);
	cr_assert_eq(count(b, ACK_SENT), 1);
	bed_close(b);
}

/* (R11): an ACK does not overtake a READ response; a NAK goes behind both. */
Test(rc_responder, r11_order_of_answers)
{
	struct bed *b = bed_rc();

	expect_taken(b, send_write(b, R(0), 0, 4));
	expect_taken(
		b, send_pkt(b, RC_READ_REQUEST, R(1), .va = VA, .rkey = b->key, .dma_len = 300));
	expect_taken(b, send_write(b, R(3), 0, 4));
	expect_drop(b, SEQUENCE, send_write(b, R(5), 0, 4));
	expect_pkt(b, RC_READ_RESP_FIRST, R(1));
	expect_pkt(b, RC_READ_RESP_LAST, R(2));
	expect_nak(b, R(4), PSN_SEQ, 3);
	expect_none(b);
	bed_close(b);
}

/* (R2): one NAK per gap, with the expected PSN; no request ahead of it is executed. */
Test(rc_responder, r2_sequence_error)
{
	struct bed *b = bed_rc();

	expect_taken(b, send_write(b, R(0), 0, 4));
	expect_ack(b, R(0), 1);
	expect_drop(b, SEQUENCE, send_write(b, R(2), 4096, 4));
	expect_nak(b, R(1), PSN_SEQ, 1);
	expect_drop(b, NAKED, send_write(b, R(3), 4096, 4));
	expect_drop(b, NAKED, send_write(b, R(2), 4096, 4));
	expect_none(b);
	expect_untouched(b, 4096, 4);
	cr_assert_eq(count(b, SEQ_NAK_SENT), 1);
	cr_assert_eq(count(b, OUT_OF_SEQUENCE), 3);
	/* the expected one has arrived: the next gap gets its own NAK */
	expect_taken(b, send_write(b, R(1), 0, 4));
	expect_ack(b, R(1), 2);
	expect_drop(b, SEQUENCE, send_write(b, R(4), 4096, 4));
	expect_nak(b, R(2), PSN_SEQ, 2);
	bed_close(b);
}

/* (R2): packets that were only reordered before the NAK was sent need none. */
Test(rc_responder, r2_reordered_within_a_burst)
{
	struct bed *b = bed_rc();

	expect_drop(b, SEQUENCE, send_write(b, R(1), 4096, 4));
	expect_taken(b, send_write(b, R(0), 0, 4));
	expect_nak(b, R(1), PSN_SEQ, 1); /* R(1) itself was dropped: a NAK requests it */
	expect_taken(b, send_write(b, R(1), 4096, 4));
	expect_ack(b, R(1), 2);
	expect_drop(b, SEQUENCE, send_write(b, R(3), 0, 4));
	expect_taken(b, send_write(b, R(2), 0, 4));
	expect_taken(b, send_write(b, R(3), 0, 4));
	expect_ack(b, R(3), 4); /* nothing is missing any more */
	expect_none(b);
	bed_close(b);
}

/* (P3): PSNs in the half before the expected one are duplicates, those in the half after it are
 * ahead. */
Test(rc_responder, p3_halves)
{
	struct bed *b = bed_rc();

	expect_drop(b, DUPLICATE, send_write(b, R(-1), 4096, 4));
	expect_drop(b, DUPLICATE, send_write(b, R(-0x800000), 4096, 4));
	cr_assert_eq(count(b, DUPLICATE_REQUEST), 2);
	expect_ack(b, R(-1), 0);
	expect_drop(b, SEQUENCE, send_write(b, R(0x7fffff), 4096, 4));
	expect_nak(b, R(0), PSN_SEQ, 0);
	expect_untouched(b, 4096, 4);
	bed_close(b);
}

/* (R3): a duplicate SEND or WRITE is not executed; the newest PSN is acknowledged if AckReq is
 * set. */
Test(rc_responder, r3_duplicates)
{
	struct bed *b = bed_rc();

	post_recv(b, 1, 0, 256);
	post_recv(b, 2, 256, 256);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 8));
	expect_taken(b, send_write(b, R(1), 4096, 8));
	expect_ack(b, R(1), 2);
	expect_recv(b, 1, SUCCESS);
	memset(b->buf + 4096, 0xcc, 8);
	expect_drop(b, DUPLICATE, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 8));
	expect_none(b);
	expect_drop(b, DUPLICATE, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 8, .ackreq = true));
	expect_ack(b, R(1), 2);
	expect_drop(b, DUPLICATE, send_write(b, R(1), 4096, 8));
	expect_ack(b, R(1), 2);
	cr_assert_eq(b->buf[4096], 0xcc);
	expect_no_wc(b);
	/* and the queue still has its second receive request */
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(2), .pay_len = 8));
	expect_recv(b, 2, SUCCESS);
	bed_close(b);
}

/* (R3): also in the middle of a message, which is not disturbed. */
Test(rc_responder, r3_duplicate_within_a_message)
{
	struct bed *b = bed_rc();

	post_recv(b, 1, 0, 1024);
	expect_taken(b, send_pkt(b, RC_SEND_FIRST, R(0), .pay_len = 256));
	expect_drop(b, DUPLICATE, send_pkt(b, RC_SEND_FIRST, R(0), .pay_len = 256));
	expect_taken(b, send_pkt(b, RC_SEND_MIDDLE, R(1), .pay = b->pattern + 256, .pay_len = 256));
	expect_drop(b, DUPLICATE, send_pkt(b, RC_SEND_MIDDLE, R(1), .pay_len = 256));
	expect_taken(b, send_pkt(b, RC_SEND_LAST, R(2), .pay = b->pattern + 512, .pay_len = 8));
	expect_recv(b, 1, SUCCESS);
	expect_mem(b, 0, 0, 520);
	bed_close(b);
}

/* READ responses: split at the MTU, data and AETH where they belong (W5, W10, R10). */
Test(rc_responder, read)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;

	memcpy(b->buf + 300, b->pattern, 600);
	expect_taken(b,
		send_pkt(b, RC_READ_REQUEST, R(0), .va = VA + 300, .rkey = b->key, .dma_len = 515));
	p = expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	cr_assert_eq(p->aeth, 0x1f000001);
	expect_data(b, p, 300, 256);
	p = expect_pkt(b, RC_READ_RESP_MIDDLE, R(1));
	expect_data(b, p, 556, 256);
	p = expect_pkt(b, RC_READ_RESP_LAST, R(2));
	cr_assert_eq(p->aeth, 0x1f000001);
	expect_data(b, p, 812, 3);
	cr_assert_eq(karst_pkt_pad(p), 1);
	/* P1: the next request comes behind the responses */
	expect_taken(b, send_write(b, R(3), 0, 4));
	expect_ack(b, R(3), 2);
	cr_assert_eq(count(b, RX_READ_REQUESTS), 1);
	bed_close(b);
}

/* A READ of whole MTUs only. */
Test(rc_responder, read_of_whole_packets)
{
	struct bed *b = bed_rc();

	expect_taken(b,
		send_pkt(b, RC_READ_REQUEST, R(0), .va = VA, .rkey = b->key, .dma_len = 2 * MTU));
	cr_assert_eq(expect_pkt(b, RC_READ_RESP_FIRST, R(0))->pay_len, 256);
	cr_assert_eq(expect_pkt(b, RC_READ_RESP_LAST, R(1))->pay_len, 256);
	bed_close(b);
}

/* (R7): atomics change memory as specified and return the value before. */
Test(rc_responder, r7_atomics)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;
	uint64_t v = 41;

	memcpy(b->buf + 64, &v, 8);
	expect_taken(
		b, send_pkt(b, RC_FETCH_ADD, R(0), .va = VA + 64, .rkey = b->key, .swap_add = 2));
	expect_taken(b,
		send_pkt(b, RC_CMP_SWAP, R(1), .va = VA + 64, .rkey = b->key, .compare = 43,
			.swap_add = 7));
	expect_taken(b,
		send_pkt(b, RC_CMP_SWAP, R(2), .va = VA + 64, .rkey = b->key, .compare = 43,
			.swap_add = 9));
	p = expect_pkt(b, RC_ATOMIC_ACK, R(0));
	cr_assert_eq(karst_get_be64(p->data + p->bth_off + 16), 41);
	p = expect_pkt(b, RC_ATOMIC_ACK, R(1));
	cr_assert_eq(karst_get_be64(p->data + p->bth_off + 16), 43);
	p = expect_pkt(b, RC_ATOMIC_ACK, R(2));
	cr_assert_eq(karst_get_be64(p->data + p->bth_off + 16), 7);
	cr_assert_eq(p->aeth, 0x1f000003);
	memcpy(&v, b->buf + 64, 8);
	cr_assert_eq(v, 7);
	cr_assert_eq(count(b, RX_ATOMIC_REQUESTS), 3);
	bed_close(b);
}

/* (W4, R7): ATOMIC WRITE stores the eight bytes as they come, and is answered empty (L6). */
Test(rc_responder, atomic_write)
{
	struct bed *b = bed_rc();

	expect_taken(b,
		send_pkt(b, RC_ATOMIC_WRITE, R(0), .va = VA + 8, .rkey = b->key, .dma_len = 8,
			.pay_len = 8));
	cr_assert_eq(expect_pkt(b, RC_READ_RESP_ONLY, R(0))->pay_len, 0);
	expect_mem(b, 8, 0, 8);
	expect_drop(b, REQUEST,
		send_pkt(b, RC_ATOMIC_WRITE, R(1), .va = VA + 8, .rkey = b->key, .dma_len = 4,
			.pay_len = 4));
	expect_nak(b, R(1), INV_REQ, 1);
	bed_forget(b);
	bed_close(b);
}

/* COMM_EST: the first packet of the peer while we are not in RTS yet; one event. */
Test(rc_responder, communication_established)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.state = KARST_QPS_RTR;
	b = bed_open(&s);
	expect_taken(b, send_write(b, R(0), 0, 4));
	expect_event(b, COMM_EST);
	expect_ack(b, R(0), 1);
	expect_taken(b, send_write(b, R(1), 0, 4));
	expect_ack(b, R(1), 2);
	bed_close(b);
}

Test(rc_responder, no_communication_event_in_rts)
{
	struct bed *b = bed_rc();

	expect_taken(b, send_write(b, R(0), 0, 4));
	expect_ack(b, R(0), 1);
	bed_close(b);
}

/* (R14): a completion is invisible until the batch is flushed, and then so is its data. */
Test(rc_responder, r14_visible_at_flush)
{
	struct bed *b = bed_rc();
	const struct karst_cqe *cqe;

	post_recv(b, 1, 0, 64);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 8));
	cr_assert_eq(karst_cq_lane_peek(&b->rlane, &cqe), 0);
	karst_core_flush(b->core);
	cr_assert_eq(karst_cq_lane_peek(&b->rlane, &cqe), 1);
	expect_mem(b, 0, 0, 8);
	expect_recv(b, 1, SUCCESS);
	bed_close(b);
}

/* (W9): SQD is a state that receives. */
Test(rc_responder, send_queue_drained_still_receives)
{
	struct bed *b = bed_rc();

	cr_assert_eq(bed_to_state(b, KARST_QPS_SQD), 0);
	expect_taken(b, send_write(b, R(0), 0, 4));
	expect_ack(b, R(0), 1);
	expect_mem(b, 0, 0, 4);
	bed_close(b);
}
