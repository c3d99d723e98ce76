/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Baselines: what the machine can do without a transport.  They are measured between slices of
 * traffic, so that both run under the same conditions:
 *
 *   copy        one core: memcpy from the source places of the messages to their destination
 *               places, in pieces of the MTU, repeatedly
 *   ring copy   a bare ring of as many slots of an MTU as the port's ring: one lcore copies
 *               from the source into slots, the other from the slots to the destination;
 *               with one lcore it does both, some slots at a time
 *   ring rtt    a 64-byte message to the other lcore and back, through a pair of rte_rings as
 *               the net_ring ports use: written, handed over by pointer, read, answered
 *
 * The leader's thread calls the functions without _follow, the other thread those with it.
 */
#ifndef PERF_BASELINE_H
#define PERF_BASELINE_H

#include <stdatomic.h>

#include "hist.h"

struct rte_ring;

/** Slots that are handed over at once. */
#define PERF_RING_BATCH 8u

/** Both copies walk through the whole working set. */
struct perf_walk {
	const uint8_t *from;
	uint8_t *to;
	uint64_t bytes; /* of each */
	uint32_t piece;
	uint64_t from_at; /* next piece of the reader */
	uint64_t to_at;   /* next piece of the writer */
};

/** A single-producer, single-consumer ring of whole slots. */
struct perf_slots {
	_Atomic uint32_t tail karst_cache_aligned; /* producer: slots ever filled */
	uint32_t head_seen;
	_Atomic uint32_t head karst_cache_aligned; /* consumer: slots ever emptied */
	uint32_t tail_seen;
	uint8_t *slots karst_cache_aligned;
	uint32_t mask;
	uint32_t bytes; /* of a slot */
};

struct perf_baseline {
	struct perf_walk walk;
	struct perf_slots ring;
	struct rte_ring *there, *back; /* of ring rtt */
	struct perf_hist *rtt;         /* TSC cycles */
	uint8_t message[2][KARST_CACHE_LINE] karst_cache_aligned;
	_Atomic uint32_t stop; /* the follower returns when this is set and nothing is left */
};

/** -ENOMEM.  @ring_slots: a power of two. */
int perf_baseline_create(uint32_t ring_slots, struct perf_baseline *b);
void perf_baseline_destroy(struct perf_baseline *b);

/** Sets the memory for the next measurement. */
void perf_baseline_aim(
	struct perf_baseline *b, const void *from, void *to, uint64_t bytes, uint32_t piece);

/** Copies for @cycles.  @return Gb/s. */
double perf_baseline_copy(struct perf_baseline *b, uint64_t cycles);

/** @alone: there is no follower.  @return Gb/s. */
double perf_baseline_ring_copy(struct perf_baseline *b, uint64_t cycles, bool alone);
void perf_baseline_ring_copy_follow(struct perf_baseline *b);

/** Adds round trips to b->rtt. */
void perf_baseline_rtt(struct perf_baseline *b, uint64_t cycles, bool alone);
void perf_baseline_rtt_follow(struct perf_baseline *b);

#endif /* PERF_BASELINE_H */
