/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Runs whose time can be computed by hand, to the picosecond. */
#include "run.h"

/* The only flow has ended when it should, with @requests requests and without a retransmission. */
static void
expect_alone(struct fab_result *r, uint64_t want, uint64_t requests)
{
	cr_assert_eq(r->flow[0].end_ps, want, "%llu ps, not %llu",
		(unsigned long long)r->flow[0].end_ps, (unsigned long long)want);
	cr_assert_eq(r->flow[0].ideal_ps, want);
	cr_assert_eq(r->requests, requests);
	cr_assert_eq(r->retransmits, 0);
	fab_result_free(r);
}

/* Frames of 4096 bytes of payload at 100 Gb/s over two links of a microsecond.  The first frame
 * reaches the second link when it has crossed the first; from then on the second link is never
 * idle.  After the last frame the acknowledgement goes back. */
Test(fabric_hand, one_flow_at_line_rate)
{
	struct fab_config c = fab_test_config(FAB_ONE);
	uint64_t sent, want;
	struct fab_result r;

	c.size = 160u * 65536;
	r = fab_test_run(&c);
	/* 16 frames to a WRITE, an address in the first */
	sent = 160 * (16 * (4096 + AROUND) + RETH) * PS_100G;
	want = (4096 + AROUND + RETH) * PS_100G + 1 * US + sent + 1 * US;
	want += 2 * (ACK * PS_100G + 1 * US);
	expect_alone(&r, want, 2560);
}

/* READs: a request goes in the other direction, and its responses take as long as WRITEs would,
 * with an AETH in the first and in the last.  The other requests have arrived before these
 * responses end. */
Test(fabric_hand, one_flow_of_reads)
{
	struct fab_config c = fab_test_config(FAB_ONE);
	uint64_t sent, want;
	struct fab_result r;

	c.read = true;
	c.size = 160u * 65536;
	r = fab_test_run(&c);
	sent = 160 * (16 * (4096 + AROUND) + 2 * AETH) * PS_100G;
	want = 2 * ((AROUND + RETH) * PS_100G + 1 * US);
	want += (4096 + AROUND + AETH) * PS_100G + 1 * US + sent + 1 * US;
	expect_alone(&r, want, 160);
}

/* From two hosts: the link to the reader is never idle, and each host has a half of it. */
Test(fabric_hand, two_flows_of_reads_share_a_link)
{
	struct fab_config c = fab_test_config(FAB_TWO);
	uint64_t sent, want, last;
	struct fab_result r;

	c.read = true;
	c.size = 160u * 65536;
	r = fab_test_run(&c);
	sent = 2 * 160 * (16 * (4096 + AROUND) + 2 * AETH) * PS_100G;
	want = 2 * ((AROUND + RETH) * PS_100G + 1 * US);
	want += (4096 + AROUND + AETH) * PS_100G + 1 * US + sent + 1 * US;
	last = r.flow[0].end_ps > r.flow[1].end_ps ? r.flow[0].end_ps : r.flow[1].end_ps;
	cr_assert_eq(last, want, "%llu ps, not %llu", (unsigned long long)last,
		(unsigned long long)want);
	cr_assert_eq(r.drops, 0);
	cr_assert_gt(r.jain, 0.999, "%f", r.jain);
	fab_result_free(&r);
}

/* The shortest frames are padded to 64 bytes. */
Test(fabric_hand, one_byte)
{
	struct fab_config c = fab_test_config(FAB_ONE);
	struct fab_result r;
	uint64_t want;

	c.size = 1;
	c.speed = 25000;
	c.delay_ns = 500;
	r = fab_test_run(&c);
	/* a byte and 3 of pad */
	want = 2 * ((AROUND + RETH + 4) * 320u + US / 2) + 2 * (ACK * 320u + US / 2);
	cr_assert_eq(r.flow[0].end_ps, want, "%llu ps, not %llu",
		(unsigned long long)r.flow[0].end_ps, (unsigned long long)want);
	fab_result_free(&r);
}

/* Over a leaf, a spine and a leaf: four links, the inner ones faster.  Again the first frame has to
 * reach the last link. */
Test(fabric_hand, one_flow_through_a_clos)
{
	struct fab_config c = fab_test_config(FAB_ONE);
	uint64_t frame = 1024 + AROUND, want;
	struct fab_result r;

	c.topology = FAB_CLOS;
	c.hosts = 8;
	c.leaves = 4;
	c.spines = 4;
	c.core_speed = 400000;
	c.mtu = 1024;
	c.size = 65536;
	r = fab_test_run(&c);
	want = (frame + RETH) * (PS_100G + 2 * 20u) + (64 * frame + RETH) * PS_100G + 4 * US;
	want += ACK * (2 * PS_100G + 2 * 20u) + 4 * US;
	cr_assert_eq(r.flow[0].end_ps, want, "%llu ps, not %llu",
		(unsigned long long)r.flow[0].end_ps, (unsigned long long)want);
	cr_assert_eq(r.flow[0].ideal_ps, want);
	fab_result_free(&r);
}

/* Two flows have the whole link together, and a half each. */
Test(fabric_hand, two_flows_share_a_link)
{
	struct fab_config c = fab_test_config(FAB_TWO);
	double line = 1e11 * 65536 / (16 * (4096 + AROUND) + RETH);
	struct fab_result r;
	uint64_t bytes, least;

	c.duration_ns = 2000000;
	r = fab_test_run(&c);
	bytes = r.flow[0].bytes + r.flow[1].bytes;
	/* the first WRITEs of both take a while, and what is under way at the end does not count: a
	 * window of 256 packets each is in the queue */
	least = (uint64_t)(line / 8 * 2e-3) - 2 * 256 * 4096 - 4 * 65536;
	cr_assert_geq(bytes, least, "%llu bytes, not %llu", (unsigned long long)bytes,
		(unsigned long long)least);
	cr_assert_leq(bytes, (uint64_t)(line / 8 * 2e-3));
	cr_assert_leq(r.flow[0].bytes, r.flow[1].bytes + 65536);
	cr_assert_leq(r.flow[1].bytes, r.flow[0].bytes + 65536);
	/* their windows are in the queue of the shared link, or under way */
	cr_assert_leq(r.queue.max, 2 * 256 * (4096 + AROUND));
	cr_assert_geq(r.queue.max, 2 * (256 - 16) * (4096 + AROUND));
	cr_assert_eq(r.queue.percentile[0], 0);
	cr_assert_eq(r.queue.percentile[99], r.queue.p99);
	cr_assert_eq(r.queue.percentile[100], r.queue.max);
	fab_result_free(&r);
}

/* Two flows of one length: the shared link sends all of both without a pause. */
Test(fabric_hand, two_flows_take_twice_as_long)
{
	struct fab_config c = fab_test_config(FAB_TWO);
	uint64_t wire = 64 * (16 * (4096 + AROUND) + RETH) * PS_100G;
	struct fab_result r;

	c.size = 64u * 65536;
	r = fab_test_run(&c);
	/* the shared link sends all of both, after the first frame has reached it */
	cr_assert_geq(r.end_ps, 2 * wire + (4096 + AROUND) * PS_100G + 4 * US);
	cr_assert_leq(r.end_ps, 2 * wire + (4096 + AROUND + RETH) * PS_100G + 5 * US);
	fab_result_free(&r);
}

/* An allreduce of 64 KiB parts, in @steps steps: in each step all links carry one part, after the
 * acknowledgement of the previous step's part. */
static void
expect_allreduce(enum fab_workload workload, uint32_t hosts, uint64_t steps)
{
	struct fab_config c = fab_test_config(workload);
	uint64_t part = (16 * (4096 + AROUND) + RETH + IMM) * PS_100G, step, want;
	struct fab_result r;

	c.hosts = hosts;
	c.size = hosts * 65536;
	r = fab_test_run(&c);
	step = (4096 + AROUND + RETH) * PS_100G + part + 2 * US;
	want = steps * step + 2 * (ACK * PS_100G + 1 * US);
	/* in all steps but one the first frame may wait for an acknowledgement */
	cr_assert_geq(r.end_ps, want);
	cr_assert_leq(r.end_ps, want + (steps - 1) * ACK * PS_100G);
	cr_assert_eq(r.done, hosts * steps);
	cr_assert_float_eq(r.bus_bps,
		2.0 * (hosts - 1) / hosts * (double)c.size * 8 / ((double)r.end_ps / 1e12), 1e3);
	fab_result_free(&r);
}

Test(fabric_hand, ring_allreduce)
{
	expect_allreduce(FAB_RING, 4, 6);
}

/* Two trees, one chunk each: both hosts send theirs up at once, and what has arrived down again. */
Test(fabric_hand, tree_allreduce)
{
	expect_allreduce(FAB_TREE, 2, 2);
}

/* Sprayed over equal paths (X12): as fast as over one of them, since no packet overtakes
 * another. */
Test(fabric_hand, x12_sprayed_over_equal_ways)
{
	struct fab_config c = fab_test_config(FAB_ONE);
	struct fab_result one, all;

	c.topology = FAB_CLOS;
	c.hosts = 8;
	c.spines = 4;
	c.repeat = true;
	c.size = 160u * 65536;
	one = fab_test_run(&c);
	c.spray = 16;
	all = fab_test_run(&c);
	cr_assert_eq(one.end_ps, one.flow[0].ideal_ps);
	cr_assert_eq(all.end_ps, one.end_ps);
	cr_assert_eq(all.retransmits, 0);
	fab_result_free(&one);
	fab_result_free(&all);
}

/* Two spines behind links that are slower than the hosts': a flow with one port uses one of them.
 * With 16 ports n of them use one spine and 16 - n the other, as the hash decides; the window holds
 * what was sent over the faster path, so the flow has 16 / max(n, 16 - n) links. */
Test(fabric_hand, x12_sprayed_over_slow_ways)
{
	struct fab_config c = fab_test_config(FAB_ONE);
	double line = 25e9 * 65536 / (16 * (4096 + AROUND) + RETH), links;
	struct fab_result r;

	c.topology = FAB_CLOS;
	c.hosts = 4;
	c.leaves = 2;
	c.spines = 2;
	c.core_speed = 25000;
	c.repeat = true;
	c.duration_ns = 30000000;
	c.warmup_ns = 10000000;
	r = fab_test_run(&c);
	cr_assert_float_eq(r.goodput / line, 1, 0.01, "%f links", r.goodput / line);
	fab_result_free(&r);
	c.spray = 16;
	r = fab_test_run(&c);
	links = r.goodput / line;
	cr_assert_gt(links, 1.2);
	cr_assert_float_eq(16 / links, (double)(int)(16 / links + 0.5), 0.1, "%f links", links);
	/* an overtaken packet does not count as lost */
	cr_assert_eq(r.retransmits, 0);
	cr_assert_eq(r.drops, 0);
	fab_result_free(&r);
}

/* 16 chunks each: a chunk goes down while others go up, so both hosts' links send all of both
 * halves without a pause, except at the end, when the last chunk is up and has to come down. */
Test(fabric_hand, tree_allreduce_has_all_levels_at_work)
{
	struct fab_config c = fab_test_config(FAB_TREE);
	uint64_t part = (16 * (4096 + AROUND) + RETH + IMM) * PS_100G, step, least;
	struct fab_result r;

	c.hosts = 2;
	c.size = 32 * 65536;
	r = fab_test_run(&c);
	step = (4096 + AROUND + RETH) * PS_100G + part + 2 * US;
	least = step + 31 * part + 2 * (ACK * PS_100G + 1 * US);
	cr_assert_geq(r.end_ps, least);
	cr_assert_leq(r.end_ps, least + 2 * step + 33 * ACK * PS_100G);
	cr_assert_eq(r.done, 2 * 2 * 16);
	fab_result_free(&r);
}

/* Any number of hosts, and chunks that are not full: each edge of both trees carries its half up
 * and down; no host is an inner node of both trees, so none has more than four edges. */
Test(fabric_hand, tree_allreduce_of_seven)
{
	struct fab_config c = fab_test_config(FAB_TREE);
	uint64_t sent[7] = {0}, bytes = 0, i;
	struct fab_result r;

	c.hosts = 7;
	c.size = 5 * 65536 + 1;
	r = fab_test_run(&c);
	cr_assert_eq(r.nflows, 2 * 6 * 2 * 3);
	cr_assert_eq(r.done, r.nflows);
	for (i = 0; i < r.nflows; i++) {
		bytes += r.flow[i].bytes;
		sent[r.flow[i].src] += r.flow[i].bytes;
	}
	cr_assert_eq(bytes, 2 * 6 * c.size);
	/* the middle host is a leaf of both, the roots pass down to two and are leaves of the other
	 * tree, and the rest has a parent in addition */
	cr_assert_eq(sent[3], c.size);
	cr_assert_eq(sent[0], 2 * ((c.size + 1) / 2) + c.size / 2);
	cr_assert_eq(sent[6], (c.size + 1) / 2 + 2 * (c.size / 2));
	cr_assert_eq(sent[1], 3 * ((c.size + 1) / 2) + c.size / 2);
	fab_result_free(&r);
}

/* One WRITE at a time, and all take the same time. */
Test(fabric_hand, latency_of_small_writes)
{
	struct fab_config c = fab_test_config(FAB_ONE);
	uint64_t want;
	struct fab_result r;

	c.message = 64;
	c.depth = 1;
	c.duration_ns = 1000000;
	c.warmup_ns = 100000;
	r = fab_test_run(&c);
	want = 2 * ((64 + AROUND + RETH) * PS_100G + 1 * US) + 2 * (ACK * PS_100G + 1 * US);
	cr_assert_eq(r.latency.p50_ps, want);
	cr_assert_eq(r.latency.max_ps, want);
	cr_assert_float_eq(r.latency.mean_ps, (double)want, 1);
	/* from the first that ends after the warmup to the last that ends in time */
	cr_assert_eq(r.latency.messages, 1000000000 / want - 100000000 / want);
	fab_result_free(&r);
	/* two wait for each other: the second one at the first link, then for its turn */
	c.depth = 2;
	r = fab_test_run(&c);
	cr_assert_geq(r.latency.p50_ps, want);
	cr_assert_leq(r.latency.max_ps, want + (64 + AROUND + RETH) * PS_100G + ACK * PS_100G);
	fab_result_free(&r);
}
