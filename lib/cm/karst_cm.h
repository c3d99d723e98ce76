/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Communication management: how two sides set up a connection before their queue pairs know of each
 * other, by management datagrams between the GSIs (U2, C1, C2).
 *
 * This library does no I/O, reads no clock, and does not allocate, lock or log.  A struct karst_cm
 * holds all connections of an engine, and only one thread may use it.  That thread sets cm->now_ns
 * before any call, passes in what arrives at QP 1 (karst_cm_rx), calls karst_cm_expire() at
 * karst_cm_next_ns(), and sends the datagrams of ops->send as UD SEND ONLY from QP 1 to QP 1 with
 * KARST_CM_QKEY.
 *
 * A connection is named by its communication id, which is never 0 and is the same on the wire:
 *
 *   active     karst_cm_id_connect  REQ ->      <- EV_REP  karst_cm_id_ready  RTU ->
 *   passive    karst_cm_id_listen   EV_REQ, then karst_cm_id_accept  REP ->   <- EV_RTU
 *   both       karst_cm_id_disconnect  DREQ ->  <- EV_DREP
 *              EV_DREQ, then karst_cm_id_disconnect_reply  DREP ->
 *   then       time-wait, EV_TIMEWAIT_EXIT: the queue pair's number may be used again
 *   meanwhile  karst_cm_id_lap  LAP ->  <- EV_APR; EV_LAP, then karst_cm_id_apr
 *   datagrams  karst_cm_id_sidr_request  <- EV_SIDR_REP; EV_SIDR_REQ, karst_cm_id_sidr_reply
 *
 * Lost messages are sent again; duplicates are answered again and reported once.  Every id that a
 * call, EV_REQ or EV_SIDR_REQ returned exists until karst_cm_id_destroy(), whatever has happened to
 * its connection; afterwards there are no events about it.
 *
 * Addresses are GIDs: 16 bytes in wire order, IPv4 as ::ffff:a.b.c.d.  Private data is padded with
 * zeros when it is sent.  Received private data always has the full length of its message, because
 * the wire format does not carry its length.
 *
 * Return values are 0 or a negative errno; a call that fails has changed nothing and sent nothing.
 * All calls return -ENOENT if there is no such id, -EINVAL if the id's state does not allow the
 * call or an argument is impossible, and -EMSGSIZE if private data is too long for the message.
 */
#ifndef KARST_CM_H
#define KARST_CM_H

#include "karst_base.h"
#include "karst_cm_msg.h"
#include "karst_verbs.h"

#define KARST_CM_QPN  1u          /* both ends of every message (U2) */
#define KARST_CM_QKEY 0x80010000u /* U2 */

struct karst_cm;

/** The addresses of the messages, and what a REQ says about the connection's packets. */
struct karst_cm_path {
	uint8_t local_ip[16];
	uint8_t remote_ip[16];
	uint32_t flow_label; /* 20 bits */
	uint16_t pkey;
	uint8_t port; /* engine port, from 0 */
	uint8_t tclass;
	uint8_t hop_limit;
	uint8_t sl;          /* 4 bits */
	uint8_t mtu;         /* path MTU as enum ibv_mtu: 1 (256) to 5 (4096) */
	uint8_t rate;        /* as enum ibv_rate; 0: the rate of the port */
	uint8_t ack_timeout; /* local ACK timeout of the connection, as in Q6; 0 to 31 */
};

/** What each side sends to the other about its queue pair. */
struct karst_cm_param {
	uint8_t qp_type; /* KARST_QPT_RC, UC, XRC_SEND (connect) or XRC_RECV (accept); SIDR: UD */
	bool flow_control;
	bool srq;
	uint8_t responder_resources; /* READs and atomics that this side accepts from the peer at
				      * a time */
	uint8_t initiator_depth;     /* READs and atomics that this side has outstanding */
	uint8_t retry_count;         /* 0 to 7; REQ only */
	uint8_t rnr_retry_count;     /* 0 to 7 */
	uint32_t qpn;
	uint32_t psn;  /* first PSN that is expected: rq_psn of the side that sends it, sq_psn of
		        * its peer */
	uint32_t qkey; /* SIDR REP only */
	/* REQ and REP: as given, or as received.  The same for XRC as for other types. */
	struct karst_cm_ece ece;
	/*
	 * REQ: an alternate path for the connection, NULL: none (C4).  The message carries
	 * addresses, flow label, tclass, hop limit, sl, rate and ack_timeout of it.  A received
	 * path is in this side's direction; its @port is that of the primary path, and it is not
	 * checked whether local_ip is an address of this side.  It is valid as long as the event.
	 */
	const struct karst_cm_path *alternate;
	bool alternate_taken; /* REP: the alternate path of the REQ will be used */
	const void *private_data;
	uint8_t private_data_len;
};

/* Codes of events, with the messages that cause them in parentheses.  An id that is spent has no
 * more events and allows no calls except karst_cm_id_destroy().  An id is spent after a REJ,
 * too. */
enum karst_cm_ev_code {
	KARST_CM_EV_REQ = 1,       /* a new id: accept, reject or destroy it (REQ) */
	KARST_CM_EV_REQ_ERROR,     /* no answer to the REQ that was sent; the id is spent */
	KARST_CM_EV_REP,           /* the peer accepts: ready, reject or destroy (REP) */
	KARST_CM_EV_REP_ERROR,     /* no RTU for the REP that was sent; the id is spent */
	KARST_CM_EV_RTU,           /* established (RTU) */
	KARST_CM_EV_MRA,           /* the peer asks to wait longer (MRA) */
	KARST_CM_EV_REJ,           /* refused by the peer or by this side: see @local (REJ) */
	KARST_CM_EV_LAP,           /* the peer offers another alternate path: apr (LAP) */
	KARST_CM_EV_APR,           /* the answer to the LAP that was sent, positive or negative:
				    * see @reason (APR) */
	KARST_CM_EV_LAP_ERROR,     /* no answer to the LAP that was sent; the connection is as it
				    * was */
	KARST_CM_EV_DREQ,          /* the peer disconnects: disconnect_reply, or destroy (DREQ) */
	KARST_CM_EV_DREP,          /* disconnected (DREP, or a DREQ that crossed the own one) */
	KARST_CM_EV_DREQ_ERROR,    /* no answer to the DREQ that was sent: disconnected all the
				    * same */
	KARST_CM_EV_TIMEWAIT_EXIT, /* no packet of the connection can be in the network any more */
	KARST_CM_EV_SIDR_REQ,      /* a new id: sidr_reply or destroy it (SIDR REQ) */
	KARST_CM_EV_SIDR_REP,      /* the answer, positive or negative: see @reason (SIDR REP) */
	KARST_CM_EV_SIDR_ERROR,    /* no answer to the SIDR REQ that was sent, or a SIDR REQ of
				    * the peer was given up before it was answered; the id is
				    * spent */
};

/** An event; valid during the call of ops->event. */
struct karst_cm_ev {
	enum karst_cm_ev_code code;
	uint32_t id;
	void *user;         /* the id's; NULL for a new one */
	uint32_t listen_id; /* REQ, SIDR REQ: the listener of the new id */
	void *listen_user;
	uint64_t service_id;              /* REQ, SIDR REQ, SIDR REP */
	uint64_t remote_guid;             /* REQ, REP */
	const struct karst_cm_path *path; /* of the id, in this side's direction; REQ: as the
					   * peer chose it, with addresses checked against its
					   * packet */
	/*
	 * REQ, REP, SIDR REP: what the peer says, in this side's view, as users of libibverbs
	 * expect it: responder_resources is the number that the peer will have outstanding,
	 * initiator_depth the number that it accepts.  Every event that reports a message has its
	 * private data here.
	 */
	struct karst_cm_param remote;
	uint16_t reason; /* REJ: enum karst_cm_rej_reason; SIDR REP: karst_cm_sidr_status; APR:
			  * karst_cm_apr_status */
	uint8_t message; /* REJ, MRA: which message of this side it is about, enum karst_cm_about */
	bool local;      /* REJ: this side refused what the peer sent, or gave up waiting */
	uint8_t service_timeout;  /* MRA: how long to wait, 4.096 us * 2^this */
	uint8_t target_ack_delay; /* REP: as an exponent */
	uint8_t info_len;         /* REJ, SIDR REP, APR: additional information of the reason */
	const uint8_t *info;
};

/** Calls to the caller of this library. */
struct karst_cm_ops {
	/** Sends these 256 bytes.  @path and @mad are valid during the call.  May not call back. */
	void (*send)(void *user, const struct karst_cm_path *path, const uint8_t *mad);
	/**
	 * Called from karst_cm_rx() and karst_cm_expire() only.  May call all functions except
	 * these two, and destroy @ev->id.
	 */
	void (*event)(void *user, const struct karst_cm_ev *ev);
	/**
	 * May the REQ or SIDR REQ of the id of @id_user be sent, for the first time or again?  If
	 * not, it is handled like a lost message.  May not call back.  NULL: always.
	 */
	bool (*may_ask)(void *user, void *id_user);
};

struct karst_cm_config {
	uint32_t max_ids; /* of all kinds, time-wait included: 2..2^20; 0 = default 8192 */
	/* Limit for REQs and SIDR REQs that wait for this side or for an RTU; 0 = default: a
	 * quarter of max_ids.  One peer address may have half of them. */
	uint32_t max_half_open;
	uint64_t guid; /* of the engine, not 0: identifies this side, together with the
		        * communication id */
	/* A secret, from getrandom() except in tests.  Communication ids, transaction ids and hash
	 * table buckets cannot be guessed without it, and the ids that a peer sees do not reveal
	 * it. */
	uint64_t secret[2];
	uint8_t response_timeout;    /* time that peers shall respond within, 4.096 us * 2^this;
				      * 0 = default 20 (4.3 s) */
	uint8_t max_retries;         /* 1 to 15; 0 = default 15 */
	uint8_t mra_service_timeout; /* service timeout of the MRA that answers a repeated REQ
				      * before the user has answered it; 0 = default 24 (69 s),
				      * 255: no MRA */
	uint8_t target_ack_delay;    /* announced in REPs; 0 to 31 */
	const struct karst_cm_ops *ops;
	void *user; /* for ops */
};

/* Counters of other things than messages; karst_cm_counter.def. */
enum karst_cm_counter {
#define KARST_CM_COUNTER(symbol, name, meaning) KARST_CM_CTR_##symbol,
#include "karst_cm_counter.def"
#undef KARST_CM_COUNTER
	KARST_CM_CTRS
};

struct karst_cm_counters {
	/* by kind of message: enum karst_cm_kind */
	uint64_t tx[KARST_CM_KINDS];
	uint64_t tx_retries[KARST_CM_KINDS]; /* of those: retries because no answer came */
	uint64_t rx[KARST_CM_KINDS];
	uint64_t rx_duplicates[KARST_CM_KINDS];
	uint64_t other[KARST_CM_CTRS];
};

/** "name" and "meaning" of a counter; NULL if there is no such counter. */
const char *karst_cm_counter_name(enum karst_cm_counter counter);
const char *karst_cm_counter_meaning(enum karst_cm_counter counter);

/** The part that the caller may access. */
struct karst_cm {
	uint64_t now_ns; /* set by the caller before each call; never goes back */
	struct karst_cm_counters counters;
	uint32_t nids; /* ids in use, of every kind and state */
	uint32_t nhalf_open;
	uint32_t half_open_of_one; /* limit for one peer address; does not change */
};

/** 0 if @cfg is impossible. */
size_t karst_cm_bytes(const struct karst_cm_config *cfg);
/**
 * Initialises a CM in @buf, which has karst_cm_bytes() bytes and is cache-line aligned.  -EINVAL
 */
int karst_cm_init(
	void *buf, const struct karst_cm_config *cfg, uint64_t now_ns, struct karst_cm **cm);

/**
 * Handles a MAD that arrived at QP 1.  @seen is the path back: remote_ip is the sender, local_ip
 * the address that the MAD was sent to; port, tclass, hop_limit, flow_label and pkey are used for
 * the answer.  A malformed, unknown or forged MAD is counted and dropped, or answered with a REJ.
 */
void karst_cm_rx(
	struct karst_cm *cm, const struct karst_cm_path *seen, const void *mad, size_t len);
/** Handles up to @budget timers that are due at cm->now_ns.  @return how many */
unsigned int karst_cm_expire(struct karst_cm *cm, unsigned int budget);
/** Returns the time of the next timer; UINT64_MAX: none. */
uint64_t karst_cm_next_ns(const struct karst_cm *cm);

/**
 * Listens for REQs and SIDR REQs of every service id that matches @service_id in the bits of @mask.
 * The narrowest matching mask wins.  -EADDRINUSE: there is a listener for exactly this.  -ENOSPC
 */
int karst_cm_id_listen(
	struct karst_cm *cm, uint64_t service_id, uint64_t mask, void *user, uint32_t *id);

/** Sends a REQ.  EV_REP, EV_REJ or EV_REQ_ERROR follows, with EV_MRA in between.  -ENOSPC */
int karst_cm_id_connect(struct karst_cm *cm, const struct karst_cm_path *path, uint64_t service_id,
	const struct karst_cm_param *param, void *user, uint32_t *id);

/** After EV_REQ: sends a REP.  EV_RTU, EV_REJ or EV_REP_ERROR follows. */
int karst_cm_id_accept(struct karst_cm *cm, uint32_t id, const struct karst_cm_param *param);

/** After EV_REP: sends an RTU; the connection is established. */
int karst_cm_id_ready(struct karst_cm *cm, uint32_t id, const void *private_data, uint8_t len);

/**
 * After EV_REQ or EV_REP, or while waiting for an RTU: sends a REJ.  @reason is enum
 * karst_cm_rej_reason, @info (up to KARST_CM_REJ_INFO bytes, may be NULL) is its additional
 * information.
 */
int karst_cm_id_reject(struct karst_cm *cm, uint32_t id, uint16_t reason, const void *info,
	uint8_t info_len, const void *private_data, uint8_t len);

/**
 * After EV_REQ: sends a REJ, and destroys the id.  Nothing is kept, unlike with
 * karst_cm_id_reject(): if the peer repeats its REQ, that is a new one, and has a new event.  For
 * requests that are refused without a user's decision, of which there may be any number.
 */
int karst_cm_id_refuse(
	struct karst_cm *cm, uint32_t id, uint16_t reason, const void *info, uint8_t info_len);

/**
 * A packet of the connection arrived, but no RTU: marks the connection as established.  No EV_RTU
 * will follow.
 * -EALREADY: it was established already.
 */
int karst_cm_id_established(struct karst_cm *cm, uint32_t id);

/**
 * After EV_REQ or EV_REP: sends an MRA, which asks the peer to wait 4.096 us * 2^@service_timeout.
 */
int karst_cm_id_mra(struct karst_cm *cm, uint32_t id, uint8_t service_timeout,
	const void *private_data, uint8_t len);

/**
 * Sends a LAP, which offers @path as the alternate path (C4; karst_cm_param.alternate says which
 * members are sent).  The connection must be established, as either side, and no other LAP pending.
 * EV_APR or EV_LAP_ERROR follows, with EV_MRA in between; none of them if the connection ends.
 * Neither side's queue pair is changed.
 */
int karst_cm_id_lap(struct karst_cm *cm, uint32_t id, const struct karst_cm_path *path,
	const void *private_data, uint8_t len);
/**
 * After EV_LAP, while established: sends an APR with @status, enum karst_cm_apr_status.  @info: up
 * to KARST_CM_REJ_INFO bytes of additional information, may be NULL.
 */
int karst_cm_id_apr(struct karst_cm *cm, uint32_t id, uint8_t status, const void *info,
	uint8_t info_len, const void *private_data, uint8_t len);

/** Established, or waiting for an RTU: sends a DREQ.  EV_DREP or EV_DREQ_ERROR follows. */
int karst_cm_id_disconnect(struct karst_cm *cm, uint32_t id, const void *private_data, uint8_t len);
/** After EV_DREQ: sends a DREP. */
int karst_cm_id_disconnect_reply(
	struct karst_cm *cm, uint32_t id, const void *private_data, uint8_t len);

/** Sends a SIDR REQ.  EV_SIDR_REP or EV_SIDR_ERROR follows.  -ENOSPC */
int karst_cm_id_sidr_request(struct karst_cm *cm, const struct karst_cm_path *path,
	uint64_t service_id, const void *private_data, uint8_t len, void *user, uint32_t *id);
/**
 * After EV_SIDR_REQ: sends a SIDR REP with @status (enum karst_cm_sidr_status) and the qpn, qkey
 * and private data of @param (NULL: none; not with success).  The same answer is repeated for as
 * long as the peer may repeat its request.
 */
int karst_cm_id_sidr_reply(
	struct karst_cm *cm, uint32_t id, uint8_t status, const struct karst_cm_param *param);

/** After EV_SIDR_REQ: the same for a SIDR REQ.  @status is not success. */
int karst_cm_id_sidr_refuse(struct karst_cm *cm, uint32_t id, uint8_t status);

/** Sets the user pointer of further events of the id. */
int karst_cm_id_set_user(struct karst_cm *cm, uint32_t id, void *user);

/**
 * Destroys the id for its user; there are no events about it afterwards.  What is sent to the peer
 * depends on its state: a REQ or REP that is not answered or waits for this side is rejected; a
 * connection is disconnected (the id waits for the peer's DREP and through time-wait, without
 * events); a SIDR REQ is refused.  The connections of a listener continue to exist; their listen_id
 * then refers to nothing.
 */
int karst_cm_id_destroy(struct karst_cm *cm, uint32_t id);

enum karst_cm_state {
	KARST_CM_IDLE, /* no more events will come: can only be destroyed */
	KARST_CM_LISTENING,
	KARST_CM_REQ_SENT,
	KARST_CM_REQ_RCVD,
	KARST_CM_REP_SENT,
	KARST_CM_REP_RCVD,
	KARST_CM_ESTABLISHED,
	KARST_CM_DREQ_SENT,
	KARST_CM_DREQ_RCVD,
	KARST_CM_TIMEWAIT,
	KARST_CM_SIDR_REQ_SENT,
	KARST_CM_SIDR_REQ_RCVD,
	KARST_CM_SIDR_REP_SENT,
};

struct karst_cm_info {
	enum karst_cm_state state;
	uint32_t remote_id;   /* 0: not known yet */
	uint64_t remote_guid; /* 0: not known yet */
	uint64_t service_id;
	uint32_t local_qpn;
	uint32_t remote_qpn;
	struct karst_cm_path path;
};

int karst_cm_id_info(const struct karst_cm *cm, uint32_t id, struct karst_cm_info *info);

/* --- additions of the RDMA CM (C1) --- */

#define KARST_CM_IP_LEN   36 /* header at the start of private data of REQ and SIDR REQ */
#define KARST_CM_PS_IPOIB 0x0002u
#define KARST_CM_PS_IB    0x013fu
#define KARST_CM_PS_TCP   0x0106u
#define KARST_CM_PS_UDP   0x0111u

/** Addresses and port as a program gave them; IPv4 as ::ffff:a.b.c.d. */
struct karst_cm_ip {
	uint8_t src_ip[16];
	uint8_t dst_ip[16];
	uint16_t src_port;
	bool ip6;
};

/** Returns the service id of a port of an IP-based service. */
static inline uint64_t
karst_cm_service_id(uint16_t port_space, uint16_t port)
{
	return (uint64_t)port_space << 16 | port;
}

void karst_cm_ip_build(const struct karst_cm_ip *ip, uint8_t header[KARST_CM_IP_LEN]);
/** -EPROTO: too short, or the version is not 0, or it is neither IPv4 nor IPv6. */
int karst_cm_ip_parse(const void *private_data, size_t len, struct karst_cm_ip *ip);

#endif /* KARST_CM_H */
