/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Processor time of the traffic: in programs, in lcores, and in the kernel's system calls and soft
 * interrupts.  To include all of these, the time is read for the whole machine, so it also includes
 * everything else that runs there.
 */
#ifndef PERF_CPU_H
#define PERF_CPU_H

#include <stdint.h>

/** Seconds that the processors of this machine have been busy, since some time in the past; 0 if
 *  that cannot be read. */
double perf_cpu_busy_s(void);

/** As above, of the text of /proc/stat, whose unit is 1 / @ticks_per_s seconds. */
double perf_cpu_parse(const char *text, long ticks_per_s);

/** Jain's index of the @n shares that @share() returns: 1 if all are equal, 1 / n if one has all, 0
 *  if there are none. */
double perf_jain(uint64_t (*share)(const void *arg, uint32_t i), const void *arg, uint32_t n);

#endif /* PERF_CPU_H */
