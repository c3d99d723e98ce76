/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * For threads of tests that poll.  One that finds nothing lets the others go first, and when that
 * was of no use it sleeps: what it waits for may take a timer's time, and a thread that spins all
 * the while takes a processor from the tests beside it.
 */
#ifndef IDLE_H
#define IDLE_H

#include <sched.h>
#include <stdbool.h>
#include <unistd.h>

#define IDLE_YIELDS 64u
#define IDLE_US     50u

/** After each look; @turns is the thread's own, and begins at 0. */
static inline void
idle_after(unsigned int *turns, bool found)
{
	if (found)
		*turns = 0;
	else if (++*turns < IDLE_YIELDS)
		sched_yield();
	else
		usleep(IDLE_US);
}

#endif /* IDLE_H */
