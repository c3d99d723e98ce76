/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Addresses and networks (karst_engine_addr.h). */
#include "karst_engine_addr.h"

#include <criterion/criterion.h>

/* Tells whether @b is in the network of the first @prefix bits of @a. */
static bool
covers4(uint32_t a, uint8_t prefix, uint32_t b)
{
	struct karst_engine_addr network = karst_engine_addr_ip4(a), ip = karst_engine_addr_ip4(b);

	network.prefix = prefix;
	return karst_engine_addr_covers(&network, ip.ip);
}

Test(addr, networks_of_ip4)
{
	cr_assert(covers4(0xc0000201, 24, 0xc00002ff));
	cr_assert_not(covers4(0xc0000201, 24, 0xc0000301));
	cr_assert(covers4(0xc0000281, 25, 0xc00002ff));
	cr_assert_not(covers4(0xc0000281, 25, 0xc000027f));
	cr_assert(covers4(0xc0000201, 32, 0xc0000201));
	cr_assert_not(covers4(0xc0000201, 32, 0xc0000200));
	cr_assert(covers4(0, 0, 0xc0000201), "every address of the family");
}

Test(addr, networks_of_ip6)
{
	struct karst_engine_addr network = {.ip = {0x20, 0x01, 0x0d, 0xb8, 0xf0}, .prefix = 36};
	uint8_t ip[16] = {0x20, 0x01, 0x0d, 0xb8, 0xff};

	cr_assert(karst_engine_addr_covers(&network, ip));
	ip[4] = 0xef;
	cr_assert_not(karst_engine_addr_covers(&network, ip));
	network.prefix = 128;
	cr_assert(karst_engine_addr_covers(&network, network.ip));
}

Test(addr, families_are_apart)
{
	struct karst_engine_addr ip4 = karst_engine_addr_ip4(0), ip6 = {.prefix = 0};

	cr_assert(karst_engine_addr_is_ip4(&ip4));
	cr_assert_not(karst_engine_addr_is_ip4(&ip6));
	cr_assert_not(karst_engine_addr_covers(&ip6, ip4.ip));
	cr_assert_not(karst_engine_addr_covers(&ip4, ip6.ip));
}
