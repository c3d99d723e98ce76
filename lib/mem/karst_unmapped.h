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

/** Where in the table a walk is; all zero: at its beginning. */
struct karst_mem_walk {
	uint32_t at;
	uint32_t left; /* could not be taken */
	bool regions;  /* windows are done: a region is taken only when none is bound to it */
};

/**
 * Lcore.  Makes all keys unusable whose memory @match says yes to (the host address of the first
 * byte of a region or bound window, as registered): it has vanished.  Like an invalidation, it
 * does not wait for accesses that have passed their check.  Looks at @n entries of the table, and
 * goes on from there with the next call.
 * @return true: the walk is over, and begins anew with the next call.  w->left are those that
 * another lcore was changing: they are for the next walk.
 */
bool karst_mem_revoke(
	struct karst_mem *m, bool (*match)(const void *host), struct karst_mem_walk *w, uint32_t n);

#endif /* KARST_UNMAPPED_H */
