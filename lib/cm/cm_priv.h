/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the files of lib/cm share: the table of ids, and how a message is sent, kept and answered.
 *
 * An id is in exactly one place for its age: on the list of free slots, of half-open connections
 * (the peer began, and we or its RTU are awaited), of orphans (destroyed, but owing the wire an
 * answer), or on none.  While it has a peer it can be found by what the peer calls it, and while
 * that peer's queue pair must not be taken for another, by that.
 */
#ifndef KARST_CM_PRIV_H
#define KARST_CM_PRIV_H

#include <errno.h>

#include "karst_cm.h"
#include "karst_wheel.h"

/* Limits for times that peers announce, as exponents of 4.096 us: 67 ms to 34 s; and for how long a
 * peer goes on asking: 137 s. */
#define CM_PEER_EXPONENT_MIN 14
#define CM_PEER_EXPONENT_MAX 23
#define CM_PEER_TIMEOUT_MAX  25

/* The wait before the first repetition; each is twice the one before, up to what was agreed. */
#define CM_FIRST_RETRY_NS (UINT64_C(4096) << 16)

/* A half-open connection this old makes room for a new one when there are too many. */
#define CM_HALF_OPEN_MIN_NS UINT64_C(1000000000)

#define CM_NO_MRA 255

/* While established: another alternate path (lap.c). */
enum cm_lap {
	CM_LAP_NONE,
	CM_LAP_SENT,     /* ours waits for its APR: lap_mad is the LAP, the timer runs */
	CM_LAP_RCVD,     /* the peer's waits for our user */
	CM_LAP_ANSWERED, /* lap_mad is the APR */
};

/* Of the REQ. */
enum cm_alternate {
	CM_ALTERNATE_NONE,
	CM_ALTERNATE_OFFERED,
	CM_ALTERNATE_INVALID, /* of the peer's, and not told to our user */
};

/* In a chain, or out of it: pprev is NULL then. */
struct cm_link {
	struct cm_link *next;
	struct cm_link **pprev;
};

/* Oldest first. */
struct cm_list {
	struct cm_link *head;
	struct cm_link **tail;
};

/* An address from which something is half open. */
struct cm_source {
	struct cm_source *next; /* in its bucket, or of the free ones */
	uint32_t nhalf_open;
	uint8_t ip[16];
};

struct cm_id {
	struct karst_timer timer;
	uint32_t id;   /* 0: free */
	uint32_t uses; /* of the slot */
	uint8_t state;
	uint8_t qp_type;
	uint8_t retries_left;
	uint8_t mra; /* service timeout of the MRA that we sent, CM_NO_MRA if not */
	bool passive;
	bool orphan;       /* no user any more */
	bool spent;        /* time-wait of what never was a connection: for late messages only */
	bool mra_received; /* the peer's MRA was heeded since we last sent */
	uint8_t alternate; /* enum cm_alternate */
	uint8_t lap;       /* enum cm_lap */
	uint32_t nlaps;    /* of ours */
	uint64_t lap_tid;  /* of the peer's last one */
	bool stale;        /* the peer has forgotten it: given up when the timer fires, at once */
	bool kept;         /* mad[] is something */
	uint32_t listen_id;
	void *user;
	uint64_t service_id;
	uint64_t mask;    /* of a listener */
	uint64_t tid;     /* of the exchange: REQ's, or DREQ's once there is one */
	uint64_t req_tid; /* passive: of the REQ */
	uint64_t remote_guid;
	uint32_t remote_id;
	uint32_t remote_qpn;
	uint32_t local_qpn;
	uint64_t born_ns;
	uint64_t peer_timeout_ns; /* how long the peer goes on asking, if it gets no answer */
	uint64_t wait_ns;         /* before the next repetition */
	uint64_t full_wait_ns;    /* before giving up, and at most before repeating */
	struct karst_cm_path path;
	struct cm_source *source; /* of the peer's address, while half open */
	struct cm_list *list;
	struct cm_link age; /* on @list */
	struct cm_link by_remote_id;
	struct cm_link by_remote_qpn;
	struct cm_link by_service;     /* of a listener */
	uint8_t mad[KARST_CM_MAD_LEN]; /* the last message that may have to be said again */
	/* the last LAP or APR, of which @lap says: the RTU may have to be said again besides */
	uint8_t lap_mad[KARST_CM_MAD_LEN];
};

struct cm_core {
	struct karst_cm pub;
	struct karst_wheel wheel;
	const struct karst_cm_ops *ops;
	void *user;
	uint64_t guid;
	uint64_t id_key[2];   /* of the numbers of ids */
	uint64_t tid_key[2];  /* of transactions */
	uint64_t hash_key[2]; /* of places in the tables */
	uint32_t max_ids;
	uint32_t max_half_open;
	unsigned int slot_bits;
	uint8_t response_timeout;
	uint8_t max_retries;
	uint8_t mra_service_timeout;
	uint8_t target_ack_delay;
	struct cm_list free;
	struct cm_list half_open;
	struct cm_list orphans;
	uint32_t hash_mask;
	struct cm_link **remote_ids;
	struct cm_link **remote_qpns;
	struct cm_link **services;  /* listeners for one service id */
	struct cm_link *masked;     /* listeners for many, narrowest first */
	struct cm_source **sources; /* by their address */
	struct cm_source *free_sources;
	struct cm_id *slots;
	uint64_t first_key[2]; /* of how often slots were used before their first use */
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

/** Needs everything that does not change, and makes the keys of @secret.
 * @param sources as many as may be half open. */
void cm_table_init(struct cm_core *c, const uint64_t secret[2], struct cm_source *sources);
/** The transaction that @id begins. */
uint64_t cm_tid(const struct cm_core *c, const struct cm_id *id);
/** A new id in @state, of nothing yet; an orphan makes room if it must.  NULL: no room. */
struct cm_id *cm_id_new(struct cm_core *c, enum karst_cm_state state, void *user);
/** Gives the slot back, from wherever it is. */
void cm_id_free(struct cm_core *c, struct cm_id *id);
/** NULL: there is none of that number. */
struct cm_id *cm_id_find(const struct cm_core *c, uint32_t number);
/** The same for calls of the user, who has no orphans. */
struct cm_id *cm_id_of_user(const struct cm_core *c, uint32_t number);

/** Can be found by what the peer calls it: its address, its id, and its GUID (0 for SIDR). */
void cm_id_hash_remote(struct cm_core *c, struct cm_id *id);
struct cm_id *cm_id_by_remote(
	const struct cm_core *c, const uint8_t ip[16], uint64_t guid, uint32_t remote_id);
/** Can be found by the peer's queue pair. */
void cm_id_hash_qpn(struct cm_core *c, struct cm_id *id);
struct cm_id *cm_id_by_qpn(
	const struct cm_core *c, const uint8_t ip[16], uint64_t guid, uint32_t qpn);
/** Cannot be found by that any more. */
void cm_id_unhash_qpn(struct cm_id *id);
/** Cannot be found by anything of the peer's any more. */
void cm_id_unhash(struct cm_id *id);

/** -EADDRINUSE */
int cm_service_add(struct cm_core *c, struct cm_id *id);
struct cm_id *cm_service_find(const struct cm_core *c, uint64_t service_id);

/** True if one more from @ip would be too many from there. */
bool cm_half_open_full(const struct cm_core *c, const uint8_t ip[16]);
void cm_half_open_add(struct cm_core *c, struct cm_id *id);
void cm_half_open_remove(struct cm_core *c, struct cm_id *id);
void cm_orphan_add(struct cm_core *c, struct cm_id *id);

/* --- send.c --- */

/** Sends @m, which belongs to no id or is not kept.  Its lengths are known to be right. */
void cm_send(struct cm_core *c, const struct karst_cm_path *path, const struct karst_cm_msg *m);
/** Sends the message kept in @id, as an answer given again. */
void cm_send_again(struct cm_core *c, const struct cm_id *id);
/** Sends the LAP or APR of @id. */
void cm_send_lap(struct cm_core *c, const struct cm_id *id);
/** Builds @m and keeps it for @id without sending.  -EMSGSIZE; nothing has changed then. */
int cm_keep(struct cm_id *id, const struct karst_cm_msg *m);
/** Sends what was kept, or the LAP that is under way, and again until @full_ns after the last of
 * the retries: see cm_retry(). */
void cm_send_awaiting(struct cm_core *c, struct cm_id *id, uint64_t full_ns, unsigned int retries);
/** The timer of cm_send_awaiting() fired.  False: given up. */
bool cm_retry(struct cm_core *c, struct cm_id *id);
void cm_timer_set(struct cm_core *c, struct cm_id *id, uint64_t ns_from_now);
void cm_timer_stop(struct cm_core *c, struct cm_id *id);
/** How long we go on asking, if we get no answer; and so would a peer that does as we told it. */
uint64_t cm_local_timeout_ns(const struct cm_core *c);
/** What peers say of time, within reason. */
uint64_t cm_peer_timeout_ns(unsigned int exponent);
/** How long our last MRA told the peer to wait; 0 if there was none. */
uint64_t cm_mra_timeout_ns(const struct cm_id *id);

/** A message about the connection of @id: the ids and the transaction are filled in. */
struct karst_cm_msg cm_msg_of(const struct cm_id *id, enum karst_cm_kind kind);
/** Refuses message @m, for which there is no id. */
void cm_refuse(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m,
	enum karst_cm_rej_reason reason, const void *info, uint8_t info_len);
/** Gives up waiting for the peer: tells it, which may know us by our GUID only, and forgets it. */
void cm_abandon(struct cm_core *c, struct cm_id *id);
/** An event about @id, of message @m if that is not NULL. */
struct karst_cm_ev cm_event(
	const struct cm_id *id, enum karst_cm_ev_code code, const struct karst_cm_msg *m);
/** Tells the user, if there is one; nothing about @id may be assumed afterwards. */
void cm_notify(struct cm_core *c, const struct cm_id *id, const struct karst_cm_ev *ev);
/** The same for an event that has nothing but its code. */
void cm_notify_code(struct cm_core *c, const struct cm_id *id, enum karst_cm_ev_code code);

/* --- state.c --- */

/** The id has no exchange any more; an orphan's slot becomes free. */
void cm_idle(struct cm_core *c, struct cm_id *id);
void cm_enter_timewait(struct cm_core *c, struct cm_id *id);
/** Time-wait of an id that never became a connection: our REJ, which is kept, answers repeated
 *  requests. */
void cm_enter_rejected(struct cm_core *c, struct cm_id *id);
/** The peer has sent a REJ: its REQ, if it is repeated, is recognised. */
void cm_refused_by_peer(struct cm_core *c, struct cm_id *id);
/** A SIDR REQ is answered; the answer is kept for as long as the request may be repeated. */
void cm_enter_answered(struct cm_core *c, struct cm_id *id);
/** Time-wait has ended. */
void cm_timewait_over(struct cm_core *c, struct cm_id *id);

/* --- end.c, passive.c, refuse.c, sidr.c --- */

/** Sends a DREQ.  -EMSGSIZE; nothing has changed then. */
int cm_start_dreq(struct cm_core *c, struct cm_id *id, const void *private_data, uint8_t len);
/** The peer does not know the connection of @id any more: it ends.  The user is told later. */
void cm_kill_stale(struct cm_core *c, struct cm_id *id);
/** The half-open connection of @id is given up: REJ with @reason, and its user is told. */
void cm_give_up(struct cm_core *c, struct cm_id *id, enum karst_cm_rej_reason reason);
/** Waits for the user no longer than the peer does. */
void cm_await_user(struct cm_core *c, struct cm_id *id);
/** Sends a REJ with the reason, information and private data of @what, and enters the time-wait
 * behind it.  -EMSGSIZE */
int cm_reject(struct cm_core *c, struct cm_id *id, const struct karst_cm_msg *what);
void cm_sidr_refuse(struct cm_core *c, struct cm_id *id);
/** Room for one more half-open connection from @ip, maybe at the cost of the oldest (whose user is
 * told).  False: there is none. */
bool cm_make_room(struct cm_core *c, const uint8_t ip[16]);

/* --- active.c, lap.c --- */

/** As REQ and LAP carry it. */
void cm_put_wire_path(const struct karst_cm_path *path, struct karst_cm_wire_path *wire);
/** A path that may be offered. */
bool cm_alternate_valid(const struct karst_cm_path *path);
/** What the peer offers, from here; @primary: what it does not say.  False: it makes no sense. */
bool cm_alternate_take(const struct karst_cm_path *primary, const struct karst_cm_wire_path *wire,
	struct karst_cm_path *path);
/** The timer fired while a LAP of ours is under way. */
void cm_lap_expire(struct cm_core *c, struct cm_id *id);

/* --- what came; @m is well formed --- */

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
 * The id that message @m is about, if it comes from that id's peer; otherwise NULL, and counted.
 * What the peer calls itself must be what it did before, if it is known.
 */
struct cm_id *cm_rx_find(
	struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m);

/** What a program gives is possible. */
bool cm_path_valid(const struct karst_cm_path *path);
bool cm_param_valid(const struct karst_cm_param *param);

#endif /* KARST_CM_PRIV_H */
