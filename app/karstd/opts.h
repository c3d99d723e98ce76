/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* karstd's command line. */
#ifndef KARSTD_OPTS_H
#define KARSTD_OPTS_H

#include <stdbool.h>

/* What the daemon exits with. */
enum kd_exit {
	KD_EXIT_OK = 0,
	KD_EXIT_FAILED = 1, /* something of the machine: a device, a socket, memory */
	KD_EXIT_WRONG = 2,  /* the command line or the configuration */
	KD_EXIT_BUSY = 3,   /* another daemon serves the socket */
};

struct kd_opts {
	const char *config;                           /* NULL: the default file, if there is one */
	const char *socket, *name, *log_level, *user; /* NULL: as configured */
	bool check;
	bool loopback;
};

/** @return -1: go on; otherwise what to exit with. */
int kd_opts_parse(int argc, char **argv, struct kd_opts *o);

#endif /* KARSTD_OPTS_H */
