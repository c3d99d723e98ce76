/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The file is sparse and sealed against shrinking, so that no process can take pages away from the
 * engine.  It is divided into blocks whose sizes are powers of two and which are never merged; a
 * freed block is used for the next request of its size.  That wastes only offsets, of which there
 * are enough.
 */
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "karst_mutex.h"
#include "sys.h"

#define ORDERS    48u
#define GROW      (1ull << 30)
#define MAX_BYTES (1ull << 46)

/* Free blocks of one size. */
struct stack {
	uint64_t *off;
	uint32_t n, room;
};

/* Process-wide, as the memory is; under lock. */
static struct {
	struct karst_mutex lock;
	int fd; /* 0: not created yet */
	dev_t dev;
	ino_t ino;
	uint64_t bytes; /* length of the file */
	uint64_t used;
	struct stack free[ORDERS];
} file = {.lock = KARST_MUTEX_INITIALIZER};

void
cli_pages_lock(void)
{
	karst_mutex_lock(&file.lock);
}

void
cli_pages_unlock(void)
{
	karst_mutex_unlock(&file.lock);
}

void
cli_pages_lock_reset(void)
{
	karst_mutex_reset(&file.lock);
}

int
cli_pages_fd(void)
{
	struct stat st;
	int fd;

	if (file.fd > 0)
		return file.fd;
	fd = memfd_create("karst", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0 || fstat(fd, &st) != 0) {
		int err = errno;

		close(fd);
		return -err;
	}
	file.fd = fd;
	file.dev = st.st_dev;
	file.ino = st.st_ino;
	file.bytes = file.used = 0;
	return fd;
}

bool
cli_pages_own(const struct karst_vma *vma)
{
	return file.fd > 0 && vma->shared && vma->ino == file.ino &&
		vma->major == major(file.dev) && vma->minor == minor(file.dev);
}

bool
cli_pages_exist(uint64_t off, uint64_t len)
{
	off_t hole = lseek(file.fd, (off_t)off, SEEK_HOLE);

	return hole >= 0 && (uint64_t)hole >= off + len;
}

void
cli_pages_forget(void)
{
	unsigned int i;

	if (file.fd > 0)
		close(file.fd);
	for (i = 0; i < ORDERS; i++) {
		free(file.free[i].off);
		file.free[i] = (struct stack){0};
	}
	file.fd = 0;
}

/* --- blocks --- */

static int
pages_grow(uint64_t to)
{
	uint64_t bytes = (to + GROW - 1) & ~(GROW - 1);
	struct rlimit limit;

	if (to <= file.bytes)
		return 0;
	/* exceeding the limit would raise SIGXFSZ */
	if (bytes > MAX_BYTES || (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes))
		return -ENOMEM;
	if (ftruncate(file.fd, (off_t)bytes) != 0)
		return -errno;
	file.bytes = bytes;
	return 0;
}

static unsigned int
order_of(uint64_t bytes)
{
	return bytes <= CLI_PAGE ? 12 : 64 - (unsigned int)__builtin_clzll(bytes - 1);
}

int
cli_pages_take(uint64_t len, uint64_t addr, struct cli_block *b)
{
	uint64_t lead = len >= CLI_HUGE ? addr & (CLI_HUGE - 1) : 0, at;
	unsigned int order;
	struct stack *s;
	int ret = cli_pages_fd();

	if (ret < 0)
		return ret;
	if (len > MAX_BYTES / 4)
		return -ENOMEM;
	order = order_of(len + lead);
	s = &file.free[order];
	if (s->n > 0) {
		at = s->off[--s->n];
	} else {
		at = (file.used + (1ull << order) - 1) & ~((1ull << order) - 1);
		ret = pages_grow(at + (1ull << order));
		if (ret < 0)
			return ret;
		file.used = at + (1ull << order);
	}
	*b = (struct cli_block){.off = at + lead, .len = len, .reserved = 1ull << order};
	return 0;
}

void
cli_pages_give(const struct cli_block *b)
{
	struct stack *s = &file.free[order_of(b->reserved)];

	/* a block that cannot be kept in the list is never used again: its memory is free anyway */
	if (fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)b->off,
		    (off_t)b->len) != 0)
		return;
	if (s->n == s->room) {
		uint32_t room = s->room == 0 ? 16 : 2 * s->room;
		uint64_t *off = realloc(s->off, room * sizeof(*off));

		if (off == NULL)
			return;
		s->off = off;
		s->room = room;
	}
	s->off[s->n++] = b->off & ~(b->reserved - 1);
}

/* --- mapping --- */

void *
cli_pages_map(uint64_t len, uint64_t lead, const struct cli_block *b)
{
	int prot = PROT_READ | PROT_WRITE;
	int flags = b != NULL ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	uint64_t room = len + (len >= CLI_HUGE ? CLI_HUGE : 0), skip;
	uint8_t *p =
		sys_mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	skip = len >= CLI_HUGE ? (lead - (uintptr_t)p) & (CLI_HUGE - 1) : 0;
	if (sys_mmap(p + skip, len, prot, flags | MAP_FIXED, b != NULL ? file.fd : -1,
		    b != NULL ? b->off : 0) == MAP_FAILED) {
		sys_munmap(p, room);
		return NULL;
	}
	if (skip != 0)
		sys_munmap(p, skip);
	if (room - skip - len != 0)
		sys_munmap(p + skip + len, room - skip - len);
	if (len >= CLI_HUGE)
		sys_madvise(p + skip, len, MADV_HUGEPAGE);
	return p + skip;
}
