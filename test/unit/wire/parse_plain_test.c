/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Untagged frames over IPv4 have a fast path through the parser.  With a tag inserted, the same
 * frame takes the general path: both must give the same result, whatever was changed in the frame.
 */
#include <criterion/criterion.h>

#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_parse.h"
#include "sample.h"

#define PLAIN_ROOM 512

static struct karst_pkt
parsed(uint8_t *data, unsigned int len)
{
	struct karst_pkt p;

	memset(&p, 0xee, sizeof(p));
	p.data = data;
	p.len = (uint16_t)len;
	karst_parse(&p);
	return p;
}

/* @return the result of both. */
static enum karst_drop
check_both(struct guard *g, const uint8_t *frame, unsigned int len)
{
	uint8_t tagged[PLAIN_ROOM + KARST_VLAN_LEN];
	unsigned int addresses = karst_min_u32(len, 12);
	struct karst_pkt a = parsed(guard_tail(g, frame, len), len), b;

	memcpy(tagged, frame, addresses);
	memcpy(tagged + 12, "\x81\x00\x00\x05", KARST_VLAN_LEN);
	memcpy(tagged + 12 + KARST_VLAN_LEN, frame + addresses, len - addresses);
	b = parsed(tagged, len + KARST_VLAN_LEN);
	cr_assert_eq(a.drop, b.drop, "%s, with a tag %s", karst_drop_name(a.drop),
		karst_drop_name(b.drop));
	if (a.drop != KARST_DROP_NONE)
		return a.drop;
	b.data = a.data;
	b.len -= KARST_VLAN_LEN;
	b.bth_off -= KARST_VLAN_LEN;
	b.pay_off -= KARST_VLAN_LEN;
	cr_assert_eq(b.flags & ~KARST_PKT_VLAN, a.flags);
	b.flags = a.flags;
	cr_assert_eq(memcmp(&a, &b, sizeof(a)), 0);
	return KARST_DROP_NONE;
}

Test(parse_plain, agrees_on_damage)
{
	unsigned int i, n, seen[KARST_DROP_MAX] = {0};
	uint64_t rng = 0x914;
	uint8_t buf[PLAIN_ROOM];
	struct guard g;

	guard_init(&g, 1024);
	for (i = 0; i < 400000; i++) {
		uint64_t r = sample_rand(&rng);
		uint8_t op = karst_opcode_flags((uint8_t)r) != 0 ? (uint8_t)r : KARST_RC_SEND_ONLY;
		struct karst_frame f = sample_frame(op, false, false,
			sample_takes_payload(op) ? r >> 10 & 127 : 0, (uint32_t)(r >> 16));
		unsigned int len = sample_build(buf, sizeof(buf), &f), hits = r >> 48 & 3;
		unsigned int kept = len - (r >> 50 & 7 ? 0 : r >> 53 & 63);

		for (n = 0; n < hits; n++) {
			r = sample_rand(&rng);
			buf[12 + r % 44] ^= (uint8_t)(r >> 40 & 1 ? 1u << (r >> 41 & 7) : r >> 32);
		}
		if (r >> 60 & 1)
			sample_fix_ip4(buf + 14);
		if (karst_get_be16(buf + 12) != 0x8100)
			seen[check_both(&g, buf, karst_min_u32(len, kept))]++;
	}
	for (i = KARST_DROP_NONE; i <= KARST_DROP_PAD; i++)
		cr_expect_gt(seen[i], 0, "%s", karst_drop_name((enum karst_drop)i));
	cr_expect_gt(seen[KARST_DROP_NONE], 50000);
	guard_free(&g);
}

/* RFC 1071: exactly one of all checksums is right, or both zeros of one's complement are. */
Test(parse_plain, every_ip_checksum)
{
	uint64_t rng = 0x1071;
	uint8_t buf[PLAIN_ROOM];
	struct guard g;

	guard_init(&g, 1024);
	for (unsigned int round = 0; round < 8; round++) {
		struct karst_frame f = sample_frame(
			KARST_RC_SEND_ONLY, false, false, 8, (uint32_t)sample_rand(&rng));
		unsigned int len, good = 0;
		uint16_t right;

		if (round & 1) /* sums that carry out of any word */
			memset(f.saddr, 0xff, 4);
		if (round & 2)
			memset(f.daddr, 0xff, 4);
		len = sample_build(buf, sizeof(buf), &f);
		if (round & 4)
			memset(buf + 18, 0, 4); /* identification, flags */
		sample_fix_ip4(buf + 14);
		right = karst_get_be16(buf + 24);

		if (round == 0) {
			/* the rest of the header sums to all ones: 0 and 0xffff are right */
			karst_put_be16(buf + 24, 0);
			karst_put_be16(buf + 18, (uint16_t)(karst_get_be16(buf + 18) + right));
			if (karst_get_be16(buf + 18) < right)
				karst_put_be16(buf + 18, (uint16_t)(karst_get_be16(buf + 18) + 1));
		}
		for (unsigned int sum = 0; sum <= UINT16_MAX; sum++) {
			karst_put_be16(buf + 24, (uint16_t)sum);
			good += check_both(&g, buf, len) == KARST_DROP_NONE;
		}
		cr_assert_eq(good, round == 0 ? 2 : 1, "%u", round);
	}
	guard_free(&g);
}
