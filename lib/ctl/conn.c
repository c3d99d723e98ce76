/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The two ends of a control connection over a socket: the program's end, and the engine's loop that
 * answers.
 *
 * A connection on which anything but a well-formed reply to the request was received is broken for
 * good: the engine's state and the program's view of it could differ.
 *
 * Descriptors of replies that are not read yet count as the engine's, and the kernel limits their
 * number for all of its connections together to RLIMIT_NOFILE.  So a connection has room for few
 * replies, and a program that leaves so many unread is disconnected.  Waiting for the program might
 * never end: it may be dead and have sent its own end of the connection, which then exists as long
 * as the engine has not read that message.
 */
#include "karst_ctl_sock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "karst_ctl_msg.h"

/* --- the program's end --- */

#define END_WITHIN_MS 30000 /* more than karstd needs to end */

struct socket_conn {
	int fd;
	bool broken;
};

/* Was nothing sent because of the descriptors of the message? */
static bool
fds_refused(const struct socket_conn *d, int ret, unsigned int nfds)
{
	/* or the program has closed the socket itself */
	return nfds > 0 && (ret == -ETOOMANYREFS || (ret == -EBADF && fcntl(d->fd, F_GETFD) >= 0));
}

/* The engine receives no more requests.  Until it has closed its end, its lcores may complete what
 * was posted; the caller would complete the same requests in error. */
static void
wait_for_end(const struct socket_conn *d)
{
	struct pollfd p = {.fd = d->fd};

	while (poll(&p, 1, END_WITHIN_MS) < 0 && errno == EINTR)
		;
}

static int
conn_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	struct socket_conn *d = user;
	int ret = d->broken ? -EIO : karst_ctl_send(d->fd, req, len, fds, nfds);

	*nrsp_fds = 0;
	if (fds_refused(d, ret, nfds))
		return ret;
	if (ret == -EPIPE)
		wait_for_end(d);
	if (ret == 0)
		ret = karst_ctl_recv(d->fd, rsp, rsp_len, rsp_fds, nrsp_fds);
	if (ret == -EMFILE && *rsp_len >= sizeof(struct karst_ctl_hdr))
		((struct karst_ctl_hdr *)rsp)->nfds = 0;
	if (ret == 0 || ret == -EMFILE) {
		/* the caller detects a reply that does not match, and reports it; no further
		 * requests are sent */
		d->broken = karst_ctl_check_reply(req, rsp, *rsp_len, *nrsp_fds, NULL) != 0;
		return ret;
	}
	*nrsp_fds = 0;
	d->broken = true;
	/* the socket has a timeout, and a reply that arrives later would be taken for the next
	 * one */
	return ret == -EAGAIN ? -ETIMEDOUT : -EIO;
}

static void
conn_close(void *user)
{
	struct socket_conn *d = user;

	/* a child that was forked just now may have the socket, too, and may live for long */
	shutdown(d->fd, SHUT_RDWR);
	close(d->fd);
	free(d);
}

int
karst_ctl_socket_conn(int fd, struct karst_ctl_conn *conn)
{
	struct socket_conn *d = malloc(sizeof(*d));

	if (d == NULL)
		return -ENOMEM;
	*d = (struct socket_conn){.fd = fd};
	*conn = (struct karst_ctl_conn){
		.call = conn_call, .close = conn_close, .user = d, .hup_fd = fd};
	return 0;
}

/* --- the engine's end --- */

struct exchange {
	int fds[KARST_CTL_MAX_FDS];
	int rsp_fds[KARST_CTL_MAX_FDS];
	uint8_t req[KARST_CTL_MAX] karst_aligned(8);
	uint8_t rsp[KARST_CTL_MAX] karst_aligned(8);
};

/* Waits for a message, or the end of the connection. */
static int
wait_for_message(int fd, const struct karst_ctl_server *srv)
{
	struct pollfd p[2] = {
		{.fd = fd, .events = POLLIN}, {.fd = srv->attend_fd, .events = POLLIN}};

	for (;;) {
		if (poll(p, 2, -1) < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (p[1].revents & POLLIN)
			srv->attend(srv->user);
		if (p[0].revents != 0)
			return 0;
	}
}

/* Sends a reply, or a refusal if the kernel refuses the descriptors of the reply. */
static int
send_reply(int fd, struct exchange *x, size_t req_len, size_t rsp_len, unsigned int nrsp_fds)
{
	int ret = karst_ctl_send_now(fd, x->rsp, rsp_len, x->rsp_fds, nrsp_fds);

	if (ret == -ETOOMANYREFS) {
		rsp_len = karst_ctl_refuse(x->req, req_len, -EMFILE,
			"the kernel carries too many descriptors already", x->rsp);
		ret = karst_ctl_send_now(fd, x->rsp, rsp_len, NULL, 0);
	}
	return ret;
}

/* Receives a message, passes it to the handler, and sends the reply. */
static int
serve_one(int fd, const struct karst_ctl_server *srv, struct exchange *x)
{
	size_t len, rsp_len = 0;
	unsigned int nfds, nrsp_fds = 0;
	int ret = karst_ctl_recv(fd, x->req, &len, x->fds, &nfds);

	switch (ret) {
	case 0:
		ret = srv->handle(srv->user, x->req, len, x->fds, nfds, x->rsp, &rsp_len,
			x->rsp_fds, &nrsp_fds);
		karst_ctl_close_fds(x->fds, nfds);
		break;
	case -EMSGSIZE:
		rsp_len = karst_ctl_refuse(
			x->req, len, ret, "message longer than 65536 bytes", x->rsp);
		ret = 0;
		break;
	case -EMFILE:
		rsp_len = karst_ctl_refuse(x->req, len, ret,
			"descriptors were lost: there were more than 128, or the engine has none "
			"left (its ulimit -n)",
			x->rsp);
		ret = 0;
		break;
	default:
		return ret;
	}
	if (ret == 0)
		ret = send_reply(fd, x, len, rsp_len, nrsp_fds);
	karst_ctl_close_fds(x->rsp_fds, nrsp_fds);
	return ret;
}

int
karst_ctl_serve(int fd, const struct karst_ctl_server *server)
{
	/* the kernel doubles it, and counts some 800 bytes for the shortest reply */
	const int room = KARST_CTL_REPLY_MAX;
	struct exchange *x = malloc(sizeof(*x));
	int ret = x == NULL ? -ENOMEM : 0;

	if (ret == 0 && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) != 0)
		ret = -errno;
	while (ret == 0) {
		ret = wait_for_message(fd, server);
		if (ret == 0)
			ret = serve_one(fd, server, x);
	}
	free(x);
	return ret == -ECONNRESET || ret == -EPIPE ? 0 : ret;
}
