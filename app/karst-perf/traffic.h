/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The two ends of the traffic, as parts of a reactor: the functions that are called between two
 * turns of the engine.  The client posts messages and polls their completions; the server polls and
 * posts receives, if the operation needs them.
 *
 * The client visits queue pairs in turn and posts a batch of messages to each: the work requests
 * are written in place from a template, the last of the batch is signaled, and the batch is
 * published at once.  Queue pairs are visited in a fixed order, so the data of the next ones, down
 * to their send rings, is prefetched.
 *
 * Each end belongs to one thread.  Other threads may read struct perf_tally.
 */
#ifndef PERF_TRAFFIC_H
#define PERF_TRAFFIC_H

#include "bed.h"
#include "hist.h"

/** What the thread of an end counts; each value has one writer. */
struct perf_tally {
	uint64_t posted;
	uint64_t completed; /* messages, as the client sees it; server: receives */
	uint64_t errors;    /* completions in error */
	uint64_t wrong;     /* messages whose data was not what it should be */
	uint64_t lost;      /* unreliable messages that --verify found missing */
} karst_cache_aligned;

static inline void
perf_tally_add(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static inline uint64_t
perf_tally_read(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/** The client's side of a queue pair. */
struct perf_flow {
	struct perf_qp *qp;
	uint64_t posted;
	uint64_t completed;
	uint64_t checked;    /* with late_check: messages that were checked */
	uint64_t sample_tsc; /* when the sample was posted; 0: there is none */
	uint64_t sample;     /* number of the message whose latency is being taken */
	uint32_t row;        /* of places, for the next batch */
	uint32_t peer_qpn;
} karst_cache_aligned;

struct perf_client {
	struct perf_tally tally;
	const struct perf_bed *bed;
	struct perf_job job; /* a copy, beside what is used with it */
	struct perf_flow *flows;
	struct perf_lanes lanes;
	uint32_t next; /* flow to visit */
	uint32_t rows; /* of places */
	uint32_t outstanding;
	uint32_t turn_budget;   /* messages posted between two turns of the engine */
	uint64_t left;          /* messages that may still be posted */
	uint64_t local, remote; /* addresses of the places */
	bool verify;
	bool late_check;     /* writes are checked later: see perf_client_settle() */
	bool failed;         /* a completion in error: no more is posted */
	uint8_t first_error; /* its status */
	uint64_t seed;
	uint64_t *shadow;         /* atomics with --verify: what each target should hold */
	struct perf_hist *loaded; /* latency of samples, in TSC cycles */
	struct karst_send_wqe template;
};

/** The server's side of a queue pair. */
struct perf_sink {
	struct perf_qp *qp;
	uint64_t expected; /* number of the next message */
	uint64_t checked;  /* see perf_server_settle() */
	uint32_t row, col; /* place of the next receive */
	uint32_t peer_qpn;
};

struct perf_server {
	struct perf_tally tally;
	const struct perf_bed *bed;
	struct perf_job job;
	struct perf_sink *sinks;
	struct perf_lanes lanes;
	uint32_t rows;
	bool verify;
	uint8_t first_error; /* status of the first completion in error */
	uint64_t seed;
};

/** -ENOMEM.  The bed outlives both. */
int perf_client_create(
	const struct perf_bed *bed, bool verify, uint64_t seed, struct perf_client *c);
void perf_client_destroy(struct perf_client *c);

/** Also posts the first receives. */
int perf_server_create(
	const struct perf_bed *bed, bool verify, uint64_t seed, struct perf_server *s);
void perf_server_destroy(struct perf_server *s);

/** Takes completions.  @return how many. */
uint32_t perf_client_reap(struct perf_client *c);

/** Posts as many messages as depth, window of messages and @left allow.  @return how many. */
uint32_t perf_client_post(struct perf_client *c);

/** Does the checks that could not be done message by message.  All messages have arrived or are
 *  lost. */
void perf_client_settle(struct perf_client *c);

/** At the end of a measurement: does the remaining checks (targets of atomics).  @targets: the
 *  result of perf_check_targets(), if the server is in another process. */
void perf_client_finish(struct perf_client *c, uint64_t targets);

/** Takes receives, checks them, and posts them again.  @return how many. */
uint32_t perf_server_turn(struct perf_server *s);

#endif /* PERF_TRAFFIC_H */
