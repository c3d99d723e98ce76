/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Connection management: the engine does all of it, and each call is one request.
 *
 * A channel's stream holds one byte while events wait.  The call after which none waits, because it
 * took the last one or destroyed the identifier that the last ones belonged to, reads the byte.
 */
#include "karst_rdmacm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <unistd.h>

#include "client_priv.h"

struct cli_cm_channel {
	struct karst_rdmacm_channel pub;
	LIST_ENTRY(cli_cm_channel) next; /* list of the context; under reg */
};

static_assert(KARST_RDMACM_PRIVATE_DATA == KARST_CTL_CM_PRIVATE_DATA, "private data");

/* --- addresses, parameters --- */

/*
 * In a program the scope of a link-local address is the index of an interface.  Only the program
 * can interpret it, because the engine may be in another network namespace.  Both know the
 * interface's name, so the name identifies the port.
 */
static int
port_of_scope(struct karst_context *ctx, uint32_t scope_id, uint32_t *port)
{
	struct karst_port_attr attr;
	char name[IF_NAMESIZE];
	uint32_t i;
	int ret;

	if (if_indextoname(scope_id, name) == NULL)
		return cli_fail(-ENODEV, "scope_id %u: no such interface", scope_id);
	for (i = 1; i <= ctx->nports; i++) {
		ret = karst_query_port(ctx, i, &attr);
		if (ret == -EIO)
			return ret;
		if (ret == 0 && strcmp(attr.netdev, name) == 0) {
			*port = i;
			return 0;
		}
	}
	return cli_fail(-ENODEV, "interface %s belongs to no port of the engine", name);
}

static uint32_t
scope_of_port(struct karst_context *ctx, uint32_t port)
{
	struct karst_port_attr attr;

	if (port == 0 || karst_query_port(ctx, port, &attr) != 0 || attr.netdev[0] == 0)
		return 0;
	return if_nametoindex(attr.netdev);
}

static int
addr_to_ctl(struct karst_context *ctx, const struct sockaddr *sa, struct karst_ctl_cm_addr *a)
{
	const struct sockaddr_in6 *in6 = (const void *)sa;
	const struct sockaddr_in *in = (const void *)sa;

	memset(a, 0, sizeof(*a));
	a->family = sa->sa_family;
	switch (sa->sa_family) {
	case AF_INET:
		a->port_number = ntohs(in->sin_port);
		a->ip[10] = a->ip[11] = 0xff;
		memcpy(a->ip + 12, &in->sin_addr, 4);
		return 0;
	case AF_INET6:
		a->port_number = ntohs(in6->sin6_port);
		memcpy(a->ip, &in6->sin6_addr, 16);
		if (in6->sin6_scope_id == 0 || !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
			return 0;
		return port_of_scope(ctx, in6->sin6_scope_id, &a->scope_id);
	default:
		return cli_fail(-EAFNOSUPPORT, "address family %d is not AF_INET or AF_INET6",
			sa->sa_family);
	}
}

static void
addr_of_ctl(
	struct karst_context *ctx, const struct karst_ctl_cm_addr *a, struct sockaddr_storage *sa)
{
	struct sockaddr_in6 *in6 = (void *)sa;
	struct sockaddr_in *in = (void *)sa;

	memset(sa, 0, sizeof(*sa));
	sa->ss_family = a->family;
	if (a->family == AF_INET) {
		in->sin_port = htons(a->port_number);
		memcpy(&in->sin_addr, a->ip + 12, 4);
	} else if (a->family == AF_INET6) {
		in6->sin6_port = htons(a->port_number);
		in6->sin6_scope_id = scope_of_port(ctx, a->scope_id);
		memcpy(&in6->sin6_addr, a->ip, 16);
	}
}

static int
param_to_ctl(const struct karst_rdmacm_conn_param *p, struct karst_ctl_cm_param *w)
{
	if (p->private_data_len > KARST_RDMACM_PRIVATE_DATA)
		return cli_fail(-EINVAL, "private_data_len %u exceeds %u", p->private_data_len,
			KARST_RDMACM_PRIVATE_DATA);
	*w = (struct karst_ctl_cm_param){
		.private_data_len = p->private_data_len,
		.responder_resources = p->responder_resources,
		.initiator_depth = p->initiator_depth,
		.flow_control = p->flow_control,
		.retry_count = p->retry_count,
		.rnr_retry_count = p->rnr_retry_count,
		.srq = p->srq,
		.qpn = p->qp_num,
		.qkey = p->qkey,
	};
	memcpy(w->private_data, p->private_data, p->private_data_len);
	return 0;
}

static void
param_of_ctl(const struct karst_ctl_cm_param *w, struct karst_rdmacm_conn_param *p)
{
	*p = (struct karst_rdmacm_conn_param){
		.private_data_len = w->private_data_len,
		.responder_resources = w->responder_resources,
		.initiator_depth = w->initiator_depth,
		.flow_control = w->flow_control,
		.retry_count = w->retry_count,
		.rnr_retry_count = w->rnr_retry_count,
		.srq = w->srq,
		.qp_num = w->qpn,
		.qkey = w->qkey,
	};
	memcpy(p->private_data, w->private_data, sizeof(p->private_data));
}

static struct karst_ctl_ece
ece_to_ctl(const struct karst_ece *ece)
{
	return (struct karst_ctl_ece){.vendor = ece->vendor_id, .options = ece->options};
}

/* Makes a request whose reply has no data. */
static int
simple_call(struct karst_client *c, enum karst_ctl_op op, struct karst_ctl_hdr *req, size_t len)
{
	struct karst_ctl_cm_bind_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};

	return cli_call(c, op, req, len, NULL, 0, &reply);
}

#define PLAIN_CALL(c, NAME, m) simple_call(c, KARST_CTL_CM_##NAME, &(m)->hdr, sizeof(*(m)))

/* --- channels --- */

static void
link_channel(struct karst_client *c, struct cli_cm_channel *ch)
{
	karst_mutex_lock(&c->reg);
	LIST_INSERT_HEAD(&c->cm_channels, ch, next);
	karst_mutex_unlock(&c->reg);
}

static void
unlink_channel(struct karst_client *c, struct cli_cm_channel *ch)
{
	karst_mutex_lock(&c->reg);
	LIST_REMOVE(ch, next);
	karst_mutex_unlock(&c->reg);
}

/* The channel @handle has no more events. */
static void
channel_drained(struct karst_client *c, uint32_t handle)
{
	const struct cli_cm_channel *ch;
	char byte;

	karst_mutex_lock(&c->reg);
	LIST_FOREACH(ch, &c->cm_channels, next)
		if (ch->pub.handle == handle)
			(void)!recv(ch->pub.fd, &byte, 1, MSG_DONTWAIT);
	karst_mutex_unlock(&c->reg);
}

/* Handles the reply to a call that ended or moved an object: the call may have removed the last
 * event of a channel.  Stores how many of the object's events were returned, if the caller asks for
 * that. */
static int
events_reported(struct karst_client *c, bool is_empty, uint32_t channel, uint32_t reported,
	uint32_t *events)
{
	if (is_empty)
		channel_drained(c, channel);
	if (events != NULL)
		*events = reported;
	return 0;
}

int
karst_rdmacm_create_channel(struct karst_context *ctx, struct karst_rdmacm_channel **channel)
{
	struct karst_client *c = cli_of(ctx);
	CLI_REQ(cm_create_channel) m = {.body.reserved = 0};
	struct karst_ctl_cm_create_channel_rsp r = {0};
	int fd = -1, ret;
	struct cli_reply reply = {&r, sizeof(r), &fd, 1};
	struct cli_cm_channel *ch = calloc(1, sizeof(*ch));

	if (ch == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	ret = cli_call(c, KARST_CTL_CM_CREATE_CHANNEL, &m.hdr, sizeof(m), NULL, 0, &reply);
	if (ret == 0 && reply.nfds != 1)
		ret = cli_fail_const(-EPROTO, "the engine sent no descriptor of the channel");
	if (ret != 0) {
		/* the engine has created a channel, but there is no descriptor to read it with */
		if (r.channel != 0)
			cli_destroy_call(c, KARST_CTL_CM_DESTROY_CHANNEL, r.channel);
		free(ch);
		return ret;
	}
	ch->pub = (struct karst_rdmacm_channel){.context = ctx, .fd = fd, .handle = r.channel};
	link_channel(c, ch);
	atomic_fetch_add(&c->nobjects, 1);
	*channel = &ch->pub;
	return 0;
}

int
karst_rdmacm_destroy_channel(struct karst_rdmacm_channel *channel)
{
	struct cli_cm_channel *ch = karst_container_of(channel, struct cli_cm_channel, pub);
	struct karst_client *c = cli_of(channel->context);
	int ret, cancel;

	if (cli_forked(c))
		return cli_fail_forked();
	ret = cli_destroy_call(c, KARST_CTL_CM_DESTROY_CHANNEL, channel->handle);
	if (ret != 0)
		return ret;
	unlink_channel(c, ch);
	cancel = karst_cancel_disable();
	close(channel->fd);
	karst_cancel_restore(cancel);
	atomic_fetch_sub(&c->nobjects, 1);
	free(ch);
	return 0;
}

/* Is there an event?  @return 0; -EAGAIN: none; -EIO: the engine is gone. */
static int
next_event(struct karst_client *c, const struct karst_rdmacm_channel *channel)
{
	char byte;
	ssize_t n = recv(channel->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	if (n == 1)
		return 0;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return cli_fail_const(-EAGAIN, "no event");
	cli_set_dead(c);
	return cli_check(c);
}

int
karst_rdmacm_get_event(struct karst_rdmacm_channel *channel, struct karst_rdmacm_event *event)
{
	struct karst_client *c = cli_of(channel->context);
	CLI_REQ(cm_get_event) m = {.body.channel = channel->handle};
	struct karst_ctl_cm_get_event_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret;

	if (cli_forked(c))
		return cli_fail_forked();
	ret = next_event(c, channel);
	if (ret == 0)
		ret = cli_call(c, KARST_CTL_CM_GET_EVENT, &m.hdr, sizeof(m), NULL, 0, &reply);
	if (ret != 0)
		return ret;
	if (r.emptied != 0)
		channel_drained(c, channel->handle);
	event->uid = r.uid;
	event->id = r.id;
	event->listen_id = r.listen_id;
	event->event = (enum karst_rdmacm_event_type)r.event;
	event->status = r.status;
	param_of_ctl(&r.param, &event->conn);
	event->conn.ece = (struct karst_ece){.vendor_id = r.ece.vendor, .options = r.ece.options};
	cli_ah_attr_of_ctl(&r.ah, &event->ud.ah_attr);
	event->ud.qp_num = r.ud_qpn;
	event->ud.qkey = r.ud_qkey;
	return 0;
}

/* --- identifiers --- */

int
karst_rdmacm_create_id(struct karst_rdmacm_channel *channel, uint64_t uid,
	enum karst_rdmacm_port_space ps, enum karst_qp_type qp_type, uint32_t *id)
{
	struct karst_client *c = cli_of(channel->context);
	CLI_REQ(cm_create_id)
	m = {.body = {.uid = uid,
		     .channel = channel->handle,
		     .port_space = (uint16_t)ps,
		     .qp_type = (uint8_t)qp_type}};
	struct karst_ctl_cm_create_id_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = cli_call(c, KARST_CTL_CM_CREATE_ID, &m.hdr, sizeof(m), NULL, 0, &reply);

	if (ret == 0)
		*id = r.id;
	return ret;
}

int
karst_rdmacm_destroy_id(struct karst_context *ctx, uint32_t id, uint32_t *events)
{
	struct karst_client *c = cli_of(ctx);
	CLI_REQ(cm_destroy_id) m = {.body.id = id};
	struct karst_ctl_cm_destroy_id_rsp r = {0};
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = cli_call(c, KARST_CTL_CM_DESTROY_ID, &m.hdr, sizeof(m), NULL, 0, &reply);

	/* an engine that is gone has nothing to undo */
	if (ret != 0 && !(ret == -EIO && cli_is_dead(c)))
		return ret;
	return events_reported(c, r.emptied != 0, r.channel, r.events, events);
}

int
karst_rdmacm_migrate_id(struct karst_rdmacm_channel *channel, uint32_t id, uint32_t *events)
{
	struct karst_client *c = cli_of(channel->context);
	CLI_REQ(cm_migrate_id) m = {.body = {.id = id, .channel = channel->handle}};
	struct karst_ctl_cm_migrate_id_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = cli_call(c, KARST_CTL_CM_MIGRATE_ID, &m.hdr, sizeof(m), NULL, 0, &reply);

	if (ret != 0)
		return ret;
	return events_reported(c, r.emptied != 0, r.channel, r.events, events);
}

int
karst_rdmacm_bind(struct karst_context *ctx, uint32_t id, const struct sockaddr *addr)
{
	CLI_REQ(cm_bind) m = {.body.id = id};
	int ret = addr_to_ctl(ctx, addr, &m.body.addr);

	return ret != 0 ? ret : PLAIN_CALL(cli_of(ctx), BIND, &m);
}

int
karst_rdmacm_resolve_addr(struct karst_context *ctx, uint32_t id, const struct sockaddr *src,
	const struct sockaddr *dst, uint32_t timeout_ms)
{
	CLI_REQ(cm_resolve_addr) m = {.body = {.id = id, .timeout_ms = timeout_ms}};
	int ret = src != NULL ? addr_to_ctl(ctx, src, &m.body.src) : 0;

	if (ret == 0)
		ret = addr_to_ctl(ctx, dst, &m.body.dst);
	return ret != 0 ? ret : PLAIN_CALL(cli_of(ctx), RESOLVE_ADDR, &m);
}

int
karst_rdmacm_resolve_route(struct karst_context *ctx, uint32_t id, uint32_t timeout_ms)
{
	CLI_REQ(cm_resolve_route) m = {.body = {.id = id, .timeout_ms = timeout_ms}};

	return PLAIN_CALL(cli_of(ctx), RESOLVE_ROUTE, &m);
}

int
karst_rdmacm_listen(struct karst_context *ctx, uint32_t id, int backlog)
{
	CLI_REQ(cm_listen) m = {.body = {.id = id, .backlog = backlog > 0 ? (uint32_t)backlog : 0}};

	return PLAIN_CALL(cli_of(ctx), LISTEN, &m);
}

int
karst_rdmacm_connect(
	struct karst_context *ctx, uint32_t id, const struct karst_rdmacm_conn_param *param)
{
	CLI_REQ(cm_connect) m = {.body.id = id};
	int ret = param_to_ctl(param, &m.body.param);

	m.body.ece = ece_to_ctl(&param->ece);
	return ret != 0 ? ret : PLAIN_CALL(cli_of(ctx), CONNECT, &m);
}

int
karst_rdmacm_accept(struct karst_context *ctx, uint32_t id, uint64_t uid,
	const struct karst_rdmacm_conn_param *param)
{
	CLI_REQ(cm_accept) m = {.body = {.id = id, .uid = uid}};
	int ret = 0;

	if (param != NULL) {
		m.body.flags = KARST_CTL_CM_ACCEPT_PARAM;
		ret = param_to_ctl(param, &m.body.param);
		m.body.ece = ece_to_ctl(&param->ece);
	}
	return ret != 0 ? ret : PLAIN_CALL(cli_of(ctx), ACCEPT, &m);
}

int
karst_rdmacm_reject(struct karst_context *ctx, uint32_t id, const void *private_data,
	uint8_t private_data_len, uint8_t reason)
{
	CLI_REQ(cm_reject) m = {.body = {.id = id, .reason = reason}};

	if (private_data_len > KARST_RDMACM_PRIVATE_DATA)
		return cli_fail(-EINVAL, "private_data_len %u exceeds %u", private_data_len,
			KARST_RDMACM_PRIVATE_DATA);
	if (private_data_len != 0)
		memcpy(m.body.param.private_data, private_data, private_data_len);
	m.body.param.private_data_len = private_data_len;
	return PLAIN_CALL(cli_of(ctx), REJECT, &m);
}

int
karst_rdmacm_disconnect(struct karst_context *ctx, uint32_t id)
{
	CLI_REQ(cm_disconnect) m = {.body.id = id};

	return PLAIN_CALL(cli_of(ctx), DISCONNECT, &m);
}

int
karst_rdmacm_notify(struct karst_context *ctx, uint32_t id, enum karst_async_event_code event)
{
	CLI_REQ(cm_notify) m = {.body = {.id = id, .event = (uint32_t)event}};

	return PLAIN_CALL(cli_of(ctx), NOTIFY, &m);
}

int
karst_rdmacm_init_qp_attr(struct karst_context *ctx, uint32_t id, enum karst_qp_state state,
	struct karst_qp_attr *attr, unsigned int *mask)
{
	CLI_REQ(cm_init_qp_attr) m = {.body = {.id = id, .state = (uint32_t)state}};
	struct karst_ctl_cm_init_qp_attr_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = cli_call(
		cli_of(ctx), KARST_CTL_CM_INIT_QP_ATTR, &m.hdr, sizeof(m), NULL, 0, &reply);

	if (ret != 0)
		return ret;
	cli_qp_attr_of_ctl(&r.attr, attr);
	*mask = r.mask;
	return 0;
}

int
karst_rdmacm_query(struct karst_context *ctx, uint32_t id, struct karst_rdmacm_query *query)
{
	CLI_REQ(cm_query) m = {.body.id = id};
	struct karst_ctl_cm_query_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = cli_call(cli_of(ctx), KARST_CTL_CM_QUERY, &m.hdr, sizeof(m), NULL, 0, &reply);

	if (ret != 0)
		return ret;
	*query = (struct karst_rdmacm_query){
		.port_num = r.port,
		.paths = r.paths,
		.flow_label = r.flow_label,
		.pkey = r.pkey,
		.sgid_index = r.sgid_index,
		.hop_limit = r.hop_limit,
		.traffic_class = r.traffic_class,
		.sl = r.sl,
		.packet_life_time = r.packet_life_time,
		.path_mtu = (enum karst_mtu)r.path_mtu,
	};
	addr_of_ctl(ctx, &r.src, &query->src);
	addr_of_ctl(ctx, &r.dst, &query->dst);
	memcpy(query->sgid.raw, r.sgid, sizeof(r.sgid));
	memcpy(query->dgid.raw, r.dgid, sizeof(r.dgid));
	return 0;
}

/* Converts the value of an option, which is one byte or an int. */
static int
option_value(int option, const void *value, size_t len, uint32_t *out)
{
	bool byte = option == KARST_RDMACM_OPTION_TOS || option == KARST_RDMACM_OPTION_ACK_TIMEOUT;
	size_t want = byte ? sizeof(uint8_t) : sizeof(int);
	int v;

	if (len != want)
		return cli_fail(-EINVAL, "option %d: optlen %zu, must be %zu", option, len, want);
	if (byte) {
		*out = *(const uint8_t *)value;
	} else {
		memcpy(&v, value, sizeof(v));
		*out = v != 0;
	}
	return 0;
}

int
karst_rdmacm_set_option(struct karst_context *ctx, uint32_t id, int level, int option,
	const void *value, size_t len)
{
	CLI_REQ(cm_set_option) m = {.body = {.id = id, .option = (uint32_t)option}};
	int ret;

	if (level != 0 || option < KARST_RDMACM_OPTION_TOS ||
		option > KARST_RDMACM_OPTION_ACK_TIMEOUT)
		return cli_fail(-ENOSYS, "optname %d of level %d is unknown", option, level);
	ret = option_value(option, value, len, &m.body.value);
	return ret != 0 ? ret : PLAIN_CALL(cli_of(ctx), SET_OPTION, &m);
}

/* --- groups --- */

int
karst_rdmacm_join_mcast(struct karst_context *ctx, uint32_t id, const struct sockaddr *addr,
	uint64_t uid, uint32_t *group)
{
	CLI_REQ(cm_join_mcast) m = {.body = {.id = id, .uid = uid}};
	struct karst_ctl_cm_join_mcast_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = addr_to_ctl(ctx, addr, &m.body.addr);

	if (ret == 0)
		ret = cli_call(
			cli_of(ctx), KARST_CTL_CM_JOIN_MCAST, &m.hdr, sizeof(m), NULL, 0, &reply);
	if (ret == 0)
		*group = r.group;
	return ret;
}

int
karst_rdmacm_leave_mcast(struct karst_context *ctx, uint32_t group, uint32_t *events)
{
	struct karst_client *c = cli_of(ctx);
	CLI_REQ(cm_leave_mcast) m = {.body.group = group};
	struct karst_ctl_cm_leave_mcast_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = cli_call(c, KARST_CTL_CM_LEAVE_MCAST, &m.hdr, sizeof(m), NULL, 0, &reply);

	if (ret != 0)
		return ret;
	return events_reported(c, r.emptied != 0, r.channel, r.events, events);
}

const char *
karst_rdmacm_event_str(enum karst_rdmacm_event_type event)
{
	static const char *const names[] = {
		[KARST_RDMACM_ADDR_RESOLVED] = "ADDR_RESOLVED",
		[KARST_RDMACM_ADDR_ERROR] = "ADDR_ERROR",
		[KARST_RDMACM_ROUTE_RESOLVED] = "ROUTE_RESOLVED",
		[KARST_RDMACM_ROUTE_ERROR] = "ROUTE_ERROR",
		[KARST_RDMACM_CONNECT_REQUEST] = "CONNECT_REQUEST",
		[KARST_RDMACM_CONNECT_RESPONSE] = "CONNECT_RESPONSE",
		[KARST_RDMACM_CONNECT_ERROR] = "CONNECT_ERROR",
		[KARST_RDMACM_UNREACHABLE] = "UNREACHABLE",
		[KARST_RDMACM_REJECTED] = "REJECTED",
		[KARST_RDMACM_ESTABLISHED] = "ESTABLISHED",
		[KARST_RDMACM_DISCONNECTED] = "DISCONNECTED",
		[KARST_RDMACM_DEVICE_REMOVAL] = "DEVICE_REMOVAL",
		[KARST_RDMACM_MULTICAST_JOIN] = "MULTICAST_JOIN",
		[KARST_RDMACM_MULTICAST_ERROR] = "MULTICAST_ERROR",
		[KARST_RDMACM_ADDR_CHANGE] = "ADDR_CHANGE",
		[KARST_RDMACM_TIMEWAIT_EXIT] = "TIMEWAIT_EXIT",
	};

	return (unsigned int)event < KARST_DIM(names) ? names[event] : "unknown";
}
