/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The time since 1970 (CLOCK_REALTIME) at values of the TSC that were read before.
 *
 * The nominal frequency of the TSC is not exact enough for this: DPDK may round it to 10 MHz, and
 * an error of 0.2 % is 2 ms in each second.  So pairs of both clocks, read at the same moment, are
 * given again and again.  A time is computed from the newest pair, with the frequency that was
 * measured since the first one.
 *
 * Times do not go backwards where the TSC does not, unless CLOCK_REALTIME was set back.
 *
 * For one thread at a time.
 */
#ifndef KARST_REALTIME_H
#define KARST_REALTIME_H

#include "karst_base.h"

struct karst_realtime {
	uint64_t hz;                  /* nominal frequency */
	uint64_t tsc, ns;             /* the newest pair */
	uint64_t first_tsc, first_ns; /* the first pair, or the first since the clock was set */
	uint64_t num_ns, num_cycles;  /* the measured frequency: so many ns take so many cycles */
	uint64_t last_tsc, last_ns;   /* of the last time that was computed */
};

/** Sets the first pair.  @hz: nominal frequency of the TSC, at most 1 % wrong. */
void karst_realtime_init(struct karst_realtime *r, uint64_t hz, uint64_t tsc, uint64_t ns);
/**
 * Gives another pair, at best each 10 ms.  One that comes less than 1 ms after the one before
 * changes nothing.  If the clock was set meanwhile, only the new pair is used from here on.
 */
void karst_realtime_pair(struct karst_realtime *r, uint64_t tsc, uint64_t ns);
/** @return the time in ns since 1970 at @tsc, which may be before or after the newest pair. */
uint64_t karst_realtime_at(struct karst_realtime *r, uint64_t tsc);
/**
 * Reads both clocks by the functions @read_tsc and @read_ns (CLOCK_REALTIME), three times, and
 * takes the pair that was read within the shortest time: the thread may be interrupted in between.
 */
void karst_realtime_read(
	uint64_t (*read_tsc)(void), uint64_t (*read_ns)(void), uint64_t *tsc, uint64_t *ns);

#endif /* KARST_REALTIME_H */
