/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Ports: any DPDK ethdev.  Each engine lcore that serves a port has one receive and one transmit
 * queue of it, in the order of the lcores.
 *
 * An MTU is asked for twice, since drivers differ: in the configuration as far as the device's
 * limits allow, and then by rte_eth_dev_set_mtu().  What a device refuses is no error unless the
 * program asked for exactly that: the port then carries smaller path MTUs.
 */
#include "port.h"

#include <stdio.h>

#include <rte_ether.h>

#include "flow.h"
#include "karst_hdr.h"
#include "mcast.h"

/* IPv6, UDP, BTH, the longest extended headers that have payload (RETH, ImmDt), ICRC. */
#define IP_OVERHEAD                                                                       \
	(KARST_IP6_LEN + KARST_UDP_LEN + KARST_BTH_LEN + KARST_RETH_LEN + KARST_IMM_LEN + \
		KARST_ICRC_LEN)
#define MTU_WANTED    (4096 + IP_OVERHEAD)
#define MTU_LEAST     (256 + IP_OVERHEAD)
#define ETH_OVERHEAD  (KARST_ETH_LEN + KARST_VLAN_LEN + RTE_ETHER_CRC_LEN)
#define DEFAULT_SLOTS 1024u

/* Largest path MTU (1..5, as in karst_core_qp_attr) that an IP MTU carries; 0: none. */
static uint8_t
path_mtu_of(uint32_t mtu)
{
	uint8_t p = 0;

	while (p < 5 && mtu >= (128u << (p + 1)) + IP_OVERHEAD)
		p++;
	return p;
}

static bool
mac_is_zero(const uint8_t mac[6])
{
	static const uint8_t zero[6];

	return memcmp(mac, zero, sizeof(zero)) == 0;
}

/* Length of an optional name. */
static size_t
name_len(const char *name)
{
	return name == NULL ? 0 : strlen(name);
}

static uint64_t
mask_of(const struct karst_engine *e, const struct karst_engine_port_config *cfg)
{
	uint64_t all = e->nlcores == 64 ? UINT64_MAX : (1ull << e->nlcores) - 1;

	return cfg->lcore_mask != 0 ? cfg->lcore_mask : all;
}

static uint16_t
queues_of(const struct karst_engine *e, const struct karst_engine_port_config *cfg)
{
	return (uint16_t)__builtin_popcountll(mask_of(e, cfg));
}

/* What is wrong with a configuration, or NULL. */
static const char *
config_fault(const struct karst_engine *e, const struct karst_engine_port_config *cfg)
{
	bool device = cfg->ethdev != KARST_ENGINE_NO_ETHDEV;

	if (device && !rte_eth_dev_is_valid_port(cfg->ethdev))
		return "no such DPDK port";
	if (!device && (cfg->netdev != NULL || cfg->exception_tap != NULL || cfg->isolate))
		return "a port without a device has no kernel interface, no exception tap, no flow rules";
	if (e->nlcores < 64 && cfg->lcore_mask >> e->nlcores != 0)
		return "lcore_mask names an lcore that the engine does not have";
	if (cfg->nwake_fds > 1 && cfg->nwake_fds != queues_of(e, cfg))
		return "wake_fds: one for all queues, or one for each";
	if (cfg->number > KARST_ENGINE_MAX_PORTS)
		return "there is no port of such a number";
	if (cfg->mtu != 0 && cfg->mtu < MTU_LEAST)
		return "the MTU is too small for RoCE of path MTU 256";
	if (cfg->name != NULL && strlen(cfg->name) >= sizeof(((struct eng_port *)NULL)->info.name))
		return "a name has up to 31 characters";
	if (cfg->vlan > 4094)
		return "a VLAN id is 1 to 4094";
	if (cfg->mac[0] & 1)
		return "the MAC address is a group address";
	if (name_len(cfg->netdev) >= IF_NAMESIZE)
		return "the name of a kernel interface has up to 15 characters";
	if (name_len(cfg->exception_tap) >= IF_NAMESIZE)
		return "the name of an exception tap has up to 15 characters";
	if (name_len(cfg->netdev) != 0 && name_len(cfg->exception_tap) != 0)
		return "a view of a kernel interface needs no exception tap";
	if (cfg->isolate && name_len(cfg->netdev) == 0)
		return "isolate leaves ARP to the kernel: netdev has to name its interface";
	return eng_port_addrs_fault(cfg->num_addrs, cfg->addrs);
}

/* At most what path MTU 4096 needs, and buffers hold. */
static uint16_t
mtu_wanted(const struct karst_engine *e, const struct karst_engine_port_config *cfg)
{
	uint32_t room = e->cfg.frame_bytes - (ENG_FRAME_OFF - RTE_PKTMBUF_HEADROOM);
	uint32_t want = RTE_MIN(MTU_WANTED, room - ETH_OVERHEAD);

	return (uint16_t)(cfg->mtu != 0 && cfg->mtu < want ? cfg->mtu : want);
}

/* The MTU to put into the device's configuration: what its limits allow of @want. */
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

	conf.rxmode.mtu = mtu_allowed(info, mtu_wanted(e, cfg));
	if (p->nq > 1 && info->flow_type_rss_offloads != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf =
			info->flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
	}
	/* All buffers that a queue sends come from one pool, and nobody else holds them. */
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

/* Settles the MTU, after the queues are there and before the start. */
static int
settle_mtu(const struct karst_engine *e, struct eng_port *p,
	const struct karst_engine_port_config *cfg, const struct rte_eth_dev_info *info)
{
	uint16_t want = mtu_wanted(e, cfg), mtu = 0;
	int ret;

	ret = rte_eth_dev_get_mtu(cfg->ethdev, &mtu);
	if (ret == 0 && mtu < want && mtu_allowed(info, want) == want) {
		/* Some drivers take it only here; -ENOTSUP from others means "any". */
		ret = rte_eth_dev_set_mtu(cfg->ethdev, want);
		mtu = ret == 0 || ret == -ENOTSUP ? want : mtu;
		ret = 0;
	}
	if (ret != 0) {
		karst_log(KARST_LOG_ERR, "%s: reading the MTU: %s", p->name, rte_strerror(-ret));
		return ret;
	}
	mtu = cfg->force_mtu ? want : RTE_MIN(mtu, want);
	p->info.mtu = mtu;
	p->info.path_mtu = path_mtu_of(mtu);
	if ((cfg->mtu != 0 && mtu < want) || p->info.path_mtu == 0) {
		karst_log(KARST_LOG_ERR,
			"%s: MTU %u wanted, the device allows %u (path MTU 4096 needs %u, 1024 needs %u)",
			p->name, want, mtu, 4096 + IP_OVERHEAD, 1024 + IP_OVERHEAD);
		return -ERANGE;
	}
	if (p->info.path_mtu < 5)
		karst_log(KARST_LOG_NOTICE, "%s: MTU %u, so path MTU at most %u", p->name, mtu,
			128u << p->info.path_mtu);
	return 0;
}

/* Gives the port its address, or makes it take frames that are not for the device's own. */
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
	/* net_ring has none; a neighbour needs one to answer to. */
	if (mac_is_zero(own.addr_bytes))
		rte_eth_random_addr(own.addr_bytes);
	memcpy(p->info.mac, own.addr_bytes, sizeof(p->info.mac));
	if (mac_is_zero(cfg->mac) || memcmp(cfg->mac, own.addr_bytes, sizeof(cfg->mac)) == 0)
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

/* What a port without a device has instead. */
static void
bring_up_loop(
	struct karst_engine *e, struct eng_port *p, const struct karst_engine_port_config *cfg)
{
	const uint8_t mac[6] = {2, 'k', 'r', 's', 't', (uint8_t)(p - e->port)};

	p->info.mtu = mtu_wanted(e, cfg);
	p->info.path_mtu = path_mtu_of(p->info.mtu);
	memcpy(p->info.mac, mac_is_zero(cfg->mac) ? mac : cfg->mac, sizeof(p->info.mac));
}

/* Everything about the device.  On failure the port is left stopped. */
static int
bring_up(struct karst_engine *e, struct eng_port *p, const struct karst_engine_port_config *cfg)
{
	struct rte_eth_dev_info info;
	int ret;

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
	/* For neighbour discovery and groups of UD. */
	p->all_groups = cfg->all_groups || rte_eth_allmulticast_enable(cfg->ethdev) == 0;
	ret = rte_eth_dev_start(cfg->ethdev);
	if (ret != 0)
		karst_log(KARST_LOG_ERR, "%s: starting: %s", p->name, rte_strerror(-ret));
	if (ret == 0) {
		ret = eng_flow_steer(p, info.flow_type_rss_offloads != 0, cfg->isolate);
		if (ret != 0)
			rte_eth_dev_stop(cfg->ethdev);
	}
	return ret;
}

/* The first free number; KARST_ENGINE_MAX_PORTS: there is none. */
static uint8_t
free_number(const struct karst_engine *e)
{
	uint8_t i = 0;

	while (i < KARST_ENGINE_MAX_PORTS && eng_port_present(e, i))
		i++;
	return i;
}

static void
fill_info(struct karst_engine *e, struct eng_port *p, const struct karst_engine_port_config *cfg)
{
	uint32_t i;

	if (cfg->ethdev == KARST_ENGINE_NO_ETHDEV)
		snprintf(p->name, sizeof(p->name), "loopback");
	else
		rte_eth_dev_get_name_by_port(cfg->ethdev, p->name);
	snprintf(p->info.name, sizeof(p->info.name), "%.31s",
		cfg->name != NULL ? cfg->name : p->name);
	p->info.ethdev = cfg->ethdev;
	p->info.lcore_mask = mask_of(e, cfg);
	p->info.vlan = cfg->vlan;
	p->info.gateway4 = cfg->gateway4;
	p->info.gateway6 = cfg->gateway6;
	if (cfg->netdev != NULL)
		memcpy(p->info.netdev, cfg->netdev, name_len(cfg->netdev));
	if (cfg->exception_tap != NULL)
		memcpy(p->info.exception_tap, cfg->exception_tap, name_len(cfg->exception_tap));
	p->nq = queues_of(e, cfg);
	p->home = (uint32_t)__builtin_ctzll(p->info.lcore_mask);
	for (i = 0; i < p->nq; i++)
		p->wake_fd[i] =
			cfg->nwake_fds == 0 ? -1 : cfg->wake_fds[cfg->nwake_fds == 1 ? 0 : i];
	eng_port_store_addrs(p, cfg->num_addrs, cfg->addrs);
}

/* *number: what the port will have. */
static int
choose_number(
	const struct karst_engine *e, const struct karst_engine_port_config *cfg, uint8_t *number)
{
	*number = cfg->number != 0 ? (uint8_t)(cfg->number - 1) : free_number(e);
	if (cfg->number == 0 && *number == KARST_ENGINE_MAX_PORTS) {
		karst_log(KARST_LOG_ERR, "%s: there are %u ports already", e->name, *number);
		return -ENOSPC;
	}
	if (cfg->number != 0 && eng_port_present(e, *number)) {
		karst_log(KARST_LOG_ERR, "%s: port number %u is taken", e->name, cfg->number);
		return -EEXIST;
	}
	return 0;
}

static int
port_add(struct karst_engine *e, const struct karst_engine_port_config *cfg, uint8_t *port)
{
	const char *fault = config_fault(e, cfg);
	struct eng_port *p;
	uint8_t number;
	int ret;

	if (fault != NULL) {
		karst_log(KARST_LOG_ERR, "%s: port %u: %s", e->name, cfg->ethdev, fault);
		return -EINVAL;
	}
	ret = choose_number(e, cfg, &number);
	if (ret != 0)
		return ret;
	p = &e->port[number];
	memset(p, 0, sizeof(*p));
	fill_info(e, p, cfg);
	if (eng_port_has_device(p))
		ret = bring_up(e, p, cfg);
	else
		bring_up_loop(e, p, cfg);
	if (ret != 0)
		return ret;
	eng_port_link_init(p);
	ret = eng_port_join(e, number);
	if (ret != 0) {
		eng_port_stop(p);
		return ret;
	}
	if (number >= e->nports)
		e->nports = number + 1u;
	eng_mcast_port_added(e, number);
	*port = number;
	return 0;
}

int
karst_engine_port_add(
	struct karst_engine *e, const struct karst_engine_port_config *cfg, uint8_t *port)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = port_add(e, cfg, port);
	eng_ctl_leave(e);
	return ret;
}
