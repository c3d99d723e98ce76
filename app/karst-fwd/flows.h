/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Flows, and the continuity of their PSNs (P1).
 *
 * A flow is what one end sends to a queue pair of another end, as seen at one port.  Requests and
 * responses are two flows.  Datagrams of each source queue pair are one.  A table has a fixed size.
 * When it is full, new flows are not followed and their packets are only counted, so the counters
 * of the other flows remain right.
 *
 * For each of the last FWD_FLOW_PSNS PSNs, a bit tells whether it was seen.  So a packet with an
 * older PSN is known to be either a repetition or one that was missing.  A PSN that is older than
 * that, or more than FWD_FLOW_JUMP ahead, restarts the flow, as if the queue pair had been
 * connected again.  But it may only be a packet that was on its way for long: if the PSN that was
 * expected before comes after up to FWD_FLOW_OLD packets, the flow goes on there.
 *
 * A READ request takes as many PSNs as its response has packets, which depends on the path MTU.
 * The next request may have any PSN up to what the smallest MTU would need, so that no gap is
 * reported where there may be none.  Of responses, only those to a READ have consecutive PSNs;
 * acknowledgements may skip any number.  PSNs of datagrams are not compared: a queue pair has one
 * PSN counter for all its destinations, and not all of them need pass here.
 *
 * A table has one writer.  Another thread may read counters, and flows below fwd_flows_count().
 */
#ifndef FWD_FLOWS_H
#define FWD_FLOWS_H

#include "karst_base.h"
#include "karst_pkt.h"
#include "karst_psn.h"

#define FWD_FLOW_PSNS 2048u
#define FWD_FLOW_JUMP 32768
#define FWD_FLOW_OLD  64u

enum fwd_flow_kind { FWD_FLOW_REQUESTS, FWD_FLOW_RESPONSES, FWD_FLOW_DATAGRAMS };

struct fwd_flow_key {
	uint8_t src[16], dst[16]; /* IPv4: in the first four bytes */
	uint32_t qpn;             /* destination QP */
	uint32_t src_qpn;         /* datagrams only */
	uint16_t port;
	uint8_t ip6, kind;
	uint32_t zero;
};

static_assert(sizeof(struct fwd_flow_key) == 48, "hashed and compared by words");

/**
 * An entry of the hash table: the flow's key in two words, and the port.  For IPv4 this is the
 * whole key, so the flow is found without reading it.  For IPv6 the word has a hash of the
 * addresses.
 */
struct fwd_flow_slot {
	uint64_t addresses, ends; /* flows.c defines their parts */
	uint32_t port;
	uint32_t flow; /* number of the flow plus one; 0: none */
	uint64_t unused;
};

static_assert(sizeof(struct fwd_flow_slot) == 32, "never in two cache lines");

struct fwd_flow {
	struct fwd_flow_key key;
	/* adjacent, because fwd_flow_expect() stores both at once */
	uint32_t next_psn; /* UINT32_MAX: not known */
	uint32_t slack;    /* PSNs from next_psn on that may be skipped */
	uint8_t opcode;    /* of the last packet */
	bool open;         /* of responses: a response to a READ is not complete */
	/* counters */
	uint64_t packets karst_cache_aligned;
	uint64_t bytes; /* of frames */
	uint64_t gaps;  /* number of gaps in the PSNs */
	uint64_t missing;
	uint64_t late;     /* missing ones that came later */
	uint64_t repeated; /* seen before, or older than the flow */
	/*
	 * This many PSNs before next_psn were seen.  Their bits in @seen may not be set yet.  So a
	 * packet with the expected PSN, as nearly all have, sets no bit.
	 */
	uint64_t run;
	uint64_t restarts;
	uint64_t naks; /* without RNR NAKs; includes those for PSN sequence errors */
	uint64_t rnr_naks;
	uint64_t ce;
	/* before the last restart */
	struct {
		uint64_t run;
		uint32_t next_psn; /* UINT32_MAX: not known */
		uint32_t slack;
		uint32_t restart; /* PSN of the packet that caused it */
	} old;
	uint64_t seen[FWD_FLOW_PSNS / 64]; /* PSNs before the run */
} karst_cache_aligned;

static_assert(offsetof(struct fwd_flow, slack) == offsetof(struct fwd_flow, next_psn) + 4,
	"fwd_flow_expect() stores both");

enum fwd_psn { FWD_PSN_NEXT, FWD_PSN_GAP, FWD_PSN_REPEATED, FWD_PSN_LATE, FWD_PSN_RESTART };

struct fwd_flows {
	struct fwd_flow *flows;
	struct fwd_flow_slot *slots;
	uint32_t shift, mask;
	uint32_t count, room;
	uint64_t key[6]; /* key of the hash */
};

/** Allocates a table of @room flows, up to 2^20.  @return 0 or a negative errno. */
int fwd_flows_init(struct fwd_flows *fs, uint32_t room);
void fwd_flows_free(struct fwd_flows *fs);
/**
 * Below this number of flows they stay in the cache, and looking up a burst at a time does not pay
 * off.
 */
#define FWD_FLOWS_FEW 512u
static inline bool
fwd_flows_are_few(const struct fwd_flows *fs)
{
	return fs->count < FWD_FLOWS_FEW;
}

/** @return the number of flows that another thread may read. */
uint32_t fwd_flows_count(const struct fwd_flows *fs);
/**
 * Finds the flow of a parsed packet that came in at @port.  @return NULL: the flow is new, and the
 * table is full.
 */
struct fwd_flow *fwd_flow_of(struct fwd_flows *fs, const struct karst_pkt *p, uint16_t port);
/** Counts a packet of the flow, and judges its PSN. */
enum fwd_psn fwd_flow_packet(struct fwd_flow *f, const struct karst_pkt *p);
/** Judges a PSN that is not the expected one, of a packet that takes @span PSNs. */
enum fwd_psn fwd_flow_elsewhere(struct fwd_flow *f, uint32_t psn, uint32_t span);

/* Sets next_psn and slack in one store. */
static inline void
fwd_flow_expect(struct fwd_flow *f, uint32_t psn, uint32_t slack)
{
	uint64_t both = psn | (uint64_t)slack << 32;

	memcpy(&f->next_psn, &both, sizeof(both));
}

/** Handles a packet with the expected PSN that takes @span PSNs. */
static inline void
fwd_flow_next(struct fwd_flow *f, uint32_t psn, uint32_t span)
{
	fwd_flow_expect(f, karst_psn_add(psn, 1), span - 1);
	f->run++;
}

/**
 * Whether the PSN is in the run before the expected one.  Before the first packet there is no run.
 */
static inline bool
fwd_flow_is_in_run(const struct fwd_flow *f, uint32_t psn)
{
	uint32_t older = (f->next_psn - 1 - psn) & 0xffffff; /* relative to the newest */

	return older < f->run && older < FWD_FLOW_PSNS;
}

/**
 * Judges the PSN of a request that takes one PSN, if it is the expected one or in the run before
 * it.  Counts no packet.  @return whether this was so; if not, nothing has changed.
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

/** Judges the PSN of a request that takes @span PSNs.  Counts no packet. */
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
 * Does fwd_flow_of() and fwd_flow_packet() for the packets of a burst, in order, that have drop ==
 * KARST_DROP_NONE.  @known: the flow of each packet if known, else NULL; the function may store
 * flows that it has found.
 * @return number of packets whose flow is new and has no room in the table.
 */
uint32_t fwd_flows_see(struct fwd_flows *fs, struct karst_pkt *const *pkts, struct fwd_flow **known,
	uint32_t n, uint16_t port);

#endif /* FWD_FLOWS_H */
