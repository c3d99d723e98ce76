/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Messages of connection management, all under its lock; see cm.h.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cm.h"

#define MAX_BACKLOG     1024u
#define PRIVILEGED_END  1024u
#define ACK_TIMEOUT     16u /* 268 ms, unless an option says otherwise */
#define HOP_LIMIT       64u
#define PKEY_DEFAULT    0xffffu
#define UDP_QKEY        0x01234567u
#define MAX_ACK_TIMEOUT 31u

/* As the numbers of rdma_set_option(). */
enum { OPTION_TOS, OPTION_REUSE_ADDR, OPTION_AF_ONLY, OPTION_ACK_TIMEOUT };

/* --- identifiers by their handles --- */

static struct cm_id *
find_id(struct karst_session *s, struct session_call *c, uint32_t handle)
{
	struct cm_id *id = eng_handles_get(&s->cm_ids, handle);

	/* one that waits with its request is not the program's yet */
	if (id != NULL && (!id->passive || id->told))
		return id;
	say(c, -EINVAL, "identifier %u: this program has none such", handle);
	return NULL;
}

typedef int id_operation(struct eng_cm *cm, struct session_call *c, struct cm_id *id);

static int
with_id(struct karst_session *s, struct session_call *c, uint32_t handle, id_operation *op)
{
	struct eng_cm *cm = eng_cm_enter(s->e);
	struct cm_id *id = find_id(s, c, handle);
	int ret = id != NULL ? op(cm, c, id) : -EINVAL;

	eng_cm_leave(cm);
	return ret;
}

static int
state_fault(struct session_call *c, const struct cm_id *id, const char *what, const char *wanted)
{
	return say(c, -EINVAL, "%s: identifier %u is not %s", what, id->handle, wanted);
}

/* --- channels, events --- */

int
eng_session_cm_create_channel(struct karst_session *s, struct session_call *c)
{
	struct karst_ctl_cm_create_channel_rsp *rsp = c->rsp;
	struct cm_channel *ch = calloc(1, sizeof(*ch));
	struct eng_cm *cm;
	int ret, reader;

	if (ch == NULL)
		return say(c, -ENOMEM, "channel: the engine has no memory");
	ret = eng_stream_open(&ch->stream, &s->lost_events, &reader);
	if (ret != 0) {
		free(ch);
		return say(c, ret, "channel: the engine has no descriptors left (its ulimit -n)");
	}
	ch->session = s;
	cm = eng_cm_enter(s->e);
	ret = eng_session_handle_add(c, &s->cm_channels, ch, "channels of connection management",
		"max_channels", &ch->handle);
	rsp->channel = ch->handle;
	eng_cm_leave(cm);
	if (ret != 0) {
		close(reader);
		eng_stream_close(&ch->stream);
		free(ch);
		return ret;
	}
	c->rsp_fds[c->nrsp_fds++] = reader;
	return 0;
}

static void
free_channel(struct karst_session *s, struct cm_channel *ch)
{
	eng_stream_close(&ch->stream);
	eng_handles_del(&s->cm_channels, ch->handle);
	free(ch);
}

int
eng_session_cm_destroy_channel(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_destroy_channel_req *req = c->body;
	struct eng_cm *cm = eng_cm_enter(s->e);
	struct cm_channel *ch = eng_session_find(c, &s->cm_channels, req->channel, "channel");
	int ret = -EINVAL;

	if (ch != NULL && ch->ids != 0) {
		ret = say(c, -EBUSY, "channel %u: %u identifiers use it", req->channel, ch->ids);
	} else if (ch != NULL) {
		free_channel(s, ch);
		ret = 0;
	}
	eng_cm_leave(cm);
	return ret;
}

/* The program learns of it. */
static void
tell(struct cm_event *ev, struct karst_ctl_cm_get_event_rsp *rsp)
{
	struct cm_id *id = ev->id;

	*rsp = ev->rsp;
	rsp->uid = id->uid;
	rsp->id = id->handle;
	id->reported++;
	if (ev->conn != NULL) {
		rsp->id = ev->conn->handle;
		rsp->listen_id = id->handle;
		ev->conn->told = true;
		id->backlog++;
	} else if (ev->group != NULL) {
		rsp->uid = ev->group->uid;
		rsp->id = ev->group->handle;
		ev->group->reported++;
	}
}

int
eng_session_cm_get_event(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_get_event_req *req = c->body;
	struct karst_ctl_cm_get_event_rsp *rsp = c->rsp;
	struct eng_cm *cm = eng_cm_enter(s->e);
	struct cm_channel *ch = eng_session_find(c, &s->cm_channels, req->channel, "channel");
	bool emptied;
	struct cm_event *ev = ch != NULL ? eng_cm_event_take(ch, &emptied) : NULL;
	int ret = -EINVAL;

	if (ev != NULL) {
		tell(ev, rsp);
		rsp->emptied = emptied;
		ret = 0;
	} else if (ch != NULL) {
		ret = say(c, -EAGAIN, "channel %u: there is no event", req->channel);
	}
	eng_cm_leave(cm);
	free(ev);
	return ret;
}

/* --- life of identifiers --- */

static int
check_kind(struct session_call *c, const struct karst_ctl_cm_create_id_req *req)
{
	bool ud = req->port_space == KARST_RDMACM_PS_UDP;

	if (!ud && req->port_space != KARST_RDMACM_PS_TCP)
		return say(c, -EPROTONOSUPPORT, "port space 0x%04x: 0x%04x (TCP) or 0x%04x (UDP)",
			req->port_space, KARST_RDMACM_PS_TCP, KARST_RDMACM_PS_UDP);
	switch (req->qp_type) {
	case KARST_QPT_RC:
	case KARST_QPT_UC:
	case KARST_QPT_XRC_SEND:
	case KARST_QPT_XRC_RECV:
		if (!ud)
			return 0;
		break;
	case KARST_QPT_UD:
		if (ud)
			return 0;
		break;
	default:
		break;
	}
	return say(c, -EINVAL, "qp_type %u: RC, UC or XRC with the port space TCP, UD with UDP",
		req->qp_type);
}

int
eng_session_cm_create_id(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_create_id_req *req = c->body;
	struct karst_ctl_cm_create_id_rsp *rsp = c->rsp;
	struct eng_cm *cm = eng_cm_enter(s->e);
	struct cm_channel *ch = eng_session_find(c, &s->cm_channels, req->channel, "channel");
	struct cm_id *id;
	int ret = ch != NULL ? check_kind(c, req) : -EINVAL;

	if (ret == 0) {
		ret = eng_cm_id_new(cm, s, ch, &id);
		if (ret != 0)
			say(c, ret,
				"identifiers: the engine has no memory, or this program %u, as many "
				"as it may (max_cm_ids)",
				s->cm_ids.used);
	}
	if (ret == 0) {
		id->uid = req->uid;
		id->port_space = req->port_space;
		id->qp_type = req->qp_type;
		rsp->id = id->handle;
	}
	eng_cm_leave(cm);
	return ret;
}

static int
destroy_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	struct karst_ctl_cm_destroy_id_rsp *rsp = c->rsp;

	rsp->events = id->reported;
	rsp->channel = id->channel->handle;
	rsp->emptied = eng_cm_id_free(cm, id);
	return 0;
}

int
eng_session_cm_destroy_id(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_destroy_id_req *req = c->body;

	return with_id(s, c, req->id, destroy_id);
}

static int
migrate_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_migrate_id_req *req = c->body;
	struct karst_ctl_cm_migrate_id_rsp *rsp = c->rsp;
	struct cm_channel *to =
		eng_session_find(c, &id->session->cm_channels, req->channel, "channel");

	if (to == NULL)
		return -EINVAL;
	rsp->channel = id->channel->handle;
	rsp->events = id->reported;
	if (to == id->channel)
		return 0;
	rsp->emptied = eng_cm_event_move(id, to);
	id->channel->ids--;
	id->channel = to;
	to->ids++;
	return 0;
}

int
eng_session_cm_migrate_id(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_migrate_id_req *req = c->body;

	return with_id(s, c, req->id, migrate_id);
}

/* --- addresses --- */

/* A wildcard of IPv4 as all the others are written. */
static struct karst_ctl_cm_addr
tidy(const struct karst_ctl_cm_addr *a)
{
	struct karst_ctl_cm_addr out = *a;

	if (a->family == AF_INET)
		out.ip[10] = out.ip[11] = 0xff;
	return out;
}

static int
number_fault(struct session_call *c, int ret, const struct karst_ctl_cm_addr *a)
{
	if (a->port_number == 0)
		return say(c, ret, "no port number is free");
	return say(c, ret, "port number %u is in use", a->port_number);
}

/* Gives @id, which has none yet, the address *@src. */
static int
bind_to(struct eng_cm *cm, struct session_call *c, struct cm_id *id,
	const struct karst_ctl_cm_addr *addr)
{
	struct karst_ctl_cm_addr src = tidy(addr);
	char text[ENG_IP_TEXT];
	uint8_t port = 0, index = 0;
	bool any = eng_cm_is_any(&src);
	int ret;

	if (src.port_number != 0 && src.port_number < PRIVILEGED_END && id->session->info.uid != 0)
		return say(c, -EACCES, "port number %u: those below %u are root's", src.port_number,
			PRIVILEGED_END);
	if (!any && eng_cm_find_port(cm->e, src.ip, &port, &index) != 0)
		return say(c, -EADDRNOTAVAIL, "no port of the engine has the address %s",
			eng_ip_text(src.ip, text));
	id->src = src;
	ret = eng_cm_number(cm, id);
	if (ret != 0) {
		memset(&id->src, 0, sizeof(id->src));
		return number_fault(c, ret, addr);
	}
	id->has_port = !any;
	id->port = port;
	id->sgid_index = index;
	id->state = CM_ID_BOUND;
	return 0;
}

static void
unbind(struct eng_cm *cm, struct cm_id *id)
{
	eng_cm_unnumber(cm, id);
	memset(&id->src, 0, sizeof(id->src));
	id->has_port = false;
	id->state = CM_ID_IDLE;
}

static int
bind_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_bind_req *req = c->body;
	int ret = eng_cm_check_addr(c, &req->addr);

	if (ret != 0)
		return ret;
	if (id->state != CM_ID_IDLE)
		return state_fault(c, id, "bind", "idle");
	return bind_to(cm, c, id, &req->addr);
}

int
eng_session_cm_bind(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_bind_req *req = c->body;

	return with_id(s, c, req->id, bind_id);
}

/* Chooses where @id leaves the engine, unless that is known; then looks for the way. */
static int
set_out(struct eng_cm *cm, struct session_call *c, struct cm_id *id, uint32_t timeout_ms,
	const struct karst_ctl_cm_addr *to)
{
	struct karst_ctl_cm_addr dst = tidy(to), src = id->src;
	uint8_t port = id->port, index = id->sgid_index;
	char text[ENG_IP_TEXT];
	int ret;

	if (!id->has_port) {
		ret = eng_cm_choose_port(cm->e, &dst, &port, &index, src.ip);
		if (ret != 0)
			return say(c, ret, "no port of the engine leads to %s",
				eng_ip_text(dst.ip, text));
		src.family = dst.family;
	}
	if (eng_cm_is_any(&dst))
		memcpy(dst.ip, src.ip, sizeof(dst.ip));
	id->src = src;
	id->dst = dst;
	id->port = port;
	id->sgid_index = index;
	id->has_port = true;
	id->until_ns = cm->cm->now_ns + UINT64_C(1000000) * (timeout_ms != 0 ? timeout_ms : 1);
	ret = eng_cm_way_find(cm, id);
	if (ret != 0)
		return say(c, ret, "the engine looks for too many peers at a time");
	id->state = CM_ID_ADDR_QUERY;
	return 0;
}

static int
resolve_addr(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_resolve_addr_req *req = c->body;
	struct karst_ctl_cm_addr any = {.family = req->dst.family}, was;
	bool bound = id->state == CM_ID_BOUND, had_port = id->has_port;
	int ret = eng_cm_check_addr(c, &req->dst);

	if (ret == 0 && req->src.family != 0)
		ret = eng_cm_check_addr(c, &req->src);
	if (ret != 0)
		return ret;
	if (!bound && id->state != CM_ID_IDLE)
		return state_fault(c, id, "resolve_addr", "idle or bound");
	if ((req->src.family != 0 && req->src.family != req->dst.family) ||
		(bound && id->src.family != req->dst.family &&
			!(id->src.family == AF_INET6 && !id->has_port)))
		return say(c, -EINVAL, "source and destination are of different address families");
	if (!bound) {
		ret = bind_to(cm, c, id, req->src.family != 0 ? &req->src : &any);
		if (ret != 0)
			return ret;
	}
	was = id->src;
	ret = set_out(cm, c, id, req->timeout_ms, &req->dst);
	if (ret != 0) {
		id->src = was;
		id->has_port = had_port;
		memset(&id->dst, 0, sizeof(id->dst));
		if (!bound)
			unbind(cm, id);
	}
	return ret;
}

int
eng_session_cm_resolve_addr(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_resolve_addr_req *req = c->body;

	return with_id(s, c, req->id, resolve_addr);
}

/* What a connection's packets have; the same label for the same pair of port numbers. */
static int
make_path(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	struct karst_engine_port_info info;

	if (karst_engine_port_info(cm->e, id->port, &info) != 0)
		return say(c, -ENODEV, "port %u is gone", id->port + 1);
	id->path = (struct karst_cm_path){
		.flow_label = (id->src.port_number * 31u + id->dst.port_number) & 0xfffff,
		.pkey = PKEY_DEFAULT,
		.port = id->port,
		.tclass = id->tos_set ? id->tos : 0,
		.hop_limit = HOP_LIMIT,
		.mtu = info.path_mtu,
		.ack_timeout = id->timeout_set ? id->timeout : ACK_TIMEOUT,
	};
	memcpy(id->path.local_ip, id->src.ip, sizeof(id->path.local_ip));
	memcpy(id->path.remote_ip, id->dst.ip, sizeof(id->path.remote_ip));
	return 0;
}

static int
resolve_route(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	int ret;

	if (id->state != CM_ID_ADDR_RESOLVED)
		return state_fault(c, id, "resolve_route", "one whose address is resolved");
	ret = make_path(cm, c, id);
	if (ret != 0)
		return ret;
	id->state = CM_ID_ROUTE_RESOLVED;
	eng_cm_event(cm, id, KARST_RDMACM_ROUTE_RESOLVED, 0);
	return 0;
}

int
eng_session_cm_resolve_route(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_resolve_route_req *req = c->body;

	return with_id(s, c, req->id, resolve_route);
}

static int
listen_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	static const struct karst_ctl_cm_addr any = {.family = AF_INET};
	const struct karst_ctl_cm_listen_req *req = c->body;
	bool bound = id->state == CM_ID_BOUND;
	int ret;

	if (!bound && id->state != CM_ID_IDLE)
		return state_fault(c, id, "listen", "idle or bound");
	if (!bound) {
		ret = bind_to(cm, c, id, &any);
		if (ret != 0)
			return ret;
	}
	ret = eng_cm_service_join(cm, id);
	if (ret != 0) {
		if (ret == -EADDRINUSE)
			number_fault(c, ret, &id->src);
		else
			say(c, ret,
				"listen: the engine has as many connections as it may "
				"(max_cm_ids), or no memory");
		if (!bound)
			unbind(cm, id);
		return ret;
	}
	id->backlog = req->backlog == 0 || req->backlog > MAX_BACKLOG ? MAX_BACKLOG : req->backlog;
	id->state = CM_ID_LISTEN;
	return 0;
}

int
eng_session_cm_listen(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_listen_req *req = c->body;

	return with_id(s, c, req->id, listen_id);
}

/* --- connections --- */

static int
connect_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_connect_req *req = c->body;

	return eng_cm_connect(cm, c, id, &req->param);
}

int
eng_session_cm_connect(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_connect_req *req = c->body;

	return with_id(s, c, req->id, connect_id);
}

static int
accept_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_accept_req *req = c->body;
	bool with = (req->flags & KARST_CTL_CM_ACCEPT_PARAM) != 0;
	int ret;

	if ((req->flags & ~KARST_CTL_CM_ACCEPT_PARAM) != 0)
		return say(c, -EINVAL, "flags 0x%x: known are the bits 0x%x", req->flags,
			KARST_CTL_CM_ACCEPT_PARAM);
	ret = eng_cm_accept(cm, c, id, with ? &req->param : NULL);
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

	return with_id(s, c, req->id, accept_id);
}

static int
reject_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_reject_req *req = c->body;

	return eng_cm_reject(cm, c, id, req->reason, &req->param);
}

int
eng_session_cm_reject(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_reject_req *req = c->body;

	return with_id(s, c, req->id, reject_id);
}

int
eng_session_cm_disconnect(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_disconnect_req *req = c->body;

	return with_id(s, c, req->id, eng_cm_disconnect);
}

static int
notify_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_notify_req *req = c->body;

	if (req->event != KARST_EVENT_COMM_EST)
		return say(c, -EINVAL, "notify: event %u: %u (COMM_EST) and no other", req->event,
			KARST_EVENT_COMM_EST);
	return eng_cm_established(cm, c, id);
}

int
eng_session_cm_notify(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_notify_req *req = c->body;

	return with_id(s, c, req->id, notify_id);
}

/* --- attributes of queue pairs --- */

static bool
is_xrc(const struct cm_id *id)
{
	return id->qp_type == KARST_QPT_XRC_SEND || id->qp_type == KARST_QPT_XRC_RECV;
}

static void
attr_init(const struct cm_id *id, struct karst_ctl_cm_init_qp_attr_rsp *rsp)
{
	rsp->mask = KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT;
	rsp->attr.qp_state = KARST_QPS_INIT;
	rsp->attr.port_num = (uint8_t)(id->port + 1);
	if (id->qp_type == KARST_QPT_UD) {
		rsp->mask |= KARST_QP_QKEY;
		rsp->attr.qkey = UDP_QKEY;
		return;
	}
	rsp->mask |= KARST_QP_ACCESS_FLAGS;
	if (id->state != CM_ID_CONNECT)
		return;
	rsp->attr.access_flags = KARST_ACCESS_REMOTE_WRITE;
	if (id->responder_resources != 0 && id->qp_type != KARST_QPT_UC)
		rsp->attr.access_flags |= KARST_ACCESS_REMOTE_READ | KARST_ACCESS_REMOTE_ATOMIC;
}

static void
attr_rtr(const struct cm_id *id, struct karst_ctl_cm_init_qp_attr_rsp *rsp)
{
	rsp->mask = KARST_QP_STATE | KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN |
		KARST_QP_RQ_PSN;
	rsp->attr.qp_state = KARST_QPS_RTR;
	eng_cm_ah(id, id->path.remote_ip, &rsp->attr.ah);
	rsp->attr.path_mtu = id->path.mtu;
	rsp->attr.dest_qpn = id->remote_qpn;
	rsp->attr.rq_psn = id->psn;
	if (id->qp_type != KARST_QPT_RC && id->qp_type != KARST_QPT_XRC_RECV)
		return;
	rsp->mask |= KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER;
	rsp->attr.max_dest_rd_atomic = id->responder_resources;
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
	rsp->attr.timeout = id->timeout_set ? id->timeout : id->path.ack_timeout;
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
		return state_fault(c, id, "init_qp_attr", "bound to the address of a port");
	if (req->state == KARST_QPS_INIT) {
		attr_init(id, rsp);
		return 0;
	}
	if ((req->state != KARST_QPS_RTR && req->state != KARST_QPS_RTS) ||
		id->qp_type == KARST_QPT_UD)
		return say(c, -EINVAL, "init_qp_attr: state %u: INIT, and if not UD RTR and RTS",
			req->state);
	if (!id->has_remote)
		return state_fault(c, id, "init_qp_attr", "told of the peer's queue pair yet");
	if (req->state == KARST_QPS_RTR)
		attr_rtr(id, rsp);
	else
		attr_rts(id, rsp);
	return 0;
}

int
eng_session_cm_init_qp_attr(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_init_qp_attr_req *req = c->body;

	return with_id(s, c, req->id, init_qp_attr);
}

/* --- queries, options --- */

static int
query_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	struct karst_ctl_cm_query_rsp *rsp = c->rsp;

	rsp->src = id->src;
	rsp->dst = id->dst;
	if (!id->has_port)
		return 0;
	rsp->port = id->port + 1u;
	memcpy(rsp->sgid, id->src.ip, sizeof(rsp->sgid));
	memcpy(rsp->dgid, id->dst.ip, sizeof(rsp->dgid));
	rsp->sgid_index = id->sgid_index;
	rsp->pkey = PKEY_DEFAULT;
	if (id->state != CM_ID_ROUTE_RESOLVED && id->state != CM_ID_CONNECT)
		return 0;
	rsp->paths = 1;
	rsp->flow_label = id->path.flow_label;
	rsp->hop_limit = id->path.hop_limit;
	rsp->traffic_class = id->path.tclass;
	rsp->sl = id->path.sl;
	rsp->packet_life_time = id->path.ack_timeout != 0 ? id->path.ack_timeout - 1 : 0;
	rsp->path_mtu = id->path.mtu;
	return 0;
}

int
eng_session_cm_query(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_query_req *req = c->body;

	return with_id(s, c, req->id, query_id);
}

static int
set_option(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_set_option_req *req = c->body;
	uint32_t v = req->value;

	switch (req->option) {
	case OPTION_TOS:
		if (v > UINT8_MAX)
			return say(c, -EINVAL, "type of service %u: up to 255", v);
		id->tos = (uint8_t)v;
		id->tos_set = true;
		return 0;
	case OPTION_REUSE_ADDR:
		if (id->state == CM_ID_LISTEN)
			return state_fault(c, id, "reuse of addresses", "in a state to be asked");
		id->reuse_addr = v != 0;
		return 0;
	case OPTION_AF_ONLY:
		if (id->state != CM_ID_IDLE && id->state != CM_ID_BOUND)
			return state_fault(c, id, "address family only", "idle or bound");
		id->af_only = v != 0;
		return 0;
	case OPTION_ACK_TIMEOUT:
		if (v > MAX_ACK_TIMEOUT || (id->qp_type != KARST_QPT_RC && !is_xrc(id)))
			return say(c, -EINVAL, "ACK timeout %u: up to %u, and RC or XRC", v,
				MAX_ACK_TIMEOUT);
		id->timeout = (uint8_t)v;
		id->timeout_set = true;
		return 0;
	default:
		return say(c, -ENOSYS, "option %u: there is none such", req->option);
	}
}

int
eng_session_cm_set_option(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_set_option_req *req = c->body;

	return with_id(s, c, req->id, set_option);
}

/* --- groups --- */

static int
join_mcast(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_join_mcast_req *req = c->body;
	struct karst_ctl_cm_join_mcast_rsp *rsp = c->rsp;
	struct cm_group *g;
	struct cm_event *ev;
	int ret = eng_cm_check_addr(c, &req->addr);

	if (ret == 0 && !eng_ip_is_group(req->addr.ip))
		ret = say(c, -EINVAL, "not a group: 224.0.0.0/4 or ff00::/8");
	if (ret != 0)
		return ret;
	if (id->qp_type != KARST_QPT_UD || !id->has_port || id->state == CM_ID_LISTEN)
		return state_fault(c, id, "join_mcast", "of UDP and bound to an address of a port");
	g = calloc(1, sizeof(*g));
	if (g == NULL)
		return say(c, -ENOMEM, "group: the engine has no memory");
	ret = eng_session_handle_add(
		c, &id->session->cm_groups, g, "groups", "max_cm_ids", &g->handle);
	ev = ret == 0 ? eng_cm_event(cm, id, KARST_RDMACM_MULTICAST_JOIN, 0) : NULL;
	if (ev == NULL) {
		if (ret == 0) {
			eng_handles_del(&id->session->cm_groups, g->handle);
			ret = say(c, -ENOSPC, "identifier %u: too many events wait", id->handle);
		}
		free(g);
		return ret;
	}
	g->uid = req->uid;
	g->id = id;
	memcpy(g->ip, req->addr.ip, sizeof(g->ip));
	g->next = id->groups;
	id->groups = g;
	ev->group = g;
	ev->rsp.ud_qpn = 0xffffff;
	ev->rsp.ud_qkey = UDP_QKEY;
	eng_cm_ah(id, g->ip, &ev->rsp.ah);
	if (ev->rsp.ah.hop_limit == 0)
		ev->rsp.ah.hop_limit = 1;
	rsp->group = g->handle;
	return 0;
}

int
eng_session_cm_join_mcast(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_join_mcast_req *req = c->body;

	return with_id(s, c, req->id, join_mcast);
}

int
eng_session_cm_leave_mcast(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_leave_mcast_req *req = c->body;
	struct karst_ctl_cm_leave_mcast_rsp *rsp = c->rsp;
	struct eng_cm *cm = eng_cm_enter(s->e);
	struct cm_group *g = eng_session_find(c, &s->cm_groups, req->group, "group"), **at;

	if (g != NULL) {
		rsp->events = g->reported;
		rsp->channel = g->id->channel->handle;
		rsp->emptied = eng_cm_event_purge(cm, g->id, g);
		for (at = &g->id->groups; *at != g; at = &(*at)->next)
			;
		*at = g->next;
		eng_handles_del(&s->cm_groups, g->handle);
		free(g);
	}
	eng_cm_leave(cm);
	return g != NULL ? 0 : -EINVAL;
}

/* --- the end --- */

void
eng_session_drop_cm(struct karst_session *s)
{
	struct eng_cm *cm = eng_cm_enter(s->e);
	struct cm_channel *ch;
	struct cm_id *id;
	uint32_t at = 0;

	/* with a listener go the requests that nobody has taken, which may stand anywhere */
	while (s->cm_ids.used > 0)
		for (at = 0; (id = eng_handles_next(&s->cm_ids, &at)) != NULL;)
			if (!id->passive || id->told)
				eng_cm_id_free(cm, id);
	for (at = 0; (ch = eng_handles_next(&s->cm_channels, &at)) != NULL;)
		free_channel(s, ch);
	eng_cm_leave(cm);
}
