/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Packets to multicast groups.
 *
 * A packet to a group arrives on any lcore.  That lcore gives a copy to each other lcore that has
 * members, over the hand-off rings.  There it is processed like any packet, up to dispatch, which
 * delivers it to each member in turn.  Members are independent: if one drops the packet, because it
 * has no receive request or another Q_Key, the others still get it.
 *
 * A packet that a QP of this engine sends to a group leaves by the device, and the engine receives
 * a copy on the port's loopback port.  A port without a device is its own loopback port.
 */
#include "group.h"

#include "capture_ring.h"
#include "copies.h"
#include "karst_hdr.h"

const struct eng_group_table *
eng_group_table_of(const struct karst_engine *e)
{
	/* acquire, pairs with the release in mcast_publish(): the table is written */
	uint32_t seq = atomic_load_explicit(&e->mcast_seq, memory_order_acquire);

	return seq != 0 ? &e->group_table[seq & 1] : NULL;
}

static const struct eng_group *
group_find(const struct eng_group_table *t, uint8_t port, const uint8_t ip[16])
{
	uint32_t lo = 0, hi = t != NULL ? t->ngroups : 0;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;
		const struct eng_group *g = &t->group[mid];
		int d = eng_group_compare(port, ip, g->port, g->ip);

		if (d == 0)
			return g;
		if (d < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

static const struct eng_group *
group_of(const struct karst_engine *e, const struct eng_group_table *t, const struct karst_pkt *pkt,
	enum karst_drop *why)
{
	const struct karst_engine_addr dst = eng_pkt_dst(pkt);

	/* QP 0xffffff at a unicast address is not multicast */
	*why = eng_ip_is_group(dst.ip) ? KARST_DROP_NO_GROUP : KARST_DROP_NO_QP;
	return group_find(t, eng_port_base(pkt->port), dst.ip);
}

/* --- coming in --- */

/* Copies a parsed frame with the parser's results; NULL: no buffer. */
static struct rte_mbuf *
group_copy_of(struct eng_lcore *lc, const struct rte_mbuf *m)
{
	struct rte_mbuf *c = rte_pktmbuf_alloc(lc->pool);

	if (c == NULL)
		return NULL;
	if (m->data_len > rte_pktmbuf_tailroom(c)) {
		rte_pktmbuf_free(c);
		return NULL;
	}
	memcpy(rte_pktmbuf_mtod(c, void *), rte_pktmbuf_mtod(m, const void *), m->data_len);
	c->data_len = m->data_len;
	c->pkt_len = m->data_len;
	c->port = m->port;
	return c;
}

static void
give_copy(struct eng_lcore *lc, uint32_t to, const struct rte_mbuf *m, const struct karst_pkt *pkt)
{
	struct rte_mbuf *c = group_copy_of(lc, m);
	struct karst_pkt *p;

	if (c == NULL) {
		karst_count_drop(&lc->core->counters, KARST_DROP_HANDOFF_FULL);
		return;
	}
	p = rte_mbuf_to_priv(c);
	*p = *pkt;
	p->data = rte_pktmbuf_mtod(c, uint8_t *);
	eng_handoff_give(lc, to, c);
}

bool
eng_group_spread(struct eng_lcore *lc, struct rte_mbuf *m)
{
	const struct karst_pkt *pkt = rte_mbuf_to_priv(m);
	enum karst_drop why;
	const struct eng_group *g = group_of(lc->e, eng_group_table_of(lc->e), pkt, &why);
	bool mine;
	uint64_t to;

	if (g == NULL) {
		karst_count_drop(&lc->core->counters, why);
		buffer_free(lc, m);
		return false;
	}
	mine = (g->lcores >> lc->index & 1) != 0;
	for (to = g->lcores & ~(1ull << lc->index); to != 0; to &= to - 1) {
		uint32_t lcore = (uint32_t)__builtin_ctzll(to);

		/* the last one may get the frame itself */
		if (!mine && (to & (to - 1)) == 0)
			eng_handoff_give(lc, lcore, m);
		else
			give_copy(lc, lcore, m, pkt);
	}
	return mine;
}

void
eng_group_deliver(struct eng_lcore *lc, const struct karst_pkt *pkt)
{
	const struct eng_group_table *t = eng_group_table_of(lc->e);
	enum karst_drop why;
	const struct eng_group *g = group_of(lc->e, t, pkt, &why);
	uint32_t i;

	if (g == NULL) {
		karst_count_drop(&lc->core->counters, why);
		return;
	}
	lc->copies->fleeting = true;
	for (i = g->first; i < g->first + g->n; i++) {
		struct karst_pkt own = *pkt, *p = &own;

		/* NULL: on another lcore */
		own.qp = karst_core_lookup(lc->core, t->qpn[i]);
		if (own.qp == NULL)
			continue;
		own.dqpn = t->qpn[i];
		if (karst_unlikely(lc->capture != NULL))
			eng_capture_rx(lc, &p, 1);
		karst_qp_rx(lc->core, &own);
	}
	lc->copies->fleeting = false;
}

/* --- going out --- */

struct rte_mbuf *
eng_group_echo(struct eng_lcore *lc, const struct rte_mbuf *m, uint8_t port)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	/* the engine has built the frame: one tag at most, no options */
	bool vlan = karst_get_be16(frame + KARST_ETH_LEN - 2) == 0x8100;
	const uint8_t *l3 = frame + KARST_ETH_LEN + (vlan ? KARST_VLAN_LEN : 0);
	bool ip6 = l3[0] >> 4 == 6;
	struct karst_pkt pkt = {
		.data = (uint8_t *)(uintptr_t)frame,
		.port = port,
		.flags = (uint8_t)((ip6 ? KARST_PKT_IP6 : 0) | (vlan ? KARST_PKT_VLAN : 0)),
	};
	enum karst_drop why;
	struct rte_mbuf *c;

	l3 += (ip6 ? KARST_IP6_LEN : KARST_IP4_LEN) + KARST_UDP_LEN;
	if (karst_bth_dqpn(l3) != KARST_QPN_MULTICAST ||
		group_of(lc->e, eng_group_table_of(lc->e), &pkt, &why) == NULL)
		return NULL;
	c = group_copy_of(lc, m);
	if (c == NULL)
		stat_add(&lc->stats.tx_dropped, 1);
	return c;
}
