/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Users who share a core: a user with one queue pair gets as many bytes as a user with many, and
 * the queue pairs of one user get the same, too.  Everything is counted in bytes and visits.
 */
#include "harness.h"

#define QUANTUM 2048u
#define USERS   3u
#define FRAME   (MTU + 128) /* by how much a visit may exceed its budget */
#define FRAMES  16u         /* room for more than a quantum */

/* The sides of user @u are from first[u] on; those of user 0 come first. */
struct crowd {
	struct bed *b;
	struct setup s;
	uint32_t first[USERS + 1];
};

static void
crowd_open(struct crowd *c, const uint32_t nqps[USERS], uint32_t max_qps)
{
	uint32_t u, i;

	memset(c, 0, sizeof(*c));
	c->s = setup_of(KARST_QPT_RC);
	c->s.core.quantum_bytes = QUANTUM;
	c->s.core.max_sharers = USERS;
	c->s.core.max_qps = max_qps;
	c->b = bed_open(&c->s);
	for (u = 0; u < USERS; u++) {
		c->first[u + 1] = c->first[u] + nqps[u];
		c->s.qp.sharer = u;
		for (i = c->first[u]; i < c->first[u + 1]; i++)
			if (i != 0)
				bed_add(c->b, &c->s);
	}
	turn(c->b); /* each has had one turn */
}

static void
crowd_close(struct crowd *c)
{
	uint32_t i;

	c->b->out_head = c->b->out_tail;
	for (i = 0; i < c->b->nsides; i++)
		bed_destroy_side(c->b, &c->b->side[i]);
	bed_close(c->b);
}

static void
write_on(struct crowd *c, uint32_t side, uint32_t len)
{
	c->b->s = &c->b->side[side];
	post(c->b, RDMA_WRITE, 1, .len = len);
	karst_core_doorbell(c->b->core, c->b->s->qpn);
}

static void
write_on_all(struct crowd *c, uint32_t user, uint32_t len)
{
	uint32_t i;

	for (i = c->first[user]; i < c->first[user + 1]; i++)
		write_on(c, i, len);
}

static uint64_t
sent(const struct crowd *c, uint32_t side)
{
	struct karst_qp_stats s;

	karst_qp_stats(c->b->side[side].qp, &s);
	return s.tx_bytes;
}

static uint64_t
sent_by(const struct crowd *c, uint32_t user)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = c->first[user]; i < c->first[user + 1]; i++)
		n += sent(c, i);
	return n;
}

static uint32_t
user_of_qp(const struct crowd *c, const struct karst_core_qp *qp)
{
	uint32_t u, i;

	for (u = 0; u < USERS; u++)
		for (i = c->first[u]; i < c->first[u + 1]; i++)
			if (c->b->side[i].qp == qp)
				return u;
	cr_assert(!"a queue pair that was picked is somebody's");
	return 0;
}

/* @return the user of @qp; USERS: of no user */
static uint32_t
visit_one(struct crowd *c, struct karst_parked *parked)
{
	const struct karst_core_qp *qp = visit_picked(c->b, FRAMES, parked);

	c->b->out_head = c->b->out_tail;
	return qp != NULL ? user_of_qp(c, qp) : USERS;
}

/* No two queue pairs of @user differ by more than a turn. */
static void
expect_fair_within(const struct crowd *c, uint32_t user)
{
	uint64_t least = UINT64_MAX, most = 0;
	uint32_t i;

	for (i = c->first[user]; i < c->first[user + 1]; i++) {
		least = karst_min_u64(least, sent(c, i));
		most = karst_max_u64(most, sent(c, i));
	}
	cr_assert_leq(most - least, QUANTUM + FRAME, "user %u: %u to %u bytes", user,
		(unsigned)least, (unsigned)most);
}

/* Both users have something to send: of the next @total bytes each sends half. */
static void
expect_halves(struct crowd *c, uint32_t a, uint32_t b, uint64_t total)
{
	const uint64_t a0 = sent_by(c, a), b0 = sent_by(c, b);
	uint64_t as = 0, bs = 0;

	while (as + bs < total) {
		cr_assert_lt(visit_one(c, NULL), USERS);
		as = sent_by(c, a) - a0;
		bs = sent_by(c, b) - b0;
		cr_assert_leq(karst_max_u64(as, bs) - karst_min_u64(as, bs), QUANTUM + FRAME,
			"%u and %u bytes", (unsigned)as, (unsigned)bs);
	}
}

Test(sched_users, many_queue_pairs_are_no_more_than_one)
{
	struct crowd c;

	crowd_open(&c, (uint32_t[]){40, 1, 0}, 64);
	write_on_all(&c, 0, 16384);
	write_on_all(&c, 1, 60000);
	expect_halves(&c, 0, 1, 110000);
	expect_fair_within(&c, 0);
	crowd_close(&c);
}

/* Bytes are shared out, not packets. */
Test(sched_users, small_packets_and_large_ones)
{
	struct crowd c;
	uint32_t i;

	crowd_open(&c, (uint32_t[]){8, 2, 0}, 16);
	for (i = 0; i < 60; i++)
		write_on_all(&c, 0, 100);
	write_on_all(&c, 1, 50000);
	expect_halves(&c, 0, 1, 100000);
	expect_fair_within(&c, 0);
	expect_fair_within(&c, 1);
	crowd_close(&c);
}

/* A full burst does not end a user's turn. */
Test(sched_users, a_full_burst_keeps_the_turn)
{
	struct crowd c;
	uint32_t i, user = 0, turns = 0;

	crowd_open(&c, (uint32_t[]){3, 1, 0}, 16);
	write_on_all(&c, 0, 16384);
	write_on_all(&c, 1, 16384);
	for (i = 0; i < 60; i++) {
		struct karst_core_qp *qp = visit_picked(c.b, 1, NULL);

		c.b->out_head = c.b->out_tail;
		turns += user_of_qp(&c, qp) != user;
		user = user_of_qp(&c, qp);
	}
	/* of 7 frames each */
	cr_assert_geq(turns, 60 / 8);
	cr_assert_leq(turns, 60 / 6);
	crowd_close(&c);
}

/* A new user has a turn after those who are there, each with a quantum; when a user leaves, the
 * others share everything; and what a user did not send while idle is not sent later. */
Test(sched_users, who_comes_and_who_goes)
{
	struct crowd c;
	uint64_t before[USERS];
	uint32_t i, u;

	crowd_open(&c, (uint32_t[]){8, 1, 1}, 16);
	write_on_all(&c, 0, 16384);
	for (i = 0; i < 20; i++)
		cr_assert_eq(visit_one(&c, NULL), 0);
	write_on(&c, c.first[1], 30000);
	write_on(&c, c.first[2], 1000);
	for (u = 0; u < USERS; u++)
		before[u] = sent_by(&c, u);
	for (i = 0; sent_by(&c, 2) == before[2]; i++)
		visit_one(&c, NULL);
	cr_assert_leq(i, 4);
	for (u = 0; u < 2; u++)
		cr_assert_leq(sent_by(&c, u) - before[u], 2 * QUANTUM);
	/* user 2 has nothing to send any more */
	expect_halves(&c, 0, 1, 15000);
	write_on(&c, c.first[2], 20000);
	before[0] = sent_by(&c, 0);
	before[1] = sent_by(&c, 1);
	before[2] = sent_by(&c, 2);
	while (sent_by(&c, 2) - before[2] < 10000) {
		visit_one(&c, NULL);
		for (u = 0; u < 2; u++)
			cr_assert_leq(sent_by(&c, 2) - before[2],
				sent_by(&c, u) - before[u] + QUANTUM + FRAME);
	}
	crowd_close(&c);
}

/* All queue pairs of a user are destroyed during that user's turn, and then another user has the
 * number. */
Test(sched_users, who_leaves_is_nowhere)
{
	struct crowd c;
	uint32_t i, left;

	for (left = 0; left < 2; left++) {
		crowd_open(&c, (uint32_t[]){35, 1, 1}, 64);
		write_on_all(&c, 0, 16384);
		write_on_all(&c, 1, 60000);
		for (i = 0; i < 41; i++)
			visit_one(&c, NULL);
		/* the queue pair whose turn it is, or the other one */
		while ((karst_core_pick(c.b->core) == c.b->side[c.first[1]].qp) != (left == 1))
			visit_one(&c, NULL);
		for (i = 0; i < c.first[1]; i++)
			bed_destroy_side(c.b, &c.b->side[i]);
		c.first[0] = c.first[1];
		for (i = 0; i < 5; i++)
			cr_assert_eq(visit_one(&c, NULL), 1);
		c.s.qp.sharer = 0;
		bed_add(c.b, &c.s);
		c.first[3] = c.b->nsides;
		post(c.b, RDMA_WRITE, 1, .len = 60000);
		karst_core_doorbell(c.b->core, c.b->s->qpn);
		/* it counts as user 2 in this test, who has nothing to send */
		expect_halves(&c, 1, 2, 30000);
		crowd_close(&c);
	}
}

/* A queue pair that moves to another user takes that user's turns from then on, with what it has to
 * send. */
Test(sched_users, who_is_taken_over)
{
	struct crowd c;
	uint64_t before[USERS];

	crowd_open(&c, (uint32_t[]){2, 8, 0}, 16);
	write_on_all(&c, 0, 60000);
	write_on_all(&c, 1, 16384);
	expect_halves(&c, 0, 1, 30000);
	/* the second queue pair of user 0 becomes the ninth of user 1 */
	karst_qp_set_user(c.b->core, c.b->side[1].qp, c.b, NULL, 1);
	before[0] = sent(&c, 0);
	before[1] = sent(&c, 1);
	before[2] = sent_by(&c, 1);
	while (sent(&c, 0) - before[0] < 18 * QUANTUM)
		cr_assert_lt(visit_one(&c, NULL), USERS);
	cr_assert_geq(sent(&c, 1) - before[1] + sent_by(&c, 1) - before[2], 17 * QUANTUM);
	cr_assert_leq(sent(&c, 1) - before[1] + sent_by(&c, 1) - before[2], 20 * QUANTUM);
	cr_assert_leq(sent(&c, 1) - before[1], 3 * QUANTUM + FRAME);
	cr_assert_geq(sent(&c, 1) - before[1], QUANTUM / 2);
	crowd_close(&c);
}

/* Nor does a user wait long for queue pairs of another user that send nothing, because their port
 * is full or because they were only rung for. */
Test(sched_users, visits_for_nothing_count)
{
	struct karst_parked parked = LIST_HEAD_INITIALIZER(parked);
	const uint32_t most = QUANTUM / KARST_QUIET_COST + 1;
	struct crowd c;
	uint32_t i;

	crowd_open(&c, (uint32_t[]){40, 1, 0}, 64);
	write_on_all(&c, 0, 1000);
	write_on_all(&c, 1, 1000);
	for (i = 0; karst_core_pick(c.b->core) != c.b->side[c.first[1]].qp; i++)
		visit_one(&c, &parked);
	cr_assert_leq(i, most);
	cr_assert_eq(visit_one(&c, NULL), 1);
	while (visit_one(&c, &parked) != USERS)
		;
	karst_core_unpark(c.b->core, &parked, UINT32_MAX);
	while (visit_one(&c, NULL) != USERS)
		;
	for (i = 0; i < c.first[1]; i++)
		karst_core_doorbell(c.b->core, c.b->side[i].qpn);
	write_on_all(&c, 1, 1000);
	for (i = 0; visit_one(&c, NULL) != 1; i++)
		;
	cr_assert_leq(i, most);
	crowd_close(&c);
}

/* What a control call sends out of turn is charged, and the current turn continues. */
Test(sched_users, out_of_turn)
{
	struct crowd c;
	uint64_t before[USERS], each[USERS];
	uint32_t i, u;

	crowd_open(&c, (uint32_t[]){2, 2, 1}, 16);
	for (u = 0; u < USERS; u++)
		write_on_all(&c, u, 60000);
	for (i = 0; i < 30; i++)
		visit_one(&c, NULL);
	for (u = 0; u < USERS; u++)
		before[u] = sent_by(&c, u);
	for (i = 0; i < 9; i++) {
		karst_core_pick_first(c.b->core, c.b->side[i & 1].qp);
		cr_assert_eq(karst_core_pick(c.b->core), c.b->side[i & 1].qp);
		cr_assert_eq(visit_one(&c, NULL), 0);
		visit_one(&c, NULL);
	}
	for (u = 0; u < USERS; u++)
		each[u] = sent_by(&c, u) - before[u];
	cr_assert_geq(each[0], 9 * QUANTUM);
	/* between two of these calls the others had everything that was left, in turn */
	cr_assert_geq(each[1], QUANTUM);
	cr_assert_geq(each[2], QUANTUM);
	while (sent_by(&c, 2) - before[2] < 12 * QUANTUM)
		visit_one(&c, NULL);
	for (u = 0; u < USERS; u++) {
		each[u] = sent_by(&c, u) - before[u];
		cr_assert_leq(each[u], 13 * QUANTUM + FRAME, "user %u: %u", u, (unsigned)each[u]);
		cr_assert_geq(each[u], 11 * QUANTUM - FRAME, "user %u: %u", u, (unsigned)each[u]);
	}
	crowd_close(&c);
}

/* Lists that are longer than one of their blocks: the order is kept.  When an entry is removed the
 * last one takes its place, and each that is left has its turn once. */
Test(sched_users, order_in_long_lists)
{
	const struct karst_core_qp *qp;
	uint32_t i, k, n, round;
	bool had[70] = {false};
	struct crowd c;

	crowd_open(&c, (uint32_t[]){70, 1, 0}, 71);
	for (round = 0; round < 5; round++) {
		/* another place is the first each time */
		for (i = 0; i < 70; i++)
			karst_core_activate(c.b->core, c.b->side[i].qp);
		for (i = 0; i < 13 + round; i++)
			cr_assert_eq(karst_core_next_active(c.b->core), c.b->side[i].qp);
		for (i = 0; i < 13 + round; i++)
			karst_core_activate(c.b->core, c.b->side[i].qp);
		for (k = 13 + round; k < 83 + round; k++)
			cr_assert_eq(karst_core_next_active(c.b->core), c.b->side[k % 70].qp,
				"round %u, number %u", round, k);
		cr_assert_null(karst_core_next_active(c.b->core));
	}
	for (i = 0; i < 70; i++)
		karst_core_activate(c.b->core, c.b->side[i].qp);
	/* first, last, at the ends of blocks, in the middle, two in a row */
	for (i = 0; i < 70; i += i % 10 == 0 ? 1 : 9)
		bed_destroy_side(c.b, &c.b->side[i]);
	bed_destroy_side(c.b, &c.b->side[69]);
	for (n = 0; (qp = karst_core_next_active(c.b->core)) != NULL; n++) {
		for (i = 0; i < 70 && c.b->side[i].qp != qp; i++)
			;
		cr_assert(i < 70 && !had[i], "number %u", i);
		had[i] = true;
	}
	cr_assert_eq(n, 70 - 15);
	cr_assert(!karst_core_has_active(c.b->core));
	/* from the end, where blocks are freed */
	for (i = 0; i < 70; i++)
		if (c.b->side[i].qp != NULL)
			karst_core_activate(c.b->core, c.b->side[i].qp);
	for (i = 70; i-- > 9;)
		if (c.b->side[i].qp != NULL)
			bed_destroy_side(c.b, &c.b->side[i]);
	for (i = 2; i < 9; i++) {
		karst_core_activate(c.b->core, c.b->side[i].qp);
		cr_assert_eq(karst_core_next_active(c.b->core), c.b->side[i].qp, "number %u", i);
		karst_core_activate(c.b->core, c.b->side[i].qp);
	}
	for (i = 2; i < 9; i++)
		cr_assert_eq(karst_core_next_active(c.b->core), c.b->side[i].qp, "number %u", i);
	cr_assert(!karst_core_has_active(c.b->core));
	crowd_close(&c);
}

/* As many users as queue pairs, and all lists as short and as long as they can be. */
Test(sched_users, no_list_wants_for_room)
{
	struct crowd c;
	uint32_t i, k, u;

	crowd_open(&c, (uint32_t[]){31, 31, 1}, 63);
	for (i = 0; i < 100; i++) {
		/* each list begins and ends at any place in its blocks */
		for (k = 0; k < c.first[3]; k++)
			karst_core_activate(c.b->core, c.b->side[k].qp);
		for (k = 0; k < 7 + i % 5; k++)
			cr_assert_not_null(karst_core_next_active(c.b->core));
	}
	for (k = 0; karst_core_next_active(c.b->core) != NULL; k++)
		;
	cr_assert_leq(k, c.first[3]);
	for (u = 0; u < USERS; u++)
		write_on_all(&c, u, 64);
	for (k = 0; visit_one(&c, NULL) != USERS; k++)
		;
	cr_assert_geq(k, c.first[3]);
	crowd_close(&c);
}

Test(sched_users, numbers_beyond_the_last)
{
	struct karst_qp_init init;
	struct karst_core_qp *qp;
	struct crowd c;
	void *buf, *rings;

	crowd_open(&c, (uint32_t[]){1, 0, 0}, 16);
	init = c.s.qp;
	init.send_cq = init.recv_cq = c.b->scq;
	rings = init.sq_shared = init.rq_shared =
		aligned_alloc(64, karst_wq_bytes(64, karst_wq_stride(true, 4, 128)));
	memset(rings, 0, karst_wq_bytes(64, karst_wq_stride(true, 4, 128)));
	buf = aligned_alloc(64, karst_qp_bytes(&init));
	karst_qp_prepare(buf, &init);
	init.sharer = USERS;
	cr_assert_eq(karst_qp_create(c.b->core, buf, &init, &qp), -EINVAL);
	free(buf);
	free(rings);
	crowd_close(&c);
}
