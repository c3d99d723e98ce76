/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Preloaded behind whatever else is: who has sent an urgent byte into a pair goes on only LATE_MS
 * later, as if he had lost the processor.  So what he does next comes late for whoever was woken by
 * the byte.  Not for ever: a long message is urgent in each of its parts.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define LATE_MS 100
#define TIMES   30

ssize_t
send(int fd, const void *buf, size_t len, int flags)
{
	static _Atomic int times;
	ssize_t (*next)(int, const void *, size_t, int);
	ssize_t n;

	*(void **)&next = dlsym(RTLD_NEXT, "send");
	n = next(fd, buf, len, flags);
	if (n > 0 && (flags & MSG_OOB) && atomic_fetch_add(&times, 1) < TIMES)
		usleep(LATE_MS * 1000);
	return n;
}
