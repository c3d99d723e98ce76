/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "rdmacm_bed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include <criterion/criterion.h>

/* --- a program --- */

struct program *
program_over(struct karst_context *ctx)
{
	struct program *p = calloc(1, sizeof(*p));

	cr_assert_not_null(p);
	p->b.ctx = ctx;
	cr_assert_eq(karst_alloc_pd(p->b.ctx, &p->b.pd), 0);
	cr_assert_eq(karst_create_cq(p->b.ctx, 64, NULL, NULL, &p->b.cq), 0);
	cr_assert_eq(karst_rdmacm_create_channel(p->b.ctx, &p->ch), 0, "%s", karst_why());
	p->mr = client_bed_mr(&p->b, p->mem, sizeof(p->mem));
	return p;
}

struct program *
program_up(struct client_bed *bed)
{
	return program_over(client_bed_open(bed));
}

void
program_down(struct program *p)
{
	cr_assert_eq(karst_dereg_mr(p->mr), 0);
	cr_assert_eq(karst_rdmacm_destroy_channel(p->ch), 0, "%s", karst_why());
	cr_assert_eq(karst_destroy_cq(p->b.cq), 0);
	cr_assert_eq(karst_dealloc_pd(p->b.pd), 0);
	cr_assert_eq(karst_close(p->b.ctx), 0, "%s", karst_why());
	free(p);
}

static uint32_t
make(struct program *p, uint64_t uid, enum karst_rdmacm_port_space ps, enum karst_qp_type type)
{
	uint32_t id = 0;

	cr_assert_eq(karst_rdmacm_create_id(p->ch, uid, ps, type, &id), 0, "%s", karst_why());
	cr_assert_neq(id, 0);
	return id;
}

uint32_t
make_id(struct program *p, uint64_t uid)
{
	return make(p, uid, KARST_RDMACM_PS_TCP, KARST_QPT_RC);
}

uint32_t
make_ud_id(struct program *p, uint64_t uid)
{
	return make(p, uid, KARST_RDMACM_PS_UDP, KARST_QPT_UD);
}

void
destroy_id(struct program *p, uint32_t id, uint32_t events)
{
	uint32_t got = UINT32_MAX;

	cr_assert_eq(karst_rdmacm_destroy_id(p->b.ctx, id, &got), 0, "%s", karst_why());
	cr_assert_eq(got, events, "%u events", got);
}

const struct sockaddr *
addr(const char *ip, uint16_t port)
{
	static struct sockaddr_storage sa[4]; /* a ring of addresses: that many may be used in one
					       * call */
	static unsigned int next;
	struct sockaddr_storage *s = &sa[next++ % 4];
	struct sockaddr_in6 *in6 = (void *)s;
	struct sockaddr_in *in = (void *)s;

	memset(s, 0, sizeof(*s));
	if (inet_pton(AF_INET, ip, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
	} else {
		cr_assert_eq(inet_pton(AF_INET6, ip, &in6->sin6_addr), 1);
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
	}
	return (void *)s;
}

/* --- events --- */

bool
readable(const struct program *p, int ms)
{
	struct pollfd f = {.fd = p->ch->fd, .events = POLLIN};

	return poll(&f, 1, ms) == 1;
}

/* Expects that no event waits, and that the descriptor is not readable. */
void
expect_silence(struct program *p)
{
	struct karst_rdmacm_event ev;

	cr_assert_not(readable(p, 0));
	cr_assert_eq(karst_rdmacm_get_event(p->ch, &ev), -EAGAIN);
}

struct karst_rdmacm_event
expect(struct program *p, enum karst_rdmacm_event_type type, uint64_t uid)
{
	struct karst_rdmacm_event ev;

	cr_assert(readable(p, (int)BED_PATIENCE_MS), "no %s", karst_rdmacm_event_str(type));
	cr_assert_eq(karst_rdmacm_get_event(p->ch, &ev), 0, "%s", karst_why());
	cr_assert_eq(ev.event, type, "%s (%d) instead of %s", karst_rdmacm_event_str(ev.event),
		ev.status, karst_rdmacm_event_str(type));
	cr_assert_eq(ev.uid, uid);
	return ev;
}

/* --- connections --- */

void
to_state(struct end *e, enum karst_qp_state state)
{
	struct karst_qp_attr attr;
	unsigned int mask = 0;

	cr_assert_eq(karst_rdmacm_init_qp_attr(e->p->b.ctx, e->id, state, &attr, &mask), 0, "%s",
		karst_why());
	cr_assert_eq(karst_modify_qp(e->qp, &attr, mask), 0, "%s", karst_why());
}

uint32_t
listen_on(struct program *p, const char *ip, uint16_t port, uint64_t uid)
{
	uint32_t id = make_id(p, uid);

	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id, addr(ip, port)), 0, "%s", karst_why());
	cr_assert_eq(karst_rdmacm_listen(p->b.ctx, id, 8), 0, "%s", karst_why());
	return id;
}

/* Up to the state in which the end can connect. */
void
resolve(struct end *e, const char *src, const char *dst, uint64_t uid)
{
	cr_assert_eq(
		karst_rdmacm_resolve_addr(e->p->b.ctx, e->id, src != NULL ? addr(src, 0) : NULL,
			addr(dst, SERVICE), BED_PATIENCE_MS),
		0, "%s", karst_why());
	expect(e->p, KARST_RDMACM_ADDR_RESOLVED, uid);
	cr_assert_eq(karst_rdmacm_resolve_route(e->p->b.ctx, e->id, BED_PATIENCE_MS), 0, "%s",
		karst_why());
	expect(e->p, KARST_RDMACM_ROUTE_RESOLVED, uid);
}

struct karst_rdmacm_conn_param
param_of(const struct end *e, const char *text)
{
	struct karst_rdmacm_conn_param p = {
		.responder_resources = 3,
		.initiator_depth = 2,
		.retry_count = 7,
		.rnr_retry_count = 6,
		.qp_num = e->qp->qp_num,
		.private_data_len = (uint8_t)(strlen(text) + 1),
	};

	memcpy(p.private_data, text, strlen(text) + 1);
	return p;
}

void
ready_end(struct end *e, const char *src, const char *dst, uint64_t uid)
{
	e->id = make_id(e->p, uid);
	resolve(e, src, dst, uid);
	e->qp = client_bed_qp(&e->p->b, KARST_QPT_RC);
	to_state(e, KARST_QPS_INIT);
}

void
connect_end(struct end *e, const char *src, const char *dst, uint64_t uid, const char *text)
{
	struct karst_rdmacm_conn_param p;

	ready_end(e, src, dst, uid);
	p = param_of(e, text);
	cr_assert_eq(karst_rdmacm_connect(e->p->b.ctx, e->id, &p), 0, "%s", karst_why());
}

void
accept_end(struct end *e, uint64_t listen_uid, uint64_t uid, const char *expected)
{
	struct karst_rdmacm_event ev = expect(e->p, KARST_RDMACM_CONNECT_REQUEST, listen_uid);
	struct karst_rdmacm_conn_param p;

	cr_assert_str_eq((char *)ev.conn.private_data, expected);
	cr_assert_eq(ev.conn.private_data_len, 56);
	/* from this side's view */
	cr_assert_eq(ev.conn.responder_resources, 2);
	cr_assert_eq(ev.conn.initiator_depth, 3);
	cr_assert_eq(ev.conn.retry_count, 7);
	cr_assert_eq(ev.conn.rnr_retry_count, 6);
	e->id = ev.id;
	e->qp = client_bed_qp(&e->p->b, KARST_QPT_RC);
	to_state(e, KARST_QPS_INIT);
	to_state(e, KARST_QPS_RTR);
	to_state(e, KARST_QPS_RTS);
	p = param_of(e, "welcome");
	p.responder_resources = 2;
	p.initiator_depth = 3;
	cr_assert_eq(karst_rdmacm_accept(e->p->b.ctx, e->id, uid, &p), 0, "%s", karst_why());
}

void
finish_end(struct end *e, uint64_t uid, uint32_t peer_qpn)
{
	struct karst_rdmacm_event ev = expect(e->p, KARST_RDMACM_CONNECT_RESPONSE, uid);

	cr_assert_str_eq((char *)ev.conn.private_data, "welcome");
	cr_assert_eq(ev.conn.private_data_len, 196);
	cr_assert_eq(ev.conn.qp_num, peer_qpn);
	to_state(e, KARST_QPS_RTR);
	to_state(e, KARST_QPS_RTS);
	cr_assert_eq(karst_rdmacm_accept(e->p->b.ctx, e->id, 0, NULL), 0, "%s", karst_why());
}

void
exchange(struct end *a, struct end *b)
{
	struct karst_cqe e;
	unsigned int i;

	for (i = 0; i < 4; i++) {
		memset(a->p->mem, 'a' + (int)i, 1000);
		memset(b->p->mem + 4096, 0, 1000);
		cr_assert_eq(client_bed_recv(b->qp, 1, b->p->mr, 4096, 1000), 0);
		cr_assert_eq(
			client_bed_post(a->qp, KARST_WR_SEND, 2, a->p->mr, 0, 1000, NULL, 0), 0);
		e = client_bed_wait(b->p->b.cq);
		cr_assert_eq(e.status, KARST_WC_SUCCESS);
		cr_assert_eq(e.byte_len, 1000);
		cr_assert_eq(memcmp(b->p->mem + 4096, a->p->mem, 1000), 0);
		e = client_bed_wait(a->p->b.cq);
		cr_assert_eq(e.status, KARST_WC_SUCCESS);
	}
}
