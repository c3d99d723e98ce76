/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * How the engine reaches a program's address space: to copy, and to look at its mappings.
 *
 * Copies go through a descriptor of /proc/PID/mem, which the program opens itself and sends with
 * HELLO.  The kernel asked, when it was opened, whether the program may touch that memory, so
 * through it the engine reaches nothing that the program could not reach; whose the process number
 * is by now, and what that process has executed since, does not matter.  The descriptor belongs to
 * an address space: when the last process that runs in it has executed something else or is gone,
 * it moves nothing any more.  The engine itself needs no right to other processes' memory.
 *
 * All that is to be made sure is that it is such a file and no other, for the engine may write
 * where the program may not.  Names do not tell (a program can mount what it likes over a path), so
 * it is known by what no other file of proc can do: its position may be negative, because it is an
 * address, and it is open for writing.
 *
 * Writing through it disregards protection of private pages, and reading that of all, so protection
 * is looked at in the list of mappings: once when memory is registered, and each time when it is
 * registered on demand.  That is a courtesy to the program, whose own memory it is; nobody else is
 * harmed if it changes in between.
 *
 * That list, and the files of its shared mappings, are looked up under /proc/PID, by the engine,
 * for which the thread becomes the program's user, without CAP_SYS_PTRACE: what the kernel then
 * lets it open is what that user may look at.  Of /proc/PID it must be known that it is the
 * program's: the kernel has said so (SO_PEERPIDFD, Linux 6.5), or the descriptor of its memory was
 * opened there.
 */
#include "space_priv.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "karst_ctl_msg.h"

#define BATCH 256u /* parts of one call */

/* --- the program's user --- */

static bool
caps_get(struct __user_cap_data_struct *caps)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};

	return syscall(SYS_capget, &h, caps) == 0;
}

static bool
caps_set(const struct __user_cap_data_struct *caps)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};

	return syscall(SYS_capset, &h, caps) == 0;
}

bool
eng_identity_take(const struct karst_space *s, struct eng_identity *old)
{
	struct __user_cap_data_struct caps[2];

	*old = (struct eng_identity){.ngroups = -1};
	if (s->uid == geteuid() && s->gid == getegid())
		return true;
	if (!caps_get(old->caps))
		return false;
	memcpy(caps, old->caps, sizeof(caps));
	caps[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective &= ~CAP_TO_MASK(CAP_SYS_PTRACE);
	old->ngroups = getgroups(KARST_DIM(old->group), old->group);
	if (old->ngroups < 0 || !caps_set(caps))
		return false;
	old->gid = (gid_t)setfsgid(s->gid);
	old->uid = (uid_t)setfsuid(s->uid);
	/* they tell no errors: asking for an impossible one tells the present one.  glibc's
	 * setgroups() is for all threads. */
	return (uid_t)setfsuid((uid_t)-1) == s->uid && (gid_t)setfsgid((gid_t)-1) == s->gid &&
		syscall(SYS_setgroups, (size_t)0, NULL) == 0;
}

void
eng_identity_return(const struct eng_identity *old)
{
	if (old->ngroups < 0)
		return;
	setfsuid(old->uid);
	setfsgid(old->gid);
	/* should one fail, this thread may do less than before, not more */
	(void)syscall(SYS_setgroups, (size_t)old->ngroups, old->group);
	(void)caps_set(old->caps);
}

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

/* Was it opened in the /proc/PID that is held here? */
static bool
is_of_process(const struct karst_space *s, int fd)
{
	struct stat here, there;

	return s->procfd >= 0 && fstat(fd, &here) == 0 &&
		fstatat(s->procfd, "mem", &there, AT_SYMLINK_NOFOLLOW) == 0 &&
		here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

int
karst_space_reach(struct karst_space *s, int mem_fd, char *why)
{
	int copy;

	if (!is_memory(mem_fd))
		return karst_ctl_say(why, -EBADF,
			"the descriptor is not one of /proc/self/mem, open for reading and "
			"writing");
	copy = fcntl(mem_fd, F_DUPFD_CLOEXEC, 3);
	if (copy < 0)
		return karst_ctl_say(
			why, -errno, "the engine has no descriptors left (its ulimit -n)");
	/* a HELLO that failed later comes again */
	if (s->memfd >= 0)
		close(s->memfd);
	s->memfd = copy;
	s->certain |= is_of_process(s, mem_fd);
	return 0;
}

int
eng_space_maps(const struct karst_space *s)
{
	struct eng_identity old;
	int fd = -1;

	if (!s->certain)
		return -1;
	if (eng_identity_take(s, &old))
		fd = openat(s->procfd, "maps", O_RDONLY | O_CLOEXEC);
	eng_identity_return(&old);
	return fd;
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

/* Where in the local list one is. */
struct cursor {
	const struct iovec *iov;
	size_t off;
};

/* The next @bytes of it, or as many as BATCH parts have. */
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

/* Bytes of [at, at + len) that the program itself could touch so now. */
static uint64_t
permitted(struct karst_space *s, uint64_t at, uint64_t len, bool write)
{
	struct karst_vmas vmas;
	uint64_t reaches;

	if (s->mapsfd < 0 || lseek(s->mapsfd, 0, SEEK_SET) != 0)
		return len;
	karst_vmas_use(&vmas, s->mapsfd);
	(void)eng_space_may(&vmas, at, len, write, &reaches);
	return reaches;
}

/* One range of the program's.  @return bytes moved; fewer if not all are there; -errno */
static ssize_t
move_range(struct karst_space *s, struct cursor *c, uint64_t at, uint64_t len, bool write)
{
	struct iovec part[BATCH];
	uint64_t done = 0;

	while (done < len) {
		int n;
		size_t want = take_local(c, len - done, part, &n);
		ssize_t got = write ? pwritev(s->memfd, part, n, (off_t)(at + done))
				    : preadv(s->memfd, part, n, (off_t)(at + done));

		/* nobody runs in that address space any more */
		if (got == 0 && want > 0)
			return -ESRCH;
		if (got < 0)
			return done > 0 ? (ssize_t)done : -EFAULT;
		done += (uint64_t)got;
		if ((size_t)got < want)
			break;
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

		/* what adjoins goes in one call */
		for (next = i + 1; next < n && (uintptr_t)remote[next].iov_base == at + len; next++)
			len += remote[next].iov_len;
		may = look ? permitted(s, at, len, write) : len;
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
move(struct karst_space *s, const struct iovec *local, const struct iovec *remote, unsigned int n,
	bool write)
{
	ssize_t ret;

	if (s->memfd < 0)
		return -EPERM;
	/* relaxed: whoever uses a region on demand has its key, which came after this */
	if (atomic_load_explicit(&s->on_demand, memory_order_relaxed) == 0)
		return move_ranges(s, local, remote, n, write, false);
	/* a list that is read as text has one position */
	pthread_mutex_lock(&s->maps_lock);
	ret = move_ranges(s, local, remote, n, write, true);
	pthread_mutex_unlock(&s->maps_lock);
	return ret;
}

ssize_t
eng_space_read(struct karst_space *s, const struct iovec *local, const struct iovec *remote,
	unsigned int n)
{
	return move(s, local, remote, n, false);
}

ssize_t
eng_space_write(struct karst_space *s, const struct iovec *local, const struct iovec *remote,
	unsigned int n)
{
	return move(s, local, remote, n, true);
}
