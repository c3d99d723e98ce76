/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Congestion control by delay (E7): from round trips, acknowledgements and losses to the window of
 * one queue pair, and the time that passes between requests where that is smaller than what is
 * sent at a time.  As congestion.h: no queue pair, no clock, nothing runs by itself.
 *
 * Windows are in packets, of KARST_SWIFT_ONE each; times are nanoseconds.
 */
#ifndef KARST_QP_SWIFT_H
#define KARST_QP_SWIFT_H

#include "karst_congestion.h"

/** A window of one packet. */
#define KARST_SWIFT_ONE (1u << 20)

/** The parameters in the units of this file. */
struct karst_swift_rp {
	uint64_t first, least, most; /* windows */
	uint64_t ai;                 /* window */
	uint32_t base_ns;
	uint32_t range_ns;
	uint64_t root_min, root_max; /* 1 / sqrt(), of KARST_SWIFT_ONE, of fs_min and fs_max */
	uint32_t beta, max_mdf;      /* of KARST_SWIFT_ONE */
	uint32_t retx_reset;
};

void karst_swift_set(struct karst_swift_rp *rp, const struct karst_rp_params *p);

/** Of one queue pair; all zeros: it is not limited. */
struct karst_swift {
	uint64_t cwnd;      /* the window */
	uint64_t cut_ns;    /* when it was reduced last */
	uint64_t next_ns;   /* no request before that */
	uint32_t delay_ns;  /* the newest round trip; 0: none is known */
	uint32_t target_ns; /* what it was held against */
	uint32_t acked;     /* packets, since the round trip before */
	uint32_t timeouts;  /* since something was acknowledged */
};

void karst_swift_begin(struct karst_swift *s, const struct karst_swift_rp *rp);
/** What a round trip may take with a window of @cwnd. */
uint32_t karst_swift_target(const struct karst_swift_rp *rp, uint64_t cwnd);
/** @npsn packets were acknowledged. */
void karst_swift_acked(struct karst_swift *s, uint32_t npsn);
/** A round trip has taken @delay_ns, of a packet that was sent once. */
void karst_swift_delay(
	struct karst_swift *s, const struct karst_swift_rp *rp, uint64_t delay_ns, uint64_t now_ns);
/** Something was lost. */
void karst_swift_lost(struct karst_swift *s, const struct karst_swift_rp *rp, uint64_t now_ns);
/** The acknowledgement timeout has passed. */
void karst_swift_timeout(struct karst_swift *s, const struct karst_swift_rp *rp, uint64_t now_ns);
/** A request has left that takes @npsn packets, its answer counted if that is longer. */
void karst_swift_sent(
	struct karst_swift *s, const struct karst_swift_rp *rp, uint32_t npsn, uint64_t now_ns);

/** Packets that may be under way. */
static inline uint32_t
karst_swift_window(const struct karst_swift *s)
{
	if (s->cwnd == 0)
		return UINT32_MAX;
	return s->cwnd < KARST_SWIFT_ONE ? 1 : (uint32_t)(s->cwnd / KARST_SWIFT_ONE);
}

#endif /* KARST_QP_SWIFT_H */
