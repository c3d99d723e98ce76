/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The transport: queue pairs, completion queues, shared receive queues, address handles.
 *
 * Nothing in here does I/O, reads a clock, allocates, locks or logs.  A struct karst_core is
 * the protocol engine of one lcore; everything that belongs to it is touched by that lcore
 * alone.  It has three entry points:
 *
 *   a packet came in         karst_qp_rx()       parsed, ICRC-verified, dispatched by QPN
 *   frames may be built      karst_qp_tx()       for a QP that the scheduler picks (karst_sched.h)
 *   timers may be due        karst_core_expire()
 *
 * plus karst_core_doorbell() for QPNs that rang.  The caller sets core->now_ns before it calls any
 * of them, and calls karst_core_flush() after each batch: only then are completions visible to
 * programs and events raised.
 *
 * Memory is the caller's: karst_*_bytes() says how much, karst_*_create() makes the object in
 * it, and after karst_*_destroy() it is free again.
 *
 * Return values are 0 or a negative errno; on failure nothing has changed.
 */
#ifndef KARST_QP_H
#define KARST_QP_H

#include "karst_base.h"
#include "karst_congestion.h"
#include "karst_copy.h"
#include "karst_counters.h"
#include "karst_unmapped.h"
#include "karst_icrc.h"
#include "karst_mem.h"
#include "karst_pkt.h"
#include "karst_ring_engine.h"
#include "karst_sched.h"
#include "karst_verbs.h"
#include "karst_wheel.h"
#include "karst_mem_copy.h"

struct karst_core;
struct karst_core_qp;
struct karst_core_cq;
struct karst_core_srq;
struct karst_ah_table;
struct karst_np;
struct karst_rp;
struct karst_swift_rp;

/* --- addresses --- */

/** A resolved path: who we are, who the peer is.  Addresses in wire order. */
struct karst_path {
	uint8_t src_mac[6];
	uint8_t dst_mac[6];
	uint8_t src_ip[16]; /* IPv4: in the last four bytes, as ::ffff:a.b.c.d */
	uint8_t dst_ip[16];
	bool ip6; /* false: IPv4 */
	bool has_vlan;
	uint16_t vlan_tci;
	uint8_t port;      /* engine port that packets leave through */
	uint8_t tclass;    /* ToS or traffic class: DSCP and ECN */
	uint8_t hop_limit; /* 0 means 64 */
	uint32_t flow_label;
	uint16_t udp_sport; /* 0: derived from flow label or QPNs (W1) */
};

/**
 * The traffic class to send with: DSCP and ECN of @path, except "congestion experienced", which
 * only the network may set (E1).
 */
static inline uint8_t
karst_path_tclass(const struct karst_path *path)
{
	return (path->tclass & 3) == 3 ? path->tclass & 0xfc : path->tclass;
}

/** Makes the path of a multicast group from a unicast one: destination MAC by rule U4. */
void karst_path_multicast_mac(struct karst_path *path);

/* --- completion queues --- */

struct karst_cq_init {
	void *shared;       /* struct karst_cq_shared */
	void *lanes;        /* karst_cq_lanes_bytes(entries, nlanes, flags), cache-line aligned */
	uint32_t entries;   /* of each lane; a power of two, 1..KARST_CQ_MAX_ENTRIES */
	uint32_t nlanes;    /* lcores of the engine */
	unsigned int flags; /* enum karst_cq_flags */
	void *user;         /* the caller's, see karst_cq_user() */
	uint32_t sharer;    /* on whose wheel its timers are (karst_qp_init.sharer) */
};

size_t karst_cq_object_bytes(const struct karst_cq_init *init);
/** Control thread, before any QP uses it.  -EINVAL */
int karst_cq_create(void *buf, const struct karst_cq_init *init, struct karst_core_cq **cq);
/** Control thread.  -EBUSY: QPs use it. */
int karst_cq_destroy(struct karst_core_cq *cq);
void *karst_cq_user(const struct karst_core_cq *cq);
/**
 * Moderation: an armed queue has its event after @count completions, or @period_us after the first
 * of them, whichever is sooner; each lcore counts and waits for its own lane.  @count 0: no matter
 * how many; @period_us 0: no matter how long.  0, 0 (and @count 1) means at once, as without.
 * Any thread, any time; what is waiting already waits on.
 */
void karst_cq_set_moderation(struct karst_core_cq *cq, uint16_t count, uint16_t period_us);
/**
 * Replaces the core's lane of @cq by one of @entries entries at @to, memory of zeros.  All three
 * run on the core's lcore, which goes on working between them.
 *   prepare   *@lane, *@span: the lane and its unread entries.  Any thread then copies these by
 *             karst_lane_copy() to karst_lane_in(@lane, @to, @entries).
 *   commit    Copies what has come since, and uses @to from now on.  -ENOSPC: more than @entries
 *             entries are unread; nothing has changed.
 *   rollback  Undoes a commit: @to and @entries are those of the old lane, @span is the same.
 */
void karst_core_resize_cq_prepare(struct karst_core *core, const struct karst_core_cq *cq,
	struct karst_lane *lane, struct karst_lane_span *span);
int karst_core_resize_cq_commit(struct karst_core *core, struct karst_core_cq *cq,
	struct karst_lane_shared *to, uint32_t entries, struct karst_lane_span *span);
void karst_core_resize_cq_rollback(struct karst_core *core, struct karst_core_cq *cq,
	struct karst_lane_shared *to, uint32_t entries, struct karst_lane_span *span);
/** On each core's lcore, before the memory of a queue that was ever moderated goes. */
void karst_core_forget_cq(struct karst_core *core, struct karst_core_cq *cq);
/** True once a completion was lost because a lane was full. */
bool karst_cq_overflown(const struct karst_core_cq *cq);

/* --- the protocol core of one lcore --- */

/** What the caller is told; called on the core's lcore, from karst_core_flush() or an entry
 *  point. */
struct karst_core_ops {
	/** An armed completion queue has something. */
	void (*cq_event)(struct karst_core *core, struct karst_core_cq *cq);
	/** @object is the karst_core_qp, _cq or _srq that the event is about. */
	void (*async_event)(
		struct karst_core *core, enum karst_async_event_code event, void *object);
};

/**
 * How the driver lets the core hold received packets beyond karst_qp_rx() (X4).  On the core's
 * lcore.  A packet that is held may be parked by karst_copy_ops.keep() and so become the copy's.
 */
struct karst_hold_ops {
	/** Keeps @pkt, which is being delivered.  @return the packet from now on, which may be
	 *  another one of the same content; NULL: it cannot be kept. */
	struct karst_pkt *(*hold)(struct karst_core *core, struct karst_pkt *pkt);
	/** A packet that was held is the driver's again. */
	void (*release)(struct karst_core *core, struct karst_pkt *pkt);
};

struct karst_core_config {
	uint32_t lcore;      /* index of this core, 0.. */
	uint32_t lcore_bits; /* low bits of a QPN that name the core, 0..8 */
	uint32_t max_qps;    /* QPs of this core, 1..2^(24-lcore_bits)-3 */
	/* Numbers that they are drawn from, up to 2^(24-lcore_bits); 0, or less than max_qps
	 * needs: just as many.  One that comes again soon may be taken, by a peer, for that of the
	 * connection that had it before (C1): each rests while half of those that are free are
	 * given. */
	uint32_t qpns;
	uint32_t ack_interval; /* request packets between AckReqs, 0 = default 32 (Q2) */
	/* of a user in a round of the scheduler, and of a QP in a round of its user; 0 = default
	 * 16 KiB, at most 16 MiB */
	uint32_t quantum_bytes;
	/* users who share it (karst_qp_init.sharer), 0 = default 1, at most 65536 */
	uint32_t max_sharers;
	/* unacknowledged packets of a QP, 0 = default 256; at most 2^22 (P2) */
	uint32_t window_packets;
	uint64_t stream_bytes; /* regions from this size on are written past the cache; 0 = default
			       * 16 MiB, UINT64_MAX = never (karst_mem_copy.h) */
	bool migreq;           /* MigReq bit of packets sent (W2) */
	/* XRC SRQs of this core, rounded up to a power of two; 0 = default 1024; at most
	 * 2^(23-lcore_bits) */
	uint32_t max_xrc_srqs;
	uint64_t seed[2]; /* for the numbers of QPs and SRQs: secret, from getrandom(), outside of
			   * tests */
	/* how often karst_core_linger() looks at a send queue that has run dry, before its program
	 * must ring for it; 0: never */
	uint32_t linger_turns;
	bool latch_sport; /* packets of a connected QP come from one UDP source port (L5) */
	bool cross_cpu;   /* programs run on other processors: what they read next is handed over */
	bool early_retransmission; /* silence of some round trips is answered by a probe (Q11) */
	struct karst_mem *mem;
	struct karst_ah_table *ahs; /* may be NULL: no UD sends */
	const struct karst_core_ops *ops;
	const struct karst_copy_ops *copy_ops; /* NULL: no unmapped memory is registered */
	const struct karst_congestion_config *congestion; /* NULL: off; the caller's (E1) */
	/* most packets that are held at once, of all queue pairs; 0: none agrees to selective
	 * repeat (X3).  Else hold_ops is not NULL. */
	uint32_t held_frames;
	const struct karst_hold_ops *hold_ops;
	/* UDP source ports that the requests of a queue pair leave with by turns, where selective
	 * repeat was agreed to: a power of two, at most KARST_SPRAY_MAX; 0, 1: one (X12) */
	uint32_t spray_ports;
	void *user;
};

#define KARST_SPRAY_MAX 16u

/** Zero fields of @cfg that have defaults get them.  0 if @cfg is impossible. */
size_t karst_core_bytes(const struct karst_core_config *cfg);
int karst_core_init(
	void *buf, const struct karst_core_config *cfg, uint64_t now_ns, struct karst_core **core);

/** Numbers of a driver's ports are below that. */
#define KARST_CORE_PORTS 64u

/** A send queue that ran dry a moment ago. */
struct karst_core_linger {
	struct karst_core_qp *qp;
	uint32_t left; /* looks */
};

/** The timers of one user. */
struct karst_timers {
	struct karst_timers *next; /* in the circle of those who have some */
	struct karst_timers *prev;
	struct karst_wheel wheel;
};

/** All timers of a core; timers.c's alone. */
struct karst_timing {
	struct karst_timers *turn;   /* whose turn is next; if there are any */
	struct karst_timers *wheels; /* by user; one that has no timers yet is no wheel */
	uint64_t origin_ns;          /* of all wheels */
	uint64_t count;              /* timers that are armed */
	uint32_t nusers;             /* who have some */
};

/* The part of the core that its driver may touch; the rest is in qp_priv.h. */
struct karst_core {
	uint64_t now_ns; /* set by the driver before it calls an entry point */
	void *user;
	struct karst_counters counters;
	struct karst_timing timing;
	struct karst_sched sched;
	/* completion lanes written since the last flush */
	struct karst_cq_lane_state *dirty;
	/* QPs whose rings have slots to give back since then */
	struct karst_core_qp *retired;
	struct karst_mem *mem;
	struct karst_placer placer;
	struct karst_ah_table *ahs;
	const struct karst_core_ops *ops;
	const struct karst_copy_ops *copy_ops;
	/* copy.c */
	struct karst_copy *copy; /* of the packet that is being delivered */
	bool copy_small;         /* what is placed now is not in the packet */
	bool copy_kept;          /* the packet was parked, or waited, already */
	uint32_t lcore;
	uint32_t lcore_bits;
	uint32_t ack_interval;
	uint32_t window_packets;
	uint32_t wary_packets; /* as many after a NAK (Q12); as many as ever: no difference */
	uint32_t max_qps;
	uint32_t nqps;
	uint32_t qpns;      /* of the table, with those that are never given out */
	uint8_t spray_mask; /* spray_ports - 1 */
	uint8_t bth_flags;  /* MigReq as it stands in BTH byte 1 */
	struct karst_core_qp **qps;
	bool cross_cpu;
	bool latch_sport;
	bool early;                   /* probes (Q11) */
	bool measures;                /* round trips (Q11, E7) */
	bool ect;                     /* packets say that they may be marked (E1) */
	uint32_t ncnps;               /* CNPs owed */
	struct karst_np *np;          /* NULL: congestion control is off */
	struct karst_rp *rp;          /* NULL: nobody reacts to CNPs */
	struct karst_swift_rp *swift; /* NULL: nobody reacts to delay */
	uint32_t linger_turns;
	uint32_t nlinger; /* while it is not 0, karst_core_linger() wants to be called */
	struct karst_core_linger linger[8];
	/* set by the driver before karst_core_flush(), if there are queues that keep times */
	uint64_t stamp_ns;
	/* XRC SRQs by the low bits of their numbers; see xrc.c */
	struct karst_core_srq **srqs;
	uint32_t srq_mask;
	uint32_t nsrqs;
	uint32_t next_srq; /* what the next number is made of */
	/* slots of the QPN table that are free, the longest first: a ring of qpns */
	uint32_t *free;
	uint32_t free_head;
	uint32_t nfree;
	uint64_t qpn_key[2];
	uint64_t drawn; /* QPNs, ever */
	/* packets held (X3) */
	const struct karst_hold_ops *hold_ops;
	struct karst_gaps *gaps; /* among responses (X11) */
	uint32_t held_max;
	uint32_t nheld;
	/* of the link of each port, by its number; 0: not known (E2) */
	uint32_t line_mbps[KARST_CORE_PORTS];
} karst_cache_aligned;

/** Which core owns a QPN. */
static inline uint32_t
karst_qpn_lcore(const struct karst_core *core, uint32_t qpn)
{
	return qpn & ((1u << core->lcore_bits) - 1);
}

/** The QP of this core with that number; NULL if there is none or it is another core's. */
static inline struct karst_core_qp *
karst_core_lookup(const struct karst_core *core, uint32_t qpn)
{
	uint32_t slot = qpn >> core->lcore_bits;

	if (slot >= core->qpns || karst_qpn_lcore(core, qpn) != core->lcore)
		return NULL;
	return core->qps[slot];
}

/** A program rang for this QP (any value may come; unknown ones are ignored). */
void karst_core_doorbell(struct karst_core *core, uint32_t qpn);

/**
 * Fires up to @budget timers that are due at core->now_ns, of some users, who share that out; the
 * next call goes on with the others.  What waits to be received is given to karst_qp_rx() before,
 * if its lcore had no processor for long: it counts as not having come.
 * @return how many.
 */
unsigned int karst_core_expire(struct karst_core *core, unsigned int budget);

/** When karst_core_expire() has something to do next, as karst_wheel_next_ns() says it; UINT64_MAX:
 *  no timer is armed.  Looks at the wheel of each user. */
uint64_t karst_core_next_ns(const struct karst_core *core);

/** Publishes completions and raises events. */
void karst_core_flush(struct karst_core *core);

/** Once a turn, before sending: looks at send queues that ran dry a moment ago. */
void karst_core_linger(struct karst_core *core);

/* --- entry points --- */

/**
 * A burst of frames under construction.  The driver supplies empty packets (data set, room for
 * KARST_FRAME_MAX bytes before @data's buffer ends, qp and port ignored) and scratch arrays;
 * karst_qp_tx() fills packets, one seal job for each, and their segments; then the driver calls
 * karst_icrc_seal_burst(seals, n) and sends the frames: pkts[i]->data, pkts[i]->len.
 * Sources of segments stay valid until the end of the driver's poll turn.
 */
struct karst_tx_burst {
	struct karst_pkt **pkts;
	struct karst_seal *seals;
	struct karst_seg *segs;
	uint32_t max;      /* packets supplied */
	uint32_t max_segs; /* at least KARST_WQ_MAX_SGE */
	uint32_t n;        /* packets built */
	uint32_t nsegs;
	uint32_t bytes;  /* frame bytes built */
	uint32_t charge; /* what requests that make no frames count as, in bytes */
};

/** Most bytes a frame can have: VLAN, IPv6, the longest headers, 4096 bytes, ICRC. */
#define KARST_FRAME_MAX 4256u

/** Requests without frames, local ones, and flushed ones of each queue, in one visit. */
#define KARST_VISIT_QUIET 64u
/** What each of them counts as, in bytes. */
#define KARST_QUIET_COST 256u

/**
 * Lets @qp build frames until @b is full, @max_bytes frame bytes were built (the last frame may
 * exceed it), or there is nothing to send.  Requests that make no frame count as KARST_QUIET_COST
 * bytes each, and a visit ends after KARST_VISIT_QUIET of them: a program cannot keep it by feeding
 * its ring.
 * @return true if the QP has more to send now: put it back with karst_core_activate().
 */
bool karst_qp_tx(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b,
	uint32_t max_bytes);

/**
 * The same when the QP's port (karst_qp_port()) takes nothing: only what needs no frame, that is
 * the flushing of a QP in Error or SQE.  @return true if more of that is left.
 */
bool karst_qp_tx_quiet(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b);

/**
 * Delivers a packet whose ->qp is set (karst_core_lookup(pkt->dqpn)).  Drops are counted in
 * core->counters and left in pkt->drop.  The packet is the caller's again afterwards.
 * @return true: it is not yet; it was kept and waits for a copy (karst_copy_ops.keep), or for those
 *   before it (karst_hold_ops.hold).
 */
bool karst_qp_rx(struct karst_core *core, struct karst_pkt *pkt);

/** Starts loading the QP itself, for karst_core_doorbell() and karst_qp_tx(). */
void karst_qp_prefetch(const struct karst_core_qp *qp);
/** Likewise, for karst_qp_rx() of a packet with this BTH opcode. */
void karst_qp_prefetch_rx(const struct karst_core_qp *qp, uint8_t opcode);

/**
 * Second step, when the first has had time to end: what karst_qp_tx() will need of the send
 * ring if there is something to send, and what karst_qp_rx() will need of it for an acknowledgement
 * or response.
 */
void karst_qp_prefetch_send(const struct karst_core_qp *qp);
void karst_qp_prefetch_response(const struct karst_core_qp *qp);

/* --- queue pairs --- */

struct karst_core_qp_attr {
	enum karst_qp_state qp_state;
	enum karst_qp_state cur_qp_state;
	uint8_t path_mtu; /* enum ibv_mtu: 1 = 256 .. 5 = 4096 */
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qpn;
	uint32_t access_flags; /* enum karst_access, REMOTE_* */
	uint16_t pkey_index;   /* only 0 */
	uint16_t pkey;         /* value of that index; 0 means 0xffff */
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining; /* query: in SQD, and not everything sent is acknowledged */
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;  /* 0..31 (Q7) */
	uint8_t port_num;       /* from 1 */
	uint8_t timeout;        /* 0..31 (Q6) */
	uint8_t retry_cnt;      /* 0..7 */
	uint8_t rnr_retry;      /* 0..7, 7 = for ever */
	struct karst_path path; /* KARST_QP_AV */
	/* KARST_QP_REPEAT, of RC to RTR: the peer has agreed to selective repeat with that window,
	 * and @repeat_mem is karst_repeat_bytes() of memory, which is the queue pair's until it is
	 * in RESET or destroyed.  A window of 0: no (X1).  query: the window */
	uint32_t repeat_window;
	void *repeat_mem;
	/* path migration (G2): KARST_QP_PATH_MIG_STATE, set MIGRATED or REARM */
	enum karst_mig_state path_mig_state;
	/* KARST_QP_ALT_PATH; query: zeros if there is none.  @alternate_mem is
	 * karst_qp_alternate_bytes() of memory, the same in each call for a queue pair, and is its
	 * until it is destroyed */
	struct karst_path alt_path;
	uint16_t alt_pkey_index; /* only 0 */
	uint8_t alt_port_num;    /* from 1 */
	uint8_t alt_timeout;     /* 0..31: timeout after migration */
	void *alternate_mem;
};

/** What an alternate path needs. */
size_t karst_qp_alternate_bytes(void);

/** What selective repeat with a window of so many PSNs needs (X2); 0: there is no such window. */
size_t karst_repeat_bytes(uint32_t window);

#define KARST_QP_MAX_RD_ATOMIC 128u

struct karst_qp_init {
	enum karst_qp_type type;
	/* XRC_SEND has no recv_cq, srq and rq_shared; XRC_RECV has none of what follows but
	 * max_dest_rd_atomic and xrcd (U3).  What is not there is 0. */
	uint32_t pd;   /* the caller has checked and counted it (karst_pd_ref) */
	uint32_t xrcd; /* XRC_RECV: number of the domain, not 0; the caller's */
	struct karst_core_cq *send_cq;
	struct karst_core_cq *recv_cq;
	struct karst_core_srq *srq; /* NULL: own receive queue */
	void *sq_shared;            /* karst_wq_bytes(max_send_wr, karst_wq_stride(true, ...)) */
	void *rq_shared;            /* likewise for receives; NULL with an SRQ */
	uint32_t max_send_wr;       /* powers of two, 1..KARST_WQ_MAX_SLOTS */
	uint32_t max_recv_wr;       /* 0 with an SRQ */
	uint32_t max_send_sge;      /* 1..KARST_WQ_MAX_SGE */
	uint32_t max_recv_sge;
	uint32_t max_inline;         /* 0..KARST_WQ_MAX_INLINE */
	uint32_t max_dest_rd_atomic; /* most that modify may set, 0..KARST_QP_MAX_RD_ATOMIC */
	bool sq_sig_all;
	uint8_t ud_mtu; /* UD: largest payload, enum ibv_mtu; 0 = 4096 */
	bool credits;   /* advertise end-to-end credits (Q9); otherwise "not limited" */
	void *user;
	const void *ringer; /* the caller's: who may ring for it (karst_qp_ringer()) */
	uint32_t sharer;    /* whose turns it takes (karst_sched.h), below max_sharers */
	bool pacer; /* it has room for what limits its rate: it must with congestion control */
};

/** Bytes of memory (engine-private) for a QP; 0 if @init is out of range. */
size_t karst_qp_bytes(const struct karst_qp_init *init);

/** Any thread, before karst_qp_create(): clears the karst_qp_bytes() of @buf.  It is what takes
 * time with a long send queue, most of all if pages have to be made for it. */
void karst_qp_prepare(void *buf, const struct karst_qp_init *init);

/** On the core's lcore.  @buf: prepared.  The QP is in RESET and has a number.  -EINVAL, -ENOSPC:
 *  max_qps */
int karst_qp_create(struct karst_core *core, void *buf, const struct karst_qp_init *init,
	struct karst_core_qp **qp);

/** On the core's lcore; from any state; discards everything, without completions; but a receive
 *  that an XRC target holds is flushed, because its queue is another's: karst_core_flush() before
 *  that goes. */
void karst_qp_destroy(struct karst_core *core, struct karst_core_qp *qp);

/**
 * On the core's lcore.  Transitions, required and allowed attributes as ibv_modify_qp(3).
 * -EINVAL: transition or attribute not allowed, value out of range; -EOPNOTSUPP: a feature
 * that karst does not have (resizing).
 */
int karst_qp_modify(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_core_qp_attr *attr, unsigned int mask);

/**
 * Which attributes a transition needs and which it may have besides, KARST_QP_STATE aside, as the
 * tables of ibv_modify_qp(3).  Any thread.  -EINVAL: there is no such transition.
 */
int karst_qp_transition(enum karst_qp_type type, enum karst_qp_state from, enum karst_qp_state to,
	unsigned int *required, unsigned int *optional);

/**
 * On the core's lcore: the alternate path cannot be used any more.  It is forgotten; if the queue
 * pair was to be armed, or was, it is in MIGRATED again and KARST_EVENT_PATH_MIG_ERR says so (G5).
 */
void karst_qp_alternate_lost(struct karst_core *core, struct karst_core_qp *qp);
/** On the core's lcore.  The alternate path; NULL: there is none. */
const struct karst_path *karst_qp_alternate(const struct karst_core_qp *qp);

/** On the core's lcore.  All attributes. */
void karst_qp_query(const struct karst_core_qp *qp, struct karst_core_qp_attr *attr);

/** What one QP has sent and received, since it was created. */
struct karst_qp_stats {
	uint64_t tx_packets; /* frames built */
	uint64_t tx_bytes;   /* of these frames */
	uint64_t rx_packets; /* frames that were for it and in order to be looked at */
	uint64_t rx_bytes;
	/* modulo 2^32 */
	uint32_t retransmits;     /* request packets sent again */
	uint32_t timeouts;        /* of acknowledgements */
	uint32_t seq_naks;        /* sequence error NAKs received */
	uint32_t rnr_naks;        /* RNR NAKs received */
	uint32_t out_of_sequence; /* requests received ahead of the expected PSN */
	uint32_t duplicates;      /* duplicate requests received */
};

/** How fast a QP may send (E2, E6, E7). */
struct karst_qp_rate {
	uint64_t rate;         /* bit/s; 0: not limited */
	uint64_t program_rate; /* that was set by karst_qp_rate_limit(); 0: none */
	uint64_t cc_rate;      /* of congestion control; 0: no CNP has come */
	uint64_t cc_target;    /* what that recovers to */
	uint32_t cc_alpha;     /* of 1024 */
	/* of control by delay; 0: it does not apply */
	uint32_t cwnd;      /* thousandths of a packet */
	uint32_t target_ns; /* what the newest round trip was held against */
	uint32_t delay_ns;  /* that */
};

/** On the core's lcore. */
void karst_qp_rate(struct karst_core *core, struct karst_core_qp *qp, struct karst_qp_rate *r);

/** On the core's lcore: the parameters of the reaction from now on.  -EINVAL: out of range, or the
 *  core reacts to nothing. */
int karst_core_set_rp(struct karst_core *core, const struct karst_rp_params *p);

/** Any thread, as long as the QP exists; each value is whole. */
void karst_qp_stats(const struct karst_core_qp *qp, struct karst_qp_stats *stats);

/** On the core's lcore.  Send requests that it has seen, and that it has given back, both modulo
 *  2^32. */
void karst_qp_send_queue(const struct karst_core_qp *qp, uint32_t *seen, uint32_t *done);

/**
 * On the core's lcore.  From now on @qp sends at most @kbps kbit/s of frames, acknowledgements not
 * counted (E6); 0: as fast as it can.  When it was idle it may send @burst bytes at once, or what
 * it sends in 4.096 us, whichever is more, and a frame.  RESET ends it.  @pacer_mem:
 * karst_qp_pacer_bytes() of memory, the same in each call for a queue pair, and its until it is
 * destroyed; NULL if it was made with room for it, or @kbps is 0.
 */
void karst_qp_rate_limit(struct karst_core *core, struct karst_core_qp *qp, uint32_t kbps,
	uint32_t burst, void *pacer_mem);
/** What a queue pair needs for a limit that was made without room for it. */
size_t karst_qp_pacer_bytes(void);

uint32_t karst_qp_num(const struct karst_core_qp *qp);
enum karst_qp_state karst_qp_state(const struct karst_core_qp *qp);
enum karst_qp_type karst_qp_type(const struct karst_core_qp *qp);
void *karst_qp_user(const struct karst_core_qp *qp);
/** On the core's lcore.  All three as in karst_qp_init. */
void karst_qp_set_user(struct karst_core *core, struct karst_core_qp *qp, void *user,
	const void *ringer, uint32_t sharer);
/** karst_qp_init.ringer.  It stands in the first line of the QP, which a doorbell needs anyway. */
const void *karst_qp_ringer(const struct karst_core_qp *qp);
/** Domain of an XRC target, else 0. */
uint32_t karst_qp_xrcd(const struct karst_core_qp *qp);
/** Port that packets of the next visit leave through.  UD: that of its next packet, which an
 *  address handle names; a visit ends before one for another port. */
uint8_t karst_qp_port(const struct karst_core_qp *qp);

/* --- shared receive queues: of one core, as the QPs that use them --- */

struct karst_srq_init {
	uint32_t pd;
	/* XRC: number of the domain, not 0, and where receives complete; else 0 and NULL */
	uint32_t xrcd;
	struct karst_core_cq *cq;
	void *shared; /* karst_wq_bytes(max_wr, karst_wq_stride(false, ...)) */
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t limit; /* event when fewer are left; 0 = none */
	void *user;
};

size_t karst_srq_object_bytes(void);
/** -EINVAL; -ENOSPC: max_xrc_srqs */
int karst_srq_create(struct karst_core *core, void *buf, const struct karst_srq_init *init,
	struct karst_core_srq **srq);
/** -EBUSY: QPs were made with it.  An XRC SRQ is withdrawn first, from all targets at once. */
int karst_srq_destroy(struct karst_core *core, struct karst_core_srq *srq);
/**
 * Takes its number away from an XRC SRQ: requests that name it are refused from now on, messages in
 * the middle too, and what targets held of it is dropped.  Its number comes back late.  @return
 * false: it was taken away from @most targets, of which there may be as many as there are queue
 * pairs, and others still have it; call again.
 */
bool karst_srq_withdraw(struct karst_core *core, struct karst_core_srq *srq, uint32_t most);
/** What an XRCETH names it by: unique among all cores of the same lcore_bits.  0: it has none. */
uint32_t karst_srq_num(const struct karst_core_srq *srq);
/** Arms the limit event anew. -EINVAL: larger than the queue. */
int karst_srq_set_limit(struct karst_core *core, struct karst_core_srq *srq, uint32_t limit);
uint32_t karst_srq_limit(const struct karst_core_srq *srq);
void *karst_srq_user(const struct karst_core_srq *srq);

/* --- address handles: one table for all cores --- */

size_t karst_ah_table_bytes(uint32_t max_ahs);
int karst_ah_table_init(void *buf, uint32_t max_ahs, struct karst_ah_table **t);
/** Handles are for packets that are ECT(0), or not (E1).  Before any is made. */
void karst_ah_table_set_ect(struct karst_ah_table *t, bool ect);
/** Control thread.  *ah: a number for work requests.  -ENOSPC, -EINVAL */
int karst_ah_create(
	struct karst_ah_table *t, uint32_t pd, const struct karst_path *path, uint32_t *ah);
/** Control thread.  The number fits nothing afterwards; an lcore that is using it at this
 *  moment finishes its packet.  -EINVAL */
int karst_ah_destroy(struct karst_ah_table *t, uint32_t ah);
/** PD of a handle; also of one that is destroyed, until the next one is created. */
uint32_t karst_ah_pd(const struct karst_ah_table *t, uint32_t ah);

#endif /* KARST_QP_H */
