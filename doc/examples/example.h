/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Shared code of the examples, which most verbs programs need in some form: exchanging the numbers
 * of the queue pairs over TCP, and modifying the queue pair to RTS.  If any of these functions
 * fails, it prints the reason and ends the program.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <karst.h>

/** Options that all examples have. */
struct example_opts {
	const char *socket;    /* of karstd; NULL: $KARST_SOCKET or the usual place */
	uint32_t port;         /* of karstd, from 1 */
	uint32_t gid_index;    /* which of the port's addresses */
	const char *host;      /* of the server; NULL: this is the server */
	const char *tcp_port;  /* "0": any free port, which is printed */
	unsigned long count;   /* --count */
	unsigned long size;    /* --size */
	unsigned long workers; /* --workers */
};

/** Reads options into @o, which contains the defaults; --help prints @usage. */
void example_options(int argc, char **argv, struct example_opts *o, const char *usage);

/** A context with a protection domain and a completion queue. */
struct example {
	struct karst_context *ctx;
	struct karst_pd *pd;
	struct karst_cq *cq;
};

void example_open(struct example *x, const struct example_opts *o);
void example_close(struct example *x);

/** Memory of karst_alloc(), registered for every access. */
void *example_memory(struct example *x, size_t size, struct karst_mr **mr);
void example_free(void *memory, struct karst_mr *mr);

/** A reliable connection: the queue pair, and what the peer has sent about itself. */
struct example_link {
	struct karst_qp *qp;
	int tcp;         /* stays open, for example_meet() */
	uint64_t addr;   /* the peer's memory ... */
	uint64_t length; /* ... its size ... */
	uint32_t rkey;   /* ... and key */
};

/** Opens a listening TCP socket, and prints its port. */
int example_listen(const struct example_opts *o);
unsigned int example_tcp_port(int listener);
int example_accept(int listener);
int example_connect(const struct example_opts *o);

/** Creates a queue pair, exchanges its number and @mr (NULL: none) with the peer at @tcp, and
 *  modifies the queue pair to RTS. */
void example_link(struct example *x, const struct example_opts *o, int tcp,
	const struct karst_mr *mr, struct example_link *link);
/** Waits until both ends have called this function. */
void example_meet(const struct example_link *link);
void example_unlink(struct example_link *link);

/** Waits for one completion, which must be a success. */
struct karst_cqe example_wait(struct example *x);

/** Ends the program if @ret is negative: @what has failed. */
void example_check(int ret, const char *what);
void example_die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif /* EXAMPLE_H */
