/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The embedded engine: the protocol cores of lib/qp driven over DPDK ports.
 *
 * An engine has lcores 0..n-1; each queue pair belongs to one of them.  An lcore makes progress
 * when it is polled, in one of two ways:
 *
 *   own reactor   the program calls karst_engine_poll(e, lcore) from its own thread, again and
 *                 again; one thread may poll several lcores, an lcore has one thread at a time
 *   own lcores    karst_engine_start() runs each on an EAL worker lcore, with the idle mode of
 *                 the configuration, until karst_engine_stop()
 *
 * Order of calls: rte_eal_init(); karst_engine_create(); karst_engine_port_add() for each port;
 * then objects and polling in any order; karst_engine_destroy().
 *
 * Threads.  An lcore is *attached* to the thread that polls it, from the first
 * karst_engine_poll() (or karst_engine_start()) to karst_engine_release() (or
 * karst_engine_stop()).  Control calls (all functions here that create, change, query or destroy
 * something) may come from any thread, an EAL one or not:
 *
 *   - about an lcore that is attached to the calling thread, or to none: done at once, by the
 *     caller;
 *   - about an lcore that is attached to another thread: sent to its mailbox; the call returns
 *     when that thread's next turn has done it.  So a thread that has attached an lcore either
 *     keeps polling it or releases it; otherwise others wait for ever.
 *   - while a call waits (for a mailbox, for another control call, or for the end of what lcores
 *     are doing with memory), it answers the mailboxes of the lcores that are attached to its
 *     own thread.  So two reactors may make calls about each other's objects at the same time.
 *   - from inside of a callback of struct karst_engine_ops: -EDEADLK; leave it for after
 *     karst_engine_poll().
 *
 * Return values are 0 or a negative errno; on failure nothing has changed, and the reason is in
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
/** Queue pairs in a multicast group: so many may have to be served for one packet. */
#define KARST_ENGINE_GROUP_QPS 256u
/** Handles of an XRC target: so many may have to be told of one event. */
#define KARST_ENGINE_TARGET_HANDLES 256u
/** For karst_engine_qp_init.lcore and karst_engine_srq_init.lcore: the one with fewest QPs. */
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
	KARST_IDLE_YIELD, /* sched_yield(): kind to whoever shares the processor; the default */
	KARST_IDLE_POLL,  /* spin */
	KARST_IDLE_SLEEP, /* after a while sleep until there is something to do; if a port cannot
			   * wake the lcore: longer and longer, up to sleep_max_us, which only
			   * frames of such a port have to wait for */
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
	uint32_t lcore;      /* that received it, and calls */
	uint8_t port;        /* engine port */
	enum karst_drop why; /* what the parser called it */
	struct rte_mbuf *mbuf;
};

/** What the program is told; any member may be NULL.  Called on lcores, inside of a turn: be
 *  short, make no control calls (-EDEADLK); posting and polling are fine. */
struct karst_engine_ops {
	/** An armed completion queue (karst_cq_arm()) has something. */
	void (*cq_event)(void *user, struct karst_engine_cq *cq);
	void (*async_event)(void *user, const struct karst_engine_event *event);
	/** @return true: the mbuf is the callee's now; false: it is dropped and counted. */
	bool (*exception)(void *user, const struct karst_engine_exception *ex);
};

/** Whether selective repeat is agreed to by enhanced connection establishment (C3, X1). */
enum karst_engine_ece {
	KARST_ENGINE_ECE_OFF,
	KARST_ENGINE_ECE_ANSWER, /* with peers that offer it */
	KARST_ENGINE_ECE_OFFER,  /* and it is offered */
};

/** Zero (NULL, false) means the default for every member. */
struct karst_engine_config {
	/* up to 15 characters; of mempool, rings and in telemetry; default "karst0", "karst1", ... */
	const char *name;
	uint32_t lcores; /* 1..KARST_ENGINE_MAX_LCORES; default 1 */
	/* limits; tables are allocated at once, objects as they are created */
	uint32_t max_qps;      /* of each lcore; default 1024 */
	uint32_t max_keys;     /* memory regions and windows; default 4096, up to 2^20 */
	uint32_t max_ahs;      /* default 1024 */
	uint32_t max_pds;      /* default 256 */
	uint32_t max_mcasts;   /* attachments to multicast groups; default 1024, up to 65536 */
	uint32_t max_xrc_srqs; /* of each lcore; default 1024 */
	uint32_t max_cm_ids;   /* connections and listeners, and connections that have ended and
				* linger; default 4096, up to 2^20 */
	uint32_t max_owners;   /* sessions at a time; default 64, up to KARST_ENGINE_MAX_OWNERS */
	/* protocol */
	uint32_t window_packets; /* see struct karst_core_config */
	uint32_t ack_interval;
	bool latch_sport; /* drop what comes to a connected QP from another UDP source port (L5) */
	bool no_migreq;   /* send MigReq 0 as Linux soft-RoCE does, not 1 (W2) */
	bool early_retransmission; /* probes, long before the timeout (Q11) */
	/* NULL: off; else it is taken over by karst_engine_create() (E1) */
	const struct karst_congestion_config *congestion;
	/* Addresses, with prefix lengths, of peers that are karst, too, and have ours in their
	 * list: RC queue pairs to them repeat selectively (X1).  Taken over, likewise. */
	const struct karst_engine_addr *repeat_peers;
	uint32_t nrepeat_peers;
	enum karst_engine_ece ece; /* default off */
	uint32_t held_frames;      /* of each lcore, for both (X3); default 1024 */
	/* UDP source ports of each of these queue pairs: a power of two, up to 16; default 1
	 * (X12) */
	uint32_t spray_ports;
	/* budgets of a turn */
	uint32_t rx_burst; /* frames taken from a port's queue at once, 1..64; default 32 */
	uint32_t rx_bytes; /* verified before they are copied out of the cache; default 16 KiB */
	uint32_t tx_burst; /* frames built, 1..64; default 32 */
	uint32_t tx_bytes; /* default 128 KiB */
	/* of a user in a round of the scheduler, and of a QP in one of its user; default 16 KiB */
	uint32_t quantum_bytes;
	/* buffers */
	/* longest frame that a buffer holds; default: of path MTU 4096, or what page_buffers leave
	 * room for, which is 3712 */
	uint32_t frame_bytes;
	bool page_buffers;      /* each buffer takes a page of 4096 bytes, as net_af_xdp needs */
	uint32_t mbufs;         /* of the pool; default: what windows and port rings can use */
	const char *pool_ops;   /* mempool handler; default "stack": last in, first out, so that
			       * buffers come back while they are in the cache */
	uint32_t handoff_slots; /* of the ring into each lcore; default 1024 */
	/* programs run on other processors than the lcores, as those of a karstd do: lines that
	 * they read next are moved out of an lcore's own caches */
	bool cross_cpu;
	/* idle lcores of karst_engine_start() */
	enum karst_idle idle;
	uint32_t sleep_max_us;   /* default 50 */
	const char *capture_dir; /* where packet captures are written; stays the caller's; default
				  * EAL's runtime directory */
	uint64_t seed; /* of QP numbers and keys; 0: from getrandom(), anything else is for tests */
	const struct karst_engine_ops *ops;
	void *user;
};

/**
 * Makes an engine; EAL is initialised, with or without huge pages.
 * -EINVAL: out of range; -ENOMEM; -EEXIST: the name is in use; -EIO: the CRC self-test failed.
 */
int karst_engine_create(const struct karst_engine_config *cfg, struct karst_engine **engine);

/**
 * Stops the ports (without closing them: they are the program's) and frees everything, objects
 * that are left included.  -EBUSY: an lcore is attached.
 */
int karst_engine_destroy(struct karst_engine *e);

/** The configuration, with defaults filled in. */
const struct karst_engine_config *karst_engine_config(const struct karst_engine *e);

/** The engine's clock: ns, monotonic, from its creation.  Any thread. */
uint64_t karst_engine_now_ns(const struct karst_engine *e);

/* --- ports --- */

/** Instead of a DPDK port: every frame that leaves the port comes back in. */
#define KARST_ENGINE_NO_ETHDEV UINT16_MAX

struct karst_engine_port_config {
	const char *name;    /* for people, at most 31 characters; NULL: DPDK's name */
	uint16_t ethdev;     /* DPDK port id, neither configured nor started by the program; or
			      * KARST_ENGINE_NO_ETHDEV */
	uint64_t lcore_mask; /* engine lcores that serve it, one rx and one tx queue each, in
			       * order; 0: all.  QPs of other lcores cannot use the port. */
	uint16_t mtu;        /* IP MTU; 0: what RoCE of path MTU 4096 needs, or the largest that
			       * the device supports; a larger value is reduced to that need */
	bool force_mtu;      /* use mtu, whatever the driver reports: net_af_packet and net_tap
			       * report 1500 and carry what the kernel's device does */
	uint16_t rx_slots;   /* descriptors of each queue; default 1024, fewer if it must be */
	uint16_t tx_slots;
	uint8_t mac[6];     /* all zero: the device's own */
	uint16_t vlan;      /* VLAN id that received tagged frames must have; 0: no tags */
	uint32_t num_addrs; /* 1..KARST_ENGINE_MAX_ADDRS */
	const struct karst_engine_addr *addrs; /* copied */
	/* For KARST_IDLE_SLEEP: descriptors that are readable as long as frames wait to be
	 * received, one for each queue (in the order of the lcores) or one for all; the program's
	 * to close, after the port.  Lcores that serve a port without any (and with an ethdev)
	 * look again every sleep_max_us. */
	const int *wake_fds;
	uint32_t nwake_fds;
	/* next hops for what is not on the link; all zero: none */
	struct karst_engine_addr gateway4;
	struct karst_engine_addr gateway6;
	/* The number to give it, from 1, as that of a port that was here before; 0: the first free
	 * one. */
	uint8_t number;
	/* The kernel interface that the port is a view of (net_af_packet, net_af_xdp): the kernel
	 * owns ARP, neighbour discovery and routes.  NULL: the port is the engine's. */
	const char *netdev;
	/* Name of a tap interface to make, of the port's MAC address: what is not RoCE for this
	 * port goes to the kernel there, what the kernel sends there leaves by the port.  NULL:
	 * none.  Not with netdev. */
	const char *exception_tap;
	/* Where a driver shares the device with the kernel: receive RoCE only, by flow rules, and
	 * leave everything else to the kernel.  With netdev.  An error if the device cannot. */
	bool isolate;
	/* Frames to all multicast groups are received without the engine's help: the program has
	 * arranged it, or the kernel joins groups on netdev.  The device's filter is left alone. */
	bool all_groups;
	/* Called whenever the engine has stopped the device, also if karst_engine_port_add() fails.
	 * It may close the device, and those below it; of the engine it may call nothing but
	 * karst_engine_intr_pause().  No peer has come to a net_memif since the stop.  NULL: no */
	void (*stopped)(void *arg);
	void *stopped_arg;
};

struct karst_engine_port_info {
	char name[32];
	uint16_t ethdev;
	uint16_t mtu;     /* IP MTU */
	uint8_t path_mtu; /* largest that fits, as karst_core_qp_attr.path_mtu: 1..5 */
	uint8_t mac[6];
	uint16_t vlan;
	uint64_t lcore_mask;
	bool link_up;       /* as karst_engine_links_check() saw it last */
	uint32_t link_mbps; /* 0: not known */
	char netdev[16];    /* empty: none */
	char exception_tap[16];
	uint64_t exception_lost; /* frames that the tap's kernel side refused */
	uint32_t mcast_groups;   /* that QPs are attached to */
	/* IGMP and MLD; 0 where the kernel speaks them */
	uint64_t mcast_queries;     /* that were understood */
	uint64_t mcast_bad_queries; /* that were malformed or not from the link */
	uint64_t mcast_reports;     /* sent, those of leaving included */
	uint8_t igmp_version;       /* that the link understands */
	uint8_t mld_version;
	struct karst_engine_addr gateway4;
	struct karst_engine_addr gateway6;
	uint32_t num_addrs; /* places in the following; those that are :: are empty */
	struct karst_engine_addr addrs[KARST_ENGINE_MAX_ADDRS];
};

/**
 * Configures and starts a port.  *port: its number in struct karst_path and karst_pkt, from 0;
 * karst_core_qp_attr.port_num is one more.
 * Lcores may run meanwhile; UD queue pairs made before it keep to the path MTU of then.  Of a
 * number that was a port's before, owners hear KARST_EVENT_GID_CHANGE, and KARST_EVENT_PORT_ACTIVE
 * if its link is up.
 * -EINVAL; -EEXIST: the number is another port's; -ENOSPC: too many ports; or what DPDK or the
 * kernel said.
 */
int karst_engine_port_add(
	struct karst_engine *e, const struct karst_engine_port_config *cfg, uint8_t *port);

/**
 * Takes a port away and stops its device, without closing it.  Other ports keep their numbers; its
 * own may come back with the next port.  Queue pairs whose path is over it send into nothing.
 * -EINVAL: no such port.
 */
int karst_engine_port_remove(struct karst_engine *e, uint8_t port);

/**
 * Between these two EAL's interrupt thread does nothing, if @ethdev is of a driver whose work there
 * and whose stop and close do not exclude each other: net_memif, also below net_impair.  To be put
 * around rte_eth_dev_stop() and rte_eth_dev_close(), by programs that add such a device to no
 * engine, or close it themselves; the engine does the same where it stops one.  In between, nothing
 * may be waited for.  They nest.
 * @return what karst_engine_intr_resume() is told, by the same thread.
 */
bool karst_engine_intr_pause(uint16_t ethdev);
void karst_engine_intr_resume(bool paused);

/**
 * Until it is taken back, by NULL, drivers that this thread makes call @fn, with @arg, for
 * connect(), which has to return as that does.
 */
void karst_engine_connects(int (*fn)(void *arg, int fd), void *arg);

/** So many peers of net_memif ports were disconnected for what they have said; of this process. */
uint64_t karst_engine_memif_refused(void);

/**
 * The device of a port is gone for good, unplugged under traffic: removes the port as
 * karst_engine_port_remove() does, and lets nobody wait for it.  Queue pairs of the port go to the
 * Error state, or over to their alternate paths if they are armed (G4); alternate paths over the
 * port are forgotten (G5).  Identifiers of connection management that stand at it hear
 * KARST_RDMACM_DEVICE_REMOVAL, and then all owners KARST_EVENT_PORT_ERR and KARST_EVENT_PORT_GONE.
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
 * Changes the addresses of a port.  Those that stay keep their places, which are the indices of
 * GIDs; new ones take places that are empty.  Identifiers of connection management that stand at
 * one that goes hear KARST_RDMACM_ADDR_CHANGE, and then all owners KARST_EVENT_GID_CHANGE.  Queue
 * pairs whose path begins at an address that has gone do not receive any more.  -EINVAL
 */
int karst_engine_port_set_addrs(struct karst_engine *e, uint8_t port, uint32_t num_addrs,
	const struct karst_engine_addr *addrs);

/**
 * The device of a port has another MAC address, from which paths begin from now on.  All
 * identifiers of connection management that stand at the port hear KARST_RDMACM_ADDR_CHANGE, and
 * then all owners KARST_EVENT_GID_CHANGE.  -EINVAL: no such port; a group's address.
 */
int karst_engine_port_set_mac(struct karst_engine *e, uint8_t port, const uint8_t mac[6]);

/**
 * The device of a port has another MTU; the port's is that, or what buffers hold, and its path MTU
 * follows, down to 256.  Queue pairs keep theirs: what they send that is longer is lost.
 * -EINVAL: no such port.
 */
int karst_engine_port_set_mtu(struct karst_engine *e, uint8_t port, uint16_t mtu);

/**
 * Looks at the links of all ports; owners hear KARST_EVENT_PORT_ERR and KARST_EVENT_PORT_ACTIVE of
 * those that have changed.  To be called now and then; nothing else watches them.
 * @return how many have changed, or -EDEADLK.
 */
int karst_engine_links_check(struct karst_engine *e);

/** -EINVAL: no such port. */
int karst_engine_port_info(
	const struct karst_engine *e, uint8_t port, struct karst_engine_port_info *info);

/**
 * The loopback twin of @port: the number to put into karst_path.port if the destination is an
 * address of this engine.  What is sent there does not leave by the device but comes back in, and
 * goes the whole way of a received frame.  Any engine port's address may be the destination.  It is
 * @port itself if that has no ethdev.
 */
uint8_t karst_engine_port_loop(const struct karst_engine *e, uint8_t port);

/**
 * Fills a path from address number @addr of @port to a peer on the same link; @port may be a
 * loopback twin, and is replaced by it if the destination is an address of the port itself.
 * @dst_mac, @dst_ip: wire order, IPv4 as ::ffff:a.b.c.d.
 * -EINVAL: no such port or address, or the address families differ.
 */
int karst_engine_path_init(const struct karst_engine *e, uint8_t port, uint32_t addr,
	const uint8_t dst_mac[6], const uint8_t dst_ip[16], struct karst_path *path);

/* --- progress --- */

/**
 * One turn of lcore @lcore: mailbox, receive, hand-off, doorbells, timers, send.  Attaches the
 * lcore to the calling thread if it is attached to none.
 *
 * Memory of other programs (karst_space.h) that is not mapped is copied by other threads, which the
 * engine starts when there is such memory: a program can make a copy of its memory block, and the
 * caller of this function must not.  Such a copy takes longer than with karst_engine_start(), whose
 * lcores copy themselves as long as no program makes them wait.
 * @return how much was done (frames, doorbells, timers, messages); 0: an idle turn.
 */
unsigned int karst_engine_poll(struct karst_engine *e, uint32_t lcore);

/** Ends the attachment of @lcore, on the thread that has it; nothing happens if it is not. */
void karst_engine_release(struct karst_engine *e, uint32_t lcore);

/** On the lcore's thread: ns until its next timer, UINT64_MAX if none; how long a reactor may
 *  sleep if it is woken for packets and doorbells. */
uint64_t karst_engine_idle_ns(const struct karst_engine *e, uint32_t lcore);

/**
 * Runs every lcore on an EAL worker.  @eal_lcores: which, one for each lcore of the engine;
 * NULL: the first free ones in EAL's order.
 * -EBUSY: an lcore is attached, or a worker is not waiting; -ENOSPC: too few workers.
 */
int karst_engine_start(struct karst_engine *e, const unsigned int *eal_lcores);

/** Ends karst_engine_start(); returns when all are through with their last turn. */
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
/** The region's bytes are now at @host; when it returns, no lcore uses the old address any more. */
int karst_engine_mr_remap(struct karst_engine *e, uint32_t key, void *host);
/** When it returns, no lcore touches the memory any more. */
int karst_engine_mr_dereg(struct karst_engine *e, uint32_t key);
/** The same for @n keys, waiting once for all.  Keys that name nothing are passed over, regions
 *  that windows are bound to stay (-EBUSY), the others are deregistered all the same.
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

/** The program's side; one thread at a time polls a queue. */
struct karst_engine_cq {
	struct karst_cq_shared *sh; /* for karst_cq_arm() */
	void *user;
	void *lanes;                 /* karst_cq_lane() */
	uint32_t entries;            /* of each lane */
	uint32_t nlanes;             /* one for each lcore of the engine */
	uint32_t next;               /* lane that the next poll begins with */
	uint32_t flags;              /* enum karst_cq_flags */
	struct karst_cq_lane lane[]; /* for karst_cq_lane_peek() and _take() */
};

struct karst_engine_cq_init {
	uint32_t entries;                 /* of each lane, rounded up to a power of two from 2 on */
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
 * Changes the size, while completions come in; nobody polls meanwhile.  What is not read yet stays.
 * -EINVAL: out of range; -ENOSPC: more than @entries are not read; -ENOMEM
 */
int karst_engine_cq_resize(struct karst_engine *e, struct karst_engine_cq *cq, uint32_t entries);
/**
 * The same in two steps, for a program that has to know the new place before anything stands there.
 * The first makes *@lanes of *@entries, rounded up; lanes that were made before and not used are
 * freed.  The second goes over to them; -EINVAL: there are none.
 */
int karst_engine_cq_lay_lanes(
	struct karst_engine *e, struct karst_engine_cq *cq, uint32_t *entries, void **lanes);
int karst_engine_cq_switch_lanes(struct karst_engine *e, struct karst_engine_cq *cq);
/** -EBUSY: QPs use it. */
int karst_engine_cq_destroy(struct karst_engine *e, struct karst_engine_cq *cq);
/** True once completions were lost because a lane was full. */
bool karst_engine_cq_overflown(const struct karst_engine_cq *cq);

/* --- XRC domains --- */

/** What XRC targets and SRQs must have in common; all of them are of its lcore. */
struct karst_engine_xrcd {
	uint32_t number; /* never 0; of one domain at a time */
	uint32_t lcore;
};

struct karst_engine_xrcd_init {
	uint32_t lcore; /* or KARST_ENGINE_ANY_LCORE; of a domain that is made */
	bool shared;    /* with all that give the same device and inode; false: a new one */
	bool create;    /* shared: make it if there is none */
	bool exclusive; /* shared: only if there is none */
	uint64_t dev, ino;
};

/** -ENOENT, -EEXIST: see init; -EINVAL, -ENOMEM */
int karst_engine_xrcd_open(struct karst_engine *e, const struct karst_engine_xrcd_init *init,
	struct karst_engine_xrcd **xrcd);
/** Once for each that was opened.  The domain ends when nobody has it open and nothing is in it. */
int karst_engine_xrcd_close(struct karst_engine *e, struct karst_engine_xrcd *xrcd);

/* --- shared receive queues --- */

struct karst_engine_srq_init {
	uint32_t lcore; /* its QPs must be of the same lcore; XRC: the domain's, or any */
	uint32_t pd;
	/* XRC: its domain, and where receives complete; else NULL */
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
	uint32_t num; /* XRC: what requests name it by; else 0 */
};

/** -EINVAL, -ENOMEM; -ENOSPC: the domain's lcore has max_xrc_srqs */
int karst_engine_srq_create(struct karst_engine *e, const struct karst_engine_srq_init *init,
	struct karst_engine_srq **srq);
int karst_engine_srq_set_limit(
	struct karst_engine *e, struct karst_engine_srq *srq, uint32_t limit);
/** See karst_srq_withdraw(). */
int karst_engine_srq_withdraw(struct karst_engine *e, struct karst_engine_srq *srq);
/** -EBUSY: QPs use it.  XRC targets do not hold it: messages for it are refused from now on. */
int karst_engine_srq_destroy(struct karst_engine *e, struct karst_engine_srq *srq);

/* --- queue pairs --- */

struct karst_engine_qp_init {
	enum karst_qp_type type;
	uint32_t lcore; /* owner, or KARST_ENGINE_ANY_LCORE (with an SRQ: the SRQ's) */
	uint32_t pd;
	struct karst_engine_cq *send_cq;
	struct karst_engine_cq *recv_cq;
	struct karst_engine_srq *srq; /* NULL: own receive queue */
	/* XRC_RECV: its domain, whose lcore it gets; pd is 0, and queues, their sizes and CQs are
	 * not looked at.  XRC_SEND: nor are those of receives. */
	struct karst_engine_xrcd *xrcd;
	uint32_t max_send_wr; /* rounded up to a power of two, at least 1 */
	uint32_t max_recv_wr;
	uint32_t max_send_sge; /* 0: 1 */
	uint32_t max_recv_sge; /* 0: 1 */
	uint32_t max_inline;
	uint32_t max_dest_rd_atomic; /* most that modify may set, up to KARST_QP_MAX_RD_ATOMIC */
	bool sq_sig_all;
	bool credits; /* see struct karst_qp_init */
	/* NULL: the program that embeds the engine.  Its CQs and SRQ have the same one. */
	struct karst_engine_owner *owner;
	void *user;
};

/** The program's side of a QP; one thread at a time posts to each of its queues. */
struct karst_engine_qp {
	/* one cache line for who sends */
	struct karst_wq sq;
	struct karst_bell_shared *bell; /* of its lcore */
	uint32_t bell_mask;
	uint32_t num;    /* QP number */
	int32_t wake_fd; /* of its lcore; -1: that never sleeps */
	uint32_t lcore;
	void *user;
	struct karst_wq rq; /* unused with an SRQ */
	uint32_t pd;
};
static_assert(offsetof(struct karst_engine_qp, rq) == KARST_CACHE_LINE, "layout");

/** In RESET.  -EINVAL, -ENOMEM, -ENOSPC: the lcore has max_qps. */
int karst_engine_qp_create(struct karst_engine *e, const struct karst_engine_qp_init *init,
	struct karst_engine_qp **qp);
/** As karst_qp_modify().  -EINVAL also: path over a port that the QP's lcore does not serve, or
 *  an address that is not the port's, or a path MTU that the port does not carry; the same of an
 *  alternate path.  alternate_mem and alt_port_num are the engine's to set. */
int karst_engine_qp_modify(struct karst_engine *e, struct karst_engine_qp *qp,
	const struct karst_core_qp_attr *attr, unsigned int mask);
/** Sends what is posted, as far as it can go at once; modifying to ERR or RESET and destroying do
 *  so by themselves.  For whoever takes something away that requests name, such as an address
 *  handle. */
int karst_engine_qp_send_posted(struct karst_engine *e, struct karst_engine_qp *qp);
/** As karst_qp_rate_limit(), in RTR, RTS or SQD.  -EINVAL: another state; -ENOMEM; -EDEADLK */
int karst_engine_qp_rate_limit(
	struct karst_engine *e, struct karst_engine_qp *qp, uint32_t kbps, uint32_t burst);
/**
 * What @qp may offer to its peer by enhanced connection establishment (C3, X1); after set_ece()
 * what holds, options of 0: nothing.  -EOPNOTSUPP: not RC, or the configuration has it off
 */
int karst_engine_qp_query_ece(struct karst_engine *e, const struct karst_engine_qp *qp,
	uint32_t *vendor, uint32_t *options);
/**
 * What the peer has offered or answered becomes what holds, which an offer's answer says; 0 and 0:
 * nothing.  In RESET or INIT; RESET ends it.  -EINVAL: another state, or another vendor's;
 * -EOPNOTSUPP as above
 */
int karst_engine_qp_set_ece(
	struct karst_engine *e, struct karst_engine_qp *qp, uint32_t *vendor, uint32_t *options);
int karst_engine_qp_query(
	struct karst_engine *e, const struct karst_engine_qp *qp, struct karst_core_qp_attr *attr);
/**
 * @qp, of type UD, receives what comes to the multicast @group by way of its port, also from QPs of
 * this engine; wire order, IPv4 as ::ffff:a.b.c.d.  A second time is harmless; destroying ends it.
 * -EINVAL: not UD, not a group; detach: not attached; -EDQUOT: the owner's max_mcasts; -ENOSPC: the
 * engine's; -EUSERS: the group has KARST_ENGINE_GROUP_QPS, or so many of the user's that others
 * could have none; -ENOMEM
 */
int karst_engine_qp_attach_mcast(
	struct karst_engine *e, struct karst_engine_qp *qp, const uint8_t group[16]);
int karst_engine_qp_detach_mcast(
	struct karst_engine *e, struct karst_engine_qp *qp, const uint8_t group[16]);

/** A further handle on an XRC target: the QP ends with the last one, and its events go to all. */
struct karst_engine_qp_open {
	struct karst_engine_xrcd *xrcd;
	uint32_t qpn;
	struct karst_engine_owner *owner;
	void *user;
};

/** -ENOENT: no target of that number is in the domain; -EUSERS: it has KARST_ENGINE_TARGET_HANDLES;
 *  -ENOMEM */
int karst_engine_qp_open(struct karst_engine *e, const struct karst_engine_qp_open *open,
	struct karst_engine_qp **qp);
/** Has it more than one handle? */
bool karst_engine_qp_is_shared(struct karst_engine *e, const struct karst_engine_qp *qp);

/** Work requests that have not completed vanish; completions that have not been polled stay. */
int karst_engine_qp_destroy(struct karst_engine *e, struct karst_engine_qp *qp);
/** The same for @n of them, some at a time, so that other QPs are served in between. */
int karst_engine_qp_destroy_many(
	struct karst_engine *e, struct karst_engine_qp *const *qps, uint32_t n);

/* --- the data path of the program --- */

/**
 * Free slots of the send queue, at least @want if there are so many.  Fill them in place,
 * (struct karst_send_wqe *)karst_wq_slot(&qp->sq, i) for i from 0, then
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

/** Writes an eventfd that karst_bell_must_wake() asks for. */
void karst_engine_wake(int wake_fd);

/** Rings the doorbell of a QP, waking its lcore if that sleeps.  -EAGAIN: see karst_bell_ring(). */
static inline int
karst_engine_ring(struct karst_engine_qp *qp)
{
	int ret = karst_bell_ring(qp->bell, qp->bell_mask, qp->num);

	if (qp->wake_fd >= 0 && karst_bell_must_wake(qp->bell))
		karst_engine_wake(qp->wake_fd);
	return ret;
}

/** Hands @n filled slots of the send queue to the engine, waking it for this QP if need be.
 *  -EAGAIN: see karst_bell_ring(). */
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

/** Sums the counters of @lcore, or of all with KARST_ENGINE_ANY_LCORE.  Any thread. */
void karst_engine_counters(
	const struct karst_engine *e, uint32_t lcore, struct karst_counters *sum);

/** What the wheel of an lcore did; its only writer is the lcore. */
struct karst_engine_lcore_stats {
	uint64_t turns;
	uint64_t idle_turns;
	uint64_t sleeps;
	uint64_t rx_bursts; /* that were not empty */
	uint64_t rx_frames; /* of any kind, from ports */
	uint64_t tx_bursts;
	uint64_t tx_frames;  /* given to ports */
	uint64_t tx_full;    /* times that a port's queue took less than all */
	uint64_t tx_dropped; /* frames for ports that the lcore does not serve or that are stuck */
	uint64_t handoff_in; /* packets taken over from other lcores */
	uint64_t handoff_out;
	uint64_t doorbells;
	uint64_t messages; /* control calls done from the mailbox */
	uint64_t no_mbufs; /* turns that could not send for want of buffers */
	uint64_t neigh_rx; /* ARP and neighbour discovery that the engine looked at */
	uint64_t neigh_tx; /* its questions, answers and announcements */
	uint64_t tap_rx;   /* frames given to the kernel by an exception tap */
	uint64_t tap_tx;   /* frames that the kernel sent there */
	/* Of the TSC, from the start of one turn to the start of the next: all since the lcore was
	 * attached, and those that began with a turn that did something.  The rest was idle: empty
	 * turns, yielding, sleep.  What a program with its own reactor does between two turns
	 * counts with the first. */
	uint64_t cycles;
	uint64_t busy_cycles;
	/* The longest turn of those of half a millisecond and more, in CPU time of its thread: what
	 * one visit has taken from all others, however busy the machine was.  Up to half a
	 * millisecond of the turns before may be counted in. */
	uint64_t longest_turn_ns;
	uint64_t long_turns; /* that took 5 ms or more, counted in the same way */
};

/** Any thread.  -EINVAL: no such lcore. */
int karst_engine_lcore_stats(
	const struct karst_engine *e, uint32_t lcore, struct karst_engine_lcore_stats *stats);

/**
 * Drops each received RoCE frame with @probability (0..1), drawn from @seed, counted as
 * KARST_DROP_INJECTED: for benches and tests.  0 turns it off.  -EINVAL
 */
int karst_engine_set_loss(struct karst_engine *e, double probability, uint64_t seed);

#endif /* KARST_ENGINE_H */
