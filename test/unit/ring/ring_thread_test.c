/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Programs and an engine in threads of their own.  Each program posts work requests to its queue
 * and rings the doorbell only when it is told to; the engine reads a queue only after its doorbell,
 * until the queue is empty, and answers each request on the program's completion lane.  So a lost
 * doorbell stops a program for ever (the test runs into its timeout), and a missing ordering shows
 * as a wrong byte, or as a report of -Dsanitize=thread.
 *
 * This is a separate program with TAP, because Criterion does not start under that sanitizer.
 */
#include "karst_ring_engine.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define PROGRAMS 3u
#define REQUESTS 30000u
#define SLOTS    16u
#define ENTRIES  16u
#define CELLS    4u /* one for each queue that can ring at the same time */

struct program {
	pthread_t thread;
	uint32_t id;
	/* shared with the engine */
	void *wq_shared;
	struct karst_lane_shared *lane_shared;
	struct karst_bell_shared *bell_shared;
	/* the engine's */
	struct karst_wqe_ring sq;
	struct karst_lane lane;
	bool active;
	/* results */
	uint32_t wrong, rung;
};

struct engine {
	struct program program[PROGRAMS];
	struct karst_bell bell;
	_Atomic bool stop;
	uint32_t wrong, idled, went_on;
};

static uint32_t
mix(uint32_t id, uint64_t wr_id)
{
	return (uint32_t)(wr_id * 2654435761u) ^ id << 24;
}

static void *
run_program(void *arg)
{
	struct program *p = arg;
	uint64_t posted = 0, done = 0;
	struct karst_cq_lane lane;
	struct karst_wq wq;

	karst_wq_attach(&wq, p->wq_shared, SLOTS, 64);
	karst_cq_lane_attach(&lane, p->lane_shared, ENTRIES, 0);
	while (done < REQUESTS) {
		const struct karst_cqe *cqe;
		uint32_t n = karst_wq_free(&wq, 1), got;

		/* as many as the lane can answer, in batches of different sizes */
		n = karst_min_u32(n, 1 + (uint32_t)posted % 7);
		n = karst_min_u32(n, ENTRIES - (uint32_t)(posted - done));
		n = karst_min_u32(n, (uint32_t)(REQUESTS - posted));
		for (uint32_t i = 0; i < n; i++) {
			struct karst_send_wqe *wqe = karst_wq_slot(&wq, i);

			wqe->wr_id = posted;
			wqe->imm = mix(p->id, posted++);
		}
		if (n > 0 && karst_wq_publish(&wq, n)) {
			p->rung++;
			if (karst_bell_ring(p->bell_shared, CELLS - 1, p->id) != 0)
				p->wrong++;
		}
		got = karst_cq_lane_peek(&lane, &cqe);
		for (uint32_t i = 0; i < got; i++) {
			p->wrong += cqe[i].wr_id != done || cqe[i].imm != ~mix(p->id, done);
			done++;
		}
		karst_cq_lane_take(&lane, got);
		if (got == 0)
			sched_yield();
	}
	return NULL;
}

/* Answers the requests in a queue. */
static void
serve(struct engine *e, struct program *p)
{
	if (karst_wqe_poll(&p->sq) != 0) {
		e->wrong++;
		return;
	}
	for (uint32_t i = p->sq.head; i != p->sq.tail; i++) {
		struct karst_send_wqe wqe;
		struct karst_cqe *cqe;

		memcpy(&wqe, karst_wqe_slot(&p->sq, i), sizeof(wqe));
		e->wrong += wqe.imm != mix(p->id, wqe.wr_id) || !karst_lane_room(&p->lane);
		cqe = karst_lane_next(&p->lane);
		cqe->wr_id = wqe.wr_id;
		cqe->imm = ~wqe.imm;
	}
	karst_wqe_publish_head(&p->sq, p->sq.tail);
	karst_lane_publish(&p->lane);
}

static void
count_idle(struct engine *e, struct program *p, bool goes_on)
{
	p->active = goes_on;
	if (goes_on)
		e->went_on++;
	else
		e->idled++;
}

/* Queues become idle one by one. */
static uint32_t
serve_each(struct engine *e)
{
	uint32_t i, busy = 0;

	for (i = 0; i < PROGRAMS; i++) {
		struct program *p = &e->program[i];

		if (!p->active)
			continue;
		serve(e, p);
		count_idle(e, p, karst_wqe_idle(&p->sq));
		busy++;
	}
	return busy;
}

/* Queues become idle together, with one fence: while others are still served, their programs may
 * ring already. */
static uint32_t
serve_together(struct engine *e)
{
	uint32_t i, busy = 0;

	for (i = 0; i < PROGRAMS; i++) {
		if (!e->program[i].active)
			continue;
		serve(e, &e->program[i]);
		karst_wqe_idle_begin(&e->program[i].sq);
		busy++;
	}
	atomic_thread_fence(memory_order_seq_cst);
	for (i = 0; i < PROGRAMS; i++)
		if (e->program[i].active)
			count_idle(e, &e->program[i], karst_wqe_idle_end(&e->program[i].sq));
	return busy;
}

static void *
run_engine(void *arg)
{
	struct engine *e = arg;
	uint32_t turns = 0;

	while (!atomic_load(&e->stop)) {
		uint32_t ids[CELLS];
		unsigned int n = karst_bell_poll(&e->bell, ids, CELLS);

		for (unsigned int i = 0; i < n; i++) {
			struct program *p = &e->program[ids[i] % PROGRAMS];

			e->wrong += ids[i] >= PROGRAMS || p->active;
			karst_wqe_busy(&p->sq);
			p->active = true;
		}
		if ((turns++ & 1 ? serve_together(e) : serve_each(e)) == 0)
			sched_yield();
	}
	return NULL;
}

static void *
zeroed(size_t bytes)
{
	void *p = aligned_alloc(KARST_CACHE_LINE, (bytes + KARST_CACHE_LINE - 1) & ~63ul);

	if (p == NULL)
		exit(1);
	return memset(p, 0, bytes);
}

static unsigned int
point(unsigned int number, bool good, const char *what)
{
	printf("%sok %u - %s\n", good ? "" : "not ", number, what);
	return !good;
}

int
main(void)
{
	static struct engine e;
	struct karst_bell_shared *bell = zeroed(karst_bell_bytes(CELLS));
	uint32_t wrong = 0, rung = 0;
	unsigned int failed;
	pthread_t thread;

	karst_bell_init(&e.bell, bell, CELLS);
	for (uint32_t i = 0; i < PROGRAMS; i++) {
		struct program *p = &e.program[i];

		p->id = i;
		p->wq_shared = zeroed(karst_wq_bytes(SLOTS, 64));
		p->lane_shared = zeroed(karst_lane_bytes(ENTRIES, 0));
		p->bell_shared = bell;
		karst_wqe_init(&p->sq, p->wq_shared, SLOTS, 64, 1, 0, true);
		karst_lane_init(&p->lane, p->lane_shared, ENTRIES, 0);
	}
	if (pthread_create(&thread, NULL, run_engine, &e) != 0)
		return 1;
	for (uint32_t i = 0; i < PROGRAMS; i++) {
		if (pthread_create(&e.program[i].thread, NULL, run_program, &e.program[i]) != 0)
			return 1;
	}
	for (uint32_t i = 0; i < PROGRAMS; i++) {
		pthread_join(e.program[i].thread, NULL);
		wrong += e.program[i].wrong;
		rung += e.program[i].rung;
	}
	atomic_store(&e.stop, true);
	pthread_join(thread, NULL);

	printf("1..3\n# %u doorbells, idle %u times, went on %u times\n", rung, e.idled, e.went_on);
	failed = point(1, wrong == 0, "programs get every answer, in order");
	failed += point(2, e.wrong == 0, "the engine gets every request whole");
	/* each queue was idle at the start, and is at the end */
	failed += point(3, rung == e.idled, "a doorbell each time that the engine went idle");
	for (uint32_t i = 0; i < PROGRAMS; i++) {
		free(e.program[i].wq_shared);
		free(e.program[i].lane_shared);
	}
	free(bell);
	return failed != 0;
}
