/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory of an engine's objects and rings: dense, cache-line aligned, on huge pages if there
 * are any.  Control path only, one thread at a time.
 *
 * Allocations are rounded up to a size class (multiples of 64 bytes up to 4 KiB, then eight steps
 * to each doubling) and cut off the end of a chunk of some MiB, so that objects of one kind that
 * are created one after another are neighbours.  What is freed goes to its class's list and is
 * used again, last in, first out.  What is larger than a quarter of a chunk has a chunk of its
 * own.
 *
 * A chunk is private memory, or, for rings that another process shares, a memory file that is
 * sealed against every change of its size: whoever maps it can write what it likes.  It could still
 * punch holes, and who touches the file meanwhile waits in the kernel for as long as that takes: a
 * control thread, or an lcore.  A seal against that (F_SEAL_FUTURE_WRITE) leaves mappings that
 * there are and refuses new ones.  So an arena whose files are to be sealed
 * (eng_arena_seal_files()) only makes a new file and fails, and has its memory when the other
 * process has mapped the file and eng_arena_sealed() is told (doc/adr/0021).
 *
 * For the other process's sake nothing about the arena itself stands in a chunk: what is free is
 * known from records beside it.  A chunk of a file keeps its number, since the other process has
 * mapped it, and no other is ever given that.  When the limit is reached, chunks in which nothing
 * is used serve other sizes, or, if none is large enough, make room for one that is.
 */
#ifndef ENGINE_ARENA_H
#define ENGINE_ARENA_H

#include <sys/queue.h>

#include "karst_base.h"
#include "share.h"

/* Up to 2^40 bytes; more is possible in private memory only, where it is not kept. */
#define ARENA_CLASSES 288

struct arena_chunk;
struct arena_block;
struct arena_slab;
LIST_HEAD(arena_blocks, arena_block);

struct arena {
	struct arena_chunk *chunks; /* newest first */
	uint8_t *next;              /* unused rest of the newest chunk that is shared out */
	uint8_t *end;
	size_t chunk_bytes;  /* of the next chunk: they grow */
	uint64_t mapped;     /* bytes taken from the system */
	uint64_t used;       /* bytes handed out, rounded up */
	const char *file;    /* name of memory files; NULL: private memory */
	uint64_t max_mapped; /* of memory files; 0: no limit */
	uint64_t left;    /* of sealed files that were let go, which the other process may keep */
	bool seal;        /* files are to be sealed, */
	bool sealed_only; /* and new ones are not used before that */
	/* whose account memory files are charged to; NULL: nobody's */
	struct eng_share *share;
	bool share_refused;   /* the last file that was wanted was too much for it */
	uint32_t next_number; /* of the next memory file */
	bool tight;           /* the limit was reached once */
	uint64_t nblocks;     /* that were ever cut off and are kept when they are freed */
	uint64_t nrecords;    /* at least as many */
	struct arena_slab *slabs;
	struct arena_blocks spare; /* records that describe nothing */
	struct arena_blocks free[ARENA_CLASSES];
};

/** Of private memory. */
void eng_arena_init(struct arena *a);

/** Of sealed memory files named @name (the caller's to keep), together at most @max_bytes, rounded
 *  up to 2 MiB; 0: no limit. */
void eng_arena_init_files(struct arena *a, const char *name, uint64_t max_bytes);

/** @return @size zeroed bytes, cache-line aligned; NULL: no memory, or the limit. */
void *eng_arena_alloc(struct arena *a, size_t size);

/**
 * The same in two steps, of which the second may take long.  Between them other blocks may be taken
 * and given back, and those of private memory made ready, by whichever thread; of memory files only
 * one thread at a time makes any ready.  @stale: for the second step.
 */
void *eng_arena_take(struct arena *a, size_t size, bool *stale);
void eng_arena_ready(struct arena *a, void *p, size_t size, bool stale);

/** Bytes that @size takes up. */
uint64_t eng_arena_bytes(size_t size);

/** Gives back what eng_arena_alloc() with the same @size returned; NULL is ignored. */
void eng_arena_free(struct arena *a, void *p, size_t size);

/** First of all: files are to be sealed. */
void eng_arena_seal_files(struct arena *a);
/** The other process may have descriptors of them from now on.  Files that come now are not used
 *  before they are sealed; in those that there are nothing must be touched before. */
void eng_arena_shared(struct arena *a);

/** A file that is not sealed.  -ENOENT: there is none. */
int eng_arena_unsealed(const struct arena *a, uint32_t *number);

/** File @number has the seal. */
void eng_arena_sealed(struct arena *a, uint32_t number);

/** In which memory file, and where in it, @p lies.  -EINVAL: in none. */
int eng_arena_find(const struct arena *a, const void *p, uint32_t *number, uint64_t *off);

/** The descriptor, the arena's to close, and the size of memory file @number.  -EINVAL */
int eng_arena_file(const struct arena *a, uint32_t number, int *fd, uint64_t *bytes);

/** Gives everything back to the system. */
void eng_arena_fini(struct arena *a);

#endif /* ENGINE_ARENA_H */
