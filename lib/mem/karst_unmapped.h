/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Unmapped memory: memory of another process that this process has not mapped, or not completely.
 *
 * A region with such pages is registered at host addresses whose highest bit is set; no pointer of
 * this process has that bit.  A check returns an address as for any other region.  A comparison of
 * its sign shows that it must not be dereferenced: the bytes are copied by the operations that the
 * driver supplies (struct karst_copy_ops in karst_copy.h).
 */
#ifndef KARST_UNMAPPED_H
#define KARST_UNMAPPED_H

#include "karst_base.h"

#define KARST_MEM_UNMAPPED (1ull << 63)

/** Lcore.  Whether @host, from a check, is unmapped memory and must not be dereferenced. */
static inline bool
karst_mem_is_unmapped(const void *host)
{
	return karst_unlikely((intptr_t)host < 0);
}

struct karst_mem;

/** Position of a walk through the table; all zero: at its beginning. */
struct karst_mem_walk {
	uint32_t at;
	uint32_t left; /* entries that could not be changed */
	/* windows are done: a region is revoked only when no window is bound to it */
	bool regions;
};

/**
 * Lcore.  Revokes all keys for whose memory @match returns true (its argument is the host address
 * of the first byte of a region or bound window, as registered): that memory has vanished.  Like an
 * invalidation, it does not wait for accesses that have passed their check.  Examines @n entries of
 * the table; the next call continues after them.
 * @return true: the walk is complete; the next call begins a new one.  w->left is the number of
 *   entries that another lcore was changing: the next walk revokes these.
 */
bool karst_mem_revoke(
	struct karst_mem *m, bool (*match)(const void *host), struct karst_mem_walk *w, uint32_t n);

#endif /* KARST_UNMAPPED_H */
