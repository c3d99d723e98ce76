/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst_alloc(): memory that the engine can map as it is.
 *
 *   up to half a slab   pages of a slab.  A slab is a range of the shared file as large as a huge
 *                       page, so that many small allocations need few mappings.
 *   more                a mapping of its own.  If it is large enough, it consists of free huge
 *                       pages of the machine, with a file for each allocation, because such files
 *                       cannot be sparse; otherwise it is in the shared file, with transparent huge
 *                       pages.
 *
 * All of it is zeroed and page aligned, and cannot be taken away from the engine (F_SEAL_SHRINK).
 *
 * A table by address describes each allocation.  karst_free() of any other address is an error that
 * would damage other memory, so it ends the program as free() does.
 */
#include "alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fork.h"
#include "karst.h"
#include "pages.h"
#include "sys.h"

#define SLAB_PAGES (CLI_HUGE / CLI_PAGE)
#define SLAB_MOST  (CLI_HUGE / 2)

/* Bitmaps of pages: taken by an allocation; used since the file provided them. */
struct slab {
	uint8_t *at;
	struct cli_block block;
	uint32_t free;
	bool inherited;
	uint64_t taken[SLAB_PAGES / 64];
	uint64_t used[SLAB_PAGES / 64];
	struct slab *next;
};

struct allocation {
	uint8_t *at; /* NULL: an empty entry of the table */
	uint64_t len;
	struct slab *slab; /* or a mapping of its own: */
	int fd;            /* file of huge pages; -1: in the shared file */
	bool inherited;
	struct cli_block block;
};

/* Process-wide, as the memory is; under cli_pages_lock(). */
static struct {
	struct slab *slabs;
	struct allocation *table; /* open addressing; the size is a power of two */
	uint32_t room, n;
	uint32_t nhuge;
} heap;

/* --- the table --- */

static uint32_t
slab_hash(const void *p)
{
	return (uint32_t)(((uintptr_t)p / CLI_PAGE) * 0x9e3779b97f4a7c15ull >> 32);
}

static struct allocation *
slab_find(const void *p)
{
	uint32_t i, mask = heap.room - 1;

	if (heap.room == 0)
		return NULL;
	for (i = slab_hash(p) & mask; heap.table[i].at != NULL; i = (i + 1) & mask)
		if (heap.table[i].at == p)
			return &heap.table[i];
	return NULL;
}

static void
slab_insert(const struct allocation *a)
{
	uint32_t i, mask = heap.room - 1;

	for (i = slab_hash(a->at) & mask; heap.table[i].at != NULL; i = (i + 1) & mask)
		;
	heap.table[i] = *a;
	heap.n++;
}

static bool
slab_table_grow(void)
{
	struct allocation *old = heap.table;
	uint32_t i, room = heap.room;

	if (2 * (heap.n + 1) <= room)
		return true;
	heap.table = calloc(room == 0 ? 64 : 2 * (size_t)room, sizeof(*old));
	if (heap.table == NULL) {
		heap.table = old;
		return false;
	}
	heap.room = room == 0 ? 64 : 2 * room;
	heap.n = 0;
	for (i = 0; i < room; i++)
		if (old[i].at != NULL)
			slab_insert(&old[i]);
	free(old);
	return true;
}

/* Closes the gap, so that entries behind it are still found. */
static void
slab_erase(struct allocation *a)
{
	uint32_t mask = heap.room - 1, gap = (uint32_t)(a - heap.table), i = gap;

	heap.n--;
	for (;;) {
		uint32_t want;

		i = (i + 1) & mask;
		if (heap.table[i].at == NULL)
			break;
		want = slab_hash(heap.table[i].at) & mask;
		if (((i - want) & mask) >= ((i - gap) & mask)) {
			heap.table[gap] = heap.table[i];
			gap = i;
		}
	}
	heap.table[gap].at = NULL;
}

/* --- slabs --- */

static bool
slab_bit(const uint64_t *map, uint32_t i)
{
	return map[i / 64] >> (i % 64) & 1;
}

static void
set_bits(uint64_t *map, uint32_t from, uint32_t n, bool to)
{
	for (; n > 0; from++, n--) {
		if (to)
			map[from / 64] |= 1ull << (from % 64);
		else
			map[from / 64] &= ~(1ull << (from % 64));
	}
}

/* @return the first of @n adjacent free pages; SLAB_PAGES: there are none. */
static uint32_t
find_run(const struct slab *s, uint32_t n)
{
	uint32_t i, run = 0;

	for (i = 0; i < SLAB_PAGES; i++) {
		run = slab_bit(s->taken, i) ? 0 : run + 1;
		if (run == n)
			return i + 1 - n;
	}
	return SLAB_PAGES;
}

static struct slab *
slab_new(void)
{
	struct slab *s = calloc(1, sizeof(*s));

	if (s == NULL || cli_pages_take(CLI_HUGE, 0, &s->block) != 0) {
		free(s);
		return NULL;
	}
	s->at = cli_pages_map(CLI_HUGE, 0, &s->block);
	if (s->at == NULL) {
		cli_pages_give(&s->block);
		free(s);
		return NULL;
	}
	s->free = SLAB_PAGES;
	s->next = heap.slabs;
	heap.slabs = s;
	return s;
}

static bool
take_pages(uint32_t n, struct allocation *a)
{
	struct slab *s;
	uint32_t at = SLAB_PAGES, i;

	for (s = heap.slabs; s != NULL; s = s->next) {
		if (s->free < n || s->inherited)
			continue;
		at = find_run(s, n);
		if (at != SLAB_PAGES)
			break;
	}
	if (s == NULL) {
		s = slab_new();
		if (s == NULL)
			return false;
		at = 0;
	}
	for (i = at; i < at + n; i++)
		if (slab_bit(s->used, i))
			memset(s->at + (size_t)i * CLI_PAGE, 0, CLI_PAGE);
	set_bits(s->taken, at, n, true);
	set_bits(s->used, at, n, true);
	s->free -= n;
	*a = (struct allocation){.at = s->at + (size_t)at * CLI_PAGE,
		.len = (uint64_t)n * CLI_PAGE,
		.slab = s,
		.fd = -1};
	return true;
}

static void
give_pages(const struct allocation *a)
{
	struct slab *s = a->slab, **pp;
	uint32_t n = (uint32_t)(a->len / CLI_PAGE);

	set_bits(s->taken, (uint32_t)((a->at - s->at) / CLI_PAGE), n, false);
	s->free += n;
	if (s->free < SLAB_PAGES)
		return;
	/* The last slab is kept, so that a program that repeatedly allocates and frees one buffer
	 * does not cause a mapping each time. */
	if (s == heap.slabs && s->next == NULL && !s->inherited)
		return;
	for (pp = &heap.slabs; *pp != s; pp = &(*pp)->next)
		;
	*pp = s->next;
	sys_munmap(s->at, CLI_HUGE);
	if (!s->inherited)
		cli_pages_give(&s->block);
	free(s);
}

/* --- mappings of their own --- */

static bool
take_huge(uint64_t size, struct allocation *a)
{
	uint64_t len = (size + CLI_HUGE - 1) & ~(uint64_t)(CLI_HUGE - 1);
	void *p = MAP_FAILED;
	int fd;

	if (size < CLI_HUGE)
		return false;
	fd = memfd_create("karst", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB);
	if (fd < 0)
		return false;
	/* mmap() reserves the pages: it fails if there are too few */
	if (ftruncate(fd, (off_t)len) == 0 &&
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		p = sys_mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		close(fd);
		return false;
	}
	heap.nhuge++;
	*a = (struct allocation){.at = p, .len = len, .fd = fd};
	return true;
}

static bool
take_mapping(uint64_t size, struct allocation *a)
{
	uint64_t len = (size + CLI_PAGE - 1) & ~(uint64_t)(CLI_PAGE - 1);
	struct cli_block block;
	void *p;

	if (cli_pages_take(len, 0, &block) != 0)
		return false;
	p = cli_pages_map(len, 0, &block);
	if (p == NULL) {
		cli_pages_give(&block);
		return false;
	}
	*a = (struct allocation){.at = p, .len = len, .fd = -1, .block = block};
	return true;
}

static void
give_mapping(const struct allocation *a)
{
	sys_munmap(a->at, a->len);
	if (a->fd >= 0) {
		close(a->fd);
		heap.nhuge--;
	} else if (!a->inherited) {
		cli_pages_give(&a->block);
	}
}

/* --- the calls --- */

static void *
slab_alloc(size_t size)
{
	struct allocation a;
	bool ok;

	if (size > UINT64_MAX / 4 || !slab_table_grow())
		return NULL;
	if (size <= SLAB_MOST)
		ok = take_pages((uint32_t)((size + CLI_PAGE - 1) / CLI_PAGE + (size == 0)), &a);
	else
		ok = take_huge(size, &a) || take_mapping(size, &a);
	if (!ok)
		return NULL;
	slab_insert(&a);
	return a.at;
}

void *
karst_alloc(size_t size)
{
	void *p = NULL;

	if (cli_fork_init() == 0) {
		cli_pages_lock();
		p = slab_alloc(size);
		cli_pages_unlock();
	}
	if (p == NULL)
		errno = ENOMEM;
	return p;
}

void
karst_free(void *p)
{
	struct allocation *a, copy;

	if (p == NULL)
		return;
	cli_pages_lock();
	a = slab_find(p);
	if (a == NULL) {
		fprintf(stderr,
			"karst_free(%p): not from karst_alloc(), or freed already; this program "
			"ends here\n",
			p);
		abort();
	}
	copy = *a;
	slab_erase(a);
	if (copy.slab != NULL)
		give_pages(&copy);
	else
		give_mapping(&copy);
	cli_pages_unlock();
}

int
cli_alloc_huge(uint64_t addr, uint64_t *start)
{
	uint32_t i;

	/* the loop is short: each entry has at least one of the machine's huge pages */
	for (i = 0; heap.nhuge > 0 && i < heap.room; i++) {
		const struct allocation *a = &heap.table[i];

		if (a->at == NULL || a->fd < 0 || addr - (uintptr_t)a->at >= a->len)
			continue;
		*start = (uintptr_t)a->at;
		return a->fd;
	}
	return -1;
}

void
cli_alloc_inherit(void)
{
	struct slab *s;
	uint32_t i;

	for (s = heap.slabs; s != NULL; s = s->next)
		s->inherited = true;
	for (i = 0; i < heap.room; i++)
		heap.table[i].inherited = true;
}
