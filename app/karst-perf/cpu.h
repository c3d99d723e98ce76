/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What work costs in processor time, whoever spends it: programs, lcores, and the kernel in system
 * calls and in soft interrupts.  So it is read from the whole machine, and counts everything else
 * that runs there, too.
 */
#ifndef PERF_CPU_H
#define PERF_CPU_H

#include <stdint.h>

/** Seconds that the processors of this machine have been busy, since some time in the past; 0 if
 *  that cannot be read. */
double perf_cpu_busy_s(void);

/** As above, of the text of /proc/stat, whose unit is 1 / @ticks_per_s seconds. */
double perf_cpu_parse(const char *text, long ticks_per_s);

/** Jain's index of how alike the @n shares are that @share() tells: 1 if all are the same, 1 / n if
 *  one has all; of nothing, 0. */
double perf_jain(uint64_t (*share)(const void *arg, uint32_t i), const void *arg, uint32_t n);

#endif /* PERF_CPU_H */
