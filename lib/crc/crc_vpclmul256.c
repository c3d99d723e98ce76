/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* CRC-32 with VPCLMULQDQ on 256 bits: a block is two AVX registers. */
#include "karst_cpu.h"

#include <immintrin.h>

#define V         __m256i
#define VEC_BYTES 32
#define FOLD_ACCS 2

#include "crc_x86.h"

struct block {
	V v[2];
};

karst_always_inline struct block
block_of(X a, X b, X c, X d)
{
	return (struct block){{_mm256_set_m128i(b, a), _mm256_set_m128i(d, c)}};
}

karst_always_inline V
vec_load(const void *p)
{
	return _mm256_loadu_si256(p);
}

karst_always_inline void
vec_store(void *p, V v)
{
	_mm256_storeu_si256(p, v);
}

karst_always_inline V
vec_or(V a, V b)
{
	return _mm256_or_si256(a, b);
}

karst_always_inline V
vec_and(V a, V b)
{
	return _mm256_and_si256(a, b);
}

karst_always_inline V
vec_xor(V a, V b)
{
	return _mm256_xor_si256(a, b);
}

karst_always_inline V
vec_xor3(V a, V b, V c)
{
	return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}

karst_always_inline V
vec_mul_lo(V a, V k)
{
	return _mm256_clmulepi64_epi128(a, k, 0x00);
}

karst_always_inline V
vec_mul_hi(V a, V k)
{
	return _mm256_clmulepi64_epi128(a, k, 0x11);
}

karst_always_inline V
vec_mul_lo_hi(V a, V k)
{
	return _mm256_clmulepi64_epi128(a, k, 0x10);
}

karst_always_inline V
vec_pair(const void *p)
{
	return _mm256_broadcastsi128_si256(_mm_loadu_si128(p));
}

karst_always_inline uint32_t
vec_reduce(V t)
{
	return lane_reduce(
		_mm_xor_si128(_mm256_castsi256_si128(t), _mm256_extracti128_si256(t, 1)));
}

/* The xor of the lanes of each; that of @a is lane 0. */
karst_always_inline V
two_sums(V a, V b)
{
	return vec_xor(
		_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

karst_always_inline struct block
block_sums(V a, V b, V c, V d)
{
	return (struct block){{two_sums(a, b), two_sums(c, d)}};
}

karst_always_inline X
block_thirds(struct block b)
{
	V v = _mm256_unpackhi_epi32(b.v[0], b.v[1]); /* of lanes 0 and 2, and of lanes 1 and 3 */

	return _mm_unpacklo_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

#include "crc_head16.h"
#include "crc_fold.h"
#include "crc_fold_icrc.h"
#include "crc_burst.h"
#include "crc_known.h"

const struct crc_kernel crc_kernel_vpclmul256 = {
	.ops = {.name = "vpclmul256", .update = crc_update, .copy = crc_copy},
	.needs = KARST_CPU_VPCLMUL_256 | KARST_CPU_PCLMUL,
	.seal_burst = seal_burst,
	.verify_burst = verify_burst,
	.known_sums = known_sums,
	.known_tail = CRC_KNOWN_TAIL,
};
