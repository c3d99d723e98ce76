/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Numbers that a peer must not guess: SipHash-2-4 of two words under a key of 128 bits (J.-P.
 * Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF", 2012).
 *
 * An observer of any number of outputs can predict neither the next one nor the key.  The key comes
 * from getrandom(); a test sets a fixed one, so that each run draws the same numbers.  Numbers for
 * different purposes have different keys, derived from one secret, so that outputs for one purpose
 * reveal nothing about the others.
 */
#ifndef KARST_PRF_H
#define KARST_PRF_H

#include "karst_base.h"

/** The number for (@a, @b) under @key. */
uint64_t karst_prf(const uint64_t key[2], uint64_t a, uint64_t b);

/** Derives the key for purpose @use, and object @n of that purpose, from @secret. */
void karst_prf_derive(const uint64_t secret[2], uint64_t use, uint64_t n, uint64_t key[2]);

#endif /* KARST_PRF_H */
