/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#ifndef TEST_UNIT_CLIENT_MEMORY_MAPS_H
#define TEST_UNIT_CLIENT_MEMORY_MAPS_H

#include <stdio.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#define MAPS_SANITIZER_BITS 42 /* bits of address below this: the address sanitizer's heap, 4 TiB */
#define MAPS_SANITIZER      (0x600000000000ull >> MAPS_SANITIZER_BITS)

/** Counts the mappings of this process, without those of the sanitizer's heap, which grows at any
 * time. */
static inline unsigned int
maps_count(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char *line = NULL;
	size_t bytes = 0;
	unsigned int n = 0;

	cr_assert_not_null(f);
	while (getline(&line, &bytes, f) > 0)
		n += strtoull(line, NULL, 16) >> MAPS_SANITIZER_BITS != MAPS_SANITIZER;
	free(line);
	fclose(f);
	return n;
}

#endif
