/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What must be true of a queue pair between any two calls, told from its private structure.
 * Shared by the unit tests and the fuzzer; needs neither Criterion nor EAL.
 */
#ifndef QP_SELFCHECK_H
#define QP_SELFCHECK_H

#include "karst_qp.h"

/** @return NULL, or what is wrong. */
const char *qp_selfcheck(const struct karst_core *core, const struct karst_qp *qp);

#endif /* QP_SELFCHECK_H */
