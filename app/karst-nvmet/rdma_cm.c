/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Connections: requests, accepting or rejecting them, and their end. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>

#include "rdma.h"

#define BACKLOG      128
#define CLOSE_MS     2000u /* time limit for the peer's answer */
#define RNR_FOR_EVER 7
#define READS        16    /* at a time: a lost one is repeated together with all behind it */
#define ACK_UNACKED  1024u /* number of events that are acknowledged together */

int
nr_listen(struct nr_server *server, const char *address)
{
	struct addrinfo hints = {
		.ai_flags = AI_PASSIVE | AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
	const char *port = server->config.port;
	struct addrinfo *info;
	struct rdma_cm_id *id;
	int rc = getaddrinfo(address, port, &hints, &info);

	if (rc != 0) {
		fprintf(stderr,
			"karst-nvmet: --address '%s': %s; an IPv4 or IPv6 address is allowed\n",
			address, gai_strerror(rc));
		return -EINVAL;
	}
	if (rdma_create_id(server->channel, &id, NULL, RDMA_PS_TCP) != 0) {
		rc = -errno;
		freeaddrinfo(info);
		fprintf(stderr, "karst-nvmet: rdma_create_id: %s\n", strerror(-rc));
		return rc;
	}
	if (rdma_bind_addr(id, info->ai_addr) != 0 || rdma_listen(id, BACKLOG) != 0) {
		rc = -errno;
		fprintf(stderr, "karst-nvmet: cannot listen at %s, port %s: %s\n", address, port,
			strerror(-rc));
		rdma_destroy_id(id);
	} else {
		server->listeners[server->nlisteners++] = id;
		rc = 0;
	}
	freeaddrinfo(info);
	return rc;
}

static void
cm_reject(struct nr_server *server, struct rdma_cm_id *id, enum nvme_rdma_reject why)
{
	uint8_t data[NVME_RDMA_REJ_LEN] = {0};

	nvme_put16(data + RDMA_REJ_STATUS, (uint16_t)why);
	server->counters.rejected++;
	nr_say(server, "a connection is rejected, status %d", why);
	rdma_reject(id, data, sizeof(data));
	rdma_destroy_id(id);
}

static void
tell_address(struct nr_queue *queue)
{
	const struct sockaddr *local = rdma_get_local_addr(queue->id);
	socklen_t len = local->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						     : sizeof(struct sockaddr_in);

	queue->core.ipv6 = local->sa_family == AF_INET6;
	if (getnameinfo(local, len, queue->core.address, sizeof(queue->core.address), NULL, 0,
		    NI_NUMERICHOST) != 0)
		queue->core.address[0] = '\0';
	snprintf(queue->core.port, sizeof(queue->core.port), "%s", queue->server->config.port);
}

static uint8_t
cm_lesser(uint8_t a, int b)
{
	return b < a ? (uint8_t)b : a;
}

static int
accept_queue(struct nr_queue *queue, const struct rdma_conn_param *asked)
{
	const struct ibv_device_attr *attr = &queue->device->attr;
	uint8_t timeout = (uint8_t)queue->server->config.ack_timeout;
	uint8_t data[NVME_RDMA_PRIV_LEN] = {0};
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = sizeof(data),
		.responder_resources = cm_lesser(asked->responder_resources, attr->max_qp_rd_atom),
		.initiator_depth = cm_lesser(
			cm_lesser(asked->initiator_depth, attr->max_qp_init_rd_atom), READS),
		.flow_control = 1,
		.rnr_retry_count = RNR_FOR_EVER,
	};

	if (timeout != 0 &&
		rdma_set_option(queue->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
			sizeof(timeout)) != 0)
		return -errno;
	nvme_put16(data + RDMA_REP_CRQSIZE, queue->core.max_size);
	return rdma_accept(queue->id, &param) != 0 ? -errno : 0;
}

/* Adds @n, which is 1 or -1, if it is an admin queue. */
static void
count_admin(struct nr_queue *queue, int n)
{
	if (queue->core.qid != 0)
		return;
	queue->host->nadmin += (uint32_t)n;
	queue->server->nadmin += (uint32_t)n;
}

static void
connect_request(
	struct nr_server *server, struct rdma_cm_id *id, const struct rdma_conn_param *asked)
{
	const struct nt_config *config = &server->config.target;
	enum nvme_rdma_reject why;
	struct nr_queue *queue;
	uint16_t qid, entries;

	why = nt_request_parse(
		config, asked->private_data, asked->private_data_len, &qid, &entries);
	/* a request whose event was queued before the listener was destroyed */
	if (server->ending)
		why = NVME_RDMA_NO_RESOURCES;
	if (why == NVME_RDMA_ACCEPT && server->nqueues >= config->max_ctrls * (config->max_io + 1))
		why = NVME_RDMA_NO_RESOURCES;
	if (why == NVME_RDMA_ACCEPT && !nr_host_admits(server, rdma_get_peer_addr(id), qid))
		why = NVME_RDMA_NO_RESOURCES;
	if (why != NVME_RDMA_ACCEPT) {
		cm_reject(server, id, why);
		return;
	}
	queue = nr_queue_make(server, id, qid, entries);
	if (queue == NULL) {
		cm_reject(server, id, NVME_RDMA_NO_RESOURCES);
		return;
	}
	if (nr_post_slots(queue) != 0 || accept_queue(queue, asked) != 0) {
		nr_queue_free(queue);
		cm_reject(server, id, NVME_RDMA_NO_RESOURCES);
		return;
	}
	id->context = queue;
	tell_address(queue);
	queue->deadline_ms = server->now_ms + NT_CONNECT_MS;
	LIST_INSERT_HEAD(&server->queues, queue, next);
	server->nqueues++;
	count_admin(queue, 1);
	server->counters.connections++;
	nr_say(server, "queue %u of %u entries: a connection to %s", qid, entries,
		queue->core.address);
}

void
nr_queue_close(struct nr_queue *queue, const char *why)
{
	if (queue->state == NR_CLOSING)
		return;
	nr_say(queue->server, "queue %u ends: %s", queue->core.qid, why);
	queue->state = NR_CLOSING;
	queue->deadline_ms = queue->server->now_ms + CLOSE_MS;
	queue->server->nclosing++;
	count_admin(queue, -1);
	nt_queue_gone(&queue->core);
	if (rdma_disconnect(queue->id) != 0)
		queue->peer_gone = true;
}

static void
queue_free_closed(struct nr_server *server, struct nr_queue *queue)
{
	struct rdma_cm_id *id = queue->id;

	LIST_REMOVE(queue, next);
	server->nqueues--;
	server->nclosing--;
	if (queue->ready)
		STAILQ_REMOVE(&server->ready, queue, nr_queue, next_ready);
	nr_queue_free(queue);
	rdma_destroy_id(id);
}

/* Acknowledges the events of a long-lived queue from time to time. */
static void
ack_events(struct nr_queue *queue)
{
	if (queue->unacked < ACK_UNACKED)
		return;
	ibv_ack_cq_events(queue->cq, queue->unacked);
	queue->unacked = 0;
}

void
nr_sweep(struct nr_server *server)
{
	struct nr_queue *queue, *next;

	for (queue = LIST_FIRST(&server->queues); queue != NULL; queue = next) {
		bool late = server->now_ms >= queue->deadline_ms;

		next = LIST_NEXT(queue, next);
		ack_events(queue);
		if (queue->state != NR_CLOSING && queue->core.ctrl == NULL && late)
			nr_queue_close(queue, "no Connect came");
		if (queue->state == NR_CLOSING && queue->core.working == 0 &&
			(queue->peer_gone || late))
			queue_free_closed(server, queue);
	}
}

static void
listener_lost(struct nr_server *server)
{
	fprintf(stderr, "karst-nvmet: the device is gone\n");
	server->fatal = true;
}

static void
queue_event(struct nr_server *server, struct nr_queue *queue, const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ESTABLISHED:
		if (queue->state == NR_ACCEPTED)
			queue->state = NR_ESTABLISHED;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		nr_queue_close(queue, rdma_event_str(event->event));
		queue->peer_gone = true;
		break;
	default: /* TIMEWAIT_EXIT, ADDR_CHANGE */
		break;
	}
}

void
nr_cm_event(struct nr_server *server)
{
	uint8_t data[NVME_RDMA_PRIV_LEN];
	struct rdma_cm_event *event, copy;

	if (rdma_get_cm_event(server->channel, &event) != 0) {
		if (errno != EAGAIN && errno != EINTR)
			listener_lost(server);
		return;
	}
	/* Acknowledged at once, so that identifiers can be destroyed; its contents are copied
	 * before. */
	copy = *event;
	if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		if (copy.param.conn.private_data_len >= sizeof(data) &&
			copy.param.conn.private_data != NULL)
			memcpy(data, copy.param.conn.private_data, sizeof(data));
		copy.param.conn.private_data = data;
	}
	rdma_ack_cm_event(event);
	if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST)
		connect_request(server, copy.id, &copy.param.conn);
	else if (copy.id != NULL && copy.id->context != NULL)
		queue_event(server, copy.id->context, &copy);
	else if (copy.event == RDMA_CM_EVENT_DEVICE_REMOVAL)
		listener_lost(server);
}
