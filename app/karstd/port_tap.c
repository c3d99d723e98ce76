/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Taps: net_kport creates one, and the port is its other end.  The engine handles all frames,
 * including ARP. */
#include "port_kind.h"

#include <string.h>

#include "conf_value.h"
#include "netdev_driver.h"

#define TAP_PREFIX "tap:"

static bool
tap_matches(const char *device)
{
	return strncmp(device, TAP_PREFIX, strlen(TAP_PREFIX)) == 0 &&
		kd_name_is_ifname(device + strlen(TAP_PREFIX));
}

static struct kd_port_needs
tap_needs(const struct kd_conf_port *p)
{
	return (struct kd_port_needs){.rx_buffers = 1, .trains = true};
}

static int
tap_open(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port)
{
	const char *tap = port->conf->device + strlen(TAP_PREFIX);
	char name[64], args[256];

	snprintf(name, sizeof(name), "net_kport_tap_%s", tap);
	snprintf(args, sizeof(args), "tap=%s,qpairs=%u", tap,
		(uint32_t)__builtin_popcountll(kd_port_lcores(c, port->conf, KD_NETDEV_QUEUES)));
	return kd_port_plug(port, name, args);
}

const struct kd_port_kind kd_port_tap = {
	.form = "tap:NAME",
	.matches = tap_matches,
	.unused = {.exception_tap = "the kernel has its interface anyhow"},
	.waits_for_taps = true,
	.needs = tap_needs,
	.open = tap_open,
};
