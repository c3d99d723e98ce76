/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * How connections end: DREQ and DREP both ways, time-wait, and ids that lose their user (C1).
 *
 * In time-wait an id is kept, and answers, for as long as packets of the connection may still be
 * on their way: nobody may have the peer's queue pair number until then, or they would be taken
 * for his.  An id that was destroyed before is an orphan: it goes through the same, and its slot
 * is the first to go if slots are short.
 */
#include "cm_priv.h"

/* The time that the sides allow for a packet and its acknowledgement: 16 ms to 4.3 s. */
#define TIMEWAIT_EXPONENT_MIN 12
#define TIMEWAIT_EXPONENT_MAX 20

void
cm_idle(struct cm_core *c, struct cm_id *id)
{
	if (id->orphan) {
		cm_id_free(c, id);
		return;
	}
	cm_timer_stop(c, id);
	cm_half_open_remove(c, id);
	cm_id_unhash(id);
	id->kept = false;
	id->stale = false;
	id->state = KARST_CM_IDLE;
}

static void
enter_timewait_for(struct cm_core *c, struct cm_id *id, uint64_t ns)
{
	cm_half_open_remove(c, id);
	id->stale = false;
	cm_timer_set(c, id, ns);
}

static uint64_t
timewait_ns(const struct cm_id *id)
{
	unsigned int exponent = id->path.ack_timeout;

	if (exponent < TIMEWAIT_EXPONENT_MIN)
		exponent = TIMEWAIT_EXPONENT_MIN;
	return exponent_ns(exponent < TIMEWAIT_EXPONENT_MAX ? exponent : TIMEWAIT_EXPONENT_MAX);
}

void
cm_enter_timewait(struct cm_core *c, struct cm_id *id)
{
	id->state = KARST_CM_TIMEWAIT;
	enter_timewait_for(c, id, timewait_ns(id));
}

static void
enter_spent(struct cm_core *c, struct cm_id *id, uint64_t ns)
{
	cm_id_unhash_qpn(id); /* it carried no packets: the peer may ask again for it */
	id->state = KARST_CM_TIMEWAIT;
	id->spent = true;
	enter_timewait_for(c, id, ns);
}

void
cm_enter_rejected(struct cm_core *c, struct cm_id *id)
{
	/* after our MRA the peer may repeat its request even later */
	enter_spent(c, id, id->peer_timeout_ns + cm_mra_timeout_ns(id));
}

void
cm_refused_by_peer(struct cm_core *c, struct cm_id *id)
{
	id->kept = false;
	if (id->passive)
		enter_spent(c, id, timewait_ns(id));
	else
		cm_idle(c, id);
}

void
cm_enter_answered(struct cm_core *c, struct cm_id *id)
{
	id->state = KARST_CM_SIDR_REP_SENT;
	enter_timewait_for(c, id, id->peer_timeout_ns);
}

void
cm_timewait_over(struct cm_core *c, struct cm_id *id)
{
	bool quiet = id->orphan || id->spent;

	cm_idle(c, id);
	if (!quiet)
		cm_notify_code(c, id, KARST_CM_EV_TIMEWAIT_EXIT);
}

/* --- disconnect --- */

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

/* What we know nothing of is disconnected. */
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
	case KARST_CM_DREQ_SENT: /* both at once: each answers the other, and that is all */
		id->tid = m->tid;
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
		return; /* it is ending */
	}
}

/* --- ids that lose their user --- */

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
