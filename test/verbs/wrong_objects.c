/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Devices, domains, objects in the wrong order, and objects that are not those of this program. */
#include "wrong.h"

#include <fcntl.h>
#include <limits.h>

void
wrong_devices(void)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;

	ERR("port 0", ibv_query_port(r->ctx, 0, &port), EINVAL);
	ERR("port 2", ibv_query_port(r->ctx, 2, &port), EINVAL);
	CHECK(ibv_query_gid(r->ctx, 1, 9999, &gid) != 0, "a GID beyond the table");
	CHECK(ibv_query_pkey(r->ctx, 1, 1, &pkey) != 0, "a P_Key beyond the table");
}

void
wrong_domains(void)
{
	struct ibv_td_init_attr td_init = {.comp_mask = 1};
	struct ibv_parent_domain_init_attr parent = {.comp_mask = 1u << 20};
	struct ibv_xrcd_init_attr xrcd = {.comp_mask = 1u << 20};
	struct ibv_qp_open_attr open = {.comp_mask = IBV_QP_OPEN_ATTR_NUM};
	struct ibv_pd *pd;
	struct ibv_td *td;

	NONE("a thread domain with a mask", ibv_alloc_td(r->ctx, &td_init), EOPNOTSUPP);
	NONE("a parent domain with a mask", ibv_alloc_parent_domain(r->ctx, &parent), EOPNOTSUPP);
	parent.comp_mask = 0;
	NONE("a parent of nothing", ibv_alloc_parent_domain(r->ctx, &parent), EINVAL);
	td_init.comp_mask = 0;
	MUST((td = ibv_alloc_td(r->ctx, &td_init)) != NULL);
	parent.pd = r->pd;
	parent.td = td;
	MUST((pd = ibv_alloc_parent_domain(r->ctx, &parent)) != NULL);
	ERR("a thread domain in use", ibv_dealloc_td(td), EBUSY);
	ERR("a domain that is contained", ibv_dealloc_pd(r->pd), EBUSY);
	ERR("the parent", ibv_dealloc_pd(pd), 0);
	ERR("the thread domain", ibv_dealloc_td(td), 0);
	NONE("an XRC domain with a mask", ibv_open_xrcd(r->ctx, &xrcd), EOPNOTSUPP);
	xrcd.comp_mask = IBV_XRCD_INIT_ATTR_FD;
	NONE("half an XRC domain", ibv_open_xrcd(r->ctx, &xrcd), EINVAL);
	xrcd = (struct ibv_xrcd_init_attr){
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = INT_MAX,
		.oflags = O_CREAT,
	};
	NONE("an XRC domain of no file", ibv_open_xrcd(r->ctx, &xrcd), EBADF);
	NONE("half a queue pair to open", ibv_open_qp(r->ctx, &open), EINVAL);
}

void
wrong_order(void)
{
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(r->pd, &srq_init);
	struct ibv_qp_init_attr init = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.srq = srq,
		.cap = {.max_send_wr = 1, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_sge sge = {(uintptr_t)r->buf, 8, r->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};
	struct ibv_qp *qp = ibv_create_qp(r->pd, &init);

	MUST(srq != NULL && qp != NULL);
	MUST(to_init(qp) == 0);
	SILENT("a receive where there is an SRQ", ibv_post_recv(qp, &wr, &bad), EINVAL);
	ERR("an SRQ with a queue pair", ibv_destroy_srq(srq), EBUSY);
	ERR("a CQ with a queue pair", ibv_destroy_cq(r->cq), EBUSY);
	ERR("a domain with a queue pair", ibv_dealloc_pd(r->pd), EBUSY);
	ERR("the queue pair", ibv_destroy_qp(qp), 0);
	ERR("a domain with an SRQ", ibv_dealloc_pd(r->pd), EBUSY);
	ERR("its SRQ", ibv_destroy_srq(srq), 0);
	ERR("a domain with a region", ibv_dealloc_pd(r->pd), EBUSY);
}

void
wrong_not_there(void)
{
	const struct ibv_query_device_ex_input input = {.comp_mask = 1};
	struct ibv_values_ex values = {.comp_mask = 1u << 7};
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_rate_limit_attr rate = {.rate_limit = 1};
	struct ibv_ops_wr *bad_op = NULL, op = {.wr_id = 1};
	struct ibv_srq *srq = ibv_create_srq(r->pd, &init);
	struct ibv_qp *qp = make_qp(r, IBV_QPT_RC, NULL);
	struct ibv_device_attr_ex attr;
	struct ibv_ece ece = {0};
	uint32_t num;

	THEIRS("a device with a mask", ibv_query_device_ex(r->ctx, &input, &attr), EINVAL);
	ERR("values that there are not", ibv_query_rt_values_ex(r->ctx, &values), EOPNOTSUPP);
	EQ(values.comp_mask, 1u << 7);
	ERR("the number of an SRQ that has none", ibv_get_srq_num(srq, &num), EOPNOTSUPP);
	ERR("a rate limit in RESET", ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
	rate.rate_limit = UINT32_MAX;
	ERR("a rate beyond all", ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
	rate.comp_mask = 1;
	ERR("a rate limit with a mask", ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
	SILENT("ibv_query_ece", ibv_query_ece(qp, &ece), EOPNOTSUPP);
	SILENT("ibv_set_ece", ibv_set_ece(qp, &ece), EOPNOTSUPP);
	SILENT("tags to match", ibv_post_srq_ops(srq, &op, &bad_op), EOPNOTSUPP);
	CHECK(bad_op == &op, "bad_op is that");
	ERR("the SRQ", ibv_destroy_srq(srq), 0);
	ERR("the queue pair", ibv_destroy_qp(qp), 0);
}

/* Handles are numbers of one attachment: an object of another attachment must not be mistaken for
 * the object with the same number in this one. */
void
wrong_another_context(void)
{
	struct ibv_xrcd_init_attr xrcd_init = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_td_init_attr td_init = {0};
	struct ibv_parent_domain_init_attr parent_init = {.pd = r->pd};
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
	struct ibv_qp_open_attr open = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_type = IBV_QPT_XRC_RECV};
	struct ibv_srq_init_attr_ex srq = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.srq_type = IBV_SRQT_XRC,
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE |
			IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	};
	struct ibv_cq_init_attr_ex cq = {.cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD};
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh.dgid = own_gid()};
	struct ibv_sge sge = {(uintptr_t)r->buf, 8, r->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_mw_bind bind = {.wr_id = 1, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_qp *ud = make_qp(r, IBV_QPT_UD, NULL);
	struct ibv_mw *mw;
	struct rig other;

	rig_up(&other);
	ERR("a region into its domain",
		ibv_rereg_mr(r->mr, IBV_REREG_MR_CHANGE_PD, other.pd, NULL, 0, 0) != 0 ? errno : 0,
		EINVAL);
	SAID("another context");
	MUST((target.xrcd = ibv_open_xrcd(other.ctx, &xrcd_init)) != NULL);
	NONE("a target in its XRC domain", ibv_create_qp_ex(r->ctx, &target), EINVAL);
	open.xrcd = target.xrcd;
	NONE("one to open in it", ibv_open_qp(r->ctx, &open), EINVAL);
	srq.pd = other.pd;
	srq.xrcd = target.xrcd;
	srq.cq = other.cq;
	NONE("an SRQ of all that", ibv_create_srq_ex(r->ctx, &srq), EINVAL);
	ERR("its XRC domain", ibv_close_xrcd(target.xrcd), 0);
	MUST((parent_init.td = ibv_alloc_td(other.ctx, &td_init)) != NULL);
	NONE("a parent domain with its thread domain",
		ibv_alloc_parent_domain(r->ctx, &parent_init), EINVAL);
	parent_init.pd = other.pd;
	MUST((cq.parent_domain = ibv_alloc_parent_domain(other.ctx, &parent_init)) != NULL);
	NONE("a CQ in its parent domain", ibv_create_cq_ex(r->ctx, &cq), EINVAL);
	ERR("its parent domain", ibv_dealloc_pd(cq.parent_domain), 0);
	ERR("its thread domain", ibv_dealloc_td(parent_init.td), 0);
	MUST((wr.wr.ud.ah = ibv_create_ah(other.pd, &to)) != NULL);
	MUST(to_init(ud) == 0 && to_rtr(ud, 0) == 0 && to_rts(ud) == 0);
	SILENT("a datagram by its address", post(ud, &wr, true), EINVAL);
	ERR("its address", ibv_destroy_ah(wr.wr.ud.ah), 0);
	ERR("the queue pair", ibv_destroy_qp(ud), 0);
	rig_connect(&other, IBV_QPT_RC);
	MUST((mw = ibv_alloc_mw(r->pd, IBV_MW_TYPE_1)) != NULL);
	ERR("a bind of a window here", ibv_bind_mw(other.qp[0], mw, &bind), EINVAL);
	SAID("another context");
	/* nothing was posted, and the connection still works */
	nothing_more(&other);
	ERR("the window", ibv_dealloc_mw(mw), 0);
	rig_down(&other);
}
