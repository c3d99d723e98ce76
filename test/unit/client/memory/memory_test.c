/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Registered memory in the program itself: what is migrated and restored, karst_alloc(), fork(). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst.h"
#include "maps.h"
#include "memory.h"
#include "migrate.h"
#include "karst_vma.h"

#define PAGE  4096u
#define BYTES (64 * PAGE)
#define RW    (PROT_READ | PROT_WRITE)

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
	uint8_t *p = mmap(NULL, len, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(p, MAP_FAILED);
	return p;
}

static void
paint(uint8_t *p, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 31 + i / 256 + seed);
}

static bool
painted(const uint8_t *p, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != (uint8_t)(i * 31 + i / 256 + seed))
			return false;
	return true;
}

static struct karst_memory *
get(const void *p, size_t len)
{
	struct karst_memory *m = NULL;

	cr_assert_eq(karst_memory_get(p, len, true, PAGE, &m, why), 0, "%s", why);
	return m;
}

static bool
is_shared(const void *p)
{
	struct karst_vmas vmas;
	struct karst_vma v;

	cr_assert_eq(karst_vmas_open(&vmas, AT_FDCWD), 0);
	cr_assert_eq(karst_vmas_next(&vmas, (uintptr_t)p, &v), 1);
	karst_vmas_close(&vmas);
	return v.start <= (uintptr_t)p && v.shared;
}

static unsigned int
count_fds(void)
{
	unsigned int n = 0;
	int fd;

	for (fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) != -1;
	return n;
}

/* KiB of shared memory that this process has mapped. */
static unsigned long
shmem_kib(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char line[128];

	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "RssShmem: %lu", &kib) == 1)
			break;
	fclose(f);
	return kib;
}

/* Maps a piece that has a descriptor, as the engine does. */
static uint8_t *
engine_view(const struct karst_memory *m, unsigned int i)
{
	const struct karst_ctl_piece *p = &m->piece[i];
	void *v;

	cr_assert_eq(p->kind, KARST_CTL_PIECE_FD);
	v = mmap(NULL, p->len, RW, MAP_SHARED, m->fds[p->fd], (off_t)p->file_off);
	cr_assert_neq(v, MAP_FAILED);
	return v;
}

/* --- migrating --- */

Test(memory, moved_and_back)
{
	uint8_t *p, *view;
	struct karst_memory *m;

	need_migration();
	p = anonymous(BYTES);
	paint(p, BYTES, 1);
	m = get(p + 10, BYTES - 20);
	cr_assert_eq(m->npieces, 3);
	cr_assert_eq(m->piece[0].kind, KARST_CTL_PIECE_COPY);
	cr_assert_eq(m->piece[0].len, PAGE - 10);
	cr_assert_eq(m->piece[1].addr, (uintptr_t)p + PAGE);
	cr_assert_eq(m->piece[1].len, BYTES - 2 * PAGE);
	cr_assert_eq(m->piece[1].flags, KARST_CTL_PIECE_MIGRATED);
	cr_assert_eq(m->piece[2].len, PAGE - 10);
	cr_assert(is_shared(p + PAGE));
	cr_assert_not(is_shared(p));
	view = engine_view(m, 1);
	cr_assert_eq(memcmp(view, p + PAGE, BYTES - 2 * PAGE), 0);
	view[5] ^= 0xff;
	cr_assert_eq(p[PAGE + 5], view[5], "the same page");
	view[5] ^= 0xff;
	karst_memory_put(m);
	cr_assert_not(is_shared(p + PAGE));
	cr_assert(painted(p, BYTES, 1));
}

/* Allocators return such memory as cleared, without checking. */
Test(memory, given_back_reads_zero)
{
	struct karst_memory *m;
	uint8_t *p;
	size_t i;

	need_migration();
	p = anonymous(BYTES);
	paint(p, BYTES, 2);
	m = get(p, BYTES);
	cr_assert(is_shared(p));
	karst_memory_put(m);
	cr_assert_eq(madvise(p, BYTES, MADV_DONTNEED), 0);
	for (i = 0; i < BYTES && p[i] == 0; i++)
		;
	cr_assert_eq(i, BYTES, "byte %zu is %u", i, p[i]);
}

Test(memory, sealed_against_the_program)
{
	struct karst_memory *m;
	uint8_t *p;

	need_migration();
	p = anonymous(BYTES);
	m = get(p, BYTES);
	cr_assert_eq(ftruncate(m->fds[0], 0), -1);
	cr_assert_eq(errno, EPERM);
	karst_memory_put(m);
}

Test(memory, registrations_share)
{
	struct karst_memory *a, *b, *c;
	uint8_t *p;

	need_migration();
	p = anonymous(BYTES);
	paint(p, BYTES, 2);
	a = get(p + 8 * PAGE, 16 * PAGE);
	b = get(p, BYTES); /* the bytes before, the region itself, the bytes behind it */
	c = get(p + 8 * PAGE + 100, 50);
	cr_assert_eq(a->npieces, 1);
	cr_assert_eq(b->npieces, 3);
	cr_assert_eq(c->npieces, 1);
	cr_assert_eq(c->piece[0].kind, KARST_CTL_PIECE_FD);
	cr_assert_eq(cli_migrated_count(), 3);
	karst_memory_put(a);
	cr_assert(is_shared(p + 8 * PAGE), "the others still need it");
	karst_memory_put(b);
	cr_assert_not(is_shared(p));
	cr_assert(is_shared(p + 8 * PAGE));
	karst_memory_put(c);
	cr_assert_not(is_shared(p + 8 * PAGE));
	cr_assert_eq(cli_migrated_count(), 0);
	cr_assert(painted(p, BYTES, 2));
}

/* Pages of a file are charged to the engine if the engine is the one that allocates them. */
Test(memory, pages_are_made_when_registered)
{
	int fd = memfd_create("sparse", MFD_CLOEXEC);
	struct karst_memory *m;
	struct stat st;
	uint8_t *p;

	cr_assert_eq(ftruncate(fd, 64 * PAGE), 0);
	p = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(p, MAP_FAILED);
	cr_assert_eq(karst_memory_get_on_demand(p, 64 * PAGE, true, &m, why), 0);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_blocks, 0);
	karst_memory_put(m);
	m = get(p + 100, 32 * PAGE);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_blocks, 33 * PAGE / 512, "those of the region, and no others");
	karst_memory_put(m);
	munmap(p, 64 * PAGE);
	close(fd);
	p = karst_alloc(64 * PAGE);
	m = get(p, 64 * PAGE);
	cr_assert_eq(fstat(m->fds[0], &st), 0);
	cr_assert_geq(st.st_blocks, 64 * PAGE / 512);
	karst_memory_put(m);
	karst_free(p);
}

Test(memory, limits_of_moving)
{
	struct karst_memory *m;
	uint8_t *p = anonymous(BYTES), *q;

	cr_assert_eq(karst_memory_get(p, BYTES, true, BYTES + 1, &m, why), 0);
	cr_assert_eq(m->piece[0].kind, KARST_CTL_PIECE_COPY, "too small to be worth it");
	karst_memory_put(m);
	cr_assert_eq(karst_memory_get(p, BYTES, true, UINT64_MAX, &m, why), 0);
	cr_assert_eq(m->piece[0].kind, KARST_CTL_PIECE_COPY, "not wanted");
	karst_memory_put(m);
	/* executable, or read-only: left as they are */
	q = mmap(NULL, BYTES, RW | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	m = get(q, BYTES);
	cr_assert_eq(m->piece[0].kind, KARST_CTL_PIECE_COPY);
	karst_memory_put(m);
	mprotect(p, BYTES, PROT_READ);
	cr_assert_eq(karst_memory_get(p, BYTES, false, PAGE, &m, why), 0);
	cr_assert_eq(m->piece[0].kind, KARST_CTL_PIECE_COPY);
	cr_assert_eq(m->piece[0].flags, KARST_CTL_PIECE_RDONLY);
	karst_memory_put(m);
	cr_assert_eq(karst_memory_get(p, BYTES, true, PAGE, &m, why), -EFAULT);
	cr_assert_eq(cli_migrated_count(), 0, "a failure has left nothing behind");
}

/* A registration that fails half way restores what it has migrated. */
Test(memory, failure_changes_nothing)
{
	struct karst_memory *m = NULL;
	uint8_t *p;

	need_migration();
	p = anonymous(BYTES);
	paint(p, BYTES, 3);
	mprotect(p + 32 * PAGE, PAGE, PROT_NONE);
	cr_assert_eq(karst_memory_get(p, BYTES, true, PAGE, &m, why), -EFAULT);
	cr_assert_gt(strlen(why), 0);
	cr_assert_null(m);
	cr_assert_not(is_shared(p));
	cr_assert_eq(cli_migrated_count(), 0);
}

/* --- programs that do what they should not --- */

Test(memory, unmapped_while_registered)
{
	struct karst_memory *m;
	uint8_t *p, *q;
	unsigned long before;

	need_migration();
	p = anonymous(BYTES);
	m = get(p, BYTES);
	karst_memory_put(m);
	before = shmem_kib();
	m = get(p, BYTES);
	munmap(p, BYTES);
	q = mmap(p, BYTES, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	cr_assert_eq(q, p);
	paint(q, BYTES, 4);
	karst_memory_put(m);
	cr_assert(painted(q, BYTES, 4), "what is there now is somebody else's");
	/* in part */
	m = get(p, BYTES);
	munmap(p + 8 * PAGE, 8 * PAGE);
	karst_memory_put(m);
	cr_assert(painted(p, 8 * PAGE, 4));
	cr_assert_not(is_shared(p));
	cr_assert_not(is_shared(p + 16 * PAGE));
	cr_assert_leq(shmem_kib(), before);
}

Test(memory, remapped_elsewhere_while_registered)
{
	uint8_t *p, *q, *to;
	struct karst_memory *m;

	need_migration();
	p = anonymous(BYTES);
	to = anonymous(BYTES);
	paint(p, BYTES, 5);
	m = get(p, BYTES);
	q = mremap(p, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	cr_assert_eq(q, to);
	karst_memory_put(m);
	cr_assert_not(is_shared(q), "found where it is now");
	cr_assert(painted(q, BYTES, 5));
	/* the block is free again, and zero, for the next caller */
	p = anonymous(BYTES);
	m = get(p, BYTES);
	cr_assert_eq(p[PAGE], 0);
	cr_assert(painted(q, BYTES, 5));
	karst_memory_put(m);
}

/* --- repetition --- */

Test(memory, cycles_do_not_grow)
{
	struct karst_memory *m;
	uint8_t *p = anonymous(BYTES), *small = malloc(100), *mine = karst_alloc(BYTES);
	unsigned int i, maps = 0, fds = 0;
	unsigned long shmem = 0;

	for (i = 0; i < 100000; i++) {
		if (i % 100 == 0) {
			m = get(p, BYTES);
			karst_memory_put(m);
		}
		m = get(small, 100);
		karst_memory_put(m);
		m = get(mine, BYTES);
		karst_memory_put(m);
		if (i == 1000) {
			maps = maps_count();
			fds = count_fds();
			shmem = shmem_kib();
		}
	}
	cr_assert_leq(maps_count(), maps);
	cr_assert_eq(count_fds(), fds);
	cr_assert_leq(shmem_kib(), shmem);
	karst_free(mine);
	free(small);
}

/* --- karst_alloc() --- */

static bool
all_zero(const uint8_t *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != 0)
			return false;
	return true;
}

Test(memory, alloc_is_zero_aligned_apart)
{
	static const size_t sizes[] = {0, 1, 4096, 4097, 100000, 1 << 20, (1 << 20) + 1, 5 << 20};
	uint8_t *p[KARST_DIM(sizes)];
	struct karst_memory *m;
	unsigned int i, round;

	for (round = 0; round < 3; round++) {
		for (i = 0; i < KARST_DIM(sizes); i++) {
			p[i] = karst_alloc(sizes[i]);
			cr_assert_not_null(p[i]);
			cr_assert_eq((uintptr_t)p[i] % PAGE, 0);
			cr_assert(all_zero(p[i], sizes[i]), "%zu bytes, round %u", sizes[i], round);
			paint(p[i], sizes[i], i);
		}
		for (i = 0; i < KARST_DIM(sizes); i++) {
			cr_assert(painted(p[i], sizes[i], i), "%zu bytes", sizes[i]);
			if (sizes[i] == 0)
				continue;
			m = get(p[i], sizes[i]);
			cr_assert_eq(m->npieces, 1);
			cr_assert_eq(m->piece[0].kind, KARST_CTL_PIECE_FD);
			cr_assert_eq(m->piece[0].flags, 0);
			karst_memory_put(m);
		}
		for (i = 0; i < KARST_DIM(sizes); i++)
			karst_free(p[(i * 3 + round) % KARST_DIM(sizes)]);
	}
	karst_free(NULL);
	errno = 0;
	cr_assert_null(karst_alloc(SIZE_MAX));
	cr_assert_eq(errno, ENOMEM);
}

Test(memory, many_small_allocations_need_few_mappings)
{
	static void *p[10000];
	unsigned int i, maps = maps_count(), fds;

	p[0] = karst_alloc(1);
	fds = count_fds();
	for (i = 1; i < KARST_DIM(p); i++)
		p[i] = karst_alloc(1);
	cr_assert_leq(maps_count(), maps + KARST_DIM(p) / 50, "slabs, and what malloc() takes");
	cr_assert_eq(count_fds(), fds);
	for (i = 0; i < KARST_DIM(p); i++)
		karst_free(p[(i * 7919) % KARST_DIM(p)]);
	cr_assert_leq(maps_count(), maps + KARST_DIM(p) / 50);
}

static void
wrong_free(void (*f)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		/* no core dump, and no handler of the test's */
		signal(SIGABRT, SIG_DFL);
		close(2);
		f();
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void
free_twice(void)
{
	void *p = karst_alloc(100);

	karst_free(p);
	karst_free(p);
}

static void
free_inside(void)
{
	char *p = karst_alloc(100);

	karst_free(p + 8);
}

static void
free_malloc(void)
{
	karst_free(malloc(100));
}

Test(memory, wrong_frees_end_the_program)
{
	wrong_free(free_twice);
	wrong_free(free_inside);
	wrong_free(free_malloc);
}

/* --- fork() --- */

/* Parent and child have memory of their own: what the parent writes after fork() is not in the
 * child, and vice versa. */
Test(memory, fork_separates_what_was_moved)
{
	struct karst_memory *m;
	int status, fds[2];
	uint8_t *p, byte;
	pid_t pid;

	need_migration();
	p = anonymous(BYTES);
	paint(p, BYTES, 6);
	m = get(p, BYTES);
	cr_assert_eq(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		if (is_shared(p))
			_exit(1);
		paint(p + BYTES / 2, BYTES / 2, 7);
		if (read(fds[0], &byte, 1) != 1 || !painted(p, BYTES / 2, 6) ||
			!painted(p + BYTES / 2, BYTES / 2, 7))
			_exit(2);
		/* and the child can register memory of its own */
		if (karst_memory_get(p, BYTES, true, PAGE, &m, why) != 0 || !is_shared(p))
			_exit(3);
		karst_memory_put(m);
		_exit(painted(p, BYTES / 2, 6) ? 0 : 4);
	}
	cr_assert(is_shared(p), "the parent's is still registered");
	memset(p, 0xee, BYTES / 2);
	cr_assert_eq(write(fds[1], "", 1), 1);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: %#x", status);
	cr_assert_eq(p[0], 0xee);
	karst_memory_put(m);
	cr_assert_eq(p[0], 0xee);
}

Test(memory, fork_shares_what_was_allocated)
{
	uint8_t *p = karst_alloc(100), *big = karst_alloc(3 << 20), *q;
	int status;
	pid_t pid;

	p[0] = big[0] = 1;
	pid = fork();
	if (pid == 0) {
		p[0] = 2;
		q = karst_alloc(100);
		if (q == NULL || q[0] != 0)
			_exit(1);
		q[0] = 3;
		karst_free(p);
		karst_free(big);
		karst_free(q);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: %#x", status);
	cr_assert_eq(p[0], 2);
	cr_assert_eq(big[0], 1, "the child's freeing has not taken it away");
	q = karst_alloc(100);
	cr_assert_eq(q[0], 0);
	karst_free(q);
	karst_free(p);
	karst_free(big);
}
