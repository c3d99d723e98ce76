/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Threads that wait for each other's control calls. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

#include <criterion/criterion.h>

#include "engine_bed.h"
#include "lcore.h"

#define THREADS 8
#define HELD_MS 500
/* How often a thread may have begun to sleep: for the lock, and again when another thread was
 * faster.  A thread that checked every 50 us whether the lock is free would have slept some
 * thousand times. */
#define SLEEPS (4 * THREADS)

struct caller {
	struct karst_engine *e;
	atomic_uint *started;
	long sleeps;
};

static long
sleeps(void)
{
	struct rusage ru;

	cr_assert_eq(getrusage(RUSAGE_THREAD, &ru), 0);
	return ru.ru_nvcsw;
}

static void *
call_once(void *arg)
{
	struct caller *c = arg;
	long before = sleeps();

	atomic_fetch_add(c->started, 1);
	cr_assert_eq(eng_ctl_enter(c->e), 0);
	c->sleeps = sleeps() - before;
	eng_ctl_leave(c->e);
	return NULL;
}

/* Threads without an lcore sleep until the lock is free.  There may be many programs, and their
 * threads must leave the processors to the thread that has the lock. */
Test(wait, for_the_lock)
{
	const struct timespec held = {.tv_nsec = HELD_MS * 1000000l}, nap = {.tv_nsec = 1000000};
	struct engine_bed_config cfg = {0};
	struct caller c[THREADS];
	pthread_t thread[THREADS];
	atomic_uint started = 0;
	struct engine_bed bed;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	cr_assert_eq(eng_ctl_enter(bed.e), 0);
	for (i = 0; i < THREADS; i++) {
		c[i] = (struct caller){.e = bed.e, .started = &started};
		cr_assert_eq(pthread_create(&thread[i], NULL, call_once, &c[i]), 0);
	}
	while (atomic_load(&started) < THREADS)
		nanosleep(&nap, NULL);
	nanosleep(&held, NULL);
	eng_ctl_leave(bed.e);
	for (i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		cr_assert_leq(c[i].sleeps, SLEEPS, "thread %u slept %ld times", i, c[i].sleeps);
	}
	engine_bed_down(&bed);
}
