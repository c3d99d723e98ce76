/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Programs of TCP sockets (--smc). */
#ifndef KARST_RUN_SMC_H
#define KARST_RUN_SMC_H

#include "opts.h"

/** The program will find drivers/sockets preloaded, and the service.  @return -1: go on; otherwise
 *  what to exit with. */
int kr_smc_prepare(const struct kr_opts *o);

#endif /* KARST_RUN_SMC_H */
