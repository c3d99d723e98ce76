/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Sends karst_log() to rte_log, as type "karst" (EAL option --log-level=karst:debug). */
#include "log.h"

#include <stdio.h>

#include <rte_log.h>

#include "karst_log.h"

static int logtype = -1;

static void
log_sink(enum karst_log_level level, const char *fmt, va_list ap)
{
	static const uint32_t levels[] = {
		[KARST_LOG_ERR] = RTE_LOG_ERR,
		[KARST_LOG_WARNING] = RTE_LOG_WARNING,
		[KARST_LOG_NOTICE] = RTE_LOG_NOTICE,
		[KARST_LOG_INFO] = RTE_LOG_INFO,
		[KARST_LOG_DEBUG] = RTE_LOG_DEBUG,
	};
	char line[512];

	vsnprintf(line, sizeof(line), fmt, ap);
	rte_log(levels[level], (uint32_t)logtype, "karst: %s\n", line);
}

void
eng_log_init(void)
{
	if (logtype >= 0)
		return;
	logtype = rte_log_register_type_and_pick_level("karst", RTE_LOG_NOTICE);
	if (logtype >= 0)
		karst_log_set_sink(log_sink);
}
