/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Destination of log lines. */
#ifndef ENGINE_LOG_H
#define ENGINE_LOG_H

/* Sends the log lines of lib/ to rte_log from now on. */
void eng_log_init(void);

#endif /* ENGINE_LOG_H */
