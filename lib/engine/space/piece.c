/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Determines what a piece of a program's memory is, and whether it can be mapped here.
 *
 * Nothing that a program sends is trusted: a descriptor is mapped only if it is a file of tmpfs or
 * hugetlbfs (as all memory files are), whose page faults wait for no other process, if it was
 * opened with the necessary rights, and if it is long enough.
 *
 * A shared mapping of the program is opened through /proc/PID/map_files, with the program's own
 * rights (karst_files.h).  A mapping that cannot be opened in this manner is copied instead.
 */
#include "space_priv.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "karst_ctl_msg.h"

#define PAGE      4096u
#define PAGE_MAX  (1u << 30)
#define MAX_PROBE 1024u

static bool
piece_refuse(char *why, const char *what)
{
	snprintf(why, KARST_CTL_WHY, "%s", what);
	return false;
}

/* Whether @fd can be mapped from @off on.  *page: page size of its mappings. */
static bool
piece_mappable(int fd, uint64_t off, uint64_t len, uint32_t *page, char *why)
{
	struct statfs fs;
	struct stat st;

	if (fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0)
		return piece_refuse(why, "the descriptor is not valid");
	if (!S_ISREG(st.st_mode))
		return piece_refuse(
			why, "the descriptor is neither a memory file nor a regular file");
	if (!karst_files_in_memory(fd))
		return piece_refuse(why,
			"the file is not in memory: only those of tmpfs and hugetlbfs can be "
			"shared");
	*page = (uint32_t)fs.f_type == HUGETLBFS_MAGIC ? (uint32_t)fs.f_bsize : PAGE;
	if (!karst_is_pow2(*page) || *page > PAGE_MAX)
		return piece_refuse(why, "the file's size of page is not supported");
	if (off > (uint64_t)st.st_size || len > (uint64_t)st.st_size - off)
		return piece_refuse(why, "the piece ends behind the end of its file");
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
	if (!piece_mappable(fd, p->file_off, p->len, &src->page, why))
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
		piece_refuse(why,
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

static void
open_vma(const struct karst_space *s, const struct karst_ctl_piece *p, bool write,
	struct eng_source *src)
{
	const struct karst_files_ask ask = {
		.kind = KARST_FILES_MAPPING,
		.write = write,
		.start = p->vma_start,
		.end = p->vma_end,
		.addr = p->addr,
		.len = p->len,
		.off = p->file_off,
	};
	char why[KARST_CTL_WHY];
	int fd;

	if (p->addr < p->vma_start || p->len > p->vma_end - p->addr)
		return;
	fd = eng_space_open(s, &ask);
	if (fd < 0)
		return;
	if (!piece_mappable(fd, p->file_off, p->len, &src->page, why) ||
		!whole_pages(p, src->page)) {
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
	*src = (struct eng_source){.ctl = ctl, .addr = ctl->addr, .len = ctl->len, .fd = -1};
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

/* Checks the program's own rights in the range. */
static int
check_rights(const struct karst_space *s, uint64_t addr, uint64_t len, bool write, char *why)
{
	struct karst_vmas vmas;
	uint64_t reaches;
	bool may;
	int fd = eng_space_maps(s);

	if (fd < 0)
		return 0;
	karst_vmas_use(&vmas, fd);
	may = eng_space_may(&vmas, addr, len, write, &reaches);
	karst_vmas_close(&vmas);
	if (may)
		return 0;
	return karst_ctl_reason(why, -EFAULT, "the program has no %s memory at %#llx",
		write ? "writable" : "readable", (unsigned long long)(addr + reaches));
}

int
eng_piece_probe(struct karst_space *s, uint64_t addr, uint64_t len, bool write, char *why)
{
	struct iovec remote[MAX_PROBE], local[MAX_PROBE];
	uint64_t pages, step, at = addr, end = addr + len;
	uint8_t got[MAX_PROBE];
	unsigned int n = 0;
	ssize_t ret;

	if (s->memfd < 0)
		return karst_ctl_reason(why, -EPERM,
			"memory at %#llx would have to be copied, but the program has sent no "
			"descriptor of its memory (/proc/self/mem, which a program that has "
			"changed its user may open after prctl(PR_SET_DUMPABLE, 1))",
			(unsigned long long)addr);
	ret = check_rights(s, addr, len, write, why);
	if (ret != 0)
		return (int)ret;
	/* a byte of each page, or of some pages of a very large piece: errors in the rest show when
	 * it is used */
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
	return karst_ctl_reason(why, -EFAULT, "the program has no readable memory at %p",
		ret >= 0 ? remote[ret].iov_base : remote[0].iov_base);
}
