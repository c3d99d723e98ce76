/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * One end of a measurement as an attached program: libkarst's objects over a karstd, and the bed
 * (bed.h) that consists of them.  The other end is in another process; its numbers arrive over a
 * link (link.h).
 *
 * Order of calls: perf_attach_open(); for each measurement perf_attach_bed_create() (queue pairs in
 * Init), then the result of perf_attach_describe() is sent to the peer and the peer's description
 * is passed to perf_attach_learn(), then perf_attach_bed_connect().
 */
#ifndef PERF_ATTACH_H
#define PERF_ATTACH_H

#include <jansson.h>

#include "bed.h"
#include "karst.h"

/** Bytes of the regions of a measurement, by the access method of the engine. */
struct perf_paths {
	uint64_t shared;
	uint64_t migrated;
	uint64_t copied;
};

struct perf_attach {
	struct karst_context *ctx;
	enum perf_end end; /* ours */
	uint32_t port;     /* from 1 */
	uint32_t gid_index;
	bool odp;        /* regions are on demand */
	bool waits;      /* sleeps until completion events; a server gets this from its client */
	uint64_t events; /* completion events that it has taken for the current bed */
	union karst_gid gid;
	union karst_gid peer_gid;
	struct perf_paths paths;
	struct perf_attach_objects *objects; /* of the current bed */
};

/** Attaches to opts->connect.  Prints errors on stderr.
 *  @return 0, 1 (failure) or 2 (the requested port or GID does not exist). */
int perf_attach_open(const struct perf_opts *opts, enum perf_end end, struct perf_attach *a);
void perf_attach_close(struct perf_attach *a);

/** For a thread with nothing to do: yields the CPU; if others use it, moves the thread to the CPU
 *  of the lcore (karst_near_lcore()). */
void perf_attach_rest(struct perf_attach *a);

/**
 * For a thread with nothing to do that expects completions.  The first call arms the completion
 * queue.  The next call, if no completion was found in between, sleeps until the event comes, the
 * descriptor @also is readable (-1: none), or a short time has passed.  Only if a->waits.
 * @return @also was readable.
 */
bool perf_attach_wait(struct perf_attach *a, int also);

/** @return 0, or 1: refused, after a message on stderr; everything is destroyed again then. */
int perf_attach_bed_create(struct perf_attach *a, const struct perf_job *job,
	const struct perf_memory *mem, bool latency, struct perf_bed *bed);
/** After perf_attach_learn(). */
int perf_attach_bed_connect(struct perf_bed *bed);
void perf_attach_bed_destroy(struct perf_bed *bed);

/** What the peer must know about this end; NULL: no memory. */
json_t *perf_attach_describe(const struct perf_bed *bed);
/** The other end's description.  -EPROTO: it does not fit the job. */
int perf_attach_learn(struct perf_bed *bed, const json_t *o);

#endif /* PERF_ATTACH_H */
