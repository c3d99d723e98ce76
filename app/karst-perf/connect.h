/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * --op connect: two ends that are attached to one engine make and end connections as fast as
 * possible, each end with a context and a thread of its own.
 *
 *	connect.c         the engine, the two ends, the output
 *	connect_end.c     what both ends do: queue pairs, private data, events
 *	connect_client.c  resolves, connects, disconnects; opts->conns connections at a time
 *	connect_server.c  listens, accepts, answers
 *
 * Every connection has a number, which determines the private data in both directions.  The private
 * data has the maximum size of its messages.  Each end creates an RC queue pair for the connection,
 * modifies it to RTS and destroys it, unless --no-qps.
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
	CONNECT_NOTHING, /* no event for so long that none will come any more */
	CONNECT_EVENT,
	CONNECT_BROKEN, /* failed, with a message on stderr */
};

/* One end's state of a connection. */
struct connect_conn {
	uint32_t number;
	uint32_t id; /* of connection management; 0: none */
	struct karst_qp *qp;
	uint64_t began_ns; /* start of the step that is being measured */
};

struct karst_session;

struct connect_end {
	const char *name; /* for messages */
	struct karst_context *ctx;
	/* of ctx, if the engine is embedded: the end's thread attends to it; else NULL */
	struct karst_session *session;
	struct karst_pd *pd;
	struct karst_cq *cq;
	struct karst_rdmacm_channel *ch;
	uint64_t seed;
	bool with_qps;
	uint32_t next_qpn; /* without: an unused number; even at one end, odd at the other */
	/* figures */
	uint64_t begun;       /* client: requests sent; server: requests received */
	uint64_t established; /* client: responses; server: established events */
	uint64_t ended;       /* disconnected */
	uint64_t wrong;       /* private data that is not that of the connection */
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

/** Creates the channel, and the objects that queue pairs need.  -errno, with a message on stderr;
 *  _down() must be called then, too. */
int connect_end_up(struct connect_end *e);
void connect_end_down(struct connect_end *e);
/** Counts a failed call, and prints it on stderr, once for each end.  @return @rc */
int connect_fault(struct connect_end *e, const char *what, int rc);

/** The next event; waits up to @ms for it. */
enum connect_event connect_next(struct connect_end *e, int ms, struct karst_rdmacm_event *event);

/** Creates a queue pair in Init and stores its number in @param.  -errno, with a message */
int connect_make_qp(
	struct connect_end *e, struct connect_conn *c, struct karst_rdmacm_conn_param *param);
/** Modifies the queue pair to RTR and RTS.  -errno, with a message */
int connect_open_qp(struct connect_end *e, struct connect_conn *c);
/** Destroys identifier and queue pair. */
void connect_drop(struct connect_end *e, struct connect_conn *c);

/** Private data of connection @number, from the client or to it. */
void connect_fill(const struct connect_end *e, uint32_t number, bool request,
	struct karst_rdmacm_conn_param *p);
/** Checks private data, and counts wrong data.  @number: the connection's number in the data. */
bool connect_check(struct connect_end *e, bool request, const struct karst_rdmacm_conn_param *p,
	uint32_t *number);

/* --- the ends --- */

/** Listens at s->at, and chooses its port number.  -errno, with a message */
int connect_server_listen(struct connect_server *s);
/** Thread function: runs until s->expected connections have ended, or no more events come. */
void *connect_server_main(void *server);

/** Makes all requested connections, and returns when they have ended.  -errno, with a message */
int connect_client_run(struct connect_client *c);

/* --- connect.c --- */

/** @return exit status; errors are printed on stderr. */
int perf_connect_main(struct perf_opts *opts);

#endif /* PERF_CONNECT_H */
