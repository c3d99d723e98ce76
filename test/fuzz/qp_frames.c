/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The wire of the fuzz target of queue pairs: frames to the core, raw ones and ones of chosen
 * fields with a right ICRC; frames from the core, which must parse and verify; and time.
 */
#include "qp_rig.h"

#include "karst_build.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_parse.h"
#include "karst_psn.h"

/* --- frames in --- */

/* All steps that a received frame goes through; @data is exactly as long as the frame. */
static void
deliver(struct rig *r, const uint8_t *bytes, size_t len, bool sealed)
{
	struct karst_pkt pkt, *p = &pkt;

	memset(&pkt, 0x5a, sizeof(pkt));
	pkt.data = malloc(len != 0 ? len : 1);
	CHECK(pkt.data != NULL);
	memcpy(pkt.data, bytes, len);
	pkt.len = (uint16_t)len;
	pkt.port = 0;
	if (karst_parse(&pkt) == KARST_DROP_NONE && !sealed) {
		/* most raw frames would be dropped here */
		const uint8_t *l3 = pkt.data + karst_pkt_l3_off(&pkt);
		uint32_t crc =
			karst_icrc_rocev2(l3, (size_t)(pkt.data + pkt.len - l3) - KARST_ICRC_LEN,
				(pkt.flags & KARST_PKT_IP6) != 0);

		memcpy(pkt.data + pkt.len - KARST_ICRC_LEN, &crc, sizeof(crc));
	}
	if (pkt.drop == KARST_DROP_NONE)
		CHECK(karst_icrc_verify_burst(&p, 1) == 0);
	if (pkt.drop == KARST_DROP_NONE) {
		pkt.qp = karst_core_lookup(r->core, pkt.dqpn);
		if (pkt.qp != NULL)
			karst_qp_rx(r->core, &pkt);
	}
	CHECK(pkt.drop < KARST_DROP_MAX);
	free(pkt.data);
}

void
raw_frame(struct rig *r, struct input *in)
{
	size_t len = take(in, 2) % 700;

	if (len > in->left)
		len = in->left;
	deliver(r, in->p, len, false);
	in->p += len;
	in->left -= len;
}

/* A PSN near one that is significant for the QP. */
static uint32_t
some_psn(const struct qp_numbers *near, bool request, struct input *in)
{
	uint8_t which = u8(in);
	uint32_t base = request ? near->epsn : near->una_psn;

	if (which >= 0xf8)
		return take(in, 3);
	if (which >= 0xe0)
		base = request ? near->epsn + (1u << 23) : near->nxt_psn;
	if (which < 0x80)
		return base & KARST_PSN_MASK;
	return (base + (which & 31) - 16) & KARST_PSN_MASK;
}

void
made_frame(struct rig *r, struct input *in)
{
	static const uint8_t transport[] = {[KARST_QPT_RC] = 0,
		[KARST_QPT_UC] = 0x20,
		[KARST_QPT_UD] = 0x60,
		[KARST_QPT_XRC_SEND] = 0xa0};
	static uint8_t frame[2048];
	uint8_t which = u8(in), opcode = u8(in), flags = u8(in);
	const struct karst_core_qp *qp = r->qp[which & 1];
	struct qp_numbers near;
	bool request;
	struct karst_frame f = {.vlan = r->path.has_vlan,
		.ip6 = r->path.ip6,
		.ttl = 64,
		.ip_frag = 0x4000,
		.sport = 0xc000,
		.dport = KARST_ROCE_UDP_PORT};
	uint32_t l3 = f.vlan ? 18 : 14, crc;
	int len;

	if (!(which & 0x80))
		opcode = (uint8_t)(transport[r->type] | (opcode & 0x1f));
	qp_numbers(qp, &near);
	request = (karst_opcode_flags(opcode) & KARST_OPF_REQUEST) != 0;
	memcpy(f.saddr, r->path.dst_ip + (f.ip6 ? 0 : 12), f.ip6 ? 16 : 4);
	memcpy(f.daddr, r->path.src_ip + (f.ip6 ? 0 : 12), f.ip6 ? 16 : 4);
	f.ib = (struct karst_ib_hdrs){.opcode = opcode,
		.se = flags & 1,
		.ackreq = flags & 2,
		.becn = flags & 4,
		.pkey = flags & 8 ? 0x7fff : 0xffff,
		.dqpn = karst_qp_num(qp),
		.psn = some_psn(&near, request, in),
		.qkey = 0x77,
		.src_qpn = 0x99,
		.imm = 0x01020304};
	if (is_xrc(r)) {
		f.ib.srqn = karst_srq_num(flags & 0x80 ? r->srq2 : r->srq);
		if (which & 0x40)
			f.ib.srqn ^= 1u << (which >> 1 & 31);
		f.ib.src_qpn = 0; /* they share a place in the packet */
	}
	f.ib.va = some_va(in);
	f.ib.rkey = some_key(r, in);
	f.ib.inv_rkey = f.ib.rkey;
	if (karst_opcode_flags(opcode) & KARST_OPF_FETH)
		f.ib.feth = u8(in);
	f.ib.pay_len = (uint16_t)(karst_opcode_flags(opcode) & KARST_OPF_PAYLOAD
			? karst_min_u32(some_len(in), 600)
			: 0);
	f.ib.dma_len = flags & 0x10 ? f.ib.pay_len : some_len(in);
	f.ib.aeth = (flags & 0x20 ? take(in, 1) : 0x1fu) << 24 | near.ssn;
	f.ib.swap_add = f.ib.va;
	f.ib.compare = flags & 0x40 ? 0xeeeeeeeeeeeeeeeeull : 0;
	len = karst_build_frame(frame, sizeof(frame), &f);
	if (len < 0)
		return;
	crc = karst_icrc_rocev2(frame + l3, (size_t)len - l3 - KARST_ICRC_LEN, f.ip6);
	memcpy(frame + len - KARST_ICRC_LEN, &crc, sizeof(crc));
	deliver(r, frame, (size_t)len, true);
}

/* --- frames out, time --- */

bool
visit(struct rig *r, struct karst_core_qp *qp, uint32_t frames, uint32_t bytes)
{
	static uint8_t data[FRAMES][KARST_FRAME_MAX];
	struct karst_pkt pkt[FRAMES], *pkts[FRAMES];
	struct karst_seal seals[FRAMES];
	struct karst_seg segs[KARST_WQ_MAX_SGE + 8];
	struct karst_tx_burst b = {.pkts = pkts,
		.seals = seals,
		.segs = segs,
		.max = frames,
		.max_segs = KARST_DIM(segs)};
	uint32_t i;
	bool more;

	for (i = 0; i < FRAMES; i++) {
		memset(&pkt[i], 0, sizeof(pkt[i]));
		pkt[i].data = data[i];
		pkts[i] = &pkt[i];
	}
	more = karst_qp_tx(r->core, qp, &b, bytes);
	CHECK(b.n <= frames && b.nsegs <= b.max_segs);
	karst_icrc_seal_burst(seals, b.n);
	for (i = 0; i < b.n; i++)
		CHECK(pkt[i].len <= KARST_FRAME_MAX && karst_parse(&pkt[i]) == KARST_DROP_NONE);
	CHECK(karst_icrc_verify_burst(pkts, b.n) == 0);
	if (more)
		karst_core_activate(r->core, qp);
	return more;
}

void
transmit(struct rig *r, struct input *in)
{
	uint32_t frames = 1 + u8(in) % FRAMES, visits = 1 + u8(in) % 4, bytes = take(in, 2);

	while (visits-- > 0) {
		struct karst_core_qp *qp = karst_core_next_active(r->core);

		if (qp == NULL)
			break;
		visit(r, qp, frames, bytes);
	}
	karst_core_recheck(r->core);
	karst_core_flush(r->core);
}

void
pass_time(struct rig *r, struct input *in)
{
	uint8_t how = u8(in);

	r->core->now_ns += (uint64_t)(1 + take(in, 1)) << (how & 31);
	karst_core_expire(r->core, 1 + (how >> 5));
}
