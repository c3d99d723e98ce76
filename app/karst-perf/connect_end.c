/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What both ends of a connection do: queue pairs, private data, events. */
#include "connect.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

#include "karst_session.h"

#define CQ_ENTRIES 16u
#define QPNS       0xffff00u /* for both ends */

uint64_t
connect_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int
connect_fault(struct connect_end *e, const char *what, int rc)
{
	if (e->errors++ == 0)
		fprintf(stderr, "karst-perf: %s: %s: %s\n", e->name, what, karst_why());
	return rc;
}

int
connect_end_up(struct connect_end *e)
{
	int rc = karst_rdmacm_create_channel(e->ctx, &e->ch);

	if (rc == 0 && e->with_qps)
		rc = karst_alloc_pd(e->ctx, &e->pd);
	if (rc == 0 && e->with_qps)
		rc = karst_create_cq(e->ctx, CQ_ENTRIES, NULL, NULL, &e->cq);
	return rc == 0 ? 0 : connect_fault(e, "its objects", rc);
}

void
connect_end_down(struct connect_end *e)
{
	if (e->ch != NULL)
		karst_rdmacm_destroy_channel(e->ch);
	if (e->cq != NULL)
		karst_destroy_cq(e->cq);
	if (e->pd != NULL)
		karst_dealloc_pd(e->pd);
	e->ch = NULL;
	e->cq = NULL;
	e->pd = NULL;
}

/* Waits up to @ms for an event, and attends to the session meanwhile, as nobody else does.
 * @return whether there may be one. */
static bool
end_wait(struct connect_end *e, int ms)
{
	struct pollfd p[2] = {{.fd = e->ch->fd, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
	uint64_t now = connect_now_ns(), until = now + (uint64_t)ms * 1000000;
	int n;

	if (e->session != NULL)
		p[1].fd = karst_session_fd(e->session);
	for (; now < until; now = connect_now_ns()) {
		n = poll(p, KARST_DIM(p), (int)((until - now + 999999) / 1000000));
		if (n <= 0)
			return n < 0 && errno == EINTR;
		if (p[1].revents != 0)
			karst_session_attend(e->session);
		if (p[0].revents != 0)
			return true;
	}
	return false;
}

enum connect_event
connect_next(struct connect_end *e, int ms, struct karst_rdmacm_event *event)
{
	int rc = karst_rdmacm_get_event(e->ch, event);

	if (rc == -EAGAIN && end_wait(e, ms))
		rc = karst_rdmacm_get_event(e->ch, event);
	if (rc == 0)
		return CONNECT_EVENT;
	if (rc == -EAGAIN)
		return CONNECT_NOTHING;
	connect_fault(e, "its events", rc);
	return CONNECT_BROKEN;
}

/* --- queue pairs --- */

static int
end_modify(struct connect_end *e, struct connect_conn *c, enum karst_qp_state state)
{
	struct karst_qp_attr attr;
	unsigned int mask;
	int rc = karst_rdmacm_init_qp_attr(e->ctx, c->id, state, &attr, &mask);

	if (rc == 0)
		rc = karst_modify_qp(c->qp, &attr, mask);
	return rc == 0 ? 0 : connect_fault(e, "its queue pair", rc);
}

int
connect_make_qp(
	struct connect_end *e, struct connect_conn *c, struct karst_rdmacm_conn_param *param)
{
	struct karst_qp_init_attr init = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.qp_type = KARST_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};
	int rc;

	if (!e->with_qps) {
		param->qp_num = e->next_qpn;
		e->next_qpn = e->next_qpn + 2 < QPNS ? e->next_qpn + 2 : e->next_qpn % 2 + 2;
		return 0;
	}
	rc = karst_create_qp(e->pd, &init, &c->qp);
	if (rc != 0) {
		c->qp = NULL;
		return connect_fault(e, "a queue pair", rc);
	}
	param->qp_num = c->qp->qp_num;
	return end_modify(e, c, KARST_QPS_INIT);
}

int
connect_open_qp(struct connect_end *e, struct connect_conn *c)
{
	int rc;

	if (c->qp == NULL)
		return 0;
	rc = end_modify(e, c, KARST_QPS_RTR);
	return rc == 0 ? end_modify(e, c, KARST_QPS_RTS) : rc;
}

void
connect_drop(struct connect_end *e, struct connect_conn *c)
{
	int rc = c->id != 0 ? karst_rdmacm_destroy_id(e->ctx, c->id, NULL) : 0;

	if (rc == 0 && c->qp != NULL)
		rc = karst_destroy_qp(c->qp);
	if (rc != 0)
		connect_fault(e, "the end of a connection", rc);
	c->id = 0;
	c->qp = NULL;
}

/* --- private data --- */

static uint32_t
size_of(bool request)
{
	return request ? CONNECT_REQ_BYTES : CONNECT_REP_BYTES;
}

/* splitmix64; the data differs for each connection, direction and seed. */
static void
end_fill(uint64_t seed, uint32_t number, bool request, uint8_t *to)
{
	uint64_t state = seed ^ (uint64_t)number << 1 ^ (uint64_t)request << 63, x;
	uint32_t i, n = size_of(request);

	memcpy(to, &number, sizeof(number));
	for (i = sizeof(number); i < n; i++) {
		x = state += 0x9e3779b97f4a7c15ull;
		x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
		to[i] = (uint8_t)(x >> 56);
	}
}

void
connect_fill(const struct connect_end *e, uint32_t number, bool request,
	struct karst_rdmacm_conn_param *p)
{
	*p = (struct karst_rdmacm_conn_param){
		.private_data_len = (uint8_t)size_of(request),
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	end_fill(e->seed, number, request, p->private_data);
}

bool
connect_check(struct connect_end *e, bool request, const struct karst_rdmacm_conn_param *p,
	uint32_t *number)
{
	uint8_t want[KARST_RDMACM_PRIVATE_DATA];

	memcpy(number, p->private_data, sizeof(*number));
	end_fill(e->seed, *number, request, want);
	if (p->private_data_len == size_of(request) &&
		memcmp(p->private_data, want, size_of(request)) == 0)
		return true;
	e->wrong++;
	return false;
}
