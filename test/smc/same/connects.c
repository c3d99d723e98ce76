/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* connect() that does not wait, and connect() on a connected socket. */
#include "same.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* --- connect() that does not wait --- */

static void
connect_again(bool polls)
{
	struct pollfd p;
	int error = -1;
	socklen_t len = sizeof(error);

	near = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	tell(connect(near, (void *)&address, sizeof(address)));
	far = accept(listener, NULL, NULL); /* so near has connected */
	p = (struct pollfd){.fd = near, .events = POLLOUT};
	if (polls)
		tell(poll(&p, 1, -1));
	tell(connect(near, (void *)&address, sizeof(address)));
	tell(connect(near, (void *)&address, sizeof(address)));
	tell(getsockopt(near, SOL_SOCKET, SO_ERROR, &error, &len));
	printf(" %d", error);
}

static void
connect_twice(void)
{
	connect_again(false);
}

static void
connect_and_poll(void)
{
	connect_again(true);
}

static void
connect_connected(void)
{
	open_both();
	tell(connect(near, (void *)&address, sizeof(address)));
	tell(connect(far, (void *)&address, sizeof(address)));
}

/* --- connect() with AF_UNSPEC --- */

static const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

static void
tell_value(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	tell(getsockopt(fd, level, name, &value, &len));
	printf("=%d", value);
}

static void
tell_unconnected(int fd)
{
	struct sockaddr_in n = {0};
	socklen_t len = sizeof(n);

	tell(recv(fd, data, 1, MSG_DONTWAIT));
	tell(send(fd, data, 1, MSG_NOSIGNAL));
	tell(getpeername(fd, (void *)&n, &len));
	len = sizeof(n);
	tell(getsockname(fd, (void *)&n, &len));
	printf(" %x", n.sin_addr.s_addr);
	tell_value(fd, SOL_SOCKET, SO_ERROR);
}

static void
disconnected(void)
{
	const struct timeval limit = {.tv_sec = 300};
	struct timeval is = {0};
	socklen_t len = sizeof(is);
	const int on = 1;

	open_both();
	tell(setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
	tell(setsockopt(near, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	tell(fcntl(near, F_SETFD, FD_CLOEXEC));
	give(near, 3);
	tell(connect(near, &nobody, 1));
	tell(connect(near, &nobody, sizeof(nobody)));
	await(far, POLLRDHUP);
	tell(recv(far, data, 9, 0));
	tell(recv(far, data, 9, 0));
	tell_unconnected(near);
	tell_value(near, IPPROTO_TCP, TCP_NODELAY);
	tell(getsockopt(near, SOL_SOCKET, SO_RCVTIMEO, &is, &len));
	printf("=%ld", (long)is.tv_sec);
	tell(fcntl(near, F_GETFD));
	tell(connect(near, &nobody, sizeof(nobody)));
	tell(connect(near, (void *)&address, sizeof(address)));
	far = accept(listener, NULL, NULL);
	greet();
	tell_value(near, IPPROTO_TCP, TCP_NODELAY);
	tell(connect(near, (void *)&address, sizeof(address)));
}

static void
disconnected_and_listens(void)
{
	struct sockaddr_in n = {.sin_family = AF_INET}, is;
	socklen_t len = sizeof(n);
	const int on = 1;

	near = socket(AF_INET, SOCK_STREAM, 0);
	n.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	tell(setsockopt(near, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	tell(bind(near, (void *)&n, sizeof(n)));
	tell(getsockname(near, (void *)&n, &len));
	tell(connect(near, (void *)&address, sizeof(address)));
	far = accept(listener, NULL, NULL);
	greet();
	tell(connect(near, &nobody, sizeof(nobody)));
	tell(recv(far, data, 9, 0));
	tell(getsockname(near, (void *)&is, &len));
	printf(" %d", is.sin_port == n.sin_port && is.sin_addr.s_addr == n.sin_addr.s_addr);
	tell_value(near, SOL_SOCKET, SO_REUSEADDR);
	tell(listen(near, 3));
	listener = near;
	address = n;
	open_both();
	/* the accepted end, too */
	tell(connect(far, &nobody, sizeof(nobody)));
	tell(recv(near, data, 9, 0));
	tell_unconnected(far);
}

/* What has ended before, and what nobody has accepted yet. */
static void
disconnected_after_end(void)
{
	open_both();
	reset(far);
	await(near, POLLRDHUP);
	tell(recv(near, data, 9, 0));
	tell(connect(near, &nobody, sizeof(nobody)));
	tell_unconnected(near);
	tell(connect(near, (void *)&address, sizeof(address)));
	far = accept(listener, NULL, NULL);
	greet();
	close(far);
	await(near, POLLRDHUP);
	tell(connect(near, &nobody, sizeof(nobody)));
	tell(connect(near, (void *)&address, sizeof(address)));
	tell(connect(near, &nobody, sizeof(nobody)));
	tell_unconnected(near);
	far = accept(listener, NULL, NULL);
	await(far, POLLRDHUP);
	tell(recv(far, data, 9, 0));
	tell(connect(near, (void *)&address, sizeof(address)));
	far = accept(listener, NULL, NULL);
	greet();
}

const struct same_case connects[] = {
	{"connect without waiting, and again", connect_twice},
	{"connect without waiting, poll, and connect again", connect_and_poll},
	{"connect of what is connected", connect_connected},
	{"connect to nobody, and to somebody", disconnected},
	{"connect to nobody, and listen", disconnected_and_listens},
	{"connect to nobody after an end", disconnected_after_end},
	{NULL, NULL},
};
