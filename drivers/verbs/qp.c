/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Queue pairs: creating, modifying, querying, multicast groups, destroying. */
#include "provider.h"

#include <string.h>

#define KNOWN_INIT                                                                     \
	(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS | \
		IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
/* the bits that have the same values in libkarst */
#define KNOWN_MASK ((int)KARST_QP_DEST_QPN * 2 - 1)

/* --- creating --- */

/* Checks the objects that the queue pair is to use. */
static int
qp_check_objects(const struct ibv_context *ibv, const struct ibv_qp_init_attr_ex *init)
{
	int ret = 0;

	if (init->comp_mask & IBV_QP_INIT_ATTR_PD)
		ret = kv_check_in_if(KV_PD, ibv, init->pd);
	if (ret == 0 && init->comp_mask & IBV_QP_INIT_ATTR_XRCD)
		ret = kv_check_in_if(KV_XRCD, ibv, init->xrcd);
	if (ret == 0)
		ret = kv_check_in_if(KV_CQ, ibv, init->send_cq);
	if (ret == 0)
		ret = kv_check_in_if(KV_CQ, ibv, init->recv_cq);
	return ret != 0 ? ret : kv_check_in_if(KV_SRQ, ibv, init->srq);
}

static int
qp_init_check(const struct ibv_qp_init_attr_ex *init)
{
	if (init->comp_mask & ~(uint32_t)KNOWN_INIT)
		return kv_refuse(-EOPNOTSUPP, "comp_mask has unknown bits");
	if ((init->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && init->create_flags != 0)
		return kv_refuse(-EOPNOTSUPP, "create_flags must be 0");
	switch (init->qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
	case IBV_QPT_XRC_SEND:
		if (init->comp_mask & IBV_QP_INIT_ATTR_PD && init->pd != NULL)
			return 0;
		return kv_refuse(-EINVAL, "comp_mask has no IBV_QP_INIT_ATTR_PD");
	case IBV_QPT_XRC_RECV:
		if (init->comp_mask & IBV_QP_INIT_ATTR_XRCD && init->xrcd != NULL)
			return 0;
		return kv_refuse(-EINVAL, "comp_mask has no IBV_QP_INIT_ATTR_XRCD");
	case IBV_QPT_RAW_PACKET:
	case IBV_QPT_DRIVER:
		return kv_refuse(-EOPNOTSUPP, "qp_type is not RC, UC, UD or XRC");
	default:
		return kv_refuse(-EINVAL, "qp_type is none");
	}
}

static void
qp_init_to_karst(
	const struct ibv_qp_init_attr_ex *from, struct kv_qp *qp, struct karst_qp_init_attr *to)
{
	*to = (struct karst_qp_init_attr){
		.qp_context = qp,
		.send_cq = from->send_cq != NULL ? kv_cq_of(from->send_cq)->karst : NULL,
		.recv_cq = from->recv_cq != NULL ? kv_cq_of(from->recv_cq)->karst : NULL,
		.srq = from->srq != NULL ? kv_srq_of(from->srq)->karst : NULL,
		.cap = {.max_send_wr = from->cap.max_send_wr,
			.max_recv_wr = from->cap.max_recv_wr,
			.max_send_sge = from->cap.max_send_sge,
			.max_recv_sge = from->cap.max_recv_sge,
			.max_inline_data = from->cap.max_inline_data},
		.qp_type = (enum karst_qp_type)from->qp_type,
		.sq_sig_all = from->sq_sig_all != 0,
	};
	if (from->comp_mask & IBV_QP_INIT_ATTR_XRCD && from->xrcd != NULL)
		to->xrcd = kv_xrcd_of(from->xrcd)->karst;
}

/* Raises max_inline_data to the size of the SGEs, which share a slot's space with inline data.
 * There are programs that rely on adapters giving them inline data that they did not ask for. */
static void
room_for_inline(const struct ibv_qp_init_attr_ex *init, struct karst_qp_cap *cap)
{
	uint32_t room = cap->max_send_sge * (uint32_t)sizeof(struct karst_sge);

	if (init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
		init->send_ops_flags & IBV_QP_EX_WITH_ATOMIC_WRITE && room < KV_ATOMIC_WRITE_BYTES)
		room = KV_ATOMIC_WRITE_BYTES;
	if (room > KARST_WQ_MAX_INLINE)
		room = KARST_WQ_MAX_INLINE;
	if (cap->max_inline_data < room)
		cap->max_inline_data = room;
}

static void
qp_cap_to_ibv(const struct karst_qp_cap *from, struct ibv_qp_cap *to)
{
	*to = (struct ibv_qp_cap){
		.max_send_wr = from->max_send_wr,
		.max_recv_wr = from->max_recv_wr,
		.max_send_sge = from->max_send_sge,
		.max_recv_sge = from->max_recv_sge,
		.max_inline_data = from->max_inline_data,
	};
}

/* Fills in the members that libibverbs fills in only for ibv_create_qp(), and lists the object. */
static void
fill_ibv(struct ibv_context *ibv, struct kv_qp *qp, const struct ibv_qp_init_attr_ex *init)
{
	struct ibv_qp *q = &qp->vqp.qp;

	q->context = ibv;
	q->qp_context = init->qp_context;
	q->pd = init->comp_mask & IBV_QP_INIT_ATTR_PD ? init->pd : NULL;
	q->send_cq = init->send_cq;
	q->recv_cq = init->recv_cq;
	q->srq = init->srq;
	if (qp->karst->send_cq != NULL)
		qp->send_cq = qp->karst->send_cq->cq_context;
	if (qp->karst->recv_cq != NULL)
		qp->recv_cq = qp->karst->recv_cq->cq_context;
	q->handle = qp->karst->handle;
	q->qp_num = qp->karst->qp_num;
	q->state = IBV_QPS_RESET;
	q->qp_type = init->qp_type;
	pthread_mutex_init(&q->mutex, NULL);
	pthread_cond_init(&q->cond, NULL);
	if (init->comp_mask & IBV_QP_INIT_ATTR_XRCD && init->xrcd != NULL) {
		qp->vqp.comp_mask |= VERBS_QP_XRCD;
		qp->vqp.xrcd = &kv_xrcd_of(init->xrcd)->vxrcd;
	}
	kv_live_add(&qp->live, KV_QP, ibv, q, &q->handle);
}

struct ibv_qp *
kv_create_qp_ex(struct ibv_context *ibv, struct ibv_qp_init_attr_ex *init)
{
	struct kv_pd *pd = init->comp_mask & IBV_QP_INIT_ATTR_PD && init->pd != NULL
		? kv_pd_of(init->pd)
		: NULL;
	struct karst_qp_init_attr to;
	struct kv_memory memory;
	struct kv_qp *qp;
	int ret = qp_init_check(init);

	if (ret == 0)
		ret = qp_check_objects(ibv, init);
	if (ret != 0)
		return kv_fail(ret);
	qp = kv_object_new(pd, sizeof(*qp), KV_RESOURCE_QP, &memory);
	if (qp == NULL)
		return NULL;
	qp->memory = memory;
	qp->vqp.qp.qp_type = init->qp_type;
	if (init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		ret = kv_set_wr_ops(qp, init->send_ops_flags);
		if (ret != 0) {
			kv_object_free(qp, KV_RESOURCE_QP, qp->memory);
			return kv_fail(kv_refuse(-ret,
				"send_ops_flags has operations that qp_type does not support"));
		}
		qp->vqp.comp_mask |= VERBS_QP_EX;
	}
	qp->single = pd != NULL && pd->td != NULL;
	qp_init_to_karst(init, qp, &to);
	room_for_inline(init, &to.cap);
	ret = karst_create_qp(pd != NULL ? pd->karst : NULL, &to, &qp->karst);
	if (ret != 0) {
		kv_object_free(qp, KV_RESOURCE_QP, qp->memory);
		return kv_fail(ret);
	}
	qp_cap_to_ibv(&to.cap, &init->cap);
	fill_ibv(ibv, qp, init);
	return &qp->vqp.qp;
}

struct ibv_qp *
kv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = init->qp_context,
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.srq = init->srq,
		.cap = init->cap,
		.qp_type = init->qp_type,
		.sq_sig_all = init->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = kv_create_qp_ex(pd->context, &ex);

	if (qp != NULL)
		init->cap = ex.cap;
	return qp;
}

struct ibv_qp *
kv_open_qp(struct ibv_context *ibv, struct ibv_qp_open_attr *attr)
{
	const uint32_t need = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
	struct kv_memory memory;
	struct kv_qp *qp;
	int ret;

	if ((attr->comp_mask & need) != need || attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED ||
		attr->xrcd == NULL || attr->qp_type != IBV_QPT_XRC_RECV)
		return kv_fail(
			kv_refuse(-EINVAL, "open_qp needs qp_num, xrcd, and qp_type XRC_RECV"));
	ret = kv_check_in(KV_XRCD, ibv, attr->xrcd);
	if (ret != 0)
		return kv_fail(ret);
	qp = kv_object_new(NULL, sizeof(*qp), KV_RESOURCE_QP, &memory);
	if (qp == NULL)
		return NULL;
	qp->memory = memory;
	ret = karst_open_qp(kv_xrcd_of(attr->xrcd)->karst, attr->qp_num, qp, &qp->karst);
	if (ret != 0) {
		kv_object_free(qp, KV_RESOURCE_QP, qp->memory);
		return kv_fail(ret);
	}
	init.xrcd = attr->xrcd;
	if (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT)
		init.qp_context = attr->qp_context;
	fill_ibv(ibv, qp, &init);
	return &qp->vqp.qp;
}

/* --- states --- */

/* Removes the attributes of the half (requester or responder) that an XRC queue pair does not have.
 * The kernel ignores them too: programs set the attributes of RC on both halves. */
static int
qp_mask_of_type(enum ibv_qp_type type, int mask)
{
	switch (type) {
	case IBV_QPT_XRC_SEND:
		return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	case IBV_QPT_XRC_RECV:
		return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	default:
		return mask;
	}
}

static int
set_rate(struct kv_qp *qp, uint32_t kbps, uint32_t burst)
{
	const struct karst_qp_rate_limit_attr to = {.rate_limit = kbps, .max_burst_sz = burst};
	int ret = karst_modify_qp_rate_limit(qp->karst, &to);

	if (ret == 0) {
		qp->rate_limit = kbps;
		qp->rate_burst = burst;
	}
	return ret;
}

/* Modifies the queue pair and its rate limit, or neither.  The limit is set first because it can be
 * set back.  The engine accepts it in RTR and SQD, too, so before a transition to RTS. */
static int
modify_with_rate(struct kv_qp *qp, const struct karst_qp_attr *to, unsigned int mask, uint32_t kbps)
{
	uint32_t kbps_before = qp->rate_limit, burst_before = qp->rate_burst;
	int ret = set_rate(qp, kbps, 0);

	if (ret != 0)
		return ret;
	ret = karst_modify_qp(qp->karst, to, mask);
	if (ret != 0)
		set_rate(qp, kbps_before, burst_before);
	return ret;
}

/* Checks a rate limit, which is allowed only if the modification ends in RTS. */
static int
check_rate(const struct ibv_qp *ibv, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : ibv->state;

	if (to != IBV_QPS_RTS)
		return kv_refuse(-EINVAL, "IBV_QP_RATE_LIMIT: only to or in RTS");
	if (attr->rate_limit > KARST_RATE_LIMIT_MAX)
		return kv_refuse(-EINVAL, "rate_limit: more than qp_rate_limit_max");
	return 0;
}

/* Are all bits of @access known?  Access rights that concern only regions are accepted and have no
 * effect. */
static bool
access_known(unsigned int access)
{
	const unsigned int known = KARST_ACCESS_REMOTE | KARST_ACCESS_FLUSH_PERSISTENT |
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
		IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

	return (access & ~known) == 0;
}

int
kv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	const struct kv_context *ctx = kv_context_of(ibv->context);
	struct kv_qp *qp = kv_qp_of(ibv);
	struct karst_qp_attr to = {
		.qp_state = (enum karst_qp_state)attr->qp_state,
		.cur_qp_state = (enum karst_qp_state)attr->cur_qp_state,
		.path_mtu = (enum karst_mtu)attr->path_mtu,
		.qkey = attr->qkey,
		.rq_psn = attr->rq_psn & 0xffffff,
		.sq_psn = attr->sq_psn & 0xffffff,
		.dest_qp_num = attr->dest_qp_num,
		.qp_access_flags = attr->qp_access_flags & KARST_ACCESS_REMOTE,
		.pkey_index = attr->pkey_index,
		.en_sqd_async_notify = attr->en_sqd_async_notify,
		.max_rd_atomic = attr->max_rd_atomic,
		.max_dest_rd_atomic = attr->max_dest_rd_atomic,
		.min_rnr_timer = attr->min_rnr_timer,
		.port_num = (uint8_t)ctx->port,
		.timeout = attr->timeout,
		.retry_cnt = attr->retry_cnt,
		.rnr_retry = attr->rnr_retry,
		.alt_port_num = (uint8_t)ctx->port,
		.alt_timeout = attr->alt_timeout,
		.alt_pkey_index = attr->alt_pkey_index,
		.path_mig_state = (enum karst_mig_state)attr->path_mig_state,
	};
	int ret = kv_check(KV_QP, ibv);

	bool limits = mask & IBV_QP_RATE_LIMIT;

	mask = qp_mask_of_type(ibv->qp_type, mask) & ~IBV_QP_RATE_LIMIT;
	if (ret == 0 && mask & ~KNOWN_MASK)
		ret = kv_refuse(-EOPNOTSUPP, "attr_mask has a bit that is not supported");
	if (ret == 0 && limits)
		ret = check_rate(ibv, attr, mask);
	if (ret == 0 && mask & IBV_QP_ACCESS_FLAGS && !access_known(attr->qp_access_flags))
		ret = kv_refuse(-EINVAL, "qp_access_flags has a bit that is no right");
	if (ret == 0 && mask & IBV_QP_PORT && attr->port_num != 1)
		ret = kv_refuse(-EINVAL, "port_num must be 1");
	if (ret == 0 && mask & IBV_QP_AV)
		ret = kv_ah_attr(ctx, &attr->ah_attr, &to.ah_attr);
	/* a device has one port; an alternate path differs by its addresses */
	if (ret == 0 && mask & IBV_QP_ALT_PATH && attr->alt_port_num != 1)
		ret = kv_refuse(-EINVAL, "alt_port_num must be 1");
	if (ret == 0 && mask & IBV_QP_ALT_PATH)
		ret = kv_ah_attr(ctx, &attr->alt_ah_attr, &to.alt_ah_attr);
	if (ret == 0)
		ret = limits ? modify_with_rate(qp, &to, (unsigned int)mask, attr->rate_limit)
			     : karst_modify_qp(qp->karst, &to, (unsigned int)mask);
	if (ret == 0 && mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET) {
		kv_drop_completions(qp);
		qp->rate_limit = 0;
		qp->rate_burst = 0;
	}
	return kv_error(ret);
}

int
kv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct kv_qp *qp = kv_qp_of(ibv);
	struct karst_qp_init_attr karst_init;
	struct karst_qp_attr from;
	int ret = kv_check(KV_QP, ibv);

	(void)mask; /* all attributes are returned */
	if (ret == 0)
		ret = karst_query_qp(qp->karst, &from, &karst_init);
	if (ret != 0)
		return kv_error(ret);
	*attr = (struct ibv_qp_attr){
		.qp_state = (enum ibv_qp_state)from.qp_state,
		.cur_qp_state = (enum ibv_qp_state)from.qp_state,
		.path_mtu = (enum ibv_mtu)from.path_mtu,
		.path_mig_state = (enum ibv_mig_state)from.path_mig_state,
		.qkey = from.qkey,
		.rq_psn = from.rq_psn,
		.sq_psn = from.sq_psn,
		.dest_qp_num = from.dest_qp_num,
		.qp_access_flags = from.qp_access_flags,
		.pkey_index = from.pkey_index,
		.en_sqd_async_notify = from.en_sqd_async_notify,
		.sq_draining = from.sq_draining,
		.max_rd_atomic = from.max_rd_atomic,
		.max_dest_rd_atomic = from.max_dest_rd_atomic,
		.min_rnr_timer = from.min_rnr_timer,
		.port_num = from.port_num != 0,
		.timeout = from.timeout,
		.retry_cnt = from.retry_cnt,
		.rnr_retry = from.rnr_retry,
		.rate_limit = qp->rate_limit,
		.alt_pkey_index = from.alt_pkey_index,
		.alt_port_num = from.alt_port_num != 0,
		.alt_timeout = from.alt_timeout,
	};
	qp_cap_to_ibv(&from.cap, &attr->cap);
	kv_ah_attr_back(&from.ah_attr, &attr->ah_attr);
	kv_ah_attr_back(&from.alt_ah_attr, &attr->alt_ah_attr);
	*init = (struct ibv_qp_init_attr){
		.qp_context = ibv->qp_context,
		.send_cq = ibv->send_cq,
		.recv_cq = ibv->recv_cq,
		.srq = ibv->srq,
		.cap = attr->cap,
		.qp_type = ibv->qp_type,
		.sq_sig_all = karst_init.sq_sig_all,
	};
	return 0;
}

int
kv_query_qp_data_in_order(struct ibv_qp *ibv, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)ibv;
	(void)op;
	(void)flags;
	/* within a message, large regions get streaming stores, which are not ordered */
	return 0;
}

int
kv_destroy_qp(struct ibv_qp *ibv)
{
	struct kv_qp *qp = kv_qp_of(ibv);
	int ret = kv_check(KV_QP, ibv);

	if (ret == 0)
		ret = kv_check_process(ibv->context);
	if (ret != 0)
		return kv_error(ret);
	kv_events_close(&qp->events, &ibv->mutex, &ibv->cond, NULL, &ibv->events_completed);
	kv_live_del(&qp->live);
	ret = kv_live_decide(&qp->live, karst_destroy_qp(qp->karst));
	kv_events_decide(&qp->events, ret == 0);
	if (ret != 0)
		return kv_error(ret);
	kv_drop_completions(qp);
	kv_object_free(qp, KV_RESOURCE_QP, qp->memory);
	return 0;
}

/* typical_pkt_sz is ignored: the pacer counts the size of each packet. */
int
kv_modify_qp_rate_limit(struct ibv_qp *ibv, struct ibv_qp_rate_limit_attr *attr)
{
	int ret = kv_check(KV_QP, ibv);

	if (ret == 0 && attr->comp_mask != 0)
		ret = kv_refuse(-EINVAL, "comp_mask must be 0");
	if (ret == 0)
		ret = set_rate(kv_qp_of(ibv), attr->rate_limit, attr->max_burst_sz);
	return kv_error(ret);
}

/* --- enhanced connection establishment --- */

/* As kv_error(), but prints no reason if ECE is off: librdmacm asks for ECE with every connection,
 * whether it is on or off. */
static int
ece_error(int ret)
{
	return ret == -EOPNOTSUPP ? kv_errno(EOPNOTSUPP) : kv_error(ret);
}

int
kv_query_ece(struct ibv_qp *ibv, struct ibv_ece *ece)
{
	struct karst_ece is;
	int ret = kv_check(KV_QP, ibv);

	if (ret == 0)
		ret = karst_query_ece(kv_qp_of(ibv)->karst, &is);
	if (ret == 0)
		*ece = (struct ibv_ece){.vendor_id = is.vendor_id, .options = is.options};
	return ece_error(ret);
}

int
kv_set_ece(struct ibv_qp *ibv, struct ibv_ece *ece)
{
	struct karst_ece to = {.vendor_id = ece->vendor_id, .options = ece->options};
	int ret = kv_check(KV_QP, ibv);

	if (ret == 0 && ece->comp_mask != 0)
		ret = kv_refuse(-EINVAL, "comp_mask must be 0");
	if (ret == 0)
		ret = karst_set_ece(kv_qp_of(ibv)->karst, &to);
	if (ret == 0)
		ece->options = to.options;
	return ece_error(ret);
}

/* --- multicast --- */

int
kv_attach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	union karst_gid to;

	int ret = kv_check(KV_QP, ibv);

	(void)lid; /* RoCE has no LIDs */
	memcpy(to.raw, gid->raw, sizeof(to.raw));
	return kv_error(ret != 0 ? ret : karst_attach_mcast(kv_qp_of(ibv)->karst, &to));
}

int
kv_detach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	union karst_gid to;

	int ret = kv_check(KV_QP, ibv);

	(void)lid;
	memcpy(to.raw, gid->raw, sizeof(to.raw));
	return kv_error(ret != 0 ? ret : karst_detach_mcast(kv_qp_of(ibv)->karst, &to));
}
