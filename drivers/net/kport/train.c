/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "train.h"

#include <string.h>

#define ETH_LEN   14u
#define VLAN_LEN  4u
#define IP4_LEN   20u
#define IP6_LEN   40u
#define UDP_LEN   8u
#define PROTO_UDP 17u

static inline uint16_t
get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static inline void
put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static inline uint32_t
sum16(uint32_t sum, const uint8_t *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i += 2)
		sum += get16(p + i);
	return sum;
}

static inline uint16_t
fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* --- recognizing frames --- */

static bool
find4(const uint8_t *ip, size_t len, struct kp_hdrs *h)
{
	/* no options; neither a fragment nor part of one; UDP */
	if (len < IP4_LEN + UDP_LEN || ip[0] != 0x45 || (get16(ip + 6) & 0x3fff) != 0 ||
		ip[9] != PROTO_UDP)
		return false;
	h->ip6 = false;
	h->l4 = (uint8_t)(h->l3 + IP4_LEN);
	return true;
}

static bool
find6(const uint8_t *ip, size_t len, struct kp_hdrs *h)
{
	if (len < IP6_LEN + UDP_LEN || ip[0] >> 4 != 6 || ip[6] != PROTO_UDP)
		return false;
	h->ip6 = true;
	h->l4 = (uint8_t)(h->l3 + IP6_LEN);
	return true;
}

bool
kp_hdrs_find(const uint8_t *data, size_t len, struct kp_hdrs *h)
{
	size_t l3 = ETH_LEN;
	uint16_t type;
	bool found;

	if (len < ETH_LEN + VLAN_LEN)
		return false;
	type = get16(data + 12);
	if (type == 0x8100) {
		type = get16(data + 16);
		l3 += VLAN_LEN;
	}
	h->l3 = (uint8_t)l3;
	if (type == 0x0800)
		found = find4(data + l3, len - l3, h);
	else
		found = type == 0x86dd && find6(data + l3, len - l3, h);
	h->bytes = (uint8_t)(h->l4 + UDP_LEN);
	return found;
}

static inline size_t
ip_bytes(const uint8_t *data, const struct kp_hdrs *h)
{
	return h->ip6 ? get16(data + h->l3 + 4) + IP6_LEN : get16(data + h->l3 + 2);
}

int
kp_hdrs_payload(const uint8_t *data, const struct kp_hdrs *h)
{
	unsigned int udp = get16(data + h->l4 + 4);

	if (udp < UDP_LEN || ip_bytes(data, h) != (size_t)(h->l4 - h->l3) + udp)
		return -1;
	return (int)(udp - UDP_LEN);
}

/* Do the lengths in the headers mean that the frame of @len bytes is exactly one datagram? */
static inline bool
lengths_fit(const uint8_t *data, size_t len, const struct kp_hdrs *h)
{
	return len > h->bytes && ip_bytes(data, h) == len - h->l3 &&
		get16(data + h->l4 + 4) == len - h->l4;
}

bool
kp_train_begins(const uint8_t *data, size_t len, const struct kp_hdrs *h)
{
	return lengths_fit(data, len, h) && get16(data + h->l4 + 6) == 0;
}

bool
kp_train_joins(const uint8_t *first, const struct kp_hdrs *h, const uint8_t *data, size_t len,
	unsigned int index)
{
	const uint8_t *a = first + h->l3, *b = data + h->l3;

	if (!lengths_fit(data, len, h) || memcmp(first, data, h->l3) != 0)
		return false;
	if (h->ip6) {
		if (memcmp(a, b, 4) != 0 || memcmp(a + 6, b + 6, IP6_LEN - 6) != 0)
			return false;
	} else {
		/* version, ToS; identification; flags, TTL, protocol; addresses */
		if (memcmp(a, b, 2) != 0 || get16(b + 4) != (uint16_t)(get16(a + 4) + index) ||
			memcmp(a + 6, b + 6, 4) != 0 || memcmp(a + 12, b + 12, 8) != 0)
			return false;
	}
	a = first + h->l4;
	b = data + h->l4;
	return memcmp(a, b, 4) == 0 && get16(b + 6) == 0;
}

/* --- headers --- */

void
kp_ip4_checksum(uint8_t *l3)
{
	put16(l3 + 10, 0);
	put16(l3 + 10, (uint16_t)~fold(sum16(0, l3, IP4_LEN)));
}

uint16_t
kp_pseudo_sum(const uint8_t *data, const struct kp_hdrs *h, size_t udp_len)
{
	const uint8_t *l3 = data + h->l3;
	uint32_t sum = PROTO_UDP + (uint32_t)udp_len;

	return fold(h->ip6 ? sum16(sum, l3 + 8, 32) : sum16(sum, l3 + 12, 8));
}

/* Writes IP and UDP lengths, and over IPv4 the identification and the checksum. */
static inline void
set_lengths(uint8_t *to, const struct kp_hdrs *h, uint16_t id, size_t payload)
{
	uint8_t *l3 = to + h->l3;

	if (h->ip6) {
		put16(l3 + 4, (uint32_t)(payload + UDP_LEN));
	} else {
		put16(l3 + 2, (uint32_t)(payload + UDP_LEN + IP4_LEN));
		put16(l3 + 4, id);
		kp_ip4_checksum(l3);
	}
	put16(to + h->l4 + 4, (uint32_t)(payload + UDP_LEN));
}

void
kp_hdrs_of_one(uint8_t *to, const uint8_t *first, const struct kp_hdrs *h, unsigned int index,
	size_t payload)
{
	uint16_t id = h->ip6 ? 0 : (uint16_t)(get16(first + h->l3 + 4) + index);

	if (to != first)
		memcpy(to, first, h->bytes);
	set_lengths(to, h, id, payload);
	put16(to + h->l4 + 6, 0);
}

void
kp_hdrs_of_train(uint8_t *to, const uint8_t *first, const struct kp_hdrs *h, size_t payload)
{
	uint16_t id = h->ip6 ? 0 : get16(first + h->l3 + 4);

	if (to != first)
		memcpy(to, first, h->bytes);
	set_lengths(to, h, id, payload);
	put16(to + h->l4 + 6, kp_pseudo_sum(to, h, payload + UDP_LEN));
}
