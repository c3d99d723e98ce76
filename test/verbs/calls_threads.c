/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Concurrent calls of several threads. */
#include "calls_task.h"

#include <unistd.h>

static void *
make_a_pd(void *arg)
{
	struct task *t = arg;
	struct ibv_pd *pd;

	task_is_mine(t);
	MUST((pd = ibv_alloc_pd(t->ctx)) != NULL);
	EQ(ibv_dealloc_pd(pd), 0);
	t->finished = true;
	return NULL;
}

static void *
resize(void *arg)
{
	struct task *t = arg;

	t->tid = gettid();
	EQ(ibv_resize_cq(t->cq, 500), 0);
	t->finished = true;
	return NULL;
}

/* Polling is not blocked while a request waits for the engine and a second request, which resizes
 * the queue, waits for the first: a request may take seconds. */
void
polls_go_on_beside_requests(void)
{
	struct task first = {0}, second = {0};
	struct ibv_wc wc;
	struct rig r;
	int i;

	rig_up(&r);
	first.ctx = r.ctx;
	second.cq = r.cq;
	alarm(PATIENCE_S);
	task_begin_held(&first, make_a_pd);
	task_begin(&second, resize);
	until_it_waits(&second);
	for (i = 0; i < 1000; i++)
		EQ(ibv_poll_cq(r.cq, 1, &wc), 0);
	EQ(ibv_req_notify_cq(r.cq, 0), 0);
	task_end(&first);
	task_end(&second);
	alarm(0);
	CHECK(r.cq->cqe >= 500, "%d", r.cq->cqe);
	rig_down(&r);
}

#define REQUESTS 100

/* A thread with an extended poll under way may make requests, even while another thread wants to
 * resize the queue. */
void
requests_in_the_midst_of_a_poll(void)
{
	struct ibv_cq_init_attr_ex init = {.cqe = 16};
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_cq *spare;
	struct ibv_cq_ex *ex;
	struct task t = {0};
	struct ibv_pd *pd;
	struct rig r;
	int i, ret;

	rig_up(&r);
	spare = r.cq;
	MUST((ex = ibv_create_cq_ex(r.ctx, &init)) != NULL);
	t.cq = r.cq = ibv_cq_ex_to_cq(ex);
	rig_connect(&r, IBV_QPT_RC);
	EQ(post_recv(&r, r.qp[1], 1, 0, 64), 0);
	EQ(post_send(&r, r.qp[0], 2, 64, 8, 0), 0);
	alarm(PATIENCE_S);
	while ((ret = ibv_start_poll(ex, &attr)) == ENOENT)
		;
	EQ(ret, 0);
	task_begin(&t, resize);
	while (t.tid == 0)
		usleep(1000);
	for (i = 0; i < REQUESTS; i++) {
		MUST((pd = ibv_alloc_pd(r.ctx)) != NULL);
		EQ(ibv_dealloc_pd(pd), 0);
	}
	CHECK(!t.finished, "what is being looked at was moved");
	EQ(ex->status, IBV_WC_SUCCESS);
	ibv_end_poll(ex);
	task_end(&t);
	alarm(0);
	wait_for(r.cq);
	nothing_more(&r);
	for (i = 0; i < 2; i++) {
		EQ(ibv_destroy_qp(r.qp[i]), 0);
		r.qp[i] = NULL;
	}
	EQ(ibv_destroy_cq(r.cq), 0);
	r.cq = spare;
	rig_down(&r);
}

static void *
deregister(void *arg)
{
	struct task *t = arg;

	task_is_mine(t);
	EQ(ibv_dereg_mr(t->mr), 0);
	t->finished = true;
	return NULL;
}

/* ibv_advise_mr() does not access a region that is being deregistered, because its memory may be
 * freed at any moment. */
void
no_advice_about_what_goes(void)
{
	struct task t = {0};
	struct ibv_sge sge;
	struct rig r;

	rig_up(&r);
	t.mr = rig_on_demand(&r, &sge);
	EQ(ibv_advise_mr(r.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &sge, 1), 0);
	alarm(PATIENCE_S);
	task_begin_held(&t, deregister);
	EQ(ibv_advise_mr(r.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &sge, 1), ENOENT);
	task_end(&t);
	alarm(0);
	rig_down(&r);
}

/* The threads of the case below. */
static struct task advised, not_advised;

static void *
deregister_simply(void *arg)
{
	struct task *t = arg;

	t->tid = gettid();
	EQ(ibv_dereg_mr(t->mr), 0);
	t->finished = true;
	return NULL;
}

/* Called in the midst of ibv_advise_mr(). */
static void
deregister_both(struct task *t)
{
	(void)t;
	task_begin(&not_advised, deregister_simply);
	task_end(&not_advised);
	task_begin(&advised, deregister_simply);
	until_it_waits(&advised);
	CHECK(!advised.finished, "deregistered while it is prefetched");
}

/* ibv_advise_mr() may wait for pages as long as a program that handles their faults likes.  It
 * delays the deregistration of its region, but not that of another one. */
void
regions_go_beside_advice(void)
{
	struct task t = {.at_sysconf = deregister_both};
	struct ibv_sge sge, other;
	struct rig r;

	rig_up(&r);
	advised.mr = rig_on_demand(&r, &sge);
	not_advised.mr = rig_on_demand(&r, &other);
	alarm(PATIENCE_S);
	task_is_mine(&t);
	EQ(ibv_advise_mr(r.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), 0);
	task_is_mine(NULL);
	CHECK(t.at_sysconf == NULL, "it has not come there");
	task_end(&advised);
	alarm(0);
	EQ(ibv_advise_mr(r.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), ENOENT);
	rig_down(&r);
}

static void *
reregister(void *arg)
{
	struct task *t = arg;

	task_is_mine(t);
	t->tid = gettid();
	EQ(ibv_rereg_mr(t->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
		   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND),
		0);
	t->finished = true;
	return NULL;
}

/* Two threads re-register one on-demand region at the same time.  Afterwards ibv_advise_mr() finds
 * that region and no other. */
void
reregistered_by_two_threads(void)
{
	struct task first = {0}, second = {0};
	struct ibv_sge sge, other;
	struct rig r;

	rig_up(&r);
	first.mr = second.mr = rig_on_demand(&r, &sge);
	other = sge;
	other.lkey = r.mr->lkey;
	alarm(PATIENCE_S);
	task_begin_held(&first, reregister);
	task_begin(&second, reregister);
	until_it_waits(&second);
	EQ(ibv_advise_mr(r.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &sge, 1), ENOENT);
	task_end(&first);
	task_end(&second);
	EQ(ibv_advise_mr(r.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &sge, 1), 0);
	EQ(ibv_advise_mr(r.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &other, 1), ENOENT);
	EQ(ibv_dereg_mr(first.mr), 0);
	alarm(0);
	rig_down(&r);
}

static void *
destroy_srq(void *arg)
{
	struct task *t = arg;

	t->tid = gettid();
	EQ(ibv_destroy_srq(t->srq), 0);
	t->finished = true;
	pthread_testcancel();
	return NULL;
}

/* A thread is cancelled while it waits, in ibv_destroy_srq(), for an acknowledgement.  The thread
 * that acknowledges must not be blocked by that. */
void
cancelled_while_it_destroys(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq_attr limit = {.srq_limit = 2};
	struct ibv_async_event e;
	struct task t = {0};
	struct rig r;
	void *end;

	rig_up(&r);
	MUST((t.srq = ibv_create_srq(r.pd, &init)) != NULL);
	EQ(ibv_modify_srq(t.srq, &limit, IBV_SRQ_LIMIT), 0);
	alarm(PATIENCE_S);
	MUST(ibv_get_async_event(r.ctx, &e) == 0);
	task_begin(&t, destroy_srq);
	until_it_waits(&t);
	EQ(pthread_cancel(t.thread), 0);
	ibv_ack_async_event(&e);
	EQ(pthread_join(t.thread, &end), 0);
	alarm(0);
	CHECK(t.finished, "cut off");
	CHECK(end == PTHREAD_CANCELED, "later it can be cancelled");
	rig_down(&r);
}

static void *
destroy_qp(void *arg)
{
	struct task *t = arg;

	t->tid = gettid();
	EQ(ibv_destroy_qp(t->qp), 0);
	t->finished = true;
	return NULL;
}

/* A program that has an event may use the event's object until it acknowledges the event. */
void
used_until_acknowledged(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_qp_attr drained = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct ibv_srq_attr limit = {.srq_limit = 2}, is;
	struct task of_srq = {0}, of_qp = {0};
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
	struct ibv_qp_init_attr made;
	struct ibv_async_event e;
	struct ibv_qp_attr has;
	struct rig r;

	rig_up(&r);
	MUST((of_srq.srq = ibv_create_srq(r.pd, &init)) != NULL);
	EQ(ibv_modify_srq(of_srq.srq, &limit, IBV_SRQ_LIMIT), 0);
	alarm(PATIENCE_S);
	MUST(ibv_get_async_event(r.ctx, &e) == 0);
	task_begin(&of_srq, destroy_srq);
	until_it_waits(&of_srq);
	if (CHECK(ibv_query_srq(e.element.srq, &is) == 0, "it is gone"))
		EQ(ibv_post_srq_recv(e.element.srq, &wr, &bad), 0);
	ibv_ack_async_event(&e);
	task_end(&of_srq);
	rig_connect(&r, IBV_QPT_RC);
	EQ(ibv_modify_qp(r.qp[0], &drained, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	MUST(ibv_get_async_event(r.ctx, &e) == 0);
	EQ(e.event_type, IBV_EVENT_SQ_DRAINED);
	of_qp.qp = r.qp[0];
	task_begin(&of_qp, destroy_qp);
	until_it_waits(&of_qp);
	EQ(ibv_query_qp(e.element.qp, &has, IBV_QP_STATE, &made), 0);
	ibv_ack_async_event(&e);
	task_end(&of_qp);
	alarm(0);
	r.qp[0] = NULL;
	rig_down(&r);
}
