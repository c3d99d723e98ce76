/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * splice() between a pipe and a connection, by copying.  No byte is taken from one side that the
 * other side does not get.  Bytes are taken from a connection up to the room in the pipe, while no
 * other thread reads.  Bytes are read from a pipe up to the room in the connection; if others fill
 * that meanwhile, the call waits for room.
 */
#include "ks.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#define CHUNK 65536u

static int
refused(int err)
{
	errno = err;
	return -1;
}

static bool
is_nonblocking(int fd, unsigned int flags)
{
	return (flags & SPLICE_F_NONBLOCK) != 0 || (real(fcntl64)(fd, F_GETFL) & O_NONBLOCK) != 0;
}

/* As TCP, which waits for bytes also with SPLICE_F_NONBLOCK: the flag is for the pipe. */
static ssize_t
to_pipe(struct ks_sock *s, int from, int to, size_t n, unsigned int flags)
{
	struct pollfd p = {.fd = to, .events = POLLOUT};
	char byte;
	const struct iovec one = {.iov_base = &byte, .iov_len = 1};
	ssize_t rc;

	for (;;) {
		rc = ks_recv(from, s, &one, 1, MSG_PEEK);
		if (rc <= 0)
			return rc;
		from = ks_still(from, s);
		rc = ks_pour(from, s, to, n);
		if (rc != 0)
			return rc;
		if (is_nonblocking(to, flags))
			return refused(EAGAIN);
		if (ks_poll_with(s, &p, 1, -1) < 0)
			return -1;
	}
}

/* Bytes that were read have to be sent, unless the connection ends. */
static ssize_t
send_all(struct ks_sock *s, int to, char *buf, size_t n)
{
	struct pollfd p = {.fd = to, .events = POLLOUT};
	size_t done = 0;

	while (done < n) {
		const struct iovec iov = {.iov_base = buf + done, .iov_len = n - done};
		ssize_t put = ks_send(to, s, &iov, 1, 0);

		if (put > 0) {
			done += (size_t)put;
		} else if (errno == EAGAIN || errno == EINTR) {
			ks_watch(to);
			(void)ks_poll_with(s, &p, 1, -1);
		} else {
			return done > 0 ? (ssize_t)done : -1;
		}
	}
	return (ssize_t)done;
}

static ssize_t
from_pipe(struct ks_sock *s, int from, int to, size_t n, unsigned int flags)
{
	char buf[CHUNK];
	struct pollfd p = {.fd = from, .events = POLLIN};
	size_t room = ks_room(s);
	ssize_t got;

	if (room == 0 && is_nonblocking(to, flags))
		return refused(EAGAIN);
	/* if there is no room, bytes are read, and wait for room */
	if (room == 0 || room > CHUNK)
		room = CHUNK;
	if ((flags & SPLICE_F_NONBLOCK) && ks_poll_now(&p) <= 0)
		return refused(EAGAIN);
	got = ks_read_with(s, from, buf, n < room ? n : room);
	return got > 0 ? send_all(s, to, buf, (size_t)got) : got;
}

/* Checks the descriptor on the other side of the splice, which must be a pipe, and not be open only
 * for the wrong direction (access mode @flag).  @return 0, or an errno */
static int
refuse_pipe(int fd, int flag)
{
	int is = real(fcntl64)(fd, F_GETFL);

	if (is < 0 || (is & O_ACCMODE) == flag)
		return EBADF;
	return real(fcntl64)(fd, F_GETPIPE_SZ) < 0 ? EINVAL : 0;
}

KS_API ssize_t
splice(int from, off64_t *from_at, int to, off64_t *to_at, size_t n, unsigned int flags)
{
	struct ks_sock *in = ks_enter_cancelled(from);
	struct ks_sock *out = in == NULL ? ks_enter_cancelled(to) : NULL;
	ssize_t rc;
	int err;

	if (in == NULL && out == NULL)
		return real(splice)(from, from_at, to, to_at, n, flags);
	err = in != NULL ? refuse_pipe(to, O_RDONLY) : refuse_pipe(from, O_WRONLY);
	if (n == 0)
		rc = 0;
	else if (from_at != NULL || to_at != NULL)
		rc = refused(ESPIPE);
	else if (err != 0)
		rc = refused(err);
	else if (in != NULL)
		rc = to_pipe(in, from, to, n, flags);
	else
		rc = from_pipe(out, from, to, n, flags);
	if (in != NULL)
		ks_put(in);
	if (out != NULL)
		ks_put(out);
	return rc;
}
