/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Commands of the rdma_cm device.  A command that is written to the file consists of a header and
 * an input structure.  The header has the command's number and the sizes of the input and the
 * output structure; the input structure has the address of the output structure, which is to be
 * filled in.  Programs that were built with older interfaces have shorter structures.
 *
 * The commands that librdmacm uses only where InfiniBand addresses (AF_IB) are supported are
 * missing, because karst does not support them.  The commands that librdmacm uses instead are here.
 */
#include "ucma.h"

#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define MAX_PORT_GIDS 16

const char kv_cm_parents[] = "rdma_cm: the channel belongs to the parent process";

/** A command under way. */
struct call {
	struct kv_cm_file *file;
	struct karst_context *karst;
	int cancel;
	union {
		struct rdma_ucm_create_id create_id;
		struct rdma_ucm_destroy_id destroy_id; /* leave_mcast, too */
		struct rdma_ucm_bind_ip bind_ip;
		struct rdma_ucm_resolve_ip resolve_ip;
		struct rdma_ucm_resolve_route resolve_route;
		struct rdma_ucm_query query;
		struct rdma_ucm_connect connect;
		struct rdma_ucm_listen listen;
		struct rdma_ucm_accept accept;
		struct rdma_ucm_reject reject;
		struct rdma_ucm_disconnect disconnect;
		struct rdma_ucm_init_qp_attr init_qp_attr;
		struct rdma_ucm_get_event get_event;
		struct rdma_ucm_set_option set_option;
		struct rdma_ucm_notify notify;
		struct rdma_ucm_join_ip_mcast join_ip_mcast;
		struct rdma_ucm_migrate_id migrate_id;
	} in;
	union {
		struct rdma_ucm_create_id_resp id;
		struct rdma_ucm_destroy_id_resp events;
		struct rdma_ucm_query_route_resp route;
		struct ib_uverbs_qp_attr qp_attr;
		struct rdma_ucm_event_resp event;
		struct rdma_ucm_migrate_resp migrate;
	} out;
};

/* --- identifiers --- */

/*
 * Before its first call for the program, librdmacm asks whether there are identifiers of
 * RDMA_PS_IB.  The reason for this refusal is not printed, because the program did not ask.
 */
static int
refuse_port_space(uint16_t ps)
{
	static atomic_flag asked = ATOMIC_FLAG_INIT;

	return kv_refuse(-EINVAL,
		ps == RDMA_PS_IB && !atomic_flag_test_and_set(&asked)
			? ""
			: "port space is not RDMA_PS_TCP or RDMA_PS_UDP");
}

/* The type of the queue pair follows from the port space, as in the kernel. */
static int
create_id(struct call *c)
{
	const struct rdma_ucm_create_id *in = &c->in.create_id;
	enum karst_qp_type type = in->ps == RDMA_PS_UDP ? KARST_QPT_UD : KARST_QPT_RC;
	uint32_t id;
	int ret;

	if (in->ps != RDMA_PS_TCP && in->ps != RDMA_PS_UDP)
		return refuse_port_space(in->ps);
	ret = karst_rdmacm_create_id(
		c->file->channel, in->uid, (enum karst_rdmacm_port_space)in->ps, type, &id);
	if (ret != 0)
		return ret;
	ret = kv_cm_id_add(c->file, id, type == KARST_QPT_UD);
	if (ret != 0) {
		karst_rdmacm_destroy_id(c->karst, id, NULL);
		return kv_refuse(ret, "no memory");
	}
	c->out.id.id = id;
	return ret;
}

static int
destroy_id(struct call *c)
{
	uint32_t id = c->in.destroy_id.id, reported;
	int ret = kv_cm_id_check(c->file, id);

	if (ret == 0)
		ret = karst_rdmacm_destroy_id(c->karst, id, &reported);
	if (ret != 0)
		return ret;
	/* an engine that is gone reports none */
	c->out.events.events_reported =
		(uint32_t)karst_max_u64(reported, kv_cm_id_remove(c->file, id));
	return 0;
}

/* Migrates an identifier from the file whose descriptor the program passes to this file. */
static int
migrate_id(struct call *c)
{
	const struct rdma_ucm_migrate_id *in = &c->in.migrate_id;
	bool closed;
	struct kv_cm_file *from = kv_cm_file_get((int)in->fd, &closed);
	int ret;

	if (from == NULL)
		return kv_refuse(-EINVAL, "migrate_id: fd is not a channel of karst");
	/* each attachment has its own identifier numbers */
	if (from->pid != getpid())
		ret = kv_refuse(-EACCES, kv_cm_parents);
	else if (from->engine != c->file->engine)
		ret = kv_refuse(
			-EINVAL, "migrate_id: one of the channels is of an engine that has ended");
	else
		ret = kv_cm_id_check(from, in->id);
	if (ret == 0)
		ret = karst_rdmacm_migrate_id(
			c->file->channel, in->id, &c->out.migrate.events_reported);
	if (ret == 0)
		kv_cm_id_move(from, c->file, in->id);
	kv_cm_file_put(from);
	return ret;
}

static int
set_option(struct call *c)
{
	const struct rdma_ucm_set_option *in = &c->in.set_option;
	int ret = kv_cm_id_check(c->file, in->id);

	if (ret != 0)
		return ret;
	return karst_rdmacm_set_option(c->karst, in->id, (int)in->level, (int)in->optname,
		(const void *)(uintptr_t)in->optval, in->optlen);
}

/* --- addresses --- */

static const char not_ip[] = "an address that is neither of IPv4 nor of IPv6";

static bool
is_ip(const struct sockaddr_in6 *addr)
{
	return addr->sin6_family == AF_INET || addr->sin6_family == AF_INET6;
}

/* Is @addr in 127.0.0.0/8, or ::1?  Stores its GID. */
static bool
loopback_gid(const struct sockaddr_in6 *addr, union karst_gid *gid)
{
	static const union karst_gid v4_mapped = {.raw = {[10] = 0xff, [11] = 0xff}},
				     v6_loopback = {.raw = {[15] = 1}};
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)addr;

	if (addr->sin6_family == AF_INET6) {
		memcpy(gid->raw, &addr->sin6_addr, sizeof(gid->raw));
		return memcmp(gid, &v6_loopback, sizeof(*gid)) == 0;
	}
	*gid = v4_mapped;
	memcpy(gid->raw + 12, &v4->sin_addr, 4);
	return gid->raw[12] == 127;
}

static bool
is_ports_own(struct karst_context *karst, const union karst_gid *gid)
{
	size_t max = (size_t)karst->nports * MAX_PORT_GIDS;
	struct karst_gid_entry *e = calloc(max, sizeof(*e));
	int i, n = e != NULL ? karst_query_gid_table(karst, e, max) : 0;
	bool found = false;

	for (i = 0; i < n && !found; i++)
		found = memcmp(&e[i].gid, gid, sizeof(*gid)) == 0;
	free(e);
	return found;
}

/* Replaces a loopback address by the wildcard address unless a port has it.  The kernel treats a
 * loopback address as the wildcard; with karst a port may have it. */
static void
loopback_to_any(struct call *c, struct sockaddr_in6 *addr)
{
	union karst_gid gid;

	if (!loopback_gid(addr, &gid) || is_ports_own(c->karst, &gid))
		return;
	if (addr->sin6_family == AF_INET6)
		memset(&addr->sin6_addr, 0, sizeof(addr->sin6_addr));
	else
		((struct sockaddr_in *)addr)->sin_addr.s_addr = 0;
}

/* A local address that is link-local must name its link, as in the kernel.  libkarst would accept
 * it for any port that has it. */
static int
check_own(const struct sockaddr_in6 *addr)
{
	const uint8_t *ip = (const uint8_t *)&addr->sin6_addr;

	if (addr->sin6_family == AF_INET6 && ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80 &&
		addr->sin6_scope_id == 0)
		return kv_refuse(-EINVAL, "a link-local address needs sin6_scope_id");
	return 0;
}

static int
bind_ip(struct call *c)
{
	struct rdma_ucm_bind_ip *in = &c->in.bind_ip;
	int ret = kv_cm_id_check(c->file, in->id);

	if (ret == 0 && !is_ip(&in->addr))
		ret = kv_refuse(-EINVAL, not_ip);
	if (ret == 0)
		ret = check_own(&in->addr);
	if (ret != 0)
		return ret;
	loopback_to_any(c, &in->addr);
	return karst_rdmacm_bind(c->karst, in->id, (const struct sockaddr *)&in->addr);
}

static int
resolve_ip(struct call *c)
{
	struct rdma_ucm_resolve_ip *in = &c->in.resolve_ip;
	bool has_src = in->src_addr.sin6_family != 0;
	int ret = kv_cm_id_check(c->file, in->id);

	if (ret == 0 && (!is_ip(&in->dst_addr) || (has_src && !is_ip(&in->src_addr))))
		ret = kv_refuse(-EINVAL, not_ip);
	if (ret == 0 && has_src)
		ret = check_own(&in->src_addr);
	if (ret != 0)
		return ret;
	if (has_src)
		loopback_to_any(c, &in->src_addr);
	loopback_to_any(c, &in->dst_addr);
	return karst_rdmacm_resolve_addr(c->karst, in->id,
		has_src ? (const struct sockaddr *)&in->src_addr : NULL,
		(const struct sockaddr *)&in->dst_addr, in->timeout_ms);
}

static int
resolve_route(struct call *c)
{
	const struct rdma_ucm_resolve_route *in = &c->in.resolve_route;
	int ret = kv_cm_id_check(c->file, in->id);

	return ret != 0 ? ret : karst_rdmacm_resolve_route(c->karst, in->id, in->timeout_ms);
}

static int
query_route(struct call *c)
{
	int ret = kv_cm_id_check(c->file, c->in.query.id);

	return ret != 0 ? ret : kv_cm_query_route(c->file, c->in.query.id, &c->out.route);
}

static int
init_qp_attr(struct call *c)
{
	const struct rdma_ucm_init_qp_attr *in = &c->in.init_qp_attr;
	int ret = kv_cm_id_check(c->file, in->id);

	return ret != 0 ? ret : kv_cm_init_qp_attr(c->file, in->id, in->qp_state, &c->out.qp_attr);
}

/* --- connecting --- */

/* Converts connection parameters.  @ece: zeros with an older librdmacm. */
static int
param_of(const struct rdma_ucm_conn_param *from, const struct rdma_ucm_ece *ece,
	struct karst_rdmacm_conn_param *to)
{
	if (from->private_data_len > sizeof(to->private_data))
		return kv_refuse(-EINVAL, "private_data_len exceeds that of any message");
	*to = (struct karst_rdmacm_conn_param){
		.private_data_len = from->private_data_len,
		.responder_resources = from->responder_resources,
		.initiator_depth = from->initiator_depth,
		.flow_control = from->flow_control,
		.retry_count = from->retry_count,
		.rnr_retry_count = from->rnr_retry_count,
		.srq = from->srq,
		.qp_num = from->qp_num & 0xffffff,
		.qkey = from->qkey,
		.ece = {.vendor_id = ece->vendor_id, .options = ece->attr_mod},
	};
	memcpy(to->private_data, from->private_data, from->private_data_len);
	return 0;
}

static int
listen_id(struct call *c)
{
	const struct rdma_ucm_listen *in = &c->in.listen;
	int ret = kv_cm_id_check(c->file, in->id);

	return ret != 0 ? ret : karst_rdmacm_listen(c->karst, in->id, (int)in->backlog);
}

static int
connect_id(struct call *c)
{
	const struct rdma_ucm_connect *in = &c->in.connect;
	struct karst_rdmacm_conn_param param;
	int ret = kv_cm_id_check(c->file, in->id);

	if (ret == 0 && !in->conn_param.valid)
		ret = kv_refuse(-EINVAL, "connect: conn_param.valid is 0");
	if (ret == 0)
		ret = param_of(&in->conn_param, &in->ece, &param);
	return ret != 0 ? ret : karst_rdmacm_connect(c->karst, in->id, &param);
}

/* Without parameters, this is the active side's confirmation that it has seen the response. */
static int
accept_id(struct call *c)
{
	const struct rdma_ucm_accept *in = &c->in.accept;
	bool has_param = in->conn_param.valid != 0;
	struct karst_rdmacm_conn_param param;
	int ret = kv_cm_id_check(c->file, in->id);

	if (ret == 0 && has_param)
		ret = param_of(&in->conn_param, &in->ece, &param);
	if (ret != 0)
		return ret;
	return karst_rdmacm_accept(c->karst, in->id, in->uid, has_param ? &param : NULL);
}

static int
reject_id(struct call *c)
{
	const struct rdma_ucm_reject *in = &c->in.reject;
	int ret = kv_cm_id_check(c->file, in->id);

	if (ret != 0)
		return ret;
	return karst_rdmacm_reject(
		c->karst, in->id, in->private_data, in->private_data_len, in->reason);
}

static int
disconnect_id(struct call *c)
{
	int ret = kv_cm_id_check(c->file, c->in.disconnect.id);

	return ret != 0 ? ret : karst_rdmacm_disconnect(c->karst, c->in.disconnect.id);
}

static int
notify_id(struct call *c)
{
	const struct rdma_ucm_notify *in = &c->in.notify;
	int ret = kv_cm_id_check(c->file, in->id);

	if (ret != 0)
		return ret;
	return karst_rdmacm_notify(c->karst, in->id, (enum karst_async_event_code)in->event);
}

static int
get_event(struct call *c)
{
	return kv_cm_get_event(c->file, c->cancel, &c->out.event);
}

/* --- groups --- */

static int
join_ip_mcast(struct call *c)
{
	const struct rdma_ucm_join_ip_mcast *in = &c->in.join_ip_mcast;
	int ret = kv_cm_id_check(c->file, in->id);

	if (ret == 0 && !is_ip(&in->addr))
		ret = kv_refuse(-EINVAL, not_ip);
	if (ret != 0)
		return ret;
	return karst_rdmacm_join_mcast(
		c->karst, in->id, (const struct sockaddr *)&in->addr, in->uid, &c->out.id.id);
}

static int
leave_mcast(struct call *c)
{
	return karst_rdmacm_leave_mcast(
		c->karst, c->in.destroy_id.id, &c->out.events.events_reported);
}

/* --- all of them --- */

struct command {
	int (*run)(struct call *c);
	uint16_t in_min, in;   /* bytes */
	uint16_t out_min, out; /* bytes; 0: no answer */
	uint16_t response;     /* offset of the output structure's address */
};

#define IN(type)            sizeof(struct rdma_ucm_##type), sizeof(struct rdma_ucm_##type)
#define IN_UP_TO(type, end) offsetof(struct rdma_ucm_##type, end), sizeof(struct rdma_ucm_##type)
#define OUT(type, in_type) \
	sizeof(struct type), sizeof(struct type), offsetof(struct rdma_ucm_##in_type, response)
#define OUT_UP_TO(type, end, in_type)                    \
	offsetof(struct type, end), sizeof(struct type), \
		offsetof(struct rdma_ucm_##in_type, response)
#define NOTHING 0, 0, 0

/* clang-format off */
static const struct command commands[] = {
	[RDMA_USER_CM_CMD_CREATE_ID] = {create_id, IN(create_id),
		OUT(rdma_ucm_create_id_resp, create_id)},
	[RDMA_USER_CM_CMD_DESTROY_ID] = {destroy_id, IN(destroy_id),
		OUT(rdma_ucm_destroy_id_resp, destroy_id)},
	[RDMA_USER_CM_CMD_BIND_IP] = {bind_ip, IN(bind_ip), NOTHING},
	[RDMA_USER_CM_CMD_RESOLVE_IP] = {resolve_ip, IN(resolve_ip), NOTHING},
	[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = {resolve_route, IN(resolve_route), NOTHING},
	[RDMA_USER_CM_CMD_QUERY_ROUTE] = {query_route, IN_UP_TO(query, option),
		OUT_UP_TO(rdma_ucm_query_route_resp, ibdev_index, query)},
	[RDMA_USER_CM_CMD_CONNECT] = {connect_id, IN_UP_TO(connect, ece), NOTHING},
	[RDMA_USER_CM_CMD_LISTEN] = {listen_id, IN(listen), NOTHING},
	[RDMA_USER_CM_CMD_ACCEPT] = {accept_id, IN_UP_TO(accept, ece), NOTHING},
	[RDMA_USER_CM_CMD_REJECT] = {reject_id, IN(reject), NOTHING},
	[RDMA_USER_CM_CMD_DISCONNECT] = {disconnect_id, IN(disconnect), NOTHING},
	[RDMA_USER_CM_CMD_INIT_QP_ATTR] = {init_qp_attr, IN(init_qp_attr),
		OUT(ib_uverbs_qp_attr, init_qp_attr)},
	[RDMA_USER_CM_CMD_GET_EVENT] = {get_event, IN(get_event),
		OUT_UP_TO(rdma_ucm_event_resp, reserved, get_event)},
	[RDMA_USER_CM_CMD_SET_OPTION] = {set_option, IN(set_option), NOTHING},
	[RDMA_USER_CM_CMD_NOTIFY] = {notify_id, IN(notify), NOTHING},
	[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = {join_ip_mcast, IN(join_ip_mcast),
		OUT(rdma_ucm_create_id_resp, join_ip_mcast)},
	[RDMA_USER_CM_CMD_LEAVE_MCAST] = {leave_mcast, IN(destroy_id),
		OUT(rdma_ucm_destroy_id_resp, destroy_id)},
	[RDMA_USER_CM_CMD_MIGRATE_ID] = {migrate_id, IN(migrate_id),
		OUT(rdma_ucm_migrate_resp, migrate_id)},
	[RDMA_USER_CM_CMD_JOIN_MCAST] = {0}, /* the last command; not supported */
};
/* clang-format on */

static uint16_t
min_u16(uint16_t a, uint16_t b)
{
	return a < b ? a : b;
}

/* @return the command; NULL: refused, with a negative errno in *@ret */
static const struct command *
command_of(const struct rdma_ucm_cmd_hdr *hdr, size_t len, int *ret)
{
	const struct command *cmd;

	if (hdr->cmd >= KARST_DIM(commands) || hdr->in > len - sizeof(*hdr)) {
		*ret = kv_refuse(-EINVAL, "rdma_cm: unknown command, or length does not fit");
		return NULL;
	}
	cmd = &commands[hdr->cmd];
	if (cmd->run == NULL)
		*ret = kv_refuse(-ENOSYS, "rdma_cm: command is not supported");
	else if (hdr->in < cmd->in_min)
		*ret = kv_refuse(-EINVAL, "rdma_cm: command is shorter than its structure");
	else if (hdr->out < cmd->out_min)
		*ret = kv_refuse(-ENOSPC, "rdma_cm: out is smaller than the reply");
	else
		return cmd;
	return NULL;
}

ssize_t
kv_cm_command(struct kv_cm_file *file, int cancel, const void *buf, size_t len)
{
	struct call c;
	const uint8_t *in = (const uint8_t *)buf + sizeof(struct rdma_ucm_cmd_hdr);
	const struct command *cmd;
	struct rdma_ucm_cmd_hdr hdr;
	uint64_t response;
	int ret = 0;

	if (len < sizeof(hdr))
		return kv_refuse(-EINVAL, "rdma_cm: write is shorter than a command header");
	memcpy(&hdr, buf, sizeof(hdr));
	cmd = command_of(&hdr, len, &ret);
	if (cmd == NULL)
		return ret;
	/* an initialiser would only have to set the first member of each union; what an older
	 * interface does not have is 0 */
	memset(&c, 0, sizeof(c));
	c.file = file;
	c.karst = file->engine->karst;
	c.cancel = cancel;
	memcpy(&c.in, in, min_u16(hdr.in, cmd->in));
	ret = cmd->run(&c);
	if (ret != 0)
		return ret;
	if (cmd->out != 0) {
		memcpy(&response, (const uint8_t *)&c.in + cmd->response, sizeof(response));
		memcpy((void *)(uintptr_t)response, &c.out, min_u16(hdr.out, cmd->out));
	}
	return (ssize_t)len;
}
