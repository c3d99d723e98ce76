/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * How two instances of interop-peer communicate apart from the traffic that they check: a stream,
 * by TCP, by a UNIX socket, or through a character device such as a virtual machine's serial port.
 *
 * The ends meet at points of the script (ctl_swap()): each sends a header and as many bytes as it
 * expects.  An end that gives up sends a header of the point POINT_END with its text, whatever the
 * other one waits for.
 */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define POINT_END 0xdeadu
/* Ends an end whose peer hangs.  The peer may have waited for its own limit several times before it
 * reports something. */
#define HANG_S 480u

struct header {
	uint32_t point, len;
};

static const char *
whoami(const struct peer *p)
{
	return p->me == 0 ? "client" : "server";
}

static _Noreturn void
no_channel(const char *what)
{
	fprintf(stderr, "interop-peer: control channel: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* --- opening --- */

static int
tcp_listen(const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *all, *a;
	int family, s = -1, c, one = 1;

	if (getaddrinfo(NULL, port, &hints, &all) != 0)
		no_channel(port);
	/* an IPv6 socket also accepts IPv4, where there is IPv6 */
	for (family = AF_INET6; s < 0 && family != 0; family = family == AF_INET6 ? AF_INET : 0) {
		for (a = all; a != NULL && s < 0; a = a->ai_next) {
			if (a->ai_family != family)
				continue;
			s = socket(a->ai_family, SOCK_STREAM, 0);
			if (s < 0)
				continue;
			setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
			if (bind(s, a->ai_addr, a->ai_addrlen) != 0 || listen(s, 1) != 0) {
				close(s);
				s = -1;
			}
		}
	}
	freeaddrinfo(all);
	if (s < 0)
		no_channel(port);
	c = accept(s, NULL, NULL);
	if (c < 0)
		no_channel("accept");
	close(s);
	return c;
}

static int
tcp_connect(const char *host, const char *port, uint32_t patience_s)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all, *a;
	time_t end = time(NULL) + patience_s;
	int s;

	if (getaddrinfo(host, port, &hints, &all) != 0)
		no_channel(host);
	do { /* the server may not listen yet */
		for (a = all; a != NULL; a = a->ai_next) {
			s = socket(a->ai_family, SOCK_STREAM, 0);
			if (s >= 0 && connect(s, a->ai_addr, a->ai_addrlen) == 0) {
				freeaddrinfo(all);
				return s;
			}
			if (s >= 0)
				close(s);
		}
		usleep(50000);
	} while (time(NULL) < end);
	no_channel(host);
}

static int
unix_connect(const char *path)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	if (s < 0 || connect(s, (struct sockaddr *)&to, sizeof(to)) != 0)
		no_channel(path);
	return s;
}

int
ctl_open(const char *where, const char *port, uint32_t patience_s)
{
	int fd;

	if (where == NULL)
		return tcp_listen(port);
	if (strncmp(where, "unix:", 5) == 0)
		return unix_connect(where + 5);
	if (strncmp(where, "file:", 5) == 0) {
		fd = open(where + 5, O_RDWR | O_NOCTTY);
		if (fd < 0)
			no_channel(where + 5);
		return fd;
	}
	return tcp_connect(where, port, patience_s);
}

/* --- talking --- */

void
ctl_put(struct peer *p, const void *data, uint32_t len)
{
	const uint8_t *at = data;
	ssize_t n;

	while (len > 0) {
		n = write(p->ctl, at, len);
		if (n <= 0)
			no_channel("write");
		at += n;
		len -= (uint32_t)n;
	}
}

void
ctl_get(struct peer *p, void *data, uint32_t len)
{
	const uint32_t limit_s = p->opt.patience_s * 4 > HANG_S ? p->opt.patience_s * 4 : HANG_S;
	struct pollfd in = {.fd = p->ctl, .events = POLLIN};
	uint8_t *at = data;
	ssize_t n;

	while (len > 0) {
		n = poll(&in, 1, (int)limit_s * 1000);
		if (n == 0)
			errno = ETIMEDOUT;
		if (n <= 0)
			no_channel("the other end does not answer");
		n = read(p->ctl, at, len);
		if (n == 0)
			errno = ECONNRESET;
		if (n <= 0)
			no_channel("the other end is gone");
		at += n;
		len -= (uint32_t)n;
	}
}

static void
put_text(struct peer *p, uint32_t point)
{
	struct header h = {point, (uint32_t)strlen(p->notes)};

	ctl_put(p, &h, sizeof(h));
	ctl_put(p, p->notes, h.len);
}

static void
show(const char *who, const struct peer *p, const char *text)
{
	fprintf(stderr, "step %u, %s: %s:\n%s", p->number, p->step != NULL ? p->step->text : "-",
		who, text);
}

/* Takes @h.len bytes of text and prints them. */
static void
get_text(struct peer *p, struct header h)
{
	static char text[NOTES_SIZE];

	if (h.len >= sizeof(text))
		die(p, "the other end talks nonsense");
	ctl_get(p, text, h.len);
	text[h.len] = '\0';
	if (h.len > 0)
		show(p->me == 0 ? "server" : "client", p, text);
}

_Noreturn void
die(struct peer *p, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	problem(p, "%s", text);
	show(whoami(p), p, p->notes);
	if (p->ctl >= 0)
		put_text(p, POINT_END);
	exit(1);
}

void
ctl_swap(struct peer *p, uint32_t point, const void *mine, void *other, uint32_t len)
{
	struct header h = {point, len};

	ctl_put(p, &h, sizeof(h));
	ctl_put(p, mine, len);
	ctl_get(p, &h, sizeof(h));
	if (h.point == POINT_END) {
		get_text(p, h);
		if (p->problems > 0)
			show(whoami(p), p, p->notes);
		exit(1);
	}
	if (h.point != point || h.len != len)
		die(p, "the other end is at point %x (%u bytes), not %x (%u)", h.point, h.len,
			point, len);
	ctl_get(p, other, len);
}

/* --- problems --- */

void
problem(struct peer *p, const char *fmt, ...)
{
	size_t used = strlen(p->notes);
	char line[512];
	va_list ap;

	p->problems++;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (used + strlen(line) + 4 < sizeof(p->notes))
		sprintf(p->notes + used, "  %s\n", line);
}

bool
ctl_verdict(struct peer *p)
{
	uint32_t mine = p->problems, other = 0;
	struct header h;

	ctl_swap(p, 0x7e7d, &mine, &other, sizeof(mine));
	if (mine == 0 && other == 0)
		return true;
	put_text(p, 0x7e7e);
	ctl_get(p, &h, sizeof(h));
	get_text(p, h);
	if (mine > 0)
		show(whoami(p), p, p->notes);
	p->problems = 0;
	p->notes[0] = '\0';
	return false;
}
