/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "hist.h"

#include <stdlib.h>

struct perf_hist *
perf_hist_create(void)
{
	struct perf_hist *h = malloc(sizeof(*h));

	if (h != NULL)
		perf_hist_reset(h);
	return h;
}

void
perf_hist_reset(struct perf_hist *h)
{
	memset(h, 0, sizeof(*h));
	h->min = UINT64_MAX;
}

/* The middle of the values that fall into bucket @i; the inverse of perf_hist_bucket(). */
static uint64_t
hist_middle(uint32_t i)
{
	uint32_t shift;
	uint64_t low;

	if (i < 2 * PERF_HIST_SUB)
		return i;
	shift = i / PERF_HIST_SUB - 1;
	low = (uint64_t)(i - shift * PERF_HIST_SUB) << shift;
	return low + (UINT64_C(1) << shift) / 2;
}

uint64_t
perf_hist_percentile(const struct perf_hist *h, double fraction)
{
	uint64_t want, seen = 0, v;
	uint32_t i;

	if (h->count == 0)
		return 0;
	want = (uint64_t)(fraction * (double)h->count);
	if ((double)want < fraction * (double)h->count)
		want++;
	want = karst_max_u64(1, karst_min_u64(want, h->count));
	for (i = 0; i < PERF_HIST_BUCKETS - 1; i++) {
		seen += h->buckets[i];
		if (seen >= want)
			break;
	}
	v = hist_middle(i);
	return karst_max_u64(h->min, karst_min_u64(v, h->max));
}
