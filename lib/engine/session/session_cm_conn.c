/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Messages of connection management about connections (see cm_conn.c), and the attributes that
 * queue pairs need for them.
 */
#include <errno.h>

#include "port.h"
#include "session_cm.h"

/* --- connections --- */

static int
connect_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_connect_req *req = c->body;

	return eng_cm_connect(cm, c->why, id, &req->param, &req->ece);
}

int
eng_session_cm_connect(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_connect_req *req = c->body;

	return eng_cm_with_id(s, c, req->id, connect_id);
}

static int
accept_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_accept_req *req = c->body;
	bool with = (req->flags & KARST_CTL_CM_ACCEPT_PARAM) != 0;
	int ret;

	if ((req->flags & ~KARST_CTL_CM_ACCEPT_PARAM) != 0)
		return reason(c, -EINVAL, "flags 0x%x has unknown bits; known are 0x%x", req->flags,
			KARST_CTL_CM_ACCEPT_PARAM);
	ret = eng_cm_accept(cm, c->why, id, with ? &req->param : NULL, &req->ece);
	if (ret == 0 && id->passive) {
		id->uid = req->uid;
		id->named = true;
	}
	return ret;
}

int
eng_session_cm_accept(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_accept_req *req = c->body;

	return eng_cm_with_id(s, c, req->id, accept_id);
}

static int
reject_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_reject_req *req = c->body;

	return eng_cm_reject(cm, c->why, id, req->reason, &req->param);
}

int
eng_session_cm_reject(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_reject_req *req = c->body;

	return eng_cm_with_id(s, c, req->id, reject_id);
}

static int
disconnect_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	return eng_cm_disconnect(cm, c->why, id);
}

int
eng_session_cm_disconnect(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_disconnect_req *req = c->body;

	return eng_cm_with_id(s, c, req->id, disconnect_id);
}

static int
notify_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_notify_req *req = c->body;

	if (req->event != KARST_EVENT_COMM_EST)
		return reason(c, -EINVAL, "notify: event %u: must be %u (COMM_EST)", req->event,
			KARST_EVENT_COMM_EST);
	return eng_cm_established(cm, c->why, id);
}

int
eng_session_cm_notify(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_notify_req *req = c->body;

	return eng_cm_with_id(s, c, req->id, notify_id);
}

/* --- attributes of queue pairs --- */

static void
attr_init(const struct cm_id *id, struct karst_ctl_cm_init_qp_attr_rsp *rsp)
{
	rsp->mask = KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT;
	rsp->attr.qp_state = KARST_QPS_INIT;
	rsp->attr.port_num = (uint8_t)(id->port + 1);
	if (id->qp_type == KARST_QPT_UD) {
		rsp->mask |= KARST_QP_QKEY;
		rsp->attr.qkey = CM_UDP_QKEY;
		return;
	}
	rsp->mask |= KARST_QP_ACCESS_FLAGS;
	if (id->state != CM_ID_CONNECT)
		return;
	rsp->attr.access_flags = KARST_ACCESS_REMOTE_WRITE;
	if (id->responder_resources != 0 && id->qp_type != KARST_QPT_UC)
		rsp->attr.access_flags = KARST_ACCESS_REMOTE;
}

/* -EADDRNOTAVAIL */
static int
attr_rtr(const struct karst_engine *e, struct session_call *c, const struct cm_id *id)
{
	struct karst_ctl_cm_init_qp_attr_rsp *rsp = c->rsp;
	char text[ENG_IP_TEXT];

	if (eng_cm_ah(e, id, id->path.remote_ip, &rsp->attr.ah) != 0)
		return reason(c, -EADDRNOTAVAIL,
			"init_qp_attr: port %u does not have the identifier's address %s any more",
			id->port + 1u, eng_ip_text(id->src.ip, text));
	rsp->mask = KARST_QP_STATE | KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN |
		KARST_QP_RQ_PSN;
	rsp->attr.qp_state = KARST_QPS_RTR;
	rsp->attr.path_mtu = id->path.mtu;
	rsp->attr.dest_qpn = id->remote_qpn;
	rsp->attr.rq_psn = id->psn;
	if (id->qp_type != KARST_QPT_RC && id->qp_type != KARST_QPT_XRC_RECV)
		return 0;
	rsp->mask |= KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER;
	rsp->attr.max_dest_rd_atomic = id->responder_resources;
	return 0;
}

/* At most so much is taken from what a peer says: 8.6 s.  Otherwise it could say "never" (T134). */
#define MOST_OF_PEERS 21u

/* The exponent of the local ACK timeout, which covers the way there and back, and the time that the
 * peer takes to acknowledge.  As in Linux, the sum of the two is rounded up to the next power of 2
 * if the smaller one is at least half of the larger one, else down. */
static uint8_t
ack_timeout_of(const struct cm_id *id)
{
	uint8_t way = id->path.ack_timeout, delay = id->ack_delay;
	uint8_t larger = way > delay ? way : delay, smaller = way > delay ? delay : way;

	if (delay != 0 && smaller + 1 >= larger)
		larger++;
	return (uint8_t)karst_min_u32(larger, MOST_OF_PEERS);
}

static void
attr_rts(const struct cm_id *id, struct karst_ctl_cm_init_qp_attr_rsp *rsp)
{
	rsp->mask = KARST_QP_STATE | KARST_QP_SQ_PSN;
	rsp->attr.qp_state = KARST_QPS_RTS;
	rsp->attr.sq_psn = id->remote_psn;
	if (id->qp_type == KARST_QPT_UC)
		return;
	rsp->mask |= KARST_QP_TIMEOUT;
	rsp->attr.timeout = id->timeout_set ? id->timeout : ack_timeout_of(id);
	if (id->qp_type == KARST_QPT_XRC_RECV)
		return;
	rsp->mask |= KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY | KARST_QP_MAX_QP_RD_ATOMIC;
	rsp->attr.retry_cnt = id->retry_count;
	rsp->attr.rnr_retry = id->rnr_retry_count;
	rsp->attr.max_rd_atomic = id->initiator_depth;
}

static int
init_qp_attr(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_init_qp_attr_req *req = c->body;
	struct karst_ctl_cm_init_qp_attr_rsp *rsp = c->rsp;

	if (!id->has_port)
		return eng_cm_state_fault(c, id, "init_qp_attr", "bound to the address of a port");
	if (req->state == KARST_QPS_INIT) {
		attr_init(id, rsp);
		return 0;
	}
	if ((req->state != KARST_QPS_RTR && req->state != KARST_QPS_RTS) ||
		id->qp_type == KARST_QPT_UD)
		return reason(c, -EINVAL,
			"init_qp_attr: state %u: must be INIT, RTR or RTS, for UD INIT",
			req->state);
	if (!id->has_remote)
		return eng_cm_state_fault(
			c, id, "init_qp_attr", "told of the peer's queue pair yet");
	if (req->state == KARST_QPS_RTR)
		return attr_rtr(cm->e, c, id);
	attr_rts(id, rsp);
	return 0;
}

int
eng_session_cm_init_qp_attr(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_init_qp_attr_req *req = c->body;

	return eng_cm_with_id(s, c, req->id, init_qp_attr);
}
