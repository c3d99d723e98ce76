/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The reaction point of DCQCN (E2): computes the rate of one queue pair from CNPs, bytes sent and
 * time.
 *
 * Nothing runs by itself.  A caller that has sent, or is about to send, calls
 * karst_dcqcn_advance(), which makes up for the elapsed time: it executes the rounds that raise the
 * rate one by one, as of the times when they were due, and those of alpha in closed form.
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
	uint64_t max, min; /* max 0: the rate of the link */
	uint64_t first;    /* 0: max */
	uint32_t byte_reset;
	uint32_t threshold;
	uint32_t g; /* in units of 1/1024 */
	uint32_t gd;
	uint32_t initial_alpha; /* in units of 1/KARST_ALPHA_ONE */
	uint32_t min_dec_percent;
	bool clamp, clamp_after_time;
};

void karst_rp_set(struct karst_rp *rp, const struct karst_rp_params *p);

/** State of one queue pair; all zeros: no CNP has been received, and the rate is not limited. */
struct karst_dcqcn {
	uint64_t rate;     /* 0: not limited */
	uint64_t target;   /* rate to which it recovers */
	uint64_t max;      /* rate at which the limit ends */
	uint64_t alpha_ns; /* when the present period of alpha began */
	uint64_t raise_ns; /* when the present period of the increase timer began */
	uint64_t cut_ns;   /* when the rate was last reduced */
	uint32_t alpha;    /* in units of 1/KARST_ALPHA_ONE, as of alpha_ns */
	uint32_t bytes;    /* sent since the byte counter was reset */
	uint16_t time_stage;
	uint16_t byte_stage;
	bool heard;   /* a CNP was received in the present period of alpha */
	bool pending; /* a CNP was received for which the rate has not been reduced yet */
};

/** A CNP was received.  @line: the rate of the link. */
void karst_dcqcn_cnp(
	struct karst_dcqcn *d, const struct karst_rp *rp, uint64_t line, uint64_t now_ns);
/**
 * Makes up for the time until @now_ns, a bounded number of rounds in a call: if more are due,
 * karst_dcqcn_next() is not later than @now_ns.
 */
void karst_dcqcn_advance(struct karst_dcqcn *d, const struct karst_rp *rp, uint64_t now_ns);
/** @bytes have been sent. */
void karst_dcqcn_sent(struct karst_dcqcn *d, const struct karst_rp *rp, uint32_t bytes);
/** When the rate changes next if nothing is sent and no CNP comes; UINT64_MAX: never. */
uint64_t karst_dcqcn_next(const struct karst_dcqcn *d, const struct karst_rp *rp);

/** Whether the rate is lower than it would be without CNPs. */
static inline bool
karst_dcqcn_limits(const struct karst_dcqcn *d)
{
	return d->rate != 0 && (d->rate < d->max || d->pending);
}

#endif /* KARST_QP_CONGESTION_H */
