/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "link.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_LINE   (64u << 20) /* enough for the numbers of half a million queue pairs */
#define FIRST_ROOM 65536u
#define TRIES      100 /* of 50 ms */

int
perf_link_listen(uint16_t *port)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(*port)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, off = 0;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 || listen(fd, 4) != 0 ||
		getsockname(fd, (struct sockaddr *)&a, &len) != 0) {
		int error = errno;

		close(fd);
		return -error;
	}
	*port = ntohs(a.sin6_port);
	return fd;
}

static void
link_init(struct perf_link *l, int fd, const struct sockaddr *a, socklen_t len)
{
	int on = 1;

	memset(l, 0, sizeof(*l));
	l->fd = fd;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (getnameinfo(a, len, l->peer, sizeof(l->peer), NULL, 0, NI_NUMERICHOST) != 0)
		strcpy(l->peer, "?");
}

int
perf_link_accept(int listener, struct perf_link *l)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	int fd;

	do {
		len = sizeof(a);
		fd = accept4(listener, (struct sockaddr *)&a, &len, SOCK_CLOEXEC);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return -errno;
	link_init(l, fd, (struct sockaddr *)&a, len);
	return 0;
}

static int
try_all(const struct addrinfo *list, struct perf_link *l)
{
	const struct addrinfo *ai;
	int error = ECONNREFUSED;

	for (ai = list; ai != NULL; ai = ai->ai_next) {
		int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0) {
			error = errno;
			continue;
		}
		if (connect(fd, ai->ai_addr, ai->ai_addrlen) == 0) {
			link_init(l, fd, ai->ai_addr, ai->ai_addrlen);
			return 0;
		}
		error = errno;
		close(fd);
	}
	return -error;
}

int
perf_link_connect(const char *host, uint16_t port, struct perf_link *l)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	const struct timespec nap = {.tv_nsec = 50000000};
	struct addrinfo *list;
	char service[8];
	int i, rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(host, service, &hints, &list);
	if (rc != 0) {
		fprintf(stderr, "karst-perf: --peer: %s: %s\n", host, gai_strerror(rc));
		return -ENOENT;
	}
	rc = try_all(list, l);
	for (i = 0; rc == -ECONNREFUSED && i < TRIES; i++) {
		nanosleep(&nap, NULL);
		rc = try_all(list, l);
	}
	freeaddrinfo(list);
	if (rc != 0)
		fprintf(stderr,
			"karst-perf: no server at %s port %u: %s; start karst-perf --server there\n",
			host, port, strerror(-rc));
	return rc;
}

void
perf_link_close(struct perf_link *l)
{
	if (l->fd >= 0)
		close(l->fd);
	free(l->line);
	memset(l, 0, sizeof(*l));
	l->fd = -1;
}

int
perf_link_write(int fd, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	while (n > 0) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return -EPIPE;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

int
perf_link_send(struct perf_link *l, json_t *o)
{
	char *text = o == NULL ? NULL : json_dumps(o, JSON_COMPACT);
	size_t n;
	int rc;

	json_decref(o);
	if (text == NULL)
		return -ENOMEM;
	n = strlen(text);
	text[n] = '\n'; /* replaces the terminating zero */
	rc = perf_link_write(l->fd, text, n + 1);
	free(text);
	return rc;
}

/* Makes room and reads the available bytes.  -EAGAIN, -EPIPE, -EPROTO, -ENOMEM */
static int
read_more(struct perf_link *l, bool wait)
{
	ssize_t n;

	if (l->len == l->room) {
		size_t room = l->room != 0 ? 2 * l->room : FIRST_ROOM;
		char *more = room > MAX_LINE ? NULL : realloc(l->line, room);

		if (more == NULL)
			return room > MAX_LINE ? -EPROTO : -ENOMEM;
		l->line = more;
		l->room = room;
	}
	do
		n = recv(l->fd, l->line + l->len, l->room - l->len, wait ? 0 : MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK ? -EAGAIN : -EPIPE;
	if (n == 0)
		return -EPIPE;
	l->len += (size_t)n;
	return 0;
}

int
perf_link_recv(struct perf_link *l, bool wait, json_t **o)
{
	size_t n;
	char *end;
	int rc;

	for (;;) {
		end = l->len == l->scanned
			? NULL
			: memchr(l->line + l->scanned, '\n', l->len - l->scanned);
		if (end != NULL)
			break;
		l->scanned = l->len;
		rc = read_more(l, wait);
		if (rc != 0)
			return rc;
	}
	n = (size_t)(end - l->line);
	*o = json_loadb(l->line, n, JSON_REJECT_DUPLICATES, NULL);
	l->len -= n + 1;
	memmove(l->line, end + 1, l->len);
	l->scanned = 0;
	if (!json_is_object(*o)) {
		json_decref(*o);
		return -EPROTO;
	}
	return 0;
}

int
perf_link_ask(struct perf_link *l, json_t *request, json_t **answer)
{
	int rc = perf_link_send(l, request);
	json_t *o = NULL, *error;

	if (rc == 0)
		rc = perf_link_recv(l, true, &o);
	if (rc != 0) {
		fprintf(stderr, "karst-perf: %s: %s\n", l->peer,
			rc == -EPROTO ? "not a karst-perf of this version"
				      : "the other karst-perf is gone");
		return rc;
	}
	error = json_object_get(o, "error");
	if (error != NULL) {
		fprintf(stderr, "karst-perf: %s: %s\n", l->peer,
			json_is_string(error) ? json_string_value(error) : "it failed");
		json_decref(o);
		return -EREMOTEIO;
	}
	if (answer != NULL)
		*answer = o;
	else
		json_decref(o);
	return 0;
}

int
perf_link_number(const json_t *o, const char *name, uint64_t max, uint64_t *value)
{
	const json_t *v = json_object_get(o, name);

	/* integers of the JSON library are signed, but @value has the bits of an unsigned number */
	if (!json_is_integer(v) || (uint64_t)json_integer_value(v) > max)
		return -EPROTO;
	*value = (uint64_t)json_integer_value(v);
	return 0;
}
