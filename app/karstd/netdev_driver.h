/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The drivers by which a kernel interface becomes a DPDK port: a row for each value of driver =. */
#ifndef KARSTD_NETDEV_DRIVER_H
#define KARSTD_NETDEV_DRIVER_H

#include "port_kind.h"

#define KD_NETDEV_QUEUES 16u /* at most, where the driver does not care */

struct kd_netdev_driver {
	const char *name; /* as in karst.conf */
	struct kd_port_needs needs;
	bool force_mtu;       /* it tells DPDK a wrong MTU */
	bool all_rx_queues;   /* each receive queue of the interface must be served */
	bool follows;         /* to an interface that is made anew, and to any MTU */
	bool narrow_sockets;  /* its sockets get all frames unless they are told otherwise */
	uint32_t largest_mtu; /* of the port, whatever the interface's; 0: any */
	int (*open)(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port,
		uint32_t queues);
	/* The rest of the line that names it, or "". */
	const char *(*note)(const struct kd_port *port);
	/* As in kd_port_kind. */
	const char *(*hint)(const struct kd_port *port);
};

/** The one that the configuration asks for; auto: the best. */
const struct kd_netdev_driver *kd_netdev_driver_of(const struct kd_conf_port *p);

#endif /* KARSTD_NETDEV_DRIVER_H */
