/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What there is to show, as JSON: what is printed as text is made from the same.  For the main
 * lcore.
 */
#ifndef FWD_REPORT_H
#define FWD_REPORT_H

#include <jansson.h>

#include "fwd.h"

/* Each is the caller's, to be given back by json_decref(). */

/** Counters of a port, and rates since the last look. */
json_t *fwd_report_port(struct fwd_port *p);
json_t *fwd_report_xstats(const struct fwd_port *p);
json_t *fwd_report_info(const struct fwd_port *p);
/** Streams, port by port, and their sum. */
json_t *fwd_report_forward(const struct fwd *f);
/** What roce-check has seen. */
json_t *fwd_report_roce(const struct fwd *f);
/** An array of flows. */
json_t *fwd_report_flows(const struct fwd *f);
json_t *fwd_report_latency(const struct fwd *f);
json_t *fwd_report_gen(const struct fwd *f);
json_t *fwd_report_config(const struct fwd *f);
/** All of these. */
json_t *fwd_report_all(struct fwd *f);

#endif /* FWD_REPORT_H */
