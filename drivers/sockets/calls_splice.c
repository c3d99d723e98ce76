/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * splice() between a pipe and a connection, by copying.  Nothing is taken from one side that the
 * other one has not got: bytes of a connection are looked at, and taken when the pipe has them; a
 * pipe's are read as far as the connection has room.
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

static ssize_t
to_pipe(struct ks_sock *s, int from, int to, size_t n, unsigned int flags)
{
	char buf[CHUNK];
	const struct iovec iov = {.iov_base = buf, .iov_len = n < CHUNK ? n : CHUNK};
	int wait = flags & SPLICE_F_NONBLOCK ? MSG_DONTWAIT : 0;
	struct pollfd p = {.fd = to, .events = POLLOUT};
	struct iovec taken = {.iov_base = buf};
	ssize_t got, put;

	if (is_nonblocking(to, flags) && (real(poll)(&p, 1, 0) <= 0 || !(p.revents & POLLOUT)))
		return refused(EAGAIN);
	got = ks_recv(from, s, &iov, 1, wait | MSG_PEEK);
	if (got <= 0)
		return got;
	put = real(write)(to, buf, (size_t)got);
	if (put <= 0)
		return put;
	taken.iov_len = (size_t)put;
	return ks_recv(from, s, &taken, 1, MSG_DONTWAIT);
}

static ssize_t
from_pipe(struct ks_sock *s, int from, int to, size_t n, unsigned int flags)
{
	char buf[CHUNK];
	struct iovec iov = {.iov_base = buf};
	struct pollfd p = {.fd = from, .events = POLLIN};
	size_t room = ks_room(s);
	ssize_t got;

	if (room == 0 && is_nonblocking(to, flags))
		return refused(EAGAIN);
	/* if there is no room, what is read waits for it in ks_send() */
	if (room == 0 || room > CHUNK)
		room = CHUNK;
	if ((flags & SPLICE_F_NONBLOCK) && real(poll)(&p, 1, 0) <= 0)
		return refused(EAGAIN);
	got = real(read)(from, buf, n < room ? n : room);
	if (got <= 0)
		return got;
	iov.iov_len = (size_t)got;
	return ks_send(to, s, &iov, 1, 0);
}

KS_API ssize_t
splice(int from, off64_t *from_at, int to, off64_t *to_at, size_t n, unsigned int flags)
{
	struct ks_sock *in = ks_enter(from), *out = in == NULL ? ks_enter(to) : NULL;
	ssize_t rc;

	if (in == NULL && out == NULL)
		return real(splice)(from, from_at, to, to_at, n, flags);
	if (from_at != NULL || to_at != NULL)
		rc = refused(ESPIPE);
	else if (ks_kind(in != NULL ? to : from) != KS_PLAIN)
		rc = refused(EINVAL); /* one of the two is a pipe */
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
