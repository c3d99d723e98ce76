/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Frames for the tests of lib/wire, and buffers that trap a read outside of them. */
#ifndef KARST_TEST_WIRE_SAMPLE_H
#define KARST_TEST_WIRE_SAMPLE_H

#include "karst_frame.h"
#include "karst_pkt.h"

/** A frame of @opcode with a distinct value in every field; @seed varies them. */
struct karst_frame sample_frame(
	uint8_t opcode, bool ip6, bool vlan, uint16_t pay_len, uint32_t seed);

/** Tells whether an opcode may have a payload, from its flags. */
bool sample_takes_payload(uint8_t opcode);

/** Builds @f into @buf (room @room); fails the test if that does not work.  @return length. */
unsigned int sample_build(uint8_t *buf, size_t room, const struct karst_frame *f);

/** Recomputes an IPv4 header's checksum after it was changed. */
void sample_fix_ip4(uint8_t *ip4);

/** Checks that the fields of a packet and of a frame agree; fails the test otherwise. */
void sample_check_fields(const struct karst_pkt *p, const struct karst_frame *f);

/*
 * A buffer of at most a few pages with unreadable pages on both sides. guard_tail() puts @len bytes
 * against the page behind, guard_head() against the page before.
 */
struct guard {
	uint8_t *map;
	size_t map_len;
	uint8_t *first;
	size_t room;
};

void guard_init(struct guard *g, size_t room);
void guard_free(struct guard *g);
uint8_t *guard_tail(struct guard *g, const void *src, size_t len);
uint8_t *guard_head(struct guard *g, const void *src, size_t len);

/** A fixed sequence of pseudo-random numbers (xorshift). */
uint64_t sample_rand(uint64_t *state);

#endif /* KARST_TEST_WIRE_SAMPLE_H */
