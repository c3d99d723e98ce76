/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Access of the engine to a program's address space: copies, and the list of mappings.
 *
 * Copies use a descriptor of /proc/PID/mem, which the program opens itself and sends with HELLO.
 * The kernel checked, when it was opened, whether the program may access that memory, so the engine
 * reaches nothing through it that the program could not reach; it does not matter whether the
 * process number is reused by now, or what that process has executed since.  The descriptor belongs
 * to an address space: when the last process that runs in it has executed another program or is
 * gone, no copy works any more.  The engine itself needs no right to other processes' memory.
 *
 * It must only be made sure that the descriptor is such a file and no other, since the engine may
 * write where the program may not.  Path names prove nothing (a program can mount anything over a
 * path), so the file is recognized by a property that no other file of proc has: its position may
 * be negative, because it is an address, and it is open for writing.
 *
 * Writing through it ignores the protection of private pages, and reading that of all pages, so
 * protection is checked in the list of mappings: once when memory is registered, and at each access
 * to memory that is registered on demand.  This only protects the program from itself, as the
 * memory is its own; it harms no other program if the protection changes in between.
 *
 * That list, and the files of the program's shared mappings, are opened under /proc/PID, with the
 * rights of the program's user (lib/ctl, karst_files.h): by this process, or by another process on
 * its behalf (karst_space_set_opener()).  It must be known that /proc/PID is the program's: either
 * the kernel has told so (SO_PEERPIDFD, Linux 6.5), or the descriptor of its memory was opened
 * there.
 */
#include "space_priv.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "karst_ctl_msg.h"

#define BATCH 256u /* parts of one system call */
/* Pause between two attempts to write to a page whose writers have to wait, and the total.  An
 * lcore does not wait for so long: a thread that sleeps in a copy for a millisecond loses the lcore
 * (watch.c). */
#define HELD_MIN_US 20u
#define HELD_MAX_US 1000u
#define PATIENCE_US 1000000u

/* --- descriptors --- */

static bool
is_memory(int fd)
{
	const off_t negative = -4096;
	struct statfs fs;
	struct stat st;
	int mode = fcntl(fd, F_GETFL);

	return mode != -1 && (mode & O_PATH) == 0 && (mode & O_ACCMODE) == O_RDWR &&
		fstatfs(fd, &fs) == 0 && (uint64_t)fs.f_type == PROC_SUPER_MAGIC &&
		fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
		lseek(fd, negative, SEEK_SET) == negative;
}

int
karst_space_reach(struct karst_space *s, int mem_fd, char *why)
{
	struct eng_atomics *atomics;
	int copy;

	if (!is_memory(mem_fd))
		return karst_ctl_reason(why, -EBADF,
			"the descriptor is not one of /proc/self/mem, open for reading and "
			"writing");
	copy = fcntl(mem_fd, F_DUPFD_CLOEXEC, 3);
	if (copy < 0)
		return karst_ctl_reason(
			why, -errno, "the engine has no descriptors left (its ulimit -n)");
	atomics = eng_atomics_get(copy);
	if (atomics == NULL) {
		close(copy);
		return karst_ctl_reason(why, -ENOMEM, "the engine is out of memory");
	}
	/* a HELLO that failed later is repeated */
	eng_atomics_put(s->atomics);
	s->atomics = atomics;
	if (s->memfd >= 0)
		close(s->memfd);
	s->memfd = copy;
	s->certain |= karst_files_is_of(s->procfd, mem_fd);
	return 0;
}

int
eng_space_open(const struct karst_space *s, const struct karst_files_ask *ask)
{
	const struct karst_files of = {s->procfd, s->uid, s->gid};

	if (s->opener.open != NULL)
		return s->opener.open(s->opener.user, s->memfd, ask);
	return s->certain ? karst_files_open(&of, ask) : -1;
}

int
eng_space_maps(const struct karst_space *s)
{
	const struct karst_files_ask ask = {.kind = KARST_FILES_MAPS};

	return eng_space_open(s, &ask);
}

bool
eng_space_may(struct karst_vmas *vmas, uint64_t addr, uint64_t len, bool write, uint64_t *reaches)
{
	uint64_t at = addr;
	struct karst_vma v;

	while (at < addr + len && karst_vmas_next(vmas, at, &v) == 1 && v.start <= at && v.read &&
		(v.write || !write))
		at = v.end;
	*reaches = karst_min_u64(at, addr + len) - addr;
	return *reaches == len;
}

/* --- copying --- */

/* A position in the local list. */
struct cursor {
	const struct iovec *iov;
	size_t off;
};

/* The parts for the next @bytes, or for as many as BATCH parts have. */
static size_t
take_local(struct cursor *c, size_t bytes, struct iovec *out, int *n)
{
	size_t got = 0;

	for (*n = 0; got < bytes && *n < (int)BATCH; (*n)++) {
		size_t part = karst_min_u64(c->iov->iov_len - c->off, bytes - got);

		out[*n] = (struct iovec){(uint8_t *)c->iov->iov_base + c->off, part};
		got += part;
		c->off += part;
		if (c->off == c->iov->iov_len) {
			c->iov++;
			c->off = 0;
		}
	}
	return got;
}

/* Bytes of [at, at + len) that the program itself could access in this way now. */
static uint64_t
reach_permitted(struct karst_space *s, uint64_t at, uint64_t len, bool write)
{
	struct karst_vmas vmas;
	uint64_t reaches = len;
	int fd = s->mapsfd;

	if (fd < 0)
		return len;
	/* a list that is read as text has one position */
	pthread_mutex_lock(&s->maps_lock);
	if (lseek(fd, 0, SEEK_SET) == 0) {
		karst_vmas_use(&vmas, fd);
		(void)eng_space_may(&vmas, at, len, write, &reaches);
	}
	pthread_mutex_unlock(&s->maps_lock);
	return reaches;
}

static void
iov_advance(struct cursor *c, size_t bytes)
{
	while (bytes > 0) {
		size_t part = karst_min_u64(c->iov->iov_len - c->off, bytes);

		bytes -= part;
		c->off += part;
		if (c->off == c->iov->iov_len) {
			c->iov++;
			c->off = 0;
		}
	}
}

/*
 * Whether it is worth waiting until @at can be written.  While libkarst migrates a page
 * (lib/client/migrate.c), its writers wait; but a write through this descriptor does not wait, it
 * fails.  Such a page can be read; an address without a page cannot.
 * @waited_us: so far, for this range.
 */
static bool
worth_waiting(struct karst_space *s, uint64_t at, uint64_t *waited_us)
{
	uint64_t us = karst_min_u64(HELD_MIN_US + *waited_us / 4, HELD_MAX_US);
	const struct timespec pause = {.tv_nsec = (long)us * 1000};
	uint8_t byte;

	if (*waited_us >= PATIENCE_US || pread(s->memfd, &byte, 1, (off_t)at) != 1)
		return false;
	nanosleep(&pause, NULL);
	*waited_us += us;
	return true;
}

/* Moves one range of the program's memory.  @return bytes moved; fewer if not all exist; -errno */
static ssize_t
move_range(struct karst_space *s, struct cursor *c, uint64_t at, uint64_t len, bool write)
{
	struct iovec part[BATCH];
	uint64_t done = 0, waited_us = 0;

	while (done < len) {
		int n;
		struct cursor from = *c;
		size_t want = take_local(c, len - done, part, &n);
		ssize_t got = write ? pwritev(s->memfd, part, n, (off_t)(at + done))
				    : preadv(s->memfd, part, n, (off_t)(at + done));

		/* no process runs in that address space any more */
		if (got == 0 && want > 0)
			return -ESRCH;
		if (got > 0)
			done += (uint64_t)got;
		if (got == (ssize_t)want)
			continue;
		if (!write || !worth_waiting(s, at + done, &waited_us))
			return done > 0 ? (ssize_t)done : -EFAULT;
		*c = from;
		iov_advance(c, got > 0 ? (size_t)got : 0);
	}
	return (ssize_t)done;
}

static ssize_t
move_ranges(struct karst_space *s, const struct iovec *local, const struct iovec *remote,
	unsigned int n, bool write, bool look)
{
	struct cursor c = {.iov = local};
	ssize_t moved = 0, ret = 0;
	unsigned int i, next;

	for (i = 0; i < n; i = next) {
		uint64_t at = (uintptr_t)remote[i].iov_base, len = remote[i].iov_len, may;

		/* adjacent parts are copied in one call */
		for (next = i + 1; next < n && (uintptr_t)remote[next].iov_base == at + len; next++)
			len += remote[next].iov_len;
		may = look ? reach_permitted(s, at, len, write) : len;
		ret = may > 0 || len == 0 ? move_range(s, &c, at, may, write) : -EFAULT;
		if (ret > 0)
			moved += ret;
		if (ret < 0 || (uint64_t)ret < len)
			break;
	}
	if (ret == -ESRCH)
		eng_space_fail(s);
	return moved > 0 || ret >= 0 ? moved : ret;
}

static ssize_t
reach_move(struct karst_space *s, const struct iovec *local, const struct iovec *remote,
	unsigned int n, bool write)
{
	if (s->memfd < 0)
		return -EPERM;
	/* acquire, pairs with count_on_demand(); a user of such a region has its key, which was
	 * created after this */
	return move_ranges(s, local, remote, n, write,
		atomic_load_explicit(&s->on_demand, memory_order_acquire) != 0);
}

ssize_t
eng_space_read(struct karst_space *s, const struct iovec *local, const struct iovec *remote,
	unsigned int n)
{
	return reach_move(s, local, remote, n, false);
}

ssize_t
eng_space_write(struct karst_space *s, const struct iovec *local, const struct iovec *remote,
	unsigned int n)
{
	return reach_move(s, local, remote, n, true);
}
