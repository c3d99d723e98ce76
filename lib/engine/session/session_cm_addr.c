/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Messages of connection management about addresses: from a new identifier to one that listens, or
 * whose path is resolved; options and queries.
 */
#include <errno.h>
#include <sys/socket.h>

#include "session_cm.h"
#include "port.h"

#define MAX_BACKLOG    1024u
#define PRIVILEGED_END 1024u
#define HOP_LIMIT      64u
#define PKEY_DEFAULT   0xffffu

/* Numbers as in rdma_set_option(). */
enum { OPTION_TOS, OPTION_REUSE_ADDR, OPTION_AF_ONLY, OPTION_ACK_TIMEOUT };

/* --- addresses --- */

/* Normalizes an address: an IPv4 wildcard is written like other IPv4 addresses, and only addresses
 * that have a scope keep one. */
static struct karst_ctl_cm_addr
id_tidy(const struct karst_ctl_cm_addr *a)
{
	struct karst_ctl_cm_addr out = *a;

	if (a->family == AF_INET)
		out.ip[10] = out.ip[11] = 0xff;
	if (!eng_cm_is_scoped(a))
		out.scope_id = 0;
	return out;
}

static int
number_fault(
	struct session_call *c, int ret, const struct cm_id *id, const struct karst_ctl_cm_addr *a)
{
	if (ret == -EDQUOT)
		return eng_session_reason_share(
			karst_container_of(id->client, struct karst_session, cm), c,
			ENG_SHARE_CM_NUMBERS);
	if (a->port_number == 0)
		return reason(c, ret, "no port number is free");
	if (ret == -EUSERS)
		return reason(c, -EADDRINUSE,
			"port number %u is shared by %u identifiers, and by no more at a time",
			a->port_number, CM_NUMBER_SHARED);
	return reason(c, ret, "port number %u is in use", a->port_number);
}

/* Binds @id, which has no address yet, to *@addr. */
static int
bind_to(struct eng_cm *cm, struct session_call *c, struct cm_id *id,
	const struct karst_ctl_cm_addr *addr)
{
	struct karst_ctl_cm_addr src = id_tidy(addr);
	char text[ENG_IP_TEXT];
	uint8_t port = 0;
	bool any = eng_cm_is_any(&src);
	int ret;

	if (src.port_number != 0 && src.port_number < PRIVILEGED_END && id->client->uid != 0)
		return reason(c, -EACCES, "port number %u: numbers below %u are reserved for root",
			src.port_number, PRIVILEGED_END);
	ret = any ? 0 : eng_cm_find_own(cm->e, &src, &port);
	if (ret != 0)
		return reason(c, ret,
			ret == -ENODEV ? "that port does not have the address %s"
				       : "no port of the engine has the address %s",
			eng_ip_text(src.ip, text));
	id->src = src;
	ret = eng_cm_number(cm, id);
	if (ret != 0) {
		memset(&id->src, 0, sizeof(id->src));
		return number_fault(c, ret, id, addr);
	}
	id->has_port = !any;
	id->port = port;
	id->state = CM_ID_BOUND;
	return 0;
}

static void
id_unbind(struct eng_cm *cm, struct cm_id *id)
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
	int ret = eng_cm_check_addr(c->why, &req->addr);

	if (ret != 0)
		return ret;
	if (id->state != CM_ID_IDLE)
		return eng_cm_state_fault(c, id, "bind", "idle");
	return bind_to(cm, c, id, &req->addr);
}

int
eng_session_cm_bind(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_bind_req *req = c->body;

	return eng_cm_with_id(s, c, req->id, bind_id);
}

/* Chooses the port and address from which @id sends, unless it is bound; then resolves its path. */
static int
set_out(struct eng_cm *cm, struct session_call *c, struct cm_id *id, uint32_t timeout_ms,
	const struct karst_ctl_cm_addr *to)
{
	struct karst_ctl_cm_addr dst = id_tidy(to), src = id->src;
	uint8_t port = id->port;
	enum cm_id_state before = id->state;
	char text[ENG_IP_TEXT];
	int ret;

	if (!id->has_port) {
		ret = eng_cm_choose_port(cm->e, &dst, &port, src.ip);
		if (ret != 0)
			return reason(c, ret, "no port of the engine has a route to %s",
				eng_ip_text(dst.ip, text));
		src.family = dst.family;
	} else if (dst.scope_id != 0 && dst.scope_id != port + 1u) {
		return reason(c, -EINVAL,
			"the route to %s is on port %u, but the identifier is bound to port %u",
			eng_ip_text(dst.ip, text), dst.scope_id, port + 1u);
	}
	eng_cm_set_scope(&src, port);
	eng_cm_set_scope(&dst, port);
	if (eng_cm_is_any(&dst))
		memcpy(dst.ip, src.ip, sizeof(dst.ip));
	id->chosen = !id->has_port;
	id->bound = id->src;
	id->src = src;
	id->dst = dst;
	id->port = port;
	id->has_port = true;
	id->until_ns = cm->cm->now_ns + UINT64_C(1000000) * (timeout_ms != 0 ? timeout_ms : 1);
	/* the path may be known, and its event may be queued at once */
	id->state = CM_ID_ADDR_QUERY;
	ret = eng_cm_path_find(cm, c->why, id);
	if (ret != 0)
		id->state = before;
	return ret;
}

static int
resolve_addr(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_resolve_addr_req *req = c->body;
	struct karst_ctl_cm_addr any = {.family = req->dst.family}, was;
	bool bound = id->state == CM_ID_BOUND, had_port = id->has_port;
	int ret = eng_cm_check_addr(c->why, &req->dst);

	if (ret == 0 && req->src.family != 0)
		ret = eng_cm_check_addr(c->why, &req->src);
	if (ret != 0)
		return ret;
	if (!bound && id->state != CM_ID_IDLE)
		return eng_cm_state_fault(c, id, "resolve_addr", "idle or bound");
	if ((req->src.family != 0 && req->src.family != req->dst.family) ||
		(bound && id->src.family != req->dst.family &&
			!(id->src.family == AF_INET6 && !id->has_port)))
		return reason(
			c, -EINVAL, "source and destination are of different address families");
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
		id->chosen = false;
		memset(&id->dst, 0, sizeof(id->dst));
		if (!bound)
			id_unbind(cm, id);
	}
	return ret;
}

int
eng_session_cm_resolve_addr(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_resolve_addr_req *req = c->body;

	return eng_cm_with_id(s, c, req->id, resolve_addr);
}

/* Sets the path attributes of a connection's packets; the flow label is a function of the two port
 * numbers. */
static int
make_path(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	struct karst_engine_port_info info;

	if (karst_engine_port_info(cm->e, id->port, &info) != 0)
		return reason(c, -ENODEV, "port %u is gone", id->port + 1);
	id->path = (struct karst_cm_path){
		.flow_label = (id->src.port_number * 31u + id->dst.port_number) & 0xfffff,
		.pkey = PKEY_DEFAULT,
		.port = id->port,
		.tclass = id->tos_set ? id->tos : 0,
		.hop_limit = HOP_LIMIT,
		.mtu = info.path_mtu,
		.ack_timeout = id->timeout_set ? id->timeout : CM_ACK_TIMEOUT,
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
		return eng_cm_state_fault(c, id, "resolve_route", "one whose address is resolved");
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

	return eng_cm_with_id(s, c, req->id, resolve_route);
}

static int
listen_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	static const struct karst_ctl_cm_addr any = {.family = AF_INET};
	const struct karst_ctl_cm_listen_req *req = c->body;
	bool bound = id->state == CM_ID_BOUND;
	int ret;

	if (!bound && id->state != CM_ID_IDLE)
		return eng_cm_state_fault(c, id, "listen", "idle or bound");
	if (!bound) {
		ret = bind_to(cm, c, id, &any);
		if (ret != 0)
			return ret;
	}
	ret = eng_cm_service_join(cm, id);
	if (ret != 0) {
		if (ret == -EADDRINUSE)
			number_fault(c, ret, id, &id->src);
		else
			reason(c, ret,
				"listen: the engine's limit of connections (max_cm_ids) is "
				"reached, or it has no memory");
		if (!bound)
			id_unbind(cm, id);
		return ret;
	}
	id->places = req->backlog == 0 || req->backlog > MAX_BACKLOG ? MAX_BACKLOG : req->backlog;
	id->backlog = id->places;
	id->state = CM_ID_LISTEN;
	return 0;
}

int
eng_session_cm_listen(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_listen_req *req = c->body;

	return eng_cm_with_id(s, c, req->id, listen_id);
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
	rsp->sgid_index = KARST_ENGINE_MAX_ADDRS; /* no valid index */
	(void)eng_cm_index(cm->e, id, &rsp->sgid_index);
	rsp->pkey = PKEY_DEFAULT;
	if (id->state != CM_ID_ROUTE_RESOLVED && id->state != CM_ID_CONNECT)
		return 0;
	/* that a request for datagrams created has none */
	if (id->path.mtu == 0)
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

	return eng_cm_with_id(s, c, req->id, query_id);
}

static int
set_option(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_set_option_req *req = c->body;
	uint32_t v = req->value;

	switch (req->option) {
	case OPTION_TOS:
		if (v > UINT8_MAX)
			return reason(c, -EINVAL, "type of service %u exceeds 255", v);
		id->tos = (uint8_t)v;
		id->tos_set = true;
		return 0;
	case OPTION_REUSE_ADDR:
		if (id->state == CM_ID_LISTEN)
			return eng_cm_state_fault(
				c, id, "reuse of addresses", "in a state to be asked");
		id->reuse_addr = v != 0;
		return 0;
	case OPTION_AF_ONLY:
		if (id->state != CM_ID_IDLE && id->state != CM_ID_BOUND)
			return eng_cm_state_fault(c, id, "address family only", "idle or bound");
		id->af_only = v != 0;
		return 0;
	case OPTION_ACK_TIMEOUT:
		if (v > MAX_ACK_TIMEOUT || (id->qp_type != KARST_QPT_RC && !eng_cm_is_xrc(id)))
			return reason(c, -EINVAL,
				"ACK timeout %u: must be at most %u, on an identifier of RC or XRC",
				v, MAX_ACK_TIMEOUT);
		id->timeout = (uint8_t)v;
		id->timeout_set = true;
		return 0;
	default:
		return reason(c, -ENOSYS, "option %u is unknown", req->option);
	}
}

int
eng_session_cm_set_option(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_set_option_req *req = c->body;

	return eng_cm_with_id(s, c, req->id, set_option);
}
