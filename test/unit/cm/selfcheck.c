/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "selfcheck.h"

#include "cm_priv.h"

static const char *
check_list(const struct cm_list *list, uint32_t length)
{
	const struct cm_link *l;
	uint32_t n = 0;

	for (l = list->head; l != NULL; l = l->next) {
		if (*l->pprev != l || karst_container_of(l, struct cm_id, age)->list != list)
			return "a list that is linked wrongly";
		n++;
	}
	if (*list->tail != NULL || n != length)
		return "a list with another end or length than it says";
	return NULL;
}

static const char *
check_id(const struct cm_core *c, const struct cm_id *id)
{
	bool asked = id->state == KARST_CM_REQ_RCVD || id->state == KARST_CM_SIDR_REQ_RCVD ||
		id->state == KARST_CM_REP_SENT;
	bool asks = id->state == KARST_CM_ESTABLISHED && id->lap == CM_LAP_SENT;
	bool waits = asked || asks || id->state == KARST_CM_REQ_SENT ||
		id->state == KARST_CM_DREQ_SENT || id->state == KARST_CM_TIMEWAIT ||
		id->state == KARST_CM_SIDR_REQ_SENT || id->state == KARST_CM_SIDR_REP_SENT;
	bool connected = id->state == KARST_CM_REP_RCVD || id->state == KARST_CM_ESTABLISHED ||
		id->state == KARST_CM_DREQ_SENT || id->state == KARST_CM_DREQ_RCVD;
	bool repeats = id->state == KARST_CM_REQ_SENT || id->state == KARST_CM_REP_SENT ||
		id->state == KARST_CM_DREQ_SENT || id->state == KARST_CM_SIDR_REQ_SENT ||
		id->state == KARST_CM_SIDR_REP_SENT;
	bool hashed = id->by_remote_id.pprev != NULL, qpn = id->by_remote_qpn.pprev != NULL;

	if (cm_id_find(c, id->id) != id)
		return "an id is not found by its number";
	if ((id->list == &c->half_open) != asked)
		return "half open and not on that list, or the other way round";
	if ((id->source != NULL) != asked ||
		(asked && !same_ip(id->source->ip, id->path.remote_ip)))
		return "half open and not counted with its address, or the other way round";
	if ((id->list == &c->orphans || id->list == &c->answered) != id->orphan)
		return "an orphan and not on that list, or the other way round";
	if (id->orphan && id->user != NULL)
		return "an orphan with a user";
	if (id->orphan &&
		(id->list == &c->answered) != (id->spent || id->state == KARST_CM_SIDR_REP_SENT))
		return "a connection among the requests, or the other way round";
	if (karst_timer_armed(&id->timer) != (waits || id->stale))
		return "waits without a timer, or the other way round";
	if ((id->by_service.pprev != NULL) != (id->state == KARST_CM_LISTENING))
		return "listens and is not found, or the other way round";
	/* a passive side that has disconnected may have refused the REQ since */
	if (connected && !(hashed && (qpn || (id->passive && id->state == KARST_CM_DREQ_SENT))))
		return "connected and not found by the peer's numbers";
	if ((id->state == KARST_CM_IDLE || id->state == KARST_CM_LISTENING) &&
		(hashed || qpn || id->kept))
		return "an idle id or a listener that a peer may find";
	if (id->stale && id->state != KARST_CM_REQ_RCVD && id->state != KARST_CM_REP_SENT &&
		id->state != KARST_CM_REP_RCVD)
		return "stale in a state in which it cannot be given up";
	if (id->spent && (qpn || (id->state != KARST_CM_TIMEWAIT && id->state != KARST_CM_IDLE)))
		return "spent and alive";
	if (repeats && !id->kept)
		return "nothing there to be repeated";
	return NULL;
}

const char *
cm_selfcheck(const struct karst_cm *cm)
{
	const struct cm_core *c = karst_container_of(cm, const struct cm_core, pub);
	uint32_t i, used = 0, from = 0, orphans = 0, answered = 0, nsources = 0;
	const struct cm_source *source;
	const char *why = NULL;

	for (i = 0; i < c->untouched && why == NULL; i++) {
		if (c->slots[i].id == 0)
			continue;
		used++;
		if (c->slots[i].list == &c->answered)
			answered++;
		else
			orphans += c->slots[i].orphan;
		why = check_id(c, &c->slots[i]);
	}
	if (why != NULL)
		return why;
	for (i = 0; i <= c->hash_mask; i++) {
		for (source = c->sources[i]; source != NULL; source = source->next) {
			from += source->nhalf_open;
			nsources++;
		}
	}
	for (source = c->free_sources; source != NULL; source = source->next)
		nsources++;
	if (nsources != c->max_half_open)
		return "an address from which nothing is half open was kept, or one was lost";
	if (used != cm->nids)
		return "ids are not counted as they are";
	if (from != cm->nhalf_open || cm->nhalf_open > c->max_half_open)
		return "half-open connections are not counted as they are, or too many";
	why = check_list(&c->free, c->untouched - used);
	if (why == NULL)
		why = check_list(&c->half_open, cm->nhalf_open);
	if (why == NULL)
		why = check_list(&c->answered, answered);
	return why != NULL ? why : check_list(&c->orphans, orphans);
}
