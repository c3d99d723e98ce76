/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Pages that several registrations share: when they are migrated, and which registrations become
 * stale. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "memory.h"
#include "migrate.h"

#define PAGE 4096u

static char why[KARST_CTL_WHY];

static void
need_migration(void)
{
	/* as in space_bed.c */
	if (geteuid() != 0 && access("/dev/userfaultfd", R_OK | W_OK) != 0)
		cr_skip("needs userfaultfd");
}

static uint8_t *
anonymous(size_t len)
{
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t i;

	cr_assert_neq(p, MAP_FAILED);
	for (i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 31 + i / 256);
	return p;
}

static bool
untouched(const uint8_t *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != (uint8_t)(i * 31 + i / 256))
			return false;
	return true;
}

/* Registers memory, with @p as the owner. */
static struct karst_memory *
get(uint8_t *p, size_t len, uint64_t migrate_min)
{
	struct karst_memory *m = NULL;

	cr_assert_eq(karst_memory_get(p, len, true, migrate_min, &m, why), 0, "%s", why);
	karst_memory_lock();
	karst_memory_settle(m, p);
	karst_memory_unlock();
	return m;
}

static void *
stale(void)
{
	void *owner;

	karst_memory_lock();
	owner = karst_memory_stale();
	karst_memory_unlock();
	return owner;
}

static uint64_t
copied(const struct karst_memory *m)
{
	uint64_t bytes = 0;
	unsigned int i;

	for (i = 0; i < m->npieces; i++)
		if (m->piece[i].kind == KARST_CTL_PIECE_COPY)
			bytes += m->piece[i].len;
	return bytes;
}

/* Registers *@m again, as its owner does when stale() has returned it. */
static void
again(struct karst_memory **m, uint8_t *p)
{
	struct karst_memory *now = NULL;

	cr_assert_eq(karst_memory_rescan(*m, &now, why), 0, "%s", why);
	karst_memory_put(*m);
	karst_memory_lock();
	karst_memory_settle(now, p);
	karst_memory_unlock();
	*m = now;
}

Test(edges, neighbours_share_a_page)
{
	uint8_t *p, *second;
	struct karst_memory *a, *b, *c;

	need_migration();
	p = anonymous(4 * PAGE);
	second = p + 16 + PAGE;
	a = get(p + 16, PAGE, 1);
	cr_assert_eq(copied(a), PAGE, "both of its pages are edges");
	cr_assert_eq(cli_migrated_count(), 0);
	b = get(second, PAGE, 1);
	cr_assert_eq(copied(b), 16, "the page between them is nobody else's");
	cr_assert_eq(stale(), p + 16);
	cr_assert_null(stale());
	again(&a, p + 16);
	cr_assert_eq(copied(a), PAGE - 16);
	/* the bytes in front of the first one */
	c = get(p, 16, 1);
	cr_assert_eq(copied(c), 0);
	cr_assert_eq(stale(), p + 16);
	again(&a, p + 16);
	cr_assert_eq(copied(a), 0);
	cr_assert_eq(cli_migrated_count(), 2);
	cr_assert(untouched(p, 4 * PAGE));
	karst_memory_put(b);
	karst_memory_put(c);
	cr_assert_eq(cli_migrated_count(), 2, "both pages are still the first one's");
	karst_memory_put(a);
	cr_assert_eq(cli_migrated_count(), 0);
	cr_assert(untouched(p, 4 * PAGE));
}

Test(edges, a_hole_is_somebody_elses)
{
	struct karst_memory *a, *b, *c;
	uint8_t *p;

	need_migration();
	p = anonymous(2 * PAGE);
	a = get(p, 100, 1);
	b = get(p + 101, PAGE - 101, 1);
	cr_assert_eq(copied(a) + copied(b), PAGE - 1);
	cr_assert_eq(cli_migrated_count(), 0);
	cr_assert_null(stale());
	/* an edge that is gone does not count */
	karst_memory_put(a);
	c = get(p + 50, 51, 1);
	cr_assert_eq(cli_migrated_count(), 0);
	karst_memory_put(c);
	/* overlapping registrations count */
	c = get(p, 300, 1);
	cr_assert_eq(copied(c), 0);
	cr_assert_eq(stale(), p + 101);
	karst_memory_put(b);
	karst_memory_put(c);
	cr_assert_eq(cli_migrated_count(), 0);
}

/* Edges do not count that are of a page of the same bucket, of another mapping, or of memory that
 * is not migrated. */
Test(edges, only_the_page_counts)
{
	struct karst_memory *a, *b;
	uint8_t *p;

	need_migration();
	p = anonymous(4097 * (size_t)PAGE);
	a = get(p, 100, 1);
	b = get(p + 4096 * (size_t)PAGE + 100, PAGE - 100, 1);
	cr_assert_eq(cli_migrated_count(), 0);
	karst_memory_put(b);
	b = get(p + 100, PAGE - 100, PAGE + 1);
	cr_assert_eq(cli_migrated_count(), 0, "too little to be moved");
	karst_memory_put(b);
	b = get(p + 100, PAGE - 100, UINT64_MAX);
	cr_assert_eq(cli_migrated_count(), 0, "not wanted");
	karst_memory_put(b);
	cr_assert_null(stale());
	karst_memory_put(a);
}

Test(edges, told_when_settled)
{
	struct karst_memory *a = NULL, *b;
	uint8_t *p;

	need_migration();
	p = anonymous(PAGE);
	cr_assert_eq(karst_memory_get(p, 100, true, 1, &a, why), 0);
	b = get(p + 100, PAGE - 100, 1);
	cr_assert_null(stale(), "the engine does not have it yet");
	karst_memory_lock();
	karst_memory_settle(a, p);
	karst_memory_unlock();
	cr_assert_eq(stale(), p);
	/* nor when that registration has ended */
	karst_memory_put(b);
	b = get(p + 100, PAGE - 100, 1);
	karst_memory_put(a);
	cr_assert_null(stale());
	karst_memory_put(b);
}

/* One registration of many ranges that were migrated one by one and are adjacent in the file. */
Test(edges, many_moved_ones_in_one)
{
	struct karst_memory *one[64], *all;
	unsigned int i;
	uint8_t *p;

	need_migration();
	p = anonymous(64 * PAGE);
	for (i = 0; i < 64; i++)
		one[i] = get(p + i * PAGE, PAGE, 1);
	all = get(p, 64 * PAGE, 1);
	cr_assert_eq(copied(all), 0);
	for (i = 0; i < 64; i++)
		karst_memory_put(one[i]);
	cr_assert_eq(cli_migrated_count(), 64);
	karst_memory_put(all);
	cr_assert_eq(cli_migrated_count(), 0);
	cr_assert(untouched(p, 64 * PAGE));
}
