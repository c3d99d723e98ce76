/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Turns the command line into a list of measurements in which every parameter has a value.
 *
 * Messages use the whole working set: each queue pair owns @slots places for a message in the
 * source and as many in the destination, and uses them in turn.  The order of the places in memory
 * is that in which they are used when queue pairs are visited in turn, so that memory is used from
 * the lowest to the highest address whatever the number of queue pairs:
 *
 *   batch 0 of QP 0, batch 0 of QP 1, ... batch 0 of the last QP, batch 1 of QP 0, ...
 *
 * A place is not used again before the message that was in it has completed and, with --verify,
 * has been checked; this determines the smallest number of places.  If the given working set is too
 * small for the default depth, the depth is lowered to what fits.
 */
#ifndef PERF_PLAN_H
#define PERF_PLAN_H

#include "opts.h"

/** Room for the GRH in front of the payload of a received datagram, rounded up so that the payload
 *  begins on a cache line (U1). */
#define PERF_GRH_ROOM  64u
#define PERF_GRH_BYTES 40u

/** One measurement. */
struct perf_job {
	enum perf_op op;
	enum perf_transport transport;
	uint32_t size; /* payload bytes of a message */
	uint32_t mtu;
	uint32_t qps;
	uint32_t depth;
	uint32_t inflight;
	uint32_t batch;
	uint32_t slots;       /* places of a queue pair, a multiple of @batch */
	uint32_t stride;      /* bytes from one place to the next */
	uint32_t headroom;    /* bytes in front of the payload in a place: PERF_GRH_ROOM or 0 */
	uint64_t working_set; /* bytes of all places */
	uint32_t recv_depth;  /* receive work requests of a queue pair; 0: the op needs none */
	uint32_t rd_atomic;
	bool inlined;
	uint32_t lcores;
	uint32_t timeout;
};

struct perf_plan {
	struct perf_job *jobs;
	uint32_t num_jobs;
	uint64_t max_working_set; /* of any job */
};

/** Does the receiver of this op take a receive work request? */
static inline bool
perf_op_receives(enum perf_op op)
{
	return op == PERF_OP_SEND || op == PERF_OP_WRITE_IMM;
}

static inline bool
perf_op_atomic(enum perf_op op)
{
	return op == PERF_OP_CAS || op == PERF_OP_FAA || op == PERF_OP_ATOMIC_WRITE;
}

/** Does data flow from the responder to the requester? */
static inline bool
perf_op_fetches(enum perf_op op)
{
	return op == PERF_OP_READ;
}

/**
 * @memory: bytes of this machine that may be used.
 * @return 0; 2: options that cannot be combined, after a message on stderr that says what is
 *   allowed; 1: no memory.
 */
int perf_plan_make(const struct perf_opts *opts, uint64_t memory, struct perf_plan *plan);

void perf_plan_free(struct perf_plan *plan);

#endif /* PERF_PLAN_H */
