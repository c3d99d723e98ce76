/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Rate limits: the values that are reported, and that no queue pair is faster (E6). */
#include "calls_task.h"

#include <time.h>

static double
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static uint32_t
limit_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	EQ(ibv_query_qp(qp, &attr, IBV_QP_RATE_LIMIT, &init), 0);
	return attr.rate_limit;
}

/* Measures how long a SEND of 16 KiB takes. */
static double
send_ms(struct rig *r)
{
	double begin = now_ms();

	EQ(post_recv(r, r->qp[1], 1, 32768, 16384), 0);
	EQ(post_send(r, r->qp[0], 2, 0, 16384, IBV_SEND_SIGNALED), 0);
	EQ(wait_for(r->cq).status, IBV_WC_SUCCESS);
	EQ(wait_for(r->cq).status, IBV_WC_SUCCESS);
	return now_ms() - begin;
}

void
rates_are_kept(void)
{
	struct ibv_qp_rate_limit_attr limit = {.rate_limit = 2000, .typical_pkt_sz = 1024};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET, .rate_limit = 1000};
	struct ibv_device_attr_ex device;
	struct rig r;
	double ms;

	rig_up(&r);
	EQ(ibv_query_device_ex(r.ctx, NULL, &device), 0);
	EQ(device.packet_pacing_caps.qp_rate_limit_min, 1);
	EQ(device.packet_pacing_caps.qp_rate_limit_max, 400000000);
	CHECK(device.packet_pacing_caps.supported_qpts >> IBV_QPT_RC & 1, "RC");
	rig_connect(&r, IBV_QPT_RC);
	EQ(limit_of(r.qp[0]), 0);
	/* 2 Mb/s: 16 KiB take more than 65 ms, less the first frame, which is sent at once */
	EQ(ibv_modify_qp_rate_limit(r.qp[0], &limit), 0);
	EQ(limit_of(r.qp[0]), 2000);
	ms = send_ms(&r);
	CHECK(ms >= 45, "%.1f ms at 2 Mb/s", ms);
	EQ(ibv_modify_qp(r.qp[0], &attr, IBV_QP_RATE_LIMIT), 0);
	EQ(limit_of(r.qp[0]), 1000);
	ms = send_ms(&r);
	CHECK(ms >= 90, "%.1f ms at 1 Mb/s", ms);
	limit.rate_limit = 0;
	EQ(ibv_modify_qp_rate_limit(r.qp[0], &limit), 0);
	send_ms(&r);
	limit.rate_limit = 2000;
	limit.max_burst_sz = 1u << 30;
	EQ(ibv_modify_qp_rate_limit(r.qp[0], &limit), EINVAL);
	EQ(limit_of(r.qp[0]), 0);
	attr.rate_limit = 2000;
	EQ(ibv_modify_qp(r.qp[0], &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT), EINVAL);
	EQ(ibv_modify_qp(r.qp[0], &attr, IBV_QP_RATE_LIMIT), 0);
	EQ(ibv_modify_qp(r.qp[0], &attr, IBV_QP_STATE), 0);
	EQ(limit_of(r.qp[0]), 0);
	rig_down(&r);
}

/* A transition to RTS with a rate limit takes two requests.  If the engine refuses one of them,
 * neither the state nor the limit changes. */
void
limits_and_states_change_together(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 0x123456,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
		.rate_limit = 1000,
	};
	const int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RATE_LIMIT;
	struct ibv_qp_rate_limit_attr before = {.rate_limit = 3000};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr is;
	unsigned int i;
	struct rig r;

	rig_up(&r);
	r.qp[0] = make_qp(&r, IBV_QPT_RC, NULL);
	MUST(to_init(r.qp[0]) == 0);
	MUST(to_rtr(r.qp[0], r.qp[0]->qp_num) == 0);
	EQ(ibv_modify_qp_rate_limit(r.qp[0], &before), 0);
	for (i = 0; i < 2; i++) {
		struct task t = {.spoil = true, .spare = i};

		task_is_mine(&t);
		CHECK(ibv_modify_qp(r.qp[0], &attr, mask) != 0, "request %u is not spoilt", i);
		task_is_mine(NULL);
		EQ(t.spoil, false);
		EQ(ibv_query_qp(r.qp[0], &is, IBV_QP_STATE, &init), 0);
		EQ(is.qp_state, IBV_QPS_RTR);
		EQ(is.rate_limit, 3000);
	}
	EQ(ibv_modify_qp(r.qp[0], &attr, mask), 0);
	EQ(ibv_query_qp(r.qp[0], &is, IBV_QP_STATE, &init), 0);
	EQ(is.qp_state, IBV_QPS_RTS);
	EQ(is.rate_limit, 1000);
	rig_down(&r);
}
