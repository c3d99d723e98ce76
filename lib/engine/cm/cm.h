/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Connection management of an engine: between sessions, whose programs want connections by IP
 * addresses and port numbers, and lib/cm, which speaks the protocol.
 *
 *	cm.c          its thread: MADs that came, timers, paths, MADs that go
 *	cm_path.c      paths to peers: resolved, kept for a while; MADs that wait for them
 *	cm_wait.c      identifiers that wait for them: their users' shares
 *	cm_port.c     addresses and port numbers: what is bound, who listens where
 *	cm_channel.c  events on their way to programs
 *	cm_asked.c    what users have asked of which peer, and is not complete: their shares
 *	cm_id.c       identifiers: their life, and what programs ask of them
 *	cm_conn.c     connections of identifiers: questions, answers, and what lib/cm tells
 *	cm_ece.c      what these say by enhanced connection establishment
 *
 * The messages of programs are in the folder session: session_cm.c, session_cm_addr.c,
 * session_cm_conn.c.
 *
 * Threads: sessions and the thread of cm.c; all that is here, and of a session what belongs to
 * connection management (cm_client.h), is guarded by "lock".  Its holder makes no control call
 * and does not wait.  What has to wait, for a path, is left to the thread.
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

#define CM_UDP_QKEY      0x01234567u /* of the port space UDP, where nobody says another one */
#define CM_PATH_BUCKETS  256u
#define CM_PORT_BUCKETS  65536u /* numbers of one space are each in one of their own */
#define CM_ASKED_BUCKETS 4096u

/* --- the path cache (cm_path.c) --- */

/* A MAD that waits to be sent. */
struct cm_mad {
	STAILQ_ENTRY(cm_mad) next;
	struct karst_path path; /* complete once it is resolved */
	uint8_t bytes[ENG_GSI_MAD_BYTES] karst_aligned(8);
};

STAILQ_HEAD(cm_mads, cm_mad);

enum cm_path_state { CM_PATH_ASKING, CM_PATH_READY, CM_PATH_FAILED };

struct cm_path {
	LIST_ENTRY(cm_path) next;    /* in its bucket */
	TAILQ_ENTRY(cm_path) listed; /* among those that are ASKING, or are not */
	enum cm_path_state state;
	uint8_t port;
	uint8_t src_ip[16], dst_ip[16];
	struct karst_path path; /* READY */
	uint64_t until_ns;      /* ASKING: MADs do not wait longer; else: forgotten */
	uint64_t look_ns;       /* ASKING: next look */
	uint64_t nap_ns;
	struct cm_mads mads; /* that wait */
	uint32_t nmads;
	LIST_HEAD(, cm_wait) waits; /* identifiers that do */
};

TAILQ_HEAD(cm_paths, cm_path);

/* Of one user (cm_wait.c). */
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
	struct cm_id *id;            /* whose it is; of a connect request: the listener */
	struct cm_id *conn;          /* connect request: the new one */
	struct cm_group *group;      /* MULTICAST_* */
	struct karst_ctl_cm_get_event_rsp rsp;
};

TAILQ_HEAD(cm_events, cm_event);

struct cm_channel {
	uint32_t handle;
	uint32_t ids; /* that use it */
	struct cm_client *client;
	struct eng_stream stream;
	struct cm_events events;
};

/* --- identifiers --- */

enum cm_id_state {
	CM_ID_IDLE,
	CM_ID_BOUND,
	CM_ID_ADDR_QUERY,
	CM_ID_ADDR_RESOLVED,
	CM_ID_ROUTE_RESOLVED,
	CM_ID_CONNECT, /* active: asked; passive: a request came */
	CM_ID_LISTEN,
};

/* Which of its identifiers gets a request for a port number is decided when the request comes. */
struct cm_service {
	uint16_t port_space;
	uint16_t port_number;
	uint32_t cm_id; /* of lib/cm */
	uint32_t listeners;
};

struct cm_group {
	uint32_t handle;
	uint64_t uid;
	uint32_t reported; /* events that were got */
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
	bool passive;    /* made by a request */
	bool told;       /* passive: its request was got, so that the program knows of it */
	bool named;      /* passive: it was accepted, so that @uid is known */
	bool has_port;   /* @port and src are those of a port, or were */
	bool numbered;   /* its port number is its own (cm_port.c) */
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
	uint32_t backlog;            /* LISTEN: requests that may still come */
	uint32_t reported;           /* events that were got */
	struct cm_events events;     /* that wait */
	uint32_t nevents;            /* of these, all but requests */
	/* ADDR_QUERY */
	struct cm_wait *waits_for;
	LIST_ENTRY(cm_id) path_next;
	struct karst_timer patience;
	uint64_t until_ns; /* it does not wait longer */
	/* the connection */
	uint32_t cm_id;         /* of lib/cm; 0: none */
	struct cm_asked *asked; /* asked for, and not complete (cm_asked.c) */
	bool has_remote;        /* the following are known */
	struct karst_cm_path path;
	uint32_t psn; /* that our receive queue begins with */
	uint32_t remote_psn;
	uint32_t remote_qpn;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	struct karst_cm_ece offer; /* that was made (cm_ece.c), by whichever side */
	LIST_HEAD(, cm_group) groups;
};

static inline bool
eng_cm_is_xrc(const struct cm_id *id)
{
	return id->qp_type == KARST_QPT_XRC_SEND || id->qp_type == KARST_QPT_XRC_RECV;
}

struct cm_stats {
	uint64_t events_lost;  /* no memory, or the program does not take them */
	uint64_t mads_dropped; /* no path, or too many wait */
	uint64_t paths_failed;
	uint64_t backlog_full;  /* requests rejected */
	uint64_t limit_reached; /* requests rejected: the listener's program has max_cm_ids */
	uint64_t ask_share;     /* requests not sent, each time: more than the user's share there */
	/* enhanced connection establishment (C3, X1) */
	uint64_t ece_offered; /* in REQs of ours */
	uint64_t ece_agreed;  /* connections, as either side */
	uint64_t ece_ignored; /* REQs and REPs that have something else, or what is off here */
};

struct eng_cm {
	struct karst_engine *e;
	struct karst_cm *cm;
	void *cm_mem;
	pthread_t thread;
	bool running;
	_Atomic bool stop;
	pthread_mutex_t lock; /* the following, and *cm */
	LIST_HEAD(cm_path_bucket, cm_path) paths[CM_PATH_BUCKETS];
	struct cm_paths asking;
	struct cm_paths idle;    /* the others; the first one makes room first */
	struct cm_path *looking; /* the thread, without the lock: it stays */
	struct cm_path *after;   /* of "asking": the thread's next one */
	uint32_t npaths;
	struct karst_wheel patience; /* of identifiers that wait */
	uint32_t nwaits;     /* users' identifiers that wait, of each user one for each path */
	uint32_t nmad_paths; /* that MADs wait for */
	uint32_t nlisteners;
	uint64_t sweep_ns;      /* when to look for paths to forget */
	uint64_t wake_ns;       /* when the thread looks again of its own accord */
	uint32_t nmads_waiting; /* for their paths */
	uint32_t nmads_out;
	struct cm_mads out; /* whose paths are known */
	LIST_HEAD(cm_number_bucket, cm_id) number[CM_PORT_BUCKETS];
	LIST_HEAD(cm_asked_bucket, cm_asked) asked[CM_ASKED_BUCKETS];
	LIST_HEAD(, cm_asker) askers; /* users who have something there */
	uint32_t nasked;
	uint32_t asked_sweep;   /* the bucket that is looked through next */
	uint64_t place_key[2];  /* of places in @paths and @asked */
	uint64_t random_key[2]; /* of eng_cm_random() */
	uint64_t randoms;       /* that it has given */
	struct cm_stats stats;
};

/* --- cm.c --- */

/* For telemetry: what the thread and lib/cm have counted. */
struct cm_report {
	struct cm_stats stats;
	struct karst_cm_counters counters;
	uint32_t listeners;   /* identifiers of programs */
	uint32_t connections; /* of lib/cm, listeners and those that linger with them */
	uint32_t half_open;
	uint32_t npaths;
};
void eng_cm_report(struct karst_engine *e, struct cm_report *report);

int eng_cm_init(struct karst_engine *e);
/* Ends the thread.  No session is left. */
void eng_cm_stop(struct karst_engine *e);
void eng_cm_fini(struct karst_engine *e);

/* Around all that uses the following; the thread looks for something to do after the second. */
struct eng_cm *eng_cm_enter(struct karst_engine *e);
void eng_cm_leave(struct eng_cm *cm);

/* A number that no peer can guess, whatever it has seen of others. */
uint32_t eng_cm_random(struct eng_cm *cm);

/* --- cm_path.c --- */

void eng_cm_path_init(struct eng_cm *cm);
/* Sends @mad once the path is known; drops it if it cannot be found. */
void eng_cm_path_send(struct eng_cm *cm, const struct karst_cm_path *path, const uint8_t *mad);
/* @id, ADDR_QUERY with src, dst and until_ns, has an event when the path is known, which may be at
 * once, or is not.  -ENOSPC: its user's programs look for so many; -ENOMEM */
int eng_cm_path_find(struct eng_cm *cm, char *why, struct cm_id *id);
/* @id does not wait any more. */
void eng_cm_path_forget(struct eng_cm *cm, struct cm_id *id);
/* On the thread: looks, sends.  Leaves the lock meanwhile.  @return when to call again. */
uint64_t eng_cm_path_work(struct eng_cm *cm);
void eng_cm_path_fini(struct eng_cm *cm);

/* --- cm_wait.c --- */

void eng_cm_wait_init(struct eng_cm *cm);
/* @id waits for @path.  -ENOSPC, -ENOMEM */
int eng_cm_wait(struct eng_cm *cm, char *why, struct cm_id *id, struct cm_path *path);
/* No more.  @return which one it was */
struct cm_path *eng_cm_wait_end(struct eng_cm *cm, struct cm_id *id);
/* The next one that does not want to wait longer; NULL: none now. */
struct cm_id *eng_cm_wait_over(struct eng_cm *cm);

/* --- cm_port.c --- */

bool eng_cm_is_any(const struct karst_ctl_cm_addr *a);
/* 0: @a is of a family that there is, written as it should be. */
int eng_cm_check_addr(char *why, const struct karst_ctl_cm_addr *a);
/* The port of the engine that has the address, and where; *port is the first to be looked at.
 * -EADDRNOTAVAIL */
int eng_cm_find_port(
	const struct karst_engine *e, const uint8_t ip[16], uint8_t *port, uint8_t *index);
/* The port of an address that may name it.  -EADDRNOTAVAIL; -ENODEV: not that port */
int eng_cm_find_own(const struct karst_engine *e, const struct karst_ctl_cm_addr *a, uint8_t *port);
/* Where the address of @id stands among those of its port, which may change at any time.
 * -EADDRNOTAVAIL: it has gone */
int eng_cm_index(const struct karst_engine *e, const struct cm_id *id, uint8_t *index);
/* A scope means something: the address is one of each link. */
bool eng_cm_is_scoped(const struct karst_ctl_cm_addr *a);
/* The port that a link-local address belongs to; others remain as they are. */
void eng_cm_set_scope(struct karst_ctl_cm_addr *a, uint8_t port);
/* The port and address that packets to @dst leave by.  -ENETUNREACH */
int eng_cm_choose_port(const struct karst_engine *e, const struct karst_ctl_cm_addr *dst,
	uint8_t *port, uint8_t src_ip[16]);
/* Identifiers that share a number: who looks for those of one that fit goes through them, with the
 * lock that everybody waits for. */
#define CM_NUMBER_SHARED 256u
void eng_cm_number_init(struct eng_cm *cm);
/* Gives @id the port number in id->src, or a free one for 0.  -EADDRINUSE; -EUSERS: it is shared by
 * CM_NUMBER_SHARED; -EDQUOT: it is one that others may be given, and more than the user's share */
int eng_cm_number(struct eng_cm *cm, struct cm_id *id);
void eng_cm_unnumber(struct eng_cm *cm, struct cm_id *id);
/* -EADDRINUSE: another one has the number, whatever both say of reuse; -ENOSPC, -ENOMEM. */
int eng_cm_service_join(struct eng_cm *cm, struct cm_id *id);
void eng_cm_service_leave(struct eng_cm *cm, struct cm_id *id);
/* The identifier that listens on @service for requests to @ip that came to @port, or NULL. */
struct cm_id *eng_cm_listener(struct eng_cm *cm, const struct cm_service *service,
	const struct karst_cm_ip *ip, uint8_t port);

/* --- cm_channel.c --- */

/* Puts an event behind those that wait.  NULL, counted: no room. */
struct cm_event *eng_cm_event(struct eng_cm *cm, struct cm_id *id, uint32_t code, int status);
/* The oldest; the caller's.  *emptied: it was the last. */
struct cm_event *eng_cm_event_take(struct cm_channel *ch, bool *emptied);
/* Destroys the events that wait of @id, or of @group only (not NULL). @return whether they were
 * the last ones. */
bool eng_cm_event_purge(struct eng_cm *cm, struct cm_id *id, const struct cm_group *group);
/* Moves them to the channel @to.  @return as above, of the old channel. */
bool eng_cm_event_move(struct cm_id *id, struct cm_channel *to);

/* --- cm_id.c --- */

/* -ENOSPC: its program has max_cm_ids; -ENOMEM */
int eng_cm_id_new(
	struct eng_cm *cm, struct cm_client *client, struct cm_channel *ch, struct cm_id **id);
/* Ends whatever it is in.  @return whether its events were the last ones of its channel. */
bool eng_cm_id_free(struct eng_cm *cm, struct cm_id *id);
/* The path that @id has waited for: 0, or why there is none. */
void eng_cm_id_resolved(struct eng_cm *cm, struct cm_id *id, int status);

/* --- cm_conn.c --- */

extern const struct karst_cm_ops eng_cm_ops;

/* How packets of @id get to @dst_ip.  -EADDRNOTAVAIL: its own address has gone, and sgid_index is
 * that of no address */
int eng_cm_ah(const struct karst_engine *e, const struct cm_id *id, const uint8_t dst_ip[16],
	struct karst_ctl_ah_attr *ah);

/* What a program asks for.  Each writes why it refuses. */
int eng_cm_connect(struct eng_cm *cm, char *why, struct cm_id *id,
	const struct karst_ctl_cm_param *p, const struct karst_ctl_ece *ece);
int eng_cm_accept(struct eng_cm *cm, char *why, struct cm_id *id,
	const struct karst_ctl_cm_param *p, const struct karst_ctl_ece *ece);
int eng_cm_reject(struct eng_cm *cm, char *why, struct cm_id *id, uint32_t reason,
	const struct karst_ctl_cm_param *p);
int eng_cm_disconnect(struct eng_cm *cm, char *why, struct cm_id *id);
int eng_cm_established(struct eng_cm *cm, char *why, struct cm_id *id);

/* --- cm_asked.c --- */

/* Peers and users that are remembered, of all users. */
#define CM_ASKED_MAX 16384u
/* @id is about to ask the peer of its path, for the first time or again.  @return false: not now,
 * as its user has his share of what the peer keeps for us, or of what is remembered here. */
bool eng_cm_ask(struct eng_cm *cm, struct cm_id *id);
/* The peer keeps it no longer as something that is not complete, or was not asked after all. */
void eng_cm_answered(struct cm_id *id);
/* Nobody waits for the answer any more. */
void eng_cm_unanswered(struct eng_cm *cm, struct cm_id *id);
void eng_cm_asked_fini(struct eng_cm *cm);

/* --- cm_ece.c --- */

/* What a REQ offers of what the program says.  -EINVAL: that is not what its queue pair offers. */
int eng_cm_ece_connect(struct eng_cm *cm, char *why, const struct cm_id *id,
	const struct karst_ctl_ece *ece, struct karst_cm_ece *out);
/* It was sent. */
void eng_cm_ece_connected(struct eng_cm *cm, struct cm_id *id, const struct karst_cm_ece *offer);
/* A REP has come; @out says what of it concerns the program. */
void eng_cm_ece_response(struct eng_cm *cm, const struct cm_id *id, const struct karst_cm_ece *said,
	struct cm_event *out);
/* A REQ has come, likewise. */
void eng_cm_ece_request(
	struct eng_cm *cm, struct cm_id *id, const struct karst_cm_ece *said, struct cm_event *out);
/* What a REP answers of what the program says. */
struct karst_cm_ece eng_cm_ece_accept(
	const struct eng_cm *cm, const struct cm_id *id, const struct karst_ctl_ece *ece);
/* It was sent. */
void eng_cm_ece_accepted(struct eng_cm *cm, const struct karst_cm_ece *answer);

#endif /* ENG_CM_H */
