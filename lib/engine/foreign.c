/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Foreign memory on the data path: struct karst_foreign_ops of each lcore.
 *
 * A foreign address leads to a window, an offset in it to a piece.  Pieces that are mapped are
 * copied to and from at once; for the others a job is noted, and jobs are done together, one system
 * call for each program:
 *
 *	receiving   jobs of a chunk of packets, whose buffers are kept until the flush
 *	sending     all foreign segments of a burst, fetched between building and sealing
 *
 * eng_space_write() goes through its list in order and stops at the first address that is not
 * there, so what it returns tells whose job has failed; those behind it are tried again without it.
 *
 * Order (R14): the last bytes of a message are a list entry of their own, behind the rest.  If they
 * lie in a mapped piece, what is queued is written first.
 *
 * Both calls name a process by number.  A number is given to another process only after the old
 * one is gone and all others had their turn; so it is enough to have asked within the last
 * millisecond whether the process lives.
 *
 * Atomics on bytes that are copied are a read and a write under a lock: atomic among all lcores,
 * but not towards the program's own instructions, nor towards an engine that has mapped the same
 * page.  doc/memory.rst says so to programs.
 *
 * If a program took pages away that are mapped (window.c), frames may have been built from the
 * zeros that took their place.  Those are not sent, and the keys of that program become unusable
 * before the lcore goes on, so that requests fail instead of moving zeros.
 */
#include "foreign.h"

#include <poll.h>
#include <sys/mman.h>

#include "space_priv.h"

#define JOBS     128u
#define LIVES_NS 1000000u
/* All frames of a burst, and those that were begun and given up: one a turn of the scheduler. */
#define SCRATCH    (3 * ENG_MAX_BURST * KARST_FRAME_MAX)
#define NO_FRAME   UINT32_MAX
#define TAIL_BYTES 8u

/* Bytes that one of the two system calls moves. */
struct job {
	struct karst_space *space;
	uint8_t *local;
	uint64_t remote;
	uint32_t n;
	uint32_t frame;                /* sending: of the burst */
	struct karst_foreign_write of; /* receiving */
	bool done;
};

struct eng_foreign {
	uint32_t njobs;
	uint32_t used;                                 /* of scratch */
	const struct karst_space *from[ENG_MAX_BURST]; /* whose bytes a frame's scratch has */
	struct job job[JOBS];
	uint8_t scratch[SCRATCH];
};

/* Of the process: the same bytes may belong to several spaces, of several engines. */
static pthread_mutex_t atomic_lock = PTHREAD_MUTEX_INITIALIZER;

static struct eng_foreign *
foreign_of(struct karst_core *core)
{
	return ((struct eng_lcore *)core->user)->foreign;
}

/* --- the process --- */

bool
eng_space_alive(struct karst_space *s, uint64_t now_ns)
{
	/* relaxed: any lcore's recent answer will do */
	uint64_t then = atomic_load_explicit(&s->alive_ns, memory_order_relaxed);
	struct pollfd p = {.fd = s->pidfd, .events = POLLIN};

	if (then != 0 && now_ns - then < LIVES_NS)
		return true;
	if (karst_space_failed(s))
		return false;
	if (poll(&p, 1, 0) != 0) {
		eng_space_fail(s);
		return false;
	}
	atomic_store_explicit(&s->alive_ns, now_ns, memory_order_relaxed);
	return true;
}

/* --- where an address leads --- */

struct place {
	struct karst_space *space;
	uint8_t *mapped; /* NULL: copied */
	uint64_t window; /* bytes of the whole of it */
	uint64_t remote;
	uint32_t n; /* bytes that lie together */
};

static struct place
place_of(const uint8_t *host, uint32_t n)
{
	const uint8_t *p = (const uint8_t *)((uintptr_t)host & ~(uintptr_t)KARST_MEM_FOREIGN);
	const struct eng_window *w = eng_window_of(p);
	uint64_t off = (uint64_t)(p - w->base);
	const struct eng_piece *piece = eng_window_piece(w, off);
	struct place at = {.space = w->owner, .window = w->bytes, .remote = w->remote + off};

	at.n = (uint32_t)karst_min_u64(n, piece->off + piece->len - off);
	at.mapped = piece->page != 0 ? w->base + off : NULL;
	return at;
}

/* --- doing jobs --- */

/* The jobs of one space among the first @n that are not done, as lists for the kernel.
 * @return how many; which[] are their numbers. */
static unsigned int
collect(struct eng_foreign *f, const struct karst_space *s, struct iovec *local,
	struct iovec *remote, unsigned int *niov, unsigned int *which)
{
	unsigned int i, n = 0, v = 0;

	for (i = 0; i < f->njobs; i++) {
		const struct job *j = &f->job[i];
		uint32_t tail = j->of.end && j->n > TAIL_BYTES ? TAIL_BYTES : 0;

		if (j->done || j->space != s)
			continue;
		which[n++] = i;
		local[v] = (struct iovec){j->local, j->n - tail};
		remote[v++] = (struct iovec){(void *)(uintptr_t)j->remote, j->n - tail};
		if (tail == 0)
			continue;
		local[v] = (struct iovec){j->local + j->n - tail, tail};
		remote[v++] = (struct iovec){(void *)(uintptr_t)(j->remote + j->n - tail), tail};
	}
	*niov = v;
	return n;
}

/* Does all jobs of @s up to one that cannot be done.  @return that one; NULL: none is left. */
static struct job *
do_jobs(struct eng_foreign *f, struct karst_space *s, uint64_t now_ns, bool write)
{
	struct iovec local[2 * JOBS], remote[2 * JOBS];
	unsigned int which[JOBS], i, niov, n = collect(f, s, local, remote, &niov, which);
	ssize_t moved = 0;

	if (n > 0 && eng_space_alive(s, now_ns)) {
		moved = write ? eng_space_write(s, local, remote, niov)
			      : eng_space_read(s, local, remote, niov);
		if (moved == -ESRCH)
			eng_space_fail(s);
	}
	for (i = 0; i < n; i++) {
		struct job *j = &f->job[which[i]];

		j->done = true;
		if (moved < (ssize_t)j->n)
			return j;
		moved -= (ssize_t)j->n;
	}
	return NULL;
}

/* --- receiving --- */

/* What cannot be written is told; what else that QP has queued is forgotten. */
static void
lose(struct karst_core *core, struct eng_foreign *f, const struct job *lost)
{
	unsigned int i;

	for (i = 0; i < f->njobs; i++)
		if (f->job[i].of.qp == lost->of.qp)
			f->job[i].done = true;
	karst_foreign_lost(core, lost->of.qp, lost->of.kind, lost->of.psn);
}

static bool
flush(struct karst_core *core, const struct karst_core_qp *qp)
{
	struct eng_foreign *f = foreign_of(core);
	const struct job *lost;
	bool ok = true;
	unsigned int i;

	core->foreign_queued = 0;
	for (i = 0; i < f->njobs; i++) {
		if (f->job[i].done)
			continue;
		while ((lost = do_jobs(f, f->job[i].space, core->now_ns, true)) != NULL) {
			ok &= lost->of.qp != qp;
			lose(core, f, lost);
		}
	}
	f->njobs = 0;
	return ok;
}

/* As karst_mem_place(): most of a region with copied edges is mapped memory like any other. */
static void
copy_here(struct karst_placer *p, const struct place *at, const uint8_t *src, bool end)
{
	uint32_t n = at->n, tail = end ? (n >= 8 ? 8 : n >= 4 ? 4 : 1) : 0;

	if (n >= KARST_COPY_STREAM_MIN && at->window >= p->stream_bytes) {
		karst_copy_stream(at->mapped, src, n - tail);
		p->pending = true;
	} else {
		memcpy(at->mapped, src, n - tail);
	}
	if (!end)
		return;
	karst_mem_place_fence(p);
	karst_copy_tail(at->mapped + n - tail, src + n - tail, tail);
}

static bool
place(struct karst_core *core, const struct karst_foreign_write *w)
{
	struct eng_foreign *f = foreign_of(core);
	uint32_t off;

	for (off = 0; off < w->n;) {
		struct place at = place_of(w->dst + off, w->n - off);
		bool end = w->end && off + at.n == w->n;

		/* the end of a message comes after everything before it */
		if ((f->njobs == JOBS || (end && at.mapped != NULL && f->njobs > 0)) &&
			!flush(core, w->qp))
			return false;
		if (at.mapped != NULL) {
			copy_here(&core->placer, &at, w->src + off, end);
		} else {
			struct job *j = &f->job[f->njobs++];

			*j = (struct job){.space = at.space,
				.local = (uint8_t *)(uintptr_t)(w->src + off),
				.remote = at.remote,
				.n = at.n,
				.of = *w};
			j->of.end = end;
		}
		off += at.n;
	}
	core->foreign_queued = f->njobs;
	return true;
}

/* --- sending --- */

/* Gets @n bytes into @dst now, or notes a job for what has to be copied. */
static bool
gather(struct eng_lcore *lc, uint8_t *dst, const uint8_t *src, uint32_t n, uint32_t frame)
{
	struct eng_foreign *f = lc->foreign;
	uint32_t off;

	for (off = 0; off < n;) {
		struct place at = place_of(src + off, n - off);

		if (at.mapped != NULL) {
			memcpy(dst + off, at.mapped, at.n);
		} else if (f->njobs == JOBS) {
			return false;
		} else {
			f->job[f->njobs++] = (struct job){.space = at.space,
				.local = dst + off,
				.remote = at.remote,
				.n = at.n,
				.frame = frame};
		}
		off += at.n;
	}
	return true;
}

static uint8_t *
scratch_take(struct eng_foreign *f, uint32_t n)
{
	uint8_t *p = f->scratch + f->used;

	assert(n <= SCRATCH - f->used);
	f->used += n;
	return p;
}

static const uint8_t *
fetch(struct karst_core *core, const uint8_t *src, uint32_t n)
{
	struct eng_lcore *lc = core->user;
	struct eng_foreign *f = lc->foreign;
	struct place at = place_of(src, n);
	uint8_t *dst;
	bool ok;

	/* nothing is queued while frames are built */
	assert(f->njobs == 0);
	if (at.mapped != NULL && at.n == n)
		return at.mapped;
	dst = scratch_take(f, n);
	ok = gather(lc, dst, src, n, NO_FRAME);
	/* one segment, one region, one space */
	if (ok && f->njobs > 0)
		ok = do_jobs(f, f->job[0].space, core->now_ns, false) == NULL;
	f->njobs = 0;
	return ok ? dst : NULL;
}

/* Frame @i is lost, and those of its QP that follow. */
static void
lose_frame(struct eng_lcore *lc, const struct karst_tx_burst *b, uint32_t i, uint64_t *lost)
{
	const struct karst_core_qp *qp = b->pkts[i]->qp;

	if ((*lost >> i & 1) != 0)
		return;
	karst_tx_lost(lc->core, b, i);
	for (; i < b->n; i++)
		if (b->pkts[i]->qp == qp)
			*lost |= 1ull << i;
}

static void
do_fetches(struct eng_lcore *lc, const struct karst_tx_burst *b, uint64_t *lost)
{
	struct eng_foreign *f = lc->foreign;
	const struct job *j;
	unsigned int i;

	for (i = 0; i < f->njobs; i++) {
		if (f->job[i].done)
			continue;
		while ((j = do_jobs(f, f->job[i].space, lc->core->now_ns, false)) != NULL)
			lose_frame(lc, b, j->frame, lost);
	}
	f->njobs = 0;
}

static void
fetch_seg(struct eng_lcore *lc, const struct karst_tx_burst *b, uint32_t i, struct karst_seg *seg,
	uint64_t *lost)
{
	const uint8_t *src = seg->src;
	struct place at = place_of(src, seg->len);
	uint8_t *dst;

	/* in one mapped piece, as nearly all are: the frame is made of it directly */
	if (at.mapped != NULL && at.n == seg->len) {
		seg->src = at.mapped;
		return;
	}
	dst = scratch_take(lc->foreign, seg->len);
	seg->src = dst;
	lc->foreign->from[i] = at.space;
	if (gather(lc, dst, src, seg->len, i))
		return;
	/* the list is full: this segment again, from its beginning */
	do_fetches(lc, b, lost);
	if (!gather(lc, dst, src, seg->len, i))
		lose_frame(lc, b, i, lost);
}

uint64_t
eng_foreign_fetch(struct eng_lcore *lc, const struct karst_tx_burst *b)
{
	uint64_t lost = 0;
	uint32_t i, k;

	memset(lc->foreign->from, 0, b->n * sizeof(lc->foreign->from[0]));
	for (i = 0; i < b->n; i++) {
		const struct karst_seal *s = &b->seals[i];

		for (k = 0; k < s->nsegs; k++) {
			struct karst_seg *seg = &b->segs[s->segs - b->segs + k];

			if (karst_mem_is_foreign(seg->src))
				fetch_seg(lc, b, i, seg, &lost);
		}
	}
	do_fetches(lc, b, &lost);
	for (i = 0; i < b->n; i++)
		b->pkts[i]->qp = NULL;
	lc->foreign->used = 0;
	return lost;
}

/* --- pages that were taken away --- */

static bool
is_failed(const void *host)
{
	const struct eng_window *w =
		eng_window_of((const void *)((uintptr_t)host & ~(uintptr_t)KARST_MEM_FOREIGN));

	return w != NULL && karst_space_failed(w->owner);
}

uint64_t
eng_foreign_broken(struct eng_lcore *lc, const struct karst_tx_burst *b)
{
	const struct eng_foreign *f = lc->foreign;
	/* what breaks while this goes on is looked after the next time */
	unsigned int breaks = eng_window_breaks();
	uint64_t lost = 0;
	uint32_t i, k;

	if (karst_mem_revoke(lc->e->mem, is_failed) == 0)
		lc->breaks = breaks;
	for (i = 0; i < b->n; i++) {
		const struct karst_seal *s = &b->seals[i];

		for (k = 0; k < s->nsegs; k++) {
			const uint8_t *src = s->segs[k].src;

			if (src >= f->scratch && src < f->scratch + SCRATCH
					? f->from[i] == NULL || karst_space_failed(f->from[i])
					: is_failed(src))
				lost |= 1ull << i;
		}
	}
	return lost;
}

/* --- atomics --- */

static uint64_t
compute(const struct karst_foreign_atomic *a)
{
	switch (a->op) {
	case KARST_FOREIGN_CAS:
		return a->old == a->compare ? a->operand : a->old;
	case KARST_FOREIGN_FAA:
		return a->old + a->operand;
	default:
		return a->operand;
	}
}

static bool
atomic_copied(struct karst_space *s, uint64_t remote, struct karst_foreign_atomic *a)
{
	struct iovec there = {(void *)(uintptr_t)remote, 8}, here = {&a->old, 8};
	uint64_t value;
	bool ok;

	pthread_mutex_lock(&atomic_lock);
	ok = a->op == KARST_FOREIGN_STORE || eng_space_read(s, &here, &there, 1) == 8;
	value = compute(a);
	here.iov_base = &value;
	if (ok)
		ok = eng_space_write(s, &here, &there, 1) == 8;
	pthread_mutex_unlock(&atomic_lock);
	return ok;
}

static bool
atomic(struct karst_core *core, struct karst_foreign_atomic *a)
{
	struct place at = place_of(a->host, 8);

	if (at.mapped == NULL)
		return at.n == 8 && eng_space_alive(at.space, core->now_ns) &&
			atomic_copied(at.space, at.remote, a);
	if (a->op == KARST_FOREIGN_CAS)
		a->old = karst_mem_cas(at.mapped, a->compare, a->operand);
	else if (a->op == KARST_FOREIGN_FAA)
		a->old = karst_mem_faa(at.mapped, a->operand);
	else
		karst_mem_store8(at.mapped, (const uint8_t *)&a->operand);
	return true;
}

/* --- life --- */

const struct karst_foreign_ops eng_foreign_ops = {
	.write = place,
	.flush = flush,
	.fetch = fetch,
	.atomic = atomic,
};

int
eng_foreign_init(struct eng_lcore *lc)
{
	/* exists when it is used, which most lcores never do */
	void *p = mmap(NULL, sizeof(struct eng_foreign), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return -ENOMEM;
	lc->foreign = p;
	lc->breaks = eng_window_breaks();
	return 0;
}

void
eng_foreign_fini(struct eng_lcore *lc)
{
	if (lc->foreign != NULL)
		munmap(lc->foreign, sizeof(struct eng_foreign));
}
