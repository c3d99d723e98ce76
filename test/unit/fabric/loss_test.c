/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Losses and their effect, and that PFC loses nothing. */
#include <stdio.h>

#include "run.h"

#define FRAME ((4096 + AROUND) * PS_100G)

/* Frame 100 is lost on its last link.  The next frame shows the gap; until the NAK arrives the
 * sender has continued, and all of that is sent again (Q4). */
Test(fabric_loss, go_back_n_after_one_loss)
{
	struct fab_config c = fab_test_config(FAB_ONE);
	uint64_t after, again;
	struct fab_result r;

	c.size = 160u * 65536;
	c.lose_nth = 100;
	r = fab_test_run(&c);
	/* from the start of frame 100 to the NAK: two frames, a link, the second frame once more, a
	 * link, and the NAK over both links */
	after = 2 * FRAME + 1 * US + FRAME + 1 * US + 2 * (ACK * PS_100G + 1 * US);
	/* the frame that is being sent when the NAK arrives is finished; one or two of the frames
	 * in between have a RETH, which adds less than a frame */
	again = (after + FRAME - 1) / FRAME;
	cr_assert_eq(r.lost, 1);
	cr_assert_eq(r.seq_naks, 1);
	cr_assert_eq(r.retransmits, again, "%llu frames again, not %llu",
		(unsigned long long)r.retransmits, (unsigned long long)again);
	cr_assert_geq(r.flow[0].end_ps - r.flow[0].ideal_ps, again * FRAME);
	cr_assert_leq(r.flow[0].end_ps - r.flow[0].ideal_ps, again * FRAME + 2 * RETH * PS_100G);
	cr_assert_eq(r.timeouts, 0);
	fab_result_free(&r);
}

/* The loss of the last frame is detected only by the timeout (Q6), 4.096 us * 2^10 after the first
 * frame was sent, since nothing was acknowledged meanwhile.  The wheel may add up to two ticks; the
 * retransmission takes no longer than two times the whole flow. */
Test(fabric_loss, a_lost_tail_waits_for_the_timeout)
{
	struct fab_config c = fab_test_config(FAB_ONE);
	uint64_t rto = (4096ull << 10) * 1000, tick = 4096000;
	struct fab_result r;

	c.size = 16 * 4096;
	c.lose_nth = 16;
	c.timeout = 10;
	r = fab_test_run(&c);
	cr_assert_eq(r.timeouts, 1);
	cr_assert_eq(r.done, 1);
	cr_assert_geq(r.flow[0].end_ps, rto);
	cr_assert_leq(r.flow[0].end_ps, rto + 2 * tick + 2 * r.flow[0].ideal_ps, "%llu ps",
		(unsigned long long)r.flow[0].end_ps);
	fab_result_free(&r);
}

/* With probes (Q11) it is detected after twice 1 ms, the assumed round trip when none was measured.
 * The answer says that all but the last frame have arrived, so the next probe, 16 ticks later, is
 * the last frame. */
Test(fabric_loss, a_lost_tail_is_probed_for)
{
	struct fab_config c = fab_test_config(FAB_ONE);
	uint64_t wait = 2000ull * US, tick = 4096000;
	struct fab_result r;

	c.size = 16 * 4096;
	c.lose_nth = 16;
	c.timeout = 10;
	c.probes = true;
	r = fab_test_run(&c);
	cr_assert_eq(r.timeouts, 0);
	cr_assert_eq(r.probes, 2);
	cr_assert_eq(r.done, 1);
	cr_assert_geq(r.flow[0].end_ps, wait);
	cr_assert_leq(r.flow[0].end_ps, wait + 20 * tick + 2 * r.flow[0].ideal_ps, "%llu ps",
		(unsigned long long)r.flow[0].end_ps);
	fab_result_free(&r);
}

/* A requester without answers gives up, and the run ends. */
Test(fabric_loss, who_hears_nothing_gives_up)
{
	struct fab_config c = fab_test_config(FAB_ONE);
	struct fab_result r;

	c.size = 4096;
	c.loss = 1;
	c.mad_loss = 0;
	c.timeout = 1;
	r = fab_test_run(&c);
	cr_assert_eq(r.failed, 1);
	cr_assert_eq(r.flow[0].state, FAB_FLOW_FAILED);
	cr_assert_eq(r.timeouts, 8);
	fab_result_free(&r);
}

static struct fab_config
incast(void)
{
	struct fab_config c = fab_test_config(FAB_INCAST);

	c.fan_in = 16;
	c.buffer = 2u << 20;
	c.duration_ns = 2000000;
	return c;
}

Test(fabric_loss, incast_with_pfc_loses_nothing)
{
	struct fab_config c = incast();
	struct fab_result r;

	c.pfc = true;
	r = fab_test_run(&c);
	cr_assert_eq(r.drops, 0);
	cr_assert_eq(r.retransmits, 0);
	cr_assert_gt(r.pauses, 0);
	cr_assert_gt(r.paused_ps, 0);
	cr_assert_leq(r.queue.max, c.buffer);
	cr_assert_geq(r.jain, 0.99);
	fab_result_free(&r);
}

/* Also with the smallest possible buffer, and through several switches. */
Test(fabric_loss, pfc_with_the_least_buffer)
{
	struct fab_config c = incast();
	char why[256];
	struct fab_result r;
	unsigned long long least = 0;

	c.pfc = true;
	c.topology = FAB_CLOS;
	c.hosts = 20;
	c.buffer = 65536;
	cr_assert_eq(fab_config_complete(&c, why, sizeof(why)), 0);
	cr_assert_neq(fab_run(&c, &r), 0);
	cr_assert_eq(sscanf(r.error, "buffer of 65536 bytes: with PFC leaf0 needs at least %llu",
			     &least),
		1, "%s", r.error);
	c.buffer = least;
	r = fab_test_run(&c);
	cr_assert_eq(r.drops, 0);
	cr_assert_gt(r.pauses, 0);
	cr_assert_gt(r.goodput, 0);
	fab_result_free(&r);
}

/* Without PFC and congestion control the queue is full, and further frames are dropped: no queue
 * has more than its share, a half with alpha 1. */
Test(fabric_loss, tail_drop_at_the_dynamic_threshold)
{
	struct fab_config c = incast();
	struct fab_result r;

	r = fab_test_run(&c);
	cr_assert_gt(r.drops, 0);
	cr_assert_gt(r.retransmits, 0);
	cr_assert_leq(r.queue.max, c.buffer / 2);
	cr_assert_geq(r.queue.max, c.buffer / 2 - 2 * 4200);
	cr_assert_eq(r.pauses, 0);
	fab_result_free(&r);
}
