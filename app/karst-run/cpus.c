/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "cpus.h"

#include <errno.h>

int
kr_cpus_choose(enum kr_cpus how, const cpu_set_t *may, const cpu_set_t *lcores, cpu_set_t *out)
{
	int cpu;

	*out = *may;
	if (how == KR_CPUS_ALL)
		return 0;
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, lcores))
			CPU_CLR(cpu, out);
	if (CPU_COUNT(out) != 0)
		return 0;
	*out = *may;
	return how == KR_CPUS_AUTO ? 0 : -1;
}

int
kr_cpus_set(enum kr_cpus how, const cpu_set_t *lcores)
{
	cpu_set_t may, chosen;

	if (sched_getaffinity(0, sizeof(may), &may) != 0)
		return how == KR_CPUS_SPARE ? -errno : 0; /* more CPUs than a cpu_set_t has room
							   * for */
	if (kr_cpus_choose(how, &may, lcores, &chosen) != 0)
		return -ENODATA;
	if (CPU_EQUAL(&may, &chosen))
		return 0;
	return sched_setaffinity(0, sizeof(chosen), &chosen) == 0 ? 0 : -errno;
}
