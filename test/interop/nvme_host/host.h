/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A host of NVMe over RDMA, to test targets over karst: a program of libibverbs and librdmacm that
 * does not know karst.  One thread does everything, and sleeps in poll().
 *
 * A queue is a connection with a number of commands.  A command has a capsule and room for data,
 * both registered once.  The target accesses that room by one of two kinds of keys:
 *
 *   the region's key    which gives access to all of the queue's memory; the answer is a SEND
 *   a window's key      of type 2, bound for each command to exactly its bytes, to be read or to be
 *                       written; the command asks for its invalidation, and the answer must be a
 *                       SEND with invalidation of this key
 *
 * Around the data of each command are guard bytes that must not change, and a buffer for reading is
 * overwritten first.
 *
 *   nh_cmd_get()    a free command, zero except for opcode and number
 *   nh_cmd_data()   its data, and how the target accesses it
 *   nh_cmd_post()   [bind,] SEND
 *   nh_wait()       waits until anything has happened at any queue; or nh_run(), for the answer
 *   nh_cmd_put()    checks the bytes around the data, and frees the command
 *
 * The known content of a namespace is its shadow, with which everything that is read is compared.
 * Namespaces are all zeroes at first.
 *
 * Any problem is printed and ends the program, with status 1.
 */
#ifndef NVME_HOST_H
#define NVME_HOST_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>

#include "nvme.h"

#define NH_MAX_QUEUES 8u /* for I/O */
#define NH_MAX_NS     16u

struct nh_options {
	const char *address, *port, *nqn, *hostnqn;
	uint32_t queues;  /* for I/O */
	uint32_t entries; /* of each */
	bool windows;
	uint32_t kato_ms; /* 0: none */
	uint32_t seed;
	uint32_t patience_s; /* how long to wait for a target that does nothing */
};

enum nh_dir {
	NH_NO_DATA,
	NH_TO_TARGET,
	NH_FROM_TARGET,
};

enum nh_state {
	NH_FREE,
	NH_READY,   /* not posted yet */
	NH_POSTED,  /* SEND and answer are outstanding, or one of them */
	NH_ANSWERED /* both are here */
};

struct nh_cmd {
	struct nh_queue *queue;
	uint32_t index;
	enum nh_state state;
	bool sent, came;
	uint8_t *capsule;
	uint32_t capsule_len;
	uint8_t *room; /* guard, data, guard */
	uint8_t *data;
	uint32_t len;
	enum nh_dir dir;
	bool keyed;
	struct ibv_mw *window;
	uint32_t key; /* the window's last key */
	bool bound;   /* and the target has not yet invalidated it */
	bool stale;   /* use that key for a command once more */
	uint16_t status;
	uint64_t result;
	uint64_t block; /* for io.c */
};

struct nh_shape {
	uint32_t entries;    /* one more than commands may be outstanding */
	uint32_t in_capsule; /* bytes */
	uint32_t max_data;
	uint16_t format; /* of the private data: 0, unless the target is to reject it */
};

struct nh_queue {
	struct nh *host;
	uint16_t qid;
	struct nh_shape shape;
	struct rdma_cm_id *id;
	bool happened; /* an event that no caller has waited for yet */
	enum rdma_cm_event_type event;
	int reject;
	struct ibv_cq *cq;
	uint32_t unacked;
	uint8_t *memory;
	size_t memory_len;
	struct ibv_mr *mr;
	uint8_t *answers;
	struct nh_cmd *cmd;
	const char *ended; /* the reason of its end, or NULL */
	bool gone;         /* the peer has disconnected */
	bool deaf;         /* no receives are posted any more */
};

struct nh_ns {
	uint32_t nsid;
	uint32_t shift; /* of a block's length */
	uint64_t blocks;
	uint8_t *shadow;
};

/* Counts of what the target has done, printed at the end. */
struct nh_counters {
	uint64_t commands, in_capsule, to_target, from_target, bound, invalidated;
};

struct nh {
	struct nh_options opt;
	struct rdma_event_channel *events;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct nh_queue *queue[NH_MAX_QUEUES + 1]; /* 0: admin */
	bool may_end;                              /* ends of connections are not a problem now */
	uint16_t cntlid;
	uint32_t max_data;   /* of a command */
	uint32_t in_capsule; /* of a command of an I/O queue */
	struct nh_ns ns[NH_MAX_NS];
	uint32_t nns;
	uint64_t random;
	struct nh_counters counters;
};

/* main.c.  Ends the program. */
void nh_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void nh_must(bool well, const char *what);
/* From a sequence that starts with opt.seed. */
uint32_t nh_random(struct nh *h, uint32_t below);

/* rdma.c: connections.  First device, protection domain and channels; then a request to the target
 * with NVME_RDMA_PRIV_LEN bytes of private data.  @return false: the target rejects it, *why has
 * the status from its private data, or -1 if there is none. */
void nh_rdma_resolve(struct nh_queue *queue);
bool nh_rdma_connect(struct nh_queue *queue, const uint8_t *data, int *why);
void nh_rdma_disconnect(struct nh_queue *queue);
/* Handles events of connections, if there are any. */
void nh_rdma_events(struct nh *h);
/* A connection has ended, which may be a problem. */
void nh_rdma_ended(struct nh_queue *queue, const char *why);

/* queue.c: queues and their commands. nh_queue_open() @return NULL: the target rejects it. */
struct nh_queue *nh_queue_open(struct nh *h, uint16_t qid, const struct nh_shape *shape, int *why);
void nh_queue_close(struct nh_queue *queue);
/* @return NULL: all are outstanding. */
struct nh_cmd *nh_cmd_get(struct nh_queue *queue, uint8_t opcode, uint32_t nsid);
/* @in_capsule: if the direction and the length allow it. */
void nh_cmd_data(struct nh_cmd *cmd, enum nh_dir dir, uint32_t len, bool in_capsule);
void nh_cmd_post(struct nh_cmd *cmd);
void nh_cmd_put(struct nh_cmd *cmd);
void nh_wait(struct nh *h);
/* An answer's status without the flags. */
uint16_t nh_code(const struct nh_cmd *cmd);
/* @return the status. */
uint16_t nh_run(struct nh_cmd *cmd);
/* The same, and the program ends unless its code is @status. */
void nh_run_to(struct nh_cmd *cmd, uint16_t status, const char *what);

/* ctrl.c: controllers. nh_ctrl_connect() @return the status of Connect. */
uint16_t nh_ctrl_connect(struct nh *h, const char *nqn);
/* The target must reject such a queue.  @return the status, or -1. */
int nh_ctrl_reject(struct nh *h, uint32_t entries, uint16_t format);
/* @early: Identify must be refused before that; the discovery service need not refuse it. */
void nh_ctrl_enable(struct nh *h, bool early);
void nh_ctrl_identify(struct nh *h);
void nh_ctrl_io_queues(struct nh *h);
void nh_ctrl_namespaces(struct nh *h);
void nh_ctrl_discovery(struct nh *h);
/* The first @len bytes of a log page are in the data of the command that is returned. */
struct nh_cmd *nh_ctrl_log(struct nh *h, enum nvme_log page, uint64_t offset, uint32_t len);
void nh_ctrl_keep_alive(struct nh *h, uint32_t seconds);
/* Waits until a namespace changes; prints a line when it starts. */
void nh_ctrl_event(struct nh *h);
/* Sends nothing until the target has ended all connections. */
void nh_ctrl_silence(struct nh *h);
void nh_ctrl_off(struct nh *h);

/* io.c: the contents of namespaces. */
struct nh_ns *nh_ns_of(struct nh *h, uint32_t nsid);
void nh_io_sizes(struct nh *h, struct nh_ns *ns);
void nh_io_load(struct nh *h, struct nh_ns *ns, uint32_t commands);
void nh_io_flush(struct nh *h, struct nh_ns *ns);
void nh_io_zeroes(struct nh *h, struct nh_ns *ns);
void nh_io_beyond(struct nh *h, struct nh_ns *ns);
void nh_io_unknown(struct nh *h, struct nh_ns *ns);
void nh_io_stale(struct nh *h, struct nh_ns *ns);
/* Requests as much as possible on the first I/O queue, and never posts receives for the answers. */
void nh_io_hold(struct nh *h, struct nh_ns *ns);
void nh_io_save(const struct nh_ns *ns, const char *path);

#endif
