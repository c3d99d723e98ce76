/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Preloaded into the daemon.  Simulates a kernel before Linux 6.16, which cannot keep descriptors
 * out of a socket.  The other calls are this kernel's.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

int
setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	int (*next)(int, int, int, const void *, socklen_t);

	if (level == SOL_SOCKET && name == SO_PASSRIGHTS) {
		errno = ENOPROTOOPT;
		return -1;
	}
	*(void **)&next = dlsym(RTLD_NEXT, "setsockopt");
	return next(fd, level, name, value, len);
}
