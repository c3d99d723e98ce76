/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The TCP connection between an attached client and its server, which is not part of what is
 * measured.  It carries numbers of queue pairs, phases and results, as one JSON object a line.  A
 * request is answered by one object, {"error": "..."} if it cannot be executed.
 *
 * The receiver trusts no data: the length of lines is limited, and every number is checked where it
 * is used.
 */
#ifndef PERF_LINK_H
#define PERF_LINK_H

#include <jansson.h>

#include "karst_base.h"

#define PERF_LINK_PORT 18515u /* the same as perftest's */

struct perf_link {
	int fd;
	char peer[80]; /* address, for messages */
	char *line;    /* the received part of the next line */
	size_t len, room;
	size_t scanned; /* bytes of it without a line's end */
};

/** Listens on all addresses.  *@port 0: any free port, which is stored there.  @return a socket, or
 *  -errno. */
int perf_link_listen(uint16_t *port);

/** Waits for a client.  -errno. */
int perf_link_accept(int listener, struct perf_link *link);

/** @host: a name or an address.  Tries again for some seconds while no server listens.
 *  0 or -errno, with a message on stderr. */
int perf_link_connect(const char *host, uint16_t port, struct perf_link *link);

void perf_link_close(struct perf_link *link);

/** Writes all @n bytes to any stream socket.  -EPIPE */
int perf_link_write(int fd, const void *bytes, size_t n);

/** Sends @o and drops the reference.  -EPIPE, -ENOMEM (also for NULL) */
int perf_link_send(struct perf_link *link, json_t *o);

/**
 * Receives the next object.  Without @wait: -EAGAIN if it has not arrived yet.
 * -EPIPE: the peer has closed the connection; -EPROTO: not JSON, or too long.
 */
int perf_link_recv(struct perf_link *link, bool wait, json_t **o);

/** Sends @request and waits for the answer; an "error" in it is printed on stderr, and the result
 *  is -EREMOTEIO then.  @answer may be NULL. */
int perf_link_ask(struct perf_link *link, json_t *request, json_t **answer);

/** Stores member @name of @o, a number of up to @max, in *@value.  -EPROTO: there is none. */
int perf_link_number(const json_t *o, const char *name, uint64_t max, uint64_t *value);

#endif /* PERF_LINK_H */
