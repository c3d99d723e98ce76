/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Checks values of karst.conf that depend on each other. */
#include "conf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "port_kind.h"

/* For users other than root and the daemon's own user. */
#define DEFAULT_SHARE 75u
#define DEFAULT_CALLS 20000u

struct check {
	struct kd_conf *c;
	const char *at;
	struct kd_faults *f;
};

/* "karst.conf: [port wire] KEY" */
__attribute__((format(printf, 4, 5))) static void
port_fault(
	const struct check *k, const struct kd_conf_port *p, const char *key, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	kd_fault(k->f, "%s: [port %s] %s: %s", k->at, p->name, key, text);
}

static const char *
show_ip(const uint8_t ip[16], char *to, size_t len)
{
	struct karst_engine_addr a;

	memcpy(a.ip, ip, sizeof(a.ip));
	if (karst_engine_addr_is_ip4(&a))
		return inet_ntop(AF_INET, ip + 12, to, (socklen_t)len);
	return inet_ntop(AF_INET6, ip, to, (socklen_t)len);
}

static bool
is_link_local(const struct karst_engine_addr *a)
{
	return a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80;
}

static void
check_gateway(const struct check *k, const struct kd_conf_port *p, const char *key,
	const struct kd_ip *gw)
{
	struct karst_engine_addr ll;
	char text[INET6_ADDRSTRLEN];
	uint32_t i;

	if (!gw->set)
		return;
	if (p->kind->unused.gateway != NULL) {
		port_fault(k, p, key, "%s; allowed: none", p->kind->unused.gateway);
		return;
	}
	for (i = 0; i < p->addresses.n; i++)
		if (karst_engine_addr_covers(&p->addresses.addr[i], gw->ip))
			return;
	memcpy(ll.ip, gw->ip, sizeof(ll.ip));
	if (p->link_local && is_link_local(&ll))
		return;
	port_fault(k, p, key, "%s is in no network of the port's addresses; allowed: one that is",
		show_ip(gw->ip, text, sizeof(text)));
}

/* The files become arguments of a device, in which some characters have a special meaning. */
static void
check_impair(const struct check *k, const struct kd_conf_port *p)
{
	static const char special[] = ",[]\"'";

	if (p->impair[0] != '\0' && p->kind == &kd_port_loopback)
		port_fault(k, p, "impair", "a loopback port has no device; allowed: none");
	if (p->impair_log[0] != '\0' && p->impair[0] == '\0')
		port_fault(k, p, "impair_log", "nothing is impaired; allowed: with impair");
	if (strpbrk(p->impair, special) != NULL)
		port_fault(k, p, "impair", "allowed: a path without any of %s", special);
	if (strpbrk(p->impair_log, special) != NULL)
		port_fault(k, p, "impair_log", "allowed: a path without any of %s", special);
}

/* Reports keys that have no use with this kind of device, because the user expects an effect. */
static void
check_kind(const struct check *k, const struct kd_conf_port *p)
{
	const struct kd_port_unused *unused = &p->kind->unused;

	if (!p->kind->has_drivers && p->driver != KD_DRIVER_AUTO)
		port_fault(k, p, "driver", "\"%s\" is no kernel interface; allowed: only with one",
			p->device);
	if (unused->exception_tap != NULL && p->exception_tap[0] != '\0')
		port_fault(k, p, "exception_tap",
			"%s; allowed: with a PCI device or a virtual device",
			unused->exception_tap);
	if (unused->vlan != NULL && p->vlan != 0)
		port_fault(k, p, "vlan", "%s; allowed: 0", unused->vlan);
	if (unused->mac != NULL && p->mac.set)
		port_fault(k, p, "mac", "%s; allowed: none", unused->mac);
	if (p->isolate && !p->kind->can_isolate)
		port_fault(k, p, "isolate", "allowed: with a PCI device only");
	check_impair(k, p);
}

static void
check_addresses(const struct check *k, const struct kd_conf_port *p)
{
	uint32_t n = p->addresses.n + (p->link_local ? 1 : 0), i, j, o;
	char text[INET6_ADDRSTRLEN];

	if (n == 0 && !p->kind->has_addresses)
		port_fault(k, p, "addresses",
			"none is given; allowed: 1 to %u, or link_local = yes", KD_MAX_ADDRS);
	if (n > KD_MAX_ADDRS)
		port_fault(k, p, "addresses", "%u with the link-local one; allowed: up to %u", n,
			KD_MAX_ADDRS);
	for (i = 0; i < p->addresses.n; i++) {
		const struct karst_engine_addr *a = &p->addresses.addr[i];

		for (o = 0; &k->c->port[o] != p && !is_link_local(a); o++)
			for (j = 0; j < k->c->port[o].addresses.n; j++)
				if (memcmp(a->ip, k->c->port[o].addresses.addr[j].ip, 16) == 0)
					port_fault(k, p, "addresses",
						"port \"%s\" has %s already; allowed: each once",
						k->c->port[o].name,
						show_ip(a->ip, text, sizeof(text)));
	}
}

static void
check_port_lcores(const struct check *k, const struct kd_conf_port *p)
{
	const struct kd_cpus *all = &k->c->engine.lcores;
	uint32_t i, j;

	if (p->lcores.n != 0 && all->n == 0) {
		port_fault(k, p, "lcores",
			"[engine] lcores is auto; allowed: auto, or CPUs named there");
		return;
	}
	for (i = 0; i < p->lcores.n; i++) {
		for (j = 0; j < all->n && all->cpu[j] != p->lcores.cpu[i]; j++)
			;
		if (j == all->n)
			port_fault(k, p, "lcores",
				"CPU %u is not in [engine] lcores; allowed: those there",
				p->lcores.cpu[i]);
	}
}

static void
check_device(const struct check *k, struct kd_conf_port *p)
{
	char forms[128];
	uint32_t o;

	if (p->device[0] == '\0') {
		kd_port_kind_forms(forms, sizeof(forms));
		port_fault(k, p, "device", "not given; allowed: %s", forms);
		return;
	}
	p->kind = kd_port_kind_of(p->device);
	for (o = 0; &k->c->port[o] != p && p->kind != NULL && !p->kind->many; o++)
		if (strcmp(k->c->port[o].device, p->device) == 0)
			port_fault(k, p, "device", "port \"%s\" has %s already; allowed: each once",
				k->c->port[o].name, p->device);
}

static void
check_cpus(const struct check *k)
{
	const struct kd_cpus *cpus = &k->c->engine.lcores;
	cpu_set_t set;
	uint32_t i;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return;
	for (i = 0; i < cpus->n; i++)
		if (!CPU_ISSET(cpus->cpu[i], &set))
			kd_fault(k->f,
				"%s: [engine] lcores: the daemon may not run on CPU %u; "
				"allowed: CPUs of this machine and of its affinity mask",
				k->at, cpus->cpu[i]);
}

int
kd_conf_finish(struct kd_conf *c, const char *at, struct kd_faults *f)
{
	const struct check k = {.c = c, .at = at, .f = f};
	uint32_t i, before = f->n;

	if (c->nports == 0)
		kd_conf_only_loopback(c);
	check_cpus(&k);
	for (i = 0; i < c->nports; i++) {
		struct kd_conf_port *p = &c->port[i];

		check_device(&k, p);
		if (p->kind == NULL)
			continue;
		if (p->kind->defaults != NULL)
			p->kind->defaults(p);
		check_kind(&k, p);
		check_addresses(&k, p);
		check_gateway(&k, p, "gateway4", &p->gateway4);
		check_gateway(&k, p, "gateway6", &p->gateway6);
		check_port_lcores(&k, p);
	}
	if ((c->smc.buffer & (c->smc.buffer - 1)) != 0)
		kd_fault(f, "%s: [smc] buffer = %llu: not a power of two", at,
			(unsigned long long)c->smc.buffer);
	if (!karst_is_pow2(c->engine.spray_ports))
		kd_fault(f, "%s: [engine] spray_ports = %u: not a power of two", at,
			c->engine.spray_ports);
	if (c->congestion.rpg_byte_reset != 0 && c->congestion.rpg_byte_reset < 1024)
		kd_fault(f, "%s: [congestion] rpg_byte_reset = %u: allowed: 0, or 1024 and more",
			at, c->congestion.rpg_byte_reset);
	return f->n == before ? 0 : -EINVAL;
}

/* --- limits --- */

static bool
applies(const struct kd_conf_limits *l, uint32_t uid, const uint32_t *gids, uint32_t ngids)
{
	uint32_t i;

	if (l->who[0] != '@')
		return l->id == uid;
	for (i = 0; i < ngids; i++)
		if (l->id == gids[i])
			return true;
	return false;
}

struct kd_conf_limits
kd_conf_limits_of(const struct kd_conf *c, uint32_t uid, const uint32_t *gids, uint32_t ngids)
{
	struct kd_conf_limits all = c->limits[0];
	const struct kd_conf_limits *own = NULL;
	bool trusted;
	uint32_t i;

	for (i = 1; i < c->nlimits; i++) {
		const struct kd_conf_limits *l = &c->limits[i];

		if (applies(l, uid, gids, ngids) &&
			(own == NULL || (own->who[0] == '@' && l->who[0] != '@')))
			own = l;
	}
	if (own != NULL)
		kd_conf_limits_over(&all, own);
	/* a user who can end the daemon anyway may use all of it */
	trusted = uid == 0 || uid == geteuid();
	if (all.controlled_qkeys == KD_BY_USER)
		all.controlled_qkeys = uid == 0 ? KD_ALLOWED : KD_FORBIDDEN;
	if (all.share == 0)
		all.share = trusted ? 100 : DEFAULT_SHARE;
	if (all.calls == 0 && !trusted)
		all.calls = DEFAULT_CALLS;
	return all;
}
