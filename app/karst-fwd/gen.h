/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The generator of one stream: flows of templates in turn, or frames of a capture, at a set rate.
 *
 * What a port does not take is offered to it again, so PSNs stay continuous.  Payloads of 16 bytes
 * and more begin with a time stamp (struct fwd_stamp).
 */
#ifndef FWD_GEN_H
#define FWD_GEN_H

#include "fwd.h"
#include "hist.h"

struct fwd_gen_stats {
	uint64_t packets, bytes;
	uint64_t messages;            /* of templates; loops of a capture */
	uint64_t no_buffer;           /* times that there was none */
	uint64_t first_tsc, last_tsc; /* when the first and the last went; 0: none */
	uint64_t skipped;             /* cycles of the schedule that were given up */
};

/**
 * @endless whatever the templates' count says, and without captures: for --tx-first.
 * @return NULL after a message.
 */
struct fwd_gen *fwd_gen_new(struct fwd *f, struct fwd_stream *s, bool endless);
void fwd_gen_free(struct fwd_gen *g);
/** Sends @bursts bursts; for the main lcore, before others poll. */
void fwd_gen_first(struct fwd *f, struct fwd_stream *s, uint32_t bursts);
/** Whether all is sent.  Any thread. */
bool fwd_gen_done(const struct fwd_gen *g);
void fwd_gen_stats_get(const struct fwd_gen *g, struct fwd_gen_stats *st);
/** Cycles by which packets went later than they were due; read while it is written. */
const struct perf_hist *fwd_gen_jitter(const struct fwd_gen *g);

#endif /* FWD_GEN_H */
