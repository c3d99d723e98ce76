/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Makes a net_memif of role client ask its server for a connection again.
 *
 * The driver (DPDK 22.11) asks only once, when the device is started.  So the device is stopped and
 * started, but without the other actions of rte_eth_dev_stop() and rte_eth_dev_start(), since
 * lcores continue to poll: without a connection they find that there is none, and access nothing.
 * Connections are made and ended by EAL's interrupt thread, which is paused meanwhile.
 */
#include "memif.h"

#include <errno.h>

#include "dpdk23.h"
#include "karst_engine.h"

static bool
is_without_link(uint16_t ethdev)
{
	struct rte_eth_link link = {0};

	return rte_eth_link_get_nowait(ethdev, &link) == 0 && link.link_status == RTE_ETH_LINK_DOWN;
}

static struct rte_eth_dev *
device_of(uint16_t ethdev)
{
	char name[RTE_ETH_NAME_MAX_LEN];

	if (!dpdk_abi_fits() || rte_eth_dev_get_name_by_port(ethdev, name) != 0)
		return NULL;
	return rte_eth_dev_allocated(name);
}

int
kd_memif_ask(uint16_t ethdev)
{
	struct rte_eth_dev *dev = device_of(ethdev);
	bool paused = karst_engine_intr_pause(ethdev);
	int ret = 0;

	if (dev == NULL || !paused) {
		karst_engine_intr_resume(paused);
		return -ENOTSUP;
	}
	if (is_without_link(ethdev)) {
		ret = dev->dev_ops->dev_stop(dev);
		if (ret == 0 && dev->dev_ops->dev_start(dev) != 0)
			ret = -ENOTCONN;
	}
	karst_engine_intr_resume(paused);
	return ret;
}
