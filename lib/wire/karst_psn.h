/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Packet sequence number arithmetic modulo 2^24 (P1); MSNs follow the same rules (R10). */
#ifndef KARST_PSN_H
#define KARST_PSN_H

#include "karst_base.h"

#define KARST_PSN_MASK 0xffffffu

/** @psn plus @n packets; a negative @n is passed as unsigned. */
static inline uint32_t
karst_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & KARST_PSN_MASK;
}

/** a - b as a signed distance: negative when a is before b (within 2^23). */
static inline int32_t
karst_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline bool
karst_psn_before(uint32_t a, uint32_t b)
{
	return karst_psn_diff(a, b) < 0;
}

/** The number of PSNs from @from to @to. */
static inline uint32_t
karst_psn_distance(uint32_t to, uint32_t from)
{
	return (to - from) & KARST_PSN_MASK;
}

/** Packets (and PSNs) that @len bytes take at a path MTU of 2^@mtu_shift; at least one (P1). */
static inline uint32_t
karst_psn_count(uint32_t len, unsigned int mtu_shift)
{
	uint32_t n = (uint32_t)(((uint64_t)len + (1u << mtu_shift) - 1) >> mtu_shift);

	return n + (n == 0);
}

#endif /* KARST_PSN_H */
