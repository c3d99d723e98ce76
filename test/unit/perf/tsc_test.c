/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "tsc.h"

#include <criterion/criterion.h>

#define NOMINAL_HZ UINT64_C(2450000000)
#define REAL_HZ    UINT64_C(2445404132)

static uint64_t
hz_after(uint64_t cycles, uint64_t ns)
{
	const struct perf_tsc_pair from = {.tsc = 123456789, .ns = UINT64_C(987654321000)};
	const struct perf_tsc_pair to = {.tsc = from.tsc + cycles, .ns = from.ns + ns};

	return perf_tsc_hz_between(NOMINAL_HZ, &from, &to);
}

Test(perf_tsc, what_dpdk_has_rounded)
{
	uint64_t hz = hz_after(REAL_HZ / 50, 20000000);

	cr_expect(hz > REAL_HZ - 100 && hz < REAL_HZ + 100, "%lu", hz);
	cr_expect_eq(hz_after(60 * REAL_HZ, UINT64_C(60000000000)), REAL_HZ);
}

Test(perf_tsc, pairs_that_cannot_be)
{
	cr_expect_eq(hz_after(REAL_HZ / 50, 21000000), NOMINAL_HZ);
	cr_expect_eq(hz_after(REAL_HZ / 50, 19000000), NOMINAL_HZ);
	cr_expect_eq(hz_after(1000, 0), NOMINAL_HZ);
}

/* Each call has the same result. */
Test(perf_tsc, measured)
{
	uint64_t hz = perf_tsc_hz();

	cr_expect_gt(hz, 0);
	cr_expect_eq(perf_tsc_hz(), hz);
}
