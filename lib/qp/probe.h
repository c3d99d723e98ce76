/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Early retransmission (Q11): what the requester calls when a round trip is over, when its timer
 * fires, and when a probe was answered.  The state that every packet meets is in the spare bits of
 * struct karst_requester; what is needed once in a round trip is in struct karst_probe.
 */
#ifndef KARST_QP_PROBE_H
#define KARST_QP_PROBE_H

#include "qp_priv.h"

/** A packet that asks for an acknowledgement leaves for the first time: measured from here. */
void karst_probe_start(struct karst_core *core, struct karst_core_qp *qp, uint32_t psn);

/** The packet that is measured was acknowledged. */
void karst_probe_sample(struct karst_core *core, struct karst_core_qp *qp);

/** How long after progress the timer of @qp is wanted first: until the first early expiry if there
 *  may be one, else @wait_ns. */
uint64_t karst_probe_first(
	const struct karst_core *core, const struct karst_core_qp *qp, uint64_t wait_ns);

/** The timer has fired before its deadline: perhaps for an early expiry.  @return when it is wanted
 *  again, not later than the deadline. */
uint64_t karst_probe_expire(struct karst_core *core, struct karst_core_qp *qp);

/** A probe leaves, for the PSNs up to before @end. */
void karst_probe_sent(struct karst_core *core, struct karst_core_qp *qp, uint32_t end);

/** There was progress, and a probe is out.  @return true: whatever was sent behind it is not with
 *  the peer, go back to it. */
bool karst_probe_answered(struct karst_core *core, struct karst_core_qp *qp);

/** @npsn packets were acknowledged while the window was small: it grows. */
void karst_probe_widen(struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn);

/** A sequence NAK has come: for a while a little less may be under way than ever (Q12). */
void karst_probe_be_wary(struct karst_core *core, struct karst_core_qp *qp);

/** Is it time to send the oldest packet again, now that the window is full (Q12)? */
bool karst_probe_wants(const struct karst_core *core, const struct karst_core_qp *qp);

/** It was. */
void karst_probe_wary_sent(struct karst_core_qp *qp);

/** Nothing that is out is measured any more, and no probe is waited for. */
static inline void
karst_probe_forget(struct karst_requester *r)
{
	r->timing = r->probe_due = r->probe_out = 0;
}

/** Is a probe out, or due, or was one sent since there was progress? */
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
