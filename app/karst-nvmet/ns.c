/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "ns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nvme.h"

#define CHUNK 65536u /* bytes that are compared or written at a time */

static struct nt_ns *
ns_new(uint32_t shift, bool read_only)
{
	struct nt_ns *ns = calloc(1, sizeof(*ns));

	if (ns == NULL) {
		fprintf(stderr, "karst-nvmet: no memory\n");
		return NULL;
	}
	ns->fd = -1;
	ns->shift = shift;
	ns->read_only = read_only;
	return ns;
}

/* @return the size in bytes, or a negative errno. */
static int64_t
file_size(int fd)
{
	struct stat st;
	uint64_t bytes;

	if (fstat(fd, &st) != 0)
		return -errno;
	if (S_ISREG(st.st_mode))
		return st.st_size;
	if (!S_ISBLK(st.st_mode))
		return -ENOTBLK;
	return ioctl(fd, BLKGETSIZE64, &bytes) != 0 ? -errno : (int64_t)bytes;
}

/* Tries to punch a hole behind the end of the file; the file system refuses that if it cannot punch
 * holes. */
static bool
can_punch(int fd, int64_t bytes)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, bytes, 4096) == 0;
}

struct nt_ns *
nt_ns_file(const char *path, uint32_t shift, bool read_only)
{
	struct nt_ns *ns = ns_new(shift, read_only);
	int64_t bytes;

	if (ns == NULL)
		return NULL;
	ns->path = strdup(path);
	ns->fd = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (ns->fd < 0 || ns->path == NULL) {
		fprintf(stderr, "karst-nvmet: %s: %s\n", path, strerror(errno));
		goto fail;
	}
	bytes = file_size(ns->fd);
	if (bytes < 0) {
		fprintf(stderr,
			"karst-nvmet: %s: %s; a regular file or a block device is allowed\n", path,
			strerror((int)-bytes));
		goto fail;
	}
	if (bytes >> shift == 0) {
		fprintf(stderr,
			"karst-nvmet: %s has %lld bytes; at least a block of %u is needed\n", path,
			(long long)bytes, 1u << shift);
		goto fail;
	}
	atomic_init(&ns->blocks, (uint64_t)bytes >> shift);
	ns->punches = !read_only && can_punch(ns->fd, bytes);
	return ns;
fail:
	nt_ns_close(ns);
	return NULL;
}

struct nt_ns *
nt_ns_memory(uint64_t bytes, uint32_t shift, bool read_only)
{
	struct nt_ns *ns = ns_new(shift, read_only);
	void *memory;

	if (ns == NULL)
		return NULL;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED) {
		fprintf(stderr, "karst-nvmet: %llu bytes of memory: %s\n",
			(unsigned long long)bytes, strerror(errno));
		nt_ns_close(ns);
		return NULL;
	}
	ns->memory = memory;
	ns->mapped = bytes;
	atomic_init(&ns->blocks, bytes >> shift);
	ns->punches = true;
	return ns;
}

void
nt_ns_close(struct nt_ns *ns)
{
	if (ns->memory != NULL)
		munmap(ns->memory, ns->mapped);
	if (ns->fd >= 0)
		close(ns->fd);
	free(ns->path);
	free(ns);
}

/* FNV-1a, which is sufficient to distinguish a few namespaces. */
static uint64_t
ns_hash(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len-- > 0)
		h = (h ^ *p++) * UINT64_C(0x100000001b3);
	return h;
}

void
nt_ns_name(struct nt_ns *ns, const char *nqn, uint32_t nsid)
{
	const char *path = ns->path == NULL ? "memory" : ns->path;
	uint64_t half[2] = {UINT64_C(0xcbf29ce484222325), UINT64_C(0x9ae16a3b2f90404f)};
	int i;

	ns->nsid = nsid;
	for (i = 0; i < 2; i++) {
		half[i] = ns_hash(half[i], nqn, strlen(nqn) + 1);
		half[i] = ns_hash(half[i], path, strlen(path) + 1);
		half[i] = ns_hash(half[i], &nsid, sizeof(nsid));
	}
	memcpy(ns->uuid, half, sizeof(ns->uuid));
	ns->uuid[6] = (ns->uuid[6] & 0x0f) | 0x80; /* version 8: custom */
	ns->uuid[8] = (ns->uuid[8] & 0x3f) | 0x80;
}

bool
nt_ns_refresh(struct nt_ns *ns)
{
	int64_t bytes = ns->fd < 0 ? -EBADF : file_size(ns->fd);
	uint64_t blocks;

	if (bytes < 0)
		return false;
	blocks = (uint64_t)bytes >> ns->shift;
	return atomic_exchange_explicit(&ns->blocks, blocks, memory_order_relaxed) != blocks;
}

static int
read_all(int fd, uint64_t at, void *data, uint32_t len)
{
	uint8_t *p = data;

	while (len > 0) {
		ssize_t n = pread(fd, p, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		at += (uint64_t)n;
		len -= (uint32_t)n;
	}
	return 0;
}

static int
write_all(int fd, uint64_t at, const void *data, uint32_t len)
{
	const uint8_t *p = data;

	while (len > 0) {
		ssize_t n = pwrite(fd, p, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		at += (uint64_t)n;
		len -= (uint32_t)n;
	}
	return 0;
}

int
nt_ns_read(struct nt_ns *ns, uint64_t lba, void *data, uint32_t len)
{
	if (ns->memory == NULL)
		return read_all(ns->fd, lba << ns->shift, data, len);
	memcpy(data, ns->memory + (lba << ns->shift), len);
	return 0;
}

int
nt_ns_write(struct nt_ns *ns, uint64_t lba, const void *data, uint32_t len)
{
	if (ns->memory == NULL)
		return write_all(ns->fd, lba << ns->shift, data, len);
	memcpy(ns->memory + (lba << ns->shift), data, len);
	return 0;
}

int
nt_ns_compare(struct nt_ns *ns, uint64_t lba, const void *data, uint32_t len)
{
	const uint8_t *p = data;
	uint64_t at = lba << ns->shift;
	uint8_t *chunk;
	int rc = 0;

	if (ns->memory != NULL)
		return memcmp(ns->memory + at, data, len) == 0 ? 0 : -EILSEQ;
	chunk = malloc(CHUNK);
	if (chunk == NULL)
		return -ENOMEM;
	while (rc == 0 && len > 0) {
		uint32_t n = len < CHUNK ? len : CHUNK;

		rc = read_all(ns->fd, at, chunk, n);
		if (rc == 0 && memcmp(chunk, p, n) != 0)
			rc = -EILSEQ;
		p += n;
		at += n;
		len -= n;
	}
	free(chunk);
	return rc;
}

int
nt_ns_zero(struct nt_ns *ns, uint64_t lba, uint64_t n)
{
	static const uint8_t zeroes[CHUNK];
	uint64_t at = lba << ns->shift, len = n << ns->shift;
	int rc = 0;

	if (ns->memory != NULL) {
		memset(ns->memory + at, 0, len);
		return 0;
	}
	if (len == 0 ||
		fallocate(ns->fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, (off_t)at,
			(off_t)len) == 0)
		return 0;
	while (rc == 0 && len > 0) {
		uint32_t part = len < CHUNK ? (uint32_t)len : CHUNK;

		rc = write_all(ns->fd, at, zeroes, part);
		at += part;
		len -= part;
	}
	return rc;
}

/* Returns whole pages to the kernel, so that a host that discards all of a large disk, as mkfs
 * does, does not fill memory with zeroes. */
static void
give_back(struct nt_ns *ns, uint64_t at, uint64_t len)
{
	uint64_t first = (at + NVME_PAGE - 1) / NVME_PAGE * NVME_PAGE;
	uint64_t end = (at + len) / NVME_PAGE * NVME_PAGE;

	if (first >= end || madvise(ns->memory + first, end - first, MADV_DONTNEED) != 0) {
		memset(ns->memory + at, 0, len);
		return;
	}
	memset(ns->memory + at, 0, first - at);
	memset(ns->memory + end, 0, at + len - end);
}

void
nt_ns_deallocate(struct nt_ns *ns, uint64_t lba, uint64_t n)
{
	uint64_t at = lba << ns->shift, len = n << ns->shift;

	if (ns->memory != NULL)
		give_back(ns, at, len);
	else if (ns->punches && len > 0 &&
		fallocate(ns->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
			(off_t)len) != 0)
		(void)nt_ns_zero(ns, lba, n); /* the namespace promises that deallocated blocks
					       * read as zeroes */
}

int
nt_ns_flush(struct nt_ns *ns)
{
	if (ns->fd >= 0 && !ns->read_only && fdatasync(ns->fd) != 0)
		return -errno;
	return 0;
}
