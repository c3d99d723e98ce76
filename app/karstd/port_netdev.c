/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Kernel interfaces: the port uses one, through one of several drivers (netdev_driver.c). */
#include "port_kind.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "conf_value.h"
#include "follow.h"
#include "karst_log.h"
#include "log.h"
#include "netdev_driver.h"

static struct kd_port_needs
netdev_needs(const struct kd_conf_port *p)
{
	return kd_netdev_driver_of(p)->needs;
}

static int
netdev_check(const struct kd_conf_port *p)
{
	struct kd_netdev n;
	int rc = kd_netdev_read(p->device, NULL, &n);

	if (rc == -ENODEV)
		return kd_port_fault(p,
			"there is no interface %s; \"ip link\" lists those that there are",
			p->device);
	if (rc == -EPROTOTYPE)
		return kd_port_fault(
			p, "interface %s is not Ethernet, which RoCEv2 frames need", p->device);
	if (rc != 0)
		return kd_port_fault(p, "interface %s: %s", p->device, strerror(-rc));
	if (p->mtu != 0 && p->mtu > n.mtu)
		return kd_port_fault(p,
			"interface %s has MTU %u, and mtu = %u is wanted: \"ip link set %s mtu %u\", "
			"or mtu = auto",
			p->device, n.mtu, p->mtu, p->device, p->mtu);
	if (p->addresses.n == 0 && n.addresses.n == 0)
		return kd_port_fault(p,
			"interface %s has no IP address, and none is configured: \"ip address add ... "
			"dev %s\"",
			p->device, p->device);
	return 0;
}

static void
netdev_node_path(const struct kd_conf_port *p, char *path, size_t len)
{
	snprintf(path, len, "/sys/class/net/%.15s/device/numa_node", p->device);
}

static int
netdev_open(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port)
{
	const struct kd_netdev_driver *driver = kd_netdev_driver_of(port->conf);
	const struct kd_conf_port *p = port->conf;
	uint32_t queues = KD_NETDEV_QUEUES;
	int rc = kd_netdev_read(p->device, NULL, &port->netdev);

	if (rc != 0)
		return kd_port_fault(p, "interface %s: %s", p->device, strerror(-rc));
	if (!port->netdev.up)
		karst_log(KARST_LOG_WARNING, "port %s: interface %s is down: \"ip link set %s up\"",
			p->name, p->device, p->device);
	port->opened_mtu = port->netdev.mtu;
	port->silence_fd = kd_netdev_silence(&port->netdev);
	if (port->silence_fd == -EADDRINUSE)
		return kd_port_fault(p,
			"UDP port 4791 of %s belongs to another program (another karstd, or the kernel's "
			"soft-RoCE)",
			p->device);
	if (port->silence_fd < 0)
		return kd_port_fault(
			p, "UDP port 4791 of %s: %s", p->device, strerror(-port->silence_fd));
	if (driver->all_rx_queues && port->netdev.rx_queues != 0)
		queues = port->netdev.rx_queues;
	return driver->open(
		ps, c, port, (uint32_t)__builtin_popcountll(kd_port_lcores(c, p, queues)));
}

static void
netdev_fill(const struct kd_ports *ps, struct kd_port *port, struct karst_engine_port_config *cfg)
{
	const struct kd_netdev_driver *driver = kd_netdev_driver_of(port->conf);
	uint32_t most = driver->largest_mtu != 0 ? driver->largest_mtu : UINT16_MAX;

	/* The drivers do not read the MTU of the interface. */
	cfg->netdev = port->conf->device;
	cfg->force_mtu = driver->force_mtu;
	if (cfg->mtu == 0)
		cfg->mtu = (uint16_t)karst_min_u32(port->netdev.mtu, most);
	cfg->all_groups = true; /* the kernel joins them */
}

/* An AF_PACKET socket receives everything on the interface unless a filter is attached. */
static int
netdev_ready(const struct kd_port *port, const struct kd_fds *fds)
{
	const struct kd_netdev_driver *driver = kd_netdev_driver_of(port->conf);
	uint32_t i;
	int rc = 0;

	for (i = 0; rc == 0 && driver->narrow_sockets && i < fds->n; i++)
		if (kd_wake_is_packet(fds->fd[i]))
			rc = kd_netdev_only_roce(fds->fd[i]);
	return rc == 0 ? 0 : kd_port_fault(port->conf, "a filter for RoCE: %s", strerror(-rc));
}

static const char *
netdev_hint(const struct kd_port *port)
{
	const struct kd_netdev_driver *driver = kd_netdev_driver_of(port->conf);

	return driver->hint != NULL ? driver->hint(port) : "";
}

/* Logs the driver and its consequences. */
static void
netdev_announce(const struct kd_port *port)
{
	const struct kd_netdev_driver *driver = kd_netdev_driver_of(port->conf);

	karst_log(KARST_LOG_NOTICE, "port %s: interface %s by driver %s%s%s", port->conf->name,
		port->conf->device, driver->name,
		port->conf->driver == KD_DRIVER_AUTO ? " (auto)" : "",
		driver->note != NULL ? driver->note(port) : "");
}

/* DPDK's AF_XDP driver reports an error when it may not detach its XDP program.  The privileged
 * part does that, after the driver. */
#define AF_XDP_LOG "pmd.net.af_xdp"

static void
netdev_close(struct kd_port *port)
{
	struct kd_hush hush;

	kd_log_hush(&hush, AF_XDP_LOG);
	kd_port_close_device(port);
	kd_log_speak(&hush);
	if (port->silence_fd >= 0)
		close(port->silence_fd);
	port->silence_fd = -1;
}

const struct kd_port_kind kd_port_netdev = {
	.form = "a kernel interface",
	.matches = kd_name_is_ifname,
	.unused = {.exception_tap = "the kernel has its interface anyhow",
		.vlan = "of a kernel interface, use the kernel's VLAN interface as device",
		.mac = "a kernel interface has its own",
		.gateway = "a kernel interface follows the kernel's routes"},
	.has_drivers = true,
	.has_addresses = true,
	.needs = netdev_needs,
	.check = netdev_check,
	.node_path = netdev_node_path,
	.open = netdev_open,
	.fill = netdev_fill,
	.ready = netdev_ready,
	.hint = netdev_hint,
	.announce = netdev_announce,
	.follow = kd_netdev_follow,
	.close = netdev_close,
};
