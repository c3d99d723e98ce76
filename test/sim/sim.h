/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The simulator's world: one struct sim is one schedule, from its seed to its verdict.
 *
 *   config.c    draws the parameters of a schedule from its seed
 *   world.c     builds nodes, memory, queues and queue pairs; connects and takes down
 *   forge.c     frames that no honest peer sends
 *   link.c      carries frames: loss, duplication, reordering, delay, corruption
 *   driver.c    drives a protocol core as an engine would: receive, bells, timers, transmit
 *   workload.c  the programs: what they post and when, including faults
 *   model.c     the right contents of memory
 *   oracle.c    checks completions and events against the model
 *   marks.c     congestion marks, and the notifications that answer them
 *   delay.c     delay-based congestion windows
 *   paths.c     connections with a second path, and the failure of the first
 *   pauses.c    hosts that have no processor for a while
 *   repeat.c    selective repeat: agreement, held frames, contents of SACKs
 *   wire.c      checks every frame that is sent against its work request
 *   lap.c       uses all PSNs once, and feeds a queue without end
 *   schedule.c  the main loop and the checks at the end
 *   trace.c     the last packets, for the report of a failure
 *
 * Nothing in here shares code with lib/qp; it uses that library only through its public headers.
 */
#ifndef SIM_H
#define SIM_H

#include <setjmp.h>

#include "karst_mem.h"
#include "karst_pkt.h"
#include "karst_qp.h"
#include "karst_ring.h"
#include "rng.h"

#define SIM_MAX_NODES 3
#define SIM_MAX_CORES 2
#define SIM_MAX_PAIRS 16
#define SIM_MAX_CQS   12
#define SIM_MAX_BURST 32
#define SIM_WORDS     6 /* atomic words of each connection's target area */
#define SIM_CELLS     4 /* target areas of an endpoint */
#define SIM_SRQS      3 /* of a core: a basic one, then those of XRC */
#define SIM_GUARD     64
#define SIM_FILL      0xA5

enum sim_profile {
	SIM_LOSSLESS,
	SIM_MILD,
	SIM_BRUTAL,
	SIM_FAULTS,
	SIM_HOSTILE,
	SIM_ALL,
};

/* The fault that is injected into one connection. */
enum sim_fault {
	FAULT_NONE,
	FAULT_PEER_DIES, /* from some time on every packet of the connection is lost */
	FAULT_BAD_RKEY,
	FAULT_RANGE,       /* remote address out of bounds, or the range wraps around */
	FAULT_ACCESS,      /* the region or the QP does not allow the access */
	FAULT_MISALIGNED,  /* atomic at an address that is not a multiple of 8 */
	FAULT_LONG_SEND,   /* longer than the receive work request */
	FAULT_RNR,         /* no receives are posted, rnr_retry is finite */
	FAULT_LOCAL_KEY,   /* bad L_Key or range in a send work request */
	FAULT_RECV_KEY,    /* bad L_Key in a receive work request */
	FAULT_BAD_INV,     /* SEND with Invalidate of an invalid key */
	FAULT_STALE_MW,    /* a window's key used after its invalidation */
	FAULT_BAD_WQE,     /* impossible opcode or SGE count */
	FAULT_LOCAL_INV,   /* LOCAL_INV of an invalid key */
	FAULT_BIND,        /* BIND_MW that does not fit */
	FAULT_TO_ERR,      /* the program moves the QP to Error during traffic */
	FAULT_RESET,       /* ... to Reset */
	FAULT_DESTROY,     /* ... destroys it */
	FAULT_DEREG,       /* ... deregisters the target region */
	FAULT_CQ_OVERFLOW, /* ... does not poll its completion queue */
	FAULT_SCRIBBLE,    /* ... writes garbage over its rings */
	FAULT_FORGED,      /* its frames are changed on the link, with a correct ICRC */
	FAULT_MAX,
};

const char *sim_fault_name(enum sim_fault f);

enum sim_op_state {
	OP_POSTED,
	OP_DONE,
	OP_FAILED, /* completed in error */
	OP_FLUSHED,
	OP_GONE, /* queue reset or destroyed */
};

/* A contiguous piece of a node's memory. */
struct sim_piece {
	uint32_t off;
	uint32_t len;
};

struct sim_mr {
	uint32_t key;
	uint32_t pd;
	uint32_t off; /* in the node's memory */
	uint32_t len;
	uint64_t va; /* address of its first byte in work requests */
	unsigned int access;
	bool gone;
};

/* A range of memory that one work request at a time owns. */
struct sim_buf {
	struct sim_mr *mr;
	uint32_t off;
	uint32_t len;
	bool busy;
};

struct sim_op;

#define SIM_CELL_PENDING 64

/* A range of memory that a peer writes and reads. */
struct sim_cell {
	struct sim_mr *mr;
	uint32_t off;
	uint32_t len;
	uint32_t npending;
	/* Writes that may have been executed, oldest first. */
	struct sim_op *pending[SIM_CELL_PENDING];
	uint32_t readers; /* READs outstanding */
};

enum sim_word_kind { WORD_FAA, WORD_CAS };

/* Eight bytes on which peers execute atomics. */
struct sim_word {
	enum sim_word_kind kind;
	struct sim_mr *mr;
	uint32_t off;
	uint64_t initial;
	uint64_t done_bits;   /* FAA: operations completed */
	uint64_t posted_bits; /* FAA: operations posted */
	uint64_t last_seen;   /* CAS: the value that the word probably has */
	uint32_t nops;
	struct sim_op *ops[64];
};

enum sim_mw_state { MW_UNBOUND, MW_BINDING, MW_BOUND, MW_DYING, MW_LOST };

/* A type 2 memory window over one cell of its owner. */
struct sim_mw {
	enum sim_mw_state state;
	uint32_t key;
	bool zero_based;
	bool was_bound;
	uint32_t stale_key;
	uint32_t users; /* work requests of the peer that use the key */
	struct sim_cell *cell;
};

/* A send work request, and everything that the simulator knows about it. */
struct sim_op {
	uint64_t wr_id;
	uint8_t opcode; /* enum karst_wr_opcode */
	uint8_t flags;  /* enum karst_send_flags */
	uint8_t state;  /* enum sim_op_state */
	uint8_t expect; /* enum karst_wc_status: the status that it must end with */
	bool signaled;
	bool received; /* the peer's receive completion was seen */
	bool answered; /* the last response packet was delivered */
	bool started;  /* its first packet was sent */
	bool swapped;  /* CAS: succeeded */
	struct sim_ep *ep;
	uint16_t npieces;
	struct sim_piece *pieces;
	uint32_t len;
	uint32_t imm;
	uint8_t *data; /* payload as posted: SEND, WRITE, ATOMIC WRITE */
	struct sim_buf *buf;
	struct sim_cell *cell;
	uint32_t cell_off;
	uint64_t rva;
	uint32_t rkey;
	struct sim_word *word;
	uint64_t compare_add;
	uint64_t swap;
	uint32_t flush_len;
	uint8_t flush_level;
	uint64_t seen_bits; /* FAA: bits that its old value must have */
	uint64_t result;
	struct sim_mw *mw;
	uint32_t new_key; /* BIND_MW */
	uint32_t srq;     /* XRC: index of the peer's SRQ that it is for */
	uint32_t lpsn;    /* first PSN, counted from the connection's start */
	uint32_t npsn;
	uint32_t got;      /* response packets delivered, each once */
	uint8_t *came;     /* flag of each of them; NULL: none, or there is only one */
	uint32_t msn;      /* messages before it */
	uint32_t recv_seq; /* number among those that need a receive work request */
	uint64_t posted_ns;
};

#define OP_NO_RECV UINT32_MAX

/* sim_op.expect: any outcome, any failure. */
#define SIM_EXPECT_ANY  0xff
#define SIM_EXPECT_FAIL 0xfe

struct sim_recv {
	uint64_t wr_id;
	struct sim_buf *buf;
	struct sim_piece *pieces;
	uint32_t npieces;
	uint32_t total;
	uint32_t srq; /* index in the core's srq[]; 0 also for a queue of its own */
	bool done;
	bool bad; /* FAULT_RECV_KEY */
};

struct sim_node;
struct sim_core;
struct sim_ep;
struct sim_pair;

struct sim_cq {
	struct karst_core_cq *cq;
	void *object;
	struct karst_cq_shared *shared;
	void *lanes;
	struct sim_node *node;
	uint32_t entries;
	uint32_t users; /* send and receive queues that complete into it */
	uint32_t armed; /* enum karst_cq_armed, as the program believes */
	uint32_t events;
	struct karst_cq_lane lane[SIM_MAX_CORES];
	bool exclusive; /* used by one endpoint only */
	bool neglected; /* FAULT_CQ_OVERFLOW: the program does not poll it */
	bool overflow;  /* the event was raised */
};

struct sim_srq {
	struct karst_core_srq *srq; /* NULL: there is none */
	uint32_t which;             /* index in the core's srq[] */
	void *object;
	struct sim_core *core;
	uint32_t pd;
	struct karst_wq wq;
	uint32_t slots;
	uint32_t max_sge;
	struct sim_recv *recvs;
	uint32_t nrecvs, cap;
	struct sim_buf *bufs;
	uint32_t nbufs;
	uint32_t taken; /* completions seen */
	uint32_t used;  /* entries of the CQ that it may still fill */
	uint32_t limit; /* armed */
	uint32_t limit_events;
	struct sim_cq *rcq;
	struct sim_mr *mr;
	uint32_t msg_max;
};

enum sim_ep_state {
	EP_LIVE,
	EP_ERROR, /* a completion in error was seen, or the program moved it there */
	EP_GONE,  /* reset or destroyed */
};

/* One end of a connection (or one of two UD queue pairs that talk to each other). */
struct sim_ep {
	struct sim *s;
	struct sim_pair *pair;
	struct sim_node *node;
	struct sim_core *core;
	struct sim_ep *peer;
	struct karst_core_qp *qp;
	void *qp_mem;
	uint32_t qpn;
	/* XRC: qp sends, and target receives; otherwise target is NULL, and target_qpn is qpn */
	struct karst_core_qp *target;
	void *target_mem;
	uint32_t target_qpn;
	enum sim_ep_state state;
	bool send_failed, recv_failed; /* a completion in error was seen */
	bool hard_error;               /* and it was not a flush */
	bool unexplained;              /* receives were flushed, so a send must have failed */
	enum karst_qp_state asked;     /* the last state that the program set */
	struct karst_qp_init init;
	struct karst_path path;     /* over which it sends */
	struct karst_path paths[2]; /* primary and alternate, at first */
	void *alternate_mem;
	uint32_t migrations; /* in this epoch */
	struct karst_wq sq, rq;
	struct sim_cq *scq, *rcq;
	struct sim_srq *srq;
	uint32_t ah;
	uint32_t qkey;

	/* attributes */
	uint32_t sq_psn;
	uint8_t max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, timeout, retry_cnt, rnr_retry;
	unsigned int access;

	/* memory */
	struct sim_mr *lmr;   /* of its own buffers */
	struct sim_mr *tmr;   /* of its cells */
	struct sim_buf *bufs; /* for sends */
	uint32_t nbufs;
	struct sim_buf *rbufs;
	uint32_t nrbufs;
	struct sim_cell cells[SIM_CELLS];
	struct sim_word words[SIM_WORDS]; /* the peer's atomics work on them */
	struct sim_mw mw;

	/* the send queue */
	struct sim_op *ops;
	uint32_t nops, ops_cap;
	uint32_t done;   /* operations whose completion is known */
	uint32_t budget; /* still to post */
	uint32_t unsignaled;
	uint32_t sq_used; /* entries of the send CQ that it may still fill */
	uint32_t next_lpsn, next_msn, next_recv_seq;
	bool draining; /* the program has requested SQD */
	bool drained;  /* the event SQ_DRAINED was received */

	/* the receive queue */
	struct sim_recv *recvs;
	uint32_t nrecvs, recvs_cap, rdone;
	uint32_t rq_used;
	uint32_t rx_next;     /* the peer's operation that must be received next */
	uint32_t rx_received; /* successful completions */
	bool last_wqe_event;
	bool comm_est;
	uint32_t bad_events;

	/* packets, as requester */
	uint32_t tx_hi;        /* first PSN that was never sent */
	uint32_t tx_last;      /* the last PSN sent */
	uint32_t acked;        /* PSNs that delivered packets acknowledge */
	uint32_t known;        /* likewise, regardless of missing responses before them (X11) */
	bool spilt;            /* the core has dropped a response */
	bool limited;          /* the peer gives credits (Q9) */
	uint32_t admitted;     /* PSN of a message that may have been allowed before that */
	uint32_t lsn;          /* the most messages that a received packet allowed */
	uint32_t confirmed;    /* operations answered */
	uint32_t delivered_hi; /* first PSN that was never delivered to the peer */
	uint32_t hint;         /* operation found last */
	uint32_t rd_out;
	uint32_t since_ackreq;
	/* the time of the last acknowledgement, how often the oldest packet was sent since, and
	 * how many packets were received since (Q6, Q11) */
	uint64_t quiet_ns;
	uint32_t quiet_psn, tries, heard;
	bool naks;             /* a sequence NAK was received (Q12) */
	uint32_t adverse;      /* packets of this connection lost, corrupted or delayed so far */
	uint32_t adverse_done; /* the same when the last send was acknowledged */
	/* tries that pauses may have used up since quiet_ns: those of all pauses, and those of the
	 * longest one (pauses.c) */
	uint32_t waited, waited_once;
	uint32_t ud_psn;
	uint64_t retransmits;
	/* of qp, and of the XRC target (marks.c) */
	uint32_t cnps_due[2];
	uint32_t cnps_stale;  /* CNPs that were due before a reset: they are still sent */
	uint32_t cnps_forged; /* marked datagrams that were forged to come from this end */
	uint64_t cnp_next_ns[2];
	uint64_t slow_ns[2];    /* time of the CNP that limits their rates; 0: no CNP */
	uint64_t slow_bytes[2]; /* bytes sent since */

	/* windows by delay (delay.c) */
	uint64_t pause_ns; /* no request may be sent before this time */
	uint64_t answers;  /* response packets that it has received */

	/* selective repeat (repeat.c) */
	void *repeat_mem;
	uint32_t said_hi;   /* no SACK of the peer has had a bit for this PSN or later ones */
	uint8_t *psn_flags; /* enum sim_psn_flags of its requests, by PSN */
	uint32_t rnr_at;    /* PSN of the last request of the peer for which it was not ready */

	/* fault */
	uint32_t fault_at; /* number of operations before the fault */
	bool fault_done;
	uint32_t scribbles; /* hostile: number of bad actions that remain */
};

struct sim_pair {
	uint32_t idx;
	enum karst_qp_type type;
	bool xrc; /* type RC, but each end is an XRC initiator and an XRC target */
	uint32_t mtu_shift;
	uint32_t msg_max;
	struct sim_ep ep[2];
	enum sim_fault fault;
	uint32_t fault_end; /* which end has the fault */
	uint64_t dead_ns;   /* FAULT_PEER_DIES: time of the failure; otherwise UINT64_MAX */
	bool broken;        /* an end has failed, so the other end may fail */
	bool victim;        /* hostile: the connection may break in any way */
	bool two_paths;
	bool moved;      /* a program has migrated to the other path */
	uint64_t cut_ns; /* time at which the first path failed; otherwise UINT64_MAX */
	bool use_sqd;
	bool credits;
	bool rnr_pressure;
	bool torn;             /* FAULT_RESET and FAULT_DESTROY */
	uint16_t udp_sport[4]; /* of each QP */
	/* probabilities of its operations and their flags */
	uint32_t mix[KARST_WR_MAX];
	uint32_t inline_ppm, fence_ppm, zero_ppm;
	uint32_t repeat_window; /* selective repeat; 0: no end has agreed to it */
	uint32_t repeats;       /* bit set of the ends that assume an agreement */
};

/* A frame that is in flight or waits to be received. */
struct sim_frame {
	struct sim_frame *next;
	uint64_t at_ns;
	uint64_t seq;
	uint16_t len;
	uint8_t from, to;
	uint8_t flow;
	bool noise; /* forged: see forge.c */
	bool corrupt;
	uint16_t clean_len;
	uint8_t *clean; /* of a corrupted frame: the frame as it was sent */
	uint8_t *buf;
	uint8_t store[KARST_FRAME_MAX + 64];
};

struct sim_fifo {
	struct sim_frame *head, **tail;
	uint32_t n;
};

struct sim_core {
	struct karst_core *core;
	struct sim_node *node;
	uint32_t idx;
	struct karst_bell bell;
	struct karst_bell_shared *bell_shared;
	uint32_t bell_mask;
	uint32_t bells; /* doorbells that were rung and not yet polled */
	struct sim_fifo inbox;
	struct sim_srq srq[SIM_SRQS];
	uint32_t ack_interval, window;
	struct sim_ep *by_slot[2 * SIM_MAX_PAIRS + 8]; /* by QPN; a few QPNs are reserved */
	uint64_t tx_packets;
	/* no CNP may be sent before this time: [0] of its port, then of each node, by IP version
	 * (marks.c) */
	uint64_t cnp_next_ns[1 + SIM_MAX_NODES][2];
	uint32_t cnps_due;
	uint64_t shut_ns; /* its port accepts no frames before this time; 0: it accepts frames */
	struct sim_held *held_free;
	uint32_t nheld;
	/* copies.c: that are pending; that are not in use; that were in use in this turn */
	struct sim_copy *copies, *copies_free, *copies_used;
	/* pauses.c */
	uint32_t first, step; /* of the current turn */
	bool late;            /* it has not handled all frames that arrived in a pause */
};

struct sim_node {
	struct sim *s;
	uint32_t idx;
	struct karst_mem *mem_table;
	struct karst_ah_table *ahs;
	uint8_t *mem, *shadow;
	uint32_t mem_len, mem_used;
	uint32_t npds;
	uint32_t pds[2 * SIM_MAX_PAIRS + 4];
	struct sim_mr mrs[4 * SIM_MAX_PAIRS + SIM_SRQS * SIM_MAX_CORES + 8];
	uint32_t nmrs;
	struct sim_core cores[SIM_MAX_CORES];
	struct sim_cq cqs[SIM_MAX_CQS + 2 * SIM_MAX_PAIRS];
	uint32_t ncqs;
	uint8_t mac[6];
	uint8_t ip4[16], ip6[16];
	uint64_t away_ns; /* the node is paused until this time */
	bool behind;      /* it has not caught up after its last pause */
};

/* One direction of a link between two nodes. */
struct sim_link {
	uint32_t drop_ppm, dup_ppm, reorder_ppm, corrupt_ppm, ack_drop_ppm, jitter_ppm;
	uint32_t delay_ns, jitter_ns, reorder_ns;
	uint64_t last_ns; /* latest arrival of a frame in order */
};

struct sim_stats {
	uint64_t schedules, packets, completions, retransmits, dropped, corrupted, duplicated;
	uint64_t marked, cnps;
	uint64_t migrations;
	uint64_t sacks, naks, rnrs, timeouts, errors, ops, recvs, virtual_ns, steps, events;
};

struct sim_trace_rec {
	uint64_t ns;
	struct karst_pkt pkt; /* data is not valid */
	uint64_t swap_add;
	uint8_t from, to;
	uint8_t fate; /* enum sim_fate */
	bool parsed;
};

enum sim_fate {
	FATE_SENT,
	FATE_LOST,
	FATE_SPOILT,
	FATE_DUPLICATED,
	FATE_DELAYED,
	FATE_RECEIVED,
	FATE_REFUSED
};

#define SIM_TRACE 256

struct sim_arena {
	uint8_t *base;
	size_t size, used;
	uint32_t nblocks;
	struct {
		size_t off, len;
	} blocks[8192];
};

struct sim_options {
	enum sim_profile profile;
	bool verbose;
	bool no_icrc; /* receivers do not check the ICRC: the simulator must notice that */
	bool laps;    /* one connection of each schedule uses all PSNs once */
	uint32_t trace_packets;
};

struct sim {
	struct sim_options opt;
	uint64_t seed;
	struct sim_rng rng;
	enum sim_profile profile;
	uint64_t now_ns;
	struct sim_arena arena;

	uint32_t nnodes, ncores, lcore_bits;
	struct sim_node nodes[SIM_MAX_NODES];
	struct sim_link links[SIM_MAX_NODES][SIM_MAX_NODES];
	uint32_t npairs;
	struct sim_pair pairs[SIM_MAX_PAIRS];
	uint32_t epoch, epochs;
	bool lossy;   /* frames may be lost or corrupted */
	bool jumbled; /* frames may be duplicated or reordered */
	bool finishing;
	uint32_t ops_per_ep;
	uint32_t noise_ppm; /* part of the frames that is followed by one that must be ignored */
	uint32_t step_ns;
	uint32_t max_burst, max_bytes;
	struct sim_rng ports;   /* separate, so that recorded seeds still give the same schedules */
	bool shuts;             /* ports accept no frames from time to time */
	struct sim_rng marks;   /* likewise */
	struct sim_rng paths;   /* likewise */
	struct sim_rng pauses;  /* likewise */
	struct sim_rng copying; /* likewise */
	bool copies;            /* programs' memory has to be copied */
	uint32_t pause_every;   /* steps, on average; 0: there are none */
	bool paused;            /* a node has paused in this schedule */
	bool migrated;          /* a connection has migrated in this schedule */
	uint32_t ce_ppm;        /* part of the ECT frames that is marked */
	struct karst_congestion_config congestion;

	/* frames in flight: a heap sorted by (at_ns, seq) */
	struct sim_frame *heap[16384];
	uint32_t nheap;
	struct sim_frame *free_frames;
	uint64_t frame_seq;

	bool early; /* cores use early retransmission (Q11) */
	uint64_t last_progress_ns;
	uint64_t steps;
	struct sim_stats stats;
	struct sim_trace_rec trace[SIM_TRACE];
	uint64_t ntrace;

	jmp_buf bail;
	bool failed;
	char why[512];
};

/* --- schedule.c --- */

/** Runs the schedule of @seed.  @return true if no rule was violated; otherwise s->why says what
 *  was. */
bool sim_run(struct sim *s, uint64_t seed);
/** Records a violation and ends the schedule.  Does not return. */
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));

/* --- config.c --- */

void sim_config(struct sim *s);

/* --- world.c --- */

int sim_arena_init(struct sim_arena *a, size_t size);
/** Allocates zeroed, cache-line aligned memory, with a guard after it that sim_arena_check()
 *  checks. */
void *sim_alloc(struct sim *s, size_t len);
void *sim_alloc_raw(struct sim *s, size_t len); /* neither zeroed nor guarded */
bool sim_arena_check(const struct sim_arena *a);
void sim_build(struct sim *s);
void sim_connect(struct sim *s, struct sim_pair *p);
void sim_disconnect(struct sim *s, struct sim_pair *p);
void sim_take_down(struct sim *s);
struct sim_ep *sim_ep_of(struct sim_node *n, uint32_t qpn);
struct sim_mr *sim_mr_new(struct sim_node *n, uint32_t pd, uint32_t len, unsigned int access);
void sim_ep_destroy(struct sim_ep *ep);

/* --- link.c --- */

struct sim_frame *sim_frame_get(struct sim *s);
void sim_frame_put(struct sim *s, struct sim_frame *f);
/** Takes ownership of a sealed frame and decides its fate.  @pair: of the sender; NULL: unknown. */
void sim_link_send(
	struct sim *s, struct sim_frame *f, const struct karst_pkt *info, struct sim_pair *pair);
/** Moves frames that have arrived into their nodes' inboxes. */
void sim_link_deliver(struct sim *s);
uint64_t sim_link_next(const struct sim *s);
/** Whether a corrupted frame equals the original in everything that the ICRC covers. */
bool sim_frame_same(const struct sim_frame *f);

/* --- forge.c --- */

/** Changes a frame so that it must be dropped without any effect.  @p: the frame as parsed. */
void sim_forge_noise(struct sim *s, struct sim_frame *f, const struct karst_pkt *p);
/** Changes a frame in any way; the parser may or may not accept the result. */
void sim_forge(struct sim *s, struct sim_frame *f, const struct karst_pkt *p);

/* --- driver.c --- */

/** Runs one turn of a core, or continues it after a pause. */
void sim_core_turn(struct sim *s, struct sim_core *c);
/** From now on the port of @c accepts frames again. */
void sim_port_open(struct sim *s, struct sim_core *c);
bool sim_core_ready(const struct sim *s, const struct sim_core *c);
uint64_t sim_core_next(const struct sim_core *c);
void sim_ring(struct sim_ep *ep);

extern const struct karst_core_ops sim_core_ops;

/* --- lap.c --- */

/** After the traffic of an epoch: tests that need more packets than a schedule has. */
void sim_laps(struct sim *s);

/* --- workload.c --- */

/* How much a program tries to do. */
enum sim_eager { LAZY, WILLING, EAGER };

/** Lets the program of @ep do something.  @return whether it did something. */
bool sim_program(struct sim_ep *ep, enum sim_eager eager);
bool sim_poll_cq(struct sim *s, struct sim_cq *cq, uint32_t max);
bool sim_post_srq(struct sim *s, struct sim_core *c, enum sim_eager eager);
/** Whether everything that was posted has completed. */
bool sim_ep_idle(const struct sim_ep *ep);
bool sim_sends_over(const struct sim_ep *ep);

/* --- faults.c --- */

/** Whether the endpoint must post its faulty work request now. */
bool sim_fault_due(const struct sim_ep *ep);
/** The operation that the fault needs. */
unsigned int sim_fault_opcode(struct sim_ep *ep);
/** Changes a finished work request so that it is faulty. */
void sim_fault_op(struct sim_ep *ep, struct sim_op *op, struct karst_send_wqe *wqe);
/** Injects a fault that is not a work request, if it is time.  @return whether it did. */
bool sim_fault_strike(struct sim_ep *ep, enum sim_eager eager);
bool sim_fault_give_up(struct sim_ep *ep);
/** Whether @op, or with NULL a receive of @ep, may end with @status because of the fault. */
bool sim_fault_excuses(
	const struct sim_ep *ep, const struct sim_op *op, enum karst_wc_status status);

/* --- model.c --- */

void sim_fill(uint8_t *p, uint32_t len, uint64_t seed);
void sim_cell_add(struct sim *s, struct sim_op *op);
/** The write has been executed: memory must show it. */
void sim_cell_apply(struct sim *s, struct sim_ep *ep, struct sim_op *op);
/** Checks that memory shows the write, or one that was posted after it. */
void sim_cell_shows(struct sim *s, struct sim_ep *ep, const struct sim_op *op);
/** Checks that the bytes that a READ returned were in memory at some time. */
void sim_cell_read(struct sim *s, struct sim_ep *ep, const struct sim_op *op);
void sim_cell_final(struct sim *s, struct sim_node *n, struct sim_cell *c, bool exact);
void sim_word_posted(struct sim *s, struct sim_ep *ep, struct sim_op *op);
void sim_word_done(struct sim *s, struct sim_ep *ep, struct sim_op *op);
void sim_word_final(struct sim *s, struct sim_node *n, struct sim_word *w);
/** Whether the pieces contain @data, of @len bytes, after @skip bytes.  @strict: the bytes after it
 *  have not changed. */
bool sim_pieces_match(const struct sim_node *n, const struct sim_piece *p, uint32_t np,
	uint32_t skip, const uint8_t *data, uint32_t len, bool strict);
/** Copies these pieces of memory to the shadow. */
void sim_pieces_accept(struct sim_node *n, const struct sim_piece *p, uint32_t np);
void sim_memory_final(struct sim *s, struct sim_node *n);

/* --- oracle.c --- */

void sim_trailing(struct sim *s, struct sim_ep *ep);
void sim_completion(struct sim *s, struct sim_cq *cq, const struct karst_cqe *e);
void sim_async(struct sim *s, struct sim_core *c, enum karst_async_event_code ev, void *object);
void sim_ep_lost(struct sim_ep *ep); /* the queues were reset or destroyed */
uint64_t sim_wr_id(const struct sim *s, unsigned int kind, uint32_t a, uint32_t b, uint32_t idx);
void sim_final(struct sim *s);
const char *sim_op_name(unsigned int opcode);

/* --- world.c --- */

/** Whether each packet of a WRITE without immediate is a message of its own (Q13). */
bool sim_divides(const struct sim *s);
bool sim_is_divided(const struct sim *s, const struct sim_ep *ep, const struct sim_op *op);

/* --- repeat.c --- */

extern const struct karst_hold_ops sim_hold_ops;
/** Draws which ends of @p assume that selective repeat was agreed to. */
void sim_repeat_config(struct sim *s, struct sim_pair *p);
/** Maximum number of frames that @c holds. */
uint32_t sim_repeat_frames(const struct sim_core *c);
/** Number of UDP source ports of queue pairs with selective repeat. */
uint32_t sim_repeat_spray(const struct sim_core *c);
/** The bits of its source port in which a packet that @ep sends may differ from the first port.
 *  @path: the bits in which it must differ, if the packet is sent for the first time (X12). */
uint32_t sim_repeat_ports(const struct sim_ep *ep, const struct karst_pkt *p, uint32_t *path);
bool sim_repeats(const struct sim_ep *ep);
/** Whether there is a connection with selective repeat at only one end. */
bool sim_repeat_disagrees(const struct sim *s);
/** Sets attributes of the modify call to RTR.  @return their mask. */
unsigned int sim_repeat_attr(struct sim_ep *ep, struct karst_core_qp_attr *a);
void sim_repeat_reset(struct sim_ep *ep);
/** @ep sends its request packet with PSN number @at again. */
void sim_repeat_again(
	struct sim *s, struct sim_ep *ep, uint32_t at, bool answered, const struct karst_pkt *p);
/** The request packet of @req with PSN number @at was delivered. */
void sim_repeat_delivered(struct sim_ep *req, uint32_t at);
/** @ep sends a SACK, or an ACK after which PSN number @at is expected. */
void sim_repeat_sack(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p);
void sim_repeat_ack(
	struct sim *s, struct sim_ep *ep, uint32_t at, bool answered, const struct karst_pkt *p);
/** @req receives the bits of a SACK. */
void sim_repeat_heard(struct sim_ep *req, const struct karst_pkt *p);

/* --- copies.c --- */

extern const struct karst_copy_ops sim_copy_ops;
void sim_copies_config(struct sim *s);
/** The address at which program memory is registered that begins at @host. */
void *sim_copies_host(const struct sim *s, uint8_t *host);
/** Makes the copies that are due. */
void sim_copies_turn(struct sim *s, struct sim_core *c);
/** When the next copy is due. */
uint64_t sim_copies_next(const struct sim_core *c);

/* --- paths.c --- */

/** Decides whether the connection has two paths. */
void sim_paths_config(struct sim *s, struct sim_pair *p);
/** Derives the second path of @ep from the first, which was drawn. */
void sim_paths_draw(struct sim_ep *ep);
void sim_paths_reset(struct sim_ep *ep);
/** Sets attributes of the modify calls to RTR and RTS.  @return the mask for RTR; 0: none */
unsigned int sim_paths_attr(struct sim_ep *ep, struct karst_core_qp_attr *a);
/** At random, lets the first path fail, or the program of @ep migrate. */
void sim_paths_strike(struct sim_ep *ep);
/** Whether @pkt, of connection @p, is on a path that has failed. */
bool sim_paths_dead(const struct sim *s, const struct sim_pair *p, const struct karst_pkt *pkt);
void sim_paths_sent(
	struct sim *s, struct sim_core *c, struct sim_ep *ep, const struct karst_pkt *p);
/** Whether @p has arrived over the path of @ep, or may cause @ep to migrate. */
bool sim_paths_may_take(const struct sim_ep *ep, const struct karst_pkt *p);
/** Whether @ip, in the form that packets have, is an address of @n. */
bool sim_paths_to(const struct sim_node *n, const uint8_t *ip, bool ip6);
/** The path over which a CNP of @ep must be sent: that of the marked packet. */
const struct karst_path *sim_paths_of_cnp(const struct sim_ep *ep, const struct karst_pkt *p);
/** @ep has migrated. */
void sim_paths_event(struct sim *s, struct sim_ep *ep);

/* --- pauses.c --- */

void sim_pauses_config(struct sim *s);
/** At random, pauses a node from now on. */
void sim_pauses_strike(struct sim *s);
/** At random, pauses @n from now on, in the middle of a turn.  @return whether it did. */
bool sim_pauses_in_turn(struct sim *s, struct sim_node *n);
/** Whether @n is paused now. */
bool sim_away(const struct sim_node *n);
/** Whether @c still has to handle frames that arrived in a pause. */
bool sim_pauses_late(struct sim_core *c);
/** Whether the tries of @ep may be used up by pauses and by @lost packets since the last
 *  acknowledgement. */
bool sim_pauses_excuse(const struct sim_ep *ep, uint32_t lost);
/** @ep has received an acknowledgement. */
void sim_pauses_heard(struct sim_ep *ep);

/* --- wire.c --- */

void sim_wire_sent(struct sim *s, struct sim_core *c, struct sim_ep *ep, const struct karst_pkt *p);
/** Records what the core has done with a delivered packet. */
void sim_wire_taken(struct sim_ep *ep, const struct karst_pkt *p);
void sim_wire_delivered(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p);

/* --- marks.c --- */

void sim_marks_config(struct sim *s);
/** At random, marks @f as a congested link does. */
void sim_marks_link(struct sim *s, struct sim_frame *f, const struct karst_pkt *p);
/** @ep has received a frame; p->drop says whether it was dropped. */
void sim_marks_delivered(
	struct sim *s, struct sim_core *c, struct sim_ep *ep, const struct karst_pkt *p);
/** @to has received a frame of @from that was forged; p->drop says whether it was dropped. */
void sim_marks_forged(
	struct sim *s, struct sim_node *from, const struct sim_ep *to, const struct karst_pkt *p);
/** @c sends a CNP; sets the destination of @f.  @return its connection; NULL: unknown */
struct sim_pair *sim_marks_sent(
	struct sim *s, struct sim_core *c, struct sim_frame *f, const struct karst_pkt *p);
/** @ep sends a frame that is not a CNP. */
void sim_marks_data(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p);
/** @ep migrates to its other path. */
void sim_marks_migrated(struct sim_ep *ep);
void sim_marks_final(struct sim *s, const struct sim_ep *ep);

/* --- delay.c --- */

/** Must be called after sim_marks_config(). */
void sim_delay_config(struct sim *s);
void sim_delay_reset(struct sim_ep *ep);
/** @ep migrates to its other path, for which there are no measurements. */
void sim_delay_migrated(struct sim_ep *ep);
/** A packet is delivered to @ep. */
void sim_delay_heard(struct sim_ep *ep, const struct karst_pkt *p);
/** @ep sends a packet that is not a CNP.  Must be called before sim_wire_sent(). */
void sim_delay_sent(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p);

/* --- trace.c --- */

void sim_trace(struct sim *s, enum sim_fate fate, uint8_t from, uint8_t to,
	const struct karst_pkt *p, bool parsed);
void sim_trace_print(const struct sim *s, uint32_t last);
void sim_note(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif /* SIM_H */
