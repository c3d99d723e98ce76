/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Objects are destroyed while other threads read their events, use them, or fork. */
#include "calls_task.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

static void
until_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	MUST(poll(&p, 1, 1000 * PATIENCE_S) == 1);
}

/* --- events that are read while their object is being destroyed --- */

static void *
read_async(void *arg)
{
	struct task *t = arg;

	t->tid = gettid();
	MUST(ibv_get_async_event(t->ctx, &t->event) == 0);
	ibv_ack_async_event(&t->event);
	t->finished = true;
	return NULL;
}

static void *
read_channel(void *arg)
{
	struct task *t = arg;
	void *context;

	t->tid = gettid();
	MUST(ibv_get_cq_event(t->channel, &t->told, &context) == 0);
	ibv_ack_cq_events(t->told, 1);
	t->finished = true;
	return NULL;
}

static void *
destroy_one(void *arg)
{
	struct task *t = arg;

	task_is_mine(t);
	if (t->srq != NULL)
		t->ret = ibv_destroy_srq(t->srq);
	else if (t->qp != NULL)
		t->ret = ibv_destroy_qp(t->qp);
	else
		t->ret = ibv_destroy_cq(t->cq);
	t->finished = true;
	return NULL;
}

/* Raises an event of @srq, which has fewer receives than the limit. */
static void
limit_reached(struct ibv_srq *srq)
{
	struct ibv_srq_attr limit = {.srq_limit = 2};

	EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
}

/* @of has an unread event.  A thread reads the event while @of is being destroyed, which succeeds
 * or fails.  The event that the thread gets must be of @wanted.  @marker raises an event
 * afterwards, which is the next one, or, if @wanted is @marker, the only one. */
static void
read_while_it_goes(struct task *of, bool succeeds, struct ibv_srq *marker, const void *wanted)
{
	struct task reader = {.ctx = marker->context};
	struct ibv_async_event e;

	alarm(PATIENCE_S);
	of->spoil = !succeeds;
	of->finished = false;
	task_begin_held(of, destroy_one);
	task_begin(&reader, read_async);
	until_it_has_read(&reader, marker->context->async_fd);
	task_end(of);
	CHECK((of->ret == 0) == succeeds, "%s", strerror(of->ret));
	limit_reached(marker);
	task_end(&reader);
	CHECK(reader.event.element.srq == wanted, "of something else: %s",
		ibv_event_type_str(reader.event.event_type));
	if (reader.event.element.srq != marker) {
		MUST(ibv_get_async_event(marker->context, &e) == 0);
		CHECK(e.element.srq == marker, "of something else");
		ibv_ack_async_event(&e);
	}
	alarm(0);
}

void
asynchronous_events_while_it_goes(void)
{
	struct ibv_qp_attr drained = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct task srq = {0}, qp = {0};
	struct ibv_srq *marker;
	struct rig r;

	rig_up(&r);
	MUST((marker = ibv_create_srq(r.pd, &init)) != NULL);
	MUST((srq.srq = ibv_create_srq(r.pd, &init)) != NULL);
	limit_reached(srq.srq);
	until_readable(r.ctx->async_fd);
	read_while_it_goes(&srq, false, marker, srq.srq);
	limit_reached(srq.srq);
	until_readable(r.ctx->async_fd);
	read_while_it_goes(&srq, true, marker, marker);
	rig_connect(&r, IBV_QPT_RC);
	qp.qp = r.qp[0];
	EQ(ibv_modify_qp(qp.qp, &drained, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	until_readable(r.ctx->async_fd);
	read_while_it_goes(&qp, false, marker, qp.qp);
	EQ(ibv_destroy_srq(marker), 0);
	rig_down(&r);
}

void
completion_events_while_it_goes(void)
{
	struct task t = {0}, reader = {0};
	struct ibv_cq *spare;
	struct rig r;

	rig_up(&r);
	spare = r.cq;
	MUST((reader.channel = ibv_create_comp_channel(r.ctx)) != NULL);
	MUST((t.cq = r.cq = ibv_create_cq(r.ctx, 64, NULL, reader.channel, 0)) != NULL);
	rig_connect(&r, IBV_QPT_RC);
	EQ(post_recv(&r, r.qp[1], 1, 0, 64), 0);
	EQ(ibv_req_notify_cq(r.cq, 0), 0);
	EQ(post_send(&r, r.qp[0], 2, 64, 8, 0), 0);
	until_readable(reader.channel->fd);
	EQ(ibv_destroy_qp(r.qp[0]), 0);
	EQ(ibv_destroy_qp(r.qp[1]), 0);
	r.qp[0] = r.qp[1] = NULL;
	alarm(PATIENCE_S);
	t.spoil = true;
	task_begin_held(&t, destroy_one);
	task_begin(&reader, read_channel);
	until_it_has_read(&reader, reader.channel->fd);
	task_end(&t);
	CHECK(t.ret != 0, "it is destroyed");
	task_end(&reader);
	alarm(0);
	CHECK(reader.told == t.cq, "of another queue");
	no_event(reader.channel);
	EQ(ibv_destroy_cq(t.cq), 0);
	EQ(ibv_destroy_comp_channel(reader.channel), 0);
	r.cq = spare;
	rig_down(&r);
}

/* --- calls about objects that are being destroyed --- */

/* Checks that a second call that destroys an object is refused if it is made while the first one
 * frees the object's memory. */
#define GOES(type, destroy)                                        \
	static struct type *going_##type;                          \
	static void again_##type(struct task *t)                   \
	{                                                          \
		t->ret = destroy(going_##type);                    \
	}                                                          \
	static void goes_##type(struct type *object)               \
	{                                                          \
		struct task t = {.at_free = again_##type};         \
		MUST((going_##type = object) != NULL);             \
		task_is_mine(&t);                                  \
		alarm(PATIENCE_S);                                 \
		EQ(destroy(object), 0);                            \
		alarm(0);                                          \
		task_is_mine(NULL);                                \
		CHECK(t.at_free == NULL, "nothing is given back"); \
		EQ(t.ret, ENOENT);                                 \
	}

GOES(ibv_pd, ibv_dealloc_pd)
GOES(ibv_ah, ibv_destroy_ah)
GOES(ibv_mr, ibv_dereg_mr)
GOES(ibv_mw, ibv_dealloc_mw)
GOES(ibv_cq, ibv_destroy_cq)
GOES(ibv_srq, ibv_destroy_srq)
GOES(ibv_qp, ibv_destroy_qp)
GOES(ibv_xrcd, ibv_close_xrcd)

void
calls_about_what_goes(void)
{
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1};
	struct rig r;

	rig_up(&r);
	MUST(ibv_query_gid(r.ctx, 1, 0, &ah.grh.dgid) == 0);
	goes_ibv_pd(ibv_alloc_pd(r.ctx));
	goes_ibv_ah(ibv_create_ah(r.pd, &ah));
	goes_ibv_mr(ibv_reg_mr(r.pd, r.buf, 4096, IBV_ACCESS_LOCAL_WRITE));
	goes_ibv_mw(ibv_alloc_mw(r.pd, IBV_MW_TYPE_1));
	goes_ibv_cq(ibv_create_cq(r.ctx, 8, NULL, NULL, 0));
	goes_ibv_srq(ibv_create_srq(r.pd, &srq));
	goes_ibv_qp(make_qp(&r, IBV_QPT_RC, NULL));
	goes_ibv_xrcd(ibv_open_xrcd(r.ctx, &xrcd));
	rig_down(&r);
}

/* --- forks of other threads --- */

static void *
fork_once(void *arg)
{
	struct task *t = arg;
	int status = -1;
	pid_t pid;

	t->tid = gettid();
	pid = fork();
	if (pid == 0)
		_exit(0);
	EQ(waitpid(pid, &status, 0), pid);
	EQ(status, 0);
	t->finished = true;
	return NULL;
}

/* Programs intercept free() and deregister the memory; another thread forks meanwhile. */
static void
deregister_beside_a_fork(struct task *t)
{
	struct task forks = {0};

	task_begin(&forks, fork_once);
	while (!forks.finished && !task_waits(&forks))
		usleep(1000);
	t->ret = ibv_dereg_mr(t->mr);
	task_end(&forks);
}

void
memory_is_watched_beside_forks(void)
{
	struct task t = {.freeing = true};
	struct rdma_event_channel *events;
	struct ibv_comp_channel *ch;
	struct rdma_cm_id *id;
	struct rig r;
	int i;

	rig_up(&r);
	MUST((ch = ibv_create_comp_channel(r.ctx)) != NULL);
	MUST((events = rdma_create_event_channel()) != NULL);
	MUST(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	for (i = 0; i < 2; i++) {
		MUST((t.mr = ibv_reg_mr(r.pd, r.buf, 4096, IBV_ACCESS_LOCAL_WRITE)) != NULL);
		t.ret = -1;
		t.at_free = deregister_beside_a_fork;
		task_is_mine(&t);
		t.freeing = true;
		alarm(PATIENCE_S);
		EQ(i == 0 ? ibv_destroy_comp_channel(ch) : rdma_destroy_id(id), 0);
		alarm(0);
		task_is_mine(NULL);
		EQ(t.ret, 0);
	}
	rdma_destroy_event_channel(events);
	rig_down(&r);
}

/* --- identifiers that a program has left in a channel --- */

#define LEAVES 300
#define LEFT   24

static void *
leave_identifiers(void *arg)
{
	struct rdma_event_channel *events;
	struct task *t = arg;
	struct rdma_cm_id *id;
	int i, k;

	for (k = 0; k < LEAVES; k++) {
		MUST((events = rdma_create_event_channel()) != NULL);
		for (i = 0; i < LEFT; i++)
			MUST(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
		rdma_destroy_event_channel(events);
	}
	t->finished = true;
	return NULL;
}

/* The identifiers end with their channel.  Commands about other identifiers, which are looked up in
 * all channels, are not affected. */
void
channels_end_beside_others(void)
{
	struct rdma_event_channel *events;
	struct task t = {0};
	struct rdma_cm_id *id;
	uint8_t tos = 8;

	MUST((events = rdma_create_event_channel()) != NULL);
	MUST(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	task_begin(&t, leave_identifiers);
	while (!t.finished) /* refused after the lookup, without asking the engine */
		EQ(rdma_set_option(id, -1, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)), -1);
	task_end(&t);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(events);
}

/* --- children --- */

/* Runs @fn in a child.  @return the child's status: 0 if @fn has found nothing wrong.  A child that
 * waits forever is killed. */
static int
in_child(bool (*fn)(void *), void *arg)
{
	int status = -1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		alarm(PATIENCE_S);
		_exit(fn(arg) ? 0 : 1);
	}
	EQ(waitpid(pid, &status, 0), pid);
	return status;
}

/* A child must not migrate the parent's identifiers: in the attachments of parent and child, the
 * same numbers name different identifiers. */
static bool
moves_nothing(void *arg)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *own, *parents = arg;

	return events != NULL && rdma_create_id(events, &own, NULL, RDMA_PS_TCP) == 0 &&
		rdma_migrate_id(parents, events) == -1 && errno == EACCES;
}

void
children_move_nothing(void)
{
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;

	MUST((events = rdma_create_event_channel()) != NULL);
	MUST(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	EQ(in_child(moves_nothing, id), 0);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(events);
}

static void *
wait_for_events(void *arg)
{
	struct rdma_cm_event *event;
	struct task *t = arg;

	t->tid = gettid();
	rdma_get_cm_event(t->events, &event);
	return NULL;
}

static bool
closes(void *arg)
{
	struct rdma_event_channel *events = arg;
	int fd = events->fd;

	rdma_destroy_event_channel(events);
	return fcntl(fd, F_GETFD) == -1 && errno == EBADF;
}

/* A child can close the channels that it has inherited, even if another thread was waiting for an
 * event when the process forked. */
void
children_close_channels(void)
{
	struct task t = {0};

	MUST((t.events = rdma_create_event_channel()) != NULL);
	task_begin(&t, wait_for_events);
	until_it_has_read(&t, t.events->fd);
	EQ(in_child(closes, t.events), 0);
	EQ(pthread_cancel(t.thread), 0);
	EQ(pthread_join(t.thread, NULL), 0);
	rdma_destroy_event_channel(t.events);
}

/* Lists the devices, for which libibverbs reads files, with each number of a descriptor that the
 * parent has; then opens one. */
static bool
begins_anew(void *arg)
{
	const int last = *(const int *)arg;
	struct ibv_device **list;
	int from, fd, n;
	struct rig r;

	for (from = 3; from <= last; from++) {
		if (close_range(3, ~0u, 0) != 0)
			return false;
		for (fd = 3; fd < from; fd++)
			if (open("/dev/null", O_RDONLY) != fd)
				return false;
		list = ibv_get_device_list(&n);
		if (list == NULL || n != 1)
			return false;
		ibv_free_device_list(list);
	}
	if (close_range(3, ~0u, 0) != 0)
		return false;
	rig_up(&r);
	rig_connect(&r, IBV_QPT_RC);
	nothing_more(&r);
	rig_down(&r);
	return true;
}

/* A child may close all that it has inherited, as daemons do.  The numbers of its parent's
 * descriptors then are those of other files. */
void
children_close_all(void)
{
	struct ibv_comp_channel *ch[2];
	struct rig r;
	int last;

	rig_up(&r);
	MUST((ch[0] = ibv_create_comp_channel(r.ctx)) != NULL);
	MUST((ch[1] = ibv_create_comp_channel(r.ctx)) != NULL);
	last = ch[1]->fd;
	EQ(in_child(begins_anew, &last), 0);
	EQ(ibv_destroy_comp_channel(ch[0]), 0);
	EQ(ibv_destroy_comp_channel(ch[1]), 0);
	rig_down(&r);
}

static bool
is_refused(void *arg)
{
	struct ibv_sge sge = {.length = 1};
	struct task *t = arg;

	sge.addr = (uintptr_t)t->mr->addr;
	sge.lkey = t->mr->lkey;
	return ibv_advise_mr(t->mr->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EPERM &&
		ibv_rereg_mr(t->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			IBV_ACCESS_ON_DEMAND) != 0 &&
		errno == EPERM && ibv_dereg_mr(t->mr) == EPERM;
}

static void
fork_in_the_midst(struct task *t)
{
	t->ret = in_child(is_refused, t);
}

/* Calls of a child are refused without waiting, even if a call was under way when the process
 * forked. */
void
children_are_refused_at_once(void)
{
	struct task t = {.at_sysconf = fork_in_the_midst, .ret = -1};
	struct ibv_sge sge;
	struct rig r;

	rig_up(&r);
	t.mr = rig_on_demand(&r, &sge);
	task_is_mine(&t);
	EQ(ibv_advise_mr(r.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), 0);
	task_is_mine(NULL);
	CHECK(t.at_sysconf == NULL, "it has not come there");
	EQ(t.ret, 0);
	EQ(ibv_dereg_mr(t.mr), 0);
	rig_down(&r);
}
