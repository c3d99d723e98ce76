/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What one measurement stands on: memory of both ends, its registrations, completion queues,
 * and connected queue pairs.  Made and taken down by the main thread while no lcore is
 * attached.
 *
 * The client's QP i is connected with the server's QP i.  For ping-pong there is one more pair
 * with memory and completion queues of its own, so that it disturbs nothing.
 */
#ifndef PERF_BED_H
#define PERF_BED_H

#include "plan.h"
#include "ports.h"

/** Buffers of the whole run, reused by all measurements; anonymous, in huge pages if the
 *  kernel has some, and populated. */
struct perf_memory {
	uint8_t *base[PERF_ENDS];
	uint64_t bytes;          /* of each */
	uint8_t *lat[PERF_ENDS]; /* for ping-pong: one place to send from, one to receive in */
	uint64_t lat_bytes;      /* of each */
};

/** @lat_bytes: for both places of an end.  -ENOMEM, said on stderr. */
int perf_memory_create(uint64_t bytes, uint64_t lat_bytes, struct perf_memory *m);
void perf_memory_destroy(struct perf_memory *m);

/** The pair for ping-pong; all NULL if none was asked for. */
struct perf_lat_pair {
	struct karst_engine_qp *qp[PERF_ENDS];
	struct karst_engine_cq *cq[PERF_ENDS]; /* of sends and receives */
	uint32_t key[PERF_ENDS];
};

struct perf_bed {
	const struct perf_job *job;
	const struct perf_ports *ports;
	const struct perf_memory *mem;
	uint32_t pd;
	uint32_t key[PERF_ENDS]; /* of mem->base, local and remote */
	uint32_t ah[PERF_ENDS];  /* UD: to the other end */
	uint32_t num_ahs;        /* of them made */
	uint32_t num_keys;       /* of @key made */
	uint32_t num_lat_keys;
	struct karst_engine_cq *send_cq; /* of the client's sends */
	struct karst_engine_cq *recv_cq; /* of the server's receives */
	struct karst_engine_cq *idle_cq; /* for the directions that nothing uses */
	struct karst_engine_qp **qps[PERF_ENDS];
	struct perf_lat_pair lat;
	uint64_t qp_bytes;   /* memory of a QP without its rings, both ends' average */
	uint64_t ring_bytes; /* memory of the rings of a QP of the client */
};

#define PERF_QKEY 0x11111111u

/** 0 or 1: the engine refused, said on stderr; everything is taken down again then. */
int perf_bed_create(const struct perf_job *job, const struct perf_ports *ports,
	const struct perf_memory *mem, bool latency, struct perf_bed *bed);
void perf_bed_destroy(struct perf_bed *bed);

/** Where message number @seq of QP @qp stands, in the memory of either end: its payload. */
static inline uint64_t
perf_bed_offset(const struct perf_job *j, uint32_t qp, uint64_t seq)
{
	uint32_t slot = (uint32_t)(seq % j->slots);
	uint64_t place = ((uint64_t)(slot / j->batch) * j->qps + qp) * j->batch + slot % j->batch;

	return place * j->stride + j->headroom;
}

#endif /* PERF_BED_H */
