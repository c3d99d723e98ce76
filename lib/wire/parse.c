/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The parser: fills struct karst_pkt from a frame.
 *
 * A frame is parsed once, front to back: Ethernet, at most one tag, IPv4 or IPv6, UDP, BTH.  Each
 * step first verifies that the next header is inside the length that the step before it found, then
 * loads it.  So a claimed length is never trusted beyond the bytes received, and no byte after the
 * end of the IP packet is read.
 *
 * The extended headers depend on the opcode alone, so there is no loop over them: a table generated
 * from karst_opcode.def (layout.h) has, per opcode, the offset of each field of karst_pkt from the
 * BTH.  Every field is loaded every time.  For a header that the opcode does not have the offset is
 * 0, that of the BTH itself.  At least 16 bytes (BTH and ICRC) are there, no field extends further,
 * and the loaded value is never used.  That costs five loads and no branch.
 *
 * Nearly all frames are of one kind: no tag, IPv4, no UDP checksum.  Those are recognized first, by
 * comparing a few words under masks (plain_udp_len()).  A frame that is not of this kind, or that
 * has any error, is parsed step by step, which finds the drop reason.
 *
 * Order of the checks: frame length, EtherType, IP header, fragment, protocol, UDP port, UDP
 * length, UDP checksum, TVer, opcode, header length, pad.  Bytes after the IP packet (Ethernet pads
 * to 60) are ignored.
 */
#include "karst_parse.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "layout.h"

#define ETHERTYPE_IP4  0x0800
#define ETHERTYPE_IP6  0x86dd
#define ETHERTYPE_VLAN 0x8100
#define PROTO_UDP      17
#define ECN_MASK       3
#define ECN_CE         3

/* Shortest UDP datagram that can be RoCE. */
#define UDP_ROCE_MIN (KARST_UDP_LEN + KARST_BTH_LEN + KARST_ICRC_LEN)

/* How many packets ahead the headers of a burst are prefetched. */
#define PREFETCH_AHEAD 4

/* The range that a field of an absent header is loaded from (see above). */
static_assert(KARST_BTH_LEN + KARST_ICRC_LEN >= KARST_RETH_LEN, "a RETH at the BTH is in range");

/* Properties of the network layer. */
struct l3 {
	uint32_t hdr_len;
	uint32_t pay_len; /* bytes after the header, all of them received */
	bool ce;
};

/* The header with its checksum sums to all ones (RFC 1071); any byte order gives the same. */
static inline bool
ip4_checksum_ok(uint64_t a, uint64_t b, uint32_t c)
{
	uint64_t sum = (a & UINT32_MAX) + (a >> 32) + (b & UINT32_MAX) + (b >> 32) + c;

	sum = (sum & UINT32_MAX) + (sum >> 32);
	sum = (sum & UINT16_MAX) + (sum >> 16);
	sum = (sum & UINT16_MAX) + (sum >> 16);
	return (uint16_t)(sum + (sum >> 16)) == UINT16_MAX;
}

/* IPv4 without options, not a fragment, carrying UDP (W1). */
static inline enum karst_drop
parse_ip4(const uint8_t *p, uint32_t avail, struct l3 *l3)
{
	uint64_t a, b;
	uint32_t c, total;

	if (karst_unlikely(avail < KARST_IP4_LEN))
		return KARST_DROP_RUNT;
	memcpy(&a, p, sizeof(a));
	memcpy(&b, p + 8, sizeof(b));
	memcpy(&c, p + 16, sizeof(c));
	if (karst_unlikely(p[0] != 0x45 || !ip4_checksum_ok(a, b, c)))
		return KARST_DROP_IP_HEADER;
	if (karst_unlikely((karst_get_be16(p + 6) & 0x3fff) != 0)) /* MF or an offset */
		return KARST_DROP_IP_FRAGMENT;
	if (karst_unlikely(p[9] != PROTO_UDP))
		return KARST_DROP_NOT_UDP;
	total = karst_get_be16(p + 2);
	if (karst_unlikely(total < KARST_IP4_LEN + KARST_UDP_LEN || total > avail))
		return KARST_DROP_RUNT;
	l3->hdr_len = KARST_IP4_LEN;
	l3->pay_len = total - KARST_IP4_LEN;
	l3->ce = (p[1] & ECN_MASK) == ECN_CE;
	return KARST_DROP_NONE;
}

/* IPv6 with UDP as its next header: no extension headers (W1). */
static inline enum karst_drop
parse_ip6(const uint8_t *p, uint32_t avail, struct l3 *l3)
{
	uint32_t pay_len;

	if (karst_unlikely(avail < KARST_IP6_LEN))
		return KARST_DROP_RUNT;
	if (karst_unlikely(p[0] >> 4 != 6))
		return KARST_DROP_IP_HEADER;
	if (karst_unlikely(p[6] == 44)) /* fragment header */
		return KARST_DROP_IP_FRAGMENT;
	if (karst_unlikely(p[6] != PROTO_UDP))
		return KARST_DROP_NOT_UDP;
	pay_len = karst_get_be16(p + 4);
	if (karst_unlikely(pay_len < KARST_UDP_LEN || pay_len > avail - KARST_IP6_LEN))
		return KARST_DROP_RUNT;
	l3->hdr_len = KARST_IP6_LEN;
	l3->pay_len = pay_len;
	l3->ce = (p[1] >> 4 & ECN_MASK) == ECN_CE;
	return KARST_DROP_NONE;
}

/* Sum of @len bytes as 16-bit words in memory order; @len at most 64 KiB. */
static uint64_t
parse_sum16(const uint8_t *p, uint32_t len)
{
	uint64_t sum = 0;
	uint16_t w;

	for (; len >= 2; len -= 2, p += 2) {
		memcpy(&w, p, sizeof(w));
		sum += w;
	}
	if (len != 0) {
		w = 0;
		memcpy(&w, p, 1);
		sum += w;
	}
	return sum;
}

/*
 * A UDP checksum other than 0 must be right (W1).  RoCE peers send 0, so this is not on the fast
 * path.  The addresses are the last 8 or 32 bytes before the UDP header in both IP versions.
 */
static karst_noinline bool
udp_checksum_ok(const uint8_t *udp, uint32_t len, bool ip6)
{
	uint32_t addr_len = ip6 ? 32 : 8;
	uint8_t pseudo[4] = {0, PROTO_UDP};
	uint64_t sum;

	karst_put_be16(pseudo + 2, (uint16_t)len);
	sum = parse_sum16(udp - addr_len, addr_len) + parse_sum16(pseudo, sizeof(pseudo)) +
		parse_sum16(udp, len);
	while (sum > UINT16_MAX)
		sum = (sum & UINT16_MAX) + (sum >> 16);
	return sum == UINT16_MAX;
}

/* UDP to the RoCE port, exactly filling the IP packet (W1). */
static inline enum karst_drop
parse_udp(const uint8_t *udp, uint32_t len, bool ip6)
{
	if (karst_unlikely(karst_get_be16(udp + 2) != KARST_ROCE_UDP_PORT))
		return KARST_DROP_NOT_ROCE;
	if (karst_unlikely(karst_get_be16(udp + 4) != len))
		return KARST_DROP_UDP_LENGTH;
	if (karst_unlikely(len < UDP_ROCE_MIN))
		return KARST_DROP_RUNT;
	if (karst_unlikely(karst_get_be16(udp + 6) != 0 && !udp_checksum_ok(udp, len, ip6)))
		return KARST_DROP_UDP_CHECKSUM;
	return KARST_DROP_NONE;
}

typedef uint8_t bytes16 __attribute__((vector_size(16)));

/* Loads opcode, P_Key, PSN and destination QP; va, rkey and dma_len of the RETH: one shuffle
 * each. */
karst_always_inline void
load_fields(struct karst_pkt *p, const uint8_t *bth, const uint8_t *reth)
{
	const bytes16 zero = {0};
	bytes16 a, b;

	memcpy(&a, bth, sizeof(a)); /* 12 bytes, and 4 of what follows, which is at least an ICRC */
	memcpy(&b, reth, sizeof(b));
	a = __builtin_shufflevector(
		a, zero, 0, 16, 3, 2, 11, 10, 9, 16, 7, 6, 5, 16, 16, 16, 16, 16);
	b = __builtin_shufflevector(b, b, 7, 6, 5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 15, 14, 13, 12);
	memcpy(&p->opcode, &a, sizeof(a));
	memcpy(&p->va, &b, sizeof(b));
}

static_assert(offsetof(struct karst_pkt, pkey) == 18 && offsetof(struct karst_pkt, psn) == 20 &&
		offsetof(struct karst_pkt, dqpn) == 24 && offsetof(struct karst_pkt, rkey) == 40 &&
		offsetof(struct karst_pkt, dma_len) == 44,
	"where load_fields() puts them");
static_assert(KARST_RETH_LEN == 16, "all of it");

/*
 * BTH, extended headers, payload, pad, ICRC: @len bytes, at least BTH and ICRC.  A payload after an
 * opcode that has none is dropped with a pad error: no check of a queue pair would cover it.  A CNP
 * has 16 reserved bytes there, which are accepted (E3).
 */
static inline enum karst_drop
parse_bth(struct karst_pkt *p, const uint8_t *bth, uint32_t len)
{
	const struct karst_wire_layout *lo;
	uint32_t w0 = karst_get_be32(bth), w1 = karst_get_be32(bth + 4);
	uint32_t w2 = karst_get_be32(bth + 8);
	uint32_t rest, pad;
	uint8_t flags;

	if (karst_unlikely((w0 >> 16 & 15) != 0))
		return KARST_DROP_TVER;
	lo = &karst_wire_layouts[w0 >> 24];
	if (karst_unlikely(lo->hdr_len == 0))
		return KARST_DROP_OPCODE;
	if (karst_unlikely(lo->hdr_len + (uint32_t)KARST_ICRC_LEN > len))
		return KARST_DROP_RUNT;
	rest = len - lo->hdr_len - KARST_ICRC_LEN;
	pad = w0 >> 20 & 3;
	if (karst_unlikely((rest & 3) != 0 || pad > rest || (rest != 0 && !lo->payload)))
		return KARST_DROP_PAD;

	p->pay_off = (uint8_t)(p->bth_off + lo->hdr_len);
	p->pay_len = (uint16_t)(rest - pad);
	flags = (uint8_t)(p->flags | (w0 >> 21 & KARST_PKT_SE) | (w0 >> 16 & KARST_PKT_MIGREQ) |
		(w1 >> 25 & KARST_PKT_BECN) | (w2 >> 28 & KARST_PKT_ACKREQ));
	load_fields(p, bth, bth + lo->reth);
	p->flags = flags;
	p->imm = karst_get_be32(bth + lo->imm);
	p->aeth = karst_get_be32(bth + lo->aeth);
	p->src_qpn = karst_get_be32(bth + lo->src) & 0xffffff;
	return KARST_DROP_NONE;
}

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "plain_udp_len() has bytes in words");

#define PLAIN_UDP (KARST_ETH_LEN + KARST_IP4_LEN)
#define PLAIN_BTH (PLAIN_UDP + KARST_UDP_LEN)

static inline uint64_t
load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* As ip4_checksum_ok(), with explicit carries. */
static inline bool
plain_checksum_ok(uint64_t a, uint64_t b, uint32_t c)
{
	uint64_t sum;
	uint32_t half;
	bool carry = __builtin_add_overflow(a, b, &sum);

	sum += carry; /* if there was a carry, the sum was not all ones */
	carry = __builtin_add_overflow(sum, (uint64_t)c, &sum);
	sum += carry;
	/* adding the swapped halves leaves the sum of both, with the carry, in the upper half */
	sum += sum << 32 | sum >> 32;
	half = (uint32_t)(sum >> 32);
	half += half << 16 | half >> 16;
	return half >> 16 == UINT16_MAX;
}

/*
 * Whether the frame has no tag, IPv4 without options or fragments, and UDP to the RoCE port without
 * a checksum, and everything before the BTH is right.  The lengths of IP and UDP agree, and the
 * frame is long enough.  @return the UDP length; 0 means only that parse_any() has to parse the
 * frame.
 */
static inline uint32_t
plain_udp_len(const uint8_t *d, uint32_t len)
{
	uint64_t a, b, u, differ;
	uint32_t c, total, udp_len;
	uint16_t type;

	if (karst_unlikely(len < PLAIN_UDP + UDP_ROCE_MIN))
		return 0;
	memcpy(&type, d + 12, sizeof(type));
	memcpy(&c, d + KARST_ETH_LEN + 16, sizeof(c));
	a = load64(d + KARST_ETH_LEN);     /* version, ToS, length, ID, fragment */
	b = load64(d + KARST_ETH_LEN + 8); /* TTL, protocol, checksum, source */
	u = load64(d + PLAIN_UDP);
	differ = (a & UINT64_C(0xff3f0000000000ff)) ^ 0x45;
	differ |= (b & 0xff00) ^ PROTO_UDP << 8;
	differ |= (u & UINT64_C(0xffff0000ffff0000)) ^
		(uint64_t)__builtin_bswap16(KARST_ROCE_UDP_PORT) << 16;
	differ |= (uint64_t)(type ^ __builtin_bswap16(ETHERTYPE_IP4));
	total = __builtin_bswap16((uint16_t)(a >> 16));
	udp_len = __builtin_bswap16((uint16_t)(u >> 32));
	differ |= (udp_len + KARST_IP4_LEN) ^ total;
	if (karst_unlikely(differ != 0 || total > len - KARST_ETH_LEN || udp_len < UDP_ROCE_MIN ||
		    !plain_checksum_ok(a, b, c)))
		return 0;
	return udp_len;
}

/* Any frame, step by step. */
static karst_noinline enum karst_drop
parse_any(struct karst_pkt *p)
{
	const uint8_t *d = p->data;
	uint32_t len = p->len, off = KARST_ETH_LEN;
	enum karst_drop drop;
	uint8_t flags = 0;
	uint16_t type;
	struct l3 l3;

	if (karst_unlikely(len < KARST_ETH_LEN))
		return KARST_DROP_RUNT;
	type = karst_get_be16(d + 12);
	if (type == ETHERTYPE_VLAN) {
		off += KARST_VLAN_LEN;
		if (karst_unlikely(len < off))
			return KARST_DROP_RUNT;
		type = karst_get_be16(d + 16);
		flags = KARST_PKT_VLAN;
	}

	if (karst_likely(type == ETHERTYPE_IP4)) {
		drop = parse_ip4(d + off, len - off, &l3);
	} else if (karst_likely(type == ETHERTYPE_IP6)) {
		drop = parse_ip6(d + off, len - off, &l3);
		flags |= KARST_PKT_IP6;
	} else {
		return KARST_DROP_ETHERTYPE;
	}
	if (karst_unlikely(drop != KARST_DROP_NONE))
		return drop;
	off += l3.hdr_len;
	drop = parse_udp(d + off, l3.pay_len, flags & KARST_PKT_IP6);
	if (karst_unlikely(drop != KARST_DROP_NONE))
		return drop;

	p->len = (uint16_t)(off + l3.pay_len);
	p->bth_off = (uint8_t)(off + KARST_UDP_LEN);
	p->flags = (uint8_t)(flags | (l3.ce ? KARST_PKT_CE : 0));
	p->qp = NULL;
	return parse_bth(p, d + off + KARST_UDP_LEN, l3.pay_len - KARST_UDP_LEN);
}

karst_always_inline enum karst_drop
parse(struct karst_pkt *p)
{
	const uint8_t *d = p->data;
	uint32_t udp_len = plain_udp_len(d, p->len);

	if (karst_unlikely(udp_len == 0))
		return parse_any(p);
	p->len = (uint16_t)(PLAIN_UDP + udp_len);
	p->bth_off = PLAIN_BTH;
	p->flags = (d[KARST_ETH_LEN + 1] & ECN_MASK) == ECN_CE ? KARST_PKT_CE : 0;
	p->qp = NULL;
	return parse_bth(p, d + PLAIN_BTH, udp_len - KARST_UDP_LEN);
}

enum karst_drop
karst_parse(struct karst_pkt *p)
{
	enum karst_drop drop = parse(p);

	p->drop = (uint8_t)drop;
	return drop;
}

/* The headers of the longest opcode begin in the first and end in the second line. */
static inline void
prefetch_headers(const struct karst_pkt *p)
{
	__builtin_prefetch(p->data);
	__builtin_prefetch(p->data + KARST_CACHE_LINE);
}

unsigned int
karst_parse_burst(struct karst_pkt *const *pkts, unsigned int n)
{
	unsigned int i, good = 0;

	for (i = 0; i < n && i < PREFETCH_AHEAD; i++)
		prefetch_headers(pkts[i]);
	for (i = 0; i < n; i++) {
		enum karst_drop drop;

		if (i + PREFETCH_AHEAD < n)
			prefetch_headers(pkts[i + PREFETCH_AHEAD]);
		drop = parse(pkts[i]);
		pkts[i]->drop = (uint8_t)drop;
		good += drop == KARST_DROP_NONE;
	}
	return good;
}
