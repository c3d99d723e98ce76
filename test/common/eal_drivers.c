/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Linked into tests that start an EAL in each case: restricts the EAL to the drivers that the test
 * is linked with.  Loading all drivers of the system takes longer than many cases.
 */
#include "few_drivers.h"

static __attribute__((constructor)) void
eal_drivers_begin(void)
{
	few_drivers_begin();
}
