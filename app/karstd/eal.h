/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* DPDK's environment: lcores, memory, which PCI devices it may touch. */
#ifndef KARSTD_EAL_H
#define KARSTD_EAL_H

#include "conf.h"

struct kd_eal {
	bool huge; /* memory is huge pages */
	uint32_t mbufs;
	unsigned int lcore[KARST_ENGINE_MAX_LCORES]; /* EAL's numbers, in the order of the file */
};

/** After kd_place_choose().  -EIO: said why. */
int kd_eal_start(const struct kd_conf *c, struct kd_eal *eal);

#endif /* KARSTD_EAL_H */
