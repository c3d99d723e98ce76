/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Builder and decoder: compared with bytes written by hand, with each other, and their errors. */
#include <criterion/criterion.h>
#include <errno.h>

#include "karst_build.h"
#include "karst_decode.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_parse.h"
#include "sample.h"

#define ROOM 8192

static void
expect_bytes(const struct karst_ib_hdrs *ib, const void *want, size_t len)
{
	uint8_t buf[256];
	int n = karst_build_ib(buf, sizeof(buf), ib);
	size_t i;

	cr_assert_eq(n, (int)len, "%s: %d", karst_opcode_name(ib->opcode), n);
	for (i = 0; i < len; i++)
		cr_assert_eq(buf[i], ((const uint8_t *)want)[i], "%s: byte %zu",
			karst_opcode_name(ib->opcode), i);
}

/* Every header once, in its place (W2, W3, W5), padded (W6), from the rules alone. */
Test(build, bytes_from_the_rules)
{
	struct karst_frame f = sample_frame(0, false, false, 0, 0);
	struct karst_ib_hdrs ib = f.ib;

	ib.pkey = 0xffff;
	ib.dqpn = 0x000011;
	ib.psn = 0x000102;

	ib.opcode = 0x0b; /* RC WRITE Only Imm: RETH, ImmDt */
	ib.pay_len = 3;
	ib.ackreq = true;
	expect_bytes(&ib,
		"\x0b\x10\xff\xff\0\0\0\x11\x80\0\1\2"
		"\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff\x01"
		"\x0a\x0b\x0c\x0d\xa5\x5a\x01\0",
		12 + 16 + 4 + 4);
	ib.ackreq = false;
	ib.pay_len = 0;

	ib.opcode = 0x53; /* RD CmpSwap: RDETH, DETH, AtomicETH */
	expect_bytes(&ib,
		"\x53\0\xff\xff\0\0\0\x11\0\0\1\2"
		"\0\x0e\x0e\x0e\x80\x01\0\0\0\xab\xcd\xef"
		"\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc"
		"\1\2\3\4\5\6\7\x08\x11\x12\x13\x14\x15\x16\x17\x18",
		12 + 4 + 8 + 28);

	ib.opcode = 0xbc; /* XRC FLUSH: XRCETH, FETH, RETH */
	ib.se = true;
	expect_bytes(&ib,
		"\xbc\x80\xff\xff\0\0\0\x11\0\0\1\2"
		"\0\x34\x56\x78\0\0\0\x31"
		"\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff\x01",
		12 + 4 + 4 + 16);
	ib.se = false;

	ib.opcode = 0x12; /* RC Atomic Ack: AETH, AtomicAckETH */
	ib.migreq = true;
	expect_bytes(&ib,
		"\x12\x40\xff\xff\0\0\0\x11\0\0\1\2\x1f\0\0\x07\x21\x22\x23\x24\x25\x26\x27\x28",
		12 + 4 + 8);
	ib.migreq = false;

	ib.opcode = 0x65; /* UD SEND Only Imm: DETH, ImmDt */
	ib.fecn = true;
	expect_bytes(&ib,
		"\x65\0\xff\xff\x80\0\0\x11\0\0\1\2\x80\x01\0\0\0\xab\xcd\xef\x0a\x0b\x0c\x0d",
		12 + 8 + 4);
	ib.fecn = false;

	ib.opcode = 0x17; /* RC SEND Only Inv: IETH */
	expect_bytes(&ib, "\x17\0\xff\xff\0\0\0\x11\0\0\1\2\x31\x32\x33\x34", 12 + 4);

	ib.opcode = 0x81; /* CNP: 16 reserved bytes (E1) */
	ib.becn = true;
	ib.pay = NULL;
	ib.pay_len = 16;
	expect_bytes(&ib, "\x81\0\xff\xff\x40\0\0\x11\0\0\1\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 28);
}

Test(build, refusals)
{
	struct karst_frame f = sample_frame(KARST_RC_SEND_ONLY, true, true, 100, 0);
	uint8_t buf[ROOM];
	int len = karst_build_frame(buf, sizeof(buf), &f), n;

	cr_assert_eq(len, 18 + 40 + 8 + 12 + 100 + 4);
	for (n = 0; n < len; n++)
		cr_assert_eq(karst_build_frame(buf, (size_t)n, &f), -ENOSPC);
	cr_expect_eq(karst_build_frame(buf, (size_t)len, &f), len);
	f.ib.pay_len = 65535;
	f.ib.pay = NULL;
	cr_expect_eq(karst_build_frame(buf, sizeof(buf), &f), -EINVAL);
	f = sample_frame(0x15, false, false, 0, 0);
	cr_expect_eq(karst_build_frame(buf, sizeof(buf), &f), -EINVAL, "unknown opcode");
	f = sample_frame(KARST_RC_ACK, false, false, 4, 0);
	cr_expect_eq(karst_build_frame(buf, sizeof(buf), &f), -EINVAL, "ACK with a payload");
}

static void
expect_same_ib(const struct karst_ib_hdrs *a, const struct karst_ib_hdrs *b)
{
	struct karst_ib_hdrs x = *a, y = *b;
	uint8_t bx[ROOM], by[ROOM];
	int nx = karst_build_ib(bx, sizeof(bx), &x), ny = karst_build_ib(by, sizeof(by), &y);

	cr_assert_gt(nx, 0);
	cr_assert_eq(nx, ny);
	cr_assert_eq(memcmp(bx, by, (size_t)nx), 0, "%s", karst_opcode_name(a->opcode));
}

/* Decoding a built frame gives the fields it was built from. */
Test(decode, every_opcode_round_trip)
{
	unsigned int op, v, pay;
	uint8_t buf[ROOM], again[ROOM];

	for (op = 0; op < 256; op++) {
		for (v = 0; v < 4 && karst_opcode_flags((uint8_t)op) != 0; v++) {
			for (pay = 0; pay < (sample_takes_payload((uint8_t)op) ? 9 : 1); pay++) {
				struct karst_frame f =
					sample_frame((uint8_t)op, v & 1, v & 2, (uint16_t)pay, pay);
				struct karst_frame g;
				struct karst_pkt p = {.data = buf};

				p.len = (uint16_t)sample_build(buf, sizeof(buf), &f);
				cr_assert_eq(karst_parse(&p), KARST_DROP_NONE);
				karst_decode_frame(&p, &g);
				cr_assert_eq(memcmp(g.dmac, f.dmac, 6), 0);
				cr_assert_eq(memcmp(g.smac, f.smac, 6), 0);
				cr_assert_eq(g.vlan, f.vlan);
				cr_assert_eq(g.vlan_tci, f.vlan_tci);
				cr_assert_eq(g.ip6, f.ip6);
				cr_assert_eq(g.tclass, f.tclass);
				cr_assert_eq(g.ttl, f.ttl);
				cr_assert_eq(g.ip_id, f.ip_id);
				cr_assert_eq(g.ip_frag, f.ip_frag);
				cr_assert_eq(g.flow_label, f.flow_label);
				cr_assert_eq(memcmp(g.saddr, f.saddr, 16), 0);
				cr_assert_eq(memcmp(g.daddr, f.daddr, 16), 0);
				cr_assert_eq(g.sport, f.sport);
				cr_assert_eq(g.ib.pay_len, pay);
				expect_same_ib(&g.ib, &f.ib);
				cr_assert_eq(sample_build(again, sizeof(again), &g), p.len);
				cr_assert_eq(memcmp(buf, again, p.len), 0);
			}
		}
	}
}

Test(decode, cut_at_every_length)
{
	unsigned int op;
	struct guard g;

	guard_init(&g, 512);
	for (op = 0; op < 256; op++) {
		struct karst_frame f = sample_frame((uint8_t)op, false, false, 0, 1);
		struct karst_ib_hdrs ib;
		uint8_t buf[256];
		int len, n;

		if (karst_opcode_flags((uint8_t)op) == 0)
			continue;
		len = karst_build_ib(buf, sizeof(buf), &f.ib);
		cr_assert_gt(len, 0);
		for (n = 0; n < len; n++)
			cr_assert_eq(
				karst_decode_ib(guard_tail(&g, buf, (size_t)n), (size_t)n, &ib),
				KARST_DROP_RUNT);
		cr_assert_eq(karst_decode_ib(guard_tail(&g, buf, (size_t)len), (size_t)len, &ib),
			KARST_DROP_NONE);
	}
	guard_free(&g);
}

/* --- native InfiniBand (W8) --- */

static struct karst_native
native(uint8_t opcode, bool grh, uint16_t pay_len)
{
	struct karst_native n = {
		.vl = 3,
		.sl = 5,
		.lnh = grh ? KARST_LNH_GLOBAL : KARST_LNH_LOCAL,
		.dlid = 0x1234,
		.slid = 0x5678,
		.ip_ver = 6,
		.tclass = 0xab,
		.next_hdr = KARST_GRH_NXT,
		.hop_limit = 9,
		.flow_label = 0xcdef0,
		.sgid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1},
		.dgid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2},
		.ib = sample_frame(opcode, false, false, pay_len, 3).ib,
	};

	return n;
}

Test(native, bytes_from_the_rules)
{
	struct karst_native n = native(KARST_RC_SEND_ONLY, true, 5);
	uint8_t buf[256];
	int len = karst_build_native(buf, sizeof(buf), &n);

	cr_assert_eq(len, 8 + 40 + 12 + 8 + 4 + 2);
	cr_expect_eq(memcmp(buf, "\x30\x53\x12\x34\x00\x12\x56\x78", 8), 0, "LRH");
	cr_expect_eq(memcmp(buf + 8, "\x6a\xbc\xde\xf0\x00\x18\x1b\x09\xfe\x80", 10), 0, "GRH");
	cr_expect_eq(buf[48], KARST_RC_SEND_ONLY);

	n = native(KARST_RC_ACK, false, 0);
	len = karst_build_native(buf, sizeof(buf), &n);
	cr_assert_eq(len, 8 + 16 + 4 + 2);
	cr_expect_eq(memcmp(buf, "\x30\x52\x12\x34\x00\x07\x56\x78\x11", 9), 0, "LRH");
}

Test(native, round_trip_and_every_cut)
{
	unsigned int op, grh;
	struct guard g;

	guard_init(&g, 512);
	for (op = 0; op < 256; op++) {
		for (grh = 0; grh < 2 && karst_opcode_flags((uint8_t)op) != 0; grh++) {
			struct karst_native a =
				native((uint8_t)op, grh, sample_takes_payload((uint8_t)op) ? 7 : 0);
			struct karst_native b;
			uint8_t buf[256];
			int len = karst_build_native(buf, sizeof(buf), &a), n;

			cr_assert_gt(len, 0);
			for (n = 0; n < len - 2; n++)
				cr_assert_eq(karst_decode_native(
						     guard_tail(&g, buf, (size_t)n), (size_t)n, &b),
					KARST_DROP_RUNT);
			cr_assert_eq(
				karst_decode_native(guard_tail(&g, buf, (size_t)n), (size_t)n, &b),
				KARST_DROP_NONE);
			cr_assert_eq(b.vl, 3);
			cr_assert_eq(b.sl, 5);
			cr_assert_eq(b.lnh, a.lnh);
			cr_assert_eq(b.dlid, 0x1234);
			cr_assert_eq(b.slid, 0x5678);
			cr_assert_eq(b.pkt_len * 4, len - 2);
			if (grh) {
				cr_assert_eq(b.tclass, 0xab);
				cr_assert_eq(b.flow_label, 0xcdef0);
				cr_assert_eq(b.hop_limit, 9);
				cr_assert_eq(memcmp(b.sgid, a.sgid, 16), 0);
				cr_assert_eq(memcmp(b.dgid, a.dgid, 16), 0);
			}
			expect_same_ib(&a.ib, &b.ib);
		}
	}
	guard_free(&g);
}

Test(native, refusals)
{
	struct karst_native n = native(KARST_RC_SEND_ONLY, true, 8), out;
	uint8_t buf[ROOM], bad[ROOM];
	int len = karst_build_native(buf, sizeof(buf), &n);
	static const struct {
		unsigned int off;
		uint8_t value;
		enum karst_drop want;
	} damage[] = {
		{0, 0x31, KARST_DROP_IP_HEADER},  /* LVer */
		{1, 0x50, KARST_DROP_NOT_ROCE},   /* LNH raw */
		{1, 0x51, KARST_DROP_NOT_ROCE},   /* LNH IP */
		{5, 0x01, KARST_DROP_RUNT},       /* PktLen */
		{5, 0xff, KARST_DROP_RUNT},       /* PktLen */
		{8, 0x40, KARST_DROP_IP_HEADER},  /* GRH IPVer */
		{13, 0x04, KARST_DROP_IP_HEADER}, /* GRH PayLen */
		{14, 0x11, KARST_DROP_IP_HEADER}, /* GRH NxtHdr */
		{48, 0xff, KARST_DROP_OPCODE},
		{49, 0x01, KARST_DROP_TVER},
	};
	size_t i;

	cr_assert_eq(karst_decode_native(buf, (size_t)len, &out), KARST_DROP_NONE);
	for (i = 0; i < KARST_DIM(damage); i++) {
		memcpy(bad, buf, (size_t)len);
		bad[damage[i].off] = damage[i].value;
		cr_expect_eq(karst_decode_native(bad, (size_t)len, &out), damage[i].want, "%zu", i);
	}
	cr_expect_eq(karst_build_native(bad, (size_t)len - 1, &n), -ENOSPC);
	n.lnh = KARST_LNH_IP;
	cr_expect_eq(karst_build_native(bad, sizeof(bad), &n), -EINVAL);
	n = native(KARST_RC_SEND_ONLY, false, 8192);
	n.ib.pay = NULL;
	cr_expect_eq(
		karst_build_native(bad, sizeof(bad), &n), -EINVAL, "longer than PktLen counts");
}

/* RFC 1071's own example of the sum, in a UDP header: checked by summing. */
Test(build, udp_checksum_sums_to_ones)
{
	unsigned int pay;
	uint8_t buf[ROOM];

	for (pay = 0; pay < 64; pay++) {
		struct karst_frame f =
			sample_frame(KARST_UC_SEND_ONLY, pay & 1, false, (uint16_t)pay, pay);
		unsigned int len = sample_build(buf, sizeof(buf), &f), i;
		unsigned int udp = 14 + (f.ip6 ? 40 : 20), addr = f.ip6 ? 32 : 8;
		uint32_t sum = 17 + len - udp;

		karst_build_udp_checksum(buf + udp, len - udp, f.ip6);
		for (i = udp - addr; i < len; i += 2)
			sum += karst_get_be16(buf + i);
		while (sum >> 16)
			sum = (sum & 0xffff) + (sum >> 16);
		cr_assert_eq(sum, 0xffff);
	}
}

/* A checksum of 0 is sent as all ones: 0 would mean none (RFC 768). */
Test(build, udp_checksum_is_never_zero)
{
	struct karst_frame f = sample_frame(KARST_UC_SEND_ONLY, false, false, 4, 0);
	uint8_t buf[ROOM];
	unsigned int len = sample_build(buf, sizeof(buf), &f);
	uint8_t *udp = buf + 34, *pay = buf + len - 8;
	struct karst_pkt p = {.data = buf, .len = (uint16_t)len};

	memset(pay, 0, 4);
	karst_build_udp_checksum(udp, len - 34, false);
	memcpy(pay, udp + 6, 2); /* the difference to all ones */
	karst_build_udp_checksum(udp, len - 34, false);
	cr_expect_eq(karst_get_be16(udp + 6), 0xffff);
	cr_expect_eq(karst_parse(&p), KARST_DROP_NONE);
}
