/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Common declarations of the cases of smc-same (same.c). */
#ifndef SAME_H
#define SAME_H

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#define MUCH (8u << 20) /* more than there is room for in transit */

struct same_case {
	const char *name;
	void (*fn)(void);
};

/* One array for each subject; its last case has no name. */
extern const struct same_case waits[], reads[], messages[], files[], connects[], signals[],
	closes[], settings[], streams[], ready[], descriptors[], addresses[], begins[], states[],
	concurrent[], filters[], by_number[];

extern struct sockaddr_in address; /* the listener's */
extern int listener, near, far;    /* near is the connecting end, far the accepted one */
extern char data[MUCH];
extern volatile sig_atomic_t came; /* number of signals that handle() has asked for */

void fail(const char *what) __attribute__((noreturn));
/** Prints the result of a call, or the name of errno. */
void tell(long rc);
/** Waits for a child, and prints its status. */
void tell_status(pid_t child);
/** Returns how many descriptors the process has open. */
int count_descriptors(void);
/** Counts signal @sig from now on. */
void handle(int sig, int flags);
/** Transfers a byte in each direction, after which the negotiation is complete. */
void greet(void);
/** Connects near and far. */
void open_both(void);
/** Sends @n bytes on @fd, and waits until they have arrived. */
void give(int fd, size_t n);
/** Closes @fd with a reset. */
void reset(int fd);
/** Waits for one of @events, of poll(). */
void await(int fd, short events);
/** Writes to near until there is no room, even after the bytes under way have arrived.  @return
 *  the number of bytes that were written */
ssize_t fill(void);
/** Reads @all bytes from far. */
void drain(ssize_t all);

/* A call that is made in a thread of its own. */
struct call {
	long (*fn)(struct call *c);
	int fd, flags;
	size_t len;
	long rc;
	int err;
	_Atomic pid_t id;
	_Atomic bool done;
	pthread_t thread;
};

/** Begins a call.  When this returns, the thread sleeps in the call or has returned. */
void begin_call(struct call *c, long (*fn)(struct call *c), int fd, size_t len, int flags);
/** Waits until the thread sleeps in the call, or has returned. */
void await_call(const struct call *c);
/** Waits for the call, and prints what it has returned. */
void end_call(struct call *c);
/** Sends until there is no room: where TCP has no room for many bytes it may have room for a
 *  few. */
long call_send(struct call *c);
long call_poll(struct call *c);
long call_recv(struct call *c);
/** Receives two messages of that length. */
long call_recv_many(struct call *c);

/** Programs of their own, which have a socket @fd.  They return their exit status. */
/** Receives a descriptor, and sends it back. */
int relay(int fd);
/** Connects to @port of this machine, and sends the connection. */
int bring(int fd, int port);
/** Connects to @port, which is in network byte order, exchanges a byte each way, and sets a filter
 *  of system calls meanwhile.  @variables: how many its environment has. */
int filtered(int port, int variables);

#endif /* SAME_H */
