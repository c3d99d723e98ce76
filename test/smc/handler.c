/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A TCP program that does not know of SMC-R, whose signal handler uses the connection that the
 * interrupted thread is just using:
 *
 *   smc-handler serve ADDRESS PORT
 *   smc-handler connect ADDRESS PORT
 *
 * serve echoes bytes.  connect writes and reads in a loop, interrupted by a timer whose handler
 * writes, reads, polls, and closes a duplicate, TIMES times; then it reads until the end.  The
 * thread sets the timer again each time: however long the handler takes, the thread makes progress
 * between two signals.  The program prints whether as many bytes of the thread and of the handler
 * have come back as were sent.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define TIMES     5000
#define WITHIN_NS 40000 /* after it was set: at a different place of the thread's work each time */
#define STEP_NS   7919
#define FLIGHT    4000 /* bytes under way, few enough that neither side waits for room */
#define MAGIC     0x6b61

/* At file scope: a signal handler has no argument for them. */
static int conn;
static timer_t timer;
static volatile sig_atomic_t times, strange;
/* First index: 0 is counted by the thread, 1 by the handler, which may interrupt an update of the
 * thread's counters.  Second index of received bytes: 0 for 'm' of the thread, 1 for 's' of the
 * handler. */
static volatile unsigned long sent[2], got[2][2];

static void __attribute__((noreturn)) fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static void
count(int by, const char *data, ssize_t n)
{
	for (ssize_t i = 0; i < n; i++)
		got[by][data[i] == 's']++;
}

static bool
has_room(void)
{
	return sent[0] + sent[1] - got[0][0] - got[0][1] - got[1][0] - got[1][1] < FLIGHT;
}

/* Uses only async-signal-safe calls. */
static void
on_timer(int sig, siginfo_t *info, void *context)
{
	int err = errno, copy;
	struct pollfd p = {.fd = conn, .events = POLLIN};
	char data[64];

	(void)context;
	strange |= sig != SIGALRM || info->si_code != SI_TIMER || info->si_value.sival_int != MAGIC;
	if (has_room() && write(conn, "s", 1) == 1)
		sent[1]++;
	if (poll(&p, 1, 0) > 0)
		count(1, data, recv(conn, data, sizeof(data), MSG_DONTWAIT));
	copy = dup(conn);
	strange |= copy < 0 || close(copy) != 0;
	times++;
	errno = err;
}

static void
set_timer(long ns)
{
	const struct itimerspec once = {.it_value.tv_nsec = ns};

	if (timer_settime(timer, 0, &once, NULL) != 0)
		fail("timer_settime");
}

static void
talk(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
		.sigev_signo = SIGALRM,
		.sigev_value.sival_int = MAGIC};
	struct sigaction act = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART}, is;
	sig_atomic_t seen = -1;
	char data[64];
	ssize_t n;

	if (sigaction(SIGALRM, &act, NULL) != 0 || sigaction(SIGALRM, NULL, &is) != 0 ||
		timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
		fail("a timer");
	strange |= is.sa_sigaction != on_timer || (is.sa_flags & SA_RESTART) == 0;
	while (times < TIMES) {
		if (times != seen) {
			seen = times;
			set_timer(1 + (long)seen * STEP_NS % WITHIN_NS);
		}
		if (has_room() && write(conn, "m", 1) == 1)
			sent[0]++;
		n = recv(conn, data, 1, MSG_DONTWAIT);
		count(0, data, n);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			fail("recv");
	}
	if (shutdown(conn, SHUT_WR) != 0)
		fail("shutdown");
	while ((n = recv(conn, data, sizeof(data), 0)) > 0)
		count(0, data, n);
}

static void
nothing(int sig)
{
	(void)sig;
}

/* Whether queries of handlers return what the program has set. */
static bool
is_as_set(void)
{
	struct sigaction act = {.sa_handler = nothing, .sa_flags = (int)SA_RESETHAND}, is;
	bool good = signal(SIGUSR1, nothing) == SIG_DFL && signal(SIGUSR1, SIG_IGN) == nothing &&
		signal(SIGUSR1, SIG_DFL) == SIG_IGN;

	good &= sigaction(SIGUSR2, &act, NULL) == 0 && sigaction(SIGUSR2, NULL, &is) == 0;
	good &= is.sa_handler == nothing && (is.sa_flags & (int)SA_RESETHAND) &&
		(is.sa_flags & SA_SIGINFO) == 0;
	raise(SIGUSR2);
	return good && sigaction(SIGUSR2, NULL, &is) == 0 && is.sa_handler == SIG_DFL;
}

static void
serve(int listener)
{
	char data[4096];
	ssize_t n;

	printf("ready\n");
	fflush(stdout);
	conn = accept(listener, NULL, NULL);
	while ((n = recv(conn, data, sizeof(data), 0)) > 0)
		if (send(conn, data, (size_t)n, MSG_NOSIGNAL) != n)
			fail("send");
}

int
main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (argc != 4 || inet_pton(AF_INET, argv[2], &at.sin_addr) != 1) {
		fprintf(stderr, "usage: smc-handler serve|connect ADDRESS PORT\n");
		return 2;
	}
	at.sin_port = htons((uint16_t)atoi(argv[3]));
	if (strcmp(argv[1], "serve") == 0) {
		if (bind(fd, (void *)&at, sizeof(at)) != 0 || listen(fd, 1) != 0)
			fail("listen");
		serve(fd);
		return 0;
	}
	if (!is_as_set())
		fail("handlers");
	if (connect(fd, (void *)&at, sizeof(at)) != 0)
		fail("connect");
	conn = fd;
	talk();
	if (got[0][0] + got[1][0] != sent[0] || got[0][1] + got[1][1] != sent[1] || strange)
		printf("%lu and %lu, not %lu and %lu; %d\n", got[0][0] + got[1][0],
			got[0][1] + got[1][1], sent[0], sent[1], (int)strange);
	else
		printf("same\n");
	return 0;
}
