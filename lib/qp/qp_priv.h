/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The private structures of queue pairs, and the functions that the files of lib/qp share.
 *
 * The requester and the responder of one QP share nothing but its identity, so each has its own
 * structure; hot fields come first and occupy as few cache lines as possible.  Two private arrays
 * follow the QP in the caller's memory.  One has a karst_sq_slot for each slot of the send ring:
 * what go-back-N must know about a request; everything else is read again from the ring.  The other
 * has a karst_rsp for each READ or atomic that may have to be answered again.
 */
#ifndef KARST_QP_PRIV_H
#define KARST_QP_PRIV_H

#include "congestion.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_psn.h"
#include "karst_qp.h"
#include "qp_mutant.h"
#include "swift.h"

/* --- header template: Ethernet to BTH, ready to be copied to the front of a packet --- */

#define KARST_TMPL_MAX 80 /* 18 + 40 + 8 + 12 = 78 */

struct karst_tmpl {
	uint16_t ip_sum; /* IPv4: one's complement sum of the header without length and checksum */
	uint8_t bth_flags; /* MigReq, as in BTH byte 1 (W2, G1) */
	uint8_t l3_off;
	uint8_t bth_off;
	uint8_t ip6;
	uint8_t port;
	uint8_t unused;
	uint8_t bytes[KARST_TMPL_MAX];
};

/* Bytes of a template in its first cache line.  IPv4 headers without a VLAN tag fit in there, so
 * that a frame of a queue pair that is in no cache waits for one line, not two. */
#define KARST_TMPL_NEAR 56
static_assert(offsetof(struct karst_tmpl, bytes) + KARST_TMPL_NEAR == KARST_CACHE_LINE,
	"what is near is in the first line");
static_assert(KARST_ETH_LEN + KARST_IP4_LEN + KARST_UDP_LEN + KARST_BTH_LEN <= KARST_TMPL_NEAR,
	"the usual headers are near");

/** Initialises a template.  @tclass replaces the traffic class of @path; @dqpn and @pkey go into
 *  the BTH; the UDP source port follows rule W1. */
void karst_tmpl_init(struct karst_tmpl *t, const struct karst_path *path, uint8_t tclass,
	uint32_t sqpn, uint32_t dqpn, uint16_t pkey);
/** The traffic class of packets along @path.  With @ect the ECN field is not the program's choice
 *  (E1). */
static inline uint8_t
karst_tclass(const struct karst_path *path, bool ect)
{
	return ect ? (uint8_t)((path->tclass & ~KARST_ECN_MASK) | KARST_ECN_ECT0)
		   : karst_path_tclass(path);
}
/** 0 if the path is valid, else -EINVAL. */
int karst_path_check(const struct karst_path *path);

/* --- completion queues --- */

struct karst_cq_lane_state {
	struct karst_lane ring;
	struct karst_core_cq *cq;
	struct karst_cq_lane_state *next_dirty;
	bool dirty;
	bool solicited; /* a completion since the last flush deserves a solicited event */
	bool lost;      /* a completion was lost since the last flush, because the lane was full */
	/* moderation */
	/* an event is delayed; it is raised when the timer fires, at the latest */
	bool held;
	uint32_t fresh;        /* entries published by this flush */
	uint32_t held_entries; /* entries published since the event was delayed */
	struct karst_timer timer;
} karst_cache_aligned;
static_assert(offsetof(struct karst_cq_lane_state, held_entries) == 64,
	"without moderation one line is enough");

/* The structures that embed a timer of a core's wheel (karst_timer.kind). */
enum karst_timer_kind { KARST_TIMER_QP, KARST_TIMER_CQ_LANE, KARST_TIMER_PACER };

struct karst_core_cq {
	struct karst_cq_shared *sh;
	void *user;
	uint32_t nlanes;
	uint32_t sharer;
	_Atomic uint32_t users;     /* QPs that use it, each counted once per role */
	_Atomic uint32_t overflown; /* 1 once a completion was lost */
	/* moderation: count in the upper half, period_us in the lower; 0: none */
	_Atomic uint32_t moderation;
	struct karst_cq_lane_state lane[];
};

/**
 * Reserves one completion entry of this core, which the caller fills completely.  NULL if the queue
 * is full or ever was: the completion is lost, the event is raised, and the caller puts the QP into
 * Error.
 */
struct karst_cqe *karst_cq_push(struct karst_core *core, struct karst_core_cq *cq, bool solicited);

/** Ends the moderation period of a lane. */
void karst_cq_expire(struct karst_core *core, struct karst_cq_lane_state *lane);

/* --- receive work requests --- */

struct karst_core_srq {
	struct karst_wqe_ring ring;
	uint32_t pd;
	uint32_t limit; /* 0: not armed */
	uint32_t users; /* QPs that were created with it */
	bool broken;    /* the program wrote an invalid tail */
	void *user;
	/* XRC; else 0 */
	uint32_t number;
	uint32_t xrcd;
	struct karst_core_cq *cq;
	struct karst_core_qp *targets; /* targets whose srq it is at present */
};

/** The receive work request that a message is written to: a private copy. */
struct karst_rwqe {
	uint64_t wr_id;
	uint32_t total; /* bytes of all SGEs */
	uint32_t got;   /* bytes placed */
	uint32_t off;   /* where the next byte goes in its SGE */
	uint8_t cur;    /* and which SGE that is */
	uint8_t nsge;
	bool held;             /* the other members are valid */
	bool bad;              /* the copy did not validate: local protection error */
	struct karst_sge *sge; /* private array of the QP */
};

enum karst_rwqe_status { KARST_RWQE_OK, KARST_RWQE_EMPTY, KARST_RWQE_BROKEN };

/** Copies the next receive work request to qp->rsp.rwqe unless one is held. */
enum karst_rwqe_status karst_recv_take(struct karst_core *core, struct karst_core_qp *qp);
/** Places @len bytes, the last of the message if @end; SUCCESS, LOC_LEN_ERR or LOC_PROT_ERR.
 *  karst_copy_settle() follows. */
enum karst_wc_status karst_recv_place(struct karst_core *core, struct karst_core_qp *qp,
	const uint8_t *src, uint32_t len, bool end);
/** Undoes the bookkeeping of karst_recv_place() in the work request. */
void karst_recv_unplace(struct karst_rwqe *w, uint32_t len);

struct karst_recv_done {
	enum karst_wc_status status;
	enum karst_wc_opcode opcode;
	uint8_t flags;
	bool solicited;
	uint32_t byte_len;
	uint32_t imm;
	uint32_t src_qpn;
};
/** Completes the held receive work request. */
void karst_recv_complete(
	struct karst_core *core, struct karst_core_qp *qp, const struct karst_recv_done *done);

/* --- responder --- */

enum karst_rsp_type { KARST_RSP_READ, KARST_RSP_ATOMIC, KARST_RSP_ATOMIC_WRITE, KARST_RSP_FLUSH };

/** A READ, atomic or FLUSH that was executed and may be requested again (R4..R6, R15). */
struct karst_rsp {
	uint32_t psn;  /* first PSN of the request */
	uint32_t npsn; /* PSNs of its responses */
	uint32_t beg;  /* first PSN to answer in the present round */
	uint32_t end;  /* one past the last one */
	uint64_t va;   /* READ: source; atomic: the value before */
	uint32_t rkey;
	uint32_t len;
	uint32_t type; /* enum karst_rsp_type */
	uint32_t pd;   /* READ: PD of the request, since the PD of an XRC target changes */
};

enum karst_msg_op { KARST_MSG_NONE, KARST_MSG_SEND, KARST_MSG_WRITE };
enum karst_resp_wait { KARST_WAIT_NONE, KARST_WAIT_SEQ, KARST_WAIT_RNR, KARST_WAIT_HELD };
enum karst_owed { KARST_OWED_NONE, KARST_OWED_ACK, KARST_OWED_NAK };

struct karst_responder {
	uint32_t epsn; /* expected PSN */
	uint32_t msn;
	uint8_t op;       /* enum karst_msg_op: the message in progress */
	uint8_t wait;     /* enum karst_resp_wait: what the last NAK asked for */
	uint8_t owed;     /* enum karst_owed: what is sent after the responses */
	uint8_t syndrome; /* syndrome of the NAK to send */
	uint32_t access;  /* KARST_ACCESS_REMOTE_* that the QP allows */
	uint64_t va;      /* WRITE in progress: address of the next byte */
	uint32_t rkey;
	uint32_t left;      /* WRITE: bytes not yet received */
	uint32_t total;     /* WRITE: bytes of the message */
	uint16_t rsp_saved; /* saved entries, at most rsp_max */
	uint8_t min_rnr_timer;
	bool fatal; /* in Error: the NAK that explains it is still to be sent */
	/* bytes that this half has sent more than the requester, while both had work */
	int32_t lead;
	uint32_t rsp_added; /* entries ever added to rsps[] */
	uint32_t rsp_done;  /* entries that were answered at least once */
	uint32_t rsp_cur;   /* next entry to answer from */
	uint32_t rsp_psn;   /* next PSN to answer, in that entry */
	uint32_t rsp_again; /* answered entries from here on are not requested again */
	struct karst_rsp *rsps;
	uint16_t rsp_max;  /* usable entries: max_dest_rd_atomic */
	uint16_t rsp_mask; /* entries allocated - 1 */
	union {
		uint32_t nak_psn;  /* while a NAK is to be sent */
		uint32_t left_psn; /* otherwise: duplicate whose ACK was left to responses (R3) */
	};
	uint32_t oos_psn;   /* highest PSN dropped behind the expected one, while it waits */
	uint32_t rsp_clock; /* when the last response was sent, by karst_rsp_clock() */
	struct karst_rwqe rwqe;
};

/* PSNs between two checks of the age of saved READs and atomics; a power of two */
#define KARST_RSP_AGE (1u << 22)

/*
 * The time limit of R3 for "a response has left", in units of 1,024 ns: 64 ms, as long as a usual
 * timeout.  A requester that goes back sooner does so because it has noticed a gap.
 */
#define KARST_RSP_LATELY 62500u

static inline uint32_t
karst_rsp_clock(const struct karst_core *core)
{
	return (uint32_t)(core->now_ns >> 10);
}

/** Records that no duplicate's ACK is left to responses: all possible duplicates are after this PSN
 *  (P2). */
static inline void
karst_rsp_leave_none(struct karst_responder *r)
{
	r->left_psn = karst_psn_add(r->epsn, -(1u << 22));
}

/** Entry number @i of all that were ever added, if it is one of the last rsp_max. */
static inline struct karst_rsp *
karst_rsp_at(const struct karst_responder *r, uint32_t i)
{
	return &r->rsps[i & r->rsp_mask];
}

/** The cursor has reached an entry: moves it to the first one that is requested. */
static inline void
karst_rsp_seek(struct karst_responder *r)
{
	if ((int32_t)(r->rsp_cur - r->rsp_again) >= 0 && (int32_t)(r->rsp_cur - r->rsp_done) < 0)
		r->rsp_cur = r->rsp_done;
	if (r->rsp_cur != r->rsp_added)
		r->rsp_psn = karst_rsp_at(r, r->rsp_cur)->beg;
}

/* --- requester --- */

enum karst_slot_flags {
	KARST_SLOT_SIGNALED = 1u << 0,
	KARST_SLOT_RD_ATOMIC = 1u << 1, /* waits for a response, counts against max_rd_atomic */
	KARST_SLOT_LOCAL = 1u << 2,     /* takes no PSN */
	KARST_SLOT_CREDIT = 1u << 3,    /* needs an end-to-end credit (Q9) */
	KARST_SLOT_DONE = 1u << 4,      /* response complete, or local operation executed */
	KARST_SLOT_ASK = 1u << 5,       /* its missing responses are to be requested again (X11) */
};

/** What go-back-N must know about a started work request. */
struct karst_sq_slot {
	uint32_t psn;  /* first PSN */
	uint32_t npsn; /* number of its PSNs */
	uint32_t len;  /* message bytes */
	uint8_t op;    /* enum karst_wr_opcode */
	uint8_t flags; /* enum karst_slot_flags */
	uint16_t gap;  /* X11: number of its gap; 0: none */
};
static_assert(sizeof(struct karst_sq_slot) == 16, "four a cache line");

enum karst_req_flags {
	KARST_REQ_RNR_WAIT = 1u << 0, /* nothing is sent until the deadline */
	KARST_REQ_ROUND = 1u << 1,    /* the requester has already gone back to una_psn */
	/* fail_idx ends this send queue when it becomes the oldest request */
	KARST_REQ_FAILED = 1u << 2,
	KARST_REQ_LIMITED = 1u << 3, /* lsn is valid: the responder grants credits */
	KARST_REQ_IDLE = 1u << 4,    /* the program must ring the doorbell */
	KARST_REQ_DRAIN_TOLD = 1u << 5,
	KARST_REQ_LINGER = 1u << 6, /* became empty recently: in core->linger[] */
	KARST_REQ_UNSENT = 1u << 7, /* the requester went back, and has sent nothing since */
};

struct karst_requester {
	uint32_t una_idx; /* oldest request that is not completed */
	uint32_t snd_idx; /* request that the next packet belongs to */
	uint32_t nxt_idx; /* first request never started; slots before it are valid */
	uint32_t una_psn; /* oldest PSN that is not acknowledged */
	uint32_t snd_psn; /* next PSN to send */
	uint32_t nxt_psn; /* first PSN never sent */
	uint32_t rd_out;  /* READs and atomics sent in this round that are not answered */
	/* the PSN after the newest packet of this round that asks for an acknowledgement, or after
	 * the responses that it asks for; after going back, so far back that the next packet asks
	 */
	uint32_t asked_psn;
	uint8_t flags; /* enum karst_req_flags */
	uint8_t max_rd_atomic;
	uint8_t retry_left;
	uint8_t rnr_left;
	uint32_t lsn : 24; /* Q9 */
	/* read in each visit, also in visits of a queue pair that only answers */
	/* visits and packets call the pacer: 0 unless something limits rate or window (E6, E7) */
	uint32_t paced : 1;
	uint32_t probe_due : 1; /* Q11: the next visit probes */
	uint32_t timing : 1;    /* Q11: the round trip of timed_psn is being measured */
	uint32_t probe_out : 1; /* Q11: a probe is unanswered */
	uint32_t probes : 4;    /* Q11: probes since the last progress */
	uint32_t ssn;           /* send sequence number of the newest request started, from 1 */
	/* PSNs of rd_out that are under way: they are those of the answers, not of packets
	 * sent */
	uint32_t rd_psns;
	uint8_t fail_status; /* enum karst_wc_status */
	uint8_t retry_cnt;
	uint8_t rnr_retry : 4;
	uint8_t told : 1; /* Q12: a NAK has reduced the window, and there was no timeout since */
	uint8_t wary : 2; /* enum karst_wary */
	uint8_t asks : 1; /* some slot has KARST_SLOT_ASK */
	uint8_t timeout;
	/* PSNs that may be outstanding: after a timeout, fewer than core->window_packets */
	uint32_t window;
	uint64_t rto_ns;      /* 0: never */
	uint64_t deadline_ns; /* 0: none */
	struct karst_sq_slot *slots;
	struct karst_timer timer;
	uint32_t fail_idx;
	uint32_t timed_psn; /* Q11 */
};

/* --- early retransmission (probe.c) --- */

/** What is done when the window is full, while it is reduced after a NAK (Q12). */
enum karst_wary {
	KARST_WARY_NOT,   /* nothing is sent again */
	KARST_WARY_LAST,  /* the oldest packet is sent again, for the last time */
	KARST_WARY_FIRST, /* the oldest packet is sent again, and may be sent once more */
	/* the first repetition was sent; another follows if that brings an acknowledgement */
	KARST_WARY_WAITS,
};

struct karst_probe {
	uint64_t timed_ns; /* when req.timed_psn was sent */
	uint64_t sent_ns;  /* when the newest probe was sent */
	uint32_t end_psn;  /* the first PSN after what the probe has asked for */
	uint32_t rtt_ns;   /* the longest recent round trip; 0: none is known */
	uint32_t steady;   /* from this size on a reduced window grows by one in each round trip */
	uint32_t acked;    /* packets acknowledged since the window grew in that manner */
};

/* --- pacing (pacer.c) --- */

struct karst_pacer {
	int64_t tokens;        /* billionths of a bit; less than 0: in debt */
	uint64_t filled_ns;    /* time up to which tokens have been added */
	uint64_t rate;         /* bit/s; 0: none */
	uint32_t program_kbps; /* kbit/s that the program has set; 0: no limit */
	uint32_t burst : 30;   /* minimum of bytes that an idle queue pair may accumulate */
	uint32_t waits : 1;    /* the queue pair has more to send than it may */
	uint32_t parked : 1;   /* it has waited for its port since: its time limit counts (Q6) */
	struct karst_timer timer;
	struct karst_core_qp *qp; /* owner */
	union {
		struct karst_dcqcn cc;    /* valid if core->rp is not NULL */
		struct karst_swift swift; /* valid if core->swift is not NULL */
	};
};

/* --- the queue pair --- */

enum karst_qp_flags {
	KARST_QPF_ACTIVE = 1u << 0, /* on the core's list */
	KARST_QPF_SIG_ALL = 1u << 1,
	KARST_QPF_CREDITS = 1u << 2,
	KARST_QPF_COMM_EST = 1u << 3, /* the event was raised */
	KARST_QPF_SQD_NOTIFY = 1u << 4,
	KARST_QPF_RQ_BROKEN = 1u << 5,
	KARST_QPF_COPIES = 1u << 6,  /* copy[] is not empty, or repeat is not NULL */
	KARST_QPF_RETIRED = 1u << 7, /* on the core's list: ring heads to publish */
};

/* Bits that are set in ip6 of a QP and never in a packet, so that each packet fails the fast
 * comparison and is checked again */
#define KARST_QP_LATCHES 0x80u /* L5 */
#define KARST_QP_WATCHES 0x40u /* the MigReq bit of each packet matters (G3) */
#define KARST_QP_ODD     (KARST_QP_LATCHES | KARST_QP_WATCHES)
static_assert((KARST_QP_ODD & KARST_PKT_IP6) == 0, "bits of their own");

struct karst_core_qp {
	/* line 0: identity, read for each packet */
	uint32_t qpn;
	uint8_t type;  /* enum karst_qp_type */
	uint8_t state; /* enum karst_qp_state */
	uint8_t mtu_shift : 6;
	uint8_t starved : 1; /* in the list of those of its user that wait for copies */
	uint8_t took : 1;    /* while in core->retired: receives are also given back */
	uint8_t flags;       /* enum karst_qp_flags */
	union {
		/* source and destination address of received packets, as they are in the packet */
		uint64_t rx_ip4;
		uint32_t qkey; /* UD, which accepts packets from any sender */
	};
	uint32_t pd; /* XRC targets: PD, like recv_cq and srq, of the request in progress */
	uint16_t pkey;
	uint8_t ip6; /* KARST_PKT_IP6 of its packets; KARST_QP_ODD, which no packet has */
	/* of its packets: that of the path, or port_num - 1; UD: of the next packet */
	uint8_t port;
	const void *ringer; /* identifies who may ring its doorbell */
	struct karst_core_cq *send_cq;
	struct karst_core_cq *recv_cq;
	struct karst_core_srq *srq;
	int32_t deficit;
	uint16_t sharer; /* user whose turns it takes: number in core->sched.users */
	uint16_t block;  /* while on the list: low bits of the number of its block (sched.c) */

	/* line 1 to 3: requester and its ring; line 2 is needed only if there are requests */
	struct karst_requester req karst_cache_aligned;
	struct karst_core_qp *next_retired;
	struct karst_wqe_ring sq;
	/* these fill the cache line of the ring, which each visit loads */
	uint64_t tx_packets;
	uint64_t tx_bytes;
	uint64_t rx_packets;
	uint64_t rx_bytes;

	/* line 4 to 6: responder and its ring; single-packet WRITEs need only line 4 */
	struct karst_responder rsp karst_cache_aligned;
	void *user;
	struct karst_wqe_ring rq;
	/* these fill the cache line of the ring */
	LIST_ENTRY(karst_core_qp) parked; /* le_prev NULL: not parked */
	uint64_t cnp_next_ns;             /* no CNP is sent to the peer before this time (E4) */
	/* set if there is, or was, an alternate path (G2); else NULL */
	struct karst_alternate *alternate;

	/* headers of all packets except UD's */
	struct karst_tmpl tmpl karst_cache_aligned;

	/* by enum karst_copy_half: copies that are pending or done */
	struct karst_copy *copy[KARST_COPY_HALVES];
	struct karst_repeat *repeat; /* set if selective repeat was agreed to (X1); else NULL */

	/* used only by the control path */
	uint32_t dest_qpn : 24;
	uint32_t gaps : 8; /* gaps in use, of core->gaps (X11) */
	struct karst_path path;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint16_t peer_sport; /* UDP source port of the peer, if it is latched; 0: not known yet */
	uint8_t port_num;    /* as set by the program */
	bool last_wqe : 1;   /* the event was raised */
	bool sq_corrupt : 1; /* the send ring was counted as corrupt */
	uint32_t xrcd;       /* XRC targets */

	/* read by visits if req.paced is set; NULL: there was never a limit */
	struct karst_pacer *pacer;

	/* used once in a round trip */
	struct karst_probe probe;

	/* XRC targets */
	struct karst_core_qp *next_target; /* the next target of the same srq */
	struct karst_core_qp **pprev_target;

	/* counters of errors */
	uint32_t retransmits;
	uint32_t timeouts;
	uint32_t seq_naks;
	uint32_t rnr_naks;
	uint32_t out_of_sequence;
	uint32_t duplicates;

	/* slots of requests; after them saved READs and atomics, SGEs, and the pacer if the QP was
	 * created with one (karst_qp_bytes()) */
	_Alignas(16) struct karst_sq_slot tail[];
} karst_cache_aligned;

static_assert(offsetof(struct karst_core_qp, req) == 64, "identity is one line");
static_assert(
	offsetof(struct karst_core_qp, req.flags) == 96, "hot half of the requester in one line");
static_assert(offsetof(struct karst_core_qp, sq) % 64 == 0 &&
		offsetof(struct karst_core_qp, rx_bytes) / 64 ==
			offsetof(struct karst_core_qp, sq) / 64,
	"the ring and the counters of every packet share a line");
static_assert(offsetof(struct karst_responder, rsps) == 64,
	"WRITEs of one packet, and visits with nothing but an acknowledgement, need what is before it");
static_assert(offsetof(struct karst_core_qp, rq) % 64 + sizeof(struct karst_wqe_ring) <= 64,
	"a line of the ring of receives");
static_assert(offsetof(struct karst_core_qp, tail) % sizeof(struct karst_sq_slot) == 0,
	"four slots a line");
static_assert(offsetof(struct karst_requester, deadline_ns) <= 64, "timer state next to it");

static inline uint32_t
karst_qp_mtu(const struct karst_core_qp *qp)
{
	return 1u << qp->mtu_shift;
}

/**
 * Records that the heads of the rings of @qp have moved.  karst_core_flush() publishes them to the
 * program before it publishes the completions.
 */
static inline void
karst_qp_retire(struct karst_core *core, struct karst_core_qp *qp)
{
	if (qp->flags & KARST_QPF_RETIRED)
		return;
	qp->flags |= KARST_QPF_RETIRED;
	qp->next_retired = core->retired;
	core->retired = qp;
}

static inline void
karst_qp_retire_sends(struct karst_core *core, struct karst_core_qp *qp)
{
	qp->sq.head = qp->req.una_idx;
	karst_qp_retire(core, qp);
}

/** Whether the transport has acknowledgements.  RC is tested first: it is the fast path. */
static inline bool
karst_qp_reliable(const struct karst_core_qp *qp)
{
	return karst_likely(qp->type == KARST_QPT_RC) || qp->type >= KARST_QPT_XRC_SEND;
}

/** Upper bits of the opcodes of each type of QP (W4). */
extern const uint8_t karst_qp_transports[KARST_QPT_XRC_RECV + 1];

static inline uint8_t
karst_qp_transport(const struct karst_core_qp *qp)
{
	return karst_qp_transports[qp->type];
}

/** Whether the QP is in a state in which the requester works and accepts acknowledgements. */
static inline bool
karst_qp_may_send(const struct karst_core_qp *qp)
{
	return qp->state == KARST_QPS_RTS || qp->state == KARST_QPS_SQD;
}

/** Whether the QP is in a state in which the responder works (W9). */
static inline bool
karst_qp_may_receive(const struct karst_core_qp *qp)
{
	return qp->state >= KARST_QPS_RTR && qp->state <= KARST_QPS_SQE;
}

/* --- inside lib/qp --- */

void karst_responder_rx(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);
bool karst_responder_tx(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b,
	uint32_t limit);

/** Schedules a NAK for the expected PSN.  It replaces a scheduled ACK, which it implies. */
void karst_owe_nak(
	struct karst_core *core, struct karst_core_qp *qp, uint8_t syndrome, uint8_t wait);
/** Drops a request with a NAK that ends the connection, and raises the event for it (R13). */
void karst_refuse(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt,
	enum karst_nak nak);
/** The scheduled NAK is not needed: ends the wait, and schedules the ACK that the NAK replaced, if
 * one is needed. */
void karst_unowe_nak(struct karst_core_qp *qp);
/** Requests from PSN @from to @psn were dropped for lack of room when they arrived: the peer has to
 *  send again those that have not come since (R2, X4). */
void karst_responder_missed(
	struct karst_core *core, struct karst_core_qp *qp, uint32_t from, uint32_t psn);
/** The PSN that an ACK carries now (R3). */
uint32_t karst_acked_psn(const struct karst_responder *r);
/** A request message was executed: increments the MSN (R10). */
void karst_message_done(struct karst_core *core, struct karst_core_qp *qp);
void karst_responder_read(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);
void karst_responder_atomic(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf);
void karst_responder_flush(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);
/** Discards saved entries that no peer may request again when @npsn more PSNs have arrived (P2). */
void karst_rsp_age(struct karst_responder *r, uint32_t npsn);
void karst_responder_dup_read(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);
/** Atomics, ATOMIC WRITE, FLUSH: answers the duplicate again without executing it. */
void karst_responder_dup_atomic(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf);

void karst_requester_rx(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);
bool karst_requester_tx(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b,
	uint32_t limit);
void karst_requester_expire(struct karst_core *core, struct karst_core_qp *qp);
/** Request @idx cannot be sent: it fails with @status when those before it are complete. */
void karst_requester_fail_at(struct karst_core *core, struct karst_core_qp *qp, uint32_t idx,
	enum karst_wc_status status);
/** Goes back to the oldest unacknowledged PSN (Q4..Q7). */
void karst_requester_rewind(struct karst_core *core, struct karst_core_qp *qp);
/** Completes the oldest request with @status; RC and unconnected QPs then go to the error state
 *  that their type demands. */
void karst_requester_fail(struct karst_core *core, struct karst_core_qp *qp,
	enum karst_wc_status status, uint8_t syndrome);
/** Completes request una_idx and advances to the next. */
void karst_requester_complete_one(struct karst_core *core, struct karst_core_qp *qp,
	enum karst_wc_status status, uint8_t syndrome);
/** Completes requests that need no acknowledgement any more: local operations, a failed request. */
void karst_requester_settle(struct karst_core *core, struct karst_core_qp *qp);
/** Acknowledges each PSN before @end, which is in (una_psn, nxt_psn] or equal to una_psn.
 *  @return false if an unanswered READ or atomic is before @end: its response was lost. */
bool karst_requester_ack_before(struct karst_core *core, struct karst_core_qp *qp, uint32_t end);
/** @npsn PSNs were acknowledged: restores the retry counts (Q6) and restarts the timer. */
void karst_requester_progress(struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn);
/** After una moved: moves the send cursor if it is behind una, and resumes work that waited for
 *  una. */
void karst_requester_follow_up(struct karst_core *core, struct karst_core_qp *qp);
/** A response before PSN @before is missing; the peer has executed everything up to there, and what
 *  arrived after the gap is discarded.  Requests the response again, once in a round (Q3, Q5). */
void karst_requester_lost_response(
	struct karst_core *core, struct karst_core_qp *qp, uint32_t before);
/** Takes the credits of an AETH (Q9). */
void karst_requester_take_credits(struct karst_requester *r, uint8_t syndrome, uint32_t msn);
/** A READ response, or the answer of an atomic, whose PSN is outstanding. */
void karst_requester_response(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);
/** Arms the timer for @ns; disarms it. */
void karst_requester_timer_add(struct karst_core *core, struct karst_core_qp *qp, uint64_t ns);
void karst_requester_timer_del(struct karst_core *core, struct karst_core_qp *qp);
/** Starts the acknowledgement timer unless it is running. */
void karst_requester_arm(struct karst_core *core, struct karst_core_qp *qp);
/** The first packet to be sent again has been sent: the acknowledgement timer counts from now
 *  on. */
void karst_requester_left(struct karst_core *core, struct karst_core_qp *qp);
/** The QP has waited for a copy or for tokens, or has got no copy now, and may try to send again:
 *  if the peer owes nothing yet, the time limit counts from now on. */
void karst_requester_fed(struct karst_core *core, struct karst_core_qp *qp);
/** The timeout was changed: applies the new value to what is outstanding. */
void karst_requester_retime(struct karst_core *core, struct karst_core_qp *qp);
/** Sets the initial state of a half; empties its ring. */
void karst_requester_reset(struct karst_core *core, struct karst_core_qp *qp);
void karst_responder_reset(struct karst_core *core, struct karst_core_qp *qp);

/* --- XRC (xrc.c) --- */

/** The SRQ that an XRCETH names, for a target; NULL: there is none in the target's domain. */
struct karst_core_srq *karst_xrc_find(
	const struct karst_core *core, const struct karst_core_qp *qp, uint32_t number);
/** Attaches the SRQ of @pkt, an expected request in order, to the target.  @return false:
 *  refused. */
bool karst_xrc_enter(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf);
/** Discards what the target holds of an SRQ that is being withdrawn. */
void karst_xrc_drop(struct karst_core_qp *qp);
/** Gives back what the target holds of an SRQ, and detaches the SRQ. */
void karst_xrc_leave(struct karst_core *core, struct karst_core_qp *qp);
/** Assigns a number to @srq and enters it in the table.  -ENOSPC */
int karst_xrc_number(struct karst_core *core, struct karst_core_srq *srq);

void karst_uc_rx(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);
void karst_ud_rx(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);
bool karst_datagram_tx(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b,
	uint32_t limit);

/** Rebuilds the headers of a connected QP from path, peer, partition and migration state. */
void karst_qp_renew_template(const struct karst_core *core, struct karst_core_qp *qp);
/** Recomputes which packets are checked again. */
void karst_qp_renew_watch(struct karst_core_qp *qp);

/** Counts the send ring, whose contents are not valid: once until the next RESET, because they are
 *  found again in later visits, and by the flush. */
void karst_qp_sq_corrupt(struct karst_core *core, struct karst_core_qp *qp);

/** Puts the QP into Error on an internal error (R13, Q8), with an event unless @event is
 *  negative. */
void karst_qp_error(struct karst_core *core, struct karst_core_qp *qp, int event);
/** Flushes a limited number of work requests of a QP in Error or SQE, and charges them to the
 *  visit.
 *  @return true if more is left. */
bool karst_qp_flush(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b);

/* --- copies (copy.c) --- */

/** A value beside those of enum karst_wc_status: nothing has failed, but the bytes are not
 *  available yet. */
#define KARST_WC_PARKED ((enum karst_wc_status)0xff)

/** The slow path of karst_qp_place(): not all is mapped, or the packet has a copy already. */
bool karst_copy_place(struct karst_core *core, struct karst_core_qp *qp, uint32_t key,
	uint8_t *host, const uint8_t *src, uint32_t n, bool end);

/**
 * Writes received bytes to a program's memory; nothing else does.  Writes @n bytes of @src to
 * @host, which a check of @key has returned, or adds them to the copy of the packet if that memory
 * is unmapped.  @end: they are the last bytes of a message (R14).  karst_copy_settle() follows,
 * once for all bytes of a packet.
 * @return false: they cannot be written; the caller acts as if the check had failed.
 */
static inline bool
karst_qp_place(struct karst_core *core, struct karst_core_qp *qp, uint32_t key, uint8_t *host,
	const uint8_t *src, uint32_t n, bool end)
{
	if (karst_mem_is_unmapped(host) || karst_unlikely(core->copy != NULL))
		return karst_copy_place(core, qp, key, host, src, n, end);
	karst_mem_place(&core->placer, core->mem, key, host, src, n, end);
	return true;
}

struct karst_copy_atomic {
	enum karst_copy_op op;
	uint8_t *host; /* 8-aligned */
	uint64_t compare;
	uint64_t operand;
	uint64_t old; /* out: the value before; not for STORE */
	bool ok;      /* out: it was executed */
};
/** @return false: the packet has to wait; the caller returns. */
bool karst_copy_atomic(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt,
	struct karst_copy_atomic *a);

bool karst_copy_settled(struct karst_core *core, struct karst_pkt *pkt, bool ok);
/**
 * All bytes of @pkt have been placed (@ok), or not.
 * @return false: the packet waits for a copy, or was dropped because there was none.  The caller
 *   returns, with nothing changed.
 */
static inline bool
karst_copy_settle(struct karst_core *core, struct karst_pkt *pkt, bool ok)
{
	return karst_likely(core->copy == NULL) || karst_copy_settled(core, pkt, ok);
}

/** Queues a packet that arrived while another one of its QP is parked.  @return as karst_qp_rx() */
bool karst_copy_queue(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);
/** karst_qp_rx() for a packet that was passed to it before, and was counted then. */
bool karst_qp_rx_again(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);

/** Sets *src to @n unmapped bytes of frame @psn.  SUCCESS; PARKED: the frame has to be fetched;
 *  LOC_PROT_ERR. */
enum karst_wc_status karst_copy_get(struct karst_core *core, const struct karst_core_qp *qp,
	enum karst_copy_half half, uint32_t psn, const uint8_t *host, uint32_t n,
	const uint8_t **src);
struct karst_wqe;
/** Fetches at most @frames frames from snd_psn on, which is at @off of request @idx.
 *  @return false: not possible now; try again. */
bool karst_copy_fetch_requests(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_wqe *w, uint32_t idx, uint32_t off, uint32_t frames);
/** Likewise for responses from @psn to before @end, which belong to @e. */
bool karst_copy_fetch_response(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_rsp *e, uint32_t psn, uint32_t end);

/** Whether this half waits for bytes. */
static inline bool
karst_copy_busy(const struct karst_core_qp *qp, enum karst_copy_half half)
{
	return karst_unlikely(qp->flags & KARST_QPF_COPIES) && qp->copy[half] != NULL &&
		qp->copy[half]->state == KARST_COPY_BUSY;
}

/** Recomputes KARST_QPF_COPIES. */
void karst_copies_set_flag(struct karst_core_qp *qp);

/** Ends all copies of a queue pair that is destroyed or reset. */
void karst_copies_drop(struct karst_core *core, struct karst_core_qp *qp);

/** Looks up an address handle for the data path; NULL if the number or PD does not match. */
const struct karst_tmpl *karst_ah_lookup(const struct karst_ah_table *t, uint32_t ah, uint32_t pd);

static inline void
karst_event(struct karst_core *core, enum karst_async_event_code event, void *object)
{
	core->ops->async_event(core, event, object);
}

/* Update counters of a QP: its lcore is the only writer, and other readers see no torn values. */
static inline void
karst_qp_add(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static inline void
karst_qp_note(uint32_t *counter)
{
	__atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
}

/** Drops @pkt and counts the reason. */
static inline void
karst_drop_pkt(struct karst_core *core, struct karst_pkt *pkt, enum karst_drop reason)
{
	pkt->drop = (uint8_t)reason;
	karst_count_drop(&core->counters, reason);
}

/** RNR timer codes (Q7). */
extern const uint32_t karst_rnr_ns[32];
/** Credit codes (Q9). */
extern const uint16_t karst_credits[31];

/* --- sched.c --- */

/** The user whose turns @qp takes. */
static inline struct karst_sched_user *
karst_sched_user_of(const struct karst_core *core, const struct karst_core_qp *qp)
{
	return &core->sched.users[qp->sharer];
}

/** Bytes of memory for the users, and for their lists. */
size_t karst_sched_users_bytes(uint32_t sharers);
size_t karst_sched_list_bytes(const struct karst_core_config *cfg, uint32_t sharers);
/** @users: zeroed memory; @lists: any contents. */
void karst_sched_init(struct karst_core *core, struct karst_sched_user *users, uint32_t sharers,
	void *lists, uint32_t quantum);
/** Moves @qp to another user, whose turns it takes from now on. */
void karst_sched_share(struct karst_core *core, struct karst_core_qp *qp, uint32_t sharer);
/** Removes a QP from the list of a port, or of those that wait for copies, if it is in one. */
void karst_sched_unpark(struct karst_core *core, struct karst_core_qp *qp);
/** The QP uses another port now: if it is parked, it goes on, or will be parked at the new one. */
void karst_sched_move(struct karst_core *core, struct karst_core_qp *qp);
/** Whether queue pairs of the QP's user wait for copies. */
bool karst_sched_starves(const struct karst_core *core, const struct karst_core_qp *qp);
/** Removes a QP from the list and from ready[], and unparks it. */
void karst_sched_forget(struct karst_core *core, struct karst_core_qp *qp);

/* --- timers.c --- */

/** The number of armed timers of @u. */
static inline uint64_t
karst_timers_of(const struct karst_sched_user *u)
{
	return u->timers != NULL ? u->timers->wheel.count : 0;
}

/** The earliest time at which @t, which is armed, fires. */
static inline uint64_t
karst_timer_ns(const struct karst_core *core, const struct karst_timer *t)
{
	return core->timing.origin_ns + t->tick * KARST_WHEEL_TICK_NS;
}

/** Bytes of memory for the wheels of @sharers users. */
size_t karst_timers_bytes(uint32_t sharers);
/** Time begins at core->now_ns; @buf: any contents. */
void karst_timers_init(struct karst_core *core, void *buf);
/** As karst_wheel_add() and karst_wheel_del(), on the wheel of user @sharer. */
void karst_timer_add(
	struct karst_core *core, uint32_t sharer, struct karst_timer *t, uint64_t deadline_ns);
void karst_timer_del(struct karst_core *core, uint32_t sharer, struct karst_timer *t);
/** Moves @t, which may be armed, to the wheel of another user. */
void karst_timer_share(struct karst_core *core, uint32_t from, uint32_t to, struct karst_timer *t);

/* --- linger.c --- */

/** The send queue is empty: karst_core_linger() polls it, or it is idle, and its program rings. */
void karst_requester_dry(struct karst_core *core, struct karst_core_qp *qp);
/** Before a QP is destroyed or reset. */
void karst_requester_unlinger(struct karst_core *core, struct karst_core_qp *qp);

#endif /* KARST_QP_PRIV_H */
