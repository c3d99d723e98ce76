/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * How fast a queue pair may send, and how much.  A token bucket (E6), filled at the rate that DCQCN
 * leaves it, or that its program has set, whichever is lower; the window of control by delay, and
 * the time between requests (E7).  This is all that others know of congestion control: they ask
 * here whether they may send, and tell what has come of it.
 *
 *	limit = karst_pacer_limit(...)     before a visit: for how many bytes there are tokens
 *	... karst_qp_tx() builds ...
 *	more = karst_pacer_charge(...)     after it: who has none left waits on the wheel
 *
 * A queue pair that is not limited has qp->req.paced 0, and neither is called, nor is what follows
 * below unless it says so.
 */
#ifndef KARST_QP_PACER_H
#define KARST_QP_PACER_H

#include "qp_priv.h"

/** The bytes that @b may have when the visit of @qp ends, at most @limit. */
uint32_t karst_pacer_limit(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_tx_burst *b, uint32_t limit);
/** Takes the tokens for frames @n.. of @b.  @more: there is more to send; @return may it now? */
bool karst_pacer_charge(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_tx_burst *b, uint32_t n, bool more);
/** A CNP that passed all checks (E5).  @return false: such queue pairs do not react. */
bool karst_pacer_cnp(struct karst_core *core, struct karst_core_qp *qp);

/* --- control by delay (E7); who is not subject to it is not changed by any of these --- */

/** How many packets may be under way, those of answers counted.  Any queue pair. */
static inline uint32_t
karst_pacer_window(const struct karst_core *core, const struct karst_core_qp *qp)
{
	return karst_likely(core->swift == NULL) || karst_mutant(KARST_MUTANT_NO_WINDOW)
		? UINT32_MAX
		: karst_swift_window(&qp->pacer->swift);
}
/** May no request leave now?  Then a timer, armed at the end of the visit, brings it back. */
static inline bool
karst_pacer_holds(const struct karst_core *core, const struct karst_core_qp *qp)
{
	return karst_unlikely(core->swift != NULL) && core->now_ns < qp->pacer->swift.next_ns &&
		!karst_mutant(KARST_MUTANT_NO_PAUSE);
}
/** How many packets of messages may go out, if @room may for other reasons; 1: whoever goes has to
 *  ask for an acknowledgement. */
uint32_t karst_pacer_room(const struct karst_core *core, struct karst_core_qp *qp, uint32_t room);
/** May a request go out that is answered by @npsn packets? */
bool karst_pacer_fits(const struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn);
/** A request packet leaves, perhaps again; @npsn: likewise, or 1. */
void karst_pacer_sent(const struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn);
/** @npsn packets were acknowledged. */
void karst_pacer_acked(const struct karst_core *core, struct karst_core_qp *qp, uint32_t npsn);
/** And the round trip of one of them that was sent once has taken @ns. */
void karst_pacer_delay(const struct karst_core *core, struct karst_core_qp *qp, uint64_t ns);
/** The network has lost something.  Any queue pair. */
void karst_pacer_lost(const struct karst_core *core, struct karst_core_qp *qp);
/** The acknowledgement timeout has passed. */
void karst_pacer_timeout(const struct karst_core *core, struct karst_core_qp *qp);

/* --- */

/** Its time has come. */
void karst_pacer_expire(struct karst_core *core, struct karst_core_qp *qp);
/** Congestion control begins anew, what the program has set stays (G4).  The caller activates the
 *  queue pair, whatever it waits for. */
void karst_pacer_another_path(struct karst_core *core, struct karst_core_qp *qp);
/** The queue pair has its pacer here from now on; NULL: nothing limits it. */
void karst_pacer_open(struct karst_core_qp *qp, struct karst_pacer *mem);
/** Before the queue pair goes, or begins anew. */
void karst_pacer_reset(struct karst_core *core, struct karst_core_qp *qp);

#endif /* KARST_QP_PACER_H */
