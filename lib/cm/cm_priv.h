/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Declarations that the files of lib/cm share: the table of ids, and how a message is sent, kept
 * and answered.
 *
 * For its age an id is on exactly one list, or on none: the list of free slots, of half-open
 * connections (the peer began them; this side's answer or the peer's RTU is outstanding) or of
 * orphans (destroyed, but still owing the peer an answer), of which there are two: of requests
 * that were answered with a REJ or a SIDR REP, and of connections.  While an id has a peer, it can
 * be found by the peer's communication id.  While the number of the peer's queue pair must not be
 * used for another connection, it can be found by that number, too.
 */
#ifndef KARST_CM_PRIV_H
#define KARST_CM_PRIV_H

#include <errno.h>

#include "karst_cm.h"
#include "karst_wheel.h"

/* Limits for times that peers announce, as exponents of 4.096 us: 67 ms to 34 s.  The limit for how
 * long a peer may ask to wait is 137 s. */
#define CM_PEER_EXPONENT_MIN 14
#define CM_PEER_EXPONENT_MAX 23
#define CM_PEER_TIMEOUT_MAX  25

/* The wait before the first retry; each further wait is twice as long, up to the agreed time. */
#define CM_FIRST_RETRY_NS (UINT64_C(4096) << 16)

/* A half-open connection that is at least this old is given up for a new one if there are too
 * many. */
#define CM_HALF_OPEN_MIN_NS UINT64_C(1000000000)

#define CM_NO_MRA 255

/* The exchange of another alternate path while established (lap.c). */
enum cm_lap {
	CM_LAP_NONE,
	CM_LAP_SENT,     /* this side's LAP waits for its APR: lap_mad is the LAP, the timer runs */
	CM_LAP_RCVD,     /* the peer's LAP waits for the user of the id */
	CM_LAP_ANSWERED, /* lap_mad is the APR */
};

/* The alternate path of the REQ. */
enum cm_alternate {
	CM_ALTERNATE_NONE,
	CM_ALTERNATE_OFFERED,
	CM_ALTERNATE_INVALID, /* the peer's path is invalid, and is not reported to the user */
};

/* An entry of a chain; pprev is NULL if it is in none. */
struct cm_link {
	struct cm_link *next;
	struct cm_link **pprev;
};

/* A list, oldest entry first. */
struct cm_list {
	struct cm_link *head;
	struct cm_link **tail;
};

/* A peer address that has half-open connections. */
struct cm_source {
	struct cm_source *next; /* in its bucket, or in the list of free entries */
	uint32_t nhalf_open;
	uint8_t ip[16];
};

struct cm_id {
	struct karst_timer timer;
	uint32_t id;   /* 0: free */
	uint32_t uses; /* how often the slot was used */
	uint8_t state;
	uint8_t qp_type;
	uint8_t retries_left;
	uint8_t mra; /* service timeout of the MRA that was sent, CM_NO_MRA if none was */
	bool passive;
	bool orphan;       /* its user has destroyed it */
	bool spent;        /* time-wait of an id that was never a connection: it only answers
			    * late messages */
	bool mra_received; /* an MRA of the peer has taken effect since the last message was sent */
	uint8_t alternate; /* enum cm_alternate */
	uint8_t lap;       /* enum cm_lap */
	uint32_t nlaps;    /* number of LAPs sent */
	uint64_t lap_tid;  /* transaction id of the peer's last LAP */
	bool no_rtu;       /* passive side: disconnected before an RTU came, so the peer may not
			    * have the REP */
	bool stale;        /* the peer no longer knows it: given up when the timer fires, which
			    * is at once */
	bool kept;         /* mad[] is valid */
	uint32_t listen_id;
	void *user;
	uint64_t service_id;
	uint64_t mask;    /* of a listener */
	uint64_t tid;     /* of the exchange: that of the REQ, or of the DREQ once there is one */
	uint64_t req_tid; /* passive side: of the REQ */
	uint64_t remote_guid;
	uint32_t remote_id;
	uint32_t remote_qpn;
	uint32_t local_qpn;
	uint64_t born_ns;
	uint64_t peer_timeout_ns; /* how long the peer repeats its message if it gets no answer */
	uint64_t wait_ns;         /* before the next retry */
	uint64_t full_wait_ns;    /* before giving up, and the maximum before a retry */
	struct karst_cm_path path;
	struct cm_source *source; /* entry of the peer's address, while half open */
	struct cm_list *list;
	struct cm_link age; /* entry of @list */
	struct cm_link by_remote_id;
	struct cm_link by_remote_qpn;
	struct cm_link by_service;     /* of a listener */
	uint8_t mad[KARST_CM_MAD_LEN]; /* the last message that may have to be sent again */
	/* the last LAP or APR, as @lap says: kept beside the RTU, which may also have to be sent
	 * again */
	uint8_t lap_mad[KARST_CM_MAD_LEN];
};

struct cm_core {
	struct karst_cm pub;
	struct karst_wheel wheel;
	const struct karst_cm_ops *ops;
	void *user;
	uint64_t guid;
	uint64_t id_key[2];   /* for the numbers of ids */
	uint64_t tid_key[2];  /* for transaction ids */
	uint64_t hash_key[2]; /* for the hash tables */
	uint32_t max_ids;
	uint32_t max_half_open;
	unsigned int slot_bits;
	uint8_t response_timeout;
	uint8_t max_retries;
	uint8_t mra_service_timeout;
	uint8_t target_ack_delay;
	struct cm_list free;
	struct cm_list half_open;
	struct cm_list answered; /* orphans: requests, which only answer repetitions */
	struct cm_list orphans;  /* the others: connections */
	uint32_t hash_mask;
	struct cm_link **remote_ids;
	struct cm_link **remote_qpns;
	struct cm_link **services;  /* listeners for exactly one service id */
	struct cm_link *masked;     /* listeners with a mask, narrowest mask first */
	struct cm_source **sources; /* hashed by address */
	struct cm_source *free_sources;
	struct cm_id *slots;
	uint64_t first_key[2]; /* for the initial use counts of slots */
	uint32_t untouched; /* slots from here on have never been used, and are not initialised */
};

static inline struct cm_core *
core_of(struct karst_cm *cm)
{
	return karst_container_of(cm, struct cm_core, pub);
}

static inline uint64_t
exponent_ns(unsigned int exponent)
{
	return UINT64_C(4096) << exponent;
}

static inline bool
same_ip(const uint8_t a[16], const uint8_t b[16])
{
	return memcmp(a, b, 16) == 0;
}

static inline void
count(struct cm_core *c, enum karst_cm_counter counter)
{
	c->pub.counters.other[counter]++;
}

/* --- table.c --- */

/**
 * Initialises the table and derives the keys from @secret.  All members that do not change must be
 * set.
 * @param sources as many entries as there may be half-open connections.
 */
void cm_table_init(struct cm_core *c, const uint64_t secret[2], struct cm_source *sources);
/** Returns the transaction id for the exchange that @id begins. */
uint64_t cm_tid(const struct cm_core *c, const struct cm_id *id);
/**
 * Returns a new id in @state with no peer; if necessary, an orphan is freed for it.  NULL: no room.
 */
struct cm_id *cm_id_new(struct cm_core *c, enum karst_cm_state state, void *user);
/** Frees the slot, from whatever list it is on. */
void cm_id_free(struct cm_core *c, struct cm_id *id);
/** NULL: there is no id of that number. */
struct cm_id *cm_id_find(const struct cm_core *c, uint32_t number);
/** The same for calls of the user, who cannot see orphans. */
struct cm_id *cm_id_of_user(const struct cm_core *c, uint32_t number);

/** Makes @id findable by the peer's address, communication id and GUID (0 for SIDR). */
void cm_id_hash_remote(struct cm_core *c, struct cm_id *id);
struct cm_id *cm_id_by_remote(
	const struct cm_core *c, const uint8_t ip[16], uint64_t guid, uint32_t remote_id);
/** Makes @id findable by the peer's queue pair. */
void cm_id_hash_qpn(struct cm_core *c, struct cm_id *id);
struct cm_id *cm_id_by_qpn(
	const struct cm_core *c, const uint8_t ip[16], uint64_t guid, uint32_t qpn);
/** Ends that. */
void cm_id_unhash_qpn(struct cm_id *id);
/** Makes @id unfindable by all of the peer's numbers, and by its service id. */
void cm_id_unhash(struct cm_id *id);

/** -EADDRINUSE */
int cm_service_add(struct cm_core *c, struct cm_id *id);
struct cm_id *cm_service_find(const struct cm_core *c, uint64_t service_id);

/** Does @ip have as many half-open connections as one address may have? */
bool cm_half_open_full(const struct cm_core *c, const uint8_t ip[16]);
void cm_half_open_add(struct cm_core *c, struct cm_id *id);
void cm_half_open_remove(struct cm_core *c, struct cm_id *id);
void cm_orphan_add(struct cm_core *c, struct cm_id *id);

/* --- send.c --- */

/** Sends @m, which belongs to no id or is not kept.  The caller has checked its lengths. */
void cm_send(struct cm_core *c, const struct karst_cm_path *path, const struct karst_cm_msg *m);
/** Sends the message kept in @id again. */
void cm_send_again(struct cm_core *c, const struct cm_id *id);
/** Sends the LAP or APR of @id. */
void cm_send_lap(struct cm_core *c, const struct cm_id *id);
/** Builds @m and keeps it in @id without sending it.  -EMSGSIZE; nothing has changed then. */
int cm_keep(struct cm_id *id, const struct karst_cm_msg *m);
/**
 * Sends the kept message, or the pending LAP, and repeats it up to @retries times.  The wait after
 * the last retry is @full_ns: see cm_retry().
 */
void cm_send_awaiting(struct cm_core *c, struct cm_id *id, uint64_t full_ns, unsigned int retries);
/** The timer of cm_send_awaiting() fired.  @return false: all retries are used up. */
bool cm_retry(struct cm_core *c, struct cm_id *id);
void cm_timer_set(struct cm_core *c, struct cm_id *id, uint64_t ns_from_now);
void cm_timer_stop(struct cm_core *c, struct cm_id *id);
/**
 * How long this side repeats a message that gets no answer; a peer that uses the times of this
 * side's REQ does the same.
 */
uint64_t cm_local_timeout_ns(const struct cm_core *c);
/** The time that a peer announced, limited to a reasonable range. */
uint64_t cm_peer_timeout_ns(unsigned int exponent);
/** How long the last MRA asked the peer to wait; 0 if none was sent. */
uint64_t cm_mra_timeout_ns(const struct cm_id *id);

/** Returns a message about the connection of @id, with the ids and the transaction id filled in. */
struct karst_cm_msg cm_msg_of(const struct cm_id *id, enum karst_cm_kind kind);
/** Sends a REJ for message @m, for which there is no id. */
void cm_refuse(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m,
	enum karst_cm_rej_reason reason, const void *info, uint8_t info_len);
/**
 * Gives up waiting for the peer: sends it a REJ, with this side's GUID in case the peer does not
 * know the id, and ends the exchange.
 */
void cm_abandon(struct cm_core *c, struct cm_id *id);
/** Returns an event about @id, from message @m if that is not NULL. */
struct karst_cm_ev cm_event(
	const struct cm_id *id, enum karst_cm_ev_code code, const struct karst_cm_msg *m);
/**
 * Reports the event to the user, if there is one.  The caller must not assume anything about @id
 * afterwards.
 */
void cm_notify(struct cm_core *c, const struct cm_id *id, const struct karst_cm_ev *ev);
/** The same for an event that consists only of its code. */
void cm_notify_code(struct cm_core *c, const struct cm_id *id, enum karst_cm_ev_code code);

/* --- state.c --- */

/** Ends the exchange of @id; the slot of an orphan is freed. */
void cm_idle(struct cm_core *c, struct cm_id *id);
void cm_enter_timewait(struct cm_core *c, struct cm_id *id);
/**
 * Enters the time-wait of an id that never became a connection: the kept REJ answers repeated
 * requests.
 */
void cm_enter_rejected(struct cm_core *c, struct cm_id *id);
/** Handles a REJ of the peer: a REQ that is repeated later will be recognised. */
void cm_refused_by_peer(struct cm_core *c, struct cm_id *id);
/** A SIDR REQ was answered: the reply is kept for as long as the request may be repeated. */
void cm_enter_answered(struct cm_core *c, struct cm_id *id);
/** Ends the time-wait. */
void cm_timewait_over(struct cm_core *c, struct cm_id *id);

/* --- end.c, passive.c, refuse.c, sidr.c --- */

/** Sends a DREQ.  -EMSGSIZE; nothing has changed then. */
int cm_start_dreq(struct cm_core *c, struct cm_id *id, const void *private_data, uint8_t len);
/** Ends the connection of @id, which the peer no longer knows.  The user is told later. */
void cm_kill_stale(struct cm_core *c, struct cm_id *id);
/** Gives up the half-open connection of @id: sends a REJ with @reason, and tells the user. */
void cm_give_up(struct cm_core *c, struct cm_id *id, enum karst_cm_rej_reason reason);
/** Limits the wait for the user to the time that the peer waits. */
void cm_await_user(struct cm_core *c, struct cm_id *id);
/**
 * Sends a REJ with the reason, information and private data of @what, and enters the time-wait that
 * follows.  -EMSGSIZE
 */
int cm_reject(struct cm_core *c, struct cm_id *id, const struct karst_cm_msg *what);
void cm_sidr_refuse(struct cm_core *c, struct cm_id *id);
/**
 * Makes room for one more half-open connection from @ip, if necessary by giving up the oldest (and
 * telling its user).  @return false: there is no room.
 */
bool cm_make_room(struct cm_core *c, const uint8_t ip[16]);

/* --- active.c, lap.c --- */

/** Converts @path to the form in which REQ and LAP carry it. */
void cm_put_wire_path(const struct karst_cm_path *path, struct karst_cm_wire_path *wire);
/** May @path be offered? */
bool cm_alternate_valid(const struct karst_cm_path *path);
/**
 * Converts the path that the peer offers to this side's view.  Members that the peer does not send
 * are taken from @primary.  @return false: the path is invalid.
 */
bool cm_alternate_take(const struct karst_cm_path *primary, const struct karst_cm_wire_path *wire,
	struct karst_cm_path *path);
/** The timer fired while this side's LAP is pending. */
void cm_lap_expire(struct cm_core *c, struct cm_id *id);

/* --- received messages; @m is well formed --- */

void cm_rx_req(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m);
void cm_rx_rep(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m);
void cm_rx_rtu(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m);
void cm_rx_mra(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m);
void cm_rx_rej(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m);
void cm_rx_dreq(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m);
void cm_rx_drep(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m);
void cm_rx_lap(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m);
void cm_rx_apr(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m);
void cm_rx_sidr_req(
	struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m);
void cm_rx_sidr_rep(
	struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m);

/**
 * Returns the id that message @m is about, if the message comes from the peer of that id; otherwise
 * NULL, and the message is counted.  If the peer's communication id is known, the message must
 * carry it.
 */
struct cm_id *cm_rx_find(
	struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m);

/** Is an argument from a program possible? */
bool cm_path_valid(const struct karst_cm_path *path);
bool cm_param_valid(const struct karst_cm_param *param);

#endif /* KARST_CM_PRIV_H */
