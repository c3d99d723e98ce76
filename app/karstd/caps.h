/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What the daemon may do, by capabilities(7): more while it starts than afterwards. */
#ifndef KARSTD_CAPS_H
#define KARSTD_CAPS_H

#include <stdbool.h>
#include <stdint.h>

/** The capabilities that the privileged part (part.h) needs, a bit each; @xdp: programs are
 *  attached to interfaces.  The engine's process needs none once all is open. */
uint64_t kd_caps_of_part(bool xdp);

/** Those that this thread has permitted; that are ambient. */
uint64_t kd_caps_have(void);
uint64_t kd_caps_ambient(void);

/** What this process executes next has the capabilities @keep, and, if it is not root's, no others.
 *  Async-signal-safe.  0 or -errno. */
int kd_caps_hand_over(uint64_t keep);

/** This thread's permitted ones all become effective; after a change of user.  0 or -errno. */
int kd_caps_raise(void);

/* For threads to answer: ends the wait for one that hangs.  One that only waits for a processor
 * gets it. */
#define KD_CAPS_WITHIN_S 120u

/**
 * All threads of the process keep, of those that they have, the ones in @keep: the others leave the
 * permitted, effective, inheritable and ambient sets.  Said when a thread cannot, or has not within
 * @within_s seconds (-ETIMEDOUT).  0 or -errno.
 */
int kd_caps_keep(uint64_t keep, unsigned int within_s);

#endif /* KARSTD_CAPS_H */
