/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Addresses of both families, destinations, and identifiers' queue pairs and multicast groups. */
#include "same_cm.h"

static int
bind6(struct rdma_cm_id *id, int port)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};

	return rdma_bind_addr(id, (struct sockaddr *)&a);
}

static int
only_its_family(struct rdma_cm_id *id)
{
	int yes = 1;

	return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof(yes));
}

static void
families(void)
{
	struct rdma_cm_id *four, *six;
	int which;

	cm_open();
	for (which = 0; which < 4; which++) {
		four = make_id(RDMA_PS_TCP);
		six = make_id(RDMA_PS_TCP);
		if (which & 1)
			say_rc("IPv6 alone", only_its_family(six));
		if (which & 2)
			say_rc("IPv4 alone", only_its_family(four));
		say_rc("IPv6", bind6(six, CM_PORT));
		say("and IPv4 at the same port", "%d", bind_to(four, "", CM_PORT) == 0);
		say_rc("gone", rdma_destroy_id(four));
		say_rc("gone", rdma_destroy_id(six));
	}
	six = make_id(RDMA_PS_TCP);
	say_rc("IPv6 listens", bind6(six, CM_PORT));
	say_rc("IPv6 listens", rdma_listen(six, 0));
	four = make_id(RDMA_PS_TCP);
	resolve(four, CM_PORT);
	add_qp(four);
	{
		struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

		say_rc("IPv4 connects", rdma_connect(four, &param));
		take("IPv4 connects");
	}
}

static void
resolve_to(const char *what, const char *text, int port)
{
	struct rdma_cm_id *id = make_id(RDMA_PS_TCP);
	struct sockaddr_in a = address_of(text, port);
	struct rdma_cm_event *e;
	int rc = rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, RESOLVE_MS);

	/* an error may come at once or by an event */
	if (rc == 0) {
		e = next_cm_event(what);
		say(what, "%s", e->event == RDMA_CM_EVENT_ADDR_RESOLVED ? "resolved" : "not");
		rdma_ack_cm_event(e);
	} else {
		say(what, "not");
	}
	say_rc("gone", rdma_destroy_id(id));
}

static void
destinations(void)
{
	cm_open();
	resolve_to("its own", own_address, CM_PORT);
	resolve_to("its own, port 0", own_address, 0);
	resolve_to("without a route", "198.18.0.77", CM_PORT);
}

static void
queue_pairs(void)
{
	struct rdma_cm_id *a;
	struct ibv_qp_init_attr init;
	struct ibv_pd *other;

	cm_open();
	a = make_id(RDMA_PS_TCP);
	resolve(a, CM_PORT);
	init = qp_init(IBV_QPT_UD);
	init.send_cq = init.recv_cq = NULL;
	say_rc("UD for TCP", rdma_create_qp(a, NULL, &init));
	init = qp_init(IBV_QPT_RC);
	MUST((other = ibv_alloc_pd(ctx)) != NULL);
	say_rc("of another open device", rdma_create_qp(a, other, &init));
	init.send_cq = init.recv_cq = NULL;
	say_rc("made", rdma_create_qp(a, NULL, &init));
	say("its state", "%s", state_name(state_of(a->qp)));
	say_rc("made twice", rdma_create_qp(a, NULL, &init));
	rdma_destroy_qp(a);
	say("gone", "%d", a->qp == NULL);
	add_qp(a);
	say("made again", "%d", a->qp != NULL);
	rdma_destroy_qp(a);
	say_rc("gone", rdma_destroy_id(a));
}

static void
groups(void)
{
	struct sockaddr_in group;
	struct rdma_cm_id *a;

	cm_open();
	group = address_of("239.1.2.10", 0);
	a = make_id(RDMA_PS_UDP);
	MUST(bind_to(a, own_address, 0) == 0);
	add_qp(a);
	say_rc("join", rdma_join_multicast(a, (struct sockaddr *)&group, NULL));
	take("join");
	say_rc("join twice", rdma_join_multicast(a, (struct sockaddr *)&group, NULL));
	take("join twice");
	say_rc("leave", rdma_leave_multicast(a, (struct sockaddr *)&group));
	say_rc("leave again", rdma_leave_multicast(a, (struct sockaddr *)&group));
	say_rc("leave a third time", rdma_leave_multicast(a, (struct sockaddr *)&group));
	say_rc("join again", rdma_join_multicast(a, (struct sockaddr *)&group, NULL));
	rdma_destroy_qp(a);
	say_rc("gone", rdma_destroy_id(a));
	a = make_id(RDMA_PS_TCP);
	MUST(bind_to(a, own_address, 0) == 0);
	say_rc("of TCP", rdma_join_multicast(a, (struct sockaddr *)&group, NULL));
}

const struct same_case address_cases[] = {
	{"families of listeners", families},
	{"destinations", destinations},
	{"queue pairs of identifiers", queue_pairs},
	{"groups twice", groups},
	{0},
};
