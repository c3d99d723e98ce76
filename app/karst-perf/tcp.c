/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "tcp.h"
#include "cpu.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK     (128u << 10) /* of a write, for throughput */
#define ACCEPT_MS 10000
#define MAX_SIZE  (1u << 30)
#define MAX_SPAN  (UINT64_C(1) << 40)
#define MAX_PINGS 100000u

enum mode {
	MODE_SINK = 1, /* the server receives, and answers with the number of bytes at the end */
	MODE_SOURCE,   /* the server sends until the client closes */
	MODE_ECHO,     /* messages of @size, there and back */
};

/* The first message of a client.  Both ends have the same version, but may have different byte
 * orders. */
struct order {
	uint32_t mode;
	uint32_t size;
	uint64_t span; /* bytes of memory that the stream uses */
};

/* Source or destination memory of a stream, used from its beginning to its end, repeatedly.  It is
 * as large as that of the messages, so that the bytes are cached for both or for neither. */
struct span {
	uint8_t *base;
	size_t bytes, at;
};

static uint64_t
tcp_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static int
recv_all(int fd, uint8_t *p, size_t n)
{
	while (n > 0) {
		ssize_t k = recv(fd, p, n, MSG_WAITALL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return -EPIPE;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

/* Writes to the memory, because all pages that were never written are one page of zeros.  @return
 * false: no memory. */
static bool
span_create(struct span *s, uint64_t bytes, size_t least)
{
	s->at = 0;
	s->bytes = karst_max_u64(bytes, least);
	s->base = bytes <= MAX_SPAN ? malloc(s->bytes) : NULL;
	if (s->base != NULL)
		memset(s->base, 1, s->bytes);
	return s->base != NULL;
}

static int
span_write(struct span *s, int fd, size_t chunk)
{
	if (s->bytes - s->at < chunk)
		s->at = 0;
	s->at += chunk;
	return perf_link_write(fd, s->base + s->at - chunk, chunk);
}

/* Like recv(). */
static ssize_t
span_recv(struct span *s, int fd, size_t chunk)
{
	ssize_t n = recv(fd, s->base + s->at, karst_min_u64(chunk, s->bytes - s->at), 0);

	if (n > 0)
		s->at = s->at + (size_t)n == s->bytes ? 0 : s->at + (size_t)n;
	return n;
}

/* --- addresses --- */

/* The IP address of a GID, if a connection can be bound to it. */
static bool
tcp_address_of(const union karst_gid *gid, struct sockaddr_storage *to, socklen_t *len)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)to;
	struct sockaddr_in *v4 = (struct sockaddr_in *)to;
	struct in6_addr in;

	memset(to, 0, sizeof(*to));
	memcpy(&in, gid->raw, sizeof(in));
	if (IN6_IS_ADDR_V4MAPPED(&in)) {
		v4->sin_family = AF_INET;
		memcpy(&v4->sin_addr, gid->raw + 12, 4);
		*len = sizeof(*v4);
		return true;
	}
	if (IN6_IS_ADDR_LINKLOCAL(&in) || IN6_IS_ADDR_UNSPECIFIED(&in))
		return false;
	v6->sin6_family = AF_INET6;
	v6->sin6_addr = in;
	*len = sizeof(*v6);
	return true;
}

static void
set_port(struct sockaddr_storage *a, uint16_t port)
{
	if (a->ss_family == AF_INET)
		((struct sockaddr_in *)a)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)a)->sin6_port = htons(port);
}

static uint16_t
get_port(const struct sockaddr_storage *a)
{
	return ntohs(a->ss_family == AF_INET ? ((const struct sockaddr_in *)a)->sin_port
					     : ((const struct sockaddr_in6 *)a)->sin6_port);
}

static void
format_address(const struct sockaddr_storage *a, char *to, size_t bytes)
{
	const void *in = a->ss_family == AF_INET
		? (const void *)&((const struct sockaddr_in *)a)->sin_addr
		: (const void *)&((const struct sockaddr_in6 *)a)->sin6_addr;

	if (inet_ntop(a->ss_family, in, to, (socklen_t)bytes) == NULL)
		snprintf(to, bytes, "?");
}

/* A socket bound to the port's own address, or, if the kernel does not have it, to the address of
 * the link.  -errno */
static int
bound_socket(const struct perf_link *link, const struct perf_attach *a)
{
	struct sockaddr_storage at;
	socklen_t len;
	int on = 1, fd, error;

	if (tcp_address_of(&a->gid, &at, &len)) {
		fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0)
			goto bound;
		if (fd >= 0)
			close(fd);
	}
	len = sizeof(at);
	if (getsockname(link->fd, (struct sockaddr *)&at, &len) != 0)
		return -errno;
	set_port(&at, 0);
	fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&at, len) != 0) {
		error = errno;
		close(fd);
		return -error;
	}
bound:
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

/* --- the server --- */

static void
tcp_sink(int fd, struct span *s)
{
	uint64_t bytes = 0, told;
	ssize_t n;

	while ((n = span_recv(s, fd, CHUNK)) > 0 || (n < 0 && errno == EINTR))
		bytes += n > 0 ? (uint64_t)n : 0;
	told = htobe64(bytes);
	perf_link_write(fd, &told, sizeof(told));
}

static void
serve_order(int fd, const struct order *order)
{
	size_t chunk = karst_max_u64(order->size, CHUNK);
	const uint8_t ready = 1;
	struct span s;

	/* without memory the connection ends, which the client detects */
	if (order->size > MAX_SIZE || !span_create(&s, order->span, chunk))
		return;
	/* The client's clock waits for this: memory that is touched for the first time can take
	 * longer than a measurement. */
	if (perf_link_write(fd, &ready, sizeof(ready)) != 0) {
		free(s.base);
		return;
	}
	switch (order->mode) {
	case MODE_SINK:
		tcp_sink(fd, &s);
		break;
	case MODE_SOURCE:
		while (span_write(&s, fd, chunk) == 0)
			;
		break;
	case MODE_ECHO:
		while (recv_all(fd, s.base, order->size) == 0 &&
			perf_link_write(fd, s.base, order->size) == 0)
			;
		break;
	default:
		break;
	}
	free(s.base);
}

static void
serve_connection(int listener)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};
	int on = 1,
	    fd = poll(&p, 1, ACCEPT_MS) == 1 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
	struct order order;

	if (fd < 0)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (recv_all(fd, (uint8_t *)&order, sizeof(order)) == 0) {
		order.mode = ntohl(order.mode);
		order.size = ntohl(order.size);
		order.span = be64toh(order.span);
		serve_order(fd, &order);
	}
	close(fd);
}

int
perf_tcp_serve(struct perf_link *link, const struct perf_attach *a)
{
	int listener = bound_socket(link, a), rc;
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	char text[64];

	if (listener < 0 || listen(listener, 1) != 0 ||
		getsockname(listener, (struct sockaddr *)&at, &len) != 0) {
		rc = perf_link_send(
			link, json_pack("{s:s}", "error", "the server cannot listen for TCP"));
		if (listener >= 0)
			close(listener);
		return rc;
	}
	format_address(&at, text, sizeof(text));
	rc = perf_link_send(
		link, json_pack("{s:s, s:i}", "address", text, "port", (int)get_port(&at)));
	if (rc == 0)
		serve_connection(listener);
	close(listener);
	return rc;
}

/* --- the client --- */

static int
parse_address(const char *text, uint16_t port, struct sockaddr_storage *a, socklen_t *len)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)a;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)a;

	memset(a, 0, sizeof(*a));
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		*len = sizeof(*v4);
	} else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		*len = sizeof(*v6);
	} else {
		return -EPROTO;
	}
	set_port(a, port);
	return 0;
}

static void
shorten_mapped(char *text)
{
	if (strncmp(text, "::ffff:", 7) == 0)
		memmove(text, text + 7, strlen(text + 7) + 1);
}

/* Asks the server to listen, and connects.  @return a socket, or -errno. */
static int
open_connection(struct perf_link *link, const struct perf_attach *a, struct perf_tcp *t)
{
	json_t *answer;
	uint64_t port;
	struct sockaddr_storage at;
	socklen_t len;
	const char *text;
	int fd, rc = perf_link_ask(link, json_pack("{s:b}", "tcp", 1), &answer);

	if (rc != 0)
		return rc;
	text = json_string_value(json_object_get(answer, "address"));
	rc = text == NULL || perf_link_number(answer, "port", 65535, &port) != 0
		? -EPROTO
		: parse_address(text, (uint16_t)port, &at, &len);
	if (rc == 0)
		snprintf(t->there, sizeof(t->there), "%s", text);
	json_decref(answer);
	if (rc != 0)
		return rc;
	fd = bound_socket(link, a);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&at, len) != 0) {
		/* the server cannot be reached from the local address */
		int on = 1;

		close(fd);
		fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, (struct sockaddr *)&at, len) != 0) {
			rc = -errno;
			close(fd);
			return rc;
		}
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	}
	len = sizeof(at);
	if (fd >= 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0)
		format_address(&at, t->here, sizeof(t->here));
	shorten_mapped(t->here);
	shorten_mapped(t->there);
	return fd;
}

static int
tcp_begin(struct perf_link *link, const struct perf_attach *a, enum mode mode,
	const struct perf_job *job, struct perf_tcp *t)
{
	const struct order order = {.mode = htonl((uint32_t)mode),
		.size = htonl(job->size),
		.span = htobe64(mode == MODE_ECHO ? 0 : job->working_set)};
	int fd = open_connection(link, a, t);
	uint8_t ready;

	if (fd >= 0 &&
		(perf_link_write(fd, &order, sizeof(order)) != 0 ||
			recv_all(fd, &ready, sizeof(ready)) != 0)) {
		close(fd);
		return -EPIPE;
	}
	return fd;
}

/* Sends a stream.  The server's count at the end shows that all bytes have arrived. */
static int
tcp_push(int fd, struct span *s, size_t chunk, uint64_t until, struct perf_tcp *t)
{
	uint64_t told;
	int rc;

	do
		rc = span_write(s, fd, chunk);
	while (rc == 0 && tcp_now_ns() < until);
	if (rc == 0 && shutdown(fd, SHUT_WR) == 0)
		rc = recv_all(fd, (uint8_t *)&told, sizeof(told));
	if (rc == 0)
		t->bytes = be64toh(told);
	return rc;
}

/* Receives a stream, at least @chunk bytes: the sender may not have had a processor until then. */
static int
tcp_pull(int fd, struct span *s, size_t chunk, uint64_t until, struct perf_tcp *t)
{
	while (t->bytes < chunk || tcp_now_ns() < until) {
		ssize_t n = span_recv(s, fd, chunk);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EPIPE;
		t->bytes += (uint64_t)n;
	}
	return 0;
}

static int
measure_stream(struct perf_link *link, const struct perf_attach *a, const struct perf_job *job,
	struct span *s, double seconds, struct perf_tcp *t)
{
	size_t chunk = karst_max_u64(job->size, CHUNK);
	bool fetches = perf_op_fetches(job->op);
	int fd = tcp_begin(link, a, fetches ? MODE_SOURCE : MODE_SINK, job, t), rc;
	uint64_t from, until;
	double busy_s;

	if (fd < 0)
		return fd;
	busy_s = perf_cpu_busy_s();
	from = tcp_now_ns();
	until = from + (uint64_t)(seconds * 1e9);
	rc = (fetches ? tcp_pull : tcp_push)(fd, s, chunk, until, t);
	t->cpu_s = perf_cpu_busy_s() - busy_s;
	t->seconds = (double)(tcp_now_ns() - from) / 1e9;
	t->gbps = (double)t->bytes * 8 / t->seconds / 1e9;
	close(fd);
	return rc;
}

static int
measure_echo(struct perf_link *link, const struct perf_attach *a, const struct perf_job *job,
	uint8_t *buffer, double seconds, struct perf_tcp *t)
{
	int fd = tcp_begin(link, a, MODE_ECHO, job, t), rc = 0;
	uint64_t until = tcp_now_ns() + (uint64_t)(seconds * 1e9), from, to = 0;
	uint32_t i;

	if (fd < 0)
		return fd;
	for (i = 0; rc == 0 && to < until && i < MAX_PINGS; i++) {
		from = tcp_now_ns();
		rc = perf_link_write(fd, buffer, job->size);
		if (rc == 0)
			rc = recv_all(fd, buffer, job->size);
		to = tcp_now_ns();
		if (rc == 0)
			perf_hist_add(t->rtt, to - from);
	}
	close(fd);
	return rc;
}

int
perf_tcp_measure(struct perf_link *link, const struct perf_attach *a, const struct perf_job *job,
	double seconds, struct perf_tcp *t)
{
	struct span s;
	int rc;

	memset(t, 0, sizeof(*t));
	t->rtt = perf_hist_create();
	rc = span_create(&s, job->working_set, karst_max_u64(job->size, CHUNK)) && t->rtt != NULL
		? measure_stream(link, a, job, &s, seconds, t)
		: -ENOMEM;
	if (rc == 0)
		rc = measure_echo(link, a, job, s.base, seconds / 2, t);
	free(s.base);
	if (rc != 0) {
		free(t->rtt);
		t->rtt = NULL;
		fprintf(stderr, "karst-perf: --compare tcp: %s\n", strerror(-rc));
	}
	return rc;
}
