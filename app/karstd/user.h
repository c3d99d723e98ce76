/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The user that the daemon runs as. */
#ifndef KARSTD_USER_H
#define KARSTD_USER_H

#include "conf.h"

/**
 * A daemon that was started as root becomes [engine] user; its capabilities stay.  Before there
 * are other threads, and before anything is made that is to belong to that user.  Errors are said.
 * @return enum kd_exit.
 */
int kd_user_become(const struct kd_conf *c);

#endif /* KARSTD_USER_H */
