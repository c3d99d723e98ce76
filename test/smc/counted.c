/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Preloaded into sockperf before all other libraries.  Its test ends when COUNT messages have been
 * answered, and not after a time.  When a time is over, one message may be under way, and sockperf
 * counts it as lost if it has been so for 50 ms.  If a message is really lost, the test does not
 * end.
 */
#include <dlfcn.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

#define COUNT 20000u

static unsigned int left;

/* Messages before this call are for warming up, and do not count. */
int
setitimer(__itimer_which_t which, const struct itimerval *new, struct itimerval *old)
{
	(void)which;
	(void)new;
	(void)old;
	left = COUNT;
	return 0;
}

ssize_t
recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
	ssize_t (*next)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
	ssize_t n;

	*(void **)&next = dlsym(RTLD_NEXT, "recvfrom");
	n = next(fd, buf, len, flags, from, from_len);
	if (n > 0 && left > 0 && --left == 0)
		raise(SIGALRM);
	return n;
}
