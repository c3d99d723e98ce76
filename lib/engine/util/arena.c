/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "arena.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mman.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA_PAGE_BYTES 4096ul
#define HUGE_BYTES       (2ul << 20)
#define CHUNK_MIN_BYTES  (2ul << 20)
#define CHUNK_MAX_BYTES  (64ul << 20)
#define SMALL_MAX        4096u /* largest size of the classes in steps of a cache line */
#define SMALL_CLASSES    (SMALL_MAX / KARST_CACHE_LINE)
#define STEPS            8u /* classes for each doubling above that */

struct arena_chunk {
	struct arena_chunk *next;
	uint8_t *map;
	size_t bytes;
	uint64_t used;            /* of files: bytes that are allocated */
	struct arena_blocks free; /* of files: its free blocks, of any class */
	size_t small;             /* of files: no huge pages are created any more below this
				   * offset */
	int fd;                   /* -1: private memory */
	uint32_t number;
	bool unsealed; /* a file that has to be sealed */
	bool fresh;    /* of files: it has never been used */
	bool stale;    /* of files: it has been used, and was not zeroed since */
};

/* A free block; or, on the spare list, an unused record. */
struct arena_block {
	LIST_ENTRY(arena_block) next;     /* of its class, or spare */
	LIST_ENTRY(arena_block) of_chunk; /* in files */
	uint8_t *p;
};

#define SLAB_BLOCKS 255u

struct arena_slab {
	struct arena_slab *next;
	struct arena_block block[SLAB_BLOCKS];
};

/* The class of @size and, in *@rounded, the size of its blocks. */
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

/* --- chunks --- */

/* Reserves aligned addresses without memory. */
static uint8_t *
arena_reserve(size_t bytes)
{
	uint8_t *p, *at;
	size_t lead;

	p = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	at = (uint8_t *)(((uintptr_t)p + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
	lead = (size_t)(at - p);
	if (lead > 0)
		munmap(p, lead);
	munmap(at + bytes, HUGE_BYTES - lead);
	return at;
}

/* Allocates huge pages from the system's pool if it has enough, else memory that may become
 * huge. */
static uint8_t *
map_private(size_t bytes)
{
	uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);

	if (p != MAP_FAILED)
		return p;
	p = arena_reserve(bytes);
	if (p != NULL)
		madvise(p, bytes, MADV_HUGEPAGE); /* a hint */
	return p;
}

/*
 * Does not use the pool of huge pages: a process that has the file may punch a hole into it before
 * it is sealed against that, and if the pool were empty at the engine's next access there, the
 * engine would be killed.
 */
static int
make_file(const char *name, size_t bytes, int seals)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)bytes) == 0 &&
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | seals) == 0)
		return fd;
	close(fd);
	return -1;
}

static uint8_t *
map_file(int fd, size_t bytes)
{
	uint8_t *at = arena_reserve(bytes);

	if (at == NULL)
		return NULL;
	if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		munmap(at, bytes);
		return NULL;
	}
	madvise(at, bytes, MADV_HUGEPAGE); /* a hint */
	madvise(at, bytes, MADV_DONTDUMP); /* it belongs to the program as much as to the engine */
	return at;
}

static bool
is_over_limit(const struct arena *a, size_t bytes)
{
	return a->file != NULL && a->max_mapped != 0 && bytes > a->max_mapped - a->mapped;
}

/* Charges a memory file of @bytes and its descriptor to the user. */
static bool
arena_charge(struct arena *a, size_t bytes)
{
	a->share_refused = true;
	if (!eng_share_take(a->share, ENG_SHARE_RING_BYTES, bytes))
		return false;
	if (!eng_share_take(a->share, ENG_SHARE_DESCRIPTORS, 1)) {
		eng_share_give(a->share, ENG_SHARE_RING_BYTES, bytes);
		return false;
	}
	a->share_refused = false;
	return true;
}

static void
arena_discharge(const struct arena *a, size_t bytes)
{
	eng_share_give(a->share, ENG_SHARE_RING_BYTES, bytes);
	eng_share_give(a->share, ENG_SHARE_DESCRIPTORS, 1);
}

/* Creates a chunk of @bytes, a multiple of HUGE_BYTES, and links it into the arena. */
static struct arena_chunk *
chunk_map(struct arena *a, size_t bytes)
{
	struct arena_chunk *c;

	if (is_over_limit(a, bytes) || !arena_charge(a, bytes))
		return NULL;
	c = calloc(1, sizeof(*c));
	if (c == NULL) {
		arena_discharge(a, bytes);
		return NULL;
	}
	c->bytes = bytes;
	c->fd = -1;
	if (a->file == NULL) {
		c->map = map_private(bytes);
	} else {
		c->fd = make_file(a->file, bytes, a->seal ? 0 : F_SEAL_SEAL);
		c->map = c->fd < 0 ? NULL : map_file(c->fd, bytes);
		c->number = a->next_number;
		c->unsealed = a->seal;
	}
	if (c->map == NULL) {
		if (c->fd >= 0)
			close(c->fd);
		free(c);
		arena_discharge(a, bytes);
		return NULL;
	}
	a->next_number++;
	c->next = a->chunks;
	a->chunks = c;
	a->mapped += bytes;
	return c;
}

/* @kept: the other process may keep the pages, so they stay charged to its user. */
static void
chunk_unmap(struct arena *a, struct arena_chunk **at, bool kept)
{
	struct arena_chunk *c = *at;

	*at = c->next;
	a->mapped -= c->bytes;
	a->left += kept ? c->bytes : 0;
	arena_discharge(a, kept ? 0 : c->bytes);
	munmap(c->map, c->bytes);
	if (c->fd >= 0)
		close(c->fd);
	free(c);
}

/* A file of at least @bytes that was created earlier and could not be used then; NULL: none. */
static struct arena_chunk *
take_fresh(struct arena *a, size_t bytes)
{
	struct arena_chunk *c, *best = NULL;

	for (c = a->sealed_only ? a->chunks : NULL; c != NULL; c = c->next)
		if (c->fresh && !c->unsealed && c->bytes >= bytes &&
			(best == NULL || c->bytes < best->bytes))
			best = c;
	if (best != NULL)
		best->fresh = false;
	return best;
}

/* Creates a chunk that can be used.  NULL also if it has to be sealed first. */
static struct arena_chunk *
chunk_get(struct arena *a, size_t bytes)
{
	struct arena_chunk *c;

	if (a->sealed_only && eng_arena_unsealed(a, NULL) == 0)
		return NULL;
	c = chunk_map(a, bytes);
	if (c == NULL || !a->sealed_only)
		return c;
	c->fresh = true;
	return NULL;
}

static struct arena_chunk **
chunk_at(struct arena *a, const uint8_t *p)
{
	struct arena_chunk **at = &a->chunks;

	while (p < (*at)->map || p >= (*at)->map + (*at)->bytes)
		at = &(*at)->next;
	return at;
}

/* --- records: as many as blocks, so that freeing needs no memory --- */

static bool
records_for_one_more(struct arena *a)
{
	struct arena_slab *s;
	unsigned int i;

	if (a->nrecords > a->nblocks)
		return true;
	s = malloc(sizeof(*s));
	if (s == NULL)
		return false;
	s->next = a->slabs;
	a->slabs = s;
	for (i = 0; i < SLAB_BLOCKS; i++)
		LIST_INSERT_HEAD(&a->spare, &s->block[i], next);
	a->nrecords += SLAB_BLOCKS;
	return true;
}

/* @c: its chunk, for files. */
static void
block_push(struct arena *a, struct arena_chunk *c, unsigned int class, uint8_t *p)
{
	struct arena_block *b = LIST_FIRST(&a->spare);

	LIST_REMOVE(b, next);
	b->p = p;
	LIST_INSERT_HEAD(&a->free[class], b, next);
	if (c != NULL)
		LIST_INSERT_HEAD(&c->free, b, of_chunk);
}

/* The block of @b is not free any more. */
static void
block_drop(struct arena *a, struct arena_block *b)
{
	LIST_REMOVE(b, next);
	if (a->file != NULL)
		LIST_REMOVE(b, of_chunk);
	LIST_INSERT_HEAD(&a->spare, b, next);
}

/* A single block would keep a chunk from serving other sizes, which the rest of it may suit. */
static bool
is_better_left(struct arena *a, const struct arena_block *b)
{
	return a->tight && (*chunk_at(a, b->p))->used == 0;
}

static uint8_t *
block_pop(struct arena *a, unsigned int class)
{
	struct arena_block *b = LIST_FIRST(&a->free[class]);

	if (b == NULL || is_better_left(a, b))
		return NULL;
	block_drop(a, b);
	return b->p;
}

/* --- allocation --- */

static void
arena_init(struct arena *a, const char *file, uint64_t max_bytes)
{
	memset(a, 0, sizeof(*a));
	a->chunk_bytes = CHUNK_MIN_BYTES;
	a->file = file;
	a->max_mapped = (max_bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
}

void
eng_arena_init(struct arena *a)
{
	arena_init(a, NULL, 0);
}

void
eng_arena_seal_files(struct arena *a)
{
	a->seal = true;
}

void
eng_arena_shared(struct arena *a)
{
	a->sealed_only = a->seal;
}

uint64_t
eng_arena_bytes(size_t size)
{
	size_t rounded;

	class_of(size, &rounded);
	return rounded;
}

void
eng_arena_init_files(struct arena *a, const char *name, uint64_t max_bytes)
{
	arena_init(a, name, max_bytes);
}

static bool
is_large(size_t rounded)
{
	return rounded > CHUNK_MAX_BYTES / 4;
}

/* Creates a chunk for several blocks, of @rounded bytes or others. */
static struct arena_chunk *
chunk_of_many(struct arena *a, size_t rounded)
{
	uint64_t mapped = a->mapped;
	struct arena_chunk *c;

	while (a->chunk_bytes < rounded)
		a->chunk_bytes *= 2;
	/* near the limit, a smaller chunk is good enough */
	while ((is_over_limit(a, a->chunk_bytes) ||
		       !eng_share_fits(a->share, ENG_SHARE_RING_BYTES, a->chunk_bytes)) &&
		a->chunk_bytes / 2 >= rounded && a->chunk_bytes > CHUNK_MIN_BYTES)
		a->chunk_bytes /= 2;
	c = chunk_get(a, a->chunk_bytes);
	if (a->mapped != mapped && a->chunk_bytes < CHUNK_MAX_BYTES)
		a->chunk_bytes *= 2;
	return c;
}

/* Cuts @rounded bytes off the newest chunk, or off a new one. */
static uint8_t *
block_cut(struct arena *a, size_t rounded)
{
	struct arena_chunk *c;
	uint8_t *p;

	if ((size_t)(a->end - a->next) < rounded) {
		c = take_fresh(a, rounded);
		if (c == NULL)
			c = chunk_of_many(a, rounded);
		if (c == NULL)
			return NULL;
		a->next = c->map;
		a->end = c->map + c->bytes;
	}
	p = a->next;
	a->next += rounded;
	return p;
}

/* Creates a chunk for one block. */
static uint8_t *
own_chunk(struct arena *a, size_t rounded)
{
	struct arena_chunk *c = take_fresh(a, rounded);

	if (c == NULL)
		c = chunk_get(a, (rounded + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
	return c == NULL ? NULL : c->map;
}

/* Zeros a chunk of a file that is not sealed: its pages are returned to the system. */
static void
chunk_punch(struct arena_chunk *c)
{
	c->small = 0;
	madvise(c->map, c->bytes, MADV_HUGEPAGE);
	if (fallocate(c->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)c->bytes) != 0)
		memset(c->map, 0, c->bytes);
}

/* Zeros a large block of a file, which has a chunk for itself. */
static void
block_punch(struct arena *a, uint8_t *p)
{
	chunk_punch(*chunk_at(a, p));
}

/*
 * Creates the pages of a block, in memory and in the page tables of this process, so that an lcore
 * does not have to: a huge page may take it milliseconds.
 */
static void
make_pages(struct arena *a, uint8_t *p, size_t bytes)
{
	struct arena_chunk *c = *chunk_at(a, p);
	uint8_t *at = p;
	size_t end;

	for (; at < p + bytes;
		at = (uint8_t *)(((uintptr_t)at & ~(ARENA_PAGE_BYTES - 1)) + ARENA_PAGE_BYTES))
		__atomic_fetch_or(at, 0, __ATOMIC_RELAXED);
	end = ((size_t)(p + bytes - c->map) + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
	if (end <= c->small)
		return;
	madvise(c->map + c->small, end - c->small, MADV_NOHUGEPAGE);
	c->small = end;
}

/* A block that has not been used before: zero. */
static uint8_t *
chunk_fresh(struct arena *a, size_t rounded)
{
	uint8_t *p;

	if (is_large(rounded) && a->file == NULL)
		return own_chunk(a, rounded);
	if (!records_for_one_more(a))
		return NULL;
	p = is_large(rounded) ? own_chunk(a, rounded) : block_cut(a, rounded);
	a->nblocks += p != NULL;
	return p;
}

/* --- near the limit: free memory of other sizes --- */

/* Forgets the blocks of @c, all of which are free.  It visits no other blocks: the program may keep
 * as many of those as it likes, and cause one chunk to be cleared again and again. */
static void
forget_blocks(struct arena *a, struct arena_chunk *c)
{
	struct arena_block *b;

	while ((b = LIST_FIRST(&c->free)) != NULL) {
		block_drop(a, b);
		a->nblocks--;
	}
	if (a->next > c->map && a->next <= c->map + c->bytes)
		a->next = a->end = NULL;
}

/* Clears one chunk without used blocks that is large enough.  The other process has it mapped. */
static bool
clear_one(struct arena *a, size_t rounded)
{
	struct arena_chunk *c = a->chunks;

	while (c != NULL && (c->used != 0 || c->unsealed || c->bytes < rounded))
		c = c->next;
	if (c == NULL)
		return false;
	c->fresh = false;
	forget_blocks(a, c);
	/* a sealed chunk keeps its pages: each block is zeroed when it is made ready */
	if (a->seal)
		c->stale = true;
	else
		chunk_punch(c);
	a->next = c->map;
	a->end = c->map + c->bytes;
	return true;
}

/* Frees all chunks without used blocks. */
static void
unmap_unused(struct arena *a)
{
	struct arena_chunk **at = &a->chunks;

	while (*at != NULL) {
		if ((*at)->used != 0 || (*at)->unsealed) {
			at = &(*at)->next;
			continue;
		}
		forget_blocks(a, *at);
		/* the other process may keep the file, and its pages, if they cannot be punched */
		if (!a->seal)
			chunk_punch(*at);
		chunk_unmap(a, at, a->seal);
	}
}

static uint8_t *
from_other_sizes(struct arena *a, size_t rounded)
{
	uint8_t *p;

	a->tight = true;
	if (!clear_one(a, rounded)) {
		unmap_unused(a);
		return chunk_fresh(a, rounded);
	}
	if (!records_for_one_more(a))
		return NULL;
	p = a->next;
	/* a large block has its chunk for itself */
	a->next = is_large(rounded) ? a->end : p + rounded;
	a->nblocks++;
	return p;
}

void *
eng_arena_take(struct arena *a, size_t size, bool *stale)
{
	unsigned int class;
	size_t rounded;
	uint8_t *p;

	*stale = false;
	if (size > SIZE_MAX / 4)
		return NULL;
	class = class_of(size, &rounded);
	if (class >= ARENA_CLASSES) {
		p = a->file == NULL ? own_chunk(a, rounded) : NULL;
	} else {
		p = block_pop(a, class);
		*stale = p != NULL;
		if (p == NULL)
			p = chunk_fresh(a, rounded);
		/* other free memory, unless a new chunk only has to be sealed */
		if (p == NULL && a->file != NULL && eng_arena_unsealed(a, NULL) != 0)
			p = from_other_sizes(a, rounded);
	}
	if (p == NULL)
		return NULL;
	a->used += rounded;
	if (a->file != NULL) {
		struct arena_chunk *c = *chunk_at(a, p);

		c->used += rounded;
		*stale |= c->stale;
	}
	return p;
}

void
eng_arena_ready(struct arena *a, void *p, size_t size, bool stale)
{
	size_t rounded;

	class_of(size, &rounded);
	if (stale && is_large(rounded) && !a->seal)
		block_punch(a, p);
	else if (stale)
		memset(p, 0, rounded);
	if (a->file != NULL)
		make_pages(a, p, rounded);
}

void *
eng_arena_alloc(struct arena *a, size_t size)
{
	bool stale;
	void *p = eng_arena_take(a, size, &stale);

	if (p != NULL)
		eng_arena_ready(a, p, size, stale);
	return p;
}

void
eng_arena_free(struct arena *a, void *p, size_t size)
{
	struct arena_chunk *c = NULL;
	unsigned int class;
	size_t rounded;

	if (p == NULL)
		return;
	class = class_of(size, &rounded);
	a->used -= rounded;
	if (a->file != NULL) {
		c = *chunk_at(a, p);
		c->used -= rounded;
	}
	if (is_large(rounded) && a->file == NULL) {
		chunk_unmap(a, chunk_at(a, p), false);
		return;
	}
	if (is_large(rounded) && !a->seal)
		block_punch(a, p);
	block_push(a, c, class, p);
}

/* --- memory files --- */

int
eng_arena_find(const struct arena *a, const void *p, uint32_t *number, uint64_t *off)
{
	const struct arena_chunk *c;
	const uint8_t *at = p;

	for (c = a->chunks; c != NULL; c = c->next) {
		if (c->fd >= 0 && at >= c->map && at < c->map + c->bytes) {
			*number = c->number;
			*off = (uint64_t)(at - c->map);
			return 0;
		}
	}
	return -EINVAL;
}

int
eng_arena_file(const struct arena *a, uint32_t number, int *fd, uint64_t *bytes)
{
	const struct arena_chunk *c;

	for (c = a->chunks; c != NULL; c = c->next) {
		if (c->fd >= 0 && c->number == number) {
			*fd = c->fd;
			*bytes = c->bytes;
			return 0;
		}
	}
	return -EINVAL;
}

int
eng_arena_unsealed(const struct arena *a, uint32_t *number)
{
	const struct arena_chunk *c;

	for (c = a->chunks; c != NULL; c = c->next) {
		if (!c->unsealed)
			continue;
		if (number != NULL)
			*number = c->number;
		return 0;
	}
	return -ENOENT;
}

/* Bytes of a chunk, from its start, that have been allocated at some time. */
static size_t
handed_out(const struct arena *a, const struct arena_chunk *c)
{
	uintptr_t n = (uintptr_t)a->next - (uintptr_t)c->map;

	return n <= c->bytes ? n : c->bytes;
}

void
eng_arena_sealed(struct arena *a, uint32_t number)
{
	struct arena_chunk *c;

	for (c = a->chunks; c != NULL && c->number != number; c = c->next)
		;
	if (c == NULL || !c->unsealed)
		return;
	c->unsealed = false;
	/* pages that existed before the other process had the file may have been punched since */
	if (c->used != 0)
		make_pages(a, c->map, handed_out(a, c));
}

void
eng_arena_fini(struct arena *a)
{
	struct arena_slab *s;

	while (a->chunks != NULL)
		chunk_unmap(a, &a->chunks, false);
	eng_share_give(a->share, ENG_SHARE_RING_BYTES, a->left);
	while ((s = a->slabs) != NULL) {
		a->slabs = s->next;
		free(s);
	}
	arena_init(a, a->file, a->max_mapped);
}
