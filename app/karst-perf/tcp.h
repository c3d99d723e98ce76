/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * --compare tcp: measures the same work over the kernel's TCP, between the same two processes and
 * in the same run, so that karst's figures can be compared with it.
 *
 * The server listens on the address of its RoCE port if the kernel has that address too (a port
 * on a kernel interface), so that TCP uses the same interface; else on the address by which the
 * client reached it.  There is one connection for each measurement:
 *
 *   write, write-imm, send   the client sends for a time, the server receives
 *   read                     the server sends for a time, the client receives
 *   all                      a message of the size is sent there and back, as in ping-pong
 *
 * Each write has the size of the message, but at least 128 KiB when throughput is measured: TCP has
 * no messages, and a program that needs throughput makes large writes.  The source and the
 * destination are as large as those of the messages (--working-set), because a stream through one
 * buffer that stays in the caches would not be the same work.
 */
#ifndef PERF_TCP_H
#define PERF_TCP_H

#include "attach.h"
#include "hist.h"
#include "link.h"
#include "plan.h"

struct perf_tcp {
	char here[64], there[64]; /* addresses of the connection */
	double gbps;
	double seconds;
	uint64_t bytes;
	double cpu_s;          /* busy time of all processors of this machine during the stream */
	struct perf_hist *rtt; /* ns; owned: free() */
};

/** Client: measures @job's counterpart for @seconds.  0 or -errno, with a message on stderr. */
int perf_tcp_measure(struct perf_link *link, const struct perf_attach *a,
	const struct perf_job *job, double seconds, struct perf_tcp *result);

/** Server: handles {"tcp": true}.  Answers on @link and serves one connection until it ends.
 *  0 or -errno: the link is broken. */
int perf_tcp_serve(struct perf_link *link, const struct perf_attach *a);

#endif /* PERF_TCP_H */
