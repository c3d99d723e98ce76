/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "cpu.h"

#include <criterion/criterion.h>

/* Busy time is neither idle time, nor waiting for a disk, nor what the hypervisor took or gave to
 * guests. */
Test(cpu, what_is_busy)
{
	const char *text = "cpu  100 20 300 100000 5000 4 6 7000 80 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n";

	cr_assert_float_eq(perf_cpu_parse(text, 100), 4.3, 1e-9);
	cr_assert_eq(perf_cpu_parse("cpu  100 20 300", 100), 0);
	cr_assert_eq(perf_cpu_parse("", 100), 0);
	cr_assert_eq(perf_cpu_parse(text, 0), 0);
}

/* Busy time grows while this thread works. */
Test(cpu, it_grows_with_work, .timeout = 300)
{
	double began = perf_cpu_busy_s();

	cr_assert_gt(began, 0);
	while (perf_cpu_busy_s() - began < 0.05)
		;
}

static uint64_t
share(const void *of, uint32_t i)
{
	return ((const uint64_t *)of)[i];
}

Test(cpu, jain)
{
	const uint64_t same[4] = {7, 7, 7, 7}, one[4] = {0, 0, 9, 0}, half[4] = {1, 1, 0, 0},
		       none[4] = {0};

	cr_assert_float_eq(perf_jain(share, same, 4), 1, 1e-9);
	cr_assert_float_eq(perf_jain(share, one, 4), 0.25, 1e-9);
	cr_assert_float_eq(perf_jain(share, half, 4), 0.5, 1e-9);
	cr_assert_eq(perf_jain(share, none, 4), 0);
	cr_assert_eq(perf_jain(share, same, 0), 0);
}
