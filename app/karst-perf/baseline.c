/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "baseline.h"
#include "tsc.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <rte_cycles.h>
#include <rte_ring.h>

#define SLOT_BYTES          4096u
#define BASELINE_HUGE_BYTES (2u << 20)
#define RTT_SLOTS           64u
#define CLOCK_EVERY         32u /* pieces between two reads of the clock */

int
perf_baseline_create(uint32_t ring_slots, struct perf_baseline *b)
{
	size_t bytes = (size_t)ring_slots * SLOT_BYTES;
	void *slots;

	memset(b, 0, sizeof(*b));
	if (posix_memalign(&slots, BASELINE_HUGE_BYTES, bytes) != 0)
		return -ENOMEM;
	(void)madvise(slots, bytes, MADV_HUGEPAGE);
	memset(slots, 0, bytes);
	b->ring.slots = slots;
	b->ring.mask = ring_slots - 1;
	b->rtt = perf_hist_create();
	b->there = rte_ring_create(
		"perf_rtt_there", RTT_SLOTS, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	b->back = rte_ring_create(
		"perf_rtt_back", RTT_SLOTS, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (b->rtt != NULL && b->there != NULL && b->back != NULL)
		return 0;
	perf_baseline_destroy(b);
	return -ENOMEM;
}

void
perf_baseline_destroy(struct perf_baseline *b)
{
	rte_ring_free(b->there);
	rte_ring_free(b->back);
	free(b->rtt);
	free(b->ring.slots);
	memset(b, 0, sizeof(*b));
}

void
perf_baseline_aim(
	struct perf_baseline *b, const void *from, void *to, uint64_t bytes, uint32_t piece)
{
	b->walk = (struct perf_walk){
		.from = from,
		.to = to,
		.piece = (uint32_t)karst_min_u64(piece, bytes),
	};
	b->walk.bytes = bytes / b->walk.piece * b->walk.piece;
	b->ring.bytes = b->walk.piece;
	perf_hist_reset(b->rtt);
}

static inline uint64_t
next_piece(const struct perf_walk *w, uint64_t at)
{
	at += w->piece;
	return at == w->bytes ? 0 : at;
}

static double
baseline_gbps(uint64_t bytes, uint64_t cycles)
{
	return (double)bytes * 8 * (double)perf_tsc_hz() / (double)cycles / 1e9;
}

double
perf_baseline_copy(struct perf_baseline *b, uint64_t cycles)
{
	struct perf_walk *w = &b->walk;
	uint64_t start = rte_rdtsc(), now, pieces = 0;
	uint32_t i;

	do {
		for (i = 0; i < CLOCK_EVERY; i++) {
			memcpy(w->to + w->to_at, w->from + w->to_at, w->piece);
			w->to_at = next_piece(w, w->to_at);
		}
		pieces += CLOCK_EVERY;
		now = rte_rdtsc();
	} while (now - start < cycles);
	return baseline_gbps(pieces * w->piece, now - start);
}

/* --- ring copy --- */

/* Fills up to @max slots and hands them over together. */
static inline uint32_t
baseline_produce(struct perf_slots *r, struct perf_walk *w, uint32_t max)
{
	uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed), room, i;

	room = r->mask + 1 - (tail - r->head_seen);
	if (room < max) {
		/* acquire, pairs with the release in consume(): the slots have been read */
		r->head_seen = atomic_load_explicit(&r->head, memory_order_acquire);
		room = r->mask + 1 - (tail - r->head_seen);
	}
	max = karst_min_u32(max, room);
	for (i = 0; i < max; i++) {
		memcpy(r->slots + (size_t)((tail + i) & r->mask) * r->bytes, w->from + w->from_at,
			r->bytes);
		w->from_at = next_piece(w, w->from_at);
	}
	if (max > 0)
		/* release, pairs with the acquire in consume(): the slots are written */
		atomic_store_explicit(&r->tail, tail + max, memory_order_release);
	return max;
}

static inline uint32_t
baseline_consume(struct perf_slots *r, struct perf_walk *w, uint32_t max)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed), i;

	if (r->tail_seen - head < max)
		/* acquire, pairs with the release in produce() */
		r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
	max = karst_min_u32(max, r->tail_seen - head);
	for (i = 0; i < max; i++) {
		memcpy(w->to + w->to_at, r->slots + (size_t)((head + i) & r->mask) * r->bytes,
			r->bytes);
		w->to_at = next_piece(w, w->to_at);
	}
	if (max > 0)
		/* release, pairs with the acquire in produce() */
		atomic_store_explicit(&r->head, head + max, memory_order_release);
	return max;
}

double
perf_baseline_ring_copy(struct perf_baseline *b, uint64_t cycles, bool alone)
{
	uint64_t start = rte_rdtsc(), now, pieces = 0;

	/* each piece is copied to the same place as a message from there: --verify relies on it */
	b->walk.from_at = b->walk.to_at;
	do {
		uint32_t i;

		for (i = 0; i < CLOCK_EVERY / PERF_RING_BATCH; i++) {
			uint32_t n = baseline_produce(&b->ring, &b->walk, PERF_RING_BATCH);

			if (alone)
				baseline_consume(&b->ring, &b->walk, PERF_RING_BATCH);
			else if (n == 0)
				rte_pause();
			pieces += n;
		}
		now = rte_rdtsc();
	} while (now - start < cycles);
	return baseline_gbps(pieces * b->walk.piece, now - start);
}

void
perf_baseline_ring_copy_follow(struct perf_baseline *b)
{
	for (;;) {
		/* acquire: what was produced before the stop is seen */
		bool stop = atomic_load_explicit(&b->stop, memory_order_acquire) != 0;

		if (baseline_consume(&b->ring, &b->walk, PERF_RING_BATCH) > 0)
			continue;
		if (stop)
			return;
		rte_pause();
	}
}

/* --- ring rtt --- */

/* Writes a message of one cache line. */
static inline void
write_message(uint8_t *m, uint64_t n)
{
	uint64_t words[KARST_CACHE_LINE / 8] = {n, n, n, n, n, n, n, n};

	memcpy(m, words, sizeof(words));
}

static inline uint64_t
read_message(const uint8_t *m)
{
	uint64_t words[KARST_CACHE_LINE / 8], sum = 0;
	uint32_t i;

	memcpy(words, m, sizeof(words));
	for (i = 0; i < KARST_DIM(words); i++)
		sum ^= words[i];
	return sum;
}

/* Answers a message if there is one. */
static inline bool
baseline_echo(struct perf_baseline *b)
{
	void *m;

	if (rte_ring_dequeue(b->there, &m) != 0)
		return false;
	write_message(b->message[1], read_message(m) + 1);
	rte_ring_enqueue(b->back, b->message[1]);
	return true;
}

void
perf_baseline_rtt(struct perf_baseline *b, uint64_t cycles, bool alone)
{
	uint64_t start = rte_rdtsc(), now = start, n = 0, sum = 0;
	void *m;

	do {
		uint64_t sent = rte_rdtsc();

		write_message(b->message[0], n++);
		rte_ring_enqueue(b->there, b->message[0]);
		if (alone)
			baseline_echo(b);
		while (rte_ring_dequeue(b->back, &m) != 0)
			;
		sum += read_message(m);
		now = rte_rdtsc();
		perf_hist_add(b->rtt, now - sent);
	} while (now - start < cycles);
	/* keeps the compiler from removing the reads of the messages */
	__asm__ volatile("" : : "r"(sum));
}

void
perf_baseline_rtt_follow(struct perf_baseline *b)
{
	/* acquire: a message that was sent before the stop is seen */
	while (atomic_load_explicit(&b->stop, memory_order_acquire) == 0)
		baseline_echo(b);
	baseline_echo(b);
}
