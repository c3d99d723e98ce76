/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Resolves an address to a path, on control threads.  Own addresses and groups need no request; for
 * others the kind of the port resolves the next hop (port_kind.h), while no lock is held.
 */
#include "port_kind.h"

#include <arpa/inet.h>

#define TIMEOUT_MS    3000u
#define ALIVE_EACH_NS 10000000u /* interval of the calls of alive() */

const char *
eng_ip_text(const uint8_t ip[16], char text[ENG_IP_TEXT])
{
	if (karst_engine_ip_is_ip4(ip))
		return inet_ntop(AF_INET, ip + 12, text, ENG_IP_TEXT);
	return inet_ntop(AF_INET6, ip, text, ENG_IP_TEXT);
}

/* --- what kind of address --- */

/* Whether another host, on the link or beyond, can have this address. */
static bool
is_host(const uint8_t ip[16])
{
	static const uint8_t zero[15];

	if (karst_engine_ip_is_ip4(ip))
		return ip[12] != 0 && ip[12] != 127 && ip[12] < 224;
	return ip[0] != 0xff && (memcmp(ip, zero, sizeof(zero)) != 0 || ip[15] > 1);
}

bool
eng_on_link(const struct karst_engine_addr *own, const uint8_t ip[16])
{
	return own->prefix == 0 || eng_ip_is_link_local6(ip) || karst_engine_addr_covers(own, ip);
}

/* --- waiting --- */

struct waiter {
	struct karst_engine *e;
	const struct karst_engine_resolve_opts *opts;
	uint64_t until_ns;
	uint64_t asked_ns; /* last call of alive() */
};

/* @return 0, or the reason to end: -ETIMEDOUT, -EAGAIN or -ECANCELED. */
static int
waiter_check(void *arg)
{
	struct waiter *w = arg;
	uint64_t now = engine_now(w->e);

	if (w->opts->no_wait)
		return -EAGAIN;
	if (now >= w->until_ns)
		return -ETIMEDOUT;
	if (w->opts->alive == NULL || now - w->asked_ns < ALIVE_EACH_NS)
		return 0;
	w->asked_ns = now;
	return w->opts->alive(w->opts->user) ? 0 : -ECANCELED;
}

/* --- one lookup --- */

static int
no_route(const struct karst_engine *e, uint8_t port, const uint8_t ip[16],
	const struct eng_lookup *l, const char *why)
{
	char text[ENG_IP_TEXT];

	if (l->quiet)
		return -EHOSTUNREACH;
	karst_log(KARST_LOG_ERR, "%s: port %u: no path to %s: %s", e->name, port,
		eng_ip_text(ip, text), why);
	return -EHOSTUNREACH;
}

/* An own address: frames go to the loopback port. */
static int
resolve_loop(const struct karst_engine *e, uint8_t port, struct karst_path *path)
{
	memcpy(path->dst_mac, path->src_mac, sizeof(path->dst_mac));
	path->port = karst_engine_port_loop(e, port);
	return 0;
}

/* Whether @ip is an address of any port. */
static bool
is_elsewhere(const struct karst_engine *e, const uint8_t ip[16])
{
	uint32_t i;

	for (i = 0; i < e->nports; i++)
		if (eng_port_present(e, i) && eng_port_has_addr(&e->port[i], ip))
			return true;
	return false;
}

/* Whether the kernel resolves @ip for the port, if it is not an address of one link only. */
static bool
is_of_kernel(const struct eng_port *p, const uint8_t ip[16])
{
	return p->info.netdev[0] != '\0' && !eng_ip_is_link_local6(ip);
}

/* The first step, with ctl_lock held. */
static int
resolve_plan(struct karst_engine *e, uint8_t port, uint32_t addr, const uint8_t ip[16],
	struct eng_lookup *l)
{
	static const uint8_t no_mac[6];
	const struct karst_engine_addr *own;
	const struct eng_port *p = &e->port[port];
	const char *fault;
	int ret;

	ret = karst_engine_path_init(e, port, addr, no_mac, ip, l->path);
	if (ret != 0)
		return ret;
	own = &eng_port_addrs(p)->addr[addr];
	l->call.port = port;
	memcpy(l->call.src, own->ip, sizeof(l->call.src));
	memcpy(l->call.ip, ip, sizeof(l->call.ip));
	l->done = true;
	if (eng_port_has_addr(p, ip))
		return resolve_loop(e, port, l->path);
	if (eng_ip_is_group(ip)) {
		karst_path_multicast_mac(l->path);
		return 0;
	}
	if (!is_host(ip))
		return no_route(e, port, ip, l, "no host can have this address");
	/* An address of another port, which is not on this port's link; or the kernel has it, and
	 * so no path over a wire leads there. */
	if ((p->ops->next_hop == NULL || !eng_on_link(own, ip) || is_of_kernel(p, ip)) &&
		is_elsewhere(e, ip))
		return resolve_loop(e, port, l->path);
	if (p->ops->next_hop == NULL)
		return no_route(e, port, ip, l, "the port leads nowhere but back");
	fault = p->ops->next_hop(p, own, ip, l);
	if (fault != NULL)
		return no_route(e, port, ip, l, fault);
	l->ops = p->ops;
	l->done = false;
	return 0;
}

int
karst_engine_resolve(struct karst_engine *e, uint8_t port, uint32_t addr, const uint8_t dst_ip[16],
	const struct karst_engine_resolve_opts *opts, struct karst_path *path)
{
	static const struct karst_engine_resolve_opts defaults;
	struct karst_path found;
	struct waiter w = {.e = e, .opts = opts != NULL ? opts : &defaults};
	struct eng_lookup l = {.path = &found, .quiet = w.opts->quiet};
	const struct eng_patience patience = {
		.go_on = waiter_check, .user = &w, .look_only = w.opts->look_only};
	uint32_t ms = w.opts->timeout_ms != 0 ? w.opts->timeout_ms : TIMEOUT_MS;
	char dst[ENG_IP_TEXT], hop[ENG_IP_TEXT];
	int ret;

	ret = eng_ctl_enter(e);
	if (ret != 0)
		return ret;
	ret = resolve_plan(e, port, addr, dst_ip, &l);
	eng_ctl_leave(e);
	w.asked_ns = engine_now(e);
	w.until_ns = w.asked_ns + ms * UINT64_C(1000000);
	if (ret == 0 && !l.done)
		ret = l.ops->resolve(e, &l, &patience);
	if (ret == -ETIMEDOUT && !l.quiet)
		karst_log(KARST_LOG_ERR,
			"%s: port %u: no answer from %s, on the path to %s, in %u ms", e->name,
			port, eng_ip_text(l.call.ip, hop), eng_ip_text(dst_ip, dst), ms);
	if (ret == -ETIMEDOUT)
		ret = -EHOSTUNREACH;
	if (ret == 0)
		*path = found;
	return ret;
}

static int
no_patience(void *user)
{
	return -EAGAIN;
}

/* The index of own address @src_ip, with ctl_lock held. */
static int
index_of(const struct karst_engine *e, uint8_t port, const uint8_t src_ip[16], uint32_t *index)
{
	const struct eng_addrs *a;

	if (!eng_port_present(e, port))
		return -EINVAL;
	a = eng_port_addrs(&e->port[port]);
	for (*index = 0; *index < a->n; ++*index)
		if (memcmp(a->addr[*index].ip, src_ip, sizeof(a->addr[0].ip)) == 0)
			return 0;
	return -EINVAL;
}

int
eng_resolve_try(struct karst_engine *e, uint8_t port, const uint8_t src_ip[16],
	const uint8_t dst_ip[16], struct karst_path *path)
{
	static const struct eng_patience none = {.go_on = no_patience};
	struct eng_lookup l = {.path = path, .quiet = true};
	uint32_t index;
	int ret;

	ret = eng_ctl_enter(e);
	if (ret != 0)
		return ret;
	ret = index_of(e, port, src_ip, &index);
	if (ret == 0)
		ret = resolve_plan(e, port, index, dst_ip, &l);
	eng_ctl_leave(e);
	if (ret != 0 || l.done)
		return ret;
	return l.ops->resolve(e, &l, &none);
}

int
karst_engine_neigh_list(
	struct karst_engine *e, uint8_t port, struct karst_engine_neigh *list, unsigned int max)
{
	const struct eng_port_ops *ops = NULL;
	unsigned int i;
	int ret;

	ret = eng_ctl_enter(e);
	if (ret != 0)
		return ret;
	if (eng_port_present(e, port))
		ops = e->port[port].ops;
	else
		ret = -EINVAL;
	eng_ctl_leave(e);
	if (ops != NULL && ops->list_neigh != NULL)
		ret = ops->list_neigh(e, port, list, max);
	for (i = 0; ret > 0 && i < karst_min_u32((uint32_t)ret, max); i++)
		list[i].port = port;
	return ret;
}
