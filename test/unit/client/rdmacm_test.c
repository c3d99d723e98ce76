/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Connections of two programs of one engine: by its loopback and by the wire. */
#include "rdmacm_bed.h"

#include <arpa/inet.h>
#include <errno.h>

#include <criterion/criterion.h>
#include <rte_eth_ring.h>
#include <rte_ring.h>

#include "../idle.h"

/* The life of a connection between a program of @there and one of @here, from @src (NULL: the
 * engine chooses) to @dst. */
static void
life_between(struct client_bed *here, struct client_bed *there, const char *src, const char *dst)
{
	struct program *server = program_up(there), *client = program_up(here);
	struct end s = {.p = server}, c = {.p = client};
	struct karst_rdmacm_query q;
	uint32_t listener;

	expect_silence(client);
	listener = listen_on(server, dst, SERVICE, 1);
	connect_end(&c, src, dst, 2, "hello");
	accept_end(&s, 1, 3, "hello");
	finish_end(&c, 2, s.qp->qp_num);
	expect(server, KARST_RDMACM_ESTABLISHED, 3);
	exchange(&c, &s);
	exchange(&s, &c);
	expect_silence(client);
	expect_silence(server);

	cr_assert_eq(karst_rdmacm_query(server->b.ctx, s.id, &q), 0);
	cr_assert_eq(((struct sockaddr_in *)&q.src)->sin_port, htons(SERVICE));
	cr_assert_eq(q.paths, 1);

	cr_assert_eq(karst_rdmacm_disconnect(client->b.ctx, c.id), 0, "%s", karst_why());
	expect(server, KARST_RDMACM_DISCONNECTED, 3);
	cr_assert_eq(karst_rdmacm_disconnect(server->b.ctx, s.id), 0, "%s", karst_why());
	expect(client, KARST_RDMACM_DISCONNECTED, 2);

	cr_assert_eq(karst_destroy_qp(c.qp), 0);
	cr_assert_eq(karst_destroy_qp(s.qp), 0);
	/* ADDR_RESOLVED, ROUTE_RESOLVED, CONNECT_RESPONSE, DISCONNECTED */
	destroy_id(client, c.id, 4);
	/* ESTABLISHED, DISCONNECTED */
	destroy_id(server, s.id, 2);
	destroy_id(server, listener, 1);
	program_down(client);
	program_down(server);
}

static void
whole_life(struct client_bed *bed, const char *src, const char *dst)
{
	life_between(bed, bed, src, dst);
}

Test(client_rdmacm, c1_connect_by_loopback)
{
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	whole_life(&bed, NULL, "10.0.0.2");
	client_bed_down(&bed);
}

Test(client_rdmacm, c1_connect_by_wire)
{
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 2});
	whole_life(&bed, "10.0.0.1", "10.0.0.2");
	client_bed_down(&bed);
}

/* IPv6, with one more address on each port. */
Test(client_rdmacm, c1_connect_ipv6)
{
	struct client_bed bed;
	unsigned int i;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	for (i = 0; i < 2; i++) {
		struct karst_engine_addr addrs[2] = {karst_engine_addr_ip4(0x0a000001 + i),
			{.ip = {0xfd, [15] = (uint8_t)(i + 1)}, .prefix = 64}};

		cr_assert_eq(karst_engine_port_set_addrs(bed.e, (uint8_t)i, 2, addrs), 0);
	}
	whole_life(&bed, "fd00::1", "fd00::2");
	whole_life(&bed, NULL, "fd00::1");
	client_bed_down(&bed);
}

/* Lost messages are sent again. */
Test(client_rdmacm, c1_connect_with_loss)
{
	struct client_bed bed;
	unsigned int i;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_engine_set_loss(bed.e, 0.2, 4711), 0);
	for (i = 0; i < 3; i++)
		whole_life(&bed, "10.0.0.1", "10.0.0.2");
	client_bed_down(&bed);
}

/* A retry count that does not fit the message's field is sent as the largest that does, and is not
 * cut to its low bits: fio asks for ten, and would have had two. */
Test(client_rdmacm, more_retries_than_seven)
{
	const uint8_t wanted[] = {7, 8, 10, 255};
	struct karst_rdmacm_conn_param p;
	struct karst_rdmacm_event ev;
	struct client_bed bed;
	unsigned int i;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	for (i = 0; i < KARST_DIM(wanted); i++) {
		struct program *server = program_up(&bed), *client = program_up(&bed);
		struct end c = {.p = client};
		uint32_t listener = listen_on(server, "10.0.0.2", SERVICE, 1);

		ready_end(&c, NULL, "10.0.0.2", 2);
		p = param_of(&c, "hello");
		p.retry_count = p.rnr_retry_count = wanted[i];
		cr_assert_eq(karst_rdmacm_connect(client->b.ctx, c.id, &p), 0, "%s", karst_why());
		ev = expect(server, KARST_RDMACM_CONNECT_REQUEST, 1);
		cr_expect_eq(ev.conn.retry_count, 7, "%u of %u", ev.conn.retry_count, wanted[i]);
		cr_expect_eq(
			ev.conn.rnr_retry_count, 7, "%u of %u", ev.conn.rnr_retry_count, wanted[i]);
		cr_assert_eq(karst_destroy_qp(c.qp), 0);
		destroy_id(client, c.id, 2);
		destroy_id(server, ev.id, 0);
		destroy_id(server, listener, 1);
		program_down(client);
		program_down(server);
	}
	client_bed_down(&bed);
}

/* --- two engines --- */

static void
add_port(struct karst_engine *e, const char *name, struct rte_ring *rx, struct rte_ring *tx,
	uint8_t last)
{
	const struct karst_engine_addr addrs[2] = {
		{.ip = {[10] = 0xff, 0xff, 10, 1, 0, last}, .prefix = 24},
		{.ip = {0xfd, 1, [15] = last}, .prefix = 64}};
	struct karst_engine_port_config port = {
		.mac = {2, 0, 0, 0, 1, last}, .num_addrs = 2, .addrs = addrs};
	int id = rte_eth_from_rings(name, &rx, 1, &tx, 1, 0);
	uint8_t number;

	cr_assert_geq(id, 0);
	port.ethdev = (uint16_t)id;
	cr_assert_eq(karst_engine_port_add(e, &port, &number), 0);
}

static void *
poll_other(void *arg)
{
	struct client_bed *other = arg;
	unsigned int idle = 0;

	while (!atomic_load(&other->stop))
		idle_after(&idle, karst_engine_poll(other->e, 0) != 0);
	karst_engine_release(other->e, 0);
	return NULL;
}

Test(client_rdmacm, c1_connect_two_engines)
{
	const struct karst_engine_config cfg = {.name = "other", .max_qps = 64, .mbufs = 1024};
	struct rte_ring *there, *back;
	struct client_bed bed, other = {0};

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	there = rte_ring_create("there", 256, 0, RING_F_EXACT_SZ);
	back = rte_ring_create("back", 256, 0, RING_F_EXACT_SZ);
	cr_assert_eq(karst_engine_create(&cfg, &other.e), 0);
	add_port(bed.e, "link0", back, there, 1);
	add_port(other.e, "link1", there, back, 2);
	cr_assert_eq(pthread_create(&other.poller, NULL, poll_other, &other), 0);
	/* the port is chosen by the link on which the address is */
	life_between(&bed, &other, NULL, "10.1.0.2");
	life_between(&other, &bed, NULL, "10.1.0.1");
	life_between(&bed, &other, NULL, "fd01::2");
	cr_assert_eq(karst_engine_set_loss(bed.e, 0.1, 4711), 0);
	cr_assert_eq(karst_engine_set_loss(other.e, 0.1, 4712), 0);
	life_between(&bed, &other, NULL, "10.1.0.2");
	atomic_store(&other.stop, true);
	pthread_join(other.poller, NULL);
	cr_assert_eq(karst_engine_destroy(other.e), 0);
	client_bed_down(&bed);
}

/* --- a device that is removed --- */

static void
expect_async(struct program *p, enum karst_async_event_code code, uint32_t port_num)
{
	struct karst_async_event ev;

	cr_assert_eq(karst_get_async_event(p->b.ctx, &ev), 0, "%s", karst_why());
	cr_assert_eq(ev.event, code, "%s instead of %s", karst_event_str(ev.event),
		karst_event_str(code));
	cr_assert_eq(ev.object, KARST_ASYNC_OBJECT_PORT);
	cr_assert_eq(ev.element.port_num, port_num);
	karst_ack_async_event(&ev);
}

/* Identifiers that are bound to its port are told, and no others; all programs learn that the
 * device is gone. */
Test(client_rdmacm, device_removal)
{
	struct program *server, *client;
	struct karst_gid_entry gids[4];
	struct karst_qp_init_attr init;
	struct end s = {0}, c = {0};
	struct karst_port_attr port;
	struct karst_qp_attr attr;
	uint32_t any, bound;
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 2});
	s.p = server = program_up(&bed);
	c.p = client = program_up(&bed);
	any = listen_on(server, "0.0.0.0", SERVICE, 1);
	bound = listen_on(server, "10.0.0.2", SERVICE + 1, 9);
	connect_end(&c, "10.0.0.1", "10.0.0.2", 2, "hello");
	accept_end(&s, 1, 3, "hello");
	finish_end(&c, 2, s.qp->qp_num);
	expect(server, KARST_RDMACM_ESTABLISHED, 3);
	cr_assert_eq(karst_engine_port_lose(bed.e, 1), 0);
	expect(server, KARST_RDMACM_DEVICE_REMOVAL, 9);
	expect(server, KARST_RDMACM_DEVICE_REMOVAL, 3);
	expect_silence(server);
	expect_silence(client);
	expect_async(server, KARST_EVENT_PORT_ERR, 2);
	expect_async(server, KARST_EVENT_PORT_GONE, 2);
	expect_async(client, KARST_EVENT_PORT_ERR, 2);
	expect_async(client, KARST_EVENT_PORT_GONE, 2);
	cr_assert_eq(karst_query_qp(s.qp, &attr, &init), 0);
	cr_assert_eq(attr.qp_state, KARST_QPS_ERR);
	cr_assert_eq(karst_query_qp(c.qp, &attr, &init), 0);
	cr_assert_eq(attr.qp_state, KARST_QPS_RTS);
	/* programs see a port without a link and without addresses */
	cr_assert_eq(karst_query_port(client->b.ctx, 2, &port), 0, "%s", karst_why());
	cr_assert_eq(port.state, KARST_PORT_DOWN);
	cr_assert_eq(karst_query_gid_table(client->b.ctx, gids, KARST_DIM(gids)), 1);
	cr_assert_eq(gids[0].port_num, 1);
	cr_assert_eq(karst_destroy_qp(c.qp), 0);
	cr_assert_eq(karst_destroy_qp(s.qp), 0);
	destroy_id(client, c.id, 3);
	/* ESTABLISHED, DEVICE_REMOVAL */
	destroy_id(server, s.id, 2);
	destroy_id(server, bound, 1);
	destroy_id(server, any, 1);
	program_down(server);
	program_down(client);
	client_bed_down(&bed);
}

/* While a connection is being made: a side that has not sent its request, or its answer, can no
 * longer do so, and is told at once. */
Test(client_rdmacm, device_removal_between)
{
	struct end asks = {0}, asked = {0}, answers = {0};
	struct karst_rdmacm_conn_param param;
	struct karst_rdmacm_event ev;
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 2});
	asks.p = asked.p = program_up(&bed);
	answers.p = program_up(&bed);
	listen_on(answers.p, "10.0.0.2", SERVICE, 1);
	ready_end(&asks, "10.0.0.2", "10.0.0.1", 2);
	connect_end(&asked, "10.0.0.1", "10.0.0.2", 3, "hello");
	ev = expect(answers.p, KARST_RDMACM_CONNECT_REQUEST, 1);
	answers.id = ev.id;
	answers.qp = client_bed_qp(&answers.p->b, KARST_QPT_RC);
	to_state(&answers, KARST_QPS_INIT);
	cr_assert_eq(karst_engine_port_lose(bed.e, 1), 0);
	expect(asks.p, KARST_RDMACM_DEVICE_REMOVAL, 2);
	param = param_of(&asks, "hello");
	cr_assert_eq(karst_rdmacm_connect(asks.p->b.ctx, asks.id, &param), -EADDRNOTAVAIL);
	says("10.0.0.2");
	/* the event names the listener; the program has not told the engine its name for the new
	 * identifier */
	expect(answers.p, KARST_RDMACM_DEVICE_REMOVAL, 1);
	expect_silence(answers.p);
	param = param_of(&answers, "welcome");
	cr_assert_eq(karst_rdmacm_accept(answers.p->b.ctx, answers.id, 4, &param), -EADDRNOTAVAIL);
	says("10.0.0.2");
	cr_assert_eq(karst_destroy_qp(asks.qp), 0);
	cr_assert_eq(karst_destroy_qp(asked.qp), 0);
	cr_assert_eq(karst_destroy_qp(answers.qp), 0);
	karst_abandon(asks.p->b.ctx);
	karst_abandon(answers.p->b.ctx);
	client_bed_down(&bed);
}

/* An identifier at an address that is removed gets an event, and so do all of a port whose MAC
 * address changes; others do not. */
Test(client_rdmacm, address_change)
{
	const struct karst_engine_addr to = karst_engine_addr_ip4(0x0a000009);
	const uint8_t mac[6] = {2, 7, 7, 7, 7, 7};
	uint32_t any, bound, other;
	struct program *server;
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 2});
	server = program_up(&bed);
	any = listen_on(server, "0.0.0.0", SERVICE, 1);
	bound = listen_on(server, "10.0.0.2", SERVICE + 1, 9);
	other = listen_on(server, "10.0.0.1", SERVICE + 2, 7);
	cr_assert_eq(karst_engine_port_set_mac(bed.e, 1, mac), 0);
	expect(server, KARST_RDMACM_ADDR_CHANGE, 9);
	expect_async(server, KARST_EVENT_GID_CHANGE, 2);
	cr_assert_eq(karst_engine_port_set_addrs(bed.e, 1, 1, &to), 0);
	expect(server, KARST_RDMACM_ADDR_CHANGE, 9);
	expect_async(server, KARST_EVENT_GID_CHANGE, 2);
	expect_silence(server);
	destroy_id(server, other, 0);
	destroy_id(server, bound, 2);
	destroy_id(server, any, 0);
	program_down(server);
	client_bed_down(&bed);
}

/* A connection that is being made uses its address, wherever that is among the addresses of its
 * port, and never another one that has taken its place. */
Test(client_rdmacm, address_among_others)
{
	const struct karst_engine_addr ip[] = {karst_engine_addr_ip4(0x0a000001),
		karst_engine_addr_ip4(0x0a00000b), karst_engine_addr_ip4(0x0a00000c)};
	const struct karst_engine_addr turned[] = {ip[1], ip[0]};
	struct end server = {0}, client = {0};
	struct karst_qp_attr attr;
	unsigned int mask = 0;
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 2});
	server.p = program_up(&bed);
	client.p = program_up(&bed);
	listen_on(server.p, "0.0.0.0", SERVICE, 1);
	cr_assert_eq(karst_engine_port_set_addrs(bed.e, 0, 2, ip), 0);
	connect_end(&client, "10.0.0.11", "10.0.0.2", 2, "hello");
	/* the address is removed, and comes back in another place */
	cr_assert_eq(karst_engine_port_set_addrs(bed.e, 0, 1, &ip[2]), 0);
	expect(client.p, KARST_RDMACM_ADDR_CHANGE, 2);
	cr_assert_eq(
		karst_rdmacm_init_qp_attr(client.p->b.ctx, client.id, KARST_QPS_INIT, &attr, &mask),
		0);
	cr_assert_eq(karst_engine_port_set_addrs(bed.e, 0, 2, turned), 0);
	accept_end(&server, 1, 3, "hello");
	finish_end(&client, 2, server.qp->qp_num);
	expect(server.p, KARST_RDMACM_ESTABLISHED, 3);
	exchange(&client, &server);
	/* another address is in the place where it was */
	cr_assert_eq(karst_engine_port_set_addrs(bed.e, 0, 1, &ip[2]), 0);
	expect(client.p, KARST_RDMACM_ADDR_CHANGE, 2);
	cr_assert_eq(
		karst_rdmacm_init_qp_attr(client.p->b.ctx, client.id, KARST_QPS_RTR, &attr, &mask),
		-EADDRNOTAVAIL);
	/* an identifier that got this event gets no event of what becomes of other addresses */
	cr_assert_eq(karst_engine_port_set_addrs(bed.e, 0, 1, &ip[0]), 0);
	expect_silence(client.p);
	expect_silence(server.p);
	cr_assert_eq(karst_destroy_qp(client.qp), 0);
	cr_assert_eq(karst_destroy_qp(server.qp), 0);
	karst_abandon(client.p->b.ctx);
	karst_abandon(server.p->b.ctx);
	client_bed_down(&bed);
}

/* --- refusals --- */

Test(client_rdmacm, c1_nobody_listens)
{
	struct client_bed bed;
	struct program *p;
	struct end e = {0};

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	e.p = p = program_up(&bed);
	connect_end(&e, NULL, "10.0.0.2", 5, "hello");
	cr_assert_eq(expect(p, KARST_RDMACM_REJECTED, 5).status, 8, "no such service");
	destroy_id(p, e.id, 3);
	cr_assert_eq(karst_destroy_qp(e.qp), 0);
	program_down(p);
	client_bed_down(&bed);
}

Test(client_rdmacm, c1_reject)
{
	static const uint8_t long_text[149];
	struct program *server, *client;
	struct karst_rdmacm_event ev;
	struct end e = {0};
	uint32_t listener, id;
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	server = program_up(&bed);
	e.p = client = program_up(&bed);
	listener = listen_on(server, "0.0.0.0", SERVICE, 1);
	connect_end(&e, NULL, "10.0.0.2", 2, "please");
	id = expect(server, KARST_RDMACM_CONNECT_REQUEST, 1).id;
	cr_assert_eq(karst_rdmacm_reject(server->b.ctx, id, long_text, 149, 0), -EINVAL);
	cr_assert_eq(karst_rdmacm_reject(server->b.ctx, id, "no", 3, 0), 0, "%s", karst_why());
	ev = expect(client, KARST_RDMACM_REJECTED, 2);
	cr_assert_eq(ev.status, 28);
	cr_assert_eq(ev.conn.private_data_len, 148);
	cr_assert_str_eq((char *)ev.conn.private_data, "no");
	destroy_id(server, id, 0);
	destroy_id(client, e.id, 3);
	cr_assert_eq(karst_destroy_qp(e.qp), 0);
	destroy_id(server, listener, 1);
	expect_silence(server);
	program_down(client);
	program_down(server);
	client_bed_down(&bed);
}

/* A request that nobody accepts ends with its listener; one beyond the backlog ends at once. */
Test(client_rdmacm, backlog_and_its_end)
{
	struct program *server, *client;
	struct end e[3] = {{0}};
	uint32_t listener;
	struct client_bed bed;
	unsigned int i;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	server = program_up(&bed);
	client = program_up(&bed);
	listener = make_id(server, 1);
	cr_assert_eq(karst_rdmacm_bind(server->b.ctx, listener, addr("0.0.0.0", SERVICE)), 0);
	cr_assert_eq(karst_rdmacm_listen(server->b.ctx, listener, 2), 0);
	for (i = 0; i < 3; i++) {
		e[i].p = client;
		connect_end(&e[i], NULL, "10.0.0.2", 10 + i, "hello");
	}
	cr_assert_eq(expect(client, KARST_RDMACM_REJECTED, 12).status, 3, "no resources");
	cr_assert(readable(server, 0));
	destroy_id(server, listener, 0);
	expect_silence(server);
	cr_assert_eq(expect(client, KARST_RDMACM_REJECTED, 10).status, 28);
	cr_assert_eq(expect(client, KARST_RDMACM_REJECTED, 11).status, 28);
	for (i = 0; i < 3; i++) {
		destroy_id(client, e[i].id, 3);
		cr_assert_eq(karst_destroy_qp(e[i].qp), 0);
	}
	program_down(client);
	program_down(server);
	client_bed_down(&bed);
}

/* The program of one end is gone; the other end gets an event. */
Test(client_rdmacm, c1_program_ends)
{
	struct program *server, *client;
	struct end s = {0}, c = {0};
	uint32_t listener;
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	s.p = server = program_up(&bed);
	c.p = client = program_up(&bed);
	listener = listen_on(server, "0.0.0.0", SERVICE, 1);
	connect_end(&c, NULL, "10.0.0.2", 2, "hello");
	accept_end(&s, 1, 3, "hello");
	finish_end(&c, 2, s.qp->qp_num);
	expect(server, KARST_RDMACM_ESTABLISHED, 3);
	karst_abandon(client->b.ctx);
	expect(server, KARST_RDMACM_DISCONNECTED, 3);
	cr_assert_eq(karst_destroy_qp(s.qp), 0);
	destroy_id(server, s.id, 2);
	destroy_id(server, listener, 1);
	program_down(server);
	client_bed_down(&bed);
}

/* The QP has received a message of the peer whose RTU has not arrived yet. */
Test(client_rdmacm, c1_established_by_traffic)
{
	struct program *server, *client;
	struct end s = {0}, c = {0};
	uint32_t listener;
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	s.p = server = program_up(&bed);
	c.p = client = program_up(&bed);
	listener = listen_on(server, "0.0.0.0", SERVICE, 1);
	connect_end(&c, NULL, "10.0.0.2", 2, "hello");
	accept_end(&s, 1, 3, "hello");
	cr_assert_eq(karst_rdmacm_notify(server->b.ctx, s.id, KARST_EVENT_SQ_DRAINED), -EINVAL);
	cr_assert_eq(karst_rdmacm_notify(server->b.ctx, s.id, KARST_EVENT_COMM_EST), 0, "%s",
		karst_why());
	expect(server, KARST_RDMACM_ESTABLISHED, 3);
	finish_end(&c, 2, s.qp->qp_num);
	exchange(&c, &s);
	expect_silence(server);
	/* as rdma_notify(3) defines it for a connection that is established */
	cr_assert_eq(karst_rdmacm_notify(server->b.ctx, s.id, KARST_EVENT_COMM_EST), -EISCONN);
	cr_assert_eq(karst_rdmacm_notify(client->b.ctx, c.id, KARST_EVENT_COMM_EST), -EISCONN);
	expect_silence(server);
	cr_assert_eq(karst_destroy_qp(s.qp), 0);
	cr_assert_eq(karst_destroy_qp(c.qp), 0);
	destroy_id(server, s.id, 1);
	/* ADDR_RESOLVED, ROUTE_RESOLVED, CONNECT_RESPONSE, DISCONNECTED */
	expect(client, KARST_RDMACM_DISCONNECTED, 2);
	destroy_id(client, c.id, 4);
	destroy_id(server, listener, 1);
	program_down(client);
	program_down(server);
	client_bed_down(&bed);
}
