/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Counters of what was seen in one file, or in all of them. */
#ifndef KARST_DUMP_STATS_H
#define KARST_DUMP_STATS_H

#include <stdio.h>

#include "judge.h"

struct stats {
	uint64_t frames;
	uint64_t roce; /* RoCEv2 and native InfiniBand packets, without malformed ones */
	uint64_t malformed;
	uint64_t truncated; /* frames of any kind that the capture has only in part */
	uint64_t icrc_ok;
	uint64_t icrc_bad;
	uint64_t icrc_quirk;
	uint64_t vcrc_ok;
	uint64_t vcrc_bad;
	uint64_t rebuilt;
	uint64_t rebuild_mismatch;
	uint64_t errors; /* files that could not be read to their end */
	uint64_t by_opcode[256];
	uint64_t by_syndrome[256]; /* of Acknowledge packets */
	uint64_t by_reason[KARST_DROP_MAX];
};

void stats_count(struct stats *st, const struct capture_frame *f, const struct judge *j);
void stats_add(struct stats *sum, const struct stats *st);
bool stats_bad(const struct stats *st);

/**
 * Print the counters as one JSON object on a line, or as a few lines of text.  @file is NULL for
 * the total of several files.
 */
void stats_print(const struct stats *st, FILE *out, bool json, const char *file, bool rebuild);

#endif /* KARST_DUMP_STATS_H */
