/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Headers that have come before.  Packets of a flow mostly differ in identification, checksum and
 * PSN alone: such a packet is parsed, and its flow is found, by a comparison with an earlier one.
 *
 * Only packets without a tag over IPv4 and without a UDP checksum are kept, and none whose extended
 * headers say which flow they are of (DETH) or are rare: then what the parser tells depends on what
 * is compared, but for the PSN, the acknowledge request and the fields of extended headers, which
 * are loaded.  The ICRC depends on all of it, and is not looked at here.
 *
 * One thread.
 */
#ifndef FWD_MEMO_H
#define FWD_MEMO_H

#include "flows.h"

#define FWD_MEMOS 256u /* by QP number and opcode; a newer one takes the place of an older one */

typedef uint64_t fwd_memo_bytes __attribute__((vector_size(16)));

struct fwd_memo_entry {
	fwd_memo_bytes bytes[3]; /* from EtherType to PSN, under masks; all ones: unused */
	struct karst_pkt pkt;
	struct fwd_flow *flow;
	uint16_t sum; /* of the 16-bit words of the IP header that are compared */
	uint16_t port;
	/* where fields of extended headers are, from the frame's beginning; of those that are not
	 * there, the BTH, as in the parser */
	uint8_t reth, aeth, imm;
	bool extended; /* there are some */
} karst_cache_aligned;

static_assert(sizeof(struct fwd_memo_entry) == 2 * KARST_CACHE_LINE, "no third line");

struct fwd_memo {
	struct fwd_memo_entry entry[FWD_MEMOS];
};

void fwd_memo_init(struct fwd_memo *m);
/**
 * Parses @p, as karst_parse() would, if it is like one that was kept and came in at @port; its ICRC
 * is not looked at.
 * @return its flow; NULL: there is none like it, and @p is as it was.
 */
struct fwd_flow *fwd_memo_parse(const struct fwd_memo *m, struct karst_pkt *p, uint16_t port);
/** Keeps a packet that was parsed and found right, if it is of the kind that is kept. */
void fwd_memo_keep(
	struct fwd_memo *m, const struct karst_pkt *p, uint16_t port, struct fwd_flow *flow);

#endif /* FWD_MEMO_H */
