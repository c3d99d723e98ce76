/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Identifiers of rdma_cm: addresses, ports, options, and calls in states that do not allow them. */
#include "same_cm.h"

#include <fcntl.h>

static void
bound(void)
{
	struct rdma_conn_param param = {.qp_num = 5, .responder_resources = 1};
	struct rdma_cm_id *a, *b;

	cm_open();
	a = make_id(RDMA_PS_TCP);
	b = make_id(RDMA_PS_TCP);
	say("a new one", "%d %d %d", a->verbs == NULL, a->qp == NULL, a->channel == channel);
	say_rc("bound", bind_to(a, own_address, CM_PORT));
	say("its fields", "device %d, port %d, address %d", a->verbs != NULL,
		ntohs(rdma_get_src_port(a)), rdma_get_local_addr(a)->sa_family);
	say_rc("bound twice", bind_to(a, own_address, CM_PORT + 1));
	say_rc("the same port", bind_to(b, own_address, CM_PORT));
	say_rc("the same port, any address", bind_to(b, "", CM_PORT));
	say_rc("no address of this host", bind_to(b, "198.18.0.77", CM_PORT + 1));
	say_rc("any address", bind_to(b, "", 0));
	say("its fields", "device %d, port %d", b->verbs != NULL, rdma_get_src_port(b) != 0);
	say_rc("gone", rdma_destroy_id(a));
	a = make_id(RDMA_PS_TCP);
	say_rc("the port again", bind_to(a, own_address, CM_PORT));
	say_rc("listens", rdma_listen(a, 1));
	say_rc("listens twice", rdma_listen(a, 1));
	say_rc("bound while it listens", bind_to(a, own_address, CM_PORT + 3));
	say_rc("connects while it listens", rdma_connect(a, &param));
	say_rc("resolves while it listens", rdma_resolve_route(a, RESOLVE_MS));
	say_rc("disconnects while it listens", rdma_disconnect(a));
	say_rc("accepts while it listens", rdma_accept(a, &param));
	say_rc("rejects while it listens", rdma_reject(a, NULL, 0));
	say_no_cm_event("of all that");
}

static void
families(void)
{
	struct rdma_cm_id *a;
	struct sockaddr_in six = {.sin_family = AF_UNIX};
	struct sockaddr_in group = address_of("239.1.2.3", CM_PORT);

	cm_open();
	a = make_id(RDMA_PS_TCP);
	say_rc("a family of others", rdma_bind_addr(a, (struct sockaddr *)&six));
	say_rc("a group", rdma_bind_addr(a, (struct sockaddr *)&group));
	say("port space 77", "%d", rdma_create_id(channel, &a, NULL, 77) == 0);
	say("of no channel", "%d", rdma_create_id(NULL, &a, NULL, RDMA_PS_TCP) == 0);
}

static void
fresh(void)
{
	struct rdma_cm_id *a;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask;

	cm_open();
	a = make_id(RDMA_PS_TCP);
	/* without rdma_connect, _accept, _resolve_route, _create_qp, in which librdmacm 44
	 * crashes */
	say_rc("reject", rdma_reject(a, NULL, 0));
	say_rc("disconnect", rdma_disconnect(a));
	say_rc("establish", rdma_establish(a));
	say_rc("notify", rdma_notify(a, IBV_EVENT_COMM_EST));
	say_rc("init_qp_attr", rdma_init_qp_attr(a, &attr, &mask));
	say_rc("listen", rdma_listen(a, 1));
	say("listens at a port", "%d", rdma_get_src_port(a) != 0);
	say_no_cm_event("of all that");
	say_rc("destroyed", rdma_destroy_id(a));
}

static void
resolving(void)
{
	struct rdma_cm_id *a;
	struct sockaddr_in to, from, bad = {.sin_family = AF_UNIX};
	struct sockaddr_in foreign = address_of("198.18.0.77", 0), zero = address_of("", CM_PORT);
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask = 0;

	cm_open();
	to = address_of(own_address, CM_PORT);
	from = address_of(own_address, 0);
	a = make_id(RDMA_PS_TCP);
	say_rc("a family of others",
		rdma_resolve_addr(a, NULL, (struct sockaddr *)&bad, RESOLVE_MS));
	say_rc("from an address of others",
		rdma_resolve_addr(
			a, (struct sockaddr *)&foreign, (struct sockaddr *)&to, RESOLVE_MS));
	say_rc("destroyed", rdma_destroy_id(a));
	a = make_id(RDMA_PS_TCP);
	say_rc("from its own address",
		rdma_resolve_addr(a, (struct sockaddr *)&from, (struct sockaddr *)&to, RESOLVE_MS));
	take("from its own address");
	say_rc("destroyed", rdma_destroy_id(a));
	a = make_id(RDMA_PS_TCP);
	say_rc("the address", rdma_resolve_addr(a, NULL, (struct sockaddr *)&to, RESOLVE_MS));
	take("the address");
	say("its fields", "device %d, own port %d, peer's port %d, QP type %d", a->verbs != NULL,
		rdma_get_src_port(a) != 0, ntohs(rdma_get_dst_port(a)), a->qp_type);
	say_rc("connect before the route", rdma_connect(a, &param));
	say_rc("listen", rdma_listen(a, 1));
	say_rc("init_qp_attr", rdma_init_qp_attr(a, &attr, &mask));
	say("init_qp_attr", "%#x, port %u, pkey %u", mask, attr.port_num, attr.pkey_index);
	/* a new identifier: Linux may have changed the state of this one in a call that failed */
	say_rc("destroyed", rdma_destroy_id(a));
	a = make_id(RDMA_PS_TCP);
	MUST(rdma_resolve_addr(a, NULL, (struct sockaddr *)&to, RESOLVE_MS) == 0);
	take("the address again");
	say_rc("the route", rdma_resolve_route(a, RESOLVE_MS));
	take("the route");
	say("its fields", "paths %d", a->route.num_paths);
	say_rc("the route twice", rdma_resolve_route(a, RESOLVE_MS));
	say_rc("the address then", rdma_resolve_addr(a, NULL, (struct sockaddr *)&to, RESOLVE_MS));
	say_rc("disconnect", rdma_disconnect(a));
	say_rc("accept", rdma_accept(a, &param));
	param.qp_num = 5; /* any number: only the program knows what it means */
	say_rc("connect with a number", rdma_connect(a, &param));
	take("connect with a number");
	say_rc("destroyed", rdma_destroy_id(a));
	a = make_id(RDMA_PS_TCP);
	say_rc("any address", rdma_resolve_addr(a, NULL, (struct sockaddr *)&zero, RESOLVE_MS));
	take("any address");
}

static void
options(void)
{
	struct rdma_cm_id *a, *b;
	uint8_t tos = 32, timeout = 14, on = 1, large = 255;
	int yes = 1;

	cm_open();
	a = make_id(RDMA_PS_TCP);
	b = make_id(RDMA_PS_TCP);
	say_rc("TOS", rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
	say_rc("TOS of 4 bytes", rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &yes, 4));
	say_rc("timeout",
		rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
	say_rc("timeout 255",
		rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &large, 1));
	say_rc("timeout of 4 bytes",
		rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &yes, 4));
	say_rc("reuse of 1 byte",
		rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, 1));
	say_rc("reuse", rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, 4));
	say_rc("bound", bind_to(a, own_address, CM_PORT));
	say_rc("the same port, one reuses", bind_to(b, own_address, CM_PORT));
	say_rc("reuse", rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, 4));
	say_rc("the same port, both reuse", bind_to(b, own_address, CM_PORT));
	say_rc("one listens", rdma_listen(a, 1));
	say_rc("both listen", rdma_listen(b, 1));
	say_rc("reuse when bound",
		rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, 4));
	say_rc("AFONLY when bound",
		rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, 4));
	say_rc("TOS when bound", rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1));
	say_rc("an unknown option", rdma_set_option(a, RDMA_OPTION_ID, 77, &yes, 4));
	say_rc("an unknown level", rdma_set_option(a, 77, RDMA_OPTION_ID_TOS, &tos, 1));
	a = make_id(RDMA_PS_UDP);
	say_rc("timeout, UDP",
		rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
	say_rc("AFONLY, IPv4", rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, 4));
	say_rc("UDP and TCP have ports of their own", bind_to(a, own_address, CM_PORT));
}

static void
nobody(void)
{
	struct rdma_cm_id *a;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_event *e;

	cm_open();
	a = make_id(RDMA_PS_TCP);
	resolve(a, CM_PORT + 5);
	add_qp(a);
	say_rc("connect", rdma_connect(a, &param));
	say_rc("connect twice", rdma_connect(a, &param));
	take("connect");
	say("queue pair", "%s", state_name(state_of(a->qp)));
	say_rc("connect after it", rdma_connect(a, &param));
	say_rc("disconnect after it", rdma_disconnect(a));
	say_rc("resolve the route after it", rdma_resolve_route(a, RESOLVE_MS));
	MUST(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	say_rc("event without waiting", rdma_get_cm_event(channel, &e));
}

/* An identifier migrates to another channel, and its events with it. */
static void
migrated(void)
{
	struct rdma_cm_id *a;
	struct rdma_event_channel *other, *first = NULL;
	struct sockaddr_in to;

	cm_open();
	to = address_of(own_address, CM_PORT);
	a = make_id(RDMA_PS_TCP);
	MUST((other = rdma_create_event_channel()) != NULL);
	MUST(rdma_resolve_addr(a, NULL, (struct sockaddr *)&to, RESOLVE_MS) == 0);
	usleep(200000);
	say_rc("migrate", rdma_migrate_id(a, other));
	say("its field", "%d", a->channel == other);
	say_no_cm_event("at the first channel");
	first = channel;
	channel = other;
	take("at the other channel");
	say_rc("the route", rdma_resolve_route(a, RESOLVE_MS));
	take("the route");
	channel = first;
	say_no_cm_event("at the first channel");
	say_rc("to the same channel", rdma_migrate_id(a, other));
	say_rc("to one that waits by itself", rdma_migrate_id(a, NULL));
	say("its own channel", "%d", a->channel != NULL && a->channel != other);
	say_rc("destroyed", rdma_destroy_id(a));
}

const struct same_case id_cases[] = {
	{"bound", bound},
	{"families", families},
	{"a new identifier", fresh},
	{"resolving", resolving},
	{"options", options},
	{"connect to nobody", nobody},
	{"migrated", migrated},
	{0},
};
