/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Compiler and arithmetic helpers that every karst library uses.  Nothing here has state.
 */
#ifndef KARST_BASE_H
#define KARST_BASE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KARST_CACHE_LINE 64

#define karst_likely(x)     __builtin_expect(!!(x), 1)
#define karst_unlikely(x)   __builtin_expect(!!(x), 0)
#define karst_aligned(n)    __attribute__((aligned(n)))
#define karst_cache_aligned karst_aligned(KARST_CACHE_LINE)
#define karst_always_inline static inline __attribute__((always_inline))
#define karst_noinline      __attribute__((noinline))

/**
 * Prefetches the cache line of @p for writing.  The builtin becomes a prefetch for reading unless
 * the compiler may assume PREFETCHW, which every x86-64 decodes (some as no operation).
 */
karst_always_inline void
karst_prefetchw(const void *p)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

/**
 * Demotes the cache line of @p, which another processor reads next: moves it from this processor's
 * own caches to one that they share, from which the reader fetches it at half the cost.  A hint;
 * CLDEMOTE is no operation where it is unknown.  Not for a line that this processor is about to use
 * again.
 */
karst_always_inline void
karst_demote(const void *p)
{
#if defined(__x86_64__)
	__asm__ volatile("cldemote %0" : : "m"(*(const char *)p));
#else
	(void)p;
#endif
}

/** Number of elements of an array (not of a pointer). */
#define KARST_DIM(a) (sizeof(a) / sizeof((a)[0]))

/** The structure whose @member is at address @ptr. */
#define karst_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline uint32_t
karst_min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint64_t
karst_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t
karst_max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline bool
karst_is_pow2(uint64_t v)
{
	return v != 0 && (v & (v - 1)) == 0;
}

/** Smallest power of two that is not less than @v (1 for 0); @v at most 2^31. */
static inline uint32_t
karst_pow2_ceil(uint32_t v)
{
	return v <= 1 ? 1 : 1u << (32 - __builtin_clz(v - 1));
}

/** Base-2 logarithm of a power of two. */
static inline unsigned int
karst_log2(uint32_t pow2)
{
	return (unsigned int)__builtin_ctz(pow2);
}

#endif /* KARST_BASE_H */
