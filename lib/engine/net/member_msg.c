/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * IGMP over IPv4 and MLD over IPv6.  All messages carry the Router Alert option and a TTL or hop
 * limit of 1, so that routers process them and do not forward them.  Reports of the newest version
 * are sent to the address of all routers that support it, old reports to the group that they are
 * about.
 */
#include "member_msg.h"

#include "karst_hdr.h"

#define PROTO_IGMP    2u
#define PROTO_HOPOPTS 0u
#define PROTO_ICMP6   58u
#define IP4_LEN       24u   /* with the Router Alert */
#define IP6_LEN       48u   /* with the hop-by-hop header */
#define TOS_CONTROL   0xc0u /* internetwork control */
#define OPT_ALERT4    0x94u
#define OPT_ALERT6    0x05u
#define OPT_PADN      0x01u
#define RECORD4_LEN   8u
#define RECORD6_LEN   20u
#define REPORT_HEAD   8u
#define IGMP_LEN      8u
#define MLD_LEN       24u
#define QUERY3_LEN    12u /* minimum of IGMP version 3 */
#define QUERY2_LEN    28u /* minimum of MLD version 2 */
#define MILLISECOND   UINT64_C(1000000)

enum {
	IGMP_QUERY = 0x11,
	IGMP1_REPORT = 0x12,
	IGMP2_REPORT = 0x16,
	IGMP2_LEAVE = 0x17,
	IGMP3_REPORT = 0x22,
	MLD_QUERY = 130,
	MLD1_REPORT = 131,
	MLD1_DONE = 132,
	MLD2_REPORT = 143,
};

static const uint8_t igmp_routers[4] = {224, 0, 0, 2};
static const uint8_t igmp3_routers[4] = {224, 0, 0, 22};
static const uint8_t mld_routers[16] = {0xff, 0x02, [15] = 2};
static const uint8_t mld2_routers[16] = {0xff, 0x02, [15] = 22};

/* --- checksums --- */

static uint32_t
sum_of(const uint8_t *p, size_t len, uint32_t sum)
{
	size_t i;

	for (i = 0; i + 1 < len; i += 2)
		sum += karst_get_be16(p + i);
	if (len & 1)
		sum += (uint32_t)p[len - 1] << 8;
	return sum;
}

static uint16_t
checksum_fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* Checksum of an ICMPv6 message of @len bytes after the IPv6 header @ip. */
static uint16_t
icmp6_sum(const uint8_t *ip, const uint8_t *icmp, size_t len)
{
	return checksum_fold(sum_of(icmp, len, sum_of(ip + 8, 32, (uint32_t)len + PROTO_ICMP6)));
}

/* --- headers --- */

static void
report_open4(struct eng_member_msg *msg, const struct eng_member_src *src, const uint8_t dst[4])
{
	uint8_t *p = msg->bytes;

	memset(p, 0, IP4_LEN);
	p[0] = 4 << 4 | IP4_LEN / 4;
	p[1] = TOS_CONTROL;
	karst_put_be16(p + 6, 0x4000); /* don't fragment */
	p[8] = 1;
	p[9] = PROTO_IGMP;
	memcpy(p + 12, src->ip4, 4);
	memcpy(p + 16, dst, 4);
	p[20] = OPT_ALERT4;
	p[21] = 4;
	memset(msg->dst, 0, sizeof(msg->dst));
	msg->dst[10] = msg->dst[11] = 0xff;
	memcpy(msg->dst + 12, dst, 4);
	msg->len = IP4_LEN;
}

static void
report_open6(struct eng_member_msg *msg, const struct eng_member_src *src, const uint8_t dst[16])
{
	uint8_t *p = msg->bytes;

	memset(p, 0, IP6_LEN);
	p[0] = 6 << 4;
	p[6] = PROTO_HOPOPTS;
	p[7] = 1;
	memcpy(p + 8, src->link_local, 16);
	memcpy(p + 24, dst, 16);
	p[40] = PROTO_ICMP6;
	p[42] = OPT_ALERT6;
	p[43] = 2;
	p[46] = OPT_PADN;
	memcpy(msg->dst, dst, 16);
	msg->len = IP6_LEN;
}

static void
close_any(struct eng_member_msg *msg)
{
	uint8_t *p = msg->bytes;

	if (p[0] >> 4 == 4) {
		karst_put_be16(p + 2, (uint16_t)msg->len);
		karst_put_be16(p + 10, checksum_fold(sum_of(p, IP4_LEN, 0)));
		karst_put_be16(
			p + IP4_LEN + 2, checksum_fold(sum_of(p + IP4_LEN, msg->len - IP4_LEN, 0)));
	} else {
		karst_put_be16(p + 4, (uint16_t)(msg->len - KARST_IP6_LEN));
		karst_put_be16(p + IP6_LEN + 2, icmp6_sum(p, p + IP6_LEN, msg->len - IP6_LEN));
	}
}

/* --- reports --- */

static size_t
head_len(const struct eng_member_msg *msg)
{
	return msg->bytes[0] >> 4 == 4 ? IP4_LEN : IP6_LEN;
}

void
eng_member_report_open(
	struct eng_member_msg *msg, enum eng_member_proto proto, const struct eng_member_src *src)
{
	if (proto == ENG_IGMP)
		report_open4(msg, src, igmp3_routers);
	else
		report_open6(msg, src, mld2_routers);
	memset(msg->bytes + msg->len, 0, REPORT_HEAD);
	msg->bytes[msg->len] = proto == ENG_IGMP ? IGMP3_REPORT : MLD2_REPORT;
	msg->len += REPORT_HEAD;
}

bool
eng_member_report_add(struct eng_member_msg *msg, enum eng_member_record type, const uint8_t ip[16])
{
	uint8_t *head = msg->bytes + head_len(msg), *p = msg->bytes + msg->len;
	uint16_t n = karst_get_be16(head + 6);
	bool ip4 = head[0] == IGMP3_REPORT;

	if (n == ENG_MEMBER_RECORDS)
		return false;
	karst_put_be16(head + 6, (uint16_t)(n + 1));
	memset(p, 0, 4);
	p[0] = (uint8_t)type;
	memcpy(p + 4, ip + (ip4 ? 12 : 0), ip4 ? 4 : 16);
	msg->len += ip4 ? RECORD4_LEN : RECORD6_LEN;
	return true;
}

void
eng_member_report_close(struct eng_member_msg *msg)
{
	close_any(msg);
}

void
eng_member_old_build(struct eng_member_msg *msg, enum eng_member_proto proto, unsigned int version,
	bool leaves, const uint8_t ip[16], const struct eng_member_src *src)
{
	uint8_t *p;

	if (proto == ENG_IGMP) {
		report_open4(msg, src, leaves ? igmp_routers : ip + 12);
		p = msg->bytes + msg->len;
		memset(p, 0, IGMP_LEN);
		p[0] = version == 1 ? IGMP1_REPORT : leaves ? IGMP2_LEAVE : IGMP2_REPORT;
		memcpy(p + 4, ip + 12, 4);
		msg->len += IGMP_LEN;
	} else {
		report_open6(msg, src, leaves ? mld_routers : ip);
		p = msg->bytes + msg->len;
		memset(p, 0, MLD_LEN);
		p[0] = leaves ? MLD1_DONE : MLD1_REPORT;
		memcpy(p + 8, ip, 16);
		msg->len += MLD_LEN;
	}
	close_any(msg);
}

/* --- queries --- */

/* Offset of the ICMPv6 message; 0: there is none, or no hop-by-hop header before it. */
static size_t
icmp6_offset(const uint8_t *l3, size_t len)
{
	size_t off;

	if (len < IP6_LEN || l3[6] != PROTO_HOPOPTS || l3[40] != PROTO_ICMP6)
		return 0;
	off = KARST_IP6_LEN + 8u * (l3[41] + 1u);
	return off + MLD_LEN <= len ? off : 0;
}

bool
eng_member_is_any(const uint8_t *l3, size_t len)
{
	size_t off;

	if (len < KARST_IP4_LEN + IGMP_LEN)
		return false;
	if (l3[0] >> 4 == 4)
		return l3[9] == PROTO_IGMP;
	off = l3[0] >> 4 == 6 ? icmp6_offset(l3, len) : 0;
	return off != 0 &&
		((l3[off] >= MLD_QUERY && l3[off] <= MLD1_DONE) || l3[off] == MLD2_REPORT);
}

bool
eng_member_is_query(const uint8_t *l3, size_t len)
{
	size_t off;

	if (len < KARST_IP4_LEN + IGMP_LEN)
		return false;
	if (l3[0] >> 4 == 4) {
		off = (l3[0] & 15u) * 4u;
		return off >= KARST_IP4_LEN && l3[9] == PROTO_IGMP && off + IGMP_LEN <= len &&
			l3[off] == IGMP_QUERY;
	}
	off = l3[0] >> 4 == 6 ? icmp6_offset(l3, len) : 0;
	return off != 0 && l3[off] == MLD_QUERY;
}

/* Whether the hop-by-hop header has a Router Alert option. */
static bool
has_alert6(const uint8_t *opt, size_t len)
{
	size_t i = 0;

	while (i < len) {
		if (opt[i] == 0) {
			i++;
			continue;
		}
		if (i + 2 > len || i + 2 + opt[i + 1] > len)
			return false;
		if (opt[i] == OPT_ALERT6)
			return opt[i + 1] == 2;
		i += 2u + opt[i + 1];
	}
	return false;
}

/* RFC 3376, 4.1.1: a 7-bit number, or a 4-bit mantissa with an exponent. */
static uint32_t
query_code8(uint8_t code)
{
	return code < 0x80 ? code : ((code & 15u) | 16u) << ((code >> 4 & 7u) + 3u);
}

/* RFC 3810, 5.1.3: the same with 15 bits, or a 12-bit mantissa. */
static uint32_t
query_code16(uint16_t code)
{
	return code < 0x8000 ? code : ((code & 0xfffu) | 0x1000u) << ((code >> 12 & 7u) + 3u);
}

static bool
query_parse4(const uint8_t *l3, size_t len, struct eng_member_query *q)
{
	size_t head = (l3[0] & 15u) * 4u, total = karst_get_be16(l3 + 2);
	const uint8_t *p = l3 + head;
	uint32_t tenths;

	if (total > len || total < head + IGMP_LEN || l3[8] != 1 ||
		(karst_get_be16(l3 + 6) & 0x3fff) != 0 || checksum_fold(sum_of(l3, head, 0)) != 0)
		return false;
	len = total - head;
	if (checksum_fold(sum_of(p, len, 0)) != 0 || (len != IGMP_LEN && len < QUERY3_LEN))
		return false;
	q->proto = ENG_IGMP;
	q->version = len >= QUERY3_LEN ? 3 : p[1] != 0 ? 2 : 1;
	tenths = q->version == 3 ? query_code8(p[1]) : q->version == 2 ? p[1] : 100;
	q->wait_ns = tenths * 100 * MILLISECOND;
	q->robustness = q->version == 3 ? p[8] & 7 : 0;
	q->general = karst_get_be32(p + 4) == 0;
	if (!q->general && p[4] >> 4 != 14)
		return false;
	memset(q->ip, 0, sizeof(q->ip));
	q->ip[10] = q->ip[11] = 0xff;
	memcpy(q->ip + 12, p + 4, 4);
	return true;
}

static bool
query_parse6(const uint8_t *l3, size_t len, struct eng_member_query *q)
{
	static const uint8_t none[16];
	size_t off = icmp6_offset(l3, len), total = KARST_IP6_LEN + karst_get_be16(l3 + 4);
	const uint8_t *p = l3 + off;

	/* from this link: from a link-local address, and not forwarded by a router */
	if (total > len || total < off + MLD_LEN || l3[7] != 1 || l3[8] != 0xfe ||
		(l3[9] & 0xc0) != 0x80 || !has_alert6(l3 + 42, off - 42))
		return false;
	len = total - off;
	if (p[1] != 0 || icmp6_sum(l3, p, len) != 0 || (len != MLD_LEN && len < QUERY2_LEN))
		return false;
	q->proto = ENG_MLD;
	q->version = len >= QUERY2_LEN ? 2 : 1;
	q->wait_ns =
		(q->version == 2 ? query_code16(karst_get_be16(p + 4)) : karst_get_be16(p + 4)) *
		MILLISECOND;
	q->robustness = q->version == 2 ? p[24] & 7 : 0;
	q->general = memcmp(p + 8, none, 16) == 0;
	if (!q->general && p[8] != 0xff)
		return false;
	memcpy(q->ip, p + 8, 16);
	return true;
}

bool
eng_member_query_parse(const uint8_t *l3, size_t len, struct eng_member_query *q)
{
	if (!eng_member_is_query(l3, len))
		return false;
	return l3[0] >> 4 == 4 ? query_parse4(l3, len, q) : query_parse6(l3, len, q);
}
