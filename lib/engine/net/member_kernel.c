/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Multicast groups of ports that are views of a kernel interface: the kernel joins them.
 *
 * On such an interface the kernel already speaks IGMP and MLD, for its own programs, and queries
 * may reach only the kernel (AF_XDP).  So the engine joins a group as any program does, by a socket
 * that it never reads; closing the socket leaves the group.  The kernel handles reports and the
 * device's filters.
 *
 * With an MTU of less than 1280 the kernel ends IPv6 on an interface, and forgets the IPv6 groups
 * that were joined there.  It does not join them again when the MTU allows IPv6 again, although the
 * sockets are still members as far as they know; and meanwhile it refuses to join.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "member_port.h"
#include "port.h"

struct kernel_member {
	uint8_t ip[16];
	int fd; /* -1: the kernel refused */
};

struct eng_member_kernel {
	uint32_t n;
	struct kernel_member member[];
};

/* @return a descriptor, or -errno. */
static int
kernel_join(unsigned int ifindex, const uint8_t ip[16])
{
	bool ip4 = karst_engine_ip_is_ip4(ip);
	struct group_req req = {.gr_interface = ifindex};
	int fd = socket(ip4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int ret;

	if (fd < 0)
		return -errno;
	if (ip4) {
		struct sockaddr_in *a = (struct sockaddr_in *)&req.gr_group;

		a->sin_family = AF_INET;
		memcpy(&a->sin_addr, ip + 12, 4);
	} else {
		struct sockaddr_in6 *a = (struct sockaddr_in6 *)&req.gr_group;

		a->sin6_family = AF_INET6;
		memcpy(&a->sin6_addr, ip, 16);
	}
	if (setsockopt(fd, ip4 ? IPPROTO_IP : IPPROTO_IPV6, MCAST_JOIN_GROUP, &req, sizeof(req)) ==
		0)
		return fd;
	ret = -errno;
	close(fd);
	return ret;
}

static void
kernel_leave(const struct kernel_member *m)
{
	if (m->fd >= 0)
		close(m->fd);
}

static struct kernel_member
join_on(struct karst_engine *e, const struct eng_port *p, const uint8_t ip[16])
{
	struct kernel_member m = {.fd = kernel_join(if_nametoindex(p->info.netdev), ip)};
	char text[ENG_IP_TEXT];

	memcpy(m.ip, ip, sizeof(m.ip));
	if (m.fd < 0)
		karst_log_some(&e->faults_log, engine_now(e), KARST_LOG_WARNING,
			"%s: the kernel does not join group %s on %s: %s", e->name,
			eng_ip_text(ip, text), p->info.netdev, rte_strerror(-m.fd));
	return m;
}

void
eng_member_kernel_set(
	struct karst_engine *e, struct eng_port *p, const uint8_t (*ips)[16], uint32_t n)
{
	struct eng_member_kernel *was = p->kernel_members, *is;
	uint32_t i = 0, j = 0, nwas = was != NULL ? was->n : 0;

	is = malloc(sizeof(*is) + n * sizeof(is->member[0]));
	if (is == NULL) {
		karst_log(KARST_LOG_WARNING, "%s: no memory for the groups of %s", e->name,
			p->info.netdev);
		return;
	}
	is->n = n;
	while (i < nwas || j < n) {
		int d = i == nwas ? 1 : j == n ? -1 : memcmp(was->member[i].ip, ips[j], 16);

		if (d < 0) {
			kernel_leave(&was->member[i++]);
			continue;
		}
		is->member[j] = d == 0 ? was->member[i++] : join_on(e, p, ips[j]);
		j++;
	}
	free(was);
	p->kernel_members = is;
}

void
eng_member_kernel_renew(struct karst_engine *e, struct eng_port *p)
{
	struct eng_member_kernel *m = p->kernel_members;
	uint32_t i;

	for (i = 0; m != NULL && i < m->n; i++) {
		if (karst_engine_ip_is_ip4(m->member[i].ip) && m->member[i].fd >= 0)
			continue;
		/* first leave: a socket that leaves later would take the new membership away */
		kernel_leave(&m->member[i]);
		m->member[i] = join_on(e, p, m->member[i].ip);
	}
}

void
eng_member_kernel_fini(struct eng_port *p)
{
	struct eng_member_kernel *m = p->kernel_members;
	uint32_t i;

	for (i = 0; m != NULL && i < m->n; i++)
		kernel_leave(&m->member[i]);
	free(m);
	p->kernel_members = NULL;
}
