/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Marks, by RED's formula, and their effects. */
#include <math.h>

#include "run.h"

#define DRAWS 100000u

/* The share of frames that is marked at a queue of @bytes, by equally spaced random numbers. */
static double
share(uint64_t queue)
{
	uint32_t i, n = 0;

	for (i = 0; i < DRAWS; i++)
		n += fab_red(queue, 100000, 400000, 0.2, (i + 0.5) / DRAWS);
	return (double)n / DRAWS;
}

Test(fabric_marking, probability_is_that_of_red)
{
	uint64_t q;

	cr_assert_eq(share(0), 0);
	cr_assert_eq(share(100000), 0);
	for (q = 110000; q <= 400000; q += 10000)
		cr_assert_float_eq(share(q), 0.2 * (double)(q - 100000) / 300000, 2.0 / DRAWS);
	cr_assert_eq(share(400001), 1);
	cr_assert_eq(share(UINT64_MAX), 1);
}

/* A queue of known length: the windows of 2 flows are in it.  The share of marked frames is that of
 * the formula at that length, within four standard deviations. */
Test(fabric_marking, probability_in_a_network)
{
	struct fab_config c = fab_test_config(FAB_TWO);
	double p, frames, sigma;
	struct fab_result r;

	c.cc.mode = KARST_CONGESTION_NOTIFY;
	c.duration_ns = 5000000;
	c.kmin = 1000000;
	c.kmax = 3000000;
	r = fab_test_run(&c);
	/* a frame is marked by the queue length that it finds, on average the mean */
	p = c.pmax * (r.queue.mean - (double)c.kmin) / (double)(c.kmax - c.kmin);
	frames = (double)r.requests - (double)r.queue.max / 4178;
	sigma = sqrt(frames * p * (1 - p));
	cr_assert_float_eq((double)r.marks, frames * p, 4 * sigma + 0.01 * frames * p,
		"%llu marks, not %.0f", (unsigned long long)r.marks, frames * p);
	/* notification alone slows no sender down */
	cr_assert_gt(r.cnps_sent, 0);
	cr_assert_eq(r.cnps_handled, 0);
	fab_result_free(&r);
}

/* With DCQCN the queue length stays where marking begins, and nothing is dropped; without marks no
 * sender slows down. */
Test(fabric_marking, dcqcn_keeps_the_queue_short)
{
	struct fab_config c = fab_test_config(FAB_INCAST);
	struct fab_result with, without;

	c.fan_in = 4;
	c.cc.mode = KARST_CONGESTION_DCQCN;
	c.duration_ns = 10000000;
	c.warmup_ns = 5000000;
	with = fab_test_run(&c);
	c.marking = false;
	without = fab_test_run(&c);
	cr_assert_gt(with.cnps_handled, 0);
	cr_assert_eq(with.drops, 0);
	cr_assert_leq(with.queue.p99, c.kmax, "%llu", (unsigned long long)with.queue.p99);
	cr_assert_eq(without.marks, 0);
	cr_assert_eq(without.cnps_sent, 0);
	cr_assert_gt(without.queue.p99, with.queue.p99);
	fab_result_free(&with);
	fab_result_free(&without);
}

/* With control by delay round trips are at the target, without marks, and nothing is dropped; all
 * flows get the same. */
Test(fabric_marking, swift_keeps_the_queue_short)
{
	struct fab_config c = fab_test_config(FAB_INCAST);
	struct fab_result r;

	c.fan_in = 4;
	c.cc.mode = KARST_CONGESTION_SWIFT;
	c.cc.rp.swift_fs_range = 0;
	c.marking = false;
	c.duration_ns = 20000000;
	c.warmup_ns = 10000000;
	r = fab_test_run(&c);
	cr_assert_eq(r.drops, 0);
	cr_assert_eq(r.retransmits, 0);
	cr_assert_eq(r.marks, 0);
	/* 50 us minus 4.4 that a frame and its acknowledgement take, at 12.5 bytes a nanosecond,
	 * plus what each flow adds, one packet in a round trip, before it sees the effect */
	cr_assert_leq(
		r.queue.max, 45600 * 12.5 + 4 * 4 * 4178, "%llu", (unsigned long long)r.queue.max);
	cr_assert_geq(r.queue.mean, 45600 * 12.5 * 0.8, "%f", r.queue.mean);
	cr_assert_geq(r.goodput, 0.979e11, "%f", r.goodput);
	cr_assert_geq(r.jain, 0.99, "%f", r.jain);
	fab_result_free(&r);
}

/* More queue pairs than packets that fit into the buffer: windows below one packet keep them from
 * overrunning it. */
Test(fabric_marking, swift_below_one_packet)
{
	struct fab_config c = fab_test_config(FAB_INCAST);
	struct fab_result below, one;

	c.fan_in = 8;
	c.connections = 64;
	c.message = 4096;
	c.cc.mode = KARST_CONGESTION_SWIFT;
	c.marking = false;
	c.probes = true;
	c.buffer = 2u << 20; /* a queue has a half of it: 250 frames */
	c.stagger_ns = 10000000;
	c.duration_ns = 60000000;
	c.warmup_ns = 30000000;
	c.cc.rp.swift_base_target = 20;
	c.cc.rp.swift_fs_range = 20;
	below = fab_test_run(&c);
	c.cc.rp.swift_min_cwnd = 1000;
	one = fab_test_run(&c);
	cr_assert_lt(below.drops * 4, one.drops, "%llu and %llu", (unsigned long long)below.drops,
		(unsigned long long)one.drops);
	cr_assert_gt(below.jain, one.jain, "%f, %f", below.jain, one.jain);
	fab_result_free(&below);
	fab_result_free(&one);
}

/* Frames that are not ECT are not marked. */
Test(fabric_marking, nothing_is_marked_without_ect)
{
	struct fab_config c = fab_test_config(FAB_TWO);
	struct fab_result r;

	c.duration_ns = 1000000;
	c.kmin = 1;
	c.kmax = 2;
	r = fab_test_run(&c);
	cr_assert_eq(r.marks, 0);
	fab_result_free(&r);
}
