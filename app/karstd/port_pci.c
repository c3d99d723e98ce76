/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* PCI adapters, which may be unplugged and plugged in again (hotplug.h). */
#include "port_kind.h"

#include <dirent.h>
#include <net/if.h>
#include <string.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_pci.h>

#include "karst_log.h"

static bool
pci_matches(const char *device)
{
	struct rte_pci_addr pci;

	return strchr(device, ':') != NULL && rte_pci_addr_parse(device, &pci) == 0;
}

static struct kd_port_needs
pci_needs(const struct kd_conf_port *p)
{
	return (struct kd_port_needs){.rx_buffers = 1, .dma = true};
}

static void
pci_name(const struct kd_conf_port *p, char *name, size_t len)
{
	struct rte_pci_addr pci;

	name[0] = '\0';
	if (rte_pci_addr_parse(p->device, &pci) == 0)
		rte_pci_device_name(&pci, name, len);
}

static void
pci_node_path(const struct kd_conf_port *p, char *path, size_t len)
{
	char name[PCI_PRI_STR_SIZE];

	pci_name(p, name, sizeof(name));
	snprintf(path, len, "/sys/bus/pci/devices/%s/numa_node", name);
}

/* Returns the kernel interface of an adapter whose kernel driver shares it; empty: there is
 * none. */
static void
pci_interface(const struct kd_conf_port *p, char *interface, size_t len)
{
	char name[PCI_PRI_STR_SIZE], path[128];
	const struct dirent *d;
	DIR *dir;

	interface[0] = '\0';
	pci_name(p, name, sizeof(name));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/net", name);
	dir = opendir(path);
	while (dir != NULL && (d = readdir(dir)) != NULL)
		if (d->d_name[0] != '.')
			snprintf(interface, len, "%.15s", d->d_name);
	if (dir != NULL)
		closedir(dir);
}

static int
pci_check(const struct kd_conf_port *p)
{
	char name[PCI_PRI_STR_SIZE], path[128], interface[IF_NAMESIZE], driver[64];

	pci_name(p, name, sizeof(name));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", name);
	if (access(path, F_OK) != 0)
		return kd_port_fault(p,
			"there is no PCI device %s; lspci lists those that there are", p->device);
	pci_interface(p, interface, sizeof(interface));
	kd_hotplug_driver(name, driver, sizeof(driver));
	if (p->isolate && interface[0] == '\0')
		return kd_port_fault(p,
			"isolate = yes shares PCI device %s with the kernel, but the kernel has no "
			"interface of it (its driver is %s)",
			p->device, driver[0] != '\0' ? driver : "none");
	return 0;
}

static int
pci_open(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port)
{
	char name[PCI_PRI_STR_SIZE], driver[64];

	pci_name(port->conf, name, sizeof(name));
	if (rte_eth_dev_get_port_by_name(name, &port->ethdev) == 0) {
		port->probed = true;
		kd_hotplug_begin(&port->hotplug, name);
		return 0;
	}
	kd_hotplug_driver(name, driver, sizeof(driver));
	return kd_port_fault(port->conf,
		"DPDK has no port for PCI device %s, whose kernel driver is %s: bind it to vfio-pci "
		"(dpdk-devbind.py -b vfio-pci %s), or install DPDK's driver for it",
		name, driver[0] != '\0' ? driver : "none", name);
}

static void
pci_fill(const struct kd_ports *ps, struct kd_port *port, struct karst_engine_port_config *cfg)
{
	cfg->isolate = port->conf->isolate;
	if (!cfg->isolate)
		return;
	pci_interface(port->conf, port->netdev.name, sizeof(port->netdev.name));
	cfg->netdev = port->netdev.name;
}

static void
pci_follow(
	struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port, struct karst_engine *e)
{
	struct kd_hotplug *h = &port->hotplug;

	if (kd_hotplug_leaves(h)) {
		karst_log(KARST_LOG_WARNING, "port %s: the adapter %s is being taken away",
			port->conf->name, h->name);
		karst_engine_port_lose(e, port->number);
		kd_port_close_device(port);
		kd_hotplug_let_go(h, false);
		karst_log(KARST_LOG_NOTICE, "port %s: gone", port->conf->name);
	} else if (kd_hotplug_returns(h) && kd_hotplug_take(h) == 0 &&
		kd_port_open(ps, c, e, port) != 0) {
		kd_port_close_device(port);
		kd_hotplug_let_go(h, true);
	}
}

static void
pci_close(struct kd_port *port)
{
	struct kd_hotplug *h = &port->hotplug;

	kd_hotplug_end(h);
	kd_port_close_device(port);
	/* until then DPDK has its files open, and the kernel cannot bind it to another driver */
	if (h->name[0] != '\0' && !h->away)
		kd_hotplug_let_go(h, false);
}

const struct kd_port_kind kd_port_pci = {
	.form = "a PCI address",
	.matches = pci_matches,
	.can_isolate = true,
	.needs = pci_needs,
	.check = pci_check,
	.node_path = pci_node_path,
	.eal_device = pci_name,
	.open = pci_open,
	.fill = pci_fill,
	.follow = pci_follow,
	.close = pci_close,
};
