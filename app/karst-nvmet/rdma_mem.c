/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Buffers, the devices that they are registered with, and the hosts that share them. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "rdma.h"

#define TELL_MS 10000u /* minimum time between two messages about shares */

int
nr_buffers_make(struct nr_server *server)
{
	const struct nr_config *config = &server->config;
	void *memory;
	uint32_t i;

	server->memory_len = (size_t)config->buffers * config->target.max_transfer;
	memory = mmap(NULL, server->memory_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	server->all = calloc(config->buffers, sizeof(server->all[0]));
	if (memory == MAP_FAILED || server->all == NULL) {
		fprintf(stderr, "karst-nvmet: %u buffers of %u bytes: no memory\n", config->buffers,
			config->target.max_transfer);
		if (memory != MAP_FAILED)
			munmap(memory, server->memory_len);
		free(server->all);
		server->all = NULL;
		return -ENOMEM;
	}
	server->memory = memory;
	for (i = 0; i < config->buffers; i++) {
		server->all[i].data = server->memory + (size_t)i * config->target.max_transfer;
		SLIST_INSERT_HEAD(&server->free, &server->all[i], next);
	}
	server->nfree = config->buffers;
	return 0;
}

void
nr_buffers_free(struct nr_server *server)
{
	if (server->memory != NULL)
		munmap(server->memory, server->memory_len);
	free(server->all);
}

static void
device_free(struct nr_device *device)
{
	if (device->buffers != NULL)
		ibv_dereg_mr(device->buffers);
	if (device->channel != NULL)
		ibv_destroy_comp_channel(device->channel);
	if (device->pd != NULL)
		ibv_dealloc_pd(device->pd);
	free(device);
}

void
nr_devices_free(struct nr_server *server)
{
	struct nr_device *device;

	while ((device = SLIST_FIRST(&server->devices)) != NULL) {
		SLIST_REMOVE_HEAD(&server->devices, next);
		device_free(device);
	}
}

struct nr_device *
nr_device_of(struct nr_server *server, struct ibv_context *verbs)
{
	struct nr_device *device;

	SLIST_FOREACH(device, &server->devices, next)
		if (device->verbs == verbs)
			return device;
	device = calloc(1, sizeof(*device));
	if (device == NULL)
		return NULL;
	device->verbs = verbs;
	device->pd = ibv_alloc_pd(verbs);
	device->channel = ibv_create_comp_channel(verbs);
	if (device->pd != NULL)
		device->buffers = ibv_reg_mr(
			device->pd, server->memory, server->memory_len, IBV_ACCESS_LOCAL_WRITE);
	if (device->buffers == NULL || device->channel == NULL ||
		ibv_query_device(verbs, &device->attr) != 0 ||
		nr_watch(server, device->channel->fd, NR_SOURCE_DEVICE, device) != 0 ||
		nr_watch(server, verbs->async_fd, NR_SOURCE_ASYNC, device) != 0) {
		fprintf(stderr, "karst-nvmet: device %s: %s\n", ibv_get_device_name(verbs->device),
			strerror(errno));
		device_free(device);
		return NULL;
	}
	SLIST_INSERT_HEAD(&server->devices, device, next);
	return device;
}

/* --- hosts --- */

static void
host_key(const struct sockaddr *address, uint8_t key[16])
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
	const struct sockaddr_in *in = (const struct sockaddr_in *)address;

	memset(key, 0, 16);
	key[10] = key[11] = 0xff;
	if (address->sa_family == AF_INET6)
		memcpy(key, &in6->sin6_addr, 16);
	else if (address->sa_family == AF_INET)
		memcpy(key + 12, &in->sin_addr, 4);
}

/* Peers choose addresses, but do not know the key: so the probability that two addresses have the
 * same place does not depend on their choice. */
static uint32_t
host_place(const struct nr_server *server, const uint8_t key[16])
{
	uint64_t words[2];
	unsigned __int128 product;

	memcpy(words, key, sizeof(words));
	product = (unsigned __int128)(words[0] ^ server->host_key[0]) *
		(words[1] ^ server->host_key[1]);
	return (uint32_t)((uint64_t)(product >> 64) ^ (uint64_t)product) % NR_HOST_PLACES;
}

static struct nr_host *
host_find(const struct nr_server *server, const uint8_t key[16])
{
	struct nr_host *host;

	LIST_FOREACH(host, &server->hosts[host_place(server, key)], next)
		if (memcmp(host->address, key, sizeof(host->address)) == 0)
			return host;
	return NULL;
}

/* Is @mine, including what is asked for, within the share if @left are then left for others? */
static bool
share_admits(uint32_t mine, uint32_t left)
{
	return mine <= 3 * left;
}

static bool
may_connect(const struct nr_server *server, const struct nr_host *host)
{
	const struct nt_config *config = &server->config.target;
	uint32_t a_ctrl = config->max_io + 1, mine = host->nqueues + 1;
	uint32_t used = server->nqueues + 1, all = config->max_ctrls * a_ctrl;

	if (mine <= a_ctrl)
		return true;
	/* a remainder smaller than a controller is of no use to others */
	return share_admits((mine + a_ctrl - 1) / a_ctrl, used < all ? (all - used) / a_ctrl : 0);
}

static bool
may_control(const struct nr_server *server, const struct nr_host *host)
{
	uint32_t used = server->nadmin + 1, all = server->config.target.max_ctrls;

	return host->nadmin == 0 || share_admits(host->nadmin + 1, used < all ? all - used : 0);
}

/* Logs once for each address, and not too often in total. */
static void
tell_refused(struct nr_server *server, struct nr_host *host, const struct sockaddr *address)
{
	socklen_t len = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						       : sizeof(struct sockaddr_in);
	char name[NT_ADDRESS_LEN];

	if (host->refused || server->now_ms < server->tell_ms)
		return;
	host->refused = true;
	server->tell_ms = server->now_ms + TELL_MS;
	if (getnameinfo(address, len, name, sizeof(name), NULL, 0, NI_NUMERICHOST) != 0)
		name[0] = '\0';
	fprintf(stderr,
		"karst-nvmet: %s has %u connections, %u of them for admin queues, and gets no "
		"more: an address has three times at most of what is left for others; "
		"--controllers makes more of both\n",
		name, host->nqueues, host->nadmin);
}

bool
nr_host_admits(struct nr_server *server, const struct sockaddr *address, uint16_t qid)
{
	struct nr_host *host;
	uint8_t key[16];

	host_key(address, key);
	host = host_find(server, key);
	if (host == NULL || (may_connect(server, host) && (qid != 0 || may_control(server, host))))
		return true;
	server->counters.beyond_share++;
	tell_refused(server, host, address);
	return false;
}

struct nr_host *
nr_host_get(struct nr_server *server, const struct sockaddr *address)
{
	struct nr_host *host;
	uint8_t key[16];

	host_key(address, key);
	host = host_find(server, key);
	if (host == NULL && (host = calloc(1, sizeof(*host))) != NULL) {
		memcpy(host->address, key, sizeof(key));
		TAILQ_INIT(&host->waiters);
		LIST_INSERT_HEAD(&server->hosts[host_place(server, key)], host, next);
	}
	if (host != NULL)
		host->nqueues++;
	return host;
}

void
nr_host_put(struct nr_server *server, struct nr_host *host)
{
	if (--host->nqueues != 0)
		return;
	LIST_REMOVE(host, next);
	free(host);
}

/* --- the hosts' use of buffers --- */

static struct nr_host *
host_of(const struct nr_request *request)
{
	return ((struct nr_queue *)request->cmd.queue)->host;
}

/* Are only reserve buffers left, which are for hosts without any? */
static bool
is_reserve(const struct nr_server *server)
{
	return server->nfree <= server->config.buffers / 8 + 1;
}

static struct nr_hosts *
waits_in(struct nr_server *server, const struct nr_host *host)
{
	return host->held == 0 ? &server->without : &server->with;
}

/* Puts a host that has waiters behind all others. */
static void
host_waits(struct nr_server *server, struct nr_host *host)
{
	host->turn = server->turns++;
	TAILQ_INSERT_TAIL(waits_in(server, host), host, waits);
}

/* Adds @more, which is 1 or -1, to the number of buffers of a host. */
static void
host_holds(struct nr_server *server, struct nr_host *host, int more)
{
	bool moves = !TAILQ_EMPTY(&host->waiters) &&
		(host->held == 0 || host->held + (uint32_t)more == 0);

	if (moves)
		TAILQ_REMOVE(waits_in(server, host), host, waits);
	host->held += (uint32_t)more;
	if (moves)
		host_waits(server, host);
}

static bool
buffer_take(struct nr_server *server, struct nr_request *request)
{
	struct nr_host *host = host_of(request);

	if (is_reserve(server) && host->held != 0)
		return false;
	request->buffer = SLIST_FIRST(&server->free);
	if (request->buffer == NULL)
		return false;
	SLIST_REMOVE_HEAD(&server->free, next);
	server->nfree--;
	host_holds(server, host, 1);
	return true;
}

bool
nr_buffer_get(struct nr_server *server, struct nr_request *request)
{
	/* requests that wait already come first */
	if (server->nwaiters == 0 && buffer_take(server, request))
		return true;
	server->counters.buffer_waits++;
	server->nwaiters++;
	request->waiting = true;
	if (TAILQ_EMPTY(&host_of(request)->waiters))
		host_waits(server, host_of(request));
	TAILQ_INSERT_TAIL(&host_of(request)->waiters, request, waits);
	return false;
}

static void
waits_no_more(struct nr_server *server, struct nr_request *request)
{
	struct nr_host *host = host_of(request);

	TAILQ_REMOVE(&host->waiters, request, waits);
	if (TAILQ_EMPTY(&host->waiters))
		TAILQ_REMOVE(waits_in(server, host), host, waits);
	request->waiting = false;
	server->nwaiters--;
}

void
nr_buffer_put(struct nr_server *server, struct nr_request *request)
{
	struct nr_buffer *buffer = request->buffer;

	if (request->waiting)
		waits_no_more(server, request);
	request->buffer = NULL;
	if (buffer == NULL)
		return;
	SLIST_INSERT_HEAD(&server->free, buffer, next);
	server->nfree++;
	host_holds(server, host_of(request), -1);
}

/* Returns the first request of the next host that may have a buffer, with a buffer; NULL: none. */
static struct nr_request *
next_waiter(struct nr_server *server)
{
	struct nr_host *host = TAILQ_FIRST(&server->without), *other = TAILQ_FIRST(&server->with);
	struct nr_request *request;

	if (host == NULL || (other != NULL && other->turn < host->turn && !is_reserve(server)))
		host = other;
	request = host != NULL ? TAILQ_FIRST(&host->waiters) : NULL;
	if (request == NULL || !buffer_take(server, request))
		return NULL;
	waits_no_more(server, request);
	if (!TAILQ_EMPTY(&host->waiters)) {
		TAILQ_REMOVE(waits_in(server, host), host, waits);
		host_waits(server, host);
	}
	return request;
}

void
nr_buffers_hand_out(struct nr_server *server)
{
	struct nr_request *request;

	while (server->nwaiters != 0 && (request = next_waiter(server)) != NULL)
		nr_request_run(request);
}
