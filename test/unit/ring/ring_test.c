/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Both sides of the rings in one thread: what goes in comes out, indices wrap around 2^32, and
 * whatever the program's side writes, the engine's side stays inside of its memory.  What threads
 * may do to each other is in ring_thread_test.c.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "karst_ring_engine.h"

#define SLOTS   8u
#define ENTRIES 8u

struct queue {
	void *shared;
	struct karst_wq program;
	struct karst_wqe_ring engine;
};

static void *
zeroed(size_t bytes)
{
	void *p = aligned_alloc(KARST_CACHE_LINE, (bytes + KARST_CACHE_LINE - 1) & ~63ul);

	cr_assert_not_null(p);
	return memset(p, 0, bytes);
}

/* A send queue whose indices start at @start. */
static void
queue_up(struct queue *q, uint32_t start)
{
	uint32_t stride = karst_wq_stride(true, 1, 0);

	q->shared = zeroed(karst_wq_bytes(SLOTS, stride));
	karst_wqe_init(&q->engine, q->shared, SLOTS, stride, 1, 0, true);
	q->engine.head = q->engine.tail = start;
	atomic_store(&q->engine.sh->tail, start);
	atomic_store(&q->engine.sh->head, start);
	karst_wq_attach(&q->program, q->shared, SLOTS, stride);
}

static bool
post(struct queue *q, uint64_t wr_id)
{
	struct karst_send_wqe *wqe;

	cr_assert_geq(karst_wq_free(&q->program, 1), 1);
	wqe = karst_wq_slot(&q->program, 0);
	wqe->wr_id = wr_id;
	return karst_wq_publish(&q->program, 1);
}

static uint64_t
slot_id(const struct queue *q, uint32_t idx)
{
	return ((const struct karst_send_wqe *)karst_wqe_slot(&q->engine, idx))->wr_id;
}

Test(work_queue, stride_holds_what_was_asked_for)
{
	cr_assert_eq(karst_wq_stride(true, 1, 0), 64);
	cr_assert_eq(karst_wq_stride(true, 2, 32), 64);
	cr_assert_eq(karst_wq_stride(true, 3, 0), 128);
	cr_assert_eq(karst_wq_stride(true, 1, 33), 128);
	cr_assert_eq(karst_wq_stride(false, 1, 0), 32);
	cr_assert_eq(karst_wq_stride(false, 2, 0), 64);
	for (uint32_t sge = 1; sge <= KARST_WQ_MAX_SGE; sge++) {
		for (uint32_t in = 0; in <= KARST_WQ_MAX_INLINE; in += 17) {
			uint32_t s = karst_wq_stride(true, sge, in);

			cr_assert(karst_is_pow2(s));
			cr_assert_geq(s, KARST_SEND_WQE_HDR + sge * sizeof(struct karst_sge));
			cr_assert_geq(s, KARST_SEND_WQE_HDR + in);
		}
	}
}

Test(work_queue, fills_empties_and_wraps)
{
	uint32_t start = UINT32_MAX - 2 * SLOTS;
	uint64_t next = 0, seen = 0;
	struct queue q;

	queue_up(&q, start);
	for (unsigned int round = 0; round < 6 * SLOTS; round++) {
		uint32_t n = 1 + round % SLOTS;

		for (uint32_t i = 0; i < n; i++)
			post(&q, next++);
		cr_assert_eq(karst_wq_free(&q.program, SLOTS), SLOTS - n);
		cr_assert_eq(karst_wqe_poll(&q.engine), 0);
		cr_assert_eq(q.engine.tail - q.engine.head, n);
		for (uint32_t i = 0; i < n; i++)
			cr_assert_eq(slot_id(&q, q.engine.head + i), seen++);
		karst_wqe_publish_head(&q.engine, q.engine.tail);
		cr_assert_eq(karst_wq_free(&q.program, SLOTS), SLOTS);
	}
	free(q.shared);
}

Test(work_queue, doorbell_only_when_idle)
{
	struct queue q;

	queue_up(&q, 0);
	cr_assert(post(&q, 1), "a new send queue is idle");
	cr_assert_not(post(&q, 2), "one doorbell until the engine has seen it");
	karst_wqe_busy(&q.engine);
	cr_assert_not(post(&q, 3));
	cr_assert_eq(karst_wqe_poll(&q.engine), 0);
	karst_wqe_publish_head(&q.engine, q.engine.tail);
	cr_assert_not(karst_wqe_idle(&q.engine), "nothing came meanwhile");
	cr_assert(post(&q, 4));
	free(q.shared);
}

Test(work_queue, not_idle_with_work_left)
{
	struct queue q;

	queue_up(&q, 0);
	karst_wqe_busy(&q.engine);
	cr_assert_eq(karst_wqe_poll(&q.engine), 0);
	/* after the engine's last look */
	cr_assert_not(post(&q, 1));
	cr_assert(karst_wqe_idle(&q.engine));
	cr_assert_not(post(&q, 2), "it went on, so nobody needs to ring");
	free(q.shared);
}

Test(work_queue, impossible_tails_are_refused)
{
	uint32_t tail = 0, taken = 0, refused = 0;
	struct queue q;

	srandom(11);
	queue_up(&q, 100);
	post(&q, 1);
	post(&q, 2);
	cr_assert_eq(karst_wqe_poll(&q.engine), 0);
	for (unsigned int i = 0; i < 100000; i++) {
		struct karst_wqe_ring before = q.engine;

		/* near the right value, or anywhere */
		tail = i % 2 ? q.engine.head + (uint32_t)random() % (3 * SLOTS) - SLOTS
			     : (uint32_t)random() * 2654435761u;
		atomic_store(&q.engine.sh->tail, tail);
		if (karst_wqe_poll(&q.engine) == 0) {
			taken++;
			cr_assert_eq(q.engine.tail, tail);
			cr_assert_leq(tail - q.engine.head, SLOTS);
			cr_assert_geq(tail - before.head, before.tail - before.head);
			karst_wqe_publish_head(&q.engine, q.engine.tail);
		} else {
			refused++;
			cr_assert_eq(q.engine.tail, before.tail);
		}
	}
	cr_assert_gt(taken, 1000);
	cr_assert_gt(refused, 1000);
	free(q.shared);
}

struct lane {
	struct karst_lane_shared *sh;
	struct karst_lane engine;
	struct karst_cq_lane program;
};

static void
lane_up(struct lane *l, uint32_t start, unsigned int flags)
{
	l->sh = zeroed(karst_lane_bytes(ENTRIES, flags));
	karst_lane_init(&l->engine, l->sh, ENTRIES, flags);
	l->engine.tail = l->engine.published = l->engine.head_seen = start;
	atomic_store(&l->sh->tail, start);
	atomic_store(&l->sh->head, start);
	karst_cq_lane_attach(&l->program, l->sh, ENTRIES, flags);
}

Test(lane, r14_nothing_is_seen_before_it_is_published)
{
	const struct karst_cqe *cqe;
	struct lane l;

	lane_up(&l, 0, 0);
	cr_assert(karst_lane_room(&l.engine));
	karst_lane_next(&l.engine)->wr_id = 5;
	cr_assert_eq(karst_cq_lane_peek(&l.program, &cqe), 0);
	karst_lane_publish(&l.engine);
	cr_assert_eq(karst_cq_lane_peek(&l.program, &cqe), 1);
	cr_assert_eq(cqe->wr_id, 5);
	cr_assert_eq(karst_cq_lane_peek(&l.program, &cqe), 1, "looking takes nothing");
	karst_cq_lane_take(&l.program, 1);
	cr_assert_eq(karst_cq_lane_peek(&l.program, &cqe), 0);
	free(l.sh);
}

Test(lane, fills_empties_and_wraps)
{
	uint64_t next = 0, seen = 0;
	struct lane l;

	lane_up(&l, UINT32_MAX - 20, 0);
	for (unsigned int round = 0; round < 10 * ENTRIES; round++) {
		const struct karst_cqe *cqe;
		uint32_t n = 0, got;

		while (n < 1 + round % ENTRIES && karst_lane_room(&l.engine)) {
			karst_lane_next(&l.engine)->wr_id = next++;
			n++;
		}
		cr_assert_eq(n, 1 + round % ENTRIES);
		if (n == ENTRIES)
			cr_assert_not(karst_lane_room(&l.engine));
		karst_lane_publish(&l.engine);
		while ((got = karst_cq_lane_peek(&l.program, &cqe)) > 0) {
			cr_assert_leq((uintptr_t)(cqe + got),
				(uintptr_t)l.sh + karst_lane_bytes(ENTRIES, 0), "not past the end");
			for (uint32_t i = 0; i < got; i++)
				cr_assert_eq(cqe[i].wr_id, seen++);
			karst_cq_lane_take(&l.program, got);
		}
		cr_assert_eq(seen, next);
	}
	free(l.sh);
}

/* The entries that the engine has written and the program has not taken never exceed the lane, by
 * the engine's own count, whatever head holds. */
Test(lane, impossible_heads_are_no_progress)
{
	uint32_t written = 0;
	struct lane l;

	srandom(12);
	lane_up(&l, 0, 0);
	for (unsigned int i = 0; i < 100000; i++) {
		uint32_t head = i % 2 ? l.engine.tail + (uint32_t)random() % 32 - 24
				      : (uint32_t)random() * 2654435761u;

		atomic_store(&l.sh->head, head);
		if (!karst_lane_room(&l.engine))
			continue;
		written++;
		cr_assert_lt(l.engine.tail - l.engine.head_seen, ENTRIES);
		karst_lane_next(&l.engine)->wr_id = i;
	}
	cr_assert_gt(written, 1000);
	free(l.sh);
}

/* Entries of queue pair 1 are removed, wherever they are; those of 2 stay in order, with their
 * times. */
Test(lane, drops_what_is_of_a_queue_pair)
{
	static const uint32_t starts[] = {0, 5, UINT32_MAX - 7};
	uint32_t n, of_1, flags, k, i;

	for (n = 0; n <= ENTRIES; n++)
		for (of_1 = 0; of_1 < 1u << n; of_1 += 1 + of_1 / 64)
			for (flags = 0; flags <= KARST_CQ_TIMESTAMPS; flags++)
				for (k = 0; k < KARST_DIM(starts); k++) {
					const struct karst_cqe *cqe;
					struct lane l;

					lane_up(&l, starts[k], flags);
					for (i = 0; i < n; i++) {
						struct karst_cqe *e = karst_lane_next(&l.engine);

						e->wr_id = i;
						e->qpn = of_1 >> i & 1 ? 1 : 2;
						if (flags != 0)
							l.engine.stamps[(starts[k] + i) % ENTRIES] =
								100 + i;
					}
					karst_lane_publish(&l.engine);
					karst_cq_lane_drop(&l.program, 1);
					for (i = 0; i < n; i++) {
						if (of_1 >> i & 1)
							continue;
						cr_assert_gt(
							karst_cq_lane_peek(&l.program, &cqe), 0);
						cr_assert_eq(cqe->wr_id, i);
						if (flags != 0)
							cr_assert_eq(
								*karst_cq_lane_stamps(&l.program),
								100 + i);
						karst_cq_lane_take(&l.program, 1);
					}
					cr_assert_eq(karst_cq_lane_peek(&l.program, &cqe), 0);
					cr_assert_eq(l.sh->head, l.sh->tail);
					free(l.sh);
				}
}

/* --- lanes that are moved --- */

static void
write_entries(struct lane *l, uint32_t n, uint64_t ns)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		cr_assert(karst_lane_room(&l->engine));
		l->engine.cqes[l->engine.tail & l->engine.mask].wr_id = l->engine.tail;
		karst_lane_next(&l->engine);
	}
	if (l->engine.stamps != NULL)
		karst_lane_stamp(&l->engine, ns);
	karst_lane_publish(&l->engine);
}

/* Writes entries @from to @to, with the time @ns if the lane has times. */
static void
expect_entries(struct lane *l, uint32_t from, uint32_t to, uint64_t ns)
{
	const struct karst_cqe *cqe;
	const uint64_t *at;
	uint32_t n, i;

	while (from != to) {
		n = karst_cq_lane_peek(&l->program, &cqe);
		at = karst_cq_lane_stamps(&l->program);
		cr_assert_gt(n, 0);
		cr_assert_eq(at != NULL, l->engine.stamps != NULL);
		for (i = 0; i < n && from != to; i++, from++) {
			cr_assert_eq(cqe[i].wr_id, from);
			cr_assert(at == NULL || at[i] == ns);
		}
		karst_cq_lane_take(&l->program, i);
	}
}

/* Prepares, copies, lets @more entries come, and moves.  @return as karst_lane_move(). */
static int
move(struct lane *l, struct karst_lane_shared *to, uint32_t entries, uint32_t more, uint64_t ns,
	struct karst_lane_span *span)
{
	struct karst_lane was = l->engine, new = karst_lane_in(&was, to, entries);

	*span = karst_lane_unread(&was);
	karst_lane_copy(&new, &was, span->from, span->upto);
	write_entries(l, more, ns);
	return karst_lane_move(&l->engine, to, entries, span);
}

/* To every size, with every number of unread entries, before and after the indices wrap around. */
Test(lane, moves)
{
	static const uint32_t starts[] = {0, 5, UINT32_MAX - 7};
	uint32_t size, n, more, flags, k;

	for (size = 2; size <= 4 * ENTRIES; size *= 2)
		for (n = 0; n <= ENTRIES; n++)
			for (more = 0; more <= ENTRIES - n; more++)
				for (flags = 0; flags <= KARST_CQ_TIMESTAMPS; flags++)
					for (k = 0; k < KARST_DIM(starts); k++) {
						struct karst_lane_span span;
						struct karst_lane_shared *to, *old;
						uint32_t from = starts[k];
						struct lane l;
						int ret;

						lane_up(&l, from, flags);
						old = l.sh;
						to = zeroed(karst_lane_bytes(size, flags));
						write_entries(&l, n, 77);
						ret = move(&l, to, size, more, 77, &span);
						cr_assert_eq(ret, n + more > size ? -ENOSPC : 0);
						cr_assert_eq(to->live, ret == 0);
						cr_assert_eq(old->live, ret != 0);
						if (ret == 0)
							karst_cq_lane_attach(
								&l.program, to, size, flags);
						expect_entries(&l, from, from + n + more, 77);
						/* and on from there, with a wrap */
						write_entries(&l, 2, 77);
						expect_entries(&l, from + n + more,
							from + n + more + 2, 77);
						free(to);
						free(old);
					}
}

/* Back to the old lane, with the entries that came meanwhile. */
Test(lane, moves_back)
{
	struct karst_lane_shared *small = zeroed(karst_lane_bytes(8, 0)), *old;
	struct karst_lane_span span;
	struct lane l;

	lane_up(&l, 3, 0);
	old = l.sh;
	write_entries(&l, 4, 0);
	cr_assert_eq(move(&l, small, 8, 1, 0, &span), 0);
	write_entries(&l, 3, 0);
	karst_lane_trim(&l.engine, ENTRIES, &span);
	cr_assert_eq(karst_lane_move(&l.engine, old, ENTRIES, &span), 0);
	cr_assert_eq(small->live, 0);
	cr_assert_eq(old->live, 1);
	expect_entries(&l, 3, 11, 0);
	free(small);
	free(old);
}

/* Whatever the heads of both memories hold, nothing is written beyond either, and moving back
 * works. */
Test(lane, moves_with_impossible_heads)
{
	unsigned int i, fits = 0;

	srandom(13);
	for (i = 0; i < 20000; i++) {
		uint32_t size = 2u << random() % 6, bytes = (uint32_t)karst_lane_bytes(size, 0), n;
		uint8_t *mem = zeroed(bytes + 64);
		struct karst_lane_shared *to = (void *)mem, *old;
		struct karst_lane_span span;
		struct karst_lane was, new;
		struct lane l;

		lane_up(&l, (uint32_t)random(), 0);
		old = l.sh;
		memset(mem + bytes, 0xa5, 64);
		for (n = 0; n < 2u * ENTRIES; n++) {
			atomic_store(&old->head, l.engine.tail - (uint32_t)random() % 20);
			if (karst_lane_room(&l.engine))
				write_entries(&l, 1, 0);
		}
		atomic_store(&old->head,
			random() % 2 ? (uint32_t)random()
				     : l.engine.tail - (uint32_t)random() % 40);
		was = l.engine;
		span = karst_lane_unread(&was);
		cr_assert_leq(span.upto - span.from, ENTRIES);
		new = karst_lane_in(&was, to, size);
		if (span.upto - span.from <= size)
			karst_lane_copy(&new, &was, span.from, span.upto);
		for (n = 0; n < (uint32_t)random() % 64; n++) {
			atomic_store(&old->head, l.engine.tail);
			if (karst_lane_room(&l.engine))
				write_entries(&l, 1, 0);
		}
		if (span.upto - span.from <= size &&
			karst_lane_move(&l.engine, to, size, &span) == 0) {
			fits++;
			for (n = 0; n < (uint32_t)random() % 64; n++) {
				atomic_store(&to->head, l.engine.tail);
				if (karst_lane_room(&l.engine))
					write_entries(&l, 1, 0);
			}
			karst_lane_trim(&l.engine, ENTRIES, &span);
			cr_assert_eq(karst_lane_move(&l.engine, old, ENTRIES, &span), 0);
		}
		for (n = 0; n < 64; n++)
			cr_assert_eq(mem[bytes + n], 0xa5);
		cr_assert_leq(l.engine.tail - l.engine.head_seen, ENTRIES);
		free(mem);
		free(old);
	}
	cr_assert_gt(fits, 1000);
}

Test(completion_queue, arming_never_weakens)
{
	struct karst_cq_shared cq = {0};

	karst_cq_arm(&cq, true);
	cr_assert_eq(atomic_load(&cq.armed), KARST_CQ_ARM_COUNT | KARST_CQ_ARM_SOLICITED);
	karst_cq_arm(&cq, false);
	cr_assert_eq(atomic_load(&cq.armed), KARST_CQ_ARM_COUNT | KARST_CQ_ARM_NEXT);
	karst_cq_arm(&cq, true);
	cr_assert_eq(atomic_load(&cq.armed), KARST_CQ_ARM_COUNT | KARST_CQ_ARM_NEXT);
	cr_assert(karst_cq_is_armed(&cq));
	cr_assert(karst_cq_disarm(&cq));
	cr_assert_not(karst_cq_disarm(&cq));
	cr_assert_not(karst_cq_is_armed(&cq));
	cr_assert_eq(atomic_load(&cq.armed), KARST_CQ_ARM_COUNT);
	/* the count wraps around */
	atomic_store(&cq.armed, UINT32_MAX & ~(uint32_t)KARST_CQ_ARM_WHAT);
	karst_cq_arm(&cq, false);
	cr_assert_eq(atomic_load(&cq.armed), KARST_CQ_ARM_NEXT);
}

/* Entries that were visible before the queue was armed can be told apart; indices wrap around. */
Test(completion_queue, what_it_was_armed_behind)
{
	static const uint32_t starts[] = {0, 1, ENTRIES - 1, UINT32_MAX - 1, UINT32_MAX};

	for (uint32_t i = 0; i < KARST_DIM(starts); i++) {
		struct karst_cq_shared cq = {0};
		const struct karst_cqe *at;
		uint32_t n, seen = 0;
		struct lane l;

		lane_up(&l, starts[i], 0);
		cr_assert_not(karst_cq_lane_unread(&l.program));
		write_entries(&l, 2, 0);
		karst_cq_arm_behind(&cq, &l.program, 1, false);
		cr_assert_not(karst_cq_lane_came(&l.program));
		write_entries(&l, 2, 0);
		cr_assert(karst_cq_lane_came(&l.program));
		while ((n = karst_cq_lane_peek_before(&l.program, &at)) > 0) {
			seen += n;
			karst_cq_lane_take(&l.program, n);
		}
		cr_assert_eq(seen, 2);
		while ((n = karst_cq_lane_peek(&l.program, &at)) > 0) {
			cr_assert_eq(karst_cq_lane_peek_before(&l.program, &at), 0);
			cr_assert(karst_cq_lane_unread(&l.program));
			seen += n;
			karst_cq_lane_take(&l.program, n);
		}
		cr_assert_eq(seen, 4);
		cr_assert_eq(karst_cq_lane_peek_before(&l.program, &at), 0);
		cr_assert_not(karst_cq_lane_unread(&l.program));
		free(l.sh);
	}
}

Test(completion_queue, lanes_do_not_overlap)
{
	for (unsigned int flags = 0; flags <= KARST_CQ_TIMESTAMPS; flags++) {
		size_t bytes = karst_lane_bytes(ENTRIES, flags);
		uint8_t *lanes = zeroed(karst_cq_lanes_bytes(ENTRIES, 3, flags));

		for (uint32_t i = 0; i < 3; i++) {
			uint8_t *lane = (uint8_t *)karst_cq_lane(lanes, ENTRIES, flags, i);

			cr_assert_eq((uintptr_t)lane % KARST_CACHE_LINE, 0);
			cr_assert_geq(lane, lanes + i * bytes);
			cr_assert_leq(
				lane + bytes, lanes + karst_cq_lanes_bytes(ENTRIES, 3, flags));
		}
		free(lanes);
	}
}

Test(doorbell, first_in_first_out_until_full)
{
	struct karst_bell_shared *sh = zeroed(karst_bell_bytes(4));
	uint32_t qpns[8], next = 0, seen = 0;
	struct karst_bell bell;

	karst_bell_init(&bell, sh, 4);
	cr_assert_eq(karst_bell_poll(&bell, qpns, 8), 0);
	for (unsigned int round = 0; round < 50; round++) {
		unsigned int n = 1 + round % 4, got;

		for (unsigned int i = 0; i < n; i++)
			cr_assert_eq(karst_bell_ring(sh, 3, next++), 0);
		if (n == 4)
			cr_assert_eq(karst_bell_ring(sh, 3, 99), -EAGAIN);
		got = karst_bell_poll(&bell, qpns, 2);
		got += karst_bell_poll(&bell, qpns + got, 6);
		cr_assert_eq(got, n);
		for (unsigned int i = 0; i < n; i++)
			cr_assert_eq(qpns[i], seen++);
	}
	free(sh);
}

Test(doorbell, who_rings_a_sleeper_wakes_it_once)
{
	struct karst_bell_shared *sh = zeroed(karst_bell_bytes(4));
	struct karst_bell bell;
	uint32_t qpn;

	karst_bell_init(&bell, sh, 4);
	cr_assert_eq(karst_bell_ring(sh, 3, 1), 0);
	cr_assert_not(karst_bell_must_wake(sh), "the engine is awake");
	cr_assert_not(karst_bell_empty(&bell));
	cr_assert_not(karst_bell_sleep(&bell), "a bell is there");
	cr_assert_not(karst_bell_must_wake(sh), "so it has stayed awake");
	cr_assert_eq(karst_bell_poll(&bell, &qpn, 1), 1);
	cr_assert(karst_bell_empty(&bell));
	cr_assert(karst_bell_sleep(&bell));
	cr_assert_eq(karst_bell_ring(sh, 3, 2), 0);
	cr_assert(karst_bell_must_wake(sh));
	cr_assert_eq(karst_bell_ring(sh, 3, 3), 0);
	cr_assert_not(karst_bell_must_wake(sh), "it is being woken");
	karst_bell_awake(&bell);
	cr_assert_eq(karst_bell_poll(&bell, &qpn, 1), 1);
	cr_assert_eq(karst_bell_poll(&bell, &qpn, 1), 1);
	cr_assert(karst_bell_sleep(&bell));
	karst_bell_awake(&bell);
	cr_assert_eq(karst_bell_ring(sh, 3, 4), 0);
	cr_assert_not(karst_bell_must_wake(sh), "it woke by itself");
	free(sh);
}

/* Another program has the first ticket and has not written yet: the engine may sleep, because that
 * program will read the asleep word when it has written. */
Test(doorbell, sleeps_over_a_ticket_that_is_not_written)
{
	struct karst_bell_shared *sh = zeroed(karst_bell_bytes(4));
	struct karst_bell bell;
	uint32_t qpn = 0;

	karst_bell_init(&bell, sh, 4);
	atomic_store(&sh->tail, 1);
	cr_assert_eq(karst_bell_ring(sh, 3, 8), 0);
	cr_assert_eq(karst_bell_poll(&bell, &qpn, 1), 0);
	cr_assert(karst_bell_sleep(&bell));
	((struct karst_bell_cell *)(sh + 1))->qpn = 7;
	atomic_store(&((struct karst_bell_cell *)(sh + 1))->seq, 1);
	cr_assert(karst_bell_must_wake(sh));
	karst_bell_awake(&bell);
	cr_assert_eq(karst_bell_poll(&bell, &qpn, 1), 1);
	cr_assert_eq(qpn, 7);
	cr_assert_eq(karst_bell_poll(&bell, &qpn, 1), 1);
	cr_assert_eq(qpn, 8);
	free(sh);
}

/* The asleep word may hold any value. */
Test(doorbell, hostile_asleep_word)
{
	struct karst_bell_shared *sh = zeroed(karst_bell_bytes(4));
	struct karst_bell bell;
	uint32_t qpn;

	karst_bell_init(&bell, sh, 4);
	atomic_store(&sh->asleep, 0xffffffff);
	cr_assert(karst_bell_must_wake(sh));
	atomic_store(&sh->asleep, 77);
	cr_assert_eq(karst_bell_ring(sh, 3, 5), 0);
	cr_assert_not(karst_bell_sleep(&bell));
	cr_assert_eq(atomic_load(&sh->asleep), 0);
	cr_assert_eq(karst_bell_poll(&bell, &qpn, 1), 1);
	free(sh);
}
