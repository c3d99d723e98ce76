/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Alternate paths (C4): the one that a REQ offers, and another one that is agreed on by LAP and APR
 * while the connection is established.
 *
 * This file only handles the messages.  Whether a queue pair uses a path, and when it migrates to
 * it, is up to the user (rules G).  A path decides where packets will go, and the host there may
 * not have asked for them; so the path must be valid, and must be offered by the peer of the
 * connection.  The user knows whether the address on this side is one of its own.
 *
 *   active   karst_cm_id_lap  LAP ->  <- EV_APR, or EV_LAP_ERROR
 *   passive  EV_LAP, then karst_cm_id_apr  APR ->
 *
 * One exchange at a time: a side whose own LAP is pending refuses the peer's, and both may try
 * again.
 */
#include "cm_priv.h"

#include "karst_prf.h"

/* --- paths --- */

static bool
is_no_address(const uint8_t ip[16])
{
	static const uint8_t none[16], ip4_none[16] = {[10] = 0xff, 0xff};

	return same_ip(ip, none) || same_ip(ip, ip4_none);
}

static bool
is_ip4(const uint8_t ip[16])
{
	static const uint8_t prefix[12] = {[10] = 0xff, 0xff};

	return memcmp(ip, prefix, sizeof(prefix)) == 0;
}

static bool
addresses_valid(const uint8_t local_ip[16], const uint8_t remote_ip[16])
{
	return !is_no_address(local_ip) && !is_no_address(remote_ip) &&
		is_ip4(local_ip) == is_ip4(remote_ip);
}

bool
cm_alternate_valid(const struct karst_cm_path *path)
{
	return cm_path_valid(path) && addresses_valid(path->local_ip, path->remote_ip);
}

bool
cm_alternate_take(const struct karst_cm_path *primary, const struct karst_cm_wire_path *wire,
	struct karst_cm_path *path)
{
	if (!addresses_valid(wire->remote_gid, wire->local_gid))
		return false;
	*path = *primary;
	memcpy(path->local_ip, wire->remote_gid, 16);
	memcpy(path->remote_ip, wire->local_gid, 16);
	path->flow_label = wire->flow_label;
	path->tclass = wire->tclass;
	path->hop_limit = wire->hop_limit;
	path->sl = wire->sl;
	path->rate = wire->rate;
	path->ack_timeout = wire->ack_timeout;
	return true;
}

static bool
is_current(const struct karst_cm_path *path, const struct karst_cm_path *primary)
{
	return same_ip(path->local_ip, primary->local_ip) &&
		same_ip(path->remote_ip, primary->remote_ip) &&
		path->flow_label == primary->flow_label && path->tclass == primary->tclass;
}

/* --- active side --- */

int
karst_cm_id_lap(struct karst_cm *cm, uint32_t number, const struct karst_cm_path *path,
	const void *private_data, uint8_t len)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_of_user(c, number);
	struct karst_cm_msg m;

	if (id == NULL)
		return -ENOENT;
	if (id->state != KARST_CM_ESTABLISHED || id->lap == CM_LAP_SENT || id->lap == CM_LAP_RCVD ||
		!cm_alternate_valid(path))
		return -EINVAL;
	m = cm_msg_of(id, KARST_CM_LAP);
	/* an answer to an earlier LAP does not match this one */
	m.tid = karst_prf(c->tid_key, id->id, id->nlaps + 1);
	m.lap.qpn = id->remote_qpn;
	m.lap.remote_response_timeout = c->response_timeout;
	cm_put_wire_path(path, &m.lap.alternate);
	m.private_data = private_data;
	m.private_data_len = len;
	if (karst_cm_msg_build(&m, id->lap_mad) != 0)
		return -EMSGSIZE;
	id->nlaps++;
	id->lap = CM_LAP_SENT;
	cm_send_awaiting(c, id, exponent_ns(c->response_timeout), c->max_retries);
	return 0;
}

void
cm_lap_expire(struct cm_core *c, struct cm_id *id)
{
	if (cm_retry(c, id))
		return;
	id->lap = CM_LAP_NONE;
	cm_notify_code(c, id, KARST_CM_EV_LAP_ERROR);
}

void
cm_rx_apr(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct cm_id *id = cm_rx_find(c, seen, m);
	struct karst_cm_ev ev;

	if (id == NULL)
		return;
	if (id->state != KARST_CM_ESTABLISHED || id->nlaps == 0) {
		count(c, KARST_CM_CTR_STATE);
		return;
	}
	if (m->tid != karst_prf(c->tid_key, id->id, id->nlaps)) {
		count(c, KARST_CM_CTR_FORGED);
		return;
	}
	if (id->lap != CM_LAP_SENT) {
		c->pub.counters.rx_duplicates[KARST_CM_APR]++;
		return;
	}
	cm_timer_stop(c, id);
	id->lap = CM_LAP_NONE;
	ev = cm_event(id, KARST_CM_EV_APR, m);
	ev.reason = m->apr.status;
	cm_notify(c, id, &ev);
}

/* --- passive side --- */

static void
refuse_lap(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m,
	enum karst_cm_apr_status status)
{
	struct karst_cm_msg apr = {.kind = KARST_CM_APR,
		.tid = m->tid,
		.local_id = m->remote_id,
		.remote_id = m->local_id};

	apr.apr.status = (uint8_t)status;
	cm_send(c, seen, &apr);
}

/* Checks that do not need the user. */
static enum karst_cm_apr_status
check_lap(const struct cm_id *id, const struct karst_cm_msg *m, struct karst_cm_path *path)
{
	if (m->lap.qpn != id->local_qpn)
		return KARST_CM_APR_INVALID_QPN;
	if (!cm_alternate_take(&id->path, &m->lap.alternate, path))
		return KARST_CM_APR_INVALID_GID;
	return is_current(path, &id->path) ? KARST_CM_APR_IS_CURRENT : KARST_CM_APR_LOADED;
}

/* Is it a LAP that was received before?  It is answered again, or waits for the user. */
static bool
lap_again(struct cm_core *c, struct cm_id *id, const struct karst_cm_msg *m)
{
	if ((id->lap != CM_LAP_RCVD && id->lap != CM_LAP_ANSWERED) || m->tid != id->lap_tid)
		return false;
	c->pub.counters.rx_duplicates[KARST_CM_LAP]++;
	if (id->lap == CM_LAP_ANSWERED)
		cm_send_lap(c, id);
	return true;
}

void
cm_rx_lap(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct cm_id *id = cm_rx_find(c, seen, m);
	enum karst_cm_apr_status status;
	struct karst_cm_path path;
	struct karst_cm_ev ev;

	if (id == NULL) {
		refuse_lap(c, seen, m, KARST_CM_APR_INVALID_COMM_ID);
		return;
	}
	if (id->state == KARST_CM_REP_SENT) {
		/* The RTU was lost.  The peer sends it again when the REP is repeated, and the LAP,
		 * too. */
		count(c, KARST_CM_CTR_STATE);
		return;
	}
	if (id->state != KARST_CM_ESTABLISHED) {
		count(c, KARST_CM_CTR_STATE);
		refuse_lap(c, seen, m, KARST_CM_APR_INVALID_COMM_ID);
		return;
	}
	if (lap_again(c, id, m))
		return;
	if (id->lap == CM_LAP_SENT) {
		count(c, KARST_CM_CTR_STATE);
		refuse_lap(c, seen, m, KARST_CM_APR_REJECTED);
		return;
	}
	status = check_lap(id, m, &path);
	if (status != KARST_CM_APR_LOADED) {
		count(c, KARST_CM_CTR_INVALID);
		refuse_lap(c, seen, m, status);
		return;
	}
	/* if an earlier LAP still waits for its answer, the peer has given that one up */
	id->lap = CM_LAP_RCVD;
	id->lap_tid = m->tid;
	ev = cm_event(id, KARST_CM_EV_LAP, m);
	ev.remote.alternate = &path;
	cm_notify(c, id, &ev);
}

int
karst_cm_id_apr(struct karst_cm *cm, uint32_t number, uint8_t status, const void *info,
	uint8_t info_len, const void *private_data, uint8_t len)
{
	struct cm_core *c = core_of(cm);
	struct cm_id *id = cm_id_of_user(c, number);
	struct karst_cm_msg m;

	if (id == NULL)
		return -ENOENT;
	if (id->state != KARST_CM_ESTABLISHED || id->lap != CM_LAP_RCVD)
		return -EINVAL;
	m = cm_msg_of(id, KARST_CM_APR);
	m.tid = id->lap_tid;
	m.apr.status = status;
	m.info = info;
	m.info_len = info_len;
	m.private_data = private_data;
	m.private_data_len = len;
	if (karst_cm_msg_build(&m, id->lap_mad) != 0)
		return -EMSGSIZE;
	id->lap = CM_LAP_ANSWERED;
	cm_send_lap(c, id);
	return 0;
}
