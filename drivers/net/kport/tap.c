/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A tap of the port's own, "tap=NAME" instead of "iface=NAME": the kernel has an interface of that
 * name, and the port is its other end, with a MAC address of its own.
 *
 *       host's stack, bridge, guest --- NAME ][ port
 *
 * It carries the same messages as a packet socket (a virtio header and a frame or a train), but
 * with one call for each.  Since Linux 6.2 the kernel's side may send trains if it is told that the
 * port accepts them (TUNSETOFFLOAD).  The taps, one for each queue, are opened with the port and
 * kept until it is closed; while the port is stopped, the interface has no carrier.
 */
#include "kport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/if_tun.h>

/* Have names in headers that are newer than those of Linux 6.1. */
#define KP_TUN_F_USO4 0x20u
#define KP_TUN_F_USO6 0x40u

/* --- opening --- */

static int
open_queue(const struct kp_port *p)
{
	struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	int bytes = sizeof(struct virtio_net_hdr), rc = 0;

	if (fd < 0)
		return -errno;
	if (p->most_queues > 1)
		ifr.ifr_flags |= IFF_MULTI_QUEUE;
	memcpy(ifr.ifr_name, p->iface, sizeof(p->iface));
	if (ioctl(fd, TUNSETIFF, &ifr) != 0 || ioctl(fd, TUNSETVNETHDRSZ, &bytes) != 0)
		rc = -errno;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

/* Tells the kernel which offloads the port accepts. */
static void
offer(struct kp_port *p)
{
	if (p->trains &&
		ioctl(p->fd[0], TUNSETOFFLOAD, TUN_F_CSUM | KP_TUN_F_USO4 | KP_TUN_F_USO6) == 0)
		return;
	if (p->trains)
		kp_say_once(p, KP_SAID_TRAINS,
			"the kernel has no trains for taps (%s; they need Linux 6.2): frames go one by "
			"one",
			strerror(errno));
	p->tx_trains = false;
	(void)ioctl(p->fd[0], TUNSETOFFLOAD, 0);
}

static const char *
reason(int rc)
{
	switch (rc) {
	case -EPERM:
		return " (it needs CAP_NET_ADMIN, or a tap that was made for this user)";
	case -EINVAL:
		return " (there is an interface of that name which is no tap, or one with as many "
		       "queues, multi_queue, as are asked for)";
	case -EBUSY:
		return " (another program has it)";
	case -ENOENT:
		return " (/dev/net/tun: the kernel's module tun is missing)";
	default:
		return "";
	}
}

int
kp_tap_open(struct kp_port *p)
{
	uint16_t i;

	p->vnet = true;
	p->tx_trains = p->trains;
	for (i = 0; i < p->most_queues; i++) {
		p->fd[i] = open_queue(p);
		if (p->fd[i] < 0) {
			int rc = p->fd[i];

			KP_LOG(ERR, "tap %s: %s%s\n", p->iface, strerror(-rc), reason(rc));
			kp_sockets_close(p);
			return rc;
		}
	}
	offer(p);
	return 0;
}

/* --- the interface --- */

/* @return 0 or -errno: a process that was given a tap may not be allowed to change its
 * interface. */
static int
change(const struct kp_port *p, unsigned long get, unsigned long request, short flags, int mtu)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = 0;
	struct ifreq ifr = {0};

	if (fd < 0)
		return -errno;
	memcpy(ifr.ifr_name, p->iface, sizeof(p->iface));
	if (ioctl(fd, get, &ifr) != 0)
		rc = -errno;
	if (request == SIOCSIFMTU)
		ifr.ifr_mtu = mtu;
	else
		ifr.ifr_flags |= flags;
	if (rc == 0 && ioctl(fd, request, &ifr) != 0)
		rc = -errno;
	close(fd);
	return rc;
}

int
kp_tap_set_mtu(struct kp_port *p, uint16_t mtu)
{
	int rc = mtu == p->mtu ? 0 : change(p, SIOCGIFMTU, SIOCSIFMTU, 0, mtu);

	if (rc == 0)
		p->mtu = mtu;
	return rc;
}

/* Detaches queues that the port does not use, so that they get no frames. */
static void
use_queues(const struct kp_port *p)
{
	uint16_t i;

	for (i = 0; p->most_queues > 1 && i < p->most_queues; i++) {
		struct ifreq ifr = {.ifr_flags = i < p->nq ? IFF_ATTACH_QUEUE : IFF_DETACH_QUEUE};

		(void)ioctl(p->fd[i], TUNSETQUEUE, &ifr); /* -EINVAL: it is in that state already */
	}
}

static void
drain(int fd)
{
	uint8_t byte;

	while (read(fd, &byte, sizeof(byte)) > 0)
		;
}

static void
set_carrier(const struct kp_port *p, int on)
{
	(void)ioctl(p->fd[0], TUNSETCARRIER, &on); /* Linux 5.0 */
}

void
kp_tap_start(struct kp_port *p)
{
	uint16_t i;

	use_queues(p);
	for (i = 0; i < p->nq; i++)
		drain(p->fd[i]);
	set_carrier(p, 1);
	/* a process without that right leaves it to the creator of the interface */
	(void)change(p, SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP, 0);
}

void
kp_tap_stop(struct kp_port *p)
{
	set_carrier(p, 0);
}

bool
kp_tap_lives(const struct kp_port *p)
{
	struct ifreq ifr = {0};

	return ioctl(p->fd[0], TUNGETIFF, &ifr) == 0;
}

/* From /proc/self/net/dev: "NAME: rx-bytes packets errors dropped ... tx-bytes packets errors
 * dropped".  Frames that the interface could not send are frames that the port has missed. */
uint64_t
kp_tap_missed(const struct kp_port *p)
{
	unsigned long long v[12];
	char line[512], name[IF_NAMESIZE];
	FILE *f = fopen("/proc/self/net/dev", "re");
	uint64_t n = 0;

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line,
			    " %15[^:]: %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu",
			    name, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], &v[8],
			    &v[9], &v[10], &v[11]) == 13 &&
			strcmp(name, p->iface) == 0)
			n = v[11];
	if (f != NULL)
		fclose(f);
	return n;
}

/* --- messages, in the form of recvmmsg() and sendmmsg() --- */

int
kp_tap_recv(int fd, struct mmsghdr *msg, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		const struct msghdr *h = &msg[i].msg_hdr;
		ssize_t got = readv(fd, h->msg_iov, (int)h->msg_iovlen);

		if (got < 0)
			return i > 0 ? (int)i : -1;
		msg[i].msg_len = (unsigned int)got;
		msg[i].msg_hdr.msg_controllen = 0;
	}
	return (int)n;
}

int
kp_tap_send(int fd, const struct mmsghdr *msg, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		const struct msghdr *h = &msg[i].msg_hdr;

		if (writev(fd, h->msg_iov, (int)h->msg_iovlen) < 0)
			return i > 0 ? (int)i : -1;
	}
	return (int)n;
}
