/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Which CPUs the program runs on.  A program that polls and an lcore on one CPU keep each other
 * waiting, and a scheduler that does not know them puts them there now and then.
 */
#ifndef KARST_RUN_CPUS_H
#define KARST_RUN_CPUS_H

#include <sched.h>

enum kr_cpus {
	KR_CPUS_AUTO,  /* spare ones, if there are any */
	KR_CPUS_SPARE, /* those that no lcore is bound to */
	KR_CPUS_ALL,
};

/** Of the CPUs in @may, the program's.  0; -1: there is no spare one, and it is not left open. */
int kr_cpus_choose(enum kr_cpus how, const cpu_set_t *may, const cpu_set_t *lcores, cpu_set_t *out);
/** The same for this process, which then runs there.  0 or a negative errno; -ENODATA: none is
 *  spare. */
int kr_cpus_set(enum kr_cpus how, const cpu_set_t *lcores);

#endif /* KARST_RUN_CPUS_H */
