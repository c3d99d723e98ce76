/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The test bed of the engine's tests: EAL without huge pages or devices, one engine, and two ports
 * joined by net_ring, A and B.  Frames are real; only the wire is a ring.
 */
#ifndef ENGINE_BED_H
#define ENGINE_BED_H

#include <pthread.h>
#include <stdatomic.h>

#include <rte_ring.h>

#include "karst_engine.h"

struct engine_bed_config {
	struct karst_engine_config engine;
	uint64_t mask[2];    /* lcores that serve port A, B; 0: all */
	unsigned int queues; /* rings in each direction; 0: as the masks need */
	unsigned int slots;  /* of each ring; 0: 1024 */
	uint16_t mtu;
	uint16_t mtu_b; /* of port B; 0: as port A */
	uint16_t vlan;
	const char *tap; /* exception tap of port A */
	bool telemetry;
	bool ip6;
};

struct engine_bed {
	struct karst_engine *e;
	uint16_t ethdev[2];
	uint8_t port[2];
	struct rte_ring *ring[2][4]; /* [0]: from A to B */
	uint64_t
		mine; /* lcores that engine_bed_wait() and engine_bed_settle() poll; at first all */
	uint32_t pd;
	struct karst_engine_cq *cq;
	uint8_t timeout; /* of RC; 0: nothing is sent again because of a timeout */
};

/** Sets up everything to a PD and a CQ of 1024 entries a lane; ends the test if anything fails.
 * @return @bed */
struct engine_bed *engine_bed_up(struct engine_bed *bed, const struct engine_bed_config *cfg);
void engine_bed_down(struct engine_bed *bed);

/** Creates a QP on @lcore, in RESET. */
struct karst_engine_qp *engine_bed_qp(
	struct engine_bed *bed, enum karst_qp_type type, uint32_t lcore);

/** Connects a QP on port A with one on port B and takes both to RTS. */
void engine_bed_connect(
	struct engine_bed *bed, struct karst_engine_qp *a, struct karst_engine_qp *b);

/** Fills in the attributes for the step to state @to of a QP on port @side towards @peer.  @return
 * the mask. */
unsigned int engine_bed_attr(const struct engine_bed *bed, enum karst_qp_type type, int side,
	uint32_t peer, enum karst_qp_state to, struct karst_core_qp_attr *attr);

/** Registers a region with all rights. */
uint32_t engine_bed_mr(struct engine_bed *bed, void *mem, size_t len);

/** A thread that polls some lcores until it is told to end, yielding when idle. */
struct engine_bed_poller {
	struct engine_bed *bed;
	uint64_t lcores;
	pthread_t thread;
	atomic_bool running;
	atomic_bool stop;
};
/** Starts a thread that polls @lcores instead of this one; they are attached to it when this
 * returns. */
void engine_bed_poller_start(struct engine_bed_poller *p, struct engine_bed *bed, uint64_t lcores);
/** Stops the thread; no thread is attached to its lcores afterwards. */
void engine_bed_poller_stop(struct engine_bed_poller *p);

/** Polls its own lcores from this thread, yielding when there is nothing to do, until a completion
 * comes; false: none came for so long that none will come any more. */
bool engine_bed_wait(struct engine_bed *bed, struct karst_cqe *cqe);

/** Polls the lcores until nothing has happened for a while. */
void engine_bed_settle(struct engine_bed *bed);

/** Detaches this thread from all lcores that it has polled. */
void engine_bed_release(struct engine_bed *bed);

/** Posts one signaled request of one SGE. */
void engine_bed_post(struct karst_engine_qp *qp, enum karst_wr_opcode op, uint64_t wr_id,
	void *local, uint32_t len, uint32_t lkey, void *remote, uint32_t rkey);
void engine_bed_post_recv(
	struct karst_engine_qp *qp, uint64_t wr_id, void *buf, uint32_t len, uint32_t lkey);

/** Fills @buf with bytes that depend on @seed and position. */
void engine_bed_fill(void *buf, size_t len, unsigned int seed);

/** Tells whether the mapping that holds @p, or begins there, is part of a core dump. */
bool engine_bed_is_dumped(const void *p);

/** Counts the open descriptors of this process, including the one that is used for counting. */
unsigned int engine_bed_open_fds(void);
/** Counts the mappings in this process of memfds whose name begins with @name.  Allocators, which
 * create mappings at any time, have none of these. */
unsigned int engine_bed_mappings(const char *name);

#endif /* ENGINE_BED_H */
