/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "ports.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_pci.h>

#include "karst_log.h"
#include "place.h"
#include "xdp.h"

/* net_af_packet's frames: of one page's half, or so many bytes that 16 of them fill 17 pages and a
 * frame of path MTU 4096 fits. */
#define PACKET_SMALL_MTU 1500u
#define PACKET_SMALL     "framesz=2048,blocksz=4096"
#define PACKET_LARGE     "framesz=4352,blocksz=69632"
#define PACKET_DRIVER    "net_af_packet"
#define PACKET_UNIT      16u /* framecnt is a multiple of it */

#define XDP_LARGEST_MTU 3000u /* most interfaces take a little more */

__attribute__((format(printf, 2, 3))) static int
fault(const struct kd_conf_port *p, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	karst_log(KARST_LOG_ERR, "port %s: %s", p->name, text);
	return -EIO;
}

/* --- before DPDK starts --- */

static void
pci_name(const struct kd_conf_port *p, char *name, size_t len)
{
	struct rte_pci_addr pci;

	name[0] = '\0';
	if (rte_pci_addr_parse(p->device, &pci) == 0)
		rte_pci_device_name(&pci, name, len);
}

/* The kernel's interface of an adapter that its driver shares; empty: there is none. */
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
check_pci(const struct kd_conf_port *p)
{
	char name[PCI_PRI_STR_SIZE], path[128], interface[IF_NAMESIZE], driver[64];

	pci_name(p, name, sizeof(name));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", name);
	if (access(path, F_OK) != 0)
		return fault(p, "there is no PCI device %s; lspci lists those that there are",
			p->device);
	pci_interface(p, interface, sizeof(interface));
	kd_hotplug_driver(name, driver, sizeof(driver));
	if (p->isolate && interface[0] == '\0')
		return fault(p,
			"isolate = yes shares PCI device %s with the kernel, but the kernel has no "
			"interface of it (its driver is %s)",
			p->device, driver[0] != '\0' ? driver : "none");
	return 0;
}

static int
check_netdev(const struct kd_conf_port *p)
{
	struct kd_netdev n;
	int rc = kd_netdev_read(p->device, &n);

	if (rc == -ENODEV)
		return fault(p, "there is no interface %s; \"ip link\" lists those that there are",
			p->device);
	if (rc == -EPROTOTYPE)
		return fault(
			p, "interface %s is not Ethernet, which RoCEv2 frames need", p->device);
	if (rc != 0)
		return fault(p, "interface %s: %s", p->device, strerror(-rc));
	if (p->mtu != 0 && p->mtu > n.mtu)
		return fault(p,
			"interface %s has MTU %u, and mtu = %u is wanted: \"ip link set %s mtu %u\", "
			"or mtu = auto",
			p->device, n.mtu, p->mtu, p->device, p->mtu);
	if (p->addresses.n == 0 && n.addresses.n == 0)
		return fault(p,
			"interface %s has no IP address, and none is configured: \"ip address add ... "
			"dev %s\"",
			p->device, p->device);
	return 0;
}

int
kd_ports_check(const struct kd_conf *c)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; i < c->nports; i++) {
		const struct kd_conf_port *p = &c->port[i];

		if ((p->kind == KD_DEV_PCI && check_pci(p) != 0) ||
			(p->kind == KD_DEV_NETDEV && check_netdev(p) != 0))
			rc = -ENODEV;
	}
	return rc;
}

bool
kd_ports_want_page_buffers(const struct kd_conf *c)
{
	uint32_t i;

	for (i = 0; i < c->nports; i++)
		if (c->port[i].kind == KD_DEV_NETDEV && c->port[i].driver == KD_AF_XDP)
			return true;
	return false;
}

bool
kd_ports_have_trains(const struct kd_conf *c)
{
	uint32_t i;

	for (i = 0; i < c->nports; i++)
		if (c->port[i].kind == KD_DEV_NETDEV &&
			(c->port[i].driver == KD_DRIVER_AUTO || c->port[i].driver == KD_KPORT))
			return true;
	return false;
}

/* --- which lcores --- */

static uint64_t
configured_lcores(const struct kd_conf *c, const struct kd_conf_port *p)
{
	uint64_t mask = 0;
	uint32_t i, j;

	for (i = 0; i < c->engine.lcores.n; i++)
		for (j = 0; j < p->lcores.n; j++)
			if (c->engine.lcores.cpu[i] == p->lcores.cpu[j])
				mask |= UINT64_C(1) << i;
	return mask;
}

/* All lcores, or the first ones if the device has only @queues. */
static uint64_t
lcore_mask(const struct kd_conf *c, const struct kd_conf_port *p, uint32_t queues)
{
	uint32_t n = karst_min_u32(c->engine.lcores.n, queues);

	if (p->lcores.n != 0)
		return configured_lcores(c, p);
	return n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/* --- devices --- */

static int
plug(struct kd_port *port, const char *name, const char *args)
{
	int rc = rte_eal_hotplug_add("vdev", name, args);

	if (rc == 0)
		rc = rte_eth_dev_get_port_by_name(name, &port->ethdev);
	if (rc != 0)
		return fault(port->conf,
			"DPDK makes no device of %s%s%s: %s; its own words are above", name,
			args[0] != '\0' ? "," : "", args, rte_strerror(-rc));
	port->probed = true;
	return 0;
}

static int
open_vdev(struct kd_port *port)
{
	const char *comma = strchr(port->conf->device, ',');
	char name[KD_TEXT];

	snprintf(name, sizeof(name), "%.*s",
		comma != NULL ? (int)(comma - port->conf->device) : (int)KD_TEXT,
		port->conf->device);
	return plug(port, name, comma != NULL ? comma + 1 : "");
}

static int
open_pci(struct kd_port *port)
{
	char name[PCI_PRI_STR_SIZE], driver[64];

	pci_name(port->conf, name, sizeof(name));
	if (rte_eth_dev_get_port_by_name(name, &port->ethdev) == 0) {
		port->probed = true;
		kd_hotplug_begin(&port->hotplug, name);
		return 0;
	}
	kd_hotplug_driver(name, driver, sizeof(driver));
	return fault(port->conf,
		"DPDK has no port for PCI device %s, whose kernel driver is %s: bind it to vfio-pci "
		"(dpdk-devbind.py -b vfio-pci %s), or install DPDK's driver for it",
		name, driver[0] != '\0' ? driver : "none", name);
}

static int
open_af_packet(struct kd_port *port, uint32_t queues)
{
	const struct kd_conf_port *p = port->conf;
	char name[64], args[256];

	snprintf(name, sizeof(name), "net_af_packet_%s", port->netdev.name);
	snprintf(args, sizeof(args), "iface=%s,qpairs=%u,framecnt=%u,%s", port->netdev.name, queues,
		(p->rx_slots + PACKET_UNIT - 1) / PACKET_UNIT * PACKET_UNIT,
		port->netdev.mtu <= PACKET_SMALL_MTU ? PACKET_SMALL : PACKET_LARGE);
	return plug(port, name, args);
}

/* karst's own driver.  It narrows its sockets to RoCE by itself. */
static int
open_kport(struct kd_port *port, uint32_t queues)
{
	char name[64], args[256];

	snprintf(name, sizeof(name), "net_kport_%s", port->netdev.name);
	snprintf(args, sizeof(args), "iface=%s,qpairs=%u,roce=1", port->netdev.name, queues);
	return plug(port, name, args);
}

static int
check_xdp(const struct kd_port *port, uint32_t queues)
{
	const struct kd_conf_port *p = port->conf;
	int rc;

	if (port->netdev.rx_queues > queues)
		return fault(p,
			"interface %s has %u receive queues and %u lcores serve it, so RoCE frames of "
			"the others would be lost: \"ethtool -L %s combined %u\", or more lcores",
			p->device, port->netdev.rx_queues, queues, p->device, queues);
	rc = kd_xdp_remove_stale(&port->netdev);
	if (rc == -EBUSY)
		return fault(p,
			"another XDP program is attached to %s: \"ip link set %s xdp off\", or driver = "
			"af_packet",
			p->device, p->device);
	return rc == 0 ? 0 : fault(p, "XDP programs of %s: %s", p->device, strerror(-rc));
}

static int
open_af_xdp(struct kd_ports *ps, struct kd_port *port, uint32_t queues)
{
	const struct kd_conf_port *p = port->conf;
	char name[64], args[256], path[64];
	int rc = check_xdp(port, queues);

	if (rc != 0)
		return rc;
	if (ps->xdp_fd < 0)
		ps->xdp_fd = kd_xdp_file();
	if (ps->xdp_fd < 0)
		return fault(p, "the XDP program: %s", strerror(-ps->xdp_fd));
	kd_xdp_path(ps->xdp_fd, path, sizeof(path));
	snprintf(name, sizeof(name), "net_af_xdp_%s", port->netdev.name);
	/* Busy polling of sockets would fight with the idle modes of lcores. */
	snprintf(args, sizeof(args),
		"iface=%s,start_queue=0,queue_count=%u,busy_budget=0,xdp_prog=%s",
		port->netdev.name, queues, path);
	return plug(port, name, args);
}

static int
open_netdev(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port)
{
	const struct kd_conf_port *p = port->conf;
	uint32_t queues;
	int rc = kd_netdev_read(p->device, &port->netdev);

	if (rc != 0)
		return fault(p, "interface %s: %s", p->device, strerror(-rc));
	if (!port->netdev.up)
		karst_log(KARST_LOG_WARNING, "port %s: interface %s is down: \"ip link set %s up\"",
			p->name, p->device, p->device);
	port->silence_fd = kd_netdev_silence(&port->netdev);
	if (port->silence_fd == -EADDRINUSE)
		return fault(p,
			"UDP port 4791 of %s belongs to another program (another karstd, or the kernel's "
			"soft-RoCE)",
			p->device);
	if (port->silence_fd < 0)
		return fault(p, "UDP port 4791 of %s: %s", p->device, strerror(-port->silence_fd));
	port->driver = p->driver == KD_DRIVER_AUTO ? KD_KPORT : p->driver;
	queues = (uint32_t)__builtin_popcountll(lcore_mask(c, p,
		port->driver == KD_AF_XDP && port->netdev.rx_queues != 0 ? port->netdev.rx_queues
									 : 16));
	if (port->driver == KD_AF_XDP)
		return open_af_xdp(ps, port, queues);
	return port->driver == KD_KPORT ? open_kport(port, queues) : open_af_packet(port, queues);
}

static int
open_device(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port)
{
	switch (port->conf->kind) {
	case KD_DEV_PCI:
		return open_pci(port);
	case KD_DEV_VDEV:
		return open_vdev(port);
	case KD_DEV_NETDEV:
		return open_netdev(ps, c, port);
	default:
		port->ethdev = KARST_ENGINE_NO_ETHDEV;
		return 0;
	}
}

/* --- addresses --- */

/* fe80:: and the interface identifier that is made of a MAC address. */
static struct karst_engine_addr
link_local(const uint8_t mac[6])
{
	struct karst_engine_addr a = {.ip = {0xfe, 0x80, [8] = mac[0] ^ 2, mac[1], mac[2], 0xff,
					      0xfe, mac[3], mac[4], mac[5]},
		.prefix = 64};

	return a;
}

/* Loopback ports have a MAC address for show: no frame of theirs leaves. */
static void
loopback_mac(const struct kd_ports *ps, const struct kd_port *port, uint8_t mac[6])
{
	const uint8_t own[6] = {2, 'k', 'a', 'r', 's', (uint8_t)(port - ps->port)};

	memcpy(mac, own, sizeof(own));
}

static void
choose_addresses(struct kd_port *port, const uint8_t mac[6])
{
	port->addresses = port->conf->addresses;
	if (port->addresses.n == 0)
		port->addresses = port->netdev.addresses;
	if (port->conf->link_local && port->addresses.n < KD_MAX_ADDRS)
		port->addresses.addr[port->addresses.n++] = link_local(mac);
}

static void
gateway(struct karst_engine_addr *to, const struct kd_ip *from)
{
	memset(to, 0, sizeof(*to));
	if (from->set)
		memcpy(to->ip, from->ip, sizeof(to->ip));
}

/* --- one port --- */

/* The driver of AF_PACKET that a device of DPDK was asked of; the kernel's interface is then the
 * engine's alone. */
static bool
is_packet_vdev(const struct kd_port *port)
{
	return port->conf->kind == KD_DEV_VDEV &&
		strncmp(port->conf->device, PACKET_DRIVER, strlen(PACKET_DRIVER)) == 0;
}

static int
fill_config(const struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port,
	struct karst_engine_port_config *cfg)
{
	const struct kd_conf_port *p = port->conf;
	struct rte_eth_dev_info info = {.max_rx_queues = UINT16_MAX, .max_tx_queues = UINT16_MAX};
	struct rte_ether_addr own = {0};
	int rc = 0;

	memset(cfg, 0, sizeof(*cfg));
	if (port->probed)
		rc = rte_eth_dev_info_get(port->ethdev, &info);
	if (rc == 0 && port->probed)
		rc = rte_eth_macaddr_get(port->ethdev, &own);
	if (rc != 0)
		return fault(p, "DPDK does not know its device: %s", rte_strerror(-rc));
	if (p->kind == KD_DEV_LOOPBACK)
		loopback_mac(ps, port, cfg->mac);
	else if (p->mac.set)
		memcpy(cfg->mac, p->mac.mac, sizeof(cfg->mac));
	choose_addresses(
		port, p->mac.set || p->kind == KD_DEV_LOOPBACK ? cfg->mac : own.addr_bytes);
	cfg->name = p->name;
	cfg->number = (uint8_t)(port - ps->port + 1);
	cfg->ethdev = port->ethdev;
	cfg->lcore_mask = lcore_mask(c, p, RTE_MIN(info.max_rx_queues, info.max_tx_queues));
	cfg->mtu = (uint16_t)p->mtu;
	cfg->force_mtu = p->kind == KD_DEV_VDEV && p->mtu != 0;
	cfg->rx_slots = (uint16_t)p->rx_slots;
	cfg->tx_slots = (uint16_t)p->tx_slots;
	cfg->vlan = (uint16_t)p->vlan;
	cfg->num_addrs = port->addresses.n;
	cfg->addrs = port->addresses.addr;
	gateway(&cfg->gateway4, &p->gateway4);
	gateway(&cfg->gateway6, &p->gateway6);
	cfg->exception_tap = p->exception_tap[0] != '\0' ? p->exception_tap : NULL;
	cfg->isolate = p->isolate;
	cfg->all_groups = p->kind == KD_DEV_NETDEV || is_packet_vdev(port);
	if (p->isolate) {
		pci_interface(p, port->netdev.name, sizeof(port->netdev.name));
		cfg->netdev = port->netdev.name;
	}
	if (p->kind == KD_DEV_NETDEV) {
		/* Drivers do not ask the interface; net_af_packet always says 1500. */
		cfg->netdev = p->device;
		cfg->force_mtu = port->driver == KD_AF_PACKET;
		if (cfg->mtu == 0)
			cfg->mtu = (uint16_t)karst_min_u32(port->netdev.mtu, UINT16_MAX);
	}
	return 0;
}

/* Programs join groups later, when nobody here may tell an interface of them.  On a kernel's
 * interface the kernel joins; that of an AF_PACKET device takes all groups from the start, as other
 * devices do. */
static int
take_groups(const struct kd_port *port, const struct kd_fds *fds)
{
	int rc = 0;

	if (is_packet_vdev(port) && fds->n > 0)
		rc = kd_netdev_all_groups(fds->fd[0]);
	return rc == 0 ? 0 : fault(port->conf, "frames to groups: %s", strerror(-rc));
}

/* An AF_PACKET socket sees everything on the interface unless it is told otherwise. */
static int
narrow(const struct kd_port *port, const struct kd_fds *fds)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; rc == 0 && port->driver == KD_AF_PACKET && i < fds->n; i++)
		if (kd_wake_is_packet(fds->fd[i]))
			rc = kd_netdev_only_roce(fds->fd[i]);
	return rc == 0 ? 0 : fault(port->conf, "a filter for RoCE: %s", strerror(-rc));
}

/* Which driver a kernel interface has got, and what that means. */
static void
say_driver(const struct kd_port *port)
{
	static const char *const names[] = {"", "kport", "af_packet", "af_xdp"};
	struct rte_eth_dev_info info;
	const char *what = "";

	if (port->driver == KD_KPORT && rte_eth_dev_info_get(port->ethdev, &info) == 0)
		what = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_TSO) != 0
			? ": the kernel takes trains of packets of up to 64 KiB"
			: ": frames one by one, since trains need Linux 6.2";
	karst_log(KARST_LOG_NOTICE, "port %s: interface %s by driver %s%s%s", port->conf->name,
		port->conf->device, names[port->driver],
		port->conf->driver == KD_DRIVER_AUTO ? " (auto)" : "", what);
}

static void
say_port(const struct kd_port *port, const struct karst_engine_port_info *info)
{
	char list[KD_MAX_ADDRS * (INET6_ADDRSTRLEN + 1)] = "", ip[INET6_ADDRSTRLEN];
	size_t n = 0;
	uint32_t i;

	if (port->conf->kind == KD_DEV_NETDEV)
		say_driver(port);
	for (i = 0; i < info->num_addrs; i++) {
		const struct karst_engine_addr *a = &info->addrs[i];
		bool is4 = karst_engine_addr_is_ip4(a);

		inet_ntop(is4 ? AF_INET : AF_INET6, a->ip + (is4 ? 12 : 0), ip, sizeof(ip));
		n += (size_t)snprintf(list + n, sizeof(list) - n, " %s", ip);
	}
	karst_log(KARST_LOG_NOTICE, "port %u, %s: %s, path MTU %u, addresses%s", port->number + 1u,
		port->conf->name, port->conf->device, 128u << info->path_mtu, list);
}

/* What the kernel says about XDP is not always said by the driver. */
static const char *
xdp_hint(const struct kd_port *port)
{
	if (port->driver != KD_AF_XDP)
		return "";
	if (port->netdev.mtu > XDP_LARGEST_MTU)
		return "; its MTU is probably too large for XDP: 2132 is what path MTU 2048 needs";
	return "; driver = auto works with every interface";
}

static int
open_port(
	struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e, struct kd_port *port)
{
	struct karst_engine_port_config cfg;
	struct karst_engine_port_info info;
	struct kd_fds before, fds;
	int rc;

	kd_wake_scan(&before);
	rc = open_device(ps, c, port);
	if (rc == 0)
		rc = fill_config(ps, c, port, &cfg);
	if (rc != 0)
		return rc;
	rc = karst_engine_port_add(e, &cfg, &port->number);
	if (rc != 0)
		return fault(port->conf, "%s does not become a port: %s%s", port->conf->device,
			strerror(-rc), xdp_hint(port));
	port->added = true;
	kd_wake_scan(&fds);
	kd_wake_only_new(&fds, &before);
	rc = narrow(port, &fds);
	if (rc == 0)
		rc = take_groups(port, &fds);
	if (rc == 0)
		rc = karst_engine_port_info(e, port->number, &info);
	if (rc != 0)
		return rc;
	/* Any other number is a driver's that does something else; its lcores look for frames. */
	if (fds.n != 0 && fds.n == (uint32_t)__builtin_popcountll(info.lcore_mask))
		karst_engine_port_set_wake_fds(e, port->number, fds.fd, fds.n);
	if (port->probed)
		kd_place_warn(c, port->conf, info.lcore_mask, rte_eth_dev_socket_id(port->ethdev));
	say_port(port, &info);
	return 0;
}

/* --- all of them --- */

int
kd_ports_open(struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e)
{
	uint32_t i;
	int rc = 0;

	memset(ps, 0, sizeof(*ps));
	ps->xdp_fd = -1;
	for (i = 0; rc == 0 && i < c->nports; i++) {
		struct kd_port *port = &ps->port[ps->n++];

		port->conf = &c->port[i];
		port->silence_fd = -1;
		rc = open_port(ps, c, e, port);
	}
	return rc;
}

static void
follow_addresses(struct kd_port *port, struct karst_engine *e)
{
	struct kd_netdev now;

	if (!port->added || port->conf->kind != KD_DEV_NETDEV || port->conf->addresses.n != 0)
		return;
	if (kd_netdev_read(port->conf->device, &now) != 0 || now.addresses.n == 0 ||
		memcmp(&now.addresses, &port->netdev.addresses, sizeof(now.addresses)) == 0)
		return;
	port->netdev.addresses = now.addresses;
	choose_addresses(port, port->netdev.mac);
	if (karst_engine_port_set_addrs(e, port->number, port->addresses.n, port->addresses.addr) ==
		0)
		karst_log(KARST_LOG_NOTICE, "port %s: interface %s has other addresses now",
			port->conf->name, port->conf->device);
}

/* Closes the device; what comes with an adapter that is plugged in later is as new. */
static void
close_device(struct kd_port *port)
{
	if (port->probed)
		rte_eth_dev_close(port->ethdev);
	port->probed = port->added = false;
}

static void
follow_adapter(
	struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port, struct karst_engine *e)
{
	struct kd_hotplug *h = &port->hotplug;

	if (kd_hotplug_leaves(h)) {
		karst_log(KARST_LOG_WARNING, "port %s: the adapter %s is being taken away",
			port->conf->name, h->name);
		karst_engine_port_lose(e, port->number);
		close_device(port);
		kd_hotplug_let_go(h, false);
		karst_log(KARST_LOG_NOTICE, "port %s: gone", port->conf->name);
	} else if (kd_hotplug_returns(h) && kd_hotplug_take(h) == 0 &&
		open_port(ps, c, e, port) != 0) {
		close_device(port);
		kd_hotplug_let_go(h, true);
	}
}

void
kd_ports_watch(struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e)
{
	uint32_t i;

	for (i = 0; i < ps->n; i++) {
		follow_addresses(&ps->port[i], e);
		follow_adapter(ps, c, &ps->port[i], e);
	}
	karst_engine_links_check(e);
}

void
kd_ports_close(struct kd_ports *ps)
{
	uint32_t i;

	for (i = 0; i < ps->n; i++) {
		struct kd_port *port = &ps->port[i];

		kd_hotplug_end(&port->hotplug);
		close_device(port);
		if (port->silence_fd >= 0)
			close(port->silence_fd);
	}
	if (ps->xdp_fd >= 0)
		close(ps->xdp_fd);
	ps->n = 0;
}
