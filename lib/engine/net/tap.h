/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The exception path: a tap interface for a port that was taken from the kernel (tap.c).
 */
#ifndef ENG_TAP_H
#define ENG_TAP_H

#include "lcore.h"

struct eng_tap;

/* Creates the interface @name for port @port, which is configured, and starts its thread.  Logs
 * failures. */
int eng_tap_create(struct karst_engine *e, uint8_t port, const char *name, struct eng_tap **tap);
/* To be called when no lcore uses it any more. */
void eng_tap_destroy(struct eng_tap *tap);

/* On an lcore that serves the port: copies the frame for the kernel.  @return false: no room. */
bool eng_tap_put(struct eng_tap *tap, uint32_t lcore, const struct rte_mbuf *m);

/* Sets the carrier of the interface to the state of the port's link. */
void eng_tap_carrier(struct eng_tap *tap, bool up);

/* Frames that the kernel refused.  Any thread. */
uint64_t eng_tap_lost(const struct eng_tap *tap);

/* Sends what the kernel has sent on the taps of the ports that the lcore is home of. */
unsigned int eng_tap_poll(struct eng_lcore *lc);
/* Whether there are such frames. */
bool eng_tap_waiting(const struct eng_lcore *lc);

#endif /* ENG_TAP_H */
