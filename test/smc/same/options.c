/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Options and names: their values before and after connect(), and invalid lengths. */
#include "same.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif
#ifndef SO_INCOMING_NAPI_ID
#define SO_INCOMING_NAPI_ID 56
#endif
#ifndef SO_COOKIE
#define SO_COOKIE 57
#endif

/* The value to set, or why the option is not set: its value is fixed, or differs between any two
 * sockets. */
#define FIXED  (-1)
#define VARIES (-2)

static const struct option {
	int level, name, set;
} options[] = {
	{SOL_SOCKET, SO_TYPE, FIXED},
	{SOL_SOCKET, SO_DOMAIN, FIXED},
	{SOL_SOCKET, SO_PROTOCOL, FIXED},
	{SOL_SOCKET, SO_ACCEPTCONN, FIXED},
	{SOL_SOCKET, SO_PEERCRED, VARIES},
	{SOL_SOCKET, SO_COOKIE, VARIES},
	{SOL_SOCKET, SO_MEMINFO, VARIES},
	{SOL_SOCKET, SO_INCOMING_CPU, VARIES},
	{SOL_SOCKET, SO_INCOMING_NAPI_ID, VARIES},
	{SOL_SOCKET, SO_MARK, FIXED},
	{SOL_SOCKET, SO_ERROR, FIXED},
	{SOL_SOCKET, SO_REUSEADDR, 1},
	{SOL_SOCKET, SO_KEEPALIVE, 1},
	{SOL_SOCKET, SO_BROADCAST, 1},
	{SOL_SOCKET, SO_OOBINLINE, 1},
	{SOL_SOCKET, SO_DONTROUTE, 1},
	{SOL_SOCKET, SO_PRIORITY, 3},
	{SOL_SOCKET, SO_SNDBUF, 20000},
	{SOL_SOCKET, SO_RCVBUF, 20000},
	{SOL_SOCKET, SO_MAX_PACING_RATE, 1000000},
	{IPPROTO_TCP, TCP_NODELAY, 1},
	{IPPROTO_TCP, TCP_CORK, 1},
	{IPPROTO_TCP, TCP_QUICKACK, VARIES},
	{IPPROTO_TCP, TCP_KEEPIDLE, 100},
	{IPPROTO_TCP, TCP_KEEPINTVL, 20},
	{IPPROTO_TCP, TCP_KEEPCNT, 3},
	{IPPROTO_TCP, TCP_SYNCNT, 3},
	{IPPROTO_TCP, TCP_LINGER2, 5},
	{IPPROTO_TCP, TCP_USER_TIMEOUT, 5000},
	{IPPROTO_TCP, TCP_NOTSENT_LOWAT, 5000},
	{IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1},
	{IPPROTO_TCP, TCP_THIN_DUPACK, 1},
	{IPPROTO_TCP, TCP_INFO, VARIES},
	{IPPROTO_TCP, TCP_CC_INFO, VARIES},
	{IPPROTO_TCP, TCP_CONGESTION, VARIES},
	{IPPROTO_IP, IP_TOS, 16},
	{IPPROTO_IP, IP_TTL, 100},
	{IPPROTO_IP, IP_MINTTL, 2},
	{IPPROTO_IP, IP_MTU_DISCOVER, 2},
	{IPPROTO_IP, IP_OPTIONS, VARIES},
	{IPPROTO_IP, IP_FREEBIND, 1},
	{IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1},
};

#define OPTIONS (sizeof(options) / sizeof(options[0]))

/* @set: the option was set; its value before that may depend on the machine. */
static void
tell_option(int fd, const struct option *o, bool set)
{
	char value[240] = ""; /* struct tcp_info grows with the kernel */
	socklen_t len = sizeof(value);
	int number;

	tell(getsockopt(fd, o->level, o->name, value, &len));
	memcpy(&number, value, sizeof(number));
	if (len == sizeof(number) && (o->set == FIXED || (o->set >= 0 && set)))
		printf("=%d", number);
	else
		printf("/%u", len);
}

static void
tell_options(int fd, bool set)
{
	for (size_t i = 0; i < OPTIONS; i++)
		tell_option(fd, &options[i], set);
}

static void
set_options(int fd)
{
	for (size_t i = 0; i < OPTIONS; i++) {
		const struct option *o = &options[i];

		if (o->set >= 0)
			tell(setsockopt(fd, o->level, o->name, &o->set, sizeof(o->set)));
	}
}

static void
options_after(void)
{
	open_both();
	tell_options(near, false);
	tell_options(far, false);
	set_options(near);
	tell_options(near, true);
	set_options(far);
	tell_options(far, true);
}

/* An accepted socket has the options of the listener. */
static void
options_before(void)
{
	near = socket(AF_INET, SOCK_STREAM, 0);
	set_options(near);
	set_options(listener);
	if (connect(near, (void *)&address, sizeof(address)) != 0)
		fail("connect");
	far = accept(listener, NULL, NULL);
	greet();
	tell_options(near, true);
	tell_options(far, true);
}

/* --- after the end --- */

/* @name: the value follows the route of a TCP connection */
static void
tell_options_but(int fd, int name)
{
	for (size_t i = 0; i < OPTIONS; i++)
		tell_option(
			fd, &options[i], options[i].level != SOL_SOCKET || options[i].name != name);
}

static void
tell_after_end(int fd)
{
	const int one = 1, none = 0;

	tell_options_but(fd, SO_SNDBUF);
	tell(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &none, sizeof(none)));
	tell(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &none, sizeof(none)));
	tell(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "nonesuch", 8));
	tell(setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &one, sizeof(one)));
	tell_options_but(fd, SO_SNDBUF);
}

static void
set_some(int fd)
{
	const struct linger linger = {.l_onoff = 1, .l_linger = 3};
	const int one = 1;

	tell(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
	tell(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)));
	tell(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)));
	tell(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
}

static void
tell_linger(int fd)
{
	struct linger linger = {0};
	socklen_t len = sizeof(linger);

	tell(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len));
	printf("=%d/%d/%u", linger.l_onoff, linger.l_linger, len);
}

static void
options_after_reset(void)
{
	open_both();
	set_some(near);
	reset(far);
	await(near, POLLRDHUP);
	tell(recv(near, data, 1, 0));
	tell_after_end(near);
	tell_linger(near);
}

static void
options_after_lost_write(void)
{
	open_both();
	set_some(near);
	close(far);
	await(near, POLLRDHUP);
	tell(recv(near, data, 1, 0));
	tell_after_end(near);
	tell(send(near, "x", 1, MSG_NOSIGNAL));
	await(near, POLLHUP);
	tell_after_end(near);
	tell_linger(near);
}

static void
options_after_both_ends(void)
{
	open_both();
	set_some(near);
	shutdown(near, SHUT_WR);
	shutdown(far, SHUT_WR);
	await(near, POLLRDHUP);
	await(far, POLLRDHUP);
	tell_after_end(near);
	tell_after_end(far);
	tell_linger(near);
}

static void
options_after_late_write(void)
{
	open_both();
	set_some(near);
	shutdown(near, SHUT_RDWR);
	tell(send(far, "x", 1, 0));
	await(far, POLLHUP);
	tell_linger(near);
	tell_linger(far);
}

static void
tell_set(int level, int name, const void *value, socklen_t len)
{
	tell(setsockopt(near, level, name, value, len));
}

static void
tell_get(int level, int name, socklen_t len)
{
	char value[512];
	socklen_t got = len;

	tell(getsockopt(near, level, name, value, &got));
	printf("/%u", got);
}

static void
lengths_of_options(void)
{
	static const int names[][2] = {{SOL_SOCKET, SO_KEEPALIVE}, {SOL_SOCKET, SO_OOBINLINE},
		{SOL_SOCKET, SO_LINGER}, {SOL_SOCKET, SO_RCVTIMEO}, {IPPROTO_TCP, TCP_NODELAY}};
	static const char none[300];

	open_both();
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int level = names[i][0], name = names[i][1];

		tell_set(level, name, none, 1);
		tell_set(level, name, none, sizeof(none));
		tell_set(level, name, none, (socklen_t)-1);
		tell_set(level, name, NULL, 0);
		tell_set(level, name, NULL, 16);
		tell_get(level, name, 0);
		tell_get(level, name, 2);
		tell_get(level, name, 300);
		tell_get(level, name, (socklen_t)-1);
	}
	tell_get(SOL_SOCKET, SO_ERROR, 0);
	tell_get(SOL_SOCKET, SO_ERROR, (socklen_t)-1);
}

/* The memory ends after the value, although the length says that it is longer. */
static void
long_values_at_end(void)
{
	static const int names[][2] = {
		{SOL_SOCKET, SO_KEEPALIVE}, {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_IP, IP_TTL}};
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *memory =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int *value = (int *)(memory + page) - 1;

	open_both();
	if (memory == MAP_FAILED || mprotect(memory + page, page, PROT_NONE) != 0)
		fail("memory");
	*value = 1;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		tell(setsockopt(near, names[i][0], names[i][1], value, 100));
}

static void
tell_names(int fd, socklen_t room)
{
	struct sockaddr_in name;
	socklen_t len = room;

	memset(&name, 0xaa, sizeof(name));
	tell(getsockname(fd, (void *)&name, &len));
	printf("/%u/%x", len, name.sin_family);
	len = room;
	memset(&name, 0xaa, sizeof(name));
	tell(getpeername(fd, (void *)&name, &len));
	printf("/%u/%x", len, name.sin_family);
}

static void
lengths_of_names(void)
{
	static const socklen_t rooms[] = {0, 1, 3, sizeof(struct sockaddr_in), 100, (socklen_t)-1};

	open_both();
	for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
		tell_names(near, rooms[i]);
		tell_names(far, rooms[i]);
	}
	tell(connect(near, (void *)&address, 1));
	tell(connect(near, (void *)&address, (socklen_t)-1));
	tell(connect(near, (void *)&address, 1000));
	tell(bind(near, (void *)&address, sizeof(address)));
	tell(listen(near, 1));
	tell(accept(near, NULL, NULL));
}

const struct same_case settings[] = {
	{"options after connect", options_after},
	{"options before connect", options_before},
	{"options after a reset", options_after_reset},
	{"options after a write that is lost", options_after_lost_write},
	{"options after the ends of both directions", options_after_both_ends},
	{"options after a shutdown of both and a late write", options_after_late_write},
	{"lengths of options", lengths_of_options},
	{"values of options at the end of memory", long_values_at_end},
	{"lengths of names", lengths_of_names},
	{NULL, NULL},
};
