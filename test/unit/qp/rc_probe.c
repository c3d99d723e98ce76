/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Early retransmission of the RC requester: when it probes, with which packet, and what follows
 * (Q11, Q12). */
#include "harness.h"
#include "qp_priv.h"

#define TICK    4096u
#define FLOOR   (16 * TICK)
#define MAX     6 /* probes in one period of silence */
#define TIMEOUT (4096ull << 12)
/* a timer fires at most two ticks late */
#define LATE (2 * TICK)

static struct bed *
bed_probing(uint8_t retry_cnt)
{
	struct setup s = setup_of(KARST_QPT_RC);

	s.core.early_retransmission = true;
	s.attr.retry_cnt = retry_cnt;
	s.attr.timeout = 12;
	s.attr.max_rd_atomic = 4;
	return bed_open(&s);
}

static struct bed *
bed_timeout(uint8_t timeout)
{
	struct setup s = setup_of(KARST_QPT_RC);

	s.core.early_retransmission = true;
	s.attr.timeout = timeout;
	return bed_open(&s);
}

/* Sends WRITE S(@i) of one packet, which is acknowledged after @ns. */
static void
round_trip(struct bed *b, uint32_t i, uint64_t ns)
{
	post(b, RDMA_WRITE, i, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(i));
	advance_time(b, ns);
	expect_taken(b, send_ack(b, S(i), i + 1));
	expect_wc(b, i, SUCCESS);
}

/* Time until the next probe. */
static uint64_t
until_probe(struct bed *b)
{
	uint64_t began = b->core->now_ns, n = count(b, ADP_RETRANS);

	while (count(b, ADP_RETRANS) == n && b->core->now_ns - began < TIMEOUT)
		advance_time(b, TICK / 4);
	return b->core->now_ns - began;
}

/* Q11: a single packet is sent again after the shortest wait, long before the timeout; and with
 * AckReq. */
Test(rc_probe, q11_tail)
{
	struct bed *b = bed_probing(3);
	const struct karst_pkt *p;
	uint64_t t;

	round_trip(b, 0, 10 * US);
	post(b, RDMA_WRITE, 1, .len = 3);
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	advance_time(b, FLOOR - TICK);
	expect_none(b);
	t = until_probe(b);
	cr_assert_leq(t, TICK + LATE + TICK);
	p = expect_pkt(b, RC_WRITE_ONLY, S(1));
	cr_assert(p->flags & KARST_PKT_ACKREQ);
	expect_data(b, p, 0, 3);
	expect_none(b);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	cr_assert_eq(count(b, RETRANSMITS), 1);
	expect_taken(b, send_ack(b, S(1), 2));
	expect_wc(b, 1, SUCCESS);
	/* nothing is outstanding: no clock runs */
	advance_time(b, 100 * TIMEOUT);
	cr_assert_eq(count(b, ADP_RETRANS), 1);
	bed_close(b);
}

/* Q11: a requester that has measured longer round trips waits for two of them; short ones reduce
 * the wait only slowly. */
Test(rc_probe, q11_round_trips)
{
	struct bed *b = bed_probing(3);
	uint64_t first;
	uint32_t i;

	round_trip(b, 0, 300 * US);
	for (i = 1; i < 5; i++)
		round_trip(b, i, 10 * US);
	post(b, RDMA_WRITE, 5, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(5));
	first = until_probe(b);
	cr_assert_geq(first, 2 * 270 * US);
	cr_assert_leq(first, 2 * 300 * US + LATE);
	expect_pkt(b, RC_WRITE_ONLY, S(5));
	advance_time(b, 10 * US);
	expect_taken(b, send_ack(b, S(5), 6));
	expect_wc(b, 5, SUCCESS);
	for (i = 6; i < 400; i++)
		round_trip(b, i, 10 * US);
	post(b, RDMA_WRITE, i, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(i));
	cr_assert_leq(until_probe(b), FLOOR + LATE + TICK);
	bed_forget(b);
	bed_close(b);
}

/* Q11: the probes of one silence come at intervals that double, and there are six; none of them
 * uses a retry, and the timeout comes when it would have come without them. */
Test(rc_probe, q11_few_and_fewer)
{
	struct bed *b = bed_probing(1);
	uint64_t began, at = 0;
	unsigned int i;

	round_trip(b, 0, 10 * US);
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	began = b->core->now_ns;
	for (i = 0; i < MAX; i++) {
		uint64_t t = until_probe(b);

		cr_assert_geq(
			t + TICK, (uint64_t)FLOOR << i, "probe %u after %u ns", i, (unsigned)t);
		cr_assert_leq(t, ((uint64_t)FLOOR << i) + LATE + TICK, "probe %u", i);
		expect_pkt(b, RC_WRITE_ONLY, S(1));
		expect_none(b);
	}
	while (count(b, LOCAL_ACK_TIMEOUT) == 0) {
		advance_time(b, TICK);
		at = b->core->now_ns - began;
	}
	cr_assert_geq(at, TIMEOUT);
	cr_assert_leq(at, TIMEOUT + LATE + TICK);
	cr_assert_eq(count(b, ADP_RETRANS), MAX);
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	/* none after a timeout */
	advance_time(b, TIMEOUT - LATE);
	expect_none(b);
	expect_no_wc(b);
	advance_time(b, TIMEOUT);
	expect_wc(b, 1, RETRY_EXC_ERR);
	cr_assert_eq(count(b, ADP_RETRANS), MAX);
	bed_forget(b);
	bed_close(b);
}

/* Q11: probes work without any retry left. */
Test(rc_probe, q11_spends_nothing)
{
	struct bed *b = bed_probing(0);
	uint32_t i;

	for (i = 0; i < 20; i++) {
		post(b, RDMA_WRITE, i, .len = 1);
		expect_pkt(b, RC_WRITE_ONLY, S(i));
		until_probe(b);
		expect_pkt(b, RC_WRITE_ONLY, S(i));
		expect_taken(b, send_ack(b, S(i), i + 1));
		expect_wc(b, i, SUCCESS);
	}
	cr_assert_eq(count(b, ADP_RETRANS), 20);
	bed_close(b);
}

/* Q11, Q4: the NAK was lost.  Only the probe is sent; packets behind it are sent again when it is
 * acknowledged, and nothing else is. */
Test(rc_probe, q11_lost_nak)
{
	struct bed *b = bed_probing(3);
	uint32_t i;

	round_trip(b, 0, 10 * US);
	post(b, RDMA_WRITE, 1, .len = 5 * MTU);
	expect_write(b, 1, 0, 5);
	expect_taken(b, send_ack(b, S(1), 1));
	until_probe(b);
	expect_pkt(b, RC_WRITE_MIDDLE, S(2));
	expect_none(b);
	expect_taken(b, send_ack(b, S(2), 1));
	for (i = 3; i < 5; i++)
		expect_pkt(b, RC_WRITE_MIDDLE, S(i));
	expect_pkt(b, RC_WRITE_LAST, S(5));
	expect_none(b);
	expect_taken(b, send_ack(b, S(5), 2));
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(count(b, ADP_RETRANS), 1);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	bed_close(b);
}

/* Expects packets S(@from) to before S(@to), from the middle of a WRITE. */
static void
expect_middle_of(struct bed *b, uint32_t from, uint32_t to)
{
	while (from < to)
		expect_pkt(b, RC_WRITE_MIDDLE, S(from++));
}

/* The same, and nothing behind them. */
static void
expect_middle(struct bed *b, uint32_t from, uint32_t to)
{
	expect_middle_of(b, from, to);
	expect_none(b);
}

/* Q11: retransmission starts with 8 packets, one more for each that is acknowledged, up to half of
 * what was outstanding; from there on one more in a round trip. */
Test(rc_probe, q11_begins_gently)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.core.early_retransmission = true;
	s.core.window_packets = 64;
	s.attr.timeout = 12;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 200 * MTU);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_middle(b, 1, 64);
	until_probe(b);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_none(b);
	ack(b, S(0), 0);
	expect_middle(b, 1, 9);
	ack(b, S(8), 0);
	expect_middle(b, 9, 25);
	ack(b, S(24), 0);
	expect_middle(b, 25, 57);
	ack(b, S(56), 0);
	expect_middle(b, 57, 90);
	ack(b, S(89), 0);
	expect_middle(b, 90, 124);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	bed_forget(b);
	bed_close(b);
}

/* Q11: the peer was only slow.  One packet was sent for nothing, and the second answer is a ghost
 * ACK. */
Test(rc_probe, q11_in_vain)
{
	struct bed *b = bed_probing(3);

	round_trip(b, 0, 10 * US);
	post(b, RDMA_WRITE, 1, .len = 5 * MTU);
	expect_write(b, 1, 0, 5);
	until_probe(b);
	expect_pkt(b, RC_WRITE_FIRST, S(1));
	expect_taken(b, send_ack(b, S(5), 2));
	expect_wc(b, 1, SUCCESS);
	expect_drop(b, GHOST_ACK, send_ack(b, S(5), 2));
	expect_none(b);
	cr_assert_eq(count(b, RETRANSMITS), 1);
	bed_close(b);
}

/* Q11: after a peer was slow the wait is longer: twice about half of the time that the peer
 * took. */
Test(rc_probe, q11_learns)
{
	struct bed *b = bed_probing(3);
	uint64_t first;
	uint32_t i;

	round_trip(b, 0, 10 * US);
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	for (i = 0; i < 3; i++) {
		until_probe(b);
		expect_pkt(b, RC_WRITE_ONLY, S(1));
	}
	advance_time(b, 7 * FLOOR);
	expect_none(b);
	expect_taken(b, send_ack(b, S(1), 2));
	expect_wc(b, 1, SUCCESS);
	post(b, RDMA_WRITE, 2, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	first = until_probe(b);
	cr_assert_geq(first, 2 * 7 * FLOOR - TICK);
	cr_assert_leq(first, 2 * 7 * FLOOR + 2 * LATE);
	bed_forget(b);
	bed_close(b);
}

/* Q11, Q5: a READ is requested from its first missing response on; the next READ, whose request the
 * peer has not accepted, when that one is complete. */
Test(rc_probe, q11_read)
{
	struct bed *b = bed_probing(3);
	const struct karst_pkt *p;

	round_trip(b, 0, 10 * US);
	post(b, RDMA_READ, 1, .len = 3 * MTU);
	post(b, RDMA_READ, 2, .len = MTU);
	expect_pkt(b, RC_READ_REQUEST, S(1));
	expect_pkt(b, RC_READ_REQUEST, S(4));
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(1), .pay = b->pattern, .pay_len = MTU));
	until_probe(b);
	p = expect_pkt(b, RC_READ_REQUEST, S(2));
	cr_assert_eq(p->va, PEER_VA + MTU);
	cr_assert_eq(p->dma_len, 2 * MTU);
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(2), .pay = b->pattern, .pay_len = MTU));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_LAST, S(3), .pay = b->pattern, .pay_len = MTU));
	expect_wc(b, 1, SUCCESS);
	expect_pkt(b, RC_READ_REQUEST, S(4));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(4), .pay = b->pattern, .pay_len = MTU));
	expect_wc(b, 2, SUCCESS);
	cr_assert_eq(count(b, ADP_RETRANS), 1);
	bed_close(b);
}

/* Q11: a READ that may not be requested again, because max_rd_atomic was lowered to 0 meanwhile:
 * the probe is not sent, and the queue pair is not visited again and again for it. */
Test(rc_probe, q11_read_not_allowed)
{
	struct karst_core_qp_attr attr = {.max_rd_atomic = 0};
	struct bed *b = bed_probing(3);
	unsigned int i, visits;

	round_trip(b, 0, 10 * US);
	post(b, RDMA_READ, 1, .len = 1);
	expect_pkt(b, RC_READ_REQUEST, S(1));
	cr_assert_eq(bed_to_state(b, KARST_QPS_SQD), 0);
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_MAX_QP_RD_ATOMIC), 0);
	for (i = 0; i < 2; i++) {
		b->core->now_ns += 2 * FLOOR + LATE;
		karst_core_expire(b->core, 8);
		cr_assert(b->s->qp->req.probe_due);
		for (visits = 0; visits < 100 && visit_picked(b, 1, NULL) != NULL; visits++)
			;
		cr_assert_lt(visits, 100, "visited for ever");
		cr_assert_not(b->s->qp->req.probe_due);
	}
	expect_none(b);
	cr_assert_eq(count(b, ADP_RETRANS), 0);
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(1), .pay = b->pattern, .pay_len = 1));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* Q11, Q7: a requester that waits after an RNR NAK does not probe; nor does that wait count as a
 * round trip. */
Test(rc_probe, q11_not_while_the_peer_is_not_ready)
{
	struct bed *b = bed_probing(3);

	round_trip(b, 0, 10 * US);
	post(b, SEND, 1, .len = 1);
	expect_pkt(b, RC_SEND_ONLY, S(1));
	expect_taken(b, send_pkt(b, RC_ACK, S(1), .aeth = 0x2c000000)); /* 0.64 ms */
	advance_time(b, 600 * US);
	expect_none(b);
	advance_time(b, 50 * US);
	expect_pkt(b, RC_SEND_ONLY, S(1));
	cr_assert_eq(count(b, ADP_RETRANS), 0);
	cr_assert_leq(until_probe(b), FLOOR + LATE + TICK);
	expect_pkt(b, RC_SEND_ONLY, S(1));
	expect_taken(b, send_ack(b, S(1), 2));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* Q11: timeout 0 means no timer, and there is none. */
Test(rc_probe, q11_timeout_0)
{
	struct bed *b = bed_timeout(0);

	post(b, RDMA_WRITE, 1, .len = 1);
	expect_write(b, 0, 0, 1);
	advance_time(b, 3600ull * 1000 * MS);
	expect_none(b);
	expect_taken(b, send_ack(b, S(0), 1));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* Q11: a timeout that is shorter than the wait comes first. */
Test(rc_probe, q11_short_timeout)
{
	struct bed *b = bed_timeout(3);

	post(b, RDMA_WRITE, 1, .len = 1);
	expect_write(b, 0, 0, 1);
	advance_time(b, (4096 << 3) + LATE);
	expect_write(b, 0, 0, 1);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1);
	cr_assert_eq(count(b, ADP_RETRANS), 0);
	expect_taken(b, send_ack(b, S(0), 1));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* Q11: a late NAK has its usual effect; the probe is forgotten. */
Test(rc_probe, q11_late_nak)
{
	struct bed *b = bed_probing(3);

	round_trip(b, 0, 10 * US);
	post(b, RDMA_WRITE, 1, .len = 2 * MTU);
	expect_write(b, 1, 0, 2);
	until_probe(b);
	expect_pkt(b, RC_WRITE_FIRST, S(1));
	expect_taken(b, send_nak(b, S(1), 0));
	expect_write(b, 1, 0, 2);
	expect_taken(b, send_ack(b, S(1), 1));
	expect_none(b);
	expect_taken(b, send_ack(b, S(2), 2));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* Q11: a request that its program has changed meanwhile fails as it does for any retransmission
 * (Q6). */
Test(rc_probe, q11_changed)
{
	struct bed *b = bed_probing(3);
	struct karst_send_wqe *w;

	round_trip(b, 0, 10 * US);
	w = bed_slot(b);
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	w->opcode = KARST_WR_RDMA_READ;
	advance_time(b, 2 * FLOOR);
	expect_wc(b, 1, LOC_QP_OP_ERR);
	expect_state(b, ERR);
	cr_assert_eq(count(b, SQ_CORRUPT), 1);
	bed_forget(b);
	bed_close(b);
}

#define OTHERS 60u

/* OTHERS queue pairs, each of a user of its own (@alone) or all of user 1, wait for a peer, and
 * then one of user @sharer does.  @return the number of ticks after which that one probes. */
static unsigned int
ticks_of_one(bool alone, uint32_t sharer)
{
	struct setup s = setup_of(KARST_QPT_RC);
	unsigned int i, n;
	struct bed *b;

	s.core.early_retransmission = true;
	s.core.max_qps = 2 * OTHERS;
	s.core.max_sharers = OTHERS + 1;
	s.attr.timeout = 12;
	s.qp.sharer = sharer;
	b = bed_open(&s);
	for (i = 1; i <= OTHERS; i++) {
		s.qp.sharer = alone ? i : 1;
		bed_add(b, &s);
	}
	for (i = 1; i <= OTHERS; i++) {
		b->s = &b->side[i];
		post(b, RDMA_WRITE, 1, .len = 1);
		expect_pkt(b, RC_WRITE_ONLY, S(0));
	}
	b->s = &b->side[0];
	b->s->qp->probe.rtt_ns = 1;
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	for (n = 0; n < 10 * OTHERS && b->s->qp->req.probes == 0; n++) {
		advance_time(b, TICK);
		b->out_head = b->out_tail;
	}
	for (i = 0; i < b->nsides; i++)
		bed_destroy_side(b, &b->side[i]);
	cr_assert_eq(b->core->timing.nusers, 0);
	cr_assert_eq(b->core->timing.count, 0);
	bed_close(b);
	return n;
}

/* Q11: with many timers armed each waits longer, so that no tick has more than one of them.  A user
 * who has few of them does not wait longer because others have many. */
Test(rc_probe, q11_many)
{
	unsigned int n;

	n = ticks_of_one(false, 1);
	cr_assert(n >= OTHERS && n <= OTHERS + 3, "with his own others: %u ticks", n);
	n = ticks_of_one(true, 0);
	cr_assert(n >= OTHERS && n <= OTHERS + 3, "with as many users: %u ticks", n);
	n = ticks_of_one(false, 0);
	cr_assert(n >= 16 && n <= 16 + 3, "with those of another user: %u ticks", n);
}

/* A WRITE of 256 packets, of which a window of @packets has been sent, without early
 * retransmission. */
static struct bed *
bed_full(uint32_t packets)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.core.window_packets = packets;
	s.attr.timeout = 12;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 256 * MTU);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_middle(b, 1, packets);
	return b;
}

/* The same, and the packet behind the first window was lost, as a NAK tells, so it is the oldest.
 * Seven eighths of a window may be outstanding. */
static struct bed *
bed_wary(uint32_t packets)
{
	struct bed *b = bed_full(packets);

	ack(b, S(packets - 1), 0);
	expect_middle(b, packets, 2 * packets);
	expect_taken(b, send_nak(b, S(packets), 0));
	return b;
}

/* Q12: these packets are sent, then the oldest once more, because the window is full, and nothing
 * else. */
static void
expect_wary(struct bed *b, uint32_t from, uint32_t to, uint32_t oldest)
{
	expect_middle_of(b, from, to);
	expect_pkt(b, RC_WRITE_MIDDLE, S(oldest));
	expect_none(b);
}

/* Q12: a retransmission is lost again, without a NAK.  When as much as may be outstanding has been
 * sent behind it, the oldest packet is sent once more with AckReq, long before the timeout; the
 * answer shows the rest. */
Test(rc_probe, q12_lost_again)
{
	struct bed *b = bed_wary(64);
	const struct karst_pkt *p;

	expect_middle_of(b, 64, 120);
	p = expect_pkt(b, RC_WRITE_MIDDLE, S(64));
	cr_assert(p->flags & KARST_PKT_ACKREQ);
	expect_none(b);
	/* only once */
	expect_drop(b, GHOST_ACK, send_ack(b, S(63), 0));
	expect_none(b);
	ack(b, S(64), 0);
	expect_wary(b, 120, 121, 65);
	expect_taken(b, send_nak(b, S(65), 0));
	expect_wary(b, 65, 121, 65);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	cr_assert_eq(count(b, ADP_RETRANS), 0);
	bed_forget(b);
	bed_close(b);
}

/* Q12: a NAK is lost shortly after another one. */
Test(rc_probe, q12_lost_nak)
{
	struct bed *b = bed_wary(64);

	expect_wary(b, 64, 120, 64);
	/* all packets have arrived: one more may be sent than before */
	ack(b, S(119), 0);
	expect_wary(b, 120, 177, 120);
	bed_forget(b);
	bed_close(b);
}

/* Q12: the lost NAK was for a packet further on than the last acknowledgement.  The answer to the
 * first retransmission tells where that packet is, and the second retransmission is that packet. */
Test(rc_probe, q12_lost_nak_further_on)
{
	struct bed *b = bed_wary(64);

	expect_middle_of(b, 64, 120);
	expect_pkt(b, RC_WRITE_MIDDLE, S(64));
	ack(b, S(100), 0);
	/* 56 may be outstanding, and 19 were */
	expect_wary(b, 120, 157, 101);
	ack(b, S(110), 0);
	expect_wary(b, 157, 167, 111);
	/* there is no third one */
	ack(b, S(120), 0);
	expect_middle(b, 167, 178);
	bed_forget(b);
	bed_close(b);
}

/* Q12: while acknowledgements arrive, few packets are sent between them, and none unnecessarily
 * except the second. */
Test(rc_probe, q12_flows)
{
	struct bed *b = bed_wary(64);
	uint32_t from, to = 120, window = 56, acked = 0;

	expect_wary(b, 64, to, 64);
	for (from = 64; from < 64 + 96; from += 16) {
		ack(b, S(from + 15), 0);
		acked += 16;
		if (acked >= window) {
			acked = 0;
			window++;
		}
		expect_middle_of(b, to, from + 16 + window);
		to = from + 16 + window;
		if (from == 64)
			expect_pkt(b, RC_WRITE_MIDDLE, S(80));
		expect_none(b);
	}
	bed_forget(b);
	bed_close(b);
}

/* Q12: the limit grows by one packet in each round, and when it is the whole window everything is
 * as before. */
Test(rc_probe, q12_ends)
{
	struct bed *b = bed_wary(16);
	uint32_t from = 16, window = 14;

	for (; window < 16; window++) {
		expect_wary(b, from, from + window, from);
		from += window;
		ack(b, S(from - 1), 0);
	}
	expect_middle(b, from, from + 16);
	bed_forget(b);
	bed_close(b);
}

/* Q12: nothing has been lost, or no NAK has come: a full window waits. */
Test(rc_probe, q12_not_without_a_nak)
{
	struct bed *b = bed_full(64);

	ack(b, S(63), 0);
	expect_middle(b, 64, 128);
	advance_time(b, TIMEOUT - LATE);
	expect_none(b);
	cr_assert_eq(count(b, RETRANSMITS), 0);
	bed_forget(b);
	bed_close(b);
}

/* Q12, Q6: nor does a window count as full when seven eighths of it are what a timeout allows. */
Test(rc_probe, q12_small_window)
{
	struct bed *b = bed_full(9);

	advance_time(b, TIMEOUT + LATE);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_middle(b, 1, 8);
	bed_forget(b);
	bed_close(b);
}

/* Q12, Q6: a window that a timeout has reduced is handled by timeouts only. */
Test(rc_probe, q12_not_after_a_timeout)
{
	struct bed *b = bed_wary(64);

	expect_wary(b, 64, 120, 64);
	advance_time(b, TIMEOUT + LATE);
	expect_middle(b, 64, 72);
	ack(b, S(64), 0);
	expect_middle(b, 72, 74);
	bed_forget(b);
	bed_close(b);
}
