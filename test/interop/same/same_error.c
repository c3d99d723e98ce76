/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Valid and invalid requests between two queue pairs: the results at both ends. */
#include "same.h"

#define REMOTE (BUF_BYTES / 2)

static struct ibv_sge sge[2];
static struct ibv_send_wr wr;

static void
begin(enum ibv_wr_opcode opcode, uint32_t len)
{
	sge[0] = piece(0, len);
	wr = send_wr(opcode, 1, sge);
}

static void
post(const char *what)
{
	struct ibv_send_wr *bad;

	say_rc(what, ibv_post_send(qp[0], &wr, &bad));
}

/* Posts the request; prints @n completions and the states of both queue pairs; connects them again
 * if one is not in RTS. */
static void
outcome(const char *what, int n)
{
	enum ibv_qp_state state[2];
	int i;

	post(what);
	say_wcs(what, cq, n);
	state[0] = state_of(qp[0]);
	state[1] = state_of(qp[1]);
	/* the peer may go to ERR after it has sent the NAK */
	for (i = 0; i < 100 && state[0] == IBV_QPS_ERR && state[1] == IBV_QPS_RTS; i++) {
		usleep(3000);
		state[1] = state_of(qp[1]);
	}
	say(what, "%s %s", state_name(state[0]), state_name(state[1]));
	if (state[0] != IBV_QPS_RTS || state[1] != IBV_QPS_RTS)
		again();
}

/* Posts an invalid request, for which either the call or the completion may report the error. */
static void
told(const char *what)
{
	struct ibv_send_wr *bad;
	int rc = ibv_post_send(qp[0], &wr, &bad);

	say_rc(what, rc);
	if (rc == 0)
		say_wcs(what, cq, 1);
	again();
}

static void
good(enum ibv_qp_type type)
{
	bed_open();
	connect_pair(type);
	begin(IBV_WR_SEND, 100);
	MUST(post_recv(qp[1], 2, 1024, 200) == 0);
	outcome("SEND", 2);
	begin(IBV_WR_SEND_WITH_IMM, 100);
	wr.imm_data = htobe32(0x12345678);
	MUST(post_recv(qp[1], 2, 1024, 200) == 0);
	outcome("SEND with immediate", 2);
	begin(IBV_WR_RDMA_WRITE, 5000);
	outcome("WRITE", 1);
	begin(IBV_WR_RDMA_WRITE_WITH_IMM, 5000);
	wr.imm_data = htobe32(0x12345678);
	MUST(post_recv(qp[1], 2, 1024, 0) == 0);
	outcome("WRITE with immediate", 2);
	begin(IBV_WR_SEND, 0);
	wr.num_sge = 0;
	MUST(post_recv(qp[1], 2, 1024, 0) == 0);
	outcome("SEND of nothing", 2);
	begin(IBV_WR_RDMA_WRITE, 0);
	wr.num_sge = 0;
	wr.wr.rdma.rkey = 0;
	wr.wr.rdma.remote_addr = 0;
	outcome("WRITE of nothing, with no key", 1);
	begin(IBV_WR_SEND, 4096);
	MUST(post_recv(qp[1], 2, 8192, 4096) == 0);
	outcome("SEND of several packets", 2);
	begin(IBV_WR_SEND, 60);
	sge[1] = piece(512, 40);
	wr.num_sge = 2;
	MUST(post_recv(qp[1], 2, 1024, 100) == 0);
	outcome("SEND of two pieces", 2);
	begin(IBV_WR_SEND, 60);
	sge[1] = piece(512, 0);
	wr.num_sge = 2;
	MUST(post_recv(qp[1], 2, 1024, 60) == 0);
	outcome("SEND with an empty piece", 2);
}

static void
good_rc(void)
{
	good(IBV_QPT_RC);
	begin(IBV_WR_RDMA_READ, 5000);
	outcome("READ", 1);
	begin(IBV_WR_RDMA_READ, 0);
	wr.num_sge = 0;
	wr.wr.rdma.rkey = 0;
	outcome("READ of nothing, with no key", 1);
	begin(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	memset(buf, 0, BUF_BYTES);
	outcome("FETCH_AND_ADD", 1);
	outcome("FETCH_AND_ADD again", 1);
	say("its value", "%llu %llu", *(unsigned long long *)buf,
		*(unsigned long long *)(buf + REMOTE));
	begin(IBV_WR_ATOMIC_CMP_AND_SWP, 8);
	wr.wr.atomic.compare_add = 2;
	wr.wr.atomic.swap = 9;
	outcome("CMP_AND_SWP", 1);
	say("its value", "%llu %llu", *(unsigned long long *)buf,
		*(unsigned long long *)(buf + REMOTE));
}

static void
good_uc(void)
{
	good(IBV_QPT_UC);
	begin(IBV_WR_RDMA_READ, 8);
	post("READ");
	begin(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	post("FETCH_AND_ADD");
	begin(IBV_WR_SEND_WITH_INV, 8);
	post("SEND with invalidate");
}

static void
receives(void)
{
	bed_open();
	connect_pair(IBV_QPT_RC);
	begin(IBV_WR_SEND, 8);
	outcome("SEND without a receive", 1);
	begin(IBV_WR_RDMA_WRITE_WITH_IMM, 8);
	memset(buf, 1, 8);
	buf[REMOTE] = 0;
	outcome("WRITE with immediate without a receive", 1);
	begin(IBV_WR_SEND, 100);
	MUST(post_recv(qp[1], 2, 1024, 50) == 0);
	MUST(post_recv(qp[1], 3, 1024, 50) == 0);
	outcome("SEND longer than the receive", 3);
	begin(IBV_WR_SEND, 3000);
	MUST(post_recv(qp[1], 2, 1024, 2000) == 0);
	outcome("SEND of several packets, longer than the receive", 2);
}

/* Wrong keys and addresses of the peer's memory. */
static void
remote(void)
{
	struct ibv_mr *local, *readable, *writable;
	struct ibv_pd *other = NULL;
	struct ibv_mr *foreign;

	bed_open();
	connect_pair(IBV_QPT_RC);
	MUST((local = ibv_reg_mr(pd, buf, BUF_BYTES, IBV_ACCESS_LOCAL_WRITE)) != NULL);
	MUST((readable = ibv_reg_mr(pd, buf, BUF_BYTES, IBV_ACCESS_REMOTE_READ)) != NULL);
	MUST((writable = ibv_reg_mr(pd, buf, BUF_BYTES,
		      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) != NULL);
	MUST((other = ibv_alloc_pd(ctx)) != NULL);
	MUST((foreign = ibv_reg_mr(other, buf, BUF_BYTES, ALL_ACCESS)) != NULL);
	begin(IBV_WR_RDMA_WRITE, 8);
	wr.wr.rdma.rkey = local->rkey;
	outcome("WRITE to a region without rights", 1);
	wr.wr.rdma.rkey = readable->rkey;
	outcome("WRITE to a region to be read", 1);
	wr.wr.rdma.rkey = foreign->rkey;
	outcome("WRITE to a region of another domain", 1);
	wr.wr.rdma.rkey = mr->rkey;
	wr.wr.rdma.remote_addr = (uintptr_t)buf + BUF_BYTES - 4;
	outcome("WRITE over the end", 1);
	wr.wr.rdma.remote_addr = (uintptr_t)buf - 4;
	outcome("WRITE before the beginning", 1);
	wr.wr.rdma.remote_addr = UINT64_MAX - 3;
	outcome("WRITE around the end of all addresses", 1);
	begin(IBV_WR_RDMA_READ, 8);
	wr.wr.rdma.rkey = writable->rkey;
	outcome("READ from a region to be written", 1);
	wr.wr.rdma.rkey = readable->rkey;
	outcome("READ from a region to be read", 1);
	wr.wr.rdma.rkey = 0;
	outcome("READ with key 0", 1);
	begin(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	wr.wr.atomic.rkey = writable->rkey;
	outcome("atomic on a region without that right", 1);
	begin(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	wr.wr.atomic.remote_addr = (uintptr_t)buf + BUF_BYTES - 4;
	told("atomic that is misaligned");
	MUST(ibv_dereg_mr(readable) == 0);
	begin(IBV_WR_RDMA_READ, 8);
	wr.wr.rdma.rkey = readable->rkey;
	outcome("READ from a region that has gone", 1);
}

/* Wrong keys and addresses of the program's own memory. */
static void
local(void)
{
	struct ibv_mr *read_only;

	bed_open();
	connect_pair(IBV_QPT_RC);
	MUST((read_only = ibv_reg_mr(pd, buf, BUF_BYTES, 0)) != NULL);
	begin(IBV_WR_SEND, 8);
	sge[0].lkey = read_only->lkey;
	MUST(post_recv(qp[1], 2, 1024, 8) == 0);
	outcome("SEND from a read-only region", 2);
	begin(IBV_WR_SEND, 8);
	sge[0].lkey ^= 0x5500;
	outcome("SEND with a wrong key", 1);
	begin(IBV_WR_SEND, 8);
	sge[0].addr = (uintptr_t)buf + BUF_BYTES - 4;
	outcome("SEND from over the end", 1);
	begin(IBV_WR_RDMA_READ, 8);
	sge[0].lkey = read_only->lkey;
	outcome("READ into a read-only region", 1);
	begin(IBV_WR_RDMA_READ, 8);
	sge[0].addr = (uintptr_t)buf + BUF_BYTES - 4;
	outcome("READ to over the end", 1);
	begin(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	sge[0].lkey = read_only->lkey;
	outcome("atomic into a read-only region", 1);
	begin(IBV_WR_ATOMIC_FETCH_AND_ADD, 4);
	told("atomic into 4 bytes");
	begin(IBV_WR_SEND, 8);
	{
		struct ibv_sge to = piece(1024, 8);
		struct ibv_recv_wr recv = {.wr_id = RECV_ID, .sg_list = &to, .num_sge = 1}, *bad;

		to.lkey = read_only->lkey;
		MUST(ibv_post_recv(qp[1], &recv, &bad) == 0);
	}
	outcome("a receive in a read-only region", 2);
}

/* Requests that the access flags of the peer's queue pair do not allow. */
static void
access_flags(void)
{
	struct ibv_qp_attr a;

	bed_open();
	connect_pair(IBV_QPT_RC);
	a = full_attr(IBV_QPS_RTS, 0);
	a.qp_access_flags = 0;
	begin(IBV_WR_RDMA_WRITE, 8);
	say_rc("no rights", ibv_modify_qp(qp[1], &a, IBV_QP_ACCESS_FLAGS));
	outcome("WRITE", 1);
	begin(IBV_WR_RDMA_READ, 8);
	say_rc("no rights", ibv_modify_qp(qp[1], &a, IBV_QP_ACCESS_FLAGS));
	outcome("READ", 1);
	begin(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	say_rc("no rights", ibv_modify_qp(qp[1], &a, IBV_QP_ACCESS_FLAGS));
	outcome("atomic", 1);
	begin(IBV_WR_RDMA_WRITE, 0);
	wr.num_sge = 0;
	say_rc("no rights", ibv_modify_qp(qp[1], &a, IBV_QP_ACCESS_FLAGS));
	outcome("WRITE of nothing", 1);
}

/* The peer does not exist, or is in ERR. */
static void
nobody(void)
{
	struct ibv_qp_attr a;

	bed_open();
	connect_pair(IBV_QPT_RC);
	MUST(move(qp[0], IBV_QPS_RESET, 0) == 0);
	bring_to(qp[0], IBV_QPS_RTR, 0xfffffe);
	a = full_attr(IBV_QPS_RTS, 0);
	a.timeout = 8;
	a.retry_cnt = 1;
	MUST(ibv_modify_qp(qp[0], &a, needed(IBV_QPT_RC, IBV_QPS_RTS)) == 0);
	begin(IBV_WR_SEND, 8);
	post("SEND to nobody");
	say_wcs("SEND to nobody", cq, 1);
	say("state", "%s", state_name(state_of(qp[0])));
	again();
	MUST(move(qp[1], IBV_QPS_ERR, 0) == 0);
	a.sq_psn = 100;
	begin(IBV_WR_SEND, 8);
	MUST(move(qp[0], IBV_QPS_RESET, 0) == 0);
	bring_to(qp[0], IBV_QPS_RTR, qp[1]->qp_num);
	MUST(ibv_modify_qp(qp[0], &a, needed(IBV_QPT_RC, IBV_QPS_RTS)) == 0);
	post("SEND to one in error");
	say_wcs("SEND to one in error", cq, 1);
}

/* Connects qp[1] anew, so that it accepts no READs and atomics (max_dest_rd_atomic is 0). */
static void
accept_no_reads(void)
{
	struct ibv_qp_attr a = full_attr(IBV_QPS_RTR, qp[0]->qp_num);

	a.max_dest_rd_atomic = 0;
	MUST(move(qp[1], IBV_QPS_RESET, 0) == 0);
	bring_to(qp[1], IBV_QPS_INIT, qp[0]->qp_num);
	say_rc("the peer to RTR", ibv_modify_qp(qp[1], &a, needed(IBV_QPT_RC, IBV_QPS_RTR)));
	MUST(move(qp[1], IBV_QPS_RTS, qp[0]->qp_num) == 0);
}

/*
 * READs and atomics to a queue pair that accepts none fail, and WRITEs to it succeed; so do WRITEs
 * by a queue pair that may send no READs (max_rd_atomic is 0).
 */
static void
no_reads(void)
{
	struct ibv_qp_attr a;

	bed_open();
	connect_pair(IBV_QPT_RC);
	MUST(move(qp[0], IBV_QPS_RESET, 0) == 0);
	bring_to(qp[0], IBV_QPS_RTR, qp[1]->qp_num);
	a = full_attr(IBV_QPS_RTS, 0);
	a.max_rd_atomic = 0;
	say_rc("to RTS", ibv_modify_qp(qp[0], &a, needed(IBV_QPT_RC, IBV_QPS_RTS)));
	begin(IBV_WR_RDMA_WRITE, 8);
	outcome("WRITE by one that may send no READs", 1);
	again();
	accept_no_reads();
	outcome("WRITE to one that accepts no READs", 1);
	begin(IBV_WR_RDMA_READ, 8);
	outcome("READ from one that accepts none", 1);
	accept_no_reads();
	begin(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	outcome("atomic on one that accepts none", 1);
}

const struct same_case error_cases[] = {
	{"right requests, RC", good_rc},
	{"right requests, UC", good_uc},
	{"receives", receives},
	{"remote keys", remote},
	{"local keys", local},
	{"rights of a queue pair", access_flags},
	{"nobody there", nobody},
	{"no READs", no_reads},
	{0},
};
