/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * --daemon: a karstd with one loopback port and (not for --op connect) a server, both children of
 * this process and gone with it, on a socket in a temporary directory.
 */
#ifndef PERF_DAEMON_H
#define PERF_DAEMON_H

#include <sys/types.h>

#include "opts.h"

struct perf_daemon {
	char dir[64];
	char socket[96];
	pid_t karstd;
	pid_t server;
};

/**
 * Starts both.  @opts->connect, ->peer and ->tcp_port are set to reach them.
 * @return 0 or an exit status; said on stderr.
 */
int perf_daemon_start(struct perf_opts *opts, struct perf_daemon *d);

/** Ends both.  Also after a failure of the start. */
void perf_daemon_stop(struct perf_daemon *d);

#endif /* PERF_DAEMON_H */
