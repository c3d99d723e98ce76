/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Invariants of a queue pair that hold between any two calls, checked in its private structure.
 * Shared by the unit tests and the fuzzer; needs neither Criterion nor EAL.
 */
#ifndef QP_SELFCHECK_H
#define QP_SELFCHECK_H

#include "karst_qp.h"

/** @return NULL, or what is wrong. */
const char *qp_selfcheck(const struct karst_core *core, const struct karst_core_qp *qp);

/** What must be true of a QP in Error when it has come to rest.  @return as above. */
const char *qp_flushed(const struct karst_core_qp *qp);

/** Numbers that mean something to a queue pair now, for frames that come near them. */
struct qp_numbers {
	uint32_t epsn;    /* next request of the peer */
	uint32_t una_psn; /* oldest of ours that is not acknowledged */
	uint32_t nxt_psn; /* next of ours */
	uint32_t ssn;     /* requests of ours, ever */
};
void qp_numbers(const struct karst_core_qp *qp, struct qp_numbers *n);

#endif /* QP_SELFCHECK_H */
