/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The active side: sends REQ, receives REP, sends RTU (C1, C2).
 */
#include "cm_priv.h"

/* --- connect --- */

/* Sets the transport of the queue pair in a REQ; false if there is none for it. */
static bool
put_transport(uint8_t qp_type, struct karst_cm_req *req)
{
	switch (qp_type) {
	case KARST_QPT_RC:
		req->transport = KARST_CM_TRANSPORT_RC;
		return true;
	case KARST_QPT_UC:
		req->transport = KARST_CM_TRANSPORT_UC;
		return true;
	case KARST_QPT_XRC_SEND:
		req->transport = KARST_CM_TRANSPORT_EXTENDED;
		req->extended_transport = KARST_CM_EXTENDED_XRC;
		return true;
	default:
		return false;
	}
}

void
cm_put_wire_path(const struct karst_cm_path *path, struct karst_cm_wire_path *wire)
{
	memcpy(wire->local_gid, path->local_ip, 16);
	memcpy(wire->remote_gid, path->remote_ip, 16);
	/* there are no LIDs on Ethernet: this is the permissive one */
	wire->local_lid = 0xffff;
	wire->remote_lid = 0xffff;
	wire->flow_label = path->flow_label;
	wire->rate = path->rate;
	wire->tclass = path->tclass;
	wire->hop_limit = path->hop_limit;
	wire->sl = path->sl;
	wire->ack_timeout = path->ack_timeout;
	wire->subnet_local = path->hop_limit <= 1;
}

static void
build_req(const struct cm_core *c, const struct cm_id *id, const struct karst_cm_param *param,
	struct karst_cm_req *req)
{
	req->service_id = id->service_id;
	req->guid = c->guid;
	req->qpn = param->qpn;
	req->psn = param->psn;
	req->pkey = id->path.pkey;
	req->mtu = id->path.mtu;
	req->initiator_depth = param->initiator_depth;
	req->flow_control = param->flow_control;
	req->remote_response_timeout = c->response_timeout;
	req->local_response_timeout = c->response_timeout;
	req->max_retries = c->max_retries;
	req->ece = param->ece;
	cm_put_wire_path(&id->path, &req->primary);
	if (param->alternate != NULL)
		cm_put_wire_path(param->alternate, &req->alternate);
	if (param->qp_type == KARST_QPT_XRC_SEND)
		return; /* an initiator has no receive side */
	req->responder_resources = param->responder_resources;
	req->retry_count = param->retry_count;
	req->rnr_retry_count = param->rnr_retry_count;
	req->srq = param->srq;
}

int
karst_cm_id_connect(struct karst_cm *cm, const struct karst_cm_path *path, uint64_t service_id,
	const struct karst_cm_param *param, void *user, uint32_t *number)
{
	struct cm_core *c = core_of(cm);
	struct karst_cm_msg m;
	struct cm_id *id;

	if (!cm_path_valid(path) || !cm_param_valid(param) ||
		!put_transport(param->qp_type, &(struct karst_cm_req){0}) ||
		(param->alternate != NULL && !cm_alternate_valid(param->alternate)))
		return -EINVAL;
	if (param->private_data_len > KARST_CM_REQ_PRIVATE)
		return -EMSGSIZE;
	id = cm_id_new(c, KARST_CM_REQ_SENT, user);
	if (id == NULL)
		return -ENOSPC;
	id->path = *path;
	id->qp_type = param->qp_type;
	id->alternate = param->alternate != NULL ? CM_ALTERNATE_OFFERED : CM_ALTERNATE_NONE;
	id->service_id = service_id;
	id->local_qpn = param->qpn;
	id->peer_timeout_ns = cm_local_timeout_ns(c);
	id->tid = cm_tid(c, id);
	m = cm_msg_of(id, KARST_CM_REQ);
	put_transport(param->qp_type, &m.req);
	build_req(c, id, param, &m.req);
	m.private_data = param->private_data;
	m.private_data_len = param->private_data_len;
	cm_keep(id, &m);
	cm_send_awaiting(c, id, exponent_ns(c->response_timeout), c->max_retries);
	*number = id->id;
	return 0;
}

/* --- REP --- */

/* A REP for a connection that has received one before. */
static void
rep_again(struct cm_core *c, struct cm_id *id, const struct karst_cm_path *seen,
	const struct karst_cm_msg *m)
{
	switch (id->state) {
	case KARST_CM_REP_RCVD: /* answered with the MRA again, if one was sent */
	case KARST_CM_ESTABLISHED:
		c->pub.counters.rx_duplicates[KARST_CM_REP]++;
		if (id->kept && !id->passive)
			cm_send_again(c, id);
		return;
	case KARST_CM_TIMEWAIT:
		if (id->spent && id->kept) { /* otherwise it was the peer that refused */
			c->pub.counters.rx_duplicates[KARST_CM_REP]++;
			cm_send_again(c, id);
			return;
		}
		break;
	case KARST_CM_IDLE: /* given up; tells the peer, so that it does not wait for an RTU */
		cm_refuse(c, seen, m, KARST_CM_REJ_INVALID_COMM_ID, NULL, 0);
		break;
	default:
		break;
	}
	count(c, KARST_CM_CTR_STATE);
}

static void
accept_rep(struct cm_core *c, struct cm_id *id, const struct karst_cm_msg *m)
{
	struct karst_cm_ev ev;

	cm_timer_stop(c, id);
	id->kept = false;
	id->state = KARST_CM_REP_RCVD;
	cm_id_hash_remote(c, id);
	cm_id_hash_qpn(c, id);
	ev = cm_event(id, KARST_CM_EV_REP, m);
	ev.remote.qp_type = id->qp_type;
	ev.remote.flow_control = m->rep.flow_control;
	ev.remote.srq = m->rep.srq;
	ev.remote.responder_resources = m->rep.initiator_depth;
	ev.remote.initiator_depth = m->rep.responder_resources;
	ev.remote.rnr_retry_count = m->rep.rnr_retry_count;
	ev.remote.qpn = id->remote_qpn;
	ev.remote.psn = m->rep.psn;
	ev.remote.qkey = m->rep.qkey;
	ev.remote.ece = m->rep.ece;
	ev.remote.alternate_taken = id->alternate == CM_ALTERNATE_OFFERED &&
		m->rep.failover == KARST_CM_FAILOVER_ACCEPTED;
	ev.target_ack_delay = m->rep.target_ack_delay;
	cm_notify(c, id, &ev);
}

/* The peer's queue pair belongs to a connection that still exists here. */
static void
refuse_stale_rep(struct cm_core *c, struct cm_id *id, struct cm_id *old,
	const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct karst_cm_ev ev;

	count(c, KARST_CM_CTR_STALE);
	cm_refuse(c, seen, m, KARST_CM_REJ_STALE_CONN, NULL, 0);
	cm_kill_stale(c, old);
	cm_idle(c, id);
	ev = cm_event(id, KARST_CM_EV_REJ, NULL);
	ev.local = true;
	ev.reason = KARST_CM_REJ_STALE_CONN;
	ev.message = KARST_CM_ABOUT_REP;
	cm_notify(c, id, &ev);
}

void
cm_rx_rep(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct cm_id *id = cm_rx_find(c, seen, m);
	struct cm_id *old;
	uint32_t qpn;

	if (id == NULL) {
		if (cm_id_find(c, m->remote_id) == NULL)
			cm_refuse(c, seen, m, KARST_CM_REJ_INVALID_COMM_ID, NULL, 0);
		return;
	}
	if (id->state != KARST_CM_REQ_SENT) {
		rep_again(c, id, seen, m);
		return;
	}
	if (m->tid != id->tid) {
		count(c, KARST_CM_CTR_FORGED);
		return;
	}
	/* the field of end-to-end contexts carries the target QP of an XRC connection */
	qpn = id->qp_type == KARST_QPT_XRC_SEND ? m->rep.eecn : m->rep.qpn;
	if (qpn == 0 || m->local_id == 0) {
		count(c, KARST_CM_CTR_INVALID);
		return;
	}
	old = cm_id_by_qpn(c, seen->remote_ip, m->rep.guid, qpn);
	if (old != NULL) {
		refuse_stale_rep(c, id, old, seen, m);
		return;
	}
	id->remote_id = m->local_id;
	id->remote_guid = m->rep.guid;
	id->remote_qpn = qpn;
	accept_rep(c, id, m);
}

/* --- RTU --- */

int
karst_cm_id_ready(struct karst_cm *cm, uint32_t number, const void *private_data, uint8_t len)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_of_user(c, number);
	struct karst_cm_msg m;

	if (id == NULL)
		return -ENOENT;
	if (id->state != KARST_CM_REP_RCVD || id->stale)
		return -EINVAL;
	m = cm_msg_of(id, KARST_CM_RTU);
	m.private_data = private_data;
	m.private_data_len = len;
	if (cm_keep(id, &m) != 0)
		return -EMSGSIZE;
	id->state = KARST_CM_ESTABLISHED;
	count(c, KARST_CM_CTR_ESTABLISHED);
	cm_send_again(c, id);
	return 0;
}
