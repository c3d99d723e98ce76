/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The table of keys, protection domains and regions: the control side.
 *
 * One block of memory holds everything: the hot header, the entries, the queues of free slots and
 * PDs, the PDs, and the counters of windows by QP.  A slot that is freed goes to the end of its
 * queue, so that a stale key meets as many other generations as possible before its own is used
 * again.
 *
 * A region is closed (to be deregistered or changed) by setting BOUND_NONE in its count of bound
 * windows, which succeeds only at a count of 0.  From then on no lcore binds to it, and its key is
 * withdrawn.  Lcores that found the key before may continue until their quiescent point; for that
 * reason attributes change and slots are freed in a second step.
 */
#include "karst_mem.h"

#include <errno.h>

#include "mem_priv.h"

#define MAX_KEYS (1u << 20)
#define MAX_PDS  65536u

#define ACCESS_KNOWN                                                             \
	(KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE | KARST_ACCESS_MW_BIND | \
		KARST_ACCESS_ZERO_BASED | KARST_ACCESS_HUGETLB | KARST_ACCESS_RELAXED_ORDERING)
#define REREG_KNOWN (KARST_REREG_TRANSLATION | KARST_REREG_PD | KARST_REREG_ACCESS)

/* Offsets of the parts of the block. */
struct layout {
	uint32_t keys;
	size_t ctl, entries, slots, pds, pd, qp_windows, binder, total;
};

static size_t
layout_take(struct layout *l, size_t bytes)
{
	size_t at = l->total;

	l->total += (bytes + KARST_CACHE_LINE - 1) & ~(size_t)(KARST_CACHE_LINE - 1);
	return at;
}

static int
layout_make(const struct karst_mem_config *cfg, struct layout *l)
{
	if (cfg->max_keys < 2 || cfg->max_keys > MAX_KEYS || cfg->max_pds < 1 ||
		cfg->max_pds > MAX_PDS)
		return -EINVAL;
	memset(l, 0, sizeof(*l));
	l->keys = karst_pow2_ceil(cfg->max_keys);
	layout_take(l, sizeof(struct karst_mem));
	l->ctl = layout_take(l, sizeof(struct karst_mem_ctl));
	l->entries = layout_take(l, l->keys * sizeof(struct karst_mem_entry));
	l->slots = layout_take(l, l->keys * sizeof(uint32_t));
	l->pds = layout_take(l, cfg->max_pds * sizeof(uint32_t));
	l->pd = layout_take(l, (cfg->max_pds + 1) * sizeof(struct mem_pd));
	l->qp_windows = layout_take(l, MEM_QP_BUCKETS * sizeof(uint32_t));
	l->binder = layout_take(l, l->keys * sizeof(uint32_t));
	return 0;
}

static void
fifo_push(struct mem_fifo *f, uint32_t item)
{
	uint32_t at = f->head + f->count;

	assert(f->count < f->size);
	f->item[at < f->size ? at : at - f->size] = item;
	f->count++;
}

static int
fifo_pop(struct mem_fifo *f, uint32_t *item)
{
	if (f->count == 0)
		return -ENOSPC;
	*item = f->item[f->head];
	f->head = f->head + 1 < f->size ? f->head + 1 : 0;
	f->count--;
	return 0;
}

size_t
karst_mem_size(const struct karst_mem_config *cfg)
{
	struct layout l;

	return layout_make(cfg, &l) == 0 ? l.total : 0;
}

int
karst_mem_init(void *buf, const struct karst_mem_config *cfg, struct karst_mem **mem)
{
	struct karst_mem_ctl *c;
	struct karst_mem *m = buf;
	struct layout l;
	uint8_t *at = buf;
	uint32_t i;

	if (buf == NULL || (uintptr_t)buf % KARST_CACHE_LINE != 0 || layout_make(cfg, &l) != 0)
		return -EINVAL;
	memset(buf, 0, l.total);
	m->entry = (struct karst_mem_entry *)(void *)(at + l.entries);
	m->slot_mask = l.keys - 1;
	m->ctl = c = (struct karst_mem_ctl *)(void *)(at + l.ctl);
	memcpy(c->seed, cfg->seed, sizeof(c->seed));
	c->slot_bits = karst_log2(l.keys);
	c->max_pds = cfg->max_pds;
	c->slots = (struct mem_fifo){.item = (uint32_t *)(void *)(at + l.slots), .size = l.keys};
	c->pds = (struct mem_fifo){.item = (uint32_t *)(void *)(at + l.pds), .size = cfg->max_pds};
	c->pd = (struct mem_pd *)(void *)(at + l.pd);
	c->qp_windows = (uint32_t *)(void *)(at + l.qp_windows);
	c->binder = (uint32_t *)(void *)(at + l.binder);
	mem_key_init(m);
	for (i = 0; i < l.keys; i++) {
		m->entry[i].bound = BOUND_NONE;
		fifo_push(&c->slots, i);
	}
	for (i = 1; i <= cfg->max_pds; i++)
		fifo_push(&c->pds, i);
	*mem = m;
	return 0;
}

bool
mem_pd_valid(const struct karst_mem *m, uint32_t pd)
{
	return pd >= 1 && pd <= m->ctl->max_pds && m->ctl->pd[pd].used;
}

int
karst_pd_alloc(struct karst_mem *m, uint32_t *pd)
{
	int rc = fifo_pop(&m->ctl->pds, pd);

	if (rc == 0)
		m->ctl->pd[*pd] = (struct mem_pd){.used = true};
	return rc;
}

int
karst_pd_free(struct karst_mem *m, uint32_t pd)
{
	if (!mem_pd_valid(m, pd))
		return -EINVAL;
	if (m->ctl->pd[pd].refs != 0)
		return -EBUSY;
	m->ctl->pd[pd].used = false;
	fifo_push(&m->ctl->pds, pd);
	return 0;
}

int
karst_pd_ref(struct karst_mem *m, uint32_t pd)
{
	if (!mem_pd_valid(m, pd))
		return -EINVAL;
	m->ctl->pd[pd].refs++;
	return 0;
}

void
karst_pd_unref(struct karst_mem *m, uint32_t pd)
{
	assert(mem_pd_valid(m, pd) && m->ctl->pd[pd].refs > 0);
	m->ctl->pd[pd].refs--;
}

void
karst_mem_usage(const struct karst_mem *m, struct karst_mem_usage *u)
{
	const struct karst_mem_ctl *c = m->ctl;

	*u = (struct karst_mem_usage){
		.max_keys = m->slot_mask + 1,
		.mrs = c->used[KARST_MEM_MR],
		.mws = c->used[KARST_MEM_MW1] + c->used[KARST_MEM_MW2],
		.max_pds = c->max_pds,
		.pds = c->max_pds - c->pds.count,
	};
}

struct karst_mem_entry *
mem_slot_alloc(struct karst_mem *m, uint32_t pd, enum karst_mem_type type)
{
	struct karst_mem_entry *e;
	uint32_t slot;

	if (fifo_pop(&m->ctl->slots, &slot) != 0)
		return NULL;
	e = &m->entry[slot];
	assert(mem_state(mem_word_load(e)) == MEM_FREE);
	mem_key_renew(m, e);
	e->type = (uint8_t)type;
	m->ctl->used[type]++;
	e->owner_shift = type == KARST_MEM_MW2 ? 0 : 32;
	__atomic_store_n(&e->owner, (uint64_t)pd << 32, __ATOMIC_RELAXED);
	m->ctl->pd[pd].refs++;
	return e;
}

void
mem_slot_free(struct karst_mem *m, struct karst_mem_entry *e)
{
	uint64_t word = mem_word_load(e);

	assert(mem_state(word) == MEM_CLOSED);
	karst_pd_unref(m, (uint32_t)(e->owner >> 32));
	m->ctl->used[e->type]--;
	e->type = KARST_MEM_FREE;
	mem_word_store(e, mem_word_next(word, MEM_FREE));
	fifo_push(&m->ctl->slots, mem_slot_of(m, e));
}

/* Whether [start, start + len) ends at 2^64 or before. */
static bool
range_fits(uint64_t start, uint64_t len)
{
	return len == 0 || start + (len - 1) >= start;
}

static int
access_check(unsigned int access)
{
	if ((access & ~(unsigned int)ACCESS_KNOWN) != 0)
		return -EINVAL;
	if ((access & (KARST_ACCESS_REMOTE_WRITE | KARST_ACCESS_REMOTE_ATOMIC)) != 0 &&
		(access & KARST_ACCESS_LOCAL_WRITE) == 0)
		return -EINVAL;
	return 0;
}

static int
range_check(const void *host, uint64_t va, uint64_t len, unsigned int access)
{
	if (!range_fits((uintptr_t)host, len))
		return -EINVAL;
	if ((access & KARST_ACCESS_ZERO_BASED) == 0 && !range_fits(va, len))
		return -EINVAL;
	return 0;
}

/* Relaxed: the release of the word publishes them (D). */
static void
set_access(struct karst_mem_entry *e, unsigned int access)
{
	__atomic_store_n(&e->rights, access | KARST_MEM_LOCAL_READ, __ATOMIC_RELAXED);
	if ((access & KARST_ACCESS_ZERO_BASED) != 0)
		__atomic_store_n(&e->base, 0, __ATOMIC_RELAXED);
}

static void
set_range(struct karst_mem_entry *e, void *host, uint64_t va, uint64_t len)
{
	bool zero = (e->rights & KARST_ACCESS_ZERO_BASED) != 0;

	__atomic_store_n(&e->base, zero ? 0 : va, __ATOMIC_RELAXED);
	__atomic_store_n(&e->len, len, __ATOMIC_RELAXED);
	__atomic_store_n(&e->host, (uintptr_t)host, __ATOMIC_RELAXED);
}

/* Allows lcores to use a region, and to bind windows to it. */
static void
mr_open(struct karst_mem_entry *e)
{
	/* Relaxed: a binder reads the count after it has acquired the word. */
	__atomic_store_n(&e->bound, 0, __ATOMIC_RELAXED);
	mem_word_store(e, mem_word_live(mem_word_load(e), MEM_MR, e->key));
}

int
karst_mr_reg(struct karst_mem *m, uint32_t pd, void *host, uint64_t va, uint64_t len,
	unsigned int access, uint32_t *key)
{
	struct karst_mem_entry *e;

	if (!mem_pd_valid(m, pd) || access_check(access) != 0 ||
		range_check(host, va, len, access) != 0)
		return -EINVAL;
	e = mem_slot_alloc(m, pd, KARST_MEM_MR);
	if (e == NULL)
		return -ENOSPC;
	set_access(e, access);
	set_range(e, host, va, len);
	*key = e->key;
	mr_open(e);
	return 0;
}

/* The region of @key; NULL if it is none, or control may not use it in its state. */
static struct karst_mem_entry *
mr_find(struct karst_mem *m, uint32_t key)
{
	struct karst_mem_entry *e = karst_mem_entry_of(m, key);
	enum mem_state s = mem_state(mem_word_load(e));

	if ((s != MEM_MR && s != MEM_DEAD) || __atomic_load_n(&e->key, __ATOMIC_RELAXED) != key)
		return NULL;
	return e;
}

static int
mr_close(struct karst_mem_entry *e)
{
	uint32_t bound = 0;

	/* Acquire: pairs with the release of the last window's unbinding.  That window's key is
	 * invalid by then for every lcore that checks it after the grace period of this call. */
	if (!__atomic_compare_exchange_n(
		    &e->bound, &bound, BOUND_NONE, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		if (bound != BOUND_NONE)
			return -EBUSY;
		/* An invalidation came first; it completes within two instructions. */
		while (mem_state(mem_word_load(e)) != MEM_DEAD)
			mem_pause();
	}
	mem_word_store(e, mem_word_next(mem_word_load(e), MEM_CLOSED));
	return 0;
}

int
karst_mr_dereg_begin(struct karst_mem *m, uint32_t key)
{
	struct karst_mem_entry *e = mr_find(m, key);

	return e != NULL ? mr_close(e) : -EINVAL;
}

/* The entry of a region that _begin has closed. */
static struct karst_mem_entry *
mr_closed(struct karst_mem *m, uint32_t key)
{
	struct karst_mem_entry *e = karst_mem_entry_of(m, key);

	assert(mem_state(mem_word_load(e)) == MEM_CLOSED && e->type == KARST_MEM_MR &&
		e->key == key);
	return e;
}

void
karst_mr_dereg_end(struct karst_mem *m, uint32_t key)
{
	mem_slot_free(m, mr_closed(m, key));
}

static int
rereg_check(const struct karst_mem *m, const struct karst_mem_entry *e, unsigned int what,
	const struct karst_mr_attr *attr)
{
	unsigned int had = e->rights & ~KARST_MEM_LOCAL_READ;
	unsigned int access = (what & KARST_REREG_ACCESS) != 0 ? attr->access : had;

	if (what == 0 || (what & ~(unsigned int)REREG_KNOWN) != 0)
		return -EINVAL;
	if ((what & KARST_REREG_PD) != 0 && !mem_pd_valid(m, attr->pd))
		return -EINVAL;
	if (access_check(access) != 0)
		return -EINVAL;
	if ((what & KARST_REREG_TRANSLATION) != 0)
		return range_check(attr->host, attr->va, attr->len, access);
	/* A zero-based region has no other address to which it could return. */
	return (had & ~access & KARST_ACCESS_ZERO_BASED) == 0 ? 0 : -EINVAL;
}

int
karst_mr_rereg_begin(
	struct karst_mem *m, uint32_t key, unsigned int what, const struct karst_mr_attr *attr)
{
	struct karst_mem_entry *e = mr_find(m, key);
	int rc;

	if (e == NULL || mem_state(mem_word_load(e)) != MEM_MR)
		return -EINVAL;
	rc = rereg_check(m, e, what, attr);
	if (rc == 0)
		rc = mr_close(e);
	/* The new PD is referenced from here on, the old one until _end. */
	if (rc == 0 && (what & KARST_REREG_PD) != 0)
		m->ctl->pd[attr->pd].refs++;
	return rc;
}

void
karst_mr_rereg_end(
	struct karst_mem *m, uint32_t key, unsigned int what, const struct karst_mr_attr *attr)
{
	struct karst_mem_entry *e = mr_closed(m, key);

	if ((what & KARST_REREG_PD) != 0) {
		karst_pd_unref(m, (uint32_t)(e->owner >> 32));
		__atomic_store_n(&e->owner, (uint64_t)attr->pd << 32, __ATOMIC_RELAXED);
	}
	if ((what & KARST_REREG_ACCESS) != 0)
		set_access(e, attr->access);
	if ((what & KARST_REREG_TRANSLATION) != 0)
		set_range(e, attr->host, attr->va, attr->len);
	mr_open(e);
}

int
karst_mr_remap(struct karst_mem *m, uint32_t key, void *host)
{
	struct karst_mem_entry *e = mr_find(m, key);

	if (e == NULL || mem_state(mem_word_load(e)) != MEM_MR ||
		!range_fits((uintptr_t)host, e->len))
		return -EINVAL;
	if ((e->rights & (KARST_ACCESS_MW_BIND | KARST_ACCESS_REMOTE_ATOMIC)) != 0)
		return -EBUSY;
	/* Release: after the caller's mapping at @host.  Readers see either the old or the new
	 * address. */
	__atomic_store_n(&e->host, (uintptr_t)host, __ATOMIC_RELEASE);
	return 0;
}

int
karst_mem_query(const struct karst_mem *m, uint32_t key, struct karst_mr_attr *attr)
{
	const struct karst_mem_entry *e = karst_mem_entry_of(m, key);
	uint64_t word = mem_word_load(e);
	struct karst_mr_attr a;

	if ((word & KARST_MEM_KEY_MASK) != (KARST_MEM_LIVE | key))
		return -EINVAL;
	/* Acquire and a second load, as in karst_mem_check_remote(). */
	a.pd = (uint32_t)(__atomic_load_n(&e->owner, __ATOMIC_ACQUIRE) >> 32);
	a.access = __atomic_load_n(&e->rights, __ATOMIC_ACQUIRE) & ~KARST_MEM_LOCAL_READ;
	a.host = (void *)(uintptr_t)__atomic_load_n(&e->host, __ATOMIC_ACQUIRE);
	a.va = __atomic_load_n(&e->base, __ATOMIC_ACQUIRE);
	a.len = __atomic_load_n(&e->len, __ATOMIC_ACQUIRE);
	if (__atomic_load_n(&e->word, __ATOMIC_RELAXED) != word)
		return -EINVAL;
	*attr = a;
	return 0;
}
