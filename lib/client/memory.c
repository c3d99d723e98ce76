/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * From a range of addresses to pieces: mapping by mapping,
 *
 *	pages of our own file (karst_alloc(), moved memory)	by its descriptor
 *	other shared mappings					by /proc/PID/map_files
 *	private anonymous memory, as far as it is whole pages	moved, then as the first
 *	everything else						copied
 *
 * Nothing is remembered between two registrations but what was moved: a program may unmap and map
 * anything meanwhile.  What a descriptor or mapping leads to is whole pages, so such pieces may
 * begin before the range and end behind it.
 *
 * A list that becomes too long is one piece to be copied: that is right for any memory.
 */
#include "memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/auxv.h>

#include "alloc.h"
#include "fork.h"
#include "karst_ctl_msg.h"
#include "migrate.h"
#include "pages.h"
#include "sys.h"
#include "vma.h"

/* A registration in the making, and what karst_memory_put() needs later. */
struct made {
	struct karst_memory pub;
	uint32_t nmoved;
	uint32_t room; /* of pub.piece and moved */
	struct cli_moved **moved;
	uint64_t start, end; /* what was asked for */
	bool write;
	uint64_t migrate_min;
};

/* --- the list --- */

static bool
make_room(struct made *m)
{
	uint32_t room = m->room == 0 ? 4 : 2 * m->room;
	struct karst_ctl_piece *piece;
	struct cli_moved **refs;

	if (m->pub.npieces + 3 <= m->room)
		return true;
	piece = realloc(m->pub.piece, room * sizeof(*piece));
	if (piece != NULL)
		m->pub.piece = piece;
	refs = realloc(m->moved, room * sizeof(struct cli_moved *));
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

/* The place of @fd in the list beside the message; -1: it is full. */
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

/* Pages of our own file.  Those that were moved are held by this registration, too; the others are
 * karst_alloc()'s.  @return how far that goes. */
static uint64_t
add_own(struct made *m, const struct cli_vma *v, uint64_t from, uint64_t to)
{
	uint64_t off = v->off + (from - v->start);
	struct cli_moved *moved = cli_moved_find(off);

	if (moved == NULL) {
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
add_shared(struct made *m, const struct cli_vma *v, uint64_t from, uint64_t to)
{
	uint64_t page = v->page != 0 ? v->page : CLI_PAGE;
	struct karst_ctl_piece p = {
		.kind = KARST_CTL_PIECE_VMA,
		.vma_start = v->start,
		.vma_end = v->end,
		.flags = v->write ? 0 : KARST_CTL_PIECE_RDONLY,
	};

	/* addresses and offsets of a mapping agree in their low bits; it is whole pages itself */
	from = karst_max_u64(from & ~(page - 1), v->start);
	to = karst_min_u64((to + page - 1) & ~(page - 1), v->end);
	p.addr = from;
	p.len = to - from;
	p.file_off = v->off + (from - v->start);
	add_piece(m, &p);
}

static bool
is_stack(const struct cli_vma *v)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	/* the kernel has put this above the first thread's stack */
	uintptr_t first = getauxval(AT_RANDOM);

	return (here >= v->start && here < v->end) || (first >= v->start && first < v->end);
}

static void
add_private(struct made *m, const struct cli_vma *v, uint64_t from, uint64_t to)
{
	uint64_t first = (from + CLI_PAGE - 1) & ~(uint64_t)(CLI_PAGE - 1);
	uint64_t last = to & ~(uint64_t)(CLI_PAGE - 1);
	struct cli_moved *moved = NULL;

	if (v->ino == 0 && v->read && v->write && !v->exec && first < last &&
		last - first >= m->migrate_min && !is_stack(v))
		moved = cli_move(first, last - first);
	if (moved == NULL) {
		add_copy(m, from, to, v->write ? 0 : KARST_CTL_PIECE_RDONLY);
		return;
	}
	m->moved[m->nmoved++] = moved;
	add_copy(m, from, first, 0);
	add_fd(m, cli_pages_fd(), first, last, moved->block.off, KARST_CTL_PIECE_MIGRATED);
	add_copy(m, last, to, 0);
}

/* @return where the next mapping has to begin. */
static uint64_t
add_vma(struct made *m, const struct cli_vma *v, uint64_t at)
{
	uint64_t from, start, to = karst_min_u64(v->end, m->end);
	int fd = v->shared ? cli_alloc_huge(at, &start) : -1;

	if (fd >= 0) {
		from = at & ~(uint64_t)(CLI_HUGE - 1);
		/* one file may be two mappings: something in it may be protected */
		to = karst_min_u64((to + CLI_HUGE - 1) & ~(uint64_t)(CLI_HUGE - 1), v->end);
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
walk(struct made *m, struct cli_vmas *vmas, char *why)
{
	uint64_t at = m->start;
	struct cli_vma v;
	int ret;

	/* a region of no bytes has no pieces, but a list */
	if (!make_room(m))
		return karst_ctl_say(why, -ENOMEM, "out of memory");
	while (at < m->end) {
		if (!make_room(m))
			return karst_ctl_say(why, -ENOMEM, "out of memory");
		ret = cli_vmas_next(vmas, at, &v);
		if (ret < 0)
			return karst_ctl_say(why, ret, "/proc/self/maps cannot be read");
		if (ret == 0 || v.start > at || !v.read)
			return karst_ctl_say(why, -EFAULT, "no readable memory at %#llx",
				(unsigned long long)at);
		if (m->write && !v.write)
			return karst_ctl_say(why, -EFAULT,
				"memory at %#llx is read-only: it can be registered for reading "
				"alone",
				(unsigned long long)at);
		at = add_vma(m, &v, at);
	}
	return 0;
}

static void
drop(struct made *m)
{
	uint32_t i;

	for (i = 0; i < m->nmoved; i++)
		cli_moved_put(m->moved[i]);
	m->nmoved = 0;
}

/* Everything copied: for lists that do not fit into a message. */
static void
simplify(struct made *m)
{
	drop(m);
	m->pub.npieces = m->pub.nfds = 0;
	add_copy(m, m->start, m->end, m->write ? 0 : KARST_CTL_PIECE_RDONLY);
}

/* Looks at each mapping.  @why is written on failure. */
static int
look(struct made *m, char *why)
{
	struct cli_vmas vmas;
	int ret;

	cli_pages_lock();
	ret = cli_vmas_open(&vmas);
	if (ret == 0) {
		ret = walk(m, &vmas, why);
		cli_vmas_close(&vmas);
	} else {
		karst_ctl_say(why, ret, "/proc/self/maps cannot be opened");
	}
	if (ret != 0)
		drop(m);
	else if (m->pub.npieces > KARST_CTL_MAX_PIECES)
		simplify(m);
	cli_pages_unlock();
	return ret;
}

static int
begin(const void *addr, size_t len, bool write, struct made **out, char *why)
{
	struct made *m;
	int ret;

	if ((uintptr_t)addr + len < (uintptr_t)addr)
		return karst_ctl_say(why, -EINVAL, "%zu bytes at %p wrap around", len, addr);
	ret = cli_fork_init();
	if (ret != 0)
		return karst_ctl_say(why, ret, "fork() cannot be watched");
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return karst_ctl_say(why, -ENOMEM, "out of memory");
	m->start = (uintptr_t)addr;
	m->end = m->start + len;
	m->write = write;
	*out = m;
	return 0;
}

static void
end(struct made *m)
{
	free(m->pub.piece);
	free(m->moved);
	free(m);
}

int
karst_memory_get(const void *addr, size_t len, bool write, uint64_t migrate_min,
	struct karst_memory **out, char *why)
{
	struct made *m;
	int ret = begin(addr, len, write, &m, why);

	if (ret != 0)
		return ret;
	m->migrate_min = karst_max_u64(migrate_min, 1);
	ret = look(m, why);
	if (ret != 0)
		end(m);
	else
		*out = &m->pub;
	return ret;
}

int
karst_memory_get_on_demand(
	const void *addr, size_t len, bool write, struct karst_memory **out, char *why)
{
	struct made *m;
	int ret = begin(addr, len, write, &m, why);

	if (ret != 0)
		return ret;
	if (!make_room(m)) {
		end(m);
		return karst_ctl_say(why, -ENOMEM, "out of memory");
	}
	add_copy(m, m->start, m->end,
		KARST_CTL_PIECE_ON_DEMAND | (write ? 0 : KARST_CTL_PIECE_RDONLY));
	*out = &m->pub;
	return 0;
}

void
karst_memory_put(struct karst_memory *pub)
{
	struct made *m = karst_container_of(pub, struct made, pub);

	cli_pages_lock();
	drop(m);
	cli_pages_unlock();
	end(m);
}
