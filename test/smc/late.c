/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Preloaded after all other libraries.  A thread that sends an urgent byte into a pair does so
 * LATE_MS later, and continues only after the same time again, as if it had lost the processor both
 * times.  So the effects of its previous operations are visible long before the byte, and its next
 * operation comes late for a thread that was woken by the byte.  This happens only TIMES times,
 * because a long message is urgent in each of its parts.
 *
 * Also, each wait by epoll begins later, so the daemon, which waits this way, finds several events
 * at once.
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
