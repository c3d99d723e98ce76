/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Invalid objects: objects whose handle the program has changed, that it has made up, that are
 * NULL, or that were destroyed.  Calls with them must fail with EINVAL or ENOENT, in errno too, and
 * change nothing; an object whose handle is restored must work as before.  Run under karst-run;
 * prints TAP.
 */
#include "calls_bed.h"

#include <fcntl.h>
#include <unistd.h>

static struct rig rig, *const r = &rig;

/* Checks that @call is refused. */
#define NO(what, call)                                                                         \
	do {                                                                                   \
		int got_ = (errno = ENOTTY, (call)), errno_ = errno;                           \
		check(got_ == EINVAL || got_ == ENOENT, __LINE__, what, "%s", strerror(got_)); \
		check(errno_ == got_, __LINE__, what, "errno: %s", strerror(errno_));          \
	} while (0)
/* The same for calls that return a pointer. */
#define NONE(what, call) NO(what, (call) == NULL ? errno : 0)
/* Checks that @call is refused while @handle has another value. */
#define SPOILT(handle, what, call)           \
	do {                                 \
		(handle) ^= 0x5a5a5a5au;     \
		NO(what, call);              \
		(handle) = 0;                \
		NO(what ", handle 0", call); \
		(handle) = was;              \
	} while (0)

static struct ibv_qp *
qp_of(struct ibv_pd *pd, struct ibv_cq *send, struct ibv_cq *recv, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = send,
		.recv_cq = recv,
		.srq = srq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(pd, &init);
}

static struct ibv_srq *
srq_of(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};

	return ibv_create_srq(pd, &init);
}

static struct ibv_ah *
ah_of(struct ibv_pd *pd)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};

	MUST(ibv_query_gid(r->ctx, 1, 0, &attr.grh.dgid) == 0);
	return ibv_create_ah(pd, &attr);
}

/* --- domains --- */

static void
domains(void)
{
	struct ibv_parent_domain_init_attr parent = {.pd = r->pd};
	struct ibv_sge sge = {(uintptr_t)r->buf, 8, r->mr->lkey};
	struct ibv_pd made_up = *r->pd, *pd = ibv_alloc_pd(r->ctx);
	uint32_t was = pd->handle;

	MUST(pd != NULL);
	SPOILT(pd->handle, "ibv_dealloc_pd", ibv_dealloc_pd(pd));
	SPOILT(pd->handle, "a queue pair", qp_of(pd, r->cq, r->cq, NULL) == NULL ? errno : 0);
	SPOILT(pd->handle, "an SRQ", srq_of(pd) == NULL ? errno : 0);
	SPOILT(pd->handle, "an address", ah_of(pd) == NULL ? errno : 0);
	SPOILT(pd->handle, "a window", ibv_alloc_mw(pd, IBV_MW_TYPE_1) == NULL ? errno : 0);
	SPOILT(pd->handle, "a region",
		ibv_reg_mr(pd, r->buf, 4096, IBV_ACCESS_LOCAL_WRITE) == NULL ? errno : 0);
	SPOILT(pd->handle, "advice", ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	parent.pd = pd;
	SPOILT(pd->handle, "a parent domain",
		ibv_alloc_parent_domain(r->ctx, &parent) == NULL ? errno : 0);
	EQ(ibv_dealloc_pd(pd), 0);
	NO("a domain that is made up", ibv_dealloc_pd(&made_up));
	NONE("a region in it", ibv_reg_mr(&made_up, r->buf, 4096, IBV_ACCESS_LOCAL_WRITE));
}

/* --- memory --- */

static void
memory(void)
{
	struct ibv_mr made_up, *mr = ibv_reg_mr(r->pd, r->buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mw *mw = ibv_alloc_mw(r->pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {.wr_id = 1, .send_flags = IBV_SEND_SIGNALED};
	uint32_t was;

	MUST(mr != NULL && mw != NULL);
	was = mr->handle;
	SPOILT(mr->handle, "ibv_dereg_mr", ibv_dereg_mr(mr));
	SPOILT(mr->handle, "ibv_rereg_mr",
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) ? errno : 0);
	was = r->pd->handle;
	SPOILT(r->pd->handle, "ibv_rereg_mr into a domain",
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, r->pd, NULL, 0, 0) ? errno : 0);
	was = mw->handle;
	SPOILT(mw->handle, "ibv_dealloc_mw", ibv_dealloc_mw(mw));
	rig_connect(r, IBV_QPT_RC);
	SPOILT(mw->handle, "ibv_bind_mw", ibv_bind_mw(r->qp[0], mw, &bind));
	was = r->qp[0]->handle;
	SPOILT(r->qp[0]->handle, "ibv_bind_mw, queue pair", ibv_bind_mw(r->qp[0], mw, &bind));
	NO("ibv_bind_mw, no queue pair", ibv_bind_mw(NULL, mw, &bind));
	/* as with adapters, an invalid region is detected when the bind is executed */
	made_up = *mr;
	made_up.lkey ^= 0x5a5a5a00u;
	bind.bind_info = (struct ibv_mw_bind_info){&made_up, (uintptr_t)r->buf, 8, 0};
	EQ(ibv_bind_mw(r->qp[0], mw, &bind), 0);
	EQ(wait_for(r->cq).status, IBV_WC_MW_BIND_ERR);
	EQ(ibv_destroy_qp(r->qp[0]), 0);
	NO("ibv_bind_mw, queue pair destroyed", ibv_bind_mw(r->qp[0], mw, &bind));
	EQ(ibv_destroy_qp(r->qp[1]), 0);
	r->qp[0] = r->qp[1] = NULL;
	EQ(ibv_dealloc_mw(mw), 0);
	EQ(ibv_dereg_mr(mr), 0);
}

/* --- queues --- */

static void
completion_queues(void)
{
	struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE};
	struct ibv_cq *cq = ibv_create_cq(r->ctx, 16, NULL, NULL, 0);
	struct ibv_cq made_up;
	uint32_t was;

	MUST(cq != NULL);
	was = cq->handle;
	made_up = *cq;
	SPOILT(cq->handle, "ibv_destroy_cq", ibv_destroy_cq(cq));
	SPOILT(cq->handle, "ibv_resize_cq", ibv_resize_cq(cq, 32));
	SPOILT(cq->handle, "ibv_modify_cq", ibv_modify_cq(cq, &attr));
	SPOILT(cq->handle, "a queue pair sending",
		qp_of(r->pd, cq, r->cq, NULL) == NULL ? errno : 0);
	SPOILT(cq->handle, "a queue pair receiving",
		qp_of(r->pd, r->cq, cq, NULL) == NULL ? errno : 0);
	NONE("one that is made up", qp_of(r->pd, &made_up, &made_up, NULL));
	NONE("no CQ to send", qp_of(r->pd, NULL, r->cq, NULL));
	NONE("no CQ to receive", qp_of(r->pd, r->cq, NULL, NULL));
	EQ(ibv_resize_cq(cq, 32), 0);
	EQ(ibv_destroy_cq(cq), 0);
	NONE("one that was destroyed", qp_of(r->pd, cq, cq, NULL));
}

static void
shared_receive_queues(void)
{
	struct ibv_srq_attr limit = {.srq_limit = 1}, now;
	struct ibv_srq *srq = srq_of(r->pd);
	struct ibv_srq made_up;
	struct ibv_qp *qp;
	uint32_t was;

	MUST(srq != NULL);
	was = srq->handle;
	made_up = *srq;
	SPOILT(srq->handle, "ibv_destroy_srq", ibv_destroy_srq(srq));
	SPOILT(srq->handle, "ibv_modify_srq", ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	SPOILT(srq->handle, "ibv_query_srq", ibv_query_srq(srq, &now));
	SPOILT(srq->handle, "a queue pair", qp_of(r->pd, r->cq, r->cq, srq) == NULL ? errno : 0);
	NONE("one that is made up", qp_of(r->pd, r->cq, r->cq, &made_up));
	MUST((qp = qp_of(r->pd, r->cq, r->cq, srq)) != NULL);
	EQ(ibv_destroy_qp(qp), 0);
	EQ(ibv_destroy_srq(srq), 0);
	NONE("one that was destroyed", qp_of(r->pd, r->cq, r->cq, srq));
}

static void
xrc(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(r->ctx, &attr);
	struct ibv_xrcd made_up;
	struct ibv_srq_init_attr_ex init = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = r->pd,
		.cq = r->cq,
	};
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
	struct ibv_qp_open_attr open = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = 99,
		.qp_type = IBV_QPT_XRC_RECV};
	struct ibv_srq *srq;

	MUST(xrcd != NULL);
	NONE("no XRC domain", ibv_create_srq_ex(r->ctx, &init));
	made_up = *xrcd;
	init.xrcd = &made_up;
	NONE("one that is made up", ibv_create_srq_ex(r->ctx, &init));
	NO("to close it", ibv_close_xrcd(&made_up));
	target.xrcd = &made_up;
	NONE("a queue pair in it", ibv_create_qp_ex(r->ctx, &target));
	open.xrcd = &made_up;
	NONE("to open one in it", ibv_open_qp(r->ctx, &open));
	init.xrcd = xrcd;
	init.cq = NULL;
	NONE("no CQ", ibv_create_srq_ex(r->ctx, &init));
	init.cq = r->cq;
	MUST((srq = ibv_create_srq_ex(r->ctx, &init)) != NULL);
	EQ(ibv_destroy_srq(srq), 0);
	EQ(ibv_close_xrcd(xrcd), 0);
	NO("to close it again", ibv_close_xrcd(&made_up));
}

/* --- queue pairs, addresses --- */

static void
queue_pairs(void)
{
	union ibv_gid group = {.raw = {0xff, 0x0e, [15] = 1}};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp *qp = make_qp(r, IBV_QPT_UD, NULL);
	uint32_t was = qp->handle;

	SPOILT(qp->handle, "ibv_destroy_qp", ibv_destroy_qp(qp));
	SPOILT(qp->handle, "ibv_modify_qp", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	SPOILT(qp->handle, "ibv_query_qp", ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	SPOILT(qp->handle, "ibv_attach_mcast", ibv_attach_mcast(qp, &group, 0));
	SPOILT(qp->handle, "ibv_detach_mcast", ibv_detach_mcast(qp, &group, 0));
	EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	EQ(attr.qp_state, IBV_QPS_RESET);
	EQ(ibv_destroy_qp(qp), 0);
}

static void
addresses(void)
{
	struct ibv_ah *ah = ah_of(r->pd);
	struct ibv_ah made_up;
	uint32_t was;

	MUST(ah != NULL);
	was = ah->handle;
	made_up = *ah;
	SPOILT(ah->handle, "ibv_destroy_ah", ibv_destroy_ah(ah));
	NO("one that is made up", ibv_destroy_ah(&made_up));
	EQ(ibv_destroy_ah(ah), 0);
}

/* --- all of them --- */

static void
begin(void)
{
	rig_up(r);
}

static void
end(void)
{
	rig_connect(r, IBV_QPT_RC);
	nothing_more(r);
	rig_down(r);
}

int
main(void)
{
	run_case("a device and what is made of it", begin);
	run_case("domains", domains);
	run_case("memory", memory);
	run_case("completion queues", completion_queues);
	run_case("shared receive queues", shared_receive_queues);
	run_case("XRC", xrc);
	run_case("queue pairs", queue_pairs);
	run_case("addresses", addresses);
	run_case("all of it still works, and can be destroyed", end);
	return cases_end();
}
