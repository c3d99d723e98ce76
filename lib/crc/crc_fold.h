/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The folding engine, written once for all instruction sets that multiply without carries.  A
 * kernel file defines the primitives listed below and includes this file, then crc_burst.h; no
 * other file may include it.
 *
 * The message is divided into blocks of 64 bytes counted from its END; the first block is filled up
 * with leading zeros, which do not change a CRC.  So the tail needs no special case, and the
 * contribution of a block depends only on how many blocks follow it.  The incoming state is xored
 * into the first four bytes of the message.
 *
 * Polynomials are reflected (the lowest bit of a word is its highest power), as the bytes of the
 * message are.  crc_fold_table[CRC_FOLD_WORDS - 1 - j] is the 33-bit factor K(j) that carries a
 * 64-bit word over the j words after it and the 32 bits of the CRC: word * K(j) = word * x^(64 j +
 * 32) mod P, a polynomial of 96 bits.  Hence:
 *
 *   finish: multiply every word by the K of its distance from the end and xor the products.  The
 *     table is in the order of the message, so the factors of the 64 bytes that are d blocks
 *     before the end are the 64 bytes of the table that are d blocks before its end.
 *   fold by D words: the low word of each 128-bit lane times K(D) plus the high word times
 *     K(D - 1) is congruent to the lane carried over D words: read as a 128-bit lane, a
 *     product is 32 bits higher than as a 96-bit remainder, which cancels K's extra 32.
 *   reduce: a 96-bit remainder has its upper 64 bits in the low word of a lane.  Barrett:
 *     times x^96 / P gives the quotient, already in the low word; times P gives what to
 *     subtract; the CRC is then in the third quarter of the lane.
 *
 * Folding N blocks at a time and finishing the N accumulators costs as many multiplications as
 * finishing each block directly, two a lane; folding only limits the size of the table.
 *
 * The including file provides (V is its vector type, VEC_BYTES its size):
 *   vec_load(p) vec_store(p, v) vec_or(a, b) vec_xor(a, b) vec_xor3(a, b, c)
 *   vec_mul_lo(a, k), vec_mul_hi(a, k): low (high) words of each lane, 128-bit products
 *   vec_pair(p): the 16 bytes at p in every lane
 *   vec_reduce(t): the lanes of t xored, then reduced to the CRC
 *   word_reduce(w): the state after the 8 message bytes w, from state 0
 *   FOLD_ACCS: blocks folded side by side, a group; with OWN_GROUP_FOLD also group_fold(),
 *     which carries a group over the next one, for machines with a faster method
 *   HEAD_UNIT: block_head() can't inject a state when n % HEAD_UNIT is 1, 2 or 3
 *   block_head(state, copying, dst, src, n): the block whose last n (1..64) bytes are at
 *     src, the rest zero, with state xored into the first of them; copies them if copying
 *   block_join(frame, src, n, avail): the block that ends at frame and whose last n (0..63)
 *     bytes come from src and are stored in the frame; the avail (n < avail) last bytes of
 *     it are the frame's and src's, the rest is zero
 */
#ifndef CRC_FOLD_H
#define CRC_FOLD_H

#include "crc_kernel.h"

#define BLOCK      64
#define BLOCK_VECS (BLOCK / VEC_BYTES)

/* Largest message, in blocks after the first, that is finished without folding. */
#define DIRECT_MAX 6
static_assert((DIRECT_MAX + 1) * BLOCK <= CRC_FOLD_WORDS * 8, "factors for a direct finish");
static_assert((2 * FOLD_ACCS - 1) * BLOCK <= CRC_FOLD_WORDS * 8, "factors for the accumulators");

/*
 * Prefetch distance for the source of a long message.  Past its end this assumes that the next
 * message follows in memory, as the payload of the next packet does.
 */
#define STREAM_AHEAD 5120

static const uint64_t *
factors_at(size_t blocks_after)
{
	return crc_fold_table + CRC_FOLD_WORDS - (blocks_after + 1) * (BLOCK / 8);
}

karst_always_inline struct block
block_load(const uint8_t *p)
{
	struct block b;

	for (unsigned int i = 0; i < BLOCK_VECS; i++)
		b.v[i] = vec_load(p + i * VEC_BYTES);
	return b;
}

karst_always_inline void
block_store(uint8_t *p, struct block b)
{
	for (unsigned int i = 0; i < BLOCK_VECS; i++)
		vec_store(p + i * VEC_BYTES, b.v[i]);
}

/* The block with 64 bytes of memory ORed over it. */
karst_always_inline struct block
block_or(struct block b, const uint8_t *ones)
{
	for (unsigned int i = 0; i < BLOCK_VECS; i++)
		b.v[i] = vec_or(b.v[i], vec_load(ones + i * VEC_BYTES));
	return b;
}

/* The factors to fold by @blocks. */
karst_always_inline V
fold_factors(size_t blocks)
{
	return vec_pair(crc_fold_table + CRC_FOLD_WORDS - 1 - blocks * (BLOCK / 8));
}

/* Folds a by the factors k and adds b. */
karst_always_inline struct block
block_fold(struct block a, V k, struct block b)
{
	for (unsigned int i = 0; i < BLOCK_VECS; i++)
		b.v[i] = vec_xor3(vec_mul_lo(a.v[i], k), vec_mul_hi(a.v[i], k), b.v[i]);
	return b;
}

#ifndef OWN_GROUP_FOLD
struct group_factors {
	V k;
};

karst_always_inline struct group_factors
group_load_factors(void)
{
	return (struct group_factors){fold_factors(FOLD_ACCS)};
}

karst_always_inline void
group_fold(struct block *acc, const struct group_factors *f, const struct block *next)
{
#pragma GCC unroll 8
	for (unsigned int i = 0; i < FOLD_ACCS; i++)
		acc[i] = block_fold(acc[i], f->k, next[i]);
}
#endif

/* The contribution of a block to the remainder, by the 64 bytes of factors at @f. */
karst_always_inline V
block_finish(struct block b, const uint64_t *f)
{
	V k = vec_load(f), sum = vec_xor(vec_mul_lo(b.v[0], k), vec_mul_hi(b.v[0], k));

	for (unsigned int i = 1; i < BLOCK_VECS; i++) {
		k = vec_load((const uint8_t *)f + i * VEC_BYTES);
		sum = vec_xor3(sum, vec_mul_lo(b.v[i], k), vec_mul_hi(b.v[i], k));
	}
	return sum;
}

/* Adds the same to @sum. */
karst_always_inline V
block_finish_onto(V sum, struct block b, const uint64_t *f)
{
	for (unsigned int i = 0; i < BLOCK_VECS; i++) {
		V k = vec_load((const uint8_t *)f + i * VEC_BYTES);

		sum = vec_xor3(sum, vec_mul_lo(b.v[i], k), vec_mul_hi(b.v[i], k));
	}
	return sum;
}

karst_always_inline struct block
block_take(const bool copying, uint8_t *dst, const uint8_t *src, size_t at)
{
	struct block b = block_load(src + at);

	if (copying)
		block_store(dst + at, b);
	return b;
}

/*
 * The same from a long buffer, with a prefetch of the line @ahead bytes on.  A loop of several
 * loads is several strided streams to the hardware's prefetchers, which predict poorly where one
 * buffer ends and the next one begins: without the prefetch, reading cold memory runs at half the
 * speed of memory.
 */
karst_always_inline struct block
block_stream(const bool copying, uint8_t *dst, const uint8_t *src, size_t at, const size_t ahead)
{
	if (ahead > 0)
		__builtin_prefetch((const void *)((uintptr_t)src + at + ahead));
	return block_take(copying, dst, src, at);
}

/* As fold_rest(), for more blocks than DIRECT_MAX. */
karst_always_inline uint32_t
fold_groups(struct block b, const bool copying, uint8_t *dst, const uint8_t *src, size_t n,
	const size_t ahead)
{
	const struct group_factors f = group_load_factors();
	struct block acc[FOLD_ACCS], next[FOLD_ACCS];
	const uint64_t *end;
	size_t at = 0;
	V sum;

	acc[0] = b;
#pragma GCC unroll 8
	for (unsigned int i = 1; i < FOLD_ACCS; i++, at += BLOCK)
		acc[i] = block_stream(copying, dst, src, at, ahead);
	for (n -= FOLD_ACCS - 1; n >= FOLD_ACCS; n -= FOLD_ACCS) {
#pragma GCC unroll 8
		for (unsigned int i = 0; i < FOLD_ACCS; i++, at += BLOCK)
			next[i] = block_stream(copying, dst, src, at, ahead);
		group_fold(acc, &f, next);
	}
	end = factors_at(n + FOLD_ACCS - 1);
	sum = block_finish(acc[0], end);
#pragma GCC unroll 8
	for (unsigned int i = 1; i < FOLD_ACCS; i++)
		sum = block_finish_onto(sum, acc[i], end + i * (BLOCK / 8));
	end += FOLD_ACCS * (BLOCK / 8);
	for (; n > 0; n--, at += BLOCK, end += BLOCK / 8)
		sum = block_finish_onto(sum, block_stream(copying, dst, src, at, ahead), end);
	return vec_reduce(sum);
}

/* Out of line, so that short messages do not need the registers that long ones use. */

static karst_noinline uint32_t
fold_many_copy(struct block b, uint8_t *dst, const uint8_t *src, size_t n)
{
	return fold_groups(b, true, dst, src, n, STREAM_AHEAD);
}

/*
 * For functions that copy only if requested: an address that is not written, but to which an offset
 * may be added (which is not allowed for NULL).
 */
static inline uint8_t *
nowhere(const uint8_t *src)
{
	return (uint8_t *)(uintptr_t)src;
}

static karst_noinline uint32_t
fold_many(struct block b, const uint8_t *src, size_t n)
{
	return fold_groups(b, false, nowhere(src), src, n, STREAM_AHEAD);
}

/* A frame is not part of a stream: the memory after it is not what is processed next. */
static karst_noinline uint32_t
fold_many_frame(struct block b, const uint8_t *src, size_t n)
{
	return fold_groups(b, false, nowhere(src), src, n, 0);
}

/* The next frame is known: its lines are prefetched while this frame is folded. */
static karst_noinline uint32_t
fold_many_frame_then(struct block b, const uint8_t *src, size_t n, size_t next)
{
	if (next == 0)
		__builtin_unreachable(); /* so that the loop has no test for it */
	return fold_groups(b, false, nowhere(src), src, n, next);
}

enum fold_mode { FOLD_STREAM, FOLD_COPY, FOLD_FRAME };

/*
 * The state after block @b, which contains the beginning of the message and the state before, and
 * @n blocks at @src, which are copied to @dst in FOLD_COPY.
 * @next: in FOLD_FRAME, the distance from this frame to the next one; 0: unknown.
 */
karst_always_inline uint32_t
fold_rest(struct block b, const enum fold_mode mode, uint8_t *dst, const uint8_t *src, size_t n,
	const size_t next)
{
	const uint64_t *f;
	V sum;

	if (n == 0)
		return vec_reduce(block_finish(b, factors_at(0)));
	if (n > DIRECT_MAX)
		return mode == FOLD_COPY      ? fold_many_copy(b, dst, src, n)
			: mode == FOLD_STREAM ? fold_many(b, src, n)
			: next == 0           ? fold_many_frame(b, src, n)
					      : fold_many_frame_then(b, src, n, next);
	f = factors_at(n);
	sum = block_finish(b, f);
	for (size_t at = 0; n > 0; n--, at += BLOCK) {
		f += BLOCK / 8;
		sum = block_finish_onto(sum, block_take(mode == FOLD_COPY, dst, src, at), f);
	}
	return vec_reduce(sum);
}

/* One to three bytes, the low ones of @w: too few to xor a whole state into. */
karst_always_inline uint32_t
update_tiny(uint32_t state, uint32_t w, unsigned int n)
{
	return state >> 8 * n ^ word_reduce((uint64_t)(state ^ w) << (64 - 8 * n));
}

karst_always_inline uint32_t
load_tiny(const uint8_t *p, unsigned int n)
{
	return p[0] | (uint32_t)p[n / 2] << 8 * (n / 2) | (uint32_t)p[n - 1] << 8 * (n - 1);
}

karst_always_inline void
store_tiny(uint8_t *p, uint32_t w, unsigned int n)
{
	p[0] = (uint8_t)w;
	p[n / 2] = (uint8_t)(w >> 8 * (n / 2));
	p[n - 1] = (uint8_t)(w >> 8 * (n - 1));
}

/* Processes the bytes that precede the whole HEAD_UNITs of a message. */
karst_always_inline uint32_t
take_tiny(uint32_t state, const bool copying, uint8_t *dst, const uint8_t *src, unsigned int n)
{
	uint32_t w = load_tiny(src, n);

	if (copying)
		store_tiny(dst, w, n);
	return update_tiny(state, w, n);
}

karst_always_inline uint32_t
fold_message(uint32_t state, const bool copying, uint8_t *dst, const uint8_t *src, size_t len)
{
	unsigned int head = len % BLOCK;
	struct block b;

	if (head == 0) {
		if (karst_unlikely(len == 0))
			return state;
		head = BLOCK;
		b = block_head(state, copying, dst, src, BLOCK);
	} else {
		unsigned int tiny = len % HEAD_UNIT;

		if (karst_unlikely(tiny - 1 < 3)) {
			state = take_tiny(state, copying, dst, src, tiny);
			if (len == tiny)
				return state;
			dst = copying ? dst + tiny : NULL;
			src += tiny;
			len -= tiny;
			head = (len - 1) % BLOCK + 1;
		}
		b = block_head(state, copying, dst, src, head);
	}
	return fold_rest(b, copying ? FOLD_COPY : FOLD_STREAM, copying ? dst + head : NULL,
		src + head, (len - head) / BLOCK, 0);
}

static karst_noinline uint32_t
update_any(uint32_t state, const uint8_t *buf, size_t len)
{
	return fold_message(state, false, nowhere(buf), buf, len);
}

static karst_noinline uint32_t
copy_any(uint32_t state, uint8_t *dst, const uint8_t *src, size_t len)
{
	return fold_message(state, true, dst, src, len);
}

/* One block is common, and so fast that saving a register would be measurable. */

karst_always_inline uint32_t
fold_one_block(uint32_t state, const bool copying, uint8_t *dst, const uint8_t *src)
{
	return vec_reduce(block_finish(block_head(state, copying, dst, src, BLOCK), factors_at(0)));
}

static uint32_t
crc_update(uint32_t state, const void *buf, size_t len)
{
	if (len != BLOCK)
		return update_any(state, buf, len);
	return fold_one_block(state, false, NULL, buf);
}

static uint32_t
crc_copy(uint32_t state, void *dst, const void *src, size_t len)
{
	if (len != BLOCK)
		return copy_any(state, dst, src, len);
	return fold_one_block(state, true, dst, src);
}

#endif /* CRC_FOLD_H */
