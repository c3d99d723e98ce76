/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Connections of the host: how they begin and how they end. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>

#include "host.h"

#define RESOLVE_MS       120000
#define ACK_TIMEOUT      17 /* 537 ms: a target may have to wait for a processor */
#define CONSUMER_DEFINED 28 /* a REJ's reason: the target's program has one */
#define RETRIES          7
#define RNR_FOR_EVER     7

static void
make_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	nh_must(flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0, "fcntl");
}

void
nh_rdma_ended(struct nh_queue *queue, const char *why)
{
	if (!queue->host->may_end)
		nh_die("queue %u ends: %s", queue->qid, why);
	if (queue->ended == NULL)
		queue->ended = why;
}

/* Handles an event of a connection that is not waited for any more. */
static void
take_event(struct nh_queue *queue, const struct rdma_cm_event *event)
{
	const uint8_t *data = event->param.conn.private_data;

	switch (event->event) {
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		return;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		queue->gone = true;
		nh_rdma_ended(queue, rdma_event_str(event->event));
		return;
	case RDMA_CM_EVENT_REJECTED:
		queue->reject = -1;
		if (event->status == CONSUMER_DEFINED && data != NULL &&
			event->param.conn.private_data_len >= NVME_RDMA_REJ_LEN &&
			nvme_get16(data) == 0)
			queue->reject = nvme_get16(data + RDMA_REJ_STATUS);
		break;
	default:
		break;
	}
	queue->event = event->event;
	queue->happened = true;
}

void
nh_rdma_events(struct nh *h)
{
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(h->events, &event) == 0) {
		take_event(event->id->context, event);
		rdma_ack_cm_event(event);
	}
	nh_must(errno == EAGAIN || errno == EINTR, "rdma_get_cm_event");
}

static enum rdma_cm_event_type
wait_event(struct nh_queue *queue)
{
	struct nh *h = queue->host;
	struct pollfd fd = {.fd = h->events->fd, .events = POLLIN};

	while (!queue->happened) {
		if (poll(&fd, 1, (int)h->opt.patience_s * 1000) == 0)
			nh_die("queue %u: nothing happens for %u s", queue->qid, h->opt.patience_s);
		nh_rdma_events(h);
	}
	queue->happened = false;
	return queue->event;
}

static void
expect_event(struct nh_queue *queue, enum rdma_cm_event_type wanted)
{
	enum rdma_cm_event_type got = wait_event(queue);

	if (got != wanted)
		nh_die("queue %u: %s instead of %s", queue->qid, rdma_event_str(got),
			rdma_event_str(wanted));
}

static void
open_device(struct nh *h, struct ibv_context *verbs)
{
	h->verbs = verbs;
	nh_must((h->pd = ibv_alloc_pd(verbs)) != NULL, "ibv_alloc_pd");
	nh_must((h->channel = ibv_create_comp_channel(verbs)) != NULL, "ibv_create_comp_channel");
	make_nonblocking(h->channel->fd);
}

void
nh_rdma_resolve(struct nh_queue *queue)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *info;
	struct nh *h = queue->host;
	uint8_t timeout = ACK_TIMEOUT;
	int rc = getaddrinfo(h->opt.address, h->opt.port, &hints, &info);

	if (rc != 0)
		nh_die("%s, port %s: %s", h->opt.address, h->opt.port, gai_strerror(rc));
	if (h->events == NULL) {
		nh_must((h->events = rdma_create_event_channel()) != NULL,
			"rdma_create_event_channel");
		make_nonblocking(h->events->fd);
	}
	nh_must(rdma_create_id(h->events, &queue->id, queue, RDMA_PS_TCP) == 0, "rdma_create_id");
	nh_must(rdma_set_option(queue->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
			sizeof(timeout)) == 0,
		"RDMA_OPTION_ID_ACK_TIMEOUT");
	nh_must(rdma_resolve_addr(queue->id, NULL, info->ai_addr, RESOLVE_MS) == 0,
		"rdma_resolve_addr");
	freeaddrinfo(info);
	expect_event(queue, RDMA_CM_EVENT_ADDR_RESOLVED);
	nh_must(rdma_resolve_route(queue->id, RESOLVE_MS) == 0, "rdma_resolve_route");
	expect_event(queue, RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (h->verbs == NULL)
		open_device(h, queue->id->verbs);
	if (h->verbs != queue->id->verbs)
		nh_die("queue %u: another device", queue->qid);
}

bool
nh_rdma_connect(struct nh_queue *queue, const uint8_t *data, int *why)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = NVME_RDMA_PRIV_LEN,
		.flow_control = 1,
		.retry_count = RETRIES,
		.rnr_retry_count = RNR_FOR_EVER,
	};
	enum rdma_cm_event_type event;
	struct ibv_device_attr attr;

	nh_must(ibv_query_device(queue->host->verbs, &attr) == 0, "ibv_query_device");
	/* the target READs, the host does not */
	param.responder_resources =
		(uint8_t)(attr.max_qp_rd_atom < 255 ? attr.max_qp_rd_atom : 255);
	nh_must(rdma_connect(queue->id, &param) == 0, "rdma_connect");
	event = wait_event(queue);
	if (event == RDMA_CM_EVENT_REJECTED) {
		*why = queue->reject;
		return false;
	}
	if (event != RDMA_CM_EVENT_ESTABLISHED)
		nh_die("queue %u: %s", queue->qid, rdma_event_str(event));
	return true;
}

void
nh_rdma_disconnect(struct nh_queue *queue)
{
	struct nh *h = queue->host;
	struct pollfd fd = {.fd = h->events->fd, .events = POLLIN};
	bool may_end = h->may_end;

	h->may_end = true;
	nh_must(rdma_disconnect(queue->id) == 0 || queue->gone, "rdma_disconnect");
	while (!queue->gone) {
		if (poll(&fd, 1, (int)h->opt.patience_s * 1000) == 0)
			nh_die("queue %u: no answer to its end", queue->qid);
		nh_rdma_events(h);
	}
	h->may_end = may_end;
}
