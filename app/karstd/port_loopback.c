/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Ports without a device: packets that they send come back to them. */
#include "port_kind.h"

#include <string.h>

static bool
loopback_matches(const char *device)
{
	return strcmp(device, "loopback") == 0;
}

/* 127.0.0.1 and ::1, unless other addresses are configured. */
static void
loopback_defaults(struct kd_conf_port *p)
{
	static const struct karst_engine_addr v6 = {.ip = {[15] = 1}, .prefix = 128};

	if (p->addresses.n != 0)
		return;
	p->addresses.addr[0] = karst_engine_addr_ip4(0x7f000001);
	p->addresses.addr[0].prefix = 8;
	p->addresses.addr[1] = v6;
	p->addresses.n = 2;
}

static struct kd_port_needs
loopback_needs(const struct kd_conf_port *p)
{
	return (struct kd_port_needs){.rx_buffers = 0};
}

static int
loopback_open(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port)
{
	port->ethdev = KARST_ENGINE_NO_ETHDEV;
	return 0;
}

/* A MAC address for display only: no frame leaves. */
static void
loopback_fill(const struct kd_ports *ps, struct kd_port *port, struct karst_engine_port_config *cfg)
{
	const uint8_t own[6] = {2, 'k', 'a', 'r', 's', (uint8_t)(port - ps->port)};

	memcpy(cfg->mac, own, sizeof(own));
}

const struct kd_port_kind kd_port_loopback = {
	.form = "loopback",
	.matches = loopback_matches,
	.unused = {.exception_tap = "nobody sends there",
		.vlan = "a loopback port has no tags",
		.mac = "a loopback port needs none",
		.gateway = "a loopback port leads nowhere else"},
	.many = true,
	.defaults = loopback_defaults,
	.needs = loopback_needs,
	.open = loopback_open,
	.fill = loopback_fill,
};
