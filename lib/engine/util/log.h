/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Where log lines go. */
#ifndef ENGINE_LOG_H
#define ENGINE_LOG_H

/* Those of lib/ go to rte_log from now on. */
void eng_log_init(void);

#endif /* ENGINE_LOG_H */
