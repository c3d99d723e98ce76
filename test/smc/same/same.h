/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What the cases of smc-same share (same.c). */
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

#define MUCH (8u << 20) /* more than there is room for on the way */

struct same_case {
	const char *name;
	void (*fn)(void);
};

/* One array for each subject; its last case has no name. */
extern const struct same_case waits[], reads[], messages[], files[], connects[], signals[],
	closes[], settings[], streams[], ready[], descriptors[];

extern struct sockaddr_in address; /* of the listener */
extern int listener, near, far;    /* near has connected, far was accepted */
extern char data[MUCH];
extern volatile sig_atomic_t came; /* signals that handle() has asked for */

void fail(const char *what) __attribute__((noreturn));
/** What a call has returned: that, or the name of errno. */
void tell(long rc);
/** Counts signal @sig from now on. */
void handle(int sig, int flags);
/** A byte goes each way, so what is agreed on at the beginning is. */
void greet(void);
/** Connects near and far. */
void open_both(void);
/** @fd sends @n bytes, and they are there. */
void give(int fd, size_t n);
/** Closes @fd by a reset. */
void reset(int fd);
/** Waits for one of @events, of poll(). */
void await(int fd, short events);
/** Writes to near until there is no room, also when what is on its way has come. */
void fill(void);

/* A call that a thread of its own makes. */
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

/** When it returns the thread sleeps in its call, or has come back. */
void begin_call(struct call *c, long (*fn)(struct call *c), int fd, size_t len, int flags);
/** Waits for it, and tells what it has returned. */
void end_call(struct call *c);
/** Until it cannot: where TCP has no room for much it may have some for a little. */
long call_send(struct call *c);
long call_poll(struct call *c);
long call_recv(struct call *c);
/** Two messages of that length. */
long call_recv_many(struct call *c);

#endif /* SAME_H */
