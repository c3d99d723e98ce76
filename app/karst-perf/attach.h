/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * One end of a measurement as an attached program: libkarst's objects over a karstd, and the bed
 * made of them.  The other end is in another process; its numbers come over a link.
 *
 * Order: perf_attach_open(); for each measurement perf_attach_bed_create() (queue pairs in Init),
 * then what perf_attach_describe() says goes to the peer and what the peer says into
 * perf_attach_learn(), then perf_attach_bed_connect().
 */
#ifndef PERF_ATTACH_H
#define PERF_ATTACH_H

#include <jansson.h>

#include "bed.h"
#include "karst.h"

/** Bytes of the regions of a measurement, by the way in which the engine reaches them. */
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
	bool waits;      /* sleeps until completion events; a server's client says so */
	uint64_t events; /* completion events that it has taken for the present bed */
	union karst_gid gid;
	union karst_gid peer_gid;
	struct perf_paths paths;
	struct perf_attach_objects *objects; /* of the present bed */
};

/** Attaches to opts->connect.  0, 1 (it does not work) or 2 (what was asked for is not there);
 *  said on stderr. */
int perf_attach_open(const struct perf_opts *opts, enum perf_end end, struct perf_attach *a);
void perf_attach_close(struct perf_attach *a);

/** Nothing to do: gives the CPU to others, and when these take it, goes where the lcore is. */
void perf_attach_rest(struct perf_attach *a);

/**
 * Nothing to do, and completions are to come: asks for an event, and when called again without one
 * having been found meanwhile sleeps until it comes, @also is readable (-1: none), or a while has
 * passed.  Only if a->waits.
 * @return @also was readable.
 */
bool perf_attach_wait(struct perf_attach *a, int also);

/** 0 or 1: refused, said on stderr; everything is taken down again then. */
int perf_attach_bed_create(struct perf_attach *a, const struct perf_job *job,
	const struct perf_memory *mem, bool latency, struct perf_bed *bed);
/** After perf_attach_learn(). */
int perf_attach_bed_connect(struct perf_bed *bed);
void perf_attach_bed_destroy(struct perf_bed *bed);

/** What the peer must know of our end; NULL: no memory. */
json_t *perf_attach_describe(const struct perf_bed *bed);
/** The other end's description.  -EPROTO: it does not fit the job. */
int perf_attach_learn(struct perf_bed *bed, const json_t *o);

#endif /* PERF_ATTACH_H */
