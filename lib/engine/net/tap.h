/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The exception path: a tap interface beside a port that was taken from the kernel (tap.c).
 */
#ifndef ENG_TAP_H
#define ENG_TAP_H

#include "lcore.h"

struct eng_tap;

/* Makes the interface @name for port @port, which is configured, and starts its thread.  Logs what
 * failed. */
int eng_tap_create(struct karst_engine *e, uint8_t port, const char *name, struct eng_tap **tap);
/* The lcores have forgotten it. */
void eng_tap_destroy(struct eng_tap *tap);

/* On an lcore that serves the port: a copy of the frame for the kernel.  False: no room. */
bool eng_tap_put(struct eng_tap *tap, uint32_t lcore, const struct rte_mbuf *m);

/* The port's link has come or gone. */
void eng_tap_carrier(struct eng_tap *tap, bool up);

/* Frames that the kernel refused.  Any thread. */
uint64_t eng_tap_lost(const struct eng_tap *tap);

/* Sends what the kernel has sent on taps, of the ports that the lcore is home of. */
unsigned int eng_tap_poll(struct eng_lcore *lc);
/* Is there something of that? */
bool eng_tap_waiting(const struct eng_lcore *lc);

#endif /* ENG_TAP_H */
