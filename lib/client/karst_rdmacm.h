/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Connection management: the calls of librdmacm, over the connection manager of the engine, which
 * speaks the InfiniBand CM protocol with its peers (RDMA_CM of Linux among them).
 *
 * Identifiers are numbers of the context, never 0; what happens to one is told as an event of its
 * channel.  Queue pairs are the program's: it takes the attributes for each step from
 * karst_rdmacm_init_qp_attr() and modifies them itself, as its events ask for it.
 *
 *	active:  create_id, resolve_addr -> ADDR_RESOLVED, resolve_route -> ROUTE_RESOLVED,
 *	         connect -> CONNECT_RESPONSE, [QP to RTR, RTS], accept without parameters
 *	passive: create_id, bind, listen -> CONNECT_REQUEST with a new identifier, [QP to RTR, RTS],
 *	         accept -> ESTABLISHED
 *	end:     disconnect -> DISCONNECTED on both sides, destroy_id
 *
 * With KARST_RDMACM_PS_UDP it is one question and one answer, without a connection: connect ->
 * ESTABLISHED with number, Q_Key and address of the peer's queue pair.
 *
 * No call waits for a peer or for an event.  Calls return 0 or a negative errno; on failure nothing
 * has changed.  From all: -EINVAL: no such identifier, or not in its state; -EIO: the engine is
 * gone; -EPERM: the context was inherited by a fork.  Threads: any.
 */
#ifndef KARST_RDMACM_H
#define KARST_RDMACM_H

#include <sys/socket.h>

#include "karst.h"

#ifdef __cplusplus
extern "C" {
#endif

/* enum karst_rdmacm_port_space and enum karst_rdmacm_event_type are in karst_verbs.h. */

/* --- channels, events --- */

/** Where the events of its identifiers wait. */
struct karst_rdmacm_channel {
	struct karst_context *context;
	int fd; /* readable while an event waits, at its end when the engine is gone; for poll() and
		 * its like only: reading is karst_rdmacm_get_event()'s */
	uint32_t handle;
};

/** -ENOSPC: the engine's limit for one program. */
int karst_rdmacm_create_channel(struct karst_context *ctx, struct karst_rdmacm_channel **channel);
/** Its identifiers are destroyed or on other channels: -EBUSY otherwise. */
int karst_rdmacm_destroy_channel(struct karst_rdmacm_channel *channel);

#define KARST_RDMACM_PRIVATE_DATA 224u

/** What connect and accept offer, and events bring. */
struct karst_rdmacm_conn_param {
	uint8_t private_data[KARST_RDMACM_PRIVATE_DATA];
	uint8_t private_data_len; /* what an event brings is padded to what the message carries */
	uint8_t responder_resources; /* READs and atomics that one's own QP takes at a time */
	uint8_t initiator_depth;     /* that it sends at a time */
	uint8_t flow_control;
	uint8_t retry_count;     /* connect; 0 to 7, and more means 7 */
	uint8_t rnr_retry_count; /* the same; 7 is for ever */
	uint8_t srq;
	uint32_t qp_num;
	uint32_t qkey; /* UDP: 0 with accept: the one of the port space */
	/* RC.  connect: what is offered to the peer, as of karst_query_ece(), or all 0 (-EINVAL
	 * anything else); accept: the answer to its offer, as of karst_set_ece(), anything else
	 * is not said.  CONNECT_REQUEST: what the peer offers; CONNECT_RESPONSE: what it has
	 * answered; all 0: nothing, or nothing that this engine understands */
	struct karst_ece ece;
};

/** What one has to know to send to a UD queue pair or to a group. */
struct karst_rdmacm_ud_param {
	struct karst_ah_attr ah_attr;
	uint32_t qp_num;
	uint32_t qkey;
};

struct karst_rdmacm_event {
	uint64_t uid; /* of @id; of the group with MULTICAST_*; of the listener with
		       * CONNECT_REQUEST */
	uint32_t id;  /* the identifier, or the group; with CONNECT_REQUEST a new identifier */
	uint32_t listen_id; /* CONNECT_REQUEST: who listened; else 0 */
	enum karst_rdmacm_event_type event;
	/* 0; *_ERROR, UNREACHABLE: a negative errno, or the status of a peer's answer to a UDP
	 * connect; REJECTED: the reason, a number of the CM protocol; DISCONNECTED: -ETIMEDOUT if
	 * the peer has not answered */
	int status;
	/* CONNECT_REQUEST, CONNECT_RESPONSE: what the peer offers, with the resources as one's own
	 * parameters may take them over; REJECTED, ESTABLISHED of UDP's active side: its private
	 * data */
	struct karst_rdmacm_conn_param conn;
	/* ESTABLISHED of UDP's active side, MULTICAST_JOIN */
	struct karst_rdmacm_ud_param ud;
};

/** Takes the oldest event.  -EAGAIN: there is none; it never waits. */
int karst_rdmacm_get_event(struct karst_rdmacm_channel *channel, struct karst_rdmacm_event *event);

/* --- identifiers --- */

/**
 * @uid: what events call it.  @qp_type: KARST_QPT_RC, _UC, _XRC_SEND, _XRC_RECV with PS_TCP, _UD
 * with PS_UDP.  -EINVAL: another one; -EPROTONOSUPPORT: another port space; -ENOSPC: the engine's
 * limit, of one program or of all.
 */
int karst_rdmacm_create_id(struct karst_rdmacm_channel *channel, uint64_t uid,
	enum karst_rdmacm_port_space ps, enum karst_qp_type qp_type, uint32_t *id);
/** Ends whatever it is in: a request is rejected, a connection disconnected.  Its groups are left,
 *  its events that wait are gone.  *@events (may be NULL): events that were got of it and of its
 *  groups. */
int karst_rdmacm_destroy_id(struct karst_context *ctx, uint32_t id, uint32_t *events);
/** Further events, and those that wait, come by @channel, of the same context.  *@events as with
 *  destroy. */
int karst_rdmacm_migrate_id(struct karst_rdmacm_channel *channel, uint32_t id, uint32_t *events);

/**
 * An address of a port of the engine, or a wildcard; AF_INET or AF_INET6.  Port number 0: a free
 * one from 32768 to 60999.
 * -EAFNOSUPPORT; -EADDRNOTAVAIL: no port has the address; -EADDRINUSE; -EACCES: below 1024, and the
 * program is not root's.
 */
int karst_rdmacm_bind(struct karst_context *ctx, uint32_t id, const struct sockaddr *addr);

/**
 * Chooses the port and the source address (unless bound, or @src is given) for @dst, and looks for
 * the way there: ADDR_RESOLVED or ADDR_ERROR (-ETIMEDOUT, -EHOSTUNREACH).  A wildcard @dst is this
 * engine itself.
 * -ENETUNREACH: no port leads there; or as karst_rdmacm_bind().
 */
int karst_rdmacm_resolve_addr(struct karst_context *ctx, uint32_t id, const struct sockaddr *src,
	const struct sockaddr *dst, uint32_t timeout_ms);
/** ROUTE_RESOLVED.  @timeout_ms has no meaning with RoCE. */
int karst_rdmacm_resolve_route(struct karst_context *ctx, uint32_t id, uint32_t timeout_ms);

/** Binds to any address and a free port number if it is not bound.  @backlog: requests that wait to
 *  be got, further ones are rejected; at most, and with 0 or less, 1024. */
int karst_rdmacm_listen(struct karst_context *ctx, uint32_t id, int backlog);

/** Asks the peer: CONNECT_RESPONSE (TCP), ESTABLISHED (UDP), REJECTED, UNREACHABLE.  -EINVAL also:
 *  more than 56 bytes (UDP: 180) of private data. */
int karst_rdmacm_connect(
	struct karst_context *ctx, uint32_t id, const struct karst_rdmacm_conn_param *param);
/**
 * Passive: answers a request; ESTABLISHED follows (not with UDP).  @uid becomes the identifier's.
 * -EINVAL also: more than 196 bytes (UDP: 136) of private data.
 * Active, after CONNECT_RESPONSE: @param is NULL, and the queue pair is in RTS; no event follows.
 */
int karst_rdmacm_accept(struct karst_context *ctx, uint32_t id, uint64_t uid,
	const struct karst_rdmacm_conn_param *param);
/** @reason: of the CM protocol; 0: 28, the consumer's.  Up to 148 bytes (UDP: 136) of private
 *  data. */
int karst_rdmacm_reject(struct karst_context *ctx, uint32_t id, const void *private_data,
	uint8_t private_data_len, uint8_t reason);
/** Asks the peer to disconnect, or answers that it has. */
int karst_rdmacm_disconnect(struct karst_context *ctx, uint32_t id);
/** The queue pair of @id had @event: KARST_EVENT_COMM_EST and nothing else; ESTABLISHED follows.
 *  -EISCONN: the connection is established, and ESTABLISHED has come or is under way. */
int karst_rdmacm_notify(struct karst_context *ctx, uint32_t id, enum karst_async_event_code event);

/**
 * Attributes and *@mask for karst_modify_qp() of the queue pair of @id to @state: INIT as soon as a
 * port is known, RTR and RTS (RC, UC, XRC) once the peer's numbers are known.
 */
int karst_rdmacm_init_qp_attr(struct karst_context *ctx, uint32_t id, enum karst_qp_state state,
	struct karst_qp_attr *attr, unsigned int *mask);

struct karst_rdmacm_query {
	struct sockaddr_storage src; /* ss_family 0: none yet */
	struct sockaddr_storage dst;
	uint32_t port_num; /* of the engine, from 1; 0: none yet */
	uint32_t paths;    /* 1: what follows is valid; 0: the route is not resolved yet */
	union karst_gid sgid;
	union karst_gid dgid;
	uint32_t flow_label;
	uint16_t pkey;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t sl;
	uint8_t packet_life_time; /* 4.096 us * 2^n */
	enum karst_mtu path_mtu;
};

int karst_rdmacm_query(struct karst_context *ctx, uint32_t id, struct karst_rdmacm_query *query);

/** The values are those of RDMA_OPTION_ID_*. */
enum karst_rdmacm_option {
	KARST_RDMACM_OPTION_TOS = 0,         /* uint8_t; before resolve_addr's event or any time */
	KARST_RDMACM_OPTION_REUSEADDR = 1,   /* int */
	KARST_RDMACM_OPTION_AFONLY = 2,      /* int; before bind */
	KARST_RDMACM_OPTION_ACK_TIMEOUT = 3, /* uint8_t; 0 to 31, instead of what the path says */
};

/** @level: 0.  -ENOSYS: another level or option. */
int karst_rdmacm_set_option(struct karst_context *ctx, uint32_t id, int level, int option,
	const void *value, size_t len);

/**
 * Asks for what one has to know of the group @addr (IPv4 224/4, ff00::/8): MULTICAST_JOIN.
 * Receiving is karst_attach_mcast()'s.  Routers learn of it then (IGMP, MLD).  UDP
 * only.  @uid: what events call the group.  -EINVAL: not a group; -ENOSPC: a limit.
 */
int karst_rdmacm_join_mcast(struct karst_context *ctx, uint32_t id, const struct sockaddr *addr,
	uint64_t uid, uint32_t *group);
/** *@events (may be NULL): events that were got of the group. */
int karst_rdmacm_leave_mcast(struct karst_context *ctx, uint32_t group, uint32_t *events);

/** As "RDMA_CM_EVENT_ESTABLISHED" without its prefix. */
const char *karst_rdmacm_event_str(enum karst_rdmacm_event_type event);

#ifdef __cplusplus
}
#endif

#endif /* KARST_RDMACM_H */
