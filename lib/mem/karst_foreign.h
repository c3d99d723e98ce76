/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Foreign memory: bytes of another process that are not mapped here, or not all of them.
 *
 * A region with such bytes is registered at host addresses that have the highest bit set, which
 * no pointer of this process has.  So a check yields an address as for any other region, and one
 * compare of its sign tells that it must not be followed: the bytes go through the operations
 * that the driver has given (struct karst_foreign_ops in karst_qp.h).
 */
#ifndef KARST_FOREIGN_H
#define KARST_FOREIGN_H

#include "karst_base.h"

#define KARST_MEM_FOREIGN (1ull << 63)

/** Lcore.  Is @host, from a check, an address that must not be followed? */
static inline bool
karst_mem_is_foreign(const void *host)
{
	return karst_unlikely((intptr_t)host < 0);
}

struct karst_mem;

/**
 * Lcore.  Makes all keys unusable whose memory @match says yes to (the host address of the first
 * byte of a region or bound window, as registered): it has vanished.  Like an invalidation, it
 * does not wait for accesses that have passed their check.
 * @return how many it could not take because another lcore is changing them: call again.
 */
uint32_t karst_mem_revoke(struct karst_mem *m, bool (*match)(const void *host));

#endif /* KARST_FOREIGN_H */
