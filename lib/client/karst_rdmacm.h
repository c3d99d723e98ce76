/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Connection management: the calls of librdmacm, over the connection manager of the engine, which
 * uses the InfiniBand CM protocol with its peers (Linux's RDMA_CM is one of them).
 *
 * Identifiers are numbers of the context, never 0.  The channel of an identifier reports what
 * happens to it as events.  Queue pairs belong to the program: it gets the attributes for each step
 * from karst_rdmacm_init_qp_attr() and modifies the queue pairs itself, when its events require
 * that.
 *
 *   active:  create_id, resolve_addr -> ADDR_RESOLVED, resolve_route -> ROUTE_RESOLVED,
 *            connect -> CONNECT_RESPONSE, [QP to RTR, RTS], accept without parameters
 *   passive: create_id, bind, listen -> CONNECT_REQUEST with a new identifier, [QP to RTR, RTS],
 *            accept -> ESTABLISHED
 *   end:     disconnect -> DISCONNECTED on both sides, destroy_id
 *
 * With KARST_RDMACM_PS_UDP there is one request and one reply, without a connection: connect ->
 * ESTABLISHED with the number, Q_Key and address of the peer's queue pair.
 *
 * No call waits for a peer or for an event.  Calls return 0 or a negative errno; a call that fails
 * has changed nothing.  All calls may return -EINVAL: there is no such identifier, or its state
 * does not allow the call; -EIO: the engine is gone; -EPERM: the context was inherited by a fork.
 * Threads: any.
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

/** A queue of the events of its identifiers. */
struct karst_rdmacm_channel {
	struct karst_context *context;
	int fd; /* readable while an event waits; at end of file when the engine is gone.  Only
		 * for poll() and similar calls: karst_rdmacm_get_event() does the reading. */
	uint32_t handle;
};

/** -ENOSPC: the engine's limit for one program is reached. */
int karst_rdmacm_create_channel(struct karst_context *ctx, struct karst_rdmacm_channel **channel);
/** -EBUSY: the channel still has identifiers; they have to be destroyed or migrated first. */
int karst_rdmacm_destroy_channel(struct karst_rdmacm_channel *channel);

#define KARST_RDMACM_PRIVATE_DATA 224u

/** The parameters that connect and accept offer, and that events report. */
struct karst_rdmacm_conn_param {
	uint8_t private_data[KARST_RDMACM_PRIVATE_DATA];
	uint8_t private_data_len;    /* in an event: with the padding that the message carries */
	uint8_t responder_resources; /* READs and atomics that the own QP accepts at a time */
	uint8_t initiator_depth;     /* READs and atomics that the own QP sends at a time */
	uint8_t flow_control;
	uint8_t retry_count;     /* connect; 0 to 7, more than 7 means 7 */
	uint8_t rnr_retry_count; /* the same; 7 means no limit */
	uint8_t srq;
	uint32_t qp_num;
	uint32_t qkey; /* UDP; 0 with accept: the Q_Key of the port space */
	/* RC only. connect: what is offered to the peer, as karst_query_ece() returned it, or all 0
	 * (anything else: -EINVAL). accept: the answer to the peer's offer, as karst_set_ece()
	 * returned it; anything else is not sent.  CONNECT_REQUEST: what the peer offers.
	 * CONNECT_RESPONSE: what the peer has answered.  All 0: nothing, or nothing that this
	 * engine understands. */
	struct karst_ece ece;
};

/** What a program needs to send to a UD queue pair or to a group. */
struct karst_rdmacm_ud_param {
	struct karst_ah_attr ah_attr;
	uint32_t qp_num;
	uint32_t qkey;
};

struct karst_rdmacm_event {
	uint64_t uid; /* of @id; of the group with MULTICAST_*; of the listener with
		       * CONNECT_REQUEST */
	uint32_t id;  /* the identifier, or the group; with CONNECT_REQUEST a new identifier */
	uint32_t listen_id; /* CONNECT_REQUEST: the listener; else 0 */
	enum karst_rdmacm_event_type event;
	/* 0, or: with *_ERROR and UNREACHABLE a negative errno, or the status of a peer's answer to
	 * a UDP connect; with REJECTED the reason, a number of the CM protocol; with DISCONNECTED
	 * -ETIMEDOUT if the peer has not answered. */
	int status;
	/* CONNECT_REQUEST, CONNECT_RESPONSE: what the peer offers, with the resources in the form
	 * in which the program can use them as its own parameters.  REJECTED, and ESTABLISHED on
	 * UDP's active side: the peer's private data. */
	struct karst_rdmacm_conn_param conn;
	/* ESTABLISHED on UDP's active side, MULTICAST_JOIN */
	struct karst_rdmacm_ud_param ud;
};

/** Takes the oldest event.  Never waits.  -EAGAIN: there is no event. */
int karst_rdmacm_get_event(struct karst_rdmacm_channel *channel, struct karst_rdmacm_event *event);

/* --- identifiers --- */

/**
 * @uid: the user context that events of the identifier carry.  @qp_type: KARST_QPT_RC, _UC,
 * _XRC_SEND, _XRC_RECV with PS_TCP, _UD with PS_UDP.
 * -EINVAL: another type; -EPROTONOSUPPORT: another port space; -ENOSPC: the engine's limit for one
 * program or for all programs is reached.
 */
int karst_rdmacm_create_id(struct karst_rdmacm_channel *channel, uint64_t uid,
	enum karst_rdmacm_port_space ps, enum karst_qp_type qp_type, uint32_t *id);
/**
 * Ends what the identifier is engaged in: a request is rejected, a connection is disconnected.  The
 * identifier leaves its groups, and its pending events are discarded.  *@events (may be NULL): the
 * number of events of the identifier and of its groups that were returned.
 */
int karst_rdmacm_destroy_id(struct karst_context *ctx, uint32_t id, uint32_t *events);
/**
 * Moves pending and further events of the identifier to @channel, which belongs to the same
 * context.  *@events as with karst_rdmacm_destroy_id().
 */
int karst_rdmacm_migrate_id(struct karst_rdmacm_channel *channel, uint32_t id, uint32_t *events);

/**
 * Binds to an address of a port of the engine, or to a wildcard; AF_INET or AF_INET6.  Port number
 * 0: a free one from 32768 to 60999.
 * -EAFNOSUPPORT; -EADDRNOTAVAIL: no port has the address; -EADDRINUSE; -EACCES: the port number is
 * below 1024, and the program does not run as root.
 */
int karst_rdmacm_bind(struct karst_context *ctx, uint32_t id, const struct sockaddr *addr);

/**
 * Chooses the port and the source address for @dst (unless the identifier is bound or @src is
 * given), and resolves the path: ADDR_RESOLVED or ADDR_ERROR (-ETIMEDOUT, -EHOSTUNREACH) follows.
 * A wildcard @dst means this engine itself.
 * -ENETUNREACH: no port leads to @dst; or the errors of karst_rdmacm_bind().
 */
int karst_rdmacm_resolve_addr(struct karst_context *ctx, uint32_t id, const struct sockaddr *src,
	const struct sockaddr *dst, uint32_t timeout_ms);
/** ROUTE_RESOLVED follows.  @timeout_ms has no meaning with RoCE. */
int karst_rdmacm_resolve_route(struct karst_context *ctx, uint32_t id, uint32_t timeout_ms);

/**
 * Listens.  If the identifier is not bound, binds it to any address and a free port number.
 * @backlog: the number of requests that may be pending; further ones are rejected.  At most 1024,
 * which is also what 0 or less means.
 */
int karst_rdmacm_listen(struct karst_context *ctx, uint32_t id, int backlog);

/**
 * Sends a connect request: CONNECT_RESPONSE (TCP), ESTABLISHED (UDP), REJECTED or UNREACHABLE
 * follows.
 * -EINVAL also: more than 56 bytes (UDP: 180) of private data.
 */
int karst_rdmacm_connect(
	struct karst_context *ctx, uint32_t id, const struct karst_rdmacm_conn_param *param);
/**
 * Passive side: accepts a request; ESTABLISHED follows (not with UDP).  @uid becomes the
 * identifier's user context.
 * -EINVAL also: more than 196 bytes (UDP: 136) of private data.
 *
 * Active side, after CONNECT_RESPONSE: @param is NULL, and the queue pair is in RTS; no event
 * follows.
 */
int karst_rdmacm_accept(struct karst_context *ctx, uint32_t id, uint64_t uid,
	const struct karst_rdmacm_conn_param *param);
/**
 * @reason: of the CM protocol; 0 means 28, rejected by the consumer.  Up to 148 bytes (UDP: 136) of
 * private data.
 */
int karst_rdmacm_reject(struct karst_context *ctx, uint32_t id, const void *private_data,
	uint8_t private_data_len, uint8_t reason);
/** Asks the peer to disconnect, or answers the peer's request to disconnect. */
int karst_rdmacm_disconnect(struct karst_context *ctx, uint32_t id);
/**
 * Reports that the queue pair of @id had @event, which must be KARST_EVENT_COMM_EST; ESTABLISHED
 * follows.
 * -EISCONN: the connection is established already, and ESTABLISHED was reported or will be.
 */
int karst_rdmacm_notify(struct karst_context *ctx, uint32_t id, enum karst_async_event_code event);

/**
 * Returns the attributes and *@mask with which karst_modify_qp() moves the queue pair of @id to
 * @state: INIT as soon as a port is known, RTR and RTS (RC, UC, XRC) once the peer's numbers are
 * known.
 */
int karst_rdmacm_init_qp_attr(struct karst_context *ctx, uint32_t id, enum karst_qp_state state,
	struct karst_qp_attr *attr, unsigned int *mask);

struct karst_rdmacm_query {
	struct sockaddr_storage src; /* ss_family 0: none yet */
	struct sockaddr_storage dst;
	uint32_t port_num; /* of the engine, from 1; 0: none yet */
	uint32_t paths;    /* 1: the following members are valid; 0: the route is not resolved
			    * yet */
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
	KARST_RDMACM_OPTION_TOS = 0,         /* uint8_t; before ADDR_RESOLVED or at any time */
	KARST_RDMACM_OPTION_REUSEADDR = 1,   /* int */
	KARST_RDMACM_OPTION_AFONLY = 2,      /* int; before bind */
	KARST_RDMACM_OPTION_ACK_TIMEOUT = 3, /* uint8_t; 0 to 31, instead of the value of the
					      * path */
};

/** @level: 0.  -ENOSYS: another level or option. */
int karst_rdmacm_set_option(struct karst_context *ctx, uint32_t id, int level, int option,
	const void *value, size_t len);

/**
 * Asks for the parameters of the group @addr (IPv4 224/4, ff00::/8); MULTICAST_JOIN reports them.
 * Routers are told of the membership then (IGMP, MLD).  To receive, the program also has to call
 * karst_attach_mcast().  UDP only.  @uid: the user context that events of the group carry.
 * -EINVAL: not a group; -ENOSPC: a limit is reached.
 */
int karst_rdmacm_join_mcast(struct karst_context *ctx, uint32_t id, const struct sockaddr *addr,
	uint64_t uid, uint32_t *group);
/** *@events (may be NULL): the number of events of the group that were returned. */
int karst_rdmacm_leave_mcast(struct karst_context *ctx, uint32_t group, uint32_t *events);

/** Returns the name, such as "ESTABLISHED" for RDMA_CM_EVENT_ESTABLISHED. */
const char *karst_rdmacm_event_str(enum karst_rdmacm_event_type event);

#ifdef __cplusplus
}
#endif

#endif /* KARST_RDMACM_H */
