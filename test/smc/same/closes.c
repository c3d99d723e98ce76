/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * All ways in which a connection ends, and the results of each call then.  POLLERR and POLLHUP of
 * poll() are left out: doc/smc.rst, "What is not supported".
 */
#include "same.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void
tell_ready(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLPRI | POLLOUT | POLLRDHUP};

	(void)poll(&p, 1, 0);
	printf(" [%s%s%s%s]", p.revents & POLLIN ? "i" : "", p.revents & POLLPRI ? "p" : "",
		p.revents & POLLOUT ? "o" : "", p.revents & POLLRDHUP ? "e" : "");
}

static void
tell_read(int fd, size_t n)
{
	tell(recv(fd, data, n, MSG_DONTWAIT));
	tell_ready(fd);
}

static void
tell_write(int fd)
{
	tell(send(fd, data, 1, 0));
	printf("/%d", (int)came); /* SIGPIPE */
}

static void
tell_error(int fd)
{
	int error = -1;
	socklen_t len = sizeof(error);

	tell(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
	printf("=%d", error);
}

static void
tell_peer(int fd)
{
	struct sockaddr_in peer;
	socklen_t len = sizeof(peer);

	tell(getpeername(fd, (void *)&peer, &len));
}

static void
open_to_end(void)
{
	handle(SIGPIPE, SA_RESTART);
	open_both();
}

static void
half_close(void)
{
	open_to_end();
	give(far, 3);
	tell(shutdown(far, SHUT_WR));
	await(near, POLLRDHUP);
	tell_ready(near);
	tell_peer(near);
	tell_read(near, 2);
	tell_read(near, 9);
	tell_read(near, 9);
	give(near, 1);
	tell_write(far);
	tell(shutdown(far, SHUT_WR));
	tell_read(far, 9);
	tell(shutdown(near, SHUT_WR));
	await(far, POLLRDHUP);
	tell_peer(near);
	tell_peer(far);
	tell(shutdown(near, SHUT_WR));
	tell(shutdown(far, SHUT_WR));
	tell(shutdown(far, SHUT_RD));
	tell_read(near, 9);
	tell_read(far, 9);
	tell_write(near);
	tell_write(far);
	tell_error(near);
	tell_error(far);
}

static void
shut_reading(void)
{
	open_to_end();
	give(far, 3);
	tell(shutdown(near, SHUT_RD));
	tell_ready(near);
	tell_read(near, 2);
	tell_read(near, 9);
	tell_read(near, 9);
	give(far, 2);
	tell_read(near, 9);
	tell_read(near, 9);
	give(near, 1);
	tell_read(far, 9);
	tell(shutdown(near, SHUT_RD));
	tell_error(near);
}

static void
shut_both(void)
{
	open_to_end();
	give(far, 3);
	tell(shutdown(near, SHUT_RDWR));
	tell_ready(near);
	tell_read(near, 2);
	tell_read(near, 9);
	tell_read(near, 9);
	tell_write(near);
	await(far, POLLRDHUP);
	tell_ready(far);
	tell_read(far, 9);
	tell(shutdown(near, 3));
	tell(shutdown(near, -1));
	tell(shutdown(near, SHUT_RDWR));
	tell_peer(near);
	tell_peer(far);
}

/* Waits until there is no connection any more. */
static void
await_over(int fd)
{
	struct sockaddr_in peer;
	socklen_t len = sizeof(peer);

	while (getpeername(fd, (void *)&peer, &len) == 0)
		usleep(1000);
}

/* Bytes that come after that are answered by a reset. */
static void
shut_both_and_peer_writes(void)
{
	open_to_end();
	tell(shutdown(near, SHUT_RDWR));
	await(far, POLLRDHUP);
	tell_write(far);
	await_over(far);
	await_over(near);
	tell_peer(far);
	tell_write(far);
	tell_read(far, 9);
	tell_error(far);
	tell_peer(near);
	tell_read(near, 9);
	tell_read(near, 9);
	tell_error(near);
	tell_write(near);
}

/* The same while the program still reads what came before. */
static void
shut_both_and_read(void)
{
	open_to_end();
	give(far, 3);
	tell(shutdown(near, SHUT_RDWR));
	await(far, POLLRDHUP);
	tell_read(near, 2);
	tell_write(far);
	await_over(far);
	await_over(near);
	tell_write(far);
	tell_read(near, 9);
	tell_read(near, 9);
}

/* A close with unread bytes is a reset. */
static void
close_unread(void)
{
	open_to_end();
	give(near, 3);
	give(far, 3);
	close(far);
	await(near, POLLRDHUP);
	tell_ready(near);
	tell_peer(near);
	tell_read(near, 2);
	tell_read(near, 9);
	tell_read(near, 9);
	tell_read(near, 9);
	tell_error(near);
	tell_write(near);
	tell(shutdown(near, SHUT_WR));
	tell(shutdown(near, SHUT_RD));
}

static void
reset_and_write(void)
{
	open_to_end();
	reset(far);
	await(near, POLLRDHUP);
	tell_write(near);
	tell_write(near);
	tell_read(near, 9);
	tell_error(near);
	tell(shutdown(near, SHUT_RDWR));
}

static void
reset_and_ask(void)
{
	open_to_end();
	give(far, 3);
	reset(far);
	await(near, POLLRDHUP);
	tell_error(near);
	tell_error(near);
	tell(recv(near, data, 2, MSG_PEEK));
	tell_read(near, 9);
	tell_read(near, 9);
	tell_write(near);
}

static void
reset_without_room(void)
{
	open_to_end();
	fill();
	tell_ready(near);
	reset(far);
	await(near, POLLRDHUP);
	await(near, POLLOUT);
	tell_ready(near);
	tell_write(near);
	tell_write(near);
}

static void
reset_behind_end(void)
{
	open_to_end();
	shutdown(near, SHUT_WR);
	await(far, POLLRDHUP);
	reset(far);
	await(near, POLLRDHUP);
	tell_read(near, 9);
	tell_read(near, 9);
	tell_error(near);
	tell_peer(near);
}

/* The peer has ended its direction before it resets. */
static void
reset_after_end(void)
{
	open_to_end();
	tell(shutdown(far, SHUT_WR));
	await(near, POLLRDHUP);
	reset(far);
	await_over(near);
	tell_read(near, 9);
	tell_write(near);
	tell_error(near);
	tell_read(near, 9);
}

static void
reset_after_end_and_ask(void)
{
	open_to_end();
	tell(shutdown(far, SHUT_WR));
	await(near, POLLRDHUP);
	reset(far);
	await_over(near);
	tell_error(near);
	tell_error(near);
	tell_read(near, 9);
	tell_write(near);
}

/* The peer has shut down both directions, and resets because bytes come. */
static void
late_write_and_ask(void)
{
	open_to_end();
	tell(shutdown(far, SHUT_RDWR));
	await(near, POLLRDHUP);
	tell_write(near);
	await_over(near);
	tell_error(near);
	tell_error(near);
	tell_read(near, 9);
	tell_write(near);
}

static void
reset_while_receiving(void)
{
	struct call c;

	open_to_end();
	give(near, 3);
	begin_call(&c, call_recv, far, 10, MSG_WAITALL);
	reset(near);
	end_call(&c);
	tell_read(far, 9);
	tell_read(far, 9);
}

static void
close_and_write(void)
{
	open_to_end();
	close(far);
	await(near, POLLRDHUP);
	tell_peer(near);
	tell_read(near, 9);
	tell_write(near);
	tell_peer(near);
	tell_read(near, 9);
	tell_write(near);
	tell_error(near);
	tell(shutdown(near, SHUT_WR));
}

/* The peer's answer to the first write has come before the next call. */
static void
close_and_write_later(void)
{
	open_to_end();
	close(far);
	await(near, POLLRDHUP);
	tell_write(near);
	await_over(near);
	tell_peer(near);
	tell_read(near, 9);
	tell_write(near);
	tell_error(near);
	tell(shutdown(near, SHUT_WR));
}

static void
close_write_and_ask(void)
{
	open_to_end();
	give(far, 3);
	close(far);
	await(near, POLLRDHUP);
	tell_write(near);
	tell_error(near);
	tell_error(near);
	tell_read(near, 9);
	tell_read(near, 9);
	tell_write(near);
}

/* Bytes that are under way in both directions arrive before the ends. */
static void
ends_behind_bytes(void)
{
	ssize_t n, all = 0;

	open_to_end();
	fill();
	tell(shutdown(near, SHUT_WR));
	tell(send(far, data, 3, 0));
	tell(shutdown(far, SHUT_WR));
	tell(recv(near, data, 9, MSG_WAITALL));
	while ((n = recv(far, data, sizeof(data), 0)) > 0)
		all += n;
	tell(n);
	printf(" %d", all > 0);
}

const struct same_case closes[] = {
	{"a half closed connection, until its end", half_close},
	{"shutdown, reading", shut_reading},
	{"shutdown, both", shut_both},
	{"shutdown, both, and the peer writes", shut_both_and_peer_writes},
	{"shutdown, both, the peer writes, and reading", shut_both_and_read},
	{"close with bytes unread", close_unread},
	{"a reset, and writing", reset_and_write},
	{"a reset, and SO_ERROR", reset_and_ask},
	{"a reset when there is no room", reset_without_room},
	{"a reset behind the end", reset_behind_end},
	{"a reset after the peer's end", reset_after_end},
	{"a reset after the peer's end, and SO_ERROR", reset_after_end_and_ask},
	{"a write to who has shut down both, and SO_ERROR", late_write_and_ask},
	{"a reset while a thread receives", reset_while_receiving},
	{"close, and writing", close_and_write},
	{"close, and writing again later", close_and_write_later},
	{"close, writing, and SO_ERROR", close_write_and_ask},
	{"ends behind bytes, both ways", ends_behind_bytes},
	{NULL, NULL},
};
