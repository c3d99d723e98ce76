/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Sessions: each operation right and wrong, with the reason of each error. */
#include <errno.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine_priv.h"
#include "session_bed.h"

static struct engine_bed bed;
static struct client *c;
static uint32_t pd;
static uint8_t mem[65536];

static void
up(void)
{
	struct engine_bed_config cfg = {.engine.lcores = 2};

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed); /* this thread has the lcores */
	c = client_open(bed.e, NULL);
	pd = client_pd(c);
}

static void
down(void)
{
	client_close(c);
	engine_bed_down(&bed);
}

/* --- memory --- */

/* Each case overrides some members of a valid request. */
#pragma GCC diagnostic ignored "-Woverride-init"

#define REG(...)                                                                      \
	CALL(c, REG_MR, reg_mr, .pd = pd, .addr = (uintptr_t)mem, .len = sizeof(mem), \
		.iova = (uintptr_t)mem, ##__VA_ARGS__)

static void
what_is(uint32_t key, struct karst_mr_attr *attr)
{
	/* the same table that the lcores use */
	cr_assert_eq(karst_mem_query(bed.e->mem, key, attr), 0);
}

Test(session_objects, regions, .init = up, .fini = down)
{
	const struct karst_ctl_reg_mr_rsp *rsp = RSP(c, reg_mr);
	struct karst_mr_attr attr;
	uint32_t key;

	refused(c, -EINVAL, "access 0x10000000", REG(.access = 1 << 28));
	refused(c, -EINVAL, "need local write", REG(.access = KARST_ACCESS_REMOTE_WRITE));
	refused(c, -EINVAL, "addr", REG(.addr = UINT64_MAX));
	refused(c, -EINVAL, "iova", REG(.iova = UINT64_MAX - 5));
	cr_assert_eq(REG(.iova = 0x1000, .access = KARST_ACCESS_LOCAL_WRITE), 0, "%s", c->why);
	key = rsp->key;
	cr_assert_eq(rsp->shared_bytes, sizeof(mem));
	cr_assert_eq(rsp->migrated_bytes + rsp->copied_bytes, 0);
	what_is(key, &attr);
	cr_assert_eq(attr.va, 0x1000);
	cr_assert_eq(attr.host, mem);
	cr_assert_eq(attr.len, sizeof(mem));
	cr_assert_eq(CALL(c, DEREG_MR, dereg_mr, .key = key), 0);
	cr_assert_neq(karst_mem_query(bed.e->mem, key, &attr), 0);
	cr_assert_eq(REG(.iova = UINT64_MAX, .access = KARST_ACCESS_ZERO_BASED), 0, "%s", c->why);
	what_is(rsp->key, &attr);
	cr_assert_eq(attr.va, 0);
}

/* Empty regions have no bytes anywhere: at both ends of the address space, too. */
Test(session_objects, empty_regions, .init = up, .fini = down)
{
	static const uint64_t addrs[] = {0, 4096, UINT64_MAX};
	const struct karst_ctl_reg_mr_rsp *rsp = RSP(c, reg_mr);
	struct karst_mr_attr attr;
	unsigned int i;

	for (i = 0; i < KARST_DIM(addrs); i++) {
		cr_assert_eq(REG(.addr = addrs[i], .iova = addrs[i], .len = 0), 0, "%s", c->why);
		what_is(rsp->key, &attr);
		cr_assert_eq(attr.len, 0);
		cr_assert_eq(rsp->shared_bytes + rsp->copied_bytes, 0);
		cr_assert_eq(CALL(c, DEREG_MR, dereg_mr, .key = rsp->key), 0);
	}
}

#define REREG(key_, what_, ...) \
	CALL(c, REREG_MR, rereg_mr, .key = key_, .what = what_, ##__VA_ARGS__)

Test(session_objects, reregistration, .init = up, .fini = down)
{
	struct karst_ctl_rereg_mr_req with_piece = {.what = KARST_REREG_ACCESS, .npieces = 1};
	uint8_t m[sizeof(with_piece) + sizeof(struct karst_ctl_piece)] = {0};
	uint32_t key, other = client_pd(c);
	struct karst_mr_attr attr;

	cr_assert_eq(REG(.access = KARST_ACCESS_LOCAL_WRITE), 0);
	key = RSP(c, reg_mr)->key;
	refused(c, -EINVAL, "what 0x0", REREG(key, 0));
	refused(c, -EINVAL, "what 0x8", REREG(key, 8));
	with_piece.key = key;
	memcpy(m, &with_piece, sizeof(with_piece));
	refused(c, -EINVAL, "npieces 1", client_call(c, KARST_CTL_REREG_MR, m, sizeof(m)));
	refused(c, -EINVAL, "access", REREG(key, KARST_REREG_ACCESS, .access = 1 << 28));
	refused(c, -EINVAL, "pd 77", REREG(key, KARST_REREG_PD, .pd = 77));
	/* to an empty region, and back */
	cr_assert_eq(REREG(key, KARST_REREG_TRANSLATION), 0, "%s", c->why);
	what_is(key, &attr);
	cr_assert_eq(attr.len, 0);
	cr_assert_eq(REREG(key, KARST_REREG_TRANSLATION, .addr = (uintptr_t)mem, .len = sizeof(mem),
			     .iova = (uintptr_t)mem),
		0, "%s", c->why);
	/* the key stays, its meaning is new */
	cr_assert_eq(REREG(key, KARST_REREG_ACCESS, .access = KARST_ACCESS_REMOTE_READ), 0, "%s",
		c->why);
	cr_assert_eq(RSP(c, rereg_mr)->key, key);
	what_is(key, &attr);
	cr_assert_eq(attr.access, KARST_ACCESS_REMOTE_READ);
	cr_assert_eq(attr.len, sizeof(mem));
	cr_assert_eq(REREG(key, KARST_REREG_TRANSLATION | KARST_REREG_PD, .pd = other,
			     .addr = (uintptr_t)mem + 4096, .len = 8, .iova = 7),
		0, "%s", c->why);
	what_is(key, &attr);
	cr_assert_eq(attr.host, mem + 4096);
	cr_assert_eq(attr.va, 7);
	cr_assert_eq(attr.len, 8);
	cr_assert_eq(attr.access, KARST_ACCESS_REMOTE_READ);
	cr_assert_eq(CALL(c, FREE_PD, free_pd, .pd = pd), 0, "%s", c->why);
	refused(c, -EBUSY, "left", CALL(c, FREE_PD, free_pd, .pd = other));
	/* it was mapped for reading only */
	refused(c, -EINVAL, "new translation",
		REREG(key, KARST_REREG_ACCESS, .access = KARST_ACCESS_LOCAL_WRITE));
	cr_assert_eq(REREG(key, KARST_REREG_ACCESS | KARST_REREG_TRANSLATION,
			     .access = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_ZERO_BASED,
			     .addr = (uintptr_t)mem, .len = 64),
		0, "%s", c->why);
	refused(c, -EINVAL, "zero-based",
		REREG(key, KARST_REREG_ACCESS, .access = KARST_ACCESS_LOCAL_WRITE));
	cr_assert_eq(CALL(c, DEREG_MR, dereg_mr, .key = key), 0);
	cr_assert_eq(CALL(c, FREE_PD, free_pd, .pd = other), 0);
}

Test(session_objects, windows, .init = up, .fini = down)
{
	uint32_t key, type;

	refused(c, -EINVAL, "type 0", CALL(c, ALLOC_MW, alloc_mw, .pd = pd, .type = 0));
	refused(c, -EINVAL, "type 3", CALL(c, ALLOC_MW, alloc_mw, .pd = pd, .type = 3));
	for (type = 1; type <= 2; type++) {
		cr_assert_eq(CALL(c, ALLOC_MW, alloc_mw, .pd = pd, .type = type), 0);
		key = RSP(c, alloc_mw)->key;
		cr_assert_neq(key, 0);
		refused(c, -EINVAL, "region", CALL(c, DEREG_MR, dereg_mr, .key = key));
		cr_assert_eq(CALL(c, FREE_MW, free_mw, .key = key ^ 0xff), 0);
		refused(c, -EINVAL, "window", CALL(c, FREE_MW, free_mw, .key = key));
	}
}

/* Descriptors may come with regions only. */
Test(session_objects, stray_descriptors, .init = up, .fini = down)
{
	unsigned int before = engine_bed_open_fds();
	const int fd = 0;
	uint64_t zero = 0;

	cr_assert_eq(client_call_fds(c, KARST_CTL_ALLOC_PD, &zero, 8, &fd, 1), -EPROTO);
	cr_assert_not_null(strstr(c->why, "nfds 1 exceeds 0"));
	cr_assert_eq(engine_bed_open_fds(), before);
}

/* --- addresses --- */

static int
create_ah(uint8_t port, uint8_t sgid, const uint8_t dgid[16], uint32_t flow, uint8_t sl)
{
	struct karst_ctl_create_ah_req req = {.pd = pd,
		.attr = {.port_num = port, .sgid_index = sgid, .flow_label = flow, .sl = sl}};

	memcpy(req.attr.dgid, dgid, 16);
	return client_call(c, KARST_CTL_CREATE_AH, &req, sizeof(req));
}

Test(session_objects, address_handles, .init = up, .fini = down)
{
	const uint8_t peer4[16] = {[10] = 0xff, 0xff, 10, 0, 0, 2};
	const uint8_t peer6[16] = {0xfd, [15] = 2};
	const uint8_t none[16] = {0}, none4[16] = {[10] = 0xff, 0xff};
	uint32_t ah;

	refused(c, -EINVAL, "port_num 0", create_ah(0, 0, peer4, 0, 0));
	refused(c, -EINVAL, "port_num 3", create_ah(3, 0, peer4, 0, 0));
	refused(c, -EINVAL, "sgid_index 2", create_ah(1, 2, peer4, 0, 0));
	refused(c, -EINVAL, "flow_label", create_ah(1, 0, peer4, 1 << 20, 0));
	refused(c, -EINVAL, "sl 8", create_ah(1, 0, peer4, 0, 8));
	refused(c, -EINVAL, "dgid", create_ah(1, 0, none, 0, 0));
	refused(c, -EINVAL, "dgid", create_ah(1, 0, none4, 0, 0));
	refused(c, -EINVAL, "family", create_ah(1, 0, peer6, 0, 0));
	refused(c, -EINVAL, "family", create_ah(1, 1, peer4, 0, 0));
	cr_assert_eq(create_ah(1, 1, peer6, 0xfffff, 7), 0, "%s", c->why);
	ah = RSP(c, create_ah)->ah;
	cr_assert_eq(create_ah(1, 0, peer4, 0, 0), 0, "%s", c->why);
	cr_assert_eq(CALL(c, DESTROY_AH, destroy_ah, .ah = ah), 0);
	refused(c, -EINVAL, "ah", CALL(c, DESTROY_AH, destroy_ah, .ah = ah));
}

/* --- queues --- */

Test(session_objects, completion_queues, .init = up, .fini = down)
{
	const struct karst_ctl_create_cq_rsp *rsp = RSP(c, create_cq);
	struct client_cq cq;

	refused(c, -EINVAL, "entries 0", CALL(c, CREATE_CQ, create_cq, .entries = 0));
	refused(c, -EINVAL, "entries 4194305", CALL(c, CREATE_CQ, create_cq, .entries = 4194305));
	refused(c, -EINVAL, "comp_vector 2: must be 0 to 1",
		CALL(c, CREATE_CQ, create_cq, .entries = 1, .comp_vector = 2));
	refused(c, -EINVAL, "flags 0x2", CALL(c, CREATE_CQ, create_cq, .entries = 1, .flags = 2));
	cr_assert_eq(CALL(c, CREATE_CQ, create_cq, .entries = 1, .comp_vector = 1), 0);
	refused(c, -EINVAL, "channel 5", CALL(c, CREATE_CQ, create_cq, .entries = 1, .channel = 5));
	cr_assert_eq(CALL(c, CREATE_CQ, create_cq, .entries = 100), 0);
	cr_assert_eq(rsp->entries, 128);
	cr_assert_eq(rsp->nlanes, 2);
	client_cq(c, 1, 0, 0, &cq);
	cr_assert_eq(CALL(c, MODIFY_CQ, modify_cq, .cq = cq.handle), 0, "%s", c->why);
	refused(c, -EINVAL, "no channel", CALL(c, RAISE_CQ, raise_cq, .cq = cq.handle));
	cr_assert_eq(CALL(c, DESTROY_CQ, destroy_cq, .cq = cq.handle), 0);
}

static uint64_t
ring_bytes(void)
{
	struct karst_session_info info;

	cr_assert_eq(karst_session_list(bed.e, &info, 1), 1);
	return info.ring_bytes;
}

/* Resizing creates lanes of another size, drops them, or switches to them; memory is freed. */
Test(session_objects, resizing, .init = up, .fini = down)
{
	const struct karst_ctl_resize_cq_rsp *rsp = RSP(c, resize_cq);
	uint64_t used = ring_bytes();
	struct karst_ctl_place lanes;
	struct client_cq cq;

	client_cq(c, 16, 0, 0, &cq);
	refused(c, -EINVAL, "cq 77", CALL(c, RESIZE_CQ, resize_cq, .cq = 77, .entries = 1));
	refused(c, -EINVAL, "entries 0", CALL(c, RESIZE_CQ, resize_cq, .cq = cq.handle));
	refused(c, -EINVAL, "entries 4194305",
		CALL(c, RESIZE_CQ, resize_cq, .cq = cq.handle, .entries = 4194305));
	refused(c, -EINVAL, "RESIZE_CQ", CALL(c, SWITCH_CQ, switch_cq, .cq = cq.handle));
	cr_assert_eq(CALL(c, RESIZE_CQ, resize_cq, .cq = cq.handle, .entries = 1000), 0);
	cr_assert_eq(rsp->entries, 1024);
	cr_assert_eq(rsp->nlanes, 2);
	cr_assert_eq(rsp->lanes.len, karst_cq_lanes_bytes(1024, 2, 0));
	cr_assert_eq(CALL(c, RESIZE_CQ, resize_cq, .cq = cq.handle, .entries = 100), 0);
	lanes = rsp->lanes;
	cr_assert_eq(lanes.len, karst_cq_lanes_bytes(128, 2, 0));
	cr_assert_eq(karst_cq_lane(client_at(c, &lanes), 128, 0, 1)->live, 0);
	cr_assert_eq(CALL(c, SWITCH_CQ, switch_cq, .cq = cq.handle), 0, "%s", c->why);
	cr_assert_eq(karst_cq_lane(client_at(c, &lanes), 128, 0, 0)->live, 1);
	cr_assert_eq(karst_cq_lane(client_at(c, &lanes), 128, 0, 1)->live, 1);
	cr_assert_eq(cq.lane[0].sh->live, 0);
	refused(c, -EINVAL, "RESIZE_CQ", CALL(c, SWITCH_CQ, switch_cq, .cq = cq.handle));
	cr_assert_eq(CALL(c, RESIZE_CQ, resize_cq, .cq = cq.handle, .entries = 4), 0);
	cr_assert_eq(CALL(c, DESTROY_CQ, destroy_cq, .cq = cq.handle), 0);
	cr_assert_eq(ring_bytes(), used, "all of it is given back");
}

Test(session_objects, shared_receive_queues, .init = up, .fini = down)
{
	const struct karst_ctl_create_srq_rsp *rsp = RSP(c, create_srq);
	const struct karst_ctl_query_srq_rsp *is = RSP(c, query_srq);
	struct karst_ctl_async ev;
	uint32_t srq;

#define SRQ(...) CALL(c, CREATE_SRQ, create_srq, .pd = pd, ##__VA_ARGS__)
	refused(c, -EINVAL, "max_wr 0", SRQ(.max_wr = 0));
	refused(c, -EINVAL, "max_wr 65537", SRQ(.max_wr = 65537));
	refused(c, -EINVAL, "max_sge 33", SRQ(.max_wr = 1, .max_sge = 33));
	refused(c, -EINVAL, "limit 5", SRQ(.max_wr = 4, .limit = 5));
	cr_assert_eq(SRQ(.max_wr = 5, .max_sge = 3, .cookie = 0x1234567890), 0, "%s", c->why);
	srq = rsp->srq;
	cr_assert_eq(rsp->max_wr, 8);
	cr_assert_eq(rsp->max_sge, 3);
	cr_assert_eq(rsp->stride, karst_wq_stride(false, 3, 0));
	cr_assert_eq(CALL(c, QUERY_SRQ, query_srq, .srq = srq), 0);
	cr_assert_eq(is->max_wr, 8);
	cr_assert_eq(is->max_sge, 3);
	cr_assert_eq(is->limit, 0);
	refused(c, -EINVAL, "limit 9", CALL(c, MODIFY_SRQ, modify_srq, .srq = srq, .limit = 9));
	/* the queue is empty, so the event comes at once, and once */
	cr_assert_eq(CALL(c, MODIFY_SRQ, modify_srq, .srq = srq, .limit = 8), 0, "%s", c->why);
	cr_assert_eq(CALL(c, QUERY_SRQ, query_srq, .srq = srq), 0);
	cr_assert_eq(is->limit, 0);
	cr_assert_eq(read(c->async_fd, &ev, sizeof(ev)), sizeof(ev));
	cr_assert_eq(ev.event, KARST_EVENT_SRQ_LIMIT_REACHED);
	cr_assert_eq(ev.handle, srq);
	cr_assert_eq(ev.cookie, 0x1234567890);
}

/* --- queue pairs --- */

Test(session_objects, queue_pairs, .init = up, .fini = down)
{
	const struct karst_ctl_create_qp_rsp *rsp = RSP(c, create_qp);
	struct client_cq cq;
	uint32_t srq, lcore;

	client_cq(c, 16, 0, 0, &cq);
#define QP(...)                                                                             \
	CALL(c, CREATE_QP, create_qp, .type = KARST_QPT_RC, .pd = pd, .send_cq = cq.handle, \
		.recv_cq = cq.handle, .lcore = UINT32_MAX, ##__VA_ARGS__)
	refused(c, -EINVAL, "type 1", QP(.type = 1));
	refused(c, -EINVAL, "type 5", QP(.type = 5));
	refused(c, -EINVAL, "flags 0x4", QP(.flags = 4));
	refused(c, -EINVAL, "lcore 2", QP(.lcore = 2));
	refused(c, -EINVAL, "max_send_wr 65537", QP(.max_send_wr = 65537));
	refused(c, -EINVAL, "max_recv_wr", QP(.max_recv_wr = UINT32_MAX));
	refused(c, -EINVAL, "max_send_sge 33", QP(.max_send_sge = 33));
	refused(c, -EINVAL, "max_recv_sge 33", QP(.max_recv_sge = 33));
	refused(c, -EINVAL, "max_inline 1025", QP(.max_inline = 1025));
	refused(c, -EINVAL, "max_dest_rd_atomic 129", QP(.max_dest_rd_atomic = 129));
	cr_assert_eq(QP(.max_send_wr = 10, .max_recv_wr = 3, .max_send_sge = 2, .max_inline = 100,
			     .lcore = 1),
		0, "%s", c->why);
	cr_assert_eq(rsp->lcore, 1);
	cr_assert_eq(rsp->qpn & 1, 1);
	cr_assert_eq(rsp->max_send_wr, 16);
	cr_assert_eq(rsp->max_recv_wr, 4);
	cr_assert_eq(rsp->max_send_sge, 2);
	cr_assert_eq(rsp->max_recv_sge, 1);
	cr_assert_eq(rsp->max_inline, 100);
	cr_assert_eq(rsp->send_stride, karst_wq_stride(true, 2, 100));
	cr_assert_eq(rsp->rq.len, karst_wq_bytes(4, rsp->recv_stride));
	/* with a shared receive queue: on its lcore */
	cr_assert_eq(CALL(c, CREATE_SRQ, create_srq, .pd = pd, .max_wr = 4), 0);
	srq = RSP(c, create_srq)->srq;
	lcore = RSP(c, create_srq)->lcore;
	refused(c, -EINVAL, "shared receive queue", QP(.srq = srq, .lcore = 1 - lcore));
	cr_assert_eq(QP(.srq = srq), 0, "%s", c->why);
	cr_assert_eq(rsp->lcore, lcore);
	cr_assert_eq(rsp->rq.len, 0);
	cr_assert_eq(rsp->max_recv_wr, 0);
}

static struct client_qp qp;

static int
modify(unsigned int mask, struct karst_ctl_qp_attr attr)
{
	struct karst_ctl_modify_qp_req req = {.qp = qp.handle, .mask = mask, .attr = attr};

	return client_call(c, KARST_CTL_MODIFY_QP, &req, sizeof(req));
}

#define MODIFY(mask, ...) modify(mask, (struct karst_ctl_qp_attr){__VA_ARGS__})

static void
query(struct karst_ctl_qp_attr *attr)
{
	cr_assert_eq(CALL(c, QUERY_QP, query_qp, .qp = qp.handle), 0);
	*attr = RSP(c, query_qp)->attr;
}

Test(session_objects, attributes_refused, .init = up, .fini = down)
{
	struct karst_ctl_qp_attr before, after;
	struct client_cq cq;

	client_cq(c, 16, 0, 0, &cq);
	client_qp(c, KARST_QPT_RC, pd, &cq, 0, 0, &qp);
	query(&before);
	refused(c, -EINVAL, "alt_timeout 32", MODIFY(KARST_QP_ALT_PATH, .alt_timeout = 32));
	refused(c, -EINVAL, "alt_pkey_index 1", MODIFY(KARST_QP_ALT_PATH, .alt_pkey_index = 1));
	refused(c, -EINVAL, "path_mig_state 2",
		MODIFY(KARST_QP_PATH_MIG_STATE, .path_mig_state = KARST_MIG_ARMED));
	refused(c, -EINVAL, "RESET to RESET", MODIFY(KARST_QP_ALT_PATH, .alt_port_num = 1));
	refused(c, -EOPNOTSUPP, "CAP", MODIFY(KARST_QP_CAP, 0));
	refused(c, -EINVAL, "mask", MODIFY(1u << 30, 0));
	refused(c, -EINVAL, "qp_state 7", MODIFY(KARST_QP_STATE, .qp_state = 7));
	refused(c, -EINVAL, "RESET to RTS: RC", MODIFY(KARST_QP_STATE, .qp_state = KARST_QPS_RTS));
	refused(c, -EINVAL, "missing ACCESS_FLAGS PKEY_INDEX PORT",
		MODIFY(KARST_QP_STATE, .qp_state = KARST_QPS_INIT));
	refused(c, -EINVAL, "not allowed QKEY",
		MODIFY(KARST_QP_STATE | KARST_QP_ACCESS_FLAGS | KARST_QP_PKEY_INDEX |
				KARST_QP_PORT | KARST_QP_QKEY,
			.qp_state = KARST_QPS_INIT, .port_num = 1));
	refused(c, -EINVAL, "cur_qp_state is RTR, but the queue pair is in RESET",
		MODIFY(KARST_QP_STATE | KARST_QP_CUR_STATE, .cur_qp_state = KARST_QPS_RTR));
	refused(c, -EINVAL, "pkey_index 1", MODIFY(KARST_QP_PKEY_INDEX, .pkey_index = 1));
	refused(c, -EINVAL, "path_mtu 0", MODIFY(KARST_QP_PATH_MTU, .path_mtu = 0));
	refused(c, -EINVAL, "path_mtu 6", MODIFY(KARST_QP_PATH_MTU, .path_mtu = 6));
	refused(c, -EINVAL, "timeout 32", MODIFY(KARST_QP_TIMEOUT, .timeout = 32));
	refused(c, -EINVAL, "retry_cnt 8", MODIFY(KARST_QP_RETRY_CNT, .retry_cnt = 8));
	refused(c, -EINVAL, "rnr_retry 8", MODIFY(KARST_QP_RNR_RETRY, .rnr_retry = 8));
	refused(c, -EINVAL, "min_rnr_timer 32",
		MODIFY(KARST_QP_MIN_RNR_TIMER, .min_rnr_timer = 32));
	refused(c, -EINVAL, "rq_psn", MODIFY(KARST_QP_RQ_PSN, .rq_psn = 1 << 24));
	refused(c, -EINVAL, "sq_psn", MODIFY(KARST_QP_SQ_PSN, .sq_psn = UINT32_MAX));
	refused(c, -EINVAL, "dest_qpn", MODIFY(KARST_QP_DEST_QPN, .dest_qpn = 1 << 24));
	refused(c, -EINVAL, "max_rd_atomic 129",
		MODIFY(KARST_QP_MAX_QP_RD_ATOMIC, .max_rd_atomic = 129));
	refused(c, -EINVAL, "max_dest_rd_atomic 17: must be 0 to 16",
		MODIFY(KARST_QP_MAX_DEST_RD_ATOMIC, .max_dest_rd_atomic = 17));
	refused(c, -EINVAL, "access_flags 0x20",
		MODIFY(KARST_QP_ACCESS_FLAGS, .access_flags = KARST_ACCESS_ZERO_BASED));
	refused(c, -EINVAL, "port_num 3",
		MODIFY(KARST_QP_STATE | KARST_QP_ACCESS_FLAGS | KARST_QP_PKEY_INDEX | KARST_QP_PORT,
			.qp_state = KARST_QPS_INIT, .port_num = 3));
	query(&after);
	cr_assert_eq(memcmp(&before, &after, sizeof(before)), 0);
}

/* U1: Q_Keys with the high bit set need a right, in each transition that takes one; others do
 * not. */
Test(session_objects, u1_controlled_qkeys, .init = up, .fini = down)
{
	const unsigned int to_init =
		KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT | KARST_QP_QKEY;
	const struct karst_session_init init = {.program = "other", .pidfd = -1, .uid = 1000};
	static const uint32_t controlled[] = {0x80010000, 0x80000000, 0xffffffff};
	struct client *privileged = c;
	struct karst_ctl_qp_attr is;
	struct karst_session *s;
	struct client_cq cq;
	uint32_t i, own;

	cr_assert_eq(karst_session_create(bed.e, &init, &s), 0);
	c = client_over(s, -1);
	own = client_pd(c);
	client_cq(c, 16, 0, 0, &cq);
	client_qp(c, KARST_QPT_UD, own, &cq, 0, 0, &qp);
	for (i = 0; i < KARST_DIM(controlled); i++)
		refused(c, -EPERM, "controlled_qkeys",
			MODIFY(to_init, .qp_state = KARST_QPS_INIT, .port_num = 1,
				.qkey = controlled[i]));
	query(&is);
	cr_assert_eq(is.qp_state, KARST_QPS_RESET);
	cr_assert_eq(MODIFY(to_init, .qp_state = KARST_QPS_INIT, .port_num = 1, .qkey = 0x7fffffff),
		0, "%s", c->why);
	refused(c, -EPERM, "controlled_qkeys", MODIFY(KARST_QP_QKEY, .qkey = 0x80010000));
	refused(c, -EPERM, "controlled_qkeys",
		MODIFY(KARST_QP_STATE | KARST_QP_QKEY, .qp_state = KARST_QPS_RTR,
			.qkey = 0x80010000));
	cr_assert_eq(MODIFY(KARST_QP_STATE, .qp_state = KARST_QPS_RTR), 0, "%s", c->why);
	cr_assert_eq(MODIFY(KARST_QP_STATE | KARST_QP_SQ_PSN, .qp_state = KARST_QPS_RTS), 0);
	refused(c, -EPERM, "controlled_qkeys", MODIFY(KARST_QP_QKEY, .qkey = 0x80010000));
	query(&is);
	cr_assert_eq(is.qkey, 0x7fffffff);
	client_close(c);
	c = privileged;
	client_cq(c, 16, 0, 0, &cq);
	client_qp(c, KARST_QPT_UD, pd, &cq, 0, 0, &qp);
	cr_assert_eq(MODIFY(to_init, .qp_state = KARST_QPS_INIT, .port_num = 1, .qkey = 0x80010000),
		0, "%s", c->why);
}

#define TO_RTR                                                                                    \
	(KARST_QP_STATE | KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN | \
		KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER)

/* All transitions up to RTS, and what a query reports then. */
Test(session_objects, attributes, .init = up, .fini = down)
{
	struct karst_ctl_qp_attr rtr = {.qp_state = KARST_QPS_RTR,
		.path_mtu = 3,
		.dest_qpn = 0x123,
		.rq_psn = 0x456,
		.max_dest_rd_atomic = 3,
		.min_rnr_timer = 5,
		.ah = {.port_num = 1, .hop_limit = 9, .traffic_class = 0x20, .flow_label = 0x999}};
	struct karst_ctl_qp_attr is;
	struct client_cq cq;

	client_cq(c, 16, 0, 0, &cq);
	client_qp(c, KARST_QPT_RC, pd, &cq, 0, 0, &qp);
	cr_assert_eq(client_step(c, &bed, &qp, 0, 0, KARST_QPS_INIT), 0, "%s", c->why);
	refused(c, -EINVAL, "dgid", modify(TO_RTR, rtr));
	memcpy(rtr.ah.dgid, (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 2}, 16);
	rtr.ah.port_num = 0;
	refused(c, -EINVAL, "ah.port_num 0", modify(TO_RTR, rtr));
	rtr.ah.port_num = 1;
	cr_assert_eq(modify(TO_RTR, rtr), 0, "%s", c->why);
	query(&is);
	cr_assert_eq(is.qp_state, KARST_QPS_RTR);
	cr_assert_eq(is.path_mtu, 3);
	cr_assert_eq(is.dest_qpn, 0x123);
	cr_assert_eq(is.rq_psn, 0x456);
	cr_assert_eq(is.max_dest_rd_atomic, 3);
	cr_assert_eq(is.min_rnr_timer, 5);
	cr_assert_eq(is.port_num, 1);
	cr_assert_eq(is.access_flags, KARST_ACCESS_REMOTE);
	cr_assert_eq(memcmp(&is.ah, &rtr.ah, sizeof(is.ah)), 0);
	cr_assert_eq(client_step(c, &bed, &qp, 0, 0, KARST_QPS_RTS), 0, "%s", c->why);
	cr_assert_eq(MODIFY(KARST_QP_STATE | KARST_QP_EN_SQD_ASYNC_NOTIFY,
			     .qp_state = KARST_QPS_SQD, .en_sqd_async_notify = 1),
		0, "%s", c->why);
	query(&is);
	cr_assert_eq(is.qp_state, KARST_QPS_SQD);
	cr_assert_eq(is.en_sqd_async_notify, 1);
	cr_assert_eq(is.timeout, 17);
	cr_assert_eq(is.retry_cnt, 7);
	cr_assert_eq(is.rnr_retry, 7);
	cr_assert_eq(is.max_rd_atomic, 16);
	cr_assert_eq(MODIFY(KARST_QP_STATE, .qp_state = KARST_QPS_ERR), 0);
	refused(c, -EINVAL, "ERR to RTS", MODIFY(KARST_QP_STATE, .qp_state = KARST_QPS_RTS));
	cr_assert_eq(MODIFY(KARST_QP_STATE, .qp_state = KARST_QPS_RESET), 0);
}
