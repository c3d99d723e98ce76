/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Inside of the SMC service.  Everything is the thread's, under a lock that it holds while it
 * works: telemetry looks in between.
 *
 * A connection (struct svc_conn) is there as long as one of these: its program has the other end of
 * its pair; lib/smc has it; a peer has a key of its memory.  What is freed waits until the events
 * that were fetched together have been dealt with, of which some may be its own.
 */
#ifndef KARSTD_SMC_PRIV_H
#define KARSTD_SMC_PRIV_H

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "clock.h"
#include "conf.h"
#include "karst_embed.h"
#include "karst_log.h"
#include "karst_smc.h"
#include "karst_sock.h"
#include "server.h"
#include "smc.h"
#include "smc_option.h"
#include "socket.h"

#define SMC_GROUPS   64u
#define SMC_LINKS    (SMC_GROUPS * KARST_SMC_LINKS)
#define SMC_SLOTS    16u /* SENDs of a link */
#define SMC_RECVS    64u /* receives of a link; Linux has 48 */
#define SMC_MAX_GIDS 64u
#define SMC_REFUSED  64u /* peers that are not offered SMC-R */
#define SMC_NO_ID    UINT32_MAX
/* so long a link lives at most without an acknowledgement */
#define SVC_LINK_LIFE_MS 9000u
#define SMC_TABLE        2u  /* times max_connections: as many again can stay on TCP */
#define SMC_PROGS        64u /* and as many as max_connections */
#define SMC_HASH         4096u
#define SMC_REASONS      64u /* rows of karst_smc_reason.def, at most */
#define SMC_PAIRS        8u  /* in stock */
#define SMC_PAGES        2u  /* files of control pages, for the two ends of a connection */
#define SMC_RINGS        1u  /* and of rings */
#define SMC_FREE_HASH    64u
#define SMC_SPARES       128u /* buffers that wait, with a key, for another connection */

/* What epoll tells of. */
struct svc_source {
	void (*ready)(struct svc_source *src, uint32_t events);
};

enum svc_what {
	SMC_AGREEING, /* CLC */
	SMC_RDMA,
	SMC_RELAY,  /* TCP */
	SMC_DIRECT, /* two programs of this service, between which nobody stands */
	SMC_OVER,   /* the program has not closed yet */
};

/* The rings of a connection; in state DIRECT of two.  Those of two programs that are known are kept
 * for the next connections of these two, and have a number for either (smc_rings.c); those of one
 * program, and a peer elsewhere, for its next ones with that (smc_spare.c). */
struct svc_rings {
	struct kd_smc *smc;
	uint32_t refs; /* connections, and pages that their programs may still use with it */
	int fd;
	uint32_t buffer;
	void *map;               /* NULL: the service does not need it */
	uint32_t nmapped;        /* connections that have pointers into it */
	bool used_again;         /* it stays mapped */
	bool kept;               /* for another connection, unless somebody else may have it: */
	bool shared;             /* then it is not, */
	bool grown;              /* nor if more of it was touched than short streams do */
	unsigned int client;     /* side[] that connected */
	struct svc_user *keeper; /* free, or spare: in whose account */
	struct svc_rings *next;  /* free, or spare */
	struct svc_rings_side {
		struct svc_prog *prog; /* NULL: it is gone */
		uint32_t number;
		bool known; /* it was given the file */
	} side[2];
	/* side[0] alone is a program of this service: */
	bool remote, server;
	uint8_t peer_ip[16];
	uint32_t keys; /* that are valid: the one before may not be deleted yet */
	uint32_t rmb;  /* lib/smc's buffer with the last one; SMC_NO_ID: that is not valid */
	struct karst_mr *tx_mr; /* NULL: nothing was sent by RDMA */
	bool spare;             /* no connection has that buffer, in the list of these */
	uint64_t until_ns;
};

/* A control page. */
struct svc_page {
	struct svc_page *next; /* free: of the same program */
	struct svc_prog *prog; /* NULL: nobody will have it again */
	uint32_t number;       /* for its program, which keeps it; 0: it is not kept */
	int fd;
	struct karst_sock_page *mem;
	bool used;               /* by a connection */
	bool mapped;             /* by its program, for that */
	bool kept;               /* its program has had it before */
	bool adopted;            /* others may have it */
	struct svc_rings *rings; /* kept ones, which its program has used with it */
};

/* A pair: the far end, that of a program, and its cookie.  -1: there is none. */
struct svc_pair {
	int far, end;
	uint64_t cookie;
};

/* Memory for programs; mem NULL: it is not mapped. */
struct svc_file {
	int fd;
	void *mem;
};

/* What is heard of a pair: by RDMA and TCP the program rings, else it does not. */
#define SVC_PAIR_RINGS  (EPOLLIN | EPOLLRDHUP | EPOLLET)
#define SVC_PAIR_DIRECT (EPOLLRDHUP | EPOLLET)

/* And of a TCP socket: that there is room matters to who copies to it. */
#define SVC_TCP_CLC   (EPOLLIN | EPOLLRDHUP | EPOLLET)
#define SVC_TCP_RELAY (SVC_TCP_CLC | EPOLLOUT)

/* What programs keep for their next connections. */
enum svc_kept {
	SVC_KEPT_PAGES,
	SVC_KEPT_RINGS, /* between two programs: of whose connected */
	SVC_KEPT_SPARES,
	SVC_KEPT_KINDS,
};

/* Who has programs or connections here, and how many; and how much of what they keep is free. */
struct svc_user {
	struct svc_user *next;
	uid_t uid;
	uint32_t progs;
	uint32_t conns[2]; /* of which SMC-R is to become, and that are declined for want of room */
	uint32_t kept[SVC_KEPT_KINDS];
};

LIST_HEAD(svc_conns, svc_conn);
struct svc_conn {
	struct kd_smc *smc;
	struct svc_clc_answer *clc;     /* what its peer has said is being read: what is answered */
	struct svc_conn *next, **pprev; /* of all */
	LIST_ENTRY(svc_conn) by_cookie, by_names; /* of the same hash */
	bool named;                               /* its other end looks for it by its names */
	struct svc_conn *run_next;                /* of those that are to be looked at */
	struct svc_conn *held_next, **held_pprev; /* of those that do not begin with CLC yet */
	struct svc_source pair_source, tcp_source;
	enum svc_what what;
	uint64_t number; /* for telemetry */
	uint32_t id;     /* in lib/smc; SMC_NO_ID: not there any more */
	uint32_t refs;
	int pair, tcp;
	uint64_t netns;         /* cookie of the TCP socket's; 0: not known */
	bool peer_listened;     /* one of ours listens, or did, where it has connected to */
	uint64_t held_until_ns; /* held_pprev: the latest */
	struct svc_conn *other; /* DIRECT: the other end, as long as it is there */
	/* AGREEING: what the other end is to have if it is of this service, too.  Its far end is
	 * the program's waker from the beginning on */
	struct svc_pair next_pair;
	uint64_t cookie; /* of the program's end */
	struct svc_user *user;
	uid_t uid; /* the user may be gone before it */
	pid_t pid;
	bool server, require;
	bool decline;   /* there is no room: it is to be TCP */
	bool queued;    /* in the list to be looked at */
	bool shut_told; /* and lib/smc knows */
	bool shut;      /* the program has ended its direction */
	bool gone;      /* the program has closed */
	bool hung_up;   /* nothing goes by the pair any more, in neither direction */
	bool ended;     /* lib/smc, or the peer, was told so */
	bool rang;      /* bytes came by the pair */
	bool tcp_over;  /* the TCP connection has been closed or reset */
	bool tcp_heard; /* epoll tells of it */
	bool tcp_news;  /* and has told that there is something to be read */
	bool tcp_ends;  /* or that its peer sends nothing more */
	bool tcp_reset; /* that by its peer, while CLC was going on */
	bool eof;       /* the program was told that nothing comes any more */
	/* memory */
	struct svc_page *page_of;
	struct karst_sock_page *page;     /* its */
	bool has_rings;                   /* its program has been given them */
	struct svc_rings *rings;          /* NULL: what its program writes lies in the page */
	struct karst_sock_dir *txd, *rxd; /* and tx, rx: NULL before svc_conn_map(), and */
	uint8_t *tx, *rx;                 /* after svc_conn_unmap() */
	bool was_mapped;                  /* its program tells of bytes by the pair */
	uint32_t tx_shift, rx_shift;      /* karst_sock_shift() */
	uint32_t buffer;
	uint32_t dir; /* into which it writes, as in the page, where its program may change it */
	/* positions: the program's as far as they were taken over, and ours */
	uint64_t tx_head, tx_tail, rx_head, rx_tail;
	/* behind the last urgent byte, 0: there was none; of what came the program knows as many */
	uint64_t tx_urgent, rx_urgent, rx_urgent_told;
	bool has_waker;  /* DIRECT: from then on its program tells of urgent bytes */
	bool hears_less; /* SVC_PAIR_DIRECT */
	/* its pair is heard, and CLC has begun if there is no other end, unless it is held */
	bool begun;
	uint64_t sent, received; /* bytes on TCP, as relay */
	uint32_t reason;         /* why it is on TCP */
	bool has_far; /* the other one has the far end of its pair, or has passed it on: */
	uid_t far_uid;
	struct sockaddr_storage local, peer;
};

struct svc_link {
	uint32_t id; /* SMC_NO_ID: free */
	uint32_t group, port;
	struct karst_qp *qp;
	struct karst_mr *mr; /* of mem: sends, then receives */
	uint8_t *mem;
	struct karst_smc_end local, remote;
	uint32_t next_slot;
	uint16_t generation;
	bool down;     /* lib/smc was told */
	bool connects; /* its path is looked for: */
	uint64_t look_ns, nap_ns, until_ns;
};

struct svc_rmb {
	struct svc_conn *conn;   /* has a reference; NULL: it is spare, or was */
	struct svc_rings *rings; /* NULL: it has no key */
	struct karst_mr *mr;
};

struct svc_refused {
	uint8_t ip[16];
	uint64_t until_ns; /* 0: free */
	uid_t uid;         /* whose connection was the first; not if it is nobody's yet */
	bool nobody;
	bool by_all; /* the option is not sent to it */
};

/* A group that could have another link. */
struct svc_again {
	uint64_t at_ns;  /* one is added; 0: it is not, or that is the peer's business */
	uint32_t wait_s; /* and if that is in vain, so long after it */
};

struct svc_prog {
	struct svc_prog *next, **pprev;
	struct svc_source source;
	struct kd_smc *smc;
	int fd;
	pid_t pid;
	struct svc_user *user;
	bool paused;                             /* what it asks for has to wait */
	struct svc_page *pages[KARST_SOCK_KEPT]; /* by number - 1 */
	struct svc_page *free_pages;
	struct svc_rings *rings[KARST_SOCK_KEPT]; /* by number - 1 */
	uint32_t nspares;                         /* of these */
};

struct kd_smc {
	const struct kd_conf *conf;
	struct karst_engine *engine;
	pthread_mutex_t lock;
	pthread_t thread;
	bool started;
	_Atomic bool stop;
	int epoll, stop_fd;
	struct kd_socket socket;
	struct kd_conf_socket socket_conf;
	struct svc_source listen_source, channel_source, async_source, stop_source;
	struct kd_smc_option option;
	/* the engine's */
	struct karst_context *ctx;
	struct karst_pd *pd;
	struct karst_comp_channel *channel;
	struct karst_cq *cq;
	struct karst_gid_entry gids[SMC_MAX_GIDS];
	uint32_t ngids;
	struct svc_link links[SMC_LINKS];
	struct svc_again again[SMC_GROUPS];
	uint64_t again_ns;    /* none of them is before this */
	struct svc_rmb *rmbs; /* nrmbs */
	uint32_t nrmbs;
	/* lib/smc */
	uint8_t system_id[8];
	uint64_t netns; /* cookie of the daemon's own; 0: the kernel does not tell */
	void *core_mem;
	struct karst_smc *core;
	/* */
	struct svc_conn *conns, *run, **run_tail, *dead;
	struct svc_conn *held, **held_tail; /* by the time until when */
	struct svc_conns by_cookie[SMC_HASH];
	struct svc_conns by_names[SMC_HASH]; /* those that their other end may come to */
	uint64_t hash_key[2];                /* of places in both */
	uint32_t nconns, ndeclined;          /* of which there was no room for so many */
	struct svc_user *users;
	struct svc_prog *progs, *dead_progs;
	uint32_t nprogs, nfree_pages, nfree_rings;
	struct svc_rings *free_rings[SMC_FREE_HASH]; /* by their two programs */
	struct svc_rings *spares, **spares_tail;     /* the oldest first */
	uint32_t nspares;                            /* and those whose key is being deleted */
	uint32_t npaused;                            /* of them */
	bool paused;                                 /* new ones are not accepted */
	uint64_t paused_until_ns;                    /* at least */
	struct svc_askers *askers;                   /* the same, and NULL */
	struct svc_closers *closers; /* NULL: nothing was to be closed by others yet */
	struct svc_refused refused[SMC_REFUSED];
	uint32_t nrefused;               /* of them that are not free */
	uint64_t fell_back[SMC_REASONS]; /* by the row of the reason */
	struct svc_pair pairs[SMC_PAIRS];
	uint32_t npairs;
	struct svc_file pages[SMC_PAGES], rings[SMC_RINGS];
	uint32_t npages, nrings;
	bool armed;        /* epoll will tell of the next completion */
	bool rest;         /* of a turn */
	bool stock_failed; /* there was no memory, or no descriptor, and nothing was taken since */
	bool rights_come;  /* descriptors can be sent to a program by its pair */
	bool rights_wait;  /* and to the service by who has not been accepted yet */
	uint64_t opened, joined, faults, turned_away, short_on_tcp;
	struct karst_log_some log; /* of what programs and peers can cause */
};

#define svc_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

int svc_watch(struct kd_smc *s, int fd, uint32_t events, struct svc_source *source);
/** Of what others may have duplicates, of which epoll would go on telling. */
void svc_unwatch(struct kd_smc *s, int fd);

/* --- smc_close.c --- */

#define SVC_RIGHTS 253u /* descriptors beside a message, which the kernel allows */

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

/* What is done to a socket before it is closed. */
enum svc_end {
	SVC_END_AS_IT_IS,
	SVC_END_ORDERLY, /* without lingering */
	SVC_END_RESETS,
	/* others have it open: */
	SVC_END_WRITES,
	SVC_END_SHUTS,
	SVC_END_DISCONNECTS,
};

/** Closes @fd, on which user @uid may have the one who does that wait. */
void svc_let_go(struct kd_smc *s, uid_t uid, int fd);
void svc_end(struct kd_smc *s, uid_t uid, int fd, enum svc_end how);
/** The same, but @fd stays open.  False: there are no more descriptors. */
bool svc_end_open(struct kd_smc *s, uid_t uid, int fd, enum svc_end how);
/** As recv(), of up to *@len bytes, without waiting; descriptors that came are let go, but *@first,
 *  unless that is NULL.  @nfds: how many came.  0 or -errno */
int svc_recv(struct kd_smc *s, uid_t uid, int fd, void *buf, size_t *len, int *first,
	unsigned int *nfds);
/** The same for a connection to the service that it does not take: where the kernel can keep them
 *  out, no descriptor waits in it. */
void svc_turn_away(struct kd_smc *s, uid_t uid, int fd);
/** So much of what the user has sent is not closed yet that more has to wait. */
bool svc_is_behind(struct kd_smc *s, uid_t uid);
/** So many of those that were turned away are not closed yet that nobody can be turned away. */
bool svc_is_full(struct kd_smc *s);
/** What was given to others by now is begun with. */
void svc_close_begin(struct kd_smc *s);
/** Who has lingered for long enough. */
void svc_close_expire(struct kd_smc *s);
/** When that has something to do; UINT64_MAX: never. */
uint64_t svc_close_next_ns(const struct kd_smc *s);
void svc_close_fini(struct kd_smc *s);

/* --- smc_ask.c --- */

/** Root, and the daemon's own user: nobody is protected from them. */
bool svc_is_trusted(uid_t uid);
/** @fn(@fd, @arg), where user @uid may have the one who calls it wait.  @arg has @bytes, and no
 *  pointers; @fd is another descriptor of the same.  @return as @fn, which returns 0 or -errno;
 *  -EBUSY: it waits, or another one of this user's does, and is not waited for */
int svc_ask(
	struct kd_smc *s, uid_t uid, int fd, int (*fn)(int fd, void *arg), void *arg, size_t bytes);
void svc_ask_fini(struct kd_smc *s);

/* --- smc_conn.c --- */

/** Looks at everything that may have changed. */
void svc_conn_work(struct svc_conn *c);
/** The rings are there, from here on; false: there is no memory.  To map them, touch them and take
 *  them away again is half of what a short connection costs the service, so between two programs
 *  that find each other at once it does not. */
bool svc_conn_map(struct svc_conn *c);
/** DIRECT: the service does not look at the rings any more, unless something happens.  Idle
 *  connections would have them mapped for ever; those that are used again stay so. */
void svc_conn_unmap(struct svc_conn *c);
/** What lib/smc tells of it. */
void svc_conn_event(struct svc_conn *c, uint32_t what);
/** An urgent byte into its pair: SIGURG, POLLPRI. */
void svc_conn_urgent(struct svc_conn *c);
/** Shows the program what has come and what is free. */
void svc_conn_show(struct svc_conn *c);
/** The program is gone, and nobody else needs the pair. */
void svc_conn_drop_program(struct svc_conn *c);
/** Takes what the program has sent into the pair. */
void svc_conn_empty(struct svc_conn *c);
/** Its program hears an end of everything.  If it has not got its rings yet, it has to be able to
 *  ask for them, and for what is in them, and hears the rest of it then. */
void svc_conn_hang_up(struct svc_conn *c);
/** Nothing comes any more. */
void svc_conn_eof(struct svc_conn *c);
/** Ends it with an error, which the program hears. */
void svc_conn_fail(struct svc_conn *c, int error);
/** The TCP connection is closed, or reset. */
void svc_conn_close_tcp(struct svc_conn *c, bool reset);
/** Of what happens to the TCP socket nothing is heard any more, whoever else has it. */
void svc_conn_leave_tcp(struct svc_conn *c);
/** Closes it for good. */
void svc_conn_put_tcp(struct svc_conn *c, bool reset);

/* --- smc_conn_life.c --- */

/* Of a TCP socket. */
struct svc_names {
	struct sockaddr_storage local, peer;
	uint64_t netns; /* its network namespace, by the kernel's cookie; 0: not known */
	bool peer_listened;
};

/** @decline: there is room for it on TCP only.
 *  -ENODATA: the connection has not seen the option; -ENOTSOCK, -ENOTCONN, ...
 *  @tcp is the connection's, if it returns 0; *end the caller's. */
int svc_conn_open(struct kd_smc *s, struct svc_prog *prog, int tcp, uint32_t flags, bool decline,
	struct svc_conn **conn, int *end);
/** Its program has got its answer by now. */
void svc_conn_begin(struct svc_conn *c);
/** It waits for its other end no more: CLC begins, if it is held. */
void svc_conn_agree(struct svc_conn *c);
/** The same of those that have waited for long enough; @all: of all. */
void svc_conn_agree_held(struct kd_smc *s, bool all);
/** Its other end is there, or it is over. */
void svc_conn_unhold(struct svc_conn *c);
/** What is it connected by now, if it is a TCP socket of @uid's whose two sides have sent the
 *  option? */
int svc_conn_names(struct kd_smc *s, uid_t uid, int fd, struct svc_names *names);
/** The same by the socket itself, without its network namespace. */
int svc_conn_ask_names(struct kd_smc *s, uid_t uid, int fd, struct svc_names *names);
/** The connection whose program's end is @fd; NULL. */
struct svc_conn *svc_conn_find(struct kd_smc *s, int fd);
/** Its program, which has not got the page yet, has said that it wants a token for what comes. */
void svc_conn_arm(struct svc_conn *c);
/** It is to be looked at in this turn. */
void svc_conn_queue(struct svc_conn *c);
void svc_conn_put(struct svc_conn *c);
/** Of @uid and @other's user, who may have sent something to the other one, the one that is trusted
 *  less.  @other NULL: there is none */
uid_t svc_of_two(uid_t uid, const struct svc_conn *other);
/** Of its addresses, whichever of the two is whose, for the end that is a server or is not. */
uint32_t svc_names_hash(const struct svc_conn *c, bool server);
/** What becomes of it is known: its other end is not to find it any more. */
void svc_conn_unname(struct svc_conn *c);
/** All of them, at the end. */
void svc_conn_end_all(struct kd_smc *s);
/** Frees what nobody can have events of any more. */
void svc_conn_reap(struct kd_smc *s);

/** A file that cannot become shorter under those who map it.  @fd, @mem: only on success;
 *  @mem NULL: it is not mapped. */
int svc_make_file(uint64_t bytes, int *fd, void **mem);

/* --- smc_pair.c --- */

int svc_pair_make(struct kd_smc *s, struct svc_pair *p);

/* --- smc_stock.c --- */

/** These as svc_pair_make() and svc_make_file(). */
int svc_stock_pair(struct kd_smc *s, struct svc_pair *p);
int svc_stock_page(struct kd_smc *s, int *fd, void **mem);
int svc_stock_rings(struct kd_smc *s, int *fd);
/** What the next connection needs is not there; with @all: something that is to be. */
bool svc_stock_lacks(const struct kd_smc *s, bool all);
/** A little more of it. */
void svc_stock_fill(struct kd_smc *s);
void svc_stock_fini(struct kd_smc *s);

/* --- smc_page.c --- */

/** A page of zeroes for a connection of @p's. */
int svc_page_get(struct svc_prog *p, struct svc_page **page);
/** The connection is no more.  NULL is ignored. */
void svc_page_put(struct svc_page *g);
/** Others may have it, and its rings: neither is used again. */
void svc_page_share(struct svc_page *g);
/** The program says with @req which pages it does not touch any more. */
void svc_page_unmapped(struct svc_prog *p, const struct karst_sock_msg *req);
/** The program is gone; connections may still have pages of its. */
void svc_page_leave(struct svc_prog *p);

/* --- smc_rings.c --- */

/** Rings for a connection that is not, or not yet, between two programs; NULL: no memory. */
struct svc_rings *svc_rings_make(struct kd_smc *s);
/** For one of @c, whose program is @p, with a peer elsewhere; NULL: no memory. */
struct svc_rings *svc_rings_remote(struct svc_conn *c, struct svc_prog *p);
/** A key of them has gone. */
void svc_rings_unkeyed(struct svc_rings *r);
/** For one between these two, of which NULL is not known any more.  @server: the second one is. */
struct svc_rings *svc_rings_get(
	struct kd_smc *s, struct svc_prog *first, struct svc_prog *second, bool server);
/** False: there is no memory. */
bool svc_rings_map(struct svc_rings *r);
/** One connection less has pointers into them. */
void svc_rings_unmap(struct svc_rings *r);
/** @c is about to be freed: how much it has written is in its page. */
void svc_rings_note(const struct svc_conn *c);
/** NULL is ignored. */
void svc_rings_put(struct svc_rings *r);
/** The side that is @c's; NULL: its program does not keep them. */
struct svc_rings_side *svc_rings_side(struct svc_rings *r, const struct svc_conn *c);
/** @c has them from here on: tells its program the number, if it knows them. */
void svc_rings_enter(struct svc_conn *c);
/** The program is gone. */
void svc_rings_leave(struct svc_prog *p);
/** What @c's program has written by now goes into its rings, which nobody else has used yet; if
 *  that is nothing, @reader wants a token for what comes, unless it is NULL.  The caller says in
 *  the page when the program may use them (KARST_SOCK_EARLY_READY).  False: there is no memory. */
bool svc_rings_take_early(struct svc_conn *c, struct svc_conn *reader);

/* --- smc_clc.c --- */

/** What lib/smc says to the peer on TCP. */
void svc_clc_send(struct svc_conn *c, const void *msg, size_t len);
/** What the peer has said there. */
void svc_clc_read(struct svc_conn *c);

/* --- smc_spare.c --- */

/** @c is about to be released in lib/smc: its rings stay as they are for another connection, if
 *  they can. */
void svc_spare_keep(struct svc_conn *c);
/** @c has just been opened in lib/smc: it has what was kept with its rings. */
void svc_spare_take(struct svc_conn *c);
/** They are not spare any more: there is another key, or none. */
void svc_spare_leave(struct svc_rings *r);
/** Nobody has them, or their program is gone: do they stay spare? */
void svc_spare_settle(struct svc_rings *r);
/** Those that @p keeps for a peer, and nobody has; NULL. */
struct svc_rings *svc_spare_find(
	struct kd_smc *s, const struct svc_prog *p, const uint8_t ip[16], bool server);
/** Those that nobody has wanted for long go. */
void svc_spare_expire(struct kd_smc *s);
uint64_t svc_spare_next_ns(const struct kd_smc *s);

/* --- smc_direct.c --- */

/** The end at the other side of @c's TCP connection, if it is one of ours that waits; NULL. */
struct svc_conn *svc_direct_find(const struct svc_conn *c);
/** From now on @first, whose rings @second has got, and @second are each other's.
 *  @polls: the program of @second will want a token for what is there */
void svc_direct_join(struct svc_conn *first, struct svc_conn *second, bool polls);
void svc_direct_work(struct svc_conn *c);
/** Ends it with an error, as if the other one had reset it. */
void svc_direct_fail(struct svc_conn *c);
/** The far end of the other one's pair; -errno. */
int svc_direct_waker(struct svc_conn *c);
/** The same when it is opened, which may be before the other one is; -1: there is none yet. */
int svc_direct_early_waker(const struct svc_conn *c);
/** Is the peer on this machine, so that its program may be one of ours? */
bool svc_direct_is_near(const struct svc_conn *c);
/** The peer's address is one of this machine's, as far as is known. */
bool svc_direct_is_own(const struct svc_conn *c);
/** There will be no other end here. */
void svc_direct_alone(struct svc_conn *c);
/** Something came by its pair. */
void svc_direct_rang(struct svc_conn *c);
/** @flags of KARST_SOCK_WAKE. */
void svc_direct_wake(struct svc_conn *c, uint32_t flags);

/* --- smc_relay.c --- */

void svc_relay_begin(struct svc_conn *c, uint32_t reason);
void svc_relay_work(struct svc_conn *c);
/** As IPv6: an IPv4 address is mapped. */
void svc_ip_of(const struct sockaddr_storage *a, uint8_t ip[16]);
/** Row of a reason, for its name and its count. */
unsigned int svc_reason_row(uint32_t reason);
const char *svc_reason_text(unsigned int row, uint32_t *number);

/* --- smc_decline.c --- */

/** The connection of @tcp stays its program's, and the peer is told.  -EAGAIN: the peer has to have
 *  spoken first */
int svc_decline(struct kd_smc *s, uid_t uid, int tcp, bool server);

/* --- smc_prog.c --- */

int svc_prog_init(struct kd_smc *s);
void svc_prog_fini(struct kd_smc *s);
void svc_prog_reap(struct kd_smc *s);
/** Who had to wait until what was sent is closed. */
void svc_prog_resume(struct kd_smc *s);
/** One connection more or less of the user's, who is freed with the last of what he has. */
void svc_user_count(struct kd_smc *s, struct svc_user *u, bool decline, int more);
/** As with connections: may he keep one more of these, of which @all are there, and @max may be? */
bool svc_user_may_keep(const struct svc_user *u, enum svc_kept what, uint32_t all, uint32_t max);

/* --- smc_rdma.c --- */

extern const struct karst_smc_ops svc_rdma_ops;
int svc_rdma_init(struct kd_smc *s);
void svc_rdma_fini(struct kd_smc *s);
/** Completions.  @return whether there were any. */
bool svc_rdma_poll(struct kd_smc *s);
/** All that is there now. */
void svc_rdma_poll_all(struct kd_smc *s);
/** Asks for an event. */
void svc_rdma_arm(struct kd_smc *s);
void svc_rdma_load_gids(struct kd_smc *s);
/** The GID of the port that has this address; false: none has. */
bool svc_rdma_gid(struct kd_smc *s, const struct sockaddr_storage *local, uint8_t gid[16]);
/** It is one of the network namespace of the ports, where nobody gives himself addresses. */
bool svc_rdma_is_here(const struct svc_conn *c);
/** What @c sends can be read by the engine; stays so as long as its rings.  -errno */
int svc_rdma_tx_key(struct svc_conn *c);
void svc_rdma_tx_unkey(struct svc_rings *r);
/** No connection has the buffer @rmb, whose key stays, any more; @c has it. */
void svc_rdma_leave_rmb(struct kd_smc *s, uint32_t rmb);
void svc_rdma_enter_rmb(struct svc_conn *c, uint32_t rmb);

/** Of a port's address; NULL: no port has it. */
const struct karst_gid_entry *svc_rdma_gid_entry(const struct kd_smc *s, const uint8_t gid[16]);

/* --- smc_connect.c --- */

/** @l's queue pair.  As ops->link_connect() of lib/smc */
int svc_connect(struct kd_smc *s, struct svc_link *l, const struct karst_smc_end *remote);
/** Those whose path is looked for. */
void svc_connect_expire(struct kd_smc *s);
/** When that has something to do; UINT64_MAX: never. */
uint64_t svc_connect_next_ns(const struct kd_smc *s);

/* --- smc_ports.c --- */

int svc_ports_init(struct kd_smc *s);
/** How many links a group may have. */
uint8_t svc_ports_links(const struct kd_smc *s);
/** Where the second link of a group is to go; NULL: nowhere. */
const struct karst_gid_entry *svc_ports_other(
	struct kd_smc *s, const struct karst_smc_link_ask *ask);
/** What lib/smc tells of a group. */
void svc_ports_event(struct kd_smc *s, const struct karst_smc_ev *ev);
/** Links that are to be added again. */
void svc_ports_expire(struct kd_smc *s);
/** When that has something to do; UINT64_MAX: never. */
uint64_t svc_ports_next_ns(const struct kd_smc *s);

/* --- smc_tel.c --- */

void svc_tel_open(struct kd_smc *s);
void svc_tel_close(struct kd_smc *s);

#endif /* KARSTD_SMC_PRIV_H */
