/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Which queue pair has its turn: rounds by bytes, full ports, queue pairs that are destroyed. */
#include "harness.h"

#define QUANTUM 2048u
#define QPS     3u

/* A core with a small quantum, and three queue pairs. */
static struct bed *
sched_bed(void)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.core.quantum_bytes = QUANTUM;
	b = bed_open(&s);
	for (i = 1; i < QPS; i++)
		bed_add(b, &s);
	turn(b); /* each has had one turn */
	return b;
}

static void
write_on(struct bed *b, unsigned int side, uint32_t len)
{
	b->s = &b->side[side];
	post(b, RDMA_WRITE, 1, .len = len);
	karst_core_doorbell(b->core, b->s->qpn);
}

static uint64_t
sent(const struct bed *b, unsigned int side)
{
	struct karst_qp_stats s;

	karst_qp_stats(b->side[side].qp, &s);
	return s.tx_bytes;
}

static void
close_all(struct bed *b)
{
	bed_forget(b);
	b->s = &b->side[0];
	bed_close(b);
}

/* Long messages and many short ones: the same number of bytes in a round, up to one frame. */
Test(sched, rounds_are_fair_by_bytes)
{
	struct bed *b = sched_bed();
	uint64_t least, most;
	uint32_t i, k;

	write_on(b, 0, 16384);
	write_on(b, 1, 16384);
	for (i = 0; i < 16; i++)
		write_on(b, 2, 100);
	for (i = 0; i < 4; i++)
		/* the short ones are complete after two rounds */
		for (k = 0; k < (i < 2 ? QPS : 2); k++) {
			cr_assert_eq(visit_picked(b, 16, NULL), b->side[k].qp, "round %u", i);
			b->out_head = b->out_tail;
		}
	for (k = 0; k < 2; k++) {
		cr_assert_geq(sent(b, k), 4 * QUANTUM);
		cr_assert_lt(sent(b, k), 4 * QUANTUM + MTU + 128);
	}
	least = karst_min_u64(sent(b, 0), sent(b, 1));
	most = sent(b, 0) + sent(b, 1) - least;
	cr_assert_lt(most - least, MTU + 128);
	close_all(b);
}

static void
take_all(struct karst_cq_lane *lane)
{
	const struct karst_cqe *cqe;
	uint32_t n;

	while ((n = karst_cq_lane_peek(lane, &cqe)) != 0)
		karst_cq_lane_take(lane, n);
}

/* A visit to a queue pair in Error flushes more than a quantum: it waits then until others have
 * sent as much, however fast its program posts. */
Test(sched, flushing_is_paid_back)
{
	struct bed *b = sched_bed();
	uint32_t charged = 0;

	b->s = &b->side[0];
	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	write_on(b, 1, 60000);
	while (sent(b, 1) < 60000) {
		b->s = &b->side[0];
		while (karst_wq_free(&b->s->sq, 1) != 0)
			post(b, SEND, 1, .len = 8);
		while (karst_wq_free(&b->s->rq, 1) != 0)
			post_recv(b, 2, 0, 8);
		karst_core_doorbell(b->core, b->s->qpn);
		cr_assert_not_null(visit_picked(b, 16, NULL));
		charged += b->charge;
		b->out_head = b->out_tail;
		take_all(&b->slane);
		take_all(&b->rlane);
	}
	cr_assert_leq(charged, sent(b, 1) + 2 * KARST_VISIT_QUIET * KARST_QUIET_COST + QUANTUM);
	bed_forget(b);
	close_all(b);
}

/* A burst is full before the quantum is used up: the same queue pair continues. */
Test(sched, a_full_burst_keeps_the_turn)
{
	struct bed *b = sched_bed();
	uint32_t i;

	write_on(b, 0, 8192);
	write_on(b, 1, 8192);
	for (i = 0; sent(b, 0) < QUANTUM; i++)
		cr_assert_eq(visit_picked(b, 1, NULL), b->side[0].qp, "visit %u", i);
	cr_assert_gt(i, QUANTUM / (MTU + 128));
	cr_assert_eq(visit_picked(b, 1, NULL), b->side[1].qp);
	close_all(b);
}

/* A queue pair whose port is full lets the others continue, and comes back. */
Test(sched, parked_until_the_port_takes_frames)
{
	struct karst_parked parked = LIST_HEAD_INITIALIZER(parked);
	struct bed *b = sched_bed();

	write_on(b, 0, 64);
	write_on(b, 1, 64);
	cr_assert_eq(visit_picked(b, 16, &parked), b->side[0].qp);
	cr_assert_eq(sent(b, 0), 0);
	cr_assert_eq(visit_picked(b, 16, NULL), b->side[1].qp);
	cr_assert(!karst_core_has_active(b->core));
	cr_assert_null(visit_picked(b, 16, NULL));
	/* something else activates it: it is parked once, not twice */
	karst_core_activate(b->core, b->side[0].qp);
	cr_assert_eq(visit_picked(b, 16, &parked), b->side[0].qp);
	karst_core_unpark(b->core, &parked, UINT32_MAX);
	cr_assert(LIST_EMPTY(&parked));
	cr_assert_eq(visit_picked(b, 16, NULL), b->side[0].qp);
	cr_assert_gt(sent(b, 0), 0);
	cr_assert_null(visit_picked(b, 16, NULL));
	close_all(b);
}

/* Parked queue pairs come back a few at a time, whichever are destroyed meanwhile. */
Test(sched, back_a_few_at_a_time)
{
	struct karst_parked parked = LIST_HEAD_INITIALIZER(parked), back;
	struct bed *b = sched_bed();
	struct setup s = setup_of(KARST_QPT_RC);
	uint32_t i, n = b->nsides + 3;

	while (b->nsides < n)
		bed_add(b, &s);
	turn(b);
	for (i = 0; i < n; i++)
		write_on(b, i, 64);
	for (i = 0; i < n; i++)
		cr_assert_not_null(visit_picked(b, 16, &parked));
	cr_assert(!karst_core_has_active(b->core));
	karst_core_park_over(&parked, &back);
	cr_assert(LIST_EMPTY(&parked));
	cr_assert_not(karst_core_unpark(b->core, &back, 1));
	/* the first of those that are left */
	bed_destroy_side(b, &b->side[n - 2]);
	cr_assert_not_null(visit_picked(b, 16, NULL));
	cr_assert_null(visit_picked(b, 16, NULL));
	cr_assert_not(karst_core_unpark(b->core, &back, n - 3));
	cr_assert(karst_core_unpark(b->core, &back, 1));
	cr_assert(karst_core_unpark(b->core, &back, 1), "there is none");
	for (i = 0; i < n - 2; i++)
		cr_assert_not_null(visit_picked(b, 16, NULL));
	cr_assert_null(visit_picked(b, 16, NULL));
	karst_core_park_over(&parked, &back);
	cr_assert(LIST_EMPTY(&back));
	close_all(b);
}

/* A queue pair that gets a path by another port does not wait for the old one: it goes on, or waits
 * for room at the new one. */
Test(sched, parked_at_a_port_that_it_leaves)
{
	struct karst_parked old = LIST_HEAD_INITIALIZER(old), new = LIST_HEAD_INITIALIZER(new);
	struct karst_core_qp_attr attr;
	struct bed *b = bed_rc();

	write_on(b, 0, 64);
	cr_assert_eq(visit_picked(b, 16, &old), b->s->qp);
	cr_assert_eq(bed_to_state(b, KARST_QPS_SQD), 0);
	karst_qp_query(b->s->qp, &attr);
	attr.path.port = 1;
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_AV), 0);
	cr_assert_eq(karst_qp_port(b->s->qp), 1);
	cr_assert(LIST_EMPTY(&old), "it waits for a port that it does not use");
	cr_assert_eq(visit_picked(b, 16, &new), b->s->qp);
	cr_assert_not(LIST_EMPTY(&new));
	cr_assert_eq(bed_to_state(b, KARST_QPS_RTS), 0);
	cr_assert(karst_core_unpark(b->core, &new, UINT32_MAX));
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	cr_assert_gt(sent(b, 0), 0);
	close_all(b);
}

/* In Error no port is needed: the parked queue pair is flushed. */
Test(sched, flushed_while_parked)
{
	struct karst_parked parked = LIST_HEAD_INITIALIZER(parked);
	struct bed *b = bed_rc();

	write_on(b, 0, 64);
	cr_assert_eq(visit_picked(b, 16, &parked), b->s->qp);
	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	cr_assert_eq(visit_picked(b, 16, &parked), b->s->qp);
	expect_wc(b, 1, WR_FLUSH_ERR);
	karst_core_unpark(b->core, &parked, UINT32_MAX);
	close_all(b);
}

/* A queue pair that is asked for is visited first, active or not, and others lose no turn. */
Test(sched, one_before_all_others)
{
	struct karst_parked parked = LIST_HEAD_INITIALIZER(parked);
	struct bed *b = sched_bed();

	write_on(b, 0, 64);
	write_on(b, 1, 64);
	write_on(b, 2, 64);
	cr_assert_eq(visit_picked(b, 16, &parked), b->side[0].qp);
	karst_core_pick_first(b->core, b->side[2].qp);
	cr_assert_eq(karst_core_pick(b->core), b->side[2].qp);
	karst_core_pick_first(b->core, b->side[0].qp);
	cr_assert(LIST_EMPTY(&parked));
	cr_assert_eq(visit_picked(b, 16, NULL), b->side[0].qp);
	cr_assert_eq(visit_picked(b, 16, NULL), b->side[2].qp);
	cr_assert_eq(visit_picked(b, 16, NULL), b->side[1].qp);
	cr_assert_null(visit_picked(b, 16, NULL));
	close_all(b);
}

/* A queue pair that is destroyed is in no list any more: parked, about to build, active. */
Test(sched, forgotten_when_destroyed)
{
	struct karst_parked parked = LIST_HEAD_INITIALIZER(parked);
	struct bed *b = sched_bed();
	uint32_t i;

	for (i = 0; i < QPS; i++)
		write_on(b, i, 64);
	cr_assert_eq(visit_picked(b, 16, &parked), b->side[0].qp);
	cr_assert_eq(karst_core_pick(b->core), b->side[1].qp);
	karst_core_activate(b->core, b->side[1].qp);
	bed_destroy_side(b, &b->side[0]);
	cr_assert(LIST_EMPTY(&parked));
	bed_destroy_side(b, &b->side[1]);
	cr_assert_eq(visit_picked(b, 16, NULL), b->side[2].qp);
	cr_assert_null(visit_picked(b, 16, NULL));
	b->s = &b->side[2];
	bed_forget(b);
	bed_close(b);
}

/* The list is a ring: the order is kept across its end, and an entry in the middle can be
 * removed. */
Test(sched, order_across_the_end_of_the_ring)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_core_qp *qp[QPS];
	struct bed *b;
	uint32_t i;

	s.core.max_qps = QPS + 1;
	b = bed_open(&s);
	for (i = 1; i < QPS; i++)
		bed_add(b, &s);
	turn(b);
	for (i = 0; i < QPS; i++)
		qp[i] = b->side[i].qp;
	karst_core_activate(b->core, qp[0]);
	karst_core_activate(b->core, qp[1]);
	/* never empty, so it moves on by one each time: after two rounds each place was the
	 * first */
	for (i = 0; i < 2 * (QPS + 1); i++) {
		karst_core_activate(b->core, qp[(i + 2) % QPS]);
		karst_core_activate(b->core, qp[(i + 2) % QPS]);
		cr_assert_eq(karst_core_next_active(b->core), qp[i % QPS], "step %u", i);
	}
	/* three entries, across the end; the one in the middle is removed */
	karst_core_activate(b->core, qp[(i + 2) % QPS]);
	bed_destroy_side(b, &b->side[(i + 1) % QPS]);
	cr_assert_eq(karst_core_next_active(b->core), qp[i % QPS]);
	cr_assert_eq(karst_core_next_active(b->core), qp[(i + 2) % QPS]);
	cr_assert_null(karst_core_next_active(b->core));
	cr_assert(!karst_core_has_active(b->core));
	b->s = &b->side[i % QPS];
	bed_forget(b);
	bed_destroy_side(b, &b->side[(i + 2) % QPS]);
	bed_close(b);
}
