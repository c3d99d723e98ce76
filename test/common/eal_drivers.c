/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Linked into a test with an EAL in each of its cases: that EAL has the drivers that the test is
 * linked with, and no others.  To load all drivers of the system takes longer than many cases.
 */
#include "few_drivers.h"

static __attribute__((constructor)) void
eal_drivers_begin(void)
{
	few_drivers_begin();
}
