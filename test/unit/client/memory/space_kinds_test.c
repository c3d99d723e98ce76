/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Every kind of memory that a program may register: how the engine reaches it (shared, migrated,
 * copied), and that requests move its bytes and no others.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/file.h>

#include <criterion/criterion.h>

#include "space_bed.h"

/* Passed to region_make() below: smaller memory is not migrated. */
#define MIGRATE_MIN 16384

/* PART_MIGRATED: a heap may be two mappings, so that an end of the region is too short to be
 * migrated. */
enum method { SHARED, MIGRATED, PART_MIGRATED, COPIED, SOME_OF_EACH };

static const struct {
	const char *name;
	enum method method;
	bool may_lack;
} kinds[KIND_COUNT] = {
	[KIND_ALLOC] = {"karst_alloc", SHARED},
	[KIND_ALLOC_SMALL] = {"karst_alloc, small", SHARED},
	[KIND_MALLOC] = {"malloc", MIGRATED},
	[KIND_MALLOC_HEAP] = {"malloc on the heap", PART_MIGRATED},
	[KIND_MALLOC_SMALL] = {"malloc, small", COPIED},
	[KIND_ANONYMOUS] = {"anonymous", MIGRATED},
	[KIND_THP] = {"transparent huge pages", MIGRATED},
	[KIND_STACK] = {"stack", COPIED},
	[KIND_DATA] = {".data", COPIED},
	[KIND_BSS] = {".bss", MIGRATED},
	[KIND_PRIVATE_FILE] = {"private mapping of a file", COPIED},
	[KIND_SHARED_FILE] = {"shared mapping of a file", COPIED},
	[KIND_MEMFD] = {"memfd", SHARED},
	[KIND_SYSV] = {"SysV shm", SHARED, true},
	[KIND_POSIX_SHM] = {"POSIX shm", SHARED},
	[KIND_HUGETLB] = {"shared hugetlb", SHARED, true},
	[KIND_HUGETLB_PRIVATE] = {"private hugetlb", COPIED, true},
	[KIND_MIXED] = {"neighbours of all kinds", SOME_OF_EACH},
};

static void
check_method(const struct region *r, enum method method)
{
	switch (method) {
	case SHARED:
		cr_assert_eq(r->copied, 0, "%llu bytes copied", (unsigned long long)r->copied);
		cr_assert_eq(r->migrated, 0);
		break;
	case MIGRATED:
	case PART_MIGRATED:
		cr_assert_gt(r->migrated, 0);
		cr_assert_eq(r->migrated, r->shared);
		cr_assert_leq(r->copied, 2 * 4096 + (method == MIGRATED ? 0 : MIGRATE_MIN),
			"%llu of %llu bytes are copied", (unsigned long long)r->copied,
			(unsigned long long)r->len);
		break;
	case COPIED:
		cr_assert_eq(r->copied, r->len);
		break;
	case SOME_OF_EACH:
		cr_assert(r->copied > 0 && r->migrated > 0 && r->shared > r->migrated);
		break;
	}
}

/* Huge pages are a resource of the machine: tests that need some reserve two more, and release them
 * even if they fail.  Other tests change the number of huge pages at the same time, under the same
 * lock (test/common/bed.py, HugePages). */
#define NR_HUGE "/proc/sys/vm/nr_hugepages"

static int added_huge_pages;

static bool
add_huge_pages(int n)
{
	FILE *f = fopen(NR_HUGE, "r+");
	unsigned int had = 0;
	bool ok = f != NULL && flock(fileno(f), LOCK_EX) == 0 && fscanf(f, "%u", &had) == 1;

	if (ok) {
		rewind(f);
		ok = fprintf(f, "%d", (int)had + n) > 0 && fflush(f) == 0;
	}
	if (f != NULL)
		ok &= fclose(f) == 0;
	added_huge_pages += ok ? n : 0;
	return ok;
}

static void
one_kind(enum kind kind)
{
	struct region r;
	struct rig rig;
	uint64_t addr, len;
	bool huge = kind == KIND_HUGETLB || kind == KIND_HUGETLB_PRIVATE;
	int ret;

	if (!can_migrate())
		cr_skip("needs userfaultfd");
	rig_up(&rig);
	/* after the engine was made, as the engine takes what is free */
	if (huge && !add_huge_pages(2))
		cr_skip("huge pages cannot be reserved");
	ret = program_make(&rig.prog, kind, &addr, &len);
	if (ret == -EOPNOTSUPP && kinds[kind].may_lack)
		cr_skip("no %s here", kinds[kind].name);
	cr_assert_eq(ret, 0, "%s", kinds[kind].name);
	cr_assert_eq(region_make(&rig, addr + EDGE, len - 2 * EDGE - 1, true, MIGRATE_MIN, &r), 0);
	check_method(&r, kinds[kind].method);
	if (kind == KIND_ANONYMOUS)
		program_fill(&rig.prog, 1);
	exercise(&rig, &r, EDGE);
	region_drop(&rig, &r);
	program_deregister(&rig.prog);
	if (kinds[kind].method == MIGRATED)
		cr_assert(program_is_private(&rig.prog, addr + len / 2), "private again");
	/* the pattern before, with what the last message wrote */
	cr_assert(program_shows(&rig.prog, EDGE, len - 2 * EDGE - 1, 6, 0), "still there");
	program_end(&rig.prog);
	rig_down(&rig);
}

static void
release_huge(void)
{
	if (added_huge_pages > 0)
		add_huge_pages(-added_huge_pages);
}

#define KIND_TEST(name, kind)       \
	Test(space, content_##name) \
	{                           \
		one_kind(kind);     \
	}

KIND_TEST(alloc, KIND_ALLOC)
KIND_TEST(alloc_small, KIND_ALLOC_SMALL)
KIND_TEST(malloc, KIND_MALLOC)
KIND_TEST(malloc_heap, KIND_MALLOC_HEAP)
KIND_TEST(malloc_small, KIND_MALLOC_SMALL)
KIND_TEST(anonymous, KIND_ANONYMOUS)
KIND_TEST(thp, KIND_THP)
KIND_TEST(stack, KIND_STACK)
KIND_TEST(data, KIND_DATA)
KIND_TEST(bss, KIND_BSS)
KIND_TEST(private_file, KIND_PRIVATE_FILE)
KIND_TEST(shared_file, KIND_SHARED_FILE)
KIND_TEST(memfd, KIND_MEMFD)
KIND_TEST(sysv, KIND_SYSV)
KIND_TEST(posix_shm, KIND_POSIX_SHM)
KIND_TEST(mixed, KIND_MIXED)

Test(space, content_hugetlb, .fini = release_huge)
{
	one_kind(KIND_HUGETLB);
}

Test(space, content_hugetlb_private, .fini = release_huge)
{
	one_kind(KIND_HUGETLB_PRIVATE);
}
