/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The structures of an engine.  Functions are declared in the header of the folder that defines
 * them: lcore.h, port.h (net), object.h, cm.h, session_priv.h, telemetry.h (observe).
 *
 * Writers: the thread that polls an lcore writes the lcore's structure, except "owner", the mailbox
 * and the hand-off ring.  Data that all lcores share is read-only while an lcore is attached, or
 * protected by ctl_lock.
 */
#ifndef ENGINE_PRIV_H
#define ENGINE_PRIV_H

#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_rcu_qsbr.h>
#include <rte_ring.h>

#include "arena.h"
#include "karst_engine.h"
#include "karst_unmapped.h"
#include "karst_log.h"
#include "karst_yield.h"
#include "share.h"

#define ENG_MAX_BURST 64u
/* SRQ numbers have 24 bits, of which 6 are the lcore; half of the remaining numbers are kept unused
 * so that a number is not reused soon. */
#define ENG_MAX_XRC_SRQS 65536u
/* Addresses that programs look for at a time (session_seek.c). */
#define ENG_SEEKS_MAX 256u
/* Free buffers that an lcore keeps; ENG_SPILL: buffers that it moves from or to the pool at
 * once. */
#define ENG_STASH       128u
#define ENG_SPILL       32u
#define ENG_FETCH_AHEAD 4u /* buffers freed by another lcore whose mbufs are being prefetched */
/* Frames that wait for room in a port's queue: the rest of one turn, and the next frames of UD
 * QPs. */
#define ENG_PENDING (2 * ENG_MAX_BURST)
#define ENG_SEGS    (2 * ENG_MAX_BURST + KARST_WQ_MAX_SGE)
#define ENG_BELLS   32u /* taken from one owner's ring at a time */
/* Owners whose doorbell rings an lcore checks in a turn. */
#define ENG_BELL_LOOKS 8u
#define ENG_TIMERS     64u
/* QP numbers of an lcore, at least: if 15,000 connections a second are opened and closed, half of
 * the free numbers are as many as are used during the longest time-wait of lib/cm. */
#define ENG_QPNS 131072u
/* Turns for which an lcore goes on polling a send queue that has become empty: some
 * microseconds. */
#define ENG_LINGER_TURNS 64u
#define ENG_MAILBOX      256u
#define ENG_LOOP_SLOTS   512u
/* Transmit ports: the engine's ports, and the loopback port of each. */
#define ENG_TXQS (2 * KARST_ENGINE_MAX_PORTS)
/* In place of a port number: loopback; the mbuf has the port. */
#define ENG_RX_LOOP UINT_MAX

static_assert(sizeof(struct karst_pkt) % RTE_MBUF_PRIV_ALIGN == 0, "an mbuf's private area");
/* Size of a buffer.  It exceeds KARST_FRAME_MAX so that net_af_packet works with framesz=4352, the
 * next size that fills whole pages (blocksz=69632). */
#define ENG_ROOM (RTE_PKTMBUF_HEADROOM + 4352u)
/* Frames to send begin here, so that the payload begins at a cache line after the 54 bytes of
 * headers of the most frequent packet (Middle, IPv4, no tag). */
#define ENG_FRAME_OFF (RTE_PKTMBUF_HEADROOM + 10u)
static_assert(ENG_FRAME_OFF + KARST_FRAME_MAX <= ENG_ROOM, "the longest frame fits");
static_assert(KARST_FRAME_MAX <= 4352, "a frame fits");

/* --- objects: the program's part first, then the engine's part --- */

/* Most networks whose hosts use selective repeat, and the window, which is the same for all
 * (X2). */
#define ENG_REPEAT_PEERS        16u
#define ENG_REPEAT_WINDOW_SHIFT 10u
#define ENG_REPEAT_WINDOW       (1u << ENG_REPEAT_WINDOW_SHIFT)

struct eng_qp {
	struct karst_engine_qp pub;
	struct karst_core_qp *qp;
	struct karst_engine_owner *owner;
	uint8_t *rings;    /* send queue, then receive queue; NULL: none */
	uint32_t nmcasts;  /* multicast groups that it is attached to */
	uint8_t port_num;  /* from 1; 0: not set yet */
	size_t self_bytes; /* with the karst_core_qp that follows, except for XRC targets */
	size_t ring_bytes;
	struct eng_qp *same; /* next handle of this QP, in a ring; itself if there is one handle */
	/* XRC targets */
	struct karst_engine_xrcd *xrcd;
	void *core_mem; /* the karst_core_qp of all handles */
	size_t core_bytes;
	void *repeat_mem;    /* NULL: never connected to a peer that uses selective repeat */
	bool pacer;          /* created with a pacer */
	void *pacer_mem;     /* of one added later; NULL: its rate was never limited */
	void *alternate_mem; /* NULL: no alternate path so far, or another handle has the memory
			      * (xrc.c) */
	/* enhanced connection establishment (qp_ece.c), under ctl_lock */
	bool ece_set;         /* the program has set the peer's options; RESET ends it */
	uint32_t ece_agreed;  /* agreed options (karst_cm_ece.h) */
	uint32_t ece_options; /* options that the agreement was made with; 0: no agreement */
} karst_cache_aligned;

struct eng_xrcd {
	struct karst_engine_xrcd pub;
	uint32_t users; /* who has opened it, and what is in it */
	bool shared;
	uint64_t dev, ino; /* shared */
	LIST_ENTRY(eng_xrcd) by_file, by_number;
};
LIST_HEAD(eng_xrcds, eng_xrcd);
#define ENG_XRCD_PLACES 1024u

struct eng_cq {
	struct karst_core_cq *cq;
	struct karst_engine_owner *owner;
	void *cq_mem;
	size_t cq_bytes;
	size_t self_bytes;
	void *next_lanes; /* prepared for a resize; NULL: none */
	uint32_t next_entries;
	bool moderated;             /* has ever been moderated */
	struct karst_engine_cq pub; /* ends in an array */
} karst_cache_aligned;

struct eng_srq {
	struct karst_engine_srq pub;
	struct karst_core_srq *srq;
	struct karst_engine_owner *owner;
	void *srq_mem;
	struct karst_engine_xrcd *xrcd; /* NULL: basic */
	void *ring;
	size_t ring_bytes;
} karst_cache_aligned;

/* --- ports as an lcore sees them --- */

struct eng_rxq {
	uint16_t ethdev;
	uint16_t queue;
	uint8_t port;
	int wake_fd; /* readable while frames wait; -1: none */
};

struct eng_txq {
	bool served;
	bool loop; /* no device */
	uint16_t ethdev;
	uint16_t queue;
	uint16_t n;                 /* frames in pend */
	struct karst_parked parked; /* QPs that wait until the queue is empty */
	struct karst_parked back;   /* QPs that have waited and resume, a few in each turn */
	struct rte_mbuf *pend[ENG_PENDING];
};

#define ENG_NO_IP4 UINT64_MAX

struct eng_addrs {
	uint32_t n;
	uint8_t mac[6];
	struct karst_engine_addr addr[KARST_ENGINE_MAX_ADDRS];
};

struct eng_neigh;
struct eng_members;
struct eng_member_kernel;
struct eng_tap;
struct eng_port_ops; /* port_kind.h of net */

struct eng_port {
	/* What every received frame is compared with: the first IPv4 address, in wire order.
	 * ENG_NO_IP4: there is none, or frames must be tagged; then all frames take the slow
	 * path. */
	_Atomic uint64_t ip4;
	_Atomic uint32_t addr_seq; /* counts changes of the addresses; see port_addr.c */
	struct eng_addrs addrs[2];
	/* except the addresses; its MAC address is the home lcore's copy, for neighbours */
	struct karst_engine_port_info info;
	const struct eng_port_ops *ops; /* operations for this kind of port */
	_Atomic bool present;
	uint32_t home;               /* first lcore that serves it: neighbours, announcements */
	struct eng_neigh *neigh;     /* the home lcore's; NULL: the kernel resolves neighbours */
	struct eng_members *members; /* likewise: reports of multicast groups */
	struct eng_member_kernel *kernel_members; /* groups that the kernel joined for the engine */
	struct eng_tap *tap;                      /* NULL: none */
	struct rte_flow *flow[2];                 /* for IPv4, IPv6; NULL: none */
	bool all_groups;                          /* the device takes all multicast frames */
	bool promisc;                             /* made promiscuous for groups */
	uint16_t nq;
	int wake_fd[KARST_ENGINE_MAX_LCORES]; /* of each queue; -1: none */
	void (*stopped)(void *arg);           /* as in karst_engine_port_config */
	void *stopped_arg;
	char name[RTE_ETH_NAME_MAX_LEN];
};

/* --- owners --- */

/* A doorbell ring, on the lcore's side. */
struct eng_bell {
	struct karst_bell ring;
	struct karst_engine_owner *owner;
	uint32_t next; /* next bell of the same user, in a ring */
};

/* Owners of one account take turns as one user of the scheduler (karst_sched.h). */
struct eng_sharer {
	const struct eng_share *share;
	uint32_t owners;
};

struct karst_engine_owner {
	struct karst_engine *e;
	struct karst_engine_ops ops;
	void *user;
	uint32_t client;                   /* number of its session; 0: none */
	struct arena rings;                /* shared with the program */
	char name[64];                     /* of its memory files */
	struct karst_space *_Atomic space; /* the program's; NULL: the program is this process, or
					    * has gone */
	uint32_t sharer;                   /* number in karst_engine.sharers */
	uint32_t nobjects;                 /* CQs, SRQs, QPs */
	uint32_t nmcasts;                  /* attachments of its QPs to multicast groups */
	uint32_t max_mcasts;
	uint32_t bell_cells;
	LIST_ENTRY(karst_engine_owner) next;
	/* of each lcore */
	struct {
		struct karst_bell_shared *bell;
		int wake_fd;
	} doorbell[];
};

/* --- an lcore --- */

/* Values of eng_lcore.at while no queue pair is served: neither is a QP number. */
#define ENG_AT_NONE UINT32_MAX
#define ENG_AT_SEAL (UINT32_MAX - 1) /* frames of several QPs are being sealed */

struct eng_lcore;
struct eng_capture;      /* capture.h */
struct eng_capture_ring; /* capture_ring.h */
typedef int (*eng_fn)(struct eng_lcore *lc, void *arg);

/* A pending control call, on the caller's stack. */
struct eng_msg {
	eng_fn fn;
	void *arg;
	int ret;
	_Atomic bool done;
};

struct eng_lcore {
	/* read in every turn */
	struct karst_core *core;
	struct karst_engine *e;
	_Atomic uintptr_t owner; /* the thread that it is attached to; 0: none */
	_Atomic int32_t cpu;     /* processor that this thread is bound to; -1: not bound to one */
	uintptr_t in_callback;   /* the thread that is in a callback of the program; 0: none */
	struct rte_ring *mailbox;
	struct rte_ring *handoff;
	struct rte_ring *loop;
	uint32_t index;
	uint32_t nrxq;
	uint32_t nblind;    /* of these, queues of ports that cannot wake the lcore */
	uint32_t tapped;    /* ports (bits) that it sends the kernel's frames for */
	uint64_t blocked;   /* ports (bits) with frames in pend, or with QPs that have not
			     * resumed */
	uint64_t rearm;     /* initial rearm_data of an mbuf */
	uint64_t member_ns; /* when reports of multicast groups are due; UINT64_MAX: never */
	uint64_t loss;      /* frames dropped out of 2^64 */
	uint64_t loss_state;
	uint32_t nbells;
	uint32_t nringers;      /* users who have bells here */
	uint32_t next_ringer;   /* user whose bell the next turn checks first */
	struct eng_bell *bells; /* [max_owners + 1] */
	uint32_t *ringer_bell;  /* [max_owners + 1]: of each of these users, the next bell */
	struct karst_engine_lcore_stats stats;
	struct eng_capture_ring *capture; /* of one of its QPs; NULL: none */
	uint64_t turn_tsc;                /* start of the last turn */
	bool was_busy;                    /* the last turn did something */
	uint32_t late;                    /* turns that expired timers may still be held back
					   * (eng_lcore_away()) */
	uint64_t look_tsc;                /* when the CPU time of the thread is to be read again */
	uint64_t cpu_ns;                  /* last CPU time that was read; UINT64_MAX: none */

	/* buffers */
	struct rte_mempool *pool;
	uint32_t nstash;
	uint32_t nstash_cold; /* the lowest entries of stash: from the pool, freed by another
			       * lcore */
	const struct rte_mbuf *tx_last; /* last frame sent, which may be free; NULL: none */
	uint32_t tx_ready;              /* entries of tx_mbuf that are filled */

	struct eng_rxq rxq[KARST_ENGINE_MAX_PORTS];
	struct rte_mbuf *stash[ENG_STASH];
	struct rte_mbuf *tx_mbuf[ENG_MAX_BURST];
	struct karst_pkt *tx_pkts[ENG_MAX_BURST];
	struct karst_pkt tx_pkt[ENG_MAX_BURST] karst_cache_aligned;
	struct karst_seal seals[ENG_MAX_BURST]; /* .cold: tx_mbuf was freed by another lcore */
	struct karst_seg segs[ENG_SEGS];
	struct eng_txq tx[ENG_TXQS];

	pthread_mutex_t attach_lock; /* held by a thread that attaches, or makes a call while no
				      * thread is attached */
	uint32_t eal_lcore;
	struct eng_copies *copies; /* copies.c */
	_Atomic uint32_t at;       /* number of the queue pair that is served, or ENG_AT_*; while
				    * core->rechecked is not 0, that queue pair is served instead */
	struct karst_engine_owner *_Atomic at_bell; /* owner whose doorbell ring is being accessed;
						     * NULL: none */
	uint32_t nseals; /* frames that are being sealed, while at is ENG_AT_SEAL */
	/* the program of each queue pair, by its number; NULL: none, or this process.  Protected by
	 * names_lock; read by the watchdog. */
	struct karst_space **space_of;
	struct {
		_Atomic uint64_t taken_over; /* times that another thread took the lcore over */
		_Atomic uint64_t overdue;    /* programs whose memory did not become accessible in
					      * time */
		_Atomic uint64_t ejected;    /* programs that failed because they blocked the
					      * lcore */
		_Atomic uint64_t stuck;      /* threads that still wait for such programs */
		_Atomic uint64_t no_threads; /* times that no further thread could be created */
	} watched;                           /* written by the watchdog and by workers */
	/* of karst_engine_start(), or copiers; NULL: none yet */
	struct eng_workers *_Atomic workers;
	_Atomic bool launched;          /* karst_engine_start() or stop() creates or ends them */
	uint8_t step;                   /* of its turn, if the turn is interrupted at a safe
					 * point */
	unsigned int work;              /* done in this turn */
	unsigned int received;          /* frames received, as part of work */
	unsigned int rang;              /* doorbells that the turn's first poll found */
	bool idle_sender;               /* nothing was to be sent when the turn began */
	unsigned int breaks;            /* eng_window_breaks() that have been handled */
	unsigned int breaks_seen;       /* those that are being handled */
	struct karst_mem_walk revoking; /* the walk that handles them */
	/* of karst_engine_start() */
	uint32_t idle_run;     /* idle turns, before the first nap */
	uint32_t nap_ns;       /* length of the next nap */
	uint64_t idle_since;   /* engine's clock; 0: not idle */
	uint64_t wanted_until; /* engine's clock: until then, other threads are assumed to want its
				* processor */
	uint64_t offered_tsc;  /* end of the last offer of the processor */
	uint32_t vain_offers;  /* consecutive offers while idle after which no doorbell had rung */
	bool offered_idle;     /* the last offer was made while idle; the next turn evaluates it */
	int epoll_fd;          /* -1: never sleeps */
	int wake_fd;
	/* in a cache line of its own: other threads read it after they have queued work */
	_Atomic uint32_t asleep karst_cache_aligned;
} karst_cache_aligned;

/* Functions of the ports (net) that an lcore calls; set before any lcore runs. */
struct eng_lcore_hooks {
	/* Handles a frame that no queue pair gets, for the reason @why.  Takes @m over. */
	void (*exception)(
		struct eng_lcore *lc, uint8_t port, struct rte_mbuf *m, enum karst_drop why);
	/* Sends what the kernel has sent on the taps of the ports that the lcore is home of.
	 * @return how many frames. */
	unsigned int (*tap_poll)(struct eng_lcore *lc);
	/* Whether there are such frames. */
	bool (*tap_waiting)(const struct eng_lcore *lc);
	/* Called when member_ns has passed. */
	void (*member_expire)(struct eng_lcore *lc);
};

/* Multicast groups of all ports, sorted (group.h). */
struct eng_group;
struct eng_group_table {
	uint32_t ngroups;
	struct eng_group *group; /* [max_mcasts], by port and address */
	uint32_t *qpn;           /* [max_mcasts] */
};

/* --- the engine --- */

struct karst_engine {
	struct karst_engine_config cfg;
	struct karst_engine_ops ops;
	const struct eng_lcore_hooks *hooks;
	char name[16];
	uint32_t nlcores;
	uint32_t lcore_bits;
	uint32_t nports;
	uint64_t secret[2];      /* see eng_secret() */
	struct eng_lcore *lcore; /* [nlcores] */
	struct eng_port port[KARST_ENGINE_MAX_PORTS];
	struct rte_mempool *pool;
	struct rte_rcu_qsbr *rcu;
	struct karst_mem *mem;
	struct karst_ah_table *ahs;
	struct karst_congestion_config congestion;               /* cfg.congestion points to it */
	struct karst_engine_addr repeat_peers[ENG_REPEAT_PEERS]; /* and cfg.repeat_peers */
	struct eng_watch *watch;                                 /* watch.c; NULL: not started.
								  * Changes under ctl_lock */
	struct eng_mcast *mcast;                                 /* NULL: never any groups */
	struct eng_gsi *gsi;
	struct eng_cm *cm;
	struct eng_group_table group_table[2];
	_Atomic uint32_t mcast_seq; /* counts changes of them; see mcast.c */
	uint64_t tsc_base;
	uint64_t tsc_mul;                 /* ns = tsc * mul >> 32 */
	struct karst_yield waiting;       /* threads that wait for lcores, mailbox.c */
	_Atomic bool running;             /* lcores of karst_engine_start() keep running */
	pthread_mutex_t names_lock;       /* for eng_lcore.space_of; no owner is freed while it is
					   * held */
	struct karst_log_some faults_log; /* faults of programs */
	_Atomic uint32_t holders;         /* of this structure: eng_engine_put() */
	bool started;
	bool copies;                            /* there has been memory that has to be copied */
	struct eng_capture *capture;            /* NULL: none; under the lock of the engines'
						 * list */
	pthread_mutex_t ctl_lock;               /* for everything below, mem, ahs:
						 * eng_ctl_enter() */
	struct arena objects;                   /* memory that only the engine uses */
	struct karst_engine_owner *self;        /* the program that embeds the engine */
	LIST_HEAD(, karst_engine_owner) owners; /* including self */
	LIST_ENTRY(karst_engine) unmap_next;    /* intr_unmap.c */
	uint32_t nowners;
	struct eng_sharer *sharers; /* [max_owners + 1]; 0: owners without an account */
	uint32_t nqps[KARST_ENGINE_MAX_LCORES];
	uint32_t ncqs;
	_Atomic uint32_t nstamped; /* CQs with timestamps */
	uint32_t nsrqs;
	/* domains: the shared ones, and all; hash tables with a secret key */
	struct eng_xrcds xrcds_by_file[ENG_XRCD_PLACES], xrcds_by_number[ENG_XRCD_PLACES];
	uint64_t xrcd_key[2];
	uint32_t last_xrcd; /* number of the newest domain */
	pthread_mutex_t
		session_lock;     /* protects the next five members and what sessions report about
				   * themselves */
	struct eng_shares shares; /* has a lock of its own */
	LIST_HEAD(, karst_session) sessions;
	uint32_t last_client;
	LIST_HEAD(, session_seek) seeks; /* session_seek.c; up to ENG_SEEKS_MAX */
	uint32_t nseeks;
	STAILQ_ENTRY(karst_engine) next; /* telemetry's list */
	bool ready;
};

#endif /* ENGINE_PRIV_H */
