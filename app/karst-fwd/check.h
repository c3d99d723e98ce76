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
#include "karst_pkt.h"
#include "memo.h"

/** Time stamps in payloads: 16 bytes at its beginning. */
struct fwd_stamp {
	uint32_t magic;
	uint32_t number;
	uint64_t tsc;
};

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

struct fwd_check {
	struct fwd_seen seen;
	struct fwd_flows flows;
	struct perf_hist *latency;            /* cycles */
	uint8_t *piece;                       /* for frames in several buffers */
	struct karst_pkt *ptr[FWD_BURST_MAX]; /* to each of those */
	struct karst_pkt pkts[FWD_BURST_MAX];
	struct karst_pkt *rest[FWD_BURST_MAX]; /* those that no memo is like */
	struct fwd_flow *known[FWD_BURST_MAX]; /* NULL: not by a memo */
	struct fwd_memo memo;
};

/** NULL: no memory. */
struct fwd_check *fwd_check_new(uint32_t flows);
void fwd_check_free(struct fwd_check *c);

/**
 * Looks at a burst that @port has received, and leaves it as it is.  Each frame's packet is in
 * @c->pkts then, with drop set unless it is a right one, until the next burst.
 */
void fwd_check_burst(struct fwd_check *c, struct rte_mbuf *const *m, uint32_t n, uint16_t port);

#endif /* FWD_CHECK_H */
