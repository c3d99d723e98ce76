/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * struct karst_icrc_known, four frames at a time; for a kernel file to include after crc_burst.h.
 *
 * An ICRC is linear, so it is what the known headers contribute, had before, and what
 * identification, PSN and the bytes behind the BTH do.  Of those the first two lie in a word of 64
 * bits each, counted from the end of the message, so each is one product; a lane has both words of
 * a frame, and the four lanes of a block those of four.  The bytes behind the BTH are finished
 * block by block as in crc_fold.h, and the four sums brought together in one block before the last
 * reduction.  No frame waits for a product of its own: those of the other three fill the time.
 *
 * What the including file provides, beside the primitives of crc_fold.h:
 *   vec_and(a, b)
 *   block_of(a, b, c, d): a block of four lanes
 *   block_sums(a, b, c, d): the lanes of each vector xored; those of a are the first lane
 *   block_thirds(b): the third quarter of each lane
 *   vec_mul_lo_hi(a, k): low words of the lanes of a, high ones of those of k
 *   x_xor(a, b)
 *   x_differ(a, b): a bit for each quarter of a that is not that of b
 *   x_quarters(p0, p1, p2, p3): the four bytes at each place
 */
#ifndef CRC_KNOWN_H
#define CRC_KNOWN_H

#include "crc_burst.h"

#define KNOWN_ID  14 /* the words with identification and PSN, if the tail is whole words */
#define KNOWN_PSN 46

static_assert(KNOWN_PSN - KNOWN_ID == 4 * 8, "crc_known_table has factors of words so far apart");

/* What counts of the two words: by whether the tail has half a word more. */
static const uint64_t known_masks[2][2] karst_aligned(16) = {
	{UINT64_C(0x0000ffff00000000), UINT64_C(0xffffffff00000000)},
	{UINT64_C(0x000000000000ffff), UINT64_C(0x00000000ffffffff)},
};

karst_always_inline X
known_words(const uint8_t *d, unsigned int half)
{
	uint64_t id, psn;

	memcpy(&id, d + KNOWN_ID + half, sizeof(id));
	memcpy(&psn, d + KNOWN_PSN + half, sizeof(psn));
	return x_words(id, psn);
}

/* What the bytes behind the BTH contribute to the remainder. */
karst_always_inline V
known_tail(const uint8_t *end, unsigned int tail)
{
	unsigned int head;

	if (karst_likely(tail == BLOCK))
		return block_finish(block_load(end - BLOCK), factors_at(0));
	head = (tail - 1) % BLOCK + 1;
	if (tail <= BLOCK)
		return block_finish(block_head(0, false, NULL, end - tail, head), factors_at(0));
	return block_finish_onto(
		block_finish(block_head(0, false, NULL, end - tail, head), factors_at(1)),
		block_load(end - BLOCK), factors_at(0));
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

/* Four times the 16 bytes at @p. */
karst_always_inline struct block
block_pairs(const void *p)
{
	struct block b;

	for (unsigned int i = 0; i < BLOCK_VECS; i++)
		b.v[i] = vec_pair(p);
	return b;
}

/*
 * A bit for each of the four frames from @at on whose ICRC is wrong; no tail is long.
 * @alike: all tails have the length @tail.
 */
karst_always_inline unsigned int
known_four(const struct karst_icrc_known *k, unsigned int at, const bool alike, unsigned int tail)
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
	return x_differ(x_xor(known_reduce(b), x_load(&k->sum[at])),
		x_quarters(end[0], end[1], end[2], end[3]));
}

#define KNOWN_LEN_MAX (CRC_KNOWN_END + CRC_KNOWN_TAIL + 4)

/* Have the four from @at on the same length, and not a long one? */
karst_always_inline bool
known_alike(const struct karst_icrc_known *k, unsigned int at)
{
	uint64_t lens;

	memcpy(&lens, &k->len[at], sizeof(lens));
	return k->len[at] <= KNOWN_LEN_MAX && lens == k->len[at] * UINT64_C(0x0001000100010001);
}

karst_always_inline bool
known_short(const struct karst_icrc_known *k, unsigned int at)
{
	return k->len[at] <= KNOWN_LEN_MAX && k->len[at + 1] <= KNOWN_LEN_MAX &&
		k->len[at + 2] <= KNOWN_LEN_MAX && k->len[at + 3] <= KNOWN_LEN_MAX;
}

/* Is the ICRC of the @i-th wrong, of which there is one more? */
karst_always_inline bool
known_wrong_then(const struct karst_icrc_known *k, unsigned int i)
{
	const uint8_t *d = k->data[i], *end = d + k->len[i] - 4;
	size_t next = (uintptr_t)k->data[i + 1] - (uintptr_t)d;

	return ~icrc_frame_then(d + CRC_KNOWN_L3, end, 0, next) != load_le32(end);
}

/*
 * The most common of all, fours with 64 bytes behind the BTH: nothing is left to be looked up.
 * @return the first that is not one of them.
 */
static karst_noinline unsigned int
known_blocks(const struct karst_icrc_known *k, unsigned int i, unsigned int n, uint64_t *wrong)
{
	const uint64_t want = (CRC_KNOWN_END + BLOCK + 4) * UINT64_C(0x0001000100010001);
	uint64_t lens, found = 0;

	for (; i + 4 <= n; i += 4) {
		memcpy(&lens, &k->len[i], sizeof(lens));
		if (lens != want)
			break;
		found |= (uint64_t)known_four(k, i, true, BLOCK) << i;
	}
	*wrong |= found;
	return i;
}

static uint64_t
verify_known(const struct karst_icrc_known *k, unsigned int n)
{
	uint64_t wrong = 0;
	unsigned int i = 0;

	while (i < n) {
		if (i + 4 <= n && known_alike(k, i)) {
			if (known_tail_len(k, i) == BLOCK) {
				i = known_blocks(k, i, n, &wrong);
				continue;
			}
			wrong |= (uint64_t)known_four(k, i, true, known_tail_len(k, i)) << i;
			i += 4;
		} else if (i + 4 <= n && known_short(k, i)) {
			wrong |= (uint64_t)known_four(k, i, false, 0) << i;
			i += 4;
		} else {
			wrong |= (uint64_t)(i + 1 < n ? known_wrong_then(k, i)
						      : known_one_wrong(k, i))
				<< i;
			i++;
		}
	}
	return wrong;
}

#endif /* CRC_KNOWN_H */
