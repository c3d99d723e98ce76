/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Protection domains, thread domains, parent domains, XRC domains; and address handles.
 *
 * A parent domain is another name for the protection domain that it contains: objects are created
 * in the latter.  If the parent domain has a thread domain, its queues take no locks.  If it has
 * allocators, the structures of its queue pairs and queues come from them; rings are in the
 * engine's memory.
 */
#include "provider.h"

#include <string.h>

#define KNOWN_PARENT \
	(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)

/* --- protection domains --- */

struct ibv_pd *
kv_alloc_pd(struct ibv_context *ibv)
{
	struct kv_pd *pd = calloc(1, sizeof(*pd));
	int ret;

	if (pd == NULL)
		return kv_fail(kv_refuse(-ENOMEM, "no memory"));
	ret = karst_alloc_pd(kv_context_of(ibv)->karst, &pd->karst);
	if (ret != 0) {
		free(pd);
		return kv_fail(ret);
	}
	pd->ibv.context = ibv;
	pd->ibv.handle = pd->karst->handle;
	kv_live_add(&pd->live, KV_PD, ibv, &pd->ibv, &pd->ibv.handle);
	return &pd->ibv;
}

int
kv_dealloc_pd(struct ibv_pd *ibv)
{
	struct kv_pd *pd = kv_pd_of(ibv);
	int ret = kv_check(KV_PD, ibv);

	if (ret == 0 && atomic_load(&pd->users) != 0)
		ret = kv_refuse(-EBUSY, "a parent domain uses it");
	if (ret != 0)
		return kv_error(ret);
	kv_live_del(&pd->live);
	if (pd->contained == NULL)
		ret = kv_live_decide(&pd->live, karst_dealloc_pd(pd->karst));
	if (ret != 0)
		return kv_error(ret);
	if (pd->contained != NULL)
		atomic_fetch_sub(&pd->contained->users, 1);
	if (pd->td != NULL)
		atomic_fetch_sub(&pd->td->users, 1);
	free(pd);
	return 0;
}

/* --- thread domains --- */

struct ibv_td *
kv_alloc_td(struct ibv_context *ibv, struct ibv_td_init_attr *init)
{
	struct kv_td *td;

	if (init->comp_mask != 0)
		return kv_fail(kv_refuse(-EOPNOTSUPP, "comp_mask must be 0"));
	td = calloc(1, sizeof(*td));
	if (td == NULL)
		return kv_fail(kv_refuse(-ENOMEM, "no memory"));
	td->ibv.context = ibv;
	kv_live_add(&td->live, KV_TD, ibv, &td->ibv, NULL);
	return &td->ibv;
}

int
kv_dealloc_td(struct ibv_td *ibv)
{
	struct kv_td *td = kv_td_of(ibv);
	int ret = kv_check(KV_TD, ibv);

	if (ret == 0 && atomic_load(&td->users) != 0)
		ret = kv_refuse(-EBUSY, "a parent domain uses it");
	if (ret != 0)
		return kv_error(ret);
	kv_live_del(&td->live);
	free(td);
	return 0;
}

/* --- parent domains --- */

struct ibv_pd *
kv_alloc_parent_domain(struct ibv_context *ibv, struct ibv_parent_domain_init_attr *init)
{
	bool has_allocators = init->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	struct kv_pd *pd, *contained;
	int ret;

	if (init->comp_mask & ~(uint32_t)KNOWN_PARENT)
		return kv_fail(kv_refuse(-EOPNOTSUPP, "comp_mask has unknown bits"));
	ret = kv_check_in(KV_PD, ibv, init->pd);
	if (ret == 0)
		ret = kv_check_in_if(KV_TD, ibv, init->td);
	if (ret != 0)
		return kv_fail(ret);
	contained = kv_pd_of(init->pd);
	if (contained->contained != NULL ||
		(has_allocators && (init->alloc == NULL || init->free == NULL)))
		return kv_fail(kv_refuse(-EINVAL,
			"pd must not be a parent domain, and alloc and free both be set or neither"));
	pd = calloc(1, sizeof(*pd));
	if (pd == NULL)
		return kv_fail(kv_refuse(-ENOMEM, "no memory"));
	pd->ibv.context = ibv;
	pd->ibv.handle = contained->ibv.handle;
	pd->karst = contained->karst;
	pd->contained = contained;
	if (has_allocators) {
		pd->alloc = init->alloc;
		pd->free = init->free;
	}
	if (init->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->alloc_context = init->pd_context;
	atomic_fetch_add(&contained->users, 1);
	if (init->td != NULL) {
		pd->td = kv_td_of(init->td);
		atomic_fetch_add(&pd->td->users, 1);
	}
	kv_live_add(&pd->live, KV_PD, ibv, &pd->ibv, &pd->ibv.handle);
	return &pd->ibv;
}

/* Calls the parent domain's allocator, if there is one.
 * @return the memory; IBV_ALLOCATOR_USE_DEFAULT: the provider is to allocate it; NULL, errno and
 * the reason on failure */
static void *
ask_allocator(struct kv_pd *pd, size_t size, enum kv_resource what)
{
	void *p;

	if (pd == NULL || pd->alloc == NULL)
		return IBV_ALLOCATOR_USE_DEFAULT;
	p = pd->alloc(&pd->ibv, pd->alloc_context, size, KARST_CACHE_LINE, what);
	if (p == NULL)
		return kv_fail(kv_refuse(-ENOMEM, "the parent domain's alloc() returned NULL"));
	if (p != IBV_ALLOCATOR_USE_DEFAULT && (uintptr_t)p % KARST_CACHE_LINE != 0) {
		pd->free(&pd->ibv, pd->alloc_context, p, what);
		return kv_fail(kv_refuse(-EINVAL,
			"the parent domain's alloc() returned memory that is not aligned as requested"));
	}
	return p;
}

void *
kv_object_new(struct kv_pd *pd, size_t size, enum kv_resource what, struct kv_memory *memory)
{
	void *p = ask_allocator(pd, size, what);

	if (p == NULL)
		return NULL;
	memory->is_theirs = p != IBV_ALLOCATOR_USE_DEFAULT;
	if (!memory->is_theirs)
		p = aligned_alloc(KARST_CACHE_LINE, size);
	if (p == NULL)
		return kv_fail(kv_refuse(-ENOMEM, "no memory"));
	memset(p, 0, size);
	memory->parent = pd != NULL && pd->contained != NULL ? pd : NULL;
	if (memory->parent != NULL)
		atomic_fetch_add(&pd->users, 1);
	return p;
}

void
kv_object_free(void *object, enum kv_resource what, struct kv_memory memory)
{
	struct kv_pd *pd = memory.parent;

	if (memory.is_theirs)
		pd->free(&pd->ibv, pd->alloc_context, object, what);
	else
		free(object);
	if (pd != NULL)
		atomic_fetch_sub(&pd->users, 1);
}

/* --- XRC domains --- */

struct ibv_xrcd *
kv_open_xrcd(struct ibv_context *ibv, struct ibv_xrcd_init_attr *init)
{
	const uint32_t need = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct kv_xrcd *x;
	int ret;

	if (init->comp_mask & ~need)
		return kv_fail(kv_refuse(-EOPNOTSUPP, "comp_mask has unknown bits"));
	if ((init->comp_mask & need) != need)
		return kv_fail(kv_refuse(-EINVAL,
			"comp_mask must have IBV_XRCD_INIT_ATTR_FD and IBV_XRCD_INIT_ATTR_OFLAGS"));
	x = calloc(1, sizeof(*x));
	if (x == NULL)
		return kv_fail(kv_refuse(-ENOMEM, "no memory"));
	ret = karst_open_xrcd(kv_context_of(ibv)->karst, init->fd, init->oflags, &x->karst);
	if (ret != 0) {
		free(x);
		return kv_fail(ret);
	}
	x->vxrcd.xrcd.context = ibv;
	x->vxrcd.handle = x->karst->handle;
	kv_live_add(&x->live, KV_XRCD, ibv, &x->vxrcd.xrcd, &x->vxrcd.handle);
	return &x->vxrcd.xrcd;
}

int
kv_close_xrcd(struct ibv_xrcd *ibv)
{
	struct kv_xrcd *x = kv_xrcd_of(ibv);
	int ret = kv_check(KV_XRCD, ibv);

	if (ret != 0)
		return kv_error(ret);
	kv_live_del(&x->live);
	ret = kv_live_decide(&x->live, karst_close_xrcd(x->karst));
	if (ret != 0)
		return kv_error(ret);
	free(x);
	return 0;
}

/* --- address handles --- */

int
kv_ah_attr(const struct kv_context *ctx, const struct ibv_ah_attr *from, struct karst_ah_attr *to)
{
	/* RoCE addresses are IP addresses: no LIDs */
	if (from->port_num != 1 || !from->is_global)
		return kv_refuse(-EINVAL, "ah_attr: port_num and is_global must be 1");
	*to = (struct karst_ah_attr){
		.flow_label = from->grh.flow_label & 0xfffff, /* UCX passes -1 for none */
		.sgid_index = from->grh.sgid_index,
		.hop_limit = from->grh.hop_limit,
		.traffic_class = from->grh.traffic_class,
		/* RoCE has 0 to 7.  ibv_init_ah_from_wc() copies that of a completion, which is not
		 * a service level: poll.c */
		.sl = from->sl & 8 ? 0 : from->sl,
		.port_num = (uint8_t)ctx->port,
	};
	memcpy(to->dgid.raw, from->grh.dgid.raw, sizeof(to->dgid.raw));
	return 0;
}

void
kv_ah_attr_back(const struct karst_ah_attr *from, struct ibv_ah_attr *to)
{
	*to = (struct ibv_ah_attr){
		.grh = {.flow_label = from->flow_label,
			.sgid_index = from->sgid_index,
			.hop_limit = from->hop_limit,
			.traffic_class = from->traffic_class},
		.sl = from->sl,
		.is_global = from->port_num != 0,
		.port_num = from->port_num != 0,
	};
	memcpy(to->grh.dgid.raw, from->dgid.raw, sizeof(to->grh.dgid.raw));
}

struct ibv_ah *
kv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct karst_ah_attr to;
	struct kv_ah *ah;
	int ret = kv_check(KV_PD, pd);

	if (ret == 0)
		ret = kv_ah_attr(kv_context_of(pd->context), attr, &to);
	if (ret != 0)
		return kv_fail(ret);
	ah = calloc(1, sizeof(*ah));
	if (ah == NULL)
		return kv_fail(kv_refuse(-ENOMEM, "no memory"));
	ret = karst_create_ah(kv_pd_of(pd)->karst, &to, &ah->karst);
	if (ret != 0) {
		free(ah);
		return kv_fail(ret);
	}
	ah->ibv.handle = ah->karst->handle;
	kv_live_add(&ah->live, KV_AH, pd->context, &ah->ibv, &ah->ibv.handle);
	return &ah->ibv;
}

int
kv_destroy_ah(struct ibv_ah *ibv)
{
	struct kv_ah *ah = kv_ah_of(ibv);
	int ret = kv_check(KV_AH, ibv);

	if (ret != 0)
		return kv_error(ret);
	kv_live_del(&ah->live);
	ret = kv_live_decide(&ah->live, karst_destroy_ah(ah->karst));
	if (ret != 0)
		return kv_error(ret);
	free(ah);
	return 0;
}
