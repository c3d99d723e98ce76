/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program that uses librdmacm and its calls for enhanced connection establishment.  ece.py uses
 * it, and so does the suite interop, with Linux at one end:
 *
 *   ece-program calls                       tests the calls of libibverbs, on the first device
 *   ece-program stay IP PORT                connects, and stays connected until it is killed
 *   ece-program visit IP PORT               connects, and disconnects
 *   ece-program echo IP PORT                listens, and answers each offer with the offer
 *   ece-program claim IP PORT VENDOR OPTIONS  offers these values, which must be refused
 *   ece-program offer IP PORT VENDOR OPTIONS  offers these values, prints the answer, disconnects
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include "must.h"

#define RESOLVE_MS 120000

static void
check(bool right, const char *what)
{
	if (right)
		return;
	printf("wrong: %s (errno %d)\n", what, errno);
	exit(1);
}

static struct ibv_qp_init_attr
init_of(enum ibv_qp_type type, struct ibv_cq *cq)
{
	return (struct ibv_qp_init_attr){.qp_type = type,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
}

/* A queue pair number for a program without a queue pair: one that no other program has used
 * recently. */
static uint32_t
some_qpn(void)
{
	return 0x10000u | ((uint32_t)getpid() & 0xffff);
}

static struct rdma_conn_param
params(uint32_t qpn)
{
	return (struct rdma_conn_param){.responder_resources = 4,
		.initiator_depth = 4,
		.retry_count = 7,
		.rnr_retry_count = 7,
		.qp_num = qpn};
}

/* --- calls --- */

static bool
set(struct ibv_qp *qp, uint32_t vendor, uint32_t options, int error, uint32_t holds)
{
	struct ibv_ece ece = {.vendor_id = vendor, .options = options};
	int ret = ibv_set_ece(qp, &ece);

	if (error != 0)
		return ret == error && ece.vendor_id == vendor && ece.options == options;
	if (ret != 0 || ece.options != holds)
		return false;
	return ibv_query_ece(qp, &ece) == 0 && ece.options == holds && ece.vendor_id != 0;
}

static void
check_rc(struct ibv_qp *qp)
{
	struct ibv_ece offer = {.comp_mask = 77}, more = {0};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	uint32_t answer;

	check(ibv_query_ece(qp, &offer) == 0, "query");
	check(offer.vendor_id >> 24 == 0 && offer.vendor_id != 0, "vendor of 24 bits");
	check(offer.options != 0 && offer.comp_mask == 0, "options, comp_mask");
	more = offer;
	check(ibv_set_ece(qp, &more) == 0, "set");
	answer = more.options;
	check(answer != 0 && answer != offer.options, "the answer is not the offer");
	check(set(qp, offer.vendor_id, answer, 0, answer), "the answer holds");
	check(set(qp, offer.vendor_id, offer.options | 0xfe, 0, answer), "more is reduced");
	check(set(qp, offer.vendor_id, answer | 0x02, 0, 0), "an answer with more is none");
	check(set(qp, offer.vendor_id, 0xffffffff, 0, 0), "nonsense is nothing");
	check(set(qp, 0, 0, EOPNOTSUPP, 0), "libibverbs does not say nothing");
	check(set(qp, 0x15b3, offer.options, EINVAL, 0), "another vendor's");
	check(set(qp, offer.vendor_id | 1u << 24, offer.options, EINVAL, 0), "a long vendor");
	more = offer;
	more.comp_mask = 1;
	check(ibv_set_ece(qp, &more) != 0, "comp_mask");
	check(set(qp, offer.vendor_id, offer.options, 0, answer), "once more");
	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "to ERR");
	check(set(qp, offer.vendor_id, answer, EINVAL, 0), "in ERR it is too late");
	attr.qp_state = IBV_QPS_RESET;
	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "to RESET");
	check(ibv_query_ece(qp, &more) == 0 && more.options == offer.options, "RESET ends it");
}

static void
calls(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list != NULL && *list != NULL ? ibv_open_device(*list) : NULL;
	struct ibv_qp_init_attr init;
	struct ibv_ece ece = {0};
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	must(ctx == NULL, "a device");
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	must(pd == NULL || cq == NULL, "PD, CQ");
	for (enum ibv_qp_type type = IBV_QPT_RC; type <= IBV_QPT_UD; type++) {
		init = init_of(type, cq);
		qp = ibv_create_qp(pd, &init);
		must(qp == NULL, "QP");
		if (type == IBV_QPT_RC)
			check_rc(qp);
		else
			check(ibv_query_ece(qp, &ece) == EOPNOTSUPP &&
					ibv_set_ece(qp, &ece) == EOPNOTSUPP,
				"types that have none");
		must(ibv_destroy_qp(qp), "ibv_destroy_qp");
	}
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	ibv_close_device(ctx);
	ibv_free_device_list(list);
	puts("all right");
}

/* --- connections --- */

static void
resolved(struct rdma_cm_id *id, const char *mode, char **words)
{
	struct rdma_conn_param p = params(some_qpn());
	struct ibv_qp_init_attr init = init_of(IBV_QPT_RC, NULL);
	struct ibv_ece ece = {0};

	if (strcmp(mode, "stay") == 0 || strcmp(mode, "visit") == 0) {
		must(rdma_create_qp(id, NULL, &init), "rdma_create_qp");
		must(rdma_connect(id, &p), "rdma_connect");
		return;
	}
	ece.vendor_id = (uint32_t)strtoul(words[0], NULL, 0);
	ece.options = (uint32_t)strtoul(words[1], NULL, 0);
	must(rdma_set_local_ece(id, &ece), "rdma_set_local_ece");
	if (strcmp(mode, "offer") == 0) {
		must(rdma_connect(id, &p), "rdma_connect");
		return;
	}
	check(rdma_connect(id, &p) == -1 && errno == EINVAL, "a claim");
	puts("refused");
	exit(0);
}

static void
leave(struct rdma_cm_id *id)
{
	struct ibv_ece ece = {0};

	/* for a queue pair of librdmacm's the call returns nothing: librdmacm has set the answer */
	if (id->qp == NULL) {
		must(rdma_get_remote_ece(id, &ece), "rdma_get_remote_ece");
		printf("answered %#x %#x\n", ece.vendor_id, ece.options);
	}
	must(rdma_disconnect(id), "rdma_disconnect");
}

/* A program without a queue pair of librdmacm's must call rdma_establish() itself. */
static void
establish(struct rdma_cm_id *id)
{
	must(rdma_establish(id), "rdma_establish");
	leave(id);
}

/* Accepts a request.  This program has no queue pair: it sends the peer a made-up number. */
static void
echo(struct rdma_cm_id *id)
{
	struct rdma_conn_param p = params(some_qpn());
	struct ibv_ece ece = {0};

	must(rdma_get_remote_ece(id, &ece), "rdma_get_remote_ece");
	printf("offered %#x %#x\n", ece.vendor_id, ece.options);
	if (ece.vendor_id != 0)
		must(rdma_set_local_ece(id, &ece), "rdma_set_local_ece");
	must(rdma_accept(id, &p), "rdma_accept");
}

static void
handle(struct rdma_event_channel *channel, const char *mode, char **words)
{
	enum rdma_cm_event_type what;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	must(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	what = event->event;
	id = event->id;
	rdma_ack_cm_event(event);
	puts(rdma_event_str(what));
	if (what == RDMA_CM_EVENT_ADDR_RESOLVED)
		must(rdma_resolve_route(id, RESOLVE_MS), "rdma_resolve_route");
	else if (what == RDMA_CM_EVENT_ROUTE_RESOLVED)
		resolved(id, mode, words);
	else if (what == RDMA_CM_EVENT_CONNECT_REQUEST)
		echo(id);
	else if (what == RDMA_CM_EVENT_CONNECT_RESPONSE)
		establish(id);
	else if (what == RDMA_CM_EVENT_ESTABLISHED && strcmp(mode, "visit") == 0)
		leave(id);
	else if (what == RDMA_CM_EVENT_DISCONNECTED && strcmp(mode, "echo") == 0)
		must(rdma_disconnect(id), "rdma_disconnect");
	else if (what == RDMA_CM_EVENT_DISCONNECTED)
		exit(0);
	else if (what == RDMA_CM_EVENT_CONNECT_ERROR || what == RDMA_CM_EVENT_REJECTED)
		exit(1);
}

int
main(int argc, char **argv)
{
	struct sockaddr_in addr = {.sin_family = AF_INET};
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 2 && strcmp(argv[1], "calls") == 0) {
		calls();
		return 0;
	}
	if (argc != (argc > 1 && (argv[1][0] == 'c' || argv[1][0] == 'o') ? 6 : 4))
		return 2;
	inet_pton(AF_INET, argv[2], &addr.sin_addr);
	addr.sin_port = htons((uint16_t)atoi(argv[3]));
	channel = rdma_create_event_channel();
	must(channel == NULL, "rdma_create_event_channel");
	must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	if (strcmp(argv[1], "echo") == 0) {
		must(rdma_bind_addr(id, (struct sockaddr *)&addr), "rdma_bind_addr");
		must(rdma_listen(id, 0), "rdma_listen");
		puts("listening");
	} else {
		must(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, RESOLVE_MS),
			"rdma_resolve_addr");
	}
	for (;;)
		handle(channel, argv[1], argv + 4);
}
