/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "netdev_driver.h"

#include <errno.h>
#include <string.h>

#include <rte_ethdev.h>

#include "xdp.h"

/* --- net_kport: karst's own.  It restricts its sockets to RoCE itself.  --- */

static int
kport_open(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port, uint32_t queues)
{
	char name[64], args[256];

	snprintf(name, sizeof(name), "net_kport_%s", port->netdev.name);
	snprintf(args, sizeof(args), "iface=%s,qpairs=%u,roce=1", port->netdev.name, queues);
	return kd_port_plug(port, name, args);
}

static const char *
kport_note(const struct kd_port *port)
{
	struct rte_eth_dev_info info;

	if (rte_eth_dev_info_get(port->ethdev, &info) != 0)
		return "";
	return (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_TSO) != 0
		? ": the kernel takes trains of packets of up to 64 KiB"
		: ": frames one by one, since trains need Linux 6.2";
}

/* --- net_af_packet --- */

/* Frame sizes: half a page, or a size of which 16 frames fill 17 pages and which fits a frame of
 * path MTU 4096. */
#define PACKET_SMALL_MTU 1500u
#define PACKET_SMALL     "framesz=2048,blocksz=4096"
#define PACKET_LARGE     "framesz=4352,blocksz=69632"
#define PACKET_UNIT      16u /* framecnt is a multiple of it */

static int
packet_open(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port, uint32_t queues)
{
	const struct kd_conf_port *p = port->conf;
	char name[64], args[256];

	snprintf(name, sizeof(name), "net_af_packet_%s", port->netdev.name);
	snprintf(args, sizeof(args), "iface=%s,qpairs=%u,framecnt=%u,%s", port->netdev.name, queues,
		(p->rx_slots + PACKET_UNIT - 1) / PACKET_UNIT * PACKET_UNIT,
		port->netdev.mtu <= PACKET_SMALL_MTU ? PACKET_SMALL : PACKET_LARGE);
	return kd_port_plug(port, name, args);
}

/* --- net_af_xdp --- */

/* The driver accepts only frames that fit into a page with the data in front of them; the kernel
 * has no larger chunks, not even in huge pages.  The interface's own MTU may be larger. */
#define XDP_LARGEST_MTU 3000u
/* Frames that a poll takes from the interface itself, if an lcore only polls. */
#define XDP_BUSY_BUDGET 64u

static int
xdp_check(const struct kd_port *port, uint32_t queues)
{
	const struct kd_conf_port *p = port->conf;
	int rc;

	if (port->netdev.rx_queues > queues)
		return kd_port_fault(p,
			"interface %s has %u receive queues and %u lcores serve it, so RoCE frames of "
			"the others would be lost: \"ethtool -L %s combined %u\", or more lcores",
			p->device, port->netdev.rx_queues, queues, p->device, queues);
	rc = kd_xdp_remove_stale(&port->netdev);
	if (rc == -EBUSY)
		return kd_port_fault(p,
			"another XDP program is attached to %s: \"ip link set %s xdp off\", or driver = "
			"af_packet",
			p->device, p->device);
	return rc == 0 ? 0 : kd_port_fault(p, "XDP programs of %s: %s", p->device, strerror(-rc));
}

static int
xdp_open(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port, uint32_t queues)
{
	const struct kd_conf_port *p = port->conf;
	char name[64], args[256], path[64];
	int rc = xdp_check(port, queues);

	if (rc != 0)
		return rc;
	if (ps->xdp_fd < 0)
		ps->xdp_fd = kd_xdp_file();
	if (ps->xdp_fd < 0)
		return kd_port_fault(p, "the XDP program: %s", strerror(-ps->xdp_fd));
	kd_xdp_path(ps->xdp_fd, path, sizeof(path));
	snprintf(name, sizeof(name), "net_af_xdp_%s", port->netdev.name);
	/* Otherwise busy polling of sockets would conflict with the idle modes of lcores. */
	snprintf(args, sizeof(args),
		"iface=%s,start_queue=0,queue_count=%u,busy_budget=%u,xdp_prog=%s",
		port->netdev.name, queues, c->engine.idle == KARST_IDLE_POLL ? XDP_BUSY_BUDGET : 0,
		path);
	return kd_port_plug(port, name, args);
}

static const char *
xdp_note(const struct kd_port *port)
{
	return ": path MTU up to 2048, since DPDK's driver takes no frame of two buffers";
}

/* The driver does not always report what the kernel says about XDP. */
static const char *
xdp_hint(const struct kd_port *port)
{
	if (port->netdev.mtu > XDP_LARGEST_MTU)
		return "; its MTU is probably too large for XDP with its driver: 2132 is what path MTU "
		       "2048 needs";
	return "; driver = auto works with every interface";
}

/* --- all drivers --- */

static const struct kd_netdev_driver kd_netdev_drivers[] = {
	[KD_KPORT] = {.name = "kport",
		.needs = {.rx_buffers = 1, .trains = true},
		.follows = true,
		.open = kport_open,
		.note = kport_note},
	[KD_AF_PACKET] = {.name = "af_packet",
		.needs = {.rx_buffers = 1},
		.force_mtu = true, /* always 1500 */
		.narrow_sockets = true,
		.open = packet_open},
	[KD_AF_XDP] = {.name = "af_xdp",
		/* one more buffer for its fill ring */
		.needs = {.rx_buffers = 2, .page_buffers = true, .xdp = true},
		.all_rx_queues = true,
		.largest_mtu = XDP_LARGEST_MTU,
		.open = xdp_open,
		.note = xdp_note,
		.hint = xdp_hint},
};

const struct kd_netdev_driver *
kd_netdev_driver_of(const struct kd_conf_port *p)
{
	return &kd_netdev_drivers[p->driver == KD_DRIVER_AUTO ? KD_KPORT : p->driver];
}
