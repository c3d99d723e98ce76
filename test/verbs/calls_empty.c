/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Regions of length 0: requests of length 0 succeed with them, others fail. */
#include "calls_bed.h"

#include <sys/mman.h>

static int
post(struct rig *r, const struct ibv_mr *local, const struct ibv_mr *remote,
	enum ibv_wr_opcode opcode, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)local->addr, len, local->lkey};
	struct ibv_send_wr *bad,
		wr = {
			.wr_id = 7,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {(uintptr_t)remote->addr, remote->rkey},
		};

	return ibv_post_send(r->qp[0], &wr, &bad);
}

static int
receive(struct rig *r, const struct ibv_mr *mr, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)mr->addr, len, mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = 8, .sg_list = &sge, .num_sge = 1};

	return ibv_post_recv(r->qp[1], &wr, &bad);
}

/* Checks the completion status of a request on new queue pairs: an error makes them unusable. */
static void
ends(struct rig *r, const struct ibv_mr *local, const struct ibv_mr *remote,
	enum ibv_wr_opcode opcode, uint32_t len, enum ibv_wc_status status)
{
	rig_connect(r, IBV_QPT_RC);
	EQ(post(r, local, remote, opcode, len), 0);
	EQ(wait_for(r->cq).status, status);
	EQ(ibv_destroy_qp(r->qp[0]), 0);
	EQ(ibv_destroy_qp(r->qp[1]), 0);
	r->qp[0] = r->qp[1] = NULL;
}

static void
use(struct rig *r, const struct ibv_mr *none)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	struct ibv_wc wc[2];
	unsigned int i;

	EQ(none->length, 0);
	for (i = 0; i < 2; i++) {
		ends(r, none, none, ops[i], 0, IBV_WC_SUCCESS);
		ends(r, none, r->mr, ops[i], 0, IBV_WC_SUCCESS);
		ends(r, r->mr, none, ops[i], 0, IBV_WC_SUCCESS);
		ends(r, none, r->mr, ops[i], 1, IBV_WC_LOC_PROT_ERR);
		ends(r, r->mr, none, ops[i], 1, IBV_WC_REM_ACCESS_ERR);
	}
	ends(r, none, none, IBV_WR_SEND, 1, IBV_WC_LOC_PROT_ERR);
	rig_connect(r, IBV_QPT_RC);
	EQ(receive(r, none, 0), 0);
	EQ(post(r, none, none, IBV_WR_SEND, 0), 0);
	wc[0] = wait_for(r->cq);
	wc[1] = wait_for(r->cq);
	CHECK(wc[0].status == IBV_WC_SUCCESS && wc[1].status == IBV_WC_SUCCESS, "%d, %d",
		wc[0].status, wc[1].status);
	/* an SGE of a receive that exceeds its region is an error only when a message needs it */
	EQ(receive(r, none, 1), 0);
	EQ(post(r, r->mr, none, IBV_WR_SEND, 1), 0);
	for (i = 0; i < 2; i++) {
		wc[0] = wait_for(r->cq);
		EQ(wc[0].status, wc[0].wr_id == 8 ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR);
	}
	EQ(ibv_destroy_qp(r->qp[0]), 0);
	EQ(ibv_destroy_qp(r->qp[1]), 0);
	r->qp[0] = r->qp[1] = NULL;
}

void
empty_regions(void)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *mr;
	struct rig r;

	rig_up(&r);
	MUST((mr = ibv_reg_mr(r.pd, r.buf, 0, all)) != NULL);
	use(&r, mr);
	/* re-registration may give the region a length */
	EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, r.buf, 4096, 0), 0);
	ends(&r, mr, mr, IBV_WR_RDMA_WRITE, 4096, IBV_WC_SUCCESS);
	EQ(ibv_dereg_mr(mr), 0);
	MUST((mr = ibv_reg_mr_iova(r.pd, r.buf, 0, (uintptr_t)r.buf, all)) != NULL);
	use(&r, mr);
	EQ(ibv_dereg_mr(mr), 0);
	MUST((mr = ibv_reg_mr(r.pd, r.buf, 0, all | IBV_ACCESS_ON_DEMAND)) != NULL);
	use(&r, mr);
	EQ(ibv_dereg_mr(mr), 0);
	/* at an address where no memory can be */
	MUST((mr = ibv_reg_mr(r.pd, NULL, 0, all)) != NULL);
	use(&r, mr);
	EQ(ibv_dereg_mr(mr), 0);
	rig_down(&r);
}
