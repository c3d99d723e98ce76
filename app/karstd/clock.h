/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The daemon's clock.  Its engine uses the engine's own clock.
 */
#ifndef KARSTD_CLOCK_H
#define KARSTD_CLOCK_H

#include <time.h>

#include "karst_base.h"

/** ns of CLOCK_MONOTONIC.  Any thread. */
static inline uint64_t
kd_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

#endif /* KARSTD_CLOCK_H */
