/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * shared SOCKET: a program with memory of every kind, for rights.py.
 *
 * It registers POSIX shared memory whose file others may not open, a file of its own that is
 * mapped, and private memory, writes from each to each over the loopback port and checks the bytes.
 * It prints "KIND: COPIED of BYTES are copied" for each, and "done".
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "karst.h"

#define BYTES 65536u
#define KINDS 3u

struct memory {
	const char *kind;
	uint8_t *mem;
	struct karst_mr *mr;
};

struct program {
	struct karst_context *ctx;
	struct karst_pd *pd;
	struct karst_cq *cq;
	struct karst_qp *qp;
	struct memory memory[KINDS];
};

/* Ends the program unless @good. */
static void
must(bool good, const char *what)
{
	if (good)
		return;
	printf("%s: %s\n", what, karst_why());
	exit(1);
}

static uint8_t *
map(int fd, const char *what)
{
	uint8_t *p;

	must(fd >= 0 && ftruncate(fd, BYTES) == 0, what);
	p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(p != MAP_FAILED, what);
	close(fd);
	return p;
}

static uint8_t *
posix_shm(void)
{
	char name[32];
	uint8_t *p;
	int fd;

	snprintf(name, sizeof(name), "/karst-shared-%d", (int)getpid());
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	p = map(fd, "POSIX shared memory");
	shm_unlink(name);
	return p;
}

static uint8_t *
own_file(void)
{
	char name[] = "/dev/shm/karst-file-XXXXXX";
	uint8_t *p = map(mkstemp(name), "a file");

	unlink(name);
	return p;
}

static void
register_all(struct program *p)
{
	uint32_t i;

	p->memory[0] = (struct memory){"posix", posix_shm(), NULL};
	p->memory[1] = (struct memory){"file", own_file(), NULL};
	p->memory[2] = (struct memory){"malloc", calloc(1, BYTES), NULL};
	for (i = 0; i < KINDS; i++) {
		struct memory *m = &p->memory[i];

		must(karst_reg_mr(p->pd, m->mem, BYTES,
			     KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE, &m->mr) == 0,
			m->kind);
		printf("%s: %llu of %u are copied\n", m->kind,
			(unsigned long long)m->mr->copied_bytes, BYTES);
	}
}

/* The queue pair's peer is itself. */
static void
connect_qp(struct program *p)
{
	struct karst_qp_init_attr init = {.send_cq = p->cq,
		.recv_cq = p->cq,
		.qp_type = KARST_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct karst_qp_attr a = {.qp_state = KARST_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = KARST_ACCESS_REMOTE_WRITE,
		.path_mtu = KARST_MTU_4096,
		.ah_attr = {.port_num = 1},
		.retry_cnt = 7,
		.rnr_retry = 7};

	must(karst_create_qp(p->pd, &init, &p->qp) == 0, "queue pair");
	must(karst_query_gid(p->ctx, 1, 0, &a.ah_attr.dgid) == 0, "address");
	a.dest_qp_num = p->qp->qp_num;
	must(karst_modify_qp(p->qp, &a,
		     KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT |
			     KARST_QP_ACCESS_FLAGS) == 0,
		"to INIT");
	a.qp_state = KARST_QPS_RTR;
	must(karst_modify_qp(p->qp, &a,
		     KARST_QP_STATE | KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN |
			     KARST_QP_RQ_PSN | KARST_QP_MAX_DEST_RD_ATOMIC |
			     KARST_QP_MIN_RNR_TIMER) == 0,
		"to RTR");
	a.qp_state = KARST_QPS_RTS;
	must(karst_modify_qp(p->qp, &a,
		     KARST_QP_STATE | KARST_QP_SQ_PSN | KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT |
			     KARST_QP_RNR_RETRY | KARST_QP_MAX_QP_RD_ATOMIC) == 0,
		"to RTS");
}

static void
write_and_look(struct program *p, const struct memory *from, const struct memory *to, uint8_t byte)
{
	struct karst_sge sge = {.addr = (uintptr_t)from->mem, .len = BYTES, .lkey = from->mr->lkey};
	struct karst_send_wr wr = {.sg_list = &sge,
		.num_sge = 1,
		.opcode = KARST_WR_RDMA_WRITE,
		.send_flags = KARST_SEND_SIGNALED,
		.rdma = {.remote_addr = (uintptr_t)to->mem, .rkey = to->mr->rkey}};
	struct karst_cqe e;
	int n;

	memset(from->mem, byte, BYTES);
	must(karst_post_send(p->qp, &wr, NULL) == 0, "posting");
	do
		n = karst_poll_cq(p->cq, 1, &e);
	while (n == 0);
	must(n == 1 && e.status == KARST_WC_SUCCESS, "completion");
	must(memcmp(from->mem, to->mem, BYTES) == 0, "bytes that were written");
}

int
main(int argc, char **argv)
{
	const struct karst_open_attr attr = {.program = "shared", .migrate_min = UINT64_MAX};
	struct program p = {NULL};
	uint32_t i, j;

	setvbuf(stdout, NULL, _IOLBF, 0);
	must(argc == 2, "shared SOCKET");
	must(karst_open(argv[1], &attr, &p.ctx) == 0, "attaching");
	must(karst_alloc_pd(p.ctx, &p.pd) == 0, "domain");
	must(karst_create_cq(p.ctx, 4, NULL, NULL, &p.cq) == 0, "completion queue");
	register_all(&p);
	connect_qp(&p);
	for (i = 0; i < KINDS; i++)
		for (j = 0; j < KINDS; j++)
			if (i != j)
				write_and_look(&p, &p.memory[i], &p.memory[j],
					(uint8_t)(1 + i * KINDS + j));
	puts("done");
	return 0;
}
