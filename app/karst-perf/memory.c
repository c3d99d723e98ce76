/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "karst.h"

#define HUGE_BYTES (UINT64_C(2) << 20)

static uint64_t
whole_pages(uint64_t bytes)
{
	return (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
}

static uint8_t *
map_private(uint64_t bytes)
{
	uint64_t slack = bytes + HUGE_BYTES;
	uint8_t *raw, *p;

	raw = mmap(NULL, slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (raw == MAP_FAILED)
		return NULL;
	/* whole huge pages; the unaligned rest of the mapping stays unused */
	p = (uint8_t *)(((uintptr_t)raw + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1));
	(void)madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

static uint8_t *
map_hugetlb(uint64_t bytes)
{
	uint8_t *p = mmap(NULL, whole_pages(bytes), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static uint8_t *
memory_take(const struct perf_memory *m, uint64_t bytes, uint8_t **stack)
{
	uint8_t *p = NULL;

	switch (m->kind) {
	case PERF_MEMORY_PRIVATE:
		p = map_private(bytes);
		break;
	case PERF_MEMORY_ALLOC:
		p = karst_alloc(bytes);
		break;
	case PERF_MEMORY_MALLOC:
		p = malloc(bytes);
		break;
	case PERF_MEMORY_HUGETLB:
		p = map_hugetlb(bytes);
		break;
	case PERF_MEMORY_STACK:
		p = *stack;
		*stack += bytes;
		break;
	default:
		break;
	}
	if (p != NULL)
		memset(p, 0, bytes);
	return p;
}

static void
memory_give_back(const struct perf_memory *m, uint8_t *p, uint64_t bytes)
{
	if (p == NULL)
		return;
	if (m->kind == PERF_MEMORY_PRIVATE)
		munmap(p, bytes);
	else if (m->kind == PERF_MEMORY_HUGETLB)
		munmap(p, whole_pages(bytes));
	else if (m->kind == PERF_MEMORY_ALLOC)
		karst_free(p);
	else if (m->kind == PERF_MEMORY_MALLOC)
		free(p);
}

int
perf_memory_create(enum perf_memory_kind kind, uint32_t ends, uint64_t bytes, uint64_t lat_bytes,
	void *stack, struct perf_memory *m)
{
	uint8_t *rest = stack;
	int end;

	memset(m, 0, sizeof(*m));
	m->kind = kind;
	m->bytes = bytes;
	m->lat_bytes = lat_bytes;
	for (end = 0; end < PERF_ENDS; end++) {
		if ((ends >> end & 1) == 0)
			continue;
		m->base[end] = memory_take(m, bytes, &rest);
		m->lat[end] = lat_bytes != 0 ? memory_take(m, lat_bytes, &rest) : NULL;
		if (m->base[end] == NULL || (lat_bytes != 0 && m->lat[end] == NULL)) {
			fprintf(stderr, "karst-perf: no %smemory for %llu bytes of buffers%s\n",
				kind == PERF_MEMORY_HUGETLB ? "huge page " : "",
				(unsigned long long)(bytes + lat_bytes),
				kind == PERF_MEMORY_HUGETLB
					? "; /proc/sys/vm/nr_hugepages says how many there are"
					: "");
			perf_memory_destroy(m);
			return -ENOMEM;
		}
	}
	if (ends == (1u << PERF_CLIENT) && (m->mirror = map_private(bytes)) != NULL)
		memset(m->mirror, 0, bytes);
	return 0;
}

void
perf_memory_destroy(struct perf_memory *m)
{
	int end;

	for (end = 0; end < PERF_ENDS; end++) {
		memory_give_back(m, m->base[end], m->bytes);
		memory_give_back(m, m->lat[end], m->lat_bytes);
	}
	if (m->mirror != NULL)
		munmap(m->mirror, m->bytes);
	memset(m, 0, sizeof(*m));
}
