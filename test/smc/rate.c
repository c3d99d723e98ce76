/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A TCP program without knowledge of SMC-R, which makes short connections:
 *
 *   smc-rate serve ADDRESS PORT
 *   smc-rate connect ADDRESS PORT CLIENTS COUNT
 *   smc-rate idle ADDRESS PORT 1 COUNT
 *   smc-rate hold ADDRESS PORT 1 COUNT
 *
 * connect: CLIENTS at once make COUNT connections in total; each sends a byte, gets it back and
 * closes.  A single client waits in each call, several clients wait in epoll_wait().  The program
 * prints the number of connections in a second, and how long one took, from connect() to the byte
 * that came back: the median, and the lower decile, which is more useful on a machine that is busy
 * with other work.
 *
 * idle: makes COUNT connections, transfers a byte in each direction over each, and keeps them until
 * the standard input ends; each is watched meanwhile.  hold: the same, but it begins when a line
 * can be read from the standard input.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 64
#define FDS    65536

struct run {
	struct sockaddr_in at;
	uint64_t began[FDS]; /* indexed by descriptor */
	uint64_t *took;
	unsigned int count, started, done;
	int epfd;
};

static void __attribute__((noreturn)) fail(const char *what)
{
	fprintf(stderr, "smc-rate: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int
new_socket(int flags)
{
	const int yes = 1;
	int fd = socket(AF_INET, SOCK_STREAM | flags, 0);

	if (fd < 0 || fd >= FDS)
		fail("socket");
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	return fd;
}

static void
watch(int epfd, int op, int fd, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.fd = fd};

	if (epoll_ctl(epfd, op, fd, &e) != 0)
		fail("epoll_ctl");
}

/* --- the server --- */

static void
accept_all(int epfd, int listener)
{
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
		watch(epfd, EPOLL_CTL_ADD, fd, EPOLLIN);
	if (errno != EAGAIN && errno != ECONNABORTED)
		fail("accept");
}

static void
answer(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, 0);

	if (n == 1 && send(fd, &byte, 1, MSG_NOSIGNAL) == 1)
		return;
	if (n >= 0 || errno != EAGAIN)
		close(fd);
}

static void
serve(const struct sockaddr_in *at)
{
	struct epoll_event e[EVENTS];
	int epfd = epoll_create1(0), listener = new_socket(SOCK_NONBLOCK), n, i;

	if (bind(listener, (const void *)at, sizeof(*at)) != 0 || listen(listener, 1024) != 0)
		fail("listen");
	watch(epfd, EPOLL_CTL_ADD, listener, EPOLLIN);
	printf("ready\n");
	fflush(stdout);
	while ((n = epoll_wait(epfd, e, EVENTS, -1)) >= 0 || errno == EINTR)
		for (i = 0; i < n; i++) {
			if (e[i].data.fd == listener)
				accept_all(epfd, listener);
			else
				answer(e[i].data.fd);
		}
}

/* --- clients --- */

static void
finish(struct run *r, int fd)
{
	r->took[r->done++] = now_ns() - r->began[fd];
	close(fd);
}

static int
one(struct run *r)
{
	uint64_t began = now_ns();
	int fd = new_socket(0);
	char byte = 'x';

	if (connect(fd, (const void *)&r->at, sizeof(r->at)) != 0)
		fail("connect");
	if (send(fd, &byte, 1, 0) != 1 || recv(fd, &byte, 1, 0) != 1)
		fail("a byte to and fro");
	r->began[fd] = began;
	return fd;
}

static void
start(struct run *r)
{
	uint64_t began = now_ns();
	int fd = new_socket(SOCK_NONBLOCK);

	r->began[fd] = began;
	r->started++;
	if (connect(fd, (const void *)&r->at, sizeof(r->at)) != 0 && errno != EINPROGRESS)
		fail("connect");
	watch(r->epfd, EPOLL_CTL_ADD, fd, EPOLLOUT);
}

static void
go_on(struct run *r, const struct epoll_event *e)
{
	int fd = e->data.fd;
	char byte = 'x';
	ssize_t n;

	if (e->events & EPOLLOUT) {
		if (send(fd, &byte, 1, 0) != 1)
			fail("send");
		watch(r->epfd, EPOLL_CTL_MOD, fd, EPOLLIN);
		return;
	}
	n = recv(fd, &byte, 1, 0);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n != 1)
		fail("recv");
	finish(r, fd);
	if (r->started < r->count)
		start(r);
}

static void
many(struct run *r, unsigned int clients)
{
	struct epoll_event e[EVENTS];
	int n, i;

	r->epfd = epoll_create1(0);
	while (r->started < clients && r->started < r->count)
		start(r);
	while (r->done < r->count) {
		n = epoll_wait(r->epfd, e, EVENTS, -1);
		for (i = 0; i < n; i++)
			go_on(r, &e[i]);
	}
}

static int
by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void
connect_all(struct run *r, unsigned int clients)
{
	uint64_t began = now_ns();
	double s;

	if (clients > 1)
		many(r, clients);
	else
		while (r->done < r->count)
			finish(r, one(r));
	s = (double)(now_ns() - began) / 1e9;
	printf("%u clients: %.0f connections/s; first %.0f us", clients, r->count / s,
		(double)r->took[0] / 1e3);
	qsort(r->took, r->count, sizeof(r->took[0]), by_value);
	printf(", median %.0f us, a tenth below %.0f us\n", (double)r->took[r->count / 2] / 1e3,
		(double)r->took[r->count / 10] / 1e3);
}

/* @hold: makes the connections when the standard input has a line. */
static void
idle(struct run *r, bool hold)
{
	struct epoll_event e;
	char byte;

	r->epfd = epoll_create1(0);
	watch(r->epfd, EPOLL_CTL_ADD, STDIN_FILENO, EPOLLIN);
	if (hold) {
		printf("ready\n");
		fflush(stdout);
		if (read(STDIN_FILENO, &byte, 1) != 1)
			return;
	}
	for (unsigned int i = 0; i < r->count; i++)
		watch(r->epfd, EPOLL_CTL_ADD, one(r), EPOLLIN);
	printf("idle\n");
	fflush(stdout);
	for (;;) {
		if (epoll_wait(r->epfd, &e, 1, -1) < 0 && errno != EINTR)
			fail("epoll_wait");
		if (e.data.fd == STDIN_FILENO) {
			if (read(STDIN_FILENO, &byte, 1) <= 0)
				return;
		} else if (recv(e.data.fd, &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN) {
			/* EAGAIN is no fault: a token may be late */
			fail("a connection that is not idle");
		}
	}
}

/* Each connection needs two descriptors. */
static void
want_descriptors(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
}

int
main(int argc, char **argv)
{
	static struct run run;
	unsigned int clients = argc > 4 ? (unsigned int)atoi(argv[4]) : 0;

	run.count = argc > 5 ? (unsigned int)atoi(argv[5]) : 0;
	run.at.sin_family = AF_INET;
	if (argc < 4 || inet_pton(AF_INET, argv[2], &run.at.sin_addr) != 1 ||
		(strcmp(argv[1], "serve") != 0 && (clients == 0 || run.count == 0))) {
		fprintf(stderr,
			"usage: smc-rate serve|connect|idle|hold ADDRESS PORT CLIENTS COUNT\n");
		return 2;
	}
	run.at.sin_port = htons((uint16_t)atoi(argv[3]));
	want_descriptors();
	run.took = calloc(run.count + 1, sizeof(run.took[0]));
	if (run.took == NULL)
		fail("memory");
	if (strcmp(argv[1], "serve") == 0)
		serve(&run.at);
	else if (strcmp(argv[1], "idle") == 0 || strcmp(argv[1], "hold") == 0)
		idle(&run, argv[1][0] == 'h');
	else
		connect_all(&run, clients);
	return 0;
}
