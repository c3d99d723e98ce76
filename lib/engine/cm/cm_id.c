/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Life cycle of identifiers.
 *
 *	IDLE -> BOUND -> LISTEN
 *	IDLE or BOUND -> ADDR_QUERY -> ADDR_RESOLVED -> ROUTE_RESOLVED -> CONNECT
 *	                            -> BOUND, if there is no path
 *
 * A request creates an identifier in CONNECT, which its program knows after it has taken the event;
 * until then the event owns the identifier.
 */
#include <errno.h>

#include "cm.h"

int
eng_cm_id_new(
	struct eng_cm *cm, struct cm_client *client, struct cm_channel *ch, struct cm_id **out)
{
	struct cm_id *id = calloc(1, sizeof(*id));
	int ret;

	if (id == NULL)
		return -ENOMEM;
	ret = eng_handles_add(&client->ids, id, &id->handle);
	if (ret != 0) {
		free(id);
		return ret;
	}
	id->client = client;
	id->channel = ch;
	TAILQ_INIT(&id->events);
	id->psn = eng_cm_random(cm) & 0xffffff;
	ch->ids++;
	*out = id;
	return 0;
}

static void
free_groups(struct cm_id *id)
{
	struct cm_group *g;

	while ((g = LIST_FIRST(&id->groups)) != NULL) {
		LIST_REMOVE(g, next);
		eng_handles_del(&id->client->groups, g->handle);
		free(g);
	}
}

bool
eng_cm_id_free(struct eng_cm *cm, struct cm_id *id)
{
	bool emptied;

	eng_cm_service_leave(cm, id);
	eng_cm_unnumber(cm, id);
	eng_cm_path_forget(cm, id);
	eng_cm_backlog_give(id);
	emptied = eng_cm_event_purge(cm, id, NULL);
	free_groups(id);
	eng_cm_unanswered(cm, id);
	if (id->cm_id != 0)
		karst_cm_id_destroy(cm->cm, id->cm_id);
	id->channel->ids--;
	eng_handles_del(&id->client->ids, id->handle);
	free(id);
	return emptied;
}

void
eng_cm_id_resolved(struct eng_cm *cm, struct cm_id *id, int status)
{
	id->state = status == 0 ? CM_ID_ADDR_RESOLVED : CM_ID_BOUND;
	if (status != 0 && id->chosen) {
		id->src = id->bound;
		id->has_port = false;
	}
	id->chosen = false;
	eng_cm_event(
		cm, id, status == 0 ? KARST_RDMACM_ADDR_RESOLVED : KARST_RDMACM_ADDR_ERROR, status);
}
