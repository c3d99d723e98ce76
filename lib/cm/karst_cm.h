/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Communication management: how two sides agree about a connection before its queue pairs know of
 * each other, over management datagrams between the GSIs (U2, C1, C2).
 *
 * Nothing in here does I/O, reads a clock, allocates, locks or logs.  A struct karst_cm holds all
 * connections of an engine and is touched by one thread alone, which sets cm->now_ns before any
 * call, gives it what arrives at QP 1 (karst_cm_rx), calls karst_cm_expire() at karst_cm_next_ns(),
 * and sends what ops->send is given, as a UD SEND ONLY from QP 1 to QP 1 with KARST_CM_QKEY.
 *
 * A connection is named by its communication id, which is never 0 and on the wire too:
 *
 *   active     karst_cm_id_connect  REQ ->      <- EV_REP  karst_cm_id_ready  RTU ->
 *   passive    karst_cm_id_listen   EV_REQ, then karst_cm_id_accept  REP ->   <- EV_RTU
 *   both       karst_cm_id_disconnect  DREQ ->  <- EV_DREP
 *              EV_DREQ, then karst_cm_id_disconnect_reply  DREP ->
 *   then       time-wait, EV_TIMEWAIT_EXIT: the queue pair's number may be used again
 *   meanwhile  karst_cm_id_lap  LAP ->  <- EV_APR; EV_LAP, then karst_cm_id_apr
 *   datagrams  karst_cm_id_sidr_request  <- EV_SIDR_REP; EV_SIDR_REQ, karst_cm_id_sidr_reply
 *
 * What is lost is sent again, what comes twice is answered again and reported once.  Every id that
 * was given out, by a call or by EV_REQ and EV_SIDR_REQ, lives until karst_cm_id_destroy(),
 * whatever has happened to its connection; afterwards there are no events about it.
 *
 * Addresses are GIDs: 16 bytes in wire order, IPv4 as ::ffff:a.b.c.d.  Private data goes out as
 * given, filled up with zeros; what comes in always has the full length of its message, because
 * the wire does not say how much was meant.
 *
 * Return values are 0 or a negative errno; on failure nothing has changed and nothing was sent.
 * All calls: -ENOENT if there is no such id, -EINVAL if the id's state does not allow the call or
 * an argument is impossible, -EMSGSIZE if private data are too long for the message.
 */
#ifndef KARST_CM_H
#define KARST_CM_H

#include "karst_base.h"
#include "karst_cm_msg.h"
#include "karst_verbs.h"

#define KARST_CM_QPN  1u          /* both ends of every message (U2) */
#define KARST_CM_QKEY 0x80010000u /* U2 */

struct karst_cm;

/** Between whom messages go, and what a REQ says about the connection's packets. */
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
	uint8_t rate;        /* as enum ibv_rate; 0: what the port can */
	uint8_t ack_timeout; /* local ACK timeout of the connection, as in Q6; 0 to 31 */
};

/** What each side tells the other about its queue pair. */
struct karst_cm_param {
	uint8_t qp_type; /* KARST_QPT_RC, UC, XRC_SEND (connect) or XRC_RECV (accept); SIDR: UD */
	bool flow_control;
	bool srq;
	uint8_t responder_resources; /* READs and atomics that we hold for the peer */
	uint8_t initiator_depth;     /* READs and atomics that we have outstanding */
	uint8_t retry_count;         /* 0 to 7; REQ only */
	uint8_t rnr_retry_count;     /* 0 to 7 */
	uint32_t qpn;
	uint32_t psn;  /* expected first: rq_psn of the side that sends it, sq_psn of its peer */
	uint32_t qkey; /* SIDR REP only */
	/* REQ and REP: as given, and as it came.  XRC: as any other. */
	struct karst_cm_ece ece;
	/*
	 * REQ: a second path for the connection, NULL: none (C4).  Of what is given addresses, flow
	 * label, tclass, hop limit, sl, rate and ack_timeout are said; as it came, it is in our
	 * direction, @port is that of the primary path, and whether local_ip is ours is not
	 * checked.  It lives as long as the event.
	 */
	const struct karst_cm_path *alternate;
	bool alternate_taken; /* REP: the path that the REQ offered will be used */
	const void *private_data;
	uint8_t private_data_len;
};

/* What events are about; the messages behind them in parentheses.  An id that is spent has no more
 * events and allows no calls but karst_cm_id_destroy(); so it is after a REJ, too. */
enum karst_cm_ev_code {
	KARST_CM_EV_REQ = 1,       /* a new id: accept, reject or destroy it (REQ) */
	KARST_CM_EV_REQ_ERROR,     /* no answer to our REQ; the id is spent */
	KARST_CM_EV_REP,           /* the peer accepts: ready, reject or destroy (REP) */
	KARST_CM_EV_REP_ERROR,     /* no RTU for our REP; the id is spent */
	KARST_CM_EV_RTU,           /* established (RTU) */
	KARST_CM_EV_MRA,           /* the peer asks to wait longer (MRA) */
	KARST_CM_EV_REJ,           /* refused, by the peer or by ourselves: see @local (REJ) */
	KARST_CM_EV_LAP,           /* the peer offers another alternate path: apr (LAP) */
	KARST_CM_EV_APR,           /* the answer to ours, good or bad: see @reason (APR) */
	KARST_CM_EV_LAP_ERROR,     /* no answer to our LAP; the connection is as it was */
	KARST_CM_EV_DREQ,          /* the peer disconnects: disconnect_reply, or destroy (DREQ) */
	KARST_CM_EV_DREP,          /* disconnected (DREP, or a DREQ that crossed ours) */
	KARST_CM_EV_DREQ_ERROR,    /* no answer to our DREQ: disconnected all the same */
	KARST_CM_EV_TIMEWAIT_EXIT, /* no packet of the connection is on its way any more */
	KARST_CM_EV_SIDR_REQ,      /* a new id: sidr_reply or destroy it (SIDR REQ) */
	KARST_CM_EV_SIDR_REP,      /* the answer, good or bad: see @reason (SIDR REP) */
	KARST_CM_EV_SIDR_ERROR,    /* no answer to our SIDR REQ, or one of the peer's was given up
				    * before it was answered; the id is spent */
};

/** Lives as long as the call of ops->event. */
struct karst_cm_ev {
	enum karst_cm_ev_code code;
	uint32_t id;
	void *user;         /* the id's; NULL for a new one */
	uint32_t listen_id; /* REQ, SIDR REQ: what the new id came from */
	void *listen_user;
	uint64_t service_id;              /* REQ, SIDR REQ, SIDR REP */
	uint64_t remote_guid;             /* REQ, REP */
	const struct karst_cm_path *path; /* of the id, in our direction; REQ: as the peer chose it,
					   * the addresses checked against its packet */
	/*
	 * REQ, REP, SIDR REP: what the peer says, seen from here as libibverbs' users expect it:
	 * responder_resources is what the peer means to have outstanding, initiator_depth what it
	 * holds for us.  Private data of every event that stands for a message.
	 */
	struct karst_cm_param remote;
	uint16_t reason; /* REJ: enum karst_cm_rej_reason; SIDR REP: karst_cm_sidr_status; APR:
			  * karst_cm_apr_status */
	uint8_t message; /* REJ, MRA: which message of ours, enum karst_cm_about */
	bool local;      /* REJ: our own side refused what the peer sent, or gave up on it */
	uint8_t service_timeout;  /* MRA: how long to wait, 4.096 us * 2^this */
	uint8_t target_ack_delay; /* REP: as an exponent */
	uint8_t info_len;         /* REJ, SIDR REP, APR: additional information of the reason */
	const uint8_t *info;
};

/** What the caller is told. */
struct karst_cm_ops {
	/** Send these 256 bytes; @path and @mad are gone when this returns.  May not call back. */
	void (*send)(void *user, const struct karst_cm_path *path, const uint8_t *mad);
	/** From karst_cm_rx() and karst_cm_expire() alone.  May call everything but these two, and
	 * destroy @ev->id. */
	void (*event)(void *user, const struct karst_cm_ev *ev);
	/** May the REQ or SIDR REQ of the id of @id_user leave, for the first time or again?  If
	 * not it is as if it were lost on its way.  May not call back.  NULL: yes. */
	bool (*may_ask)(void *user, void *id_user);
};

struct karst_cm_config {
	uint32_t max_ids; /* of all kinds, time-wait included: 2..2^20; 0 = default 8192 */
	/* REQs and SIDR REQs that wait for us or for an RTU; 0 = default: a quarter of max_ids.
	 * One peer address may have half of them. */
	uint32_t max_half_open;
	uint64_t guid; /* of the engine, not 0: identifies us, with the communication id */
	/* secret, from getrandom() outside of tests: without it ids, transaction ids and places in
	 * hash tables cannot be guessed, and what is seen of them does not tell it */
	uint64_t secret[2];
	uint8_t response_timeout;    /* asked of peers, 4.096 us * 2^this; 0 = default 20 (4.3 s) */
	uint8_t max_retries;         /* 1 to 15; 0 = default 15 */
	uint8_t mra_service_timeout; /* a REQ that comes again before it is answered gets an MRA for
				      * this long; 0 = default 24 (69 s), 255: never */
	uint8_t target_ack_delay;    /* told in REPs; 0 to 31 */
	const struct karst_cm_ops *ops;
	void *user; /* for ops */
};

/* What is counted besides messages; karst_cm_counter.def. */
enum karst_cm_counter {
#define KARST_CM_COUNTER(symbol, name, meaning) KARST_CM_CTR_##symbol,
#include "karst_cm_counter.def"
#undef KARST_CM_COUNTER
	KARST_CM_CTRS
};

struct karst_cm_counters {
	/* by kind of message: enum karst_cm_kind */
	uint64_t tx[KARST_CM_KINDS];
	uint64_t tx_retries[KARST_CM_KINDS]; /* of those: sent again because no answer came */
	uint64_t rx[KARST_CM_KINDS];
	uint64_t rx_duplicates[KARST_CM_KINDS];
	uint64_t other[KARST_CM_CTRS];
};

/** "name" and "meaning" of a counter; NULL if there is no such. */
const char *karst_cm_counter_name(enum karst_cm_counter counter);
const char *karst_cm_counter_meaning(enum karst_cm_counter counter);

/** The part that the caller may touch. */
struct karst_cm {
	uint64_t now_ns; /* set by the caller before each call; never goes back */
	struct karst_cm_counters counters;
	uint32_t nids; /* in use, of every kind and state */
	uint32_t nhalf_open;
	uint32_t half_open_of_one; /* how many one peer address may have of them; does not change */
};

/** 0 if @cfg is impossible. */
size_t karst_cm_bytes(const struct karst_cm_config *cfg);
/** Makes a CM in @buf, which has karst_cm_bytes() bytes, cache-line aligned.  -EINVAL */
int karst_cm_init(
	void *buf, const struct karst_cm_config *cfg, uint64_t now_ns, struct karst_cm **cm);

/**
 * A MAD came to QP 1.  @seen is the way back: remote_ip is who sent it, local_ip where it came to;
 * port, tclass, hop_limit, flow_label, pkey are used for the answer.  What is malformed, unknown
 * or forged is counted and dropped, or answered with a REJ.
 */
void karst_cm_rx(
	struct karst_cm *cm, const struct karst_cm_path *seen, const void *mad, size_t len);
/** Does what is due at cm->now_ns: up to @budget timers.  @return how many */
unsigned int karst_cm_expire(struct karst_cm *cm, unsigned int budget);
/** When karst_cm_expire() has something to do next; UINT64_MAX: never. */
uint64_t karst_cm_next_ns(const struct karst_cm *cm);

/**
 * Listens for REQs and SIDR REQs of every service id that agrees with @service_id in the bits of
 * @mask.  The narrowest mask wins.  -EADDRINUSE: somebody listens for exactly this.  -ENOSPC
 */
int karst_cm_id_listen(
	struct karst_cm *cm, uint64_t service_id, uint64_t mask, void *user, uint32_t *id);

/** Sends a REQ.  Then EV_REP, EV_REJ or EV_REQ_ERROR; EV_MRA in between.  -ENOSPC */
int karst_cm_id_connect(struct karst_cm *cm, const struct karst_cm_path *path, uint64_t service_id,
	const struct karst_cm_param *param, void *user, uint32_t *id);

/** After EV_REQ: sends a REP.  Then EV_RTU, EV_REJ or EV_REP_ERROR. */
int karst_cm_id_accept(struct karst_cm *cm, uint32_t id, const struct karst_cm_param *param);

/** After EV_REP: sends an RTU; the connection is established. */
int karst_cm_id_ready(struct karst_cm *cm, uint32_t id, const void *private_data, uint8_t len);

/**
 * After EV_REQ or EV_REP, or while waiting for an RTU: sends a REJ, of which @reason is enum
 * karst_cm_rej_reason and @info (up to KARST_CM_REJ_INFO bytes, may be NULL) what belongs to it.
 */
int karst_cm_id_reject(struct karst_cm *cm, uint32_t id, uint16_t reason, const void *info,
	uint8_t info_len, const void *private_data, uint8_t len);

/**
 * A packet of the connection came though no RTU did: it is established, and no EV_RTU will come.
 * -EALREADY: it was.
 */
int karst_cm_id_established(struct karst_cm *cm, uint32_t id);

/** After EV_REQ or EV_REP: asks the peer for 4.096 us * 2^@service_timeout, sending an MRA. */
int karst_cm_id_mra(struct karst_cm *cm, uint32_t id, uint8_t service_timeout,
	const void *private_data, uint8_t len);

/**
 * Established, as either side, and no other LAP is under way: offers @path as the alternate one
 * (C4; what of it is said: karst_cm_param.alternate), sending a LAP.  Then EV_APR or EV_LAP_ERROR,
 * EV_MRA in between; none of them if the connection ends.  Neither side's queue pair is touched.
 */
int karst_cm_id_lap(struct karst_cm *cm, uint32_t id, const struct karst_cm_path *path,
	const void *private_data, uint8_t len);
/** After EV_LAP, while established: answers with @status, enum karst_cm_apr_status, sending an APR.
 *  @info: up to KARST_CM_REJ_INFO bytes that belong to it, may be NULL. */
int karst_cm_id_apr(struct karst_cm *cm, uint32_t id, uint8_t status, const void *info,
	uint8_t info_len, const void *private_data, uint8_t len);

/** Established, or waiting for an RTU: sends a DREQ.  Then EV_DREP or EV_DREQ_ERROR. */
int karst_cm_id_disconnect(struct karst_cm *cm, uint32_t id, const void *private_data, uint8_t len);
/** After EV_DREQ: sends a DREP. */
int karst_cm_id_disconnect_reply(
	struct karst_cm *cm, uint32_t id, const void *private_data, uint8_t len);

/** Sends a SIDR REQ.  Then EV_SIDR_REP or EV_SIDR_ERROR.  -ENOSPC */
int karst_cm_id_sidr_request(struct karst_cm *cm, const struct karst_cm_path *path,
	uint64_t service_id, const void *private_data, uint8_t len, void *user, uint32_t *id);
/**
 * After EV_SIDR_REQ: sends a SIDR REP with @status (enum karst_cm_sidr_status), the qpn and qkey
 * of @param and its private data (NULL: none; not with success); for as long as it may be asked
 * again the same answer is given.
 */
int karst_cm_id_sidr_reply(
	struct karst_cm *cm, uint32_t id, uint8_t status, const struct karst_cm_param *param);

/** What comes with the id's events from now on. */
int karst_cm_id_set_user(struct karst_cm *cm, uint32_t id, void *user);

/**
 * The id is gone for its user, with no event after this.  On the wire its state decides: a REQ or
 * REP that is not answered or waits for us is rejected, a connection is disconnected (the peer's
 * DREP is awaited, and time-wait runs, without anybody being told), a SIDR REQ is refused.
 * Of a listener the connections that came from it live on; listen_id names nothing then.
 */
int karst_cm_id_destroy(struct karst_cm *cm, uint32_t id);

enum karst_cm_state {
	KARST_CM_IDLE, /* nothing more will happen: to be destroyed */
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

/* --- what the RDMA CM adds (C1) --- */

#define KARST_CM_IP_LEN   36 /* of the header at the start of REQs' and SIDR REQs' private data */
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

/** Service id of a port of an IP-based service. */
static inline uint64_t
karst_cm_service_id(uint16_t port_space, uint16_t port)
{
	return (uint64_t)port_space << 16 | port;
}

void karst_cm_ip_build(const struct karst_cm_ip *ip, uint8_t header[KARST_CM_IP_LEN]);
/** -EPROTO: too short, or neither version 0 nor of IPv4 or IPv6. */
int karst_cm_ip_parse(const void *private_data, size_t len, struct karst_cm_ip *ip);

#endif /* KARST_CM_H */
