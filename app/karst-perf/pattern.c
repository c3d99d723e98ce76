/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "pattern.h"

#define STEP UINT64_C(0x9e3779b97f4a7c15)

/* Word 0 is perf_pattern_first() itself; word i is computed from that and i. */
static inline uint64_t
pattern_word(uint64_t key, uint64_t i)
{
	uint64_t x = key + i * STEP;

	return x ^ (x >> 29) ^ (x << 17);
}

static inline uint64_t
key_of(uint64_t first)
{
	return perf_mix64(first);
}

void
perf_pattern_fill(void *to, uint32_t bytes, uint64_t seed, uint32_t qp, uint32_t seq)
{
	uint64_t first = perf_pattern_first(seed, qp, seq), key = key_of(first), tail;
	uint64_t i, words = bytes / 8;
	uint8_t *p = to;

	for (i = 0; i < words; i++) {
		uint64_t w = pattern_word(key, i);

		memcpy(p + i * 8, &w, 8);
	}
	if (words > 0)
		memcpy(p, &first, 8);
	tail = words > 0 ? pattern_word(key, words) : first;
	memcpy(p + words * 8, &tail, bytes % 8);
}

bool
perf_pattern_check(const void *from, uint32_t bytes, uint64_t seed, uint32_t qp, uint32_t seq)
{
	uint64_t first = perf_pattern_first(seed, qp, seq), key = key_of(first), tail, got;
	uint64_t i, words = bytes / 8, wrong = 0;
	const uint8_t *p = from;

	for (i = 1; i < words; i++) {
		memcpy(&got, p + i * 8, 8);
		wrong |= got ^ pattern_word(key, i);
	}
	if (words > 0) {
		memcpy(&got, p, 8);
		wrong |= got ^ first;
	}
	tail = words > 0 ? pattern_word(key, words) : first;
	return wrong == 0 && memcmp(p + words * 8, &tail, bytes % 8) == 0;
}

bool
perf_pattern_check_end(const void *from, uint32_t bytes, uint64_t seed, uint32_t qp, uint32_t seq)
{
	uint64_t first = perf_pattern_first(seed, qp, seq), w;
	uint32_t last = (bytes - 1) / 8;

	w = last > 0 ? pattern_word(key_of(first), last) : first;
	return memcmp((const uint8_t *)from + (size_t)last * 8, &w, bytes - last * 8) == 0;
}

bool
perf_pattern_zero(const void *from, uint32_t bytes)
{
	const uint8_t *p = from;
	uint8_t any = 0;
	uint32_t i;

	for (i = 0; i < bytes; i++)
		any |= p[i];
	return any == 0;
}
