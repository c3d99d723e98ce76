/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Users of one engine: how connection management keeps users from harming each other. */
#include "rdmacm_bed.h"

#include <errno.h>
#include <stdio.h>

#include <criterion/criterion.h>

static int
conn_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	return karst_session_handle(user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
}

static void
conn_close(void *user)
{
	karst_session_destroy(user);
}

/* A program of user @uid, which has an account. */
static struct program *
users_program(struct client_bed *bed, uid_t uid)
{
	const struct karst_session_init init = {
		.program = "user", .pidfd = -1, .uid = uid, .limits = {.share = 75}};
	struct karst_ctl_conn conn = {.call = conn_call, .close = conn_close, .hup_fd = -1};
	struct karst_session *s;
	struct karst_context *ctx;

	cr_assert_eq(karst_session_create(bed->e, &init, &s), 0);
	conn.user = s;
	cr_assert_eq(karst_open_conn(&conn, NULL, &ctx), 0);
	return program_over(ctx);
}

/* Users other than root cannot have the well-known numbers. */
Test(client_rdmacm_users, privileged_numbers)
{
	struct client_bed bed;
	struct program *p;
	uint32_t id;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	p = users_program(&bed, 1000);
	id = make_id(p, 1);
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id, addr("10.0.0.1", 1023)), -EACCES);
	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id, addr("10.0.0.1", 1024)), 0);
	destroy_id(p, id, 0);
	program_down(p);
	client_bed_down(&bed);
}

/* Makes @p ask for a connection of queue pair @qpn, which need not be its own.  @return as
 * karst_rdmacm_connect() */
static int
connect_as(struct program *p, uint32_t id, uint32_t qpn)
{
	const struct karst_rdmacm_conn_param param = {.qp_num = qpn};

	return karst_rdmacm_connect(p->b.ctx, id, &param);
}

/* A peer that gets a second request for a queue pair takes the first connection for stale, and ends
 * it.  Other users cannot cause that, neither by a request nor by an answer. */
Test(client_rdmacm_users, another_users_queue_pair)
{
	struct end server, client, other;
	struct karst_rdmacm_conn_param lie;
	struct karst_rdmacm_event ev;
	struct program *liar, *friend;
	struct client_bed bed;
	uint32_t listener[2];

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 2});
	server.p = users_program(&bed, 1001);
	client.p = users_program(&bed, 1002);
	liar = other.p = users_program(&bed, 1003);
	friend = users_program(&bed, 1002);
	listener[0] = listen_on(server.p, "10.0.0.2", SERVICE, 1);
	connect_end(&client, "10.0.0.1", "10.0.0.2", 2, "hello");
	accept_end(&server, 1, 3, "hello");
	finish_end(&client, 2, server.qp->qp_num);
	expect(server.p, KARST_RDMACM_ESTABLISHED, 3);

	ready_end(&other, "10.0.0.1", "10.0.0.2", 4);
	cr_assert_eq(connect_as(liar, other.id, client.qp->qp_num), -EACCES);
	cr_assert_eq(connect_as(liar, other.id, other.qp->qp_num), 0, "%s", karst_why());
	ev = expect(server.p, KARST_RDMACM_CONNECT_REQUEST, 1);
	cr_assert_eq(ev.conn.qp_num, other.qp->qp_num);
	destroy_id(server.p, ev.id, 0);
	expect(liar, KARST_RDMACM_REJECTED, 4);
	destroy_id(liar, other.id, 3);

	listener[1] = listen_on(liar, "10.0.0.1", SERVICE, 5);
	lie = param_of(&client, "welcome");
	other.p = friend;
	other.id = make_id(friend, 6);
	resolve(&other, "10.0.0.2", "10.0.0.1", 6);
	/* a queue pair of another program of the same user */
	cr_assert_eq(connect_as(friend, other.id, client.qp->qp_num), 0, "%s", karst_why());
	ev = expect(liar, KARST_RDMACM_CONNECT_REQUEST, 5);
	cr_assert_eq(karst_rdmacm_accept(liar->b.ctx, ev.id, 7, &lie), -EACCES);
	destroy_id(liar, ev.id, 0);
	expect(friend, KARST_RDMACM_REJECTED, 6);
	destroy_id(friend, other.id, 3);

	exchange(&client, &server);
	expect_silence(client.p);
	expect_silence(server.p);
	cr_assert_eq(karst_destroy_qp(other.qp), 0);
	cr_assert_eq(karst_destroy_qp(client.qp), 0);
	cr_assert_eq(karst_destroy_qp(server.qp), 0);
	destroy_id(liar, listener[1], 1);
	destroy_id(client.p, client.id, 3);
	expect(server.p, KARST_RDMACM_DISCONNECTED, 3);
	destroy_id(server.p, server.id, 2);
	destroy_id(server.p, listener[0], 2);
	program_down(liar);
	program_down(friend);
	program_down(client.p);
	program_down(server.p);
	client_bed_down(&bed);
}

/* --- requests that are not completed --- */

/* Of 64 connections a quarter may wait, and half of these may come from one address. */
#define OF_ONE_ADDRESS 8u
#define OF_ONE_USER    6u /* of these, 75 % are a user's share */

/* Makes @p ask for a connection, or for the queue pair of datagrams; no answer comes.  @return its
 * identifier */
static uint32_t
ask(struct program *p, bool ud, uint64_t uid)
{
	struct end e = {.p = p, .id = ud ? make_ud_id(p, uid) : make_id(p, uid)};

	resolve(&e, "10.0.0.1", "10.0.0.2", uid);
	cr_assert_eq(connect_as(p, e.id, 0x1000 + (uint32_t)uid), 0, "%s", karst_why());
	return e.id;
}

static void
listen_for_all(struct program *p, bool ud, uint64_t uid)
{
	uint32_t id = ud ? make_ud_id(p, uid) : make_id(p, uid);

	cr_assert_eq(karst_rdmacm_bind(p->b.ctx, id, addr("10.0.0.2", SERVICE)), 0);
	cr_assert_eq(karst_rdmacm_listen(p->b.ctx, id, 1024), 0, "%s", karst_why());
}

/* The next request for a connection; other events are skipped. */
static struct karst_rdmacm_event
next_request(struct program *p)
{
	struct karst_rdmacm_event ev;

	do {
		cr_assert(readable(p, (int)BED_PATIENCE_MS), "no request");
		cr_assert_eq(karst_rdmacm_get_event(p->ch, &ev), 0, "%s", karst_why());
	} while (ev.event != KARST_RDMACM_CONNECT_REQUEST);
	return ev;
}

/* The peer has a number of places for one address, whoever asks; a user has a share of them, and
 * requests beyond it are sent later. */
Test(client_rdmacm_users, asked_and_not_completed)
{
	struct program *server, *greedy, *other, *root;
	uint32_t id[OF_ONE_ADDRESS], third;
	struct karst_rdmacm_event ev;
	struct client_bed bed;
	unsigned int i, n;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1, .max_cm_ids = 64});
	server = users_program(&bed, 1001);
	greedy = users_program(&bed, 1002);
	other = users_program(&bed, 1003);
	root = program_up(&bed);
	listen_for_all(server, false, 1);
	for (i = 0; i < OF_ONE_ADDRESS; i++)
		id[i] = ask(greedy, false, 10 + i);
	for (i = 0; i < OF_ONE_USER; i++)
		next_request(server);
	third = ask(other, false, 30);
	ev = next_request(server);
	cr_assert_eq(ev.conn.qp_num, 0x1000 + 30);
	/* a refused request makes room, and so does one that is given up */
	destroy_id(server, ev.id, 0);
	expect(other, KARST_RDMACM_REJECTED, 30);
	destroy_id(other, third, 3);
	third = ask(other, false, 31);
	ev = next_request(server);
	cr_assert_eq(ev.conn.qp_num, 0x1000 + 31);
	destroy_id(other, third, 2);
	for (n = 0; n < OF_ONE_ADDRESS - OF_ONE_USER; n++) {
		destroy_id(greedy, id[n], 2);
		ev = next_request(server);
		cr_assert_geq(ev.conn.qp_num, 0x1000 + 10 + OF_ONE_USER);
		cr_assert_lt(ev.conn.qp_num, 0x1000 + 10 + OF_ONE_ADDRESS);
	}
	/* a program without an account is not limited by others */
	third = ask(root, false, 40);
	ev = next_request(server);
	cr_assert_eq(ev.conn.qp_num, 0x1000 + 40);
	karst_abandon(root->b.ctx);
	karst_abandon(greedy->b.ctx);
	karst_abandon(other->b.ctx);
	karst_abandon(server->b.ctx);
	client_bed_down(&bed);
}

/* Nothing tells the peer that nobody waits for the answer any more. */
Test(client_rdmacm_users, asked_for_datagrams_and_left)
{
	struct program *server, *greedy, *again, *other;
	struct client_bed bed;
	unsigned int n;
	uint32_t id;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1, .max_cm_ids = 64});
	server = users_program(&bed, 1001);
	greedy = users_program(&bed, 1002);
	other = users_program(&bed, 1003);
	listen_for_all(server, true, 1);
	for (n = 0; n < OF_ONE_ADDRESS; n++) {
		id = ask(greedy, true, 10 + n);
		destroy_id(greedy, id, 2);
	}
	for (n = 0; n < OF_ONE_USER; n++)
		next_request(server);
	expect_silence(server);
	/* nor does it help to attach as another program */
	karst_abandon(greedy->b.ctx);
	again = users_program(&bed, 1002);
	id = ask(again, true, 20);
	id = ask(other, true, 30);
	next_request(server);
	expect_silence(server);
	karst_abandon(again->b.ctx);
	karst_abandon(other->b.ctx);
	karst_abandon(server->b.ctx);
	client_bed_down(&bed);
}

/* --- paths that are being resolved --- */

#define OF_ALL_PATHS  512u
#define OF_USERS_PATH 384u /* of these, with a share of 75 % */
#define HOUR_MS       (3600u * 1000u)

/* Makes @p resolve the @i-th of a range of addresses that no host has.  @return as
 * karst_rdmacm_resolve_addr() */
static int
look_for(struct program *p, unsigned int i, uint32_t ms, uint32_t *id)
{
	char ip[32];
	int ret;

	*id = make_id(p, 1);
	snprintf(ip, sizeof(ip), "10.0.%u.%u", 1 + i / 250, i % 250 + 1);
	ret = karst_rdmacm_resolve_addr(p->b.ctx, *id, addr("10.0.0.1", 0), addr(ip, SERVICE), ms);
	if (ret != 0)
		destroy_id(p, *id, 0);
	return ret;
}

/* Resolves as many addresses as the engine allows.  @return how many */
static unsigned int
look_for_many(struct program *p, uint32_t *id)
{
	unsigned int n;

	for (n = 0; n < 2 * OF_ALL_PATHS; n++)
		if (look_for(p, n, HOUR_MS, &id[n]) != 0)
			break;
	return n;
}

/* A user who resolves as many addresses as possible leaves the others their share, and peers their
 * answers.  An address that the user no longer waits for does not count, however long the timeout
 * was. */
Test(client_rdmacm_users, looked_for_and_not_found)
{
	static uint32_t id[2 * OF_ALL_PATHS];
	struct program *greedy, *again;
	struct end client = {0}, server = {0};
	struct client_bed bed;
	uint32_t more;
	unsigned int n;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	greedy = users_program(&bed, 1002);
	client.p = users_program(&bed, 1003);
	server.p = users_program(&bed, 1004);
	listen_on(server.p, "10.0.0.2", SERVICE, 1);
	n = look_for_many(greedy, id);
	cr_assert_eq(n, OF_USERS_PATH, "%u: %s", n, karst_why());
	cr_assert_not_null(strstr(karst_why(), "user 1002"), "%s", karst_why());
	/* an address that a program of the same user resolves already does not count again */
	cr_assert_eq(look_for(greedy, 0, HOUR_MS, &more), 0, "%s", karst_why());
	destroy_id(greedy, more, 0);
	cr_assert_eq(look_for(greedy, n, HOUR_MS, &more), -ENOSPC);
	/* another user can resolve, and gets an answer of a peer that has not talked to that user
	 * before */
	connect_end(&client, "10.0.0.1", "10.0.0.2", 2, "hello");
	accept_end(&server, 1, 3, "hello");
	finish_end(&client, 2, server.qp->qp_num);
	expect(server.p, KARST_RDMACM_ESTABLISHED, 3);
	/* a resolution that was given up makes room, */
	destroy_id(greedy, id[0], 0);
	cr_assert_eq(look_for(greedy, n, 1, &id[0]), 0, "%s", karst_why());
	/* and so does one that timed out, */
	expect(greedy, KARST_RDMACM_ADDR_ERROR, 1);
	cr_assert_eq(look_for(greedy, n, HOUR_MS, &more), 0, "%s", karst_why());
	/* and a program that has ended */
	karst_abandon(greedy->b.ctx);
	again = users_program(&bed, 1002);
	n = look_for_many(again, id);
	cr_assert_eq(n, OF_USERS_PATH, "%u: %s", n, karst_why());
	karst_abandon(again->b.ctx);
	karst_abandon(client.p->b.ctx);
	karst_abandon(server.p->b.ctx);
	client_bed_down(&bed);
}

/* However many addresses programs resolve, and without a share, peers get their answers, also for
 * programs that have not talked to them before. */
Test(client_rdmacm_users, answers_have_room)
{
	static uint32_t id[2 * OF_ALL_PATHS];
	struct end client = {0}, server = {0};
	struct karst_rdmacm_conn_param param;
	struct client_bed bed;
	struct program *root;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	root = program_up(&bed);
	client.p = program_up(&bed);
	server.p = program_up(&bed);
	listen_on(server.p, "10.0.0.2", SERVICE, 1);
	ready_end(&client, "10.0.0.1", "10.0.0.2", 2);
	cr_assert_geq(look_for_many(root, id), OF_ALL_PATHS, "%s", karst_why());
	param = param_of(&client, "hello");
	cr_assert_eq(
		karst_rdmacm_connect(client.p->b.ctx, client.id, &param), 0, "%s", karst_why());
	accept_end(&server, 1, 3, "hello");
	finish_end(&client, 2, server.qp->qp_num);
	expect(server.p, KARST_RDMACM_ESTABLISHED, 3);
	karst_abandon(root->b.ctx);
	karst_abandon(client.p->b.ctx);
	karst_abandon(server.p->b.ctx);
	client_bed_down(&bed);
}
