/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Calls after something has ended: queue pairs that are used again, regions, handles and queues
 * that are destroyed while others use them, and connections that are made again.
 */
#include "same_cm.h"

static struct ibv_sge sge;
static struct ibv_send_wr wr, *bad;

static void
write_by(const char *what, uint32_t rkey)
{
	sge = piece(0, 8);
	wr = send_wr(IBV_WR_RDMA_WRITE, 1, &sge);
	wr.wr.rdma.rkey = rkey;
	say_rc(what, ibv_post_send(qp[0], &wr, &bad));
	say_wcs(what, cq, 1);
}

/* A queue pair that was reset is like a new one: it has no requests and no receives. */
static void
reset(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	int i;

	bed_open();
	connect_pair(IBV_QPT_RC);
	for (i = 0; i < 3; i++)
		MUST(post_recv(qp[1], (uint64_t)i, 0, 8) == 0);
	again();
	MUST(post_recv(qp[1], 7, 1024, 64) == 0);
	say_rc("send", post_send(qp[0], 1, 0, 20));
	say_wcs("the new receive", cq, 2);
	for (i = 0; i < 2; i++)
		MUST(move(qp[i], IBV_QPS_RESET, 0) == 0);
	for (i = 0; i < 2; i++)
		bring_to(qp[i], IBV_QPS_RTS, qp[1 - i]->qp_num);
	write_by("from RTS to RESET and back", mr->rkey);
	MUST(ibv_query_qp(qp[0], &a, IBV_QP_STATE, &init) == 0);
	say("told of it", "%d %d %d", init.qp_context == NULL, init.recv_cq == cq,
		init.srq == NULL);
}

/* The peer is reset, and connects again with another PSN. */
static void
peer_resets(void)
{
	struct ibv_qp_attr a;

	bed_open();
	connect_pair(IBV_QPT_RC);
	write_by("before", mr->rkey);
	MUST(move(qp[1], IBV_QPS_RESET, 0) == 0);
	bring_to(qp[1], IBV_QPS_INIT, qp[0]->qp_num);
	a = full_attr(IBV_QPS_RTR, qp[0]->qp_num);
	a.rq_psn = 101; /* the other end's current PSN */
	MUST(ibv_modify_qp(qp[1], &a, needed(IBV_QPT_RC, IBV_QPS_RTR)) == 0);
	write_by("goes on", mr->rkey);
}

static void
handles(void)
{
	struct ibv_ah_attr attr;
	struct ibv_ah *way;
	struct ibv_mr *one;

	bed_open();
	connect_pair(IBV_QPT_UD);
	attr = full_attr(IBV_QPS_RTR, 0).ah_attr;
	MUST((way = ibv_create_ah(pd, &attr)) != NULL);
	sge = piece(0, 8);
	wr = send_wr(IBV_WR_SEND, 1, &sge);
	wr.wr.ud.ah = way;
	wr.wr.ud.remote_qpn = qp[1]->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	MUST(post_recv(qp[1], 1, 1024, 64) == 0);
	say_rc("sent", ibv_post_send(qp[0], &wr, &bad));
	say_wcs("sent", cq, 2);
	say_rc("the handle goes", ibv_destroy_ah(way));
	MUST((one = ibv_reg_mr(pd, buf, 4096, ALL_ACCESS)) != NULL);
	say_rc("a region goes", ibv_dereg_mr(one));
	say_rc("a queue pair goes", ibv_destroy_qp(qp[1]));
	MUST((way = ibv_create_ah(pd, &attr)) != NULL);
	wr.wr.ud.ah = way;
	say_rc("to one that has gone", ibv_post_send(qp[0], &wr, &bad));
	say_wcs("to one that has gone", cq, 1);
}

/* Two completion queues share one channel. */
static void
two_queues(void)
{
	struct ibv_comp_channel *events = NULL;
	struct ibv_cq *of, *second;
	struct ibv_qp_init_attr init;
	void *context;
	int i;

	bed_open();
	MUST((events = ibv_create_comp_channel(ctx)) != NULL);
	MUST((cq = ibv_create_cq(ctx, 64, &cq, events, 0)) != NULL);
	MUST((second = ibv_create_cq(ctx, 64, &second, events, 0)) != NULL);
	init = qp_init(IBV_QPT_RC);
	init.recv_cq = second;
	for (i = 0; i < 2; i++)
		MUST((qp[i] = ibv_create_qp(pd, &init)) != NULL);
	for (i = 0; i < 2; i++)
		bring_to(qp[i], IBV_QPS_RTS, qp[1 - i]->qp_num);
	say_rc("armed", ibv_req_notify_cq(cq, 0));
	say_rc("armed", ibv_req_notify_cq(second, 0));
	MUST(post_recv(qp[1], 1, 1024, 64) == 0);
	MUST(post_send(qp[0], 1, 0, 8) == 0);
	for (i = 0; i < 2; i++) {
		MUST(ibv_get_cq_event(events, &of, &context) == 0);
		say("an event", "%d", of == *(struct ibv_cq **)context);
		ibv_ack_cq_events(of, 1);
	}
	say_wcs("sent", cq, 1);
	say_wcs("received", second, 1);
	say_rc("the channel", ibv_destroy_comp_channel(events));
	say_rc("a queue", ibv_destroy_cq(second));
	for (i = 0; i < 2; i++)
		say_rc("a queue pair", ibv_destroy_qp(qp[i]));
	say_rc("a queue", ibv_destroy_cq(second));
	say_rc("a queue", ibv_destroy_cq(cq));
	say_rc("the channel", ibv_destroy_comp_channel(events));
}

/* A port number is free when its listener is destroyed, even while its connections exist. */
static void
listen_again(void)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_id *listener, *near, *far;
	struct rdma_cm_event *e;
	int round;

	cm_open();
	for (round = 0; round < 2; round++) {
		listener = make_id(RDMA_PS_TCP);
		say_rc("bound", bind_to(listener, own_address, CM_PORT));
		say_rc("listens", rdma_listen(listener, 1));
		near = make_id(RDMA_PS_TCP);
		resolve(near, CM_PORT);
		add_qp(near);
		MUST(rdma_connect(near, &param) == 0);
		e = say_cm_event("request");
		far = e->id;
		rdma_ack_cm_event(e);
		add_qp(far);
		say_rc("accept", rdma_accept(far, &param));
		take("one");
		take("the other");
		say_rc("the listener goes", rdma_destroy_id(listener));
	}
	listener = make_id(RDMA_PS_TCP);
	say_rc("bound, any address", bind_to(listener, "", CM_PORT));
	rdma_destroy_qp(near);
	say_rc("who is connected goes", rdma_destroy_id(near));
	take("its peer");
	say("queue pair", "%s", state_name(state_of(far->qp)));
	say_rc("disconnects then", rdma_disconnect(far));
	say("queue pair", "%s", state_name(state_of(far->qp)));
	say_no_cm_event("then");
}

const struct same_case later_cases[] = {
	{"RESET", reset},
	{"a peer resets", peer_resets},
	{"handles that go", handles},
	{"two queues", two_queues},
	{"listen again", listen_again},
	{0},
};
