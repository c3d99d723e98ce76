/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * An engine that sleeps on an eventfd whenever it finds no doorbell, and programs that ring one
 * doorbell at a time and wait for the answer.  The engine reads nothing from the eventfd: an
 * edge-triggered epoll tells it of each write, as in the real engine.  A lost wake-up stops
 * everything (the test runs into its timeout).
 */
#include "karst_ring_engine.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PROGRAMS 3u
#define ROUNDS   20000u
#define RINGS    2u /* programs 0 and 2 share one */
#define CELLS    4u

struct world {
	struct karst_bell_shared *shared[RINGS];
	struct karst_bell bell[RINGS];
	int eventfd[RINGS];
	int epoll;
	_Atomic uint32_t answered[PROGRAMS];
	_Atomic uint32_t sleeps;
	_Atomic uint32_t wakes;
	_Atomic bool stop;
	uint32_t dozes; /* prepared to sleep, and then slept or found a doorbell */
	uint32_t wrong;
};

struct program {
	struct world *w;
	uint32_t id;
	pthread_t thread;
	bool wrong;
};

static void
ring(struct world *w, uint32_t r, uint32_t qpn, bool *wrong)
{
	const uint64_t one = 1;

	*wrong |= karst_bell_ring(w->shared[r], CELLS - 1, qpn) != 0;
	if (!karst_bell_must_wake(w->shared[r]))
		return;
	*wrong |= write(w->eventfd[r], &one, sizeof(one)) != sizeof(one);
	atomic_fetch_add(&w->wakes, 1);
}

static void *
run_program(void *arg)
{
	struct program *p = arg;
	struct world *w = p->w;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		ring(w, p->id % RINGS, p->id, &p->wrong);
		while (atomic_load(&w->answered[p->id]) != i + 1)
			sched_yield();
	}
	return NULL;
}

static unsigned int
answer(struct world *w)
{
	unsigned int r, i, n, all = 0;
	uint32_t ids[CELLS];

	for (r = 0; r < RINGS; r++) {
		n = karst_bell_poll(&w->bell[r], ids, CELLS);
		for (i = 0; i < n; i++) {
			if (ids[i] < PROGRAMS && ids[i] % RINGS == r)
				atomic_fetch_add(&w->answered[ids[i]], 1);
			else
				w->wrong += ids[i] != PROGRAMS;
		}
		all += n;
	}
	return all;
}

static void
sleep_on_all(struct world *w)
{
	struct epoll_event event;
	bool empty = true;
	unsigned int r;

	w->dozes++;
	for (r = 0; r < RINGS; r++)
		karst_bell_doze(&w->bell[r]);
	/* Dekker with karst_bell_must_wake() */
	atomic_thread_fence(memory_order_seq_cst);
	for (r = 0; r < RINGS; r++)
		empty = empty && karst_bell_empty(&w->bell[r]);
	if (empty) {
		atomic_fetch_add(&w->sleeps, 1);
		w->wrong += epoll_wait(w->epoll, &event, 1, -1) != 1;
	}
	for (r = 0; r < RINGS; r++)
		karst_bell_awake(&w->bell[r]);
}

static void *
run_engine(void *arg)
{
	struct world *w = arg;

	while (!atomic_load(&w->stop))
		if (answer(w) == 0)
			sleep_on_all(w);
	return NULL;
}

static unsigned int
point(unsigned int number, bool good, const char *what)
{
	printf("%sok %u - %s\n", good ? "" : "not ", number, what);
	return !good;
}

static bool
set_up(struct world *w)
{
	unsigned int r;

	w->epoll = epoll_create1(0);
	for (r = 0; r < RINGS; r++) {
		struct epoll_event want = {.events = EPOLLIN | EPOLLET};

		w->shared[r] = aligned_alloc(KARST_CACHE_LINE, karst_bell_bytes(CELLS) + 32);
		w->eventfd[r] = eventfd(0, EFD_NONBLOCK);
		if (w->shared[r] == NULL || w->eventfd[r] < 0 ||
			epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->eventfd[r], &want) != 0)
			return false;
		karst_bell_init(&w->bell[r], w->shared[r], CELLS);
	}
	return true;
}

static void
tear_down(struct world *w)
{
	unsigned int r;

	for (r = 0; r < RINGS; r++) {
		close(w->eventfd[r]);
		free(w->shared[r]);
	}
	close(w->epoll);
}

int
main(void)
{
	struct program program[PROGRAMS] = {0};
	static struct world w;
	bool wrong = false;
	pthread_t engine;
	unsigned int failed;

	if (!set_up(&w) || pthread_create(&engine, NULL, run_engine, &w) != 0)
		return 1;
	/* no program has rung, so the engine will sleep */
	while (atomic_load(&w.sleeps) == 0)
		sched_yield();
	for (uint32_t i = 0; i < PROGRAMS; i++) {
		program[i].w = &w;
		program[i].id = i;
		if (pthread_create(&program[i].thread, NULL, run_program, &program[i]) != 0)
			return 1;
	}
	for (uint32_t i = 0; i < PROGRAMS; i++) {
		pthread_join(program[i].thread, NULL);
		wrong |= program[i].wrong || atomic_load(&w.answered[i]) != ROUNDS;
	}
	atomic_store(&w.stop, true);
	ring(&w, 0, PROGRAMS, &wrong);
	pthread_join(engine, NULL);

	printf("1..3\n# slept %u times, was woken %u times\n", w.sleeps, w.wakes);
	failed = point(1, !wrong, "every bell is answered, though the engine slept");
	failed +=
		point(2, w.wrong == 0, "the engine sees what was rung, and wakes when it is told");
	failed += point(3, w.wakes > 0 && w.wakes <= RINGS * w.dozes,
		"at most one wakes it by each ring, each time that it dozes off");
	tear_down(&w);
	return failed != 0;
}
