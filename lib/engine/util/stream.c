/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Events on their way to a program.
 *
 * A stream is a pair of connected sockets; the program has one end and reads records.  Lcores write
 * to the other end, and must not wait for anything that a program can hold.  A write to a pipe
 * takes the pipe's lock, under which a reader copies to its memory; the page faults of that memory
 * may be served by the program at any time it likes.  The writer of a socket takes only spin locks.
 * A record is one buffer of the socket, so it is written completely or not at all, whatever other
 * writers do.
 *
 * A stream has room for some hundred records, and a program may have thousands of queues on one
 * channel, each of which is armed once.  Therefore the session remembers, in the object, that a
 * record found no room, and sends it when there is (session_events.c).
 */
#include "stream.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

/* Limit of the kernel memory for records that have not been read; each takes some 800 bytes of
 * it.  Without a privilege the system's limit holds (net.core.wmem_max), which is often lower. */
#define STREAM_BYTES (1 << 20)

int
eng_stream_open(struct eng_stream *st, _Atomic uint64_t *lost, int *reader)
{
	const int bytes = STREAM_BYTES;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
		return -errno;
	/* Beyond the system's limit if permitted, else up to it. */
	if (setsockopt(fds[0], SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) != 0)
		setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	/* The program does not send here. */
	shutdown(fds[0], SHUT_RD);
	*st = (struct eng_stream){.fd = fds[0], .lost = lost};
	*reader = fds[1];
	return 0;
}

void
eng_stream_close(struct eng_stream *st)
{
	if (st->fd >= 0)
		close(st->fd);
	st->fd = -1;
}

void
eng_stream_lose(const struct eng_stream *st)
{
	atomic_fetch_add_explicit(st->lost, 1, memory_order_relaxed);
}

bool
eng_stream_try(const struct eng_stream *st, const void *record, size_t bytes)
{
	if (send(st->fd, record, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)bytes)
		return true;
	/* any other error: the program has closed its end, or the system has no memory */
	if (errno == EAGAIN)
		return false;
	eng_stream_lose(st);
	return true;
}

void
eng_stream_put(const struct eng_stream *st, const void *record, size_t bytes)
{
	if (!eng_stream_try(st, record, bytes))
		eng_stream_lose(st);
}
