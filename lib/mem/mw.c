/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory windows, and invalidation: the operations of lcores that change the table.
 *
 * A bind first pins the region, by incrementing its count of bound windows, so that control can
 * neither free nor change it.  Then it claims the window by swapping its word for a BUSY one.  Then
 * it writes the attributes and publishes the key.  Everything that may fail comes before the claim.
 * A thread that loses a race for a window sees its swap fail, and only control ever waits for an
 * lcore.  To unbind is one swap, then the count is decremented.
 *
 * The binder checks the region before it pins it, so that a program cannot disturb another
 * program's regions.  The result remains valid: for an lcore that has seen a region live, only the
 * live bit changes, and nothing becomes live again, without a grace period.  If the region was
 * closed meanwhile, pinning fails.
 */
#include <errno.h>

#include "karst_unmapped.h"
#include "mem_priv.h"

#define BIND_ACCESS_KNOWN (KARST_ACCESS_REMOTE | KARST_ACCESS_ZERO_BASED)

static uint32_t *
qp_bucket(const struct karst_mem *m, uint32_t qpn)
{
	return &m->ctl->qp_windows[(qpn * 0x9e3779b1u) >> 20 & (MEM_QP_BUCKETS - 1)];
}

/* A window is no longer bound to the region in @mr_slot (by @qpn, if it is of type 2). */
static void
binding_drop(struct karst_mem *m, enum karst_mem_type type, uint32_t mr_slot, uint32_t qpn)
{
	/* Relaxed: only a hint for the control thread; destroying the QP provides the order. */
	if (type == KARST_MEM_MW2)
		__atomic_fetch_sub(qp_bucket(m, qpn), 1, __ATOMIC_RELAXED);
	/* Release: the window's key was withdrawn before; pairs with mr_close()'s acquire. */
	__atomic_fetch_sub(&m->entry[mr_slot].bound, 1, __ATOMIC_RELEASE);
}

/* Changes a window in the state of @word to state @s; false: it has changed since. */
static bool
window_unbind(struct karst_mem *m, struct karst_mem_entry *e, uint64_t word, enum mem_state s)
{
	bool bound = mem_state(word) == MEM_BOUND;
	uint32_t mr_slot = __atomic_load_n(&e->mr_slot, __ATOMIC_RELAXED);
	uint32_t qpn = (uint32_t)__atomic_load_n(&e->owner, __ATOMIC_RELAXED);
	enum karst_mem_type type = (enum karst_mem_type)e->type;

	/* Release: the loads above come before what the next binder writes; pairs with the acquire
	 * of its load of the word.  If the swap succeeds, the loaded values are the binding that
	 * @word published. */
	if (!__atomic_compare_exchange_n(&e->word, &word, mem_word_next(word, s), false,
		    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		return false;
	if (bound)
		binding_drop(m, type, mr_slot, qpn);
	return true;
}

static bool
same_upper(uint32_t a, uint32_t b)
{
	return ((a ^ b) & ~0xffu) == 0;
}

/* The window with the upper bits of @key, and its word; NULL if there is none. */
static struct karst_mem_entry *
window_find(const struct karst_mem *m, uint32_t key, uint64_t *word)
{
	struct karst_mem_entry *e = karst_mem_entry_of(m, key);
	enum mem_state s;

	*word = mem_word_load(e);
	s = mem_state(*word);
	if (s != MEM_UNBOUND && s != MEM_BUSY && s != MEM_BOUND)
		return NULL;
	if (!same_upper(__atomic_load_n(&e->key, __ATOMIC_RELAXED), key))
		return NULL;
	return e;
}

int
karst_mw_alloc(struct karst_mem *m, uint32_t pd, enum karst_mem_type type, uint32_t *key)
{
	struct karst_mem_entry *e;

	if (!mem_pd_valid(m, pd) || (type != KARST_MEM_MW1 && type != KARST_MEM_MW2))
		return -EINVAL;
	e = mem_slot_alloc(m, pd, type);
	if (e == NULL)
		return -ENOSPC;
	*key = e->key;
	mem_word_store(e, mem_word_next(mem_word_load(e), MEM_UNBOUND));
	return 0;
}

int
karst_mw_free_begin(struct karst_mem *m, uint32_t key)
{
	struct karst_mem_entry *e;
	uint64_t word;

	/* BUSY lasts only for a few stores of an lcore. */
	do {
		e = window_find(m, key, &word);
		if (e == NULL)
			return -EINVAL;
		if (mem_state(word) == MEM_BUSY)
			mem_pause();
	} while (mem_state(word) == MEM_BUSY || !window_unbind(m, e, word, MEM_CLOSED));
	return 0;
}

void
karst_mw_free_end(struct karst_mem *m, uint32_t key)
{
	struct karst_mem_entry *e = karst_mem_entry_of(m, key);

	assert((e->type == KARST_MEM_MW1 || e->type == KARST_MEM_MW2) && same_upper(e->key, key));
	mem_slot_free(m, e);
}

static void
mr_unpin(struct karst_mem_entry *mr)
{
	/* Release: as in binding_drop(). */
	__atomic_fetch_sub(&mr->bound, 1, __ATOMIC_RELEASE);
}

/* Pins and returns the live region of @b, if the window may be bound to it; else NULL. */
static struct karst_mem_entry *
mr_pin(const struct karst_mem *m, const struct karst_mw_bind *b)
{
	struct karst_mem_entry *mr = karst_mem_entry_of(m, b->mr_key);
	uint64_t word = mem_word_load(mr);
	unsigned int need = KARST_ACCESS_MW_BIND;
	uint32_t bound;

	if ((word & KARST_MEM_KEY_MASK) != (KARST_MEM_LIVE | b->mr_key) ||
		mem_state(word) != MEM_MR)
		return NULL;
	if ((b->access & (KARST_ACCESS_REMOTE_WRITE | KARST_ACCESS_REMOTE_ATOMIC)) != 0)
		need |= KARST_ACCESS_LOCAL_WRITE;
	if (mr->owner >> 32 != b->pd || (mr->rights & need) != need ||
		!karst_mem_in_range(mr->base, mr->len, b->va, b->len))
		return NULL;
	/* Relaxed: the acquire of the word has ordered the attributes. */
	bound = __atomic_load_n(&mr->bound, __ATOMIC_RELAXED);
	do {
		if (bound == BOUND_NONE)
			return NULL;
	} while (!__atomic_compare_exchange_n(
		&mr->bound, &bound, bound + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return mr;
}

/* The checks that do not depend on the region. */
static int
bind_check(const struct karst_mem_entry *e, const struct karst_mw_bind *b, uint64_t word)
{
	if (mem_state(word) == MEM_BUSY)
		return -EBUSY;
	if (__atomic_load_n(&e->key, __ATOMIC_RELAXED) != b->mw_key ||
		__atomic_load_n(&e->owner, __ATOMIC_RELAXED) >> 32 != b->pd)
		return -EINVAL;
	if ((b->access & ~(unsigned int)BIND_ACCESS_KNOWN) != 0)
		return -EINVAL;
	if (e->type == KARST_MEM_MW1)
		return (b->access & KARST_ACCESS_ZERO_BASED) == 0 ? 0 : -EINVAL;
	if (mem_state(word) == MEM_BOUND || b->len == 0)
		return -EINVAL;
	return 0;
}

/* Writes the new binding of a claimed window.  Release (C): pairs with the readers' acquire (B). */
static void
bind_fill(const struct karst_mem *m, struct karst_mem_entry *e, const struct karst_mw_bind *b,
	const struct karst_mem_entry *mr)
{
	bool zero = (b->access & KARST_ACCESS_ZERO_BASED) != 0;
	uint32_t qpn = e->type == KARST_MEM_MW2 ? b->qpn : 0;

	__atomic_store_n(&e->mr_slot, mem_slot_of(m, mr), __ATOMIC_RELEASE);
	__atomic_store_n(&e->owner, (uint64_t)b->pd << 32 | qpn, __ATOMIC_RELEASE);
	__atomic_store_n(&e->rights, b->access, __ATOMIC_RELEASE);
	__atomic_store_n(&e->base, zero ? 0 : b->va, __ATOMIC_RELEASE);
	__atomic_store_n(&e->len, b->len, __ATOMIC_RELEASE);
	__atomic_store_n(&e->host, mr->host + (b->va - mr->base), __ATOMIC_RELEASE);
}

int
karst_mw_bind(struct karst_mem *m, const struct karst_mw_bind *b, uint32_t *bound_key)
{
	struct karst_mem_entry *e, *mr = NULL;
	uint32_t key, old_mr;
	uint64_t word, busy;
	int rc;

	e = window_find(m, b->mw_key, &word);
	if (e == NULL)
		return -EINVAL;
	rc = bind_check(e, b, word);
	if (rc != 0)
		return rc;
	if (b->len != 0) {
		mr = mr_pin(m, b);
		if (mr == NULL)
			return -EINVAL;
	}
	busy = mem_word_next(word, MEM_BUSY);
	/* Acquire: the previous binder's attributes and unbinder's loads come before the stores
	 * here; pairs with the release of their words. */
	if (!__atomic_compare_exchange_n(
		    &e->word, &word, busy, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		if (mr != NULL)
			mr_unpin(mr);
		return mem_state(word) == MEM_CLOSED ? -EINVAL : -EBUSY;
	}
	old_mr = e->mr_slot;
	key = (e->key & ~0xffu) | (b->new_key & 0xff);
	/* type 1: the key that the program proposes, unless that is another window's or no
	 * change */
	if (e->type == KARST_MEM_MW1 && (key != b->new_key || key == e->key))
		key = mem_key_next_low(m, e);
	__atomic_store_n(&e->key, key, __ATOMIC_RELEASE);
	if (mr != NULL) {
		bind_fill(m, e, b, mr);
		if (e->type == KARST_MEM_MW2) {
			__atomic_fetch_add(qp_bucket(m, b->qpn), 1, __ATOMIC_RELAXED);
			/* Relaxed: as in binding_drop(). */
			__atomic_store_n(
				&m->ctl->binder[mem_slot_of(m, e)], b->qpn, __ATOMIC_RELAXED);
		}
		mem_word_store(e, mem_word_live(busy, MEM_BOUND, key)); /* D */
	} else {
		mem_word_store(e, mem_word_next(busy, MEM_UNBOUND));
	}
	/* @word still has the value from before the claim. */
	if (mem_state(word) == MEM_BOUND)
		binding_drop(m, KARST_MEM_MW1, old_mr, 0);
	*bound_key = key;
	return 0;
}

/* Makes a region unusable, unless windows are bound to it. */
static int
mr_invalidate(struct karst_mem_entry *e, uint64_t word)
{
	uint32_t bound = 0;

	/* Acquire: pairs with the release of the last window's unbinding. */
	if (!__atomic_compare_exchange_n(
		    &e->bound, &bound, BOUND_NONE, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return -EINVAL;
	mem_word_store(e, mem_word_next(word, MEM_DEAD));
	return 0;
}

int
karst_mem_invalidate(struct karst_mem *m, uint32_t pd, uint32_t qpn, uint32_t key, bool remote)
{
	struct karst_mem_entry *e = karst_mem_entry_of(m, key);
	uint64_t word = mem_word_load(e);
	uint64_t owner;

	if ((word & KARST_MEM_KEY_MASK) != (KARST_MEM_LIVE | key))
		return -EINVAL;
	owner = __atomic_load_n(&e->owner, __ATOMIC_RELAXED);
	switch (e->type) {
	case KARST_MEM_MR:
		return !remote && owner >> 32 == pd ? mr_invalidate(e, word) : -EINVAL;
	case KARST_MEM_MW2:
		if (owner != ((uint64_t)pd << 32 | qpn))
			return -EINVAL;
		return window_unbind(m, e, word, MEM_UNBOUND) ? 0 : -EINVAL;
	default:
		return -EINVAL;
	}
}

/* Revokes the matching entries of [@e, @end).  @return how many could not be changed. */
static uint32_t
mw_revoke(struct karst_mem *m, bool (*match)(const void *host), struct karst_mem_entry *e,
	const struct karst_mem_entry *end, bool windows)
{
	uint32_t left = 0;

	for (; e < end; e++) {
		uint64_t word = mem_word_load(e);
		bool done;

		if ((word & KARST_MEM_LIVE) == 0 || (mem_state(word) == MEM_BOUND) != windows ||
			!match((void *)(uintptr_t)__atomic_load_n(&e->host, __ATOMIC_RELAXED)))
			continue;
		done = windows ? window_unbind(m, e, word, MEM_UNBOUND)
			       : mr_invalidate(e, word) == 0;
		left += !done;
	}
	return left;
}

bool
karst_mem_revoke(
	struct karst_mem *m, bool (*match)(const void *host), struct karst_mem_walk *w, uint32_t n)
{
	if (w->at == 0 && !w->regions)
		w->left = 0;
	n = karst_min_u32(n, m->slot_mask + 1 - w->at);
	w->left += mw_revoke(m, match, m->entry + w->at, m->entry + w->at + n, !w->regions);
	w->at += n;
	if (w->at <= m->slot_mask)
		return false;
	w->at = 0;
	w->regions = !w->regions;
	return !w->regions;
}

/* Words of karst_mem_ctl.binder that are examined together: a cache line, which with very few keys
 * extends beyond the last slot. */
#define BINDERS 16u

static bool
binders_have(const uint32_t *binder, uint32_t qpn)
{
	uint32_t i, same = 0;

	/* Relaxed: as in binding_drop(). */
	for (i = 0; i < BINDERS; i++)
		same |= __atomic_load_n(&binder[i], __ATOMIC_RELAXED) == qpn;
	return same != 0;
}

/* Unbinds the window in slot @slot if it is a type 2 one that @qpn has bound. */
static bool
release_slot(struct karst_mem *m, uint32_t slot, uint32_t qpn)
{
	struct karst_mem_entry *e = &m->entry[slot];
	uint64_t word = mem_word_load(e);

	if (mem_state(word) != MEM_BOUND || e->type != KARST_MEM_MW2 ||
		(uint32_t)__atomic_load_n(&e->owner, __ATOMIC_RELAXED) != qpn)
		return false;
	return window_unbind(m, e, word, MEM_UNBOUND);
}

/* Control holds the lock of its calls meanwhile, and the counters of all QPs are not 0 if one
 * program has bound thousands of windows.  So the function examines a word for each slot, which is
 * a sixteenth of the table, and an entry only where the word names the QP; the window there need
 * not be bound any more. */
uint32_t
karst_mw_release_qp(struct karst_mem *m, uint32_t qpn)
{
	const uint32_t *bucket = qp_bucket(m, qpn), *binder = m->ctl->binder;
	uint32_t at, slot, released = 0;

	for (at = 0; at <= m->slot_mask && __atomic_load_n(bucket, __ATOMIC_RELAXED) != 0;
		at += BINDERS) {
		if (!binders_have(&binder[at], qpn))
			continue;
		for (slot = at; slot < at + BINDERS && slot <= m->slot_mask; slot++)
			released += release_slot(m, slot, qpn);
	}
	return released;
}
