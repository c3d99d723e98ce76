/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The report of a run, as text and as JSON. */
#ifndef KARST_FABRIC_REPORT_H
#define KARST_FABRIC_REPORT_H

#include <stdio.h>

#include "fabric.h"

void fab_report_text(FILE *out, const struct fab_config *c, const struct fab_result *r);
/** One object on one line.  -ENOMEM, -EIO */
int fab_report_json(FILE *out, const struct fab_config *c, const struct fab_result *r);

#endif /* KARST_FABRIC_REPORT_H */
