/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The daemon's capabilities, capabilities(7): it has more while it starts than afterwards. */
#ifndef KARSTD_CAPS_H
#define KARSTD_CAPS_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Returns the capabilities that the privileged part (part.h) needs, one bit each.  @xdp: programs
 * are attached to interfaces.  The engine's process needs none once everything is open.
 */
uint64_t kd_caps_of_part(bool xdp);

/** Return the capabilities that this thread has in its permitted set, and in its ambient set. */
uint64_t kd_caps_have(void);
uint64_t kd_caps_ambient(void);

/**
 * Gives the program that this process executes next the capabilities @keep, and no others unless it
 * runs as root.  Async-signal-safe. 0 or -errno.
 */
int kd_caps_hand_over(uint64_t keep);

/**
 * Makes all permitted capabilities of this thread effective, after a change of user. 0 or -errno.
 */
int kd_caps_raise(void);

/* Time limit for all threads to respond, so that a thread that hangs does not block the start.  A
 * thread that only waits for a CPU gets one within this time. */
#define KD_CAPS_WITHIN_S 120u

/**
 * Reduces the capabilities of all threads of the process to those in @keep: the others are removed
 * from the permitted, effective, inheritable and ambient sets.  Logs an error if a thread cannot do
 * that, or has not done it within @within_s seconds (-ETIMEDOUT). 0 or -errno.
 */
int kd_caps_keep(uint64_t keep, unsigned int within_s);

#endif /* KARSTD_CAPS_H */
