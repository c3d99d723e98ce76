/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * SIDR REQ and SIDR REP: ask which queue pair serves datagrams of a service (C2).  There is no
 * connection: the exchange ends with the answer, which is kept for a while in case the peer repeats
 * its request.
 */
#include "cm_priv.h"

/* A SIDR REQ does not say for how long it is repeated; Linux repeats it for 69 s. */
#define SIDR_PATIENCE 24

int
karst_cm_id_sidr_request(struct karst_cm *cm, const struct karst_cm_path *path, uint64_t service_id,
	const void *private_data, uint8_t len, void *user, uint32_t *number)
{
	struct cm_core *c = core_of(cm);
	struct karst_cm_msg m;
	struct cm_id *id;

	if (path->flow_label >= 1u << 20)
		return -EINVAL;
	if (len > KARST_CM_SIDR_REQ_PRIVATE)
		return -EMSGSIZE;
	id = cm_id_new(c, KARST_CM_SIDR_REQ_SENT, user);
	if (id == NULL)
		return -ENOSPC;
	id->path = *path;
	id->qp_type = KARST_QPT_UD;
	id->service_id = service_id;
	id->tid = cm_tid(c, id);
	m = cm_msg_of(id, KARST_CM_SIDR_REQ);
	m.sidr_req.service_id = service_id;
	m.sidr_req.pkey = path->pkey;
	m.private_data = private_data;
	m.private_data_len = len;
	cm_keep(id, &m);
	cm_send_awaiting(c, id, exponent_ns(c->response_timeout), c->max_retries);
	*number = id->id;
	return 0;
}

void
cm_rx_sidr_rep(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct cm_id *id = cm_id_find(c, m->local_id);
	struct karst_cm_ev ev;

	if (id == NULL) {
		count(c, KARST_CM_CTR_NO_ID);
		return;
	}
	if (id->state != KARST_CM_SIDR_REQ_SENT) {
		count(c, KARST_CM_CTR_STATE);
		return;
	}
	if (!same_ip(id->path.remote_ip, seen->remote_ip) ||
		!same_ip(id->path.local_ip, seen->local_ip) || m->tid != id->tid) {
		count(c, KARST_CM_CTR_FORGED);
		return;
	}
	cm_idle(c, id);
	ev = cm_event(id, KARST_CM_EV_SIDR_REP, m);
	ev.service_id = m->sidr_rep.service_id;
	ev.reason = m->sidr_rep.status;
	ev.remote.qp_type = KARST_QPT_UD;
	ev.remote.qpn = m->sidr_rep.qpn;
	ev.remote.qkey = m->sidr_rep.qkey;
	cm_notify(c, id, &ev);
}

/* --- the passive side --- */

static void
sidr_refuse_unknown(struct cm_core *c, const struct karst_cm_path *seen,
	const struct karst_cm_msg *m, enum karst_cm_sidr_status status)
{
	struct karst_cm_msg rep = {
		.kind = KARST_CM_SIDR_REP, .tid = m->tid, .local_id = m->local_id};

	rep.sidr_rep.service_id = m->sidr_req.service_id;
	rep.sidr_rep.status = (uint8_t)status;
	cm_send(c, seen, &rep);
}

static void
sidr_new_request(struct cm_core *c, const struct cm_id *listener, const struct karst_cm_path *seen,
	const struct karst_cm_msg *m)
{
	struct cm_id *id = cm_id_new(c, KARST_CM_SIDR_REQ_RCVD, NULL);
	struct karst_cm_ev ev;

	if (id == NULL) {
		count(c, KARST_CM_CTR_TABLE_FULL);
		return; /* the peer will repeat the request */
	}
	id->passive = true;
	id->qp_type = KARST_QPT_UD;
	id->listen_id = listener->id;
	id->service_id = m->sidr_req.service_id;
	id->tid = m->tid;
	id->remote_id = m->local_id;
	id->path = *seen;
	id->path.pkey = m->sidr_req.pkey;
	cm_id_hash_remote(c, id);
	cm_half_open_add(c, id);
	id->peer_timeout_ns = exponent_ns(SIDR_PATIENCE);
	cm_timer_set(c, id, id->peer_timeout_ns);
	ev = cm_event(id, KARST_CM_EV_SIDR_REQ, m);
	ev.listen_user = listener->user;
	ev.remote.qp_type = KARST_QPT_UD;
	cm_notify(c, id, &ev);
}

void
cm_rx_sidr_req(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct cm_id *old = cm_id_by_remote(c, seen->remote_ip, 0, m->local_id);
	struct cm_id *listener;

	if (old != NULL && old->tid == m->tid) {
		c->pub.counters.rx_duplicates[KARST_CM_SIDR_REQ]++;
		if (old->kept)
			cm_send_again(c, old);
		return;
	}
	if (old != NULL)
		cm_id_unhash(old); /* the peer uses the number for another request now */
	listener = cm_service_find(c, m->sidr_req.service_id);
	if (listener != NULL && !cm_make_room(c, seen->remote_ip)) {
		count(c, KARST_CM_CTR_FLOOD);
		return;
	}
	/* looked up again: the user that was told about the oldest may have stopped listening */
	listener = cm_service_find(c, m->sidr_req.service_id);
	if (listener == NULL) {
		count(c, KARST_CM_CTR_NO_SERVICE);
		sidr_refuse_unknown(c, seen, m, KARST_CM_SIDR_UNSUPPORTED);
		return;
	}
	sidr_new_request(c, listener, seen, m);
}

static int
sidr_answer(struct cm_core *c, struct cm_id *id, struct karst_cm_msg *m)
{
	m->kind = KARST_CM_SIDR_REP;
	m->tid = id->tid;
	m->local_id = id->remote_id; /* the peer's number of the request */
	m->sidr_rep.service_id = id->service_id;
	if (cm_keep(id, m) != 0)
		return -EMSGSIZE;
	cm_send_again(c, id);
	cm_enter_answered(c, id);
	return 0;
}

void
cm_sidr_refuse(struct cm_core *c, struct cm_id *id)
{
	struct karst_cm_msg m = {0};

	m.sidr_rep.status = KARST_CM_SIDR_REJECT;
	sidr_answer(c, id, &m);
}

int
karst_cm_id_sidr_reply(
	struct karst_cm *cm, uint32_t number, uint8_t status, const struct karst_cm_param *param)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_of_user(c, number);
	struct karst_cm_msg m = {0};

	if (id == NULL)
		return -ENOENT;
	if (id->state != KARST_CM_SIDR_REQ_RCVD || (param != NULL && param->qpn >= 1u << 24) ||
		(param == NULL && status == KARST_CM_SIDR_SUCCESS))
		return -EINVAL;
	m.sidr_rep.status = status;
	if (param != NULL) {
		m.sidr_rep.qpn = param->qpn;
		m.sidr_rep.qkey = param->qkey;
		m.private_data = param->private_data;
		m.private_data_len = param->private_data_len;
	}
	return sidr_answer(c, id, &m);
}

int
karst_cm_id_sidr_refuse(struct karst_cm *cm, uint32_t number, uint8_t status)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_of_user(c, number);
	struct karst_cm_msg m = {0};

	if (id == NULL)
		return -ENOENT;
	if (id->state != KARST_CM_SIDR_REQ_RCVD || status == KARST_CM_SIDR_SUCCESS)
		return -EINVAL;
	m.sidr_rep.status = status;
	sidr_answer(c, id, &m);
	cm_id_free(c, id);
	return 0;
}
