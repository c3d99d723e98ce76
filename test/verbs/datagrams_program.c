/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A verbs program with a UD queue pair in multicast groups, for datagrams.py:
 *
 *   datagrams-program ADDRESS GROUP...
 *
 * An identifier of librdmacm is bound to ADDRESS and joins each GROUP.  The program answers each
 * question that it receives: to the queue pair that has asked, by an address handle that is made of
 * the completion and the GRH (ibv_init_ah_from_wc()).  For a question to a group, of which that
 * function makes nothing, it is made of the source address alone.  The program keeps the first
 * handle.  It prints what it receives, and events.  Its input:
 *
 *   ask G N    sends question N to group number G, by the handle that was made when it joined
 *   fresh G    makes that handle anew
 *   back N     sends question N by the handle that it has kept
 *   recover    sets the queue pair to RTS after a send has failed
 *   churn N    makes and destroys a handle and joins and leaves a group by ibv_attach_mcast(), N
 *              times
 *   end        leaves the groups, destroys all objects, and ends
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

#include <infiniband/verbs.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>

#define GRH    40u
#define SLOT   128u
#define SLOTS  64u
#define GROUPS 4u
#define ASKS   0x61736b73u
#define TELLS  0x74656c6cu

struct group {
	struct sockaddr_storage addr;
	struct rdma_ud_param ud;
	struct ibv_ah *ah;
};

struct talker {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *mem; /* SLOTS to receive into, SLOTS to send from */
	uint32_t sent;
	struct group group[GROUPS];
	struct ibv_ah *kept;
	uint32_t kept_qpn;
	struct ibv_ah_attr kept_attr;
};

static void
check(bool right, const char *what)
{
	if (right)
		return;
	printf("wrong: %s (errno %d, %s)\n", what, errno, strerror(errno));
	exit(1);
}

static void
read_address(const char *text, struct sockaddr_storage *to)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM}, *found;

	check(getaddrinfo(text, NULL, &hints, &found) == 0, text);
	memcpy(to, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
}

static void
post_recv(struct talker *t, uint64_t slot)
{
	struct ibv_sge sge = {(uintptr_t)t->mem + slot * SLOT, SLOT, t->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

	check(ibv_post_recv(t->id->qp, &wr, &bad) == 0, "a receive");
}

/* @destroy: the handle is destroyed when the datagram was sent. */
static void
send_word(
	struct talker *t, struct ibv_ah *ah, uint32_t qpn, uint32_t kind, uint32_t n, bool destroy)
{
	uint8_t *at = t->mem + (SLOTS + t->sent++ % SLOTS) * SLOT;
	struct ibv_sge sge = {(uintptr_t)at, 8, t->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = destroy ? (uintptr_t)ah : 0,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED,
				   .wr.ud = {ah, qpn, t->group[0].ud.qkey}},
			   *bad;

	memcpy(at, &kind, sizeof(kind));
	memcpy(at + 4, &n, sizeof(n));
	check(ibv_post_send(t->id->qp, &wr, &bad) == 0, "a send");
}

/* --- creating --- */

static void
create(struct talker *t, const char *address)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UD,
		.cap = {.max_send_wr = SLOTS,
			.max_recv_wr = SLOTS,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	struct sockaddr_storage own;
	uint64_t i;

	read_address(address, &own);
	t->channel = rdma_create_event_channel();
	check(t->channel != NULL, "a channel");
	check(rdma_create_id(t->channel, &t->id, NULL, RDMA_PS_UDP) == 0, "an identifier");
	check(rdma_bind_addr(t->id, (struct sockaddr *)&own) == 0, "to bind");
	check(t->id->verbs != NULL, "a device");
	t->pd = ibv_alloc_pd(t->id->verbs);
	t->cq = ibv_create_cq(t->id->verbs, 2 * SLOTS, NULL, NULL, 0);
	t->mem = calloc(2 * SLOTS, SLOT);
	check(t->pd != NULL && t->cq != NULL && t->mem != NULL, "objects");
	t->mr = ibv_reg_mr(t->pd, t->mem, 2 * SLOTS * SLOT, IBV_ACCESS_LOCAL_WRITE);
	check(t->mr != NULL, "a region");
	init.send_cq = init.recv_cq = t->cq;
	check(rdma_create_qp(t->id, t->pd, &init) == 0, "a queue pair");
	for (i = 0; i < SLOTS; i++)
		post_recv(t, i);
}

static void
make_handle(struct talker *t, struct group *g)
{
	if (g->ah != NULL)
		check(ibv_destroy_ah(g->ah) == 0, "to destroy a handle");
	g->ah = ibv_create_ah(t->pd, &g->ud.ah_attr);
	check(g->ah != NULL, "a handle of a group");
}

static void
join(struct talker *t, struct group *g, const char *text)
{
	struct rdma_cm_event *event;

	read_address(text, &g->addr);
	check(rdma_join_multicast(t->id, (struct sockaddr *)&g->addr, g) == 0, "to join");
	check(rdma_get_cm_event(t->channel, &event) == 0, "an event");
	check(event->event == RDMA_CM_EVENT_MULTICAST_JOIN, rdma_event_str(event->event));
	g->ud = event->param.ud;
	check(rdma_ack_cm_event(event) == 0, "to acknowledge");
	make_handle(t, g);
}

/* --- what happens --- */

/* Makes the address of the queue pair that has sent a datagram. */
static void
address_of(struct talker *t, struct ibv_wc *wc, uint8_t *grh, struct ibv_ah_attr *attr)
{
	bool ip6 = grh[0] >> 4 == 6, group = ip6 ? grh[24] == 0xff : grh[36] >> 4 == 14;

	if (!group) {
		check(ibv_init_ah_from_wc(t->id->verbs, 1, wc, (struct ibv_grh *)grh, attr) == 0,
			"an address of a completion");
		return;
	}
	*attr = t->group[0].ud.ah_attr;
	memset(&attr->grh.dgid, 0, sizeof(attr->grh.dgid));
	memset(attr->grh.dgid.raw + 10, 0xff, 2);
	memcpy(attr->grh.dgid.raw + (ip6 ? 0 : 12), grh + (ip6 ? 8 : 32), ip6 ? 16 : 4);
}

static void
heard(struct talker *t, struct ibv_wc *wc)
{
	uint8_t *at = t->mem + wc->wr_id * SLOT;
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;
	uint32_t kind, n;

	check((wc->wc_flags & IBV_WC_GRH) != 0 && wc->byte_len == GRH + 8, "a datagram");
	memcpy(&kind, at + GRH, sizeof(kind));
	memcpy(&n, at + GRH + 4, sizeof(n));
	if (kind == ASKS && wc->src_qp != t->id->qp->qp_num) {
		printf("asked %u\n", n);
		address_of(t, wc, at, &attr);
		ah = ibv_create_ah(t->pd, &attr);
		if (ah == NULL)
			printf("no handle for the answer to %u: %s\n", n, strerror(errno));
		else
			send_word(t, ah, wc->src_qp, TELLS, n, t->kept != NULL);
		if (t->kept == NULL && ah != NULL) {
			t->kept = ah;
			t->kept_qpn = wc->src_qp;
			t->kept_attr = attr;
		}
	} else if (kind == TELLS) {
		printf("answer %u\n", n);
	}
	post_recv(t, wc->wr_id);
}

static void
poll_all(struct talker *t)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(t->cq, 1, &wc)) == 1) {
		if (wc.status != IBV_WC_SUCCESS)
			printf("failed: %s\n", ibv_wc_status_str(wc.status));
		else if (wc.opcode & IBV_WC_RECV)
			heard(t, &wc);
		else if (wc.wr_id != 0)
			check(ibv_destroy_ah((struct ibv_ah *)wc.wr_id) == 0, "a used handle");
	}
	check(n == 0, "polling");
}

static void
show_events(struct talker *t)
{
	struct ibv_async_event async;
	struct rdma_cm_event *cm;

	while (ibv_get_async_event(t->id->verbs, &async) == 0) {
		printf("event %d %s\n", async.event_type, ibv_event_type_str(async.event_type));
		ibv_ack_async_event(&async);
	}
	while (rdma_get_cm_event(t->channel, &cm) == 0) {
		printf("cm %s\n", rdma_event_str(cm->event));
		rdma_ack_cm_event(cm);
	}
}

/* --- commands --- */

static void
churn(struct talker *t, uint32_t n)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, 0xff, 239, 9, 0, 0}};
	struct ibv_ah *ah;
	uint32_t i, none = 0;

	for (i = 0; i < n; i++) {
		ah = t->kept != NULL ? ibv_create_ah(t->pd, &t->kept_attr) : NULL;
		none += ah == NULL;
		gid.raw[14] = (uint8_t)(i >> 8);
		gid.raw[15] = (uint8_t)i;
		check(ibv_attach_mcast(t->id->qp, &gid, 0) == 0, "to attach");
		check(ibv_detach_mcast(t->id->qp, &gid, 0) == 0, "to detach");
		check(ah == NULL || ibv_destroy_ah(ah) == 0, "to destroy a handle");
	}
	printf("churned %u, %u without a handle\n", n, none);
}

static void
finish(struct talker *t)
{
	uint32_t i;

	for (i = 0; i < GROUPS && t->group[i].ah != NULL; i++) {
		check(ibv_destroy_ah(t->group[i].ah) == 0, "the handle of a group");
		check(rdma_leave_multicast(t->id, (struct sockaddr *)&t->group[i].addr) == 0,
			"to leave");
	}
	check(t->kept == NULL || ibv_destroy_ah(t->kept) == 0, "the handle that was kept");
	rdma_destroy_qp(t->id);
	check(ibv_dereg_mr(t->mr) == 0 && ibv_destroy_cq(t->cq) == 0 &&
			ibv_dealloc_pd(t->pd) == 0 && rdma_destroy_id(t->id) == 0,
		"to destroy all");
	rdma_destroy_event_channel(t->channel);
	free(t->mem);
	puts("ended");
	exit(0);
}

static void
command(struct talker *t, char *line)
{
	unsigned int a = 0, b = 0;

	if (sscanf(line, "ask %u %u", &a, &b) == 2 && a < GROUPS && t->group[a].ah != NULL)
		send_word(t, t->group[a].ah, t->group[a].ud.qp_num, ASKS, b, false);
	else if (sscanf(line, "fresh %u", &a) == 1 && a < GROUPS && t->group[a].ah != NULL)
		make_handle(t, &t->group[a]);
	else if (sscanf(line, "back %u", &a) == 1 && t->kept != NULL)
		send_word(t, t->kept, t->kept_qpn, ASKS, a, false);
	else if (strncmp(line, "recover", 7) == 0)
		check(ibv_modify_qp(t->id->qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_RTS},
			      IBV_QP_STATE) == 0,
			"to recover");
	else if (sscanf(line, "churn %u", &a) == 1)
		churn(t, a);
	else if (strncmp(line, "end", 3) == 0)
		finish(t);
	else
		check(false, line);
	puts("done");
}

int
main(int argc, char **argv)
{
	struct talker t = {NULL};
	size_t n = 0;
	char line[64];
	int i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	check(argc >= 3 && argc <= 2 + (int)GROUPS, "ADDRESS GROUP..., up to 4");
	create(&t, argv[1]);
	for (i = 2; i < argc; i++)
		join(&t, &t.group[i - 2], argv[i]);
	check(fcntl(t.id->verbs->async_fd, F_SETFL, O_NONBLOCK) == 0 &&
			fcntl(t.channel->fd, F_SETFL, O_NONBLOCK) == 0,
		"events that do not block");
	puts("ready");
	for (;;) {
		struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};

		if (poll(&in, 1, 1) > 0) {
			check(read(STDIN_FILENO, line + n, 1) == 1 && n < sizeof(line) - 1,
				"a command");
			if (line[n++] == '\n') {
				line[n - 1] = '\0';
				n = 0;
				command(&t, line);
			}
		}
		poll_all(&t);
		show_events(&t);
	}
}
