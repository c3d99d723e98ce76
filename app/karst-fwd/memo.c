/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "memo.h"

#include "karst_counters.h"
#include "karst_hdr.h"
#include "karst_opcode.h"

#define IP4 KARST_ETH_LEN
#define UDP (IP4 + KARST_IP4_LEN)
#define BTH (UDP + KARST_UDP_LEN)
#define END (BTH + KARST_BTH_LEN)

/* Where the three pieces of 16 bytes begin; the last one overlaps the one before. */
#define AT_0 (KARST_ETH_LEN - 2)
#define AT_1 (AT_0 + 16)
#define AT_2 (END - 16)

static_assert(AT_2 <= AT_1 + 16, "no gap");

/* Headers that a flow depends on, or behind which others are not where fwd_memo_keep() says. */
#define NOT_KEPT (KARST_OPF_RDETH | KARST_OPF_DETH | KARST_OPF_XRCETH | KARST_OPF_FETH)

static_assert(KARST_IMM_LEN == KARST_IETH_LEN, "either is the last header");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "masks are words of bytes");

/* Not compared: the identification and checksum of IP, the acknowledge request and the PSN. */
static const fwd_memo_bytes masks[3] = {
	{UINT64_C(0x0000ffffffffffff), UINT64_C(0xffff0000ffffffff)},
	{UINT64_MAX, UINT64_MAX},
	{UINT64_MAX, UINT64_C(0x0000007fffffffff)},
};

static_assert(AT_0 + 6 == IP4 + 4 && AT_0 + 12 == IP4 + 10, "identification and checksum");
static_assert(AT_2 + 12 == BTH + 8, "acknowledge request, and the PSN behind it");

static inline fwd_memo_bytes
piece(const uint8_t *p, unsigned int i)
{
	fwd_memo_bytes v;

	memcpy(&v, p, sizeof(v));
	return v & masks[i];
}

static inline uint32_t
word(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint32_t
folded(uint32_t sum)
{
	sum = (sum & UINT16_MAX) + (sum >> 16);
	return (sum & UINT16_MAX) + (sum >> 16);
}

static inline uint32_t
place(const uint8_t *d)
{
	return (d[BTH + 7] ^ d[BTH] * 37u) % FWD_MEMOS;
}

void
fwd_memo_init(struct fwd_memo *m)
{
	memset(m, 0xff, sizeof(*m)); /* what is under a mask never is all ones */
}

struct fwd_flow *
fwd_memo_parse(const struct fwd_memo *m, struct karst_pkt *p, uint16_t port)
{
	const struct fwd_memo_entry *e;
	uint8_t *d = p->data, engine_port = p->port;
	fwd_memo_bytes differ;

	if (karst_unlikely(p->len < END + KARST_ICRC_LEN))
		return NULL;
	e = &m->entry[place(d)];
	differ = (piece(d + AT_0, 0) ^ e->bytes[0]) | (piece(d + AT_1, 1) ^ e->bytes[1]) |
		(piece(d + AT_2, 2) ^ e->bytes[2]);
	if ((differ[0] | differ[1]) != 0 || p->len < e->pkt.len || port != e->port)
		return NULL;
	if (karst_unlikely(folded(e->sum + word(d + IP4 + 4) + word(d + IP4 + 10)) != UINT16_MAX))
		return NULL;
	*p = e->pkt;
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
	return e->flow;
}

void
fwd_memo_keep(struct fwd_memo *m, const struct karst_pkt *p, uint16_t port, struct fwd_flow *flow)
{
	const uint8_t *d = p->data;
	uint32_t i, sum = 0, op = karst_opcode_flags(p->opcode);
	struct fwd_memo_entry *e;

	if (p->flags & (KARST_PKT_IP6 | KARST_PKT_VLAN) || op & NOT_KEPT || word(d + UDP + 6) != 0)
		return;
	for (i = 0; i < KARST_IP4_LEN; i += 2)
		sum += i == 4 || i == 10 ? 0 : word(d + IP4 + i);
	e = &m->entry[place(d)];
	*e = (struct fwd_memo_entry){
		.bytes = {piece(d + AT_0, 0), piece(d + AT_1, 1), piece(d + AT_2, 2)},
		.pkt = *p,
		.flow = flow,
		.sum = (uint16_t)folded(sum),
		.port = port,
		.extended = p->pay_off != END,
		.reth = op & (KARST_OPF_RETH | KARST_OPF_ATOMICETH) ? END : BTH,
		.aeth = op & KARST_OPF_AETH ? END : BTH,
		.imm = op & (KARST_OPF_IMM | KARST_OPF_IETH) ? p->pay_off - KARST_IMM_LEN : BTH,
	};
	e->pkt.flags &= (uint8_t)~KARST_PKT_ACKREQ;
}
