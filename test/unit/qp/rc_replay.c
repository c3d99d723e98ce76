/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Duplicate READs and atomics: the replay ring of the responder (R4, R5, R6). */
#include "harness.h"
#include "qp_priv.h"

static enum karst_drop
read_req(struct bed *b, uint32_t psn, uint32_t off, uint32_t len)
{
	return send_pkt(b, RC_READ_REQUEST, psn, .va = VA + off, .rkey = b->key, .dma_len = len);
}

static enum karst_drop
faa(struct bed *b, uint32_t psn, uint64_t add)
{
	return send_pkt(b, RC_FETCH_ADD, psn, .va = VA + 64, .rkey = b->key, .swap_add = add);
}

static uint64_t
orig_of(const struct karst_pkt *p)
{
	return karst_get_be64(p->data + p->bth_off + KARST_BTH_LEN + KARST_AETH_LEN);
}

static uint64_t
word(const struct bed *b)
{
	uint64_t v;

	memcpy(&v, b->buf + 64, 8);
	return v;
}

/* (R5): executed once; the saved value is returned again, whatever key and address the duplicate
 * has. */
Test(rc_replay, r5_duplicate_atomic)
{
	struct bed *b = bed_rc();
	uint64_t before = word(b);

	expect_taken(b, faa(b, R(0), 5));
	cr_assert_eq(orig_of(expect_pkt(b, RC_ATOMIC_ACK, R(0))), before);
	expect_taken(b, faa(b, R(0), 5));
	cr_assert_eq(orig_of(expect_pkt(b, RC_ATOMIC_ACK, R(0))), before);
	expect_taken(b, send_pkt(b, RC_FETCH_ADD, R(0), .va = 3, .rkey = 0x666));
	cr_assert_eq(orig_of(expect_pkt(b, RC_ATOMIC_ACK, R(0))), before);
	cr_assert_eq(word(b), before + 5);
	cr_assert_eq(count(b, RX_ATOMIC_REQUESTS), 1);
	cr_assert_eq(count(b, DUPLICATE_REQUEST), 2);
	bed_close(b);
}

/* (R5): no saved result of that PSN, or one of another kind: no answer. */
Test(rc_replay, r5_not_saved)
{
	struct bed *b = bed_rc();

	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0)));
	expect_taken(b, read_req(b, R(1), 0, 8));
	expect_taken(b,
		send_pkt(b, RC_ATOMIC_WRITE, R(2), .va = VA, .rkey = b->key, .dma_len = 8,
			.pay_len = 8));
	expect_pkt(b, RC_READ_RESP_ONLY, R(1));
	expect_pkt(b, RC_READ_RESP_ONLY, R(2));
	expect_drop(b, DUPLICATE, faa(b, R(0), 1));
	expect_drop(b, DUPLICATE, faa(b, R(1), 1));
	expect_drop(b, DUPLICATE, faa(b, R(2), 1));
	expect_drop(b, DUPLICATE, faa(b, R(-5), 1));
	expect_drop(b, DUPLICATE, read_req(b, R(0), 0, 8));
	expect_drop(b, DUPLICATE, read_req(b, R(2), 0, 8));
	expect_none(b);
	bed_close(b);
}

/* The first request is sent again and again, and nothing behind it, as if there were no room for
 * more: all but the first of these are answered, as each may be the last that the peer has. */
static void
again_without_reads(struct bed *b, uint32_t newest, uint32_t msn)
{
	unsigned int i;

	expect_drop(b, DUPLICATE, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_none(b);
	for (i = 0; i < 3; i++) {
		expect_drop(b, DUPLICATE, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
		expect_ack(b, newest, msn);
	}
}

/* (R3, L12): a duplicate is never answered with an ACK of a READ's or an atomic's PSN. */
Test(rc_replay, r3_duplicate_before_reads_and_atomics)
{
	struct bed *b = bed_rc();

	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_ack(b, R(0), 1);
	expect_taken(b, read_req(b, R(1), 0, 512));
	expect_pkt(b, RC_READ_RESP_FIRST, R(1));
	expect_pkt(b, RC_READ_RESP_LAST, R(2));
	again_without_reads(b, R(0), 2);
	expect_taken(b, faa(b, R(3), 1));
	expect_pkt(b, RC_ATOMIC_ACK, R(3));
	again_without_reads(b, R(0), 3);
	/* a part of the READ is requested once more: the PSNs of the READ stay what they were */
	expect_taken(b, read_req(b, R(2), 256, 256));
	expect_pkt(b, RC_READ_RESP_ONLY, R(2));
	again_without_reads(b, R(0), 3);
	/* after a newer request, an ACK that passes them shows that their responses were lost
	 * (Q3) */
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(4), .ackreq = true));
	expect_ack(b, R(4), 4);
	expect_drop(b, DUPLICATE, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_ack(b, R(4), 4);
	bed_close(b);
}

/* (R3, L18): a peer that goes back requests the READs and atomics again, too: no separate ACK is
 * sent. */
Test(rc_replay, r3_responses_acknowledge_duplicates)
{
	struct bed *b = bed_rc();
	unsigned int i;

	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_ack(b, R(0), 1);
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true));
	expect_ack(b, R(1), 2);
	expect_taken(b, read_req(b, R(2), 0, 256));
	expect_pkt(b, RC_READ_RESP_ONLY, R(2));
	expect_taken(b, faa(b, R(3), 1));
	expect_pkt(b, RC_ATOMIC_ACK, R(3));
	for (i = 0; i < 3; i++) {
		expect_drop(b, DUPLICATE, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
		expect_drop(b, DUPLICATE, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true));
		expect_none(b);
		if (i != 1) {
			expect_taken(b, read_req(b, R(2), 0, 256));
			expect_pkt(b, RC_READ_RESP_ONLY, R(2));
		}
		expect_taken(b, faa(b, R(3), 1));
		expect_pkt(b, RC_ATOMIC_ACK, R(3));
		expect_none(b);
	}
	/* the READs and atomics are not requested: a peer that repeats the same request needs an
	 * answer */
	again_without_reads(b, R(1), 4);
	expect_drop(b, DUPLICATE, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true));
	expect_none(b);
	expect_drop(b, DUPLICATE, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_ack(b, R(1), 4);
	expect_drop(b, DUPLICATE, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true));
	expect_ack(b, R(1), 4);
	bed_close(b);
}

/* (R3): a duplicate after a timeout is answered at once, as the peer may have no other retry. */
Test(rc_replay, r3_duplicate_after_a_timeout)
{
	struct bed *b = bed_rc();
	unsigned int i;

	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_ack(b, R(0), 1);
	expect_taken(b, read_req(b, R(1), 0, 256));
	expect_pkt(b, RC_READ_RESP_ONLY, R(1));
	for (i = 0; i < 3; i++) {
		advance_time(b, 65000000);
		expect_drop(b, DUPLICATE, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
		expect_ack(b, R(0), 2);
	}
	bed_close(b);
}

/* A duplicate before a READ that has just been answered is left to the responses. */
static void
left_before_a_read(struct bed *b, int32_t i)
{
	expect_taken(b, read_req(b, R(i + 1), 0, 256));
	expect_pkt(b, RC_READ_RESP_ONLY, R(i + 1));
	expect_drop(b, DUPLICATE, send_pkt(b, RC_WRITE_ONLY, R(i), .ackreq = true));
	expect_none(b);
	expect_drop(b, DUPLICATE, send_pkt(b, RC_WRITE_ONLY, R(i), .ackreq = true));
	expect_pkt(b, RC_ACK, R(i));
}

/* (R3): where the packets of a gap have arrived before a NAK was sent. */
Test(rc_replay, r3_duplicate_after_a_gap_without_nak)
{
	struct bed *b = bed_rc();

	expect_drop(b, SEQUENCE, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true));
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0)));
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true));
	expect_ack(b, R(1), 2);
	left_before_a_read(b, 1);
	bed_close(b);
}

/* (R3): the NAK of a gap is still to be sent when a READ comes. */
Test(rc_replay, r3_duplicate_after_a_gap_that_a_read_closes)
{
	struct bed *b = bed_rc();

	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0)));
	expect_drop(b, SEQUENCE, read_req(b, R(2), 0, 256));
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(1)));
	left_before_a_read(b, 1);
	bed_close(b);
}

/* (R5): ATOMIC WRITE counts as an atomic: answered again, stored once. */
Test(rc_replay, r5_duplicate_atomic_write)
{
	struct bed *b = bed_rc();
	unsigned int i;

	for (i = 0; i < 2; i++) {
		expect_taken(b,
			send_pkt(b, RC_ATOMIC_WRITE, R(0), .va = VA, .rkey = b->key, .dma_len = 8,
				.pay = b->pattern + 100 * i, .pay_len = 8));
		expect_pkt(b, RC_READ_RESP_ONLY, R(0));
	}
	expect_mem(b, 0, 0, 8);
	bed_close(b);
}

/* (R4): executed again, with the same PSNs; the data is what memory holds now. */
Test(rc_replay, r4_duplicate_read)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;

	expect_taken(b, read_req(b, R(0), 0, 515));
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_pkt(b, RC_READ_RESP_MIDDLE, R(1));
	expect_pkt(b, RC_READ_RESP_LAST, R(2));
	memcpy(b->buf, b->pattern, 515);
	expect_taken(b, read_req(b, R(0), 0, 515));
	expect_data(b, expect_pkt(b, RC_READ_RESP_FIRST, R(0)), 0, 256);
	expect_data(b, expect_pkt(b, RC_READ_RESP_MIDDLE, R(1)), 256, 256);
	p = expect_pkt(b, RC_READ_RESP_LAST, R(2));
	expect_data(b, p, 512, 3);
	cr_assert_eq(p->aeth, 0x1f000001); /* counted once (R10) */
	cr_assert_eq(count(b, RX_READ_REQUESTS), 1);
	bed_close(b);
}

/* (R4): it may start part way into the original, and end before the original does. */
Test(rc_replay, r4_part_of_the_original)
{
	struct bed *b = bed_rc();

	memcpy(b->buf, b->pattern, 1024);
	expect_taken(b, read_req(b, R(0), 0, 4 * MTU));
	b->out_head = (turn(b), b->out_tail);
	expect_taken(b, read_req(b, R(2), 2 * MTU, 2 * MTU));
	expect_data(b, expect_pkt(b, RC_READ_RESP_FIRST, R(2)), 512, 256);
	expect_data(b, expect_pkt(b, RC_READ_RESP_LAST, R(3)), 768, 256);
	expect_taken(b, read_req(b, R(3), 3 * MTU, MTU));
	expect_data(b, expect_pkt(b, RC_READ_RESP_ONLY, R(3)), 768, 256);
	/* one from the middle */
	expect_taken(b, read_req(b, R(1), MTU, MTU));
	expect_data(b, expect_pkt(b, RC_READ_RESP_ONLY, R(1)), 256, 256);
	expect_none(b);
	/* and everything once more */
	expect_taken(b, read_req(b, R(0), 0, 4 * MTU));
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_pkt(b, RC_READ_RESP_MIDDLE, R(1));
	expect_pkt(b, RC_READ_RESP_MIDDLE, R(2));
	expect_pkt(b, RC_READ_RESP_LAST, R(3));
	bed_close(b);
}

/* (R4): a request that is not part of the original is not answered. */
Test(rc_replay, r4_not_a_part)
{
	struct bed *b = bed_rc();

	expect_taken(b, read_req(b, R(0), 0, 2 * MTU));
	b->out_head = (turn(b), b->out_tail);
	expect_drop(b, DUPLICATE, read_req(b, R(0), 0, 2 * MTU + 1));
	expect_drop(b, DUPLICATE, read_req(b, R(1), 0, MTU));        /* VA does not match */
	expect_drop(b, DUPLICATE, read_req(b, R(0), MTU, MTU));      /* PSN does not match */
	expect_drop(b, DUPLICATE, read_req(b, R(1), MTU, 2 * MTU));  /* length does not match */
	expect_drop(b, DUPLICATE, read_req(b, R(0), 8192, 2 * MTU)); /* another address */
	expect_drop(b, DUPLICATE, read_req(b, R(1), MTU, 0xffffffff));
	expect_none(b);
	bed_close(b);
}

/* (R4): the key is checked again; a late copy must not end a connection that has moved on. */
Test(rc_replay, r4_key_is_checked_again)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 512, KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_READ);

	expect_taken(b, send_pkt(b, RC_READ_REQUEST, R(0), .va = VA, .rkey = key, .dma_len = 300));
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_pkt(b, RC_READ_RESP_LAST, R(1));
	bed_dereg(b, key);
	expect_drop(b, REQUEST,
		send_pkt(b, RC_READ_REQUEST, R(1), .va = VA + 256, .rkey = key, .dma_len = 44));
	expect_nak(b, R(1), REM_ACCESS, 1);
	expect_state(b, RTS);
	bed_close(b);
}

/* (R4): a duplicate of a READ that has not been answered yet causes one answer. */
Test(rc_replay, r4_duplicate_of_a_pending_one)
{
	struct bed *b = bed_rc();

	expect_taken(b, read_req(b, R(0), 0, 2 * MTU));
	expect_taken(b, read_req(b, R(2), 0, 8));
	expect_taken(b, read_req(b, R(0), 0, 2 * MTU));
	expect_taken(b, read_req(b, R(2), 0, 8));
	expect_taken(b, read_req(b, R(1), MTU, MTU));
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_pkt(b, RC_READ_RESP_LAST, R(1));
	expect_pkt(b, RC_READ_RESP_ONLY, R(2));
	expect_none(b);
	bed_close(b);
}

/* (R4): a READ that is partly answered starts again; the requests behind it are answered again. */
Test(rc_replay, r4_duplicate_of_a_half_answered_one)
{
	struct bed *b = bed_rc();

	expect_taken(b, read_req(b, R(0), 0, 3 * MTU));
	expect_taken(b, faa(b, R(3), 1));
	turn_once(b, 2, UINT32_MAX);
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_pkt(b, RC_READ_RESP_MIDDLE, R(1));
	expect_taken(b, read_req(b, R(1), MTU, 2 * MTU));
	expect_pkt(b, RC_READ_RESP_FIRST, R(1));
	expect_pkt(b, RC_READ_RESP_LAST, R(2));
	expect_pkt(b, RC_ATOMIC_ACK, R(3));
	expect_none(b);
	bed_close(b);
}

/* A READ of two packets, an atomic and a READ, all answered. */
static struct bed *
three_answered(uint64_t *v)
{
	struct bed *b = bed_rc();

	*v = word(b);
	expect_taken(b, read_req(b, R(0), 0, 2 * MTU));
	expect_taken(b, faa(b, R(2), 1));
	expect_taken(b, read_req(b, R(3), 0, 8));
	b->out_head = (turn(b), b->out_tail);
	return b;
}

/* (R4, R5): after going back, an old request is answered alone, and those behind it when the peer
 * requests them, too.  Otherwise a slow peer would get the answer to the last one many times. */
Test(rc_replay, r4_answered_alone)
{
	uint64_t v;
	struct bed *b = three_answered(&v);

	expect_taken(b, read_req(b, R(1), MTU, MTU));
	expect_pkt(b, RC_READ_RESP_ONLY, R(1));
	expect_none(b);
	expect_taken(b, faa(b, R(2), 1));
	cr_assert_eq(orig_of(expect_pkt(b, RC_ATOMIC_ACK, R(2))), v);
	expect_none(b);
	expect_taken(b, read_req(b, R(3), 0, 8));
	expect_pkt(b, RC_READ_RESP_ONLY, R(3));
	expect_none(b);
	cr_assert_eq(word(b), v + 1);
	bed_close(b);
}

/* (R4, R5): several duplicates that come before the first is answered: each is answered once, in
 * order. */
Test(rc_replay, r4_burst_of_duplicates)
{
	uint64_t v;
	struct bed *b = three_answered(&v);

	expect_taken(b, read_req(b, R(1), MTU, MTU));
	expect_taken(b, faa(b, R(2), 1));
	expect_taken(b, faa(b, R(2), 1));
	expect_taken(b, read_req(b, R(3), 0, 8));
	expect_pkt(b, RC_READ_RESP_ONLY, R(1));
	cr_assert_eq(orig_of(expect_pkt(b, RC_ATOMIC_ACK, R(2))), v);
	expect_pkt(b, RC_READ_RESP_ONLY, R(3));
	expect_none(b);
	/* in reverse order */
	expect_taken(b, read_req(b, R(3), 0, 8));
	expect_taken(b, faa(b, R(2), 1));
	cr_assert_eq(orig_of(expect_pkt(b, RC_ATOMIC_ACK, R(2))), v);
	expect_pkt(b, RC_READ_RESP_ONLY, R(3));
	expect_none(b);
	cr_assert_eq(word(b), v + 1);
	bed_close(b);
}

/* (R4): after an old request the responder continues with what was never answered. */
Test(rc_replay, r4_then_what_is_new)
{
	uint64_t v;
	struct bed *b = three_answered(&v);

	expect_taken(b, read_req(b, R(0), 0, 2 * MTU));
	expect_taken(b, read_req(b, R(4), 0, 16));
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_pkt(b, RC_READ_RESP_LAST, R(1));
	expect_pkt(b, RC_READ_RESP_ONLY, R(4));
	expect_none(b);
	expect_taken(b, faa(b, R(5), 1));
	cr_assert_eq(orig_of(expect_pkt(b, RC_ATOMIC_ACK, R(5))), v + 1);
	bed_close(b);
}

/* (R6): the last max_dest_rd_atomic are kept, first in, first out, over many operations. */
Test(rc_replay, r6_first_in_first_out)
{
	struct setup s = setup_of(KARST_QPT_RC);
	uint64_t v;
	struct bed *b;
	uint32_t i;

	s.attr.max_dest_rd_atomic = 3; /* of the 4 for which the QP has room */
	b = bed_open(&s);
	v = word(b);
	for (i = 0; i < 1000; i++) {
		expect_taken(b, faa(b, R(i), 1));
		cr_assert_eq(orig_of(expect_pkt(b, RC_ATOMIC_ACK, R(i))), v + i);
		if (i < 3)
			continue;
		/* a duplicate is not saved again: the order stays the same */
		expect_taken(b, faa(b, R(i - 2), 1));
		cr_assert_eq(orig_of(expect_pkt(b, RC_ATOMIC_ACK, R(i - 2))), v + i - 2);
		expect_none(b);
		expect_drop(b, DUPLICATE, faa(b, R(i - 3), 1));
		expect_none(b);
	}
	cr_assert_eq(word(b), v + 1000);
	bed_close(b);
}

/* (R6, R1): one more request outstanding than agreed. */
Test(rc_replay, r6_too_many)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint64_t v;

	s.attr.max_dest_rd_atomic = 2;
	b = bed_open(&s);
	v = word(b);
	expect_taken(b, read_req(b, R(0), 0, 8));
	expect_taken(b, faa(b, R(1), 1));
	expect_drop(b, REQUEST, faa(b, R(2), 1));
	expect_pkt(b, RC_READ_RESP_ONLY, R(0));
	expect_pkt(b, RC_ATOMIC_ACK, R(1));
	expect_nak(b, R(2), INV_REQ, 2);
	expect_event(b, QP_REQ_ERR);
	cr_assert_eq(word(b), v + 1);
	bed_close(b);
}

/* (R6): none may be outstanding. */
Test(rc_replay, r6_none_agreed)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.max_dest_rd_atomic = 0;
	b = bed_open(&s);
	expect_drop(b, REQUEST, read_req(b, R(0), 0, 8));
	expect_nak(b, R(0), INV_REQ, 0);
	expect_event(b, QP_REQ_ERR);
	bed_close(b);
}

/* (R6): when a peer has moved on, an answer that it does not want any more does not count against
 * it. */
Test(rc_replay, r6_new_request_while_answering_again)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.max_dest_rd_atomic = 1;
	b = bed_open(&s);
	expect_taken(b, read_req(b, R(0), 0, 2 * MTU));
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_pkt(b, RC_READ_RESP_LAST, R(1));
	expect_taken(b, read_req(b, R(0), 0, 2 * MTU));
	expect_taken(b, faa(b, R(2), 1));
	expect_pkt(b, RC_ATOMIC_ACK, R(2));
	expect_none(b);
	bed_close(b);
}

/* Memory that vanishes before the answer: a NAK with the PSN of the response that cannot be given
 * (R4, R13). */
Test(rc_replay, r13_source_gone_mid_read)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 4096, KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_READ);

	expect_taken(
		b, send_pkt(b, RC_READ_REQUEST, R(0), .va = VA, .rkey = key, .dma_len = 3 * MTU));
	expect_taken(b, read_req(b, R(3), 0, 8));
	turn_once(b, 1, UINT32_MAX);
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	bed_dereg(b, key);
	expect_nak(b, R(1), REM_ACCESS, 2);
	expect_event(b, QP_ACCESS_ERR);
	expect_state(b, ERR);
	expect_none(b);
	bed_close(b);
}

/* PSNs; divides the interval at which the responder checks the age of its saved responses */
#define ALIKE 4096
static_assert(KARST_RSP_AGE % ALIKE == 0, "it looks in between, too");

/*
 * Sends @n empty WRITEs.  One after the other changes only the next PSN and MSN of the responder,
 * which is asserted once in ALIKE PSNs, at a point where the responder does not check ages.  So
 * most WRITEs are not sent: the responder's state is set to what it would be after them.  Sent are
 * those around each multiple of ALIKE, and the last ones, where PSN and MSN wrap around.
 */
static void
writes(struct bed *b, uint32_t psn, uint32_t n)
{
	struct karst_responder *r = &b->s->qp->rsp, was;
	const uint32_t jump = ALIKE - 8;

	while (n > 0) {
		was = *r;
		bed_rx_many(
			b, &(struct karst_ib_hdrs){.opcode = KARST_RC_WRITE_ONLY, .psn = psn}, 1);
		psn = karst_psn_add(psn, 1);
		n--;
		if (psn % ALIKE != 4 || n < ALIKE)
			continue;
		was.epsn = karst_psn_add(was.epsn, 1);
		was.msn = karst_psn_add(was.msn, 1);
		cr_assert_arr_eq(&was, r, sizeof(was));
		r->epsn = psn = karst_psn_add(psn, jump);
		r->msn = karst_psn_add(r->msn, jump);
		n -= jump;
	}
}

/* (P1, R5): a result from one whole number space ago is not used for the request with that PSN
 * now. */
Test(rc_replay, r5_same_psn_one_wrap_later)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint64_t v;

	s.attr.max_dest_rd_atomic = 4;
	b = bed_open(&s);
	v = word(b);
	expect_taken(b, faa(b, R(0), 1));
	expect_pkt(b, RC_ATOMIC_ACK, R(0));
	writes(b, R(1), KARST_PSN_MASK);
	expect_none(b);
	/* (R10): MSN has wrapped around, too */
	expect_taken(b, faa(b, R(0), 1));
	cr_assert_eq(expect_pkt(b, RC_ATOMIC_ACK, R(0))->aeth, 0x1f000001);
	expect_taken(b, faa(b, R(0), 1));
	cr_assert_eq(orig_of(expect_pkt(b, RC_ATOMIC_ACK, R(0))), v + 1);
	cr_assert_eq(word(b), v + 2);
	bed_close(b);
}

/* (R4): requested again, and the memory vanishes before the answer: no answer, and the connection
 * goes on. */
Test(rc_replay, r4_source_gone_while_answering_again)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 512, KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_READ);
	const struct karst_ib_hdrs ib = {.opcode = KARST_RC_READ_REQUEST,
		.psn = R(0),
		.va = VA,
		.rkey = key,
		.dma_len = 300};

	expect_taken(b, bed_rx(b, &ib));
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_pkt(b, RC_READ_RESP_LAST, R(1));
	expect_taken(b, bed_rx(b, &ib));
	bed_dereg(b, key);
	expect_none(b);
	expect_state(b, RTS);
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(2), .ackreq = true));
	expect_ack(b, R(2), 2);
	bed_close(b);
}

/* --- saved responses age --- */

/* (R3): a duplicate before a READ after so many WRITEs that a PSN of the last READ looks like a
 * later one. */
Test(rc_replay, r3_duplicate_after_half_of_all_psns)
{
	const uint32_t n = (1u << 23) + 5;
	struct bed *b = bed_rc();

	writes(b, R(0), n);
	expect_none(b);
	left_before_a_read(b, (int32_t)n - 1);
	bed_close(b);
}

/* (P1, R3): 2^24 packets later its PSN belongs to another request, which is acknowledged as
 * such. */
Test(rc_replay, r3_one_turn_of_the_psns_later)
{
	struct bed *b = bed_rc();

	expect_taken(b, read_req(b, R(0), 0, 8));
	expect_pkt(b, RC_READ_RESP_ONLY, R(0));
	writes(b, R(1), KARST_PSN_MASK);
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_ack(b, R(0), 1);
	/* the same with an atomic, and a long READ in between (P1: as many PSNs as responses) */
	expect_taken(b, faa(b, R(1), 1));
	expect_pkt(b, RC_ATOMIC_ACK, R(1));
	writes(b, R(2), KARST_PSN_MASK - 3);
	expect_taken(b, read_req(b, R(-2), 0, 768));
	expect_pkt(b, RC_READ_RESP_FIRST, R(-2));
	expect_pkt(b, RC_READ_RESP_MIDDLE, R(-1));
	expect_pkt(b, RC_READ_RESP_LAST, R(0));
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true));
	expect_ack(b, R(1), 0);
	bed_close(b);
}

/* (P2, R5): responses that a peer may still request are kept, however many packets have come
 * since. */
Test(rc_replay, r5_the_oldest_duplicate)
{
	struct bed *b = bed_rc();
	uint64_t before = word(b);

	expect_taken(b, faa(b, R(0), 5));
	expect_pkt(b, RC_ATOMIC_ACK, R(0));
	writes(b, R(1), (1u << 23) - 2);
	expect_taken(b, faa(b, R(0), 5));
	cr_assert_eq(orig_of(expect_pkt(b, RC_ATOMIC_ACK, R(0))), before);
	cr_assert_eq(word(b), before + 5);
	bed_close(b);
}
