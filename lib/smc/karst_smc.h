/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * SMC-R (RFC 7609, and version 2 as Linux speaks it): byte streams of TCP programs, moved by RDMA
 * WRITE into the peer's buffers.
 *
 * Nothing in here does I/O, reads a clock, allocates, locks or logs, and no byte of a stream is
 * touched.  A struct karst_smc holds all connections and link groups of a system and is touched
 * by one thread alone, which sets smc->now_ns before any call.  What is to be done goes out
 * through ops, which may not call back; what is to be known is fetched by karst_smc_next_event()
 * after a call.
 *
 *   client                                  server
 *   karst_smc_conn_open  -> ops->clc        karst_smc_conn_open
 *   karst_smc_clc_rx: what came on TCP, until the event CONNECTED, FALLBACK or FAILED
 *   ops->link_open, link_connect            for the first connection of two systems
 *   karst_smc_link_rx: SENDs that came on a link's queue pair; karst_smc_link_sent: SENDs completed
 *
 *   karst_smc_conn_send     so many bytes more are in the send buffer -> ops->write, ops->send
 *   karst_smc_conn_consumed so many bytes have been taken out of the receive element
 *   karst_smc_conn_shutdown, _close, _abort -> the event CLOSED; karst_smc_conn_release
 *
 * Positions count the bytes of a stream from 0.  Byte p of what is sent lies at p modulo the size
 * of the send buffer, which is the caller's; byte p of what is received at p modulo the element's
 * size.
 *
 * Queue pairs are the caller's.  Each has room for @send_slots SENDs, and five WRITEs for each; all
 * in order.  Receives are of KARST_SMC_LLC_MAX_LEN bytes.  SENDs ask for a solicited event (S3).
 *
 * Return values are 0 or a negative errno; on failure nothing has changed and nothing was sent.
 * All calls: -ENOENT if there is no such id.
 */
#ifndef KARST_SMC_H
#define KARST_SMC_H

#include "karst_base.h"
#include "karst_smc_msg.h"

#define KARST_SMC_LINKS    2   /* of a group, as Linux has them */
#define KARST_SMC_CONNS    255 /* of a group, at most */
#define KARST_SMC_OS_LINUX 2   /* what others call themselves */

struct karst_smc;

enum karst_smc_role {
	KARST_SMC_CLIENT,
	KARST_SMC_SERVER,
};

/* States of a connection.  From ACTIVE on those of RFC 7609. */
enum karst_smc_state {
	KARST_SMC_FREE,
	KARST_SMC_WAIT_PROPOSAL,     /* server */
	KARST_SMC_PARKED,            /* server: others are about to make the group that it wants */
	KARST_SMC_WAIT_ACCEPT,       /* client */
	KARST_SMC_WAIT_RKEY,         /* both: the peer has to confirm our key */
	KARST_SMC_WAIT_LINK,         /* client: the queue pair is being connected */
	KARST_SMC_WAIT_CONFIRM,      /* server */
	KARST_SMC_WAIT_CONFIRM_LINK, /* both */
	KARST_SMC_WAIT_ADD_LINK,     /* both */
	KARST_SMC_FELL_BACK,         /* it is a TCP connection; to be released */
	KARST_SMC_FAILED,            /* it is nothing: reset TCP; to be released */
	KARST_SMC_ACTIVE,
	KARST_SMC_PEER_CLOSE_WAIT1,    /* we ended our direction */
	KARST_SMC_PEER_CLOSE_WAIT2,    /* and the peer its own, but has not closed */
	KARST_SMC_APP_CLOSE_WAIT1,     /* the peer ended its direction */
	KARST_SMC_APP_CLOSE_WAIT2,     /* and we ours, but have not closed */
	KARST_SMC_APP_FIN_CLOSE_WAIT,  /* the peer has closed, our program has not */
	KARST_SMC_PEER_FIN_CLOSE_WAIT, /* our program has closed, the peer has not */
	KARST_SMC_PEER_ABORT_WAIT,     /* we aborted, the peer has not said so */
	KARST_SMC_PROCESS_ABORT,       /* the peer aborted, our program has to close */
	KARST_SMC_CLOSED,
	KARST_SMC_STATES
};
const char *karst_smc_state_name(enum karst_smc_state state);

/* One end of a link. */
struct karst_smc_end {
	uint8_t gid[16];
	uint8_t mac[6];
	uint32_t qpn;
	uint32_t psn; /* that it sends first */
	uint8_t mtu;  /* as enum ibv_mtu */
};

/** What a link is wanted for. */
struct karst_smc_link_ask {
	uint32_t link; /* its id from now on */
	uint32_t group;
	uint8_t number; /* in the group: 1 is the first */
	enum karst_smc_role role;
	uint8_t version;
	const uint8_t *local_gid;  /* number 1: that the connection was opened with; else NULL */
	const uint8_t *remote_gid; /* number 1, and as client: the peer's; else NULL */
};

/** Bytes to be put into the peer's memory. */
struct karst_smc_write {
	uint32_t link;
	uint32_t conn;
	void *user;   /* of the connection */
	uint64_t pos; /* of the stream: where in the send buffer they are */
	uint32_t len;
	uint32_t rkey;
	uint64_t vaddr;
};

/** What the caller does.  None may call back. */
struct karst_smc_ops {
	/** Write these bytes to the TCP connection.  They are few: a socket takes them. */
	void (*clc)(void *user, uint32_t conn, void *conn_user, const void *msg, size_t len);
	/**
	 * Make a queue pair, with receives posted, and say what it is.  -ENODEV: there is no
	 * (other) port; -EHOSTUNREACH: no route; -ENOMEM
	 */
	int (*link_open)(
		void *user, const struct karst_smc_link_ask *ask, struct karst_smc_end *local);
	/**
	 * Connect it: ready to receive and to send, with path MTU @remote->mtu.  -EINPROGRESS: that
	 * has to wait for somebody, and karst_smc_link_connected() tells how it ends, unless it is
	 * closed before
	 */
	int (*link_connect)(void *user, uint32_t link, const struct karst_smc_end *remote);
	/** It is not used any more: when this returns no WRITE reads a send buffer any more. */
	void (*link_close)(void *user, uint32_t link);
	/** SEND with a solicited event; karst_smc_link_sent() when it is complete. */
	void (*send)(void *user, uint32_t link, const void *msg, size_t len);
	/** RDMA WRITE, in front of the next SEND of the link; without a completion. */
	void (*write)(void *user, const struct karst_smc_write *write);
	/** Make buffer @rmb of @bytes, a power of two; all zeros. */
	int (*rmb_open)(void *user, uint32_t rmb, uint32_t bytes);
	/**
	 * Let the peer of @link WRITE into it: its key and address.  @conn_user: of the connection
	 * that has it; who gives each connection memory of its own, which no program has seen
	 * before, has it made by now.
	 */
	int (*rmb_key)(void *user, uint32_t rmb, void *conn_user, uint32_t link, uint32_t *rkey,
		uint64_t *vaddr);
	/** None of its keys is valid any more. */
	void (*rmb_unkey)(void *user, uint32_t rmb);
	void (*rmb_close)(void *user, uint32_t rmb);
};

struct karst_smc_config {
	uint32_t max_conns;  /* 0 = default 1024; at most 2^16 */
	uint32_t max_groups; /* 0 = default 64; at most 2^12 */
	uint32_t max_rmbs;   /* 0 = as max_conns */
	uint8_t system_id[8];
	uint8_t mac[6];                           /* in version 1's proposals */
	uint8_t hostname[KARST_SMC_HOSTNAME_LEN]; /* filled up with blanks */
	uint8_t eids[KARST_SMC_EIDS_MAX][KARST_SMC_EID_LEN];
	uint8_t neids;       /* 0: no version 2 */
	bool v1;             /* version 1 is offered and accepted, too */
	uint8_t release;     /* of version 2: 0 or 1; KARST_SMC_DEFAULT: 1 */
	uint16_t features;   /* of release 1 */
	uint8_t group_conns; /* 16 to 255; 0 = default 255 */
	uint8_t group_links; /* 1 or 2; 0 = default 1; see karst_smc_set_group_links() */
	uint8_t send_slots;  /* SENDs of a link that are not complete: 8 to 64; 0 = default 16 */
	/* secret, of tokens: who has a link names a connection by its token, and which one its peer
	 * is to name, a program can say on TCP; 0: they count from 1 */
	uint64_t token_key[2];
	/* less than this waits while a CDC message of the connection is on its way */
	uint32_t cork_bytes;
	uint64_t clc_wait_ns;     /* 0 = default 6 s */
	uint64_t confirm_wait_ns; /* for CONFIRM_LINK; 0 = default 5 s; servers wait 3 s more */
	uint64_t llc_wait_ns;     /* for other answers; 0 = default 2 s */
	/* for each step of a second link, during which no key is agreed on; 0 = llc_wait_ns */
	uint64_t add_wait_ns;
	uint64_t test_ns;       /* silence until a link is tested; 0 = default 30 s */
	uint64_t close_wait_ns; /* for the peer of a program that has closed; 0 = default 60 s */
	uint64_t group_idle_ns; /* 0 = default 600 s; clients wait 10 s more */
	/* whose link was heard of in so short a time has the keys that he had; 0 = default 1 s */
	uint64_t heard_ns;
	const struct karst_smc_ops *ops;
	void *user; /* for ops */
};
#define KARST_SMC_DEFAULT 255u

/* What is counted; karst_smc_counter.def. */
enum karst_smc_counter {
#define KARST_SMC_COUNTER(symbol, name, meaning) KARST_SMC_CTR_##symbol,
#include "karst_smc_counter.def"
#undef KARST_SMC_COUNTER
	KARST_SMC_CTRS
};
/** "name" and "meaning" of a counter; NULL if there is no such. */
const char *karst_smc_counter_name(enum karst_smc_counter counter);
const char *karst_smc_counter_meaning(enum karst_smc_counter counter);

/** The part that the caller may touch. */
struct karst_smc {
	uint64_t now_ns; /* set by the caller before each call; never goes back */
	uint64_t counters[KARST_SMC_CTRS];
	uint32_t nconns;
	uint32_t ngroups;
	uint32_t nrmbs; /* open, in use or not */
};

/** 0 if @cfg is impossible. */
size_t karst_smc_bytes(const struct karst_smc_config *cfg);
/** Makes one in @buf, which has karst_smc_bytes() bytes, cache-line aligned.  -EINVAL */
int karst_smc_init(
	void *buf, const struct karst_smc_config *cfg, uint64_t now_ns, struct karst_smc **smc);
/**
 * Links, 1 or 2, that groups may have which are agreed on from now on: as many as there are ports.
 * Those that exist keep what was agreed on.  -EINVAL: another number.
 */
int karst_smc_set_group_links(struct karst_smc *smc, uint8_t links);
/** Closes all links and buffers; nobody is told. */
void karst_smc_fini(struct karst_smc *smc);

/** Does what is due at smc->now_ns: up to @budget timers.  @return how many */
unsigned int karst_smc_expire(struct karst_smc *smc, unsigned int budget);
/** When karst_smc_expire() has something to do next; UINT64_MAX: never. */
uint64_t karst_smc_next_ns(const struct karst_smc *smc);

/* --- connections --- */

struct karst_smc_conn_attr {
	enum karst_smc_role role;
	uint8_t size;          /* of the receive element: 2^(14 + size), 0 to 10 */
	uint32_t send_bytes;   /* of the send buffer, a power of two */
	uint8_t local_gid[16]; /* RoCE GID of the port that is meant */
	uint8_t peer_ip[16];   /* the peer's address of TCP, IPv4 as a part of IPv6; 0: not known */
	void *user;
};

/**
 * A TCP connection is there, and both sides sent the option (S1).  A client proposes at once, or
 * declines (the event FALLBACK follows) if it has no EID.  -EINVAL, -ENOSPC
 */
int karst_smc_conn_open(
	struct karst_smc *smc, const struct karst_smc_conn_attr *attr, uint32_t *conn);

/**
 * @len bytes are at the head of what came on TCP.  @return how many of them were CLC and have to be
 * taken out there: 0, or one message; call again while it is not 0, and when more has come.  Bytes
 * that are no CLC are left: for a server that is FALLBACK, for a client FAILED (S2).
 */
int karst_smc_clc_rx(struct karst_smc *smc, uint32_t conn, const void *buf, size_t len);

/**
 * The caller does not want SMC-R for it, with @reason (enum karst_smc_reason).  FALLBACK follows,
 * as soon as the peer has said what it is about to say.  -EINVAL: its link is confirmed
 */
int karst_smc_conn_decline(struct karst_smc *smc, uint32_t conn, uint32_t reason);

/**
 * @bytes more are in the send buffer, of which the last is urgent if @urgent.  -EPIPE: this
 * direction has ended.  -EINVAL: not connected.  -ENOSPC: they have no room there
 */
int karst_smc_conn_send(struct karst_smc *smc, uint32_t conn, uint32_t bytes, bool urgent);
/** @bytes were taken out of the element.  -EINVAL: there were less */
int karst_smc_conn_consumed(struct karst_smc *smc, uint32_t conn, uint32_t bytes);
/** Ends our direction, once all is sent.  -ENOTCONN */
int karst_smc_conn_shutdown(struct karst_smc *smc, uint32_t conn);
/** The program has closed: once all is sent says so, or aborts if there is something unread. */
int karst_smc_conn_close(struct karst_smc *smc, uint32_t conn);
/** The program has gone, or will not wait: ends it at once; what was not sent is lost. */
int karst_smc_conn_abort(struct karst_smc *smc, uint32_t conn);
/** After FALLBACK, FAILED or CLOSED: the id is free.  -EBUSY */
int karst_smc_conn_release(struct karst_smc *smc, uint32_t conn);

/**
 * Before karst_smc_conn_release(), of one that is CLOSED: its owner keeps its buffer, number
 * *@rmb, with its key, for his next connection with this peer.  It is his alone, and may go at any
 * time, which ops->rmb_unkey() says.  -EINVAL: not both sides have ended well; -EBUSY: there is no
 * room for it, or a link is being added.  Then nothing is kept, and it is released as others are.
 */
int karst_smc_conn_keep(struct karst_smc *smc, uint32_t conn, uint32_t *rmb);
/**
 * Behind karst_smc_conn_open(): it is to have the buffer @rmb, whose memory is its own.  If it
 * comes into another group, whose peer has no key of that, it gets another one (ops->rmb_key()),
 * and this key is deleted.  -ENOENT: there is no such buffer that is kept.  -EINVAL: too late
 */
int karst_smc_conn_take(struct karst_smc *smc, uint32_t conn, uint32_t rmb);
/** It is not wanted any more; ops->rmb_unkey() follows, now or later.  -ENOENT: it was not kept */
int karst_smc_rmb_drop(struct karst_smc *smc, uint32_t rmb);

struct karst_smc_conn_info {
	enum karst_smc_state state;
	enum karst_smc_role role;
	uint32_t group, link, rmb; /* valid while connected */
	uint32_t rmb_bytes;
	uint32_t peer_bytes;  /* of the peer's element */
	uint64_t sent_pos;    /* what the program gave */
	uint64_t written_pos; /* what was written to the peer */
	uint64_t free_pos;    /* what the send buffer need not keep any more is below this */
	uint64_t peer_pos;    /* what the peer has consumed */
	uint64_t recv_pos;    /* what has come */
	uint64_t consumed_pos;
	uint64_t urgent_pos; /* of the last urgent byte that came, if @urgent */
	bool urgent;
	bool urgent_coming; /* the peer has one, and no room to send it */
	bool peer_done;     /* nothing will come any more */
	/* nothing can be sent any more: -EPIPE; what was not written never will be */
	bool send_over;
	bool peer_blocked;
	int error;       /* ECONNRESET, ECONNABORTED, ETIMEDOUT, EPROTO; 0 */
	uint32_t reason; /* FELL_BACK: enum karst_smc_reason, of the side that declined */
	bool local;      /* ... which is ours */
	void *user;
};
int karst_smc_conn_info(
	const struct karst_smc *smc, uint32_t conn, struct karst_smc_conn_info *info);

/* --- links --- */

/** A SEND came on the queue pair of @link.  What is malformed, unknown or forged is counted. */
void karst_smc_link_rx(struct karst_smc *smc, uint32_t link, const void *msg, size_t len);
/** The next @n SENDs of the link, and all WRITEs in front of them, are complete. */
void karst_smc_link_sent(struct karst_smc *smc, uint32_t link, unsigned int n);
/** @rc: 0 or -errno of ops->link_connect(), which had to wait. */
void karst_smc_link_connected(struct karst_smc *smc, uint32_t link, int rc);
/** The queue pair is in error. */
void karst_smc_link_down(struct karst_smc *smc, uint32_t link);
/** As server: try to add a second link to @group, if it has one.  -EINVAL, -EBUSY, -ENODEV */
int karst_smc_group_add_link(struct karst_smc *smc, uint32_t group);
/**
 * As client of version 2: ask the server to add a second link to @group, which would end at @gid
 * (S10).  It may have none, and nothing is heard of that.  -ENOENT, -EINVAL; -EBUSY: one is there,
 * or being added
 */
int karst_smc_group_ask_link(struct karst_smc *smc, uint32_t group, const uint8_t gid[16]);
/** Ends a group now: its connections are aborted. */
int karst_smc_group_end(struct karst_smc *smc, uint32_t group);

struct karst_smc_group_info {
	enum karst_smc_role role;
	uint8_t version, release;
	uint8_t max_conns, max_links, nconns;
	uint8_t nlinks; /* active */
	bool reusable;  /* takes connections */
	struct karst_smc_peer
		peer; /* as server: the GID is known, the rest after the first Confirm */
	uint32_t links[KARST_SMC_LINKS];
	struct karst_smc_end local[KARST_SMC_LINKS], remote[KARST_SMC_LINKS];
	bool active[KARST_SMC_LINKS];
};
/** -ENOENT: @group, from 0 to max_groups, is not in use. */
int karst_smc_group_info(
	const struct karst_smc *smc, uint32_t group, struct karst_smc_group_info *info);

/* --- events --- */

/* Of connections; several at once. */
#define KARST_SMC_EV_CONNECTED 0x001u
#define KARST_SMC_EV_FALLBACK  0x002u /* TCP from here on: nothing of the stream was taken */
#define KARST_SMC_EV_FAILED    0x004u /* the sides may not agree: reset TCP (error in info) */
#define KARST_SMC_EV_READABLE  0x008u /* bytes came */
#define KARST_SMC_EV_WRITABLE  0x010u /* room in the send buffer, or send_over */
#define KARST_SMC_EV_URGENT    0x020u
#define KARST_SMC_EV_PEER_DONE 0x040u /* nothing will come any more */
#define KARST_SMC_EV_RESET     0x080u /* aborted, error in info: close it */
#define KARST_SMC_EV_CLOSED    0x100u /* over: send buffer and TCP connection can go; release it */
/* Of groups. */
#define KARST_SMC_EV_GROUP_UP   0x1000u
#define KARST_SMC_EV_LINK_UP    0x2000u /* a second one */
#define KARST_SMC_EV_LINK_DOWN  0x4000u /* one of two */
#define KARST_SMC_EV_GROUP_DOWN 0x8000u /* its id is free */
/* The client asks for a second link, too soon after another one was made, or tried.  It does not
 * ask again: karst_smc_group_add_link(), after a second. */
#define KARST_SMC_EV_LINK_ASKED 0x10000u

struct karst_smc_ev {
	uint32_t what; /* of KARST_SMC_EV_ */
	uint32_t id;   /* of the connection or group */
	void *user;    /* of the connection */
};

/** The next thing that happened.  False: nothing did. */
bool karst_smc_next_event(struct karst_smc *smc, struct karst_smc_ev *ev);

#endif /* KARST_SMC_H */
