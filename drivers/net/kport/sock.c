/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Packet sockets.  They are created when the device starts: the filter is attached before the
 * socket is bound, so that a socket never contains frames that were not asked for.
 *
 * If the kernel refuses an option, that is logged once, with its consequence: without virtio
 * headers there are no trains in either direction, without a large receive buffer frames may be
 * lost under load.
 */
#include "kport.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/ethtool.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <netinet/in.h>

#define ROCE_PORT  4791u
#define RING_BLOCK (128u << 10)
/* No frame has this protocol: numbers below 1536 are lengths. */
#define NO_PROTOCOL 0x05ffu
#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

int kp_logtype;

void
kp_say_once(struct kp_port *p, enum kp_said what, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	/* relaxed: it orders no other accesses */
	if (atomic_fetch_or_explicit(&p->said, what, memory_order_relaxed) & what)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	KP_LOG(WARNING, "%s: %s\n", p->iface, text);
}

/* --- the interface --- */

static int
read_iface(struct kp_port *p, int fd, unsigned int *ifindex, unsigned int *flags)
{
	struct ifreq ifr = {0};

	memcpy(ifr.ifr_name, p->iface, sizeof(p->iface));
	if (ioctl(fd, SIOCGIFINDEX, &ifr) != 0)
		return -errno;
	*ifindex = (unsigned int)ifr.ifr_ifindex;
	if (ioctl(fd, SIOCGIFFLAGS, &ifr) != 0)
		return -errno;
	*flags = (unsigned short)ifr.ifr_flags;
	if (ioctl(fd, SIOCGIFMTU, &ifr) != 0)
		return -errno;
	/* relaxed: lcores read it */
	__atomic_store_n(&p->mtu, (uint32_t)ifr.ifr_mtu, __ATOMIC_RELAXED);
	if (ioctl(fd, SIOCGIFHWADDR, &ifr) != 0)
		return -errno;
	if (ifr.ifr_hwaddr.sa_family != 1 /* Ethernet */)
		return -EPROTOTYPE;
	if (!p->tap)
		memcpy(p->mac.addr_bytes, ifr.ifr_hwaddr.sa_data, sizeof(p->mac.addr_bytes));
	return 0;
}

int
kp_iface_read(struct kp_port *p, unsigned int *ifindex, unsigned int *flags)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return -errno;
	rc = read_iface(p, fd, ifindex, flags);
	close(fd);
	if (rc == -ENODEV && p->tap && kp_tap_lives(p)) {
		/* moved to another namespace, and can only be read there */
		*ifindex = p->ifindex;
		*flags = IFF_UP | IFF_RUNNING;
		rc = 0;
	}
	return rc;
}

uint32_t
kp_iface_speed(const struct kp_port *p)
{
	struct ethtool_cmd cmd = {.cmd = ETHTOOL_GSET};
	struct ifreq ifr = {.ifr_data = (void *)&cmd};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return RTE_ETH_SPEED_NUM_UNKNOWN;
	memcpy(ifr.ifr_name, p->iface, sizeof(p->iface));
	rc = ioctl(fd, SIOCETHTOOL, &ifr);
	close(fd);
	if (rc != 0 || ethtool_cmd_speed(&cmd) == (uint32_t)SPEED_UNKNOWN)
		return RTE_ETH_SPEED_NUM_UNKNOWN;
	return ethtool_cmd_speed(&cmd);
}

/* --- filters, in the classic BPF of sockets --- */

#define LOAD8(off)      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, off)
#define LOAD16(off)     BPF_STMT(BPF_LD | BPF_H | BPF_ABS, off)
#define LOAD32(off)     BPF_STMT(BPF_LD | BPF_W | BPF_ABS, off)
#define UNLESS(v, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, v, 0, skip)
#define IF(v, skip)     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, v, skip, 0)
#define KEEP            BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)
#define DROP            BPF_STMT(BPF_RET | BPF_K, 0)
#define AD(what)        (SKF_AD_OFF + (what))

/* Frames that the interface receives, without those that this machine sends through it. */
static const struct sock_filter incoming[] = {
	LOAD16(AD(SKF_AD_PKTTYPE)), IF(PACKET_OUTGOING, 1), KEEP, DROP};

/* Of those: UDP to port 4791 without a tag that the kernel has removed (except a priority tag),
 * over IPv4 if it is not a later fragment, or over IPv6 without extension headers. */
static const struct sock_filter roce[] = {
	/* 0 */ LOAD16(AD(SKF_AD_PKTTYPE)),
	/* 1 */ IF(PACKET_OUTGOING, 19),
	/* 2 */ LOAD16(AD(SKF_AD_VLAN_TAG_PRESENT)),
	/* 3 */ IF(0, 2),
	/* 4 */ LOAD16(AD(SKF_AD_VLAN_TAG)),
	/* 5 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0xfff, 15, 0),
	/* 6 */ LOAD16(12),
	/* 7 */ UNLESS(ETH_P_IP, 7),
	/* 8 */ LOAD8(14 + 9),
	/* 9 */ UNLESS(IPPROTO_UDP, 11),
	/* 10 */ LOAD16(14 + 6),
	/* 11 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 9, 0),
	/* 12 */ BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 14),
	/* 13 */ BPF_STMT(BPF_LD | BPF_H | BPF_IND, 14 + 2),
	/* 14 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ROCE_PORT, 5, 6),
	/* 15 */ UNLESS(ETH_P_IPV6, 5),
	/* 16 */ LOAD8(14 + 6),
	/* 17 */ UNLESS(IPPROTO_UDP, 3),
	/* 18 */ LOAD16(14 + 42),
	/* 19 */ UNLESS(ROCE_PORT, 1),
	/* 20 */ KEEP,
	/* 21 */ DROP,
};

/*
 * The queue of a frame, as a number that is taken modulo the number of queues.  The number is the
 * last byte of the destination QP's number, whose low bits name an lcore of karst; or a hash of
 * addresses and ports; or the CPU.  Frames without such a number go to the first queue.  The code
 * ends behind its last line with the number in A, and keep_own() continues there.  A load from
 * behind the end of a frame would drop the frame, so lengths are checked first.
 */
#define GOTO(skip)     BPF_JUMP(BPF_JMP | BPF_JA, skip, 0, 0)
#define A_IS(value)    BPF_STMT(BPF_LD | BPF_IMM, value)
#define LENGTH         BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0)
#define SHORT(v, skip) BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, v, 0, skip)
#define TAX            BPF_STMT(BPF_MISC | BPF_TAX, 0)
#define XOR_X          BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0)
#define IP4_PLAIN      0x45u /* no options */

static const struct sock_filter by_qpn[] = {
	/* 0 */ LENGTH,
	/* 1 */ SHORT(14 + 20 + 8 + 8, 21),
	/* 2 */ LOAD16(12),
	/* 3 */ UNLESS(ETH_P_IPV6, 8),
	/* 4 */ LENGTH,
	/* 5 */ SHORT(14 + 40 + 8 + 8, 17),
	/* 6 */ LOAD8(14 + 6),
	/* 7 */ UNLESS(IPPROTO_UDP, 15),
	/* 8 */ LOAD16(14 + 40 + 2),
	/* 9 */ UNLESS(ROCE_PORT, 13),
	/* 10 */ LOAD8(14 + 40 + 8 + 7),
	/* 11 */ GOTO(12),
	/* 12 */ UNLESS(ETH_P_IP, 10),
	/* 13 */ LOAD8(14),
	/* 14 */ UNLESS(IP4_PLAIN, 8),
	/* 15 */ LOAD8(14 + 9),
	/* 16 */ UNLESS(IPPROTO_UDP, 6),
	/* 17 */ LOAD16(14 + 6),
	/* 18 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 4, 0),
	/* 19 */ LOAD16(14 + 20 + 2),
	/* 20 */ UNLESS(ROCE_PORT, 2),
	/* 21 */ LOAD8(14 + 20 + 8 + 7),
	/* 22 */ GOTO(1),
	/* 23 */ A_IS(0),
};

static const struct sock_filter by_flow[] = {
	/* 0 */ LENGTH,
	/* 1 */ SHORT(14 + 20 + 4, 29),
	/* 2 */ LOAD16(12),
	/* 3 */ UNLESS(ETH_P_IPV6, 9),
	/* 4 */ LENGTH,
	/* 5 */ SHORT(14 + 40 + 4, 25),
	/* 6 */ LOAD32(14 + 20),
	/* 7 */ TAX,
	/* 8 */ LOAD32(14 + 36),
	/* 9 */ XOR_X,
	/* 10 */ TAX,
	/* 11 */ LOAD32(14 + 40),
	/* 12 */ GOTO(9),
	/* 13 */ UNLESS(ETH_P_IP, 17),
	/* 14 */ LOAD8(14),
	/* 15 */ UNLESS(IP4_PLAIN, 15),
	/* 16 */ LOAD32(14 + 12),
	/* 17 */ TAX,
	/* 18 */ LOAD32(14 + 16),
	/* 19 */ XOR_X,
	/* 20 */ TAX,
	/* 21 */ LOAD32(14 + 20),
	/* 22 */ XOR_X,
	/* 23 */ TAX,
	/* 24 */ BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 16),
	/* 25 */ XOR_X,
	/* 26 */ TAX,
	/* 27 */ BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 8),
	/* 28 */ XOR_X,
	/* 29 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff),
	/* 30 */ GOTO(1),
	/* 31 */ A_IS(0),
};

static const struct sock_filter nothing[] = {DROP};

static const struct sock_filter by_cpu[] = {LOAD32(AD(SKF_AD_CPU))};

static const struct {
	const struct sock_filter *code;
	size_t n;
} numbers[] = {
	[KP_SPREAD_QPN] = {by_qpn, RTE_DIM(by_qpn)},
	[KP_SPREAD_FLOW] = {by_flow, RTE_DIM(by_flow)},
	[KP_SPREAD_CPU] = {by_cpu, RTE_DIM(by_cpu)},
};

#define OWN        4u /* statements of keep_own() */
#define FILTER_MAX (RTE_DIM(roce) + RTE_DIM(by_flow) + OWN)

/* Keeps the frame if its number, in A, selects this queue. */
static void
keep_own(struct sock_filter *to, uint32_t queue, uint32_t queues)
{
	const struct sock_filter own[OWN] = {
		BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, queues), UNLESS(queue, 1), KEEP, DROP};

	memcpy(to, own, sizeof(own));
}

static int
set(int fd, int level, int option, const void *value, socklen_t len)
{
	return setsockopt(fd, level, option, value, len) == 0 ? 0 : -errno;
}

static int
set_int(int fd, int level, int option, int value)
{
	return set(fd, level, option, &value, sizeof(value));
}

/* The kernel only reads @code, although its structure has a pointer to non-const. */
static int
attach(int fd, const struct sock_filter *code, size_t n)
{
	const struct sock_fprog prog = {
		.len = (unsigned short)n, .filter = (struct sock_filter *)(uintptr_t)code};

	return set(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog));
}

/* Sets the filter for queue @queue of the port.  Each socket decides for itself, instead of in a
 * group (PACKET_FANOUT), since a member of a group cannot be bound to an interface that was created
 * anew. */
static int
set_filter(const struct kp_port *p, int fd, uint32_t queue)
{
	const struct sock_filter *all = p->roce ? roce : incoming;
	size_t n = p->roce ? RTE_DIM(roce) : RTE_DIM(incoming), more = numbers[p->spread].n;
	struct sock_filter code[FILTER_MAX];

	if (queue >= p->nrx)
		return attach(fd, nothing, RTE_DIM(nothing));
	if (p->nrx == 1)
		return attach(fd, all, n);
	memcpy(code, all, n * sizeof(code[0]));
	/* instead of keeping the frame, goes on behind "drop" */
	code[n - 2] = (struct sock_filter)GOTO(1);
	memcpy(code + n, numbers[p->spread].code, more * sizeof(code[0]));
	keep_own(code + n + more, queue, p->nrx);
	return attach(fd, code, n + more + OWN);
}

/* Stops receiving, and discards what was received. */
static void
mute(int fd)
{
	char byte;

	(void)attach(fd, nothing, RTE_DIM(nothing));
	while (recv(fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) >= 0)
		;
}

/* --- sockets --- */

static void
set_buffer(struct kp_port *p, int fd, bool receive)
{
	int want = (int)(receive ? p->rcvbuf : p->sndbuf), got = 0;
	socklen_t len = sizeof(got);

	if (set_int(fd, SOL_SOCKET, receive ? SO_RCVBUFFORCE : SO_SNDBUFFORCE, want) == 0)
		return;
	(void)set_int(fd, SOL_SOCKET, receive ? SO_RCVBUF : SO_SNDBUF, want);
	getsockopt(fd, SOL_SOCKET, receive ? SO_RCVBUF : SO_SNDBUF, &got, &len);
	if (got / 2 >= want)
		return;
	kp_say_once(p, receive ? KP_SAID_RCVBUF : KP_SAID_SNDBUF,
		"the kernel allows %d bytes of socket buffer instead of %d, so %s; raise "
		"net.core.%s, or give CAP_NET_ADMIN",
		got / 2, want, receive ? "frames may be lost under load" : "bursts are shorter",
		receive ? "rmem_max" : "wmem_max");
}

/* Makes the kernel allocate a ring.  Each slot is for one frame. */
static int
make_ring(int fd, uint32_t slots)
{
	const struct tpacket_req req = {.tp_block_size = RING_BLOCK,
		.tp_block_nr = slots / (RING_BLOCK / KP_RING_SLOT),
		.tp_frame_size = KP_RING_SLOT,
		.tp_frame_nr = slots};

	return set(fd, SOL_PACKET, PACKET_RX_RING, &req, sizeof(req));
}

/* Maps a ring, which gets a quarter of the memory of the socket. */
static int
map_ring(struct kp_port *p, int fd, struct kp_ring *r)
{
	uint32_t slots = RTE_MAX(rte_align32prevpow2(p->rcvbuf / 4), RING_BLOCK) / KP_RING_SLOT;
	void *base;
	int rc = set_int(fd, SOL_PACKET, PACKET_VERSION, TPACKET_V2);

	/* frames that do not fit into a slot arrive through the socket */
	if (rc == 0)
		rc = set_int(fd, SOL_PACKET, PACKET_COPY_THRESH, 1);
	if (rc == 0)
		rc = make_ring(fd, slots);
	if (rc != 0)
		return rc;
	base = mmap(NULL, (size_t)slots * KP_RING_SLOT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	*r = (struct kp_ring){.base = base, .mask = slots - 1};
	return 0;
}

static size_t
ring_bytes(const struct kp_ring *r)
{
	return (size_t)(r->mask + 1) * KP_RING_SLOT;
}

static void
unmap_ring(struct kp_ring *r)
{
	if (r->base != NULL)
		munmap(r->base, ring_bytes(r));
	*r = (struct kp_ring){0};
}

/* The socket receives without a ring. */
static int
end_ring(int fd)
{
	static const struct tpacket_req none;

	return set(fd, SOL_PACKET, PACKET_RX_RING, &none, sizeof(none));
}

/* Sets up the ring.  Without it, frames are received by system calls. */
static int
set_ring(struct kp_port *p, int fd, struct kp_ring *r)
{
	int rc = p->want_ring ? map_ring(p, fd, r) : 0;

	if (rc == 0)
		return 0;
	kp_say_once(p, KP_SAID_RING,
		"the kernel refuses a ring (%s): each look costs a system call", strerror(-rc));
	/* A ring that could not be mapped must not receive frames.  A kernel without rings refuses
	 * this call as well. */
	rc = end_ring(fd);
	return rc == -EINVAL || rc == -ENOPROTOOPT ? 0 : rc;
}

static int
bind_to(int fd, unsigned int ifindex, uint16_t protocol)
{
	const struct sockaddr_ll at = {.sll_family = AF_PACKET,
		.sll_protocol = htons(protocol),
		.sll_ifindex = (int)ifindex};

	return bind(fd, (const void *)&at, sizeof(at)) == 0 ? 0 : -errno;
}

/* @return a descriptor that does not receive yet, or -errno. */
static int
open_one(struct kp_port *p, struct kp_ring *ring)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return -errno;
	mute(fd);
	rc = set_int(fd, SOL_PACKET, PACKET_VNET_HDR, 1);
	if (rc != 0) {
		kp_say_once(p, KP_SAID_VNET,
			"the kernel refuses virtio headers on packet sockets (%s): frames go one by one, "
			"and trains of programs on this machine are lost here: trains=0 there",
			strerror(-rc));
		p->vnet = p->tx_trains = false;
	}
	/* Without the first, the filter runs for each frame that is sent; the second is for
	 * tags. */
	(void)set_int(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
	if (!p->roce)
		(void)set_int(fd, SOL_PACKET, PACKET_AUXDATA, 1);
	set_buffer(p, fd, true);
	set_buffer(p, fd, false);
	rc = set_ring(p, fd, ring);
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

/* Sockets of an earlier start are used again: the process may have lost the right to create
 * sockets. */
static int
open_all(struct kp_port *p)
{
	uint16_t i;

	for (i = 0; i < p->nq; i++) {
		if (p->fd[i] >= 0)
			continue;
		p->fd[i] = open_one(p, &p->ring[i]);
		if (p->fd[i] < 0)
			return p->fd[i];
	}
	return 0;
}

int
kp_sockets_open(struct kp_port *p)
{
	unsigned int flags, ifindex = 0;
	uint16_t i;
	int rc = kp_iface_read(p, &ifindex, &flags);

	if (p->fd[0] < 0) {
		p->vnet = true;
		p->tx_trains = p->trains;
	}
	if (rc == 0)
		rc = open_all(p);
	for (i = 0; rc == 0 && i < p->nq; i++) {
		rc = bind_to(p->fd[i], ifindex, ETH_P_ALL);
		if (rc == 0)
			rc = set_filter(p, p->fd[i], i);
	}
	p->ifindex = ifindex;
	if (rc == 0)
		return 0;
	KP_LOG(ERR, "%s: a packet socket: %s%s\n", p->iface, strerror(-rc),
		rc == -EPERM ? " (it needs CAP_NET_RAW)" : "");
	kp_sockets_mute(p);
	return rc;
}

void
kp_sockets_mute(struct kp_port *p)
{
	uint16_t i;

	for (i = 0; i < KP_MAX_QUEUES; i++)
		if (p->fd[i] >= 0) {
			mute(p->fd[i]);
			/* relaxed: the lcore does not receive any more */
			if (atomic_load_explicit(&p->ring[i].change, memory_order_relaxed) ==
				KP_RING_GONE)
				unmap_ring(&p->ring[i]);
			kp_ring_drop(&p->ring[i]);
		}
}

void
kp_sockets_close(struct kp_port *p)
{
	uint16_t i;

	for (i = 0; i < KP_MAX_QUEUES; i++) {
		if (p->fd[i] >= 0)
			close(p->fd[i]);
		p->fd[i] = -1;
		unmap_ring(&p->ring[i]);
	}
}

bool
kp_sockets_astray(const struct kp_port *p)
{
	struct sockaddr_ll at;
	socklen_t len = sizeof(at);

	return getsockname(p->fd[0], (void *)&at, &len) == 0 && at.sll_ifindex != (int)p->ifindex;
}

int
kp_membership(struct kp_port *p, unsigned short type, bool on)
{
	struct packet_mreq req = {.mr_ifindex = (int)p->ifindex, .mr_type = type};

	if (p->tap)
		return 0; /* everything that the other end sends is received */
	if (!p->started)
		return 0; /* done when the device is started */
	return set(p->fd[0], SOL_PACKET, on ? PACKET_ADD_MEMBERSHIP : PACKET_DROP_MEMBERSHIP, &req,
		sizeof(req));
}

void
kp_memberships_drop(struct kp_port *p)
{
	/* it fails for what is not set */
	(void)kp_membership(p, PACKET_MR_PROMISC, false);
	(void)kp_membership(p, PACKET_MR_ALLMULTI, false);
}

int
kp_sockets_follow(struct kp_port *p, unsigned int ifindex)
{
	uint16_t i;
	int rc = 0;

	kp_memberships_drop(p); /* of an interface that has only got another name */
	for (i = 0; rc == 0 && i < p->nq; i++)
		rc = bind_to(p->fd[i], ifindex, ETH_P_ALL);
	if (rc == 0) {
		p->ifindex = ifindex;
		if (rte_eth_promiscuous_get(p->data->port_id) == 1)
			(void)kp_membership(p, PACKET_MR_PROMISC, true);
		if (rte_eth_allmulticast_get(p->data->port_id) == 1)
			(void)kp_membership(p, PACKET_MR_ALLMULTI, true);
		KP_LOG(NOTICE, "%s: the interface was made anew or came back, and is used again\n",
			p->iface);
	}
	return rc;
}

uint64_t
kp_sockets_missed(struct kp_port *p)
{
	struct tpacket_stats st;
	socklen_t len = sizeof(st);
	uint64_t n = 0;
	uint16_t i;

	for (i = 0; i < p->nq; i++)
		if (p->fd[i] >= 0 &&
			getsockopt(p->fd[i], SOL_PACKET, PACKET_STATISTICS, &st, &len) == 0) {
			/* relaxed: counters */
			atomic_fetch_add_explicit(
				&p->ring[i].drops, st.tp_drops, memory_order_relaxed);
			n += st.tp_drops;
		}
	return n;
}

/* --- rings that have stopped --- */

/* Has the ring dropped frames since the last call, and delivered none? */
static bool
has_stopped(struct kp_ring *r)
{
	uint64_t drops = atomic_load_explicit(&r->drops, memory_order_relaxed);
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	bool stopped = drops != r->seen_drops && head == r->seen_head && kp_ring_empty(r);

	r->seen_drops = drops;
	r->seen_head = head;
	return stopped;
}

/* Replaces a ring, as ring.c explains.  The ring is empty, and no frame is on its way to it. */
static int
renew(int fd, struct kp_ring *r)
{
	uint32_t change = KP_RING_SAME;
	int rc;

	if (mmap(r->base, ring_bytes(r), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return -errno;
	rc = end_ring(fd);
	if (rc == 0) {
		change = KP_RING_NEW;
		rc = make_ring(fd, r->mask + 1);
	}
	/* the new ring, or the old one if it could not be ended */
	if (mmap(r->base, ring_bytes(r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
		MAP_FAILED) {
		rc = rc != 0 ? rc : -errno;
		(void)end_ring(fd);
		change = KP_RING_GONE;
	}
	/* release, pairs with take_note() */
	atomic_store_explicit(&r->change, change, memory_order_release);
	return rc;
}

void
kp_rings_renew(struct kp_port *p)
{
	uint16_t i;
	int rc;

	if (atomic_flag_test_and_set_explicit(&p->renewing, memory_order_acquire))
		return;
	for (i = 0; i < p->nq; i++) {
		struct kp_ring *r = &p->ring[i];

		if (p->fd[i] < 0 || r->base == NULL ||
			atomic_load_explicit(&r->change, memory_order_acquire) != KP_RING_SAME ||
			!has_stopped(r) || bind_to(p->fd[i], p->ifindex, NO_PROTOCOL) != 0)
			continue;
		rc = kp_ring_empty(r) ? renew(p->fd[i], r) : 0;
		(void)bind_to(p->fd[i], p->ifindex, ETH_P_ALL);
		if (rc == 0)
			kp_say_once(p, KP_SAID_RENEWED,
				"a frame stopped the kernel's ring of queue %u, and it has a new one",
				i);
		else
			kp_say_once(p, KP_SAID_RING,
				"a frame stopped the kernel's ring of queue %u, and it refuses another "
				"(%s)",
				i, strerror(-rc));
	}
	atomic_flag_clear_explicit(&p->renewing, memory_order_release);
}
