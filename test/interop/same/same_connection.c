/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Connections of rdma_cm: the order of events, and calls in wrong states. */
#include "same_cm.h"

static struct rdma_cm_id *listener, *near, *far;

static void
listen_at(enum rdma_port_space space)
{
	cm_open();
	listener = make_id(space);
	MUST(bind_to(listener, own_address, CM_PORT) == 0);
	MUST(rdma_listen(listener, 4) == 0);
	near = make_id(space);
	resolve(near, CM_PORT);
	add_qp(near);
}

static struct rdma_conn_param
param_of(const char *private)
{
	return (struct rdma_conn_param){
		.private_data = private,
		.private_data_len = (uint8_t)strlen(private),
		.responder_resources = 3,
		.initiator_depth = 2,
		.retry_count = 7,
		.rnr_retry_count = 6,
	};
}

/* Connects, and prints the request that the listener gets. */
static void
request(const char *private)
{
	struct rdma_conn_param param = param_of(private);
	struct rdma_cm_event *e;

	say_rc("connect", rdma_connect(near, &param));
	e = say_cm_event("request");
	far = e->id;
	say("request", "of the listener %d, another %d, its context %d, device %d, no QP %d",
		e->listen_id == listener, far != listener, far->context == listener->context,
		far->verbs != NULL, far->qp == NULL);
	say("request", "private %.*s, length %d, responder %u, initiator %u, flow %u",
		(int)strlen(private),
		e->param.conn.private_data == NULL ? "" : (const char *)e->param.conn.private_data,
		e->param.conn.private_data_len, e->param.conn.responder_resources,
		e->param.conn.initiator_depth, e->param.conn.flow_control);
	say("request", "retry %u, rnr %u, srq %u, QP %d", e->param.conn.retry_count,
		e->param.conn.rnr_retry_count, e->param.conn.srq,
		e->param.conn.qp_num == near->qp->qp_num);
	say("request", "ports %d %d", ntohs(rdma_get_src_port(far)) == CM_PORT,
		rdma_get_dst_port(far) == rdma_get_src_port(near));
	rdma_ack_cm_event(e);
}

/* Takes two events, which may come in any order: ESTABLISHED of both ends. */
static void
both(const char *what)
{
	struct rdma_cm_event *e;
	char text[2][160];
	int i, end;

	memset(text, 0, sizeof(text));
	for (i = 0; i < 2; i++) {
		e = next_cm_event(what);
		end = e->id == near ? 0 : 1;
		snprintf(text[end], sizeof(text[end]),
			"%s, status %d, private %.2s, length %d, responder %u, initiator %u",
			rdma_event_str(e->event), e->status,
			e->param.conn.private_data == NULL
				? ""
				: (const char *)e->param.conn.private_data,
			e->param.conn.private_data_len, e->param.conn.responder_resources,
			e->param.conn.initiator_depth);
		rdma_ack_cm_event(e);
	}
	say(what, "active: %s", text[0]);
	say(what, "passive: %s", text[1]);
}

static void
accept_it(void)
{
	struct rdma_conn_param param = param_of("yo");

	add_qp(far);
	param.responder_resources = 2;
	param.initiator_depth = 1;
	say_rc("accept", rdma_accept(far, &param));
	both("accepted");
}

static void
tell_qp(const char *what, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	MUST(ibv_query_qp(id->qp, &a, IBV_QP_STATE, &init) == 0);
	say(what, "%s, rd %u, dest rd %u, retry %u, rnr %u, access %#x", state_name(a.qp_state),
		a.max_rd_atomic, a.max_dest_rd_atomic, a.retry_cnt, a.rnr_retry,
		a.qp_access_flags & ALL_ACCESS);
}

static void
connection(void)
{
	struct rdma_conn_param param = param_of("again");

	listen_at(RDMA_PS_TCP);
	tell_qp("at first", near);
	request("hello");
	accept_it();
	tell_qp("active", near);
	tell_qp("passive", far);
	say_rc("connect when connected", rdma_connect(near, &param));
	say_rc("accept when connected", rdma_accept(far, &param));
	say_rc("reject when connected", rdma_reject(far, NULL, 0));
	say_rc("resolve when connected", rdma_resolve_route(near, RESOLVE_MS));
	say_rc("listen when connected", rdma_listen(near, 1));
	say_rc("establish when connected", rdma_establish(near));
	say_rc("disconnect", rdma_disconnect(near));
	take("the other is told");
	tell_qp("active", near);
	tell_qp("passive", far);
	say_rc("the other disconnects", rdma_disconnect(far));
	take("who has begun is told");
	tell_qp("passive", far);
	say_rc("disconnect twice", rdma_disconnect(near));
	say_rc("connect again", rdma_connect(near, &param));
	say_no_cm_event("then");
	rdma_destroy_qp(near);
	say_rc("destroyed", rdma_destroy_id(near));
	rdma_destroy_qp(far);
	say_rc("destroyed", rdma_destroy_id(far));
	say_rc("the listener", rdma_destroy_id(listener));
}

static void
rejected(void)
{
	struct rdma_cm_event *e;
	struct rdma_conn_param param = param_of("");

	listen_at(RDMA_PS_TCP);
	request("");
	say_rc("reject", rdma_reject(far, "no", 2));
	e = say_cm_event("rejected");
	say("rejected", "private %.2s, length %d", (const char *)e->param.conn.private_data,
		e->param.conn.private_data_len);
	rdma_ack_cm_event(e);
	say_rc("reject twice", rdma_reject(far, "no", 2));
	say_rc("accept it then", rdma_accept(far, &param));
	say("queue pair", "%s", state_name(state_of(near->qp)));
	say_no_cm_event("then");
	rdma_destroy_qp(near);
	say_rc("destroyed", rdma_destroy_id(near));
	near = make_id(RDMA_PS_TCP);
	resolve(near, CM_PORT);
	add_qp(near);
	request("");
	say_rc("destroyed without an answer", rdma_destroy_id(far));
	take("its peer");
	rdma_destroy_qp(near);
	say_rc("destroyed", rdma_destroy_id(near));
	near = make_id(RDMA_PS_TCP);
	resolve(near, CM_PORT);
	add_qp(near);
	request("");
	rdma_destroy_qp(near);
	say_rc("who asks goes", rdma_destroy_id(near));
	usleep(200000);
	say_no_cm_event("who is asked");
	param.qp_num = 5; /* there is no queue pair: any number */
	say_rc("accept it then", rdma_accept(far, &param));
	say_no_cm_event("after that");
}

/* The maximum length of private data, and more. */
static void
lengths(void)
{
	static const char data[256] = "x";
	struct rdma_conn_param param = param_of("");
	char what[32];
	int i;

	listen_at(RDMA_PS_TCP);
	param.private_data = data;
	for (i = 57; i <= 92; i += 35) {
		param.private_data_len = (uint8_t)i;
		snprintf(what, sizeof(what), "connect with %d", i);
		say_rc(what, rdma_connect(near, &param));
	}
	request("");
	add_qp(far);
	say_rc("reject with 149", rdma_reject(far, data, 149));
	param.private_data_len = 196;
	say_rc("accept with 196", rdma_accept(far, &param));
	both("accepted");
}

static void
numbers(void)
{
	struct rdma_conn_param param = param_of("");

	listen_at(RDMA_PS_TCP);
	param.responder_resources = 200;
	say_rc("connect with 200 responder resources", rdma_connect(near, &param));
	param.responder_resources = 1;
	param.initiator_depth = 200;
	say_rc("connect with initiator depth 200", rdma_connect(near, &param));
	say_no_cm_event("then");
}

static void
backlog(void)
{
	struct rdma_cm_id *many[6];
	struct rdma_conn_param param = param_of("");
	struct rdma_cm_event *e;
	int i, asked = 0, refused = 0;

	cm_open();
	listener = make_id(RDMA_PS_TCP);
	MUST(bind_to(listener, own_address, CM_PORT) == 0);
	say_rc("listen with backlog 2", rdma_listen(listener, 2));
	for (i = 0; i < 6; i++) {
		many[i] = make_id(RDMA_PS_TCP);
		resolve(many[i], CM_PORT);
		add_qp(many[i]);
	}
	for (i = 0; i < 2; i++)
		MUST(rdma_connect(many[i], &param) == 0);
	for (i = 0; i < 2; i++) {
		MUST(rdma_get_cm_event(channel, &e) == 0);
		asked += e->event == RDMA_CM_EVENT_CONNECT_REQUEST;
		refused += e->event == RDMA_CM_EVENT_REJECTED;
		rdma_ack_cm_event(e);
	}
	say("two", "%d asked, %d refused", asked, refused);
}

/* A program that modifies its queue pairs by itself. */
static void
own_qp(void)
{
	struct ibv_qp_attr attr;
	int mask;
	struct rdma_conn_param param = param_of("");

	listen_at(RDMA_PS_TCP);
	request("");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT};
	say_rc("INIT", rdma_init_qp_attr(far, &attr, &mask));
	say("INIT", "%#x, access %#x", mask, attr.qp_access_flags & ALL_ACCESS);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR};
	say_rc("RTR", rdma_init_qp_attr(far, &attr, &mask));
	say("RTR", "%#x, mtu %d, peer %d, rnr timer %u, dest rd %u", mask, attr.path_mtu > 0,
		attr.dest_qp_num == near->qp->qp_num, attr.min_rnr_timer, attr.max_dest_rd_atomic);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
	say_rc("RTS", rdma_init_qp_attr(far, &attr, &mask));
	say("RTS", "%#x, retry %u, rnr %u, rd %u", mask, attr.retry_cnt, attr.rnr_retry,
		attr.max_rd_atomic);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_ERR};
	say_rc("ERR", rdma_init_qp_attr(far, &attr, &mask));
	param.qp_num = 0x1234;
	say_rc("accept", rdma_accept(far, &param));
	both("accepted");
}

static void
datagrams(void)
{
	struct rdma_conn_param param = param_of("hi");
	struct rdma_cm_event *e;

	listen_at(RDMA_PS_UDP);
	say_rc("connect", rdma_connect(near, &param));
	e = say_cm_event("request");
	far = e->id;
	say("request", "private %.2s, length %d, QP type %d",
		(const char *)e->param.ud.private_data, e->param.ud.private_data_len, far->qp_type);
	rdma_ack_cm_event(e);
	add_qp(far);
	param = param_of("yo");
	param.qp_num = far->qp->qp_num;
	say_rc("accept", rdma_accept(far, &param));
	e = say_cm_event("accepted");
	say("accepted", "private %.2s, length %d, QP %d, Q_Key %#x, global %d",
		(const char *)e->param.ud.private_data, e->param.ud.private_data_len,
		e->param.ud.qp_num == far->qp->qp_num, e->param.ud.qkey,
		e->param.ud.ah_attr.is_global);
	rdma_ack_cm_event(e);
	say("queue pairs", "%s %s", state_name(state_of(near->qp)), state_name(state_of(far->qp)));
	say_rc("accept twice", rdma_accept(far, &param));
	say_rc("connect twice", rdma_connect(near, &param));
	say_rc("disconnect", rdma_disconnect(near));
	say_no_cm_event("then");
}

static void
groups(void)
{
	struct sockaddr_in group, no_group;
	struct rdma_cm_id *a;
	struct rdma_cm_event *e;

	cm_open();
	group = address_of("239.1.2.9", 0);
	no_group = address_of(own_address, 0);
	a = make_id(RDMA_PS_UDP);
	say_rc("join before it is bound", rdma_join_multicast(a, (struct sockaddr *)&group, NULL));
	MUST(bind_to(a, own_address, 0) == 0);
	add_qp(a);
	say_rc("join", rdma_join_multicast(a, (struct sockaddr *)&group, &group));
	e = say_cm_event("join");
	say("join", "QP %#x, Q_Key %#x, global %d, context %d", e->param.ud.qp_num,
		e->param.ud.qkey, e->param.ud.ah_attr.is_global,
		e->param.ud.private_data == &group);
	rdma_ack_cm_event(e);
	say_rc("join no group", rdma_join_multicast(a, (struct sockaddr *)&no_group, NULL));
	say_no_cm_event("join no group");
	no_group.sin_addr.s_addr ^= htonl(1);
	say_rc("leave another", rdma_leave_multicast(a, (struct sockaddr *)&no_group));
	say_rc("leave", rdma_leave_multicast(a, (struct sockaddr *)&group));
	say_rc("leave twice", rdma_leave_multicast(a, (struct sockaddr *)&group));
}

const struct same_case connection_cases[] = {
	{"connection", connection},
	{"rejected", rejected},
	{"private data", lengths},
	{"numbers of READs", numbers},
	{"backlog", backlog},
	{"own queue pair", own_qp},
	{"datagrams by rdma_cm", datagrams},
	{"groups by rdma_cm", groups},
	{0},
};
