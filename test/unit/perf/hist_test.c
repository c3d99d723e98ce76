/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "hist.h"

#include <stdlib.h>

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

static struct perf_hist *h;

static void
make(void)
{
	h = perf_hist_create();
	cr_assert(ne(ptr, h, NULL));
}

static void
unmake(void)
{
	free(h);
}

TestSuite(hist, .init = make, .fini = unmake);

Test(hist, buckets_follow_each_other)
{
	uint64_t v;
	uint32_t shift;

	for (v = 0; v < 100000; v++)
		cr_assert(perf_hist_bucket(v + 1) - perf_hist_bucket(v) <= 1, "at %llu",
			(unsigned long long)v);
	/* at every power of two, no bucket is skipped and none is used twice */
	for (shift = 11; shift < 42; shift++) {
		v = UINT64_C(1) << shift;
		cr_assert(eq(u32, perf_hist_bucket(v), perf_hist_bucket(v - 1) + 1));
	}
	cr_assert(eq(u32, perf_hist_bucket(PERF_HIST_MAX), PERF_HIST_BUCKETS - 1));
}

Test(hist, empty)
{
	cr_assert(eq(u64, perf_hist_percentile(h, 0.5), 0));
	cr_assert(eq(u64, h->max, 0));
}

Test(hist, one_value_is_all_percentiles)
{
	perf_hist_add(h, 1234567);
	cr_assert(eq(u64, perf_hist_percentile(h, 0), 1234567));
	cr_assert(eq(u64, perf_hist_percentile(h, 0.5), 1234567));
	cr_assert(eq(u64, perf_hist_percentile(h, 1), 1234567));
}

Test(hist, small_values_are_exact)
{
	uint64_t v;

	for (v = 1; v <= 1000; v++)
		perf_hist_add(h, v);
	cr_assert(eq(u64, perf_hist_percentile(h, 0.5), 500));
	cr_assert(eq(u64, perf_hist_percentile(h, 0.99), 990));
	cr_assert(eq(u64, perf_hist_percentile(h, 0.999), 999));
	cr_assert(eq(u64, perf_hist_percentile(h, 1), 1000));
}

static int
compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Values over many orders of magnitude, compared with a sorted list of them. */
Test(hist, three_digits_everywhere)
{
	static const double fractions[] = {0.001, 0.1, 0.5, 0.9, 0.99, 0.999};
	uint32_t n = 50000, i;
	uint64_t *all = malloc(n * sizeof(*all)), x = 88172645463325252u;

	for (i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		all[i] = (x >> 24) >> (x % 38);
		perf_hist_add(h, all[i]);
	}
	qsort(all, n, sizeof(*all), compare);
	for (i = 0; i < KARST_DIM(fractions); i++) {
		uint64_t want = all[(uint32_t)(fractions[i] * n + 0.999999) - 1];
		uint64_t got = perf_hist_percentile(h, fractions[i]);

		cr_assert(got + want / 1000 + 1 >= want && got <= want + want / 1000 + 1,
			"%g: %llu, not %llu", fractions[i], (unsigned long long)got,
			(unsigned long long)want);
	}
	cr_assert(eq(u64, h->min, all[0]));
	cr_assert(eq(u64, h->max, all[n - 1]));
	free(all);
}

Test(hist, too_large_values_count_as_the_largest)
{
	perf_hist_add(h, UINT64_MAX);
	perf_hist_add(h, 1);
	cr_assert(eq(u64, h->count, 2));
	cr_assert(eq(u64, h->max, UINT64_MAX));
	cr_assert(eq(u64, h->buckets[PERF_HIST_BUCKETS - 1], 1));
}

Test(hist, reset_forgets)
{
	perf_hist_add(h, 77);
	perf_hist_reset(h);
	cr_assert(eq(u64, h->count, 0));
	perf_hist_add(h, 5);
	cr_assert(eq(u64, perf_hist_percentile(h, 1), 5));
}
