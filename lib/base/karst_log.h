/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Logging, for control paths only: nothing on the data path logs.  The library writes
 * through a sink that the embedding program may replace (lib/engine routes it to rte_log).
 */
#ifndef KARST_LOG_H
#define KARST_LOG_H

#include <stdarg.h>

enum karst_log_level {
	KARST_LOG_ERR,
	KARST_LOG_WARNING,
	KARST_LOG_NOTICE,
	KARST_LOG_INFO,
	KARST_LOG_DEBUG,
};

typedef void (*karst_log_sink_fn)(enum karst_log_level level, const char *fmt, va_list ap);

/**
 * Replaces the sink; NULL restores the default, which prints NOTICE and worse to stderr.
 * Call before other threads use karst.
 */
void karst_log_set_sink(karst_log_sink_fn sink);

/** Logs one line; no trailing newline in @fmt.  Any thread; never on the data path. */
void karst_log(enum karst_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif /* KARST_LOG_H */
