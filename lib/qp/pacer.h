/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * How fast a queue pair may send (E6): a token bucket, filled at the rate that congestion control
 * leaves it, or that its program has set, whichever is lower.
 *
 *	limit = karst_pacer_limit(...)     before a visit: for how many bytes there are tokens
 *	... karst_qp_tx() builds ...
 *	more = karst_pacer_charge(...)     after it: who has none left waits on the wheel
 *
 * A queue pair that is not limited has qp->req.paced 0, and neither is called.
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
/** Its time has come. */
void karst_pacer_expire(struct karst_core *core, struct karst_core_qp *qp);
/** Before the queue pair goes, or begins anew. */
void karst_pacer_reset(struct karst_core *core, struct karst_core_qp *qp);

#endif /* KARST_QP_PACER_H */
