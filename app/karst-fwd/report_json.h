/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Helpers that put values into JSON, for the files of report.h. */
#ifndef FWD_REPORT_JSON_H
#define FWD_REPORT_JSON_H

#include <jansson.h>

#include <rte_cycles.h>

#include "hist.h"
#include "tsc.h"

static inline void
fwd_report_set_count(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

static inline void
fwd_report_add_count(json_t *o, const char *key, uint64_t v)
{
	fwd_report_set_count(o, key, v + (uint64_t)json_integer_value(json_object_get(o, key)));
}

static inline void
fwd_report_set_text(json_t *o, const char *key, const char *text)
{
	json_object_set_new(o, key, json_string(text));
}

static inline uint64_t
fwd_report_ns_of(uint64_t cycles)
{
	return (uint64_t)((double)cycles * 1e9 / (double)perf_tsc_hz());
}

/** Puts the percentiles of a histogram of cycles, in nanoseconds. */
void fwd_report_put_hist(json_t *o, const struct perf_hist *h);

#endif /* FWD_REPORT_JSON_H */
