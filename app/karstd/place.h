/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Which processors the engine runs on, and how near they are to the devices. */
#ifndef KARSTD_PLACE_H
#define KARSTD_PLACE_H

#include "conf.h"

/** Fills in [engine] lcores if that is automatic.  -EIO: said why. */
int kd_place_choose(struct kd_conf *c);

/** NUMA node of a device of this name in the kernel's view, before DPDK starts; -1: not known. */
int kd_place_node_of_device(const struct kd_conf_port *p);

/** Warns if lcores of @p (bits of [engine] lcores) are on another node than its device. */
void kd_place_warn(
	const struct kd_conf *c, const struct kd_conf_port *p, uint64_t lcore_mask, int node);

#endif /* KARSTD_PLACE_H */
