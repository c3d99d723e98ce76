/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Memory regions and windows. */
#include "provider.h"

#define KNOWN_ACCESS                                                                    \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |    \
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | \
		IBV_ACCESS_HUGETLB)

/* 0, or the errno of what is asked too much; *@to without the optional bits that do nothing. */
static int
check_access(int access, unsigned int *to)
{
	unsigned int must = (unsigned int)access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;

	if (must & IBV_ACCESS_ON_DEMAND)
		return EOPNOTSUPP;
	if (must & ~(unsigned int)KNOWN_ACCESS)
		return EINVAL;
	*to = must;
	return 0;
}

struct ibv_mr *
kv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va, int access)
{
	struct kv_mr *mr;
	unsigned int flags;
	int ret = check_access(access, &flags);

	if (ret != 0) {
		errno = ret;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	if (mr == NULL)
		return kv_fail(-ENOMEM);
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
	return &mr->vmr.ibv_mr;
}

int
kv_rereg_mr(
	struct verbs_mr *vmr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct kv_mr *mr = kv_mr_of(&vmr->ibv_mr);
	unsigned int to = 0;
	int ret = flags & IBV_REREG_MR_CHANGE_ACCESS ? check_access(access, &to) : 0;

	if (ret == 0)
		ret = kv_error(karst_rereg_mr(mr->karst, (unsigned int)flags,
			pd != NULL ? kv_pd_of(pd)->karst : NULL, addr, length, to));
	if (ret != 0) {
		errno = ret;
		return ret;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		vmr->access = access;
	vmr->ibv_mr.lkey = mr->karst->lkey;
	vmr->ibv_mr.rkey = mr->karst->rkey;
	return 0;
}

int
kv_dereg_mr(struct verbs_mr *vmr)
{
	struct kv_mr *mr = kv_mr_of(&vmr->ibv_mr);
	int ret = karst_dereg_mr(mr->karst);

	if (ret != 0)
		return kv_error(ret);
	free(mr);
	return 0;
}

/* --- windows --- */

struct ibv_mw *
kv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct kv_mw *mw = calloc(1, sizeof(*mw));
	int ret;

	if (mw == NULL)
		return kv_fail(-ENOMEM);
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
	return &mw->ibv;
}

int
kv_dealloc_mw(struct ibv_mw *ibv)
{
	struct kv_mw *mw = kv_mw_of(ibv);
	int ret = karst_dealloc_mw(mw->karst);

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
	const struct karst_mw_bind_info info = {
		.mr = b->mr != NULL ? kv_mr_of(b->mr)->karst : NULL,
		.addr = b->addr,
		.length = b->length,
		.access = kv_window_access(b->mw_access_flags),
	};
	int ret =
		karst_bind_mw(kv_qp_of(qp)->karst, mw->karst, bind->wr_id, bind->send_flags, &info);

	if (ret != 0)
		return kv_error(ret);
	ibv->rkey = mw->karst->rkey;
	return 0;
}
