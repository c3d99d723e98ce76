/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "cpu.h"

#include <stdio.h>
#include <unistd.h>

double
perf_cpu_parse(const char *text, long ticks_per_s)
{
	unsigned long long user, nice, system, idle, iowait, irq, softirq;

	/* steal time was not used by this machine, and guest time is part of user time */
	if (ticks_per_s <= 0 ||
		sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
			&iowait, &irq, &softirq) != 7)
		return 0;
	return (double)(user + nice + system + irq + softirq) / (double)ticks_per_s;
}

double
perf_cpu_busy_s(void)
{
	char text[256] = "";
	FILE *f = fopen("/proc/stat", "re");

	if (f == NULL)
		return 0;
	if (fgets(text, sizeof(text), f) == NULL)
		text[0] = '\0';
	fclose(f);
	return perf_cpu_parse(text, sysconf(_SC_CLK_TCK));
}

double
perf_jain(uint64_t (*share)(const void *arg, uint32_t i), const void *arg, uint32_t n)
{
	double sum = 0, squares = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		double x = (double)share(arg, i);

		sum += x;
		squares += x * x;
	}
	return squares > 0 ? sum * sum / (n * squares) : 0;
}
