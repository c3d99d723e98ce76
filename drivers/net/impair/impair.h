/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * net_impair: a port on top of another one, which impairs RoCEv2 packets by rules.
 *
 *	impair.c   the device: arguments, and the operations that it passes to the port below
 *	stats.c    counters
 *	control.c  changes of rules while packets pass; telemetry
 *	rules.c    rule files: sections and keys
 *	value.c    rule files: values
 *	set.c      the rules of one queue, with their counts
 *	flow.c     the history of flows
 *	judge.c    which packets a rule hits
 *	act.c      the actions on a packet
 *	held.c     packets that are held
 *	burst.c    receive and transmit bursts
 *	log.c      the log of what was done to packets
 *
 * A queue (struct imp_queue) is one direction of one of the device's queues, and belongs to the
 * lcore that polls it.  Other threads give it new rules through @next, take old ones from @retired,
 * and read counters.  They use no other member.
 */
#ifndef IMPAIR_H
#define IMPAIR_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include <rte_byteorder.h>
#include <rte_cycles.h>
#include <rte_log.h>
#include <rte_mbuf.h>

#include "dpdk23.h"
#include "rules.h"

#define IMP_MAX_QUEUES 64u
/** Maximum number of packets that are judged at a time. */
#define IMP_BURST 512u
/**
 * Maximum number of packets that are held for later packets.  Each costs one comparison for each
 * packet.
 */
#define IMP_COUNTED 64u
/**
 * Maximum number of packets that are ready but had no room.  At least what one burst can leave in
 * the worst case.
 */
#define IMP_READY      2048u
#define IMP_COPIES_MAX 16u

extern int imp_logtype;
#define IMP_LOG(level, ...) \
	rte_log(RTE_LOG_##level, (uint32_t)imp_logtype, "net_impair: " __VA_ARGS__)

/* --- flow.c --- */

/** For this many PSNs before the newest of a flow, it is known how often each was seen. */
#define IMP_FLOW_PSNS 4096u

struct imp_flow {
	uint64_t key;  /* 0: unused */
	uint64_t used; /* tick of the last lookup */
	uint32_t next_psn;
	uint32_t seen[]; /* a count for each rule that counts by QP; then one byte for each PSN */
};

struct imp_flows {
	uint64_t mask; /* number of buckets minus one */
	size_t stride;
	uint32_t counters; /* number of counts in @seen */
	bool psns;
	uint64_t secret, tick;
	uint8_t *memory;
};

struct imp_frame;

/** @return NULL: no memory. */
struct imp_flows *imp_flows_new(uint64_t flows, uint32_t counters, bool psns, uint64_t seed);
void imp_flows_free(struct imp_flows *fs);
/**
 * Finds or makes the flow of a frame.  If there is no room, the least recently used one is
 * replaced, and counted in @evicted.
 */
struct imp_flow *imp_flow_of(struct imp_flows *fs, const struct imp_frame *f, uint64_t *evicted);
/**
 * Counts a transmission of a PSN.  @return how often the PSN was seen before, up to
 * IMP_TRANSMISSION_MAX.
 */
uint32_t imp_flow_transmission(const struct imp_flows *fs, struct imp_flow *flow, uint32_t psn);

/* --- judge.c --- */

/** Position of the headers of a RoCEv2 frame. */
struct imp_frame {
	const uint8_t *l3, *bth; /* in the packet, or in a copy of its headers */
	uint32_t l3_off, bth_off;
	bool ip6;
	uint8_t opcode;
	uint32_t qpn, psn;
};

/** A rule of one queue, with its counts. */
struct imp_live {
	const struct imp_conf_rule *conf;
	uint64_t opcode[4];
	uint32_t qpn_only; /* the only QP; UINT32_MAX: search the lists */
	bool qpn_any, psn_any;
	uint16_t source_ports; /* a bit for each value of their lowest four bits */
	uint8_t choice;
	uint32_t transmission;
	int32_t counter; /* index in the flow's counts; -1: counts in this structure */
	uint32_t number; /* index of the rule in the file */
	uint64_t seen, next;
	uint32_t at; /* index of the next entry of nth */
	uint64_t salt;
	uint64_t from, until; /* TSC */
	_Atomic uint64_t *taken;
	/*
	 * for action = rate: TSC of the next byte; cycles of a byte as 32.32; cycles that can be
	 * saved; cycles that a packet waits at most
	 */
	uint64_t due, byte_cycles, tau, queue;
	uint64_t delay, hold; /* cycles */
	uint64_t hits;        /* relaxed; other threads read it */
};

/** The rules of one queue.  Only packets that match @opcode and @qpn are judged by each rule. */
struct imp_set {
	uint8_t opcode[256]; /* 1: a rule may match it */
	uint64_t qpn[1024];  /* a bit for each imp_qpn_bit() */
	bool times;          /* a rule needs the time */
	bool counts_all;     /* all rules match all packets, and hit by number */
	uint32_t n;
	uint32_t generation;
	struct imp_flows *flows; /* NULL: no rule needs them */
	struct imp_rules *rules;
	struct imp_set *older; /* on the list of retired sets */
	struct imp_live live[];
};

/** The rule that has hit, and the count at which it did. */
struct imp_verdict {
	struct imp_live *live;
	uint64_t count;
	uint32_t transmission;
};

struct imp_queue;

/**
 * Finds the headers of a frame.  @copy: buffer for headers that are not contiguous.
 * @return whether the frame is RoCEv2 and has a BTH.
 */
#define IMP_HEADERS 100u
bool imp_frame_read(const struct rte_mbuf *m, struct imp_frame *f, uint8_t copy[IMP_HEADERS]);

static inline const uint8_t *
imp_headers(const struct rte_mbuf *m)
{
	return rte_pktmbuf_mtod(m, const uint8_t *);
}

/**
 * Counts packets of @bufs from @from on, up to the first one that a rule hits.
 * @return its index; @n: no rule hits.
 */
uint16_t imp_scan(struct imp_queue *q, struct rte_mbuf *const *bufs, uint16_t from, uint16_t n,
	uint64_t now, struct imp_verdict *v);

/* --- set.c --- */

/**
 * Makes a set of @rules for one direction of a queue.  For the control thread.
 * @return NULL: no memory.
 */
struct imp_set *imp_set_new(struct imp_rules *rules, unsigned int direction, uint16_t queue,
	uint32_t generation, uint64_t now);
/**
 * Frees a set, and its rules if nothing uses them any more.  The caller holds the port's lock,
 * which guards the number of users.
 */
void imp_set_free(struct imp_set *s);
/** The same for a list of retired sets. */
void imp_sets_free(struct imp_set *list);

/** @return the low half of a QP number, in the byte order of a packet. */
static inline uint16_t
imp_qpn_bit(uint32_t qpn)
{
	return rte_cpu_to_be_16((uint16_t)qpn);
}

/* --- log.c --- */

enum imp_event { IMP_INJURED, IMP_SPARED, IMP_RELEASED, IMP_DISCARDED };

/** Additional information. */
enum imp_why {
	IMP_WHY_NONE,
	IMP_WHY_NO_BUFFER,
	IMP_WHY_NO_ROOM,    /* the maximum number of packets is held already */
	IMP_WHY_NO_PART,    /* the packet has no such byte */
	IMP_WHY_TOO_SHORT,  /* nothing would remain */
	IMP_WHY_QUEUE_FULL, /* queue of a rate is full; dropped */
	IMP_WHY_PACKETS,    /* released because later packets have passed */
	IMP_WHY_TIME,       /* released because the time has come */
	IMP_WHY_STOPPED,    /* the port was stopped */
	IMP_WHY_NOT_SENT,   /* the port below did not accept more */
};

struct imp_record {
	uint64_t packet, tsc, count;
	uint32_t qpn, psn, len, detail, generation;
	uint16_t queue;
	uint8_t direction, event, action, choice, why, opcode, transmission;
	char rule[IMP_NAME_BYTES];
};

/** Ring with one producer and one consumer. */
struct imp_log_ring {
	struct imp_record *slot;
	uint32_t mask;
	_Alignas(64) _Atomic uint32_t head; /* next slot to write */
	_Atomic uint64_t lost;
	_Alignas(64) _Atomic uint32_t tail; /* next slot to read */
	uint64_t said_lost;
};

struct imp_log;

/** @return NULL, after a message. */
struct imp_log *imp_log_open(const char *path, const char *port, uint32_t slots);
/** Writes all records that are left, and closes the log. */
void imp_log_close(struct imp_log *l);
/** @return the ring of a queue; NULL: no memory. */
struct imp_log_ring *imp_log_ring(struct imp_log *l, unsigned int direction, uint16_t queue);
/** Writes all records that were put before the call. */
void imp_log_flush(struct imp_log *l);
/** Logs that new rules are in use from now on. */
void imp_log_rules(
	struct imp_log *l, const char *path, const struct imp_rules *r, uint32_t generation);
uint64_t imp_log_written(struct imp_log *l);
uint64_t imp_log_lost(struct imp_log *l);

/* --- held.c --- */

struct imp_waiting {
	struct rte_mbuf *m;
	uint64_t due;   /* TSC; UINT64_MAX: never */
	uint64_t order; /* among packets with the same due */
	uint32_t left;  /* packets to wait for; only if held for later packets */
	bool any;       /* wait for packets of any kind, not only those to the same QP */
	struct imp_record record;
};

/** Packets that are held for a time (a heap), and packets that are held for later packets. */
struct imp_held {
	struct imp_waiting *timed;
	uint32_t ntimed, room;
	uint32_t ncounted;
	uint64_t order;
	struct imp_waiting counted[IMP_COUNTED];
};

/** @return false: the maximum number of packets is held already. */
bool imp_hold_timed(struct imp_held *h, const struct imp_waiting *w);
bool imp_hold_counted(struct imp_held *h, const struct imp_waiting *w);
/** Takes a packet whose time has come.  @return false: there is none. */
bool imp_held_due(struct imp_held *h, uint64_t now, struct imp_waiting *to);
/**
 * Records that a packet has passed.  @f: NULL if it is not RoCEv2.  Takes a packet that was held
 * for it.  Call with @first set, then without, until it returns false.
 */
bool imp_held_passed(
	struct imp_held *h, const struct imp_frame *f, bool first, struct imp_waiting *to);
/** Takes any packet.  @return false: there is none. */
bool imp_held_any(struct imp_held *h, struct imp_waiting *to);

/* --- queues --- */

/** The lcore writes these, and other threads read them. */
struct imp_queue_stats {
	uint64_t action[IMP_ACTIONS];
	uint64_t spared;       /* packets that a rule has hit, but the action was not possible */
	uint64_t released;     /* packets that were held before */
	uint64_t discarded;    /* held packets when the port was stopped, or packets without room */
	uint64_t evicted;      /* flows that were replaced */
	uint64_t rate_dropped; /* packets of action[IMP_RATE] that would have waited too long */
};

struct imp_queue {
	struct imp_port *port;
	struct imp_set *set;
	uint16_t below, queue;
	uint8_t direction;
	uint16_t port_id;
	uint64_t frames;          /* packets judged so far */
	uint32_t returned;        /* TX: packets that were judged and returned to the caller */
	struct rte_mempool *pool; /* for copies of packets without their own pool; may be NULL */
	struct imp_log_ring *log; /* NULL: none */
	struct imp_queue_stats stats;
	uint32_t ready_at, nready;
	struct rte_mbuf **ready; /* array of IMP_READY */
	struct imp_held held;
	_Alignas(64) _Atomic(struct imp_set *) next; /* new set, for the lcore to take */
	_Atomic(struct imp_set *) retired;           /* old sets, for the control thread to free */
};

struct imp_port {
	LIST_ENTRY(imp_port) list;
	char rules_path[4096], log_path[4096], below_name[RTE_ETH_NAME_MAX_LEN];
	struct rte_eth_dev *dev;
	uint16_t below; /* port id */
	uint64_t owner;
	_Atomic bool gone; /* the port below was removed */
	uint32_t uses;     /* of imp_control_use(); under the lock of the list */
	bool started;
	uint32_t held_room, log_slots;
	uint64_t judged_flag; /* flag in ol_flags of mbufs */
	struct rte_ether_addr macs[RTE_ETH_NUM_RECEIVE_MAC_ADDR];
	struct imp_log *log;
	pthread_mutex_t lock; /* for the following members, and for log rings outside of lcores */
	struct imp_rules *rules;
	uint32_t generation;
	struct imp_queue *queue[IMP_BOTH][IMP_MAX_QUEUES];
	struct imp_queue_stats base[IMP_BOTH][IMP_MAX_QUEUES];
};

/** Adds to a counter that has a single writer.  Other threads never read a partial value. */
static inline void
imp_add(uint64_t *to, uint64_t n)
{
	__atomic_store_n(to, *to + n, __ATOMIC_RELAXED);
}

/** Fills in a record of @m, which the rule of @v has hit. */
void imp_record_init(struct imp_record *r, const struct imp_queue *q, const struct rte_mbuf *m,
	const struct imp_frame *f, const struct imp_verdict *v, uint64_t packet, uint64_t now);
/** Puts a record into the log.  Never waits; a record without room is counted. */
void imp_log_put(struct imp_queue *q, struct imp_record *r, enum imp_event event, enum imp_why why);

/* --- act.c --- */

/** Result of an action on a packet. */
struct imp_outcome {
	struct rte_mbuf *m; /* the packet, maybe in another buffer; NULL: dropped or held */
	uint32_t ncopies;
	struct rte_mbuf *copy[IMP_COPIES_MAX];
};

/**
 * Applies the action of a rule to a packet.  @packet: number of the packet.  @room: maximum number
 * of copies.
 */
void imp_act(struct imp_queue *q, struct rte_mbuf *m, const struct imp_verdict *v, uint64_t packet,
	uint64_t now, uint32_t room, struct imp_outcome *o);

/* --- burst.c --- */

uint16_t imp_rx_burst(void *queue, struct rte_mbuf **bufs, uint16_t n);
uint16_t imp_tx_burst(void *queue, struct rte_mbuf **bufs, uint16_t n);
uint16_t imp_tx_prepare(void *queue, struct rte_mbuf **bufs, uint16_t n);
/** Discards all packets of the queue, which must not be polled. */
void imp_queue_empty(struct imp_queue *q);

/* --- stats.c --- */

int imp_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats);
int imp_stats_reset(struct rte_eth_dev *dev);
int imp_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *to, unsigned int n);
int imp_xstats_reset(struct rte_eth_dev *dev);
int imp_xstats_get_names(struct rte_eth_dev *dev, struct rte_eth_xstat_name *to, unsigned int n);
/** Sums up the counters of a direction over all queues, since the last reset. */
void imp_stats_sum(const struct imp_port *p, unsigned int direction, struct imp_queue_stats *to);
/** @return the number of packets that are held or ready in a direction. */
uint64_t imp_stats_waiting(const struct imp_port *p, unsigned int direction);
/** @return the number of packets that a rule has hit.  The caller holds the lock. */
uint64_t imp_stats_rule(const struct imp_port *p, uint32_t rule);

/* --- control.c --- */

/** Makes the port known to telemetry and to imp_control_use(). */
int imp_control_add(struct imp_port *p);
/**
 * Removes it.  Waits until no other thread uses it.  Uses of the calling thread end here: in them,
 * a callback of the program may close the port.
 */
void imp_control_remove(struct imp_port *p);
/** A use of a port, in the frame of the thread that uses it. */
struct imp_use {
	struct imp_port *port;
	struct imp_use *outer; /* that of the same thread in which this one began */
};
/**
 * Finds the port of a device id, which then is not freed until imp_control_leave(), or until this
 * thread closes it.  @return NULL: none; then, too, imp_control_leave() has to be called.
 */
struct imp_port *imp_control_use(struct imp_use *u, uint16_t port_id);
void imp_control_leave(struct imp_use *u);
/**
 * Gives each queue a set of these rules, which are those of the file @path, and logs that.  The
 * caller holds the lock.  On failure nothing has changed.
 */
int imp_control_apply(struct imp_port *p, struct imp_rules *rules, const char *path);
/**
 * Reads a file of rules and applies it.
 * @return 0, or -errno after a message, and nothing has changed.
 */
int imp_control_load(struct imp_port *p, const char *path, imp_say say, void *user);
/** Makes a set of the current rules for a new queue.  @return NULL: no memory. */
struct imp_set *imp_control_set(struct imp_port *p, unsigned int direction, uint16_t queue);

#endif /* IMPAIR_H */
