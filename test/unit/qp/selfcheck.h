/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What must be true of a queue pair between any two calls, checked from its private structure.
 * Shared by the unit tests and the fuzzer; needs neither Criterion nor EAL.
 */
#ifndef QP_SELFCHECK_H
#define QP_SELFCHECK_H

#include "karst_qp.h"

/** @return NULL, or what is wrong. */
const char *qp_selfcheck(const struct karst_core *core, const struct karst_core_qp *qp);

/** What must be true of a QP in Error when nothing is left to do.  @return as above. */
const char *qp_flushed(const struct karst_core_qp *qp);

/** Numbers that are significant for a queue pair now, for frames with numbers close to them. */
struct qp_numbers {
	uint32_t epsn;    /* next request of the peer */
	uint32_t una_psn; /* our oldest one that is not acknowledged */
	uint32_t nxt_psn; /* our next one */
	uint32_t ssn;     /* our requests so far */
};
void qp_numbers(const struct karst_core_qp *qp, struct qp_numbers *n);

#endif /* QP_SELFCHECK_H */
