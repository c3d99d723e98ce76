/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Selective repeat (X1 to X10): what is held and reported, what is sent again, what a peer may not
 * report. */
#include "repeat_bed.h"

/* --- the responder --- */

/* (X4, X5, X7): requests are held until their turn, reported by a SACK at the gap, executed in
 * order and only once. */
Test(repeat, x5_held_until_their_turn)
{
	struct bed *b = bed_repeat();

	expect_taken(b, send_write(b, R(1), 256, 64));
	expect_sack(b, R(0), 2);
	expect_untouched(b, 256, 64);
	expect_taken(b, send_write(b, R(3), 768, 64));
	expect_sack(b, R(0), 2 | 8);
	/* a duplicate of one that is held: if AckReq is set it is answered */
	expect_drop(b, DUPLICATE, send_write(b, R(3), 768, 64));
	expect_sack(b, R(0), 2 | 8);
	cr_assert_eq(kept_now, 2);
	/* the first gap is filled: two are executed */
	expect_taken(b, send_write(b, R(0), 0, 64));
	expect_sack(b, R(2), 2);
	expect_mem(b, 256, 0, 64);
	expect_untouched(b, 768, 64);
	expect_taken(b, send_write(b, R(2), 512, 64));
	expect_ack(b, R(3), 4);
	expect_mem(b, 768, 0, 64);
	cr_assert_eq(count(b, SEQ_NAK_SENT), 0);
	cr_assert_eq(count(b, REQUESTS_HELD), 2);
	close_repeat(b);
}

/* (X2, X3, X4): no room, or beyond the window: the packet is dropped, and the peer is told so once,
 * and again when that packet is the expected one. */
Test(repeat, x4_no_room)
{
	struct bed *b = bed_held(1, false);

	expect_taken(b, send_write(b, R(1), 0, 64));
	expect_sack(b, R(0), 2);
	expect_drop(b, HELD_FULL, send_write(b, R(2), 0, 64));
	expect_sack(b, R(0), 1 | 2);
	expect_drop(b, HELD_FULL, send_write(b, R(WINDOW), 0, 64));
	expect_sack(b, R(0), 1 | 2);
	expect_taken(b, send_write(b, R(0), 0, 64));
	expect_sack(b, R(2), 1);
	expect_taken(b, send_write(b, R(2), 0, 64));
	expect_ack(b, R(2), 3);
	close_repeat(b);
}

/* (X4, R3): a duplicate gets its ACK, and the SACK about the dropped packet follows it. */
Test(repeat, x4_no_room_and_a_duplicate)
{
	struct bed *b = bed_held(1, false);

	expect_taken(b, send_write(b, R(1), 0, 64));
	expect_sack(b, R(0), 2);
	expect_drop(b, HELD_FULL, send_write(b, R(2), 0, 64));
	expect_sack(b, R(0), 1 | 2);
	expect_taken(b, send_write(b, R(0), 0, 64));
	expect_drop(b, DUPLICATE, send_write(b, R(0), 0, 64));
	expect_ack(b, R(1), 2);
	expect_sack(b, R(2), 1);
	expect_none(b);
	close_repeat(b);
}

/* (X4): a queue pair with a gap does not get all the room that there is. */
Test(repeat, x4_left_for_others)
{
	struct bed *b = bed_held(16, false);
	uint32_t i;

	for (i = 1; i <= 8; i++) {
		expect_taken(b, send_write(b, R(i), 0, 64));
		expect_sack(b, R(0), (2u << i) - 2);
	}
	for (; i <= 16; i++) {
		expect_drop(b, HELD_FULL, send_write(b, R(i), 0, 64));
		expect_sack(b, R(0), (2u << 8) - 1);
	}
	cr_assert_eq(kept_now, 8);
	expect_taken(b, send_write(b, R(0), 0, 64));
	expect_sack(b, R(9), 1);
	close_repeat(b);
}

/* (X6): held requests are kept while there is no receive request; a SACK behind the RNR NAK reports
 * them. */
Test(repeat, x6_not_ready_keeps_what_is_held)
{
	struct bed *b = bed_repeat();

	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(1), .pay_len = 8, .ackreq = true));
	expect_sack(b, R(0), 2);
	expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 8, .ackreq = true));
	expect_rnr(b, R(0), 12, 0);
	expect_sack(b, R(0), 2);
	post_recv(b, 1, 0, 64);
	/* the second has no receive: its bit in the SACK reported it, and now its PSN is
	 * expected */
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 8, .ackreq = true));
	expect_recv(b, 1, SUCCESS);
	expect_rnr(b, R(1), 12, 1);
	expect_sack(b, R(1), 0);
	cr_assert_eq(kept_now, 1);
	post_recv(b, 2, 64, 64);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(1), .pay_len = 8, .ackreq = true));
	expect_recv(b, 2, SUCCESS);
	expect_ack(b, R(1), 2);
	close_repeat(b);
}

/* (X6): an error frees held requests, and so does a reset. */
Test(repeat, x6_error_and_reset_free)
{
	struct bed *b = bed_repeat();

	expect_taken(b, send_write(b, R(1), 0, 64));
	expect_sack(b, R(0), 2);
	expect_drop(b, REQUEST, send_pkt(b, RC_WRITE_MIDDLE, R(0), .pay_len = MTU));
	cr_assert_eq(kept_now, 0);
	expect_nak(b, R(0), INV_REQ, 0);
	expect_event(b, QP_REQ_ERR);
	close_repeat(b);
	b = bed_repeat();
	expect_taken(b, send_write(b, R(1), 0, 64));
	cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
	cr_assert_eq(kept_now, 0);
	close_repeat(b);
}

/* --- the requester --- */

/* (X8, X9, X13): a missing packet is sent again alone, when three packets have overtaken it. */
Test(repeat, x9_only_what_is_lost)
{
	struct bed *b = bed_repeat();

	post(b, RDMA_WRITE, 1, .len = 8 * MTU);
	expect_write(b, 0, 0, 8);
	/* two have overtaken the second: not yet */
	expect_taken(b, send_sack(b, S(1), 2 | 4));
	expect_none(b);
	expect_taken(b, send_sack(b, S(1), 2 | 4 | 8));
	expect_pkt(b, RC_WRITE_MIDDLE, S(1));
	expect_none(b);
	/* the same SACK again: the retransmission is under way */
	expect_taken(b, send_sack(b, S(1), 2 | 4 | 8));
	expect_none(b);
	cr_assert_eq(count(b, RETRANSMITS), 1);
	expect_taken(b, send_ack(b, S(7), 1));
	expect_wc(b, 1, SUCCESS);
	close_repeat(b);
}

/* (X9): the end of a message: when the last packet sent has arrived, no other can overtake the
 * missing one. */
Test(repeat, x9_at_the_end)
{
	struct bed *b = bed_repeat();

	post(b, RDMA_WRITE, 1, .len = 3 * MTU);
	expect_write(b, 0, 0, 3);
	expect_taken(b, send_sack(b, S(1), 2));
	expect_pkt(b, RC_WRITE_MIDDLE, S(1));
	expect_none(b);
	expect_taken(b, send_ack(b, S(2), 1));
	expect_wc(b, 1, SUCCESS);
	close_repeat(b);
}

/* (X9, X11): everything before a SACK's PSN was executed: a missing response is requested, and the
 * request does not count as lost as well, though others have overtaken it. */
Test(repeat, x9_x11_executed_is_not_lost)
{
	struct bed *b = bed_repeat();

	post(b, RDMA_READ, 1, .len = MTU);
	post(b, RDMA_WRITE, 2, .len = 2 * MTU);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_WRITE_FIRST, S(1));
	expect_pkt(b, RC_WRITE_LAST, S(2));
	expect_taken(b, send_sack(b, S(1), 2));
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_WRITE_FIRST, S(1));
	expect_none(b);
	bed_forget(b);
	close_repeat(b);
}

/* (X10): the oldest is sent alone; packets that its acknowledgement does not report were lost,
 * too. */
Test(repeat, x10_timeout)
{
	struct bed *b = bed_repeat();

	post(b, RDMA_WRITE, 1, .len = 4 * MTU);
	expect_write(b, 0, 0, 4);
	advance_time(b, RTO + 20 * US);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_none(b);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1);
	ack(b, S(0), 0);
	expect_write(b, 0, 1, 4);
	expect_none(b);
	expect_taken(b, send_ack(b, S(3), 1));
	expect_wc(b, 1, SUCCESS);
	close_repeat(b);
}

/* (X4): the peer had no room: as after a sequence NAK, once in a round. */
Test(repeat, x4_peer_has_no_room)
{
	struct bed *b = bed_repeat();

	post(b, RDMA_WRITE, 1, .len = 2 * MTU);
	expect_write(b, 0, 0, 2);
	expect_taken(b, send_sack(b, S(0), 1));
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_taken(b, send_sack(b, S(0), 1));
	expect_none(b);
	expect_taken(b, send_ack(b, S(1), 1));
	expect_wc(b, 1, SUCCESS);
	close_repeat(b);
}

/* (X2): sends not beyond the window, whatever the SACK reports. */
Test(repeat, x2_window)
{
	struct bed *b = bed_repeat();
	uint8_t map[WINDOW / 8];
	uint32_t i;

	post(b, RDMA_WRITE, 1, .len = 80 * MTU);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	for (i = 1; i < WINDOW; i++)
		expect_pkt(b, RC_WRITE_MIDDLE, S(i));
	expect_none(b);
	memset(map, 0xff, sizeof(map));
	map[0] = 0xfe;
	expect_taken(b, send_map(b, S(0), map, sizeof(map)));
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_none(b);
	ack(b, S(WINDOW - 1), 0);
	expect_write(b, 0, WINDOW, 80);
	expect_taken(b, send_ack(b, S(79), 1));
	expect_wc(b, 1, SUCCESS);
	close_repeat(b);
}

/* --- what a peer may not report (X8), and that it has no effect --- */

Test(repeat, x8_hostile_sacks)
{
	struct bed *b = bed_repeat();
	uint8_t map[WINDOW / 8 + 4] = {0};

	post(b, RDMA_WRITE, 1, .len = 4 * MTU);
	expect_write(b, 0, 0, 4);
	/* packets that were never sent */
	expect_drop(b, SACK, send_sack(b, S(0), 1u << 4));
	expect_drop(b, SACK, send_sack(b, S(0), 0xffffffffu));
	expect_drop(b, GHOST_ACK, send_sack(b, S(5), 0));
	/* no bitmap, one whose length is no multiple, and one that is longer than the window */
	expect_drop(b, SACK, send_map(b, S(0), map, 0));
	expect_drop(b, SACK, send_map(b, S(0), map, 3));
	expect_drop(b, SACK, send_map(b, S(0), map, sizeof(map)));
	/* it cannot be a NAK */
	expect_drop(b, SACK,
		send_pkt(b, SACK, karst_psn_add(S(0), -1u), .aeth = (uint32_t)KARST_AETH_NAK << 24,
			.pay = map, .pay_len = 4));
	expect_none(b);
	cr_assert_eq(drops(b, SACK), 6);
	/* an old SACK, and a bit that was set and is not any more: that packet still counts as
	 * received */
	ack(b, S(0), 0);
	expect_drop(b, GHOST_ACK, send_sack(b, S(0), 2 | 4));
	expect_taken(b, send_sack(b, S(1), 4));
	expect_pkt(b, RC_WRITE_MIDDLE, S(1));
	expect_pkt(b, RC_WRITE_MIDDLE, S(2));
	expect_taken(b, send_sack(b, S(1), 0));
	expect_none(b);
	/* a peer that reports a packet falsely waits for the timeout, and gets it then */
	expect_taken(b, send_sack(b, S(1), 2));
	ack(b, S(1), 0);
	advance_time(b, RTO + 20 * US);
	expect_pkt(b, RC_WRITE_MIDDLE, S(2));
	expect_taken(b, send_ack(b, S(3), 1));
	expect_wc(b, 1, SUCCESS);
	close_repeat(b);
}

/* (X1): without agreement the opcode is unknown, and a gap is answered by a NAK. */
Test(repeat, x1_not_agreed)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 4 * MTU);
	expect_write(b, 0, 0, 4);
	expect_drop(b, OPCODE, send_sack(b, S(0), 2 | 4 | 8));
	expect_none(b);
	expect_taken(b, send_ack(b, S(3), 1));
	expect_wc(b, 1, SUCCESS);
	expect_drop(b, SEQUENCE, send_write(b, R(1), 0, 64));
	expect_nak(b, R(0), PSN_SEQ, 0);
	bed_close(b);
}

/* (X1, X2): invalid windows, a core that cannot hold requests, a type without selective repeat. */
Test(repeat, x1_what_modify_refuses)
{
	struct bed *b = bed_repeat();
	struct karst_core_qp_attr a = {.repeat_window = 96, .repeat_mem = repeat_mem};

	cr_assert_eq(karst_repeat_bytes(32), 0);
	cr_assert_eq(karst_repeat_bytes(2048), 0);
	cr_assert_eq(karst_repeat_bytes(96), 0);
	cr_assert_neq(karst_repeat_bytes(1024), 0);
	cr_assert_eq(bed_modify(b, &a, KARST_QP_REPEAT), -EINVAL);
	karst_qp_query(b->s->qp, &a);
	cr_assert_eq(a.repeat_window, WINDOW);
	close_repeat(b);
}

/* (X10, Q11): a probe finds a lost tail, which is then sent again alone. */
Test(repeat, x10_q11_probe)
{
	struct bed *b = bed_held(16, true);
	uint64_t began = b->core->now_ns;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		post(b, RDMA_WRITE, i, .len = 1);
		expect_pkt(b, RC_WRITE_ONLY, S(i));
	}
	while (count(b, ADP_RETRANS) == 0 && b->core->now_ns - began < 100000000)
		advance_time(b, 1000);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_none(b);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	/* that was the last packet sent: what was sent before it is lost */
	expect_taken(b, send_ack(b, S(0), 1));
	expect_wc(b, 0, SUCCESS);
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	expect_taken(b, send_ack(b, S(2), 3));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	cr_assert_eq(count(b, RETRANSMITS), 3);
	close_repeat(b);
}

/* (Q2, X1): the agreed window is smaller than ack_interval.  A packet still asks for an
 * acknowledgement before it is full. */
Test(repeat, q2_window_smaller_than_interval)
{
	struct setup s = setup_of(KARST_QPT_RC);
	uint32_t i, asked = 0;
	struct bed *b;

	s.core.ack_interval = 200;
	b = open_repeat(&s, 256);
	post(b, RDMA_WRITE, 1, .len = 100 * MTU);
	for (i = 0; i < WINDOW; i++) {
		const struct karst_pkt *p = expect_at(b, __FILE__, __LINE__,
			i == 0 ? KARST_RC_WRITE_FIRST : KARST_RC_WRITE_MIDDLE, S(i));

		asked += (p->flags & KARST_PKT_ACKREQ) != 0;
	}
	expect_none(b);
	cr_assert_geq(asked, 1, "no packet of the full window asks");
	bed_forget(b);
	close_repeat(b);
}
