/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The active end: opts->conns connections at a time, each begun as soon as another one has ended.
 *
 *	create_id, resolve_addr -> ADDR_RESOLVED, resolve_route -> ROUTE_RESOLVED,
 *	[QP to Init] connect -> CONNECT_RESPONSE, [QP to RTR, RTS] accept, disconnect
 *	-> DISCONNECTED, destroy_id
 */
#include "connect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define RESOLVE_MS 10000u
/* Longer than any message is repeated: after this time without an event, none will come. */
#define STUCK_MS 60000

static bool
may_begin(const struct connect_client *c, uint64_t began_ns)
{
	const struct perf_opts *o = c->opts;

	if (c->end.errors != 0 || c->open == o->conns)
		return false;
	if (o->iters != 0)
		return c->end.begun < o->iters;
	return (double)(connect_now_ns() - began_ns) < o->duration_s * 1e9;
}

static void
client_drop(struct connect_client *c, uint32_t slot)
{
	connect_drop(&c->end, &c->conns[slot]);
	c->open--;
}

static int
client_begin(struct connect_client *c, uint32_t slot)
{
	struct connect_conn *conn = &c->conns[slot];
	struct connect_end *e = &c->end;
	int rc;

	conn->number = (uint32_t)e->begun;
	conn->began_ns = connect_now_ns();
	rc = karst_rdmacm_create_id(e->ch, slot, KARST_RDMACM_PS_TCP, KARST_QPT_RC, &conn->id);
	if (rc != 0) {
		conn->id = 0;
		return connect_fault(e, "an identifier", rc);
	}
	c->open++;
	e->begun++;
	rc = karst_rdmacm_resolve_addr(e->ctx, conn->id, (struct sockaddr *)&c->from,
		(struct sockaddr *)&c->to, RESOLVE_MS);
	if (rc == 0)
		return 0;
	connect_fault(e, "resolve", rc);
	client_drop(c, slot);
	return rc;
}

static int
on_resolved(struct connect_client *c, struct connect_conn *conn)
{
	struct karst_rdmacm_conn_param param;
	int rc;

	connect_fill(&c->end, conn->number, true, &param);
	rc = connect_make_qp(&c->end, conn, &param);
	if (rc != 0)
		return rc;
	rc = karst_rdmacm_connect(c->end.ctx, conn->id, &param);
	return rc == 0 ? 0 : connect_fault(&c->end, "connect", rc);
}

static int
on_response(
	struct connect_client *c, struct connect_conn *conn, const struct karst_rdmacm_event *ev)
{
	struct connect_end *e = &c->end;
	uint32_t number;
	uint64_t now;
	int rc;

	if (connect_check(e, false, &ev->conn, &number) && number != conn->number)
		e->wrong++;
	rc = connect_open_qp(e, conn);
	if (rc != 0)
		return rc;
	rc = karst_rdmacm_accept(e->ctx, conn->id, 0, NULL);
	if (rc != 0)
		return connect_fault(e, "accept", rc);
	e->established++;
	now = connect_now_ns();
	perf_hist_add(c->connect_ns, now - conn->began_ns);
	conn->began_ns = now;
	rc = karst_rdmacm_disconnect(e->ctx, conn->id);
	return rc == 0 ? 0 : connect_fault(e, "disconnect", rc);
}

/* Abandons a connection that failed. */
static int
client_unexpected(struct connect_end *e, const struct karst_rdmacm_event *ev)
{
	if (e->errors++ == 0)
		fprintf(stderr, "karst-perf: %s: %s, %d%s%s\n", e->name,
			karst_rdmacm_event_str(ev->event), ev->status, ev->status < 0 ? ": " : "",
			ev->status < 0 ? strerror(-ev->status) : "");
	return -EIO;
}

/* @return 0: the connection continues; else it has ended or failed. */
static int
client_on_event(struct connect_client *c, const struct karst_rdmacm_event *ev)
{
	struct connect_conn *conn = &c->conns[ev->uid];
	int rc;

	switch (ev->event) {
	case KARST_RDMACM_ADDR_RESOLVED:
		rc = karst_rdmacm_resolve_route(c->end.ctx, conn->id, RESOLVE_MS);
		return rc == 0 ? 0 : connect_fault(&c->end, "route", rc);
	case KARST_RDMACM_ROUTE_RESOLVED:
		return on_resolved(c, conn);
	case KARST_RDMACM_CONNECT_RESPONSE:
		return on_response(c, conn, ev);
	case KARST_RDMACM_DISCONNECTED:
		if (ev->status != 0)
			return client_unexpected(&c->end, ev);
		c->end.ended++;
		perf_hist_add(c->disconnect_ns, connect_now_ns() - conn->began_ns);
		return 1;
	case KARST_RDMACM_TIMEWAIT_EXIT:
		return 0;
	default:
		return client_unexpected(&c->end, ev);
	}
}

/* Begins connections in all free slots, starting the search at @slot. */
static void
client_refill(struct connect_client *c, uint32_t slot, uint64_t began_ns)
{
	uint32_t n;

	for (n = 0; n < c->opts->conns && may_begin(c, began_ns); n++) {
		if (c->conns[slot].id == 0 && client_begin(c, slot) != 0)
			break;
		slot = slot + 1 == c->opts->conns ? 0 : slot + 1;
	}
}

int
connect_client_run(struct connect_client *c)
{
	uint64_t began_ns = connect_now_ns();
	enum connect_event what = CONNECT_EVENT;
	struct karst_rdmacm_event ev;
	uint32_t slot = 0;

	for (;;) {
		client_refill(c, slot, began_ns);
		if (c->open == 0)
			break;
		what = connect_next(&c->end, STUCK_MS, &ev);
		if (what != CONNECT_EVENT)
			break;
		slot = (uint32_t)ev.uid;
		if (client_on_event(c, &ev) != 0)
			client_drop(c, slot);
	}
	c->seconds = (double)(connect_now_ns() - began_ns) / 1e9;
	if (what == CONNECT_NOTHING)
		fprintf(stderr, "karst-perf: %u connections: nothing has happened for %u s\n",
			c->open, STUCK_MS / 1000);
	for (slot = 0; slot < c->opts->conns; slot++)
		if (c->conns[slot].id != 0)
			client_drop(c, slot);
	return what == CONNECT_EVENT ? 0 : -EIO;
}
