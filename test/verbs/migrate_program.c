/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A verbs program whose queue pair has an alternate path, for migrate.py:
 *
 *   migrate-program calls                    tests which calls are accepted, on the first device
 *   migrate-program receive SOCKET A B       listens at SOCKET, receives, checks the messages
 *   migrate-program receive-srq SOCKET A B   the same with a shared receive queue
 *   migrate-program send SOCKET A B          sends until its path has migrated, and some more
 *   migrate-program command SOCKET A B       sends, migrates by a call, and later back again
 *
 * A and B are two addresses of the device; the queue pair begins with A and the peer's A.  Each
 * message has several packets and contains its number: no message may be missing, come twice, or be
 * wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <sys/un.h>

#define DEPTH 32u
#define BYTES 5000u
#define AFTER 2000u /* messages after the migration */
/* Eight times 537 ms, so that the path does not migrate while the peer waits for a processor. */
#define TIMEOUT 17
#define RETRIES 7
#define AGAIN   UINT32_MAX /* sent instead of the number of messages: load the first path again */

/* The data that the ends exchange. */
struct word {
	uint32_t qpn, psn;
	union ibv_gid gid[2];
};

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_srq *srq; /* NULL: the queue pair has its own receive queue */
	struct ibv_qp *qp;
	uint8_t *mem;
	int gid_index[2];
	struct word own, peer;
	int fd; /* to the peer */
	unsigned int migrated;
};

static void
check(bool right, const char *what)
{
	if (right)
		return;
	printf("wrong: %s (errno %d)\n", what, errno);
	fflush(stdout);
	exit(1);
}

static void
say(const char *text)
{
	printf("%s\n", text);
	fflush(stdout);
}

/* --- creating --- */

static void
open_device(struct end *e)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	e->ctx = list != NULL && *list != NULL ? ibv_open_device(*list) : NULL;
	check(e->ctx != NULL, "a device");
	e->pd = ibv_alloc_pd(e->ctx);
	e->cq = ibv_create_cq(e->ctx, 2 * DEPTH, NULL, NULL, 0);
	e->mem = calloc(DEPTH, BYTES);
	check(e->pd != NULL && e->cq != NULL && e->mem != NULL, "objects");
	e->mr = ibv_reg_mr(e->pd, e->mem, (size_t)DEPTH * BYTES, IBV_ACCESS_LOCAL_WRITE);
	check(e->mr != NULL, "a region");
	check(fcntl(e->ctx->async_fd, F_SETFL, O_NONBLOCK) == 0, "events that do not block");
}

static struct ibv_qp *
make_qp(struct end *e, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.qp_type = type,
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.srq = e->srq,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};
	struct ibv_qp *qp = ibv_create_qp(e->pd, &init);

	check(qp != NULL, "a queue pair");
	return qp;
}

static void
make_srq(struct end *e)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = DEPTH, .max_sge = 1}};

	e->srq = ibv_create_srq(e->pd, &init);
	check(e->srq != NULL, "a shared receive queue");
}

static int
gid_index(struct end *e, const char *address, union ibv_gid *gid)
{
	struct in6_addr want = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
	struct ibv_port_attr port;
	int i;

	check(inet_pton(AF_INET, address, want.s6_addr + 12) == 1, "an address");
	check(ibv_query_port(e->ctx, 1, &port) == 0, "the port");
	for (i = 0; i < port.gid_tbl_len; i++)
		if (ibv_query_gid(e->ctx, 1, i, gid) == 0 && memcmp(gid->raw, &want, 16) == 0)
			return i;
	check(false, "the address is one of the device");
	return -1;
}

/* --- states --- */

static struct ibv_ah_attr
address_of(const struct end *e, int which)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = e->peer.gid[which],
			.sgid_index = (uint8_t)e->gid_index[which],
			.hop_limit = 64},
	};
}

static struct ibv_qp_attr
alternate(const struct end *e, int which)
{
	return (struct ibv_qp_attr){
		.alt_ah_attr = address_of(e, which),
		.alt_port_num = 1,
		.alt_timeout = TIMEOUT,
		.path_mig_state = IBV_MIG_REARM,
	};
}

static void
to_init(struct ibv_qp *qp, enum ibv_qp_type type)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};

	check(ibv_modify_qp(qp, &attr,
		      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0,
		"to INIT");
}

static void
to_rtr(struct end *e)
{
	struct ibv_qp_attr attr = alternate(e, 1);

	attr.qp_state = IBV_QPS_RTR;
	attr.ah_attr = address_of(e, 0);
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = e->peer.qpn;
	attr.rq_psn = e->peer.psn;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 1;
	check(ibv_modify_qp(e->qp, &attr,
		      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH) ==
			0,
		"to RTR, with an alternate path");
}

static void
to_rts(struct end *e)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = e->own.psn,
		.timeout = TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
		.path_mig_state = IBV_MIG_REARM,
	};

	check(ibv_modify_qp(e->qp, &attr,
		      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_PATH_MIG_STATE) ==
			0,
		"to RTS, to be armed");
}

static struct ibv_qp_attr
query(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	check(ibv_query_qp(qp, &attr,
		      IBV_QP_STATE | IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE,
		      &init) == 0,
		"a query");
	return attr;
}

/* --- the connection --- */

static void
connect_ends(struct end *e, const char *path, bool listens, bool shared, char *const address[2])
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), i;

	open_device(e);
	if (shared)
		make_srq(e);
	e->qp = make_qp(e, IBV_QPT_RC);
	for (i = 0; i < 2; i++)
		e->gid_index[i] = gid_index(e, address[i], &e->own.gid[i]);
	e->own.qpn = e->qp->qp_num;
	e->own.psn = listens ? 0xfffff0 : 0x123456;
	check(fd >= 0 && strlen(path) < sizeof(at.sun_path), "a socket");
	strcpy(at.sun_path, path);
	if (listens) {
		check(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 1) == 0,
			"listening");
		say("listening");
		e->fd = accept(fd, NULL, NULL);
	} else {
		e->fd = fd;
		check(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connecting");
	}
	check(write(e->fd, &e->own, sizeof(e->own)) == sizeof(e->own), "telling");
	check(recv(e->fd, &e->peer, sizeof(e->peer), MSG_WAITALL) == sizeof(e->peer), "hearing");
	to_init(e->qp, IBV_QPT_RC);
	to_rtr(e);
	to_rts(e);
}

/* Waits until both ends are ready. */
static void
meet(struct end *e)
{
	char c = 'r';

	check(write(e->fd, &c, 1) == 1 && recv(e->fd, &c, 1, MSG_WAITALL) == 1, "meeting");
}

static void
look_for_events(struct end *e)
{
	struct ibv_async_event event;

	while (ibv_get_async_event(e->ctx, &event) == 0) {
		if (event.event_type == IBV_EVENT_PATH_MIG && event.element.qp == e->qp) {
			e->migrated++;
			say("PATH_MIG");
		} else if (event.event_type != IBV_EVENT_COMM_EST) {
			printf("event %s\n", ibv_event_type_str(event.event_type));
			check(false, "another event");
		}
		ibv_ack_async_event(&event);
	}
}

static void
wait_migrated(struct end *e, unsigned int times)
{
	while (e->migrated < times) {
		struct pollfd p = {.fd = e->ctx->async_fd, .events = POLLIN};

		poll(&p, 1, -1);
		look_for_events(e);
	}
	check(e->migrated == times, "it migrates once");
}

/* Checks that path @which is the primary path, and that there is no alternate path. */
static void
check_path(struct end *e, int which)
{
	struct ibv_qp_attr is = query(e->qp);

	check(is.path_mig_state == IBV_MIG_MIGRATED, "MIGRATED");
	check(is.alt_port_num == 0, "the alternate path is used up");
	check(memcmp(&is.ah_attr.grh.dgid, &e->peer.gid[which], 16) == 0, "the destination");
	check(is.ah_attr.grh.sgid_index == e->gid_index[which], "the source");
	check(is.qp_state == IBV_QPS_RTS, "RTS");
}

/* --- messages --- */

static void
fill(uint8_t *at, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < BYTES; i += 4)
		memcpy(at + i, &(uint32_t){n * 2654435761u + i}, 4);
	memcpy(at, &n, sizeof(n));
}

static void
post_recv(struct end *e, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)e->mem + slot * BYTES, .length = BYTES, .lkey = e->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

	check((e->srq != NULL ? ibv_post_srq_recv(e->srq, &wr, &bad)
			      : ibv_post_recv(e->qp, &wr, &bad)) == 0,
		"a receive");
}

static void
post_send(struct end *e, uint32_t n)
{
	uint32_t slot = n % DEPTH;
	struct ibv_sge sge = {
		.addr = (uintptr_t)e->mem + slot * BYTES, .length = BYTES, .lkey = e->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = n, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1},
			   *bad;

	fill(e->mem + slot * BYTES, n);
	check(ibv_post_send(e->qp, &wr, &bad) == 0, "a send");
}

/* Polls, and checks that sends complete in order.  @done: completions before this call.
 * @return completions of this call */
static uint32_t
poll_sends(struct end *e, uint32_t done)
{
	struct ibv_wc wc[DEPTH];
	int i, n = ibv_poll_cq(e->cq, DEPTH, wc);

	check(n >= 0, "polling");
	for (i = 0; i < n; i++) {
		check(wc[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(wc[i].status));
		check(wc[i].wr_id == done + (uint32_t)i, "sends complete in order");
	}
	return (uint32_t)n;
}

/* When the path has migrated: loads the first path as the alternate path, to be armed. */
static void
load_first(struct end *e)
{
	struct ibv_qp_attr attr = alternate(e, 0);
	char c = 'l';

	wait_migrated(e, 1);
	check_path(e, 1);
	check(ibv_modify_qp(e->qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE) == 0, "again");
	check(write(e->fd, &c, 1) == 1, "saying so");
}

static void
receive(struct end *e)
{
	uint8_t *want = malloc(BYTES);
	uint32_t got = 0, total = 0, i;
	bool again = false;
	struct ibv_wc wc;

	check(want != NULL, "memory");
	for (i = 0; i < DEPTH; i++)
		post_recv(e, i);
	meet(e);
	while (total == 0 || got != total) {
		look_for_events(e);
		if (total == 0 && recv(e->fd, &total, sizeof(total), MSG_DONTWAIT) == 0)
			check(false, "the sender is gone");
		if (total == AGAIN) {
			load_first(e);
			again = true;
			total = 0;
		}
		if (ibv_poll_cq(e->cq, 1, &wc) == 0) {
			usleep(100);
			continue;
		}
		check(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
		fill(want, got);
		check(wc.byte_len == BYTES && memcmp(e->mem + wc.wr_id * BYTES, want, BYTES) == 0,
			"the message that is expected");
		post_recv(e, (uint32_t)wc.wr_id);
		got++;
	}
	free(want);
	wait_migrated(e, again ? 2 : 1);
	check_path(e, again ? 0 : 1);
	printf("%u messages\n", got);
	meet(e);
}

/* Sends messages until events of @times migrations have come, and then AFTER more. */
static void
stream(struct end *e, uint32_t *posted, uint32_t *done, unsigned int times)
{
	uint32_t end = 0;

	while (end == 0 || *done < end) {
		look_for_events(e);
		check(e->migrated <= times, "it migrates once");
		if (end == 0 && e->migrated == times)
			end = *posted + AFTER;
		if (*posted - *done < DEPTH && (end == 0 || *posted < end))
			post_send(e, (*posted)++);
		*done += poll_sends(e, *done);
	}
}

/* Sends until the queue pair is armed: that needs packets in both directions. */
static void
wait_armed(struct end *e, uint32_t *posted, uint32_t *done)
{
	while (query(e->qp).path_mig_state != IBV_MIG_ARMED) {
		post_send(e, (*posted)++);
		while (*done != *posted)
			*done += poll_sends(e, *done);
	}
}

static void
finish(struct end *e, uint32_t total, int which)
{
	check(write(e->fd, &total, sizeof(total)) == sizeof(total), "telling the end");
	check_path(e, which);
	printf("%u messages\n", total);
	meet(e);
}

static void
send_until_migrated(struct end *e)
{
	uint32_t posted = 0, done = 0;

	meet(e);
	wait_armed(e, &posted, &done);
	say("armed");
	stream(e, &posted, &done, 1);
	finish(e, posted, 1);
}

static void
command(struct end *e)
{
	struct ibv_qp_attr go = {.path_mig_state = IBV_MIG_MIGRATED}, back = alternate(e, 0);
	uint32_t posted = 0, done = 0, again = AGAIN;
	char c;

	meet(e);
	wait_armed(e, &posted, &done);
	for (; posted - done < DEPTH;)
		post_send(e, posted++);
	check(ibv_modify_qp(e->qp, &go, IBV_QP_PATH_MIG_STATE) == 0, "to the alternate path");
	stream(e, &posted, &done, 1);
	check_path(e, 1);
	/* and back to the first path */
	check(write(e->fd, &again, sizeof(again)) == sizeof(again) &&
			recv(e->fd, &c, 1, MSG_WAITALL) == 1,
		"the peer's turn");
	check(ibv_modify_qp(e->qp, &back, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE) == 0, "again");
	wait_armed(e, &posted, &done);
	check(ibv_modify_qp(e->qp, &go, IBV_QP_PATH_MIG_STATE) == 0, "and back");
	stream(e, &posted, &done, 2);
	finish(e, posted, 0);
}

/* --- calls --- */

static int
modify(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	return ibv_modify_qp(qp, &attr, mask);
}

static void
check_refused(struct end *e)
{
	const int both = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
	struct ibv_qp_attr attr = alternate(e, 0);

	attr.path_mig_state = IBV_MIG_ARMED;
	check(modify(e->qp, attr, both) == EINVAL, "ARMED is nothing to ask for");
	attr = alternate(e, 0);
	attr.alt_port_num = 2;
	check(modify(e->qp, attr, both) == EINVAL, "port 2");
	attr = alternate(e, 0);
	attr.alt_ah_attr.port_num = 2;
	check(modify(e->qp, attr, both) == EINVAL, "an address of port 2");
	attr = alternate(e, 0);
	attr.alt_ah_attr.is_global = 0;
	check(modify(e->qp, attr, both) == EINVAL, "an address without a GID");
	attr = alternate(e, 0);
	attr.alt_ah_attr.grh.sgid_index = 77;
	check(modify(e->qp, attr, both) == EINVAL, "no such GID");
	attr = alternate(e, 0);
	attr.alt_pkey_index = 1;
	check(modify(e->qp, attr, both) == EINVAL, "no such P_Key");
	attr = alternate(e, 0);
	attr.alt_timeout = 32;
	check(modify(e->qp, attr, both) == EINVAL, "a timeout of 6 bits");
	attr = alternate(e, 0);
	check(modify(e->qp, attr, IBV_QP_PATH_MIG_STATE) == EINVAL, "REARM without a path");
	check(query(e->qp).path_mig_state == IBV_MIG_MIGRATED, "nothing has changed");
	check(query(e->qp).alt_port_num == 0, "and no path is loaded");
}

static void
calls(struct end *e)
{
	const int both = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
	struct ibv_device_attr device;
	struct ibv_qp_attr is, attr;
	struct ibv_qp *ud;

	open_device(e);
	check(ibv_query_device(e->ctx, &device) == 0, "the device");
	check((device.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG) != 0, "what it can");
	e->gid_index[0] = e->gid_index[1] = gid_index(e, "127.0.0.1", &e->peer.gid[0]);
	e->peer.gid[1] = e->peer.gid[0];
	ud = make_qp(e, IBV_QPT_UD);
	to_init(ud, IBV_QPT_UD);
	attr = alternate(e, 0);
	check(modify(ud, attr, IBV_QP_ALT_PATH) == EINVAL, "UD has no path");
	e->qp = make_qp(e, IBV_QPT_RC);
	check(modify(e->qp, attr, both) == EINVAL, "RESET");
	to_init(e->qp, IBV_QPT_RC);
	check(modify(e->qp, attr, IBV_QP_ALT_PATH) == EINVAL, "INIT");
	e->peer.qpn = e->qp->qp_num; /* the queue pair is connected to itself */
	e->peer.psn = e->own.psn = 1;
	to_rtr(e);
	check(query(e->qp).alt_port_num == 1, "loaded at RTR");
	check(modify(e->qp, attr, both) == EINVAL, "RTR");
	to_rts(e);
	is = query(e->qp);
	check(is.path_mig_state == IBV_MIG_REARM && is.alt_timeout == TIMEOUT, "REARM");
	check(is.alt_ah_attr.grh.hop_limit == 64 && is.alt_ah_attr.is_global, "its address");
	check(memcmp(&is.alt_ah_attr.grh.dgid, &e->peer.gid[0], 16) == 0, "its GID");
	attr.path_mig_state = IBV_MIG_MIGRATED;
	check(modify(e->qp, attr, IBV_QP_PATH_MIG_STATE) == EINVAL, "MIGRATED in REARM");
	check(modify(e->qp, attr, IBV_QP_ALT_PATH) == EINVAL, "another path in REARM");
	check(modify(e->qp, alternate(e, 0), both) == 0, "another path, and REARM once more");
	attr.qp_state = IBV_QPS_RESET;
	check(modify(e->qp, attr, IBV_QP_STATE) == 0, "to RESET");
	check(query(e->qp).path_mig_state == IBV_MIG_MIGRATED, "RESET forgets it");
	to_init(e->qp, IBV_QPT_RC);
	to_rtr(e);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = TIMEOUT};
	check(modify(e->qp, attr,
		      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_PATH_MIG_STATE) ==
			0,
		"MIGRATED in MIGRATED");
	attr.qp_state = IBV_QPS_RESET;
	check(modify(e->qp, attr, IBV_QP_STATE) == 0, "to RESET again");
	to_init(e->qp, IBV_QPT_RC);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.ah_attr = address_of(e, 0),
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = e->peer.qpn,
	};
	check(modify(e->qp, attr,
		      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
		"to RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = TIMEOUT};
	check(modify(e->qp, attr,
		      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
		"to RTS");
	check_refused(e);
	say("all right");
}

int
main(int argc, char **argv)
{
	struct end e = {0};
	bool receives, shared;

	if (argc == 2 && strcmp(argv[1], "calls") == 0) {
		calls(&e);
		return 0;
	}
	if (argc != 5)
		return 2;
	shared = strcmp(argv[1], "receive-srq") == 0;
	receives = shared || strcmp(argv[1], "receive") == 0;
	connect_ends(&e, argv[2], receives, shared, argv + 3);
	if (receives)
		receive(&e);
	else if (strcmp(argv[1], "send") == 0)
		send_until_migrated(&e);
	else
		command(&e);
	return 0;
}
