/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "memo.h"

#include "karst_counters.h"
#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_opcode.h"

#define IP4 KARST_ETH_LEN
#define UDP (IP4 + KARST_IP4_LEN)
#define BTH (UDP + KARST_UDP_LEN)
#define END (BTH + KARST_BTH_LEN)

static_assert(BTH == FWD_MEMO_BTH && END == FWD_MEMO_END, "as the header has it");
static_assert(FWD_MEMO_AT_0 == KARST_ETH_LEN - 2, "the EtherType");
static_assert(FWD_MEMO_AT_0 + 16 == FWD_MEMO_AT_1 && FWD_MEMO_AT_2 <= FWD_MEMO_AT_1 + 16 &&
		FWD_MEMO_AT_2 + 16 == BTH + 8,
	"no gap");

/*
 * Headers that identify a flow, and headers after which the others are not where fwd_memo_keep()
 * expects them.
 */
#define NOT_KEPT (KARST_OPF_RDETH | KARST_OPF_DETH | KARST_OPF_XRCETH | KARST_OPF_FETH)

static_assert(KARST_IMM_LEN == KARST_IETH_LEN, "either is the last header");
static_assert(FWD_MEMO_AT_0 + 6 == IP4 + 4 && FWD_MEMO_AT_0 + 12 == IP4 + 10,
	"identification and checksum");

static inline uint32_t
folded(uint32_t sum)
{
	sum = (sum & UINT16_MAX) + (sum >> 16);
	return (sum & UINT16_MAX) + (sum >> 16);
}

void
fwd_memo_init(struct fwd_memo *m)
{
	uint32_t i;

	memset(m, 0, sizeof(*m));
	for (i = 0; i < FWD_MEMOS; i++) /* masked bytes are never all ones */
		memset(m->entry[i].bytes, 0xff, sizeof(m->entry[i].bytes));
}

void
fwd_memo_parse(const struct fwd_memo *m, const struct fwd_memo_entry *e, struct karst_pkt *p)
{
	uint8_t *d = p->data, engine_port = p->port;

	*p = m->pkt[e - m->entry];
	p->data = d;
	p->port = engine_port;
	p->psn = karst_bth_psn(d + BTH);
	if (karst_bth_ackreq(d + BTH))
		p->flags |= KARST_PKT_ACKREQ;
	if (e->extended) {
		p->va = karst_reth_va(d + e->reth);
		p->rkey = karst_reth_rkey(d + e->reth);
		p->dma_len = karst_reth_dma_len(d + e->reth);
		p->aeth = karst_get_be32(d + e->aeth);
		p->imm = karst_get_be32(d + e->imm);
	}
}

static enum fwd_memo_kind
kind_of(const struct karst_pkt *p, uint32_t op)
{
	if (p->len < KARST_ICRC_KNOWN_LEN_MIN)
		return FWD_MEMO_ANY;
	if (op & KARST_OPF_RESPONSE)
		return (p->opcode & KARST_OPERATION_MASK) == KARST_OPERATION_ACK &&
				op & KARST_OPF_AETH
			? FWD_MEMO_ACK
			: FWD_MEMO_ANY;
	return op & (KARST_OPF_READ | KARST_OPF_CNP) ? FWD_MEMO_ANY : FWD_MEMO_REQUEST;
}

void
fwd_memo_keep(struct fwd_memo *m, const struct karst_pkt *p, uint16_t port, struct fwd_flow *flow)
{
	const uint8_t *d = p->data;
	uint32_t i, sum = 0, op = karst_opcode_flags(p->opcode);
	struct fwd_memo_entry *e;

	if (p->flags & (KARST_PKT_IP6 | KARST_PKT_VLAN) || op & NOT_KEPT ||
		fwd_memo_word(d + UDP + 6) != 0)
		return;
	for (i = 0; i < KARST_IP4_LEN; i += 2)
		sum += i == 4 || i == 10 ? 0 : fwd_memo_word(d + IP4 + i);
	sum = folded(sum);
	if (sum == UINT16_MAX)
		return; /* two checksums would be possible for what is left out */
	e = fwd_memo_place(m, d);
	*e = (struct fwd_memo_entry){
		.bytes = {fwd_memo_piece_0(d), fwd_memo_piece_1(d), fwd_memo_piece_2(d)},
		.flow = flow,
		.checksum = (uint16_t)(UINT16_MAX - sum),
		.port = port,
		.len = p->len,
		.kind = (uint8_t)kind_of(p, op),
		.opcode = p->opcode,
		.stamp = p->pay_len >= FWD_STAMP_LEN ? p->pay_off : FWD_MEMO_AT_0,
		.ecn = karst_ip4_tos(d + IP4) & 3,
		.notices = (uint8_t)(karst_bth_fecn(d + BTH) | karst_bth_becn(d + BTH) << 1),
		.extended = p->pay_off != END,
		.reth = op & (KARST_OPF_RETH | KARST_OPF_ATOMICETH) ? END : BTH,
		.aeth = op & KARST_OPF_AETH ? END : BTH,
		.imm = op & (KARST_OPF_IMM | KARST_OPF_IETH) ? p->pay_off - KARST_IMM_LEN : BTH,
	};
	m->pkt[e - m->entry] = *p;
	m->pkt[e - m->entry].flags &= (uint8_t)~KARST_PKT_ACKREQ;
	e->where = UINT32_MAX;
	if (e->kind != FWD_MEMO_ANY) {
		e->where = fwd_memo_where(p->len, port);
		e->sum = karst_icrc_known_sum(d, p->len);
	}
}
