/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Declarations that the files of the analysis share.
 *
 * A flow is all packets with the same source, destination and destination QP.  It carries the
 * requests of one queue pair, and the responses of this queue pair to the requests of its peer.
 * The peer's requests are in the flow of the other direction.  The messages of the communication
 * manager tell which two flows belong together (cm.c); without them, the PSNs in responses do
 * (flow.c).  The flow's stream (stream.c) records requests by PSN, each with its transmissions and
 * what is known of their fate.
 *
 * A check gives its verdict at the packet that shows the behaviour.  If a missing packet could
 * explain what was seen, the verdict is a failure only if the capture was taken at a place where
 * that packet would show (an_sees_sent(), an_sees_received()), and if the capture has lost no
 * packets of the connection (an_finish()).
 */
#ifndef KARST_DUMP_AN_PRIV_H
#define KARST_DUMP_AN_PRIV_H

#include "analyse.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_psn.h"

enum an_check {
#define CHECK(sym, name, spoilt, meaning, rule) AN_##sym,
#include "checks.def"
#undef CHECK
	AN_CHECKS
};

struct an_check_info {
	const char *name;
	bool spoilt;
	const char *meaning;
	const char *rule;
};

extern const struct an_check_info an_checks[AN_CHECKS];

enum an_verdict { AN_PASS, AN_FAIL, AN_UNKNOWN, AN_VERDICTS };

/* --- records of verdicts (finding.c) --- */

#define AN_FINDINGS 16 /* kept for each check and verdict */
#define AN_PACKETS  4

struct an_flow;

struct an_finding {
	const struct an_flow *flow; /* NULL: not about one flow */
	uint64_t packets[AN_PACKETS];
	unsigned int n;
	char text[168];
};

struct an_findings {
	unsigned int n;
	struct an_finding at[AN_FINDINGS];
};

struct an_result {
	uint64_t count[AN_VERDICTS]; /* verdicts about no flow; an_finish() adds those of flows */
	struct an_findings found[AN_VERDICTS];
};

/** A span of time that was measured, in nanoseconds. */
struct an_measure {
	uint64_t n, sum, min, max;
};

enum an_latency {
	AN_LAT_ACK,      /* request to its acknowledgement; requests sent once only */
	AN_LAT_NAK,      /* packet that opens a gap, as the first to arrive after it, to the NAK */
	AN_LAT_REACTION, /* NAK to the first packet that is sent again */
	AN_LAT_RECOVERY, /* first transmission of what was sent again to its acknowledgement */
	AN_LAT_READ_GAP, /* response after a gap, to the READ that asks again */
	AN_LAT_TIMEOUT,  /* last transmission to a retransmission for which no reason was seen */
	AN_LAT_RNR,      /* RNR NAK to the next transmission */
	AN_LATENCIES
};

extern const char *const an_latency_names[AN_LATENCIES];

/* --- requests by PSN (stream.c) --- */

#define AN_NEVER UINT64_MAX

/** Fate of a transmission, according to the injury log. */
#define AN_LOST  0x1 /* certainly did not arrive */
#define AN_MAYBE 0x2 /* damaged, delayed or truncated: the receiver may not have accepted it */
#define AN_DUP   0x4
#define AN_CE    0x8

struct an_rec {
	uint32_t psn;
	uint32_t span;  /* number of PSNs of the request: a READ has one for each response (P1) */
	uint32_t cum;   /* messages that end at or before this request, since the stream began */
	uint32_t print; /* CRC of payload and extended headers */
	uint64_t first_frame, last_frame;
	uint64_t before_frame; /* of the transmission before the last one; 0: there is one only */
	uint64_t first_ns, last_ns;
	uint64_t va; /* READ: its address; atomic: the original value in its response */
	uint32_t len;
	uint32_t rkey;
	uint32_t resp_next;  /* READ: PSN of the next response */
	uint64_t resp_frame; /* READ and atomics: frame of the last response */
	uint8_t opcode;
	uint8_t tx;                 /* transmissions seen, up to 255 */
	uint8_t lost;               /* how many of these were certainly lost */
	bool first_lost, last_lost; /* the first and the last transmission */
	bool maybe;
	bool damaged; /* its ICRC is wrong: only the PSN is known, until it is acknowledged */
	bool guessed; /* READ: span is not known, because the MTU is not known */
	bool answered;
};

struct an_point {
	uint64_t ns;
	uint32_t psn;
	uint8_t kind;
};

enum an_point_kind { AN_PT_NEW, AN_PT_AGAIN, AN_PT_ACK, AN_PT_NAK, AN_PT_RNR, AN_PT_CNP };

struct an_plot {
	struct an_point *at;
	unsigned int n;
	unsigned int stride; /* of new packets and ACKs, one in so many is kept */
	unsigned int skipped;
	uint64_t missing; /* marks for which there was no room */
};

struct an_stream {
	struct an_rec *v;
	uint32_t head, n, cap;
	bool begun;
	uint32_t next;     /* PSN after the newest request */
	uint32_t una;      /* oldest PSN that is not acknowledged */
	bool una_known;    /* a response has been seen */
	uint32_t front;    /* all PSNs before it were seen */
	uint32_t cum;      /* messages that end before front */
	bool damaged;      /* a record may be marked damaged */
	uint32_t mtu;      /* 0: not known */
	uint64_t last_ns;  /* last request sent */
	uint64_t event_ns; /* last request or response */
	uint64_t progress_ns;
	uint32_t last_end; /* PSN after the last request sent, new or not */
	/* message in progress (check MESSAGE) */
	enum { AN_MSG_UNKNOWN, AN_MSG_NONE, AN_MSG_SEND, AN_MSG_WRITE } msg;
	uint64_t msg_len, msg_want;
	uint64_t msg_frame;
	/* last NAK of each kind to which the requester has not reacted */
	struct an_nak {
		bool valid;
		uint32_t psn;
		uint64_t frame, ns;
		uint8_t tx; /* transmissions of that PSN before the NAK */
		uint32_t wait_ns;
		bool second; /* another NAK was already waiting for a reaction */
	} nak, rnr, gap;
	struct an_nak nak_before; /* the last NAK, whether the requester has reacted or not */
	uint64_t nak_unsure;      /* frame of a NAK that the requester may not have received */
	bool ack_seen;
	uint32_t ack_max; /* newest PSN acknowledged */
	uint64_t ack_frame;
	uint64_t anew; /* frame where a new queue pair of that number may begin; or 0 */
	/* a jump to a later PSN, where a new queue pair of that number may begin (jump.c); until an
	 * answer decides about it */
	struct an_jump {
		bool valid;
		bool sees;         /* the capture shows that PSNs were left out, if it is none */
		uint32_t psn;      /* of the first request after it */
		uint32_t expected; /* the PSN in whose place it came */
		uint32_t cum;      /* messages before it */
		uint32_t mtu;      /* path MTU before it; 0: not known */
		uint64_t frame;
	} jump;
	bool unseen;          /* a response has shown a request that the capture does not have */
	uint64_t again_frame; /* last request that was sent again or duplicated (log) */
	bool msn_known;
	uint32_t msn_lo, msn_hi; /* bounds of the MSN before the stream began */
	/* timeouts */
	uint32_t rto_psn;
	uint64_t rto_ns, rto_min, rto_max, rto_progress, rto_frame;
	/* a packet that was sent again before the timeout, with no other packet after it yet */
	struct an_early {
		bool valid;
		uint32_t psn, next;      /* its PSN, and the PSN after it */
		uint32_t end;            /* PSN after the request that was sent before it */
		uint64_t frame;          /* of the newest such packet */
		uint64_t progress;       /* progress_ns at that time */
		uint64_t since, last_ns; /* when sent before the first early one; newest */
		uint64_t from;           /* the frame that was sent at since */
	} early;
	uint64_t asked, acks; /* packets with the AckReq bit, acknowledgements */
	uint64_t sent, again, naks, rnrs, timeouts, reads;
	uint32_t coalesced_max;
	struct an_plot plot;
};

/** Finds the record whose span includes @psn; NULL: none. */
struct an_rec *an_stream_find(struct an_stream *s, uint32_t psn);
/** Finds the index of the first record at or after @psn. */
uint32_t an_stream_lower(const struct an_stream *s, uint32_t psn);
/** Inserts a record at @psn; NULL: no memory. */
struct an_rec *an_stream_insert(struct an_stream *s, uint32_t psn, bool paired);
/** Advances front and cum over the records that are there without a gap. */
void an_stream_advance(struct an_stream *s);
/** Finds the index of the last record at or before @psn, whatever its span; s->n: none. */
uint32_t an_stream_upto(const struct an_stream *s, uint32_t psn);
/**
 * Sets the span of record @i, a READ of which it was a guess.  Gives a verdict on PSNs that the
 * guess had taken for those of the READ, and that were left out.
 */
void an_set_span(struct an *a, struct an_flow *f, uint32_t i, uint32_t span);
/** Sets the path MTU, and so the span of all READs of which it was a guess. */
void an_set_mtu(struct an *a, struct an_flow *f, uint32_t mtu);
/** Whether First and Middle packets may have @len bytes of payload. */
bool an_is_mtu(uint32_t len);
/** Whether a READ of @len bytes takes @span PSNs with any path MTU. */
bool an_read_may_take(uint32_t len, uint32_t span);
/** Forgets all requests, because a new queue pair begins. */
void an_stream_restart(struct an_stream *s);
/** Forgets the requests before @psn, with which a new queue pair has begun. */
void an_stream_restart_at(struct an_stream *s, uint32_t psn);

static inline struct an_rec *
an_rec_at(const struct an_stream *s, uint32_t i)
{
	return &s->v[s->head + i];
}

/* --- flows (flow.c) --- */

/** CNPs under one scope, and the shortest interval between them. */
struct an_cnp_scope {
	uint64_t n, last_ns, min_ns; /* intervals across a step back of the clock are left out */
	uint64_t last_frame, min_frame[2];
};

#define AN_ADDRESS_HASH 16384

/** What an adapter has sent and received; counters.c compares these with its counters. */
enum an_seen {
	AN_SEEN_NAK_RECEIVED,
	AN_SEEN_RNR_RECEIVED,
	AN_SEEN_CNP_SENT,
	AN_SEEN_CNP_RECEIVED,
	AN_SEEN_CE,
	AN_SEEN_ICRC,
	AN_SEEN_READS,
	AN_SEEN_ATOMICS,
	AN_SEEN_TIMEOUTS,
	AN_SEEN
};

struct an_end {
	uint8_t address[16];
	struct an_cnp_scope from, to; /* CNPs for the scopes port and destination */
	struct an_end *next, *hash_next;
	uint64_t seen[AN_SEEN]; /* by enum an_seen */
};

struct an_pair {
	struct an_end *src, *dst;
	struct an_pair *reverse; /* may be NULL */
	struct an_pair *next, *hash_next;
	struct an_flow *flows;
	struct an_flow
		*unpaired; /* flows with requests and no counterpart; some may have one by now */
	struct an_cnp_scope cnp;
	uint64_t ce;
	bool malformed; /* some frames between the two addresses could not be parsed */
};

/** One of the latest frames of a flow (doubled.c); its ICRC is in recent_icrc of the flow. */
struct an_recent {
	uint32_t psn;
	uint8_t opcode;
	bool lost; /* perhaps lost, according to the injury log */
	uint64_t ns, frame;
};

#define AN_RECENT 16

/* bytes that a flow has sent recently, by time slots */
#define AN_RATE_SLOTS 8
#define AN_RATE_NS    50000 /* length of a slot */

struct an_flow {
	struct an_pair *pair;
	uint32_t dqpn;
	uint32_t number; /* from 1, in the order of appearance */
	struct an_flow *peer;
	struct an_flow *next;      /* in the hash */
	struct an_flow *pair_next; /* in the address pair */
	struct an_flow *unpaired_next;
	struct an_flow *all_next;
	bool on_unpaired;
	bool tainted;    /* the capture lacks packets of this connection */
	bool misordered; /* its packets are not in the order in which they were captured */
	unsigned int tries;
	uint8_t transport;
	uint64_t packets, bytes, first_frame, last_frame, first_ns, last_ns;
	uint64_t orphans; /* responses whose requests are not known */
	uint64_t doubled;
	uint32_t recent_icrc[AN_RECENT]; /* apart from recent, in one or two lines of cache */
	struct an_recent recent[AN_RECENT];
	unsigned int recent_at;
	bool migreq[2]; /* seen with MigReq 0, with MigReq 1 */
	uint64_t ce, ce_frame;
	bool ce_asked; /* a request was marked; ce_psn is the first one */
	uint32_t ce_psn;
	struct an_cnp_scope cnp; /* CNPs that this flow carries */
	uint64_t cnp_same;       /* CNPs that were left out as copies of the one before */
	uint64_t cnp_same_frame;
	uint8_t cnp_tclass;
	bool cnp_migreq;
	uint64_t slot[AN_RATE_SLOTS];
	uint64_t slot_ns;
	uint32_t longest; /* payload of a packet, in bytes */
	struct {
		bool on;
		uint64_t before, after, frame, from_ns, until_ns;
		uint32_t packets;
	} rate;
	uint64_t rate_n, rate_less;
	struct an_stream req;
	uint32_t count[AN_CHECKS][AN_VERDICTS];
};

/** Requests that are answered by more than an ACK. */
#define AN_ANSWERED (KARST_OPF_READ | KARST_OPF_ATOMIC | KARST_OPF_ATOMICWRITE | KARST_OPF_FLUSH)

struct an_pkt {
	const struct judge *j;
	const struct karst_ib_hdrs *ib;
	uint32_t flags; /* of the opcode */
	uint64_t frame;
	uint64_t ns; /* since the first frame; not set back when the capture's clock is */
	uint8_t src[16], dst[16];
	uint8_t tclass;
	uint32_t wire_len;
	unsigned int fate; /* AN_LOST ... */
	bool logged;       /* the injury log has a record of it */
	bool cut;          /* the capture has only its beginning */
	bool late;         /* its time is before that of an earlier frame of the capture */
};

struct an_injury {
	struct an_injury *next;
	uint64_t ns;
	uint32_t qpn, psn;
	uint8_t opcode, fate;
	bool used;
};

struct an {
	const struct an_options *o;
	struct an_result result[AN_CHECKS];
	struct an_measure latency[AN_LATENCIES];
	struct an_flow **hash;
	uint32_t hash_mask, nflows, npairs;
	uint64_t key[2];                   /* key of the hashes */
	uint64_t looks;                    /* flows examined in the search for counterparts */
	uint64_t left_out, left_out_frame; /* packets that had no room, the first of them */
	struct an_flow *flows, **flows_tail;
	struct an_flow *last; /* result of the last lookup */
	struct an_pair *pairs, *pair_hash[AN_ADDRESS_HASH];
	struct an_end *ends, *end_hash[AN_ADDRESS_HASH];
	struct an_cm *cm; /* NULL: no CM message was seen */
	uint32_t plots;
	/* the injury log */
	struct an_injury **injury_hash;
	uint32_t injury_mask;
	uint64_t injuries, injuries_used, injuries_lost;
	bool have_log; /* or the capture of the other end */
	size_t fates_used;
	uint64_t frames, packets, truncated, backwards, doubled;
	uint64_t last_ns;  /* of the newest frame, as in struct an_pkt */
	int64_t stamp_ns;  /* time of the newest frame, as in the capture */
	int64_t newest_ns; /* the maximum of stamp_ns so far */
	uint64_t unsteady; /* the newest frame whose time is before that of the frame before it */
	bool broken;
	bool malformed; /* frames between unknown addresses could not be parsed */
	uint8_t *whole; /* buffer for a frame of which the capture has only the beginning */
};

/** Gets the addresses of a packet: IP addresses, GIDs or, in the last bytes, LIDs. */
void an_addresses(const struct judge *j, uint8_t src[16], uint8_t dst[16]);

struct an_flow *an_flow_of(struct an *a, const struct an_pkt *p);
/** @return NULL: no packet of this flow was seen yet. */
struct an_flow *an_flow_find(struct an *a, const struct an_pair *pair, uint32_t dqpn);
/**
 * Hashes the flow between these addresses to @dqpn.  The hash has a random key, so that the author
 * of a file cannot predict it.
 */
uint32_t an_flow_hash(const struct an *a, const struct an_pair *pair, uint32_t dqpn);
/** @return NULL: no memory. */
struct an_pair *an_pair_of(struct an *a, const uint8_t src[16], const uint8_t dst[16]);
/** Finds the flow whose requests @p, a response in @f, answers; NULL: not known. */
struct an_flow *an_flow_answered(struct an *a, struct an_flow *f, const struct an_pkt *p);
/**
 * For a response that the counterpart of @f did not ask for: finds another flow that did, because a
 * queue pair number was used again.
 * @return that flow, which is now the counterpart of @f, or NULL.
 */
struct an_flow *an_flow_repaired(struct an *a, struct an_flow *f, const struct an_pkt *p);
/**
 * Records that the frames of @f are not in the order of their times.  Checks that this can affect
 * no longer fail.
 */
void an_flow_misordered(struct an_flow *f);
/** Reports what was not judged because it exceeds the limits. */
void an_flows_finish(struct an *a);
/** Whether the capture shows all packets that the source of @f has sent, as they were sent. */
bool an_sees_sent(const struct an *a, const struct an_flow *f);
/** Whether the capture shows exactly the packets that the destination of @f has received. */
bool an_sees_received(const struct an *a, const struct an_flow *f);
struct an_end *an_end_of(struct an *a, const uint8_t address[16]);
/** Whether some frames between the ends of @f could not be parsed. */
bool an_flow_malformed(const struct an *a, const struct an_flow *f);
/** Records that a frame between these two addresses could not be parsed. */
void an_pair_malformed(struct an *a, const uint8_t src[16], const uint8_t dst[16]);
void an_flows_free(struct an *a);
void an_address_text(const uint8_t address[16], char *text, size_t room);
/** Formats a flow as "192.0.2.1 > 192.0.2.2 qp 0x11". */
void an_flow_text(const struct an_flow *f, char *text, size_t room);

/* --- connections according to CM messages (cm.c) --- */

/** Takes from @p, if it is a CM message to QP 1, what it tells about connections. */
void an_cm(struct an *a, const struct an_pkt *p);
/**
 * Finds the counterpart of @f according to CM messages; NULL: not known, or none of its packets was
 * seen.
 */
struct an_flow *an_cm_peer(struct an *a, const struct an_flow *f);
/** Reports what was not recorded because it exceeds the limits. */
void an_cm_finish(struct an *a);
void an_cm_free(struct an *a);

/* --- duplicate frames (doubled.c) --- */

/**
 * @return the frame of which @p is a copy; 0: it is none, or there was a reason to send it again.
 */
uint64_t an_copy_of(const struct an *a, struct an_flow *f, const struct an_pkt *p);

/* --- verdicts (finding.c) --- */

/** Records a verdict.  @f may be NULL.  Packet numbers that are 0 are left out. */
void an_say(struct an *a, struct an_flow *f, enum an_check check, enum an_verdict verdict,
	uint64_t p0, uint64_t p1, const char *format, ...) __attribute__((format(printf, 7, 8)));
/** Records AN_PASS without a text, for checks that every packet passes. */
void an_pass(struct an *a, struct an_flow *f, enum an_check check, uint64_t packet);
void an_measure(struct an *a, enum an_latency what, uint64_t ns);
/**
 * Adjusts the verdict of a check that depends on the time since packet @from: a failure becomes
 * AN_UNKNOWN if the clock was set back since then.
 */
enum an_verdict an_timed(const struct an *a, enum an_verdict verdict, uint64_t from);
/**
 * @return AN_FAIL if any verdict is a failure, AN_PASS if all are passes, else AN_UNKNOWN;
 *   AN_VERDICTS: there is no verdict.
 */
enum an_verdict an_overall(const uint64_t count[AN_VERDICTS]);
const char *an_verdict_name(enum an_verdict v);

/* --- checks, in the files of the same name --- */

void an_integrity(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_request(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_response(struct an *a, struct an_flow *by, struct an_flow *f, const struct an_pkt *p);
void an_message(struct an *a, struct an_flow *f, const struct an_pkt *p, bool follows);
/** Records that @p has a PSN later than the expected one; @sees: no request can be missing. */
void an_jump(struct an *a, struct an_flow *f, const struct an_pkt *p, bool sees);
/** Decides, if possible, by a response to what was sent after a jump. */
void an_jump_answered(struct an *a, struct an_flow *f, const struct an_pkt *p);
/** Decides that no new queue pair began at a jump if @p, an older request, is one that was left out
 *  there. */
void an_jump_older(struct an *a, struct an_flow *f, const struct an_pkt *p);
/** Gives the verdict on a jump about which nothing has decided.  To be called before the stream
 *  restarts. */
void an_jump_finish(struct an *a, struct an_flow *f);
/** Computes a CRC over payload and extended headers. */
uint32_t an_print(const struct an_pkt *p);
/**
 * Checks a request that is sent again.  @r: the record of the request as it was before; NULL: the
 * request fills a gap.
 */
void an_again(struct an *a, struct an_flow *f, struct an_rec *r, const struct an_pkt *p);
void an_nak(struct an *a, struct an_flow *f, const struct an_flow *by, const struct an_pkt *p);
void an_rnr(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_read_response(struct an *a, struct an_flow *f, struct an_flow *by, const struct an_pkt *p);
void an_atomic_response(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_msn(struct an *a, struct an_flow *f, const struct an_pkt *p);
/** Records that @p acknowledges the PSNs before @psn. */
void an_progress(struct an *a, struct an_flow *f, uint32_t psn, const struct an_pkt *p);
void an_cnp(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_rate(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_cnp_finish(struct an *a);
/** Takes from the injury log what it says about this packet. */
void an_injury_of(struct an *a, const struct an_flow *f, struct an_pkt *p, uint64_t absolute_ns);
int an_injuries_read(struct an *a, const char *path);
void an_injuries_free(struct an *a);
int an_counters_check(struct an *a, const char *path);
void an_count_seen(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_plot(struct an *a, struct an_stream *s, enum an_point_kind kind, uint32_t psn, uint64_t ns);

#endif /* KARST_DUMP_AN_PRIV_H */
