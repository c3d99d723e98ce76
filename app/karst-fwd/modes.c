/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "fwd.h"

void
fwd_send(struct fwd_stream *s, struct rte_mbuf **m, uint32_t n)
{
	uint16_t sent = 0;

	if (karst_likely(!fwd_port_is_gone(s->tx)))
		sent = rte_eth_tx_burst(s->tx->id, s->tx_queue, m, (uint16_t)n);
	fwd_add(&s->tx_packets, sent);
	if (karst_unlikely(sent < n)) {
		fwd_add(&s->tx_dropped, n - sent);
		rte_pktmbuf_free_bulk(m + sent, n - sent);
	}
}

static uint32_t
turn_io(struct fwd_lcore *lc, struct fwd_stream *s)
{
	struct rte_mbuf *m[FWD_BURST_MAX];
	uint32_t n = fwd_receive(lc, s, m);

	if (n != 0)
		fwd_send(s, m, n);
	return n;
}

/* Sets the MAC addresses as testpmd does: from the port that sends to that port's peer. */
static uint32_t
turn_mac(struct fwd_lcore *lc, struct fwd_stream *s)
{
	struct rte_mbuf *m[FWD_BURST_MAX];
	uint32_t i, n = fwd_receive(lc, s, m);

	for (i = 0; i < n; i++) {
		struct rte_ether_hdr *eth;

		if (i + 1 < n)
			rte_prefetch0(rte_pktmbuf_mtod(m[i + 1], void *));
		eth = rte_pktmbuf_mtod(m[i], struct rte_ether_hdr *);
		eth->dst_addr = s->tx->peer;
		eth->src_addr = s->tx->mac;
	}
	if (n != 0)
		fwd_send(s, m, n);
	return n;
}

static uint32_t
turn_sink(struct fwd_lcore *lc, struct fwd_stream *s)
{
	struct rte_mbuf *m[FWD_BURST_MAX];
	uint32_t n = fwd_receive(lc, s, m);

	rte_pktmbuf_free_bulk(m, n);
	return n;
}

static const struct fwd_mode modes[] = {
	{.name = "io", .turn = turn_io},
	{.name = "mac", .turn = turn_mac},
	{.name = "sink", .turn = turn_sink},
	{.name = "roce-check", .checks = true, .turn = fwd_turn_check},
	{.name = "reflect", .checks = true, .loops = true, .turn = fwd_turn_reflect},
	{.name = "gen", .checks = true, .loops = true, .generates = true, .turn = fwd_turn_gen},
};

const struct fwd_mode *
fwd_mode_of(const char *name)
{
	size_t i;

	for (i = 0; i < KARST_DIM(modes); i++)
		if (strcmp(modes[i].name, name) == 0)
			return &modes[i];
	return NULL;
}

const struct fwd_mode *
fwd_mode_at(unsigned int i)
{
	return i < KARST_DIM(modes) ? &modes[i] : NULL;
}

void
fwd_mode_names(char *text, size_t room)
{
	size_t i, at = 0;

	for (i = 0; i < KARST_DIM(modes) && at < room; i++)
		at += (size_t)snprintf(
			text + at, room - at, "%s%s", i == 0 ? "" : "|", modes[i].name);
}
