/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "netdev.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROCE_PORT 4791u

/* --- properties --- */

static uint8_t
prefix_of(const void *mask, size_t bytes)
{
	const uint8_t *m = mask;
	uint8_t n = 0;
	size_t i;

	for (i = 0; i < bytes; i++)
		n = (uint8_t)(n + __builtin_popcount(m[i]));
	return n;
}

/* Converts an entry's address and prefix.  @return false: it has none of IPv4 or IPv6. */
static bool
entry_address(const struct ifaddrs *a, struct karst_engine_addr *to)
{
	if (a->ifa_addr == NULL || a->ifa_netmask == NULL)
		return false;
	if (a->ifa_addr->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)a->ifa_addr;
		const struct sockaddr_in *mask = (const void *)a->ifa_netmask;

		*to = karst_engine_addr_ip4(ntohl(in->sin_addr.s_addr));
		to->prefix = prefix_of(&mask->sin_addr, 4);
		return true;
	}
	if (a->ifa_addr->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)a->ifa_addr;
		const struct sockaddr_in6 *mask = (const void *)a->ifa_netmask;

		memset(to, 0, sizeof(*to));
		memcpy(to->ip, &in6->sin6_addr, sizeof(to->ip));
		to->prefix = prefix_of(&mask->sin6_addr, 16);
		return true;
	}
	return false;
}

/* Whether an entry is about the interface.  The name of an IPv4 address may be a label: that of the
 * interface, a colon, and more. */
static bool
netdev_is_named(const struct ifaddrs *a, const char *interface)
{
	size_t len = strcspn(a->ifa_name, ":");

	return strlen(interface) == len && memcmp(a->ifa_name, interface, len) == 0;
}

/* Takes the addresses of one family.  @which: only those that are in this list; NULL: only those
 * that were not taken yet. */
static void
take_addresses(
	struct kd_netdev *n, const struct ifaddrs *all, bool ip4, const struct kd_addrs *which)
{
	const struct ifaddrs *a;

	for (a = all; a != NULL; a = a->ifa_next) {
		struct kd_addrs *to = &n->addresses;
		struct karst_engine_addr addr;

		if (!netdev_is_named(a, n->name) || !entry_address(a, &addr) ||
			karst_engine_addr_is_ip4(&addr) != ip4 ||
			karst_engine_addr_in(to->addr, to->n, addr.ip) != NULL)
			continue;
		if (which != NULL && karst_engine_addr_in(which->addr, which->n, addr.ip) == NULL)
			continue;
		if (to->n == KD_MAX_ADDRS)
			n->more++;
		else
			to->addr[to->n++] = addr;
	}
}

static int
read_addresses(struct kd_netdev *n, const struct kd_addrs *keep)
{
	struct ifaddrs *all;

	if (getifaddrs(&all) != 0)
		return -errno;
	take_addresses(n, all, true, NULL);
	take_addresses(n, all, false, NULL);
	if (n->more != 0 && keep != NULL) {
		n->addresses = (struct kd_addrs){0};
		n->more = 0;
		take_addresses(n, all, true, keep);
		take_addresses(n, all, false, keep);
		take_addresses(n, all, true, NULL);
		take_addresses(n, all, false, NULL);
	}
	freeifaddrs(all);
	return 0;
}

static uint32_t
count_rx_queues(const char *name)
{
	char path[64];
	const struct dirent *d;
	uint32_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/class/net/%s/queues", name);
	dir = opendir(path);
	if (dir == NULL)
		return 0; /* no sysfs here: unknown */
	while ((d = readdir(dir)) != NULL)
		n += strncmp(d->d_name, "rx-", 3) == 0;
	closedir(dir);
	return n;
}

/* Reads the link by ioctl, because a network namespace may not have a /sys of its own. */
static int
read_link(struct kd_netdev *n, int fd)
{
	struct ifreq ifr = {0};

	memcpy(ifr.ifr_name, n->name, sizeof(n->name));
	if (ioctl(fd, SIOCGIFINDEX, &ifr) != 0)
		return -errno;
	n->index = (unsigned int)ifr.ifr_ifindex;
	if (ioctl(fd, SIOCGIFMTU, &ifr) != 0)
		return -errno;
	n->mtu = (uint32_t)ifr.ifr_mtu;
	if (ioctl(fd, SIOCGIFFLAGS, &ifr) != 0)
		return -errno;
	n->up = (ifr.ifr_flags & IFF_UP) != 0;
	if (ioctl(fd, SIOCGIFHWADDR, &ifr) != 0)
		return -errno;
	if (ifr.ifr_hwaddr.sa_family != 1 /* Ethernet */)
		return -EPROTOTYPE;
	memcpy(n->mac, ifr.ifr_hwaddr.sa_data, sizeof(n->mac));
	return 0;
}

int
kd_netdev_read(const char *name, const struct kd_addrs *keep, struct kd_netdev *n)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	memset(n, 0, sizeof(*n));
	if (fd < 0)
		return -errno;
	snprintf(n->name, sizeof(n->name), "%s", name);
	rc = read_link(n, fd);
	close(fd);
	if (rc == 0)
		rc = read_addresses(n, keep);
	n->rx_queues = count_rx_queues(name);
	return rc;
}

/* --- filters --- */

static int
xdp_attach(int fd, struct sock_filter *code, unsigned short len)
{
	struct sock_fprog prog = {.len = len, .filter = code};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) == 0 ? 0 : -errno;
}

int
kd_netdev_silence(const struct kd_netdev *n)
{
	struct sock_filter drop[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(ROCE_PORT)};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), zero = 0, one = 1, rc = 0;
	bool v6 = fd >= 0;
	struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_port = htons(ROCE_PORT)};

	if (fd < 0) /* a kernel without IPv6 */
		fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (v6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero)) != 0)
		rc = -errno;
	if (rc == 0)
		rc = xdp_attach(fd, drop, KARST_DIM(drop));
	/* Otherwise the kernel would divide trains for a socket that drops them (net_kport). */
	(void)setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one));
	if (rc == 0 &&
		setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, n->name, (socklen_t)strlen(n->name)) !=
			0)
		rc = -errno;
	if (rc == 0 &&
		bind(fd, v6 ? (void *)&at : (void *)&at4, v6 ? sizeof(at) : sizeof(at4)) != 0)
		rc = -errno;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

#define LOAD8(off)      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, off)
#define LOAD16(off)     BPF_STMT(BPF_LD | BPF_H | BPF_ABS, off)
#define UNLESS(v, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, v, 0, skip)
#define IF(v, skip)     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, v, skip, 0)
#define L3              14u

/*
 * Accepts UDP to port 4791 over IPv4 if it is not a later fragment, or over IPv6 without extension
 * headers, but not what this machine sends itself.  All other frames are handled by the kernel, and
 * would only fill the ring and wake a sleeping lcore.
 */
int
kd_netdev_only_roce(int fd)
{
	struct sock_filter code[] = {
		/* 0 */ LOAD16(SKF_AD_OFF + SKF_AD_PKTTYPE),
		/* 1 */ IF(PACKET_OUTGOING, 15),
		/* 2 */ LOAD16(12),
		/* 3 */ UNLESS(ETHERTYPE_IP, 7),
		/* 4 */ LOAD8(L3 + 9),
		/* 5 */ UNLESS(IPPROTO_UDP, 11),
		/* 6 */ LOAD16(L3 + 6),
		/* 7 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 9, 0),
		/* 8 */ BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, L3),
		/* 9 */ BPF_STMT(BPF_LD | BPF_H | BPF_IND, L3 + 2),
		/* 10 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ROCE_PORT, 5, 6),
		/* 11 */ UNLESS(ETHERTYPE_IPV6, 5),
		/* 12 */ LOAD8(L3 + 6),
		/* 13 */ UNLESS(IPPROTO_UDP, 3),
		/* 14 */ LOAD16(L3 + 42),
		/* 15 */ UNLESS(ROCE_PORT, 1),
		/* 16 */ BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		/* 17 */ BPF_STMT(BPF_RET | BPF_K, 0),
	};

	return xdp_attach(fd, code, KARST_DIM(code));
}

int
kd_netdev_all_groups(int fd)
{
	struct packet_mreq all = {.mr_type = PACKET_MR_ALLMULTI};
	struct sockaddr_ll at = {0};
	socklen_t len = sizeof(at);

	if (getsockname(fd, (struct sockaddr *)&at, &len) != 0)
		return -errno;
	all.mr_ifindex = at.sll_ifindex;
	return setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all)) == 0 ? 0
											 : -errno;
}
