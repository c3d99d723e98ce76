/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The inline half of karst_mem.h: what runs for every packet that accesses memory.
 *
 * A key's upper 24 bits are a permutation, keyed with a secret, of (generation, slot).  The check
 * inverts it, reads the one cache line of that slot, and compares the whole key with the one that
 * is published there.
 *
 * An entry is published by its word: the key, a bit that says that the key may be used, the state,
 * and a sequence number that changes with every change of the word.  Nothing of a region changes
 * while a reader may use it (the two steps of deregistration ensure that).  But another lcore may
 * bind a window again at any time.  So a remote check reads the word again after the attributes,
 * and never combines attributes of two bindings:
 *
 *	reader				binder
 *	word	load acquire (A)	word	compare and swap: not usable
 *	attributes load acquire (B)	attributes store release (C)
 *	word	load: the same?		word	store release: usable (D)
 *
 * A pairs with D: a reader that sees the key sees its attributes.  B pairs with C: a reader that
 * sees an attribute of the next binding also sees that the word has changed.  On x86 all of these
 * are plain moves.
 */
#ifndef KARST_MEM_CHECK_H
#define KARST_MEM_CHECK_H

#include "karst_mem.h"

#define KARST_MEM_LIVE       (1ull << 32) /* the word's key may be used */
#define KARST_MEM_KEY_MASK   (KARST_MEM_LIVE | 0xffffffffull)
#define KARST_MEM_KEY_ROUNDS 3

/* A right that every region has and no window: the program's own requests may read it. */
#define KARST_MEM_LOCAL_READ (1u << 31)

/** A slot of the table; private except to the checks below. */
struct karst_mem_entry {
	uint64_t word;       /* 0..31 key, 32 live, 33..35 state, 36..63 sequence number */
	uint64_t base;       /* first address, as used by work requests and peers */
	uint64_t len;        /* base + len is at most 2^64 */
	uint64_t host;       /* host address of "base" */
	uint64_t owner;      /* PD << 32 | QPN (0 except for a type 2 window) */
	uint32_t rights;     /* enum karst_access, KARST_MEM_LOCAL_READ */
	uint32_t key;        /* the current key, whether usable or not */
	uint32_t bound;      /* region: number of windows bound to it, or BOUND_NONE: none may be */
	uint32_t mr_slot;    /* window: slot of the region that it is bound to */
	uint32_t generation; /* number of uses of the slot, modulo what fits in a key */
	uint8_t type;        /* enum karst_mem_type */
	uint8_t owner_shift; /* 0: PD and QPN must match; 32: only the PD */
	uint16_t reserved;
} karst_cache_aligned;

static_assert(sizeof(struct karst_mem_entry) == KARST_CACHE_LINE, "one entry, one line");
static_assert(offsetof(struct karst_mem_entry, word) == 0, "layout");
static_assert(offsetof(struct karst_mem_entry, owner) == 32, "layout");
static_assert(offsetof(struct karst_mem_entry, rights) == 40, "layout");
static_assert(offsetof(struct karst_mem_entry, bound) == 48, "layout");
static_assert(offsetof(struct karst_mem_entry, type) == 60, "layout");

struct karst_mem_ctl;

/* The first cache line contains all that a check needs besides the entry; it is constant after
 * init. */
struct karst_mem {
	struct karst_mem_entry *entry;
	uint32_t slot_mask;
	uint32_t inv_mul[KARST_MEM_KEY_ROUNDS];
	uint32_t xor [KARST_MEM_KEY_ROUNDS + 1]; /* low 8 bits are zero */
	struct karst_mem_ctl *ctl;
} karst_cache_aligned;

static_assert(sizeof(struct karst_mem) == KARST_CACHE_LINE, "one line");

/** Lcore.  The slot for @key.  The key need not be valid: the caller compares keys. */
karst_always_inline struct karst_mem_entry *
karst_mem_entry_of(const struct karst_mem *m, uint32_t key)
{
	uint32_t v = (key & ~0xffu) ^ m->xor [3];

	/* The operation "upper half of the 24 bits onto the lower" is its own inverse. */
	v ^= v >> 20 << 8;
	v = v * m->inv_mul[2] ^ m->xor [2];
	v ^= v >> 20 << 8;
	v = v * m->inv_mul[1] ^ m->xor [1];
	v ^= v >> 20 << 8;
	v = v * m->inv_mul[0] ^ m->xor [0];
	return &m->entry[(v >> 8) & m->slot_mask];
}

/** Lcore.  Prefetches what a check of @key will read; any value of @key is allowed. */
karst_always_inline void
karst_mem_prefetch(const struct karst_mem *m, uint32_t key)
{
	__builtin_prefetch(karst_mem_entry_of(m, key));
}

/* Whether [va, va + len) is inside [base, base + size).  Neither range can wrap around. */
karst_always_inline bool
karst_mem_in_range(uint64_t base, uint64_t size, uint64_t va, uint64_t len)
{
	uint64_t offset = va - base; /* huge if va is below base, because base + size fits */

	return offset <= size && len <= size - offset;
}

/** Lcore.  See karst_mem.h.  A window's key is KARST_MEM_BAD_ACCESS. */
karst_always_inline enum karst_mem_status
karst_mem_check_local(const struct karst_mem *m, uint32_t pd, uint32_t key, uint64_t va,
	uint32_t len, unsigned int access, uint8_t **host)
{
	const struct karst_mem_entry *e = karst_mem_entry_of(m, key);
	uint64_t word = __atomic_load_n(&e->word, __ATOMIC_ACQUIRE); /* A */
	uint32_t rights;
	uint64_t base;

	/* The word is not read again: only windows change under a reader, and no window has the
	 * right to be read locally. */
	if (karst_unlikely((word & KARST_MEM_KEY_MASK) != (KARST_MEM_LIVE | key)))
		return KARST_MEM_BAD_KEY;
	if (karst_unlikely(__atomic_load_n(&e->owner, __ATOMIC_RELAXED) >> 32 != pd))
		return KARST_MEM_BAD_PD;
	access |= KARST_MEM_LOCAL_READ;
	rights = __atomic_load_n(&e->rights, __ATOMIC_RELAXED);
	if (karst_unlikely((rights & access) != access))
		return KARST_MEM_BAD_ACCESS;
	base = __atomic_load_n(&e->base, __ATOMIC_RELAXED);
	if (karst_unlikely(
		    !karst_mem_in_range(base, __atomic_load_n(&e->len, __ATOMIC_RELAXED), va, len)))
		return KARST_MEM_BAD_RANGE;
	*host = (uint8_t *)(uintptr_t)(__atomic_load_n(&e->host, __ATOMIC_RELAXED) + (va - base));
	return KARST_MEM_OK;
}

/** Lcore.  See karst_mem.h.  Only FLUSH checks zero bytes (R12, R15). */
karst_always_inline enum karst_mem_status
karst_mem_check_remote(const struct karst_mem *m, uint32_t pd, uint32_t qpn, uint32_t key,
	uint64_t va, uint32_t len, unsigned int access, uint8_t **host)
{
	const struct karst_mem_entry *e = karst_mem_entry_of(m, key);
	uint64_t word = __atomic_load_n(&e->word, __ATOMIC_ACQUIRE); /* A */
	uint64_t owner, base, size, at;
	uint32_t rights;

	if (karst_unlikely((word & KARST_MEM_KEY_MASK) != (KARST_MEM_LIVE | key)))
		return KARST_MEM_BAD_KEY;
	owner = __atomic_load_n(&e->owner, __ATOMIC_ACQUIRE); /* these: B */
	rights = __atomic_load_n(&e->rights, __ATOMIC_ACQUIRE);
	base = __atomic_load_n(&e->base, __ATOMIC_ACQUIRE);
	size = __atomic_load_n(&e->len, __ATOMIC_ACQUIRE);
	at = __atomic_load_n(&e->host, __ATOMIC_ACQUIRE);
	if (karst_unlikely(__atomic_load_n(&e->word, __ATOMIC_RELAXED) != word))
		return KARST_MEM_BAD_KEY;
	if (karst_unlikely((owner ^ ((uint64_t)pd << 32 | qpn)) >> e->owner_shift != 0))
		return KARST_MEM_BAD_PD;
	if (karst_unlikely((rights & access) != access))
		return KARST_MEM_BAD_ACCESS;
	if (karst_unlikely(!karst_mem_in_range(base, size, va, len)))
		return KARST_MEM_BAD_RANGE;
	*host = (uint8_t *)(uintptr_t)(at + (va - base));
	return KARST_MEM_OK;
}

/** Lcore.  First address of the region or window of @key, for a check of that key; any value if the
 *  key matches nothing. */
karst_always_inline uint64_t
karst_mem_base_of(const struct karst_mem *m, uint32_t key)
{
	return __atomic_load_n(&karst_mem_entry_of(m, key)->base, __ATOMIC_RELAXED);
}

/** Lcore.  Bytes of the region or window of a @key that a check has just accepted. */
karst_always_inline uint64_t
karst_mem_size_of(const struct karst_mem *m, uint32_t key)
{
	return __atomic_load_n(&karst_mem_entry_of(m, key)->len, __ATOMIC_RELAXED);
}

/*
 * Atomics.  Release: an application that sees the value also sees what the connection wrote before
 * (R14); pairs with its acquire load.  Acquire: nothing that the connection does next happens
 * before; pairs with the release of the thread that wrote the old value.
 */

/** Lcore.  Compare and swap at @host (8-aligned); returns the value before. */
karst_always_inline uint64_t
karst_mem_cas(uint8_t *host, uint64_t compare, uint64_t swap)
{
	assert(((uintptr_t)host & 7) == 0);
	__atomic_compare_exchange_n((uint64_t *)(void *)host, &compare, swap, false,
		__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return compare;
}

/** Lcore.  Fetch and add at @host (8-aligned); returns the value before. */
karst_always_inline uint64_t
karst_mem_faa(uint8_t *host, uint64_t add)
{
	assert(((uintptr_t)host & 7) == 0);
	return __atomic_fetch_add((uint64_t *)(void *)host, add, __ATOMIC_ACQ_REL);
}

/** Lcore.  Stores the 8 @bytes, of any alignment, at @host (8-aligned) at once. */
karst_always_inline void
karst_mem_store8(uint8_t *host, const uint8_t *bytes)
{
	uint64_t v;

	assert(((uintptr_t)host & 7) == 0);
	memcpy(&v, bytes, sizeof(v));
	__atomic_store_n((uint64_t *)(void *)host, v, __ATOMIC_RELEASE);
}

#endif /* KARST_MEM_CHECK_H */
