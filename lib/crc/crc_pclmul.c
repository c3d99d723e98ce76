/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* CRC-32 with PCLMULQDQ: a block is four SSE registers. */
#include "karst_cpu.h"

#include <immintrin.h>

#define V         __m128i
#define VEC_BYTES 16
#define FOLD_ACCS 1

#include "crc_x86.h"

struct block {
	V v[4];
};

karst_always_inline struct block
block_of(X a, X b, X c, X d)
{
	return (struct block){{a, b, c, d}};
}

karst_always_inline V
vec_load(const void *p)
{
	return _mm_loadu_si128(p);
}

karst_always_inline void
vec_store(void *p, V v)
{
	_mm_storeu_si128(p, v);
}

karst_always_inline V
vec_or(V a, V b)
{
	return _mm_or_si128(a, b);
}

karst_always_inline V
vec_and(V a, V b)
{
	return _mm_and_si128(a, b);
}

karst_always_inline V
vec_xor(V a, V b)
{
	return _mm_xor_si128(a, b);
}

karst_always_inline V
vec_xor3(V a, V b, V c)
{
	return _mm_xor_si128(_mm_xor_si128(a, b), c);
}

karst_always_inline V
vec_mul_lo(V a, V k)
{
	return _mm_clmulepi64_si128(a, k, 0x00);
}

karst_always_inline V
vec_mul_hi(V a, V k)
{
	return _mm_clmulepi64_si128(a, k, 0x11);
}

karst_always_inline V
vec_mul_lo_hi(V a, V k)
{
	return _mm_clmulepi64_si128(a, k, 0x10);
}

karst_always_inline V
vec_pair(const void *p)
{
	return _mm_loadu_si128(p);
}

karst_always_inline uint32_t
vec_reduce(V t)
{
	return lane_reduce(t);
}

karst_always_inline struct block
block_sums(V a, V b, V c, V d)
{
	return block_of(a, b, c, d);
}

karst_always_inline X
block_thirds(struct block b)
{
	return _mm_unpacklo_epi64(
		_mm_unpackhi_epi32(b.v[0], b.v[1]), _mm_unpackhi_epi32(b.v[2], b.v[3]));
}

#include "crc_head16.h"
#include "crc_fold.h"
#include "crc_fold_icrc.h"
#include "crc_burst.h"
#include "crc_known.h"

const struct crc_kernel crc_kernel_pclmul = {
	.ops = {.name = "pclmul", .update = crc_update, .copy = crc_copy},
	.needs = KARST_CPU_PCLMUL,
	.seal_burst = seal_burst,
	.verify_burst = verify_burst,
	.known_sums = known_sums,
	.known_tail = CRC_KNOWN_TAIL,
};
