/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What the driver does to packets. */
#include "bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ring.h>

#include "impair.h"
#include "karst_hdr.h"

TestSuite(acts, .init = bed_eal, .timeout = HANG_S);

#define SECOND(how) "[rule a]\nnth = 2\n" how

/* "-3" and so on: the parser's reason, enum karst_drop. */
static const struct bed_case cases[] = {
	{"duplicate", SECOND("action = duplicate\n"), "11:1 11:2 11:3", "11:1 11:2 11:2 11:3"},
	{"copies", SECOND("action = duplicate\ncopies = 3\n"), "11:1 11:2 11:3",
		"11:1 11:2 11:2 11:2 11:2 11:3"},
	{"a segmented one is duplicated", SECOND("action = duplicate\n"), "c11:1 c11:2 c11:3",
		"11:1 11:2 11:2 11:3"},
	{"payload", SECOND("action = corrupt\n"), "11:1 11:2 11:3", "11:1 11:2! 11:3"},
	{"payload, repaired", SECOND("action = corrupt\nrepair = yes\n"), "11:1 11:2 11:3",
		"11:1 11:2* 11:3"},
	{"no payload", SECOND("action = corrupt\n"), "a11:1 a11:2 a11:3", "a11:1 a11:2 a11:3"},
	{"PSN", SECOND("action = corrupt\npart = header\noffset = 11\nmask = 4\n"),
		"11:1 11:2 11:3", "11:1 11:6! 11:3"},
	{"PSN, repaired",
		SECOND("action = corrupt\npart = header\noffset = 11\nmask = 4\nrepair = yes\n"),
		"a11:1 a11:2 a11:3", "a11:1 a11:6 a11:3"},
	{"ICRC", SECOND("action = corrupt\npart = icrc\n"), "a11:1 a11:2 a11:3",
		"a11:1 a11:2! a11:3"},
	{"of segments", SECOND("action = corrupt\n"), "c11:1 c11:2 c11:3", "11:1 11:2! 11:3"},
	{"of segments, repaired", SECOND("action = corrupt\nrepair = yes\n"), "c11:1 c11:2 c11:3",
		"11:1 11:2* 11:3"},
	{"behind the part", SECOND("action = corrupt\npart = header\noffset = 12\n"), "11:1 11:2",
		"11:1 11:2"},
	{"marked", SECOND("action = mark\n"), "11:1 11:2 11:3", "11:1 11:2^ 11:3"},
	{"IPv6 and tags, marked", "[rule a]\naction = mark\n", "s11:1 v11:2 c11:3",
		"s11:1^ v11:2^ 11:3^"},
	{"truncated and repaired", SECOND("action = truncate\nbytes = 6\nrepair = yes\n"),
		"11:1 11:2 11:3", "11:1 11:2* 11:3"},
	{"more than there is", SECOND("action = truncate\nbytes = 65\nrepair = yes\n"),
		"11:1 11:2 11:3", "11:1 11:2 11:3"},
	{"nothing left", SECOND("action = truncate\nbytes = 2000\n"), "11:1 11:2 11:3",
		"11:1 11:2 11:3"},
	{"reorder", SECOND("action = reorder\ntime_us = 60000000\n"), "11:1 11:2 21:9 11:3 11:4",
		"11:1 21:9 11:3 11:2 11:4"},
	{"reorder by three", SECOND("action = reorder\npackets = 3\ntime_us = 60000000\n"),
		"11:1 11:2 11:3\n11:4\n11:5 11:6", "11:1 11:3 11:4 11:5 11:2 11:6"},
	{"hold", SECOND("action = hold\npackets = 2\n"), "11:1 11:2 x 21:9 11:3",
		"11:1 x 21:9 11:2 11:3"},
	{"held ones keep their order",
		"[rule a]\naction = hold\npackets = 1\nqpn = 0x11\nnth = 1,2\n", "11:1 11:2 21:3",
		"21:3 11:1 11:2"},
};

Test(acts, received)
{
	bed_cases(cases, RTE_DIM(cases), true);
}

Test(acts, sent)
{
	bed_cases(cases, RTE_DIM(cases), false);
}

/* The one frame that results from @word. */
static struct rte_mbuf *
one_frame(const char *word)
{
	struct rte_mbuf *m = bed_frame(word);

	cr_assert_eq(rte_ring_enqueue(bed.in, m), 0);
	cr_assert_eq(rte_eth_rx_burst(bed.port, 0, &m, 1), 1);
	return m;
}

Test(acts, truncated)
{
	struct rte_mbuf *m = bed_frame("11:1");
	uint32_t whole = m->pkt_len;

	rte_pktmbuf_free(m);
	bed_open("[rule a]\naction = truncate\nbytes = 25\n", "");
	m = one_frame("11:1");
	cr_expect_eq(m->pkt_len, whole - 25);
	cr_expect_eq(m->data_len, whole - 25);
	rte_pktmbuf_free(m);
	m = one_frame("c11:1"); /* of 23 bytes each */
	cr_expect_eq(m->pkt_len, whole - 25);
	cr_expect_eq(m->nb_segs, (whole - 25 + 22) / 23);
	cr_expect_eq(rte_pktmbuf_lastseg(m)->data_len, (whole - 25) % 23);
	rte_mbuf_sanity_check(m, 1);
	rte_pktmbuf_free(m);
	bed_close();
}

/* A buffer with more references is not written to: a copy is. */
static void
shared_buffer(const char *action)
{
	char rules[128], text[128] = "", kept_text[128] = "";
	struct rte_mbuf *m = bed_frame("11:1"), *clone;

	snprintf(rules, sizeof(rules), "[rule a]\naction = %s\n", action);
	bed_open(rules, "");
	clone = rte_pktmbuf_clone(m, bed.pool);
	cr_assert_eq(rte_eth_tx_burst(bed.port, 0, &clone, 1), 1);
	cr_assert_eq(rte_ring_dequeue(bed.out, (void **)&clone), 0);
	bed_describe(text, clone);
	bed_describe(kept_text, m);
	cr_expect_str_eq(kept_text, "11:1");
	cr_expect_str_neq(text, "11:1", "%s", action);
	rte_pktmbuf_free(clone);
	rte_pktmbuf_free(m);
	bed_close();
}

Test(acts, shared_buffers)
{
	shared_buffer("corrupt");
	shared_buffer("mark");
	shared_buffer("truncate");
}

/* Checksum flags of a device do not stay on a frame whose bytes were changed. */
Test(acts, checksum_flags)
{
	struct rte_mbuf *m;

	bed_open("[rule a]\naction = corrupt\n", "");
	m = bed_frame("11:1");
	m->ol_flags |= RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
	cr_assert_eq(rte_ring_enqueue(bed.in, m), 0);
	cr_assert_eq(rte_eth_rx_burst(bed.port, 0, &m, 1), 1);
	cr_expect_eq(m->ol_flags & (RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK), 0u);
	cr_expect_eq(m->port, bed.port);
	rte_pktmbuf_free(m);
	bed_close();
}

/* All 256 values of the field with some checksums: a marked header's checksum is right. */
Test(acts, mark_checksums)
{
	unsigned int tos, n;

	bed_open("[rule a]\naction = mark\n", "");
	for (tos = 0; tos < 256; tos++)
		for (n = 0; n < 5; n++) {
			struct rte_mbuf *m = bed_frame("11:1");
			uint8_t *ip = rte_pktmbuf_mtod_offset(m, uint8_t *, 14);
			uint32_t sum = 0, i;

			ip[1] = (uint8_t)tos;
			karst_put_be16(ip + 4, (uint16_t)(n * 16381)); /* identification */
			ip[10] = ip[11] = 0;
			for (i = 0; i < 20; i += 2)
				sum += karst_get_be16(ip + i);
			sum = (sum & 0xffff) + (sum >> 16);
			karst_put_be16(ip + 10, (uint16_t) ~((sum & 0xffff) + (sum >> 16)));
			cr_assert_eq(rte_ring_enqueue(bed.in, m), 0);
			cr_assert_eq(rte_eth_rx_burst(bed.port, 0, &m, 1), 1);
			ip = rte_pktmbuf_mtod_offset(m, uint8_t *, 14);
			for (i = 0, sum = 0; i < 20; i += 2)
				sum += karst_get_be16(ip + i);
			sum = (sum & 0xffff) + (sum >> 16);
			cr_assert_eq((sum & 0xffff) + (sum >> 16), 0xffffu, "tos %u, %u", tos, n);
			cr_assert_eq(ip[1], (uint8_t)(tos | 3));
			rte_pktmbuf_free(m);
		}
	bed_close();
}

/* --- time --- */

static void
wait_for(const char *want, bool rx)
{
	const char *got;

	do {
		got = bed_pass(rx, "");
	} while (got[0] == '\0');
	cr_expect_str_eq(got, want);
}

/* Whether this thread had no processor for so long since @began that a later packet may have
 * arrived. */
static bool
is_over(uint64_t began, unsigned int ms)
{
	return rte_rdtsc() - began >= rte_get_tsc_hz() / 1000 * ms;
}

/* Checks that the packet is not there before its time by the driver's own clock, and is there
 * afterwards.  @return false: there was no poll before its time */
static bool
late_once(const char *rules, bool rx)
{
	const char *got;
	uint64_t began, waiting;

	bed_open(rules, "");
	began = rte_rdtsc();
	got = bed_pass(rx, "11:1 11:2");
	waiting = bed_xstat(rx ? "rx_waiting" : "tx_waiting");
	if (is_over(began, 20)) {
		bed_close();
		return false;
	}
	cr_expect_str_eq(got, "11:1");
	cr_expect_eq(waiting, 1u);
	wait_for("11:2", rx);
	cr_expect(is_over(began, 20));
	cr_expect_eq(bed_xstat(rx ? "rx_released" : "tx_released"), 1u);
	cr_expect_eq(bed_xstat(rx ? "rx_waiting" : "tx_waiting"), 0u);
	cr_expect_eq(bed_log_count("its time has come"), 1u, "%s", bed_log());
	bed_close();
	return true;
}

static void
late(const char *rules, bool rx)
{
	while (!late_once(rules, rx))
		continue;
}

Test(acts, later)
{
	late(SECOND("action = delay\ndelay_us = 20000\n"), true);
	late(SECOND("action = delay\ndelay_us = 20000\n"), false);
	late(SECOND("action = hold\ntime_us = 20000\n"), true);
	late(SECOND("action = hold\ntime_us = 20000\npackets = 9\n"), false);
	late(SECOND("action = reorder\n"), true);
}

/* @return false: there was no poll before the longer delay was over */
static bool
delays_once(void)
{
	const char *got;
	uint64_t began;
	bool over;

	bed_open("[rule a]\naction = delay\ndelay_us = 40000\nqpn = 0x11\n"
		 "[rule b]\naction = delay\ndelay_us = 1\nqpn = 0x21\n",
		"");
	began = rte_rdtsc();
	cr_expect_str_eq(bed_pass_once(true, "11:1 11:2 21:3 21:4"), "");
	got = bed_pass(true, "");
	over = is_over(began, 40);
	if (!over) {
		cr_expect_str_eq(got, "21:3 21:4");
		wait_for("11:1 11:2", true);
	}
	bed_close();
	return !over;
}

/* The packet with the shorter delay leaves first; of equal delays the first one that arrived. */
Test(acts, order_of_delays)
{
	while (!delays_once())
		continue;
}

/* A limited number of packets is held; the others pass, which the log says. */
Test(acts, held_is_bounded)
{
	char words[1024] = "";
	unsigned int i;

	bed_open("[rule a]\naction = delay\ndelay_us = 60000000\n", ",held=16");
	for (i = 0; i < 20; i++)
		sprintf(words + strlen(words), "11:%u ", i);
	cr_expect_str_eq(bed_pass(true, words), "11:16 11:17 11:18 11:19");
	cr_expect_eq(bed_xstat("rx_delay"), 16u);
	cr_expect_eq(bed_xstat("rx_spared"), 4u);
	cr_expect_eq(bed_log_count("\"event\":\"spared\""), 4u);
	cr_expect_eq(bed_log_count("as many wait as may"), 4u);
	/* stopping the port frees all of them */
	rte_eth_dev_stop(bed.port);
	cr_expect_eq(bed_xstat("rx_discarded"), 16u);
	cr_expect_eq(bed_log_count("\"event\":\"discarded\""), 16u);
	bed_close();
}

/* 8 kb/s: of three packets the first passes, the second waits for its bytes, the third would wait
 * too long. */
Test(acts, rate)
{
	bed_open("[rule a]\naction = rate\nrate_kbps = 8\nqueue_us = 150000\n", "");
	cr_expect_str_eq(bed_pass_once(true, "11:1 11:2 11:3 11:4"), "11:1");
	cr_expect_eq(bed_xstat("rx_waiting"), 1u);
	cr_expect_eq(bed_log_count("\"dropped\":true"), 2u, "%s", bed_log());
	cr_expect_eq(bed_xstat("rx_rate"), 3u);
	cr_expect_eq(bed_xstat("rx_rate_dropped"), 2u);
	wait_for("11:2", true);
	bed_close();
}

/* That many bytes pass at once. */
Test(acts, rate_burst)
{
	bed_open("[rule a]\naction = rate\nrate_kbps = 8\nburst_bytes = 300\nqueue_us = 1\n", "");
	/* 122 bytes each: the third one starts within 300, and the next one does not */
	cr_expect_str_eq(bed_pass_once(true, "11:1 11:2 11:3 11:4"), "11:1 11:2 11:3");
	bed_close();
}

/* --- room --- */

/* Packets beyond what the caller asked for come with the next bursts, in order. */
Test(acts, more_than_asked_for)
{
	char words[1024] = "", want[8192] = "", got[8192] = "";
	struct rte_mbuf *m[4];
	uint16_t n, i;

	bed_open("[rule a]\naction = duplicate\ncopies = 2\n", "");
	for (i = 0; i < 10; i++) {
		struct rte_mbuf *f;

		snprintf(words, sizeof(words), "11:%u", i);
		f = bed_frame(words);
		cr_assert_eq(rte_ring_enqueue(bed.in, f), 0);
		for (n = 0; n < 3; n++)
			sprintf(want + strlen(want), "%s11:%u", want[0] != '\0' ? " " : "", i);
	}
	while ((n = rte_eth_rx_burst(bed.port, 0, m, 4)) > 0)
		for (i = 0; i < n; i++) {
			bed_describe(got, m[i]);
			rte_pktmbuf_free(m[i]);
		}
	cr_expect_str_eq(got, want);
	bed_close();
}

/* Packets that the port below does not accept stay the caller's; they are sent once more, and count
 * once. */
Test(acts, port_below_is_full)
{
	static void *filler[8192];
	struct rte_mbuf *m[8];
	unsigned int room, i;
	char word[32], got[512] = "";
	uint16_t sent;

	bed_open("[rule a]\naction = drop\nnth = 2, 7\n", "");
	room = rte_ring_free_count(bed.out) - 2;
	for (i = 0; i < room; i++)
		filler[i] = &filler[i];
	cr_assert_eq(rte_ring_enqueue_bulk(bed.out, filler, room, NULL), room);
	for (i = 0; i < 8; i++) {
		snprintf(word, sizeof(word), "11:%u", i + 1);
		m[i] = bed_frame(word);
	}
	/* 1 and 3 fit, 2 and 7 are dropped; the rest is returned */
	sent = rte_eth_tx_burst(bed.port, 0, m, 8);
	cr_assert_eq(sent, 4u, "%u", sent);
	cr_expect_eq(rte_eth_tx_burst(bed.port, 0, m + sent, 4), 0u);
	for (i = 0; i < room; i++)
		cr_assert_eq(rte_ring_dequeue(bed.out, &filler[i]), 0);
	cr_assert_eq(rte_eth_tx_burst(bed.port, 0, m + sent, 4), 4u);
	while (rte_ring_dequeue(bed.out, (void **)&m[0]) == 0) {
		bed_describe(got, m[0]);
		rte_pktmbuf_free(m[0]);
	}
	cr_expect_str_eq(got, "11:1 11:3 11:4 11:5 11:6 11:8");
	cr_expect_eq(bed_xstat("tx_drop"), 2u);
	bed_close();
}

/* Without a buffer for a copy the packet passes unchanged, which is counted. */
Test(acts, no_buffers)
{
	static struct rte_mbuf *all[BUFS];
	struct rte_mbuf *m = bed_frame("11:1"), *got[4];
	unsigned int n = 0;

	bed_open("[rule a]\naction = duplicate\n", "");
	cr_assert_eq(rte_ring_enqueue(bed.in, m), 0);
	while ((all[n] = rte_pktmbuf_alloc(bed.pool)) != NULL)
		n++;
	cr_expect_eq(rte_eth_rx_burst(bed.port, 0, got, 4), 1);
	cr_expect_eq(bed_xstat("rx_spared"), 1u);
	cr_expect_eq(bed_log_count("no buffer"), 1u);
	rte_pktmbuf_free(got[0]);
	rte_pktmbuf_free_bulk(all, n);
	bed_close();
}
