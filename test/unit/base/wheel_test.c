/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Tests the timing wheel against a plain list of deadlines: no timer fires early or more than two
 * ticks late, none is lost, none fires twice, whatever is armed, moved and deleted in between and
 * however far time jumps.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>

#include "karst_wheel.h"

#define TICK    ((uint64_t)KARST_WHEEL_TICK_NS)
#define HORIZON (((1ull << 32) - 1) * TICK)
#define TIMERS  300u
#define MOVES   256u /* more timers than this in one slot take several calls (of a quarter each) */

struct ref {
	struct karst_timer t;
	uint64_t deadline_ns;
	bool armed;
};

struct bed {
	struct karst_wheel *w;
	struct ref ref[TIMERS];
	uint64_t now_ns;
	uint64_t rng;
	unsigned int armed, fired;
};

static uint64_t
rnd(struct bed *b)
{
	b->rng ^= b->rng << 13;
	b->rng ^= b->rng >> 7;
	b->rng ^= b->rng << 17;
	return b->rng * 0x2545f4914f6cdd1dull;
}

/* A length of time with a random number of bits up to @bits, so that all levels of the wheel are
 * used. */
static uint64_t
rnd_ns(struct bed *b, unsigned int bits)
{
	return (rnd(b) >> 1) >> (63 - rnd(b) % (bits + 1));
}

static struct bed *
bed_make(uint64_t seed, uint64_t origin_ns)
{
	struct bed *b = calloc(1, sizeof(*b));

	b->w = malloc(sizeof(*b->w));
	b->rng = seed * 0x9e3779b97f4a7c15ull + 1;
	b->now_ns = origin_ns;
	karst_wheel_init(b->w, origin_ns);
	return b;
}

static void
bed_free(struct bed *b)
{
	free(b->w);
	free(b);
}

static void
arm(struct bed *b, struct ref *r, uint64_t deadline_ns)
{
	karst_wheel_add(b->w, &r->t, deadline_ns);
	cr_assert(karst_timer_armed(&r->t));
	b->armed += !r->armed;
	r->armed = true;
	/* The horizon is counted from the last tick that the wheel has reached. */
	r->deadline_ns = karst_min_u64(deadline_ns, b->now_ns + HORIZON - TICK);
	r->deadline_ns = karst_max_u64(r->deadline_ns, b->now_ns);
}

static void
disarm(struct bed *b, struct ref *r)
{
	karst_wheel_del(b->w, &r->t);
	cr_assert(!karst_timer_armed(&r->t));
	b->armed -= r->armed;
	r->armed = false;
}

static uint64_t
first_deadline(const struct bed *b)
{
	uint64_t first = UINT64_MAX;
	unsigned int i;

	for (i = 0; i < TIMERS; i++)
		if (b->ref[i].armed)
			first = karst_min_u64(first, b->ref[i].deadline_ns);
	return first;
}

static void
check_fired(struct bed *b, struct karst_timer *t)
{
	struct ref *r = karst_container_of(t, struct ref, t);

	cr_assert(r->armed, "fired once only, and not after deletion");
	cr_assert(!karst_timer_armed(t));
	cr_assert_geq(b->now_ns, r->deadline_ns, "never early");
	r->armed = false;
	b->armed--;
	b->fired++;
}

/* Advances to @now_ns until no timer is left to fire; sometimes arms and deletes timers in
 * between. */
static void
drain(struct bed *b, uint64_t now_ns, unsigned int max, bool meddle)
{
	struct karst_timer *fired[TIMERS];
	unsigned int n, i, calls = 0;
	uint64_t first, next;

	b->now_ns = now_ns;
	do {
		n = karst_wheel_advance(b->w, now_ns, fired, max);
		cr_assert(n <= max);
		for (i = 0; i < n; i++)
			check_fired(b, fired[i]);
		if (meddle && n > 0 && rnd(b) % 2 == 0)
			arm(b, karst_container_of(fired[0], struct ref, t), now_ns + rnd_ns(b, 40));
		if (meddle && rnd(b) % 4 == 0)
			disarm(b, &b->ref[rnd(b) % TIMERS]);
		cr_assert(calls++ < 100000, "ends");
	} while (n == max || karst_wheel_next_ns(b->w) <= now_ns);
	first = first_deadline(b);
	cr_assert(first > now_ns || now_ns - first < 2 * TICK, "at most two ticks late");
	cr_assert_eq(b->w->count, b->armed);
	next = karst_wheel_next_ns(b->w);
	cr_assert_eq(next == UINT64_MAX, b->armed == 0);
	cr_assert(next == UINT64_MAX || next <= karst_max_u64(first, now_ns) + 2 * TICK);
}

static void
run_random(uint64_t seed, uint64_t origin_ns)
{
	struct bed *b = bed_make(seed, origin_ns);
	unsigned int step, i, max;

	for (step = 0; step < 3000; step++) {
		for (i = rnd(b) % 8; i > 0; i--)
			arm(b, &b->ref[rnd(b) % TIMERS], b->now_ns + rnd_ns(b, 46));
		if (rnd(b) % 3 == 0)
			disarm(b, &b->ref[rnd(b) % TIMERS]);
		if (rnd(b) % 16 == 0)
			arm(b, &b->ref[rnd(b) % TIMERS], b->now_ns - rnd_ns(b, 13));
		max = 1 + rnd(b) % 40;
		drain(b, b->now_ns + rnd_ns(b, seed % 2 ? 24 : 43), max, step % 2 == 0);
	}
	drain(b, b->now_ns + 2 * HORIZON, 7, false);
	cr_assert_eq(b->armed, 0);
	cr_assert_gt(b->fired, 1000);
	bed_free(b);
}

ParameterizedTestParameters(wheel, random)
{
	static uint64_t seeds[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

	return cr_make_param_array(uint64_t, seeds, KARST_DIM(seeds));
}

ParameterizedTest(uint64_t *seed, wheel, random)
{
	run_random(*seed, 0x123456789abcull * *seed);
}

/* Visits every tick once: each timer fires within two ticks of its deadline. */
Test(wheel, continuous)
{
	struct bed *b = bed_make(77, 12345);
	unsigned int i;

	for (i = 0; i < TIMERS; i++)
		arm(b, &b->ref[i], b->now_ns + rnd_ns(b, 28));
	while (b->armed > 0)
		drain(b, b->now_ns + 1 + rnd(b) % TICK, TIMERS, false);
	cr_assert_eq(b->fired, TIMERS);
	bed_free(b);
}

/* Goes from event to event by next_ns() alone: this takes few calls, whatever the distance. */
Test(wheel, event_to_event)
{
	struct bed *b = bed_make(78, 1);
	unsigned int i, calls = 0;

	for (i = 0; i < TIMERS; i++)
		arm(b, &b->ref[i], b->now_ns + rnd_ns(b, 43));
	while (b->armed > 0) {
		drain(b, karst_max_u64(b->now_ns, karst_wheel_next_ns(b->w)), TIMERS, false);
		calls++;
	}
	cr_assert_eq(b->fired, TIMERS);
	cr_assert_leq(calls, TIMERS * KARST_WHEEL_LEVELS);
	bed_free(b);
}

/* Hours in one step, among them exact multiples of every level's slot; timers fire in the order of
 * ticks. */
Test(wheel, long_jump_in_order)
{
	struct bed *b = bed_make(79, 999);
	struct karst_timer *fired[TIMERS];
	unsigned int i, n;

	for (i = 0; i < TIMERS; i++)
		arm(b, &b->ref[i], b->now_ns + (TICK << (i % 32)) - i % 2);
	b->now_ns += HORIZON;
	n = karst_wheel_advance(b->w, b->now_ns, fired, TIMERS);
	cr_assert_eq(n, TIMERS);
	for (i = 0; i < n; i++) {
		check_fired(b, fired[i]);
		cr_assert(i == 0 || fired[i]->tick >= fired[i - 1]->tick);
	}
	bed_free(b);
}

Test(wheel, horizon)
{
	struct bed *b = bed_make(80, 5000);

	arm(b, &b->ref[0], UINT64_MAX);
	arm(b, &b->ref[1], b->now_ns + HORIZON);
	drain(b, b->now_ns + HORIZON - 1, 4, false);
	cr_assert_eq(b->fired, 0);
	cr_assert_eq(b->armed, 2);
	drain(b, b->now_ns + 1, 4, false);
	cr_assert_eq(b->fired, 2);
	bed_free(b);
}

/* A slot that is a whole turn of the highest level away is not mistaken for the current one. */
Test(wheel, whole_turn)
{
	struct bed *b = bed_make(81, 0);
	uint64_t at = (5ull << 24) + 7;

	drain(b, at * TICK, 4, false);
	arm(b, &b->ref[0], (at + (1ull << 32) - 3) * TICK);
	cr_assert_leq(karst_wheel_next_ns(b->w), b->ref[0].deadline_ns);
	cr_assert_gt(karst_wheel_next_ns(b->w), (at + (250ull << 24)) * TICK);
	drain(b, b->ref[0].deadline_ns - 1, 4, false);
	cr_assert_eq(b->fired, 0);
	drain(b, b->ref[0].deadline_ns, 4, false);
	cr_assert_eq(b->fired, 1);
	bed_free(b);
}

/* Deadlines that have passed fire on the next tick, also when the timer is armed during firing. */
Test(wheel, past_deadlines)
{
	struct bed *b = bed_make(82, 1000000);
	struct karst_timer *fired[4];

	arm(b, &b->ref[0], 0);
	cr_assert_eq(karst_wheel_advance(b->w, b->now_ns, fired, 4), 0);
	cr_assert_eq(karst_wheel_advance(b->w, b->now_ns + TICK, fired, 4), 1);
	karst_wheel_add(b->w, fired[0], 0);
	cr_assert_eq(karst_wheel_advance(b->w, b->now_ns + TICK, fired, 4), 0);
	cr_assert_eq(karst_wheel_advance(b->w, b->now_ns, fired, 4), 0, "time does not go back");
	cr_assert_eq(karst_wheel_advance(b->w, b->now_ns + 2 * TICK, fired, 4), 1);
	bed_free(b);
}

/* No call fires more than max timers (also 0), and the timers that it left can be deleted or
 * moved. */
Test(wheel, bounded_firing)
{
	struct bed *b = bed_make(83, 0);
	struct karst_timer *fired[TIMERS];
	unsigned int i, n, total = 0;

	for (i = 0; i < 100; i++)
		arm(b, &b->ref[i], 10 * TICK);
	cr_assert_eq(karst_wheel_advance(b->w, 10 * TICK, fired, 0), 0);
	/* Whichever timer is first in the list is removed. */
	for (i = 0; i < 100; i++) {
		disarm(b, &b->ref[i]);
		cr_assert_eq(b->w->count, 99);
		arm(b, &b->ref[i], 10 * TICK);
		cr_assert_eq(karst_wheel_advance(b->w, 10 * TICK, fired, 0), 0);
	}
	cr_assert_eq(karst_wheel_advance(b->w, 10 * TICK, fired, 30), 0, "armed anew, tick 11");
	cr_assert_eq(karst_wheel_advance(b->w, 11 * TICK, fired, 0), 0);
	disarm(b, &b->ref[99]);
	cr_assert_eq(b->w->count, 99);
	cr_assert_eq(karst_wheel_advance(b->w, 11 * TICK, fired, 30), 30);
	cr_assert_leq(karst_wheel_next_ns(b->w), 11 * TICK);
	for (i = 0; i < 30; i++)
		karst_container_of(fired[i], struct ref, t)->armed = false;
	for (i = 0; i < 100; i++) {
		if (!karst_timer_armed(&b->ref[i].t))
			continue;
		if (i % 3 == 0)
			karst_wheel_del(b->w, &b->ref[i].t);
		else if (i % 3 == 1)
			karst_wheel_add(b->w, &b->ref[i].t, 500 * TICK);
		else
			total++;
	}
	n = karst_wheel_advance(b->w, 12 * TICK, fired, TIMERS);
	cr_assert_eq(n, total);
	n = karst_wheel_advance(b->w, 500 * TICK, fired, TIMERS);
	cr_assert_gt(n, 0);
	cr_assert_eq(b->w->count, 0);
	bed_free(b);
}

/* A crowded slot of a high level takes several calls: no timer is lost, and timers can be deleted
 * while the slot moves down. */
Test(wheel, bounded_moving)
{
	enum { CROWD = 10000 };
	struct karst_timer *t = calloc(CROWD, sizeof(*t)), **fired = calloc(CROWD, sizeof(*fired));
	struct bed *b = bed_make(84, 0);
	unsigned int i, n, calls = 0, total = 0, deleted = 0;
	uint64_t when = (3ull << 16) * TICK;

	for (i = 0; i < CROWD; i++)
		karst_wheel_add(b->w, &t[i], when + (i % 1000) * TICK);
	do {
		n = karst_wheel_advance(b->w, when + 999 * TICK, fired, MOVES / 4);
		total += n;
		for (i = 0; i < n; i++)
			cr_assert_leq(fired[i]->tick * TICK, when + 999 * TICK);
		/* Picks one of the timers that are still moving down, sometimes the last of a
		 * list. */
		for (i = calls % 7; i < CROWD && !karst_timer_armed(&t[i]); i++)
			;
		if (i < CROWD) {
			karst_wheel_del(b->w, &t[i]);
			deleted++;
		}
		calls++;
		cr_assert_eq(b->w->count, CROWD - total - deleted);
	} while (b->w->count > 0);
	cr_assert_eq(total + deleted, CROWD);
	cr_assert_geq(calls, CROWD / MOVES);
	cr_assert_eq(karst_wheel_next_ns(b->w), UINT64_MAX);
	bed_free(b);
	free(fired);
	free(t);
}

/* Deleting the only timer of a slot makes the slot look empty again. */
Test(wheel, deletion_clears_occupancy)
{
	struct bed *b = bed_make(85, 0);
	uint64_t far[] = {1, 255, 256, 65535, 65536, (1ull << 24) + 1, (1ull << 32) - 1};
	unsigned int i;

	for (i = 0; i < KARST_DIM(far); i++) {
		arm(b, &b->ref[i], far[i] * TICK);
		disarm(b, &b->ref[i]);
		disarm(b, &b->ref[i]);
		cr_assert_eq(karst_wheel_next_ns(b->w), UINT64_MAX);
		arm(b, &b->ref[i], far[i] * TICK);
		arm(b, &b->ref[i], 2 * far[i] * TICK);
		cr_assert_eq(b->w->count, 1);
		disarm(b, &b->ref[i]);
	}
	for (i = 0; i < KARST_WHEEL_LEVELS; i++)
		cr_assert_arr_eq(b->w->occupied[i], ((uint64_t[4]){0}), 32);
	bed_free(b);
}
