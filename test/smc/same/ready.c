/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Waiting for readiness: epoll in its forms, poll(), select(), and their variants with signal
 * masks.  Edges are reported when a ring is not empty any more (doc/smc.rst), so the ring is empty
 * before in these cases.
 */
#include "same.h"

#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PART       65536
#define ALL_EVENTS (EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP)

static int set; /* the epoll set */

/* Sends bytes to near, and waits until the kernel reports them: the token may come after the
 * bytes. */
static void
give_seen(size_t n)
{
	give(far, n);
	await(near, POLLIN);
}

static void
tell_ctl(int op, int fd, unsigned int events)
{
	struct epoll_event e = {.events = events, .data.fd = fd};

	tell(epoll_ctl(set, op, fd, &e));
}

static void
open_set(unsigned int events)
{
	open_both();
	set = epoll_create1(0);
	tell_ctl(EPOLL_CTL_ADD, near, events);
}

static void
tell_events(int ms)
{
	struct epoll_event e[4];
	int n = epoll_wait(set, e, 4, ms);

	tell(n);
	for (int i = 0; i < n; i++)
		printf("/%x", e[i].events & ~(unsigned int)(EPOLLHUP | EPOLLERR));
}

static void
tell_all_read(void)
{
	tell(recv(near, data, sizeof(data), MSG_DONTWAIT));
}

static void
epoll_level(void)
{
	open_set(ALL_EVENTS);
	tell_events(-1);
	give_seen(3);
	tell_events(0);
	tell_events(0);
	tell(recv(near, data, 1, 0));
	tell_events(0);
	tell_all_read();
	tell_events(0);
	tell_ctl(EPOLL_CTL_MOD, near, EPOLLIN);
	tell_events(0);
	give_seen(1);
	shutdown(far, SHUT_WR);
	await(near, POLLRDHUP);
	tell_events(0);
	tell_ctl(EPOLL_CTL_MOD, near, ALL_EVENTS);
	tell_events(0);
	tell_all_read();
	tell_all_read();
	tell_events(0);
	tell_ctl(EPOLL_CTL_DEL, near, 0);
	tell_events(0);
}

static void
epoll_edge(void)
{
	open_set(EPOLLIN | EPOLLRDHUP | EPOLLET);
	tell_events(0);
	for (int i = 0; i < 3; i++) {
		give_seen(2);
		tell_events(-1);
		tell_events(0);
		tell_all_read();
		tell_all_read();
		tell_events(0);
	}
	give_seen(1);
	tell_events(-1);
	tell_ctl(EPOLL_CTL_MOD, near, EPOLLIN | EPOLLET);
	tell_events(0);
	tell_events(0);
	tell_all_read();
	shutdown(far, SHUT_WR);
	tell_events(-1);
}

static void
epoll_edge_of_room(void)
{
	ssize_t sent;

	open_set(EPOLLOUT | EPOLLET);
	tell_events(-1);
	tell_events(0);
	sent = fill();
	tell_events(0);
	drain(sent);
	tell_events(-1);
}

static void *
drain_slowly(void *arg)
{
	static char some[5000];

	for (ssize_t n, all = 0; all < *(ssize_t *)arg; all += n)
		if ((n = recv(far, some, sizeof(some), 0)) <= 0)
			fail("the bytes that were sent");
	return NULL;
}

/* A program that writes after each edge until there is no room is never left without another. */
static void
epoll_edges_of_room(void)
{
	ssize_t all = 1024 * PART, sent = 0, n;
	struct epoll_event e;
	pthread_t reader;

	open_set(EPOLLOUT | EPOLLET);
	if (pthread_create(&reader, NULL, drain_slowly, &all) != 0)
		fail("a thread");
	while (sent < all) {
		if (epoll_wait(set, &e, 1, -1) != 1)
			fail("epoll_wait");
		while (sent < all && (n = send(near, data, PART, MSG_DONTWAIT)) > 0)
			sent += n;
	}
	tell(pthread_join(reader, NULL));
}

static void
epoll_once(void)
{
	open_set(EPOLLIN | EPOLLONESHOT);
	give_seen(1);
	tell_events(0);
	tell_events(0);
	tell_ctl(EPOLL_CTL_MOD, near, EPOLLIN | EPOLLONESHOT);
	tell_events(0);
	tell_all_read();
	tell_ctl(EPOLL_CTL_MOD, near, EPOLLIN | EPOLLONESHOT);
	tell_events(0);
	give_seen(1);
	tell_events(-1);
}

static void
epoll_of_duplicates(void)
{
	int other;

	open_set(EPOLLIN);
	other = dup(near);
	tell_ctl(EPOLL_CTL_ADD, other, EPOLLIN);
	give_seen(1);
	tell_events(0);
	close(near);
	tell_events(0);
	near = other;
	tell_all_read();
	tell_events(0);
	give_seen(1);
	tell_events(0);
	close(near);
	tell_events(0);
}

static void
epoll_in_epoll(void)
{
	struct pollfd p = {.events = POLLIN};
	int inner;

	open_set(EPOLLIN);
	inner = set;
	p.fd = set = epoll_create1(0);
	tell_ctl(EPOLL_CTL_ADD, inner, EPOLLIN);
	tell(poll(&p, 1, 0));
	give_seen(1);
	tell(poll(&p, 1, -1));
	tell_events(0);
	tell_all_read();
	tell_events(0);
	tell(poll(&p, 1, 0));
}

static void
epoll_refuses(void)
{
	open_set(EPOLLIN);
	tell_ctl(EPOLL_CTL_ADD, near, EPOLLIN);
	tell_ctl(EPOLL_CTL_MOD, far, EPOLLIN);
	tell_ctl(EPOLL_CTL_DEL, far, 0);
	tell_ctl(9, near, EPOLLIN);
	tell_ctl(EPOLL_CTL_ADD, far, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT);
	tell_ctl(EPOLL_CTL_ADD, far, EPOLLIN | EPOLLEXCLUSIVE);
	tell_ctl(EPOLL_CTL_MOD, far, EPOLLIN);
	close(far);
	tell_ctl(EPOLL_CTL_ADD, far, EPOLLIN);
	set = near;
	tell_ctl(EPOLL_CTL_ADD, listener, EPOLLIN);
}

static void
tell_select(int fd)
{
	struct timeval now = {0, 0};
	fd_set r, w, e;

	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_ZERO(&e);
	FD_SET(fd, &r);
	FD_SET(fd, &w);
	FD_SET(fd, &e);
	tell(select(fd + 1, &r, &w, &e, &now));
	printf("/%d%d%d", FD_ISSET(fd, &r) != 0, FD_ISSET(fd, &w) != 0, FD_ISSET(fd, &e) != 0);
}

static void
select_of_all(void)
{
	open_both();
	tell_select(near);
	give_seen(1);
	tell_select(near);
	if (send(far, "u", 1, MSG_OOB) != 1)
		fail("an urgent byte");
	await(near, POLLPRI);
	tell_select(near);
	tell_all_read();
	tell_select(near);
	tell(recv(near, data, 1, MSG_OOB));
	tell_select(near);
	shutdown(far, SHUT_WR);
	await(near, POLLRDHUP);
	tell_select(near);
	fill();
	tell_select(near);
	close(near);
	tell_select(near);
}

/* A pending signal is delivered in the call, unless there is something to report. */
static void
masks_of_signals(void)
{
	const struct timespec limit = {600, 0};
	struct pollfd p = {.events = POLLIN};
	struct epoll_event e;
	sigset_t block, none;
	fd_set r;

	handle(SIGUSR1, SA_RESTART);
	sigemptyset(&none);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	if (sigprocmask(SIG_BLOCK, &block, NULL) != 0)
		fail("sigprocmask");
	open_set(EPOLLIN);
	p.fd = near;
	FD_ZERO(&r);
	for (int i = 0; i < 2; i++) {
		raise(SIGUSR1);
		tell(ppoll(&p, 1, &limit, &none));
		raise(SIGUSR1);
		FD_SET(near, &r);
		tell(pselect(near + 1, &r, NULL, NULL, &limit, &none));
		printf("/%d", (int)came);
		if (i == 0) {
			raise(SIGUSR1);
			tell(epoll_pwait(set, &e, 1, -1, &none));
			printf("/%d", (int)came);
			give_seen(1);
		}
	}
}

static void
limits_that_are_none(void)
{
	const struct timespec wrong = {0, 1000000000};
	struct timeval past = {-1, 0};
	struct pollfd p[3] = {{.events = POLLIN}, {.fd = -1, .events = POLLIN}, {.fd = 999}};
	fd_set r;

	open_both();
	FD_ZERO(&r);
	FD_SET(near, &r);
	tell(select(-1, &r, NULL, NULL, NULL));
	tell(select(near + 1, &r, NULL, NULL, &past));
	tell(pselect(near + 1, &r, NULL, NULL, &wrong, NULL));
	p[0].fd = near;
	tell(ppoll(p, 1, &wrong, NULL));
	tell(poll(p, 3, 0));
	printf("/%x/%x/%x", p[0].revents, p[1].revents, p[2].revents);
}

const struct same_case ready[] = {
	{"epoll, level", epoll_level},
	{"epoll, edge", epoll_edge},
	{"epoll, edge of room", epoll_edge_of_room},
	{"epoll, edges of room while the peer reads", epoll_edges_of_room},
	{"epoll, oneshot", epoll_once},
	{"epoll of duplicates", epoll_of_duplicates},
	{"epoll in epoll", epoll_in_epoll},
	{"what epoll refuses", epoll_refuses},
	{"select of all three", select_of_all},
	{"masks of signals", masks_of_signals},
	{"limits that are none", limits_that_are_none},
	{NULL, NULL},
};
