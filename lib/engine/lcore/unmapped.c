/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Translates addresses of unmapped memory (karst_unmapped.h): to a mapped piece of a window, which
 * is used like any other memory, or to a piece without a mapping, which is copied (copies.c).
 *
 * If a program took mapped pages away (window.c), frames may have been built from the zeros that
 * replaced them.  Those frames are not sent.  The keys of that program become unusable, so that
 * requests fail; this takes several turns, since a table of keys may be long.  Frames are checked
 * until all lcores have finished.
 */
#include "unmapped.h"

#include <poll.h>

#include "copies.h"

#define LIVES_NS 1000000u
/* Keys checked in one turn: some tens of microseconds. */
#define REVOKE_SLOTS 4096u

/* --- the process --- */

bool
eng_space_alive(struct karst_space *s, uint64_t now_ns)
{
	/* relaxed: any lcore's recent answer is good enough */
	uint64_t then = atomic_load_explicit(&s->alive_ns, memory_order_relaxed);
	struct pollfd p = {.fd = s->pidfd, .events = POLLIN};

	if (karst_space_failed(s))
		return false;
	if (then != 0 && now_ns - then < LIVES_NS)
		return true;
	if (poll(&p, 1, 0) != 0) {
		eng_space_fail(s);
		return false;
	}
	atomic_store_explicit(&s->alive_ns, now_ns, memory_order_relaxed);
	return true;
}

/* --- address translation --- */

struct eng_place
eng_place_of(const uint8_t *host, uint32_t n)
{
	const uint8_t *p = (const uint8_t *)((uintptr_t)host & ~(uintptr_t)KARST_MEM_UNMAPPED);
	const struct eng_window *w = eng_window_of(p);
	uint64_t off = (uint64_t)(p - w->base);
	const struct eng_piece *piece = eng_window_piece(w, off);

	return (struct eng_place){
		.space = w->owner,
		.remote = w->remote + off,
		.mapped = piece->page != 0 ? w->base + off : NULL,
		.n = (uint32_t)karst_min_u64(n, piece->off + piece->len - off),
	};
}

uint8_t *
eng_unmapped_map(struct karst_core *core, const uint8_t *host, uint32_t *n)
{
	struct eng_place at = eng_place_of(host, *n);
	uint32_t len = at.n;

	/* mappings of a window are contiguous where its pieces are */
	while (at.mapped != NULL && len < *n) {
		struct eng_place next = eng_place_of(host + len, *n - len);

		if (next.mapped == NULL)
			break;
		len += next.n;
	}
	*n = len;
	return at.mapped;
}

/* --- pages that were taken away --- */

static const void *
bare_address(const void *host)
{
	return (const void *)((uintptr_t)host & ~(uintptr_t)KARST_MEM_UNMAPPED);
}

/* Whether @host, an address that a key still refers to, belongs to a program that has failed. */
static bool
is_failed(const void *host)
{
	const struct eng_window *w = eng_window_of(bare_address(host));

	return w != NULL && karst_space_failed(w->owner);
}

static void
note_failed(struct karst_space *owner, void *arg)
{
	*(bool *)arg |= karst_space_failed(owner);
}

/* Whether byte @off of the rooms was copied from a program that has failed.  A key for it may have
 * been removed since, and its window may be gone or belong to another program; a window that
 * eng_window_tell() finds stays valid during that call. */
static bool
is_of_failed(const struct eng_copies *cs, uint64_t off)
{
	const struct karst_copy *c = &cs->copy[off / KARST_COPY_ROOM].pub;
	bool failed = false;
	uint32_t i;

	for (i = 0; i < c->nsegs && !failed; i++)
		eng_window_tell(bare_address(c->seg[i].host), note_failed, &failed);
	return failed;
}

/* Checks a part of the table in each turn, since it may be long. */
void
eng_unmapped_revoke(struct eng_lcore *lc)
{
	struct karst_mem_walk *w = &lc->revoking;

	/* pages that are taken away during this walk are handled by the next one */
	if (w->at == 0 && !w->regions)
		lc->breaks_seen = eng_window_breaks();
	if (karst_mem_revoke(lc->e->mem, is_failed, w, REVOKE_SLOTS) && w->left == 0)
		lc->breaks = lc->breaks_seen;
}

uint64_t
eng_unmapped_broken(struct eng_lcore *lc, const struct karst_tx_burst *b)
{
	const uint8_t *room = lc->copies->room[0];
	uint64_t lost = 0;
	uint32_t i, k;

	for (i = 0; i < b->n; i++) {
		const struct karst_seal *s = &b->seals[i];

		for (k = 0; k < s->nsegs; k++) {
			const uint8_t *src = s->segs[k].src;

			if ((uint64_t)(src - room) < sizeof(lc->copies->room)
					? is_of_failed(lc->copies, (uint64_t)(src - room))
					: is_failed(src))
				lost |= 1ull << i;
		}
	}
	return lost;
}
