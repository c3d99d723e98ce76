/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "show.h"

#include <arpa/inet.h>

#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_psn.h"

static void
show_eth(struct sink *s, const struct karst_frame *f)
{
	char src[18], dst[18];

	snprintf(src, sizeof(src), "%02x:%02x:%02x:%02x:%02x:%02x", f->smac[0], f->smac[1],
		f->smac[2], f->smac[3], f->smac[4], f->smac[5]);
	snprintf(dst, sizeof(dst), "%02x:%02x:%02x:%02x:%02x:%02x", f->dmac[0], f->dmac[1],
		f->dmac[2], f->dmac[3], f->dmac[4], f->dmac[5]);
	sink_group(s, "eth", NULL);
	sink_pair(s, src, dst);
	if (f->vlan) {
		sink_dec(s, "vlan", f->vlan_tci & 0xfff);
		sink_dec(s, "pcp", f->vlan_tci >> 13);
		sink_flag(s, "dei", f->vlan_tci & 0x1000);
	}
}

static void
show_ip(struct sink *s, const struct karst_frame *f)
{
	char src[INET6_ADDRSTRLEN], dst[INET6_ADDRSTRLEN];
	int family = f->ip6 ? AF_INET6 : AF_INET;

	inet_ntop(family, f->saddr, src, sizeof(src));
	inet_ntop(family, f->daddr, dst, sizeof(dst));
	sink_group(s, "ip", f->ip6 ? "ip6" : "ip4");
	sink_pair(s, src, dst);
	if (s->json)
		sink_dec(s, "version", f->ip6 ? 6 : 4);
	sink_hex(s, f->ip6 ? "tclass" : "tos", f->tclass, 2);
	sink_dec(s, f->ip6 ? "hops" : "ttl", f->ttl);
	sink_flag(s, "ce", (f->tclass & 3) == 3);
	if (f->ip6) {
		sink_hex(s, "flow", f->flow_label, 5);
	} else {
		sink_hex(s, "id", f->ip_id, 4);
		sink_flag(s, "df", f->ip_frag & 0x4000);
	}
}

static void
show_udp(struct sink *s, const struct karst_frame *f)
{
	sink_group(s, "udp", NULL);
	sink_dec(s, "sport", f->sport);
	sink_dec(s, "dport", f->dport);
	sink_hex(s, "checksum", f->udp_checksum, 4);
}

static void
show_lrh(struct sink *s, const struct karst_native *n)
{
	sink_group(s, "lrh", NULL);
	sink_dec(s, "slid", n->slid);
	sink_dec(s, "dlid", n->dlid);
	sink_dec(s, "vl", n->vl);
	sink_dec(s, "sl", n->sl);
	sink_dec(s, "lnh", n->lnh);
	sink_dec(s, "words", n->pkt_len);
}

static void
show_grh(struct sink *s, const struct karst_native *n)
{
	char src[INET6_ADDRSTRLEN], dst[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, n->sgid, src, sizeof(src));
	inet_ntop(AF_INET6, n->dgid, dst, sizeof(dst));
	sink_group(s, "grh", NULL);
	sink_pair(s, src, dst);
	sink_hex(s, "tclass", n->tclass, 2);
	sink_dec(s, "hops", n->hop_limit);
	sink_hex(s, "flow", n->flow_label, 5);
	sink_dec(s, "len", n->grh_len);
}

static void
show_bth(struct sink *s, const struct karst_ib_hdrs *ib)
{
	sink_group(s, "bth", karst_opcode_name(ib->opcode));
	if (s->json) {
		sink_dec(s, "opcode", ib->opcode);
		sink_str(s, "name", karst_opcode_symbol(ib->opcode));
		sink_dec(s, "pad", -ib->pay_len & 3);
		sink_dec(s, "tver", ib->tver);
	}
	sink_hex(s, "qp", ib->dqpn, 6);
	sink_hex(s, "psn", ib->psn, 6);
	sink_flag(s, "ackreq", ib->ackreq);
	sink_flag(s, "se", ib->se);
	sink_flag(s, "migreq", ib->migreq);
	sink_flag(s, "fecn", ib->fecn);
	sink_flag(s, "becn", ib->becn);
	sink_hex(s, "pkey", ib->pkey, 4);
	if (ib->resv6 != 0 || ib->resv7 != 0) {
		sink_hex(s, "resv6", ib->resv6, 2);
		sink_hex(s, "resv7", ib->resv7, 2);
	}
}

void
show_syndrome(uint8_t syndrome, char *text, size_t room)
{
	static const char *const naks[] = {"PSN_SEQ", "INV_REQ", "REM_ACCESS", "REM_OP", "INV_RD"};
	unsigned int value = syndrome & KARST_AETH_VALUE_MASK;

	switch (syndrome & KARST_AETH_TYPE_MASK) {
	case KARST_AETH_ACK:
		snprintf(text, room, "ACK");
		return;
	case KARST_AETH_RNR:
		snprintf(text, room, "RNR_NAK(timer=%u)", value);
		return;
	case KARST_AETH_NAK:
		if (value < KARST_DIM(naks))
			snprintf(text, room, "NAK(%s)", naks[value]);
		else
			snprintf(text, room, "NAK(%u)", value);
		return;
	default:
		snprintf(text, room, "reserved(0x%02x)", syndrome);
	}
}

static void
show_aeth(struct sink *s, uint32_t aeth)
{
	uint8_t syndrome = karst_aeth_syndrome(aeth);
	char text[32];

	show_syndrome(syndrome, text, sizeof(text));
	sink_group(s, "aeth", NULL);
	sink_word(s, "is", text);
	sink_hex(s, "syndrome", syndrome, 2);
	if ((syndrome & KARST_AETH_TYPE_MASK) == KARST_AETH_ACK)
		sink_dec(s, "credits", syndrome & KARST_AETH_VALUE_MASK);
	sink_dec(s, "msn", karst_aeth_msn(aeth));
}

/* X7: show the PSNs that the responder holds ahead of the one that it expects, as ranges. */
static void
show_sack(struct sink *s, const struct karst_ib_hdrs *ib)
{
	char text[256] = "";
	uint32_t n = ib->pay_len * 8u, held = 0, i, from;
	size_t at = 0;

	for (i = 1; i < n; i++) {
		if ((ib->pay[i / 8] >> i % 8 & 1) == 0)
			continue;
		for (from = i; i < n && (ib->pay[i / 8] >> i % 8 & 1) != 0; i++)
			held++;
		if (at + 20 > sizeof(text))
			continue;
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s0x%06x", at != 0 ? "," : "",
			karst_psn_add(ib->psn, from + 1));
		if (i - from > 1)
			at += (size_t)snprintf(
				text + at, sizeof(text) - at, "+%u", (unsigned int)(i - from - 1));
	}
	sink_group(s, "sack", NULL);
	sink_flag(s, "full", n != 0 && (ib->pay[0] & 1) != 0);
	sink_dec(s, "held", held);
	sink_str(s, "psns", text);
}

static void
show_feth(struct sink *s, uint32_t feth)
{
	sink_group(s, "feth", NULL);
	sink_dec(s, "placement", feth & 15);
	sink_dec(s, "selectivity", feth >> 4 & 3);
}

/* Show the headers after the BTH in the order of the wire (W5). */
static void
show_extended(struct sink *s, const struct karst_ib_hdrs *ib)
{
	uint32_t op = karst_opcode_flags(ib->opcode);

	if (op & KARST_OPF_RDETH) {
		sink_group(s, "rdeth", NULL);
		sink_hex(s, "eec", ib->eec, 6);
	}
	if (op & KARST_OPF_DETH) {
		sink_group(s, "deth", NULL);
		sink_hex(s, "qkey", ib->qkey, 8);
		sink_hex(s, "srcqp", ib->src_qpn, 6);
	}
	if (op & KARST_OPF_XRCETH) {
		sink_group(s, "xrceth", NULL);
		sink_hex(s, "srq", ib->srqn, 6);
	}
	if (op & KARST_OPF_FETH)
		show_feth(s, ib->feth);
	if (op & (KARST_OPF_RETH | KARST_OPF_ATOMICETH)) {
		sink_group(s, op & KARST_OPF_RETH ? "reth" : "atomiceth", NULL);
		sink_hex(s, "va", ib->va, 16);
		sink_hex(s, "rkey", ib->rkey, 8);
	}
	if (op & KARST_OPF_RETH)
		sink_dec(s, "len", ib->dma_len);
	if (op & KARST_OPF_ATOMICETH) {
		sink_hex(s, "swap_add", ib->swap_add, 16);
		sink_hex(s, "compare", ib->compare, 16);
	}
	if (op & KARST_OPF_AETH)
		show_aeth(s, ib->aeth);
	if (ib->opcode == KARST_SACK)
		show_sack(s, ib);
	if (op & KARST_OPF_ATOMICACK) {
		sink_group(s, "atomicacketh", NULL);
		sink_hex(s, "orig", ib->orig, 16);
	}
	if (op & KARST_OPF_IMM) {
		sink_group(s, "immdt", NULL);
		sink_hex(s, "imm", ib->imm, 8);
	}
	if (op & KARST_OPF_IETH) {
		sink_group(s, "ieth", NULL);
		sink_hex(s, "rkey", ib->inv_rkey, 8);
	}
}

static void
show_crc(struct sink *s, const char *name, enum judge_crc is, uint32_t v, uint32_t want, int digits)
{
	static const char *const text[] = {
		[JUDGE_CRC_OK] = "ok", [JUDGE_CRC_BAD] = "BAD", [JUDGE_CRC_QUIRK] = "quirk"};

	if (is == JUDGE_CRC_NONE)
		return;
	sink_group(s, name, NULL);
	sink_hexword(s, "value", v, digits);
	sink_word(s, "check", text[is]);
	if (is == JUDGE_CRC_BAD)
		sink_hex(s, "want", want, digits);
}

static void
show_trailer(struct sink *s, const struct judge *j)
{
	sink_group(s, "payload", NULL);
	sink_dec(s, "len", j->ib->pay_len);
	sink_dec(s, "pad", -j->ib->pay_len & 3);
	show_crc(s, "icrc", j->icrc_is, j->icrc, j->icrc_want, 8);
	show_crc(s, "vcrc", j->vcrc_is, j->vcrc, j->vcrc_want, 4);
	if (j->rebuild == JUDGE_REBUILD_NONE)
		return;
	sink_group(s, "rebuilt", NULL);
	sink_word(s, "result", j->rebuild == JUDGE_REBUILD_SAME ? "same" : "DIFFERENT");
	if (j->rebuild == JUDGE_REBUILD_DIFFERENT)
		sink_dec(s, "byte", j->rebuild_off);
}

/* Show a frame that has no InfiniBand fields. */
static void
show_refused(struct sink *s, const struct capture_frame *f, const struct judge *j)
{
	char text[160];

	if (f->link == CAPTURE_ETHERNET)
		judge_describe_other(f->data, f->len, text, sizeof(text));
	else
		snprintf(text, sizeof(text), "%s",
			f->known ? "InfiniBand" : "ERF record of another kind");
	if (j->kind == JUDGE_OTHER) {
		sink_group(s, "other", "-");
		sink_word(s, "what", text);
		sink_dec(s, "len", f->wire_len);
		return;
	}
	sink_group(s, "malformed", "MALFORMED");
	sink_word(s, "what", text);
	sink_str(s, "reason", karst_drop_name(j->drop));
	sink_word(s, "meaning", karst_drop_help(j->drop));
	if (f->len < f->wire_len)
		sink_dec(s, "captured", f->len);
	sink_dec(s, "len", f->wire_len);
}

void
show_frame(struct sink *s, const struct capture_frame *f, const struct judge *j)
{
	sink_frame_begin(s, f->number, f->time_ns);
	switch (j->kind) {
	case JUDGE_ROCE:
		show_eth(s, &j->roce);
		show_ip(s, &j->roce);
		show_udp(s, &j->roce);
		break;
	case JUDGE_NATIVE:
		show_lrh(s, &j->native);
		if (j->native.lnh == KARST_LNH_GLOBAL)
			show_grh(s, &j->native);
		break;
	default:
		show_refused(s, f, j);
		sink_frame_end(s);
		return;
	}
	show_bth(s, j->ib);
	show_extended(s, j->ib);
	show_trailer(s, j);
	sink_frame_end(s);
}
