/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What the daemon may do, by capabilities(7): more while it starts than afterwards. */
#ifndef KARSTD_CAPS_H
#define KARSTD_CAPS_H

#include "conf.h"

/** The capabilities that a running daemon of this configuration needs, a bit each. */
uint64_t kd_caps_needed(const struct kd_conf *c);

/** This thread's permitted ones all become effective; after a change of user.  0 or -errno. */
int kd_caps_raise(void);

/**
 * All threads of the process keep, of those that they have, the ones in @keep: the others leave the
 * permitted, effective, inheritable and ambient sets.  Said when a thread cannot.  0 or -errno.
 */
int kd_caps_keep(uint64_t keep);

#endif /* KARSTD_CAPS_H */
