/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The transport: queue pairs, completion queues, shared receive queues, address handles.
 *
 * Nothing in this library does I/O, reads a clock, allocates, locks or logs.  A struct karst_core
 * is the protocol engine of one lcore, and only that lcore touches what belongs to it.  A core has
 * three entry points:
 *
 *   a packet arrived        karst_qp_rx()       parsed, ICRC-verified, dispatched by QPN
 *   frames may be built     karst_qp_tx()       for a QP that the scheduler picks (karst_sched.h)
 *   timers may be due       karst_core_expire()
 *
 * In addition, karst_core_doorbell() takes the QPNs whose doorbells were rung.  The caller sets
 * core->now_ns before it calls any of them, and calls karst_core_flush() after each batch:
 * completions become visible to programs, and events are raised, only in that call.
 *
 * The caller owns all memory: karst_*_bytes() returns the size of an object, karst_*_create()
 * builds the object in memory of that size, and after karst_*_destroy() the memory is the caller's
 * again.
 *
 * Functions return 0 or a negative errno; a function that fails has changed nothing.
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

/** A resolved path: the addresses of this end and of the peer, in wire order. */
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

/** Turns a unicast path into that of a multicast group: sets the destination MAC by rule U4. */
void karst_path_multicast_mac(struct karst_path *path);

/* --- completion queues --- */

struct karst_cq_init {
	void *shared;       /* struct karst_cq_shared */
	void *lanes;        /* karst_cq_lanes_bytes(entries, nlanes, flags), cache-line aligned */
	uint32_t entries;   /* of each lane; a power of two, 1..KARST_CQ_MAX_ENTRIES */
	uint32_t nlanes;    /* lcores of the engine */
	unsigned int flags; /* enum karst_cq_flags */
	void *user;         /* the caller's, see karst_cq_user() */
	uint32_t sharer;    /* user whose timer wheel has its timers (karst_qp_init.sharer) */
};

size_t karst_cq_object_bytes(const struct karst_cq_init *init);
/** Control thread, before any QP uses it.  -EINVAL */
int karst_cq_create(void *buf, const struct karst_cq_init *init, struct karst_core_cq **cq);
/** Control thread.  -EBUSY: QPs use it. */
int karst_cq_destroy(struct karst_core_cq *cq);
void *karst_cq_user(const struct karst_core_cq *cq);
/**
 * Sets the moderation of @cq.  An armed queue raises its event after @count completions, or
 * @period_us after the first of them, whichever is sooner.  Each lcore counts and times its own
 * lane separately.  @count 0: no limit by number; @period_us 0: no limit by time.  0, 0 (and @count
 * 1) means without moderation: an event at once.  Any thread, any time; an event that is already
 * delayed stays delayed.
 */
void karst_cq_set_moderation(struct karst_core_cq *cq, uint16_t count, uint16_t period_us);
/**
 * Replaces the core's lane of @cq by one of @entries entries at @to, which is zeroed memory.  All
 * three functions run on the core's lcore, which continues its work between them.
 *   prepare   Returns the lane in *@lane and its unread entries in *@span.  Any thread may then
 *             copy these by karst_lane_copy() to karst_lane_in(@lane, @to, @entries).
 *   commit    Copies the entries that were added since then, and uses @to from now on.  -ENOSPC:
 *             more than @entries entries are unread; nothing has changed.
 *   rollback  Undoes a commit: @to and @entries are those of the old lane, @span is the same.
 */
void karst_core_resize_cq_prepare(struct karst_core *core, const struct karst_core_cq *cq,
	struct karst_lane *lane, struct karst_lane_span *span);
int karst_core_resize_cq_commit(struct karst_core *core, struct karst_core_cq *cq,
	struct karst_lane_shared *to, uint32_t entries, struct karst_lane_span *span);
void karst_core_resize_cq_rollback(struct karst_core *core, struct karst_core_cq *cq,
	struct karst_lane_shared *to, uint32_t entries, struct karst_lane_span *span);
/** On each core's lcore, before the memory of a queue that ever had moderation is freed. */
void karst_core_forget_cq(struct karst_core *core, struct karst_core_cq *cq);
/** True once a completion was lost because a lane was full. */
bool karst_cq_overflown(const struct karst_core_cq *cq);

/* --- the protocol core of one lcore --- */

/** Callbacks.  They are called on the core's lcore, from karst_core_flush() or an entry point. */
struct karst_core_ops {
	/** An armed completion queue has a completion. */
	void (*cq_event)(struct karst_core *core, struct karst_core_cq *cq);
	/** @object is the karst_core_qp, _cq or _srq that the event concerns. */
	void (*async_event)(
		struct karst_core *core, enum karst_async_event_code event, void *object);
};

/**
 * Callbacks by which the core keeps received packets beyond the call of karst_qp_rx() (X4).  They
 * are called on the core's lcore.  karst_copy_ops.keep() may park a held packet, which then belongs
 * to the copy.
 */
struct karst_hold_ops {
	/** Keeps @pkt, which is being delivered.
	 *  @return the packet to use from now on, which may be another one of the same content;
	 *    NULL: it cannot be kept. */
	struct karst_pkt *(*hold)(struct karst_core *core, struct karst_pkt *pkt);
	/** Returns a held packet to the driver. */
	void (*release)(struct karst_core *core, struct karst_pkt *pkt);
};

struct karst_core_config {
	uint32_t lcore;      /* index of this core, 0.. */
	uint32_t lcore_bits; /* low bits of a QPN that name the core, 0..8 */
	uint32_t max_qps;    /* QPs of this core, 1..2^(24-lcore_bits)-3 */
	/* Size of the range that QP numbers are drawn from, up to 2^(24-lcore_bits).  0, or less
	 * than max_qps needs, selects the smallest sufficient range.  If a number is reused soon, a
	 * peer may take it for that of the earlier connection (C1): so each number rests until half
	 * of the free ones have been given out. */
	uint32_t qpns;
	uint32_t ack_interval; /* request packets between AckReqs, 0 = default 32 (Q2) */
	/* quantum of a user in a round of the scheduler, and of a QP in a round of its user; 0 =
	 * default 16 KiB, at most 16 MiB */
	uint32_t quantum_bytes;
	/* users who share the core (karst_qp_init.sharer), 0 = default 1, at most 65536 */
	uint32_t max_sharers;
	/* unacknowledged packets of a QP, 0 = default 256; at most 2^22 (P2) */
	uint32_t window_packets;
	/* writes to regions from this size on bypass the cache; 0 = default 16 MiB, UINT64_MAX =
	 * never (karst_mem_copy.h) */
	uint64_t stream_bytes;
	bool migreq; /* MigReq bit of packets sent (W2) */
	/* each packet of a WRITE without immediate is a message of its own, so that all have one
	 * length (Q13) */
	bool divide_writes;
	/* XRC SRQs of this core, rounded up to a power of two; 0 = default 1024; at most
	 * 2^(23-lcore_bits) */
	uint32_t max_xrc_srqs;
	/* for the numbers of QPs and SRQs: secret; from getrandom(), except in tests */
	uint64_t seed[2];
	/* how many times karst_core_linger() polls a send queue that has become empty, before its
	 * program must ring the doorbell; 0: never */
	uint32_t linger_turns;
	/* packets of a connected QP are accepted from one UDP source port only (L5) */
	bool latch_sport;
	/* programs run on other processors: demote what they read next from the cache */
	bool cross_cpu;
	/* a requester probes when no answer has come for some round trips (Q11) */
	bool early_retransmission;
	struct karst_mem *mem;
	struct karst_ah_table *ahs; /* may be NULL: no UD sends */
	const struct karst_core_ops *ops;
	const struct karst_copy_ops *copy_ops; /* NULL: no unmapped memory is registered */
	const struct karst_congestion_config *congestion; /* NULL: off; the caller owns it (E1) */
	/* limit of the packets held at once, of all queue pairs together; 0: no queue pair agrees
	 * to selective repeat (X3).  If it is not 0, hold_ops is not NULL. */
	uint32_t held_frames;
	const struct karst_hold_ops *hold_ops;
	/* number of UDP source ports that a queue pair alternates between for its requests, where
	 * selective repeat was agreed to: a power of two, at most KARST_SPRAY_MAX; 0, 1: one
	 * (X12) */
	uint32_t spray_ports;
	void *user;
};

#define KARST_SPRAY_MAX 16u

/** The size of a core.  Fields of @cfg that are zero and have a default are set to it.  0 if @cfg
 *  is invalid. */
size_t karst_core_bytes(const struct karst_core_config *cfg);
int karst_core_init(
	void *buf, const struct karst_core_config *cfg, uint64_t now_ns, struct karst_core **core);

/** Upper bound (exclusive) of the numbers of a driver's ports. */
#define KARST_CORE_PORTS 64u

/** A send queue that became empty recently. */
struct karst_core_linger {
	struct karst_core_qp *qp;
	uint32_t left; /* polls */
};

/** The timers of one user. */
struct karst_timers {
	struct karst_timers *next; /* in the circle of users with armed timers */
	struct karst_timers *prev;
	struct karst_wheel wheel;
};

/** All timers of a core; private to timers.c. */
struct karst_timing {
	struct karst_timers *turn; /* user whose turn is next, if there is any */
	/* by user; of a user without timers the wheel is not initialised */
	struct karst_timers *wheels;
	uint64_t origin_ns; /* of all wheels */
	uint64_t count;     /* timers that are armed */
	uint32_t nusers;    /* users with armed timers */
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
	/* QPs with ring slots to give back since the last flush */
	struct karst_core_qp *retired;
	struct karst_mem *mem;
	struct karst_placer placer;
	struct karst_ah_table *ahs;
	const struct karst_core_ops *ops;
	const struct karst_copy_ops *copy_ops;
	/* copy.c */
	struct karst_copy *copy; /* copy of the packet that is being delivered */
	bool copy_small;         /* the bytes being placed are not in the packet */
	bool copy_kept;          /* the packet was parked, or waited behind a parked one, before */
	uint32_t lcore;
	uint32_t lcore_bits;
	uint32_t ack_interval;
	uint32_t window_packets;
	/* the same after a NAK (Q12); equal to window_packets: no difference */
	uint32_t wary_packets;
	uint32_t max_qps;
	uint32_t nqps;
	uint32_t qpns;      /* entries of the QPN table, including those that are never given out */
	uint8_t spray_mask; /* spray_ports - 1 */
	uint8_t bth_flags;  /* MigReq as it stands in BTH byte 1 */
	struct karst_core_qp **qps;
	bool cross_cpu;
	bool latch_sport;
	bool divide_writes;           /* Q13 */
	bool early;                   /* early retransmission (Q11) */
	bool measures;                /* round trips are measured (Q11, E7) */
	bool ect;                     /* packets are marked ECT (E1) */
	uint32_t ncnps;               /* CNPs that have to be sent */
	struct karst_np *np;          /* NULL: congestion control is off */
	struct karst_rp *rp;          /* NULL: no reaction to CNPs */
	struct karst_swift_rp *swift; /* NULL: no reaction to delay */
	uint32_t linger_turns;
	uint32_t nlinger; /* while it is not 0, karst_core_linger() has to be called */
	struct karst_core_linger linger[8];
	uint32_t nidled; /* while it is not 0, karst_core_recheck() has to be called */
	/* number of the queue pair that karst_core_linger() or karst_core_recheck() looks into, for
	 * other threads; 0: none */
	_Atomic uint32_t rechecked;
	struct karst_core_qp *idled[32];
	/* set by the driver before karst_core_flush() if there are queues with completion
	 * timestamps */
	uint64_t stamp_ns;
	/* XRC SRQs by the low bits of their numbers; see xrc.c */
	struct karst_core_srq **srqs;
	uint32_t srq_mask;
	uint32_t nsrqs;
	uint32_t next_srq; /* the next number is derived from it */
	/* free slots of the QPN table, the longest free first: a ring of @qpns entries */
	uint32_t *free;
	uint32_t free_head;
	uint32_t nfree;
	uint64_t qpn_key[2];
	uint64_t drawn; /* QPNs drawn since the start */
	/* held packets (X3) */
	const struct karst_hold_ops *hold_ops;
	struct karst_gaps *gaps; /* gaps among responses (X11) */
	uint32_t held_max;
	uint32_t nheld;
	/* link rate of each port, by port number; 0: not known (E2) */
	uint32_t line_mbps[KARST_CORE_PORTS];
} karst_cache_aligned;

/** The lcore that owns a QPN. */
static inline uint32_t
karst_qpn_lcore(const struct karst_core *core, uint32_t qpn)
{
	return qpn & ((1u << core->lcore_bits) - 1);
}

/** The QP of this core with number @qpn; NULL if there is none or it belongs to another core. */
static inline struct karst_core_qp *
karst_core_lookup(const struct karst_core *core, uint32_t qpn)
{
	uint32_t slot = qpn >> core->lcore_bits;

	if (slot >= core->qpns || karst_qpn_lcore(core, qpn) != core->lcore)
		return NULL;
	return core->qps[slot];
}

/** A program rang the doorbell of QP @qpn.  The value may be arbitrary; an unknown QPN is
 *  ignored. */
void karst_core_doorbell(struct karst_core *core, uint32_t qpn);
/** The same, for a QP that karst_core_lookup() has found. */
void karst_qp_doorbell(struct karst_core *core, struct karst_core_qp *qp);

/**
 * Fires up to @budget timers that are due at core->now_ns.  A call may serve only some of the
 * users, who share the budget; the next call continues with the others.  If the lcore had no
 * processor for long, the driver first passes received packets that are waiting to karst_qp_rx():
 * otherwise a timer treats them as not received.
 * @return the number of timers fired.
 */
unsigned int karst_core_expire(struct karst_core *core, unsigned int budget);

/** When karst_core_expire() has work next, as karst_wheel_next_ns() defines it; UINT64_MAX: no
 *  timer is armed.  The function examines the wheel of each user. */
uint64_t karst_core_next_ns(const struct karst_core *core);

/** Publishes completions and raises events. */
void karst_core_flush(struct karst_core *core);

/** Once a turn, before sending: polls send queues that became empty recently. */
void karst_core_linger(struct karst_core *core);

/** After frames were built, and karst_core_linger(): looks once more into the send queues that have
 *  just gone idle.  What was posted to them meanwhile is not announced by a doorbell. */
void karst_core_recheck(struct karst_core *core);

/* --- entry points --- */

/**
 * A burst of frames under construction.  The driver supplies empty packets (data set, room for
 * KARST_FRAME_MAX bytes before the end of @data's buffer; qp and port are ignored) and scratch
 * arrays.  karst_qp_tx() fills packets, one seal job for each, and their segments.  The driver then
 * calls karst_icrc_seal_burst(seals, n) and sends the frames: pkts[i]->data, pkts[i]->len.  Sources
 * of segments stay valid until the end of the driver's poll turn.
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
	uint32_t charge; /* bytes charged for requests that make no frames */
};

/** Maximum size of a frame: VLAN, IPv6, the longest headers, 4096 bytes, ICRC. */
#define KARST_FRAME_MAX 4256u

/** Limit, in one visit, of requests without frames, of local ones, and of flushed ones of each
 *  queue. */
#define KARST_VISIT_QUIET 64u
/** Bytes charged for each of them. */
#define KARST_QUIET_COST 256u

/**
 * Lets @qp build frames until @b is full, @max_bytes frame bytes were built (the last frame may
 * exceed that), or nothing is left to send.  A request that makes no frame is charged
 * KARST_QUIET_COST bytes, and a visit ends after KARST_VISIT_QUIET of them: so a program cannot
 * prolong a visit by posting to its ring.
 * @return true if the QP has more to send now: the caller puts it back with karst_core_activate().
 */
bool karst_qp_tx(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b,
	uint32_t max_bytes);

/**
 * Like karst_qp_tx(), while the QP's port (karst_qp_port()) accepts no frames: does only what needs
 * no frame, which is to flush a QP in Error or SQE.
 * @return true if more of that is left.
 */
bool karst_qp_tx_quiet(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b);

/**
 * Delivers a packet whose ->qp is set (karst_core_lookup(pkt->dqpn)).  Drops are counted in
 * core->counters and recorded in pkt->drop.
 * @return false: the packet is the caller's again.  true: not yet; it is kept and waits for a copy
 *   (karst_copy_ops.keep), or for packets before it (karst_hold_ops.hold).
 */
bool karst_qp_rx(struct karst_core *core, struct karst_pkt *pkt);

/** Prefetches the QP itself, for karst_core_doorbell() and karst_qp_tx(). */
void karst_qp_prefetch(const struct karst_core_qp *qp);
/** Prefetches the QP for karst_qp_rx() of a packet with this BTH opcode. */
void karst_qp_prefetch_rx(const struct karst_core_qp *qp, uint8_t opcode);

/**
 * Second step, after the loads of the first have had time to complete: prefetches what
 * karst_qp_tx() will need of the send ring if there is something to send, and what karst_qp_rx()
 * will need of it for an acknowledgement or response.
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
	uint16_t pkey;         /* value at that index; 0 means 0xffff */
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining; /* query: in SQD, and some sent requests are not acknowledged yet */
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;  /* 0..31 (Q7) */
	uint8_t port_num;       /* from 1 */
	uint8_t timeout;        /* 0..31 (Q6) */
	uint8_t retry_cnt;      /* 0..7 */
	uint8_t rnr_retry;      /* 0..7, 7 = for ever */
	struct karst_path path; /* KARST_QP_AV */
	/* KARST_QP_REPEAT, RC, transition to RTR: the peer has agreed to selective repeat with that
	 * window.  @repeat_mem is karst_repeat_bytes() of memory; the queue pair owns it until it
	 * is in RESET or destroyed.  A window of 0: not agreed (X1).  query: the window */
	uint32_t repeat_window;
	void *repeat_mem;
	/* path migration (G2): KARST_QP_PATH_MIG_STATE, set MIGRATED or REARM */
	enum karst_mig_state path_mig_state;
	/* KARST_QP_ALT_PATH; query: zeros if there is none.  @alternate_mem is
	 * karst_qp_alternate_bytes() of memory, the same in each call for a queue pair, which owns
	 * it until it is destroyed */
	struct karst_path alt_path;
	uint16_t alt_pkey_index; /* only 0 */
	uint8_t alt_port_num;    /* from 1 */
	uint8_t alt_timeout;     /* 0..31: timeout after migration */
	void *alternate_mem;
};

/** Bytes of memory for an alternate path. */
size_t karst_qp_alternate_bytes(void);

/** Bytes of memory for selective repeat with @window PSNs (X2); 0: the window is invalid. */
size_t karst_repeat_bytes(uint32_t window);

#define KARST_QP_MAX_RD_ATOMIC 128u

struct karst_qp_init {
	enum karst_qp_type type;
	/* XRC_SEND has no recv_cq, srq and rq_shared.  XRC_RECV has none of the following members
	 * except max_dest_rd_atomic and xrcd (U3).  Absent members are 0. */
	uint32_t pd;   /* the caller has checked and referenced it (karst_pd_ref) */
	uint32_t xrcd; /* XRC_RECV: number of the domain, not 0; the caller checks it */
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
	uint32_t max_dest_rd_atomic; /* limit of what modify may set, 0..KARST_QP_MAX_RD_ATOMIC */
	bool sq_sig_all;
	uint8_t ud_mtu; /* UD: largest payload, enum ibv_mtu; 0 = 4096 */
	bool credits;   /* advertise end-to-end credits (Q9); false: "not limited" */
	void *user;
	/* opaque to this library: identifies who may ring its doorbell (karst_qp_ringer()) */
	const void *ringer;
	/* number of the user whose turns it takes (karst_sched.h), below max_sharers */
	uint32_t sharer;
	/* allocate memory for rate limiting in the QP; required with congestion control */
	bool pacer;
};

/** Bytes of memory (engine-private) for a QP; 0 if @init is out of range. */
size_t karst_qp_bytes(const struct karst_qp_init *init);

/** Clears the karst_qp_bytes() of memory at @buf.  Any thread, before karst_qp_create().  This is
 *  the slow part of creation if the send queue is long, mostly if pages have to be allocated for
 *  it. */
void karst_qp_prepare(void *buf, const struct karst_qp_init *init);

/** On the core's lcore.  @buf: after karst_qp_prepare().  The QP is in RESET and has a number.
 *  -EINVAL; -ENOSPC: max_qps */
int karst_qp_create(struct karst_core *core, void *buf, const struct karst_qp_init *init,
	struct karst_core_qp **qp);

/** On the core's lcore; from any state.  Discards everything without completions, with one
 *  exception: a receive that an XRC target holds is flushed, because its completion queue belongs
 *  to another object.  Call karst_core_flush() before that queue is destroyed. */
void karst_qp_destroy(struct karst_core *core, struct karst_core_qp *qp);

/**
 * On the core's lcore.  Transitions, required and allowed attributes are those of ibv_modify_qp(3).
 * -EINVAL: transition or attribute not allowed, value out of range; -EOPNOTSUPP: a feature that
 * karst does not have (resizing).
 */
int karst_qp_modify(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_core_qp_attr *attr, unsigned int mask);

/**
 * The attributes that a transition requires, and those that it also allows, as in the tables of
 * ibv_modify_qp(3).  KARST_QP_STATE is in neither.  Any thread.  -EINVAL: there is no such
 * transition.
 */
int karst_qp_transition(enum karst_qp_type type, enum karst_qp_state from, enum karst_qp_state to,
	unsigned int *required, unsigned int *optional);

/**
 * On the core's lcore: the alternate path cannot be used any more.  The function removes it.  If
 * the queue pair was in REARM or ARMED, it goes back to MIGRATED and raises
 * KARST_EVENT_PATH_MIG_ERR (G5).
 */
void karst_qp_alternate_lost(struct karst_core *core, struct karst_core_qp *qp);
/** On the core's lcore.  The alternate path; NULL: there is none. */
const struct karst_path *karst_qp_alternate(const struct karst_core_qp *qp);

/** On the core's lcore.  All attributes. */
void karst_qp_query(const struct karst_core_qp *qp, struct karst_core_qp_attr *attr);

/** Counters of one QP since it was created. */
struct karst_qp_stats {
	uint64_t tx_packets; /* frames built */
	uint64_t tx_bytes;   /* of these frames */
	uint64_t rx_packets; /* frames that were for it and passed all checks */
	uint64_t rx_bytes;
	/* modulo 2^32 */
	uint32_t retransmits;     /* request packets sent again */
	uint32_t timeouts;        /* acknowledgement timeouts */
	uint32_t seq_naks;        /* sequence error NAKs received */
	uint32_t rnr_naks;        /* RNR NAKs received */
	uint32_t out_of_sequence; /* requests received ahead of the expected PSN */
	uint32_t duplicates;      /* duplicate requests received */
};

/** The rate limits of a QP (E2, E6, E7). */
struct karst_qp_rate {
	uint64_t rate;         /* bit/s; 0: not limited */
	uint64_t program_rate; /* set by karst_qp_rate_limit(); 0: none */
	uint64_t cc_rate;      /* set by congestion control; 0: no CNP has been received */
	uint64_t cc_target;    /* rate to which cc_rate recovers */
	uint32_t cc_alpha;     /* in units of 1/1024 */
	/* control by delay; 0: it does not apply */
	uint32_t cwnd;      /* thousandths of a packet */
	uint32_t target_ns; /* target that the newest round trip was compared with */
	uint32_t delay_ns;  /* the newest round trip */
};

/** On the core's lcore. */
void karst_qp_rate(struct karst_core *core, struct karst_core_qp *qp, struct karst_qp_rate *r);

/** On the core's lcore: sets the parameters of the reaction point.  -EINVAL: out of range, or the
 *  core has no reaction point. */
int karst_core_set_rp(struct karst_core *core, const struct karst_rp_params *p);

/** Any thread, as long as the QP exists; no value is torn. */
void karst_qp_stats(const struct karst_core_qp *qp, struct karst_qp_stats *stats);

/** On the core's lcore.  The numbers of send requests that the core has taken, and that it has
 *  given back, both modulo 2^32. */
void karst_qp_send_queue(const struct karst_core_qp *qp, uint32_t *seen, uint32_t *done);

/**
 * On the core's lcore.  Limits @qp to @kbps kbit/s of frames from now on, acknowledgements not
 * counted (E6); 0: no limit.  After an idle period it may send @burst bytes at once, or as much as
 * it sends in 4.096 us, whichever is more, and one frame.  RESET removes the limit.  @pacer_mem is
 * karst_qp_pacer_bytes() of memory, the same in each call for a queue pair, which owns it until it
 * is destroyed; NULL if the queue pair was created with room for it, or @kbps is 0.
 */
void karst_qp_rate_limit(struct karst_core *core, struct karst_core_qp *qp, uint32_t kbps,
	uint32_t burst, void *pacer_mem);
/** Bytes that a rate limit needs for a queue pair that was created without room for it. */
size_t karst_qp_pacer_bytes(void);

uint32_t karst_qp_num(const struct karst_core_qp *qp);
enum karst_qp_state karst_qp_state(const struct karst_core_qp *qp);
enum karst_qp_type karst_qp_type(const struct karst_core_qp *qp);
void *karst_qp_user(const struct karst_core_qp *qp);
/** On the core's lcore.  All three as in karst_qp_init. */
void karst_qp_set_user(struct karst_core *core, struct karst_core_qp *qp, void *user,
	const void *ringer, uint32_t sharer);
/** karst_qp_init.ringer.  It is in the first cache line of the QP, which a doorbell loads
 *  anyway. */
const void *karst_qp_ringer(const struct karst_core_qp *qp);
/** Domain of an XRC target, else 0. */
uint32_t karst_qp_xrcd(const struct karst_core_qp *qp);
/** Port that the packets of the next visit leave through.  UD: the port of its next packet, which
 *  the address handle determines; a visit ends before a packet for another port. */
uint8_t karst_qp_port(const struct karst_core_qp *qp);

/* --- shared receive queues: each belongs to one core, as the QPs that use it --- */

struct karst_srq_init {
	uint32_t pd;
	/* XRC: number of the domain, not 0, and the completion queue of receives; otherwise 0 and
	 * NULL */
	uint32_t xrcd;
	struct karst_core_cq *cq;
	void *shared; /* karst_wq_bytes(max_wr, karst_wq_stride(false, ...)) */
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t limit; /* raise an event when fewer are left; 0 = none */
	void *user;
};

size_t karst_srq_object_bytes(void);
/** -EINVAL; -ENOSPC: max_xrc_srqs */
int karst_srq_create(struct karst_core *core, void *buf, const struct karst_srq_init *init,
	struct karst_core_srq **srq);
/** -EBUSY: QPs were created with it.  An XRC SRQ is first withdrawn from all targets at once. */
int karst_srq_destroy(struct karst_core *core, struct karst_core_srq *srq);
/**
 * Removes the number of an XRC SRQ.  From now on requests that name the number are refused, also in
 * the middle of a message, and what targets held of the SRQ is dropped.  The number is reused late.
 * @return false: the SRQ was removed from @most targets, and others still have it; call again.
 *   There may be as many targets as queue pairs.
 */
bool karst_srq_withdraw(struct karst_core *core, struct karst_core_srq *srq, uint32_t most);
/** The number that an XRCETH carries: unique among all cores of the same lcore_bits.  0: it has
 *  none. */
uint32_t karst_srq_num(const struct karst_core_srq *srq);
/** Rearms the limit event.  -EINVAL: larger than the queue. */
int karst_srq_set_limit(struct karst_core *core, struct karst_core_srq *srq, uint32_t limit);
uint32_t karst_srq_limit(const struct karst_core_srq *srq);
void *karst_srq_user(const struct karst_core_srq *srq);

/* --- address handles: one table for all cores --- */

size_t karst_ah_table_bytes(uint32_t max_ahs);
int karst_ah_table_init(void *buf, uint32_t max_ahs, struct karst_ah_table **t);
/** Selects whether handles are for ECT(0) packets (E1).  Call it before any handle is created. */
void karst_ah_table_set_ect(struct karst_ah_table *t, bool ect);
/** Control thread.  *ah: the number to use in work requests.  -ENOSPC, -EINVAL */
int karst_ah_create(
	struct karst_ah_table *t, uint32_t pd, const struct karst_path *path, uint32_t *ah);
/** Control thread.  The number matches no handle afterwards; an lcore that is using the handle at
 *  that moment finishes its packet.  -EINVAL */
int karst_ah_destroy(struct karst_ah_table *t, uint32_t ah);
/** Control thread.  Suspends the handles for which @may, called with their port and source address
 *  (IPv4: mapped), returns false: work requests with their numbers fail as if they were destroyed.
 *  An lcore that is using one at that moment finishes its packet.  The others may be used, also
 *  those that were suspended before. */
void karst_ah_suspend(struct karst_ah_table *t,
	bool (*may)(const void *user, uint8_t port, const uint8_t src_ip[16]), const void *user);
/** PD of a handle; also of a destroyed one, until the next handle is created. */
uint32_t karst_ah_pd(const struct karst_ah_table *t, uint32_t ah);

#endif /* KARST_QP_H */
