/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Unmapped memory: memory of another process of which this process has no mapping, or not of all
 * its pages.
 *
 * A region with such pages is registered at host addresses whose highest bit is set, which no
 * pointer of this process has.  A check returns an address as for any other region, and a compare
 * of its sign tells that it must not be dereferenced: the bytes are copied by the operations that
 * the driver has given (struct karst_copy_ops in karst_copy.h).
 */
#ifndef KARST_UNMAPPED_H
#define KARST_UNMAPPED_H

#include "karst_base.h"

#define KARST_MEM_UNMAPPED (1ull << 63)

/** Lcore.  Must @host, from a check, not be dereferenced, since the memory is unmapped? */
static inline bool
karst_mem_is_unmapped(const void *host)
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

#endif /* KARST_UNMAPPED_H */
