/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * For LD_PRELOAD: a gettimeofday() by which time passes about twenty times as fast.
 *
 * With each line of figures that it prints, perftest learns the rate of the processor's counter
 * anew: for 220 ms it does nothing but look at this clock.  That is most of the processor time that
 * its programs take here.  The figures come out too small; no test looks at them.
 */
#include <stdint.h>
#include <sys/time.h>
#include <time.h>

static uint64_t
now_us(void)
{
#ifdef __x86_64__
	/* the counter itself: a call of the kernel in between would make the two differ by more */
	return __builtin_ia32_rdtsc() >> 7;
#else
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return ((uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec) / 50;
#endif
}

int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	uint64_t us = now_us();

	(void)tz;
	tv->tv_sec = (time_t)(us / 1000000);
	tv->tv_usec = (suseconds_t)(us % 1000000);
	return 0;
}
