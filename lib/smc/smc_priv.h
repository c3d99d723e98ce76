/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Private structures and functions that the files of lib/smc share.
 *
 * A connection is established by clc.c, client.c and server.c, transfers data by tx.c and rx.c, and
 * ends by close.c.  It belongs to a group (group.c) and uses one of its links (link.c, llc.c).  Its
 * receive element is a buffer of the pool (rmb.c), whose key the peer has to confirm before it is
 * sent on TCP.
 *
 * Objects are referenced by index; lists are made of indices, too, with NIL as their end.  An
 * object that waits, and whose wait ends with a link, a group or a connection, is in one of these
 * places:
 *
 *   conn.on_link     wants to send: list of its link, when there is no slot
 *   rmb.flow_next    a key is to be confirmed or deleted: list of its group, one at a time
 *   link.slots       SENDs that are not complete, in order
 *   conn.timer, group.timer, link.timer
 *   conn, group      with events: lists of the core
 */
#ifndef KARST_SMC_PRIV_H
#define KARST_SMC_PRIV_H

#include "karst_smc.h"

#include <errno.h>
#include <sys/queue.h>

#include "karst_wheel.h"
#include "smc_mutant.h"

#define NIL            UINT32_MAX
#define SLOTS_MAX      64
#define SLOTS_RESERVED 4 /* of a link's, for LLC */
/* a correct peer has one request of a kind outstanding */
#define LATER_MAX 8
/* minimum time between two queue pairs that a peer causes to be created */
#define ADD_EACH    UINT64_C(1000000000)
#define RELEASE_MAX 1
#define CONNS_MIN   16 /* a lower limit for a group is never agreed to */

enum smc_timer {
	TIMER_CONN,
	TIMER_GROUP,
	TIMER_LINK,
};

/* A key of the peer. */
struct smc_rtoken {
	bool used;
	bool known[KARST_SMC_LINKS]; /* the links on which it is known */
	uint32_t rkey[KARST_SMC_LINKS];
	uint64_t vaddr[KARST_SMC_LINKS];
	bool sized;    /* a connection has used it, so @size is valid */
	uint8_t size;  /* size class of its elements */
	uint32_t conn; /* the last connection that used it */
};

struct smc_conn {
	enum karst_smc_state state;
	uint8_t role;
	uint16_t generation;
	void *user;
	struct karst_timer timer;
	struct smc_rmb *rmb;
	struct smc_group *group; /* from the time when it has one to its end */
	struct smc_link *link;
	uint32_t group_next, group_prev; /* of the group's connections */
	bool counted;                    /* it counts against the group's limit: not if parked */
	uint32_t hash_next;   /* next with the same hash of the token, see smc_conn_by_token() */
	uint32_t ev_next, ev; /* events that were not fetched */
	bool ev_listed;
	uint32_t token, peer_token;
	uint8_t size;
	uint8_t local_gid[16];
	uint8_t peer_ip[16];

	/* CLC: results of the negotiation */
	uint8_t version;
	bool first_contact;
	uint8_t release, max_conns, max_links;
	uint8_t links_proposed;
	uint16_t features;
	bool direct;
	const uint8_t *eid;     /* one of the configuration's */
	uint8_t peer_roce[16];  /* server: of the proposal */
	uint8_t peer_system[8]; /* server: of the proposal, may be zeros */
	/* reason of the DECLINE to send when the peer has sent the message that it is about to
	 * send */
	uint32_t refuse;
	uint32_t reason;
	bool local_reason;
	int error;

	/* sending; positions of the stream */
	uint32_t send_bytes;
	uint32_t peer_bytes;  /* size of the peer's element */
	uint64_t peer_offset; /* of the element in the peer's RMB */
	uint16_t rtoken;      /* index of the peer's key in the group */
	uint64_t snd_pos;     /* bytes that the program has added */
	uint64_t prod;        /* written */
	uint64_t prod_high;   /* highest value of prod: after failover prod may be lower */
	/* position up to which CDC messages are complete: bytes before it are not read again */
	uint64_t fin;
	uint64_t peer_cons;
	uint64_t urgent_end; /* position after this side's last urgent byte, if urgent_set */
	bool urgent_set;
	uint64_t urgent_hold;   /* position after the last urgent byte that was written */
	uint16_t seq;           /* of the last CDC message sent */
	uint16_t seq_fin;       /* of the last one that is complete */
	unsigned int in_flight; /* CDC messages */
	bool want_cdc;          /* a message has to be sent even without data */
	bool validate;          /* the first message on another link */
	uint8_t prod_flags;     /* of the last message */
	uint8_t conn_flags;     /* flags sent; they remain set */
	bool dead;              /* nothing is sent any more */
	bool app_closed, app_shut;
	bool shut_done, close_done;    /* passed to the state machine */
	bool closed_told;              /* the program has the event CLOSED */
	uint64_t close_at;             /* the peer has to answer the close until then */
	bool asks;                     /* messages ask the peer to tell what it reads */
	uint32_t link_next, link_prev; /* waiting for a slot */
	bool on_link;

	/* receiving */
	uint32_t rmb_bytes;
	uint64_t recv_pos;
	uint64_t cons;      /* bytes that the program has consumed */
	uint64_t cons_told; /* bytes consumed, as reported to the peer */
	uint64_t urgent_pos;
	bool urgent_seen;
	bool rx_seen; /* a CDC message was received */
	uint16_t rx_seq;
	uint8_t rx_prod_flags;
	uint8_t rx_flags; /* flags of the connection; they remain set */
};

enum smc_rmb_state {
	RMB_NONE,
	RMB_IDLE,       /* open, no key */
	RMB_KEYED,      /* the peer gets its key by CLC, or has confirmed it */
	RMB_CONFIRMING, /* CONFIRM_RKEY has to be sent, or was sent */
	RMB_DELETING,   /* DELETE_RKEY has to be sent, or was sent */
	RMB_SPARE,      /* no connection uses it, and the peer has its key */
};

struct smc_rmb {
	enum smc_rmb_state state;
	uint8_t size;
	struct smc_group *group;
	/* from the time when it has a group to when the group is gone */
	TAILQ_ENTRY(smc_rmb) of_group;
	struct smc_conn *conn; /* NULL: the connection is gone */
	uint32_t rkey[KARST_SMC_LINKS];
	uint64_t vaddr[KARST_SMC_LINKS];
	uint32_t next;      /* list of idle buffers of its size, or of free ones */
	uint32_t flow_next; /* list of the group's exchanges */
	bool queued;
	bool again;        /* it was spare, so the peer has its key, ... */
	uint32_t changes;  /* ... on the links of the group at this count of changes */
	uint64_t spare_at; /* RMB_SPARE: order in which buffers became spare */
};

enum smc_link_state {
	LINK_NONE,
	LINK_OPEN,       /* the queue pair exists */
	LINK_ADDING,     /* server: ADD_LINK was sent */
	LINK_CONNECTING, /* connecting, which takes time */
	LINK_READY,      /* connected */
	LINK_CONFIRMING, /* server: CONFIRM_LINK was sent */
	LINK_ACTIVE,
};

struct smc_slot {
	struct smc_conn *conn; /* NULL: LLC, or the connection is gone */
	uint64_t prod;
	uint16_t seq;
};

struct smc_link {
	enum smc_link_state state;
	struct smc_group *group;
	uint8_t number;
	uint16_t generation;
	uint8_t uid[4];
	struct karst_smc_end local, remote;
	struct karst_timer timer;
	uint64_t last_rx_ns;
	bool tested;
	struct smc_slot slots[SLOTS_MAX];
	unsigned int first_slot, nslots;
	uint8_t later[LATER_MAX][KARST_SMC_LLC_LEN]; /* LLC messages that wait for a slot */
	unsigned int nlater;
	uint32_t waiting, waiting_tail; /* connections that wait for a slot */
};

enum smc_group_state {
	GROUP_NONE,
	GROUP_NEW, /* its first connection is being established */
	GROUP_ACTIVE,
	GROUP_ENDING, /* the peer has been told */
};

struct smc_group {
	enum smc_group_state state;
	uint8_t role;
	uint8_t version, release;
	uint8_t max_conns, max_links;
	bool direct;
	bool one_element; /* each of the peer's keys has one element */
	bool no_reuse;    /* the peer does not know the group any more */
	struct karst_smc_peer peer;
	uint8_t key_system[8], key_gid[16]; /* the key under which a server finds it, ... */
	/* ... together with the address of the peer that made it */
	uint8_t peer_ip[16];
	const uint8_t *eid;
	uint32_t uid; /* base of the uids of its links; the number is added */
	uint32_t conns;
	uint8_t nconns;
	struct smc_link links[KARST_SMC_LINKS];
	struct smc_rtoken rtokens[KARST_SMC_CONNS];
	TAILQ_HEAD(, smc_rmb) rmbs;
	struct karst_timer timer; /* for the exchange, or the idle time */
	uint32_t flow, flow_tail; /* list of buffers whose keys have to be confirmed or deleted */
	bool flow_sent;           /* the message for the first of them was sent */
	struct smc_link *flow_link;
	uint32_t flow_rkey;        /* key of the outstanding request */
	struct smc_link *end_link; /* GROUP_ENDING: the link that carries the message about it */
	uint32_t changes;          /* number of times that a link was added or lost */
	uint64_t add_ns;           /* until this time the peer cannot cause a second link */
	uint32_t nspares;          /* spare buffers */
	uint32_t next_free;
	uint32_t ev_next, ev;
	bool ev_listed;
};

struct smc_core {
	struct karst_smc pub;
	struct karst_smc_config cfg;
	struct karst_wheel wheel;
	struct smc_conn *conns;
	struct smc_group *groups;
	struct smc_rmb *rmbs;
	uint32_t *hash; /* of connections, by token */
	uint32_t hash_mask;
	uint32_t free_conn, free_group, free_rmb;
	uint32_t idle_rmbs[KARST_SMC_SIZE_MAX + 1];
	uint64_t ntokens; /* tokens drawn so far */
	uint64_t nspared; /* buffers that have become spare so far */
	uint32_t next_uid;
	uint32_t ev_conn, ev_conn_tail, ev_group, ev_group_tail;
	struct karst_smc_llc llc_rx, llc_tx; /* too large for the stack of an lcore */
	uint8_t buf[KARST_SMC_LLC_MAX_LEN];
};

static inline struct smc_core *
core_of(struct karst_smc *smc)
{
	return karst_container_of(smc, struct smc_core, pub);
}

static inline void
count(struct smc_core *c, enum karst_smc_counter counter)
{
	c->pub.counters[counter]++;
}

static inline uint32_t
conn_index(const struct smc_core *c, const struct smc_conn *conn)
{
	return (uint32_t)(conn - c->conns);
}

static inline uint32_t
conn_id(const struct smc_core *c, const struct smc_conn *conn)
{
	return (uint32_t)conn->generation << 16 | conn_index(c, conn);
}

static inline uint32_t
rmb_index(const struct smc_core *c, const struct smc_rmb *rmb)
{
	return (uint32_t)(rmb - c->rmbs);
}

static inline uint32_t
group_index(const struct smc_core *c, const struct smc_group *g)
{
	return (uint32_t)(g - c->groups);
}

/** The index of a link in its group. */
static inline unsigned int
link_slot(const struct smc_link *link)
{
	return (unsigned int)(link - link->group->links);
}

static inline uint32_t
link_id(const struct smc_core *c, const struct smc_link *link)
{
	return (uint32_t)link->generation << 16 |
		(group_index(c, link->group) * KARST_SMC_LINKS + link_slot(link));
}

/** Whether LLC and CDC messages use the link. */
static inline bool
link_usable(const struct smc_link *link)
{
	return link->state == LINK_ACTIVE;
}

static inline bool
conn_connected(const struct smc_conn *conn)
{
	return conn->state >= KARST_SMC_ACTIVE && conn->state < KARST_SMC_CLOSED;
}

/* --- smc.c --- */

/** NULL: there is no object with that id. */
struct smc_conn *smc_conn_find(const struct smc_core *c, uint32_t id);
struct smc_link *smc_link_find(const struct smc_core *c, uint32_t id);
struct smc_conn *smc_conn_by_token(
	const struct smc_core *c, const struct smc_group *g, uint32_t token);
/** Assigns a token that no other connection has. */
void smc_conn_name(struct smc_core *c, struct smc_conn *conn);
void smc_conn_unname(struct smc_core *c, struct smc_conn *conn);
void smc_conn_event(struct smc_core *c, struct smc_conn *conn, uint32_t what);
void smc_group_event(struct smc_core *c, struct smc_group *g, uint32_t what);
void smc_timer_set(struct smc_core *c, struct karst_timer *t, uint64_t ns_from_now);
void smc_timer_stop(struct smc_core *c, struct karst_timer *t);

/* --- clc.c --- */

void smc_clc_send(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_clc *msg);
void smc_clc_detach(struct smc_core *c, struct smc_conn *conn);
/** The connection stays on TCP; the peer was told, or has told this side. */
void smc_fall_back(struct smc_core *c, struct smc_conn *conn, uint32_t reason, bool local);
/** Sends DECLINE, and falls back.  The peer has sent nothing that is not a DECLINE. */
void smc_decline(struct smc_core *c, struct smc_conn *conn, uint32_t reason);
/** The same, as soon as that condition is true. */
void smc_refuse(struct smc_core *c, struct smc_conn *conn, uint32_t reason);
/** The sides may disagree whether it is SMC-R: the connection fails. */
void smc_fail(struct smc_core *c, struct smc_conn *conn, int error);
/** The connection is SMC-R from here on. */
void smc_connected(struct smc_core *c, struct smc_conn *conn);
/** The timer of a connection that is being established, or is closing. */
void smc_conn_timeout(struct smc_core *c, struct smc_conn *conn);
/** The peer has confirmed the key of the connection's buffer, or not. */
void smc_conn_rkey_done(struct smc_core *c, struct smc_conn *conn, bool confirmed);
/** Sends Accept or Confirm, according to @type. */
void smc_send_accept(struct smc_core *c, struct smc_conn *conn, enum karst_smc_clc_type type);
/** Takes the peer's element from an Accept or Confirm.  False: it is invalid. */
bool smc_take_element(struct smc_conn *conn, const struct karst_smc_accept *a);
/** The same for the key @rtoken of the group, checked against earlier uses of the key. */
bool smc_take_rtoken(
	struct smc_core *c, struct smc_conn *conn, int rtoken, const struct karst_smc_accept *a);
/** The reason to decline for the result of an op. */
uint32_t smc_reason_of(int rc);
/** A configured EID that is among @eids; NULL: none. */
const uint8_t *smc_eid_match(
	const struct smc_core *c, const uint8_t (*eids)[KARST_SMC_EID_LEN], unsigned int n);
/** The queue pair of a first contact's link is connected; @rc not 0: it cannot be. */
void smc_first_contact_linked(struct smc_core *c, struct smc_group *g, int rc);
/** The link of a first contact is confirmed: ADD_LINK follows, or nothing. */
void smc_first_contact_confirmed(struct smc_core *c, struct smc_group *g);
/** The wait for ADD_LINK is over. */
void smc_first_contact_over(struct smc_core *c, struct smc_group *g);

/* --- client.c, server.c --- */

void smc_client_propose(struct smc_core *c, struct smc_conn *conn);
void smc_client_accepted(
	struct smc_core *c, struct smc_conn *conn, const struct karst_smc_accept *a);
/** The key is confirmed: sends Confirm. */
void smc_client_confirm(struct smc_core *c, struct smc_conn *conn);
/** The queue pair of a first contact is connected: sends Confirm. */
void smc_client_linked(struct smc_core *c, struct smc_conn *conn);
void smc_server_proposed(
	struct smc_core *c, struct smc_conn *conn, const struct karst_smc_proposal *p);
/** Looks for a group; parks the connection, accepts, or declines. */
void smc_server_choose(struct smc_core *c, struct smc_conn *conn);
void smc_server_anew(struct smc_core *c, struct smc_conn *conn);
/** The connection has waited long enough for the group of another one. */
void smc_server_unpark(struct smc_core *c, struct smc_conn *conn);
/** Continues as if its Confirm had been accepted, for a connection that is to be refused. */
void smc_server_await_decline(struct smc_core *c, struct smc_conn *conn);
void smc_server_confirmed(
	struct smc_core *c, struct smc_conn *conn, const struct karst_smc_accept *a);
/** The queue pair of a first contact is connected: sends CONFIRM_LINK. */
void smc_server_linked(struct smc_core *c, struct smc_conn *conn);

/* --- group.c --- */

/** Creates a group for @conn, and adds @conn to it.  NULL: no room */
struct smc_group *smc_group_new(struct smc_core *c, struct smc_conn *conn);
void smc_group_join(struct smc_core *c, struct smc_group *g, struct smc_conn *conn);
void smc_group_leave(struct smc_core *c, struct smc_conn *conn);
/** The link, of a group that @conn may join, whose other end @a names; NULL.  Queue pairs of two
 *  devices may have equal numbers. */
struct smc_link *smc_link_of_client(
	const struct smc_core *c, const struct smc_conn *conn, const struct karst_smc_accept *a);
/** The group that @conn may join, or that is being made; NULL */
struct smc_group *smc_group_of_server(const struct smc_core *c, const struct smc_conn *conn);
/** Sets the timer according to what the group waits for. */
void smc_group_rearm(struct smc_core *c, struct smc_group *g);
/** The group is established, or will not be: connections that waited for it choose again. */
void smc_group_settled(struct smc_core *c, struct smc_group *g);
/** Closes everything; its connections are aborted. */
void smc_group_kill(struct smc_core *c, struct smc_group *g, int error);
/** Tells the peer that the group ends, with @reason, and kills it when that was sent. */
void smc_group_end(struct smc_core *c, struct smc_group *g, uint8_t flags, uint32_t reason);
/** The peer has ended the group. */
void smc_group_terminate(struct smc_core *c, struct smc_group *g);
void smc_group_timeout(struct smc_core *c, struct smc_group *g);
/** An active link of the group other than @but; NULL */
struct smc_link *smc_group_link(struct smc_group *g, const struct smc_link *but);
/** Whether a link is being added. */
bool smc_group_adding(const struct smc_group *g);

/** The index of the peer's key on @link; a new one if there is room; @known: it existed.  -1 */
int smc_rtoken_add(
	struct smc_group *g, struct smc_link *link, uint32_t rkey, uint64_t vaddr, bool *known);
int smc_rtoken_find(struct smc_group *g, struct smc_link *link, uint32_t rkey);
/** @return whether it existed. */
bool smc_rtoken_remove(
	struct smc_core *c, struct smc_group *g, struct smc_link *link, uint32_t rkey);

/* --- link.c --- */

/** Creates the queue pair of a link.  -errno of the op */
int smc_link_start(struct smc_core *c, struct smc_group *g, unsigned int n, uint8_t number,
	const uint8_t *local_gid, const uint8_t *remote_gid);
/** Connects it.  -errno of the op; 0: it is READY, or CONNECTING and a report follows. */
int smc_link_connect(struct smc_core *c, struct smc_link *link);
void smc_link_active(struct smc_core *c, struct smc_link *link);
void smc_link_close(struct smc_core *c, struct smc_link *link);
/** A link has failed: connections go over to the other one, or the group ends. */
void smc_link_lost(struct smc_core *c, struct smc_link *link, uint32_t tell);
void smc_link_timeout(struct smc_core *c, struct smc_link *link);
/** SENDs an LLC message, or a CDC message of @conn.  False: there is no slot for it. */
bool smc_link_send(struct smc_core *c, struct smc_link *link, struct smc_conn *conn,
	const void *msg, size_t len);
/** Whether an LLC message that is too long to be queued may be sent now. */
bool smc_link_has_llc_slot(const struct smc_core *c, const struct smc_link *link);
/** Whether a CDC message may be sent now. */
bool smc_link_has_slot(const struct smc_core *c, const struct smc_link *link);
void smc_link_wait(struct smc_core *c, struct smc_conn *conn);
void smc_link_unwait(struct smc_core *c, struct smc_conn *conn);
/** The connection is gone: removes it from the slots. */
void smc_link_forget(struct smc_core *c, struct smc_conn *conn);

/* --- llc.c --- */

/** Returns an empty message of the group's version, to be filled in and sent by smc_llc_send(). */
struct karst_smc_llc *smc_llc_new(struct smc_core *c, const struct smc_link *link,
	enum karst_smc_llc_type type, uint8_t flags);
void smc_llc_send(struct smc_core *c, struct smc_link *link);
void smc_llc_rx(struct smc_core *c, struct smc_link *link, const void *msg, size_t len);
void smc_llc_confirm_link(struct smc_core *c, struct smc_link *link, uint8_t flags);
/** The queue pair of a second link is connected; @rc not 0: it cannot be. */
void smc_llc_linked(struct smc_core *c, struct smc_link *added, int rc);
/** Offers link @added; NULL: sends an ADD_LINK with mtu 0, which offers none (S10). */
void smc_llc_add_link(struct smc_core *c, struct smc_group *g, struct smc_link *added);
void smc_llc_delete_link(
	struct smc_core *c, struct smc_link *link, uint8_t number, uint8_t flags, uint32_t reason);

/* --- rmb.c --- */

/** Gets a buffer for @conn, with keys on its group's links: the connection's own if usable.
 *  -errno */
int smc_rmb_get(struct smc_core *c, struct smc_conn *conn);
/** The connection does not need its buffer any more. */
void smc_rmb_put(struct smc_core *c, struct smc_conn *conn);
/** The links of the group have changed: deletes the keys of spare buffers. */
void smc_rmb_links_changed(struct smc_core *c, struct smc_group *g);
/** Asks the peer to confirm the key, unless the peer has it; smc_conn_rkey_done() follows. */
void smc_rmb_confirm(struct smc_core *c, struct smc_rmb *rmb);
/** The group is gone, with all links. */
void smc_rmb_group_gone(struct smc_core *c, struct smc_group *g);
/** Creates keys on a new link.  -errno */
int smc_rmb_add_link(struct smc_core *c, struct smc_group *g, struct smc_link *link);
/** Sends the next request about a key, if that is allowed. */
void smc_flow_next(struct smc_core *c, struct smc_group *g);
/** An answer has arrived, or never will. */
void smc_flow_answer(struct smc_core *c, struct smc_group *g, struct smc_link *link,
	const struct karst_smc_llc *m);
void smc_flow_over(struct smc_core *c, struct smc_group *g, bool good);
/** The link that carried the request is gone. */
void smc_flow_link_lost(struct smc_core *c, struct smc_group *g, struct smc_link *link);

/* --- tx.c --- */

/** Sends what there is, as far as that is allowed. */
void smc_push(struct smc_core *c, struct smc_conn *conn);
/** The same, with a message even if there is no data. */
void smc_push_cdc(struct smc_core *c, struct smc_conn *conn);
void smc_sent(struct smc_core *c, struct smc_conn *conn, const struct smc_slot *slot);
/** Goes over to @link, without loss. */
void smc_fail_over(struct smc_core *c, struct smc_conn *conn, struct smc_link *link);

/* --- rx.c --- */

void smc_cdc_rx(struct smc_core *c, struct smc_link *link, const void *msg, size_t len);

/* --- close.c --- */

/** All may have been sent: continues with what the program wanted to end. */
void smc_close_step(struct smc_core *c, struct smc_conn *conn);
/** The program has closed: begins the time in which the peer has to answer, or to read. */
void smc_close_wait(struct smc_core *c, struct smc_conn *conn);
/** The timer has fired.  @return whether the time is not over. */
bool smc_close_waits(struct smc_core *c, struct smc_conn *conn);
/** The peer has sent flags about the end of the connection. */
void smc_close_peer(struct smc_core *c, struct smc_conn *conn, uint8_t news);
/** Aborts the connection, with @error for the program; notifies the peer if @tell. */
void smc_conn_abort(struct smc_core *c, struct smc_conn *conn, int error, bool tell);
void smc_conn_closed(struct smc_core *c, struct smc_conn *conn);
/** Raises the event CLOSED if the connection is CLOSED and nothing is under way. */
void smc_close_quiet(struct smc_core *c, struct smc_conn *conn);

#endif /* KARST_SMC_PRIV_H */
