/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * When packets go: a schedule in cycles that does not drift.
 *
 * The schedule is exact to 2^-32 cycle a byte, and who comes late sends the sooner after: over time
 * the rate is the one that was set.  Only what is later than the slack is given up, and counted, so
 * that a port that cannot take the rate is not flooded when it can.
 */
#ifndef FWD_PACE_H
#define FWD_PACE_H

#include "karst_base.h"

enum fwd_rate_unit { FWD_RATE_MAX, FWD_RATE_BITS, FWD_RATE_PACKETS };

/**
 * Bits of frames as the port takes them (from the Ethernet header to the ICRC), or frames, a
 * second.
 */
struct fwd_rate {
	enum fwd_rate_unit unit;
	uint64_t value;
};

#define FWD_RATE_TEXT 32

/**
 * "10Gbps", "2.5Mbps", "1000pps", "5kpps", "max".
 * @return 0; -1: @why has what is allowed.
 */
int fwd_rate_parse(const char *text, struct fwd_rate *r, const char **why);
void fwd_rate_text(const struct fwd_rate *r, char text[FWD_RATE_TEXT]);

struct fwd_pace {
	/*
	 * Cycles in 2^-32, 0 unless it is of that unit.  Those of one packet a second are more than
	 * 64 bits if queues share the rate.
	 */
	unsigned __int128 per_byte, per_packet;
	uint64_t due;      /* cycle at which the next may go */
	uint32_t fraction; /* of a cycle, in 2^-32 */
	uint64_t slack;    /* cycles that may be made up for */
	uint64_t skipped;  /* cycles that were given up */
};

/** @share: of so many that share the rate; @hz cycles a second; @now: the first may go. */
void fwd_pace_init(
	struct fwd_pace *p, const struct fwd_rate *r, uint32_t share, uint64_t hz, uint64_t now);

/** Whether one may go; gives up what is too late. */
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

/** A packet of @bytes goes. */
static inline void
fwd_pace_sent(struct fwd_pace *p, uint32_t bytes)
{
	unsigned __int128 t = p->per_byte * bytes + p->per_packet + p->fraction;

	p->due += (uint64_t)(t >> 32);
	p->fraction = (uint32_t)t;
}

#endif /* FWD_PACE_H */
