/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Times since 1970 from a TSC whose nominal frequency is wrong. */
#include <criterion/criterion.h>

#include "karst_realtime.h"

#define NOMINAL_HZ UINT64_C(2450000000)
#define REAL_HZ    UINT64_C(2445404132) /* 0.19 % less */
#define START_TSC  UINT64_C(0x123456789abc)
#define START_NS   UINT64_C(1790000000000000000)
#define MS         UINT64_C(1000000)
#define S          (1000 * MS)
#define STEP       (10 * MS)

/* The TSC @ns after the start. */
static uint64_t
tsc_at(uint64_t ns)
{
	return START_TSC + (uint64_t)((unsigned __int128)ns * REAL_HZ / S);
}

static void
starts(struct karst_realtime *r)
{
	karst_realtime_init(r, NOMINAL_HZ, START_TSC, START_NS);
}

static uint64_t
error_ns(struct karst_realtime *r, uint64_t ns)
{
	int64_t off = (int64_t)(karst_realtime_at(r, tsc_at(ns)) - (START_NS + ns));

	return (uint64_t)(off < 0 ? -off : off);
}

/* Gives a pair that was read @ns after the start, up to 2 us too early or too late. */
static void
pair(struct karst_realtime *r, uint64_t ns)
{
	karst_realtime_pair(r, tsc_at(ns), START_NS + ns + ns / STEP * 7919 % 4000 - 2000);
}

/* A minute, with a pair each 10 ms. */
Test(realtime, keeps_up_with_the_clock)
{
	struct karst_realtime r;
	uint64_t ns, worst = 0, back;

	starts(&r);
	for (ns = STEP; ns <= 60 * S; ns += STEP) {
		pair(&r, ns);
		for (back = 9 * MS; back > 0; back -= 3 * MS)
			worst = karst_max_u64(worst, error_ns(&r, ns - back));
	}
	cr_expect_lt(worst, MS / 10, "up to %lu ns wrong", worst);
	/* what was held for a second, and what comes before the next pair */
	cr_expect_lt(error_ns(&r, 59 * S), MS / 10);
	cr_expect_lt(error_ns(&r, 60 * S + 30 * MS), MS / 10);
}

Test(realtime, never_goes_backwards)
{
	struct karst_realtime r;
	uint64_t ns, last = 0;

	starts(&r);
	for (ns = STEP; ns <= 2 * S; ns += STEP) {
		uint64_t at, now;

		pair(&r, ns);
		/* up to 1 us after the pair, and from 1 us after it */
		for (at = ns - STEP + 1000; at <= ns + 1000; at += 500) {
			now = karst_realtime_at(&r, tsc_at(at));
			cr_assert_geq(now, last, "at %lu ns", at);
			last = now;
		}
	}
}

/* A step of the clock is not taken for its frequency. */
Test(realtime, clock_that_is_set)
{
	struct karst_realtime r;
	uint64_t ns;
	int64_t off;

	starts(&r);
	for (ns = STEP; ns <= S; ns += STEP)
		karst_realtime_pair(&r, tsc_at(ns), START_NS + ns);
	(void)karst_realtime_at(&r, tsc_at(S));
	karst_realtime_pair(&r, tsc_at(S + STEP), START_NS - 3600 * S);
	off = (int64_t)(karst_realtime_at(&r, tsc_at(S + 15 * MS)) -
		(START_NS - 3600 * S + 5 * MS));
	cr_expect(off > -1000 && off < 1000, "%ld ns wrong", off);
}

/* Both clocks are read within a very short time, which says little of the frequency. */
Test(realtime, pairs_that_are_too_close)
{
	struct karst_realtime r;

	starts(&r);
	karst_realtime_pair(&r, tsc_at(MS / 10), START_NS + MS / 10 + 900);
	cr_expect_eq(karst_realtime_at(&r, START_TSC + NOMINAL_HZ), START_NS + S);
}

/* How long each read of the TSC takes: the first attempt is interrupted. */
static const uint64_t fake_costs[] = {10, 5000, 10, 10, 10, 20};
static uint64_t fake_tsc;
static unsigned int fake_reads;

static uint64_t
read_fake(void)
{
	fake_tsc += fake_costs[fake_reads++];
	return fake_tsc;
}

static uint64_t
ns_of_fake(void)
{
	return fake_reads;
}

Test(realtime, pair_without_an_interruption)
{
	uint64_t tsc, ns;

	karst_realtime_read(read_fake, ns_of_fake, &tsc, &ns);
	cr_expect_eq(fake_reads, 6);
	cr_expect_eq(tsc, 5025); /* between the reads at 5020 and 5030 */
	cr_expect_eq(ns, 3);
}
