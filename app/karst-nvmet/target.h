/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The target without its transport: one NVM subsystem, the discovery service beside it, the
 * controllers that hosts have made, and what becomes of their commands.
 *
 * A command goes through these steps, called by the transport on its one thread:
 *
 *   nt_cmd_begin()    the capsule is read: which way data goes, how much, and where the host has it
 *   nt_cmd_execute()  with the data of the host at hand, or room for the answer
 *   ops->complete()   later, or from within: status and result are there; to send, nt_cmd_cqe()
 *
 * A command that has failed in nt_cmd_begin() is answered at once.  Files are read and written by
 * threads (pool.h), which see the command, its data and its namespace, and nothing else; all other
 * work is done on the transport's thread, so that nothing here takes a lock.
 *
 * Whatever comes from a host is checked: sizes and types of descriptors, ranges, strings.  Tables
 * have the sizes of struct nt_config.
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
#define NT_CONNECT_MS  10000u /* for Connect, from when there is a connection */

struct nt_ns;
struct nt_pool;

struct nt_config {
	char nqn[NVME_NQN_LEN + 1];
	char hosts[NT_MAX_HOSTS][NVME_NQN_LEN + 1];
	uint32_t nhosts; /* that may connect; 0: all */
	uint32_t max_ctrls;
	uint32_t max_io;       /* I/O queues of a controller */
	uint32_t queue_size;   /* entries, at the most */
	uint32_t in_capsule;   /* bytes of data that an I/O command may have in its capsule */
	uint32_t max_transfer; /* bytes of a command; a power of two of pages */
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

/* A command.  The transport has it in a structure of its own, and keeps it until complete(). */
struct nt_cmd {
	struct nt_queue *queue;
	uint8_t sqe[NVME_SQE_LEN]; /* copied: a host may not change it any more */
	/* of nt_cmd_begin() */
	enum nt_dir dir;
	uint32_t len;   /* bytes of data */
	uint8_t *data;  /* of @len; in the capsule, or set by the transport */
	uint64_t raddr; /* the host's memory, if the data is not in the capsule */
	uint32_t rkey;
	bool in_capsule;
	bool invalidate; /* @rkey, with the answer */
	/* of ops->complete() */
	uint16_t status;
	uint64_t result;
	/* while a thread has it */
	struct nt_ns *ns;
	void (*work)(struct nt_cmd *cmd);
	STAILQ_ENTRY(nt_cmd) next;
};

STAILQ_HEAD(nt_cmds, nt_cmd);

/* A connection.  The transport has it in a structure of its own. */
struct nt_queue {
	struct nt_target *target;
	struct nt_ctrl *ctrl; /* NULL before Connect, and when the controller has ended */
	uint16_t qid;
	uint16_t max_size; /* entries for which the transport has made room */
	uint16_t size;     /* entries, of Connect */
	uint16_t sqhd;
	bool no_sq_flow;
	uint32_t working; /* commands that threads have: not to be freed before it is 0 */
	/* how the host has reached this target, for the discovery log */
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
	uint64_t changed_ns; /* a bit each: the log page, and whether to tell of it */
	bool tell_changed_ns;
	uint64_t nerrors;
	struct nt_error errors[NT_ERRORS];
};

/* What the transport does for the target. */
struct nt_ops {
	/* @cmd has its status and result; data to the host is in cmd->data. */
	void (*complete)(struct nt_cmd *cmd);
	/* The connection is to end.  Its controller is gone; nt_queue_gone() may be called all the
	 * same, and from within. */
	void (*close)(struct nt_queue *queue);
};

struct nt_target {
	struct nt_config config;
	const struct nt_ops *ops;
	struct nt_pool *pool;
	struct nt_ns *ns[NT_MAX_NS]; /* NSID 1 first */
	uint32_t nns;
	struct nt_ctrl **ctrls; /* of config.max_ctrls; some NULL */
	uint16_t last_cntlid;
	uint64_t now_ms;     /* of the last nt_target_tick() */
	uint64_t generation; /* of the discovery log */
	struct nt_counters counters;
};

/*
 * A target without namespaces.  @pool threads for namespaces that are files.
 * @return 0, -ENOMEM.
 */
int nt_target_init(struct nt_target *target, const struct nt_config *config,
	const struct nt_ops *ops, struct nt_pool *pool);
/* All connections are gone.  Namespaces are closed. */
void nt_target_fini(struct nt_target *target);

/* @ns becomes the target's and gets its number.  @return 0, -ENOSPC. */
int nt_target_add_ns(struct nt_target *target, struct nt_ns *ns);

/* Looks at the sizes of files again; hosts whose namespaces changed are told.  @return how many. */
uint32_t nt_target_refresh(struct nt_target *target);

/* Time passes; controllers that were not kept alive end.  Every 100 ms if there are connections. */
void nt_target_tick(struct nt_target *target, uint64_t now_ms);

/*
 * What the private data of a connection request asks for.
 *
 * @param data of @len bytes, which may be more than there was
 * @param qid, entries set on success
 * @return NVME_RDMA_ACCEPT, or the reason for the REJ.
 */
enum nvme_rdma_reject nt_request_parse(const struct nt_config *config, const uint8_t *data,
	uint32_t len, uint16_t *qid, uint16_t *entries);

/* A connection is there, or is to be; @entries commands at a time. */
void nt_queue_init(
	struct nt_queue *queue, struct nt_target *target, uint16_t qid, uint16_t entries);
/* It is gone.  The controller of an admin queue ends with it.  Commands are not completed. */
void nt_queue_gone(struct nt_queue *queue);

/*
 * A capsule of @len bytes has come.  It stays until the command is complete, if data is in it.
 *
 * @return true: go on; false: cmd->status says why not, and the command is to be answered.
 */
bool nt_cmd_begin(struct nt_cmd *cmd, struct nt_queue *queue, uint8_t *capsule, uint32_t len);
void nt_cmd_execute(struct nt_cmd *cmd);
/* Completes the commands that threads are done with. */
void nt_target_reap(struct nt_target *target);
/* The answer's NVME_CQE_LEN bytes.  Once for each command, in the order in which they are sent. */
void nt_cmd_cqe(struct nt_cmd *cmd, uint8_t *cqe);

/* Bytes of a capsule of queue @qid. */
static inline uint32_t
nt_capsule_len(const struct nt_config *config, uint16_t qid)
{
	return NVME_SQE_LEN + (qid == 0 ? 0 : config->in_capsule);
}

#endif
