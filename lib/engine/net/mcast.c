/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Membership of multicast groups; group.c delivers frames to the members.
 *
 * The list of members, each a QP and a group, is protected by ctl_lock.  Each change makes a table
 * for the lcores from it: the groups of each port in order, with the members' QP numbers and the
 * set of lcores that they are on.  As with the addresses of ports there are two such tables, and a
 * count of changes whose lowest bit says which one is valid.  A change fills the other table,
 * increments the count, and waits until every lcore has ended its turn.  Only the first attachment
 * allocates memory, so leaving cannot fail.
 *
 * Devices receive all groups from the start, if they can.  Of the others, those that filter by a
 * list get the list of groups, and the rest are promiscuous as long as there are any groups.
 * Routers and switches learn about groups by IGMP and MLD (member_port.h).
 */
#include "mcast.h"

#include <stdlib.h>

#include <rte_ether.h>

#include "group.h"
#include "member_port.h"
#include "port_kind.h"

/* More addresses than any device can filter. */
#define MACS_MAX 128u
#define NO_PORT  UINT8_MAX

struct member {
	uint8_t port; /* NO_PORT: its QP has no port yet, or no valid one */
	uint8_t ip[16];
	struct eng_qp *q;
};

struct eng_mcast {
	uint32_t n;
	struct member *member; /* [max_mcasts], in the order of groups and members */
	struct member *moving; /* [max_mcasts], used when a QP gets another port */
};

/* --- devices --- */

/* Lists the Ethernet addresses of a port's groups.  @return how many there are; at most @max are
 * written. */
static uint32_t
macs_of(const struct eng_group_table *t, uint8_t port, struct rte_ether_addr *macs, uint32_t max)
{
	uint32_t i, n = 0;

	for (i = 0; i < t->ngroups; i++) {
		struct karst_path path = {.ip6 = !karst_engine_ip_is_ip4(t->group[i].ip)};

		if (t->group[i].port != port)
			continue;
		memcpy(path.dst_ip, t->group[i].ip, sizeof(path.dst_ip));
		karst_path_multicast_mac(&path);
		if (n < max)
			memcpy(macs[n].addr_bytes, path.dst_mac, sizeof(path.dst_mac));
		n++;
	}
	return n;
}

/* Reports the groups to routers and switches. */
static void
mcast_announce(struct karst_engine *e, uint8_t port, const struct eng_group_table *t, uint32_t n)
{
	uint8_t(*ips)[16] = malloc(n * sizeof(*ips) + 1);
	uint32_t i, k = 0;

	if (ips == NULL) {
		karst_log(KARST_LOG_WARNING, "%s: no memory for reports of multicast groups",
			e->name);
		return;
	}
	for (i = 0; i < t->ngroups; i++)
		if (t->group[i].port == port)
			memcpy(ips[k++], t->group[i].ip, sizeof(*ips));
	e->port[port].ops->set_groups(e, port, (const uint8_t(*)[16])ips, k);
	free(ips);
}

static void
mcast_filter(struct karst_engine *e, uint8_t port, const struct eng_group_table *t)
{
	struct rte_ether_addr macs[MACS_MAX];
	struct eng_port *p = &e->port[port];
	uint32_t n = macs_of(t, port, macs, MACS_MAX);

	if (p->ops->set_groups != NULL && (n != 0 || p->info.mcast_groups != 0))
		mcast_announce(e, port, t, n);
	__atomic_store_n(&p->info.mcast_groups, n, __ATOMIC_RELAXED);
	if (p->all_groups)
		return;
	if (n <= MACS_MAX && rte_eth_dev_set_mc_addr_list(p->info.ethdev, macs, n) == 0) {
		if (p->promisc)
			p->promisc = rte_eth_promiscuous_disable(p->info.ethdev) != 0;
		return;
	}
	if (n != 0 && rte_eth_promiscuous_get(p->info.ethdev) != 1) {
		p->promisc = rte_eth_promiscuous_enable(p->info.ethdev) == 0;
		if (!p->promisc)
			karst_log(KARST_LOG_NOTICE,
				"%s: the multicast filter of port %u (%s) cannot be set: frames "
				"to groups may not be received",
				e->name, port, p->name);
	} else if (n == 0 && p->promisc) {
		p->promisc = rte_eth_promiscuous_disable(p->info.ethdev) != 0;
	}
}

void
eng_mcast_port_added(struct karst_engine *e, uint8_t port)
{
	if (e->mcast != NULL)
		mcast_filter(e, port, eng_group_table_of(e));
}

/* --- changes, with ctl_lock held --- */

static struct eng_mcast *
mcast_create(struct karst_engine *e)
{
	struct eng_mcast *mc = eng_arena_alloc(&e->objects, sizeof(*mc));
	uint32_t i, max = e->cfg.max_mcasts;

	if (mc == NULL)
		return NULL;
	mc->member = eng_arena_alloc(&e->objects, max * sizeof(mc->member[0]));
	mc->moving = eng_arena_alloc(&e->objects, max * sizeof(mc->moving[0]));
	for (i = 0; i < 2; i++) {
		e->group_table[i].group =
			eng_arena_alloc(&e->objects, max * sizeof(struct eng_group));
		e->group_table[i].qpn = eng_arena_alloc(&e->objects, max * sizeof(uint32_t));
	}
	if (mc->member != NULL && mc->moving != NULL && e->group_table[0].group != NULL &&
		e->group_table[0].qpn != NULL && e->group_table[1].group != NULL &&
		e->group_table[1].qpn != NULL)
		return mc;
	for (i = 0; i < 2; i++) {
		eng_arena_free(
			&e->objects, e->group_table[i].group, max * sizeof(struct eng_group));
		eng_arena_free(&e->objects, e->group_table[i].qpn, max * sizeof(uint32_t));
	}
	eng_arena_free(&e->objects, mc->moving, max * sizeof(mc->moving[0]));
	eng_arena_free(&e->objects, mc->member, max * sizeof(mc->member[0]));
	eng_arena_free(&e->objects, mc, sizeof(*mc));
	return NULL;
}

static void
mcast_fill(const struct eng_mcast *mc, struct eng_group_table *t)
{
	struct eng_group *g = NULL;
	uint32_t i;

	t->ngroups = 0;
	/* members without a port come last */
	for (i = 0; i < mc->n && mc->member[i].port != NO_PORT; i++) {
		const struct member *m = &mc->member[i];

		if (g == NULL || eng_group_compare(g->port, g->ip, m->port, m->ip) != 0) {
			g = &t->group[t->ngroups++];
			*g = (struct eng_group){.port = m->port, .first = i};
			memcpy(g->ip, m->ip, sizeof(g->ip));
		}
		t->qpn[i] = m->q->pub.num;
		g->n++;
		g->lcores |= 1ull << m->q->pub.lcore;
	}
}

/* Publishes a change to the lcores and the devices. */
static void
mcast_publish(struct karst_engine *e)
{
	uint32_t seq = atomic_load_explicit(&e->mcast_seq, memory_order_relaxed) + 1;
	struct eng_group_table *t;
	uint8_t i;

	/* 0 is for engines that have never had any groups */
	seq += seq == 0 ? 2 : 0;
	t = &e->group_table[seq & 1];
	mcast_fill(e->mcast, t);
	/* release, pairs with the acquire in eng_group_table_of() */
	atomic_store_explicit(&e->mcast_seq, seq, memory_order_release);
	eng_ctl_quiesce(e);
	for (i = 0; i < KARST_ENGINE_MAX_PORTS; i++)
		if (eng_port_present(e, i))
			mcast_filter(e, i, t);
}

/* Order of members; those of one group are in the order of their QPs' memory addresses. */
static int
member_compare(const struct member *a, const struct member *b)
{
	int d = eng_group_compare(a->port, a->ip, b->port, b->ip);

	return d != 0 ? d
		      : ((uintptr_t)a->q > (uintptr_t)b->q) - ((uintptr_t)a->q < (uintptr_t)b->q);
}

/* Index of a member, or where it would be inserted. */
static uint32_t
place_of(const struct eng_mcast *mc, const struct member *m, bool *there)
{
	uint32_t lo = 0, hi = mc->n;

	*there = false;
	while (lo < hi && !*there) {
		uint32_t mid = (lo + hi) / 2;
		int d = member_compare(m, &mc->member[mid]);

		if (d == 0) {
			*there = true;
			lo = mid;
		} else if (d < 0) {
			hi = mid;
		} else {
			lo = mid + 1;
		}
	}
	return lo;
}

static void
member_insert(struct eng_mcast *mc, const struct member *m)
{
	bool there;
	uint32_t i = place_of(mc, m, &there);

	memmove(&mc->member[i + 1], &mc->member[i], (mc->n - i) * sizeof(*m));
	mc->member[i] = *m;
	mc->n++;
}

/* Removes the member at @i. */
static void
member_remove(struct eng_mcast *mc, uint32_t i)
{
	mc->n--;
	memmove(&mc->member[i], &mc->member[i + 1], (mc->n - i) * sizeof(mc->member[0]));
}

/* Converts the port number of a QP, from 1; 0: none yet. */
static uint8_t
port_of(uint8_t port_num)
{
	return port_num >= 1 && port_num <= KARST_ENGINE_MAX_PORTS ? (uint8_t)(port_num - 1)
								   : NO_PORT;
}

static struct member
member_of(struct eng_qp *q, const uint8_t ip[16])
{
	struct member m = {.port = port_of(q->port_num), .q = q};

	memcpy(m.ip, ip, sizeof(m.ip));
	return m;
}

/* Whether a group has room for one more member of this user, whatever the ports of its members are
 * or will be. */
static bool
has_room(const struct eng_mcast *mc, const uint8_t ip[16], struct eng_share *user)
{
	uint32_t i, n = 0, mine = 0;

	for (i = 0; i < mc->n; i++) {
		if (memcmp(mc->member[i].ip, ip, 16) != 0)
			continue;
		n++;
		mine += mc->member[i].q->owner->rings.share == user;
	}
	return eng_share_admits_one(user, KARST_ENGINE_GROUP_QPS, n, mine);
}

static int
mcast_attach(struct karst_engine *e, struct eng_qp *q, const uint8_t ip[16])
{
	struct member m = member_of(q, ip);
	bool there;

	if (karst_qp_type(q->qp) != KARST_QPT_UD || !eng_ip_is_group(ip))
		return -EINVAL;
	if (e->mcast == NULL)
		e->mcast = mcast_create(e);
	if (e->mcast == NULL)
		return -ENOMEM;
	place_of(e->mcast, &m, &there);
	if (there)
		return 0;
	if (q->owner->nmcasts >= q->owner->max_mcasts)
		return -EDQUOT;
	if (e->mcast->n == e->cfg.max_mcasts)
		return -ENOSPC;
	if (!has_room(e->mcast, ip, q->owner->rings.share))
		return -EUSERS;
	if (!eng_share_take(q->owner->rings.share, ENG_SHARE_MCASTS, 1))
		return -ENOSPC;
	member_insert(e->mcast, &m);
	q->nmcasts++;
	q->owner->nmcasts++;
	mcast_publish(e);
	return 0;
}

static void
left_group(struct eng_qp *q)
{
	q->nmcasts--;
	q->owner->nmcasts--;
	eng_share_give(q->owner->rings.share, ENG_SHARE_MCASTS, 1);
}

static int
mcast_detach(struct karst_engine *e, struct eng_qp *q, const uint8_t ip[16])
{
	struct member m = member_of(q, ip);
	bool there = false;
	uint32_t i = e->mcast != NULL ? place_of(e->mcast, &m, &there) : 0;

	if (!there)
		return -EINVAL;
	member_remove(e->mcast, i);
	left_group(q);
	mcast_publish(e);
	return 0;
}

int
karst_engine_qp_attach_mcast(
	struct karst_engine *e, struct karst_engine_qp *qp, const uint8_t group[16])
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = mcast_attach(e, karst_container_of(qp, struct eng_qp, pub), group);
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_qp_detach_mcast(
	struct karst_engine *e, struct karst_engine_qp *qp, const uint8_t group[16])
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = mcast_detach(e, karst_container_of(qp, struct eng_qp, pub), group);
	eng_ctl_leave(e);
	return ret;
}

/* Moves all memberships of @q to port @is.  They may be as many as max_mcasts, and ctl_lock is
 * held: so they are removed in one pass and inserted in another. */
static void
members_move(struct eng_mcast *mc, const struct eng_qp *q, uint8_t is)
{
	uint32_t i, kept = 0, moving = 0;

	for (i = 0; i < mc->n; i++) {
		if (mc->member[i].q == q) {
			mc->moving[moving] = mc->member[i];
			mc->moving[moving++].port = is;
		} else {
			mc->member[kept++] = mc->member[i];
		}
	}
	/* merge two sorted lists, from the end, where there is room */
	for (i = mc->n; moving > 0; i--)
		mc->member[i - 1] = kept > 0 &&
				member_compare(&mc->member[kept - 1], &mc->moving[moving - 1]) > 0
			? mc->member[--kept]
			: mc->moving[--moving];
}

void
eng_mcast_moved(struct karst_engine *e, struct eng_qp *q, uint8_t port_num)
{
	uint8_t was = port_of(q->port_num), is = port_of(port_num);

	q->port_num = port_num;
	if (was == is || q->nmcasts == 0)
		return;
	members_move(e->mcast, q, is);
	mcast_publish(e);
}

static bool
is_one_of(const struct eng_qp *q, struct karst_engine_qp *const *qps, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && &q->pub != qps[i]; i++)
		;
	return i < n;
}

void
eng_mcast_forget(struct karst_engine *e, struct karst_engine_qp *const *qps, uint32_t n)
{
	struct eng_mcast *mc = e->mcast;
	uint32_t i, kept = 0, leaving = 0;

	for (i = 0; i < n; i++)
		leaving += karst_container_of(qps[i], struct eng_qp, pub)->nmcasts;
	if (leaving == 0)
		return;
	for (i = 0; i < mc->n; i++) {
		if (is_one_of(mc->member[i].q, qps, n))
			left_group(mc->member[i].q);
		else
			mc->member[kept++] = mc->member[i];
	}
	mc->n = kept;
	mcast_publish(e);
}
