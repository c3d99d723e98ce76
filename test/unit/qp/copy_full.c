/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Packets for which there is no room behind one that waits for a copy. */
#include "copy_bed.h"
#include "repeat_bed.h"

/* Packets of a READ whose responses fill the room: one is parked, and the others wait behind it. */
#define FULL (KARST_COPY_BACKLOG + 1)

static struct bed *
open_full(uint32_t repeat_frames)
{
	struct setup s = setup_of(KARST_QPT_RC);

	s.attr.timeout = 0;
	if (repeat_frames != 0)
		setup_repeat(&s, repeat_frames);
	return open_far_with(&s);
}

static void
close_full(struct bed *b)
{
	close_far(b);
	free(repeat_mem);
}

/* Posts a READ of @n packets into far memory. */
static void
read_far(struct bed *b, uint32_t n)
{
	const struct karst_sge sge = FAR_SGE(0, n * MTU);

	post(b, RDMA_READ, 1, .sge = &sge, .nsge = 1);
	cr_assert_eq(expect_pkt(b, RC_READ_REQUEST, S(0))->dma_len, n * MTU);
}

/* Sends response @i of a request for the packets from @first to @last.  @return why it was
 * dropped. */
static enum karst_drop
respond(struct bed *b, uint32_t i, uint32_t first, uint32_t last)
{
	uint8_t opcode = first == last ? KARST_RC_READ_RESP_ONLY
		: i == first           ? KARST_RC_READ_RESP_FIRST
		: i == last            ? KARST_RC_READ_RESP_LAST
				       : KARST_RC_READ_RESP_MIDDLE;

	return bed_rx(b,
		&(struct karst_ib_hdrs){.psn = S(i),
			.opcode = opcode,
			.aeth = 0x1f000000,
			.pay = b->pattern + i * MTU,
			.pay_len = MTU});
}

/* Fills the room with the first responses of a READ of @n packets. */
static void
fill(struct bed *b, uint32_t n)
{
	uint32_t i;

	read_far(b, n);
	for (i = 0; i < FULL; i++)
		expect_taken(b, respond(b, i, 0, n - 1));
}

/* --- requests (R2, X4) --- */

/* R2: a NAK has asked for the expected request, which is then dropped for lack of room: another NAK
 * asks for it. */
Test(copy, r2_expected_request_without_room)
{
	struct bed *b = open_full(0);

	expect_drop(b, SEQUENCE, send_write(b, R(1), 1024, 8));
	expect_nak(b, R(0), PSN_SEQ, 0);
	fill(b, FULL);
	expect_drop(b, COPY_FULL, send_write(b, R(0), 1024, 8));
	expect_drop(b, COPY_FULL, send_write(b, R(1), 1024, 8));
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	expect_nak(b, R(0), PSN_SEQ, 0);
	expect_taken(b, send_write(b, R(0), 1024, 8));
	expect_taken(b, send_write(b, R(1), 1024, 8));
	expect_ack(b, R(1), 2);
	expect_none(b);
	close_full(b);
}

/* R2: no other NAK follows if only later requests were dropped: the peer is going back. */
Test(copy, r2_later_requests_without_room)
{
	struct bed *b = open_full(0);

	expect_drop(b, SEQUENCE, send_write(b, R(1), 1024, 8));
	expect_nak(b, R(0), PSN_SEQ, 0);
	fill(b, FULL);
	expect_drop(b, COPY_FULL, send_write(b, R(2), 1024, 8));
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	expect_none(b);
	close_full(b);
}

/* R2, R8: the peer has waited after an RNR NAK, and its retry is dropped. */
Test(copy, r8_retry_without_room)
{
	struct bed *b = open_full(0);

	expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4, .ackreq = true));
	expect_rnr(b, R(0), 12, 0);
	post_recv(b, 2, 0, 64);
	fill(b, FULL);
	expect_drop(b, COPY_FULL, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4, .ackreq = true));
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	expect_nak(b, R(0), PSN_SEQ, 0);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4, .ackreq = true));
	expect_ack(b, R(0), 1);
	expect_recv(b, 2, SUCCESS);
	close_full(b);
}

/* R8: requests behind the one that the peer waits with are dropped: it sends them again anyway. */
Test(copy, r8_later_requests_without_room)
{
	struct bed *b = open_full(0);

	expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4, .ackreq = true));
	expect_rnr(b, R(0), 12, 0);
	fill(b, FULL);
	expect_drop(b, COPY_FULL, send_write(b, R(1), 1024, 8));
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	expect_none(b);
	close_full(b);
}

/* X4: the expected request is dropped after a SACK has reported that something was. */
Test(copy, x4_expected_request_without_room)
{
	struct bed *b = open_full(16);

	expect_drop(b, HELD_FULL, send_write(b, R(WINDOW + 1), 1024, 8));
	expect_sack(b, R(0), 1);
	fill(b, FULL);
	expect_drop(b, COPY_FULL, send_write(b, R(0), 1024, 8));
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	expect_sack(b, R(0), 1);
	expect_taken(b, send_write(b, R(0), 1024, 8));
	expect_ack(b, R(0), 1);
	close_full(b);
}

/* X4, X6: the same after an RNR NAK. */
Test(copy, x6_retry_without_room)
{
	struct bed *b = open_full(16);

	expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4, .ackreq = true));
	expect_rnr(b, R(0), 12, 0);
	post_recv(b, 2, 0, 64);
	fill(b, FULL);
	expect_drop(b, COPY_FULL, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4, .ackreq = true));
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	expect_sack(b, R(0), 1);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4, .ackreq = true));
	expect_ack(b, R(0), 1);
	expect_recv(b, 2, SUCCESS);
	close_full(b);
}

/* X4: of two requests that had no room, with a held one between them, each is reported when it is
 * the expected one. */
Test(copy, x4_two_without_room)
{
	struct bed *b = open_full(16);

	fill(b, FULL);
	expect_drop(b, COPY_FULL, send_write(b, R(0), 1024, 8));
	expect_drop(b, COPY_FULL, send_write(b, R(2), 1024, 8));
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	expect_sack(b, R(0), 1);
	expect_taken(b, send_write(b, R(1), 1024, 8));
	expect_sack(b, R(0), 1 | 1 << 1);
	expect_taken(b, send_write(b, R(0), 1024, 8));
	expect_sack(b, R(2), 1);
	expect_taken(b, send_write(b, R(2), 1024, 8));
	expect_ack(b, R(2), 3);
	close_full(b);
}

/* --- answers (Q3, Q5): without a timeout, nothing else shows that they are missing --- */

/* Fills the room with requests, of which the first is parked. */
static void
fill_requests(struct bed *b)
{
	uint32_t i;

	expect_taken(b, write_far(b, 0, 0, 64));
	for (i = 1; i < FULL; i++)
		expect_taken(b, send_write(b, R(i), 1024, 8));
}

/* Q5: the last responses of a READ are dropped: only they are requested again. */
Test(copy, q5_responses_without_room)
{
	struct bed *b = open_full(0);

	fill(b, FULL + 2);
	expect_drop(b, COPY_FULL, respond(b, FULL, 0, FULL + 1));
	expect_drop(b, COPY_FULL, respond(b, FULL + 1, 0, FULL + 1));
	copy_all(b);
	cr_assert_eq(expect_pkt(b, RC_READ_REQUEST, S(FULL))->dma_len, 2 * MTU);
	expect_taken(b, respond(b, FULL, FULL, FULL + 1));
	expect_taken(b, respond(b, FULL + 1, FULL, FULL + 1));
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	expect_mem(b, 0, 0, (FULL + 2) * MTU);
	expect_none(b);
	close_full(b);
}

/* Q3: the ACK of the last request is dropped: the request is sent again, and the peer repeats the
 * ACK. */
Test(copy, q3_ack_without_room)
{
	struct bed *b = open_full(0);

	fill(b, FULL);
	post(b, RDMA_WRITE, 2, .len = 8);
	expect_pkt(b, RC_WRITE_ONLY, S(FULL));
	expect_drop(b, COPY_FULL, send_ack(b, S(FULL), 2));
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	expect_pkt(b, RC_WRITE_ONLY, S(FULL));
	ack(b, S(FULL), 2);
	expect_wc(b, 2, SUCCESS);
	expect_none(b);
	close_full(b);
}

/* Q3: the same for the answer of an atomic, behind requests. */
Test(copy, q3_atomic_ack_without_room)
{
	struct bed *b = open_full(0);

	post(b, ATOMIC_FAA, 1);
	expect_pkt(b, RC_FETCH_ADD, S(0));
	fill_requests(b);
	expect_drop(b, COPY_FULL, send_pkt(b, RC_ATOMIC_ACK, S(0), .aeth = 0x1f000001));
	copy_all(b);
	expect_ack(b, R(FULL - 1), FULL);
	expect_pkt(b, RC_FETCH_ADD, S(0));
	expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(0), .aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	expect_none(b);
	close_full(b);
}

/* Q3: nothing is sent again if a later answer, which had room, has brought what was dropped. */
Test(copy, q3_later_answer_had_room)
{
	struct bed *b = open_full(0);
	uint32_t i;

	post(b, RDMA_WRITE, 1, .len = 8);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_taken(b, write_far(b, 0, 0, 64));
	expect_taken(b, send_ack(b, S(0), 1));
	for (i = 1; i < KARST_COPY_BACKLOG; i++)
		expect_taken(b, send_write(b, R(i), 1024, 8));
	expect_drop(b, COPY_FULL, send_ack(b, S(0), 1));
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	expect_ack(b, R(i - 1), i);
	expect_none(b);
	close_full(b);
}

/* Q4: the requester has gone back already, and the answer to what it has sent again is dropped. */
Test(copy, q4_answer_of_a_round_without_room)
{
	struct bed *b = open_full(0);

	post(b, RDMA_WRITE, 1, .len = 8);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_taken(b, send_nak(b, S(0), KARST_NAK_PSN_SEQ));
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	fill_requests(b);
	expect_drop(b, COPY_FULL, send_ack(b, S(0), 1));
	copy_all(b);
	expect_ack(b, R(FULL - 1), FULL);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	expect_none(b);
	close_full(b);
}

/* X4, X8: the peer has no room for the oldest request, and its report of that is dropped. */
Test(copy, x8_sack_without_room)
{
	struct bed *b = open_full(16);

	post(b, RDMA_WRITE, 1, .len = 8);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	fill_requests(b);
	expect_drop(b, COPY_FULL, send_sack(b, S(0), 1));
	copy_all(b);
	expect_ack(b, R(FULL - 1), FULL);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	expect_none(b);
	close_full(b);
}

/* R3 to R5: duplicates are dropped, which the peer sends because it has not got the answers: what
 * they ask for is answered. */
Test(copy, r5_duplicates_without_room)
{
	struct bed *b = open_full(0);
	const struct karst_pkt *p;
	uint32_t i;

	expect_taken(b, send_write(b, R(0), 1024, 8));
	for (i = 0; i < 2; i++) {
		enum karst_drop drop = send_pkt(b, RC_READ_REQUEST, R(1), .va = VA + 4096,
			.rkey = b->key, .dma_len = 3 * MTU, .ackreq = true);

		cr_assert_eq(drop, i == 0 ? KARST_DROP_NONE : KARST_DROP_COPY_FULL);
		drop = send_write(b, R(4), 2048, 8);
		cr_assert_eq(drop, i == 0 ? KARST_DROP_NONE : KARST_DROP_COPY_FULL);
		if (i == 0) {
			expect_pkt(b, RC_READ_RESP_FIRST, R(1));
			expect_pkt(b, RC_READ_RESP_MIDDLE, R(2));
			expect_pkt(b, RC_READ_RESP_LAST, R(3));
			expect_ack(b, R(4), 3);
			fill(b, FULL);
		}
	}
	expect_drop(b, COPY_FULL,
		send_pkt(b, RC_READ_REQUEST, R(2), .va = VA + 4096 + MTU, .rkey = b->key,
			.dma_len = 2 * MTU, .ackreq = true));
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	for (i = 0; i < 3; i++) {
		p = expect_pkt(b, RC_READ_RESP_MIDDLE - (i == 0) + (i == 2), R(1 + i));
		expect_data(b, p, 4096 + i * MTU, MTU);
	}
	expect_ack(b, R(4), 3);
	expect_none(b);
	close_full(b);
}

/* R3: the duplicate of a WRITE, to a peer that knows SACKs and to one that does not. */
Test(copy, r3_duplicate_without_room)
{
	uint32_t frames;

	for (frames = 0; frames <= 16; frames += 16) {
		struct bed *b = open_full(frames);

		expect_taken(b, send_write(b, R(0), 1024, 8));
		expect_ack(b, R(0), 1);
		fill(b, FULL);
		expect_drop(b, COPY_FULL, send_write(b, R(0), 1024, 8));
		copy_all(b);
		expect_wc(b, 1, SUCCESS);
		expect_ack(b, R(0), 1);
		expect_none(b);
		close_full(b);
	}
}

/* X4: the expected request is dropped, sent again and dropped again: each report of that is acted
 * on. */
Test(copy, x4_reported_again)
{
	struct bed *b = open_full(16);

	post(b, RDMA_WRITE, 1, .len = 8);
	post(b, RDMA_WRITE, 2, .len = 8);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	expect_taken(b, send_sack(b, S(0), 1));
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_none(b);
	expect_taken(b, send_sack(b, S(0), 1));
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_none(b);
	bed_forget(b);
	close_full(b);
}

/* --- no copy at all --- */

/* There may be a copy, and some time has passed. */
static void
feed_later(struct bed *b)
{
	b->core->now_ns += 2 * MS;
	karst_core_feed(b->core, 1);
}

/* R2: the expected request gets no copy, and nothing follows it: it is asked for when there may be
 * a copy. */
Test(copy, r2_expected_request_without_copy)
{
	struct bed *b = open_full(0);

	driver.full = true;
	expect_drop(b, COPY_FULL, write_far(b, 0, 0, 64));
	visit_all(b);
	expect_none(b);
	driver.full = false;
	feed_later(b);
	expect_nak(b, R(0), PSN_SEQ, 0);
	expect_taken(b, write_far(b, 0, 0, 64));
	copy_all(b);
	expect_ack(b, R(0), 1);
	expect_mem(b, 0, 0, 64);
	expect_none(b);
	close_full(b);
}

/* R2: nothing is asked for if it has come meanwhile. */
Test(copy, r2_came_again_before_there_was_a_copy)
{
	struct bed *b = open_full(0);

	driver.full = true;
	expect_drop(b, COPY_FULL, write_far(b, 0, 0, 64));
	visit_all(b);
	expect_none(b);
	expect_taken(b, send_write(b, R(0), 1024, 8));
	expect_ack(b, R(0), 1);
	feed_later(b);
	expect_none(b);
	close_full(b);
}

/* Q5: the last response gets no copy: it is requested again when there may be one. */
Test(copy, q5_response_without_copy)
{
	struct bed *b = open_full(0);

	read_far(b, 2);
	expect_taken(b, respond(b, 0, 0, 1));
	copy_all(b);
	driver.full = true;
	expect_drop(b, COPY_FULL, respond(b, 1, 0, 1));
	visit_all(b);
	expect_none(b);
	driver.full = false;
	feed_later(b);
	cr_assert_eq(expect_pkt(b, RC_READ_REQUEST, S(1))->dma_len, MTU);
	expect_taken(b, respond(b, 1, 1, 1));
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	expect_mem(b, 0, 0, 2 * MTU);
	expect_none(b);
	close_full(b);
}

/* X4: the same with selective repeat. */
Test(copy, x4_expected_request_without_copy)
{
	struct bed *b = open_full(16);

	driver.full = true;
	expect_drop(b, COPY_FULL, write_far(b, 0, 0, 64));
	visit_all(b);
	expect_none(b);
	driver.full = false;
	feed_later(b);
	expect_sack(b, R(0), 1);
	expect_taken(b, write_far(b, 0, 0, 64));
	copy_all(b);
	expect_ack(b, R(0), 1);
	close_full(b);
}

/* X5: it was held, so it is there when there may be a copy. */
Test(copy, x5_held_request_without_copy)
{
	struct bed *b = open_full(16);

	expect_taken(b, write_far(b, 1, 0, 64));
	expect_sack(b, R(0), 2);
	driver.full = true;
	expect_taken(b, send_write(b, R(0), 1024, 8));
	visit_all(b);
	expect_sack(b, R(1), 0);
	feed_later(b);
	visit_all(b);
	expect_none(b);
	driver.full = false;
	feed_later(b);
	turn(b);
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	expect_ack(b, R(1), 2);
	expect_none(b);
	close_full(b);
}
