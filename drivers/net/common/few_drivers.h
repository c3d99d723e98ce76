/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * When EAL is a shared library, it loads every driver of the system when it starts: more than a
 * hundred, and the libraries that they need.  That is a third of the cost of karstd from start to
 * end.  A program whose devices are virtual needs at most one driver for each device.
 */
#ifndef KARST_FEW_DRIVERS_H
#define KARST_FEW_DRIVERS_H

#include <stddef.h>

/**
 * Call before rte_eal_init(), which then loads only the handlers of mempools.  Where this is not
 * possible, it loads all drivers as usual.  Not for programs with devices on a bus: only EAL knows
 * which drivers these need.
 */
void few_drivers_begin(void);

/**
 * Call before the virtual device @name is created; its arguments may follow after a comma.  Loads
 * the driver of the device, or all drivers if the right one is not known.
 *
 * @return 0, or -ENOENT with the file and the reason in @why.
 */
int few_drivers_load(const char *name, char *why, size_t len);

#endif
