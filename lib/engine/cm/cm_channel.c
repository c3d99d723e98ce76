/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Events on their way to programs.
 *
 * Events wait here, not in the stream, because they go with their identifier when it is destroyed
 * or changes its channel.  The stream only tells that there are some: it gets a byte when the first
 * one comes, and the program reads a byte when the reply tells that it took the last one.  So there
 * are as many bytes as channels that are not empty, whatever happens in between, and a program that
 * does not follow this confuses only itself.
 *
 * A program that does not take its events loses those beyond a limit for each identifier.  Requests
 * are limited by the listener's backlog instead.
 */
#include <errno.h>

#include "cm.h"

/* Of one identifier; in its life there are some ten. */
#define MAX_EVENTS 64u

static void
event_put(struct cm_channel *ch, struct cm_event *ev)
{
	static const uint8_t byte;

	if (STAILQ_EMPTY(&ch->events))
		eng_stream_put(&ch->stream, &byte, sizeof(byte));
	STAILQ_INSERT_TAIL(&ch->events, ev, next);
}

struct cm_event *
eng_cm_event(struct eng_cm *cm, struct cm_id *id, uint32_t code, int status)
{
	struct cm_event *ev = NULL;

	/* The program has not named this identifier yet, so no event can name it; accepting it will
	 * fail in any case. */
	if (id->passive && !id->named)
		return NULL;
	if (code == KARST_RDMACM_CONNECT_REQUEST || id->nevents < MAX_EVENTS)
		ev = calloc(1, sizeof(*ev));
	if (ev == NULL) {
		cm->stats.events_lost++;
		return NULL;
	}
	ev->id = id;
	ev->rsp.event = code;
	ev->rsp.status = status;
	if (code != KARST_RDMACM_CONNECT_REQUEST)
		id->nevents++;
	event_put(id->channel, ev);
	return ev;
}

struct cm_event *
eng_cm_event_take(struct cm_channel *ch, bool *emptied)
{
	struct cm_event *ev = STAILQ_FIRST(&ch->events);

	if (ev == NULL)
		return NULL;
	STAILQ_REMOVE_HEAD(&ch->events, next);
	if (ev->conn == NULL)
		ev->id->nevents--;
	*emptied = STAILQ_EMPTY(&ch->events);
	return ev;
}

/* Takes the events of @id out of its channel that match @group, if there is one, to @out.
 * @return true: there were events, and none is left. */
static bool
event_extract(struct cm_id *id, const struct cm_group *group, struct cm_events *out)
{
	struct cm_channel *ch = id->channel;
	struct cm_events all = STAILQ_HEAD_INITIALIZER(all);
	bool any = !STAILQ_EMPTY(&ch->events);
	struct cm_event *ev;

	STAILQ_INIT(out);
	STAILQ_CONCAT(&all, &ch->events);
	while ((ev = STAILQ_FIRST(&all)) != NULL) {
		STAILQ_REMOVE_HEAD(&all, next);
		if (ev->id != id || (group != NULL && ev->group != group))
			STAILQ_INSERT_TAIL(&ch->events, ev, next);
		else
			STAILQ_INSERT_TAIL(out, ev, next);
	}
	return any && STAILQ_EMPTY(&ch->events);
}

bool
eng_cm_event_purge(struct eng_cm *cm, struct cm_id *id, const struct cm_group *group)
{
	struct cm_events out;
	bool emptied = event_extract(id, group, &out);
	struct cm_event *ev;

	while ((ev = STAILQ_FIRST(&out)) != NULL) {
		STAILQ_REMOVE_HEAD(&out, next);
		/* nobody has heard of it: it is rejected */
		if (ev->conn != NULL)
			eng_cm_id_free(cm, ev->conn);
		else
			id->nevents--;
		free(ev);
	}
	return emptied;
}

bool
eng_cm_event_move(struct cm_id *id, struct cm_channel *to)
{
	struct cm_events out;
	bool emptied = event_extract(id, NULL, &out);
	struct cm_event *ev;

	while ((ev = STAILQ_FIRST(&out)) != NULL) {
		STAILQ_REMOVE_HEAD(&out, next);
		if (ev->conn != NULL) {
			ev->conn->channel->ids--;
			ev->conn->channel = to;
			to->ids++;
		}
		event_put(to, ev);
	}
	return emptied;
}
