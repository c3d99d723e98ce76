/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program that sleeps and an engine that wakes it, in threads of their own: the program arms,
 * polls once more, and waits.  The engine in turn waits for room in a short lane, so a lost event
 * stops both for ever, and the watchdog reports it.  The data that a completion announces is
 * written without atomics before the completion, so -Dsanitize=thread sees a missing ordering
 * (R14).
 *
 * This is a separate program with TAP, because Criterion does not start under that sanitizer.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "qp_priv.h"

#define ENTRIES   8u
#define TOTAL     30000u
#define WATCHDOG  600u /* seconds */
#define SOLICITED 5u   /* one in so many */

struct test {
	struct karst_core *core;
	struct karst_core_cq *cq;
	void *shared;
	struct karst_lane_shared *lane;
	uint64_t data[TOTAL];
	_Atomic uint32_t events;
	bool solicited_only;
	bool behind; /* armed with the state that the program has seen of the lane */
	_Atomic uint32_t wrong;
	uint32_t slept;
};

static void
on_cq_event(struct karst_core *core, struct karst_core_cq *cq)
{
	struct test *t = core->user;

	t->wrong += cq != t->cq;
	atomic_fetch_add_explicit(&t->events, 1, memory_order_release);
}

static void
on_async_event(struct karst_core *core, enum karst_async_event_code event, void *object)
{
	struct test *t = core->user;

	t->wrong++;
}

static const struct karst_core_ops ops = {on_cq_event, on_async_event};

/* Tells whether the @i-th completion wakes a program that waits for solicited ones. */
static bool
wakes(uint32_t i)
{
	return i % SOLICITED == SOLICITED - 1 || i + 1 == TOTAL;
}

static void *
run_engine(void *arg)
{
	struct test *t = arg;
	uint32_t i = 0, n;

	while (i < TOTAL) {
		for (n = 1 + i % 4; n > 0 && i < TOTAL; n--) {
			struct karst_cqe *cqe;

			if (!karst_lane_room(&t->cq->lane[0].ring)) {
				sched_yield(); /* let the program run */
				break;
			}
			cqe = karst_cq_push(t->core, t->cq, wakes(i));
			if (cqe == NULL) {
				t->wrong++;
				return NULL;
			}
			t->data[i] = i * 3ull + 1;
			*cqe = (struct karst_cqe){.wr_id = i++};
		}
		karst_core_flush(t->core);
		if (i % 64 == 0)
			sched_yield();
	}
	return NULL;
}

/* @return how many were taken. */
static uint32_t
take_all(struct test *t, struct karst_cq_lane *lane, uint32_t done)
{
	const struct karst_cqe *cqe;
	uint32_t n, i, taken = 0;

	while ((n = karst_cq_lane_peek(lane, &cqe)) != 0) {
		for (i = 0; i < n; i++, taken++)
			t->wrong += cqe[i].wr_id != done + taken ||
				t->data[done + taken] != (done + taken) * 3ull + 1;
		karst_cq_lane_take(lane, n);
	}
	return taken;
}

static void
run_program(struct test *t)
{
	struct karst_cq_lane lane;
	uint32_t done = 0;

	karst_cq_lane_attach(&lane, t->lane, ENTRIES, 0);
	while (done < TOTAL) {
		uint32_t seen = atomic_load_explicit(&t->events, memory_order_acquire), more;

		karst_cq_arm_behind(t->shared, &lane, t->behind ? 1 : 0, t->solicited_only);
		more = take_all(t, &lane, done);
		done += more;
		if (more != 0)
			continue;
		t->slept++;
		while (atomic_load_explicit(&t->events, memory_order_acquire) == seen)
			sched_yield();
	}
}

static unsigned int
run(unsigned int number, bool solicited_only, bool behind, const char *what)
{
	static uint8_t mem_buf[65536] karst_cache_aligned;
	static uint8_t core_buf[65536] karst_cache_aligned;
	static uint8_t cq_buf[1024] karst_cache_aligned;
	static struct karst_cq_shared shared;
	static uint8_t lane[4096] karst_cache_aligned;
	static struct test t;
	struct karst_mem_config mc = {.max_keys = 2, .max_pds = 1};
	struct karst_core_config cc = {.max_qps = 1, .ops = &ops, .user = &t};
	struct karst_cq_init init = {
		.shared = &shared, .lanes = lane, .entries = ENTRIES, .nlanes = 1};
	pthread_t thread;

	memset(&t, 0, sizeof(t));
	t.shared = &shared;
	t.lane = (struct karst_lane_shared *)(void *)lane;
	t.solicited_only = solicited_only;
	t.behind = behind;
	if (karst_mem_size(&mc) > sizeof(mem_buf) || karst_mem_init(mem_buf, &mc, &cc.mem) != 0 ||
		karst_core_bytes(&cc) > sizeof(core_buf) ||
		karst_core_init(core_buf, &cc, 0, &t.core) != 0 ||
		karst_cq_create(cq_buf, &init, &t.cq) != 0 ||
		pthread_create(&thread, NULL, run_engine, &t) != 0) {
		printf("not ok %u - %s\n", number, what);
		return 1;
	}
	alarm(WATCHDOG);
	run_program(&t);
	pthread_join(thread, NULL);
	alarm(0);
	printf("# slept %u times, %u events\n", t.slept, t.events);
	printf("%sok %u - %s\n", t.wrong == 0 ? "" : "not ", number, what);
	return t.wrong != 0;
}

int
main(void)
{
	unsigned int failed;

	printf("1..4\n");
	failed = run(1, false, false, "woken for any completion");
	/* the lane must be longer than the distance of two completions that wake */
	failed += run(2, true, false, "woken for solicited completions");
	failed += run(3, false, true, "woken for any completion behind the view");
	failed += run(4, true, true, "woken for solicited completions behind the view");
	return failed != 0;
}
