/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* karstd's command line. */
#ifndef KARSTD_OPTS_H
#define KARSTD_OPTS_H

#include <stdbool.h>

/* The exit status of the daemon. */
enum kd_exit {
	KD_EXIT_OK = 0,
	KD_EXIT_FAILED = 1, /* an error of the machine: a device, a socket, memory */
	KD_EXIT_WRONG = 2,  /* an error in the command line or the configuration */
	KD_EXIT_BUSY = 3,   /* another daemon serves the socket */
};

struct kd_opts {
	const char *config;                           /* NULL: the default file, if it exists */
	const char *socket, *name, *log_level, *user; /* NULL: as configured */
	bool check;
	bool loopback;
};

/** @return -1: continue; otherwise the exit status. */
int kd_opts_parse(int argc, char **argv, struct kd_opts *o);

#endif /* KARSTD_OPTS_H */
