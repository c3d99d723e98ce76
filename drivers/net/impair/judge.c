/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Judge which packets are hit.  For every packet of a burst, two things are checked: whether it is
 * RoCEv2, and whether any rule may match its opcode and QP number.  Most packets need no more.  For
 * the others, every rule counts the packets that match it, and the first rule whose turn it is
 * hits.
 */
#include "impair.h"

#include "karst_hdr.h"
#include "karst_opcode.h"

#define BTH_IP4 (KARST_ETH_LEN + KARST_IP4_LEN + KARST_UDP_LEN)

/* Constants in this file are bytes of a frame, read as a little-endian number. */
#if RTE_BYTE_ORDER != RTE_LITTLE_ENDIAN
#error "the constants below are for little-endian machines"
#endif

static inline uint64_t
load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Whether the frame is of the most frequent kind: IPv4 without options, fragments and VLAN tag. */
static inline bool
is_plain(const struct rte_mbuf *m, const uint8_t *d)
{
	uint32_t type_ihl;
	uint16_t dport;

	if (unlikely(m->data_len < BTH_IP4 + KARST_BTH_LEN))
		return false;
	memcpy(&type_ihl, d + 12, sizeof(type_ihl));
	memcpy(&dport, d + BTH_IP4 - 6, sizeof(dport));
	/* EtherType, version and header length; fragment, protocol */
	return likely((type_ihl & 0xffffff) == 0x450008 &&
		(load64(d + 16) & UINT64_C(0xff00ff3f00000000)) == UINT64_C(0x1100000000000000) &&
		dport == RTE_BE16(KARST_ROCE_UDP_PORT));
}

static inline void
frame_fill(struct imp_frame *f, const uint8_t *d, uint32_t l3_off, uint32_t bth_off, bool ip6)
{
	f->l3 = d + l3_off;
	f->bth = d + bth_off;
	f->l3_off = l3_off;
	f->bth_off = bth_off;
	f->ip6 = ip6;
	f->opcode = karst_bth_opcode(f->bth);
	f->qpn = karst_bth_dqpn(f->bth);
	f->psn = karst_bth_psn(f->bth);
}

/* @return the offset of the UDP header; 0: there is none in the first @len bytes. */
static uint32_t
udp_at(const uint8_t *d, uint32_t len, uint32_t l3, uint16_t type)
{
	uint32_t ihl;

	if (type == 0x0800 && len >= l3 + KARST_IP4_LEN) {
		ihl = (d[l3] & 15u) * 4;
		if (d[l3] >> 4 == 4 && ihl >= KARST_IP4_LEN && d[l3 + 9] == 17 &&
			(karst_ip4_frag(d + l3) & 0x3fff) == 0)
			return l3 + ihl;
	} else if (type == 0x86dd && len >= l3 + KARST_IP6_LEN) {
		if (d[l3] >> 4 == 6 && d[l3 + 6] == 17)
			return l3 + KARST_IP6_LEN;
	}
	return 0;
}

static __attribute__((noinline)) bool
frame_read_any(const struct rte_mbuf *m, struct imp_frame *f, uint8_t copy[IMP_HEADERS])
{
	uint32_t len = RTE_MIN(m->pkt_len, IMP_HEADERS), l3 = KARST_ETH_LEN, udp;
	const uint8_t *d;
	uint16_t type;

	if (len < KARST_ETH_LEN + KARST_VLAN_LEN)
		return false;
	d = rte_pktmbuf_read(m, 0, len, copy);
	type = karst_get_be16(d + 12);
	if (type == 0x8100) {
		l3 += KARST_VLAN_LEN;
		type = karst_get_be16(d + 16);
	}
	udp = udp_at(d, len, l3, type);
	if (udp == 0 || len < udp + KARST_UDP_LEN + KARST_BTH_LEN ||
		karst_udp_dport(d + udp) != KARST_ROCE_UDP_PORT)
		return false;
	frame_fill(f, d, l3, udp + KARST_UDP_LEN, type == 0x86dd);
	return true;
}

bool
imp_frame_read(const struct rte_mbuf *m, struct imp_frame *f, uint8_t copy[IMP_HEADERS])
{
	const uint8_t *d = rte_pktmbuf_mtod(m, const uint8_t *);

	if (unlikely(!is_plain(m, d)))
		return frame_read_any(m, f, copy);
	frame_fill(f, d, KARST_ETH_LEN, BTH_IP4, false);
	return true;
}

/* --- one rule --- */

static bool
in_ranges(const struct imp_range *r, uint32_t n, uint32_t v)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (((v - r[i].first) & 0xffffff) <= ((r[i].last - r[i].first) & 0xffffff))
			return true;
	return false;
}

static inline bool
fits(const struct imp_live *l, const struct imp_frame *f, uint64_t now, uint32_t transmission)
{
	const struct imp_conf_rule *c = l->conf;

	if ((l->opcode[f->opcode / 64] >> (f->opcode % 64) & 1) == 0)
		return false;
	if (!l->qpn_any && f->qpn != l->qpn_only &&
		(l->qpn_only != UINT32_MAX || !in_ranges(c->qpn, c->nqpn, f->qpn)))
		return false;
	if (!l->psn_any && !in_ranges(c->psn, c->npsn, f->psn))
		return false;
	if (l->source_ports != UINT16_MAX &&
		(l->source_ports >> (karst_udp_sport(f->bth - KARST_UDP_LEN) & 0xf) & 1) == 0)
		return false;
	if (unlikely((l->from | ~l->until) != 0) && (now < l->from || now >= l->until))
		return false;
	return l->transmission == 0 || (l->transmission >> transmission & 1) != 0;
}

static bool
nth_has(const struct imp_conf_rule *c, uint64_t count)
{
	uint32_t i;

	for (i = 0; i < c->nnth && c->nth[i] <= count; i++)
		if (c->nth[i] == count)
			return true;
	return false;
}

/*
 * Counts by QP.  Counts begin with 1.  For "every", they are reset at each hit, which saves a
 * division.
 */
static bool
counts_in_flow(const struct imp_live *l, struct imp_flow *flow, uint64_t *count)
{
	uint32_t *seen = &flow->seen[l->counter];

	*seen += *seen != UINT32_MAX;
	*count = *seen;
	if (l->choice == IMP_NTH)
		return nth_has(l->conf, *seen);
	if (*seen < l->conf->every)
		return false;
	*seen = 0;
	return true;
}

/* Draws by chance.  The result depends only on seed and count, not on the machine. */
static inline bool
draw(uint64_t salt, uint64_t count, uint64_t chance)
{
	uint64_t x = salt + count * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (x ^ x >> 31) < chance;
}

/* Counts another packet that matches.  @return whether it is the turn of the rule. */
static inline bool
counts(struct imp_live *l, struct imp_flow *flow, uint64_t *count)
{
	if (l->counter >= 0)
		return counts_in_flow(l, flow, count);
	*count = ++l->seen;
	switch (l->choice) {
	case IMP_ALL:
		return true;
	case IMP_CHANCE:
		return l->conf->chance == 0 || draw(l->salt, l->seen, l->conf->chance);
	case IMP_EVERY:
		if (l->seen != l->next)
			return false;
		l->next += l->conf->every;
		return true;
	default:
		if (l->seen != l->next)
			return false;
		l->next = ++l->at < l->conf->nnth ? l->conf->nth[l->at] : 0;
		return true;
	}
}

/* Takes one hit from the rule's limit, which all queues share.  @return false: none is left. */
static bool
take(const struct imp_live *l)
{
	if (l->conf->count == UINT64_MAX)
		return true;
	return atomic_load_explicit(l->taken, memory_order_relaxed) < l->conf->count &&
		atomic_fetch_add_explicit(l->taken, 1, memory_order_relaxed) < l->conf->count;
}

/* --- a packet --- */

static inline bool
judge(struct imp_queue *q, struct imp_set *s, const struct imp_frame *f, uint64_t now,
	struct imp_verdict *v)
{
	struct imp_flow *flow = NULL;
	uint32_t transmission = 0, i;
	uint64_t count;

	v->live = NULL;
	if (s->flows != NULL) {
		flow = imp_flow_of(s->flows, f, &q->stats.evicted);
		/* the PSN of a CNP is always 0, not one of its flow */
		if (s->flows->psns && (karst_opcode_flags(f->opcode) & KARST_OPF_CNP) == 0)
			transmission = imp_flow_transmission(s->flows, flow, f->psn);
	}
	/* rules are independent: all of them count, even if one has hit */
	for (i = 0; i < s->n; i++) {
		struct imp_live *l = &s->live[i];

		if (!fits(l, f, now, transmission) || !counts(l, flow, &count) || v->live != NULL ||
			!take(l))
			continue;
		v->live = l;
		v->count = count;
		v->transmission = transmission;
		imp_add(&l->hits, 1);
	}
	return v->live != NULL;
}

/* Whether any rule may match a packet with this BTH. */
static inline bool
is_wanted(const struct imp_set *s, const uint8_t *bth)
{
	uint16_t qpn;

	memcpy(&qpn, bth + 6, sizeof(qpn)); /* all bytes but the most significant one */
	return (s->qpn[qpn / 64] >> qpn % 64 & 1) != 0 && s->opcode[karst_bth_opcode(bth)] != 0;
}

/*
 * Whether it is the turn of any rule within the next @n packets.  For rules that count all packets.
 */
static inline bool
has_turn(const struct imp_set *s, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < s->n; i++)
		if (s->live[i].next - s->live[i].seen - 1 < n)
			return true;
	return false;
}

/*
 * Counts packets for rules of the usual kind: the n-th packet, and every n-th, of all packets.
 * Until it is the turn of one of them, it is enough to know which packets are RoCEv2.
 */
static void
count_all(struct imp_set *s, struct rte_mbuf *const *bufs, uint32_t from, uint32_t n)
{
	uint32_t i, roce = 0;

	for (i = from; i < n; i++) {
		uint8_t copy[IMP_HEADERS];
		struct imp_frame f;

		roce += is_plain(bufs[i], imp_headers(bufs[i])) ||
			frame_read_any(bufs[i], &f, copy);
	}
	for (i = 0; i < s->n; i++)
		s->live[i].seen += roce;
}

/* Judges a packet that a rule may match.  @return whether it was hit. */
static __attribute__((noinline)) bool
look(struct imp_queue *q, const struct rte_mbuf *m, uint64_t now, struct imp_verdict *v)
{
	uint8_t copy[IMP_HEADERS];
	struct imp_frame f;

	return imp_frame_read(m, &f, copy) && is_wanted(q->set, f.bth) &&
		judge(q, q->set, &f, now, v);
}

uint16_t
imp_scan(struct imp_queue *q, struct rte_mbuf *const *bufs, uint16_t from, uint16_t n, uint64_t now,
	struct imp_verdict *v)
{
	const struct imp_set *s = q->set;
	uint32_t i;

	if (s->counts_all && !has_turn(s, (uint32_t)n - from)) {
		count_all(q->set, bufs, from, n);
		return n;
	}
	for (i = from; i < n; i++) {
		const uint8_t *d = imp_headers(bufs[i]);

		if (unlikely((!is_plain(bufs[i], d) || is_wanted(s, d + BTH_IP4)) &&
			    look(q, bufs[i], now, v)))
			break;
	}
	return (uint16_t)i;
}
