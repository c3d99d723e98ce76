/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Selects the CPUs that the program runs on.  If a polling program and an lcore share a CPU, they
 * delay each other, and a scheduler that does not know about that puts them there from time to
 * time.
 */
#ifndef KARST_RUN_CPUS_H
#define KARST_RUN_CPUS_H

#include <sched.h>

enum kr_cpus {
	KR_CPUS_AUTO,  /* spare ones if there are any, otherwise all */
	KR_CPUS_SPARE, /* those that no lcore is bound to; an error if there is none */
	KR_CPUS_ALL,
};

/** Selects the program's CPUs from @may.  @return 0; -1: no CPU is spare, and @how requires one. */
int kr_cpus_choose(enum kr_cpus how, const cpu_set_t *may, const cpu_set_t *lcores, cpu_set_t *out);
/**
 * The same for this process, which then runs there. 0 or a negative errno; -ENODATA: no CPU is
 * spare.
 */
int kr_cpus_set(enum kr_cpus how, const cpu_set_t *lcores);

#endif /* KARST_RUN_CPUS_H */
