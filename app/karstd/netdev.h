/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A kernel interface that a port uses. */
#ifndef KARSTD_NETDEV_H
#define KARSTD_NETDEV_H

#include "conf.h"

struct kd_netdev {
	char name[16];
	unsigned int index;
	uint32_t mtu;
	uint32_t rx_queues;
	uint8_t mac[6];
	bool up;
	struct kd_addrs addresses; /* its own, IPv4 first, without duplicates */
	uint32_t more;             /* further addresses, for which there is no room */
};

/**
 * Reads the interface.  @keep: if there is no room for all addresses, these come first; NULL: none.
 * -ENODEV: there is no such interface; or the kernel's error.  Not logged.
 */
int kd_netdev_read(const char *name, const struct kd_addrs *keep, struct kd_netdev *n);

/**
 * Keeps the kernel, which gets a copy of RoCE packets, from answering them with "port unreachable":
 * opens a UDP socket at port 4791 of the interface that drops everything.
 * @return descriptor; -EADDRINUSE: another program uses RoCE on this interface.
 */
int kd_netdev_silence(const struct kd_netdev *n);

/** Attaches a filter to an AF_PACKET socket so that it receives only RoCE. */
int kd_netdev_only_roce(int fd);

/**
 * Makes an interface accept frames to all multicast groups for as long as the AF_PACKET socket @fd,
 * which is bound to it, is open.
 */
int kd_netdev_all_groups(int fd);

#endif /* KARSTD_NETDEV_H */
