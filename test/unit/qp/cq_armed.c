/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Completion queues that are armed with the state of their lanes that the program has seen
 * ("behind"): which completions raise an event then. */
#include "harness.h"
#include "qp_priv.h"

static void
arm_behind(struct karst_cq_shared *sh, const struct karst_cq_lane *lane, bool solicited)
{
	karst_cq_arm_behind(sh, lane, 1, solicited);
}

/* Publishes one more completion. */
static void
complete(struct bed *b, struct karst_core_cq *cq, bool solicited)
{
	memset(karst_cq_push(b->core, cq, solicited), 0, sizeof(struct karst_cqe));
	karst_core_flush(b->core);
}

/* At the end of a case: takes all completions. */
static void
take_all(struct bed *b)
{
	const struct karst_cqe *at;
	uint32_t n;

	while ((n = karst_cq_lane_peek(&b->slane, &at)) > 0)
		karst_cq_lane_take(&b->slane, n);
	while ((n = karst_cq_lane_peek(&b->rlane, &at)) > 0)
		karst_cq_lane_take(&b->rlane, n);
}

/* State for a queue whose completions are published with those of another queue, whose event comes
 * first. */
static struct bed *bed;
static bool behind;

/* Arms the other queue, when all of its completions are already visible to the program. */
static void
arm_other(struct bed *b, struct karst_core_cq *cq)
{
	void *sh = cq == b->scq ? b->rcq_shared : b->scq_shared;

	b->at_cq_event = NULL;
	if (behind)
		arm_behind(sh, cq == b->scq ? &b->rlane : &b->slane, false);
	else
		karst_cq_arm(sh, false);
}

static void
publish_both(bool arm_is_behind)
{
	behind = arm_is_behind;
	bed = bed_rc();
	karst_cq_arm(bed->scq_shared, false);
	memset(karst_cq_push(bed->core, bed->rcq, false), 0, sizeof(struct karst_cqe));
	memset(karst_cq_push(bed->core, bed->scq, false), 0, sizeof(struct karst_cqe));
	bed->at_cq_event = arm_other;
	karst_core_flush(bed->core);
	cr_assert_null(bed->at_cq_event, "the queue that is armed is not looked at first");
}

/* A program arms a queue after the lane's tail is published and before the armed word is read.  It
 * has the completion in view, and takes it by its next poll: there must be no event for this
 * completion, but one for the next. */
Test(cq_armed, between_tail_and_look)
{
	publish_both(true);
	cr_assert_eq(bed->cq_events, 1);
	complete(bed, bed->rcq, false);
	cr_assert_eq(bed->cq_events, 2);
	complete(bed, bed->rcq, false);
	cr_assert_eq(bed->cq_events, 2, "it is not armed");
	take_all(bed);
	bed_close(bed);
}

/* A program that does not tell what it has in view gets an event for it. */
Test(cq_armed, between_tail_and_look_without_lanes)
{
	publish_both(false);
	cr_assert_eq(bed->cq_events, 2);
	take_all(bed);
	bed_close(bed);
}

Test(cq_armed, once_for_each_arming)
{
	struct bed *b = bed_rc();
	uint32_t i;

	complete(b, b->rcq, true);
	for (i = 0; i < 20; i++) {
		uint32_t armings = karst_cq_arm_count(b->rcq_shared);

		arm_behind(b->rcq_shared, &b->rlane, i & 1);
		cr_assert(karst_cq_is_armed(b->rcq_shared));
		cr_assert_neq(karst_cq_arm_count(b->rcq_shared), armings);
		cr_assert_not(karst_cq_lane_came(&b->rlane));
		karst_core_flush(b->core);
		cr_assert_eq(b->cq_events, i);
		complete(b, b->rcq, true);
		cr_assert_eq(b->cq_events, i + 1);
		cr_assert(karst_cq_lane_came(&b->rlane));
		cr_assert_not(karst_cq_is_armed(b->rcq_shared));
		complete(b, b->rcq, true);
		cr_assert_eq(b->cq_events, i + 1);
	}
	take_all(b);
	bed_close(b);
}

/* Arming once more changes nothing: what has come since the first time is still a reason for an
 * event. */
Test(cq_armed, twice)
{
	struct bed *b = bed_rc();

	karst_cq_set_moderation(b->rcq, 2, 0);
	arm_behind(b->rcq_shared, &b->rlane, false);
	complete(b, b->rcq, false);
	arm_behind(b->rcq_shared, &b->rlane, false);
	complete(b, b->rcq, false);
	cr_assert_eq(b->cq_events, 1);
	take_all(b);
	bed_close(b);
}

/* Armed for solicited events first, then for any. */
Test(cq_armed, stronger)
{
	struct bed *b = bed_rc();

	arm_behind(b->rcq_shared, &b->rlane, true);
	complete(b, b->rcq, false);
	cr_assert_eq(b->cq_events, 0);
	arm_behind(b->rcq_shared, &b->rlane, false);
	arm_behind(b->rcq_shared, &b->rlane, true);
	cr_assert_eq(b->cq_events, 0);
	complete(b, b->rcq, false);
	cr_assert_eq(b->cq_events, 1);
	take_all(b);
	bed_close(b);
}

/* A completion that is lost because the queue is full wakes the program, too. */
Test(cq_armed, overflow)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.cq_entries = 4;
	b = bed_open(&s);
	for (i = 0; i < 4; i++)
		complete(b, b->rcq, false);
	arm_behind(b->rcq_shared, &b->rlane, false);
	cr_assert_null(karst_cq_push(b->core, b->rcq, false));
	karst_core_flush(b->core);
	cr_assert_eq(b->cq_events, 1);
	expect_event_of(b, CQ_ERR, b->rcq);
	take_all(b);
	bed_close(b);
}

/* The lane is moved, and its state is moved with it. */
Test(cq_armed, moved)
{
	struct bed *b = bed_rc();
	size_t bytes = karst_lane_bytes(64, 0);
	struct karst_lane_shared *to = aligned_alloc(64, bytes);
	struct karst_lane_span span;
	struct karst_lane lane;

	memset(to, 0xff, bytes);
	complete(b, b->rcq, false);
	arm_behind(b->rcq_shared, &b->rlane, false);
	karst_core_resize_cq_prepare(b->core, b->rcq, &lane, &span);
	span.upto = span.from;
	cr_assert_eq(karst_core_resize_cq_commit(b->core, b->rcq, to, 64, &span), 0);
	karst_cq_lane_attach(&b->rlane, to, 64, 0);
	cr_assert_not(karst_cq_lane_came(&b->rlane));
	complete(b, b->rcq, false);
	cr_assert_eq(b->cq_events, 1);
	take_all(b);
	bed_close(b);
	free(to);
}
