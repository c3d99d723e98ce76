/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * --op connect: connections made and ended as fast as can be, by two ends that are attached to one
 * engine, each with a context and a thread of its own.
 *
 *	connect.c         the engine, the two ends, what is printed
 *	connect_end.c     what both ends do: queue pairs, private data, events
 *	connect_client.c  resolves, connects, disconnects; so many at a time
 *	connect_server.c  listens, accepts, answers
 *
 * Every connection has a number, and private data made of it in both directions, of as many bytes
 * as the messages carry.  Each of its ends has an RC queue pair, made for it, modified to RTS and
 * destroyed, unless --no-qps.
 */
#ifndef PERF_CONNECT_H
#define PERF_CONNECT_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "hist.h"
#include "karst.h"
#include "karst_rdmacm.h"
#include "opts.h"

#define CONNECT_REQ_BYTES 56u /* of private data that a program may send */
#define CONNECT_REP_BYTES 196u

enum connect_event {
	CONNECT_NOTHING, /* for so long that nothing will come any more */
	CONNECT_EVENT,
	CONNECT_BROKEN, /* said on stderr */
};

/* What an end has of a connection. */
struct connect_conn {
	uint32_t number;
	uint32_t id; /* of connection management; 0: none */
	struct karst_qp *qp;
	uint64_t began_ns; /* of what is measured at present */
};

struct connect_end {
	const char *name; /* for messages */
	struct karst_context *ctx;
	struct karst_pd *pd;
	struct karst_cq *cq;
	struct karst_rdmacm_channel *ch;
	uint64_t seed;
	bool with_qps;
	uint32_t next_qpn; /* without: a number that nobody has; of one end even, of one odd */
	/* figures */
	uint64_t begun;       /* client: asked for; server: requests */
	uint64_t established; /* client: answered as well; server: events */
	uint64_t ended;       /* disconnected */
	uint64_t wrong;       /* private data of another connection, or of none */
	uint64_t errors;
};

struct connect_client {
	struct connect_end end;
	const struct perf_opts *opts;
	struct sockaddr_storage from, to;
	struct connect_conn *conns; /* [opts->conns] */
	uint32_t open;              /* of them */
	double seconds;             /* from the first request to the last end */
	struct perf_hist *connect_ns;
	struct perf_hist *disconnect_ns;
};

struct connect_server {
	struct connect_end end;
	struct sockaddr_storage at;
	uint32_t listener;
	pthread_t thread;
	_Atomic uint64_t expected; /* connections in all; UINT64_MAX: not known yet */
};

uint64_t connect_now_ns(void);

/* --- connect_end.c --- */

/** Channel, and what queue pairs need.  -errno, said on stderr; ended by _down() all the same. */
int connect_end_up(struct connect_end *e);
void connect_end_down(struct connect_end *e);
/** Says on stderr what was refused, once for each end, and counts it.  @return @rc */
int connect_fault(struct connect_end *e, const char *what, int rc);

/** The next event; waits up to @ms for it. */
enum connect_event connect_next(struct connect_end *e, int ms, struct karst_rdmacm_event *event);

/** A queue pair in Init, and its number into @param.  -errno, said */
int connect_make_qp(
	struct connect_end *e, struct connect_conn *c, struct karst_rdmacm_conn_param *param);
/** To RTR and RTS.  -errno, said */
int connect_open_qp(struct connect_end *e, struct connect_conn *c);
/** Destroys identifier and queue pair. */
void connect_drop(struct connect_end *e, struct connect_conn *c);

/** Private data of connection @number, from the client or to it. */
void connect_fill(const struct connect_end *e, uint32_t number, bool request,
	struct karst_rdmacm_conn_param *p);
/** Counts it if they are others.  @number: what they say it is. */
bool connect_check(struct connect_end *e, bool request, const struct karst_rdmacm_conn_param *p,
	uint32_t *number);

/* --- the ends --- */

/** Listens at c->at, whose port number it chooses.  -errno, said */
int connect_server_listen(struct connect_server *s);
/** A thread: until s->expected connections have ended, or nothing comes any more. */
void *connect_server_main(void *server);

/** All connections that were asked for, until they have ended.  -errno, said */
int connect_client_run(struct connect_client *c);

/* --- connect.c --- */

/** @return exit status; said on stderr. */
int perf_connect_main(struct perf_opts *opts);

#endif /* PERF_CONNECT_H */
