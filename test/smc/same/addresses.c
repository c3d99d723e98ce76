/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* IPv6, and IPv4 by sockets of IPv6: what calls say about addresses, and what they refuse. */
#include "same.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union name {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage room;
};

static int port; /* the listener's */

/* Ports other than the listener's differ from run to run. */
static void
tell_name(const union name *n, socklen_t len)
{
	char text[INET6_ADDRSTRLEN] = "?";
	int p = 0;

	if (n->any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &n->in.sin_addr, text, sizeof(text));
		p = ntohs(n->in.sin_port);
	} else if (n->any.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &n->in6.sin6_addr, text, sizeof(text));
		p = ntohs(n->in6.sin6_port);
		printf(" %u.%u", n->in6.sin6_flowinfo, n->in6.sin6_scope_id);
	}
	printf(" %u/%d:%s:%s", len, n->any.sa_family, text, p == port ? "L" : p == 0 ? "0" : "p");
}

static void
tell_names_of(int fd)
{
	union name n;
	socklen_t len = sizeof(n);

	if (getsockname(fd, &n.any, &len) == 0)
		tell_name(&n, len);
	else
		tell(-1);
	len = sizeof(n);
	if (getpeername(fd, &n.any, &len) == 0)
		tell_name(&n, len);
	else
		tell(-1);
}

static socklen_t
name_at(union name *n, const char *text, int p)
{
	*n = (union name){0};
	if (inet_pton(AF_INET, text, &n->in.sin_addr) == 1) {
		n->in.sin_family = AF_INET;
		n->in.sin_port = htons((uint16_t)p);
		return sizeof(n->in);
	}
	if (inet_pton(AF_INET6, text, &n->in6.sin6_addr) != 1)
		fail(text);
	n->in6.sin6_family = AF_INET6;
	n->in6.sin6_port = htons((uint16_t)p);
	return sizeof(n->in6);
}

/* Makes the listener anew, at @text. */
static void
listen_at(const char *text, int only6)
{
	union name n;
	socklen_t len = name_at(&n, text, 0);

	close(listener);
	listener = socket(n.any.sa_family, SOCK_STREAM, 0);
	if (only6 >= 0 &&
		setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &only6, sizeof(only6)) != 0)
		fail("IPV6_V6ONLY");
	if (bind(listener, &n.any, len) != 0 || listen(listener, 8) != 0 ||
		getsockname(listener, &n.any, &len) != 0)
		fail("a listener");
	port = ntohs(n.any.sa_family == AF_INET ? n.in.sin_port : n.in6.sin6_port);
}

/* Connects a socket of @family to @text, and prints what each end is told. */
static void
meet(int family, const char *text)
{
	union name n;
	socklen_t len = name_at(&n, text, port);
	int rc;

	near = socket(family, SOCK_STREAM, 0);
	rc = connect(near, &n.any, len);
	tell(rc);
	if (rc != 0) {
		tell_names_of(near);
		close(near);
		return;
	}
	len = sizeof(n);
	memset(&n, 0xaa, sizeof(n));
	far = accept(listener, &n.any, &len);
	if (far < 0)
		fail("accept");
	tell_name(&n, len);
	tell_names_of(near);
	tell_names_of(far);
	greet();
	tell_names_of(near);
	tell_names_of(far);
	close(near);
	await(far, POLLRDHUP);
	tell_names_of(far);
	close(far);
}

static void
six(void)
{
	listen_at("::1", -1);
	meet(AF_INET6, "::1");
	meet(AF_INET6, "::");
	meet(AF_INET, "127.0.0.1");
}

static void
any_six(void)
{
	listen_at("::", 0);
	tell_names_of(listener);
	meet(AF_INET6, "::1");
	meet(AF_INET6, "::");
	meet(AF_INET6, "::ffff:127.0.0.1");
	meet(AF_INET6, "::ffff:127.0.0.2");
	meet(AF_INET6, "::ffff:0.0.0.0");
	meet(AF_INET, "127.0.0.1");
	meet(AF_INET, "0.0.0.0");
}

static void
mapped_only(void)
{
	listen_at("::ffff:127.0.0.1", 0);
	tell_names_of(listener);
	meet(AF_INET6, "::ffff:127.0.0.1");
	meet(AF_INET, "127.0.0.1");
	meet(AF_INET6, "::1");
}

static void
any_four(void)
{
	listen_at("0.0.0.0", -1);
	tell_names_of(listener);
	meet(AF_INET, "127.0.0.1");
	meet(AF_INET, "127.0.0.2");
	meet(AF_INET, "0.0.0.0");
	meet(AF_INET6, "::ffff:127.0.0.1");
	meet(AF_INET6, "::1");
}

static void
only_six(void)
{
	const int yes = 1;
	union name n;
	socklen_t len;
	int four;

	listen_at("::", 1);
	meet(AF_INET6, "::1");
	meet(AF_INET, "127.0.0.1");
	meet(AF_INET6, "::ffff:127.0.0.1");
	/* IPv4 has the port to itself */
	four = socket(AF_INET, SOCK_STREAM, 0);
	len = name_at(&n, "0.0.0.0", port);
	tell(bind(four, &n.any, len));
	tell(listen(four, 8));
	meet(AF_INET6, "::1");
	close(listener);
	listener = four;
	meet(AF_INET, "127.0.0.1");
	near = socket(AF_INET6, SOCK_STREAM, 0);
	tell(setsockopt(near, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes)));
	len = name_at(&n, "::ffff:127.0.0.1", port);
	tell(connect(near, &n.any, len));
}

static void
port_of_both(void)
{
	union name n;
	socklen_t len;
	int four = socket(AF_INET, SOCK_STREAM, 0);

	listen_at("::", 0);
	len = name_at(&n, "0.0.0.0", port);
	tell(bind(four, &n.any, len));
	len = name_at(&n, "127.0.0.1", port);
	tell(bind(four, &n.any, len));
}

/* A scope counts for link-local addresses only, and those are not offered SMC-R on loopback. */
static void
scopes(void)
{
	union name n;
	socklen_t len;

	listen_at("::1", -1);
	len = name_at(&n, "::1", port);
	n.in6.sin6_scope_id = if_nametoindex("lo");
	near = socket(AF_INET6, SOCK_STREAM, 0);
	tell(connect(near, &n.any, len));
	far = accept(listener, NULL, NULL);
	greet();
	tell_names_of(near);
	tell_names_of(far);
}

static void
wrong_families(void)
{
	union name four, six_;
	socklen_t len;

	listen_at("::", 0);
	(void)name_at(&four, "127.0.0.1", port);
	(void)name_at(&six_, "::1", port);
	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(connect(near, &six_.any, sizeof(six_.in6)));
	tell(connect(near, &four.any, 8));
	tell(bind(near, &six_.any, sizeof(six_.in6)));
	four.any.sa_family = AF_UNSPEC;
	tell(connect(near, &four.any, sizeof(four.in)));
	close(near);
	near = socket(AF_INET6, SOCK_STREAM, 0);
	four.any.sa_family = AF_INET;
	six_.any.sa_family = AF_INET6;
	tell(connect(near, &four.any, sizeof(four.in)));
	tell(connect(near, &six_.any, 16));
	tell(connect(near, &six_.any, 24)); /* without a scope: RFC 2133 */
	tell(accept(listener, NULL, NULL) >= 0 ? 0 : -1);
	tell_names_of(near);
	len = 20;
	memset(&six_, 0, sizeof(six_));
	tell(getpeername(near, &six_.any, &len));
	printf("/%u/%d", len, six_.in6.sin6_addr.s6_addr[15]);
}

static const struct {
	int level, name, set;
} options6[] = {
	/* first: other options discard the route, which the next segment finds again */
	{IPPROTO_IPV6, IPV6_MTU, 0},
	{IPPROTO_IPV6, IPV6_V6ONLY, 0},
	{IPPROTO_IPV6, IPV6_TCLASS, 0x20},
	{IPPROTO_IPV6, IPV6_UNICAST_HOPS, 33},
	{IPPROTO_IPV6, IPV6_MTU_DISCOVER, 2},
	{IPPROTO_IPV6, IPV6_MINHOPCOUNT, 2},
	{IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 1},
	{IPPROTO_IPV6, IPV6_RECVTCLASS, 1},
	{IPPROTO_IPV6, IPV6_RECVPKTINFO, 1},
	{IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1},
	{IPPROTO_IPV6, IPV6_DONTFRAG, 1},
	{IPPROTO_IPV6, IPV6_FREEBIND, 1},
	{IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 3},
	{IPPROTO_IP, IP_TOS, 0x20},
	{IPPROTO_IP, IP_TTL, 44},
	{IPPROTO_IP, IP_RECVTOS, 1},
	{IPPROTO_IP, IP_RECVTTL, 1},
	{IPPROTO_IP, IP_PKTINFO, 1},
	{SOL_SOCKET, SO_DOMAIN, 0},
};

static void
tell_options6(int fd, bool sets)
{
	for (size_t i = 0; i < sizeof(options6) / sizeof(options6[0]); i++) {
		int v = -1, level = options6[i].level, name = options6[i].name;
		socklen_t len = sizeof(v);

		if (sets && options6[i].set != 0)
			tell(setsockopt(fd, level, name, &options6[i].set, sizeof(int)));
		tell(getsockopt(fd, level, name, &v, &len));
		printf("=%d", v);
	}
}

static void
options_of(const char *text)
{
	union name n;
	socklen_t len;

	listen_at("::", 0);
	len = name_at(&n, text, port);
	near = socket(AF_INET6, SOCK_STREAM, 0);
	if (connect(near, &n.any, len) != 0)
		fail("connect");
	far = accept(listener, NULL, NULL);
	greet();
	tell_options6(near, false);
	tell_options6(far, false);
	tell_options6(near, true);
	tell_options6(far, true);
}

static void
options_six(void)
{
	options_of("::1");
}

static void
options_mapped(void)
{
	options_of("::ffff:127.0.0.1");
}

const struct same_case addresses[] = {
	{"IPv6", six},
	{"a listener of :: and all that reaches it", any_six},
	{"a listener of an IPv4 address in an IPv6 socket", mapped_only},
	{"a listener of 0.0.0.0 and all that reaches it", any_four},
	{"a listener that takes IPv6 only", only_six},
	{"a port that IPv6 has for both", port_of_both},
	{"a scope where there is none", scopes},
	{"addresses of the wrong family", wrong_families},
	{"options of IPv6", options_six},
	{"options of IPv6 that has an IPv4 address", options_mapped},
	{NULL, NULL},
};
