/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Packets that arrived on another lcore than the one that owns their queue pair.
 *
 * Each lcore has a ring of mbufs into which all others put; the parsed packet is in the mbuf's
 * private area.  The owner verifies the ICRC, so that only one processor reads the payload, the one
 * that will copy it.
 */
#include "lcore.h"

void
eng_handoff_put(struct eng_lcore *lc, struct rte_mbuf **mbufs, unsigned int n)
{
	struct karst_engine *e = lc->e;
	void *batch[ENG_MAX_BURST];

	stat_add(&lc->stats.handoff_out, n);
	while (n > 0) {
		unsigned int i, left = 0, nb = 0, sent = 0;
		const struct karst_pkt *pkt = rte_mbuf_to_priv(mbufs[0]);
		uint32_t to = karst_qpn_lcore(lc->core, pkt->dqpn);

		for (i = 0; i < n; i++) {
			pkt = rte_mbuf_to_priv(mbufs[i]);
			if (karst_qpn_lcore(lc->core, pkt->dqpn) == to)
				batch[nb++] = mbufs[i];
			else
				mbufs[left++] = mbufs[i];
		}
		if (to < e->nlcores) {
			sent = rte_ring_mp_enqueue_burst(e->lcore[to].handoff, batch, nb, NULL);
			eng_lcore_wake(&e->lcore[to]);
		}
		for (i = sent; i < nb; i++) {
			karst_count_drop(&lc->core->counters,
				to < e->nlcores ? KARST_DROP_HANDOFF_FULL : KARST_DROP_NO_QP);
			buffer_free(lc, batch[i]);
		}
		n = left;
	}
}

void
eng_handoff_give(struct eng_lcore *lc, uint32_t to, struct rte_mbuf *m)
{
	void *obj = m;

	stat_add(&lc->stats.handoff_out, 1);
	if (rte_ring_mp_enqueue(lc->e->lcore[to].handoff, obj) != 0) {
		karst_count_drop(&lc->core->counters, KARST_DROP_HANDOFF_FULL);
		buffer_free(lc, m);
	}
	eng_lcore_wake(&lc->e->lcore[to]);
}

unsigned int
eng_handoff_poll(struct eng_lcore *lc)
{
	struct rte_mbuf *mbufs[ENG_MAX_BURST];
	struct karst_pkt *pkts[ENG_MAX_BURST];
	unsigned int n, i, k, from;
	uint32_t bytes = 0;

	n = rte_ring_sc_dequeue_burst(lc->handoff, (void **)mbufs, lc->e->cfg.rx_burst, NULL);
	if (n == 0)
		return 0;
	for (i = 0; i < n; i++)
		rte_prefetch0(rte_mbuf_to_priv(mbufs[i]));
	for (i = k = 0; i < n; i++) {
		struct karst_pkt *pkt = rte_mbuf_to_priv(mbufs[i]);

		if (karst_unlikely(pkt->drop != KARST_DROP_NONE)) {
			lc->e->hooks->exception(lc, eng_port_base(pkt->port), mbufs[i], pkt->drop);
			continue;
		}
		mbufs[k] = mbufs[i];
		pkts[k++] = pkt;
	}
	for (i = from = 0; i < k; i++) {
		bytes += pkts[i]->len;
		if (bytes >= lc->e->cfg.rx_bytes || i + 1 == k) {
			eng_dispatch(lc, mbufs + from, pkts + from, i + 1 - from);
			from = i + 1;
			bytes = 0;
		}
	}
	stat_add(&lc->stats.handoff_in, n);
	return n;
}
