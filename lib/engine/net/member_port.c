/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * IGMP and MLD for ports that are the engine's own: the home lcore receives queries and sends
 * reports.
 *
 * In each of its turns the home lcore compares the clock with lc->member_ns, the earliest time at
 * which one of its ports has a message to send.
 */
#include "member_port.h"

#include <stdlib.h>

#include <rte_ether.h>

#include "karst_hdr.h"
#include "port.h"

/* Messages, of ENG_MEMBER_RECORDS groups each, that a change may send before it returns. */
#define EXPIRE_AT_ONCE 28u

int
eng_member_create(struct karst_engine *e, struct eng_members **members)
{
	struct eng_members *m = malloc(eng_members_bytes(e->cfg.max_mcasts));
	uint64_t seed[2];

	if (m == NULL)
		return -ENOMEM;
	eng_secret(e, ENG_SECRET_MEMBERS, 0, seed);
	eng_members_init(m, e->cfg.max_mcasts, seed[0]);
	*members = m;
	return 0;
}

void
eng_member_destroy(struct eng_members *members)
{
	free(members);
}

static void
member_settle_due(struct eng_lcore *lc)
{
	uint64_t due = ENG_MEMBERS_NEVER;
	unsigned int i;

	for (i = 0; i < KARST_ENGINE_MAX_PORTS; i++) {
		const struct eng_port *p = &lc->e->port[i];

		if (p->members != NULL && p->home == lc->index)
			due = karst_min_u64(due, eng_members_due(p->members));
	}
	lc->member_ns = due;
}

/* --- queries --- */

bool
eng_member_wants(const struct rte_mbuf *m)
{
	struct eng_l3 l3;

	return eng_l3_find(m, &l3) &&
		(l3.type == RTE_ETHER_TYPE_IPV4 || l3.type == RTE_ETHER_TYPE_IPV6) &&
		eng_member_is_any(l3.p, l3.len);
}

static void
show_counts(struct eng_port *p)
{
	const struct eng_members *m = p->members;

	/* relaxed: only for telemetry */
	__atomic_store_n(&p->info.mcast_queries, m->queries, __ATOMIC_RELAXED);
	__atomic_store_n(&p->info.mcast_bad_queries, m->bad_queries, __ATOMIC_RELAXED);
	__atomic_store_n(&p->info.mcast_reports, m->reports, __ATOMIC_RELAXED);
	__atomic_store_n(&p->info.igmp_version, m->family[ENG_IGMP].version, __ATOMIC_RELAXED);
	__atomic_store_n(&p->info.mld_version, m->family[ENG_MLD].version, __ATOMIC_RELAXED);
}

enum eng_neigh_fate
eng_member_rx(struct eng_lcore *lc, uint8_t port, const struct rte_mbuf *m)
{
	struct eng_port *p = &lc->e->port[port];
	struct eng_l3 l3;
	bool good;

	if (p->members == NULL || !eng_l3_find(m, &l3) || l3.vlan != p->info.vlan)
		return ENG_NEIGH_OTHER;
	/* other hosts' reports are ignored, and are not an error */
	if (!eng_member_is_query(l3.p, l3.len))
		return ENG_NEIGH_SHARE;
	good = eng_members_query(p->members, l3.p, l3.len, lc->core->now_ns);
	show_counts(p);
	member_settle_due(lc);
	/* the kernel behind a tap has groups of its own */
	return good ? ENG_NEIGH_SHARE : ENG_NEIGH_OTHER;
}

/* --- reports --- */

static void
source_of(const struct eng_port *p, struct eng_member_src *src)
{
	const struct eng_addrs *a = eng_port_addrs(p);
	uint32_t i;

	memset(src, 0, sizeof(*src));
	for (i = a->n; i-- > 0;) {
		const uint8_t *ip = a->addr[i].ip;

		if (karst_engine_ip_is_ip4(ip))
			memcpy(src->ip4, ip + 12, sizeof(src->ip4));
		else if (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80)
			memcpy(src->link_local, ip, sizeof(src->link_local));
	}
}

static void
member_transmit(struct eng_lcore *lc, uint8_t port, const struct eng_member_msg *msg)
{
	const struct eng_port *p = &lc->e->port[port];
	struct karst_path path = {.ip6 = !karst_engine_ip_is_ip4(msg->dst)};
	struct rte_mbuf *m;
	uint8_t *at;

	memcpy(path.dst_ip, msg->dst, sizeof(path.dst_ip));
	karst_path_multicast_mac(&path);
	m = eng_frame_new(lc, p, path.dst_mac, path.ip6 ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4,
		(uint32_t)msg->len, &at);
	if (m == NULL)
		return;
	memcpy(at, msg->bytes, msg->len);
	eng_tx_frame(lc, port, m);
}

/* Sends at most one message for each port in a turn. */
karst_noinline void
eng_member_expire(struct eng_lcore *lc)
{
	struct eng_member_msg msg;
	struct eng_member_src src;
	unsigned int i;

	for (i = 0; i < KARST_ENGINE_MAX_PORTS; i++) {
		struct eng_port *p = &lc->e->port[i];

		if (p->members == NULL || p->home != lc->index ||
			eng_members_due(p->members) > lc->core->now_ns)
			continue;
		source_of(p, &src);
		if (eng_members_next(p->members, &src, lc->core->now_ns, &msg) != 0)
			member_transmit(lc, (uint8_t)i, &msg);
		show_counts(p);
	}
	member_settle_due(lc);
}

/* --- changes --- */

struct set_call {
	uint8_t port;
	const uint8_t (*ips)[16];
	uint32_t n;
};

static int
members_set_on_lcore(struct eng_lcore *lc, void *arg)
{
	const struct set_call *call = arg;
	struct eng_port *p = &lc->e->port[call->port];
	unsigned int i;

	if (p->members == NULL)
		return 0;
	eng_members_set(p->members, call->ips, call->n, lc->core->now_ns);
	member_settle_due(lc);
	/* Send at once, since an engine that ends has no more turns.  But there may be thousands of
	 * groups: the lcore sends the rest in its turns, and if the engine ends, routers will
	 * notice. */
	for (i = 0; i < EXPIRE_AT_ONCE && lc->member_ns <= lc->core->now_ns; i++)
		eng_member_expire(lc);
	return 0;
}

void
eng_member_set(struct karst_engine *e, uint8_t port, const uint8_t (*ips)[16], uint32_t n)
{
	struct set_call call = {.port = port, .ips = ips, .n = n};
	struct eng_port *p = &e->port[port];

	if (p->members != NULL)
		eng_mailbox_call(&e->lcore[p->home], members_set_on_lcore, &call);
}
