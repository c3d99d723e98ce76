/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * For test threads that poll.  A thread that finds nothing to do yields first; when yielding does
 * not help, it sleeps.  What the thread waits for may take as long as a timer, and a thread that
 * spins meanwhile takes a processor from the tests that run beside it.
 */
#ifndef IDLE_H
#define IDLE_H

#include <sched.h>
#include <stdbool.h>
#include <unistd.h>

#define IDLE_YIELDS 64u
#define IDLE_US     50u

/** Call after each poll.  @turns belongs to the thread and starts at 0. */
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
