/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* karst-run's command line, and the messages of all of its parts. */
#ifndef KARST_RUN_OPTS_H
#define KARST_RUN_OPTS_H

#include <stdbool.h>

#include "cpus.h"
#include "hide.h"

/* The exit status of karst-run itself, as that of env(1); all other values come from the
 * program. */
enum kr_exit {
	KR_EXIT_OK = 0,
	KR_EXIT_UNWELL = 1,   /* --doctor has found a problem */
	KR_EXIT_FAILED = 125, /* karst-run failed before the program was started */
	KR_EXIT_NO_EXEC = 126,
	KR_EXIT_NO_PROGRAM = 127,
};

enum kr_mode { KR_MODE_AUTO, KR_MODE_NS, KR_MODE_ENV };

/* The transport of short connections, of which many are made to one peer (--smc). */
enum kr_shorts { KR_SHORTS_AUTO, KR_SHORTS_TCP, KR_SHORTS_SMC };

struct kr_opts {
	enum kr_mode mode;
	enum kr_netlink netlink;
	enum kr_cpus cpus;
	enum kr_shorts shorts;
	const char *socket;     /* NULL: not named */
	const char *engine_log; /* NULL: no log is kept */
	const char *provider;   /* NULL: look for it */
	const char *keep_tree;  /* NULL: no */
	unsigned int linger_s;
	bool private_engine;
	bool smc;
	bool require;
	bool io_uring;
	bool doctor;
	bool print;
	bool verbose;
	char **argv; /* the program; NULL-terminated, empty if there is none */
};

/** @return -1: go on; otherwise the exit status. */
int kr_opts_parse(int argc, char **argv, struct kr_opts *o);

/** Prints a line on standard error.  @return KR_EXIT_FAILED */
int kr_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/** The same with --verbose only. */
void kr_tell(const struct kr_opts *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif /* KARST_RUN_OPTS_H */
