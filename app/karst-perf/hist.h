/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A histogram of durations, exact to three digits over the whole range, in fixed memory.
 *
 * Values below 2048 have a bucket each; above, every power of two is divided into 1024 buckets
 * of equal width.  So a bucket is never wider than 1/1024 of the values in it, and finding it
 * takes a count of leading zeros and a shift.
 *
 * The caller chooses the unit.  One thread at a time; only _create() can fail.
 */
#ifndef PERF_HIST_H
#define PERF_HIST_H

#include "karst_base.h"

#define PERF_HIST_SUB_BITS 10u
#define PERF_HIST_SUB      (1u << PERF_HIST_SUB_BITS)
/** Larger values are counted as this one. */
#define PERF_HIST_MAX     ((UINT64_C(1) << 42) - 1)
#define PERF_HIST_BUCKETS ((42u - PERF_HIST_SUB_BITS + 1) * PERF_HIST_SUB)

struct perf_hist {
	uint64_t count;
	uint64_t min; /* exact; UINT64_MAX if empty */
	uint64_t max; /* exact; 0 if empty */
	uint64_t buckets[PERF_HIST_BUCKETS];
};

/** An empty histogram, to be freed with free(); NULL: no memory. */
struct perf_hist *perf_hist_create(void);

void perf_hist_reset(struct perf_hist *h);

/**
 * The value that at least @fraction (0..1) of all values do not exceed, given as the middle of its
 * bucket, but never beyond the exact minimum and maximum.  0 if empty.
 */
uint64_t perf_hist_percentile(const struct perf_hist *h, double fraction);

/** Bucket of a value up to PERF_HIST_MAX. */
static inline uint32_t
perf_hist_bucket(uint64_t v)
{
	uint32_t shift;

	if (v < 2 * PERF_HIST_SUB)
		return (uint32_t)v;
	shift = 63u - PERF_HIST_SUB_BITS - (uint32_t)__builtin_clzll(v);
	return shift * PERF_HIST_SUB + (uint32_t)(v >> shift);
}

static inline void
perf_hist_add(struct perf_hist *h, uint64_t v)
{
	h->count++;
	if (v < h->min)
		h->min = v;
	if (v > h->max)
		h->max = v;
	h->buckets[perf_hist_bucket(karst_min_u64(v, PERF_HIST_MAX))]++;
}

#endif /* PERF_HIST_H */
