/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The kernel's neighbours and routes, for ports that are a view of a kernel interface.  Needs no
 * privilege.
 */
#ifndef ENG_NETLINK_H
#define ENG_NETLINK_H

#include "karst_neigh.h"

/* Limit of a wait.  go_on returns 0 to continue, or a negative errno that ends the wait. */
struct eng_patience {
	int (*go_on)(void *user);
	void *user;
	bool look_only; /* send nothing for an address that is not being resolved already */
};

/**
 * Finds the MAC address of the next hop from address @src of interface @netdev to @dst, according
 * to the kernel, whose rules may depend on both; makes the kernel resolve it if necessary.  Logs
 * failures unless @quiet.
 * -EHOSTUNREACH: no route through that interface; -ENODEV: no interface; or the error that ended
 * the wait.
 */
int eng_netlink_resolve(const char *netdev, const uint8_t src[16], const uint8_t dst[16],
	bool quiet, const struct eng_patience *patience, uint8_t mac[6]);

/** As karst_engine_neigh_list(). */
int eng_netlink_list(const char *netdev, struct karst_engine_neigh *list, unsigned int max);

#endif /* ENG_NETLINK_H */
