/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* End-to-end credits, on both sides (Q9). */
#include "harness.h"

/* (Q9), written down independently from the rule. */
static const uint32_t credits[31] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256,
	384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

static void
ack_credits(struct bed *b, uint32_t psn, uint32_t code, uint32_t msn)
{
	expect_taken(b, send_pkt(b, RC_ACK, psn, .aeth = code << 24 | msn));
}

/* (Q9): LSN = MSN + credits; requests up to it go out. */
Test(credits, q9_limit)
{
	struct bed *b = bed_rc();
	uint32_t i;

	post(b, SEND, 0, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	ack_credits(b, S(0), 3, 1);
	expect_wc(b, 0, SUCCESS);
	for (i = 1; i <= 5; i++)
		post(b, SEND, i, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(1));
	expect_pkt(b, RC_SEND_ONLY, S(2));
	expect_pkt(b, RC_SEND_ONLY, S(3));
	expect_none(b);
	ack_credits(b, S(1), 3, 2); /* one request executed, one receive posted at the peer: one
				     * more may go */
	expect_pkt(b, RC_SEND_ONLY, S(4));
	expect_none(b);
	ack_credits(b, S(3), 0x1f, 4); /* no limit from here on */
	expect_pkt(b, RC_SEND_ONLY, S(5));
	bed_forget(b);
	bed_close(b);
}

/* (Q9): without credit one message may go as a probe, when nothing else is outstanding. */
Test(credits, q9_probe)
{
	struct bed *b = bed_rc();

	post(b, SEND, 1, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	ack_credits(b, S(0), 0, 1);
	post(b, SEND, 2, .len = 1);
	post(b, SEND, 3, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(1));
	expect_none(b);
	ack_credits(b, S(1), 0, 2);
	expect_pkt(b, RC_SEND_ONLY, S(2));
	bed_forget(b);
	bed_close(b);
}

/* (Q9, Q13): the peer counts each packet of a divided WRITE as a message. */
Test(credits, q9_divided_write)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.core.divide_writes = true;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 640);
	for (i = 0; i < 3; i++)
		expect_pkt(b, RC_WRITE_ONLY, S(i));
	ack_credits(b, S(2), 2, 3);
	expect_wc(b, 1, SUCCESS);
	for (i = 2; i < 6; i++)
		post(b, SEND, i, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(3));
	expect_pkt(b, RC_SEND_ONLY, S(4));
	expect_none(b);
	bed_forget(b);
	bed_close(b);
}

/* (Q9): READ, WRITE and atomics take no receive request and need no credit. */
Test(credits, q9_only_what_takes_a_receive)
{
	struct bed *b = bed_rc();

	post(b, SEND, 1, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	ack_credits(b, S(0), 0, 1);
	post(b, RDMA_WRITE, 2, .len = 1);
	post(b, RDMA_READ, 3, .len = 1);
	post(b, ATOMIC_FAA, 4);
	post(b, RDMA_WRITE_WITH_IMM, 5, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	expect_pkt(b, RC_READ_REQUEST, S(2));
	expect_pkt(b, RC_FETCH_ADD, S(3));
	expect_none(b);
	bed_forget(b);
	bed_close(b);
}

/* (Q9): new credits come with a repeated acknowledgement, too. */
Test(credits, q9_repeated_acknowledgement)
{
	struct bed *b = bed_rc();

	post(b, SEND, 1, .len = 1);
	post(b, RDMA_READ, 2, .len = 1);
	post(b, SEND, 3, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_pkt(b, RC_READ_REQUEST, S(1));
	expect_pkt(b, RC_SEND_ONLY, S(2));
	ack_credits(b, S(0), 2, 1);
	post(b, SEND, 4, .len = 1);
	expect_none(b);
	expect_drop(b, GHOST_ACK, send_pkt(b, RC_ACK, S(0), .aeth = 0x04000001));
	expect_pkt(b, RC_SEND_ONLY, S(3));
	bed_forget(b);
	bed_close(b);
}

/* (Q9): and with the AETH of READ and atomic responses. */
Test(credits, q9_with_responses)
{
	struct bed *b = bed_rc();

	post(b, SEND, 1, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	ack_credits(b, S(0), 0, 1);
	post(b, RDMA_READ, 2, .len = 1);
	post(b, ATOMIC_FAA, 3);
	post(b, RDMA_READ, 4, .len = 1);
	post(b, SEND, 5, .len = 1);
	post(b, SEND, 6, .len = 1);
	expect_pkt(b, RC_READ_REQUEST, S(1));
	expect_pkt(b, RC_FETCH_ADD, S(2));
	expect_pkt(b, RC_READ_REQUEST, S(3));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(1), .pay_len = 1, .aeth = 0x03000002));
	expect_pkt(b, RC_SEND_ONLY, S(4));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(2), .aeth = 0x03000003));
	expect_pkt(b, RC_SEND_ONLY, S(5));
	bed_forget(b);
	bed_close(b);
}

/* (Q9): the code that this side sends is the largest one that is not above what is posted. */
Test(credits, q9_advertised)
{
	struct setup s = setup_of(KARST_QPT_RC);
	uint32_t posted = 0, psn = 0;
	struct bed *b;

	s.qp.credits = true;
	b = bed_open(&s);
	for (posted = 0; posted <= 64; posted++) {
		uint32_t code = 0, i;

		for (i = 0; i < KARST_DIM(credits); i++)
			if (credits[i] <= posted)
				code = i;
		expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(psn), .ackreq = true));
		expect_aeth(b, R(psn), (uint8_t)code, psn + 1);
		psn++;
		if (posted < 64)
			post_recv(b, posted, 0, 1);
	}
	/* each receive that is taken leaves one less */
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(psn), .ackreq = true));
	expect_aeth(b, R(psn), 11, psn + 1);
	expect_recv(b, 0, SUCCESS);
	/* a READ response carries it, too */
	psn++;
	expect_taken(
		b, send_pkt(b, RC_READ_REQUEST, R(psn), .va = VA, .rkey = b->key, .dma_len = 8));
	cr_assert_eq(expect_pkt(b, RC_READ_RESP_ONLY, R(psn))->aeth, 11u << 24 | (psn + 1));
	bed_close(b);
}

/* (Q9): a shared receive queue advertises no credits. */
Test(credits, q9_shared_queue)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.qp.credits = true;
	s.srq_wr = 8;
	b = bed_open(&s);
	post_recv(b, 1, 0, 4);
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_ack(b, R(0), 1);
	bed_close(b);
}
