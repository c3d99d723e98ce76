/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Memory regions and windows, advice, and allocators of parent domains. */
#include "wrong.h"

#include <sys/mman.h>
#include <unistd.h>

/* --- memory --- */

void
wrong_memory(void)
{
	const int write = IBV_ACCESS_LOCAL_WRITE;
	uint8_t *gap, *text;
	struct ibv_mr *mr;

	gap = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	text = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(gap != MAP_FAILED && text != MAP_FAILED);
	munmap(gap + 4096, 4096);
	NONE("memory that is not there", ibv_reg_mr(r->pd, gap + 4096, 4096, write), EFAULT);
	NONE("memory with a gap", ibv_reg_mr(r->pd, gap, 3 * 4096, write), EFAULT);
	NONE("read-only memory to write", ibv_reg_mr(r->pd, text, 4096, write), EFAULT);
	NONE("around the end of addresses", ibv_reg_mr(r->pd, gap, SIZE_MAX, write), EINVAL);
	NONE("remote write alone", ibv_reg_mr(r->pd, gap, 4096, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	NONE("remote atomics alone", ibv_reg_mr(r->pd, gap, 4096, IBV_ACCESS_REMOTE_ATOMIC),
		EINVAL);
	NONE("unknown access", ibv_reg_mr(r->pd, gap, 4096, 1 << 15), EINVAL);
	NONE("FLUSH to persistence", ibv_reg_mr(r->pd, gap, 4096, 1 << 9), EINVAL);
	mr = ibv_reg_mr(r->pd, gap, 4096, 1 << 8);
	NONE("memory that peers may FLUSH", mr, 0);
	ERR("it is there", ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr(r->pd, text, 4096, IBV_ACCESS_REMOTE_READ);
	NONE("read-only memory to read", mr, 0);
	CHECK(ibv_rereg_mr(mr, 1 << 10, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT,
		"ibv_rereg_mr with an unknown flag");
	ERR("a region into no domain",
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0) != 0 ? errno : 0,
		EINVAL);
	SAID("an object that the call needs is NULL");
	ERR("it is still there", ibv_dereg_mr(mr), 0);
	munmap(gap, 4096);
	munmap(gap + 2 * 4096, 4096);
	munmap(text, 4096);
}

/* --- advice --- */

static int
advise(const struct ibv_mr *mr, enum ibv_advise_mr_advice advice, uint32_t flags, size_t off)
{
	struct ibv_sge sge = {(uintptr_t)mr->addr + off, 4096, mr->lkey};

	return ibv_advise_mr(r->pd, advice, flags, &sge, 1);
}

void
wrong_advice(void)
{
	const enum ibv_advise_mr_advice prefetch = IBV_ADVISE_MR_ADVICE_PREFETCH;
	const uint32_t flush = IBV_ADVISE_MR_FLAG_FLUSH;
	struct ibv_pd *other = ibv_alloc_pd(r->ctx);
	struct ibv_mr *mr, *read_only;
	struct ibv_sge sge;
	uint8_t *gap;

	gap = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(gap != MAP_FAILED);
	mr = ibv_reg_mr(r->pd, gap, 2 * 4096, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE);
	read_only = ibv_reg_mr(r->pd, gap, 2 * 4096, IBV_ACCESS_ON_DEMAND);
	MUST(other != NULL && mr != NULL && read_only != NULL);
	sge = (struct ibv_sge){(uintptr_t)gap, 4096, mr->lkey};
	munmap(gap + 4096, 4096);
	ERR("advice", advise(mr, prefetch, flush, 0), 0);
	ERR("unknown flags", advise(mr, prefetch, 1u << 7, 0), EINVAL);
	SAID("flags: only IBV_ADVISE_MR_FLAG_FLUSH");
	ERR("unknown advice", advise(mr, (enum ibv_advise_mr_advice)77, flush, 0), EOPNOTSUPP);
	SAID("only the PREFETCH advices");
	ERR("beyond the region", advise(mr, prefetch, flush, 2 * 4096), EFAULT);
	SAID("not within its region");
	ERR("partly beyond the region", advise(mr, prefetch, flush, 4097), EFAULT);
	ERR("before the region", advise(mr, prefetch, flush, (size_t)-4096), EFAULT);
	ERR("not on demand", advise(r->mr, prefetch, flush, 0), ENOENT);
	SAID("no on-demand region");
	ERR("of another domain", ibv_advise_mr(other, prefetch, flush, &sge, 1), EPERM);
	SAID("in another protection domain");
	ERR("to write what is read-only",
		advise(read_only, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, flush, 0), EPERM);
	SAID("without local write access");
	ERR("memory that has gone", advise(mr, prefetch, flush, 4096), EFAULT);
	SAID("nothing is mapped at the address");
	ERR("the region", ibv_dereg_mr(mr), 0);
	ERR("the other", ibv_dereg_mr(read_only), 0);
	ERR("the other domain", ibv_dealloc_pd(other), 0);
	munmap(gap, 4096);
}

/* --- allocators of parent domains --- */

static void *
allocate(struct ibv_pd *pd, void *context, size_t size, size_t align, uint64_t what)
{
	(void)pd, (void)size, (void)align, (void)what;
	return *(void **)context;
}

static void
give_back(struct ibv_pd *pd, void *context, void *p, uint64_t what)
{
	(void)pd, (void)context, (void)p, (void)what;
}

void
wrong_allocators(void)
{
	static _Alignas(64) uint8_t memory[128];
	void *next = NULL;
	struct ibv_parent_domain_init_attr init = {
		.pd = r->pd,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = allocate,
		.free = give_back,
		.pd_context = &next,
	};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_pd *parent = ibv_alloc_parent_domain(r->ctx, &init);

	MUST(parent != NULL);
	NONE("no memory", ibv_create_srq(parent, &srq), ENOMEM);
	SAID("alloc() returned NULL");
	next = memory + 8;
	NONE("memory that is not aligned", ibv_create_srq(parent, &srq), EINVAL);
	SAID("not aligned");
	ERR("the parent domain", ibv_dealloc_pd(parent), 0);
}

/* --- windows --- */

void
wrong_windows(void)
{
	struct ibv_qp *a;
	struct ibv_mw *one = ibv_alloc_mw(r->pd, IBV_MW_TYPE_1);
	struct ibv_mw *two = ibv_alloc_mw(r->pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = {
		.wr_id = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {r->mr, (uintptr_t)r->buf, 4096, IBV_ACCESS_REMOTE_WRITE},
	};

	MUST(one != NULL && two != NULL);
	NONE("no type of window", ibv_alloc_mw(r->pd, (enum ibv_mw_type)9), EINVAL);
	rig_connect(r, IBV_QPT_RC);
	a = r->qp[0];
	THEIRS("type 2 by ibv_bind_mw", ibv_bind_mw(a, two, &bind), EINVAL);
	ERR("a window", ibv_bind_mw(a, one, &bind), 0);
	CHECK(wait_for(r->cq).status == IBV_WC_SUCCESS, "is bound");
	ERR("a region with a window", ibv_dereg_mr(r->mr), EBUSY);
	ERR("a domain with all that", ibv_dealloc_pd(r->pd), EBUSY);
	bind.bind_info.addr += BUF_BYTES;
	ERR("a window beyond the region", ibv_bind_mw(a, one, &bind), 0);
	CHECK(wait_for(r->cq).status == IBV_WC_MW_BIND_ERR, "is refused by its completion");
	ERR("ibv_dealloc_mw", ibv_dealloc_mw(one), 0);
	ERR("ibv_dealloc_mw of type 2", ibv_dealloc_mw(two), 0);
	apart();
}
