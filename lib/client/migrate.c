/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Moving memory under a running program.
 *
 * New pages are mapped elsewhere and made to exist; then, in this order:
 *
 *	write-protect	userfaultfd; from here on whoever writes to the range waits, whether a
 *			thread or the kernel on a thread's behalf.  Reading goes on.  (The engine,
 *			which writes by /proc/PID/mem, is refused and tries again: reach.c there.)
 *	wait		for writes by /proc/PID/mem that have found their page and have not
 *			written yet: they hold the lock of the mappings
 *	copy		old pages to new ones
 *	mremap		the new mapping takes the place of the old one, atomically, with the page
 *			tables that it has
 *	wake		who waited tries again, and writes to the new pages
 *
 * Not one store is lost.  Meanwhile this thread must not write to the range itself, or nobody would
 * ever wake it: between the first and the last step it writes to its stack and to the new pages
 * only, and takes no signal, for whose handler the same would hold.  So the caller never moves a
 * stack, and everything else is prepared before.
 *
 * The way back is the same with private pages as the new ones.
 *
 * A program that munmap()s or mremap()s what it has registered makes no sense but does no harm: on
 * the way back every place where the pages are mapped now is looked for, and only those change.
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

/* of newer kernels than the headers here */
#define FEATURE_WP_UNPOPULATED (1u << 13)
#define DEV_NEW                _IO(0xAA, 0x00)

/* Each takes up to two mappings of the 65530 that a process has by default. */
#define MAX_MOVED 16384u

/* Of the process, whose mappings they are; under cli_pages_lock(). */
static struct {
	LIST_HEAD(, cli_migrated) list;
	uint32_t n;
	int uffd;  /* 0: not opened; negative: this process may not */
	bool back; /* the kernel can write-protect shared pages */
} moved;

/* --- userfaultfd --- */

static int
uffd_new(void)
{
	int dev, fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		return fd;
	/* the system call is for the privileged; the device, for whom its permissions say */
	dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (dev < 0)
		return -1;
	fd = ioctl(dev, DEV_NEW, O_CLOEXEC | O_NONBLOCK);
	close(dev);
	return fd;
}

/* A descriptor with those of @want that the kernel has; -1: none. */
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
	/* the handshake can be done once */
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
		/* what cannot be moved back is not moved */
		if (moved.uffd >= 0 && !moved.back) {
			close(moved.uffd);
			moved.uffd = -1;
		}
		if (moved.uffd < 0)
			moved.uffd = -1;
	}
	return moved.uffd > 0;
}

/* --- taking the place of a mapping --- */

static int
range_protect(int uffd, uint64_t start, uint64_t len, bool on)
{
	struct uffdio_writeprotect wp = {
		.range = {start, len}, .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};

	return ioctl(uffd, UFFDIO_WRITEPROTECT, &wp);
}

/* What must not be interrupted; see the top of this file for what it must not do. */
static __attribute__((noinline)) int
range_exchange(int uffd, uint64_t start, uint64_t len, void *fresh)
{
	struct uffdio_range range = {start, len};

	if (range_protect(uffd, start, len, true) != 0)
		return -1;
	/* it changes nothing, but takes the lock that nobody else may hold meanwhile */
	sys_mprotect(fresh, len, PROT_READ | PROT_WRITE);
	memcpy(fresh, (const void *)(uintptr_t)start, len);
	if (sys_mremap(fresh, len, (void *)(uintptr_t)start) != 0) {
		range_protect(uffd, start, len, false); /* wakes, too */
		return -1;
	}
	ioctl(uffd, UFFDIO_WAKE, &range);
	return 0;
}

/* Puts the mapping at @fresh in the place of the one at @start, with its contents. */
static bool
range_replace(uint64_t start, uint64_t len, void *fresh)
{
	struct uffdio_register reg = {.range = {start, len}, .mode = UFFDIO_REGISTER_MODE_WP};
	sigset_t all, old;
	int ret;

	/* so that there is a page table entry to protect; and the new pages are there before */
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

/* The part of mapping @v that shows bytes of @m. */
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

/* The same where nobody else runs: no protection is needed, and there may be none. */
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
 * Makes what shows bytes of @m private, from the mapping of @from on up to @to.
 * *found: how many bytes.  @return false if something is left shared.
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
	/* the usual case; else the program has unmapped it, or has it elsewhere */
	return found == m->block.len || range_restore(m, 0, UINT64_MAX, alone, &found);
}

void
cli_migrated_put(struct cli_migrated *m)
{
	assert(m->refs > 0);
	if (--m->refs > 0)
		return;
	migrated_del(m);
	/* pages that could not be made private stay the program's, and are not used again */
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
