/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Frames that no queue pair gets.  The first of these that accepts a frame takes it over:
 *
 *   1. the engine itself: ARP and neighbour discovery for the port's addresses (neigh.c), and
 *      queries about its multicast groups (member_port.c), on the port's home lcore
 *   2. the kernel, if the port has an exception tap (tap.c); this includes RoCE to addresses and
 *      VLANs that are not the port's
 *   3. the program: the exception callback
 *
 * So with a tap the engine answers for its own addresses, and the kernel for all other addresses
 * that it has there.  Answers of neighbours reach both, as either may have asked.  A frame that
 * none of them accepts is dropped and counted under the parser's drop reason.  Frames of a loopback
 * twin do not come here (rx.c).
 */
#include "exception.h"

#include "member_port.h"
#include "tap.h"

static void
exception_drop(struct eng_lcore *lc, struct rte_mbuf *m, enum karst_drop why)
{
	karst_count_drop(&lc->core->counters, why);
	buffer_free(lc, m);
}

/* Whether another protocol might process the frame. */
static bool
is_other_protocol(enum karst_drop why)
{
	return why == KARST_DROP_ETHERTYPE || why == KARST_DROP_NOT_UDP ||
		why == KARST_DROP_NOT_ROCE || why == KARST_DROP_IP_FRAGMENT;
}

/* Whether a kernel that had this port would process the frame. */
static bool
is_kernels(enum karst_drop why)
{
	return is_other_protocol(why) || why == KARST_DROP_IP_HEADER ||
		why == KARST_DROP_DEST_ADDRESS || why == KARST_DROP_VLAN;
}

/* Passes the frame to the kernel, if possible. */
static void
give_kernel(struct eng_lcore *lc, struct eng_tap *tap, struct rte_mbuf *m)
{
	if (!eng_tap_put(tap, lc->index, m)) {
		exception_drop(lc, m, KARST_DROP_TAP);
		return;
	}
	stat_add(&lc->stats.tap_rx, 1);
	buffer_free(lc, m);
}

/* @return true: the program has taken the frame over. */
static bool
exception_offer(struct eng_lcore *lc, uint8_t port, struct rte_mbuf *m, enum karst_drop why)
{
	const struct karst_engine_exception ex = {
		.lcore = lc->index, .port = port, .why = why, .mbuf = m};
	bool taken;

	if (lc->e->ops.exception == NULL)
		return false;
	__atomic_store_n(&lc->in_callback, this_thread(), __ATOMIC_RELAXED);
	taken = lc->e->ops.exception(lc->e->cfg.user, &ex);
	__atomic_store_n(&lc->in_callback, 0, __ATOMIC_RELAXED);
	return taken;
}

/* Whether the engine itself processes the frame, on the home lcore. */
static bool
is_own(const struct eng_port *p, const struct rte_mbuf *m, enum karst_drop why, bool *query)
{
	*query = false;
	if (p->neigh != NULL && (why == KARST_DROP_ETHERTYPE || why == KARST_DROP_NOT_UDP) &&
		eng_neigh_wants(m))
		return true;
	/* IGMP queries have an IP option */
	*query = p->members != NULL && (why == KARST_DROP_IP_HEADER || why == KARST_DROP_NOT_UDP) &&
		eng_member_wants(m);
	return *query;
}

karst_noinline void
eng_exception(struct eng_lcore *lc, uint8_t port, struct rte_mbuf *m, enum karst_drop why)
{
	const struct eng_port *p = &lc->e->port[port];
	enum eng_neigh_fate fate = ENG_NEIGH_OTHER;
	bool query;

	if (is_own(p, m, why, &query)) {
		if (lc->index != p->home) {
			eng_handoff_give(lc, p->home, m);
			return;
		}
		fate = query ? eng_member_rx(lc, port, m) : eng_neigh_rx(lc, port, m);
	}
	if (fate == ENG_NEIGH_BAD)
		exception_drop(lc, m, KARST_DROP_NEIGHBOUR);
	else if (fate != ENG_NEIGH_DONE && p->tap != NULL && is_kernels(why))
		give_kernel(lc, p->tap, m);
	else if (fate != ENG_NEIGH_DONE && is_other_protocol(why) &&
		exception_offer(lc, port, m, why))
		return;
	else if (fate == ENG_NEIGH_OTHER)
		exception_drop(lc, m, why);
	else
		buffer_free(lc, m);
}
