/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The reserved range is a buddy system: blocks of powers of two, each aligned to its size, which
 * are split when a smaller one is needed and merged when both halves are free.  Addresses are
 * cheap, so the waste does not matter; in return a huge page of the other process can be a huge
 * page here, because both addresses agree in their low bits.
 *
 * table[] has one word for each granule of the range: 0, a window's address, or, for the first
 * granule of a free block, its order and its neighbours in the list of that order (odd).  The
 * table, too, is only reserved, and has pages only where it is used.
 *
 * Pages of a file that do not exist are never created here, where they would be charged to this
 * process: mappings are registered with a userfaultfd that raises SIGBUS for them.  So a hole that
 * a program punches into its files later is detected like a truncation.
 *
 * Words of free blocks change under a lock.  Words of a window do not, and a large window has
 * millions: no other thread uses its block.  An lcore reads such a word only while a key refers to
 * the window; the key appears after the word is set and is removed before the word is cleared.
 */
#include "window.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "karst_log.h"

#ifdef __SANITIZE_THREAD__
#define RANGE_MAX (1ull << 37) /* the shadow memory of ThreadSanitizer leaves no room for more */
#else
#define RANGE_MAX (1ull << 43)
#endif
#define RANGE_MIN   (1ull << 34)
#define GRANULE     (1ull << 16)
#define ORDERS      44u
#define TABLE_LARGE (1u << 17) /* words */
#define MEND_BYTES  (1ull << 24)

/* Global, since the process has one address space and one handler for SIGBUS, which gets only an
 * address. */
static struct {
	uint8_t *base;
	uint64_t bytes;
	_Atomic uintptr_t *table;
	uint32_t free[ORDERS]; /* first free block by log2 of its size: granule + 1; 0: none */
	int guard;             /* userfaultfd; -1: none, so nothing is mapped */
	int sink;              /* file of zeros, used when no private memory is available */
	_Atomic bool sunk;
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

/* Maps zeros over @len bytes at @at, in one mapping. */
static bool
put_zeros(uintptr_t at, uint64_t len, int prot)
{
	long p = syscall(SYS_mmap, at, len, prot,
		MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == -1 && range.sink >= 0) {
		/* private memory of the process is limited; this counts as a file */
		p = syscall(SYS_mmap, at, len, prot, MAP_FIXED | MAP_SHARED, range.sink,
			at - (uintptr_t)range.base);
		if (p != -1)
			atomic_store(&range.sunk, true);
	}
	if (p != -1)
		syscall(SYS_madvise, at, len, MADV_DONTDUMP);
	return p != -1;
}

/*
 * Replaces the piece of @p by zeros, all of it, so that a program causes at most one fault for each
 * of its pieces, and no mapping is split; of a long piece only MEND_BYTES, since the thread that
 * takes the fault may be an lcore, and pages that still exist have to be unmapped.  System calls
 * only.
 */
static bool
window_mend(const void *p)
{
	struct eng_window *w = eng_window_of(p);
	const struct eng_piece *piece;
	uint64_t from, part;

	if (w == NULL || (uint64_t)((const uint8_t *)p - w->base) >= w->bytes)
		return false;
	piece = eng_window_piece(w, (uint64_t)((const uint8_t *)p - w->base));
	if (piece->page == 0)
		return false;
	/* First: an lcore that reads the zeros and then checks sees the failure. */
	w->broken(w);
	atomic_fetch_add(&eng_window_broken, 1);
	/* If the kernel has no memory even for that, the access happens again, and this is repeated
	 * until there is memory: waiting is better than ending the process. */
	part = karst_max_u64(MEND_BYTES, piece->page);
	from = (uint64_t)((const uint8_t *)p - w->base) - piece->off;
	from = piece->off + from / part * part;
	if (!put_zeros((uintptr_t)w->base + from,
		    karst_min_u64(part, piece->off + piece->len - from),
		    piece->writable ? PROT_READ | PROT_WRITE : PROT_READ))
		sched_yield();
	return true;
}

static void
on_sigbus(int sig, siginfo_t *info, void *ctx)
{
	int err = errno;

	if (window_mend(info->si_addr)) {
		errno = err;
		return;
	}
	/* not a fault of a window: act as if this handler were not installed */
	if (range.before.sa_flags & SA_SIGINFO) {
		range.before.sa_sigaction(sig, info, ctx);
	} else if (range.before.sa_handler != SIG_DFL && range.before.sa_handler != SIG_IGN) {
		range.before.sa_handler(sig);
	} else {
		sigaction(sig, &range.before, NULL); /* the access happens again, and ends the
						      * process */
	}
}

/* --- mapping --- */

/* Opens a userfaultfd that raises SIGBUS in this process where a page does not exist.  Needs no
 * privilege. */
static int
open_guard(void)
{
	struct uffdio_api api = {.api = UFFD_API,
		.features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM |
			UFFD_FEATURE_MISSING_HUGETLBFS};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

	/* before Linux 5.11 */
	if (fd < 0 && errno == EINVAL)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) != 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Fills the page tables, so that no lcore ever takes a fault there.  @return false: a page is
 * missing. */
static bool
window_populate(void *at, uint64_t len, uint32_t page, int fd, uint64_t off, bool write)
{
	off_t hole;

	if (madvise(at, len, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0)
		return true;
	/* before Linux 5.14; SEEK_HOLE does not work for huge pages */
	if (errno != EINVAL || page > 4096)
		return false;
	hole = lseek(fd, (off_t)off, SEEK_HOLE);
	return hole >= 0 && (uint64_t)hole >= off + len;
}

static bool
window_unmap(void *at, uint64_t len)
{
	if (mmap(at, len, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		    0) == MAP_FAILED)
		return false;
	madvise(at, len, MADV_DONTDUMP);
	return true;
}

bool
eng_window_map(void *at, uint64_t len, uint32_t page, int fd, uint64_t off, bool write)
{
	struct uffdio_register reg = {
		.range = {(uintptr_t)at, len}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	int prot = PROT_READ | (write ? PROT_WRITE : 0);
	/* a userfaultfd requires mappings that may be written in principle; pages of a private
	 * mapping that is never written remain the file's */
	int flags = MAP_FIXED | (write ? MAP_SHARED : MAP_PRIVATE | MAP_NORESERVE);

	if (range.guard < 0 || mmap(at, len, prot, flags, fd, (off_t)off) == MAP_FAILED)
		return false;
	madvise(at, len, MADV_DONTDUMP);
	if (len >= 2u << 20)
		madvise(at, len, MADV_HUGEPAGE);
	if (ioctl(range.guard, UFFDIO_REGISTER, &reg) == 0 &&
		window_populate(at, len, page, fd, off, write))
		return true;
	window_unmap(at, len);
	return false;
}

/* --- blocks --- */

/* The word of a free block: 1, its order, and its neighbours as granule + 1; 0: none. */
#define LINK_BITS 28u
#define LINK_MASK ((1ull << LINK_BITS) - 1)

static_assert(RANGE_MAX / GRANULE < LINK_MASK, "links fit");

static uintptr_t
free_word(unsigned int order, uint32_t next, uint32_t prev)
{
	return 1 | (uintptr_t)order << 1 | (uintptr_t)next << 7 |
		(uintptr_t)prev << (7 + LINK_BITS);
}

static uint32_t
next_of(uintptr_t word)
{
	return (uint32_t)(word >> 7 & LINK_MASK);
}

static uint32_t
prev_of(uintptr_t word)
{
	return (uint32_t)(word >> (7 + LINK_BITS) & LINK_MASK);
}

/* Under the lock, so relaxed is enough. */
static uintptr_t
get_word(uint64_t granule)
{
	return atomic_load_explicit(&range.table[granule], memory_order_relaxed);
}

static void
set_word(uint64_t granule, uintptr_t v)
{
	atomic_store_explicit(&range.table[granule], v, memory_order_relaxed);
}

static void
list_add(unsigned int order, uint64_t off)
{
	uint32_t at = (uint32_t)(off / GRANULE), next = range.free[order];

	set_word(at, free_word(order, next, 0));
	if (next != 0)
		set_word(next - 1, free_word(order, next_of(get_word(next - 1)), at + 1));
	range.free[order] = at + 1;
}

static void
list_del(unsigned int order, uint64_t off)
{
	uint32_t at = (uint32_t)(off / GRANULE);
	uint32_t next = next_of(get_word(at)), prev = prev_of(get_word(at));

	if (prev != 0)
		set_word(prev - 1, free_word(order, next, prev_of(get_word(prev - 1))));
	else
		range.free[order] = next;
	if (next != 0)
		set_word(next - 1, free_word(order, next_of(get_word(next - 1)), prev));
	set_word(at, 0);
}

static bool
is_free(unsigned int order, uint64_t off)
{
	uintptr_t word = get_word(off / GRANULE);

	return (word & 1) != 0 && (word >> 1 & 63) == order;
}

static int
block_take(unsigned int order, uint64_t *off)
{
	unsigned int have = order;

	while (have < ORDERS && range.free[have] == 0)
		have++;
	if (have == ORDERS)
		return -ENOMEM;
	*off = (range.free[have] - 1) * GRANULE;
	list_del(have, *off);
	while (have > order) {
		have--;
		list_add(have, *off + (1ull << have));
	}
	return 0;
}

static void
block_give(unsigned int order, uint64_t off)
{
	for (; 1ull << order < range.bytes && is_free(order, off ^ 1ull << order); order++) {
		list_del(order, off ^ 1ull << order);
		off &= ~(1ull << order);
	}
	list_add(order, off);
}

/* --- reserving --- */

static void *
range_reserve(size_t bytes, int prot)
{
	void *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_DONTDUMP);
	return p;
}

/* Reserves a range of @bytes at a multiple of @bytes, so that blocks are aligned. */
static bool
reserve_range(uint64_t bytes)
{
	uint8_t *p = range_reserve(2 * bytes, PROT_NONE);
	uint64_t head;

	if (p == NULL)
		return false;
	head = -(uintptr_t)p & (bytes - 1);
	if (head != 0)
		munmap(p, head);
	munmap(p + head + bytes, bytes - head);
	range.table =
		range_reserve(bytes / GRANULE * sizeof(range.table[0]), PROT_READ | PROT_WRITE);
	if (range.table == NULL) {
		munmap(p + head, bytes);
		return false;
	}
	range.base = p + head;
	range.bytes = bytes;
	list_add((unsigned int)__builtin_ctzll(bytes), 0);
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
	range.guard = open_guard();
	if (range.guard < 0)
		karst_log(KARST_LOG_WARNING,
			"no userfaultfd (%s): all memory of programs is copied", strerror(errno));
	range.sink = memfd_create("karst-zeros", MFD_CLOEXEC);
	if (range.sink >= 0 && ftruncate(range.sink, (off_t)range.bytes) != 0) {
		close(range.sink);
		range.sink = -1;
	}
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

/* --- windows --- */

static void
window_fill(const struct eng_window *w, uintptr_t v)
{
	_Atomic uintptr_t *word = word_of(w->base);
	uint64_t i, n = ((w->base - range.base) % GRANULE + w->bytes + GRANULE - 1) / GRANULE;
	uintptr_t from = ((uintptr_t)word + 4095) & ~4095ull;
	uintptr_t to = (uintptr_t)&word[n] & ~4095ull;

	/* faults for single pages would take several times as long */
	if (v != 0 && n >= TABLE_LARGE)
		madvise((void *)from, to - from, MADV_POPULATE_WRITE);
	for (i = 0; i < n; i++)
		atomic_store_explicit(&word[i], v, memory_order_relaxed);
	/* pages of the table that are zero need not exist */
	if (v == 0 && n >= TABLE_LARGE)
		madvise((void *)from, to - from, MADV_DONTNEED);
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
	pthread_mutex_unlock(&range.lock);
	if (ret != 0)
		return ret;
	w->base = range.base + off + lead;
	w->reserved = 1ull << order;
	window_fill(w, (uintptr_t)w);
	return 0;
}

void
eng_window_free(struct eng_window *w)
{
	uint64_t off = (uint64_t)(w->base - range.base) & ~(w->reserved - 1);
	/* one mapping again, so that the kernel merges it with its neighbours */
	bool unmapped = window_unmap(range.base + off, w->reserved);

	if (atomic_load(&range.sunk))
		fallocate(range.sink, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
			(off_t)w->reserved);
	window_fill(w, 0);
	/* a thread that has found the window before holds the lock while it uses it
	 * (eng_window_tell()) */
	pthread_mutex_lock(&range.lock);
	/* addresses that could not be unmapped are not reused */
	if (unmapped)
		block_give((unsigned int)__builtin_ctzll(w->reserved), off);
	pthread_mutex_unlock(&range.lock);
}

bool
eng_window_tell(const void *p, void (*fn)(struct karst_space *owner, void *arg), void *arg)
{
	struct eng_window *w;

	pthread_mutex_lock(&range.lock);
	w = eng_window_of(p);
	if (w != NULL)
		fn(w->owner, arg);
	pthread_mutex_unlock(&range.lock);
	return w != NULL;
}
