/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Congestion control by delay (E7): from round trips to a window, with values computed by hand; and
 * how a queue pair uses it. */
#include "harness.h"

#include "qp_priv.h"
#include "rp_defaults.h"

#define ONE KARST_SWIFT_ONE
#define S1  (1000 * MS)

static struct karst_congestion_config config;

/* --- the window --- */

static struct karst_swift_rp
rp_of(const struct karst_rp_params *p)
{
	struct karst_swift_rp rp;

	karst_swift_set(&rp, p);
	return rp;
}

static struct karst_swift
begin(const struct karst_swift_rp *rp)
{
	struct karst_swift s;

	karst_swift_begin(&s, rp);
	return s;
}

/* Thousandths of a packet, rounded. */
static uint32_t
cwnd(const struct karst_swift *s)
{
	return (uint32_t)((s->cwnd * 1000 + ONE / 2) / ONE);
}

/* a / sqrt(w) + b with 200 us at 0.1 packets and nothing at 100: a is 65.3109 us, b -6.5311. */
Test(swift, e7_target)
{
	struct karst_rp_params p = defaults();
	struct karst_swift_rp rp = rp_of(&p);
	static const struct {
		uint64_t thousandths;
		uint32_t ns;
	} want[] = {{1, 250000}, {100, 250000}, {250, 174091}, {1000, 108780}, {4000, 76124},
		{16000, 59797}, {100000, 50000}, {4000000, 50000}};
	size_t i;

	for (i = 0; i < KARST_DIM(want); i++) {
		uint32_t ns = karst_swift_target(&rp, want[i].thousandths * ONE / 1000);

		cr_assert_leq(abs((int)(ns - want[i].ns)), 2, "%u instead of %u", ns, want[i].ns);
	}
	p.swift_fs_range = 0;
	rp = rp_of(&p);
	cr_assert_eq(karst_swift_target(&rp, ONE / 10), 50000);
}

/* Below the target a window that was acknowledged adds ai, a part of a window adds that part; and
 * below one packet each acknowledged packet does so. */
Test(swift, e7_growth)
{
	struct karst_rp_params p = defaults();
	struct karst_swift_rp rp = rp_of(&p);
	struct karst_swift s = begin(&rp);

	cr_assert_eq(cwnd(&s), 16000);
	cr_assert_eq(karst_swift_window(&s), 16);
	karst_swift_acked(&s, 8);
	karst_swift_acked(&s, 8);
	karst_swift_delay(&s, &rp, 10 * US, 10 * US);
	cr_assert_eq(cwnd(&s), 17000);
	cr_assert_eq(s.delay_ns, 10000);
	cr_assert_leq(abs((int)s.target_ns - 59797), 2);
	karst_swift_acked(&s, 1);
	karst_swift_delay(&s, &rp, 10 * US, 20 * US);
	cr_assert_eq(cwnd(&s), 17059); /* 1 / 17 */
	/* a READ of more than the window counts as one window */
	karst_swift_acked(&s, 1000);
	karst_swift_delay(&s, &rp, 10 * US, 30 * US);
	cr_assert_eq(cwnd(&s), 18055); /* 17 / 17.059 */
	p.swift_max_cwnd = 18500;
	rp = rp_of(&p);
	karst_swift_acked(&s, 18);
	karst_swift_delay(&s, &rp, 10 * US, 40 * US);
	cr_assert_eq(cwnd(&s), 18500, "not above the largest");
	p.swift_initial_cwnd = 500;
	p.swift_ai = 100;
	rp = rp_of(&p);
	s = begin(&rp);
	cr_assert_eq(karst_swift_window(&s), 1);
	karst_swift_acked(&s, 1);
	karst_swift_delay(&s, &rp, 10 * US, 50 * US);
	cr_assert_eq(cwnd(&s), 600);
}

/* Above the target the window is reduced by beta * (d - t) / d, by a half at most, and once in a
 * round trip. */
Test(swift, e7_reduction)
{
	struct karst_rp_params p = defaults();
	struct karst_swift_rp rp;
	struct karst_swift s;

	p.swift_fs_range = 0;
	rp = rp_of(&p);
	s = begin(&rp);
	/* 0.8 * (100 - 50) / 100 = 0.4 */
	karst_swift_delay(&s, &rp, 100 * US, S1);
	cr_assert_eq(cwnd(&s), 9600);
	karst_swift_delay(&s, &rp, 100 * US, S1 + 99 * US);
	cr_assert_eq(cwnd(&s), 9600, "the same round trip");
	karst_swift_lost(&s, &rp, S1 + 99 * US);
	cr_assert_eq(cwnd(&s), 9600);
	/* 0.8 * (62.5 - 50) / 62.5 = 0.16 */
	karst_swift_delay(&s, &rp, 62500, S1 + 100 * US);
	cr_assert_eq(cwnd(&s), 8064);
	/* 0.8 * (1000 - 50) / 1000 = 0.76 */
	karst_swift_delay(&s, &rp, 1 * MS, 2 * S1);
	cr_assert_eq(cwnd(&s), 4032, "a half at most");
	karst_swift_delay(&s, &rp, 50 * US, 3 * S1);
	cr_assert_eq(cwnd(&s), 4032, "just the target");
	p.swift_min_cwnd = 1000;
	rp = rp_of(&p);
	karst_swift_delay(&s, &rp, 1 * MS, 4 * S1);
	karst_swift_delay(&s, &rp, 1 * MS, 5 * S1);
	cr_assert_eq(cwnd(&s), 1008);
	karst_swift_delay(&s, &rp, 1 * MS, 6 * S1);
	cr_assert_eq(cwnd(&s), 1000, "not below the smallest");
}

/* A loss reduces the window by the largest reduction, once in a round trip; the fifth timeout in a
 * row leaves the smallest window. */
Test(swift, e7_losses)
{
	struct karst_rp_params p = defaults();
	struct karst_swift_rp rp = rp_of(&p);
	struct karst_swift s = begin(&rp);
	uint32_t i;

	karst_swift_lost(&s, &rp, S1);
	cr_assert_eq(cwnd(&s), 8000);
	karst_swift_lost(&s, &rp, S1 + 49 * US);
	cr_assert_eq(cwnd(&s), 8000, "no round trip is known: the target counts");
	karst_swift_lost(&s, &rp, S1 + 50 * US);
	cr_assert_eq(cwnd(&s), 4000);
	for (i = 0; i < 4; i++)
		karst_swift_timeout(&s, &rp, (2 + i) * S1);
	cr_assert_eq(cwnd(&s), 250);
	karst_swift_acked(&s, 1);
	for (i = 0; i < 4; i++)
		karst_swift_timeout(&s, &rp, (6 + i) * S1);
	cr_assert_eq(cwnd(&s), 16, "15.6, rounded");
	karst_swift_timeout(&s, &rp, 10 * S1);
	cr_assert_eq(cwnd(&s), 1);
}

/* What exceeds the window delays the next packet. */
Test(swift, e7_waits)
{
	struct karst_rp_params p = defaults();
	struct karst_swift_rp rp;
	struct karst_swift s;

	p.swift_initial_cwnd = 250;
	rp = rp_of(&p);
	s = begin(&rp);
	karst_swift_sent(&s, &rp, 1, S1);
	cr_assert_eq(s.next_ns, S1 + 200 * US, "of the target, as no round trip is known");
	s.delay_ns = 100000;
	karst_swift_sent(&s, &rp, 1, 2 * S1);
	cr_assert_eq(s.next_ns, 2 * S1 + 400 * US);
	karst_swift_sent(&s, &rp, 3, 2 * S1 + 100 * US);
	cr_assert_eq(s.next_ns, 2 * S1 + 1600 * US, "one after the other");
	s.cwnd = 16ull * ONE;
	karst_swift_sent(&s, &rp, 16, 3 * S1);
	cr_assert_eq(s.next_ns, 2 * S1 + 1600 * US, "it fits");
	karst_swift_sent(&s, &rp, 32, 3 * S1);
	cr_assert_eq(s.next_ns, 3 * S1 + 200 * US);
	/* 100 ms, and of 10 READs one second */
	s.cwnd = ONE / 1000;
	karst_swift_sent(&s, &rp, 1, 4 * S1);
	cr_assert_eq(s.next_ns, 4 * S1 + 10 * MS);
	karst_swift_sent(&s, &rp, 10, 5 * S1);
	cr_assert_eq(s.next_ns, 5 * S1 + 100 * MS);
	karst_swift_sent(&s, &rp, 1000, 6 * S1);
	cr_assert_eq(s.next_ns, 7 * S1);
	karst_swift_sent(&s, &rp, 1000, 6 * S1);
	cr_assert_eq(s.next_ns, 7 * S1);
}

/* At the ends of the ranges nothing overflows, and the window is between its limits. */
Test(swift, e7_extremes)
{
	struct karst_rp_params p = defaults();
	uint32_t *value, least, most, i, k, from;
	const char *name;

	for (from = 0; karst_rp_param(&p, from, &value, &least, &most) != NULL; from++)
		if (value == &p.swift_ai)
			break;
	for (i = 0; i < 1u << 11; i++) {
		struct karst_swift_rp rp;
		struct karst_swift s;

		for (k = 0; (name = karst_rp_param(&p, from + k, &value, &least, &most)) != NULL;
			k++)
			*value = i >> k & 1 ? most : least;
		cr_assert_eq(k, 11);
		cr_assert(karst_rp_params_valid(&p));
		rp = rp_of(&p);
		s = begin(&rp);
		for (k = 0; k < 50; k++) {
			uint64_t was = s.cwnd, target = karst_swift_target(&rp, s.cwnd);

			karst_swift_acked(&s, k % 7 == 0 ? UINT32_MAX : 1);
			karst_swift_delay(&s, &rp, k % 3 == 0 ? 0 : UINT64_MAX, k * 10 * S1);
			karst_swift_sent(&s, &rp, 1u << 23, k * 10 * S1);
			cr_assert(s.cwnd >= rp.least && s.cwnd <= rp.most);
			cr_assert(k % 3 == 0 ? s.cwnd >= was : s.cwnd <= was);
			cr_assert(target >= rp.base_ns && target <= rp.base_ns + rp.range_ns);
		}
	}
}

/* --- a queue pair --- */

static struct bed *
bed_swift(uint32_t initial, uint32_t ai)
{
	struct setup s = setup_congested(KARST_QPT_RC, KARST_CONGESTION_SWIFT, &config);

	config.rp.swift_initial_cwnd = initial;
	config.rp.swift_ai = ai;
	config.rp.swift_fs_range = 0;
	s.attr.timeout = 14;
	s.attr.max_rd_atomic = 4;
	return bed_open(&s);
}

static struct karst_swift *
swift_of(struct bed *b)
{
	return &b->s->qp->pacer->swift;
}

/* The window is observed; the packet that completes half a window since the last AckReq has AckReq,
 * and so has the one that fills the window. */
Test(swift, e7_window)
{
	struct bed *b = bed_swift(4000, 1000);
	struct karst_qp_rate rate;

	post(b, RDMA_WRITE, 1, .len = 12 * MTU);
	cr_assert_not(expect_pkt(b, RC_WRITE_FIRST, S(0))->flags & KARST_PKT_ACKREQ);
	cr_assert(expect_pkt(b, RC_WRITE_MIDDLE, S(1))->flags & KARST_PKT_ACKREQ);
	cr_assert_not(expect_pkt(b, RC_WRITE_MIDDLE, S(2))->flags & KARST_PKT_ACKREQ);
	cr_assert(expect_pkt(b, RC_WRITE_MIDDLE, S(3))->flags & KARST_PKT_ACKREQ);
	expect_none(b);
	b->core->now_ns += 10 * US;
	ack(b, S(1), 0);
	/* 4 + 2 / 4 */
	karst_qp_rate(b->core, b->s->qp, &rate);
	cr_assert_eq(rate.cwnd, 4500);
	cr_assert_eq(rate.delay_ns, 10000);
	cr_assert_eq(rate.target_ns, 50000);
	cr_assert_eq(rate.rate, 0);
	cr_assert_eq(rate.cc_rate, 0);
	expect_pkt(b, RC_WRITE_MIDDLE, S(4));
	expect_pkt(b, RC_WRITE_MIDDLE, S(5));
	expect_none(b);
	/* S(5) is measured: S(3) was sent while S(1) was */
	b->core->now_ns += 10 * US;
	ack(b, S(3), 0);
	cr_assert_eq(cwnd(swift_of(b)), 4500);
	expect_pkt(b, RC_WRITE_MIDDLE, S(6));
	expect_pkt(b, RC_WRITE_MIDDLE, S(7));
	expect_none(b);
	/* minus 0.8 * (100 - 50) / 100 */
	b->core->now_ns += 90 * US;
	ack(b, S(5), 0);
	cr_assert_eq(cwnd(swift_of(b)), 2700);
	expect_none(b);
	ack(b, S(6), 0);
	expect_pkt(b, RC_WRITE_MIDDLE, S(8));
	expect_none(b);
	bed_forget(b);
	bed_close(b);
}

/* When the window becomes smaller than what is outstanding, and none of that has AckReq, one more
 * packet with AckReq is sent: otherwise no acknowledgement would come. */
Test(swift, e7_shrinking)
{
	struct bed *b = bed_swift(16000, 1000);
	uint32_t i;

	config.rp.swift_max_mdf = 999;
	cr_assert_eq(karst_core_set_rp(b->core, &config.rp), 0);
	post(b, RDMA_WRITE, 1, .len = 40 * MTU);
	cr_assert(turn_once(b, 8, UINT32_MAX));
	cr_assert(turn_once(b, 3, UINT32_MAX));
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	for (i = 1; i < 11; i++)
		cr_assert_eq((expect_pkt(b, RC_WRITE_MIDDLE, S(i))->flags & KARST_PKT_ACKREQ) != 0,
			i == 7, "%u", i);
	/* 16 * (1 - 0.8 * 950 / 1000) = 3.84 */
	b->core->now_ns += 1 * MS;
	ack(b, S(7), 0);
	cr_assert_eq(cwnd(swift_of(b)), 3840);
	cr_assert(expect_pkt(b, RC_WRITE_MIDDLE, S(11))->flags & KARST_PKT_ACKREQ);
	expect_none(b);
	b->core->now_ns += 10 * US;
	ack(b, S(11), 0);
	/* three of these four add 3 / 3.84 */
	cr_assert_eq(cwnd(swift_of(b)), 4621);
	for (i = 12; i < 16; i++)
		expect_pkt(b, RC_WRITE_MIDDLE, S(i));
	expect_none(b);
	bed_forget(b);
	bed_close(b);
}

/* A window of half a packet: one packet in two round trips, whatever is acknowledged before. */
Test(swift, e7_below_one)
{
	struct bed *b = bed_swift(500, 1);
	uint32_t i;

	for (i = 0; i < 4; i++)
		post(b, RDMA_WRITE, i, .len = 16);
	cr_assert(expect_pkt(b, RC_WRITE_ONLY, S(0))->flags & KARST_PKT_ACKREQ);
	expect_none(b);
	advance_time(b, 10 * US);
	ack(b, S(0), 1);
	expect_wc(b, 0, SUCCESS);
	/* the allowed round trip of 50 us, divided by 0.5 */
	advance_time(b, 90 * US - 1);
	expect_none(b);
	advance_time(b, 3 * KARST_WHEEL_TICK_NS);
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	expect_none(b);
	b->core->now_ns += 10 * US;
	ack(b, S(1), 2);
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(cwnd(swift_of(b)), 502);
	/* and the measured one of 10 us, divided by 0.501; until it is acknowledged the QP waits
	 * for that */
	advance_time(b, 3 * KARST_WHEEL_TICK_NS + 90 * US);
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	advance_time(b, 19 * US);
	expect_none(b);
	advance_time(b, 100 * US);
	expect_none(b);
	ack(b, S(2), 3);
	expect_wc(b, 2, SUCCESS);
	expect_pkt(b, RC_WRITE_ONLY, S(3));
	ack(b, S(3), 4);
	expect_wc(b, 3, SUCCESS);
	bed_close(b);
}

static void
read_answer(struct bed *b, uint32_t psn, uint32_t n, uint32_t msn)
{
	uint32_t aeth = (uint32_t)KARST_AETH_CREDIT_UNLIMITED << 24 | msn, i;

	if (n == 1) {
		expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, psn, .pay_len = MTU, .aeth = aeth));
		return;
	}
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, psn, .pay_len = MTU, .aeth = aeth));
	for (i = 1; i + 1 < n; i++)
		expect_taken(
			b, send_pkt(b, RC_READ_RESP_MIDDLE, karst_psn_add(psn, i), .pay_len = MTU));
	expect_taken(b,
		send_pkt(b, RC_READ_RESP_LAST, karst_psn_add(psn, n - 1), .pay_len = MTU,
			.aeth = aeth));
}

/* READ responses count; a READ of more than the window is sent alone, and nothing follows it for as
 * long as the window would have taken. */
Test(swift, e7_reads)
{
	struct bed *b = bed_swift(4000, 1);
	uint64_t left;

	post(b, RDMA_READ, 0, .len = 2 * MTU);
	post(b, RDMA_READ, 1, .len = 2 * MTU);
	post(b, RDMA_READ, 2, .len = MTU);
	post(b, RDMA_READ, 3, .len = 8 * MTU);
	post(b, RDMA_WRITE, 4, .len = MTU);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_READ_REQUEST, S(2));
	expect_none(b);
	b->core->now_ns += 20 * US;
	read_answer(b, S(0), 2, 1);
	expect_wc(b, 0, SUCCESS);
	cr_assert_eq(swift_of(b)->delay_ns, 20000, "from request to first answer");
	expect_pkt(b, RC_READ_REQUEST, S(4));
	expect_none(b);
	read_answer(b, S(2), 2, 2);
	expect_wc(b, 1, SUCCESS);
	expect_none(b);
	b->core->now_ns += 20 * US;
	read_answer(b, S(4), 1, 3);
	expect_wc(b, 2, SUCCESS);
	expect_pkt(b, RC_READ_REQUEST, S(5));
	left = b->core->now_ns;
	expect_none(b);
	b->core->now_ns += 20 * US;
	read_answer(b, S(5), 8, 4);
	expect_wc(b, 3, SUCCESS);
	expect_none(b);
	/* 20 us * 8 / 4.001 */
	advance_time(b, left + 39980 - b->core->now_ns);
	expect_none(b);
	advance_time(b, 3 * KARST_WHEEL_TICK_NS);
	expect_pkt(b, RC_WRITE_ONLY, S(13));
	ack(b, S(13), 5);
	expect_wc(b, 4, SUCCESS);
	bed_close(b);
}

/* A loss halves the window, and retransmissions keep to it; their round trip is not measured (E7,
 * Q4). */
Test(swift, e7_retransmission)
{
	struct bed *b = bed_swift(4000, 1000);

	post(b, RDMA_WRITE, 1, .len = 4 * MTU);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_pkt(b, RC_WRITE_MIDDLE, S(1));
	expect_pkt(b, RC_WRITE_MIDDLE, S(2));
	expect_pkt(b, RC_WRITE_LAST, S(3));
	b->core->now_ns += 10 * US;
	expect_taken(b, send_nak(b, S(0), KARST_NAK_PSN_SEQ));
	cr_assert_eq(cwnd(swift_of(b)), 2000);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	cr_assert(expect_pkt(b, RC_WRITE_MIDDLE, S(1))->flags & KARST_PKT_ACKREQ);
	expect_none(b);
	b->core->now_ns += 10 * US;
	ack(b, S(1), 0);
	cr_assert_eq(swift_of(b)->delay_ns, 0);
	expect_pkt(b, RC_WRITE_MIDDLE, S(2));
	expect_pkt(b, RC_WRITE_LAST, S(3));
	ack(b, S(3), 1);
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(swift_of(b)->delay_ns, 0);
	bed_close(b);
}

/* Waiting between packets uses no retry (E7, Q6), and a timeout makes the window smaller. */
Test(swift, e7_timeouts)
{
	struct bed *b = bed_swift(400, 1);
	uint32_t i;

	config.rp.swift_base_target = 200000;
	cr_assert_eq(karst_core_set_rp(b->core, &config.rp), 0);
	post(b, RDMA_WRITE, 1, .len = MTU);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	/* 67 ms, and then the 10 ms that a packet waits at most: both are over */
	for (i = 1; i <= 3; i++) {
		while (count(b, LOCAL_ACK_TIMEOUT) != i)
			advance_time(b, 1 * MS);
		advance_time(b, 3 * KARST_WHEEL_TICK_NS);
		expect_pkt(b, RC_WRITE_ONLY, S(0));
		/* once in an allowed round trip */
		cr_assert_eq(cwnd(swift_of(b)), 200, "%u", i);
	}
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* Types without acknowledgements are not subject to it; CNPs are for DCQCN; marks are answered, and
 * packets may be marked. */
Test(swift, e7_others)
{
	struct setup s = setup_congested(KARST_QPT_UC, KARST_CONGESTION_SWIFT, &config);
	struct bed *b;

	config.rp.swift_initial_cwnd = 1;
	b = bed_open(&s);
	cr_assert_not(b->s->qp->req.paced);
	post(b, SEND, 1, .len = 2 * MTU);
	expect_pkt(b, UC_SEND_FIRST, S(0));
	expect_pkt(b, UC_SEND_LAST, S(1));
	expect_wc(b, 1, SUCCESS);
	/* nor by a rate limit of its own */
	karst_qp_rate_limit(b->core, b->s->qp, 1000, 0, NULL);
	karst_qp_rate_limit(b->core, b->s->qp, 0, 0, NULL);
	cr_assert_not(b->s->qp->req.paced);
	bed_close(b);
	s = setup_congested(KARST_QPT_RC, KARST_CONGESTION_SWIFT, &config);
	b = bed_open(&s);
	expect_drop(b, CNP, send_pkt(b, CNP, 0, .becn = true));
	cr_assert_eq(count(b, RP_CNP_IGNORED), 1);
	cr_assert_eq(cwnd(swift_of(b)), 16000);
	post(b, SEND, 1, .len = MTU);
	cr_assert(expect_pkt(b, RC_SEND_ONLY, S(0)) != NULL);
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* A program's limit and the window both apply; after a reset the window starts from the
 * beginning. */
Test(swift, e7_program_limit)
{
	struct bed *b = bed_swift(2000, 1000);

	karst_qp_rate_limit(b->core, b->s->qp, 1000, 0, NULL);
	post(b, SEND, 1, .len = 4 * MTU);
	expect_pkt(b, RC_SEND_FIRST, S(0));
	expect_none(b);
	karst_qp_rate_limit(b->core, b->s->qp, 0, 0, NULL);
	cr_assert(b->s->qp->req.paced);
	expect_pkt(b, RC_SEND_MIDDLE, S(1));
	expect_none(b);
	swift_of(b)->cwnd = ONE;
	swift_of(b)->next_ns = UINT64_MAX;
	cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
	cr_assert_eq(cwnd(swift_of(b)), 2000);
	cr_assert_eq(swift_of(b)->next_ns, 0);
	cr_assert(b->s->qp->req.paced);
	bed_forget(b);
	bed_close(b);
}
