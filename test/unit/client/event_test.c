/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Events: channels, arming, moderation, asynchronous events, and that no object is destroyed before
 * its events are acknowledged. */
#include "client_bed.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst_rdmacm.h"

static uint8_t mem[8192];

struct stage {
	struct client_bed b;
	struct karst_comp_channel *ch;
	struct karst_cq *cq; /* with events, for the receives of both QPs */
	struct karst_mr *mr;
	struct karst_qp *a;
	struct karst_qp *z;
};

static void
stage_up(struct stage *s)
{
	struct karst_qp_init_attr init;

	client_bed_up(&s->b, &(struct client_bed_config){.lcores = 1});
	s->mr = client_bed_mr(&s->b, mem, sizeof(mem));
	cr_assert_eq(karst_create_comp_channel(s->b.ctx, &s->ch), 0, "%s", karst_why());
	cr_assert_eq(karst_create_cq(s->b.ctx, 64, s, s->ch, &s->cq), 0, "%s", karst_why());
	init = client_bed_init(&s->b, KARST_QPT_RC);
	init.recv_cq = s->cq;
	init.qp_context = s;
	cr_assert_eq(karst_create_qp(s->b.pd, &init, &s->a), 0, "%s", karst_why());
	cr_assert_eq(karst_create_qp(s->b.pd, &init, &s->z), 0, "%s", karst_why());
	client_bed_connect(s->a, s->z);
}

static void
stage_down(struct stage *s)
{
	cr_assert_eq(karst_destroy_qp(s->a), 0);
	cr_assert_eq(karst_destroy_qp(s->z), 0);
	cr_assert_eq(karst_destroy_cq(s->cq), 0);
	cr_assert_eq(karst_destroy_comp_channel(s->ch), 0);
	cr_assert_eq(karst_dereg_mr(s->mr), 0);
	client_bed_down(&s->b);
}

static void
message(struct stage *s, bool solicited)
{
	struct karst_sge sge = {s->mr->iova, 8, s->mr->lkey};
	struct karst_send_wr wr = {.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = KARST_WR_SEND,
		.send_flags = KARST_SEND_SIGNALED | (solicited ? KARST_SEND_SOLICITED : 0)};

	cr_assert_eq(client_bed_recv(s->z, 2, s->mr, 4096, 8), 0);
	cr_assert_eq(karst_post_send(s->a, &wr, NULL), 0);
	cr_assert_eq(client_bed_wait(s->b.cq).status, KARST_WC_SUCCESS);
}

static bool
readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

static void
expect_event(struct stage *s)
{
	struct karst_cq *cq = NULL;
	void *context = NULL;

	cr_assert(readable(s->ch->fd, (int)BED_PATIENCE_MS));
	cr_assert_eq(karst_get_cq_event(s->ch, &cq, &context), 0, "%s", karst_why());
	cr_assert_eq(cq, s->cq);
	cr_assert_eq(context, s);
	karst_ack_cq_events(cq, 1);
}

Test(client_event, armed)
{
	struct karst_cq *cq;
	void *context;
	struct stage s;

	stage_up(&s);
	message(&s, false);
	client_bed_wait(s.cq);
	cr_assert_not(readable(s.ch->fd, 0), "not armed");
	cr_assert_eq(karst_req_notify_cq(s.cq, false), 0);
	client_bed_nothing(s.cq);
	message(&s, false);
	expect_event(&s);
	client_bed_wait(s.cq);
	/* once */
	message(&s, false);
	client_bed_wait(s.cq);
	cr_assert_not(readable(s.ch->fd, 0));
	cr_assert_eq(fcntl(s.ch->fd, F_SETFL, O_NONBLOCK), 0);
	cr_assert_eq(karst_get_cq_event(s.ch, &cq, &context), -EAGAIN);
	/* solicited */
	cr_assert_eq(karst_req_notify_cq(s.cq, true), 0);
	message(&s, false);
	client_bed_wait(s.cq);
	cr_assert_not(readable(s.ch->fd, 0));
	message(&s, true);
	expect_event(&s);
	client_bed_wait(s.cq);
	stage_down(&s);
}

struct waiter {
	struct stage *s;
	atomic_int tid;
	atomic_int stage;
};

static void *
destroy(void *arg)
{
	struct waiter *w = arg;

	atomic_store(&w->tid, gettid());
	atomic_store(&w->stage, 1);
	cr_assert_eq(karst_destroy_cq(w->s->cq), 0);
	atomic_store(&w->stage, 2);
	return NULL;
}

/* A queue is destroyed when its events are acknowledged, and not before. */
Test(client_event, destroy_waits)
{
	struct karst_qp_init_attr init;
	struct waiter w = {.stage = 0};
	struct karst_cq *cq = NULL;
	void *context;
	struct stage s;
	pthread_t t;

	stage_up(&s);
	w.s = &s;
	cr_assert_eq(karst_req_notify_cq(s.cq, false), 0);
	message(&s, false);
	cr_assert_eq(karst_get_cq_event(s.ch, &cq, &context), 0);
	cr_assert_eq(karst_destroy_qp(s.a), 0);
	cr_assert_eq(karst_destroy_qp(s.z), 0);
	cr_assert_eq(pthread_create(&t, NULL, destroy, &w), 0);
	while (atomic_load(&w.stage) == 0 ||
		/* the thread waits for the other thread, not for the engine's answer, which is a
		 * message */
		(atomic_load(&w.stage) == 1 &&
			!client_bed_in_syscall(atomic_load(&w.tid), SYS_futex)))
		client_bed_pause();
	cr_assert_eq(atomic_load(&w.stage), 1, "it waits");
	karst_ack_cq_events(cq, 1);
	pthread_join(t, NULL);
	cr_assert_eq(atomic_load(&w.stage), 2);
	cr_assert_eq(karst_create_cq(s.b.ctx, 64, &s, s.ch, &s.cq), 0);
	init = client_bed_init(&s.b, KARST_QPT_RC);
	cr_assert_eq(karst_create_qp(s.b.pd, &init, &s.a), 0);
	cr_assert_eq(karst_create_qp(s.b.pd, &init, &s.z), 0);
	stage_down(&s);
}

/* An event that nobody has read is not taken for one of the queue that is created next. */
Test(client_event, stale)
{
	struct karst_qp_init_attr init;
	struct karst_cq *cq;
	void *context;
	struct stage s;

	stage_up(&s);
	cr_assert_eq(karst_req_notify_cq(s.cq, false), 0);
	message(&s, false);
	cr_assert(readable(s.ch->fd, (int)BED_PATIENCE_MS));
	cr_assert_eq(karst_destroy_qp(s.a), 0);
	cr_assert_eq(karst_destroy_qp(s.z), 0);
	cr_assert_eq(karst_destroy_cq(s.cq), 0);
	cr_assert_not(readable(s.ch->fd, 0));
	cr_assert_eq(karst_create_cq(s.b.ctx, 64, &s, s.ch, &s.cq), 0);
	cr_assert_not(readable(s.ch->fd, 0));
	cr_assert_eq(fcntl(s.ch->fd, F_SETFL, O_NONBLOCK), 0);
	cr_assert_eq(karst_get_cq_event(s.ch, &cq, &context), -EAGAIN);
	init = client_bed_init(&s.b, KARST_QPT_RC);
	cr_assert_eq(karst_create_qp(s.b.pd, &init, &s.a), 0);
	cr_assert_eq(karst_create_qp(s.b.pd, &init, &s.z), 0);
	stage_down(&s);
}

/* The first packet of a connection before RTS, and the limit of a shared receive queue. */
Test(client_event, asynchronous)
{
	struct karst_srq_init_attr sinit = {.srq_context = &sinit, .max_wr = 4, .max_sge = 1};
	struct karst_async_event ev;
	struct karst_srq *srq;
	struct stage s;

	stage_up(&s);
	cr_assert_eq(fcntl(s.b.ctx->async_fd, F_SETFL, O_NONBLOCK), 0);
	while (karst_get_async_event(s.b.ctx, &ev) == 0)
		karst_ack_async_event(&ev);
	cr_assert_eq(karst_get_async_event(s.b.ctx, &ev), -EAGAIN);
	cr_assert_eq(karst_create_srq(s.b.pd, &sinit, &srq), 0);
	/* fewer than the limit already: the event comes at once */
	cr_assert_eq(karst_modify_srq(srq, 2), 0);
	cr_assert(readable(s.b.ctx->async_fd, (int)BED_PATIENCE_MS));
	cr_assert_eq(karst_get_async_event(s.b.ctx, &ev), 0);
	cr_assert_eq(ev.event, KARST_EVENT_SRQ_LIMIT_REACHED);
	cr_assert_eq(ev.object, KARST_ASYNC_OBJECT_SRQ);
	cr_assert_eq(ev.element.srq, srq);
	cr_assert_eq(ev.element.srq->srq_context, &sinit);
	karst_ack_async_event(&ev);
	cr_assert_eq(karst_destroy_srq(srq), 0);
	/* a queue pair that a program has broken */
	atomic_store(&s.a->sq.sh->tail, 12345);
	cr_assert_eq(karst_ring_bell(s.a), 0);
	cr_assert(readable(s.b.ctx->async_fd, (int)BED_PATIENCE_MS));
	cr_assert_eq(karst_get_async_event(s.b.ctx, &ev), 0);
	cr_assert_eq(ev.event, KARST_EVENT_QP_FATAL, "%s", karst_event_str(ev.event));
	cr_assert_eq(ev.element.qp, s.a);
	cr_assert_eq(ev.element.qp->qp_context, &s);
	karst_ack_async_event(&ev);
	stage_down(&s);
}

/* One event comes for several completions, or for fewer when the time is over. */
Test(client_event, moderation)
{
	struct stage s;
	int i;

	stage_up(&s);
	cr_assert_eq(karst_modify_cq(s.cq, 3, 60000), 0, "%s", karst_why());
	cr_assert_eq(karst_req_notify_cq(s.cq, false), 0);
	for (i = 0; i < 3; i++)
		message(&s, false);
	expect_event(&s);
	for (i = 0; i < 3; i++)
		client_bed_wait(s.cq);
	cr_assert_eq(karst_modify_cq(s.cq, 1000, 1000), 0, "%s", karst_why());
	cr_assert_eq(karst_req_notify_cq(s.cq, false), 0);
	message(&s, false);
	expect_event(&s); /* a millisecond later */
	client_bed_wait(s.cq);
	stage_down(&s);
}

/* Completions from before raise no event; a program that wants one for them asks for it. */
Test(client_event, raised)
{
	struct karst_cq *got;
	void *context;
	struct stage s;

	stage_up(&s);
	cr_assert_eq(karst_raise_cq_event(s.b.cq), -EINVAL, "it has no channel");
	message(&s, false);
	cr_assert_eq(karst_raise_cq_event(s.cq), 0, "it is not armed");
	cr_assert_eq(karst_req_notify_cq(s.cq, false), 0);
	cr_assert_not(readable(s.ch->fd, 0));
	cr_assert_eq(karst_raise_cq_event(s.cq), 0);
	cr_assert_eq(karst_get_cq_event(s.ch, &got, &context), 0);
	cr_assert_eq(got, s.cq);
	karst_ack_cq_events(got, 1);
	/* that was the only event */
	cr_assert_eq(karst_raise_cq_event(s.cq), 0);
	message(&s, false);
	cr_assert_not(readable(s.ch->fd, 0));
	cr_assert_eq(client_bed_wait(s.cq).status, KARST_WC_SUCCESS);
	cr_assert_eq(client_bed_wait(s.cq).status, KARST_WC_SUCCESS);
	stage_down(&s);
}

static void
renumber(struct client_bed *b, uint8_t port, uint32_t ip)
{
	const struct karst_engine_addr addr = karst_engine_addr_ip4(ip);

	cr_assert_eq(karst_engine_port_set_addrs(b->e, port, 1, &addr), 0);
}

/* A context that wants the events of one port is not told of others: its descriptor would be
 * readable for nothing. */
Test(client_event, of_one_port)
{
	const struct karst_open_attr attr = {.event_port = 1};
	struct karst_async_event ev;
	struct karst_context *ctx;
	struct karst_ctl_conn conn;
	struct client_bed b;
	uint32_t i;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_session_conn(b.e, NULL, &conn), 0);
	/* before the program has said which port it is */
	renumber(&b, 1, 0x0a000009);
	cr_assert_eq(karst_open_conn(&conn, &attr, &ctx), 0, "%s", karst_why());
	renumber(&b, 1, 0x0a00000a);
	cr_assert_not(readable(ctx->async_fd, 0));
	renumber(&b, 0, 0x0a00000b);
	cr_assert(readable(ctx->async_fd, (int)BED_PATIENCE_MS));
	cr_assert_eq(karst_get_async_event(ctx, &ev), 0);
	cr_assert_eq(ev.event, KARST_EVENT_GID_CHANGE);
	cr_assert_eq(ev.element.port_num, 1);
	cr_assert_not(readable(ctx->async_fd, 0));
	/* the bed's context gets all of them */
	for (i = 0; i < 3; i++) {
		cr_assert_eq(karst_get_async_event(b.ctx, &ev), 0);
		cr_assert_eq(ev.element.port_num, i < 2 ? 2 : 1);
	}
	cr_assert_eq(karst_close(ctx), 0);
	client_bed_down(&b);
}

/* As with the kernel's drivers, a program may have as many channels as descriptors: each connection
 * of rsockets, and each identifier that librdmacm makes without a channel, has one of either
 * kind. */
Test(client_event, many_channels)
{
	struct karst_comp_channel *ch[150];
	struct karst_rdmacm_channel *cm[KARST_DIM(ch)];
	struct client_bed b;
	uint32_t i;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	for (i = 0; i < KARST_DIM(ch); i++) {
		cr_assert_eq(karst_create_comp_channel(b.ctx, &ch[i]), 0, "%u: %s", i, karst_why());
		cr_assert_eq(
			karst_rdmacm_create_channel(b.ctx, &cm[i]), 0, "%u: %s", i, karst_why());
	}
	for (i = 0; i < KARST_DIM(ch); i++) {
		cr_assert_eq(karst_destroy_comp_channel(ch[i]), 0);
		cr_assert_eq(karst_rdmacm_destroy_channel(cm[i]), 0);
	}
	client_bed_down(&b);
}
