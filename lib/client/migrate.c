/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Migrates memory of a running program.
 *
 * New pages are mapped elsewhere and populated; then, in this order:
 *
 *   write-protect  by userfaultfd; from here on all writers to the range wait, whether they are
 *                  threads or the kernel on a thread's behalf.  Reading goes on.  (The engine,
 *                  which writes through /proc/PID/mem, gets an error and tries again: reach.c
 *                  there.)
 *   wait           for writes through /proc/PID/mem that have found their page and have not
 *                  written yet: they hold the lock of the mappings
 *   copy           old pages to new ones
 *   mremap         the new mapping replaces the old one atomically, with its page tables
 *   wake           waiting writers try again, and write to the new pages
 *
 * No store is lost.  Meanwhile this thread must not write to the range itself, because no other
 * thread would wake it.  Between the first and the last step it writes only to its stack and to the
 * new pages, and blocks signals, because a handler might write to the range.  So the caller never
 * migrates a stack, and everything else is prepared before.
 *
 * The way back is the same, with private pages as the new ones.
 *
 * A program has no reason to munmap() or mremap() registered memory, but that does no harm: on the
 * way back this file looks up where the pages are mapped now, and changes only those mappings.
 */
#include "migrate.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "sys.h"

/* newer than the kernel headers here */
#define FEATURE_WP_UNPOPULATED (1u << 13)
#define DEV_NEW                _IO(0xAA, 0x00)

/* Each range takes up to two mappings of the 65530 that a process has by default. */
#define MAX_MOVED 16384u

/* Process-wide, as the mappings are; under cli_pages_lock(). */
static struct {
	LIST_HEAD(, cli_migrated) list;
	uint32_t n;
	int uffd;  /* 0: not opened; negative: this process has no permission */
	bool back; /* the kernel can write-protect shared pages */
} moved;

/* --- userfaultfd --- */

static int
uffd_new(void)
{
	int dev, fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		return fd;
	/* The system call needs a privilege; the permissions of the device may admit other
	 * users. */
	dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (dev < 0)
		return -1;
	fd = ioctl(dev, DEV_NEW, O_CLOEXEC | O_NONBLOCK);
	close(dev);
	return fd;
}

/* Returns a descriptor with those features of @want that the kernel has; -1: none. */
static int
uffd_open(uint64_t want, uint64_t *have)
{
	struct uffdio_api api = {.api = UFFD_API, .features = 0};
	int fd = uffd_new();

	if (fd < 0)
		return -1;
	if (ioctl(fd, UFFDIO_API, &api) != 0) {
		close(fd);
		return -1;
	}
	*have = api.features & want;
	close(fd);
	/* a descriptor allows the handshake only once */
	fd = uffd_new();
	api = (struct uffdio_api){.api = UFFD_API, .features = *have};
	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool
uffd_ready(void)
{
	uint64_t have = 0;

	if (moved.uffd == 0) {
		moved.uffd = uffd_open(UFFD_FEATURE_PAGEFAULT_FLAG_WP |
				UFFD_FEATURE_WP_HUGETLBFS_SHMEM | FEATURE_WP_UNPOPULATED,
			&have);
		moved.back = (have & UFFD_FEATURE_WP_HUGETLBFS_SHMEM) != 0;
		/* memory that cannot be migrated back is not migrated */
		if (moved.uffd >= 0 && !moved.back) {
			close(moved.uffd);
			moved.uffd = -1;
		}
		if (moved.uffd < 0)
			moved.uffd = -1;
	}
	return moved.uffd > 0;
}

/* --- replacing a mapping --- */

static int
range_protect(int uffd, uint64_t start, uint64_t len, bool on)
{
	struct uffdio_writeprotect wp = {
		.range = {start, len}, .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};

	return ioctl(uffd, UFFDIO_WRITEPROTECT, &wp);
}

/* The part that must not be interrupted; the comment at the top of this file says what it must not
 * do. */
static __attribute__((noinline)) int
range_exchange(int uffd, uint64_t start, uint64_t len, void *fresh)
{
	struct uffdio_range range = {start, len};

	if (range_protect(uffd, start, len, true) != 0)
		return -1;
	/* changes nothing, but waits for the lock of the mappings, which writers hold */
	sys_mprotect(fresh, len, PROT_READ | PROT_WRITE);
	memcpy(fresh, (const void *)(uintptr_t)start, len);
	if (sys_mremap(fresh, len, (void *)(uintptr_t)start) != 0) {
		range_protect(uffd, start, len, false); /* also wakes waiting writers */
		return -1;
	}
	ioctl(uffd, UFFDIO_WAKE, &range);
	return 0;
}

/* Replaces the mapping at @start by the one at @fresh, with the contents of the former. */
static bool
range_replace(uint64_t start, uint64_t len, void *fresh)
{
	struct uffdio_register reg = {.range = {start, len}, .mode = UFFDIO_REGISTER_MODE_WP};
	sigset_t all, old;
	int ret;

	/* populates the page table entries to protect, and the new pages before the exchange */
	if (sys_madvise((void *)(uintptr_t)start, len, MADV_POPULATE_READ) != 0 ||
		sys_madvise(fresh, len, MADV_POPULATE_WRITE) != 0 ||
		ioctl(moved.uffd, UFFDIO_REGISTER, &reg) != 0)
		return false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = range_exchange(moved.uffd, start, len, fresh);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret != 0)
		ioctl(moved.uffd, UFFDIO_UNREGISTER, &reg.range);
	return ret == 0;
}

/* --- to shared pages --- */

static void
migrated_add(struct cli_migrated *m)
{
	LIST_INSERT_HEAD(&moved.list, m, next);
	moved.n++;
}

static void
migrated_del(struct cli_migrated *m)
{
	LIST_REMOVE(m, next);
	moved.n--;
}

struct cli_migrated *
cli_migrate(uint64_t start, uint64_t len)
{
	struct cli_migrated *m;
	void *fresh;

	if (!uffd_ready() || moved.n >= MAX_MOVED)
		return NULL;
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return NULL;
	if (cli_pages_take(len, start, &m->block) != 0) {
		free(m);
		return NULL;
	}
	fresh = cli_pages_map(len, start & (CLI_HUGE - 1), &m->block);
	if (fresh == NULL || !range_replace(start, len, fresh)) {
		if (fresh != NULL)
			sys_munmap(fresh, len);
		cli_pages_give(&m->block);
		free(m);
		return NULL;
	}
	m->start = start;
	m->refs = 1;
	migrated_add(m);
	return m;
}

struct cli_migrated *
cli_migrated_find(uint64_t off)
{
	struct cli_migrated *m;

	LIST_FOREACH(m, &moved.list, next)
		if (off - m->block.off < m->block.len)
			return m;
	return NULL;
}

uint32_t
cli_migrated_count(void)
{
	return moved.n;
}

/* --- and back --- */

/* Returns the part of mapping @v that maps bytes of @m. */
static bool
vma_shows(const struct karst_vma *v, const struct cli_migrated *m, uint64_t *start, uint64_t *len)
{
	uint64_t from = karst_max_u64(v->off, m->block.off);
	uint64_t to = karst_min_u64(v->off + (v->end - v->start), m->block.off + m->block.len);

	if (!cli_pages_own(v) || from >= to)
		return false;
	*start = v->start + (from - v->off);
	*len = to - from;
	return true;
}

static bool
make_private(uint64_t start, uint64_t len)
{
	void *fresh = cli_pages_map(len, start & (CLI_HUGE - 1), NULL);

	if (fresh == NULL)
		return false;
	if (range_replace(start, len, fresh))
		return true;
	sys_munmap(fresh, len);
	return false;
}

/* The same in a process with one thread: protection is not needed, and may not be available. */
static bool
make_private_alone(uint64_t start, uint64_t len)
{
	void *fresh = cli_pages_map(len, start & (CLI_HUGE - 1), NULL);

	if (fresh == NULL)
		return false;
	memcpy(fresh, (const void *)(uintptr_t)start, len);
	return sys_mremap(fresh, len, (void *)(uintptr_t)start) == 0;
}

/*
 * Makes mappings of bytes of @m private, from the mapping of @from on up to @to.  *found: number of
 * bytes.
 * @return false: some of them are still shared.
 */
static bool
range_restore(const struct cli_migrated *m, uint64_t from, uint64_t to, bool alone, uint64_t *found)
{
	struct karst_vmas vmas;
	struct karst_vma v;
	uint64_t start, len;
	bool ok = true;
	int ret;

	if (karst_vmas_open(&vmas, AT_FDCWD) != 0)
		return false;
	for (ret = karst_vmas_next(&vmas, from, &v); ret == 1 && v.start < to;
		ret = karst_vmas_next(&vmas, v.end, &v)) {
		if (!vma_shows(&v, m, &start, &len))
			continue;
		*found += len;
		ok &= alone ? make_private_alone(start, len) : make_private(start, len);
	}
	karst_vmas_close(&vmas);
	return ok && ret >= 0;
}

/* @return false if some of its pages are still in use. */
static bool
migrated_restore(const struct cli_migrated *m, bool alone)
{
	uint64_t found = 0;

	if (!range_restore(m, m->start, m->start + m->block.len, alone, &found))
		return false;
	/* the usual case; otherwise the program has unmapped it or mapped it elsewhere */
	return found == m->block.len || range_restore(m, 0, UINT64_MAX, alone, &found);
}

void
cli_migrated_put(struct cli_migrated *m)
{
	assert(m->refs > 0);
	if (--m->refs > 0)
		return;
	migrated_del(m);
	/* pages that could not be made private stay with the program and are not used again */
	if (migrated_restore(m, false))
		cli_pages_give(&m->block);
	free(m);
}

void
cli_migrated_forget(void)
{
	struct cli_migrated *m;

	while ((m = LIST_FIRST(&moved.list)) != NULL) {
		migrated_del(m);
		migrated_restore(m, true);
		free(m);
	}
	if (moved.uffd > 0)
		close(moved.uffd);
	moved.uffd = 0;
}
