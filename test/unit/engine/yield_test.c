/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include <sys/resource.h>

#include <criterion/criterion.h>

#include "karst_yield.h"

/* How often this thread has waited, which a sleep counts as and a yield does not. */
static long
waits(void)
{
	struct rusage usage;

	cr_assert_eq(getrusage(RUSAGE_THREAD, &usage), 0);
	return usage.ru_nvcsw;
}

Test(yield, a_slice_is_remembered_for_a_while)
{
	const uint64_t now = 1000000000;
	struct karst_yield y = {0};

	cr_assert(!karst_yield_crowded(&y, now));
	karst_yield_learn(&y, now, KARST_YIELD_SLICE_NS);
	cr_assert(karst_yield_crowded(&y, now));
	cr_assert(karst_yield_crowded(&y, now + KARST_YIELD_CROWDED_NS - 1));
	cr_assert(!karst_yield_crowded(&y, now + KARST_YIELD_CROWDED_NS));
}

Test(yield, a_moment_is_not)
{
	struct karst_yield y = {0};

	karst_yield_learn(&y, 1000000000, KARST_YIELD_SLICE_NS - 1);
	cr_assert(!karst_yield_crowded(&y, 1000000000));
}

Test(yield, a_moment_does_not_end_it)
{
	struct karst_yield y = {0};

	karst_yield_learn(&y, 1000000000, KARST_YIELD_SLICE_NS);
	karst_yield_learn(&y, 1000000001, 0);
	cr_assert(karst_yield_crowded(&y, 1000000001));
}

Test(yield, sleeps_where_it_is_crowded)
{
	struct karst_yield y = {0};
	long before;
	int i;

	karst_yield_learn(&y, UINT64_MAX - KARST_YIELD_CROWDED_NS, KARST_YIELD_SLICE_NS);
	before = waits();
	/* a thread that loses the processor on the way to sleep finds the time over, and has not
	 * waited */
	for (i = 0; i < 1000 && waits() == before; i++)
		karst_yield(&y);
	cr_assert_gt(waits(), before);
}
