/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "calls_bed.h"

#include <stdarg.h>
#include <time.h>

static unsigned int points, failed_points;
static bool failed;

bool
check(bool ok, int line, const char *what, const char *fmt, ...)
{
	va_list ap;

	if (ok)
		return true;
	failed = true;
	printf("# line %d: %s: ", line, what);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	return false;
}

_Noreturn void
give_up(void)
{
	printf("not ok %u - gave up\nBail out!\n", points + 1);
	fflush(stdout);
	_Exit(1);
}

void
run_case(const char *name, void (*fn)(void))
{
	failed = false;
	fn();
	points++;
	failed_points += failed;
	printf("%s %u - %s\n", failed ? "not ok" : "ok", points, name);
	fflush(stdout);
}

double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int
cases_end(void)
{
	printf("1..%u\n", points);
	return failed_points != 0;
}

/* --- objects --- */

struct ibv_context *
open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;

	MUST(list != NULL && list[0] != NULL);
	ctx = ibv_open_device(list[0]);
	MUST(ctx != NULL);
	ibv_free_device_list(list);
	return ctx;
}

void
rig_up(struct rig *r)
{
	memset(r, 0, sizeof(*r));
	r->ctx = open_device();
	r->buf = aligned_alloc(4096, BUF_BYTES);
	MUST(r->buf != NULL);
	memset(r->buf, 0, BUF_BYTES);
	MUST((r->pd = ibv_alloc_pd(r->ctx)) != NULL);
	MUST((r->cq = ibv_create_cq(r->ctx, 256, NULL, NULL, 0)) != NULL);
	MUST((r->mr = ibv_reg_mr(r->pd, r->buf, BUF_BYTES,
		      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)) != NULL);
}

struct ibv_qp *
make_qp(struct rig *r, enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.srq = srq,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 2,
			.max_recv_sge = 2,
			.max_inline_data = 64},
		.qp_type = type,
	};
	struct ibv_qp *qp = ibv_create_qp(r->pd, &init);

	MUST(qp != NULL);
	return qp;
}

int
to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = 0x1234,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	return ibv_modify_qp(qp, &a,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			(qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

int
to_rtr(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = 0x123456,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
	};

	if (qp->qp_type == IBV_QPT_UD)
		return ibv_modify_qp(qp, &a, IBV_QP_STATE);
	MUST(ibv_query_gid(qp->context, 1, 0, &a.ah_attr.grh.dgid) == 0);
	return ibv_modify_qp(qp, &a,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int
to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 0x123456,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};

	if (qp->qp_type == IBV_QPT_UD)
		return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return ibv_modify_qp(qp, &a,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

void
rig_link(struct rig *r)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		MUST(to_init(r->qp[i]) == 0);
		MUST(to_rtr(r->qp[i], r->qp[!i]->qp_num) == 0);
		MUST(to_rts(r->qp[i]) == 0);
	}
}

void
rig_connect(struct rig *r, enum ibv_qp_type type)
{
	r->qp[0] = make_qp(r, type, NULL);
	r->qp[1] = make_qp(r, type, r->srq);
	rig_link(r);
}

void
rig_down(struct rig *r)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		if (r->qp[i] != NULL)
			EQ(ibv_destroy_qp(r->qp[i]), 0);
	if (r->srq != NULL)
		EQ(ibv_destroy_srq(r->srq), 0);
	EQ(ibv_dereg_mr(r->mr), 0);
	EQ(ibv_destroy_cq(r->cq), 0);
	EQ(ibv_dealloc_pd(r->pd), 0);
	EQ(ibv_close_device(r->ctx), 0);
	free(r->buf);
}

struct ibv_mr *
rig_on_demand(struct rig *r, struct ibv_sge *sge)
{
	struct ibv_mr *mr =
		ibv_reg_mr(r->pd, r->buf, BUF_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);

	MUST(mr != NULL);
	*sge = (struct ibv_sge){(uintptr_t)r->buf, 4096, mr->lkey};
	return mr;
}

/* --- requests --- */

struct ibv_sge
piece(struct rig *r, size_t off, uint32_t len)
{
	return (struct ibv_sge){(uintptr_t)r->buf + off, len, r->mr->lkey};
}

int
post_recv(struct rig *r, struct ibv_qp *qp, uint64_t wr_id, size_t off, uint32_t len)
{
	struct ibv_sge sge = piece(r, off, len);
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	return qp->srq != NULL ? ibv_post_srq_recv(qp->srq, &wr, &bad)
			       : ibv_post_recv(qp, &wr, &bad);
}

int
post_send(
	struct rig *r, struct ibv_qp *qp, uint64_t wr_id, size_t off, uint32_t len, unsigned flags)
{
	struct ibv_sge sge = piece(r, off, len);
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | flags,
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, &wr, &bad);
}

struct ibv_wc
wait_for(struct ibv_cq *cq)
{
	time_t end = time(NULL) + PATIENCE_S;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0 && time(NULL) < end)
		;
	if (!CHECK(n == 1, "%d completions", n))
		give_up();
	return wc;
}

void
nothing_more(struct rig *r)
{
	uint64_t last = UINT64_MAX - 1;
	struct ibv_wc wc[2];
	unsigned int i;

	EQ(post_recv(r, r->qp[1], last, 0, 64), 0);
	EQ(post_send(r, r->qp[0], last, 64, 8, 0), 0);
	for (i = 0; i < 2; i++) {
		wc[i] = wait_for(r->cq);
		EQ(wc[i].wr_id, last);
		EQ(wc[i].status, IBV_WC_SUCCESS);
	}
}
