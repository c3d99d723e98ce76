/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The user that the daemon runs as. */
#ifndef KARSTD_USER_H
#define KARSTD_USER_H

#include "conf.h"

/**
 * Switches a daemon that was started as root to [engine] user; its capabilities stay.  Call before
 * there are other threads, and before files are created that have to belong to that user.  Errors
 * are logged.
 * @return enum kd_exit.
 */
int kd_user_become(const struct kd_conf *c);

#endif /* KARSTD_USER_H */
