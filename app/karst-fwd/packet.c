/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "packet.h"

#include "karst_build.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_psn.h"

#define SPORTS 16384u /* from 49152 on */

/* Operations by place.  Operations that are always one packet have only the first place. */
static const uint8_t operations[][FWD_PLACES] = {
	[FWD_SEND] = {KARST_OPERATION_SEND_ONLY, KARST_OPERATION_SEND_FIRST,
		KARST_OPERATION_SEND_MIDDLE, KARST_OPERATION_SEND_LAST},
	[FWD_SEND_IMM] = {KARST_OPERATION_SEND_ONLY_IMM, KARST_OPERATION_SEND_FIRST,
		KARST_OPERATION_SEND_MIDDLE, KARST_OPERATION_SEND_LAST_IMM},
	[FWD_WRITE] = {KARST_OPERATION_WRITE_ONLY, KARST_OPERATION_WRITE_FIRST,
		KARST_OPERATION_WRITE_MIDDLE, KARST_OPERATION_WRITE_LAST},
	[FWD_WRITE_IMM] = {KARST_OPERATION_WRITE_ONLY_IMM, KARST_OPERATION_WRITE_FIRST,
		KARST_OPERATION_WRITE_MIDDLE, KARST_OPERATION_WRITE_LAST_IMM},
	[FWD_READ] = {KARST_OPERATION_READ_REQUEST},
	[FWD_FETCH_ADD] = {KARST_OPERATION_FETCH_ADD},
	[FWD_CMP_SWAP] = {KARST_OPERATION_CMP_SWAP},
};

static bool
has_payload(const struct fwd_template *t)
{
	return t->op < FWD_READ;
}

static void
describe(struct karst_frame *f, const struct fwd_template *t, const uint8_t smac[6],
	const uint8_t dmac[6])
{
	*f = (struct karst_frame){
		.vlan = t->vlan_set,
		.vlan_tci = t->vlan,
		.ip6 = t->ip6,
		.tclass = t->tclass,
		.ttl = t->ttl,
		.ip_frag = 0x4000,
		.sport = t->sport,
		.dport = KARST_ROCE_UDP_PORT,
		.ib = {.migreq = true,
			.pkey = t->pkey,
			.qkey = t->qkey,
			.src_qpn = t->src_qpn,
			.va = t->va,
			.rkey = t->rkey,
			.dma_len = t->size,
			.swap_add = 1,
			.imm = t->imm},
	};
	memcpy(f->smac, t->smac_set ? t->smac : smac, 6);
	memcpy(f->dmac, t->dmac_set ? t->dmac : dmac, 6);
	memcpy(f->saddr, t->src, 16);
	memcpy(f->daddr, t->dst, 16);
}

static uint8_t
opcode_of(const struct fwd_template *t, enum fwd_place place)
{
	static const uint8_t transport[] = {[FWD_RC] = KARST_TRANSPORT_RC,
		[FWD_UC] = KARST_TRANSPORT_UC,
		[FWD_UD] = KARST_TRANSPORT_UD};

	return (uint8_t)(transport[t->transport] | operations[t->op][place]);
}

static void
build_shape(struct fwd_shapes *s, struct karst_frame *f, enum fwd_place place)
{
	struct fwd_shape *sh = &s->shape[place];
	const struct fwd_template *t = &s->t;
	bool end = place == FWD_ONLY || place == FWD_LAST;
	uint8_t frame[FWD_HEADERS_MAX + 4096 + 8];
	int len;

	f->ib.opcode = opcode_of(t, place);
	f->ib.pay_len = 0;
	if (has_payload(t))
		f->ib.pay_len = (uint16_t)(place == FWD_ONLY ? t->size
				: place == FWD_LAST          ? t->size - (s->packets - 1) * t->mtu
							     : t->mtu);
	len = karst_build_frame(frame, sizeof(frame), f);
	assert(len > 0);
	*sh = (struct fwd_shape){.opcode = f->ib.opcode,
		.len = (uint32_t)len,
		.pay_len = f->ib.pay_len,
		.pad = (uint8_t)(-f->ib.pay_len & 3),
		.l3_off = f->vlan ? 18 : 14,
		.ackreq = t->transport == FWD_RC &&
			(t->ackreq == FWD_ACK_ALL || (t->ackreq == FWD_ACK_LAST && end))};
	sh->bth_off =
		(uint8_t)(sh->l3_off + (f->ip6 ? KARST_IP6_LEN : KARST_IP4_LEN) + KARST_UDP_LEN);
	sh->hdr_len = (uint16_t)(sh->bth_off + karst_opcode_table[sh->opcode].hdr_len);
	memcpy(sh->hdr, frame, sh->hdr_len);
}

void
fwd_shapes_build(struct fwd_shapes *s, const struct fwd_template *t, const uint8_t smac[6],
	const uint8_t dmac[6])
{
	unsigned int shift = karst_log2(t->mtu);
	struct karst_frame f;
	int place;

	*s = (struct fwd_shapes){.t = *t, .packets = 1, .psns = 1};
	if (has_payload(t))
		s->packets = s->psns = karst_psn_count(t->size, shift);
	else if (t->op == FWD_READ)
		s->psns = karst_psn_count(t->size, shift);
	describe(&f, t, smac, dmac);
	if (s->packets == 1) {
		build_shape(s, &f, FWD_ONLY);
		return;
	}
	for (place = FWD_FIRST; place < FWD_PLACES; place++)
		build_shape(s, &f, (enum fwd_place)place);
}

void
fwd_gen_flow_init(struct fwd_gen_flow *g, const struct fwd_shapes *s, uint32_t number)
{
	*g = (struct fwd_gen_flow){
		.shapes = s,
		.qpn = (s->t.qpn + number) & 0xffffff,
		.src_qpn = (s->t.src_qpn + number) & 0xffffff,
		.psn = s->t.psn,
		.sport = (uint16_t)(49152 + (s->t.sport - 49152u + number) % SPORTS),
	};
}

void
fwd_gen_flow_next(struct fwd_gen_flow *g, uint8_t *to)
{
	const struct fwd_shape *sh = fwd_gen_flow_shape(g);
	const struct fwd_shapes *s = g->shapes;
	uint8_t *bth = to + sh->bth_off;

	memcpy(to, sh->hdr, sh->hdr_len);
	karst_put_be16(bth - KARST_UDP_LEN, g->sport);
	karst_bth_init(
		bth, sh->opcode, KARST_BTH_MIGREQ, sh->pad, s->t.pkey, g->qpn, sh->ackreq, g->psn);
	if (s->t.transport == FWD_UD)
		karst_deth_set(bth + KARST_BTH_LEN, s->t.qkey, g->src_qpn);
	if (++g->packet < s->packets) {
		g->psn = karst_psn_add(g->psn, 1);
		return;
	}
	g->psn = karst_psn_add(g->psn, s->psns - s->packets + 1);
	g->packet = 0;
	g->messages++;
}
