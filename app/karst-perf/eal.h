/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Starts DPDK's environment for the benchmark.
 *
 * The first lcore of EAL is the main thread, which only shows progress and may run on any
 * processor.  The workers are pinned, one to a processor, beginning with the last processor,
 * because the first has more interrupts.  Huge pages are used when enough are free, otherwise
 * ordinary memory; other DPDK programs cannot see this memory.  The user's arguments after "--"
 * come last, and a list of lcores there replaces the default one.
 */
#ifndef PERF_EAL_H
#define PERF_EAL_H

#include "opts.h"

struct perf_eal {
	bool huge;              /* memory is huge pages */
	uint32_t num_cpus;      /* that this process may use */
	unsigned int lcores[2]; /* EAL's numbers of the workers */
	int cpus[2];            /* where they are pinned */
};

/** Free memory of this machine, in bytes. */
uint64_t perf_eal_free_memory(void);

/**
 * @bytes: the most that EAL will have to allocate.
 * @return 0; 2: wrong EAL options; 1: EAL does not start.  Errors are printed on stderr.
 */
int perf_eal_start(const struct perf_opts *opts, uint64_t bytes, struct perf_eal *eal);

/** For a program that attaches to a karstd: starts only what the clock and rings need.  This thread
 *  runs on any processor but the last, which the engine uses on a small machine; cpus[0] is that
 *  last one. */
int perf_eal_start_attached(struct perf_eal *eal);

#endif /* PERF_EAL_H */
