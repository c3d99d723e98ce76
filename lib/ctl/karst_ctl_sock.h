/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Control messages over a connected AF_UNIX socket of type SOCK_SEQPACKET: one packet a message,
 * descriptors beside it.
 *
 * Descriptors that arrive are close-on-exec and the receiver's; whoever refuses a message closes
 * them.  A broken connection is an error, never a signal.
 */
#ifndef KARST_CTL_SOCK_H
#define KARST_CTL_SOCK_H

#include <sys/types.h>

#include "karst_ctl.h"

/** Sends one message; waits for room.  -EPIPE, -ECONNRESET: the other end is gone; -EMSGSIZE;
 *  -ETOOMANYREFS: the kernel carries too many descriptors already. */
int karst_ctl_send(int fd, const void *msg, size_t len, const int *fds, unsigned int nfds);
/** The same without waiting.  -EAGAIN: so much has not been read yet that there is no room. */
int karst_ctl_send_now(int fd, const void *msg, size_t len, const int *fds, unsigned int nfds);

/**
 * Waits for one message.  @buf: KARST_CTL_MAX bytes; @fds: KARST_CTL_MAX_FDS.
 * -ECONNRESET: the other end is gone (an empty packet counts as that).
 * The following have read a message, of which *len bytes are in @buf and whose descriptors are
 * closed: -EMSGSIZE: it was longer; -EMFILE: not all descriptors came through, because there
 * were more than KARST_CTL_MAX_FDS, or this process may have no more.
 */
int karst_ctl_recv(int fd, void *buf, size_t *len, int *fds, unsigned int *nfds);

void karst_ctl_close_fds(const int *fds, unsigned int n);

/** True once the other end is gone.  Does not wait. */
bool karst_ctl_hung_up(int fd);

/** Who is at the other end, as the kernel has noted when it connected. */
struct karst_ctl_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
	/* the caller's to close; -1: this kernel cannot tell (before Linux 6.5), and the process
	 * may be gone, and its number taken, although the connection is there */
	int pidfd;
};

/** -ESRCH: the process is gone; or the kernel's error. */
int karst_ctl_peer(int fd, struct karst_ctl_peer *peer);

/** A control connection (see karst_ctl.h) that sends requests over @fd, which then belongs to it.
 *  -ENOMEM */
int karst_ctl_socket_conn(int fd, struct karst_ctl_conn *conn);

/** What answers on the engine's side. */
struct karst_ctl_server {
	/** As struct karst_ctl_conn.call: karst_session_handle().  Anything but 0 ends the
	 *  connection. */
	int (*handle)(void *user, const void *req, size_t len, const int *fds, unsigned int nfds,
		void *rsp, size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds);
	/** Called when @attend_fd is readable: karst_session_attend().  -1: never. */
	void (*attend)(void *user);
	int attend_fd;
	void *user;
};

/**
 * Answers messages one by one until the other end is gone, shutdown() is called for @fd by another
 * thread, or the other end leaves more than a dozen replies unread.  While a handler waits for
 * something, it can ask karst_ctl_hung_up().
 * @return 0: gone; or what ended it; -EAGAIN: replies that are not read.
 */
int karst_ctl_serve(int fd, const struct karst_ctl_server *server);

#endif /* KARST_CTL_SOCK_H */
