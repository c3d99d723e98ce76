/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Events of completion queues, which are read from channels, and asynchronous events. */
#include "calls_bed.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static bool
readable(int fd, int seconds)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 1000 * seconds) == 1;
}

void
no_event(struct ibv_comp_channel *ch)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!readable(ch->fd, 0), "readable");
	EQ(fcntl(ch->fd, F_SETFL, O_NONBLOCK), 0);
	EQ(ibv_get_cq_event(ch, &cq, &context), -1);
	EQ(errno, EAGAIN);
	EQ(fcntl(ch->fd, F_SETFL, 0), 0);
}

/* The thread that has the event polls first and then acknowledges the event.  The queue must exist
 * until then. */
static void *
acknowledge(void *cq)
{
	struct ibv_wc wc;
	int i;

	usleep(20000);
	for (i = 0; i < 1000; i++)
		EQ(ibv_poll_cq(cq, 1, &wc), 0);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

void
completion_events(void)
{
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq, *told = NULL;
	void *context = NULL;
	pthread_t late;
	struct rig r;
	int mine;

	rig_up(&r);
	MUST((ch = ibv_create_comp_channel(r.ctx)) != NULL);
	EQ(ibv_destroy_cq(r.cq), 0);
	MUST((r.cq = cq = ibv_create_cq(r.ctx, 64, &mine, ch, 0)) != NULL);
	EQ(ibv_destroy_comp_channel(ch), EBUSY);
	rig_connect(&r, IBV_QPT_RC);
	EQ(ibv_req_notify_cq(cq, 1), 0);
	EQ(post_recv(&r, r.qp[1], 1, 0, 64), 0);
	EQ(post_recv(&r, r.qp[1], 2, 0, 64), 0);
	EQ(post_send(&r, r.qp[0], 3, 64, 8, 0), 0); /* not solicited */
	wait_for(cq);
	wait_for(cq);
	EQ(post_send(&r, r.qp[0], 4, 64, 8, IBV_SEND_SOLICITED), 0);
	EQ(ibv_get_cq_event(ch, &told, &context), 0);
	CHECK(told == cq && context == &mine, "of another queue");
	wait_for(cq);
	wait_for(cq);
	EQ(ibv_destroy_cq(cq), EBUSY);
	EQ(ibv_destroy_qp(r.qp[0]), 0);
	EQ(ibv_destroy_qp(r.qp[1]), 0);
	r.qp[0] = r.qp[1] = NULL;
	/* destroying waits for the acknowledgement */
	MUST(pthread_create(&late, NULL, acknowledge, cq) == 0);
	EQ(ibv_destroy_cq(cq), 0);
	pthread_join(late, NULL);
	EQ(ibv_destroy_comp_channel(ch), 0);
	MUST((r.cq = ibv_create_cq(r.ctx, 1, NULL, NULL, 0)) != NULL);
	rig_down(&r);
}

/* A program that polls until the queue is empty, arms and waits, as UCX does, gets an event for a
 * completion that arrived between the last poll and arming. */
void
armed_late(void)
{
	struct ibv_comp_channel *ch;
	struct ibv_cq *told = NULL;
	void *context;
	struct ibv_wc wc;
	struct rig r;

	rig_up(&r);
	MUST((ch = ibv_create_comp_channel(r.ctx)) != NULL);
	EQ(ibv_destroy_cq(r.cq), 0);
	MUST((r.cq = ibv_create_cq(r.ctx, 64, NULL, ch, 0)) != NULL);
	rig_connect(&r, IBV_QPT_RC);
	EQ(post_recv(&r, r.qp[1], 1, 0, 64), 0);
	EQ(ibv_poll_cq(r.cq, 1, &wc), 0);
	EQ(post_send(&r, r.qp[0], 2, 64, 8, 0), 0);
	usleep(20000); /* time to complete; if it is too short, the event comes as usual */
	EQ(ibv_req_notify_cq(r.cq, 0), 0);
	alarm(PATIENCE_S);
	EQ(ibv_get_cq_event(ch, &told, &context), 0);
	alarm(0);
	CHECK(told == r.cq, "of another queue");
	ibv_ack_cq_events(r.cq, 1);
	wait_for(r.cq);
	wait_for(r.cq);
	EQ(ibv_destroy_qp(r.qp[0]), 0);
	EQ(ibv_destroy_qp(r.qp[1]), 0);
	r.qp[0] = r.qp[1] = NULL;
	EQ(ibv_destroy_cq(r.cq), 0);
	EQ(ibv_destroy_comp_channel(ch), 0);
	MUST((r.cq = ibv_create_cq(r.ctx, 1, NULL, NULL, 0)) != NULL);
	rig_down(&r);
}

/* A queue that is armed for solicited completions raises no event for completions from before that,
 * whether or not they were polled, nor for later ones that are not solicited. */
void
armed_for_solicited(void)
{
	struct ibv_comp_channel *ch;
	struct ibv_cq *told = NULL, *spare;
	void *context;
	struct rig r;

	rig_up(&r);
	alarm(PATIENCE_S);
	spare = r.cq;
	MUST((ch = ibv_create_comp_channel(r.ctx)) != NULL);
	r.qp[0] = make_qp(&r, IBV_QPT_RC, NULL);
	MUST((r.cq = ibv_create_cq(r.ctx, 64, NULL, ch, 0)) != NULL);
	r.qp[1] = make_qp(&r, IBV_QPT_RC, NULL);
	rig_link(&r);
	EQ(post_recv(&r, r.qp[1], 1, 0, 64), 0);
	EQ(post_recv(&r, r.qp[1], 2, 0, 64), 0);
	EQ(post_recv(&r, r.qp[1], 3, 0, 64), 0);
	EQ(post_send(&r, r.qp[0], 4, 64, 8, 0), 0);
	/* the SEND is acknowledged, so its receive has completed */
	EQ(wait_for(spare).wr_id, 4);
	EQ(ibv_req_notify_cq(r.cq, 1), 0);
	no_event(ch);
	EQ(post_send(&r, r.qp[0], 5, 64, 8, 0), 0);
	EQ(wait_for(spare).wr_id, 5);
	no_event(ch);
	EQ(post_send(&r, r.qp[0], 6, 64, 8, IBV_SEND_SOLICITED), 0);
	EQ(ibv_get_cq_event(ch, &told, &context), 0);
	CHECK(told == r.cq, "of another queue");
	ibv_ack_cq_events(r.cq, 1);
	/* armed for any completion, the queue raises an event at once for those not polled */
	wait_for(r.cq);
	EQ(ibv_req_notify_cq(r.cq, 0), 0);
	EQ(ibv_get_cq_event(ch, &told, &context), 0);
	ibv_ack_cq_events(r.cq, 1);
	EQ(ibv_destroy_qp(r.qp[0]), 0);
	EQ(ibv_destroy_qp(r.qp[1]), 0);
	r.qp[0] = r.qp[1] = NULL;
	EQ(ibv_destroy_cq(r.cq), 0);
	EQ(ibv_destroy_comp_channel(ch), 0);
	r.cq = spare;
	alarm(0);
	rig_down(&r);
}

static void
expect_event(struct rig *r, enum ibv_event_type type, const void *element)
{
	struct ibv_async_event e;

	alarm(PATIENCE_S);
	MUST(ibv_get_async_event(r->ctx, &e) == 0);
	alarm(0);
	CHECK(e.event_type == type && e.element.qp == element, "%s",
		ibv_event_type_str(e.event_type));
	ibv_ack_async_event(&e);
}

/* --- events of objects that have been destroyed --- */

/* Creates a completion queue on @ch and two queue pairs, which exchange a message.  The event is
 * not read. */
static void
told(struct rig *r, struct ibv_comp_channel *ch)
{
	MUST((r->cq = ibv_create_cq(r->ctx, 64, NULL, ch, 0)) != NULL);
	rig_connect(r, IBV_QPT_RC);
	EQ(post_recv(r, r->qp[1], 1, 0, 64), 0);
	EQ(ibv_req_notify_cq(r->cq, 0), 0);
	EQ(post_send(r, r->qp[0], 2, 64, 8, 0), 0);
	CHECK(readable(ch->fd, PATIENCE_S), "no event");
	wait_for(r->cq);
	wait_for(r->cq);
}

static void
untold(struct rig *r)
{
	EQ(ibv_destroy_qp(r->qp[0]), 0);
	EQ(ibv_destroy_qp(r->qp[1]), 0);
	EQ(ibv_destroy_cq(r->cq), 0);
	r->qp[0] = r->qp[1] = NULL;
	r->cq = NULL;
}

/* As with a kernel driver, the unread events of a queue vanish when it is destroyed.  poll(2) then
 * finds no event, and a program may rely on that even if its descriptors are blocking. */
void
unread_events_go_along(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq_attr limit = {.srq_limit = 2};
	struct ibv_cq *of = NULL, *spare;
	struct ibv_comp_channel *ch;
	struct rig r, other;
	void *context;

	rig_up(&r);
	spare = r.cq;
	MUST((ch = ibv_create_comp_channel(r.ctx)) != NULL);
	told(&r, ch);
	untold(&r);
	no_event(ch);
	/* an event before and an event behind that of another queue */
	other = r;
	told(&r, ch);
	told(&other, ch);
	untold(&r);
	CHECK(readable(ch->fd, 0), "the other's is lost");
	EQ(ibv_get_cq_event(ch, &of, &context), 0);
	CHECK(of == other.cq, "of another queue");
	ibv_ack_cq_events(of, 1);
	no_event(ch);
	EQ(ibv_req_notify_cq(other.cq, 0), 0);
	EQ(post_recv(&other, other.qp[1], 1, 0, 64), 0);
	EQ(post_send(&other, other.qp[0], 2, 64, 8, 0), 0);
	CHECK(readable(ch->fd, PATIENCE_S), "no event");
	told(&r, ch);
	untold(&r);
	EQ(ibv_get_cq_event(ch, &of, &context), 0);
	CHECK(of == other.cq, "of another queue");
	ibv_ack_cq_events(of, 1);
	no_event(ch);
	untold(&other);
	EQ(ibv_destroy_comp_channel(ch), 0);
	/* asynchronous events: fewer receives than the limit are reported at once */
	MUST((r.srq = ibv_create_srq(r.pd, &init)) != NULL);
	EQ(ibv_modify_srq(r.srq, &limit, IBV_SRQ_LIMIT), 0);
	CHECK(readable(r.ctx->async_fd, PATIENCE_S), "no event");
	EQ(ibv_destroy_srq(r.srq), 0);
	CHECK(!readable(r.ctx->async_fd, 0), "readable");
	r.srq = NULL;
	r.cq = spare;
	rig_down(&r);
}

/* A child cannot destroy a queue, and does not wait for events that the parent has not
 * acknowledged. */
void
children_wait_for_nobody(void)
{
	struct ibv_cq *of, *spare;
	struct ibv_comp_channel *ch;
	int status = -1;
	void *context;
	struct rig r;
	pid_t pid;

	rig_up(&r);
	spare = r.cq;
	MUST((ch = ibv_create_comp_channel(r.ctx)) != NULL);
	told(&r, ch);
	EQ(ibv_get_cq_event(ch, &of, &context), 0);
	EQ(ibv_destroy_qp(r.qp[0]), 0);
	EQ(ibv_destroy_qp(r.qp[1]), 0);
	r.qp[0] = r.qp[1] = NULL;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		alarm(PATIENCE_S);
		_exit(ibv_destroy_cq(of) != EPERM);
	}
	EQ(waitpid(pid, &status, 0), pid);
	EQ(status, 0);
	ibv_ack_cq_events(of, 1);
	EQ(ibv_destroy_cq(of), 0);
	EQ(ibv_destroy_comp_channel(ch), 0);
	r.cq = spare;
	rig_down(&r);
}

#define ROUNDS 200

static _Atomic bool enough;

static void *
try_to_destroy(void *cq)
{
	while (!enough)
		EQ(ibv_destroy_cq(cq), EBUSY);
	return NULL;
}

static void *
try_to_destroy_srq(void *srq)
{
	while (!enough)
		EQ(ibv_destroy_srq(srq), EBUSY);
	return NULL;
}

/* A refused attempt to destroy a queue changes nothing: another thread gets the queue's events. */
void
refused_queues_keep_events(void)
{
	struct ibv_comp_channel *ch;
	struct ibv_cq *of, *spare;
	pthread_t other;
	void *context;
	struct rig r;
	int i;

	rig_up(&r);
	spare = r.cq;
	MUST((ch = ibv_create_comp_channel(r.ctx)) != NULL);
	MUST((r.cq = ibv_create_cq(r.ctx, 64, NULL, ch, 0)) != NULL);
	rig_connect(&r, IBV_QPT_RC);
	enough = false;
	MUST(pthread_create(&other, NULL, try_to_destroy, r.cq) == 0);
	for (i = 0; i < ROUNDS; i++) {
		alarm(PATIENCE_S);
		EQ(ibv_req_notify_cq(r.cq, 0), 0);
		EQ(post_recv(&r, r.qp[1], 1, 0, 64), 0);
		EQ(post_send(&r, r.qp[0], 2, 64, 8, 0), 0);
		EQ(ibv_get_cq_event(ch, &of, &context), 0);
		ibv_ack_cq_events(of, 1);
		wait_for(r.cq);
		wait_for(r.cq);
	}
	alarm(0);
	enough = true;
	pthread_join(other, NULL);
	untold(&r);
	EQ(ibv_destroy_comp_channel(ch), 0);
	r.cq = spare;
	rig_down(&r);
}

/* The same for a shared receive queue, whose events are asynchronous. */
void
refused_srqs_keep_events(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq_attr limit = {.srq_limit = 2};
	pthread_t other;
	struct rig r;
	int i;

	rig_up(&r);
	MUST((r.srq = ibv_create_srq(r.pd, &init)) != NULL);
	rig_connect(&r, IBV_QPT_RC);
	enough = false;
	MUST(pthread_create(&other, NULL, try_to_destroy_srq, r.srq) == 0);
	for (i = 0; i < ROUNDS; i++) {
		/* fewer receives than the limit are reported at once */
		EQ(ibv_modify_srq(r.srq, &limit, IBV_SRQ_LIMIT), 0);
		expect_event(&r, IBV_EVENT_SRQ_LIMIT_REACHED, r.srq);
	}
	enough = true;
	pthread_join(other, NULL);
	rig_down(&r);
}

void
asynchronous_events(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct ibv_srq_attr limit = {.srq_limit = 2}, is;
	struct rig r;
	unsigned int i;

	rig_up(&r);
	MUST((r.srq = ibv_create_srq(r.pd, &init)) != NULL);
	rig_connect(&r, IBV_QPT_RC);
	for (i = 0; i < 2; i++)
		EQ(post_recv(&r, r.qp[1], i, 0, 64), 0);
	EQ(ibv_modify_srq(r.srq, &limit, IBV_SRQ_LIMIT), 0);
	EQ(ibv_query_srq(r.srq, &is), 0);
	EQ(is.srq_limit, 2);
	EQ(post_send(&r, r.qp[0], 3, 64, 8, 0), 0);
	wait_for(r.cq);
	wait_for(r.cq);
	expect_event(&r, IBV_EVENT_SRQ_LIMIT_REACHED, r.srq);
	EQ(ibv_modify_qp(r.qp[1], &err, IBV_QP_STATE), 0);
	expect_event(&r, IBV_EVENT_QP_LAST_WQE_REACHED, r.qp[1]);
	rig_down(&r);
}

static struct ibv_context *
open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **d = list;
	struct ibv_context *ctx;

	MUST(list != NULL);
	while (*d != NULL && strcmp(ibv_get_device_name(*d), name) != 0)
		d++;
	MUST(*d != NULL);
	MUST((ctx = ibv_open_device(*d)) != NULL);
	ibv_free_device_list(list);
	return ctx;
}

/* The descriptor of a device is not readable for events of another port of the engine: a program
 * that waits in poll() would then block in ibv_get_async_event().  Prints "# ready" when the
 * addresses of the first port may be changed, which is to happen twice. */
void
events_of_its_own_port(void)
{
	struct ibv_context *ctx = open_named("karst0"), *other = open_named("karst1");
	struct ibv_async_event e;
	int i;

	printf("# ready\n");
	alarm(PATIENCE_S);
	/* when a second event has come, the first has gone to all whom it concerns */
	for (i = 0; i < 2; i++) {
		fflush(stdout);
		MUST(ibv_get_async_event(ctx, &e) == 0);
		EQ(e.event_type, IBV_EVENT_GID_CHANGE);
		EQ(e.element.port_num, 1);
		ibv_ack_async_event(&e);
		printf("# told %d\n", i);
	}
	alarm(0);
	CHECK(!readable(other->async_fd, 0), "readable");
	EQ(ibv_close_device(other), 0);
	EQ(ibv_close_device(ctx), 0);
}
