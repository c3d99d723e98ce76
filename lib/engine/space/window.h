/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Windows: ranges of addresses in this process that stand for memory of others.
 *
 * All are cut from one large range that is reserved once and never readable as such.  A table
 * says for each address of it whose window it is, for the lcores (unmapped.c) and for the SIGBUS
 * handler.
 */
#ifndef ENGINE_WINDOW_H
#define ENGINE_WINDOW_H

#include <stdatomic.h>

#include "karst_base.h"
#include "karst_unmapped.h"

/* How a part of a window is reached. */
struct eng_piece {
	uint64_t off; /* of its first byte in the window */
	uint64_t len;
	uint32_t page; /* of the mapping; 0: there is none, bytes are copied */
	bool writable;
	bool migrated;
	bool on_demand; /* copied, and perhaps not there yet */
};

struct eng_window {
	uint8_t *base;     /* its first address */
	uint64_t remote;   /* what that is in the other process */
	uint64_t bytes;    /* that pieces cover, from base on */
	uint64_t reserved; /* a power of two; base is a multiple of it */
	void *owner;       /* struct karst_space */
	/* called by the SIGBUS handler, so: no locks, no allocation */
	void (*broken)(struct eng_window *w);
	unsigned int npieces;
	struct eng_piece *piece; /* in order, without gaps */
};

/* Once in a process: reserves the range.  -ENOMEM */
int eng_window_init(void);

/**
 * Takes addresses for w->bytes bytes whose first is a multiple of @align (a power of two) plus
 * @lead; sets w->base and w->reserved.  -ENOMEM
 */
int eng_window_alloc(struct eng_window *w, uint64_t align, uint64_t lead);

/* Maps @len bytes of @fd from @off on over a part of a window.  false: it could not be mapped, or
 * some of its pages do not exist; nothing has changed. */
bool eng_window_map(void *at, uint64_t len, uint32_t page, int fd, uint64_t off, bool write);

/* Unmaps everything in the window and gives the addresses back. */
void eng_window_free(struct eng_window *w);

/* Which window an address without KARST_MEM_UNMAPPED is in; NULL: none. */
struct eng_window *eng_window_of(const void *p);

struct karst_space;
/* Any thread: tells @fn whose window @p is in; it stays until @fn returns.  false: nobody's. */
bool eng_window_tell(const void *p, void (*fn)(struct karst_space *owner, void *arg), void *arg);

/* The piece that byte @off of the window is in. */
const struct eng_piece *eng_window_piece(const struct eng_window *w, uint64_t off);

/* Of the process, as its handler is: how often that has put zeros in the place of pages that were
 * taken away.  Through eng_window_breaks() alone. */
extern _Atomic unsigned int eng_window_broken;

static inline unsigned int
eng_window_breaks(void)
{
	/* after the caller's reads of windows; pairs with the handler: it counts, then maps */
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&eng_window_broken, memory_order_relaxed);
}

#endif /* ENGINE_WINDOW_H */
