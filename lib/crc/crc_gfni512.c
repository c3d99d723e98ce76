/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * CRC-32 folded by bit matrices (GFNI) instead of carry-less products, on 512 bits.
 *
 * Consider a group of five consecutive blocks and a column of it: the bytes at the same offset in
 * each block.  Modulo P its value is a 32-bit number, which depends linearly on its 40 bits.  The
 * 32 bits of four of the five blocks (without the middle one) stand for linearly independent powers
 * of x, so every number can be represented by such a column.  To carry a group over the next one is
 * to multiply its columns by x^2560 and to represent the results in that way.  This is a linear
 * map, the same for each column, made of twenty matrices of 8x8 bits, and vgf2p8affineqb applies
 * one to 64 bytes at once.  The result, added to the next group, is five blocks with which the
 * message may equally begin; the computation continues, and ends, as in crc_fold.h.
 *
 * That is 4 maps and 2.4 three-way xors for 64 bytes, against 2 products and 1.  Where two maps
 * start each cycle and a product only every other one (AMD), it is twice as fast; elsewhere it is
 * not, hence .likes.
 */
#include "karst_cpu.h"

#define FOLD_ACCS 5
#define OWN_GROUP_FOLD

#include "crc_avx512.h"

struct group_factors {
	V m[4][FOLD_ACCS]; /* [to][from] */
};

karst_always_inline struct group_factors
group_load_factors(void)
{
	struct group_factors f;

#pragma GCC unroll 20
	for (unsigned int i = 0; i < 4 * FOLD_ACCS; i++)
		f.m[i / FOLD_ACCS][i % FOLD_ACCS] = _mm512_set1_epi64(
			(long long)crc_column_matrices[i / FOLD_ACCS][i % FOLD_ACCS]);
	return f;
}

/* Carries one block of a group onto @next. */
karst_always_inline struct block
columns_to(const struct block *acc, const V *m, struct block next)
{
	V a = _mm512_gf2p8affine_epi64_epi8(acc[0].v[0], m[0], 0);
	V b = _mm512_gf2p8affine_epi64_epi8(acc[1].v[0], m[1], 0);
	V c = _mm512_gf2p8affine_epi64_epi8(acc[2].v[0], m[2], 0);
	V d = _mm512_gf2p8affine_epi64_epi8(acc[3].v[0], m[3], 0);
	V e = _mm512_gf2p8affine_epi64_epi8(acc[4].v[0], m[4], 0);

	next.v[0] = _mm512_xor_si512(vec_xor3(a, b, next.v[0]), vec_xor3(c, d, e));
	return next;
}

karst_always_inline void
group_fold(struct block *acc, const struct group_factors *f, const struct block *next)
{
	const struct block a = columns_to(acc, f->m[0], next[0]);
	const struct block b = columns_to(acc, f->m[1], next[1]);
	const struct block d = columns_to(acc, f->m[2], next[3]);
	const struct block e = columns_to(acc, f->m[3], next[4]);

	acc[0] = a;
	acc[1] = b;
	acc[2] = next[2];
	acc[3] = d;
	acc[4] = e;
}

#include "crc_fold.h"
#include "crc_fold_icrc.h"
#include "crc_burst.h"
#include "crc_known.h"

const struct crc_kernel crc_kernel_gfni512 = {
	.ops = {.name = "gfni512", .update = crc_update, .copy = crc_copy},
	.needs = KARST_CPU_GFNI_512 | KARST_CPU_VPCLMUL_512 | KARST_CPU_PCLMUL,
	.likes = KARST_CPU_FAST_AFFINE,
	.seal_burst = seal_burst,
	.verify_burst = verify_burst,
	.known_sums = known_sums,
	.known_tail = CRC_KNOWN_TAIL,
};
