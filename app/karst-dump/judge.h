/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Check one frame: parse it, verify ICRC and VCRC, build it again. */
#ifndef KARST_DUMP_JUDGE_H
#define KARST_DUMP_JUDGE_H

#include "capture.h"
#include "karst_counters.h"
#include "karst_frame.h"
#include "karst_pkt.h"

enum judge_kind {
	JUDGE_OTHER,     /* not RoCE: nothing to check */
	JUDGE_MALFORMED, /* sent to the RoCE port, or native, but not a valid packet: see drop */
	JUDGE_ROCE,
	JUDGE_NATIVE,
};

enum judge_crc {
	JUDGE_CRC_NONE, /* the frame has no such CRC */
	JUDGE_CRC_OK,
	JUDGE_CRC_BAD,
	JUDGE_CRC_QUIRK, /* wrong, but as an option allows */
};

enum judge_rebuild {
	JUDGE_REBUILD_NONE, /* not asked for */
	JUDGE_REBUILD_SAME,
	JUDGE_REBUILD_DIFFERENT,
};

/* Values of --quirk. */
#define JUDGE_QUIRK_FLUSH_ICRC 0x1 /* Linux 6.12 computes a wrong ICRC for FLUSH (L7) */

struct judge_options {
	bool rebuild;
	unsigned int quirks;
};

struct judge {
	enum judge_kind kind;
	enum karst_drop drop; /* why it is malformed or another protocol */
	struct karst_pkt pkt; /* valid if kind is JUDGE_ROCE */
	struct karst_frame roce;
	struct karst_native native;
	const struct karst_ib_hdrs *ib; /* in roce or native */
	uint32_t icrc;                  /* as found in the frame */
	uint32_t icrc_want;
	enum judge_crc icrc_is;
	uint16_t vcrc;
	uint16_t vcrc_want;
	enum judge_crc vcrc_is;
	enum judge_rebuild rebuild;
	unsigned int rebuild_off; /* first byte that differs */
};

/** Check one frame.  The result points into the frame. */
void judge_frame(const struct capture_frame *f, const struct judge_options *opt, struct judge *j);

/** The longest frame that judge_beginning() takes. */
#define JUDGE_FRAME_MAX 65535

/**
 * Check a frame of which the capture has only the beginning.  The headers are parsed as if the
 * missing bytes were zeros; the ICRC is reported as absent.  @whole: buffer of JUDGE_FRAME_MAX
 * bytes, into which the result points.
 * @return whether the frame is RoCE or native, as far as can be seen, and has all of its headers.
 */
bool judge_beginning(const struct capture_frame *f, uint8_t *whole, struct judge *j);

/**
 * Check a frame that judge_frame() found malformed because of its UDP checksum.  The headers are
 * parsed as if the checksum were 0 (none).  @whole: as above.
 * @return whether the frame is RoCE, as far as can be seen.
 */
bool judge_damaged(const struct capture_frame *f, uint8_t *whole, struct judge *j);

/** Whether the check has found anything wrong. */
bool judge_is_bad(const struct judge *j);

/**
 * Describe a frame that is not RoCE in a few words ("IPv4 TCP 192.0.2.1:80 > ...").
 * @return whether it is a UDP packet for the RoCE port.
 */
bool judge_describe_other(const uint8_t *data, uint32_t len, char *text, size_t room);

#endif /* KARST_DUMP_JUDGE_H */
