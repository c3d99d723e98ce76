/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "tsc.h"

#include <pthread.h>
#include <time.h>

#include <rte_cycles.h>

#include "karst_realtime.h"

#define TSC_MEASURE_NS 20000000

static uint64_t tsc_measured_hz;
static pthread_once_t tsc_once = PTHREAD_ONCE_INIT;

uint64_t
perf_tsc_hz_between(
	uint64_t nominal, const struct perf_tsc_pair *from, const struct perf_tsc_pair *to)
{
	uint64_t cycles = to->tsc - from->tsc, ns = to->ns - from->ns, hz;

	if (ns == 0)
		return nominal;
	hz = (uint64_t)((unsigned __int128)cycles * 1000000000 / ns);
	if (nominal != 0 && (hz > nominal + nominal / 100 || hz < nominal - nominal / 100))
		return nominal;
	return hz;
}

static uint64_t
tsc_raw_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void
tsc_measure(void)
{
	struct perf_tsc_pair from, to;

	karst_realtime_read(rte_rdtsc, tsc_raw_ns, &from.tsc, &from.ns);
	do
		karst_realtime_read(rte_rdtsc, tsc_raw_ns, &to.tsc, &to.ns);
	while (to.ns - from.ns < TSC_MEASURE_NS);
	tsc_measured_hz = perf_tsc_hz_between(rte_get_tsc_hz(), &from, &to);
}

uint64_t
perf_tsc_hz(void)
{
	pthread_once(&tsc_once, tsc_measure);
	return tsc_measured_hz;
}
