/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Migration of private memory into shared pages, and back.  Under cli_pages_lock(). */
#ifndef KARST_CLIENT_MIGRATE_H
#define KARST_CLIENT_MIGRATE_H

#include <sys/queue.h>

#include "pages.h"

/** A range that was migrated.  It belongs to the registrations that refer to it. */
struct cli_migrated {
	uint64_t start; /* address */
	struct cli_block block;
	uint32_t refs;
	LIST_ENTRY(cli_migrated) next;
};

/**
 * Migrates [start, start + len) into shared pages at the same addresses, while other threads go on
 * using it.  The range consists of whole pages of one private anonymous mapping that can be read
 * and written.  The caller gets one reference.  NULL: the range cannot be migrated, and nothing has
 * changed.
 */
struct cli_migrated *cli_migrate(uint64_t start, uint64_t len);

/** Returns the migrated range that byte @off of the file belongs to; NULL: none. */
struct cli_migrated *cli_migrated_find(uint64_t off);

/**
 * Drops a reference.  When the last one is dropped, the range becomes private again, wherever the
 * program has mapped it by then.
 */
void cli_migrated_put(struct cli_migrated *m);

/** Returns the number of migrated ranges. */
uint32_t cli_migrated_count(void);

/** In a forked child, with one thread: makes all migrated memory a private copy. */
void cli_migrated_forget(void);

#endif /* KARST_CLIENT_MIGRATE_H */
