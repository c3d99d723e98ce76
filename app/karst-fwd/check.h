/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What was seen of the frames that came in: parsed and verified by karst's own parser and CRC
 * kernels.
 *
 * One for each lcore, which alone writes it; another thread may add all of them up at any time.
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

/** Time stamps in payloads: 16 bytes at its beginning. */
struct fwd_stamp {
	uint32_t magic;
	uint32_t number;
	uint64_t tsc;
};

static_assert(sizeof(struct fwd_stamp) == FWD_STAMP_LEN, "as memo.h has it");

#define FWD_STAMP_MAGIC 0x6477666bu /* "kfwd" */

/** Counters and nothing else. */
struct fwd_seen {
	uint64_t frames, bytes;
	uint64_t roce;      /* parsed, with a right ICRC */
	uint64_t segmented; /* in several buffers, too long to be looked at in one piece */
	uint64_t refused[KARST_DROP_MAX]; /* also a wrong ICRC */
	uint64_t opcode[256];
	uint64_t syndrome[256]; /* of AETHs in acknowledgements */
	uint64_t ecn[4];
	uint64_t fecn, becn;
	uint64_t untracked; /* packets of flows that found no room */
};

/* Frames that are looked at together. */
#define FWD_CHECK_CHUNK KARST_ICRC_KNOWN

struct fwd_check {
	struct fwd_seen seen;
	struct fwd_flows flows;
	struct perf_hist *latency; /* cycles */
	uint8_t *piece;            /* for frames in several buffers */
	uint64_t now;              /* of the burst; 0: not known yet */
	bool stamps;               /* the last burst had time stamps */
	bool alike;                /* most of the last chunk were like earlier packets */
	uint32_t uncounted;        /* bursts since fwd_check_count() */
	struct karst_pkt pkts[FWD_BURST_MAX];
	/* of a chunk, in order: */
	struct fwd_memo_entry *like[FWD_CHECK_CHUNK]; /* NULL: none, or it has to be parsed */
	/* those of them that are like an earlier one, and the others */
	struct karst_icrc_known known;
	struct karst_pkt *rest[FWD_CHECK_CHUNK];
	struct fwd_flow *flow_of_rest[FWD_CHECK_CHUNK]; /* NULL: not known yet */
	struct fwd_memo memo;
};

/** NULL: no memory. */
struct fwd_check *fwd_check_new(uint32_t flows);
void fwd_check_free(struct fwd_check *c);

/**
 * Looks at a burst that @port has received, and leaves it as it is.
 * @packets: each frame's packet is in @c->pkts then, with drop set unless it is a right one, until
 * the next burst.
 */
void fwd_check_burst(
	struct fwd_check *c, struct rte_mbuf *const *m, uint32_t n, uint16_t port, bool packets);

/** Adds to counters what bursts have left to be added to them. */
void fwd_check_count(struct fwd_check *c);

/** Nothing was received: what is left to be counted is. */
static inline void
fwd_check_idle(struct fwd_check *c)
{
	if (c->uncounted != 0)
		fwd_check_count(c);
}

#endif /* FWD_CHECK_H */
