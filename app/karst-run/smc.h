/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Programs of TCP sockets (--smc). */
#ifndef KARST_RUN_SMC_H
#define KARST_RUN_SMC_H

#include "opts.h"

/**
 * Prepares the environment: drivers/sockets is preloaded in the program and finds the service.
 * @return -1: go on; otherwise the exit status.
 */
int kr_smc_prepare(const struct kr_opts *o);

#endif /* KARST_RUN_SMC_H */
