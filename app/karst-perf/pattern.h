/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The pattern that --verify writes to messages.  The eight bytes at offset o depend on the queue
 * pair, on the number of the message and on o, so that the data of another message or of another
 * offset is never taken for the right data.  The pattern can be generated and checked at memory
 * speed, because the compiler vectorizes both loops.
 *
 * The first eight bytes also contain the number of the message, which can be extracted if the queue
 * pair is known (perf_pattern_seq()).  So the receiver of an unreliable transport can tell a lost
 * message from a damaged one.
 */
#ifndef PERF_PATTERN_H
#define PERF_PATTERN_H

#include "karst_base.h"

/** Mixes the bits of @v, one to one. */
static inline uint64_t
perf_mix64(uint64_t v)
{
	v ^= v >> 32;
	v *= UINT64_C(0xd6e8feb86659fd93);
	v ^= v >> 32;
	v *= UINT64_C(0xd6e8feb86659fd93);
	v ^= v >> 32;
	return v;
}

/** The first eight bytes of the pattern of message @seq of queue pair @qp. */
static inline uint64_t
perf_pattern_first(uint64_t seed, uint32_t qp, uint32_t seq)
{
	return perf_mix64(seed + qp) + seq;
}

/** The message number in the first eight bytes of a message of queue pair @qp. */
static inline uint32_t
perf_pattern_seq(uint64_t seed, uint32_t qp, uint64_t first)
{
	return (uint32_t)(first - perf_mix64(seed + qp));
}

/** Writes message @seq of @qp. */
void perf_pattern_fill(void *to, uint32_t bytes, uint64_t seed, uint32_t qp, uint32_t seq);

/** @return whether @from holds message @seq of @qp. */
bool perf_pattern_check(const void *from, uint32_t bytes, uint64_t seed, uint32_t qp, uint32_t seq);

/** @return whether the last bytes of @from, eight or the shorter rest, are those of the message. */
bool perf_pattern_check_end(
	const void *from, uint32_t bytes, uint64_t seed, uint32_t qp, uint32_t seq);

/** @return whether @bytes at @from are all zero. */
bool perf_pattern_zero(const void *from, uint32_t bytes);

#endif /* PERF_PATTERN_H */
