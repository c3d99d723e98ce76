/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Shared by the x86 kernels: the last reduction, and the 16-byte pieces of crc_head16.h. */
#ifndef CRC_X86_H
#define CRC_X86_H

#include "crc_kernel.h"

#include <immintrin.h>

#define X __m128i

karst_always_inline X
x_load(const void *p)
{
	return _mm_loadu_si128(p);
}

karst_always_inline void
x_store(void *p, X x)
{
	_mm_storeu_si128(p, x);
}

karst_always_inline X
x_zero(void)
{
	return _mm_setzero_si128();
}

karst_always_inline X
x_words(uint64_t low, uint64_t high)
{
	return _mm_set_epi64x((long long)high, (long long)low);
}

karst_always_inline X
x_xor_state(X x, uint32_t state)
{
	return _mm_xor_si128(x, _mm_cvtsi32_si128((int)state));
}

karst_always_inline X
x_xor(X a, X b)
{
	return _mm_xor_si128(a, b);
}

karst_always_inline int
x_quarter(const uint8_t *p)
{
	int v;

	memcpy(&v, p, sizeof(v));
	return v;
}

karst_always_inline X
x_quarters(const uint8_t *p0, const uint8_t *p1, const uint8_t *p2, const uint8_t *p3)
{
	return _mm_setr_epi32(x_quarter(p0), x_quarter(p1), x_quarter(p2), x_quarter(p3));
}

karst_always_inline X
x_shuffle(X x, X index)
{
	return _mm_shuffle_epi8(x, index);
}

/* The CRC of a remainder of 96 bits: see crc_fold.h. */
karst_always_inline uint32_t
lane_reduce(X t)
{
	const X k = _mm_load_si128((const X *)crc_barrett);
	X q = _mm_clmulepi64_si128(t, k, 0x00);

	q = _mm_clmulepi64_si128(q, k, 0x10);
	return (uint32_t)_mm_extract_epi32(_mm_xor_si128(t, q), 2);
}

karst_always_inline uint32_t
word_reduce(uint64_t w)
{
	const X k = _mm_loadl_epi64((const X *)(crc_fold_table + CRC_FOLD_WORDS - 1));

	return lane_reduce(_mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)w), k, 0x00));
}

#endif /* CRC_X86_H */
