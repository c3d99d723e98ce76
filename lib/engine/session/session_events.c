/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Events of a program's objects: the engine's callbacks, which write to the program's streams
 * (stream.h).
 *
 * They run on lcores.  They find the session's object by the engine's "user" pointer, which is
 * valid until the engine's call that destroys the object has returned; no event comes after that.
 *
 * An event that finds no room in its stream is noted in its object, and waits.  The session's
 * thread sends it: at once if the program has read meanwhile; otherwise epoll tells when at most a
 * quarter of the stream's room is in use.  Of the events of a port, those of its loss are sent
 * before those of another port that has its number now, and last is the event that tells what is so
 * now.  Of the link only the last state is sent.
 */
#include "session_priv.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Descriptors of poll_fd that are looked at in one go. */
#define ATTEND_AT_ONCE 64u

/* --- events that find no room --- */

static bool
is_awaited(const struct eng_stream *st)
{
	/* relaxed: only the session's thread changes it, and others may be late */
	return atomic_load_explicit(&st->awaited, memory_order_relaxed);
}

/* After an event was noted that waits for room in @st. */
static void
tell_waiting(struct karst_session *s, struct eng_stream *st)
{
	const uint64_t one = 1;
	bool awaited = true;

	/* Nobody can send it before the program has read.  A write of the same value, which is
	 * sequentially consistent as in eng_session_hear_room(): what that starts finds the event,
	 * or this finds that the stream is not awaited. */
	if (atomic_compare_exchange_strong(&st->awaited, &awaited, true))
		return;
	/* sequentially consistent, as in eng_session_send_waiting(): that finds the event, or
	 * this finds some_wait false */
	if (atomic_exchange(&s->some_wait, true))
		return;
	while (write(s->attend_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Notes that event @bit of an object waits for room in @st. */
static void
event_wait(
	struct karst_session *s, struct eng_stream *st, session_waiting *waiting, unsigned int bit)
{
	/* release, pairs with the acquire in events_take(): what the event is about comes first */
	if (atomic_fetch_or_explicit(waiting, 1u << bit, memory_order_release) & 1u << bit)
		eng_stream_lose(st);
	else
		tell_waiting(s, st);
}

/* Sends a record.  @return false: it has to wait.  While the stream is awaited, also a record for
 * which there is room waits, or those that wait would never have their turn. */
static bool
event_try(const struct eng_stream *st, const void *record, size_t bytes)
{
	return !is_awaited(st) && eng_stream_try(st, record, bytes);
}

/* Sends an asynchronous event, or lets it wait. */
static void
async_send(struct karst_session *s, const struct karst_ctl_async *record, session_waiting *waiting)
{
	if (!event_try(&s->async, record, sizeof(*record)))
		event_wait(s, &s->async, waiting, record->event);
}

void
eng_session_raise(struct karst_session *s, struct session_cq *cq)
{
	struct eng_stream *st = &cq->channel->stream;

	if (!event_try(st, &cq->cookie, sizeof(cq->cookie)))
		event_wait(s, st, &cq->waiting, EVENT_COMPLETION);
}

void
eng_session_tell_fatal(struct karst_session *s)
{
	const struct karst_ctl_async record = {.event = KARST_EVENT_DEVICE_FATAL};

	async_send(s, &record, &s->waiting);
}

/* --- events of ports --- */

/* The events of a port that wait, in the order in which they are sent, and a number that changes
 * with each event that is raised. */
#define PORT_DOWN   1u  /* KARST_EVENT_PORT_ERR */
#define PORT_GONE   2u  /* KARST_EVENT_PORT_GONE */
#define PORT_GIDS   4u  /* KARST_EVENT_GID_CHANGE */
#define PORT_ACTIVE 8u  /* KARST_EVENT_PORT_ACTIVE */
#define PORT_AGAIN  16u /* KARST_EVENT_PORT_ERR of a port that was added after PORT_GONE */
#define PORT_RAISED 32u
#define PORT_LINK   (PORT_DOWN | PORT_ACTIVE | PORT_AGAIN)
#define PORT_ALL    (PORT_RAISED - 1)

/* The events @was that wait, and @event after them. */
static uint32_t
port_after(uint32_t was, uint32_t event)
{
	was += PORT_RAISED;
	switch (event) {
	case KARST_EVENT_PORT_GONE:
		/* of the port that is gone, only that its link went down */
		return (was & ~(PORT_LINK | PORT_GIDS)) | PORT_GONE |
			((was & (PORT_DOWN | PORT_AGAIN)) != 0 ? PORT_DOWN : 0);
	case KARST_EVENT_PORT_ERR:
		return (was & ~PORT_LINK) | ((was & PORT_GONE) != 0 ? PORT_AGAIN : PORT_DOWN);
	case KARST_EVENT_PORT_ACTIVE:
		return (was & ~PORT_LINK) | PORT_ACTIVE;
	default:
		return was | PORT_GIDS;
	}
}

/* Sends an event of a port, or lets it wait.  The engine raises one at a time of a port. */
static void
port_send(struct karst_session *s, const struct karst_ctl_async *record)
{
	session_waiting *waiting = &s->port_waiting[record->handle - 1];
	uint32_t was, is;

	/* not past an earlier event.  acquire, pairs with the release in send_port(): the earlier
	 * event was sent */
	was = atomic_load_explicit(waiting, memory_order_acquire);
	if ((was & PORT_ALL) == 0 && event_try(&s->async, record, sizeof(*record)))
		return;
	do {
		is = port_after(was, record->event);
		/* release, pairs with the acquire in send_port(): what the event is about comes
		 * first */
	} while (!atomic_compare_exchange_weak_explicit(
		waiting, &was, is, memory_order_release, memory_order_relaxed));
	/* a link's later state replaces the earlier one */
	if ((was & PORT_ALL) == (is & PORT_ALL) && record->event != KARST_EVENT_PORT_ERR &&
		record->event != KARST_EVENT_PORT_ACTIVE)
		eng_stream_lose(&s->async);
	tell_waiting(s, &s->async);
}

/* --- sending them later, on the session's thread --- */

/* Takes @mask of the events that wait.  Most objects have none. */
static uint32_t
events_take(session_waiting *waiting, uint32_t mask)
{
	if ((atomic_load_explicit(waiting, memory_order_relaxed) & mask) == 0)
		return 0;
	return atomic_fetch_and_explicit(waiting, ~mask, memory_order_acquire) & mask;
}

/* Sends the asynchronous events of an object that wait.  @return false: there is no more room */
static bool
send_async(struct karst_session *s, uint32_t handle, uint64_t cookie, session_waiting *waiting)
{
	uint32_t all = events_take(waiting, ~(1u << EVENT_COMPLETION));
	struct karst_ctl_async record = {.handle = handle, .cookie = cookie};

	while (all != 0) {
		record.event = (uint32_t)__builtin_ctz(all);
		if (!eng_stream_try(&s->async, &record, sizeof(record))) {
			atomic_fetch_or_explicit(waiting, all, memory_order_relaxed);
			return false;
		}
		all &= all - 1;
	}
	return true;
}

/* The same for the events of a port, from 1, which wait until they are sent.  If one is raised
 * meanwhile, it may replace those that wait: then all are looked at again, and the one that was
 * just sent may be sent once more. */
static bool
send_port(struct karst_session *s, uint32_t port)
{
	static const uint32_t event[] = {KARST_EVENT_PORT_ERR, KARST_EVENT_PORT_GONE,
		KARST_EVENT_GID_CHANGE, KARST_EVENT_PORT_ACTIVE, KARST_EVENT_PORT_ERR};
	session_waiting *waiting = &s->port_waiting[port - 1];
	struct karst_ctl_async record = {.handle = port};
	uint32_t all = atomic_load_explicit(waiting, memory_order_acquire), i;

	while ((all & PORT_ALL) != 0) {
		i = (uint32_t)__builtin_ctz(all);
		record.event = event[i];
		if (!eng_stream_try(&s->async, &record, sizeof(record)))
			return false;
		if (atomic_compare_exchange_strong_explicit(waiting, &all, all & ~(1u << i),
			    memory_order_acq_rel, memory_order_acquire))
			all &= ~(1u << i);
	}
	return true;
}

static bool
send_ports(struct karst_session *s)
{
	uint32_t port;

	for (port = 1; port <= KARST_ENGINE_MAX_PORTS; port++)
		if (!send_port(s, port))
			return false;
	return true;
}

#define ASYNC_TABLES 4u

/* Sends the asynchronous events of the objects of one table that wait, from slot *@at on.  @return
 * false: there is no more room; *@at is behind the object. */
static bool
send_table(struct karst_session *s, uint32_t table, uint32_t *at)
{
	struct session_srq *srq;
	struct session_cq *cq;
	struct session_qp *qp;
	bool room = true;

	switch (table) {
	case 0:
		while (room && (qp = eng_handles_next(&s->qps, at)) != NULL)
			room = send_async(s, qp->handle, qp->cookie, &qp->waiting);
		return room;
	case 1:
		while (room && (srq = eng_handles_next(&s->srqs, at)) != NULL)
			room = send_async(s, srq->handle, srq->cookie, &srq->waiting);
		return room;
	case 2:
		while (room && (cq = eng_handles_next(&s->cqs, at)) != NULL)
			room = send_async(s, cq->handle, cq->cookie, &cq->waiting);
		return room;
	default:
		*at = 1; /* few, and in an order of their own */
		return send_ports(s) && send_async(s, 0, 0, &s->waiting);
	}
}

static bool
send_all_async(struct karst_session *s)
{
	uint32_t i, table, at = s->async_from;

	/* the first table twice: from where the last time ended, and at last up to there */
	for (i = 0; i <= ASYNC_TABLES; i++, at = 0) {
		table = (s->async_table + i) % ASYNC_TABLES;
		if (!send_table(s, table, &at)) {
			s->async_table = table;
			s->async_from = at - 1;
			return false;
		}
	}
	return true;
}

/* Sends a completion queue's event for its channel if it waits.  @slot: of the queue; @first: those
 * before the queue where the last time ended have their turn later. */
static void
send_completion(struct session_cq *cq, uint32_t slot, bool first)
{
	struct session_channel *ch = cq->channel;

	if (ch == NULL || ch->full || is_awaited(&ch->stream) || (first && slot < ch->from) ||
		events_take(&cq->waiting, 1u << EVENT_COMPLETION) == 0)
		return;
	ch->full = !eng_stream_try(&ch->stream, &cq->cookie, sizeof(cq->cookie));
	if (!ch->full)
		return;
	ch->from = slot;
	atomic_fetch_or_explicit(&cq->waiting, 1u << EVENT_COMPLETION, memory_order_relaxed);
}

/* Those of all queues.  Each channel continues where it ended the last time. */
static void
send_completions(struct karst_session *s)
{
	struct session_cq *cq;
	uint32_t at;

	for (at = 0; (cq = eng_handles_next(&s->cqs, &at)) != NULL;)
		send_completion(cq, at - 1, true);
	for (at = 0; (cq = eng_handles_next(&s->cqs, &at)) != NULL;)
		send_completion(cq, at - 1, false);
}

/* The next request looks for room instead. */
static void
cannot_await(struct karst_session *s, struct eng_stream *st)
{
	karst_log_some(&s->e->faults_log, engine_now(s->e), KARST_LOG_WARNING,
		"%s: client %u (%s, process %d): its events wait until its next request: epoll_ctl: %s",
		s->e->name, s->info.client, s->info.program, (int)s->info.pid, strerror(errno));
	atomic_store(&st->awaited, false);
	s->look_again = true;
}

/* Makes poll_fd readable, once, as soon as the program has read from the stream.  epoll also tells
 * if it has read already. */
static void
await_room(struct karst_session *s, struct eng_stream *st)
{
	struct epoll_event ev = {.events = EPOLLOUT | EPOLLONESHOT, .data.ptr = st};

	atomic_store(&st->awaited, true);
	if (epoll_ctl(s->poll_fd, EPOLL_CTL_MOD, st->fd, &ev) == 0 ||
		epoll_ctl(s->poll_fd, EPOLL_CTL_ADD, st->fd, &ev) == 0)
		s->nawaited++;
	else
		cannot_await(s, st);
}

bool
eng_session_hear_room(struct karst_session *s, bool *told)
{
	struct epoll_event ev[ATTEND_AT_ONCE];
	int i, got = epoll_wait(s->poll_fd, ev, (int)KARST_DIM(ev), 0);
	struct eng_stream *st;
	bool room = false;

	*told = false;
	for (i = 0; i < got; i++) {
		st = ev[i].data.ptr;
		if (st == NULL) {
			*told = true;
			continue;
		}
		/* an exchange: see event_wait() */
		atomic_exchange(&st->awaited, false);
		s->nawaited--;
		room = true;
	}
	return room;
}

void
eng_session_forget_room(struct karst_session *s, struct eng_stream *st)
{
	if (!is_awaited(st))
		return;
	(void)epoll_ctl(s->poll_fd, EPOLL_CTL_DEL, st->fd, NULL);
	atomic_store(&st->awaited, false);
	s->nawaited--;
}

void
eng_session_send_waiting(struct karst_session *s)
{
	struct session_channel *ch;
	uint32_t at;

	atomic_exchange(&s->some_wait, false);
	s->look_again = false;
	if (!is_awaited(&s->async) && !send_all_async(s))
		await_room(s, &s->async);
	send_completions(s);
	for (at = 0; (ch = eng_handles_next(&s->channels, &at)) != NULL; ch->full = false)
		if (ch->full)
			await_room(s, &ch->stream);
}

/* --- the callbacks --- */

static void
session_cq_event(void *user, struct karst_engine_cq *cq)
{
	struct session_cq *q = cq->user;

	if (q->channel != NULL)
		eng_session_raise(user, q);
}

/* A program for which a port is a device does not get the events of other ports: its stream would
 * be readable, but the program would find nothing to read. */
static bool
is_of_its_port(const struct karst_session *s, uint32_t port_num)
{
	/* relaxed: see eng_session_hello() */
	uint32_t port = atomic_load_explicit(&s->event_port, memory_order_relaxed);

	return port == 0 || port == port_num;
}

static void
session_async_event(void *user, const struct karst_engine_event *ev)
{
	struct karst_ctl_async record = {.event = ev->event};
	struct karst_session *s = user;
	session_waiting *waiting;
	struct session_cq *cq;
	struct session_srq *srq;
	struct session_qp *qp;

	switch (ev->event) {
	case KARST_EVENT_CQ_ERR:
		cq = ev->cq->user;
		record.handle = cq->handle;
		record.cookie = cq->cookie;
		waiting = &cq->waiting;
		break;
	case KARST_EVENT_SRQ_ERR:
	case KARST_EVENT_SRQ_LIMIT_REACHED:
		srq = ev->srq->user;
		record.handle = srq->handle;
		record.cookie = srq->cookie;
		waiting = &srq->waiting;
		break;
	case KARST_EVENT_PORT_ACTIVE:
	case KARST_EVENT_PORT_ERR:
	case KARST_EVENT_PORT_GONE:
	case KARST_EVENT_GID_CHANGE:
		record.handle = ev->port + 1u;
		if (is_of_its_port(s, record.handle))
			port_send(s, &record);
		return;
	case KARST_EVENT_DEVICE_FATAL:
		waiting = &s->waiting;
		break;
	default:
		qp = ev->qp->user;
		record.handle = qp->handle;
		record.cookie = qp->cookie;
		waiting = &qp->waiting;
	}
	async_send(s, &record, waiting);
}

const struct karst_engine_ops eng_session_ops = {
	.cq_event = session_cq_event,
	.async_event = session_async_event,
};
