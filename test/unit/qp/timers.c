/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Users who share a core also share the timers that fire in a turn. */
#include "harness.h"
#include "qp_priv.h"

#define BUDGET 8u  /* timers in a turn */
#define MANY   60u /* queue pairs of one user */
#define USERS  20u /* more than a turn handles */

static struct setup
setup_shared(uint32_t sharers)
{
	struct setup s = setup_of(KARST_QPT_RC);

	s.core.max_qps = 2 * MANY;
	s.core.max_sharers = sharers;
	s.qp.sharer = 0;
	return s;
}

/* Sends a request, which starts its timer. */
static void
send_on(struct bed *b, uint32_t side)
{
	b->s = &b->side[side];
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
}

static bool
has_timed_out(const struct bed *b, uint32_t side)
{
	const struct karst_requester *r = &b->side[side].qp->req;

	return r->retry_left != r->retry_cnt;
}

static void
close_all(struct bed *b)
{
	uint32_t i;

	b->out_head = b->out_tail;
	for (i = 0; i < b->nsides; i++)
		bed_destroy_side(b, &b->side[i]);
	cr_assert_eq(b->core->timing.nusers, 0);
	cr_assert_eq(karst_core_next_ns(b->core), UINT64_MAX);
	bed_close(b);
}

/* MANY timers of user 1 are due together with that of side 0, which is armed between them. */
static struct bed *
bed_crowded(uint32_t sharer)
{
	struct setup s = setup_shared(2);
	struct bed *b;
	uint32_t i;

	s.qp.sharer = sharer;
	b = bed_open(&s);
	s.qp.sharer = 1;
	for (i = 1; i <= MANY; i++)
		bed_add(b, &s);
	for (i = 1; i <= MANY; i++) {
		send_on(b, i);
		if (i == MANY / 2)
			send_on(b, 0);
	}
	return b;
}

Test(timers, many_of_one_user)
{
	struct bed *b = bed_crowded(0);
	uint32_t i, n = 0;

	b->core->now_ns += 4 * RTO;
	cr_assert_leq(karst_core_expire(b->core, BUDGET), BUDGET);
	cr_assert(has_timed_out(b, 0));
	/* and no timer of the others is lost */
	while (karst_core_next_ns(b->core) <= b->core->now_ns) {
		cr_assert_leq(n++, 2 * MANY / BUDGET);
		karst_core_expire(b->core, BUDGET);
	}
	for (i = 1; i <= MANY; i++)
		cr_assert(has_timed_out(b, i));
	close_all(b);
}

/* A queue pair that moves to another user takes its timer along. */
Test(timers, another_user)
{
	struct bed *b = bed_crowded(1);

	cr_assert_eq(b->core->timing.nusers, 1);
	karst_qp_set_user(b->core, b->side[0].qp, b, NULL, 0);
	cr_assert_eq(b->core->timing.nusers, 2);
	cr_assert_eq(b->core->timing.count, MANY + 1);
	b->core->now_ns += RTO / 2;
	cr_assert_eq(karst_core_expire(b->core, BUDGET), 0);
	b->core->now_ns += 4 * RTO;
	cr_assert_leq(karst_core_expire(b->core, BUDGET), BUDGET);
	cr_assert(has_timed_out(b, 0));
	close_all(b);
}

/* All users have their turn, however many there are. */
Test(timers, many_users)
{
	struct setup s = setup_shared(USERS);
	struct bed *b = bed_open(&s);
	uint32_t i, n = 0;

	for (i = 1; i < USERS; i++) {
		s.qp.sharer = i;
		bed_add(b, &s);
	}
	for (i = 0; i < USERS; i++)
		send_on(b, i);
	cr_assert_eq(b->core->timing.nusers, USERS);
	b->core->now_ns += 4 * RTO;
	for (i = 0; i < (USERS + 7) / 8; i++) {
		cr_assert_leq(karst_core_next_ns(b->core), b->core->now_ns);
		n += karst_core_expire(b->core, BUDGET);
	}
	cr_assert_eq(n, USERS);
	for (i = 0; i < USERS; i++)
		cr_assert(has_timed_out(b, i));
	close_all(b);
}
