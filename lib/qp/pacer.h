/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The pacer: how fast a queue pair may send, and how much.  It has a token bucket (E6), filled at
 * the rate that DCQCN allows or the program has set, whichever is lower; and the window of control
 * by delay, with the interval between requests (E7).  Other files use congestion control only
 * through these functions: they ask whether they may send, and report what was sent and what became
 * of it.
 *
 *	limit = karst_pacer_limit(...)     before a visit: for how many bytes there are tokens
 *	... karst_qp_tx() builds ...
 *	more = karst_pacer_charge(...)     after it: a queue pair without tokens waits on the wheel
 *
 * In a queue pair that is not limited, qp->req.paced is 0.  Neither of these is called for it then,
 * nor is any of the functions below unless its comment says so.
 */
#ifndef KARST_QP_PACER_H
#define KARST_QP_PACER_H

#include "qp_priv.h"

/** The number of bytes that @b may have when the visit of @qp ends, at most @limit. */
uint32_t karst_pacer_limit(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_tx_burst *b, uint32_t limit);
/** Takes the tokens for frames @n.. of @b.  @more: there is more to send.  @return whether it may
 *  be sent now. */
bool karst_pacer_charge(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_tx_burst *b, uint32_t n, bool more);
/** @qp has been parked because its port takes no frames: from now on it waits for the port, and the
 *  time limit counts from now on (Q6).  It loses no tokens of the time that it waits. */
void karst_pacer_parked(struct karst_core *core, struct karst_core_qp *qp);
/** Processes a CNP that passed all checks (E5).  @return false: such queue pairs do not react. */
bool karst_pacer_cnp(struct karst_core *core, struct karst_core_qp *qp);

/** Whether @qp waits for tokens, or for the end of a pause, and not for its port. */
static inline bool
karst_pacer_waits(const struct karst_core_qp *qp)
{
	return qp->pacer->waits && !qp->pacer->parked;
}

/* --- control by delay (E7); no effect on queue pairs that are not subject to it --- */

/** How many packets may be under way, including those of answers.  Any queue pair. */
static inline uint32_t
karst_pacer_window(const struct karst_core *core, const struct karst_core_qp *qp)
{
	return karst_likely(core->swift == NULL) || karst_mutant(KARST_MUTANT_NO_WINDOW)
		? UINT32_MAX
		: karst_swift_window(&qp->pacer->swift);
}
/** Whether no request may be sent now.  A timer, armed at the end of the visit, then activates the
 *  queue pair. */
static inline bool
karst_pacer_holds(const struct karst_core *core, const struct karst_core_qp *qp)
{
	return karst_unlikely(core->swift != NULL) && core->now_ns < qp->pacer->swift.next_ns &&
		!karst_mutant(KARST_MUTANT_NO_PAUSE);
}
/** How many packets of messages may be sent, if @room may be for other reasons; 1: that packet has
 *  to ask for an acknowledgement. */
uint32_t karst_pacer_room(const struct karst_core *core, struct karst_core_qp *qp, uint32_t room);
/** Whether a request may be sent that is answered by @npsn packets. */
bool karst_pacer_fits(const struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn);
/** A request packet is sent, perhaps again; @npsn: the packets of its answer, or 1. */
void karst_pacer_sent(const struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn);
/** @npsn packets were acknowledged. */
void karst_pacer_acked(const struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn);
/** The round trip of an acknowledged packet that was sent once has taken @ns. */
void karst_pacer_delay(const struct karst_core *core, struct karst_core_qp *qp, uint64_t ns);
/** The network has lost a packet.  Any queue pair. */
void karst_pacer_lost(const struct karst_core *core, struct karst_core_qp *qp);
/** The acknowledgement timeout has passed. */
void karst_pacer_timeout(const struct karst_core *core, struct karst_core_qp *qp);

/* --- */

/** The timer of the pacer has fired. */
void karst_pacer_expire(struct karst_core *core, struct karst_core_qp *qp);
/** Restarts congestion control; the limit that the program has set remains (G4).  The caller
 *  activates the queue pair, whatever it waits for. */
void karst_pacer_another_path(struct karst_core *core, struct karst_core_qp *qp);
/** The pacer of the queue pair is at @mem from now on; NULL: nothing limits it. */
void karst_pacer_open(struct karst_core_qp *qp, struct karst_pacer *mem);
/** Before the queue pair is destroyed or reset. */
void karst_pacer_reset(struct karst_core *core, struct karst_core_qp *qp);

#endif /* KARST_QP_PACER_H */
