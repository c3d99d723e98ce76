/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What a piece of a program's memory is, and whether it can be mapped here.
 *
 * Nothing that a program says is believed: a descriptor is mapped only if it is a regular file (or
 * memory file) of a file system whose pages appear without the help of another program, opened
 * with the rights that are needed, and long enough.
 *
 * A shared mapping of the program is reached through /proc/PID/map_files.  An engine that runs as
 * root could open there what the program itself may not, so the thread takes on the program's user
 * and group for files meanwhile, and asks for no more than the program had when it opened the file,
 * which the link's own permission bits tell.  What cannot be opened so is copied instead: the
 * kernel then checks each access against the program's own mappings.
 */
#include "space_priv.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

#define PAGE      4096u
#define PAGE_MAX  (1u << 30)
#define MAX_PROBE 1024u

static bool
refuse(char *why, const char *what)
{
	snprintf(why, KARST_CTL_WHY, "%s", what);
	return false;
}

/* File systems on which a page fault waits for a disk at most: never for a program, as with FUSE,
 * nor for another machine. */
static bool
prompt(uint64_t type)
{
	static const uint32_t known[] = {TMPFS_MAGIC, HUGETLBFS_MAGIC, RAMFS_MAGIC,
		EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC,
		OVERLAYFS_SUPER_MAGIC};
	unsigned int i;

	for (i = 0; i < KARST_DIM(known); i++)
		if ((uint32_t)type == known[i])
			return true;
	return false;
}

/* Can @fd be mapped from @off on?  *page: of its mappings. */
static bool
mappable(int fd, uint64_t off, uint64_t len, uint32_t *page, char *why)
{
	struct statfs fs;
	struct stat st;

	if (fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0)
		return refuse(why, "the descriptor is not valid");
	if (!S_ISREG(st.st_mode))
		return refuse(why, "the descriptor is neither a memory file nor a regular file");
	if (!prompt((uint64_t)fs.f_type))
		return refuse(why,
			"the file's file system may keep the engine waiting: only tmpfs, "
			"hugetlbfs and local disks can be shared");
	*page = (uint32_t)fs.f_type == HUGETLBFS_MAGIC ? (uint32_t)fs.f_bsize : PAGE;
	if (!karst_is_pow2(*page) || *page > PAGE_MAX)
		return refuse(why, "the file's size of page is not supported");
	if (off > (uint64_t)st.st_size || len > (uint64_t)st.st_size - off)
		return refuse(why, "the piece ends behind the end of its file");
	return true;
}

static bool
whole_pages(const struct karst_ctl_piece *p, uint32_t page)
{
	return ((p->addr | p->len | p->file_off) & (page - 1)) == 0;
}

/* --- a descriptor that came with the message --- */

static int
open_fd(const struct karst_ctl_piece *p, const int *fds, unsigned int nfds, bool write,
	struct eng_source *src, char *why)
{
	int fd, mode;

	if (p->fd < 0 || (unsigned int)p->fd >= nfds) {
		snprintf(why, KARST_CTL_WHY, "piece names descriptor %d of %u", p->fd, nfds);
		return -EBADF;
	}
	fd = fds[p->fd];
	if (!mappable(fd, p->file_off, p->len, &src->page, why))
		return -EBADF;
	if (!whole_pages(p, src->page)) {
		snprintf(why, KARST_CTL_WHY,
			"a piece in a file is whole pages, here of %u bytes, but it is %#llx..+%#llx at "
			"%#llx",
			src->page, (unsigned long long)p->addr, (unsigned long long)p->len,
			(unsigned long long)p->file_off);
		return -EINVAL;
	}
	mode = fcntl(fd, F_GETFL);
	if (mode == -1 || (mode & O_PATH) != 0 || (mode & O_ACCMODE) == O_WRONLY ||
		(write && (mode & O_ACCMODE) != O_RDWR)) {
		refuse(why,
			write ? "the descriptor is not open for reading and writing"
			      : "the descriptor is not open for reading");
		return -EACCES;
	}
	src->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (src->fd < 0)
		return -errno;
	src->off = p->file_off;
	return 0;
}

/* --- a mapping of the program --- */

struct identity {
	gid_t group[64];
	int ngroups;
	uid_t uid;
	gid_t gid;
};

/* This thread's rights to files become the program's.  glibc's setgroups() is for all threads. */
static bool
identity_take(const struct karst_space *s, struct identity *old)
{
	*old = (struct identity){.ngroups = -1};
	if (s->uid == geteuid() && s->gid == getegid())
		return true;
	old->ngroups = getgroups(KARST_DIM(old->group), old->group);
	if (old->ngroups < 0)
		return false;
	old->gid = (gid_t)setfsgid(s->gid);
	old->uid = (uid_t)setfsuid(s->uid);
	/* they tell no errors: asking for an impossible one tells the present one */
	return (uid_t)setfsuid((uid_t)-1) == s->uid && (gid_t)setfsgid((gid_t)-1) == s->gid &&
		syscall(SYS_setgroups, (size_t)0, NULL) == 0;
}

static void
identity_return(const struct identity *old)
{
	if (old->ngroups < 0)
		return;
	setfsuid(old->uid);
	setfsgid(old->gid);
	/* should it fail, this thread may do less than before, not more */
	(void)syscall(SYS_setgroups, (size_t)old->ngroups, old->group);
}

/* Opens the file behind a mapping, if that is harmless; -1 else. */
static int
open_link(const struct karst_space *s, const char *link, bool write)
{
	struct stat own, file;
	char path[32];
	int fd, ret = -1;

	/* how the program had opened it */
	if (fstatat(s->procfd, link, &own, AT_SYMLINK_NOFOLLOW) != 0 ||
		(own.st_mode & S_IRUSR) == 0 || (write && (own.st_mode & S_IWUSR) == 0))
		return -1;
	/* O_PATH: opening devices and pipes may do things */
	fd = openat(s->procfd, link, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode)) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ret = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	}
	close(fd);
	return ret;
}

static void
open_vma(const struct karst_space *s, const struct karst_ctl_piece *p, bool write,
	struct eng_source *src)
{
	struct identity old;
	char link[64], why[KARST_CTL_WHY];
	int fd = -1;

	if (p->addr < p->vma_start || p->len > p->vma_end - p->addr)
		return;
	snprintf(link, sizeof(link), "map_files/%llx-%llx", (unsigned long long)p->vma_start,
		(unsigned long long)p->vma_end);
	if (identity_take(s, &old))
		fd = open_link(s, link, write);
	identity_return(&old);
	if (fd < 0)
		return;
	if (!mappable(fd, p->file_off, p->len, &src->page, why) || !whole_pages(p, src->page)) {
		close(fd);
		return;
	}
	src->fd = fd;
	src->off = p->file_off;
}

/* --- */

int
eng_piece_open(const struct karst_space *s, const struct karst_ctl_piece *ctl, const int *fds,
	unsigned int nfds, bool write, struct eng_source *src, char *why)
{
	*src = (struct eng_source){.ctl = ctl, .fd = -1};
	if (write && (ctl->flags & KARST_CTL_PIECE_RDONLY)) {
		snprintf(why, KARST_CTL_WHY,
			"memory at %#llx is read-only: it can be registered for reading alone",
			(unsigned long long)ctl->addr);
		return -EFAULT;
	}
	switch (ctl->kind) {
	case KARST_CTL_PIECE_COPY:
		return 0;
	case KARST_CTL_PIECE_FD:
		return open_fd(ctl, fds, nfds, write, src, why);
	case KARST_CTL_PIECE_VMA:
		open_vma(s, ctl, write, src);
		return 0;
	default:
		snprintf(why, KARST_CTL_WHY, "piece of unknown kind %u", ctl->kind);
		return -EINVAL;
	}
}

int
eng_piece_probe(struct karst_space *s, uint64_t addr, uint64_t len, char *why)
{
	struct iovec remote[MAX_PROBE], local[MAX_PROBE];
	uint64_t pages, step, at = addr, end = addr + len;
	uint8_t got[MAX_PROBE];
	unsigned int n = 0;
	ssize_t ret;

	/* a byte of each page; of a very large piece, of some: the rest is found out when used */
	pages = (len + PAGE - 1) / PAGE;
	step = PAGE * ((pages + MAX_PROBE - 3) / (MAX_PROBE - 2));
	for (; at < end && n < MAX_PROBE - 1; at += step, n++) {
		local[n] = (struct iovec){&got[n], 1};
		remote[n] = (struct iovec){(void *)(uintptr_t)at, 1};
	}
	local[n] = (struct iovec){&got[n], 1};
	remote[n++] = (struct iovec){(void *)(uintptr_t)(end - 1), 1};
	ret = eng_space_read(s, local, remote, n);
	if (ret == (ssize_t)n)
		return 0;
	snprintf(why, KARST_CTL_WHY, "the program has no readable memory at %p",
		ret >= 0 ? remote[ret].iov_base : remote[0].iov_base);
	return -EFAULT;
}
