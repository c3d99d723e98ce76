/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Prints what registering costs a program, for doc/memory.rst: a table, the best of some rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "karst.h"
#include "memory.h"

#define ROUNDS 9

static double
now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Registers and deregisters [p, p + len). */
static void
measure(const char *what, const void *p, size_t len, uint64_t min)
{
	double get = 1e30, put = 1e30;
	char why[KARST_CTL_WHY];
	struct karst_memory *m;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		double t0 = now_us(), t1;

		if (karst_memory_get(p, len, true, min, &m, why) != 0) {
			fprintf(stderr, "%s: %s\n", what, why);
			exit(1);
		}
		t1 = now_us();
		karst_memory_put(m);
		get = t1 - t0 < get ? t1 - t0 : get;
		t0 = now_us() - t1;
		put = t0 < put ? t0 : put;
	}
	printf("%-12s %12zu %14.1f %14.1f\n", what, len, get, put);
}

int
main(void)
{
	static const size_t sizes[] = {4096, 65536, 1 << 20, 64 << 20};
	size_t i;

	printf("%-12s %12s %14s %14s\n", "memory", "bytes", "register us", "deregister us");
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		void *shared = karst_alloc(sizes[i]);
		void *priv = mmap(
			NULL, sizes[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (shared == NULL || priv == MAP_FAILED)
			return 1;
		memset(shared, 1, sizes[i]);
		memset(priv, 1, sizes[i]);
		measure("karst_alloc", shared, sizes[i], 1);
		measure("moved", priv, sizes[i], 1);
		measure("copied", priv, sizes[i], UINT64_MAX);
		karst_free(shared);
		munmap(priv, sizes[i]);
	}
	return 0;
}
