/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Preloaded after libkarst-sockets.so.  Prints at the end how many calls of recvmsg() did not wait.
 * In a program that receives no messages itself these are polls for the service's answers.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>

static _Atomic unsigned int looked_times;

ssize_t
recvmsg(int fd, struct msghdr *msg, int flags)
{
	ssize_t (*next)(int, struct msghdr *, int);

	*(void **)&next = dlsym(RTLD_NEXT, "recvmsg");
	if (flags & MSG_DONTWAIT)
		atomic_fetch_add(&looked_times, 1);
	return next(fd, msg, flags);
}

static void __attribute__((destructor)) looked_end(void)
{
	fprintf(stderr, "looked %u\n", atomic_load(&looked_times));
}
