/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Describes memory that this program registers to the engine: pieces (struct karst_ctl_piece), each
 * reached by one of the methods in doc/memory.rst.
 *
 * Any thread, also two with ranges that overlap.  After fork() the child's memory is private to it
 * again, and nothing is registered.
 */
#ifndef KARST_CLIENT_MEMORY_H
#define KARST_CLIENT_MEMORY_H

#include "karst_ctl.h"

/** The resources that a registration holds for [addr, addr + len) until it ends. */
struct karst_memory {
	unsigned int npieces;
	unsigned int nfds;
	struct karst_ctl_piece *piece; /* [npieces], as struct karst_ctl_reg_mr_req requires */
	int fds[KARST_CTL_MAX_FDS];    /* [nfds], sent with that message; the caller must not
				        * close them */
};

/*
 * The lock of registrations: held while a registration that karst_memory_stale() can return changes
 * or ends.  In a child of fork() no thread holds it.
 */
void karst_memory_lock(void);
void karst_memory_unlock(void);

/**
 * Reads the program's mappings, migrates private memory into shared pages where that is worth it
 * (@migrate_min: ranges of at least this many bytes; UINT64_MAX: never), and says how to reach each
 * piece.
 * @write: the engine will write there (local write, remote write or atomic access).
 * @why (KARST_CTL_WHY bytes) receives the reason for a failure.
 * -EINVAL: the range wraps around; -EFAULT: there is no memory, or it cannot be read, or cannot be
 * written; -ENOMEM.
 */
int karst_memory_get(const void *addr, size_t len, bool write, uint64_t migrate_min,
	struct karst_memory **m, char *why);

/**
 * The same for on-demand memory, whose pages are looked up when they are used, however often the
 * program maps something else there.  All of it is copied, and nothing has to be mapped yet.
 * -EINVAL, -ENOMEM.
 */
int karst_memory_get_on_demand(
	const void *addr, size_t len, bool write, struct karst_memory **m, char *why);

/**
 * Under karst_memory_lock(): the engine has registered the memory.  karst_memory_stale() returns
 * @owner when the registration of adjacent memory makes it possible to reach more of it without
 * copying.
 */
void karst_memory_settle(struct karst_memory *m, void *owner);
/**
 * Under karst_memory_lock(): returns the owner of a registration for which that has become
 * possible; NULL: none is left.
 */
void *karst_memory_stale(void);
/**
 * Scans the range of @old again and returns a new list of pieces.  After the engine has switched to
 * it, the caller can put @old.  Errors as karst_memory_get().
 */
int karst_memory_rescan(const struct karst_memory *old, struct karst_memory **m, char *why);

/** In a child of fork(): see fork.c. */
void cli_memory_forget(void);

/**
 * The engine does not use the range any more, or never did.  Migrated memory is restored if this
 * was its last registration and the program has not mapped something else there.
 */
void karst_memory_put(struct karst_memory *m);

#endif /* KARST_CLIENT_MEMORY_H */
