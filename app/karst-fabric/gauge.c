/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A histogram of queue lengths.  Each length is weighted by the time that it lasted, so percentiles
 * are those of samples at random times.  There is a bucket for each length below 64 bytes, and 32
 * buckets for each power of two above, which are 3 % wide.
 */
#include "sim.h"

#define SUB_BITS 5u
#define SUB      (1u << SUB_BITS)

static uint32_t
bucket_of(const struct fab_gauge *g, uint64_t v)
{
	uint32_t shift;

	if (v < 2 * SUB)
		return (uint32_t)v;
	shift = 63 - SUB_BITS - (uint32_t)__builtin_clzll(v);
	return karst_min_u32(shift * SUB + (uint32_t)(v >> shift), g->buckets - 1);
}

/* The largest length in bucket @i. */
static uint64_t
bucket_most(uint32_t i)
{
	uint32_t shift;

	if (i < 2 * SUB)
		return i;
	shift = i / SUB - 1;
	return ((uint64_t)(i - shift * SUB + 1) << shift) - 1;
}

void
fab_gauge_init(struct fab_sim *s, struct fab_gauge *g, uint32_t buckets)
{
	g->buckets = buckets;
	g->bucket = fab_alloc(s, buckets * sizeof(*g->bucket));
}

void
fab_gauge_add(struct fab_gauge *g, uint64_t now_ps, int64_t bytes)
{
	uint64_t ps = now_ps - g->since_ps;

	if (ps != 0) {
		g->bucket[bucket_of(g, g->now)] += ps;
		g->area += (unsigned __int128)g->now * ps;
		g->total_ps += ps;
		g->since_ps = now_ps;
	}
	g->now += (uint64_t)bytes;
	g->max = karst_max_u64(g->max, g->now);
}

void
fab_gauge_count(struct fab_gauge *g, uint64_t value)
{
	g->bucket[bucket_of(g, value)]++;
	g->area += value;
	g->total_ps++;
	g->max = karst_max_u64(g->max, value);
}

void
fab_gauge_restart(struct fab_gauge *g, uint64_t now_ps)
{
	memset(g->bucket, 0, g->buckets * sizeof(*g->bucket));
	g->since_ps = now_ps;
	g->max = g->now;
	g->area = 0;
	g->total_ps = 0;
}

uint64_t
fab_gauge_percentile(const struct fab_gauge *g, double fraction)
{
	double want = fraction * (double)g->total_ps, sum = 0;
	uint32_t i;

	for (i = 0; i < g->buckets; i++) {
		sum += (double)g->bucket[i];
		if (g->bucket[i] != 0 && sum >= want)
			return karst_min_u64(bucket_most(i), g->max);
	}
	return g->max;
}
