/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The default log sink.  The sink pointer is the one piece of process-wide state in lib/. */
#include "karst_log.h"

#include <stddef.h>
#include <stdio.h>

static void
stderr_sink(enum karst_log_level level, const char *fmt, va_list ap)
{
	static const char *const names[] = {"error", "warning", "notice", "info", "debug"};

	if (level > KARST_LOG_NOTICE)
		return;
	fprintf(stderr, "karst: %s: ", names[level]);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

static karst_log_sink_fn sink = stderr_sink;

void
karst_log_set_sink(karst_log_sink_fn fn)
{
	sink = fn != NULL ? fn : stderr_sink;
}

void
karst_log(enum karst_log_level level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	sink(level, fmt, ap);
	va_end(ap);
}
