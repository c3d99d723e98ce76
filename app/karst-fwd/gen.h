/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The generator of one stream.  It sends packets of its templates' flows in turn, or the frames of
 * a capture, at a set rate.
 *
 * Packets that a port does not accept are offered again, so PSNs stay continuous.  Payloads of 16
 * bytes and more begin with a time stamp (struct fwd_stamp).
 */
#ifndef FWD_GEN_H
#define FWD_GEN_H

#include "fwd.h"
#include "hist.h"

struct fwd_gen_stats {
	uint64_t packets, bytes;           /* that the port has taken */
	uint64_t last_packets, last_bytes; /* of these, those of the last burst */
	uint64_t messages;                 /* made, for templates; for a capture: completed loops */
	uint64_t no_buffer;                /* number of failed buffer allocations */
	uint64_t first_tsc, last_tsc; /* when the first and the last packet were sent; 0: none */
	uint64_t skipped;             /* cycles of the schedule that were abandoned */
};

/**
 * @endless: ignore the count of templates, and captures; for --tx-first.
 * @return NULL after a message.
 */
struct fwd_gen *fwd_gen_new(struct fwd *f, struct fwd_stream *s, bool endless);
void fwd_gen_free(struct fwd_gen *g);
/** Sends @bursts bursts.  For the main lcore, before worker lcores poll. */
void fwd_gen_first(struct fwd *f, struct fwd_stream *s, uint32_t bursts);
/** Whether everything is sent.  Any thread may call this. */
bool fwd_gen_done(const struct fwd_gen *g);
void fwd_gen_stats_get(const struct fwd_gen *g, struct fwd_gen_stats *st);
/** Delay of packets after their due time, in cycles.  May be read while it is written. */
const struct perf_hist *fwd_gen_jitter(const struct fwd_gen *g);

#endif /* FWD_GEN_H */
