/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Keys.  The upper 24 bits are E(generation, slot), where E is three rounds of: xor a secret,
 * multiply by a secret odd number modulo 2^24 (which carries low bits upward), and xor the
 * upper half onto the lower (which carries high bits downward).  Each step is invertible, so E
 * is a bijection: keys of different slots or generations differ in these bits, whatever the low
 * byte is.  The values are kept in the upper 24 bits of a word, where a 32-bit multiplication is
 * one modulo 2^24 without masking.
 *
 * The low byte, the first generation of each slot and all secrets are karst_prf() of counters
 * under the seed.
 */
#include "mem_priv.h"

#include "karst_prf.h"

/* The purpose of a number from karst_prf(); the upper half of its first argument. */
enum prf_use {
	PRF_MUL = 1,
	PRF_XOR,
	PRF_GENERATION,
	PRF_LOW,
};

static uint64_t
prf_use(const uint64_t seed[2], enum prf_use use, uint32_t n, uint64_t b)
{
	return karst_prf(seed, (uint64_t)use << 32 | n, b);
}

/* The inverse of odd @a modulo 2^32; each step doubles the number of correct bits, 3 at first. */
static uint32_t
invert_odd(uint32_t a)
{
	uint32_t x = a;
	unsigned int i;

	for (i = 0; i < 4; i++)
		x *= 2 - a * x;
	return x;
}

static uint32_t
generation_mask(const struct karst_mem *m)
{
	return (1u << (24 - m->ctl->slot_bits)) - 1;
}

void
mem_key_init(struct karst_mem *m)
{
	struct karst_mem_ctl *c = m->ctl;
	uint32_t i;

	for (i = 0; i < KARST_MEM_KEY_ROUNDS; i++) {
		/* The top bit is set so that even bit 0 reaches the half that is carried down. */
		c->mul[i] = ((uint32_t)prf_use(c->seed, PRF_MUL, i, 0) & 0xffffff) | 0x800001;
		m->inv_mul[i] = invert_odd(c->mul[i]);
	}
	for (i = 0; i <= KARST_MEM_KEY_ROUNDS; i++)
		m->xor [i] = (uint32_t)prf_use(c->seed, PRF_XOR, i, 0) & ~0xffu;
	for (i = 0; i <= m->slot_mask; i++)
		m->entry[i].generation =
			(uint32_t)prf_use(c->seed, PRF_GENERATION, i, 0) & generation_mask(m);
}

uint32_t
mem_key_of(const struct karst_mem *m, uint32_t generation, uint32_t slot)
{
	uint32_t v = (generation << m->ctl->slot_bits | slot) << 8;
	unsigned int i;

	for (i = 0; i < KARST_MEM_KEY_ROUNDS; i++) {
		v = (v ^ m->xor [i]) * m->ctl->mul[i];
		v ^= v >> 20 << 8;
	}
	return v ^ m->xor [KARST_MEM_KEY_ROUNDS];
}

/* A secret number that is new for each change of a slot. */
static uint64_t
key_fresh(const struct karst_mem *m, const struct karst_mem_entry *e)
{
	uint64_t seq = mem_word_load(e) >> MEM_SEQ_SHIFT;

	return prf_use(
		m->ctl->seed, PRF_LOW, mem_slot_of(m, e), (uint64_t)e->generation << 32 | seq);
}

void
mem_key_renew(struct karst_mem *m, struct karst_mem_entry *e)
{
	uint32_t upper;

	/* Programs use 0 for "no key": no key has zeros in its upper 24 bits. */
	do {
		e->generation = (e->generation + 1) & generation_mask(m);
		upper = mem_key_of(m, e->generation, mem_slot_of(m, e));
	} while (upper == 0);
	assert(karst_mem_entry_of(m, upper) == e);
	__atomic_store_n(&e->key, upper | (key_fresh(m, e) & 0xff), __ATOMIC_RELAXED);
}

uint32_t
mem_key_next_low(const struct karst_mem *m, const struct karst_mem_entry *e)
{
	uint32_t key = __atomic_load_n(&e->key, __ATOMIC_RELAXED);
	uint32_t step = 1 + (uint32_t)((key_fresh(m, e) & 0xffffffff) * 255 >> 32);

	return (key & ~0xffu) | ((key + step) & 0xff);
}
