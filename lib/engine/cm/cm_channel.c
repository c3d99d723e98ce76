/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Events on their way to programs.
 *
 * They wait here, not in the stream, since they go with their identifier when it is destroyed or
 * changes its channel.  The stream only says that there are some: it gets a byte when the first one
 * comes, and the program reads a byte when it is told that it took the last one.  So there are as
 * many bytes as channels that are not empty, whatever happens in between, and a program that does
 * not keep to it confuses nobody but itself.
 *
 * A program that does not take its events loses them beyond some for each identifier.  Requests are
 * counted apart, by the listener's backlog.
 */
#include <errno.h>

#include "cm.h"

/* Of one identifier; in its life there are some ten. */
#define MAX_EVENTS 64u

static void
event_put(struct cm_channel *ch, struct cm_event *ev)
{
	static const uint8_t byte;

	ev->next = NULL;
	if (ch->first == NULL) {
		ch->end = &ch->first;
		eng_stream_put(&ch->stream, &byte, sizeof(byte));
	}
	*ch->end = ev;
	ch->end = &ev->next;
}

struct cm_event *
eng_cm_event(struct eng_cm *cm, struct cm_id *id, uint32_t code, int status)
{
	struct cm_event *ev = NULL;

	/* Nothing is told by a name that the program has not given yet; whatever it was, accepting
	 * fails. */
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
	struct cm_event *ev = ch->first;

	if (ev == NULL)
		return NULL;
	ch->first = ev->next;
	if (ev->conn == NULL)
		ev->id->nevents--;
	*emptied = ch->first == NULL;
	return ev;
}

/* Takes the events of @id out of its channel that match @group, if there is one.
 * @return them; *@emptied: no others are left. */
static struct cm_event *
event_extract(struct cm_id *id, const struct cm_group *group, bool *emptied)
{
	struct cm_channel *ch = id->channel;
	struct cm_event **at = &ch->first, *ev, *out = NULL, **out_end = &out;
	bool any = ch->first != NULL;

	while ((ev = *at) != NULL) {
		if (ev->id != id || (group != NULL && ev->group != group)) {
			at = &ev->next;
			continue;
		}
		*at = ev->next;
		*out_end = ev;
		out_end = &ev->next;
	}
	*out_end = NULL;
	ch->end = at;
	*emptied = any && ch->first == NULL;
	return out;
}

bool
eng_cm_event_purge(struct eng_cm *cm, struct cm_id *id, const struct cm_group *group)
{
	bool emptied;
	struct cm_event *ev = event_extract(id, group, &emptied), *next;

	for (; ev != NULL; ev = next) {
		next = ev->next;
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
	bool emptied;
	struct cm_event *ev = event_extract(id, NULL, &emptied), *next;

	for (; ev != NULL; ev = next) {
		next = ev->next;
		if (ev->conn != NULL) {
			ev->conn->channel->ids--;
			ev->conn->channel = to;
			to->ids++;
		}
		event_put(to, ev);
	}
	return emptied;
}
