/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Flows, and how PSNs are classified (P1). */
#include "flows.h"

#include <criterion/criterion.h>

#include "karst_build.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_parse.h"

static struct fwd_flows flows;
static uint8_t frame[512];

/* The fields to which such a frame is parsed. */
static struct karst_pkt
parsed(const struct karst_frame *f)
{
	int len = karst_build_frame(frame, sizeof(frame), f);
	struct karst_pkt p = {.data = frame, .len = (uint16_t)len};

	cr_assert_gt(len, 0);
	cr_assert_eq(karst_parse(&p), KARST_DROP_NONE);
	return p;
}

static struct karst_frame
plain(uint8_t opcode, uint32_t qpn, uint32_t psn)
{
	return (struct karst_frame){.saddr = {192, 0, 2, 1},
		.daddr = {192, 0, 2, 2},
		.ttl = 64,
		.dport = KARST_ROCE_UDP_PORT,
		.ib = {.opcode = opcode, .dqpn = qpn, .psn = psn}};
}

static struct fwd_flow *
flow_at(uint32_t qpn)
{
	struct karst_frame f = plain(KARST_RC_SEND_ONLY, qpn, 0);
	struct karst_pkt p = parsed(&f);

	return fwd_flow_of(&flows, &p, 0);
}

static enum fwd_psn
see(uint8_t opcode, uint32_t psn)
{
	struct karst_frame f = plain(opcode, 7, psn);
	struct karst_pkt p = parsed(&f);

	return fwd_flow_packet(fwd_flow_of(&flows, &p, 0), &p);
}

static enum fwd_psn
see_read(uint32_t psn, uint32_t len)
{
	struct karst_frame f = plain(KARST_RC_READ_REQUEST, 7, psn);
	struct karst_pkt p;

	f.ib.dma_len = len;
	p = parsed(&f);
	return fwd_flow_packet(fwd_flow_of(&flows, &p, 0), &p);
}

static void
setup(void)
{
	cr_assert_eq(fwd_flows_init(&flows, 8), 0);
}

static void
teardown(void)
{
	fwd_flows_free(&flows);
}

TestSuite(fwd_flow, .init = setup, .fini = teardown);

Test(fwd_flow, in_order_and_over_the_wrap)
{
	uint32_t i;

	for (i = 0; i < 10; i++)
		cr_assert_eq(see(KARST_RC_SEND_ONLY, (0xfffffb + i) & 0xffffff), FWD_PSN_NEXT);
	cr_assert_eq(flow_at(7)->gaps, 0);
	cr_assert_eq(flow_at(7)->packets, 10);
	cr_assert_eq(flow_at(7)->next_psn, 5);
}

Test(fwd_flow, gap_over_the_wrap)
{
	see(KARST_RC_SEND_ONLY, 0xfffffe);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 2), FWD_PSN_GAP);
	cr_assert_eq(flow_at(7)->gaps, 1);
	cr_assert_eq(flow_at(7)->missing, 3);
	/* 0xffffff, 0, 1: the missing ones */
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 0), FWD_PSN_LATE);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 0), FWD_PSN_REPEATED);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 0xffffff), FWD_PSN_LATE);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 0xfffffe), FWD_PSN_REPEATED);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 3), FWD_PSN_NEXT);
	cr_assert_eq(flow_at(7)->late, 2);
	cr_assert_eq(flow_at(7)->repeated, 2);
}

/*
 * Go-back-N: the lost packet is late, those behind it are repeated, and nothing is missing in the
 * end.
 */
Test(fwd_flow, retransmission_from_the_lost_one)
{
	uint32_t psn;

	for (psn = 100; psn < 140; psn++)
		if (psn != 110)
			see(KARST_RC_WRITE_MIDDLE, psn);
	for (psn = 110; psn < 140; psn++)
		see(KARST_RC_WRITE_MIDDLE, psn);
	cr_assert_eq(see(KARST_RC_WRITE_MIDDLE, 140), FWD_PSN_NEXT);
	cr_assert_eq(flow_at(7)->gaps, 1);
	cr_assert_eq(flow_at(7)->missing, 1);
	cr_assert_eq(flow_at(7)->late, 1);
	cr_assert_eq(flow_at(7)->repeated, 29);
}

/* Bits of PSNs one window ago are not taken for current ones. */
Test(fwd_flow, window_is_used_again)
{
	uint32_t psn;

	for (psn = 0; psn < 2 * FWD_FLOW_PSNS; psn++)
		see(KARST_RC_SEND_ONLY, psn);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, psn + 3), FWD_PSN_GAP);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, psn + 1), FWD_PSN_LATE);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, psn + 1), FWD_PSN_REPEATED);
	cr_assert_eq(flow_at(7)->missing, 3);
}

#define MODEL_PSNS 60000u

/* What was known before the last restart; .next is UINT32_MAX: nothing. */
struct model_old {
	bool seen[MODEL_PSNS];
	uint32_t next, restart;
};

/* The class of a PSN by a set of all PSNs that were seen; those before the first one count as
 * seen. */
static enum fwd_psn
model(bool *seen, uint32_t *next, uint32_t psn, struct model_old *old)
{
	enum fwd_psn is = FWD_PSN_NEXT;

	if (psn == old->next && *next - old->restart <= FWD_FLOW_OLD) {
		memcpy(seen, old->seen, sizeof(old->seen));
		seen[psn] = true;
		*next = psn + 1;
		old->next = UINT32_MAX;
		return FWD_PSN_NEXT;
	}

	if (psn < *next && *next - psn <= FWD_FLOW_PSNS) {
		is = seen[psn] ? FWD_PSN_REPEATED : FWD_PSN_LATE;
		seen[psn] = true;
		return is;
	}
	if (psn < *next) {
		is = FWD_PSN_RESTART;
		memcpy(old->seen, seen, sizeof(old->seen));
		old->next = *next;
		old->restart = psn;
		memset(seen, true, psn);
		memset(seen + psn, false, MODEL_PSNS - psn);
	} else if (psn > *next) {
		is = FWD_PSN_GAP;
		old->next = UINT32_MAX;
	}
	seen[psn] = true;
	*next = psn + 1;
	return is;
}

/* Long runs, gaps, late and repeated packets near and far, in any order. */
Test(fwd_flow, agrees_with_a_set)
{
	static struct model_old old = {.next = UINT32_MAX};
	static bool seen[MODEL_PSNS];
	uint32_t next = 5001, seed = 1, round, psn;

	memset(seen, true, 5001);
	see(KARST_RC_SEND_ONLY, 5000);
	for (round = 0; round < 200000; round++) {
		seed = seed * 1664525 + 1013904223;
		psn = next;
		switch (seed >> 24) {
		case 0:
			psn += seed >> 8 & 7;
			break;
		case 1:
			psn += seed >> 8 & 2047;
			break;
		case 2:
		case 3:
			psn -= seed >> 8 & 63;
			break;
		case 4:
			psn -= seed >> 8 & 4095;
			break;
		case 5:
			psn = old.next < next + FWD_FLOW_JUMP ? old.next : psn;
			break;
		}
		if (psn >= MODEL_PSNS)
			psn = 5000;
		cr_assert_eq(see(KARST_RC_SEND_ONLY, psn), model(seen, &next, psn, &old), "%u: %u",
			round, psn);
	}
}

Test(fwd_flow, gap_longer_than_the_window)
{
	see(KARST_RC_SEND_ONLY, 0);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 1 + 3 * FWD_FLOW_PSNS), FWD_PSN_GAP);
	cr_assert_eq(flow_at(7)->missing, 3 * FWD_FLOW_PSNS);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 3 * FWD_FLOW_PSNS), FWD_PSN_LATE);
}

Test(fwd_flow, far_away_is_a_new_connection)
{
	see(KARST_RC_SEND_ONLY, 1000000);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 2000000), FWD_PSN_RESTART);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 2000001), FWD_PSN_NEXT);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 5), FWD_PSN_RESTART);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 6), FWD_PSN_NEXT);
	/* a PSN from before the flow is not missing */
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 4), FWD_PSN_REPEATED);
	cr_assert_eq(flow_at(7)->restarts, 2);
	cr_assert_eq(flow_at(7)->missing, 0);
}

/*
 * A UD QP has one PSN counter for all its destinations.  So each of its flows has any PSNs, and
 * nothing is missing (P1).
 */
Test(fwd_flow, datagrams_to_several_queue_pairs)
{
	uint32_t psn;

	for (psn = 0; psn < 10; psn++) {
		struct karst_frame f = plain(KARST_UD_SEND_ONLY, 7 + psn % 2, psn);
		struct karst_pkt p;

		f.ib.src_qpn = 1;
		p = parsed(&f);
		cr_expect_eq(fwd_flow_packet(fwd_flow_of(&flows, &p, 0), &p), FWD_PSN_NEXT);
	}
	cr_assert_eq(fwd_flows_count(&flows), 2);
	for (psn = 0; psn < 2; psn++) {
		cr_expect_eq(flows.flows[psn].packets, 5);
		cr_expect_eq(flows.flows[psn].gaps, 0);
		cr_expect_eq(flows.flows[psn].missing, 0);
	}
}

/* A single packet, or a few, that come much later than all others do not make a gap. */
Test(fwd_flow, old_packets)
{
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 9998), FWD_PSN_NEXT);
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 10000), FWD_PSN_GAP);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 7000), FWD_PSN_RESTART);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 10001), FWD_PSN_NEXT);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 10002), FWD_PSN_NEXT);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 9999), FWD_PSN_LATE);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 7000), FWD_PSN_RESTART);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 7001), FWD_PSN_NEXT);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 7001), FWD_PSN_REPEATED);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 10003), FWD_PSN_NEXT);
	cr_expect_eq(flow_at(7)->gaps, 1);
	cr_expect_eq(flow_at(7)->missing, 1);
	cr_expect_eq(flow_at(7)->late, 1);
	cr_expect_eq(flow_at(7)->restarts, 2);
}

/* The same behind a READ, whose response takes an unknown number of PSNs. */
Test(fwd_flow, old_packet_behind_a_read)
{
	cr_assert_eq(see_read(10000, 4096), FWD_PSN_NEXT);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 7000), FWD_PSN_RESTART);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 10004), FWD_PSN_NEXT);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 10005), FWD_PSN_NEXT);
	cr_expect_eq(flow_at(7)->gaps, 0);
}

/* After a gap, or many packets, the restart was none of an old packet. */
Test(fwd_flow, restart_that_is_one)
{
	uint32_t psn;

	see(KARST_RC_SEND_ONLY, 9999);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 7000), FWD_PSN_RESTART);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 7002), FWD_PSN_GAP);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 10000), FWD_PSN_GAP);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 7000), FWD_PSN_RESTART);
	for (psn = 7001; psn < 7001 + FWD_FLOW_OLD; psn++)
		cr_expect_eq(see(KARST_RC_SEND_ONLY, psn), FWD_PSN_NEXT);
	cr_expect_eq(see(KARST_RC_SEND_ONLY, 10001), FWD_PSN_GAP);
}

Test(fwd_flow, read_takes_psns_of_its_response)
{
	cr_assert_eq(see_read(10, 4096), FWD_PSN_NEXT); /* 16 at an MTU of 256, 1 at 4096 */
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 14), FWD_PSN_NEXT);
	cr_assert_eq(see_read(15, 1024), FWD_PSN_NEXT); /* 4 at most */
	cr_assert_eq(see(KARST_RC_SEND_ONLY, 20), FWD_PSN_GAP);
	cr_assert_eq(flow_at(7)->missing, 1);
	cr_assert_eq(
		see(KARST_RC_SEND_ONLY, 22), FWD_PSN_GAP); /* nothing may be skipped any more */
}

static enum fwd_psn
see_response(uint8_t opcode, uint32_t psn, uint32_t aeth)
{
	struct karst_frame f = plain(opcode, 9, psn);
	struct karst_pkt p;

	f.ib.aeth = aeth;
	p = parsed(&f);
	return fwd_flow_packet(fwd_flow_of(&flows, &p, 0), &p);
}

Test(fwd_flow, responses)
{
	uint32_t i;

	cr_assert_eq(see_response(KARST_RC_READ_RESP_FIRST, 50, 0), FWD_PSN_NEXT);
	cr_assert_eq(see_response(KARST_RC_READ_RESP_MIDDLE, 51, 0), FWD_PSN_NEXT);
	cr_assert_eq(see_response(KARST_RC_READ_RESP_LAST, 53, 0), FWD_PSN_GAP);
	cr_assert_eq(see_response(KARST_RC_ACK, 90, 0), FWD_PSN_NEXT);
	cr_assert_eq(see_response(KARST_RC_READ_RESP_ONLY, 70, 0), FWD_PSN_NEXT);
	/* its First is lost */
	cr_assert_eq(see_response(KARST_RC_READ_RESP_LAST, 81, 0), FWD_PSN_GAP);
	see_response(KARST_RC_ACK, 91, (uint32_t)KARST_AETH_NAK << 24);
	see_response(KARST_RC_ACK, 91, (uint32_t)KARST_AETH_RNR << 24);
	cr_assert_eq(fwd_flows_count(&flows), 1);
	for (i = 0; i < 1; i++) {
		cr_assert_eq(flows.flows[i].key.kind, FWD_FLOW_RESPONSES);
		cr_assert_eq(flows.flows[i].gaps, 2);
		cr_assert_eq(flows.flows[i].missing, 2);
		cr_assert_eq(flows.flows[i].naks, 1);
		cr_assert_eq(flows.flows[i].rnr_naks, 1);
	}
}

Test(fwd_flow, several_flows_do_not_mix)
{
	struct karst_frame f = plain(KARST_RC_SEND_ONLY, 7, 1);
	struct karst_pkt p = parsed(&f);
	struct fwd_flow *a = fwd_flow_of(&flows, &p, 0), *b;

	cr_assert_eq(fwd_flow_of(&flows, &p, 0), a);
	b = fwd_flow_of(&flows, &p, 1); /* another port */
	cr_assert_neq(b, a);
	f.saddr[3] = 9;
	p = parsed(&f);
	cr_assert_neq(fwd_flow_of(&flows, &p, 0), a);
	f = plain(KARST_RC_ACK, 7, 1); /* the other direction's */
	p = parsed(&f);
	cr_assert_neq(fwd_flow_of(&flows, &p, 0), a);
	f = plain(KARST_UD_SEND_ONLY, 7, 1);
	f.ib.src_qpn = 1;
	p = parsed(&f);
	b = fwd_flow_of(&flows, &p, 0);
	f.ib.src_qpn = 2;
	p = parsed(&f);
	cr_assert_neq(fwd_flow_of(&flows, &p, 0), b);
	f = plain(KARST_RC_SEND_ONLY, 7, 1);
	f.ip6 = true; /* the same first bytes */
	p = parsed(&f);
	cr_assert_neq(fwd_flow_of(&flows, &p, 0), a);
	cr_assert_eq(fwd_flows_count(&flows), 7);
}

Test(fwd_flow, full_table_keeps_what_it_has)
{
	struct fwd_flow *first = flow_at(100);
	uint32_t i;

	for (i = 1; i < 8; i++)
		cr_assert_not_null(flow_at(100 + i));
	for (i = 8; i < 100; i++)
		cr_assert_null(flow_at(100 + i));
	cr_assert_eq(flow_at(100), first);
	cr_assert_eq(fwd_flows_count(&flows), 8);
}

/* Other IPv6 addresses with the same lookup hash. */
Test(fwd_flow, addresses_of_ip6_are_compared)
{
	struct karst_frame f = plain(KARST_RC_SEND_ONLY, 7, 1);
	struct karst_pkt p;
	struct fwd_flow *a, *b;

	f.ip6 = true;
	p = parsed(&f);
	a = fwd_flow_of(&flows, &p, 0);
	f.saddr[0] ^= 1;
	f.daddr[4] ^= 1; /* rotated by half a word */
	p = parsed(&f);
	b = fwd_flow_of(&flows, &p, 0);
	cr_assert_neq(a, b);
	cr_assert_eq(fwd_flow_of(&flows, &p, 0), b);
	cr_assert_eq(memcmp(b->key.src, f.saddr, 16), 0);
	cr_assert_eq(memcmp(b->key.dst, f.daddr, 16), 0);
}

/* Packets of more flows than are looked up one by one; the classification is the same. */
Test(fwd_flow, bursts_agree_with_one_by_one)
{
	enum { ROOM = 1500, FLOWS = 2000, BURST = 77, BURSTS = 400 };
	static uint8_t frames[BURST][128];
	struct karst_pkt pkts[BURST], *list[BURST];
	struct fwd_flow *known[BURST];
	uint32_t untracked = 0, alone = 0, psn[FLOWS] = {0}, seed = 1, i, k;
	struct fwd_flows one;

	fwd_flows_free(&flows);
	cr_assert_eq(fwd_flows_init(&flows, ROOM), 0);
	cr_assert_eq(fwd_flows_init(&one, ROOM), 0);
	for (k = 0; k < BURSTS; k++) {
		for (i = 0; i < BURST; i++) {
			static const uint8_t opcodes[] = {KARST_RC_SEND_ONLY, KARST_RC_ACK,
				KARST_UD_SEND_ONLY, KARST_RC_READ_RESP_ONLY};
			uint32_t qpn = (seed = seed * 1664525 + 1013904223) >> 8 & 1023;
			struct karst_frame f = plain(opcodes[seed >> 20 & 3], qpn, 0);
			int len;

			f.ip6 = (seed >> 24 & 3) == 0;
			f.ib.src_qpn = qpn & 1;
			/* usually the next PSN; some are late, repeated or missing */
			f.ib.psn = psn[qpn] + (seed >> 28 == 0 ? 2 : seed >> 28 == 1 ? -1u : 0);
			psn[qpn] = f.ib.psn = f.ib.psn & 0xffffff;
			psn[qpn]++;
			len = karst_build_frame(frames[i], sizeof(frames[i]), &f);
			pkts[i] = (struct karst_pkt){.data = frames[i], .len = (uint16_t)len};
			cr_assert_eq(karst_parse(&pkts[i]), KARST_DROP_NONE);
			if (i % 7 == 3)
				pkts[i].drop = KARST_DROP_ICRC;
			list[i] = &pkts[i];
			known[i] = NULL;
		}
		untracked += fwd_flows_see(&flows, list, known, BURST, 3);
		for (i = 0; i < BURST; i++) {
			struct fwd_flow *f;

			if (pkts[i].drop != KARST_DROP_NONE)
				continue;
			f = fwd_flow_of(&one, &pkts[i], 3);
			if (f != NULL)
				fwd_flow_packet(f, &pkts[i]);
			alone += f == NULL;
		}
	}
	cr_assert_gt(untracked, 0);
	cr_assert_eq(untracked, alone);
	cr_assert_eq(fwd_flows_count(&flows), ROOM);
	cr_assert_eq(fwd_flows_count(&one), ROOM);
	cr_assert_eq(memcmp(flows.flows, one.flows, ROOM * sizeof(one.flows[0])), 0);
	fwd_flows_free(&one);
}

/* The longest run of used slots. */
static uint32_t
longest_row(const struct fwd_flows *fs)
{
	uint32_t i, n = 0, longest = 0;

	for (i = 0; i <= fs->mask; i++) {
		n = fs->slots[i].flow != 0 ? n + 1 : 0;
		if (n > longest)
			longest = n;
	}
	return longest;
}

/* A sender cannot choose packets so that all their flows share one place in the table, where a
 * lookup would pass all others.  These packets were chosen so for a hash that multiplies by a
 * well-known number. */
Test(fwd_flow, places_cannot_be_told)
{
	enum { FLOWS = 1000, ROOM = 4096 };
	const uint64_t step = UINT64_C(0xf1de83e19937733d); /* the inverse of that number */
	uint32_t i, ip6;

	for (ip6 = 0; ip6 < 2; ip6++) {
		fwd_flows_free(&flows);
		cr_assert_eq(fwd_flows_init(&flows, ROOM), 0);
		for (i = 0; i < FLOWS; i++) {
			struct karst_frame f = plain(KARST_RC_SEND_ONLY, ip6 ? 7 : i, 0);
			uint64_t a = i * -UINT64_C(0xbf58476d1ce4e5b9) * step, b;
			struct karst_pkt p;

			f.ip6 = ip6 != 0;
			if (ip6) {
				/* rotated by 13 it was taken from the other half */
				a = i;
				b = a << 51 | a >> 13;
				memset(f.daddr, 0, sizeof(f.daddr));
				memcpy(f.saddr, &a, 8);
				memcpy(f.saddr + 8, &b, 8);
			} else {
				memcpy(f.saddr, &a, 4);
				memcpy(f.daddr, (uint8_t *)&a + 4, 4);
			}
			p = parsed(&f);
			cr_assert(fwd_flow_of(&flows, &p, 0) != NULL);
		}
		cr_assert_eq(fwd_flows_count(&flows), FLOWS);
		cr_assert_lt(longest_row(&flows), FLOWS / 10, "%u", longest_row(&flows));
	}
}

/* The flow of a packet is given as known, or looked up. */
Test(fwd_flow, known_flows)
{
	struct fwd_flow *known[3] = {flow_at(100), NULL, NULL};
	struct karst_frame f = plain(KARST_RC_SEND_ONLY, 200, 5);
	struct karst_pkt p = parsed(&f), *list[3] = {&p, &p, &p};

	cr_assert_eq(fwd_flows_see(&flows, list, known, 3, 0), 0);
	cr_assert_eq(known[0], flow_at(100));
	cr_assert_eq(known[1], flow_at(200));
	cr_assert_eq(known[2], flow_at(200));
	cr_assert_eq(flow_at(100)->packets, 1);
	cr_assert_eq(flow_at(200)->packets, 2);
}
