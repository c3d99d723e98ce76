/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Binds of windows that fail: the program restores the old key, as ibv_bind_mw(3) demands, and
 * binds again. */
#include "calls_bed.h"

static void
write_by(struct rig *r, uint32_t rkey, enum ibv_wc_status status)
{
	struct ibv_sge sge = piece(r, 8192, 8);
	struct ibv_send_wr *bad,
		wr = {
			.wr_id = 5,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {(uintptr_t)r->buf, rkey},
		};

	EQ(ibv_post_send(r->qp[0], &wr, &bad), 0);
	EQ(wait_for(r->cq).status, status);
}

/* Posts a bind of the buffer's first page in @mr to the second queue pair and checks its status. */
static void
bind_to(struct rig *r, struct ibv_mw *mw, struct ibv_mr *mr, enum ibv_wc_status status)
{
	struct ibv_mw_bind bind = {
		.wr_id = 4,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {.mr = mr,
			.addr = (uintptr_t)r->buf,
			.length = 4096,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE},
	};

	EQ(ibv_bind_mw(r->qp[1], mw, &bind), 0);
	EQ(wait_for(r->cq).status, status);
}

static void
begin_anew(struct rig *r)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	unsigned int i;

	for (i = 0; i < 2; i++)
		EQ(ibv_modify_qp(r->qp[i], &reset, IBV_QP_STATE), 0);
	rig_link(r);
}

void
failed_binds_are_undone(void)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct ibv_mr *no_windows;
	struct ibv_mw *mw;
	uint32_t old;
	struct rig r;

	rig_up(&r);
	rig_connect(&r, IBV_QPT_RC);
	MUST((no_windows = ibv_reg_mr(r.pd, r.buf, 4096, IBV_ACCESS_LOCAL_WRITE)) != NULL);
	MUST((mw = ibv_alloc_mw(r.pd, IBV_MW_TYPE_1)) != NULL);
	bind_to(&r, mw, r.mr, IBV_WC_SUCCESS);
	/* a bind is refused, and the window is still bound as before */
	old = mw->rkey;
	bind_to(&r, mw, no_windows, IBV_WC_MW_BIND_ERR);
	mw->rkey = old;
	begin_anew(&r);
	write_by(&r, old, IBV_WC_SUCCESS);
	bind_to(&r, mw, r.mr, IBV_WC_SUCCESS);
	write_by(&r, mw->rkey, IBV_WC_SUCCESS);
	/* a bind is flushed */
	old = mw->rkey;
	EQ(ibv_modify_qp(r.qp[1], &err, IBV_QP_STATE), 0);
	bind_to(&r, mw, r.mr, IBV_WC_WR_FLUSH_ERR);
	mw->rkey = old;
	begin_anew(&r);
	write_by(&r, old, IBV_WC_SUCCESS);
	bind_to(&r, mw, r.mr, IBV_WC_SUCCESS);
	write_by(&r, mw->rkey, IBV_WC_SUCCESS);
	write_by(&r, old, IBV_WC_REM_ACCESS_ERR);
	EQ(ibv_dealloc_mw(mw), 0);
	EQ(ibv_dereg_mr(no_windows), 0);
	rig_down(&r);
}
