/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The primitives of crc_fold.h on 512 bits: a block is one register, and masks handle the edges of
 * a message.
 */
#ifndef CRC_AVX512_H
#define CRC_AVX512_H

#include "crc_x86.h"

#define V         __m512i
#define VEC_BYTES 64
#define HEAD_UNIT 64

struct block {
	__m512i v[1];
};

karst_always_inline struct block
block_of(X a, X b, X c, X d)
{
	return (struct block){{_mm512_inserti64x4(
		_mm512_castsi256_si512(_mm256_set_m128i(b, a)), _mm256_set_m128i(d, c), 1)}};
}

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
vec_or(V a, V b)
{
	return _mm512_or_si512(a, b);
}

karst_always_inline V
vec_and(V a, V b)
{
	return _mm512_and_si512(a, b);
}

karst_always_inline V
vec_xor(V a, V b)
{
	return _mm512_xor_si512(a, b);
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
vec_mul_lo_hi(V a, V k)
{
	return _mm512_clmulepi64_epi128(a, k, 0x10);
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

karst_always_inline struct block
block_sums(V a, V b, V c, V d)
{
	V ab = vec_xor(_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xdd));
	V cd = vec_xor(_mm512_shuffle_i64x2(c, d, 0x88), _mm512_shuffle_i64x2(c, d, 0xdd));

	return (struct block){
		{vec_xor(_mm512_shuffle_i64x2(ab, cd, 0x88), _mm512_shuffle_i64x2(ab, cd, 0xdd))}};
}

karst_always_inline X
block_thirds(struct block b)
{
	const V third = _mm512_castsi128_si512(_mm_setr_epi32(2, 6, 10, 14));

	return _mm512_castsi512_si128(_mm512_permutexvar_epi32(third, b.v[0]));
}

karst_always_inline unsigned int
page_offset(const void *p)
{
	return (uintptr_t)p % 4096;
}

/* The numbers 0..63, minus @n each. */
karst_always_inline V
moved_up_by(unsigned int n)
{
	return _mm512_sub_epi8(_mm512_load_si512(crc_iota), _mm512_set1_epi8((char)n));
}

/*
 * Loads the n (1..64) bytes at @src to the upper end, zeros below.
 *
 * Masked loads read nothing that the mask excludes, so the address may be outside the message.  But
 * if it is in another page that is not mapped, suppressing the fault costs hundreds of cycles.  So
 * near the beginning of a page the bytes are loaded upwards and moved.
 */
karst_always_inline V
load_top(const uint8_t *src, unsigned int n)
{
	unsigned int gap = 64 - n;
	__mmask64 m = ~0ull << gap;

	if (karst_unlikely(page_offset(src) < gap))
		return _mm512_maskz_permutexvar_epi8(
			m, moved_up_by(gap), _mm512_maskz_loadu_epi8(~0ull >> gap, src));
	return _mm512_maskz_loadu_epi8(m, (const void *)((uintptr_t)src - gap));
}

/* The reverse: stores the upper @n bytes of @v, with the same precaution. */
karst_always_inline void
store_top(uint8_t *dst, V v, unsigned int n)
{
	unsigned int gap = 64 - n;

	if (karst_unlikely(page_offset(dst) < gap))
		_mm512_mask_storeu_epi8(
			dst, ~0ull >> gap, _mm512_permutexvar_epi8(moved_up_by(-gap), v));
	else
		_mm512_mask_storeu_epi8((void *)((uintptr_t)dst - gap), ~0ull << gap, v);
}

karst_always_inline struct block
block_head(uint32_t state, const bool copying, uint8_t *dst, const uint8_t *src, unsigned int n)
{
	struct block b;
	V s;

	if (karst_likely(n == 64)) {
		b.v[0] = vec_load(src);
		if (copying)
			vec_store(dst, b.v[0]);
		s = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state));
	} else {
		unsigned int gap = 64 - n, turn = 8 * gap % 32;

		b.v[0] = load_top(src, n);
		if (copying)
			store_top(dst, b.v[0], n);
		/* XOR the state over the first four of the n bytes. */
		s = _mm512_maskz_mov_epi8(0xfull << gap,
			_mm512_set1_epi32((int)(state << turn | state >> (-turn & 31))));
	}
	if (!__builtin_constant_p(state) || state != 0)
		b.v[0] = _mm512_xor_si512(b.v[0], s);
	return b;
}

karst_always_inline struct block
block_join(uint8_t *frame, const uint8_t *src, unsigned int n, unsigned int avail)
{
	struct block b = {{load_top(frame - avail, avail)}};

	if (n > 0) {
		V v = load_top(src, n);

		store_top(frame - n, v, n);
		b.v[0] = _mm512_mask_mov_epi8(b.v[0], ~(~0ull >> n), v);
	}
	return b;
}

#endif /* CRC_AVX512_H */
