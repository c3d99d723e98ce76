/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A TCP program, or one of Linux's SMC, that takes the steps of its command line:
 *
 *   interop-talk [-s] -l|-c ADDRESS PORT COUNT STEP...
 *
 * -s: the sockets are of AF_SMC.  It listens for or makes COUNT connections, and takes each step on
 * all of them, one after the other:
 *
 *   send N      sends N bytes
 *   get N       receives N bytes
 *   both N      sends N bytes while it receives as many
 *   fill        sends without waiting until there is no room for more
 *   drain       receives until there is an end, and says what that is
 *   fail        sends until that fails, and says how
 *   urgent N    sends N bytes, the last of them as urgent
 *   urge N      sends N bytes in one piece, the last of them as urgent
 *   inline      urgent bytes come among the others from now on
 *   oob         waits for an urgent byte, and receives it
 *   shut        ends its direction
 *   close       closes
 *   error       waits for an error or the end of both directions, and says SO_ERROR
 *   reset       closes, with a time to linger of 0
 *   die         kills itself
 *   wait PATH   until there is such a file
 *   stream PATH sends and receives until there is such a file, then ends its direction, receives
 *               until there is an end, and says how much that was; for one connection
 *   say TEXT
 *
 * The byte at each position of a direction is known, and what comes is compared.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAMILY_SMC AF_SMC
#define PROTO_IP4  0
#define PROTO_IP6  1
#define CONNS      1024
#define PERIOD     65521u
#define PIECE      50000u
#define LOOK_US    20000

struct conn {
	int fd;
	uint64_t sent, got;
};

static struct conn conns[CONNS];
static unsigned int nconns;
static bool listens, smc;
static uint8_t pattern[PERIOD + PIECE];

static void
say_all(const char *format, va_list args)
{
	vprintf(format, args);
	printf("\n");
	fflush(stdout);
}

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say_all(format, args);
	va_end(args);
	exit(1);
}

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say_all(format, args);
	va_end(args);
}

static void
make_pattern(void)
{
	uint32_t x = 4711, i;

	for (i = 0; i < PERIOD; i++) {
		x = x * 1664525u + 1013904223u;
		pattern[i] = (uint8_t)(x >> 24);
	}
	memcpy(pattern + PERIOD, pattern, PIECE);
}

/* The bytes at a position: the two directions are different. */
static const uint8_t *
bytes_at(uint64_t pos, bool of_listener)
{
	return pattern + (pos + (of_listener ? 7919 : 0)) % PERIOD;
}

static size_t
piece(uint64_t n)
{
	return n < PIECE ? (size_t)n : PIECE;
}

/* @return bytes; 0: the end; -1 and errno */
static ssize_t
receive(struct conn *c, uint64_t most, int flags)
{
	static uint8_t data[PIECE];
	ssize_t n = recv(c->fd, data, piece(most), flags);

	if (n > 0 && memcmp(data, bytes_at(c->got, !listens), (size_t)n) != 0)
		fail("other bytes than were sent, at %llu", (unsigned long long)c->got);
	if (n > 0)
		c->got += (uint64_t)n;
	return n;
}

static ssize_t
transmit(struct conn *c, uint64_t most, int flags)
{
	ssize_t n = send(c->fd, bytes_at(c->sent, listens), piece(most), flags | MSG_NOSIGNAL);

	if (n > 0)
		c->sent += (uint64_t)n;
	return n;
}

static void
step_send(struct conn *c, uint64_t n)
{
	ssize_t done;

	for (; n > 0; n -= (uint64_t)done) {
		done = transmit(c, n, 0);
		if (done < 0)
			fail("send: %s, %llu are left", strerrorname_np(errno),
				(unsigned long long)n);
	}
}

static void
step_get(struct conn *c, uint64_t n)
{
	ssize_t done;

	for (; n > 0; n -= (uint64_t)done) {
		done = receive(c, n, 0);
		if (done <= 0)
			fail("get: %s, %llu are missing",
				done == 0 ? "end" : strerrorname_np(errno), (unsigned long long)n);
	}
}

static void
step_both(struct conn *c, uint64_t n)
{
	uint64_t out = n, in = n;
	struct pollfd p = {.fd = c->fd};
	ssize_t done;

	while (out > 0 || in > 0) {
		p.events = (short)((out > 0 ? POLLOUT : 0) | (in > 0 ? POLLIN : 0));
		if (poll(&p, 1, -1) < 0)
			fail("poll: %s", strerrorname_np(errno));
		done = in > 0 ? receive(c, in, MSG_DONTWAIT) : 0;
		if (in > 0 && (done == 0 || (done < 0 && errno != EAGAIN)))
			fail("both: %s after %llu of %llu",
				done == 0 ? "end" : strerrorname_np(errno),
				(unsigned long long)(n - in), (unsigned long long)n);
		in -= done > 0 ? (uint64_t)done : 0;
		done = out > 0 ? transmit(c, out, MSG_DONTWAIT) : 0;
		if (done < 0 && errno != EAGAIN)
			fail("both: send: %s", strerrorname_np(errno));
		out -= done > 0 ? (uint64_t)done : 0;
	}
}

static void
step_fill(struct conn *c)
{
	uint64_t before = c->sent;
	ssize_t done;

	do
		done = transmit(c, PIECE, MSG_DONTWAIT);
	while (done > 0);
	if (errno != EAGAIN)
		fail("fill: %s", strerrorname_np(errno));
	say("full %llu", (unsigned long long)(c->sent - before));
}

static void
step_drain(struct conn *c)
{
	uint64_t before = c->got;
	ssize_t done;

	do
		done = receive(c, PIECE, 0);
	while (done > 0);
	say("%s after %llu", done == 0 ? "end" : strerrorname_np(errno),
		(unsigned long long)(c->got - before));
}

static void
step_fail(struct conn *c)
{
	while (transmit(c, 1000, 0) > 0)
		usleep(LOOK_US);
	say("sending fails: %s", strerrorname_np(errno));
}

static void
step_urgent(struct conn *c, uint64_t n)
{
	step_send(c, n - 1);
	if (send(c->fd, bytes_at(c->sent, listens), 1, MSG_OOB | MSG_NOSIGNAL) != 1)
		fail("urgent: %s", strerrorname_np(errno));
	c->sent++;
}

static void
step_urge(struct conn *c, uint64_t n)
{
	if (transmit(c, n, MSG_OOB) != (ssize_t)n)
		fail("urge: %s", strerrorname_np(errno));
}

static void
step_inline(struct conn *c)
{
	const int yes = 1;

	if (setsockopt(c->fd, SOL_SOCKET, SO_OOBINLINE, &yes, sizeof(yes)) != 0)
		fail("SO_OOBINLINE: %s", strerrorname_np(errno));
}

static void
step_oob(struct conn *c)
{
	struct pollfd p = {.fd = c->fd, .events = POLLPRI};

	if (poll(&p, 1, -1) != 1 || receive(c, 1, MSG_OOB) != 1)
		fail("oob: %s", strerrorname_np(errno));
}

static void
step_error(struct conn *c)
{
	struct pollfd p = {.fd = c->fd};
	int error;
	socklen_t len = sizeof(error);

	if (poll(&p, 1, -1) != 1 || getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
		fail("error: %s", strerrorname_np(errno));
	say("error %s", strerrorname_np(error));
}

static void
step_reset(struct conn *c)
{
	const struct linger none = {.l_onoff = 1};

	if (setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none)) != 0)
		fail("SO_LINGER: %s", strerrorname_np(errno));
	close(c->fd);
}

/* Checks between two pieces whether the file exists. */
static void
step_stream(struct conn *c, const char *path)
{
	struct pollfd p = {.fd = c->fd};
	bool sends = true;
	ssize_t done;

	for (;;) {
		if (sends && access(path, F_OK) == 0) {
			sends = false;
			if (shutdown(c->fd, SHUT_WR) != 0)
				fail("shut: %s", strerrorname_np(errno));
		}
		p.events = (short)(POLLIN | (sends ? POLLOUT : 0));
		if (poll(&p, 1, LOOK_US / 1000) < 0)
			fail("poll: %s", strerrorname_np(errno));
		done = receive(c, PIECE, MSG_DONTWAIT);
		if (done == 0 && !sends)
			break;
		/* which end closes first is not reported here */
		if (done == 0)
			usleep(LOOK_US);
		else if (done < 0 && errno != EAGAIN)
			fail("stream: %s", strerrorname_np(errno));
		if (sends && transmit(c, PIECE, MSG_DONTWAIT) < 0 && errno != EAGAIN)
			fail("stream: send: %s", strerrorname_np(errno));
	}
	say("sent %llu got %llu", (unsigned long long)c->sent, (unsigned long long)c->got);
}

/* --- connections --- */

static int
new_socket(const struct sockaddr_storage *at)
{
	const int yes = 1;
	int fd = smc
		? socket(FAMILY_SMC, SOCK_STREAM, at->ss_family == AF_INET6 ? PROTO_IP6 : PROTO_IP4)
		: socket(at->ss_family, SOCK_STREAM, 0);

	if (fd < 0)
		fail("socket: %s", strerrorname_np(errno));
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	return fd;
}

static void
accept_all(const struct sockaddr_storage *at, socklen_t len)
{
	int fd = new_socket(at);
	unsigned int i;

	if (bind(fd, (const struct sockaddr *)at, len) != 0 || listen(fd, CONNS) != 0)
		fail("listen: %s", strerrorname_np(errno));
	say("listens");
	for (i = 0; i < nconns; i++) {
		conns[i].fd = accept(fd, NULL, NULL);
		if (conns[i].fd < 0)
			fail("accept: %s", strerrorname_np(errno));
	}
	close(fd);
}

static void
connect_all(const struct sockaddr_storage *at, socklen_t len)
{
	unsigned int i;

	for (i = 0; i < nconns; i++) {
		conns[i].fd = new_socket(at);
		if (connect(conns[i].fd, (const struct sockaddr *)at, len) != 0)
			fail("connect: %s", strerrorname_np(errno));
	}
}

static socklen_t
address(const char *text, unsigned int port, struct sockaddr_storage *at)
{
	struct sockaddr_in *in = (void *)at;
	struct sockaddr_in6 *in6 = (void *)at;

	memset(at, 0, sizeof(*at));
	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
		return sizeof(*in);
	}
	if (inet_pton(AF_INET6, text, &in6->sin6_addr) != 1)
		fail("%s is no address", text);
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons((uint16_t)port);
	return sizeof(*in6);
}

/* --- steps --- */

static void
wait_for(const char *path)
{
	while (access(path, F_OK) != 0)
		usleep(LOOK_US);
}

static void
step_on(struct conn *c, const char *step, uint64_t n)
{
	if (strcmp(step, "send") == 0)
		step_send(c, n);
	else if (strcmp(step, "get") == 0)
		step_get(c, n);
	else if (strcmp(step, "both") == 0)
		step_both(c, n);
	else if (strcmp(step, "urgent") == 0)
		step_urgent(c, n);
	else if (strcmp(step, "urge") == 0)
		step_urge(c, n);
	else if (strcmp(step, "inline") == 0)
		step_inline(c);
	else if (strcmp(step, "oob") == 0)
		step_oob(c);
	else if (strcmp(step, "fill") == 0)
		step_fill(c);
	else if (strcmp(step, "drain") == 0)
		step_drain(c);
	else if (strcmp(step, "fail") == 0)
		step_fail(c);
	else if (strcmp(step, "error") == 0)
		step_error(c);
	else if (strcmp(step, "reset") == 0)
		step_reset(c);
	else if (strcmp(step, "close") == 0)
		close(c->fd);
	else if (strcmp(step, "shut") != 0)
		fail("%s is no step", step);
	else if (shutdown(c->fd, SHUT_WR) != 0)
		fail("shut: %s", strerrorname_np(errno));
}

static bool
has_number(const char *step)
{
	static const char *const names[] = {"send", "get", "both", "urgent", "urge"};
	unsigned int i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(step, names[i]) == 0)
			return true;
	return false;
}

static void
take_steps(char **words)
{
	const char *step;
	uint64_t n;
	unsigned int i;

	while ((step = *words++) != NULL) {
		if (strcmp(step, "die") == 0) {
			raise(SIGKILL);
		} else if (strcmp(step, "wait") == 0 && *words != NULL) {
			wait_for(*words++);
		} else if (strcmp(step, "stream") == 0 && *words != NULL) {
			step_stream(&conns[0], *words++);
		} else if (strcmp(step, "say") == 0 && *words != NULL) {
			say("%s", *words++);
		} else {
			n = has_number(step) && *words != NULL ? strtoull(*words++, NULL, 0) : 0;
			for (i = 0; i < nconns; i++)
				step_on(&conns[i], step, n);
		}
	}
}

int
main(int argc, char **argv)
{
	struct sockaddr_storage at;
	int option, how = 0;
	socklen_t len;

	while ((option = getopt(argc, argv, "+slc")) != -1) {
		if (option == '?')
			return 2;
		if (option == 's')
			smc = true;
		else
			how = option;
	}
	if (how == 0 || argc - optind < 3)
		fail("usage: interop-talk [-s] -l|-c ADDRESS PORT COUNT STEP...");
	make_pattern();
	listens = how == 'l';
	len = address(argv[optind], (unsigned int)atoi(argv[optind + 1]), &at);
	nconns = (unsigned int)atoi(argv[optind + 2]);
	if (nconns == 0 || nconns > CONNS)
		fail("1 to %u connections", CONNS);
	if (listens)
		accept_all(&at, len);
	else
		connect_all(&at, len);
	take_steps(argv + optind + 3);
	return 0;
}
