/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * --daemon: starts a karstd with one loopback port, on a socket in a temporary directory, and (not
 * for --op connect) a server.  Both are children of this process and end with it.
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
 * Starts both, and sets @opts->connect, ->peer and ->tcp_port accordingly.
 * @return 0, or an exit status after a message on stderr.
 */
int perf_daemon_start(struct perf_opts *opts, struct perf_daemon *d);

/** Ends both.  May be called after a failed start, too. */
void perf_daemon_stop(struct perf_daemon *d);

#endif /* PERF_DAEMON_H */
