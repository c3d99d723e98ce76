/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Connections by lib/cm: how long they take, which messages are lost, and that flows are not
 * affected. */
#include "run.h"

/* A message has 256 bytes behind a DETH of 8. */
#define MAD (256u + 8u + AROUND)
/* The time over two links of a microsecond. */
#define WAY (2 * (MAD * PS_100G + 1ull * US))
/* The first and the longest timeout of lib/cm, as in an engine; the wheel may add two ticks. */
#define FIRST (268435456ull * 1000)
#define LAST  (1073741824ull * 1000)
#define TICK  4096000ull

static struct fab_config
small(bool timed)
{
	struct fab_config c = fab_test_config(FAB_ONE);

	c.size = 65536;
	c.timed = timed;
	return c;
}

/* REQ and REP; the flow starts behind the RTU, which is sent just before it. */
Test(fabric_connect, takes_a_round_trip)
{
	struct fab_config c = small(true);
	struct fab_result r = fab_test_run(&c);
	uint64_t want = 2 * WAY + MAD * PS_100G + r.flow[0].ideal_ps;

	cr_assert_eq(r.connections.established, 1);
	cr_assert_eq(r.connections.max_ps, 2 * WAY);
	cr_assert_eq(r.flow[0].start_ps, 0);
	cr_assert_eq(r.flow[0].end_ps, want, "%llu ps, not %llu",
		(unsigned long long)r.flow[0].end_ps, (unsigned long long)want);
	/* REQ, REP, RTU, DREQ, DREP */
	cr_assert_eq(r.connections.mads, 5);
	cr_assert_eq(r.connections.mads_again, 0);
	cr_assert_eq(r.connections.ended, 1);
	fab_result_free(&r);
}

/* Connected before the measured time: the connection takes as long, and the flow takes as long as
 * it would alone. */
Test(fabric_connect, before_it_counts)
{
	struct fab_config c = small(false);
	struct fab_result r = fab_test_run(&c);

	cr_assert_eq(r.connections.established, 1);
	cr_assert_eq(r.connections.max_ps, 2 * WAY);
	cr_assert_eq(r.flow[0].start_ps, 0);
	cr_assert_eq(r.flow[0].end_ps, r.flow[0].ideal_ps);
	cr_assert_eq(r.connections.mads, 5);
	cr_assert_eq(r.connections.ended, 1);
	fab_result_free(&r);
}

/* All connect to one host at once: the link to that host sends one REQ after the other, and the
 * link from it one REP after the other, each as soon as its REQ has arrived.  So the last one has
 * waited for the others' REQs. */
Test(fabric_connect, incast_of_requests)
{
	struct fab_config c = fab_test_config(FAB_INCAST);
	uint64_t want;
	struct fab_result r;

	c.fan_in = 100;
	c.connections = 5;
	c.size = 1;
	r = fab_test_run(&c);
	want = 2 * WAY + 499 * MAD * PS_100G;
	cr_assert_eq(r.connections.established, 500);
	cr_assert_eq(r.connections.max_ps, want, "%llu ps, not %llu",
		(unsigned long long)r.connections.max_ps, (unsigned long long)want);
	cr_assert_eq(r.connections.mads, 5 * 500);
	cr_assert_eq(r.done, 500);
	fab_result_free(&r);
}

/* A REQ or REP is lost: lib/cm sends it again after its first timeout, at most @most times.
 * @least_ps: the least time that this takes. */
static void
one_lost(uint64_t which, uint64_t most, uint64_t least_ps)
{
	struct fab_config c = small(true);
	struct fab_result r;

	c.lose_mad = which;
	r = fab_test_run(&c);
	cr_assert_eq(r.connections.established, 1);
	cr_assert_eq(r.connections.mads_lost, 1);
	cr_assert_geq(r.connections.mads_again, 1);
	cr_assert_leq(r.connections.mads_again, most, "%llu messages again",
		(unsigned long long)r.connections.mads_again);
	cr_assert_geq(r.connections.max_ps, least_ps);
	cr_assert_leq(r.connections.max_ps, FIRST + 2 * WAY + 2 * TICK);
	cr_assert_eq(r.done, 1);
	cr_assert_eq(r.lost, 0);
	fab_result_free(&r);
}

Test(fabric_connect, a_lost_req_is_sent_again)
{
	one_lost(1, 1, FIRST + 2 * WAY);
}

/* Both sides detect the loss, the active one first.  A repeated REQ is answered by the REP at once;
 * the passive side's timer sends the REP once more if it expires before the RTU arrives. */
Test(fabric_connect, a_lost_rep_is_sent_again)
{
	one_lost(2, 2, FIRST + WAY);
}

/* The flow does not wait for the RTU: it has ended long before the REP is repeated. */
Test(fabric_connect, a_lost_rtu_does_not_hold_the_flow)
{
	struct fab_config c = small(true);
	struct fab_result r;

	c.lose_mad = 3;
	r = fab_test_run(&c);
	cr_assert_eq(r.connections.mads_lost, 1);
	cr_assert_eq(r.connections.max_ps, 2 * WAY);
	cr_assert_eq(r.flow[0].end_ps, 2 * WAY + MAD * PS_100G + r.flow[0].ideal_ps);
	cr_assert_eq(r.connections.ended, 1);
	fab_result_free(&r);
}

/* But the measured time does not start before the RTU has arrived. */
Test(fabric_connect, a_lost_rtu_is_sent_again_before_it_counts)
{
	struct fab_config c = small(false);
	struct fab_result r;

	c.lose_mad = 3;
	r = fab_test_run(&c);
	/* REQ, REP, RTU, and the last two again */
	cr_assert_eq(r.connections.mads, 5 + 2);
	cr_assert_eq(r.connections.mads_again, 1);
	cr_assert_eq(r.flow[0].end_ps, r.flow[0].ideal_ps);
	fab_result_free(&r);
}

/* No answer: the timeouts are the first one, twice that, and then the longest, 14 times; after the
 * last of 15 retransmissions there is one more. */
Test(fabric_connect, a_host_that_does_not_answer)
{
	struct fab_config c = small(true);
	uint64_t want = FIRST + 2 * FIRST + 14 * LAST;
	struct fab_result r;

	c.loss = 1;
	r = fab_test_run(&c);
	cr_assert_eq(r.connections.established, 0);
	cr_assert_eq(r.connections.failed, 1);
	cr_assert_eq(r.failed, 1);
	cr_assert_eq(r.flow[0].bytes, 0);
	cr_assert_eq(r.connections.mads_again, 15);
	/* and a REJ, for peers that receive but cannot be received */
	cr_assert_eq(r.connections.mads, 17);
	cr_assert_eq(r.connections.mads_lost, 17);
	cr_assert_geq(r.flow[0].end_ps, want);
	cr_assert_leq(r.flow[0].end_ps, want + 16 * 2 * TICK, "%llu ps, not %llu",
		(unsigned long long)r.flow[0].end_ps, (unsigned long long)want);
	fab_result_free(&r);
}

/* Most messages are lost: some connections are never made, others are given up again when the
 * receiver has had no RTU for each of its REPs, which takes 16 s.  A flow that has started needs
 * longer than that. */
Test(fabric_connect, connections_that_are_lost_after_they_were_made)
{
	struct fab_config c = fab_test_config(FAB_ONE);
	uint64_t i, begun = 0;
	struct fab_result r;

	c.connections = 60;
	c.speed = 10; /* Mb/s */
	c.size = 1u << 20;
	c.mad_loss = 0.8;
	c.timeout = 0;
	c.timed = true;
	r = fab_test_run(&c);
	for (i = 0; i < r.nflows; i++)
		begun += r.flow[i].state == FAB_FLOW_FAILED && r.flow[i].bytes != 0;
	cr_assert_gt(begun, 0, "none was lost");
	cr_assert_gt(r.done, 0);
	cr_assert_eq(r.done, r.connections.established);
	cr_assert_eq(r.failed, r.connections.failed);
	cr_assert_eq(r.done + r.failed, 60);
	fab_result_free(&r);
}

/* A workload of which nothing can start ends, too. */
Test(fabric_connect, nothing_hangs_without_connections)
{
	enum fab_workload w;

	for (w = FAB_ONE; w <= FAB_TREE; w++) {
		struct fab_config c = fab_test_config(w);
		struct fab_result r;

		c.size = 1u << 20;
		c.loss = 1;
		r = fab_test_run(&c);
		cr_assert_eq(r.connections.established, 0);
		cr_assert_gt(r.connections.failed, 0);
		cr_assert_eq(r.done, 0);
		cr_assert_eq(r.failed, r.nflows);
		fab_result_free(&r);
	}
}

/* Both ends have agreed to selective repeat: a lost packet is sent again alone. */
Test(fabric_connect, ece_decides_about_selective_repeat)
{
	struct fab_config c = fab_test_config(FAB_ONE);
	struct fab_result agreed, declined, never;

	c.size = 160u * 65536;
	c.lose_nth = 100;
	never = fab_test_run(&c);
	c.repeat = true;
	agreed = fab_test_run(&c);
	c.decline = true;
	declined = fab_test_run(&c);
	cr_assert_eq(never.connections.repeat, 0);
	cr_assert_eq(agreed.connections.repeat, 1);
	cr_assert_eq(declined.connections.repeat, 0);
	cr_assert_eq(agreed.retransmits, 1);
	cr_assert_gt(declined.retransmits, 10);
	cr_assert_eq(declined.retransmits, never.retransmits);
	cr_assert_eq(declined.flow[0].end_ps, never.flow[0].end_ps);
	fab_result_free(&agreed);
	fab_result_free(&declined);
	fab_result_free(&never);
}

/* Each flow of a distribution has a connection of its own, which takes no time. */
Test(fabric_connect, flows_of_a_distribution)
{
	struct fab_config c = fab_test_config(FAB_ALISTORAGE);
	struct fab_result r, timed;
	uint64_t i;

	c.hosts = 8;
	c.load = 0.2;
	c.duration_ns = 1000000;
	r = fab_test_run(&c);
	cr_assert_gt(r.nflows, 100);
	cr_assert_eq(r.done, r.nflows);
	cr_assert_eq(r.connections.established, r.nflows);
	cr_assert_eq(r.connections.ended, r.nflows);
	cr_assert_eq(r.connections.mads, 5 * r.nflows);
	cr_assert_eq(r.connections.max_ps, 0);
	c.timed = true;
	timed = fab_test_run(&c);
	cr_assert_eq(timed.nflows, r.nflows);
	cr_assert_eq(timed.done, r.nflows);
	cr_assert_eq(timed.connections.mads, 5 * r.nflows);
	cr_assert_geq(timed.connections.p50_ps, 2 * WAY);
	for (i = 0; i < r.nflows; i++) {
		cr_assert_eq(timed.flow[i].start_ps, r.flow[i].start_ps);
		cr_assert_geq(timed.flow[i].end_ps - timed.flow[i].start_ps,
			2 * WAY + timed.flow[i].ideal_ps);
	}
	fab_result_free(&r);
	fab_result_free(&timed);
}

/* Random losses, of messages and of data, are decided by the seed; losses of messages do not change
 * the losses of data. */
Test(fabric_connect, a_lossy_network_is_decided_by_its_seed)
{
	struct fab_config c = fab_test_config(FAB_PERMUTATION);
	struct fab_result a, b, other;

	c.hosts = 32;
	c.size = 1u << 20;
	c.loss = 0.05;
	c.timed = true;
	c.probes = true;
	a = fab_test_run(&c);
	b = fab_test_run(&c);
	c.seed = 2;
	other = fab_test_run(&c);
	cr_assert_eq(a.connections.established, 32);
	cr_assert_gt(a.connections.mads_lost, 0);
	cr_assert_eq(a.done, 32);
	cr_assert_arr_eq(a.flow, b.flow, a.nflows * sizeof(*a.flow));
	cr_assert_arr_eq(&a.connections, &b.connections, sizeof(a.connections));
	cr_assert_eq(a.events, b.events);
	cr_assert_neq(a.events, other.events);
	fab_result_free(&a);
	fab_result_free(&b);
	fab_result_free(&other);
}
