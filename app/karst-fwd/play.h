/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Frames of a capture, ready to be sent: in memory, with new addresses and right ICRCs.
 *
 * The capture's first RoCEv2 frame says who is who: its source gets the new source address, its
 * destination the new destination, in both directions.  Frames of others keep theirs.  Each RoCEv2
 * frame gets a right ICRC, IPv4 checksum, and UDP checksum if it had one; what is no RoCEv2 goes as
 * it is. Frames that the capture does not have whole are left out, and counted.
 */
#ifndef FWD_PLAY_H
#define FWD_PLAY_H

#include "karst_base.h"

/** A capture that has more is refused. */
#define FWD_PLAY_BYTES_MAX (256u << 20)

struct fwd_play_frame {
	uint32_t at, len;
};

struct fwd_play {
	uint32_t nframes, longest;
	uint64_t loops;       /* 0: without end */
	uint64_t left_out;    /* frames that are not whole */
	uint64_t roce, other; /* frames that are played */
	uint64_t mended;      /* of the RoCEv2 frames those whose ICRC was wrong in the capture */
	uint8_t *data;
	struct fwd_play_frame *frames;
};

/**
 * Reads what "file=PATH src=IP dst=IP smac=MAC dmac=MAC loops=N" says.
 * @return NULL: @why says what is wrong, and what is allowed.
 */
struct fwd_play *fwd_play_open(const char *text, char *why, size_t room);
void fwd_play_free(struct fwd_play *p);

#endif /* FWD_PLAY_H */
