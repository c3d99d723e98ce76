/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Queue pairs that get no copy for what they want to send: their order, and their timeouts. */
#include "copy_bed.h"

/* A queue pair that gets no copy is not visited again before it is fed; meanwhile it counts as
 * active. */
Test(copy, message_that_waits_for_a_copy)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 64);
	uint32_t i;

	driver.full = true;
	post(b, SEND, 1, .sge = &sge, .nsge = 1);
	karst_core_doorbell(b->core, b->s->qpn);
	for (i = 0; i < 3; i++) {
		cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp, "visit %u", i);
		cr_assert_null(visit_picked(b, 16, NULL));
		cr_assert(karst_core_has_active(b->core));
		karst_core_feed(b->core, 1);
	}
	driver.full = false;
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	cr_assert_not(karst_core_has_active(b->core));
	cr_assert_eq(copy_once(b, ALL), 1);
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	expect_data(b, expect_pkt(b, RC_SEND_ONLY, S(0)), 0, 64);
	expect_taken(b, send_pkt(b, RC_ACK, S(0)));
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}

/* A queue pair that gets no copy for an answer does not keep that of its request: many that did
 * would wait for each other. */
Test(copy, message_that_is_fetched_in_vain)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 64);
	uint32_t i;

	post(b, SEND, 1, .sge = &sge, .nsge = 1);
	karst_core_doorbell(b->core, b->s->qpn);
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	cr_assert_eq(copy_once(b, ALL), 1);
	expect_taken(
		b, send_pkt(b, RC_READ_REQUEST, R(0), .va = FAR, .rkey = far_key, .dma_len = 64));
	driver.full = true;
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	expect_data(b, expect_pkt(b, RC_SEND_ONLY, S(0)), 0, 64);
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	for (i = 0; i < COPIES; i++)
		cr_assert_not(driver.used[i], "it keeps a copy");
	driver.full = false;
	karst_core_feed(b->core, 1);
	turn(b);
	copy_all(b);
	expect_data(b, expect_pkt(b, RC_READ_RESP_ONLY, R(0)), 0, 64);
	expect_taken(b, send_pkt(b, RC_ACK, S(0)));
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}

/* Posts a SEND from copied memory on @side, which is visited. */
static void
send_far(struct bed *b, struct side *side)
{
	const struct karst_sge sge = FAR_SGE(0, 64);

	b->s = side;
	post(b, SEND, 1, .sge = &sge, .nsge = 1);
	karst_core_doorbell(b->core, side->qpn);
}

/* A queue pair that has used up its copy waits behind others of its user that have none. */
Test(copy, copies_go_round)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = open_far_with(&s);
	struct side *first = b->s, *second = bed_add(b, &s);

	turn(b);
	send_far(b, first);
	cr_assert_eq(visit_picked(b, 16, NULL), first->qp);
	driver.full = true;
	send_far(b, second);
	cr_assert_eq(visit_picked(b, 16, NULL), second->qp);
	driver.full = false;
	cr_assert_eq(copy_once(b, ALL), 1);
	send_far(b, first);
	cr_assert_eq(visit_picked(b, 16, NULL), first->qp);
	cr_assert_eq(driver.ntodo, 0, "it has the next copy");
	cr_assert_null(visit_picked(b, 16, NULL));
	karst_core_feed(b->core, 2);
	cr_assert_not_null(visit_picked(b, 16, NULL));
	cr_assert_not_null(visit_picked(b, 16, NULL));
	cr_assert_eq(driver.ntodo, 2);
	copy_all(b);
	b->out_head = b->out_tail;
	bed_destroy_side(b, second);
	b->s = first;
	bed_destroy_side(b, first);
	close_far(b);
}

/* Users whose queue pairs wait for copies take turns. */
Test(copy, waiting_users_take_turns)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct side *side[4];
	struct bed *b;
	uint32_t i;

	s.core.max_sharers = 2;
	b = open_far_with(&s);
	side[1] = bed_add(b, &s);
	side[2] = bed_add(b, &s);
	s.qp.sharer = 1;
	side[0] = bed_add(b, &s);
	side[3] = &b->side[0];
	turn(b);
	driver.full = true;
	for (i = 0; i < 4; i++) {
		send_far(b, side[i]);
		cr_assert_eq(visit_picked(b, 16, NULL), side[i]->qp);
	}
	driver.full = false;
	karst_core_feed(b->core, 2);
	cr_assert_neq(visit_picked(b, 16, NULL), visit_picked(b, 16, NULL));
	cr_assert_eq(driver.ntodo, 2);
	cr_assert(driver.todo[0]->qp == side[0]->qp || driver.todo[1]->qp == side[0]->qp,
		"a user waits behind another one's queue pairs");
	karst_core_feed(b->core, 4);
	copy_all(b);
	b->out_head = b->out_tail;
	for (i = 0; i < 4; i++)
		bed_destroy_side(b, side[i]);
	close_far(b);
}

/* Of one user, the queue pair that has waited for longest tries first, and one that has tried in
 * vain is the last. */
Test(copy, first_come_first_served)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = open_far_with(&s);
	struct side *side[4] = {b->s};
	uint32_t i;

	for (i = 1; i < 4; i++)
		side[i] = bed_add(b, &s);
	turn(b);
	driver.full = true;
	for (i = 0; i < 4; i++) {
		send_far(b, side[i]);
		cr_assert_eq(visit_picked(b, 16, NULL), side[i]->qp);
	}
	karst_core_feed(b->core, 1);
	cr_assert_eq(visit_picked(b, 16, NULL), side[0]->qp, "it came first");
	/* the last one, and one between others, leave */
	karst_core_activate(b->core, side[0]->qp);
	bed_destroy_side(b, side[0]);
	bed_destroy_side(b, side[2]);
	karst_core_feed(b->core, 1);
	cr_assert_eq(visit_picked(b, 16, NULL), side[1]->qp);
	driver.full = false;
	karst_core_feed(b->core, 1);
	cr_assert_eq(visit_picked(b, 16, NULL), side[3]->qp);
	karst_core_feed(b->core, 1);
	cr_assert_eq(visit_picked(b, 16, NULL), side[1]->qp);
	cr_assert_not(karst_core_has_active(b->core));
	copy_all(b);
	b->out_head = b->out_tail;
	bed_destroy_side(b, side[1]);
	bed_destroy_side(b, side[3]);
	close_far(b);
}

/* Requests that need no copy do not wait for an answer that gets none. */
Test(copy, request_beside_an_answer_without_copy)
{
	struct bed *b = open_far(KARST_QPT_RC);

	turn(b);
	driver.full = true;
	expect_taken(
		b, send_pkt(b, RC_READ_REQUEST, R(0), .va = FAR, .rkey = far_key, .dma_len = 64));
	post(b, SEND, 1, .len = 64);
	karst_core_doorbell(b->core, b->s->qpn);
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_taken(b, send_pkt(b, RC_ACK, S(0)));
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	driver.full = false;
	karst_core_feed(b->core, 1);
	turn(b);
	copy_all(b);
	expect_data(b, expect_pkt(b, RC_READ_RESP_ONLY, R(0)), 0, 64);
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}

/* A repetition that gets no copy does not use up retries. */
Test(copy, no_timeout_without_copy)
{
	struct bed *b = open_far(KARST_QPT_RC);
	uint32_t i;

	send_far(b, b->s);
	turn(b);
	copy_all(b);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	driver.full = true;
	for (i = 0; i < 32; i++) {
		b->core->now_ns += 10000 * MS;
		karst_core_expire(b->core, 1000);
		karst_core_feed(b->core, 1);
		while (visit_picked(b, 16, NULL) != NULL)
			;
	}
	cr_assert_leq(count(b, LOCAL_ACK_TIMEOUT), 1);
	driver.full = false;
	karst_core_feed(b->core, 1);
	turn(b);
	copy_all(b);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_taken(b, send_pkt(b, RC_ACK, S(0)));
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}

/* Makes time pass in which the queue pair tries to get copies. */
static void
wait_in_vain(struct bed *b)
{
	uint32_t i;

	driver.full = true;
	for (i = 0; i < 32; i++) {
		b->core->now_ns += 10000 * MS;
		karst_core_expire(b->core, 1000);
		karst_core_feed(b->core, 1);
		while (visit_picked(b, 16, NULL) != NULL)
			;
	}
	driver.full = false;
}

/* (Q6): a peer that is gone is noticed, although the next request gets no copy. */
Test(copy, q6_timeout_beside_a_request_without_copy)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.retry_cnt = 0;
	b = open_far_with(&s);
	send_far(b, b->s);
	turn(b);
	copy_all(b);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	driver.full = true;
	send_far(b, b->s);
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	wait_in_vain(b);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1, "the peer's silence is not noticed");
	expect_wc(b, 1, RETRY_EXC_ERR);
	expect_wc(b, 1, WR_FLUSH_ERR);
	expect_state(b, ERR);
	close_far(b);
}

/* Posts a WRITE that needs two copies. */
static void
post_long(struct bed *b, uint64_t id)
{
	const struct karst_sge sge = FAR_SGE(0, (KARST_COPY_AHEAD + 4) * MTU);

	post(b, RDMA_WRITE, id, .sge = &sge, .nsge = 1);
	turn(b);
}

/* Sends what the first copy of a long WRITE holds, from @psn on.  The second copy is refused. */
static void
refuse_rest(struct bed *b, uint32_t psn)
{
	uint32_t i;

	cr_assert_eq(copy_once(b, ALL), 1);
	driver.full = true;
	while (visit_picked(b, 32, NULL) != NULL)
		;
	expect_pkt(b, RC_WRITE_FIRST, S(psn));
	for (i = 1; i < KARST_COPY_AHEAD; i++)
		expect_pkt(b, RC_WRITE_MIDDLE, S(psn + i));
	expect_none(b);
}

/* (Q6): the peer owes nothing as long as the packet that asks it to acknowledge gets no copy. */
Test(copy, q6_no_timeout_in_a_message_without_copy)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.attr.retry_cnt = 0;
	b = open_far_with(&s);
	post_long(b, 1);
	refuse_rest(b, 0);
	wait_in_vain(b);
	expect_no_wc(b);
	karst_core_feed(b->core, 1);
	turn(b);
	copy_all(b);
	for (i = KARST_COPY_AHEAD; i < KARST_COPY_AHEAD + 3; i++)
		expect_pkt(b, RC_WRITE_MIDDLE, S(i));
	expect_pkt(b, RC_WRITE_LAST, S(i));
	expect_taken(b, send_pkt(b, RC_ACK, S(i)));
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}

/* (Q6, Q11): a probe inside a message of which no packet has asked yet sends it again from its
 * first packet, and that asks. */
Test(copy, q6_probe_in_a_message_without_copy)
{
	struct setup s = setup_of(KARST_QPT_RC);
	const struct karst_pkt *p;
	struct bed *b;
	uint32_t i;

	s.core.early_retransmission = true;
	b = open_far_with(&s);
	post_long(b, 1);
	refuse_rest(b, 0);
	driver.full = false;
	for (i = 0; i < 100 && b->out_head == b->out_tail; i++) {
		b->core->now_ns += 100000;
		karst_core_expire(b->core, 1000);
		turn(b);
		copy_once(b, ALL);
		turn(b);
	}
	p = expect_pkt(b, RC_WRITE_FIRST, S(0));
	cr_assert(p->flags & KARST_PKT_ACKREQ);
	b->out_head = b->out_tail;
	close_far(b);
}

/* (Q6): time that has passed without a copy does not count either when there may be one again. */
Test(copy, q6_no_timeout_before_the_next_attempt)
{
	struct bed *b = open_far(KARST_QPT_RC);

	send_far(b, b->s);
	turn(b);
	copy_all(b);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	driver.full = true;
	b->core->now_ns += 4 * RTO;
	karst_core_expire(b->core, 1000);
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1);
	/* nearly as long as a repetition may wait, with two retries left */
	b->core->now_ns += 2 * 3 * RTO - 1;
	karst_core_feed(b->core, 1);
	b->core->now_ns += RTO;
	karst_core_expire(b->core, 1000);
	expect_state(b, RTS);
	driver.full = false;
	turn(b);
	copy_all(b);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_taken(b, send_pkt(b, RC_ACK, S(0)));
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}

/* Posts a WRITE that needs two copies, and sends the first packets of it. */
static void
begin_long(struct bed *b)
{
	uint32_t i;

	post_long(b, 1);
	cr_assert_eq(copy_once(b, ALL), 1);
	visit_picked(b, 4, NULL);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	for (i = 1; i < 4; i++)
		expect_pkt(b, RC_WRITE_MIDDLE, S(i));
	expect_none(b);
}

/* No time limit has been exceeded; the rest of the WRITE is sent. */
static void
end_long(struct bed *b, uint32_t next)
{
	b->core->now_ns += RTO / 2;
	karst_core_expire(b->core, 1000);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0, "the peer owes nothing");
	expect_no_wc(b);
	turn(b);
	copy_all(b);
	for (; next < KARST_COPY_AHEAD + 3; next++)
		expect_pkt(b, RC_WRITE_MIDDLE, S(next));
	expect_pkt(b, RC_WRITE_LAST, S(next));
	expect_taken(b, send_pkt(b, RC_ACK, S(next)));
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}

/* (Q6): a visit that sends something, and gets no copy for the rest, shows that the peer owes
 * nothing: the time that has passed does not count. */
Test(copy, q6_no_timeout_after_a_visit_that_was_refused)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.attr.retry_cnt = 0;
	/* one visit may send all that was copied, and then asks for more */
	s.core.quantum_bytes = 1 << 18;
	b = open_far_with(&s);
	begin_long(b);
	b->core->now_ns += RTO - 1;
	driver.full = true;
	visit_picked(b, 32, NULL);
	for (i = 4; i < KARST_COPY_AHEAD; i++)
		expect_pkt(b, RC_WRITE_MIDDLE, S(i));
	cr_assert_eq(b->out_head, b->out_tail);
	driver.full = false;
	end_long(b, i);
}

/* (Q6): the same after a copy that came late. */
Test(copy, q6_no_timeout_after_a_late_copy)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.attr.retry_cnt = 0;
	b = open_far_with(&s);
	begin_long(b);
	visit_picked(b, 32, NULL);
	for (i = 4; i < KARST_COPY_AHEAD; i++)
		expect_pkt(b, RC_WRITE_MIDDLE, S(i));
	expect_none(b);
	b->core->now_ns += RTO - 1;
	cr_assert_eq(copy_once(b, ALL), 1);
	end_long(b, i);
}

static void
answer_read(struct bed *b, uint8_t opcode, uint32_t i)
{
	expect_taken(b,
		bed_rx(b,
			&(struct karst_ib_hdrs){.psn = S(i),
				.opcode = opcode,
				.aeth = 0x1f000000,
				.pay = b->pattern + i * MTU,
				.pay_len = MTU}));
}

/* (Q6, X11): a part of a READ is requested again, after packets of a later message that ask for
 * nothing: when it has come, the peer owes nothing. */
Test(copy, q6_no_timeout_behind_a_gap)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.attr.retry_cnt = 0;
	s.attr.max_rd_atomic = 8;
	b = open_far_with(&s);
	post(b, RDMA_READ, 1, .len = 3 * MTU);
	post_long(b, 2);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	refuse_rest(b, 3);
	answer_read(b, KARST_RC_READ_RESP_FIRST, 0);
	answer_read(b, KARST_RC_READ_RESP_LAST, 2);
	while (visit_picked(b, 32, NULL) != NULL)
		;
	expect_pkt(b, RC_READ_REQUEST, S(1));
	answer_read(b, KARST_RC_READ_RESP_MIDDLE, 1);
	while (visit_picked(b, 32, NULL) != NULL)
		;
	expect_wc(b, 1, SUCCESS);
	wait_in_vain(b);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0, "the peer owes nothing");
	karst_core_feed(b->core, 1);
	turn(b);
	copy_all(b);
	for (i = KARST_COPY_AHEAD + 3; i < KARST_COPY_AHEAD + 6; i++)
		expect_pkt(b, RC_WRITE_MIDDLE, S(i));
	expect_pkt(b, RC_WRITE_LAST, S(i));
	expect_taken(b, send_pkt(b, RC_ACK, S(i)));
	expect_wc(b, 2, SUCCESS);
	close_far(b);
}

/* (Q6, Q11): a peer that is gone is noticed although the packet of each probe has to be copied. */
Test(copy, q6_timeout_beside_probes_that_are_copied)
{
	const uint64_t rto = 4096ull << 14;
	struct setup s = setup_of(KARST_QPT_RC);
	uint64_t begin, now;
	struct bed *b;

	s.attr.retry_cnt = 0;
	s.attr.timeout = 14;
	s.core.early_retransmission = true;
	b = open_far_with(&s);
	send_far(b, b->s);
	turn(b);
	copy_all(b);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	begin = b->core->now_ns;
	for (now = begin; count(b, LOCAL_ACK_TIMEOUT) == 0 && now - begin < 4 * rto;) {
		now += 100000;
		b->core->now_ns = now;
		karst_core_expire(b->core, 1000);
		turn(b);
		copy_all(b);
	}
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1, "the peer's silence is not noticed");
	expect_wc(b, 1, RETRY_EXC_ERR);
	expect_state(b, ERR);
	cr_assert_leq(b->out_tail - b->out_head, 6, "%u probes", b->out_tail - b->out_head);
	b->out_head = b->out_tail;
	close_far(b);
}

/* R2: requests for which there was no room behind a parked one are requested by a sequence NAK when
 * its copy is made, also if no other packet follows. */
Test(copy, r2_behind_a_full_backlog)
{
	struct bed *b = open_far(KARST_QPT_RC);
	uint32_t i;

	expect_taken(b, write_far(b, 0, 0, 64));
	for (i = 1; i <= KARST_COPY_BACKLOG; i++)
		expect_taken(b, send_write(b, R(i), 1024, 8));
	expect_drop(b, COPY_FULL, send_write(b, R(i), 1024, 8));
	expect_drop(b, COPY_FULL, send_write(b, R(i + 1), 1024, 8));
	expect_none(b);
	copy_all(b);
	expect_nak(b, R(i), PSN_SEQ, i);
	expect_taken(b, send_write(b, R(i), 1024, 8));
	expect_taken(b, send_write(b, R(i + 1), 1024, 8));
	expect_ack(b, R(i + 1), i + 2);
	close_far(b);
}
