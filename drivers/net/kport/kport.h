/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * net_kport: a kernel interface as a DPDK port, at the speed that the kernel has for trains.
 *
 *	kport.c   the device: arguments, what DPDK asks of it
 *	sock.c    packet sockets: how they are made, what is told when the kernel refuses something
 *	tap.c     or taps, of which the port is the other end
 *	recv.c    receiving: trains arrive in the buffers of their datagrams
 *	ring.c    small frames arrive in memory that the kernel shares
 *	send.c    sending: frames in a row become trains
 *	train.c   headers of trains and of their datagrams; no I/O
 *
 * By one packet socket, or tap, a queue pair receives and sends.  Its lcore calls recvmmsg() and
 * sendmmsg(), or readv() and writev(); everything else is for the thread that configures the
 * device.
 */
#ifndef KPORT_H
#define KPORT_H

#include <net/if.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <linux/virtio_net.h>

#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>

#include "dpdk23.h"
#include "train.h"

#define KP_MAX_QUEUES 64u
/* Newer headers than those of Linux 6.1 name it. */
#define KP_GSO_UDP_L4 5u

/** Messages of one recvmmsg(), and buffers that wait in each. */
#define KP_RX_SLOTS 8u
#define KP_RX_BUFS  KP_TRAIN_MAX
/** Datagrams from this size on are received into buffers of their own; smaller ones are copied. */
#define KP_SCATTER_LEAST 512u
#define KP_SPILL         65600u
/** What a poll can leave behind: one message is taken apart completely. */
#define KP_RX_READY (KP_RX_SLOTS * KP_TRAIN_MAX_RX)
/** Bytes of a slot of a ring, the kernel's header and the virtio header among them. */
#define KP_RING_SLOT 2048u

/** Messages of one sendmmsg(), and pieces of all of them. */
#define KP_TX_MSGS 64u
#define KP_TX_IOVS 256u

/** What Linux allows an Ethernet tap. */
#define KP_TAP_MTU_MAX 65521u

extern int kp_logtype;
#define KP_LOG(level, ...) rte_log(RTE_LOG_##level, (uint32_t)kp_logtype, "net_kport: " __VA_ARGS__)

/** What is said once of a port. */
enum kp_said {
	KP_SAID_VNET = 1,
	KP_SAID_TRAINS = 2,
	KP_SAID_RCVBUF = 4,
	KP_SAID_SNDBUF = 8,
	KP_SAID_TOO_LONG = 32,
	KP_SAID_FILTER = 128,
	KP_SAID_RING = 256,
};

/** Which queue a frame is given to: by the UDP source port, the low bits of the destination QP's
 *  number, or the processor that the interface's interrupt was on. */
enum kp_spread { KP_SPREAD_QPN, KP_SPREAD_FLOW, KP_SPREAD_CPU };

/** A message that waits to be received. */
struct kp_slot {
	struct virtio_net_hdr vnet;
	uint16_t nbufs;
	uint16_t seg;   /* payload bytes of each buffer but the first one's headers; 0: no train */
	uint16_t first; /* bytes that the first buffer takes */
	uint8_t hdr;    /* headers that buffers leave room for */
	struct rte_mbuf *buf[KP_RX_BUFS];
	struct iovec iov[KP_RX_BUFS + 2];
	uint8_t control[64];
	uint8_t *spill; /* takes what no buffer has room for */
};

struct kp_rx_stats {
	uint64_t frames, bytes;
	uint64_t trains;    /* of several datagrams */
	uint64_t datagrams; /* of these trains */
	uint64_t copied;    /* datagrams that were copied out of a train */
	uint64_t bad;       /* messages whose virtio header or headers say what is not so */
	uint64_t too_long;  /* datagrams that no buffer holds */
	uint64_t no_bufs;   /* datagrams for which there was none */
	uint64_t errors;    /* of recvmmsg() */
	uint64_t missed;    /* messages in the ring for whose rest the socket had no room */
};

/** Memory that a packet socket shares; base NULL: none. */
struct kp_ring {
	uint8_t *base;
	uint32_t mask; /* slots less one */
	uint32_t head; /* the next to be looked at */
	uint32_t owed; /* messages that the socket has of slots before that */
};

struct kp_rxq {
	int fd;
	struct kp_port *port;
	struct rte_mempool *pool;
	uint16_t port_id;
	uint32_t room; /* of a buffer, behind the headroom */
	/* what the next train is expected to be; seg 0: none */
	uint16_t seg;
	uint8_t hdr;
	uint16_t other_seg; /* of the last train that was not so */
	struct kp_rx_stats stats;
	struct kp_ring *ring; /* of its socket; NULL: none, or stopped */
	struct mmsghdr msg[KP_RX_SLOTS];
	struct kp_slot slot[KP_RX_SLOTS];
	uint32_t ready_head, nready;
	struct rte_mbuf *ready[KP_RX_READY];
};

struct kp_tx_stats {
	uint64_t frames, bytes;
	uint64_t trains, datagrams;
	uint64_t full;   /* bursts that the socket did not take whole */
	uint64_t errors; /* frames that the kernel refused */
};

struct kp_txq {
	int fd;
	struct kp_port *port;
	struct kp_tx_stats stats;
	struct mmsghdr msg[KP_TX_MSGS];
	struct virtio_net_hdr vnet[KP_TX_MSGS];
	uint16_t mbufs[KP_TX_MSGS];  /* that a message is made of */
	uint16_t pieces[KP_TX_MSGS]; /* datagrams in it */
	uint32_t bytes[KP_TX_MSGS];
	uint8_t hdr[KP_TX_MSGS][KP_HEADERS_MAX];
	struct iovec iov[KP_TX_IOVS];
};

struct kp_port {
	char iface[IF_NAMESIZE];
	bool tap; /* the port is the other end of it */
	uint16_t nq;
	uint16_t most_queues;
	bool roce;   /* nothing but RoCE is received */
	bool tags;   /* the kernel takes tags out of frames, and says which */
	bool trains; /* wanted */
	bool want_ring;
	enum kp_spread spread;
	uint32_t rcvbuf, sndbuf;
	struct rte_eth_dev_data *data;
	struct rte_ether_addr mac;
	/* of the interface when it was looked at last */
	_Atomic unsigned int ifindex;
	uint32_t mtu;
	_Atomic bool vnet;      /* the sockets speak virtio headers */
	_Atomic bool tx_trains; /* the kernel takes trains */
	_Atomic uint32_t said;  /* enum kp_said */
	bool started;
	int fd[KP_MAX_QUEUES];              /* -1: not opened; kept from one start to the next */
	struct kp_ring ring[KP_MAX_QUEUES]; /* of these */
	uint64_t missed;                    /* frames that found a socket full */
	uint64_t missed_base;               /* of a tap, when they were reset last */
	struct kp_rx_stats rx_base[KP_MAX_QUEUES];
	struct kp_tx_stats tx_base[KP_MAX_QUEUES];
	struct kp_rxq *rxq[KP_MAX_QUEUES];
	struct kp_txq *txq[KP_MAX_QUEUES];
};

/** Single writer; other threads see whole values. */
static inline void
kp_add(uint64_t *to, uint64_t n)
{
	__atomic_store_n(to, *to + n, __ATOMIC_RELAXED);
}

/** Says something about a port, the first time that it is the case. */
__attribute__((format(printf, 3, 4))) void kp_say_once(
	struct kp_port *p, enum kp_said what, const char *fmt, ...);

/* --- sock.c --- */

/** Looks at the interface: index, MTU, MAC, flags.  -errno; -ENODEV: there is none. */
int kp_iface_read(struct kp_port *p, unsigned int *ifindex, unsigned int *flags);
/** Link speed in Mb/s; RTE_ETH_SPEED_NUM_UNKNOWN. */
uint32_t kp_iface_speed(const struct kp_port *p);

/** What is in the ring, and what the socket owes of it, is forgotten; the socket receives
 *  nothing any more. */
void kp_ring_drop(struct kp_ring *r);

/** Opens the sockets of all queues, or uses those that there are; they receive from then on.
 * -errno; said in words. */
int kp_sockets_open(struct kp_port *p);
/** They receive nothing from now on. */
void kp_sockets_mute(struct kp_port *p);
/** Of taps, too. */
void kp_sockets_close(struct kp_port *p);
/** Has the system taken the sockets off their interface?  It does when the interface leaves its
 *  namespace, and they stay so when it comes back. */
bool kp_sockets_astray(const struct kp_port *p);
/** The interface has gone and one of the same name has come: the sockets are bound to that. */
int kp_sockets_follow(struct kp_port *p, unsigned int ifindex);
/** Adds or removes an enum packet_mreq type.  -errno. */
int kp_membership(struct kp_port *p, unsigned short type, bool on);
/** Frames that found a socket full since the last call. */
uint64_t kp_sockets_missed(struct kp_port *p);

/* --- tap.c --- */

/** Opens a tap for each of the queues that there may be.  -errno; said in words. */
int kp_tap_open(struct kp_port *p);
/** 0 or -errno. */
int kp_tap_set_mtu(struct kp_port *p, uint16_t mtu);
void kp_tap_start(struct kp_port *p);
void kp_tap_stop(struct kp_port *p);
/** Whether the interface is still there, though perhaps in another namespace. */
bool kp_tap_lives(const struct kp_port *p);
/** Frames for which there was no room, since the tap was made. */
uint64_t kp_tap_missed(const struct kp_port *p);
/** As recvmmsg() and sendmmsg() do. */
int kp_tap_recv(int fd, struct mmsghdr *msg, unsigned int n);
int kp_tap_send(int fd, const struct mmsghdr *msg, unsigned int n);

/* --- recv.c, send.c --- */

int kp_rxq_init(struct kp_rxq *q);
/** Buffers for the first messages; nothing is known of trains yet. */
void kp_rxq_arm(struct kp_rxq *q);
void kp_rxq_fini(struct kp_rxq *q);
uint16_t kp_rx_burst(void *queue, struct rte_mbuf **bufs, uint16_t n);
uint16_t kp_tx_burst(void *queue, struct rte_mbuf **bufs, uint16_t n);

#endif /* KPORT_H */
