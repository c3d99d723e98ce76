/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Fuzz target: any frame, through the parser, the ICRC check and the dissector.
 *
 * An input is a frame.  It is read as Ethernet, as native InfiniBand and as a bare BTH.  The
 * sanitizers watch the reads (libFuzzer passes heap copies of the exact size); what is accepted
 * must be consistent, and the parser's table of offsets must agree with the decoder, which walks
 * header by header.  A decoded frame that is built again must decode to the same.
 *
 * A mutator of its own repairs IPv4 checksum and lengths half of the time: without that hardly any
 * mutated frame gets past the IP header.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"
#include "karst_build.h"
#include "karst_crc.h"
#include "karst_decode.h"
#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_opcode.h"
#include "karst_parse.h"

#define FRAME_MAX 65535

#define CHECK(cond) check(cond, #cond, __LINE__)

static void
check(bool ok, const char *what, int line)
{
	if (ok)
		return;
	fprintf(stderr, "line %d: not so: %s\n", line, what);
	abort();
}

/* Compares parser and decoder, field by field, where the opcode has the header. */
static void
check_fields(const struct karst_pkt *p, const struct karst_frame *f)
{
	uint32_t op = karst_opcode_flags(p->opcode);
	const struct karst_ib_hdrs *ib = &f->ib;

	CHECK(p->opcode == ib->opcode && p->pkey == ib->pkey);
	CHECK(p->dqpn == ib->dqpn && p->psn == ib->psn);
	CHECK(!(p->flags & KARST_PKT_IP6) == !f->ip6);
	CHECK(!(p->flags & KARST_PKT_VLAN) == !f->vlan);
	CHECK(!(p->flags & KARST_PKT_SE) == !ib->se);
	CHECK(!(p->flags & KARST_PKT_ACKREQ) == !ib->ackreq);
	CHECK(!(p->flags & KARST_PKT_BECN) == !ib->becn);
	CHECK(!(p->flags & KARST_PKT_MIGREQ) == !ib->migreq);
	CHECK(!(p->flags & KARST_PKT_CE) == ((f->tclass & 3) != 3));
	CHECK(p->pay_len == ib->pay_len && p->data + p->pay_off == ib->pay);
	if (op & (KARST_OPF_RETH | KARST_OPF_ATOMICETH))
		CHECK(p->va == ib->va && p->rkey == ib->rkey);
	if (op & KARST_OPF_RETH)
		CHECK(p->dma_len == ib->dma_len);
	if (op & KARST_OPF_AETH)
		CHECK(p->aeth == ib->aeth);
	if (op & KARST_OPF_DETH)
		CHECK(p->qkey == ib->qkey && p->src_qpn == ib->src_qpn);
	if (op & KARST_OPF_XRCETH)
		CHECK(p->srqn == ib->srqn);
	if (op & KARST_OPF_IMM)
		CHECK(p->imm == ib->imm);
	if (op & KARST_OPF_IETH)
		CHECK(p->inv_rkey == ib->inv_rkey);
}

static void
check_layout(const struct karst_pkt *p, size_t received)
{
	unsigned int l3 = karst_pkt_l3_off(p);

	CHECK(p->len <= received);
	CHECK(p->qp == NULL);
	CHECK(p->bth_off == l3 + (p->flags & KARST_PKT_IP6 ? 40 : 20) + 8);
	CHECK(karst_opcode_flags(p->opcode) != 0);
	CHECK(p->pay_off == p->bth_off + karst_opcode_table[p->opcode].hdr_len);
	CHECK(p->pay_off + p->pay_len + 4u <= p->len);
	CHECK((p->pay_len + karst_pkt_pad(p)) % 4 == 0);
	CHECK(karst_pkt_pad(p) == karst_bth_pad(p->data + p->bth_off));
}

static void
check_icrc(struct karst_pkt *p)
{
	struct karst_pkt *burst[1] = {p};
	unsigned int l3 = karst_pkt_l3_off(p);
	uint32_t icrc = karst_icrc_rocev2(
		p->data + l3, p->len - l3 - KARST_ICRC_LEN, (p->flags & KARST_PKT_IP6) != 0);
	bool right = __builtin_bswap32(karst_get_be32(p->data + p->len - KARST_ICRC_LEN)) == icrc;

	CHECK(karst_icrc_verify_burst(burst, 1) == !right);
	CHECK(p->drop == (right ? KARST_DROP_NONE : KARST_DROP_ICRC));
	p->drop = KARST_DROP_NONE;
}

/* Builds the frame again and parses it: the fields must be the same. */
static void
check_rebuild(const struct karst_frame *f, unsigned int len)
{
	static uint8_t buf[FRAME_MAX], again[FRAME_MAX];
	int n = karst_build_frame(buf, sizeof(buf), f);
	struct karst_pkt p = {.data = buf, .len = (uint16_t)n};
	struct karst_frame g;
	unsigned int udp;

	CHECK(n == (int)len);
	udp = (f->vlan ? 18 : 14) + (f->ip6 ? 40 : 20);
	if (f->udp_checksum != 0)
		karst_build_udp_checksum(buf + udp, (size_t)n - udp, f->ip6);
	CHECK(karst_parse(&p) == KARST_DROP_NONE);
	CHECK(p.len == len);
	karst_decode_frame(&p, &g);
	CHECK(karst_build_frame(again, sizeof(again), &g) == n);
	if (f->udp_checksum != 0)
		karst_build_udp_checksum(again + udp, (size_t)n - udp, f->ip6);
	CHECK(memcmp(buf, again, (size_t)n) == 0);
}

static void
fuzz_ethernet(const uint8_t *data, size_t size)
{
	struct karst_pkt p = {.data = (uint8_t *)(uintptr_t)data, .len = (uint16_t)size, .port = 7};
	struct karst_pkt q = p, *burst[1] = {&q};
	struct karst_frame f;

	CHECK(karst_parse(&p) == p.drop);
	CHECK(karst_parse_burst(burst, 1) == (p.drop == KARST_DROP_NONE));
	CHECK(q.drop == p.drop);
	CHECK(p.data == data && p.port == 7 && p.drop <= KARST_DROP_PAD);
	if (p.drop != KARST_DROP_NONE)
		return;
	check_layout(&p, size);
	check_icrc(&p);
	karst_decode_frame(&p, &f);
	check_fields(&p, &f);
	check_rebuild(&f, p.len);
}

static void
fuzz_native(const uint8_t *data, size_t size)
{
	static uint8_t buf[FRAME_MAX];
	struct karst_native n, m;
	int len;

	if (karst_decode_native(data, size, &n) != KARST_DROP_NONE)
		return;
	CHECK(n.pkt_len * 4u <= size);
	CHECK(n.ib.pay >= data && n.ib.pay + n.ib.pay_len + KARST_ICRC_LEN <= data + size);
	len = karst_build_native(buf, sizeof(buf), &n);
	CHECK(len == n.pkt_len * 4 + KARST_VCRC_LEN);
	CHECK(karst_decode_native(buf, (size_t)len, &m) == KARST_DROP_NONE);
	CHECK(n.ib.opcode == m.ib.opcode && n.ib.psn == m.ib.psn && n.ib.pay_len == m.ib.pay_len);
	(void)karst_icrc_native(data, n.pkt_len * 4u - KARST_ICRC_LEN, n.lnh == KARST_LNH_GLOBAL);
	(void)karst_vcrc(data, n.pkt_len * 4u);
}

static void
fuzz_bth(const uint8_t *data, size_t size)
{
	struct karst_ib_hdrs ib;

	if (karst_decode_ib(data, size, &ib) == KARST_DROP_NONE)
		CHECK(ib.pay >= data + KARST_BTH_LEN && ib.pay + ib.pay_len <= data + size);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	CHECK(karst_crc_init(NULL) == 0);
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > FRAME_MAX)
		return 0;
	fuzz_ethernet(data, size);
	fuzz_native(data, size);
	fuzz_bth(data, size);
	return 0;
}

#ifdef KARST_LIBFUZZER
/* Corrects IPv4 and UDP lengths and the IPv4 checksum, if the input looks like such a frame. */
static void
repair(uint8_t *p, size_t size)
{
	size_t off = 14, i;
	uint32_t sum = 0;

	if (size >= 18 && p[12] == 0x81 && p[13] == 0)
		off = 18;
	if (size < off + 28 || karst_get_be16(p + off - 2) != 0x0800)
		return;
	p[off] = 0x45;
	p[off + 9] = 17;
	p[off + 6] &= 0xc0;
	p[off + 7] = 0;
	karst_put_be16(p + off + 2, (uint16_t)(size - off));
	karst_put_be16(p + off + 22, KARST_ROCE_UDP_PORT);
	karst_put_be16(p + off + 24, (uint16_t)(size - off - 20));
	karst_put_be16(p + off + 10, 0);
	for (i = 0; i < 20; i += 2)
		sum += karst_get_be16(p + off + i);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	karst_put_be16(p + off + 10, (uint16_t)~sum);
}

size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	size = LLVMFuzzerMutate(data, size, max_size);
	if (seed & 1)
		repair(data, size & 2 ? size & ~(size_t)3 : size);
	return size;
}
#endif
