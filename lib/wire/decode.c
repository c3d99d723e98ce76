/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Decodes frames to plain fields; the inverse of build.c.
 *
 * This is for tools.  It decodes header by header, according to the flags of the opcode.  So it
 * also verifies the parser's table of offsets: the unit tests and the fuzzer compare the results.
 */
#include "karst_decode.h"
#include "karst_hdr.h"
#include "karst_opcode.h"

static void
get_bth(const uint8_t *p, struct karst_ib_hdrs *ib)
{
	ib->opcode = karst_bth_opcode(p);
	ib->tver = (uint8_t)karst_bth_tver(p);
	ib->se = (karst_bth_flags(p) & KARST_BTH_SE) != 0;
	ib->migreq = (karst_bth_flags(p) & KARST_BTH_MIGREQ) != 0;
	ib->pkey = karst_bth_pkey(p);
	ib->fecn = karst_bth_fecn(p);
	ib->becn = karst_bth_becn(p);
	ib->resv6 = p[4] & 0x3f;
	ib->dqpn = karst_bth_dqpn(p);
	ib->ackreq = karst_bth_ackreq(p);
	ib->resv7 = p[8] & 0x7f;
	ib->psn = karst_bth_psn(p);
}

/* Reads the headers after the BTH, in the order of W5.  @return where the payload starts. */
static const uint8_t *
get_extended(const uint8_t *p, uint32_t op, struct karst_ib_hdrs *ib)
{
	if (op & KARST_OPF_RDETH) {
		ib->eec = karst_get_be32(p) & 0xffffff;
		p += KARST_RDETH_LEN;
	}
	if (op & KARST_OPF_DETH) {
		ib->qkey = karst_get_be32(p);
		ib->src_qpn = karst_get_be32(p + 4) & 0xffffff;
		p += KARST_DETH_LEN;
	}
	if (op & KARST_OPF_XRCETH) {
		ib->srqn = karst_get_be32(p) & 0xffffff;
		p += KARST_XRCETH_LEN;
	}
	if (op & KARST_OPF_FETH) {
		ib->feth = karst_get_be32(p);
		p += KARST_FETH_LEN;
	}
	if (op & KARST_OPF_RETH) {
		ib->va = karst_reth_va(p);
		ib->rkey = karst_reth_rkey(p);
		ib->dma_len = karst_reth_dma_len(p);
		p += KARST_RETH_LEN;
	}
	if (op & KARST_OPF_ATOMICETH) {
		ib->va = karst_reth_va(p);
		ib->rkey = karst_reth_rkey(p);
		ib->swap_add = karst_atomiceth_swap_add(p);
		ib->compare = karst_atomiceth_compare(p);
		p += KARST_ATOMICETH_LEN;
	}
	if (op & KARST_OPF_AETH) {
		ib->aeth = karst_get_be32(p);
		p += KARST_AETH_LEN;
	}
	if (op & KARST_OPF_ATOMICACK) {
		ib->orig = karst_get_be64(p);
		p += KARST_ATOMICACK_LEN;
	}
	if (op & KARST_OPF_IMM) {
		ib->imm = karst_get_be32(p);
		p += KARST_IMM_LEN;
	}
	if (op & KARST_OPF_IETH) {
		ib->inv_rkey = karst_get_be32(p);
		p += KARST_IETH_LEN;
	}
	return p;
}

enum karst_drop
karst_decode_ib(const uint8_t *bth, size_t len, struct karst_ib_hdrs *ib)
{
	const struct karst_opcode_info *op;
	size_t rest, pad;

	if (len < KARST_BTH_LEN)
		return KARST_DROP_RUNT;
	if (karst_bth_tver(bth) != 0)
		return KARST_DROP_TVER;
	op = &karst_opcode_table[karst_bth_opcode(bth)];
	if (op->flags == 0)
		return KARST_DROP_OPCODE;
	if (len < op->hdr_len)
		return KARST_DROP_RUNT;
	rest = len - op->hdr_len;
	pad = karst_bth_pad(bth);
	if (rest % 4 != 0 || pad > rest)
		return KARST_DROP_PAD;
	if (rest != 0 && !(op->flags & (KARST_OPF_PAYLOAD | KARST_OPF_CNP)))
		return KARST_DROP_PAD;

	memset(ib, 0, sizeof(*ib));
	get_bth(bth, ib);
	ib->pay = get_extended(bth + KARST_BTH_LEN, op->flags, ib);
	assert(ib->pay == bth + op->hdr_len);
	ib->pay_len = (uint16_t)(rest - pad);
	return KARST_DROP_NONE;
}

void
karst_decode_frame(const struct karst_pkt *p, struct karst_frame *f)
{
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p), *bth = p->data + p->bth_off;
	const uint8_t *udp = bth - KARST_UDP_LEN;
	enum karst_drop drop;

	assert(p->drop == KARST_DROP_NONE);
	memset(f, 0, sizeof(*f));
	memcpy(f->dmac, p->data, sizeof(f->dmac));
	memcpy(f->smac, p->data + 6, sizeof(f->smac));
	f->vlan = (p->flags & KARST_PKT_VLAN) != 0;
	if (f->vlan)
		f->vlan_tci = karst_get_be16(p->data + 14);
	f->ip6 = (p->flags & KARST_PKT_IP6) != 0;
	if (f->ip6) {
		f->tclass = karst_ip6_tclass(l3);
		f->flow_label = karst_ip6_flow_label(l3);
		f->ttl = karst_ip6_hop_limit(l3);
		memcpy(f->saddr, karst_ip6_src(l3), 16);
		memcpy(f->daddr, karst_ip6_dst(l3), 16);
	} else {
		f->tclass = karst_ip4_tos(l3);
		f->ip_id = karst_ip4_id(l3);
		f->ip_frag = karst_ip4_frag(l3);
		f->ttl = karst_ip4_ttl(l3);
		memcpy(f->saddr, karst_ip4_src(l3), 4);
		memcpy(f->daddr, karst_ip4_dst(l3), 4);
	}
	f->sport = karst_udp_sport(udp);
	f->dport = karst_udp_dport(udp);
	f->udp_checksum = karst_udp_checksum(udp);
	drop = karst_decode_ib(bth, (size_t)(p->len - p->bth_off - KARST_ICRC_LEN), &f->ib);
	assert(drop == KARST_DROP_NONE);
	(void)drop;
}

/* @len bytes from the GRH to the end of the ICRC. */
static enum karst_drop
get_grh(const uint8_t *p, size_t len, struct karst_native *n)
{
	uint32_t w;

	if (len < KARST_GRH_LEN)
		return KARST_DROP_RUNT;
	w = karst_get_be32(p);
	n->ip_ver = (uint8_t)(w >> 28);
	n->tclass = (uint8_t)(w >> 20);
	n->flow_label = w & 0xfffff;
	n->grh_len = karst_get_be16(p + 4);
	n->next_hdr = p[6];
	n->hop_limit = p[7];
	memcpy(n->sgid, p + 8, 16);
	memcpy(n->dgid, p + 24, 16);
	if (n->ip_ver != 6 || n->next_hdr != KARST_GRH_NXT || n->grh_len != len - KARST_GRH_LEN)
		return KARST_DROP_IP_HEADER;
	return KARST_DROP_NONE;
}

enum karst_drop
karst_decode_native(const uint8_t *lrh, size_t len, struct karst_native *n)
{
	size_t end, off = KARST_LRH_LEN;
	enum karst_drop drop;

	memset(n, 0, sizeof(*n));
	if (len < KARST_LRH_LEN)
		return KARST_DROP_RUNT;
	n->vl = lrh[0] >> 4;
	n->lver = lrh[0] & 15;
	n->sl = lrh[1] >> 4;
	n->lnh = lrh[1] & 3;
	n->dlid = karst_get_be16(lrh + 2);
	n->pkt_len = karst_get_be16(lrh + 4) & 0x7ff;
	n->slid = karst_get_be16(lrh + 6);
	if (n->lver != 0)
		return KARST_DROP_IP_HEADER;
	if (n->lnh != KARST_LNH_LOCAL && n->lnh != KARST_LNH_GLOBAL)
		return KARST_DROP_NOT_ROCE;
	end = n->pkt_len * 4u;
	if (end > len || end < KARST_LRH_LEN + KARST_ICRC_LEN)
		return KARST_DROP_RUNT;
	if (n->lnh == KARST_LNH_GLOBAL) {
		drop = get_grh(lrh + off, end - off, n);
		if (drop != KARST_DROP_NONE)
			return drop;
		off += KARST_GRH_LEN;
	}
	if (end < off + KARST_ICRC_LEN)
		return KARST_DROP_RUNT;
	return karst_decode_ib(lrh + off, end - off - KARST_ICRC_LEN, &n->ib);
}
