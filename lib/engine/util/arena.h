/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory of an engine's objects and rings: dense, cache-line aligned, on huge pages if available.
 * For the control path only, one thread at a time.
 *
 * Allocations are rounded up to a size class (multiples of 64 bytes up to 4 KiB, then eight steps
 * to each doubling) and cut off the end of a chunk of some MiB, so that objects of one kind that
 * are created in sequence are adjacent.  A freed block goes to its class's list and is reused, last
 * in, first out.  A block larger than a quarter of a chunk has a chunk of its own.
 *
 * A chunk is private memory, or, for rings that another process shares, a memory file that is
 * sealed against every change of its size: a process that maps it can write anything to it.  It
 * could still punch holes, and a thread that accesses the file meanwhile waits in the kernel for as
 * long as that takes: a control thread, or an lcore.  A seal against that (F_SEAL_FUTURE_WRITE)
 * keeps existing mappings and prevents new ones.  So an arena whose files are to be sealed
 * (eng_arena_seal_files()) only creates a new file and fails; it has the memory when the other
 * process has mapped the file and eng_arena_sealed() was called (doc/adr/0021).
 *
 * As the other process can write to chunks, they contain nothing about the arena itself: free
 * blocks are described by records in private memory.  A chunk of a file keeps its number, since the
 * other process has mapped it, and the number is never reused.  When the limit is reached, chunks
 * without used blocks serve other sizes, or, if none is large enough, are freed to make room for a
 * larger one.
 */
#ifndef ENGINE_ARENA_H
#define ENGINE_ARENA_H

#include <sys/queue.h>

#include "karst_base.h"
#include "share.h"

/* Up to 2^40 bytes; larger blocks are possible only in private memory, where they are not kept. */
#define ARENA_CLASSES 288

struct arena_chunk;
struct arena_block;
struct arena_slab;
LIST_HEAD(arena_blocks, arena_block);

struct arena {
	struct arena_chunk *chunks; /* newest first */
	uint8_t *next;              /* unused rest of the newest chunk with several blocks */
	uint8_t *end;
	size_t chunk_bytes;  /* size of the next chunk: they grow */
	uint64_t mapped;     /* bytes taken from the system */
	uint64_t used;       /* bytes allocated, rounded up */
	const char *file;    /* name of memory files; NULL: private memory */
	uint64_t max_mapped; /* of memory files; 0: no limit */
	uint64_t left;       /* bytes of freed sealed files, which the other process may keep */
	bool seal;           /* files are to be sealed, */
	bool sealed_only;    /* and new files are not used before that */
	/* account that memory files are charged to; NULL: none */
	struct eng_share *share;
	bool share_refused;   /* the last file was refused because of the share */
	uint32_t next_number; /* of the next memory file */
	bool tight;           /* the limit was reached once */
	uint64_t nblocks;     /* blocks ever cut off that are kept when they are freed */
	uint64_t nrecords;    /* records, at least nblocks */
	struct arena_slab *slabs;
	struct arena_blocks spare; /* unused records */
	struct arena_blocks free[ARENA_CLASSES];
};

/** Initializes an arena of private memory. */
void eng_arena_init(struct arena *a);

/** Initializes an arena of sealed memory files named @name (which the caller keeps), together at
 *  most @max_bytes, rounded up to 2 MiB; 0: no limit. */
void eng_arena_init_files(struct arena *a, const char *name, uint64_t max_bytes);

/** @return @size zeroed bytes, cache-line aligned; NULL: no memory, or the limit is reached. */
void *eng_arena_alloc(struct arena *a, size_t size);

/**
 * The same in two steps, of which the second may take long.  Between them other blocks may be taken
 * and freed, and any thread may make blocks of private memory ready; blocks of memory files are
 * made ready by one thread at a time.  @stale: for the second step.
 */
void *eng_arena_take(struct arena *a, size_t size, bool *stale);
void eng_arena_ready(struct arena *a, void *p, size_t size, bool stale);

/** Bytes that an allocation of @size occupies. */
uint64_t eng_arena_bytes(size_t size);

/** Frees what eng_arena_alloc() with the same @size returned; NULL is ignored. */
void eng_arena_free(struct arena *a, void *p, size_t size);

/** To be called first: files are to be sealed. */
void eng_arena_seal_files(struct arena *a);
/** The other process may have descriptors of the files from now on.  New files are not used before
 *  they are sealed; existing files must not be accessed before they are sealed. */
void eng_arena_shared(struct arena *a);

/** Finds a file that is not sealed.  -ENOENT: there is none. */
int eng_arena_unsealed(const struct arena *a, uint32_t *number);

/** File @number has the seal. */
void eng_arena_sealed(struct arena *a, uint32_t number);

/** Finds the memory file that contains @p, and the offset.  -EINVAL: none does. */
int eng_arena_find(const struct arena *a, const void *p, uint32_t *number, uint64_t *off);

/** The descriptor, which the arena closes, and the size of memory file @number.  -EINVAL */
int eng_arena_file(const struct arena *a, uint32_t number, int *fd, uint64_t *bytes);

/** Returns everything to the system. */
void eng_arena_fini(struct arena *a);

#endif /* ENGINE_ARENA_H */
