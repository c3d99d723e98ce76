/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the parts of the analysis share.
 *
 * A flow is what has the same source, destination and destination QP.  It carries the requests of
 * one queue pair, and this one's responses to its peer's requests, which are the flow the other
 * way: the two are paired by the messages of the communication manager (cm.c), or else by the PSNs
 * that responses name (flow.c).  Requests are remembered by PSN in the flow's stream (stream.c):
 * each with its transmissions, and what is known of their fate.
 *
 * A verdict is given where something happens.  What a missing packet could have caused fails only
 * where the capture was taken at a place that sees it (an_sees_sent(), an_sees_received()), and
 * not in a connection of which the capture has lost packets (an_finish()).
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

/* --- what is remembered of a verdict (finding.c) --- */

#define AN_FINDINGS 16 /* kept for each check and verdict */
#define AN_PACKETS  4

struct an_flow;

struct an_finding {
	const struct an_flow *flow; /* NULL: of no flow */
	uint64_t packets[AN_PACKETS];
	unsigned int n;
	char text[168];
};

struct an_findings {
	unsigned int n;
	struct an_finding at[AN_FINDINGS];
};

struct an_result {
	uint64_t count[AN_VERDICTS]; /* of no flow; an_finish() adds those of flows */
	struct an_findings found[AN_VERDICTS];
};

/** A span of time that was measured, in nanoseconds. */
struct an_measure {
	uint64_t n, sum, min, max;
};

enum an_latency {
	AN_LAT_ACK,      /* request to its acknowledgement, first transmissions */
	AN_LAT_NAK,      /* the packet that shows a gap to the NAK */
	AN_LAT_REACTION, /* NAK to the first packet that is sent again */
	AN_LAT_RECOVERY, /* first transmission of what was sent again to its acknowledgement */
	AN_LAT_READ_GAP, /* response behind a gap to the READ that asks again */
	AN_LAT_TIMEOUT,  /* last transmission to retransmission without a reason seen */
	AN_LAT_RNR,      /* RNR NAK to the next transmission */
	AN_LATENCIES
};

extern const char *const an_latency_names[AN_LATENCIES];

/* --- requests by PSN (stream.c) --- */

#define AN_NEVER UINT64_MAX

/** Fate of a transmission, by the injury log. */
#define AN_LOST  0x1 /* surely did not arrive */
#define AN_MAYBE 0x2 /* damaged, late or cut: may not have been taken */
#define AN_DUP   0x4
#define AN_CE    0x8

struct an_rec {
	uint32_t psn;
	uint32_t span;  /* PSNs that it takes: of a READ one for each response (P1) */
	uint32_t cum;   /* messages that end at or before it, since the stream began */
	uint32_t print; /* of payload and extended headers */
	uint64_t first_frame, last_frame;
	uint64_t first_ns, last_ns;
	uint64_t va; /* READ; atomics: the original value that was answered */
	uint32_t len;
	uint32_t rkey;
	uint32_t resp_next;  /* READ: the response that comes next */
	uint64_t resp_frame; /* READ and atomics: the last response */
	uint8_t opcode;
	uint8_t tx;   /* transmissions seen, up to 255 */
	uint8_t lost; /* of them surely lost */
	bool maybe;
	bool damaged; /* its ICRC is wrong: only the PSN is known, until it is acknowledged */
	bool guessed; /* READ: span is not known, as the MTU is not */
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
	unsigned int stride; /* of new packets and ACKs each so many-th is kept */
	unsigned int skipped;
	uint64_t missing; /* marks that had no room */
};

struct an_stream {
	struct an_rec *v;
	uint32_t head, n, cap;
	bool begun;
	uint32_t next;     /* PSN behind the newest request */
	uint32_t una;      /* oldest PSN that is not acknowledged */
	bool una_known;    /* a response has been seen */
	uint32_t front;    /* PSNs before it were all seen */
	uint32_t cum;      /* messages that end before front */
	bool damaged;      /* a request may be */
	uint32_t mtu;      /* 0: not known */
	uint64_t last_ns;  /* last request sent */
	uint64_t event_ns; /* last request or response */
	uint64_t progress_ns;
	uint32_t last_end; /* PSN behind the last request sent, new or not */
	/* message in progress (check MESSAGE) */
	enum { AN_MSG_UNKNOWN, AN_MSG_NONE, AN_MSG_SEND, AN_MSG_WRITE } msg;
	uint64_t msg_len, msg_want;
	uint64_t msg_frame;
	/* last NAK of each kind that waits for a reaction */
	struct an_nak {
		bool valid;
		uint32_t psn;
		uint64_t frame, ns;
		uint8_t tx; /* transmissions of that PSN before it */
		uint32_t wait_ns;
		bool second; /* another one waited for a reaction already */
	} nak, rnr, gap;
	struct an_nak nak_before; /* the last one, reacted to or not */
	uint64_t nak_unsure;      /* a NAK that was perhaps not received, frame */
	bool ack_seen;
	uint32_t ack_max; /* newest PSN acknowledged */
	uint64_t ack_frame;
	uint64_t anew;        /* perhaps a queue pair of the same numbers began here; 0: none */
	bool unseen;          /* something was answered before it was seen */
	uint64_t again_frame; /* last request that was sent again, or doubled by the log */
	bool msn_known;
	uint32_t msn_lo, msn_hi; /* what the MSN was before the stream began */
	/* timeouts */
	uint32_t rto_psn;
	uint64_t rto_ns, rto_min, rto_max, rto_progress, rto_frame;
	/* what went again before the timeout, alone so far */
	struct an_early {
		bool valid;
		uint32_t psn, next;      /* it, and the PSN behind it */
		uint32_t end;            /* PSN behind the request before it */
		uint64_t frame;          /* the newest */
		uint64_t progress;       /* progress_ns at that time */
		uint64_t since, last_ns; /* sent before the first one, and the newest */
		uint64_t from;           /* the frame of since */
	} early;
	uint64_t asked, acks; /* packets that ask, acknowledgements */
	uint64_t sent, again, naks, rnrs, timeouts, reads;
	uint32_t coalesced_max;
	struct an_plot plot;
};

/** The record whose span holds @psn, or NULL. */
struct an_rec *an_stream_find(struct an_stream *s, uint32_t psn);
/** Index of the first record at or behind @psn. */
uint32_t an_stream_lower(const struct an_stream *s, uint32_t psn);
/** Makes room for a record at @psn and sets that; NULL: no memory. */
struct an_rec *an_stream_insert(struct an_stream *s, uint32_t psn, bool paired);
/** Moves front and cum over what has been filled. */
void an_stream_advance(struct an_stream *s);
/** Forgets all requests: the queue pair begins anew. */
void an_stream_restart(struct an_stream *s);

static inline struct an_rec *
an_rec_at(const struct an_stream *s, uint32_t i)
{
	return &s->v[s->head + i];
}

/* --- flows (flow.c) --- */

/** CNPs under one scope: how close they come. */
struct an_cnp_scope {
	uint64_t n, last_ns,
		min_ns; /* the first interval since the clock was set back is not known */
	uint64_t last_frame, min_frame[2];
};

#define AN_ADDRESS_HASH 16384

/** What counters.c compares: what an adapter has sent and received. */
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
	struct an_cnp_scope from, to; /* scopes port and destination */
	struct an_end *next, *hash_next;
	uint64_t seen[AN_SEEN]; /* by enum an_seen */
};

struct an_pair {
	struct an_end *src, *dst;
	struct an_pair *reverse; /* may be NULL */
	struct an_pair *next, *hash_next;
	struct an_flow *flows;
	struct an_flow
		*unpaired; /* with requests and without a counterpart; may hold paired ones */
	struct an_cnp_scope cnp;
	uint64_t ce;
	bool malformed; /* some frames between the two cannot be parsed */
};

/** What came last in a flow (doubled.c). */
struct an_recent {
	uint32_t icrc, psn;
	uint8_t opcode;
	bool lost; /* by the injury log, perhaps */
	uint64_t ns, frame;
};

#define AN_RECENT 16

/* bytes sent lately, in slots of time */
#define AN_RATE_SLOTS 8
#define AN_RATE_NS    50000 /* of a slot */

struct an_flow {
	struct an_pair *pair;
	uint32_t dqpn;
	uint32_t number; /* from 1, in the order of appearance */
	struct an_flow *peer;
	struct an_flow *next;      /* of the hash */
	struct an_flow *pair_next; /* of the address pair */
	struct an_flow *unpaired_next;
	struct an_flow *all_next;
	bool on_unpaired;
	bool tainted;    /* the capture lacks packets of this connection */
	bool misordered; /* it has some in another order than they were taken */
	unsigned int tries;
	uint8_t transport;
	uint64_t packets, bytes, first_frame, last_frame, first_ns, last_ns;
	uint64_t orphans; /* responses without a known counterpart */
	uint64_t doubled;
	struct an_recent recent[AN_RECENT];
	unsigned int recent_at;
	bool migreq[2]; /* seen with 0, with 1 */
	uint64_t ce, ce_frame;
	bool ce_asked; /* a request was marked, first the one of ce_psn */
	uint32_t ce_psn;
	struct an_cnp_scope cnp; /* CNPs that this flow carries */
	uint64_t cnp_same;       /* left out, as the same as the one before them */
	uint64_t cnp_same_frame;
	uint8_t cnp_tclass;
	bool cnp_migreq;
	uint64_t slot[AN_RATE_SLOTS];
	uint64_t slot_ns;
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
	uint64_t ns; /* since the first one; goes on where the capture's clock was set back */
	uint8_t src[16], dst[16];
	uint8_t tclass;
	uint32_t wire_len;
	unsigned int fate; /* AN_LOST ... */
	bool logged;       /* the injury log has it */
	bool cut;          /* the capture holds its beginning only */
	bool late;         /* its time is before that of a frame that the capture has before it */
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
	uint64_t key[2];                   /* of hashes */
	uint64_t looks;                    /* at flows, in search of counterparts */
	uint64_t left_out, left_out_frame; /* packets of flows that had no room, the first one */
	struct an_flow *flows, **flows_tail;
	struct an_flow *last; /* that was looked up */
	struct an_pair *pairs, *pair_hash[AN_ADDRESS_HASH];
	struct an_end *ends, *end_hash[AN_ADDRESS_HASH];
	struct an_cm *cm; /* NULL: no such message was seen */
	uint32_t plots;
	/* the injury log */
	struct an_injury **injury_hash;
	uint32_t injury_mask;
	uint64_t injuries, injuries_used, injuries_lost;
	bool have_log; /* or what the other end's capture says */
	size_t fates_used;
	uint64_t frames, packets, truncated, backwards, doubled;
	uint64_t last_ns;  /* of the newest frame, as of struct an_pkt */
	int64_t stamp_ns;  /* as the capture says */
	int64_t newest_ns; /* the latest of these */
	uint64_t unsteady; /* the newest frame whose time was before that of the one before it */
	bool broken;
	bool malformed; /* frames of unknown ends cannot be parsed */
	uint8_t *whole; /* a frame of which the capture holds the beginning, and zeros */
};

/** Of a packet: IP addresses, GIDs or, in the last bytes, LIDs. */
void an_addresses(const struct judge *j, uint8_t src[16], uint8_t dst[16]);

struct an_flow *an_flow_of(struct an *a, const struct an_pkt *p);
/** NULL: nothing was seen of it yet. */
struct an_flow *an_flow_find(struct an *a, const struct an_pair *pair, uint32_t dqpn);
/** Of what is sent between these two to @dqpn; nobody else can tell it in advance. */
uint32_t an_flow_hash(const struct an *a, const struct an_pair *pair, uint32_t dqpn);
/** NULL: no memory. */
struct an_pair *an_pair_of(struct an *a, const uint8_t src[16], const uint8_t dst[16]);
/** The flow whose requests @p, a response in @f, answers; NULL: not known. */
struct an_flow *an_flow_answered(struct an *a, struct an_flow *f, const struct an_pkt *p);
/** Of a response that the counterpart of @f did not ask for: whether another one did, since a queue
 * pair number was used again.  @return that, which is the counterpart from now on, or NULL. */
struct an_flow *an_flow_repaired(struct an *a, struct an_flow *f, const struct an_pkt *p);
/** Frames of @f are not in the order of their times: what that may look like fails no more. */
void an_flow_misordered(struct an_flow *f);
/** What was not judged, as there was too much of it. */
void an_flows_finish(struct an *a);
/** Whether the capture shows what the source of @f has sent, as it was sent. */
bool an_sees_sent(const struct an *a, const struct an_flow *f);
/** Whether it shows what its destination has received, and nothing else. */
bool an_sees_received(const struct an *a, const struct an_flow *f);
struct an_end *an_end_of(struct an *a, const uint8_t address[16]);
/** Whether some between the ends of @f could not be parsed. */
bool an_flow_malformed(const struct an *a, const struct an_flow *f);
/** A frame between these two cannot be parsed. */
void an_pair_malformed(struct an *a, const uint8_t src[16], const uint8_t dst[16]);
void an_flows_free(struct an *a);
void an_address_text(const uint8_t address[16], char *text, size_t room);
/** "192.0.2.1 > 192.0.2.2 qp 0x11". */
void an_flow_text(const struct an_flow *f, char *text, size_t room);

/* --- connections by the messages that made them (cm.c) --- */

/** What @p, which is for QP 1 perhaps, says of connections. */
void an_cm(struct an *a, const struct an_pkt *p);
/** The counterpart of @f by those messages; NULL: not known, or nothing was seen of it. */
struct an_flow *an_cm_peer(struct an *a, const struct an_flow *f);
/** What was not learned, as there was too much of it. */
void an_cm_finish(struct an *a);
void an_cm_free(struct an *a);

/* --- frames that are there twice (doubled.c) --- */

/** @return the frame of which @p is a copy; 0: none, or there was a reason to send it again. */
uint64_t an_copy_of(const struct an *a, struct an_flow *f, const struct an_pkt *p);

/* --- verdicts (finding.c) --- */

/** @f may be NULL.  Packets of number 0 are left out. */
void an_say(struct an *a, struct an_flow *f, enum an_check check, enum an_verdict verdict,
	uint64_t p0, uint64_t p1, const char *format, ...) __attribute__((format(printf, 7, 8)));
/** As AN_PASS, without words: for what each packet passes. */
void an_pass(struct an *a, struct an_flow *f, enum an_check check, uint64_t packet);
void an_measure(struct an *a, enum an_latency what, uint64_t ns);
/** A failure of time, since packet @from: cannot tell if the clock was set back meanwhile. */
enum an_verdict an_timed(const struct an *a, enum an_verdict verdict, uint64_t from);
/**
 * FAIL if anything fails, PASS if all that was seen passes, else UNKNOWN; AN_VERDICTS: not seen.
 */
enum an_verdict an_overall(const uint64_t count[AN_VERDICTS]);
const char *an_verdict_name(enum an_verdict v);

/* --- checks, in files of their names --- */

void an_integrity(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_request(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_response(struct an *a, struct an_flow *by, struct an_flow *f, const struct an_pkt *p);
void an_message(struct an *a, struct an_flow *f, const struct an_pkt *p, bool follows);
/** Of its payload and extended headers. */
uint32_t an_print(const struct an_pkt *p);
/** A request that was sent before is sent again; @r as it was before, or NULL: a gap is filled. */
void an_again(struct an *a, struct an_flow *f, struct an_rec *r, const struct an_pkt *p);
void an_nak(struct an *a, struct an_flow *f, const struct an_flow *by, const struct an_pkt *p);
void an_rnr(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_read_response(struct an *a, struct an_flow *f, struct an_flow *by, const struct an_pkt *p);
void an_atomic_response(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_msn(struct an *a, struct an_flow *f, const struct an_pkt *p);
/** PSNs before @psn are acknowledged by @p. */
void an_progress(struct an *a, struct an_flow *f, uint32_t psn, const struct an_pkt *p);
void an_cnp(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_rate(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_cnp_finish(struct an *a);
/** What the log says of this packet. */
void an_injury_of(struct an *a, const struct an_flow *f, struct an_pkt *p, uint64_t absolute_ns);
int an_injuries_read(struct an *a, const char *path);
void an_injuries_free(struct an *a);
int an_counters_check(struct an *a, const char *path);
void an_count_seen(struct an *a, struct an_flow *f, const struct an_pkt *p);
void an_plot(struct an *a, struct an_stream *s, enum an_point_kind kind, uint32_t psn, uint64_t ns);

#endif /* KARST_DUMP_AN_PRIV_H */
