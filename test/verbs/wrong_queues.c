/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Completion queues, queue pairs and their attributes, addresses and groups. */
#include "wrong.h"

/* --- completion queues --- */

static struct ibv_cq *
cq_ex(struct ibv_context *ctx, uint64_t wc_flags, uint32_t mask, uint32_t flags)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 16, .wc_flags = wc_flags, .comp_mask = mask, .flags = flags};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &init);

	return cq != NULL ? ibv_cq_ex_to_cq(cq) : NULL;
}

void
wrong_completion_queues(void)
{
	struct ibv_device_attr dev;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(r->ctx);
	struct ibv_context *other = open_device();
	struct ibv_modify_cq_attr attr = {.attr_mask = 1u << 7};
	struct ibv_poll_cq_attr unknown = {.comp_mask = 1};
	struct ibv_cq *cq;

	MUST(channel != NULL && ibv_query_device(r->ctx, &dev) == 0);
	NONE("a CQ of 0", ibv_create_cq(r->ctx, 0, NULL, NULL, 0), EINVAL);
	NONE("a CQ of -1", ibv_create_cq(r->ctx, -1, NULL, NULL, 0), EINVAL);
	NONE("a CQ too large", ibv_create_cq(r->ctx, dev.max_cqe + 1, NULL, NULL, 0), EINVAL);
	NONE("a vector too high", ibv_create_cq(r->ctx, 16, NULL, NULL, r->ctx->num_comp_vectors),
		EINVAL);
	NONE("vector -1", ibv_create_cq(r->ctx, 16, NULL, NULL, -1), EINVAL);
	NONE("another context's channel", ibv_create_cq(other, 16, NULL, channel, 0), EINVAL);
	SILENT("unknown wc_flags", cq_ex(r->ctx, 1u << 20, 0, 0) == NULL ? errno : 0, EOPNOTSUPP);
	NONE("an unknown mask", cq_ex(r->ctx, 0, 1u << 20, 0), EOPNOTSUPP);
	NONE("unknown flags", cq_ex(r->ctx, 0, IBV_CQ_INIT_ATTR_MASK_FLAGS, 1u << 20), EOPNOTSUPP);
	MUST((cq = cq_ex(r->ctx, 0, 0, 0)) != NULL);
	ERR("polling with a mask", ibv_start_poll((struct ibv_cq_ex *)cq, &unknown), EINVAL);
	ERR("its CQ", ibv_destroy_cq(cq), 0);
	cq = ibv_create_cq(r->ctx, 16, NULL, channel, 0);
	MUST(cq != NULL);
	ERR("ibv_modify_cq of nothing known", ibv_modify_cq(cq, &attr), EOPNOTSUPP);
	ERR("ibv_resize_cq to 0", ibv_resize_cq(cq, 0), EINVAL);
	ERR("ibv_resize_cq too large", ibv_resize_cq(cq, dev.max_cqe + 1), EINVAL);
	THEIRS("a channel with a CQ", ibv_destroy_comp_channel(channel), EBUSY);
	ERR("that CQ", ibv_destroy_cq(cq), 0);
	ERR("now the channel", ibv_destroy_comp_channel(channel), 0);
	ERR("the other context", ibv_close_device(other), 0);
}

/* --- queue pairs --- */

static struct ibv_qp *
qp_with(enum ibv_qp_type type, struct ibv_qp_cap cap, bool cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq ? r->cq : NULL,
		.recv_cq = r->cq,
		.cap = cap,
		.qp_type = type,
	};

	return ibv_create_qp(r->pd, &init);
}

void
wrong_queue_pairs(void)
{
	const struct ibv_qp_cap cap = {16, 16, 2, 2, 64};
	struct ibv_device_attr dev;
	struct ibv_qp_cap large = cap;

	MUST(ibv_query_device(r->ctx, &dev) == 0);
	NONE("no send CQ", qp_with(IBV_QPT_RC, cap, false), EINVAL);
	NONE("raw packets", qp_with(IBV_QPT_RAW_PACKET, cap, true), EOPNOTSUPP);
	NONE("no type", qp_with((enum ibv_qp_type)77, cap, true), EINVAL);
	NONE("type 0", qp_with((enum ibv_qp_type)0, cap, true), EINVAL);
	large.max_send_wr = (uint32_t)dev.max_qp_wr + 1;
	NONE("too many requests", qp_with(IBV_QPT_RC, large, true), EINVAL);
	large = cap;
	large.max_recv_sge = (uint32_t)dev.max_sge + 1;
	NONE("too many pieces", qp_with(IBV_QPT_RC, large, true), EINVAL);
	large = cap;
	large.max_inline_data = 1u << 20;
	NONE("too much inline data", qp_with(IBV_QPT_RC, large, true), EINVAL);
}

/* Modifies a queue pair step by step to RTS, at each step with one wrong attribute at a time. */
void
wrong_modify(void)
{
	struct ibv_qp *qp = make_qp(r, IBV_QPT_RC, NULL);
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1}, a;
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh.dgid = own_gid()},
	};
	const int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	const int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	ERR("RESET to RTR", ibv_modify_qp(qp, &rtr, to_rtr), EINVAL);
	ERR("INIT without a port", ibv_modify_qp(qp, &init, to_init & ~IBV_QP_PORT), EINVAL);
	ERR("INIT with a Q_Key of RC", ibv_modify_qp(qp, &init, to_init | IBV_QP_QKEY), EINVAL);
	a = init;
	a.port_num = 2;
	ERR("INIT at port 2", ibv_modify_qp(qp, &a, to_init), EINVAL);
	a = init;
	a.pkey_index = 1;
	ERR("INIT with P_Key 1", ibv_modify_qp(qp, &a, to_init), EINVAL);
	a = init;
	a.qp_access_flags = 1 << 15;
	ERR("INIT with a right that there is not", ibv_modify_qp(qp, &a, to_init), EINVAL);
	SAID("no right");
	a = init;
	a.cur_qp_state = IBV_QPS_RTS;
	ERR("INIT, and it is in RTS", ibv_modify_qp(qp, &a, to_init | IBV_QP_CUR_STATE), EINVAL);
	ERR("INIT", ibv_modify_qp(qp, &init, to_init), 0);
	ERR("RTR without an address", ibv_modify_qp(qp, &rtr, to_rtr & ~IBV_QP_AV), EINVAL);
	a = rtr;
	a.ah_attr.is_global = 0;
	ERR("RTR without a GRH", ibv_modify_qp(qp, &a, to_rtr), EINVAL);
	a = rtr;
	a.ah_attr.grh.sgid_index = 99;
	ERR("RTR from a GID beyond the table", ibv_modify_qp(qp, &a, to_rtr), EINVAL);
	a = rtr;
	a.ah_attr.port_num = 2;
	ERR("RTR at port 2", ibv_modify_qp(qp, &a, to_rtr), EINVAL);
	a = rtr;
	a.path_mtu = (enum ibv_mtu)9;
	ERR("RTR with an MTU that is none", ibv_modify_qp(qp, &a, to_rtr), EINVAL);
	a = rtr;
	a.max_dest_rd_atomic = 255;
	ERR("RTR with too many READs", ibv_modify_qp(qp, &a, to_rtr), EINVAL);
	a = rtr;
	a.min_rnr_timer = 32;
	ERR("RTR with an RNR timer that is none", ibv_modify_qp(qp, &a, to_rtr), EINVAL);
	ERR("RTR", ibv_modify_qp(qp, &rtr, to_rtr), 0);
	ERR("it can be destroyed", ibv_destroy_qp(qp), 0);
}

/* --- addresses, groups --- */

void
wrong_addresses(void)
{
	const struct ibv_ah_attr good = {.is_global = 1, .port_num = 1, .grh.dgid = own_gid()};
	struct ibv_ah_attr a = good;
	struct ibv_qp *rc = make_qp(r, IBV_QPT_RC, NULL), *ud = make_qp(r, IBV_QPT_UD, NULL);
	struct ibv_sge sge = {(uintptr_t)r->buf, 8, r->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	union ibv_gid gid = own_gid(), group = {.raw = {0xff, 0x0e, [15] = 1}};
	struct ibv_ah *ah;

	a.is_global = 0;
	NONE("an address without a GRH", ibv_create_ah(r->pd, &a), EINVAL);
	a = good;
	a.port_num = 2;
	NONE("an address at port 2", ibv_create_ah(r->pd, &a), EINVAL);
	a = good;
	a.grh.sgid_index = 99;
	NONE("an address from a GID beyond the table", ibv_create_ah(r->pd, &a), EINVAL);
	a = good;
	ah = ibv_create_ah(r->pd, &a);
	NONE("an address", ah, 0);
	ERR("a domain with an address", ibv_dealloc_pd(r->pd), EBUSY);
	MUST(to_init(ud) == 0 && to_rtr(ud, 0) == 0 && to_rts(ud) == 0);
	SILENT("a datagram without an address", post(ud, &wr, true), EINVAL);
	wr.wr.ud.ah = ah;
	wr.opcode = IBV_WR_RDMA_WRITE;
	SILENT("a WRITE over UD", post(ud, &wr, true), EINVAL);
	ERR("a group of RC", ibv_attach_mcast(rc, &group, 0), EINVAL);
	ERR("a group that is none", ibv_attach_mcast(ud, &gid, 0), EINVAL);
	ERR("leaving a group", ibv_detach_mcast(ud, &group, 0), EINVAL);
	ERR("ibv_destroy_ah", ibv_destroy_ah(ah), 0);
	ERR("ibv_destroy_qp of UD", ibv_destroy_qp(ud), 0);
	ERR("ibv_destroy_qp of RC", ibv_destroy_qp(rc), 0);
}
