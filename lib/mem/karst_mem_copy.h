/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Placing received payload in application memory.
 *
 * Order (R14).  A program may poll the last byte of a message instead of a completion, so the last
 * bytes of a message are stored after all others: neither memcpy() nor streaming stores guarantee
 * any order among the bytes of one call.  The last eight (four, one) bytes are one store, so a flag
 * of that size is never torn.
 *
 * Streaming.  Payload for a large region will not be in any cache, and a plain store would read
 * each line from memory before overwriting it.  For regions above a threshold and payloads of at
 * least KARST_COPY_STREAM_MIN bytes, stores bypass the cache: measured with 64 MiB buffers, 4 KiB
 * took 92 ns instead of 130 to 200.  Such stores are ordered only by a store fence, which the end
 * of a message (of any QP of this lcore) executes before its last bytes.
 */
#ifndef KARST_MEM_COPY_H
#define KARST_MEM_COPY_H

#include <stdatomic.h>

#include "karst_mem.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define KARST_COPY_STREAM_MIN 1024u

/** State of one lcore: which regions are large, and whether stores need a fence. */
struct karst_placer {
	uint64_t stream_bytes; /* regions of at least this size get streaming stores */
	bool pending;          /* streaming stores since the last fence */
	/* set by the driver for a packet that is the only one of its burst: latency matters, so the
	 * line with the end of the message is demoted to where the program loads it faster */
	bool demote_tail;
};

#if defined(__x86_64__)
static inline void
karst_copy_stream(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t head = -(uintptr_t)dst & (KARST_CACHE_LINE - 1), i;

	memcpy(dst, src, head);
	dst += head;
	src += head;
	n -= head;
	for (i = 0; i + KARST_CACHE_LINE <= n; i += KARST_CACHE_LINE) {
		__m128i a = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
		__m128i b = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 32));
		__m128i d = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 48));

		_mm_stream_si128((__m128i *)(void *)(dst + i), a);
		_mm_stream_si128((__m128i *)(void *)(dst + i + 16), b);
		_mm_stream_si128((__m128i *)(void *)(dst + i + 32), c);
		_mm_stream_si128((__m128i *)(void *)(dst + i + 48), d);
	}
	memcpy(dst + i, src + i, n - i);
}

static inline void
karst_copy_stream_fence(void)
{
	_mm_sfence();
}
#else
static inline void
karst_copy_stream(uint8_t *dst, const uint8_t *src, size_t n)
{
	memcpy(dst, src, n);
}

static inline void
karst_copy_stream_fence(void)
{
	atomic_thread_fence(memory_order_release);
}
#endif

/* The last @n (1..8) bytes of a message: one store for 8, 4 and 1. */
static inline void
karst_copy_tail(uint8_t *dst, const uint8_t *src, size_t n)
{
	uint64_t v8;
	uint32_t v4;

	/* release: everything else of the message before it.  The asm prevents the compiler from
	 * merging or moving the store; the accesses may be unaligned, so they are not _Atomic. */
	atomic_thread_fence(memory_order_release);
	if (n == 8) {
		memcpy(&v8, src, 8);
		memcpy(dst, &v8, 8);
	} else if (n == 4) {
		memcpy(&v4, src, 4);
		memcpy(dst, &v4, 4);
	} else {
		*dst = *src;
	}
	__asm__ volatile("" ::: "memory");
}

/** Lcore.  After it, all placed bytes are visible to any thread that synchronises with this
 *  lcore. */
static inline void
karst_mem_place_fence(struct karst_placer *p)
{
	if (p->pending) {
		karst_copy_stream_fence();
		p->pending = false;
	}
}

/**
 * Lcore.  R15: makes the placed bytes visible to every processor and program of the host before
 * anything that this lcore does afterwards.
 */
static inline void
karst_mem_show(struct karst_placer *p)
{
	karst_mem_place_fence(p);
	/* the stores that did not stream may still be in the store buffer */
	atomic_thread_fence(memory_order_seq_cst);
}

/**
 * Lcore.  Copies @n > 0 verified bytes to application memory; a check has returned @dst for the
 * region or window of @key.  @end: these are the last bytes of a message.
 */
static inline void
karst_mem_place(struct karst_placer *p, const struct karst_mem *m, uint32_t key, uint8_t *dst,
	const uint8_t *src, size_t n, bool end)
{
	size_t tail = end ? (n >= 8 ? 8 : n >= 4 ? 4 : 1) : 0;

	if (n >= KARST_COPY_STREAM_MIN && karst_mem_size_of(m, key) >= p->stream_bytes) {
		karst_copy_stream(dst, src, n - tail);
		p->pending = true;
	} else if (n != tail) {
		memcpy(dst, src, n - tail);
	}
	if (!end)
		return;
	karst_mem_place_fence(p);
	karst_copy_tail(dst + n - tail, src + n - tail, tail);
	if (p->demote_tail)
		karst_demote(dst + n - 1);
}

#endif /* KARST_MEM_COPY_H */
