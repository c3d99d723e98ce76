/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Preloaded into the daemon.  Before the service shuts down a pair, it waits for a byte of the
 * program, which then is never read, as if the program had sent it at that moment.
 */
#include <dlfcn.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOKS 1000 /* 1 s: most programs send none */

int
shutdown(int fd, int how)
{
	int (*next)(int, int), domain = 0, there = 0, i;
	socklen_t len = sizeof(domain);

	if (how == SHUT_RDWR && getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
		domain == AF_UNIX)
		for (i = 0; i < LOOKS && ioctl(fd, FIONREAD, &there) == 0 && there == 0; i++)
			usleep(1000);
	*(void **)&next = dlsym(RTLD_NEXT, "shutdown");
	return next(fd, how);
}
