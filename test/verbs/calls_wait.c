/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Programs that wait for an event, arm, and poll once: the poll after each event finds a
 * completion, and no event is missing. */
#include "calls_bed.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#define RECEIVES 16

/* A completion queue with events for the second queue pair; the first one's queue is r.cq. */
struct waiter {
	struct rig r;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct ibv_cq_ex *ex;
	bool extended; /* poll by ibv_start_poll() instead of ibv_poll_cq() */
	_Atomic unsigned int taken;
};

static void
waiter_up(struct waiter *w)
{
	struct ibv_cq_init_attr_ex init = {.cqe = 64};
	struct rig *r = &w->r;
	struct ibv_cq *others;

	rig_up(r);
	others = r->cq;
	MUST((w->ch = init.channel = ibv_create_comp_channel(r->ctx)) != NULL);
	MUST((w->ex = ibv_create_cq_ex(r->ctx, &init)) != NULL);
	w->cq = ibv_cq_ex_to_cq(w->ex);
	r->qp[0] = make_qp(r, IBV_QPT_RC, NULL);
	r->cq = w->cq;
	r->qp[1] = make_qp(r, IBV_QPT_RC, NULL);
	r->cq = others;
	rig_link(r);
}

static void
waiter_down(struct waiter *w)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		EQ(ibv_destroy_qp(w->r.qp[i]), 0);
		w->r.qp[i] = NULL;
	}
	EQ(ibv_destroy_cq(w->cq), 0);
	EQ(ibv_destroy_comp_channel(w->ch), 0);
	rig_down(&w->r);
}

static void
wait_for_event(struct waiter *w)
{
	struct ibv_cq *told = NULL;
	void *context;

	alarm(PATIENCE_S);
	MUST(ibv_get_cq_event(w->ch, &told, &context) == 0);
	alarm(0);
	CHECK(told == w->cq, "of another queue");
	ibv_ack_cq_events(told, 1);
}

/* Sends a message.  It has completed at both ends on return; the receive's completion is not
 * polled. */
static void
message(struct waiter *w, uint64_t wr_id)
{
	EQ(post_recv(&w->r, w->r.qp[1], wr_id, 0, 64), 0);
	EQ(post_send(&w->r, w->r.qp[0], wr_id, 64, 8, 0), 0);
	/* the SEND is acknowledged, so its receive has completed */
	EQ(wait_for(w->r.cq).wr_id, wr_id);
}

/* Polls once for up to @max completions.  @return how many it found */
static int
poll_some(struct waiter *w, int max, uint64_t *wr_id)
{
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_wc wc[RECEIVES];
	int i, n;

	if (w->extended) {
		if (ibv_start_poll(w->ex, &attr) != 0)
			return 0;
		n = 0;
		do
			wr_id[n] = w->ex->wr_id;
		while (++n < max && ibv_next_poll(w->ex) == 0);
		ibv_end_poll(w->ex);
		return n;
	}
	n = ibv_poll_cq(w->cq, max, wc);
	for (i = 0; i < n; i++)
		wr_id[i] = wc[i].wr_id;
	return n;
}

static int
poll_two(struct waiter *w, uint64_t wr_id[2])
{
	return poll_some(w, 2, wr_id);
}

/* Event, arm, one poll, and so on, as ibv_rc_pingpong does: a completion that arrives between
 * arming and the poll, and raises an event, is left for the poll after that event.  Completions
 * that raise no further event are returned at once. */
void
events_are_for_what_is_left(void)
{
	uint64_t wr_id[2];
	struct waiter w;
	int i;

	waiter_up(&w);
	for (i = 0; i < 2; i++) {
		w.extended = i;
		EQ(ibv_req_notify_cq(w.cq, 0), 0);
		message(&w, 1);
		message(&w, 2);
		wait_for_event(&w);
		EQ(ibv_req_notify_cq(w.cq, 0), 0);
		message(&w, 3);
		EQ(poll_two(&w, wr_id), 2);
		EQ(wr_id[1], 2);
		wait_for_event(&w);
		EQ(ibv_req_notify_cq(w.cq, 0), 0);
		message(&w, 4);
		EQ(poll_two(&w, wr_id), 1);
		EQ(wr_id[0], 3);
		/* a second poll returns all completions */
		message(&w, 5);
		EQ(poll_two(&w, wr_id), 2);
		EQ(wr_id[1], 5);
		wait_for_event(&w);
		/* the queue was empty when it was armed: the first poll returns all */
		EQ(ibv_req_notify_cq(w.cq, 0), 0);
		message(&w, 6);
		message(&w, 7);
		EQ(poll_two(&w, wr_id), 2);
		wait_for_event(&w);
		/* an event was read between arming and the poll: the poll returns all */
		message(&w, 8);
		EQ(ibv_req_notify_cq(w.cq, 0), 0);
		message(&w, 9);
		wait_for_event(&w);
		EQ(poll_two(&w, wr_id), 2);
		/* armed for solicited completions only: 11 raises no event, so the poll returns it,
		 * too; the program knows of 10 by an event */
		EQ(ibv_req_notify_cq(w.cq, 0), 0);
		message(&w, 10);
		wait_for_event(&w);
		EQ(ibv_req_notify_cq(w.cq, 1), 0);
		message(&w, 11);
		EQ(poll_two(&w, wr_id), 2);
		EQ(ibv_req_notify_cq(w.cq, 0), 0);
		message(&w, 12);
		wait_for_event(&w);
		EQ(poll_two(&w, wr_id), 1);
		EQ(poll_two(&w, wr_id), 0);
		no_event(w.ch);
	}
	waiter_down(&w);
}

#define WAIT_MESSAGES 5000u

static void *
send_all(void *arg)
{
	struct waiter *w = arg;
	unsigned int i;

	for (i = 0; i < WAIT_MESSAGES; i++) {
		/* so that one poll can take all completions */
		while (i - w->taken >= RECEIVES)
			sched_yield();
		message(w, i);
	}
	return NULL;
}

/* The same with a concurrent sender: the poll after each event finds a completion, and no event is
 * missing. */
static void
receive_all(struct waiter *w)
{
	unsigned int events = 0, vain = 0, n;
	uint64_t wr_id[RECEIVES];
	pthread_t sender;

	w->taken = 0;
	EQ(ibv_req_notify_cq(w->cq, 0), 0);
	MUST(pthread_create(&sender, NULL, send_all, w) == 0);
	while (w->taken < WAIT_MESSAGES) {
		wait_for_event(w);
		EQ(ibv_req_notify_cq(w->cq, 0), 0);
		n = (unsigned int)poll_some(w, RECEIVES, wr_id);
		events++;
		vain += n == 0;
		w->taken += n;
	}
	pthread_join(sender, NULL);
	no_event(w->ch);
	CHECK(vain == 0, "%u of %u", vain, events);
}

void
one_poll_for_each_event(void)
{
	struct waiter w;
	int i;

	waiter_up(&w);
	for (i = 0; i < 2; i++) {
		w.extended = i;
		receive_all(&w);
		/* the queue is still armed: the next message raises an event */
		message(&w, 1);
		wait_for_event(&w);
		wait_for(w.cq);
	}
	waiter_down(&w);
}

/* If a queue with completions is armed before the first poll, an event is raised: the program does
 * not know of them. */
void
armed_before_any_poll(void)
{
	uint64_t wr_id[2];
	struct waiter w;

	waiter_up(&w);
	message(&w, 1);
	EQ(ibv_req_notify_cq(w.cq, 0), 0);
	wait_for_event(&w);
	EQ(poll_two(&w, wr_id), 1);
	EQ(ibv_req_notify_cq(w.cq, 0), 0);
	no_event(w.ch);
	waiter_down(&w);
}

/* Event, one completion, arm: while the queue has another completion, another event is raised. */
void
one_completion_for_each_event(void)
{
	uint64_t wr_id[1];
	struct waiter w;
	unsigned int i, j;

	waiter_up(&w);
	for (i = 0; i < 2; i++) {
		w.extended = i;
		EQ(ibv_req_notify_cq(w.cq, 0), 0);
		for (j = 0; j < 3; j++)
			message(&w, j);
		for (j = 0; j < 3; j++) {
			wait_for_event(&w);
			EQ(poll_some(&w, 1, wr_id), 1);
			EQ(wr_id[0], j);
			EQ(ibv_req_notify_cq(w.cq, 0), 0);
		}
		no_event(w.ch);
	}
	waiter_down(&w);
}

/* The queue is armed between ibv_start_poll() and ibv_end_poll(). */
void
armed_while_polled(void)
{
	struct ibv_poll_cq_attr attr = {0};
	uint64_t wr_id[2];
	struct waiter w;

	waiter_up(&w);
	w.extended = true;
	message(&w, 1);
	alarm(PATIENCE_S);
	EQ(ibv_start_poll(w.ex, &attr), 0);
	EQ(ibv_next_poll(w.ex), ENOENT);
	EQ(ibv_req_notify_cq(w.cq, 0), 0);
	ibv_end_poll(w.ex);
	alarm(0);
	no_event(w.ch);
	message(&w, 2);
	EQ(poll_two(&w, wr_id), 1);
	wait_for_event(&w);
	waiter_down(&w);
}
