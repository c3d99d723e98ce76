/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Multicast groups (U4) on lcores: how packets to QP 0xffffff get to all members.
 *
 *	eng_group_spread()    a frame has come in: copies to other lcores
 *	eng_group_deliver()   a verified packet, on an lcore with members: to each of them
 *	eng_group_echo()      a frame leaves: a copy for the members at home
 */
#ifndef ENGINE_GROUP_H
#define ENGINE_GROUP_H

#include "lcore.h"

struct eng_group {
	uint8_t port;
	uint8_t ip[16];
	uint32_t first; /* of its members in qpn[] */
	uint32_t n;
	uint64_t lcores;
};

/* Groups stand in this order. */
static inline int
eng_group_compare(uint8_t port_a, const uint8_t a[16], uint8_t port_b, const uint8_t b[16])
{
	return port_a != port_b ? (int)port_a - port_b : memcmp(a, b, 16);
}

/* The one that is valid: on an lcore, or with ctl_lock held; NULL: never any groups. */
const struct eng_group_table *eng_group_table_of(const struct karst_engine *e);

/* Is there anybody to echo to? */
static inline bool
eng_group_any(const struct karst_engine *e)
{
	/* relaxed: eng_group_echo() looks again */
	return atomic_load_explicit(&e->mcast_seq, memory_order_relaxed) != 0;
}

/* @return whether the lcore itself has members, and keeps @m; else that is gone. */
bool eng_group_spread(struct eng_lcore *lc, struct rte_mbuf *m);
/* @pkt stays the caller's. */
void eng_group_deliver(struct eng_lcore *lc, const struct karst_pkt *pkt);
/* @m is complete and about to leave by device port @port.  @return the copy, for the port's twin;
 * NULL: nobody wants it. */
struct rte_mbuf *eng_group_echo(struct eng_lcore *lc, const struct rte_mbuf *m, uint8_t port);

#endif /* ENGINE_GROUP_H */
