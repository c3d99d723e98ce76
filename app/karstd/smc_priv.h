/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Internals of the SMC service.  All data belongs to its thread, which holds a lock while it works;
 * telemetry reads the data in between.
 *
 * A connection (struct svc_conn) exists as long as one of these holds: its program has the other
 * end of its pair; lib/smc has it; a peer has a key of its memory.  Freed objects are kept until
 * all events that were fetched together have been handled, because some of these events may refer
 * to them.
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

#define SMC_GROUPS 64u
#define SMC_LINKS  (SMC_GROUPS * KARST_SMC_LINKS)
#define SMC_SLOTS  16u /* SENDs of a link */
#define SMC_RECVS  64u /* receives of a link; Linux has 48 */
/* for sending: the longest LLC message, on cache lines of its own */
#define SVC_SLOT_BYTES 4160u
#define SVC_RECV_FLAG  0x8000u /* in the wr_id of a receive */
#define SMC_MAX_GIDS   64u
#define SMC_REFUSED    64u /* peers to which SMC-R is not offered */
#define SMC_NO_ID      UINT32_MAX
/* maximum lifetime of a link without an acknowledgement */
#define SVC_LINK_LIFE_MS 9000u
#define SMC_TABLE        2u  /* times max_connections: the same number can stay on TCP */
#define SMC_PROGS        64u /* plus max_connections */
#define SMC_HASH         4096u
#define SMC_REASONS      64u /* rows of karst_smc_reason.def, at most */
#define SMC_PAIRS        8u  /* pairs in stock */
#define SMC_PAGES        2u  /* files of control pages in stock, for the two ends of a connection */
#define SMC_RINGS        1u  /* files of rings in stock */
#define SMC_FAR          2u  /* the same for connections to other systems */
#define SMC_QPS          2u  /* queue pairs in stock, for the links of one group */
#define SMC_FREE_HASH    64u
#define SMC_SPARES       128u /* buffers that are kept, with a key, for another connection */

/* A source of epoll events. */
struct svc_source {
	void (*ready)(struct svc_source *src, uint32_t events);
};

enum svc_what {
	SMC_AGREEING, /* CLC is in progress */
	SMC_RDMA,
	SMC_RELAY,  /* relayed over TCP */
	SMC_DIRECT, /* between two programs of this service, without the service */
	SMC_OVER,   /* over, but the program has not closed yet */
};

/* The rings of a connection; in state DIRECT of two connections.  Rings between two known programs
 * are kept for the next connections of these two, and have a number for each of them (smc_rings.c).
 * Rings of one program with a remote peer are kept for its next connections with that peer
 * (smc_spare.c). */
struct svc_rings {
	struct kd_smc *smc;
	uint32_t refs; /* connections, and pages with which their programs may still use the
		        * rings */
	int fd;
	uint32_t buffer;
	void *map;               /* NULL: the service does not need it */
	uint32_t nmapped;        /* connections that have pointers into them */
	bool used_again;         /* the mapping is kept */
	bool kept;               /* kept for another connection, except: */
	bool shared;             /* another process may have the file, */
	bool grown;              /* or more of it was touched than short streams touch */
	unsigned int client;     /* side[] that connected */
	struct svc_user *keeper; /* free, or spare: the user in whose account */
	struct svc_rings *next;  /* free, or spare */
	struct svc_rings_side {
		struct svc_prog *prog; /* NULL: the program is gone */
		uint32_t number;
		bool known; /* the program was given the file */
	} side[2];
	/* if only side[0] is a program of this service: */
	bool remote, server;
	uint8_t peer_ip[16];
	uint32_t keys; /* number of valid keys: the previous one may not be deleted yet */
	uint32_t rmb;  /* lib/smc's buffer with the last key; SMC_NO_ID: that key is not valid */
	struct karst_mr *tx_mr; /* NULL: nothing was sent by RDMA */
	bool spare;             /* no connection has that buffer; in the list of spare rings */
	uint64_t until_ns;
};

/* A control page. */
struct svc_page {
	struct svc_page *next; /* free pages of the same program */
	struct svc_prog *prog; /* NULL: the page will not be used again */
	uint32_t number;       /* number by which its program, which keeps it, knows it; 0: not
			        * kept */
	int fd;
	struct karst_sock_page *mem;
	bool used;               /* used by a connection */
	bool mapped;             /* mapped by its program for that connection */
	bool kept;               /* its program has had it before */
	bool adopted;            /* other processes may have it */
	struct svc_rings *rings; /* kept rings that its program has used with it */
};

/* A pair: the far end, the end of the program, and its cookie.  -1: none. */
struct svc_pair {
	int far, end;
	uint64_t cookie;
};

/* Memory for programs; mem NULL: it is not mapped. */
struct svc_file {
	int fd;
	void *mem;
};

/* Events of a pair: with RDMA and TCP the program rings, otherwise it does not. */
#define SVC_PAIR_RINGS  (EPOLLIN | EPOLLRDHUP | EPOLLET)
#define SVC_PAIR_DIRECT (EPOLLRDHUP | EPOLLET)

/* Events of a TCP socket: free room is only of interest if bytes are copied to the socket. */
#define SVC_TCP_CLC   (EPOLLIN | EPOLLRDHUP | EPOLLET)
#define SVC_TCP_RELAY (SVC_TCP_CLC | EPOLLOUT)

/* What programs keep for their next connections. */
enum svc_kept {
	SVC_KEPT_PAGES,
	SVC_KEPT_RINGS, /* between two programs: counted for the one that has connected */
	SVC_KEPT_SPARES,
	SVC_KEPT_KINDS,
};

/* A user who has programs or connections here: their numbers, and how much of what the programs
 * keep is free. */
struct svc_user {
	struct svc_user *next;
	uid_t uid;
	uint32_t progs;
	uint32_t conns[2]; /* connections for SMC-R, and connections that are declined for lack
			    * of room */
	uint32_t kept[SVC_KEPT_KINDS];
};

LIST_HEAD(svc_conns, svc_conn);
struct svc_conn {
	struct kd_smc *smc;
	struct svc_clc_answer *clc;     /* the answer, while a message of the peer is being
					 * handled */
	struct svc_conn *next, **pprev; /* list of all */
	LIST_ENTRY(svc_conn) by_cookie, by_names; /* lists of the same hash value */
	bool named;                               /* its other end can find it by its names */
	struct svc_conn *run_next;                /* list of those that are queued for a turn */
	struct svc_conn *held_next, **held_pprev; /* list of those that do not begin with CLC yet */
	struct svc_source pair_source, tcp_source;
	enum svc_what what;
	uint64_t number; /* for telemetry */
	uint32_t id;     /* number in lib/smc; SMC_NO_ID: no longer there */
	uint32_t refs;
	int pair, tcp;
	uint64_t netns;         /* cookie of the TCP socket's network namespace; 0: unknown */
	bool peer_listened;     /* a program of this service listens, or listened, at the port
				 * that it has connected to */
	uint64_t held_until_ns; /* with held_pprev: the latest time */
	struct svc_conn *other; /* DIRECT: the other end, as long as it exists */
	/* AGREEING: the pair for the other end, if that end belongs to this service, too.  Its far
	 * end is the program's waker from the start */
	struct svc_pair next_pair;
	uint64_t cookie; /* of the end that the program has */
	struct svc_user *user;
	uid_t uid; /* a copy, because @user may be freed earlier */
	pid_t pid;
	bool server, require;
	bool decline;   /* there is no room: it has to use TCP */
	bool queued;    /* in the list of those that are queued for a turn */
	bool shut_told; /* lib/smc was told about @shut */
	bool shut;      /* the program has ended its direction */
	bool gone;      /* the program has closed */
	bool hung_up;   /* the pair carries nothing any more, in either direction */
	bool ended;     /* lib/smc, or the peer, was told */
	bool shut_both; /* the TCP socket of SMC_RELAY is shut down in both directions */
	bool rang;      /* bytes arrived by the pair */
	bool tcp_over;  /* the TCP connection has been closed or reset */
	bool tcp_heard; /* epoll reports its events */
	bool tcp_news;  /* epoll has reported that there is something to read */
	bool tcp_ends;  /* epoll has reported that the peer sends nothing more */
	bool tcp_reset; /* the peer reset it during CLC */
	bool eof;       /* the program was told that nothing more will come */
	/* memory */
	struct svc_page *page_of;
	struct karst_sock_page *page;     /* the memory of that page */
	bool has_rings;                   /* its program has got them */
	struct svc_rings *rings;          /* NULL: what its program writes is in the page */
	struct karst_sock_dir *txd, *rxd; /* like tx and rx: NULL before svc_conn_map(), and */
	uint8_t *tx, *rx;                 /* after svc_conn_unmap() */
	bool was_mapped;                  /* its program reports bytes by the pair */
	uint32_t tx_shift, rx_shift;      /* karst_sock_shift() */
	uint32_t buffer;
	uint32_t dir; /* the direction that it writes, as in the page, where its program can
		       * change it */
	/* positions: those of the program, as far as they were taken over, and those of the
	 * service */
	uint64_t tx_head, tx_tail, rx_head, rx_tail;
	/* position behind the last urgent byte, 0: none; rx_urgent_told: the last one that the
	 * program was told */
	uint64_t tx_urgent, rx_urgent, rx_urgent_told;
	bool has_waker;  /* DIRECT: from then on its program reports urgent bytes itself */
	bool hears_less; /* SVC_PAIR_DIRECT */
	/* its pair is watched, and unless there is another end or it is held, CLC has begun */
	bool begun;
	uint64_t sent, received; /* bytes on TCP, if relayed */
	uint32_t reason;         /* the reason why it is on TCP */
	bool has_far; /* the other program has the far end of its pair, or has passed it on: */
	uid_t far_uid;
	struct sockaddr_storage local, peer;
};

/* A queue pair of a link, or one in stock, which has the state INIT. */
struct svc_qp {
	struct karst_qp *qp;
	struct karst_mr *mr; /* of mem: slots of SENDs, then of receives */
	uint8_t *mem;
	uint32_t port;
};

struct svc_link {
	uint32_t id; /* SMC_NO_ID: free */
	uint32_t group;
	struct svc_qp qp;
	struct karst_smc_end local, remote;
	uint32_t next_slot;
	uint16_t generation;
	bool down;     /* lib/smc was told that it is down */
	bool connects; /* its path is being resolved: */
	uint64_t look_ns, nap_ns, until_ns;
};

struct svc_rmb {
	struct svc_conn *conn;   /* counts as a reference; NULL: the buffer is spare, or was */
	struct svc_rings *rings; /* NULL: it has no key */
	struct karst_mr *mr;
};

struct svc_refused {
	uint8_t ip[16];
	uint64_t until_ns; /* 0: free */
	uid_t uid;         /* user of the first connection; not valid if @nobody */
	bool nobody;
	bool by_all; /* the option is not sent to this peer at all */
};

/* A group that could get a second link. */
struct svc_again {
	uint64_t at_ns;  /* time to add one; 0: none is added, or that is up to the peer */
	uint32_t wait_s; /* time until the next try if that fails */
};

struct svc_prog {
	struct svc_prog *next, **pprev;
	struct svc_source source;
	struct kd_smc *smc;
	int fd;
	pid_t pid;
	struct svc_user *user;
	bool paused;                             /* its requests have to wait */
	struct svc_page *pages[KARST_SOCK_KEPT]; /* by number - 1 */
	struct svc_page *free_pages;
	struct svc_rings *rings[KARST_SOCK_KEPT]; /* by number - 1 */
	uint32_t nspares;                         /* number of spare ones among these */
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
	struct svc_source session_source;
	struct kd_smc_option option;
	/* objects of the engine */
	struct karst_context *ctx;
	struct karst_session *session; /* of ctx; this thread attends to it */
	struct karst_pd *pd;
	struct karst_comp_channel *channel;
	struct karst_cq *cq;
	struct karst_gid_entry gids[SMC_MAX_GIDS];
	uint32_t ngids;
	struct svc_link links[SMC_LINKS];
	struct svc_again again[SMC_GROUPS];
	uint64_t again_ns;    /* the earliest time in @again, or earlier */
	struct svc_rmb *rmbs; /* array of nrmbs entries */
	uint32_t nrmbs;
	/* state of lib/smc */
	uint8_t system_id[8];
	uint64_t netns; /* cookie of the daemon's own network namespace; 0: the kernel does not
			 * provide it */
	void *core_mem;
	struct karst_smc *core;
	struct svc_conn *conns, *run, **run_tail, *dead;
	struct svc_conn *held, **held_tail; /* ordered by the time at which their wait ends */
	struct svc_conns by_cookie[SMC_HASH];
	struct svc_conns by_names[SMC_HASH]; /* those that their other end may join */
	uint64_t hash_key[2];                /* key of both hash tables */
	uint32_t nconns, ndeclined;          /* ndeclined: those of nconns for which there was no
					      * room */
	struct svc_user *users;
	struct svc_prog *progs, *dead_progs;
	uint32_t nprogs, nfree_pages, nfree_rings;
	struct svc_rings *free_rings[SMC_FREE_HASH]; /* hashed by their two programs */
	struct svc_rings *spares, **spares_tail;     /* oldest first */
	uint32_t nspares;                            /* including those whose key is being
						      * deleted */
	uint32_t npaused;                            /* number of paused programs */
	bool paused;                                 /* no new programs are accepted */
	uint64_t paused_until_ns;                    /* minimum duration of the pause */
	struct svc_askers *askers;                   /* thread that makes blocking calls; NULL:
						      * none yet */
	struct svc_closers *closers; /* threads that close descriptors; NULL: none yet */
	struct svc_refused refused[SMC_REFUSED];
	uint32_t nrefused;               /* entries in use */
	uint64_t fell_back[SMC_REASONS]; /* by the row of the reason */
	struct svc_pair pairs[SMC_PAIRS];
	uint32_t npairs;
	struct svc_file pages[SMC_PAGES], rings[SMC_RINGS], far[SMC_FAR];
	uint32_t npages, nrings, nfar;
	struct svc_qp qps[SMC_QPS];
	uint32_t nqps;
	bool armed;        /* epoll will report the next completion */
	bool rest;         /* a turn has left work */
	bool stock_failed; /* there was no memory or no descriptor, and nothing was taken from
			    * the stock since */
	bool rights_come;  /* descriptors can be sent to a program by its pair */
	bool rights_wait;  /* and to the service by a program that is not accepted yet */
	uint64_t opened, joined, faults, turned_away, short_on_tcp;
	struct karst_log_some log; /* for events that programs and peers can cause */
};

#define svc_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

int svc_watch(struct kd_smc *s, int fd, uint32_t events, struct svc_source *source);
/**
 * For descriptors of which other processes may have duplicates, because epoll would continue to
 * report events.
 */
void svc_unwatch(struct kd_smc *s, int fd);

/* --- smc_close.c --- */

#define SVC_RIGHTS 253u /* maximum number of descriptors of a message in the kernel */

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

/* What has to be done to a socket before it is closed. */
enum svc_end {
	SVC_END_AS_IT_IS,
	SVC_END_ORDERLY, /* without lingering */
	SVC_END_RESETS,
	/* other processes have it open: */
	SVC_END_WRITES,
	SVC_END_SHUTS,
	SVC_END_DISCONNECTS,
};

/** Closes @fd; if closing it can block, user @uid may be the cause, so another thread does that. */
void svc_let_go(struct kd_smc *s, uid_t uid, int fd);
void svc_end(struct kd_smc *s, uid_t uid, int fd, enum svc_end how);
/** The same, but @fd stays open.  @return false: no descriptor is free. */
bool svc_end_open(struct kd_smc *s, uid_t uid, int fd, enum svc_end how);
/**
 * Like recv(), of up to *@len bytes, without waiting.  Received descriptors are closed, except
 * *@first if that is not NULL.  @nfds: number of received descriptors. 0 or -errno
 */
int svc_recv(struct kd_smc *s, uid_t uid, int fd, void *buf, size_t *len, int *first,
	unsigned int *nfds);
/**
 * Closes a connection to the service that is not accepted.  If the kernel can keep descriptors out,
 * none is pending in it.
 */
void svc_turn_away(struct kd_smc *s, uid_t uid, int fd);
/**
 * Does so much of what the user has sent still have to be closed that further requests have to
 * wait?
 */
bool svc_is_behind(struct kd_smc *s, uid_t uid);
/** Do so many rejected connections still have to be closed that no more can be rejected? */
bool svc_is_full(struct kd_smc *s);
/** Begins with the closing of what was handed over by now. */
void svc_close_begin(struct kd_smc *s);
/** Interrupts threads that have lingered for long enough. */
void svc_close_expire(struct kd_smc *s);
/** Returns the time of the next call that is needed; UINT64_MAX: none. */
uint64_t svc_close_next_ns(const struct kd_smc *s);
void svc_close_fini(struct kd_smc *s);

/* --- smc_ask.c --- */

/** Is the user root, or the daemon's own user?  Nothing is protected from them. */
bool svc_is_trusted(uid_t uid);
/**
 * Calls @fn(@fd, @arg), where user @uid can make the call block.  @arg has @bytes and contains no
 * pointers; @fd is a duplicate in the call.  @return the result of @fn, which is 0 or -errno;
 * -EBUSY: the call blocks, or another one of this user's does, and is not waited for
 */
int svc_ask(
	struct kd_smc *s, uid_t uid, int fd, int (*fn)(int fd, void *arg), void *arg, size_t bytes);
void svc_ask_fini(struct kd_smc *s);

/* --- smc_conn.c --- */

/** Handles everything that may have changed. */
void svc_conn_work(struct svc_conn *c);
/**
 * Maps the rings.  @return false: no memory.  Mapping, touching and unmapping them is half of what
 * a short connection costs the service, so it is avoided between two programs that find each other
 * at once.
 */
bool svc_conn_map(struct svc_conn *c);
/**
 * DIRECT: unmaps the rings, which the service does not use any more unless something happens.
 * Otherwise idle connections would keep them mapped forever; rings that are used again stay mapped.
 */
void svc_conn_unmap(struct svc_conn *c);
/** Handles events of lib/smc. */
void svc_conn_event(struct svc_conn *c, uint32_t what);
/** Sends an urgent byte into its pair: SIGURG, POLLPRI. */
void svc_conn_urgent(struct svc_conn *c);
/** Shows the program what has arrived and what is free. */
void svc_conn_show(struct svc_conn *c);
/** The program is gone, and nothing else needs the pair. */
void svc_conn_drop_program(struct svc_conn *c);
/** Reads what the program has sent into the pair. */
void svc_conn_empty(struct svc_conn *c);
/**
 * Signals the end of the connection to its program.  If the program has not got its rings yet, it
 * has to be able to ask for them and for their contents; it learns of the rest then.
 */
void svc_conn_hang_up(struct svc_conn *c);
/** Signals that nothing more will arrive. */
void svc_conn_eof(struct svc_conn *c);
/** Ends it with an error, which the program gets. */
void svc_conn_fail(struct svc_conn *c, int error);
/** Closes or resets the TCP connection. */
void svc_conn_close_tcp(struct svc_conn *c, bool reset);
/** Records a reset that comes after the end of the peer's direction.  As with TCP, it is no error
 *  of reads; writes fail by EPIPE, which SO_ERROR has, too. */
void svc_conn_note_reset(struct svc_conn *c);
/** Stops watching the TCP socket, whatever other processes have it. */
void svc_conn_leave_tcp(struct svc_conn *c);
/** Closes the TCP socket for good. */
void svc_conn_put_tcp(struct svc_conn *c, bool reset);

/* --- smc_conn_life.c --- */

/* The names of a TCP socket. */
struct svc_names {
	struct sockaddr_storage local, peer;
	uint64_t netns; /* cookie of its network namespace; 0: unknown */
	bool peer_listened;
};

/**
 * Opens a connection.  @decline: there is only room for it on TCP.
 * -ENODATA: the option was not seen on the connection; -ENOTSOCK, -ENOTCONN, ... On success @tcp
 * belongs to the connection; *end belongs to the caller.
 */
int svc_conn_open(struct kd_smc *s, struct svc_prog *prog, int tcp, uint32_t flags, bool decline,
	struct svc_conn **conn, int *end);
/** Begins: its program has got its answer by now. */
void svc_conn_begin(struct svc_conn *c);
/** Stops waiting for the other end: CLC begins, if the connection is held. */
void svc_conn_agree(struct svc_conn *c);
/** The same for connections that have waited for long enough; @all: for all. */
void svc_conn_agree_held(struct kd_smc *s, bool all);
/** Removes it from the list of held connections: its other end is there, or it is over. */
void svc_conn_unhold(struct svc_conn *c);
/**
 * What is @fd connected to now, if it is a TCP socket of user @uid and both sides have sent the
 * option?
 */
int svc_conn_names(struct kd_smc *s, uid_t uid, int fd, struct svc_names *names);
/** The same from the socket itself, without its network namespace. */
int svc_conn_ask_names(struct kd_smc *s, uid_t uid, int fd, struct svc_names *names);
/** Returns the connection whose program has the end @fd; NULL: none. */
struct svc_conn *svc_conn_find(struct kd_smc *s, int fd);
/** Its program, which has not got the page yet, has asked for a token for what arrives. */
void svc_conn_arm(struct svc_conn *c);
/** Queues it for this turn. */
void svc_conn_queue(struct svc_conn *c);
void svc_conn_put(struct svc_conn *c);
/**
 * Of @uid and @other's user, who may have sent something to the other one, returns the less
 * trusted.  @other NULL: there is none
 */
uid_t svc_of_two(uid_t uid, const struct svc_conn *other);
/** Hashes its addresses, independently of their order, for the end that is a server or is not. */
uint32_t svc_names_hash(const struct svc_conn *c, bool server);
/** Its state is decided: its other end must not find it any more. */
void svc_conn_unname(struct svc_conn *c);
/** Ends all connections, at the end of the service. */
void svc_conn_end_all(struct kd_smc *s);
/** Frees objects to which no pending events can refer. */
void svc_conn_reap(struct kd_smc *s);

/**
 * Creates a file that cannot be shortened while it is mapped.  @fd, @mem: only on success; @mem
 * NULL: it is not mapped.
 */
int svc_make_file(uint64_t bytes, int *fd, void **mem);

/* --- smc_pair.c --- */

int svc_pair_make(struct kd_smc *s, struct svc_pair *p);

/* --- smc_link.c --- */

void svc_link_init(struct kd_smc *s);
void svc_link_fini(struct kd_smc *s);
/** Returns the link with this number of lib/smc, or for SMC_NO_ID a free one; NULL: none. */
struct svc_link *svc_link_of(struct kd_smc *s, uint32_t id);
/** Memory for the next message to send: its predecessor there has completed. */
uint8_t *svc_link_slot(struct svc_link *l);
/** The message that was received in @slot. */
uint8_t *svc_link_received(const struct svc_link *l, uint32_t slot);
int svc_link_post_recv(struct kd_smc *s, struct svc_link *l, uint32_t slot);
/** The wr_id of its SENDs and WRITEs. */
uint64_t svc_link_wr_id(const struct kd_smc *s, const struct svc_link *l);
/** The port that the next link will probably use; 0: links are not expected. */
uint32_t svc_link_port(const struct kd_smc *s);
/** Are links expected, and there are not enough queue pairs in stock? */
bool svc_link_lacks(const struct kd_smc *s);
/** Makes one for the stock.  false: it failed. */
bool svc_link_stock(struct kd_smc *s);
/** The port has gone: frees those in stock that are for it. */
void svc_link_unstock(struct kd_smc *s, uint32_t port);
/* operations for lib/smc */
int svc_link_open(void *user, const struct karst_smc_link_ask *ask, struct karst_smc_end *local);
int svc_link_connect(void *user, uint32_t link, const struct karst_smc_end *remote);
void svc_link_close(void *user, uint32_t link);

/* --- smc_stock.c --- */

/** The same as svc_pair_make() and svc_make_file(), from the stock if possible. */
int svc_stock_pair(struct kd_smc *s, struct svc_pair *p);
int svc_stock_page(struct kd_smc *s, int *fd, void **mem);
/** @c: NULL, or the connection that may be one to another system. */
int svc_stock_rings(struct kd_smc *s, const struct svc_conn *c, int *fd);
/** Does the stock lack anything that the next connection needs?  With @all: is it incomplete? */
bool svc_stock_lacks(const struct kd_smc *s, bool all);
/** Adds a little to the stock. */
void svc_stock_fill(struct kd_smc *s);
void svc_stock_fini(struct kd_smc *s);

/* --- smc_page.c --- */

/** Returns a page of zeroes for a connection of @p. */
int svc_page_get(struct svc_prog *p, struct svc_page **page);
/** The connection has ended.  NULL is ignored. */
void svc_page_put(struct svc_page *g);
/** Other processes may have it, and its rings: neither is used again. */
void svc_page_share(struct svc_page *g);
/** Handles the pages of which the program says in @req that it does not access them any more. */
void svc_page_unmapped(struct svc_prog *p, const struct karst_sock_msg *req);
/** The program is gone; connections may still have its pages. */
void svc_page_leave(struct svc_prog *p);

/* --- smc_rings.c --- */

/** Makes rings; @c: for this connection, which is not, or not yet, between two programs, or NULL.
 *  NULL: no memory. */
struct svc_rings *svc_rings_make(struct kd_smc *s, const struct svc_conn *c);
/** Makes rings for connection @c of program @p with a remote peer; NULL: no memory. */
struct svc_rings *svc_rings_remote(struct svc_conn *c, struct svc_prog *p);
/** A key of the rings was deleted. */
void svc_rings_unkeyed(struct svc_rings *r);
/**
 * Returns rings for a connection between these two programs; NULL means that a program is no longer
 * known.  @server: the second one is the server.
 */
struct svc_rings *svc_rings_get(
	struct kd_smc *s, struct svc_prog *first, struct svc_prog *second, bool server);
/** @return false: no memory. */
bool svc_rings_map(struct svc_rings *r);
/** One connection fewer has pointers into the rings. */
void svc_rings_unmap(struct svc_rings *r);
/** @c is about to be freed: reads from its page how much it has written. */
void svc_rings_note(const struct svc_conn *c);
/** NULL is ignored. */
void svc_rings_put(struct svc_rings *r);
/** Returns the side of @c; NULL: its program does not keep the rings. */
struct svc_rings_side *svc_rings_side(struct svc_rings *r, const struct svc_conn *c);
/** Gives the rings to @c: tells its program their number, if the program knows them. */
void svc_rings_enter(struct svc_conn *c);
/** The program is gone. */
void svc_rings_leave(struct svc_prog *p);
/**
 * Copies what @c's program has written by now into its rings, which have not been used yet.  If
 * that is nothing and @reader is not NULL, the reader asks for a token for what arrives.  The
 * caller sets KARST_SOCK_EARLY_READY in the page when the program may use the rings.  @return
 * false: no memory.
 */
bool svc_rings_take_early(struct svc_conn *c, struct svc_conn *reader);

/* --- smc_clc.c --- */

/** Sends lib/smc's message to the peer on TCP. */
void svc_clc_send(struct svc_conn *c, const void *msg, size_t len);
/** Reads the peer's messages on TCP. */
void svc_clc_read(struct svc_conn *c);

/* --- smc_spare.c --- */

/**
 * @c is about to be released in lib/smc: keeps its rings unchanged for another connection, if
 * possible.
 */
void svc_spare_keep(struct svc_conn *c);
/** @c has just been opened in lib/smc: gives it the buffer that was kept with its rings. */
void svc_spare_take(struct svc_conn *c);
/** The rings are not spare any more: there is another key, or none. */
void svc_spare_leave(struct svc_rings *r);
/** The rings are not in use, or their program is gone: checks whether they stay spare. */
void svc_spare_settle(struct svc_rings *r);
/** Returns unused rings that @p keeps for a peer; NULL: none. */
struct svc_rings *svc_spare_find(
	struct kd_smc *s, const struct svc_prog *p, const uint8_t ip[16], bool server);
/** Drops rings that were not used for long. */
void svc_spare_expire(struct kd_smc *s);
uint64_t svc_spare_next_ns(const struct kd_smc *s);

/* --- smc_direct.c --- */

/**
 * Returns the other end of @c's TCP connection, if it is a connection of this service that waits;
 * NULL.
 */
struct svc_conn *svc_direct_find(const struct svc_conn *c);
/**
 * Joins @first, whose rings @second has got, and @second.  @polls: the program of @second will ask
 * for a token for what is there
 */
void svc_direct_join(struct svc_conn *first, struct svc_conn *second, bool polls);
void svc_direct_work(struct svc_conn *c);
/** Ends it with an error, as if the other end had reset it. */
void svc_direct_fail(struct svc_conn *c);
/** Returns the far end of the other connection's pair; -errno. */
int svc_direct_waker(struct svc_conn *c);
/** The same when the connection is opened, possibly before the other one exists; -1: none yet. */
int svc_direct_early_waker(const struct svc_conn *c);
/** Is the peer on this machine, so that its program may belong to this service? */
bool svc_direct_is_near(const struct svc_conn *c);
/** Is the peer's address one of this machine's, as far as known? */
bool svc_direct_is_own(const struct svc_conn *c);
/** There will be no other end in this service. */
void svc_direct_alone(struct svc_conn *c);
/** Bytes arrived by its pair. */
void svc_direct_rang(struct svc_conn *c);
/** @flags of KARST_SOCK_WAKE. */
void svc_direct_wake(struct svc_conn *c, uint32_t flags);

/* --- smc_relay.c --- */

void svc_relay_begin(struct svc_conn *c, uint32_t reason);
void svc_relay_work(struct svc_conn *c);
/** Converts to IPv6: an IPv4 address is mapped. */
void svc_ip_of(const struct sockaddr_storage *a, uint8_t ip[16]);
/** Returns the row of a reason, for its name and its counter. */
unsigned int svc_reason_row(uint32_t reason);
const char *svc_reason_text(unsigned int row, uint32_t *number);

/* --- smc_decline.c --- */

/**
 * The connection of @tcp stays with its program, and the peer is told.  -EAGAIN: the peer has to
 * send first
 */
int svc_decline(struct kd_smc *s, uid_t uid, int tcp, bool server);

/* --- smc_prog.c --- */

int svc_prog_init(struct kd_smc *s);
void svc_prog_fini(struct kd_smc *s);
void svc_prog_reap(struct kd_smc *s);
/** Resumes programs that had to wait until descriptors that they sent were closed. */
void svc_prog_resume(struct kd_smc *s);
/** Counts one connection more or less for the user, who is freed with the last object. */
void svc_user_count(struct kd_smc *s, struct svc_user *u, bool decline, int more);
/**
 * As with connections: may the user keep one more of these, of which there are @all, and at most
 * @max?
 */
bool svc_user_may_keep(const struct svc_user *u, enum svc_kept what, uint32_t all, uint32_t max);

/* --- smc_rdma.c --- */

extern const struct karst_smc_ops svc_rdma_ops;
int svc_rdma_init(struct kd_smc *s);
void svc_rdma_fini(struct kd_smc *s);
/** Handles completions.  @return true: there were any. */
bool svc_rdma_poll(struct kd_smc *s);
/** Handles all completions that are there now. */
void svc_rdma_poll_all(struct kd_smc *s);
/** Asks for an event. */
void svc_rdma_arm(struct kd_smc *s);
void svc_rdma_load_gids(struct kd_smc *s);
/** Returns the GID of the port that has this address; false: no port has it. */
bool svc_rdma_gid(struct kd_smc *s, const struct sockaddr_storage *local, uint8_t gid[16]);
/** Is it in the network namespace of the ports, where users cannot choose their addresses? */
bool svc_rdma_is_here(const struct svc_conn *c);
/**
 * Registers the memory that @c sends from; it stays registered as long as its rings exist.  -errno
 */
int svc_rdma_tx_key(struct svc_conn *c);
void svc_rdma_tx_unkey(struct svc_rings *r);
/** The buffer @rmb, whose key stays valid, is detached from its connection, or attached to @c. */
void svc_rdma_leave_rmb(struct kd_smc *s, uint32_t rmb);
void svc_rdma_enter_rmb(struct svc_conn *c, uint32_t rmb);

/** Returns the entry of a port's address; NULL: no port has it. */
const struct karst_gid_entry *svc_rdma_gid_entry(const struct kd_smc *s, const uint8_t gid[16]);

/* --- smc_connect.c --- */

/** Connects @l's queue pair.  As ops->link_connect() of lib/smc */
int svc_connect(struct kd_smc *s, struct svc_link *l, const struct karst_smc_end *remote);
/** Checks links whose path is being resolved. */
void svc_connect_expire(struct kd_smc *s);
/** Returns the time of the next call that is needed; UINT64_MAX: none. */
uint64_t svc_connect_next_ns(const struct kd_smc *s);

/* --- smc_ports.c --- */

int svc_ports_init(struct kd_smc *s);
/** Is the address local to this machine, or to its network segment? */
bool svc_ports_is_local(const uint8_t gid[16]);
/** Returns how many links a group may have. */
uint8_t svc_ports_links(const struct kd_smc *s);
/** Returns the address for the second link of a group; NULL: there is none. */
const struct karst_gid_entry *svc_ports_other(
	struct kd_smc *s, const struct karst_smc_link_ask *ask);
/** Handles lib/smc's events of a group. */
void svc_ports_event(struct kd_smc *s, const struct karst_smc_ev *ev);
/** Adds links again that are due. */
void svc_ports_expire(struct kd_smc *s);
/** Returns the time of the next call that is needed; UINT64_MAX: none. */
uint64_t svc_ports_next_ns(const struct kd_smc *s);

/* --- smc_tel.c --- */

void svc_tel_open(struct kd_smc *s);
void svc_tel_close(struct kd_smc *s);

#endif /* KARSTD_SMC_PRIV_H */
