/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Memory of karst_alloc(), as registrations see it.  Under cli_pages_lock(). */
#ifndef KARST_CLIENT_ALLOC_H
#define KARST_CLIENT_ALLOC_H

#include "karst_base.h"

/**
 * Is the mapping at @addr a file of huge pages that karst_alloc() made?
 * @return its descriptor, and *start, the address of its first byte; else -1.
 */
int cli_alloc_huge(uint64_t addr, uint64_t *start);

/**
 * In a forked child: marks the allocations as the parent's; no further allocations are made from
 * them.
 */
void cli_alloc_inherit(void);

#endif /* KARST_CLIENT_ALLOC_H */
