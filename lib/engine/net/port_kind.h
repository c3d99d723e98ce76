/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Kinds of ports.  Each kind is a table of operations, an element of eng_port_kinds (port.c), and a
 * file of its own.
 *
 *	port_own.c       a DPDK port whose link the engine manages: neighbours, multicast groups, a
 *	                 tap for what is not RoCE
 *	port_netdev.c    a DPDK port that is a view of a kernel interface: the kernel manages it
 *	port_loopback.c  no DPDK port: the engine receives what it sends
 *
 * port_device.c has what the first two have in common.  Lcores do not know kinds: for them a port
 * is the queues in their tables (port_life.c).
 *
 * All operations are called by control threads, with ctl_lock held unless stated otherwise.
 */
#ifndef ENG_PORT_KIND_H
#define ENG_PORT_KIND_H

#include <net/if.h>

#include "karst_hdr.h"
#include "neigh.h"
#include "netlink.h"
#include "port.h"

/* Where a path leads, as far as the configuration determines it. */
struct eng_lookup {
	const struct eng_port_ops *ops; /* of the port */
	struct karst_path *path;
	struct eng_neigh_call call; /* .ip: the next hop */
	bool done;                  /* nothing has to be resolved */
	bool quiet;                 /* do not log failures: the source of the address could fill the
				     * log */
	char netdev[IF_NAMESIZE];
};

/* IPv6, UDP, BTH, the longest extended headers of packets with payload (RETH, ImmDt), ICRC. */
#define ENG_IP_OVERHEAD                                                                   \
	(KARST_IP6_LEN + KARST_UDP_LEN + KARST_BTH_LEN + KARST_RETH_LEN + KARST_IMM_LEN + \
		KARST_ICRC_LEN)

struct eng_port_ops {
	/* Whether a configuration is for this kind. */
	bool (*matches)(const struct karst_engine_port_config *cfg);
	/* What is wrong with the configuration of such a port; NULL if nothing is. */
	const char *(*fault)(const struct karst_engine_port_config *cfg);
	/* Sets name, MTUs, MAC address and all_groups, and starts the device.  After a failure,
	 * which is logged, the device is stopped. */
	int (*bring_up)(struct karst_engine *e, struct eng_port *p,
		const struct karst_engine_port_config *cfg);
	/* NULL: nothing to stop. */
	void (*stop)(struct eng_port *p);
	/* Whether the link is up, and its speed (0: not known).  NULL: always up. */
	bool (*link)(const struct eng_port *p, uint32_t *mbps);
	/* Creates what must exist before lcores serve the port; port_life.c destroys it, also after
	 * a failure.  NULL: nothing. */
	int (*make_link)(struct karst_engine *e, uint8_t port);
	/* Announces all addresses of the port on the link.  NULL: nothing to do. */
	void (*announce)(struct karst_engine *e, uint8_t port);
	/* Sets the port's multicast groups, in ascending order.  NULL: nothing to do. */
	void (*set_groups)(
		struct karst_engine *e, uint8_t port, const uint8_t (*ips)[16], uint32_t n);

	/* Paths to other hosts.  All NULL: the port leads to no other host. */

	/* Fills in the next hop to resolve for @ip from own address @own.  @return NULL, or why
	 * there is no path. */
	const char *(*next_hop)(const struct eng_port *p, const struct karst_engine_addr *own,
		const uint8_t ip[16], struct eng_lookup *l);
	/* Resolves path->dst_mac; without ctl_lock.  0; -EHOSTUNREACH; -EINVAL: the port was
	 * removed meanwhile; or the error that ended the wait. */
	int (*resolve)(
		struct karst_engine *e, struct eng_lookup *l, const struct eng_patience *patience);
	/* As karst_engine_neigh_list(), without ctl_lock. */
	int (*list_neigh)(struct karst_engine *e, uint8_t port, struct karst_engine_neigh *list,
		unsigned int max);
};

extern const struct eng_port_ops eng_port_own_ops;      /* port_own.c */
extern const struct eng_port_ops eng_port_netdev_ops;   /* port_netdev.c */
extern const struct eng_port_ops eng_port_loopback_ops; /* port_loopback.c */

/* --- port.c --- */

/* Length of an optional name. */
size_t eng_name_len(const char *name);
/* The IP MTU to request: at most what path MTU 4096 needs and buffers hold. */
uint16_t eng_port_mtu_wanted(
	const struct karst_engine *e, const struct karst_engine_port_config *cfg);
/* Sets the IP MTU of the port, and the path MTU that fits into it. */
void eng_port_set_mtu(struct eng_port *p, uint16_t mtu);
bool eng_mac_is_zero(const uint8_t mac[6]);

/* --- port_device.c: operations of ports with a DPDK port --- */

int eng_port_device_bring_up(
	struct karst_engine *e, struct eng_port *p, const struct karst_engine_port_config *cfg);
void eng_port_device_stop(struct eng_port *p);
bool eng_port_device_link(const struct eng_port *p, uint32_t *mbps);

/* --- resolve.c --- */

/* Whether @ip is on the link of own address @own. */
bool eng_on_link(const struct karst_engine_addr *own, const uint8_t ip[16]);

#endif /* ENG_PORT_KIND_H */
