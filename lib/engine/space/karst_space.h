/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Access of the engine to another process's memory.
 *
 * A region of a program becomes a *window* of as many addresses in the engine.  Pieces that the two
 * processes can share (a memory file, a shared mapping of the program) are mapped there.  A piece
 * that must be copied has no pages in the window: the lcores copy its bytes (unmapped.c) through a
 * descriptor of the program's memory, in batches.  The transport sees plain host addresses in both
 * cases.
 *
 * A program can take pages away that the engine uses (by truncating a file that it shares).  Access
 * to such a page raises SIGBUS; the handler that the first space installs maps a zero page there
 * and marks the space as failed.  So the engine continues, and the session of that program fails.
 *
 * For control threads, one at a time for each space.
 */
#ifndef KARST_SPACE_H
#define KARST_SPACE_H

#include <sys/types.h>

#include "karst_ctl.h"
#include "karst_engine.h"
#include "karst_space_opener.h"

struct karst_space;
struct karst_space_region;
struct eng_share;

/** @pidfd: of the program's process, from the kernel; it is duplicated.  -1: the kernel gave none,
 *  so that @pid may belong to another process by now.  -ESRCH: the process is gone. */
int karst_space_create(struct karst_engine *e, pid_t pid, int pidfd, uid_t uid, gid_t gid,
	struct karst_space **space);
/** @mem_fd: a descriptor of /proc/self/mem, which the program has opened for reading and writing,
 *  and sent; it is duplicated.  Without it nothing can be copied.  -EBADF: it is something else. */
int karst_space_reach(struct karst_space *s, int mem_fd, char *why);
/** Sets the function that opens files for the space that only the program's user may open; without
 *  one the engine opens them itself, as far as it may.  To be called before anything is mapped. */
void karst_space_set_opener(struct karst_space *s, const struct karst_space_opener *opener);
/** Charges the engine's addresses and the bytes that it maps to an account (share.h), which must
 *  outlive the space; without one, or with NULL, nothing is charged. */
void karst_space_charge(struct karst_space *s, struct eng_share *share);
/** Unmaps regions that still exist.  No key may refer to them any more
 *  (karst_engine_mr_dereg()). */
void karst_space_destroy(struct karst_space *s);

/**
 * Makes a window of @n pieces that cover [addr, addr + len).
 * @write: whether the engine will ever write there (local write, remote write or atomic access).
 * @why (KARST_CTL_WHY bytes) gets the reason of a failure.
 * -EINVAL: the pieces do not cover the range, or are not what the message says; -EFAULT: the
 * program has no such memory, or may not write there; -EPERM: it would have to be copied, and the
 * program has not sent a descriptor of its memory; -EACCES: a file that its user may not open in
 * this way; -EBADF: a descriptor of another kind of file; -ENOMEM.
 */
int karst_space_map(struct karst_space *s, uint64_t addr, uint64_t len, bool write,
	const struct karst_ctl_piece *pieces, unsigned int n, const int *fds, unsigned int nfds,
	struct karst_space_region **region, char *why);

/** To be called after the key that referred to it was removed (karst_engine_mr_dereg()). */
void karst_space_unmap(struct karst_space_region *r);

/** Address in the engine of the first byte, for karst_engine_mr_reg().  If some of the region is
 *  copied, it is an address of unmapped memory (karst_unmapped.h), which must not be
 *  dereferenced. */
void *karst_space_host(const struct karst_space_region *r);

/** Bytes by access method: shared, of these migrated, copied. */
void karst_space_bytes(
	const struct karst_space_region *r, uint64_t *shared, uint64_t *migrated, uint64_t *copied);

/** Whether the program has taken pages away that the engine uses, or copying failed because it is
 *  gone. */
bool karst_space_failed(const struct karst_space *s);
/** Whether an lcore has blocked at its doorbells.  If so, the space has failed, too, before or at
 *  that time. */
bool karst_space_silenced(const struct karst_space *s);

/** When the space fails, or is silenced, 1 is written to @fd, an eventfd that the space takes over.
 *  Copies may outlast karst_space_destroy(); @fd is closed with the last of them. */
void karst_space_watch(struct karst_space *s, int fd);

#endif /* KARST_SPACE_H */
