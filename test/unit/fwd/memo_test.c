/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Packets that are parsed by comparing them with earlier ones: the result is what the parser gives,
 * and no other packets match. */
#include "memo.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "karst_build.h"
#include "karst_counters.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_parse.h"

#define PORT   3
#define ROUNDS 100000

static struct fwd_memo memo;
static struct fwd_flow flows[4];
static uint8_t frame[256];

static void
setup(void)
{
	fwd_memo_init(&memo);
}

TestSuite(fwd_memo, .init = setup);

static struct karst_frame
send_only(uint32_t qpn, uint32_t psn)
{
	static const uint8_t payload[128] = {1, 2, 3};

	return (struct karst_frame){.saddr = {192, 0, 2, 1},
		.daddr = {192, 0, 2, 2},
		.ttl = 64,
		.ip_id = (uint16_t)(psn * 7919),
		.sport = 0xc000,
		.dport = KARST_ROCE_UDP_PORT,
		.ib = {.opcode = KARST_RC_SEND_ONLY,
			.pkey = 0xffff,
			.dqpn = qpn,
			.psn = psn,
			.ackreq = psn & 1,
			.pay = payload,
			.pay_len = 64}};
}

static struct karst_pkt
packet(const struct karst_frame *f)
{
	struct karst_pkt p;
	int len = karst_build_frame(frame, sizeof(frame), f);

	cr_assert_gt(len, 0);
	memset(&p, 0, sizeof(p));
	p.data = frame;
	p.len = (uint16_t)len;
	p.port = 9;
	return p;
}

/* Parses @f, and keeps it. */
static void
keep(const struct karst_frame *f, struct fwd_flow *flow)
{
	struct karst_pkt p = packet(f);

	cr_assert_eq(karst_parse(&p), KARST_DROP_NONE);
	fwd_memo_keep(&memo, &p, PORT, flow);
}

/* The fast lookup finds the same, except for packets that have to be parsed or have bytes behind
 * their ICRC. */
static struct fwd_memo_entry *
find(const struct karst_pkt *p, uint16_t port)
{
	struct fwd_memo_entry *e = fwd_memo_find(&memo, p->data, p->len, port);
	struct fwd_memo_entry *right = fwd_memo_find_right(&memo, p->data, p->len, port);

	if (e != NULL && e->kind != FWD_MEMO_ANY && e->len == p->len)
		cr_assert_eq(right, e);
	else
		cr_assert_null(right);
	return e;
}

/* If a memo matches @p, its result is what the parser gives.  @return whether one matches. */
static bool
check(struct karst_pkt p, struct fwd_flow *flow)
{
	struct karst_pkt want = p;
	struct fwd_memo_entry *e = find(&p, PORT);
	uint32_t op;

	if (e == NULL)
		return false;
	fwd_memo_parse(&memo, e, &p);
	cr_assert_eq(e->flow, flow);
	cr_assert_eq(karst_parse(&want), KARST_DROP_NONE);
	cr_assert(p.data == want.data && p.len == want.len && p.port == want.port &&
		p.bth_off == want.bth_off && p.pay_off == want.pay_off && p.drop == want.drop &&
		p.pay_len == want.pay_len && p.opcode == want.opcode && p.flags == want.flags &&
		p.pkey == want.pkey && p.psn == want.psn && p.dqpn == want.dqpn && p.qp == want.qp);
	op = karst_opcode_flags(p.opcode);
	cr_assert(!(op & (KARST_OPF_RETH | KARST_OPF_ATOMICETH)) ||
		(p.va == want.va && p.rkey == want.rkey));
	cr_assert(!(op & KARST_OPF_RETH) || p.dma_len == want.dma_len);
	cr_assert(!(op & KARST_OPF_AETH) || p.aeth == want.aeth);
	cr_assert(!(op & (KARST_OPF_IMM | KARST_OPF_IETH)) || p.imm == want.imm);
	return true;
}

Test(fwd_memo, the_next_ones_are_known)
{
	struct karst_frame f = send_only(7, 0);
	struct karst_pkt p;
	uint32_t psn;

	cr_assert_not(check(packet(&f), &flows[0]));
	keep(&f, &flows[0]);
	for (psn = 0; psn < 70000; psn++) {
		f = send_only(7, psn * 251 & 0xffffff);
		cr_assert(check(packet(&f), &flows[0]), "%u", psn);
	}
	p = packet(&f);
	cr_assert_null(find(&p, PORT + 1));
	p.len += 18; /* padding of Ethernet */
	cr_assert(check(p, &flows[0]));
	p = packet(&f);
	p.len--;
	cr_assert_not(check(p, &flows[0]));
	for (p.len = 0; p.len < FWD_MEMO_END; p.len++)
		cr_assert_not(check(p, &flows[0]));
}

Test(fwd_memo, flows_do_not_mix)
{
	struct karst_frame a = send_only(7, 1), b = send_only(7, 1), c = send_only(0x107, 1);

	b.saddr[3] = 9;
	keep(&a, &flows[0]);
	cr_assert_not(check(packet(&b), NULL));
	cr_assert_not(check(packet(&c), NULL));
	keep(&b, &flows[1]); /* it takes the place of another */
	cr_assert(check(packet(&b), &flows[1]));
	cr_assert_not(check(packet(&a), NULL));
	keep(&c, &flows[2]);
	cr_assert(check(packet(&c), &flows[2]));
}

/* Reserved bits, which a receiver ignores, do not make a packet different. */
Test(fwd_memo, reserved_bits)
{
	struct karst_frame f = send_only(7, 1);

	keep(&f, &flows[0]);
	f.ib.resv7 = 0x7f;
	cr_assert(check(packet(&f), &flows[0]));
	f = send_only(7, 1);
	f.ib.resv6 = 0x3f; /* next to FECN and BECN, which are compared */
	cr_assert_not(check(packet(&f), NULL));
}

/* The UDP checksum for an IPv4 frame that has none. */
static uint16_t
udp_checksum(const struct karst_pkt *p)
{
	uint32_t len = p->len - 34u, sum = 17 + len, i;

	for (i = 0; i < 8 + len; i += 2) /* from the addresses on; all lengths here are even */
		sum += karst_get_be16(p->data + 26 + i);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t) ~((sum & 0xffff) + (sum >> 16));
}

/* Packets of other kinds are not kept. */
Test(fwd_memo, other_kinds_are_not_kept)
{
	struct karst_frame f = send_only(7, 1);
	struct karst_pkt p;

	f.vlan = true;
	keep(&f, &flows[0]);
	cr_assert_not(check(packet(&f), NULL));
	f = send_only(7, 1);
	f.ip6 = true;
	keep(&f, &flows[0]);
	cr_assert_not(check(packet(&f), NULL));
	f = send_only(7, 1);
	f.ib.opcode = KARST_UD_SEND_ONLY; /* the source queue pair is part of the flow */
	keep(&f, &flows[0]);
	cr_assert_not(check(packet(&f), NULL));
	f = send_only(7, 1);
	p = packet(&f);
	f.udp_checksum = udp_checksum(&p); /* the checksum covers bytes that are not compared */
	keep(&f, &flows[0]);
	cr_assert_not(check(packet(&f), NULL));
}

static uint64_t
random64(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* A packet of an opcode with random extended headers; short frames end behind them. */
static struct karst_frame
any_of(uint8_t opcode, uint64_t *state)
{
	struct karst_frame f = send_only(7, (uint32_t)random64(state) & 0xffffff);

	f.ip_id = (uint16_t)random64(state);
	f.ib.opcode = opcode;
	if (!(karst_opcode_flags(opcode) & KARST_OPF_PAYLOAD))
		f.ib.pay_len = 0;
	f.ib.va = random64(state);
	f.ib.rkey = (uint32_t)random64(state);
	f.ib.dma_len = (uint32_t)random64(state);
	f.ib.aeth = (uint32_t)random64(state);
	f.ib.imm = f.ib.inv_rkey = (uint32_t)random64(state);
	f.ib.feth = 0x10;
	return f;
}

/* Puts the frame at the end of a buffer with no memory behind it. */
static struct karst_pkt
at_the_end(const struct karst_frame *f)
{
	struct karst_pkt p = packet(f);

	p.data = malloc(p.len); /* a sanitizer detects reads behind it */
	cr_assert_not_null(p.data);
	memcpy(p.data, frame, p.len);
	return p;
}

/* Every opcode: the packet is recognised again, unless extended headers decide about its flow. */
Test(fwd_memo, every_opcode)
{
	uint64_t state = 0x0dd;
	uint32_t opcode, i, kept = 0;

	for (opcode = 0; opcode < 256; opcode++) {
		uint32_t op = karst_opcode_flags((uint8_t)opcode);
		bool keeps = !(op &
			(KARST_OPF_DETH | KARST_OPF_RDETH | KARST_OPF_XRCETH | KARST_OPF_FETH));
		struct karst_frame f = any_of((uint8_t)opcode, &state);

		if (op == 0)
			continue;
		fwd_memo_init(&memo);
		keep(&f, &flows[0]);
		for (i = 0; i < 50; i++) {
			struct karst_pkt p;

			f = any_of((uint8_t)opcode, &state);
			p = at_the_end(&f);
			cr_assert_eq(check(p, &flows[0]), keeps, "%s",
				karst_opcode_name((uint8_t)opcode));
			free(p.data);
		}
		kept += keeps;
	}
	cr_assert_gt(kept, 20);
}

/* Changes some bits anywhere in the headers: a packet that a memo matches is one that the parser
 * accepts as well. */
static void
damage(uint8_t opcode)
{
	uint64_t state = 0x3e30;
	struct karst_frame f = any_of(opcode, &state);
	uint32_t i, k, known = 0;

	fwd_memo_init(&memo);
	keep(&f, &flows[0]);
	for (i = 0; i < ROUNDS; i++) {
		struct karst_pkt p;

		f = any_of(opcode, &state);
		p = packet(&f);
		for (k = random64(&state) % 4; k > 0; k--) {
			uint32_t bit = random64(&state) % (54 * 8);

			frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		known += check(p, &flows[0]);
	}
	cr_assert_gt(known, ROUNDS / 4);
	cr_assert_lt(known, ROUNDS / 2);
}

Test(fwd_memo, damaged_send)
{
	damage(KARST_RC_SEND_ONLY);
}

Test(fwd_memo, damaged_write_with_immediate)
{
	damage(KARST_RC_WRITE_ONLY_IMM);
}

Test(fwd_memo, damaged_ack)
{
	damage(KARST_RC_ACK);
}

/* Exactly one of all checksums of a header is right. */
Test(fwd_memo, checksums)
{
	struct karst_frame f = send_only(7, 1);
	uint32_t sum, known = 0;
	struct karst_pkt p;

	keep(&f, &flows[0]);
	p = packet(&f);
	for (sum = 0; sum <= UINT16_MAX; sum++) {
		karst_put_be16(frame + 24, (uint16_t)sum);
		known += check(p, &flows[0]);
	}
	cr_assert_eq(known, 1);
}
