/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program that uses librdmacm, for gsi.py: gsi-program HOW IP PORT
 *
 *   accept   listens, and accepts each request with a queue pair and 196 bytes of private data
 *   hold     listens, reads the events of requests, and does not answer
 *   deaf     listens with a backlog of BACKLOG, and reads no events
 *   connect  connects with 56 bytes of private data, disconnects, and ends
 *
 * Before it sends private data it tries more than the message can hold, which must be refused.  It
 * prints each event as a line.  A program that listens does so until it is killed.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include "must.h"

#define BACKLOG     8
#define REQ_PRIVATE 56
#define REP_PRIVATE 196
#define REJ_PRIVATE 148
#define RESOLVE_MS  120000

static uint8_t bytes[256];

static void
refused(int ret, const char *what)
{
	if (ret == -1 && errno == EINVAL)
		return;
	printf("%s: %d, errno %d, not EINVAL\n", what, ret, errno);
	exit(1);
}

static void
make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};

	must(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
}

static struct rdma_conn_param
params(unsigned int private_len)
{
	return (struct rdma_conn_param){.private_data = bytes,
		.private_data_len = (uint8_t)private_len,
		.responder_resources = 4,
		.initiator_depth = 4,
		.retry_count = 7,
		.rnr_retry_count = 7};
}

static void
accept_request(struct rdma_cm_id *id)
{
	struct rdma_conn_param p = params(REP_PRIVATE + 1);

	/* before the queue pair exists: the calls that fail must not change it */
	refused(rdma_accept(id, &p), "too much for a REP");
	refused(rdma_reject(id, bytes, REJ_PRIVATE + 1), "too much for a REJ");
	make_qp(id);
	p = params(REP_PRIVATE);
	must(rdma_accept(id, &p), "rdma_accept");
}

/* Handles one event.  @return false: the program is to end */
static bool
handle(struct rdma_event_channel *channel, bool accepts, bool connects)
{
	struct rdma_conn_param p = params(REQ_PRIVATE + 1);
	struct rdma_cm_event *event;
	enum rdma_cm_event_type what;
	struct rdma_cm_id *id;

	must(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	what = event->event;
	id = event->id;
	printf("%s %d\n", rdma_event_str(what), event->status);
	rdma_ack_cm_event(event);
	switch (what) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		if (accepts)
			accept_request(id);
		return true;
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		must(rdma_resolve_route(id, RESOLVE_MS), "rdma_resolve_route");
		return true;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		refused(rdma_connect(id, &p), "too much for a REQ");
		make_qp(id);
		p = params(REQ_PRIVATE);
		must(rdma_connect(id, &p), "rdma_connect");
		return true;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (connects)
			must(rdma_disconnect(id), "rdma_disconnect");
		return true;
	case RDMA_CM_EVENT_DISCONNECTED:
		if (connects)
			return false;
		rdma_destroy_qp(id);
		must(rdma_destroy_id(id), "rdma_destroy_id");
		return true;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return true;
	default: /* the connection was not established */
		if (connects)
			exit(1);
		if (id->qp != NULL)
			rdma_destroy_qp(id);
		rdma_destroy_id(id);
		return true;
	}
}

int
main(int argc, char **argv)
{
	struct sockaddr_in addr = {.sin_family = AF_INET};
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	unsigned int i;

	if (argc != 4)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i ^ 0xa5);
	inet_pton(AF_INET, argv[2], &addr.sin_addr);
	addr.sin_port = htons((uint16_t)atoi(argv[3]));
	channel = rdma_create_event_channel();
	must(channel == NULL, "rdma_create_event_channel");
	must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	if (strcmp(argv[1], "connect") == 0) {
		must(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, RESOLVE_MS),
			"rdma_resolve_addr");
	} else {
		must(rdma_bind_addr(id, (struct sockaddr *)&addr), "rdma_bind_addr");
		must(rdma_listen(id, strcmp(argv[1], "deaf") == 0 ? BACKLOG : 0), "rdma_listen");
		puts("listening");
	}
	while (strcmp(argv[1], "deaf") == 0)
		pause();
	while (handle(channel, strcmp(argv[1], "accept") == 0, strcmp(argv[1], "connect") == 0))
		;
	return 0;
}
