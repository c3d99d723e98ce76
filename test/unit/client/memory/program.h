/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program that registers memory: a child process that does what the test tells it, through the
 * same calls that libkarst makes.
 *
 * The program has one range of memory at a time, with guard bytes on both sides where the kind of
 * memory allows it.  The range is filled with a pattern that starts with a seed.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <sys/types.h>

#include "karst_ctl.h"

enum kind {
	KIND_ALLOC,        /* karst_alloc() */
	KIND_ALLOC_SMALL,  /* less than a page of it */
	KIND_MALLOC,       /* large: a mapping of its own */
	KIND_MALLOC_HEAP,  /* large, between others on the heap */
	KIND_MALLOC_SMALL, /* some bytes */
	KIND_ANONYMOUS,    /* mmap(), never touched */
	KIND_THP,          /* with transparent huge pages */
	KIND_STACK,
	KIND_DATA,
	KIND_BSS,
	KIND_RDONLY_FILE, /* PROT_READ of a memory file that is open for reading */
	KIND_PRIVATE_FILE,
	KIND_SHARED_FILE,
	KIND_MEMFD,
	KIND_SYSV,
	KIND_POSIX_SHM,
	KIND_HUGETLB,         /* shared, a file of huge pages */
	KIND_HUGETLB_PRIVATE, /* MAP_PRIVATE | MAP_HUGETLB */
	KIND_MIXED,           /* private, shared, a file, private: adjacent */
	KIND_COUNT,
};

enum { EDGE = 64 }; /* number of guard bytes */

struct program {
	pid_t pid;
	int pidfd;
	int sock;
};

/* The program's answer to a registration. */
struct program_pieces {
	unsigned int n;
	unsigned int nfds;
	int fds[KARST_CTL_MAX_FDS];
	struct karst_ctl_piece piece[KARST_CTL_MAX_PIECES];
	char why[KARST_CTL_WHY];
};

/** Starts the child; call this before the test has threads.  @uid: the user that the child
 * becomes. */
void program_start(struct program *p, uid_t uid);
/** Ends the child, which must not have crashed whatever it did. */
void program_end(struct program *p);
/** Kills the child (SIGKILL), and waits until it is gone. */
void program_kill(struct program *p);

/** Makes the range. *len: its length. -EOPNOTSUPP: this machine has no such memory. */
int program_make(struct program *p, enum kind kind, uint64_t *addr, uint64_t *len);

/** Registers [addr, addr + len); the caller owns out->fds. */
int program_register(struct program *p, uint64_t addr, uint64_t len, bool write,
	uint64_t migrate_min, struct program_pieces *out);
/** Ends the oldest registration. */
int program_deregister(struct program *p);

/** Fills the whole range with the pattern of @seed. */
void program_fill(struct program *p, unsigned int seed);
/** Tells whether [off, off + len) of the range has the pattern of @seed, shifted by @shift
 * bytes. */
bool program_shows(
	struct program *p, uint64_t off, uint64_t len, unsigned int seed, uint64_t shift);

/** In the program: munmap() of pages, truncation of its file to @len, mprotect(). */
int program_munmap(struct program *p, uint64_t addr, uint64_t len);
int program_truncate(struct program *p, uint64_t len);
int program_protect(struct program *p, uint64_t addr, uint64_t len, int prot);
/** Makes memory of @len bytes, once in a program: an access to it waits until the program ends. */
int program_never(struct program *p, uint64_t len, uint64_t *addr);
/** Makes writers to pages of the range wait, as while libkarst migrates them; lets them go on. */
int program_hold_writers(struct program *p, uint64_t addr, uint64_t len);
int program_release_writers(struct program *p, uint64_t addr, uint64_t len);
/** Tells whether @addr is in a private anonymous mapping. */
bool program_is_private(struct program *p, uint64_t addr);

/** The pattern: byte @i of @seed. */
static inline uint8_t
program_byte(unsigned int seed, uint64_t i)
{
	return (uint8_t)(i * 7 + (i >> 8) * 13 + (i >> 16) * 29 + seed * 101);
}

#endif /* PROGRAM_H */
