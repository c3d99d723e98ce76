/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * member SOCKET GROUP COUNT [send]: a program in a multicast group, for ports.py and groups.py.
 *
 * It attaches a UD queue pair of the first port to GROUP, an IP address, and prints "ready".  With
 * "send" it waits for a line of input and sends COUNT messages to the group.  It prints "message N"
 * for each that it receives, and ends when its input ends.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "karst.h"

#define QKEY  0x77u
#define GRH   40u
#define SLOT  256u
#define SLOTS 64u

struct member {
	struct karst_context *ctx;
	struct karst_pd *pd;
	struct karst_cq *cq;
	struct karst_qp *qp;
	struct karst_mr *mr;
	union karst_gid group;
	uint8_t *mem; /* SLOTS to receive into, one to send from */
};

/* Ends the program unless @ret is 0. */
static void
must(int ret, const char *what)
{
	if (ret == 0)
		return;
	printf("%s: %d, %s\n", what, ret, karst_why());
	exit(1);
}

static void
to_rts(struct karst_qp *qp)
{
	struct karst_qp_attr a = {.port_num = 1, .qkey = QKEY, .qp_state = KARST_QPS_INIT};

	must(karst_modify_qp(
		     qp, &a, KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT | KARST_QP_QKEY),
		"INIT");
	a.qp_state = KARST_QPS_RTR;
	must(karst_modify_qp(qp, &a, KARST_QP_STATE), "RTR");
	a.qp_state = KARST_QPS_RTS;
	must(karst_modify_qp(qp, &a, KARST_QP_STATE | KARST_QP_SQ_PSN), "RTS");
}

static void
post_recv(struct member *m, uint32_t slot)
{
	struct karst_sge sge = {m->mr->iova + slot * SLOT, SLOT, m->mr->lkey};
	struct karst_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1};

	must(karst_post_recv(m->qp, &wr, NULL), "receive");
}

static void
join(struct member *m, const char *socket, const char *group)
{
	struct karst_qp_init_attr init = {.qp_type = KARST_QPT_UD,
		.cap = {.max_send_wr = SLOTS,
			.max_recv_wr = SLOTS,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	uint32_t i;

	m->group = (union karst_gid){.raw = {[10] = 0xff, 0xff}};
	if (inet_pton(AF_INET, group, m->group.raw + 12) != 1 &&
		inet_pton(AF_INET6, group, m->group.raw) != 1)
		must(-1, "not an address");
	must(karst_open(socket, NULL, &m->ctx), "open");
	must(karst_alloc_pd(m->ctx, &m->pd), "domain");
	must(karst_create_cq(m->ctx, 2 * SLOTS, NULL, NULL, &m->cq), "completion queue");
	m->mem = karst_alloc((SLOTS + 1) * SLOT);
	must(m->mem == NULL, "memory");
	must(karst_reg_mr(m->pd, m->mem, (SLOTS + 1) * SLOT, KARST_ACCESS_LOCAL_WRITE, &m->mr),
		"region");
	init.send_cq = init.recv_cq = m->cq;
	must(karst_create_qp(m->pd, &init, &m->qp), "queue pair");
	to_rts(m->qp);
	for (i = 0; i < SLOTS; i++)
		post_recv(m, i);
	must(karst_attach_mcast(m->qp, &m->group), "attach");
}

static void
send_all(struct member *m, uint32_t count)
{
	struct karst_ah_attr attr = {.dgid = m->group, .port_num = 1, .hop_limit = 1};
	uint32_t *word = (uint32_t *)(void *)(m->mem + SLOTS * SLOT), i;
	struct karst_ah *ah;

	must(karst_create_ah(m->pd, &attr, &ah), "address");
	for (i = 0; i < count; i++) {
		struct karst_sge sge = {(uintptr_t)&word[i], sizeof(word[i]), m->mr->lkey};
		struct karst_send_wr wr = {.wr_id = i,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = KARST_WR_SEND,
			.ud = {.ah = ah, .remote_qpn = 0xffffff, .remote_qkey = QKEY}};

		word[i] = i;
		must(karst_post_send(m->qp, &wr, NULL), "send");
	}
}

int
main(int argc, char **argv)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	struct member m = {NULL};
	struct karst_cqe e;
	char line[64];
	int n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 4 || atoi(argv[3]) < 1 || atoi(argv[3]) > (int)(SLOT / sizeof(uint32_t)))
		must(-1, "member SOCKET GROUP COUNT [send], COUNT up to 64");
	join(&m, argv[1], argv[2]);
	puts("ready");
	if (argc > 4 && fgets(line, sizeof(line), stdin) != NULL)
		send_all(&m, (uint32_t)atoi(argv[3]));
	while (poll(&in, 1, 1) == 0) {
		while ((n = karst_poll_cq(m.cq, 1, &e)) == 1) {
			must(e.status, karst_wc_status_str((enum karst_wc_status)e.status));
			if (e.opcode != KARST_WC_RECV)
				continue;
			printf("message %u\n", *(uint32_t *)(void *)(m.mem + e.wr_id * SLOT + GRH));
			post_recv(&m, (uint32_t)e.wr_id);
		}
		must(n, "poll");
	}
	return 0;
}
