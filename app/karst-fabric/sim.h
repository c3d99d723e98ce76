/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Internal interface of the simulator.  Time is in picoseconds: a byte takes 80 of them at 100
 * Gb/s, so times are exact at all usual speeds; lib/qp gets nanoseconds.
 *
 *   memory.c    memory of a run, and the early end of a run
 *   event.c     events by time: a heap
 *   gauge.c     lengths of queues, weighted by time
 *   frame.c     frames: headers, and the length with payload
 *   port.c      the sending end of a link; pauses
 *   switch.c    shared buffer, marking, PFC, ECMP
 *   host.c      drives the protocol core of a host
 *   gsi.c       lib/cm of a host: its messages as frames of QP 1, its timers
 *   connect.c   events of lib/cm: how connections are made and ended
 *   conn.c      the two queue pairs of a connection, and what they have agreed on
 *   flow.c      bytes that are to be moved over a connection
 *   topology.c  links and routes
 *   workload.c  start times of flows
 *   tree.c      the flows of an allreduce by trees
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

/* Bytes that are kept of a frame: the longest headers of the queue pairs here. */
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
	uint64_t seq; /* events at the same time are executed in the order of insertion */
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
	struct fab_port *at; /* port that it arrives at, or has arrived at */
	uint64_t tuple[2];   /* addresses, ports */
	uint32_t dst;        /* host */
	uint16_t len;        /* as in karst_pkt */
	bool ect;
	bool ce;
	bool request;
	uint8_t *mad; /* payload of a message of lib/cm; NULL: another frame */
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
	struct fab_host *host; /* the owner: a host or a switch */
	struct fab_switch *sw;
	struct fab_port *peer;
	uint64_t mbps;
	uint64_t prop_ps;
	uint64_t kmin, kmax;
	/* sending */
	struct fab_frame *head, **tail;
	struct fab_gauge queue;
	uint64_t busy_ps; /* until then */
	bool waits;       /* there is an event at busy_ps */
	bool paused;
	uint64_t paused_since_ps;
	/* bytes that arrived at this port and are still in the switch */
	uint64_t in_bytes;
	bool pausing;
	uint32_t headroom;
};

struct fab_route {
	uint16_t first; /* port */
	uint16_t n;     /* number of equal-cost ports */
};

struct fab_switch {
	uint32_t id;
	uint32_t nports;
	struct fab_port *port;
	uint64_t used;
	uint64_t shared;         /* of the buffer; the rest is headroom */
	uint64_t key[2];         /* of its ECMP hash */
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
	uint64_t wake_ps; /* time of its next event */
	bool running;
	struct karst_cm *cm;
	struct fab_frame *mads, **mads_tail; /* wait for the link; sent before frames of the core */
	uint64_t cm_wake_ps;                 /* time of its next event */
	uint32_t mad_psn;
	uint32_t ids_most; /* highest number of lib/cm identifiers so far */
	uint32_t nqps;
	uint64_t requests; /* frames */
};

/* The side that posts the WRITEs or READs is the active side of the connection. */
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
	uint32_t psn;   /* first PSN that is expected */
};

/* What one end has learned about the other. */
struct fab_peer {
	uint32_t qpn;
	uint32_t sq_psn;
	uint8_t path_mtu;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	bool repeat; /* selective repeat was agreed on */
};

/* Outstanding READs of a queue pair, as with adapters. */
#define FAB_READS 16u
/* With selective repeat: the window in PSNs, whose bitmap fits into FAB_HEAD; and the number of
 * frames that a host holds. */
#define FAB_REPEAT_SHIFT  9u
#define FAB_REPEAT_WINDOW (1u << FAB_REPEAT_SHIFT)
#define FAB_HELD          65536u

struct fab_flow {
	struct fab_flow *next; /* of its connection */
	struct fab_conn *conn; /* while it runs */
	struct fab_flow_result r;
	uint64_t posted;
	uint64_t warm; /* bytes when the measured time began */
	uint32_t imm;
	bool tell;  /* the receiver's program is notified of its end, by immediate data */
	bool asked; /* its time has begun with its connection request */
};

struct fab_conn {
	struct fab_conn *next; /* in the pool */
	struct fab_end end[FAB_SIDES];
	struct fab_flow *head; /* oldest flow that is not done */
	struct fab_flow *post; /* the flow that is being posted */
	struct fab_flow **tail;
	uint64_t *posted_ps; /* post times of the outstanding WRITEs, modulo depth */
	uint32_t nposted;    /* ever */
	uint32_t ncompleted;
	uint32_t index;          /* in all connections */
	uint32_t tries;          /* with other queue pairs, after a refusal as stale */
	uint64_t asked_ps;       /* when the REQ left */
	struct karst_cm_ece ece; /* of the REQ */
	struct fab_flow *first;  /* begins when it is established */
	bool open;               /* there are queue pairs */
	bool asking;             /* the REQ has no answer yet */
	bool awaiting;           /* the REP has no RTU yet */
	bool live;               /* the sender may post */
	bool once;               /* closed when its flow is done */
	uint32_t tag;            /* for use by the workload */
};

/* Purposes of random numbers.  Each has its own sequence, so that a seed gives the same traffic
 * whatever else happens in the run. */
enum fab_chance {
	FAB_TRAFFIC,
	FAB_MARKS,
	FAB_LOSS,
	FAB_INCASTS,
	FAB_PSNS,
	FAB_MAD_LOSS,
	FAB_CHANCES
};

/* Flows are allocated in chunks, because pointers to them must stay valid. */
#define FAB_FLOW_CHUNK 4096u

struct fab_sim {
	const struct fab_config *c;
	struct fab_result *r;
	jmp_buf bail;
	int rc;
	struct fab_block *blocks;
	uint64_t allocated; /* bytes of these */
	uint64_t now_ps;
	uint64_t before_ns; /* by which the hosts' clocks are ahead of the simulation's */
	bool ended;
	struct fab_events events;
	struct fab_gauge message; /* ps from post to completion of each WRITE */
	struct fab_frame *free_frames;
	struct fab_held *free_held;
	struct karst_mem *mem;
	uint32_t pd;
	uint32_t key; /* of the only region: source and destination of all data */
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
	uint64_t mads;          /* in the network */
	uint64_t mads_arrived;  /* at hosts */
	uint64_t unsettled;     /* sides that wait for a REP or an RTU */
	uint64_t disconnecting; /* DREQs that wait for their DREP */
	bool at_once;           /* messages of lib/cm are delivered directly, without delay */
	bool handing;           /* a direct delivery is in progress */
	struct fab_frame *handed, **handed_tail;
	struct fab_flow **flow; /* chunks */
	uint64_t nflows;
	uint64_t running;
	uint64_t draws[FAB_CHANCES];
	uint64_t secret[2];
	uint64_t arrived; /* frames with requests, at hosts */
	/* end of the time for goodput and queues; 0: not reached yet */
	uint64_t counted_until_ps;
	uint64_t counted_bytes;
	/* of the workload */
	uint64_t waiting; /* flows that are still to begin */
	double gap_ps;    /* between two of them, on average */
	double incast_gap_ps;
	uint32_t *incast_order; /* all hosts except one; the first ones are the next senders */
	struct fab_conn **ring;
	uint32_t *ring_step;
	struct fab_tree *tree;
	uint8_t *scratch; /* the frame that is being received */
};

/* --- memory.c: whatever fails ends the run --- */

void *fab_alloc(struct fab_sim *s, size_t bytes);
/** Reserves memory that is not cleared and uses physical memory only when it is touched.  The code
 *  that touches it must call fab_charge(). */
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
/** Counts a value without a duration: each value counts once. */
void fab_gauge_count(struct fab_gauge *g, uint64_t value);
/** Discards all earlier values. */
void fab_gauge_restart(struct fab_gauge *g, uint64_t now_ps);
/** To be called at the end of the run. */
uint64_t fab_gauge_percentile(const struct fab_gauge *g, double fraction);

/* --- frame.c --- */

struct fab_frame *fab_frame_get(struct fab_sim *s);
void fab_frame_put(struct fab_sim *s, struct fab_frame *f);
/** Sets the members of a frame that depend on the headers that a core has built. */
void fab_frame_sent(struct fab_frame *f, const struct karst_pkt *pkt);
/** Bytes that a frame of @len takes on a link. */
uint32_t fab_wire_bytes(uint32_t len);
/** Sets "congestion experienced" in the IP header, and updates its checksum. */
void fab_frame_mark(uint8_t *data);

/* --- port.c --- */

void fab_port_init(struct fab_sim *s, struct fab_port *p, uint64_t mbps, uint64_t delay_ns);
void fab_link(struct fab_port *a, struct fab_port *b);
/** Sends the next frame that the switch has queued or the host builds, if the port is free. */
void fab_port_kick(struct fab_sim *s, struct fab_port *p);
/** Pauses or resumes; a frame that is being sent is not interrupted. */
void fab_port_pause(struct fab_sim *s, struct fab_port *p, bool pause);
uint64_t fab_serial_ps(const struct fab_port *p, uint32_t wire);

/* --- switch.c --- */

void fab_switch_init(struct fab_sim *s, struct fab_switch *w, uint32_t nports);
/** To be called when all ports exist.  Ends the run if the buffer is too small for PFC. */
void fab_switch_ready(struct fab_sim *s, struct fab_switch *w);
void fab_switch_rx(struct fab_sim *s, struct fab_frame *f);
/** Takes the next frame of a queue; NULL: the queue is empty. */
struct fab_frame *fab_switch_dequeue(struct fab_sim *s, struct fab_port *p);
struct fab_port *fab_switch_out(struct fab_switch *w, uint32_t dst, const uint64_t tuple[2]);

/* --- host.c --- */

void fab_host_init(struct fab_sim *s, struct fab_host *h, uint32_t id);
void fab_host_rx(struct fab_sim *s, struct fab_frame *f);
/** Lets the core of @h build a frame; NULL: it has nothing to send. */
struct fab_frame *fab_host_build(struct fab_sim *s, struct fab_host *h);
/** To be called after a change to a queue pair of @h: handles completions, frames and timers. */
void fab_host_run(struct fab_sim *s, struct fab_host *h);
/** To be called before a call of the core or lib/cm: sets their clock. */
void fab_host_enter(struct fab_sim *s, struct fab_host *h);
uint64_t fab_host_clock_ns(const struct fab_sim *s);
/** Time at which a host's clock shows @ns, at least the next nanosecond, so that time advances. */
uint64_t fab_host_moment_ps(const struct fab_sim *s, uint64_t ns);
/** To be called when the core's clock was set and the core is idle. */
void fab_host_restart(struct fab_sim *s, struct fab_host *h);

/* --- gsi.c --- */

void fab_gsi_init(struct fab_sim *s, struct fab_host *h);
/** Takes the next message that waits for the link; NULL: there is none. */
struct fab_frame *fab_gsi_next(struct fab_host *h);
/** Handles a received message; @pkt is its parsed frame. */
void fab_gsi_rx(struct fab_sim *s, struct fab_host *h, const struct karst_pkt *pkt);
/** To be called after a call of lib/cm of @h, not from its events: handles messages and timers. */
void fab_gsi_run(struct fab_sim *s, struct fab_host *h);
/** Sets the timers again, after the clock was set. */
void fab_gsi_arm(struct fab_sim *s, struct fab_host *h);
/** Frees the message of a frame. */
void fab_mad_put(struct fab_sim *s, uint8_t *mad);
/** Returns the addresses of a host. */
void fab_address(uint8_t ip[16], uint8_t mac[6], uint32_t host);

/* --- connect.c --- */

/** Requests connection @c.  On success it becomes live; on failure it is closed. */
void fab_connect(struct fab_sim *s, struct fab_conn *c);
/** Handles an event of lib/cm of a host. */
void fab_connect_event(void *host, const struct karst_cm_ev *ev);
/** Disconnects the sides of @c, which has no queue pairs any more. */
void fab_disconnect(struct fab_sim *s, struct fab_conn *c);
/** Before the workload's time: runs until all requested connections are established or failed. */
void fab_connect_all(struct fab_sim *s);
/** After the workload's time: runs until all connections have ended. */
void fab_disconnect_all(struct fab_sim *s);
/** Stores the figures of connections in the result. */
void fab_connect_result(struct fab_sim *s);

/* --- conn.c --- */

/** Creates the queue pairs of a connection, which do not know each other yet. */
struct fab_conn *fab_conn_open(struct fab_sim *s, uint32_t src, uint32_t dst);
/** Replaces the queue pairs by others between the same hosts. */
void fab_conn_renew(struct fab_sim *s, struct fab_conn *c);
void fab_conn_close(struct fab_sim *s, struct fab_conn *c);
/** Makes the queue pair of @e ready to send and to receive. */
void fab_conn_ready(struct fab_sim *s, struct fab_end *e, uint32_t peer, const struct fab_peer *p);
uint8_t fab_mtu_code(uint32_t mtu);
/** Posts a receive work request, for a flow with tell. */
void fab_conn_post_recv(struct fab_sim *s, struct fab_conn *c);

/* --- flow.c --- */

struct fab_flow *fab_flow_new(struct fab_sim *s, uint32_t src, uint32_t dst, uint64_t size);
struct fab_flow *fab_flow_at(struct fab_sim *s, uint64_t i);
void fab_flow_begin(struct fab_sim *s, struct fab_flow *f, struct fab_conn *c);
/** Begins the time of a flow and requests its connection. */
void fab_flow_ask(struct fab_sim *s, struct fab_flow *f, struct fab_conn *c);
/** Handles a flow whose connection was not established. */
void fab_flow_refuse(struct fab_sim *s, struct fab_flow *f);
/** Handles a queue pair in Error, or a lost connection. */
void fab_flow_fail(struct fab_sim *s, struct fab_conn *c);
void fab_flow_completion(struct fab_sim *s, const struct karst_cqe *cqe);

/* --- config.c --- */

/** Maximum number of queue pairs of a host. */
uint64_t fab_config_qps(const struct fab_config *c);
/** Maximum number of connections of @host. */
uint64_t fab_config_ids(const struct fab_config *c, uint32_t host);

/* --- topology.c --- */

void fab_topology_build(struct fab_sim *s);
uint32_t fab_topology_switches(const struct fab_config *c);

/* --- workload.c --- */

/** Opens the connections that the workload has from the beginning. */
void fab_workload_prepare(struct fab_sim *s);
void fab_workload_begin(struct fab_sim *s);
/** Handles the notification of the receiver's program that a flow of @c has ended. */
void fab_workload_received(struct fab_sim *s, struct fab_conn *c);
bool fab_workload_is_random(enum fab_workload w);
bool fab_workload_reduces(enum fab_workload w);

/* --- tree.c --- */

/** Maximum number of chunks of a tree. */
#define FAB_CHUNKS_MAX (1u << 20)
void fab_tree_prepare(struct fab_sim *s);
void fab_tree_begin(struct fab_sim *s);
/** Like fab_workload_received(). */
void fab_tree_received(struct fab_sim *s, struct fab_conn *c);

/* --- run.c --- */

/** Executes the next event.  False: there is none. */
bool fab_step(struct fab_sim *s);

/* --- sizes.c --- */

/** The size at quantile @u, in [0, 1), of the distribution. */
uint64_t fab_sizes_draw(enum fab_workload w, double u);
double fab_sizes_mean(enum fab_workload w);

/* --- ideal.c --- */

uint64_t fab_ideal_ps(struct fab_sim *s, uint32_t src, uint32_t dst, uint64_t size, bool tell);

/* --- result.c --- */

/** Ends the time for total goodput and queues.  Only the first call has an effect. */
void fab_result_count(struct fab_sim *s);
void fab_result_make(struct fab_sim *s);

#endif /* KARST_FABRIC_SIM_H */
