/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Random operations on a small table, and the same on a model that is a plain list with every
 * rule written out.  Each return value must agree, and after each operation the outcome of
 * random accesses by present and past keys.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "mem_bed.h"

#define SLOTS   16u
#define PDS     3u
#define QPS     3u
#define HISTORY 4096u
#define SPACE   256u /* host bytes; addresses are small so that ranges often nearly fit */

struct obj {
	enum karst_mem_type type;
	bool usable;  /* region: not invalidated; window: bound */
	bool closing; /* between _begin and _end */
	uint32_t key, pd, qpn;
	uint64_t va, len, host;
	unsigned int access;
	struct obj *mr; /* of a bound window */
};

struct model {
	struct karst_mem *m;
	struct obj obj[SLOTS];
	unsigned int pd_refs[PDS + 1];
	uint32_t past[HISTORY];
	unsigned int past_count, ok, bound[2];
	uint64_t rng;
};

static uint8_t bytes[SPACE];

static uint32_t
rnd(struct model *t, uint32_t n)
{
	return (uint32_t)(bed_rnd(&t->rng) % n);
}

static void
remember(struct model *t, uint32_t key)
{
	t->past[t->past_count++ % HISTORY] = key;
}

static struct obj *
find(struct model *t, uint32_t key)
{
	for (unsigned int i = 0; i < SLOTS; i++)
		if (t->obj[i].type != KARST_MEM_FREE && t->obj[i].key == key)
			return &t->obj[i];
	return NULL;
}

static struct obj *
find_free(struct model *t)
{
	for (unsigned int i = 0; i < SLOTS; i++)
		if (t->obj[i].type == KARST_MEM_FREE)
			return &t->obj[i];
	return NULL;
}

/* Usually a key that exists or existed; sometimes with its low byte changed. */
static uint32_t
any_key(struct model *t)
{
	uint32_t key = rnd(t, 2) ? t->obj[rnd(t, SLOTS)].key
				 : t->past[rnd(t, karst_min_u32(HISTORY, t->past_count + 1))];

	return rnd(t, 16) == 0 ? key ^ (1u << rnd(t, 8)) : key;
}

/* The same, with a preference for an object of @type or of a higher one, in @pd if not 0. */
static uint32_t
key_of_type(struct model *t, enum karst_mem_type type, uint32_t pd)
{
	struct obj *o;
	unsigned int i;

	for (i = rnd(t, 40); i > 0; i--) {
		o = &t->obj[rnd(t, SLOTS)];
		if (o->type >= type && (type != KARST_MEM_MR || o->type == KARST_MEM_MR) &&
			(pd == 0 || o->pd == pd))
			return o->key;
	}
	return any_key(t);
}

static bool
windows_on(struct model *t, const struct obj *mr)
{
	for (unsigned int i = 0; i < SLOTS; i++)
		if (t->obj[i].type != KARST_MEM_FREE && t->obj[i].usable && t->obj[i].mr == mr)
			return true;
	return false;
}

static bool
inside(const struct obj *o, uint64_t va, uint64_t len)
{
	return va >= o->va && va - o->va <= o->len && len <= o->len - (va - o->va);
}

static enum karst_mem_status
model_check(struct model *t, bool remote, uint32_t pd, uint32_t qpn, uint32_t key, uint64_t va,
	uint32_t len, unsigned int access)
{
	struct obj *o = find(t, key);

	if (o == NULL || !o->usable)
		return KARST_MEM_BAD_KEY;
	if (o->pd != pd || (remote && o->type == KARST_MEM_MW2 && o->qpn != qpn))
		return KARST_MEM_BAD_PD;
	if (!remote && o->type != KARST_MEM_MR)
		return KARST_MEM_BAD_ACCESS;
	if ((o->access & access) != access)
		return KARST_MEM_BAD_ACCESS;
	return inside(o, va, len) ? KARST_MEM_OK : KARST_MEM_BAD_RANGE;
}

static void
compare_check(struct model *t)
{
	uint32_t key = any_key(t), pd = rnd(t, PDS) + 1, qpn = rnd(t, QPS), len = rnd(t, 40);
	struct obj *o = find(t, key);
	uint64_t va = (o != NULL ? o->va : 0) + rnd(t, SPACE / 2) - (uint64_t)(rnd(t, 4) == 0);
	unsigned int access = 1u << rnd(t, 4);
	bool remote = rnd(t, 2);
	enum karst_mem_status want, got;
	uint8_t *host = NULL;

	if (o != NULL && rnd(t, 4) != 0) {
		pd = o->pd;
		qpn = o->qpn;
	}
	if (!remote)
		access = rnd(t, 2) ? KARST_ACCESS_LOCAL_WRITE : 0;
	want = model_check(t, remote, pd, qpn, key, va, len, access);
	got = remote ? karst_mem_check_remote(t->m, pd, qpn, key, va, len, access, &host)
		     : karst_mem_check_local(t->m, pd, key, va, len, access, &host);
	cr_assert_eq(got, want);
	cr_assert_eq(host, want == KARST_MEM_OK ? bytes + o->host + (va - o->va) : NULL);
	t->ok += want == KARST_MEM_OK;
}

static void
op_reg(struct model *t)
{
	struct obj n = {.type = KARST_MEM_MR,
		.usable = true,
		.pd = rnd(t, PDS + 2),
		.va = rnd(t, 1000) == 0 ? UINT64_MAX - rnd(t, SPACE) : rnd(t, SPACE),
		.host = rnd(t, SPACE),
		.access = rnd(t, 64) | (rnd(t, 2) ? 17 : 0)};
	struct obj *o = find_free(t);
	int want = 0, rc;

	n.len = rnd(t, SPACE + 1 - (uint32_t)n.host);
	if (n.pd < 1 || n.pd > PDS || ((n.access & 10) != 0 && (n.access & 1) == 0) ||
		((n.access & 32) == 0 && n.len > 1 && n.va + n.len - 1 < n.va))
		want = -EINVAL;
	else if (o == NULL)
		want = -ENOSPC;
	rc = karst_mr_reg(t->m, n.pd, bytes + n.host, n.va, n.len, n.access, &n.key);
	cr_assert_eq(rc, want);
	if (rc != 0)
		return;
	if ((n.access & KARST_ACCESS_ZERO_BASED) != 0)
		n.va = 0;
	cr_assert_eq(find(t, n.key), NULL);
	*o = n;
	t->pd_refs[n.pd]++;
	remember(t, n.key);
}

static void
op_alloc_window(struct model *t)
{
	struct obj n = {.type = rnd(t, 2) ? KARST_MEM_MW1 : KARST_MEM_MW2, .pd = rnd(t, PDS) + 1};
	struct obj *o = find_free(t);
	int rc = karst_mw_alloc(t->m, n.pd, n.type, &n.key);

	cr_assert_eq(rc, o != NULL ? 0 : -ENOSPC);
	if (rc != 0)
		return;
	*o = n;
	t->pd_refs[n.pd]++;
	remember(t, n.key);
}

static void
op_dereg(struct model *t)
{
	uint32_t key = any_key(t);
	struct obj *o = find(t, key);
	int want = 0, rc;

	if (o == NULL || o->type != KARST_MEM_MR || o->closing)
		want = -EINVAL;
	else if (windows_on(t, o))
		want = -EBUSY;
	rc = karst_mr_dereg_begin(t->m, key);
	cr_assert_eq(rc, want);
	if (rc != 0)
		return;
	o->usable = false;
	o->closing = true;
}

static void
op_free_window(struct model *t)
{
	uint32_t key = any_key(t);
	struct obj *o = NULL;
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		if (t->obj[i].type > KARST_MEM_MR && ((t->obj[i].key ^ key) >> 8) == 0)
			o = &t->obj[i];
	if (o != NULL && o->closing)
		o = NULL;
	cr_assert_eq(karst_mw_free_begin(t->m, key), o != NULL ? 0 : -EINVAL);
	if (o == NULL)
		return;
	o->usable = false;
	o->closing = true;
}

/* The grace period of everything that is closing ends. */
static void
op_end(struct model *t)
{
	for (unsigned int i = 0; i < SLOTS; i++) {
		struct obj *o = &t->obj[i];

		if (!o->closing)
			continue;
		if (o->type == KARST_MEM_MR)
			karst_mr_dereg_end(t->m, o->key);
		else
			karst_mw_free_end(t->m, o->key);
		t->pd_refs[o->pd]--;
		*o = (struct obj){.type = KARST_MEM_FREE, .key = o->key};
	}
}

static void
op_rereg(struct model *t)
{
	uint32_t key = any_key(t);
	struct obj *o = find(t, key), n;
	unsigned int what = rnd(t, 9);
	struct karst_mr_attr a = {.pd = rnd(t, PDS + 2),
		.access = rnd(t, 64) | rnd(t, 2),
		.host = bytes + 64,
		.va = rnd(t, SPACE),
		.len = rnd(t, 64)};
	int want = 0, rc;

	if (o == NULL || o->type != KARST_MEM_MR || !o->usable || what == 0 || what > 7) {
		want = -EINVAL;
	} else {
		n = *o;
		if ((what & KARST_REREG_PD) != 0)
			n.pd = a.pd;
		if ((what & KARST_REREG_ACCESS) != 0)
			n.access = a.access;
		if ((what & KARST_REREG_TRANSLATION) != 0) {
			n.host = 64;
			n.va = a.va;
			n.len = a.len;
		} else if ((o->access & ~n.access & KARST_ACCESS_ZERO_BASED) != 0) {
			want = -EINVAL;
		}
		if ((n.access & KARST_ACCESS_ZERO_BASED) != 0)
			n.va = 0;
		if (n.pd < 1 || n.pd > PDS || ((n.access & 10) != 0 && (n.access & 1) == 0))
			want = -EINVAL;
		else if (want == 0 && windows_on(t, o))
			want = -EBUSY;
	}
	rc = bed_rereg(t->m, key, what, &a);
	cr_assert_eq(rc, want);
	if (rc != 0)
		return;
	t->pd_refs[o->pd]--;
	t->pd_refs[n.pd]++;
	*o = n;
}

static int
model_bind(const struct obj *w, const struct obj *mr, const struct karst_mw_bind *b)
{
	if (w == NULL || w->type == KARST_MEM_MR || w->closing || w->pd != b->pd)
		return -EINVAL;
	if ((b->access & ~(14u | KARST_ACCESS_ZERO_BASED)) != 0)
		return -EINVAL;
	if (w->type == KARST_MEM_MW1 && (b->access & KARST_ACCESS_ZERO_BASED) != 0)
		return -EINVAL;
	if (w->type == KARST_MEM_MW2 && (w->usable || b->len == 0))
		return -EINVAL;
	if (b->len == 0)
		return 0;
	if (mr == NULL || mr->type != KARST_MEM_MR || !mr->usable || mr->pd != b->pd ||
		(mr->access & KARST_ACCESS_MW_BIND) == 0 || !inside(mr, b->va, b->len))
		return -EINVAL;
	return (b->access & 10) != 0 && (mr->access & 1) == 0 ? -EINVAL : 0;
}

static void
op_bind(struct model *t)
{
	struct karst_mw_bind b = {.pd = rnd(t, PDS) + 1,
		.qpn = rnd(t, QPS),
		.mw_key = any_key(t),
		.mr_key = any_key(t),
		.va = rnd(t, SPACE),
		.len = rnd(t, 16),
		.access = rnd(t, 16) == 0 ? rnd(t, 64) : 2u << rnd(t, 3)};
	struct obj *w = find(t, b.mw_key), *mr;
	uint32_t key = 0;
	int want, rc;

	b.mr_key = key_of_type(t, KARST_MEM_MR, w != NULL ? w->pd : 0);
	mr = find(t, b.mr_key);
	if (mr != NULL && rnd(t, 4) != 0)
		b.va = mr->va + rnd(t, (uint32_t)mr->len + 1);
	b.new_key = (b.mw_key & ~0xffu) + rnd(t, rnd(t, 8) == 0 ? 512 : 256);
	if (w != NULL && rnd(t, 8) != 0)
		b.pd = w->pd;
	want = model_bind(w, mr, &b);
	rc = karst_mw_bind(t->m, &b, &key);
	cr_assert_eq(rc, want);
	if (rc != 0)
		return;
	if (w->type == KARST_MEM_MW1)
		cr_assert(key != b.mw_key && (key ^ b.mw_key) >> 8 == 0);
	else
		cr_assert_eq(key, (b.mw_key & ~0xffu) | (b.new_key & 0xff));
	t->bound[w->type == KARST_MEM_MW2] += b.len != 0;
	w->key = key;
	w->usable = b.len != 0;
	w->qpn = b.qpn;
	w->mr = mr;
	w->va = (b.access & KARST_ACCESS_ZERO_BASED) != 0 ? 0 : b.va;
	w->len = b.len;
	w->host = w->usable ? mr->host + (b.va - mr->va) : 0;
	w->access = b.access;
	remember(t, key);
}

static void
op_invalidate(struct model *t)
{
	uint32_t key = key_of_type(t, KARST_MEM_MW1, 0), pd = rnd(t, PDS) + 1, qpn = rnd(t, QPS);
	struct obj *o = find(t, key);
	bool remote = rnd(t, 2), may = false;

	if (o != NULL && rnd(t, 4) != 0)
		pd = o->pd;
	if (o != NULL && o->usable && o->pd == pd) {
		if (o->type == KARST_MEM_MW2)
			may = o->qpn == qpn;
		else if (o->type == KARST_MEM_MR)
			may = !remote && !windows_on(t, o);
	}
	cr_assert_eq(karst_mem_invalidate(t->m, pd, qpn, key, remote), may ? 0 : -EINVAL);
	if (may)
		o->usable = false;
}

static void
op_release_qp(struct model *t)
{
	uint32_t qpn = rnd(t, QPS), n = 0, i;

	for (i = 0; i < SLOTS; i++) {
		struct obj *o = &t->obj[i];

		if (o->type == KARST_MEM_MW2 && o->usable && o->qpn == qpn) {
			o->usable = false;
			n++;
		}
	}
	cr_assert_eq(karst_mw_release_qp(t->m, qpn), n);
}

static void
op_pd_free(struct model *t)
{
	uint32_t pd = rnd(t, PDS) + 1, again;

	cr_assert_eq(karst_pd_free(t->m, pd), t->pd_refs[pd] == 0 ? 0 : -EBUSY);
	if (t->pd_refs[pd] != 0)
		return;
	cr_assert_eq(karst_pd_alloc(t->m, &again), 0);
	cr_assert_eq(again, pd);
}

static void
step(struct model *t)
{
	static void (*const ops[])(struct model *) = {op_reg, op_reg, op_reg, op_reg,
		op_alloc_window, op_alloc_window, op_dereg, op_free_window, op_end, op_end,
		op_rereg, op_bind, op_bind, op_bind, op_bind, op_bind, op_bind, op_bind, op_bind,
		op_invalidate, op_invalidate, op_release_qp, op_pd_free};
	unsigned int i;

	ops[rnd(t, KARST_DIM(ops))](t);
	for (i = 0; i < 8; i++)
		compare_check(t);
}

ParameterizedTestParameters(mem_model, random)
{
	static uint64_t seeds[] = {1, 2, 3, 4, 5, 6, 7, 8};

	return cr_make_param_array(uint64_t, seeds, KARST_DIM(seeds));
}

ParameterizedTest(uint64_t *seed, mem_model, random)
{
	struct model *t = calloc(1, sizeof(*t));
	unsigned int i;

	t->m = bed_open_seed(SLOTS, PDS, *seed);
	t->rng = *seed;
	for (i = 0; i < PDS; i++)
		bed_pd(t->m);
	for (i = 0; i < 60000; i++)
		step(t);
	cr_assert_gt(t->ok, 10000, "%u accesses succeeded", t->ok);
	cr_assert(t->bound[0] > 400 && t->bound[1] > 100, "%u and %u windows bound", t->bound[0],
		t->bound[1]);
	bed_close(t->m);
	free(t);
}
