/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Connection management of an engine: between the sessions, whose programs request connections by
 * IP addresses and port numbers, and lib/cm, which implements the protocol.
 *
 *	cm.c          its thread: received MADs, timers, paths, MADs to send
 *	cm_path.c     paths to peers: resolved, cached for a while; MADs that wait for them
 *	cm_wait.c     identifiers that wait for paths: their users' shares
 *	cm_port.c     addresses and port numbers: what is bound, which identifier listens
 *	cm_channel.c  events for programs
 *	cm_backlog.c  places of listeners for requests that are not read: shares of peers
 *	cm_asked.c    incomplete requests of users to each peer: their shares
 *	cm_id.c       identifiers: their life cycle, and the requests of programs
 *	cm_conn.c     connections of identifiers: requests, answers, and events of lib/cm
 *	cm_ece.c      enhanced connection establishment in these messages
 *
 * The requests of programs are handled in the folder session: session_cm.c, session_cm_addr.c,
 * session_cm_conn.c.
 *
 * Threads: sessions and the thread of cm.c.  "lock" protects everything here, and those parts of a
 * session that belong to connection management (cm_client.h).  The holder of the lock makes no
 * control call and does not wait.  What has to wait, for a path, is left to the thread.
 */
#ifndef ENG_CM_H
#define ENG_CM_H

#include <stdlib.h>
#include <sys/queue.h>

#include "cm_client.h"
#include "gsi.h"
#include "karst_cm.h"
#include "karst_ctl_msg.h"
#include "karst_wheel.h"
#include "stream.h"

#define CM_UDP_QKEY      0x01234567u /* Q_Key of the port space UDP, if no other one is set */
#define CM_ACK_TIMEOUT   17u         /* 537 ms as with rxe, unless an option sets another value */
#define CM_PATH_BUCKETS  256u
#define CM_PORT_BUCKETS  65536u /* numbers of one port space have a bucket each */
#define CM_ASKED_BUCKETS 4096u
#define CM_FROM_BUCKETS  4096u

/* --- the path cache (cm_path.c) --- */

/* A MAD that waits to be sent. */
struct cm_mad {
	STAILQ_ENTRY(cm_mad) next;
	struct karst_path path; /* complete when it is resolved */
	uint8_t bytes[ENG_GSI_MAD_BYTES] karst_aligned(8);
};

STAILQ_HEAD(cm_mads, cm_mad);

enum cm_path_state { CM_PATH_ASKING, CM_PATH_READY, CM_PATH_FAILED };

struct cm_path {
	LIST_ENTRY(cm_path) next;    /* in its bucket */
	TAILQ_ENTRY(cm_path) listed; /* in "asking" or "idle" */
	enum cm_path_state state;
	uint8_t port;
	uint8_t src_ip[16], dst_ip[16];
	struct karst_path path; /* READY */
	uint64_t until_ns;      /* ASKING: MADs wait until then; otherwise: expires then */
	uint64_t look_ns;       /* ASKING: next attempt */
	uint64_t nap_ns;
	struct cm_mads mads; /* MADs that wait */
	uint32_t nmads;
	LIST_HEAD(, cm_wait) waits; /* identifiers that wait */
};

TAILQ_HEAD(cm_paths, cm_path);

/* Identifiers of one user that wait for a path (cm_wait.c). */
struct cm_wait {
	LIST_ENTRY(cm_wait) next; /* of its path */
	struct cm_path *path;
	struct eng_share *share; /* the user's account, or NULL */
	LIST_HEAD(, cm_id) ids;  /* at least one, by path_next */
};

/* --- events (cm_channel.c) --- */

struct cm_event {
	TAILQ_ENTRY(cm_event) next;  /* of its channel */
	TAILQ_ENTRY(cm_event) of_id; /* of @id */
	struct cm_id *id;            /* to whom it belongs; for a connect request: the listener */
	struct cm_id *conn;          /* connect request: the new identifier */
	struct cm_group *group;      /* MULTICAST_* */
	struct karst_ctl_cm_get_event_rsp rsp;
};

TAILQ_HEAD(cm_events, cm_event);

struct cm_channel {
	uint32_t handle;
	uint32_t ids; /* identifiers that use it */
	struct cm_client *client;
	struct eng_stream stream;
	struct cm_events events;
	struct cm_event *dead; /* the only event: a request that has ended, see cm_channel.c */
};

/* --- identifiers --- */

enum cm_id_state {
	CM_ID_IDLE,
	CM_ID_BOUND,
	CM_ID_ADDR_QUERY,
	CM_ID_ADDR_RESOLVED,
	CM_ID_ROUTE_RESOLVED,
	CM_ID_CONNECT, /* active: request sent; passive: request received */
	CM_ID_LISTEN,
};

/* A listener of lib/cm for a port number.  Which of its identifiers gets a request is decided when
 * the request arrives. */
struct cm_service {
	uint16_t port_space;
	uint16_t port_number;
	uint32_t cm_id; /* of lib/cm */
	uint32_t listeners;
};

/* An address whose requests to a listener wait to be read (cm_backlog.c). */
struct cm_from {
	LIST_ENTRY(cm_from) next; /* in its bucket */
	struct cm_id *listener;
	uint8_t ip[16];
	uint32_t n;
	LIST_HEAD(, cm_id) requests; /* newest first */
};

struct cm_group {
	uint32_t handle;
	uint64_t uid;
	uint32_t reported; /* events that the program has got */
	uint8_t ip[16];
	struct cm_id *id;
	LIST_ENTRY(cm_group) next; /* of the identifier */
};

struct cm_id {
	uint32_t handle;
	uint64_t uid;
	struct cm_client *client;
	struct cm_channel *channel;
	enum cm_id_state state;
	uint16_t port_space;
	uint8_t qp_type;
	bool passive;    /* created by a request */
	bool told;       /* passive: the program has got its request and knows it */
	bool named;      /* passive: accepted, so that @uid is known */
	bool has_port;   /* @port and src are, or were, those of a port */
	bool numbered;   /* the port number is its own (cm_port.c) */
	bool reuse_addr; /* options */
	bool af_only;
	bool tos_set;
	bool timeout_set;
	uint8_t tos;
	uint8_t timeout;
	uint8_t port; /* of the engine, from 0 */
	struct karst_ctl_cm_addr src, dst;
	LIST_ENTRY(cm_id) port_next; /* in the bucket of port numbers */
	struct cm_service *service;  /* LISTEN */
	uint32_t places;             /* LISTEN: for requests that are not read */
	uint32_t backlog;            /* LISTEN: of these, the free ones */
	struct cm_from *crowd;       /* LISTEN: the address that has more than half of them */
	uint32_t reported;           /* events that the program has got */
	struct cm_events events;     /* events that wait */
	uint32_t nevents;            /* of these, those that MAX_EVENTS limits (cm_channel.c) */
	/* ADDR_QUERY */
	bool chosen;                    /* the engine has chosen @port and the address in @src */
	struct karst_ctl_cm_addr bound; /* chosen: @src as it was, for the case of a failure */
	struct cm_wait *waits_for;
	LIST_ENTRY(cm_id) path_next;
	struct karst_timer patience;
	uint64_t until_ns; /* end of its wait */
	/* passive, not told */
	struct cm_event *request;
	struct cm_from *from; /* NULL: has no place of the listener */
	LIST_ENTRY(cm_id) from_next;
	/* the connection */
	uint32_t cm_id;         /* of lib/cm; 0: none */
	struct cm_asked *asked; /* requested, and not complete (cm_asked.c) */
	bool has_remote;        /* the following are set */
	struct karst_cm_path path;
	uint32_t psn; /* first PSN of our receive queue */
	uint32_t remote_psn;
	uint32_t remote_qpn;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t ack_delay;         /* active: the peer's, from its REP */
	struct karst_cm_ece offer; /* offer that either side has made (cm_ece.c) */
	LIST_HEAD(, cm_group) groups;
};

static inline bool
eng_cm_is_xrc(const struct cm_id *id)
{
	return id->qp_type == KARST_QPT_XRC_SEND || id->qp_type == KARST_QPT_XRC_RECV;
}

struct cm_stats {
	uint64_t events_lost;  /* no memory, or the program does not read them */
	uint64_t mads_dropped; /* no path, or too many wait */
	uint64_t paths_failed;
	uint64_t backlog_full;  /* requests rejected */
	uint64_t limit_reached; /* requests rejected: the listener's program has max_cm_ids */
	uint64_t ask_share;     /* attempts to send a request that failed: more than the user's
				 * share at the peer */
	/* enhanced connection establishment (C3, X1) */
	uint64_t ece_offered; /* in REQs that we sent */
	uint64_t ece_agreed;  /* connections, on either side */
	uint64_t ece_ignored; /* REQs and REPs with other values, or while it is off here */
};

struct eng_cm {
	struct karst_engine *e;
	struct karst_cm *cm;
	void *cm_mem;
	pthread_t thread;
	bool running;
	_Atomic bool stop;
	pthread_mutex_t lock; /* protects the following, and *cm */
	LIST_HEAD(cm_path_bucket, cm_path) paths[CM_PATH_BUCKETS];
	struct cm_paths asking;
	struct cm_paths idle;    /* the others; the first one is evicted first */
	struct cm_path *looking; /* used by the thread without the lock; it stays */
	struct cm_path *after;   /* in "asking": the thread's next one */
	uint32_t npaths;
	struct karst_wheel patience; /* for identifiers that wait */
	uint32_t nwaits;     /* users' waits; identifiers of one user for one path count once */
	uint32_t nmad_paths; /* paths that MADs wait for */
	uint32_t nlisteners;
	uint64_t sweep_ns;      /* when to remove expired paths */
	uint64_t wake_ns;       /* when the thread continues by itself */
	uint32_t nmads_waiting; /* MADs that wait for their paths */
	uint32_t nmads_out;
	struct cm_mads out; /* MADs whose paths are known */
	LIST_HEAD(cm_number_bucket, cm_id) number[CM_PORT_BUCKETS];
	LIST_HEAD(cm_from_bucket, cm_from) from[CM_FROM_BUCKETS];
	LIST_HEAD(cm_asked_bucket, cm_asked) asked[CM_ASKED_BUCKETS];
	LIST_HEAD(, cm_asker) askers; /* users who have records in asked */
	uint32_t nasked;
	uint32_t asked_sweep;   /* the bucket that is checked next */
	uint64_t place_key[2];  /* key of the hash tables @paths, @asked and @from */
	uint64_t random_key[2]; /* key of eng_cm_random() */
	uint64_t randoms;       /* number of values that it has returned */
	struct cm_stats stats;
};

/* --- cm.c --- */

/* Counters of the thread and of lib/cm, for telemetry. */
struct cm_report {
	struct cm_stats stats;
	struct karst_cm_counters counters;
	uint32_t listeners;   /* identifiers of programs */
	uint32_t connections; /* of lib/cm, including listeners and those that linger */
	uint32_t half_open;
	uint32_t npaths;
};
void eng_cm_report(struct karst_engine *e, struct cm_report *report);

int eng_cm_init(struct karst_engine *e);
/* Ends the thread.  No session may be left. */
void eng_cm_stop(struct karst_engine *e);
void eng_cm_fini(struct karst_engine *e);

/* Take and release the lock, around all use of the following functions; after the release the
 * thread looks for work. */
struct eng_cm *eng_cm_enter(struct karst_engine *e);
void eng_cm_leave(struct eng_cm *cm);

/* A number that peers cannot predict, whatever other values they have seen. */
uint32_t eng_cm_random(struct eng_cm *cm);

/* --- cm_path.c --- */

void eng_cm_path_init(struct eng_cm *cm);
/* Sends @mad when the path is known; drops it if the path cannot be found. */
void eng_cm_path_send(struct eng_cm *cm, const struct karst_cm_path *path, const uint8_t *mad);
/* Starts to resolve the path of @id, which is in ADDR_QUERY with src, dst and until_ns set.  @id
 * gets an event when the path is known, possibly at once, or cannot be found.  -ENOSPC: programs of
 * its user already wait for too many paths; -ENOMEM */
int eng_cm_path_find(struct eng_cm *cm, char *why, struct cm_id *id);
/* Ends the wait of @id. */
void eng_cm_path_forget(struct eng_cm *cm, struct cm_id *id);
/* On the thread: resolves paths and sends MADs.  Releases the lock meanwhile.  @return when to call
 * again. */
uint64_t eng_cm_path_work(struct eng_cm *cm);
void eng_cm_path_fini(struct eng_cm *cm);

/* --- cm_wait.c --- */

void eng_cm_wait_init(struct eng_cm *cm);
/* Lets @id wait for @path.  -ENOSPC, -ENOMEM */
int eng_cm_wait(struct eng_cm *cm, char *why, struct cm_id *id, struct cm_path *path);
/* Ends the wait of @id.  @return the path that it waited for */
struct cm_path *eng_cm_wait_end(struct eng_cm *cm, struct cm_id *id);
/* An identifier whose wait has timed out; NULL: none now. */
struct cm_id *eng_cm_wait_over(struct eng_cm *cm);

/* --- cm_port.c --- */

bool eng_cm_is_any(const struct karst_ctl_cm_addr *a);
/* @return 0: @a is of a supported family, and well-formed. */
int eng_cm_check_addr(char *why, const struct karst_ctl_cm_addr *a);
/* Finds the port of the engine that has the address, and the address's index; *port is the first to
 * be tried.
 * -EADDRNOTAVAIL */
int eng_cm_find_port(
	const struct karst_engine *e, const uint8_t ip[16], uint8_t *port, uint8_t *index);
/* Finds the port of an address that may include a scope.  -EADDRNOTAVAIL; -ENODEV: not on that
 * port */
int eng_cm_find_own(const struct karst_engine *e, const struct karst_ctl_cm_addr *a, uint8_t *port);
/* Finds the index of the address of @id among those of its port, which may change at any time.
 * -EADDRNOTAVAIL: the address was removed */
int eng_cm_index(const struct karst_engine *e, const struct cm_id *id, uint8_t *index);
/* Whether a scope is meaningful: the address is a link-local one. */
bool eng_cm_is_scoped(const struct karst_ctl_cm_addr *a);
/* Sets the scope of a link-local address to @port; other addresses do not change. */
void eng_cm_set_scope(struct karst_ctl_cm_addr *a, uint8_t port);
/* Chooses the port and address from which packets to @dst are sent.  -ENETUNREACH */
int eng_cm_choose_port(const struct karst_engine *e, const struct karst_ctl_cm_addr *dst,
	uint8_t *port, uint8_t src_ip[16]);
/* Most identifiers that share a port number: searches go through them with the lock held, which
 * others wait for. */
#define CM_NUMBER_SHARED 256u
void eng_cm_number_init(struct eng_cm *cm);
/* Gives @id the port number in id->src, or a free one for 0.  -EADDRINUSE; -EUSERS: it is already
 * shared by CM_NUMBER_SHARED; -EDQUOT: it is an ephemeral one, and the user has used up the share
 * of those */
int eng_cm_number(struct eng_cm *cm, struct cm_id *id);
void eng_cm_unnumber(struct eng_cm *cm, struct cm_id *id);
/* -EADDRINUSE: another identifier listens on the number, whatever their reuse options; -ENOSPC,
 * -ENOMEM. */
int eng_cm_service_join(struct eng_cm *cm, struct cm_id *id);
void eng_cm_service_leave(struct eng_cm *cm, struct cm_id *id);
/* The identifier that listens on @service for requests to @ip that arrived on @port, or NULL. */
struct cm_id *eng_cm_listener(struct eng_cm *cm, const struct cm_service *service,
	const struct karst_cm_ip *ip, uint8_t port);

/* --- cm_channel.c --- */

/* Appends an event to those that wait.  @return NULL, counted: no room. */
struct cm_event *eng_cm_event(struct eng_cm *cm, struct cm_id *id, uint32_t code, int status);
/* Takes the oldest event, which then belongs to the caller.  *emptied: it was the last. */
struct cm_event *eng_cm_event_take(struct cm_channel *ch, bool *emptied);
/* Frees the waiting events of @id, or only those of @group (not NULL).  @return whether the channel
 * is empty now. */
bool eng_cm_event_purge(struct eng_cm *cm, struct cm_id *id, const struct cm_group *group);
/* Moves its events to the channel @to.  @return as above, for the old channel. */
bool eng_cm_event_move(struct eng_cm *cm, struct cm_id *id, struct cm_channel *to);
/* The request of @id has ended before the program read it: frees its place of the listener, and
 * the event and @id at once or with the next event of the channel. */
void eng_cm_request_drop(struct eng_cm *cm, struct cm_id *id);

/* --- cm_id.c --- */

/* -ENOSPC: its program already has max_cm_ids; -ENOMEM */
int eng_cm_id_new(
	struct eng_cm *cm, struct cm_client *client, struct cm_channel *ch, struct cm_id **id);
/* Ends all that @id takes part in and frees it.  @return whether its channel is empty now. */
bool eng_cm_id_free(struct eng_cm *cm, struct cm_id *id);
/* The path that @id has waited for is known: 0, or the reason why there is none. */
void eng_cm_id_resolved(struct eng_cm *cm, struct cm_id *id, int status);

/* --- cm_conn.c --- */

extern const struct karst_cm_ops eng_cm_ops;

/* How packets of @id reach @dst_ip.  -EADDRNOTAVAIL: its own address was removed; sgid_index is
 * then no valid index */
int eng_cm_ah(const struct karst_engine *e, const struct cm_id *id, const uint8_t dst_ip[16],
	struct karst_ctl_ah_attr *ah);

/* Requests of programs.  Each writes the reason of a refusal. */
int eng_cm_connect(struct eng_cm *cm, char *why, struct cm_id *id,
	const struct karst_ctl_cm_param *p, const struct karst_ctl_ece *ece);
int eng_cm_accept(struct eng_cm *cm, char *why, struct cm_id *id,
	const struct karst_ctl_cm_param *p, const struct karst_ctl_ece *ece);
int eng_cm_reject(struct eng_cm *cm, char *why, struct cm_id *id, uint32_t reason,
	const struct karst_ctl_cm_param *p);
int eng_cm_disconnect(struct eng_cm *cm, char *why, struct cm_id *id);
int eng_cm_established(struct eng_cm *cm, char *why, struct cm_id *id);

/* --- cm_backlog.c --- */

/* Is there a place of @listener for a request of @ip?  Another address may lose one for that. */
bool eng_cm_backlog_room(struct eng_cm *cm, struct cm_id *listener, const uint8_t ip[16]);
/* Gives it to @id, whose path is set.  -ENOMEM */
int eng_cm_backlog_take(struct eng_cm *cm, struct cm_id *listener, struct cm_id *id);
/* Frees the place of @id, if it has one. */
void eng_cm_backlog_give(struct cm_id *id);

/* --- cm_asked.c --- */

/* Records of peers and users, for all users together. */
#define CM_ASKED_MAX 16384u
/* To be called before @id sends a request to the peer of its path, for the first time or again.
 * @return false: not now, as its user's share of the peer's places for us, or of the records here,
 * is used up. */
bool eng_cm_ask(struct eng_cm *cm, struct cm_id *id);
/* The peer no longer has an incomplete request of @id, or none was sent. */
void eng_cm_answered(struct cm_id *id);
/* No identifier waits for the answer any more. */
void eng_cm_unanswered(struct eng_cm *cm, struct cm_id *id);
void eng_cm_asked_fini(struct eng_cm *cm);

/* --- cm_ece.c --- */

/* What a REQ offers, from the program's value.  -EINVAL: it is not what its queue pair offers. */
int eng_cm_ece_connect(struct eng_cm *cm, char *why, const struct cm_id *id,
	const struct karst_ctl_ece *ece, struct karst_cm_ece *out);
/* The REQ was sent. */
void eng_cm_ece_connected(struct eng_cm *cm, struct cm_id *id, const struct karst_cm_ece *offer);
/* A REP was received; @out gets what the program needs from it. */
void eng_cm_ece_response(struct eng_cm *cm, const struct cm_id *id, const struct karst_cm_ece *said,
	struct cm_event *out);
/* A REQ was received, likewise. */
void eng_cm_ece_request(
	struct eng_cm *cm, struct cm_id *id, const struct karst_cm_ece *said, struct cm_event *out);
/* What a REP answers, from the program's value. */
struct karst_cm_ece eng_cm_ece_accept(
	const struct eng_cm *cm, const struct cm_id *id, const struct karst_ctl_ece *ece);
/* The REP was sent. */
void eng_cm_ece_accepted(struct eng_cm *cm, const struct karst_cm_ece *answer);

#endif /* ENG_CM_H */
