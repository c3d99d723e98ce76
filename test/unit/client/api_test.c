/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Objects: what can be created, which error refuses what, and in which order objects can be
 * destroyed. */
#include "client_bed.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst_log.h"

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
	/* the test bed's poller may run on any CPU */
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

/* A process that has rings mapped, the program or the engine, cannot punch holes into them.  Lcores
 * and control calls of other programs would wait at such holes.  @return how many rings can have
 * holes. */
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
		/* in a part at the end, which holds nothing yet */
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

/* A thread that shares its CPU with others moves to the lcore's CPU if it may run there, and its
 * affinity mask stays as it was. */
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
		/* the kernel may have moved the thread by itself */
		cr_assert_eq(sched_setaffinity(0, sizeof(elsewhere), &elsewhere), 0);
		cr_assert_eq(sched_setaffinity(0, sizeof(may), &may), 0);
		ret = karst_near_lcore(b.ctx, 0);
	} while (ret == 0);
	cr_assert_eq(ret, 1, "%s", karst_why());
	cr_assert_eq(sched_getaffinity(0, sizeof(left), &left), 0);
	cr_assert(CPU_EQUAL(&left, &may));
	client_bed_down(&b);
}

/* An lcore that may run on any CPU is near no thread. */
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

/* An object in use is not destroyed, and the reason names the object that uses it. */
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
	/* objects of another context */
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

/* (E6): a rate limit, set in the states in which there is something to send. */
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

/* Re-registration: the key stays, and what the key names changes. */
Test(client_api, reregister)
{
	static uint8_t mem[8192];
	struct karst_context *ctx;
	struct karst_pd *pd, *others;
	struct karst_mr *mr;
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
	/* its number is equal to that of an object in this context */
	ctx = client_bed_open(&b);
	cr_assert_eq(karst_alloc_pd(ctx, &others), 0);
	cr_assert_eq(karst_rereg_mr(mr, KARST_REREG_PD, others, NULL, 0, 0), -EINVAL);
	says("another context");
	cr_assert_eq(karst_dealloc_pd(others), 0);
	cr_assert_eq(karst_close(ctx), 0);
	cr_assert_eq(karst_rereg_mr(mr, KARST_REREG_PD | KARST_REREG_ACCESS, pd, NULL, 0, 0), 0,
		"%s", karst_why());
	cr_assert_eq(mr->pd, pd);
	cr_assert_eq(karst_dealloc_pd(pd), -EBUSY);
	cr_assert_eq(karst_rereg_mr(mr, 1u << 20, NULL, NULL, 0, 0), -EINVAL);
	cr_assert_eq(karst_dereg_mr(mr), 0);
	cr_assert_eq(karst_dealloc_pd(pd), 0);
	client_bed_down(&b);
}

/* An on-demand region finds the pages that are mapped when it is used, and nothing else. */
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
		/* other pages than before at the same address */
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
	/* as an ordinary region its pages are looked up now, and are held */
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

/* --- the log --- */

static atomic_uint lines;

static void
count_lines(enum karst_log_level level, const char *fmt, va_list ap)
{
	if (level <= KARST_LOG_NOTICE)
		lines++;
}

/* The program is told what is wrong with its addresses.  These errors are not logged, as a program
 * could make the log as long as it likes. */
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
