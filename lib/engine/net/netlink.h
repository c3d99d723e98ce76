/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The kernel's neighbours and routes, for ports that are a view of one of its interfaces.
 * Needs no privilege.
 */
#ifndef ENG_NETLINK_H
#define ENG_NETLINK_H

#include "karst_neigh.h"

/* Who waits, and how long.  0: go on; else a negative errno that ends it. */
struct eng_patience {
	int (*go_on)(void *user);
	void *user;
};

/**
 * The MAC address of the next hop from interface @netdev to @dst, as the kernel sees it; makes the
 * kernel ask for it if it does not know.  Logs why not, unless @quiet.
 * -EHOSTUNREACH: no route out of that interface; -ENODEV: no interface; or what ended the wait.
 */
int eng_netlink_resolve(const char *netdev, const uint8_t dst[16], bool quiet,
	const struct eng_patience *patience, uint8_t mac[6]);

/** As karst_engine_neigh_list(). */
int eng_netlink_list(const char *netdev, struct karst_engine_neigh *list, unsigned int max);

#endif /* ENG_NETLINK_H */
