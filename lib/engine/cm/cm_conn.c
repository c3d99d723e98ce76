/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Connections of identifiers: requests of programs to lib/cm, and its events.
 *
 * The PSN in a REQ or REP is the one that the receiver of the message must send first: an
 * identifier sends its own rq_psn, and what it receives is its sq_psn.
 */
#include <errno.h>
#include <sys/socket.h>

#include "cm.h"
#include "port.h"

/* Room for a program's private data after the addresses that the RDMA CM puts in front of it. */
#define REQ_PRIVATE      (KARST_CM_REQ_PRIVATE - KARST_CM_IP_LEN)
#define SIDR_REQ_PRIVATE (KARST_CM_SIDR_REQ_PRIVATE - KARST_CM_IP_LEN)

static bool
is_ud(const struct cm_id *id)
{
	return id->port_space == KARST_RDMACM_PS_UDP;
}

/* --- requests of programs --- */

static int
check_private(char *why, const struct karst_ctl_cm_param *p, uint32_t most)
{
	if (p->private_data_len <= most)
		return 0;
	return karst_ctl_reason(
		why, -EINVAL, "private_data_len %u exceeds %u", p->private_data_len, most);
}

static int
reason_state(char *why, const struct cm_id *id, const char *what)
{
	static const char *const names[] = {"idle", "bound", "resolving its address",
		"address resolved", "route resolved", "connecting or connected", "listening"};

	return karst_ctl_reason(
		why, -EINVAL, "%s: identifier %u is %s", what, id->handle, names[id->state]);
}

static int
cm_fault(char *why, int ret, const char *what)
{
	if (ret == -ENOSPC)
		return karst_ctl_reason(why, ret,
			"%s: the engine's limit of connections is reached (max_cm_ids)", what);
	return karst_ctl_reason(why, ret == -ENOENT || ret == -EMSGSIZE ? -EINVAL : ret,
		"%s: the state of the connection, or a number in the parameters, does not allow it",
		what);
}

/* Limits retries to the field of three bits; programs may ask for more.  rdma_connect(3) of Linux
 * does the same. */
static uint8_t
most_retries(uint8_t wanted)
{
	return (uint8_t)karst_min_u32(wanted, 7);
}

static void
param_of(const struct cm_id *id, const struct karst_ctl_cm_param *p, struct karst_cm_param *out)
{
	*out = (struct karst_cm_param){
		.qp_type = id->qp_type,
		.flow_control = p->flow_control != 0,
		.srq = p->srq != 0,
		.responder_resources = p->responder_resources,
		.initiator_depth = p->initiator_depth,
		.retry_count = most_retries(p->retry_count),
		.rnr_retry_count = most_retries(p->rnr_retry_count),
		.qpn = p->qpn & 0xffffff,
		.psn = id->psn,
		.qkey = p->qkey != 0 ? p->qkey : CM_UDP_QKEY,
		.private_data = p->private_data,
		.private_data_len = p->private_data_len,
	};
}

struct whose_call {
	uint32_t qpn;
	uid_t uid;
};

/* Checks the user of a QP.  An XRC target has several handles, which may belong to different users.
 * A handle without an account matches any user. */
static int
whose_on_lcore(struct eng_lcore *lc, void *arg)
{
	const struct whose_call *call = arg;
	struct karst_core_qp *qp = karst_core_lookup(lc->core, call->qpn);
	const struct eng_qp *first, *q;

	if (qp == NULL)
		return 0;
	q = first = karst_qp_user(qp);
	do {
		if (q->owner->rings.share == NULL ||
			eng_share_is_of(q->owner->rings.share, call->uid))
			return 0;
		q = q->same;
	} while (q != first);
	return -EACCES;
}

/* -EACCES: QP @qpn belongs to another user; -EDEADLK */
static int
ask_whose(struct karst_engine *e, uint32_t qpn, uid_t uid)
{
	struct whose_call call = {.qpn = qpn, .uid = uid};
	struct eng_lcore *lc = lcore_of_qpn(e, qpn);
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	if (lc != NULL)
		ret = eng_mailbox_call(lc, whose_on_lcore, &call);
	eng_ctl_leave(e);
	return ret;
}

/*
 * If a peer gets a request for a queue pair with which it already has a connection, it treats that
 * connection as stale and ends it.  So a program may not name another user's queue pair.  The lcore
 * is asked without the lock; @id cannot go meanwhile, since this is its session's thread.
 */
static int
check_qpn(struct eng_cm *cm, char *why, const struct cm_id *id, uint32_t qpn)
{
	uid_t uid = id->client->uid;
	int ret;

	if (uid == 0 || qpn == 0)
		return 0;
	pthread_mutex_unlock(&cm->lock);
	ret = ask_whose(cm->e, qpn & 0xffffff, uid);
	pthread_mutex_lock(&cm->lock);
	cm->cm->now_ns = engine_now(cm->e);
	if (ret == -EACCES)
		return karst_ctl_reason(
			why, ret, "queue pair 0x%06x is another user's", qpn & 0xffffff);
	return ret;
}

/* Checks that the identifier's own address still exists.  Otherwise nothing would be sent, and the
 * program would not learn that before all retries are over. */
static int
check_own(const struct eng_cm *cm, char *why, const struct cm_id *id, const char *what)
{
	char text[ENG_IP_TEXT];
	uint8_t index;

	if (eng_cm_index(cm->e, id, &index) == 0)
		return 0;
	return karst_ctl_reason(why, -EADDRNOTAVAIL,
		"%s: port %u does not have the identifier's address %s any more", what,
		id->port + 1u, eng_ip_text(id->src.ip, text));
}

int
eng_cm_connect(struct eng_cm *cm, char *why, struct cm_id *id, const struct karst_ctl_cm_param *p,
	const struct karst_ctl_ece *ece)
{
	uint64_t service = karst_cm_service_id(id->port_space, id->dst.port_number);
	struct karst_cm_ip ip = {
		.src_port = id->src.port_number, .ip6 = id->src.family == AF_INET6};
	uint8_t private_data[KARST_CM_SIDR_REQ_PRIVATE] = {0};
	struct karst_cm_param param;
	uint8_t len;
	int ret = is_ud(id) ? 0 : check_qpn(cm, why, id, p->qpn);

	if (ret != 0)
		return ret;
	if (id->state != CM_ID_ROUTE_RESOLVED)
		return reason_state(why, id, "connect");
	ret = check_private(why, p, is_ud(id) ? SIDR_REQ_PRIVATE : REQ_PRIVATE);
	if (ret == 0)
		ret = check_own(cm, why, id, "connect");
	if (ret != 0)
		return ret;
	memcpy(ip.src_ip, id->src.ip, sizeof(ip.src_ip));
	memcpy(ip.dst_ip, id->dst.ip, sizeof(ip.dst_ip));
	karst_cm_ip_build(&ip, private_data);
	memcpy(private_data + KARST_CM_IP_LEN, p->private_data, p->private_data_len);
	len = (uint8_t)(KARST_CM_IP_LEN + p->private_data_len);
	param_of(id, p, &param);
	param.private_data = private_data;
	param.private_data_len = len;
	ret = eng_cm_ece_connect(cm, why, id, ece, &param.ece);
	if (ret != 0)
		return ret;
	if (is_ud(id))
		ret = karst_cm_id_sidr_request(
			cm->cm, &id->path, service, private_data, len, id, &id->cm_id);
	else
		ret = karst_cm_id_connect(cm->cm, &id->path, service, &param, id, &id->cm_id);
	if (ret != 0) {
		eng_cm_answered(id);
		return cm_fault(why, ret, "connect");
	}
	eng_cm_ece_connected(cm, id, &param.ece);
	id->state = CM_ID_CONNECT;
	id->responder_resources = p->responder_resources;
	id->initiator_depth = p->initiator_depth;
	id->retry_count = param.retry_count;
	return 0;
}

static int
accept_request(struct eng_cm *cm, char *why, struct cm_id *id, const struct karst_ctl_cm_param *p,
	const struct karst_ctl_ece *ece)
{
	struct karst_cm_param param;
	int ret =
		check_private(why, p, is_ud(id) ? KARST_CM_SIDR_REP_PRIVATE : KARST_CM_REP_PRIVATE);

	if (ret == 0)
		ret = check_own(cm, why, id, "accept");
	if (ret != 0)
		return ret;
	param_of(id, p, &param);
	param.ece = eng_cm_ece_accept(cm, id, ece);
	if (is_ud(id))
		ret = karst_cm_id_sidr_reply(cm->cm, id->cm_id, KARST_CM_SIDR_SUCCESS, &param);
	else
		ret = karst_cm_id_accept(cm->cm, id->cm_id, &param);
	if (ret != 0)
		return cm_fault(why, ret, "accept");
	eng_cm_ece_accepted(cm, &param.ece);
	id->responder_resources = p->responder_resources;
	id->initiator_depth = p->initiator_depth;
	return 0;
}

int
eng_cm_accept(struct eng_cm *cm, char *why, struct cm_id *id, const struct karst_ctl_cm_param *p,
	const struct karst_ctl_ece *ece)
{
	int ret = p != NULL && !is_ud(id) ? check_qpn(cm, why, id, p->qpn) : 0;

	if (ret != 0)
		return ret;
	if (id->state != CM_ID_CONNECT)
		return reason_state(why, id, "accept");
	if (p != NULL && id->passive)
		return accept_request(cm, why, id, p, ece);
	if (p != NULL || id->passive || is_ud(id))
		return karst_ctl_reason(why, -EINVAL,
			"accept: a request is accepted with parameters, the answer to one (not "
			"UDP's) without");
	ret = karst_cm_id_ready(cm->cm, id->cm_id, NULL, 0);
	if (ret != 0)
		return cm_fault(why, ret, "accept");
	eng_cm_answered(id);
	return 0;
}

int
eng_cm_reject(struct eng_cm *cm, char *why, struct cm_id *id, uint32_t reason,
	const struct karst_ctl_cm_param *p)
{
	struct karst_cm_param param;
	int ret =
		check_private(why, p, is_ud(id) ? KARST_CM_SIDR_REP_PRIVATE : KARST_CM_REJ_PRIVATE);

	if (id->state != CM_ID_CONNECT || (is_ud(id) && !id->passive))
		return reason_state(why, id, "reject");
	if (ret == 0 && reason > UINT16_MAX)
		ret = karst_ctl_reason(why, -EINVAL, "reason %u exceeds %u", reason, UINT16_MAX);
	if (ret != 0)
		return ret;
	param_of(id, p, &param);
	if (is_ud(id))
		ret = karst_cm_id_sidr_reply(cm->cm, id->cm_id, KARST_CM_SIDR_REJECT, &param);
	else
		ret = karst_cm_id_reject(cm->cm, id->cm_id,
			reason != 0 ? (uint16_t)reason : KARST_CM_REJ_CONSUMER_DEFINED, NULL, 0,
			p->private_data, p->private_data_len);
	if (ret != 0)
		return cm_fault(why, ret, "reject");
	eng_cm_answered(id);
	return 0;
}

int
eng_cm_disconnect(struct eng_cm *cm, char *why, struct cm_id *id)
{
	if (id->state != CM_ID_CONNECT || is_ud(id))
		return reason_state(why, id, "disconnect");
	/* If it is already disconnected, the request has succeeded. */
	if (karst_cm_id_disconnect(cm->cm, id->cm_id, NULL, 0) != 0)
		karst_cm_id_disconnect_reply(cm->cm, id->cm_id, NULL, 0);
	return 0;
}

int
eng_cm_established(struct eng_cm *cm, char *why, struct cm_id *id)
{
	int ret;

	if (id->state != CM_ID_CONNECT || is_ud(id))
		return reason_state(why, id, "notify");
	ret = karst_cm_id_established(cm->cm, id->cm_id);
	if (ret == 0)
		eng_cm_event(cm, id, KARST_RDMACM_ESTABLISHED, 0);
	if (ret == -EALREADY)
		return karst_ctl_reason(why, -EISCONN, "notify: the connection is established");
	return ret == 0 ? 0 : cm_fault(why, ret, "notify");
}

/* --- events of lib/cm --- */

static void
put_private(struct cm_event *ev, const void *data, uint32_t len)
{
	len = karst_min_u32(len, KARST_CTL_CM_PRIVATE_DATA);
	if (data != NULL)
		memcpy(ev->rsp.param.private_data, data, len);
	ev->rsp.param.private_data_len = data != NULL ? (uint8_t)len : 0;
}

static void
put_param(struct cm_event *ev, const struct karst_cm_param *p)
{
	struct karst_ctl_cm_param *out = &ev->rsp.param;

	out->responder_resources = p->responder_resources;
	out->initiator_depth = p->initiator_depth;
	out->flow_control = p->flow_control;
	out->retry_count = p->retry_count;
	out->rnr_retry_count = p->rnr_retry_count;
	out->srq = p->srq;
	out->qpn = p->qpn;
	out->qkey = p->qkey;
}

/* Stores the peer's parameters of its queue pair. */
static void
conn_learn(struct cm_id *id, const struct karst_cm_param *p)
{
	id->remote_qpn = p->qpn;
	id->remote_psn = p->psn;
	id->responder_resources = p->responder_resources;
	id->initiator_depth = p->initiator_depth;
	id->rnr_retry_count = p->rnr_retry_count;
	id->has_remote = true;
}

int
eng_cm_ah(const struct karst_engine *e, const struct cm_id *id, const uint8_t dst_ip[16],
	struct karst_ctl_ah_attr *ah)
{
	uint8_t index = KARST_ENGINE_MAX_ADDRS;
	int ret = eng_cm_index(e, id, &index);

	*ah = (struct karst_ctl_ah_attr){
		.flow_label = id->path.flow_label,
		.port_num = (uint8_t)(id->port + 1),
		.sgid_index = index,
		.hop_limit = id->path.hop_limit,
		.traffic_class = id->path.tclass,
		.sl = id->path.sl,
	};
	memcpy(ah->dgid, dst_ip, sizeof(ah->dgid));
	return ret;
}

/* --- requests --- */

/* The path MTU of the port of a request, as enum ibv_mtu. */
static uint8_t
mtu_of_port(const struct eng_cm *cm, const struct karst_cm_ev *ev)
{
	struct karst_engine_port_info info;

	if (karst_engine_port_info(cm->e, ev->path->port, &info) != 0)
		return 5; /* it has just gone: the program will learn that */
	return info.path_mtu;
}

/* Refuses a request without informing a program.  Nothing is kept: a host could fill the table with
 * such requests.  So a repetition is judged again, and is reported if there is room by then.  A
 * peer that has got the rejection of the first one answers what the program accepts with a REJ. */
static void
conn_refuse(struct eng_cm *cm, const struct karst_cm_ev *ev, uint16_t reason)
{
	uint8_t mtu = mtu_of_port(cm, ev);

	if (ev->code == KARST_CM_EV_REQ)
		karst_cm_id_refuse(cm->cm, ev->id, reason, &mtu,
			reason == KARST_CM_REJ_INVALID_MTU ? sizeof(mtu) : 0);
	else
		karst_cm_id_sidr_refuse(cm->cm, ev->id,
			reason == KARST_CM_REJ_INVALID_SERVICE_ID ? KARST_CM_SIDR_UNSUPPORTED
								  : KARST_CM_SIDR_REJECT);
}

/* Type of the queue pair that a request is for. */
static uint8_t
type_of(const struct karst_cm_ev *ev)
{
	if (ev->code == KARST_CM_EV_SIDR_REQ)
		return KARST_QPT_UD;
	return ev->remote.qp_type == KARST_QPT_XRC_SEND ? KARST_QPT_XRC_RECV : ev->remote.qp_type;
}

static struct karst_ctl_cm_addr
addr_of(const uint8_t ip[16], uint16_t number, bool ip6)
{
	struct karst_ctl_cm_addr a = {.family = ip6 ? AF_INET6 : AF_INET, .port_number = number};

	memcpy(a.ip, ip, sizeof(a.ip));
	return a;
}

/* The identifier that gets the request, or NULL and the reason. */
static struct cm_id *
find_listener(struct eng_cm *cm, const struct karst_cm_ev *ev, const struct karst_cm_ip *ip,
	uint16_t *why)
{
	const struct cm_service *service = ev->listen_user;
	struct cm_id *l = eng_cm_listener(cm, service, ip, ev->path->port);

	*why = KARST_CM_REJ_INVALID_SERVICE_ID;
	if (l == NULL ||
		(ev->code == KARST_CM_EV_SIDR_REQ) != (service->port_space == KARST_RDMACM_PS_UDP))
		return NULL;
	*why = KARST_CM_REJ_INVALID_TRANSPORT_TYPE;
	if (type_of(ev) != l->qp_type &&
		!(type_of(ev) == KARST_QPT_XRC_RECV && l->qp_type == KARST_QPT_XRC_SEND))
		return NULL;
	*why = KARST_CM_REJ_INVALID_MTU;
	if (ev->path->mtu > mtu_of_port(cm, ev))
		return NULL;
	*why = KARST_CM_REJ_NO_RESOURCES;
	if (eng_cm_backlog_room(cm, l, ev->path->remote_ip))
		return l;
	cm->stats.backlog_full++;
	return NULL;
}

/* Creates the identifier of a request to @l. */
static struct cm_id *
make_conn(struct eng_cm *cm, const struct karst_cm_ev *ev, const struct karst_cm_ip *ip,
	struct cm_id *l)
{
	struct cm_id *id;
	uint8_t index;

	if (eng_cm_id_new(cm, l->client, l->channel, &id) != 0) {
		cm->stats.limit_reached++;
		return NULL;
	}
	id->passive = true;
	id->state = CM_ID_CONNECT;
	id->port_space = l->port_space;
	id->qp_type = type_of(ev);
	id->tos = l->tos;
	id->tos_set = l->tos_set;
	id->timeout = l->timeout;
	id->timeout_set = l->timeout_set;
	id->src = addr_of(ip->dst_ip, l->src.port_number, ip->ip6);
	id->dst = addr_of(ip->src_ip, ip->src_port, ip->ip6);
	eng_cm_set_scope(&id->src, ev->path->port);
	eng_cm_set_scope(&id->dst, ev->path->port);
	id->path = *ev->path;
	if (id->tos_set)
		id->path.tclass = id->tos;
	/* 0 means without a limit: the queue pair would never give up a peer that is gone */
	if (id->path.ack_timeout == 0)
		id->path.ack_timeout = CM_ACK_TIMEOUT;
	id->port = ev->path->port;
	id->has_port = eng_cm_find_port(cm->e, ip->dst_ip, &id->port, &index) == 0;
	conn_learn(id, &ev->remote);
	id->retry_count = ev->remote.retry_count;
	return id;
}

static void
on_request(struct eng_cm *cm, const struct karst_cm_ev *ev)
{
	const uint8_t *data = ev->remote.private_data;
	uint16_t why = KARST_CM_REJ_CONSUMER_DEFINED;
	struct cm_id *l, *id;
	struct karst_cm_ip ip;
	struct cm_event *out;

	/* An address or family other than the packet's would select another listener, or would be
	 * reported to the program as that of the peer. */
	if (karst_cm_ip_parse(data, ev->remote.private_data_len, &ip) != 0 ||
		ip.ip6 == karst_engine_ip_is_ip4(ev->path->local_ip) ||
		memcmp(ip.dst_ip, ev->path->local_ip, sizeof(ip.dst_ip)) != 0 ||
		memcmp(ip.src_ip, ev->path->remote_ip, sizeof(ip.src_ip)) != 0) {
		conn_refuse(cm, ev, why);
		return;
	}
	l = find_listener(cm, ev, &ip, &why);
	id = l != NULL ? make_conn(cm, ev, &ip, l) : NULL;
	out = id != NULL && eng_cm_backlog_take(cm, l, id) == 0
		? eng_cm_event(cm, l, KARST_RDMACM_CONNECT_REQUEST, 0)
		: NULL;
	if (out == NULL) {
		if (id != NULL)
			eng_cm_id_free(cm, id);
		conn_refuse(cm, ev, why);
		return;
	}
	id->cm_id = ev->id;
	karst_cm_id_set_user(cm->cm, ev->id, id);
	id->request = out;
	out->conn = id;
	eng_cm_ece_request(cm, id, &ev->remote.ece, out);
	put_param(out, &ev->remote);
	put_private(out, data + KARST_CM_IP_LEN, ev->remote.private_data_len - KARST_CM_IP_LEN);
}

/* The peer has withdrawn a request, or does not wait for its answer any more.  @return whether the
 * program has not been told of the request, and so need not be told of this. */
static bool
request_ends(struct eng_cm *cm, struct cm_id *id)
{
	if (!id->passive || id->told)
		return false;
	eng_cm_request_drop(cm, id);
	return true;
}

/* --- answers --- */

static void
on_rep(struct eng_cm *cm, struct cm_id *id, const struct karst_cm_ev *ev)
{
	struct cm_event *out;

	conn_learn(id, &ev->remote);
	id->ack_delay = ev->target_ack_delay;
	out = eng_cm_event(cm, id, KARST_RDMACM_CONNECT_RESPONSE, 0);
	if (out == NULL)
		return;
	eng_cm_ece_response(cm, id, &ev->remote.ece, out);
	put_param(out, &ev->remote);
	put_private(out, ev->remote.private_data, ev->remote.private_data_len);
}

static void
on_sidr_rep(struct eng_cm *cm, struct cm_id *id, const struct karst_cm_ev *ev)
{
	struct cm_event *out = eng_cm_event(cm, id,
		ev->reason == KARST_CM_SIDR_SUCCESS ? KARST_RDMACM_ESTABLISHED
						    : KARST_RDMACM_UNREACHABLE,
		ev->reason);

	if (out == NULL)
		return;
	put_private(out, ev->remote.private_data, ev->remote.private_data_len);
	if (ev->reason != KARST_CM_SIDR_SUCCESS)
		return;
	out->rsp.ud_qpn = ev->remote.qpn;
	out->rsp.ud_qkey = ev->remote.qkey;
	/* if our address was removed meanwhile, the program learns that when it uses this */
	(void)eng_cm_ah(cm->e, id, id->dst.ip, &out->rsp.ah);
}

static void
on_event(void *user, const struct karst_cm_ev *ev)
{
	struct eng_cm *cm = user;
	struct cm_id *id = ev->user;
	struct cm_event *out;

	switch (ev->code) {
	case KARST_CM_EV_REQ:
	case KARST_CM_EV_SIDR_REQ:
		on_request(cm, ev);
		break;
	case KARST_CM_EV_REP:
		on_rep(cm, id, ev);
		break;
	case KARST_CM_EV_SIDR_REP:
		eng_cm_answered(id);
		on_sidr_rep(cm, id, ev);
		break;
	case KARST_CM_EV_RTU:
		eng_cm_answered(id);
		/* its private data are not passed on: a peer's program sends private data with the
		 * request */
		eng_cm_event(cm, id, KARST_RDMACM_ESTABLISHED, 0);
		break;
	case KARST_CM_EV_REJ:
		if (request_ends(cm, id))
			break;
		eng_cm_answered(id);
		out = eng_cm_event(cm, id, KARST_RDMACM_REJECTED, ev->reason);
		if (out != NULL)
			put_private(out, ev->remote.private_data, ev->remote.private_data_len);
		break;
	case KARST_CM_EV_REQ_ERROR:
	case KARST_CM_EV_REP_ERROR:
	case KARST_CM_EV_SIDR_ERROR:
		if (request_ends(cm, id))
			break;
		eng_cm_unanswered(cm, id);
		eng_cm_event(cm, id, KARST_RDMACM_UNREACHABLE, -ETIMEDOUT);
		break;
	case KARST_CM_EV_DREQ:
	case KARST_CM_EV_DREP:
	case KARST_CM_EV_DREQ_ERROR:
		eng_cm_answered(id); /* a DREQ, instead of our RTU */
		eng_cm_event(cm, id, KARST_RDMACM_DISCONNECTED,
			ev->code == KARST_CM_EV_DREQ_ERROR ? -ETIMEDOUT : 0);
		break;
	case KARST_CM_EV_TIMEWAIT_EXIT:
		eng_cm_event(cm, id, KARST_RDMACM_TIMEWAIT_EXIT, 0);
		break;
	case KARST_CM_EV_LAP:
		/* C4: programs of the RDMA CM cannot be asked, and the engine does not modify their
		 * queue pairs */
		karst_cm_id_apr(cm->cm, ev->id, KARST_CM_APR_UNSUPPORTED, NULL, 0, NULL, 0);
		break;
	case KARST_CM_EV_APR:
	case KARST_CM_EV_LAP_ERROR: /* of a LAP, which this engine never sends */
	case KARST_CM_EV_MRA:
		/* lib/cm extends its timeout; nothing else to do */
		break;
	}
}

static void
on_send(void *user, const struct karst_cm_path *path, const uint8_t *mad)
{
	eng_cm_path_send(user, path, mad);
}

static bool
may_ask(void *user, void *id_user)
{
	return eng_cm_ask(user, id_user);
}

const struct karst_cm_ops eng_cm_ops = {.send = on_send, .event = on_event, .may_ask = may_ask};
