/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The ICRC of RoCEv2 (W7) on top of crc_fold.h, without a copy of the headers.
 *
 * W7 covers 8 bytes of ones and then the packet with some header fields replaced by ones.  The
 * initial state, all ones too, turns the first four of the eight bytes into zeros, and leading
 * zeros do not change a CRC.  For the other four, the computation starts CRC_ICRC_LEAD bytes before
 * the IP header, where the Ethernet header is, and ORs ones over them.  The same OR replaces the
 * fields.  All of them are in the first 57 bytes, so only the blocks of the beginning need it.
 * From there on it is folding as usual, from state 0.
 *
 * When a frame is sealed, the bytes of the first segment that do not fill a block are joined with
 * the headers in registers, and the rest of it is copied block by block: headers and payload are
 * one message with one reduction.
 */
#ifndef CRC_FOLD_ICRC_H
#define CRC_FOLD_ICRC_H

#include "crc_fold.h"

/* The state after the packet from @l3 to @end; @next is the distance to the next packet, or 0. */
karst_always_inline uint32_t
icrc_frame_then(const uint8_t *l3, const uint8_t *end, unsigned int ip6, const size_t next)
{
	const uint8_t *p = l3 - CRC_ICRC_LEAD;
	const size_t len = (size_t)(end - p);
	const unsigned int head = (len - 1) % BLOCK + 1;
	const uint8_t *ones = crc_icrc_ones[ip6] + CRC_ICRC_ONES_BASE - BLOCK + head;
	size_t rest = (len - head) / BLOCK;
	struct block b = block_or(block_head(0, false, NULL, p, head), ones);

	p += head;
	if (karst_likely(rest > 0)) {
		b = block_fold(b, fold_factors(1), block_or(block_load(p), ones + BLOCK));
		p += BLOCK;
		rest--;
	}
	return fold_rest(b, FOLD_FRAME, nowhere(p), p, rest, next);
}

/* From the IP header to the AETH: all of an acknowledgement over IPv4 that its ICRC covers. */
#define ICRC_ACK_LEN 44

/*
 * Acknowledgements are half of the frames where messages are single and short.  Their length is a
 * constant here, for which the compiler leaves three loads of the general code.
 */
karst_always_inline uint32_t
icrc_ack(const uint8_t *l3)
{
	return icrc_frame_then(l3, l3 + ICRC_ACK_LEN, 0, 0);
}

karst_always_inline uint32_t
icrc_frame(const uint8_t *l3, const uint8_t *end, unsigned int ip6)
{
	if (end - l3 == ICRC_ACK_LEN && ip6 == 0)
		return icrc_ack(l3);
	return icrc_frame_then(l3, end, ip6, 0);
}

karst_always_inline uint32_t
icrc_headers_then(const struct karst_seal *j, const uint8_t *src, size_t len)
{
	const uint8_t *p = j->l3 - CRC_ICRC_LEAD;
	const unsigned int odd = len % BLOCK;
	uint8_t *join = j->pay + odd;
	const unsigned int hlen = (unsigned int)(join - p);
	const unsigned int head = (hlen - 1) % BLOCK + 1;
	const uint8_t *ones = crc_icrc_ones[j->ip6] + CRC_ICRC_ONES_BASE - BLOCK + head;
	struct block b;

	if (hlen <= BLOCK) {
		b = block_or(block_join(join, src, odd, hlen), ones);
	} else {
		b = block_or(block_head(0, false, NULL, p, head), ones);
		for (p += head; p < join - BLOCK; p += BLOCK) {
			ones += BLOCK;
			b = block_fold(b, fold_factors(1), block_or(block_load(p), ones));
		}
		b = block_fold(b, fold_factors(1),
			block_or(block_join(join, src, odd, BLOCK), ones + BLOCK));
	}
	return fold_rest(b, FOLD_COPY, join, src + odd, len / BLOCK, 0);
}

/* The state after the headers of @j and the @len bytes at @src, which are copied after them. */
karst_always_inline uint32_t
icrc_headers_and(const struct karst_seal *j, const uint8_t *src, size_t len)
{
	if (len == 0 && j->pay - j->l3 == ICRC_ACK_LEN && j->ip6 == 0)
		return icrc_ack(j->l3);
	return icrc_headers_then(j, src, len);
}

#endif /* CRC_FOLD_ICRC_H */
