/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Addresses of ports: the destinations that a port accepts, and the ends of paths.  The MAC address
 * at which paths begin is kept with the IP addresses.
 *
 * Addresses may change while lcores read them, so there are two tables, and a count of changes
 * whose lowest bit says which one is valid.  A change fills the other table, increments the count,
 * and waits until every lcore has ended its turn; so an lcore reads a table that does not change.
 * A thread that is no lcore and does not hold ctl_lock reads again if the count has changed
 * (copy_addrs()).
 *
 * For programs the place of an address is the index of a GID, which they keep.  So an address keeps
 * its place until it is removed, and its place is empty (::) until a new address takes it.
 */
#include "port_kind.h"

#include "tap.h"

const char *
eng_port_addrs_fault(uint32_t n, const struct karst_engine_addr *addrs)
{
	uint32_t i;

	if (n < 1 || n > KARST_ENGINE_MAX_ADDRS || addrs == NULL)
		return "a port has 1 to 16 IP addresses";
	for (i = 0; i < n; i++) {
		if (karst_engine_ip_is_none(addrs[i].ip))
			return "no port can have the address ::";
		if (addrs[i].prefix > (karst_engine_ip_is_ip4(addrs[i].ip) ? 32 : 128))
			return "the prefix of an address has at most 32 bits for IPv4, 128 for "
			       "IPv6";
	}
	return NULL;
}

/* With ctl_lock held. */
void
eng_port_store_addrs(
	struct eng_port *p, const uint8_t mac[6], uint32_t n, const struct karst_engine_addr *addrs)
{
	uint32_t seq = atomic_load_explicit(&p->addr_seq, memory_order_relaxed) + 1, i, ip4;
	struct eng_addrs *to = &p->addrs[seq & 1];
	uint64_t first = ENG_NO_IP4;

	to->n = n;
	memcpy(to->mac, mac, sizeof(to->mac));
	memcpy(to->addr, addrs, n * sizeof(addrs[0]));
	for (i = n; i-- > 0 && p->info.vlan == 0;) {
		if (karst_engine_ip_is_ip4(addrs[i].ip)) {
			memcpy(&ip4, addrs[i].ip + 12, sizeof(ip4));
			first = ip4;
		}
	}
	/* release, pairs with the acquire in eng_port_addrs(): the table is written */
	atomic_store_explicit(&p->addr_seq, seq, memory_order_release);
	/* relaxed: a frame that is compared with the old one might as well have arrived a moment
	 * earlier */
	atomic_store_explicit(&p->ip4, first, memory_order_relaxed);
}

static void
copy_addrs(const struct eng_port *p, struct karst_engine_port_info *info)
{
	uint32_t seq;

	do {
		const struct eng_addrs *a;

		/* acquire, pairs with the release in eng_port_store_addrs() */
		seq = atomic_load_explicit(&p->addr_seq, memory_order_acquire);
		a = &p->addrs[seq & 1];
		info->num_addrs = a->n;
		memcpy(info->addrs, a->addr, sizeof(info->addrs));
		memcpy(info->mac, a->mac, sizeof(info->mac));
		/* The copy is complete before the count is read again. */
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load_explicit(&p->addr_seq, memory_order_relaxed) != seq);
}

int
karst_engine_port_info(
	const struct karst_engine *e, uint8_t port, struct karst_engine_port_info *info)
{
	if (!eng_port_present(e, port))
		return -EINVAL;
	*info = e->port[port].info;
	copy_addrs(&e->port[port], info);
	if (e->port[port].tap != NULL)
		info->exception_lost = eng_tap_lost(e->port[port].tap);
	return 0;
}

int
karst_engine_path_init(const struct karst_engine *e, uint8_t port, uint32_t addr,
	const uint8_t dst_mac[6], const uint8_t dst_ip[16], struct karst_path *path)
{
	struct karst_engine_port_info info;
	const uint8_t *own;

	if (port >= ENG_TXQS || karst_engine_port_info(e, eng_port_base(port), &info) != 0 ||
		addr >= info.num_addrs || karst_engine_ip_is_none(info.addrs[addr].ip))
		return -EINVAL;
	own = info.addrs[addr].ip;
	if (karst_engine_ip_is_ip4(dst_ip) != karst_engine_ip_is_ip4(own))
		return -EINVAL;
	memset(path, 0, sizeof(*path));
	memcpy(path->src_mac, info.mac, sizeof(path->src_mac));
	memcpy(path->dst_mac, dst_mac, sizeof(path->dst_mac));
	memcpy(path->src_ip, own, sizeof(path->src_ip));
	memcpy(path->dst_ip, dst_ip, sizeof(path->dst_ip));
	path->ip6 = !karst_engine_ip_is_ip4(dst_ip);
	path->has_vlan = info.vlan != 0;
	path->vlan_tci = info.vlan;
	path->port = port;
	if (karst_engine_addr_in(info.addrs, info.num_addrs, dst_ip) != NULL)
		path->port = karst_engine_port_loop(e, port);
	return 0;
}

int
eng_port_check_path(const struct karst_engine *e, uint32_t lcore, const struct karst_path *path)
{
	const struct eng_port *port = &e->port[eng_port_base(path->port)];
	struct karst_engine_addr src;

	memcpy(src.ip, path->src_ip, sizeof(src.ip));
	if (path->port >= ENG_TXQS || !eng_port_present(e, eng_port_base(path->port))) {
		karst_log(KARST_LOG_ERR, "%s: a path names port %u, which does not exist", e->name,
			path->port);
		return -EINVAL;
	}
	if (lcore < e->nlcores && (port->info.lcore_mask >> lcore & 1) == 0) {
		karst_log(KARST_LOG_ERR, "%s: lcore %u does not serve port %u", e->name, lcore,
			path->port);
		return -EINVAL;
	}
	if (!path->ip6)
		src = karst_engine_addr_ip4(karst_get_be32(path->src_ip + 12));
	if (!eng_port_has_addr(port, src.ip)) {
		karst_log(KARST_LOG_ERR, "%s: the source address of a path is not port %u's",
			e->name, path->port);
		return -EINVAL;
	}
	return 0;
}

/* --- changes --- */

static void
port_announce(struct karst_engine *e, uint8_t port)
{
	struct eng_port *p = &e->port[port];

	if (p->ops->announce != NULL)
		p->ops->announce(e, port);
}

/* Fills @to with these addresses, each at its place.  @return how many places. */
static uint32_t
place_addrs(const struct eng_addrs *is, uint32_t n, const struct karst_engine_addr *addrs,
	struct karst_engine_addr to[KARST_ENGINE_MAX_ADDRS])
{
	const struct karst_engine_addr *stays;
	uint32_t i, at, places = 0;

	memset(to, 0, KARST_ENGINE_MAX_ADDRS * sizeof(to[0]));
	for (i = 0; i < is->n; i++) {
		stays = karst_engine_addr_in(addrs, n, is->addr[i].ip);
		if (stays == NULL)
			continue;
		to[i] = *stays;
		places = i + 1;
	}
	for (i = 0; i < n; i++) {
		if (karst_engine_addr_in(to, places, addrs[i].ip) != NULL)
			continue;
		for (at = 0; !karst_engine_ip_is_none(to[at].ip); at++)
			;
		to[at] = addrs[i];
		places = at + 1 > places ? at + 1 : places;
	}
	return places;
}

/* Whether packets of a path from this address may leave @port.  A port that is removed keeps its
 * addresses until another one gets its number; what would leave it is dropped. */
static bool
may_leave_from(const void *user, uint8_t port, const uint8_t src_ip[16])
{
	const struct karst_engine *e = user;

	return eng_port_has_addr(&e->port[eng_port_base(port)], src_ip);
}

void
eng_port_check_handles(const struct karst_engine *e)
{
	karst_ah_suspend(e->ahs, may_leave_from, e);
}

void
eng_port_set_addrs(
	struct karst_engine *e, uint8_t port, uint32_t n, const struct karst_engine_addr *addrs)
{
	struct karst_engine_addr placed[KARST_ENGINE_MAX_ADDRS];
	struct eng_port *p = &e->port[port];
	const struct eng_addrs *is = eng_port_addrs(p);

	n = place_addrs(is, n, addrs, placed);
	eng_port_store_addrs(p, is->mac, n, placed);
	eng_port_check_handles(e);
	eng_ctl_quiesce(e);
	port_announce(e, port);
}

struct port_mac_call {
	struct eng_port *p;
	const uint8_t *mac;
};

static int
port_mac_on_lcore(struct eng_lcore *lc, void *arg)
{
	const struct port_mac_call *call = arg;

	(void)lc;
	memcpy(call->p->info.mac, call->mac, sizeof(call->p->info.mac));
	return 0;
}

void
eng_port_set_mac(struct karst_engine *e, uint8_t port, const uint8_t mac[6])
{
	struct eng_port *p = &e->port[port];
	const struct eng_addrs *is = eng_port_addrs(p);
	struct port_mac_call call = {.p = p, .mac = mac};

	eng_mailbox_call(&e->lcore[p->home], port_mac_on_lcore, &call);
	eng_port_store_addrs(p, mac, is->n, is->addr);
	eng_ctl_quiesce(e);
	port_announce(e, port);
}
