/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * In the guest, for LD_PRELOAD: a thread that finds a completion queue empty again and again sleeps
 * for a moment between its polls.
 *
 * Ping-pongs and perftest only poll while they wait for the other end.  Without KVM that takes a
 * whole processor for QEMU, which karst at the other end and everything else on the machine would
 * lack; and on a guest's only processor it leaves less time for soft-RoCE, so that they wait
 * longer.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <time.h>

#define LOOKS  16 /* empty polls in a row; a program that waits for events never has that many */
#define NAP_NS 1000000

static int (*look)(struct ibv_cq *cq, int n, struct ibv_wc *wc);

static int
look_patiently(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	static _Thread_local int in_vain;
	int found = look(cq, n, wc);

	if (found != 0)
		in_vain = 0;
	else if (++in_vain > LOOKS)
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	return found;
}

struct ibv_context *
ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *(*open)(struct ibv_device *) = NULL;
	struct ibv_context *context;

	*(void **)&open = dlsym(RTLD_NEXT, "ibv_open_device");
	context = open != NULL ? open(device) : NULL;
	if (context != NULL) {
		look = context->ops.poll_cq; /* there is one provider in a guest */
		context->ops.poll_cq = look_patiently;
	}
	return context;
}
