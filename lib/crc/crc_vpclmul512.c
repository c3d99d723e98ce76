/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* CRC-32 with VPCLMULQDQ on 512 bits: a block is one register, masks take care of edges. */
#include "karst_cpu.h"

#include <immintrin.h>

#define V         __m512i
#define VEC_BYTES 64
#define FOLD_ACCS 4
#define HEAD_UNIT 64

struct block {
	__m512i v[1];
};

#include "crc_x86.h"

karst_always_inline V
vec_load(const void *p)
{
	return _mm512_loadu_si512(p);
}

karst_always_inline void
vec_store(void *p, V v)
{
	_mm512_storeu_si512(p, v);
}

karst_always_inline V
vec_zero(void)
{
	return _mm512_setzero_si512();
}

karst_always_inline V
vec_or(V a, V b)
{
	return _mm512_or_si512(a, b);
}

karst_always_inline V
vec_xor3(V a, V b, V c)
{
	return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}

karst_always_inline V
vec_mul_lo(V a, V k)
{
	return _mm512_clmulepi64_epi128(a, k, 0x00);
}

karst_always_inline V
vec_mul_hi(V a, V k)
{
	return _mm512_clmulepi64_epi128(a, k, 0x11);
}

karst_always_inline V
vec_pair(const void *p)
{
	return _mm512_broadcast_i32x4(_mm_loadu_si128(p));
}

karst_always_inline uint32_t
vec_reduce(V t)
{
	__m256i h = _mm256_xor_si256(_mm512_castsi512_si256(t), _mm512_extracti64x4_epi64(t, 1));

	return lane_reduce(
		_mm_xor_si128(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)));
}

/* Masked loads do not touch what the mask leaves out, so an address may lie outside. */
karst_always_inline const void *
before(const uint8_t *end)
{
	return (const void *)((uintptr_t)end - 64);
}

karst_always_inline struct block
block_head(uint32_t state, const bool copying, uint8_t *dst, const uint8_t *src, unsigned int n)
{
	unsigned int gap = 64 - n;
	__mmask64 m = ~0ull << gap;
	struct block b = {{_mm512_maskz_loadu_epi8(m, before(src + n))}};

	if (copying)
		_mm512_mask_storeu_epi8((void *)before(dst + n), m, b.v[0]);
	if (!__builtin_constant_p(state) || state != 0) {
		unsigned int turn = 8 * gap % 32;
		__m512i s = _mm512_set1_epi32((int)(state << turn | state >> (-turn & 31)));

		b.v[0] = _mm512_xor_si512(b.v[0], _mm512_maskz_mov_epi8(0xfull << gap, s));
	}
	return b;
}

karst_always_inline struct block
block_join(uint8_t *frame, const uint8_t *src, unsigned int n, unsigned int avail)
{
	__mmask64 from_src = ~(~0ull >> n);
	__mmask64 from_frame = ~0ull << (64 - avail) & ~from_src;
	struct block b = {{_mm512_maskz_loadu_epi8(from_frame, before(frame))}};

	b.v[0] = _mm512_mask_loadu_epi8(b.v[0], from_src, before(src + n));
	_mm512_mask_storeu_epi8((void *)before(frame), from_src, b.v[0]);
	return b;
}

#include "crc_fold.h"
#include "crc_fold_icrc.h"
#include "crc_burst.h"

const struct crc_kernel crc_kernel_vpclmul512 = {
	.ops = {.name = "vpclmul512", .update = crc_update, .copy = crc_copy},
	.needs = KARST_CPU_VPCLMUL_512 | KARST_CPU_PCLMUL,
	.seal_burst = seal_burst,
	.verify_burst = verify_burst,
	.rocev2 = rocev2,
};
