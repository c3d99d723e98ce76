/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Sends messages and repeats them.
 *
 * An id keeps the last message that may have to be sent again, in its wire format: a request that
 * waits for its answer, or an answer that the peer may not have received.  The wait for an answer
 * begins short and doubles up to the agreed time, because with a short path a missing answer more
 * likely means a lost datagram.  Only after the full wait that follows the last retry is the peer
 * given up.
 */
#include "cm_priv.h"

#include "karst_hdr.h"

static void
send_transmit(struct cm_core *c, const struct karst_cm_path *path, const uint8_t *mad)
{
	c->pub.counters.tx[karst_cm_mad_kind(mad)]++;
	c->ops->send(c->user, path, mad);
}

void
cm_send(struct cm_core *c, const struct karst_cm_path *path, const struct karst_cm_msg *m)
{
	uint8_t mad[KARST_CM_MAD_LEN];
	int ret = karst_cm_msg_build(m, mad);

	assert(ret == 0);
	(void)ret;
	send_transmit(c, path, mad);
}

void
cm_send_again(struct cm_core *c, const struct cm_id *id)
{
	assert(id->kept);
	send_transmit(c, &id->path, id->mad);
}

void
cm_send_lap(struct cm_core *c, const struct cm_id *id)
{
	send_transmit(c, &id->path, id->lap_mad);
}

/* Returns the message that waits for an answer. */
static const uint8_t *
send_awaited(const struct cm_id *id)
{
	if (id->state == KARST_CM_ESTABLISHED && id->lap == CM_LAP_SENT)
		return id->lap_mad;
	assert(id->kept);
	return id->mad;
}

int
cm_keep(struct cm_id *id, const struct karst_cm_msg *m)
{
	int ret = karst_cm_msg_build(m, id->mad);

	if (ret == 0)
		id->kept = true;
	return ret;
}

void
cm_timer_set(struct cm_core *c, struct cm_id *id, uint64_t ns_from_now)
{
	/* an empty wheel is not advanced, possibly for longer than its range */
	if (c->wheel.count == 0)
		karst_wheel_advance(&c->wheel, c->pub.now_ns, NULL, 0);
	karst_wheel_add(&c->wheel, &id->timer, c->pub.now_ns + ns_from_now);
}

void
cm_timer_stop(struct cm_core *c, struct cm_id *id)
{
	karst_wheel_del(&c->wheel, &id->timer);
}

uint64_t
cm_local_timeout_ns(const struct cm_core *c)
{
	return exponent_ns(c->response_timeout) * (c->max_retries + 1u);
}

uint64_t
cm_peer_timeout_ns(unsigned int exponent)
{
	if (exponent < CM_PEER_EXPONENT_MIN)
		exponent = CM_PEER_EXPONENT_MIN;
	return exponent_ns(exponent < CM_PEER_EXPONENT_MAX ? exponent : CM_PEER_EXPONENT_MAX);
}

uint64_t
cm_mra_timeout_ns(const struct cm_id *id)
{
	if (id->mra == CM_NO_MRA)
		return 0;
	return exponent_ns(id->mra < CM_PEER_TIMEOUT_MAX ? id->mra : CM_PEER_TIMEOUT_MAX);
}

/* After the last retry the wait has the full length, because no other retry follows. */
static void
send_arm(struct cm_core *c, struct cm_id *id)
{
	id->mra_received = false;
	cm_timer_set(c, id, id->retries_left != 0 ? id->wait_ns : id->full_wait_ns);
}

/* @return false: it is a request that must not be sent now. */
static bool
send_request(struct cm_core *c, const struct cm_id *id)
{
	const uint8_t *mad = send_awaited(id);
	enum karst_cm_kind kind = karst_cm_mad_kind(mad);

	if ((kind == KARST_CM_REQ || kind == KARST_CM_SIDR_REQ) && c->ops->may_ask != NULL &&
		!c->ops->may_ask(c->user, id->user))
		return false;
	send_transmit(c, &id->path, mad);
	return true;
}

void
cm_send_awaiting(struct cm_core *c, struct cm_id *id, uint64_t full_ns, unsigned int retries)
{
	(void)send_request(c, id);
	id->full_wait_ns = full_ns;
	id->wait_ns = karst_min_u64(CM_FIRST_RETRY_NS, full_ns);
	id->retries_left = (uint8_t)retries;
	send_arm(c, id);
}

bool
cm_retry(struct cm_core *c, struct cm_id *id)
{
	if (id->retries_left == 0) {
		count(c, KARST_CM_CTR_TIMEOUTS);
		return false;
	}
	id->retries_left--;
	id->wait_ns = karst_min_u64(id->wait_ns * 2, id->full_wait_ns);
	if (send_request(c, id))
		c->pub.counters.tx_retries[karst_cm_mad_kind(send_awaited(id))]++;
	send_arm(c, id);
	return true;
}

struct karst_cm_msg
cm_msg_of(const struct cm_id *id, enum karst_cm_kind kind)
{
	struct karst_cm_msg m = {
		.kind = kind, .tid = id->tid, .local_id = id->id, .remote_id = id->remote_id};

	return m;
}

void
cm_refuse(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m,
	enum karst_cm_rej_reason reason, const void *info, uint8_t info_len)
{
	struct karst_cm_msg rej = {.kind = KARST_CM_REJ,
		.tid = m->tid,
		.local_id = m->remote_id,
		.remote_id = m->local_id,
		.info = info,
		.info_len = info_len};

	rej.rej.reason = (uint16_t)reason;
	rej.rej.message = m->kind == KARST_CM_REQ ? KARST_CM_ABOUT_REQ
		: m->kind == KARST_CM_REP         ? KARST_CM_ABOUT_REP
						  : KARST_CM_ABOUT_OTHER;
	cm_send(c, seen, &rej);
}

void
cm_abandon(struct cm_core *c, struct cm_id *id)
{
	struct karst_cm_msg rej = cm_msg_of(id, KARST_CM_REJ);
	uint8_t guid[8];

	karst_put_be64(guid, c->guid);
	rej.rej.reason = KARST_CM_REJ_TIMEOUT;
	rej.rej.message = KARST_CM_ABOUT_OTHER;
	rej.info = guid;
	rej.info_len = sizeof(guid);
	cm_keep(id, &rej);
	cm_send_again(c, id);
	if (id->passive)
		cm_enter_rejected(c, id);
	else
		cm_idle(c, id);
}

struct karst_cm_ev
cm_event(const struct cm_id *id, enum karst_cm_ev_code code, const struct karst_cm_msg *m)
{
	struct karst_cm_ev ev = {.code = code,
		.id = id->id,
		.user = id->user,
		.listen_id = id->listen_id,
		.service_id = id->service_id,
		.remote_guid = id->remote_guid,
		.path = &id->path};

	if (m == NULL)
		return ev;
	ev.remote.private_data = m->private_data;
	ev.remote.private_data_len = m->private_data_len;
	ev.info = m->info;
	ev.info_len = m->info_len;
	return ev;
}

void
cm_notify(struct cm_core *c, const struct cm_id *id, const struct karst_cm_ev *ev)
{
	if (!id->orphan)
		c->ops->event(c->user, ev);
}

void
cm_notify_code(struct cm_core *c, const struct cm_id *id, enum karst_cm_ev_code code)
{
	struct karst_cm_ev ev = cm_event(id, code, NULL);

	cm_notify(c, id, &ev);
}
