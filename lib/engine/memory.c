/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Protection domains, memory regions and windows, address handles: tables common to all lcores.
 *
 * Changes are made by one control thread at a time (ctl_lock).  What takes something away waits
 * in the middle: the key is made unusable, every lcore ends the turn in which it may still use
 * it, and only then is the slot free (and, at a deregistration, the memory the program's again).
 */
#include "engine_priv.h"

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

int
karst_engine_mr_reg(struct karst_engine *e, uint32_t pd, void *host, uint64_t va, uint64_t len,
	unsigned int access, uint32_t *key)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
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
	ret = karst_mr_rereg_begin(e->mem, key, what, attr);
	if (ret == 0) {
		eng_ctl_quiesce(e);
		karst_mr_rereg_end(e->mem, key, what, attr);
	}
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_mr_dereg(struct karst_engine *e, uint32_t key)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = karst_mr_dereg_begin(e->mem, key);
	if (ret == 0) {
		eng_ctl_quiesce(e);
		karst_mr_dereg_end(e->mem, key);
	}
	eng_ctl_leave(e);
	return ret;
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

int
karst_engine_mw_free(struct karst_engine *e, uint32_t key)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = karst_mw_free_begin(e->mem, key);
	if (ret == 0) {
		eng_ctl_quiesce(e);
		karst_mw_free_end(e->mem, key);
	}
	eng_ctl_leave(e);
	return ret;
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
	if (ret == 0)
		e->ah_pd[*ah & e->ah_mask] = pd;
	else
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

int
karst_engine_ah_destroy(struct karst_engine *e, uint32_t ah)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = karst_ah_destroy(e->ahs, ah);
	if (ret == 0) {
		eng_ctl_quiesce(e);
		karst_pd_unref(e->mem, e->ah_pd[ah & e->ah_mask]);
	}
	eng_ctl_leave(e);
	return ret;
}
