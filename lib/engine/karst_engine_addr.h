/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Addresses and networks, as the engine's interfaces use them.  Pure functions, for any thread. */
#ifndef KARST_ENGINE_ADDR_H
#define KARST_ENGINE_ADDR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/** An IP address in wire order; IPv4 as ::ffff:a.b.c.d. */
struct karst_engine_addr {
	uint8_t ip[16];
	uint8_t prefix; /* of a port's address: leading bits that all addresses on its link share,
			 * of 32 (IPv4) or 128; 0: every address of the family is on the link */
};

/** The IPv4 address a.b.c.d as 0xAABBCCDD. */
static inline struct karst_engine_addr
karst_engine_addr_ip4(uint32_t ip4)
{
	struct karst_engine_addr a = {.ip = {[10] = 0xff,
					      0xff,
					      (uint8_t)(ip4 >> 24),
					      (uint8_t)(ip4 >> 16),
					      (uint8_t)(ip4 >> 8),
					      (uint8_t)ip4}};
	return a;
}

static inline bool
karst_engine_ip_is_ip4(const uint8_t ip[16])
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(ip, prefix, sizeof(prefix)) == 0;
}

/** Whether @ip is ::, which stands for no address. */
static inline bool
karst_engine_ip_is_none(const uint8_t ip[16])
{
	static const uint8_t none[16];

	return memcmp(ip, none, sizeof(none)) == 0;
}

static inline bool
karst_engine_addr_is_ip4(const struct karst_engine_addr *a)
{
	return karst_engine_ip_is_ip4(a->ip);
}

/** The element of @list, of @n addresses, that is @ip; NULL: none.  Empty places of a port are ::,
 *  which is never found. */
static inline const struct karst_engine_addr *
karst_engine_addr_in(const struct karst_engine_addr *list, uint32_t n, const uint8_t ip[16])
{
	uint32_t i;

	if (karst_engine_ip_is_none(ip))
		return NULL;
	for (i = 0; i < n; i++)
		if (memcmp(list[i].ip, ip, sizeof(list[i].ip)) == 0)
			return &list[i];
	return NULL;
}

/** Whether @ip is in the network of the first @a->prefix bits of @a.  Never true for an @ip of the
 *  other address family. */
static inline bool
karst_engine_addr_covers(const struct karst_engine_addr *a, const uint8_t ip[16])
{
	bool is4 = karst_engine_addr_is_ip4(a);
	unsigned int bits = a->prefix + (is4 ? 96u : 0u);
	unsigned int bytes = bits / 8, rest = bits % 8;

	return is4 == karst_engine_ip_is_ip4(ip) && memcmp(a->ip, ip, bytes) == 0 &&
		(rest == 0 || (a->ip[bytes] ^ ip[bytes]) >> (8 - rest) == 0);
}

#endif /* KARST_ENGINE_ADDR_H */
