/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Every CRC kernel that this machine runs, against a reference that works bit by bit.  Plain C
 * and TAP on stdout: it is built for other architectures and run under an emulator.
 *
 * The reference shares nothing with lib/crc: no tables, no folding, and its own idea of which
 * bytes of a frame are masked (W7).
 */
#include "karst_crc.h"
#include "karst_icrc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "karst_build.h"
#include "karst_counters.h"
#include "karst_parse.h"

#define LONGEST    9000u
#define EVERY_LEN  2200u /* all lengths up to here, then with gaps */
#define ALIGNMENTS 16u
#define FRAME_ROOM 4400u

static unsigned int points;
static unsigned int failures;

static void
point(bool good, const char *kernel, const char *what)
{
	failures += !good;
	printf("%sok %u - %s: %s\n", good ? "" : "not ", ++points, kernel, what);
	fflush(stdout);
}

static uint32_t
reference(uint32_t state, const uint8_t *p, size_t len)
{
	while (len-- > 0) {
		state ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			state = state >> 1 ^ (state & 1 ? 0xedb88320u : 0);
	}
	return state;
}

static uint32_t
reference_icrc(const uint8_t *frame, size_t l3, size_t len, bool ip6)
{
	uint8_t copy[8 + FRAME_ROOM];
	size_t udp = 8 + (ip6 ? 40 : 20);

	memset(copy, 0xff, 8);
	memcpy(copy + 8, frame + l3, len - l3 - 4);
	if (ip6) {
		copy[8] |= 0x0f;
		memset(copy + 9, 0xff, 3);
		copy[8 + 7] = 0xff;
	} else {
		copy[8 + 1] = 0xff;
		copy[8 + 8] = 0xff;
		memset(copy + 8 + 10, 0xff, 2);
	}
	memset(copy + udp + 6, 0xff, 2);
	copy[udp + 8 + 4] = 0xff;
	return ~reference(0xffffffffu, copy, len - l3 - 4 + 8);
}

/* xorshift: the same bytes on every machine */
static void
fill(uint8_t *p, size_t len, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;

	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = (uint8_t)(x >> 32);
	}
}

static size_t
next_len(size_t len)
{
	return len < EVERY_LEN ? len + 1 : len + 97;
}

static bool
check_update(const struct karst_crc_ops *ops, const uint8_t *buf)
{
	for (size_t len = 0; len <= LONGEST; len = next_len(len)) {
		size_t at = len % ALIGNMENTS;
		uint32_t state = (uint32_t)(len * 2654435761u);

		if (ops->update(state, buf + at, len) != reference(state, buf + at, len))
			return false;
	}
	return true;
}

static bool
check_copy(const struct karst_crc_ops *ops, const uint8_t *buf, uint8_t *dst)
{
	for (size_t len = 0; len <= LONGEST; len = next_len(len)) {
		size_t from = len % ALIGNMENTS, to = 1 + len / 3 % ALIGNMENTS;

		memset(dst, 0x5a, LONGEST + 64);
		if (ops->copy(~0u, dst + to, buf + from, len) != reference(~0u, buf + from, len) ||
			memcmp(dst + to, buf + from, len) != 0 || dst[to - 1] != 0x5a ||
			dst[to + len] != 0x5a)
			return false;
	}
	return true;
}

static bool
check_splits(const struct karst_crc_ops *ops, const uint8_t *buf)
{
	for (size_t len = 1; len <= 300; len++) {
		uint32_t whole = reference(~0u, buf, len);

		for (size_t cut = 0; cut <= len; cut += 1 + len / 40) {
			if (ops->update(ops->update(~0u, buf, cut), buf + cut, len - cut) != whole)
				return false;
		}
	}
	return true;
}

/* The headers of a WRITE Only with room for @pay_len bytes; returns the frame's length. */
static int
build(uint8_t *frame, uint16_t pay_len, bool ip6, bool vlan)
{
	struct karst_frame f = {
		.ip6 = ip6,
		.vlan = vlan,
		.tclass = 0x6b,
		.ttl = 3,
		.ip_frag = 0x4000,
		.flow_label = 0x12345,
		.sport = 0xc123,
		.dport = 4791,
		.ib = {.opcode = 0x0a, .becn = true, .pkey = 0xffff, .dqpn = 0x11, .psn = 0xabcdef},
	};

	f.ib.pay_len = pay_len;
	f.ib.dma_len = pay_len;
	fill(f.saddr, 16, 1);
	fill(f.daddr, 16, 2);
	return karst_build_frame(frame, FRAME_ROOM, &f);
}

/*
 * A frame whose payload comes from three pieces is sealed, compared with the reference, found
 * good, and found bad after one bit of what the ICRC covers has changed.
 */
static bool
check_frame(const uint8_t *buf, uint16_t pay_len, bool ip6, bool vlan)
{
	uint8_t room[64 + FRAME_ROOM];
	uint8_t *frame = room + 64;
	int len = build(frame, pay_len, ip6, vlan);
	unsigned int l3 = vlan ? 18 : 14, pad = -pay_len & 3;
	struct karst_pkt pkt = {.data = frame, .len = (uint16_t)len}, *pkts[1] = {&pkt};
	uint16_t third = pay_len / 3;
	struct karst_seg segs[3] = {
		{buf, third}, {buf + third, third}, {buf + 2 * third, pay_len - 2 * third}};
	struct karst_seal job = {.l3 = frame + l3, .segs = segs, .nsegs = 3, .ip6 = ip6};
	uint32_t icrc;
	size_t bit;

	if (len < 0)
		return false;
	job.pay = frame + len - 4 - pad - pay_len;
	job.pad = (uint8_t)pad;
	karst_icrc_seal_burst(&job, 1);
	icrc = reference_icrc(frame, l3, (size_t)len, ip6);
	if (memcmp(job.pay, buf, pay_len) != 0 ||
		memcmp(frame + len - 4, (uint8_t[]){icrc, icrc >> 8, icrc >> 16, icrc >> 24}, 4) !=
			0)
		return false;

	if (karst_parse(&pkt) != KARST_DROP_NONE || karst_icrc_verify_burst(pkts, 1) != 0)
		return false;
	/* one of the bits from the BTH's PSN on */
	bit = (pkt.bth_off + 9u) * 8 + (pay_len * 31u) % ((len - pkt.bth_off - 9u) * 8);
	frame[bit / 8] ^= 1u << bit % 8;
	return karst_icrc_verify_burst(pkts, 1) == 1 && pkt.drop == KARST_DROP_ICRC;
}

static bool
check_frames(const uint8_t *buf)
{
	for (uint16_t pay_len = 0; pay_len <= 4096; pay_len += pay_len < 300 ? 1 : 37) {
		for (unsigned int kind = 0; kind < 4; kind++) {
			if (!check_frame(buf, pay_len, kind & 1, kind & 2))
				return false;
		}
	}
	return true;
}

#define KNOWN 9 /* twice four and one */

/*
 * Frames of equal length, or of different ones, whose headers are known: their sums say which of
 * them has a wrong ICRC.
 */
static bool
check_known(const uint8_t *buf)
{
	static uint8_t frames[KNOWN][FRAME_ROOM];
	struct karst_icrc_known known;

	for (unsigned int round = 0; round < 800; round++) {
		unsigned int i, wrong = round % KNOWN;
		uint16_t pay_len = (uint16_t)(round / 2);

		for (i = 0; i < KNOWN; i++) {
			uint16_t len = (uint16_t)(round % 2 ? (pay_len + i * 52) % 400 : pay_len);
			uint32_t icrc;

			known.data[i] = frames[i];
			known.len[i] = (uint16_t)build(frames[i], len, false, false);
			memcpy(frames[i] + 70, buf + i, len);
			frames[i][53] = (uint8_t)round; /* PSN */
			icrc = reference_icrc(frames[i], 14, known.len[i], false);
			memcpy(frames[i] + known.len[i] - 4,
				(uint8_t[]){icrc, icrc >> 8, icrc >> 16, icrc >> 24}, 4);
		}
		frames[wrong][51 + round % (known.len[wrong] - 51u)] ^= 8;
		karst_icrc_known_sums(&known, KNOWN);
		for (i = 0; i < KNOWN; i++)
			if ((known.sum[i] == karst_icrc_known_sum(frames[i], known.len[i])) ==
				(i == wrong))
				return false;
	}
	return true;
}

static void
check_kernel(const struct karst_crc_ops *ops, const uint8_t *buf, uint8_t *dst)
{
	bool chosen = karst_crc_init(ops->name) == 0;

	point(chosen, ops->name, "known answers");
	if (!chosen)
		return;
	point(check_update(ops, buf), ops->name, "lengths and states");
	point(check_copy(ops, buf, dst), ops->name, "copy");
	point(check_splits(ops, buf), ops->name, "splits");
	point(check_frames(buf), ops->name, "frames sealed and verified");
	point(check_known(buf), ops->name, "frames of known headers");
}

int
main(void)
{
	uint8_t *buf = malloc(LONGEST + 64), *dst = malloc(LONGEST + 64);
	const struct karst_crc_ops *ops;
	bool runs_here;

	if (buf == NULL || dst == NULL)
		return 1;
	fill(buf, LONGEST + 64, 7);
	for (unsigned int i = 0; (ops = karst_crc_ops_at(i, &runs_here)) != NULL; i++) {
		if (runs_here)
			check_kernel(ops, buf, dst);
		else
			printf("ok %u - %s # SKIP not on this machine\n", ++points, ops->name);
	}
	printf("1..%u\n", points);
	free(buf);
	free(dst);
	return failures != 0;
}
