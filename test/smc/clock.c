/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Preloaded after libkarst-sockets.so.  The monotonic clock runs SMC_CLOCK times as fast, so that
 * the operations of a program take, by that clock, as little or as much time as a test needs,
 * however busy the machine is.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000ll

static double clock_times;
static int64_t clock_from;

static int64_t
clock_ns(const struct timespec *ts)
{
	return ts->tv_sec * SECOND_NS + ts->tv_nsec;
}

static void __attribute__((constructor)) clock_begin(void)
{
	const char *times = getenv("SMC_CLOCK");
	struct timespec ts;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
	clock_from = clock_ns(&ts);
	clock_times = times != NULL ? strtod(times, NULL) : 1;
}

int
clock_gettime(clockid_t clock, struct timespec *ts)
{
	int rc = (int)syscall(SYS_clock_gettime, clock, ts);
	int64_t ns;

	if (rc != 0 || clock != CLOCK_MONOTONIC || clock_from == 0)
		return rc;
	ns = clock_from + (int64_t)((double)(clock_ns(ts) - clock_from) * clock_times);
	ts->tv_sec = ns / SECOND_NS;
	ts->tv_nsec = ns % SECOND_NS;
	return 0;
}
