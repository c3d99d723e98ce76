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
