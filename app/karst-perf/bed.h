/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The bed of a measurement: the objects that it needs, which are memory of both ends, its
 * registrations, completion queues, and connected queue pairs.  The main thread creates and
 * destroys it while no lcore is attached.
 *
 * The client's QP i is connected with the server's QP i.  For ping-pong there is one more queue
 * pair at each end, with separate memory and completion queues, so that it does not affect the
 * traffic.
 */
#ifndef PERF_BED_H
#define PERF_BED_H

#include "endpoint.h"
#include "memory.h"
#include "plan.h"
#include "ports.h"

/** What one end must know about the other. */
struct perf_far {
	uint64_t base; /* of its memory, in its addresses */
	uint64_t lat;
	uint32_t key; /* of each */
	uint32_t lat_key;
	uint32_t *qpns; /* [job->qps] */
	uint32_t lat_qpn;
};

struct perf_bed_engine;
struct perf_attach;

struct perf_bed {
	const struct perf_job *job;
	const struct perf_memory *mem;
	struct perf_far far[PERF_ENDS];
	uint32_t ah[PERF_ENDS]; /* UD: to the other end */
	/* NULL: the end is in another process */
	struct perf_qp *qps[PERF_ENDS];
	struct perf_qp *lat_qp[PERF_ENDS]; /* for ping-pong, if asked for */
	struct perf_lanes sends;           /* of the client */
	struct perf_lanes receives;        /* of the server */
	struct perf_lanes lat_lanes[PERF_ENDS];
	uint64_t qp_bytes;   /* memory of a QP without its rings, both ends' average */
	uint64_t ring_bytes; /* memory of the rings of a QP of the client */
	/* the owner */
	struct perf_bed_engine *engine;
	struct perf_attach *attach;
};

#define PERF_QKEY    0x11111111u
#define PERF_LAT_WRS 128u
#define PERF_ACCESS  (KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE)

enum karst_qp_type perf_qp_type(enum perf_transport transport);

/** Entries of the client's completion queue for sends, and of the server's for receives. */
void perf_bed_cq_sizes(const struct perf_job *job, uint32_t *sends, uint32_t *receives);

/** The common part of both kinds of bed.  -ENOMEM, with a message on stderr. */
int perf_bed_init(const struct perf_job *job, const struct perf_memory *mem, struct perf_bed *bed);
void perf_bed_fini(struct perf_bed *bed);

/** @n zeroed queue pairs, to be freed with free(); NULL: no memory. */
struct perf_qp *perf_qp_array(uint32_t n);

/** A bed of an embedded engine.  @return 0, or 1: the engine refused, with a message on stderr;
 *  everything is destroyed again then. */
int perf_bed_create(const struct perf_job *job, const struct perf_ports *ports,
	const struct perf_memory *mem, bool latency, struct perf_bed *bed);
void perf_bed_destroy(struct perf_bed *bed);

/** Offset of the payload of message number @seq of QP @qp, in the memory of either end. */
static inline uint64_t
perf_bed_offset(const struct perf_job *j, uint32_t qp, uint64_t seq)
{
	uint32_t slot = (uint32_t)(seq % j->slots);
	uint64_t place = ((uint64_t)(slot / j->batch) * j->qps + qp) * j->batch + slot % j->batch;

	return place * j->stride + j->headroom;
}

#endif /* PERF_BED_H */
