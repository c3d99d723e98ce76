/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The results of a measurement, and their output as a line of a table or as a JSON object.
 * karst-perf(1) defines every figure.
 */
#ifndef PERF_REPORT_H
#define PERF_REPORT_H

#include <stdio.h>

#include "run.h"
#include "tcp.h"

struct perf_result {
	uint64_t messages;
	double seconds;
	double gbps;
	double mops;
	double cycles_per_message;
	double cycles_per_packet;
	double latency_ns[4]; /* p50, p99, p999, max */
	double gbps_median;   /* of slices, like the next three */
	double memcpy_gbps;
	double memcpy_ratio;
	double ring_copy_gbps;
	double ring_copy_ratio;
	double ring_rtt_ns;
	double cpu_s;    /* --compare: busy time of all processors during the traffic */
	double gb_a_cpu; /* Gbit of payload per second of that time */
	double fairness; /* between the queue pairs, Jain's index */
	uint64_t posted;
	uint64_t retransmits;
	uint64_t timeouts;
	uint64_t rnr_naks;
	uint64_t injected;
	uint64_t icrc_drops;
	uint64_t lost;
	uint64_t verify_errors;
	uint64_t errors;
};

/** After perf_run_lead(), before perf_run_end(). */
void perf_result_make(const struct perf_run *run, struct perf_result *result);

/** Was there an error that makes the exit status 1? */
bool perf_result_bad(const struct perf_result *result);

/** Prints errors on stderr, if there were any. */
void perf_report_trouble(const struct perf_run *run, const struct perf_result *result);

void perf_report_table_head(FILE *to);
void perf_report_table_row(FILE *to, const struct perf_run *run, const struct perf_result *result);

/** One object in one line.  -ENOMEM */
int perf_report_json(FILE *to, const struct perf_run *run, const struct perf_result *result);

/** A row for the kernel's TCP, below the row that it is compared with. */
void perf_report_tcp_row(FILE *to, const struct perf_job *job, const struct perf_result *result,
	const struct perf_tcp *tcp);
int perf_report_tcp_json(FILE *to, const struct perf_job *job, const struct perf_tcp *tcp);

/** "65536" as "64K". */
void perf_report_size(char *to, size_t bytes, uint64_t size);

#endif /* PERF_REPORT_H */
