/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Which packets are hit: every selector, in both directions, shown by packets that are dropped. */
#include "bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

TestSuite(hits, .init = bed_eal, .timeout = HANG_S);

#define EIGHT     "11:1 11:2 11:3 11:4 11:5 11:6 11:7 11:8"
#define DROP(how) "[rule a]\naction = drop\n" how

static const struct bed_case cases[] = {
	{"none", "", EIGHT " x", EIGHT " x"},
	{"all", DROP(""), "x " EIGHT " x 21:1", "x x"},
	{"nth", DROP("nth = 2, 5\n"), EIGHT, "11:1 11:3 11:4 11:6 11:7 11:8"},
	{"nth over bursts", DROP("nth = 2, 5\n"), "11:1\n11:2\n11:3 11:4\n11:5 11:6",
		"11:1 11:3 11:4 11:6"},
	{"others are not counted", DROP("nth = 2\n"), "x 11:1 x 11:2 x", "x 11:1 x x"},
	{"others are not counted, before the turn comes", DROP("nth = 5\n"),
		"x s11:1 x\nv11:2 x c11:3\nx\n11:4 x\n11:5 11:6",
		"x s11:1 x v11:2 x 11:3 x 11:4 x 11:6"},
	{"several that count",
		"[rule a]\naction = drop\nnth = 3, 9\n[rule b]\naction = mark\nevery = 4\n",
		"11:1 11:2\n11:3\n11:4 11:5 11:6\n11:7\n11:8 11:9\n11:10 11:11\n11:12",
		"11:1 11:2 11:4^ 11:5 11:6 11:7 11:8^ 11:10 11:11 11:12^"},
	{"nth of a QP", DROP("qpn = 0x11\nnth = 2\n"), "21:1 11:7 21:2 11:8 11:9",
		"21:1 11:7 21:2 11:9"},
	{"nth of each QP", DROP("nth = 2\nper = qpn\n"), "21:1 11:7 21:2 11:8 11:9 31:3",
		"21:1 11:7 11:9 31:3"},
	{"every", DROP("every = 3\n"), EIGHT, "11:1 11:2 11:4 11:5 11:7 11:8"},
	{"every of each QP", DROP("every = 2\nper = qpn\n"), "11:1 21:1 11:2 21:2 11:3 21:3 11:4",
		"11:1 21:1 11:3 21:3"},
	{"count", DROP("every = 2\ncount = 2\n"), EIGHT, "11:1 11:3 11:5 11:6 11:7 11:8"},
	{"QPs", DROP("qpn = 0x20-0x2f,0x41\n"), "1f:1 20:1 2f:1 30:1 41:1 42:1", "1f:1 30:1 42:1"},
	{"many QPs", DROP("qpn = 0x20-0x12000\n"), "1f:1 20:1 11fff:1 12000:1 12001:1",
		"1f:1 12001:1"},
	{"a QP among those that look like it", DROP("qpn = 0x10011\n"),
		"11:1 10011:2 20011:3 10111:4 10012:5 10011:6", "11:1 20011:3 10111:4 10012:5"},
	{"more QPs than are told apart", DROP("qpn = 0x20-0x20020\n"),
		"1f:1 20:1 8020:1 20020:1 20021:1", "1f:1 20021:1"},
	{"PSNs", DROP("psn = 2-3,7\n"), EIGHT, "11:1 11:4 11:5 11:6 11:8"},
	{"PSNs that wrap", DROP("psn = 0xfffffe-1\n"),
		"11:16777213 11:16777214 11:16777215 11:0 11:1 11:2", "11:16777213 11:2"},
	{"source ports", DROP("source_ports = 0x8002\n"), "p11:1 p11:2 p11:15 p11:16 p11:17 11:1",
		"p11:2 p11:16 11:1"},
	{"a source port, and the turn of one", DROP("source_ports = 0x2\nnth = 2\n"),
		"11:1 p11:2 p11:1 p11:3 p11:17 p11:33", "11:1 p11:2 p11:1 p11:3 p11:33"},
	{"opcode", DROP("opcode = RC_WRITE_*,RC_ACK\n"), "w11:1 11:2 a11:3 m11:4 r11:5 u11:6",
		"11:2 m11:4 r11:5 u11:6"},
	{"first", DROP("transmission = first\n"), "11:5 11:6 11:5 11:5 11:7 11:6",
		"11:5 11:5 11:6"},
	{"again", DROP("transmission = again\n"), "11:5 11:6 11:5 11:5 11:7 11:6",
		"11:5 11:6 11:7"},
	{"2nd retransmission", DROP("transmission = 2\n"), "11:5 11:6 11:5 11:5 11:5 11:6 11:6",
		"11:5 11:6 11:5 11:5 11:6"},
	{"retransmissions of a PSN", DROP("psn = 6\ntransmission = 1\n"),
		"11:5 11:6 11:5 11:6 11:6", "11:5 11:6 11:5 11:6"},
	{"PSNs that were skipped are seen for the first time", DROP("transmission = again\n"),
		"11:5 11:9 11:7 11:7", "11:5 11:9 11:7"},
	{"retransmissions wrap", DROP("transmission = again\n"),
		"11:16777215 11:0 11:16777215 11:1", "11:16777215 11:0 11:1"},
	{"responses have PSNs of their own", DROP("transmission = again\n"),
		"11:5 a11:5 11:6 a11:6 a11:6", "11:5 a11:5 11:6 a11:6"},
	{"QPs have PSNs of their own", DROP("transmission = again\n"), "11:5 21:5 11:5",
		"11:5 21:5"},
	{"a QP that was reset begins anew", DROP("transmission = again\n"),
		"11:9000 11:9001 11:100 11:101 11:100", "11:9000 11:9001 11:100 11:101"},
	{"a CNP, whose PSN is 0, does not reset its QP", DROP("transmission = again\n"),
		"11:5000 11:5001 11:5002 n11:0 n11:0 11:5001",
		"11:5000 11:5001 11:5002 n11:0 n11:0"},
	{"the first rule that hits wins, all count",
		"[rule a]\naction = drop\nnth = 2\n[rule b]\naction = mark\nnth = 2,3\n", EIGHT,
		"11:1 11:3^ 11:4 11:5 11:6 11:7 11:8"},
	{"IPv6 and tags", DROP("psn = 2\n"), "s11:1 s11:2 v11:1 v11:2 v11:3", "s11:1 v11:1 v11:3"},
	{"segments", DROP("psn = 2\n"), "c11:1 c11:2 c11:3", "11:1 11:3"},
	{"a time that has not come", DROP("from_ms = 1000000000\n"), EIGHT, EIGHT},
	{"a time that is now", DROP("until_ms = 1000000000\nnth = 1\n"), "11:1 11:2", "11:2"},
	{"certain", DROP("chance = 1\nqpn = 0x11\n"), "11:1 21:2", "21:2"},
};

Test(hits, received)
{
	bed_cases(cases, RTE_DIM(cases), true);
}

Test(hits, sent)
{
	bed_cases(cases, RTE_DIM(cases), false);
}

Test(hits, direction)
{
	bed_open("[rule a]\naction = drop\ndirection = rx\nnth = 1\n"
		 "[rule b]\naction = drop\ndirection = tx\nnth = 2\n",
		"");
	cr_expect_str_eq(bed_pass(true, "11:1 11:2 11:3"), "11:2 11:3");
	cr_expect_str_eq(bed_pass(false, "11:1 11:2 11:3"), "11:1 11:3");
	cr_expect_eq(bed_xstat("rx_drop"), 1u);
	cr_expect_eq(bed_xstat("tx_drop"), 1u);
	cr_expect_eq(bed_xstat("rule_a"), 1u);
	cr_expect_eq(bed_xstat("rule_b"), 1u);
	bed_close();
}

/* The rule's millisecond starts with the queue. */
Test(hits, a_time_that_is_over)
{
	bed_open(DROP("until_ms = 1\n"), "");
	rte_delay_us(2000);
	cr_expect_str_eq(bed_pass(true, EIGHT), EIGHT);
	bed_close();
}

#define MANY 4000u

/* Writes which of MANY packets are lost, as text of '0' and '1'. */
static void
losses(char to[MANY + 1], const char *rules, unsigned int burst)
{
	char words[16384];
	const char *at;
	unsigned int i, k;

	memset(to, '1', MANY);
	to[MANY] = '\0';
	bed_open(rules, "");
	for (i = 0; i < MANY; i += burst) {
		size_t n = 0;

		for (k = i; k < i + burst && k < MANY; k++)
			n += (size_t)sprintf(words + n, "11:%u ", k);
		for (at = bed_pass(true, words); (at = strstr(at, "11:")) != NULL; at += 3)
			to[atoi(at + 3)] = '0';
	}
	bed_close();
}

static unsigned int
ones(const char *text)
{
	unsigned int n = 0;

	for (; *text != '\0'; text++)
		n += *text == '1';
	return n;
}

/* With the same seed the same packets are lost, whatever the bursts; with another seed, others. */
Test(hits, lots_by_seed)
{
	char a[MANY + 1], b[MANY + 1], c[MANY + 1], d[MANY + 1];

	losses(a, "[impair]\nseed = 5\n" DROP("chance = 0.05\n"), 32);
	losses(b, "[impair]\nseed = 5\n" DROP("chance = 0.05\n"), 7);
	losses(c, "[impair]\nseed = 6\n" DROP("chance = 0.05\n"), 32);
	losses(d, "[impair]\nseed = 5\n" DROP("chance = 0.05\nseed = 1\n"), 32);
	cr_expect_str_eq(a, b);
	cr_expect_str_neq(a, c);
	cr_expect_str_neq(a, d);
	/* the random numbers are always the same, so this cannot fail by chance */
	cr_expect(ones(a) > 150 && ones(a) < 250, "%u", ones(a));
	cr_expect(ones(c) > 150 && ones(c) < 250, "%u", ones(c));
}

/* With a million flows, flows lose their history, and memory use stays limited. */
Test(hits, flows_are_bounded)
{
	char words[64];
	unsigned int i;

	bed_open("[impair]\nflows = 16\n" DROP("transmission = again\nqpn = 0x11-0xfffff\n"), "");
	for (i = 0; i < 500; i++) {
		snprintf(words, sizeof(words), "%x:7", 0x10020 + i);
		cr_expect_str_eq(bed_pass(true, words), words);
	}
	cr_expect_geq(bed_xstat("rx_flows_evicted"), 500u - 16);
	cr_expect_str_eq(bed_pass(true, "11:1 11:1"), "11:1");
	bed_close();
}
