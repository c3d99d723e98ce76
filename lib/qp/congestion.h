/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The reaction point of DCQCN (E2): from CNPs, bytes sent and time to the rate of one queue pair.
 *
 * Nothing runs while nobody asks.  Who has sent, or wants to, calls karst_dcqcn_advance(), which
 * makes up for the time that has passed: rounds that raise the rate one by one, at the times at
 * which they were due, and those of alpha in closed form.
 *
 * Times are nanoseconds, rates bits per second.
 */
#ifndef KARST_QP_CONGESTION_H
#define KARST_QP_CONGESTION_H

#include "karst_congestion.h"

/** 1 as a value of alpha. */
#define KARST_ALPHA_ONE (1u << 30)

/** The parameters in the units of this file. */
struct karst_rp {
	uint64_t time_reset_ns;
	uint64_t monitor_ns;
	uint64_t rtt_ns;
	uint64_t ai, hai;  /* rates */
	uint64_t max, min; /* max 0: the line's */
	uint64_t first;    /* 0: max */
	uint32_t byte_reset;
	uint32_t threshold;
	uint32_t g; /* of 1024 */
	uint32_t gd;
	uint32_t initial_alpha; /* of KARST_ALPHA_ONE */
	uint32_t min_dec_percent;
	bool clamp, clamp_after_time;
};

void karst_rp_set(struct karst_rp *rp, const struct karst_rp_params *p);

/** Of one queue pair; all zeros: no CNP has come yet, and it sends as fast as it can. */
struct karst_dcqcn {
	uint64_t rate;     /* 0: not limited */
	uint64_t target;   /* what it recovers to */
	uint64_t max;      /* what it is released at */
	uint64_t alpha_ns; /* when the present period of alpha began */
	uint64_t raise_ns; /* and that of the increase timer */
	uint64_t cut_ns;   /* when the rate was reduced last */
	uint32_t alpha;    /* of KARST_ALPHA_ONE, as of alpha_ns */
	uint32_t bytes;    /* sent since the byte counter began anew */
	uint16_t time_stage;
	uint16_t byte_stage;
	bool heard;   /* a CNP came in the present period of alpha */
	bool pending; /* one came that the rate has not been reduced for */
};

/** A CNP has come.  @line: the rate of the link. */
void karst_dcqcn_cnp(
	struct karst_dcqcn *d, const struct karst_rp *rp, uint64_t line, uint64_t now_ns);
/**
 * Makes up for the time until @now_ns, a bounded number of rounds in a call: if that was not all,
 * karst_dcqcn_next() is not later than @now_ns.
 */
void karst_dcqcn_advance(struct karst_dcqcn *d, const struct karst_rp *rp, uint64_t now_ns);
/** @bytes have been sent. */
void karst_dcqcn_sent(struct karst_dcqcn *d, const struct karst_rp *rp, uint32_t bytes);
/** When the rate changes next if nothing is sent and no CNP comes; UINT64_MAX: never. */
uint64_t karst_dcqcn_next(const struct karst_dcqcn *d, const struct karst_rp *rp);

/** Is it below what it would be without CNPs? */
static inline bool
karst_dcqcn_limits(const struct karst_dcqcn *d)
{
	return d->rate != 0 && (d->rate < d->max || d->pending);
}

#endif /* KARST_QP_CONGESTION_H */
