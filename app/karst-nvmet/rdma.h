/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The RDMA transport: connections by librdmacm, capsules and data by libibverbs.  One thread does
 * all of it and sleeps in epoll_wait().
 *
 * A capsule is received into a slot of its queue and gets a request.  Data that is not in the
 * capsule needs a buffer, and the request waits until there is one:
 *
 *   to the host    buffer, command, RDMA WRITE and, directly behind it, SEND
 *   from the host  buffer, RDMA READ, command, SEND
 *
 * A request has its buffer until its SEND is acknowledged, and a host that has no room for
 * completions does not acknowledge.  So the last eighth of the buffers, plus one, is reserved for
 * hosts that have no buffer.  A host is identified by its address.  Waiting hosts are served in
 * turn.
 *
 * Connections and controllers are shared by address as well: an address may have at most three
 * times as many as are then left for others.  One controller's connections are always allowed, as
 * long as there is room.
 *
 * The slot is posted again before the SEND, so that a host that gets the completion may send at
 * once.  There are twice as many requests as slots, because a request is free only when its SEND is
 * acknowledged.  If none is free, capsules wait in their slots, and hosts, which have no more
 * commands than slots, wait for completions.
 *
 * The end of a connection: nr_queue_close() flushes the queue pair and tells the peer, and the
 * target forgets the queue.  When no thread has a command of it any more, and the peer has answered
 * or the time limit has passed, nr_sweep() frees it.
 */
#ifndef RDMA_H
#define RDMA_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/queue.h>

#include "target.h"

#define NR_MAX_LISTEN 16u
#define NR_POLL       32

struct nr_config {
	struct nt_config target;
	char listen[NR_MAX_LISTEN][NT_ADDRESS_LEN];
	uint32_t nlisten;
	char port[8];
	uint32_t buffers;     /* of target.max_transfer bytes each */
	uint32_t ack_timeout; /* 4.096 us * 2^this; 0: the value in the host's request */
	bool verbose;
};

struct nr_buffer {
	SLIST_ENTRY(nr_buffer) next;
	uint8_t *data;
};

struct nr_device {
	SLIST_ENTRY(nr_device) next;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_mr *buffers;
	struct ibv_device_attr attr;
};

struct nr_host {
	LIST_ENTRY(nr_host) next;         /* list of the same hash value */
	TAILQ_ENTRY(nr_host) waits;       /* if it has waiters; longest wait first */
	uint64_t turn;                    /* order in which hosts began to wait or were served */
	uint8_t address[16];              /* IPv4 addresses are mapped */
	uint32_t nqueues;                 /* the host is freed with the last one */
	uint32_t nadmin;                  /* admin queues among these that are not closing */
	uint32_t held;                    /* buffers in use */
	bool refused;                     /* it was logged that its share is exceeded */
	TAILQ_HEAD(, nr_request) waiters; /* requests that wait for a buffer, longest wait first */
};

#define NR_HOST_PLACES 4096u
TAILQ_HEAD(nr_hosts, nr_host);

struct nr_request {
	struct nt_cmd cmd;            /* first member: the target knows only this part */
	SLIST_ENTRY(nr_request) next; /* list of free requests */
	bool waiting;                 /* for a buffer: */
	TAILQ_ENTRY(nr_request) waits;
	struct nr_buffer *buffer;
	uint32_t index;
	uint32_t slot; /* NO_SLOT: it was posted again */
};

enum nr_state {
	NR_ACCEPTED,
	NR_ESTABLISHED,
	NR_CLOSING,
};

struct nr_queue {
	struct nt_queue core; /* first member: the target knows only this part */
	struct nr_server *server;
	struct nr_host *host;
	LIST_ENTRY(nr_queue) next;
	bool ready; /* there may be more completions: */
	STAILQ_ENTRY(nr_queue) next_ready;
	enum nr_state state;
	bool peer_gone;
	uint64_t deadline_ms; /* time limit for Connect, or for closing */
	struct nr_device *device;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	uint32_t unacked; /* events of the completion queue */
	/* memory of the queue: slots, and a completion for each request */
	uint8_t *memory;
	size_t memory_len;
	struct ibv_mr *mr;
	uint32_t nslots, slot_len;
	uint32_t *slot_used; /* bytes received in each slot */
	uint32_t *waiting;   /* slots without a request, a ring of nslots */
	uint32_t waiting_first, nwaiting;
	uint8_t *answers;
	uint32_t nrequests;
	struct nr_request *requests;
	SLIST_HEAD(, nr_request) free;
};

STAILQ_HEAD(nr_ready, nr_queue);

struct nr_counters {
	uint64_t connections, rejected, beyond_share, lost, buffer_waits;
};

struct nr_server {
	struct nr_config config;
	struct nt_target target;
	struct nt_pool *pool;
	int epoll;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listeners[NR_MAX_LISTEN];
	uint32_t nlisteners;
	SLIST_HEAD(, nr_device) devices;
	LIST_HEAD(, nr_queue) queues;
	struct nr_ready ready;
	uint32_t nqueues;
	uint32_t nadmin; /* admin queues among these that are not closing */
	uint32_t nclosing;
	uint8_t *memory; /* memory of all buffers */
	size_t memory_len;
	struct nr_buffer *all;
	SLIST_HEAD(, nr_buffer) free;
	uint32_t nfree;
	LIST_HEAD(, nr_host) hosts[NR_HOST_PLACES]; /* hashed with a key */
	uint64_t host_key[2];
	/* hosts that have waiters: those without a buffer, and those with some */
	struct nr_hosts without, with;
	uint64_t turns;
	uint32_t nwaiters; /* requests of all hosts that wait for buffers */
	uint64_t now_ms;
	uint64_t tell_ms; /* earliest time of the next message about shares */
	bool ending;      /* no connection is accepted any more */
	bool fatal;       /* a device is gone: the server has to end with an error */
	struct nr_counters counters;
};

/* The data of an epoll event: a source, and the device if there is one. */
enum nr_source {
	NR_SOURCE_SIGNAL,
	NR_SOURCE_CM,
	NR_SOURCE_POOL,
	NR_SOURCE_DEVICE, /* this and the following have a device */
	NR_SOURCE_ASYNC,
};

/* server.c.  nr_say() prints messages if verbose. */
int nr_watch(struct nr_server *server, int fd, enum nr_source source, struct nr_device *device);
void nr_say(const struct nr_server *server, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* rdma_mem.c */
int nr_buffers_make(struct nr_server *server);
void nr_buffers_free(struct nr_server *server);
/* NULL after a line on standard error. */
struct nr_device *nr_device_of(struct nr_server *server, struct ibv_context *verbs);
void nr_devices_free(struct nr_server *server);
/* May the host of @address have one more connection, for queue @qid?  A refusal is counted. */
bool nr_host_admits(struct nr_server *server, const struct sockaddr *address, uint16_t qid);
/* Returns the host of a connection; NULL: no memory. */
struct nr_host *nr_host_get(struct nr_server *server, const struct sockaddr *address);
void nr_host_put(struct nr_server *server, struct nr_host *host);
/* Gets a buffer for @request.  @return false: the request waits, and nr_buffers_hand_out() will run
 * it. */
bool nr_buffer_get(struct nr_server *server, struct nr_request *request);
/* Takes the request's buffer back, or ends its wait. */
void nr_buffer_put(struct nr_server *server, struct nr_request *request);
/* Called once a turn, not from within the work of a queue: runs waiting requests as long as there
 * are buffers. */
void nr_buffers_hand_out(struct nr_server *server);

/* rdma_cm.c */
int nr_listen(struct nr_server *server, const char *address);
/* Handles one event, if there is one. */
void nr_cm_event(struct nr_server *server);
/* Frees connections that have ended, and closes those that wait too long for their first
 * command. */
void nr_sweep(struct nr_server *server);
void nr_queue_close(struct nr_queue *queue, const char *why);

/* rdma_queue.c */
/* Creates everything except the connection; NULL: no memory, or the device refuses. */
struct nr_queue *nr_queue_make(
	struct nr_server *server, struct rdma_cm_id *id, uint16_t qid, uint16_t entries);
void nr_queue_free(struct nr_queue *queue);

/* rdma_io.c */
extern const struct nt_ops nr_ops;
/* Called before the connection is accepted.  @return 0 or an errno. */
int nr_post_slots(struct nr_queue *queue);
void nr_request_run(struct nr_request *request);
/* Handles one event of @device, if there is one. */
void nr_cq_event(struct nr_server *server, struct nr_device *device);
/* Handles some completions of queues that have more. */
void nr_run_ready(struct nr_server *server);

#endif
