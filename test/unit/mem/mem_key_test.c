/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Keys: a bijection, no stale key fits, the next key cannot be guessed. */
#include <criterion/criterion.h>

#include "mem_bed.h"

static uint8_t bytes[64];

static uint32_t
reg(struct karst_mem *m, uint32_t pd)
{
	return bed_mr(m, pd, bytes, 0x1000, sizeof(bytes), ACCESS_ALL);
}

static enum karst_mem_status
look(const struct karst_mem *m, uint32_t pd, uint32_t key)
{
	uint8_t *host = NULL;
	enum karst_mem_status s = karst_mem_check_local(m, pd, key, 0x1008, 8, 0, &host);

	cr_assert_eq(s,
		karst_mem_check_remote(m, pd, 5, key, 0x1008, 8, KARST_ACCESS_REMOTE_READ, &host));
	cr_assert_eq(host, s == KARST_MEM_OK ? bytes + 8 : NULL);
	return s;
}

Test(mem_key, config)
{
	struct karst_mem_config cfg = {.max_keys = 2, .max_pds = 1};
	struct karst_mem *m;
	uint8_t *buf = aligned_alloc(64, 1 << 20);

	cr_assert_gt(karst_mem_size(&cfg), 0);
	cr_assert_eq(karst_mem_init(buf + 8, &cfg, &m), -EINVAL, "not aligned");
	cr_assert_eq(karst_mem_init(NULL, &cfg, &m), -EINVAL);
	cfg.max_keys = 1;
	cr_assert_eq(karst_mem_size(&cfg), 0);
	cr_assert_eq(karst_mem_init(buf, &cfg, &m), -EINVAL);
	cfg.max_keys = (1 << 20) + 1;
	cr_assert_eq(karst_mem_size(&cfg), 0);
	cfg.max_keys = 1 << 20;
	cr_assert_geq(karst_mem_size(&cfg), 64u << 20);
	cfg.max_pds = 0;
	cr_assert_eq(karst_mem_size(&cfg), 0);
	cfg.max_pds = 65537;
	cr_assert_eq(karst_mem_size(&cfg), 0);
	free(buf);
}

/* Every slot is named by the same number of keys, so the mapping is a permutation. */
Test(mem_key, permutation)
{
	enum { SLOTS = 1024 };
	struct karst_mem *m = bed_open(SLOTS, 1);
	uint32_t *count = calloc(SLOTS, sizeof(*count));
	uint32_t upper, i;

	for (upper = 0; upper < 1u << 24; upper++)
		count[karst_mem_entry_of(m, upper << 8 | (upper & 0xff)) - m->entry]++;
	for (i = 0; i < SLOTS; i++)
		cr_assert_eq(count[i], (1u << 24) / SLOTS);
	free(count);
	bed_close(m);
}

/* All slots can be used, the low byte does not choose the slot, and all of it is compared. */
Test(mem_key, full_table)
{
	struct karst_mem *m = bed_open(1000, 1); /* rounded up */
	uint32_t keys[1024], pd = bed_pd(m), i, low, extra;

	for (i = 0; i < 1024; i++)
		keys[i] = reg(m, pd);
	cr_assert_eq(karst_mr_reg(m, pd, bytes, 0, 1, 0, &extra), -ENOSPC);
	cr_assert_eq(karst_mw_alloc(m, pd, KARST_MEM_MW1, &extra), -ENOSPC);
	for (i = 0; i < 1024; i++) {
		cr_assert_eq(look(m, pd, keys[i]), KARST_MEM_OK);
		karst_mem_prefetch(m, keys[i]);
		for (low = 1; low < 256; low++)
			cr_assert_eq(look(m, pd, keys[i] ^ low), KARST_MEM_BAD_KEY);
	}
	for (i = 0; i < 1024; i++)
		cr_assert_eq(bed_dereg(m, keys[i]), 0);
	for (i = 0; i < 1024; i++)
		cr_assert_eq(look(m, pd, keys[i]), KARST_MEM_BAD_KEY);
	bed_close(m);
}

/* An empty table accepts no key at all, especially not one that looks like "none". */
Test(mem_key, empty_table)
{
	struct karst_mem *m = bed_open(2, 1);
	uint32_t pd = bed_pd(m), key;
	uint64_t s = 3;

	for (key = 0; key < 1024; key++)
		cr_assert_eq(look(m, pd, key), KARST_MEM_BAD_KEY);
	for (key = 0; key < 100000; key++)
		cr_assert_eq(look(m, pd, (uint32_t)bed_rnd(&s)), KARST_MEM_BAD_KEY);
	bed_close(m);
}

/* The same after use, when slots hold remains of keys. */
Test(mem_key, stale_keys)
{
	enum { SLOTS = 16, ROUNDS = 400 };
	struct karst_mem *m = bed_open(SLOTS, 1);
	uint32_t pd = bed_pd(m), *stale = calloc(SLOTS * ROUNDS, sizeof(*stale));
	uint32_t live[SLOTS], n = 0, i, r;

	for (r = 0; r < ROUNDS; r++) {
		for (i = 0; i < SLOTS; i++)
			live[i] = reg(m, pd);
		for (i = 0; i < n; i++)
			cr_assert_eq(look(m, pd, stale[i]), KARST_MEM_BAD_KEY);
		for (i = 0; i < SLOTS; i++) {
			cr_assert_eq(look(m, pd, live[i]), KARST_MEM_OK);
			cr_assert_eq(bed_dereg(m, live[i]), 0);
			cr_assert_eq(karst_mr_dereg_begin(m, live[i]), -EINVAL);
			stale[n++] = live[i];
		}
	}
	free(stale);
	bed_close(m);
}

static int
compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* One slot is used over and over: its upper bits do not repeat before all generations have been
 * used. */
Test(mem_key, generations)
{
	enum { SLOTS = 1024, GENERATIONS = (1 << 24) / SLOTS - 1 };
	struct karst_mem *m = bed_open(SLOTS, 1);
	uint32_t pd = bed_pd(m), *upper = calloc(GENERATIONS, sizeof(*upper));
	uint32_t key, i;

	for (i = 0; i < SLOTS - 1; i++)
		reg(m, pd);
	for (i = 0; i < GENERATIONS; i++) {
		key = reg(m, pd);
		upper[i] = key >> 8;
		cr_assert_eq(bed_dereg(m, key), 0);
	}
	qsort(upper, GENERATIONS, sizeof(*upper), compare_u32);
	for (i = 1; i < GENERATIONS; i++)
		cr_assert_neq(upper[i], upper[i - 1]);
	free(upper);
	bed_close(m);
}

/* Freed slots are used in order: the one that was freed first is used first. */
Test(mem_key, reuse_in_order)
{
	enum { SLOTS = 64 };
	struct karst_mem *m = bed_open(SLOTS, 1);
	uint32_t pd = bed_pd(m), keys[SLOTS], i;
	struct karst_mem_entry *freed[SLOTS / 2];

	for (i = 0; i < SLOTS; i++)
		keys[i] = reg(m, pd);
	for (i = 0; i < SLOTS / 2; i++) {
		uint32_t k = keys[(i * 37 + 5) % SLOTS];

		freed[i] = karst_mem_entry_of(m, k);
		cr_assert_eq(bed_dereg(m, k), 0);
	}
	for (i = 0; i < SLOTS / 2; i++)
		cr_assert_eq(karst_mem_entry_of(m, reg(m, pd)), freed[i]);
	bed_close(m);
}

/*
 * Not a proof of secrecy, but of the absence of the obvious: over 4096 registrations in a row
 * no difference (sum or xor) between neighbours is frequent, every bit is set about half of the
 * time and changes about half of the time, and all low bytes occur.
 */
Test(mem_key, no_pattern)
{
	enum { N = 4096 };
	struct karst_mem *m = bed_open(N, 1);
	uint32_t pd = bed_pd(m), diff[N - 1], xor[N - 1],
		 low[256] = {
			 0};
	unsigned int set[32] = {0}, flip[32] = {0}, i, b, same;
	uint32_t key, last = 0;

	for (i = 0; i < N; i++) {
		key = reg(m, pd);
		low[key & 0xff]++;
		for (b = 0; b < 32; b++) {
			set[b] += key >> b & 1;
			flip[b] += (key ^ last) >> b & 1;
		}
		if (i > 0) {
			diff[i - 1] = (key - last) >> 8;
			xor[i - 1] = (key ^ last) >> 8;
		}
		last = key;
	}
	for (b = 0; b < 32; b++) {
		cr_assert(set[b] > N * 2 / 5 && set[b] < N * 3 / 5, "bit %u set %u", b, set[b]);
		cr_assert(flip[b] > N * 2 / 5 && flip[b] < N * 3 / 5, "bit %u flip %u", b, flip[b]);
	}
	for (b = 0; b < 256; b++)
		cr_assert_gt(low[b], 0);
	qsort(diff, N - 1, sizeof(*diff), compare_u32);
	qsort(xor, N - 1, sizeof(*xor), compare_u32);
	for (i = 1, same = 0; i < N - 1; i++)
		same += (diff[i] == diff[i - 1]) + (xor[i] == xor[i - 1]);
	cr_assert_lt(same, N / 64, "%u equal differences", same);
	bed_close(m);
}

/* Seeds that differ in one bit have no keys in common beyond chance. */
Test(mem_key, seeds)
{
	enum { N = 256 };
	uint32_t keys[64][N];
	unsigned int i, j, k, upper = 0;

	for (i = 0; i < 64; i++) {
		struct karst_mem *m = bed_open_seed(N, 1, 1ull << i);
		uint32_t pd = bed_pd(m);

		for (j = 0; j < N; j++)
			keys[i][j] = reg(m, pd);
		bed_close(m);
	}
	for (i = 0; i < 64; i++)
		for (j = 0; j < N; j++)
			for (k = 0; k < i; k++)
				upper += keys[i][j] >> 8 == keys[k][j] >> 8;
	cr_assert_leq(upper, 3, "%u of half a million pairs are equal", upper);
}
