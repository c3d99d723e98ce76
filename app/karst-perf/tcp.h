/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * --compare tcp: the same work by the kernel's TCP between the same two processes, in the same
 * run, so that karst's figures stand beside what programs use otherwise.
 *
 * The server listens on the address of its RoCE port if the kernel has that address too (a port
 * on a kernel interface), so that TCP crosses the same interface; else on the address by which
 * the client reached it.  One connection for each measurement:
 *
 *   write, write-imm, send   the client sends for a time, the server receives
 *   read                     the server sends for a time, the client receives
 *   all                      a message of the size goes there and back, as in ping-pong
 *
 * Writes are of the message's size, but of 128 KiB at least when throughput is measured: TCP has
 * no messages, and a program that wants throughput of it makes large writes.  They come from, and
 * go to, as much memory as the messages do (--working-set): a stream of one buffer that stays in
 * the caches would be other work.
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
	double cpu_s;          /* that the stream took of all processors of this machine */
	struct perf_hist *rtt; /* ns; owned: free() */
};

/** The client: measures @job's counterpart for @seconds.  0 or -errno, said on stderr. */
int perf_tcp_measure(struct perf_link *link, const struct perf_attach *a,
	const struct perf_job *job, double seconds, struct perf_tcp *result);

/** The server: {"tcp": true} was asked.  Answers on @link and serves one connection to its end.
 *  0 or -errno: the link is broken. */
int perf_tcp_serve(struct perf_link *link, const struct perf_attach *a);

#endif /* PERF_TCP_H */
