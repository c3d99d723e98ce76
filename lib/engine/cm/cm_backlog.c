/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The places of a listener for requests that its program has not read.
 *
 * One address may have all of them, as a peer may ask for many connections at once.  But when there
 * is no place left, an address that has more than half of them gives up its newest request for one
 * of another address.  Only one address can have that many: the listener's "crowd".
 */
#include <errno.h>

#include "cm.h"
#include "karst_prf.h"

/* The limit of one address if others ask, too. */
static uint32_t
half_of(const struct cm_id *listener)
{
	return (listener->places + 1) / 2;
}

static struct cm_from_bucket *
from_bucket_of(struct eng_cm *cm, const struct cm_id *listener, const uint8_t ip[16])
{
	uint64_t half[2], at;

	memcpy(half, ip, sizeof(half));
	at = karst_prf(cm->place_key, half[0], half[1]);
	at = karst_prf(cm->place_key, at, (uintptr_t)listener);
	return &cm->from[at % CM_FROM_BUCKETS];
}

static struct cm_from *
from_find(struct eng_cm *cm, const struct cm_id *listener, const uint8_t ip[16])
{
	struct cm_from *at;

	LIST_FOREACH(at, from_bucket_of(cm, listener, ip), next)
		if (at->listener == listener && memcmp(at->ip, ip, sizeof(at->ip)) == 0)
			return at;
	return NULL;
}

bool
eng_cm_backlog_room(struct eng_cm *cm, struct cm_id *listener, const uint8_t ip[16])
{
	struct cm_id *newest;

	if (listener->backlog != 0)
		return true;
	if (listener->crowd == NULL || listener->crowd == from_find(cm, listener, ip))
		return false;
	newest = LIST_FIRST(&listener->crowd->requests);
	if (newest->port_space == KARST_RDMACM_PS_UDP)
		karst_cm_id_sidr_refuse(cm->cm, newest->cm_id, KARST_CM_SIDR_REJECT);
	else
		karst_cm_id_refuse(cm->cm, newest->cm_id, KARST_CM_REJ_NO_RESOURCES, NULL, 0);
	newest->cm_id = 0;
	cm->stats.backlog_full++;
	eng_cm_request_drop(cm, newest);
	return listener->backlog != 0;
}

int
eng_cm_backlog_take(struct eng_cm *cm, struct cm_id *listener, struct cm_id *id)
{
	struct cm_from *from = from_find(cm, listener, id->path.remote_ip);

	if (from == NULL) {
		from = calloc(1, sizeof(*from));
		if (from == NULL)
			return -ENOMEM;
		from->listener = listener;
		memcpy(from->ip, id->path.remote_ip, sizeof(from->ip));
		LIST_INSERT_HEAD(from_bucket_of(cm, listener, from->ip), from, next);
	}
	LIST_INSERT_HEAD(&from->requests, id, from_next);
	id->from = from;
	listener->backlog--;
	if (++from->n > half_of(listener))
		listener->crowd = from;
	return 0;
}

void
eng_cm_backlog_give(struct cm_id *id)
{
	struct cm_from *from = id->from;

	if (from == NULL)
		return;
	LIST_REMOVE(id, from_next);
	id->from = NULL;
	from->listener->backlog++;
	if (--from->n <= half_of(from->listener) && from->listener->crowd == from)
		from->listener->crowd = NULL;
	if (from->n != 0)
		return;
	LIST_REMOVE(from, next);
	free(from);
}
