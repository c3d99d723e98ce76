/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the engine must know of memory that this program registers: pieces (struct
 * karst_ctl_piece), each reached in one of the ways that doc/memory.rst describes.
 *
 * Any thread, also two with ranges that overlap.  After fork() the child has its own memory
 * again, and nothing registered.
 */
#ifndef KARST_CLIENT_MEMORY_H
#define KARST_CLIENT_MEMORY_H

#include "karst_ctl.h"

/** What a registration holds of [addr, addr + len) until it ends. */
struct karst_memory {
	unsigned int npieces;
	unsigned int nfds;
	struct karst_ctl_piece *piece; /* [npieces], as struct karst_ctl_reg_mr_req wants them */
	int fds[KARST_CTL_MAX_FDS];    /* [nfds], beside that message; not the caller's to close */
};

/*
 * The lock of those who register: held while a registration that is known to karst_memory_stale()
 * changes or ends.  In a child of fork() nobody holds it.
 */
void karst_memory_lock(void);
void karst_memory_unlock(void);

/**
 * Looks at the program's mappings, moves private memory into shared pages where that is worth it
 * (@migrate_min: from so many bytes on; UINT64_MAX: never), and says how to reach each piece.
 * @write: the engine will write there (local write, remote write or atomic access).
 * @why (KARST_CTL_WHY bytes) says what was wrong.
 * -EINVAL: the range wraps around; -EFAULT: no memory there, or none that may be read, or
 * written; -ENOMEM.
 */
int karst_memory_get(const void *addr, size_t len, bool write, uint64_t migrate_min,
	struct karst_memory **m, char *why);

/**
 * The same for memory that is looked at when it is used, however often the program maps something
 * else there: all of it is copied, and nothing need be there yet.  -EINVAL, -ENOMEM.
 */
int karst_memory_get_on_demand(
	const void *addr, size_t len, bool write, struct karst_memory **m, char *why);

/**
 * Under karst_memory_lock(): the engine has it.  @owner is what karst_memory_stale() will say,
 * should a neighbour's registration make it possible to reach more of it without copying.
 */
void karst_memory_settle(struct karst_memory *m, void *owner);
/** Under karst_memory_lock(): the owner of one for which that came true; NULL: none is left. */
void *karst_memory_stale(void);
/** Looks at the range of @old again, for the engine to reach it as the new list says; then @old can
 *  be put.  Errors as karst_memory_get(). */
int karst_memory_rescan(const struct karst_memory *old, struct karst_memory **m, char *why);

/** In a child of fork(): see fork.c. */
void cli_memory_forget(void);

/** The engine does not touch the range any more, or never did: what was moved goes back, if this
 *  was its last registration and the program has not put something else there. */
void karst_memory_put(struct karst_memory *m);

#endif /* KARST_CLIENT_MEMORY_H */
