/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Delivers parsed packets to their queue pairs, in four passes over a chunk that fits the cache.
 * Each pass prefetches what the next one needs: the entry in the table of QPs, the QP, the frame
 * (verified: from here on it is in L1 or L2); the last pass delivers, which copies.
 */
#include "capture_ring.h"
#include "group.h"
#include "gsi_rx.h"
#include "karst_hdr.h"
#include "karst_opcode.h"

/* Distance in packets between the delivery and the prefetch of send rings. */
#define RESPONSE_AHEAD 2u

static inline void
prefetch_response(const struct karst_pkt *pkt)
{
	if (pkt->qp != NULL && (karst_opcode_flags(pkt->opcode) & KARST_OPF_RESPONSE))
		karst_qp_prefetch_response(pkt->qp);
}

static karst_noinline void
no_such_qp(struct eng_lcore *lc, const struct karst_pkt *pkt)
{
	if (pkt->dqpn == KARST_QPN_MULTICAST)
		eng_group_deliver(lc, pkt);
	else if (pkt->dqpn == ENG_GSI_QPN)
		eng_gsi_rx(lc, pkt);
	else
		karst_count_drop(&lc->core->counters, KARST_DROP_NO_QP);
}

static inline bool
dispatch_deliver(struct eng_lcore *lc, struct karst_pkt *pkt)
{
	/* for the watchdog */
	atomic_store_explicit(&lc->at, pkt->dqpn, memory_order_relaxed);
	return karst_qp_rx(lc->core, pkt);
}

void
eng_dispatch(struct eng_lcore *lc, struct rte_mbuf **mbufs, struct karst_pkt **pkts, unsigned int n)
{
	struct karst_core *core = lc->core;
	unsigned int i;

	for (i = 0; i < n; i++) {
		uint32_t slot = pkts[i]->dqpn >> core->lcore_bits;

		if (karst_likely(slot < core->qpns))
			rte_prefetch0(&core->qps[slot]);
	}
	for (i = 0; i < n; i++) {
		struct karst_core_qp *qp = karst_core_lookup(core, pkts[i]->dqpn);

		pkts[i]->qp = qp;
		if (karst_likely(qp != NULL))
			karst_qp_prefetch_rx(qp, pkts[i]->opcode);
	}
	core->placer.demote_tail = core->cross_cpu && n == 1;
	karst_icrc_verify_burst(pkts, n);
	if (karst_unlikely(lc->capture != NULL))
		eng_capture_rx(lc, pkts, n);
	for (i = 0; i < n; i++) {
		struct karst_pkt *pkt = pkts[i];

		if (i + RESPONSE_AHEAD < n)
			prefetch_response(pkts[i + RESPONSE_AHEAD]);
		if (karst_unlikely(pkt->drop != KARST_DROP_NONE))
			karst_count_drop(&core->counters, pkt->drop);
		else if (karst_unlikely(pkt->qp == NULL))
			no_such_qp(lc, pkt);
		else if (karst_unlikely(dispatch_deliver(lc, pkt)))
			continue; /* the packet waits for memory that has to be copied */
		buffer_free(lc, mbufs[i]);
	}
	atomic_store_explicit(&lc->at, ENG_AT_NONE, memory_order_relaxed);
}
