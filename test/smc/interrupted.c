/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program that waits on both ends of a connection of its own, each time interrupted by a signal
 * that comes when the call has begun and does not wait in the kernel yet: in the middle of what
 * libkarst-sockets does before, which locks.  Its handlers only note that they ran, as those of
 * Python do, so a call that went on to wait would wait for ever.
 *
 *   smc-interrupted ADDRESS PORT
 *
 * It says what each call returned.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>

static volatile sig_atomic_t armed, came;
static int near, far;

/* In the place of the C library's, for libraries, too. */
int
pthread_mutex_lock(pthread_mutex_t *lock)
{
	int (*next)(pthread_mutex_t *);

	*(void **)&next = dlsym(RTLD_NEXT, "pthread_mutex_lock");
	if (armed) {
		armed = 0;
		raise(SIGUSR1);
	}
	return next(lock);
}

static void
note(int sig)
{
	(void)sig;
	came++;
}

/* One that is to be restarted: what it waits for. */
static void
send_byte(int sig)
{
	(void)sig;
	came++;
	if (send(far, "b", 1, 0) != 1)
		abort();
}

static void
handle(void (*handler)(int), int flags)
{
	const struct sigaction act = {.sa_handler = handler, .sa_flags = flags};

	(void)sigaction(SIGUSR1, &act, NULL);
}

static void
tell(const char *what, long rc)
{
	printf("%s %s %d%s\n", what, rc >= 0 ? "returned" : strerrorname_np(errno), (int)came,
		armed ? " without a lock" : "");
	fflush(stdout);
	came = armed = 0;
}

static void
wait_in_each(void)
{
	struct pollfd p = {.fd = near, .events = POLLIN | POLLPRI};
	static char data[1 << 20];
	fd_set set;
	char byte;

	handle(note, 0);
	armed = 1;
	tell("recv", recv(near, &byte, 1, 0));
	armed = 1;
	tell("recv at once", recv(near, &byte, 1, MSG_DONTWAIT));
	armed = 1;
	tell("poll", poll(&p, 1, -1));
	FD_ZERO(&set);
	FD_SET(near, &set);
	armed = 1;
	tell("select", select(near + 1, NULL, NULL, &set, NULL));
	while (send(near, data, sizeof(data), MSG_DONTWAIT) > 0)
		continue;
	came = 0;
	armed = 1;
	tell("send", send(near, data, sizeof(data), 0));
	handle(send_byte, SA_RESTART);
	armed = 1;
	tell("recv again", recv(near, &byte, 1, 0));
}

int
main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (argc != 3 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1) {
		fprintf(stderr, "usage: smc-interrupted ADDRESS PORT\n");
		return 2;
	}
	at.sin_port = htons((uint16_t)atoi(argv[2]));
	near = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(fd, (void *)&at, sizeof(at)) != 0 || listen(fd, 1) != 0 ||
		connect(near, (void *)&at, sizeof(at)) != 0 || (far = accept(fd, NULL, NULL)) < 0) {
		perror("a connection");
		return 1;
	}
	wait_in_each();
	return 0;
}
