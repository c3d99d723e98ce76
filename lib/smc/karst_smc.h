/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * SMC-R (RFC 7609, and version 2 as Linux implements it): byte streams of TCP programs, transferred
 * by RDMA WRITE into the peer's buffers.
 *
 * Nothing in this library does I/O, reads a clock, allocates, locks or logs, and it accesses no
 * byte of a stream.  A struct karst_smc has all connections and link groups of a system, and is
 * used by one thread only, which sets smc->now_ns before any call.  Actions are requested through
 * ops, which may not call back; the caller fetches news by karst_smc_next_event() after a call.
 *
 *   client                                  server
 *   karst_smc_conn_open  -> ops->clc        karst_smc_conn_open
 *   karst_smc_clc_rx: bytes received on TCP, until the event CONNECTED, FALLBACK or FAILED
 *   ops->link_open, link_connect            for the first connection of two systems
 *   karst_smc_link_rx: SENDs received on a link's queue pair; karst_smc_link_sent: SENDs completed
 *
 *   karst_smc_conn_send     bytes were added to the send buffer -> ops->write, ops->send
 *   karst_smc_conn_consumed bytes were taken out of the receive element
 *   karst_smc_conn_shutdown, _close, _abort -> the event CLOSED; karst_smc_conn_release
 *
 * Positions count the bytes of a stream from 0.  Byte p of the sent stream is at p modulo the size
 * of the send buffer, which belongs to the caller; byte p of the received stream is at p modulo the
 * element's size.
 *
 * Queue pairs belong to the caller.  Each has room for @send_slots SENDs, and five WRITEs for each;
 * all in order.  Receives are of KARST_SMC_LLC_MAX_LEN bytes.  SENDs ask for a solicited event
 * (S3).
 *
 * Functions return 0 or a negative errno; a function that fails has changed nothing and sent
 * nothing.  All calls: -ENOENT if there is no such id.
 */
#ifndef KARST_SMC_H
#define KARST_SMC_H

#include "karst_base.h"
#include "karst_smc_msg.h"

#define KARST_SMC_LINKS 2   /* of a group, as Linux has them */
#define KARST_SMC_CONNS 255 /* of a group, maximum */
/* value of the OS field for Linux; other systems have other values */
#define KARST_SMC_OS_LINUX 2

struct karst_smc;

enum karst_smc_role {
	KARST_SMC_CLIENT,
	KARST_SMC_SERVER,
};

/* States of a connection.  From ACTIVE on those of RFC 7609. */
enum karst_smc_state {
	KARST_SMC_FREE,
	KARST_SMC_WAIT_PROPOSAL, /* server */
	/* server: other connections are about to make the group that it needs */
	KARST_SMC_PARKED,
	KARST_SMC_WAIT_ACCEPT,       /* client */
	KARST_SMC_WAIT_RKEY,         /* both: the peer has to confirm the key of this side */
	KARST_SMC_WAIT_LINK,         /* client: the queue pair is being connected */
	KARST_SMC_WAIT_CONFIRM,      /* server */
	KARST_SMC_WAIT_CONFIRM_LINK, /* both */
	KARST_SMC_WAIT_ADD_LINK,     /* both */
	KARST_SMC_FELL_BACK,         /* it is a TCP connection; release it */
	KARST_SMC_FAILED,            /* neither SMC-R nor TCP: reset TCP; release it */
	KARST_SMC_ACTIVE,
	KARST_SMC_PEER_CLOSE_WAIT1,    /* this side ended its direction */
	KARST_SMC_PEER_CLOSE_WAIT2,    /* and the peer ended its own, but has not closed */
	KARST_SMC_APP_CLOSE_WAIT1,     /* the peer ended its direction */
	KARST_SMC_APP_CLOSE_WAIT2,     /* and this side ended its own, but has not closed */
	KARST_SMC_APP_FIN_CLOSE_WAIT,  /* the peer has closed, the local program has not */
	KARST_SMC_PEER_FIN_CLOSE_WAIT, /* the local program has closed, the peer has not */
	KARST_SMC_PEER_ABORT_WAIT,     /* this side aborted, the peer has not confirmed it */
	KARST_SMC_PROCESS_ABORT,       /* the peer aborted, the local program has to close */
	KARST_SMC_CLOSED,
	KARST_SMC_STATES
};
const char *karst_smc_state_name(enum karst_smc_state state);

/* One end of a link. */
struct karst_smc_end {
	uint8_t gid[16];
	uint8_t mac[6];
	uint32_t qpn;
	uint32_t psn; /* the first PSN that it sends */
	uint8_t mtu;  /* as enum ibv_mtu */
};

/** The purpose of a link. */
struct karst_smc_link_ask {
	uint32_t link; /* its id from now on */
	uint32_t group;
	uint8_t number; /* in the group: 1 is the first */
	enum karst_smc_role role;
	uint8_t version;
	/* number 1: the GID that the connection was opened with; else NULL */
	const uint8_t *local_gid;
	const uint8_t *remote_gid; /* number 1, and as client: the peer's; else NULL */
};

/** A range of bytes to write to the peer's memory. */
struct karst_smc_write {
	uint32_t link;
	uint32_t conn;
	void *user;   /* of the connection */
	uint64_t pos; /* position in the stream, and so in the send buffer */
	uint32_t len;
	uint32_t rkey;
	uint64_t vaddr;
};

/** Operations of the caller.  None may call back. */
struct karst_smc_ops {
	/** Write these bytes to the TCP connection.  They are few: a socket has room for them. */
	void (*clc)(void *user, uint32_t conn, void *conn_user, const void *msg, size_t len);
	/**
	 * Create a queue pair, with receives posted, and return its properties.  -ENODEV: there is
	 * no (other) port; -EHOSTUNREACH: no route; -ENOMEM
	 */
	int (*link_open)(
		void *user, const struct karst_smc_link_ask *ask, struct karst_smc_end *local);
	/**
	 * Connect it: ready to receive and to send, with path MTU @remote->mtu.  -EINPROGRESS: that
	 * takes time; karst_smc_link_connected() reports the result, unless the link is closed
	 * before
	 */
	int (*link_connect)(void *user, uint32_t link, const struct karst_smc_end *remote);
	/** Close it.  After the return no WRITE reads a send buffer any more. */
	void (*link_close)(void *user, uint32_t link);
	/** SEND with a solicited event; karst_smc_link_sent() when it is complete. */
	void (*send)(void *user, uint32_t link, const void *msg, size_t len);
	/** RDMA WRITE, before the next SEND of the link; without a completion. */
	void (*write)(void *user, const struct karst_smc_write *write);
	/** Create buffer @rmb of @bytes, a power of two; all zeros. */
	int (*rmb_open)(void *user, uint32_t rmb, uint32_t bytes);
	/**
	 * Allow the peer of @link to WRITE into it: return its key and address.  @conn_user: of the
	 * connection that uses it.  A caller that gives each connection memory of its own, which no
	 * program has used before, allocates that memory by this call at the latest.
	 */
	int (*rmb_key)(void *user, uint32_t rmb, void *conn_user, uint32_t link, uint32_t *rkey,
		uint64_t *vaddr);
	/** Invalidate all of its keys. */
	void (*rmb_unkey)(void *user, uint32_t rmb);
	void (*rmb_close)(void *user, uint32_t rmb);
};

struct karst_smc_config {
	uint32_t max_conns;  /* 0 = default 1024; at most 2^16 */
	uint32_t max_groups; /* 0 = default 64; at most 2^12 */
	uint32_t max_rmbs;   /* 0 = as max_conns */
	uint8_t system_id[8];
	uint8_t mac[6];                           /* for version 1's proposals */
	uint8_t hostname[KARST_SMC_HOSTNAME_LEN]; /* padded with blanks */
	uint8_t eids[KARST_SMC_EIDS_MAX][KARST_SMC_EID_LEN];
	uint8_t neids;       /* number of @eids; 0: no version 2 */
	bool v1;             /* version 1 is offered and accepted as well */
	uint8_t release;     /* of version 2: 0 or 1; KARST_SMC_DEFAULT: 1 */
	uint16_t features;   /* of release 1 */
	uint8_t group_conns; /* 16 to 255; 0 = default 255 */
	uint8_t group_links; /* 1 or 2; 0 = default 1; see karst_smc_set_group_links() */
	uint8_t send_slots;  /* limit of incomplete SENDs of a link: 8 to 64; 0 = default 16 */
	/* secret, for tokens.  A token names a connection on a link, and a program could send any
	 * token over TCP, so tokens must not be predictable.  0: tokens count from 1 */
	uint64_t token_key[2];
	/* fewer bytes than this wait while a CDC message of the connection is incomplete */
	uint32_t cork_bytes;
	uint64_t clc_wait_ns;     /* 0 = default 6 s */
	uint64_t confirm_wait_ns; /* for CONFIRM_LINK; 0 = default 5 s; servers wait 3 s more */
	uint64_t llc_wait_ns;     /* for other answers; 0 = default 2 s */
	/* for each step of adding a second link, during which no key can be confirmed; 0 =
	 * llc_wait_ns */
	uint64_t add_wait_ns;
	uint64_t test_ns; /* time of silence after which a link is tested; 0 = default 30 s */
	/* time to wait for the peer after the program has closed, counted from the last sign that
	 * it reads; 0 = default 60 s */
	uint64_t close_wait_ns;
	uint64_t group_idle_ns; /* 0 = default 600 s; clients wait 10 s more */
	/* if a link has received anything within this time, its peer still has its keys; 0 =
	 * default 1 s */
	uint64_t heard_ns;
	const struct karst_smc_ops *ops;
	void *user; /* for ops */
};
#define KARST_SMC_DEFAULT 255u

/* Counters; see karst_smc_counter.def. */
enum karst_smc_counter {
#define KARST_SMC_COUNTER(symbol, name, meaning) KARST_SMC_CTR_##symbol,
#include "karst_smc_counter.def"
#undef KARST_SMC_COUNTER
	KARST_SMC_CTRS
};
/** "name" and "meaning" of a counter; NULL if there is no such counter. */
const char *karst_smc_counter_name(enum karst_smc_counter counter);
const char *karst_smc_counter_meaning(enum karst_smc_counter counter);

/** The part that the caller may access. */
struct karst_smc {
	uint64_t now_ns; /* set by the caller before each call; never goes back */
	uint64_t counters[KARST_SMC_CTRS];
	uint32_t nconns;
	uint32_t ngroups;
	uint32_t nrmbs; /* open buffers, in use or not */
};

/** The size of the state.  0 if @cfg is invalid. */
size_t karst_smc_bytes(const struct karst_smc_config *cfg);
/** Initialises it in @buf, which has karst_smc_bytes() bytes, cache-line aligned.  -EINVAL */
int karst_smc_init(
	void *buf, const struct karst_smc_config *cfg, uint64_t now_ns, struct karst_smc **smc);
/**
 * Sets the number of links, 1 or 2, for groups that are negotiated from now on: as many as there
 * are ports.  Existing groups keep what was agreed on.  -EINVAL: another number.
 */
int karst_smc_set_group_links(struct karst_smc *smc, uint8_t links);
/** Closes all links and buffers without any message or event. */
void karst_smc_fini(struct karst_smc *smc);

/** Fires up to @budget timers that are due at smc->now_ns.  @return how many */
unsigned int karst_smc_expire(struct karst_smc *smc, unsigned int budget);
/** When karst_smc_expire() has work next; UINT64_MAX: never. */
uint64_t karst_smc_next_ns(const struct karst_smc *smc);

/* --- connections --- */

struct karst_smc_conn_attr {
	enum karst_smc_role role;
	uint8_t size;          /* of the receive element: 2^(14 + size), 0 to 10 */
	uint32_t send_bytes;   /* of the send buffer, a power of two */
	uint8_t local_gid[16]; /* RoCE GID of the port to use */
	uint8_t peer_ip[16];   /* the peer's TCP address, IPv4 as mapped IPv6; 0: not known */
	void *user;
};

/**
 * A TCP connection was established, and both sides sent the option (S1).  A client sends a Proposal
 * at once, or declines (the event FALLBACK follows) if it has no EID.  -EINVAL, -ENOSPC
 */
int karst_smc_conn_open(
	struct karst_smc *smc, const struct karst_smc_conn_attr *attr, uint32_t *conn);

/**
 * @len bytes are at the head of the data received on TCP.  @return how many of them were CLC and
 * have to be removed: 0, or one message; call again while it is not 0, and when more has arrived.
 * Bytes that are not CLC remain: a server then gets FALLBACK, a client FAILED (S2).
 */
int karst_smc_clc_rx(struct karst_smc *smc, uint32_t conn, const void *buf, size_t len);

/**
 * The caller refuses SMC-R for the connection, with @reason (enum karst_smc_reason).  FALLBACK
 * follows, as soon as the peer has sent the message that it is about to send.  -EINVAL: its link is
 * confirmed
 */
int karst_smc_conn_decline(struct karst_smc *smc, uint32_t conn, uint32_t reason);

/**
 * @bytes were added to the send buffer; the last of them is urgent if @urgent.  -EPIPE: this
 * direction has ended.  -EINVAL: not connected.  -ENOSPC: there is no room for them
 */
int karst_smc_conn_send(struct karst_smc *smc, uint32_t conn, uint32_t bytes, bool urgent);
/** @bytes were taken out of the element.  -EINVAL: there were fewer */
int karst_smc_conn_consumed(struct karst_smc *smc, uint32_t conn, uint32_t bytes);
/** Ends the direction to the peer, once all is sent.  -ENOTCONN */
int karst_smc_conn_shutdown(struct karst_smc *smc, uint32_t conn);
/** The program has closed: once all is sent this tells the peer, or aborts if bytes are unread. */
int karst_smc_conn_close(struct karst_smc *smc, uint32_t conn);
/** The program is gone, or will not wait: ends the connection at once; unsent bytes are lost. */
int karst_smc_conn_abort(struct karst_smc *smc, uint32_t conn);
/** After FALLBACK, FAILED or CLOSED: frees the id.  -EBUSY */
int karst_smc_conn_release(struct karst_smc *smc, uint32_t conn);

/**
 * Before karst_smc_conn_release(), for a connection that is CLOSED: its owner keeps its buffer,
 * number *@rmb, and the key, for the owner's next connection with this peer.  Only the owner may
 * use it.  It may be taken away at any time, which ops->rmb_unkey() reports.  -EINVAL: the two
 * sides have not both ended properly; -EBUSY: there is no room for it, or a link is being added.
 * In these cases nothing is kept, and the buffer is released as others are.
 */
int karst_smc_conn_keep(struct karst_smc *smc, uint32_t conn, uint32_t *rmb);
/**
 * After karst_smc_conn_open(): the connection gets the buffer @rmb, whose memory is its own.  If
 * the connection joins another group, whose peer does not have that key, it gets another key
 * (ops->rmb_key()), and this key is deleted.  -ENOENT: no such buffer is kept.  -EINVAL: too late
 */
int karst_smc_conn_take(struct karst_smc *smc, uint32_t conn, uint32_t rmb);
/** A kept buffer is not needed any more; ops->rmb_unkey() follows, now or later.  -ENOENT: not
 *  kept */
int karst_smc_rmb_drop(struct karst_smc *smc, uint32_t rmb);

struct karst_smc_conn_info {
	enum karst_smc_state state;
	enum karst_smc_role role;
	uint32_t group, link, rmb; /* valid while connected */
	uint32_t rmb_bytes;
	uint32_t peer_bytes;  /* of the peer's element */
	uint64_t sent_pos;    /* bytes that the program has added */
	uint64_t written_pos; /* bytes written to the peer */
	uint64_t free_pos;    /* the send buffer need not keep bytes before this */
	uint64_t peer_pos;    /* bytes that the peer has consumed */
	uint64_t recv_pos;    /* bytes received */
	uint64_t consumed_pos;
	uint64_t urgent_pos; /* position of the last urgent byte received, if @urgent */
	bool urgent;
	bool urgent_coming; /* the peer has an urgent byte, and no room to send it */
	bool peer_done;     /* no more bytes will arrive */
	/* no more bytes can be sent: -EPIPE; unwritten ones never will be */
	bool send_over;
	bool peer_blocked;
	int error;       /* ECONNRESET, ECONNABORTED, ETIMEDOUT, EPROTO; 0 */
	uint32_t reason; /* FELL_BACK: enum karst_smc_reason, of the side that declined */
	bool local;      /* ... which is this side */
	void *user;
};
int karst_smc_conn_info(
	const struct karst_smc *smc, uint32_t conn, struct karst_smc_conn_info *info);

/* --- links --- */

/** A SEND was received on the queue pair of @link.  Malformed, unknown or forged messages are
 *  counted. */
void karst_smc_link_rx(struct karst_smc *smc, uint32_t link, const void *msg, size_t len);
/** The next @n SENDs of the link, and all WRITEs in front of them, are complete. */
void karst_smc_link_sent(struct karst_smc *smc, uint32_t link, unsigned int n);
/** @rc: 0 or -errno of ops->link_connect(), which returned -EINPROGRESS. */
void karst_smc_link_connected(struct karst_smc *smc, uint32_t link, int rc);
/** The queue pair is in error. */
void karst_smc_link_down(struct karst_smc *smc, uint32_t link);
/** As server: tries to add a second link to @group, if it has one.  -EINVAL, -EBUSY, -ENODEV */
int karst_smc_group_add_link(struct karst_smc *smc, uint32_t group);
/**
 * As client of version 2: asks the server to add a second link to @group, which would end at @gid
 * (S10).  The server may have none, and then does not answer.  -ENOENT, -EINVAL; -EBUSY: one
 * exists, or is being added
 */
int karst_smc_group_ask_link(struct karst_smc *smc, uint32_t group, const uint8_t gid[16]);
/** Ends a group at once: its connections are aborted. */
int karst_smc_group_end(struct karst_smc *smc, uint32_t group);

struct karst_smc_group_info {
	enum karst_smc_role role;
	uint8_t version, release;
	uint8_t max_conns, max_links, nconns;
	uint8_t nlinks; /* active */
	bool reusable;  /* accepts connections */
	struct karst_smc_peer
		peer; /* as server: the GID is known; the rest only after the first Confirm */
	uint32_t links[KARST_SMC_LINKS];
	struct karst_smc_end local[KARST_SMC_LINKS], remote[KARST_SMC_LINKS];
	bool active[KARST_SMC_LINKS];
};
/** -ENOENT: @group, from 0 to max_groups, is not in use. */
int karst_smc_group_info(
	const struct karst_smc *smc, uint32_t group, struct karst_smc_group_info *info);

/* --- events --- */

/* Of connections; several may be set at once. */
#define KARST_SMC_EV_CONNECTED 0x001u
#define KARST_SMC_EV_FALLBACK  0x002u /* TCP from here on: no byte of the stream was taken */
#define KARST_SMC_EV_FAILED    0x004u /* the sides may disagree: reset TCP (error in info) */
#define KARST_SMC_EV_READABLE  0x008u /* bytes arrived */
#define KARST_SMC_EV_WRITABLE  0x010u /* room in the send buffer, or send_over */
#define KARST_SMC_EV_URGENT    0x020u
#define KARST_SMC_EV_PEER_DONE 0x040u /* no more bytes will arrive */
#define KARST_SMC_EV_RESET     0x080u /* aborted, error in info: close it */
/* over: the send buffer and the TCP connection may be freed; release it */
#define KARST_SMC_EV_CLOSED 0x100u
/* Of groups. */
#define KARST_SMC_EV_GROUP_UP   0x1000u
#define KARST_SMC_EV_LINK_UP    0x2000u /* a second one */
#define KARST_SMC_EV_LINK_DOWN  0x4000u /* one of two */
#define KARST_SMC_EV_GROUP_DOWN 0x8000u /* its id is free */
/* The client asks for a second link, too soon after another one was made, or tried.  It does not
 * ask again: call karst_smc_group_add_link() after a second. */
#define KARST_SMC_EV_LINK_ASKED 0x10000u

struct karst_smc_ev {
	uint32_t what; /* of KARST_SMC_EV_ */
	uint32_t id;   /* of the connection or group */
	void *user;    /* of the connection */
};

/** Fetches the next event.  False: there is none. */
bool karst_smc_next_event(struct karst_smc *smc, struct karst_smc_ev *ev);

#endif /* KARST_SMC_H */
