/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The sockets of net_memif: that at which a port of role server waits for its peer goes with the
 * port, and a peer that does not read what it is sent is disconnected.
 *
 * The driver of DPDK 22.11 frees what it knows of the socket with the last device that is at it,
 * but leaves the socket open and its callback with EAL's interrupt thread: whoever connects then
 * makes that thread read freed memory, and go round for ever.  The same holds for who has connected
 * before, and says only then what device he wants.
 *
 * Two functions are ours, as in intr_unmap.c: the one by which the driver registers callbacks, and
 * rte_free().  When the memory is freed that the callback of a listening socket would be called
 * with, that callback is taken back, and the socket closed; connections that came by it are shut
 * down, of which the driver hears, and forgets them.
 *
 * The driver answers its peer in EAL's interrupt thread, by calls that wait for room in the socket.
 * A peer leaves some, unless it means to keep that thread; so the wait has an end, after which the
 * driver gives the connection up.
 */
#include "intr_socket.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_interrupts.h>
#include <rte_malloc.h>

/* What the driver has registered: a listening socket, or a connection. */
struct listener_source {
	LIST_ENTRY(listener_source) next;
	rte_intr_callback_fn fn;
	void *arg;
	int fd;
	struct rte_intr_handle *handle; /* of @fd, our own; NULL: it does not listen */
};

static pthread_mutex_t listener_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, listener_source) listener_sources = LIST_HEAD_INITIALIZER(listener_sources);
static atomic_uint listener_nsources;

bool
eng_intr_is_memif(const void *code)
{
	Dl_info where;

	return dladdr(code, &where) != 0 && where.dli_fname != NULL &&
		strstr(where.dli_fname, "librte_net_memif") != NULL;
}

static bool
is_listening(int fd)
{
	int yes = 0;
	socklen_t len = sizeof(yes);

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &len) == 0 && yes != 0;
}

static void
limit_sending(int fd)
{
	const struct timeval least = {.tv_usec = 1000};

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &least, sizeof(least));
}

/* Without memory for it the driver's fault stays. */
static void
remember(int fd, rte_intr_callback_fn fn, void *arg)
{
	struct listener_source *s = malloc(sizeof(*s));

	if (s == NULL)
		return;
	*s = (struct listener_source){.fn = fn, .arg = arg, .fd = fd};
	if (is_listening(fd)) {
		s->handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
		if (s->handle != NULL)
			rte_intr_fd_set(s->handle, fd);
	} else {
		limit_sending(fd);
	}
	pthread_mutex_lock(&listener_lock);
	LIST_INSERT_HEAD(&listener_sources, s, next);
	/* relaxed: who frees @arg has it from who registered it */
	atomic_fetch_add_explicit(&listener_nsources, 1, memory_order_relaxed);
	pthread_mutex_unlock(&listener_lock);
}

/* @return NULL: nothing known would be called with @arg. */
static struct listener_source *
take(const void *arg)
{
	struct listener_source *s;

	if (arg == NULL || atomic_load_explicit(&listener_nsources, memory_order_relaxed) == 0)
		return NULL;
	pthread_mutex_lock(&listener_lock);
	LIST_FOREACH(s, &listener_sources, next)
		if (s->arg == arg)
			break;
	if (s != NULL) {
		LIST_REMOVE(s, next);
		atomic_fetch_sub_explicit(&listener_nsources, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&listener_lock);
	return s;
}

static void
drop(struct listener_source *s)
{
	rte_intr_instance_free(s->handle);
	free(s);
}

/* A socket that was accepted has the name of the one that accepted it. */
static bool
same_name(int fd, const struct sockaddr_un *name, socklen_t len)
{
	struct sockaddr_un is = {0};
	socklen_t is_len = sizeof(is);

	return getsockname(fd, (struct sockaddr *)&is, &is_len) == 0 && is_len == len &&
		memcmp(&is, name, len) == 0;
}

/* Ends the connections that came by the listening socket @fd. */
static void
hang_up(int fd)
{
	struct sockaddr_un name = {0};
	socklen_t len = sizeof(name);
	const struct listener_source *s;

	/* a name of no length is any client's */
	if (getsockname(fd, (struct sockaddr *)&name, &len) != 0 || len > sizeof(name) ||
		len <= offsetof(struct sockaddr_un, sun_path))
		return;
	pthread_mutex_lock(&listener_lock);
	LIST_FOREACH(s, &listener_sources, next)
		if (s->handle == NULL && same_name(s->fd, &name, len))
			shutdown(s->fd, SHUT_RDWR);
	pthread_mutex_unlock(&listener_lock);
}

/* By the names that drivers look for. */
__attribute__((weak, visibility("default"))) int eng_callback_register(
	const struct rte_intr_handle *handle, rte_intr_callback_fn fn,
	void *arg) __asm__("rte_intr_callback_register");
__attribute__((weak, visibility("default"))) void eng_rte_free(void *mem) __asm__("rte_free");

int
eng_callback_register(const struct rte_intr_handle *handle, rte_intr_callback_fn fn, void *arg)
{
	int (*of_eal)(const struct rte_intr_handle *, rte_intr_callback_fn, void *);
	bool memif = eng_intr_is_memif(__builtin_return_address(0));
	struct listener_source *s;
	int ret;

	*(void **)&of_eal = dlsym(RTLD_NEXT, "rte_intr_callback_register");
	/* first, for the interrupt thread may free @arg at once */
	if (memif)
		remember(rte_intr_fd_get(handle), fn, arg);
	ret = of_eal(handle, fn, arg);
	s = memif && ret < 0 ? take(arg) : NULL;
	if (s != NULL)
		drop(s);
	return ret;
}

void
eng_rte_free(void *mem)
{
	static _Atomic(uintptr_t) found;
	/* relaxed: whoever does not see it looks himself */
	uintptr_t of_eal = atomic_load_explicit(&found, memory_order_relaxed);
	struct listener_source *s = take(mem);

	if (s != NULL && s->handle != NULL) {
		hang_up(s->fd);
		if (rte_intr_callback_unregister(s->handle, s->fn, s->arg) > 0)
			close(s->fd);
	}
	if (s != NULL)
		drop(s);
	if (of_eal == 0) {
		of_eal = (uintptr_t)dlsym(RTLD_NEXT, "rte_free");
		atomic_store_explicit(&found, of_eal, memory_order_relaxed);
	}
	((void (*)(void *))of_eal)(mem);
}
