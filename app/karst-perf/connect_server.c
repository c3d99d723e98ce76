/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The passive end: accepts every request and answers every disconnect. */
#include "connect.h"

#include <netinet/in.h>
#include <stdlib.h>

/* Interval of the checks whether the client has finished. */
#define SERVER_LOOK_MS 20

/* The uid of the listener's events; events of connections have the address of their connection. */
#define LISTENER 1u

int
connect_server_listen(struct connect_server *s)
{
	struct karst_context *ctx = s->end.ctx;
	struct karst_rdmacm_query q;
	int rc;

	rc = karst_rdmacm_create_id(
		s->end.ch, LISTENER, KARST_RDMACM_PS_TCP, KARST_QPT_RC, &s->listener);
	if (rc == 0)
		rc = karst_rdmacm_bind(ctx, s->listener, (struct sockaddr *)&s->at);
	if (rc == 0)
		rc = karst_rdmacm_listen(ctx, s->listener, 0);
	if (rc == 0)
		rc = karst_rdmacm_query(ctx, s->listener, &q);
	if (rc == 0)
		s->at = q.src;
	return rc == 0 ? 0 : connect_fault(&s->end, "its listener", rc);
}

static void
server_on_request(struct connect_server *s, const struct karst_rdmacm_event *ev)
{
	struct connect_end *e = &s->end;
	struct karst_rdmacm_conn_param param;
	struct connect_conn *c = calloc(1, sizeof(*c));
	int rc;

	e->begun++;
	if (c == NULL) {
		e->errors++;
		karst_rdmacm_destroy_id(e->ctx, ev->id, NULL);
		return;
	}
	c->id = ev->id;
	connect_check(e, true, &ev->conn, &c->number);
	connect_fill(e, c->number, false, &param);
	rc = connect_make_qp(e, c, &param);
	if (rc == 0)
		rc = connect_open_qp(e, c);
	if (rc == 0) {
		rc = karst_rdmacm_accept(e->ctx, c->id, (uint64_t)(uintptr_t)c, &param);
		if (rc != 0)
			connect_fault(e, "accept", rc);
	}
	if (rc == 0)
		return;
	/* this rejects the request */
	connect_drop(e, c);
	free(c);
}

static void
server_on_event(struct connect_server *s, const struct karst_rdmacm_event *ev)
{
	struct connect_end *e = &s->end;
	struct connect_conn *c = (struct connect_conn *)(uintptr_t)ev->uid;
	int rc;

	switch (ev->event) {
	case KARST_RDMACM_CONNECT_REQUEST:
		server_on_request(s, ev);
		return;
	case KARST_RDMACM_ESTABLISHED:
		e->established++;
		return;
	case KARST_RDMACM_DISCONNECTED:
		rc = karst_rdmacm_disconnect(e->ctx, c->id);
		if (rc != 0)
			connect_fault(e, "disconnect", rc);
		else
			e->ended++;
		break;
	case KARST_RDMACM_TIMEWAIT_EXIT:
		return;
	default:
		e->errors++;
		break;
	}
	connect_drop(e, c);
	free(c);
}

void *
connect_server_main(void *arg)
{
	struct connect_server *s = arg;
	struct karst_rdmacm_event ev;

	for (;;) {
		/* acquire, pairs with the release of the client's thread */
		uint64_t expected = atomic_load_explicit(&s->expected, memory_order_acquire);
		enum connect_event what;

		if (s->end.ended >= expected)
			break;
		what = connect_next(&s->end, SERVER_LOOK_MS, &ev);
		if (what == CONNECT_EVENT)
			server_on_event(s, &ev);
		/* the client has seen all connections end; missing events are lost */
		else if (what == CONNECT_BROKEN || expected != UINT64_MAX)
			break;
	}
	karst_rdmacm_destroy_id(s->end.ctx, s->listener, NULL);
	return NULL;
}
