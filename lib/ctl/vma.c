/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Linux 6.11 and later answer a query for one mapping (PROCMAP_QUERY) in a microsecond.  With older
 * kernels the text of all mappings is read, which takes 0.2 us a line.
 */
#include "karst_vma.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* As in linux/fs.h, which is too old on the build machines. */
struct query {
	uint64_t size;
	uint64_t query_flags;
	uint64_t query_addr;
	uint64_t vma_start;
	uint64_t vma_end;
	uint64_t vma_flags;
	uint64_t vma_page_size;
	uint64_t vma_offset;
	uint64_t inode;
	uint32_t dev_major;
	uint32_t dev_minor;
	uint32_t vma_name_size;
	uint32_t build_id_size;
	uint64_t vma_name_addr;
	uint64_t build_id_addr;
};

#define PAGE 4096u
#define HUGE (2u << 20)

#define QUERY         _IOWR('f', 17, struct query)
#define QUERY_READ    0x01u
#define QUERY_WRITE   0x02u
#define QUERY_EXEC    0x04u
#define QUERY_SHARED  0x08u
#define QUERY_OR_NEXT 0x10u

int
karst_vmas_open(struct karst_vmas *v, int process)
{
	int fd = openat(
		process, process == AT_FDCWD ? "/proc/self/maps" : "maps", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	karst_vmas_use(v, fd);
	return 0;
}

void
karst_vmas_use(struct karst_vmas *v, int fd)
{
	v->fd = fd;
	v->text = v->eof = false;
	v->at = v->got = 0;
	v->last.end = 0;
}

void
karst_vmas_close(struct karst_vmas *v)
{
	close(v->fd);
}

/* @return 1, 0, or -errno; -ENOTTY: the kernel does not support the query. */
static int
vma_query(const struct karst_vmas *v, uint64_t addr, struct karst_vma *vma)
{
	struct query q = {.size = sizeof(q), .query_flags = QUERY_OR_NEXT, .query_addr = addr};

	if (ioctl(v->fd, QUERY, &q) != 0)
		return errno == ENOENT ? 0 : -errno;
	*vma = (struct karst_vma){
		.start = q.vma_start,
		.end = q.vma_end,
		.off = q.vma_offset,
		.ino = q.inode,
		.major = q.dev_major,
		.minor = q.dev_minor,
		.page = (uint32_t)q.vma_page_size,
		.read = (q.vma_flags & QUERY_READ) != 0,
		.write = (q.vma_flags & QUERY_WRITE) != 0,
		.exec = (q.vma_flags & QUERY_EXEC) != 0,
		.shared = (q.vma_flags & QUERY_SHARED) != 0,
	};
	return 1;
}

/* --- the text --- */

/* Reads a line without its end; the rest of a long line is dropped.  @return 1; 0: no more lines;
 * -errno. */
static int
vma_read_line(struct karst_vmas *v, char *line, size_t size)
{
	size_t n = 0;

	for (;;) {
		ssize_t got;
		char c;

		if (v->at == v->got) {
			got = read(v->fd, v->buf, sizeof(v->buf));
			if (got <= 0)
				return got == 0 ? 0 : -errno;
			v->at = 0;
			v->got = (uint32_t)got;
		}
		c = v->buf[v->at++];
		if (c == '\n')
			break;
		if (n < size - 1)
			line[n++] = c;
	}
	line[n] = '\0';
	return 1;
}

/* The text does not contain the page size, so guesses the largest one that the ends are multiples
 * of. */
static uint32_t
guess_page(const struct karst_vma *vma)
{
	uint64_t bits = vma->start | vma->end | vma->off;
	uint32_t page = 1u << 30;

	if (!vma->shared)
		return PAGE;
	while ((bits & (page - 1)) != 0)
		page = page > HUGE ? HUGE : page > PAGE ? PAGE : 1;
	return page;
}

static int
read_vma(struct karst_vmas *v, struct karst_vma *vma)
{
	unsigned long long start, end, off, ino;
	unsigned int major, minor;
	char line[128], perm[5];
	int ret = vma_read_line(v, line, sizeof(line));

	if (ret != 1)
		return ret;
	if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu", &start, &end, perm, &off, &major, &minor,
		    &ino) != 7)
		return -EPROTO;
	*vma = (struct karst_vma){
		.start = start,
		.end = end,
		.off = off,
		.ino = ino,
		.major = major,
		.minor = minor,
		.read = perm[0] == 'r',
		.write = perm[1] == 'w',
		.exec = perm[2] == 'x',
		.shared = perm[3] == 's',
	};
	vma->page = guess_page(vma);
	return 1;
}

int
karst_vmas_next(struct karst_vmas *v, uint64_t addr, struct karst_vma *vma)
{
	int ret;

	if (!v->text) {
		ret = vma_query(v, addr, vma);
		if (ret != -ENOTTY)
			return ret;
		v->text = true;
	}
	while (v->last.end <= addr) {
		ret = read_vma(v, &v->last);
		if (ret != 1)
			return ret;
	}
	*vma = v->last;
	return 1;
}
