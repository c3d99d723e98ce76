/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Virtual devices of DPDK, in the form of its option --vdev: net_ring0, net_vhost0,iface=... */
#include "port_kind.h"

#include <string.h>

#include <rte_ethdev.h>

#include "karst_log.h"
#include "log.h"
#include "memif.h"

#define VDEV_PREFIX   "net_"
#define PACKET_DRIVER "net_af_packet"
#define MEMIF_DRIVER  "net_memif"
#define MEMIF_LOG     "pmd.net.memif"
#define ASK_MOST      30u /* calls of vdev_follow() */

static bool
vdev_matches(const char *device)
{
	return strncmp(device, VDEV_PREFIX, strlen(VDEV_PREFIX)) == 0;
}

static bool
is_open_to_all(const char *args)
{
	return strstr(args, ",socket-abstract=no") == NULL &&
		(strstr(args, ",role=server") == NULL || strstr(args, ",secret=") == NULL);
}

/* The driver uses data that its peer writes into the shared memory without checking it: a peer that
 * can connect to it, or that it connects to, can take over this process. */
static void
warn_of_peers(const struct kd_conf_port *p)
{
	const char *args = p->device;
	char shown[KD_TEXT];

	if (strncmp(args, MEMIF_DRIVER, strlen(MEMIF_DRIVER)) != 0)
		return;
	if (is_open_to_all(args))
		karst_log(KARST_LOG_WARNING,
			"%s: anybody in the network namespace may be the other end of its socket, "
			"and can end or take over this process: give it socket-abstract=no and a "
			"path in a folder of its own, or, as server, a secret",
			kd_port_shown(args, shown));
	else
		karst_log(KARST_LOG_NOTICE,
			"port %s: net_memif believes what the other end of its socket writes: who "
			"is that can end, stop or take over this process, and has to be trusted "
			"like it",
			p->name);
}

static int
vdev_open(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port)
{
	const char *comma = strchr(port->conf->device, ',');
	char name[KD_TEXT];

	warn_of_peers(port->conf);
	port->ask.wait = port->ask.patience = 1;
	snprintf(name, sizeof(name), "%.*s",
		comma != NULL ? (int)(comma - port->conf->device) : (int)KD_TEXT,
		port->conf->device);
	return kd_port_plug(port, name, comma != NULL ? comma + 1 : "");
}

/* Is it DPDK's AF_PACKET driver?  Then only the engine uses the kernel interface. */
static bool
is_packet(const struct kd_conf_port *p)
{
	return strncmp(p->device, PACKET_DRIVER, strlen(PACKET_DRIVER)) == 0;
}

/* Closes the device before any lcore can use it again. */
static void
vdev_stopped(void *arg)
{
	kd_port_close_device(arg);
}

static void
vdev_fill(const struct kd_ports *ps, struct kd_port *port, struct karst_engine_port_config *cfg)
{
	cfg->force_mtu = port->conf->mtu != 0;
	cfg->all_groups = is_packet(port->conf);
	cfg->stopped = vdev_stopped;
	cfg->stopped_arg = port;
}

/* Programs join groups later, when this process no longer has the right to tell an interface.  So
 * the interface of an AF_PACKET device accepts all groups from the start, as other devices do. */
static int
vdev_ready(const struct kd_port *port, const struct kd_fds *fds)
{
	int rc = 0;

	if (is_packet(port->conf) && fds->n > 0)
		rc = kd_netdev_all_groups(fds->fd[0]);
	return rc == 0 ? 0 : kd_port_fault(port->conf, "frames to groups: %s", strerror(-rc));
}

/* --- net_memif as a client --- */

static bool
is_client(const struct kd_conf_port *p)
{
	const char *role = strstr(p->device, ",role=");

	/* as the driver reads it; "master" is the old name of "server" */
	return strncmp(p->device, MEMIF_DRIVER, strlen(MEMIF_DRIVER)) == 0 &&
		(role == NULL ||
			(strncmp(role + 6, "server", 6) != 0 &&
				strncmp(role + 6, "master", 6) != 0));
}

/* The server may have been restarted, and the driver does not ask it again.  Each attempt that has
 * begun gets more time than the one before, since the machine may be busy. */
static void
ask_server(struct kd_port *port, uint16_t ethdev)
{
	struct kd_hush hush;
	int rc;

	if (port->ask.wait > 0) {
		port->ask.wait--;
		return;
	}
	if (!port->ask.said)
		karst_log(KARST_LOG_NOTICE,
			"port %s: the other end of its socket has gone, and is asked for until it is back",
			port->conf->name);
	port->ask.said = true;
	kd_log_hush(&hush, MEMIF_LOG);
	rc = kd_memif_ask(ethdev);
	kd_log_speak(&hush);
	if (rc != 0)
		return;
	port->ask.wait = port->ask.patience;
	port->ask.patience = karst_min_u32(2 * port->ask.patience + 1, ASK_MOST);
}

static void
vdev_follow(
	struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port, struct karst_engine *e)
{
	uint16_t ethdev = port->impaired ? port->below : port->ethdev;
	struct rte_eth_link link = {0};

	if (!port->added || !is_client(port->conf))
		return;
	if (rte_eth_link_get_nowait(ethdev, &link) == 0 && link.link_status == RTE_ETH_LINK_DOWN) {
		ask_server(port, ethdev);
		return;
	}
	port->ask.patience = 1;
	port->ask.said = false;
}

const struct kd_port_kind kd_port_vdev = {
	.form = "net_...",
	.matches = vdev_matches,
	.open = vdev_open,
	.fill = vdev_fill,
	.ready = vdev_ready,
	.follow = vdev_follow,
};
