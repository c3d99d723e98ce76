/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Queue pairs over the loopback port, whose first address is also the peer's. */
#include "hostile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALL_ACCESS (KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE | KARST_ACCESS_MW_BIND)

int
end_open(struct end *e, const struct host *h, const char *program, size_t len, bool copied)
{
	const struct karst_open_attr attr = {.program = program,
		.migrate_min = copied ? UINT64_MAX : 0,
		.connect_timeout_ms = HANG_S * 1000};
	unsigned int access = ALL_ACCESS;
	int ret;

	*e = (struct end){.copied = copied};
	ret = karst_open(h->sock, &attr, &e->ctx);
	if (ret != 0)
		return ret;
	e->mem = copied ? malloc(len) : karst_alloc(len);
	if (e->mem == NULL)
		return -ENOMEM;
	memset(e->mem, 0, len);
	ret = karst_alloc_pd(e->ctx, &e->pd);
	if (ret == 0)
		ret = karst_create_cq(e->ctx, 1024, NULL, NULL, &e->cq);
	if (ret == 0)
		ret = karst_reg_mr(e->pd, e->mem, len, access, &e->mr);
	return ret;
}

int
end_qp(struct end *e, enum karst_qp_type type)
{
	struct karst_qp_init_attr init = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.qp_type = type,
		.cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 2, .max_recv_sge = 2},
	};

	return karst_create_qp(e->pd, &init, &e->qp);
}

/* Fills in the attributes of the step to state @to.  @return the mask. */
static unsigned int
step(const struct end *e, enum karst_qp_state to, uint32_t peer, const union karst_gid *gid,
	struct karst_qp_attr *a)
{
	bool rc = e->qp->qp_type == KARST_QPT_RC, ud = e->qp->qp_type == KARST_QPT_UD;

	*a = (struct karst_qp_attr){
		.qp_state = to,
		.port_num = 1,
		.qkey = 0x1234,
		.qp_access_flags = KARST_ACCESS_REMOTE,
		.path_mtu = KARST_MTU_4096,
		.dest_qp_num = peer,
		.ah_attr = {.dgid = *gid, .port_num = 1},
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 1,
		.timeout = e->timeout,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};
	switch (to) {
	case KARST_QPS_INIT:
		return KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT |
			(ud ? KARST_QP_QKEY : KARST_QP_ACCESS_FLAGS);
	case KARST_QPS_RTR:
		return KARST_QP_STATE |
			(ud ? 0
			    : KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN |
						KARST_QP_RQ_PSN) |
			(rc ? KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER : 0);
	default:
		return KARST_QP_STATE | KARST_QP_SQ_PSN |
			(rc ? KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
						KARST_QP_MAX_QP_RD_ATOMIC
			    : 0);
	}
}

int
end_connect(struct end *e, uint32_t peer)
{
	enum karst_qp_state to;
	union karst_gid gid;
	int ret = karst_query_gid(e->ctx, 1, 0, &gid);

	for (to = KARST_QPS_INIT; ret == 0 && to <= KARST_QPS_RTS; to++) {
		struct karst_qp_attr a;
		unsigned int mask = step(e, to, peer, &gid, &a);

		ret = karst_modify_qp(e->qp, &a, mask);
	}
	return ret;
}

int
end_post(struct end *e, enum karst_wr_opcode op, uint64_t wr_id, size_t off, uint32_t len,
	const struct end *peer, size_t peer_off)
{
	struct karst_sge sge = {.addr = (uintptr_t)e->mem + off, .len = len, .lkey = e->mr->lkey};
	struct karst_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = op,
		.send_flags = KARST_SEND_SIGNALED,
	};

	if (op == KARST_WR_ATOMIC_FAA) {
		wr.atomic.remote_addr = (uintptr_t)peer->mem + peer_off;
		wr.atomic.rkey = peer->mr->rkey;
		wr.atomic.compare_add = 1;
	} else if (op == KARST_WR_RDMA_WRITE || op == KARST_WR_RDMA_READ) {
		wr.rdma.remote_addr = (uintptr_t)peer->mem + peer_off;
		wr.rdma.rkey = peer->mr->rkey;
	}
	return karst_post_send(e->qp, &wr, NULL);
}

int
end_post_recv(struct end *e, uint64_t wr_id, size_t off, uint32_t len)
{
	struct karst_sge sge = {.addr = (uintptr_t)e->mem + off, .len = len, .lkey = e->mr->lkey};
	const struct karst_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};

	return karst_post_recv(e->qp, &wr, NULL);
}

int
end_close(struct end *e)
{
	int ret = 0;

	if (e->qp != NULL)
		ret = karst_destroy_qp(e->qp);
	if (ret == 0 && e->mr != NULL)
		ret = karst_dereg_mr(e->mr);
	if (ret == 0 && e->cq != NULL)
		ret = karst_destroy_cq(e->cq);
	if (ret == 0 && e->pd != NULL)
		ret = karst_dealloc_pd(e->pd);
	if (ret == 0 && e->ctx != NULL)
		ret = karst_close(e->ctx);
	if (e->copied)
		free(e->mem);
	else
		karst_free(e->mem);
	return ret;
}
