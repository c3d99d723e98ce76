/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Messages of connection management; part of karst_ctl.h.  karst_rdmacm.h (lib/client) describes
 * the calls that they carry.
 *
 * Identifiers, groups and channels of events are handles of this connection, with a number space
 * for each kind.
 */
#ifndef KARST_CTL_CM_H
#define KARST_CTL_CM_H

#include "karst_ctl.h"

/**
 * An address.  @family: 0 none, 2 IPv4, 10 IPv6, as in Linux.  @scope_id: for a link-local address
 * the port, from 1, or 0 for any port; otherwise without meaning.
 */
struct karst_ctl_cm_addr {
	uint16_t family;
	uint16_t port_number; /* of the port space; in host order like all other members */
	uint32_t scope_id;
	uint8_t ip[16]; /* IPv4: as ::ffff:a.b.c.d */
};
static_assert(sizeof(struct karst_ctl_cm_addr) == 24, "layout");

#define KARST_CTL_CM_PRIVATE_DATA 224u

struct karst_ctl_cm_param {
	uint8_t private_data[KARST_CTL_CM_PRIVATE_DATA];
	uint8_t private_data_len;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count; /* this and the next: more than 7 means 7 */
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint8_t reserved;
	uint32_t qpn;
	uint32_t qkey;
};
static_assert(sizeof(struct karst_ctl_cm_param) == 240, "layout");

/**
 * Descriptor of the reply: the reading end of a stream that shows whether events wait, see Streams.
 */
struct karst_ctl_cm_create_channel_req {
	uint64_t reserved;
};
struct karst_ctl_cm_create_channel_rsp {
	uint32_t channel;
	uint32_t reserved;
};
/** -EBUSY: identifiers use it. */
struct karst_ctl_cm_destroy_channel_req {
	uint32_t channel;
	uint32_t reserved;
};

/** -EAGAIN: there is no event. */
struct karst_ctl_cm_get_event_req {
	uint32_t channel;
	uint32_t reserved;
};
struct karst_ctl_cm_get_event_rsp {
	uint64_t uid;
	uint32_t id;        /* or the group; with a connect request the new identifier */
	uint32_t listen_id; /* connect request */
	uint32_t event;     /* enum rdma_cm_event_type */
	int32_t status;
	uint32_t emptied; /* 1: it was the last event; the program has to read a byte of the
			   * stream */
	uint32_t ud_qpn, ud_qkey;
	uint32_t reserved;
	struct karst_ctl_cm_param param;
	struct karst_ctl_ah_attr ah; /* with ud_qpn */
	/* connect request: what the peer offers; connect response: what it has answered.  All 0:
	 * nothing that this engine understands or accepts */
	struct karst_ctl_ece ece;
};

struct karst_ctl_cm_create_id_req {
	uint64_t uid; /* user context, returned in events */
	uint32_t channel;
	uint16_t port_space; /* 0x0106 TCP, 0x0111 UDP */
	uint8_t qp_type;     /* enum karst_qp_type */
	uint8_t reserved;
};
struct karst_ctl_cm_create_id_rsp {
	uint32_t id;
	uint32_t reserved;
};
struct karst_ctl_cm_destroy_id_req {
	uint32_t id;
	uint32_t reserved;
};
struct karst_ctl_cm_destroy_id_rsp {
	uint32_t events;  /* events of the identifier that were returned */
	uint32_t emptied; /* 1: its events were the last ones of @channel, as with CM_GET_EVENT */
	uint32_t channel; /* the channel of the identifier */
	uint32_t reserved;
};
struct karst_ctl_cm_migrate_id_req {
	uint32_t id;
	uint32_t channel;
};
struct karst_ctl_cm_migrate_id_rsp {
	uint32_t events; /* as with CM_DESTROY_ID */
	uint32_t emptied;
	uint32_t channel;
	uint32_t reserved;
};

struct karst_ctl_cm_bind_req {
	uint32_t id;
	uint32_t reserved;
	struct karst_ctl_cm_addr addr;
};
struct karst_ctl_cm_resolve_addr_req {
	uint32_t id;
	uint32_t timeout_ms;
	struct karst_ctl_cm_addr src; /* family 0: as bound, or the engine chooses */
	struct karst_ctl_cm_addr dst;
};
struct karst_ctl_cm_resolve_route_req {
	uint32_t id;
	uint32_t timeout_ms;
};
struct karst_ctl_cm_listen_req {
	uint32_t id;
	uint32_t backlog; /* 0: the maximum */
};
/** -EINVAL also: "ece" is neither what QUERY_ECE returned nor all 0. */
struct karst_ctl_cm_connect_req {
	uint32_t id;
	uint32_t reserved;
	struct karst_ctl_cm_param param;
	struct karst_ctl_ece ece; /* the offer, if the configuration enables ECE; RC only */
};
struct karst_ctl_cm_accept_req {
	uint32_t id;
	uint32_t flags; /* KARST_CTL_CM_ACCEPT_* */
	uint64_t uid;
	struct karst_ctl_cm_param param;
	/* the answer to an offer, as SET_ECE returned it; anything else is not sent to the peer */
	struct karst_ctl_ece ece;
};
#define KARST_CTL_CM_ACCEPT_PARAM (1u << 0) /* passive side; connect response: all 0 */
/** Only private data is used of the parameters. */
struct karst_ctl_cm_reject_req {
	uint32_t id;
	uint32_t reason; /* 0 means 28, rejected by the consumer */
	struct karst_ctl_cm_param param;
};
struct karst_ctl_cm_disconnect_req {
	uint32_t id;
	uint32_t reserved;
};
struct karst_ctl_cm_notify_req {
	uint32_t id;
	uint32_t event; /* enum karst_async_event_code */
};

struct karst_ctl_cm_init_qp_attr_req {
	uint32_t id;
	uint32_t state; /* enum karst_qp_state: INIT, RTR, RTS */
};
struct karst_ctl_cm_init_qp_attr_rsp {
	uint32_t mask; /* enum karst_qp_attr_mask */
	uint32_t reserved;
	struct karst_ctl_qp_attr attr;
};

struct karst_ctl_cm_query_req {
	uint32_t id;
	uint32_t reserved;
};
struct karst_ctl_cm_query_rsp {
	struct karst_ctl_cm_addr src, dst;
	uint8_t sgid[16], dgid[16];
	uint32_t port; /* from 1; 0: none yet */
	uint32_t paths;
	uint32_t flow_label;
	uint16_t pkey;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t sl;
	uint8_t packet_life_time;
	uint8_t path_mtu; /* enum ibv_mtu */
	uint32_t reserved;
};

/** @option: 0 type of service, 1 reuse of addresses, 2 this address family only, 3 ACK timeout. */
struct karst_ctl_cm_set_option_req {
	uint32_t id;
	uint32_t option;
	uint32_t value;
	uint32_t reserved;
};

struct karst_ctl_cm_join_mcast_req {
	uint32_t id;
	uint32_t reserved;
	uint64_t uid;
	struct karst_ctl_cm_addr addr;
};
struct karst_ctl_cm_join_mcast_rsp {
	uint32_t group;
	uint32_t reserved;
};
struct karst_ctl_cm_leave_mcast_req {
	uint32_t group;
	uint32_t reserved;
};
struct karst_ctl_cm_leave_mcast_rsp {
	uint32_t events; /* as with CM_DESTROY_ID */
	uint32_t emptied;
	uint32_t channel;
	uint32_t reserved;
};

KARST_CTL_PLAIN_REPLY(cm_destroy_channel);
KARST_CTL_PLAIN_REPLY(cm_bind);
KARST_CTL_PLAIN_REPLY(cm_resolve_addr);
KARST_CTL_PLAIN_REPLY(cm_resolve_route);
KARST_CTL_PLAIN_REPLY(cm_listen);
KARST_CTL_PLAIN_REPLY(cm_connect);
KARST_CTL_PLAIN_REPLY(cm_accept);
KARST_CTL_PLAIN_REPLY(cm_reject);
KARST_CTL_PLAIN_REPLY(cm_disconnect);
KARST_CTL_PLAIN_REPLY(cm_notify);
KARST_CTL_PLAIN_REPLY(cm_set_option);

#endif /* KARST_CTL_CM_H */
