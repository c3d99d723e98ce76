/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The reserved range is cut into blocks of powers of two, each aligned to its size, as in a buddy
 * allocator that never merges: a block that is given back serves the next window of its size.
 * Addresses cost nothing, so what this wastes does not matter; what it saves is that a huge page
 * of the other process can be a huge page here, because both addresses agree in their low bits.
 *
 * table[] has one word for each granule of the range: 0, a window's address, or, of a free block,
 * the next free one of that size (odd).  The table, too, is only reserved, and exists as far as it
 * was used.
 *
 * Words change under a lock.  An lcore looks at one only while a key names the window, and such a
 * key appears after the word and goes before it.
 */
#include "window.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
#define RANGE_MAX (1ull << 37) /* its shadow leaves no room for more */
#else
#define RANGE_MAX (1ull << 43)
#endif
#define RANGE_MIN (1ull << 34)
#define GRANULE   (1ull << 16)
#define ORDERS    44u

/* Of the process, since it is the process that has addresses and one handler for SIGBUS, which is
 * told nothing but an address. */
static struct {
	uint8_t *base;
	uint64_t bytes;
	uint64_t used; /* from base on, in blocks that were given out once */
	_Atomic uintptr_t *table;
	uint64_t free[ORDERS]; /* first free block by log2 of its size: offset + 1; 0: none */
	struct sigaction before;
	pthread_mutex_t lock;
} range = {.lock = PTHREAD_MUTEX_INITIALIZER};

_Atomic unsigned int eng_window_broken;

static _Atomic uintptr_t *
word_of(const void *p)
{
	uint64_t off = (uint64_t)((const uint8_t *)p - range.base);

	/* below the range: a huge number */
	return off < range.bytes ? &range.table[off / GRANULE] : NULL;
}

struct eng_window *
eng_window_of(const void *p)
{
	_Atomic uintptr_t *word = word_of(p);
	/* relaxed: the key, or the fault, came after the word */
	uintptr_t v = word != NULL ? atomic_load_explicit(word, memory_order_relaxed) : 0;

	return (v & 1) == 0 ? (struct eng_window *)v : NULL;
}

const struct eng_piece *
eng_window_piece(const struct eng_window *w, uint64_t off)
{
	unsigned int lo = 0, hi = w->npieces - 1;

	while (lo < hi) {
		unsigned int mid = (lo + hi + 1) / 2;

		if (w->piece[mid].off <= off)
			lo = mid;
		else
			hi = mid - 1;
	}
	return &w->piece[lo];
}

/* --- pages that are taken away --- */

/* Puts zeros where a page of @p was.  System calls only. */
static bool
mend(const void *p)
{
	struct eng_window *w = eng_window_of(p);
	const struct eng_piece *piece;
	uintptr_t at;
	int prot;

	if (w == NULL || (uint64_t)((const uint8_t *)p - w->base) >= w->bytes)
		return false;
	piece = eng_window_piece(w, (uint64_t)((const uint8_t *)p - w->base));
	if (piece->page == 0)
		return false;
	prot = piece->writable ? PROT_READ | PROT_WRITE : PROT_READ;
	at = (uintptr_t)p & ~(uintptr_t)(piece->page - 1);
	/* First: an lcore that reads the zeros, and then asks, is told. */
	w->broken(w);
	atomic_fetch_add(&eng_window_broken, 1);
	return syscall(SYS_mmap, at, (size_t)piece->page, prot,
		       MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != -1;
}

static void
on_sigbus(int sig, siginfo_t *info, void *ctx)
{
	int err = errno;

	if (mend(info->si_addr)) {
		errno = err;
		return;
	}
	/* somebody else's: as if this handler were not there */
	if (range.before.sa_flags & SA_SIGINFO) {
		range.before.sa_sigaction(sig, info, ctx);
	} else if (range.before.sa_handler != SIG_DFL && range.before.sa_handler != SIG_IGN) {
		range.before.sa_handler(sig);
	} else {
		sigaction(sig, &range.before, NULL); /* the access happens again, and ends it */
	}
}

/* --- reserving --- */

static void *
reserve(size_t bytes, int prot)
{
	void *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_DONTDUMP);
	return p;
}

/* A range of @bytes that begins with a multiple of @bytes, so that blocks are aligned. */
static bool
reserve_range(uint64_t bytes)
{
	uint8_t *p = reserve(2 * bytes, PROT_NONE);
	uint64_t head;

	if (p == NULL)
		return false;
	head = -(uintptr_t)p & (bytes - 1);
	if (head != 0)
		munmap(p, head);
	munmap(p + head + bytes, bytes - head);
	range.table = reserve(bytes / GRANULE * sizeof(range.table[0]), PROT_READ | PROT_WRITE);
	if (range.table == NULL) {
		munmap(p + head, bytes);
		return false;
	}
	range.base = p + head;
	range.bytes = bytes;
	return true;
}

static int
init_locked(void)
{
	struct sigaction sa = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	uint64_t bytes;

	if (range.base != NULL)
		return 0;
	for (bytes = RANGE_MAX; bytes >= RANGE_MIN && !reserve_range(bytes); bytes /= 2)
		;
	if (range.base == NULL)
		return -ENOMEM;
	sigemptyset(&sa.sa_mask);
	sigaction(SIGBUS, &sa, &range.before);
	return 0;
}

int
eng_window_init(void)
{
	int ret;

	pthread_mutex_lock(&range.lock);
	ret = init_locked();
	pthread_mutex_unlock(&range.lock);
	return ret;
}

/* --- blocks --- */

static int
block_take(unsigned int order, uint64_t *off)
{
	uint64_t bytes = 1ull << order;

	if (range.free[order] != 0) {
		*off = range.free[order] - 1;
		range.free[order] = range.table[*off / GRANULE] >> 1;
		return 0;
	}
	*off = (range.used + bytes - 1) & ~(bytes - 1);
	if (*off > range.bytes || bytes > range.bytes - *off)
		return -ENOMEM;
	range.used = *off + bytes;
	return 0;
}

static void
block_give(unsigned int order, uint64_t off)
{
	/* relaxed: under the lock */
	atomic_store_explicit(
		&range.table[off / GRANULE], range.free[order] << 1 | 1, memory_order_relaxed);
	range.free[order] = off + 1;
}

static void
fill(const struct eng_window *w, uintptr_t v)
{
	_Atomic uintptr_t *word = word_of(w->base);
	uint64_t i, n = ((w->base - range.base) % GRANULE + w->bytes + GRANULE - 1) / GRANULE;

	for (i = 0; i < n; i++)
		atomic_store_explicit(&word[i], v, memory_order_relaxed);
}

int
eng_window_alloc(struct eng_window *w, uint64_t align, uint64_t lead)
{
	uint64_t need = w->bytes > UINT64_MAX - lead ? UINT64_MAX : w->bytes + lead, off = 0;
	unsigned int order = 16;
	int ret = -ENOMEM;

	assert(lead < align);
	while (order < ORDERS && (1ull << order < need || 1ull << order < align))
		order++;
	pthread_mutex_lock(&range.lock);
	if (order < ORDERS)
		ret = block_take(order, &off);
	if (ret == 0) {
		w->base = range.base + off + lead;
		w->reserved = 1ull << order;
		fill(w, (uintptr_t)w);
	}
	pthread_mutex_unlock(&range.lock);
	return ret;
}

void
eng_window_free(struct eng_window *w)
{
	uint64_t off = (uint64_t)(w->base - range.base) & ~(w->reserved - 1);
	/* one mapping again, so that the kernel merges it with its neighbours */
	void *p = mmap(range.base + off, w->reserved, PROT_NONE,
		MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	pthread_mutex_lock(&range.lock);
	fill(w, 0);
	/* what could not be unmapped is not given out again */
	if (p != MAP_FAILED)
		block_give((unsigned int)__builtin_ctzll(w->reserved), off);
	pthread_mutex_unlock(&range.lock);
}
