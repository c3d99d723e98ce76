/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Buffers of a whole run, reused by all measurements.  An attached run can compare kinds of memory
 * (--memory), because the engine has a different access method for each kind.
 */
#ifndef PERF_MEMORY_H
#define PERF_MEMORY_H

#include "opts.h"

enum perf_end {
	PERF_CLIENT,
	PERF_SERVER,
	PERF_ENDS,
};

struct perf_memory {
	uint8_t *base[PERF_ENDS]; /* NULL: the end is in another process */
	uint64_t bytes;           /* of each */
	uint8_t *lat[PERF_ENDS];  /* for ping-pong: one place to send from, one to receive in */
	uint64_t lat_bytes;       /* of each */
	uint8_t *mirror; /* attached: as long as base, for the baseline's copies; else NULL */
	enum perf_memory_kind kind;
};

/** Limit of the bytes of an end on the stack. */
#define PERF_STACK_BYTES (UINT64_C(6) << 20)

/**
 * @ends: bit set of enum perf_end.  @lat_bytes: for both places of an end.  @stack: at least @bytes
 * + @lat_bytes of the caller's stack, for PERF_MEMORY_STACK.  All memory is populated.
 * -ENOMEM, with a message on stderr.
 */
int perf_memory_create(enum perf_memory_kind kind, uint32_t ends, uint64_t bytes,
	uint64_t lat_bytes, void *stack, struct perf_memory *m);
void perf_memory_destroy(struct perf_memory *m);

#endif /* PERF_MEMORY_H */
