/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Spaces and their regions: the control side of karst_space.h.
 *
 * A region is a window (window.h).  Its pieces are opened and checked first (piece.c); only when
 * all are good are addresses allocated and files mapped over them.  Pieces that are copied get no
 * pages.  If there is one, the region's host addresses are those of unmapped memory
 * (karst_unmapped.h), and unmapped.c handles every access, piece by piece; otherwise lib/mem and
 * lib/qp see plain memory.
 *
 * Files whose pages exist are mapped with their page tables filled, so that no lcore ever takes a
 * page fault there.  Pages that do not exist are not created, as they would be charged to the
 * engine: libkarst creates them, in the program, and a file that has holes nevertheless is copied.
 *
 * Mappings are a limited resource of the process.  When they run short, pieces are copied that
 * could have been mapped.
 */
#include "space_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "share.h"

#define HUGE       (2ull << 20)
#define MAPS_SPARE 8192u /* left to all other users in the process */
#define MAX_LEN    (1ull << 42)

/* Global, like the limit that it is compared with (vm.max_map_count). */
static _Atomic unsigned int maps_used;

/* --- spaces --- */

/* If the program has sent no pidfd, uses the process number, which is good enough for all but
 * /proc/PID. */
static int
take_pidfd(struct karst_space *s, int pidfd)
{
	if (pidfd >= 0)
		s->pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
	else
		s->pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0);
	if (s->pidfd < 0)
		return -errno;
	s->procfd = karst_files_dir(s->pid, s->pidfd);
	if (s->procfd == -ESRCH) {
		close(s->pidfd);
		return -ESRCH;
	}
	s->certain = pidfd >= 0 && s->procfd >= 0;
	return 0;
}

int
karst_space_create(struct karst_engine *e, pid_t pid, int pidfd, uid_t uid, gid_t gid,
	struct karst_space **out)
{
	struct karst_space *s;
	int ret = eng_window_init();

	if (ret != 0)
		return ret;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	*s = (struct karst_space){.e = e,
		.pid = pid,
		.uid = uid,
		.gid = gid,
		.memfd = -1,
		.mapsfd = -1,
		.watch_fd = -1};
	atomic_init(&s->refs, 1);
	s->atomics = eng_atomics_get(-1);
	ret = s->atomics != NULL ? take_pidfd(s, pidfd) : -ENOMEM;
	if (ret != 0) {
		if (s->atomics != NULL)
			eng_atomics_put(s->atomics);
		free(s);
		return ret;
	}
	pthread_mutex_init(&s->maps_lock, NULL);
	*out = s;
	return 0;
}

void
karst_space_destroy(struct karst_space *s)
{
	while (!LIST_EMPTY(&s->regions))
		karst_space_unmap(LIST_FIRST(&s->regions));
	/* nothing is signalled any more, and no copy begins */
	atomic_store_explicit(&s->failed, true, memory_order_relaxed);
	eng_space_put(s);
}

void
eng_space_get(struct karst_space *s)
{
	/* relaxed: the caller already has a reference */
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void
eng_space_put(struct karst_space *s)
{
	if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	eng_atomics_put(s->atomics);
	if (s->memfd >= 0)
		close(s->memfd);
	if (s->procfd >= 0)
		close(s->procfd);
	if (s->mapsfd >= 0)
		close(s->mapsfd);
	if (s->watch_fd >= 0)
		close(s->watch_fd);
	close(s->pidfd);
	pthread_mutex_destroy(&s->maps_lock);
	free(s);
}

bool
karst_space_failed(const struct karst_space *s)
{
	/* relaxed: nothing else depends on this flag */
	return atomic_load_explicit(&s->failed, memory_order_relaxed);
}

bool
karst_space_silenced(const struct karst_space *s)
{
	/* relaxed: the descriptor of karst_space_watch() has signalled it */
	return atomic_load_explicit(&s->silenced, memory_order_relaxed);
}

void
karst_space_charge(struct karst_space *s, struct eng_share *share)
{
	s->share = share;
}

void
karst_space_set_opener(struct karst_space *s, const struct karst_space_opener *opener)
{
	s->opener = *opener;
}

void
karst_space_watch(struct karst_space *s, int fd)
{
	s->watch_fd = fd;
}

/* Sets one of its flags.  relaxed: nothing else depends on it; the thread that sets it first
 * signals it */
static void
space_tell(const struct karst_space *s, _Atomic bool *flag)
{
	const uint64_t one = 1;
	int saved = errno;

	if (atomic_exchange_explicit(flag, true, memory_order_relaxed) || s->watch_fd < 0)
		return;
	if (write(s->watch_fd, &one, sizeof(one)) < 0)
		errno = saved;
}

void
eng_space_fail(struct karst_space *s)
{
	space_tell(s, &s->failed);
}

void
eng_space_silence(struct karst_space *s)
{
	space_tell(s, &s->silenced);
}

static void
on_broken(struct eng_window *w)
{
	eng_space_fail(w->owner);
}

/* --- checking a request --- */

static int
check_cover(uint64_t addr, uint64_t len, const struct karst_ctl_piece *p, unsigned int n, char *why)
{
	uint64_t at;
	unsigned int i;

	if (len > MAX_LEN || addr > UINT64_MAX / 2 - len || n > KARST_CTL_MAX_PIECES) {
		snprintf(why, KARST_CTL_WHY, "no region of %#llx bytes at %#llx, in %u pieces",
			(unsigned long long)len, (unsigned long long)addr, n);
		return -EINVAL;
	}
	at = n > 0 ? p[0].addr : addr;
	for (i = 0; i < n && p[i].addr == at && p[i].len > 0 && p[i].len <= 2 * MAX_LEN; i++)
		at += p[i].len;
	if (i == n && (n == 0 ? len == 0 : p[0].addr <= addr && at >= addr + len && len > 0))
		return 0;
	snprintf(why, KARST_CTL_WHY, "the pieces do not cover %#llx..+%#llx without gaps",
		(unsigned long long)addr, (unsigned long long)len);
	return -EINVAL;
}

static void
close_sources(struct eng_source *src, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (src[i].fd >= 0)
			close(src[i].fd);
}

static int
open_sources(const struct karst_space *s, bool write, const struct karst_ctl_piece *pieces,
	unsigned int n, const int *fds, unsigned int nfds, struct eng_source *src, char *why)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < n && ret == 0; i++)
		ret = eng_piece_open(s, &pieces[i], fds, nfds, write, &src[i], why);
	if (ret != 0)
		close_sources(src, i - 1);
	return ret;
}

/*
 * Computes the part of each piece that the region needs.  Pieces are whole pages, so the first may
 * begin before the region and the last may end after it, by less than one of their pages.  Not
 * every program knows the page size of a mapping, so such pieces may be larger, and are cut.
 */
static int
fit_source(struct eng_source *s, uint64_t addr, uint64_t end, char *why)
{
	uint64_t page = s->fd >= 0 ? s->page : 4096, from = s->addr, to = s->addr + s->len;

	if (s->ctl->kind == KARST_CTL_PIECE_VMA) {
		from = karst_max_u64(from, addr & ~(page - 1));
		to = karst_min_u64(to, (end + page - 1) & ~(page - 1));
	}
	if (from >= to || from + page <= addr || to >= end + page) {
		snprintf(why, KARST_CTL_WHY,
			"the piece %#llx..+%#llx goes beyond the region %#llx..+%#llx by a page of "
			"%llu bytes or more",
			(unsigned long long)s->addr, (unsigned long long)s->len,
			(unsigned long long)addr, (unsigned long long)(end - addr),
			(unsigned long long)page);
		return -EINVAL;
	}
	s->off += from - s->addr;
	s->addr = from;
	s->len = to - from;
	return 0;
}

static int
fit_sources(struct eng_source *src, unsigned int n, uint64_t addr, uint64_t len, char *why)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < n && ret == 0; i++)
		ret = fit_source(&src[i], addr, addr + len, why);
	return ret;
}

/* --- mapping --- */

static unsigned int
maps_limit(void)
{
	unsigned int limit = 65530;
	FILE *f = fopen("/proc/sys/vm/max_map_count", "re");

	if (f != NULL) {
		if (fscanf(f, "%u", &limit) != 1)
			limit = 65530;
		fclose(f);
	}
	return limit > MAPS_SPARE ? limit - MAPS_SPARE : 0;
}

/* Maps what can be mapped; the rest is copied, for whatever reason.  Adjacent pieces of a kind
 * become one piece. */
static void
map_pieces(struct karst_space_region *r, const struct eng_source *src, unsigned int n, bool write)
{
	unsigned int i, limit = maps_limit();
	uint64_t off = 0;

	for (i = 0; i < n; off += src[i].len, i++) {
		struct eng_piece *last = r->w.npieces > 0 ? &r->piece[r->w.npieces - 1] : NULL;
		struct eng_piece p = {
			.off = off,
			.len = src[i].len,
			.writable = write,
			.on_demand = (src[i].ctl->flags & KARST_CTL_PIECE_ON_DEMAND) != 0,
		};

		/* each mapping splits the reserved range in two; counted before, and uncounted if
		 * not used */
		if (src[i].fd >= 0 && atomic_fetch_add(&maps_used, 2) < limit &&
			eng_window_map(r->w.base + off, src[i].len, src[i].page, src[i].fd,
				src[i].off, write)) {
			p.page = src[i].page;
			p.migrated = (src[i].ctl->flags & KARST_CTL_PIECE_MIGRATED) != 0;
			r->nmaps += 2;
		} else if (src[i].fd >= 0) {
			atomic_fetch_sub(&maps_used, 2);
		}
		if (p.page == 0 && last != NULL && last->page == 0 &&
			last->on_demand == p.on_demand)
			last->len += p.len;
		else
			r->piece[r->w.npieces++] = p;
	}
}

/* Sums up the bytes in the region itself, and checks that the bytes to be copied exist. */
static int
region_survey(struct karst_space_region *r, char *why)
{
	struct karst_space *s = r->space;
	unsigned int i;
	int ret;

	for (i = 0; i < r->w.npieces; i++) {
		const struct eng_piece *p = &r->piece[i];
		uint64_t from = r->w.remote + p->off, to = from + p->len;

		from = karst_max_u64(from, r->addr);
		to = karst_min_u64(to, r->addr + r->len);
		if (from >= to)
			continue;
		if (p->page == 0) {
			ret = p->on_demand ? 0
					   : eng_piece_probe(s, from, to - from, p->writable, why);
			if (ret != 0)
				return ret;
			r->unmapped = true;
			continue;
		}
		r->shared_bytes += to - from;
		if (p->migrated)
			r->migrated_bytes += to - from;
	}
	return 0;
}

/* Allocates a window whose addresses agree with the program's in as many low bits as the largest
 * page has. */
static int
take_window(struct karst_space_region *r, const struct eng_source *src, unsigned int n)
{
	uint64_t align = r->w.bytes >= HUGE ? HUGE : 4096;
	unsigned int i;

	for (i = 0; i < n; i++)
		if (src[i].fd >= 0 && src[i].page > align)
			align = src[i].page;
	return eng_window_alloc(&r->w, align, r->w.remote & (align - 1));
}

static void
drop_window(struct karst_space_region *r)
{
	eng_window_free(&r->w);
	eng_share_give(r->space->share, ENG_SHARE_WINDOW_BYTES, r->w.reserved);
	atomic_fetch_sub(&maps_used, r->nmaps);
}

/* Bytes of the region that would be mapped. */
static uint64_t
to_hold(const struct karst_space_region *r, const struct eng_source *src, unsigned int n)
{
	uint64_t bytes = 0;
	unsigned int i;

	for (i = 0; i < n; i++)
		if (src[i].fd >= 0)
			bytes += karst_min_u64(src[i].addr + src[i].len, r->addr + r->len) -
				karst_max_u64(src[i].addr, r->addr);
	return bytes;
}

/* Charges mapped pages, which stay even if the program gives them up.  Before anything is mapped,
 * so that a refusal costs no more than a request. */
static int
region_hold(const struct karst_space_region *r, uint64_t bytes, char *why)
{
	struct eng_share_info info;

	if (eng_share_take(r->space->share, ENG_SHARE_HELD_BYTES, bytes))
		return 0;
	eng_share_info(r->space->share, &info);
	snprintf(why, KARST_CTL_WHY,
		"%#llx bytes: the engine holds %#llx bytes of registered memory of user %u already, and "
		"that would exceed what the user may have (held_bytes, share)",
		(unsigned long long)bytes, (unsigned long long)info.used[ENG_SHARE_HELD_BYTES],
		r->space->uid);
	return -ENOMEM;
}

/* If a user's mapped memory has blocked an lcore, no memory of that user is mapped any more. */
static void
copy_all(struct eng_source *src, unsigned int n)
{
	unsigned int i;

	close_sources(src, n);
	for (i = 0; i < n; i++)
		src[i].fd = -1;
}

static int
make_region(
	struct karst_space_region *r, struct eng_source *src, unsigned int n, bool write, char *why)
{
	uint64_t bytes;
	int ret;

	if (n == 0)
		return 0;
	if (!eng_share_trusted(r->space->share))
		copy_all(src, n);
	bytes = to_hold(r, src, n);
	ret = take_window(r, src, n);
	if (ret != 0) {
		snprintf(why, KARST_CTL_WHY, "no addresses are left in the engine for %#llx bytes",
			(unsigned long long)r->len);
		return ret;
	}
	if (!eng_share_take(r->space->share, ENG_SHARE_WINDOW_BYTES, r->w.reserved)) {
		snprintf(why, KARST_CTL_WHY,
			"%#llx bytes take %#llx of the engine's addresses, more than is left of those "
			"that user %u may have (window_bytes)",
			(unsigned long long)r->len, (unsigned long long)r->w.reserved,
			r->space->uid);
		eng_window_free(&r->w);
		return -ENOMEM;
	}
	ret = region_hold(r, bytes, why);
	if (ret != 0) {
		drop_window(r);
		return ret;
	}
	map_pieces(r, src, n, write);
	ret = region_survey(r, why);
	if (ret != 0)
		r->shared_bytes = 0;
	/* what could not be mapped after all */
	eng_share_give(r->space->share, ENG_SHARE_HELD_BYTES, bytes - r->shared_bytes);
	if (ret != 0)
		drop_window(r);
	return ret;
}

/* While there are regions on demand, each access checks the list of mappings.  It stays open: a
 * copy that waits for the program may use it after the last such region was removed. */
static void
count_on_demand(struct karst_space *s, const struct karst_space_region *r, int by)
{
	unsigned int i;

	for (i = 0; i < r->w.npieces && !r->piece[i].on_demand; i++)
		;
	if (i == r->w.npieces)
		return;
	if (s->mapsfd < 0 && by > 0)
		s->mapsfd = eng_space_maps(s);
	/* release: a thread that sees the count sees the list */
	atomic_fetch_add_explicit(&s->on_demand, (unsigned int)by, memory_order_release);
}

static void
link_region(struct karst_space *s, struct karst_space_region *r)
{
	count_on_demand(s, r, 1);
	LIST_INSERT_HEAD(&s->regions, r, next);
}

int
karst_space_map(struct karst_space *s, uint64_t addr, uint64_t len, bool write,
	const struct karst_ctl_piece *pieces, unsigned int n, const int *fds, unsigned int nfds,
	struct karst_space_region **region, char *why)
{
	struct eng_source src[KARST_CTL_MAX_PIECES];
	struct karst_space_region *r;
	int ret = check_cover(addr, len, pieces, n, why);

	if (ret != 0)
		return ret;
	r = calloc(1, sizeof(*r) + n * sizeof(r->piece[0]));
	if (r == NULL) {
		snprintf(why, KARST_CTL_WHY, "the engine is out of memory");
		return -ENOMEM;
	}
	r->space = s;
	r->addr = addr;
	r->len = len;
	r->w.piece = r->piece;
	r->w.owner = s;
	r->w.broken = on_broken;
	ret = open_sources(s, write, pieces, n, fds, nfds, src, why);
	if (ret == 0) {
		ret = fit_sources(src, n, addr, len, why);
		r->w.remote = n > 0 ? src[0].addr : addr;
		r->w.bytes = n > 0 ? src[n - 1].addr + src[n - 1].len - r->w.remote : 0;
		if (ret == 0)
			ret = make_region(r, src, n, write, why);
		close_sources(src, n);
	}
	if (ret != 0) {
		free(r);
		return ret;
	}
	link_region(s, r);
	*region = r;
	return 0;
}

void
karst_space_unmap(struct karst_space_region *r)
{
	LIST_REMOVE(r, next);
	count_on_demand(r->space, r, -1);
	if (r->w.bytes != 0) {
		eng_share_give(r->space->share, ENG_SHARE_HELD_BYTES, r->shared_bytes);
		drop_window(r);
	}
	free(r);
}

/* --- looking --- */

void *
karst_space_host(const struct karst_space_region *r)
{
	uintptr_t at = (uintptr_t)r->w.base + (r->addr - r->w.remote);

	return (void *)(r->unmapped ? at | KARST_MEM_UNMAPPED : at);
}

void
karst_space_bytes(
	const struct karst_space_region *r, uint64_t *shared, uint64_t *migrated, uint64_t *copied)
{
	*shared = r->shared_bytes;
	*migrated = r->migrated_bytes;
	*copied = r->len - r->shared_bytes;
}
