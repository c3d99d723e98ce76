/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Values of options, and combinations of options.  Errors are printed on standard error. */
#ifndef KARST_PERF_OPTS_VALUE_H
#define KARST_PERF_OPTS_VALUE_H

#include "opts.h"

/* --- opts_value.c: 0, -1 or -errno without a message, or 2, the exit status, with one --- */

int perf_opt_wrong(const char *option, const char *value, const char *allowed);
int perf_opt_misplaced(const char *option, const char *allowed);
/** A number with an optional K, M or G; the whole of @text. */
int perf_opt_scaled(const char *text, uint64_t *value);
/** A plain number within limits. */
int perf_opt_number(
	const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *value);
int perf_opt_u32(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *value);
int perf_opt_real(const char *option, const char *text, double min, double max, double *value);
/** Index of @text in @names, or -1. */
int perf_opt_find(const char *text, const char *const *names, uint32_t num);

/* --- opts_check.c --- */

/** Checks options that need an embedded engine, or a karstd. */
int perf_opts_check_where(struct perf_opts *o);

#endif /* KARST_PERF_OPTS_VALUE_H */
