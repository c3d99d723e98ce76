/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * CRC-32 of Ethernet and InfiniBand (reflected polynomial 0x04C11DB7), by the widest carry-less
 * multiplier of the machine.
 *
 * A "state" is the CRC register in its reflected form without the final inversion, so a computation
 * can be continued from any point: crc = ~update(update(KARST_CRC32_INIT, a), b).
 *
 * Kernels are selected once, by karst_crc_init(), which also tests the selected one against known
 * answers.  After that all functions are thread-safe and touch no shared state.
 */
#ifndef KARST_CRC_H
#define KARST_CRC_H

#include "karst_base.h"

#define KARST_CRC32_INIT 0xffffffffu

/** A contiguous range of payload bytes. */
struct karst_seg {
	const uint8_t *src;
	uint32_t len;
};

/** One set of kernels, all for the same instruction set. */
struct karst_crc_ops {
	const char *name; /* "scalar", "pclmul", "vpclmul256", "vpclmul512", "gfni512", "pmull" */
	/**
	 * State after @len bytes of @buf, from @state.  Reads nothing else, but may prefetch a few
	 * KiB after a long buffer, since messages are processed in pieces.
	 */
	uint32_t (*update)(uint32_t state, const void *buf, size_t len);
	/** The same while copying to @dst; @dst and @src do not overlap. */
	uint32_t (*copy)(uint32_t state, void *dst, const void *src, size_t len);
};

/**
 * Selects and self-tests the kernels.
 * @name NULL for the best that this machine runs, or the name of one (the environment
 *   variable KARST_CRC does the same when @name is NULL).
 * @return 0; -ENOENT: no such kernel, -ENOTSUP: this machine cannot run it, -EIO: it failed its
 *   known-answer test.  Not thread-safe; call before the other functions.
 */
int karst_crc_init(const char *name);

/** The selected kernels (scalar before karst_crc_init()). */
const struct karst_crc_ops *karst_crc_ops(void);

/**
 * The @i-th set of kernels compiled in, mostly in order of speed with the fastest last, and whether
 * this machine runs it; NULL past the end.
 */
const struct karst_crc_ops *karst_crc_ops_at(unsigned int i, bool *runs_here);

/** CRC-16 of native InfiniBand's VCRC (W8) over @len bytes: the value as sent, low byte first. */
uint16_t karst_vcrc(const void *buf, size_t len);

#endif /* KARST_CRC_H */
