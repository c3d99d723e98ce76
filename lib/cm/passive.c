/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The passive side: receives REQ, sends REP, receives RTU (C1, C2).
 *
 * Any host can send a REQ, so a connection is half open until its RTU proves that the peer exists,
 * and the number of half-open connections is limited.  One address may have half of them.  When all
 * are in use, the oldest is given up if it is at least a second old; otherwise the new REQ is
 * dropped, and its sender will repeat it.  A REQ that is refused at once costs nothing but the REJ,
 * which is not longer than the REQ.
 */
#include "cm_priv.h"

int
karst_cm_id_listen(
	struct karst_cm *cm, uint64_t service_id, uint64_t mask, void *user, uint32_t *number)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_new(c, KARST_CM_LISTENING, user);

	if (id == NULL)
		return -ENOSPC;
	id->service_id = service_id & mask;
	id->mask = mask;
	if (cm_service_add(c, id) != 0) {
		cm_id_free(c, id);
		return -EADDRINUSE;
	}
	*number = id->id;
	return 0;
}

/* --- half-open connections --- */

void
cm_give_up(struct cm_core *c, struct cm_id *id, enum karst_cm_rej_reason reason)
{
	struct karst_cm_msg rej = {0};
	struct karst_cm_ev ev;

	if (id->state == KARST_CM_SIDR_REQ_RCVD) {
		cm_idle(c, id);
		cm_notify_code(c, id, KARST_CM_EV_SIDR_ERROR);
		return;
	}
	rej.rej.reason = (uint16_t)reason;
	if (reason == KARST_CM_REJ_TIMEOUT)
		cm_abandon(c, id);
	else
		cm_reject(c, id, &rej);
	ev = cm_event(id, KARST_CM_EV_REJ, NULL);
	ev.local = true;
	ev.reason = (uint16_t)reason;
	ev.message = KARST_CM_ABOUT_OTHER;
	cm_notify(c, id, &ev);
}

bool
cm_make_room(struct cm_core *c, const uint8_t ip[16])
{
	struct cm_id *oldest;

	if (cm_half_open_full(c, ip))
		return false;
	if (c->pub.nhalf_open < c->max_half_open)
		return true;
	oldest = karst_container_of(c->half_open.head, struct cm_id, age);
	if (c->pub.now_ns - oldest->born_ns < CM_HALF_OPEN_MIN_NS)
		return false;
	count(c, KARST_CM_CTR_EVICTED);
	cm_give_up(c, oldest, KARST_CM_REJ_NO_RESOURCES);
	return c->pub.nhalf_open < c->max_half_open;
}

/* --- REQ --- */

static bool
get_transport(const struct karst_cm_req *req, uint8_t *qp_type)
{
	switch (req->transport) {
	case KARST_CM_TRANSPORT_RC:
		*qp_type = KARST_QPT_RC;
		return true;
	case KARST_CM_TRANSPORT_UC:
		*qp_type = KARST_QPT_UC;
		return true;
	case KARST_CM_TRANSPORT_EXTENDED:
		*qp_type = KARST_QPT_XRC_RECV;
		return req->extended_transport == KARST_CM_EXTENDED_XRC;
	default:
		return false;
	}
}

/* Refuses an invalid REQ.  The packets of the connection must go to the address that its messages
 * come from, and not to a host that has not asked for them. */
static bool
check_req(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	static const uint8_t largest_mtu = 5;
	uint8_t qp_type;

	if (!get_transport(&m->req, &qp_type))
		cm_refuse(c, seen, m, KARST_CM_REJ_INVALID_TRANSPORT_TYPE, NULL, 0);
	else if (m->req.mtu < 1 || m->req.mtu > largest_mtu)
		cm_refuse(c, seen, m, KARST_CM_REJ_INVALID_MTU, &largest_mtu, 1);
	else if (!same_ip(m->req.primary.local_gid, seen->remote_ip) ||
		!same_ip(m->req.primary.remote_gid, seen->local_ip))
		cm_refuse(c, seen, m, KARST_CM_REJ_INVALID_GID, seen->local_ip, 16);
	else if (m->req.qpn == 0)
		cm_refuse(c, seen, m, KARST_CM_REJ_NO_QP, NULL, 0);
	else
		return true;
	count(c, KARST_CM_CTR_INVALID);
	return false;
}

/* The wait begins again with every repeated REQ, and is longer by the time that the last MRA asked
 * for. */
void
cm_await_user(struct cm_core *c, struct cm_id *id)
{
	cm_timer_set(c, id, id->peer_timeout_ns + cm_mra_timeout_ns(id));
}

/* Answers a REQ of a connection that waits for its user. */
static void
send_mra(struct cm_core *c, struct cm_id *id)
{
	struct karst_cm_msg mra = cm_msg_of(id, KARST_CM_MRA);

	if (!id->kept && c->mra_service_timeout != CM_NO_MRA) {
		id->mra = c->mra_service_timeout;
		mra.mra.message = KARST_CM_ABOUT_REQ;
		mra.mra.service_timeout = id->mra;
		cm_keep(id, &mra);
	}
	if (id->kept)
		cm_send_again(c, id);
	cm_await_user(c, id);
}

/* Handles a REQ that was received before, or a REQ with the same id from a peer that has
 * restarted. */
static void
req_again(struct cm_core *c, struct cm_id *id, const struct karst_cm_path *seen,
	const struct karst_cm_msg *m)
{
	if (m->tid != id->req_tid) {
		count(c, KARST_CM_CTR_STALE);
		cm_refuse(c, seen, m, KARST_CM_REJ_STALE_CONN, NULL, 0);
		cm_kill_stale(c, id);
		return;
	}
	c->pub.counters.rx_duplicates[KARST_CM_REQ]++;
	switch (id->state) {
	case KARST_CM_REQ_RCVD:
		if (!id->stale) /* otherwise it is given up at once */
			send_mra(c, id);
		break;
	case KARST_CM_REP_SENT:
		cm_send_again(c, id);
		break;
	case KARST_CM_DREQ_SENT:
	case KARST_CM_TIMEWAIT:
		if (id->spent && id->kept) {
			cm_send_again(c, id);
		} else if (id->no_rtu) { /* the REP was lost */
			cm_refuse(c, seen, m, KARST_CM_REJ_CONSUMER_DEFINED, NULL, 0);
			cm_id_unhash_qpn(id); /* the peer has no connection of its queue pair */
		}
		break;
	default:
		break; /* it was answered */
	}
}

static void
take_path(struct cm_id *id, const struct karst_cm_path *seen, const struct karst_cm_req *req)
{
	id->path = *seen;
	id->path.flow_label = req->primary.flow_label;
	id->path.pkey = req->pkey;
	id->path.tclass = req->primary.tclass;
	id->path.hop_limit = req->primary.hop_limit;
	id->path.sl = req->primary.sl;
	id->path.mtu = req->mtu;
	id->path.rate = req->primary.rate;
	id->path.ack_timeout = req->primary.ack_timeout;
}

static void
announce_req(struct cm_core *c, const struct cm_id *id, const struct cm_id *listener,
	const struct karst_cm_msg *m)
{
	struct karst_cm_ev ev = cm_event(id, KARST_CM_EV_REQ, m);
	struct karst_cm_path alternate;

	if (id->alternate == CM_ALTERNATE_OFFERED) {
		cm_alternate_take(&id->path, &m->req.alternate, &alternate);
		ev.remote.alternate = &alternate;
	}
	ev.listen_user = listener->user;
	ev.remote.qp_type = id->qp_type;
	ev.remote.flow_control = m->req.flow_control;
	ev.remote.srq = m->req.srq;
	ev.remote.responder_resources = m->req.initiator_depth;
	ev.remote.initiator_depth = m->req.responder_resources;
	ev.remote.retry_count = m->req.retry_count;
	ev.remote.rnr_retry_count = m->req.rnr_retry_count;
	ev.remote.qpn = m->req.qpn;
	ev.remote.psn = m->req.psn;
	ev.remote.qkey = m->req.qkey;
	ev.remote.ece = m->req.ece;
	cm_notify(c, id, &ev);
}

/* C4: an invalid alternate path is no reason to refuse the connection, and is not reported. */
static enum cm_alternate
get_alternate(const struct cm_id *id, const struct karst_cm_req *req)
{
	static const uint8_t no_gid[16];
	struct karst_cm_path path;

	if (same_ip(req->alternate.local_gid, no_gid) && same_ip(req->alternate.remote_gid, no_gid))
		return CM_ALTERNATE_NONE;
	return cm_alternate_take(&id->path, &req->alternate, &path) ? CM_ALTERNATE_OFFERED
								    : CM_ALTERNATE_INVALID;
}

static uint8_t
failover_of(const struct cm_id *id, const struct karst_cm_param *param)
{
	if (id->alternate == CM_ALTERNATE_INVALID)
		return KARST_CM_FAILOVER_REJECTED;
	if (id->alternate == CM_ALTERNATE_OFFERED && !param->alternate_taken)
		return KARST_CM_FAILOVER_UNSUPPORTED;
	return KARST_CM_FAILOVER_ACCEPTED;
}

static void
new_connection(struct cm_core *c, const struct cm_id *listener, const struct karst_cm_path *seen,
	const struct karst_cm_msg *m)
{
	struct cm_id *id = cm_id_new(c, KARST_CM_REQ_RCVD, NULL);

	if (id == NULL) {
		count(c, KARST_CM_CTR_TABLE_FULL);
		cm_refuse(c, seen, m, KARST_CM_REJ_NO_RESOURCES, NULL, 0);
		return;
	}
	id->passive = true;
	id->listen_id = listener->id;
	id->service_id = m->req.service_id;
	id->tid = m->tid;
	id->req_tid = m->tid;
	id->remote_id = m->local_id;
	id->remote_guid = m->req.guid;
	id->remote_qpn = m->req.qpn;
	get_transport(&m->req, &id->qp_type);
	take_path(id, seen, &m->req);
	id->alternate = (uint8_t)get_alternate(id, &m->req);
	cm_id_hash_remote(c, id);
	cm_id_hash_qpn(c, id);
	cm_half_open_add(c, id);
	id->retries_left = m->req.max_retries;
	id->peer_timeout_ns =
		cm_peer_timeout_ns(m->req.remote_response_timeout) * (id->retries_left + 1u);
	id->full_wait_ns = cm_peer_timeout_ns(m->req.local_response_timeout);
	cm_await_user(c, id);
	announce_req(c, id, listener, m);
}

void
cm_rx_req(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct cm_id *listener, *old;

	if (m->local_id == 0 || m->req.guid == 0) {
		count(c, KARST_CM_CTR_INVALID); /* an answer could not be addressed */
		return;
	}
	old = cm_id_by_remote(c, seen->remote_ip, m->req.guid, m->local_id);
	if (old != NULL && old->spent && old->req_tid != m->tid) {
		cm_id_unhash(old); /* the peer uses the number for another request now */
		old = NULL;
	}
	if (old != NULL) {
		req_again(c, old, seen, m);
		return;
	}
	if (!check_req(c, seen, m))
		return;
	old = cm_id_by_qpn(c, seen->remote_ip, m->req.guid, m->req.qpn);
	if (old != NULL) {
		count(c, KARST_CM_CTR_STALE);
		cm_refuse(c, seen, m, KARST_CM_REJ_STALE_CONN, NULL, 0);
		cm_kill_stale(c, old);
		return;
	}
	listener = cm_service_find(c, m->req.service_id);
	if (listener != NULL && !cm_make_room(c, seen->remote_ip)) {
		count(c, KARST_CM_CTR_FLOOD);
		return;
	}
	/* looked up again: the user that was told about the oldest may have stopped listening */
	listener = cm_service_find(c, m->req.service_id);
	if (listener == NULL) {
		count(c, KARST_CM_CTR_NO_SERVICE);
		cm_refuse(c, seen, m, KARST_CM_REJ_INVALID_SERVICE_ID, NULL, 0);
		return;
	}
	new_connection(c, listener, seen, m);
}

/* --- accept --- */

int
karst_cm_id_accept(struct karst_cm *cm, uint32_t number, const struct karst_cm_param *param)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_of_user(c, number);
	struct karst_cm_msg m;

	if (id == NULL)
		return -ENOENT;
	if (id->state != KARST_CM_REQ_RCVD || id->stale || !cm_param_valid(param) ||
		param->qp_type != id->qp_type)
		return -EINVAL;
	m = cm_msg_of(id, KARST_CM_REP);
	m.rep.guid = c->guid;
	m.rep.psn = param->psn;
	m.rep.responder_resources = param->responder_resources;
	m.rep.rnr_retry_count = param->rnr_retry_count;
	m.rep.target_ack_delay = c->target_ack_delay;
	m.rep.ece = param->ece;
	m.rep.failover = failover_of(id, param);
	if (id->qp_type == KARST_QPT_XRC_RECV) {
		m.rep.eecn = param->qpn;
		m.rep.srq = true;
	} else {
		m.rep.qpn = param->qpn;
		m.rep.initiator_depth = param->initiator_depth;
		m.rep.flow_control = param->flow_control;
		m.rep.srq = param->srq;
	}
	m.private_data = param->private_data;
	m.private_data_len = param->private_data_len;
	if (cm_keep(id, &m) != 0)
		return -EMSGSIZE;
	id->local_qpn = param->qpn;
	id->state = KARST_CM_REP_SENT;
	cm_send_awaiting(c, id, id->full_wait_ns, id->retries_left);
	return 0;
}

/* --- RTU --- */

static void
passive_establish(struct cm_core *c, struct cm_id *id)
{
	cm_timer_stop(c, id);
	cm_half_open_remove(c, id);
	id->kept = false;
	id->state = KARST_CM_ESTABLISHED;
	count(c, KARST_CM_CTR_ESTABLISHED);
}

void
cm_rx_rtu(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct cm_id *id = cm_rx_find(c, seen, m);
	struct karst_cm_ev ev;

	if (id == NULL)
		return;
	if (id->state == KARST_CM_REP_SENT && !id->stale) {
		passive_establish(c, id);
		ev = cm_event(id, KARST_CM_EV_RTU, m);
		cm_notify(c, id, &ev);
	} else if (id->state == KARST_CM_ESTABLISHED && id->passive) {
		c->pub.counters.rx_duplicates[KARST_CM_RTU]++;
	} else if (id->no_rtu) {
		id->no_rtu = false;
	} else {
		/* the peer takes the connection for established: it has missed the REJ */
		if (id->state == KARST_CM_TIMEWAIT && id->spent && id->kept)
			cm_send_again(c, id);
		count(c, KARST_CM_CTR_STATE);
	}
}

int
karst_cm_id_established(struct karst_cm *cm, uint32_t number)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_of_user(c, number);

	if (id == NULL)
		return -ENOENT;
	if (id->state == KARST_CM_ESTABLISHED)
		return -EALREADY;
	if (id->state != KARST_CM_REP_SENT || id->stale)
		return -EINVAL;
	passive_establish(c, id);
	return 0;
}
