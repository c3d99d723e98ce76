/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Ports with a DPDK port: any ethdev.  Each engine lcore that serves the port has one receive and
 * one transmit queue of it, in the order of the lcores.
 *
 * The MTU is requested twice, since drivers differ: in the configuration, as far as the device's
 * limits allow, and then by rte_eth_dev_set_mtu().  It is no error if a device refuses, unless the
 * program requested exactly that MTU: the port then has a smaller path MTU.
 */
#include "port_kind.h"

#include <rte_ether.h>

#include "flow.h"

#define DEFAULT_SLOTS 1024u

/* The MTU for the device's configuration: as much of @want as its limits allow. */
static uint32_t
mtu_allowed(const struct rte_eth_dev_info *info, uint32_t want)
{
	uint32_t frame_overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;

	if (info->max_mtu != UINT16_MAX && info->max_rx_pktlen > info->max_mtu)
		frame_overhead = info->max_rx_pktlen - info->max_mtu;
	if (info->max_mtu != 0)
		want = RTE_MIN(want, (uint32_t)info->max_mtu);
	if (info->max_rx_pktlen > frame_overhead)
		want = RTE_MIN(want, info->max_rx_pktlen - frame_overhead);
	return want;
}

static int
configure_device(const struct karst_engine *e, struct eng_port *p,
	const struct karst_engine_port_config *cfg, const struct rte_eth_dev_info *info)
{
	struct rte_eth_conf conf = {0};
	int ret;

	conf.rxmode.mtu = mtu_allowed(info, eng_port_mtu_wanted(e, cfg));
	if (p->nq > 1 && info->flow_type_rss_offloads != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf =
			info->flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
	}
	/* All buffers that a queue sends come from one pool and have one reference. */
	conf.txmode.offloads = info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	ret = rte_eth_dev_configure(cfg->ethdev, p->nq, p->nq, &conf);
	if (ret != 0)
		karst_log(KARST_LOG_ERR, "%s: configuring %u queues, MTU %u: %s", p->name, p->nq,
			conf.rxmode.mtu, rte_strerror(-ret));
	return ret;
}

static int
setup_queues(struct karst_engine *e, struct eng_port *p, const struct karst_engine_port_config *cfg)
{
	uint16_t nrx = cfg->rx_slots != 0 ? cfg->rx_slots : DEFAULT_SLOTS;
	uint16_t ntx = cfg->tx_slots != 0 ? cfg->tx_slots : DEFAULT_SLOTS;
	int socket = rte_eth_dev_socket_id(cfg->ethdev), ret;
	uint16_t q;

	ret = rte_eth_dev_adjust_nb_rx_tx_desc(cfg->ethdev, &nrx, &ntx);
	for (q = 0; ret == 0 && q < p->nq; q++) {
		ret = rte_eth_rx_queue_setup(
			cfg->ethdev, q, nrx, (unsigned int)socket, NULL, e->pool);
		if (ret == 0)
			ret = rte_eth_tx_queue_setup(
				cfg->ethdev, q, ntx, (unsigned int)socket, NULL);
	}
	if (ret != 0)
		karst_log(KARST_LOG_ERR, "%s: setting up %u queues of %u and %u slots: %s", p->name,
			p->nq, nrx, ntx, rte_strerror(-ret));
	return ret;
}

/* Sets the MTU, after the queues are set up and before the start. */
static int
settle_mtu(const struct karst_engine *e, struct eng_port *p,
	const struct karst_engine_port_config *cfg, const struct rte_eth_dev_info *info)
{
	uint16_t want = eng_port_mtu_wanted(e, cfg), mtu = 0;
	int ret;

	ret = rte_eth_dev_get_mtu(cfg->ethdev, &mtu);
	if (ret == 0 && mtu < want && mtu_allowed(info, want) == want) {
		/* Some drivers accept it only here; -ENOTSUP from others means that any MTU
		 * works. */
		ret = rte_eth_dev_set_mtu(cfg->ethdev, want);
		mtu = ret == 0 || ret == -ENOTSUP ? want : mtu;
		ret = 0;
	}
	if (ret != 0) {
		karst_log(KARST_LOG_ERR, "%s: reading the MTU: %s", p->name, rte_strerror(-ret));
		return ret;
	}
	mtu = cfg->force_mtu ? want : RTE_MIN(mtu, want);
	eng_port_set_mtu(p, mtu);
	if ((cfg->mtu != 0 && mtu < want) || p->info.path_mtu == 0) {
		karst_log(KARST_LOG_ERR,
			"%s: MTU %u wanted, the device allows %u (path MTU 4096 needs %u, 1024 needs %u)",
			p->name, want, mtu, 4096 + ENG_IP_OVERHEAD, 1024 + ENG_IP_OVERHEAD);
		return -ERANGE;
	}
	if (p->info.path_mtu < 5)
		karst_log(KARST_LOG_NOTICE, "%s: MTU %u, so path MTU at most %u", p->name, mtu,
			128u << p->info.path_mtu);
	return 0;
}

/* Sets the port's MAC address, or makes the device receive frames to other addresses. */
static int
settle_mac(struct eng_port *p, const struct karst_engine_port_config *cfg)
{
	struct rte_ether_addr own, want;
	int ret;

	ret = rte_eth_macaddr_get(cfg->ethdev, &own);
	if (ret != 0) {
		karst_log(KARST_LOG_ERR, "%s: reading the MAC address: %s", p->name,
			rte_strerror(-ret));
		return ret;
	}
	/* net_ring has no MAC address; neighbours need one to answer to. */
	if (eng_mac_is_zero(own.addr_bytes))
		rte_eth_random_addr(own.addr_bytes);
	memcpy(p->info.mac, own.addr_bytes, sizeof(p->info.mac));
	if (eng_mac_is_zero(cfg->mac) || memcmp(cfg->mac, own.addr_bytes, sizeof(cfg->mac)) == 0)
		return 0;
	memcpy(p->info.mac, cfg->mac, sizeof(p->info.mac));
	memcpy(want.addr_bytes, cfg->mac, sizeof(want.addr_bytes));
	if (rte_eth_dev_default_mac_addr_set(cfg->ethdev, &want) != 0 &&
		rte_eth_promiscuous_enable(cfg->ethdev) != 0)
		karst_log(KARST_LOG_WARNING,
			"%s: the device keeps its own MAC address, and may not receive for another",
			p->name);
	return 0;
}

/* Between the stop and the program's close, no peer can connect to the device. */
static void
stop_device(struct eng_port *p)
{
	bool paused = karst_engine_intr_pause(p->info.ethdev);

	rte_eth_dev_stop(p->info.ethdev);
	if (p->stopped != NULL)
		p->stopped(p->stopped_arg);
	karst_engine_intr_resume(paused);
}

int
eng_port_device_bring_up(
	struct karst_engine *e, struct eng_port *p, const struct karst_engine_port_config *cfg)
{
	struct rte_eth_dev_info info;
	int ret;

	rte_eth_dev_get_name_by_port(cfg->ethdev, p->name);
	ret = rte_eth_dev_info_get(cfg->ethdev, &info);
	if (ret == 0 && (p->nq > info.max_rx_queues || p->nq > info.max_tx_queues)) {
		karst_log(KARST_LOG_ERR,
			"%s: %u lcores serve it, but it has %u receive and %u transmit queues",
			p->name, p->nq, info.max_rx_queues, info.max_tx_queues);
		return -EINVAL;
	}
	if (ret == 0 && cfg->isolate)
		ret = eng_flow_isolate(p);
	if (ret == 0)
		ret = configure_device(e, p, cfg, &info);
	if (ret == 0)
		ret = setup_queues(e, p, cfg);
	if (ret == 0)
		ret = settle_mtu(e, p, cfg, &info);
	if (ret == 0)
		ret = settle_mac(p, cfg);
	if (ret != 0)
		return ret;
	/* For neighbour discovery and multicast groups of UD QPs. */
	p->all_groups = cfg->all_groups || rte_eth_allmulticast_enable(cfg->ethdev) == 0;
	ret = rte_eth_dev_start(cfg->ethdev);
	if (ret != 0)
		karst_log(KARST_LOG_ERR, "%s: starting: %s", p->name, rte_strerror(-ret));
	if (ret == 0) {
		ret = eng_flow_steer(p, info.flow_type_rss_offloads != 0, cfg->isolate);
		if (ret != 0)
			stop_device(p);
	}
	return ret;
}

void
eng_port_device_stop(struct eng_port *p)
{
	eng_flow_clear(p);
	stop_device(p);
}

bool
eng_port_device_link(const struct eng_port *p, uint32_t *mbps)
{
	struct rte_eth_link link = {0};

	/* A device that does not report its link counts as up. */
	if (rte_eth_link_get_nowait(p->info.ethdev, &link) != 0)
		return true;
	*mbps = link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
	return link.link_status == RTE_ETH_LINK_UP;
}
