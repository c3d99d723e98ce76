/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Connects the parts of the server, and runs its one loop. */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "pool.h"
#include "rdma.h"

#define TICK_MS     100
#define NEVENTS     16
#define SOURCE_BITS 7u /* free because pointers to devices are aligned */

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void
nr_say(const struct nr_server *server, const char *format, ...)
{
	char text[256];
	va_list ap;

	if (!server->config.verbose)
		return;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	fprintf(stderr, "karst-nvmet: %s\n", text);
}

/* The descriptor is non-blocking: between epoll_wait() and the call that fetches an event, the
 * event may disappear together with its queue. */
int
nr_watch(struct nr_server *server, int fd, enum nr_source source, struct nr_device *device)
{
	struct epoll_event event = {
		.events = EPOLLIN, .data.u64 = (uint64_t)(uintptr_t)device | source};
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
		return -errno;
	return epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0 ? -errno : 0;
}

static int
listen_all(struct nr_server *server)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < server->config.nlisten; i++)
		rc = nr_listen(server, server->config.listen[i]);
	return rc;
}

int
nr_server_start(struct nr_server *server, const struct nr_config *config)
{
	memset(server, 0, sizeof(*server));
	server->config = *config;
	TAILQ_INIT(&server->without);
	TAILQ_INIT(&server->with);
	STAILQ_INIT(&server->ready);
	server->now_ms = now_ms();
	if (getrandom(server->host_key, sizeof(server->host_key), 0) != sizeof(server->host_key))
		return -EIO;
	server->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (server->epoll < 0 || nr_buffers_make(server) != 0)
		return -ENOMEM;
	server->channel = rdma_create_event_channel();
	if (server->channel == NULL) {
		fprintf(stderr,
			"karst-nvmet: rdma_create_event_channel: %s; is there an RDMA device? "
			"(karst-run brings one)\n",
			strerror(errno));
		return -ENODEV;
	}
	return nr_watch(server, server->channel->fd, NR_SOURCE_CM, NULL);
}

int
nr_server_open(struct nr_server *server)
{
	int rc = nr_watch(server, nt_pool_fd(server->pool), NR_SOURCE_POOL, NULL);

	return rc == 0 ? listen_all(server) : rc;
}

static void
listen_no_more(struct nr_server *server)
{
	while (server->nlisteners > 0)
		rdma_destroy_id(server->listeners[--server->nlisteners]);
}

void
nr_server_stop(struct nr_server *server)
{
	listen_no_more(server);
	nr_devices_free(server);
	if (server->channel != NULL)
		rdma_destroy_event_channel(server->channel);
	nr_buffers_free(server);
	if (server->epoll >= 0)
		close(server->epoll);
}

void
nr_server_print(const struct nr_server *server)
{
	const struct nt_counters *t = &server->target.counters;
	const struct nr_counters *c = &server->counters;

	fprintf(stderr,
		"connections %" PRIu64 ", rejected %" PRIu64 " (%" PRIu64
		" beyond an address's share), lost %" PRIu64 ", there are %u now\n"
		"controllers %" PRIu64 " and for discovery %" PRIu64 ", expired %" PRIu64
		"; Connects refused %" PRIu64 "\n"
		"commands: admin %" PRIu64 ", read %" PRIu64 ", write %" PRIu64 ", other %" PRIu64
		"; failed %" PRIu64 "\n"
		"bytes read %" PRIu64 ", written %" PRIu64 "; waits for a buffer %" PRIu64 "\n",
		c->connections, c->rejected, c->beyond_share, c->lost, server->nqueues, t->ctrls,
		t->discovery_ctrls, t->expired, t->refused, t->admin, t->reads, t->writes,
		t->others, t->failed, t->read_bytes, t->written_bytes, c->buffer_waits);
}

static void
server_async_event(struct nr_server *server, struct nr_device *device)
{
	struct ibv_async_event event;

	if (ibv_get_async_event(device->verbs, &event) != 0)
		return;
	if (event.event_type == IBV_EVENT_DEVICE_FATAL) {
		fprintf(stderr, "karst-nvmet: device %s is gone\n",
			ibv_get_device_name(device->verbs->device));
		server->fatal = true;
	}
	ibv_ack_async_event(&event);
}

/* @return true: the server has to end. */
static bool
got_signal(struct nr_server *server, int fd)
{
	struct signalfd_siginfo info;
	uint32_t n;

	if (read(fd, &info, sizeof(info)) != sizeof(info))
		return false;
	switch (info.ssi_signo) {
	case SIGUSR1:
		nr_server_print(server);
		return false;
	case SIGHUP:
		n = nt_target_refresh(&server->target);
		nr_say(server, "%u namespaces have another size", n);
		return false;
	default:
		return true;
	}
}

static bool
got_event(struct nr_server *server, const struct epoll_event *event, int signals)
{
	struct nr_device *device =
		(struct nr_device *)(uintptr_t)(event->data.u64 & ~(uint64_t)SOURCE_BITS);

	switch (event->data.u64 & SOURCE_BITS) {
	case NR_SOURCE_SIGNAL:
		return got_signal(server, signals);
	case NR_SOURCE_CM:
		nr_cm_event(server);
		return false;
	case NR_SOURCE_POOL:
		nt_target_reap(&server->target);
		return false;
	case NR_SOURCE_DEVICE:
		nr_cq_event(server, device);
		return false;
	default:
		server_async_event(server, device);
		return false;
	}
}

/* @return true: the server has to end. */
static bool
server_turn(struct nr_server *server, int signals)
{
	struct epoll_event events[NEVENTS];
	bool end = false;
	int timeout, n, i;

	timeout = !STAILQ_EMPTY(&server->ready) ? 0 : server->nqueues > 0 ? TICK_MS : -1;
	n = epoll_wait(server->epoll, events, NEVENTS, timeout);
	server->now_ms = now_ms();
	for (i = 0; i < n; i++)
		end = got_event(server, &events[i], signals) || end;
	nr_run_ready(server);
	nt_target_tick(&server->target, server->now_ms);
	nr_sweep(server);
	nr_buffers_hand_out(server);
	return end || server->fatal;
}

static void
close_all(struct nr_server *server, int signals)
{
	struct nr_queue *queue;

	server->ending = true;
	listen_no_more(server);
	LIST_FOREACH(queue, &server->queues, next)
		nr_queue_close(queue, "the target ends");
	while (server->nqueues > 0) {
		/* A device that is gone gives no answer. */
		if (server->fatal)
			LIST_FOREACH(queue, &server->queues, next)
				queue->peer_gone = true;
		server_turn(server, signals);
	}
}

int
nr_server_run(struct nr_server *server, int signals)
{
	int rc = nr_watch(server, signals, NR_SOURCE_SIGNAL, NULL);

	if (rc != 0)
		return rc;
	while (!server_turn(server, signals))
		;
	close_all(server, signals);
	return server->fatal ? -ENODEV : 0;
}
