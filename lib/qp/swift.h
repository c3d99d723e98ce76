/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Congestion control by delay (E7).  From round trips, acknowledgements and losses this computes
 * the window of one queue pair, and the interval between requests if the window is smaller than
 * what is sent at a time.  As congestion.h, it knows no queue pair and no clock, and runs only when
 * called.
 *
 * Windows are in packets, in units of 1/KARST_SWIFT_ONE; times are nanoseconds.
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
	/* 1 / sqrt(), in units of 1/KARST_SWIFT_ONE, of fs_min and fs_max */
	uint64_t root_min, root_max;
	uint32_t beta, max_mdf; /* in units of 1/KARST_SWIFT_ONE */
	uint32_t retx_reset;
};

void karst_swift_set(struct karst_swift_rp *rp, const struct karst_rp_params *p);

/** State of one queue pair; all zeros: it is not limited. */
struct karst_swift {
	uint64_t cwnd;      /* the window */
	uint64_t cut_ns;    /* when it was last reduced */
	uint64_t next_ns;   /* no request is sent before that */
	uint32_t delay_ns;  /* the newest round trip; 0: none is known */
	uint32_t target_ns; /* target that it was compared with */
	uint32_t acked;     /* packets acknowledged since the round trip before */
	uint32_t timeouts;  /* timeouts since something was acknowledged */
};

void karst_swift_begin(struct karst_swift *s, const struct karst_swift_rp *rp);
/** The target for a round trip with a window of @cwnd. */
uint32_t karst_swift_target(const struct karst_swift_rp *rp, uint64_t cwnd);
/** @npsn packets were acknowledged. */
void karst_swift_acked(struct karst_swift *s, uint32_t npsn);
/** A round trip of a packet that was sent once has taken @delay_ns. */
void karst_swift_delay(
	struct karst_swift *s, const struct karst_swift_rp *rp, uint64_t delay_ns, uint64_t now_ns);
/** Something was lost. */
void karst_swift_lost(struct karst_swift *s, const struct karst_swift_rp *rp, uint64_t now_ns);
/** The acknowledgement timeout has passed. */
void karst_swift_timeout(struct karst_swift *s, const struct karst_swift_rp *rp, uint64_t now_ns);
/** A request was sent that takes @npsn packets; if its answer is longer, those of the answer. */
void karst_swift_sent(
	struct karst_swift *s, const struct karst_swift_rp *rp, uint32_t npsn, uint64_t now_ns);

/** The number of packets that may be under way. */
static inline uint32_t
karst_swift_window(const struct karst_swift *s)
{
	if (s->cwnd == 0)
		return UINT32_MAX;
	return s->cwnd < KARST_SWIFT_ONE ? 1 : (uint32_t)(s->cwnd / KARST_SWIFT_ONE);
}

#endif /* KARST_QP_SWIFT_H */
