/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Events of destroyed objects: no descriptor is readable because of them, wherever they were in the
 * stream, and the events of other objects are not lost with them. */
#include "client_bed.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <criterion/criterion.h>

struct stage {
	struct client_bed b;
	struct karst_comp_channel *ch;
};

static void
stage_up(struct stage *s)
{
	client_bed_up(&s->b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_create_comp_channel(s->b.ctx, &s->ch), 0, "%s", karst_why());
}

static void
stage_down(struct stage *s)
{
	cr_assert_eq(karst_destroy_comp_channel(s->ch), 0);
	client_bed_down(&s->b);
}

static struct karst_cq *
make_cq(struct stage *s)
{
	struct karst_cq *cq;

	cr_assert_eq(karst_create_cq(s->b.ctx, 4, s, s->ch, &cq), 0, "%s", karst_why());
	return cq;
}

/* Makes an event of @cq; it is in the channel when this returns. */
static void
raise_event(struct karst_cq *cq)
{
	cr_assert_eq(karst_req_notify_cq(cq, false), 0);
	cr_assert_eq(karst_raise_cq_event(cq), 0, "%s", karst_why());
}

static bool
readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

/* As in programs that trust poll(): the descriptor blocks. */
static void
expect_event(struct stage *s, struct karst_cq *of)
{
	struct karst_cq *cq = NULL;

	cr_assert(readable(s->ch->fd, 0));
	cr_assert_eq(karst_get_cq_event(s->ch, &cq, NULL), 0, "%s", karst_why());
	cr_assert_eq(cq, of);
	karst_ack_cq_events(cq, 1);
}

static void
expect_nothing(struct stage *s)
{
	struct karst_cq *cq;

	cr_assert_not(readable(s->ch->fd, 0));
	cr_assert_eq(fcntl(s->ch->fd, F_SETFL, O_NONBLOCK), 0);
	cr_assert_eq(karst_get_cq_event(s->ch, &cq, NULL), -EAGAIN);
	cr_assert_eq(fcntl(s->ch->fd, F_SETFL, 0), 0);
}

/* In front of another queue's events, between them, and behind them. */
Test(client_stream, among_others)
{
	struct karst_cq *stays, *goes;
	struct stage s;
	int i;

	stage_up(&s);
	stays = make_cq(&s);
	goes = make_cq(&s);
	for (i = 0; i < 3; i++) {
		raise_event(goes);
		raise_event(stays);
	}
	raise_event(goes);
	cr_assert_eq(karst_destroy_cq(goes), 0);
	for (i = 0; i < 3; i++)
		expect_event(&s, stays);
	expect_nothing(&s);
	raise_event(stays);
	expect_event(&s, stays);
	expect_nothing(&s);
	cr_assert_eq(karst_destroy_cq(stays), 0);
	stage_down(&s);
}

/* More events than are read at once, of queues that are destroyed in another order than their
 * events came. */
Test(client_stream, many)
{
	struct karst_cq *cq[3];
	struct stage s;
	int i, n;

	stage_up(&s);
	for (i = 0; i < 3; i++)
		cq[i] = make_cq(&s);
	for (n = 0; n < 150; n++)
		for (i = 0; i < 3; i++)
			raise_event(cq[i]);
	cr_assert_eq(karst_destroy_cq(cq[2]), 0);
	for (n = 0; n < 60; n++) {
		expect_event(&s, cq[0]);
		expect_event(&s, cq[1]);
	}
	cr_assert_eq(karst_destroy_cq(cq[0]), 0);
	for (n = 60; n < 150; n++)
		expect_event(&s, cq[1]);
	expect_nothing(&s);
	for (n = 0; n < 300; n++)
		raise_event(cq[1]);
	cr_assert_eq(karst_destroy_cq(cq[1]), 0);
	expect_nothing(&s);
	stage_down(&s);
}

/* Channels are independent of each other. */
Test(client_stream, of_another_channel)
{
	struct karst_cq *here, *there;
	struct stage s, t;

	stage_up(&s);
	t = s;
	cr_assert_eq(karst_create_comp_channel(s.b.ctx, &t.ch), 0);
	here = make_cq(&s);
	there = make_cq(&t);
	raise_event(here);
	raise_event(there);
	cr_assert_eq(karst_destroy_cq(here), 0);
	expect_nothing(&s);
	expect_event(&t, there);
	cr_assert_eq(karst_destroy_cq(there), 0);
	cr_assert_eq(karst_destroy_comp_channel(t.ch), 0);
	stage_down(&s);
}

/* The same for the asynchronous events of a context. */
Test(client_stream, asynchronous)
{
	struct karst_srq_init_attr init = {.max_wr = 4, .max_sge = 1};
	struct karst_async_event ev;
	struct karst_srq *srq[3];
	struct stage s;
	int i;

	stage_up(&s);
	cr_assert_eq(fcntl(s.b.ctx->async_fd, F_SETFL, O_NONBLOCK), 0);
	while (karst_get_async_event(s.b.ctx, &ev) == 0)
		karst_ack_async_event(&ev);
	cr_assert_eq(fcntl(s.b.ctx->async_fd, F_SETFL, 0), 0);
	for (i = 0; i < 3; i++) {
		cr_assert_eq(karst_create_srq(s.b.pd, &init, &srq[i]), 0);
		/* fewer than the limit already: the event comes at once */
		cr_assert_eq(karst_modify_srq(srq[i], 2), 0);
	}
	cr_assert(readable(s.b.ctx->async_fd, (int)BED_PATIENCE_MS));
	cr_assert_eq(karst_destroy_srq(srq[0]), 0);
	cr_assert_eq(karst_destroy_srq(srq[2]), 0);
	cr_assert_eq(karst_get_async_event(s.b.ctx, &ev), 0);
	cr_assert_eq(ev.event, KARST_EVENT_SRQ_LIMIT_REACHED);
	cr_assert_eq(ev.element.srq, srq[1]);
	cr_assert_not(readable(s.b.ctx->async_fd, 0));
	karst_ack_async_event(&ev);
	cr_assert_eq(karst_destroy_srq(srq[1]), 0);
	cr_assert_not(readable(s.b.ctx->async_fd, 0));
	stage_down(&s);
}

static void *
wait_for_one(void *arg)
{
	struct stage *s = arg;
	struct karst_cq *cq;

	while (karst_get_cq_event(s->ch, &cq, NULL) == 0)
		karst_ack_cq_events(cq, 1);
	return NULL;
}

/* A reader that is cancelled while it waits is not waited for: programs end their threads that
 * way. */
Test(client_stream, cancelled)
{
	struct karst_cq *cq;
	struct stage s;
	pthread_t t;
	void *end;
	int i;

	stage_up(&s);
	cr_assert_eq(pthread_create(&t, NULL, wait_for_one, &s), 0);
	for (i = 0; i < 50; i++)
		client_bed_pause();
	cr_assert_eq(pthread_cancel(t), 0);
	cr_assert_eq(pthread_join(t, &end), 0);
	cr_assert_eq(end, PTHREAD_CANCELED);
	cq = make_cq(&s);
	raise_event(cq);
	cr_assert_eq(karst_destroy_cq(cq), 0);
	expect_nothing(&s);
	stage_down(&s);
}

#define READERS 3u
#define ROUNDS  200u
#define EACH    20u /* events of each queue in a round */

struct crowd {
	struct stage s;
	struct karst_cq *stays;
	atomic_uint events; /* events of that queue */
	atomic_bool read;
	atomic_bool stop;
};

static void *
read_along(void *arg)
{
	struct crowd *w = arg;
	struct karst_cq *cq;

	while (!atomic_load(&w->stop)) {
		if (!atomic_load(&w->read) || karst_get_cq_event(w->s.ch, &cq, NULL) != 0) {
			usleep(20);
			continue;
		}
		if (cq == w->stays)
			atomic_fetch_add(&w->events, 1);
		karst_ack_cq_events(cq, 1);
	}
	return NULL;
}

/* Both queues have events when the readers start and one of the queues is destroyed. */
static void
round_of(struct crowd *w)
{
	struct karst_cq *goes = make_cq(&w->s);
	unsigned int i;

	/* first, as a reader may still be running since the round before */
	atomic_store(&w->events, 0);
	for (i = 0; i < EACH; i++) {
		raise_event(goes);
		raise_event(w->stays);
	}
	atomic_store(&w->read, true);
	cr_assert_eq(karst_destroy_cq(goes), 0);
	while (atomic_load(&w->events) != EACH)
		client_bed_pause();
	atomic_store(&w->read, false);
}

/* While several threads read, destroying a queue never removes the events of other queues. */
Test(client_stream, others_read)
{
	struct crowd w = {.events = 0};
	pthread_t t[READERS];
	unsigned int i;

	stage_up(&w.s);
	w.stays = make_cq(&w.s);
	cr_assert_eq(fcntl(w.s.ch->fd, F_SETFL, O_NONBLOCK), 0);
	for (i = 0; i < READERS; i++)
		cr_assert_eq(pthread_create(&t[i], NULL, read_along, &w), 0);
	for (i = 0; i < ROUNDS; i++)
		round_of(&w);
	atomic_store(&w.stop, true);
	for (i = 0; i < READERS; i++)
		pthread_join(t[i], NULL);
	expect_nothing(&w.s);
	cr_assert_eq(karst_destroy_cq(w.stays), 0);
	stage_down(&w.s);
}
