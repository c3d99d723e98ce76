/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A target with two namespaces, memory and a file, and a transport that passes capsules to it and
 * keeps its answers.  A host's data is in bed->host.
 */
#ifndef BED_H
#define BED_H

#include "target.h"

#define BED_NQN    "nqn.test:subsystem"
#define BED_HOST   "nqn.test:host"
#define BED_BLOCKS 2048u /* of 512 bytes, each namespace */
#define BED_MEMORY 1u
#define BED_FILE   2u
#define BED_RKEY   0x11223344u
#define BED_CLOSED 8u

struct bed {
	struct nt_target target;
	struct nt_pool *pool;
	struct nt_queue admin, io;
	char path[64];
	uint8_t host[64 << 10]; /* the host's memory; an address is an offset in it */
	/* of the last answer */
	uint32_t answers;
	uint8_t cqe[NVME_CQE_LEN];
	uint16_t status;
	uint64_t result;
	bool invalidated;
	/* connections that the target asked to close */
	struct nt_queue *closed[BED_CLOSED];
	uint32_t nclosed;
};

void bed_make(struct bed *bed);
void bed_end(struct bed *bed);

/* Builds a command with an identifier of its own; the data of @len bytes is the host's memory at
 * 0. */
void bed_sqe(uint8_t *sqe, uint8_t opcode, uint32_t nsid, uint32_t len);
/*
 * Processes a capsule until it is complete, if it completes: data of the host is there when the
 * target asks for it, and data to the host is written to its memory.
 *
 * @return the status; 0xffff: no answer yet.
 */
uint16_t bed_run(struct bed *bed, struct nt_queue *queue, const uint8_t *capsule, uint32_t len);
/* Waits for the threads. */
void bed_settle(struct bed *bed);

/* Connects as a host does; @return the status. */
uint16_t bed_connect(struct bed *bed, struct nt_queue *queue, const char *subnqn, uint16_t cntlid);
/* @return the status; sets result. */
uint16_t bed_property_set(struct bed *bed, uint32_t offset, uint32_t value);
uint16_t bed_property_get(struct bed *bed, uint32_t offset, bool wide);
/* Makes an I/O controller, enabled, with one I/O queue. */
void bed_ready(struct bed *bed);
/* Sends a command of the NVM command set whose data is keyed. */
uint16_t bed_io(struct bed *bed, uint8_t opcode, uint32_t nsid, uint64_t lba, uint32_t blocks);

#endif
