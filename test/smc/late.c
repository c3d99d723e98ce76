/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Preloaded behind whatever else is: who sends an urgent byte into a pair does so only LATE_MS
 * later, and goes on as late again, as if he had lost the processor both times.  So what he did
 * before is seen long before the byte, and what he does next comes late for whoever was woken by
 * it.  Not for ever: a long message is urgent in each of its parts.
 *
 * And each wait by epoll begins later: so the daemon, which waits so, finds several things at once.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LATE_MS 50
#define WAIT_MS 5
#define TIMES   30

ssize_t
send(int fd, const void *buf, size_t len, int flags)
{
	static _Atomic int times;
	ssize_t (*next)(int, const void *, size_t, int);
	ssize_t n;

	bool late = (flags & MSG_OOB) && atomic_fetch_add(&times, 1) < TIMES;

	*(void **)&next = dlsym(RTLD_NEXT, "send");
	if (late)
		usleep(LATE_MS * 1000);
	n = next(fd, buf, len, flags);
	if (late && n > 0)
		usleep(LATE_MS * 1000);
	return n;
}

int
epoll_wait(int epfd, struct epoll_event *events, int most, int ms)
{
	int (*next)(int, struct epoll_event *, int, int);

	*(void **)&next = dlsym(RTLD_NEXT, "epoll_wait");
	usleep(WAIT_MS * 1000);
	return next(epfd, events, most, ms);
}
