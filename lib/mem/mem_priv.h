/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Shared by the files of lib/mem: states of an entry, the control part of the table, keys.
 *
 * States (in the word; "usable" is the live bit):
 *
 *	FREE -> MR (usable) -> CLOSED (rereg: -> MR) -> FREE
 *	            `-> DEAD (invalidated) -> CLOSED
 *	FREE -> UNBOUND <-> BUSY (an lcore binds) -> BOUND (usable) -> UNBOUND
 *	            `-> CLOSED -> FREE                 `-> BUSY (type 1), CLOSED
 *
 * Which thread may change a word: control changes a FREE, CLOSED or DEAD one by a store.  The word
 * of a region is changed by the thread that set BOUND_NONE in its "bound".  The word of a window is
 * changed by a thread that swaps the value it has read for another one, and by the owner of BUSY by
 * a store.
 */
#ifndef KARST_MEM_PRIV_H
#define KARST_MEM_PRIV_H

#include "karst_mem.h"

enum mem_state {
	MEM_FREE,
	MEM_MR,
	MEM_DEAD,
	MEM_UNBOUND,
	MEM_BUSY,
	MEM_BOUND,
	MEM_CLOSED,
};

#define MEM_STATE_SHIFT 33
#define MEM_SEQ_SHIFT   36

/* In "bound": no window may be bound.  Set for all entries except usable regions. */
#define BOUND_NONE (1u << 31)

/* Counters of bound type 2 windows by hash of the QPN. */
#define MEM_QP_BUCKETS 4096u

struct mem_pd {
	uint32_t refs; /* regions, windows, users */
	bool used;
};

/* A queue, first in, first out. */
struct mem_fifo {
	uint32_t *item;
	uint32_t size;
	uint32_t head;
	uint32_t count;
};

struct karst_mem_ctl {
	uint64_t seed[2];
	uint32_t mul[KARST_MEM_KEY_ROUNDS];
	unsigned int slot_bits;
	uint32_t max_pds;
	uint32_t used[KARST_MEM_MW2 + 1]; /* slots by enum karst_mem_type */
	struct mem_fifo slots;            /* free slots, the longest free first */
	struct mem_fifo pds;
	struct mem_pd *pd;    /* [max_pds + 1]; 0 is not used */
	uint32_t *qp_windows; /* [MEM_QP_BUCKETS], changed by lcores */
	/* [slots]: the QP that last bound the type 2 window in the slot, changed by lcores */
	uint32_t *binder;
};

/* Control waits for an lcore that is about to do a store. */
static inline void
mem_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline enum mem_state
mem_state(uint64_t word)
{
	return (enum mem_state)((word >> MEM_STATE_SHIFT) & 7);
}

/* The word that follows @word: the next sequence number, state @s, not usable. */
static inline uint64_t
mem_word_next(uint64_t word, enum mem_state s)
{
	return ((word >> MEM_SEQ_SHIFT) + 1) << MEM_SEQ_SHIFT | (uint64_t)s << MEM_STATE_SHIFT;
}

/* The same, and @key may be used. */
static inline uint64_t
mem_word_live(uint64_t word, enum mem_state s, uint32_t key)
{
	return mem_word_next(word, s) | KARST_MEM_LIVE | key;
}

static inline uint64_t
mem_word_load(const struct karst_mem_entry *e)
{
	/* Acquire: pairs with the release of mem_word_store() and of the swaps. */
	return __atomic_load_n(&e->word, __ATOMIC_ACQUIRE);
}

static inline void
mem_word_store(struct karst_mem_entry *e, uint64_t word)
{
	/* Release: a thread that acquires the word sees what was written before (A, D). */
	__atomic_store_n(&e->word, word, __ATOMIC_RELEASE);
}

/* Derives the secrets of the keys from the seed. */
void mem_key_init(struct karst_mem *m);

/* The upper 24 bits of the key of (generation, slot); low byte 0. */
uint32_t mem_key_of(const struct karst_mem *m, uint32_t generation, uint32_t slot);

/* Advances a free slot to its next generation and gives it a key with a random low byte. */
void mem_key_renew(struct karst_mem *m, struct karst_mem_entry *e);

/* A key with a random low byte that differs from the present one. */
uint32_t mem_key_next_low(const struct karst_mem *m, const struct karst_mem_entry *e);

static inline uint32_t
mem_slot_of(const struct karst_mem *m, const struct karst_mem_entry *e)
{
	return (uint32_t)(e - m->entry);
}

bool mem_pd_valid(const struct karst_mem *m, uint32_t pd);

/* Control.  Takes a free slot and gives it a key; NULL if there is none. */
struct karst_mem_entry *mem_slot_alloc(struct karst_mem *m, uint32_t pd, enum karst_mem_type type);

/* Control.  Gives back a closed slot. */
void mem_slot_free(struct karst_mem *m, struct karst_mem_entry *e);

#endif /* KARST_MEM_PRIV_H */
