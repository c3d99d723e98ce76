/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Requests that are posted, as lists and by calls. */
#include "wrong.h"

#include <limits.h>

void
wrong_sending(void)
{
	struct ibv_qp *a;
	struct ibv_sge sge[3] = {{(uintptr_t)r->buf, 8, r->mr->lkey},
		{(uintptr_t)r->buf, 8, r->mr->lkey}, {(uintptr_t)r->buf, 8, r->mr->lkey}};
	const struct ibv_send_wr good = {
		.wr_id = 1,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)r->buf + 4096, r->mr->rkey},
	};
	struct ibv_send_wr wr = good, list[40], *bad = NULL;
	struct ibv_sge many[40]; /* 8 bytes each: a few of them exceed max_inline_data */
	unsigned int i;

	a = make_qp(r, IBV_QPT_RC, NULL);
	SILENT("SEND in RESET", post(a, &wr, true), EINVAL);
	EQ(ibv_destroy_qp(a), 0);
	rig_connect(r, IBV_QPT_RC);
	a = r->qp[0];
	wr.opcode = (enum ibv_wr_opcode)99;
	SILENT("no operation", post(a, &wr, true), EINVAL);
	wr.opcode = (enum ibv_wr_opcode)14;
	SILENT("FLUSH, which has no members here", post(a, &wr, true), EINVAL);
	wr = good;
	wr.num_sge = 3;
	SILENT("too many pieces to send", post(a, &wr, true), EINVAL);
	wr = good;
	wr.num_sge = -1;
	SILENT("-1 pieces", post(a, &wr, true), EINVAL);
	for (i = 0; i < 40; i++)
		many[i] = sge[0];
	wr.send_flags |= IBV_SEND_INLINE;
	wr.sg_list = many;
	SILENT("-1 pieces of inline data", post(a, &wr, true), EINVAL);
	wr.num_sge = 33; /* max_sge of the device is 32 */
	SILENT("more inline pieces than any request may have", post(a, &wr, true), EINVAL);
	wr = good;
	wr.send_flags = 1u << 20;
	SILENT("unknown flags", post(a, &wr, true), EINVAL);
	wr = good;
	wr.send_flags |= IBV_SEND_INLINE;
	sge[0].length = 65;
	SILENT("inline data too long", post(a, &wr, true), ENOMEM);
	sge[0].length = 8;
	wr = good;
	wr.opcode = IBV_WR_RDMA_READ;
	wr.send_flags |= IBV_SEND_INLINE;
	SILENT("an inline READ", post(a, &wr, true), EINVAL);
	wr = good;
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.num_sge = 2;
	SILENT("an atomic of two pieces", post(a, &wr, true), EINVAL);
	for (i = 0; i < 3; i++) {
		list[i] = good;
		list[i].wr_id = 10 + i;
		list[i].next = i < 2 ? &list[i + 1] : NULL;
	}
	list[2].num_sge = 3;
	SILENT("a list whose third is wrong", ibv_post_send(a, list, &bad), EINVAL);
	CHECK(bad == &list[2], "bad_wr is the third");
	CHECK(wait_for(r->cq).wr_id == 10 && wait_for(r->cq).wr_id == 11,
		"the two before are sent");
	for (i = 0; i < 40; i++) {
		list[i] = good;
		list[i].send_flags = 0;
		list[i].next = i < 39 ? &list[i + 1] : NULL;
	}
	SILENT("more than the queue holds", ibv_post_send(a, list, &bad), ENOMEM);
	CHECK(bad >= &list[16], "as many as fit are posted");
	apart();
}

void
wrong_receiving(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 2}};
	struct ibv_srq_attr limit = {.srq_limit = 1000};
	struct ibv_qp *qp = make_qp(r, IBV_QPT_RC, NULL);
	struct ibv_srq *srq = ibv_create_srq(r->pd, &init);
	struct ibv_sge sge[3] = {{(uintptr_t)r->buf, 8, r->mr->lkey}};
	struct ibv_recv_wr *bad = NULL, wr = {.sg_list = sge, .num_sge = 1};
	int i, ret = 0;

	MUST(srq != NULL);
	SILENT("a receive in RESET", ibv_post_recv(qp, &wr, &bad), EINVAL);
	MUST(to_init(qp) == 0);
	wr.num_sge = 3;
	SILENT("too many pieces to receive", ibv_post_recv(qp, &wr, &bad), EINVAL);
	SILENT("the same at an SRQ", ibv_post_srq_recv(srq, &wr, &bad), EINVAL);
	wr.num_sge = 1;
	for (i = 0; i < 100 && ret == 0; i++)
		ret = ibv_post_recv(qp, &wr, &bad);
	SILENT("a full receive queue", ibv_post_recv(qp, &wr, &bad), ENOMEM);
	CHECK(bad == &wr && i > 16, "after as many as were asked for");
	for (ret = i = 0; i < 100 && ret == 0; i++)
		ret = ibv_post_srq_recv(srq, &wr, &bad);
	SILENT("a full SRQ", ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
	ERR("a limit above the size", ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), EINVAL);
	ERR("an SRQ of another size", ibv_modify_srq(srq, &limit, IBV_SRQ_MAX_WR), EOPNOTSUPP);
	init.attr.max_sge = 1000;
	NONE("an SRQ of too many pieces", ibv_create_srq(r->pd, &init), EINVAL);
	init.attr = (struct ibv_srq_attr){.max_wr = 1u << 30, .max_sge = 1};
	NONE("an SRQ too large", ibv_create_srq(r->pd, &init), EINVAL);
	ERR("the SRQ", ibv_destroy_srq(srq), 0);
	ERR("its queue pair", ibv_destroy_qp(qp), 0);
}

/* Requests by ibv_wr_*() calls: ibv_wr_complete() returns the first error of a list. */
void
wrong_calls(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = {.max_send_wr = 4, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = r->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(r->ctx, &init);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	ex->wr_flags = 0;
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	SILENT("a call in RESET", ibv_wr_complete(ex), EINVAL);
	MUST(to_init(qp) == 0 && to_rtr(qp, 0) == 0 && to_rts(qp) == 0);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, NULL, 1, 1);
	SILENT("a call without an address", ibv_wr_complete(ex), EINVAL);
	ex->wr_flags = 1u << 20;
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	SILENT("a call with unknown flags", ibv_wr_complete(ex), EINVAL);
	ERR("its queue pair", ibv_destroy_qp(qp), 0);
}
