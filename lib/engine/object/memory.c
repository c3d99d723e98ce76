/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Protection domains, memory regions and windows, address handles: tables that all lcores share.
 *
 * One control thread at a time (ctl_lock) makes changes.  A removal waits in the middle: the key is
 * made unusable, every lcore ends the turn in which it may still use the key, and only then is the
 * slot free (and, at a deregistration, the memory returned to the program).
 */
#include "workers.h"
#include "karst_unmapped.h"
#include "object.h"
#include "port.h"

/* Keys or address handles that are removed together. */
#define TOGETHER 1024u

int
karst_engine_pd_alloc(struct karst_engine *e, uint32_t *pd)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = karst_pd_alloc(e->mem, pd);
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_pd_free(struct karst_engine *e, uint32_t pd)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = karst_pd_free(e->mem, pd);
	eng_ctl_leave(e);
	return ret;
}

/* Starts the threads that copy memory on every lcore, if @host has to be copied, before it has a
 * key. */
static int
prepare(struct karst_engine *e, const void *host)
{
	int ret;

	if (e->copies || ((uintptr_t)host & KARST_MEM_UNMAPPED) == 0)
		return 0;
	ret = e->started ? 0 : eng_workers_start(e);
	e->copies = ret == 0;
	return ret;
}

int
karst_engine_mr_reg(struct karst_engine *e, uint32_t pd, void *host, uint64_t va, uint64_t len,
	unsigned int access, uint32_t *key)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = prepare(e, host);
	if (ret == 0)
		ret = karst_mr_reg(e->mem, pd, host, va, len, access, key);
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_mr_rereg(
	struct karst_engine *e, uint32_t key, unsigned int what, const struct karst_mr_attr *attr)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = (what & KARST_REREG_TRANSLATION) != 0 ? prepare(e, attr->host) : 0;
	if (ret == 0)
		ret = karst_mr_rereg_begin(e->mem, key, what, attr);
	if (ret == 0) {
		eng_ctl_quiesce(e);
		karst_mr_rereg_end(e->mem, key, what, attr);
	}
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_mr_remap(struct karst_engine *e, uint32_t key, void *host)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = prepare(e, host);
	if (ret == 0)
		ret = karst_mr_remap(e->mem, key, host);
	if (ret == 0)
		eng_ctl_quiesce(e);
	eng_ctl_leave(e);
	return ret;
}

/* A removal in two steps: @begin makes a name unusable, @end frees what it named. */
struct two_steps {
	int (*begin)(struct karst_engine *e, uint32_t name);
	void (*end)(struct karst_engine *e, uint32_t name);
};

/* Removes @n names, @TOGETHER at a time, waiting once for each group. */
static int
remove_many(struct karst_engine *e, const uint32_t *names, uint32_t n, const struct two_steps *how)
{
	uint32_t i, from, group, begun[TOGETHER], nbegun;
	int ret = eng_ctl_enter(e), one;

	if (ret != 0)
		return ret;
	for (from = 0; from < n; from += group) {
		group = karst_min_u32(n - from, TOGETHER);
		for (i = nbegun = 0; i < group; i++) {
			one = how->begin(e, names[from + i]);
			if (one == 0)
				begun[nbegun++] = names[from + i];
			else if (ret == 0)
				ret = one;
		}
		if (nbegun > 0)
			eng_ctl_quiesce(e);
		for (i = 0; i < nbegun; i++)
			how->end(e, begun[i]);
	}
	eng_ctl_leave(e);
	return ret;
}

static int
mr_begin(struct karst_engine *e, uint32_t key)
{
	return karst_mr_dereg_begin(e->mem, key);
}

static void
mr_end(struct karst_engine *e, uint32_t key)
{
	karst_mr_dereg_end(e->mem, key);
}

static const struct two_steps mr_steps = {mr_begin, mr_end};

int
karst_engine_mr_dereg_many(struct karst_engine *e, const uint32_t *keys, uint32_t n)
{
	return remove_many(e, keys, n, &mr_steps);
}

int
karst_engine_mr_dereg(struct karst_engine *e, uint32_t key)
{
	return remove_many(e, &key, 1, &mr_steps);
}

int
karst_engine_mw_alloc(struct karst_engine *e, uint32_t pd, enum karst_mem_type type, uint32_t *key)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = karst_mw_alloc(e->mem, pd, type, key);
	eng_ctl_leave(e);
	return ret;
}

static int
mw_begin(struct karst_engine *e, uint32_t key)
{
	return karst_mw_free_begin(e->mem, key);
}

static void
mw_end(struct karst_engine *e, uint32_t key)
{
	karst_mw_free_end(e->mem, key);
}

static const struct two_steps mw_steps = {mw_begin, mw_end};

int
karst_engine_mw_free_many(struct karst_engine *e, const uint32_t *keys, uint32_t n)
{
	return remove_many(e, keys, n, &mw_steps);
}

int
karst_engine_mw_free(struct karst_engine *e, uint32_t key)
{
	return remove_many(e, &key, 1, &mw_steps);
}

static int
ah_create(struct karst_engine *e, uint32_t pd, const struct karst_path *path, uint32_t *ah)
{
	int ret = eng_port_check_path(e, KARST_ENGINE_ANY_LCORE, path);

	if (ret == 0)
		ret = karst_pd_ref(e->mem, pd);
	if (ret != 0)
		return ret;
	ret = karst_ah_create(e->ahs, pd, path, ah);
	if (ret != 0)
		karst_pd_unref(e->mem, pd);
	return ret;
}

int
karst_engine_ah_create(
	struct karst_engine *e, uint32_t pd, const struct karst_path *path, uint32_t *ah)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = ah_create(e, pd, path, ah);
	eng_ctl_leave(e);
	return ret;
}

static int
ah_begin(struct karst_engine *e, uint32_t ah)
{
	return karst_ah_destroy(e->ahs, ah);
}

static void
ah_end(struct karst_engine *e, uint32_t ah)
{
	karst_pd_unref(e->mem, karst_ah_pd(e->ahs, ah));
}

static const struct two_steps ah_steps = {ah_begin, ah_end};

int
karst_engine_ah_destroy_many(struct karst_engine *e, const uint32_t *ahs, uint32_t n)
{
	return remove_many(e, ahs, n, &ah_steps);
}

int
karst_engine_ah_destroy(struct karst_engine *e, uint32_t ah)
{
	return remove_many(e, &ah, 1, &ah_steps);
}
