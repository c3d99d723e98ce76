/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Selects the CPUs that the engine runs on, and checks how near they are to the devices. */
#ifndef KARSTD_PLACE_H
#define KARSTD_PLACE_H

#include "conf.h"

/** Fills in [engine] lcores if it is automatic.  -EIO: the reason was logged. */
int kd_place_choose(struct kd_conf *c);

/** Returns the NUMA node of a device as the kernel reports it, before DPDK starts; -1: unknown. */
int kd_place_node_of_device(const struct kd_conf_port *p);

/** Warns if lcores of @p (bits of [engine] lcores) are on another node than its device. */
void kd_place_warn(
	const struct kd_conf *c, const struct kd_conf_port *p, uint64_t lcore_mask, int node);

#endif /* KARSTD_PLACE_H */
