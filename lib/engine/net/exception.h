/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Frames that no queue pair gets. */
#ifndef ENGINE_EXCEPTION_H
#define ENGINE_EXCEPTION_H

#include "lcore.h"

/* eng_lcore_hooks.exception */
void eng_exception(struct eng_lcore *lc, uint8_t port, struct rte_mbuf *m, enum karst_drop why);

#endif /* ENGINE_EXCEPTION_H */
