/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Identifiers: addresses and port numbers, datagrams, groups, channels, options, limits. */
#include "rdmacm_bed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include <criterion/criterion.h>

#define UDP_QKEY   0x01234567u
#define SHARE_MOST 256u

static int
bind_new(struct program *p, uint32_t *id, const char *ip, uint16_t port)
{
	*id = make_id(p, 1);
	return karst_rdmacm_bind(p->b.ctx, *id, addr(ip, port));
}

static uint16_t
port_of(struct program *p, uint32_t id)
{
	struct karst_rdmacm_query q;

	cr_assert_eq(karst_rdmacm_query(p->b.ctx, id, &q), 0, "%s", karst_why());
	return ntohs(((struct sockaddr_in *)&q.src)->sin_port);
}

/* --- addresses and port numbers --- */

Test(client_rdmacm_id, bind)
{
	struct sockaddr other = {.sa_family = AF_UNIX};
	struct program *p, *q;
	uint32_t id[8];
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	p = program_up(&bed);
	q = program_up(&bed);
	cr_assert_eq(bind_new(p, &id[0], "10.0.0.3", 5000), -EADDRNOTAVAIL);
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id[0], &other), -EAFNOSUPPORT);
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id[0], addr("10.0.0.1", 5000)), 0);
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id[0], addr("10.0.0.1", 5001)), -EINVAL, "twice");
	/* another program, the same engine */
	cr_assert_eq(bind_new(q, &id[1], "10.0.0.1", 5000), -EADDRINUSE);
	cr_assert_eq(karst_rdmacm_bind(q->b.ctx, id[1], addr("0.0.0.0", 5000)), -EADDRINUSE);
	cr_assert_eq(karst_rdmacm_bind(q->b.ctx, id[1], addr("::", 5000)), -EADDRINUSE);
	cr_assert_eq(
		karst_rdmacm_bind(q->b.ctx, id[1], addr("10.0.0.2", 5000)), 0, "the other address");
	/* a number that the engine chooses */
	cr_assert_eq(bind_new(p, &id[2], "10.0.0.1", 0), 0);
	cr_assert(port_of(p, id[2]) >= 32768 && port_of(p, id[2]) <= 60999);
	/* the number of a destroyed identifier is free */
	destroy_id(p, id[0], 0);
	cr_assert_eq(bind_new(p, &id[0], "10.0.0.1", 5000), 0);
	/* port spaces are independent of each other */
	id[3] = make_ud_id(p, 1);
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id[3], addr("10.0.0.1", 5000)), 0);
	destroy_id(q, id[1], 0);
	program_down(q);
	destroy_id(p, id[0], 0);
	destroy_id(p, id[2], 0);
	destroy_id(p, id[3], 0);
	program_down(p);
	client_bed_down(&bed);
}

Test(client_rdmacm_id, options)
{
	const int yes = 1;
	const uint8_t tos = 0x68, timeout = 20, too_much = 32;
	struct karst_qp_attr attr;
	unsigned int mask;
	struct program *p;
	uint32_t id[4];
	struct end e;
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	p = program_up(&bed);
#define OPTION(id, name, v) \
	karst_rdmacm_set_option(p->b.ctx, id, 0, KARST_RDMACM_OPTION_##name, &(v), sizeof(v))
	/* a number may be shared if both identifiers allow it, until one of them listens */
	cr_assert_eq(bind_new(p, &id[0], "10.0.0.1", 5000), 0);
	id[1] = make_id(p, 1);
	cr_assert_eq(OPTION(id[1], REUSEADDR, yes), 0);
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id[1], addr("10.0.0.1", 5000)), -EADDRINUSE);
	cr_assert_eq(OPTION(id[0], REUSEADDR, yes), 0);
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id[1], addr("10.0.0.1", 5000)), 0);
	cr_assert_eq(karst_rdmacm_listen(p->b.ctx, id[1], 0), -EADDRINUSE);
	destroy_id(p, id[0], 0);
	cr_assert_eq(karst_rdmacm_listen(p->b.ctx, id[1], 0), 0, "%s", karst_why());
	cr_assert_eq(OPTION(id[1], REUSEADDR, yes), -EINVAL, "it listens");
	cr_assert_eq(bind_new(p, &id[0], "10.0.0.1", 5000), -EADDRINUSE);
	destroy_id(p, id[0], 0);
	/* IPv6 and IPv4 beside each other */
	cr_assert_eq(bind_new(p, &id[2], "0.0.0.0", 6000), 0);
	id[3] = make_id(p, 1);
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id[3], addr("::", 6000)), -EADDRINUSE);
	cr_assert_eq(OPTION(id[3], AFONLY, yes), 0);
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id[3], addr("::", 6000)), 0, "%s", karst_why());
	cr_assert_eq(karst_rdmacm_listen(p->b.ctx, id[2], 0), 0);
	cr_assert_eq(karst_rdmacm_listen(p->b.ctx, id[3], 0), 0, "%s", karst_why());
	/* the other options reach the queue pair's attributes */
	e = (struct end){.p = p, .id = make_id(p, 7)};
	cr_assert_eq(OPTION(e.id, TOS, tos), 0);
	cr_assert_eq(OPTION(e.id, ACK_TIMEOUT, too_much), -EINVAL);
	cr_assert_eq(OPTION(e.id, ACK_TIMEOUT, timeout), 0);
	cr_assert_eq(karst_rdmacm_set_option(p->b.ctx, e.id, 0, 4, &yes, sizeof(yes)), -ENOSYS);
	cr_assert_eq(karst_rdmacm_set_option(p->b.ctx, e.id, 1, 1, &yes, sizeof(yes)), -ENOSYS);
	cr_assert_eq(karst_rdmacm_set_option(
			     p->b.ctx, e.id, 0, KARST_RDMACM_OPTION_TOS, &yes, sizeof(yes)),
		-EINVAL, "of another size");
	resolve(&e, "10.0.0.1", "10.0.0.2", 7);
	cr_assert_eq(karst_rdmacm_init_qp_attr(p->b.ctx, e.id, KARST_QPS_RTR, &attr, &mask),
		-EINVAL, "nobody has answered");
	cr_assert_eq(karst_rdmacm_init_qp_attr(p->b.ctx, e.id, KARST_QPS_INIT, &attr, &mask), 0);
	cr_assert_eq(attr.port_num, 1);
	cr_assert_eq(
		mask, KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT | KARST_QP_ACCESS_FLAGS);
	destroy_id(p, e.id, 2);
	destroy_id(p, id[1], 0);
	destroy_id(p, id[2], 0);
	destroy_id(p, id[3], 0);
	program_down(p);
	client_bed_down(&bed);
}

/* Identifiers that share a number are searched one by one, also for a peer's request: so their
 * number is limited. */
Test(client_rdmacm_id, numbers_are_shared_by_so_many)
{
	const int yes = 1;
	uint32_t id[SHARE_MOST + 1], i;
	struct program *p;
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	p = program_up(&bed);
	for (i = 0; i <= SHARE_MOST; i++) {
		id[i] = make_id(p, 1);
		cr_assert_eq(OPTION(id[i], REUSEADDR, yes), 0);
		cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id[i], addr("10.0.0.1", 5000)),
			i < SHARE_MOST ? 0 : -EADDRINUSE, "%u", i);
	}
	cr_assert_str_eq(karst_why(),
		"port number 5000 is shared by 256 identifiers, and by no more at a time");
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id[SHARE_MOST], addr("10.0.0.1", 5001)), 0);
	destroy_id(p, id[SHARE_MOST], 0);
	destroy_id(p, id[0], 0);
	id[0] = make_id(p, 1);
	cr_assert_eq(OPTION(id[0], REUSEADDR, yes), 0);
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id[0], addr("10.0.0.1", 5000)), 0);
	for (i = 0; i < SHARE_MOST; i++)
		destroy_id(p, id[i], 0);
	program_down(p);
	client_bed_down(&bed);
}

/* Of several listeners on one number the right one gets the request. */
Test(client_rdmacm_id, listeners_by_address)
{
	struct program *server, *client;
	uint32_t l[2], conn;
	struct end e = {0};
	struct client_bed bed;
	unsigned int i;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	server = program_up(&bed);
	client = program_up(&bed);
	l[0] = listen_on(server, "10.0.0.1", SERVICE, 100);
	l[1] = listen_on(server, "10.0.0.2", SERVICE, 101);
	for (i = 0; i < 2; i++) {
		e.p = client;
		connect_end(&e, NULL, i == 0 ? "10.0.0.1" : "10.0.0.2", 5, "hello");
		conn = expect(server, KARST_RDMACM_CONNECT_REQUEST, 100 + i).id;
		destroy_id(server, conn, 0);
		expect(client, KARST_RDMACM_REJECTED, 5);
		destroy_id(client, e.id, 3);
		cr_assert_eq(karst_destroy_qp(e.qp), 0);
		/* when its only listener is gone, nobody listens at the address */
		destroy_id(server, l[i], 1);
		connect_end(&e, NULL, i == 0 ? "10.0.0.1" : "10.0.0.2", 6, "hello");
		cr_assert_eq(expect(client, KARST_RDMACM_REJECTED, 6).status, 8);
		destroy_id(client, e.id, 3);
		cr_assert_eq(karst_destroy_qp(e.qp), 0);
	}
	program_down(client);
	program_down(server);
	client_bed_down(&bed);
}

Test(client_rdmacm_id, resolve)
{
	struct karst_rdmacm_query q;
	struct program *p;
	struct client_bed bed;
	struct end e;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	e.p = p = program_up(&bed);
	e.id = make_id(p, 1);
	cr_assert_eq(karst_rdmacm_resolve_route(p->b.ctx, e.id, 1), -EINVAL, "no address yet");
	cr_assert_eq(karst_rdmacm_resolve_addr(
			     p->b.ctx, e.id, addr("10.0.0.9", 0), addr("10.0.0.2", 1), 1),
		-EADDRNOTAVAIL);
	cr_assert_eq(karst_rdmacm_resolve_addr(
			     p->b.ctx, e.id, addr("10.0.0.1", 0), addr("fd00::2", 1), 1),
		-EINVAL, "of two families");
	cr_assert_eq(karst_rdmacm_resolve_addr(p->b.ctx, e.id, NULL, addr("fd00::2", 1), 1),
		-ENETUNREACH, "no IPv6 here");
	cr_assert_eq(karst_rdmacm_query(p->b.ctx, e.id, &q), 0);
	cr_assert_eq(q.src.ss_family, 0, "as it was");
	cr_assert_eq(q.port_num, 0);
	/* no host has the address: the call may be repeated */
	cr_assert_eq(karst_rdmacm_resolve_addr(
			     p->b.ctx, e.id, addr("10.0.0.1", 0), addr("10.0.0.77", 1), 50),
		0, "%s", karst_why());
	cr_assert_eq(karst_rdmacm_resolve_addr(p->b.ctx, e.id, NULL, addr("10.0.0.77", 1), 50),
		-EINVAL, "it is at it");
	cr_assert_eq(expect(p, KARST_RDMACM_ADDR_ERROR, 1).status, -ETIMEDOUT);
	resolve(&e, NULL, "10.0.0.2", 1);
	cr_assert_eq(karst_rdmacm_query(p->b.ctx, e.id, &q), 0);
	cr_assert_eq(q.port_num, 1);
	cr_assert_eq(q.paths, 1);
	cr_assert_eq(q.dgid.raw[15], 2);
	cr_assert_eq(q.sgid.raw[15], 1);
	destroy_id(p, e.id, 3);
	/* a wildcard means this engine itself; and an identifier that waits may be destroyed */
	e.id = make_id(p, 2);
	resolve(&e, NULL, "0.0.0.0", 2);
	destroy_id(p, e.id, 2);
	e.id = make_id(p, 3);
	cr_assert_eq(karst_rdmacm_resolve_addr(
			     p->b.ctx, e.id, addr("10.0.0.1", 0), addr("10.0.0.78", 1), 60000),
		0);
	destroy_id(p, e.id, 0);
	expect_silence(p);
	program_down(p);
	client_bed_down(&bed);
}

/* --- datagrams --- */

Test(client_rdmacm_id, c1_datagrams)
{
	struct karst_rdmacm_conn_param param = {.qp_num = 77, .private_data_len = 6};
	struct program *server, *client;
	struct karst_rdmacm_event ev;
	struct karst_qp_attr attr;
	uint32_t listener, conn;
	unsigned int mask;
	struct client_bed bed;
	struct end e;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	server = program_up(&bed);
	e.p = client = program_up(&bed);
	listener = make_ud_id(server, 1);
	cr_assert_eq(karst_rdmacm_bind(server->b.ctx, listener, addr("0.0.0.0", SERVICE)), 0);
	cr_assert_eq(karst_rdmacm_listen(server->b.ctx, listener, 0), 0);

	e.id = make_ud_id(client, 2);
	resolve(&e, "10.0.0.1", "10.0.0.2", 2);
	cr_assert_eq(
		karst_rdmacm_init_qp_attr(client->b.ctx, e.id, KARST_QPS_INIT, &attr, &mask), 0);
	cr_assert_eq(attr.qkey, UDP_QKEY);
	cr_assert((mask & KARST_QP_QKEY) != 0);
	memcpy(param.private_data, "where", 6);
	cr_assert_eq(karst_rdmacm_connect(client->b.ctx, e.id, &param), 0, "%s", karst_why());
	ev = expect(server, KARST_RDMACM_CONNECT_REQUEST, 1);
	cr_assert_str_eq((char *)ev.conn.private_data, "where");
	cr_assert_eq(ev.conn.private_data_len, 180);
	conn = ev.id;
	memcpy(param.private_data, "there", 6);
	cr_assert_eq(karst_rdmacm_accept(server->b.ctx, conn, 3, &param), 0, "%s", karst_why());
	ev = expect(client, KARST_RDMACM_ESTABLISHED, 2);
	cr_assert_eq(ev.status, 0);
	cr_assert_str_eq((char *)ev.conn.private_data, "there");
	cr_assert_eq(ev.ud.qp_num, 77);
	cr_assert_eq(ev.ud.qkey, UDP_QKEY);
	cr_assert_eq(ev.ud.ah_attr.dgid.raw[15], 2);
	cr_assert_eq(ev.ud.ah_attr.port_num, 1);
	cr_assert_eq(karst_rdmacm_disconnect(client->b.ctx, e.id), -EINVAL);
	destroy_id(client, e.id, 3);
	destroy_id(server, conn, 0);

	e.id = make_ud_id(client, 4);
	resolve(&e, "10.0.0.1", "10.0.0.2", 4);
	cr_assert_eq(karst_rdmacm_connect(client->b.ctx, e.id, &param), 0, "%s", karst_why());
	conn = expect(server, KARST_RDMACM_CONNECT_REQUEST, 1).id;
	cr_assert_eq(karst_rdmacm_reject(server->b.ctx, conn, "no", 3, 0), 0, "%s", karst_why());
	ev = expect(client, KARST_RDMACM_UNREACHABLE, 4);
	cr_assert_eq(ev.status, 2);
	cr_assert_str_eq((char *)ev.conn.private_data, "no");
	destroy_id(client, e.id, 3);
	destroy_id(server, conn, 0);
	destroy_id(server, listener, 2);

	/* and if nobody listens */
	e.id = make_ud_id(client, 5);
	resolve(&e, "10.0.0.1", "10.0.0.2", 5);
	cr_assert_eq(karst_rdmacm_connect(client->b.ctx, e.id, &param), 0, "%s", karst_why());
	cr_assert_eq(expect(client, KARST_RDMACM_UNREACHABLE, 5).status, 1);
	destroy_id(client, e.id, 3);
	program_down(client);
	program_down(server);
	client_bed_down(&bed);
}

/* More groups than there are events in the life of an identifier. */
#define MANY_GROUPS 100u

/* Each group has its event, also if the program joins many before it reads. */
Test(client_rdmacm_id, many_groups)
{
	struct karst_rdmacm_event ev;
	uint32_t id, i, group[MANY_GROUPS];
	struct client_bed bed;
	struct program *p;
	char ip[16];

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	p = program_up(&bed);
	id = make_ud_id(p, 1);
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id, addr("10.0.0.2", 0)), 0);
	for (i = 0; i < MANY_GROUPS; i++) {
		snprintf(ip, sizeof(ip), "224.9.9.%u", i);
		cr_assert_eq(karst_rdmacm_join_mcast(p->b.ctx, id, addr(ip, 0), 10 + i, &group[i]),
			0, "%u: %s", i, karst_why());
	}
	/* what waits does not count when a group has gone */
	cr_assert_eq(karst_rdmacm_leave_mcast(p->b.ctx, group[0], NULL), 0);
	for (i = 1; i < MANY_GROUPS; i++) {
		ev = expect(p, KARST_RDMACM_MULTICAST_JOIN, 10 + i);
		cr_assert_eq(ev.id, group[i]);
	}
	expect_silence(p);
	cr_assert_eq(karst_rdmacm_destroy_id(p->b.ctx, id, NULL), 0);
	program_down(p);
	client_bed_down(&bed);
}

Test(client_rdmacm_id, groups)
{
	struct karst_rdmacm_event ev;
	uint32_t id, group[2], events;
	struct program *p;
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	p = program_up(&bed);
	id = make_ud_id(p, 1);
	cr_assert_eq(karst_rdmacm_join_mcast(p->b.ctx, id, addr("224.9.9.9", 0), 10, &group[0]),
		-EINVAL, "it has no port");
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id, addr("10.0.0.2", 0)), 0);
	cr_assert_eq(karst_rdmacm_join_mcast(p->b.ctx, id, addr("10.9.9.9", 0), 10, &group[0]),
		-EINVAL, "no group");
	cr_assert_eq(karst_rdmacm_join_mcast(p->b.ctx, id, addr("224.9.9.9", 0), 10, &group[0]), 0,
		"%s", karst_why());
	cr_assert_eq(karst_rdmacm_join_mcast(p->b.ctx, id, addr("224.9.9.8", 0), 11, &group[1]), 0);
	ev = expect(p, KARST_RDMACM_MULTICAST_JOIN, 10);
	cr_assert_eq(ev.id, group[0]);
	cr_assert_eq(ev.ud.qp_num, 0xffffff);
	cr_assert_eq(ev.ud.qkey, UDP_QKEY);
	cr_assert_eq(ev.ud.ah_attr.port_num, 2);
	cr_assert_eq(memcmp(ev.ud.ah_attr.dgid.raw + 10, "\xff\xff\xe0\x09\x09\x09", 6), 0);
	/* the event of the other group is removed with it */
	cr_assert_eq(karst_rdmacm_leave_mcast(p->b.ctx, group[1], &events), 0);
	cr_assert_eq(events, 0);
	expect_silence(p);
	cr_assert_eq(karst_rdmacm_leave_mcast(p->b.ctx, group[1], &events), -EINVAL);
	cr_assert_eq(karst_rdmacm_leave_mcast(p->b.ctx, group[0], &events), 0);
	cr_assert_eq(events, 1);
	cr_assert_eq(karst_rdmacm_join_mcast(p->b.ctx, id, addr("224.9.9.9", 0), 12, &group[0]), 0);
	/* an identifier's groups are left when it is destroyed */
	destroy_id(p, id, 1);
	expect_silence(p);
	cr_assert_eq(karst_rdmacm_leave_mcast(p->b.ctx, group[0], NULL), -EINVAL);
	program_down(p);
	client_bed_down(&bed);
}

/* --- channels --- */

Test(client_rdmacm_id, migrate)
{
	struct karst_rdmacm_channel *other;
	struct karst_rdmacm_event ev;
	uint32_t id[2], events;
	struct program *p, *q;
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	p = program_up(&bed);
	q = program_up(&bed);
	cr_assert_eq(karst_rdmacm_create_channel(p->b.ctx, &other), 0);
	id[0] = make_id(p, 1);
	id[1] = make_id(p, 2);
	cr_assert_eq(karst_rdmacm_resolve_addr(
			     p->b.ctx, id[0], NULL, addr("10.0.0.1", 1), BED_PATIENCE_MS),
		0);
	expect(p, KARST_RDMACM_ADDR_RESOLVED, 1);
	cr_assert_eq(karst_rdmacm_resolve_addr(
			     p->b.ctx, id[1], NULL, addr("10.0.0.1", 1), BED_PATIENCE_MS),
		0);
	cr_assert(readable(p, BED_PATIENCE_MS));
	cr_assert_eq(karst_rdmacm_resolve_route(p->b.ctx, id[0], 1), 0);
	/* first one of two events is moved, then the other one */
	cr_assert_eq(karst_rdmacm_migrate_id(other, id[0], &events), 0, "%s", karst_why());
	cr_assert_eq(events, 1);
	cr_assert(readable(p, 0));
	cr_assert_eq(karst_rdmacm_migrate_id(other, id[1], &events), 0, "%s", karst_why());
	cr_assert_eq(events, 0);
	expect_silence(p);
	cr_assert_eq(karst_rdmacm_get_event(other, &ev), 0, "%s", karst_why());
	cr_assert_eq(ev.event, KARST_RDMACM_ROUTE_RESOLVED);
	cr_assert_eq(karst_rdmacm_get_event(other, &ev), 0, "%s", karst_why());
	cr_assert_eq(ev.event, KARST_RDMACM_ADDR_RESOLVED);
	cr_assert_eq(karst_rdmacm_get_event(other, &ev), -EAGAIN);
	cr_assert_eq(karst_rdmacm_destroy_channel(other), -EBUSY);
	cr_assert_eq(karst_rdmacm_migrate_id(q->ch, id[1], &events), -EINVAL, "another program's");
	destroy_id(p, id[0], 2);
	destroy_id(p, id[1], 1);
	cr_assert_eq(karst_rdmacm_destroy_channel(other), 0);
	program_down(q);
	program_down(p);
	client_bed_down(&bed);
}

/* --- limits, identifiers of other programs --- */

Test(client_rdmacm_id, limits)
{
	struct karst_session_limits limits = {.max_cm_ids = 3, .max_channels = 2};
	struct karst_rdmacm_channel *ch[2];
	struct karst_ctl_conn conn;
	struct karst_context *ctx;
	struct program *server, *client;
	struct end e = {0};
	uint32_t id[3], more;
	struct client_bed bed;
	unsigned int i;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_session_conn(bed.e, &limits, &conn), 0);
	cr_assert_eq(karst_open_conn(&conn, NULL, &ctx), 0);
	server = program_over(ctx);
	client = program_up(&bed);
	cr_assert_eq(karst_rdmacm_create_channel(ctx, &ch[0]), 0);
	cr_assert_eq(karst_rdmacm_create_channel(ctx, &ch[1]), -ENOSPC);
	for (i = 0; i < 3; i++)
		id[i] = make_id(server, i);
	cr_assert_eq(
		karst_rdmacm_create_id(server->ch, 9, KARST_RDMACM_PS_TCP, KARST_QPT_RC, &more),
		-ENOSPC);
	/* the request of a peer needs an identifier, too */
	cr_assert_eq(karst_rdmacm_bind(ctx, id[0], addr("0.0.0.0", SERVICE)), 0);
	cr_assert_eq(karst_rdmacm_listen(ctx, id[0], 0), 0);
	e.p = client;
	connect_end(&e, NULL, "10.0.0.2", 5, "hello");
	cr_assert_eq(expect(client, KARST_RDMACM_REJECTED, 5).status, 3);
	expect_silence(server);
	destroy_id(client, e.id, 3);
	cr_assert_eq(karst_destroy_qp(e.qp), 0);
	for (i = 0; i < 3; i++)
		destroy_id(server, id[i], 0);
	cr_assert_eq(karst_rdmacm_destroy_channel(ch[0]), 0);
	program_down(client);
	program_down(server);
	client_bed_down(&bed);
}

/* A connection request that its program has not taken yet cannot be used, though its number can be
 * guessed. */
Test(client_rdmacm_id, request_that_waits)
{
	struct program *server, *client;
	uint32_t listener, conn, guess;
	struct karst_qp_attr attr;
	struct end e = {0};
	unsigned int mask;
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	server = program_up(&bed);
	e.p = client = program_up(&bed);
	listener = listen_on(server, "0.0.0.0", SERVICE, 1);
	connect_end(&e, NULL, "10.0.0.2", 5, "hello");
	cr_assert(readable(server, BED_PATIENCE_MS));
	guess = listener + 1;
	cr_assert_eq(karst_rdmacm_destroy_id(server->b.ctx, guess, NULL), -EINVAL);
	cr_assert_eq(karst_rdmacm_reject(server->b.ctx, guess, NULL, 0, 0), -EINVAL);
	cr_assert_eq(karst_rdmacm_init_qp_attr(server->b.ctx, guess, KARST_QPS_INIT, &attr, &mask),
		-EINVAL);
	conn = expect(server, KARST_RDMACM_CONNECT_REQUEST, 1).id;
	cr_assert_eq(conn, guess, "else this test is of no use");
	/* and the program gets no event of it before it has named it */
	destroy_id(client, e.id, 2);
	expect_silence(server);
	destroy_id(server, conn, 0);
	destroy_id(server, listener, 1);
	cr_assert_eq(karst_destroy_qp(e.qp), 0);
	program_down(client);
	program_down(server);
	client_bed_down(&bed);
}

Test(client_rdmacm_id, kinds)
{
	struct program *p;
	struct client_bed bed;
	uint32_t id;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	p = program_up(&bed);
	cr_assert_eq(karst_rdmacm_create_id(
			     p->ch, 1, (enum karst_rdmacm_port_space)0x013f, KARST_QPT_RC, &id),
		-EPROTONOSUPPORT);
	cr_assert_eq(
		karst_rdmacm_create_id(p->ch, 1, KARST_RDMACM_PS_TCP, KARST_QPT_UD, &id), -EINVAL);
	cr_assert_eq(
		karst_rdmacm_create_id(p->ch, 1, KARST_RDMACM_PS_UDP, KARST_QPT_RC, &id), -EINVAL);
	cr_assert_eq(karst_rdmacm_destroy_id(p->b.ctx, 1, NULL), -EINVAL);
	program_down(p);
	client_bed_down(&bed);
}

/* The engine dies. */
Test(client_rdmacm_id, death)
{
	struct karst_rdmacm_channel *ch;
	struct karst_rdmacm_event ev;
	struct client_bed bed;
	uint32_t id;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1, .forked = true});
	cr_assert_eq(karst_rdmacm_create_channel(bed.ctx, &ch), 0, "%s", karst_why());
	cr_assert_eq(karst_rdmacm_create_id(ch, 1, KARST_RDMACM_PS_TCP, KARST_QPT_RC, &id), 0);
	client_bed_kill(&bed);
	cr_assert_eq(karst_rdmacm_get_event(ch, &ev), -EIO);
	cr_assert_eq(karst_rdmacm_listen(bed.ctx, id, 0), -EIO);
	cr_assert_eq(karst_rdmacm_destroy_id(bed.ctx, id, NULL), 0);
	cr_assert_eq(karst_rdmacm_destroy_channel(ch), 0);
	client_bed_down(&bed);
}
