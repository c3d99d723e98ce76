/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Runs one measurement, from connected queue pairs to figures.
 *
 * A measurement consists of rounds.  Each round has these phases, one after the other:
 *
 *   traffic    warm-up, then the measured window (a slice), then nothing is posted until all
 *              outstanding requests have completed
 *   ping-pong  with --lat
 *   copy, ring copy, ring rtt (baseline.h)
 *
 * So the baselines run with the same machine, the same memory and the same noise as the traffic.
 *
 * The thread of the first lcore is the leader: it polls the client's end (and the server's, if
 * there is one lcore) and decides when a phase begins.  The thread of the second lcore is the
 * follower: it executes the server's part of each phase.  The main thread only shows progress.
 *
 * Over a karstd the leader is a thread of the client, and the follower is the server process
 * (remote.c), which gets the phases over the link; there are no ring copies then.
 */
#ifndef PERF_RUN_H
#define PERF_RUN_H

#include "baseline.h"
#include "link.h"
#include "pingpong.h"
#include "traffic.h"
#include "windows.h"

enum perf_phase {
	PERF_PHASE_PARK,
	PERF_PHASE_TRAFFIC,
	PERF_PHASE_PINGPONG,
	PERF_PHASE_RING_COPY,
	PERF_PHASE_RING_RTT,
	PERF_PHASE_QUIT,
};

/** Figures of one slice, a column each; Gb/s. */
struct perf_slices {
	double *traffic;
	double *copy;
	double *ring_copy;
	uint32_t num, max;
};

struct perf_run {
	const struct perf_opts *opts;
	const struct perf_job *job;
	struct perf_ports *ports; /* NULL: attached */
	struct perf_link *link;   /* to the server in another process; else NULL */
	const struct perf_bed *bed;
	struct perf_baseline *baseline;
	struct perf_client client;
	struct perf_server server;
	struct perf_pinger ping, pong;
	struct perf_hist *latency; /* of --lat, in TSC cycles */
	struct perf_slices slices;
	struct perf_window sum;       /* over the measured windows */
	struct perf_window waited;    /* in this window, for messages that were on their way */
	uint64_t measured;            /* cycles of all windows, with the waits */
	double connect_s;             /* time to create and connect all queue pairs */
	struct karst_counters before; /* of the engine, when the measurement began */
	uint64_t posted_before;       /* when the slice began */
	uint64_t arrived_before;      /* requests that responders had completed, then */
	uint64_t lost_pings;          /* of an unreliable transport: without an answer in time */
	uint64_t server_events;       /* completion events that the other process has taken */
	bool stuck;                   /* an outstanding request never completed */
	bool broken;                  /* the other process has ended */
	bool alone;                   /* both ends on this thread */
	bool yield;
	int rtt_cpu;   /* attached: where the other half of ring rtt runs; -1: nowhere */
	bool pingpong; /* --lat */
	/* phases */
	_Atomic uint32_t phase karst_cache_aligned; /* leader: number << 8 | enum phase */
	_Atomic uint32_t at karst_cache_aligned;    /* follower: the last phase it has entered */
	uint64_t elapsed_ns karst_cache_aligned;    /* leader: measured so far, for progress */
	_Atomic bool done;                          /* attached: the leader's thread has finished */
};

/**
 * Before the threads start: creates both ends.  @run must be zeroed except for the pointers, @yield
 * and @pingpong.  -ENOMEM.
 */
int perf_run_begin(struct perf_run *run);

/** On the first worker (attached: a thread) and, if there are two lcores, on the second, at the
 *  same time. @arg: the struct perf_run.  Both return when the measurement is over. */
int perf_run_lead(void *arg);
int perf_run_follow(void *arg);

/** After both have returned: frees what perf_run_begin() created. */
void perf_run_end(struct perf_run *run);

#endif /* PERF_RUN_H */
