/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the files of lib/smc share.
 *
 * A connection is made by clc.c, client.c and server.c, lives by tx.c and rx.c, and ends by
 * close.c. It belongs to a group (group.c) and goes over one of its links (link.c, llc.c); its
 * receive element is a buffer of the pool (rmb.c), whose key the peer has to confirm before it is
 * named on TCP.
 *
 * Everything is found by index; lists are made of indices, too, with NIL as their end.  What waits
 * for something that ends with a link, a group or a connection stands in one of these places:
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
#define SLOTS_RESERVED 4                    /* of a link's, for LLC */
#define LATER_MAX      8                    /* an honest peer asks one thing of a kind at a time */
#define ADD_EACH       UINT64_C(1000000000) /* between two queue pairs that it has us make */
#define RELEASE_MAX    1
#define CONNS_MIN      16 /* fewer for a group nobody agrees to */

enum smc_timer {
	TIMER_CONN,
	TIMER_GROUP,
	TIMER_LINK,
};

/* A key of the peer's. */
struct smc_rtoken {
	bool used;
	bool known[KARST_SMC_LINKS]; /* on which links it is */
	uint32_t rkey[KARST_SMC_LINKS];
	uint64_t vaddr[KARST_SMC_LINKS];
	bool sized;    /* a connection has used it: */
	uint8_t size;  /* of its elements */
	uint32_t conn; /* that has used it last */
};

struct smc_conn {
	enum karst_smc_state state;
	uint8_t role;
	uint16_t generation;
	void *user;
	struct karst_timer timer;
	struct smc_rmb *rmb;
	struct smc_group *group; /* from when it has one to its end */
	struct smc_link *link;
	uint32_t group_next, group_prev; /* of the group's connections */
	bool counted;         /* among those that the group has room for: not if parked */
	uint32_t hash_next;   /* of the same token, see smc_conn_by_token() */
	uint32_t ev_next, ev; /* events that were not fetched */
	bool ev_listed;
	uint32_t token, peer_token;
	uint8_t size;
	uint8_t local_gid[16];
	uint8_t peer_ip[16];

	/* CLC: what is agreed on */
	uint8_t version;
	bool first_contact;
	uint8_t release, max_conns, max_links;
	uint8_t links_proposed;
	uint16_t features;
	bool direct;
	const uint8_t *eid;     /* one of the configuration's */
	uint8_t peer_roce[16];  /* server: of the proposal */
	uint8_t peer_system[8]; /* server: of the proposal, maybe zeros */
	/* why it will be declined, when the peer has said what it is about to say */
	uint32_t refuse;
	uint32_t reason;
	bool local_reason;
	int error;

	/* sending; positions of the stream */
	uint32_t send_bytes;
	uint32_t peer_bytes;  /* its element */
	uint64_t peer_offset; /* of the element in the peer's RMB */
	uint16_t rtoken;      /* of the group */
	uint64_t snd_pos;     /* given by the program */
	uint64_t prod;        /* written */
	uint64_t prod_high;   /* ever: after failover prod may be less */
	uint64_t fin;         /* whose CDC message is complete: below this nothing is read again */
	uint64_t peer_cons;
	uint64_t urgent_end; /* behind the last urgent byte of ours, if urgent_set */
	bool urgent_set;
	uint64_t urgent_hold;   /* behind the last urgent byte that was written */
	uint16_t seq;           /* of the last CDC message sent */
	uint16_t seq_fin;       /* of the last one that is complete */
	unsigned int in_flight; /* CDC messages */
	bool want_cdc;          /* something is to be said even without data */
	bool validate;          /* the first message on another link */
	uint8_t prod_flags;     /* of the last message */
	uint8_t conn_flags;     /* sent; they stay */
	bool dead;              /* nothing is sent any more */
	bool app_closed, app_shut;
	bool shut_done, close_done;    /* told the state machine */
	bool closed_told;              /* and CLOSED to the program */
	uint32_t link_next, link_prev; /* waiting for a slot */
	bool on_link;

	/* receiving */
	uint32_t rmb_bytes;
	uint64_t recv_pos;
	uint64_t cons;      /* by the program */
	uint64_t cons_told; /* to the peer */
	uint64_t urgent_pos;
	bool urgent_seen;
	bool rx_seen; /* any CDC message came */
	uint16_t rx_seq;
	uint8_t rx_prod_flags;
	uint8_t rx_flags; /* of the connection; they stay */
};

enum smc_rmb_state {
	RMB_NONE,
	RMB_IDLE,       /* open, no key */
	RMB_KEYED,      /* the peer learns its key by CLC, or has confirmed it */
	RMB_CONFIRMING, /* CONFIRM_RKEY is to be sent, or was */
	RMB_DELETING,   /* DELETE_RKEY is to be sent, or was */
	RMB_SPARE,      /* no connection has it, and the peer has its key */
};

struct smc_rmb {
	enum smc_rmb_state state;
	uint8_t size;
	struct smc_group *group;
	TAILQ_ENTRY(smc_rmb) of_group; /* from when it has one to when that has gone */
	struct smc_conn *conn;         /* NULL: it has gone */
	uint32_t rkey[KARST_SMC_LINKS];
	uint64_t vaddr[KARST_SMC_LINKS];
	uint32_t next;      /* idle ones of its size, or free ones */
	uint32_t flow_next; /* of the group's flows */
	bool queued;
	bool again;        /* it was spare, so the peer has its key, */
	uint32_t changes;  /* on the links that the group had then */
	uint64_t spare_at; /* RMB_SPARE: in which order they became so */
};

enum smc_link_state {
	LINK_NONE,
	LINK_OPEN,       /* there is a queue pair */
	LINK_ADDING,     /* server: ADD_LINK was sent */
	LINK_CONNECTING, /* which takes time */
	LINK_READY,      /* connected */
	LINK_CONFIRMING, /* server: CONFIRM_LINK was sent */
	LINK_ACTIVE,
};

struct smc_slot {
	struct smc_conn *conn; /* NULL: LLC, or it has gone */
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
	uint8_t later[LATER_MAX][KARST_SMC_LLC_LEN]; /* LLC messages for which there was no slot */
	unsigned int nlater;
	uint32_t waiting, waiting_tail; /* connections that want to send */
};

enum smc_group_state {
	GROUP_NONE,
	GROUP_NEW, /* its first connection is being made */
	GROUP_ACTIVE,
	GROUP_ENDING, /* told the peer */
};

struct smc_group {
	enum smc_group_state state;
	uint8_t role;
	uint8_t version, release;
	uint8_t max_conns, max_links;
	bool direct;
	bool one_element; /* of the peer's keys, each has one */
	bool no_reuse;    /* the peer does not know it any more */
	struct karst_smc_peer peer;
	uint8_t key_system[8], key_gid[16]; /* how it is found as server, */
	uint8_t peer_ip[16];                /* by who has the address of its maker */
	const uint8_t *eid;
	uint32_t uid; /* of its links, but for the number */
	uint32_t conns;
	uint8_t nconns;
	struct smc_link links[KARST_SMC_LINKS];
	struct smc_rtoken rtokens[KARST_SMC_CONNS];
	TAILQ_HEAD(, smc_rmb) rmbs;
	struct karst_timer timer; /* of the flow, or the idle time */
	uint32_t flow, flow_tail; /* buffers whose keys are to be confirmed or deleted */
	bool flow_sent;           /* the first one's message was sent */
	struct smc_link *flow_link;
	uint32_t flow_rkey; /* whose answer is awaited */
	uint32_t changes;   /* how often a link has come or gone */
	uint64_t add_ns;    /* until then the peer causes no second link */
	uint32_t nspares;   /* buffers */
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
	uint32_t *hash; /* of tokens */
	uint32_t hash_mask;
	uint32_t free_conn, free_group, free_rmb;
	uint32_t idle_rmbs[KARST_SMC_SIZE_MAX + 1];
	uint64_t ntokens; /* given by now */
	uint64_t nspared; /* buffers that have become spare by now */
	uint32_t next_uid;
	uint32_t ev_conn, ev_conn_tail, ev_group, ev_group_tail;
	struct karst_smc_llc llc_rx, llc_tx; /* too large for a stack of an lcore */
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

/** Which of its group's links it is. */
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

/** Is it one that LLC and CDC go over? */
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

/** NULL: there is none of that id. */
struct smc_conn *smc_conn_find(const struct smc_core *c, uint32_t id);
struct smc_link *smc_link_find(const struct smc_core *c, uint32_t id);
struct smc_conn *smc_conn_by_token(
	const struct smc_core *c, const struct smc_group *g, uint32_t token);
/** Gives it a token that no other has. */
void smc_conn_name(struct smc_core *c, struct smc_conn *conn);
void smc_conn_unname(struct smc_core *c, struct smc_conn *conn);
void smc_conn_event(struct smc_core *c, struct smc_conn *conn, uint32_t what);
void smc_group_event(struct smc_core *c, struct smc_group *g, uint32_t what);
void smc_timer_set(struct smc_core *c, struct karst_timer *t, uint64_t ns_from_now);
void smc_timer_stop(struct smc_core *c, struct karst_timer *t);

/* --- clc.c --- */

void smc_clc_send(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_clc *msg);
void smc_clc_detach(struct smc_core *c, struct smc_conn *conn);
/** It stays on TCP, as the other side was told or has said. */
void smc_fall_back(struct smc_core *c, struct smc_conn *conn, uint32_t reason, bool local);
/** Says DECLINE, and falls back.  The peer has nothing on its way that is not a DECLINE. */
void smc_decline(struct smc_core *c, struct smc_conn *conn, uint32_t reason);
/** The same as soon as that is so. */
void smc_refuse(struct smc_core *c, struct smc_conn *conn, uint32_t reason);
/** The sides may not agree what it is: it is nothing. */
void smc_fail(struct smc_core *c, struct smc_conn *conn, int error);
/** It is SMC-R from here on. */
void smc_connected(struct smc_core *c, struct smc_conn *conn);
/** The timer of a connection that is being made, or is closing. */
void smc_conn_timeout(struct smc_core *c, struct smc_conn *conn);
/** The peer has confirmed the key of the connection's buffer, or has not. */
void smc_conn_rkey_done(struct smc_core *c, struct smc_conn *conn, bool confirmed);
/** Accept or Confirm, of @type. */
void smc_send_accept(struct smc_core *c, struct smc_conn *conn, enum karst_smc_clc_type type);
/** What an Accept or Confirm says about the peer's element.  False: it is impossible. */
bool smc_take_element(struct smc_conn *conn, const struct karst_smc_accept *a);
/** The same, as far as it is known what the key @rtoken of the group is for. */
bool smc_take_rtoken(
	struct smc_core *c, struct smc_conn *conn, int rtoken, const struct karst_smc_accept *a);
/** As a reason to decline: what an op returned. */
uint32_t smc_reason_of(int rc);
/** One of ours that is among them, NULL: none. */
const uint8_t *smc_eid_match(
	const struct smc_core *c, const uint8_t (*eids)[KARST_SMC_EID_LEN], unsigned int n);
/** The queue pair of a first contact's link is connected; if @rc is not 0, it cannot be. */
void smc_first_contact_linked(struct smc_core *c, struct smc_group *g, int rc);
/** The link of a first contact is confirmed: ADD_LINK is next, or nothing. */
void smc_first_contact_confirmed(struct smc_core *c, struct smc_group *g);
/** Waiting for ADD_LINK is over. */
void smc_first_contact_over(struct smc_core *c, struct smc_group *g);

/* --- client.c, server.c --- */

void smc_client_propose(struct smc_core *c, struct smc_conn *conn);
void smc_client_accepted(
	struct smc_core *c, struct smc_conn *conn, const struct karst_smc_accept *a);
/** The key is confirmed: Confirm. */
void smc_client_confirm(struct smc_core *c, struct smc_conn *conn);
/** The queue pair of a first contact is connected: Confirm. */
void smc_client_linked(struct smc_core *c, struct smc_conn *conn);
void smc_server_proposed(
	struct smc_core *c, struct smc_conn *conn, const struct karst_smc_proposal *p);
/** Looks for a group; parks it, accepts, or declines. */
void smc_server_choose(struct smc_core *c, struct smc_conn *conn);
void smc_server_anew(struct smc_core *c, struct smc_conn *conn);
/** It has waited for the group of another one for long enough. */
void smc_server_unpark(struct smc_core *c, struct smc_conn *conn);
/** As if its Confirm had been taken, of one that is to be refused. */
void smc_server_await_decline(struct smc_core *c, struct smc_conn *conn);
void smc_server_confirmed(
	struct smc_core *c, struct smc_conn *conn, const struct karst_smc_accept *a);
/** The queue pair of a first contact is connected: CONFIRM_LINK. */
void smc_server_linked(struct smc_core *c, struct smc_conn *conn);

/* --- group.c --- */

/** A new one for @conn, which is in it afterwards.  NULL: no room */
struct smc_group *smc_group_new(struct smc_core *c, struct smc_conn *conn);
void smc_group_join(struct smc_core *c, struct smc_group *g, struct smc_conn *conn);
void smc_group_leave(struct smc_core *c, struct smc_conn *conn);
struct smc_group *smc_group_of_client(
	const struct smc_core *c, const struct smc_conn *conn, const struct karst_smc_accept *a);
/** The one that @conn may join, or that is being made; NULL */
struct smc_group *smc_group_of_server(const struct smc_core *c, const struct smc_conn *conn);
/** Sets the timer for whatever the group waits for. */
void smc_group_rearm(struct smc_core *c, struct smc_group *g);
/** The group is there, or will not be: those that waited for it choose again. */
void smc_group_settled(struct smc_core *c, struct smc_group *g);
/** Closes everything; its connections are aborted. */
void smc_group_kill(struct smc_core *c, struct smc_group *g, int error);
/** Tells the peer that it ends, with @reason, and kills it when that has left. */
void smc_group_end(struct smc_core *c, struct smc_group *g, uint8_t flags, uint32_t reason);
/** The peer has ended it. */
void smc_group_terminate(struct smc_core *c, struct smc_group *g);
void smc_group_timeout(struct smc_core *c, struct smc_group *g);
/** A link of the group that is active; NULL */
struct smc_link *smc_group_link(struct smc_group *g, const struct smc_link *but);
/** True while a link is being added. */
bool smc_group_adding(const struct smc_group *g);

/** The peer's key on @link; a new one if there is room, with @known set if it was there.  -1 */
int smc_rtoken_add(
	struct smc_group *g, struct smc_link *link, uint32_t rkey, uint64_t vaddr, bool *known);
int smc_rtoken_find(struct smc_group *g, struct smc_link *link, uint32_t rkey);
/** True if it was there. */
bool smc_rtoken_remove(
	struct smc_core *c, struct smc_group *g, struct smc_link *link, uint32_t rkey);

/* --- link.c --- */

/** -errno of the op */
int smc_link_start(struct smc_core *c, struct smc_group *g, unsigned int n, uint8_t number,
	const uint8_t *local_gid, const uint8_t *remote_gid);
/** The same.  0: it is READY, or CONNECTING and will be heard of. */
int smc_link_connect(struct smc_core *c, struct smc_link *link);
void smc_link_active(struct smc_core *c, struct smc_link *link);
void smc_link_close(struct smc_core *c, struct smc_link *link);
/** It has died: connections go to the other one, or the group ends. */
void smc_link_lost(struct smc_core *c, struct smc_link *link, uint32_t tell);
void smc_link_timeout(struct smc_core *c, struct smc_link *link);
/** A SEND: of LLC, or a CDC message of @conn.  False: there is no slot for it. */
bool smc_link_send(struct smc_core *c, struct smc_link *link, struct smc_conn *conn,
	const void *msg, size_t len);
/** True if an LLC message that is too long to wait may be sent now. */
bool smc_link_has_llc_slot(const struct smc_core *c, const struct smc_link *link);
/** True if a CDC message may be sent now. */
bool smc_link_has_slot(const struct smc_core *c, const struct smc_link *link);
void smc_link_wait(struct smc_core *c, struct smc_conn *conn);
void smc_link_unwait(struct smc_core *c, struct smc_conn *conn);
/** The connection has gone: slots do not name it any more. */
void smc_link_forget(struct smc_core *c, struct smc_conn *conn);

/* --- llc.c --- */

/** An empty message of the group's version, to be filled in and sent by smc_llc_send(). */
struct karst_smc_llc *smc_llc_new(struct smc_core *c, const struct smc_link *link,
	enum karst_smc_llc_type type, uint8_t flags);
void smc_llc_send(struct smc_core *c, struct smc_link *link);
void smc_llc_rx(struct smc_core *c, struct smc_link *link, const void *msg, size_t len);
void smc_llc_confirm_link(struct smc_core *c, struct smc_link *link, uint8_t flags);
/** The queue pair of a second link is connected; if @rc is not 0, it cannot be. */
void smc_llc_linked(struct smc_core *c, struct smc_link *added, int rc);
/** Offers link @n, or with mtu 0 none (S10). */
void smc_llc_add_link(struct smc_core *c, struct smc_group *g, struct smc_link *added);
void smc_llc_delete_link(
	struct smc_core *c, struct smc_link *link, uint8_t number, uint8_t flags, uint32_t reason);

/* --- rmb.c --- */

/** A buffer for @conn, with keys on its group's links: its own, if that will do.  -errno */
int smc_rmb_get(struct smc_core *c, struct smc_conn *conn);
/** Its connection does not need it any more. */
void smc_rmb_put(struct smc_core *c, struct smc_conn *conn);
/** Its group's links are not the same any more: those that wait for another connection go. */
void smc_rmb_links_changed(struct smc_core *c, struct smc_group *g);
/** Asks the peer to confirm the key, unless it has it; smc_conn_rkey_done() follows. */
void smc_rmb_confirm(struct smc_core *c, struct smc_rmb *rmb);
/** The group has gone, with all links. */
void smc_rmb_group_gone(struct smc_core *c, struct smc_group *g);
/** Keys on a new link.  -errno */
int smc_rmb_add_link(struct smc_core *c, struct smc_group *g, struct smc_link *link);
/** Sends the next request about a key, if it may. */
void smc_flow_next(struct smc_core *c, struct smc_group *g);
/** An answer came, or never will. */
void smc_flow_answer(struct smc_core *c, struct smc_group *g, struct smc_link *link,
	const struct karst_smc_llc *m);
void smc_flow_over(struct smc_core *c, struct smc_group *g, bool good);
/** The link that the question went over has gone. */
void smc_flow_link_lost(struct smc_core *c, struct smc_group *g, struct smc_link *link);

/* --- tx.c --- */

/** Sends what there is and may be sent. */
void smc_push(struct smc_core *c, struct smc_conn *conn);
/** The same, with a message even if there is no data. */
void smc_push_cdc(struct smc_core *c, struct smc_conn *conn);
void smc_sent(struct smc_core *c, struct smc_conn *conn, const struct smc_slot *slot);
/** Goes over to @link, with nothing lost. */
void smc_fail_over(struct smc_core *c, struct smc_conn *conn, struct smc_link *link);

/* --- rx.c --- */

void smc_cdc_rx(struct smc_core *c, struct smc_link *link, const void *msg, size_t len);

/* --- close.c --- */

/** All was sent, maybe: goes on with what the program wanted to end. */
void smc_close_step(struct smc_core *c, struct smc_conn *conn);
/** The peer has said something about the connection's end. */
void smc_close_peer(struct smc_core *c, struct smc_conn *conn, uint8_t news);
/** Ends it from our side, with @error for the program; says so if @tell. */
void smc_conn_abort(struct smc_core *c, struct smc_conn *conn, int error, bool tell);
void smc_conn_closed(struct smc_core *c, struct smc_conn *conn);
/** Is it CLOSED, and nothing on its way?  Then the program may know. */
void smc_close_quiet(struct smc_core *c, struct smc_conn *conn);

#endif /* KARST_SMC_PRIV_H */
