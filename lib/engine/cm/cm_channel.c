/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Events for programs.
 *
 * Events wait here and not in the stream, because they are freed with their identifier, or follow
 * it to another channel.  The stream only signals that there are events: a byte is written when the
 * first one is queued, and the program reads a byte when the reply says that it took the last one.
 * So there are as many bytes as channels that are not empty, whatever happens in between, and a
 * program that does not follow this rule confuses only itself.
 *
 * Each event is in its identifier's list, too, so that destroying one of thousands of identifiers,
 * with the lock held, does not search the events of all.
 *
 * A request that ends before the program has read it gives its place of the backlog back, and its
 * event is removed: or else a peer could fill the backlog with requests that it withdraws at once.
 * If it is the only event of its channel, which the stream has already told of, it stays until
 * there is another one; a program that reads it learns when it answers that the request has ended.
 *
 * If a program does not read its events, those beyond a limit for each identifier are lost.
 * Requests are limited by the listener's backlog instead, and the events of groups, of which each
 * has one, by the limit of groups.
 */
#include <errno.h>

#include "cm.h"

/* Limit for one identifier, which has some ten events in its life. */
#define MAX_EVENTS 64u

/* Does an event count for the limit of its identifier? */
static bool
event_counts(uint32_t code)
{
	return code != KARST_RDMACM_CONNECT_REQUEST && code != KARST_RDMACM_MULTICAST_JOIN;
}

static void
event_remove(struct cm_event *ev)
{
	struct cm_channel *ch = ev->id->channel;

	if (ch->dead == ev)
		ch->dead = NULL;
	TAILQ_REMOVE(&ch->events, ev, next);
	TAILQ_REMOVE(&ev->id->events, ev, of_id);
	if (event_counts(ev->rsp.event))
		ev->id->nevents--;
}

/* Frees an event that was removed, and the connection that the program has not been told of, which
 * is rejected. */
static void
event_free(struct eng_cm *cm, struct cm_event *ev)
{
	if (ev->conn != NULL)
		eng_cm_id_free(cm, ev->conn);
	free(ev);
}

static void
event_put(struct eng_cm *cm, struct cm_channel *ch, struct cm_event *ev)
{
	static const uint8_t byte;
	struct cm_event *dead = ch->dead;

	if (TAILQ_EMPTY(&ch->events))
		eng_stream_put(&ch->stream, &byte, sizeof(byte));
	TAILQ_INSERT_TAIL(&ch->events, ev, next);
	if (dead == NULL)
		return;
	event_remove(dead);
	event_free(cm, dead);
}

struct cm_event *
eng_cm_event(struct eng_cm *cm, struct cm_id *id, uint32_t code, int status)
{
	struct cm_event *ev = NULL;

	/* The program has not named this identifier yet, so no event can name it; accepting it will
	 * fail in any case. */
	if (id->passive && !id->named)
		return NULL;
	if (!event_counts(code) || id->nevents < MAX_EVENTS)
		ev = calloc(1, sizeof(*ev));
	if (ev == NULL) {
		cm->stats.events_lost++;
		return NULL;
	}
	ev->id = id;
	ev->rsp.event = code;
	ev->rsp.status = status;
	if (event_counts(code))
		id->nevents++;
	TAILQ_INSERT_TAIL(&id->events, ev, of_id);
	event_put(cm, id->channel, ev);
	return ev;
}

struct cm_event *
eng_cm_event_take(struct cm_channel *ch, bool *emptied)
{
	struct cm_event *ev = TAILQ_FIRST(&ch->events);

	if (ev == NULL)
		return NULL;
	event_remove(ev);
	*emptied = TAILQ_EMPTY(&ch->events);
	return ev;
}

bool
eng_cm_event_purge(struct eng_cm *cm, struct cm_id *id, const struct cm_group *group)
{
	struct cm_channel *ch = id->channel;
	bool any = !TAILQ_EMPTY(&ch->events);
	struct cm_event *ev, *next;

	for (ev = TAILQ_FIRST(&id->events); ev != NULL; ev = next) {
		next = TAILQ_NEXT(ev, of_id);
		if (group != NULL && ev->group != group)
			continue;
		event_remove(ev);
		event_free(cm, ev);
	}
	return any && TAILQ_EMPTY(&ch->events);
}

void
eng_cm_request_drop(struct eng_cm *cm, struct cm_id *id)
{
	struct cm_event *ev = id->request;
	struct cm_channel *ch = id->channel;

	eng_cm_backlog_give(id);
	if (TAILQ_FIRST(&ch->events) == ev && TAILQ_NEXT(ev, next) == NULL) {
		ch->dead = ev;
		return;
	}
	event_remove(ev);
	event_free(cm, ev);
}

bool
eng_cm_event_move(struct eng_cm *cm, struct cm_id *id, struct cm_channel *to)
{
	struct cm_channel *ch = id->channel;
	bool any = !TAILQ_EMPTY(&ch->events);
	struct cm_event *ev;

	TAILQ_FOREACH(ev, &id->events, of_id) {
		if (ch->dead == ev)
			ch->dead = NULL;
		TAILQ_REMOVE(&ch->events, ev, next);
		if (ev->conn != NULL) {
			ev->conn->channel->ids--;
			ev->conn->channel = to;
			to->ids++;
		}
		event_put(cm, to, ev);
	}
	return any && TAILQ_EMPTY(&ch->events);
}
