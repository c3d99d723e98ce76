/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The headers in front of a packet, bit by bit (W1, W2, L1). */
#include "harness.h"

static uint32_t
ones_sum(const uint8_t *p, unsigned int n)
{
	uint32_t sum = 0;

	for (; n > 1; n -= 2, p += 2)
		sum += (uint32_t)p[0] << 8 | p[1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Sends one SEND of @len bytes and returns its frame. */
static const uint8_t *
frame_of(struct bed *b, uint32_t len)
{
	post(b, SEND, 1, .len = len);
	return expect_pkt(b, RC_SEND_ONLY, S(0))->data;
}

/* (W1): IPv4: DF, no options, header checksum right, UDP checksum 0. */
Test(path, w1_ipv4)
{
	struct setup s = setup_of(KARST_QPT_RC);
	const uint8_t *f;
	struct bed *b;

	s.attr.path.tclass = 0xb9;
	s.attr.path.hop_limit = 7;
	s.attr.path.udp_sport = 0xc123;
	s.attr.pkey = 0x8042;
	b = bed_open(&s);
	f = frame_of(b, 5);
	cr_assert_arr_eq(f, s.attr.path.dst_mac, 6);
	cr_assert_arr_eq(f + 6, s.attr.path.src_mac, 6);
	cr_assert_eq(karst_get_be16(f + 12), 0x0800);
	cr_assert_eq(f[14], 0x45);
	cr_assert_eq(f[15], 0xb9);
	cr_assert_eq(karst_get_be16(f + 16), 20 + 8 + 12 + 8 + 4);
	cr_assert_eq(karst_get_be16(f + 20), 0x4000);
	cr_assert_eq(f[22], 7);
	cr_assert_eq(f[23], 17);
	cr_assert_eq(ones_sum(f + 14, 20), 0xffff);
	cr_assert_arr_eq(f + 26, s.attr.path.src_ip + 12, 4);
	cr_assert_arr_eq(f + 30, s.attr.path.dst_ip + 12, 4);
	cr_assert_eq(karst_get_be16(f + 34), 0xc123);
	cr_assert_eq(karst_get_be16(f + 36), 4791);
	cr_assert_eq(karst_get_be16(f + 38), 8 + 12 + 8 + 4);
	cr_assert_eq(karst_get_be16(f + 40), 0);
	/* (W2): BTH */
	cr_assert_eq(f[42], KARST_RC_SEND_ONLY);
	cr_assert_eq(f[43], 0x40 | 3 << 4); /* MigReq, pad count 3, version 0 */
	cr_assert_eq(karst_get_be16(f + 44), 0x8042);
	cr_assert_eq(karst_get_be32(f + 46), PEER_QPN);
	cr_assert_eq(karst_get_be32(f + 50), 0x80000000u | S(0));
	/* (W6): pad bytes are zero */
	cr_assert_eq(f[54 + 5] | f[54 + 6] | f[54 + 7], 0);
	bed_forget(b);
	bed_close(b);
}

/* (W1): the header checksum is right for addresses with which the sum of the constant part, 0x2fffe
 * or 0x2ffff here, has a second carry. */
Test(path, w1_checksum_carries_twice)
{
	static const uint8_t dst[] = {192, 168, 0, 1};
	unsigned int last;

	for (last = 154; last < 160; last++) {
		const uint8_t src[] = {192, 168, 185, (uint8_t)last};
		struct setup s = setup_of(KARST_QPT_RC);
		struct bed *b;

		s.attr.path.tclass = 0;
		s.attr.path.hop_limit = 64;
		memcpy(s.attr.path.src_ip + 12, src, 4);
		memcpy(s.attr.path.dst_ip + 12, dst, 4);
		b = bed_open(&s);
		cr_assert_eq(ones_sum(frame_of(b, 5) + 14, 20), 0xffff, "192.168.185.%u", last);
		bed_forget(b);
		bed_close(b);
	}
}

/* (E1): a program may ask for ECT; only the network may set CE. */
Test(path, e1_nobody_sends_ce)
{
	unsigned int ecn, ip6;

	for (ecn = 0; ecn < 8; ecn++) {
		struct setup s = setup_of(KARST_QPT_RC);
		uint8_t want = (uint8_t)((ecn & 3) == 3 ? 0xb8 : 0xb8 | (ecn & 3));
		const uint8_t *f;
		struct bed *b;

		ip6 = ecn >> 2;
		s.attr.path.tclass = (uint8_t)(0xb8 | (ecn & 3));
		s.attr.path.ip6 = ip6;
		s.attr.path.src_ip[0] = s.attr.path.dst_ip[0] = 0xfd;
		b = bed_open(&s);
		f = frame_of(b, 5);
		cr_assert_eq(ip6 ? karst_get_be16(f + 14) >> 4 & 0xff : f[15], want);
		bed_forget(b);
		bed_close(b);
	}
}

/* The checksum is right at every length, also where the sum carries twice. */
Test(path, w1_ipv4_checksum_at_every_length)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	memset(s.attr.path.src_ip + 12, 0xff, 4);
	memset(s.attr.path.dst_ip + 12, 0xff, 4);
	s.attr.path.tclass = 0xff;
	s.attr.path.hop_limit = 0xff;
	b = bed_open(&s);
	for (i = 0; i <= MTU; i++) {
		post(b, SEND, i, .len = i);
		cr_assert_eq(ones_sum(expect_pkt(b, RC_SEND_ONLY, S(i))->data + 14, 20), 0xffff);
		expect_taken(b, send_pkt(b, RC_ACK, S(i), .aeth = 0x1f000000 | (i + 1)));
		expect_wc(b, i, SUCCESS);
	}
	bed_close(b);
}

/* (W1): IPv6 behind an 802.1Q tag. */
Test(path, w1_ipv6_vlan)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_path *p = &s.attr.path;
	const uint8_t *f;
	struct bed *b;
	uint32_t i;

	for (i = 0; i < 16; i++) {
		p->src_ip[i] = (uint8_t)(0x20 + i);
		p->dst_ip[i] = (uint8_t)(0x40 + i);
	}
	p->ip6 = true;
	p->has_vlan = true;
	p->vlan_tci = 0xa064;
	p->tclass = 0x9e;
	p->flow_label = 0xabcde;
	b = bed_open(&s);
	f = frame_of(b, 8);
	cr_assert_eq(karst_get_be16(f + 12), 0x8100);
	cr_assert_eq(karst_get_be16(f + 14), 0xa064);
	cr_assert_eq(karst_get_be16(f + 16), 0x86dd);
	cr_assert_eq(karst_get_be32(f + 18), 6u << 28 | 0x9eu << 20 | 0xabcde);
	cr_assert_eq(karst_get_be16(f + 22), 8 + 12 + 8 + 4);
	cr_assert_eq(f[24], 17);
	cr_assert_eq(f[25], 64); /* hop limit by default (L1) */
	cr_assert_arr_eq(f + 26, p->src_ip, 16);
	cr_assert_arr_eq(f + 42, p->dst_ip, 16);
	/* the flow label, folded to 14 bits */
	cr_assert_eq(karst_get_be16(f + 58), 0xc000 | ((0xabcde & 0x3fff) ^ (0xabcde >> 14)));
	cr_assert_eq(karst_get_be16(f + 60), 4791);
	/* and back: an acknowledgement uses the same path (W9) */
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	cr_assert_eq(
		karst_get_be16(expect_pkt(b, RC_ACK, R(0))->data + 58), karst_get_be16(f + 58));
	bed_forget(b);
	bed_close(b);
}

/* (W1): the source port: constant for a QP, from 0xc000 on, derived from the QPNs. */
Test(path, w1_source_port)
{
	struct setup s = setup_of(KARST_QPT_RC);
	uint16_t port[4], i;
	unsigned int distinct = 0;
	struct bed *b;

	for (i = 0; i < 4; i++) {
		s.attr.dest_qpn = 0x10017 + i * 77;
		b = bed_open(&s);
		post(b, SEND, 1, .len = 4);
		post(b, RDMA_READ, 2, .len = 4);
		port[i] = karst_get_be16(expect_pkt(b, RC_SEND_ONLY, S(0))->data + 34);
		cr_assert_geq(port[i], 0xc000);
		cr_assert_eq(
			karst_get_be16(expect_pkt(b, RC_READ_REQUEST, S(1))->data + 34), port[i]);
		distinct += i > 0 && port[i] != port[i - 1];
		bed_forget(b);
		bed_close(b);
	}
	cr_assert_geq(distinct, 2);
}

/* (W2): MigReq by configuration. */
Test(path, w2_migreq)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.core.migreq = false;
	b = bed_open(&s);
	cr_assert_eq(frame_of(b, 4)[43], 0);
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	cr_assert_eq(expect_pkt(b, RC_ACK, R(0))->data[43], 0);
	bed_forget(b);
	bed_close(b);
}

static void
check_identification(const struct karst_pkt *pkt, uint32_t psn)
{
	const uint8_t *ip = pkt->data + 14;
	uint32_t sum = 0;
	unsigned int i;

	cr_assert_eq(karst_get_be16(ip + 4), psn & 0xffff);
	for (i = 0; i < 20; i += 2)
		sum += karst_get_be16(ip + i);
	cr_assert_eq((sum & 0xffff) + (sum >> 16), 0xffff);
}

/* (W11): IP identifications increase with the PSNs, and the header checksum matches. */
Test(path, w11_identification)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);
	unsigned int i;

	post(b, RDMA_WRITE, 1, .len = 5 * MTU);
	check_identification(expect_pkt(b, RC_WRITE_FIRST, S(0)), S(0));
	for (i = 1; i < 4; i++)
		check_identification(expect_pkt(b, RC_WRITE_MIDDLE, S(i)), S(i));
	check_identification(expect_pkt(b, RC_WRITE_LAST, S(4)), S(4));
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	check_identification(expect_pkt(b, RC_ACK, R(0)), R(0));
	bed_forget(b);
	bed_close(b);
}

/* A new path, set while drained, is used from the next packet on. */
Test(path, changed_while_drained)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);
	struct karst_core_qp_attr attr = s.attr;

	attr.path.dst_ip[15] = 77;
	attr.path.dst_mac[5] = 77;
	cr_assert_eq(bed_to_state(b, KARST_QPS_SQD), 0);
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_AV), 0);
	cr_assert_eq(bed_to_state(b, KARST_QPS_RTS), 0);
	/* (W9): packets of the old peer are dropped now */
	expect_drop(b, ADDRESS, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	b->path = attr.path;
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	cr_assert_eq(expect_pkt(b, RC_ACK, R(0))->data[33], 77);
	bed_close(b);
}

/* The largest frame fits into the largest buffer. */
Test(path, largest_frame)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_path *p = &s.attr.path;
	const struct karst_pkt *pkt;
	struct bed *b;

	p->ip6 = p->has_vlan = true;
	p->src_ip[0] = p->dst_ip[0] = 0x20;
	s.attr.path_mtu = 5;
	b = bed_open(&s);
	post(b, RDMA_WRITE_WITH_IMM, 1, .len = 4096);
	pkt = expect_pkt(b, RC_WRITE_ONLY_IMM, S(0));
	cr_assert_leq(pkt->len, KARST_FRAME_MAX);
	cr_assert_eq(pkt->len, 18 + 40 + 8 + 12 + 16 + 4 + 4096 + 4);
	expect_data(b, pkt, 0, 4096);
	bed_forget(b);
	bed_close(b);
}
