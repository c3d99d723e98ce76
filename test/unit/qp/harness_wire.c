/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The harness: frames of the peer, turns of the core, and frames that it has sent. */

#include "harness.h"

#include "selfcheck.h"

#define TX_FRAMES  64u
#define TX_SEGS    256u
#define TURN_LIMIT 100000u

#define fail(...) cr_assert(false, __VA_ARGS__)

/* --- the peer --- */

struct karst_frame
bed_frame(const struct bed *b, const struct karst_ib_hdrs *ib)
{
	const struct karst_path *p = &b->path;
	struct karst_frame f = {
		.vlan = p->has_vlan,
		.vlan_tci = p->vlan_tci,
		.ip6 = p->ip6,
		.ttl = 64,
		.ip_id = 0x77,
		.ip_frag = 0x4000,
		.sport = 0xd111,
		.dport = KARST_ROCE_UDP_PORT,
		.ib = *ib,
	};

	memcpy(f.dmac, p->src_mac, 6);
	memcpy(f.smac, p->dst_mac, 6);
	memcpy(f.saddr, p->dst_ip + (p->ip6 ? 0 : 12), p->ip6 ? 16 : 4);
	memcpy(f.daddr, p->src_ip + (p->ip6 ? 0 : 12), p->ip6 ? 16 : 4);
	if (f.ib.dqpn == 0)
		f.ib.dqpn = b->s->qpn;
	if (f.ib.pkey == 0)
		f.ib.pkey = 0xffff;
	if (f.ib.aeth == 0 && f.ib.opcode != KARST_RC_ACK && f.ib.opcode != KARST_XRC_ACK)
		f.ib.aeth = 0x1f000000; /* credits: no limit, instead of none */
	if (f.ib.pay == NULL)
		f.ib.pay = b->pattern;
	return f;
}

enum karst_drop
bed_rx_frame(struct bed *b, const struct karst_frame *f)
{
	static uint8_t frame[8192 + 128];
	struct karst_pkt pkt, *p = &pkt;
	uint32_t l3 = f->vlan ? 18 : 14, crc, i;
	int len = karst_build_frame(frame, sizeof(frame), f);

	cr_assert_gt(len, 0, "the test's frame cannot be built");
	crc = karst_icrc_rocev2(frame + l3, (size_t)len - l3 - KARST_ICRC_LEN, f->ip6);
	for (i = 0; i < 4; i++)
		frame[(uint32_t)len - 4 + i] = (uint8_t)(crc >> 8 * i);
	memset(&pkt, 0xa5, sizeof(pkt));
	/* a buffer of its own and no longer, so that the sanitizer finds uses after it is freed */
	pkt.data = malloc((size_t)len);
	memcpy(pkt.data, frame, (size_t)len);
	pkt.len = (uint16_t)len;
	pkt.port = 0;
	if (karst_parse(&pkt) == KARST_DROP_NONE)
		karst_icrc_verify_burst(&p, 1);
	if (pkt.drop == KARST_DROP_NONE) {
		pkt.qp = karst_core_lookup(b->core, pkt.dqpn);
		if (pkt.qp == NULL) {
			pkt.drop = KARST_DROP_NO_QP;
		} else {
			karst_qp_prefetch_rx(pkt.qp, pkt.opcode);
			karst_qp_rx(b->core, &pkt);
		}
	}
	memset(pkt.data, 0xdb, (size_t)len);
	free(pkt.data);
	b->rx_pkt = pkt;
	return pkt.drop;
}

enum karst_drop
bed_rx(struct bed *b, const struct karst_ib_hdrs *ib)
{
	struct karst_frame f = bed_frame(b, ib);

	return bed_rx_frame(b, &f);
}

void
bed_rx_many(struct bed *b, const struct karst_ib_hdrs *ib, uint32_t n)
{
	struct karst_frame f = bed_frame(b, ib);
	uint8_t frame[KARST_FRAME_MAX];
	struct karst_pkt first = {.data = frame}, pkt;
	int len = karst_build_frame(frame, sizeof(frame), &f);
	uint32_t i;

	cr_assert_gt(len, 0, "the test's frame cannot be built");
	cr_assert_eq(ib->pay_len, 0);
	first.len = (uint16_t)len;
	cr_assert_eq(karst_parse(&first), KARST_DROP_NONE);
	first.qp = karst_core_lookup(b->core, first.dqpn);
	for (i = 0; i < n; i++) {
		pkt = first;
		pkt.psn = karst_psn_add(first.psn, i);
		karst_qp_rx(b->core, &pkt);
		cr_assert_eq(
			pkt.drop, KARST_DROP_NONE, "packet %u: %s", i, karst_drop_name(pkt.drop));
	}
}

/* --- turns --- */

static void
check_sides(const struct bed *b)
{
	unsigned int i;

	for (i = 0; i < b->nsides; i++) {
		const char *wrong =
			b->side[i].qp != NULL ? qp_selfcheck(b->core, b->side[i].qp) : NULL;

		cr_assert_null(wrong, "QP %u: %s", i, wrong);
	}
	bed_check_guards(b);
}

/* Parses and verifies a frame that was sent, as the peer would. */
static void
take_frame(struct bed *b, struct out_frame *o, const struct karst_pkt *built)
{
	struct karst_pkt *p = &o->pkt;

	cr_assert_eq(p->data, o->data);
	p->port = 0;
	cr_assert_eq(karst_parse(p), KARST_DROP_NONE, "sent a frame that is no good: %s",
		karst_drop_name(p->drop));
	cr_assert_eq(p->len, built->len);
	cr_assert_eq(karst_icrc_verify_burst(&p, 1), 0, "sent a frame with a wrong ICRC");
	cr_assert_eq(p->opcode, built->opcode);
	cr_assert_eq(p->pay_len, built->pay_len);
	cr_assert_eq(p->pay_off, built->pay_off);
}

/* A burst of empty frames, and their memory. */
struct scratch {
	struct karst_tx_burst burst;
	struct karst_pkt *pkts[TX_FRAMES];
	struct karst_seal seals[TX_FRAMES];
	struct karst_seg segs[TX_SEGS];
};

static struct karst_tx_burst *
burst_begin(struct bed *b, struct scratch *s, uint32_t frames)
{
	uint32_t i;

	s->burst = (struct karst_tx_burst){.pkts = s->pkts,
		.seals = s->seals,
		.segs = s->segs,
		.max = frames,
		.max_segs = TX_SEGS};
	cr_assert_leq(frames, TX_FRAMES);
	cr_assert_leq(b->out_tail - b->out_head + frames, OUT_MAX, "frames nobody looked at");
	for (i = 0; i < frames; i++) {
		struct out_frame *o = &b->out[(b->out_tail + i) % OUT_MAX];

		memset(&o->pkt, 0, sizeof(o->pkt));
		o->pkt.data = o->data;
		s->pkts[i] = &o->pkt;
	}
	return &s->burst;
}

static void
burst_end(struct bed *b, struct scratch *s)
{
	struct karst_pkt built;
	uint32_t i;

	cr_assert_leq(s->burst.n, s->burst.max);
	b->charge = s->burst.charge;
	karst_icrc_seal_burst(s->seals, s->burst.n);
	for (i = 0; i < s->burst.n; i++) {
		built = *s->pkts[i];
		take_frame(b, &b->out[(b->out_tail + i) % OUT_MAX], &built);
	}
	b->out_tail += s->burst.n;
}

static bool
visit(struct bed *b, struct karst_core_qp *qp, uint32_t frames, uint32_t bytes)
{
	struct scratch s;
	bool more;

	karst_qp_prefetch(qp);
	karst_qp_prefetch_send(qp);
	more = karst_qp_tx(b->core, qp, burst_begin(b, &s, frames), bytes);
	if (more)
		karst_core_activate(b->core, qp);
	burst_end(b, &s);
	return more;
}

struct karst_core_qp *
visit_picked(struct bed *b, uint32_t frames, struct karst_parked *parked)
{
	struct karst_core_qp *qp = karst_core_pick(b->core);
	struct scratch s;

	if (qp == NULL)
		return NULL;
	if (parked != NULL)
		karst_core_park(b->core, burst_begin(b, &s, frames), parked);
	else
		karst_core_visit(b->core, burst_begin(b, &s, frames), UINT32_MAX);
	burst_end(b, &s);
	karst_core_flush(b->core);
	check_sides(b);
	return qp;
}

bool
turn_once(struct bed *b, uint32_t frames, uint32_t bytes)
{
	struct karst_core_qp *qp = karst_core_next_active(b->core);
	bool more = qp != NULL && visit(b, qp, frames, bytes);

	karst_core_flush(b->core);
	check_sides(b);
	return more;
}

void
turn(struct bed *b)
{
	struct karst_core_qp *qp;
	uint32_t visits = 0, users = 0;

	/* until each user has had a turn */
	do
		karst_core_expire(b->core, 1000);
	while ((users += 8) < b->core->timing.nusers);
	while ((qp = karst_core_next_active(b->core)) != NULL) {
		cr_assert_lt(visits++, TURN_LIMIT, "the core never comes to rest");
		visit(b, qp, TX_FRAMES, UINT32_MAX);
	}
	karst_core_flush(b->core);
	check_sides(b);
}

void
advance_time(struct bed *b, uint64_t ns)
{
	b->core->now_ns += ns;
	turn(b);
}

/* --- frames that were sent --- */

static const struct karst_pkt *
next_frame(struct bed *b)
{
	if (b->out_head == b->out_tail)
		turn(b);
	if (b->out_head == b->out_tail)
		return NULL;
	return &b->out[b->out_head++ % OUT_MAX].pkt;
}

const struct karst_pkt *
expect_at(struct bed *b, const char *file, int line, uint8_t opcode, uint32_t psn)
{
	const struct karst_pkt *p = next_frame(b);

	if (p == NULL)
		fail("%s:%d: expected %s, nothing was sent", file, line, karst_opcode_name(opcode));
	if (p->opcode != opcode || p->psn != psn)
		fail("%s:%d: expected %s PSN %06x, got %s PSN %06x (AETH %08x)", file, line,
			karst_opcode_name(opcode), psn, karst_opcode_name(p->opcode), p->psn,
			p->aeth);
	return p;
}

void
expect_aeth_at(
	struct bed *b, const char *file, int line, uint32_t psn, uint8_t syndrome, uint32_t msn)
{
	bool xrc = karst_qp_type(b->s->qp) == KARST_QPT_XRC_RECV;
	const struct karst_pkt *p =
		expect_at(b, file, line, xrc ? KARST_XRC_ACK : KARST_RC_ACK, psn);

	if (p->aeth != ((uint32_t)syndrome << 24 | msn))
		fail("%s:%d: expected AETH %02x%06x, got %08x", file, line, syndrome, msn, p->aeth);
	if (p->dqpn != PEER_QPN || p->pay_len != 0)
		fail("%s:%d: acknowledgement to QP %06x", file, line, p->dqpn);
}

void
expect_none_at(struct bed *b, const char *file, int line)
{
	const struct karst_pkt *p = next_frame(b);

	if (p != NULL)
		fail("%s:%d: expected nothing, got %s PSN %06x", file, line,
			karst_opcode_name(p->opcode), p->psn);
}

void
expect_data_at(const struct bed *b, const char *file, int line, const struct karst_pkt *p,
	uint32_t off, uint32_t len)
{
	if (p->pay_len != len)
		fail("%s:%d: expected %u bytes, got %u", file, line, len, p->pay_len);
	if (memcmp(p->data + p->pay_off, b->buf + off, len) != 0)
		fail("%s:%d: payload is not the buffer from %u on", file, line, off);
}

void
expect_mem_at(
	const struct bed *b, const char *file, int line, uint32_t off, uint32_t from, uint32_t len)
{
	if (memcmp(b->buf + off, b->pattern + from, len) != 0)
		fail("%s:%d: the buffer from %u on is not what was sent", file, line, off);
}

void
expect_untouched_at(const struct bed *b, const char *file, int line, uint32_t off, uint32_t len)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		if (b->buf[off + i] != 0xee)
			fail("%s:%d: the buffer was written to at %u", file, line, off + i);
}

void
expect_write(struct bed *b, uint32_t first, uint32_t from, uint32_t packets)
{
	uint32_t i;

	for (i = from; i < packets; i++)
		expect_at(b, __FILE__, __LINE__,
			packets == 1              ? KARST_RC_WRITE_ONLY
				: i == 0          ? KARST_RC_WRITE_FIRST
				: i + 1 < packets ? KARST_RC_WRITE_MIDDLE
						  : KARST_RC_WRITE_LAST,
			S(first + i));
}
