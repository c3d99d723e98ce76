/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * EAL of shared libraries loads every driver of the system when it starts, more than a hundred and
 * the libraries that they need: a third of what karstd costs from its start to its end.  A program
 * whose devices are virtual needs at most one of them for each.
 */
#ifndef KARST_FEW_DRIVERS_H
#define KARST_FEW_DRIVERS_H

#include <stddef.h>

/**
 * Before rte_eal_init(): that loads only the handlers of mempools.  Where this is not possible it
 * loads all, as ever.  Not for programs with devices on a bus: which driver they need is known to
 * it alone.
 */
void few_drivers_begin(void);

/**
 * Before the virtual device @name is made, whose arguments may follow after a comma: loads its
 * driver, or all if it is not known which that is.
 *
 * @return 0, or -ENOENT with the file and the reason in @why.
 */
int few_drivers_load(const char *name, char *why, size_t len);

#endif
