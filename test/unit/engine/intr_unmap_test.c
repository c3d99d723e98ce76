/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The other end of a net_memif port goes while an lcore is within a turn: the shared memory stays
 * mapped until that turn has ended.  And it comes: there is no link until then. */
#include <unistd.h>

#include <criterion/criterion.h>
#include <rte_bus_vdev.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "../idle.h"
#include "engine_bed.h"

/* The driver's name for what both ends have mapped. */
#define MEMIF "memif_region"
/* Far more than the driver takes between saying that the link is down and unmapping. */
#define LONG_US 200000u

/* Both ends of the wire are of this process: the engine's port, and a device that nobody polls. */
struct wire {
	struct engine_bed bed;
	char socket[64];
	uint16_t ours, other;
	uint8_t port;
};

static uint16_t
make_device(const struct wire *w, const char *name, const char *role)
{
	char args[128];
	uint16_t id;

	snprintf(args, sizeof(args), "role=%s,id=1,socket-abstract=no,socket=%s", role, w->socket);
	cr_assert_eq(rte_eal_hotplug_add("vdev", name, args), 0, "%s", args);
	cr_assert_eq(rte_eth_dev_get_port_by_name(name, &id), 0);
	return id;
}

static bool
link_is_up(uint16_t ethdev)
{
	struct rte_eth_link link = {0};

	cr_assert_eq(rte_eth_link_get_nowait(ethdev, &link), 0);
	return link.link_status == RTE_ETH_LINK_UP;
}

static void
wire_up(struct wire *w)
{
	const struct rte_eth_conf conf = {0};
	const struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a000101);
	struct karst_engine_port_config port = {.num_addrs = 1, .addrs = &addr};
	struct rte_mempool *pool;

	engine_bed_up(&w->bed, &(struct engine_bed_config){.engine = {.lcores = 1}});
	snprintf(w->socket, sizeof(w->socket), "/tmp/karst-unmap-%d.sock", (int)getpid());
	w->ours = make_device(w, "net_memif0", "server");
	w->other = make_device(w, "net_memif1", "client");
	port.ethdev = w->ours;
	cr_assert_eq(karst_engine_port_add(w->bed.e, &port, &w->port), 0);

	pool = rte_pktmbuf_pool_create("other", 4096, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
	cr_assert_not_null(pool);
	cr_assert_eq(rte_eth_dev_configure(w->other, 1, 1, &conf), 0);
	cr_assert_eq(rte_eth_rx_queue_setup(w->other, 0, 512, 0, NULL, pool), 0);
	cr_assert_eq(rte_eth_tx_queue_setup(w->other, 0, 512, 0, NULL), 0);
	cr_assert_eq(rte_eth_dev_start(w->other), 0);
}

/* At both ends: the driver does not expect to be stopped while its interrupt thread connects. */
static void
wait_for_link(const struct wire *w, bool up)
{
	while (link_is_up(w->ours) != up || link_is_up(w->other) != up)
		usleep(IDLE_US);
}

static void
wire_down(struct wire *w)
{
	engine_bed_release(&w->bed);
	engine_bed_down(&w->bed);
	unlink(w->socket);
}

Test(intr_unmap, an_lcore_is_within_a_turn)
{
	unsigned int turns = 0;
	struct wire w;

	wire_up(&w);
	wait_for_link(&w, true);
	cr_assert_eq(engine_bed_mappings(MEMIF), 2, "%u", engine_bed_mappings(MEMIF));
	/* this thread has the lcore from now on; between two calls it is in a turn that lasts */
	karst_engine_poll(w.bed.e, 0);
	cr_assert_eq(rte_eth_dev_stop(w.other), 0);
	wait_for_link(&w, false);
	usleep(LONG_US);
	cr_expect_eq(engine_bed_mappings(MEMIF), 1, "%u", engine_bed_mappings(MEMIF));
	while (engine_bed_mappings(MEMIF) != 0) {
		karst_engine_poll(w.bed.e, 0);
		idle_after(&turns, false);
	}
	wire_down(&w);
}

Test(intr_unmap, another_end_comes)
{
	unsigned int i, turns = 0;
	struct wire w;

	wire_up(&w);
	wait_for_link(&w, true);
	for (i = 0; i < 2; i++) {
		cr_assert_eq(rte_eth_dev_stop(w.other), 0);
		while (engine_bed_mappings(MEMIF) != 0)
			usleep(IDLE_US);
		karst_engine_poll(w.bed.e, 0);
		cr_assert_eq(rte_eth_dev_start(w.other), 0);
		/* the last that is done before the wait */
		while (engine_bed_mappings(MEMIF) != 2)
			usleep(IDLE_US);
		usleep(LONG_US);
		cr_expect_not(link_is_up(w.ours), "time %u", i);
		while (!link_is_up(w.ours) || !link_is_up(w.other)) {
			karst_engine_poll(w.bed.e, 0);
			idle_after(&turns, false);
		}
		engine_bed_release(&w.bed);
	}
	wire_down(&w);
}

/* Engines come and go meanwhile, by the thread that has the lcore. */
Test(intr_unmap, engines_come_and_go)
{
	const struct karst_engine_config cfg = {.name = "second", .max_qps = 16};
	struct karst_engine *second, *third;
	struct wire w;

	wire_up(&w);
	cr_assert_eq(karst_engine_create(&cfg, &second), 0);
	wait_for_link(&w, true);
	karst_engine_poll(w.bed.e, 0);
	cr_assert_eq(rte_eth_dev_stop(w.other), 0);
	wait_for_link(&w, false);
	usleep(LONG_US);
	cr_expect_eq(engine_bed_mappings(MEMIF), 1, "%u", engine_bed_mappings(MEMIF));
	cr_assert_eq(karst_engine_destroy(second), 0);
	cr_assert_eq(karst_engine_create(&cfg, &third), 0);
	cr_assert_eq(karst_engine_destroy(third), 0);
	engine_bed_release(&w.bed);
	while (engine_bed_mappings(MEMIF) != 0)
		usleep(IDLE_US);
	wire_down(&w);
}

/* Nobody waits for an lcore that nobody has. */
Test(intr_unmap, no_lcore_is_attached)
{
	struct wire w;

	wire_up(&w);
	wait_for_link(&w, true);
	karst_engine_poll(w.bed.e, 0);
	engine_bed_release(&w.bed);
	cr_assert_eq(rte_eth_dev_stop(w.other), 0);
	while (engine_bed_mappings(MEMIF) != 0)
		usleep(IDLE_US);
	wire_down(&w);
}
