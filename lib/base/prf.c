/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "karst_prf.h"

static uint64_t
rotl(uint64_t v, unsigned int n)
{
	return v << n | v >> (64 - n);
}

static void
sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotl(v[1], 13) ^ v[0];
	v[3] = rotl(v[3], 16) ^ v[2];
	v[0] = rotl(v[0], 32) + v[3];
	v[2] += v[1];
	v[3] = rotl(v[3], 21) ^ v[0];
	v[1] = rotl(v[1], 17) ^ v[2];
	v[2] = rotl(v[2], 32);
}

static void
sip_absorb(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	sip_round(v);
	sip_round(v);
	v[0] ^= word;
}

uint64_t
karst_prf(const uint64_t key[2], uint64_t a, uint64_t b)
{
	uint64_t v[4] = {
		key[0] ^ 0x736f6d6570736575,
		key[1] ^ 0x646f72616e646f6d,
		key[0] ^ 0x6c7967656e657261,
		key[1] ^ 0x7465646279746573,
	};
	unsigned int i;

	sip_absorb(v, a);
	sip_absorb(v, b);
	sip_absorb(v, 16ull << 56); /* length of the message */
	v[2] ^= 0xff;
	for (i = 0; i < 4; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void
karst_prf_derive(const uint64_t secret[2], uint64_t use, uint64_t n, uint64_t key[2])
{
	uint64_t first = karst_prf(secret, use, 2 * n), second = karst_prf(secret, use, 2 * n + 1);

	key[0] = first;
	key[1] = second;
}
