/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Events on their way to a program.
 *
 * A stream is a pair of connected sockets; the program has one end and reads records.  Lcores
 * write the other, and must not wait for anything that a program can hold: a write to a pipe
 * takes the pipe's lock, under which a reader copies to its memory, and that may be memory whose
 * page faults it answers when it likes.  A socket's writer takes only spin locks.  A record is
 * one buffer of the socket, so it goes in whole or not at all, whoever else writes.
 *
 * What finds no room is counted and lost.  A queue is told of once for each time that it was
 * armed, so this needs a program that arms some thousand times without reading.
 *
 * The callbacks run on lcores.  They find the session's object by the engine's "user", which is
 * good until the engine's call that destroys the object has returned; no event comes after it.
 */
#include "session_priv.h"

#include <sys/socket.h>
#include <unistd.h>

int
eng_stream_open(struct session_stream *st, _Atomic uint64_t *lost, int *reader)
{
	const int bytes = STREAM_BYTES;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
		return -errno;
	/* Beyond the system's limit if we may, else up to it. */
	if (setsockopt(fds[0], SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) != 0)
		setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	/* The program has nothing to say here. */
	shutdown(fds[0], SHUT_RD);
	*st = (struct session_stream){.fd = fds[0], .lost = lost};
	*reader = fds[1];
	return 0;
}

void
eng_stream_close(struct session_stream *st)
{
	if (st->fd >= 0)
		close(st->fd);
	st->fd = -1;
}

void
eng_stream_put(const struct session_stream *st, const void *record, size_t bytes)
{
	if (send(st->fd, record, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)bytes)
		atomic_fetch_add_explicit(st->lost, 1, memory_order_relaxed);
}

static void
on_cq_event(void *user, struct karst_engine_cq *cq)
{
	const struct session_cq *q = cq->user;

	if (q->channel != NULL)
		eng_stream_put(&q->channel->stream, &q->cookie, sizeof(q->cookie));
}

static void
on_async_event(void *user, const struct karst_engine_event *ev)
{
	struct karst_ctl_async record = {.event = ev->event};
	const struct karst_session *s = user;
	const struct session_cq *cq;
	const struct session_srq *srq;
	const struct session_qp *qp;

	switch (ev->event) {
	case KARST_EVENT_CQ_ERR:
		cq = ev->cq->user;
		record.handle = cq->handle;
		record.cookie = cq->cookie;
		break;
	case KARST_EVENT_SRQ_ERR:
	case KARST_EVENT_SRQ_LIMIT_REACHED:
		srq = ev->srq->user;
		record.handle = srq->handle;
		record.cookie = srq->cookie;
		break;
	case KARST_EVENT_PORT_ACTIVE:
	case KARST_EVENT_PORT_ERR:
	case KARST_EVENT_GID_CHANGE:
		record.handle = ev->port + 1u;
		break;
	case KARST_EVENT_DEVICE_FATAL:
		break;
	default:
		qp = ev->qp->user;
		record.handle = qp->handle;
		record.cookie = qp->cookie;
	}
	eng_stream_put(&s->async, &record, sizeof(record));
}

const struct karst_engine_ops eng_session_ops = {
	.cq_event = on_cq_event,
	.async_event = on_async_event,
};
