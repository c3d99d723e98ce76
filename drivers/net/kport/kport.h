/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * net_kport: a kernel interface as a DPDK port, which uses the kernel's speed with trains.
 *
 *   kport.c   the device: arguments, DPDK's operations
 *   sock.c    packet sockets: creation, and messages when the kernel refuses something
 *   tap.c     or taps, of which the port is the other end
 *   recv.c    receiving: trains arrive in the buffers of their datagrams
 *   ring.c    small frames arrive in memory that the kernel shares
 *   send.c    sending: consecutive frames become trains
 *   train.c   headers of trains and of their datagrams; no I/O
 *
 * A queue pair receives and sends through one packet socket or tap.  Its lcore calls recvmmsg() and
 * sendmmsg(), or readv() and writev().  All other functions are called by the thread that
 * configures the device.
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
/* Has a name in headers that are newer than those of Linux 6.1. */
#define KP_GSO_UDP_L4 5u

/** Messages of one recvmmsg(), and buffers in each. */
#define KP_RX_SLOTS 8u
#define KP_RX_BUFS  KP_TRAIN_MAX
/** Datagrams from this size on are received into buffers of their own; smaller ones are copied. */
#define KP_SCATTER_LEAST 512u
#define KP_SPILL         65600u
/** Datagrams that may be left after a poll, because messages are always divided completely. */
#define KP_RX_READY (KP_RX_SLOTS * KP_TRAIN_MAX_RX)
/** Bytes of a slot of a ring, including the kernel's header and the virtio header. */
#define KP_RING_SLOT 2048u

/** Messages of one sendmmsg(), and iovecs of all of them. */
#define KP_TX_MSGS 64u
#define KP_TX_IOVS 256u

/** Linux's limit for an Ethernet tap. */
#define KP_TAP_MTU_MAX 65521u

extern int kp_logtype;
#define KP_LOG(level, ...) rte_log(RTE_LOG_##level, (uint32_t)kp_logtype, "net_kport: " __VA_ARGS__)

/** Messages that are logged once for a port. */
enum kp_said {
	KP_SAID_VNET = 1,
	KP_SAID_TRAINS = 2,
	KP_SAID_RCVBUF = 4,
	KP_SAID_SNDBUF = 8,
	KP_SAID_TOO_LONG = 32,
	KP_SAID_FILTER = 128,
	KP_SAID_RING = 256,
	KP_SAID_RENEWED = 512,
};

/**
 * How frames are distributed to queues: by the low bits of the destination QP's number, by
 * addresses and ports, or by the CPU that handled the interface's interrupt.
 */
enum kp_spread { KP_SPREAD_QPN, KP_SPREAD_FLOW, KP_SPREAD_CPU };

/** A message that is prepared for receiving. */
struct kp_slot {
	struct virtio_net_hdr vnet;
	uint16_t nbufs;
	uint16_t seg;   /* payload bytes in each buffer, without headers; 0: no train */
	uint16_t first; /* bytes that fit into the first buffer */
	uint8_t hdr;    /* room for headers in front of the payload in each buffer */
	struct rte_mbuf *buf[KP_RX_BUFS];
	struct iovec iov[KP_RX_BUFS + 2];
	uint8_t control[64];
	uint8_t *spill; /* receives what does not fit into the buffers */
};

struct kp_rx_stats {
	uint64_t frames, bytes;
	uint64_t trains;    /* trains of several datagrams */
	uint64_t datagrams; /* datagrams in these trains */
	uint64_t copied;    /* datagrams that were copied out of a train */
	uint64_t bad;       /* messages whose virtio header or headers do not match their bytes */
	uint64_t too_long;  /* datagrams that are too long for a buffer */
	uint64_t no_bufs;   /* datagrams that were dropped because there was no buffer */
	uint64_t errors;    /* of recvmmsg() */
	uint64_t missed;    /* messages in the ring whose rest did not fit into the socket */
};

/** What kp_rings_renew() has done to a ring, until the queue's lcore has taken note of it. */
enum kp_ring_change {
	KP_RING_SAME,
	KP_RING_NEW,  /* the kernel begins again with slot 0 */
	KP_RING_GONE, /* the kernel has refused another one: frames come through the socket */
};

/** Memory that a packet socket shares; base NULL: none. */
struct kp_ring {
	uint8_t *base;
	uint32_t mask;         /* number of slots minus 1 */
	_Atomic uint32_t head; /* the next slot to be read */
	/* messages of earlier slots that are still to be read from the socket */
	_Atomic uint32_t owed;
	uint32_t empty_polls;
	_Atomic uint32_t change; /* enum kp_ring_change */
	/* of kp_rings_renew(), at its last call */
	uint32_t seen_head;
	uint64_t seen_drops;
	_Atomic uint64_t drops; /* frames that the kernel has dropped since the socket was opened */
};

struct kp_rxq {
	int fd;
	struct kp_port *port;
	struct rte_mempool *pool;
	uint16_t port_id;
	uint32_t room; /* of a buffer, without the headroom */
	/* expected format of the next train; seg 0: none */
	uint16_t seg;
	uint8_t hdr;
	uint16_t other_seg; /* segment size of the last train that had another format */
	struct kp_rx_stats stats;
	struct kp_ring *ring; /* ring of its socket; NULL: none, or stopped */
	struct mmsghdr msg[KP_RX_SLOTS];
	struct kp_slot slot[KP_RX_SLOTS];
	uint32_t ready_head, nready;
	struct rte_mbuf *ready[KP_RX_READY];
};

struct kp_tx_stats {
	uint64_t frames, bytes;
	uint64_t trains, datagrams;
	uint64_t full;   /* bursts of which the socket took only a part */
	uint64_t errors; /* frames that the kernel refused */
};

struct kp_txq {
	int fd;
	struct kp_port *port;
	struct kp_tx_stats stats;
	struct mmsghdr msg[KP_TX_MSGS];
	struct virtio_net_hdr vnet[KP_TX_MSGS];
	uint16_t mbufs[KP_TX_MSGS];  /* mbufs of a message */
	uint16_t pieces[KP_TX_MSGS]; /* datagrams in it */
	uint32_t bytes[KP_TX_MSGS];
	uint8_t hdr[KP_TX_MSGS][KP_HEADERS_MAX];
	struct iovec iov[KP_TX_IOVS];
};

struct kp_port {
	char iface[IF_NAMESIZE];
	bool tap; /* the port is the other end of a tap */
	uint16_t nq;
	uint16_t nrx; /* queues that receive: the first ones of these */
	uint16_t most_queues;
	bool roce;   /* only RoCE is received */
	bool tags;   /* the kernel removes VLAN tags from frames and reports them */
	bool strip;  /* the program wants them beside the frames */
	bool trains; /* the arguments ask for trains */
	bool want_ring;
	enum kp_spread spread;
	uint32_t rcvbuf, sndbuf;
	struct rte_eth_dev_data *data;
	struct rte_ether_addr mac;
	/* of the interface when it was last read */
	_Atomic unsigned int ifindex;
	uint32_t mtu;
	_Atomic bool vnet;      /* the sockets use virtio headers */
	_Atomic bool tx_trains; /* the kernel accepts trains */
	_Atomic uint32_t said;  /* enum kp_said */
	bool started;
	int fd[KP_MAX_QUEUES];              /* -1: not opened; kept between starts */
	struct kp_ring ring[KP_MAX_QUEUES]; /* rings of these */
	_Atomic uint64_t missed;            /* frames dropped because a socket was full */
	atomic_flag renewing;               /* a thread is in kp_rings_renew() */
	uint64_t missed_base;               /* of a tap, at the last reset */
	struct kp_rx_stats rx_base[KP_MAX_QUEUES];
	struct kp_tx_stats tx_base[KP_MAX_QUEUES];
	struct kp_rxq *rxq[KP_MAX_QUEUES];
	struct kp_txq *txq[KP_MAX_QUEUES];
};

/** Adds to a counter with a single writer; other threads never see a half-written value. */
static inline void
kp_add(uint64_t *to, uint64_t n)
{
	__atomic_store_n(to, *to + n, __ATOMIC_RELAXED);
}

/** Logs a message about a port, once for each @what. */
__attribute__((format(printf, 3, 4))) void kp_say_once(
	struct kp_port *p, enum kp_said what, const char *fmt, ...);

/* --- sock.c --- */

/** Reads the interface: index, MTU, MAC, flags.  -errno; -ENODEV: there is no such interface. */
int kp_iface_read(struct kp_port *p, unsigned int *ifindex, unsigned int *flags);
/** Link speed in Mb/s; RTE_ETH_SPEED_NUM_UNKNOWN. */
uint32_t kp_iface_speed(const struct kp_port *p);

/**
 * Discards the contents of the ring, and the messages that the socket still has of it.  The socket
 * must not receive any more.
 */
void kp_ring_drop(struct kp_ring *r);
/** Is the ring empty, so that its lcore reads no slot unless the kernel fills one? */
bool kp_ring_empty(const struct kp_ring *r);

/**
 * Opens the sockets of all queues, or reuses those that exist; from then on they receive.  -errno;
 * logged.
 */
int kp_sockets_open(struct kp_port *p);
/** Stops receiving. */
void kp_sockets_mute(struct kp_port *p);
/** Closes sockets, and taps. */
void kp_sockets_close(struct kp_port *p);
/**
 * Has the kernel unbound the sockets from their interface?  That happens when the interface leaves
 * its namespace, and it stays so when the interface comes back.
 */
bool kp_sockets_astray(const struct kp_port *p);
/**
 * The interface has been replaced by another one of the same name: binds the sockets to that one,
 * and sets the modes that the program has asked for.
 */
int kp_sockets_follow(struct kp_port *p, unsigned int ifindex);
/** Adds or removes an enum packet_mreq type.  -errno. */
int kp_membership(struct kp_port *p, unsigned short type, bool on);
/** Removes all. */
void kp_memberships_drop(struct kp_port *p);
/** Returns the number of frames since the last call that were dropped because a socket was full. */
uint64_t kp_sockets_missed(struct kp_port *p);
/**
 * Replaces rings into which the kernel has stopped to put frames (ring.c).  Lcores may be
 * receiving.  To be called after kp_sockets_missed().
 */
void kp_rings_renew(struct kp_port *p);

/* --- tap.c --- */

/** Opens a tap for each possible queue.  -errno; logged. */
int kp_tap_open(struct kp_port *p);
/** 0 or -errno. */
int kp_tap_set_mtu(struct kp_port *p, uint16_t mtu);
void kp_tap_start(struct kp_port *p);
void kp_tap_stop(struct kp_port *p);
/** Does the interface still exist, possibly in another namespace? */
bool kp_tap_lives(const struct kp_port *p);
/** Returns the number of frames since the creation of the tap for which there was no room. */
uint64_t kp_tap_missed(const struct kp_port *p);
/** Replacements for recvmmsg() and sendmmsg(). */
int kp_tap_recv(int fd, struct mmsghdr *msg, unsigned int n);
int kp_tap_send(int fd, const struct mmsghdr *msg, unsigned int n);

/* --- recv.c, send.c --- */

int kp_rxq_init(struct kp_rxq *q);
/** Allocates buffers for the first messages, and forgets the expected format of trains. */
void kp_rxq_arm(struct kp_rxq *q);
void kp_rxq_fini(struct kp_rxq *q);
uint16_t kp_rx_burst(void *queue, struct rte_mbuf **bufs, uint16_t n);
uint16_t kp_tx_burst(void *queue, struct rte_mbuf **bufs, uint16_t n);

#endif /* KPORT_H */
