/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Check one frame.  The engine's own parser parses it.  A frame that the parser rejects is
 * malformed if it was meant for the RoCE port, and belongs to another protocol otherwise.
 *
 * To rebuild a frame, it is decoded into plain fields and built from these alone: lengths,
 * checksums, pad and CRCs are computed again.  So a difference means a field that the decoder does
 * not know, a reserved bit that is set, or a wrong checksum.
 */
#include "judge.h"

#include "karst_build.h"
#include "karst_decode.h"
#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_opcode.h"
#include "karst_parse.h"

#define FRAME_MAX 65535

/*
 * The ICRC that Linux 6.12 computes for FLUSH (L7): it continues the CRC register of the right ICRC
 * over the UDP payload a second time, with nothing masked.
 */
static uint32_t
flush_quirk_icrc(uint32_t icrc, const uint8_t *bth, size_t len)
{
	return ~karst_crc_ops()->update(~icrc, bth, len);
}

static uint32_t
get_le32(const uint8_t *p)
{
	return __builtin_bswap32(karst_get_be32(p));
}

static void
put_le32(uint8_t *p, uint32_t v)
{
	karst_put_be32(p, __builtin_bswap32(v));
}

static void
judge_icrc(struct judge *j, const struct judge_options *opt)
{
	const struct karst_pkt *p = &j->pkt;
	unsigned int l3 = karst_pkt_l3_off(p);
	uint32_t quirk;

	j->icrc = get_le32(p->data + p->len - KARST_ICRC_LEN);
	j->icrc_want = karst_icrc_rocev2(
		p->data + l3, p->len - l3 - KARST_ICRC_LEN, (p->flags & KARST_PKT_IP6) != 0);
	j->icrc_is = j->icrc == j->icrc_want ? JUDGE_CRC_OK : JUDGE_CRC_BAD;
	if (j->icrc_is == JUDGE_CRC_OK || !(opt->quirks & JUDGE_QUIRK_FLUSH_ICRC) ||
		!(karst_opcode_flags(p->opcode) & KARST_OPF_FLUSH))
		return;
	quirk = flush_quirk_icrc(
		j->icrc_want, p->data + p->bth_off, p->len - p->bth_off - (size_t)KARST_ICRC_LEN);
	if (j->icrc == quirk) {
		j->icrc_want = quirk;
		j->icrc_is = JUDGE_CRC_QUIRK;
	}
}

static void
judge_compare(
	struct judge *j, const uint8_t *built, int built_len, const uint8_t *data, unsigned int len)
{
	unsigned int i = 0;

	j->rebuild = JUDGE_REBUILD_DIFFERENT;
	if (built_len < 0)
		return;
	while (i < len && i < (unsigned int)built_len && built[i] == data[i])
		i++;
	j->rebuild_off = i;
	if (i == len && i == (unsigned int)built_len)
		j->rebuild = JUDGE_REBUILD_SAME;
}

static void
rebuild_roce(struct judge *j)
{
	uint8_t buf[FRAME_MAX];
	int len = karst_build_frame(buf, sizeof(buf), &j->roce);

	if (len > 0) {
		unsigned int l3 = j->roce.vlan ? 18 : 14;
		unsigned int udp = l3 + (j->roce.ip6 ? KARST_IP6_LEN : KARST_IP4_LEN);
		size_t covered = (size_t)len - l3 - KARST_ICRC_LEN;
		uint32_t icrc = karst_icrc_rocev2(buf + l3, covered, j->roce.ip6);

		if (j->icrc_is == JUDGE_CRC_QUIRK)
			icrc = flush_quirk_icrc(icrc, buf + udp + KARST_UDP_LEN,
				(size_t)len - udp - KARST_UDP_LEN - KARST_ICRC_LEN);
		put_le32(buf + len - KARST_ICRC_LEN, icrc);
		if (j->roce.udp_checksum != 0)
			karst_build_udp_checksum(buf + udp, (size_t)len - udp, j->roce.ip6);
	}
	judge_compare(j, buf, len, j->pkt.data, j->pkt.len);
}

static void
judge_ethernet(const struct capture_frame *f, const struct judge_options *opt, struct judge *j)
{
	char text[160];

	j->pkt = (struct karst_pkt){
		.data = f->data, .len = (uint16_t)karst_min_u32(f->len, FRAME_MAX)};
	j->drop = karst_parse(&j->pkt);
	if (j->drop != KARST_DROP_NONE) {
		j->kind = judge_describe_other(f->data, f->len, text, sizeof(text))
			? JUDGE_MALFORMED
			: JUDGE_OTHER;
		return;
	}
	j->kind = JUDGE_ROCE;
	karst_decode_frame(&j->pkt, &j->roce);
	j->ib = &j->roce.ib;
	judge_icrc(j, opt);
	if (opt->rebuild)
		rebuild_roce(j);
}

static void
rebuild_native(struct judge *j, const uint8_t *data, unsigned int len)
{
	uint8_t buf[FRAME_MAX];
	int built = karst_build_native(buf, sizeof(buf), &j->native);

	if (built > 0) {
		size_t end = (size_t)built - KARST_VCRC_LEN;
		uint16_t vcrc;

		put_le32(buf + end - KARST_ICRC_LEN,
			karst_icrc_native(
				buf, end - KARST_ICRC_LEN, j->native.lnh == KARST_LNH_GLOBAL));
		vcrc = karst_vcrc(buf, end);
		buf[end] = (uint8_t)vcrc;
		buf[end + 1] = (uint8_t)(vcrc >> 8);
		if (j->vcrc_is == JUDGE_CRC_NONE)
			built -= KARST_VCRC_LEN;
	}
	judge_compare(j, buf, built, data, len);
}

static void
judge_native(const struct capture_frame *f, const struct judge_options *opt, struct judge *j)
{
	const uint8_t *p = f->data;
	uint32_t end;

	j->drop = f->known ? karst_decode_native(p, f->len, &j->native) : KARST_DROP_NOT_ROCE;
	if (j->drop != KARST_DROP_NONE) {
		j->kind = j->drop == KARST_DROP_NOT_ROCE ? JUDGE_OTHER : JUDGE_MALFORMED;
		return;
	}
	j->kind = JUDGE_NATIVE;
	j->ib = &j->native.ib;
	end = j->native.pkt_len * 4u;
	j->icrc = get_le32(p + end - KARST_ICRC_LEN);
	j->icrc_want =
		karst_icrc_native(p, end - KARST_ICRC_LEN, j->native.lnh == KARST_LNH_GLOBAL);
	j->icrc_is = j->icrc == j->icrc_want ? JUDGE_CRC_OK : JUDGE_CRC_BAD;
	if (f->len >= end + KARST_VCRC_LEN) { /* some captures omit the VCRC */
		j->vcrc = (uint16_t)(p[end] | p[end + 1] << 8);
		j->vcrc_want = karst_vcrc(p, end);
		j->vcrc_is = j->vcrc == j->vcrc_want ? JUDGE_CRC_OK : JUDGE_CRC_BAD;
		end += KARST_VCRC_LEN;
	}
	if (opt->rebuild)
		rebuild_native(j, p, end);
}

void
judge_frame(const struct capture_frame *f, const struct judge_options *opt, struct judge *j)
{
	memset(j, 0, sizeof(*j));
	if (f->link == CAPTURE_ETHERNET)
		judge_ethernet(f, opt, j);
	else
		judge_native(f, opt, j);
}

bool
judge_beginning(const struct capture_frame *f, uint8_t *whole, struct judge *j)
{
	static const struct judge_options none;
	struct capture_frame g = *f;

	if (f->wire_len > JUDGE_FRAME_MAX || f->len < 64)
		return false;
	memcpy(whole, f->data, f->len);
	memset(whole + f->len, 0, f->wire_len - f->len);
	g.data = whole;
	g.len = f->wire_len;
	judge_frame(&g, &none, j);
	j->icrc_is = JUDGE_CRC_NONE;
	if (j->ib != NULL && j->ib->pay > whole + f->len) { /* the cut is inside the headers */
		j->kind = JUDGE_MALFORMED;
		j->drop = KARST_DROP_RUNT;
		j->ib = NULL;
	}
	return j->ib != NULL;
}

bool
judge_damaged(const struct capture_frame *f, uint8_t *whole, struct judge *j)
{
	static const struct judge_options none;
	struct capture_frame g = *f;
	unsigned int udp;

	if (f->link != CAPTURE_ETHERNET || j->drop != KARST_DROP_UDP_CHECKSUM ||
		f->len > JUDGE_FRAME_MAX)
		return false;
	memcpy(whole, f->data, f->len);
	/*
	 * karst_parse() has accepted the headers: at most one tag, no options, no further headers
	 */
	udp = whole[12] == 0x81 ? 18 : 14;
	udp += whole[udp] >> 4 == 6 ? KARST_IP6_LEN : KARST_IP4_LEN;
	memset(whole + udp + 6, 0, 2);
	g.data = whole;
	judge_frame(&g, &none, j);
	return j->ib != NULL;
}

bool
judge_is_bad(const struct judge *j)
{
	return j->kind == JUDGE_MALFORMED || j->icrc_is == JUDGE_CRC_BAD ||
		j->vcrc_is == JUDGE_CRC_BAD || j->rebuild == JUDGE_REBUILD_DIFFERENT;
}
