/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Events: completion channels, and the asynchronous events of a context.
 *
 * Both are streams that the engine writes (stream.c).  A record that names an object which is gone
 * is skipped.  The end of the stream means that the engine is gone.  Then every armed queue of the
 * channel gets an event, because its outstanding requests are flushed, and there is one last
 * asynchronous event.
 */
#include "client_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Converts a record to the completion queue that it names. */
static bool
take_cq(struct karst_client *c, const struct cli_stream *st, const void *record, void *event)
{
	const uint64_t *cookie = record;
	struct cli_cq *q = cli_object_find(c, CLI_CQ, *cookie), **taken = event;

	if (q == NULL || q->pub.channel == NULL || &cli_channel_of(q->pub.channel)->stream != st)
		return false;
	if (taken != NULL) {
		q->events.got++;
		*taken = q;
	}
	return true;
}

int
karst_create_comp_channel(struct karst_context *ctx, struct karst_comp_channel **channel)
{
	struct karst_client *c = cli_of(ctx);
	CLI_REQ(create_channel) m = {.body.reserved = 0};
	struct karst_ctl_create_channel_rsp r = {0};
	int fd = -1, ret;
	struct cli_reply reply = {&r, sizeof(r), &fd, 1};
	struct cli_channel *ch = calloc(1, sizeof(*ch));

	if (ch == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	ret = cli_call(c, KARST_CTL_CREATE_CHANNEL, &m.hdr, sizeof(m), NULL, 0, &reply);
	if (ret == 0 && reply.nfds != 1)
		ret = cli_fail_const(-EPROTO, "the engine sent no descriptor of the channel");
	if (ret != 0) {
		/* the engine has created a channel, but there is no descriptor to read it with */
		if (r.channel != 0)
			cli_destroy_call(c, KARST_CTL_DESTROY_CHANNEL, r.channel);
		free(ch);
		return ret;
	}
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	ch->pub = (struct karst_comp_channel){.context = ctx, .fd = fd, .handle = r.channel};
	ch->stream = (struct cli_stream){.fd = fd, .bytes = sizeof(uint64_t), .take = take_cq};
	atomic_fetch_add(&c->nobjects, 1);
	*channel = &ch->pub;
	return 0;
}

int
karst_destroy_comp_channel(struct karst_comp_channel *channel)
{
	struct karst_client *c = cli_of(channel->context);
	int ret, cancel;
	uint32_t refs;

	if (cli_forked(c))
		return cli_fail_forked();
	karst_mutex_lock(&c->reg);
	refs = channel->refs;
	karst_mutex_unlock(&c->reg);
	if (refs != 0)
		return cli_fail(-EBUSY, "%u completion queues use this channel", refs);
	ret = cli_destroy_call(c, KARST_CTL_DESTROY_CHANNEL, channel->handle);
	if (ret != 0)
		return ret;
	cancel = karst_cancel_disable();
	close(channel->fd);
	karst_cancel_restore(cancel);
	atomic_fetch_sub(&c->nobjects, 1);
	free(cli_channel_of(channel));
	return 0;
}

/* --- reading --- */

static bool
take_flushed(struct cli_cq *q)
{
	bool pending;

	if (!karst_cq_is_armed(q->pub.sh))
		return false;
	karst_lock(&q->lock);
	pending = cli_flush_pending(q);
	karst_unlock(&q->lock);
	return pending && karst_cq_disarm(q->pub.sh);
}

/* After the engine's death: returns an armed queue of the channel that has something to
 * complete. */
static struct cli_cq *
take_any(struct karst_comp_channel *channel)
{
	struct karst_client *c = cli_of(channel->context);
	struct cli_cq *q = NULL;
	uint32_t i;

	karst_mutex_lock(&c->reg);
	for (i = 0; i < c->nentries && q == NULL; i++) {
		struct cli_cq *at = c->entry[i].object;

		if (c->entry[i].kind == CLI_CQ && at->pub.channel == channel && take_flushed(at))
			q = at;
	}
	if (q != NULL)
		q->events.got++;
	karst_mutex_unlock(&c->reg);
	return q;
}

int
karst_get_cq_event(struct karst_comp_channel *channel, struct karst_cq **cq, void **cq_context)
{
	struct karst_client *c = cli_of(channel->context);
	struct cli_cq *q = NULL;
	uint64_t cookie;
	int ret;

	if (cli_forked(c))
		return cli_fail_forked();
	ret = cli_stream_next(c, &cli_channel_of(channel)->stream, &cookie, &q);
	if (ret == -EIO) {
		cli_set_dead(c);
		q = take_any(channel);
		if (q == NULL)
			return cli_check(c);
	} else if (ret != 0) {
		return ret;
	}
	*cq = &q->pub;
	if (cq_context != NULL)
		*cq_context = q->pub.cq_context;
	return 0;
}

void
karst_ack_cq_events(struct karst_cq *cq, unsigned int n)
{
	struct karst_client *c = cli_of(cq->context);

	if (cli_forked(c))
		return;
	karst_mutex_lock(&c->reg);
	cli_cq_of(cq)->events.acked += n;
	pthread_cond_broadcast(&c->acked);
	karst_mutex_unlock(&c->reg);
}

/* --- asynchronous events --- */

static enum karst_async_object
object_of(uint32_t event)
{
	switch (event) {
	case KARST_EVENT_CQ_ERR:
		return KARST_ASYNC_OBJECT_CQ;
	case KARST_EVENT_QP_FATAL:
	case KARST_EVENT_QP_REQ_ERR:
	case KARST_EVENT_QP_ACCESS_ERR:
	case KARST_EVENT_COMM_EST:
	case KARST_EVENT_SQ_DRAINED:
	case KARST_EVENT_PATH_MIG:
	case KARST_EVENT_PATH_MIG_ERR:
	case KARST_EVENT_QP_LAST_WQE_REACHED:
		return KARST_ASYNC_OBJECT_QP;
	case KARST_EVENT_SRQ_ERR:
	case KARST_EVENT_SRQ_LIMIT_REACHED:
		return KARST_ASYNC_OBJECT_SRQ;
	case KARST_EVENT_PORT_ACTIVE:
	case KARST_EVENT_PORT_ERR:
	case KARST_EVENT_PORT_GONE:
	case KARST_EVENT_GID_CHANGE:
		return KARST_ASYNC_OBJECT_PORT;
	default:
		return KARST_ASYNC_OBJECT_NONE;
	}
}

/* Fills in the object, with reg held.  @return the counts of its events; NULL: it has none, or it
 * is gone, and then *@gone is set. */
static struct cli_events *
find_object(struct karst_client *c, const struct karst_ctl_async *a, struct karst_async_event *e,
	bool *gone)
{
	struct cli_srq *srq;
	struct cli_cq *cq;
	struct cli_qp *qp;

	switch (e->object) {
	case KARST_ASYNC_OBJECT_CQ:
		cq = cli_object_find(c, CLI_CQ, a->cookie);
		*gone = cq == NULL;
		e->element.cq = cq != NULL ? &cq->pub : NULL;
		return cq != NULL ? &cq->async : NULL;
	case KARST_ASYNC_OBJECT_QP:
		qp = cli_object_find(c, CLI_QP, a->cookie);
		*gone = qp == NULL;
		e->element.qp = qp != NULL ? &qp->pub : NULL;
		return qp != NULL ? &qp->async : NULL;
	case KARST_ASYNC_OBJECT_SRQ:
		srq = cli_object_find(c, CLI_SRQ, a->cookie);
		*gone = srq == NULL;
		e->element.srq = srq != NULL ? &srq->pub : NULL;
		return srq != NULL ? &srq->async : NULL;
	case KARST_ASYNC_OBJECT_PORT:
		e->element.port_num = a->handle;
		return NULL;
	default:
		/* an engine of a later version may send events that this version does not know */
		*gone = a->event != KARST_EVENT_DEVICE_FATAL || c->fatal_told;
		return NULL;
	}
}

static bool
take_async(struct karst_client *c, const struct cli_stream *st, const void *record, void *event)
{
	const struct karst_ctl_async *a = record;
	struct karst_async_event e = {
		.object = object_of(a->event), .event = (enum karst_async_event_code)a->event};
	bool gone = false;
	struct cli_events *events = find_object(c, a, &e, &gone);

	if (gone || event == NULL)
		return !gone;
	if (events != NULL)
		events->got++;
	if (a->event == KARST_EVENT_DEVICE_FATAL)
		c->fatal_told = true;
	memcpy(event, &e, sizeof(e));
	return true;
}

void
cli_async_open(struct karst_client *c)
{
	c->async = (struct cli_stream){
		.fd = c->pub.async_fd,
		.bytes = sizeof(struct karst_ctl_async),
		.take = take_async,
	};
}

/* Reports the engine's death, once. */
static int
take_last(struct karst_client *c, struct karst_async_event *event)
{
	static const struct karst_ctl_async last = {.event = KARST_EVENT_DEVICE_FATAL};
	bool taken;

	karst_mutex_lock(&c->reg);
	taken = take_async(c, &c->async, &last, event);
	karst_mutex_unlock(&c->reg);
	return taken ? 0 : cli_check(c);
}

int
karst_get_async_event(struct karst_context *ctx, struct karst_async_event *event)
{
	struct karst_client *c = cli_of(ctx);
	struct karst_ctl_async a;
	int ret;

	if (cli_forked(c))
		return cli_fail_forked();
	ret = cli_stream_next(c, &c->async, &a, event);
	if (ret != -EIO)
		return ret;
	cli_set_dead(c);
	return take_last(c, event);
}

void
karst_ack_async_event(const struct karst_async_event *event)
{
	struct cli_events *events;
	struct karst_client *c;

	switch (event->object) {
	case KARST_ASYNC_OBJECT_CQ:
		c = cli_of(event->element.cq->context);
		events = &cli_cq_of(event->element.cq)->async;
		break;
	case KARST_ASYNC_OBJECT_QP:
		c = cli_of(event->element.qp->context);
		events = &cli_qp_of(event->element.qp)->async;
		break;
	case KARST_ASYNC_OBJECT_SRQ:
		c = cli_of(event->element.srq->context);
		events = &cli_srq_of(event->element.srq)->async;
		break;
	default:
		return;
	}
	if (cli_forked(c))
		return;
	karst_mutex_lock(&c->reg);
	events->acked++;
	pthread_cond_broadcast(&c->acked);
	karst_mutex_unlock(&c->reg);
}
