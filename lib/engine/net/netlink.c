/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Two queries to the kernel, by rtnetlink: RTM_GETROUTE for the next hop, and RTM_GETNEIGH for its
 * MAC address.  If the kernel does not know the neighbour, a datagram to the next hop's discard
 * port makes the kernel resolve it, and RTM_NEWNEIGH reports the result.
 *
 * Every call has sockets of its own: calls are rare, and threads then share nothing.
 */
#include "netlink.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>

#include "port.h"

#define MSG_BYTES    8192u
#define LOOK_MS      50  /* between two checks without a notification */
#define LOOKS_A_PUSH 20u /* checks between two datagrams */
#define DISCARD_PORT 9u

struct hop {
	int family;
	uint8_t ip[16]; /* its first 4 bytes with AF_INET */
};

struct kernel {
	struct mnl_socket *ask;
	struct mnl_socket *news;
	const char *netdev;
	unsigned int ifindex;
	unsigned int seq;
};

static size_t
addr_bytes(int family)
{
	return family == AF_INET ? 4 : 16;
}

static struct hop
hop_of(const uint8_t ip[16])
{
	struct hop h = {.family = karst_engine_ip_is_ip4(ip) ? AF_INET : AF_INET6};

	memcpy(h.ip, karst_engine_ip_is_ip4(ip) ? ip + 12 : ip, addr_bytes(h.family));
	return h;
}

static struct mnl_socket *
sock_open(unsigned int groups)
{
	struct mnl_socket *s = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);

	if (s != NULL && mnl_socket_bind(s, groups, MNL_SOCKET_AUTOPID) != 0) {
		mnl_socket_close(s);
		s = NULL;
	}
	return s;
}

static void
kernel_close(struct kernel *k)
{
	if (k->ask != NULL)
		mnl_socket_close(k->ask);
	if (k->news != NULL)
		mnl_socket_close(k->news);
}

static int
kernel_open(struct kernel *k, const char *netdev, bool news)
{
	int ret;

	*k = (struct kernel){.netdev = netdev, .ifindex = if_nametoindex(netdev)};
	if (k->ifindex == 0) {
		karst_log(KARST_LOG_ERR, "there is no interface \"%s\"", netdev);
		return -ENODEV;
	}
	k->ask = sock_open(0);
	if (k->ask != NULL && news)
		k->news = sock_open(RTMGRP_NEIGH);
	if (k->ask == NULL || (news && k->news == NULL)) {
		ret = -errno;
		karst_log(KARST_LOG_ERR, "netlink socket: %s", strerror(errno));
		kernel_close(k);
		return ret;
	}
	return 0;
}

/* Sends a request and passes each reply to @fn.  0 or a negative errno, including the kernel's. */
static int
netlink_transact(struct kernel *k, struct nlmsghdr *req, mnl_cb_t fn, void *arg)
{
	unsigned int port = mnl_socket_get_portid(k->ask);
	char buf[MSG_BYTES];
	ssize_t n;
	int ret;

	req->nlmsg_seq = ++k->seq;
	if (mnl_socket_sendto(k->ask, req, req->nlmsg_len) < 0)
		return -errno;
	do {
		n = mnl_socket_recvfrom(k->ask, buf, sizeof(buf));
		if (n < 0)
			return -errno;
		ret = mnl_cb_run(buf, (size_t)n, k->seq, port, fn, arg);
	} while (ret > MNL_CB_STOP);
	return ret < 0 ? -errno : 0;
}

/* --- routes --- */

static bool
ip_is_link_local(const struct hop *h)
{
	return h->family == AF_INET6 && h->ip[0] == 0xfe && (h->ip[1] & 0xc0) == 0x80;
}

struct route_reply {
	struct hop *hop; /* in: the destination; out: the next hop */
	unsigned int ifindex;
	bool unicast;
};

static int
on_route(const struct nlmsghdr *nlh, void *arg)
{
	const struct rtmsg *rtm = mnl_nlmsg_get_payload(nlh);
	struct route_reply *r = arg;
	const struct nlattr *attr;

	r->unicast = rtm->rtm_type == RTN_UNICAST;
	mnl_attr_for_each(attr, nlh, sizeof(*rtm))
	{
		const uint8_t *p = mnl_attr_get_payload(attr);
		size_t len = mnl_attr_get_payload_len(attr);

		switch (mnl_attr_get_type(attr)) {
		case RTA_OIF:
			if (len == sizeof(r->ifindex))
				r->ifindex = mnl_attr_get_u32(attr);
			break;
		case RTA_GATEWAY:
			if (len == addr_bytes(r->hop->family))
				memcpy(r->hop->ip, p, len);
			break;
		case RTA_VIA: /* IPv4 through an IPv6 neighbour: family, address */
			if (len == 2 + sizeof(struct in6_addr) && p[0] == AF_INET6) {
				r->hop->family = AF_INET6;
				memcpy(r->hop->ip, p + 2, sizeof(struct in6_addr));
			}
		}
	}
	return MNL_CB_STOP;
}

/* @from: the source, or NULL; @out: the route must use our interface. */
static int
route_query(struct kernel *k, const struct hop *from, const struct hop *to, bool out,
	struct route_reply *reply)
{
	char buf[MSG_BYTES];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct rtmsg *rtm;

	nlh->nlmsg_type = RTM_GETROUTE;
	nlh->nlmsg_flags = NLM_F_REQUEST;
	rtm = mnl_nlmsg_put_extra_header(nlh, sizeof(*rtm));
	rtm->rtm_family = (uint8_t)to->family;
	rtm->rtm_dst_len = (uint8_t)(8 * addr_bytes(to->family));
	mnl_attr_put(nlh, RTA_DST, addr_bytes(to->family), to->ip);
	if (from != NULL) {
		rtm->rtm_src_len = (uint8_t)(8 * addr_bytes(from->family));
		mnl_attr_put(nlh, RTA_SRC, addr_bytes(from->family), from->ip);
	}
	if (out)
		mnl_attr_put_u32(nlh, RTA_OIF, k->ifindex);
	return netlink_transact(k, nlh, on_route, reply);
}

/*
 * Asks for the next hop from @from, or from any address (NULL), to *hop.  The kernel is asked for
 * its own choice first: only that reports routes that forbid a destination, and if the kernel is
 * told which interface to use, it assumes that every address is on that link rather than report
 * that there is no route.  If it would use another interface, it is asked again for this one.
 */
static int
route_from(struct kernel *k, const struct hop *from, struct hop *hop)
{
	struct hop own = *hop, here = *hop;
	struct route_reply reply = {.hop = &own};
	int ret;

	ret = route_query(k, from, hop, ip_is_link_local(hop), &reply);
	if (ret == 0 && reply.unicast && reply.ifindex != k->ifindex) {
		reply = (struct route_reply){.hop = &here};
		ret = route_query(k, from, hop, true, &reply);
	}
	if (ret == -EINVAL)
		return -ENETUNREACH;
	if (ret == -EHOSTUNREACH || ret == -EACCES || ret == -ESRCH)
		return -EHOSTUNREACH;
	if (ret == 0 && (!reply.unicast || reply.ifindex != k->ifindex))
		return -EHOSTUNREACH;
	if (ret == 0)
		*hop = *reply.hop;
	return ret;
}

/* Finds the next hop from @from to *hop.  If the kernel does not have that address itself, it says
 * that there is no route, or (older kernels) -EINVAL: then what it would do from any other one
 * counts.  A rule that forbids it is another error. */
static int
netlink_route(struct kernel *k, const struct hop *from, struct hop *hop)
{
	int ret = -ENETUNREACH;

	if (from->family == hop->family)
		ret = route_from(k, from, hop);
	if (ret == -ENETUNREACH)
		ret = route_from(k, NULL, hop);
	return ret == -ENETUNREACH ? -EHOSTUNREACH : ret;
}

/* --- neighbours --- */

static void
fill_neigh(const struct nlmsghdr *nlh, struct karst_engine_neigh *n, uint16_t *nud)
{
	const struct ndmsg *ndm = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *attr;

	memset(n, 0, sizeof(*n));
	*nud = ndm->ndm_state;
	if (ndm->ndm_state & (NUD_REACHABLE | NUD_PERMANENT | NUD_NOARP))
		n->state = KARST_NEIGH_KNOWN;
	else if (ndm->ndm_state & (NUD_STALE | NUD_DELAY | NUD_PROBE))
		n->state = KARST_NEIGH_DOUBTED;
	else
		n->state = KARST_NEIGH_ASKED;
	mnl_attr_for_each(attr, nlh, sizeof(*ndm))
	{
		const uint8_t *p = mnl_attr_get_payload(attr);
		size_t len = mnl_attr_get_payload_len(attr);

		switch (mnl_attr_get_type(attr)) {
		case NDA_LLADDR:
			if (len == sizeof(n->mac))
				memcpy(n->mac, p, len);
			break;
		case NDA_DST:
			if (len == 16) {
				memcpy(n->ip, p, len);
			} else if (len == 4) {
				memset(n->ip + 10, 0xff, 2);
				memcpy(n->ip + 12, p, len);
			}
			break;
		case NDA_CACHEINFO:
			if (len >= sizeof(struct nda_cacheinfo)) {
				struct nda_cacheinfo ci;

				memcpy(&ci, p, sizeof(ci));
				/* in 1/100 s, whatever the kernel's own tick is */
				n->age_ns = ci.ndm_confirmed * UINT64_C(10000000);
			}
		}
	}
}

struct neigh_reply {
	struct karst_engine_neigh n;
	uint16_t nud;
};

static int
on_neigh(const struct nlmsghdr *nlh, void *arg)
{
	struct neigh_reply *r = arg;

	fill_neigh(nlh, &r->n, &r->nud);
	return MNL_CB_STOP;
}

static int
netlink_neighbour(struct kernel *k, const struct hop *hop, struct neigh_reply *reply)
{
	char buf[MSG_BYTES];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct ndmsg *ndm;

	nlh->nlmsg_type = RTM_GETNEIGH;
	nlh->nlmsg_flags = NLM_F_REQUEST;
	ndm = mnl_nlmsg_put_extra_header(nlh, sizeof(*ndm));
	ndm->ndm_family = (uint8_t)hop->family;
	ndm->ndm_ifindex = (int)k->ifindex;
	mnl_attr_put(nlh, NDA_DST, addr_bytes(hop->family), hop->ip);
	memset(reply, 0, sizeof(*reply));
	return netlink_transact(k, nlh, on_neigh, reply);
}

/* Sends a datagram that no program reads, so that the kernel resolves its destination. */
static void
netlink_push(const struct kernel *k, const struct hop *from, const struct hop *hop)
{
	int fd = socket(hop->family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6,
		.sin6_port = htons(DISCARD_PORT),
		.sin6_scope_id = k->ifindex};
	struct sockaddr_in6 own6 = {.sin6_family = AF_INET6, .sin6_scope_id = k->ifindex};
	struct sockaddr_in to4 = {.sin_family = AF_INET, .sin_port = htons(DISCARD_PORT)};

	if (fd < 0)
		return;
	/* Any failure here shows as a missing answer. */
	(void)setsockopt(
		fd, SOL_SOCKET, SO_BINDTODEVICE, k->netdev, (socklen_t)strlen(k->netdev) + 1);
	/* rules may depend on the source; with IPv4, what is bound to a device needs no route */
	if (from->family == AF_INET6) {
		memcpy(&own6.sin6_addr, from->ip, sizeof(own6.sin6_addr));
		(void)bind(fd, (struct sockaddr *)&own6, sizeof(own6));
	}
	memcpy(&to4.sin_addr, hop->ip, sizeof(to4.sin_addr));
	memcpy(&to6.sin6_addr, hop->ip, sizeof(to6.sin6_addr));
	if (hop->family == AF_INET)
		(void)sendto(fd, "", 0, 0, (struct sockaddr *)&to4, sizeof(to4));
	else
		(void)sendto(fd, "", 0, 0, (struct sockaddr *)&to6, sizeof(to6));
	close(fd);
}

/* Waits for a notification about a neighbour, or for a short time. */
static void
wait_news(const struct kernel *k)
{
	struct pollfd p = {.fd = mnl_socket_get_fd(k->news), .events = POLLIN};
	char buf[MSG_BYTES];

	if (poll(&p, 1, LOOK_MS) <= 0)
		return;
	while (recv(p.fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

static int
netlink_find(struct kernel *k, const struct hop *from, const struct hop *hop,
	const struct eng_patience *patience, uint8_t mac[6])
{
	struct neigh_reply reply;
	unsigned int looks;
	int ret;

	for (looks = 0;; looks++) {
		ret = netlink_neighbour(k, hop, &reply);
		if (ret != 0 && ret != -ENOENT)
			return ret;
		if (ret == 0 && reply.n.state != KARST_NEIGH_ASKED) {
			/* One more datagram makes the kernel check whether it is still there. */
			if (reply.nud & NUD_STALE)
				netlink_push(k, from, hop);
			memcpy(mac, reply.n.mac, sizeof(reply.n.mac));
			return 0;
		}
		if (looks % LOOKS_A_PUSH == 0 && !patience->look_only)
			netlink_push(k, from, hop);
		ret = patience->go_on(patience->user);
		if (ret != 0)
			return ret;
		wait_news(k);
	}
}

int
eng_netlink_resolve(const char *netdev, const uint8_t src[16], const uint8_t dst[16], bool quiet,
	const struct eng_patience *patience, uint8_t mac[6])
{
	struct hop from = hop_of(src), hop = hop_of(dst);
	char text[ENG_IP_TEXT];
	struct kernel k;
	int ret;

	ret = kernel_open(&k, netdev, true);
	if (ret != 0)
		return ret;
	ret = netlink_route(&k, &from, &hop);
	if (ret != 0 && !quiet)
		karst_log(KARST_LOG_ERR, "the kernel has no route to %s out of %s: %s",
			eng_ip_text(dst, text), netdev, strerror(-ret));
	if (ret == 0)
		ret = netlink_find(&k, &from, &hop, patience, mac);
	kernel_close(&k);
	return ret;
}

struct list_reply {
	unsigned int ifindex;
	struct karst_engine_neigh *list;
	unsigned int max;
	unsigned int n;
};

static int
on_listed(const struct nlmsghdr *nlh, void *arg)
{
	const struct ndmsg *ndm = mnl_nlmsg_get_payload(nlh);
	struct list_reply *r = arg;
	struct karst_engine_neigh n;
	uint16_t nud;

	if (ndm->ndm_ifindex != (int)r->ifindex || (ndm->ndm_state & (NUD_NOARP | NUD_FAILED)))
		return MNL_CB_OK;
	fill_neigh(nlh, &n, &nud);
	if (r->n < r->max)
		r->list[r->n] = n;
	r->n++;
	return MNL_CB_OK;
}

int
eng_netlink_list(const char *netdev, struct karst_engine_neigh *list, unsigned int max)
{
	struct list_reply reply = {.list = list, .max = max};
	char buf[MSG_BYTES];
	struct nlmsghdr *nlh;
	struct kernel k;
	int ret;

	ret = kernel_open(&k, netdev, false);
	if (ret != 0)
		return ret;
	reply.ifindex = k.ifindex;
	nlh = mnl_nlmsg_put_header(buf);
	nlh->nlmsg_type = RTM_GETNEIGH;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	mnl_nlmsg_put_extra_header(nlh, sizeof(struct ndmsg));
	ret = netlink_transact(&k, nlh, on_listed, &reply);
	kernel_close(&k);
	return ret != 0 ? ret : (int)reply.n;
}
