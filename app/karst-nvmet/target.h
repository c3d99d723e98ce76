/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The target without its transport: an NVM subsystem, its discovery service, the controllers that
 * hosts have created, and the execution of their commands.
 *
 * The transport calls the following steps of a command, on its one thread:
 *
 *   nt_cmd_begin()    parses the capsule: direction and length of the data, and its address
 *   nt_cmd_execute()  called with the host's data, or with room for data to the host
 *   ops->complete()   later, or from within: status and result are set; to send, nt_cmd_cqe()
 *
 * A command that fails in nt_cmd_begin() is completed at once.  Threads (pool.h) read and write
 * files; they access only the command, its data and its namespace.  All other work is done on the
 * transport's thread, so nothing here takes a lock.
 *
 * Everything that comes from a host is checked: sizes and types of descriptors, ranges, strings.
 * The sizes of tables are in struct nt_config.
 */
#ifndef TARGET_H
#define TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "nvme.h"

#define NT_MAX_NS      16u
#define NT_MAX_HOSTS   16u
#define NT_MAX_IO      64u /* I/O queues of a controller */
#define NT_MAX_CTRLS   1024u
#define NT_AERS        4u
#define NT_ERRORS      16u /* entries of the error log */
#define NT_ADDRESS_LEN 64u
#define NT_CONNECT_MS  10000u /* time limit for Connect, from the connection on */

struct nt_ns;
struct nt_pool;

struct nt_config {
	char nqn[NVME_NQN_LEN + 1];
	char hosts[NT_MAX_HOSTS][NVME_NQN_LEN + 1];
	uint32_t nhosts; /* hosts that may connect; 0: all */
	uint32_t max_ctrls;
	uint32_t max_io;       /* I/O queues of a controller */
	uint32_t queue_size;   /* maximum number of entries */
	uint32_t in_capsule;   /* maximum bytes of data in the capsule of an I/O command */
	uint32_t max_transfer; /* maximum bytes of a command; pages times a power of two */
};

struct nt_counters {
	uint64_t ctrls, discovery_ctrls, expired, refused;
	uint64_t admin, reads, writes, others, failed;
	uint64_t read_bytes, written_bytes;
};

enum nt_dir {
	NT_NO_DATA,
	NT_FROM_HOST,
	NT_TO_HOST,
};

struct nt_queue;
struct nt_target;

/* A command.  It is part of a structure of the transport, which keeps it until complete(). */
struct nt_cmd {
	struct nt_queue *queue;
	uint8_t sqe[NVME_SQE_LEN]; /* a copy, so that the host cannot change it */
	/* set by nt_cmd_begin() */
	enum nt_dir dir;
	uint32_t len;   /* bytes of data */
	uint8_t *data;  /* [len]; in the capsule, or set by the transport */
	uint64_t raddr; /* address at the host, if the data is not in the capsule */
	uint32_t rkey;
	bool in_capsule;
	bool invalidate; /* invalidate @rkey with the completion */
	/* set before ops->complete() */
	uint16_t status;
	uint64_t result;
	/* while a thread works on it */
	struct nt_ns *ns;
	void (*work)(struct nt_cmd *cmd);
	STAILQ_ENTRY(nt_cmd) next;
};

STAILQ_HEAD(nt_cmds, nt_cmd);

/* A connection.  It is part of a structure of the transport. */
struct nt_queue {
	struct nt_target *target;
	struct nt_ctrl *ctrl; /* NULL before Connect, and after the end of the controller */
	uint16_t qid;
	uint16_t max_size; /* entries that the transport has room for */
	uint16_t size;     /* entries that Connect has set */
	uint16_t sqhd;
	bool no_sq_flow;
	uint32_t working; /* commands that threads work on: the queue must not be freed before
			   * this is 0 */
	/* address by which the host has reached this target, for the discovery log */
	bool ipv6;
	char address[NT_ADDRESS_LEN];
	char port[8];
};

struct nt_error {
	uint64_t count;
	uint16_t sqid, cid, status;
	uint32_t nsid;
	uint64_t lba;
};

struct nt_ctrl {
	uint16_t cntlid;
	bool discovery;
	char hostnqn[NVME_NQN_LEN + 1];
	uint8_t hostid[NVME_HOSTID_LEN];
	uint32_t cc, csts;
	uint32_t kato_ms; /* 0: no timer */
	uint64_t deadline_ms;
	uint32_t io_queues; /* that the host may connect */
	struct nt_queue *queues[1 + NT_MAX_IO];
	struct nt_cmd *aers[NT_AERS];
	uint32_t naers;
	/* features */
	uint32_t async_events, arbitration, temperature, error_recovery, write_atomicity;
	uint64_t changed_ns; /* a bit for each namespace, for the log page; and whether an event
			      * is due */
	bool tell_changed_ns;
	uint64_t nerrors;
	struct nt_error errors[NT_ERRORS];
};

/* Functions that the transport provides to the target. */
struct nt_ops {
	/* @cmd has its status and result; data to the host is in cmd->data. */
	void (*complete)(struct nt_cmd *cmd);
	/* The connection has to end.  Its controller is gone; nt_queue_gone() may still be called,
	 * also from within. */
	void (*close)(struct nt_queue *queue);
};

struct nt_target {
	struct nt_config config;
	const struct nt_ops *ops;
	struct nt_pool *pool;
	struct nt_ns *ns[NT_MAX_NS]; /* NSID 1 first */
	uint32_t nns;
	struct nt_ctrl **ctrls; /* [config.max_ctrls]; some are NULL */
	uint16_t last_cntlid;
	uint64_t now_ms;     /* of the last nt_target_tick() */
	uint64_t generation; /* of the discovery log */
	struct nt_counters counters;
};

/*
 * Creates a target without namespaces.  @pool: threads for namespaces that are files.
 * @return 0, -ENOMEM.
 */
int nt_target_init(struct nt_target *target, const struct nt_config *config,
	const struct nt_ops *ops, struct nt_pool *pool);
/* Called when all connections are gone.  Closes the namespaces. */
void nt_target_fini(struct nt_target *target);

/* Adds @ns, which then belongs to the target, and gives it its number.  @return 0, -ENOSPC. */
int nt_target_add_ns(struct nt_target *target, struct nt_ns *ns);

/* Reads the sizes of files again; hosts whose namespaces have changed get an event.  @return how
 * many. */
uint32_t nt_target_refresh(struct nt_target *target);

/* Advances the time, and ends controllers that were not kept alive.  Called every 100 ms if there
 * are connections; if it comes more than a second late, their hosts have that time in addition. */
void nt_target_tick(struct nt_target *target, uint64_t now_ms);

/*
 * Parses the private data of a connection request.
 *
 * @param data of @len bytes, which may be more than the host sent
 * @param qid, entries set on success
 * @return NVME_RDMA_ACCEPT, or the reason for the REJ.
 */
enum nvme_rdma_reject nt_request_parse(const struct nt_config *config, const uint8_t *data,
	uint32_t len, uint16_t *qid, uint16_t *entries);

/* Initialises a connection that exists, or is being created; @entries commands at a time. */
void nt_queue_init(
	struct nt_queue *queue, struct nt_target *target, uint16_t qid, uint16_t entries);
/* The connection is gone.  The controller of an admin queue ends with it.  Its commands are not
 * completed. */
void nt_queue_gone(struct nt_queue *queue);

/*
 * Begins the command in a received capsule of @len bytes.  The capsule must stay until the command
 * is complete, if it contains data.
 *
 * @return true: continue; false: cmd->status is the error, and the command has to be completed.
 */
bool nt_cmd_begin(struct nt_cmd *cmd, struct nt_queue *queue, uint8_t *capsule, uint32_t len);
void nt_cmd_execute(struct nt_cmd *cmd);
/* Completes the commands that threads have finished. */
void nt_target_reap(struct nt_target *target);
/* Builds the completion, NVME_CQE_LEN bytes.  Call once for each command, in the order in which
 * they are sent. */
void nt_cmd_cqe(struct nt_cmd *cmd, uint8_t *cqe);

/* Returns the size of a capsule of queue @qid. */
static inline uint32_t
nt_capsule_len(const struct nt_config *config, uint16_t qid)
{
	return NVME_SQE_LEN + (qid == 0 ? 0 : config->in_capsule);
}

#endif
