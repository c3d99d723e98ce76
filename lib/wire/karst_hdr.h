/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Accessors of wire fields (W2, W3).  No other code computes offsets inside a header.  Every
 * pointer may be unaligned; values are in host order.
 */
#ifndef KARST_HDR_H
#define KARST_HDR_H

#include "karst_base.h"

#define KARST_ROCE_UDP_PORT 4791
#define KARST_ETH_LEN       14
#define KARST_VLAN_LEN      4
#define KARST_IP4_LEN       20
#define KARST_IP6_LEN       40
#define KARST_UDP_LEN       8
#define KARST_BTH_LEN       12
#define KARST_RDETH_LEN     4
#define KARST_DETH_LEN      8
#define KARST_XRCETH_LEN    4
#define KARST_FETH_LEN      4
#define KARST_RETH_LEN      16
#define KARST_ATOMICETH_LEN 28
#define KARST_AETH_LEN      4
#define KARST_ATOMICACK_LEN 8
#define KARST_IMM_LEN       4
#define KARST_IETH_LEN      4
#define KARST_ICRC_LEN      4
#define KARST_GRH_LEN       40

static inline uint16_t
karst_get_be16(const void *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap16(v);
}

static inline uint32_t
karst_get_be32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap32(v);
}

static inline uint64_t
karst_get_be64(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap64(v);
}

static inline void
karst_put_be16(void *p, uint16_t v)
{
	v = __builtin_bswap16(v);
	memcpy(p, &v, sizeof(v));
}

static inline void
karst_put_be32(void *p, uint32_t v)
{
	v = __builtin_bswap32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void
karst_put_be64(void *p, uint64_t v)
{
	v = __builtin_bswap64(v);
	memcpy(p, &v, sizeof(v));
}

/* --- IPv4, without options, and IPv6; addresses in wire order --- */

/* The low two bits of ToS or traffic class. */
#define KARST_ECN_MASK 3u
#define KARST_ECN_ECT0 2u

static inline uint8_t
karst_ip4_tos(const uint8_t *ip)
{
	return ip[1];
}

static inline uint16_t
karst_ip4_id(const uint8_t *ip)
{
	return karst_get_be16(ip + 4);
}

/** Flags and fragment offset. */
static inline uint16_t
karst_ip4_frag(const uint8_t *ip)
{
	return karst_get_be16(ip + 6);
}

static inline uint8_t
karst_ip4_ttl(const uint8_t *ip)
{
	return ip[8];
}

/** 4 bytes; those of the destination follow. */
static inline const uint8_t *
karst_ip4_src(const uint8_t *ip)
{
	return ip + 12;
}

static inline const uint8_t *
karst_ip4_dst(const uint8_t *ip)
{
	return ip + 16;
}

static inline uint8_t
karst_ip6_tclass(const uint8_t *ip)
{
	return (uint8_t)(karst_get_be16(ip) >> 4);
}

static inline uint32_t
karst_ip6_flow_label(const uint8_t *ip)
{
	return karst_get_be32(ip) & 0xfffff;
}

static inline uint8_t
karst_ip6_hop_limit(const uint8_t *ip)
{
	return ip[7];
}

/** 16 bytes */
static inline const uint8_t *
karst_ip6_src(const uint8_t *ip)
{
	return ip + 8;
}

static inline const uint8_t *
karst_ip6_dst(const uint8_t *ip)
{
	return ip + 24;
}

/* --- UDP --- */

static inline uint16_t
karst_udp_sport(const uint8_t *udp)
{
	return karst_get_be16(udp);
}

static inline uint16_t
karst_udp_dport(const uint8_t *udp)
{
	return karst_get_be16(udp + 2);
}

static inline uint16_t
karst_udp_checksum(const uint8_t *udp)
{
	return karst_get_be16(udp + 6);
}

/* --- BTH: 12 bytes (W2) --- */

#define KARST_BTH_SE     0x80 /* byte 1 */
#define KARST_BTH_MIGREQ 0x40
#define KARST_BTH_ACKREQ 0x80 /* byte 8 */
#define KARST_BTH_FECN   0x80 /* byte 4 */
#define KARST_BTH_BECN   0x40

static inline uint8_t
karst_bth_opcode(const uint8_t *bth)
{
	return bth[0];
}

/** SE, MigReq, PadCnt, TVer, as in byte 1. */
static inline uint8_t
karst_bth_flags(const uint8_t *bth)
{
	return bth[1];
}

static inline unsigned int
karst_bth_pad(const uint8_t *bth)
{
	return bth[1] >> 4 & 3;
}

static inline unsigned int
karst_bth_tver(const uint8_t *bth)
{
	return bth[1] & 15;
}

static inline uint16_t
karst_bth_pkey(const uint8_t *bth)
{
	return karst_get_be16(bth + 2);
}

/** Destination QP of packets to a group (U4). */
#define KARST_QPN_MULTICAST 0xffffffu

static inline uint32_t
karst_bth_dqpn(const uint8_t *bth)
{
	return karst_get_be32(bth + 4) & 0xffffff;
}

static inline bool
karst_bth_becn(const uint8_t *bth)
{
	return (bth[4] & KARST_BTH_BECN) != 0;
}

static inline bool
karst_bth_fecn(const uint8_t *bth)
{
	return (bth[4] & KARST_BTH_FECN) != 0;
}

static inline bool
karst_bth_ackreq(const uint8_t *bth)
{
	return (bth[8] & KARST_BTH_ACKREQ) != 0;
}

static inline uint32_t
karst_bth_psn(const uint8_t *bth)
{
	return karst_get_be32(bth + 8) & 0xffffff;
}

/** Writes the fields that differ from packet to packet; P_Key and DestQP are unchanged. */
static inline void
karst_bth_set(
	uint8_t *bth, uint8_t opcode, uint8_t flags, unsigned int pad, bool ackreq, uint32_t psn)
{
	bth[0] = opcode;
	bth[1] = (uint8_t)(flags | pad << 4);
	karst_put_be32(bth + 8, (uint32_t)ackreq << 31 | psn);
}

/** Writes all twelve bytes; FECN, BECN and reserved bits are 0. */
static inline void
karst_bth_init(uint8_t *bth, uint8_t opcode, uint8_t flags, unsigned int pad, uint16_t pkey,
	uint32_t dqpn, bool ackreq, uint32_t psn)
{
	karst_put_be16(bth + 2, pkey);
	karst_put_be32(bth + 4, dqpn & 0xffffff);
	karst_bth_set(bth, opcode, flags, pad, ackreq, psn);
}

/* --- extended headers (W3) --- */

static inline void
karst_reth_set(uint8_t *p, uint64_t va, uint32_t rkey, uint32_t dma_len)
{
	karst_put_be64(p, va);
	karst_put_be32(p + 8, rkey);
	karst_put_be32(p + 12, dma_len);
}

static inline uint64_t
karst_reth_va(const uint8_t *p)
{
	return karst_get_be64(p);
}

static inline uint32_t
karst_reth_rkey(const uint8_t *p)
{
	return karst_get_be32(p + 8);
}

static inline uint32_t
karst_reth_dma_len(const uint8_t *p)
{
	return karst_get_be32(p + 12);
}

/* --- FETH (W3): placement type in bits 0 to 3, selectivity level in bits 4 and 5 --- */

static inline void
karst_feth_set(uint8_t *p, uint8_t type, uint8_t level)
{
	karst_put_be32(p, (uint32_t)(level & 3) << 4 | (type & 15));
}

static inline uint8_t
karst_feth_type(const uint8_t *p)
{
	return p[3] & 15;
}

static inline uint8_t
karst_feth_level(const uint8_t *p)
{
	return p[3] >> 4 & 3;
}

static inline void
karst_atomiceth_set(uint8_t *p, uint64_t va, uint32_t rkey, uint64_t swap_add, uint64_t compare)
{
	karst_put_be64(p, va);
	karst_put_be32(p + 8, rkey);
	karst_put_be64(p + 12, swap_add);
	karst_put_be64(p + 20, compare);
}

static inline uint64_t
karst_atomiceth_swap_add(const uint8_t *p)
{
	return karst_get_be64(p + 12);
}

static inline uint64_t
karst_atomiceth_compare(const uint8_t *p)
{
	return karst_get_be64(p + 20);
}

static inline void
karst_deth_set(uint8_t *p, uint32_t qkey, uint32_t src_qpn)
{
	karst_put_be32(p, qkey);
	karst_put_be32(p + 4, src_qpn & 0xffffff);
}

static inline void
karst_xrceth_set(uint8_t *p, uint32_t srqn)
{
	karst_put_be32(p, srqn & 0xffffff);
}

/* --- AETH (W3, Q9, R10): syndrome and MSN --- */

#define KARST_AETH_ACK              0x00 /* | credit code */
#define KARST_AETH_RNR              0x20 /* | timer code */
#define KARST_AETH_NAK              0x60 /* | enum karst_nak */
#define KARST_AETH_TYPE_MASK        0xe0
#define KARST_AETH_VALUE_MASK       0x1f
#define KARST_AETH_CREDIT_UNLIMITED 0x1f

enum karst_nak {
	KARST_NAK_PSN_SEQ = 0,
	KARST_NAK_INV_REQ = 1,
	KARST_NAK_REM_ACCESS = 2,
	KARST_NAK_REM_OP = 3,
	KARST_NAK_INV_RD = 4,
};

static inline void
karst_aeth_set(uint8_t *p, uint8_t syndrome, uint32_t msn)
{
	karst_put_be32(p, (uint32_t)syndrome << 24 | (msn & 0xffffff));
}

static inline uint8_t
karst_aeth_syndrome(uint32_t aeth)
{
	return (uint8_t)(aeth >> 24);
}

static inline uint32_t
karst_aeth_msn(uint32_t aeth)
{
	return aeth & 0xffffff;
}

#endif /* KARST_HDR_H */
