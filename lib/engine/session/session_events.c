/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Events of a program's objects: the engine's callbacks, which write to the program's streams
 * (stream.h).
 *
 * They run on lcores.  They find the session's object by the engine's "user" pointer, which is
 * valid until the engine's call that destroys the object has returned; no event comes after that.
 */
#include "session_priv.h"

static void
session_cq_event(void *user, struct karst_engine_cq *cq)
{
	const struct session_cq *q = cq->user;

	if (q->channel != NULL)
		eng_stream_put(&q->channel->stream, &q->cookie, sizeof(q->cookie));
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
	case KARST_EVENT_PORT_GONE:
	case KARST_EVENT_GID_CHANGE:
		record.handle = ev->port + 1u;
		if (!is_of_its_port(s, record.handle))
			return;
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
	.cq_event = session_cq_event,
	.async_event = session_async_event,
};
