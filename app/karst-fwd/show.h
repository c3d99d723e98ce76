/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Print the reports of report.h, as text or as JSON on one line.  For the main lcore. */
#ifndef FWD_SHOW_H
#define FWD_SHOW_H

#include "fwd.h"

/** @what: "stats", "xstats" or "info". */
void fwd_show_port(struct fwd_port *p, const char *what, bool json);
/** @what: "roce", "qp", "gen", "latency", "fwd" or "config", or "all", which is JSON only. */
void fwd_show(struct fwd *f, const char *what, bool json);
/** Prints the counters of all ports and streams, for --stats-period. */
void fwd_show_period(struct fwd *f);
/** @return 0; -1 after a message. */
int fwd_show_json_file(struct fwd *f, const char *path);

#endif /* FWD_SHOW_H */
