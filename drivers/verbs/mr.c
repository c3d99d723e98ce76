/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Memory regions and windows. */
#include "provider.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KNOWN_ACCESS                                                                    \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |    \
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | \
		IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB |                             \
		KARST_ACCESS_FLUSH_GLOBAL) /* later versions of rdma-core have the name */

/* Stores @access without the optional bits, which have no effect, in *@to.
 * @return 0; -EINVAL: unknown flags */
static int
check_access(int access, unsigned int *to)
{
	unsigned int must = (unsigned int)access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;

	if (must & ~(unsigned int)KNOWN_ACCESS)
		return kv_refuse(-EINVAL, "access has unknown flags");
	*to = must;
	return 0;
}

/* The list of on-demand regions, in which kv_advise_mr() finds a region by its key.  It reads all
 * that are listed, so a region is not in the list while a call changes it; several threads may
 * re-register one region at a time.  Prefetching can take as long as a program likes that handles
 * the faults of its pages (userfaultfd), so the lock is not held meanwhile: the region counts these
 * calls, and only those that change this region wait for them. */

/* With the context's lock held. */
static void
on_demand_list(struct kv_context *ctx, struct kv_mr *mr)
{
	mr->listed = (mr->vmr.access & IBV_ACCESS_ON_DEMAND) != 0;
	if (mr->listed)
		LIST_INSERT_HEAD(&ctx->on_demand, mr, next);
}

static void
on_demand_begin(struct kv_context *ctx, struct kv_mr *mr)
{
	karst_mutex_lock(&ctx->lock);
	mr->changing++;
	if (mr->listed)
		LIST_REMOVE(mr, next);
	mr->listed = false;
	while (mr->advising > 0)
		karst_mutex_wait(&ctx->lock, &ctx->advised);
	karst_mutex_unlock(&ctx->lock);
}

/* @access: the new access rights; NULL: they are as before. */
static void
on_demand_end(struct kv_context *ctx, struct kv_mr *mr, const int *access)
{
	karst_mutex_lock(&ctx->lock);
	if (access != NULL)
		mr->vmr.access = *access;
	if (--mr->changing == 0)
		on_demand_list(ctx, mr);
	karst_mutex_unlock(&ctx->lock);
}

struct ibv_mr *
kv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va, int access)
{
	struct kv_mr *mr;
	unsigned int flags = 0;
	int ret = kv_check(KV_PD, pd);

	if (ret == 0)
		ret = check_access(access, &flags);
	/* an implicit region: each region takes a range of the engine's addresses, and the engine
	 * has no more addresses than a program */
	if (ret == 0 && flags & IBV_ACCESS_ON_DEMAND && addr == NULL && length == SIZE_MAX)
		ret = kv_refuse(-EOPNOTSUPP,
			"IBV_ACCESS_ON_DEMAND: implicit regions (all addresses) are not supported");
	if (ret != 0)
		return kv_fail(ret);
	mr = calloc(1, sizeof(*mr));
	if (mr == NULL)
		return kv_fail(kv_refuse(-ENOMEM, "no memory"));
	ret = flags & IBV_ACCESS_ZERO_BASED
		? karst_reg_mr(kv_pd_of(pd)->karst, addr, length, flags, &mr->karst)
		: karst_reg_mr_iova(kv_pd_of(pd)->karst, addr, length, hca_va, flags, &mr->karst);
	if (ret != 0) {
		free(mr);
		return kv_fail(ret);
	}
	mr->vmr.mr_type = IBV_MR_TYPE_MR;
	mr->vmr.access = access;
	mr->vmr.ibv_mr.handle = mr->karst->lkey;
	mr->vmr.ibv_mr.lkey = mr->karst->lkey;
	mr->vmr.ibv_mr.rkey = mr->karst->rkey;
	if (flags & IBV_ACCESS_ON_DEMAND) {
		mr->changing = 1;
		on_demand_end(kv_context_of(pd->context), mr, NULL);
	}
	kv_live_add(&mr->live, KV_MR, pd->context, &mr->vmr.ibv_mr, &mr->vmr.ibv_mr.handle);
	return &mr->vmr.ibv_mr;
}

/* In a forked child the lock of the list may be held forever, so only the process that opened the
 * context may continue. */
static int
mr_check(const struct verbs_mr *vmr)
{
	int ret = kv_check(KV_MR, &vmr->ibv_mr);

	return ret != 0 ? ret : kv_check_process(vmr->ibv_mr.context);
}

int
kv_rereg_mr(
	struct verbs_mr *vmr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct kv_context *ctx = kv_context_of(vmr->ibv_mr.context);
	struct kv_mr *mr = kv_mr_of(&vmr->ibv_mr);
	struct karst_pd *in = NULL;
	unsigned int to = 0;
	int ret = mr_check(vmr);

	if (ret == 0 && flags & IBV_REREG_MR_CHANGE_ACCESS)
		ret = check_access(access, &to);
	/* arguments that the flags do not name may have any value; pyverbs passes such values */
	if (ret == 0 && flags & IBV_REREG_MR_CHANGE_PD) {
		ret = kv_check_in(KV_PD, vmr->ibv_mr.context, pd);
		if (ret == 0)
			in = kv_pd_of(pd)->karst;
	}
	if (ret != 0)
		return kv_error(ret);
	on_demand_begin(ctx, mr);
	ret = karst_rereg_mr(mr->karst, (unsigned int)flags, in, addr, length, to);
	on_demand_end(ctx, mr, ret == 0 && flags & IBV_REREG_MR_CHANGE_ACCESS ? &access : NULL);
	if (ret != 0)
		return kv_error(ret);
	vmr->ibv_mr.lkey = mr->karst->lkey;
	vmr->ibv_mr.rkey = mr->karst->rkey;
	return 0;
}

int
kv_dereg_mr(struct verbs_mr *vmr)
{
	struct kv_context *ctx;
	struct kv_mr *mr = kv_mr_of(&vmr->ibv_mr);
	int ret = mr_check(vmr);

	if (ret != 0)
		return kv_error(ret);
	ctx = kv_context_of(vmr->ibv_mr.context);
	on_demand_begin(ctx, mr);
	kv_live_del(&mr->live);
	ret = kv_live_decide(&mr->live, karst_dereg_mr(mr->karst));
	if (ret != 0) {
		on_demand_end(ctx, mr, NULL);
		return kv_error(ret);
	}
	free(mr);
	return 0;
}

/* --- advice about on-demand regions --- */

/* Finds the region by the lkey of @sge.  The context's lock is held. */
static struct kv_mr *
find_on_demand(const struct kv_context *ctx, const struct ibv_sge *sge)
{
	struct kv_mr *mr;

	LIST_FOREACH(mr, &ctx->on_demand, next)
		if (mr->karst->lkey == sge->lkey)
			break;
	return mr;
}

static bool
is_within(const struct kv_mr *mr, const struct ibv_sge *sge)
{
	const struct karst_mr *k = mr->karst;

	return sge->addr >= k->iova && sge->length <= k->length &&
		sge->addr - k->iova <= k->length - sge->length;
}

/* Prefetches the pages of @length bytes.  Uses the system call directly: a library that intercepts
 * madvise() may register memory in turn. */
static int
populate(uintptr_t at, size_t length, bool write)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = at & ~(page - 1), end = (at + length + page - 1) & ~(page - 1);

	if (start == end ||
		syscall(SYS_madvise, start, end - start,
			write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0)
		return 0;
	switch (errno) {
	case EINVAL: /* the kernel does not know the advice, or the memory is not writable */
		return kv_refuse(
			-EOPNOTSUPP, "advise_mr: the kernel cannot prefetch this kind of memory");
	case ENOMEM:
		return kv_refuse(-EFAULT, "advise_mr: nothing is mapped at the address of an SGE");
	default:
		return kv_refuse(-errno, "advise_mr: the kernel cannot provide the pages");
	}
}

/* Checks advice about @mr, NULL if there is no such region.  The context's lock is held. */
static int
advice_check(const struct kv_pd *pd, const struct kv_mr *mr, const struct ibv_sge *sge, bool write)
{
	if (mr == NULL)
		return kv_refuse(-ENOENT, "advise_mr: no on-demand region has the lkey of an SGE");
	if (mr->karst->pd != pd->karst)
		return kv_refuse(
			-EPERM, "advise_mr: an SGE is of a region in another protection domain");
	if (!is_within(mr, sge))
		return kv_refuse(-EFAULT, "advise_mr: an SGE is not within its region");
	if (write && !(mr->vmr.access & IBV_ACCESS_LOCAL_WRITE))
		return kv_refuse(
			-EPERM, "advise_mr: PREFETCH_WRITE to a region without local write access");
	return 0;
}

static int
mr_advise(const struct kv_pd *pd, enum ibv_advise_mr_advice advice, const struct ibv_sge *sge)
{
	bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	struct kv_context *ctx = kv_context_of(pd->ibv.context);
	struct kv_mr *mr;
	uintptr_t at = 0;
	int ret;

	karst_mutex_lock(&ctx->lock);
	mr = find_on_demand(ctx, sge);
	ret = advice_check(pd, mr, sge, write);
	if (ret == 0) {
		at = (uintptr_t)mr->karst->addr + (sge->addr - mr->karst->iova);
		mr->advising++;
	}
	karst_mutex_unlock(&ctx->lock);
	if (ret != 0)
		return ret;
	/* NO_FAULT: pages that are present already need no prefetch */
	if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		ret = populate(at, sge->length, write);
	karst_mutex_lock(&ctx->lock);
	if (--mr->advising == 0)
		pthread_cond_broadcast(&ctx->advised);
	karst_mutex_unlock(&ctx->lock);
	return ret;
}

int
kv_advise_mr(struct ibv_pd *ibv, enum ibv_advise_mr_advice advice, uint32_t flags,
	struct ibv_sge *sges, uint32_t nsges)
{
	uint32_t i;
	int ret = kv_check(KV_PD, ibv);

	if (ret == 0)
		ret = kv_check_process(ibv->context); /* as mr_check() */
	if (ret != 0)
		return kv_error(ret);
	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH)
		return kv_error(kv_refuse(
			-EINVAL, "advise_mr: flags: only IBV_ADVISE_MR_FLAG_FLUSH is supported"));
	if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH &&
		advice != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
		advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return kv_error(kv_refuse(
			-EOPNOTSUPP, "advise_mr: only the PREFETCH advices are supported"));
	for (i = 0; i < nsges && ret == 0; i++)
		ret = mr_advise(kv_pd_of(ibv), advice, &sges[i]);
	return kv_error(ret);
}

/* --- windows --- */

struct ibv_mw *
kv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct kv_mw *mw;
	int ret = kv_check(KV_PD, pd);

	if (ret != 0)
		return kv_fail(ret);
	mw = calloc(1, sizeof(*mw));
	if (mw == NULL)
		return kv_fail(kv_refuse(-ENOMEM, "no memory"));
	ret = karst_alloc_mw(kv_pd_of(pd)->karst, (enum karst_mw_type)type, &mw->karst);
	if (ret != 0) {
		free(mw);
		return kv_fail(ret);
	}
	mw->ibv = (struct ibv_mw){
		.context = pd->context,
		.pd = pd,
		.rkey = mw->karst->rkey,
		.handle = mw->karst->handle,
		.type = type,
	};
	kv_live_add(&mw->live, KV_MW, pd->context, &mw->ibv, &mw->ibv.handle);
	return &mw->ibv;
}

int
kv_dealloc_mw(struct ibv_mw *ibv)
{
	struct kv_mw *mw = kv_mw_of(ibv);
	int ret = kv_check(KV_MW, ibv);

	if (ret != 0)
		return kv_error(ret);
	kv_live_del(&mw->live);
	ret = kv_live_decide(&mw->live, karst_dealloc_mw(mw->karst));
	if (ret != 0)
		return kv_error(ret);
	free(mw);
	return 0;
}

int
kv_bind_mw(struct ibv_qp *qp, struct ibv_mw *ibv, struct ibv_mw_bind *bind)
{
	const struct ibv_mw_bind_info *b = &bind->bind_info;
	struct kv_mw *mw = kv_mw_of(ibv);
	/* as with windows of type 2, the lkey in the program's structure names the region, and the
	 * engine checks whether it exists */
	struct karst_mr mr = {.lkey = b->mr != NULL ? b->mr->lkey : 0};
	const struct karst_mw_bind_info info = {
		.mr = b->mr != NULL ? &mr : NULL,
		.addr = b->addr,
		.length = b->length,
		.access = kv_window_access(b->mw_access_flags),
	};
	struct kv_qp *q = kv_qp_of(qp);
	int ret = kv_check(KV_QP, qp);

	if (ret == 0)
		ret = kv_check_in(KV_MW, qp->context, ibv);
	/* in a child the lock may be held forever */
	if (ret == 0)
		ret = kv_check_process(qp->context);
	if (ret != 0)
		return kv_error(ret);
	/* kv_post_send() does not take libkarst's lock */
	if (!q->single)
		karst_lock(&q->send_lock);
	/* if the last bind has failed, the program has restored the old key (ibv_bind_mw(3)) */
	mw->karst->rkey = ibv->rkey;
	ret = karst_bind_mw(q->karst, mw->karst, bind->wr_id, bind->send_flags, &info);
	if (!q->single)
		karst_unlock(&q->send_lock);
	if (ret != 0)
		return kv_error(ret);
	ibv->rkey = mw->karst->rkey;
	return 0;
}
