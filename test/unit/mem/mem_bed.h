/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A table to test with, and random numbers from a seed.  Does not need Criterion. */
#ifndef MEM_BED_H
#define MEM_BED_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "karst_mem.h"

/* All flags that one region may have at once, except zero-based addresses. */
#define ACCESS_ALL (KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE | KARST_ACCESS_MW_BIND)

/* Ends the test if @c is false; Criterion reports that as a crash. */
#define bed_check(c) bed_check_at((c), #c, __FILE__, __LINE__)

static inline void
bed_check_at(bool good, const char *what, const char *file, int line)
{
	if (good)
		return;
	fprintf(stderr, "%s:%d: %s\n", file, line, what);
	abort();
}

static inline struct karst_mem *
bed_open_seed(uint32_t max_keys, uint32_t max_pds, uint64_t seed)
{
	struct karst_mem_config cfg = {.max_keys = max_keys, .max_pds = max_pds, .seed = {seed, 7}};
	struct karst_mem *m = NULL;
	void *buf = aligned_alloc(KARST_CACHE_LINE, karst_mem_size(&cfg));

	bed_check(karst_mem_init(buf, &cfg, &m) == 0);
	bed_check((void *)m == buf);
	return m;
}

static inline struct karst_mem *
bed_open(uint32_t max_keys, uint32_t max_pds)
{
	return bed_open_seed(max_keys, max_pds, 0x1234);
}

static inline void
bed_close(struct karst_mem *m)
{
	free(m);
}

static inline uint32_t
bed_pd(struct karst_mem *m)
{
	uint32_t pd = 0;

	bed_check(karst_pd_alloc(m, &pd) == 0);
	bed_check(pd >= 1);
	return pd;
}

static inline uint32_t
bed_mr(struct karst_mem *m, uint32_t pd, void *host, uint64_t va, uint64_t len, unsigned int access)
{
	uint32_t key = 0;

	bed_check(karst_mr_reg(m, pd, host, va, len, access, &key) == 0);
	bed_check(key >> 8 != 0);
	return key;
}

static inline int
bed_dereg(struct karst_mem *m, uint32_t key)
{
	int rc = karst_mr_dereg_begin(m, key);

	if (rc == 0)
		karst_mr_dereg_end(m, key);
	return rc;
}

static inline int
bed_rereg(struct karst_mem *m, uint32_t key, unsigned int what, const struct karst_mr_attr *attr)
{
	int rc = karst_mr_rereg_begin(m, key, what, attr);

	if (rc == 0)
		karst_mr_rereg_end(m, key, what, attr);
	return rc;
}

static inline int
bed_mw_free(struct karst_mem *m, uint32_t key)
{
	int rc = karst_mw_free_begin(m, key);

	if (rc == 0)
		karst_mw_free_end(m, key);
	return rc;
}

static inline uint64_t
bed_rnd(uint64_t *s)
{
	uint64_t z = *s += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

#endif /* MEM_BED_H */
