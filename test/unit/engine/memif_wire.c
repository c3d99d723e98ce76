/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "memif_wire.h"

#include <stdio.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <rte_bus_vdev.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "../idle.h"

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

bool
wire_link_is_up(uint16_t ethdev)
{
	struct rte_eth_link link = {0};

	cr_assert_eq(rte_eth_link_get_nowait(ethdev, &link), 0);
	return link.link_status == RTE_ETH_LINK_UP;
}

void
wire_up(struct wire *w, void (*stopped)(void *w))
{
	const struct rte_eth_conf conf = {0};
	const struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a000101);
	struct karst_engine_port_config port = {
		.num_addrs = 1, .addrs = &addr, .stopped = stopped, .stopped_arg = w};
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

void
wire_wait(const struct wire *w, bool up)
{
	while (wire_link_is_up(w->ours) != up || wire_link_is_up(w->other) != up)
		usleep(IDLE_US);
}

void
wire_down(struct wire *w)
{
	engine_bed_release(&w->bed);
	engine_bed_down(&w->bed);
	unlink(w->socket);
}
