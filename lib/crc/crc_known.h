/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * struct karst_icrc_known, four frames at a time; a kernel file includes this after crc_burst.h.
 *
 * An ICRC is linear, so it is the sum of two contributions: that of the known headers, which the
 * caller has, and that of identification, PSN and the bytes after the BTH, which is computed here.
 * Identification and PSN are in one 64-bit word each, counted from the end of the message, so each
 * is one product.  A lane has both words of a frame, and the four lanes of a block those of four
 * frames.  The bytes after the BTH are finished block by block as in crc_fold.h, and the four sums
 * are combined in one block before the last reduction.  So while one frame would wait for a
 * product, those of the other three are computed.
 *
 * The including file provides, besides the primitives of crc_fold.h:
 *   vec_and(a, b)
 *   block_of(a, b, c, d): a block of four lanes
 *   block_sums(a, b, c, d): the lanes of each vector xored; those of a are the first lane
 *   block_thirds(b): the third quarter of each lane
 *   vec_mul_lo_hi(a, k): low words of the lanes of a, high ones of those of k
 *   x_xor(a, b)
 *   x_quarters(p0, p1, p2, p3): the four bytes at each place
 */
#ifndef CRC_KNOWN_H
#define CRC_KNOWN_H

#include "crc_burst.h"

/* offsets of the words with identification and PSN, if the tail is whole words */
#define KNOWN_ID  14
#define KNOWN_PSN 46

static_assert(KNOWN_PSN - KNOWN_ID == 4 * 8, "crc_known_table has factors of words so far apart");

/* The bits of the two words to use, by whether the tail has half a word more. */
static const uint64_t known_masks[2][2] karst_aligned(16) = {
	{UINT64_C(0x0000ffff00000000), UINT64_C(0xffffffff00000000)},
	{UINT64_C(0x000000000000ffff), UINT64_C(0x00000000ffffffff)},
};

/* Prefetch distance in frames, and the usual number of lines of each. */
#define KNOWN_AHEAD 8u
#define KNOWN_LINES 2u

#define KNOWN_LEN_MAX (CRC_KNOWN_END + CRC_KNOWN_TAIL + 4)

/* Whether a frame of @len bytes has an ICRC after whole words. */
karst_always_inline bool
known_is_frame(unsigned int len)
{
	return len >= KARST_ICRC_KNOWN_LEN_MIN && len % 4 == KARST_ICRC_KNOWN_LEN_MIN % 4;
}

karst_always_inline bool
known_is_short(unsigned int len)
{
	return len <= KNOWN_LEN_MAX && known_is_frame(len);
}

karst_always_inline X
known_words(const uint8_t *d, unsigned int half)
{
	uint64_t id, psn;

	memcpy(&id, d + KNOWN_ID + half, sizeof(id));
	memcpy(&psn, d + KNOWN_PSN + half, sizeof(psn));
	return x_words(id, psn);
}

/* The contribution of the bytes after the BTH to the remainder. */
karst_always_inline V
known_tail(const uint8_t *end, unsigned int tail)
{
	unsigned int head, rest;
	V sum;

	if (karst_likely(tail == BLOCK))
		return block_finish(block_load(end - BLOCK), factors_at(0));
	head = (tail - 1) % BLOCK + 1;
	rest = (tail - head) / BLOCK;
	sum = block_finish(block_head(0, false, NULL, end - tail, head), factors_at(rest));
	for (; rest > 0; rest--)
		sum = block_finish_onto(sum, block_load(end - rest * BLOCK), factors_at(rest - 1));
	return sum;
}

karst_always_inline unsigned int
known_tail_len(const struct karst_icrc_known *k, unsigned int i)
{
	return k->len[i] - CRC_KNOWN_END - 4u;
}

/* The CRC of each lane: see crc_fold.h. */
karst_always_inline X
known_reduce(struct block b)
{
	const V barrett = vec_pair(crc_barrett);

	for (unsigned int i = 0; i < BLOCK_VECS; i++)
		b.v[i] = vec_xor(b.v[i], vec_mul_lo_hi(vec_mul_lo(b.v[i], barrett), barrett));
	return block_thirds(b);
}

/* The 16 bytes at @p four times. */
karst_always_inline struct block
block_pairs(const void *p)
{
	struct block b;

	for (unsigned int i = 0; i < BLOCK_VECS; i++)
		b.v[i] = vec_pair(p);
	return b;
}

/*
 * Computes the sums of the four frames from @at on; no tail is long.
 * @alike: all tails have the length @tail.
 */
karst_always_inline void
known_four(struct karst_icrc_known *k, unsigned int at, const bool alike, unsigned int tail)
{
	const uint8_t *end[4];
	X words[4], factors[4], masks[4];
	struct block w, f, m, b;
	V sums[4];

#pragma GCC unroll 4
	for (unsigned int i = 0; i < 4; i++) {
		if (!alike)
			tail = known_tail_len(k, at + i);
		end[i] = k->data[at + i] + CRC_KNOWN_END + tail;
		words[i] = known_words(k->data[at + i], tail & 4);
		masks[i] = x_load(known_masks[tail / 4 % 2]);
		factors[i] = x_load(crc_known_table[tail / 8]);
		sums[i] = known_tail(end[i], tail);
	}
	w = block_of(words[0], words[1], words[2], words[3]);
	m = alike ? block_pairs(known_masks[tail / 4 % 2])
		  : block_of(masks[0], masks[1], masks[2], masks[3]);
	f = alike ? block_pairs(crc_known_table[tail / 8])
		  : block_of(factors[0], factors[1], factors[2], factors[3]);
	b = block_sums(sums[0], sums[1], sums[2], sums[3]);
	for (unsigned int i = 0; i < BLOCK_VECS; i++) {
		w.v[i] = vec_and(w.v[i], m.v[i]);
		b.v[i] = vec_xor3(vec_mul_lo(w.v[i], f.v[i]), vec_mul_hi(w.v[i], f.v[i]), b.v[i]);
	}
	x_store(&k->sum[at], x_xor(known_reduce(b), x_quarters(end[0], end[1], end[2], end[3])));
}

/* The sum of a single frame. */
static karst_noinline uint32_t
known_one(const uint8_t *d, unsigned int tail)
{
	const uint8_t *end = d + CRC_KNOWN_END + tail;
	const V f = vec_pair(crc_known_table[tail / 8]);
	const X none = x_zero();
	struct block b = block_of(known_words(d, tail & 4), none, none, none);
	V w = vec_and(b.v[0], vec_pair(known_masks[tail / 4 % 2]));

	w = vec_xor3(vec_mul_lo(w, f), vec_mul_hi(w, f), known_tail(end, tail));
	return vec_reduce(w) ^ load_le32(end);
}

/* Whether the four from @at on have the same length, and not a long one. */
karst_always_inline bool
known_alike(const struct karst_icrc_known *k, unsigned int at)
{
	uint64_t lens;

	memcpy(&lens, &k->len[at], sizeof(lens));
	return known_is_short(k->len[at]) && lens == k->len[at] * UINT64_C(0x0001000100010001);
}

karst_always_inline bool
known_short(const struct karst_icrc_known *k, unsigned int at)
{
	return known_is_short(k->len[at]) && known_is_short(k->len[at + 1]) &&
		known_is_short(k->len[at + 2]) && known_is_short(k->len[at + 3]);
}

/* Computes the sum of a frame that is not in a group of four. */
karst_always_inline void
known_alone(struct karst_icrc_known *k, unsigned int i, unsigned int n)
{
	const uint8_t *d = k->data[i], *end = d + k->len[i] - 4;
	size_t next = i + 1 < n ? (uintptr_t)k->data[i + 1] - (uintptr_t)d : 0;

	if (known_is_short(k->len[i]))
		k->sum[i] = known_one(d, known_tail_len(k, i));
	else if (!known_is_frame(k->len[i]))
		return;
	else if (next != 0)
		k->sum[i] = ~icrc_frame_then(d + CRC_KNOWN_L3, end, 0, next) ^ load_le32(end);
	else
		k->sum[i] = ~icrc_frame(d + CRC_KNOWN_L3, end, 0) ^ load_le32(end);
}

/* The number of cache lines of a frame as long as the @i-th. */
karst_always_inline unsigned int
known_lines(const struct karst_icrc_known *k, unsigned int i)
{
	return k->len[i] / KARST_CACHE_LINE + 1u;
}

/* Prefetches @lines of each of four frames from the @i-th on, if there are four. */
karst_always_inline void
known_fetch(const struct karst_icrc_known *k, unsigned int i, unsigned int n, unsigned int lines)
{
	if (i + 4 > n)
		return;
#pragma GCC unroll 4
	for (unsigned int j = i; j < i + 4; j++)
		for (unsigned int line = 0; line < lines; line++)
			__builtin_prefetch(k->data[j] + line * KARST_CACHE_LINE);
}

/*
 * The most common case, groups of four with 64 bytes after the BTH, without any table look-up.
 * @return the index of the first frame that is in no such group.
 */
static karst_noinline unsigned int
known_blocks(struct karst_icrc_known *k, unsigned int i, unsigned int n)
{
	const uint64_t want = (CRC_KNOWN_END + BLOCK + 4) * UINT64_C(0x0001000100010001);
	uint64_t lens;

	for (; i + 4 <= n; i += 4) {
		memcpy(&lens, &k->len[i], sizeof(lens));
		if (lens != want)
			break;
		known_fetch(k, i + KNOWN_AHEAD, n, KNOWN_LINES);
		known_four(k, i, true, BLOCK);
	}
	return i;
}

static void
known_sums(struct karst_icrc_known *k, unsigned int n)
{
	unsigned int i = 0;

	for (i = 0; i < KNOWN_AHEAD; i += 4)
		known_fetch(k, i, n, KNOWN_LINES);
	i = 0;
	while (i < n) {
		if (i + 4 <= n && known_alike(k, i)) {
			if (known_tail_len(k, i) == BLOCK) {
				i = known_blocks(k, i, n);
				continue;
			}
			known_fetch(k, i + KNOWN_AHEAD, n, known_lines(k, i));
			known_four(k, i, true, known_tail_len(k, i));
			i += 4;
		} else if (i + 4 <= n && known_short(k, i)) {
			known_fetch(k, i + KNOWN_AHEAD, n, KNOWN_LINES);
			known_four(k, i, false, 0);
			i += 4;
		} else {
			known_alone(k, i, n);
			i++;
		}
	}
}

#endif /* CRC_KNOWN_H */
