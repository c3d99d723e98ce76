/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory of an engine's objects and rings: dense, cache-line aligned, on huge pages if there
 * are any.  Control path only, one thread at a time.
 *
 * Allocations are rounded up to a size class (multiples of 64 bytes up to 4 KiB, then eight steps
 * to each doubling) and cut off the end of a chunk of some MiB, so that objects of one kind that
 * are created one after another are neighbours.  What is freed goes to its class's list and is
 * used again, last in, first out.  What is larger than a quarter of a chunk has a mapping of its
 * own.
 */
#ifndef ENGINE_ARENA_H
#define ENGINE_ARENA_H

#include "karst_base.h"

#define ARENA_CLASSES 192

struct arena_chunk;
struct arena_free;

struct arena {
	struct arena_chunk *chunks;
	uint8_t *next; /* unused rest of the newest chunk */
	uint8_t *end;
	size_t chunk_bytes; /* of the next chunk: they grow */
	uint64_t mapped;    /* bytes taken from the system */
	uint64_t used;      /* bytes handed out, rounded up */
	struct arena_free *free[ARENA_CLASSES];
};

void eng_arena_init(struct arena *a);

/** @return @size zeroed bytes, cache-line aligned; NULL: no memory. */
void *eng_arena_alloc(struct arena *a, size_t size);

/** Gives back what eng_arena_alloc() with the same @size returned; NULL is ignored. */
void eng_arena_free(struct arena *a, void *p, size_t size);

/** Gives everything back to the system. */
void eng_arena_fini(struct arena *a);

#endif /* ENGINE_ARENA_H */
