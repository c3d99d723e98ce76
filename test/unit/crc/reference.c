/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "reference.h"

#include <criterion/criterion.h>
#include <sys/mman.h>

#define PAGE 4096u

uint32_t
ref_crc32_byte(uint32_t state, uint8_t byte)
{
	state ^= byte;
	for (int bit = 0; bit < 8; bit++)
		state = state >> 1 ^ (state & 1 ? 0xedb88320u : 0);
	return state;
}

uint32_t
ref_crc32(uint32_t state, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		state = ref_crc32_byte(state, p[i]);
	return state;
}

/* Computed from the polynomial of the specification, x^16 + x^12 + x^3 + x + 1, with bits in the
 * order in which they are sent. */
uint16_t
ref_vcrc(const uint8_t *p, size_t len)
{
	uint32_t rest = 0xffff;
	uint16_t sent = 0;

	for (size_t i = 0; i < len * 8; i++) {
		uint32_t bit = p[i / 8] >> i % 8 & 1;

		rest <<= 1;
		if ((rest >> 16 & 1) ^ bit)
			rest ^= 0x1100b;
		rest &= 0xffff;
	}
	for (unsigned int i = 0; i < 16; i++)
		sent |= (rest >> (15 - i) & 1) << i;
	return (uint16_t)~sent;
}

uint8_t
ref_icrc_mask(size_t off, bool ip6)
{
	const size_t udp = ip6 ? 40 : 20;

	if (off == udp + 6 || off == udp + 7) /* checksum */
		return 0xff;
	if (off == udp + 8 + 4) /* BTH: FECN, BECN, reserved */
		return 0xff;
	if (ip6)
		/* traffic class and flow label are the low 28 bits of the first 32; hop limit */
		return off == 0 ? 0x0f : off <= 3 || off == 7 ? 0xff : 0;
	return off == 1 || off == 8 || off == 10 || off == 11 ? 0xff : 0; /* ToS, TTL, checksum */
}

uint32_t
ref_icrc(const uint8_t *l3, size_t len, bool ip6)
{
	uint32_t state = ~0u;

	for (unsigned int i = 0; i < 8; i++)
		state = ref_crc32_byte(state, 0xff);
	for (size_t i = 0; i < len; i++)
		state = ref_crc32_byte(state, l3[i] | ref_icrc_mask(i, ip6));
	return ~state;
}

uint32_t
ref_rand(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

void
ref_fill(uint8_t *p, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)ref_rand(&seed);
}

const struct karst_crc_ops *
ref_kernel(unsigned int i)
{
	const struct karst_crc_ops *ops;
	bool runs = false;

	for (unsigned int at = 0; (ops = karst_crc_ops_at(at, &runs)) != NULL; at++) {
		if (runs && i-- == 0) {
			cr_assert_eq(karst_crc_init(ops->name), 0, "%s", ops->name);
			cr_assert_eq(karst_crc_ops(), ops);
			return ops;
		}
	}
	return NULL;
}

struct ref_guard
ref_guard_open(size_t room)
{
	struct ref_guard g = {.room = (room + PAGE - 1) & ~(size_t)(PAGE - 1)};
	uint8_t *map = mmap(NULL, g.room + 2 * PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(map, MAP_FAILED);
	cr_assert_eq(mprotect(map, PAGE, PROT_NONE), 0);
	cr_assert_eq(mprotect(map + PAGE + g.room, PAGE, PROT_NONE), 0);
	g.first = map + PAGE;
	return g;
}

void
ref_guard_close(struct ref_guard *g)
{
	munmap(g->first - PAGE, g->room + 2 * PAGE);
}

uint8_t *
ref_tail(const struct ref_guard *g, size_t len)
{
	return g->first + g->room - len;
}
