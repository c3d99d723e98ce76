/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Posting in each state, flushing, draining, and sizes of requests. */
#include "same.h"

#define MANY 64 /* SGEs: more than any device allows in a request */

static void
post_in(enum ibv_qp_type type)
{
	static const enum ibv_qp_state states[] = {
		IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR};
	char what[64];
	size_t i;

	bed_open();
	for (i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		qp[0] = make_qp(type);
		if (states[i] != IBV_QPS_RESET)
			bring_to(qp[0], states[i], qp[0]->qp_num);
		snprintf(what, sizeof(what), "send in %s", state_name(states[i]));
		/* other cases send in the states RTS and SQD */
		if (states[i] != IBV_QPS_RTS && states[i] != IBV_QPS_SQD)
			say_rc(what, post_send(qp[0], 1, 0, 8));
		if (states[i] == IBV_QPS_ERR)
			say_wcs("flushed", cq, 1);
		snprintf(what, sizeof(what), "receive in %s", state_name(states[i]));
		if (states[i] != IBV_QPS_ERR)
			say_rc(what, post_recv(qp[0], 2, 64, 8));
		say_none("after it", cq);
		say_rc("destroyed", ibv_destroy_qp(qp[0]));
	}
}

static void
post_rc(void)
{
	post_in(IBV_QPT_RC);
}

static void
post_uc(void)
{
	post_in(IBV_QPT_UC);
}

static void
flush(void)
{
	int i;

	bed_open();
	connect_pair(IBV_QPT_RC);
	for (i = 0; i < 4; i++)
		say_rc("receive", post_recv(qp[0], (uint64_t)i, 0, 8));
	say_rc("to ERR", move(qp[0], IBV_QPS_ERR, 0));
	say_wcs("flushed", cq, 4);
	/* in ERR, rxe notices a receive only when a send wakes it */
	say_rc("receive then", post_recv(qp[0], 10, 0, 8));
	say_rc("send then", post_send(qp[0], 11, 0, 8));
	say_rc("another send", post_send(qp[0], 12, 0, 8));
	say_wcs("flushed", cq, 3);
	say_rc("ERR to ERR", move(qp[0], IBV_QPS_ERR, 0));
	say_rc("to RESET", move(qp[0], IBV_QPS_RESET, 0));
	say_none("in RESET", cq);
}

/* Requests behind one that fails are flushed; unsignaled ones have a completion then, too. */
static void
flush_behind(void)
{
	struct ibv_sge sge[4];
	struct ibv_send_wr wr[4], *bad;
	int i;

	bed_open();
	connect_pair(IBV_QPT_RC);
	say_rc("receive", post_recv(qp[0], 20, 1024, 64));
	for (i = 0; i < 4; i++) {
		sge[i] = piece(64 * (size_t)i, 64);
		wr[i] = send_wr(IBV_WR_RDMA_WRITE, (uint64_t)i, &sge[i]);
		wr[i].next = i < 3 ? &wr[i + 1] : NULL;
		wr[i].send_flags = i == 2 ? 0 : IBV_SEND_SIGNALED;
	}
	wr[1].wr.rdma.rkey = mr->rkey ^ 0x5500;
	say_rc("send", ibv_post_send(qp[0], wr, &bad));
	say_wcs("completions", cq, 5);
	say("state", "%s", state_name(state_of(qp[0])));
	say("the other's state", "%s", state_name(state_of(qp[1])));
	say_none("the other's", cq);
}

static void
unsignaled(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;
	int i;

	bed_open();
	sge = piece(0, 8);
	connect_pair(IBV_QPT_RC);
	wr = send_wr(IBV_WR_RDMA_WRITE, 1, &sge);
	wr.send_flags = 0;
	for (i = 0; i < 8; i++)
		MUST(ibv_post_send(qp[0], &wr, &bad) == 0);
	say_none("unsignaled", cq);
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr_id = 2;
	say_rc("signaled", ibv_post_send(qp[0], &wr, &bad));
	say_wcs("one completion", cq, 1);
	say_none("no other", cq);
	wr.send_flags = 0;
	wr.wr_id = 3;
	wr.wr.rdma.rkey ^= 0x5500;
	say_rc("unsignaled, in error", ibv_post_send(qp[0], &wr, &bad));
	say_wcs("its completion", cq, 1);
}

static void
sig_all(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;

	bed_open();
	init = qp_init(IBV_QPT_RC);
	init.sq_sig_all = 1;
	MUST((qp[0] = ibv_create_qp(pd, &init)) != NULL);
	bring_to(qp[0], IBV_QPS_RTS, qp[0]->qp_num);
	sge = piece(0, 8);
	wr = send_wr(IBV_WR_RDMA_WRITE, 1, &sge);
	wr.send_flags = 0;
	say_rc("post", ibv_post_send(qp[0], &wr, &bad));
	say_wcs("completes", cq, 1);
}

/* The case does not send afterwards: rxe stays in SQD as if it never finished draining. */
static void
drain(void)
{
	struct ibv_qp_attr a;

	bed_open();
	connect_pair(IBV_QPT_RC);
	a = full_attr(IBV_QPS_SQD, 0);
	a.en_sqd_async_notify = 1;
	say_rc("to SQD", ibv_modify_qp(qp[0], &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	say_async("drained");
	a = full_attr(IBV_QPS_RTS, 0);
	say_rc("to RTS", ibv_modify_qp(qp[0], &a, IBV_QP_STATE));
}

/* Posts receives until the queue is full: at least as many as were asked for must be accepted.
 * Then posts a list with an invalid receive. */
static void
full(void)
{
	struct ibv_recv_wr wr[3] = {0}, *bad = NULL;
	struct ibv_sge sge[MANY];
	int rc, n = 0, i;

	bed_open();
	for (i = 0; i < MANY; i++)
		sge[i] = piece(0, 8);
	qp[0] = make_qp(IBV_QPT_RC);
	bring_to(qp[0], IBV_QPS_RTR, qp[0]->qp_num);
	for (i = 0; i < 3; i++)
		wr[i] = (struct ibv_recv_wr){.sg_list = sge, .num_sge = 1};
	while ((rc = ibv_post_recv(qp[0], &wr[0], &bad)) == 0 && n < 100000)
		n++;
	say("as many as were asked for", "%d", n >= 16);
	say("one more", "%s, bad_wr is it %d", error_name(rc), bad == &wr[0]);
	say_rc("to ERR", move(qp[0], IBV_QPS_ERR, 0));
	for (i = 0; i < n; i++)
		next_wc(cq);
	say_none("no other", cq);
	for (i = 0; i < 3; i++)
		wr[i].wr_id = RECV_ID + (uint64_t)i;
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	wr[1].num_sge = MANY;
	bad = NULL;
	rc = ibv_post_recv(qp[0], wr, &bad);
	say("a list with a wrong one", "%s, bad_wr is it %d", error_name(rc), bad == &wr[1]);
	MUST(post_send(qp[0], 7, 0, 8) == 0); /* wakes rxe */
	say_wcs("the one before it", cq, 2);
	say_none("no other", cq);
}

static void
full_send(void)
{
	struct ibv_sge sge[MANY];
	struct ibv_send_wr wr[3], *bad = NULL;
	int rc, i;

	bed_open();
	for (i = 0; i < MANY; i++)
		sge[i] = piece(0, 8);
	qp[0] = make_qp(IBV_QPT_RC);
	bring_to(qp[0], IBV_QPS_RTS, qp[0]->qp_num);
	bring_to(qp[0], IBV_QPS_ERR, 0);
	for (i = 0; i < 3; i++) {
		wr[i] = send_wr(IBV_WR_SEND, (uint64_t)i, sge);
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].num_sge = MANY;
	rc = ibv_post_send(qp[0], wr, &bad);
	say("a list with too many pieces", "%s, bad_wr is it %d", error_name(rc), bad == &wr[1]);
	say_wcs("the one before it", cq, 1);
	wr[1].num_sge = 1;
	wr[1].opcode = 77;
	rc = ibv_post_send(qp[0], wr, &bad);
	say("a list with an unknown opcode", "%s, bad_wr is it %d", error_name(rc), bad == &wr[1]);
	say_wcs("the one before it", cq, 1);
	say_none("no other", cq);
}

/* Inline data. */
static void
inline_data(void)
{
	struct ibv_sge sge[2];
	struct ibv_send_wr wr, *bad;
	struct ibv_qp_init_attr init;
	uint32_t max;

	bed_open();
	init = qp_init(IBV_QPT_RC);
	MUST((qp[0] = ibv_create_qp(pd, &init)) != NULL);
	max = init.cap.max_inline_data;
	bring_to(qp[0], IBV_QPS_RTS, qp[0]->qp_num);
	sge[0] = piece(0, 32);
	sge[0].lkey = 0; /* ignored for inline data */
	memset(buf, 'x', 64);
	wr = send_wr(IBV_WR_RDMA_WRITE, 1, sge);
	wr.send_flags |= IBV_SEND_INLINE;
	say_rc("32 bytes", ibv_post_send(qp[0], &wr, &bad));
	memset(buf, 'y', 64); /* the program may change the buffer after posting */
	say_wcs("completes", cq, 1);
	say("written", "%c", buf[BUF_BYTES / 2 + 31]);
	sge[0] = piece(0, 16);
	sge[1] = piece(16, 16);
	wr.num_sge = 2;
	say_rc("two pieces", ibv_post_send(qp[0], &wr, &bad));
	say_wcs("completes", cq, 1);
	sge[0] = piece(0, max + 1);
	wr.num_sge = 1;
	say("too much", "%d", ibv_post_send(qp[0], &wr, &bad) != 0);
	wr.num_sge = 0;
	say_rc("no bytes", ibv_post_send(qp[0], &wr, &bad));
	say_wcs("completes", cq, 1);
	sge[0] = piece(0, 8);
	wr.num_sge = 1;
	wr.opcode = IBV_WR_RDMA_READ;
	say("a READ", "%d", ibv_post_send(qp[0], &wr, &bad) != 0);
	say_none("no other", cq);
}

const struct same_case state_cases[] = {
	{"posting, RC", post_rc},
	{"posting, UC", post_uc},
	{"flush", flush},
	{"flush behind an error", flush_behind},
	{"unsignaled", unsignaled},
	{"sq_sig_all", sig_all},
	{"drain", drain},
	{"full receive queue", full},
	{"wrong requests", full_send},
	{"inline", inline_data},
	{0},
};
