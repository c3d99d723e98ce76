/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The RDMA transport: connections by librdmacm, capsules and data by libibverbs.  One thread does
 * it all and sleeps in epoll_wait().
 *
 * A capsule comes into a slot of its queue's and gets a request.  Data that is not in the capsule
 * needs a buffer, and a request waits until there is one:
 *
 *   to the host    buffer, command, RDMA WRITE and, right behind it, SEND
 *   from the host  buffer, RDMA READ, command, SEND
 *
 * A buffer is a request's until its SEND is acknowledged, and a host that has no room for answers
 * does not acknowledge.  So the last eighth of the buffers, and one, is for hosts that have none, a
 * host being an address, and hosts that wait are served in turn.
 *
 * Connections and controllers are shared out by addresses, too: one has three times at most of what
 * is left then for others, but what a controller takes in any case, as long as it is there.
 *
 * The slot is posted again before the SEND, so that a host that gets the answer may send at once.
 * There are twice as many requests as slots, because a request is free only when its SEND is
 * acknowledged; if none is free, capsules wait in their slots, and hosts, which have no more
 * commands than slots, wait for answers.
 *
 * The end of a connection: nr_queue_close() has the queue pair flushed and the peer told, and the
 * target forgets the queue.  When threads have none of its commands any more, and the peer has
 * answered or time is up, nr_sweep() frees it.
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
	uint32_t ack_timeout; /* 4.096 us * 2^this; 0: what the host's request says */
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
	LIST_ENTRY(nr_host) next;         /* of those at the same place */
	TAILQ_ENTRY(nr_host) waits;       /* if it has waiters: who waits longest first */
	uint64_t turn;                    /* and when it began to, or was served last */
	uint8_t address[16];              /* IPv4 as mapped */
	uint32_t nqueues;                 /* gone with the last */
	uint32_t nadmin;                  /* admin queues of these that do not end */
	uint32_t held;                    /* buffers */
	bool refused;                     /* more than its share, which was said */
	TAILQ_HEAD(, nr_request) waiters; /* for buffers, the longest first */
};

#define NR_HOST_PLACES 4096u
TAILQ_HEAD(nr_hosts, nr_host);

struct nr_request {
	struct nt_cmd cmd;            /* first: the target knows only that */
	SLIST_ENTRY(nr_request) next; /* among the free */
	bool waiting;                 /* for a buffer: */
	TAILQ_ENTRY(nr_request) waits;
	struct nr_buffer *buffer;
	uint32_t index;
	uint32_t slot; /* NO_SLOT: posted again */
};

enum nr_state {
	NR_ACCEPTED,
	NR_ESTABLISHED,
	NR_CLOSING,
};

struct nr_queue {
	struct nt_queue core; /* first: the target knows only that */
	struct nr_server *server;
	struct nr_host *host;
	LIST_ENTRY(nr_queue) next;
	bool ready; /* completions are left: */
	STAILQ_ENTRY(nr_queue) next_ready;
	enum nr_state state;
	bool peer_gone;
	uint64_t deadline_ms; /* for Connect, or for the end */
	struct nr_device *device;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	uint32_t unacked; /* events of it */
	/* memory of the queue: slots, and an answer for each request */
	uint8_t *memory;
	size_t memory_len;
	struct ibv_mr *mr;
	uint32_t nslots, slot_len;
	uint32_t *slot_used; /* bytes that came */
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
	uint32_t nadmin; /* admin queues of these that do not end */
	uint32_t nclosing;
	uint8_t *memory; /* of all buffers */
	size_t memory_len;
	struct nr_buffer *all;
	SLIST_HEAD(, nr_buffer) free;
	uint32_t nfree;
	LIST_HEAD(, nr_host) hosts[NR_HOST_PLACES]; /* by a hash with a key */
	uint64_t host_key[2];
	/* of those that have waiters: who has no buffer, and who has some */
	struct nr_hosts without, with;
	uint64_t turns;
	uint32_t nwaiters; /* for buffers, of all hosts */
	uint64_t now_ms;
	uint64_t tell_ms; /* of shares again, not before */
	bool fatal;       /* a device is gone: to be ended with an error */
	struct nr_counters counters;
};

/* What epoll_wait() says: a source, and for devices which. */
enum nr_source {
	NR_SOURCE_SIGNAL,
	NR_SOURCE_CM,
	NR_SOURCE_POOL,
	NR_SOURCE_DEVICE, /* from here on they come with a device */
	NR_SOURCE_ASYNC,
};

/* server.c.  Messages of nr_say() are told if verbose. */
int nr_watch(struct nr_server *server, int fd, enum nr_source source, struct nr_device *device);
void nr_say(const struct nr_server *server, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* rdma_mem.c */
int nr_buffers_make(struct nr_server *server);
void nr_buffers_free(struct nr_server *server);
/* NULL after a line on standard error. */
struct nr_device *nr_device_of(struct nr_server *server, struct ibv_context *verbs);
void nr_devices_free(struct nr_server *server);
/* May the host of @address have one more connection, for queue @qid?  Counted if not. */
bool nr_host_admits(struct nr_server *server, const struct sockaddr *address, uint16_t qid);
/* The host of a connection; NULL: no memory. */
struct nr_host *nr_host_get(struct nr_server *server, const struct sockaddr *address);
void nr_host_put(struct nr_server *server, struct nr_host *host);
/* A buffer for @request, or it waits for one and nr_buffers_hand_out() runs it then. */
bool nr_buffer_get(struct nr_server *server, struct nr_request *request);
/* It has none any more, and waits for none. */
void nr_buffer_put(struct nr_server *server, struct nr_request *request);
/* Once a turn, from no other queue's work: those that wait are run as far as there are buffers. */
void nr_buffers_hand_out(struct nr_server *server);

/* rdma_cm.c */
int nr_listen(struct nr_server *server, const char *address);
/* One event, if there is one. */
void nr_cm_event(struct nr_server *server);
/* Connections that end, or that wait too long for their first command. */
void nr_sweep(struct nr_server *server);
void nr_queue_close(struct nr_queue *queue, const char *why);

/* rdma_queue.c */
/* Everything but the queue pair; NULL: no memory, or the device refuses. */
struct nr_queue *nr_queue_make(
	struct nr_server *server, struct rdma_cm_id *id, uint16_t qid, uint16_t entries);
void nr_queue_free(struct nr_queue *queue);

/* rdma_io.c */
extern const struct nt_ops nr_ops;
/* Before the connection is accepted.  @return 0 or an errno. */
int nr_post_slots(struct nr_queue *queue);
void nr_request_run(struct nr_request *request);
/* One event of @device, if there is one. */
void nr_cq_event(struct nr_server *server, struct nr_device *device);
/* Some of the completions of queues that have more. */
void nr_run_ready(struct nr_server *server);

#endif
