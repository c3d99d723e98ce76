/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Checks the behaviour that the manual pages describe for sockets and that the kernel's TCP has.
 * The program is run over TCP and over SMC-R, and must print the same both times (same.py):
 *
 *   smc-same ADDRESS [PART]
 *
 * PART: only the cases whose names contain it.
 *
 * Each case is a process of its own, with both ends of a connection.  When a thread has to wait,
 * the case continues only when that thread sleeps in its call or has returned.
 */
#include "same.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANG_S 60

struct sockaddr_in address;
int listener, near, far;
char data[MUCH];
volatile sig_atomic_t came;

void
fail(const char *what)
{
	printf(" %s: %s\n", what, strerror(errno));
	exit(1);
}

void
tell(long rc)
{
	if (rc >= 0)
		printf(" %ld", rc);
	else
		printf(" %s", strerrorname_np(errno));
}

void
tell_status(pid_t child)
{
	int status = -1;

	if (child < 0 || waitpid(child, &status, 0) != child)
		fail("a child");
	printf(" (%d)", status);
}

int
count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d != NULL && readdir(d) != NULL)
		n++;
	if (d == NULL || closedir(d) != 0)
		fail("the descriptors");
	return n;
}

static void
note(int sig)
{
	(void)sig;
	came++;
}

void
handle(int sig, int flags)
{
	const struct sigaction act = {.sa_handler = note, .sa_flags = flags};

	if (sigaction(sig, &act, NULL) != 0)
		fail("sigaction");
}

void
greet(void)
{
	char byte;

	if (send(near, "x", 1, 0) != 1 || recv(far, &byte, 1, 0) != 1 ||
		send(far, "y", 1, 0) != 1 || recv(near, &byte, 1, 0) != 1)
		fail("a byte each way");
}

void
open_both(void)
{
	near = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(near, (void *)&address, sizeof(address)) != 0)
		fail("connect");
	far = accept(listener, NULL, NULL);
	if (far < 0)
		fail("accept");
	greet();
}

void
give(int fd, size_t n)
{
	int to = fd == near ? far : near, before = 0, there = 0;

	if (ioctl(to, FIONREAD, &before) != 0 || send(fd, data, n, 0) != (ssize_t)n)
		fail("bytes for the other one");
	while (ioctl(to, FIONREAD, &there) == 0 && there < before + (int)n)
		usleep(1000);
}

void
reset(int fd)
{
	const struct linger now = {.l_onoff = 1};

	if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) != 0 || close(fd) != 0)
		fail("a reset");
}

void
await(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	if (poll(&p, 1, -1) != 1)
		fail("poll");
}

/* Whoever copies the bytes of a connection also answers this, and so has had a processor since the
 * last call. */
static void
ask_who_copies(void)
{
	int bytes;
	socklen_t len = sizeof(bytes);

	if (getsockopt(near, SOL_SOCKET, SO_SNDBUF, &bytes, &len) != 0)
		fail("SO_SNDBUF");
}

ssize_t
fill(void)
{
	struct pollfd p = {.fd = near, .events = POLLOUT};
	ssize_t n, all = 0;

	for (int arrived = -1, before = -1, same = 0; same < 2; before = arrived) {
		while ((n = send(near, data, sizeof(data), MSG_DONTWAIT)) > 0)
			all += n;
		ask_who_copies();
		if (poll(&p, 1, 100) != 0)
			arrived = -1;
		else if (ioctl(far, FIONREAD, &arrived) != 0)
			fail("FIONREAD");
		same = arrived >= 0 && arrived == before ? same + 1 : 0;
	}
	return all;
}

void
drain(ssize_t all)
{
	for (ssize_t n; all > 0; all -= n)
		if ((n = recv(far, data, sizeof(data), 0)) <= 0)
			fail("the bytes that were sent");
}

/* --- a thread that waits in a call --- */

static void *
make_call(void *arg)
{
	struct call *c = arg;

	atomic_store(&c->id, (pid_t)syscall(SYS_gettid));
	c->rc = c->fn(c);
	c->err = errno;
	atomic_store(&c->done, true);
	return NULL;
}

/* Whether the thread sleeps in one of the system calls in which a user of a connection sleeps. */
static bool
sleeps(pid_t id)
{
	static const long calls[] = {SYS_recvfrom, SYS_sendto, SYS_poll, SYS_ppoll, SYS_recvmmsg,
		SYS_recvmsg, SYS_sendmsg, SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_select,
		SYS_pselect6, SYS_epoll_wait, SYS_epoll_pwait, SYS_accept, SYS_accept4,
		SYS_sendfile, SYS_splice};
	char path[64];
	long number = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)id);
	f = fopen(path, "re");
	if (f == NULL || fscanf(f, "%ld", &number) != 1)
		number = -1;
	if (f != NULL)
		fclose(f);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (number == calls[i])
			return true;
	return false;
}

void
await_call(const struct call *c)
{
	while (!atomic_load(&c->done) && (atomic_load(&c->id) == 0 || !sleeps(atomic_load(&c->id))))
		usleep(1000);
}

void
begin_call(struct call *c, long (*fn)(struct call *c), int fd, size_t len, int flags)
{
	*c = (struct call){.fn = fn, .fd = fd, .len = len, .flags = flags};
	if (pthread_create(&c->thread, NULL, make_call, c) != 0)
		fail("a thread");
	await_call(c);
}

void
end_call(struct call *c)
{
	pthread_join(c->thread, NULL);
	errno = c->err;
	tell(c->rc);
}

long
call_send(struct call *c)
{
	ssize_t n;

	do
		n = send(c->fd, data, c->len, c->flags);
	while (n > 0);
	return n;
}

long
call_poll(struct call *c)
{
	struct pollfd p = {.fd = c->fd, .events = (short)c->flags};

	return poll(&p, 1, -1) > 0 ? p.revents : -1;
}

long
call_recv(struct call *c)
{
	return recv(c->fd, data, c->len, c->flags);
}

long
call_recv_many(struct call *c)
{
	struct iovec one = {data, c->len};
	struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = &one, .msg_iovlen = 1}}};

	m[1] = m[0];
	return recvmmsg(c->fd, m, 2, c->flags, NULL);
}

/* --- all of it --- */

static const struct same_case *const subjects[] = {waits, reads, messages, files, connects, signals,
	closes, settings, streams, ready, descriptors, addresses, begins, states, concurrent,
	filters, by_number};

static void
run(const struct same_case *c)
{
	socklen_t len = sizeof(address);

	alarm(HANG_S);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&address, sizeof(address)) != 0 || listen(listener, 8) != 0 ||
		getsockname(listener, (void *)&address, &len) != 0)
		fail("a listener");
	c->fn();
	exit(0);
}

static void
run_apart(const struct same_case *c)
{
	pid_t child;
	int status;

	printf("%s:", c->name);
	fflush(stdout);
	child = fork();
	if (child == 0)
		run(c);
	if (child < 0 || waitpid(child, &status, 0) != child)
		fail("a child");
	if (status != 0)
		printf(" status %d", status);
	printf("\n");
}

int
main(int argc, char **argv)
{
	const struct same_case *c;

	if (argc == 3 && strcmp(argv[1], "relay") == 0)
		return relay(atoi(argv[2]));
	if (argc == 4 && strcmp(argv[1], "bring") == 0)
		return bring(atoi(argv[2]), atoi(argv[3]));
	if (argc == 4 && strcmp(argv[1], "filtered") == 0)
		return filtered(atoi(argv[2]), atoi(argv[3]));
	address.sin_family = AF_INET;
	if (argc < 2 || argc > 3 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: smc-same ADDRESS [PART]\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
		for (c = subjects[i]; c->name != NULL; c++)
			if (argc == 2 || strstr(c->name, argv[2]) != NULL)
				run_apart(c);
	return 0;
}
