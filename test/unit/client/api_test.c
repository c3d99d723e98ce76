/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Objects: what can be made, what is refused with which error, in which order things go. */
#include "client_bed.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst_log.h"

#define says(word) cr_assert_not_null(strstr(karst_why(), word), "it says: %s", karst_why())

Test(client_api, device_and_ports)
{
	struct karst_gid_entry table[8];
	struct karst_device_attr device;
	struct karst_port_attr port;
	union karst_gid gid;
	struct client_bed b;
	uint32_t cpu;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_query_device(b.ctx, &device), 0);
	cr_assert_eq(device.nports, 2);
	cr_assert_eq(b.ctx->nports, 2);
	cr_assert_str_eq(device.version, karst_version());
	cr_assert_gt(device.max_qp, 0);
	cr_assert_geq(device.max_qp_wr, 1024);
	/* the bed's poller may run anywhere */
	cr_assert_eq(karst_query_lcore(b.ctx, 0, &cpu), -ENODATA);
	cr_assert_eq(karst_query_lcore(b.ctx, 1, &cpu), -EINVAL);
	cr_assert_eq(karst_query_port(b.ctx, 2, &port), 0);
	cr_assert_eq(port.state, KARST_PORT_ACTIVE);
	cr_assert_eq(port.mac[5], 2);
	cr_assert_eq(karst_query_port(b.ctx, 0, &port), -EINVAL);
	cr_assert_eq(karst_query_port(b.ctx, 3, &port), -EINVAL);
	says("3");
	cr_assert_eq(karst_query_gid(b.ctx, 2, 0, &gid), 0);
	cr_assert_eq(gid.raw[10], 0xff);
	cr_assert_eq(gid.raw[15], 2);
	cr_assert_lt(karst_query_gid(b.ctx, 2, 40, &gid), 0);
	cr_assert_lt(karst_query_gid(b.ctx, 9, 0, &gid), 0);
	cr_assert_eq(karst_query_gid_table(b.ctx, table, KARST_DIM(table)), 2);
	cr_assert_eq(table[1].port_num, 2);
	cr_assert_eq(table[1].gid_type, 2);
	cr_assert_eq(memcmp(&table[1].gid, &gid, sizeof(gid)), 0);
	cr_assert_eq(karst_query_gid_table(b.ctx, table, 1), 1);
	client_bed_down(&b);
}

/* Whoever has rings mapped, the program or the engine, cannot punch holes into them, at which
 * lcores and control calls of others would wait. */
static unsigned int
rings_with_holes(unsigned int *rings)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned int with = 0;
	char line[512];

	cr_assert_not_null(f);
	for (*rings = 0; fgets(line, sizeof(line), f) != NULL;) {
		uintptr_t from, to;

		if (strstr(line, "/memfd:karst:") == NULL ||
			sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) != 2)
			continue;
		++*rings;
		/* where there is nothing yet, at the end */
		with += madvise((void *)(to - 4096), 4096, MADV_REMOVE) == 0 || errno != EPERM;
	}
	fclose(f);
	return with;
}

Test(client_api, rings_have_no_holes)
{
	struct karst_cq *small, *large;
	unsigned int rings, more;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(rings_with_holes(&rings), 0);
	cr_assert_gt(rings, 0);
	cr_assert_eq(karst_create_cq(b.ctx, 64, NULL, 0, &small), 0, "%s", karst_why());
	cr_assert_eq(karst_create_cq(b.ctx, 200000, NULL, 0, &large), 0, "%s", karst_why());
	cr_assert_eq(rings_with_holes(&more), 0);
	cr_assert_gt(more, rings);
	cr_assert_eq(karst_destroy_cq(large), 0);
	cr_assert_eq(rings_with_holes(&more), 0);
	cr_assert_eq(karst_destroy_cq(small), 0);
	client_bed_down(&b);
}

/* A thread that shares its CPU comes to that of the lcore if it may run there, and stays as free as
 * it was. */
Test(client_api, near_lcore)
{
	cpu_set_t may, elsewhere, left;
	struct client_bed b;
	uint32_t cpu;
	int i, ret;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1, .bound = true});
	cr_assert_eq(karst_query_lcore(b.ctx, 0, &cpu), 0);
	cr_assert_eq(karst_near_lcore(b.ctx, 1), -EINVAL);
	says("lcore 1");
	cr_assert_eq(sched_getaffinity(0, sizeof(may), &may), 0);
	elsewhere = may;
	CPU_CLR(cpu, &elsewhere);
	if (CPU_COUNT(&elsewhere) == 0)
		cr_skip_test("there is one CPU");
	cr_assert_eq(sched_setaffinity(0, sizeof(elsewhere), &elsewhere), 0);
	for (i = 0; i < 100; i++) {
		cr_assert_eq(karst_near_lcore(b.ctx, 0), 0);
		usleep(100);
	}
	do {
		/* the system may have moved it by itself */
		cr_assert_eq(sched_setaffinity(0, sizeof(elsewhere), &elsewhere), 0);
		cr_assert_eq(sched_setaffinity(0, sizeof(may), &may), 0);
		ret = karst_near_lcore(b.ctx, 0);
	} while (ret == 0);
	cr_assert_eq(ret, 1, "%s", karst_why());
	cr_assert_eq(sched_getaffinity(0, sizeof(left), &left), 0);
	cr_assert(CPU_EQUAL(&left, &may));
	client_bed_down(&b);
}

/* An lcore that may run anywhere is near nobody. */
Test(client_api, near_no_lcore)
{
	struct client_bed b;
	int i;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	for (i = 0; i < 100; i++) {
		cr_assert_eq(karst_near_lcore(b.ctx, 0), 0);
		usleep(100);
	}
	client_bed_down(&b);
}

/* What is in use stays, and the sentence says who uses it. */
Test(client_api, order)
{
	struct karst_srq_init_attr sinit = {.max_wr = 4, .max_sge = 1};
	static uint8_t mem[4096];
	struct karst_qp_init_attr init;
	struct karst_comp_channel *ch;
	struct karst_srq *srq;
	struct karst_mr *mr;
	struct karst_qp *qp;
	struct karst_cq *cq;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	mr = client_bed_mr(&b, mem, sizeof(mem));
	cr_assert_eq(karst_create_comp_channel(b.ctx, &ch), 0);
	cr_assert_eq(karst_create_cq(b.ctx, 8, &b, ch, &cq), 0);
	cr_assert_eq(cq->cq_context, &b);
	cr_assert_eq(ch->refs, 1);
	cr_assert_eq(karst_create_srq(b.pd, &sinit, &srq), 0, "%s", karst_why());
	init = client_bed_init(&b, KARST_QPT_RC);
	init.recv_cq = cq;
	init.srq = srq;
	cr_assert_eq(karst_create_qp(b.pd, &init, &qp), 0, "%s", karst_why());
	cr_assert_eq(init.cap.max_recv_wr, 0);
	cr_assert_eq(qp->lcore, srq->lcore);

	cr_assert_eq(karst_close(b.ctx), -EBUSY);
	says("left");
	cr_assert_eq(karst_dealloc_pd(b.pd), -EBUSY);
	cr_assert_eq(karst_destroy_cq(cq), -EBUSY);
	cr_assert_eq(karst_destroy_cq(b.cq), -EBUSY);
	cr_assert_eq(karst_destroy_srq(srq), -EBUSY);
	cr_assert_eq(karst_destroy_comp_channel(ch), -EBUSY);
	cr_assert_eq(karst_destroy_qp(qp), 0);
	cr_assert_eq(karst_destroy_srq(srq), 0);
	cr_assert_eq(karst_destroy_cq(cq), 0);
	cr_assert_eq(karst_destroy_comp_channel(ch), 0);
	cr_assert_eq(karst_dealloc_pd(b.pd), -EBUSY);
	cr_assert_eq(karst_dereg_mr(mr), 0);
	client_bed_down(&b);
}

Test(client_api, refused)
{
	struct karst_srq_init_attr sinit = {.max_wr = 0, .max_sge = 1};
	struct karst_context *other;
	struct karst_qp_init_attr init;
	struct karst_pd *pd;
	struct karst_srq *srq;
	struct karst_qp *qp;
	struct karst_cq *cq;
	struct karst_mr *mr;
	struct karst_mw *mw;
	uint8_t byte;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_create_cq(b.ctx, 0, NULL, NULL, &cq), -EINVAL);
	cr_assert_eq(karst_create_cq(b.ctx, UINT32_MAX, NULL, NULL, &cq), -EINVAL);
	says("4294967295");
	cr_assert_eq(karst_create_srq(b.pd, &sinit, &srq), -EINVAL);
	cr_assert_eq(karst_alloc_mw(b.pd, (enum karst_mw_type)3, &mw), -EINVAL);
	cr_assert_lt(karst_reg_mr(b.pd, &byte, 1, 1u << 30, &mr), 0);
	cr_assert_lt(karst_reg_mr(b.pd, &byte, 1, KARST_ACCESS_REMOTE_WRITE, &mr), 0,
		"remote without local write");
	cr_assert_lt(karst_reg_mr(b.pd, (void *)-8, 16, 0, &mr), 0);
	cr_assert_eq(karst_reg_mr(b.pd, &byte, 1, KARST_ACCESS_FLUSH_PERSISTENT, &mr), -EOPNOTSUPP);
	says("persistent");
	init = client_bed_init(&b, (enum karst_qp_type)8);
	cr_assert_eq(karst_create_qp(b.pd, &init, &qp), -EINVAL);
	init = client_bed_init(&b, KARST_QPT_RC);
	init.cap.max_send_sge = 1000;
	cr_assert_eq(karst_create_qp(b.pd, &init, &qp), -EINVAL);
	says("max_send_sge");
	init = client_bed_init(&b, KARST_QPT_RC);
	init.cap.max_inline_data = 100000;
	cr_assert_eq(karst_create_qp(b.pd, &init, &qp), -EINVAL);
	init = client_bed_init(&b, KARST_QPT_RC);
	init.send_cq = NULL;
	cr_assert_eq(karst_create_qp(b.pd, &init, &qp), -EINVAL);
	init = client_bed_init(&b, KARST_QPT_RC);
	init.on_lcore = true;
	init.lcore = 7;
	cr_assert_eq(karst_create_qp(b.pd, &init, &qp), -EINVAL);
	/* another context's objects */
	other = client_bed_open(&b);
	cr_assert_eq(karst_alloc_pd(other, &pd), 0);
	init = client_bed_init(&b, KARST_QPT_RC);
	cr_assert_eq(karst_create_qp(pd, &init, &qp), -EINVAL);
	says("another");
	cr_assert_eq(karst_dealloc_pd(pd), 0);
	cr_assert_eq(karst_close(other), 0);
	client_bed_down(&b);
}

Test(client_api, modify_and_query)
{
	struct karst_qp_init_attr init;
	struct karst_qp_attr attr;
	struct karst_qp *qp;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	qp = client_bed_qp(&b, KARST_QPT_RC);
	cr_assert_eq(client_bed_to(qp, KARST_QPS_RTR, 1, 5), -EINVAL, "from RESET");
	cr_assert_eq(client_bed_to(qp, KARST_QPS_INIT, 3, 5), -EINVAL, "no such port");
	cr_assert_eq(client_bed_to(qp, KARST_QPS_INIT, 1, 5), 0);
	cr_assert_eq(client_bed_to(qp, KARST_QPS_RTR, 1, 5), 0, "%s", karst_why());
	attr = (struct karst_qp_attr){.qp_state = KARST_QPS_RTS};
	cr_assert_eq(karst_modify_qp(qp, &attr, KARST_QP_STATE), -EINVAL, "attributes missing");
	cr_assert_eq(karst_query_qp(qp, &attr, &init), 0);
	cr_assert_eq(attr.qp_state, KARST_QPS_RTR);
	cr_assert_eq(attr.dest_qp_num, 5);
	cr_assert_eq(attr.path_mtu, KARST_MTU_1024);
	cr_assert_eq(attr.cap.max_send_wr, 16);
	cr_assert_eq(attr.ah_attr.port_num, 1);
	cr_assert_eq(attr.ah_attr.dgid.raw[15], 2);
	cr_assert_eq(init.send_cq, b.cq);
	cr_assert_eq(init.qp_type, KARST_QPT_RC);
	cr_assert_eq(karst_destroy_qp(qp), 0);
	client_bed_down(&b);
}

/* (E6): a limit of the rate, in the states in which there is something to send. */
Test(client_api, e6_rate_limit)
{
	struct karst_qp_rate_limit_attr limit = {.rate_limit = 1000, .max_burst_sz = 4096};
	struct karst_qp_attr attr = {.qp_state = KARST_QPS_RESET};
	struct karst_qp *qp;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	qp = client_bed_qp(&b, KARST_QPT_RC);
	cr_assert_eq(karst_modify_qp_rate_limit(qp, &limit), -EINVAL);
	says("its state must be RTR, RTS or SQD");
	cr_assert_eq(client_bed_to(qp, KARST_QPS_INIT, 1, 5), 0);
	cr_assert_eq(karst_modify_qp_rate_limit(qp, &limit), -EINVAL);
	cr_assert_eq(client_bed_to(qp, KARST_QPS_RTR, 1, 5), 0, "%s", karst_why());
	cr_assert_eq(karst_modify_qp_rate_limit(qp, &limit), 0, "%s", karst_why());
	limit.rate_limit = KARST_RATE_LIMIT_MAX + 1;
	cr_assert_eq(karst_modify_qp_rate_limit(qp, &limit), -EINVAL);
	says("rate_limit 400000001: at most");
	limit.rate_limit = KARST_RATE_LIMIT_MAX;
	limit.max_burst_sz = KARST_RATE_BURST_MAX + 1;
	cr_assert_eq(karst_modify_qp_rate_limit(qp, &limit), -EINVAL);
	says("max_burst_sz 16777217: at most");
	limit.max_burst_sz = KARST_RATE_BURST_MAX;
	cr_assert_eq(karst_modify_qp_rate_limit(qp, &limit), 0);
	cr_assert_eq(karst_modify_qp(qp, &attr, KARST_QP_STATE), 0);
	cr_assert_eq(karst_modify_qp_rate_limit(qp, &limit), -EINVAL);
	cr_assert_eq(karst_destroy_qp(qp), 0);
	client_bed_down(&b);
}

/* Re-registration: the key stays, what it names changes. */
Test(client_api, reregister)
{
	static uint8_t mem[8192];
	struct karst_mr *mr;
	struct karst_pd *pd;
	uint32_t key;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_reg_mr(b.pd, mem, 4096, KARST_ACCESS_ON_DEMAND, &mr), -EOPNOTSUPP);
	says("on demand");
	mr = client_bed_mr(&b, mem, 4096);
	key = mr->lkey;
	cr_assert_eq(karst_rereg_mr(mr, KARST_REREG_TRANSLATION, NULL, mem + 4096, 4096, 0), 0,
		"%s", karst_why());
	cr_assert_eq(mr->addr, mem + 4096);
	cr_assert_eq(mr->lkey, key);
	cr_assert_eq(karst_alloc_pd(b.ctx, &pd), 0);
	cr_assert_eq(karst_rereg_mr(mr, KARST_REREG_PD, NULL, NULL, 0, 0), -EINVAL);
	cr_assert_eq(karst_rereg_mr(mr, KARST_REREG_PD | KARST_REREG_ACCESS, pd, NULL, 0, 0), 0,
		"%s", karst_why());
	cr_assert_eq(mr->pd, pd);
	cr_assert_eq(karst_dealloc_pd(pd), -EBUSY);
	cr_assert_eq(karst_rereg_mr(mr, 1u << 20, NULL, NULL, 0, 0), -EINVAL);
	cr_assert_eq(karst_dereg_mr(mr), 0);
	cr_assert_eq(karst_dealloc_pd(pd), 0);
	client_bed_down(&b);
}

/* A region on demand finds what is mapped when it is used, and nothing else. */
Test(client_api, on_demand)
{
	const size_t len = 256 * 1024;
	struct karst_qp *qp[2];
	struct karst_mr *mr, *plain;
	static uint8_t mem[4096];
	struct karst_cqe c;
	struct client_bed b;
	uint8_t *at;
	int round;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1, .forked = true});
	qp[0] = client_bed_qp(&b, KARST_QPT_RC);
	qp[1] = client_bed_qp(&b, KARST_QPT_RC);
	client_bed_connect(qp[0], qp[1]);
	plain = client_bed_mr(&b, mem, sizeof(mem));
	at = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(at, MAP_FAILED);
	cr_assert_eq(karst_reg_mr(b.pd, at, len, KARST_ACCESS_LOCAL_WRITE, &mr), -EFAULT);
	cr_assert_eq(karst_reg_mr(b.pd, at, len,
			     KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE |
				     KARST_ACCESS_ON_DEMAND,
			     &mr),
		0, "%s", karst_why());
	cr_assert_eq(mr->copied_bytes, len);
	for (round = 1; round <= 3; round++) {
		/* other pages than before */
		cr_assert_eq(mmap(at, len, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			at);
		memset(mem, round, sizeof(mem));
		cr_assert_eq(client_bed_post(qp[0], KARST_WR_RDMA_WRITE, 1, plain, 0, sizeof(mem),
				     mr, len - sizeof(mem)),
			0);
		c = client_bed_wait(b.cq);
		cr_assert_eq(c.status, KARST_WC_SUCCESS, "%s", karst_wc_status_str(c.status));
		cr_assert_eq(memcmp(at + len - sizeof(mem), mem, sizeof(mem)), 0);
	}
	/* as an ordinary one it is looked at now, and its pages are held */
	cr_assert_eq(karst_rereg_mr(mr, KARST_REREG_ACCESS, NULL, NULL, 0,
			     KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE),
		0, "%s", karst_why());
	cr_assert_eq(mr->copied_bytes + mr->shared_bytes, len);
	cr_assert_eq(at[len - 1], 3);
	cr_assert_eq(karst_rereg_mr(mr, KARST_REREG_ACCESS, NULL, NULL, 0,
			     KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE |
				     KARST_ACCESS_ON_DEMAND),
		0, "%s", karst_why());
	cr_assert_eq(mr->copied_bytes, len);
	cr_assert_eq(munmap(at, len), 0);
	cr_assert_eq(
		client_bed_post(qp[0], KARST_WR_RDMA_WRITE, 2, plain, 0, sizeof(mem), mr, 0), 0);
	c = client_bed_wait(b.cq);
	cr_assert_eq(c.status, KARST_WC_REM_ACCESS_ERR, "%s", karst_wc_status_str(c.status));
	cr_assert_eq(karst_dereg_mr(mr), 0);
	cr_assert_eq(karst_dereg_mr(plain), 0);
	cr_assert_eq(karst_destroy_qp(qp[0]), 0);
	cr_assert_eq(karst_destroy_qp(qp[1]), 0);
	client_bed_down(&b);
}

/* A child may not use what it inherited, and its parent does not notice that there is one. */
Test(client_api, fork)
{
	static uint8_t mem[4096];
	struct karst_async_event ev;
	struct karst_context *ctx;
	struct karst_mr *mr;
	struct karst_qp *qp;
	struct karst_cqe e;
	struct karst_pd *pd;
	struct client_bed b;
	int status;
	pid_t pid;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	qp = client_bed_qp(&b, KARST_QPT_RC);
	mr = client_bed_mr(&b, mem, sizeof(mem));
	pid = fork();
	if (pid == 0) {
		if (karst_alloc_pd(b.ctx, &pd) != -EPERM)
			_exit(1);
		if (karst_poll_cq(b.cq, 1, &e) != -EPERM)
			_exit(2);
		if (client_bed_post(qp, KARST_WR_SEND, 1, mr, 0, 1, NULL, 0) != -EPERM ||
			client_bed_recv(qp, 1, mr, 0, 1) != -EPERM || karst_ring_bell(qp) != -EPERM)
			_exit(3);
		if (karst_dereg_mr(mr) != -EPERM || karst_destroy_qp(qp) != -EPERM ||
			karst_destroy_cq(b.cq) != -EPERM || karst_dealloc_pd(b.pd) != -EPERM ||
			karst_close(b.ctx) != -EPERM)
			_exit(4);
		if (karst_get_async_event(b.ctx, &ev) != -EPERM ||
			karst_req_notify_cq(b.cq, false) != -EPERM)
			_exit(5);
		if (karst_open("/nonexistent", NULL, &ctx) != -ENOENT)
			_exit(6);
		_exit(strstr(karst_why(), "/nonexistent") != NULL ? 0 : 7);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: %x", status);
	cr_assert_eq(karst_dereg_mr(mr), 0);
	cr_assert_eq(karst_destroy_qp(qp), 0);
	client_bed_down(&b);
}

Test(client_api, open)
{
	struct karst_open_attr attr = {.connect_timeout_ms = 100};
	struct karst_context *ctx;
	char path[200];

	memset(path, 'x', sizeof(path));
	path[sizeof(path) - 1] = 0;
	cr_assert_eq(karst_open(path, &attr, &ctx), -EINVAL);
	cr_assert_eq(karst_open("/nonexistent/karst.sock", &attr, &ctx), -ENOENT);
	says("karstd");
	setenv("KARST_SOCKET", "/nonexistent/by.environment", 1);
	cr_assert_eq(karst_open(NULL, NULL, &ctx), -ENOENT);
	says("by.environment");
}

Test(client_api, names)
{
	cr_assert_str_eq(karst_wc_status_str(KARST_WC_SUCCESS), "success");
	cr_assert_str_eq(karst_wc_status_str((enum karst_wc_status)200), "unknown");
	cr_assert_str_eq(karst_wr_opcode_str(KARST_WR_RDMA_READ), "RDMA READ");
	cr_assert_str_eq(karst_wr_opcode_str(KARST_WR_MAX), "unknown");
	cr_assert_str_eq(karst_event_str(KARST_EVENT_DEVICE_FATAL), "engine gone");
	cr_assert_str_eq(karst_event_str((enum karst_async_event_code)77), "unknown");
	cr_assert_str_eq(karst_qp_state_str(KARST_QPS_SQE), "SQE");
	cr_assert_str_eq(karst_qp_state_str((enum karst_qp_state)7), "unknown");
}

/* --- something happens to a control connection --- */

struct between {
	struct karst_ctl_conn real;
	int fd;
	pid_t child; /* forked in the first request */
};

static void
between_close(void *user)
{
	struct between *b = user;

	b->real.close(b->real.user);
}

static int
forking_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	struct between *f = user;

	if (f->child == 0) {
		f->child = fork();
		if (f->child == 0)
			_exit(fcntl(f->fd, F_GETFD) >= 0);
	}
	return f->real.call(f->real.user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
}

/* The engine would keep what the program has for as long as the child lives. */
Test(client_api, fork_while_it_opens)
{
	struct between f = {.fd = -1};
	struct karst_context *ctx;
	struct client_bed b;
	int pair[2], status;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	f.fd = pair[0];
	cr_assert_eq(karst_session_conn(b.e, NULL, &f.real), 0);
	cr_assert_eq(karst_open_conn(&(struct karst_ctl_conn){.call = forking_call,
					     .close = between_close,
					     .user = &f,
					     .hup_fd = f.fd},
			     NULL, &ctx),
		0, "%s", karst_why());
	cr_assert_eq(waitpid(f.child, &status, 0), f.child);
	cr_assert_eq(status, 0, "the child has the connection");
	cr_assert_eq(karst_close(ctx), 0);
	close(pair[0]);
	close(pair[1]);
	client_bed_down(&b);
}

/* What happens to who connects. */
static void (*before_connect)(int fd);
static unsigned int interruptions;

int
connect(int fd, const struct sockaddr *to, socklen_t len)
{
	if (before_connect != NULL)
		before_connect(fd);
	if (interruptions > 0) {
		interruptions--;
		errno = EINTR;
		return -1;
	}
	return (int)syscall(SYS_connect, fd, to, len);
}

static int child_status = -1;

static void
fork_now(int fd)
{
	pid_t child = fork();

	if (child == 0)
		_exit(fcntl(fd, F_GETFD) >= 0);
	cr_assert_eq(waitpid(child, &child_status, 0), child);
}

Test(client_api, fork_before_it_connects)
{
	struct karst_context *ctx;

	before_connect = fork_now;
	cr_assert_eq(karst_open("/nonexistent/karst.sock", NULL, &ctx), -ENOENT);
	cr_assert_eq(child_status, 0, "the child has the connection");
}

/* As when the engine has many to attend to, and the program a timer. */
Test(client_api, interrupted_while_it_connects)
{
	struct karst_context *ctx;

	interruptions = 3;
	cr_assert_eq(karst_open("/nonexistent/karst.sock", NULL, &ctx), -ENOENT);
	cr_assert_eq(interruptions, 0);
}

static int
lying_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	struct between *b = user;
	const struct karst_ctl_hdr *h = req;
	int ret = b->real.call(b->real.user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);

	if (ret == 0 && h->op == KARST_CTL_GET_CHUNK)
		((struct karst_ctl_get_chunk_rsp *)((struct karst_ctl_hdr *)rsp + 1))->chunk =
			UINT32_MAX;
	return ret;
}

/* No engine makes a program fault. */
Test(client_api, memory_file_of_a_wrong_number)
{
	struct between l = {.fd = -1};
	struct karst_context *ctx;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_session_conn(b.e, NULL, &l.real), 0);
	cr_assert_eq(karst_open_conn(&(struct karst_ctl_conn){.call = lying_call,
					     .close = between_close,
					     .user = &l,
					     .hup_fd = -1},
			     NULL, &ctx),
		-EPROTO);
	says("4294967295");
	between_close(&l);
	client_bed_down(&b);
}

/* --- leaving without tidying up --- */

Test(client_api, abandon)
{
	struct karst_session_info infos[4];
	/* their memory is not given back, and no leak */
	static struct karst_context *other;
	static struct karst_cq *cq;
	static struct karst_pd *pd;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	other = client_bed_open(&b);
	cr_assert_eq(karst_alloc_pd(other, &pd), 0);
	cr_assert_eq(karst_create_cq(other, 8, NULL, NULL, &cq), 0);
	cr_assert_eq(karst_close(other), -EBUSY);
	cr_assert_eq(karst_session_list(b.e, infos, 4), 2);
	karst_abandon(other);
	cr_assert_eq(karst_session_list(b.e, infos, 4), 1);
	cr_assert_eq(infos[0].client, b.ctx->client, "the other one is still there");
	client_bed_down(&b);
}

struct abandoner {
	struct karst_context *ctx;
	_Atomic pid_t tid;
	atomic_bool finished;
};

static void *
abandon_it(void *arg)
{
	struct abandoner *a = arg;

	atomic_store(&a->tid, gettid());
	karst_abandon(a->ctx);
	atomic_store(&a->finished, true);
	return NULL;
}

/* A control connection with a request that lasts. */
struct lasting {
	struct between b;
	struct karst_context *ctx;
	atomic_bool last, inside, may_end, closed_inside;
};

static int
lasting_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	struct lasting *l = user;
	int ret;

	atomic_store(&l->inside, true);
	while (atomic_load(&l->last) && !atomic_load(&l->may_end))
		sched_yield();
	ret = l->b.real.call(l->b.real.user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
	atomic_store(&l->inside, false);
	return ret;
}

static void
lasting_close(void *user)
{
	struct lasting *l = user;

	atomic_store(&l->closed_inside, atomic_load(&l->inside));
	atomic_store(&l->may_end, true);
	while (atomic_load(&l->inside))
		sched_yield();
	between_close(&l->b);
}

static void *
alloc_pd(void *arg)
{
	static struct karst_pd *pd;

	return (void *)(intptr_t)karst_alloc_pd(arg, &pd);
}

/* The connection ends when the request does. */
Test(client_api, abandon_in_a_request)
{
	static struct karst_context *other;
	struct lasting l = {.last = false};
	struct abandoner a = {.tid = 0};
	pthread_t request, end;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_session_conn(b.e, NULL, &l.b.real), 0);
	cr_assert_eq(karst_open_conn(&(struct karst_ctl_conn){.call = lasting_call,
					     .close = lasting_close,
					     .user = &l,
					     .hup_fd = -1},
			     NULL, &other),
		0, "%s", karst_why());
	a.ctx = other;
	atomic_store(&l.last, true);
	cr_assert_eq(pthread_create(&request, NULL, alloc_pd, other), 0);
	while (!atomic_load(&l.inside))
		sched_yield();
	cr_assert_eq(pthread_create(&end, NULL, abandon_it, &a), 0);
	while (!atomic_load(&l.closed_inside) &&
		!client_bed_in_syscall(atomic_load(&a.tid), SYS_futex))
		sched_yield();
	atomic_store(&l.may_end, true);
	cr_assert_eq(pthread_join(request, NULL), 0);
	cr_assert_eq(pthread_join(end, NULL), 0);
	cr_assert(!atomic_load(&l.closed_inside), "closed under the request");
	client_bed_down(&b);
}

/* And the request when it has no answer. */
Test(client_api, abandon_without_an_answer)
{
	/* its memory is not given back, and no leak */
	static struct client_bed b;
	pthread_t request;
	void *ret;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1, .forked = true});
	cr_assert_eq(kill(b.child, SIGSTOP), 0);
	cr_assert_eq(waitpid(b.child, NULL, WUNTRACED), b.child);
	cr_assert_eq(pthread_create(&request, NULL, alloc_pd, b.ctx), 0);
	karst_abandon(b.ctx);
	cr_assert_eq(pthread_join(request, &ret), 0);
	cr_assert_eq((intptr_t)ret, -EIO);
	cr_assert_eq(kill(b.child, SIGCONT), 0);
	client_bed_kill(&b);
}

struct bell {
	struct karst_qp *qp;
	_Atomic pid_t tid;
	atomic_bool stop;
};

static void *
ring_on_and_on(void *arg)
{
	struct bell *r = arg;

	atomic_store(&r->tid, gettid());
	while (!atomic_load(&r->stop)) {
		/* as the engine says it before it sleeps */
		atomic_store(&r->qp->bell->asleep, 1);
		karst_ring_bell(r->qp);
	}
	return NULL;
}

/* Who is about to wake an lcore has its descriptor until he has done so. */
Test(client_api, abandon_beside_a_bell)
{
	static struct client_bed with;
	struct karst_session_info infos[4];
	struct abandoner a = {.tid = 0};
	struct bell r = {.tid = 0};
	pthread_t ringer, end;
	struct client_bed b;
	char bytes[4096];
	int fds[2], i;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	a.ctx = client_bed_open(&b);
	with = (struct client_bed){.ctx = a.ctx};
	cr_assert_eq(karst_alloc_pd(a.ctx, &with.pd), 0);
	cr_assert_eq(karst_create_cq(a.ctx, 8, NULL, NULL, &with.cq), 0);
	r.qp = client_bed_qp(&with, KARST_QPT_RC);
	/* the write() there does not return until somebody reads */
	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	memset(bytes, 0, sizeof(bytes));
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	while (write(fds[1], bytes, sizeof(bytes)) > 0)
		;
	fcntl(fds[1], F_SETFL, 0);
	cr_assert_eq(dup2(fds[1], r.qp->wake_fd), r.qp->wake_fd);
	cr_assert_eq(pthread_create(&ringer, NULL, ring_on_and_on, &r), 0);
	while (!client_bed_in_syscall(atomic_load(&r.tid), SYS_write))
		sched_yield();
	cr_assert_eq(pthread_create(&end, NULL, abandon_it, &a), 0);
	while (karst_session_list(b.e, infos, 4) != 1)
		sched_yield();
	for (i = 0; i < 1000; i++)
		sched_yield();
	cr_assert(!atomic_load(&a.finished), "the descriptor was closed under the write");
	atomic_store(&r.stop, true);
	cr_assert_gt(read(fds[0], bytes, sizeof(bytes)), 0);
	cr_assert_eq(pthread_join(ringer, NULL), 0);
	cr_assert_eq(pthread_join(end, NULL), 0);
	close(fds[0]);
	close(fds[1]);
	client_bed_down(&b);
}

/* Who posts all the same writes into no file that has been opened since. */
Test(client_api, abandoned_bell)
{
	static struct karst_context *other;
	static struct client_bed with;
	static struct karst_qp *qp;
	struct client_bed b;
	int fd, wake;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	other = client_bed_open(&b);
	with = (struct client_bed){.ctx = other};
	cr_assert_eq(karst_alloc_pd(other, &with.pd), 0);
	cr_assert_eq(karst_create_cq(other, 8, NULL, NULL, &with.cq), 0);
	qp = client_bed_qp(&with, KARST_QPT_RC);
	wake = qp->wake_fd;
	karst_abandon(other);
	fd = memfd_create("opened later", MFD_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(dup2(fd, wake), wake);
	atomic_store(&qp->bell->asleep, 1); /* as the engine left it */
	cr_assert_eq(karst_ring_bell(qp), 0);
	cr_assert_eq(lseek(fd, 0, SEEK_END), 0);
	close(wake);
	close(fd);
	client_bed_down(&b);
}

/* --- the log --- */

static atomic_uint lines;

static void
count_lines(enum karst_log_level level, const char *fmt, va_list ap)
{
	if (level <= KARST_LOG_NOTICE)
		lines++;
}

/* The program is told what is wrong with its addresses; a log of that would be as long as it
 * likes. */
Test(client_api, wrong_addresses_are_not_logged)
{
	struct karst_ah_attr attr = {.port_num = 1, .dgid.raw = {[10] = 0xff, 0xff, 0, 1, 2, 3}};
	struct karst_ah *ah = NULL;
	struct client_bed b;
	unsigned int i;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	karst_log_set_sink(count_lines);
	for (i = 0; i < 5; i++) {
		cr_assert_eq(karst_create_ah(b.pd, &attr, &ah), -EHOSTUNREACH);
		says("0.1.2.3");
	}
	cr_assert_eq(lines, 0);
	client_bed_down(&b);
}
