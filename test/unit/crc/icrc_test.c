/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * ICRC of RoCEv2: frames of a real peer, each masked and each unmasked bit, sealing of all kinds of
 * segments, and bursts.
 */
#include <criterion/criterion.h>

#include "icrc_frames.h"
#include "karst_counters.h"
#include "karst_icrc.h"
#include "reference.h"

#define IP6  KARST_PKT_IP6
#define VLAN KARST_PKT_VLAN

static struct karst_pkt
packet(uint8_t *frame, size_t len, unsigned int flags)
{
	return (struct karst_pkt){.data = frame, .len = (uint16_t)len, .flags = (uint8_t)flags};
}

static bool
verifies(struct karst_pkt pkt)
{
	struct karst_pkt *pkts[] = {&pkt};
	unsigned int wrong = karst_icrc_verify_burst(pkts, 1);

	cr_assert_eq(pkt.drop, wrong ? KARST_DROP_ICRC : KARST_DROP_NONE);
	return wrong == 0;
}

Test(icrc, captured)
{
	uint8_t frame[128];

	for (unsigned int k = 0; ref_kernel(k) != NULL; k++) {
		for (unsigned int i = 0; i < ICRC_FRAMES; i++) {
			const struct icrc_frame *c = &icrc_frames[i];
			struct karst_pkt p = packet(frame, c->len, c->flags);
			unsigned int l3 = karst_pkt_l3_off(&p);
			uint32_t icrc;

			memcpy(frame, c->bytes, c->len);
			cr_assert(verifies(p), "%s", c->name);
			memcpy(&icrc, frame + c->len - 4, 4);
			cr_assert_eq(icrc,
				karst_icrc_rocev2(frame + l3, c->len - 4u - l3, c->flags & IP6));
			cr_assert_eq(icrc, ref_icrc(frame + l3, c->len - 4u - l3, c->flags & IP6));
		}
	}
}

/* A changed bit is detected, unless it is one of those that the network may change (W7). */
Test(icrc, every_bit)
{
	uint8_t frame[128];

	for (unsigned int k = 0; ref_kernel(k) != NULL; k++) {
		for (unsigned int i = 0; i < ICRC_FRAMES * sizeof(frame) * 8; i++) {
			const struct icrc_frame *c = &icrc_frames[i / 8 / sizeof(frame)];
			struct karst_pkt p = packet(frame, c->len, c->flags);
			unsigned int off = i / 8 % sizeof(frame), bit = i % 8;
			unsigned int l3 = karst_pkt_l3_off(&p);
			bool covered;

			if (off >= c->len)
				continue;
			covered = off >= l3 &&
				(off >= c->len - 4u ||
					!(ref_icrc_mask(off - l3, c->flags & IP6) >> bit & 1));
			memcpy(frame, c->bytes, c->len);
			frame[off] ^= (uint8_t)(1u << bit);
			cr_assert_eq(
				verifies(p), !covered, "%s: bit %u of byte %u", c->name, bit, off);
		}
	}
}

/* --- frames whose header sums are known --- */

#define KNOWN_PLACE 2304

/* A frame of random headers over IPv4 and @tail bytes behind the BTH, with its ICRC. */
static uint32_t
known_frame(uint8_t *frame, uint32_t tail, uint64_t *seed)
{
	uint32_t len = 54 + tail + 4, i, icrc;

	for (i = 0; i < len; i++)
		frame[i] = (uint8_t)ref_rand(seed);
	icrc = ref_icrc(frame + 14, len - 18, false);
	memcpy(frame + len - 4, &icrc, 4);
	return len;
}

/* Copies @frame, changes what may differ from packet to packet, and sets another payload. */
static void
known_like(uint8_t *like, const uint8_t *frame, uint32_t len, uint64_t *seed)
{
	uint32_t i;

	memcpy(like, frame, 54);
	like[18] = (uint8_t)ref_rand(seed);
	like[19] = (uint8_t)ref_rand(seed);
	like[50] ^= ref_rand(seed) & 0x80;
	for (i = 51; i < len; i++)
		like[i] = (uint8_t)ref_rand(seed);
}

/* Flips a bit that the ICRC covers and that may differ, or one behind the BTH. */
static void
known_damage(uint8_t *frame, uint32_t len, uint64_t *seed)
{
	static const uint8_t may[] = {18, 19, 51, 52, 53};
	uint32_t at = 54 + ref_rand(seed) % (len - 54);

	if (ref_rand(seed) % 2)
		at = may[ref_rand(seed) % KARST_DIM(may)];
	frame[at] ^= (uint8_t)(1u << ref_rand(seed) % 8);
}

/* @return a bit for each of the first @n whose sum differs from that of a right frame, which is
 * @right. */
static uint64_t
known_wrong(struct karst_icrc_known *known, const uint32_t *right, unsigned int n)
{
	uint64_t wrong = 0;

	memset(known->sum, 0xa5, sizeof(known->sum));
	karst_icrc_known_sums(known, n);
	for (unsigned int i = 0; i < n; i++)
		wrong |= (uint64_t)(known->sum[i] != right[i]) << i;
	return wrong;
}

static uint32_t
known_any_tail(uint64_t *seed, uint32_t usual)
{
	switch (ref_rand(seed) % 8) {
	case 0:
		return 4 + ref_rand(seed) % 500 * 4;
	case 1:
	case 2:
		return 4 + ref_rand(seed) % 66 * 4;
	default:
		return usual;
	}
}

/* Bursts of any number of frames, any of which are wrong: exactly these are found. */
Test(icrc, known)
{
	static uint8_t frames[KARST_ICRC_KNOWN * KNOWN_PLACE], like[KNOWN_PLACE];
	uint64_t seed = 7;

	for (unsigned int k = 0; ref_kernel(k) != NULL; k++) {
		for (unsigned int round = 0; round < 400; round++) {
			unsigned int i, n = ref_rand(&seed) % (KARST_ICRC_KNOWN + 1);
			uint32_t usual = 4 + ref_rand(&seed) % 66 * 4;
			uint32_t right[KARST_ICRC_KNOWN];
			struct karst_icrc_known known;
			uint64_t want = 0;

			for (i = 0; i < n; i++) {
				uint8_t *f = frames + i * KNOWN_PLACE + ref_rand(&seed) % 64;
				uint32_t len = known_frame(
					f, round % 2 ? usual : known_any_tail(&seed, usual), &seed);

				known_like(like, f, len, &seed);
				known.data[i] = f;
				known.len[i] = (uint16_t)len;
				right[i] = karst_icrc_known_sum(like, len);
				if (ref_rand(&seed) % 8 == 0) {
					known_damage(f, len, &seed);
					want |= UINT64_C(1) << i;
				}
			}
			cr_assert_eq(known_wrong(&known, right, n), want, "%s: %u of %u",
				karst_crc_ops()->name, round, n);
		}
	}
}

/* Every bit that may differ or is behind the BTH, in every place of four frames, for every tail
 * length. */
Test(icrc, known_every_bit)
{
	struct ref_guard g = ref_guard_open(4096);
	uint8_t others[3][512], like[512];
	uint64_t seed = 8;

	for (unsigned int k = 0; ref_kernel(k) != NULL; k++) {
		for (uint32_t tail = 4; tail <= 268; tail += tail < 140 ? 4 : 16) {
			uint32_t i, bit, place = tail / 4 % 4, len = 58 + tail;
			uint8_t *f = ref_tail(&g, len);
			struct karst_icrc_known known;
			uint32_t right[4];

			for (i = 0; i < 4; i++) {
				uint8_t *one = i == place ? f : others[i < place ? i : i - 1];

				known_frame(one, tail, &seed);
				known_like(like, one, len, &seed);
				known.data[i] = one;
				known.len[i] = (uint16_t)len;
				right[i] = karst_icrc_known_sum(like, len);
			}
			cr_assert_eq(known_wrong(&known, right, 4), 0);
			for (bit = 18 * 8; bit < len * 8; bit++) {
				bool differs = bit < 20 * 8 || bit >= 51 * 8 || bit == 50 * 8 + 7;

				if (!differs)
					continue;
				f[bit / 8] ^= (uint8_t)(1u << bit % 8);
				cr_assert_eq(known_wrong(&known, right, 4), 1u << place,
					"%s: bit %u, tail %u", karst_crc_ops()->name, bit, tail);
				f[bit / 8] ^= (uint8_t)(1u << bit % 8);
			}
		}
	}
	ref_guard_close(&g);
}

/*
 * Every length up to 300, at both ends of accessible memory: alone, as one of four of its length,
 * and among others of 64 bytes of payload.  Lengths that cannot be a frame are left out, and do not
 * affect other frames.
 */
Test(icrc, known_lengths)
{
	struct ref_guard g = ref_guard_open(4096), h = ref_guard_open(4096);
	uint8_t usual[122], like[512];
	uint64_t seed = 9;

	known_frame(usual, 64, &seed);
	for (unsigned int k = 0; ref_kernel(k) != NULL; k++) {
		uint32_t usual_right = karst_icrc_known_sum(usual, sizeof(usual));

		for (uint32_t len = 0; len <= 300; len++) {
			bool is_frame = len >= KARST_ICRC_KNOWN_LEN_MIN && len % 4 == 2;
			uint8_t *places[] = {g.first, ref_tail(&h, len)};
			uint32_t right[8] = {0}, n, i, at;

			for (i = 0; i < 2 && is_frame; i++)
				known_frame(places[i], len - 58, &seed);
			for (n = 1; n <= 8; n++) {
				for (at = 0; at < n; at++) {
					struct karst_icrc_known known;
					uint64_t looked_at = 0;

					for (i = 0; i < n; i++) {
						bool one = n == 4 || i == at;

						known.data[i] = one ? places[i % 2] : usual;
						known.len[i] =
							(uint16_t)(one ? len : sizeof(usual));
						if (one && is_frame) {
							known_like(like, known.data[i], len, &seed);
							right[i] = karst_icrc_known_sum(like, len);
						} else {
							right[i] = usual_right;
						}
						looked_at |= (uint64_t)(!one || is_frame) << i;
					}
					cr_assert_eq(known_wrong(&known, right, n) & looked_at, 0,
						"%s: %u of %u, length %u", karst_crc_ops()->name,
						at, n, len);
				}
			}
		}
	}
	ref_guard_close(&g);
	ref_guard_close(&h);
}

/* A frame to be sealed: @hdr bytes from the IP header to the payload. */
struct sealing {
	unsigned int flags, hdr, pay_len;
	struct karst_seg segs[6];
	unsigned int nsegs;
};

static unsigned int
l3_off(const struct sealing *s)
{
	return s->flags & VLAN ? 18 : 14;
}

static size_t
sealed_len(const struct sealing *s)
{
	return l3_off(s) + s->hdr + s->pay_len + (-s->pay_len & 3) + 4;
}

static struct karst_seal
job_of(const struct sealing *s, uint8_t *frame)
{
	return (struct karst_seal){
		.l3 = frame + l3_off(s),
		.pay = frame + l3_off(s) + s->hdr,
		.segs = s->segs,
		.nsegs = (uint16_t)s->nsegs,
		.pad = -s->pay_len & 3,
		.ip6 = (s->flags & IP6) != 0,
	};
}

static void
check_sealed(const struct sealing *s, uint8_t *frame)
{
	const uint8_t *l3 = frame + l3_off(s), *p = l3 + s->hdr;
	size_t len = sealed_len(s);
	uint32_t icrc;

	for (unsigned int i = 0; i < s->nsegs; i++) {
		if (s->segs[i].len > 0)
			cr_assert_eq(memcmp(p, s->segs[i].src, s->segs[i].len), 0);
		p += s->segs[i].len;
	}
	while (p < frame + len - 4)
		cr_assert_eq(*p++, 0, "pad");
	memcpy(&icrc, p, 4);
	cr_assert_eq(icrc, ref_icrc(l3, (size_t)(p - l3), s->flags & IP6),
		"%s: %u bytes behind %u of headers, flags %u", karst_crc_ops()->name, s->pay_len,
		s->hdr, s->flags);
	cr_assert(verifies(packet(frame, len, s->flags)));
}

/* Sealed at both ends of a frame buffer that traps accesses outside of it. */
static void
seal_at_edges(const struct ref_guard *g, const struct sealing *s, const uint8_t *headers)
{
	uint8_t *places[] = {g->first, ref_tail(g, sealed_len(s))};

	for (unsigned int i = 0; i < KARST_DIM(places); i++) {
		struct karst_seal job = job_of(s, places[i]);

		memcpy(places[i], headers, l3_off(s) + s->hdr);
		memset(job.pay, 0xee, sealed_len(s) - l3_off(s) - s->hdr);
		karst_icrc_seal_burst(&job, 1);
		cr_assert_eq(memcmp(places[i], headers, l3_off(s) + s->hdr), 0);
		check_sealed(s, places[i]);
	}
}

/* All lengths of a payload in one segment, for headers of every possible length. */
Test(icrc, seal_one_segment)
{
	struct ref_guard frame = ref_guard_open(4400), source = ref_guard_open(4400);
	uint8_t headers[160];

	ref_fill(headers, sizeof(headers), 1);
	ref_fill(source.first, source.room, 2);
	for (unsigned int k = 0; ref_kernel(k) != NULL; k++) {
		for (unsigned int len = 0; len <= 4096; len += len < 260 ? 1
				: len < 4000                             ? 131
									 : 12) {
			for (unsigned int ext = 0; ext <= 52; ext += 4) {
				struct sealing s = {.pay_len = len, .nsegs = 1};

				s.flags = (ext & 8 ? VLAN : 0) | ((ext + len) & 4 ? IP6 : 0);
				s.hdr = (s.flags & IP6 ? 40 : 20) + 8 + 12 + ext;
				s.segs[0] = (struct karst_seg){
					ext & 16 ? ref_tail(&source, len) : source.first, len};
				seal_at_edges(&frame, &s, headers);
			}
		}
	}
	ref_guard_close(&frame);
	ref_guard_close(&source);
}

/* Any number of segments of any length, empty ones among them. */
Test(icrc, seal_scattered)
{
	struct ref_guard frame = ref_guard_open(4400);
	static uint8_t source[8192];
	uint8_t headers[160];
	uint64_t seed = 3;

	ref_fill(headers, sizeof(headers), 4);
	ref_fill(source, sizeof(source), 5);
	for (unsigned int k = 0; ref_kernel(k) != NULL; k++) {
		for (unsigned int round = 0; round < 3000; round++) {
			struct sealing s = {.nsegs = ref_rand(&seed) % 6};
			unsigned int most = ref_rand(&seed) % 2 ? 90 : 800;

			s.flags =
				(ref_rand(&seed) & 1 ? VLAN : 0) | (ref_rand(&seed) & 1 ? IP6 : 0);
			s.hdr = (s.flags & IP6 ? 40 : 20) + 8 + 12 + ref_rand(&seed) % 14 * 4;
			for (unsigned int i = 0; i < s.nsegs; i++) {
				uint32_t len = ref_rand(&seed) % 4 ? ref_rand(&seed) % most : 0;

				s.segs[i].src = len > 0 ? source + ref_rand(&seed) % 4096 : NULL;
				s.segs[i].len = len;
				s.pay_len += len;
			}
			seal_at_edges(&frame, &s, headers);
		}
	}
	ref_guard_close(&frame);
}

/* In a burst each packet is judged for itself, and a packet that is dropped already is skipped. */
Test(icrc, bursts)
{
	enum { BURST = 37 };
	static uint8_t frames[BURST][1500], source[1500];
	struct sealing s[BURST];
	struct karst_seal jobs[BURST];
	struct karst_pkt pkts[BURST], *list[BURST];
	uint64_t seed = 6;

	ref_fill(source, sizeof(source), 7);
	for (unsigned int k = 0; ref_kernel(k) != NULL; k++) {
		for (unsigned int i = 0; i < BURST; i++) {
			unsigned int len = ref_rand(&seed) % 1000;

			s[i] = (struct sealing){
				.flags = i % 3 ? 0 : IP6, .pay_len = len, .nsegs = 1};
			s[i].hdr = (i % 3 ? 20 : 40) + 8 + 12 + 16;
			s[i].segs[0] = (struct karst_seg){source + i, len};
			ref_fill(frames[i], sizeof(frames[i]), i);
			jobs[i] = job_of(&s[i], frames[i]);
		}
		karst_icrc_seal_burst(jobs, 0);
		karst_icrc_seal_burst(jobs, BURST);
		for (unsigned int i = 0; i < BURST; i++) {
			check_sealed(&s[i], frames[i]);
			pkts[i] = packet(frames[i], sealed_len(&s[i]), s[i].flags);
			list[i] = &pkts[i];
			if (i % 5 == 1)
				pkts[i].drop = KARST_DROP_TVER;
			if (i % 4 == 1)
				frames[i][sealed_len(&s[i]) - 1] ^= 0x80;
		}
		cr_assert_eq(karst_icrc_verify_burst(list, 0), 0);
		cr_assert_eq(karst_icrc_verify_burst(list, BURST), 7);
		for (unsigned int i = 0; i < BURST; i++)
			cr_assert_eq(pkts[i].drop,
				i % 5 == 1           ? KARST_DROP_TVER
					: i % 4 == 1 ? KARST_DROP_ICRC
						     : KARST_DROP_NONE);
	}
}

/* A single packet of any length, with no memory before it and none behind. */
Test(icrc, lone_packet)
{
	struct ref_guard g = ref_guard_open(1000);

	ref_fill(g.first, g.room, 8);
	for (unsigned int k = 0; ref_kernel(k) != NULL; k++) {
		for (size_t len = 0; len < 1000; len++) {
			const uint8_t *tail = ref_tail(&g, len);
			bool ip6 = len / 4 & 1;

			cr_assert_eq(
				karst_icrc_rocev2(g.first, len, ip6), ref_icrc(g.first, len, ip6));
			cr_assert_eq(karst_icrc_rocev2(tail, len, ip6), ref_icrc(tail, len, ip6));
		}
	}
	ref_guard_close(&g);
}
