/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "ports.h"

#include <stdio.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ring.h>

#include "karst_congestion.h"

#define LINK_WAIT_MS 5000u

static int
ports_failed(const char *what, int rc)
{
	fprintf(stderr, "karst-perf: %s: %s\n", what, rte_strerror(rc < 0 ? -rc : rc));
	return 1;
}

/* Creates two ports back to back: each receives from the ring that the other one sends to. */
static int
make_rings(uint32_t slots, uint16_t ethdev[PERF_ENDS])
{
	static const char *const names[PERF_ENDS] = {"perf_to_server", "perf_to_client"};
	struct rte_ring *ring[PERF_ENDS];
	int i, port;

	for (i = 0; i < PERF_ENDS; i++) {
		ring[i] = rte_ring_create(
			names[i], slots, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
		if (ring[i] == NULL)
			return ports_failed("ring", rte_errno);
	}
	for (i = 0; i < PERF_ENDS; i++) {
		port = rte_eth_from_rings(i == PERF_CLIENT ? "perf_client" : "perf_server",
			&ring[1 - i], 1, &ring[i], 1, rte_socket_id());
		if (port < 0)
			return ports_failed("net_ring", rte_errno);
		ethdev[i] = (uint16_t)port;
	}
	return 0;
}

/* Finds the devices that --vdev has created: the first two that exist. */
static int
find_vdevs(uint16_t ethdev[PERF_ENDS])
{
	uint16_t port;
	int n = 0;

	RTE_ETH_FOREACH_DEV(port)
	{
		if (n < PERF_ENDS)
			ethdev[n++] = port;
	}
	if (n == PERF_ENDS)
		return 0;
	fprintf(stderr,
		"karst-perf: --vdev: %d DPDK ports appeared; allowed: two devices that are one port "
		"each\n",
		n);
	return 2;
}

static int
make_engine(const struct perf_opts *o, uint32_t max_qps, struct perf_ports *p)
{
	/* every address of both families */
	static const struct karst_engine_addr all[] = {{.ip = {0}}, {.ip = {[10] = 0xff, 0xff}}};
	struct karst_congestion_config congestion;
	struct karst_engine_config cfg = {
		.name = "perf",
		.lcores = o->lcores,
		.max_qps = o->lcores == 1 ? 2 * max_qps : max_qps,
		.window_packets = o->window,
		.repeat_peers = all,
		.nrepeat_peers = o->repeat ? KARST_DIM(all) : 0,
		.early_retransmission = o->early,
		.congestion = &congestion,
		.seed = o->seed,
	};
	int rc;

	karst_congestion_defaults(&congestion);
	congestion.mode = (enum karst_congestion_mode)o->congestion;
	rc = karst_engine_create(&cfg, &p->engine);
	return rc == 0 ? 0 : ports_failed("engine", rc);
}

static struct karst_engine_addr
ports_address(int end)
{
	return karst_engine_addr_ip4(0x0a000001u + (uint32_t)end);
}

static int
add_port(const struct perf_opts *o, struct perf_ports *p, int end, uint16_t ethdev)
{
	struct karst_engine_addr addr = ports_address(end);
	struct karst_engine_port_config cfg = {
		.ethdev = ethdev,
		.lcore_mask = UINT64_C(1) << p->lcore[end],
		.num_addrs = 1,
		.addrs = &addr,
		.force_mtu = o->force_mtu,
	};
	struct karst_engine_port_info info;
	int rc = karst_engine_port_add(p->engine, &cfg, &p->port[end]);

	if (rc != 0)
		return ports_failed("port", rc);
	rc = karst_engine_port_info(p->engine, p->port[end], &info);
	if (rc != 0)
		return ports_failed("port", rc);
	if (o->mtu <= 128u << info.path_mtu)
		return 0;
	fprintf(stderr,
		"karst-perf: --mtu: %u is more than port %d (%s) carries, its IP MTU is %u; allowed: "
		"up to %u, or more with --force-mtu if the driver does not know better\n",
		o->mtu, end, p->driver, info.mtu, 128u << info.path_mtu);
	return 2;
}

static int
make_path(struct perf_ports *p, int end)
{
	struct karst_engine_port_info peer;
	struct karst_engine_addr addr = ports_address(1 - end);
	int rc = karst_engine_port_info(p->engine, p->port[1 - end], &peer);

	if (rc == 0)
		rc = karst_engine_path_init(
			p->engine, p->port[end], 0, peer.mac, addr.ip, &p->path[end]);
	return rc == 0 ? 0 : ports_failed("path", rc);
}

/* Waits for devices that connect to each other in the background. */
static int
wait_for_links(const uint16_t ethdev[PERF_ENDS])
{
	struct rte_eth_link link[PERF_ENDS];
	uint32_t ms;
	int i;

	for (ms = 0; ms < LINK_WAIT_MS; ms += 10) {
		for (i = 0; i < PERF_ENDS; i++)
			if (rte_eth_link_get_nowait(ethdev[i], &link[i]) != 0)
				return ports_failed("link", ENODEV);
		if (link[0].link_status == RTE_ETH_LINK_UP &&
			link[1].link_status == RTE_ETH_LINK_UP)
			return 0;
		rte_delay_us_sleep(10000);
	}
	fprintf(stderr,
		"karst-perf: --vdev: port %d has no link after %u s; allowed: two devices that "
		"are linked with each other\n",
		link[0].link_status == RTE_ETH_LINK_UP, LINK_WAIT_MS / 1000);
	return 1;
}

int
perf_ports_open(const struct perf_opts *o, uint32_t max_qps, struct perf_ports *p)
{
	uint16_t ethdev[PERF_ENDS];
	struct rte_eth_dev_info info;
	int rc, end;

	memset(p, 0, sizeof(*p));
	p->ring_size = o->ring_size;
	p->lcore[PERF_SERVER] = o->lcores - 1;
	rc = o->num_vdevs != 0 ? find_vdevs(ethdev) : make_rings(o->ring_size, ethdev);
	if (rc != 0)
		return rc;
	rc = rte_eth_dev_info_get(ethdev[0], &info);
	if (rc != 0)
		return ports_failed("port", rc);
	snprintf(p->driver, sizeof(p->driver), "%s", info.driver_name);
	rc = make_engine(o, max_qps, p);
	if (rc != 0)
		return rc;
	for (end = 0; rc == 0 && end < PERF_ENDS; end++)
		rc = add_port(o, p, end, ethdev[end]);
	for (end = 0; rc == 0 && end < PERF_ENDS; end++)
		rc = make_path(p, end);
	if (rc == 0)
		rc = wait_for_links(ethdev);
	if (rc == 0 && o->loss > 0) {
		rc = karst_engine_set_loss(p->engine, o->loss, o->seed);
		if (rc != 0)
			rc = ports_failed("--loss", rc);
	}
	if (rc != 0)
		perf_ports_close(p);
	return rc;
}

void
perf_ports_close(struct perf_ports *p)
{
	if (p->engine != NULL && karst_engine_destroy(p->engine) != 0)
		fputs("karst-perf: the engine is still in use\n", stderr);
	p->engine = NULL;
}
