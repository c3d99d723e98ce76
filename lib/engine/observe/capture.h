/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Capture of the frames of one queue pair into a file.
 *
 * The lcore that owns the queue pair copies its frames, as they are on the wire, into a ring of
 * slots; a thread takes them out and writes the file.  The lcore never waits: frames that find the
 * ring full are counted and missing in the file.  Without a capture the lcore checks one pointer
 * for each burst.
 *
 * Received frames are captured after the check of their ICRC, whatever its result; frames that the
 * parser refused belong to no queue pair.  Sent frames are captured when they are built; if UD
 * packets find their port's queue full, the file has frames that were not sent.
 *
 * An engine has one capture at a time.  It ends by itself, at one of its limits or when the file
 * cannot be written; its status stays available until it is stopped or the next one begins.
 */
#ifndef ENGINE_CAPTURE_H
#define ENGINE_CAPTURE_H

#include <limits.h>

#include "capture_ring.h"
#include "pcapng.h"

struct eng_capture_config {
	uint32_t qpn;
	const char *file; /* name in the engine's directory for captures; NULL: generate one */
	uint64_t count;   /* frames; 0: no limit */
	uint64_t seconds;
	uint64_t bytes;   /* of the file */
	uint32_t snaplen; /* bytes of a frame */
};

#define CAPTURE_SECONDS_MAX 86400u
#define CAPTURE_BYTES_MAX   (1ull << 36)
#define CAPTURE_SNAPLEN_MIN 64u
#define CAPTURE_NAME_MAX    64u
#define CAPTURE_WHY         256u

struct eng_capture_status {
	bool running;
	uint32_t qpn;
	uint64_t frames;  /* in the file */
	uint64_t bytes;   /* of the file */
	uint64_t dropped; /* because the ring was full */
	char path[PATH_MAX];
	char ended[CAPTURE_WHY]; /* why it does not run any more */
};

/* All three are called with the list of engines locked, as telemetry commands are.  @why gets what
 * is wrong and what is allowed.  -EBUSY: there is one; -ENOENT: no such queue pair; -EINVAL; or an
 * error of the file system. */
int eng_capture_start(
	struct karst_engine *e, const struct eng_capture_config *cfg, char why[CAPTURE_WHY]);
/* Ends it if it runs, and frees it.  -ENOENT: there is none. */
int eng_capture_stop(struct karst_engine *e, struct eng_capture_status *status);
int eng_capture_status(const struct karst_engine *e, struct eng_capture_status *status);

#endif /* ENGINE_CAPTURE_H */
