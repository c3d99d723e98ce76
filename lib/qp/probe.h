/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Early retransmission (Q11).  The requester calls these functions when a round trip is over, when
 * its timer fires, and when a probe was answered.  The state that each packet needs is in the spare
 * bits of struct karst_requester; what is needed once in a round trip is in struct karst_probe.
 */
#ifndef KARST_QP_PROBE_H
#define KARST_QP_PROBE_H

#include "qp_priv.h"

/** A packet that asks for an acknowledgement is sent for the first time: starts the measurement. */
void karst_probe_start(struct karst_core *core, struct karst_core_qp *qp, uint32_t psn);

/** The packet that is being measured was acknowledged. */
void karst_probe_sample(struct karst_core *core, struct karst_core_qp *qp);

/** The time after progress at which the timer of @qp has to fire first: that of the first early
 *  expiry if there may be one, else @wait_ns. */
uint64_t karst_probe_first(
	const struct karst_core *core, const struct karst_core_qp *qp, uint64_t wait_ns);

/** The timer has fired before its deadline, perhaps for an early expiry.  @return when it has to
 *  fire next, not later than the deadline. */
uint64_t karst_probe_expire(struct karst_core *core, struct karst_core_qp *qp);

/** A probe is sent, for the PSNs up to before @end. */
void karst_probe_sent(struct karst_core *core, struct karst_core_qp *qp, uint32_t end);

/** The packet of a probe has to be copied first, and the requester has gone back to it instead:
 *  this counts as a probe that was sent. */
void karst_probe_went_back(struct karst_core *core, struct karst_core_qp *qp);

/** There was progress while a probe is unanswered.  @return true: the peer has nothing of what was
 *  sent after the probed packet, go back to that. */
bool karst_probe_answered(struct karst_core *core, struct karst_core_qp *qp);

/** @npsn packets were acknowledged while the window was reduced: enlarges it. */
void karst_probe_widen(struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn);

/** A sequence NAK has arrived: for a while a little less than the full window may be under way
 *  (Q12). */
void karst_probe_be_wary(struct karst_core *core, struct karst_core_qp *qp);

/** Whether to send the oldest packet again, now that the window is full (Q12). */
bool karst_probe_wants(const struct karst_core *core, const struct karst_core_qp *qp);

/** The oldest packet was sent again. */
void karst_probe_wary_sent(struct karst_core_qp *qp);

/** Ends the measurement, and forgets the probe. */
static inline void
karst_probe_forget(struct karst_requester *r)
{
	r->timing = r->probe_due = r->probe_out = 0;
}

/** Whether a probe is unanswered, or due, or was sent since there was progress. */
static inline bool
karst_probe_any(const struct karst_requester *r)
{
	return r->probe_due || r->probe_out || r->probes != 0;
}

/** A packet is built that asks for an acknowledgement, perhaps not for the first time. */
static inline void
karst_probe_time(struct karst_core *core, struct karst_core_qp *qp, uint32_t psn)
{
	struct karst_requester *r = &qp->req;

	if (!r->timing && core->measures && psn == r->nxt_psn)
		karst_probe_start(core, qp, psn);
}

#endif /* KARST_QP_PROBE_H */
