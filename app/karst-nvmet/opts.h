/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The command line of karst-nvmet. */
#ifndef OPTS_H
#define OPTS_H

#include "rdma.h"

struct opts_ns {
	const char *path; /* NULL: memory */
	uint64_t bytes;
};

struct opts {
	struct nr_config config;
	struct opts_ns ns[NT_MAX_NS];
	uint32_t nns;
	uint32_t block_shift;
	uint32_t threads;
	bool read_only;
};

/* @return 0: continue; 1: the program can exit; -EINVAL after a message. */
int opts_parse(int argc, char **argv, struct opts *opts);

#endif
