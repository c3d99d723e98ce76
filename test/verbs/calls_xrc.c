/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* XRC queue pairs and completion queues that their creation names but that they do not use: an
 * XRC_SEND queue pair has no receives, and an XRC_RECV queue pair has no completions at all.  Such
 * a completion queue may be destroyed first, and is not accessed afterwards. */
#include "calls_bed.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- completion queues whose memory is inaccessible after they were destroyed --- */

#define SPARE_BYTES 65536u

static void *
allocate_pages(struct ibv_pd *pd, void *context, size_t size, size_t align, uint64_t what)
{
	void *p =
		mmap(NULL, SPARE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)pd, (void)context, (void)align, (void)what;
	MUST(size <= SPARE_BYTES && p != MAP_FAILED);
	return p;
}

static void
lock_pages(struct ibv_pd *pd, void *context, void *p, uint64_t what)
{
	(void)pd, (void)context, (void)what;
	MUST(mprotect(p, SPARE_BYTES, PROT_NONE) == 0);
}

static struct ibv_pd *
guarding_domain(struct rig *r)
{
	struct ibv_parent_domain_init_attr init = {
		.pd = r->pd,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
		.alloc = allocate_pages,
		.free = lock_pages,
	};
	struct ibv_pd *pd = ibv_alloc_parent_domain(r->ctx, &init);

	MUST(pd != NULL);
	return pd;
}

static struct ibv_cq *
guarded_cq(struct rig *r, struct ibv_pd *pd)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 16, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = pd};
	struct ibv_cq_ex *ex = ibv_create_cq_ex(r->ctx, &init);

	MUST(ex != NULL);
	return ibv_cq_ex_to_cq(ex);
}

/* --- the cases --- */

/* Both calls remove the completions of @qp that have not been polled. */
static void
reset_and_destroy(struct ibv_qp *qp)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

	EQ(ibv_modify_qp(qp, &reset, IBV_QP_STATE), 0);
	EQ(ibv_destroy_qp(qp), 0);
}

/* @extended: create the queue pair by ibv_create_qp_ex(). */
static void
sender_names_a_cq(struct rig *r, struct ibv_pd *pd, bool extended)
{
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = r->cq,
		.recv_cq = guarded_cq(r, pd),
		.cap = {.max_send_wr = 4, .max_send_sge = 1},
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = r->pd,
	};
	struct ibv_qp_init_attr init = {
		.send_cq = ex.send_cq,
		.recv_cq = ex.recv_cq,
		.cap = ex.cap,
		.qp_type = IBV_QPT_XRC_SEND,
	};
	struct ibv_qp *qp = extended ? ibv_create_qp_ex(r->ctx, &ex) : ibv_create_qp(r->pd, &init);

	MUST(qp != NULL);
	EQ(ibv_destroy_cq(r->cq), EBUSY);
	EQ(ibv_destroy_cq(ex.recv_cq), 0);
	reset_and_destroy(qp);
}

static void
receiver_names_cqs(struct rig *r, struct ibv_pd *pd)
{
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_qp_init_attr_ex init = {
		.send_cq = guarded_cq(r, pd),
		.recv_cq = guarded_cq(r, pd),
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = ibv_open_xrcd(r->ctx, &xrcd),
	};
	struct ibv_qp *qp;

	MUST(init.xrcd != NULL);
	MUST((qp = ibv_create_qp_ex(r->ctx, &init)) != NULL);
	EQ(ibv_destroy_cq(init.send_cq), 0);
	EQ(ibv_destroy_cq(init.recv_cq), 0);
	reset_and_destroy(qp);
	EQ(ibv_close_xrcd(init.xrcd), 0);
}

void
cqs_that_are_only_named(void)
{
	struct ibv_pd *pd;
	struct rig r;

	rig_up(&r);
	pd = guarding_domain(&r);
	alarm(PATIENCE_S);
	sender_names_a_cq(&r, pd, false);
	sender_names_a_cq(&r, pd, true);
	receiver_names_cqs(&r, pd);
	alarm(0);
	EQ(ibv_dealloc_pd(pd), 0);
	rig_down(&r);
}
