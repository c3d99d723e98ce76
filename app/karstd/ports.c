/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "port_kind.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <rte_build_config.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include "few_drivers.h"
#include "karst_log.h"
#include "place.h"
#include "rules.h"

int
kd_port_fault(const struct kd_conf_port *p, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	karst_log(KARST_LOG_ERR, "port %s: %s", p->name, text);
	return -EIO;
}

/* --- before DPDK starts --- */

static void
say_rule(void *user, const char *line)
{
	kd_port_fault(user, "impair: %s", line);
}

/* Reports errors of a rule file together with those of devices; the driver reads the file again. */
static int
check_rules(const struct kd_conf_port *p)
{
	struct imp_rules *rules;

	if (p->impair[0] == '\0')
		return 0;
	rules = imp_rules_read(p->impair, say_rule, (void *)(uintptr_t)p);
	if (rules == NULL)
		return -EINVAL;
	imp_rules_free(rules);
	return 0;
}

int
kd_ports_check(const struct kd_conf *c)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; i < c->nports; i++) {
		const struct kd_conf_port *p = &c->port[i];

		if (p->kind->check != NULL && p->kind->check(p) != 0)
			rc = -ENODEV;
		if (check_rules(p) != 0)
			rc = -ENODEV;
	}
	return rc;
}

/* --- lcores --- */

static uint64_t
configured_lcores(const struct kd_conf *c, const struct kd_conf_port *p)
{
	uint64_t mask = 0;
	uint32_t i, j;

	for (i = 0; i < c->engine.lcores.n; i++)
		for (j = 0; j < p->lcores.n; j++)
			if (c->engine.lcores.cpu[i] == p->lcores.cpu[j])
				mask |= UINT64_C(1) << i;
	return mask;
}

uint64_t
kd_port_lcores(const struct kd_conf *c, const struct kd_conf_port *p, uint32_t queues)
{
	uint32_t n = karst_min_u32(c->engine.lcores.n, queues);

	if (p->lcores.n != 0)
		return configured_lcores(c, p);
	return n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/* --- devices --- */

int
kd_port_plug(struct kd_port *port, const char *name, const char *args)
{
	char why[512], shown[KD_TEXT];
	int rc;

	if (few_drivers_load(name, why, sizeof(why)) != 0)
		return kd_port_fault(port->conf, "%s", why);
	rc = rte_eal_hotplug_add("vdev", name, args);
	if (rc == -EFAULT) /* no driver matches the name; EAL does not say that */
		return kd_port_fault(port->conf,
			"DPDK has no driver for a device %s; the drivers of this machine are "
			"librte_net_*.so in " RTE_EAL_PMD_PATH,
			name);
	if (rc == 0)
		rc = rte_eth_dev_get_port_by_name(name, &port->ethdev);
	if (rc != 0)
		return kd_port_fault(port->conf,
			"DPDK makes no device of %s%s%s: %s; its own words are above", name,
			args[0] != '\0' ? "," : "", kd_port_shown(args, shown), rte_strerror(-rc));
	port->probed = true;
	return 0;
}

/* Puts a net_impair on top of the port's device. */
static int
impair(struct kd_port *port)
{
	const struct kd_conf_port *p = port->conf;
	char name[KD_NAME + 16], args[2 * KD_TEXT + 64];
	uint16_t below = port->ethdev;
	int rc;

	if (p->impair[0] == '\0')
		return 0;
	snprintf(name, sizeof(name), "net_impair_%s", p->name);
	snprintf(args, sizeof(args), "port=%u,rules=%s%s%s", below, p->impair,
		p->impair_log[0] != '\0' ? ",log=" : "", p->impair_log);
	rc = kd_port_plug(port, name, args);
	if (rc != 0)
		return rc;
	port->below = below;
	port->impaired = true;
	karst_log(KARST_LOG_WARNING, "port %s: its packets are impaired by the rules of %s",
		p->name, p->impair);
	return 0;
}

/* --- addresses --- */

/* Returns the link-local address: fe80:: and the interface identifier from a MAC address. */
static struct karst_engine_addr
link_local(const uint8_t mac[6])
{
	struct karst_engine_addr a = {.ip = {0xfe, 0x80, [8] = mac[0] ^ 2, mac[1], mac[2], 0xff,
					      0xfe, mac[3], mac[4], mac[5]},
		.prefix = 64};

	return a;
}

void
kd_port_choose_addresses(struct kd_port *port, const uint8_t mac[6])
{
	port->addresses = port->conf->addresses;
	if (port->addresses.n == 0)
		port->addresses = port->netdev.addresses;
	if (port->conf->link_local && port->addresses.n < KD_MAX_ADDRS)
		port->addresses.addr[port->addresses.n++] = link_local(mac);
}

static void
gateway(struct karst_engine_addr *to, const struct kd_ip *from)
{
	memset(to, 0, sizeof(*to));
	if (from->set)
		memcpy(to->ip, from->ip, sizeof(to->ip));
}

/* --- one port --- */

static int
fill_config(const struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port,
	struct karst_engine_port_config *cfg)
{
	const struct kd_conf_port *p = port->conf;
	struct rte_eth_dev_info info = {.max_rx_queues = UINT16_MAX, .max_tx_queues = UINT16_MAX};
	static const uint8_t zero[6];
	struct rte_ether_addr own = {0};
	int rc = 0;

	memset(cfg, 0, sizeof(*cfg));
	if (port->probed)
		rc = rte_eth_dev_info_get(port->ethdev, &info);
	if (rc == 0 && port->probed)
		rc = rte_eth_macaddr_get(port->ethdev, &own);
	if (rc != 0)
		return kd_port_fault(p, "DPDK does not know its device: %s", rte_strerror(-rc));
	cfg->name = p->name;
	cfg->number = (uint8_t)(port - ps->port + 1);
	cfg->ethdev = port->ethdev;
	cfg->lcore_mask = kd_port_lcores(c, p, RTE_MIN(info.max_rx_queues, info.max_tx_queues));
	cfg->mtu = (uint16_t)p->mtu;
	cfg->rx_slots = (uint16_t)p->rx_slots;
	cfg->tx_slots = (uint16_t)p->tx_slots;
	cfg->vlan = (uint16_t)p->vlan;
	if (p->mac.set)
		memcpy(cfg->mac, p->mac.mac, sizeof(cfg->mac));
	gateway(&cfg->gateway4, &p->gateway4);
	gateway(&cfg->gateway6, &p->gateway6);
	cfg->exception_tap = p->exception_tap[0] != '\0' ? p->exception_tap : NULL;
	if (p->kind->fill != NULL)
		p->kind->fill(ps, port, cfg);
	kd_port_choose_addresses(
		port, memcmp(cfg->mac, zero, sizeof(zero)) != 0 ? cfg->mac : own.addr_bytes);
	cfg->num_addrs = port->addresses.n;
	cfg->addrs = port->addresses.addr;
	return 0;
}

static void
say_port(const struct kd_port *port, const struct karst_engine_port_info *info)
{
	char list[KD_MAX_ADDRS * (INET6_ADDRSTRLEN + 1)] = "", ip[INET6_ADDRSTRLEN];
	char shown[KD_TEXT];
	size_t n = 0;
	uint32_t i;

	if (port->conf->kind->announce != NULL)
		port->conf->kind->announce(port);
	for (i = 0; i < info->num_addrs; i++) {
		const struct karst_engine_addr *a = &info->addrs[i];
		bool is4 = karst_engine_addr_is_ip4(a);

		inet_ntop(is4 ? AF_INET : AF_INET6, a->ip + (is4 ? 12 : 0), ip, sizeof(ip));
		n += (size_t)snprintf(list + n, sizeof(list) - n, " %s", ip);
	}
	karst_log(KARST_LOG_NOTICE, "port %u, %s: %s, path MTU %u, addresses%s", port->number + 1u,
		port->conf->name, kd_port_shown(port->conf->device, shown), 128u << info->path_mtu,
		list);
}

static int
add_port(const struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e,
	struct kd_port *port)
{
	const struct kd_port_kind *kind = port->conf->kind;
	struct karst_engine_port_config cfg;
	char shown[KD_TEXT];
	int rc = fill_config(ps, c, port, &cfg);

	if (rc != 0)
		return rc;
	rc = karst_engine_port_add(e, &cfg, &port->number);
	if (rc != 0)
		return kd_port_fault(port->conf, "%s does not become a port: %s%s",
			kd_port_shown(port->conf->device, shown), strerror(-rc),
			kind->hint != NULL ? kind->hint(port) : "");
	port->added = true;
	return 0;
}

/* Sets the descriptors that lcores wait for.  If there is not exactly one for each lcore, the
 * driver works in another way, and its lcores poll for frames. */
static int
finish_port(const struct kd_conf *c, struct karst_engine *e, struct kd_port *port)
{
	const struct kd_fds *fds = &port->fds;
	struct karst_engine_port_info info;
	int rc = karst_engine_port_info(e, port->number, &info);

	if (rc != 0)
		return rc;
	if (fds->n != 0 && fds->n == (uint32_t)__builtin_popcountll(info.lcore_mask))
		karst_engine_port_set_wake_fds(e, port->number, fds->fd, fds->n);
	if (port->probed)
		kd_place_warn(c, port->conf, info.lcore_mask, rte_eth_dev_socket_id(port->ethdev));
	say_port(port, &info);
	return 0;
}

int
kd_port_open(
	struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e, struct kd_port *port)
{
	const struct kd_port_kind *kind = port->conf->kind;
	struct kd_fds before;
	int rc;

	kd_wake_scan(&before, kind->waits_for_taps);
	rc = kind->open(ps, c, port);
	if (rc == 0)
		rc = impair(port);
	if (rc == 0)
		rc = add_port(ps, c, e, port);
	if (rc != 0)
		return rc;
	kd_wake_scan(&port->fds, kind->waits_for_taps);
	kd_wake_only_new(&port->fds, &before);
	if (kind->ready != NULL)
		rc = kind->ready(port, &port->fds);
	return rc == 0 ? finish_port(c, e, port) : rc;
}

int
kd_port_again(const struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e,
	struct kd_port *port)
{
	int rc = add_port(ps, c, e, port);

	return rc == 0 ? finish_port(c, e, port) : rc;
}

/* --- all ports --- */

int
kd_ports_open(struct kd_ports *ps, struct kd_conf *c, struct karst_engine *e)
{
	uint32_t i;
	int rc = 0;

	memset(ps, 0, sizeof(*ps));
	ps->xdp_fd = ps->news_fd = -1;
	for (i = 0; rc == 0 && i < c->nports; i++) {
		struct kd_port *port = &ps->port[ps->n++];

		port->conf = &c->port[i];
		port->silence_fd = port->backend.listen_fd = -1;
		rc = port->conf->kind->there != NULL ? port->conf->kind->there(port) : 1;
		if (rc > 0)
			rc = kd_port_open(ps, c, e, port);
	}
	return rc;
}

void
kd_port_close_device(struct kd_port *port)
{
	char name[RTE_ETH_NAME_MAX_LEN];
	bool paused = port->probed && karst_engine_intr_pause(port->ethdev);

	if (port->impaired && rte_eth_dev_get_name_by_port(port->ethdev, name) == 0) {
		(void)rte_eal_hotplug_remove("vdev", name);
		port->ethdev = port->below;
	}
	if (port->probed)
		rte_eth_dev_close(port->ethdev);
	karst_engine_intr_resume(paused);
	port->probed = port->added = port->impaired = false;
}

void
kd_port_close(struct kd_port *port)
{
	if (port->conf->kind->close != NULL)
		port->conf->kind->close(port);
	else
		kd_port_close_device(port);
}

void
kd_ports_watch(struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e)
{
	uint32_t i;

	for (i = 0; i < ps->n; i++) {
		struct kd_port *port = &ps->port[i];

		if (!port->removed && port->conf->kind->follow != NULL)
			port->conf->kind->follow(ps, c, port, e);
	}
	karst_engine_links_check(e);
}

void
kd_ports_withdraw(struct kd_ports *ps, struct karst_engine *e)
{
	uint32_t i;

	for (i = 0; i < ps->n; i++)
		if (ps->port[i].added)
			karst_engine_port_remove(e, ps->port[i].number);
}

void
kd_ports_close(struct kd_ports *ps)
{
	uint32_t i;

	for (i = 0; i < ps->n; i++)
		if (!ps->port[i].removed)
			kd_port_close(&ps->port[i]);
	if (ps->xdp_fd >= 0)
		close(ps->xdp_fd);
	ps->n = 0;
}
