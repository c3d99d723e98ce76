/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The parser over every opcode, IP version and tag; every length to which a frame can be truncated;
 * every drop reason; random damage.  Frames lie next to unreadable pages, so a read outside of them
 * ends the test also without a sanitizer.
 */
#include <criterion/criterion.h>

#include "karst_build.h"
#include "karst_decode.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_parse.h"
#include "sample.h"

#define ROOM 8192

typedef void visit_fn(const struct karst_frame *f, const uint8_t *frame, unsigned int len);

/* Every known opcode on IPv4 and IPv6, tagged and not, with payloads of 0 to 5 bytes and more. */
static void
for_each_frame(visit_fn *visit)
{
	static const uint16_t lens[] = {0, 1, 2, 3, 4, 5, 64};
	uint8_t buf[ROOM];
	unsigned int op, v, seed = 0;
	size_t i;

	for (op = 0; op < 256; op++) {
		if (karst_opcode_flags((uint8_t)op) == 0)
			continue;
		for (v = 0; v < 4; v++) {
			for (i = 0; i < KARST_DIM(lens); i++) {
				struct karst_frame f;

				if (lens[i] != 0 && !sample_takes_payload((uint8_t)op))
					break;
				f = sample_frame((uint8_t)op, v & 1, v & 2, lens[i], seed++);
				visit(&f, buf, sample_build(buf, sizeof(buf), &f));
			}
		}
	}
}

static enum karst_drop
parse_at(struct karst_pkt *p, uint8_t *data, size_t len)
{
	memset(p, 0xee, sizeof(*p));
	p->data = data;
	p->len = (uint16_t)len;
	p->port = 3;
	karst_parse(p);
	cr_assert_eq(p->data, data);
	cr_assert_eq(p->port, 3);
	return p->drop;
}

static void
visit_fields(const struct karst_frame *f, const uint8_t *frame, unsigned int len)
{
	unsigned int bth = 14 + (f->vlan ? 4 : 0) + (f->ip6 ? 40 : 20) + 8;
	struct karst_pkt p;
	struct guard g;

	guard_init(&g, len);
	cr_assert_eq(parse_at(&p, guard_tail(&g, frame, len), len), KARST_DROP_NONE, "%s: %s",
		karst_opcode_name(f->ib.opcode), karst_drop_name(p.drop));
	cr_assert_eq(p.len, len);
	cr_assert_eq(p.bth_off, bth);
	cr_assert_eq(p.pay_off, bth + karst_opcode_table[f->ib.opcode].hdr_len);
	cr_assert_eq(karst_pkt_pad(&p), -f->ib.pay_len & 3);
	cr_assert_eq(memcmp(p.data + p.pay_off, f->ib.pay, f->ib.pay_len), 0);
	sample_check_fields(&p, f);
	guard_free(&g);
}

/* All fields of all headers (W2, W3, W5, W6). */
Test(parse, every_opcode)
{
	for_each_frame(visit_fields);
}

static void
visit_padded(const struct karst_frame *f, const uint8_t *frame, unsigned int len)
{
	uint8_t buf[ROOM];
	struct karst_pkt p;

	memcpy(buf, frame, len);
	memset(buf + len, 0x77, 18);
	cr_assert_eq(parse_at(&p, buf, len + 18), KARST_DROP_NONE);
	cr_assert_eq(p.len, len, "bytes behind the IP packet are cut off");
	sample_check_fields(&p, f);
}

Test(parse, ethernet_padding_is_cut_off)
{
	for_each_frame(visit_padded);
}

/* Truncated by the receiver: the headers announce more than there is. */
static void
visit_cut(const struct karst_frame *f, const uint8_t *frame, unsigned int len)
{
	struct karst_pkt p;
	struct guard g;
	unsigned int n;

	guard_init(&g, len);
	for (n = 0; n < len; n++) {
		cr_assert_eq(parse_at(&p, guard_tail(&g, frame, n), n), KARST_DROP_RUNT,
			"%s at %u of %u: %s", karst_opcode_name(f->ib.opcode), n, len,
			karst_drop_name(p.drop));
		cr_assert_eq(parse_at(&p, guard_head(&g, frame, n), n), KARST_DROP_RUNT);
	}
	guard_free(&g);
}

/* The length covers the headers, or the packet is dropped (W9). */
Test(parse, cut_at_every_length)
{
	for_each_frame(visit_cut);
}

/* Lengths that match the truncation: IP and UDP lengths are those of what is there. */
static void
visit_honest_cut(const struct karst_frame *f, const uint8_t *frame, unsigned int len)
{
	unsigned int l3 = f->vlan ? 18 : 14, udp = l3 + (f->ip6 ? 40 : 20), n;
	unsigned int hdrs = udp + 8 + karst_opcode_table[f->ib.opcode].hdr_len;
	uint8_t buf[ROOM];
	struct karst_pkt p;
	struct guard g;

	guard_init(&g, len);
	for (n = udp + 8; n < len; n++) {
		unsigned int rest = n - hdrs - 4;
		enum karst_drop want;

		memcpy(buf, frame, n);
		karst_put_be16(buf + udp + 4, (uint16_t)(n - udp));
		if (f->ip6) {
			karst_put_be16(buf + l3 + 4, (uint16_t)(n - udp));
		} else {
			karst_put_be16(buf + l3 + 2, (uint16_t)(n - l3));
			sample_fix_ip4(buf + l3);
		}
		if (n < hdrs + 4)
			want = KARST_DROP_RUNT;
		else if (rest % 4 != 0 || rest < (buf[udp + 9] >> 4 & 3))
			want = KARST_DROP_PAD;
		else
			want = KARST_DROP_NONE;
		cr_assert_eq(parse_at(&p, guard_tail(&g, buf, n), n), want, "%s at %u of %u: %s",
			karst_opcode_name(f->ib.opcode), n, len, karst_drop_name(p.drop));
	}
	guard_free(&g);
}

Test(parse, cut_at_every_length_with_honest_claims)
{
	for_each_frame(visit_honest_cut);
}

/* --- drop reasons --- */

static uint8_t frame4[ROOM], frame6[ROOM];
static unsigned int len4, len6;

static void
base_frames(void)
{
	struct karst_frame f = sample_frame(KARST_RC_WRITE_ONLY, false, false, 6, 0);

	len4 = sample_build(frame4, sizeof(frame4), &f);
	f = sample_frame(KARST_RC_WRITE_ONLY, true, false, 6, 0);
	len6 = sample_build(frame6, sizeof(frame6), &f);
}

/* One frame with one byte changed, with its IPv4 checksum corrected if @fix. */
struct damage {
	const char *what;
	bool ip6, fix;
	uint16_t off;
	uint8_t value;
	enum karst_drop want;
};

#define IP   14
#define UDP4 34
#define BTH4 42
#define UDP6 54
#define BTH6 62

static const struct damage damages[] = {
	{"EtherType ARP", false, false, 13, 0x06, KARST_DROP_ETHERTYPE},
	{"EtherType 802.1ad", false, false, 12, 0x88, KARST_DROP_ETHERTYPE},
	{"EtherType IPv6 on IPv4", false, false, 12, 0x86, KARST_DROP_ETHERTYPE},
	{"IPv4 version", false, true, IP, 0x55, KARST_DROP_IP_HEADER},
	{"IPv4 options", false, true, IP, 0x46, KARST_DROP_IP_HEADER},
	{"IPv4 short header", false, true, IP, 0x44, KARST_DROP_IP_HEADER},
	{"IPv4 header checksum", false, false, IP + 10, 0x00, KARST_DROP_IP_HEADER},
	{"IPv4 TTL without checksum", false, false, IP + 8, 0x3f, KARST_DROP_IP_HEADER},
	{"IPv4 more fragments", false, true, IP + 6, 0x20, KARST_DROP_IP_FRAGMENT},
	{"IPv4 fragment offset high", false, true, IP + 6, 0x41, KARST_DROP_IP_FRAGMENT},
	{"IPv4 fragment offset low", false, true, IP + 7, 0x01, KARST_DROP_IP_FRAGMENT},
	{"IPv4 without DF", false, true, IP + 6, 0x00, KARST_DROP_NONE},
	{"IPv4 TTL", false, true, IP + 8, 0x01, KARST_DROP_NONE},
	{"IPv4 TCP", false, true, IP + 9, 6, KARST_DROP_NOT_UDP},
	{"IPv4 ICMP", false, true, IP + 9, 1, KARST_DROP_NOT_UDP},
	{"IPv4 longer than the frame", false, true, IP + 2, 0x01, KARST_DROP_RUNT},
	{"IPv4 shorter than its header", false, true, IP + 3, 19, KARST_DROP_RUNT},
	{"IPv4 shorter than UDP", false, true, IP + 3, 27, KARST_DROP_RUNT},
	{"IPv4 shorter than UDP says", false, true, IP + 3, 60, KARST_DROP_UDP_LENGTH},
	{"UDP port", false, false, UDP4 + 3, 0xb8, KARST_DROP_NOT_ROCE},
	{"UDP source port", false, false, UDP4, 0x01, KARST_DROP_NONE},
	{"UDP length short", false, false, UDP4 + 5, 24, KARST_DROP_UDP_LENGTH},
	{"UDP length long", false, false, UDP4 + 4, 1, KARST_DROP_UDP_LENGTH},
	{"UDP checksum", false, false, UDP4 + 6, 1, KARST_DROP_UDP_CHECKSUM},
	{"TVer", false, false, BTH4 + 1, 0x21, KARST_DROP_TVER},
	{"opcode RESYNC", false, false, BTH4, 0x15, KARST_DROP_OPCODE},
	{"opcode UC READ", false, false, BTH4, 0x2c, KARST_DROP_OPCODE},
	{"opcode of CNP's transport", false, false, BTH4, 0x80, KARST_DROP_OPCODE},
	{"opcode of transport 6", false, false, BTH4, 0xc4, KARST_DROP_OPCODE},
	{"opcode of transport 7", false, false, BTH4, 0xff, KARST_DROP_OPCODE},
	{"headers longer than the packet", false, false, BTH4, KARST_RC_CMP_SWAP, KARST_DROP_RUNT},
	{"payload behind a READ request", false, false, BTH4, KARST_RC_READ_REQUEST,
		KARST_DROP_PAD},
	{"payload behind an ACK", false, false, BTH4, KARST_RC_ACK, KARST_DROP_PAD},
	{"bytes behind a CNP", false, false, BTH4, KARST_CNP, KARST_DROP_NONE},
	{"pad count 3", false, false, BTH4 + 1, 0x30, KARST_DROP_NONE},
	{"IPv6 version", true, false, IP, 0x40, KARST_DROP_IP_HEADER},
	{"IPv6 fragment", true, false, IP + 6, 44, KARST_DROP_IP_FRAGMENT},
	{"IPv6 hop-by-hop", true, false, IP + 6, 0, KARST_DROP_NOT_UDP},
	{"IPv6 TCP", true, false, IP + 6, 6, KARST_DROP_NOT_UDP},
	{"IPv6 longer than the frame", true, false, IP + 4, 1, KARST_DROP_RUNT},
	{"IPv6 shorter than UDP", true, false, IP + 5, 7, KARST_DROP_RUNT},
	{"IPv6 without payload", true, false, IP + 5, 0, KARST_DROP_RUNT},
	{"IPv6 shorter than UDP says", true, false, IP + 5, 40, KARST_DROP_UDP_LENGTH},
	{"IPv6 hop limit", true, false, IP + 7, 1, KARST_DROP_NONE},
	{"IPv6 UDP port", true, false, UDP6 + 2, 0, KARST_DROP_NOT_ROCE},
	{"IPv6 UDP checksum", true, false, UDP6 + 7, 9, KARST_DROP_UDP_CHECKSUM},
	{"IPv6 TVer", true, false, BTH6 + 1, 0x2f, KARST_DROP_TVER},
	{"IPv6 opcode", true, false, BTH6, 0x78, KARST_DROP_OPCODE},
};

/* Each check of a frame on its own (W1, W2, W6, and W9 as far as it needs no queue pair). */
Test(parse, every_drop_reason, .init = base_frames)
{
	bool seen[KARST_DROP_MAX] = {false};
	uint8_t buf[ROOM];
	struct karst_pkt p;
	struct guard g;
	size_t i;

	guard_init(&g, ROOM);
	for (i = 0; i < KARST_DIM(damages); i++) {
		const struct damage *d = &damages[i];
		unsigned int len = d->ip6 ? len6 : len4;

		memcpy(buf, d->ip6 ? frame6 : frame4, len);
		cr_assert_neq(buf[d->off], d->value, "%s changes nothing", d->what);
		buf[d->off] = d->value;
		if (d->fix)
			sample_fix_ip4(buf + IP);
		parse_at(&p, guard_tail(&g, buf, len), len);
		cr_expect_eq(p.drop, d->want, "%s: %s", d->what, karst_drop_name(p.drop));
		seen[p.drop] = true;
	}
	for (i = KARST_DROP_NONE; i <= KARST_DROP_PAD; i++)
		cr_expect(seen[i], "%s was never reached", karst_drop_name((enum karst_drop)i));
	guard_free(&g);
}

/* PadCnt against the length of the payload (W6). */
Test(parse, pad_larger_than_payload)
{
	struct karst_frame f = sample_frame(KARST_RC_SEND_ONLY, false, false, 0, 0);
	uint8_t buf[ROOM];
	unsigned int len = sample_build(buf, sizeof(buf), &f), pad;
	struct karst_pkt p;

	for (pad = 1; pad <= 3; pad++) {
		buf[BTH4 + 1] = (uint8_t)(pad << 4);
		cr_expect_eq(parse_at(&p, buf, len), KARST_DROP_PAD);
	}
	f = sample_frame(KARST_RC_SEND_ONLY, false, false, 4, 0);
	len = sample_build(buf, sizeof(buf), &f);
	for (pad = 0; pad <= 3; pad++) {
		buf[BTH4 + 1] = (uint8_t)(pad << 4);
		cr_expect_eq(parse_at(&p, buf, len), KARST_DROP_NONE);
		cr_expect_eq(p.pay_len, 4 - pad);
		cr_expect_eq(karst_pkt_pad(&p), pad);
	}
}

Test(parse, one_tag_only)
{
	struct karst_frame f = sample_frame(KARST_RC_SEND_ONLY, false, true, 8, 0);
	uint8_t buf[ROOM], twice[ROOM];
	unsigned int len = sample_build(buf, sizeof(buf), &f), n;
	struct karst_pkt p;
	struct guard g;

	memcpy(twice, buf, 16);
	memcpy(twice + 16, buf + 12, len - 12);
	cr_expect_eq(parse_at(&p, twice, len + 4), KARST_DROP_ETHERTYPE);

	guard_init(&g, ROOM);
	for (n = 14; n < 18; n++)
		cr_expect_eq(parse_at(&p, guard_tail(&g, buf, n), n), KARST_DROP_RUNT);
	guard_free(&g);
}

/* 0 is no checksum on both; a right one passes; any single flipped bit does not (W1). */
static void
visit_udp_checksum(const struct karst_frame *f, const uint8_t *frame, unsigned int len)
{
	unsigned int udp = (f->vlan ? 18 : 14) + (f->ip6 ? 40 : 20), bit;
	uint8_t buf[ROOM];
	struct karst_pkt p;

	if (f->ib.pay_len > 5)
		return;
	memcpy(buf, frame, len);
	karst_build_udp_checksum(buf + udp, len - udp, f->ip6);
	cr_assert_neq(karst_get_be16(buf + udp + 6), 0);
	cr_assert_eq(
		parse_at(&p, buf, len), KARST_DROP_NONE, "%s", karst_opcode_name(f->ib.opcode));
	for (bit = 0; bit < (len - udp - 8) * 8; bit += 7) {
		buf[udp + 8 + bit / 8] ^= (uint8_t)(1 << bit % 8);
		cr_assert_eq(parse_at(&p, buf, len), KARST_DROP_UDP_CHECKSUM);
		buf[udp + 8 + bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

Test(parse, udp_checksum)
{
	for_each_frame(visit_udp_checksum);
}

/* A frame and its checksum, computed by hand. */
Test(parse, bytes_from_the_rules)
{
	static const uint8_t bytes[] = {/* Ethernet, tag 5 */
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 5, 8, 0,
		/* IPv4, 64 bytes, CE, DF, TTL 64, UDP; 192.0.2.1 to 192.0.2.2 */
		0x45, 0x03, 0, 68, 0, 1, 0x40, 0, 64, 17, 0xb6, 0xa0, 192, 0, 2, 1, 192, 0, 2, 2,
		/* UDP 49152 to 4791, 48 bytes, no checksum */
		0xc0, 0, 0x12, 0xb7, 0, 48, 0, 0,
		/* BTH: WRITE Only Imm, SE, MigReq, 2 pad, P_Key ffff, BECN, QP 17, AckReq, PSN */
		0x0b, 0xe0, 0xff, 0xff, 0x40, 0, 0, 0x11, 0x80, 0xab, 0xcd, 0xef,
		/* RETH */
		0, 0, 0x7f, 0x12, 0x34, 0x56, 0x78, 0x9a, 0, 0, 0x01, 0x02, 0, 0, 0, 2,
		/* ImmDt, payload, pad, ICRC */
		0xca, 0xfe, 0xba, 0xbe, 'h', 'i', 0, 0, 9, 9, 9, 9};
	uint8_t buf[sizeof(bytes)];
	struct karst_pkt p;

	memcpy(buf, bytes, sizeof(bytes));
	/* the IPv4 checksum is redone so that the table above stays easy to edit */
	sample_fix_ip4(buf + 18);
	cr_assert_eq(
		parse_at(&p, buf, sizeof(buf)), KARST_DROP_NONE, "%s", karst_drop_name(p.drop));
	cr_expect_eq(p.flags,
		KARST_PKT_VLAN | KARST_PKT_SE | KARST_PKT_ACKREQ | KARST_PKT_CE | KARST_PKT_BECN |
			KARST_PKT_MIGREQ);
	cr_expect_eq(p.opcode, KARST_RC_WRITE_ONLY_IMM);
	cr_expect_eq(p.pkey, 0xffff);
	cr_expect_eq(p.dqpn, 0x11);
	cr_expect_eq(p.psn, 0xabcdef);
	cr_expect_eq(p.va, 0x7f123456789a);
	cr_expect_eq(p.rkey, 0x102);
	cr_expect_eq(p.dma_len, 2);
	cr_expect_eq(p.imm, 0xcafebabe);
	cr_expect_eq(p.bth_off, 46);
	cr_expect_eq(p.pay_off, 46 + 12 + 16 + 4);
	cr_expect_eq(p.pay_len, 2);
	cr_expect_eq(karst_pkt_pad(&p), 2);
}

Test(parse, burst_agrees_with_one_by_one)
{
	enum { N = 37 };
	static uint8_t bufs[N][512];
	struct karst_pkt one[N], all[N], *ptrs[N];
	unsigned int i, n, want;

	for (n = 0; n <= N; n++) {
		want = 0;
		for (i = 0; i < n; i++) {
			struct karst_frame f =
				sample_frame(i % 3 ? KARST_RC_SEND_ONLY : KARST_UC_WRITE_ONLY,
					i & 1, i & 2, (uint16_t)(i * 3), i);
			unsigned int len = sample_build(bufs[i], sizeof(bufs[i]), &f);

			if (i % 5 == 4)
				bufs[i][12] ^= 0x55;
			want += parse_at(&one[i], bufs[i], len) == KARST_DROP_NONE;
			memset(&all[i], 0xee, sizeof(all[i]));
			all[i].data = bufs[i];
			all[i].len = (uint16_t)len;
			all[i].port = 3;
			ptrs[i] = &all[i];
		}
		cr_assert_eq(karst_parse_burst(ptrs, n), want);
		for (i = 0; i < n; i++)
			cr_assert_eq(memcmp(&one[i], &all[i], sizeof(one[i])), 0, "%u of %u", i, n);
	}
}

/* Invariants of every packet that the parser accepts. */
static void
check_accepted(const struct karst_pkt *p, unsigned int received)
{
	const struct karst_opcode_info *op = &karst_opcode_table[p->opcode];
	struct karst_frame f;

	cr_assert_leq(p->len, received);
	cr_assert_neq(op->flags, 0);
	cr_assert_eq(p->pay_off, p->bth_off + op->hdr_len);
	cr_assert_leq(karst_pkt_pad(p), 3);
	cr_assert_eq((p->pay_len + karst_pkt_pad(p)) % 4, 0);
	cr_assert_eq(p->pay_off + p->pay_len + karst_pkt_pad(p) + 4, p->len);
	karst_decode_frame(p, &f);
	sample_check_fields(p, &f);
}

/* Random damage, mostly to the headers: no bad read, and what is accepted is consistent. */
Test(parse, random_damage)
{
	uint64_t rng = 0x5eed;
	unsigned int i, accepted = 0, dropped[KARST_DROP_MAX] = {0};
	uint8_t buf[ROOM];
	struct karst_pkt p;
	struct guard g;

	guard_init(&g, 1024);
	for (i = 0; i < 400000; i++) {
		uint64_t r = sample_rand(&rng);
		uint8_t opcode = (uint8_t)r;
		struct karst_frame f = sample_frame(opcode, r >> 8 & 1, r >> 9 & 1,
			sample_takes_payload(opcode) ? r >> 10 & 63 : 0, (uint32_t)(r >> 16));
		unsigned int len, n, hits = 1 + (r >> 48 & 3);

		if (karst_opcode_flags(opcode) == 0)
			f.ib.opcode = KARST_RC_SEND_ONLY;
		len = sample_build(buf, sizeof(buf), &f);
		for (n = 0; n < hits; n++) {
			r = sample_rand(&rng);
			buf[r % karst_min_u32(len, 80)] = (uint8_t)(r >> 32);
		}
		if (!f.ip6 && !f.vlan && (r & 1 << 20))
			sample_fix_ip4(buf + 14);
		n = len - (r >> 40 & 7 ? 0 : r >> 44 & 15);
		parse_at(&p, r >> 63 ? guard_tail(&g, buf, n) : guard_head(&g, buf, n), n);
		if (p.drop == KARST_DROP_NONE) {
			check_accepted(&p, n);
			accepted++;
		}
		cr_assert_leq(p.drop, KARST_DROP_PAD);
		dropped[p.drop]++;
	}
	cr_expect_gt(accepted, 10000);
	for (i = KARST_DROP_NONE; i <= KARST_DROP_PAD; i++)
		cr_expect_gt(dropped[i], 0, "%s", karst_drop_name((enum karst_drop)i));
	guard_free(&g);
}

/* Random bytes behind a plausible start. */
Test(parse, noise)
{
	uint64_t rng = 0xbad;
	struct karst_pkt p;
	struct guard g;
	unsigned int i, j;

	guard_init(&g, 1024);
	for (i = 0; i < 200000; i++) {
		unsigned int n = sample_rand(&rng) % 256;
		uint8_t buf[256];

		for (j = 0; j < sizeof(buf); j += 8) {
			uint64_t r = sample_rand(&rng);

			memcpy(buf + j, &r, 8);
		}
		if (i & 1)
			memcpy(buf + 12, i & 2 ? "\x08\x00\x45" : "\x86\xdd\x60", 3);
		if (parse_at(&p, guard_tail(&g, buf, n), n) == KARST_DROP_NONE)
			check_accepted(&p, n);
	}
	guard_free(&g);
}
