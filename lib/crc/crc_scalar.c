/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * CRC-32 on any machine: 16 bytes a step, each by the table for its distance from the end of the
 * step, so that the look-ups of a step do not depend on each other.
 */
#include "crc_kernel.h"

#define STEP 16

karst_always_inline uint32_t
step_word(const uint8_t *p, uint32_t state, unsigned int after)
{
	return crc_slice_table[after + 3][p[0] ^ (state & 0xff)] ^
		crc_slice_table[after + 2][p[1] ^ (state >> 8 & 0xff)] ^
		crc_slice_table[after + 1][p[2] ^ (state >> 16 & 0xff)] ^
		crc_slice_table[after][p[3] ^ (state >> 24)];
}

static uint32_t
crc_update(uint32_t state, const void *buf, size_t len)
{
	const uint8_t *p = buf;

	for (; len >= STEP; len -= STEP, p += STEP)
		state = step_word(p, state, 12) ^ step_word(p + 4, 0, 8) ^ step_word(p + 8, 0, 4) ^
			step_word(p + 12, 0, 0);
	for (; len > 0; len--)
		state = state >> 8 ^ crc_slice_table[0][(state ^ *p++) & 0xff];
	return state;
}

static uint32_t
crc_copy(uint32_t state, void *dst, const void *src, size_t len)
{
	if (len > 0)
		memcpy(dst, src, len);
	return crc_update(state, src, len);
}

/* The state after the headers that the ones cover; *@p moves past them, at most to @end. */
static uint32_t
headers(const uint8_t **p, const uint8_t *end, unsigned int ip6)
{
	const uint8_t *begin = *p - CRC_ICRC_LEAD;
	size_t n = karst_min_u64((uint64_t)(end - begin), KARST_CACHE_LINE);
	uint8_t masked[KARST_CACHE_LINE];

	for (size_t i = 0; i < n; i++)
		masked[i] = begin[i] | crc_icrc_ones[ip6][CRC_ICRC_ONES_BASE + i];
	*p = begin + n;
	return crc_update(0, masked, n);
}

static uint32_t
icrc_frame(const uint8_t *l3, const uint8_t *end, unsigned int ip6)
{
	uint32_t state = headers(&l3, end, ip6);

	return crc_update(state, l3, (size_t)(end - l3));
}

static uint32_t
icrc_headers_and(const struct karst_seal *j, const uint8_t *src, size_t len)
{
	return crc_copy(icrc_frame(j->l3, j->pay, j->ip6), j->pay, src, len);
}

#include "crc_burst.h"

/* Computes all sums as if nothing were known: .known_tail is 0. */
static void
known_sums(struct karst_icrc_known *k, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		const uint8_t *end = k->data[i] + k->len[i] - 4;

		if (i + 1 < n)
			prefetch_lines(k->data[i + 1]);
		if (k->len[i] >= KARST_ICRC_KNOWN_LEN_MIN)
			k->sum[i] = ~icrc_frame(k->data[i] + CRC_KNOWN_L3, end, 0) ^ load_le32(end);
	}
}

const struct crc_kernel crc_kernel_scalar = {
	.ops = {.name = "scalar", .update = crc_update, .copy = crc_copy},
	.needs = 0,
	.seal_burst = seal_burst,
	.verify_burst = verify_burst,
	.known_sums = known_sums,
};
