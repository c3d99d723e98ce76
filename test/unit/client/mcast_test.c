/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Multicast groups of programs (U4): two programs, on both ports of an engine. */
#include "client_bed.h"

#include <errno.h>

#include <criterion/criterion.h>

#define PROGRAMS 2
#define GRH      40u
#define QKEY     0x1234u /* of client_bed_to() */

static const union karst_gid group = {.raw = {[10] = 0xff, 0xff, 224, 9, 9, 9}};
static const union karst_gid no_group = {.raw = {[10] = 0xff, 0xff, 10, 9, 9, 9}};
static uint8_t mem[PROGRAMS][4096];

struct program {
	struct client_bed b; /* its own context, PD and CQ */
	struct karst_mr *mr;
	struct karst_qp *qp;
};

static void
program_up(struct program *p, struct client_bed *bed, uint32_t i)
{
	memset(p, 0, sizeof(*p));
	p->b.ctx = client_bed_open(bed);
	cr_assert_eq(karst_alloc_pd(p->b.ctx, &p->b.pd), 0);
	cr_assert_eq(karst_create_cq(p->b.ctx, 64, NULL, NULL, &p->b.cq), 0);
	p->mr = client_bed_mr(&p->b, mem[i], sizeof(mem[i]));
	p->qp = client_bed_qp(&p->b, KARST_QPT_UD);
	for (enum karst_qp_state to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++)
		cr_assert_eq(client_bed_to(p->qp, to, i + 1, 0), 0, "%s", karst_why());
}

static void
program_down(struct program *p)
{
	cr_assert_eq(karst_destroy_qp(p->qp), 0);
	cr_assert_eq(karst_dereg_mr(p->mr), 0);
	cr_assert_eq(karst_destroy_cq(p->b.cq), 0);
	cr_assert_eq(karst_dealloc_pd(p->b.pd), 0);
	cr_assert_eq(karst_close(p->b.ctx), 0);
}

static void
send_to_group(struct program *p, const struct karst_ah *ah)
{
	struct karst_sge sge = {p->mr->iova, 100, p->mr->lkey};
	struct karst_send_wr wr = {.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = KARST_WR_SEND,
		.ud = {.ah = ah, .remote_qpn = 0xffffff, .remote_qkey = QKEY}};

	cr_assert_eq(karst_post_send(p->qp, &wr, NULL), 0);
}

static void
expect_message(struct program *p, uint64_t wr_id, uint32_t from, const uint8_t *what)
{
	struct karst_cqe e = client_bed_wait(p->b.cq);

	cr_assert_eq(e.status, KARST_WC_SUCCESS);
	cr_assert_eq(e.wr_id, wr_id);
	cr_assert_eq(e.opcode, KARST_WC_RECV);
	cr_assert_eq(e.src_qpn, from);
	cr_assert_eq(e.byte_len, GRH + 100);
	cr_assert_eq(memcmp((uint8_t *)p->mr->addr + 1024 + GRH, what, 100), 0);
}

Test(client_mcast, u4_two_programs)
{
	struct karst_ah_attr attr = {.dgid = group, .port_num = 1, .hop_limit = 1};
	struct karst_device_attr device;
	struct program p[PROGRAMS];
	struct karst_ah *ah;
	struct client_bed bed;
	uint32_t i;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 2});
	for (i = 0; i < PROGRAMS; i++) {
		program_up(&p[i], &bed, i);
		cr_assert_eq(karst_attach_mcast(p[i].qp, &group), 0, "%s", karst_why());
		cr_assert_eq(client_bed_recv(p[i].qp, 10 + i, p[i].mr, 1024, 200), 0);
	}
	cr_assert_eq(karst_attach_mcast(p[0].qp, &group), 0, "again");
	cr_assert_eq(karst_query_device(p[0].b.ctx, &device), 0);
	cr_assert_geq(device.max_mcast_grp, 1024);
	cr_assert_eq(device.max_total_mcast_qp_attach, device.max_mcast_grp);
	cr_assert_eq(device.max_mcast_qp_attach, KARST_ENGINE_GROUP_QPS);
	memset(mem[0], 0x5a, 100);
	/* no neighbour has to answer for a group address */
	cr_assert_eq(karst_create_ah(p[0].b.pd, &attr, &ah), 0, "%s", karst_why());
	send_to_group(&p[0], ah);
	for (i = 0; i < PROGRAMS; i++)
		expect_message(&p[i], 10 + i, p[0].qp->qp_num, mem[0]);
	/* one program leaves, one ends without leaving */
	cr_assert_eq(karst_detach_mcast(p[0].qp, &group), 0, "%s", karst_why());
	cr_assert_eq(karst_detach_mcast(p[0].qp, &group), -EINVAL);
	cr_assert_not_null(strstr(karst_why(), "not attached"));
	program_down(&p[1]);
	cr_assert_eq(client_bed_recv(p[0].qp, 10, p[0].mr, 1024, 200), 0);
	send_to_group(&p[0], ah);
	client_bed_nothing(p[0].b.cq);
	cr_assert_eq(karst_destroy_ah(ah), 0);
	program_down(&p[0]);
	client_bed_down(&bed);
}

Test(client_mcast, u4_refusals)
{
	struct karst_qp *rc;
	struct program p;
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	program_up(&p, &bed, 0);
	rc = client_bed_qp(&p.b, KARST_QPT_RC);
	cr_assert_eq(karst_attach_mcast(rc, &group), -EINVAL);
	cr_assert_not_null(strstr(karst_why(), "only UD queue pairs"), "%s", karst_why());
	cr_assert_eq(karst_attach_mcast(p.qp, &no_group), -EINVAL);
	cr_assert_not_null(strstr(karst_why(), "224.0.0.0"), "%s", karst_why());
	cr_assert_eq(karst_detach_mcast(p.qp, &group), -EINVAL);
	cr_assert_eq(karst_destroy_qp(rc), 0);
	program_down(&p);
	client_bed_down(&bed);
}

/* A program whose connection breaks, so that all its objects are destroyed. */
struct breaking {
	struct karst_ctl_conn conn;
	bool broken;
};

static int
breaking_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	struct breaking *br = user;

	if (br->broken)
		return -EIO;
	return br->conn.call(br->conn.user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
}

static void
breaking_close(void *user)
{
	struct breaking *br = user;

	br->conn.close(br->conn.user);
}

/* The attachments of the program are removed with it, which makes room for the next one. */
Test(client_mcast, limit_of_a_program_and_its_end)
{
	const struct karst_session_limits limits = {.max_mcasts = 1};
	union karst_gid other = group;
	struct program p;
	struct client_bed bed;
	uint32_t round;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	other.raw[15]++;
	for (round = 0; round < 3; round++) {
		struct breaking br = {.broken = false};
		const struct karst_ctl_conn conn = {
			.call = breaking_call, .close = breaking_close, .user = &br, .hup_fd = -1};
		struct karst_engine_port_info info;

		memset(&p, 0, sizeof(p));
		cr_assert_eq(karst_session_conn(bed.e, &limits, &br.conn), 0);
		cr_assert_eq(karst_open_conn(&conn, NULL, &p.b.ctx), 0);
		cr_assert_eq(karst_alloc_pd(p.b.ctx, &p.b.pd), 0);
		cr_assert_eq(karst_create_cq(p.b.ctx, 64, NULL, NULL, &p.b.cq), 0);
		p.qp = client_bed_qp(&p.b, KARST_QPT_UD);
		p.mr = client_bed_mr(&p.b, mem[0], sizeof(mem[0]));
		cr_assert_eq(karst_attach_mcast(p.qp, &group), 0, "%s", karst_why());
		cr_assert_eq(karst_attach_mcast(p.qp, &other), -ENOSPC);
		cr_assert_not_null(strstr(karst_why(), "max_mcasts"), "%s", karst_why());
		cr_assert_eq(client_bed_to(p.qp, KARST_QPS_INIT, 1, 0), 0);
		cr_assert_eq(karst_engine_port_info(bed.e, 0, &info), 0);
		cr_assert_eq(info.mcast_groups, 1);
		br.broken = true;
		program_down(&p);
		cr_assert_eq(karst_engine_port_info(bed.e, 0, &info), 0);
		cr_assert_eq(info.mcast_groups, 0);
	}
	client_bed_down(&bed);
}
