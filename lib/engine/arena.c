/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "arena.h"

#include <linux/mman.h>
#include <sys/mman.h>

#define HUGE_BYTES      (2ul << 20)
#define CHUNK_MIN_BYTES (2ul << 20)
#define CHUNK_MAX_BYTES (64ul << 20)
#define SMALL_MAX       4096u /* largest size of the classes by lines */
#define SMALL_CLASSES   (SMALL_MAX / KARST_CACHE_LINE)
#define STEPS           8u /* classes to a doubling above that */

/* At the start of each mapping, in a line of its own. */
struct arena_chunk {
	struct arena_chunk *next;
	struct arena_chunk **pprev;
	void *map;
	size_t bytes;
} karst_cache_aligned;

struct arena_free {
	struct arena_free *next;
};

/* The class of @size and, in *@rounded, the bytes that its members have. */
static unsigned int
class_of(size_t size, size_t *rounded)
{
	unsigned int shift, step;

	if (size <= SMALL_MAX) {
		unsigned int lines =
			(unsigned int)((size + KARST_CACHE_LINE - 1) / KARST_CACHE_LINE);

		lines += lines == 0;
		*rounded = (size_t)lines * KARST_CACHE_LINE;
		return lines - 1;
	}
	/* 2^shift < size <= 2^(shift+1), in steps of 2^shift / STEPS */
	shift = 63 - (unsigned int)__builtin_clzll(size - 1);
	step = (unsigned int)((size - 1 - (1ul << shift)) / ((1ul << shift) / STEPS));
	*rounded = (1ul << shift) + (step + 1) * ((1ul << shift) / STEPS);
	return SMALL_CLASSES + (shift - 12) * STEPS + step;
}

/* Huge pages from the system's pool if it has enough, else memory that may become huge. */
static void *
map_bytes(size_t bytes)
{
	const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	uint8_t *p, *at;
	size_t lead;

	p = mmap(NULL, bytes, prot, flags | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
	if (p != MAP_FAILED)
		return p;
	p = mmap(NULL, bytes + HUGE_BYTES, prot, flags | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	at = (uint8_t *)(((uintptr_t)p + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
	lead = (size_t)(at - p);
	if (lead > 0)
		munmap(p, lead);
	munmap(at + bytes, HUGE_BYTES - lead);
	madvise(at, bytes, MADV_HUGEPAGE); /* a wish */
	return at;
}

/* A mapping with room for @need bytes behind its header, linked into the arena. */
static struct arena_chunk *
chunk_map(struct arena *a, size_t need)
{
	struct arena_chunk *c;
	size_t bytes = (need + sizeof(*c) + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);

	c = map_bytes(bytes);
	if (c == NULL)
		return NULL;
	c->map = c;
	c->bytes = bytes;
	c->next = a->chunks;
	c->pprev = &a->chunks;
	if (c->next != NULL)
		c->next->pprev = &c->next;
	a->chunks = c;
	a->mapped += bytes;
	return c;
}

static void
chunk_unmap(struct arena *a, struct arena_chunk *c)
{
	*c->pprev = c->next;
	if (c->next != NULL)
		c->next->pprev = c->pprev;
	a->mapped -= c->bytes;
	munmap(c->map, c->bytes);
}

void
eng_arena_init(struct arena *a)
{
	memset(a, 0, sizeof(*a));
	a->chunk_bytes = CHUNK_MIN_BYTES;
}

static bool
is_large(size_t rounded)
{
	return rounded > CHUNK_MAX_BYTES / 4;
}

/* Cuts @rounded bytes off the newest chunk, or off a new one. */
static void *
cut(struct arena *a, size_t rounded)
{
	struct arena_chunk *c;
	void *p;

	if ((size_t)(a->end - a->next) < rounded) {
		while (a->chunk_bytes - sizeof(*c) < rounded)
			a->chunk_bytes *= 2;
		c = chunk_map(a, a->chunk_bytes - sizeof(*c));
		if (c == NULL)
			return NULL;
		a->next = (uint8_t *)(c + 1);
		a->end = (uint8_t *)c + c->bytes;
		if (a->chunk_bytes < CHUNK_MAX_BYTES)
			a->chunk_bytes *= 2;
	}
	p = a->next;
	a->next += rounded;
	return p;
}

void *
eng_arena_alloc(struct arena *a, size_t size)
{
	struct arena_chunk *c;
	struct arena_free *f;
	unsigned int class;
	size_t rounded;
	void *p;

	if (size > SIZE_MAX / 4)
		return NULL;
	class = class_of(size, &rounded);
	if (is_large(rounded)) {
		c = chunk_map(a, rounded);
		p = c == NULL ? NULL : c + 1;
	} else if (a->free[class] != NULL) {
		f = a->free[class];
		a->free[class] = f->next;
		p = memset(f, 0, rounded);
	} else {
		p = cut(a, rounded); /* fresh from the system: zero */
	}
	if (p != NULL)
		a->used += rounded;
	return p;
}

void
eng_arena_free(struct arena *a, void *p, size_t size)
{
	struct arena_free *f = p;
	unsigned int class;
	size_t rounded;

	if (p == NULL)
		return;
	class = class_of(size, &rounded);
	a->used -= rounded;
	if (is_large(rounded)) {
		chunk_unmap(a, (struct arena_chunk *)p - 1);
		return;
	}
	f->next = a->free[class];
	a->free[class] = f;
}

void
eng_arena_fini(struct arena *a)
{
	while (a->chunks != NULL)
		chunk_unmap(a, a->chunks);
	eng_arena_init(a);
}
