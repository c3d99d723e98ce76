/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* bind(), connect(), listen() and accept(): in what order, and how often. */
#include "same.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const int yes = 1;

static void
tell_error_of(int fd)
{
	int error = -1;
	socklen_t len = sizeof(error);

	tell(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
	printf("=%d", error);
}

/* Waits until the TCP connection of @fd has ended, as the events say. */
static void
tell_end_of(int fd)
{
	await(fd, POLLRDHUP);
	tell(recv(fd, data, sizeof(data), 0));
	tell(recv(fd, data, sizeof(data), 0));
	tell(send(fd, data, 1, MSG_NOSIGNAL));
	tell_error_of(fd);
}

static struct sockaddr_in
name_of_socket(int fd)
{
	struct sockaddr_in n = {0};
	socklen_t len = sizeof(n);

	if (getsockname(fd, (void *)&n, &len) != 0)
		fail("getsockname");
	return n;
}

static int
connected(const struct sockaddr_in *from, const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	tell(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)));
	tell(bind(fd, (const void *)from, sizeof(*from)));
	tell(connect(fd, (const void *)to, sizeof(*to)));
	return fd;
}

static void
bind_and_connect(void)
{
	struct sockaddr_in from = {.sin_family = AF_INET}, is;

	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	near = connected(&from, &address);
	far = accept(listener, NULL, NULL);
	is = name_of_socket(near);
	printf(" %x", ntohl(is.sin_addr.s_addr));
	greet();
	/* the same port to another listener, and to the same one */
	close(listener);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (listen(listener, 8) != 0)
		fail("a listener");
	address = name_of_socket(listener);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	near = connected(&is, &address);
	far = accept(listener, NULL, NULL);
	greet();
	(void)connected(&is, &address);
	tell(bind(near, (void *)&from, sizeof(from)));
}

static void
tell_device(int fd)
{
	char name[32] = "";
	socklen_t len = sizeof(name);

	tell(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &len));
	printf("/%u/%s", len, name);
	len = 2;
	tell(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &len));
}

static void
bound_to_device(void)
{
	near = socket(AF_INET, SOCK_STREAM, 0);
	tell_device(near);
	tell(setsockopt(near, SOL_SOCKET, SO_BINDTODEVICE, "nonesuch", 9));
	tell(setsockopt(near, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
	tell_device(near);
	tell(connect(near, (void *)&address, sizeof(address)));
	far = accept(listener, NULL, NULL);
	greet();
	tell_device(near);
	tell_device(far);
	tell(setsockopt(far, SOL_SOCKET, SO_BINDTODEVICE, "nonesuch", 9));
	tell(setsockopt(far, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
	tell_device(far);
	greet();
}

/* Whether the port of @closed can be used again, and how: as after a server that has ended. */
static void
listen_again(bool near_first, bool reuse)
{
	int again = socket(AF_INET, SOCK_STREAM, 0), one, other;
	char byte;

	if (reuse)
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	open_both();
	close(listener);
	one = near_first ? near : far;
	other = near_first ? far : near;
	close(one);
	tell(recv(other, &byte, 1, 0));
	close(other);
	if (reuse)
		setsockopt(again, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	while (!reuse && bind(again, (void *)&address, sizeof(address)) != 0)
		usleep(1000); /* not for long: there is no TIME_WAIT at this end */
	if (reuse)
		tell(bind(again, (void *)&address, sizeof(address)));
	tell(listen(again, 1));
}

static void
again_after_client(void)
{
	listen_again(true, false);
}

static void
again_with_reuse(void)
{
	listen_again(false, true);
}

static void
again_with_reuse_after_client(void)
{
	listen_again(true, true);
}

/* A connection exists while its listener's port is bound again. */
static void
again_meanwhile(void)
{
	int again = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	open_both();
	close(listener);
	tell(bind(again, (void *)&address, sizeof(address)));
	setsockopt(again, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	tell(bind(again, (void *)&address, sizeof(address)));
	tell(listen(again, 1));
	greet();
}

static void
both_close(bool shuts)
{
	open_both();
	if (shuts) {
		tell(shutdown(near, SHUT_WR));
		tell(shutdown(far, SHUT_WR));
		tell(recv(near, data, 1, 0));
		tell(recv(far, data, 1, 0));
		tell(send(near, data, 1, MSG_NOSIGNAL));
	}
	tell(close(near));
	tell(close(far));
	open_both();
	tell(send(near, data, 3, 0));
	tell(shutdown(near, SHUT_WR));
	tell(shutdown(far, SHUT_WR));
	await(far, POLLIN);
	tell(recv(far, data, 9, 0));
	tell(recv(far, data, 9, 0));
	tell(recv(near, data, 9, 0));
	tell_error_of(near);
	tell_error_of(far);
}

static void
both_end(void)
{
	both_close(true);
}

static void
backlog_of_none(void)
{
	int first, second;
	struct pollfd p = {.events = POLLOUT};

	tell(listen(listener, 0));
	first = socket(AF_INET, SOCK_STREAM, 0);
	tell(connect(first, (void *)&address, sizeof(address)));
	tell(send(first, "abc", 3, 0));
	p.fd = second = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	tell(connect(second, (void *)&address, sizeof(address)));
	tell(poll(&p, 1, 300));
	tell(send(second, "x", 1, MSG_NOSIGNAL));
	tell(connect(second, (void *)&address, sizeof(address)));
	far = accept(listener, NULL, NULL);
	tell(recv(far, data, 9, 0));
	tell(poll(&p, 1, -1));
	far = accept(listener, NULL, NULL);
	tell(send(second, "defg", 4, 0));
	tell(recv(far, data, 4, MSG_WAITALL));
	tell(connect(second, (void *)&address, sizeof(address)));
	tell(connect(second, (void *)&address, sizeof(address)));
}

static void
listen_twice(void)
{
	int fds[3];

	tell(listen(listener, 0));
	tell(listen(listener, 5));
	for (int i = 0; i < 3; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		tell(connect(fds[i], (void *)&address, sizeof(address)));
		tell(send(fds[i], "abc", 3, 0));
	}
	tell(listen(listener, 1));
	for (int i = 0; i < 3; i++) {
		far = accept(listener, NULL, NULL);
		tell(recv(far, data, 9, 0));
	}
	tell(listen(listener, -1));
	open_both();
}

static void
calls_of_listeners(void)
{
	struct sockaddr_in n = {.sin_family = AF_INET};
	struct pollfd p = {.fd = listener, .events = POLLIN | POLLOUT};
	int queued = -1;

	tell(connect(listener, (void *)&address, sizeof(address)));
	tell(bind(listener, (void *)&n, sizeof(n)));
	tell(recv(listener, data, 1, MSG_DONTWAIT));
	tell(send(listener, data, 1, MSG_NOSIGNAL));
	tell(ioctl(listener, FIONREAD, &queued));
	tell(poll(&p, 1, 0));
	tell(shutdown(listener, SHUT_WR));
	tell(shutdown(listener, SHUT_RD));
	tell(poll(&p, 1, 0));
	printf("/%x", p.revents);
	tell(accept(listener, NULL, NULL));
	tell(listen(listener, 3));
	open_both();
	tell(shutdown(listener, SHUT_RD));
	/* it is a socket again that can connect */
	tell(accept(listener, NULL, NULL));
	greet();
}

static void
flags_of_accept(void)
{
	static const int flags[] = {0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC};
	struct sockaddr_in n;
	socklen_t len;

	tell(accept4(listener, NULL, NULL, 1));
	tell(accept4(listener, NULL, NULL, SOCK_NONBLOCK | 0x40000000));
	if (fcntl(listener, F_SETFL, O_NONBLOCK) != 0)
		fail("fcntl");
	tell(accept4(listener, NULL, NULL, 0));
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		near = socket(AF_INET, SOCK_STREAM, 0);
		tell(connect(near, (void *)&address, sizeof(address)));
		await(listener, POLLIN);
		len = (socklen_t[]){sizeof(n), 4, 0, 100}[i];
		memset(&n, 0xaa, sizeof(n));
		far = accept4(listener, (void *)&n, &len, flags[i]);
		printf(" %u/%x", len, n.sin_family);
		tell(fcntl(far, F_GETFD));
		tell(fcntl(far, F_GETFL));
		tell(fcntl(far, F_SETFL, 0));
		greet();
	}
	len = (socklen_t)-1;
	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(connect(near, (void *)&address, sizeof(address)));
	await(listener, POLLIN);
	tell(accept4(listener, (void *)&n, &len, 0));
	tell(accept4(near, NULL, NULL, 0));
	tell(accept4(near, NULL, NULL, 0x55));
	tell(accept4(999, NULL, NULL, 0));
	tell(accept4(0, NULL, NULL, 0));
}

static void
never_accepted(void)
{
	struct pollfd p;
	int fds[4];

	for (int i = 0; i < 4; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		tell(connect(fds[i], (void *)&address, sizeof(address)));
	}
	tell(send(fds[1], data, 3, 0));
	tell(shutdown(fds[2], SHUT_WR));
	tell(close(listener));
	tell_end_of(fds[0]);
	tell_end_of(fds[1]);
	await(fds[2], POLLIN);
	tell(recv(fds[2], data, 9, 0));
	tell(recv(fds[2], data, 9, 0));
	await(fds[3], POLLRDHUP);
	p = (struct pollfd){.fd = fds[3], .events = POLLIN | POLLOUT};
	tell(poll(&p, 1, -1));
	printf("/%x", p.revents & (POLLIN | POLLOUT));
	tell_error_of(fds[3]);
	tell_error_of(fds[3]);
	tell(recv(fds[3], data, 9, 0));
	tell(send(fds[3], data, 9, MSG_NOSIGNAL));
	tell(connect(fds[0], (void *)&address, sizeof(address)));
}

/* A thread is in recv() of a connection that nobody accepts. */
static void
never_accepted_waits(void)
{
	struct call c;

	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(connect(near, (void *)&address, sizeof(address)));
	begin_call(&c, call_recv, near, 10, 0);
	tell(close(listener));
	end_call(&c);
}

static void
gone_before_accept(bool resets)
{
	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(connect(near, (void *)&address, sizeof(address)));
	tell(send(near, "abc", 3, 0));
	if (resets)
		reset(near);
	else
		close(near);
	far = accept(listener, NULL, NULL);
	if (far < 0)
		fail("accept");
	await(far, POLLRDHUP);
	tell(recv(far, data, 9, 0));
	tell(recv(far, data, 9, 0));
	tell(getpeername(far, NULL, NULL));
}

static void
closed_before_accept(void)
{
	gone_before_accept(false);
}

static void
reset_before_accept(void)
{
	gone_before_accept(true);
}

static void
refused(void)
{
	struct pollfd p = {.events = POLLOUT};

	close(listener);
	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(connect(near, (void *)&address, sizeof(address)));
	tell_error_of(near);
	tell(connect(near, (void *)&address, sizeof(address)));
	tell(recv(near, data, 1, 0));
	tell(send(near, data, 1, MSG_NOSIGNAL));
	/* the socket can be used once somebody listens */
	listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(listener, (void *)&address, sizeof(address)) != 0)
		fail("bind");
	p.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	tell(connect(p.fd, (void *)&address, sizeof(address)));
	tell(poll(&p, 1, -1));
	tell(connect(p.fd, (void *)&address, sizeof(address)));
	tell_error_of(p.fd);
	if (listen(listener, 3) != 0)
		fail("listen");
	tell(connect(near, (void *)&address, sizeof(address)));
	far = accept(listener, NULL, NULL);
	greet();
	close(near);
	near = p.fd;
	tell(connect(near, (void *)&address, sizeof(address)));
	far = accept(listener, NULL, NULL);
	await(near, POLLOUT);
	tell(send(near, "x", 1, 0));
	tell(recv(far, data, 1, 0));
}

static void
deferred(void)
{
	const int s = 5;

	tell(setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &s, sizeof(s)));
	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(connect(near, (void *)&address, sizeof(address)));
	tell(send(near, "abc", 3, 0));
	far = accept(listener, NULL, NULL);
	tell(recv(far, data, 9, 0));
	greet();
}

/* Without a connection. */
static void
not_connected(void)
{
	near = socket(AF_INET, SOCK_STREAM, 0);
	handle(SIGPIPE, SA_RESTART);
	tell(recv(near, data, 1, 0));
	tell(send(near, data, 1, 0));
	printf("/%d", (int)came);
	tell(shutdown(near, SHUT_WR));
	tell(getpeername(near, NULL, NULL));
	tell(listen(near, 3));
	tell(send(near, data, 1, 0));
	tell(accept4(near, NULL, NULL, SOCK_NONBLOCK | 77));
}

/* A socket that connects to its own port. */
static void
to_itself(void)
{
	struct sockaddr_in n = {.sin_family = AF_INET};

	n.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(bind(near, (void *)&n, sizeof(n)));
	n = name_of_socket(near);
	tell(connect(near, (void *)&n, sizeof(n)));
	tell(send(near, "abc", 3, 0));
	tell(recv(near, data, 3, MSG_WAITALL));
	tell(shutdown(near, SHUT_WR));
	tell(recv(near, data, 3, 0));
	tell(send(near, data, 3, MSG_NOSIGNAL));
}

const struct same_case begins[] = {
	{"bind and connect", bind_and_connect},
	{"SO_BINDTODEVICE", bound_to_device},
	{"a port again, the client has closed first", again_after_client},
	{"a port again, with SO_REUSEADDR", again_with_reuse},
	{"a port again, with SO_REUSEADDR, the client has closed first",
		again_with_reuse_after_client},
	{"a port again while there is a connection", again_meanwhile},
	{"both close", both_end},
	{"a backlog of none", backlog_of_none},
	{"listen with another backlog", listen_twice},
	{"calls of listeners", calls_of_listeners},
	{"flags of accept4", flags_of_accept},
	{"connections that nobody accepts", never_accepted},
	{"a thread receives from who does not accept", never_accepted_waits},
	{"a close before accept", closed_before_accept},
	{"a reset before accept", reset_before_accept},
	{"refused, and accepted then", refused},
	{"TCP_DEFER_ACCEPT", deferred},
	{"calls without a connection", not_connected},
	{"a socket that connects to itself", to_itself},
	{NULL, NULL},
};
