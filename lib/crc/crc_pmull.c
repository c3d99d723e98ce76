/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* CRC-32 with PMULL of the Armv8 crypto extension: a block is four NEON registers. */
#include "karst_cpu.h"

#include <arm_neon.h>

#define V         uint8x16_t
#define X         uint8x16_t
#define VEC_BYTES 16
#define FOLD_ACCS 1

#include "crc_kernel.h"

struct block {
	V v[4];
};

karst_always_inline struct block
block_of(X a, X b, X c, X d)
{
	return (struct block){{a, b, c, d}};
}

karst_always_inline V
vec_load(const void *p)
{
	return vld1q_u8(p);
}

karst_always_inline void
vec_store(void *p, V v)
{
	vst1q_u8(p, v);
}

karst_always_inline V
vec_or(V a, V b)
{
	return vorrq_u8(a, b);
}

karst_always_inline V
vec_and(V a, V b)
{
	return vandq_u8(a, b);
}

karst_always_inline V
vec_xor(V a, V b)
{
	return veorq_u8(a, b);
}

karst_always_inline V
vec_xor3(V a, V b, V c)
{
	return veorq_u8(veorq_u8(a, b), c);
}

karst_always_inline V
vec_mul_lo(V a, V k)
{
	return vreinterpretq_u8_p128(vmull_p64(vgetq_lane_p64(vreinterpretq_p64_u8(a), 0),
		vgetq_lane_p64(vreinterpretq_p64_u8(k), 0)));
}

karst_always_inline V
vec_mul_hi(V a, V k)
{
	return vreinterpretq_u8_p128(
		vmull_high_p64(vreinterpretq_p64_u8(a), vreinterpretq_p64_u8(k)));
}

karst_always_inline V
vec_mul_lo_hi(V a, V k)
{
	return vreinterpretq_u8_p128(vmull_p64(vgetq_lane_p64(vreinterpretq_p64_u8(a), 0),
		vgetq_lane_p64(vreinterpretq_p64_u8(k), 1)));
}

karst_always_inline V
vec_pair(const void *p)
{
	return vld1q_u8(p);
}

karst_always_inline X
x_load(const void *p)
{
	return vld1q_u8(p);
}

karst_always_inline void
x_store(void *p, X x)
{
	vst1q_u8(p, x);
}

karst_always_inline X
x_zero(void)
{
	return vdupq_n_u8(0);
}

karst_always_inline X
x_words(uint64_t low, uint64_t high)
{
	return vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)));
}

karst_always_inline X
x_xor_state(X x, uint32_t state)
{
	return veorq_u8(x, x_words(state, 0));
}

karst_always_inline X
x_xor(X a, X b)
{
	return veorq_u8(a, b);
}

karst_always_inline X
x_quarters(const uint8_t *p0, const uint8_t *p1, const uint8_t *p2, const uint8_t *p3)
{
	uint32_t v[4];

	memcpy(&v[0], p0, sizeof(v[0]));
	memcpy(&v[1], p1, sizeof(v[1]));
	memcpy(&v[2], p2, sizeof(v[2]));
	memcpy(&v[3], p3, sizeof(v[3]));
	return vreinterpretq_u8_u32(vld1q_u32(v));
}

karst_always_inline X
x_shuffle(X x, X index)
{
	return vqtbl1q_u8(x, index);
}

/* The CRC of a remainder of 96 bits: see crc_fold.h. */
karst_always_inline uint32_t
vec_reduce(V t)
{
	const V quotient = x_words(crc_barrett[0], 0), poly = x_words(crc_barrett[1], 0);
	V q = vec_mul_lo(vec_mul_lo(t, quotient), poly);

	return vgetq_lane_u32(vreinterpretq_u32_u8(veorq_u8(t, q)), 2);
}

karst_always_inline uint32_t
word_reduce(uint64_t w)
{
	return vec_reduce(
		vec_mul_lo(x_words(w, 0), x_words(crc_fold_table[CRC_FOLD_WORDS - 1], 0)));
}

karst_always_inline struct block
block_sums(V a, V b, V c, V d)
{
	return block_of(a, b, c, d);
}

karst_always_inline X
block_thirds(struct block b)
{
	uint32x4_t ab = vzip2q_u32(vreinterpretq_u32_u8(b.v[0]), vreinterpretq_u32_u8(b.v[1]));
	uint32x4_t cd = vzip2q_u32(vreinterpretq_u32_u8(b.v[2]), vreinterpretq_u32_u8(b.v[3]));

	return vreinterpretq_u8_u64(
		vzip1q_u64(vreinterpretq_u64_u32(ab), vreinterpretq_u64_u32(cd)));
}

#include "crc_head16.h"
#include "crc_fold.h"
#include "crc_fold_icrc.h"
#include "crc_burst.h"
#include "crc_known.h"

const struct crc_kernel crc_kernel_pmull = {
	.ops = {.name = "pmull", .update = crc_update, .copy = crc_copy},
	.needs = KARST_CPU_PMULL,
	.seal_burst = seal_burst,
	.verify_burst = verify_burst,
	.known_sums = known_sums,
	.known_tail = CRC_KNOWN_TAIL,
};
