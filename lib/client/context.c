/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Opens and closes contexts: the socket, the first exchange, the doorbells, and fork handling.
 */
#include "client_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "karst_ctl_sock.h"
#include "karst_embed.h"

#define DEFAULT_MIGRATE_MIN 65536u
#define DEFAULT_TIMEOUT_MS  30000u

/* --- fork --- */

/* The contexts of this process, in a global list, because a fork handler has no argument. */
static struct karst_mutex list_lock = KARST_MUTEX_INITIALIZER;
static LIST_HEAD(, karst_client) clients;
static pthread_once_t list_once = PTHREAD_ONCE_INIT;

static void
client_before_fork(void)
{
	karst_mutex_lock(&list_lock);
}

static void
client_in_parent(void)
{
	karst_mutex_unlock(&list_lock);
}

/* The child closes its copy of the connection; otherwise the engine would not notice the end of the
 * parent. */
static void
client_in_child(void)
{
	struct karst_client *c;

	LIST_FOREACH(c, &clients, next) {
		atomic_store_explicit(&c->state, CLI_FORKED, memory_order_relaxed);
		if (c->conn.hup_fd >= 0)
			close(c->conn.hup_fd);
	}
	LIST_INIT(&clients);
	karst_mutex_unlock(&list_lock);
}

static void
watch_forks(void)
{
	pthread_atfork(client_before_fork, client_in_parent, client_in_child);
}

static void
client_list_add(struct karst_client *c)
{
	pthread_once(&list_once, watch_forks);
	karst_mutex_lock(&list_lock);
	LIST_INSERT_HEAD(&clients, c, next);
	karst_mutex_unlock(&list_lock);
}

/* Removes the context from the list and ends its connection, if there is one.  A child that is
 * forked during that finds the socket in the list, or shut down.  Nothing is allocated or freed
 * with the lock held: programs hook the mappings that this causes, and call libkarst from the
 * hooks. */
static void
client_end(struct karst_client *c)
{
	int fd = c->conn.hup_fd;

	karst_mutex_lock(&list_lock);
	LIST_REMOVE(c, next);
	if (fd >= 0)
		shutdown(fd, SHUT_RDWR);
	karst_mutex_unlock(&list_lock);
	if (c->conn.close != NULL)
		c->conn.close(c->conn.user);
	else if (fd >= 0)
		close(fd);
}

/* --- the first exchange --- */

static int
attach_bells(struct karst_client *c, const struct karst_ctl_hello_rsp *rsp)
{
	void *at;
	uint32_t i;
	int ret = 0;

	c->bell_mask = rsp->bell_cells - 1;
	karst_mutex_lock(&c->ctl);
	for (i = 0; i < rsp->nchunks && ret == 0; i++)
		ret = cli_chunk_fetch_locked(c);
	karst_mutex_unlock(&c->ctl);
	if (ret != 0)
		return ret;
	for (i = 0; i < rsp->nlcores; i++) {
		ret = cli_place(
			c, &rsp->bell[i], karst_bell_bytes(rsp->bell_cells), "doorbell ring", &at);
		if (ret != 0)
			return ret;
		c->bell[i] = at;
	}
	return 0;
}

static int
take_hello(struct karst_client *c, const struct karst_ctl_hello_rsp *rsp, const int *fds,
	uint32_t nfds)
{
	uint32_t i;

	if (rsp->nlcores == 0 || rsp->nlcores > KARST_DIM(c->wake_fd) || nfds != rsp->nlcores + 1 ||
		!karst_is_pow2(rsp->bell_cells))
		return cli_fail(-EPROTO,
			"the engine says that it has %u lcores and %u doorbells, and sent %u "
			"descriptors",
			rsp->nlcores, rsp->bell_cells, nfds);
	if (rsp->abi != KARST_RING_ABI)
		return cli_fail(-EPROTO, "the engine's rings are of version %u, this library's %u",
			rsp->abi, KARST_RING_ABI);
	c->pub.async_fd = fds[0];
	fcntl(fds[0], F_SETFL, fcntl(fds[0], F_GETFL) & ~O_NONBLOCK);
	cli_async_open(c);
	for (i = 0; i < rsp->nlcores; i++)
		c->wake_fd[i] = fds[i + 1];
	memcpy(c->cpu, rsp->cpu, sizeof(c->cpu));
	c->polite = rsp->polite != 0;
	c->pub.nlcores = rsp->nlcores;
	c->pub.nports = rsp->nports;
	c->pub.client = rsp->client;
	memcpy(c->engine, rsp->engine, sizeof(c->engine) - 1);
	memcpy(c->version, rsp->version, sizeof(c->version) - 1);
	return attach_bells(c, rsp);
}

static int
client_hello(struct karst_client *c, const struct karst_open_attr *attr)
{
	CLI_REQ(hello) m = {.body = {.abi = KARST_RING_ABI, .port = attr->event_port}};
	const char *program = attr->program;
	struct karst_ctl_hello_rsp rsp;
	int fds[1 + KARST_DIM(c->wake_fd)];
	struct cli_reply reply = {&rsp, sizeof(rsp), fds, KARST_DIM(fds)};
	uint32_t i;
	int ret, mem = -1;

	if (program == NULL)
		program = program_invocation_short_name;
	memcpy(m.body.program, program, strnlen(program, sizeof(m.body.program) - 1));
	/* the engine copies memory through this descriptor; a program that is not dumpable cannot
	 * open it */
	if (c->conn.hup_fd >= 0)
		mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	ret = cli_call(c, KARST_CTL_HELLO, &m.hdr, sizeof(m), &mem, mem >= 0, &reply);
	if (mem >= 0)
		close(mem);
	if (ret != 0)
		return ret;
	ret = take_hello(c, &rsp, fds, reply.nfds);
	/* take_hello() did not take over the descriptors */
	if (ret != 0 && c->pub.async_fd < 0)
		for (i = 0; i < reply.nfds; i++)
			close(fds[i]);
	return ret;
}

/* --- creating and freeing --- */

static void
client_free(struct karst_client *c)
{
	uint32_t i;

	cli_chunks_unmap(c);
	if (c->pub.async_fd >= 0)
		close(c->pub.async_fd);
	for (i = 0; i < c->pub.nlcores; i++)
		close(c->wake_fd[i]);
	karst_mutex_destroy(&c->ctl);
	karst_mutex_destroy(&c->reg);
	pthread_cond_destroy(&c->acked);
	free(c->entry);
	free(c->reply);
	free(c);
}

static struct karst_client *
client_new(const struct karst_open_attr *attr)
{
	struct karst_client *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->reply = malloc(KARST_CTL_MAX);
	if (c->reply == NULL) {
		free(c);
		return NULL;
	}
	c->pub.async_fd = -1;
	c->pub.priv = c;
	c->conn.hup_fd = -1;
	c->migrate_min = attr->migrate_min != 0 ? attr->migrate_min : DEFAULT_MIGRATE_MIN;
	karst_mutex_init(&c->ctl);
	karst_mutex_init(&c->reg);
	pthread_cond_init(&c->acked, NULL);
	return c;
}

/* Attaches through the connection, which exists. */
static int
client_attach(struct karst_client *c, const struct karst_open_attr *attr)
{
	struct karst_device_attr device;
	int ret = client_hello(c, attr);

	if (ret == 0)
		ret = karst_query_device(&c->pub, &device);
	if (ret != 0)
		return ret;
	c->max_rd_atomic = device.max_qp_rd_atom;
	c->ece = device.ece != 0;
	return 0;
}

static const struct karst_open_attr defaults;

int
karst_open_conn(const struct karst_ctl_conn *conn, const struct karst_open_attr *attr,
	struct karst_context **ctx)
{
	struct karst_client *c;
	int ret;

	if (attr == NULL)
		attr = &defaults;
	c = client_new(attr);
	if (c == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	c->conn = *conn;
	client_list_add(c);
	ret = client_attach(c, attr);
	if (ret != 0) {
		/* the connection stays the caller's */
		c->conn = (struct karst_ctl_conn){.hup_fd = -1};
		client_end(c);
		client_free(c);
		return ret;
	}
	*ctx = &c->pub;
	return 0;
}

/* --- the socket --- */

static int
set_timeout(int fd, uint32_t ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) != 0 ||
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) != 0)
		return cli_fail(-errno, "setsockopt: %s", strerror(errno));
	return 0;
}

static int
connect_to(int fd, const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int err;

	if (strlen(path) >= sizeof(a.sun_path))
		return cli_fail(-EINVAL, "%s: exceeds %zu bytes, the limit of a socket path", path,
			sizeof(a.sun_path) - 1);
	memcpy(a.sun_path, path, strlen(path) + 1);
	do {
		if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
			return 0;
	} while (errno == EINTR);
	err = errno == EAGAIN ? ETIMEDOUT : errno;
	return cli_fail(-err, "%s: %s%s", path, strerror(err),
		err == ENOENT || err == ECONNREFUSED ? "; is karstd running?" : "");
}

/* Creates the socket with the list locked, so that a child that is forked now finds the socket in
 * the list and closes it: the engine keeps the program's resources as long as the connection is
 * open. */
static int
socket_conn(struct karst_client *c)
{
	struct karst_ctl_conn conn;
	int ret, fd;

	karst_mutex_lock(&list_lock);
	fd = c->conn.hup_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	karst_mutex_unlock(&list_lock);
	if (fd < 0)
		return cli_fail(-errno, "socket: %s", strerror(errno));
	ret = karst_ctl_socket_conn(fd, &conn);
	if (ret != 0)
		return cli_fail(ret, "socket: %s", strerror(-ret));
	c->conn = conn;
	return 0;
}

static int
client_connect(struct karst_client *c, const char *path, uint32_t timeout_ms)
{
	int ret = socket_conn(c);

	if (ret == 0)
		ret = set_timeout(c->conn.hup_fd, timeout_ms);
	return ret == 0 ? connect_to(c->conn.hup_fd, path) : ret;
}

static int
client_open(const char *path, const struct karst_open_attr *attr, struct karst_context **ctx)
{
	uint32_t ms = DEFAULT_TIMEOUT_MS;
	struct karst_client *c;
	int ret;

	if (attr->connect_timeout_ms != 0)
		ms = attr->connect_timeout_ms;
	if (path == NULL)
		path = secure_getenv("KARST_SOCKET");
	if (path == NULL)
		path = KARST_DEFAULT_SOCKET;
	c = client_new(attr);
	if (c == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	client_list_add(c);
	ret = client_connect(c, path, ms);
	if (ret == 0)
		ret = client_attach(c, attr);
	/* no time limit from now on: path resolution in the engine may take long */
	if (ret == 0)
		ret = set_timeout(c->conn.hup_fd, 0);
	if (ret != 0) {
		client_end(c);
		client_free(c);
		return ret;
	}
	*ctx = &c->pub;
	return 0;
}

int
karst_open(const char *path, const struct karst_open_attr *attr, struct karst_context **ctx)
{
	int cancel = karst_cancel_disable();
	int ret = client_open(path, attr != NULL ? attr : &defaults, ctx);

	karst_cancel_restore(cancel);
	return ret;
}

int
karst_close(struct karst_context *ctx)
{
	struct karst_client *c = cli_of(ctx);
	uint32_t left;
	int cancel;

	if (cli_forked(c))
		return cli_fail_forked();
	left = atomic_load(&c->nobjects);
	if (left != 0)
		return cli_fail(
			-EBUSY, "%u objects of this context are left; destroy them first", left);
	cancel = karst_cancel_disable();
	client_end(c);
	client_free(c);
	karst_cancel_restore(cancel);
	return 0;
}

void
karst_abandon(struct karst_context *ctx)
{
	struct karst_client *c = cli_of(ctx);
	uint32_t i;
	int cancel;

	if (cli_forked(c))
		return;
	cancel = karst_cancel_disable();
	/* sequentially consistent, as is the load below: wake_lcore() in post.c */
	atomic_store(&c->state, CLI_DEAD);
	/* shutting down ends a request in progress; threads that wait for ctl then find the context
	 * dead */
	if (c->conn.hup_fd >= 0)
		shutdown(c->conn.hup_fd, SHUT_RDWR);
	karst_mutex_lock(&c->ctl);
	client_end(c);
	karst_mutex_unlock(&c->ctl);
	while (atomic_load(&c->wakers) != 0)
		sched_yield();
	for (i = 0; i < c->pub.nlcores; i++)
		close(c->wake_fd[i]);
	close(c->pub.async_fd);
	karst_cancel_restore(cancel);
}
