/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The drivers that make a kernel interface a DPDK port: a row for each value of driver =. */
#ifndef KARSTD_NETDEV_DRIVER_H
#define KARSTD_NETDEV_DRIVER_H

#include "port_kind.h"

#define KD_NETDEV_QUEUES 16u /* maximum, if the driver has no limit of its own */

struct kd_netdev_driver {
	const char *name; /* as in karst.conf */
	struct kd_port_needs needs;
	bool force_mtu;       /* it reports a wrong MTU to DPDK */
	bool all_rx_queues;   /* each receive queue of the interface must be served */
	bool follows;         /* it can follow an interface that is created anew, and any MTU */
	bool narrow_sockets;  /* its sockets receive all frames unless a filter is attached */
	uint32_t largest_mtu; /* of the port, even if the interface's is larger; 0: no limit */
	int (*open)(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port,
		uint32_t queues);
	/* Returns the rest of the log line that names the driver, or "". */
	const char *(*note)(const struct kd_port *port);
	/* As kd_port_kind.hint(). */
	const char *(*hint)(const struct kd_port *port);
};

/** Returns the driver that the configuration asks for; auto: the best one. */
const struct kd_netdev_driver *kd_netdev_driver_of(const struct kd_conf_port *p);

#endif /* KARSTD_NETDEV_DRIVER_H */
