/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What adding a port of any kind has in common: configuration, number, addresses.
 */
#include "port.h"

#include <stdio.h>

#include <rte_ether.h>

#include "mcast.h"
#include "port_kind.h"

#define MTU_WANTED   (4096 + ENG_IP_OVERHEAD)
#define MTU_LEAST    (256 + ENG_IP_OVERHEAD)
#define ETH_OVERHEAD (KARST_ETH_LEN + KARST_VLAN_LEN + RTE_ETHER_CRC_LEN)

/* The first kind that matches is used; a port that is nothing else is the engine's own. */
static const struct eng_port_ops *const eng_port_kinds[] = {
	&eng_port_loopback_ops,
	&eng_port_netdev_ops,
	&eng_port_own_ops,
};

static const struct eng_port_ops *
port_kind_of(const struct karst_engine_port_config *cfg)
{
	unsigned int i = 0;

	while (!eng_port_kinds[i]->matches(cfg))
		i++;
	return eng_port_kinds[i];
}

size_t
eng_name_len(const char *name)
{
	return name == NULL ? 0 : strlen(name);
}

bool
eng_mac_is_zero(const uint8_t mac[6])
{
	static const uint8_t zero[6];

	return memcmp(mac, zero, sizeof(zero)) == 0;
}

/* Largest path MTU (1..5, as in karst_core_qp_attr) that fits an IP MTU; 0: none. */
static uint8_t
path_mtu_of(uint32_t mtu)
{
	uint8_t p = 0;

	while (p < 5 && mtu >= (128u << (p + 1)) + ENG_IP_OVERHEAD)
		p++;
	return p;
}

void
eng_port_set_mtu(struct eng_port *p, uint16_t mtu)
{
	p->info.mtu = mtu;
	p->info.path_mtu = path_mtu_of(mtu);
}

uint16_t
eng_port_mtu_wanted(const struct karst_engine *e, const struct karst_engine_port_config *cfg)
{
	uint32_t room = e->cfg.frame_bytes - (ENG_FRAME_OFF - RTE_PKTMBUF_HEADROOM);
	uint32_t want = RTE_MIN(MTU_WANTED, room - ETH_OVERHEAD);

	return (uint16_t)(cfg->mtu != 0 && cfg->mtu < want ? cfg->mtu : want);
}

static uint64_t
port_mask_of(const struct karst_engine *e, const struct karst_engine_port_config *cfg)
{
	uint64_t all = e->nlcores == 64 ? UINT64_MAX : (1ull << e->nlcores) - 1;

	return cfg->lcore_mask != 0 ? cfg->lcore_mask : all;
}

static uint16_t
port_queues_of(const struct karst_engine *e, const struct karst_engine_port_config *cfg)
{
	return (uint16_t)__builtin_popcountll(port_mask_of(e, cfg));
}

/* What is wrong with a configuration; NULL if nothing is. */
static const char *
port_config_fault(const struct karst_engine *e, const struct eng_port_ops *ops,
	const struct karst_engine_port_config *cfg)
{
	const char *fault = ops->fault(cfg);

	if (fault != NULL)
		return fault;
	if (e->nlcores < 64 && cfg->lcore_mask >> e->nlcores != 0)
		return "lcore_mask names an lcore that the engine does not have";
	if (cfg->nwake_fds > 1 && cfg->nwake_fds != port_queues_of(e, cfg))
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
	return eng_port_addrs_fault(cfg->num_addrs, cfg->addrs);
}

/* The first free number; KARST_ENGINE_MAX_PORTS: there is none. */
static uint8_t
port_free_number(const struct karst_engine *e)
{
	uint8_t i = 0;

	while (i < KARST_ENGINE_MAX_PORTS && eng_port_present(e, i))
		i++;
	return i;
}

static void
port_fill_info(
	struct karst_engine *e, struct eng_port *p, const struct karst_engine_port_config *cfg)
{
	uint32_t i;

	p->info.ethdev = cfg->ethdev;
	p->info.lcore_mask = port_mask_of(e, cfg);
	p->info.vlan = cfg->vlan;
	p->info.gateway4 = cfg->gateway4;
	p->info.gateway6 = cfg->gateway6;
	p->stopped = cfg->stopped;
	p->stopped_arg = cfg->stopped_arg;
	p->nq = port_queues_of(e, cfg);
	p->home = (uint32_t)__builtin_ctzll(p->info.lcore_mask);
	for (i = 0; i < p->nq; i++)
		p->wake_fd[i] =
			cfg->nwake_fds == 0 ? -1 : cfg->wake_fds[cfg->nwake_fds == 1 ? 0 : i];
}

/* *number: the number that the port will get. */
static int
port_choose_number(
	const struct karst_engine *e, const struct karst_engine_port_config *cfg, uint8_t *number)
{
	*number = cfg->number != 0 ? (uint8_t)(cfg->number - 1) : port_free_number(e);
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
	const struct eng_port_ops *ops = port_kind_of(cfg);
	const char *fault = port_config_fault(e, ops, cfg);
	struct eng_port *p;
	uint8_t number;
	bool again;
	int ret;

	if (fault != NULL) {
		karst_log(KARST_LOG_ERR, "%s: port %u: %s", e->name, cfg->ethdev, fault);
		return -EINVAL;
	}
	ret = port_choose_number(e, cfg, &number);
	if (ret != 0)
		return ret;
	p = &e->port[number];
	memset(p, 0, sizeof(*p));
	p->ops = ops;
	port_fill_info(e, p, cfg);
	ret = ops->bring_up(e, p, cfg);
	if (ret != 0)
		return ret;
	snprintf(p->info.name, sizeof(p->info.name), "%.31s",
		cfg->name != NULL ? cfg->name : p->name);
	eng_port_store_addrs(p, p->info.mac, cfg->num_addrs, cfg->addrs);
	/* before an lcore can send anything from the port: handles made when it was there before */
	eng_port_check_handles(e);
	eng_port_link_init(p);
	ret = eng_port_join(e, number);
	if (ret != 0) {
		eng_port_stop(p);
		return ret;
	}
	again = number < e->nports;
	if (!again)
		e->nports = number + 1u;
	eng_mcast_port_added(e, number);
	*port = number;
	/* owners that were told that the port had gone are told that it is back */
	if (again)
		eng_port_event(e, number, KARST_EVENT_GID_CHANGE);
	if (again && p->info.link_up)
		eng_port_event(e, number, KARST_EVENT_PORT_ACTIVE);
	return 0;
}

void
eng_port_follow_mtu(const struct karst_engine *e, struct eng_port *p, uint16_t mtu)
{
	const struct karst_engine_port_config cfg = {.mtu = mtu};

	mtu = eng_port_mtu_wanted(e, &cfg);
	/* relaxed: an lcore compares each of them with a number; they need not be consistent */
	__atomic_store_n(&p->info.mtu, mtu, __ATOMIC_RELAXED);
	/* packets that do not fit are lost on their way, as in any network */
	__atomic_store_n(&p->info.path_mtu, RTE_MAX(path_mtu_of(mtu), 1), __ATOMIC_RELAXED);
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
