/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Windows: ranges of addresses in this process that stand for memory of other processes.
 *
 * All windows are parts of one large range, which is reserved once and initially has no access
 * rights.  A table gives the window of each address in the range, for the lcores (unmapped.c) and
 * for the SIGBUS handler.
 */
#ifndef ENGINE_WINDOW_H
#define ENGINE_WINDOW_H

#include <stdatomic.h>

#include "karst_base.h"
#include "karst_unmapped.h"

/* A part of a window with one access method. */
struct eng_piece {
	uint64_t off; /* offset of its first byte in the window */
	uint64_t len;
	uint32_t page; /* page size of the mapping; 0: none, bytes are copied */
	bool writable;
	bool migrated;
	bool on_demand; /* copied, and its pages may not exist yet */
};

struct eng_window {
	uint8_t *base;     /* its first address */
	uint64_t remote;   /* address of base in the other process */
	uint64_t bytes;    /* length that pieces cover, from base on */
	uint64_t reserved; /* a power of two; base is a multiple of it */
	void *owner;       /* struct karst_space */
	/* called by the SIGBUS handler, so it takes no locks and allocates nothing */
	void (*broken)(struct eng_window *w);
	unsigned int npieces;
	struct eng_piece *piece; /* sorted, without gaps */
};

/* To be called once in a process: reserves the range.  -ENOMEM */
int eng_window_init(void);

/**
 * Allocates addresses for w->bytes bytes; the first is a multiple of @align (a power of two) plus
 * @lead.  Sets w->base and w->reserved.  -ENOMEM
 */
int eng_window_alloc(struct eng_window *w, uint64_t align, uint64_t lead);

/* Maps @len bytes of @fd from @off on over a part of a window.  @return false: it could not be
 * mapped, or some of its pages do not exist; nothing has changed. */
bool eng_window_map(void *at, uint64_t len, uint32_t page, int fd, uint64_t off, bool write);

/* Unmaps everything in the window and frees its addresses. */
void eng_window_free(struct eng_window *w);

/* The window that contains an address without KARST_MEM_UNMAPPED; NULL: none. */
struct eng_window *eng_window_of(const void *p);

struct karst_space;
/* Any thread: calls @fn for the owner of the window that contains @p; the window stays until @fn
 * returns.  @return false: there is none. */
bool eng_window_tell(const void *p, void (*fn)(struct karst_space *owner, void *arg), void *arg);

/* The piece that contains byte @off of the window. */
const struct eng_piece *eng_window_piece(const struct eng_window *w, uint64_t off);

/* How often the SIGBUS handler of the process has put zeros in place of pages that were taken away.
 * To be read only by eng_window_breaks(). */
extern _Atomic unsigned int eng_window_broken;

static inline unsigned int
eng_window_breaks(void)
{
	/* after the caller's reads of windows; pairs with the handler, which counts first and then
	 * maps */
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&eng_window_broken, memory_order_relaxed);
}

#endif /* ENGINE_WINDOW_H */
