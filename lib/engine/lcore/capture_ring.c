/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The lcore's side of a capture.
 *
 * The ring has a single producer (the lcore) and a single consumer (the writer, capture.c).  Each
 * index has one writer; a slot belongs to the consumer from the release of tail until the release
 * of head.
 */
#include "capture_ring.h"

static void
capture_take(struct eng_capture_ring *c, const struct karst_pkt *pkt, bool out)
{
	struct eng_capture_slot *s = eng_capture_slot_at(c, c->tail);

	if (c->left == 0)
		return;
	/* acquire, pairs with the release in capture_drain(): the slot has been read */
	if (c->tail - atomic_load_explicit(&c->shared_head, memory_order_acquire) ==
		ENG_CAPTURE_SLOTS) {
		stat_add(&c->dropped, 1);
		return;
	}
	c->left--;
	s->tsc = rte_rdtsc();
	s->len = pkt->len;
	s->have = (uint16_t)karst_min_u32(pkt->len, c->snaplen);
	s->port = eng_port_base(pkt->port);
	s->out = out;
	memcpy(s->data, pkt->data, s->have);
	c->tail++;
	/* release, pairs with the acquire in capture_drain(): the slot is filled */
	atomic_store_explicit(&c->shared_tail, c->tail, memory_order_release);
}

void
eng_capture_rx(struct eng_lcore *lc, struct karst_pkt *const *pkts, unsigned int n)
{
	struct eng_capture_ring *c = lc->capture;
	unsigned int i;

	for (i = 0; i < n; i++)
		if (pkts[i]->dqpn == c->qpn)
			capture_take(c, pkts[i], false);
}

void
eng_capture_built(
	struct eng_lcore *lc, const struct karst_core_qp *qp, unsigned int from, unsigned int to)
{
	struct eng_capture_ring *c = lc->capture;

	if (karst_qp_num(qp) != c->qpn)
		return;
	for (; from < to; from++)
		c->built |= 1ull << from;
}

void
eng_capture_tx(struct eng_lcore *lc, unsigned int n, uint64_t lost)
{
	struct eng_capture_ring *c = lc->capture;
	unsigned int i;

	for (i = 0; i < n; i++)
		if ((c->built & ~lost) >> i & 1)
			capture_take(c, &lc->tx_pkt[i], true);
	c->built = 0;
}
