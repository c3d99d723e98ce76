/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The sockets of net_memif.  The socket at which a port of role server waits for its peer is closed
 * with the port.  A peer that does not read what it is sent is disconnected, as is a peer that
 * sends an invalid message (intr_message.c).
 *
 * The driver of DPDK 22.11 frees its data of the socket with the last device that uses the socket,
 * but leaves the socket open and its callback registered with EAL's interrupt thread.  A peer that
 * connects then makes that thread read freed memory, and loop for ever.  The same holds for a peer
 * that connected before, but only then sends the name of its device.
 *
 * This file defines, as intr_unmap.c does, the functions by which the driver registers and
 * unregisters callbacks, connect(), recvmsg(), sendmsg(), and rte_free().  When the driver frees
 * the memory that is the argument of a listening socket's callback, that callback is unregistered
 * and the socket closed; connections that it accepted are shut down, which the driver notices, and
 * frees them.
 *
 * The driver also does not unregister the callback of a connection whose peer has gone before the
 * driver could send HELLO.  The next connection then gets the same descriptor, and both callbacks
 * are called, one of them with freed memory; or EAL ends the process, because it cannot wait for a
 * descriptor that is not open.  So while a connection is accepted, the callback is unregistered
 * with the memory here, too.
 *
 * The driver answers its peer in EAL's interrupt thread, by calls that wait for room in the socket.
 * There is room, unless the peer means to block that thread; so the wait has a timeout, after which
 * the driver gives the connection up.  If the peer has gone, there is no SIGPIPE.
 *
 * The same timeout applies to connecting, while the server does not accept connections.
 *
 * A peer that connects, and does not send the name of its device, holds a descriptor of this
 * process.  The number of such connections is limited; the oldest is shut down for a new one.
 *
 * EAL calls callbacks by descriptor number: it takes several events at once, and looks up the
 * source that has the number when it processes the event.  While an earlier callback delays the
 * thread (intr_pause.c), a connection may be closed and its number reused by another one, which is
 * then called although it has no input; and the driver's callbacks wait for input.  So this file
 * registers its own callbacks, which check for input first, and unregisters them itself.
 */
#include "intr_socket.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_malloc.h>

#include "intr_message.h"
#include "karst_log.h"

#define MAX_SILENT 16u   /* connections that have sent no device name */
#define REFUSED_S  10u   /* seconds between two log lines about refused messages */
#define CONNECT_US 50000 /* timeout of connect(); the driver tries again */

/* A callback that the driver has registered: of a listening socket, or of a connection. */
struct listener_source {
	LIST_ENTRY(listener_source) next;
	rte_intr_callback_fn fn;
	void *arg;
	rte_intr_unregister_callback_fn gone; /* to be called when it was unregistered; NULL */
	int fd;
	struct rte_intr_handle *handle; /* for @fd, created here */
	bool listens;
	struct eng_memif_talk talk; /* of a connection */
};

static pthread_mutex_t listener_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, listener_source) listener_sources = LIST_HEAD_INITIALIZER(listener_sources);
static atomic_uint listener_nsources;
static _Thread_local bool listener_accepts; /* the interrupt thread is in an accept callback */

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

/* Whether the socket has a name: an accepted socket has one, a connecting socket has none. */
static bool
has_name(int fd)
{
	struct sockaddr_un name;
	socklen_t len = sizeof(name);

	return getsockname(fd, (struct sockaddr *)&name, &len) == 0 &&
		len > offsetof(struct sockaddr_un, sun_path);
}

/* Lock held.  Shuts down the oldest connection if there are too many; the driver notices. */
static void
limit_silent(void)
{
	struct listener_source *s, *oldest = NULL;
	unsigned int n = 0;

	LIST_FOREACH(s, &listener_sources, next)
		if (!s->listens && s->talk.server && !s->talk.begun && !s->talk.over) {
			oldest = s;
			n++;
		}
	if (n <= MAX_SILENT)
		return;
	oldest->talk.over = true;
	shutdown(oldest->fd, SHUT_RDWR);
}

/* @return NULL: out of memory; the driver's fault remains. */
static struct listener_source *
remember(int fd, rte_intr_callback_fn fn, void *arg)
{
	struct listener_source *s = malloc(sizeof(*s));

	if (s == NULL)
		return NULL;
	*s = (struct listener_source){.fn = fn, .arg = arg, .fd = fd, .listens = is_listening(fd)};
	s->handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	if (s->handle == NULL) {
		free(s);
		return NULL;
	}
	rte_intr_fd_set(s->handle, fd);
	if (!s->listens) {
		limit_sending(fd);
		s->talk.server = has_name(fd);
	}
	pthread_mutex_lock(&listener_lock);
	LIST_INSERT_HEAD(&listener_sources, s, next);
	limit_silent();
	/* relaxed: the thread that frees @arg got it from the one that registered it */
	atomic_fetch_add_explicit(&listener_nsources, 1, memory_order_relaxed);
	pthread_mutex_unlock(&listener_lock);
	return s;
}

/* @return NULL: no known callback has the argument @arg. */
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
	if (!s->listens)
		eng_memif_forget(&s->talk);
	rte_intr_instance_free(s->handle);
	free(s);
}

/* An accepted socket has the name of the listening socket. */
static bool
same_name(int fd, const struct sockaddr_un *name, socklen_t len)
{
	struct sockaddr_un is = {0};
	socklen_t is_len = sizeof(is);

	return getsockname(fd, (struct sockaddr *)&is, &is_len) == 0 && is_len == len &&
		memcmp(&is, name, len) == 0;
}

/* Shuts down the connections that the listening socket @fd accepted. */
static void
hang_up(int fd)
{
	struct sockaddr_un name = {0};
	socklen_t len = sizeof(name);
	const struct listener_source *s;

	/* all clients have names of length 0 */
	if (getsockname(fd, (struct sockaddr *)&name, &len) != 0 || len > sizeof(name) ||
		len <= offsetof(struct sockaddr_un, sun_path))
		return;
	pthread_mutex_lock(&listener_lock);
	LIST_FOREACH(s, &listener_sources, next)
		if (!s->listens && same_name(s->fd, &name, len))
			shutdown(s->fd, SHUT_RDWR);
	pthread_mutex_unlock(&listener_lock);
}

/* Whether there is input, or the end of the connection. */
static bool
is_ready(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};

	return poll(&p, 1, 0) > 0;
}

/* The callback of a listening socket. */
static void
listener_callback(void *arg)
{
	const struct listener_source *s = arg;

	if (!is_ready(s->fd))
		return;
	listener_accepts = true;
	s->fn(s->arg);
	listener_accepts = false;
}

/* The callback of a connection; it may free @arg. */
static void
connection_callback(void *arg)
{
	const struct listener_source *s = arg;

	if (is_ready(s->fd))
		s->fn(s->arg);
}

static void
connection_gone(struct rte_intr_handle *handle, void *arg)
{
	const struct listener_source *s = arg;

	s->gone(handle, s->arg);
}

/* @return the connection with the driver's callback @fn and argument @arg; NULL: there is none. */
static struct listener_source *
find_connection(rte_intr_callback_fn fn, const void *arg)
{
	struct listener_source *s;

	if (atomic_load_explicit(&listener_nsources, memory_order_relaxed) == 0)
		return NULL;
	pthread_mutex_lock(&listener_lock);
	LIST_FOREACH(s, &listener_sources, next)
		if (!s->listens && s->fn == fn && s->arg == arg)
			break;
	pthread_mutex_unlock(&listener_lock);
	return s;
}

static void
take_back(const struct listener_source *s)
{
	if (s->listens) {
		hang_up(s->fd);
		if (rte_intr_callback_unregister_sync(
			    s->handle, listener_callback, (void *)(uintptr_t)s) > 0)
			close(s->fd);
	} else if (listener_accepts) {
		/* the driver has closed the descriptor */
		(void)rte_intr_callback_unregister(
			s->handle, connection_callback, (void *)(uintptr_t)s);
	}
}

/* --- messages of a peer --- */

static void
note_rights(const struct msghdr *mh, bool keep, int *first, unsigned int *n)
{
	const struct cmsghdr *c;
	size_t i, have;
	int fd;

	*n = 0;
	for (c = CMSG_FIRSTHDR(mh); c != NULL;
		c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)mh, (struct cmsghdr *)(uintptr_t)c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		have = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < have; i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (!keep)
				close(fd);
			else if ((*n)++ == 0)
				*first = fd;
		}
	}
}

static void
limits_add(struct eng_memif_limits *l, const struct rte_eth_dev_info *info)
{
	const uint32_t n[2] = {info->nb_tx_queues, info->nb_rx_queues};
	unsigned int i;

	for (i = 0; i < 2; i++) {
		l->least[i] = l->most[i] == 0 ? n[i] : RTE_MIN(l->least[i], n[i]);
		l->most[i] = RTE_MAX(l->most[i], n[i]);
	}
}

/* The limits over all devices of the driver, including those below net_impair: only the driver
 * knows which device the peer names.  It does not offer devices that are not configured. */
static struct eng_memif_limits
limits_of_all(void)
{
	struct eng_memif_limits limits = {{0, 0}, {0, 0}};
	struct rte_eth_dev_info info;
	uint16_t id;

	for (id = rte_eth_find_next(0); id < RTE_MAX_ETHPORTS; id = rte_eth_find_next(id + 1))
		if (rte_eth_dev_info_get(id, &info) == 0 && info.driver_name != NULL &&
			strcmp(info.driver_name, "net_memif") == 0 && info.nb_rx_queues != 0)
			limits_add(&limits, &info);
	return limits;
}

/* @return why the message is refused; NULL: it is accepted. */
static const char *
may_not_say(int fd, const struct msghdr *mh, size_t len)
{
	const struct eng_memif_limits limits = limits_of_all();
	struct listener_source *s;
	unsigned int nfds;
	const char *why = NULL;
	int first = -1;

	note_rights(mh, true, &first, &nfds);
	pthread_mutex_lock(&listener_lock);
	LIST_FOREACH(s, &listener_sources, next)
		if (!s->listens && s->fd == fd)
			break;
	if (s != NULL &&
		!eng_memif_may_say(&s->talk, &limits, mh->msg_iov[0].iov_base, len, first, nfds))
		why = s->talk.few ? "has fewer rings than the port has queues"
				  : "says what it may not";
	pthread_mutex_unlock(&listener_lock);
	return why;
}

static atomic_ullong listener_refused;

/* In the interrupt thread.  Limits the log, since a peer may be refused as often as it likes. */
static void
say_refused(const char *why)
{
	static uint64_t said_s, unsaid;
	struct timespec now;

	atomic_fetch_add_explicit(&listener_refused, 1, memory_order_relaxed);
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (said_s != 0 && (uint64_t)now.tv_sec < said_s + REFUSED_S) {
		unsaid++;
		return;
	}
	said_s = (uint64_t)now.tv_sec;
	if (unsaid == 0)
		karst_log(
			KARST_LOG_NOTICE, "a peer of a net_memif port %s: it is disconnected", why);
	else
		karst_log(KARST_LOG_NOTICE,
			"a peer of a net_memif port %s: it is disconnected, as were %" PRIu64
			" others before of which nothing was said",
			why, unsaid);
	unsaid = 0;
}

uint64_t
karst_engine_memif_refused(void)
{
	/* relaxed: it orders nothing */
	return atomic_load_explicit(&listener_refused, memory_order_relaxed);
}

/* Defined under the names that drivers call. */
__attribute__((weak, visibility("default"))) ssize_t eng_recvmsg(
	int fd, struct msghdr *mh, int flags) __asm__("recvmsg");
__attribute__((weak, visibility("default"))) int eng_connect(
	int fd, const struct sockaddr *to, socklen_t len) __asm__("connect");
__attribute__((weak, visibility("default"))) ssize_t eng_sendmsg(
	int fd, const struct msghdr *mh, int flags) __asm__("sendmsg");
__attribute__((weak, visibility("default"))) int eng_callback_register(
	const struct rte_intr_handle *handle, rte_intr_callback_fn fn,
	void *arg) __asm__("rte_intr_callback_register");
__attribute__((weak, visibility("default"))) int eng_callback_unregister(
	const struct rte_intr_handle *handle, rte_intr_callback_fn fn,
	void *arg) __asm__("rte_intr_callback_unregister");
__attribute__((weak, visibility("default"))) int eng_callback_unregister_pending(
	const struct rte_intr_handle *handle, rte_intr_callback_fn fn, void *arg,
	rte_intr_unregister_callback_fn gone) __asm__("rte_intr_callback_unregister_pending");
__attribute__((weak, visibility("default"))) void eng_rte_free(void *mem) __asm__("rte_free");

int
eng_callback_register(const struct rte_intr_handle *handle, rte_intr_callback_fn fn, void *arg)
{
	int (*of_eal)(const struct rte_intr_handle *, rte_intr_callback_fn, void *);
	bool memif = eng_intr_is_memif(__builtin_return_address(0));
	struct listener_source *s = NULL;
	int ret;

	*(void **)&of_eal = dlsym(RTLD_NEXT, "rte_intr_callback_register");
	/* before the registration, since the interrupt thread may free @arg at once */
	if (memif)
		s = remember(rte_intr_fd_get(handle), fn, arg);
	if (s != NULL)
		ret = of_eal(handle, s->listens ? listener_callback : connection_callback, s);
	else
		ret = of_eal(handle, fn, arg);
	s = memif && ret < 0 ? take(arg) : NULL;
	if (s != NULL)
		drop(s);
	return ret;
}

int
eng_callback_unregister(const struct rte_intr_handle *handle, rte_intr_callback_fn fn, void *arg)
{
	int (*of_eal)(const struct rte_intr_handle *, rte_intr_callback_fn, void *);
	struct listener_source *s = find_connection(fn, arg);

	*(void **)&of_eal = dlsym(RTLD_NEXT, "rte_intr_callback_unregister");
	return s != NULL ? of_eal(handle, connection_callback, s) : of_eal(handle, fn, arg);
}

int
eng_callback_unregister_pending(const struct rte_intr_handle *handle, rte_intr_callback_fn fn,
	void *arg, rte_intr_unregister_callback_fn gone)
{
	int (*of_eal)(const struct rte_intr_handle *, rte_intr_callback_fn, void *,
		rte_intr_unregister_callback_fn);
	struct listener_source *s = find_connection(fn, arg);

	*(void **)&of_eal = dlsym(RTLD_NEXT, "rte_intr_callback_unregister_pending");
	if (s == NULL)
		return of_eal(handle, fn, arg, gone);
	s->gone = gone;
	return of_eal(handle, connection_callback, s, gone != NULL ? connection_gone : NULL);
}

static _Thread_local struct {
	int (*fn)(void *arg, int fd);
	void *arg;
} listener_connects;

void
karst_engine_connects(int (*fn)(void *arg, int fd), void *arg)
{
	listener_connects.fn = fn;
	listener_connects.arg = arg;
}

int
eng_connect(int fd, const struct sockaddr *to, socklen_t len)
{
	static _Atomic(uintptr_t) found;
	/* relaxed: a thread that does not see it looks it up itself */
	uintptr_t of_libc = atomic_load_explicit(&found, memory_order_relaxed);
	const struct timeval most = {.tv_usec = CONNECT_US};

	if (of_libc == 0) {
		of_libc = (uintptr_t)dlsym(RTLD_NEXT, "connect");
		atomic_store_explicit(&found, of_libc, memory_order_relaxed);
	}
	if (listener_connects.fn != NULL)
		return listener_connects.fn(listener_connects.arg, fd);
	if (to != NULL && to->sa_family == AF_UNIX &&
		eng_intr_is_memif(__builtin_return_address(0)))
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
	return ((int (*)(int, const struct sockaddr *, socklen_t))of_libc)(fd, to, len);
}

ssize_t
eng_recvmsg(int fd, struct msghdr *mh, int flags)
{
	static _Atomic(uintptr_t) found;
	/* relaxed: a thread that does not see it looks it up itself */
	uintptr_t of_libc = atomic_load_explicit(&found, memory_order_relaxed);
	const char *why;
	unsigned int n;
	ssize_t len;
	int first;

	if (of_libc == 0) {
		of_libc = (uintptr_t)dlsym(RTLD_NEXT, "recvmsg");
		atomic_store_explicit(&found, of_libc, memory_order_relaxed);
	}
	len = ((ssize_t(*)(int, struct msghdr *, int))of_libc)(fd, mh, flags);
	if (len < 0 || rte_thread_is_intr() == 0 || !eng_intr_is_memif(__builtin_return_address(0)))
		return len;
	why = may_not_say(fd, mh, (size_t)len);
	if (why == NULL)
		return len;
	note_rights(mh, false, &first, &n);
	/* length 0 is the end of the stream, or a message with only descriptors */
	if (len > 0)
		say_refused(why);
	return 0; /* as if the peer had disconnected */
}

ssize_t
eng_sendmsg(int fd, const struct msghdr *mh, int flags)
{
	static _Atomic(uintptr_t) found;
	/* relaxed: a thread that does not see it looks it up itself */
	uintptr_t of_libc = atomic_load_explicit(&found, memory_order_relaxed);

	if (of_libc == 0) {
		of_libc = (uintptr_t)dlsym(RTLD_NEXT, "sendmsg");
		atomic_store_explicit(&found, of_libc, memory_order_relaxed);
	}
	/* for all threads in which the driver sends; other callers pass flags and skip the address
	 * check */
	if ((flags & (MSG_NOSIGNAL | MSG_DONTWAIT)) == 0 &&
		eng_intr_is_memif(__builtin_return_address(0)))
		flags |= MSG_NOSIGNAL;
	return ((ssize_t(*)(int, const struct msghdr *, int))of_libc)(fd, mh, flags);
}

void
eng_rte_free(void *mem)
{
	static _Atomic(uintptr_t) found;
	/* relaxed: a thread that does not see it looks it up itself */
	uintptr_t of_eal = atomic_load_explicit(&found, memory_order_relaxed);
	struct listener_source *s = take(mem);

	if (s != NULL) {
		take_back(s);
		drop(s);
	}
	if (of_eal == 0) {
		of_eal = (uintptr_t)dlsym(RTLD_NEXT, "rte_free");
		atomic_store_explicit(&found, of_eal, memory_order_relaxed);
	}
	((void (*)(void *))of_eal)(mem);
}
