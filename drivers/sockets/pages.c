/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Control pages and rings that this process has mapped.  The service gives each page a number.  It
 * uses the number again for another connection of this process when it knows that the previous
 * connection does not touch the page any more; the next request to open a connection tells it.
 *
 * Rings have numbers, too, and are released with the pages: a connection that does not touch its
 * page any more does not touch its rings either.  Rings that the service does not keep are
 * unmapped: between two programs those of a stream that was not short, and after use by RDMA those
 * beyond a limit.  The service may not keep others, and later gives their number to other rings.
 *
 * The numbers are valid for one connection to the service.  When that has ended, and in a child,
 * they mean nothing any more (generation).  Free pages and rings are unmapped then; those in use
 * are unmapped by their connection.
 */
#include "ks.h"

#include <sys/mman.h>

enum page_state {
	PAGE_NONE,
	PAGE_USED,
	PAGE_FREE, /* the service has not been told yet */
	PAGE_TOLD,
};

static struct {
	pthread_mutex_t lock;
	uint32_t generation;
	struct karst_sock_page *mem[KARST_SOCK_KEPT];
	uint8_t state[KARST_SOCK_KEPT]; /* enum page_state */
	uint32_t free[KARST_SOCK_KEPT], nfree;
	struct kept_rings {
		void *map;
		uint32_t buffer;
		bool used;
		bool whole; /* all of its pages are allocated, and it is not used */
	} rings[KARST_SOCK_KEPT];
	uint32_t nwhole;
	_Atomic uint32_t forks;
} pages = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The service has touched the page, so it is allocated already. */
static struct karst_sock_page *
map_page(int fd)
{
	void *mem = mmap(
		NULL, KARST_SOCK_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);

	return mem != MAP_FAILED ? mem : NULL;
}

uint32_t
ks_pages_report(struct karst_sock_msg *msg)
{
	uint32_t n, i, generation;

	ks_lock(&pages.lock);
	n = karst_min_u32(pages.nfree, KARST_SOCK_DATA / sizeof(n));
	for (i = 0; i < n; i++) {
		uint32_t number = pages.free[--pages.nfree];

		memcpy(msg->data + i * sizeof(number), &number, sizeof(number));
		pages.state[(number & ~KARST_SOCK_SHARED) - 1] = PAGE_TOLD;
	}
	msg->len = n * (uint32_t)sizeof(n);
	generation = pages.generation;
	ks_unlock(&pages.lock);
	return generation;
}

static struct karst_sock_page *
kept_page(uint32_t number)
{
	if (pages.state[number - 1] != PAGE_TOLD)
		return NULL;
	pages.state[number - 1] = PAGE_USED;
	return pages.mem[number - 1];
}

static struct karst_sock_page *
new_page(uint32_t *number, int fd)
{
	struct karst_sock_page *mem = map_page(fd);
	uint32_t i = *number - 1;

	if (mem == NULL || *number == 0)
		return mem;
	if (pages.state[i] == PAGE_USED || pages.state[i] == PAGE_FREE) {
		*number = 0;
		return mem;
	}
	if (pages.state[i] == PAGE_TOLD) /* the service did not keep the old one */
		munmap(pages.mem[i], KARST_SOCK_PAGE);
	pages.state[i] = PAGE_USED;
	pages.mem[i] = mem;
	return mem;
}

struct karst_sock_page *
ks_page_get(uint32_t *number, uint32_t generation, bool kept, int fd)
{
	struct karst_sock_page *mem = NULL;

	ks_lock(&pages.lock);
	if (*number > KARST_SOCK_KEPT || generation != pages.generation)
		*number = 0;
	if (!kept)
		mem = new_page(number, fd);
	else if (*number != 0)
		mem = kept_page(*number);
	ks_unlock(&pages.lock);
	return mem;
}

void
ks_page_put(struct karst_sock_page *mem, uint32_t number, uint32_t generation, bool shared)
{
	bool keep;

	ks_lock(&pages.lock);
	keep = number != 0 && generation == pages.generation;
	if (keep) {
		pages.state[number - 1] = PAGE_FREE;
		pages.free[pages.nfree++] = number | (shared ? KARST_SOCK_SHARED : 0);
	}
	ks_unlock(&pages.lock);
	if (!keep)
		munmap(mem, KARST_SOCK_PAGE);
}

/* --- rings --- */

static void
set_whole(struct kept_rings *r, bool whole)
{
	pages.nwhole = pages.nwhole + whole - r->whole;
	r->whole = whole;
}

static void
unmap_rings(struct kept_rings *r)
{
	set_whole(r, false);
	munmap(r->map, karst_sock_bytes(r->buffer));
}

/* Called under the lock.  NULL: no rings can have this number. */
static struct kept_rings *
rings_of(uint32_t number, uint32_t generation)
{
	return number == 0 || number > KARST_SOCK_KEPT || generation != pages.generation
		? NULL
		: &pages.rings[number - 1];
}

void *
ks_rings_get(uint32_t number, uint32_t generation)
{
	struct kept_rings *r;
	void *map = NULL;

	ks_lock(&pages.lock);
	r = rings_of(number, generation);
	if (r != NULL && r->map != NULL && !r->used) {
		r->used = true;
		set_whole(r, false);
		map = r->map;
	}
	ks_unlock(&pages.lock);
	return map;
}

bool
ks_rings_keep(uint32_t number, uint32_t generation, void *map, uint32_t buffer)
{
	struct kept_rings *r;
	bool keep;

	ks_lock(&pages.lock);
	r = rings_of(number, generation);
	keep = r != NULL && !r->used;
	if (keep) {
		if (r->map != NULL) /* the service did not keep the old ones */
			unmap_rings(r);
		*r = (struct kept_rings){.map = map, .buffer = buffer, .used = true};
	}
	ks_unlock(&pages.lock);
	return keep;
}

void
ks_rings_put(uint32_t number, uint32_t generation, void *map, uint32_t buffer, enum ks_keep how)
{
	struct kept_rings *r;
	bool keep = how != KS_KEEP_NOT;

	ks_lock(&pages.lock);
	r = rings_of(number, generation);
	if (r == NULL || (how == KS_KEEP_WHOLE && pages.nwhole >= karst_sock_spares(buffer)))
		keep = false;
	if (keep) {
		r->used = false;
		set_whole(r, how == KS_KEEP_WHOLE);
	} else if (r != NULL) {
		*r = (struct kept_rings){0};
	}
	ks_unlock(&pages.lock);
	if (!keep)
		munmap(map, karst_sock_bytes(buffer));
}

/* --- the end of a generation --- */

uint32_t
ks_forks(void)
{
	return atomic_load(&pages.forks);
}

void
ks_note_fork(void)
{
	atomic_fetch_add(&pages.forks, 1);
}

void
ks_pages_forget(void)
{
	uint32_t i;

	ks_lock(&pages.lock);
	for (i = 0; i < KARST_SOCK_KEPT; i++) {
		if (pages.state[i] == PAGE_FREE || pages.state[i] == PAGE_TOLD)
			munmap(pages.mem[i], KARST_SOCK_PAGE);
		pages.state[i] = PAGE_NONE;
		/* rings in use are unmapped by their connection */
		if (pages.rings[i].map != NULL && !pages.rings[i].used)
			unmap_rings(&pages.rings[i]);
		pages.rings[i] = (struct kept_rings){0};
	}
	pages.nfree = 0;
	pages.generation++;
	ks_unlock(&pages.lock);
}

void
ks_pages_hold(void)
{
	ks_lock(&pages.lock);
}

void
ks_pages_release(void)
{
	ks_unlock(&pages.lock);
}

/* The thread that has forked held the lock. */
void
ks_pages_forked(void)
{
	pthread_mutex_init(&pages.lock, NULL);
}
