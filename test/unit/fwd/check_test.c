/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Bursts of any frames, in any order: roce-check counts the same as a check of one frame after the
 * other, with an ICRC that is computed a bit at a time.
 */
#include "check.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "karst_build.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_parse.h"
#include "karst_psn.h"
#include "reference.h"

#define PORT   2
#define PLACE  2048u /* of a frame in several segments of at most half of it, or in one */
#define FRAMES FWD_BURST_MAX

/* Needed for linking the mode only. */
void
fwd_send(struct fwd_stream *s, struct rte_mbuf **m, uint32_t n)
{
	(void)s, (void)m, (void)n;
	cr_assert_fail("nothing is sent");
}

static struct rte_mbuf mbufs[FRAMES], seconds[FRAMES], *burst[FRAMES];
static uint8_t frame_bytes[FRAMES][PLACE];
static uint64_t random_state;

static uint32_t
any(uint32_t below)
{
	return ref_rand(&random_state) % below;
}

/* The expected counters, and the queue pairs that send. */
struct want {
	struct fwd_seen seen;
	struct fwd_flows flows;
	uint64_t stamps;
};

static struct {
	uint32_t n;
	uint32_t psn[1024];
} senders;

static uint8_t
any_opcode(void)
{
	static const uint8_t all[] = {KARST_RC_SEND_ONLY, KARST_RC_SEND_ONLY, KARST_RC_SEND_FIRST,
		KARST_RC_SEND_MIDDLE, KARST_RC_SEND_LAST, KARST_RC_WRITE_ONLY,
		KARST_RC_WRITE_ONLY_IMM, KARST_RC_READ_REQUEST, KARST_RC_READ_RESP_FIRST,
		KARST_RC_READ_RESP_MIDDLE, KARST_RC_READ_RESP_LAST, KARST_RC_ACK, KARST_RC_ACK,
		KARST_RC_ATOMIC_ACK, KARST_RC_CMP_SWAP, KARST_UD_SEND_ONLY, KARST_CNP,
		KARST_UC_WRITE_ONLY};

	return all[any(KARST_DIM(all))];
}

static uint32_t
any_payload(uint8_t opcode)
{
	static const uint16_t lens[] = {64, 64, 64, 0, 1, 16, 30, 68, 80, 124, 128, 132, 1024};

	return karst_opcode_flags(opcode) & KARST_OPF_PAYLOAD ? lens[any(KARST_DIM(lens))] : 0;
}

/* Usually the next PSN of the sender; sometimes one that was skipped, one that is repeated, or
 * any. */
static uint32_t
any_psn(uint32_t sender, uint32_t usual)
{
	uint32_t *next = &senders.psn[sender], psn = *next;

	if (any(usual) == 0) {
		switch (any(4)) {
		case 0:
			psn = karst_psn_add(psn, 1 + any(40));
			break;
		case 1:
			return karst_psn_add(psn, 0xffffff - any(60));
		case 2:
			return karst_psn_add(psn, 0xffffff - any(5000));
		default:
			psn = any(1 << 24);
		}
	}
	*next = karst_psn_add(psn, 1);
	return psn;
}

static uint32_t
any_syndrome(void)
{
	static const uint8_t all[] = {0x1f, 0x1f, 0x00, 0x60, 0x61, 0x62, 0x20, 0x3f, 0x7f};

	return (uint32_t)all[any(KARST_DIM(all))] << 24 | any(1 << 24);
}

/* Builds a valid frame.  @return its length. */
static uint32_t
build(uint8_t *d, uint32_t usual)
{
	static uint8_t payload[1024];
	struct fwd_stamp stamp = {.magic = FWD_STAMP_MAGIC};
	uint32_t sender = any(senders.n), l3, icrc;
	struct karst_frame f = {.dmac = {2, 0, 0, 0, 0, 1},
		.smac = {2, 0, 0, 0, 0, 2},
		.ip6 = sender % 8 == 7,
		.vlan = sender % 8 == 6,
		.saddr = {192, 0, 2, 1},
		.daddr = {192, 0, 2, 2},
		.ttl = 64,
		.tclass = (uint8_t)(any(4) == 0 ? any(4) : 2),
		.ip_id = (uint16_t)any(1 << 16),
		.sport = (uint16_t)(0xc000 + sender),
		.dport = KARST_ROCE_UDP_PORT,
		.ib = {.opcode = any(3) ? KARST_RC_SEND_ONLY : any_opcode(),
			.pkey = 0xffff,
			.dqpn = 0x40 + sender,
			.psn = any_psn(sender, usual),
			.ackreq = any(2),
			.fecn = any(9) == 0,
			.becn = any(9) == 0,
			.se = any(9) == 0,
			.src_qpn = 5 + any(2),
			.aeth = any_syndrome(),
			.va = ref_rand(&random_state),
			.dma_len = any(5000),
			.pay = payload}};
	int len;

	f.ib.pay_len = (uint16_t)any_payload(f.ib.opcode);
	ref_fill(payload, sizeof(payload), random_state);
	if (any(7) == 0)
		memcpy(payload, &stamp, sizeof(stamp));
	len = karst_build_frame(d, PLACE, &f);
	cr_assert_gt(len, 0);
	l3 = f.vlan ? 18 : 14;
	icrc = ref_icrc(d + l3, (uint32_t)len - 4 - l3, f.ip6);
	memcpy(d + len - 4, &icrc, sizeof(icrc));
	return (uint32_t)len;
}

/* Damages the frame, or makes it one of another protocol.  @return its length. */
static uint32_t
spoil(uint8_t *d, uint32_t len)
{
	uint32_t i;

	switch (any(8)) {
	case 0:
		return any(len); /* truncated */
	case 1:
		d[20] |= 0x20; /* the IPv4 bit for more fragments; over IPv6 a change of the hop
			        * limit or similar */
		return len;
	case 2:
		d[36] ^= 1; /* UDP port */
		return len;
	case 3:
		d[13] ^= 6; /* ARP */
		return len;
	case 4:
		i = any(18); /* padding of Ethernet */
		memset(d + len, 0, i);
		return len + i;
	case 5:
		d[24] ^= 0x10; /* IP checksum */
		return len;
	default:
		i = 14 + any(len - 14);
		d[i] ^= (uint8_t)(1u << any(8));
		return len;
	}
}

/* Puts the frame into one buffer, or into two, the second of which may be empty. */
static struct rte_mbuf *
mbuf_of(uint32_t i, uint32_t len, bool split)
{
	struct rte_mbuf *m = &mbufs[i], *more = &seconds[i];
	uint32_t first = split && len > 1 && any(4) != 0 ? 1 + any(len - 1) : len;

	*m = (struct rte_mbuf){.buf_addr = frame_bytes[i],
		.nb_segs = 1,
		.pkt_len = len,
		.data_len = (uint16_t)first};
	if (split) {
		*more = (struct rte_mbuf){.buf_addr = frame_bytes[i] + first,
			.nb_segs = 1,
			.data_len = (uint16_t)(len - first)};
		m->next = more;
		m->nb_segs = 2;
	}
	return m;
}

/* --- reference: one frame at a time --- */

static void
expect_flow(struct want *w, const struct karst_pkt *p)
{
	struct fwd_flow *f = fwd_flow_of(&w->flows, p, PORT);

	if (f == NULL)
		w->seen.untracked++;
	else
		(void)fwd_flow_packet(f, p);
}

static void
expect(struct want *w, uint8_t *d, uint32_t len)
{
	struct karst_pkt p = {.data = d, .len = (uint16_t)len};
	const uint8_t *l3 = d, *bth;
	uint32_t icrc, magic;

	w->seen.frames++;
	w->seen.bytes += len;
	if (karst_parse(&p) == KARST_DROP_NONE) {
		l3 = d + karst_pkt_l3_off(&p);
		memcpy(&icrc, d + p.len - 4, sizeof(icrc));
		if (icrc != ref_icrc(l3, (size_t)(d + p.len - 4 - l3), p.flags & KARST_PKT_IP6))
			p.drop = KARST_DROP_ICRC;
	}
	if (p.drop != KARST_DROP_NONE) {
		w->seen.refused[p.drop]++;
		return;
	}
	bth = d + p.bth_off;
	w->seen.roce++;
	w->seen.opcode[p.opcode]++;
	w->seen.ecn[(p.flags & KARST_PKT_IP6 ? karst_ip6_tclass(l3) : karst_ip4_tos(l3)) & 3]++;
	w->seen.fecn += karst_bth_fecn(bth);
	w->seen.becn += karst_bth_becn(bth);
	if (p.opcode == KARST_RC_ACK)
		w->seen.syndrome[p.aeth >> 24]++;
	if (p.pay_len >= sizeof(struct fwd_stamp)) {
		memcpy(&magic, d + p.pay_off, sizeof(magic));
		w->stamps += magic == FWD_STAMP_MAGIC;
	}
	expect_flow(w, &p);
}

static void
same_flows(const struct fwd_flows *got, const struct fwd_flows *want)
{
	uint32_t i;

	cr_assert_eq(got->count, want->count);
	for (i = 0; i < want->count; i++) {
		const struct fwd_flow *g = &got->flows[i], *w = &want->flows[i];

		cr_assert_eq(memcmp(&g->key, &w->key, sizeof(g->key)), 0, "flow %u", i);
		cr_assert(g->next_psn == w->next_psn && g->slack == w->slack &&
				g->opcode == w->opcode && g->open == w->open,
			"flow %u", i);
		cr_assert(g->packets == w->packets && g->bytes == w->bytes, "flow %u", i);
		cr_assert(g->gaps == w->gaps && g->missing == w->missing && g->late == w->late &&
				g->repeated == w->repeated && g->restarts == w->restarts,
			"flow %u", i);
		cr_assert(g->naks == w->naks && g->rnr_naks == w->rnr_naks && g->ce == w->ce,
			"flow %u", i);
		cr_assert_eq(g->run, w->run, "flow %u", i);
		cr_assert_eq(memcmp(g->seen, w->seen, sizeof(g->seen)), 0, "flow %u", i);
	}
}

static void
same(struct fwd_check *c, const struct want *w)
{
	uint32_t i;

	fwd_check_count(c);
	for (i = 0; i < KARST_DROP_MAX; i++)
		cr_assert_eq(c->seen.refused[i], w->seen.refused[i], "refused %u", i);
	for (i = 0; i < 256; i++) {
		cr_assert_eq(c->seen.opcode[i], w->seen.opcode[i], "opcode %u", i);
		cr_assert_eq(c->seen.syndrome[i], w->seen.syndrome[i], "syndrome %u", i);
	}
	cr_assert_eq(memcmp(&c->seen, &w->seen, sizeof(c->seen)), 0);
	cr_assert_eq(c->latency->count, w->stamps);
	same_flows(&c->flows, &w->flows);
}

/* --- tests --- */

static void
begin(uint64_t from, uint32_t nsenders)
{
	random_state = from;
	senders.n = nsenders;
	memset(senders.psn, 0, sizeof(senders.psn));
}

static struct want *
want_new(uint32_t flows)
{
	struct want *w = calloc(1, sizeof(*w));

	cr_assert(w != NULL && fwd_flows_init(&w->flows, flows) == 0);
	return w;
}

static void
want_free(struct want *w)
{
	fwd_flows_free(&w->flows);
	free(w);
}

/* @bad: one frame in so many is damaged; @split: one burst in so many has frames in two
 * segments. */
static void
rounds(uint32_t n, uint32_t nsenders, uint32_t bad, uint32_t split, bool packets)
{
	uint32_t k, r, i, room = nsenders == 24 ? 20 : 2048;

	for (k = 0; ref_kernel(k) != NULL; k++) {
		struct fwd_check *c = fwd_check_new(room);
		struct want *w = want_new(room);

		cr_assert_not_null(c);
		begin(k + 77, nsenders);
		for (r = 0; r < n; r++) {
			uint32_t most = any(8) ? 64 : FRAMES, count = 1 + any(most);
			bool splits = any(split) == 0;

			for (i = 0; i < count; i++) {
				uint32_t len = build(frame_bytes[i], 6);

				if (any(bad) == 0)
					len = spoil(frame_bytes[i], len);
				burst[i] = mbuf_of(i, len, splits && any(3) == 0);
				expect(w, frame_bytes[i], len);
			}
			fwd_check_burst(c, burst, count, PORT, packets);
			if (any(10) == 0)
				same(c, w);
		}
		same(c, w);
		fwd_check_free(c);
		want_free(w);
	}
}

Test(fwd_check, right_ones_in_any_order)
{
	rounds(150, 12, 1000000, 1000000, false);
}

Test(fwd_check, mixed)
{
	rounds(150, 20, 5, 10, false);
}

Test(fwd_check, mixed_with_their_packets)
{
	rounds(60, 20, 5, 10, true);
}

Test(fwd_check, flows_without_room)
{
	rounds(60, 24, 9, 20, false);
}

Test(fwd_check, more_flows_than_are_looked_up_by_headers)
{
	rounds(100, 900, 9, 20, false);
}

/* One bad frame in a burst of many equal ones: it is found in every place, and counted for its
 * flow. */
static void
one_in(uint32_t n, void (*change)(uint8_t *d, uint32_t len))
{
	uint32_t k, i, at;

	for (k = 0; ref_kernel(k) != NULL; k++) {
		struct fwd_check *c = fwd_check_new(64);
		struct want *w = want_new(64);

		cr_assert_not_null(c);
		begin(5, 4);
		for (at = 0; at < n; at++) {
			for (i = 0; i < n; i++) {
				uint32_t len = build(frame_bytes[i], 1000000);

				if (i == at)
					change(frame_bytes[i], len);
				burst[i] = mbuf_of(i, len, false);
				expect(w, frame_bytes[i], len);
			}
			fwd_check_burst(c, burst, n, PORT, false);
			same(c, w);
		}
		fwd_check_free(c);
		want_free(w);
	}
}

static void
wrong_icrc(uint8_t *d, uint32_t len)
{
	d[len - 1 - any(len - 54)] ^= 1;
}

/* Makes the ICRC right again. */
static void
resealed(uint8_t *d, uint32_t len)
{
	uint32_t icrc = ref_icrc(d + 14, len - 18, false);

	memcpy(d + len - 4, &icrc, sizeof(icrc));
}

static void
other_psn(uint8_t *d, uint32_t len)
{
	d[52] ^= 4;
	resealed(d, len);
}

Test(fwd_check, a_wrong_icrc_in_any_place)
{
	one_in(32, wrong_icrc);
	one_in(FWD_CHECK_CHUNK + 3, wrong_icrc);
}

Test(fwd_check, a_gap_in_any_place)
{
	one_in(32, other_psn);
	one_in(FWD_CHECK_CHUNK + 3, other_psn);
}

static void
becomes_nak(uint8_t *d, uint32_t len)
{
	if (d[42] == KARST_RC_ACK)
		d[54] = 0x60;
	resealed(d, len);
}

Test(fwd_check, a_nak_in_any_place)
{
	one_in(32, becomes_nak);
}

/* Counts that are held back are added when no frame comes, and after some bursts at the latest. */
Test(fwd_check, counters_do_not_stay_behind)
{
	struct fwd_check *c = fwd_check_new(64);
	uint32_t i, r, len, behind = 0;

	cr_assert_not_null(c);
	begin(9, 1);
	do
		len = build(frame_bytes[0], 1000000);
	while (frame_bytes[0][42] != KARST_RC_SEND_ONLY);
	for (i = 0; i < 8; i++) {
		memcpy(frame_bytes[i], frame_bytes[0], len);
		burst[i] = mbuf_of(i, len, false);
	}
	for (r = 0; r < 1000; r++) {
		fwd_check_burst(c, burst, 8, PORT, false);
		if (c->seen.frames - c->seen.roce > behind)
			behind = (uint32_t)(c->seen.frames - c->seen.roce);
	}
	cr_assert_gt(behind, 0);
	cr_assert_leq(behind, 8 * 256);
	fwd_check_idle(c);
	cr_assert_eq(c->seen.frames, 8000);
	cr_assert_eq(c->seen.roce, 8000);
	fwd_check_free(c);
}
