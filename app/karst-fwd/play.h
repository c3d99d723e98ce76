/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Load the frames of a capture into memory, with new addresses and correct ICRCs, ready to be sent.
 *
 * The first RoCEv2 frame of the capture defines the two ends.  Its source gets the new source
 * address and its destination the new destination address, in frames of both directions.  Other
 * addresses are left alone.  Each RoCEv2 frame gets a correct ICRC and IPv4 checksum, and a correct
 * UDP checksum if it had one.  Frames that are not RoCEv2 are sent unchanged.  Frames that the
 * capture has only in part are left out, and counted.
 */
#ifndef FWD_PLAY_H
#define FWD_PLAY_H

#include "karst_base.h"

/** A larger capture is refused. */
#define FWD_PLAY_BYTES_MAX (256u << 20)

struct fwd_play_frame {
	uint32_t at, len;
};

struct fwd_play {
	uint32_t nframes, longest;
	uint64_t loops;       /* 0: without end */
	uint64_t left_out;    /* incomplete frames */
	uint64_t roce, other; /* frames that will be sent */
	uint64_t mended;      /* RoCEv2 frames whose ICRC was wrong in the capture */
	uint8_t *data;
	struct fwd_play_frame *frames;
};

/**
 * Loads a capture as described by "file=PATH src=IP dst=IP smac=MAC dmac=MAC loops=N".
 * @return NULL: @why tells what is wrong, and what is allowed.
 */
struct fwd_play *fwd_play_open(const char *text, char *why, size_t room);
void fwd_play_free(struct fwd_play *p);

#endif /* FWD_PLAY_H */
