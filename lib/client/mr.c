/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Memory regions: memory.c describes the range as pieces, and the engine returns a key for them. */
#include "client_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "memory.h"

struct cli_mr {
	struct karst_mr pub;
	struct karst_memory *memory;
	unsigned int access;
};

#define WRITES (KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE | KARST_ACCESS_REMOTE_ATOMIC)

static struct cli_mr *
mr_of(struct karst_mr *mr)
{
	return karst_container_of(mr, struct cli_mr, pub);
}

static int
memory_get(struct karst_client *c, const void *addr, size_t len, unsigned int access,
	struct karst_memory **m)
{
	uint64_t min = c->migrate_min;
	char why[KARST_CTL_WHY];
	int ret;

	/* atomics of peers and of the program itself work together only in shared pages */
	if ((access & KARST_ACCESS_REMOTE_ATOMIC) && min != UINT64_MAX)
		min = 1;
	if (access & KARST_ACCESS_ON_DEMAND)
		ret = karst_memory_get_on_demand(addr, len, (access & WRITES) != 0, m, why);
	else
		ret = karst_memory_get(addr, len, (access & WRITES) != 0, min, m, why);
	return ret != 0 ? cli_fail(ret, "%s", why) : 0;
}

/* Returns a message with pieces at its end; the caller frees it. */
static void *
with_pieces(size_t fixed, const struct karst_memory *m, size_t *len)
{
	size_t pieces = m != NULL ? m->npieces * sizeof(struct karst_ctl_piece) : 0;
	uint8_t *msg;

	*len = fixed + pieces;
	if (*len > KARST_CTL_MAX)
		return NULL;
	msg = calloc(1, *len);
	if (msg != NULL && pieces > 0)
		memcpy(msg + fixed, m->piece, pieces);
	return msg;
}

static int
reg_call(struct karst_client *c, const struct karst_pd *pd, const struct cli_mr *r,
	struct karst_ctl_reg_mr_rsp *rsp)
{
	size_t len, fixed = sizeof(struct karst_ctl_hdr) + sizeof(struct karst_ctl_reg_mr_req);
	struct karst_ctl_hdr *msg = with_pieces(fixed, r->memory, &len);
	struct karst_ctl_reg_mr_req *body = (struct karst_ctl_reg_mr_req *)(msg + 1);
	struct cli_reply reply = {rsp, sizeof(*rsp), NULL, 0};
	int ret;

	if (msg == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	body->pd = pd->handle;
	body->access = r->access & ~(unsigned int)KARST_ACCESS_ON_DEMAND;
	body->addr = (uintptr_t)r->pub.addr;
	body->len = r->pub.length;
	body->iova = r->pub.iova;
	body->npieces = r->memory->npieces;
	ret = cli_call(c, KARST_CTL_REG_MR, msg, len, r->memory->fds, r->memory->nfds, &reply);
	free(msg);
	return ret;
}

static int
rereg_call(struct karst_client *c, const struct cli_mr *r, unsigned int what,
	const struct karst_pd *pd, const struct karst_mr *to, unsigned int access,
	const struct karst_memory *m, struct karst_ctl_rereg_mr_rsp *rsp)
{
	size_t len, fixed = sizeof(struct karst_ctl_hdr) + sizeof(struct karst_ctl_rereg_mr_req);
	struct karst_ctl_hdr *msg = with_pieces(fixed, m, &len);
	struct karst_ctl_rereg_mr_req *body = (struct karst_ctl_rereg_mr_req *)(msg + 1);
	struct cli_reply reply = {rsp, sizeof(*rsp), NULL, 0};
	int ret;

	if (msg == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	body->key = r->pub.lkey;
	body->what = what;
	body->pd = pd->handle;
	body->access = access & ~(unsigned int)KARST_ACCESS_ON_DEMAND;
	body->addr = (uintptr_t)to->addr;
	body->len = to->length;
	body->iova = to->iova;
	body->npieces = m != NULL ? m->npieces : 0;
	ret = cli_call(c, KARST_CTL_REREG_MR, msg, len, m != NULL ? m->fds : NULL,
		m != NULL ? m->nfds : 0, &reply);
	free(msg);
	return ret;
}

/* Registers the same bytes again with the pieces of @m. */
static int
pieces_call(struct karst_client *c, const struct cli_mr *r, const struct karst_memory *m,
	struct karst_ctl_rereg_mr_rsp *rsp)
{
	const struct karst_pd none = {0};
	struct karst_mr same = r->pub;

	same.iova = 0;
	return rereg_call(c, r, KARST_CTL_REREG_PIECES, &none, &same, 0, m, rsp);
}

/* --- adjacent regions --- */

/* Registers again a region whose edges need not be copied any more.  If that fails, they are copied
 * as before. */
static void
mr_refresh(struct cli_mr *r)
{
	struct karst_ctl_rereg_mr_rsp rsp;
	struct karst_memory *m;
	char why[KARST_CTL_WHY];

	/* the engine would refuse these: KARST_CTL_REREG_PIECES */
	if ((r->access & (KARST_ACCESS_MW_BIND | KARST_ACCESS_REMOTE_ATOMIC)) != 0 ||
		karst_memory_rescan(r->memory, &m, why) != 0)
		return;
	if (pieces_call(cli_of(r->pub.context), r, m, &rsp) != 0) {
		karst_memory_put(m);
		return;
	}
	karst_memory_put(r->memory);
	r->memory = m;
	karst_memory_settle(m, r);
	r->pub.shared_bytes = rsp.shared_bytes;
	r->pub.migrated_bytes = rsp.migrated_bytes;
	r->pub.copied_bytes = rsp.copied_bytes;
}

/* Under karst_memory_lock(): @r is registered.  From now on karst_memory_stale() can return it.
 * Its registration may have made edges of other regions stale, which are refreshed here. */
static void
mr_settle(struct cli_mr *r)
{
	struct cli_mr *other;

	karst_memory_settle(r->memory, r);
	while ((other = karst_memory_stale()) != NULL)
		mr_refresh(other);
}

/* --- regions --- */

int
karst_reg_mr_iova(struct karst_pd *pd, void *addr, size_t length, uint64_t iova,
	unsigned int access, struct karst_mr **mr)
{
	struct karst_client *c = cli_of(pd->context);
	struct karst_ctl_reg_mr_rsp rsp;
	struct cli_mr *r;
	int ret = cli_check(c);

	if (ret != 0)
		return ret;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	r->pub = (struct karst_mr){
		.context = pd->context, .pd = pd, .addr = addr, .length = length, .iova = iova};
	r->access = access;
	ret = memory_get(c, addr, length, access, &r->memory);
	if (ret == 0) {
		ret = reg_call(c, pd, r, &rsp);
		if (ret != 0)
			karst_memory_put(r->memory);
	}
	if (ret != 0) {
		free(r);
		return ret;
	}
	r->pub.lkey = r->pub.rkey = rsp.key;
	r->pub.shared_bytes = rsp.shared_bytes;
	r->pub.migrated_bytes = rsp.migrated_bytes;
	r->pub.copied_bytes = rsp.copied_bytes;
	cli_pd_get(pd);
	*mr = &r->pub;
	karst_memory_lock();
	mr_settle(r);
	karst_memory_unlock();
	return 0;
}

int
karst_reg_mr(
	struct karst_pd *pd, void *addr, size_t length, unsigned int access, struct karst_mr **mr)
{
	return karst_reg_mr_iova(pd, addr, length,
		access & KARST_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr, access, mr);
}

static int
mr_rereg(struct karst_client *c, struct karst_mr *mr, unsigned int what, struct karst_pd *pd,
	void *addr, size_t length, unsigned int access)
{
	struct cli_mr *r = mr_of(mr);
	struct karst_memory *m = NULL;
	struct karst_ctl_rereg_mr_rsp rsp;
	struct karst_mr to = *mr;
	int ret;

	if ((what & KARST_REREG_PD) && pd == NULL)
		return cli_fail_const(-EINVAL, "KARST_REREG_PD: pd is NULL");
	if ((what & KARST_REREG_PD) && pd->context != mr->context)
		return cli_fail_const(-EINVAL, "pd belongs to another context than mr");
	if (!(what & KARST_REREG_PD))
		pd = mr->pd;
	if (!(what & KARST_REREG_ACCESS))
		access = r->access;
	/* Memory that was registered for reading has to be scanned again before it is written to.
	 * The same is true if the region becomes an on-demand region, or ceases to be one. */
	if (!(what & KARST_REREG_TRANSLATION) &&
		(((access & WRITES) && !(r->access & WRITES)) ||
			((access ^ r->access) & KARST_ACCESS_ON_DEMAND))) {
		what |= KARST_REREG_TRANSLATION;
	} else if (what & KARST_REREG_TRANSLATION) {
		to.addr = addr;
		to.length = length;
		to.iova = access & KARST_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
	}
	if (what & KARST_REREG_TRANSLATION) {
		ret = memory_get(c, to.addr, to.length, access, &m);
		if (ret != 0)
			return ret;
	}
	ret = rereg_call(c, r, what, pd, &to, access, m, &rsp);
	if (ret != 0) {
		if (m != NULL)
			karst_memory_put(m);
		return ret;
	}
	if (m != NULL) {
		karst_memory_put(r->memory);
		r->memory = m;
	}
	if (pd != mr->pd) {
		cli_pd_put(mr->pd);
		cli_pd_get(pd);
	}
	to.pd = pd;
	to.shared_bytes = rsp.shared_bytes;
	to.migrated_bytes = rsp.migrated_bytes;
	to.copied_bytes = rsp.copied_bytes;
	*mr = to;
	r->access = access;
	mr_settle(r);
	return 0;
}

int
karst_rereg_mr(struct karst_mr *mr, unsigned int what, struct karst_pd *pd, void *addr,
	size_t length, unsigned int access)
{
	struct karst_client *c = cli_of(mr->context);
	int ret = cli_check(c);

	if (ret != 0)
		return ret;
	karst_memory_lock();
	ret = mr_rereg(c, mr, what, pd, addr, length, access);
	karst_memory_unlock();
	return ret;
}

int
karst_dereg_mr(struct karst_mr *mr)
{
	struct karst_client *c = cli_of(mr->context);
	struct cli_mr *r = mr_of(mr);
	int ret;

	karst_memory_lock();
	ret = cli_destroy_call(c, KARST_CTL_DEREG_MR, mr->lkey);
	if (ret == 0)
		karst_memory_put(r->memory);
	karst_memory_unlock();
	if (ret != 0)
		return ret;
	cli_pd_put(mr->pd);
	free(r);
	return 0;
}
