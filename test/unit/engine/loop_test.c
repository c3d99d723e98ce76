/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Frames that never leave the machine: through the loopback twin of a port with a device, and
 * through a port without a device. */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include <criterion/criterion.h>
#include <rte_ethdev.h>

#include "engine_bed.h"

#define QPS   4u
#define BYTES 65536u

/* Like engine_bed_connect(), but through the loopback twins; @timeout is that of retransmission, 0:
 * never.  Tests that expect no drops use 0: a thread that gets no processor is late, and a
 * retransmission because of that is a duplicate. */
static void
connect_twins(struct engine_bed *bed, struct karst_engine_qp *a, struct karst_engine_qp *b,
	int side_b, uint8_t timeout)
{
	struct karst_engine_qp *qp[2] = {a, b};
	const int side[2] = {0, side_b};
	struct karst_engine_port_info dst;
	struct karst_core_qp_attr attr;
	enum karst_qp_state to;
	int i;

	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		for (i = 0; i < (a == b ? 1 : 2); i++) {
			unsigned int mask = engine_bed_attr(
				bed, KARST_QPT_RC, side[i], qp[1 - i]->num, to, &attr);

			cr_assert_eq(
				karst_engine_port_info(bed->e, bed->port[side[1 - i]], &dst), 0);
			cr_assert_eq(karst_engine_path_init(bed->e,
					     karst_engine_port_loop(bed->e, bed->port[side[i]]), 0,
					     dst.mac, dst.addrs[0].ip, &attr.path),
				0);
			attr.rq_psn = attr.sq_psn = 0xfffff0;
			attr.timeout = timeout;
			cr_assert_eq(karst_engine_qp_modify(bed->e, qp[i], &attr, mask), 0,
				"QP %d to state %d", i, to);
		}
	}
}

/* Connects a QP through the twin of port A with queue pair @peer at port A's own address; nothing
 * is sent again. */
static void
connect_to(struct engine_bed *bed, struct karst_engine_qp *qp, uint32_t peer)
{
	struct karst_engine_port_info own;
	struct karst_core_qp_attr attr;
	enum karst_qp_state to;

	cr_assert_eq(karst_engine_port_info(bed->e, bed->port[0], &own), 0);
	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		unsigned int mask = engine_bed_attr(bed, KARST_QPT_RC, 0, peer, to, &attr);

		cr_assert_eq(karst_engine_path_init(
				     bed->e, bed->port[0], 0, own.mac, own.addrs[0].ip, &attr.path),
			0);
		attr.timeout = 0;
		cr_assert_eq(karst_engine_qp_modify(bed->e, qp, &attr, mask), 0, "to state %d", to);
	}
}

/* Nothing was sent on a wire, except announcements of the addresses. */
static void
check_wires_are_silent(const struct engine_bed *bed)
{
	struct rte_eth_stats stats;
	int side;

	for (side = 0; side < 2; side++) {
		cr_assert_eq(rte_eth_stats_get(bed->ethdev[side], &stats), 0);
		cr_assert_lt(stats.opackets, 16);
	}
}

static void
check_no_drops(const struct engine_bed *bed)
{
	struct karst_counters sum;
	unsigned int i;

	karst_engine_counters(bed->e, KARST_ENGINE_ANY_LCORE, &sum);
	for (i = KARST_DROP_NONE + 1; i < KARST_DROP_MAX; i++)
		cr_assert_eq(sum.drop[i], 0, "%s", karst_drop_name(i));
}

/* Sends WRITEs and READs between @a and @b, and checks every byte. */
static void
exchange(struct engine_bed *bed, struct karst_engine_qp *a, struct karst_engine_qp *b)
{
	static uint8_t mem[2][BYTES];
	struct karst_engine_qp *qp[2] = {a, b};
	uint32_t key[2] = {engine_bed_mr(bed, mem[0], BYTES), engine_bed_mr(bed, mem[1], BYTES)};
	struct karst_cqe cqe;
	unsigned int i;

	for (i = 0; i < 8; i++) {
		unsigned int from = i & 1, to = 1 - from;

		engine_bed_fill(mem[from], BYTES, i);
		memset(mem[to], 0, BYTES);
		engine_bed_post(qp[from], KARST_WR_RDMA_WRITE, i, mem[from], BYTES, key[from],
			mem[to], key[to]);
		cr_assert(engine_bed_wait(bed, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		cr_assert_eq(memcmp(mem[from], mem[to], BYTES), 0);
		memset(mem[from], 0, BYTES);
		engine_bed_post(qp[from], KARST_WR_RDMA_READ, i, mem[from], BYTES, key[from],
			mem[to], key[to]);
		cr_assert(engine_bed_wait(bed, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		cr_assert_eq(memcmp(mem[from], mem[to], BYTES), 0);
	}
	cr_assert_eq(karst_engine_mr_dereg_many(bed->e, key, 2), 0);
}

Test(loop, twins_and_paths)
{
	static const struct karst_engine_addr addr = {
		.ip = {[10] = 0xff, 0xff, 10, 0, 7, 7}, .prefix = 24};
	struct karst_engine_port_config cfg = {
		.ethdev = KARST_ENGINE_NO_ETHDEV, .num_addrs = 1, .addrs = &addr};
	struct karst_engine_port_info a, b;
	struct engine_bed_config bcfg = {0};
	struct karst_path path;
	struct engine_bed bed;
	uint8_t port, twin;

	engine_bed_up(&bed, &bcfg);
	twin = karst_engine_port_loop(bed.e, bed.port[0]);
	cr_assert_neq(twin, bed.port[0]);
	cr_assert_eq(karst_engine_port_loop(bed.e, twin), twin);
	cr_assert_eq(karst_engine_port_info(bed.e, bed.port[0], &a), 0);
	cr_assert_eq(karst_engine_port_info(bed.e, bed.port[1], &b), 0);
	/* to itself through the twin, to the other QP as the caller says */
	cr_assert_eq(karst_engine_path_init(bed.e, bed.port[0], 0, a.mac, a.addrs[0].ip, &path), 0);
	cr_assert_eq(path.port, twin);
	cr_assert_eq(karst_engine_path_init(bed.e, bed.port[0], 0, b.mac, b.addrs[0].ip, &path), 0);
	cr_assert_eq(path.port, bed.port[0]);
	cr_assert_eq(karst_engine_path_init(bed.e, twin, 0, b.mac, b.addrs[0].ip, &path), 0);
	cr_assert_eq(path.port, twin);
	cr_assert_eq(karst_engine_path_init(bed.e, twin + 2, 0, b.mac, b.addrs[0].ip, &path),
		-EINVAL, "a twin of no port");

	cr_assert_eq(karst_engine_port_add(bed.e, &cfg, &port), 0);
	cr_assert_eq(karst_engine_port_loop(bed.e, port), port);
	cr_assert_eq(karst_engine_port_info(bed.e, port, &a), 0);
	cr_assert_eq(a.ethdev, KARST_ENGINE_NO_ETHDEV);
	cr_assert_eq(a.path_mtu, 5);
	cr_assert(a.link_up);
	cr_assert_eq(karst_engine_port_remove(bed.e, port), 0);
	cfg.exception_tap = "tap0";
	cr_assert_eq(karst_engine_port_add(bed.e, &cfg, &port), -EINVAL);
	engine_bed_down(&bed);
}

Test(loop, one_lcore)
{
	struct engine_bed_config cfg = {0};
	struct karst_engine_qp *a, *b, *c;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	connect_twins(&bed, a, b, 0, 0);
	exchange(&bed, a, b);
	/* to another port's address */
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	c = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	connect_twins(&bed, a, c, 1, 0);
	exchange(&bed, a, c);
	/* to itself */
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	connect_twins(&bed, a, a, 0, 0);
	exchange(&bed, a, a);
	check_wires_are_silent(&bed);
	check_no_drops(&bed);
	engine_bed_down(&bed);
}

/* Threat T132: when an address has gone, a packet to it by the loopback twin is dropped, also on an
 * lcore that does not serve the port and so has no ring to the port's tap. */
Test(loop, an_address_that_has_gone)
{
	static uint8_t mem[64];
	struct engine_bed_config cfg = {.engine.lcores = 2, .mask = {1, 1}, .tap = "loop0"};
	struct karst_engine_addr other = karst_engine_addr_ip4(0x0a090909);
	struct karst_engine_lcore_stats before, after;
	struct karst_counters sum;
	struct karst_engine_qp *qp[2];
	struct engine_bed bed;
	uint32_t key, i;

	if (unshare(CLONE_NEWNET) != 0)
		cr_skip_test("network namespaces need root: %s", strerror(errno));
	engine_bed_up(&bed, &cfg);
	key = engine_bed_mr(&bed, mem, sizeof(mem));
	for (i = 0; i < 2; i++) {
		qp[i] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		/* to a queue pair of that lcore, which need not exist */
		connect_to(&bed, qp[i], (qp[i]->num & ~1u) | i);
	}
	cr_assert_eq(karst_engine_port_set_addrs(bed.e, bed.port[0], 1, &other), 0);
	engine_bed_settle(&bed); /* what port B announces */
	cr_assert_eq(karst_engine_lcore_stats(bed.e, 0, &before), 0);
	for (i = 0; i < 2; i++)
		engine_bed_post(qp[i], KARST_WR_RDMA_WRITE, i, mem, sizeof(mem), key, mem, key);
	engine_bed_settle(&bed);
	karst_engine_counters(bed.e, KARST_ENGINE_ANY_LCORE, &sum);
	cr_assert_eq(sum.drop[KARST_DROP_DEST_ADDRESS], 2);
	cr_assert_eq(karst_engine_lcore_stats(bed.e, 0, &after), 0);
	cr_assert_eq(after.tap_rx, before.tap_rx, "the kernel got the engine's own packet");
	engine_bed_down(&bed);
}

Test(loop, vlan_and_ip6)
{
	struct engine_bed_config cfg = {.vlan = 77, .ip6 = true, .engine.lcores = 2};
	struct karst_engine_qp *a, *b;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 1);
	connect_twins(&bed, a, b, 1, 0);
	exchange(&bed, a, b);
	check_wires_are_silent(&bed);
	check_no_drops(&bed);
	engine_bed_down(&bed);
}

Test(loop, two_lcores_on_two_threads)
{
	struct engine_bed_config cfg = {.engine.lcores = 2};
	struct karst_engine_qp *a, *b;
	struct engine_bed_poller poller;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 1);
	connect_twins(&bed, a, b, 0, 0);
	engine_bed_poller_start(&poller, &bed, 1u << 1);
	exchange(&bed, a, b);
	engine_bed_poller_stop(&poller);
	check_wires_are_silent(&bed);
	check_no_drops(&bed);
	engine_bed_down(&bed);
}

/* A port without a device, lcores of another mask, and frame loss, which is repaired. */
Test(loop, port_without_device)
{
	const struct karst_engine_addr addr = karst_engine_addr_ip4(0x7f000001);
	struct karst_engine_port_config port = {
		.ethdev = KARST_ENGINE_NO_ETHDEV, .num_addrs = 1, .addrs = &addr};
	struct engine_bed_config cfg = {.engine.lcores = 2};
	struct karst_engine_qp *a, *b;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[0]), 0);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 1);
	connect_twins(&bed, a, b, 0, 0);
	exchange(&bed, a, b);
	check_no_drops(&bed);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 1);
	connect_twins(&bed, a, b, 0, 10);
	cr_assert_eq(karst_engine_set_loss(bed.e, 0.05, 3), 0);
	exchange(&bed, a, b);
	engine_bed_down(&bed);
}

/*
 * The other lcore does not empty its ring: the queue pairs wait, as for a port that is full.
 * Nothing is lost or reordered.  The sends of the second lcore to the first go on meanwhile.
 */
Test(loop, a_full_ring_holds_back)
{
	static uint8_t mem[2][1 << 20];
	struct engine_bed_config cfg = {.engine.lcores = 2};
	struct karst_engine_lcore_stats stats;
	struct karst_engine_qp *a[QPS], *b[QPS];
	uint32_t key[2], i, k, done[QPS] = {0};
	struct karst_cqe cqe;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	key[0] = engine_bed_mr(&bed, mem[0], sizeof(mem[0]));
	key[1] = engine_bed_mr(&bed, mem[1], sizeof(mem[1]));
	for (i = 0; i < QPS; i++) {
		a[i] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		b[i] = engine_bed_qp(&bed, KARST_QPT_RC, 1);
		connect_twins(&bed, a[i], b[i], 0, 0);
		for (k = 0; k < 8; k++) {
			engine_bed_fill(
				mem[0] + i * (sizeof(mem[0]) / QPS), sizeof(mem[0]) / QPS, i);
			engine_bed_post(a[i], KARST_WR_RDMA_WRITE, i << 8 | k,
				mem[0] + i * (sizeof(mem[0]) / QPS), sizeof(mem[0]) / QPS, key[0],
				mem[1] + i * (sizeof(mem[1]) / QPS), key[1]);
		}
	}
	bed.mine = 1;
	engine_bed_settle(&bed);
	cr_assert_eq(karst_engine_lcore_stats(bed.e, 0, &stats), 0);
	cr_assert_gt(stats.tx_full, 0);
	cr_assert_eq(karst_engine_cq_poll(bed.cq, &cqe, 1), 0);
	bed.mine = 3;
	for (i = 0; i < QPS * 8; i++) {
		cr_assert(engine_bed_wait(&bed, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		cr_assert_eq(cqe.wr_id & 0xff, done[cqe.wr_id >> 8]++, "in order");
	}
	cr_assert_eq(memcmp(mem[0], mem[1], sizeof(mem[0])), 0);
	check_no_drops(&bed);
	check_wires_are_silent(&bed);
	engine_bed_down(&bed);
}

/* A port is removed while frames wait in its twin and are under way. */
Test(loop, port_goes_under_traffic)
{
	static uint8_t mem[2][1 << 20];
	const struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a090909);
	struct karst_engine_port_config port = {
		.ethdev = KARST_ENGINE_NO_ETHDEV, .num_addrs = 1, .addrs = &addr};
	struct engine_bed_config cfg = {.engine.lcores = 2};
	struct karst_engine_qp *a, *b;
	unsigned int round, before;
	uint32_t key[2];
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	key[0] = engine_bed_mr(&bed, mem[0], sizeof(mem[0]));
	key[1] = engine_bed_mr(&bed, mem[1], sizeof(mem[1]));
	for (round = 0; round < 20; round++) {
		cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[0]), 0);
		a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		b = engine_bed_qp(&bed, KARST_QPT_RC, round & 1);
		connect_twins(&bed, a, b, 0, 0);
		engine_bed_post(
			a, KARST_WR_RDMA_WRITE, 1, mem[0], sizeof(mem[0]), key[0], mem[1], key[1]);
		for (before = 0; before < round; before++)
			karst_engine_poll(bed.e, 0);
		cr_assert_eq(karst_engine_port_remove(bed.e, bed.port[0]), 0);
		engine_bed_settle(&bed);
		cr_assert_eq(karst_engine_qp_destroy(bed.e, a), 0);
		cr_assert_eq(karst_engine_qp_destroy(bed.e, b), 0);
	}
	engine_bed_down(&bed);
}
