/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Connections of rdma_cm that are not established, default parameters, and identifiers whose calls
 * wait. */
#include "same_cm.h"

static struct rdma_cm_id *listener, *near, *far;

static void
ask(enum rdma_port_space space, const char *address)
{
	cm_open();
	listener = make_id(space);
	MUST(bind_to(listener, address, CM_PORT) == 0);
	MUST(rdma_listen(listener, 4) == 0);
	near = make_id(space);
	resolve(near, CM_PORT);
	add_qp(near);
}

static void
connect_with(struct rdma_conn_param *param)
{
	struct rdma_cm_event *e;

	say_rc("connect", rdma_connect(near, param));
	e = say_cm_event("request");
	far = e->id;
	say("request", "responder %u, initiator %u, flow %u, retry %u, rnr %u",
		e->param.conn.responder_resources, e->param.conn.initiator_depth,
		e->param.conn.flow_control, e->param.conn.retry_count,
		e->param.conn.rnr_retry_count);
	rdma_ack_cm_event(e);
}

static void
listener_goes(void)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	ask(RDMA_PS_TCP, own_address);
	MUST(rdma_connect(near, &param) == 0);
	usleep(200000);
	say_rc("listener goes, the request was not taken", rdma_destroy_id(listener));
	take("who asks");
	say_no_cm_event("then");
}

static void
listener_goes_later(void)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	ask(RDMA_PS_TCP, "");
	connect_with(&param);
	say("at any address", "own %d, port %d",
		((struct sockaddr_in *)rdma_get_local_addr(far))->sin_addr.s_addr ==
			address_of(own_address, 0).sin_addr.s_addr,
		ntohs(rdma_get_src_port(far)) == CM_PORT);
	say_rc("listener goes, the request was taken", rdma_destroy_id(listener));
	say_no_cm_event("then");
	add_qp(far);
	say_rc("accept", rdma_accept(far, &param));
	take("one");
	take("the other");
}

static void
given_up(void)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	ask(RDMA_PS_TCP, own_address);
	connect_with(&param);
	say_rc("who asks disconnects", rdma_disconnect(near));
	say_no_cm_event("then");
	say_rc("who is asked disconnects", rdma_disconnect(far));
	say_no_cm_event("then");
}

static void
defaults(void)
{
	struct rdma_cm_event *e;
	int i;

	ask(RDMA_PS_TCP, own_address);
	connect_with(NULL);
	add_qp(far);
	say_rc("accept", rdma_accept(far, NULL));
	for (i = 0; i < 2; i++) {
		e = next_cm_event("established");
		if (e->id == near)
			say("established", "responder %u, initiator %u, rnr %u",
				e->param.conn.responder_resources, e->param.conn.initiator_depth,
				e->param.conn.rnr_retry_count);
		rdma_ack_cm_event(e);
	}
}

static void
clamped(void)
{
	struct rdma_conn_param param = {.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.retry_count = 15,
		.rnr_retry_count = 15,
		.flow_control = 1};
	struct ibv_device_attr dev;
	struct rdma_cm_event *e;

	ask(RDMA_PS_TCP, own_address);
	MUST(ibv_query_device(ctx, &dev) == 0);
	say_rc("connect", rdma_connect(near, &param));
	e = say_cm_event("request");
	say("request", "responder %d, initiator %d, flow %u, retry %u, rnr %u",
		e->param.conn.responder_resources == dev.max_qp_init_rd_atom,
		e->param.conn.initiator_depth == dev.max_qp_rd_atom, e->param.conn.flow_control,
		e->param.conn.retry_count, e->param.conn.rnr_retry_count);
	far = e->id;
	rdma_ack_cm_event(e);
	say_rc("reject", rdma_reject(far, NULL, 0));
	e = say_cm_event("rejected");
	say("rejected", "of who has asked %d", e->id == near);
	rdma_ack_cm_event(e);
}

static void
notified(void)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	ask(RDMA_PS_TCP, own_address);
	say_rc("before it has asked", rdma_notify(near, IBV_EVENT_COMM_EST));
	connect_with(&param);
	say_rc("before it is accepted", rdma_notify(far, IBV_EVENT_COMM_EST));
	say_rc("another event", rdma_notify(far, IBV_EVENT_SQ_DRAINED));
	say_rc("of the listener", rdma_notify(listener, IBV_EVENT_COMM_EST));
}

static void
services(void)
{
	static const char data[256] = "x";
	struct rdma_conn_param param = {.private_data = data};
	struct rdma_cm_event *e;
	int i;

	ask(RDMA_PS_UDP, own_address);
	for (i = 180; i <= 181; i++) {
		param.private_data_len = (uint8_t)i;
		say_rc(i == 180 ? "180 bytes" : "181 bytes", rdma_connect(near, &param));
		if (i != 180)
			continue;
		e = say_cm_event("request");
		say("request", "length %d", e->param.ud.private_data_len);
		far = e->id;
		rdma_ack_cm_event(e);
		say_rc("reject", rdma_reject(far, "no", 2));
		e = say_cm_event("rejected");
		say("rejected", "length %d", e->param.ud.private_data_len);
		rdma_ack_cm_event(e);
	}
	rdma_destroy_qp(near);
	say_rc("destroyed", rdma_destroy_id(near));
	near = make_id(RDMA_PS_UDP);
	resolve(near, CM_PORT + 9);
	add_qp(near);
	param.private_data_len = 1;
	say_rc("to a port without a listener", rdma_connect(near, &param));
	take("to a port without a listener");
}

/* Identifiers without a channel: their calls are synchronous. */
static void
waiting(void)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE};
	struct rdma_addrinfo *res = NULL;
	struct rdma_cm_id *id = NULL;
	struct ibv_qp_init_attr init;

	cm_open();
	say_rc("a name that there is not",
		rdma_getaddrinfo("no.such.name.invalid", "7471", &hints, &res) != 0);
	say_rc("an address", rdma_getaddrinfo(own_address, "7471", &hints, &res));
	MUST(res != NULL);
	init = qp_init(IBV_QPT_RC);
	init.send_cq = init.recv_cq = NULL;
	say_rc("passive end point", rdma_create_ep(&id, res, NULL, &init));
	MUST(id != NULL);
	say("passive end point", "channel %d, event %d, qp %d", id->channel != NULL,
		id->event != NULL, id->qp != NULL);
	say_rc("listens", rdma_listen(id, 1));
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
	hints.ai_flags = 0;
	MUST(rdma_getaddrinfo(own_address, "7499", &hints, &res) == 0);
	init = qp_init(IBV_QPT_RC);
	init.send_cq = init.recv_cq = NULL;
	say_rc("active end point", rdma_create_ep(&id, res, NULL, &init));
	say("active end point", "channel %d, event %d, qp %d", id->channel != NULL,
		id->event != NULL, id->qp != NULL);
	say_rc("connects to nobody", rdma_connect(id, NULL));
	say("its event", "%d", id->event != NULL);
	rdma_destroy_ep(id);
}

const struct same_case meeting_cases[] = {
	{"listener goes", listener_goes},
	{"listener goes later", listener_goes_later},
	{"given up", given_up},
	{"defaults", defaults},
	{"clamped", clamped},
	{"notified", notified},
	{"services", services},
	{"waiting identifiers", waiting},
	{0},
};
