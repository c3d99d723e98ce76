/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Requests by ibv_wr_*(), flags, SGEs, and datagrams of all sizes. */
#include "same.h"

static struct ibv_sge sge[3];
static struct ibv_send_wr wr, *bad;

static void
begin(enum ibv_wr_opcode opcode, uint32_t len)
{
	sge[0] = piece(0, len);
	wr = send_wr(opcode, 1, sge);
}

static void
post(const char *what, int completions)
{
	int rc = ibv_post_send(qp[0], &wr, &bad);

	say_rc(what, rc);
	if (rc == 0)
		say_wcs(what, cq, completions);
}

static void
flags(void)
{
	bed_open();
	connect_pair(IBV_QPT_RC);
	begin(IBV_WR_RDMA_WRITE, 8);
	wr.send_flags |= IBV_SEND_FENCE;
	post("fence", 1);
	wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
	post("solicited WRITE", 1);
	begin(IBV_WR_RDMA_READ, 16);
	sge[0].length = 8;
	sge[1] = piece(100, 8);
	wr.num_sge = 2;
	buf[BUF_BYTES / 2 + 15] = 'r';
	post("READ into two pieces", 1);
	say("READ into two pieces", "%c", buf[107]);
	begin(IBV_WR_RDMA_READ, 8);
	sge[1] = piece(100, 0);
	wr.num_sge = 2;
	post("READ with an empty piece", 1);
	begin(IBV_WR_SEND_WITH_IMM, 0);
	wr.num_sge = 0;
	wr.imm_data = htobe32(7);
	MUST(post_recv(qp[1], 1, 1024, 8) == 0);
	post("immediate data alone", 2);
	begin(IBV_WR_RDMA_WRITE_WITH_IMM, 0);
	wr.num_sge = 0;
	wr.imm_data = htobe32(7);
	MUST(post_recv(qp[1], 1, 1024, 8) == 0);
	post("WRITE of immediate data alone", 2);
	begin(IBV_WR_ATOMIC_CMP_AND_SWP, 8);
	memset(buf + BUF_BYTES / 2, 0, 8);
	wr.wr.atomic.compare_add = 5;
	wr.wr.atomic.swap = 6;
	post("CMP_AND_SWP that does not compare", 1);
	say("its value", "%u", buf[BUF_BYTES / 2]);
	begin(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	sge[0].length = 4;
	sge[1] = piece(200, 4);
	wr.num_sge = 2;
	wr.wr.atomic.compare_add = 1ull << 32 | 1;
	post("atomic into two pieces", 1);
}

static void
write_to(struct ibv_qp_ex *ex, uint64_t id)
{
	ex->wr_id = id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)buf + 4096);
}

static void
extended(void)
{
	struct ibv_qp_init_attr_ex init = {0};
	struct ibv_qp_ex *ex;
	int i;

	bed_open();
	init.qp_type = IBV_QPT_RC;
	init.send_cq = init.recv_cq = cq;
	init.cap = qp_init(IBV_QPT_RC).cap;
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.pd = pd;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
	qp[0] = ibv_create_qp_ex(ctx, &init);
	say_ptr("made", qp[0]);
	MUST(qp[0] != NULL);
	ex = ibv_qp_to_qp_ex(qp[0]);
	bring_to(qp[0], IBV_QPS_RTS, qp[0]->qp_num);
	ibv_wr_start(ex);
	write_to(ex, 3);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)buf, 8);
	write_to(ex, 4);
	ibv_wr_set_inline_data(ex, (void *)"abcd", 4);
	say_rc("two", ibv_wr_complete(ex));
	say_wcs("two", cq, 2);
	ibv_wr_start(ex);
	say_rc("none", ibv_wr_complete(ex));
	ibv_wr_start(ex);
	write_to(ex, 5);
	ibv_wr_set_inline_data(ex, buf, 8192);
	say("too much inline", "%d", ibv_wr_complete(ex) != 0);
	say_none("too much inline", cq);
	ibv_wr_start(ex);
	for (i = 0; i < 1000; i++) {
		write_to(ex, 6);
		ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)buf, 8);
	}
	say("more than there is room for", "%d", ibv_wr_complete(ex) != 0);
	say_none("more than there is room for", cq);
	ibv_wr_start(ex);
	write_to(ex, 7);
	ibv_wr_abort(ex);
	say_none("aborted", cq);
}

/* An extended completion queue, with optional fields. */
static void
extended_cq(void)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM};
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_cq_ex *ex;
	int i;

	bed_open();
	MUST(ibv_destroy_cq(cq) == 0);
	ex = ibv_create_cq_ex(ctx, &init);
	say_ptr("made", ex);
	MUST(ex != NULL);
	cq = ibv_cq_ex_to_cq(ex);
	connect_pair(IBV_QPT_RC);
	say_rc("empty", ibv_start_poll(ex, &attr));
	MUST(post_recv(qp[1], 1, 1024, 64) == 0);
	MUST(post_send(qp[0], 1, 0, 20) == 0);
	for (i = 0; i < 2; i++) {
		while (ibv_start_poll(ex, &attr) == ENOENT)
			usleep(1000);
		say("one", "%llu status %d", (unsigned long long)ex->wr_id, ex->status);
		ibv_end_poll(ex);
	}
	attr.comp_mask = 1;
	say_rc("an unknown mask", ibv_start_poll(ex, &attr));
	init.comp_mask = 1u << 20;
	say("with an unknown mask", "%d", ibv_create_cq_ex(ctx, &init) != NULL);
	init.comp_mask = 0;
	init.wc_flags = 1ull << 40;
	say("with unknown fields", "%d", ibv_create_cq_ex(ctx, &init) != NULL);
}

static struct ibv_ah *way;

static void
datagram(const char *what, uint32_t len, int completions)
{
	sge[0].length = len;
	wr.wr.ud.ah = way;
	wr.wr.ud.remote_qpn = qp[1]->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	post(what, completions);
	say(what, "%s %s", state_name(state_of(qp[0])), state_name(state_of(qp[1])));
}

static void
datagrams(void)
{
	struct ibv_ah_attr attr;
	struct ibv_port_attr port;
	uint32_t mtu;

	bed_open();
	MUST(ibv_query_port(ctx, 1, &port) == 0);
	mtu = 128u << port.active_mtu;
	connect_pair(IBV_QPT_UD);
	attr = full_attr(IBV_QPS_RTR, 0).ah_attr;
	MUST((way = ibv_create_ah(pd, &attr)) != NULL);
	begin(IBV_WR_SEND_WITH_IMM, 8);
	wr.imm_data = htobe32(9);
	MUST(post_recv(qp[1], 1, 1024, 100) == 0);
	datagram("with immediate data", 8, 2);
	begin(IBV_WR_SEND, 8);
	MUST(post_recv(qp[1], 1, 1024, 40) == 0);
	wr.num_sge = 0;
	datagram("of nothing", 0, 2);
	begin(IBV_WR_SEND, 8);
	MUST(post_recv(qp[1], 1, 8192, mtu + 40) == 0);
	datagram("as long as the MTU", mtu, 2);
	datagram("longer than the MTU", mtu + 1, 1);
}

static void
other_domain(void)
{
	struct ibv_ah_attr attr;
	struct ibv_pd *other;
	struct ibv_mr *foreign;

	bed_open();
	connect_pair(IBV_QPT_RC);
	MUST((other = ibv_alloc_pd(ctx)) != NULL);
	attr = full_attr(IBV_QPS_RTR, 0).ah_attr;
	say_ptr("AH", ibv_create_ah(other, &attr));
	MUST((foreign = ibv_reg_mr(other, buf, 4096, ALL_ACCESS)) != NULL);
	begin(IBV_WR_RDMA_READ, 8);
	sge[0].lkey = foreign->lkey;
	post("READ into memory of another domain", 1);
	again();
	begin(IBV_WR_SEND, 8);
	MUST(post_recv(qp[1], 1, 1024, 8) == 0);
	post("after it", 2);
}

const struct same_case wr_cases[] = {
	{"flags and pieces", flags},
	{"ibv_wr", extended},
	{"extended CQ", extended_cq},
	{"datagrams of all sizes", datagrams},
	{"another domain", other_domain},
	{0},
};
