/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Multicast groups (U4) on lcores: how packets to QP 0xffffff reach all members.
 *
 *	eng_group_spread()    a received frame: gives copies to other lcores
 *	eng_group_deliver()   a verified packet, on an lcore with members: delivers it to each
 *	eng_group_echo()      a frame that is sent: makes a copy for members in this engine
 */
#ifndef ENGINE_GROUP_H
#define ENGINE_GROUP_H

#include "lcore.h"

struct eng_group {
	uint8_t port;
	uint8_t ip[16];
	uint32_t first; /* index in qpn[] of the first member */
	uint32_t n;
	uint64_t lcores;
};

/* Sort order of groups. */
static inline int
eng_group_compare(uint8_t port_a, const uint8_t a[16], uint8_t port_b, const uint8_t b[16])
{
	return port_a != port_b ? (int)port_a - port_b : memcmp(a, b, 16);
}

/* The valid table; call it on an lcore or with ctl_lock held.  NULL: there have been no groups. */
const struct eng_group_table *eng_group_table_of(const struct karst_engine *e);

/* Whether there are groups, so that eng_group_echo() is worth a call. */
static inline bool
eng_group_any(const struct karst_engine *e)
{
	/* relaxed: eng_group_echo() checks again */
	return atomic_load_explicit(&e->mcast_seq, memory_order_relaxed) != 0;
}

/* @return whether the lcore itself has members and keeps @m; otherwise @m has been passed on or
 * freed. */
bool eng_group_spread(struct eng_lcore *lc, struct rte_mbuf *m);
/* @pkt stays the caller's. */
void eng_group_deliver(struct eng_lcore *lc, const struct karst_pkt *pkt);
/* @m is complete and about to be sent on device port @port.  @return the copy, for the loopback
 * port; NULL: there are no members. */
struct rte_mbuf *eng_group_echo(struct eng_lcore *lc, const struct rte_mbuf *m, uint8_t port);

#endif /* ENGINE_GROUP_H */
