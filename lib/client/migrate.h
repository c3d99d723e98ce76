/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Private memory that is moved into shared pages, and back.  Under cli_pages_lock(). */
#ifndef KARST_CLIENT_MIGRATE_H
#define KARST_CLIENT_MIGRATE_H

#include <sys/queue.h>

#include "pages.h"

/** A range that was moved; belongs to the registrations that refer to it. */
struct cli_migrated {
	uint64_t start; /* address */
	struct cli_block block;
	uint32_t refs;
	LIST_ENTRY(cli_migrated) next;
};

/**
 * Moves [start, start + len), whole pages of one private anonymous mapping that can be read and
 * written, into shared pages at the same addresses, while other threads go on using it.
 * One reference is the caller's.  NULL: it cannot be done, and nothing has changed.
 */
struct cli_migrated *cli_migrate(uint64_t start, uint64_t len);

/** The moved range that byte @off of the file belongs to; NULL: none. */
struct cli_migrated *cli_migrated_find(uint64_t off);

/** Takes back a reference.  With the last one the range becomes private again, wherever the program
 *  has it mapped by now. */
void cli_migrated_put(struct cli_migrated *m);

/** How many there are. */
uint32_t cli_migrated_count(void);

/** In a child, alone: everything that was moved becomes a private copy. */
void cli_migrated_forget(void);

#endif /* KARST_CLIENT_MIGRATE_H */
