/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Another process's memory as the engine reaches it.
 *
 * A region of a program becomes a *window* of as many addresses in the engine.  Pieces that the
 * two processes can share (a memory file, a shared mapping of the program) are mapped there;
 * where a piece must be copied, the window has no pages, and the lcores take the bytes across
 * (unmapped.c) through a descriptor of the program's memory, batched.  The transport sees plain
 * host addresses in both cases.
 *
 * A program can take pages away under the engine (truncate a file that it shares).  Touching such
 * a page raises SIGBUS; the handler that the first space installs puts a zero page there and
 * marks the space as failed, so the engine goes on and the program that did it is thrown out.
 *
 * Control threads, one at a time for each space.
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

/** @pidfd: of the program's process, as the kernel says; it is duplicated.  -1: the kernel did not
 *  say, so that @pid may be somebody else's by now.  -ESRCH: the process is gone. */
int karst_space_create(struct karst_engine *e, pid_t pid, int pidfd, uid_t uid, gid_t gid,
	struct karst_space **space);
/** @mem_fd: a descriptor of /proc/self/mem, which the program has opened for reading and writing,
 *  and sent; it is duplicated.  Without it nothing is copied.  -EBADF: it is something else. */
int karst_space_reach(struct karst_space *s, int mem_fd, char *why);
/** Opens for the space, by calling @opener, what only the program's user may open; without that the
 *  engine does it itself, as far as it may.  Before anything is mapped. */
void karst_space_set_opener(struct karst_space *s, const struct karst_space_opener *opener);
/** Addresses of the engine and bytes that it maps are charged to an account (share.h), which
 *  outlives the space; without one, or NULL, to nobody. */
void karst_space_charge(struct karst_space *s, struct eng_share *share);
/** Regions that are left are unmapped.  No key must name one any more (karst_engine_mr_dereg()). */
void karst_space_destroy(struct karst_space *s);

/**
 * Makes a window of @n pieces that cover [addr, addr + len).
 * @write whether the engine will ever write there (local write, remote write or atomic access).
 * @why (KARST_CTL_WHY bytes) says what was wrong.
 * -EINVAL: pieces that do not cover the range, or are not what they say; -EFAULT: the program has
 * no such memory, or may not write there; -EPERM: it would have to be copied, and the program has
 * not sent a descriptor of its memory; -EACCES: a file that its user may not open so;
 * -EBADF: a descriptor of another file; -ENOMEM.
 */
int karst_space_map(struct karst_space *s, uint64_t addr, uint64_t len, bool write,
	const struct karst_ctl_piece *pieces, unsigned int n, const int *fds, unsigned int nfds,
	struct karst_space_region **region, char *why);

/** After the key that named it is gone (karst_engine_mr_dereg()). */
void karst_space_unmap(struct karst_space_region *r);

/** Address in the engine of the first byte, for karst_engine_mr_reg(): one of unmapped
 *  memory (karst_unmapped.h), not to be dereferenced, if some of the region is copied. */
void *karst_space_host(const struct karst_space_region *r);

/** Bytes by access method: shared, of these migrated, copied. */
void karst_space_bytes(
	const struct karst_space_region *r, uint64_t *shared, uint64_t *migrated, uint64_t *copied);

/** True once the program has taken pages away under the engine, or copying to it failed because
 *  it is gone. */
bool karst_space_failed(const struct karst_space *s);
/** Was an lcore stuck at its doorbells?  It has failed, too, before or then. */
bool karst_space_silenced(const struct karst_space *s);

/** When the space fails, or is silenced, 1 is written to @fd, an eventfd that becomes the space's
 *  own: copies may outlast karst_space_destroy(), and with the last of them it is closed. */
void karst_space_watch(struct karst_space *s, int fd);

#endif /* KARST_SPACE_H */
