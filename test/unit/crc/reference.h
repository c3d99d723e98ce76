/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* References for the tests of lib/crc: one bit at a time, directly from the definitions. */
#ifndef KARST_TEST_CRC_REFERENCE_H
#define KARST_TEST_CRC_REFERENCE_H

#include "karst_crc.h"

/** The state after one more byte. */
uint32_t ref_crc32_byte(uint32_t state, uint8_t byte);
uint32_t ref_crc32(uint32_t state, const uint8_t *p, size_t len);

/** VCRC (W8). */
uint16_t ref_vcrc(const uint8_t *p, size_t len);

/** The bits that W7 replaces by ones in the byte @off of a packet (from its IP header). */
uint8_t ref_icrc_mask(size_t off, bool ip6);
/** ICRC of the @len bytes from the IP header to the last pad byte (W7). */
uint32_t ref_icrc(const uint8_t *l3, size_t len, bool ip6);

/** A fixed sequence of pseudo-random numbers. */
uint32_t ref_rand(uint64_t *state);
void ref_fill(uint8_t *p, size_t len, uint64_t seed);

/** The i-th kernel that runs here, chosen by karst_crc_init(); NULL past the end. */
const struct karst_crc_ops *ref_kernel(unsigned int i);

/* Some pages between two that are inaccessible; ref_tail() gives the last @len bytes. */
struct ref_guard {
	uint8_t *first;
	size_t room;
};

struct ref_guard ref_guard_open(size_t room);
void ref_guard_close(struct ref_guard *g);
uint8_t *ref_tail(const struct ref_guard *g, size_t len);

#endif /* KARST_TEST_CRC_REFERENCE_H */
