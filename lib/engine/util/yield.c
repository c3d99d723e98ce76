/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "karst_yield.h"

#include <sched.h>
#include <time.h>

static uint64_t
yield_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void
yield_nap(void)
{
	const struct timespec nap = {.tv_nsec = KARST_YIELD_NAP_NS};

	nanosleep(&nap, NULL);
}

void
karst_yield(struct karst_yield *y)
{
	uint64_t began = yield_clock(), ended;

	if (karst_yield_crowded(y, began)) {
		yield_nap();
		return;
	}
	sched_yield();
	ended = yield_clock();
	karst_yield_learn(y, ended, ended - began);
}
