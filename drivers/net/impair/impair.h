/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * net_impair: a port over another one, which impairs RoCEv2 packets by rules.
 *
 *	impair.c   the device: arguments, and what of DPDK's questions goes to the port below
 *	stats.c    its counters
 *	control.c  rules that change while packets pass; telemetry
 *	rules.c    a rule file: sections and keys
 *	value.c    and values
 *	set.c      the rules of one queue, with what they have counted
 *	flow.c     what was seen of a flow
 *	judge.c    which packets are hit
 *	act.c      what is done to a packet
 *	held.c     packets that wait
 *	burst.c    receiving and sending
 *	log.c      what was done, in a file
 *
 * A queue (struct imp_queue) is one direction of one of the device's queues, and belongs to the
 * lcore that polls it.  Other threads give it new rules through @next, take old ones from @retired,
 * and read counters; everything else of it is the lcore's alone.
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
/** Packets that are judged at a time. */
#define IMP_BURST 512u
/** Packets that wait for later ones; each of these costs a comparison for each packet. */
#define IMP_COUNTED 64u
/** Packets that are ready, and found no room: at least what a burst leaves at worst. */
#define IMP_READY      2048u
#define IMP_COPIES_MAX 16u

extern int imp_logtype;
#define IMP_LOG(level, ...) \
	rte_log(RTE_LOG_##level, (uint32_t)imp_logtype, "net_impair: " __VA_ARGS__)

/* --- flow.c --- */

/** So many PSNs before the newest of a flow it is known how often each was seen. */
#define IMP_FLOW_PSNS 4096u

struct imp_flow {
	uint64_t key;  /* 0: unused */
	uint64_t used; /* tick at which it was looked at last */
	uint32_t next_psn;
	uint32_t seen[]; /* of each rule that counts by QP; and behind them, a byte a PSN */
};

struct imp_flows {
	uint64_t mask; /* buckets less one */
	size_t stride;
	uint32_t counters; /* in @seen */
	bool psns;
	uint64_t secret, tick;
	uint8_t *memory;
};

struct imp_frame;

/** @return NULL: no memory. */
struct imp_flows *imp_flows_new(uint64_t flows, uint32_t counters, bool psns, uint64_t seed);
void imp_flows_free(struct imp_flows *fs);
/** The flow of a frame; the one that was used longest ago goes if there is no room for it, and
 *  @evicted counts it. */
struct imp_flow *imp_flow_of(struct imp_flows *fs, const struct imp_frame *f, uint64_t *evicted);
/** How often a packet's PSN was seen before, up to IMP_TRANSMISSION_MAX; it has been seen now. */
uint32_t imp_flow_transmission(const struct imp_flows *fs, struct imp_flow *flow, uint32_t psn);

/* --- judge.c --- */

/** Where things are in a RoCEv2 frame. */
struct imp_frame {
	const uint8_t *l3, *bth; /* in the packet, or in a copy of its headers */
	uint32_t l3_off, bth_off;
	bool ip6;
	uint8_t opcode;
	uint32_t qpn, psn;
};

/** A rule of one queue, with what it has counted. */
struct imp_live {
	const struct imp_conf_rule *conf;
	uint64_t opcode[4];
	uint32_t qpn_only; /* the only QP; UINT32_MAX: the lists are to be looked at */
	bool qpn_any, psn_any;
	uint16_t source_ports; /* by their lowest four bits */
	uint8_t choice;
	uint32_t transmission;
	int32_t counter; /* in a flow; -1: its own */
	uint32_t number; /* of the rule in the file */
	uint64_t seen, next;
	uint32_t at; /* entry of nth that comes next */
	uint64_t salt;
	uint64_t from, until; /* TSC */
	_Atomic uint64_t *taken;
	/* action = rate: TSC of the next byte, cycles of a byte as 32.32, cycles that may be saved,
	 * cycles that a packet waits at most */
	uint64_t due, byte_cycles, tau, queue;
	uint64_t delay, hold; /* cycles */
	uint64_t hits;        /* relaxed, read by others */
};

/** The rules of one queue.  Packets that @opcode and @qpn let through are looked at closely. */
struct imp_set {
	uint8_t opcode[256]; /* 1: some rule may want it */
	uint64_t qpn[1024];  /* a bit for each imp_qpn_bit() */
	bool times;          /* some rule asks for the time */
	bool counts_all;     /* all rules are about all packets, and hit some by their number */
	uint32_t n;
	uint32_t generation;
	struct imp_flows *flows; /* NULL: no rule needs them */
	struct imp_rules *rules;
	struct imp_live live[];
};

/** Why a rule has hit: its choice, and the count at which it did. */
struct imp_verdict {
	struct imp_live *live;
	uint64_t count;
	uint32_t transmission;
};

struct imp_queue;

/** RoCEv2, as far as the BTH?  @copy: room for headers that are not in one piece. */
#define IMP_HEADERS 100u
bool imp_frame_read(const struct rte_mbuf *m, struct imp_frame *f, uint8_t copy[IMP_HEADERS]);

static inline const uint8_t *
imp_headers(const struct rte_mbuf *m)
{
	return rte_pktmbuf_mtod(m, const uint8_t *);
}

/** The first of @bufs from @from on that a rule hits, @n: none.  All before are counted. */
uint16_t imp_scan(struct imp_queue *q, struct rte_mbuf *const *bufs, uint16_t from, uint16_t n,
	uint64_t now, struct imp_verdict *v);

/* --- set.c --- */

/** What @rules say for one direction of a queue; NULL: no memory.  For the control thread. */
struct imp_set *imp_set_new(struct imp_rules *rules, unsigned int direction, uint16_t queue,
	uint32_t generation, uint64_t now);
/** With @rules if nobody uses them any more. */
void imp_set_free(struct imp_set *s);

/** The low half of a QP number, as it stands in a packet. */
static inline uint16_t
imp_qpn_bit(uint32_t qpn)
{
	return rte_cpu_to_be_16((uint16_t)qpn);
}

/* --- log.c --- */

enum imp_event { IMP_INJURED, IMP_SPARED, IMP_RELEASED, IMP_DISCARDED };

/** What else there is to say. */
enum imp_why {
	IMP_WHY_NONE,
	IMP_WHY_NO_BUFFER,
	IMP_WHY_NO_ROOM,    /* as many wait as may */
	IMP_WHY_NO_PART,    /* the packet has no such byte */
	IMP_WHY_TOO_SHORT,  /* nothing would be left */
	IMP_WHY_QUEUE_FULL, /* of a rate; dropped */
	IMP_WHY_PACKETS,    /* released by later ones */
	IMP_WHY_TIME,       /* by the time */
	IMP_WHY_STOPPED,    /* the port was */
	IMP_WHY_NOT_SENT,   /* the port below took no more */
};

struct imp_record {
	uint64_t packet, tsc, count;
	uint32_t qpn, psn, len, detail;
	uint16_t queue;
	uint8_t direction, event, action, choice, why, opcode, transmission;
	char rule[IMP_NAME_BYTES];
};

/** One producer, one consumer. */
struct imp_log_ring {
	struct imp_record *slot;
	uint32_t mask;
	_Alignas(64) _Atomic uint32_t head; /* written next */
	_Atomic uint64_t lost;
	_Alignas(64) _Atomic uint32_t tail; /* read next */
	uint64_t said_lost;
};

struct imp_log;

/** @return NULL: said why. */
struct imp_log *imp_log_open(const char *path, const char *port, uint32_t slots);
/** Writes what there is, and ends. */
void imp_log_close(struct imp_log *l);
/** The ring of a queue; NULL: no memory. */
struct imp_log_ring *imp_log_ring(struct imp_log *l, unsigned int direction, uint16_t queue);
/** Writes all that was put before the call. */
void imp_log_flush(struct imp_log *l);
/** Says that other rules hold from now on. */
void imp_log_rules(
	struct imp_log *l, const char *path, const struct imp_rules *r, uint32_t generation);
uint64_t imp_log_written(struct imp_log *l);
uint64_t imp_log_lost(struct imp_log *l);

/* --- held.c --- */

struct imp_waiting {
	struct rte_mbuf *m;
	uint64_t due;   /* TSC; UINT64_MAX: never */
	uint64_t order; /* of those with the same due */
	uint32_t left;  /* packets; counted ones only */
	bool any;       /* packets of any kind count, else those to its QP */
	struct imp_record record;
};

/** Packets that wait for a time, a heap; and those that wait for later packets. */
struct imp_held {
	struct imp_waiting *timed;
	uint32_t ntimed, room;
	uint32_t ncounted;
	uint64_t order;
	struct imp_waiting counted[IMP_COUNTED];
};

/** false: as many wait as may. */
bool imp_hold_timed(struct imp_held *h, const struct imp_waiting *w);
bool imp_hold_counted(struct imp_held *h, const struct imp_waiting *w);
/** Takes one whose time has come; false: there is none. */
bool imp_held_due(struct imp_held *h, uint64_t now, struct imp_waiting *to);
/** A packet has passed, @f NULL: of another kind.  Takes one that has waited for it; to be called
 *  with @first, and then without until there is none. */
bool imp_held_passed(
	struct imp_held *h, const struct imp_frame *f, bool first, struct imp_waiting *to);
/** Takes any. */
bool imp_held_any(struct imp_held *h, struct imp_waiting *to);

/* --- queues --- */

/** Written by the lcore, read by others. */
struct imp_queue_stats {
	uint64_t action[IMP_ACTIONS];
	uint64_t spared;    /* hit, but the action was not possible */
	uint64_t released;  /* that had waited */
	uint64_t discarded; /* that waited when the port was stopped, or found no room */
	uint64_t evicted;   /* flows */
};

struct imp_queue {
	struct imp_port *port;
	struct imp_set *set;
	uint16_t below, queue;
	uint8_t direction;
	uint16_t port_id;
	uint64_t frames;          /* judged so far */
	uint32_t returned;        /* of a transmit queue: frames that were judged, and given back */
	struct rte_mempool *pool; /* for copies of what has none; may be NULL */
	struct imp_log_ring *log; /* NULL: none */
	struct imp_queue_stats stats;
	uint32_t ready_at, nready;
	struct rte_mbuf **ready; /* IMP_READY of them */
	struct imp_held held;
	_Alignas(64) _Atomic(struct imp_set *) next; /* to be taken by the lcore */
	_Atomic(struct imp_set *) retired;           /* to be freed by others */
};

struct imp_port {
	LIST_ENTRY(imp_port) list;
	char rules_path[4096], log_path[4096], below_name[RTE_ETH_NAME_MAX_LEN];
	struct rte_eth_dev *dev;
	uint16_t below; /* port id */
	uint64_t owner;
	_Atomic bool gone; /* the port below */
	bool started;
	uint32_t held_room, log_slots;
	uint64_t judged_flag; /* of mbufs */
	struct rte_ether_addr macs[RTE_ETH_NUM_RECEIVE_MAC_ADDR];
	struct imp_log *log;
	pthread_mutex_t lock; /* of what follows, and the rings of others than lcores */
	struct imp_rules *rules;
	uint32_t generation;
	struct imp_queue *queue[IMP_BOTH][IMP_MAX_QUEUES];
	struct imp_queue_stats base[IMP_BOTH][IMP_MAX_QUEUES];
};

/** Single writer; other threads see whole values. */
static inline void
imp_add(uint64_t *to, uint64_t n)
{
	__atomic_store_n(to, *to + n, __ATOMIC_RELAXED);
}

/** A record of @m, which @live has hit. */
void imp_record_init(struct imp_record *r, const struct imp_queue *q, const struct rte_mbuf *m,
	const struct imp_frame *f, const struct imp_verdict *v, uint64_t packet, uint64_t now);
/** Never waits; what finds no room is counted. */
void imp_log_put(struct imp_queue *q, struct imp_record *r, enum imp_event event, enum imp_why why);

/* --- act.c --- */

/** What comes of a packet. */
struct imp_outcome {
	struct rte_mbuf *m; /* the packet, perhaps another buffer by now; NULL: dropped, or waits */
	uint32_t ncopies;
	struct rte_mbuf *copy[IMP_COPIES_MAX];
};

/** @packet: its number.  @room: copies that may be made. */
void imp_act(struct imp_queue *q, struct rte_mbuf *m, const struct imp_verdict *v, uint64_t packet,
	uint64_t now, uint32_t room, struct imp_outcome *o);

/* --- burst.c --- */

uint16_t imp_rx_burst(void *queue, struct rte_mbuf **bufs, uint16_t n);
uint16_t imp_tx_burst(void *queue, struct rte_mbuf **bufs, uint16_t n);
uint16_t imp_tx_prepare(void *queue, struct rte_mbuf **bufs, uint16_t n);
/** All that waits is lost; the queue is polled by nobody. */
void imp_queue_empty(struct imp_queue *q);

/* --- stats.c --- */

int imp_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats);
int imp_stats_reset(struct rte_eth_dev *dev);
int imp_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *to, unsigned int n);
int imp_xstats_reset(struct rte_eth_dev *dev);
int imp_xstats_get_names(struct rte_eth_dev *dev, struct rte_eth_xstat_name *to, unsigned int n);
/** Of both directions and all queues, since they were reset last. */
void imp_stats_sum(const struct imp_port *p, unsigned int direction, struct imp_queue_stats *to);
/** How many packets wait in a direction. */
uint64_t imp_stats_waiting(const struct imp_port *p, unsigned int direction);
/** How many packets a rule has hit; with the lock held. */
uint64_t imp_stats_rule(const struct imp_port *p, uint32_t rule);

/* --- control.c --- */

/** The port is known to telemetry, from now on or no longer. */
int imp_control_add(struct imp_port *p);
void imp_control_remove(struct imp_port *p);
/** The port whose device has this id; NULL. */
struct imp_port *imp_control_find(uint16_t port_id);
/** Every queue gets sets of these rules; with the lock held.  On failure nothing has changed. */
int imp_control_apply(struct imp_port *p, struct imp_rules *rules);
/** Reads a file, and applies it.  0, or -errno: said why, and nothing has changed. */
int imp_control_load(struct imp_port *p, const char *path, imp_say say, void *user);
/** A set of the rules that hold for a new queue; NULL: no memory. */
struct imp_set *imp_control_set(struct imp_port *p, unsigned int direction, uint16_t queue);

#endif /* IMPAIR_H */
