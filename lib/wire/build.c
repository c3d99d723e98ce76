/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Builds frames from plain fields; the inverse of decode.c. */
#include "karst_build.h"

#include <errno.h>

#include "karst_hdr.h"
#include "karst_opcode.h"

#define IP_MAX 65535u

static unsigned int
pad_of(const struct karst_ib_hdrs *ib)
{
	return -ib->pay_len & 3;
}

/* Length from the BTH to the last pad byte, or -EINVAL. */
static int
ib_len(const struct karst_ib_hdrs *ib)
{
	const struct karst_opcode_info *op = &karst_opcode_table[ib->opcode];

	if (op->flags == 0)
		return -EINVAL;
	if (ib->pay_len != 0 && !(op->flags & (KARST_OPF_PAYLOAD | KARST_OPF_CNP)))
		return -EINVAL;
	return (int)(op->hdr_len + ib->pay_len + pad_of(ib));
}

static void
put_bth(uint8_t *p, const struct karst_ib_hdrs *ib)
{
	uint8_t flags = (uint8_t)((ib->se ? KARST_BTH_SE : 0) |
		(ib->migreq ? KARST_BTH_MIGREQ : 0) | (ib->tver & 15));

	karst_bth_init(p, ib->opcode, flags, pad_of(ib), ib->pkey, ib->dqpn, ib->ackreq,
		ib->psn & 0xffffff);
	p[4] = (uint8_t)((ib->fecn ? KARST_BTH_FECN : 0) | (ib->becn ? KARST_BTH_BECN : 0) |
		(ib->resv6 & 0x3f));
	p[8] |= ib->resv7 & 0x7f;
}

/* Writes the headers after the BTH, in the order of W5.  @return where the payload starts. */
static uint8_t *
put_extended(uint8_t *p, uint32_t op, const struct karst_ib_hdrs *ib)
{
	if (op & KARST_OPF_RDETH) {
		karst_put_be32(p, ib->eec & 0xffffff);
		p += KARST_RDETH_LEN;
	}
	if (op & KARST_OPF_DETH) {
		karst_deth_set(p, ib->qkey, ib->src_qpn);
		p += KARST_DETH_LEN;
	}
	if (op & KARST_OPF_XRCETH) {
		karst_put_be32(p, ib->srqn & 0xffffff);
		p += KARST_XRCETH_LEN;
	}
	if (op & KARST_OPF_FETH) {
		karst_put_be32(p, ib->feth);
		p += KARST_FETH_LEN;
	}
	if (op & KARST_OPF_RETH) {
		karst_reth_set(p, ib->va, ib->rkey, ib->dma_len);
		p += KARST_RETH_LEN;
	}
	if (op & KARST_OPF_ATOMICETH) {
		karst_atomiceth_set(p, ib->va, ib->rkey, ib->swap_add, ib->compare);
		p += KARST_ATOMICETH_LEN;
	}
	if (op & KARST_OPF_AETH) {
		karst_put_be32(p, ib->aeth);
		p += KARST_AETH_LEN;
	}
	if (op & KARST_OPF_ATOMICACK) {
		karst_put_be64(p, ib->orig);
		p += KARST_ATOMICACK_LEN;
	}
	if (op & KARST_OPF_IMM) {
		karst_put_be32(p, ib->imm);
		p += KARST_IMM_LEN;
	}
	if (op & KARST_OPF_IETH) {
		karst_put_be32(p, ib->inv_rkey);
		p += KARST_IETH_LEN;
	}
	return p;
}

int
karst_build_ib(uint8_t *buf, size_t room, const struct karst_ib_hdrs *ib)
{
	int len = ib_len(ib);
	uint8_t *p;

	if (len < 0)
		return len;
	if ((size_t)len > room)
		return -ENOSPC;
	put_bth(buf, ib);
	p = put_extended(buf + KARST_BTH_LEN, karst_opcode_flags(ib->opcode), ib);
	assert(p == buf + karst_opcode_table[ib->opcode].hdr_len);
	if (ib->pay != NULL)
		memcpy(p, ib->pay, ib->pay_len);
	else
		memset(p, 0, ib->pay_len);
	memset(p + ib->pay_len, 0, pad_of(ib));
	return len;
}

/* Sum of @len bytes as big-endian 16-bit words, an odd last byte padded with 0. */
static uint32_t
build_sum16(uint32_t sum, const uint8_t *p, size_t len)
{
	for (; len >= 2; len -= 2, p += 2)
		sum += karst_get_be16(p);
	if (len != 0)
		sum += (uint32_t)*p << 8;
	return sum;
}

static uint16_t
fold16(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)(sum + (sum >> 16));
}

static uint8_t *
put_eth(uint8_t *p, const struct karst_frame *f)
{
	memcpy(p, f->dmac, sizeof(f->dmac));
	memcpy(p + 6, f->smac, sizeof(f->smac));
	p += 12;
	if (f->vlan) {
		karst_put_be16(p, 0x8100);
		karst_put_be16(p + 2, f->vlan_tci);
		p += KARST_VLAN_LEN;
	}
	karst_put_be16(p, f->ip6 ? 0x86dd : 0x0800);
	return p + 2;
}

/* @len bytes of UDP follow. */
static uint8_t *
build_ip4(uint8_t *p, const struct karst_frame *f, unsigned int len)
{
	p[0] = 0x45;
	p[1] = f->tclass;
	karst_put_be16(p + 2, (uint16_t)(KARST_IP4_LEN + len));
	karst_put_be16(p + 4, f->ip_id);
	karst_put_be16(p + 6, f->ip_frag);
	p[8] = f->ttl;
	p[9] = 17;
	karst_put_be16(p + 10, 0);
	memcpy(p + 12, f->saddr, 4);
	memcpy(p + 16, f->daddr, 4);
	karst_put_be16(p + 10, (uint16_t)~fold16(build_sum16(0, p, KARST_IP4_LEN)));
	return p + KARST_IP4_LEN;
}

static uint8_t *
build_ip6(uint8_t *p, const struct karst_frame *f, unsigned int len)
{
	karst_put_be32(p, 6u << 28 | (uint32_t)f->tclass << 20 | (f->flow_label & 0xfffff));
	karst_put_be16(p + 4, (uint16_t)len);
	p[6] = 17;
	p[7] = f->ttl;
	memcpy(p + 8, f->saddr, 16);
	memcpy(p + 24, f->daddr, 16);
	return p + KARST_IP6_LEN;
}

int
karst_build_frame(uint8_t *buf, size_t room, const struct karst_frame *f)
{
	unsigned int front = KARST_ETH_LEN + (f->vlan ? KARST_VLAN_LEN : 0);
	unsigned int l3_len = f->ip6 ? KARST_IP6_LEN : KARST_IP4_LEN, udp_len, len;
	int ib = ib_len(&f->ib);
	uint8_t *p;

	if (ib < 0)
		return ib;
	udp_len = KARST_UDP_LEN + (unsigned int)ib + KARST_ICRC_LEN;
	len = front + l3_len + udp_len;
	if (len > IP_MAX) /* struct karst_pkt counts the whole frame in 16 bits */
		return -EINVAL;
	if (len > room)
		return -ENOSPC;
	p = put_eth(buf, f);
	p = f->ip6 ? build_ip6(p, f, udp_len) : build_ip4(p, f, udp_len);
	karst_put_be16(p, f->sport);
	karst_put_be16(p + 2, f->dport);
	karst_put_be16(p + 4, (uint16_t)udp_len);
	karst_put_be16(p + 6, f->udp_checksum);
	p += KARST_UDP_LEN;
	ib = karst_build_ib(p, room - (size_t)(p - buf), &f->ib);
	assert(ib > 0);
	memset(p + ib, 0, KARST_ICRC_LEN);
	return (int)len;
}

int
karst_build_native(uint8_t *buf, size_t room, const struct karst_native *n)
{
	bool grh = n->lnh == KARST_LNH_GLOBAL;
	unsigned int front = KARST_LRH_LEN + (grh ? KARST_GRH_LEN : 0), len;
	int ib = ib_len(&n->ib);
	uint8_t *p = buf;

	if (ib < 0)
		return ib;
	len = front + (unsigned int)ib + KARST_ICRC_LEN;
	if ((n->lnh != KARST_LNH_LOCAL && !grh) || len / 4 > 0x7ff)
		return -EINVAL;
	if (len + KARST_VCRC_LEN > room)
		return -ENOSPC;
	p[0] = (uint8_t)(n->vl << 4 | (n->lver & 15));
	p[1] = (uint8_t)(n->sl << 4 | (n->lnh & 3));
	karst_put_be16(p + 2, n->dlid);
	karst_put_be16(p + 4, (uint16_t)(len / 4));
	karst_put_be16(p + 6, n->slid);
	p += KARST_LRH_LEN;
	if (grh) {
		karst_put_be32(p,
			(uint32_t)n->ip_ver << 28 | (uint32_t)n->tclass << 20 |
				(n->flow_label & 0xfffff));
		karst_put_be16(p + 4, (uint16_t)(len - front));
		p[6] = n->next_hdr;
		p[7] = n->hop_limit;
		memcpy(p + 8, n->sgid, 16);
		memcpy(p + 24, n->dgid, 16);
		p += KARST_GRH_LEN;
	}
	ib = karst_build_ib(p, room - front, &n->ib);
	assert(ib > 0);
	memset(p + ib, 0, KARST_ICRC_LEN + KARST_VCRC_LEN);
	return (int)(len + KARST_VCRC_LEN);
}

void
karst_build_udp_checksum(uint8_t *udp, size_t len, bool ip6)
{
	size_t addr_len = ip6 ? 32 : 8;
	uint32_t sum = 17 + (uint32_t)len;
	uint16_t checksum;

	karst_put_be16(udp + 6, 0);
	sum = build_sum16(sum, udp - addr_len, addr_len);
	checksum = (uint16_t)~fold16(build_sum16(sum, udp, len));
	karst_put_be16(udp + 6, checksum != 0 ? checksum : 0xffff);
}
