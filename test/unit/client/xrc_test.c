/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* XRC (U3): domains, shared receive queues by number, targets that several contexts share. */
#include "client_bed.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

static uint8_t mem[65536] __attribute__((aligned(4096)));

/* What a receiving program has: SRQ, CQ and PD of its own. */
struct inbox {
	struct karst_context *ctx;
	struct karst_xrcd *xrcd;
	struct karst_pd *pd;
	struct karst_cq *cq;
	struct karst_srq *srq;
	struct karst_mr *mr; /* a region of all of mem */
};

static struct karst_srq *
make_srq(struct inbox *in)
{
	struct karst_srq_init_attr init = {.srq_context = in,
		.max_wr = 16,
		.max_sge = 2,
		.srq_type = KARST_SRQT_XRC,
		.xrcd = in->xrcd,
		.cq = in->cq};
	struct karst_srq *srq = NULL;

	cr_assert_eq(karst_create_srq(in->pd, &init, &srq), 0, "%s", karst_why());
	cr_assert_neq(srq->srq_num, 0);
	cr_assert_leq(srq->srq_num, 0xffffff);
	cr_assert_eq(srq->xrcd, in->xrcd);
	cr_assert_eq(srq->cq, in->cq);
	return srq;
}

static void
inbox_up(struct inbox *in, struct karst_context *ctx, int fd)
{
	in->ctx = ctx;
	cr_assert_eq(karst_open_xrcd(ctx, fd, O_CREAT, &in->xrcd), 0, "%s", karst_why());
	cr_assert_eq(karst_alloc_pd(ctx, &in->pd), 0);
	cr_assert_eq(karst_create_cq(ctx, 64, NULL, NULL, &in->cq), 0);
	cr_assert_eq(karst_reg_mr(in->pd, mem, sizeof(mem),
			     KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE, &in->mr),
		0);
	in->srq = make_srq(in);
}

static void
inbox_down(struct inbox *in)
{
	if (in->srq != NULL)
		cr_assert_eq(karst_destroy_srq(in->srq), 0, "%s", karst_why());
	cr_assert_eq(karst_dereg_mr(in->mr), 0);
	cr_assert_eq(karst_destroy_cq(in->cq), 0, "%s", karst_why());
	cr_assert_eq(karst_dealloc_pd(in->pd), 0, "%s", karst_why());
	cr_assert_eq(karst_close_xrcd(in->xrcd), 0, "%s", karst_why());
}

static struct karst_qp *
make_target(struct karst_xrcd *xrcd)
{
	struct karst_qp_init_attr init = {.qp_type = KARST_QPT_XRC_RECV, .xrcd = xrcd};
	struct karst_qp *qp = NULL;

	cr_assert_eq(karst_create_qp(NULL, &init, &qp), 0, "%s", karst_why());
	cr_assert_null(qp->pd);
	cr_assert_null(qp->send_cq);
	cr_assert_null(qp->recv_cq);
	cr_assert_eq(qp->cap.max_send_wr + qp->cap.max_recv_wr, 0);
	return qp;
}

static int
post_to(struct karst_qp *qp, enum karst_wr_opcode op, uint64_t id, struct karst_mr *mr, size_t off,
	uint32_t len, const struct inbox *to, size_t to_off)
{
	struct karst_sge sge = {mr->iova + off, len, mr->lkey};
	struct karst_send_wr wr = {.wr_id = id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = op,
		.send_flags = KARST_SEND_SIGNALED,
		.imm_data = 0x1234,
		.remote_srqn = to->srq->srq_num};

	if (op == KARST_WR_ATOMIC_FAA) {
		wr.atomic.remote_addr = to->mr->iova + to_off;
		wr.atomic.rkey = to->mr->rkey;
		wr.atomic.compare_add = 5;
	} else {
		wr.rdma.remote_addr = to->mr->iova + to_off;
		wr.rdma.rkey = to->mr->rkey;
	}
	return karst_post_send(qp, &wr, NULL);
}

static void
post_recv(struct inbox *in, uint64_t id, size_t off, uint32_t len)
{
	struct karst_sge sge = {in->mr->iova + off, len, in->mr->lkey};
	struct karst_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};

	cr_assert_eq(karst_post_srq_recv(in->srq, &wr, NULL), 0, "%s", karst_why());
}

#define expect(cqe, id, status_)                                                                \
	do {                                                                                    \
		struct karst_cqe e_ = (cqe);                                                    \
		cr_assert_eq(e_.status, KARST_WC_##status_, "%s",                               \
			karst_wc_status_str((enum karst_wc_status)e_.status));                  \
		cr_assert_eq(e_.wr_id, id, "completion of %llu", (unsigned long long)e_.wr_id); \
	} while (0)

/* Runs everything that a requester can ask for, with two SRQs in turn; memory is accessed by keys
 * of the SRQ's protection domain. */
static void
operations(uint32_t lcores)
{
	struct inbox one = {0}, two = {0};
	struct karst_qp *ini, *tgt;
	struct karst_cqe e;
	struct karst_mr *mr;
	uint64_t word = 37;
	struct client_bed b;
	size_t i;

	client_bed_up(&b, &(struct client_bed_config){.lcores = lcores});
	inbox_up(&one, b.ctx, -1);
	two = one;
	cr_assert_eq(karst_alloc_pd(b.ctx, &two.pd), 0);
	cr_assert_eq(karst_reg_mr(two.pd, mem, sizeof(mem),
			     KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE, &two.mr),
		0);
	two.srq = make_srq(&two);
	cr_assert_neq(one.srq->srq_num, two.srq->srq_num);
	cr_assert_eq(one.srq->lcore, two.srq->lcore);
	mr = client_bed_mr(&b, mem, sizeof(mem));
	ini = client_bed_qp(&b, KARST_QPT_XRC_SEND);
	cr_assert_null(ini->recv_cq);
	cr_assert_eq(ini->cap.max_recv_wr, 0);
	tgt = make_target(one.xrcd);
	cr_assert_eq(tgt->lcore, one.srq->lcore);
	client_bed_connect(ini, tgt);

	for (i = 0; i < 5000; i++)
		mem[i] = (uint8_t)(i * 7);
	post_recv(&one, 11, 10000, 6000);
	post_recv(&two, 22, 20000, 6000);
	cr_assert_eq(post_to(ini, KARST_WR_SEND_WITH_IMM, 1, mr, 0, 5000, &two, 0), 0);
	cr_assert_eq(post_to(ini, KARST_WR_SEND, 2, mr, 0, 100, &one, 0), 0);
	expect(client_bed_wait(b.cq), 1, SUCCESS);
	expect(client_bed_wait(b.cq), 2, SUCCESS);
	e = client_bed_wait(one.cq);
	expect(e, 22, SUCCESS);
	cr_assert_eq(e.qpn, tgt->qp_num);
	cr_assert_eq(e.byte_len, 5000);
	cr_assert_eq(e.imm, 0x1234);
	expect(client_bed_wait(one.cq), 11, SUCCESS);
	cr_assert_eq(memcmp(mem, mem + 20000, 5000), 0);
	cr_assert_eq(memcmp(mem, mem + 10000, 100), 0);

	post_recv(&two, 23, 20000, 64);
	cr_assert_eq(post_to(ini, KARST_WR_RDMA_WRITE, 3, mr, 0, 5000, &one, 30000), 0);
	cr_assert_eq(post_to(ini, KARST_WR_RDMA_WRITE_WITH_IMM, 4, mr, 0, 3000, &two, 40000), 0);
	cr_assert_eq(post_to(ini, KARST_WR_RDMA_READ, 5, mr, 50000, 5000, &one, 30000), 0);
	memcpy(mem + 60000, &word, 8);
	cr_assert_eq(post_to(ini, KARST_WR_ATOMIC_FAA, 6, mr, 60008, 8, &two, 60000), 0);
	for (i = 3; i <= 6; i++)
		expect(client_bed_wait(b.cq), i, SUCCESS);
	expect(client_bed_wait(one.cq), 23, SUCCESS);
	cr_assert_eq(memcmp(mem, mem + 40000, 3000), 0);
	cr_assert_eq(memcmp(mem, mem + 50000, 5000), 0);
	cr_assert_eq(memcmp(mem + 60008, &word, 8), 0);
	memcpy(&word, mem + 60000, 8);
	cr_assert_eq(word, 42, "%llx", (unsigned long long)word);

	/* the key of one program, but the message is for the SRQ of the other */
	two.mr->rkey ^= one.mr->rkey;
	one.mr->rkey ^= two.mr->rkey;
	cr_assert_eq(post_to(ini, KARST_WR_RDMA_WRITE, 7, mr, 0, 64, &one, 0), 0);
	two.mr->rkey = one.mr->rkey;
	expect(client_bed_wait(b.cq), 7, REM_ACCESS_ERR);

	cr_assert_eq(karst_destroy_qp(ini), 0);
	cr_assert_eq(karst_destroy_qp(tgt), 0);
	cr_assert_eq(karst_destroy_srq(two.srq), 0);
	cr_assert_eq(karst_dereg_mr(two.mr), 0);
	cr_assert_eq(karst_dealloc_pd(two.pd), 0);
	inbox_down(&one);
	cr_assert_eq(karst_dereg_mr(mr), 0);
	client_bed_down(&b);
}

Test(client_xrc, u3_operations)
{
	operations(1);
}

Test(client_xrc, u3_operations_two_lcores)
{
	operations(2);
}

/* A file's domain is shared by all who have the file open, and ends with the last of them. */
Test(client_xrc, domains)
{
	int file = memfd_create("a", MFD_CLOEXEC), other = memfd_create("b", MFD_CLOEXEC);
	struct karst_context *ctx;
	struct karst_xrcd *a, *z, *p, *q;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 2});
	ctx = client_bed_open(&b);
	cr_assert_eq(karst_open_xrcd(b.ctx, file, 0, &a), -ENOENT);
	cr_assert_eq(karst_open_xrcd(b.ctx, file, O_CREAT | O_RDWR, &a), -EINVAL);
	cr_assert_eq(karst_open_xrcd(b.ctx, -2, O_CREAT, &a), -EBADF);
	cr_assert_eq(karst_open_xrcd(b.ctx, file, O_CREAT | O_EXCL, &a), 0, "%s", karst_why());
	cr_assert_eq(karst_open_xrcd(ctx, file, O_CREAT | O_EXCL, &z), -EEXIST);
	cr_assert_eq(karst_open_xrcd(ctx, other, 0, &z), -ENOENT);
	cr_assert_eq(karst_open_xrcd(ctx, file, 0, &z), 0, "%s", karst_why());
	/* domains that are shared with nobody */
	cr_assert_eq(karst_open_xrcd(ctx, -1, O_CREAT, &p), 0, "%s", karst_why());
	cr_assert_eq(karst_open_xrcd(ctx, -1, O_CREAT | O_EXCL, &q), 0, "%s", karst_why());
	cr_assert_eq(karst_close(ctx), -EBUSY);
	cr_assert_eq(karst_close_xrcd(p), 0);
	cr_assert_eq(karst_close_xrcd(q), 0);
	cr_assert_eq(karst_close_xrcd(a), 0);
	cr_assert_eq(karst_open_xrcd(b.ctx, file, 0, &a), 0, "%s", karst_why());
	cr_assert_eq(karst_close_xrcd(z), 0);
	cr_assert_eq(karst_close_xrcd(a), 0);
	cr_assert_eq(karst_open_xrcd(b.ctx, file, 0, &a), -ENOENT, "it ended");
	cr_assert_eq(karst_close(ctx), 0);
	close(file);
	close(other);
	client_bed_down(&b);
}

/* A file that a program may not read does not prove that it has a right to the domain: the domain
 * stays closed. */
Test(client_xrc, domains_of_files_that_are_not_read)
{
	int file = memfd_create("a", MFD_CLOEXEC), shown[2];
	struct karst_xrcd *x, *z;
	char path[32];
	struct client_bed b;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	shown[0] = open(path, O_PATH | O_CLOEXEC);
	shown[1] = open(path, O_WRONLY | O_CLOEXEC);
	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_open_xrcd(b.ctx, shown[0], O_CREAT, &x), -EBADF);
	cr_assert_neq(strstr(karst_why(), "O_PATH"), NULL);
	cr_assert_eq(karst_open_xrcd(b.ctx, shown[1], O_CREAT, &x), -EACCES);
	cr_assert_eq(karst_open_xrcd(b.ctx, file, O_CREAT, &x), 0, "%s", karst_why());
	cr_assert_eq(karst_open_xrcd(b.ctx, shown[0], 0, &z), -EBADF);
	cr_assert_eq(karst_open_xrcd(b.ctx, shown[1], 0, &z), -EACCES);
	cr_assert_eq(karst_close_xrcd(x), 0);
	close(shown[0]);
	close(shown[1]);
	close(file);
	client_bed_down(&b);
}

/* What verbs refuse at once, with a reason. */
Test(client_xrc, refused)
{
	struct karst_recv_wr recv = {.wr_id = 1};
	struct karst_send_wr send = {.opcode = KARST_WR_SEND, .remote_srqn = 1u << 24};
	struct karst_srq_init_attr srq_init = {
		.max_wr = 4, .max_sge = 1, .srq_type = KARST_SRQT_XRC};
	struct karst_qp_init_attr init;
	struct karst_qp *qp, *ini, *tgt;
	struct karst_qp_attr attr;
	struct inbox in = {0};
	struct karst_srq *srq;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	inbox_up(&in, b.ctx, -1);
	cr_assert_eq(karst_create_srq(b.pd, &srq_init, &srq), -EINVAL);
	srq_init.xrcd = in.xrcd;
	cr_assert_eq(karst_create_srq(b.pd, &srq_init, &srq), -EINVAL);
	srq_init.cq = b.cq;
	srq_init.srq_type = (enum karst_srq_type)2;
	cr_assert_eq(karst_create_srq(b.pd, &srq_init, &srq), -EINVAL);
	cr_assert_eq(karst_close_xrcd(in.xrcd), -EBUSY);
	cr_assert_eq(karst_destroy_cq(in.cq), -EBUSY);

	init = client_bed_init(&b, KARST_QPT_XRC_RECV);
	cr_assert_eq(karst_create_qp(b.pd, &init, &qp), -EINVAL, "no domain");
	init = client_bed_init(&b, KARST_QPT_XRC_SEND);
	init.srq = in.srq;
	cr_assert_eq(karst_create_qp(b.pd, &init, &qp), -EINVAL, "receives nothing");
	init.srq = NULL;
	cr_assert_eq(karst_create_qp(NULL, &init, &qp), -EINVAL, "no PD");
	init.send_cq = NULL;
	cr_assert_eq(karst_create_qp(b.pd, &init, &qp), -EINVAL, "no CQ");
	init = client_bed_init(&b, KARST_QPT_RC);
	init.srq = in.srq;
	cr_assert_eq(karst_create_qp(in.pd, &init, &qp), -EINVAL, "an XRC SRQ");

	ini = client_bed_qp(&b, KARST_QPT_XRC_SEND);
	tgt = make_target(in.xrcd);
	cr_assert_eq(karst_open_qp(in.xrcd, ini->qp_num, NULL, &qp), -ENOENT);
	cr_assert_eq(karst_open_qp(in.xrcd, 0xffffff, NULL, &qp), -ENOENT);
	client_bed_connect(ini, tgt);
	cr_assert_eq(karst_post_recv(ini, &recv, NULL), -EINVAL);
	cr_assert_eq(karst_post_recv(tgt, &recv, NULL), -EINVAL);
	cr_assert_eq(karst_post_send(ini, &send, NULL), -EINVAL, "25 bits");
	send.remote_srqn = 1;
	cr_assert_eq(karst_post_send(tgt, &send, NULL), -EINVAL);
	cr_assert_eq(karst_query_qp(tgt, &attr, &init), 0);
	cr_assert_eq(attr.qp_state, KARST_QPS_RTS);
	cr_assert_eq(init.xrcd, in.xrcd);
	cr_assert_eq(karst_close_xrcd(in.xrcd), -EBUSY);
	cr_assert_eq(karst_ring_bell(tgt), 0, "nothing comes of it");
	cr_assert_eq(karst_destroy_qp(ini), 0);
	cr_assert_eq(karst_destroy_qp(tgt), 0);
	inbox_down(&in);
	client_bed_down(&b);
}

static void
expect_async(struct karst_context *ctx, enum karst_async_event_code code, struct karst_qp *qp)
{
	struct pollfd fd = {.fd = ctx->async_fd, .events = POLLIN};
	struct karst_async_event ev;

	cr_assert_eq(poll(&fd, 1, (int)BED_PATIENCE_MS), 1);
	cr_assert_eq(karst_get_async_event(ctx, &ev), 0);
	cr_assert_eq(ev.event, code, "%s", karst_event_str(ev.event));
	cr_assert_eq(ev.element.qp, qp);
	karst_ack_async_event(&ev);
}

/* The target belongs to one program, the queue to another; any program with a handle keeps the
 * target. */
Test(client_xrc, u3_two_programs)
{
	int file = memfd_create("domain", MFD_CLOEXEC);
	struct karst_qp *ini, *tgt, *again;
	struct karst_context *maker;
	struct karst_qp_attr attr = {.qp_state = KARST_QPS_ERR}, was;
	struct karst_xrcd *xrcd;
	struct inbox in = {0};
	struct karst_mr *mr;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 2});
	maker = client_bed_open(&b);
	cr_assert_eq(karst_open_xrcd(maker, file, O_CREAT, &xrcd), 0, "%s", karst_why());
	inbox_up(&in, client_bed_open(&b), file);
	mr = client_bed_mr(&b, mem, sizeof(mem));
	ini = client_bed_qp(&b, KARST_QPT_XRC_SEND);
	tgt = make_target(xrcd);
	client_bed_connect(ini, tgt);
	memset(mem, 0x5a, 4096);
	post_recv(&in, 1, 8192, 4096);
	cr_assert_eq(post_to(ini, KARST_WR_SEND, 1, mr, 0, 4096, &in, 0), 0);
	expect(client_bed_wait(b.cq), 1, SUCCESS);
	expect(client_bed_wait(in.cq), 1, SUCCESS);
	cr_assert_eq(memcmp(mem, mem + 8192, 4096), 0);

	cr_assert_eq(karst_open_qp(in.xrcd, tgt->qp_num, &in, &again), 0, "%s", karst_why());
	cr_assert_eq(again->qp_num, tgt->qp_num);
	cr_assert_eq(again->lcore, tgt->lcore);
	cr_assert_eq(karst_query_qp(tgt, &was, NULL), 0);
	cr_assert_eq(karst_query_qp(again, &attr, NULL), 0);
	cr_assert_eq(attr.qp_state, KARST_QPS_RTS);
	cr_assert_eq(attr.dest_qp_num, ini->qp_num);
	cr_assert_eq(memcmp(&attr.ah_attr.dgid, &was.ah_attr.dgid, 16), 0);
	cr_assert_eq(attr.ah_attr.port_num, was.ah_attr.port_num);
	cr_assert_eq(attr.ah_attr.sgid_index, was.ah_attr.sgid_index);

	/* the creator destroys its handle */
	cr_assert_eq(karst_destroy_qp(tgt), 0);
	cr_assert_eq(karst_close_xrcd(xrcd), 0);
	cr_assert_eq(karst_close(maker), 0);
	post_recv(&in, 2, 8192, 4096);
	cr_assert_eq(post_to(ini, KARST_WR_SEND, 2, mr, 0, 64, &in, 0), 0);
	expect(client_bed_wait(b.cq), 2, SUCCESS);
	expect(client_bed_wait(in.cq), 2, SUCCESS);

	/* a third program opens it; events go to both */
	cr_assert_eq(karst_open_xrcd(b.ctx, file, 0, &xrcd), 0);
	cr_assert_eq(karst_open_qp(xrcd, again->qp_num, NULL, &tgt), 0);
	attr = (struct karst_qp_attr){.qp_state = KARST_QPS_ERR};
	cr_assert_eq(karst_modify_qp(tgt, &attr, KARST_QP_STATE), 0);
	expect_async(b.ctx, KARST_EVENT_QP_LAST_WQE_REACHED, tgt);
	expect_async(in.ctx, KARST_EVENT_QP_LAST_WQE_REACHED, again);
	cr_assert_eq(karst_destroy_qp(again), 0);
	cr_assert_eq(karst_query_qp(tgt, &attr, NULL), 0);
	cr_assert_eq(attr.qp_state, KARST_QPS_ERR);
	cr_assert_eq(karst_destroy_qp(tgt), 0);
	cr_assert_eq(karst_close_xrcd(xrcd), 0);
	cr_assert_eq(karst_destroy_qp(ini), 0);
	cr_assert_eq(karst_dereg_mr(mr), 0);
	inbox_down(&in);
	cr_assert_eq(karst_close(in.ctx), 0);
	close(file);
	client_bed_down(&b);
}

/* An SRQ is destroyed, whatever the targets of its domain do: requests that name it are refused,
 * and its number is not the number of the next SRQ. */
Test(client_xrc, u3_queue_gone)
{
	struct karst_qp *ini, *tgt;
	struct karst_srq gone;
	struct inbox in = {0};
	struct karst_mr *mr;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	inbox_up(&in, b.ctx, -1);
	mr = client_bed_mr(&b, mem, sizeof(mem));
	ini = client_bed_qp(&b, KARST_QPT_XRC_SEND);
	tgt = make_target(in.xrcd);
	client_bed_connect(ini, tgt);
	post_recv(&in, 1, 0, 64);
	cr_assert_eq(post_to(ini, KARST_WR_SEND, 1, mr, 0, 64, &in, 0), 0);
	expect(client_bed_wait(b.cq), 1, SUCCESS);
	expect(client_bed_wait(in.cq), 1, SUCCESS);
	gone = *in.srq;
	cr_assert_eq(karst_destroy_srq(in.srq), 0, "%s", karst_why());
	in.srq = make_srq(&in);
	cr_assert_neq(in.srq->srq_num, gone.srq_num);
	post_recv(&in, 2, 0, 64);
	in.srq->srq_num ^= gone.srq_num;
	gone.srq_num ^= in.srq->srq_num;
	in.srq->srq_num ^= gone.srq_num;
	cr_assert_eq(post_to(ini, KARST_WR_SEND, 2, mr, 0, 64, &in, 0), 0);
	expect(client_bed_wait(b.cq), 2, REM_INV_REQ_ERR);
	expect_async(b.ctx, KARST_EVENT_QP_REQ_ERR, tgt);
	expect_async(b.ctx, KARST_EVENT_QP_LAST_WQE_REACHED, tgt);
	client_bed_nothing(in.cq);
	cr_assert_eq(karst_destroy_qp(ini), 0);
	cr_assert_eq(karst_destroy_qp(tgt), 0);
	cr_assert_eq(karst_dereg_mr(mr), 0);
	inbox_down(&in);
	client_bed_down(&b);
}

/* A context is closed with everything in it, in the middle of its neighbours' traffic. */
Test(client_xrc, u3_program_gone)
{
	int file = memfd_create("domain", MFD_CLOEXEC);
	/* the objects of the context that ends are never freed, but not lost either */
	static struct karst_qp *tgt;
	static struct karst_context *ctx;
	static struct inbox in;
	struct karst_ctl_conn conn;
	struct inbox mine = {0};
	struct karst_qp *ini, *heir;
	struct karst_mr *mr;
	struct client_bed b;
	int i;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 2});
	cr_assert_eq(karst_session_conn(b.e, NULL, &conn), 0);
	cr_assert_eq(karst_open_conn(&conn, NULL, &ctx), 0);
	inbox_up(&in, ctx, file);
	inbox_up(&mine, b.ctx, file);
	mr = client_bed_mr(&b, mem, sizeof(mem));
	ini = client_bed_qp(&b, KARST_QPT_XRC_SEND);
	tgt = make_target(in.xrcd);
	client_bed_connect(ini, tgt);
	for (i = 0; i < 8; i++)
		post_recv(&in, 1, 0, 64);
	for (i = 0; i < 8; i++)
		cr_assert_eq(post_to(ini, KARST_WR_SEND, (uint64_t)i, mr, 0, 64, &in, 0), 0);
	/* as when the program is killed: nobody has destroyed anything.  Queue and target are its
	 * own. */
	conn.close(conn.user);
	for (i = 0; i < 8; i++) {
		struct karst_cqe e = client_bed_wait(b.cq);

		cr_assert(e.status == KARST_WC_SUCCESS || e.status == KARST_WC_REM_INV_REQ_ERR ||
				e.status == KARST_WC_WR_FLUSH_ERR ||
				e.status == KARST_WC_RETRY_EXC_ERR,
			"%u", e.status);
		if (e.status == KARST_WC_RETRY_EXC_ERR)
			break;
	}
	cr_assert_eq(karst_destroy_qp(ini), 0);
	/* the domain still exists, and so do our objects in it */
	ini = client_bed_qp(&b, KARST_QPT_XRC_SEND);
	heir = make_target(mine.xrcd);
	client_bed_connect(ini, heir);
	post_recv(&mine, 5, 0, 64);
	cr_assert_eq(post_to(ini, KARST_WR_SEND, 6, mr, 0, 64, &mine, 0), 0);
	for (;;) {
		struct karst_cqe e = client_bed_wait(b.cq);

		if (e.qpn == ini->qp_num) {
			expect(e, 6, SUCCESS);
			break;
		}
	}
	expect(client_bed_wait(mine.cq), 5, SUCCESS);
	cr_assert_eq(karst_destroy_qp(ini), 0);
	cr_assert_eq(karst_destroy_qp(heir), 0);
	cr_assert_eq(karst_dereg_mr(mr), 0);
	inbox_down(&mine);
	close(file);
	client_bed_down(&b);
}

/* The domain's file is passed to an engine in another process.  That engine is killed: sends are
 * flushed, targets and queues are destroyed without it. */
Test(client_xrc, engine_gone)
{
	int file = memfd_create("domain", MFD_CLOEXEC);
	struct karst_qp *ini, *tgt;
	struct karst_xrcd *again;
	struct inbox in = {0};
	struct karst_mr *mr;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1, .forked = true});
	cr_assert_eq(karst_open_xrcd(b.ctx, file, 0, &again), -ENOENT);
	inbox_up(&in, b.ctx, file);
	cr_assert_eq(karst_open_xrcd(b.ctx, file, O_CREAT | O_EXCL, &again), -EEXIST);
	cr_assert_eq(karst_open_xrcd(b.ctx, file, 0, &again), 0, "%s", karst_why());
	close(file);
	mr = client_bed_mr(&b, mem, sizeof(mem));
	ini = client_bed_qp(&b, KARST_QPT_XRC_SEND);
	tgt = make_target(in.xrcd);
	client_bed_connect(ini, tgt);
	/* no receive to put it into */
	cr_assert_eq(post_to(ini, KARST_WR_SEND, 7, mr, 0, 64, &in, 0), 0);
	client_bed_kill(&b);
	expect(client_bed_wait(b.cq), 7, WR_FLUSH_ERR);
	client_bed_nothing(in.cq);
	cr_assert_eq(karst_destroy_qp(ini), 0, "%s", karst_why());
	cr_assert_eq(karst_destroy_qp(tgt), 0, "%s", karst_why());
	cr_assert_eq(karst_dereg_mr(mr), 0);
	cr_assert_eq(karst_close_xrcd(again), 0);
	inbox_down(&in);
	client_bed_down(&b);
}
