/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The end of connections: DREQ and DREP in both directions, and ids that their user destroys (C1).
 */
#include "cm_priv.h"

int
cm_start_dreq(struct cm_core *c, struct cm_id *id, const void *private_data, uint8_t len)
{
	struct karst_cm_msg m = cm_msg_of(id, KARST_CM_DREQ);

	m.tid = cm_tid(c, id);
	m.dreq.qpn = id->remote_qpn;
	m.private_data = private_data;
	m.private_data_len = len;
	if (cm_keep(id, &m) != 0)
		return -EMSGSIZE;
	id->tid = m.tid;
	cm_half_open_remove(c, id);
	id->no_rtu = id->state == KARST_CM_REP_SENT;
	id->state = KARST_CM_DREQ_SENT;
	cm_send_awaiting(c, id, exponent_ns(c->response_timeout), c->max_retries);
	return 0;
}

int
karst_cm_id_disconnect(struct karst_cm *cm, uint32_t number, const void *private_data, uint8_t len)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_of_user(c, number);

	if (id == NULL)
		return -ENOENT;
	if (id->state != KARST_CM_ESTABLISHED && (id->state != KARST_CM_REP_SENT || id->stale))
		return -EINVAL;
	return cm_start_dreq(c, id, private_data, len);
}

/* Keeps and sends a DREP.  -EMSGSIZE */
static int
dreq_answer(struct cm_core *c, struct cm_id *id, const void *private_data, uint8_t len)
{
	struct karst_cm_msg m = cm_msg_of(id, KARST_CM_DREP);

	m.private_data = private_data;
	m.private_data_len = len;
	if (cm_keep(id, &m) != 0)
		return -EMSGSIZE;
	cm_send_again(c, id);
	cm_enter_timewait(c, id);
	return 0;
}

int
karst_cm_id_disconnect_reply(
	struct karst_cm *cm, uint32_t number, const void *private_data, uint8_t len)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_of_user(c, number);

	if (id == NULL)
		return -ENOENT;
	if (id->state != KARST_CM_DREQ_RCVD)
		return -EINVAL;
	return dreq_answer(c, id, private_data, len);
}

/* Sends a DREP for a connection that is unknown here. */
static void
dreq_from_unknown(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct karst_cm_msg drep = {.kind = KARST_CM_DREP,
		.tid = m->tid,
		.local_id = m->remote_id,
		.remote_id = m->local_id};

	cm_send(c, seen, &drep);
}

void
cm_rx_dreq(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct cm_id *id = cm_rx_find(c, seen, m);
	struct karst_cm_ev ev;

	if (id == NULL) {
		if (cm_id_find(c, m->remote_id) == NULL)
			dreq_from_unknown(c, seen, m);
		return;
	}
	if (m->dreq.qpn != id->local_qpn) {
		count(c, KARST_CM_CTR_FORGED);
		return;
	}
	switch (id->state) {
	case KARST_CM_REP_SENT:
	case KARST_CM_REP_RCVD:
	case KARST_CM_ESTABLISHED:
		cm_timer_stop(c, id);
		cm_half_open_remove(c, id);
		id->kept = false;
		id->stale = false;
		id->tid = m->tid;
		id->state = KARST_CM_DREQ_RCVD;
		ev = cm_event(id, KARST_CM_EV_DREQ, m);
		cm_notify(c, id, &ev);
		return;
	case KARST_CM_DREQ_SENT: /* both sides at once: each answers the other's DREQ, and the
				  * connection is over */
		id->tid = m->tid;
		id->no_rtu = false;
		dreq_answer(c, id, NULL, 0);
		ev = cm_event(id, KARST_CM_EV_DREP, m);
		cm_notify(c, id, &ev);
		return;
	case KARST_CM_DREQ_RCVD:
		c->pub.counters.rx_duplicates[KARST_CM_DREQ]++;
		return;
	case KARST_CM_TIMEWAIT:
		c->pub.counters.rx_duplicates[KARST_CM_DREQ]++;
		dreq_from_unknown(c, seen, m);
		return;
	case KARST_CM_IDLE:
		dreq_from_unknown(c, seen, m);
		break;
	default:
		break;
	}
	count(c, KARST_CM_CTR_STATE);
}

void
cm_rx_drep(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct cm_id *id = cm_rx_find(c, seen, m);
	struct karst_cm_ev ev;

	if (id == NULL)
		return;
	if (id->state == KARST_CM_TIMEWAIT) {
		c->pub.counters.rx_duplicates[KARST_CM_DREP]++;
	} else if (id->state != KARST_CM_DREQ_SENT) {
		count(c, KARST_CM_CTR_STATE);
	} else if (m->tid != id->tid) {
		count(c, KARST_CM_CTR_FORGED);
	} else {
		cm_enter_timewait(c, id);
		ev = cm_event(id, KARST_CM_EV_DREP, m);
		cm_notify(c, id, &ev);
	}
}

void
cm_kill_stale(struct cm_core *c, struct cm_id *id)
{
	switch (id->state) {
	case KARST_CM_ESTABLISHED:
		cm_start_dreq(c, id, NULL, 0);
		return;
	case KARST_CM_REQ_RCVD:
	case KARST_CM_REP_SENT:
	case KARST_CM_REP_RCVD:
		id->stale = true;
		cm_timer_set(c, id, 0);
		return;
	default:
		return; /* it ends already */
	}
}

/* --- ids that their user destroys --- */

static void
abandon_rejected(struct cm_core *c, struct cm_id *id)
{
	struct karst_cm_msg rej = {0};

	rej.rej.reason = KARST_CM_REJ_CONSUMER_DEFINED;
	cm_reject(c, id, &rej);
	cm_orphan_add(c, id);
}

int
karst_cm_id_destroy(struct karst_cm *cm, uint32_t number)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_of_user(c, number);

	if (id == NULL)
		return -ENOENT;
	switch (id->state) {
	case KARST_CM_REQ_SENT:
		cm_abandon(c, id);
		cm_id_free(c, id);
		break;
	case KARST_CM_REQ_RCVD:
	case KARST_CM_REP_SENT:
	case KARST_CM_REP_RCVD:
		abandon_rejected(c, id);
		break;
	case KARST_CM_ESTABLISHED:
		cm_start_dreq(c, id, NULL, 0);
		cm_orphan_add(c, id);
		break;
	case KARST_CM_DREQ_RCVD:
		dreq_answer(c, id, NULL, 0);
		cm_orphan_add(c, id);
		break;
	case KARST_CM_SIDR_REQ_RCVD:
		cm_sidr_refuse(c, id);
		cm_orphan_add(c, id);
		break;
	case KARST_CM_DREQ_SENT:
	case KARST_CM_TIMEWAIT:
	case KARST_CM_SIDR_REP_SENT:
		cm_orphan_add(c, id);
		break;
	default:
		cm_id_free(c, id);
		break;
	}
	return 0;
}
