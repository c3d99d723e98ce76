/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* DPDK's environment: lcores, memory, and the PCI devices that it may use. */
#ifndef KARSTD_EAL_H
#define KARSTD_EAL_H

#include "conf.h"

struct kd_eal {
	bool huge; /* memory consists of huge pages */
	uint32_t mbufs;
	unsigned int lcore[KARST_ENGINE_MAX_LCORES]; /* EAL's lcore numbers, in the order of the
						      * file */
};

/** Call after kd_place_choose().  -EIO: the reason was logged. */
int kd_eal_start(const struct kd_conf *c, struct kd_eal *eal);

#endif /* KARSTD_EAL_H */
