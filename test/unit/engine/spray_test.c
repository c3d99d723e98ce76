/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Requests that are sent with several source ports (X12), and a device that spreads frames over its
 * queues by source port, as RSS does: so packets of one queue pair arrive at two lcores, out of
 * order, and packets at the wrong lcore are handed off by queue pair number.
 *
 * The test plays the device: between two turns it takes the frames from the wire to B and puts them
 * into the queues of their source ports, the last frame first.
 */
#include <criterion/criterion.h>
#include <rte_mbuf.h>
#include <stdlib.h>

#include "engine_bed.h"
#include "karst_hdr.h"

#define PORTS 4u
#define BYTES (256u << 10)
/* Turns of both lcores: far more than are needed. */
#define TURNS 1000000u

struct spread {
	uint32_t frames[2];              /* with data, by queue */
	uint32_t ports[KARST_SPRAY_MAX]; /* by the low bits of their source ports */
};

static uint32_t
l3_of(bool ip6)
{
	return 14 + (ip6 ? KARST_IP6_LEN : KARST_IP4_LEN);
}

static void
spread_wire(struct engine_bed *bed, bool ip6, struct spread *s)
{
	struct rte_mbuf *m[2048];
	uint32_t n = 0, q;

	for (q = 0; q < 2; q++)
		while (n < KARST_DIM(m) && rte_ring_dequeue(bed->ring[0][q], (void **)&m[n]) == 0)
			n++;
	while (n-- > 0) {
		const uint8_t *udp = rte_pktmbuf_mtod_offset(m[n], const uint8_t *, l3_of(ip6));
		uint32_t port = karst_udp_sport(udp);

		q = port & 1;
		if (m[n]->pkt_len > 1024) {
			s->frames[q]++;
			s->ports[port % KARST_SPRAY_MAX]++;
		}
		cr_assert_eq(rte_ring_enqueue(bed->ring[0][q], m[n]), 0);
	}
}

static void
write_over_two_queues(bool ip6)
{
	static uint8_t mem[2][BYTES];
	struct karst_engine_addr peers = {.prefix = 8};
	struct engine_bed_config cfg = {.ip6 = ip6,
		.engine = {.lcores = 2,
			.repeat_peers = &peers,
			.nrepeat_peers = 1,
			.held_frames = 512,
			.mbufs = 8192,
			.spray_ports = PORTS}};
	struct karst_engine_lcore_stats stats;
	struct karst_engine_qp *a, *b;
	struct karst_counters c;
	struct spread s = {0};
	struct engine_bed bed;
	uint32_t key[2], turn, used = 0, i;
	struct karst_cqe cqe = {0};

	if (ip6)
		peers.ip[0] = 0xfd;
	else
		peers = karst_engine_addr_ip4(0x0a000000);
	peers.prefix = 8;
	engine_bed_up(&bed, &cfg);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 1);
	engine_bed_connect(&bed, a, b);
	for (i = 0; i < 2; i++)
		key[i] = engine_bed_mr(&bed, mem[i], BYTES);
	engine_bed_fill(mem[0], BYTES, 1);
	engine_bed_post(a, KARST_WR_RDMA_WRITE, 7, mem[0], BYTES, key[0], mem[1], key[1]);
	for (turn = 0; turn < TURNS && cqe.wr_id != 7; turn++) {
		karst_engine_poll(bed.e, 0);
		spread_wire(&bed, ip6, &s);
		karst_engine_poll(bed.e, 1);
		karst_engine_cq_poll(bed.cq, &cqe, 1);
	}
	cr_assert_eq(cqe.wr_id, 7);
	cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	cr_assert_arr_eq(mem[0], mem[1], BYTES);
	for (i = 0; i < KARST_SPRAY_MAX; i++)
		used += s.ports[i] != 0;
	cr_assert_eq(used, PORTS);
	cr_assert_gt(s.frames[0], 0);
	cr_assert_gt(s.frames[1], 0);
	cr_assert_eq(karst_engine_lcore_stats(bed.e, 1, &stats), 0);
	cr_assert_geq(stats.handoff_in, s.frames[0]);
	karst_engine_counters(bed.e, KARST_ENGINE_ANY_LCORE, &c);
	cr_assert_gt(c.ctr[KARST_CTR_REQUESTS_HELD], 0);
	engine_bed_down(&bed);
}

Test(spray, x12_two_queues_ip4)
{
	write_over_two_queues(false);
}

Test(spray, x12_two_queues_ip6)
{
	write_over_two_queues(true);
}
