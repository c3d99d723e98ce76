/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The program's shared pages: one memory file for all memory of karst_alloc() and all migrated
 * memory, so that thousands of regions need one descriptor.
 *
 * The functions take no lock; callers hold cli_pages_lock(), the one lock of registered memory.
 */
#ifndef KARST_CLIENT_PAGES_H
#define KARST_CLIENT_PAGES_H

#include "karst_base.h"
#include "karst_vma.h"

/** A range of the file. */
struct cli_block {
	uint64_t off;      /* of its first byte */
	uint64_t len;      /* as asked for */
	uint64_t reserved; /* size of the block in the file */
};

void cli_pages_lock(void);
void cli_pages_unlock(void);
/** Around fork(): see fork.c. */
void cli_pages_lock_reset(void);

/** Returns the descriptor of the file, which is created at the first call; or -errno. */
int cli_pages_fd(void);

/** Is this a mapping of the file? */
bool cli_pages_own(const struct karst_vma *vma);

/** Do all bytes from @off on have a page? */
bool cli_pages_exist(uint64_t off, uint64_t len);

/**
 * Takes @len bytes (whole pages, all zero) for addresses that begin at @addr.  The offset and @addr
 * agree in their low bits, so that huge pages can be used if the range has room for one.  -ENOMEM,
 * -errno
 */
int cli_pages_take(uint64_t len, uint64_t addr, struct cli_block *b);
/** Frees the block, which is no longer mapped or used. */
void cli_pages_give(const struct cli_block *b);

/**
 * Maps new memory at an address that is a multiple of CLI_HUGE plus @lead: shared pages of the
 * file, or private pages (@b NULL).  NULL: no memory.
 */
void *cli_pages_map(uint64_t len, uint64_t lead, const struct cli_block *b);

/** In a forked child: forgets the file, which is the parent's. */
void cli_pages_forget(void);

#endif /* KARST_CLIENT_PAGES_H */
