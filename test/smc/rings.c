/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program with an io_uring, and one connection over which a few bytes go in both directions.
 *
 *   smc-rings first|later PORT   accepts, reads and writes by its ring, which it creates before it
 *                                listens, or after that
 *   smc-rings waits PORT         accepts, reads and writes by calls; its ring waits for readiness
 *   smc-rings connect PORT       reads and writes by its ring, after connect()
 *   smc-rings calls PORT         has no ring
 *
 * smc-rings-static is the same program, but linked so that liburing is not visible as a library.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <liburing.h>

#define ENTRIES 8u

static const char hello[] = "hello, ring";
static struct io_uring ring;

static void __attribute__((noreturn)) fail(const char *what, int err)
{
	printf("%s: %s\n", what, strerror(err));
	exit(1);
}

static void
make(void)
{
	int rc = io_uring_queue_init(ENTRIES, &ring, 0);

	if (rc < 0)
		fail("io_uring_queue_init", -rc);
}

/* @return the result of the only outstanding request */
static int
result(const char *what)
{
	struct io_uring_cqe *cqe;
	int rc;

	if (io_uring_submit_and_wait(&ring, 1) < 0 || io_uring_wait_cqe(&ring, &cqe) != 0)
		fail("the ring", errno);
	rc = cqe->res;
	io_uring_cqe_seen(&ring, cqe);
	if (rc < 0)
		fail(what, -rc);
	return rc;
}

static void
wait_for(int fd)
{
	io_uring_prep_poll_add(io_uring_get_sqe(&ring), fd, POLLIN);
	result("poll");
}

static void
say_by_ring(int fd)
{
	io_uring_prep_send(io_uring_get_sqe(&ring), fd, hello, sizeof(hello), 0);
	result("send");
}

static void
hear_by_ring(int fd)
{
	char got[256] = "";
	int n;

	io_uring_prep_recv(io_uring_get_sqe(&ring), fd, got, sizeof(got), 0);
	n = result("recv");
	if (n != (int)sizeof(hello) || memcmp(got, hello, sizeof(hello)) != 0) {
		printf("%d bytes of something else\n", n);
		exit(1);
	}
}

static void
hear(int fd)
{
	char got[256] = "";

	if (recv(fd, got, sizeof(got), 0) != (ssize_t)sizeof(hello) || strcmp(got, hello) != 0)
		fail("recv", errno);
}

static int
listening(const struct sockaddr_in *at)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(fd, (const void *)at, sizeof(*at)) != 0 || listen(fd, 1) != 0)
		fail("listen", errno);
	return fd;
}

static int
connected(const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (connect(fd, (const void *)to, sizeof(*to)) != 0)
		fail("connect", errno);
	return fd;
}

static void
say(int fd)
{
	if (send(fd, hello, sizeof(hello), 0) != (ssize_t)sizeof(hello))
		fail("send", errno);
}

static void
serve(const char *how, const struct sockaddr_in *at)
{
	bool later = strcmp(how, "later") == 0;
	int fd, s;

	if (!later)
		make();
	fd = listening(at);
	if (later)
		make();
	printf("ready\n");
	fflush(stdout);
	if (strcmp(how, "waits") == 0) {
		wait_for(fd);
		s = accept(fd, NULL, NULL);
		wait_for(s);
		hear(s);
		say(s);
		return;
	}
	io_uring_prep_accept(io_uring_get_sqe(&ring), fd, NULL, NULL, 0);
	s = result("accept");
	hear_by_ring(s);
	say_by_ring(s);
}

static void
ask(bool by_ring, const struct sockaddr_in *to)
{
	int fd;

	if (by_ring)
		make();
	fd = connected(to);
	if (by_ring) {
		say_by_ring(fd);
		hear_by_ring(fd);
	} else {
		say(fd);
		hear(fd);
	}
}

int
main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	bool by_ring;

	if (argc != 3) {
		fprintf(stderr, "usage: smc-rings first|later|waits|connect|calls PORT\n");
		return 2;
	}
	at.sin_port = htons((uint16_t)atoi(argv[2]));
	by_ring = strcmp(argv[1], "connect") == 0;
	if (by_ring || strcmp(argv[1], "calls") == 0)
		ask(by_ring, &at);
	else
		serve(argv[1], &at);
	printf("same\n");
	return 0;
}
