/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Pace packets by a schedule in cycles that does not drift.
 *
 * The schedule is exact to 2^-32 cycle per byte.  A sender that is late sends the following packets
 * earlier, so the average is the rate that was set.  Only time beyond the slack is abandoned, and
 * counted.  So a port that could not keep up with the rate for a while is not flooded later.
 */
#ifndef FWD_PACE_H
#define FWD_PACE_H

#include "karst_base.h"

enum fwd_rate_unit { FWD_RATE_MAX, FWD_RATE_BITS, FWD_RATE_PACKETS };

/**
 * Bits per second, where a frame counts as the port gets it (from the Ethernet header to the ICRC),
 * or frames per second.
 */
struct fwd_rate {
	enum fwd_rate_unit unit;
	uint64_t value;
};

#define FWD_RATE_TEXT 32

/**
 * Parses "10Gbps", "2.5Mbps", "1000pps", "5kpps", "max".
 * @return 0; -1: @why tells what is allowed.
 */
int fwd_rate_parse(const char *text, struct fwd_rate *r, const char **why);
void fwd_rate_text(const struct fwd_rate *r, char text[FWD_RATE_TEXT]);

struct fwd_pace {
	/*
	 * In units of 2^-32 cycle; 0 unless the rate has that unit.  At one packet per second,
	 * these need more than 64 bits if queues share the rate.
	 */
	unsigned __int128 per_byte, per_packet;
	uint64_t due;      /* cycle at which the next packet may be sent */
	uint32_t fraction; /* of due, in units of 2^-32 cycle */
	uint64_t slack;    /* cycles of delay that are caught up */
	uint64_t skipped;  /* cycles that were abandoned */
};

/**
 * @share: number of queues that share the rate; @hz: cycles per second; @now: when the first packet
 * may be sent.
 */
void fwd_pace_init(
	struct fwd_pace *p, const struct fwd_rate *r, uint32_t share, uint64_t hz, uint64_t now);

/** Whether a packet may be sent.  Abandons the delay that exceeds the slack. */
static inline bool
fwd_pace_due(struct fwd_pace *p, uint64_t now)
{
	if ((int64_t)(now - p->due) < 0)
		return false;
	if (karst_unlikely(now - p->due > p->slack)) {
		p->skipped += now - p->due - p->slack;
		p->due = now - p->slack;
	}
	return true;
}

/** Records that a packet of @bytes is sent. */
static inline void
fwd_pace_sent(struct fwd_pace *p, uint32_t bytes)
{
	unsigned __int128 t = p->per_byte * bytes + p->per_packet + p->fraction;

	p->due += (uint64_t)(t >> 32);
	p->fraction = (uint32_t)t;
}

#endif /* FWD_PACE_H */
