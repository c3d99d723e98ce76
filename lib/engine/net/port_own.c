/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Ports whose link the engine manages: it resolves neighbours and answers them (neigh.c), has one
 * gateway for each address family, reports multicast groups (member_port.c), and passes frames that
 * are not RoCE to the kernel if configured (tap.c).
 */
#include "port_kind.h"

#include <time.h>

#include "member_port.h"
#include "tap.h"

#define OWN_NAP_FIRST_NS 50000u
#define OWN_NAP_MOST_NS  2000000u

static bool
own_matches(const struct karst_engine_port_config *cfg)
{
	return true;
}

static const char *
own_fault(const struct karst_engine_port_config *cfg)
{
	if (!rte_eth_dev_is_valid_port(cfg->ethdev))
		return "no such DPDK port";
	if (eng_name_len(cfg->exception_tap) >= IF_NAMESIZE)
		return "the name of an exception tap has up to 15 characters";
	if (cfg->isolate)
		return "isolate leaves ARP to the kernel: netdev has to name its interface";
	return NULL;
}

static int
own_bring_up(struct karst_engine *e, struct eng_port *p, const struct karst_engine_port_config *cfg)
{
	if (cfg->exception_tap != NULL)
		memcpy(p->info.exception_tap, cfg->exception_tap, eng_name_len(cfg->exception_tap));
	return eng_port_device_bring_up(e, p, cfg);
}

static int
own_make_link(struct karst_engine *e, uint8_t port)
{
	struct eng_port *p = &e->port[port];
	int ret = 0;

	if (p->info.exception_tap[0] != '\0')
		ret = eng_tap_create(e, port, p->info.exception_tap, &p->tap);
	if (ret == 0)
		ret = eng_neigh_create(e, &p->neigh);
	if (ret == 0)
		ret = eng_member_create(e, &p->members);
	return ret;
}

static void
own_announce(struct karst_engine *e, uint8_t port)
{
	struct eng_neigh_call call = {.port = port};

	eng_mailbox_call(&e->lcore[e->port[port].home], eng_neigh_announce_on_lcore, &call);
}

/* --- paths --- */

static bool
addr_is_set(const struct karst_engine_addr *a)
{
	static const uint8_t zero[16];

	return memcmp(a->ip, zero, sizeof(zero)) != 0;
}

static const char *
own_next_hop(const struct eng_port *p, const struct karst_engine_addr *own, const uint8_t ip[16],
	struct eng_lookup *l)
{
	const struct karst_engine_addr *gateway =
		karst_engine_ip_is_ip4(ip) ? &p->info.gateway4 : &p->info.gateway6;

	if (eng_on_link(own, ip))
		return NULL;
	if (!addr_is_set(gateway))
		return "it is not on the link of the source address, and there is no gateway";
	memcpy(l->call.ip, gateway->ip, sizeof(l->call.ip));
	return NULL;
}

/* Calls @fn on the home lcore.  -EINVAL: the port was removed meanwhile. */
static int
ask_home(struct karst_engine *e, eng_fn fn, struct eng_neigh_call *call)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	if (call->port < e->nports && e->port[call->port].neigh != NULL)
		ret = eng_mailbox_call(&e->lcore[e->port[call->port].home], fn, call);
	else
		ret = -EINVAL;
	eng_ctl_leave(e);
	return ret;
}

/* Polls the thread's own lcores, or sleeps for a short time. */
static void
own_nap(struct karst_engine *e, uint32_t *nap_ns)
{
	const struct timespec ts = {.tv_nsec = (long)*nap_ns};

	if (eng_poll_mine(e) > 0)
		return;
	nanosleep(&ts, NULL);
	*nap_ns = karst_min_u32(2 * *nap_ns, OWN_NAP_MOST_NS);
}

/* Each query to the home lcore is a control call of its own, so that no other call has to wait
 * during the round trip: between two queries the lock is free. */
static int
own_resolve(struct karst_engine *e, struct eng_lookup *l, const struct eng_patience *patience)
{
	uint32_t nap_ns = OWN_NAP_FIRST_NS;
	int ret;

	l->call.look_only = patience->look_only;
	for (;;) {
		ret = ask_home(e, eng_neigh_use_on_lcore, &l->call);
		if (ret != -EAGAIN)
			break;
		ret = patience->go_on(patience->user);
		if (ret != 0)
			break;
		own_nap(e, &nap_ns);
	}
	memcpy(l->path->dst_mac, l->call.mac, sizeof(l->path->dst_mac));
	return ret;
}

static int
own_list_neigh(
	struct karst_engine *e, uint8_t port, struct karst_engine_neigh *list, unsigned int max)
{
	struct eng_neigh_call call = {.port = port, .list = list, .max = max};

	return ask_home(e, eng_neigh_list_on_lcore, &call);
}

const struct eng_port_ops eng_port_own_ops = {
	.matches = own_matches,
	.fault = own_fault,
	.bring_up = own_bring_up,
	.stop = eng_port_device_stop,
	.link = eng_port_device_link,
	.make_link = own_make_link,
	.announce = own_announce,
	.set_groups = eng_member_set,
	.next_hop = own_next_hop,
	.resolve = own_resolve,
	.list_neigh = own_list_neigh,
};
