/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The only source of random numbers of a schedule: a 64-bit counter, passed through a mixer. */
#ifndef SIM_RNG_H
#define SIM_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct sim_rng {
	uint64_t state;
};

static inline uint64_t
sim_mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static inline uint64_t
rng_u64(struct sim_rng *r)
{
	r->state += 0x9e3779b97f4a7c15ull;
	return sim_mix(r->state);
}

/** 0 .. n-1; 0 for n = 0. */
static inline uint32_t
rng_below(struct sim_rng *r, uint32_t n)
{
	return (uint32_t)((rng_u64(r) >> 32) * n >> 32);
}

/** lo .. hi, both included. */
static inline uint32_t
rng_range(struct sim_rng *r, uint32_t lo, uint32_t hi)
{
	return lo + rng_below(r, hi - lo + 1);
}

/** True in @ppm of a million cases. */
static inline bool
rng_ppm(struct sim_rng *r, uint32_t ppm)
{
	return rng_below(r, 1000000) < ppm;
}

/** True in one of @n cases. */
static inline bool
rng_one_in(struct sim_rng *r, uint32_t n)
{
	return rng_below(r, n) == 0;
}

/** lo .. hi with small values as likely as large ones, by powers of two; lo at least 1. */
static inline uint32_t
rng_log(struct sim_rng *r, uint32_t lo, uint32_t hi)
{
	uint32_t top = lo;

	while (top < hi && rng_below(r, 3) != 0)
		top = top > hi / 2 ? hi : top * 2;
	return rng_range(r, lo, top);
}

/** A power of two, lo .. hi, all equally likely; both powers of two. */
static inline uint32_t
rng_pow2(struct sim_rng *r, uint32_t lo, uint32_t hi)
{
	uint32_t n = 1, v;

	for (v = lo; v < hi; v <<= 1)
		n++;
	return lo << rng_below(r, n);
}

#endif /* SIM_RNG_H */
