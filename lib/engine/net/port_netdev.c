/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Ports that are a view of a kernel interface: the kernel handles ARP, neighbour discovery, routes
 * and reports of multicast groups (netlink.c, member_kernel.c).
 */
#include "port_kind.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "member_port.h"

static bool
netdev_matches(const struct karst_engine_port_config *cfg)
{
	return eng_name_len(cfg->netdev) != 0;
}

static const char *
netdev_fault(const struct karst_engine_port_config *cfg)
{
	if (!rte_eth_dev_is_valid_port(cfg->ethdev))
		return "no such DPDK port";
	if (eng_name_len(cfg->netdev) >= IF_NAMESIZE)
		return "the name of a kernel interface has up to 15 characters";
	if (eng_name_len(cfg->exception_tap) != 0)
		return "a view of a kernel interface needs no exception tap";
	return NULL;
}

static int
netdev_bring_up(
	struct karst_engine *e, struct eng_port *p, const struct karst_engine_port_config *cfg)
{
	memcpy(p->info.netdev, cfg->netdev, eng_name_len(cfg->netdev));
	return eng_port_device_bring_up(e, p, cfg);
}

/* Whether the interface has a link; true if that cannot be determined. */
static bool
interface_runs(const char *name)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = {0};
	bool runs = true;

	if (fd < 0)
		return true;
	memcpy(ifr.ifr_name, name, strnlen(name, IFNAMSIZ - 1));
	if (ioctl(fd, SIOCGIFFLAGS, &ifr) == 0)
		runs = (ifr.ifr_flags & IFF_UP) != 0 && (ifr.ifr_flags & IFF_RUNNING) != 0;
	close(fd);
	return runs;
}

/* net_af_packet and net_af_xdp report a link as long as they are started. */
static bool
netdev_link(const struct eng_port *p, uint32_t *mbps)
{
	return eng_port_device_link(p, mbps) && interface_runs(p->info.netdev);
}

static const char *
netdev_next_hop(const struct eng_port *p, const struct karst_engine_addr *own, const uint8_t ip[16],
	struct eng_lookup *l)
{
	memcpy(l->netdev, p->info.netdev, sizeof(l->netdev));
	return NULL;
}

static int
netdev_resolve(struct karst_engine *e, struct eng_lookup *l, const struct eng_patience *patience)
{
	return eng_netlink_resolve(
		l->netdev, l->call.src, l->path->dst_ip, l->quiet, patience, l->path->dst_mac);
}

static int
netdev_list_neigh(
	struct karst_engine *e, uint8_t port, struct karst_engine_neigh *list, unsigned int max)
{
	struct karst_engine_port_info info;
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = karst_engine_port_info(e, port, &info);
	eng_ctl_leave(e);
	return ret != 0 ? ret : eng_netlink_list(info.netdev, list, max);
}

static void
netdev_set_groups(struct karst_engine *e, uint8_t port, const uint8_t (*ips)[16], uint32_t n)
{
	eng_member_kernel_set(e, &e->port[port], ips, n);
}

const struct eng_port_ops eng_port_netdev_ops = {
	.matches = netdev_matches,
	.fault = netdev_fault,
	.bring_up = netdev_bring_up,
	.stop = eng_port_device_stop,
	.link = netdev_link,
	.set_groups = netdev_set_groups,
	.next_hop = netdev_next_hop,
	.resolve = netdev_resolve,
	.list_neigh = netdev_list_neigh,
};
