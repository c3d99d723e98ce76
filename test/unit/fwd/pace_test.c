/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* When packets are sent, in virtual time; and how a rate is written. */
#include "pace.h"

#include <criterion/criterion.h>

#define HZ UINT64_C(2999999999) /* not a multiple of any rate or packet size here */

/* The number of packets that are sent in @seconds, with a call every @step cycles and @burst
 * packets at most. */
static uint64_t
packets(const char *rate, uint32_t share, uint32_t bytes, uint64_t seconds, uint64_t step,
	uint32_t burst)
{
	struct fwd_rate r;
	struct fwd_pace p;
	const char *why;
	uint64_t now, n = 0;
	uint32_t i;

	cr_assert_eq(fwd_rate_parse(rate, &r, &why), 0);
	fwd_pace_init(&p, &r, share, HZ, 0);
	for (now = 0; now < seconds * HZ; now += step)
		for (i = 0; i < burst && fwd_pace_due(&p, now); i++, n++)
			fwd_pace_sent(&p, bytes);
	cr_assert_eq(p.skipped, 0);
	return n;
}

/* Compares, except for the packets of the last call, which may be before or after the end. */
static void
expect(uint64_t n, uint64_t want)
{
	uint64_t slop = 1 + want / 500000;

	cr_assert(n + slop >= want && n <= want + slop, "%llu packets, and not %llu",
		(unsigned long long)n, (unsigned long long)want);
}

Test(fwd_pace, rates_are_exact)
{
	/* @bytes * 8 bits each; the first packet is sent at once */
	expect(packets("1Mbps", 1, 1250, 100, HZ / 977, 32), 10000);
	expect(packets("1Gbps", 1, 1250, 3, HZ / 49999, 32), 300000);
	expect(packets("1000pps", 1, 1, 100, HZ / 977, 32), 100000);
	expect(packets("400Gbps", 1, 5000, 1, HZ / 999983, 512), 10000000);
	expect(packets("1kbps", 1, 9000, 720, HZ / 7, 1), 10);
}

Test(fwd_pace, queues_share_a_rate)
{
	expect(packets("1Mbps", 4, 1250, 100, HZ / 977, 32), 2500);
	expect(packets("1pps", 1, 64, 1000, HZ / 7, 1), 1000);
	expect(packets("1pps", 2, 64, 1000, HZ / 7, 1), 500);
	expect(packets("1pps", 64, 64, 6400, HZ / 7, 1), 100);
	expect(packets("1kbps", 64, 125, 6400, HZ / 7, 1), 100);
}

/* After a late call more packets are sent, whatever the steps. */
Test(fwd_pace, no_drift)
{
	expect(packets("1Mbps", 1, 1250, 100, HZ / 2, 512), 10000);
}

Test(fwd_pace, what_is_too_late_is_given_up)
{
	struct fwd_rate r = {.unit = FWD_RATE_PACKETS, .value = 1000};
	struct fwd_pace p;
	uint64_t n = 0;

	fwd_pace_init(&p, &r, 1, HZ, 0);
	while (fwd_pace_due(&p, 10 * HZ)) {
		fwd_pace_sent(&p, 64);
		n++;
	}
	cr_assert(n >= 1000 && n <= 1001, "%llu", (unsigned long long)n); /* those of one second */
	cr_assert(p.skipped > 9 * HZ - HZ / 1000 && p.skipped < 9 * HZ + HZ / 1000);
}

Test(fwd_pace, max_is_always_due)
{
	struct fwd_rate r = {.unit = FWD_RATE_MAX};
	struct fwd_pace p;

	fwd_pace_init(&p, &r, 1, HZ, 5);
	cr_assert_not(fwd_pace_due(&p, 4));
	cr_assert(fwd_pace_due(&p, 5));
	fwd_pace_sent(&p, 9000);
	cr_assert(fwd_pace_due(&p, 5));
}

Test(fwd_pace, rates_as_text)
{
	static const char *const good[] = {
		"max", "1kbps", "2.5Mbps", "100Gbps", "1pps", "5kpps", "1.5Mpps", "1500bps"};
	static const char *const bad[] = {"", "0", "1", "Mbps", "-1Mbps", "1mbps", "999bps", "0pps",
		"0.5pps", "1Mbpsx", "0x10Mbps", "1e300Gbps", "nanMbps", "infGbps", " 1Mbps", "MAX"};
	char text[FWD_RATE_TEXT];
	struct fwd_rate r, again;
	const char *why;
	size_t i;

	for (i = 0; i < KARST_DIM(good); i++) {
		cr_assert_eq(fwd_rate_parse(good[i], &r, &why), 0, "%s", good[i]);
		fwd_rate_text(&r, text);
		cr_assert_eq(fwd_rate_parse(text, &again, &why), 0, "%s", text);
		cr_assert(
			r.unit == again.unit && r.value == again.value, "%s is %s", good[i], text);
	}
	for (i = 0; i < KARST_DIM(bad); i++) {
		why = NULL;
		cr_assert_eq(fwd_rate_parse(bad[i], &r, &why), -1, "%s", bad[i]);
		cr_assert_not_null(strstr(why, "allowed"));
	}
	cr_assert_eq(fwd_rate_parse("2.5Mbps", &r, &why), 0);
	cr_assert_eq(r.value, 2500000);
}
