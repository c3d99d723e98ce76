/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The inside of a run.  Time is in picoseconds: a byte takes 80 of them at 100 Gb/s, so times are
 * exact at all usual speeds; lib/qp is given nanoseconds.
 *
 *   memory.c    what a run has allocated, and how it ends early
 *   event.c     what happens when: a heap
 *   gauge.c     how long a queue was how long
 *   frame.c     frames: headers, and how long they would be with payload
 *   port.c      one end of a link, which sends; pauses
 *   switch.c    shared buffer, marking, PFC, ECMP
 *   host.c      drives the protocol core of a host
 *   gsi.c       lib/cm of a host: its messages as frames of QP 1, its timers
 *   connect.c   what lib/cm tells: how connections come to be, and how they end
 *   conn.c      pairs of queue pairs, and what a connection's sides have agreed on
 *   flow.c      bytes that are to be moved over a connection
 *   topology.c  who is linked with whom, and which way leads where
 *   workload.c  which flows begin when
 *   tree.c      those of an allreduce by trees
 *   sizes.c     distributions of flow sizes
 *   ideal.c     how long a flow would take alone
 *   result.c    the result
 *   run.c       building, the loop, the end
 */
#ifndef KARST_FABRIC_SIM_H
#define KARST_FABRIC_SIM_H

#include <setjmp.h>

#include "fabric.h"
#include "karst_cm.h"
#include "karst_mem.h"
#include "karst_qp.h"
#include "karst_ring.h"

#define PS_PER_NS 1000ull

/* Of a frame these are kept: the longest headers that the queue pairs here have. */
#define FAB_HEAD 128u
/* Ethernet: preamble, FCS and gap around a frame; the shortest frame. */
#define FAB_FCS       4u
#define FAB_AROUND    20u
#define FAB_ETH_MIN   64u
#define FAB_MAX_HOSTS 4096u
#define FAB_MAX_QPS   8192u /* of a host */
#define FAB_SIDES     2u

struct fab_sim;
struct fab_port;
struct fab_host;
struct fab_switch;
struct fab_conn;

typedef void fab_event_fn(struct fab_sim *s, void *arg);

struct fab_event {
	uint64_t at_ps;
	uint64_t seq; /* events of one moment happen in the order in which they were added */
	fab_event_fn *fn;
	void *arg;
};

struct fab_events {
	struct fab_event *heap;
	uint64_t n;
	uint64_t cap;
	uint64_t seq;
};

struct fab_frame {
	struct fab_frame *next;
	struct fab_port *at; /* port that it arrives at, or came in by */
	uint64_t tuple[2];   /* addresses, ports */
	uint32_t dst;        /* host */
	uint16_t len;        /* as karst_pkt has it */
	bool ect;
	bool ce;
	bool request;
	uint8_t *mad; /* what follows the headers of a message of lib/cm; NULL: it is none */
	uint8_t data[FAB_HEAD];
};

/* Bytes over time, or values by their number; the buckets grow by powers of two, 32 in each. */
#define FAB_GAUGE_BYTES (32u * 36u) /* buckets for up to 2^40 */
#define FAB_GAUGE_PS    (32u * 60u) /* for all times */
struct fab_gauge {
	uint32_t buckets;
	uint64_t now; /* bytes */
	uint64_t max;
	uint64_t since_ps;      /* of now */
	unsigned __int128 area; /* bytes * ps */
	uint64_t total_ps;
	uint64_t *bucket; /* ps; NULL: this one is not counted */
};

/* One end of a link. */
struct fab_port {
	struct fab_host *host; /* whose it is: one of both */
	struct fab_switch *sw;
	struct fab_port *peer;
	uint64_t mbps;
	uint64_t prop_ps;
	uint64_t kmin, kmax;
	/* sending */
	struct fab_frame *head, **tail;
	struct fab_gauge queue;
	uint64_t busy_ps; /* until then */
	bool waits;       /* an event comes at busy_ps */
	bool paused;
	uint64_t paused_since_ps;
	/* what has come in by it and is still in the switch */
	uint64_t in_bytes;
	bool pausing;
	uint32_t headroom;
};

struct fab_route {
	uint16_t first; /* port */
	uint16_t n;     /* that are as good */
};

struct fab_switch {
	uint32_t id;
	uint32_t nports;
	struct fab_port *port;
	uint64_t used;
	uint64_t shared;         /* of the buffer; the rest is headroom */
	uint64_t key[2];         /* of its hash */
	struct fab_route *route; /* by host */
	char name[16];
};

struct fab_host {
	struct fab_sim *s;
	uint32_t id;
	struct fab_port port;
	struct karst_core *core;
	struct karst_core_cq *cq;
	struct karst_cq_lane lane;
	uint64_t wake_ps; /* an event comes then */
	bool running;
	struct karst_cm *cm;
	struct fab_frame *mads, **mads_tail; /* that wait for the link, before all that is built */
	uint64_t cm_wake_ps;                 /* an event comes then */
	uint32_t mad_psn;
	uint32_t ids_most; /* of lib/cm at once, ever */
	uint32_t nqps;
	uint64_t requests; /* frames */
};

/* Who posts the WRITEs or READs is the one that asks for the connection. */
enum { FAB_SENDER, FAB_RECEIVER };

/* One queue pair of a connection. */
struct fab_end {
	struct fab_host *host;
	struct karst_core_qp *qp;
	struct karst_qp_init init;
	void *mem;
	void *repeat;
	struct karst_wq sq;
	struct karst_wq rq;
	uint32_t cm_id; /* 0: none */
	uint32_t psn;   /* first of what comes */
};

/* What one end has heard of the other. */
struct fab_peer {
	uint32_t qpn;
	uint32_t sq_psn;
	uint8_t path_mtu;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	bool repeat; /* selectively: agreed */
};

/* READs that a queue pair has outstanding, as adapters do. */
#define FAB_READS 16u
/* With selective repeat: PSNs, whose bitmap fits into FAB_HEAD; and frames that a host holds. */
#define FAB_REPEAT_SHIFT  9u
#define FAB_REPEAT_WINDOW (1u << FAB_REPEAT_SHIFT)
#define FAB_HELD          65536u

struct fab_flow {
	struct fab_flow *next; /* of its connection */
	struct fab_conn *conn; /* while it runs */
	struct fab_flow_result r;
	uint64_t posted;
	uint64_t warm; /* bytes when counting began */
	uint32_t imm;
	bool tell;  /* the receiver's program hears of its end, with imm */
	bool asked; /* its time has begun with its connection's */
};

struct fab_conn {
	struct fab_conn *next; /* in the pool */
	struct fab_end end[FAB_SIDES];
	struct fab_flow *head; /* oldest that is not done */
	struct fab_flow *post; /* that is being posted */
	struct fab_flow **tail;
	uint64_t *posted_ps; /* of the WRITEs outstanding, modulo depth */
	uint32_t nposted;    /* ever */
	uint32_t ncompleted;
	uint32_t index;          /* in all connections */
	uint32_t tries;          /* with other queue pairs, since these were refused as stale */
	uint64_t asked_ps;       /* when the REQ left */
	struct karst_cm_ece ece; /* of the REQ */
	struct fab_flow *first;  /* begins when it is established */
	bool open;               /* there are queue pairs */
	bool asking;             /* the REQ has no answer yet */
	bool awaiting;           /* the REP has no RTU yet */
	bool live;               /* the sender may post */
	bool once;               /* closed when its flow is done */
	uint32_t tag;            /* of the workload's */
};

/* What is random.  Each has its own numbers, so that a seed has the same traffic whatever comes of
 * it. */
enum fab_chance {
	FAB_TRAFFIC,
	FAB_MARKS,
	FAB_LOSS,
	FAB_INCASTS,
	FAB_PSNS,
	FAB_MAD_LOSS,
	FAB_CHANCES
};

/* Flows do not move: pointers to them are kept. */
#define FAB_FLOW_CHUNK 4096u

struct fab_sim {
	const struct fab_config *c;
	struct fab_result *r;
	jmp_buf bail;
	int rc;
	struct fab_block *blocks;
	uint64_t allocated; /* bytes of these */
	uint64_t now_ps;
	uint64_t before_ns; /* what the hosts' clocks are ahead of it */
	bool ended;
	struct fab_events events;
	struct fab_gauge message; /* ps from post to completion of each WRITE */
	struct fab_frame *free_frames;
	struct fab_held *free_held;
	struct karst_mem *mem;
	uint32_t pd;
	uint32_t key; /* of the only region: all data is moved from it to it */
	uint8_t *region;
	struct fab_host *host;
	uint32_t nswitches;
	struct fab_switch *sw;
	struct fab_conn *free_conns;
	struct fab_conn **conn; /* all, by their index */
	uint32_t nconns;
	uint32_t conns_cap;
	/* of connection management */
	struct fab_gauge connects; /* ps from REQ to REP */
	uint8_t *free_mads;
	uint64_t mads;          /* on their way */
	uint64_t mads_arrived;  /* at hosts */
	uint64_t unsettled;     /* sides that wait for a REP or an RTU */
	uint64_t disconnecting; /* DREQs that wait for their DREP */
	bool at_once;           /* messages of lib/cm are handed over, and take no time */
	bool handing;           /* that is being done */
	struct fab_frame *handed, **handed_tail;
	struct fab_flow **flow; /* chunks */
	uint64_t nflows;
	uint64_t running;
	uint64_t draws[FAB_CHANCES];
	uint64_t secret[2];
	uint64_t arrived; /* frames with requests, at hosts */
	/* goodput and queues are those of the time until then; 0: not yet */
	uint64_t counted_until_ps;
	uint64_t counted_bytes;
	/* of the workload */
	uint64_t waiting; /* flows that are still to begin */
	double gap_ps;    /* between two of them, on average */
	double incast_gap_ps;
	uint32_t *incast_order; /* hosts but one, the first of which are the next senders */
	struct fab_conn **ring;
	uint32_t *ring_step;
	struct fab_tree *tree;
	uint8_t *scratch; /* the frame that is being received */
};

/* --- memory.c: whatever fails ends the run --- */

void *fab_alloc(struct fab_sim *s, size_t bytes);
/** Not cleared, and only as much memory as is touched; whoever touches it charges for it. */
void *fab_reserve(struct fab_sim *s, size_t bytes);
void fab_charge(struct fab_sim *s, size_t bytes);
void fab_free(struct fab_sim *s, void *p);
void fab_free_all(struct fab_sim *s);
void fab_bail(struct fab_sim *s, int rc, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));

/** The next random number; in [0, 1); 0 .. n-1. */
uint64_t fab_random(struct fab_sim *s, enum fab_chance of);
double fab_uniform(struct fab_sim *s, enum fab_chance of);
uint32_t fab_below(struct fab_sim *s, enum fab_chance of, uint32_t n);

/* --- event.c --- */

void fab_event_add(struct fab_sim *s, uint64_t at_ps, fab_event_fn *fn, void *arg);
bool fab_event_next(struct fab_events *q, struct fab_event *e);

/* --- gauge.c --- */

void fab_gauge_init(struct fab_sim *s, struct fab_gauge *g, uint32_t buckets);
void fab_gauge_add(struct fab_gauge *g, uint64_t now_ps, int64_t bytes);
/** Of something that lasts no time: each value counts once. */
void fab_gauge_count(struct fab_gauge *g, uint64_t value);
/** Forgets what was before. */
void fab_gauge_restart(struct fab_gauge *g, uint64_t now_ps);
/** At the end. */
uint64_t fab_gauge_percentile(const struct fab_gauge *g, double fraction);

/* --- frame.c --- */

struct fab_frame *fab_frame_get(struct fab_sim *s);
void fab_frame_put(struct fab_sim *s, struct fab_frame *f);
/** Fills in what follows from the headers of a frame that a core has built. */
void fab_frame_sent(struct fab_frame *f, const struct karst_pkt *pkt);
/** Bytes that a frame of @len takes on a link. */
uint32_t fab_wire_bytes(uint32_t len);
/** "Congestion experienced" into the IP header, with its checksum. */
void fab_frame_mark(uint8_t *data);

/* --- port.c --- */

void fab_port_init(struct fab_sim *s, struct fab_port *p, uint64_t mbps, uint64_t delay_ns);
void fab_link(struct fab_port *a, struct fab_port *b);
/** Sends, if it can, what the switch has queued or the host builds. */
void fab_port_kick(struct fab_sim *s, struct fab_port *p);
/** Stops or goes on; what is being sent is not interrupted. */
void fab_port_pause(struct fab_sim *s, struct fab_port *p, bool pause);
uint64_t fab_serial_ps(const struct fab_port *p, uint32_t wire);

/* --- switch.c --- */

void fab_switch_init(struct fab_sim *s, struct fab_switch *w, uint32_t nports);
/** After all of its ports were made.  Ends the run if the buffer is too small for PFC. */
void fab_switch_ready(struct fab_sim *s, struct fab_switch *w);
void fab_switch_rx(struct fab_sim *s, struct fab_frame *f);
/** The next frame of a queue; NULL: it is empty. */
struct fab_frame *fab_switch_dequeue(struct fab_sim *s, struct fab_port *p);
struct fab_port *fab_switch_out(struct fab_switch *w, uint32_t dst, const uint64_t tuple[2]);

/* --- host.c --- */

void fab_host_init(struct fab_sim *s, struct fab_host *h, uint32_t id);
void fab_host_rx(struct fab_sim *s, struct fab_frame *f);
/** A frame that the core of @h builds; NULL: it has nothing to send. */
struct fab_frame *fab_host_build(struct fab_sim *s, struct fab_host *h);
/** Something was done to a queue pair of @h: completions, frames, timers. */
void fab_host_run(struct fab_sim *s, struct fab_host *h);
/** Before the core or lib/cm is called. */
void fab_host_enter(struct fab_sim *s, struct fab_host *h);
uint64_t fab_host_clock_ns(const struct fab_sim *s);
/** When a host's clock shows @ns: not before the next nanosecond, so that time gets further. */
uint64_t fab_host_moment_ps(const struct fab_sim *s, uint64_t ns);
/** The core's clock has jumped, and it has nothing to do. */
void fab_host_restart(struct fab_sim *s, struct fab_host *h);

/* --- gsi.c --- */

void fab_gsi_init(struct fab_sim *s, struct fab_host *h);
/** The next message that waits for the link; NULL: there is none. */
struct fab_frame *fab_gsi_next(struct fab_host *h);
/** A message came: @pkt is its frame, parsed. */
void fab_gsi_rx(struct fab_sim *s, struct fab_host *h, const struct karst_pkt *pkt);
/** lib/cm of @h was called: messages, timers.  Not from its events. */
void fab_gsi_run(struct fab_sim *s, struct fab_host *h);
/** Timers again, after the clock was set. */
void fab_gsi_arm(struct fab_sim *s, struct fab_host *h);
/** What a frame has had of a message, which is over. */
void fab_mad_put(struct fab_sim *s, uint8_t *mad);
/** The address of a host. */
void fab_address(uint8_t ip[16], uint8_t mac[6], uint32_t host);

/* --- connect.c --- */

/** Asks for @c; it is live when that has succeeded, and closed when it has failed. */
void fab_connect(struct fab_sim *s, struct fab_conn *c);
/** What lib/cm of a host tells. */
void fab_connect_event(void *host, const struct karst_cm_ev *ev);
/** Ends what there is between the sides of @c, which has no queue pairs any more. */
void fab_disconnect(struct fab_sim *s, struct fab_conn *c);
/** Before the workload's time: until all that was asked for is there, or has failed. */
void fab_connect_all(struct fab_sim *s);
/** After it: until all is taken down. */
void fab_disconnect_all(struct fab_sim *s);
/** In the result. */
void fab_connect_result(struct fab_sim *s);

/* --- conn.c --- */

/** Queue pairs that do not know of each other yet. */
struct fab_conn *fab_conn_open(struct fab_sim *s, uint32_t src, uint32_t dst);
/** Others, between the same hosts. */
void fab_conn_renew(struct fab_sim *s, struct fab_conn *c);
void fab_conn_close(struct fab_sim *s, struct fab_conn *c);
/** Ready to send and to receive. */
void fab_conn_ready(struct fab_sim *s, struct fab_end *e, uint32_t peer, const struct fab_peer *p);
uint8_t fab_mtu_code(uint32_t mtu);
/** A receive work request, for a flow that tells. */
void fab_conn_post_recv(struct fab_sim *s, struct fab_conn *c);

/* --- flow.c --- */

struct fab_flow *fab_flow_new(struct fab_sim *s, uint32_t src, uint32_t dst, uint64_t size);
struct fab_flow *fab_flow_at(struct fab_sim *s, uint64_t i);
void fab_flow_begin(struct fab_sim *s, struct fab_flow *f, struct fab_conn *c);
/** Its time begins, but first its connection is asked for. */
void fab_flow_ask(struct fab_sim *s, struct fab_flow *f, struct fab_conn *c);
/** It has no connection. */
void fab_flow_refuse(struct fab_sim *s, struct fab_flow *f);
/** Its queue pair has given up, or its connection was lost. */
void fab_flow_fail(struct fab_sim *s, struct fab_conn *c);
void fab_flow_completion(struct fab_sim *s, const struct karst_cqe *cqe);

/* --- config.c --- */

/** Queue pairs of a host at most. */
uint64_t fab_config_qps(const struct fab_config *c);
/** Connections of @host at most. */
uint64_t fab_config_ids(const struct fab_config *c, uint32_t host);

/* --- topology.c --- */

void fab_topology_build(struct fab_sim *s);
uint32_t fab_topology_switches(const struct fab_config *c);

/* --- workload.c --- */

/** The connections that it has from the beginning. */
void fab_workload_prepare(struct fab_sim *s);
void fab_workload_begin(struct fab_sim *s);
/** The receiver's program of @c has heard of the end of a flow. */
void fab_workload_received(struct fab_sim *s, struct fab_conn *c);
bool fab_workload_is_random(enum fab_workload w);
bool fab_workload_reduces(enum fab_workload w);

/* --- tree.c --- */

/** Chunks of a tree at most. */
#define FAB_CHUNKS_MAX (1u << 20)
void fab_tree_prepare(struct fab_sim *s);
void fab_tree_begin(struct fab_sim *s);
/** As fab_workload_received(). */
void fab_tree_received(struct fab_sim *s, struct fab_conn *c);

/* --- run.c --- */

/** What happens next.  False: nothing. */
bool fab_step(struct fab_sim *s);

/* --- sizes.c --- */

/** A size of the distribution at @u in [0, 1). */
uint64_t fab_sizes_draw(enum fab_workload w, double u);
double fab_sizes_mean(enum fab_workload w);

/* --- ideal.c --- */

uint64_t fab_ideal_ps(struct fab_sim *s, uint32_t src, uint32_t dst, uint64_t size, bool tell);

/* --- result.c --- */

/** Goodput of all and queues are those until now.  Only the first call counts. */
void fab_result_count(struct fab_sim *s);
void fab_result_make(struct fab_sim *s);

#endif /* KARST_FABRIC_SIM_H */
