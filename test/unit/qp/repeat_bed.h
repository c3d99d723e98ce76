/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Two ends that have agreed to selective repeat, for the tests of one program. */
#ifndef TEST_QP_REPEAT_BED_H
#define TEST_QP_REPEAT_BED_H

#include "harness.h"

#define WINDOW 64u

extern uint32_t kept_now; /* number of frames that are held */
extern void *repeat_mem;

/** Adds selective repeat to a setup; @frames may be held. */
void setup_repeat(struct setup *s, uint32_t frames);
/** Opens a bed with that setup, in which @frames may be held. */
struct bed *open_repeat(struct setup *s, uint32_t frames);
struct bed *bed_held(uint32_t frames, bool probes);
/** The same with @ports source ports, and with a latched one. */
struct bed *bed_repeat_spray(uint32_t ports, bool latch);
struct bed *bed_repeat(void);
void close_repeat(struct bed *b);

/** Expects that the next frame is a SACK before PSN @epsn with these bits of the PSNs from there
 * on. */
void expect_sack_at(struct bed *b, int line, uint32_t epsn, uint32_t bits);
#define expect_sack(b, epsn, bits) expect_sack_at(b, __LINE__, epsn, bits)

/** Sends a SACK of the peer. */
enum karst_drop send_map(struct bed *b, uint32_t epsn, const void *map, uint16_t len);
enum karst_drop send_sack(struct bed *b, uint32_t epsn, uint32_t bits);

#endif /* TEST_QP_REPEAT_BED_H */
