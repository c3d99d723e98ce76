/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Flows, and the continuity of their PSNs (P1).
 *
 * A flow is what one end sends to a queue pair of another, as seen at one port: requests and
 * responses are two, and datagrams of each source queue pair are one.  A table has a fixed size.
 * When it is full, new flows are not followed, and their packets are counted: what is said of the
 * others stays true.
 *
 * Of each of the last FWD_FLOW_PSNS PSNs a bit says whether it was seen, so a packet behind the
 * newest is known to be a repetition, or one that was missing.  A PSN that is farther behind than
 * that, or farther ahead than FWD_FLOW_JUMP, begins the flow anew, as of a queue pair that was
 * connected again.
 *
 * A READ request takes as many PSNs as its response has packets, which only the path MTU tells.
 * The next request may have any PSN up to what the smallest MTU would need: no gap is reported that
 * may be none.  Of responses only those to a READ follow each other; acknowledgements skip PSNs as
 * they like.
 *
 * One writer; another thread may read counters, and flows below fwd_flows_count().
 */
#ifndef FWD_FLOWS_H
#define FWD_FLOWS_H

#include "karst_base.h"
#include "karst_pkt.h"
#include "karst_psn.h"

#define FWD_FLOW_PSNS 2048u
#define FWD_FLOW_JUMP 32768

enum fwd_flow_kind { FWD_FLOW_REQUESTS, FWD_FLOW_RESPONSES, FWD_FLOW_DATAGRAMS };

struct fwd_flow_key {
	uint8_t src[16], dst[16]; /* IPv4 in the first four bytes */
	uint32_t qpn;             /* destination */
	uint32_t src_qpn;         /* datagrams only */
	uint16_t port;
	uint8_t ip6, kind;
	uint32_t zero;
};

static_assert(sizeof(struct fwd_flow_key) == 48, "hashed and compared by words");

/**
 * Where a flow is found: its key in two words and the port.  For IPv4 that is the whole key, so the
 * flow is known without a look at it; the addresses of IPv6 are mixed.
 */
struct fwd_flow_slot {
	uint64_t addresses, ends; /* flows.c has their parts */
	uint32_t port;
	uint32_t flow; /* its number and one; 0: none */
	uint64_t unused;
};

static_assert(sizeof(struct fwd_flow_slot) == 32, "never in two cache lines");

struct fwd_flow {
	struct fwd_flow_key key;
	/* not apart: fwd_flow_expect() */
	uint32_t next_psn; /* UINT32_MAX: not known */
	uint32_t slack;    /* PSNs that may be skipped from there */
	uint8_t opcode;    /* of the last packet */
	bool open;         /* responses: within the response to a READ */
	/* counters */
	uint64_t packets karst_cache_aligned;
	uint64_t bytes; /* of frames */
	uint64_t gaps;  /* times that PSNs were missing */
	uint64_t missing;
	uint64_t late;     /* of the missing, those that came after others */
	uint64_t repeated; /* seen before, or older than the flow */
	/*
	 * So many PSNs before next_psn were seen, and may have no bit in @seen yet: so that a
	 * packet that is the next one, as nearly all are, sets none.
	 */
	uint64_t run;
	uint64_t restarts;
	uint64_t naks; /* without RNR; also those of a PSN sequence */
	uint64_t rnr_naks;
	uint64_t ce;
	uint64_t seen[FWD_FLOW_PSNS / 64]; /* those before the run, by PSN */
} karst_cache_aligned;

static_assert(offsetof(struct fwd_flow, slack) == offsetof(struct fwd_flow, next_psn) + 4,
	"fwd_flow_expect() stores both");

enum fwd_psn { FWD_PSN_NEXT, FWD_PSN_GAP, FWD_PSN_REPEATED, FWD_PSN_LATE, FWD_PSN_RESTART };

struct fwd_flows {
	struct fwd_flow *flows;
	struct fwd_flow_slot *slots;
	uint32_t shift, mask;
	uint32_t count, room;
	uint64_t key[6]; /* of places in slots */
};

/** @room flows, up to 2^20.  @return 0 or a negative errno. */
int fwd_flows_init(struct fwd_flows *fs, uint32_t room);
void fwd_flows_free(struct fwd_flows *fs);
/** Flows up to which they are near, and looking up a burst at a time does not pay. */
#define FWD_FLOWS_FEW 512u
static inline bool
fwd_flows_are_few(const struct fwd_flows *fs)
{
	return fs->count < FWD_FLOWS_FEW;
}

/** Flows that another thread may look at. */
uint32_t fwd_flows_count(const struct fwd_flows *fs);
/** The flow of a parsed packet that came in at @port; NULL: it is new, and the table is full. */
struct fwd_flow *fwd_flow_of(struct fwd_flows *fs, const struct karst_pkt *p, uint16_t port);
/** Counts a packet of the flow, and judges its PSN. */
enum fwd_psn fwd_flow_packet(struct fwd_flow *f, const struct karst_pkt *p);
/** A PSN that is not the next one, of a packet that takes @span. */
enum fwd_psn fwd_flow_elsewhere(struct fwd_flow *f, uint32_t psn, uint32_t span);

/* Both in one store. */
static inline void
fwd_flow_expect(struct fwd_flow *f, uint32_t psn, uint32_t slack)
{
	uint64_t both = psn | (uint64_t)slack << 32;

	memcpy(&f->next_psn, &both, sizeof(both));
}

/** The next one has come, and takes @span. */
static inline void
fwd_flow_next(struct fwd_flow *f, uint32_t psn, uint32_t span)
{
	fwd_flow_expect(f, karst_psn_add(psn, 1), span - 1);
	f->run++;
}

/** Is it of the run before the next one?  Before the first packet there is none. */
static inline bool
fwd_flow_is_in_run(const struct fwd_flow *f, uint32_t psn)
{
	uint32_t older = (f->next_psn - 1 - psn) & 0xffffff; /* than the newest */

	return older < f->run && older < FWD_FLOW_PSNS;
}

/**
 * Judges the PSN of a request that takes one, if it is the next one or of the run before it, and
 * counts nothing else.  @return whether it was that; else nothing has changed.
 */
static inline bool
fwd_flow_follow_usual(struct fwd_flow *f, uint32_t psn)
{
	if (karst_likely(psn == f->next_psn)) {
		fwd_flow_next(f, psn, 1);
		return true;
	}
	if (!fwd_flow_is_in_run(f, psn))
		return false;
	__atomic_store_n(&f->repeated, f->repeated + 1, __ATOMIC_RELAXED);
	return true;
}

/** Judges the PSN of a request that takes @span, and counts nothing else. */
static inline enum fwd_psn
fwd_flow_follow(struct fwd_flow *f, uint32_t psn, uint32_t span)
{
	if (karst_likely(psn == f->next_psn)) {
		fwd_flow_next(f, psn, span);
		return FWD_PSN_NEXT;
	}
	if (!fwd_flow_is_in_run(f, psn))
		return fwd_flow_elsewhere(f, psn, span);
	__atomic_store_n(&f->repeated, f->repeated + 1, __ATOMIC_RELAXED);
	return FWD_PSN_REPEATED;
}

/** Counts the syndrome of an acknowledgement. */
void fwd_flow_acknowledged(struct fwd_flow *f, uint32_t aeth);
/**
 * Both for those of a burst, in order, that have drop == KARST_DROP_NONE.
 * @known: the flow of each if it is known, else NULL; flows that were found may be put there.
 * @return packets of flows that are new, for which there is no room.
 */
uint32_t fwd_flows_see(struct fwd_flows *fs, struct karst_pkt *const *pkts, struct fwd_flow **known,
	uint32_t n, uint16_t port);

#endif /* FWD_FLOWS_H */
