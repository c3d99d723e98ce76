/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Divides a range of addresses into pieces, mapping by mapping:
 *
 *   pages of libkarst's own file (karst_alloc(), migrated memory)    by its descriptor
 *   other shared mappings                                            by /proc/PID/map_files
 *   private anonymous memory: pages that are registered completely   migrated, then as the first
 *   everything else                                                  copied
 *
 * Only migrated ranges and edges (edges.h) are kept between two registrations, because a program
 * may unmap and map anything meanwhile.  A descriptor or a mapping provides whole pages, so such
 * pieces may begin before the range and end behind it.
 *
 * If a list becomes too long, it is replaced by one piece that is copied, which works for any
 * memory.
 */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/auxv.h>

#include "alloc.h"
#include "edges.h"
#include "fork.h"
#include "karst_ctl_msg.h"
#include "karst_mutex.h"
#include "migrate.h"
#include "pages.h"
#include "sys.h"
#include "karst_vma.h"

/* The lock of karst_memory_lock(). */
static struct karst_mutex owners = KARST_MUTEX_INITIALIZER;

/* A registration that is being made, and what karst_memory_put() needs later. */
struct made {
	struct karst_memory pub;
	uint32_t nmoved;
	uint32_t room; /* of pub.piece and moved */
	struct cli_migrated **moved;
	uint64_t start, end; /* the requested range */
	bool write;
	uint64_t migrate_min;
	/* parts of its first and its last page, if the range covers these only in part and copies
	 * them */
	struct cli_edge edge[2];
	void *owner; /* NULL: not settled */
	bool stale;  /* in stale_list: */
	LIST_ENTRY(made) stale_next;
};

/* Process-wide: registrations whose edges were migrated with adjacent memory; under
 * cli_pages_lock(). */
static LIST_HEAD(, made) stale_list;

/* --- the list --- */

static bool
memory_grow(struct made *m)
{
	uint32_t room = m->room == 0 ? 4 : 2 * m->room;
	struct karst_ctl_piece *piece;
	struct cli_migrated **refs;

	/* adjacent pieces of the file are merged, but each may have been migrated separately */
	if (m->pub.npieces + 3 <= m->room && m->nmoved + 1 <= m->room)
		return true;
	piece = realloc(m->pub.piece, room * sizeof(*piece));
	if (piece != NULL)
		m->pub.piece = piece;
	refs = realloc(m->moved, room * sizeof(struct cli_migrated *));
	if (refs != NULL)
		m->moved = refs;
	if (piece == NULL || refs == NULL)
		return false;
	m->room = room;
	return true;
}

static void
add_piece(struct made *m, const struct karst_ctl_piece *p)
{
	struct karst_ctl_piece *last =
		m->pub.npieces > 0 ? &m->pub.piece[m->pub.npieces - 1] : NULL;

	if (p->len == 0)
		return;
	if (last != NULL && last->kind == p->kind && last->flags == p->flags && last->fd == p->fd &&
		p->kind != KARST_CTL_PIECE_VMA &&
		(p->kind == KARST_CTL_PIECE_COPY || last->file_off + last->len == p->file_off))
		last->len += p->len;
	else
		m->pub.piece[m->pub.npieces++] = *p;
}

static void
add_copy(struct made *m, uint64_t from, uint64_t to, uint32_t flags)
{
	const struct karst_ctl_piece p = {
		.addr = from, .len = to - from, .kind = KARST_CTL_PIECE_COPY, .flags = flags};

	add_piece(m, &p);
}

/* Returns the index of @fd in the descriptors of the message; -1: the list is full. */
static int
fd_index(struct karst_memory *m, int fd)
{
	unsigned int i;

	for (i = 0; i < m->nfds; i++)
		if (m->fds[i] == fd)
			return (int)i;
	if (m->nfds == KARST_CTL_MAX_FDS)
		return -1;
	m->fds[m->nfds] = fd;
	return (int)m->nfds++;
}

/* --- mapping by mapping --- */

static void
add_fd(struct made *m, int fd, uint64_t from, uint64_t to, uint64_t off, uint32_t flags)
{
	struct karst_ctl_piece p = {.addr = from,
		.len = to - from,
		.file_off = off,
		.kind = KARST_CTL_PIECE_FD,
		.fd = fd_index(&m->pub, fd),
		.flags = flags};

	if (p.fd < 0)
		p.kind = KARST_CTL_PIECE_COPY;
	add_piece(m, &p);
}

/*
 * An engine does not create pages that do not exist, so they are created here, where they are
 * accounted to the program.  Pages that cannot be created will be copied.
 */
static void
make_pages(const struct made *m, uint64_t from, uint64_t to)
{
	sys_madvise((void *)(uintptr_t)from, to - from,
		m->write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

/* Adds pages of libkarst's own file.  The registration takes a reference on migrated pages; the
 * others belong to karst_alloc().  @return the end of the added part. */
static uint64_t
add_own(struct made *m, const struct karst_vma *v, uint64_t from, uint64_t to)
{
	uint64_t off = v->off + (from - v->start);
	struct cli_migrated *moved = cli_migrated_find(off);

	if (moved == NULL) {
		if (!cli_pages_exist(off, to - from))
			make_pages(m, from, to);
		add_fd(m, cli_pages_fd(), from, to, off, 0);
		return to;
	}
	to = karst_min_u64(to, from + (moved->block.off + moved->block.len - off));
	moved->refs++;
	m->moved[m->nmoved++] = moved;
	add_fd(m, cli_pages_fd(), from, to, off, KARST_CTL_PIECE_MIGRATED);
	return to;
}

static void
add_shared(struct made *m, const struct karst_vma *v, uint64_t from, uint64_t to)
{
	uint64_t page = v->page != 0 ? v->page : CLI_PAGE;
	struct karst_ctl_piece p = {
		.kind = KARST_CTL_PIECE_VMA,
		.vma_start = v->start,
		.vma_end = v->end,
		.flags = v->write ? 0 : KARST_CTL_PIECE_RDONLY,
	};

	/* Addresses and offsets of a mapping agree in their low bits; a mapping consists of whole
	 * pages. */
	from = karst_max_u64(from & ~(page - 1), v->start);
	to = karst_min_u64((to + page - 1) & ~(page - 1), v->end);
	make_pages(m, from, to);
	p.addr = from;
	p.len = to - from;
	p.file_off = v->off + (from - v->start);
	add_piece(m, &p);
}

static bool
is_stack(const struct karst_vma *v)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	/* the kernel has put this above the main thread's stack */
	uintptr_t first = getauxval(AT_RANDOM);

	return (here >= v->start && here < v->end) || (first >= v->start && first < v->end);
}

static void
stale_del(struct made *m)
{
	if (!m->stale)
		return;
	LIST_REMOVE(m, stale_next);
	m->stale = false;
}

static void
stale_add(struct cli_edge *e)
{
	struct made *m = e->owner;

	stale_del(m);
	LIST_INSERT_HEAD(&stale_list, m, stale_next);
	m->stale = true;
}

static void
add_edge(struct made *m, uint64_t from, uint64_t to)
{
	struct cli_edge *e = &m->edge[m->edge[0].listed];

	/* the range has many mappings; an edge that is not in the table is copied */
	if (e->listed)
		return;
	*e = (struct cli_edge){.from = from, .to = to, .owner = m};
	cli_edge_add(e);
}

/*
 * Migrates the pages of [from, to) that can be migrated: those that are in it completely, and its
 * first and last page if adjacent registrations cover the rest.  A partial page that is left out
 * becomes an edge.  Edges of other registrations in migrated pages become stale.
 */
static bool
migrate_range(struct made *m, uint64_t from, uint64_t to, uint64_t *first, uint64_t *last)
{
	uint64_t lo = from & ~(uint64_t)(CLI_PAGE - 1), hi = (to - 1) & ~(uint64_t)(CLI_PAGE - 1);
	bool whole_lo = cli_edges_cover(from, karst_min_u64(to, lo + CLI_PAGE));
	bool whole_hi = lo == hi ? whole_lo : cli_edges_cover(hi, to);
	struct cli_migrated *moved;

	*first = whole_lo ? lo : lo + CLI_PAGE;
	*last = whole_hi ? hi + CLI_PAGE : hi;
	moved = *first < *last && *last - *first >= m->migrate_min
		? cli_migrate(*first, *last - *first)
		: NULL;
	if (moved == NULL || !whole_lo)
		add_edge(m, from, karst_min_u64(to, lo + CLI_PAGE));
	else
		cli_edges_each(lo, stale_add);
	if (lo != hi && (moved == NULL || !whole_hi))
		add_edge(m, hi, to);
	else if (lo != hi)
		cli_edges_each(hi, stale_add);
	if (moved != NULL)
		m->moved[m->nmoved++] = moved;
	return moved != NULL;
}

static void
add_private(struct made *m, const struct karst_vma *v, uint64_t from, uint64_t to)
{
	uint64_t first, last;

	if (v->ino != 0 || !v->read || !v->write || v->exec || m->migrate_min == UINT64_MAX ||
		is_stack(v) || !migrate_range(m, from, to, &first, &last)) {
		add_copy(m, from, to, v->write ? 0 : KARST_CTL_PIECE_RDONLY);
		return;
	}
	add_copy(m, from, karst_max_u64(from, first), 0);
	add_fd(m, cli_pages_fd(), first, last, m->moved[m->nmoved - 1]->block.off,
		KARST_CTL_PIECE_MIGRATED);
	add_copy(m, karst_min_u64(last, to), to, 0);
}

/* @return the address at which the next mapping has to begin. */
static uint64_t
add_vma(struct made *m, const struct karst_vma *v, uint64_t at)
{
	uint64_t from, start, to = karst_min_u64(v->end, m->end);
	int fd = v->shared ? cli_alloc_huge(at, &start) : -1;

	if (fd >= 0) {
		from = at & ~(uint64_t)(CLI_HUGE - 1);
		/* one file may have two mappings: a part of it may be protected */
		to = karst_min_u64((to + CLI_HUGE - 1) & ~(uint64_t)(CLI_HUGE - 1), v->end);
		make_pages(m, from, to);
		add_fd(m, fd, from, to, from - start, v->write ? 0 : KARST_CTL_PIECE_RDONLY);
	} else if (cli_pages_own(v) && v->write) {
		from = at & ~(uint64_t)(CLI_PAGE - 1);
		to = karst_min_u64((to + CLI_PAGE - 1) & ~(uint64_t)(CLI_PAGE - 1), v->end);
		to = add_own(m, v, from, to);
	} else if (v->shared) {
		add_shared(m, v, at, to);
	} else {
		add_private(m, v, at, to);
	}
	return to;
}

static int
memory_walk_vmas(struct made *m, struct karst_vmas *vmas, char *why)
{
	uint64_t at = m->start;
	struct karst_vma v;
	int ret;

	/* a region of 0 bytes has no pieces, but it has a list */
	if (!memory_grow(m))
		return karst_ctl_reason(why, -ENOMEM, "out of memory");
	while (at < m->end) {
		if (!memory_grow(m))
			return karst_ctl_reason(why, -ENOMEM, "out of memory");
		ret = karst_vmas_next(vmas, at, &v);
		if (ret < 0)
			return karst_ctl_reason(why, ret, "/proc/self/maps cannot be read");
		if (ret == 0 || v.start > at || !v.read)
			return karst_ctl_reason(why, -EFAULT, "no readable memory at %#llx",
				(unsigned long long)at);
		if (m->write && !v.write)
			return karst_ctl_reason(why, -EFAULT,
				"memory at %#llx is read-only: access must not include writing",
				(unsigned long long)at);
		at = add_vma(m, &v, at);
	}
	return 0;
}

static void
memory_drop(struct made *m)
{
	uint32_t i;

	for (i = 0; i < KARST_DIM(m->edge); i++)
		cli_edge_del(&m->edge[i]);
	stale_del(m);
	for (i = 0; i < m->nmoved; i++)
		cli_migrated_put(m->moved[i]);
	m->nmoved = 0;
}

/* Replaces the list by one copied piece, if it does not fit into a message. */
static void
memory_simplify(struct made *m)
{
	memory_drop(m);
	m->pub.npieces = m->pub.nfds = 0;
	add_copy(m, m->start, m->end, m->write ? 0 : KARST_CTL_PIECE_RDONLY);
}

/* Scans all mappings of the range.  @why is written on failure. */
static int
memory_scan(struct made *m, char *why)
{
	struct karst_vmas vmas;
	int ret;

	cli_pages_lock();
	ret = karst_vmas_open(&vmas, AT_FDCWD);
	if (ret == 0) {
		ret = memory_walk_vmas(m, &vmas, why);
		karst_vmas_close(&vmas);
	} else {
		karst_ctl_reason(why, ret, "/proc/self/maps cannot be opened");
	}
	if (ret != 0)
		memory_drop(m);
	else if (m->pub.npieces > KARST_CTL_MAX_PIECES)
		memory_simplify(m);
	cli_pages_unlock();
	return ret;
}

static int
memory_begin(const void *addr, size_t len, bool write, struct made **out, char *why)
{
	struct made *m;
	int ret;

	if ((uintptr_t)addr + len < (uintptr_t)addr)
		return karst_ctl_reason(
			why, -EINVAL, "length %zu at %p exceeds the address space", len, addr);
	ret = cli_fork_init();
	if (ret != 0)
		return karst_ctl_reason(why, ret, "pthread_atfork() failed");
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return karst_ctl_reason(why, -ENOMEM, "out of memory");
	m->start = (uintptr_t)addr;
	m->end = m->start + len;
	m->write = write;
	*out = m;
	return 0;
}

static void
memory_end(struct made *m)
{
	free(m->pub.piece);
	free(m->moved);
	free(m);
}

int
karst_memory_get(const void *addr, size_t len, bool write, uint64_t migrate_min,
	struct karst_memory **out, char *why)
{
	struct made *m = NULL;
	int ret = memory_begin(addr, len, write, &m, why);

	if (ret != 0)
		return ret;
	m->migrate_min = karst_max_u64(migrate_min, 1);
	ret = memory_scan(m, why);
	if (ret != 0)
		memory_end(m);
	else
		*out = &m->pub;
	return ret;
}

int
karst_memory_get_on_demand(
	const void *addr, size_t len, bool write, struct karst_memory **out, char *why)
{
	struct made *m = NULL;
	int ret = memory_begin(addr, len, write, &m, why);

	if (ret != 0)
		return ret;
	if (!memory_grow(m)) {
		memory_end(m);
		return karst_ctl_reason(why, -ENOMEM, "out of memory");
	}
	add_copy(m, m->start, m->end,
		KARST_CTL_PIECE_ON_DEMAND | (write ? 0 : KARST_CTL_PIECE_RDONLY));
	*out = &m->pub;
	return 0;
}

void
karst_memory_lock(void)
{
	karst_mutex_lock(&owners);
}

void
karst_memory_unlock(void)
{
	karst_mutex_unlock(&owners);
}

void
karst_memory_settle(struct karst_memory *pub, void *owner)
{
	struct made *m = karst_container_of(pub, struct made, pub);

	cli_pages_lock();
	m->owner = owner;
	cli_pages_unlock();
}

void *
karst_memory_stale(void)
{
	struct made *m;

	cli_pages_lock();
	/* a registration that is not settled yet is checked when it is */
	LIST_FOREACH(m, &stale_list, stale_next)
		if (m->owner != NULL)
			break;
	if (m != NULL)
		stale_del(m);
	cli_pages_unlock();
	return m != NULL ? m->owner : NULL;
}

int
karst_memory_rescan(const struct karst_memory *pub, struct karst_memory **out, char *why)
{
	const struct made *m = karst_container_of(pub, struct made, pub);

	return karst_memory_get((const void *)(uintptr_t)m->start, m->end - m->start, m->write,
		m->migrate_min, out, why);
}

/* In a forked child: the thread that held the lock does not exist, and nothing is registered. */
void
cli_memory_forget(void)
{
	karst_mutex_init(&owners);
	cli_edges_forget();
	LIST_INIT(&stale_list);
}

void
karst_memory_put(struct karst_memory *pub)
{
	struct made *m = karst_container_of(pub, struct made, pub);

	cli_pages_lock();
	memory_drop(m);
	cli_pages_unlock();
	memory_end(m);
}
