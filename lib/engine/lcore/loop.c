/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Loopback: frames from one queue pair of this engine to another.
 *
 * Each port has a loopback port, with a number that is KARST_ENGINE_MAX_PORTS higher and the same
 * addresses and lcores; a port without a device is its own loopback port.  The scheduler treats a
 * loopback port like any other.  The frames of its queue go into a ring, one for each lcore, and
 * from there through parser, address check, ICRC and dispatch like a received frame.  No step is
 * omitted, so two programs on one host see what they would see on two hosts.
 *
 * A device would spread frames over its queues by a hash, and lcores would hand them on; here a
 * frame goes directly to the lcore of its destination queue pair, since that costs nothing more.
 *
 * Order: a queue pair's frames go into one ring, in their order.  If a ring is full, the remaining
 * frames wait in the queue of the loopback port, and its queue pairs wait as with any port.  The
 * wait always ends, because an lcore empties its ring whether or not it can send.
 */
#include "lcore.h"
#include "karst_hdr.h"

/* The lcore of the queue pair that frame @m is for. */
static inline uint32_t
lcore_of(const struct eng_lcore *lc, const struct rte_mbuf *m)
{
	const uint8_t *l3 = rte_pktmbuf_mtod_offset(m, const uint8_t *, KARST_ETH_LEN);
	uint32_t lcore;

	if (lc->e->nlcores == 1)
		return lc->index;
	/* the engine has built the frame: one tag at most, no options */
	if (karst_get_be16(l3 - 2) == 0x8100)
		l3 += KARST_VLAN_LEN;
	l3 += (l3[0] >> 4 == 6 ? KARST_IP6_LEN : KARST_IP4_LEN) + KARST_UDP_LEN;
	lcore = karst_qpn_lcore(lc->core, karst_bth_dqpn(l3));
	return lcore < lc->e->nlcores ? lcore : lc->index;
}

uint16_t
eng_loop_send(struct eng_lcore *lc, unsigned int port, struct rte_mbuf **mbufs, uint16_t n)
{
	uint16_t i = 0;

	while (i < n) {
		uint32_t to = lcore_of(lc, mbufs[i]);
		uint16_t end = i, sent;

		do {
			mbufs[end++]->port = (uint16_t)port;
		} while (end < n && lcore_of(lc, mbufs[end]) == to);
		sent = (uint16_t)rte_ring_enqueue_burst(lc->e->lcore[to].loop,
			(void *const *)&mbufs[i], (unsigned int)(end - i), NULL);
		if (to != lc->index)
			eng_lcore_wake(&lc->e->lcore[to]);
		i = (uint16_t)(i + sent);
		if (i != end)
			break;
	}
	return i;
}

unsigned int
eng_loop_poll(struct eng_lcore *lc)
{
	struct rte_mbuf *mbufs[ENG_MAX_BURST];
	unsigned int n;

	n = rte_ring_sc_dequeue_burst(lc->loop, (void **)mbufs, lc->e->cfg.rx_burst, NULL);
	if (n > 0)
		eng_rx_burst(lc, mbufs, n, ENG_RX_LOOP);
	return n;
}

uint8_t
karst_engine_port_loop(const struct karst_engine *e, uint8_t port)
{
	uint8_t base = eng_port_base(port);

	if (e->port[base].info.ethdev == KARST_ENGINE_NO_ETHDEV)
		return base;
	return (uint8_t)(base + KARST_ENGINE_MAX_PORTS);
}
