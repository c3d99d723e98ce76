/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Ports without a device: the engine receives what it sends on them (loop.c of lcore), and there
 * are no other hosts.
 */
#include "port_kind.h"

#include <stdio.h>

static bool
loopback_matches(const struct karst_engine_port_config *cfg)
{
	return cfg->ethdev == KARST_ENGINE_NO_ETHDEV;
}

static const char *
loopback_fault(const struct karst_engine_port_config *cfg)
{
	if (cfg->netdev != NULL || cfg->exception_tap != NULL || cfg->isolate)
		return "a port without a device has no kernel interface, no exception tap, no flow rules";
	return NULL;
}

static int
loopback_bring_up(
	struct karst_engine *e, struct eng_port *p, const struct karst_engine_port_config *cfg)
{
	const uint8_t mac[6] = {2, 'k', 'r', 's', 't', (uint8_t)(p - e->port)};

	snprintf(p->name, sizeof(p->name), "loopback");
	eng_port_set_mtu(p, eng_port_mtu_wanted(e, cfg));
	memcpy(p->info.mac, eng_mac_is_zero(cfg->mac) ? mac : cfg->mac, sizeof(p->info.mac));
	p->all_groups = true;
	return 0;
}

const struct eng_port_ops eng_port_loopback_ops = {
	.matches = loopback_matches,
	.fault = loopback_fault,
	.bring_up = loopback_bring_up,
};
