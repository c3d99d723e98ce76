/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Sends and receives REJ and MRA (C1).
 *
 * A REJ is not acknowledged.  So the side that sent it keeps it through a time-wait, and sends it
 * again in answer to a message that shows that it was lost.
 */
#include "cm_priv.h"

#include "karst_hdr.h"

/* Which message of the peer a REJ or an MRA is about that is sent in this state. */
static uint8_t
about_in(uint8_t state)
{
	switch (state) {
	case KARST_CM_REQ_RCVD:
		return KARST_CM_ABOUT_REQ;
	case KARST_CM_REP_RCVD:
		return KARST_CM_ABOUT_REP;
	default:
		return KARST_CM_ABOUT_OTHER;
	}
}

int
cm_reject(struct cm_core *c, struct cm_id *id, const struct karst_cm_msg *what)
{
	struct karst_cm_msg rej = *what;

	rej.kind = KARST_CM_REJ;
	rej.tid = id->tid;
	rej.local_id = id->id;
	rej.remote_id = id->remote_id;
	rej.rej.message = about_in(id->state);
	if (cm_keep(id, &rej) != 0)
		return -EMSGSIZE;
	cm_send_again(c, id);
	cm_enter_rejected(c, id);
	return 0;
}

int
karst_cm_id_reject(struct karst_cm *cm, uint32_t number, uint16_t reason, const void *info,
	uint8_t info_len, const void *private_data, uint8_t len)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_of_user(c, number);
	struct karst_cm_msg rej = {.info = info,
		.info_len = info_len,
		.private_data = private_data,
		.private_data_len = len};

	if (id == NULL)
		return -ENOENT;
	if (id->state != KARST_CM_REQ_RCVD && id->state != KARST_CM_REP_RCVD &&
		id->state != KARST_CM_REP_SENT)
		return -EINVAL;
	rej.rej.reason = reason;
	return cm_reject(c, id, &rej);
}

int
karst_cm_id_refuse(
	struct karst_cm *cm, uint32_t number, uint16_t reason, const void *info, uint8_t info_len)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_of_user(c, number);
	struct karst_cm_msg rej;

	if (id == NULL)
		return -ENOENT;
	if (id->state != KARST_CM_REQ_RCVD)
		return -EINVAL;
	rej = cm_msg_of(id, KARST_CM_REJ);
	rej.info = info;
	rej.info_len = info_len;
	rej.rej.reason = reason;
	rej.rej.message = KARST_CM_ABOUT_REQ;
	if (cm_keep(id, &rej) != 0)
		return -EMSGSIZE;
	cm_send_again(c, id);
	cm_id_free(c, id);
	return 0;
}

/* --- received REJ --- */

/* A peer that gave up waiting may not know the id of this side; then it sends its own GUID
 * instead. */
static struct cm_id *
find_by_guid(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	if (m->rej.reason != KARST_CM_REJ_TIMEOUT || m->info_len < 8)
		return NULL;
	return cm_id_by_remote(c, seen->remote_ip, karst_get_be64(m->info), m->local_id);
}

/* This side has disconnected before an RTU came, and the peer refuses the REP, or has given up
 * waiting for one: it will not repeat its REQ, and its queue pair was never connected. */
static bool
ends_before_rtu(const struct cm_id *id, const struct karst_cm_msg *m)
{
	return id->no_rtu &&
		(m->rej.message == KARST_CM_ABOUT_REP || m->rej.reason == KARST_CM_REJ_TIMEOUT);
}

static void
tell_rej(struct cm_core *c, const struct cm_id *id, const struct karst_cm_msg *m)
{
	struct karst_cm_ev ev = cm_event(id, KARST_CM_EV_REJ, m);

	ev.reason = m->rej.reason;
	ev.message = m->rej.message;
	cm_notify(c, id, &ev);
}

void
cm_rx_rej(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct cm_id *id = m->remote_id == 0 ? find_by_guid(c, seen, m) : NULL;
	bool early;

	if (id == NULL)
		id = cm_rx_find(c, seen, m);
	if (id == NULL)
		return;
	early = ends_before_rtu(id, m);
	if (early) {
		id->no_rtu = false;
		cm_id_unhash_qpn(id);
	}
	switch (id->state) {
	case KARST_CM_REQ_SENT:
	case KARST_CM_REQ_RCVD:
	case KARST_CM_REP_SENT:
	case KARST_CM_REP_RCVD:
		cm_refused_by_peer(c, id);
		tell_rej(c, id, m);
		return;
	case KARST_CM_ESTABLISHED: /* the RTU was lost, and the peer has given up waiting for it */
		cm_enter_timewait(c, id);
		tell_rej(c, id, m);
		return;
	case KARST_CM_DREQ_SENT: /* the peer knows of no connection */
		cm_enter_timewait(c, id);
		cm_notify_code(c, id, KARST_CM_EV_DREQ_ERROR);
		return;
	case KARST_CM_TIMEWAIT:
		if (early) {
			cm_enter_timewait(c, id); /* which is shorter now */
			return;
		}
		/* fall through */
	default:
		count(c, KARST_CM_CTR_STATE);
		return;
	}
}

/* --- MRA --- */

int
karst_cm_id_mra(struct karst_cm *cm, uint32_t number, uint8_t service_timeout,
	const void *private_data, uint8_t len)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_of_user(c, number);
	struct karst_cm_msg m;

	if (id == NULL)
		return -ENOENT;
	if ((id->state != KARST_CM_REQ_RCVD && id->state != KARST_CM_REP_RCVD) || id->stale ||
		service_timeout > 31)
		return -EINVAL;
	m = cm_msg_of(id, KARST_CM_MRA);
	m.mra.message = about_in(id->state);
	m.mra.service_timeout = service_timeout;
	m.private_data = private_data;
	m.private_data_len = len;
	if (cm_keep(id, &m) != 0)
		return -EMSGSIZE;
	id->mra = service_timeout;
	cm_send_again(c, id);
	if (id->state == KARST_CM_REQ_RCVD)
		cm_await_user(c, id);
	return 0;
}

/* An MRA takes effect once for each message that is sent, so that the total wait is limited by the
 * number of retries. */
void
cm_rx_mra(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct cm_id *id = cm_rx_find(c, seen, m);
	unsigned int exponent = m->mra.service_timeout;
	struct karst_cm_ev ev;

	if (id == NULL)
		return;
	if (!(id->state == KARST_CM_REQ_SENT && m->mra.message == KARST_CM_ABOUT_REQ) &&
		!(id->state == KARST_CM_REP_SENT && m->mra.message == KARST_CM_ABOUT_REP) &&
		!(id->state == KARST_CM_ESTABLISHED && id->lap == CM_LAP_SENT &&
			m->mra.message == KARST_CM_ABOUT_OTHER)) {
		count(c, KARST_CM_CTR_STATE);
		return;
	}
	if (id->stale || id->mra_received) {
		c->pub.counters.rx_duplicates[KARST_CM_MRA]++;
		return;
	}
	id->mra_received = true;
	exponent = exponent < CM_PEER_TIMEOUT_MAX ? exponent : CM_PEER_TIMEOUT_MAX;
	cm_timer_set(c, id, exponent_ns(exponent) + id->full_wait_ns);
	ev = cm_event(id, KARST_CM_EV_MRA, m);
	ev.message = m->mra.message;
	ev.service_timeout = m->mra.service_timeout;
	cm_notify(c, id, &ev);
}
