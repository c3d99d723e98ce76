/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * block_head() and block_join() of crc_fold.h for machines without masked loads: a block is
 * composed of four pieces of 16 bytes.  The piece that is only partly inside the message is loaded
 * from the beginning of the message and moved up by a byte shuffle; if the message is shorter than
 * a piece, it is loaded as two overlapping words.
 *
 * The including file provides (X is its 16-byte vector type):
 *   x_load(p) x_store(p, x) x_zero() x_words(low, high) x_xor_state(x, state)
 *   x_shuffle(x, index): byte i is byte index[i] of x, or 0 if index[i] has its top bit set
 *   block_of(a, b, c, d)
 */
#ifndef CRC_HEAD16_H
#define CRC_HEAD16_H

#include "crc_kernel.h"

#define HEAD_UNIT 16

karst_always_inline uint64_t
load_word(const uint8_t *p, unsigned int bytes)
{
	uint64_t v = 0;

	memcpy(&v, p, bytes);
	return v;
}

/* Loads the 1..15 bytes at @p to the low end, zeros above. */
karst_always_inline X
x_load_short(const uint8_t *p, unsigned int n)
{
	if (n > 8)
		return x_words(load_word(p, 8), load_word(p + n - 8, 8) >> 8 * (16 - n));
	if (n == 8)
		return x_words(load_word(p, 8), 0);
	if (n >= 4)
		return x_words(load_word(p, 4) | load_word(p + n - 4, 4) << 8 * (n - 4), 0);
	return x_words(
		p[0] | (uint64_t)p[n / 2] << 8 * (n / 2) | (uint64_t)p[n - 1] << 8 * (n - 1), 0);
}

/* Copies 0..64 bytes; every byte is read before any byte is written with which it may share a
 * word. */
karst_always_inline void
copy_short(uint8_t *dst, const uint8_t *src, unsigned int n)
{
	if (n >= 16) {
		for (unsigned int i = 0; i + 16 <= n; i += 16)
			x_store(dst + i, x_load(src + i));
		x_store(dst + n - 16, x_load(src + n - 16));
	} else if (n >= 8) {
		memcpy(dst, src, 8);
		memcpy(dst + n - 8, src + n - 8, 8);
	} else if (n >= 4) {
		memcpy(dst, src, 4);
		memcpy(dst + n - 4, src + n - 4, 4);
	} else if (n > 0) {
		dst[0] = src[0];
		dst[n / 2] = src[n / 2];
		dst[n - 1] = src[n - 1];
	}
}

/* The piece that ends @after bytes before the end of the @n bytes at @src. */
karst_always_inline X
piece(uint32_t state, const uint8_t *src, unsigned int n, unsigned int after)
{
	unsigned int begin = n - after; /* of the bytes up to the end of the piece */
	X x;

	if (n <= after)
		return x_zero();
	if (begin > 16)
		return x_load(src + begin - 16);
	x = begin == 16 || n >= 16 ? x_load(src) : x_load_short(src, begin);
	x = x_xor_state(x, state);
	return begin == 16 ? x : x_shuffle(x, x_load(crc_shift_table + begin));
}

karst_always_inline struct block
block_head(uint32_t state, const bool copying, uint8_t *dst, const uint8_t *src, unsigned int n)
{
	if (copying)
		copy_short(dst, src, n);
	return block_of(piece(state, src, n, 48), piece(state, src, n, 32),
		piece(state, src, n, 16), piece(state, src, n, 0));
}

karst_always_inline struct block
block_join(uint8_t *frame, const uint8_t *src, unsigned int n, unsigned int avail)
{
	copy_short(frame - n, src, n);
	return block_head(0, false, NULL, frame - avail, avail);
}

#endif /* CRC_HEAD16_H */
