/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The embedded engine: it drives the protocol cores of lib/qp over DPDK ports.
 *
 * An engine has lcores 0..n-1; each queue pair belongs to one of them.  An lcore makes progress
 * when a thread polls it, in one of two ways:
 *
 *   own reactor   the program calls karst_engine_poll(e, lcore) from its own thread, again and
 *                 again; one thread may poll several lcores, but only one thread at a time may
 *                 poll an lcore
 *   own lcores    karst_engine_start() runs each lcore on an EAL worker lcore, with the idle mode
 *                 of the configuration, until karst_engine_stop()
 *
 * Order of calls: rte_eal_init(); karst_engine_create(); karst_engine_port_add() for each port;
 * then objects and polling in any order; karst_engine_destroy().
 *
 * Threads.  An lcore is *attached* to the thread that polls it, from the first karst_engine_poll()
 * (or karst_engine_start()) to karst_engine_release() (or karst_engine_stop()).  Control calls (all
 * functions here that create, change, query or destroy something) may come from any thread, EAL or
 * not:
 *
 *   - A call about an lcore that is attached to the calling thread, or to no thread, is done at
 *     once, by the caller.
 *   - A call about an lcore that is attached to another thread is sent to the lcore's mailbox.
 *     The call returns when that thread's next turn has done it.  So a thread that has attached
 *     an lcore must either keep polling it or release it; otherwise other callers wait for ever.
 *   - While a call waits (for a mailbox, for another control call, or until the lcores have
 *     finished using some memory), it serves the mailboxes of the lcores that are attached to its
 *     own thread.  So two reactors may make calls about each other's objects at the same time.
 *   - A control call from inside a callback of struct karst_engine_ops fails with -EDEADLK;
 *     make it after karst_engine_poll() has returned.
 *
 * Return values are 0 or a negative errno.  On failure nothing has changed, and the reason is in
 * the log (karst_log.h).  The data path (post and poll helpers at the end) never takes a lock.
 */
#ifndef KARST_ENGINE_H
#define KARST_ENGINE_H

#include "karst_engine_addr.h"
#include "karst_base.h"
#include "karst_counters.h"
#include "karst_mem.h"
#include "karst_qp.h"
#include "karst_ring.h"

#define KARST_ENGINE_MAX_LCORES 64u
#define KARST_ENGINE_MAX_PORTS  32u
#define KARST_ENGINE_MAX_ADDRS  16u
#define KARST_ENGINE_MAX_OWNERS 4096u
/** Most queue pairs in a multicast group: one packet may have to be delivered to all of them. */
#define KARST_ENGINE_GROUP_QPS 256u
/** Most handles on an XRC target: one event may have to be reported to all of them. */
#define KARST_ENGINE_TARGET_HANDLES 256u
/** For karst_engine_qp_init.lcore and karst_engine_srq_init.lcore: the lcore with the fewest
 *  QPs. */
#define KARST_ENGINE_ANY_LCORE UINT32_MAX

struct rte_mbuf;
struct karst_engine;
struct karst_engine_qp;
struct karst_engine_cq;
struct karst_engine_srq;
struct karst_engine_xrcd;
struct karst_engine_owner; /* karst_owner.h */

/* --- configuration --- */

/** What an lcore of karst_engine_start() does after a turn without work. */
enum karst_idle {
	KARST_IDLE_YIELD, /* sched_yield(), for other threads on the same processor; the default */
	KARST_IDLE_POLL,  /* spin */
	KARST_IDLE_SLEEP, /* after a while sleep until there is work.  If a port cannot wake the
			   * lcore, the sleeps grow, up to sleep_max_us; only frames of such a port
			   * have to wait for that long */
};

/** An asynchronous event; which member of the union is set follows from @event. */
struct karst_engine_event {
	enum karst_async_event_code event;
	uint8_t port; /* KARST_EVENT_PORT_*, KARST_EVENT_GID_CHANGE */
	union {
		struct karst_engine_qp *qp;
		struct karst_engine_cq *cq;   /* KARST_EVENT_CQ_ERR */
		struct karst_engine_srq *srq; /* KARST_EVENT_SRQ_* */
	};
};

/** A received frame that is not RoCE: ARP, neighbour discovery, anything else. */
struct karst_engine_exception {
	uint32_t lcore;      /* the lcore that received the frame; the callback runs on it */
	uint8_t port;        /* engine port */
	enum karst_drop why; /* the parser's drop reason */
	struct rte_mbuf *mbuf;
};

/** Callbacks into the program; any member may be NULL.  They are called on lcores, inside a turn:
 *  they must be short and must make no control calls (-EDEADLK); posting and polling are fine. */
struct karst_engine_ops {
	/** An armed completion queue (karst_cq_arm()) has an event. */
	void (*cq_event)(void *user, struct karst_engine_cq *cq);
	void (*async_event)(void *user, const struct karst_engine_event *event);
	/** @return true: the callee now owns the mbuf; false: the engine drops and counts it. */
	bool (*exception)(void *user, const struct karst_engine_exception *ex);
};

/** Whether the engine negotiates selective repeat by enhanced connection establishment (C3, X1). */
enum karst_engine_ece {
	KARST_ENGINE_ECE_OFF,
	KARST_ENGINE_ECE_ANSWER, /* agree with peers that offer it */
	KARST_ENGINE_ECE_OFFER,  /* agree, and offer it */
};

/** Zero (NULL, false) means the default for every member. */
struct karst_engine_config {
	/* up to 15 characters; names the mempool, the rings and the telemetry; default "karst0",
	 * "karst1", ... */
	const char *name;
	uint32_t lcores; /* 1..KARST_ENGINE_MAX_LCORES; default 1 */
	/* limits; tables are allocated at once, objects as they are created */
	uint32_t max_qps;      /* of each lcore; default 1024 */
	uint32_t max_keys;     /* memory regions and windows; default 4096, up to 2^20 */
	uint32_t max_ahs;      /* default 1024 */
	uint32_t max_pds;      /* default 256 */
	uint32_t max_mcasts;   /* attachments to multicast groups; default 1024, up to 65536 */
	uint32_t max_xrc_srqs; /* of each lcore; default 1024 */
	uint32_t max_cm_ids;   /* connections and listeners, and ended connections that linger;
				* default 4096, up to 2^20 */
	uint32_t max_owners;   /* simultaneous sessions; default 64, up to
				* KARST_ENGINE_MAX_OWNERS */
	/* protocol */
	uint32_t window_packets; /* see struct karst_core_config */
	uint32_t ack_interval;
	bool latch_sport; /* drop packets to a connected QP that come from another UDP source port
			   * (L5) */
	/* Each packet of a WRITE without immediate is a message of its own, so that all have one
	 * length; ports that send trains gain by it (Q13). */
	bool divide_writes;
	bool no_migreq;            /* send MigReq 0 as Linux soft-RoCE does, not 1 (W2) */
	bool early_retransmission; /* send probes long before the timeout (Q11) */
	/* NULL: off; otherwise karst_engine_create() copies it (E1) */
	const struct karst_congestion_config *congestion;
	/* Addresses, with prefix lengths, of peers that also run karst and have our addresses in
	 * their own list: RC queue pairs to them use selective repeat (X1).  Also copied. */
	const struct karst_engine_addr *repeat_peers;
	uint32_t nrepeat_peers;
	enum karst_engine_ece ece; /* default off */
	uint32_t held_frames;      /* of each lcore, for both (X3); default 1024 */
	/* UDP source ports of each of these queue pairs: a power of two, up to 16; default 1
	 * (X12) */
	uint32_t spray_ports;
	/* budgets of a turn */
	uint32_t rx_burst; /* frames taken from a port's queue at once, 1..64; default 32 */
	uint32_t rx_bytes; /* bytes that are verified before they are copied, so that they are still
			    * in the cache; default 16 KiB */
	uint32_t tx_burst; /* frames built, 1..64; default 32 */
	uint32_t tx_bytes; /* default 128 KiB */
	/* bytes of a user in a round of the scheduler, and of a QP in one of its user's rounds;
	 * default 16 KiB */
	uint32_t quantum_bytes;
	/* buffers */
	/* longest frame that a buffer holds; default: a frame of path MTU 4096, or with
	 * page_buffers the room that is left in a page, 3712 */
	uint32_t frame_bytes;
	bool page_buffers;      /* each buffer takes a page of 4096 bytes, as net_af_xdp needs */
	uint32_t mbufs;         /* size of the pool; default: what windows and port rings can use */
	const char *pool_ops;   /* mempool handler; default "stack": last in, first out, so that
			       * buffers are reused while they are in the cache */
	uint32_t handoff_slots; /* slots of the hand-off ring of each lcore; default 1024 */
	/* programs run on other processors than the lcores, as those of a karstd do: cache lines
	 * that a program reads next are demoted from the lcore's caches */
	bool cross_cpu;
	/* idle lcores of karst_engine_start() */
	enum karst_idle idle;
	uint32_t sleep_max_us;   /* default 50 */
	const char *capture_dir; /* folder of packet captures; the string stays the caller's;
				  * default EAL's runtime directory */
	uint64_t seed; /* seed of QP numbers and keys; 0: from getrandom(); other values are for
			* tests */
	const struct karst_engine_ops *ops;
	void *user;
};

/**
 * Creates an engine.  EAL must be initialised, with or without huge pages.
 * -EINVAL: out of range; -ENOMEM; -EEXIST: the name is in use; -EIO: the CRC self-test failed.
 */
int karst_engine_create(const struct karst_engine_config *cfg, struct karst_engine **engine);

/**
 * Stops the ports and frees everything, including objects that still exist.  The devices stay open:
 * they belong to the program.  Threads that wait for memory of other processes stay until it comes
 * (a warning says how many), and with them what they may access; as long as the process lives, its
 * pool of buffers then occupies the engine's name.  -EBUSY: an lcore is attached.
 */
int karst_engine_destroy(struct karst_engine *e);

/** The configuration, with defaults filled in. */
const struct karst_engine_config *karst_engine_config(const struct karst_engine *e);

/** The engine's clock: ns since its creation, monotonic.  Any thread. */
uint64_t karst_engine_now_ns(const struct karst_engine *e);

/* --- ports --- */

/** No DPDK port: the engine receives every frame that it sends on this port. */
#define KARST_ENGINE_NO_ETHDEV UINT16_MAX

struct karst_engine_port_config {
	const char *name;    /* for display, at most 31 characters; NULL: DPDK's name */
	uint16_t ethdev;     /* DPDK port id, neither configured nor started by the program; or
			      * KARST_ENGINE_NO_ETHDEV */
	uint64_t lcore_mask; /* engine lcores that serve the port, in order, with one rx and one tx
			      * queue each; 0: all.  QPs of other lcores cannot use the port. */
	uint16_t mtu;        /* IP MTU; 0: what RoCE of path MTU 4096 needs, or the largest that the
			      * device supports if that is less; larger values are reduced to what
			      * RoCE needs */
	bool force_mtu;      /* use mtu, whatever the driver reports: net_af_packet and net_tap
			      * report 1500 but carry what the kernel's device carries */
	uint16_t rx_slots;   /* descriptors of each queue; default 1024, or fewer if the device has
			      * fewer */
	uint16_t tx_slots;
	uint8_t mac[6];     /* all zero: the device's own */
	uint16_t vlan;      /* VLAN id that received frames must be tagged with; 0: no tags */
	uint32_t num_addrs; /* 1..KARST_ENGINE_MAX_ADDRS */
	const struct karst_engine_addr *addrs; /* copied */
	/* For KARST_IDLE_SLEEP: file descriptors that are readable as long as received frames wait,
	 * one for each queue (in the order of the lcores) or one for all.  The program closes them,
	 * after the port.  Lcores that serve a port without such descriptors (and with an ethdev)
	 * poll it every sleep_max_us. */
	const int *wake_fds;
	uint32_t nwake_fds;
	/* next hops for destinations that are not on the link; all zero: none */
	struct karst_engine_addr gateway4;
	struct karst_engine_addr gateway6;
	/* Number for the port, from 1, for example that of a port that was removed; 0: the first
	 * free number. */
	uint8_t number;
	/* The kernel interface that the port is a view of (net_af_packet, net_af_xdp): the kernel
	 * owns ARP, neighbour discovery and routes.  NULL: the port is the engine's. */
	const char *netdev;
	/* Name of a tap interface to create, with the port's MAC address.  Frames of the port that
	 * are not RoCE for the engine go to the kernel there; frames that the kernel sends there
	 * leave by the port.  NULL: none.  Not with netdev. */
	const char *exception_tap;
	/* For drivers that share the device with the kernel: receive only RoCE, by flow rules, and
	 * leave everything else to the kernel.  With netdev.  An error if the device cannot. */
	bool isolate;
	/* Frames to all multicast groups are received without action of the engine: the program has
	 * arranged it, or the kernel joins groups on netdev.  The engine does not change the
	 * device's filter. */
	bool all_groups;
	/* Called whenever the engine has stopped the device, also if karst_engine_port_add() fails.
	 * It may close the device, and the devices below it.  The only function of the engine that
	 * it may call is karst_engine_intr_pause().  Between the stop and this call no peer can
	 * connect to a net_memif.  NULL: no callback. */
	void (*stopped)(void *arg);
	void *stopped_arg;
};

struct karst_engine_port_info {
	char name[32];
	uint16_t ethdev;
	uint16_t mtu;     /* IP MTU */
	uint8_t path_mtu; /* largest path MTU that fits, as karst_core_qp_attr.path_mtu: 1..5 */
	uint8_t mac[6];
	uint16_t vlan;
	uint64_t lcore_mask;
	bool link_up;       /* at the last karst_engine_links_check() */
	uint32_t link_mbps; /* 0: not known */
	char netdev[16];    /* empty: none */
	char exception_tap[16];
	uint64_t exception_lost; /* frames that the kernel side of the tap refused */
	uint32_t mcast_groups;   /* groups that QPs are attached to */
	/* IGMP and MLD; 0 where the kernel speaks them */
	uint64_t mcast_queries;     /* accepted */
	uint64_t mcast_bad_queries; /* malformed, or not from the link */
	uint64_t mcast_reports;     /* sent, including leave messages */
	uint8_t igmp_version;       /* version in use on the link */
	uint8_t mld_version;
	struct karst_engine_addr gateway4;
	struct karst_engine_addr gateway6;
	uint32_t num_addrs; /* elements of addrs; an element of :: is empty */
	struct karst_engine_addr addrs[KARST_ENGINE_MAX_ADDRS];
};

/**
 * Configures and starts a port.  *port: its number in struct karst_path and karst_pkt, from 0;
 * karst_core_qp_attr.port_num is one more.
 * Lcores may run meanwhile.  UD queue pairs that were created before keep the path MTU that they
 * had.  If the number was used by an earlier port, the owners get KARST_EVENT_GID_CHANGE, and
 * KARST_EVENT_PORT_ACTIVE if the link is up.
 * -EINVAL; -EEXIST: another port has the number; -ENOSPC: too many ports; or the error of DPDK or
 * of the kernel.
 */
int karst_engine_port_add(
	struct karst_engine *e, const struct karst_engine_port_config *cfg, uint8_t *port);

/**
 * Removes a port and stops its device, without closing it.  Other ports keep their numbers; the
 * next port may get the number of this one.  What queue pairs send on paths over the port is
 * dropped.
 * -EINVAL: no such port.
 */
int karst_engine_port_remove(struct karst_engine *e, uint8_t port);

/**
 * Pause and resume EAL's interrupt thread, if @ethdev has a driver whose work in that thread is not
 * serialized with its stop and close: net_memif, also below net_impair.  Call them around
 * rte_eth_dev_stop() and rte_eth_dev_close() if the program adds such a device to no engine, or
 * closes the device itself; the engine calls them where it stops a device.  Between the two calls
 * the thread must not wait for anything.  The calls nest.
 * @return the argument for karst_engine_intr_resume(), which the same thread must call.
 */
bool karst_engine_intr_pause(uint16_t ethdev);
void karst_engine_intr_resume(bool paused);

/**
 * Sets a replacement for connect(): drivers in calls of this thread call @fn with @arg instead, and
 * @fn returns as connect() does.  A NULL @fn ends it.
 */
void karst_engine_connects(int (*fn)(void *arg, int fd), void *arg);

/** Number of peers of net_memif ports of this process that were disconnected because of an invalid
 *  message. */
uint64_t karst_engine_memif_refused(void);

/**
 * The device of a port is gone for good, unplugged under traffic: removes the port as
 * karst_engine_port_remove() does, and ends everything that would wait for the device.  Queue pairs
 * of the port go to the Error state, or migrate to their alternate paths if they are armed (G4);
 * alternate paths over the port are deleted (G5).  Communication identifiers that are bound to the
 * port get KARST_RDMACM_DEVICE_REMOVAL; then all owners get KARST_EVENT_PORT_ERR and
 * KARST_EVENT_PORT_GONE.
 * -EINVAL: no such port.
 */
int karst_engine_port_lose(struct karst_engine *e, uint8_t port);

/**
 * Sets the descriptors of karst_engine_port_config.wake_fds: some drivers have them only after the
 * port was added.  @n: 0, 1, or the number of queues.  -EINVAL
 */
int karst_engine_port_set_wake_fds(
	struct karst_engine *e, uint8_t port, const int *fds, uint32_t n);

/**
 * Changes the addresses of a port.  Addresses that stay keep their places, which are the indices of
 * GIDs; new addresses take empty places.  Communication identifiers that are bound to a removed
 * address get KARST_RDMACM_ADDR_CHANGE; then all owners get KARST_EVENT_GID_CHANGE.  Queue pairs
 * whose path begins at a removed address receive nothing more.  -EINVAL
 */
int karst_engine_port_set_addrs(struct karst_engine *e, uint8_t port, uint32_t num_addrs,
	const struct karst_engine_addr *addrs);

/**
 * The device of a port has another MAC address, from which paths begin from now on.  All
 * communication identifiers that are bound to the port get KARST_RDMACM_ADDR_CHANGE; then all
 * owners get KARST_EVENT_GID_CHANGE.  -EINVAL: no such port; a group's address.
 */
int karst_engine_port_set_mac(struct karst_engine *e, uint8_t port, const uint8_t mac[6]);

/**
 * The device of a port has another MTU.  The port's MTU becomes the smaller of this value and what
 * buffers hold, and its path MTU follows, down to 256.  Queue pairs keep their path MTU: longer
 * packets that they send are lost.
 * -EINVAL: no such port.
 */
int karst_engine_port_set_mtu(struct karst_engine *e, uint8_t port, uint16_t mtu);

/**
 * The kernel interface of a port has begun with IPv6 anew, and the kernel has forgotten the groups
 * that were joined there: they are joined again.  Nothing happens to other kinds of ports.
 * -EINVAL: no such port.
 */
int karst_engine_port_join_again(struct karst_engine *e, uint8_t port);

/**
 * Checks the links of all ports.  For links that have changed, the owners get KARST_EVENT_PORT_ERR
 * or KARST_EVENT_PORT_ACTIVE.  Call it regularly; nothing else watches the links.
 * @return how many links have changed, or -EDEADLK.
 */
int karst_engine_links_check(struct karst_engine *e);

/** -EINVAL: no such port. */
int karst_engine_port_info(
	const struct karst_engine *e, uint8_t port, struct karst_engine_port_info *info);

/**
 * The loopback port of @port: the number for karst_path.port if the destination is an address of
 * this engine, of any of its ports.  What is sent there does not leave by the device; the engine
 * receives it and processes it as any received frame.  The result is @port itself if that has no
 * ethdev.
 */
uint8_t karst_engine_port_loop(const struct karst_engine *e, uint8_t port);

/**
 * Fills a path from address number @addr of @port to a peer on the same link.  @port may be a
 * loopback port.  If the destination is an address of the port itself, the path uses its loopback
 * port.
 * @dst_mac, @dst_ip: wire order, IPv4 as ::ffff:a.b.c.d.
 * -EINVAL: no such port or address, or the address families differ.
 */
int karst_engine_path_init(const struct karst_engine *e, uint8_t port, uint32_t addr,
	const uint8_t dst_mac[6], const uint8_t dst_ip[16], struct karst_path *path);

/* --- progress --- */

/**
 * Runs one turn of lcore @lcore: mailbox, receive, hand-off, doorbells, timers, send.  Attaches the
 * lcore to the calling thread if it is attached to none.
 *
 * Memory of other programs (karst_space.h) that is not mapped is copied by other threads, which the
 * engine starts when there is such memory: a program can make a copy of its memory block, and the
 * caller of this function must not block.  Such a copy takes longer than with karst_engine_start(),
 * whose lcores make the copies themselves as long as no program delays them.
 * @return how much was done (frames, doorbells, timers, messages); 0: an idle turn.
 */
unsigned int karst_engine_poll(struct karst_engine *e, uint32_t lcore);

/** Ends the attachment of @lcore, on the thread that it is attached to; otherwise does nothing. */
void karst_engine_release(struct karst_engine *e, uint32_t lcore);

/** On the lcore's thread: ns until its next timer, UINT64_MAX if none.  A reactor may sleep for so
 *  long if packets and doorbells wake it. */
uint64_t karst_engine_idle_ns(const struct karst_engine *e, uint32_t lcore);

/**
 * Runs every lcore on an EAL worker.  @eal_lcores: the workers, one for each lcore of the engine;
 * NULL: the first free ones in EAL's order.
 * -EBUSY: an lcore is attached, or a worker is not waiting; -ENOSPC: too few workers.
 */
int karst_engine_start(struct karst_engine *e, const unsigned int *eal_lcores);

/** Ends karst_engine_start(); returns when all lcores have finished their last turn.  A thread that
 *  is in a copy then has two more seconds; after that the copy's program has failed, whatever the
 *  thread waits for. */
void karst_engine_stop(struct karst_engine *e);

/* --- memory, address handles: numbers as work requests and peers use them --- */

/* Arguments and errors as the functions of the same name in karst_mem.h and karst_qp.h. */

int karst_engine_pd_alloc(struct karst_engine *e, uint32_t *pd);
int karst_engine_pd_free(struct karst_engine *e, uint32_t pd);

int karst_engine_mr_reg(struct karst_engine *e, uint32_t pd, void *host, uint64_t va, uint64_t len,
	unsigned int access, uint32_t *key);
/** @what: enum karst_rereg.  Waits until no lcore uses the old registration. */
int karst_engine_mr_rereg(
	struct karst_engine *e, uint32_t key, unsigned int what, const struct karst_mr_attr *attr);
/** The region's bytes are now at @host.  When it returns, no lcore uses the old address any
 *  more. */
int karst_engine_mr_remap(struct karst_engine *e, uint32_t key, void *host);
/** When it returns, no lcore accesses the memory any more. */
int karst_engine_mr_dereg(struct karst_engine *e, uint32_t key);
/** The same for @n keys, waiting once for all.  Invalid keys are skipped, regions that windows are
 *  bound to stay (-EBUSY), the other keys are deregistered nevertheless.
 *  @return 0, or the first error. */
int karst_engine_mr_dereg_many(struct karst_engine *e, const uint32_t *keys, uint32_t n);

int karst_engine_mw_alloc(
	struct karst_engine *e, uint32_t pd, enum karst_mem_type type, uint32_t *key);
int karst_engine_mw_free(struct karst_engine *e, uint32_t key);
/** As karst_engine_mr_dereg_many(). */
int karst_engine_mw_free_many(struct karst_engine *e, const uint32_t *keys, uint32_t n);

/** @path: of any port of the engine; packets of lcores that do not serve it are dropped. */
int karst_engine_ah_create(
	struct karst_engine *e, uint32_t pd, const struct karst_path *path, uint32_t *ah);
int karst_engine_ah_destroy(struct karst_engine *e, uint32_t ah);
/** As karst_engine_mr_dereg_many(). */
int karst_engine_ah_destroy_many(struct karst_engine *e, const uint32_t *ahs, uint32_t n);

/* --- completion queues --- */

/** The program's side of a completion queue; one thread at a time polls a queue. */
struct karst_engine_cq {
	struct karst_cq_shared *sh; /* for karst_cq_arm() */
	void *user;
	void *lanes;                 /* karst_cq_lane() */
	uint32_t entries;            /* of each lane */
	uint32_t nlanes;             /* one for each lcore of the engine */
	uint32_t next;               /* lane where the next poll begins */
	uint32_t flags;              /* enum karst_cq_flags */
	struct karst_cq_lane lane[]; /* for karst_cq_lane_peek() and _take() */
};

struct karst_engine_cq_init {
	uint32_t entries;                 /* entries of each lane, rounded up to a power of two of
					   * at least 2 */
	uint32_t flags;                   /* enum karst_cq_flags */
	struct karst_engine_owner *owner; /* NULL: the program that embeds the engine */
	void *user;
};

/** -EINVAL, -ENOMEM */
int karst_engine_cq_create(struct karst_engine *e, const struct karst_engine_cq_init *init,
	struct karst_engine_cq **cq);
/** See karst_cq_set_moderation(). */
int karst_engine_cq_set_moderation(
	struct karst_engine *e, struct karst_engine_cq *cq, uint16_t count, uint16_t period_us);
/**
 * Changes the size, while completions come in; the program must not poll meanwhile.  Completions
 * that have not been read stay.
 * -EINVAL: out of range; -ENOSPC: more than @entries are not read; -ENOMEM
 */
int karst_engine_cq_resize(struct karst_engine *e, struct karst_engine_cq *cq, uint32_t entries);
/**
 * The same in two steps, for a program that must know the new lanes before they are in use.  The
 * first call allocates *@lanes of *@entries, rounded up, and frees lanes that an earlier call
 * allocated and that are not in use.  The second call switches to the new lanes; -EINVAL: there are
 * none.
 */
int karst_engine_cq_lay_lanes(
	struct karst_engine *e, struct karst_engine_cq *cq, uint32_t *entries, void **lanes);
int karst_engine_cq_switch_lanes(struct karst_engine *e, struct karst_engine_cq *cq);
/** -EBUSY: QPs use it. */
int karst_engine_cq_destroy(struct karst_engine *e, struct karst_engine_cq *cq);
/** Whether completions were lost because a lane was full. */
bool karst_engine_cq_overflown(const struct karst_engine_cq *cq);

/* --- XRC domains --- */

/** An XRC domain: XRC targets and SRQs work together if they have the same one.  All of them belong
 *  to its lcore. */
struct karst_engine_xrcd {
	uint32_t number; /* never 0; unique among the domains that exist */
	uint32_t lcore;
};

struct karst_engine_xrcd_init {
	uint32_t lcore; /* or KARST_ENGINE_ANY_LCORE; for a domain that is created */
	bool shared;    /* share the domain with all openers of the same device and inode; false:
			 * create a new one */
	bool create;    /* shared: create it if there is none */
	bool exclusive; /* shared: fail if there is one */
	uint64_t dev, ino;
};

/** -ENOENT, -EEXIST: see init; -EINVAL, -ENOMEM */
int karst_engine_xrcd_open(struct karst_engine *e, const struct karst_engine_xrcd_init *init,
	struct karst_engine_xrcd **xrcd);
/** To be called once for each open.  The domain ends when it is open nowhere and contains
 *  nothing. */
int karst_engine_xrcd_close(struct karst_engine *e, struct karst_engine_xrcd *xrcd);

/* --- shared receive queues --- */

struct karst_engine_srq_init {
	uint32_t lcore; /* its QPs must belong to the same lcore; XRC: the domain's, or any */
	uint32_t pd;
	/* XRC: its domain, and the CQ of its receives; else NULL */
	struct karst_engine_xrcd *xrcd;
	struct karst_engine_cq *cq;
	uint32_t max_wr;  /* rounded up to a power of two */
	uint32_t max_sge; /* 0: 1 */
	uint32_t limit;
	struct karst_engine_owner *owner; /* NULL: the program that embeds the engine */
	void *user;
};

struct karst_engine_srq {
	struct karst_wq rq; /* one thread at a time posts */
	void *user;
	uint32_t lcore;
	uint32_t pd;
	uint32_t num; /* XRC: the SRQ number that requests carry; else 0 */
};

/** -EINVAL, -ENOMEM; -ENOSPC: the domain's lcore already has max_xrc_srqs */
int karst_engine_srq_create(struct karst_engine *e, const struct karst_engine_srq_init *init,
	struct karst_engine_srq **srq);
int karst_engine_srq_set_limit(
	struct karst_engine *e, struct karst_engine_srq *srq, uint32_t limit);
/** See karst_srq_withdraw(). */
int karst_engine_srq_withdraw(struct karst_engine *e, struct karst_engine_srq *srq);
/** -EBUSY: QPs use it.  XRC targets do not prevent the call: the engine refuses messages for the
 *  SRQ from now on. */
int karst_engine_srq_destroy(struct karst_engine *e, struct karst_engine_srq *srq);

/* --- queue pairs --- */

struct karst_engine_qp_init {
	enum karst_qp_type type;
	uint32_t lcore; /* owner, or KARST_ENGINE_ANY_LCORE (with an SRQ: the SRQ's) */
	uint32_t pd;
	struct karst_engine_cq *send_cq;
	struct karst_engine_cq *recv_cq;
	struct karst_engine_srq *srq; /* NULL: own receive queue */
	/* XRC_RECV: its domain, which determines the lcore; pd must be 0, and queues, their sizes
	 * and CQs are ignored.  XRC_SEND: the members about receives are ignored. */
	struct karst_engine_xrcd *xrcd;
	uint32_t max_send_wr; /* rounded up to a power of two, at least 1 */
	uint32_t max_recv_wr;
	uint32_t max_send_sge; /* 0: 1 */
	uint32_t max_recv_sge; /* 0: 1 */
	uint32_t max_inline;
	uint32_t max_dest_rd_atomic; /* most that karst_engine_qp_modify() may set, up to
				      * KARST_QP_MAX_RD_ATOMIC */
	bool sq_sig_all;
	bool credits; /* see struct karst_qp_init */
	/* NULL: the program that embeds the engine.  The CQs and the SRQ must have the same
	 * owner. */
	struct karst_engine_owner *owner;
	void *user;
};

/** The program's side of a QP; one thread at a time posts to each of its queues. */
struct karst_engine_qp {
	/* one cache line for the thread that sends */
	struct karst_wq sq;
	struct karst_bell_shared *bell; /* of its lcore */
	uint32_t bell_mask;
	uint32_t num;    /* QP number */
	int32_t wake_fd; /* of its lcore; -1: the lcore never sleeps */
	uint32_t lcore;
	void *user;
	struct karst_wq rq; /* unused with an SRQ */
	uint32_t pd;
};
static_assert(offsetof(struct karst_engine_qp, rq) == KARST_CACHE_LINE, "layout");

/** Creates a QP in state RESET.  -EINVAL, -ENOMEM, -ENOSPC: the lcore already has max_qps. */
int karst_engine_qp_create(struct karst_engine *e, const struct karst_engine_qp_init *init,
	struct karst_engine_qp **qp);
/** As karst_qp_modify().  Also -EINVAL: a path over a port that the QP's lcore does not serve, an
 *  address that is not the port's, or a path MTU that the port does not carry; the same for an
 *  alternate path.  The engine sets alternate_mem and alt_port_num. */
int karst_engine_qp_modify(struct karst_engine *e, struct karst_engine_qp *qp,
	const struct karst_core_qp_attr *attr, unsigned int mask);
/** Sends what is posted, as far as possible at once.  Modifying a QP to ERR or RESET and destroying
 *  it include this step.  Call it before removing something that requests refer to, such as an
 *  address handle. */
int karst_engine_qp_send_posted(struct karst_engine *e, struct karst_engine_qp *qp);
/** As karst_qp_rate_limit(), in RTR, RTS or SQD.  -EINVAL: another state; -ENOMEM; -EDEADLK */
int karst_engine_qp_rate_limit(
	struct karst_engine *e, struct karst_engine_qp *qp, uint32_t kbps, uint32_t burst);
/**
 * What @qp may offer to its peer by enhanced connection establishment (C3, X1); after
 * karst_engine_qp_set_ece(): what is agreed.  Options of 0: nothing.  -EOPNOTSUPP: the QP is not
 * RC, or the configuration has ECE off.
 */
int karst_engine_qp_query_ece(struct karst_engine *e, const struct karst_engine_qp *qp,
	uint32_t *vendor, uint32_t *options);
/**
 * Agrees on what the peer has offered or answered, as far as @qp supports it; returns in @vendor
 * and @options what is agreed, for the answer to an offer; 0 and 0: nothing.  In RESET or INIT;
 * going to RESET ends it.  -EINVAL: another state, or options of another vendor; -EOPNOTSUPP as
 * above.
 */
int karst_engine_qp_set_ece(
	struct karst_engine *e, struct karst_engine_qp *qp, uint32_t *vendor, uint32_t *options);
int karst_engine_qp_query(
	struct karst_engine *e, const struct karst_engine_qp *qp, struct karst_core_qp_attr *attr);
/**
 * @qp, of type UD, receives what arrives for the multicast @group on its port, also from QPs of
 * this engine.  @group: wire order, IPv4 as ::ffff:a.b.c.d.  To attach twice is harmless;
 * destroying the QP detaches it.
 * -EINVAL: not UD, not a group; detach: not attached; -EDQUOT: the owner has its max_mcasts;
 * -ENOSPC: the engine has its own; -EUSERS: the group has KARST_ENGINE_GROUP_QPS, or so many of the
 * same user that other users could have none; -ENOMEM
 */
int karst_engine_qp_attach_mcast(
	struct karst_engine *e, struct karst_engine_qp *qp, const uint8_t group[16]);
int karst_engine_qp_detach_mcast(
	struct karst_engine *e, struct karst_engine_qp *qp, const uint8_t group[16]);

/** A further handle on an XRC target.  The QP ends with its last handle; all handles get its
 *  events. */
struct karst_engine_qp_open {
	struct karst_engine_xrcd *xrcd;
	uint32_t qpn;
	struct karst_engine_owner *owner;
	void *user;
};

/** -ENOENT: no target with that number is in the domain; -EUSERS: it has
 *  KARST_ENGINE_TARGET_HANDLES; -ENOMEM */
int karst_engine_qp_open(struct karst_engine *e, const struct karst_engine_qp_open *open,
	struct karst_engine_qp **qp);
/** Whether it has more than one handle. */
bool karst_engine_qp_is_shared(struct karst_engine *e, const struct karst_engine_qp *qp);

/** Work requests that have not completed are discarded; completions that have not been polled
 *  stay. */
int karst_engine_qp_destroy(struct karst_engine *e, struct karst_engine_qp *qp);
/** Destroys @n QPs, in batches, so that other QPs are served in between. */
int karst_engine_qp_destroy_many(
	struct karst_engine *e, struct karst_engine_qp *const *qps, uint32_t n);

/* --- the data path of the program --- */

/**
 * Number of free slots of the send queue, at least @want if there are so many.  Fill them in place,
 * (struct karst_send_wqe *)karst_wq_slot(&qp->sq, i) for i from 0, then call
 * karst_engine_post_send().
 */
static inline uint32_t
karst_engine_send_room(struct karst_engine_qp *qp, uint32_t want)
{
	return karst_wq_free(&qp->sq, want);
}

static inline struct karst_send_wqe *
karst_engine_send_slot(const struct karst_engine_qp *qp, uint32_t i)
{
	return (struct karst_send_wqe *)karst_wq_slot(&qp->sq, i);
}

static inline struct karst_recv_wqe *
karst_engine_recv_slot(const struct karst_engine_qp *qp, uint32_t i)
{
	return (struct karst_recv_wqe *)karst_wq_slot(&qp->rq, i);
}

/** Writes to the eventfd @wake_fd, when karst_bell_must_wake() asks for it. */
void karst_engine_wake(int wake_fd);

/** Rings the doorbell of a QP and wakes its lcore if the lcore sleeps.  -EAGAIN: see
 *  karst_bell_ring(). */
static inline int
karst_engine_ring(struct karst_engine_qp *qp)
{
	int ret = karst_bell_ring(qp->bell, qp->bell_mask, qp->num);

	if (qp->wake_fd >= 0 && karst_bell_must_wake(qp->bell))
		karst_engine_wake(qp->wake_fd);
	return ret;
}

/** Passes @n filled slots of the send queue to the engine, and rings the doorbell of the QP if
 *  necessary.  -EAGAIN: see karst_bell_ring(). */
static inline int
karst_engine_post_send(struct karst_engine_qp *qp, uint32_t n)
{
	return karst_wq_publish(&qp->sq, n) ? karst_engine_ring(qp) : 0;
}

/** The same for filled slots of the receive queue. */
static inline int
karst_engine_post_recv(struct karst_engine_qp *qp, uint32_t n)
{
	return karst_unlikely(karst_wq_publish(&qp->rq, n)) ? karst_engine_ring(qp) : 0;
}

/** The same for filled slots of a shared receive queue. */
static inline void
karst_engine_post_srq_recv(struct karst_engine_srq *srq, uint32_t n)
{
	karst_wq_publish(&srq->rq, n);
}

/**
 * Takes up to @max completions, lane by lane, beginning where the last call ended.
 * @return how many.
 */
static inline uint32_t
karst_engine_cq_poll(struct karst_engine_cq *cq, struct karst_cqe *cqes, uint32_t max)
{
	uint32_t n = 0, empty = 0, lane = cq->next;

	while (n < max && empty < cq->nlanes) {
		const struct karst_cqe *at;
		uint32_t got = karst_cq_lane_peek(&cq->lane[lane], &at);

		if (got == 0) {
			empty++;
			lane = lane + 1 == cq->nlanes ? 0 : lane + 1;
			continue;
		}
		empty = 0;
		got = karst_min_u32(got, max - n);
		memcpy(cqes + n, at, got * sizeof(*cqes));
		karst_cq_lane_take(&cq->lane[lane], got);
		n += got;
	}
	cq->next = lane;
	return n;
}

/* --- what happened --- */

/** Sums the counters of @lcore, or of all lcores with KARST_ENGINE_ANY_LCORE.  Any thread. */
void karst_engine_counters(
	const struct karst_engine *e, uint32_t lcore, struct karst_counters *sum);

/** What the main loop of an lcore has done; only the lcore writes it. */
struct karst_engine_lcore_stats {
	uint64_t turns;
	uint64_t idle_turns;
	uint64_t sleeps;
	uint64_t rx_bursts; /* bursts that were not empty */
	uint64_t rx_frames; /* frames of any kind, from ports */
	uint64_t tx_bursts;
	uint64_t tx_frames;  /* frames given to ports */
	uint64_t tx_full;    /* times that a port's queue took fewer frames than offered */
	uint64_t tx_dropped; /* frames for ports that the lcore does not serve, or that do not take
			      * frames any more */
	uint64_t handoff_in; /* packets taken over from other lcores */
	uint64_t handoff_out;
	uint64_t doorbells;
	uint64_t messages; /* control calls done from the mailbox */
	uint64_t no_mbufs; /* turns that could not send because no buffers were free */
	uint64_t neigh_rx; /* ARP and neighbour discovery packets that the engine processed */
	uint64_t neigh_tx; /* requests, replies and announcements that it sent */
	uint64_t tap_rx;   /* frames given to the kernel by an exception tap */
	uint64_t tap_tx;   /* frames that the kernel sent there */
	/* TSC cycles from the start of one turn to the start of the next: of all turns since the
	 * lcore was attached, and of those turns that did something.  The difference is idle time:
	 * empty turns, yielding, sleep.  The time that a program with its own reactor spends
	 * between two turns counts with the first of them. */
	uint64_t cycles;
	uint64_t busy_cycles;
	/* The longest of the turns that took half a millisecond or more, in CPU time of the lcore's
	 * thread: the time that one turn has taken from all other work, however busy the machine
	 * was.  Up to half a millisecond of earlier turns may be counted in. */
	uint64_t longest_turn_ns;
	uint64_t long_turns; /* turns that took 5 ms or more, measured in the same way */
};

/** Any thread.  -EINVAL: no such lcore. */
int karst_engine_lcore_stats(
	const struct karst_engine *e, uint32_t lcore, struct karst_engine_lcore_stats *stats);

/**
 * Drops each received RoCE frame with @probability (0..1), as a pseudorandom sequence from @seed
 * decides, and counts it as KARST_DROP_INJECTED: for benchmarks and tests.  0 turns it off.
 * -EINVAL
 */
int karst_engine_set_loss(struct karst_engine *e, double probability, uint64_t seed);

#endif /* KARST_ENGINE_H */
