/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The server process of an attached run: waits for one client, creates its end of each measurement
 * that the client requests, and executes the server's part of its phases.
 *
 * Requests on the link, each answered by one object:
 *
 *   {"hello": version, "verify", "latency", "seed", "bytes", "lat_bytes"}   once; makes buffers
 *   {"job": {...}, "end": {...}}   a measurement and the client's end; answered with ours
 *   {"phase": number}              see run.h; PERF_PHASE_QUIT ends the measurement
 *   {"settle": [posted, ...]}      --verify: what may be checked
 *   {"count": true}, {"targets": true}, {"result": true}
 *   {"tcp": true}                  --compare tcp: answered with where to connect; see tcp.h
 */
#ifndef PERF_REMOTE_H
#define PERF_REMOTE_H

#include "attach.h"
#include "link.h"

#define PERF_REMOTE_VERSION 5

/** @a is attached as the server's end.  @stack: see perf_memory_create().
 *  @return exit status; errors are printed on stderr. */
int perf_remote_serve(const struct perf_opts *opts, struct perf_attach *a, void *stack);

/** Sends the client's first request.  -errno, with a message on stderr. */
int perf_remote_hello(
	struct perf_link *link, const struct perf_opts *opts, uint64_t bytes, uint64_t lat_bytes);

/** Client: lets the server create its end of @bed's job, and connects both.  -errno, with a
 *  message on stderr. */
int perf_remote_connect(struct perf_link *link, struct perf_bed *bed);

#endif /* PERF_REMOTE_H */
