/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Offering the processor while another thread is waited for.
 *
 * sched_yield() costs a microsecond where nobody else wants the processor.  Where somebody computes
 * it costs his slice, milliseconds; and from Linux 6.18 on each one moves the thread behind a slice
 * of its own as well, so that threads that wait for each other in this way come to run a few times
 * in a second.  A thread that sleeps for a moment is not moved.  So for a while after a yield that
 * has cost a slice, such a sleep takes its place.
 */
#ifndef KARST_YIELD_H
#define KARST_YIELD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Threads of ours give the processor back sooner, mostly. */
#define KARST_YIELD_SLICE_NS 2000000u
/* For how long it is remembered. */
#define KARST_YIELD_CROWDED_NS 50000000u
/* The sleep; the kernel adds the thread's timer slack, usually 50 us. */
#define KARST_YIELD_NAP_NS 20000u

/** What is known of a processor, or of those that some threads share; zeroed to begin with.  Any
 * thread, at any time. */
struct karst_yield {
	_Atomic uint64_t crowded_until_ns;
};

/** Notes that a yield that ended at @now_ns took @spent_ns. */
static inline void
karst_yield_learn(struct karst_yield *y, uint64_t now_ns, uint64_t spent_ns)
{
	/* relaxed: nothing is ordered by it */
	if (spent_ns >= KARST_YIELD_SLICE_NS)
		atomic_store_explicit(&y->crowded_until_ns, now_ns + KARST_YIELD_CROWDED_NS,
			memory_order_relaxed);
}

/** Is sleeping better than yielding?  @now_ns: of the clock that karst_yield_learn() is told. */
static inline bool
karst_yield_crowded(const struct karst_yield *y, uint64_t now_ns)
{
	return now_ns < atomic_load_explicit(&y->crowded_until_ns, memory_order_relaxed);
}

/** Yields or sleeps, and learns of it; by CLOCK_MONOTONIC. */
void karst_yield(struct karst_yield *y);

#endif /* KARST_YIELD_H */
