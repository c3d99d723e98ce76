/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Two ends that have agreed on selective repeat, for the tests of one program. */
#ifndef TEST_QP_REPEAT_BED_H
#define TEST_QP_REPEAT_BED_H

#include "harness.h"

#define WINDOW 64u

extern uint32_t kept_now; /* frames that are held */
extern void *repeat_mem;

/** Of that setup, with as many frames that may be held. */
struct bed *open_repeat(struct setup *s, uint32_t frames);
struct bed *bed_held(uint32_t frames, bool probes);
/** Of as many source ports, and with one that is latched. */
struct bed *bed_repeat_spray(uint32_t ports, bool latch);
struct bed *bed_repeat(void);
void close_repeat(struct bed *b);

/** The next frame is a SACK before PSN @epsn with these bits of the PSNs from there on. */
void expect_sack_at(struct bed *b, int line, uint32_t epsn, uint32_t bits);
#define expect_sack(b, epsn, bits) expect_sack_at(b, __LINE__, epsn, bits)

/** The peer's SACK. */
enum karst_drop send_map(struct bed *b, uint32_t epsn, const void *map, uint16_t len);
enum karst_drop send_sack(struct bed *b, uint32_t epsn, uint32_t bits);

#endif /* TEST_QP_REPEAT_BED_H */
