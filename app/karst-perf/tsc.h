/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The frequency of the TSC, for rates.  That of DPDK may be rounded to 10 MHz, up to 0.2 % wrong,
 * where the processor does not state it.
 */
#ifndef PERF_TSC_H
#define PERF_TSC_H

#include <stdint.h>

/** The TSC and CLOCK_MONOTONIC_RAW at the same moment. */
struct perf_tsc_pair {
	uint64_t tsc, ns;
};

/**
 * @return cycles per second between two pairs.  If they differ from @nominal by more than 1 %, the
 * clocks of a pair were not read at the same moment: then @nominal, unless that is 0.
 */
uint64_t perf_tsc_hz_between(
	uint64_t nominal, const struct perf_tsc_pair *from, const struct perf_tsc_pair *to);

/**
 * @return cycles per second.  The first call measures them for 20 ms, so it should come before the
 * traffic.  Any thread may call it.
 */
uint64_t perf_tsc_hz(void);

#endif /* PERF_TSC_H */
