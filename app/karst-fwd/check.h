/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Check received frames with karst's own parser and CRC kernels, and count what was found.
 *
 * There is one struct fwd_check for each lcore, which is its only writer.  Another thread may sum
 * up the counters of all of them at any time.
 */
#ifndef FWD_CHECK_H
#define FWD_CHECK_H

#include "flows.h"
#include "fwd.h"
#include "hist.h"
#include "karst_counters.h"
#include "karst_icrc.h"
#include "karst_pkt.h"
#include "memo.h"

/** Time stamp in the first 16 bytes of a payload. */
struct fwd_stamp {
	uint32_t magic;
	uint32_t number;
	uint64_t tsc;
};

static_assert(sizeof(struct fwd_stamp) == FWD_STAMP_LEN, "as memo.h has it");

#define FWD_STAMP_MAGIC 0x6477666bu /* "kfwd" */

/** Has nothing but counters of 64 bits, which are summed up as an array. */
struct fwd_seen {
	uint64_t frames, bytes;
	uint64_t roce;      /* parsed, with a correct ICRC */
	uint64_t segmented; /* in several buffers, and too long to be copied into one piece */
	uint64_t refused[KARST_DROP_MAX]; /* by reason; includes wrong ICRCs */
	uint64_t opcode[256];
	uint64_t syndrome[256]; /* AETHs of acknowledgements */
	uint64_t ecn[4];
	uint64_t fecn, becn;
	uint64_t untracked; /* packets of flows for which there was no room */
};

/* Maximum number of frames that are checked together. */
#define FWD_CHECK_CHUNK KARST_ICRC_KNOWN

struct fwd_check {
	struct fwd_seen seen;
	struct fwd_flows flows;
	struct perf_hist *latency; /* in TSC cycles */
	uint8_t *piece;            /* copy of a frame that is in several buffers */
	uint64_t now;              /* time of the burst; 0: not read yet */
	bool stamps;               /* the last burst had time stamps */
	bool alike;                /* most frames of the last chunk were like earlier ones */
	uint32_t uncounted;        /* bursts since the last fwd_check_count() */
	struct karst_pkt pkts[FWD_BURST_MAX];
	/* frames of a chunk, in order */
	struct fwd_memo_entry *like[FWD_CHECK_CHUNK]; /* NULL: like no earlier one, or to parse */
	/* of these, the ones that are like an earlier one, and the others */
	struct karst_icrc_known known;
	struct karst_pkt *rest[FWD_CHECK_CHUNK];
	struct fwd_flow *flow_of_rest[FWD_CHECK_CHUNK]; /* NULL: not known yet */
	struct fwd_memo memo;
};

/** @return NULL: no memory. */
struct fwd_check *fwd_check_new(uint32_t flows);
void fwd_check_free(struct fwd_check *c);

/**
 * Checks a burst that @port has received, without changing it.  @packets: leave the parsed packet
 * of each frame in @c->pkts until the next burst, with drop set unless the packet is correct.
 */
void fwd_check_burst(
	struct fwd_check *c, struct rte_mbuf *const *m, uint32_t n, uint16_t port, bool packets);

/** Adds to the counters what previous bursts have deferred. */
void fwd_check_count(struct fwd_check *c);

/** Call when nothing was received: updates counters that are not up to date. */
static inline void
fwd_check_idle(struct fwd_check *c)
{
	if (c->uncounted != 0)
		fwd_check_count(c);
}

#endif /* FWD_CHECK_H */
