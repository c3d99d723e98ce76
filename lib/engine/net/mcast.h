/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Multicast groups (U4): who is in them, and how packets to QP 0xffffff get to all of them.
 *
 *	eng_mcast_spread()    a frame has come in: copies to other lcores
 *	eng_mcast_deliver()   a verified packet, on an lcore with members: to each of them
 *	eng_mcast_echo()      a frame leaves: a copy for the members at home
 *
 * The rest is for control calls.
 */
#ifndef ENGINE_MCAST_H
#define ENGINE_MCAST_H

#include "engine_priv.h"

/* Is there anybody to echo to? */
static inline bool
eng_mcast_any(const struct karst_engine *e)
{
	/* relaxed: eng_mcast_echo() looks again */
	return atomic_load_explicit(&e->mcast_seq, memory_order_relaxed) != 0;
}

/* @return whether the lcore itself has members, and keeps @m; else that is gone. */
bool eng_mcast_spread(struct eng_lcore *lc, struct rte_mbuf *m);
/* @pkt stays the caller's. */
void eng_mcast_deliver(struct eng_lcore *lc, const struct karst_pkt *pkt);
/* @m is complete and about to leave by device port @port.  @return the copy, for the port's twin;
 * NULL: nobody wants it. */
struct rte_mbuf *eng_mcast_echo(struct eng_lcore *lc, const struct rte_mbuf *m, uint8_t port);

/* Within control calls. */

/* The port of @q has changed. */
void eng_mcast_moved(struct karst_engine *e, struct eng_qp *q, uint8_t port_num);
/* They are about to be destroyed. */
void eng_mcast_forget(struct karst_engine *e, struct karst_engine_qp *const *qps, uint32_t n);
void eng_mcast_port_added(struct karst_engine *e, uint8_t port);

#endif /* ENGINE_MCAST_H */
