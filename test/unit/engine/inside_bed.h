/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Copies of a program's memory that take long, or for ever, in the engine of space_bed.h. */
#ifndef INSIDE_BED_H
#define INSIDE_BED_H

#include "space_bed.h"

#define PATIENCE_NS 120000000000ull
#define NEVER_BYTES 65536u /* of memory whose pages never become available */

/** Copies of the program's memory that have started and not ended. */
uint32_t space_copies(const struct rig *rig);
void poll_a_while(struct rig *rig);

/** Makes a region of pages that never become available. */
void never_region(struct rig *rig, struct region *r);
/** The same in memory of @p, for an attachment of its own: returns the key. */
uint32_t never_of(struct rig *rig, struct program *p, struct karst_space **s, uint64_t *addr);
/** The same for memory at @addr that never_of() or never_region() has made. */
uint32_t attach_never(struct rig *rig, struct program *p, uint64_t addr, struct karst_space **s);
/** Posts atomics to both lcores, which have to wait for the page at @addr, until both threads are
 * written off. */
void stick(struct rig *rig, uint64_t addr, uint32_t key);
/** Posts a WRITE of another queue pair of lcore 0 to memory of the program. */
void write_more(struct rig *rig, uint64_t addr, uint32_t key);

#endif /* INSIDE_BED_H */
