/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Make reports as JSON.  The text output is made from these, too.  For the main lcore. */
#ifndef FWD_REPORT_H
#define FWD_REPORT_H

#include <jansson.h>

#include "fwd.h"

/* The caller owns each result, and releases it with json_decref(). */

/** Counters of a port, and rates since the last call. */
json_t *fwd_report_port(struct fwd_port *p);
json_t *fwd_report_xstats(const struct fwd_port *p);
json_t *fwd_report_info(const struct fwd_port *p);
/** Counters of streams by port, and their sum. */
json_t *fwd_report_forward(const struct fwd *f);
/** Counters of roce-check. */
json_t *fwd_report_roce(const struct fwd *f);
/** An array of flows. */
json_t *fwd_report_flows(const struct fwd *f);
json_t *fwd_report_latency(const struct fwd *f);
json_t *fwd_report_gen(const struct fwd *f);
json_t *fwd_report_config(const struct fwd *f);
/** All of the reports above. */
json_t *fwd_report_all(struct fwd *f);

#endif /* FWD_REPORT_H */
