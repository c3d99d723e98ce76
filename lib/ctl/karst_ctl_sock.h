/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Control messages over a connected AF_UNIX socket of type SOCK_SEQPACKET: one packet for each
 * message, with its descriptors.
 *
 * Received descriptors are close-on-exec and belong to the receiver; a function that refuses a
 * message closes them.  A broken connection is an error, never a signal.
 */
#ifndef KARST_CTL_SOCK_H
#define KARST_CTL_SOCK_H

#include <sys/types.h>

#include "karst_ctl.h"

/**
 * Sends one message; waits for room.  -EPIPE, -ECONNRESET: the other end is gone; -EMSGSIZE;
 * -ETOOMANYREFS: the kernel has too many descriptors in transit already.
 */
int karst_ctl_send(int fd, const void *msg, size_t len, const int *fds, unsigned int nfds);
/**
 * The same without waiting.  -EAGAIN: there is no room, because the other end has not read earlier
 * messages.
 */
int karst_ctl_send_now(int fd, const void *msg, size_t len, const int *fds, unsigned int nfds);

/**
 * Waits for one message.  @buf: KARST_CTL_MAX bytes; @fds: KARST_CTL_MAX_FDS.
 * -ECONNRESET: the other end is gone (an empty packet counts as that).
 *
 * With the following errors a message was read: *len bytes of it are in @buf, and its descriptors
 * are closed.
 * -EMSGSIZE: it was longer.
 * -EMFILE: not all descriptors were received, because there were more than KARST_CTL_MAX_FDS, or
 * this process has no room for more.
 */
int karst_ctl_recv(int fd, void *buf, size_t *len, int *fds, unsigned int *nfds);

void karst_ctl_close_fds(const int *fds, unsigned int n);

/** Is the other end gone?  Does not wait. */
bool karst_ctl_hung_up(int fd);

/** The process at the other end, as the kernel recorded it when it connected. */
struct karst_ctl_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
	/* The caller closes it.  -1: this kernel cannot provide it (before Linux 6.5).  Then the
	 * process may be gone, and its number reused, although the connection exists. */
	int pidfd;
};

/** -ESRCH: the process is gone; or the error of the kernel. */
int karst_ctl_peer(int fd, struct karst_ctl_peer *peer);

/**
 * Creates a control connection (see karst_ctl.h) that sends requests over @fd, which then belongs
 * to it.  -ENOMEM
 */
int karst_ctl_socket_conn(int fd, struct karst_ctl_conn *conn);

/** The handlers on the engine's side. */
struct karst_ctl_server {
	/**
	 * As struct karst_ctl_conn.call: karst_session_handle().  A result other than 0 ends the
	 * connection.
	 */
	int (*handle)(void *user, const void *req, size_t len, const int *fds, unsigned int nfds,
		void *rsp, size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds);
	/** Called when @attend_fd is readable: karst_session_attend().  -1: never. */
	void (*attend)(void *user);
	int attend_fd;
	void *user;
};

/**
 * Answers messages one by one until the other end is gone, another thread calls shutdown() for @fd,
 * or the other end leaves more than a dozen replies unread.  A handler that waits can call
 * karst_ctl_hung_up().  With SHUT_RD, requests that were sent before are still answered, and the
 * other end sees POLLHUP only after close().
 * @return 0: the other end is gone; or the error that ended it; -EAGAIN: replies were not read.
 */
int karst_ctl_serve(int fd, const struct karst_ctl_server *server);

#endif /* KARST_CTL_SOCK_H */
