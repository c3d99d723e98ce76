/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Functions that the cases of rdma_cm share: see same_cm.h. */
#include "same_cm.h"

#include <poll.h>

struct rdma_event_channel *channel;

void
cm_open(void)
{
	bed_open();
	MUST((channel = rdma_create_event_channel()) != NULL);
}

struct rdma_cm_id *
make_id(enum rdma_port_space space)
{
	struct rdma_cm_id *id = NULL;

	MUST(rdma_create_id(channel, &id, channel, space) == 0);
	return id;
}

struct sockaddr_in
address_of(const char *text, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	if (*text != '\0')
		MUST(inet_pton(AF_INET, text, &a.sin_addr) == 1);
	return a;
}

int
bind_to(struct rdma_cm_id *id, const char *text, int port)
{
	struct sockaddr_in a = address_of(text, port);

	return rdma_bind_addr(id, (struct sockaddr *)&a);
}

struct rdma_cm_event *
next_cm_event(const char *what)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *e;

	if (poll(&p, 1, 20000) <= 0)
		fail(what);
	MUST(rdma_get_cm_event(channel, &e) == 0);
	return e;
}

struct rdma_cm_event *
say_cm_event(const char *what)
{
	struct rdma_cm_event *e = next_cm_event(what);

	say(what, "%s, status %d", rdma_event_str(e->event), e->status);
	return e;
}

void
take(const char *what)
{
	rdma_ack_cm_event(say_cm_event(what));
}

void
say_no_cm_event(const char *what)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};

	if (poll(&p, 1, 100) > 0)
		take(what);
	else
		say(what, "no event");
}

static void
expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e = next_cm_event(rdma_event_str(type));

	if (e->event != type)
		fail(rdma_event_str(e->event));
	rdma_ack_cm_event(e);
}

void
resolve(struct rdma_cm_id *id, int port)
{
	struct sockaddr_in a = address_of(own_address, port);

	MUST(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, RESOLVE_MS) == 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(id, RESOLVE_MS) == 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

void
add_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = qp_init(id->qp_type);

	init.send_cq = NULL;
	init.recv_cq = NULL;
	MUST(rdma_create_qp(id, NULL, &init) == 0);
}
