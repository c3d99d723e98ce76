/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Shared receive queues. */
#include "same.h"

static struct ibv_srq *srq;

static struct ibv_srq *
make_srq(uint32_t wr, uint32_t sge, uint32_t limit)
{
	struct ibv_srq_init_attr init = {
		.attr = {.max_wr = wr, .max_sge = sge, .srq_limit = limit}};
	struct ibv_srq *made = ibv_create_srq(pd, &init);

	if (made != NULL)
		say("caps", "%d %d", init.attr.max_wr >= wr, init.attr.max_sge >= sge);
	return made;
}

static int
post_srq(uint64_t id)
{
	struct ibv_sge sge = piece(1024, 64);
	struct ibv_recv_wr wr = {.wr_id = RECV_ID + id, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static void
connect_shared(void)
{
	struct ibv_qp_init_attr init = qp_init(IBV_QPT_RC);
	int i;

	init.srq = srq;
	qp[0] = make_qp(IBV_QPT_RC);
	MUST((qp[1] = ibv_create_qp(pd, &init)) != NULL);
	say("its field", "%d", qp[1]->srq == srq);
	for (i = 0; i < 2; i++)
		bring_to(qp[i], IBV_QPS_RTS, qp[1 - i]->qp_num);
}

static void
say_limit(const char *what)
{
	struct ibv_srq_attr a;

	MUST(ibv_query_srq(srq, &a) == 0);
	say(what, "limit %u, %d %d", a.srq_limit, a.max_wr >= 16, a.max_sge >= 1);
}

static void
limit(void)
{
	struct ibv_srq_attr a = {.srq_limit = 3};
	int i;

	bed_open();
	MUST((srq = make_srq(16, 1, 0)) != NULL);
	connect_shared();
	for (i = 0; i < 4; i++)
		MUST(post_srq((uint64_t)i) == 0);
	say_limit("first");
	say_rc("armed", ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT));
	say_limit("armed");
	for (i = 0; i < 2; i++) {
		MUST(post_send(qp[0], 10, 0, 8) == 0);
		say_wcs("a SEND", cq, 2);
	}
	say_async("the limit");
	say_limit("after it");
	a.srq_limit = 1000000;
	say_rc("more than there can be", ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT));
	say_rc("nothing", ibv_modify_srq(srq, &a, 0));
	say_rc("unknown", ibv_modify_srq(srq, &a, 1 << 10));
}

static void
refused(void)
{
	struct ibv_device_attr dev;
	struct ibv_recv_wr wr[3] = {0}, *bad = NULL;
	struct ibv_sge sge[64];
	int n = 0, rc, i;

	bed_open();
	MUST(ibv_query_device(ctx, &dev) == 0);
	say_ptr("no receives", make_srq(0, 1, 0));
	say_ptr("no pieces", make_srq(16, 0, 0));
	say_ptr("too many receives", make_srq((uint32_t)dev.max_srq_wr + 1, 1, 0));
	say_ptr("too many pieces", make_srq(16, (uint32_t)dev.max_srq_sge + 1, 0));
	MUST((srq = make_srq(16, 1, 0)) != NULL);
	for (i = 0; i < 64; i++)
		sge[i] = piece(0, 8);
	for (i = 0; i < 3; i++) {
		wr[i] = (struct ibv_recv_wr){.sg_list = sge, .num_sge = 1, .wr_id = (uint64_t)i};
	}
	wr[0].next = &wr[1];
	wr[1].num_sge = 64;
	rc = ibv_post_srq_recv(srq, wr, &bad);
	say("a list with a wrong one", "%s, bad_wr is it %d", error_name(rc), bad == &wr[1]);
	while ((rc = post_srq(1)) == 0 && n < 100000)
		n++;
	say("as many as were asked for", "%d", n + 1 >= 16);
	say_rc("one more", rc);
	qp[0] = NULL;
	connect_shared();
	say("a receive of a queue pair with it", "%s", error_name(post_recv(qp[1], 1, 0, 8)));
}

/* A queue pair goes to ERR: receives that it has not used stay in the shared queue. */
static void
error(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;

	bed_open();
	MUST((srq = make_srq(16, 1, 0)) != NULL);
	connect_shared();
	MUST(post_srq(1) == 0);
	MUST(post_srq(2) == 0);
	say_rc("to ERR", move(qp[1], IBV_QPS_ERR, 0));
	say_async("its last one");
	say_none("not flushed", cq);
	say_rc("destroyed", ibv_destroy_qp(qp[1]));
	{
		struct ibv_qp_init_attr init = qp_init(IBV_QPT_RC);
		int i;

		init.srq = srq;
		MUST((qp[1] = ibv_create_qp(pd, &init)) != NULL);
		MUST(move(qp[0], IBV_QPS_RESET, 0) == 0);
		for (i = 0; i < 2; i++)
			bring_to(qp[i], IBV_QPS_RTS, qp[1 - i]->qp_num);
	}
	say_rc("send", post_send(qp[0], 5, 0, 8));
	say_wcs("by another queue pair", cq, 2);
	sge = piece(0, 100);
	wr = send_wr(IBV_WR_SEND, 6, &sge);
	say_rc("one that is too long", ibv_post_send(qp[0], &wr, &bad));
	say_wcs("one that is too long", cq, 2);
	say("state", "%s", state_name(state_of(qp[1])));
	say_until("then", IBV_EVENT_QP_LAST_WQE_REACHED);
}

const struct same_case srq_cases[] = {
	{"SRQ limit", limit},
	{"SRQ refused", refused},
	{"SRQ and errors", error},
	{0},
};
