/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Receives frames from a port's queue.
 *
 * A burst is processed in chunks of about rx_bytes: each is parsed, sorted (drop, another lcore's,
 * this lcore's) and delivered before the next chunk, so that a large packet is still in the cache
 * when it is copied after its ICRC was verified.
 *
 * struct karst_pkt is in the mbuf's private area.  With net_ring, the peer gets an mbuf by pointer
 * and may overwrite its private area from then on.
 */
#include "group.h"
#include "gsi_rx.h"
#include "karst_hdr.h"
#include "karst_parse.h"

/* xorshift64*: sufficient for dropping packets at random. */
static uint64_t
loss_draw(struct eng_lcore *lc)
{
	uint64_t x = lc->loss_state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	lc->loss_state = x;
	return x * 0x2545f4914f6cdd1dull;
}

static karst_noinline void
inject_loss(struct eng_lcore *lc, struct karst_pkt **pkts, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (pkts[i]->drop == KARST_DROP_NONE && loss_draw(lc) < lc->loss)
			pkts[i]->drop = KARST_DROP_INJECTED;
}

/*
 * Makes one segment of a frame in several: some adapters fill a buffer only up to a full KiB, so
 * the rest of a frame of the largest path MTU comes in a second one.  The first buffer has room for
 * it.
 * @return whether the frame is in one buffer now.
 */
static karst_noinline bool
join_segments(struct rte_mbuf *m)
{
	return RTE_MBUF_DIRECT(m) && rte_mbuf_refcnt_read(m) == 1 && rte_pktmbuf_linearize(m) == 0;
}

/* Makes packets of mbufs; frees those that are not used.  @return how many packets. */
static unsigned int
rx_describe(struct eng_lcore *lc, struct rte_mbuf **mbufs, struct karst_pkt **pkts, unsigned int n,
	unsigned int port)
{
	unsigned int i, k = 0;

	for (i = 0; i < n; i++) {
		struct rte_mbuf *m = mbufs[i];
		struct karst_pkt *pkt = rte_mbuf_to_priv(m);
		uint8_t from = (uint8_t)(port == ENG_RX_LOOP ? m->port : port);

		if (karst_unlikely(m->priv_size < sizeof(*pkt) ||
			    (m->nb_segs != 1 && !join_segments(m)))) {
			lc->e->hooks->exception(lc, eng_port_base(from), m, KARST_DROP_SEGMENTED);
			continue;
		}
		pkt->data = rte_pktmbuf_mtod(m, uint8_t *);
		pkt->len = m->data_len;
		pkt->port = from;
		mbufs[k] = m;
		pkts[k++] = pkt;
	}
	return k;
}

static inline bool
rx_accepts(const struct eng_lcore *lc, unsigned int port, const struct karst_pkt *pkt,
	enum karst_drop *why)
{
	if (*why != KARST_DROP_NONE)
		return false;
	if (port == ENG_RX_LOOP)
		return eng_loop_accepts(lc->e, pkt, why);
	return eng_port_accepts(&lc->e->port[port], pkt, why);
}

/* What this engine has sent to itself is of no use to the kernel.  Nor can each lcore pass it on:
 * those that do not serve the port have no ring to its tap. */
static karst_noinline void
rx_refuse(struct eng_lcore *lc, unsigned int port, struct rte_mbuf *m, enum karst_drop why)
{
	const struct karst_pkt *pkt = rte_mbuf_to_priv(m);

	if (port != ENG_RX_LOOP) {
		lc->e->hooks->exception(lc, eng_port_base(pkt->port), m, why);
		return;
	}
	karst_count_drop(&lc->core->counters, why);
	buffer_free(lc, m);
}

static void
rx_chunk(struct eng_lcore *lc, struct rte_mbuf **mbufs, unsigned int n, unsigned int port)
{
	struct karst_pkt *pkts[ENG_MAX_BURST];
	struct rte_mbuf *away[ENG_MAX_BURST];
	unsigned int i, mine = 0, naway = 0;

	n = rx_describe(lc, mbufs, pkts, n, port);
	if (karst_unlikely(n == 0))
		return;
	karst_parse_burst(pkts, n);
	if (karst_unlikely(lc->loss != 0))
		inject_loss(lc, pkts, n);
	for (i = 0; i < n; i++) {
		struct karst_pkt *pkt = pkts[i];
		enum karst_drop why = pkt->drop;

		if (karst_unlikely(!rx_accepts(lc, port, pkt, &why))) {
			rx_refuse(lc, port, mbufs[i], why);
			continue;
		}
		if (karst_unlikely(pkt->dqpn == KARST_QPN_MULTICAST)) {
			if (!eng_group_spread(lc, mbufs[i]))
				continue;
		} else if (karst_unlikely(karst_qpn_lcore(lc->core, pkt->dqpn) != lc->index &&
				   pkt->dqpn != ENG_GSI_QPN)) {
			away[naway++] = mbufs[i];
			continue;
		}
		mbufs[mine] = mbufs[i];
		pkts[mine++] = pkt;
	}
	if (naway > 0)
		eng_handoff_put(lc, away, naway);
	eng_dispatch(lc, mbufs, pkts, mine);
}

void
eng_rx_burst(struct eng_lcore *lc, struct rte_mbuf **mbufs, unsigned int n, unsigned int port)
{
	unsigned int i, from;
	uint32_t bytes = 0;

	for (i = 0; i < n; i++) {
		/* The frame begins after the headroom, whoever wrote it, so its address is known
		 * without reading the mbuf. */
		uint8_t *p = (uint8_t *)rte_mbuf_to_priv(mbufs[i]);

		rte_prefetch0(mbufs[i]);
		rte_prefetch0(p);
		rte_prefetch0(p + sizeof(struct karst_pkt) + RTE_PKTMBUF_HEADROOM);
		rte_prefetch0(p + sizeof(struct karst_pkt) + RTE_PKTMBUF_HEADROOM + 64);
	}
	for (i = from = 0; i < n; i++) {
		bytes += mbufs[i]->pkt_len;
		if (bytes >= lc->e->cfg.rx_bytes || i + 1 == n) {
			rx_chunk(lc, mbufs + from, i + 1 - from, port);
			from = i + 1;
			bytes = 0;
		}
	}
	stat_add(&lc->stats.rx_bursts, 1);
	stat_add(&lc->stats.rx_frames, n);
}

static unsigned int
rx_queue(struct eng_lcore *lc, const struct eng_rxq *q)
{
	struct rte_mbuf *mbufs[ENG_MAX_BURST];
	unsigned int n;

	n = rte_eth_rx_burst(q->ethdev, q->queue, mbufs, (uint16_t)lc->e->cfg.rx_burst);
	if (n > 0)
		eng_rx_burst(lc, mbufs, n, q->port);
	return n;
}

unsigned int
eng_rx_poll(struct eng_lcore *lc)
{
	unsigned int i, n = 0;

	for (i = 0; i < lc->nrxq; i++)
		n += rx_queue(lc, &lc->rxq[i]);
	return n;
}
