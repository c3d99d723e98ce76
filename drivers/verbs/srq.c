/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Shared receive queues, basic and of XRC domains. */
#include "provider.h"

static struct kv_srq *
srq_create(struct ibv_pd *pd, struct karst_srq_init_attr *init, struct ibv_srq_attr *attr)
{
	struct kv_memory memory;
	struct kv_srq *srq;
	int ret = kv_check(KV_PD, pd);

	if (ret != 0)
		return kv_fail(ret);
	srq = kv_object_new(kv_pd_of(pd), sizeof(*srq), KV_RESOURCE_SRQ, &memory);
	if (srq == NULL)
		return NULL;
	srq->memory = memory;
	init->srq_context = srq;
	init->max_wr = attr->max_wr;
	init->max_sge = attr->max_sge;
	/* as with other drivers, only ibv_modify_srq() arms the limit */
	ret = karst_create_srq(kv_pd_of(pd)->karst, init, &srq->karst);
	if (ret != 0) {
		kv_object_free(srq, KV_RESOURCE_SRQ, srq->memory);
		return kv_fail(ret);
	}
	attr->max_wr = srq->karst->rq.mask + 1;
	attr->max_sge = srq->karst->max_sge;
	srq->vsrq.srq.handle = srq->karst->handle;
	kv_live_add(&srq->live, KV_SRQ, pd->context, &srq->vsrq.srq, &srq->vsrq.srq.handle);
	return srq;
}

struct ibv_srq *
kv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct karst_srq_init_attr to = {.srq_type = KARST_SRQT_BASIC};
	struct kv_srq *srq = srq_create(pd, &to, &init->attr);

	return srq != NULL ? &srq->vsrq.srq : NULL;
}

static int
srq_init_check(const struct ibv_context *ibv, const struct ibv_srq_init_attr_ex *init)
{
	const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
		IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	const uint32_t xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	int ret;

	if (init->comp_mask & ~known)
		return kv_refuse(-EOPNOTSUPP, "tag matching (IBV_SRQT_TM) is not supported");
	if (!(init->comp_mask & IBV_SRQ_INIT_ATTR_PD) || init->pd == NULL)
		return kv_refuse(-EINVAL, "comp_mask has no IBV_SRQ_INIT_ATTR_PD");
	ret = kv_check_in(KV_PD, ibv, init->pd);
	if (ret != 0)
		return ret;
	if (!(init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) || init->srq_type == IBV_SRQT_BASIC)
		return 0;
	if (init->srq_type != IBV_SRQT_XRC)
		return kv_refuse(-EOPNOTSUPP, "srq_type is not BASIC or XRC");
	if ((init->comp_mask & xrc) != xrc || init->xrcd == NULL || init->cq == NULL)
		return kv_refuse(-EINVAL, "srq_type XRC needs xrcd and cq");
	ret = kv_check_in(KV_XRCD, ibv, init->xrcd);
	return ret != 0 ? ret : kv_check_in(KV_CQ, ibv, init->cq);
}

struct ibv_srq *
kv_create_srq_ex(struct ibv_context *ibv, struct ibv_srq_init_attr_ex *init)
{
	struct karst_srq_init_attr to = {.srq_type = KARST_SRQT_BASIC};
	struct ibv_srq *s;
	struct kv_srq *srq;
	int ret = srq_init_check(ibv, init);

	if (ret != 0)
		return kv_fail(ret);
	if ((init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && init->srq_type == IBV_SRQT_XRC) {
		to.srq_type = KARST_SRQT_XRC;
		to.xrcd = kv_xrcd_of(init->xrcd)->karst;
		to.cq = kv_cq_of(init->cq)->karst;
	}
	srq = srq_create(init->pd, &to, &init->attr);
	if (srq == NULL)
		return NULL;
	/* libibverbs fills these in only for ibv_create_srq() */
	s = &srq->vsrq.srq;
	s->context = ibv;
	s->srq_context = init->srq_context;
	s->pd = init->pd;
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->cond, NULL);
	srq->vsrq.srq_type = to.srq_type == KARST_SRQT_XRC ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
	if (to.srq_type == KARST_SRQT_XRC) {
		srq->vsrq.xrcd = &kv_xrcd_of(init->xrcd)->vxrcd;
		srq->vsrq.cq = init->cq;
	}
	srq->vsrq.srq_num = srq->karst->srq_num;
	return s;
}

int
kv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	int ret = kv_check(KV_SRQ, ibv);

	if (ret == 0 && mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		ret = kv_refuse(-EINVAL, "srq_attr_mask has unknown bits");
	if (ret == 0 && mask & IBV_SRQ_MAX_WR)
		ret = kv_refuse(
			-EOPNOTSUPP, "IBV_SRQ_MAX_WR: the size of a shared receive queue is fixed");
	if (ret != 0 || !(mask & IBV_SRQ_LIMIT))
		return kv_error(ret);
	return kv_error(karst_modify_srq(kv_srq_of(ibv)->karst, attr->srq_limit));
}

int
kv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct karst_srq_attr from;
	int ret = kv_check(KV_SRQ, ibv);

	if (ret == 0)
		ret = karst_query_srq(kv_srq_of(ibv)->karst, &from);
	if (ret != 0)
		return kv_error(ret);
	*attr = (struct ibv_srq_attr){from.max_wr, from.max_sge, from.srq_limit};
	return 0;
}

int
kv_get_srq_num(struct ibv_srq *ibv, uint32_t *srq_num)
{
	const struct kv_srq *srq = kv_srq_of(ibv);
	int ret = kv_check(KV_SRQ, ibv);

	if (ret == 0 && srq->vsrq.srq_type != IBV_SRQT_XRC)
		ret = kv_refuse(-EOPNOTSUPP, "the shared receive queue is not of type XRC");
	if (ret != 0)
		return kv_error(ret);
	*srq_num = srq->vsrq.srq_num;
	return 0;
}

int
kv_destroy_srq(struct ibv_srq *ibv)
{
	struct kv_srq *srq = kv_srq_of(ibv);
	int ret = kv_check(KV_SRQ, ibv);

	if (ret == 0)
		ret = kv_check_process(ibv->context);
	if (ret == 0 && karst_srq_in_use(srq->karst))
		ret = kv_refuse(-EBUSY, "queue pairs use this shared receive queue");
	if (ret != 0)
		return kv_error(ret);
	kv_events_close(&srq->events, &ibv->mutex, &ibv->cond, NULL, &ibv->events_completed);
	kv_live_del(&srq->live);
	ret = kv_live_decide(&srq->live, karst_destroy_srq(srq->karst));
	kv_events_decide(&srq->events, ret == 0);
	if (ret != 0)
		return kv_error(ret);
	kv_object_free(srq, KV_RESOURCE_SRQ, srq->memory);
	return 0;
}

int
kv_post_srq_ops(struct ibv_srq *ibv, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	(void)ibv;
	*bad = wr;
	return kv_errno(EOPNOTSUPP); /* no tag matching */
}
