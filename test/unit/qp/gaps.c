/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Gaps among responses (X11): responses behind a gap are kept, and only the missing ones are
 * requested again. */
#include "gaps.h"

#include "harness.h"

#define WINDOW 64u

static const struct karst_hold_ops hold_ops;
static void *repeat_mem;

static struct bed *
bed_reads(bool agreed)
{
	struct setup s = setup_of(KARST_QPT_RC);

	s.attr.max_rd_atomic = 8;
	if (agreed) {
		s.core.held_frames = 16;
		s.core.hold_ops = &hold_ops;
		repeat_mem = calloc(1, karst_repeat_bytes(WINDOW));
		s.attr.repeat_window = WINDOW;
		s.attr.repeat_mem = repeat_mem;
	}
	return bed_open(&s);
}

static void
close_reads(struct bed *b)
{
	bed_close(b);
	free(repeat_mem);
	repeat_mem = NULL;
}

/* Sends packet @i of a READ of @n whole packets that begins at S(@first), with the bytes of its
 * place. */
static enum karst_drop
answer(struct bed *b, uint32_t first, uint32_t n, uint32_t i)
{
	return bed_rx(b,
		&(struct karst_ib_hdrs){
			.psn = S(first + i),
			.opcode = n == 1     ? KARST_RC_READ_RESP_ONLY
				: i == 0     ? KARST_RC_READ_RESP_FIRST
				: i == n - 1 ? KARST_RC_READ_RESP_LAST
					     : KARST_RC_READ_RESP_MIDDLE,
			.aeth = 0x1f000000,
			.pay = b->pattern + i * MTU,
			.pay_len = MTU,
		});
}

static void
expect_ask_at(struct bed *b, int line, uint32_t psn, uint32_t off, uint32_t len)
{
	const struct karst_pkt *p = expect_at(b, __FILE__, line, KARST_RC_READ_REQUEST, S(psn));

	cr_assert_eq(p->va, PEER_VA + off, "line %d", line);
	cr_assert_eq(p->dma_len, len, "line %d: %u bytes", line, p->dma_len);
}
#define expect_ask(b, psn, off, len) expect_ask_at(b, __LINE__, psn, off, len)

/* (X11): from an ordinary peer everything from the gap on is requested again, once; responses that
 * have arrived are kept. */
Test(gaps, x11_what_is_here_stays)
{
	struct bed *b = bed_reads(false);

	post(b, RDMA_READ, 1, .len = 8 * MTU);
	expect_ask(b, 0, 0, 8 * MTU);
	expect_taken(b, answer(b, 0, 8, 0));
	expect_taken(b, answer(b, 0, 8, 2));
	expect_ask(b, 1, MTU, 7 * MTU);
	expect_taken(b, answer(b, 0, 8, 4));
	expect_taken(b, answer(b, 0, 8, 5));
	/* the second one has arrived now, and the fourth was requested again with it */
	expect_taken(b, answer(b, 0, 8, 1));
	expect_none(b);
	expect_drop(b, UNEXPECTED_RESPONSE, answer(b, 0, 8, 2));
	expect_drop(b, UNEXPECTED_RESPONSE, answer(b, 0, 8, 4));
	expect_taken(b, answer(b, 0, 8, 3));
	expect_taken(b, answer(b, 0, 8, 6));
	expect_no_wc(b);
	expect_taken(b, answer(b, 0, 8, 7));
	expect_wc(b, 1, SUCCESS);
	expect_mem(b, 0, 0, 8 * MTU);
	cr_assert_eq(b->core->gaps->used, 0);
	close_reads(b);
}

/* (X11): a peer that has agreed is asked for the gaps alone, each request ending where its gap
 * ends. */
Test(gaps, x11_parts)
{
	struct bed *b = bed_reads(true);

	post(b, RDMA_READ, 1, .len = 8 * MTU);
	expect_ask(b, 0, 0, 8 * MTU);
	expect_taken(b, answer(b, 0, 8, 0));
	expect_taken(b, answer(b, 0, 8, 3));
	expect_ask(b, 1, MTU, 2 * MTU);
	expect_taken(b, answer(b, 0, 8, 5));
	expect_ask(b, 4, 4 * MTU, MTU);
	expect_taken(b,
		send_pkt(b, RC_READ_RESP_ONLY, S(4), .pay = b->pattern + 4 * MTU, .pay_len = MTU));
	expect_taken(
		b, send_pkt(b, RC_READ_RESP_FIRST, S(1), .pay = b->pattern + MTU, .pay_len = MTU));
	expect_taken(b,
		send_pkt(b, RC_READ_RESP_LAST, S(2), .pay = b->pattern + 2 * MTU, .pay_len = MTU));
	expect_taken(b, answer(b, 0, 8, 6));
	expect_none(b);
	expect_taken(b, answer(b, 0, 8, 7));
	expect_wc(b, 1, SUCCESS);
	expect_mem(b, 0, 0, 8 * MTU);
	close_reads(b);
}

/* (X11): two gaps that become known at once are requested at once. */
Test(gaps, x11_two_parts)
{
	struct bed *b = bed_reads(true);

	post(b, RDMA_READ, 1, .len = 6 * MTU);
	post(b, RDMA_READ, 2, .len = MTU);
	expect_ask(b, 0, 0, 6 * MTU);
	expect_ask(b, 6, 0, MTU);
	expect_taken(b, answer(b, 0, 6, 1));
	expect_taken(b, answer(b, 0, 6, 3));
	expect_taken(b, answer(b, 6, 1, 0));
	expect_ask(b, 0, 0, MTU);
	expect_ask(b, 2, 2 * MTU, MTU);
	expect_ask(b, 4, 4 * MTU, 2 * MTU);
	expect_none(b);
	bed_forget(b);
	close_reads(b);
}

/* (X11, Q1): responses behind the gap of an earlier READ are accepted as well, and complete in
 * order. */
Test(gaps, x11_later_requests)
{
	struct bed *b = bed_reads(false);

	post(b, RDMA_READ, 1, .len = 2 * MTU);
	post(b, RDMA_WRITE, 2, .len = 1);
	post(b, RDMA_READ, 3, .len = 2 * MTU, .off = 4 * MTU);
	post(b, ATOMIC_FAA, 4, .off = 8192);
	post(b, RDMA_WRITE, 5, .len = 1);
	expect_ask(b, 0, 0, 2 * MTU);
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	expect_ask(b, 3, 0, 2 * MTU);
	expect_pkt(b, RC_FETCH_ADD, S(5));
	expect_pkt(b, RC_WRITE_ONLY, S(6));
	expect_taken(b, answer(b, 0, 2, 0));
	expect_taken(b, answer(b, 3, 2, 0));
	expect_ask(b, 1, MTU, MTU);
	expect_taken(b, answer(b, 3, 2, 1));
	expect_mem(b, 4 * MTU, 0, 2 * MTU);
	expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(5), .orig = 9));
	expect_taken(b, send_ack(b, S(6), 5));
	expect_none(b);
	expect_no_wc(b);
	expect_taken(b, answer(b, 0, 2, 1));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	expect_wc(b, 4, SUCCESS);
	expect_wc(b, 5, SUCCESS);
	cr_assert_eq(b->core->gaps->used, 0);
	close_reads(b);
}

/* (X11): a repeated request counts as lost again when responses to something requested later have
 * come, and only then. */
Test(gaps, x11_lost_again)
{
	struct bed *b = bed_reads(false);

	post(b, RDMA_READ, 1, .len = 2 * MTU);
	post(b, RDMA_READ, 2, .len = 2 * MTU);
	expect_ask(b, 0, 0, 2 * MTU);
	expect_ask(b, 2, 0, 2 * MTU);
	expect_taken(b, answer(b, 0, 2, 1));
	expect_ask(b, 0, 0, 2 * MTU);
	/* was requested before that */
	expect_taken(b, answer(b, 2, 2, 0));
	expect_taken(b, answer(b, 2, 2, 1));
	expect_none(b);
	post(b, RDMA_READ, 3, .len = MTU);
	expect_ask(b, 4, 0, MTU);
	expect_taken(b, answer(b, 4, 1, 0));
	expect_ask(b, 0, 0, 2 * MTU);
	expect_none(b);
	expect_taken(b, answer(b, 0, 2, 0));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	close_reads(b);
}

/* (X11, Q6): going back requests what is missing, and skips what is not. */
Test(gaps, x11_q6_timeout)
{
	struct bed *b = bed_reads(false);

	post(b, RDMA_READ, 1, .len = 2 * MTU);
	post(b, RDMA_READ, 2, .len = MTU);
	post(b, RDMA_READ, 3, .len = 4 * MTU);
	expect_ask(b, 0, 0, 2 * MTU);
	expect_ask(b, 2, 0, MTU);
	expect_ask(b, 3, 0, 4 * MTU);
	expect_taken(b, answer(b, 2, 1, 0));
	expect_ask(b, 0, 0, 2 * MTU);
	expect_taken(b, answer(b, 3, 4, 0));
	expect_none(b);
	advance_time(b, 4 * RTO);
	expect_ask(b, 0, 0, 2 * MTU);
	expect_ask(b, 4, MTU, 3 * MTU);
	expect_none(b);
	expect_taken(b, answer(b, 0, 2, 0));
	expect_taken(b, answer(b, 0, 2, 1));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_taken(b, answer(b, 3, 4, 1));
	expect_taken(b, answer(b, 3, 4, 2));
	expect_taken(b, answer(b, 3, 4, 3));
	expect_wc(b, 3, SUCCESS);
	close_reads(b);
}

/* (X11, Q4): a NAK behind a gap makes the requester go back.  A response that comes before that has
 * begun moves the cursor on, and only what was not executed is sent again. */
Test(gaps, x11_q4_nak_behind_a_gap)
{
	struct bed *b = bed_reads(false);

	post(b, RDMA_READ, 1, .len = MTU);
	post(b, RDMA_READ, 2, .len = MTU);
	post(b, RDMA_READ, 3, .len = MTU);
	post(b, RDMA_WRITE, 4, .len = 8);
	expect_ask(b, 0, 0, MTU);
	expect_ask(b, 1, 0, MTU);
	expect_ask(b, 2, 0, MTU);
	expect_pkt(b, RC_WRITE_ONLY, S(3));
	expect_taken(b, answer(b, 1, 1, 0));
	expect_taken(b, answer(b, 2, 1, 0));
	expect_taken(b, send_nak(b, S(3), KARST_NAK_PSN_SEQ));
	expect_taken(b, answer(b, 0, 1, 0));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	expect_pkt(b, RC_WRITE_ONLY, S(3));
	ack(b, S(3), 4);
	expect_wc(b, 4, SUCCESS);
	close_reads(b);
}

/* (X11, Q10): wrong responses, or those that have arrived already, change nothing. */
Test(gaps, x11_hostile)
{
	struct bed *b = bed_reads(false);

	post(b, RDMA_READ, 1, .len = 4 * MTU - 8);
	post(b, ATOMIC_FAA, 2, .off = 8192);
	post(b, RDMA_WRITE, 3, .len = 8);
	expect_ask(b, 0, 0, 4 * MTU - 8);
	expect_pkt(b, RC_FETCH_ADD, S(4));
	expect_pkt(b, RC_WRITE_ONLY, S(5));
	/* too short, too long, a Last where none belongs and the reverse */
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_MIDDLE, S(2), .pay_len = 8));
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_LAST, S(3), .pay_len = MTU));
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_LAST, S(2), .pay_len = MTU));
	expect_drop(
		b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_MIDDLE, S(3), .pay_len = MTU - 8));
	/* of another operation, and for a WRITE */
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_ATOMIC_ACK, S(2)));
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_ONLY, S(4), .pay_len = 8));
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_ONLY, S(5), .pay_len = 8));
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_ONLY, S(6), .pay_len = 8));
	expect_untouched(b, 0, 4 * MTU);
	expect_none(b);
	expect_taken(b, answer(b, 0, 9, 2));
	expect_ask(b, 0, 0, 4 * MTU - 8);
	/* other bytes for the same place */
	expect_drop(b, UNEXPECTED_RESPONSE,
		send_pkt(b, RC_READ_RESP_MIDDLE, S(2), .pay = b->pattern, .pay_len = MTU));
	expect_mem(b, 2 * MTU, 2 * MTU, MTU);
	expect_none(b);
	/* when its turn comes the response is checked against the request, as usual */
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 8));
	expect_wc(b, 1, BAD_RESP_ERR);
	cr_assert_eq(b->core->gaps->used, 0);
	bed_forget(b);
	close_reads(b);
}

/* (X11, Q5): responses are dropped if they are further behind a gap than can be recorded, or if no
 * more gaps can be recorded. */
Test(gaps, x11_q5_no_room)
{
	struct bed *b = bed_reads(false);
	uint16_t free;

	post(b, RDMA_READ, 1, .len = 2 * MTU);
	post(b, RDMA_READ, 2, .len = MTU);
	expect_ask(b, 0, 0, 2 * MTU);
	expect_ask(b, 2, 0, MTU);
	free = b->core->gaps->free;
	b->core->gaps->free = 0;
	expect_drop(b, READ_GAP, answer(b, 2, 1, 0));
	/* back to the oldest request, and everything behind it once more */
	expect_ask(b, 0, 0, 2 * MTU);
	expect_ask(b, 2, 0, MTU);
	expect_none(b);
	b->core->gaps->free = free;
	expect_taken(b, answer(b, 0, 2, 0));
	expect_taken(b, answer(b, 0, 2, 1));
	expect_taken(b, answer(b, 2, 1, 0));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	close_reads(b);
}

/* (X11): and responses are dropped that come too far behind a gap. */
Test(gaps, x11_far)
{
	struct bed *b = bed_reads(false);
	struct karst_sge sge[2] = {
		{.addr = VA, .len = BUF_BYTES, .lkey = b->key},
		{.addr = VA, .len = BUF_BYTES, .lkey = b->key},
	};

	post(b, RDMA_READ, 1, .sge = sge, .nsge = 2);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_drop(
		b, READ_GAP, send_pkt(b, RC_READ_RESP_MIDDLE, S(KARST_GAP_PSNS), .pay_len = MTU));
	expect_untouched(b, 0, BUF_BYTES);
	expect_ask(b, 0, 0, 2 * BUF_BYTES);
	expect_taken(b, answer(b, 0, BUF_BYTES / MTU + 1, KARST_GAP_PSNS - 1));
	/* it answers the repeated request, so what is before it is lost again */
	expect_ask(b, 0, 0, 2 * BUF_BYTES);
	expect_none(b);
	/* recorded gaps are released with the connection */
	cr_assert_eq(b->core->gaps->used, 1);
	cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
	cr_assert_eq(b->core->gaps->used, 0);
	close_reads(b);
}

/* --- shares --- */

#define MOST    KARST_QP_MAX_RD_ATOMIC
#define HIS_QPS 4u

static struct setup
setup_of_many(void)
{
	struct setup s = setup_of(KARST_QPT_RC);

	s.core.window_packets = 2 * MOST;
	s.core.max_sharers = 2;
	s.qp.max_send_wr = 2 * MOST;
	s.attr.max_rd_atomic = MOST;
	return s;
}

/* Posts @n READs of one packet each, and answers only the last. */
static enum karst_drop
miss_all_but_one(struct bed *b, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		post(b, RDMA_READ, i, .len = MTU);
	for (i = 0; i < n; i++)
		expect_ask(b, i, 0, MTU);
	return answer(b, n - 1, 1, 0);
}

/* (X11): a single user gets a gap for each READ that a queue pair may have outstanding. */
Test(gaps, x11_all_are_for_one)
{
	struct setup s = setup_of_many();
	struct bed *b = bed_open(&s);
	uint32_t i;

	expect_taken(b, miss_all_but_one(b, MOST));
	cr_assert_eq(b->core->gaps->used, MOST - 1);
	for (i = 0; i < MOST - 1; i++)
		expect_ask(b, i, 0, MTU);
	expect_none(b);
	for (i = 0; i < MOST - 1; i++)
		expect_taken(b, answer(b, i, 1, 0));
	for (i = 0; i < MOST; i++)
		expect_wc(b, i, SUCCESS);
	cr_assert_eq(b->core->gaps->used, 0);
	close_reads(b);
}

/* (X11): the peers of some queue pairs of one user leave as many gaps as they can.  Each of these
 * queue pairs has some of the gap records, and those of other users have what they need. */
Test(gaps, x11_shares)
{
	struct setup s = setup_of_many();
	struct bed *b = bed_open(&s);
	uint32_t i;

	for (i = 0; i < HIS_QPS; i++) {
		if (i != 0)
			bed_add(b, &s);
		expect_taken(b, miss_all_but_one(b, MOST));
		cr_assert_leq(b->core->gaps->used, KARST_GAPS * 3 / 4);
		turn(b);
		b->out_head = b->out_tail;
	}
	s.qp.sharer = 1;
	bed_add(b, &s);
	expect_taken(b, miss_all_but_one(b, 8));
	for (i = 0; i < 7; i++)
		expect_ask(b, i, 0, MTU);
	expect_none(b);
	cr_assert_eq(b->core->sched.users[1].gaps, 7);
	for (i = 0; i < 7; i++)
		expect_taken(b, answer(b, i, 1, 0));
	for (i = 0; i < 8; i++)
		expect_wc(b, i, SUCCESS);
	for (i = 0; i < b->nsides; i++)
		bed_destroy_side(b, &b->side[i]);
	cr_assert_eq(b->core->gaps->used, 0);
	cr_assert_eq(b->core->sched.users[0].gaps, 0);
	bed_close(b);
}

/* (X11): the gap record of the oldest missing READ is passed on to the next one, even if its user
 * has more than the user's share by now, because others have come. */
Test(gaps, x11_what_is_had_is_kept)
{
	struct bed *b = bed_reads(false);
	struct karst_gaps *all = b->core->gaps;
	struct karst_sched_user *user = &b->core->sched.users[0];

	post(b, RDMA_READ, 1, .len = MTU);
	post(b, RDMA_READ, 2, .len = MTU);
	post(b, RDMA_WRITE, 3, .len = 1);
	expect_ask(b, 0, 0, MTU);
	expect_ask(b, 1, 0, MTU);
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	/* all but one belong to others */
	all->used += KARST_GAPS - 1;
	expect_taken(b, send_ack(b, S(2), 3));
	cr_assert_eq(user->gaps, 1);
	expect_ask(b, 0, 0, MTU);
	expect_none(b);
	user->gaps += 8;
	expect_taken(b, answer(b, 0, 1, 0));
	expect_wc(b, 1, SUCCESS);
	/* the next one is known to be missing */
	expect_ask(b, 1, 0, MTU);
	user->gaps -= 8;
	all->used -= KARST_GAPS - 1;
	expect_taken(b, answer(b, 1, 1, 0));
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	cr_assert_eq(all->used, 0);
	cr_assert_eq(user->gaps, 0);
	close_reads(b);
}

/* --- the responder --- */

static void
read_request(struct bed *b, uint32_t psn, uint32_t off, uint32_t len)
{
	expect_taken(b,
		send_pkt(b, RC_READ_REQUEST, R(psn), .va = VA + off, .rkey = b->key, .dma_len = len,
			.ackreq = true));
}

/* (X11, R4): a part is answered alone, ahead of responses that were never sent, which continue
 * where they were. */
Test(gaps, x11_r4_parts_are_answered)
{
	struct bed *b = bed_reads(true);

	read_request(b, 0, 0, 4 * MTU);
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_pkt(b, RC_READ_RESP_MIDDLE, R(1));
	expect_pkt(b, RC_READ_RESP_MIDDLE, R(2));
	expect_pkt(b, RC_READ_RESP_LAST, R(3));
	read_request(b, 1, MTU, 2 * MTU);
	expect_pkt(b, RC_READ_RESP_FIRST, R(1));
	expect_pkt(b, RC_READ_RESP_LAST, R(2));
	read_request(b, 3, 3 * MTU, MTU);
	expect_pkt(b, RC_READ_RESP_ONLY, R(3));
	expect_none(b);
	/* not a part of the original */
	expect_drop(b, DUPLICATE,
		send_pkt(b, RC_READ_REQUEST, R(1), .va = VA + MTU, .rkey = b->key,
			.dma_len = 4 * MTU, .ackreq = true));
	expect_none(b);
	close_reads(b);
}

/* (X11, R4): of a READ that is being answered, responses that were sent are sent again, without a
 * Last, and then the rest as usual. */
Test(gaps, x11_r4_while_it_is_answered)
{
	struct bed *b = bed_reads(true);

	read_request(b, 0, 0, 4 * MTU);
	turn_once(b, 2, UINT32_MAX);
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_pkt(b, RC_READ_RESP_MIDDLE, R(1));
	read_request(b, 0, 0, 4 * MTU);
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_pkt(b, RC_READ_RESP_MIDDLE, R(1));
	expect_pkt(b, RC_READ_RESP_MIDDLE, R(2));
	expect_pkt(b, RC_READ_RESP_LAST, R(3));
	expect_none(b);
	close_reads(b);
}

/* (R4): a duplicate that ends before the original does not end the responses that were never sent;
 * the peers have agreed to nothing. */
Test(gaps, r4_shorter_duplicate)
{
	struct bed *b = bed_reads(false);

	read_request(b, 0, 0, 4 * MTU);
	turn_once(b, 3, UINT32_MAX);
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_pkt(b, RC_READ_RESP_MIDDLE, R(1));
	expect_pkt(b, RC_READ_RESP_MIDDLE, R(2));
	read_request(b, 1, MTU, MTU);
	expect_pkt(b, RC_READ_RESP_FIRST, R(1));
	expect_pkt(b, RC_READ_RESP_MIDDLE, R(2));
	expect_pkt(b, RC_READ_RESP_LAST, R(3));
	expect_none(b);
	close_reads(b);
}

/* (X11): the cursor went back, and before anything is sent again an acknowledgement passes it, up
 * to a READ whose responses are missing.  Gaps are not searched behind the cursor, as that would
 * search the whole number space. */
Test(gaps, x11_passes_the_cursor)
{
	struct bed *b = bed_reads(false);
	unsigned int i;

	for (i = 0; i < 4; i++)
		post(b, RDMA_WRITE, i, .len = 1, .quiet = true);
	post(b, RDMA_READ, 4, .len = MTU);
	post(b, RDMA_WRITE, 5, .len = 1);
	for (i = 0; i < 4; i++)
		expect_pkt(b, RC_WRITE_ONLY, S(i));
	expect_ask(b, 4, 0, MTU);
	expect_pkt(b, RC_WRITE_ONLY, S(5));
	expect_taken(b, send_nak(b, S(0), KARST_NAK_PSN_SEQ));
	expect_taken(b, send_ack(b, S(5), 6));
	cr_assert_eq(count(b, IMPLIED_NAK_SEQ_ERR), 0);
	expect_ask(b, 4, 0, MTU);
	expect_taken(b, answer(b, 4, 1, 0));
	bed_forget(b);
	close_reads(b);
}

/* ... or a response passes it, behind one that is missing: the cursor follows, and the READ is sent
 * again. */
Test(gaps, x11_answer_passes_the_cursor)
{
	struct bed *b = bed_reads(false);

	post(b, RDMA_WRITE, 1, .len = 1, .quiet = true);
	post(b, RDMA_READ, 2, .len = MTU);
	post(b, RDMA_READ, 3, .len = MTU);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_ask(b, 1, 0, MTU);
	expect_ask(b, 2, 0, MTU);
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = (uint32_t)(KARST_AETH_RNR | 12) << 24));
	expect_none(b);
	expect_taken(b, answer(b, 2, 1, 0));
	expect_ask(b, 1, 0, MTU);
	expect_taken(b, answer(b, 1, 1, 0));
	bed_forget(b);
	close_reads(b);
}

#define AHEAD 1024u /* binds that may be executed ahead of requests before them */

/* However many binds are posted, the number of those that wait for requests before them is limited,
 * because what a peer sends behind a gap is searched among them. */
Test(gaps, binds_do_not_run_ahead_without_end)
{
	struct setup s = setup_of(KARST_QPT_RC);
	const struct karst_requester *r;
	struct bed *b;
	uint32_t key, next, i, most = 0, n = 2 * (AHEAD + WINDOW);

	s.core.window_packets = WINDOW;
	s.qp.max_send_wr = 4096;
	s.cq_entries = 4096;
	b = bed_open(&s);
	r = &b->s->qp->req;
	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW1, &key), 0);
	post(b, RDMA_READ, 1, .len = 2 * MTU);
	for (i = 0; i < n; i++, key = next) {
		next = (key & ~0xffu) | ((key + 1) & 0xff);
		bed_bind(b, 2 + i, key, next, KARST_ACCESS_REMOTE_READ);
	}
	expect_pkt(b, RC_READ_REQUEST, S(0));
	for (i = 0; i < n; i++) {
		expect_none(b);
		if (r->nxt_idx - r->una_idx > most)
			most = r->nxt_idx - r->una_idx;
	}
	cr_assert_gt(most, AHEAD);
	cr_assert_leq(most, AHEAD + WINDOW, "%u", most);
	expect_no_wc(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .aeth = 0x1f000000, .pay_len = MTU));
	expect_taken(b, send_pkt(b, RC_READ_RESP_LAST, S(1), .aeth = 0x1f000000, .pay_len = MTU));
	for (i = 0; i <= n; i++)
		expect_wc(b, 1 + i, SUCCESS);
	bed_close(b);
}
