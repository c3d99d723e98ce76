/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Invariants of lib/cm between any two calls; for its unit tests and its fuzz target. */
#ifndef CM_SELFCHECK_H
#define CM_SELFCHECK_H

#include "karst_cm.h"

/** @return NULL, or the invariant that does not hold. */
const char *cm_selfcheck(const struct karst_cm *cm);

#endif /* CM_SELFCHECK_H */
