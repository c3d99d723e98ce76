/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Ports whose device changes while the daemon runs.
 *
 * A kernel interface belongs to its administrator: addresses, MAC address and MTU may change at any
 * time, and it may be deleted, renamed or moved to another network namespace.  The port takes over
 * the first three.  It is removed with the interface, as with an adapter that is unplugged, so that
 * no program waits for packets that cannot arrive.  It returns with an interface of the same name,
 * if its driver can use that one through the sockets that it has, since the daemon has no right to
 * open others by then.
 *
 * Changes are reported by rtnetlink, so that short ones are not missed; and everything is checked
 * each second as well, since reports may be lost.
 */
#include "follow.h"

#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include "karst_log.h"
#include "netdev_driver.h"

/* RFC 8200, 5; the kernel ends IPv6 on interfaces with a smaller MTU. */
#define IP6_LEAST_MTU 1280u

/* --- reports of the kernel --- */

int
kd_news_open(void)
{
	struct sockaddr_nl at = {.nl_family = AF_NETLINK,
		.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd >= 0 && bind(fd, (const void *)&at, sizeof(at)) == 0)
		return fd;
	karst_log(KARST_LOG_WARNING,
		"changes of kernel interfaces are noticed within a second, and not at once: %s",
		strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}

/* @return the MTU that a message about an interface states; UINT32_MAX: none. */
static uint32_t
news_mtu(const struct nlmsghdr *h)
{
	const struct rtattr *a = IFLA_RTA(NLMSG_DATA(h));
	unsigned int len = (unsigned int)IFLA_PAYLOAD(h);
	uint32_t mtu = UINT32_MAX;

	for (; RTA_OK(a, len); a = RTA_NEXT(a, len))
		if (a->rta_type == IFLA_MTU && RTA_PAYLOAD(a) == sizeof(mtu))
			memcpy(&mtu, RTA_DATA(a), sizeof(mtu));
	return mtu;
}

/*
 * Records what may be over before the next check: that an interface has gone, which may be back
 * with its old number, and that its MTU was too small for IPv6.
 */
static void
news_note(struct kd_ports *ps, const struct nlmsghdr *h)
{
	const struct ifinfomsg *info = NLMSG_DATA(h);
	uint32_t i;

	if ((h->nlmsg_type != RTM_DELLINK && h->nlmsg_type != RTM_NEWLINK) ||
		h->nlmsg_len < NLMSG_LENGTH(sizeof(*info)) || info->ifi_family != AF_UNSPEC)
		return;
	for (i = 0; i < ps->n; i++) {
		struct kd_port *port = &ps->port[i];

		if (port->netdev.index != (unsigned int)info->ifi_index)
			continue;
		port->left |= h->nlmsg_type == RTM_DELLINK;
		port->groups_lost |= news_mtu(h) < IP6_LEAST_MTU;
	}
}

void
kd_news_read(struct kd_ports *ps)
{
	_Alignas(struct nlmsghdr) char buf[16384];
	uint32_t i;
	ssize_t n;

	/* ENOBUFS: some reports were lost */
	while ((n = recv(ps->news_fd, buf, sizeof(buf), 0)) > 0 || (n < 0 && errno == ENOBUFS)) {
		const struct nlmsghdr *h = (const void *)buf;
		unsigned int len = n > 0 ? (unsigned int)n : 0;

		for (; NLMSG_OK(h, len); h = NLMSG_NEXT(h, len))
			news_note(ps, h);
		for (i = 0; n < 0 && i < ps->n; i++)
			ps->port[i].groups_lost = true;
	}
}

/* --- addresses --- */

static void
set_addresses(struct kd_port *port, struct karst_engine *e)
{
	kd_port_choose_addresses(port, port->netdev.mac);
	(void)karst_engine_port_set_addrs(e, port->number, port->addresses.n, port->addresses.addr);
}

static void
follow_addresses(struct kd_port *port, struct karst_engine *e, const struct kd_netdev *now)
{
	const struct kd_addrs *was = &port->netdev.addresses;

	if (port->conf->addresses.n == 0 && now->more != port->left_out) {
		port->left_out = now->more;
		if (now->more != 0)
			karst_log(KARST_LOG_WARNING,
				"port %s: interface %s has more than %u addresses: %u are not used, "
				"which came last",
				port->conf->name, port->conf->device, KD_MAX_ADDRS, now->more);
	}
	if (port->conf->addresses.n != 0 || memcmp(&now->addresses, was, sizeof(*was)) == 0)
		return;
	if (now->addresses.n == 0) {
		if (!port->bare)
			karst_log(KARST_LOG_WARNING,
				"port %s: interface %s has no IP address any more; the port keeps "
				"what it had until there is another one",
				port->conf->name, port->conf->device);
		port->bare = true;
		return;
	}
	port->bare = false;
	port->netdev.addresses = now->addresses;
	set_addresses(port, e);
	karst_log(KARST_LOG_NOTICE, "port %s: interface %s has other addresses now",
		port->conf->name, port->conf->device);
}

static void
follow_mac(struct kd_port *port, struct karst_engine *e, const struct kd_netdev *now)
{
	const uint8_t *m = now->mac;

	if (memcmp(m, port->netdev.mac, sizeof(now->mac)) == 0)
		return;
	memcpy(port->netdev.mac, m, sizeof(now->mac));
	if (karst_engine_port_set_mac(e, port->number, m) != 0)
		return;
	karst_log(KARST_LOG_NOTICE,
		"port %s: interface %s has MAC address %02x:%02x:%02x:%02x:%02x:%02x now; "
		"connections that peers send to the old one may end",
		port->conf->name, port->conf->device, m[0], m[1], m[2], m[3], m[4], m[5]);
	if (port->conf->link_local)
		set_addresses(port, e);
}

/* --- MTU --- */

static void
follow_mtu(struct kd_port *port, struct karst_engine *e, const struct kd_netdev *now)
{
	struct karst_engine_port_info info;
	uint32_t mtu = karst_min_u32(now->mtu, UINT16_MAX), was;

	if (now->mtu == port->netdev.mtu)
		return;
	port->netdev.mtu = now->mtu;
	if (port->conf->mtu != 0)
		mtu = karst_min_u32(mtu, port->conf->mtu);
	/* other drivers have made their buffers for that MTU */
	if (!kd_netdev_driver_of(port->conf)->follows)
		mtu = karst_min_u32(mtu, port->opened_mtu);
	if (karst_engine_port_info(e, port->number, &info) != 0)
		return;
	was = info.path_mtu;
	if (karst_engine_port_set_mtu(e, port->number, (uint16_t)mtu) != 0 ||
		karst_engine_port_info(e, port->number, &info) != 0)
		return;
	karst_log(info.path_mtu < was ? KARST_LOG_WARNING : KARST_LOG_NOTICE,
		"port %s: interface %s has MTU %u now, so path MTU %u%s", port->conf->name,
		port->conf->device, now->mtu, 128u << info.path_mtu,
		info.path_mtu < was ? "; what queue pairs with a larger one send is lost" : "");
}

/* The kernel forgets IPv6 groups when the MTU is too small for IPv6 (karst_engine.h). */
static void
follow_groups(struct kd_port *port, struct karst_engine *e, const struct kd_netdev *now)
{
	if (now->mtu < IP6_LEAST_MTU) {
		port->groups_lost = true;
	} else if (port->groups_lost) {
		port->groups_lost = false;
		(void)karst_engine_port_join_again(e, port->number);
	}
}

/* --- interfaces that disappear and return --- */

static void
interface_goes(struct kd_port *port, struct karst_engine *e)
{
	const struct kd_conf_port *p = port->conf;
	char name[IF_NAMESIZE];

	if (if_indextoname(port->netdev.index, name) != NULL && strcmp(name, p->device) != 0)
		karst_log(KARST_LOG_WARNING, "port %s: interface %s is gone: it is called %s now",
			p->name, p->device, name);
	else
		karst_log(KARST_LOG_WARNING,
			"port %s: interface %s is gone: deleted, or moved to another network "
			"namespace",
			p->name, p->device);
	karst_engine_port_lose(e, port->number);
	port->added = port->left = false;
	port->away = true;
	/* it is bound to the interface that has gone */
	close(port->silence_fd);
	port->silence_fd = -1;
}

/* Returns why an interface that is back cannot be used; NULL: it can. */
static const char *
obstacle(const struct kd_port *port, const struct kd_netdev *now)
{
	if (!kd_netdev_driver_of(port->conf)->follows)
		return "its driver cannot take it over: start karstd again (driver = kport can)";
	if (port->conf->mtu > now->mtu)
		return "its MTU is less than mtu of the port";
	if (port->conf->addresses.n == 0 && now->addresses.n == 0)
		return "it has no IP address";
	return NULL;
}

static void
interface_returns(const struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e,
	struct kd_port *port, const struct kd_netdev *now)
{
	const char *why = obstacle(port, now);
	int fd;

	if (why == NULL) {
		fd = kd_netdev_silence(now);
		if (fd == -EADDRINUSE)
			why = "its UDP port 4791 belongs to another program";
		else if (fd < 0)
			karst_log(KARST_LOG_WARNING,
				"port %s: the kernel answers RoCE on %s with \"port unreachable\": %s",
				port->conf->name, now->name, strerror(-fd));
		port->silence_fd = fd;
	}
	if (why == NULL) {
		port->netdev = *now;
		if (kd_port_again(ps, c, e, port) == 0)
			port->away = false;
		else
			why = "it does not become a port again";
	}
	if (why != NULL && port->silence_fd >= 0) {
		close(port->silence_fd);
		port->silence_fd = -1;
	}
	if (why != NULL && why != port->obstacle)
		karst_log(KARST_LOG_WARNING, "port %s: interface %s is back, but %s",
			port->conf->name, now->name, why);
	port->obstacle = why;
}

void
kd_netdev_follow(
	struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port, struct karst_engine *e)
{
	struct kd_netdev now;
	int rc;

	if (!port->added && !port->away)
		return;
	rc = kd_netdev_read(port->conf->device, &port->netdev.addresses, &now);
	if (rc != 0 && rc != -ENODEV && rc != -EPROTOTYPE)
		return; /* unknown; checked again later */
	if (port->added && (port->left || rc != 0 || now.index != port->netdev.index))
		interface_goes(port, e);
	if (port->away && rc == 0) {
		/* An interface disappears some time before that is reported: reports that are
		 * pending now must not be taken for a later event. */
		kd_news_read(ps);
		port->left = false;
		interface_returns(ps, c, e, port, &now);
	}
	if (port->away && rc != 0)
		port->obstacle = NULL;
	if (!port->added || rc != 0)
		return;
	follow_mtu(port, e, &now);
	follow_groups(port, e, &now);
	follow_mac(port, e, &now);
	follow_addresses(port, e, &now);
}

/* --- another configuration --- */

static const struct kd_conf_port *
find_port(const struct kd_conf *c, const char *name)
{
	uint32_t i;

	for (i = 0; i < c->nports; i++)
		if (strcmp(c->port[i].name, name) == 0)
			return &c->port[i];
	return NULL;
}

static void
remove_port(struct kd_port *port, struct karst_engine *e)
{
	karst_log(KARST_LOG_NOTICE, "port %s: not in the configuration any more", port->conf->name);
	if (port->added)
		karst_engine_port_lose(e, port->number);
	kd_port_close(port);
	port->removed = true;
}

/* @return true: only addresses differ. */
static bool
only_addresses(const struct kd_conf_port *a, const struct kd_conf_port *b)
{
	struct kd_conf_port c = *b;

	c.addresses = a->addresses;
	c.link_local = a->link_local;
	return memcmp(a, &c, sizeof(c)) == 0;
}

/* Sets other addresses; the caller knows that nothing else differs. */
static void
readdress(struct kd_port *port, const struct kd_conf_port *to, struct karst_engine *e)
{
	struct karst_engine_port_info info;

	port->conf->addresses = to->addresses;
	port->conf->link_local = to->link_local;
	if (!port->added || karst_engine_port_info(e, port->number, &info) != 0)
		return;
	kd_port_choose_addresses(port, info.mac);
	if (karst_engine_port_set_addrs(e, port->number, port->addresses.n, port->addresses.addr) ==
		0)
		karst_log(KARST_LOG_NOTICE, "port %s: other addresses by the configuration",
			port->conf->name);
}

bool
kd_ports_reload(struct kd_ports *ps, struct kd_conf *asked, const struct kd_conf *to,
	struct karst_engine *e)
{
	uint32_t i, kept = 0;
	bool rest = false;

	for (i = 0; i < ps->n; i++) {
		struct kd_port *port = &ps->port[i];
		const struct kd_conf_port *is = find_port(to, port->conf->name);

		if (port->removed) {
			rest |= is != NULL; /* a port that was closed cannot be opened again */
			continue;
		}
		if (is == NULL) {
			remove_port(port, e);
			continue;
		}
		kept++;
		if (memcmp(is, &asked->port[i], sizeof(*is)) == 0)
			continue;
		if (!only_addresses(&asked->port[i], is)) {
			rest = true;
			continue;
		}
		readdress(port, is, e);
		asked->port[i].addresses = is->addresses;
		asked->port[i].link_local = is->link_local;
	}
	return rest || kept != to->nports;
}
