/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The program's shared pages: one memory file for all that karst_alloc() gives out and all private
 * memory that was moved, so that thousands of regions need one descriptor.
 *
 * Nothing here locks: cli_pages_lock() is the one lock of registered memory.
 */
#ifndef KARST_CLIENT_PAGES_H
#define KARST_CLIENT_PAGES_H

#include "karst_base.h"
#include "karst_vma.h"

/** A range of the file. */
struct cli_block {
	uint64_t off;      /* of its first byte */
	uint64_t len;      /* as asked for */
	uint64_t reserved; /* of the file */
};

void cli_pages_lock(void);
void cli_pages_unlock(void);
/** Around fork(): see fork.c. */
void cli_pages_lock_reset(void);

/** The file, made when first needed.  -errno */
int cli_pages_fd(void);

/** Is this mapping one of the file? */
bool cli_pages_own(const struct karst_vma *vma);

/** Have all bytes from @off on a page? */
bool cli_pages_exist(uint64_t off, uint64_t len);

/**
 * Takes @len bytes (whole pages, all zero) for addresses that begin at @addr: both agree in their
 * low bits, so that huge pages fit if there is room for one.  -ENOMEM, -errno
 */
int cli_pages_take(uint64_t len, uint64_t addr, struct cli_block *b);
/** Nobody looks at them any more; the memory is free. */
void cli_pages_give(const struct cli_block *b);

/** Maps new memory at an address that is a multiple of CLI_HUGE plus @lead: shared pages of the
 *  file, or private ones (@b NULL).  NULL: no memory. */
void *cli_pages_map(uint64_t len, uint64_t lead, const struct cli_block *b);

/** In a child: the file is the parent's. */
void cli_pages_forget(void);

#endif /* KARST_CLIENT_PAGES_H */
