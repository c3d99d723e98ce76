/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Describe frames that are not RoCE in a few words. */
#include <arpa/inet.h>
#include <stdio.h>

#include "judge.h"
#include "karst_hdr.h"

static const char *
proto_name(uint8_t proto)
{
	switch (proto) {
	case 1:
		return "ICMP";
	case 2:
		return "IGMP";
	case 6:
		return "TCP";
	case 17:
		return "UDP";
	case 58:
		return "ICMPv6";
	default:
		return NULL;
	}
}

/* Whether the transport header starts with two ports. */
static bool
has_ports(uint8_t proto)
{
	return proto == 6 || proto == 17;
}

/* @l4 is NULL if the packet is a later fragment or is cut off. */
static bool
describe_ip(
	int family, const uint8_t *l3, uint8_t proto, const uint8_t *l4, char *text, size_t room)
{
	char src[INET6_ADDRSTRLEN] = "", dst[INET6_ADDRSTRLEN] = "", number[16];
	const char *name = proto_name(proto), *ip = family == AF_INET ? "IPv4" : "IPv6";
	unsigned int addrs = family == AF_INET ? 12 : 8, size = family == AF_INET ? 4 : 16;

	inet_ntop(family, l3 + addrs, src, sizeof(src));
	inet_ntop(family, l3 + addrs + size, dst, sizeof(dst));
	if (name == NULL) {
		snprintf(number, sizeof(number), "protocol %u", proto);
		name = number;
	}
	if (l4 == NULL || !has_ports(proto)) {
		snprintf(text, room, "%s %s %s > %s", ip, name, src, dst);
		return false;
	}
	snprintf(text, room, "%s %s %s port %u > %s port %u", ip, name, src, karst_get_be16(l4),
		dst, karst_get_be16(l4 + 2));
	return proto == 17 && karst_get_be16(l4 + 2) == KARST_ROCE_UDP_PORT;
}

static bool
describe_ip4(const uint8_t *l3, uint32_t len, char *text, size_t room)
{
	bool later_fragment;
	uint32_t ihl;

	if (len < KARST_IP4_LEN) {
		snprintf(text, room, "IPv4, cut off");
		return false;
	}
	ihl = (l3[0] & 15u) * 4;
	later_fragment = (karst_get_be16(l3 + 6) & 0x1fff) != 0;
	return describe_ip(AF_INET, l3, l3[9],
		ihl >= KARST_IP4_LEN && len >= ihl + 4 && !later_fragment ? l3 + ihl : NULL, text,
		room);
}

static bool
describe_ip6(const uint8_t *l3, uint32_t len, char *text, size_t room)
{
	if (len < KARST_IP6_LEN) {
		snprintf(text, room, "IPv6, cut off");
		return false;
	}
	return describe_ip(AF_INET6, l3, l3[6],
		len >= KARST_IP6_LEN + 4 ? l3 + KARST_IP6_LEN : NULL, text, room);
}

static void
describe_arp(const uint8_t *p, uint32_t len, char *text, size_t room)
{
	char who[INET_ADDRSTRLEN] = "", from[INET_ADDRSTRLEN] = "";

	if (len < 28) {
		snprintf(text, room, "ARP, cut off");
		return;
	}
	inet_ntop(AF_INET, p + 14, from, sizeof(from));
	inet_ntop(AF_INET, p + 24, who, sizeof(who));
	snprintf(
		text, room, "ARP %s %s from %s", p[7] == 1 ? "request for" : "reply to", who, from);
}

bool
judge_describe_other(const uint8_t *data, uint32_t len, char *text, size_t room)
{
	uint32_t off = KARST_ETH_LEN;
	uint16_t type;

	if (len < KARST_ETH_LEN) {
		snprintf(text, room, "%u bytes, shorter than an Ethernet header", len);
		return false;
	}
	type = karst_get_be16(data + 12);
	if (type == 0x8100 && len >= KARST_ETH_LEN + KARST_VLAN_LEN) {
		type = karst_get_be16(data + 16);
		off += KARST_VLAN_LEN;
	}
	switch (type) {
	case 0x0800:
		return describe_ip4(data + off, len - off, text, room);
	case 0x86dd:
		return describe_ip6(data + off, len - off, text, room);
	case 0x0806:
		describe_arp(data + off, len - off, text, room);
		return false;
	default:
		snprintf(text, room, "EtherType 0x%04x", type);
		return false;
	}
}
