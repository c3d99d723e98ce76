/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Offers the processor to other threads while the caller waits for another thread.
 *
 * sched_yield() costs a microsecond if no other thread wants the processor.  If another thread
 * computes, it costs that thread's slice, milliseconds; and from Linux 6.18 on each yield also
 * moves the thread behind a slice of its own, so that threads that wait for each other in this way
 * run only a few times in a second.  A thread that sleeps for a moment is not moved.  So for a
 * while after a yield that has cost a slice, such a sleep replaces the yield.
 */
#ifndef KARST_YIELD_H
#define KARST_YIELD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Threads of karst usually return the processor sooner. */
#define KARST_YIELD_SLICE_NS 2000000u
/* How long that is remembered. */
#define KARST_YIELD_CROWDED_NS 50000000u
/* The sleep; the kernel adds the thread's timer slack, usually 50 us. */
#define KARST_YIELD_NAP_NS 20000u

/** State of a processor, or of the processors that some threads share; initially zero.  Any thread,
 * at any time. */
struct karst_yield {
	_Atomic uint64_t crowded_until_ns;
};

/** Notes that a yield that ended at @now_ns took @spent_ns. */
static inline void
karst_yield_learn(struct karst_yield *y, uint64_t now_ns, uint64_t spent_ns)
{
	/* relaxed: it orders nothing */
	if (spent_ns >= KARST_YIELD_SLICE_NS)
		atomic_store_explicit(&y->crowded_until_ns, now_ns + KARST_YIELD_CROWDED_NS,
			memory_order_relaxed);
}

/** Whether sleeping is better than yielding.  @now_ns: of the clock that is used for
 *  karst_yield_learn(). */
static inline bool
karst_yield_crowded(const struct karst_yield *y, uint64_t now_ns)
{
	return now_ns < atomic_load_explicit(&y->crowded_until_ns, memory_order_relaxed);
}

/** Yields or sleeps, and learns from it; by CLOCK_MONOTONIC. */
void karst_yield(struct karst_yield *y);

#endif /* KARST_YIELD_H */
